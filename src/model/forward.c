/* SPDX-License-Identifier: Apache-2.0
 *
 * The forward pass. Read ig_forward() at the end first: it is the figure of docs/architecture.md in code. Model
 * families differ by what is in ig_config and by which weights are present, not by code paths.
 */
#include "model/forward_parts.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/clock.h"

/* ---- pieces that go through the device --------------------------------------- */

int ig_forward_count_alike(const forward *f, const ig_matrix *const *w, int n_w, int row, int most) {
    bool together = true;
    for (int i = 0; i < n_w; i++) together = together && f->dev->ops->few_as_many(f->dev, w[i]);
    int n = (row < f->n_dense && !together ? f->n_dense : f->n_rows) - row;
    return n < most ? n : most;
}

void ig_forward_multiply_alike(const forward *f, float *const *y, const ig_matrix *const *w, int n_w, const float *x,
                               ig_shares shares, int row, int n) {
    bool few = row >= f->n_dense, mixed = f->n_dense > 0 && f->n_dense < f->n_rows;
    double start = few && mixed ? ig_clock_seconds() : 0;
    f->dev->ops->matmul(f->dev, y, w, n_w, x, &shares, n, few);
    if (few && mixed) f->b->rows.decode_seconds += ig_clock_seconds() - start;
}

void ig_forward_multiply(const forward *f, float *const *y, const ig_matrix *const *w, int n_w, const float *x,
                         int first) {
    for (int row = first, n; row < f->n_rows; row += n) {
        float *at[4];
        n = ig_forward_count_alike(f, w, n_w, row, f->n_rows);
        for (int i = 0; i < n_w; i++) at[i] = y[i] + (size_t)row * (size_t)w[i]->n_out;
        ig_forward_multiply_alike(f, at, w, n_w, x + (size_t)row * (size_t)w[0]->n_in, ig_forward_shares(f, row), row,
                                  n);
    }
}

static void normalise_from(const forward *f, float *y, const float *x, const ig_norm_weights *w, float eps, int first) {
    size_t at = (size_t)first * (size_t)f->c->d_model;
    const ig_norm norm = {
        .n = f->c->d_model, .is_rms = f->c->norms.kind == IG_NORM_RMS, .eps = eps, .w = w->w, .b = w->b};
    f->dev->ops->norm(f->dev, y + at, x + at, &norm, f->n_rows - first);
}

void ig_forward_normalise(const forward *f, float *y, const float *x, const ig_norm_weights *w) {
    normalise_from(f, y, x, w, f->c->norms.eps, f->step.first_row);
}

/* What a part of a layer gave, b->y, joins the state. */
static void add_part(const forward *f, const ig_norm_weights *after, const ig_norm_weights *of_sum) {
    size_t d = (size_t)f->c->d_model, at = (size_t)f->step.first_row * d;
    ig_batch *b = f->b;
    if (after->w) normalise_from(f, b->y, b->y, after, f->c->norms.after_eps, f->step.first_row);
    f->dev->ops->add(f->dev, b->h + at, b->y + at, (size_t)f->n_rows * d - at);
    if (f->c->norms.order == IG_NORMS_OF_SUMS) ig_forward_normalise(f, b->h, b->h, of_sum);
}

/* What layers get of the rows' tokens beside the state, which is their embedding: of a table and of norms of products,
 * 1 / sqrt(d_model) of which the epsilon knows. */
static void embed_for_layers(const forward *f) {
    const ig_weights *w = &f->m->weights;
    const ig_config *c = f->c;
    float *inputs = f->b->inputs;
    ig_forward_apply(f, inputs, &w->input_in, f->b->h);
    const ig_norm norm = {
        .n = c->d_layer_input, .is_rms = true, .eps = c->norms.eps * (float)c->d_model, .w = w->input_norm};
    f->dev->ops->norm(f->dev, inputs, inputs, &norm, f->n_rows * c->n_layers);
    f->dev->ops->embed(f->dev, inputs, &w->input_table, (float)sqrt(0.5 * c->d_layer_input), f->b->ids, f->n_rows,
                       true);
}

