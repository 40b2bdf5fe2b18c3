/* SPDX-License-Identifier: Apache-2.0
 *
 * `h2o`: heavy hitters (Zhang et al. 2023). The attention weights that an entry has received are summed up, over the
 * query heads of the group and over all queries, those of the prompt too. Once decoding begins a KV head holds no more
 * than a budget, a share of the tokens seen so far: one half are the most recent entries, the other those with the
 * largest sums. The rest is dropped for ever. Attention uses all that is held.
 */

#include "policy/policy.h"

typedef struct h2o_policy {
    ig_policy base;
    ig_head_table sums; /* float [n_ctx] by slot */
} h2o_policy;

static size_t head_bytes(int n) { return (size_t)n * sizeof(float); }

static uint64_t h2o_plan(const ig_policy_shape *s, const ig_cache_options *o, int n) {
    return ig_policy_sparse_heads(s, o) * head_bytes(n);
}

static void h2o_close(ig_policy *p) { ig_head_table_close(&((h2o_policy *)p)->sums); }

static ig_status h2o_open(ig_policy *p, ig_error *err) {
    return ig_head_table_open(&((h2o_policy *)p)->sums, "sums of attention weights", ig_policy_heads(&p->shape),
                              head_bytes(p->shape.n_ctx), err);
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
    for (int i = 0; i < x->e.n; i++) sums[ig_entry_slot(&x->e, i)] += x->weights[i];
}

static int h2o_limit(const ig_policy *p, int layer, int n_tokens) {
    (void)layer;
    int n = ig_policy_count(p, n_tokens);
    return n < 2 ? 2 : n; /* the step's own, and one beside it */
}

static int h2o_value(ig_policy *p, int layer, int head, const ig_entries *e, int n_kept, float *value) {
    const float *sums = head_sums(p, layer, head);
    for (int i = 0; i < e->n; i++) value[i] = sums[ig_entry_slot(e, i)];
    return n_kept / 2;
}

static void h2o_move(ig_policy *p, int layer, int head, int from, int to) {
    float *sums = head_sums(p, layer, head);
    sums[to] = sums[from];
}

const ig_policy_ops ig_policy_h2o = {
    .info = {.name = "h2o",
             .help = "keep the recent entries and those with the most attention so far, drop the others for ever (H2O)",
             .sees_prompts = true},
    .n_dense_layers = 2,
    .plan = h2o_plan,
    .size = sizeof(h2o_policy),
    .open = h2o_open,
    .close = h2o_close,
    .append = h2o_append,
    .stages = {{.run = ig_policy_choose_all}},
    .observe = h2o_observe,
    .limit = h2o_limit,
    .value = h2o_value,
    .move = h2o_move,
};
