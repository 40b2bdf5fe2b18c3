/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention on a GPU, from the host's side: before each call copies of blocks are brought, and jobs, views and lists
 * are sent. The kernels are in decode.cu, prefill.cu and residency.cu.
 */
#include "device/cuda/gpu.cuh"

#include <limits.h>

/* Jobs whose memory is that of the first one. */
static int count_together(const ig_attention *jobs, int n) {
    int together = 1;
    while (together < n && jobs[together].views->copies == jobs->views->copies) together++;
    return together;
}

/* What the jobs' memory has to tell of blocks that were written. */
static size_t bytes_to_tell(const ig_attention *job) {
    const ig_residency *r = job->views->copies;
    return r ? ig_cuda_mail_bytes((size_t)r->n_told * sizeof *r->told) : 0;
}

static void tell(uint8_t *to, const ig_attention *jobs, int n) {
    for (int i = 0; i < n; i += count_together(jobs + i, n - i)) {
        const ig_residency *r = jobs[i].views->copies;
        if (r) memcpy(to, r->told, (size_t)r->n_told * sizeof *r->told);
        to += bytes_to_tell(&jobs[i]);
    }
}

/* Where the traffic of a job is counted; there is room. */
static ig_kv_traffic *counts_of(gpu *g, const ig_kv_view *v) {
    int i = 0;
    while (i < g->n_counted && g->counted[i].sum != v->traffic) i++;
    if (i == g->n_counted) g->counted[g->n_counted++] = ig_cuda_counted{v->traffic, &v->copies->total};
    return &g->counts[i];
}

/* Jobs as kernels read them, until the next wait, once blocks of their rows [begin, end) are where they will look; or
 * foreseen ones. */
static const ig_attention *keep(gpu *g, const ig_head_shape *s, const ig_attention *jobs, int n, int begin, int end,
                                bool ahead) {
    int n_views = s->n_kv_heads;
    if (!ahead) ig_cuda_await_ahead(g);
    size_t n_bytes = ig_cuda_mail_job_bytes<ig_attention>(n, n_views), told_bytes = 0;
    for (int i = 0; i < n; i += count_together(jobs + i, n - i)) {
        ig_cuda_begin_touching(g, &jobs[i], ahead);
        told_bytes += bytes_to_tell(&jobs[i]);
    }
    if (n_bytes + told_bytes > ig_cuda_mail_room(&g->mail) || n > IG_CUDA_COUNTS - g->n_counted) ig_cuda_wait(g);
    /* Before the jobs, whose lists of rows may take all the room that is left. */
    ig_cuda_letter told = ig_cuda_mail_take(&g->mail, told_bytes);
    ig_cuda_letter kept = ig_cuda_mail_jobs(&g->mail, jobs, n, n_views);
    ig_attention *own = (ig_attention *)kept.host;
    for (int i = 0; i < n; i++) {
        own[i].q_scale = find(g, jobs[i].q_scale), own[i].sink_scores = find(g, jobs[i].sink_scores);
        ig_kv_view *view = ig_cuda_mail_twin(&g->mail, own[i].views);
        if (view->copies) view->traffic = counts_of(g, view);
    }
    tell((uint8_t *)told.host, jobs, n); /* all of the mail is written: the first command may send it */
    if (ahead) {
        ig_queue_join(g->ahead);
        g->is_ahead = true;
    }
    size_t at = 0;
    for (int i = 0, together; i < n; i += together) {
        together = count_together(jobs + i, n - i);
        ig_residency *r = jobs[i].views->copies;
        if (!r) continue;
        ig_cuda_touched x = {ig_residency_layer(r, jobs[i].views),
                             jobs + i,
                             (const ig_attention *)kept.dev + i,
                             together,
                             n_views,
                             begin,
                             end,
                             ahead,
                             (const uint32_t *)(const void *)((const uint8_t *)told.dev + at),
                             r->n_told};
        ig_cuda_touch(ahead ? g->ahead : g->work, r, &x);
        at += bytes_to_tell(&jobs[i]);
        r->n_told = 0;
    }
    return (const ig_attention *)kept.dev;
}

/* As many jobs as can be kept at a time. */
static int most_jobs(const ig_head_shape *s) {
    size_t each = ig_cuda_mail_job_bytes<ig_attention>(1, s->n_kv_heads) + IG_RESIDENCY_TOLD * sizeof(uint32_t);
    int n = (int)(IG_GPU_MAIL / 2 / each);
    return min_int(n, IG_CUDA_COUNTS);
}

