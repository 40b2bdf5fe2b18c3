/* SPDX-License-Identifier: Apache-2.0
 *
 * The default policy: everything is kept, and at each step the entries that will matter are guessed from a sketch of the
 * keys (the paper's section 4.3 with a better sketch and one selection per KV head).
 *
 * The sketch is calibration-free: the post-RoPE keys themselves in 4 bits, with minimum and step per token and
 * KV head. The queries of a group score it, each query's scores are softmax-normalised and the group's are
 * summed; sinks, the recent window and the heaviest others are used, within the budget.
 */
#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"
#include "policy/policy.h"

typedef struct infinigen_policy {
    ig_policy base;
    size_t head_bytes;  /* sketch of one KV head of one layer at full length */
    size_t total_bytes;
    uint8_t *sketch;    /* [sparse layers][n_kv_heads][blocks of IG_SKETCH_TOKENS tokens] */
    int *slot;          /* [n_layers] number among the sparse layers, -1: dense */
} infinigen_policy;

static int n_blocks(int n_tokens) { return (n_tokens + IG_SKETCH_TOKENS - 1) / IG_SKETCH_TOKENS; }

static bool layer_is_dense(const ig_policy_shape *s, const ig_cache_options *o, int layer) {
    /* A sliding-window layer is bounded by its window: nothing to select. */
    return layer < o->n_dense_layers || (s->window[layer] > 0 && s->window[layer] < s->n_ctx);
}

static uint64_t infinigen_plan(const ig_policy_shape *s, const ig_cache_options *o) {
    uint64_t layers = 0;
    for (int l = 0; l < s->n_layers; l++) layers += !layer_is_dense(s, o, l);
    return layers * (uint64_t)s->n_kv_heads * (uint64_t)n_blocks(s->n_ctx) * ig_sketch_block_bytes(s->head_dim);
}

static void infinigen_close(ig_policy *base) {
    infinigen_policy *p = (infinigen_policy *)base;
    if (!p) return;
    ig_pages_release(p->sketch, p->total_bytes);
    free(p->slot);
    free(p);
}

static ig_status infinigen_open(ig_policy **out, const ig_policy_shape *shape, const ig_cache_options *options,
                                ig_error *err) {
    *out = NULL;
    infinigen_policy *p = calloc(1, sizeof *p);
    if (!p) return ig_fail_memory(err, "KV policy", sizeof *p);
    p->base = (ig_policy){&ig_policy_infinigen, *shape, *options};
    p->head_bytes = (size_t)n_blocks(shape->n_ctx) * ig_sketch_block_bytes(shape->head_dim);
    p->total_bytes = (size_t)infinigen_plan(shape, options);
    p->slot = calloc((size_t)shape->n_layers, sizeof *p->slot);
    p->sketch = ig_pages_reserve(p->total_bytes);
    if (!p->slot || !p->sketch) {
        infinigen_close(&p->base);
        return ig_fail_memory(err, "key sketch", p->total_bytes);
    }
    for (int l = 0, n = 0; l < shape->n_layers; l++) p->slot[l] = layer_is_dense(shape, options, l) ? -1 : n++;
    *out = &p->base;
    return IG_OK;
}

static bool infinigen_is_dense(const ig_policy *base, int layer) {
    return ((const infinigen_policy *)base)->slot[layer] < 0;
}

static uint8_t *head_sketch(const infinigen_policy *p, int layer, int head) {
    return p->sketch + ((size_t)p->slot[layer] * (size_t)p->base.shape.n_kv_heads + (size_t)head) * p->head_bytes;
}

static void infinigen_append(ig_policy *base, int layer, int head, int token, const uint16_t *key) {
    infinigen_policy *p = (infinigen_policy *)base;
    int d = base->shape.head_dim;
    uint8_t *block = head_sketch(p, layer, head) + (size_t)(token / IG_SKETCH_TOKENS) * ig_sketch_block_bytes(d);
    base->shape.kernels->sketch_put(block, token % IG_SKETCH_TOKENS, key, d);
}

/* Scratch: weights [n], then scores [group][n], n rounded up to whole sketch blocks. */
static size_t infinigen_scratch_bytes(const ig_policy_shape *s) {
    size_t n = (size_t)n_blocks(s->n_ctx) * IG_SKETCH_TOKENS, group = (size_t)(s->n_heads / s->n_kv_heads);
    return n * (group + 1) * sizeof(float);
}

static int infinigen_select(ig_policy *base, int layer, int head, const float *q, int n, int32_t *index,
                            void *scratch) {
    const infinigen_policy *p = (const infinigen_policy *)base;
    const ig_policy_shape *s = &base->shape;
    const ig_cache_options *o = &base->options;
    int count = ig_pick_budget(o->budget, n), group = s->n_heads / s->n_kv_heads;
    if (count < o->n_sinks + o->n_recent) count = o->n_sinks + o->n_recent;
    if (count >= n) return n;

    size_t stride = (size_t)n_blocks(n) * IG_SKETCH_TOKENS;
    float *weights = scratch, *scores = weights + stride;
    s->kernels->sketch_scores(scores, stride, q, group, s->head_dim, s->scale, head_sketch(p, layer, head), n_blocks(n));
    for (int i = 0; i < n; i++) weights[i] = 0;
    for (int g = 0; g < group; g++) s->kernels->softmax_add(weights, scores + (size_t)g * stride, n);
    return ig_pick(index, weights, n, o->n_sinks, o->n_recent, count, o->mass);
}

static uint64_t infinigen_bytes(const ig_policy *base, int n) {
    const infinigen_policy *p = (const infinigen_policy *)base;
    if (!p->head_bytes) return 0;
    return p->total_bytes / p->head_bytes * (uint64_t)n_blocks(n) * ig_sketch_block_bytes(base->shape.head_dim);
}

const ig_policy_ops ig_policy_infinigen = {
    .name = "infinigen",
    .help = "keep every entry, use those that a 4-bit sketch of the keys says will matter",
    .plan = infinigen_plan,
    .open = infinigen_open,
    .close = infinigen_close,
    .is_dense = infinigen_is_dense,
    .append = infinigen_append,
    .select = infinigen_select,
    .scratch_bytes = infinigen_scratch_bytes,
    .bytes = infinigen_bytes,
};
