/* SPDX-License-Identifier: Apache-2.0
 *
 * The forward pass. Read ig_forward() at the end first: it is the figure of docs/architecture.md in code. Model
 * families differ by what is in ig_config and by which weights are present, not by code paths.
 */
#include "model/forward_parts.h"

#include <math.h>

/* ---- pieces that go through the device --------------------------------------- */

static void multiply(const forward *f, float *y, const ig_matrix *w, const float *x) {
    f->dev->ops->matmul(f->dev, &y, &w, 1, x, f->n_rows, f->few);
}

static void normalise(const forward *f, float *y, const float *x, const ig_norm_weights *w) {
    f->dev->ops->norm(f->dev, y, x, w->w, w->b, f->c->norm == IG_NORM_RMS, f->c->norm_eps, f->n_rows, f->c->d_model);
}

static void add_residual(const forward *f) {
    f->dev->ops->add(f->dev, f->b->h, f->b->y, (size_t)f->n_rows * (size_t)f->c->d_model);
}

static void embed(const forward *f, const int32_t *ids) {
    const ig_weights *w = &f->m->weights;
    ig_batch *b = f->b;
    bool projected = w->embed_in.w != NULL;
    f->dev->ops->embed(f->dev, projected ? b->x : b->h, &w->embed, ids, f->n_rows, false);
    if (projected) multiply(f, b->h, &w->embed_in, b->x);
    if (w->positions.w) f->dev->ops->embed(f->dev, b->h, &w->positions, b->positions, f->n_rows, true);
}

static void rotate_row(void *arg, int row, int thread) {
    const forward *f = arg;
    int half = f->c->n_rot / 2;
    float *cs = f->b->cs + (size_t)row * (size_t)f->c->n_rot;
    (void)thread;
    for (int i = 0; i < half; i++) {
        double angle = f->b->positions[row] * f->m->inv_freq[i];
        cs[i] = (float)cos(angle);
        cs[half + i] = (float)sin(angle);
    }
}

/* Positions of all rows, and their cosines and sines, which all layers share. */
static void place_rows(forward *f) {
    int row = 0, offset = f->m->weights.positions.w ? f->c->position_offset : 0;
    for (int s = 0; s < f->step.n_segments; s++)
        for (int i = 0; i < f->step.segments[s].n; i++) f->b->positions[row++] = f->step.segments[s].first + i + offset;
    if (f->c->rope != IG_ROPE_NONE) f->dev->ops->parallel(f->dev, f->n_rows, rotate_row, f);
}

/* Heads of the rows, normed (Qwen3) and rotated as the family does. */
static void place_heads(const forward *f, float *x, int n_heads, const float *norm) {
    const ig_config *c = f->c;
    const ig_device_ops *ops = f->dev->ops;
    if (norm) ops->norm(f->dev, x, x, norm, NULL, true, c->norm_eps, f->n_rows * n_heads, c->head_dim);
    if (c->rope == IG_ROPE_NONE) return;
    ops->rope(f->dev, x, f->b->cs, c->n_rot, c->rope == IG_ROPE_ADJACENT, f->n_rows, n_heads, c->head_dim);
}

/* Queries, keys and values of the rows. */
static void project(const forward *f, const ig_layer *w, const float *x) {
    const ig_config *c = f->c;
    const ig_device_ops *ops = f->dev->ops;
    ig_batch *b = f->b;
    ops->matmul(f->dev, (float *[]){b->rows.q, b->rows.k, b->rows.v}, (const ig_matrix *[]){&w->q, &w->k, &w->v}, 3, x,
                f->n_rows, f->few);
    place_heads(f, b->rows.q, c->n_heads, w->q_norm);
    place_heads(f, b->rows.k, c->n_kv_heads, w->k_norm);
}

/* ---- feed-forward, head ---------------------------------------------------------- */

