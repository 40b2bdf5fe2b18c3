/* SPDX-License-Identifier: Apache-2.0
 *
 * ig_measure_activations(): what the paper (InfiniGen, OSDI'24, section 4.2) measured to show that a layer's queries
 * can be guessed from the layer before (Table 1), and that few columns of them suffice once they are skewed.
 *
 * The whole text is one batch, so that a layer's queries and keys are there together when its tap is called: first
 * each head's sum of q q^T, from which its A comes (factor.c), then the sums of columns with and without A.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "prepare/factor.h"
#include "prepare/text_pass.h"
#include "infinigen_tools.h"

enum { N_PLACES = IG_TAP_FFN + 1, N_SUMS = 8 }; /* of a head: magnitude and energy of q, k, and both skewed */

typedef struct measurement {
    const ig_config *c;
    ig_device *dev;
    ig_text_pass pass;
    ig_layer_activations_fn on_layer;
    void *user;
    float *input;               /* [n_tokens][d_model] of the layer: h */
    float *before[N_PLACES];    /* [n_tokens][d_model] of the layer before: what its taps saw of h, y and y */
    double *squares;            /* [n_heads][head_dim][head_dim] sum of q q^T, upper triangle; then A */
    float *columns;             /* [head_dim][head_dim] of the A at work */
    double *scratch;            /* of a factorisation */
    double *rows;               /* [n_heads][2][head_dim] of each task: the row at work, and skewed */
    double *sums;               /* [n_heads][N_SUMS][head_dim] */
    ig_head_activations *heads; /* [n_heads] what lies where in them */
} measurement;

/* ---- cosines ------------------------------------------------------------------ */

static double cosine(const float *a, const float *b, size_t n) {
    double ab = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < n; i++) {
        ab += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0;
}

/* Of the layer's input to what a tap saw of the layer before: the mean over tokens. */
static double mean_cosine(const measurement *m, ig_tap_place place) {
    size_t d = (size_t)m->c->d_model, n = (size_t)m->pass.n_tokens;
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += cosine(m->input + i * d, m->before[place] + i * d, d);
    return sum / (double)n;
}

/* ---- columns -------------------------------------------------------------------- */

static const float *queries_of(const measurement *m, int head) {
    return m->pass.batch.rows.q.host + (size_t)head * (size_t)m->c->head_dim;
}

static const float *keys_of(const measurement *m, int head) {
    int group = m->c->n_heads / m->c->n_kv_heads;
    return m->pass.batch.rows.k.host + (size_t)(head / group) * (size_t)m->c->head_dim;
}

static double *matrix_of(const measurement *m, int head) {
    size_t d = (size_t)m->c->head_dim;
    return m->squares + (size_t)head * d * d;
}

/* Task: a query head's sum of q q^T. */
static void add_squares(void *arg, int head, int thread) {
    const measurement *m = arg;
    size_t d = (size_t)m->c->head_dim, stride = (size_t)m->c->n_heads * d;
    double *squares = matrix_of(m, head);
    const float *q = queries_of(m, head);
    (void)thread;
    memset(squares, 0, d * d * sizeof *squares);
    for (int r = 0; r < m->pass.n_tokens; r++, q += stride)
        for (size_t i = 0; i < d; i++) {
            double x = (double)q[i];
            for (size_t j = i; j < d; j++) squares[i * d + j] += x * (double)q[j];
        }
}

/* From the sum to A: columns to rows, which multiply faster. */
static bool skew(const measurement *m, int head) {
    size_t d = (size_t)m->c->head_dim;
    double *a = matrix_of(m, head);
    if (!ig_factor_skew(m->columns, a, m->c->head_dim, m->scratch)) return false;
    for (size_t i = 0; i < d; i++)
        for (size_t j = 0; j < d; j++) a[i * d + j] = (double)m->columns[j * d + i];
    return true;
}

/* A row to a head's sums: magnitude [d] and energy [d]. */
static void add_row(double *restrict sums, const double *restrict x, size_t d) {
    for (size_t i = 0; i < d; i++) {
        sums[i] += fabs(x[i]);
        sums[d + i] += x[i] * x[i];
    }
}

/* Rows x, and x A, to the sums of each. */
static void add_rows(const measurement *m, int head, double *sums, const float *x, size_t stride) {
    size_t d = (size_t)m->c->head_dim;
    const double *a = matrix_of(m, head);
    double *restrict row = m->rows + (size_t)head * 2 * d, *restrict skewed = row + d;
    for (int r = 0; r < m->pass.n_tokens; r++, x += stride) {
        memset(skewed, 0, d * sizeof *skewed);
        for (size_t i = 0; i < d; i++) {
            row[i] = (double)x[i];
            for (size_t j = 0; j < d; j++) skewed[j] += row[i] * a[i * d + j];
        }
        add_row(sums, row, d);
        add_row(sums + 2 * d, skewed, d);
    }
}

/* Task: a query head's sums of columns. */
static void add_columns(void *arg, int head, int thread) {
    const measurement *m = arg;
    size_t d = (size_t)m->c->head_dim;
    double *sums = m->sums + (size_t)head * N_SUMS * d;
    (void)thread;
    memset(sums, 0, N_SUMS * d * sizeof *sums);
    add_rows(m, head, sums, queries_of(m, head), (size_t)m->c->n_heads * d);
    add_rows(m, head, sums + N_SUMS / 2 * d, keys_of(m, head), (size_t)m->c->n_kv_heads * d);
}

