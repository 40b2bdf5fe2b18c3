/* SPDX-License-Identifier: Apache-2.0
 *
 * ig_prepare(): runs the model over a calibration text, sums second moments of its queries and keys per layer and head,
 * factorises them (factor.c) and writes the sketch file.
 *
 * The statistics of rotated queries and keys depend on their positions, and the text is short. So row t of T is rotated
 * further, as if it stood at position t (n - 1) / (T - 1) of the n that the sketch is for. A sketch of the text's own
 * positions does much worse beyond them (docs/sketch.md). A skew is the paper's, of the text's own positions, and of
 * each query head's queries alone.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/ranges.h"
#include "prepare/factor.h"
#include "prepare/text.h"
#include "prepare/text_pass.h"
#include "infinigen_tools.h"

enum { MAX_TOKENS = 2048, BATCH = 256, DEFAULT_CTX = 8192 };

typedef struct preparation {
    ig_model *m;
    const ig_config *c;
    const ig_kernels *kernels;
    ig_prepare_options o;
    ig_sketch_shape shape;
    int32_t *ids;
    int n_tokens;
    ig_text_pass pass;
    int first, n_rows; /* of the batch at work */
    float *cs;         /* [sets][BATCH][n_rot] cosines and sines of how much further a row is rotated */
    float *rows;       /* [n_kv_heads][ROWS][head_dim] rows at work, a set for each task */
    double *moments;   /* [n_layers][shape.n_heads][moment_doubles] */
    float *maps;       /* of the file */
} preparation;

enum { ROWS = 4 }; /* added to the moments together */

/* ---- second moments --------------------------------------------------------- */

static bool is_skew(const preparation *p) { return p->shape.kind == IG_SKETCH_SKEW; }

static size_t moment_doubles(const preparation *p) {
    size_t d = (size_t)p->c->head_dim;
    return is_skew(p) ? d * d : d * (2 * d + 1);
}

/* Of a KV head, or for a skew of a query head: then q2 alone. */
static ig_moments moments_of(const preparation *p, int layer, int head) {
    size_t d = (size_t)p->c->head_dim;
    double *at = p->moments + ((size_t)layer * (size_t)p->shape.n_heads + (size_t)head) * moment_doubles(p);
    if (is_skew(p)) return (ig_moments){.q2 = at};
    return (ig_moments){.q2 = at, .k2 = at + d * d, .k1 = at + 2 * d * d, .n_keys = p->n_tokens};
}

static double position_of(const preparation *p, int row) {
    if (is_skew(p)) return row;
    return (double)row * (p->shape.n_ctx - 1) / (p->n_tokens - 1);
}

static float *turn_of(const preparation *p, int set, int row) {
    return p->cs + ((size_t)set * BATCH + (size_t)row) * (size_t)p->c->rope.n;
}

/* Cosines and sines of the batch's rows, for all layers. */
static void turn_rows(preparation *p) {
    int half = p->c->rope.n / 2, n = ig_config_rope_sets(p->c) * p->n_rows;
    for (int j = 0; j < n && p->c->rope.kind != IG_ROPE_NONE; j++) {
        int set = j / p->n_rows, r = j % p->n_rows;
        float *cs = turn_of(p, set, r);
        double further = position_of(p, p->first + r) - (p->first + r);
        for (int i = 0; i < half; i++) {
            cs[i] = (float)cos(further * p->m->inv_freq[set][i]);
            cs[half + i] = (float)sin(further * p->m->inv_freq[set][i]);
        }
    }
}

static void take_row(const preparation *p, int layer, float *out, const float *x, int row) {
    memcpy(out, x, (size_t)p->c->head_dim * sizeof *out);
    int set = p->c->rope.set[layer];
    if (set == IG_ROPE_LEFT_OUT) return;
    const float *cs = turn_of(p, set, row);
    if (p->c->rope.kind == IG_ROPE_HALF) p->kernels->rope_half(out, cs, p->c->rope.n);
    if (p->c->rope.kind == IG_ROPE_ADJACENT) p->kernels->rope_adjacent(out, cs, p->c->rope.n);
}

