/* SPDX-License-Identifier: Apache-2.0
 *
 * The paper's method as published (InfiniGen, OSDI'24, sections 4.2 and 4.3). Queries and keys are multiplied, after
 * RoPE, by the orthogonal matrix A of their query head (format/sketch.h; without a file by none). For models without
 * RoPE that is the same as folding A into W_Q and W_K. From the prompt, each query head takes the columns J with the
 * largest sums of |q A| + |k A|, and keeps these columns of every key as 16-bit floats. A step scores all entries but
 * its own token's by J alone, counts those within alpha of the head's best, and every head uses as many of its best
 * entries as that is on average over the heads, up to the budget, and its own token.
 *
 * J is known when the prompt is: at the first step. Until then the keys themselves are kept; then each layer changes
 * over when its turn comes. A session that keeps a part of its tokens for another prompt keeps J with them.
 *
 * A GPU has a copy of the partial keys and chooses by them itself, once J is known.
 *
 * Without RoPE a guess needs only columns J of W_Q A (partial_weights.h): they are made together with J, and from the
 * next step on stand in for W_Q.
 *
 * What differs from the authors' code is in docs/sketch.md.
 */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "device/space.h"
#include "policy/partial_weights.h"

enum {
    TILE = 16,  /* keys or queries that are multiplied together */
    ROWS = 64,  /* columns of A in one call of a kernel */
    KEYS = 128, /* partial keys scored in one call */
    PAGE = 4096,
    GONE = INT_MAX, /* J was of keys some of which are not held any more: it stays */
};

typedef struct osdi24_policy {
    ig_policy base;
    int n_columns;         /* in J */
    int width;             /* n_columns rounded up for the kernels; the rest is 0 */
    int n_sparse;          /* layers that are not dense */
    ig_head_table keys;    /* of KV heads of sparse layers: slots of [head_dim], while J is not known */
    ig_head_table partial; /* of query heads of sparse layers: slots of [width] */
    int *copied;           /* [n_sparse][n_heads] first slots of these that a device which helps has as they are */
    ig_partial_weights weights;
    ig_space space;      /* of what follows, and of the weights' arrays */
    int *sparse;         /* [n_layers] number among the sparse layers, -1: dense */
    int32_t *columns;    /* [n_sparse][n_heads][head_dim] J, ascending */
    double *query_sums;  /* [n_sparse][n_heads][head_dim] of |q A| over the prompt */
    double *sums_before; /* the same, before the last piece of the prompt */
    int *piece;          /* [n_sparse][n_heads] where that began, 0: there was none to take back */
    int *n_seen;         /* [n_sparse][n_heads] of the prompt's queries */
    int *chosen;         /* [n_sparse][n_heads] of how many entries' keys J was; 0: not yet; GONE */
    bool *has_keys;      /* [n_sparse][n_kv_heads] whether `keys` are in use */
    float *scores;       /* [n_heads][n_ctx] of the layer at work */
    int *counts;         /* [n_heads] of scores within alpha of the best */
} osdi24_policy;

static int group_of(const ig_policy_shape *s) { return s->n_heads / s->n_kv_heads; }

static size_t query_head(const osdi24_policy *p, int layer, int head) {
    return (size_t)p->sparse[layer] * (size_t)p->base.shape.n_heads + (size_t)head;
}

static size_t kv_head(const osdi24_policy *p, int layer, int head) {
    return (size_t)p->sparse[layer] * (size_t)p->base.shape.n_kv_heads + (size_t)head;
}

static uint16_t *key_at(const osdi24_policy *p, int layer, int head, int slot) {
    uint16_t *keys = ig_head_table_at(&p->keys, kv_head(p, layer, head));
    return keys + (size_t)slot * (size_t)p->base.shape.head_dim;
}

static uint16_t *partial_at(const osdi24_policy *p, int layer, int head, int slot) {
    uint16_t *partial = ig_head_table_at(&p->partial, query_head(p, layer, head));
    return partial + (size_t)slot * (size_t)p->width;
}

/* The partial key of a slot is another one. */
static void note_change(osdi24_policy *p, size_t head, int slot) {
    if (slot < p->copied[head]) p->copied[head] = slot;
}