/* IG_FFN_ROWS rows at a time, since the hidden layer is the widest thing of a prompt's batch. */
static void feed_forward(const forward *f, const ig_layer *w, const float *x) {
    const ig_device_ops *ops = f->dev->ops;
    ig_batch *b = f->b;
    const ig_matrix *in[] = {&w->gate, &w->up}, *down[] = {&w->down};
    size_t d = (size_t)f->c->d_model, d_ff = (size_t)f->c->d_ff;
    bool gated = f->c->ffn == IG_FFN_SILU_GATED;
    for (int row = 0; row < f->n_rows; row += IG_FFN_ROWS) {
        int n = f->n_rows - row < IG_FFN_ROWS ? f->n_rows - row : IG_FFN_ROWS;
        float *hidden = b->wide, *up = gated ? hidden + (size_t)n * d_ff : NULL, *y = b->y + (size_t)row * d;
        ops->matmul(f->dev, (float *[]){hidden, up}, gated ? in : in + 1, gated ? 2 : 1, x + (size_t)row * d, n,
                    f->few);
        ops->activate(f->dev, hidden, up, (size_t)n * d_ff);
        ops->matmul(f->dev, &y, down, 1, hidden, n, f->few);
    }
}

ig_status ig_forward_logits(const float **out, const ig_model *m, ig_batch *b, int first, int n, bool few,
                            ig_error *err) {
    const ig_weights *w = &m->weights;
    forward f = {.m = m, .c = &m->config, .dev = m->ctx->device, .b = b, .n_rows = n, .few = few};
    const float *x = b->h + (size_t)first * (size_t)m->config.d_model;
    if (w->final_norm.w) {
        normalise(&f, b->x, x, &w->final_norm);
        x = b->x;
    }
    if (w->embed_out.w) {
        multiply(&f, b->y, &w->embed_out, x);
        x = b->y;
    }
    multiply(&f, b->wide, &w->head, x);
    *out = b->wide;
    ig_status status = ig_forward_check_logits(&f, first, b->wide, err);
    return ig_model_check(m, err) ? IG_E_CHANGED : status;
}

/* ---- rehearsal ----------------------------------------------------------------------- */

static bool any_guesses(const forward *f, ig_speculation kind) {
    for (int s = 0; s < f->step.n_segments; s++)
        if (ig_step_guesses(&f->step, &f->step.segments[s], kind)) return true;
    return false;
}

/* How the sequences get the guessed queries of f->step.layer: through the policy's own part of the weights, or all of
 * them. True if any wants all. */
static bool narrow_queries(const forward *f, ig_speculation kind) {
    bool whole = false;
    for (int s = 0; s < f->step.n_segments; s++) {
        ig_sequence *seq = f->step.segments[s].seq;
        if (!ig_step_guesses(&f->step, &f->step.segments[s], kind)) continue;
        const ig_matrix *q = &f->m->weights.layers[f->step.layer].q;
        seq->narrow = seq->policy->ops->narrow ? seq->policy->ops->narrow(seq->policy, f->step.layer, q) : NULL;
        whole = whole || !seq->narrow;
    }
    return whole;
}

/* Guessed queries of f->step.layer, to b->rows.q. */
static void guess_queries(const forward *f, ig_speculation kind, const float *x) {
    const ig_layer *w = &f->m->weights.layers[f->step.layer];
    if (narrow_queries(f, kind)) {
        multiply(f, f->b->rows.q, &w->q, x);
        place_heads(f, f->b->rows.q, f->c->n_heads, w->q_norm);
    }
    for (int s = 0; s < f->step.n_segments; s++) {
        const ig_sequence *seq = f->step.segments[s].seq;
        if (!ig_step_guesses(&f->step, &f->step.segments[s], kind) || !seq->narrow) continue;
        float *q = ig_step_queries(&f->step, s);
        const float *row = x + (size_t)ig_step_row(&f->step, s) * (size_t)f->c->d_model;
        f->dev->ops->matmul(f->dev, &q, &seq->narrow, 1, row, 1, true);
    }
}

/* The next layer's queries, guessed from this layer's attention input x (paper) or from the state b->h through the
 * next layer's own norm, which goes to x; what they select is read while this layer computes (the paper's section 4.3).
 */
