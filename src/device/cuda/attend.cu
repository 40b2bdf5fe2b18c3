/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention on a GPU, from the host's side: before each call copies of blocks are brought, and jobs, views and lists
 * are sent. The kernels are in decode.cu, prefill.cu and residency.cu.
 */
#include "device/cuda/gpu.cuh"

#include <limits.h>

enum {
    MOST_ORDERS = 1 << 16, /* of copies, at a time */
    FEW_ROWS = 4096        /* of views, that are looked through by one thread */
};

/* ---- copies of blocks ------------------------------------------------------------------ */

void ig_cuda_close_copies(ig_device *d, ig_residency *r) {
    gpu *g = enter(d);
    wait(g);
    note(g, cudaFree(r->where));
    note(g, cudaFree(r->copies));
    leave(g);
    ig_residency_close(r);
}

ig_status ig_cuda_open_copies(ig_device *d, ig_residency **out, const ig_residency_shape *shape, ig_error *err) {
    ig_residency *r;
    ig_status s = ig_residency_open(&r, shape, err);
    *out = NULL;
    if (s) return s;
    gpu *g = enter(d);
    r->where = (const uint8_t **)ig_cuda_take(g, r->n_blocks * sizeof *r->where);
    r->copies = (uint8_t *)ig_cuda_take(g, r->n_copies * r->copy_bytes);
    leave(g);
    if (r->where && r->copies) {
        *out = r;
        return IG_OK;
    }
    ig_cuda_close_copies(d, r);
    return ig_cuda_fail(err, g, "copies of K and V (--kv-vram)", cudaErrorMemoryAllocation);
}

/* Heads of a layer whose views are looked through. */
typedef struct touching {
    ig_residency *r;
    const ig_kv_view *views;
    int n_views, begin, end;
    ig_touch_time when;
} touching;

static void touch_task(void *arg, int head, int thread) {
    const touching *t = (const touching *)arg;
    (void)thread;
    if (t->views->n_listed)
        ig_residency_tell(t->r, t->views, t->n_views, head);
    else
        ig_residency_touch(t->r, t->views, t->n_views, head, t->begin, t->end, t->when);
}

/* Carries out what touching has found. */
static void fill(gpu *g, cudaStream_t s, const ig_residency *r) {
    size_t left = 0, head = 0, at = 0;
    for (int h = 0; h < r->shape.n_heads; h++) left += r->n_orders[h];
    while (left) {
        size_t n = left < (size_t)MOST_ORDERS ? left : (size_t)MOST_ORDERS;
        ig_cuda_letter part = ig_cuda_mail_take(&g->mail, n * sizeof(ig_copy_order));
        if (!part.host) {
            wait(g);
            continue;
        }
        for (size_t i = 0; i < n; i++) {
            while (at == r->n_orders[head]) head++, at = 0;
            ((ig_copy_order *)part.host)[i] = r->orders[head * r->shape.table_len + at++];
        }
        note(g, ig_cuda_mail_send(&g->mail, g->stream));
        if (s == g->ahead) {
            note(g, cudaEventRecord(g->begun, g->stream));
            note(g, cudaStreamWaitEvent(s, g->begun, 0));
            g->is_ahead = true; /* it reads the mail: so does the next part's wait() know */
        }
        ig_cuda_fill(s, r, (const ig_copy_order *)part.dev, (int)n);
        left -= n;
    }
}

static void count_traffic(ig_kv_traffic *sum, const ig_kv_traffic *x) {
    sum->hits += x->hits;
    sum->copied += x->copied;
    sum->rows += x->rows;
    sum->bytes += x->bytes;
}

/* Copies what is to be copied of rows [begin, end) of a layer's views, and has the GPU know where their blocks lie. */
static void bring(gpu *g, ig_touch_time when, const ig_kv_view *views, int n_views, int begin, int end) {
    ig_residency *r = views[0].copies;
    touching t = {r, views, n_views, begin, end, when};
    int n_rows = 0;
    if (!r) return;
    for (int v = 0; v < n_views; v++) n_rows += views[v].n_listed ? views[v].n_slots : views[v].n;
    if (when != IG_TOUCH_AFTER) ig_residency_begin(r, (int)(views[0].table / (size_t)r->shape.n_heads));
    if (n_rows > FEW_ROWS)
        ig_pool_run(g->pool, r->shape.n_heads, touch_task, &t);
    else
        for (int h = 0; h < r->shape.n_heads; h++) touch_task(&t, h, 0);
    for (int h = 0; h < r->shape.n_heads; h++) {
        count_traffic(&r->total, &r->found[h]);
        count_traffic(views[0].traffic, &r->found[h]);
    }
    fill(g, when == IG_TOUCH_AHEAD ? g->ahead : g->stream, r);
}

void ig_cuda_prefetch(ig_device *d, const ig_kv_view *views, int n_views) {
    gpu *g = enter(d);
    bring(g, IG_TOUCH_AHEAD, views, n_views, 0, INT_MAX);
    note(g, cudaEventRecord(g->brought, g->ahead));
    leave(g);
}

void ig_cuda_has_read(ig_device *d, const ig_kv_view *views, int n_views) {
    gpu *g = enter(d);
    bring(g, IG_TOUCH_AFTER, views, n_views, 0, INT_MAX);
    leave(g);
}

/* ---- attention ---------------------------------------------------------------------------- */

