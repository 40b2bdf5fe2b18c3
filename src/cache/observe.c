/* SPDX-License-Identifier: Apache-2.0
 *
 * After a layer's attention: statistics of what was used, the weights that a policy wants to see, audits against dense
 * attention, and the trace.
 */
#include "cache/step_parts.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/memory.h"

/* ---- shares ------------------------------------------------------------------------ */

/* Runs of 1 << shift slots, entries or blocks, of a KV head of which any of its lists holds one. No branch depends on
 * which they are: of scattered ones every other would be foretold wrongly. */
static int count_union(const ig_step *step, const ig_segment *seg, int head, int shift, int thread) {
    int per_head = seg->seq->n_lists / step->heads.n_kv_heads, first = head * per_head, n_runs = 0, n;
    ig_entries held = ig_step_entries(step, seg, head);
    int most = ((held.n_slots - 1) >> shift) + 1;
    uint8_t *seen = step->x->seen + (size_t)thread * step->x->n_ctx;
    ig_step_list(step, seg, first, &n);
    if (per_head == 1 && !shift) return n;
    memset(seen, 0, (size_t)most);
    for (int i = first; i < first + per_head; i++) {
        const int32_t *slots = ig_step_list(step, seg, i, &n);
        if (!slots) slots = held.slot; /* all of them */
        if (!slots) return ((n - 1) >> shift) + 1;
        for (int k = 0; k < n; k++) seen[slots[k] >> shift] = 1;
    }
    for (int i = 0; i < most; i++) n_runs += seen[i];
    return n_runs;
}

static ig_head_use *use_of(const ig_step *step, const ig_segment *seg, int head) {
    return seg->seq->use + ig_policy_head(seg->seq->policy, step->layer, head);
}

void ig_step_count(const ig_step *step, const ig_segment *seg, int head, int thread) {
    int shift = ig_log2(seg->seq->policy->shape.block_tokens);
    *use_of(step, seg, head) =
        (ig_head_use){count_union(step, seg, head, 0, thread), count_union(step, seg, head, shift, thread)};
}

/* Where what the segment's token used is counted. */
static ig_use_sums *uses_of(const ig_segment *seg) { return &seg->seq->row_uses[seg->first % IG_STEP_ROWS]; }

/* Shares of the tokens seen: entries that were dropped count as present. Heads of a late pass are counted already. */
static void add_shares(const ig_step *step, const ig_segment *seg) {
    const ig_sequence *seq = seg->seq;
    ig_use_sums *uses = uses_of(seg);
    int block = seq->policy->shape.block_tokens, n_tokens = seg->first + seg->n,
        n_blocks = (n_tokens + block - 1) / block;
    for (int i = 0, n; i < seq->n_lists; i++) {
        ig_step_list(step, seg, i, &n);
        uses->shares += (double)n / n_tokens;
    }
    uses->n_shares += (uint64_t)seq->n_lists;
    for (int h = 0; h < step->heads.n_kv_heads; h++) {
        if (!ig_step_is_hidden(step, seg)) ig_step_count(step, seg, h, 0);
        ig_head_use use = *use_of(step, seg, h);
        uses->used += (uint64_t)use.entries;
        uses->fetched += (double)use.entries / n_tokens;
        uses->blocks += (double)use.blocks / n_blocks;
    }
    uses->n_fetched += (uint64_t)step->heads.n_kv_heads;
}

/* Runs of 1 << shift slots that hold an entry. */
static int count_held(const ig_step *step, const ig_entries *e, int shift) {
    int most = ((e->n_slots - 1) >> shift) + 1, n_runs = 0;
    uint8_t *seen = step->x->seen;
    if (!e->slot) return most;
    memset(seen, 0, (size_t)most);
    for (int i = 0; i < e->n; i++) seen[e->slot[i] >> shift] = 1;
    for (int i = 0; i < most; i++) n_runs += seen[i];
    return n_runs;
}

/* Of a layer that uses all that it holds; where entries may be dropped that is a share of the tokens seen as well. */
static void add_held(const ig_step *step, const ig_segment *seg) {
    const ig_sequence *seq = seg->seq;
    ig_use_sums *uses = uses_of(seg);
    const ig_policy *p = seq->policy;
    int shift = ig_log2(p->shape.block_tokens), n_tokens = seg->first + seg->n;
    bool drops = seq->limit && !ig_policy_layer_is_dense(&p->shape, &p->options, step->layer);
    for (int h = 0; h < step->heads.n_kv_heads; h++) {
        ig_entries held = ig_step_entries(step, seg, h);
        uses->used += (uint64_t)(drops ? held.n : n_tokens);
        if (!drops) continue;
        uses->shares += (double)held.n / n_tokens;
        uses->fetched += (double)held.n / n_tokens;
        uses->blocks += (double)count_held(step, &held, shift) / (((n_tokens - 1) >> shift) + 1);
        uses->n_shares++;
        uses->n_fetched++;
    }
}

/* ---- weights -------------------------------------------------------------------------- */