/* What the layer's own embedding of a token adds to the state. */
static void add_input(const forward *f, const ig_layer *w) {
    const ig_batch *b = f->b;
    int first = f->step.first_row, n = f->n_rows - first, d = f->c->d_layer_input;
    size_t at = (size_t)first * (size_t)d;
    const ig_matrix all = {.w = b->inputs,
                           .n_out = f->n_rows * f->c->n_layers,
                           .n_in = d,
                           .type = IG_TYPE_F32,
                           .row_bytes = (size_t)d * sizeof(float)};
    const int32_t *rows = b->input_rows + (size_t)f->layer * (size_t)f->n_rows + first;
    f->dev->ops->embed(f->dev, b->input[0] + at, &all, 1, rows, n, false);
    ig_forward_apply(f, b->input[1], &w->input_gate, b->h);
    f->dev->ops->activate(f->dev, IG_GELU_GATED, b->input[1] + at, b->input[0] + at, (size_t)n * (size_t)d);
    ig_forward_apply(f, b->y, &w->input_out, b->input[1]);
    add_part(f, &w->input_norm_after, NULL);
}

static void embed(const forward *f) {
    const ig_weights *w = &f->m->weights;
    ig_batch *b = f->b;
    bool projected = w->embed_in.w != NULL;
    float scale = (float)f->c->embed_scale;
    f->dev->ops->embed(f->dev, projected ? b->x : b->h, &w->embed, scale, b->ids, f->n_rows, false);
    if (projected) ig_forward_apply(f, b->h, &w->embed_in, b->x);
    if (f->c->norms.of_embeddings)
        f->dev->ops->norm(f->dev, b->h, b->h, &(ig_norm){.n = f->c->d_model, .is_rms = true, .eps = f->c->norms.eps},
                          f->n_rows);
    if (w->positions.w) f->dev->ops->embed(f->dev, b->h, &w->positions, 1, b->positions, f->n_rows, true);
    if (w->input_in.w) embed_for_layers(f);
}

/* Where products with the matrix of queries go, */
static float *queries_of(const forward *f) { return f->c->is_gate_in_q ? f->b->mixed[0] : f->b->rows.q.dev; }

/* and how rows from `first` on become queries, and gates if anybody asks, where they lie in turns. */
static void part_queries(const forward *f, int first, bool has_gates) {
    const ig_batch *b = f->b;
    int n = (f->n_rows - first) * f->c->n_heads;
    size_t at = (size_t)first * (size_t)f->c->n_heads, d = (size_t)f->c->head_dim;
    const ig_matrix halves = {.w = b->mixed[0],
                              .n_out = 2 * f->n_rows * f->c->n_heads,
                              .n_in = f->c->head_dim,
                              .type = IG_TYPE_F32,
                              .row_bytes = d * sizeof(float)};
    if (!f->c->is_gate_in_q) return;
    const int32_t *gates = b->halves + (size_t)f->n_rows * (size_t)f->c->n_heads;
    f->dev->ops->embed(f->dev, b->rows.q.dev + at * d, &halves, 1, b->halves + at, n, false);
    if (has_gates) f->dev->ops->embed(f->dev, b->gate + at * d, &halves, 1, gates + at, n, false);
}

/* Keys and values of all rows, if the layer has any of its own, queries of those that attend, and what gates their
 * attention. */