/* Jobs as kernels read them, until the next wait; blocks of their rows [begin, end) are where they will look. */
static const ig_attention *keep(gpu *g, const ig_head_shape *s, const ig_attention *jobs, int n, int begin, int end) {
    if (g->is_ahead) note(g, cudaStreamWaitEvent(g->stream, g->brought, 0));
    g->is_ahead = false;
    for (int listed = 0; listed < 2; listed++) /* the others may give up copies that lists of the GPU want */
        for (int i = 0; i < n; i++)
            if ((jobs[i].views->n_listed != NULL) == listed)
                bring(g, IG_TOUCH_NOW, jobs[i].views, s->n_kv_heads, begin, end);
    if (ig_cuda_mail_job_bytes<ig_attention>(n, s->n_kv_heads) > ig_cuda_mail_room(&g->mail)) wait(g);
    ig_cuda_letter kept = ig_cuda_mail_jobs(&g->mail, jobs, n, s->n_kv_heads);
    for (int i = 0; i < n; i++)
        if (jobs[i].q_scale) ((ig_attention *)kept.host)[i].q_scale = find(g, jobs[i].q_scale);
    note(g, ig_cuda_mail_send(&g->mail, g->stream));
    return (const ig_attention *)kept.dev;
}

/* Queries as many at a time as there is room for their sums, rows as many as can be gathered. */
static void attend_prompt(gpu *g, const ig_head_shape *s, const ig_attention *a) {
    size_t each = (size_t)s->n_heads * ((size_t)s->head_dim + 2);
    size_t row = (size_t)s->n_kv_heads * 2 * (size_t)s->head_dim;
    bool in_order = a->rows == IG_ROWS_IN_ORDER;
    int n = a->views[0].n, most = in_order ? a->n_tokens : min_int((int)(g->n_state / each), a->n_tokens);
    int seen = ig_cuda_first_row(s, a, 0, n);
    const ig_attention *job = in_order ? keep(g, s, a, 1, max_int(seen, a->begin), a->end) : keep(g, s, a, 1, seen, n);
    int step = min_int((int)(g->n_rows / row), IG_GPU_GATHERED) / IG_ATTEND_UNIT * IG_ATTEND_UNIT;
    for (int first = 0; first < a->n_tokens; first += most) {
        ig_cuda_prompt p = {job, g->rows, in_order ? a->carry : g->state, first, 0, 0, 0, n, a->window};
        p.n = min_int(a->n_tokens - first, most);
        int begin = ig_cuda_first_row(s, a, first, n), end = n - a->n_tokens + first + p.n;
        if (in_order) begin = max_int(begin, a->begin), end = min_int(end, a->end);
        for (p.begin = begin; p.begin < end; p.begin = p.end) {
            p.end = min_int((p.begin / step + 1) * step, end);
            ig_cuda_gather(g->stream, g->rows, s, job, p.begin, p.end);
            ig_cuda_prefill(g->stream, s, &p);
        }
    }
}

static int count_parts(const ig_head_shape *s, const ig_attention *a) {
    int n = 1;
    for (int h = 0; h < s->n_kv_heads; h++) n = max_int(n, (a->views[h].n + IG_CUDA_SPLIT - 1) / IG_CUDA_SPLIT);
    return n;
}

/* One step, whose rows come in several calls, in order. */
static void attend_in_order(gpu *g, const ig_head_shape *s, const ig_attention *a) {
    ig_cuda_parts p = {keep(g, s, a, 1, a->begin, a->end),
                       1,
                       a->begin / IG_CUDA_SPLIT,
                       (a->end + IG_CUDA_SPLIT - 1) / IG_CUDA_SPLIT,
                       count_parts(s, a),
                       a->carry};
    ig_cuda_decode(g->stream, s, &p);
    if (a->end == a->views[0].n) ig_cuda_merge(g->stream, s, &p);
}

/* As many of n steps as there is room for their parts; returns how many. */
static int attend_steps(gpu *g, const ig_head_shape *s, const ig_attention *a, int n) {
    size_t each = (size_t)s->n_heads * ((size_t)s->head_dim + 2);
    int most_jobs = (int)(IG_GPU_MAIL / ig_cuda_mail_job_bytes<ig_attention>(1, s->n_kv_heads));
    int n_jobs = 0, n_parts = 1;
    for (; n_jobs < n && n_jobs < most_jobs && !a[n_jobs].prompt && a[n_jobs].rows != IG_ROWS_IN_ORDER; n_jobs++) {
        int most = max_int(n_parts, count_parts(s, &a[n_jobs]));
        if (n_jobs && (size_t)(n_jobs + 1) * (size_t)most * each > g->n_parts) break;
        n_parts = most;
    }
    ig_cuda_parts p = {keep(g, s, a, n_jobs, 0, INT_MAX), n_jobs, 0, n_parts, n_parts, g->parts};
    ig_cuda_decode(g->stream, s, &p);
    ig_cuda_merge(g->stream, s, &p);
    return n_jobs;
}

void ig_cuda_attend(ig_device *d, const ig_head_shape *shape, const ig_attention *jobs, int n_jobs) {
    gpu *g = enter(d);
    for (int i = 0, n; i < n_jobs; i += n) {
        n = 1;
        if (jobs[i].rows == IG_ROWS_THERE) continue; /* all in the second call */
        if (jobs[i].prompt)
            attend_prompt(g, shape, &jobs[i]);
        else if (jobs[i].rows == IG_ROWS_IN_ORDER)
            attend_in_order(g, shape, &jobs[i]);
        else
            n = attend_steps(g, shape, jobs + i, n_jobs - i);
    }
    leave(g);
}

void ig_cuda_weigh_rows(ig_device *d, const ig_head_shape *shape, const ig_attention *job, int begin, int end,
                        float *weights, size_t stride) {
    gpu *g = enter(d);
    if (begin < end) ig_cuda_weigh(g->stream, shape, keep(g, shape, job, 1, begin, end), begin, end, weights, stride);
    leave(g);
}