/* c += sum of x x^T over ROWS rows, upper triangle. */
static void add_products(double *restrict c, const float *restrict x, int d) {
    const float *restrict y = x + d, *restrict z = y + d, *restrict w = z + d;
    for (int i = 0; i < d; i++) {
        double a = (double)x[i], b = (double)y[i], e = (double)z[i], f = (double)w[i];
        for (int j = i; j < d; j++)
            c[(size_t)i * (size_t)d + (size_t)j] +=
                a * (double)x[j] + b * (double)y[j] + e * (double)z[j] + f * (double)w[j];
    }
}

typedef struct moments_job {
    preparation *p;
    int layer;
} moments_job;

/* Adds the batch's rows of one head to a sum of products and, unless NULL, to a plain sum. */
static void add_rows(preparation *p, int layer, double *products, double *sums, const float *x, size_t stride,
                     float *rows) {
    size_t d = (size_t)p->c->head_dim;
    for (int r = 0; r < p->n_rows; r += ROWS) {
        memset(rows, 0, ROWS * d * sizeof *rows);
        for (int i = 0; i < ROWS && r + i < p->n_rows; i++) {
            float *row = rows + (size_t)i * d;
            take_row(p, layer, row, x + (size_t)(r + i) * stride, r + i);
            for (size_t j = 0; sums && j < d; j++) sums[j] += (double)row[j];
        }
        add_products(products, rows, p->c->head_dim);
    }
}

/* Task: one KV head of a layer, with the query heads of its group. */
static void add_head(void *arg, int head, int thread) {
    moments_job *job = arg;
    preparation *p = job->p;
    const ig_config *c = p->c;
    size_t d = (size_t)c->head_dim;
    int group = c->n_heads / c->n_kv_heads;
    float *rows = p->rows + (size_t)head * ROWS * d;
    (void)thread;
    for (int q = head * group; q < (head + 1) * group; q++)
        add_rows(p, job->layer, moments_of(p, job->layer, is_skew(p) ? q : head).q2, NULL,
                 p->pass.batch.rows.q.host + (size_t)q * d, (size_t)c->n_heads * d, rows);
    if (is_skew(p)) return;
    ig_moments m = moments_of(p, job->layer, head);
    add_rows(p, job->layer, m.k2, m.k1, p->pass.batch.rows.k.host + (size_t)head * d, (size_t)c->n_kv_heads * d, rows);
}

static void add_layer(void *user, ig_tap_place at, int layer) {
    moments_job job = {user, layer};
    if (at != IG_TAP_HEADS) return;
    ig_device *dev = job.p->m->ctx->device;
    dev->ops->parallel(dev, job.p->c->n_kv_heads, add_head, &job);
}

/* ---- the steps --------------------------------------------------------------- */

/* Half of the work is running the model, half factorising; a unit is a token. */
static ig_status report(const preparation *p, double share, ig_error *err) {
    uint64_t total = 2 * (uint64_t)p->n_tokens;
    if (p->o.progress && p->o.progress(p->o.progress_user, (uint64_t)(share * (double)total), total))
        return ig_fail(err, IG_E_INTERRUPTED, "preparing was interrupted");
    return IG_OK;
}

static ig_status run_model(preparation *p, ig_error *err) {
    ig_status s = IG_OK;
    p->pass.batch.tap = add_layer;
    p->pass.batch.tap_user = p;
    for (p->first = 0; !s && p->first < p->n_tokens; p->first += p->n_rows) {
        p->n_rows = p->n_tokens - p->first < BATCH ? p->n_tokens - p->first : BATCH;
        turn_rows(p);
        s = ig_text_pass_run(&p->pass, p->first, p->n_rows, err);
        if (!s) s = report(p, 0.5 * (p->first + p->n_rows) / p->n_tokens, err);
    }
    return s;
}

