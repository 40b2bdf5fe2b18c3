/* SPDX-License-Identifier: Apache-2.0
 *
 * `quest`: whole pages of 16 entries, chosen by an upper bound of the scores they can hold (Tang et al. 2024): of each
 * page the smallest and the largest key value per channel are kept, and a query's bound is
 * sum over channels of max(q * min, q * max).
 *
 * The paper selects per query head; with grouped queries the bounds of a group are softmax-normalised and summed, so
 * that a KV head has one selection, as with the other policies here. Sinks and recent entries are used as well
 * (--kv-sinks 0 --kv-recent 1 for the paper's selection).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/half.h"
#include "base/memory.h"
#include "policy/policy.h"

enum { PAGE = 16 };

typedef struct quest_policy {
    ig_policy base;
    size_t total_bytes;
    uint16_t *bounds; /* [sparse layers][n_kv_heads][pages][2][head_dim]: smallest, largest, 16-bit floats */
} quest_policy;

static int n_pages(int n_tokens) { return (n_tokens + PAGE - 1) / PAGE; }

/* Layers that are dense for their window have their room too: address space that is never touched. */
static uint64_t quest_plan(const ig_policy_shape *s, const ig_cache_options *o) {
    int layers = s->n_layers > o->n_dense_layers ? s->n_layers - o->n_dense_layers : 0;
    return (uint64_t)layers * (uint64_t)s->n_kv_heads * (uint64_t)n_pages(s->n_ctx) * 2 * (uint64_t)s->head_dim *
           sizeof(uint16_t);
}

static void quest_close(ig_policy *base) {
    quest_policy *p = (quest_policy *)base;
    ig_pages_release(p->bounds, p->total_bytes);
    free(p);
}

static ig_status quest_open(ig_policy **out, const ig_policy_shape *shape, const ig_cache_options *options,
                            ig_error *err) {
    *out = NULL;
    quest_policy *p = calloc(1, sizeof *p);
    if (!p) return ig_fail_memory(err, "KV policy", sizeof *p);
    p->base = (ig_policy){&ig_policy_quest, *shape, *options};
    p->total_bytes = (size_t)quest_plan(shape, options);
    p->bounds = ig_pages_reserve(p->total_bytes);
    if (!p->bounds) {
        size_t bytes = p->total_bytes;
        free(p);
        return ig_fail_memory(err, "page bounds", bytes);
    }
    *out = &p->base;
    return IG_OK;
}

static bool quest_is_dense(const ig_policy *p, int layer) {
    return ig_policy_layer_is_dense(&p->shape, &p->options, layer);
}

static uint16_t *page_bounds(const quest_policy *p, int layer, int head, int page) {
    const ig_policy_shape *s = &p->base.shape;
    size_t at = (size_t)(layer - p->base.options.n_dense_layers) * (size_t)s->n_kv_heads + (size_t)head;
    return p->bounds + (at * (size_t)n_pages(s->n_ctx) + (size_t)page) * 2 * (size_t)s->head_dim;
}

static void quest_append(ig_policy *base, int layer, int head, int token, const uint16_t *key) {
    int d = base->shape.head_dim;
    uint16_t *low = page_bounds((quest_policy *)base, layer, head, token / PAGE), *high = low + d;
    /* The page's first token also clears what a longer text may have left there. */
    if (token % PAGE == 0) {
        memcpy(low, key, (size_t)d * sizeof *low);
        memcpy(high, key, (size_t)d * sizeof *high);
        return;
    }
    for (int c = 0; c < d; c++) {
        float x = ig_f16_f32(key[c]);
        if (x < ig_f16_f32(low[c])) low[c] = key[c];
        if (x > ig_f16_f32(high[c])) high[c] = key[c];
    }
}

/* Scratch: weights and scores of pages [pages] each, then one page's bounds as floats [2][head_dim]. */
static size_t quest_scratch_bytes(const ig_policy_shape *s) {
    return (2 * (size_t)n_pages(s->n_ctx) + 2 * (size_t)s->head_dim) * sizeof(float);
}

/* Softmax-normalised bounds of all pages, summed over the group. */
static void weigh_pages(const quest_policy *p, int layer, int head, const float *q, int pages, float *weights,
                        float *scratch) {
    const ig_policy_shape *s = &p->base.shape;
    int d = s->head_dim, group = s->n_heads / s->n_kv_heads;
    float *bound = scratch, *low = scratch + pages, *high = low + d;
    for (int i = 0; i < pages; i++) weights[i] = 0;
    for (int g = 0; g < group; g++, q += d) {
        for (int i = 0; i < pages; i++) {
            float sum = 0;
            s->kernels->f16_to_f32(low, page_bounds(p, layer, head, i), 2 * d);
            for (int c = 0; c < d; c++) sum += fmaxf(q[c] * low[c], q[c] * high[c]);
            bound[i] = sum * s->scale;
        }
        s->kernels->softmax_add(weights, bound, pages);
    }
}

static int quest_select(ig_policy *base, int layer, int head, const float *q, const ig_entries *e, int32_t *index,
                        void *scratch) {
    const ig_cache_options *o = &base->options;
    int n = e->n, count = ig_policy_count(o, n), pages = n_pages(n), n_out = 0;
    if (count >= n) return n;
    float *weights = scratch;
    weigh_pages((const quest_policy *)base, layer, head, q, pages, weights, weights + pages);
    int32_t *chosen = (int32_t *)(void *)(weights + pages); /* the scores are not needed any more */
    ig_pick_rule rule = {.count = (count - o->n_sinks - o->n_recent) / PAGE, .mass = 1};
    int n_chosen = rule.count > 0 ? ig_pick(base->shape.kernels, chosen, weights, pages, &rule) : 0;
    for (int i = 0; i < o->n_sinks; i++) index[n_out++] = i;
    for (int i = 0; i < n_chosen; i++) {
        int first = chosen[i] * PAGE, end = first + PAGE;
        if (first < o->n_sinks) first = o->n_sinks;
        if (end > n - o->n_recent) end = n - o->n_recent;
        for (int t = first; t < end; t++) index[n_out++] = t;
    }
    for (int t = n - o->n_recent; t < n; t++) index[n_out++] = t;
    return n_out;
}

static uint64_t quest_bytes(const ig_policy *base, int n) {
    const quest_policy *p = (const quest_policy *)base;
    return p->total_bytes / (uint64_t)n_pages(base->shape.n_ctx) * (uint64_t)n_pages(n);
}

const ig_policy_ops ig_policy_quest = {
    .name = "quest",
    .help = "use pages of 16 entries by a bound of their scores (Quest)",
    .n_dense_layers = 2,
    .plan = quest_plan,
    .open = quest_open,
    .close = quest_close,
    .is_dense = quest_is_dense,
    .append = quest_append,
    .select = quest_select,
    .scratch_bytes = quest_scratch_bytes,
    .bytes = quest_bytes,
};
