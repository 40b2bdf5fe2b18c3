/* SPDX-License-Identifier: Apache-2.0
 *
 * The forward pass. Read ig_forward() at the end first: it is the figure of docs/architecture.md in code. Model
 * families differ by what is in ig_config and by which weights are present, not by code paths.
 */
#include "model/forward.h"

#include <math.h>

#include "base/clock.h"
#include "base/error.h"

typedef struct forward {
    const ig_model *m;
    const ig_config *c;
    ig_device *dev;
    ig_workspace *ws;
    const ig_segment *segments;
    int n_segments, n_rows;
    bool few; /* decode: independent single tokens */
    int layer;
    const ig_kernels *kernels;
} forward;

/* ---- pieces that go through the device --------------------------------------- */

static void multiply(const forward *f, float *y, const ig_matrix *w, const float *x) {
    f->dev->ops->matmul(f->dev, &y, &w, 1, x, f->n_rows, f->few);
}

static void normalise(const forward *f, float *y, const float *x, const ig_norm_weights *w) {
    f->dev->ops->norm(f->dev, y, x, w->w, w->b, f->c->norm == IG_NORM_RMS, f->c->norm_eps, f->n_rows, f->c->d_model);
}

static void add_residual(const forward *f) {
    f->dev->ops->add(f->dev, f->ws->h, f->ws->y, (size_t)f->n_rows * (size_t)f->c->d_model);
}

static void embed(const forward *f, const int32_t *ids) {
    const ig_weights *w = &f->m->weights;
    ig_workspace *ws = f->ws;
    bool projected = w->embed_in.w != NULL;
    f->dev->ops->embed(f->dev, projected ? ws->x : ws->h, &w->embed, ids, f->n_rows, false);
    if (projected) multiply(f, ws->h, &w->embed_in, ws->x);
    if (w->positions.w) f->dev->ops->embed(f->dev, ws->h, &w->positions, ws->positions, f->n_rows, true);
}

static void rotate_row(void *arg, int row, int thread) {
    const forward *f = arg;
    int half = f->c->n_rot / 2;
    float *cs = f->ws->cs + (size_t)row * (size_t)f->c->n_rot;
    (void)thread;
    for (int i = 0; i < half; i++) {
        double angle = f->ws->positions[row] * f->m->inv_freq[i];
        cs[i] = (float)cos(angle);
        cs[half + i] = (float)sin(angle);
    }
}

/* Positions of all rows, and their cosines and sines, which all layers share. */
static void place_rows(forward *f) {
    int row = 0, offset = f->m->weights.positions.w ? f->c->position_offset : 0;
    for (int s = 0; s < f->n_segments; s++)
        for (int i = 0; i < f->segments[s].n; i++) f->ws->positions[row++] = f->segments[s].first + i + offset;
    if (f->c->rope != IG_ROPE_NONE) f->dev->ops->parallel(f->dev, f->n_rows, rotate_row, f);
}

/* Queries, keys and values of the rows, normed per head and rotated as the family does. */
static void project(const forward *f, const ig_layer *w, const float *x) {
    const ig_config *c = f->c;
    const ig_device_ops *ops = f->dev->ops;
    ig_workspace *ws = f->ws;
    ops->matmul(f->dev, (float *[]){ws->q, ws->k, ws->v}, (const ig_matrix *[]){&w->q, &w->k, &w->v}, 3, x, f->n_rows,
                f->few);
    if (w->q_norm) {
        ops->norm(f->dev, ws->q, ws->q, w->q_norm, NULL, true, c->norm_eps, f->n_rows * c->n_heads, c->head_dim);
        ops->norm(f->dev, ws->k, ws->k, w->k_norm, NULL, true, c->norm_eps, f->n_rows * c->n_kv_heads, c->head_dim);
    }
    if (c->rope == IG_ROPE_NONE) return;
    bool adjacent = c->rope == IG_ROPE_ADJACENT;
    ops->rope(f->dev, ws->q, ws->cs, c->n_rot, adjacent, f->n_rows, c->n_heads, c->head_dim);
    ops->rope(f->dev, ws->k, ws->cs, c->n_rot, adjacent, f->n_rows, c->n_kv_heads, c->head_dim);
}