static void place_sums(const measurement *m) {
    size_t d = (size_t)m->c->head_dim;
    for (int h = 0; h < m->c->n_heads; h++) {
        ig_column_sums at[N_SUMS / 2];
        for (size_t i = 0; i < N_SUMS / 2; i++) {
            const double *sums = m->sums + ((size_t)h * N_SUMS + 2 * i) * d;
            at[i] = (ig_column_sums){.magnitude = sums, .energy = sums + d};
        }
        m->heads[h] = (ig_head_activations){.q = at[0], .q_skewed = at[1], .k = at[2], .k_skewed = at[3]};
    }
}

/* ---- the pass -------------------------------------------------------------------- */

static ig_status measure_layer(measurement *m, int layer, ig_error *err) {
    const ig_config *c = m->c;
    ig_layer_activations out = {.layer = layer, .n_heads = c->n_heads, .head_dim = c->head_dim, .heads = m->heads};
    if (layer) {
        out.input_cosine = mean_cosine(m, IG_TAP_HEADS);
        out.attention_cosine = mean_cosine(m, IG_TAP_ATTENTION);
        out.ffn_cosine = mean_cosine(m, IG_TAP_FFN);
    }
    m->dev->ops->parallel(m->dev, c->n_heads, add_squares, m);
    for (int h = 0; h < c->n_heads; h++)
        if (!skew(m, h))
            return ig_fail(err, IG_E_UNSUPPORTED, "%s: layer %d: its queries over this text cannot be factorised",
                           m->pass.m->path, layer);
    m->dev->ops->parallel(m->dev, c->n_heads, add_columns, m);
    if (m->on_layer(m->user, &out)) return ig_fail(err, IG_E_INTERRUPTED, "measuring activations was interrupted");
    return IG_OK;
}

static void look(void *user, ig_tap_place place, int layer) {
    measurement *m = user;
    const ig_batch *b = &m->pass.batch;
    ig_segment *text = b->segments;
    float *to = place == IG_TAP_HEADS ? m->input : m->before[place];
    m->dev->ops->copy(m->dev, to, place == IG_TAP_HEADS ? b->h : b->y,
                      (size_t)m->pass.n_tokens * (size_t)m->c->d_model * sizeof(float));
    text->status = m->dev->ops->finish(m->dev, text->err);
    if (place != IG_TAP_HEADS || text->status) return;
    text->status = measure_layer(m, layer, text->err);
    m->input = m->before[place];
    m->before[place] = to;
}

static ig_status take_memory(measurement *m, int n_tokens, ig_error *err) {
    size_t d = (size_t)m->c->head_dim, heads = (size_t)m->c->n_heads;
    size_t state = (size_t)n_tokens * (size_t)m->c->d_model * sizeof(float);
    bool taken = (m->input = malloc(state));
    for (int i = 0; i < N_PLACES; i++) taken = (m->before[i] = malloc(state)) && taken;
    m->squares = malloc(heads * d * d * sizeof *m->squares);
    m->columns = malloc(d * d * sizeof *m->columns);
    m->scratch = malloc(ig_factor_scratch(m->c->head_dim) * sizeof *m->scratch);
    m->rows = malloc(heads * 2 * d * sizeof *m->rows);
    m->sums = malloc(heads * N_SUMS * d * sizeof *m->sums);
    m->heads = malloc(heads * sizeof *m->heads);
    if (!taken || !m->squares || !m->columns || !m->scratch || !m->rows || !m->sums || !m->heads)
        return ig_fail_memory(err, "activations", (N_PLACES + 1) * state + heads * d * d * sizeof *m->squares);
    place_sums(m);
    return IG_OK;
}

static void close_all(measurement *m) {
    ig_text_pass_close(&m->pass);
    free(m->input);
    for (int i = 0; i < N_PLACES; i++) free(m->before[i]);
    free(m->squares);
    free(m->columns);
    free(m->scratch);
    free(m->rows);
    free(m->sums);
    free(m->heads);
}

static ig_status check_length(const ig_config *c, int n, ig_error *err) {
    int least = 2 * c->head_dim, most = IG_BATCH_MAX, positions = c->learned_positions - c->position_offset;
    if (c->learned_positions && positions < most) most = positions;
    if (n >= least && n <= most) return IG_OK;
    return ig_fail(err, IG_E_ARG, "a text of %d tokens: activations are measured over %d..%d", n, least, most);
}

ig_status ig_measure_activations(ig_model *model, const int32_t *ids, int n_ids, ig_layer_activations_fn on_layer,
                                 void *user, ig_error *err) {
    if (model && model->config.n_recurrent)
        return ig_fail(err, IG_E_UNSUPPORTED, "%s: activations are measured of models whose layers all attend",
                       model->path);
    if (model && !ig_config_is_uniform(&model->config))
        return ig_fail(err, IG_E_UNSUPPORTED, "%s: activations are measured of models whose layers have the same heads",
                       model->path);
    if (!model || !ids || !on_layer)
        return ig_fail(err, IG_E_ARG, "ig_measure_activations: model, tokens and callback are needed");
    if (!model->has_weights) return ig_fail(err, IG_E_ARG, "%s: was opened without its weights", model->path);
    measurement m = {.c = &model->config, .dev = model->ctx->device, .on_layer = on_layer, .user = user};
    ig_status s = check_length(m.c, n_ids, err);
    if (!s) s = ig_text_pass_open(&m.pass, model, ids, n_ids, n_ids, err);
    if (!s) s = take_memory(&m, n_ids, err);
    m.pass.batch.tap = look;
    m.pass.batch.tap_user = &m;
    if (!s) s = ig_text_pass_run(&m.pass, 0, n_ids, err);
    close_all(&m);
    return s;
}
