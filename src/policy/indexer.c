/* SPDX-License-Identifier: Apache-2.0
 *
 * `indexer`: what the model itself brings along to choose entries by (DeepSeek Sparse Attention, ig_index_shape). It is
 * part of how such a model was trained, so that prompts choose likewise, token by token: their keys and values are
 * others than under a policy whose prompts use everything.
 *
 * The model's own keys are kept as 16-bit floats. A score's scale means nothing, since only the order counts. Layers
 * without keys of their own use what the layer before has chosen; a guess for such a one is chosen again.
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

static int most(const ig_policy *p, int n) {
    const ig_cache_options *o = &p->options;
    if (o->budget_entries || o->budget > 0) return ig_policy_budget(p, n);
    return ig_min_int(n, p->shape.index.n_chosen);
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

static void indexer_append(ig_policy *base, int layer, int slot, const uint16_t *key) {
    const indexer_policy *p = (indexer_policy *)base;
    size_t dim = (size_t)base->shape.index.dim;
    if (base->shape.index_layer[layer] != layer) return;
    uint16_t *unit = ig_unit_table_edit(&p->keys, ig_policy_head(base, layer, 0), slot / IG_UNIT_SLOTS);
    memcpy(unit + (size_t)(slot % IG_UNIT_SLOTS) * dim, key, dim * sizeof *key);
}

/* out[i] = the scores of n keys, added up over the queries. */
static void add_scores(float *out, float scores[][TILE], const float *weights, int n_heads, int n) {
    float sum[TILE] = {0};
    for (int h = 0; h < n_heads; h++)
        for (int i = 0; i < TILE; i++) sum[i] += weights[h] * (scores[h][i] > 0 ? scores[h][i] : 0);
    memcpy(out, sum, (size_t)n * sizeof *out);
}

/* The scores of a part of the slots. */
static void indexer_score(ig_policy *base, ig_choosing *x, int part) {
    const indexer_policy *p = (indexer_policy *)base;
    const ig_index_shape *s = &base->shape.index;
    float *out = x->scratch, scores[IG_INDEX_HEADS][TILE] = {{0}};
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
        base->shape.kernels->attn_scores(scores[0], TILE, x->index_q, s->n_heads, s->dim, 1, keys, n);
        add_scores(out + first, scores, x->index_weights, s->n_heads, n);
    }
}

/* Those with the best scores, which become weights that are not negative. */
static void indexer_choose(ig_policy *base, ig_choosing *x, int part) {
    float *scores = x->scratch, least = scores[0];
    ig_pick_rule best = {.count = most(base, x->e.n), .mass = 1};
    (void)part;
    x->n = x->e.n;
    if (best.count >= x->n) return;
    for (int i = 1; i < x->e.n; i++) least = scores[i] < least ? scores[i] : least;
    for (int i = 0; i < x->e.n; i++) scores[i] -= least;
    x->n = ig_pick(base->shape.kernels, x->index, scores, x->e.n, &best);
}

static size_t indexer_scratch_bytes(const ig_policy_shape *s) { return (size_t)s->n_ctx * sizeof(float); }

static int indexer_tables(const ig_policy *p, const ig_unit_table *tables[IG_POLICY_TABLES]) {
    tables[0] = &((const indexer_policy *)p)->keys;
    return 1;
}

const ig_policy_ops ig_policy_indexer = {
    .name = "indexer",
    .help = "what the model itself brings along to choose entries by (DeepSeek Sparse Attention)",
    .goes_by_index = true,
    .chooses_in_prompts = true,
    .ignores_window = true,
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