/* Views of KV heads [n_kv_heads] become those of query heads [n_heads], in place. */
static void spread(const ig_head_shape *heads, ig_kv_view *views) {
    for (int q = heads->n_heads - 1; q > 0; q--) views[q] = views[q * heads->n_kv_heads / heads->n_heads];
}

/* The softmax weights of all entries of a layer, in the step's weights [n_kv_heads][n_ctx], summed over the query heads
 * of a group, or of each query head [n_heads][n_ctx]. */
static ig_status weigh_all(const ig_step *step, const ig_segment *seg, const ig_attention *job, bool each) {
    ig_head_shape shape = step->heads;
    ig_kv *kv = seg->seq->kv;
    size_t stride = (size_t)seg->seq->n_ctx;
    ig_kv_view *views = (ig_kv_view *)job->views;
    int n = ig_kv_entries(kv, step->layer, 0).n;
    float *weights = step->x->weights;
    if (each) shape.n_kv_heads = shape.n_heads;
    memset(weights, 0, (size_t)shape.n_kv_heads * stride * sizeof(float));
    if (ig_kv_in_ram(kv, step->layer, 0, INT_MAX)) {
        ig_step_all_views(step, seg, views);
        if (each) spread(&step->heads, views);
        step->dev->ops->weigh(step->dev, &shape, job, 0, n, weights, stride);
        return step->dev->ops->finish(step->dev, seg->err);
    }
    for (int begin = 0, end; begin < n; begin = end) {
        end = n - begin < IG_ATTEND_UNIT ? n : begin + IG_ATTEND_UNIT;
        ig_status s = ig_kv_stream(kv, step->layer, begin, n, views, seg->err);
        if (s) return s;
        if (each) spread(&step->heads, views);
        step->dev->ops->weigh(step->dev, &shape, job, begin, end, weights, stride);
        s = step->dev->ops->finish(step->dev, seg->err);
        if (s) return s;
    }
    return IG_OK;
}

/* How many of a segment's queries, the last ones, the policy observes. */
static int count_observed(const ig_segment *seg) {
    const ig_policy *p = seg->seq->policy;
    if (!p->ops->observe) return 0;
    if (!p->ops->observes_ends) return seg->n;
    int n = seg->dense ? p->options.n_recent - seg->n_to_come : 0;
    return n < 0 ? 0 : ig_min_int(n, seg->n);
}

