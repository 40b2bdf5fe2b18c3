/* SPDX-License-Identifier: Apache-2.0
 *
 * The default policy: everything is kept, and at each step the entries that will matter are guessed from a sketch of
 * the keys (the paper's section 4.3 with a better sketch and one selection per KV head).
 *
 * The sketch holds a few numbers of each post-RoPE key in 4 bits, with minimum and step per token and KV head. With a
 * sketch file (format/sketch.h) these are the key's images under the prepared maps; without one they are
 * the key itself, which needs no calibration. Both are rotated, so that no outlier sets the step for all. The queries
 * of a group, mapped and rotated likewise, score it, each query's scores are softmax-normalised and the group's are
 * summed; sinks, the recent window and the heaviest others are used, within the budget. The others count by a sketch of
 * their values (values.h).
 */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/memory.h"
#include "policy/choose.h"

typedef struct infinigen_policy {
    ig_policy base;
    int rank;             /* numbers kept of a key */
    ig_unit_table sketch; /* units: a block of IG_SKETCH_TOKENS tokens */
    ig_chooser chooser;
} infinigen_policy;

static int n_blocks(int n_tokens) { return (n_tokens + IG_SKETCH_TOKENS - 1) / IG_SKETCH_TOKENS; }

static int rank_of(const ig_policy_shape *s) { return s->sketch ? s->sketch->shape.rank : s->head_dim; }

static uint64_t map_bytes(const ig_policy_shape *s) { return s->sketch ? s->sketch->file.size : 0; }

static size_t sketch_bytes(const ig_policy_shape *s, int n) {
    return (size_t)n_blocks(n) * ig_sketch_block_bytes(rank_of(s));
}

static uint64_t infinigen_plan(const ig_policy_shape *s, const ig_cache_options *o, int n) {
    return ig_policy_sparse_heads(s, o) * (sketch_bytes(s, n) + ig_chooser_head_bytes(s, o, n)) + map_bytes(s);
}

static void infinigen_close(ig_policy *base) {
    infinigen_policy *p = (infinigen_policy *)base;
    ig_unit_table_close(&p->sketch);
    ig_chooser_close(&p->chooser);
    free(p);
}

static ig_status infinigen_open(ig_policy **out, const ig_policy_shape *shape, const ig_cache_options *options,
                                ig_error *err) {
    ig_status s = ig_policy_new(out, sizeof(infinigen_policy), &ig_policy_infinigen, shape, options, err);
    if (s) return s;
    infinigen_policy *p = (infinigen_policy *)*out;
    p->rank = rank_of(shape);
    uint64_t maps = shape->sketch ? XXH3_64bits(shape->sketch->file.data, shape->sketch->file.size) : 0;
    s = ig_policy_open_table(&p->sketch, *out, "key sketch", maps, ig_sketch_block_bytes(p->rank), err);
    if (!s) s = ig_chooser_open(&p->chooser, *out, err);
    return ig_policy_opened(out, s);
}

/* out = K key - offset. */
static void map_key(float *out, const infinigen_policy *p, int layer, int head, const uint16_t *key) {
    enum { PIECE = 64 }; /* rows of the map in one call: queries of the kernel */
    const ig_policy_shape *s = &p->base.shape;
    const float *map = ig_sketch_key_map(s->sketch, layer, head), *offset = ig_sketch_offset(s->sketch, layer, head);
    for (int i = 0; i < p->rank; i += PIECE) {
        int n = p->rank - i < PIECE ? p->rank - i : PIECE;
        s->kernels->attn_scores(out + i, 1, map + (size_t)i * (size_t)s->head_dim, n, s->head_dim, 1, &key, 1);
    }
    for (int i = 0; i < p->rank; i++) out[i] -= offset[i];
}

static void infinigen_append(ig_policy *base, int layer, int head, int token, const uint16_t *key,
                             const uint16_t *value) {
    infinigen_policy *p = (infinigen_policy *)base;
    void *block = ig_unit_table_at(&p->sketch, ig_policy_head(base, layer, head), token / IG_SKETCH_TOKENS);
    const ig_kernels *k = base->shape.kernels;
    float numbers[IG_SKETCH_MAX_DIM];
    uint16_t rotated[IG_SKETCH_MAX_DIM];
    if (base->shape.sketch)
        map_key(numbers, p, layer, head, key);
    else
        k->f16_to_f32(numbers, key, p->rank);
    k->hadamard(numbers, p->rank);
    k->f32_to_f16(rotated, numbers, p->rank);
    k->sketch_put(block, token % IG_SKETCH_TOKENS, rotated, p->rank);
    ig_chooser_append(&p->chooser, ig_policy_head(base, layer, head), token, value);
}