/* ---- KV store and policy ------------------------------------------------------- */

static int segment_row(const forward *f, int segment) {
    int row = 0;
    for (int s = 0; s < segment; s++) row += f->segments[s].n;
    return row;
}

/* Task: one KV head of one segment. Writes its new keys and values, and shows the keys to the policy. */
static void append_task(void *arg, int task, int thread) {
    const forward *f = arg;
    const ig_config *c = f->c;
    int head = task % c->n_kv_heads, s = task / c->n_kv_heads, row = f->few ? s : segment_row(f, s);
    const ig_segment *seg = &f->segments[s];
    ig_policy *p = seg->seq->policy;
    bool sketched = !p->ops->is_dense(p, f->layer);
    (void)thread;
    for (int i = 0; i < seg->n; i++) {
        size_t at = ((size_t)(row + i) * (size_t)c->n_kv_heads + (size_t)head) * (size_t)c->head_dim;
        uint16_t *key = ig_kv_key(seg->seq->kv, f->layer, head, seg->first + i);
        f->kernels->f32_to_f16(key, f->ws->k + at, c->head_dim);
        f->kernels->f32_to_f16(ig_kv_value(seg->seq->kv, f->layer, head, seg->first + i), f->ws->v + at, c->head_dim);
        if (sketched) p->ops->append(p, f->layer, head, seg->first + i, key);
    }
}

static void append(forward *f) {
    int tasks = f->n_segments * f->c->n_kv_heads;
    if (f->n_rows * f->c->n_kv_heads * f->c->head_dim < 4096)
        for (int t = 0; t < tasks; t++) append_task(f, t, 0);
    else
        f->dev->ops->parallel(f->dev, tasks, append_task, f);
}

/* A decode step selects unless its policy is dense in this layer. */
static bool selects(const forward *f, const ig_segment *seg) {
    return !seg->dense && !seg->seq->policy->ops->is_dense(seg->seq->policy, f->layer);
}

/* Task: the entries that one KV head of one sequence will use. */
static void select_task(void *arg, int task, int thread) {
    const forward *f = arg;
    const ig_config *c = f->c;
    int head = task % c->n_kv_heads, s = task / c->n_kv_heads, group = c->n_heads / c->n_kv_heads;
    const ig_segment *seg = &f->segments[s];
    ig_sequence *seq = seg->seq;
    if (!selects(f, seg)) return;
    const float *q = f->ws->q + ((size_t)(f->few ? s : segment_row(f, s)) * (size_t)c->n_heads + (size_t)(head * group)) * (size_t)c->head_dim;
    seq->n_selected[head] = seq->policy->ops->select(seq->policy, f->layer, head, q, seg->first + 1,
                                                     seq->index + (size_t)head * (size_t)seq->n_ctx,
                                                     f->ws->select_scratch + (size_t)thread * f->ws->select_bytes);
}

static void select_entries(forward *f) {
    bool any = false;
    for (int s = 0; s < f->n_segments; s++) any = any || selects(f, &f->segments[s]);
    if (!any) return;
    double start = ig_clock_seconds();
    f->dev->ops->parallel(f->dev, f->n_segments * f->c->n_kv_heads, select_task, f);
    double seconds = (ig_clock_seconds() - start) / f->n_segments;
    for (int s = 0; s < f->n_segments; s++) {
        const ig_segment *seg = &f->segments[s];
        if (!selects(f, seg)) continue;
        seg->seq->select_seconds += seconds;
        for (int h = 0; h < f->c->n_kv_heads; h++) seg->seq->entries_used += (uint64_t)seg->seq->n_selected[h];
        seg->seq->entries_present += (uint64_t)(seg->first + 1) * (uint64_t)f->c->n_kv_heads;
    }
}