/* ---- opening ------------------------------------------------------------------ */

static void set_sizes(osdi24_policy *p) {
    const ig_policy_shape *s = &p->base.shape;
    p->n_columns = (int)(p->base.options.partial * s->head_dim + 1e-9);
    if (p->n_columns < 1) p->n_columns = 1;
    p->width = (p->n_columns + 7) / 8 * 8;
    p->n_sparse = ig_policy_sparse_layers(s, &p->base.options);
    const char *speculate = p->base.options.speculate;
    p->weights.shape = s;
    p->weights.n_layers = p->n_sparse;
    p->weights.n_columns = p->n_columns;
    p->weights.n_in = speculate && strcmp(speculate, "none") == 0 ? 0 : s->n_query_in;
}

/* Of n slots of a KV head; of a query head, and there of whole units: pages, which are given back one by one. */
static size_t key_bytes(const osdi24_policy *p, int n) {
    return ig_round_up((size_t)n * (size_t)p->base.shape.head_dim * sizeof(uint16_t), PAGE);
}

static size_t partial_bytes(const osdi24_policy *p, int n) {
    return ig_round_up(ig_round_up((size_t)n, IG_UNIT_SLOTS) * (size_t)p->width * sizeof(uint16_t), PAGE);
}

static void lay_out(osdi24_policy *p) {
    const ig_policy_shape *s = &p->base.shape;
    size_t heads = (size_t)p->n_sparse * (size_t)s->n_heads, d = (size_t)s->head_dim;
    p->sparse = ig_space_host(&p->space, (size_t)s->n_layers * sizeof *p->sparse);
    p->columns = ig_space_host(&p->space, heads * d * sizeof *p->columns);
    p->query_sums = ig_space_host(&p->space, heads * d * sizeof *p->query_sums);
    p->sums_before = ig_space_host(&p->space, heads * d * sizeof *p->sums_before);
    p->piece = ig_space_host(&p->space, heads * sizeof *p->piece);
    p->n_seen = ig_space_host(&p->space, heads * sizeof *p->n_seen);
    p->chosen = ig_space_host(&p->space, heads * sizeof *p->chosen);
    p->copied = ig_space_host(&p->space, heads * sizeof *p->copied);
    p->has_keys = ig_space_host(&p->space, heads * sizeof *p->has_keys);
    p->scores = ig_space_host(&p->space, (size_t)s->n_heads * (size_t)s->n_ctx * sizeof *p->scores);
    p->counts = ig_space_host(&p->space, (size_t)s->n_heads * sizeof *p->counts);
    ig_partial_weights_lay_out(&p->weights, &p->space);
}

static uint64_t fixed_bytes(const osdi24_policy *p) {
    const ig_sketch_file *sketch = p->base.shape.sketch;
    return ig_space_bytes(&p->space) + (sketch ? sketch->file.size : 0);
}

/* The most that is held at once: a layer changes over while those before it have and those behind it have not. */
static uint64_t osdi24_plan(const ig_policy_shape *shape, const ig_cache_options *options, int n) {
    osdi24_policy p = {.base = {.shape = *shape, .options = *options}};
    set_sizes(&p);
    p.space.dev = shape->device;
    lay_out(&p);
    if (!p.n_sparse) return fixed_bytes(&p);
    uint64_t n_sparse = (uint64_t)p.n_sparse, keys = (uint64_t)shape->n_kv_heads * key_bytes(&p, n),
             partial = (uint64_t)shape->n_heads * partial_bytes(&p, n);
    uint64_t more = keys > partial ? keys : partial, less = keys > partial ? partial : keys;
    return n_sparse * more + less + ig_partial_weights_plan(&p.weights) + fixed_bytes(&p);
}

static uint64_t osdi24_plan_copies(const ig_policy_shape *shape, const ig_cache_options *options, int n) {
    osdi24_policy p = {.base = {.shape = *shape, .options = *options}};
    set_sizes(&p);
    return (uint64_t)p.n_sparse * (uint64_t)shape->n_heads * partial_bytes(&p, n) +
           ig_partial_weights_plan(&p.weights) + (shape->sketch ? shape->sketch->file.size : 0);
}