static ig_status factorise(preparation *p, ig_error *err) {
    const ig_config *c = p->c;
    size_t n = ig_factor_scratch(c->head_dim);
    double *scratch = malloc(n * sizeof *scratch);
    if (!scratch) return ig_fail_memory(err, "factorisation", n * sizeof *scratch);
    ig_status s = IG_OK;
    int n_heads = p->shape.n_heads, heads = p->shape.n_layers * n_heads;
    for (int i = 0; !s && i < heads; i++) {
        ig_moments m = moments_of(p, i / n_heads, i % n_heads);
        float *maps = p->maps + (size_t)i * ig_sketch_head_floats(&p->shape);
        if (p->m->weights.sink_scores && !is_skew(p))
            memset(m.k1, 0, (size_t)c->head_dim * sizeof *m.k1); /* a sink would see the offset */
        bool done = is_skew(p) ? ig_factor_skew(maps, m.q2, c->head_dim, scratch)
                               : ig_factor(maps, &m, c->head_dim, p->shape.rank, scratch);
        if (!done)
            s = ig_fail(err, IG_E_UNSUPPORTED, "%s: layer %d: its queries and keys over this text cannot be factorised",
                        p->m->path, i / n_heads);
        if (!s) s = report(p, 0.5 + 0.5 * (i + 1) / heads, err);
    }
    free(scratch);
    return s;
}

/* The context of a skew is the text, and its rank that of the keys. */
static ig_status check_skew(preparation *p, ig_error *err) {
    const ig_config *c = p->c;
    if (p->o.n_ctx || p->o.rank) return ig_fail(err, IG_E_ARG, "a skew is of no context and no rank: both must be 0");
    int n_ctx = c->learned_positions ? c->learned_positions - c->position_offset : MAX_TOKENS;
    p->shape = (ig_sketch_shape){.kind = IG_SKETCH_SKEW, .n_heads = c->n_heads, .rank = c->head_dim, .n_ctx = n_ctx};
    return IG_OK;
}

static ig_status check_balanced(preparation *p, ig_error *err) {
    const ig_config *c = p->c;
    int limit = c->learned_positions ? c->learned_positions - c->position_offset : IG_CTX_MAX;
    int n_ctx = p->o.n_ctx ? p->o.n_ctx : c->n_ctx_train < DEFAULT_CTX ? c->n_ctx_train : DEFAULT_CTX;
    int rank = p->o.rank ? p->o.rank : c->head_dim;
    if (n_ctx < 2 || n_ctx > limit) return ig_fail(err, IG_E_ARG, "context of %d tokens: must be 2..%d", n_ctx, limit);
    if (rank < 8 || rank > c->head_dim || rank % 8)
        return ig_fail(err, IG_E_ARG, "sketch of rank %d: must be a multiple of 8 and at most the head dimension, %d",
                       rank, c->head_dim);
    p->shape = (ig_sketch_shape){.kind = IG_SKETCH_BALANCED, .n_heads = c->n_kv_heads, .rank = rank, .n_ctx = n_ctx};
    return IG_OK;
}

static ig_status check(preparation *p, ig_error *err) {
    if (!ig_config_is_uniform(p->c))
        return ig_fail(err, IG_E_UNSUPPORTED, "%s: a sketch is prepared for models whose layers have the same heads",
                       p->m->path);
    ig_status s = p->o.skew ? check_skew(p, err) : check_balanced(p, err);
    if (s) return s;
    p->shape.model = p->m->identity;
    p->shape.n_layers = ig_config_attention_layers(p->c);
    p->shape.head_dim = p->c->head_dim;
    if (!p->o.ids && !p->m->tokenizer)
        return ig_fail(err, IG_E_ARG, "%s has no tokenizer: the calibration text must be given as tokens", p->m->path);
    return IG_OK;
}

static ig_status take_tokens(preparation *p, ig_error *err) {
    size_t n_text = strlen(ig_prepare_text), n = (size_t)p->o.n_ids;
    size_t cap = p->o.ids ? MAX_TOKENS : n_text + 8;
    int most = p->shape.n_ctx < MAX_TOKENS ? p->shape.n_ctx : MAX_TOKENS;
    p->ids = malloc(cap * sizeof *p->ids);
    if (!p->ids) return ig_fail_memory(err, "calibration text", cap * sizeof *p->ids);
    if (p->o.ids) {
        if (n > cap) n = cap;
        memcpy(p->ids, p->o.ids, n * sizeof *p->ids);
    } else {
        ig_status s = ig_tokenize(&n, p->m, ig_prepare_text, n_text, IG_TOKENIZE_ADD_SPECIAL, p->ids, cap, err);
        if (s) return s;
        if (n > cap) n = cap;
    }
    p->n_tokens = n < (size_t)most ? (int)n : most;
    if (is_skew(p)) p->shape.n_ctx = p->n_tokens;
    int least = 2 * p->c->head_dim;
    if (p->n_tokens < least)
        return ig_fail(err, IG_E_ARG, "%d tokens of text in a context of %d are too few to calibrate on: %d are needed",
                       p->n_tokens, p->shape.n_ctx, least);
    return IG_OK;
}