static void project(const forward *f, const ig_layer *w, const float *x) {
    if (f->c->latent.kv_rank) {
        ig_forward_project_latents(f, w, x);
        return;
    }
    float *k = f->b->rows.k.dev, *v = f->b->rows.v.dev, *of[3];
    const ig_matrix *from[3];
    int first = f->step.first_row, n = 0;
    if (w->k.w) of[n] = k, from[n++] = &w->k;
    if (w->v.w) of[n] = v, from[n++] = &w->v;
    of[n] = queries_of(f), from[n] = &w->q;
    if (first && n) ig_forward_multiply(f, of, from, n, x, 0);
    if (first)
        ig_forward_multiply(f, of + n, from + n, 1, x, first);
    else
        ig_forward_multiply(f, of, from, n + 1, x, 0);
    ig_forward_make_index_keys(f, &w->index, x);
    ig_forward_make_index_queries(f, &w->index, x, x, first, false);
    if (w->attn_gate.w) ig_forward_multiply(f, &f->b->gate, (const ig_matrix *[]){&w->attn_gate}, 1, x, first);
    part_queries(f, first, true);
    ig_forward_place_queries(f, f->b->rows.q.dev, w, first);
    if (f->step.is_shared) return;
    ig_forward_place_values(f, v, w->v.w ? v : k);
    ig_forward_place_keys(f, k, w);
}

ig_status ig_forward_finish(const forward *f, ig_error *err) {
    ig_status status = f->dev->ops->finish(f->dev, err);
    if (!status && !f->step.is_late) ig_forward_settle_checks(f);
    return status;
}

void ig_forward_bring(const forward *f, const ig_twin *t, int first, int width) {
    size_t at = (size_t)first * (size_t)width, n = (size_t)(f->n_rows - first) * (size_t)width;
    f->dev->ops->copy(f->dev, t->host + at, t->dev + at, n * sizeof *t->host);
}

static ig_status bring_heads(const forward *f, const ig_layer *w, ig_error *err) {
    const ig_step_scratch *rows = &f->b->rows;
    const ig_head_shape *heads = &f->step.heads;
    int kv = heads->n_kv_heads * heads->head_dim;
    ig_forward_bring(f, &rows->q, f->step.first_row, heads->n_heads * heads->head_dim);
    if (!f->step.is_shared) ig_forward_bring(f, &rows->k, 0, kv), ig_forward_bring(f, &rows->v, 0, kv);
    ig_forward_bring_index(f, &w->index, f->step.first_row, false);
    return ig_forward_finish(f, err);
}

/* A layer's weights are there for what is called from here on: in RAM, and on the device. */
static ig_status take_weights(const forward *f, int layer, ig_weight_part what, ig_error *err) {
    ig_status status = ig_weight_stream_take(f->m->stream, layer, what, err);
    if (!status) ig_weight_lane_take(f->m->lane, layer, what);
    return status;
}

static void give_weights(const forward *f, int layer) {
    ig_weight_stream_give(f->m->stream, layer);
    ig_weight_lane_give(f->m->lane, layer);
}

/* ---- head ------------------------------------------------------------------------- */

/* Logits of f->n_rows states x, to b->logits, and whether all of them are finite. */
static ig_status make_logits(const forward *f, const float *x, bool *is_finite, ig_error *err) {
    const ig_weights *w = &f->m->weights;
    ig_batch *b = f->b;
    float *peak = &b->peaks[b->most_looks];
    if (w->n_classes)
        return ig_fail(err, IG_E_UNSUPPORTED, "%s: ranks texts, and writes none: /v1/rerank of 'infinigen serve'",
                       f->m->path);
    if (w->final_norm.w) {
        ig_forward_normalise(f, b->x, x, &w->final_norm);
        x = b->x;
    }
    if (w->embed_out.w) {
        ig_forward_apply(f, b->y, &w->embed_out, x);
        x = b->y;
    }
    size_t n = (size_t)f->n_rows * (size_t)f->c->n_vocab;
    ig_forward_apply(f, b->logits.dev, &w->head, x);
    f->dev->ops->peak(f->dev, peak, &(ig_floats){b->logits.dev, n}, 1);
    if (f->c->logit_cap > 0) f->dev->ops->activate(f->dev, IG_TANH, b->logits.dev, NULL, n);
    if (f->c->logit_cap > 0) f->dev->ops->scale(f->dev, b->logits.dev, (float)f->c->logit_cap, n);
    ig_forward_bring(f, &b->logits, 0, f->c->n_vocab);
    ig_status status = f->dev->ops->finish(f->dev, err);
    *is_finite = *peak <= FLT_MAX;
    ig_step_lap(&b->rows, IG_STEP_HEAD);
    return status ? status : ig_model_check(f->m, err);
}

