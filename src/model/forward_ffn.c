/* SPDX-License-Identifier: Apache-2.0
 *
 * The feed-forward part of a layer: one for all tokens, or experts of which each token has some.
 */
#include "model/forward_parts.h"

/* Rows from `row` on that all its products may share, at most `most`. */
static int count_for(const forward *f, const ig_ffn *w, int row, int most) {
    return ig_forward_count_alike(f, (const ig_matrix *[]){&w->up, &w->down, &w->gate}, w->gate.w ? 3 : 2, row, most);
}

/* y = w x for n rows that are alike, ffn_rows at most; the first of them stands for row `row` of the batch. */
static void run_ffn(const forward *f, const ig_ffn *w, float *y, const float *x, ig_shares shares, int row, int n) {
    bool gated = ig_activation_is_gated(f->c->activation);
    size_t n_hidden = (size_t)n * (size_t)w->up.n_out;
    float *hidden[] = {f->b->wide, f->b->wide + n_hidden};
    const float *beside = gated ? hidden[1] : f->m->weights.layers[f->layer].xielu;
    if (gated)
        ig_forward_multiply_alike(f, hidden, (const ig_matrix *[]){&w->gate, &w->up}, 2, x, shares, row, n);
    else
        ig_forward_multiply_alike(f, hidden, (const ig_matrix *[]){&w->up}, 1, x, shares, row, n);
    f->dev->ops->activate(f->dev, f->c->activation, hidden[0], beside, n_hidden);
    ig_forward_multiply_alike(f, &y, (const ig_matrix *[]){&w->down}, 1, hidden[0], shares, row, n);
}

/* A few rows at a time, since the hidden layer is the widest thing of a prompt's batch. */
static void feed_forward(const forward *f, const ig_ffn *w, const float *x) {
    const ig_batch *b = f->b;
    size_t d = (size_t)f->c->d_model;
    for (int row = f->step.first_row, n; row < f->n_rows; row += n) {
        n = count_for(f, w, row, b->ffn_rows);
        run_ffn(f, w, b->y + (size_t)row * d, x + (size_t)row * d, ig_forward_shares(f, row), row, n);
    }
}

/* Rows of floats that are looked up, as of a table. */
static void look_up(const forward *f, float *to, const float *from, int width, const int32_t *list, int n) {
    size_t row_bytes = (size_t)width * sizeof *from;
    const ig_matrix rows = {.w = from, .n_out = f->n_rows, .n_in = width, .type = IG_TYPE_F32, .row_bytes = row_bytes};
    f->dev->ops->embed(f->dev, to, &rows, 1, list, n, false);
}

/* What an expert gives for these rows of x, ascending, times their shares, joins those of y; or what it gives for the
 * rows times their shares. */
static void run_expert(const forward *f, const ig_ffn *w, float *y, const float *x, const int32_t *list,
                       const float *shares, int n_listed) {
    const ig_routes *r = &f->b->routes;
    int d = w->up.n_in;
    const bool early = f->c->experts.are_inputs_shared;
    float *in = early ? r->y : r->x, *out = early ? r->x : r->y;
    const ig_shares shared = {r->adapter_shares, f->shares.taken};
    for (int at = 0, n; at < n_listed; at += n) {
        int row = list[at], row_end = row + count_for(f, w, row, f->n_rows);
        for (n = 1; n < f->b->ffn_rows && at + n < n_listed && list[at + n] < row_end;) n++;
        look_up(f, r->x, x, d, list + at, n);
        if (shared.taken) look_up(f, r->adapter_shares, f->shares.of_rows, f->c->n_adapters, list + at, n);
        if (early) {
            f->dev->ops->clear(f->dev, in, (size_t)n * (size_t)d * sizeof *in);
            f->dev->ops->add_rows(f->dev, in, r->x, r->all, shares + at, n, d);
        }
        run_ffn(f, w, out, in, shared, row, n);
        f->dev->ops->add_rows(f->dev, y, out, list + at, early ? NULL : shares + at, n, d);
    }
}