/* Whether a device helps to choose, with copies of partial keys and weights and of the matrices A. */
static bool is_helped(const osdi24_policy *p) { return ig_policy_is_helped(p->base.ops, p->base.shape.device); }

static ig_status open_copies(osdi24_policy *p, ig_error *err) {
    ig_device *dev = p->base.shape.device;
    const ig_sketch_file *sketch = p->base.shape.sketch;
    ig_status s = ig_head_table_open_copies(&p->partial, dev, "partial keys", err);
    return s || !sketch ? s : dev->ops->bind(dev, sketch->file.data, sketch->file.size, err);
}

static void osdi24_close(ig_policy *base) {
    osdi24_policy *p = (osdi24_policy *)base;
    const ig_policy_shape *s = &base->shape;
    if (s->sketch && is_helped(p)) s->device->ops->unbind(s->device, s->sketch->file.data);
    ig_head_table_close(&p->keys);
    ig_head_table_close(&p->partial);
    ig_partial_weights_close(&p->weights);
    ig_space_close(&p->space);
}

static ig_status osdi24_open(ig_policy *base, ig_error *err) {
    osdi24_policy *p = (osdi24_policy *)base;
    const ig_policy_shape *shape = &base->shape;
    set_sizes(p);
    p->space.dev = shape->device;
    lay_out(p);
    size_t heads = (size_t)p->n_sparse * (size_t)shape->n_heads,
           groups = (size_t)p->n_sparse * (size_t)shape->n_kv_heads, bytes = ig_space_bytes(&p->space);
    int n_slots = ig_policy_slots(shape);
    ig_status s = ig_space_open(&p->space) ? IG_OK : ig_fail_memory(err, "partial keys", bytes);
    if (!s) s = ig_head_table_open(&p->keys, "keys of the prompt", groups, key_bytes(p, n_slots), err);
    if (!s) s = ig_head_table_open(&p->partial, "partial keys", heads, partial_bytes(p, n_slots), err);
    if (!s) s = ig_partial_weights_open(&p->weights, is_helped(p), err);
    if (!s && is_helped(p)) s = open_copies(p, err);
    if (s) return s;
    lay_out(p);
    for (int l = 0, n = 0; l < shape->n_layers; l++)
        p->sparse[l] = ig_policy_layer_is_dense(shape, &base->options, l) ? -1 : n++;
    return IG_OK;
}

/* ---- skewing -------------------------------------------------------------------- */

/* out[j][i] = column j of A times row i, for n <= TILE rows of 16-bit floats. */
static void skew(float out[][TILE], const osdi24_policy *p, int layer, int head, const uint16_t *const *rows, int n) {
    const ig_policy_shape *s = &p->base.shape;
    int d = s->head_dim;
    if (s->sketch) {
        const float *a = ig_sketch_skew(s->sketch, layer, head);
        for (int j = 0; j < d; j += ROWS)
            s->kernels->attn_scores(out[j], TILE, a + (size_t)j * (size_t)d, d - j < ROWS ? d - j : ROWS, d, 1, rows,
                                    n);
        return;
    }
    float plain[IG_KV_DIMS];
    for (int i = 0; i < n; i++) {
        s->kernels->f16_to_f32(plain, rows[i], d);
        for (int j = 0; j < d; j++) out[j][i] = plain[j];
    }
}

static void add_sizes(double *sums, float skewed[][TILE], int d, int n) {
    for (int j = 0; j < d; j++)
        for (int i = 0; i < n; i++) sums[j] += fabs((double)skewed[j][i]);
}

/* Columns J of a skewed row. */
static void take_columns(float *out, const osdi24_policy *p, size_t head, float skewed[][TILE], int i) {
    const int32_t *columns = p->columns + head * (size_t)p->base.shape.head_dim;
    for (int c = 0; c < p->width; c++) out[c] = c < p->n_columns ? skewed[columns[c]][i] : 0;
}