ig_status ig_forward_states(float *out, const ig_model *m, ig_batch *b, int segment, int n, ig_error *err) {
    forward f = {.m = m, .c = &m->config, .dev = m->ctx->device, .b = b, .n_rows = n, .n_dense = n};
    size_t d = (size_t)m->config.d_model;
    const float *x = b->h + (size_t)b->segments[segment].row * d;
    if (m->weights.final_norm.w) {
        ig_forward_normalise(&f, b->x, x, &m->weights.final_norm);
        x = b->x;
    }
    f.dev->ops->copy(f.dev, out, x, (size_t)n * d * sizeof *out);
    ig_status status = f.dev->ops->finish(f.dev, err);
    return status ? status : ig_model_check(m, err);
}

ig_status ig_forward_logits(const float **out, const ig_model *m, ig_batch *b, int segment, int first, int n,
                            ig_error *err) {
    forward f = {.m = m, .c = &m->config, .dev = m->ctx->device, .b = b, .n_rows = n, .n_dense = n};
    const ig_segment *seg = &b->segments[segment];
    const float *x = b->h + (size_t)(seg->row + first) * (size_t)m->config.d_model;
    bool is_finite;
    *out = b->logits.host;
    ig_forward_place_shares(&f, 0, n, seg);
    ig_forward_send_shares(&f);
    ig_status status = make_logits(&f, x, &is_finite, err);
    return status || is_finite ? status : ig_forward_check_logits(&f, seg, first, n, 0, err);
}

int ig_segment_logits(const ig_segment *seg) {
    if (seg->status || !seg->n_asked || seg->wants_states) return 0;
    return seg->dense ? 1 : seg->n;
}

ig_status ig_forward_last_logits(int *n_segments, const ig_model *m, ig_batch *b, int first, ig_error *err) {
    forward f = {.m = m, .c = &m->config, .dev = m->ctx->device, .b = b};
    size_t d = (size_t)m->config.d_model, vocab = (size_t)m->config.n_vocab;
    int n = 0;
    for (; first + n < b->n_segments; n++) {
        ig_segment *seg = &b->segments[first + n];
        int rows = ig_segment_logits(seg);
        if (f.n_rows + rows > b->logit_rows) break;
        const float *states = b->h + (size_t)(seg->row + seg->n - rows) * d;
        if (rows) f.dev->ops->copy(f.dev, b->x + (size_t)f.n_rows * d, states, (size_t)rows * d * sizeof *states);
        seg->logits = rows ? b->logits.host + (size_t)f.n_rows * vocab : NULL;
        ig_forward_place_shares(&f, f.n_rows, rows, seg);
        f.n_rows += rows;
    }
    *n_segments = n;
    ig_forward_send_shares(&f);
    bool is_finite = true;
    ig_status status = f.n_rows ? make_logits(&f, b->x, &is_finite, err) : IG_OK;
    for (int i = first, row = 0; i < first + n && !status && !is_finite; i++) {
        ig_segment *seg = &b->segments[i];
        int rows = ig_segment_logits(seg);
        if (rows) seg->status = ig_forward_check_logits(&f, seg, seg->n - rows, rows, row, seg->err);
        row += rows;
    }
    return status;
}

