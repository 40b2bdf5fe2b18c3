/* SPDX-License-Identifier: Apache-2.0
 *
 * One layer's keys, values and attention: what the forward pass asks of the KV store and the policy, in the order of
 * docs/architecture.md's figure: append, select, fetch, attend; and the prefetch for the layer that follows.
 */
#include "base/clock.h"
#include "model/forward_parts.h"

/* ---- append ------------------------------------------------------------------- */

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

static ig_status append(forward *f, ig_error *err) {
    ig_status status = IG_OK;
    for (int s = 0; s < f->n_segments && !status; s++)
        status = ig_kv_extend(f->segments[s].seq->kv, f->layer, f->segments[s].first + f->segments[s].n, err);
    if (status) return status;
    int tasks = f->n_segments * f->c->n_kv_heads;
    if (f->n_rows * f->c->n_kv_heads * f->c->head_dim < 4096)
        for (int t = 0; t < tasks; t++) append_task(f, t, 0);
    else
        f->dev->ops->parallel(f->dev, tasks, append_task, f);
    for (int s = 0; s < f->n_segments && !status; s++) status = ig_kv_seal(f->segments[s].seq->kv, f->layer, err);
    return status;
}

/* ---- select ------------------------------------------------------------------- */

/* A decode step selects unless its policy is dense in this layer. */
static bool selects(const forward *f, const ig_segment *seg) {
    return !seg->dense && !seg->seq->policy->ops->is_dense(seg->seq->policy, f->layer);
}

static int32_t *index_of(const ig_sequence *seq, int head) { return seq->index + (size_t)head * (size_t)seq->n_ctx; }

/* Task: the entries that one KV head of one sequence will use. */
static void select_task(void *arg, int task, int thread) {
    const forward *f = arg;
    const ig_config *c = f->c;
    int head = task % c->n_kv_heads, s = task / c->n_kv_heads, group = c->n_heads / c->n_kv_heads;
    const ig_segment *seg = &f->segments[s];
    ig_sequence *seq = seg->seq;
    if (!selects(f, seg)) return;
    int row = f->few ? s : segment_row(f, s);
    const float *q = f->ws->q + ((size_t)row * (size_t)c->n_heads + (size_t)(head * group)) * (size_t)c->head_dim;
    seq->n_selected[head] =
        seq->policy->ops->select(seq->policy, f->layer, head, q, seg->first + 1, index_of(seq, head),
                                 f->ws->select_scratch + (size_t)thread * f->ws->select_bytes);
}

/* Selects for all sequences that do; false if none does. */
static bool select_entries(forward *f) {
    bool any = false;
    for (int s = 0; s < f->n_segments; s++) any = any || selects(f, &f->segments[s]);
    if (!any) return false;
    double start = ig_clock_seconds();
    f->dev->ops->parallel(f->dev, f->n_segments * f->c->n_kv_heads, select_task, f);
    double seconds = (ig_clock_seconds() - start) / f->n_segments;
    for (int s = 0; s < f->n_segments; s++)
        if (selects(f, &f->segments[s])) f->segments[s].seq->select_seconds += seconds;
    return true;
}

static void count_entries(const forward *f) {
    for (int s = 0; s < f->n_segments; s++) {
        const ig_segment *seg = &f->segments[s];
        if (!selects(f, seg)) continue;
        for (int h = 0; h < f->c->n_kv_heads; h++)
            seg->seq->share_sum += (double)seg->seq->n_selected[h] / (seg->first + 1);
        seg->seq->n_shares += (uint64_t)f->c->n_kv_heads;
    }
}

/* ---- fetch and attend ------------------------------------------------------------ */

/* The entries of one head that a segment's attention reads when they can be in RAM all at once: what was selected, a
 * window, or everything. */
static ig_kv_pick pick_of(const forward *f, const ig_segment *seg, int head, int *first) {
    int n = seg->first + seg->n, window = f->c->window[f->layer];
    *first = 0;
    if (selects(f, seg)) {
        int chosen = seg->seq->n_selected[head];
        return (ig_kv_pick){chosen < n ? index_of(seg->seq, head) : NULL, chosen};
    }
    if (seg->n == 1 && window > 0 && n > window) *first = n - window;
    return (ig_kv_pick){NULL, n - *first};
}

