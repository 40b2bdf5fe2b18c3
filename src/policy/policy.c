/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of policies, and `full`, which keeps and uses everything.
 */
#include "policy/policy.h"

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/error.h"

static const ig_policy_ops *const policies[] = {
    &ig_policy_infinigen, &ig_policy_infinigen_osdi24, &ig_policy_full,   &ig_policy_quest,  &ig_policy_h2o,
    &ig_policy_snapkv,    &ig_policy_pyramidkv,        &ig_policy_window, &ig_policy_oracle, &ig_policy_indexer};

const ig_policy_info *ig_cache_policy(size_t i) { return i < IG_COUNT(policies) ? &policies[i]->info : NULL; }

static const ig_policy_ops *find(const char *name) {
    for (size_t i = 0; i < IG_COUNT(policies); i++)
        if (strcmp(policies[i]->info.name, name) == 0) return policies[i];
    return NULL;
}

const ig_policy_info *ig_cache_policy_find(const char *name) {
    const ig_policy_ops *ops = name ? find(name) : NULL;
    return ops ? &ops->info : NULL;
}

ig_status ig_policy_find(const ig_policy_ops **out, ig_cache_options *o, ig_error *err) {
    char names[128] = "";
    *out = o->policy ? find(o->policy) : NULL;
    if (*out) {
        int own = (*out)->n_dense_layers;
        if (o->n_dense_layers < 0) o->n_dense_layers = own < 0 ? 0 : own ? own : IG_POLICY_DENSE_LAYERS;
        if ((*out)->goes_by_index) o->n_dense_layers = 0; /* the model says which layers do what */
        return IG_OK;
    }
    if (!o->policy) return ig_fail(err, IG_E_ARG, "KV policy: no name given");
    for (size_t i = 0; i < IG_COUNT(policies); i++) {
        strncat(names, i ? ", " : "", sizeof names - strlen(names) - 1);
        strncat(names, policies[i]->info.name, sizeof names - strlen(names) - 1);
    }
    return ig_fail(err, IG_E_ARG, "KV policy '%s' is unknown; there are: %s", o->policy, names);
}

ig_status ig_policy_open(ig_policy **out, const ig_policy_ops *ops, const ig_policy_shape *shape,
                         const ig_cache_options *options, ig_error *err) {
    ig_policy *p = *out = calloc(1, ops->size);
    if (!p) return ig_fail_memory(err, "KV policy", ops->size);
    *p = (ig_policy){ops, *shape, *options};
    ig_status s = ops->open ? ops->open(p, err) : IG_OK;
    if (!s) return IG_OK;
    ig_policy_close(p);
    *out = NULL;
    return s;
}

void ig_policy_close(ig_policy *p) {
    if (p && p->ops->close) p->ops->close(p);
    free(p);
}

ig_status ig_policy_open_table(ig_unit_table *t, const ig_policy *p, const char *what, uint64_t of, size_t unit_bytes,
                               ig_error *err) {
    uint64_t sparse = 0; /* which layers are: of others there is nothing in the table */
    for (int l = 0; l < p->shape.n_layers; l++)
        if (!ig_policy_is_dense(p, l)) sparse = XXH3_64bits_withSeed(&l, sizeof l, sparse);
    uint64_t facts[] = {XXH3_64bits(p->ops->info.name, strlen(p->ops->info.name)), XXH3_64bits(what, strlen(what)), of,
                        sparse};
    ig_table_plan plan = {.what = what,
                          .kind = XXH3_64bits(facts, sizeof facts),
                          .n_heads = ig_policy_heads(&p->shape),
                          .n_used = ig_policy_sparse_heads(&p->shape, &p->options),
                          .unit_bytes = unit_bytes,
                          .n_slots = ig_policy_slots(&p->shape),
                          .copies_on = ig_policy_is_helped(p->ops, p->shape.device) ? p->shape.device : NULL};
    return ig_unit_table_open(t, &p->shape.home, &plan, err);
}

ig_units ig_policy_units(const ig_policy *p, const ig_unit_table *t, const ig_choosing *x) {
    int sparse = 0, n = (x->e.n - x->e.has_own + IG_UNIT_SLOTS - 1) / IG_UNIT_SLOTS;
    for (int l = 0; l < x->layer; l++) sparse += !ig_policy_is_dense(p, l);
    size_t used = (size_t)sparse * (size_t)p->shape.n_kv_heads + (size_t)x->list;
    return ig_unit_table_bring(t, ig_policy_head(p, x->layer, x->list), used, n);
}

bool ig_policy_layer_is_dense(const ig_policy_shape *s, const ig_cache_options *o, int layer) {
    return layer < o->n_dense_layers || (s->window[layer] > 0 && (s->window[layer] < s->n_ctx || s->local.n_heads));
}

int ig_policy_sparse_layers(const ig_policy_shape *s, const ig_cache_options *o) {
    int n = 0;
    for (int l = 0; l < s->n_layers; l++) n += !ig_policy_layer_is_dense(s, o, l);
    return n;
}

bool ig_policy_is_dense(const ig_policy *p, int layer) {
    return p->ops->info.uses_everything || ig_policy_lacks_index(p, layer) ||
           ig_policy_layer_is_dense(&p->shape, &p->options, layer);
}

bool ig_policy_has_rest(const ig_policy *p) {
    bool has = false;
    for (const ig_policy_stage *stage = p->ops->stages; stage->run; stage++) has = has || stage->for_rest;
    return has;
}

uint64_t ig_policy_bytes(const ig_policy *p, int n) {
    if (p->ops->bytes) return p->ops->bytes(p, n);
    return p->ops->plan ? p->ops->plan(&p->shape, &p->options, n) : 0;
}

static void run_stages(ig_policy *p, ig_choosing *x, bool for_rest) {
    for (const ig_policy_stage *stage = p->ops->stages; stage->run; stage++)
        for (int part = 0, n = ig_policy_tasks(stage, x); stage->for_rest == for_rest && part < n; part++)
            stage->run(p, x, part);
}

void ig_policy_choose_all(ig_policy *p, ig_choosing *x, int part) {
    (void)p, (void)part;
    x->n = x->e.n;
}

void ig_policy_choose(ig_policy *p, ig_choosing *x) { run_stages(p, x, false); }

void ig_policy_estimate(ig_policy *p, ig_choosing *x) { run_stages(p, x, true); }

int ig_policy_budget(const ig_policy *p, int n) {
    const ig_cache_options *o = &p->options;
    if (o->budget_entries) return o->budget_entries < n ? o->budget_entries : n;
    if (o->budget > 0) return ig_pick_share(o->budget, n);
    /* Where entries are dropped, what is selected says which: a step that uses everything would say nothing. */
    if (n <= p->ops->n_whole && !p->shape.n_slots) return n;
    return ig_pick_share(p->ops->budget > 0 ? p->ops->budget : IG_POLICY_BUDGET, n);
}

int ig_policy_count(const ig_policy *p, int n) {
    int count = ig_policy_budget(p, n), always = p->options.n_sinks + p->options.n_recent;
    return count < always ? always : count;
}

bool ig_policy_has_room(const ig_policy *p, int n) { return ig_policy_count(p, n) >= n; }

/* ---- full ---------------------------------------------------------------- */

const ig_policy_ops ig_policy_full = {
    .info = {.name = "full", .help = "keep and use every entry", .uses_everything = true},
    .takes_limit = true,
    .size = sizeof(ig_policy),
};