/* From here on it is this layer's turn. */
static void go_to(forward *f, int layer) {
    f->layer = layer;
    f->step.is_shared = layer >= f->c->n_layers - f->c->n_layers_sharing;
    f->step.is_coarse =
        ig_type_get(f->m->weights.layers[layer].o.type)->block > 1; /* FP8 is multiplied as floats are */
    ig_step_enter(&f->step, f->c->kv_layer[layer]);
}

/* ---- rehearsal ----------------------------------------------------------------------- */

static bool any_guesses(const forward *f, ig_speculation kind) {
    for (int s = 0; s < f->step.n_segments; s++)
        if (ig_step_guesses(&f->step, &f->step.segments[s], kind)) return true;
    return false;
}

/* How the sequences get the guessed queries of f->layer: through the policy's own part of the weights, or all of
 * them. True if any wants all. */
static bool narrow_queries(const forward *f, ig_speculation kind) {
    bool whole = false;
    for (int s = 0; s < f->step.n_segments; s++) {
        ig_sequence *seq = f->step.segments[s].seq;
        if (!ig_step_guesses(&f->step, &f->step.segments[s], kind)) continue;
        const ig_matrix *q = &f->m->weights.layers[f->layer].q;
        seq->narrow =
            seq->policy->ops->narrow && !q->low_rank ? seq->policy->ops->narrow(seq->policy, f->step.layer, q) : NULL;
        whole = whole || !seq->narrow;
    }
    return whole;
}

/* Guessed queries of f->layer, to b->rows.q; of decode steps, which alone guess. */
static ig_status guess_queries(const forward *f, ig_speculation kind, const float *x, ig_error *err) {
    const ig_layer *w = &f->m->weights.layers[f->layer];
    const ig_twin *q = &f->b->rows.q;
    int width = f->step.heads.n_heads * f->step.heads.head_dim;
    bool is_whole = narrow_queries(f, kind);
    if (is_whole && f->c->latent.kv_rank) {
        ig_forward_make_latent_queries(f, w, x, f->n_dense, true);
    } else if (is_whole) {
        ig_forward_multiply(f, (float *[]){queries_of(f)}, (const ig_matrix *[]){&w->q}, 1, x, f->n_dense);
        ig_forward_make_index_queries(f, &w->index, x, x, f->n_dense, true);
        part_queries(f, f->n_dense, false);
        ig_forward_place_queries(f, q->dev, w, f->n_dense);
    }
    for (int s = 0; s < f->step.n_segments; s++) {
        const ig_segment *seg = &f->step.segments[s];
        if (!ig_step_guesses(&f->step, seg, kind) || !seg->seq->narrow) continue;
        float *y = q->dev + (size_t)seg->row * (size_t)width;
        const float *row = x + (size_t)seg->row * (size_t)f->c->d_model;
        f->dev->ops->matmul(f->dev, &y, &seg->seq->narrow, 1, row, NULL, 1, true);
    }
    if (f->step.is_late) return IG_OK;
    ig_forward_bring(f, q, f->n_dense, width);
    ig_forward_bring_index(f, &w->index, f->n_dense, true);
    return ig_forward_finish(f, err);
}

/* The next layer's queries, guessed from this layer's attention input x (paper) or from the state b->h through the
 * next layer's own norm, which goes to x; what they select is read while this layer computes (the paper's section 4.3).
 */
static ig_status rehearse(const forward *f, ig_speculation kind, float *x, ig_error *err) {
    const ig_config *c = f->c;
    forward next = *f;
    next.layer++;
    if (next.layer == c->n_layers || c->is_recurrent[next.layer]) return IG_OK;
    go_to(&next, next.layer);
    if (!any_guesses(&next, kind)) return IG_OK;
    if (c->norms.order == IG_NORMS_OF_SUMS && kind != IG_SPECULATE_PAPER) return IG_OK; /* it is not a sum's yet */
    ig_status status = take_weights(f, next.layer, IG_WEIGHTS_QUERY, err);
    ig_step_lap(&f->b->rows, IG_STEP_WAIT);
    if (status) return status;
    if (kind != IG_SPECULATE_PAPER && !ig_config_norms_first(c))
        x = f->b->h;
    else if (kind != IG_SPECULATE_PAPER)
        normalise_from(f, x, f->b->h, &f->m->weights.layers[next.layer].attn_norm, c->norms.eps, f->n_dense);
    status = guess_queries(&next, kind, x, err);
    if (!status) ig_step_guess(&next.step, kind);
    return status;
}

