/* SPDX-License-Identifier: Apache-2.0
 *
 * `h2o`: heavy hitters (Zhang et al. 2023). The attention weights that an entry has received are summed up, over the
 * query heads of the group and over all queries, those of the prompt too. Once decoding begins a KV head holds no more
 * than a budget, a share of the tokens seen so far: one half are the most recent entries, the other those with the
 * largest sums. The rest is dropped for ever. Attention uses all that is held.
 */
#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"
#include "policy/policy.h"

typedef struct h2o_policy {
    ig_policy base;
    size_t total_bytes;
    float *sums; /* [n_layers][n_kv_heads][n_ctx] by slot */
} h2o_policy;

/* Dense layers have their room too: address space that is never touched. */
static size_t sum_bytes(const ig_policy_shape *s) {
    return (size_t)s->n_layers * (size_t)s->n_kv_heads * (size_t)s->n_ctx * sizeof(float);
}

static uint64_t h2o_plan(const ig_policy_shape *s, const ig_cache_options *o) {
    uint64_t layers = 0;
    for (int l = 0; l < s->n_layers; l++) layers += !ig_policy_layer_is_dense(s, o, l);
    return sum_bytes(s) / (uint64_t)s->n_layers * layers;
}

static void h2o_close(ig_policy *base) {
    h2o_policy *p = (h2o_policy *)base;
    ig_pages_release(p->sums, p->total_bytes);
    free(p);
}

static ig_status h2o_open(ig_policy **out, const ig_policy_shape *shape, const ig_cache_options *options,
                          ig_error *err) {
    *out = NULL;
    h2o_policy *p = calloc(1, sizeof *p);
    if (!p) return ig_fail_memory(err, "KV policy", sizeof *p);
    size_t bytes = sum_bytes(shape);
    *p = (h2o_policy){{&ig_policy_h2o, *shape, *options}, bytes, ig_pages_reserve(bytes)};
    if (!p->sums) {
        free(p);
        return ig_fail_memory(err, "sums of attention weights", bytes);
    }
    *out = &p->base;
    return IG_OK;
}

static bool h2o_is_dense(const ig_policy *p, int layer) {
    return ig_policy_layer_is_dense(&p->shape, &p->options, layer);
}

static float *head_sums(const ig_policy *base, int layer, int head) {
    const ig_policy_shape *s = &base->shape;
    return ((const h2o_policy *)base)->sums + ((size_t)layer * (size_t)s->n_kv_heads + (size_t)head) * (size_t)s->n_ctx;
}

static void h2o_append(ig_policy *p, int layer, int head, int slot, const uint16_t *key) {
    (void)key;
    head_sums(p, layer, head)[slot] = 0;
}

static int h2o_select(ig_policy *p, int layer, int list, const float *q, const ig_entries *e, int32_t *index,
                      void *scratch) {
    (void)p, (void)layer, (void)list, (void)q, (void)index, (void)scratch;
    return e->n;
}

static void h2o_observe(ig_policy *p, int layer, int head, const ig_entries *e, const float *weights) {
    float *sums = head_sums(p, layer, head);
    for (int i = 0; i < e->n; i++) sums[e->slot ? e->slot[i] : i] += weights[i];
}

static int h2o_limit(const ig_policy *p, int layer, int n_tokens) {
    (void)layer;
    int n = ig_policy_count(&p->options, n_tokens);
    return n < 2 ? 2 : n; /* the step's own, and one beside it */
}

static int h2o_value(ig_policy *p, int layer, int head, const ig_entries *e, int n_kept, float *value) {
    const float *sums = head_sums(p, layer, head);
    for (int i = 0; i < e->n; i++) value[i] = sums[e->slot ? e->slot[i] : i];
    return n_kept / 2;
}

static void h2o_move(ig_policy *p, int layer, int head, int from, int to) {
    float *sums = head_sums(p, layer, head);
    sums[to] = sums[from];
}

static uint64_t h2o_bytes(const ig_policy *p, int n) {
    return h2o_plan(&p->shape, &p->options) / (uint64_t)p->shape.n_ctx * (uint64_t)n;
}

const ig_policy_ops ig_policy_h2o = {
    .name = "h2o",
    .help = "keep the recent entries and those with the most attention so far, drop the others for ever (H2O)",
    .n_dense_layers = 2,
    .plan = h2o_plan,
    .open = h2o_open,
    .close = h2o_close,
    .is_dense = h2o_is_dense,
    .append = h2o_append,
    .select = h2o_select,
    .observe = h2o_observe,
    .limit = h2o_limit,
    .value = h2o_value,
    .move = h2o_move,
    .bytes = h2o_bytes,
};