/* Brings what the segment selected, or a decode step's window, into RAM. */
static ig_status load(const forward *f, const ig_segment *seg, ig_error *err) {
    int first;
    ig_kv_pick pick = pick_of(f, seg, 0, &first);
    if (!ig_kv_has_disk(seg->seq->kv) || (!selects(f, seg) && first == 0)) return IG_OK;
    for (int i = 0; i < pick.n && first > 0; i++) seg->seq->index[i] = first + i;
    for (int h = 0; h < f->c->n_kv_heads; h++)
        f->ws->picks[h] = first > 0 ? (ig_kv_pick){seg->seq->index, pick.n} : pick_of(f, seg, h, &first);
    return ig_kv_load(seg->seq->kv, f->layer, f->ws->picks, err);
}

/* Attention over all entries of a segment, piece by piece: they are not all in RAM. */
static ig_status attend_streaming(const forward *f, const ig_head_shape *shape, ig_attention *job,
                                  const ig_segment *seg, ig_kv_view *views, ig_error *err) {
    int n = seg->first + seg->n;
    job->carry = f->ws->carry;
    for (job->begin = 0; job->begin < n; job->begin = job->end) {
        job->end = n - job->begin < IG_ATTEND_UNIT ? n : job->begin + IG_ATTEND_UNIT;
        ig_status s = ig_kv_stream(seg->seq->kv, f->layer, job->begin, n, views, err);
        if (s) return s;
        f->dev->ops->attend(f->dev, shape, job, 1);
    }
    return IG_OK;
}

/* Attention of all segments; the result takes the place of the queries. */
static ig_status attend(forward *f, ig_error *err) {
    const ig_config *c = f->c;
    ig_head_shape shape = {c->n_heads, c->n_kv_heads, c->head_dim, (float)c->attn_scale};
    int row = 0, n_jobs = 0;
    for (int s = 0; s < f->n_segments; s++) {
        const ig_segment *seg = &f->segments[s];
        ig_kv_view *views = f->ws->views + (size_t)s * (size_t)c->n_kv_heads;
        float *q = f->ws->q + (size_t)row * (size_t)c->n_heads * (size_t)c->head_dim;
        ig_attention job = {.q = q, .out = q, .n_tokens = seg->n, .window = c->window[f->layer], .views = views};
        int first;
        row += seg->n;
        pick_of(f, seg, 0, &first);
        if (!selects(f, seg) && !ig_kv_in_ram(seg->seq->kv, f->layer, first, seg->first + seg->n)) {
            ig_status status = attend_streaming(f, &shape, &job, seg, views, err);
            if (status) return status;
            continue;
        }
        for (int h = 0; h < c->n_kv_heads; h++) {
            ig_kv_pick pick = pick_of(f, seg, h, &first);
            views[h] = ig_kv_fetch(seg->seq->kv, f->layer, h, pick.index, first, pick.n);
        }
        f->ws->jobs[n_jobs++] = job;
    }
    if (n_jobs) f->dev->ops->attend(f->dev, &shape, f->ws->jobs, n_jobs);
    return IG_OK;
}

ig_status ig_forward_attend(forward *f, ig_error *err) {
    ig_status status = append(f, err);
    if (status) return status;
    if (select_entries(f)) count_entries(f);
    double start = ig_clock_seconds();
    for (int s = 0; s < f->n_segments && !status; s++) status = load(f, &f->segments[s], err);
    if (!status) status = attend(f, err);
    double seconds = (ig_clock_seconds() - start) / f->n_segments;
    for (int s = 0; s < f->n_segments; s++)
        if (!f->segments[s].dense) f->segments[s].seq->attention_seconds += seconds;
    return status;
}

/* ---- prefetch ----------------------------------------------------------------------- */

static bool prefetches(const forward *f, const ig_segment *seg) {
    return seg->seq->prefetch && ig_kv_has_disk(seg->seq->kv) && selects(f, seg);
}

bool ig_forward_prefetches(const forward *f) {
    for (int s = 0; s < f->n_segments; s++)
        if (prefetches(f, &f->segments[s])) return true;
    return false;
}

ig_status ig_forward_prefetch(forward *f, ig_error *err) {
    select_entries(f);
    for (int s = 0; s < f->n_segments; s++) {
        const ig_segment *seg = &f->segments[s];
        int first;
        if (!prefetches(f, seg)) continue;
        for (int h = 0; h < f->c->n_kv_heads; h++) f->ws->picks[h] = pick_of(f, seg, h, &first);
        ig_status status = ig_kv_prefetch(seg->seq->kv, f->layer, f->ws->picks, err);
        if (status) return status;
    }
    return IG_OK;
}
