/* SPDX-License-Identifier: Apache-2.0
 *
 * After a layer's attention: statistics of what was used, the weights that a policy wants to see, audits against dense
 * attention, and the trace.
 */
#include "cache/step_parts.h"

#include <string.h>

/* ---- shares ------------------------------------------------------------------------ */

/* Runs of `unit` slots, entries (1) or blocks, of a KV head of which any of its lists holds one. */
static int count_union(const ig_step *step, ig_sequence *seq, int head, int unit) {
    int per_head = seq->n_lists / step->heads.n_kv_heads, n = 0;
    const ig_selection *x = &seq->chosen;
    if (per_head == 1 && unit == 1) return x->n[head];
    seq->stamp_no++;
    for (int i = head * per_head; i < (head + 1) * per_head; i++) {
        const int32_t *slots = x->slots + (size_t)i * (size_t)seq->n_ctx;
        if (x->all[i]) return (x->n[i] + unit - 1) / unit;
        for (int k = 0; k < x->n[i]; k++) {
            uint32_t *stamp = &seq->stamp[slots[k] / unit];
            n += *stamp != seq->stamp_no;
            *stamp = seq->stamp_no;
        }
    }
    return n;
}

/* Shares of the tokens seen: entries that were dropped count as present. */
static void count_shares(const ig_step *step, const ig_segment *seg) {
    ig_sequence *seq = seg->seq;
    int block = seq->policy->shape.block_tokens, n_tokens = seg->first + seg->n,
        n_blocks = (n_tokens + block - 1) / block;
    for (int i = 0; i < seq->n_lists; i++) seq->share_sum += (double)seq->chosen.n[i] / n_tokens;
    seq->n_shares += (uint64_t)seq->n_lists;
    for (int h = 0; h < step->heads.n_kv_heads; h++) {
        int used = count_union(step, seq, h, 1);
        seq->used_entries += (uint64_t)used;
        seq->fetched_sum += (double)used / n_tokens;
        seq->block_sum += (double)count_union(step, seq, h, block) / n_blocks;
    }
    seq->n_fetched += (uint64_t)step->heads.n_kv_heads;
}

/* ---- weights -------------------------------------------------------------------------- */

/* The softmax weights of all entries of a layer, in the sequence's weights [n_kv_heads][n_ctx]. */
static ig_status weigh_all(const ig_step *step, const ig_segment *seg, const ig_attention *job) {
    ig_head_shape shape = step->heads;
    ig_kv *kv = seg->seq->kv;
    size_t stride = (size_t)seg->seq->n_ctx;
    ig_kv_view *views = (ig_kv_view *)job->views;
    int n = ig_kv_entries(kv, step->layer, 0).n;
    float *weights = step->x->weights;
    memset(weights, 0, (size_t)step->heads.n_kv_heads * stride * sizeof(float));
    if (ig_step_in_ram(step, seg, 0)) {
        ig_step_all_views(step, seg, views);
        step->dev->ops->weigh(step->dev, &shape, job, 0, n, weights, stride);
        return IG_OK;
    }
    for (int begin = 0, end; begin < n; begin = end) {
        end = n - begin < IG_ATTEND_UNIT ? n : begin + IG_ATTEND_UNIT;
        ig_status s = ig_kv_stream(kv, step->layer, begin, n, views, seg->err);
        if (s) return s;
        step->dev->ops->weigh(step->dev, &shape, job, begin, end, weights, stride);
    }
    return IG_OK;
}

static ig_status show_weights(const ig_step *step, const ig_segment *seg) {
    ig_policy *p = seg->seq->policy;
    ig_attention job = ig_step_job(step, seg, step->x->views);
    ig_status s = weigh_all(step, seg, &job);
    for (int h = 0; !s && h < step->heads.n_kv_heads; h++) {
        ig_entries e = ig_kv_entries(seg->seq->kv, step->layer, h);
        p->ops->observe(p, step->layer, h, &e, step->x->weights + (size_t)h * (size_t)seg->seq->n_ctx);
    }
    return s;
}

/* ---- audit -------------------------------------------------------------------------- */

static void note_mass(ig_audit *a, int layer, double mass) {
    int bin = (int)(mass * IG_AUDIT_BINS);
    a->bins[bin < 0 ? 0 : bin > IG_AUDIT_BINS ? IG_AUDIT_BINS : bin]++;
    a->n++;
    a->sum += mass;
    a->layer_n[layer]++;
    a->layer_sum[layer] += mass;
}

