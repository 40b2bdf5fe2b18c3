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
#include <string.h>

#include "base/memory.h"
#include "policy/choose.h"

typedef struct infinigen_policy {
    ig_chooser chooser;
    int rank;             /* numbers kept of a key */
    ig_unit_table sketch; /* units: a block of IG_SKETCH_TOKENS tokens */
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

static uint64_t infinigen_plan_copies(const ig_policy_shape *s, const ig_cache_options *o, int n) {
    size_t values = o->no_rest ? 0 : ig_values_head_bytes(n, s->head_dim);
    return ig_policy_sparse_heads(s, o) * (sketch_bytes(s, n) + values) + map_bytes(s);
}

/* A device that helps to choose has a copy of the maps. */
static bool has_copy(const ig_policy *p) {
    return p->shape.sketch && ig_policy_is_helped(&ig_policy_infinigen, p->shape.device);
}

static void infinigen_close(ig_policy *base) {
    infinigen_policy *p = (infinigen_policy *)base;
    if (has_copy(base)) base->shape.device->ops->unbind(base->shape.device, base->shape.sketch->file.data);
    ig_unit_table_close(&p->sketch);
    ig_chooser_close(&p->chooser);
}

static ig_status infinigen_open(ig_policy *base, ig_error *err) {
    infinigen_policy *p = (infinigen_policy *)base;
    const ig_policy_shape *shape = &base->shape;
    p->rank = rank_of(shape);
    uint64_t maps = shape->sketch ? shape->sketch->checksum : 0;
    ig_status s = ig_policy_open_table(&p->sketch, base, "key sketch", maps, ig_sketch_block_bytes(p->rank), err);
    if (!s) s = ig_chooser_open(&p->chooser, err);
    if (!s && has_copy(base))
        s = shape->device->ops->bind(shape->device, shape->sketch->file.data, shape->sketch->file.size, err);
    return s;
}

/* out = K key - offset. */
static void map_key(float *out, const infinigen_policy *p, int layer, int head, const uint16_t *key) {
    enum { PIECE = 64 }; /* rows of the map in one call: queries of the kernel */
    const ig_policy_shape *s = &p->chooser.base.shape;
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
    void *block = ig_unit_table_edit(&p->sketch, ig_policy_head(base, layer, head), token / IG_SKETCH_TOKENS);
    const ig_kernels *k = base->shape.kernels;
    float numbers[IG_KV_DIMS];
    uint16_t rotated[IG_KV_DIMS];
    if (base->shape.sketch)
        map_key(numbers, p, layer, head, key);
    else
        k->f16_to_f32(numbers, key, p->rank);
    k->hadamard(numbers, p->rank);
    k->f32_to_f16(rotated, numbers, p->rank);
    k->sketch_put(block, token % IG_SKETCH_TOKENS, rotated, p->rank);
    ig_chooser_append(&p->chooser, ig_policy_head(base, layer, head), token, value);
}

/* A list's scratch. Each part has queries of its own: mapping them takes little beside what they are compared with. */
typedef struct select_scratch {
    ig_arena arena;
    ig_choice_scratch choice;
    float *queries;  /* [parts][group][rank] as the sketch wants them */
    uint8_t *column; /* [parts][group] queries in the form that the product with a map wants; NULL without maps */
    size_t stride;   /* bytes of one */
} select_scratch;

static select_scratch lay_out(void *base, const ig_policy_shape *s, int n_slots) {
    select_scratch x = {.arena = {.base = base, .size = SIZE_MAX}};
    size_t n = (size_t)(s->n_heads / s->n_kv_heads) * ((size_t)n_slots / IG_POLICY_PART + 1);
    x.choice = ig_choice_lay_out(&x.arena, s, n_slots);
    x.queries = ig_arena_take(&x.arena, n * (size_t)rank_of(s) * sizeof(float));
    x.stride = s->kernels->act_bytes(IG_ACT_F32, s->head_dim);
    if (s->sketch) x.column = ig_arena_take(&x.arena, n * x.stride);
    return x;
}

static size_t infinigen_scratch_bytes(const ig_policy_shape *s) {
    return lay_out(NULL, s, ig_policy_slots(s)).arena.used;
}

/* Q q for the queries of a group; without maps q itself. */
static void map_queries(float *out, uint8_t *column, size_t stride, const ig_policy_shape *s, const ig_choosing *x) {
    int d = s->head_dim, rank = rank_of(s), group = s->n_heads / s->n_kv_heads;
    if (!s->sketch) {
        memcpy(out, x->q, (size_t)group * (size_t)rank * sizeof *out);
        return;
    }
    for (int g = 0; g < group; g++)
        s->kernels->act_prepare[IG_ACT_F32](column + (size_t)g * stride, x->q + (size_t)g * (size_t)d, d);
    ig_matmul product = {.w = ig_sketch_query_map(s->sketch, x->layer, x->list),
                         .row_bytes = (size_t)d * sizeof(float),
                         .n_in = d,
                         .act = column,
                         .act_stride = stride,
                         .n_cols = group,
                         .out = out,
                         .out_stride = (size_t)rank};
    s->kernels->gemv[IG_TYPE_F32](&product, 0, rank);
}

/* A part's queries [group][rank] as the sketch wants them. */
static const float *prepare_queries(const select_scratch *scratch, const infinigen_policy *p, const ig_choosing *x,
                                    int part) {
    const ig_policy_shape *s = &p->chooser.base.shape;
    int group = s->n_heads / s->n_kv_heads;
    size_t at = (size_t)part * (size_t)group;
    float *queries = scratch->queries + at * (size_t)p->rank;
    map_queries(queries, s->sketch ? scratch->column + at * scratch->stride : NULL, scratch->stride, s, x);
    for (int g = 0; g < group; g++) s->kernels->hadamard(queries + (size_t)g * (size_t)p->rank, p->rank);
    return queries;
}

/* The queries' scores of a part of the slots. */
static void infinigen_scan(ig_policy *base, ig_choosing *x, int part) {
    const infinigen_policy *p = (const infinigen_policy *)base;
    const ig_policy_shape *s = &base->shape;
    if (ig_chooser_takes_all(base, x->e.n)) return;
    int group = s->n_heads / s->n_kv_heads, begin, end;
    size_t head = ig_policy_head(base, x->layer, x->list);
    select_scratch scratch = lay_out(x->scratch, s, x->e.n_slots);
    ig_choice_scratch *c = &scratch.choice;
    const float *queries = prepare_queries(&scratch, p, x, part);
    ig_choice_part(x, part, &begin, &end);
    for (int i = begin / IG_SKETCH_TOKENS, last = n_blocks(end), run; i < last; i += run) {
        run = ig_unit_run(&p->sketch.home, i, last - i);
        s->kernels->sketch_scores(c->scores + (size_t)i * IG_SKETCH_TOKENS, c->stride, queries, group, p->rank,
                                  s->scale, ig_unit_table_at(&p->sketch, head, i), run);
    }
    ig_chooser_scored(base, x, c, part);
}

static bool infinigen_describe(ig_policy *base, const ig_choosing *x, ig_scan_list *out) {
    const infinigen_policy *p = (const infinigen_policy *)base;
    const ig_sketch_file *maps = base->shape.sketch;
    if (ig_chooser_takes_all(base, x->e.n) || x->e.slot) return false;
    *out = (ig_scan_list){.keys = ig_policy_units(base, &p->sketch, x), .rank = p->rank};
    if (maps) {
        out->query_map = ig_sketch_query_map(maps, x->layer, x->list);
        out->key_map = ig_sketch_key_map(maps, x->layer, x->list);
        out->offset = ig_sketch_offset(maps, x->layer, x->list);
    }
    ig_chooser_describe(&p->chooser, x, out);
    return true;
}

static int infinigen_tables(const ig_policy *base, const ig_unit_table *tables[IG_POLICY_TABLES]) {
    const infinigen_policy *p = (const infinigen_policy *)base;
    tables[0] = &p->sketch;
    return 1 + ig_chooser_table(&p->chooser, &tables[1]);
}

const ig_policy_ops ig_policy_infinigen = {
    .info = {.name = "infinigen",
             .help = "keep every entry, use those that a 4-bit sketch of the keys says will matter",
             .sketch = IG_SKETCH_BALANCED,
             .takes_mass = true},
    .takes_limit = true,
    .n_whole = IG_CHOICE_WHOLE,
    .plan = infinigen_plan,
    .size = sizeof(infinigen_policy),
    .open = infinigen_open,
    .close = infinigen_close,
    .append = infinigen_append,
    .takes_all = ig_chooser_takes_all,
    .stages = IG_CHOOSER_STAGES(infinigen_scan),
    .scratch_bytes = infinigen_scratch_bytes,
    .describe = infinigen_describe,
    .take = ig_chooser_take,
    .plan_copies = infinigen_plan_copies,
    .tables = infinigen_tables,
    .undo = ig_chooser_undo,
    .cut = ig_chooser_cut,
    .resume = ig_chooser_resume,
};