static void put_partial(osdi24_policy *p, int layer, int head, int slot, float skewed[][TILE], int i) {
    float narrow[IG_KV_DIMS];
    take_columns(narrow, p, query_head(p, layer, head), skewed, i);
    p->base.shape.kernels->f32_to_f16(partial_at(p, layer, head, slot), narrow, p->width);
    note_change(p, query_head(p, layer, head), slot);
}

/* ---- the prompt ------------------------------------------------------------------ */

static void osdi24_see_queries(ig_policy *base, int layer, int head, const float *q, size_t stride, int first, int n) {
    osdi24_policy *p = (osdi24_policy *)base;
    int d = base->shape.head_dim;
    size_t at = query_head(p, layer, head);
    double *sums = p->query_sums + at * (size_t)d;
    if (first == 0) {
        if (p->chosen[at]) ig_pages_drop(partial_at(p, layer, head, 0), p->partial.head_bytes);
        p->chosen[at] = 0;
        ig_partial_weights_forget(&p->weights, at);
        memset(sums, 0, (size_t)d * sizeof *sums);
    }
    if (p->chosen[at]) return;
    p->piece[at] = first;
    p->n_seen[at] = first + n;
    memcpy(p->sums_before + at * (size_t)d, sums, (size_t)d * sizeof *sums);
    float skewed[IG_KV_DIMS][TILE];
    uint16_t rows[TILE][IG_KV_DIMS];
    const uint16_t *row[TILE];
    for (int begin = 0; begin < n; begin += TILE) {
        int m = n - begin < TILE ? n - begin : TILE;
        for (int i = 0; i < m; i++) {
            base->shape.kernels->f32_to_f16(rows[i], q + (size_t)(begin + i) * stride, d);
            row[i] = rows[i];
        }
        skew(skewed, p, layer, head, row, m);
        add_sizes(sums, skewed, d, m);
    }
}

/* Takes back what a step that failed did in the layers that it came to: the queries of a piece, or J, which the first
 * step after a prompt chooses. The keys that it is chosen from are gone then. */
static bool osdi24_undo(ig_policy *base, int n_tokens) {
    osdi24_policy *p = (osdi24_policy *)base;
    size_t heads = (size_t)p->n_sparse * (size_t)base->shape.n_heads, d = (size_t)base->shape.head_dim;
    bool lacks_keys = false;
    for (size_t at = 0; at < heads; at++) {
        if (p->chosen[at] == n_tokens) {
            p->chosen[at] = 0, lacks_keys = true;
            ig_partial_weights_forget(&p->weights, at);
        } else if (p->piece[at] == n_tokens && !p->chosen[at]) {
            memcpy(p->query_sums + at * d, p->sums_before + at * d, d * sizeof *p->query_sums);
            p->n_seen[at] = n_tokens;
        }
    }
    return lacks_keys;
}

/* J is chosen from the queries of a prompt: those that are cut off before can't be taken out of the sums. */
static int osdi24_cut(ig_policy *base, int n_tokens) {
    osdi24_policy *p = (osdi24_policy *)base;
    size_t heads = (size_t)p->n_sparse * (size_t)base->shape.n_heads;
    bool is_mixed = false;
    for (size_t at = 0; at < heads; at++) {
        p->piece[at] = 0;
        if (!p->chosen[at] && n_tokens < p->n_seen[at]) is_mixed = true;
        if (n_tokens < p->chosen[at]) p->chosen[at] = GONE;
    }
    return is_mixed ? 0 : n_tokens;
}

static void osdi24_append(ig_policy *base, int layer, int head, int slot, const uint16_t *key, const uint16_t *value) {
    osdi24_policy *p = (osdi24_policy *)base;
    int group = group_of(&base->shape);
    float skewed[IG_KV_DIMS][TILE];
    (void)value;
    for (int h = head * group; h < (head + 1) * group; h++)
        if (p->chosen[query_head(p, layer, h)]) {
            skew(skewed, p, layer, h, &key, 1);
            put_partial(p, layer, h, slot, skewed, 0);
        } else {
            memcpy(key_at(p, layer, head, slot), key, (size_t)base->shape.head_dim * sizeof *key);
            p->has_keys[kv_head(p, layer, head)] = true;
        }
}

