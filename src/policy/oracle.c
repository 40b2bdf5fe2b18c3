/* SPDX-License-Identifier: Apache-2.0
 *
 * `oracle`: chooses as `infinigen` does, but by exact scores: it keeps a 16-bit copy of every post-RoPE key and scores
 * them all in each step. It saves neither memory nor time; it shows what the best sketch could do with the same share
 * of the entries.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "policy/policy.h"

typedef struct oracle_policy {
    ig_policy base;
    size_t total_bytes;
    uint16_t *keys; /* [layers from n_dense_layers on][n_kv_heads][n_ctx][head_dim] by slot, 16-bit floats */
} oracle_policy;

/* Layers that are dense for their window have their room too: address space that is never touched. */
static uint64_t key_bytes(const ig_policy_shape *s, const ig_cache_options *o, int n) {
    int layers = s->n_layers > o->n_dense_layers ? s->n_layers - o->n_dense_layers : 0;
    return (uint64_t)layers * (uint64_t)s->n_kv_heads * (uint64_t)n * (uint64_t)s->head_dim * sizeof(uint16_t);
}

static uint64_t oracle_plan(const ig_policy_shape *s, const ig_cache_options *o) { return key_bytes(s, o, s->n_ctx); }

static void oracle_close(ig_policy *base) {
    oracle_policy *p = (oracle_policy *)base;
    ig_pages_release(p->keys, p->total_bytes);
    free(p);
}

static ig_status oracle_open(ig_policy **out, const ig_policy_shape *shape, const ig_cache_options *options,
                             ig_error *err) {
    *out = NULL;
    oracle_policy *p = calloc(1, sizeof *p);
    if (!p) return ig_fail_memory(err, "KV policy", sizeof *p);
    p->base = (ig_policy){&ig_policy_oracle, *shape, *options};
    p->total_bytes = (size_t)oracle_plan(shape, options);
    p->keys = ig_pages_reserve(p->total_bytes);
    if (!p->keys) {
        size_t bytes = p->total_bytes;
        free(p);
        return ig_fail_memory(err, "copy of the keys", bytes);
    }
    *out = &p->base;
    return IG_OK;
}

static bool oracle_is_dense(const ig_policy *p, int layer) {
    return ig_policy_layer_is_dense(&p->shape, &p->options, layer);
}

static uint16_t *key_at(const oracle_policy *p, int layer, int head, int slot) {
    const ig_policy_shape *s = &p->base.shape;
    size_t at = (size_t)(layer - p->base.options.n_dense_layers) * (size_t)s->n_kv_heads + (size_t)head;
    return p->keys + (at * (size_t)s->n_ctx + (size_t)slot) * (size_t)s->head_dim;
}

static void oracle_append(ig_policy *base, int layer, int head, int slot, const uint16_t *key) {
    memcpy(key_at((oracle_policy *)base, layer, head, slot), key, (size_t)base->shape.head_dim * sizeof *key);
}

/* Scratch: weights and ordered scores [n_ctx] each, scores [group][n_ctx]. */
static size_t oracle_scratch_bytes(const ig_policy_shape *s) {
    return (2 + (size_t)(s->n_heads / s->n_kv_heads)) * (size_t)s->n_ctx * sizeof(float);
}

static int oracle_select(ig_policy *base, int layer, int head, const float *q, const ig_entries *e, int32_t *index,
                         void *scratch) {
    enum { PIECE = 64 }; /* keys of one call of the kernel */
    const ig_policy_shape *s = &base->shape;
    if (ig_policy_count(&base->options, e->n) >= e->n) return e->n;
    float *weights = scratch, *ordered = weights + s->n_ctx, *scores = ordered + s->n_ctx;
    const uint16_t *keys[PIECE];
    for (int first = 0; first < e->n_slots; first += PIECE) {
        int n = e->n_slots - first < PIECE ? e->n_slots - first : PIECE;
        for (int i = 0; i < n; i++) keys[i] = key_at((const oracle_policy *)base, layer, head, first + i);
        s->kernels->attn_scores(scores + first, (size_t)s->n_ctx, q, s->n_heads / s->n_kv_heads, s->head_dim, s->scale,
                                keys, n);
    }
    return ig_policy_choose(base, e, scores, (size_t)s->n_ctx, index, weights, ordered);
}

static uint64_t oracle_bytes(const ig_policy *p, int n) { return key_bytes(&p->shape, &p->options, n); }

const ig_policy_ops ig_policy_oracle = {
    .name = "oracle",
    .help = "like infinigen with exact scores: the best that a sketch could do",
    .takes_limit = true,
    .plan = oracle_plan,
    .open = oracle_open,
    .close = oracle_close,
    .is_dense = oracle_is_dense,
    .append = oracle_append,
    .select = oracle_select,
    .scratch_bytes = oracle_scratch_bytes,
    .bytes = oracle_bytes,
};