/* ---- the pass ----------------------------------------------------------------------- */

static bool any_left(const forward *f) {
    for (int s = 0; s < f->step.n_segments; s++)
        if (!f->step.segments[s].status) return true;
    return false;
}

static void tap(const forward *f, ig_tap_place at) {
    if (f->b->tap && any_left(f)) f->b->tap(f->b->tap_user, at, f->step.layer);
}

/* What attention gave times the sigmoids of its gate, or softplus of it. */
static const float *gate_attention(const forward *f) {
    int first = f->step.first_row, n_heads = f->step.heads.n_heads, dim = f->step.heads.head_dim;
    size_t width = (size_t)n_heads * (size_t)dim, at = (size_t)first * width;
    float *gate = f->b->gate;
    ig_activation kind = f->c->is_gate_softplus ? IG_SOFTPLUS_GATED : IG_SIGMOID_GATED;
    if (f->c->is_gate_of_heads) {
        f->dev->ops->gate_rows(f->dev, kind, f->b->x + at, gate + (size_t)first * (size_t)n_heads,
                               (f->n_rows - first) * n_heads, dim);
        return f->b->x;
    }
    f->dev->ops->activate(f->dev, kind, gate + at, f->b->x + at, (size_t)f->n_rows * width - at);
    return gate;
}

/* What the layer's last matrix gets. */
static const float *attended(const forward *f, const ig_layer *w) {
    if (f->c->latent.kv_rank) return ig_forward_make_values(f, w);
    return f->c->has_attn_gate ? gate_attention(f) : f->b->x;
}

/* What the first half of a layer begins with: its input, its weights, and guesses for the next layer. */
static ig_status enter(forward *f, const ig_layer *w, float *in, ig_error *err) {
    ig_batch *b = f->b;
    if (ig_config_norms_first(f->c)) ig_forward_normalise(f, in, b->h, &w->attn_norm);
    ig_step_lap(&b->rows, IG_STEP_OTHER);
    ig_status status = take_weights(f, f->layer, IG_WEIGHTS_ATTENTION, err);
    ig_step_lap(&b->rows, IG_STEP_WAIT);
    if (!status) status = rehearse(f, IG_SPECULATE_PAPER, in, err);
    if (!status) status = rehearse(f, IG_SPECULATE_NORM, b->y, err);
    ig_step_lap(&b->rows, IG_STEP_GUESS);
    return status;
}

/* And what it ends with: b->y joins the state, or waits for what the feed-forward part makes of the same state. */
static void leave(const forward *f, const ig_layer *w, const char *where) {
    size_t at = (size_t)f->step.first_row * (size_t)f->c->d_model, n = (size_t)f->n_rows * (size_t)f->c->d_model - at;
    if (f->b->beside) {
        f->dev->ops->copy(f->dev, f->b->beside + at, f->b->y + at, n * sizeof *f->b->y);
        return;
    }
    add_part(f, &w->attn_norm_after, &w->attn_norm);
    ig_forward_check_state(f, where);
    ig_step_lap(&f->b->rows, IG_STEP_OTHER);
}

static ig_status recur(forward *f, const ig_layer *w, float *in, ig_error *err) {
    ig_status status = enter(f, w, in, err);
    if (status) return status;
    ig_forward_apply(f, f->b->y, &w->recurrent.out, ig_forward_recur(f, &w->recurrent, in));
    ig_step_lap(&f->b->rows, IG_STEP_PROJECT);
    leave(f, w, "after the recurrence of layer");
    return IG_OK;
}