/* Parts of a thread's scratch. */
typedef struct select_scratch {
    ig_arena arena;
    ig_choice_scratch choice;
    float *queries;  /* [group][rank] as the sketch wants them */
    uint8_t *column; /* [group] queries in the form that the product with a map wants; NULL without maps */
} select_scratch;

static select_scratch lay_out(void *base, const ig_policy_shape *s, int n_slots) {
    select_scratch x = {.arena = {.base = base, .size = SIZE_MAX}};
    size_t group = (size_t)(s->n_heads / s->n_kv_heads);
    x.choice = ig_choice_lay_out(&x.arena, s, n_slots);
    x.queries = ig_arena_take(&x.arena, group * (size_t)rank_of(s) * sizeof(float));
    if (s->sketch) x.column = ig_arena_take(&x.arena, group * s->kernels->act_bytes(IG_ACT_F32, s->head_dim));
    return x;
}

static size_t infinigen_scratch_bytes(const ig_policy_shape *s) {
    return lay_out(NULL, s, ig_policy_slots(s)).arena.used;
}

/* Q q for the queries of a group. */
static void map_queries(const select_scratch *x, const infinigen_policy *p, int layer, int head, const float *q) {
    const ig_policy_shape *s = &p->base.shape;
    int d = s->head_dim, group = s->n_heads / s->n_kv_heads;
    size_t stride = s->kernels->act_bytes(IG_ACT_F32, d);
    for (int g = 0; g < group; g++)
        s->kernels->act_prepare[IG_ACT_F32](x->column + (size_t)g * stride, q + (size_t)g * (size_t)d, d);
    ig_matmul product = {.w = ig_sketch_query_map(s->sketch, layer, head),
                         .row_bytes = (size_t)d * sizeof(float),
                         .n_in = d,
                         .act = x->column,
                         .act_stride = stride,
                         .n_cols = group,
                         .out = x->queries,
                         .out_stride = (size_t)p->rank};
    s->kernels->gemv[IG_TYPE_F32](&product, 0, p->rank);
}

/* The queries' scores of all slots. */
static void score(const infinigen_policy *p, size_t head, const select_scratch *x, int n_slots) {
    const ig_policy_shape *s = &p->base.shape;
    for (int i = 0, end = n_blocks(n_slots), run; i < end; i += run) {
        run = ig_unit_run(&p->sketch.home, i, end - i);
        s->kernels->sketch_scores(x->choice.scores + (size_t)i * IG_SKETCH_TOKENS, x->choice.stride, x->queries,
                                  s->n_heads / s->n_kv_heads, p->rank, s->scale, ig_unit_table_at(&p->sketch, head, i),
                                  run);
    }
}

static int infinigen_select(ig_policy *base, int layer, int head, const float *q, const ig_entries *e, int32_t *index,
                            const ig_rest *rest, void *scratch) {
    infinigen_policy *p = (infinigen_policy *)base;
    const ig_policy_shape *s = &base->shape;
    if (ig_chooser_takes_all(base, e->n)) return e->n;
    select_scratch x = lay_out(scratch, s, e->n_slots);
    int group = s->n_heads / s->n_kv_heads;
    if (s->sketch)
        map_queries(&x, p, layer, head, q);
    else
        memcpy(x.queries, q, (size_t)group * (size_t)p->rank * sizeof *q);
    for (int g = 0; g < group; g++) s->kernels->hadamard(x.queries + (size_t)g * (size_t)p->rank, p->rank);
    score(p, ig_policy_head(base, layer, head), &x, e->n_slots);
    return ig_chooser_choose(&p->chooser, base, ig_policy_head(base, layer, head), e, &x.choice, index, rest);
}

static int infinigen_tables(const ig_policy *base, const ig_unit_table *tables[IG_POLICY_TABLES]) {
    const infinigen_policy *p = (const infinigen_policy *)base;
    tables[0] = &p->sketch;
    return 1 + ig_chooser_table(&p->chooser, &tables[1]);
}

static void infinigen_undo(ig_policy *p, int n_tokens) { ig_chooser_undo(&((infinigen_policy *)p)->chooser, n_tokens); }

static void infinigen_resume(ig_policy *p, int n_tokens) {
    ig_chooser_resume(&((infinigen_policy *)p)->chooser, n_tokens);
}

const ig_policy_ops ig_policy_infinigen = {
    .name = "infinigen",
    .help = "keep every entry, use those that a 4-bit sketch of the keys says will matter",
    .sketch = IG_SKETCH_BALANCED,
    .takes_limit = true,
    .n_whole = IG_CHOICE_WHOLE,
    .plan = infinigen_plan,
    .open = infinigen_open,
    .close = infinigen_close,
    .append = infinigen_append,
    .select = infinigen_select,
    .scratch_bytes = infinigen_scratch_bytes,
    .tables = infinigen_tables,
    .undo = infinigen_undo,
    .resume = infinigen_resume,
};
