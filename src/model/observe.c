/* SPDX-License-Identifier: Apache-2.0
 *
 * After a layer's attention: statistics of what was used, the weights that a policy wants to see, audits against dense
 * attention, and the trace.
 */
#include "model/forward_parts.h"

#include <string.h>

/* ---- shares ------------------------------------------------------------------------ */

/* Runs of `unit` slots, entries (1) or blocks, of a KV head of which any of its lists holds one. */
static int count_union(const forward *f, ig_sequence *seq, int head, int unit) {
    int per_head = seq->n_lists / f->c->n_kv_heads, n = 0;
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
static void count_shares(const forward *f, const ig_segment *seg) {
    ig_sequence *seq = seg->seq;
    int block = seq->policy->shape.block_tokens, n_tokens = seg->first + seg->n,
        n_blocks = (n_tokens + block - 1) / block;
    for (int i = 0; i < seq->n_lists; i++) seq->share_sum += (double)seq->chosen.n[i] / n_tokens;
    seq->n_shares += (uint64_t)seq->n_lists;
    for (int h = 0; h < f->c->n_kv_heads; h++) {
        seq->fetched_sum += (double)count_union(f, seq, h, 1) / n_tokens;
        seq->block_sum += (double)count_union(f, seq, h, block) / n_blocks;
    }
    seq->n_fetched += (uint64_t)f->c->n_kv_heads;
}

/* ---- weights -------------------------------------------------------------------------- */

/* The softmax weights of all entries of a layer, in the sequence's weights [n_kv_heads][n_ctx]. */
static ig_status weigh_all(const forward *f, const ig_segment *seg, const ig_attention *job, ig_error *err) {
    ig_head_shape shape = ig_forward_heads(f);
    ig_kv *kv = seg->seq->kv;
    size_t stride = (size_t)seg->seq->n_ctx;
    ig_kv_view *views = (ig_kv_view *)job->views;
    int n = ig_kv_entries(kv, f->layer, 0).n;
    float *weights = seg->seq->ws->weights;
    memset(weights, 0, (size_t)f->c->n_kv_heads * stride * sizeof(float));
    if (ig_forward_in_ram(f, seg, 0)) {
        ig_forward_all_views(f, seg, views);
        f->dev->ops->weigh(f->dev, &shape, job, 0, n, weights, stride);
        return IG_OK;
    }
    for (int begin = 0, end; begin < n; begin = end) {
        end = n - begin < IG_ATTEND_UNIT ? n : begin + IG_ATTEND_UNIT;
        ig_status s = ig_kv_stream(kv, f->layer, begin, n, views, err);
        if (s) return s;
        f->dev->ops->weigh(f->dev, &shape, job, begin, end, weights, stride);
    }
    return IG_OK;
}

static ig_status show_weights(const forward *f, int segment, ig_error *err) {
    const ig_segment *seg = &f->segments[segment];
    ig_policy *p = seg->seq->policy;
    ig_attention job = ig_forward_job(f, segment, f->ws->views);
    ig_status s = weigh_all(f, seg, &job, err);
    for (int h = 0; !s && h < f->c->n_kv_heads; h++) {
        ig_entries e = ig_kv_entries(seg->seq->kv, f->layer, h);
        p->ops->observe(p, f->layer, h, &e, seg->seq->ws->weights + (size_t)h * (size_t)seg->seq->n_ctx);
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
static ig_status audit(const forward *f, int segment, ig_error *err) {
    const ig_segment *seg = &f->segments[segment];
    ig_sequence *seq = seg->seq;
    int lists_per_head = seq->n_lists / f->c->n_kv_heads, group = f->c->n_heads / f->c->n_kv_heads;
    size_t stride = (size_t)seq->n_ctx;
    ig_attention job = ig_forward_job(f, segment, f->ws->views);
    float *weights = seq->ws->weights;
    job.out = seq->ws->dense;
    ig_status s = ig_forward_attend_all(f, seg, &job, f->ws->views, err);
    if (s) return s;
    ig_head_shape shape = ig_forward_heads(f);
    shape.n_kv_heads = seq->n_lists;
    memset(weights, 0, (size_t)seq->n_lists * stride * sizeof(float));
    int longest = 0;
    for (int i = 0; i < seq->n_lists; i++) {
        int head = i / lists_per_head;
        ig_entries e = ig_kv_entries(seq->kv, f->layer, head);
        const int32_t *slots = seq->chosen.all[i] ? e.slot : seq->chosen.slots + (size_t)i * stride;
        f->ws->views[i] = ig_kv_fetch(seq->kv, f->layer, head, slots, 0, seq->chosen.n[i]);
        if (seq->chosen.n[i] > longest) longest = seq->chosen.n[i];
    }
    /* Streaming the rest has left the chosen blocks where they were. */
    f->dev->ops->weigh(f->dev, &shape, &job, 0, longest, weights, stride);
    for (int h = 0; h < f->c->n_kv_heads; h++) {
        double mass = 0;
        for (int i = h * lists_per_head; i < (h + 1) * lists_per_head; i++)
            for (int k = 0; k < seq->chosen.n[i]; k++) mass += (double)weights[(size_t)i * stride + (size_t)k];
        note_mass(&seq->audit, f->layer, mass / group);
    }
    return IG_OK;
}

/* ---- trace -------------------------------------------------------------------------- */

static void trace(const forward *f, const ig_segment *seg) {
    ig_sequence *seq = seg->seq;
    ig_kv_stats now, *last = &seq->traced;
    ig_kv_get_stats(seq->kv, &now);
    ig_cache_step step = {
        .step = seq->n_steps,
        .layer = f->layer,
        .fetched_bytes = now.read_bytes - last->read_bytes,
        .hits = now.prefetch_hits - last->prefetch_hits,
        .misses = now.prefetch_misses - last->prefetch_misses,
        .ram_bytes = now.ram_bytes,
        .disk_bytes = now.disk_bytes,
        .stall_seconds = now.stall_seconds - last->stall_seconds,
    };
    for (int h = 0; h < f->c->n_kv_heads; h++) {
        int held = ig_kv_entries(seq->kv, f->layer, h).n;
        step.entries += (uint64_t)held;
        step.selected += (uint64_t)(ig_forward_selects(f, seg) ? count_union(f, seq, h, 1) : held);
    }
    *last = now;
    seq->trace(seq->trace_user, &step);
}

ig_status ig_forward_observe(forward *f, ig_error *err) {
    for (int i = 0; i < f->n_segments; i++) {
        const ig_segment *seg = &f->segments[i];
        ig_sequence *seq = seg->seq;
        const ig_policy_ops *ops = seq->policy->ops;
        bool sparse = ig_forward_selects(f, seg);
        ig_status s = IG_OK;
        if (ops->observe && !ig_policy_is_dense(seq->policy, f->layer)) s = show_weights(f, i, err);
        if (!s && sparse && seq->audit.every && seq->n_steps % seq->audit.every == 0) s = audit(f, i, err);
        if (s) return s;
        if (sparse) count_shares(f, seg);
        if (seq->trace && seg->dense)
            ig_kv_get_stats(seq->kv, &seq->traced); /* a prompt is not traced */
        else if (seq->trace)
            trace(f, seg);
    }
    return IG_OK;
}