/* Keys of entries [begin, begin + n), n <= TILE. */
static void skew_keys(float out[][TILE], const osdi24_policy *p, int layer, int head, const ig_entries *e, int begin,
                      int n) {
    const uint16_t *row[TILE];
    for (int i = 0; i < n; i++) row[i] = key_at(p, layer, head / group_of(&p->base.shape), ig_entry_slot(e, begin + i));
    skew(out, p, layer, head, row, n);
}

/* Chooses J from the prompt's queries and the first n entries' keys, and keeps these columns of all entries. */
static void choose_columns(osdi24_policy *p, int layer, int head, const ig_entries *e, int n) {
    int d = p->base.shape.head_dim;
    size_t at = query_head(p, layer, head);
    float skewed[IG_KV_DIMS][TILE], weights[IG_KV_DIMS];
    double sums[IG_KV_DIMS];
    memcpy(sums, p->query_sums + at * (size_t)d, (size_t)d * sizeof *sums);
    for (int begin = 0; begin < n; begin += TILE) {
        int m = n - begin < TILE ? n - begin : TILE;
        skew_keys(skewed, p, layer, head, e, begin, m);
        add_sizes(sums, skewed, d, m);
    }
    for (int j = 0; j < d; j++) weights[j] = (float)sums[j];
    ig_pick_rule best = {.count = p->n_columns, .mass = 1};
    ig_pick(p->base.shape.kernels, p->columns + at * (size_t)d, weights, d, &best);
    p->chosen[at] = n;
    for (int begin = 0; begin < e->n; begin += TILE) {
        int m = e->n - begin < TILE ? e->n - begin : TILE;
        skew_keys(skewed, p, layer, head, e, begin, m);
        for (int i = 0; i < m; i++) put_partial(p, layer, head, ig_entry_slot(e, begin + i), skewed, i);
    }
}

static const ig_matrix *osdi24_narrow(ig_policy *base, int layer, const ig_matrix *whole) {
    osdi24_policy *p = (osdi24_policy *)base;
    return ig_partial_weights_matrix(&p->weights, p->sparse[layer], whole);
}

/* ---- steps ----------------------------------------------------------------------- */

/* Columns J of a query, in 16-bit precision, and zeros up to `width`. */
static void narrow_query(float *out, const osdi24_policy *p, int layer, int head, const float *q, bool is_narrow) {
    const ig_kernels *k = p->base.shape.kernels;
    float skewed[IG_KV_DIMS][TILE];
    uint16_t rounded[IG_KV_DIMS];
    const uint16_t *row = rounded;
    k->f32_to_f16(rounded, q, is_narrow ? p->n_columns : p->base.shape.head_dim);
    if (is_narrow) {
        memset(out, 0, (size_t)p->width * sizeof *out);
        k->f16_to_f32(out, rounded, p->n_columns);
        return;
    }
    skew(skewed, p, layer, head, &row, 1);
    take_columns(out, p, query_head(p, layer, head), skewed, 0);
}

/* Scores without a query's own token. Infinities and NaN, which broken models make, become numbers. */
static void score_entries(const osdi24_policy *p, int layer, int head, const float *q, const ig_entries *e, int n) {
    const ig_policy_shape *s = &p->base.shape;
    const float limit = 1e30f;
    float narrow[IG_KV_DIMS], *scores = p->scores + (size_t)head * (size_t)s->n_ctx;
    const uint16_t *row[KEYS];
    narrow_query(narrow, p, layer, head, q, e->narrow);
    for (int begin = 0; begin < n; begin += KEYS) {
        int m = n - begin < KEYS ? n - begin : KEYS;
        for (int i = 0; i < m; i++) row[i] = partial_at(p, layer, head, ig_entry_slot(e, begin + i));
        s->kernels->attn_scores(scores + begin, 0, narrow, 1, p->width, s->scale, row, m);
    }
    ig_cap_scores(s->kernels, s->cap, scores, 0, 1, n);
    for (int i = 0; i < n; i++) {
        float x = scores[i] > -limit ? scores[i] : -limit;
        scores[i] = x < limit ? x : limit;
    }
}

