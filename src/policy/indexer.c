/* SPDX-License-Identifier: Apache-2.0
 *
 * `indexer`: what the model itself brings along to choose entries by (ig_index_shape). It is part of how such a model
 * was trained, so that prompts choose likewise, token by token: their keys and values are others than under a policy
 * whose prompts use everything.
 *
 * The model's own keys are kept as 16-bit floats. A score's scale means nothing, since only the order counts. Layers
 * without keys of their own use what the layer before has chosen (DeepSeek Sparse Attention in GLM-5), and a guess for
 * such a one is chosen again; or they use everything (MiniMax M3).
 */
#include <string.h>

#include "base/compiler.h"
#include "policy/policy.h"

enum { TILE = 64 /* keys scored together */ };

typedef struct indexer_policy {
    ig_policy base;
    ig_unit_table keys; /* units: [IG_UNIT_SLOTS][dim], 16-bit floats, of layers that have keys of their own */
} indexer_policy;

static size_t unit_bytes(const ig_policy_shape *s) { return IG_UNIT_SLOTS * (size_t)s->index.dim * sizeof(uint16_t); }

/* Entries that are chosen together, and how many such blocks n entries are. */
static int block_of(const ig_policy *p) { return ig_max_int(p->shape.index.block, 1); }

static int count_blocks(const ig_policy *p, int n) { return (n + block_of(p) - 1) / block_of(p); }

static int most(const ig_policy *p, int n) {
    const ig_cache_options *o = &p->options;
    int count = o->budget_entries || o->budget > 0 ? ig_policy_budget(p, n) : p->shape.index.n_chosen;
    int n_blocks = ig_max_int(count_blocks(p, count), p->shape.index.n_local);
    return ig_min_int(n, n_blocks * block_of(p));
}

static bool indexer_takes_all(const ig_policy *p, int n) { return most(p, n) >= n; }

static uint64_t indexer_plan(const ig_policy_shape *s, const ig_cache_options *o, int n) {
    uint64_t n_own = 0, units = ((uint64_t)n + IG_UNIT_SLOTS - 1) / IG_UNIT_SLOTS;
    for (int l = 0; l < s->n_layers; l++) n_own += s->index_layer[l] == l && !ig_policy_layer_is_dense(s, o, l);
    return n_own * units * unit_bytes(s);
}

static ig_status indexer_open(ig_policy *base, ig_error *err) {
    indexer_policy *p = (indexer_policy *)base;
    return ig_policy_open_table(&p->keys, base, "the model's own keys", 0, unit_bytes(&base->shape), err);
}

static void indexer_close(ig_policy *base) { ig_unit_table_close(&((indexer_policy *)base)->keys); }

static void indexer_append(ig_policy *base, int layer, int head, int slot, const uint16_t *share) {
    const indexer_policy *p = (indexer_policy *)base;
    size_t dim = (size_t)base->shape.index.dim, n = dim / (size_t)base->shape.n_kv_heads;
    uint16_t *unit = ig_unit_table_edit(&p->keys, ig_policy_head(base, layer, 0), slot / IG_UNIT_SLOTS);
    memcpy(unit + (size_t)(slot % IG_UNIT_SLOTS) * dim + (size_t)head * n, share, n * sizeof *share);
}

/* out[i] = the scores of n keys, added up over the queries. */
static void add_scores(float *out, float scores[][TILE], const float *weights, int n_heads, int n) {
    float sum[TILE] = {0};
    for (int h = 0; h < n_heads; h++)
        for (int i = 0; i < TILE; i++) sum[i] += weights[h] * (scores[h][i] > 0 ? scores[h][i] : 0);
    memcpy(out, sum, (size_t)n * sizeof *out);
}