void ig_cuda_prefetch(ig_device *d, const ig_head_shape *shape, const ig_attention *jobs, int n_jobs) {
    gpu *g = enter(d);
    for (int i = 0, n; i < n_jobs; i += n) {
        n = min_int(n_jobs - i, most_jobs(shape));
        keep(g, shape, jobs + i, n, 0, INT_MAX, true);
    }
    leave(g);
}

/* Queries as many at a time as there is room for their sums, parts of their rows as many as there is room for what they
 * come to and for what is gathered of them. */
static void attend_prompt(gpu *g, const ig_head_shape *s, const ig_attention *a) {
    size_t each = (size_t)s->n_heads * ((size_t)s->head_dim + 2);
    size_t row = (size_t)s->n_kv_heads * 2 * (size_t)s->head_dim;
    bool in_order = a->rows == IG_ROWS_IN_ORDER;
    int n = a->views[0].n, most = in_order ? a->n_tokens : min_int((int)(g->n_state / each), a->n_tokens);
    int seen = ig_cuda_first_row(s, a, 0, n);
    const ig_attention *job =
        in_order ? keep(g, s, a, 1, max_int(seen, a->begin), a->end, false) : keep(g, s, a, 1, seen, n, false);
    for (int first = 0; first < a->n_tokens; first += most) {
        ig_cuda_prompt p = {job, g->rows, g->state, g->sums, first, 0, 0, 0, n, a->window, false};
        p.n = min_int(a->n_tokens - first, most);
        int begin = ig_cuda_first_row(s, a, first, n), end = n - a->n_tokens + first + p.n;
        p.is_whole = !in_order && begin / IG_GPU_PART == (end - 1) / IG_GPU_PART;
        int most_parts = min_int((int)(g->n_sums / each) / p.n, (int)(g->n_rows / row) / IG_GPU_PART);
        if (in_order) { /* of each call one part at a time, which the next call may go on with */
            begin = max_int(begin, a->begin), end = min_int(end, a->end);
            p.state = a->carry, p.parts = a->carry + (size_t)a->n_tokens * each;
            most_parts = 1;
        }
        for (p.begin = begin; p.begin < end; p.begin = p.end) {
            p.end = min_int((p.begin / IG_GPU_PART + most_parts) * IG_GPU_PART, end);
            ig_cuda_gather(g->work, g->rows, s, job, p.begin, p.end);
            ig_cuda_prefill(g->work, s, &p);
            bool is_open = in_order && p.end % IG_GPU_PART && p.end < n; /* the next call goes on with the part */
            if (!p.is_whole && !is_open) ig_cuda_combine(g->work, s, &p);
        }
    }
}

static int count_parts(const ig_head_shape *s, const ig_attention *a) {
    int n = 1;
    for (int h = 0; h < s->n_kv_heads; h++) n = max_int(n, ig_attend_parts(a->views[h].n));
    return n;
}

/* One step, whose rows come in several calls, in order. */
static void attend_in_order(gpu *g, const ig_head_shape *s, const ig_attention *a) {
    int rows = ig_cuda_part_rows(a->views[0].n);
    ig_cuda_parts p = {keep(g, s, a, 1, a->begin, a->end, false),
                       1,
                       a->begin / rows,
                       (a->end + rows - 1) / rows,
                       count_parts(s, a),
                       a->carry,
                       a->out};
    ig_cuda_decode(g->work, s, &p);
    if (a->end == a->views[0].n) ig_cuda_merge(g->work, s, &p);
}

/* As many of n steps as there is room for their parts; returns how many. */
static int attend_steps(gpu *g, const ig_head_shape *s, const ig_attention *a, int n) {
    size_t each = (size_t)s->n_heads * ((size_t)s->head_dim + 2);
    int n_jobs = 0, n_parts = 1, most_at_a_time = most_jobs(s);
    for (; n_jobs < n && n_jobs < most_at_a_time && !a[n_jobs].prompt && a[n_jobs].rows != IG_ROWS_IN_ORDER; n_jobs++) {
        int most = max_int(n_parts, count_parts(s, &a[n_jobs]));
        if (n_jobs && (size_t)(n_jobs + 1) * (size_t)most * each > g->n_parts) break;
        n_parts = most;
    }
    float *out = a->out;
    for (int i = 1; i < n_jobs; i++)
        if (a[i].out != a->out + (size_t)i * (size_t)s->n_heads * (size_t)s->head_dim) out = NULL;
    ig_cuda_parts p = {keep(g, s, a, n_jobs, 0, INT_MAX, false), n_jobs, 0, n_parts, n_parts, g->parts, out};
    ig_cuda_decode(g->work, s, &p);
    ig_cuda_merge(g->work, s, &p);
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
    if (begin < end)
        ig_cuda_weigh(g->work, shape, keep(g, shape, job, 1, begin, end, false), begin, end, weights, stride);
    leave(g);
}