static ig_status take_memory(preparation *p, ig_error *err) {
    const ig_config *c = p->c;
    size_t heads = (size_t)p->shape.n_layers * (size_t)p->shape.n_heads, file = ig_sketch_file_bytes(&p->shape);
    size_t moments = heads * moment_doubles(p);
    if (!file) return ig_fail(err, IG_E_UNSUPPORTED, "%s: a sketch cannot have the shape of this model", p->m->path);
    p->maps = malloc(file);
    p->moments = calloc(moments, sizeof *p->moments);
    p->cs = malloc(BATCH * (size_t)ig_config_rope_sets(c) * (size_t)(c->rope.n + 1) * sizeof *p->cs);
    p->rows = malloc((size_t)c->n_kv_heads * ROWS * (size_t)c->head_dim * sizeof *p->rows);
    if (!p->maps || !p->moments || !p->cs || !p->rows)
        return ig_fail_memory(err, "calibration", file + moments * sizeof *p->moments);
    return ig_text_pass_open(&p->pass, p->m, p->ids, p->n_tokens, BATCH, err);
}

static void close_all(preparation *p) {
    ig_text_pass_close(&p->pass);
    free(p->rows);
    free(p->cs);
    free(p->moments);
    free(p->maps);
    free(p->ids);
}

/* ---- interface ----------------------------------------------------------------- */

static ig_sketch_info info_of(const ig_sketch_shape *s) {
    return (ig_sketch_info){.kind = s->kind,
                            .model = s->model,
                            .n_layers = s->n_layers,
                            .head_dim = s->head_dim,
                            .n_heads = s->n_heads,
                            .rank = s->rank,
                            .bits = ig_sketch_bits(s->kind),
                            .n_ctx = s->n_ctx,
                            .bytes = ig_sketch_file_bytes(s)};
}

uint64_t ig_model_identity(const ig_model *model) { return model ? model->identity : 0; }

ig_prepare_options ig_prepare_defaults(void) { return (ig_prepare_options){0}; }

ig_status ig_prepare(ig_sketch_info *out, ig_model *model, const char *path, const ig_prepare_options *options,
                     ig_error *err) {
    if (!model || !path) return ig_fail(err, IG_E_ARG, "ig_prepare: model and path are needed");
    if (!model->has_weights) return ig_fail(err, IG_E_ARG, "%s: was opened without its weights", model->path);
    preparation p = {.m = model,
                     .c = &model->config,
                     .kernels = ig_kernels_get(model->ctx->level),
                     .o = options ? *options : ig_prepare_defaults()};
    ig_status s = ig_check_prepare_options(&p.o, err);
    if (!s) s = check(&p, err);
    if (!s) s = ig_sketch_file_check_output(path, err); /* the work may take a minute */
    if (!s) s = take_tokens(&p, err);
    if (!s) s = take_memory(&p, err);
    if (!s) s = run_model(&p, err);
    if (!s) s = factorise(&p, err);
    if (!s) s = ig_sketch_file_save(path, &p.shape, p.maps, err);
    if (!s && out) *out = info_of(&p.shape);
    close_all(&p);
    return s;
}

ig_status ig_sketch_get_info(ig_sketch_info *out, const char *path, ig_error *err) {
    ig_sketch_file f;
    if (!out || !path) return ig_fail(err, IG_E_ARG, "ig_sketch_get_info: path and result are needed");
    ig_status s = ig_sketch_file_open(&f, path, err);
    if (s) return s;
    *out = info_of(&f.shape);
    ig_sketch_file_close(&f);
    return IG_OK;
}