/* Before the first of a list's choices J is chosen. */
static void know_columns(osdi24_policy *p, const ig_choosing *x, int n) {
    size_t at = query_head(p, x->layer, x->list);
    if (p->chosen[at]) return;
    choose_columns(p, x->layer, x->list, &x->e, n);
    ig_partial_weights_make(&p->weights, x->layer, p->sparse[x->layer], x->list,
                            p->columns + at * (size_t)p->base.shape.head_dim, x->scratch);
}

/* After it, when all heads of the group have chosen J. */
static void drop_keys(osdi24_policy *p, int layer, int head) {
    int group = group_of(&p->base.shape);
    if (head % group || !p->has_keys[kv_head(p, layer, head / group)]) return;
    ig_pages_drop(key_at(p, layer, head / group, 0), p->keys.head_bytes);
    p->has_keys[kv_head(p, layer, head / group)] = false;
}

static void osdi24_score(ig_policy *base, ig_choosing *x, int part) {
    osdi24_policy *p = (osdi24_policy *)base;
    int n = x->e.n - x->e.has_own, layer = x->layer, head = x->list;
    (void)part;
    p->counts[head] = 0;
    if (n <= 0) return;
    know_columns(p, x, n);
    score_entries(p, layer, head, x->q, &x->e, n);
    const float *scores = p->scores + (size_t)head * (size_t)base->shape.n_ctx;
    float best = base->shape.kernels->max(scores, n);
    p->counts[head] = base->shape.kernels->count_above(scores, n, best - (float)base->options.alpha, NULL);
}

/* Entries that every head uses, of n. */
static int common_count(const osdi24_policy *p, int n) {
    int64_t sum = 0;
    for (int h = 0; h < p->base.shape.n_heads; h++) sum += p->counts[h];
    int mean = (int)(sum / p->base.shape.n_heads), most = ig_policy_budget(&p->base, n);
    return mean > most ? most : mean < 1 ? 1 : mean;
}

/* In lanes, so that a compiler can use vectors. */
static float smallest(const float *x, int n) {
    enum { LANES = 16 };
    float low[LANES];
    int i = 0;
    for (int j = 0; j < LANES; j++) low[j] = x[0];
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) low[j] = x[i + j] < low[j] ? x[i + j] : low[j];
    for (; i < n; i++) low[0] = x[i] < low[0] ? x[i] : low[0];
    for (int j = 1; j < LANES; j++) low[0] = low[j] < low[0] ? low[j] : low[0];
    return low[0];
}

static void osdi24_choose(ig_policy *base, ig_choosing *x, int part) {
    osdi24_policy *p = (osdi24_policy *)base;
    int n = x->e.n - x->e.has_own, head = x->list;
    (void)part;
    x->n = x->e.n;
    if (n <= 0) return;
    drop_keys(p, x->layer, head);
    ig_pick_rule best = {.count = common_count(p, n), .mass = 1};
    if (best.count >= n) return;
    float *weights = p->scores + (size_t)head * (size_t)base->shape.n_ctx, low = smallest(weights, n);
    for (int i = 0; i < n; i++) weights[i] -= low;
    x->n = ig_pick(base->shape.kernels, x->index, weights, n, &best);
    if (x->e.has_own) x->index[x->n++] = n;
    ig_policy_name_slots(x);
}

/* ---- with a device's help ------------------------------------------------------------- */

/* Partial keys of the first n slots. */
static ig_units units_of(osdi24_policy *p, size_t head, int n) {
    ig_units units = {.host = ig_head_table_at(&p->partial, head),
                      .dev = p->partial.copies + head * p->partial.head_bytes,
                      .bytes = IG_UNIT_SLOTS * (size_t)p->width * sizeof(uint16_t),
                      .fresh = p->copied[head] / IG_UNIT_SLOTS};
    p->copied[head] = n;
    return units;
}