/* The scores of a part of the slots. With blocks the list has a query of its own. */
static void indexer_score(ig_policy *base, ig_choosing *x, int part) {
    const indexer_policy *p = (indexer_policy *)base;
    const ig_index_shape *s = &base->shape.index;
    float *out = x->scratch, scores[IG_INDEX_HEADS][TILE] = {{0}};
    const float *q = x->index_q + (s->block ? (size_t)x->list * (size_t)s->dim : 0);
    if (indexer_takes_all(base, x->e.n)) return;
    size_t head = ig_policy_head(base, base->shape.index_layer[x->layer], 0);
    int begin = part * IG_POLICY_PART, end = x->e.n;
    if (ig_policy_tasks(&base->ops->stages[0], x) > 1) end = ig_min_int(end, begin + IG_POLICY_PART);
    const uint16_t *keys[TILE];
    for (int first = begin; first < end; first += TILE) {
        int n = ig_min_int(end - first, TILE);
        for (int i = 0; i < n; i++) {
            const uint16_t *unit = ig_unit_table_at(&p->keys, head, (first + i) / IG_UNIT_SLOTS);
            keys[i] = unit + (size_t)((first + i) % IG_UNIT_SLOTS) * (size_t)s->dim;
        }
        base->shape.kernels->attn_scores(scores[0], TILE, q, s->block ? 1 : s->n_heads, s->dim, 1, keys, n);
        if (s->block)
            memcpy(out + first, scores[0], (size_t)n * sizeof *out);
        else
            add_scores(out + first, scores, x->index_weights, s->n_heads, n);
    }
}

/* A block's score is its best entry's; they take the place of those of the first entries. */
static void pool(float *scores, int n, int block) {
    for (int first = 0, b = 0; first < n; first += block, b++) {
        float best = scores[first];
        for (int i = first + 1; i < n && i < first + block; i++) best = scores[i] > best ? scores[i] : best;
        scores[b] = best;
    }
}

/* n_blocks numbers of blocks become those of their entries, of n in all; returns how many. The last ones come first,
 * since there is more of what is written than of what is read. */
static int spread(int32_t *index, int n_blocks, int block, int n) {
    int end = (n_blocks - 1) * block + ig_min_int(n - index[n_blocks - 1] * block, block);
    for (int b = n_blocks - 1, at = end; b >= 0; b--) {
        int first = index[b] * block, size = ig_min_int(n - first, block);
        at -= size;
        for (int i = size - 1; i >= 0; i--) index[at + i] = first + i;
    }
    return end;
}

/* Those with the best scores, which become weights that are not negative. */
static void indexer_choose(ig_policy *base, ig_choosing *x, int part) {
    float *scores = x->scratch;
    int block = block_of(base), n = count_blocks(base, x->e.n);
    ig_pick_rule best = {
        .n_recent = base->shape.index.n_local, .count = count_blocks(base, most(base, x->e.n)), .mass = 1};
    (void)part;
    x->n = x->e.n;
    if (best.count >= n) return;
    if (block > 1) pool(scores, x->e.n, block);
    float least = scores[0];
    for (int i = 1; i < n; i++) least = scores[i] < least ? scores[i] : least;
    for (int i = 0; i < n; i++) scores[i] -= least;
    x->n = ig_pick(base->shape.kernels, x->index, scores, n, &best);
    if (block > 1) x->n = spread(x->index, x->n, block, x->e.n);
}

static size_t indexer_scratch_bytes(const ig_policy_shape *s) { return (size_t)s->n_ctx * sizeof(float); }

static int indexer_tables(const ig_policy *p, const ig_unit_table *tables[IG_POLICY_TABLES]) {
    tables[0] = &((const indexer_policy *)p)->keys;
    return 1;
}

const ig_policy_ops ig_policy_indexer = {
    .info = {.name = "indexer",
             .help = "what the model itself brings along to choose entries by (DeepSeek-V3.2, GLM-5, MiniMax M3)",
             .chooses_in_prompts = true,
             .ignores_window = true},
    .goes_by_index = true,
    .n_dense_layers = -1,
    .plan = indexer_plan,
    .size = sizeof(indexer_policy),
    .open = indexer_open,
    .close = indexer_close,
    .append_index = indexer_append,
    .most = most,
    .takes_all = indexer_takes_all,
    .stages = {{.run = indexer_score, .by_part = true}, {.run = indexer_choose}},
    .scratch_bytes = indexer_scratch_bytes,
    .tables = indexer_tables,
};