/* What a state gives joins the layers' beside what attention will. Returns where the input of both is then. */
static float *recur_beside(const forward *f, const ig_layer *w, const float *in) {
    ig_batch *b = f->b;
    size_t n = (size_t)f->n_rows * (size_t)f->c->d_model;
    f->dev->ops->copy(f->dev, b->y, in, n * sizeof *in);
    ig_forward_apply(f, b->x, &w->recurrent.out, ig_forward_recur(f, &w->recurrent, b->y));
    f->dev->ops->add(f->dev, b->h, b->x, n);
    ig_forward_check_state(f, "after the recurrence of layer");
    ig_step_lap(&b->rows, IG_STEP_PROJECT);
    return b->y;
}

static ig_status attend(forward *f, const ig_layer *w, float *in, ig_error *err) {
    ig_batch *b = f->b;
    ig_step_take_guesses(&f->step);
    ig_status status = enter(f, w, in, err);
    if (status) return status;
    if (f->c->is_state_beside) in = recur_beside(f, w, in);
    if (f->layer == f->c->n_layers - 1 - f->c->n_layers_sharing) f->step.first_row = f->n_kept;
    project(f, w, in);
    ig_step_lap(&b->rows, IG_STEP_PROJECT);
    ig_forward_check_heads(f);
    if (!f->step.is_late) status = bring_heads(f, w, err);
    if (status) return status;
    tap(f, IG_TAP_HEADS);
    ig_step_lap(&b->rows, IG_STEP_OTHER);
    status = ig_step_attend(&f->step, err);
    if (status) return status;
    ig_forward_clear_failed(f, b->x, f->step.heads.n_heads * f->step.heads.head_dim);
    ig_forward_apply(f, b->y, &w->o, attended(f, w));
    ig_step_lap(&b->rows, IG_STEP_PROJECT);
    tap(f, IG_TAP_ATTENTION);
    leave(f, w, "after the attention of layer");
    return IG_OK;
}

static ig_status feed(forward *f, const ig_layer *w, float *in, ig_error *err) {
    ig_batch *b = f->b;
    bool is_there = w->n_experts > 0;
    if (is_there && ig_config_norms_first(f->c)) ig_forward_normalise(f, in, b->h, &w->ffn_norm);
    ig_step_lap(&b->rows, IG_STEP_OTHER);
    ig_status status = take_weights(f, f->layer, IG_WEIGHTS_ALL, err);
    ig_step_lap(&b->rows, IG_STEP_WAIT);
    if (status || !is_there) return status;
    status = ig_forward_feed(f, w, in, err);
    if (status) return status;
    ig_step_lap(&b->rows, IG_STEP_FFN);
    tap(f, IG_TAP_FFN);
    size_t at = (size_t)f->step.first_row * (size_t)f->c->d_model, n = (size_t)f->n_rows * (size_t)f->c->d_model - at;
    if (b->beside) f->dev->ops->add(f->dev, b->h + at, b->beside + at, n);
    add_part(f, &w->ffn_norm_after, &w->ffn_norm);
    if (w->input_gate.w) add_input(f, w);
    if (w->scale != 1) f->dev->ops->scale(f->dev, b->h + at, w->scale, n);
    ig_forward_check_state(f, "after the feed-forward part of layer");
    ig_step_lap(&b->rows, IG_STEP_OTHER);
    return IG_OK;
}

/* Layers that share keys and values of others have nothing to do for rows of which nothing else is asked. */
static bool wants_rows(const forward *f) { return f->step.first_row < f->n_rows; }