/* Dense attention beside the step's own, and the share of it that the chosen entries hold, per KV head. */
static ig_status audit(const ig_step *step, const ig_segment *seg) {
    ig_sequence *seq = seg->seq;
    int lists_per_head = seq->n_lists / step->heads.n_kv_heads, group = step->heads.n_heads / step->heads.n_kv_heads;
    size_t stride = (size_t)seq->n_ctx;
    ig_attention job = ig_step_job(step, seg, step->x->views);
    float *weights = step->x->weights;
    job.out = step->x->dense;
    ig_status s = ig_step_attend_all(step, seg, &job, step->x->views);
    if (s) return s;
    ig_head_shape shape = step->heads;
    shape.n_kv_heads = seq->n_lists;
    memset(weights, 0, (size_t)seq->n_lists * stride * sizeof(float));
    int longest = 0;
    for (int i = 0; i < seq->n_lists; i++) {
        int head = i / lists_per_head;
        ig_entries e = ig_kv_entries(seq->kv, step->layer, head);
        const int32_t *slots = seq->chosen.all[i] ? e.slot : seq->chosen.slots + (size_t)i * stride;
        step->x->views[i] = ig_kv_fetch(seq->kv, step->layer, head, slots, 0, seq->chosen.n[i]);
        if (seq->chosen.n[i] > longest) longest = seq->chosen.n[i];
    }
    /* Streaming the rest has left the chosen blocks where they were. */
    step->dev->ops->weigh(step->dev, &shape, &job, 0, longest, weights, stride);
    for (int h = 0; h < step->heads.n_kv_heads; h++) {
        double mass = 0;
        for (int i = h * lists_per_head; i < (h + 1) * lists_per_head; i++)
            for (int k = 0; k < seq->chosen.n[i]; k++) mass += (double)weights[(size_t)i * stride + (size_t)k];
        note_mass(&seq->audit, step->layer, mass / group);
    }
    return IG_OK;
}

/* ---- trace -------------------------------------------------------------------------- */

static void trace(const ig_step *step, const ig_segment *seg) {
    ig_sequence *seq = seg->seq;
    ig_kv_stats whole, now = *ig_kv_moved(seq->kv), *last = &seq->traced;
    ig_kv_memory_get_stats(ig_kv_memory_of(seq->kv), &whole);
    ig_cache_step line = {
        .step = seq->n_steps,
        .layer = step->layer,
        .fetched_bytes = now.read_bytes - last->read_bytes,
        .hits = now.prefetch_hits - last->prefetch_hits,
        .misses = now.prefetch_misses - last->prefetch_misses,
        .ram_bytes = whole.ram_bytes,
        .disk_bytes = whole.disk_bytes,
        .stall_seconds = now.stall_seconds - last->stall_seconds,
    };
    for (int h = 0; h < step->heads.n_kv_heads; h++) {
        int held = ig_kv_entries(seq->kv, step->layer, h).n;
        line.entries += (uint64_t)held;
        line.selected += (uint64_t)(ig_step_selects(step, seg) ? count_union(step, seq, h, 1) : held);
    }
    *last = now;
    seq->trace(seq->trace_user, &line);
}

/* One segment, which has not failed. */
static ig_status observe(const ig_step *step, const ig_segment *seg) {
    ig_sequence *seq = seg->seq;
    const ig_policy_ops *ops = seq->policy->ops;
    bool sparse = ig_step_selects(step, seg);
    ig_status s = IG_OK;
    if (ops->observe && !ig_policy_is_dense(seq->policy, step->layer)) s = show_weights(step, seg);
    if (!s && sparse && seq->audit.every && seq->n_steps % seq->audit.every == 0) s = audit(step, seg);
    if (s) return s;
    uint64_t all = (uint64_t)(seg->first + seg->n) * (uint64_t)step->heads.n_kv_heads;
    if (!seg->dense) seq->seen_entries += all;
    if (sparse)
        count_shares(step, seg);
    else if (!seg->dense)
        seq->used_entries += all;
    if (seq->trace && seg->dense)
        seq->traced = *ig_kv_moved(seq->kv); /* a prompt is not traced */
    else if (seq->trace)
        trace(step, seg);
    return IG_OK;
}

void ig_step_observe(const ig_step *step, ig_segment *seg) {
    if (!seg->status) seg->status = observe(step, seg);
}