/* The entries of one head that a segment's attention reads. */
static ig_kv_view view_of(const forward *f, const ig_segment *seg, int head) {
    int n = seg->first + seg->n, window = f->c->window[f->layer];
    if (selects(f, seg)) {
        int chosen = seg->seq->n_selected[head];
        const int32_t *index = chosen < n ? seg->seq->index + (size_t)head * (size_t)seg->seq->n_ctx : NULL;
        return ig_kv_fetch(seg->seq->kv, f->layer, head, index, 0, chosen);
    }
    int first = seg->n == 1 && window > 0 && n > window ? n - window : 0;
    return ig_kv_fetch(seg->seq->kv, f->layer, head, NULL, first, n - first);
}

/* Attention over the entries; the result takes the place of the queries. */
static void attend(forward *f) {
    const ig_config *c = f->c;
    ig_head_shape shape = {c->n_heads, c->n_kv_heads, c->head_dim, (float)c->attn_scale};
    int row = 0;
    double start = ig_clock_seconds();
    for (int s = 0; s < f->n_segments; s++) {
        const ig_segment *seg = &f->segments[s];
        ig_kv_view *views = f->ws->views + (size_t)s * (size_t)c->n_kv_heads;
        float *q = f->ws->q + (size_t)row * (size_t)c->n_heads * (size_t)c->head_dim;
        for (int h = 0; h < c->n_kv_heads; h++) views[h] = view_of(f, seg, h);
        f->ws->jobs[s] = (ig_attention){.q = q, .out = q, .n_tokens = seg->n, .window = c->window[f->layer], .views = views};
        row += seg->n;
    }
    f->dev->ops->attend(f->dev, &shape, f->ws->jobs, f->n_segments);
    double seconds = (ig_clock_seconds() - start) / f->n_segments;
    for (int s = 0; s < f->n_segments; s++)
        if (!f->segments[s].dense) f->segments[s].seq->attention_seconds += seconds;
}

/* ---- feed-forward, head ---------------------------------------------------------- */

static void feed_forward(const forward *f, const ig_layer *w, const float *x) {
    ig_workspace *ws = f->ws;
    size_t n = (size_t)f->n_rows * (size_t)f->c->d_ff;
    float *gate = ws->wide, *up = ws->wide + n;
    if (f->c->ffn == IG_FFN_SILU_GATED) {
        f->dev->ops->matmul(f->dev, (float *[]){gate, up}, (const ig_matrix *[]){&w->gate, &w->up}, 2, x, f->n_rows, f->few);
        f->dev->ops->activate(f->dev, gate, up, n);
    } else {
        multiply(f, gate, &w->up, x);
        f->dev->ops->activate(f->dev, gate, NULL, n);
    }
    multiply(f, ws->y, &w->down, gate);
}

const float *ig_forward_logits(const ig_model *m, ig_workspace *ws, int first, int n, bool few) {
    const ig_weights *w = &m->weights;
    forward f = {.m = m, .c = &m->config, .dev = m->ctx->device, .ws = ws, .n_rows = n, .few = few};
    const float *x = ws->h + (size_t)first * (size_t)m->config.d_model;
    if (w->final_norm.w) {
        normalise(&f, ws->x, x, &w->final_norm);
        x = ws->x;
    }
    if (w->embed_out.w) {
        multiply(&f, ws->y, &w->embed_out, x);
        x = ws->y;
    }
    multiply(&f, ws->wide, &w->head, x);
    return ws->wide;
}

/* ---- the pass ----------------------------------------------------------------------- */

void ig_forward(const ig_model *m, ig_workspace *ws, const ig_segment *segments, int n_segments, const int32_t *ids) {
    forward f = {.m = m, .c = &m->config, .dev = m->ctx->device, .ws = ws, .segments = segments,
                 .n_segments = n_segments, .few = true, .kernels = ig_kernels_get(m->ctx->level)};
    for (int s = 0; s < n_segments; s++) {
        f.n_rows += segments[s].n;
        if (segments[s].dense) f.few = false;
        ig_kv_resize(segments[s].seq->kv, segments[s].first + segments[s].n);
    }
    place_rows(&f);
    embed(&f, ids);
    for (f.layer = 0; f.layer < m->config.n_layers; f.layer++) {
        const ig_layer *w = &m->weights.layers[f.layer];
        bool pre = !m->config.post_norm;

        if (pre) normalise(&f, ws->x, ws->h, &w->attn_norm);
        project(&f, w, pre ? ws->x : ws->h);
        if (ws->tap) ws->tap(ws->tap_user, f.layer);
        append(&f);
        select_entries(&f);
        attend(&f);
        multiply(&f, ws->y, &w->o, ws->q);
        add_residual(&f);
        if (!pre) normalise(&f, ws->h, ws->h, &w->attn_norm);

        if (pre) normalise(&f, ws->x, ws->h, &w->ffn_norm);
        feed_forward(&f, w, pre ? ws->x : ws->h);
        add_residual(&f);
        if (!pre) normalise(&f, ws->h, ws->h, &w->ffn_norm);
    }
}