static ig_status rehearse(forward *f, ig_speculation kind, float *x, ig_error *err) {
    const ig_config *c = f->c;
    forward next = *f;
    next.step.layer++;
    if (next.step.layer == c->n_layers || !any_guesses(&next, kind)) return IG_OK;
    if (c->post_norm && kind != IG_SPECULATE_PAPER) return IG_OK; /* its queries are of the state as it is */
    if (kind != IG_SPECULATE_PAPER) normalise(f, x, f->b->h, &f->m->weights.layers[next.step.layer].attn_norm);
    guess_queries(&next, kind, x);
    return ig_step_guess(&next.step, kind, err);
}

/* ---- the pass ----------------------------------------------------------------------- */

/* Layers over the rows; stops at the first error. */
static ig_status run_layers(forward *f, const int32_t *ids, ig_error *err) {
    ig_batch *b = f->b;
    ig_status s = ig_forward_check_embedding(f, ids, err);
    for (f->step.layer = 0; !s && f->step.layer < f->c->n_layers; f->step.layer++) {
        const ig_layer *w = &f->m->weights.layers[f->step.layer];
        bool pre = !f->c->post_norm;
        float *in = pre ? b->x : b->h; /* attention's and then the feed-forward layer's input */

        ig_step_take_guesses(&f->step);
        if (pre) normalise(f, in, b->h, &w->attn_norm);
        s = rehearse(f, IG_SPECULATE_PAPER, in, err);
        if (!s) s = rehearse(f, IG_SPECULATE_NORM, b->y, err);
        if (s) return s;
        project(f, w, in);
        s = ig_forward_check_heads(f, err);
        if (s) return s;
        if (b->tap) b->tap(b->tap_user, f->step.layer);
        s = ig_step_attend(&f->step, err);
        if (s) return s;
        multiply(f, b->y, &w->o, b->x);
        add_residual(f);
        if (!pre) normalise(f, b->h, b->h, &w->attn_norm);
        s = ig_forward_check_state(f, "after the attention of layer", err);
        if (!s) s = rehearse(f, IG_SPECULATE_LATE, b->x, err);
        if (s) return s;

        if (pre) normalise(f, in, b->h, &w->ffn_norm);
        feed_forward(f, w, in);
        add_residual(f);
        if (!pre) normalise(f, b->h, b->h, &w->ffn_norm);
        s = ig_forward_check_state(f, "after the feed-forward part of layer", err);
    }
    return s;
}

ig_status ig_forward(const ig_model *m, ig_batch *b, const ig_segment *segments, int n_segments, const int32_t *ids,
                     ig_error *err) {
    forward f = {.m = m, .c = &m->config, .b = b, .dev = m->ctx->device, .few = true};
    for (int s = 0; s < n_segments; s++) {
        f.n_rows += segments[s].n;
        if (segments[s].dense) f.few = false;
        segments[s].seq->guess.layer = -1;
    }
    f.step = (ig_step){.dev = f.dev,
                       .kernels = ig_kernels_get(m->ctx->level),
                       .heads = {f.c->n_heads, f.c->n_kv_heads, f.c->head_dim, (float)f.c->attn_scale},
                       .window = f.c->window,
                       .x = &b->rows,
                       .segments = segments,
                       .n_segments = n_segments,
                       .n_rows = f.n_rows,
                       .few = f.few};
    b->n_rows = f.n_rows;
    b->few = f.few;
    ig_status status = ig_model_check(m, err);
    if (!status) {
        place_rows(&f);
        embed(&f, ids);
        status = run_layers(&f, ids, err);
        if (ig_model_check(m, err)) status = IG_E_CHANGED; /* which explains whatever has failed */
    }
    for (int s = 0; s < n_segments; s++) segments[s].seq->n_steps += !segments[s].dense;
    /* A sequence that failed half-way holds what it held before; so do its batch mates. */
    for (int s = 0; status && s < n_segments; s++) ig_kv_cut(segments[s].seq->kv, segments[s].first, NULL);
    return status;
}
