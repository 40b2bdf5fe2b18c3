/* SPDX-License-Identifier: Apache-2.0
 *
 * Entries that are dropped for ever, per KV head, each head its own. Two sorts of limit:
 *
 *   ig_memory_options.limit  the paper's KV pool (section 4.4), under any policy that takes it. What attention selected
 *                           is noted (policy/usage.h) and after each step the least useful entries beyond the limit
 *                           go; new tokens take their slots. A batch of a prompt is attended to as a whole and then cut
 *                           down. Nothing of a prompt was selected yet, which says nothing of its use: it stays while
 *                           there is anything older, and then its oldest go. Nor does a step count in which all entries
 *                           are used.
 *   ig_policy_ops.limit     a policy's own (h2o). A prompt is kept whole; decode steps make room for their token first,
 *                           the first of them in bulk, after which the layer is compacted.
 */
#include "cache/step_parts.h"

#include <limits.h>

/* Entries that a KV head keeps now; INT_MAX: all. */
static int allowance(const ig_step *step, const ig_segment *seg, bool before) {
    const ig_sequence *seq = seg->seq;
    const ig_policy *p = seq->policy;
    if (ig_policy_layer_is_dense(&p->shape, &p->options, step->layer)) return INT_MAX;
    if (!before) return seq->limit ? seq->limit : INT_MAX;
    if (seg->dense || !p->ops->limit) return INT_MAX;
    return p->ops->limit(p, step->layer, seg->first + seg->n) - seg->n;
}

/* The entries that have come, and those that a head's lists chose. */
static void note_use(const ig_step *step, const ig_segment *seg, int head, const ig_entries *e) {
    ig_sequence *seq = seg->seq;
    uint32_t now = (uint32_t)(seg->first + seg->n);
    size_t at = ig_policy_head(seq->policy, step->layer, head);
    for (int i = e->n - seg->n; i < e->n; i++) ig_usage_come(&seq->usage, at, ig_entry_slot(e, i), now);
    if (!ig_step_selects(step, seg)) return;
    int per_head = seq->n_lists / step->heads.n_kv_heads;
    const ig_selection *x = ig_step_chosen(seg);
    for (int i = head * per_head; i < (head + 1) * per_head; i++)
        if (!x->all[i]) ig_usage_select(&seq->usage, at, x->slots + (size_t)i * (size_t)seq->n_ctx, x->n[i], now);
}

static void reverse(float *x, int n) {
    for (int i = 0; i < n / 2; i++) {
        float t = x[i];
        x[i] = x[n - 1 - i];
        x[n - 1 - i] = t;
    }
}

/* The least valuable of entries [begin, end), of equal ones the first. */
static int find_least(const float *value, int begin, int end) {
    int least = begin;
    for (int i = begin + 1; i < end; i++)
        if (value[i] < value[least]) least = i;
    return least;
}

/* The head keeps `count` entries: the first and last ones as said, and the most valuable others; of equal ones the
 * later. */
static void keep_best(const ig_step *step, const ig_segment *seg, int head, const ig_entries *e, float *value,
                      int n_sinks, int n_recent, int count) {
    if (e->n == count + 1) { /* the usual case, and quickly done */
        ig_kv_drop(seg->seq->kv, step->layer, head, find_least(value, n_sinks, e->n - n_recent));
        return;
    }
    int32_t *keep = step->x->keep + (size_t)head * (size_t)seg->seq->n_ctx;
    /* ig_pick() prefers the earlier ones: it is shown them in the opposite order. */
    reverse(value, e->n);
    ig_pick_rule rule = {.n_sinks = n_recent, .n_recent = n_sinks, .count = count, .mass = 1};
    int n = ig_pick(step->kernels, keep, value, e->n, &rule);
    for (int i = 0, j = n - 1; i <= j; i++, j--) {
        int32_t first = keep[i];
        keep[i] = e->n - 1 - keep[j];
        keep[j] = e->n - 1 - first;
    }
    ig_kv_keep(seg->seq->kv, step->layer, head, keep, n);
}

typedef struct retention {
    const ig_step *step;
    const ig_segment *seg;
    int count;   /* entries that a KV head keeps */
    bool before; /* attention */
} retention;

/* Task: one KV head. */
static void retain_task(void *arg, int head, int thread) {
    const retention *r = arg;
    const ig_step *step = r->step;
    const ig_segment *seg = r->seg;
    ig_sequence *seq = seg->seq;
    ig_policy *p = seq->policy;
    int count = r->count;
    (void)thread;
    ig_entries e = ig_kv_entries(seq->kv, step->layer, head);
    if (!r->before) note_use(step, seg, head, &e);
    if (e.n <= count) return;
    float *value = step->x->weights + (size_t)head * (size_t)seq->n_ctx;
    if (r->before) {
        int n_recent = p->ops->value(p, step->layer, head, &e, count, value);
        keep_best(step, seg, head, &e, value, 0, n_recent, count);
        return;
    }
    ig_usage_value(&seq->usage, ig_policy_head(p, step->layer, head), &e, value);
    /* Before anything was selected the counts say nothing, and every policy would miss the sinks. */
    bool plain = p->ops->info.ignores_window && (!seg->dense || count <= p->options.n_sinks + p->options.n_recent);
    int n_sinks = plain ? 0 : p->options.n_sinks, n_recent = plain ? 1 : p->options.n_recent;
    int n_new = seg->dense ? seg->first + seg->n - seq->stepped_end : 0;
    if (n_new > count - n_sinks) n_new = count - n_sinks;
    keep_best(step, seg, head, &e, value, n_sinks, n_new > n_recent ? n_new : n_recent, count);
}

static void retain(ig_step *step, bool before) {
    for (int s = 0; s < step->n_segments; s++) {
        const ig_segment *seg = &step->segments[s];
        if (seg->status) continue;
        retention r = {step, seg, allowance(step, seg, before), before};
        if (r.count < INT_MAX) step->dev->ops->parallel(step->dev, step->heads.n_kv_heads, retain_task, &r);
    }
}

static void moved(void *user, int layer, int head, int from, int to) {
    ig_policy *p = user;
    p->ops->move(p, layer, head, from, to);
}

void ig_step_make_room(ig_step *step) {
    retain(step, true);
    for (int s = 0; s < step->n_segments; s++) {
        ig_segment *seg = &step->segments[s];
        ig_sequence *seq = seg->seq;
        if (seg->status) continue;
        ig_entries e = ig_kv_entries(seq->kv, step->layer, 0);
        int n_free = e.n_slots - e.n;
        if (allowance(step, seg, true) == INT_MAX || n_free == 0) continue;
        /* A single slot is soon taken; on disk there must be none. */
        if (n_free > 1 || ig_kv_has_disk(seq->kv))
            seg->status = ig_kv_compact(seq->kv, step->layer, moved, seq->policy, seg->err);
    }
}

void ig_step_drop(ig_step *step) { retain(step, false); }