/* The same of the n experts that a decode step's only row has chosen: they read the same x, and so share a product. */
static void run_experts(const forward *f, const ig_ffn *all, const int32_t *chosen, int n, float *y, const float *x) {
    const ig_routes *r = &f->b->routes;
    const ig_matrix *in[2 * IG_MAX_EXPERTS] = {NULL};
    size_t d_ff = (size_t)f->c->d_ff;
    float *gate = r->hidden, *up = gate + (size_t)f->c->experts.n_used * d_ff, *to[2 * IG_MAX_EXPERTS] = {NULL},
          *one = r->y;
    bool gated = ig_activation_is_gated(f->c->activation);
    int n_in = 0;
    for (int i = 0; i < n; i++) {
        const ig_ffn *w = &all[chosen[i]];
        in[n_in] = gated ? &w->gate : &w->up, to[n_in++] = gate + (size_t)i * d_ff;
        if (gated) in[n_in] = &w->up, to[n_in++] = up + (size_t)i * d_ff;
    }
    f->dev->ops->matmul(f->dev, to, in, n_in, x, &f->shares, 1, true);
    f->dev->ops->activate(f->dev, f->c->activation, gate, gated ? up : NULL, (size_t)n * d_ff);
    for (int i = 0; i < n; i++) {
        const ig_matrix *down = &all[chosen[i]].down;
        f->dev->ops->matmul(f->dev, &one, &down, 1, gate + (size_t)i * d_ff, &f->shares, 1, true);
        f->dev->ops->add_rows(f->dev, y, one, r->rows + i, r->shares + i, 1, down->n_out);
    }
}

/* Those that some row has chosen, ascending; their number. */
static int list_chosen(const ig_routes *r, int n_experts, int32_t *chosen) {
    int n = 0;
    for (int e = 0; e < n_experts; e++)
        if (r->begin[e] < r->begin[e + 1]) chosen[n++] = e;
    return n;
}

static ig_status take_experts(const forward *f, const int32_t *experts, int n, ig_error *err) {
    ig_expert_lane_take(f->m->expert_lane, f->layer, experts, n);
    if (!f->m->experts) return IG_OK;
    ig_step_lap(&f->b->rows, IG_STEP_FFN);
    ig_status status = ig_expert_cache_take(f->m->experts, f->layer, experts, n, err);
    ig_step_lap(&f->b->rows, IG_STEP_WAIT);
    return status;
}

/* All that have been chosen, one after the other, or at once for a decode step's only row. */
static ig_status run_chosen(const forward *f, const ig_layer *w, float *y, const float *x, ig_error *err) {
    const ig_routes *r = &f->b->routes;
    int32_t chosen[IG_MAX_EXPERTS];
    int n = list_chosen(r, w->n_experts, chosen), layer = f->layer;
    bool is_single = f->n_rows == 1 && f->n_dense == 0 && !f->c->experts.are_inputs_shared;
    for (int i = 0, n_now; i < n; i += n_now) {
        n_now = is_single ? n : 1;
        ig_status status = take_experts(f, chosen + i, n_now, err);
        if (status) return status;
        ig_expert_cache_expect(f->m->experts, layer, chosen + i + n_now, n - i - n_now);
        ig_expert_lane_expect(f->m->expert_lane, layer, chosen + i + n_now, n - i - n_now);
        int begin = r->begin[chosen[i]], end = r->begin[chosen[i] + 1];
        if (is_single)
            run_experts(f, w->experts, chosen, n, y, x);
        else
            run_expert(f, &w->experts[chosen[i]], y, x, r->rows + begin, r->shares + begin, end - begin);
        ig_expert_cache_give(f->m->experts, layer, chosen + i, n_now, f->n_dense > 0);
    }
    return IG_OK;
}

