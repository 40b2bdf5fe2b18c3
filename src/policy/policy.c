/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of policies, and `full`, which keeps and uses everything.
 */
#include "policy/policy.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static const ig_policy_ops *const policies[] = {
    &ig_policy_infinigen, &ig_policy_infinigen_osdi24, &ig_policy_full,  &ig_policy_quest,
    &ig_policy_h2o,       &ig_policy_window,           &ig_policy_oracle};

const char *ig_cache_policy(size_t i, const char **help) {
    if (i >= IG_COUNT(policies)) return NULL;
    if (help) *help = policies[i]->help;
    return policies[i]->name;
}

ig_status ig_policy_find(const ig_policy_ops **out, ig_cache_options *o, ig_error *err) {
    *out = NULL;
    if (!o->policy) return ig_fail(err, IG_E_ARG, "KV policy: no name given");
    if (!(o->budget >= 0)) return ig_fail(err, IG_E_ARG, "KV budget: must not be negative");
    if (!(o->locality >= 0 && o->locality <= 1)) return ig_fail(err, IG_E_ARG, "KV locality: must be 0..1");
    if (!(o->alpha >= 0)) return ig_fail(err, IG_E_ARG, "KV alpha: must not be negative");
    if (!(o->partial > 0 && o->partial <= 1))
        return ig_fail(err, IG_E_ARG, "KV partial: must be above 0 and at most 1");
    if (!(o->mass > 0 && o->mass <= 1)) return ig_fail(err, IG_E_ARG, "KV mass: must be above 0 and at most 1");
    if (o->n_sinks < 0 || o->n_recent < 1)
        return ig_fail(err, IG_E_ARG, "KV sinks must not be negative, recent entries at least 1");
    for (size_t i = 0; i < IG_COUNT(policies); i++)
        if (strcmp(policies[i]->name, o->policy) == 0) {
            *out = policies[i];
            if (o->n_dense_layers < 0)
                o->n_dense_layers = policies[i]->n_dense_layers ? policies[i]->n_dense_layers : IG_POLICY_DENSE_LAYERS;
            if (o->budget == 0) o->budget = policies[i]->budget > 0 ? policies[i]->budget : IG_POLICY_BUDGET;
            return IG_OK;
        }
    char names[128] = "";
    for (size_t i = 0; i < IG_COUNT(policies); i++) {
        strncat(names, i ? ", " : "", sizeof names - strlen(names) - 1);
        strncat(names, policies[i]->name, sizeof names - strlen(names) - 1);
    }
    return ig_fail(err, IG_E_ARG, "KV policy '%s' is unknown; there are: %s", o->policy, names);
}

bool ig_policy_layer_is_dense(const ig_policy_shape *s, const ig_cache_options *o, int layer) {
    return layer < o->n_dense_layers || (s->window[layer] > 0 && s->window[layer] < s->n_ctx);
}

int ig_policy_count(const ig_cache_options *o, int n) {
    int count = ig_pick_budget(o->budget, n), always = o->n_sinks + o->n_recent;
    return count < always ? always : count;
}

/* Weights give way to the mean of their block, which leaves the sum as it is. */
static void smooth(float *w, int n, int block, float locality) {
    if (locality <= 0) return;
    for (int begin = 0; begin < n; begin += block) {
        int end = begin + block < n ? begin + block : n;
        float sum = 0;
        for (int i = begin; i < end; i++) sum += w[i];
        float mean = locality * sum / (float)(end - begin);
        for (int i = begin; i < end; i++) w[i] = (1 - locality) * w[i] + mean;
    }
}

int ig_policy_choose(const ig_policy *p, const ig_entries *e, const float *scores, size_t stride, int32_t *index,
                     float *weights, float *ordered) {
    const ig_cache_options *o = &p->options;
    const ig_kernels *k = p->shape.kernels;
    int n = e->n, group = p->shape.n_heads / p->shape.n_kv_heads;
    memset(weights, 0, (size_t)n * sizeof *weights);
    for (int g = 0; g < group; g++, scores += stride) {
        for (int i = 0; e->slot && i < n; i++) ordered[i] = scores[e->slot[i]];
        k->softmax_add(weights, e->slot ? ordered : scores, n);
    }
    if (!e->slot) smooth(weights, n, p->shape.block_tokens, (float)o->locality);
    ig_pick_rule rule = {o->n_sinks, o->n_recent, ig_policy_count(o, n), o->mass};
    int n_chosen = ig_pick(k, index, weights, n, &rule);
    ig_policy_name_slots(index, n_chosen, e);
    return n_chosen;
}

/* ---- full ---------------------------------------------------------------- */

static ig_status full_open(ig_policy **out, const ig_policy_shape *shape, const ig_cache_options *options,
                           ig_error *err) {
    ig_policy *p = calloc(1, sizeof *p);
    *out = p;
    if (!p) return ig_fail_memory(err, "KV policy", sizeof *p);
    *p = (ig_policy){&ig_policy_full, *shape, *options};
    return IG_OK;
}

static void full_close(ig_policy *p) { free(p); }

static bool full_is_dense(const ig_policy *p, int layer) {
    (void)p, (void)layer;
    return true;
}

/* Every layer is dense: nothing else is ever called. */
const ig_policy_ops ig_policy_full = {
    .name = "full",
    .help = "keep and use every entry",
    .takes_limit = true,
    .open = full_open,
    .close = full_close,
    .is_dense = full_is_dense,
};