static bool osdi24_describe(ig_policy *base, const ig_choosing *x, ig_scan_list *out) {
    osdi24_policy *p = (osdi24_policy *)base;
    const ig_policy_shape *s = &base->shape;
    int n = x->e.n - x->e.has_own;
    size_t at = query_head(p, x->layer, x->list);
    if (n <= 0) return false;
    know_columns(p, x, n);
    *out = (ig_scan_list){
        .keys = units_of(p, at, n),
        .n = x->e.n,
        .group = 1,
        .rank = p->width,
        .head_dim = s->head_dim,
        .scale = s->scale,
        .q = x->dev_q,
        .k = x->e.has_own ? x->dev_k : NULL,
        .rule = {.n_recent = x->e.has_own, .count = ig_policy_budget(base, n) + x->e.has_own, .mass = 1},
        .columns = {.n = p->n_columns, .alpha = (float)base->options.alpha, .list = x->list, .n_lists = s->n_heads}};
    if (x->e.narrow) return true;
    out->columns.index = p->columns + at * (size_t)s->head_dim;
    if (s->sketch) out->query_map = ig_sketch_skew(s->sketch, x->layer, x->list);
    return true;
}

/* J of all heads is known. */
static bool osdi24_is_ready(const ig_policy *base) {
    const osdi24_policy *p = (const osdi24_policy *)base;
    for (int i = 0; i < p->n_sparse * base->shape.n_heads; i++)
        if (!p->chosen[i]) return false;
    return true;
}

static void osdi24_take(ig_policy *base, const ig_choosing *x) { drop_keys((osdi24_policy *)base, x->layer, x->list); }

static void osdi24_move(ig_policy *base, int layer, int head, int from, int to) {
    osdi24_policy *p = (osdi24_policy *)base;
    int group = group_of(&base->shape);
    if (p->has_keys[kv_head(p, layer, head)])
        memcpy(key_at(p, layer, head, to), key_at(p, layer, head, from),
               (size_t)base->shape.head_dim * sizeof(uint16_t));
    for (int h = head * group; h < (head + 1) * group; h++)
        if (p->chosen[query_head(p, layer, h)]) {
            memcpy(partial_at(p, layer, h, to), partial_at(p, layer, h, from), (size_t)p->width * sizeof(uint16_t));
            note_change(p, query_head(p, layer, h), to);
        }
}

static uint64_t osdi24_bytes(const ig_policy *base, int n) {
    const osdi24_policy *p = (const osdi24_policy *)base;
    const ig_policy_shape *s = &base->shape;
    uint64_t numbers = 0;
    for (int i = 0; i < p->n_sparse * s->n_heads; i++) numbers += p->chosen[i] ? (uint64_t)p->width : 0;
    for (int i = 0; i < p->n_sparse * s->n_kv_heads; i++) numbers += p->has_keys[i] ? (uint64_t)s->head_dim : 0;
    return numbers * (uint64_t)n * sizeof(uint16_t) + ig_partial_weights_bytes(&p->weights) + fixed_bytes(p);
}

const ig_policy_ops ig_policy_infinigen_osdi24 = {
    .info = {.name = "infinigen-osdi24",
             .help = "the paper's method: per query head, as many entries as score within alpha of the best",
             .sketch = IG_SKETCH_SKEW,
             .ignores_window = true,
             .takes_alpha = true,
             .sees_prompts = true},
    .n_dense_layers = 2,
    .per_query_head = true,
    .takes_limit = true,
    .guess_is_final = true,
    .budget = 0.20,
    .plan = osdi24_plan,
    .size = sizeof(osdi24_policy),
    .open = osdi24_open,
    .close = osdi24_close,
    .append = osdi24_append,
    .see_queries = osdi24_see_queries,
    .narrow = osdi24_narrow,
    .meet = true,
    .stages = {{.run = osdi24_score}, {.run = osdi24_choose}},
    .scratch_bytes = ig_partial_weights_scratch,
    .describe = osdi24_describe,
    .is_ready = osdi24_is_ready,
    .take = osdi24_take,
    .plan_copies = osdi24_plan_copies,
    .move = osdi24_move,
    .undo = osdi24_undo,
    .cut = osdi24_cut,
    .bytes = osdi24_bytes,
};