/* What is for all tokens, which gets x, and the experts, which get another norm of the state: norms of both are added
 * up. */
static ig_status feed_beside(const forward *f, const ig_layer *w, float *x, ig_error *err) {
    size_t at = (size_t)f->step.first_row * (size_t)f->c->d_model, n = (size_t)f->n_rows * (size_t)f->c->d_model - at;
    float *y = f->b->y, *beside = f->b->routes.beside;
    feed_forward(f, &w->shared, x);
    ig_forward_normalise(f, beside, y, &w->shared_norm_after);
    ig_forward_normalise(f, x, f->b->h, &w->experts_norm);
    f->dev->ops->clear(f->dev, y + at, n * sizeof *y);
    ig_status status = run_chosen(f, w, y, x, err);
    if (status) return status;
    ig_forward_normalise(f, y, y, &w->experts_norm_after);
    f->dev->ops->add(f->dev, y + at, beside + at, n);
    return IG_OK;
}

/* What experts read is made of the state, and their sum is made one again. */
static ig_status feed_narrow(const forward *f, const ig_layer *w, float *x, ig_error *err) {
    const ig_routes *r = &f->b->routes;
    size_t first = (size_t)f->step.first_row, n = (size_t)f->n_rows - first, d = (size_t)f->c->d_model,
           width = (size_t)f->c->experts.width;
    ig_forward_apply(f, r->in, &w->experts_in, x);
    f->dev->ops->clear(f->dev, r->sum + first * width, n * width * sizeof(float));
    ig_status status = run_chosen(f, w, r->sum, r->in, err);
    if (status) return status;
    ig_forward_apply(f, x, &w->experts_out, r->sum);
    f->dev->ops->add(f->dev, f->b->y + first * d, x + first * d, n * d);
    return IG_OK;
}

/* A mixture of experts: of each row those that the router chooses. */
static ig_status feed_experts(const forward *f, const ig_layer *w, float *x, ig_error *err) {
    ig_routes *r = &f->b->routes;
    size_t d = (size_t)f->c->d_model, first = (size_t)f->step.first_row, n = ((size_t)f->n_rows - first) * d;
    bool is_gated = w->shared_gate.w != NULL, is_beside = w->router_norm.w != NULL;
    if (is_beside) ig_forward_normalise(f, f->b->y, f->b->h, &w->router_norm);
    ig_forward_apply(f, r->scores.dev, &w->router, is_beside ? f->b->y : x);
    if (is_gated) ig_forward_apply(f, r->shared.dev, &w->shared_gate, x);
    ig_forward_bring(f, &r->scores, f->step.first_row, w->n_experts);
    if (is_gated) ig_forward_bring(f, &r->shared, f->step.first_row, 1);
    ig_status status = ig_forward_finish(f, err);
    if (status) return status;
    ig_routes_choose(r, f->dev, f->c, w->router_bias, w->expert_scales, f->step.first_row, f->n_rows);
    if (is_beside) return feed_beside(f, w, x, err);
    if (is_gated) ig_routes_share(r, f->step.first_row, f->n_rows);
    if (w->shared.up.w && !is_gated)
        feed_forward(f, &w->shared, x);
    else
        f->dev->ops->clear(f->dev, f->b->y + first * d, n * sizeof(float));
    if (f->c->experts.shared_scale != 1)
        f->dev->ops->scale(f->dev, f->b->y + first * d, (float)f->c->experts.shared_scale, n);
    if (is_gated) run_expert(f, &w->shared, f->b->y, x, r->all + first, r->shared.host + first, f->n_rows - (int)first);
    return w->experts_in.w ? feed_narrow(f, w, x, err) : run_chosen(f, w, f->b->y, x, err);
}

ig_status ig_forward_feed(const forward *f, const ig_layer *w, float *x, ig_error *err) {
    if (w->router.w) return feed_experts(f, w, x, err);
    feed_forward(f, w->experts, x);
    return IG_OK;
}