/* ---- workspace ------------------------------------------------------------------------ */

static void lay_out(ig_workspace *ws, const ig_model *m, int max_rows, size_t select_bytes) {
    const ig_config *c = &m->config;
    size_t rows = (size_t)max_rows, d = (size_t)(c->d_model > c->d_embed ? c->d_model : c->d_embed);
    size_t heads = (size_t)c->n_heads * (size_t)c->head_dim, kv = (size_t)c->n_kv_heads * (size_t)c->head_dim;
    size_t wide = 2 * rows * (size_t)c->d_ff, few_logits = (size_t)c->n_vocab * (rows < 8 ? rows : 8);
    if (wide < few_logits) wide = few_logits;
    ws->max_rows = max_rows;
    ws->logit_rows = (int)(wide / (size_t)c->n_vocab);
    if (ws->logit_rows > max_rows) ws->logit_rows = max_rows;
    ws->select_bytes = ig_round_up(select_bytes, IG_ALIGN);
    ig_arena *a = &ws->arena;
    ws->h = ig_arena_take(a, rows * d * sizeof(float));
    ws->x = ig_arena_take(a, rows * d * sizeof(float));
    ws->y = ig_arena_take(a, rows * d * sizeof(float));
    ws->q = ig_arena_take(a, rows * heads * sizeof(float));
    ws->k = ig_arena_take(a, rows * kv * sizeof(float));
    ws->v = ig_arena_take(a, rows * kv * sizeof(float));
    ws->wide = ig_arena_take(a, wide * sizeof(float));
    ws->cs = ig_arena_take(a, rows * (size_t)c->n_rot * sizeof(float));
    ws->positions = ig_arena_take(a, rows * sizeof(int32_t));
    ws->jobs = ig_arena_take(a, rows * sizeof *ws->jobs);
    ws->views = ig_arena_take(a, rows * (size_t)c->n_kv_heads * sizeof *ws->views);
    ws->segments = ig_arena_take(a, rows * sizeof *ws->segments);
    ws->select_scratch = ig_arena_take(a, (size_t)m->ctx->n_threads * ws->select_bytes);
}

uint64_t ig_workspace_plan(const ig_model *m, int max_rows, size_t select_bytes) {
    ig_workspace ws = {0};
    lay_out(&ws, m, max_rows, select_bytes);
    return ws.arena.used;
}

ig_status ig_workspace_open(ig_workspace *ws, const ig_model *m, int max_rows, int n_ctx, size_t select_bytes,
                            ig_error *err) {
    const ig_config *c = &m->config;
    int widest = c->d_ff;
    if (widest < c->d_model) widest = c->d_model;
    if (widest < c->d_embed) widest = c->d_embed;
    if (widest < c->n_heads * c->head_dim) widest = c->n_heads * c->head_dim;
    ig_device_need need = {.max_rows = max_rows, .max_in = widest, .max_entries = n_ctx,
                           .heads = {c->n_heads, c->n_kv_heads, c->head_dim, 0}};
    *ws = (ig_workspace){0};
    ig_status s = m->ctx->device->ops->reserve(m->ctx->device, &need, err);
    if (s) return s;
    lay_out(ws, m, max_rows, select_bytes);
    size_t bytes = ws->arena.used;
    if (!ig_arena_open(&ws->arena)) return ig_fail_memory(err, "session scratch", bytes);
    lay_out(ws, m, max_rows, select_bytes);
    return IG_OK;
}

void ig_workspace_close(ig_workspace *ws) { ig_arena_close(&ws->arena); }