static ig_status show_weights(const ig_step *step, const ig_segment *seg) {
    ig_policy *p = seg->seq->policy;
    int end = seg->first + seg->n, n = count_observed(seg);
    if (n == 0 || ig_policy_is_dense(p, step->layer)) return IG_OK;
    ig_attention job = ig_step_job(step, seg, step->x->views);
    size_t at = (size_t)(job.n_tokens - n) * (size_t)step->heads.n_heads;
    job.q += at * (size_t)step->heads.head_dim;
    job.lse += at;
    job.n_tokens = n;
    ig_status s = weigh_all(step, seg, &job, false);
    for (int h = 0; !s && h < step->heads.n_kv_heads; h++) {
        ig_observation x = {.layer = step->layer,
                            .head = h,
                            .e = ig_kv_entries(seg->seq->kv, step->layer, h),
                            .weights = step->x->weights + (size_t)h * (size_t)seg->seq->n_ctx,
                            .first = end - n,
                            .n = n,
                            .end = end + seg->n_to_come};
        p->ops->observe(p, &x);
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

static int by_weight(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

static double dot(const float *a, const float *b, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

static double sum_of(const float *weights, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (double)weights[i];
    return sum;
}

/* The fewest of n weights that make up 0.9 of them; `sorted` [n] is scratch. */
static int count_needed(const float *weights, int n, float *sorted) {
    double all = sum_of(weights, n), sum = 0;
    int count = 0;
    memcpy(sorted, weights, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, by_weight);
    while (count < n && sum < 0.9 * all) sum += (double)sorted[count++];
    return count;
}

/* Dense attention over everything that was ever there: x->dense, and x->lse, by which the rest is weighed. */
static ig_status attend_whole(const ig_step *step, const ig_segment *seg, ig_attention *job) {
    ig_kv *held = seg->seq->kv;
    if (seg->seq->shadow) seg->seq->kv = seg->seq->shadow;
    job->out = step->x->dense;
    ig_status s = ig_step_attend_all(step, seg, job, step->x->views);
    seg->seq->kv = held;
    return s;
}

/* Of the entries chosen: x->audits has in `mass` the sum of their weights and in `cosine` the norm; x->own has the
 * step's output. */
static ig_status audit_chosen(const ig_step *step, const ig_segment *seg, const ig_attention *job) {
    ig_sequence *seq = seg->seq;
    const ig_selection *x = ig_step_chosen(seg);
    ig_head_shape shape = step->heads;
    size_t stride = (size_t)seq->n_ctx, heads = (size_t)shape.n_heads * (size_t)shape.head_dim;
    float *weights = step->x->weights;
    int longest = 0;
    memset(weights, 0, (size_t)shape.n_heads * stride * sizeof(float));
    for (int q = 0; q < shape.n_heads; q++) {
        int list = q * seq->n_lists / shape.n_heads, head = q * step->heads.n_kv_heads / shape.n_heads;
        ig_entries e = ig_kv_entries(seq->kv, step->layer, head);
        const int32_t *slots = x->all[list] ? e.slot : x->slots + (size_t)list * stride;
        step->x->views[q] = ig_kv_fetch(seq->kv, step->layer, head, slots, 0, x->n[list]);
        step->x->audits[q] =
            (ig_cache_audit){.step = seq->n_steps, .layer = step->layer, .head = q, .used = x->n[list]};
        if (x->n[list] > longest) longest = x->n[list];
    }
    shape.n_kv_heads = shape.n_heads;
    step->dev->ops->weigh(step->dev, &shape, job, 0, longest, weights, stride);
    step->dev->ops->copy(step->dev, step->x->own, step->x->out + (size_t)seg->row * heads, heads * sizeof(float));
    ig_status s = step->dev->ops->finish(step->dev, seg->err);
    for (int q = 0; q < shape.n_heads && !s; q++) {
        ig_cache_audit *a = &step->x->audits[q];
        const float *w = weights + (size_t)q * stride;
        a->mass = sum_of(w, a->used);
        a->cosine = sqrt(dot(w, w, a->used));
    }
    return s;
}

/* Beside everything that was ever there: x->audits become what they say they are. */
static ig_status audit_whole(const ig_step *step, const ig_segment *seg, const ig_attention *job) {
    ig_sequence *seq = seg->seq;
    ig_kv *held = seq->kv;
    if (seq->shadow) seq->kv = seq->shadow;
    ig_status s = weigh_all(step, seg, job, true);
    int n = ig_kv_entries(seq->kv, step->layer, 0).n, d = step->heads.head_dim;
    seq->kv = held;
    for (int q = 0; !s && q < step->heads.n_heads; q++) {
        ig_cache_audit *a = &step->x->audits[q];
        const float *w = step->x->weights + (size_t)q * (size_t)seq->n_ctx;
        const float *dense = step->x->dense + (size_t)q * (size_t)d, *own = step->x->own + (size_t)q * (size_t)d;
        double norm = sqrt(dot(w, w, n)), norms = sqrt(dot(dense, dense, d) * dot(own, own, d)), all = 1;
        if (job->sink_scores) all = sum_of(w, n); /* the rest is the sink's */
        a->seen = n;
        a->needed = count_needed(w, n, step->x->sorted);
        a->mass = all > 0 ? a->mass / all : 1;
        a->cosine = norm > 0 ? a->cosine / norm : 0;
        a->output_cosine = norms > 0 ? dot(dense, own, d) / norms : 0;
        a->weights = w;
    }
    return s;
}

/* Dense attention beside the step's own. Streaming leaves the chosen blocks where they were. */
static ig_status audit(const ig_step *step, const ig_segment *seg) {
    ig_audit *sums = &seg->seq->audit;
    int group = step->heads.n_heads / step->heads.n_kv_heads;
    ig_attention job = ig_step_job(step, seg, step->x->views);
    ig_status s = attend_whole(step, seg, &job);
    if (!s) s = audit_chosen(step, seg, &job);
    if (!s) s = audit_whole(step, seg, &job);
    if (s) return s;
    double mass = 0;
    for (int q = 0; q < step->heads.n_heads; q++) {
        const ig_cache_audit *a = &step->x->audits[q];
        mass += a->mass / group;
        if ((q + 1) % group == 0) note_mass(sums, step->layer, mass), mass = 0;
        sums->cosine += a->cosine;
        sums->output_cosine += a->output_cosine;
        sums->needed += a->needed;
        sums->n_queries++;
        if (sums->call) sums->call(sums->user, a);
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
        line.selected += (uint64_t)(ig_step_selects(step, seg) ? use_of(step, seg, h)->entries : held);
    }
    *last = now;
    seq->trace(seq->trace_user, &line);
}

/* One segment, which has not failed. */
static ig_status observe(const ig_step *step, const ig_segment *seg) {
    ig_sequence *seq = seg->seq;
    bool sparse = ig_step_selects(step, seg);
    ig_status s = show_weights(step, seg);
    if (s) return s;
    if (seg->dense || seg->of_prompt) { /* a prompt is neither counted nor traced */
        if (seq->trace) seq->traced = *ig_kv_moved(seq->kv);
        return IG_OK;
    }
    if (sparse && seq->audit.every && seq->n_steps % seq->audit.every == 0) s = audit(step, seg);
    if (s) return s;
    uses_of(seg)->seen += (uint64_t)(seg->first + seg->n) * (uint64_t)step->heads.n_kv_heads;
    if (sparse)
        add_shares(step, seg);
    else
        add_held(step, seg);
    if (seq->trace) trace(step, seg);
    return IG_OK;
}

void ig_step_observe(const ig_step *step, ig_segment *seg) {
    if (!seg->status) seg->status = observe(step, seg);
}