/* Layers over the rows, until every segment has failed. An error is one of all of them: weights that cannot be read. */
static ig_status run_layers(forward *f, ig_error *err) {
    ig_batch *b = f->b;
    float *in = ig_config_norms_first(f->c) ? b->x : b->h; /* attention's and then the feed-forward layer's input */
    ig_status status = IG_OK;
    ig_weight_stream_begin(f->m->stream);
    ig_weight_lane_begin(f->m->lane);
    ig_forward_begin_recurrences(f);
    ig_forward_check_embedding(f);
    for (int l = 0; !status && l < f->c->n_layers && any_left(f) && wants_rows(f); l++) {
        const ig_layer *w = &f->m->weights.layers[l];
        bool attends = !f->c->is_recurrent[l];
        go_to(f, l);
        status = attends ? attend(f, w, in, err) : recur(f, w, in, err);
        if (!status) status = rehearse(f, IG_SPECULATE_LATE, b->x, err);
        ig_step_lap(&b->rows, IG_STEP_GUESS);
        if (!status) status = feed(f, w, in, err);
        give_weights(f, f->layer);
    }
    if (!status) return ig_forward_finish(f, err);
    f->dev->ops->finish(f->dev, NULL); /* nothing reads keys and values any more when segments are cut */
    return status;
}

/* Of the segments that take part, those that failed hold what they held before; all of them if the step did. */
static void cut_segments(const ig_batch *b, bool failed) {
    for (int s = 0; s < b->n_segments; s++) {
        const ig_segment *seg = &b->segments[s];
        if (seg->n && (failed || seg->status)) ig_kv_cut(seg->seq->kv, seg->first, NULL);
    }
}

/* All layers, late if that can be. Whose a number is that must not go on is only known where each layer waits: then
 * they go through once more. */
static ig_status run(forward *f, ig_error *err) {
    ig_batch *b = f->b;
    f->step.is_late = !b->tap && !f->c->experts.n && !f->c->n_layers_sharing && ig_step_may_be_late(&f->step);
    embed(f);
    ig_status status = run_layers(f, err);
    if (status || !f->step.is_late) return status;
    ig_step_lap(&b->rows, IG_STEP_OTHER);
    if (ig_forward_is_finite(f)) {
        ig_step_catch_up(&f->step);
        return IG_OK;
    }
    f->step.is_late = false;
    cut_segments(b, true);
    b->n_looks = 0;
    f->step.first_row = 0;
    embed(f);
    return run_layers(f, err);
}

static void end_segments(const ig_batch *b, bool failed) {
    for (int s = 0; s < b->n_segments; s++) {
        const ig_segment *seg = &b->segments[s];
        seg->seq->n_steps += seg->n && !seg->dense;
    }
    cut_segments(b, failed);
}

ig_status ig_forward(const ig_model *m, ig_batch *b, int n_segments, ig_error *err) {
    forward f = {.m = m, .c = &m->config, .b = b, .dev = m->ctx->device};
    ig_layer_heads layers = ig_config_heads(f.c);
    b->n_segments = n_segments;
    b->n_looks = 0;
    ig_step_start_clock(&b->rows, f.dev);
    ig_forward_share_rows(&f);
    f.step = (ig_step){.dev = f.dev,
                       .kernels = ig_kernels_get(m->ctx->level),
                       .layers = &layers,
                       .window = f.c->kv_window,
                       .sink_scores = m->weights.sink_scores,
                       .cap = (float)m->config.score_cap,
                       .x = &b->rows,
                       .segments = b->segments,
                       .n_segments = n_segments,
                       .n_rows = f.n_rows,
                       .speculates = b->speculation.way == 0};
    ig_step_begin(&f.step);
    ig_status status = ig_model_check(m, err);
    if (!status) {
        ig_forward_place_rows(&f);
        ig_status ran = run(&f, err);
        status = ig_model_check(m, err); /* a change explains whatever has failed */
        if (!status) status = ran;
    }
    end_segments(b, status != IG_OK);
    ig_step_lap(&b->rows, IG_STEP_OTHER);
    return status;
}
