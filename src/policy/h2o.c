/* SPDX-License-Identifier: Apache-2.0
 *
 * `h2o`: heavy hitters (Zhang et al. 2023). The attention weights that an entry has received are summed up, over the
 * query heads of the group and over all queries, those of the prompt too. Once decoding begins a KV head holds no more
 * than a budget, a share of the tokens seen so far: one half are the most recent entries, the other those with the
 * largest sums. The rest is dropped for ever. Attention uses all that is held.
 */
#include <stdlib.h>

#include "policy/policy.h"

typedef struct h2o_policy {
    ig_policy base;
    ig_head_table sums; /* float [n_ctx] by slot */
} h2o_policy;

static size_t head_bytes(int n) { return (size_t)n * sizeof(float); }

static uint64_t h2o_plan(const ig_policy_shape *s, const ig_cache_options *o, int n) {
    return ig_policy_sparse_heads(s, o) * head_bytes(n);
}

static void h2o_close(ig_policy *p) {
    ig_head_table_close(&((h2o_policy *)p)->sums);
    free(p);
}

static ig_status h2o_open(ig_policy **out, const ig_policy_shape *shape, const ig_cache_options *options,
                          ig_error *err) {
    ig_status s = ig_policy_new(out, sizeof(h2o_policy), &ig_policy_h2o, shape, options, err);
    if (s) return s;
    s = ig_head_table_open(&((h2o_policy *)*out)->sums, "sums of attention weights", ig_policy_heads(shape),
                           head_bytes(shape->n_ctx), err);
    return ig_policy_opened(out, s);
}

static float *head_sums(const ig_policy *p, int layer, int head) {
    return ig_head_table_at(&((const h2o_policy *)p)->sums, ig_policy_head(p, layer, head));
}

static void h2o_append(ig_policy *p, int layer, int head, int slot, const uint16_t *key, const uint16_t *value) {
    (void)key, (void)value;
    head_sums(p, layer, head)[slot] = 0;
}

static void h2o_observe(ig_policy *p, const ig_observation *x) {
    float *sums = head_sums(p, x->layer, x->head);
    for (int i = 0; i < x->e.n; i++) sums[x->e.slot ? x->e.slot[i] : i] += x->weights[i];
}

static int h2o_limit(const ig_policy *p, int layer, int n_tokens) {
    (void)layer;
    int n = ig_policy_count(p, n_tokens);
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

const ig_policy_ops ig_policy_h2o = {
    .name = "h2o",
    .help = "keep the recent entries and those with the most attention so far, drop the others for ever (H2O)",
    .n_dense_layers = 2,
    .plan = h2o_plan,
    .open = h2o_open,
    .close = h2o_close,
    .append = h2o_append,
    .stages = {{.run = ig_policy_choose_all}},
    .observe = h2o_observe,
    .limit = h2o_limit,
    .value = h2o_value,
    .move = h2o_move,
};
