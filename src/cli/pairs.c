/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists of policies and budgets into options, statistics into sums. The name of
 * a sketch is copied, since the program keeps the latest one only.
 */
#define _GNU_SOURCE
#include "cli/pairs.h"

#include <stdlib.h>
#include <string.h>

/* ---- pairs ----------------------------------------------------------------- */

static bool is_full(const char *policy) { return strcmp(policy, "full") == 0; }

int ig_cli_count_pairs(const ig_cli_options *o) {
    int n = 0, n_budgets = o->budgets.n ? o->budgets.n : 1;
    bool has_full = false;
    for (int i = 0; i < o->policies.n; i++) {
        n += is_full(o->policies.v[i]) ? !has_full : n_budgets;
        has_full = has_full || is_full(o->policies.v[i]);
    }
    return n;
}

static int add_pair(ig_cli_pairs *pairs, ig_cli_app *app, const ig_cache_options *base, const char *policy,
                    ig_cli_amount budget) {
    ig_cli_pair *pair = &pairs->v[pairs->n];
    *pair = (ig_cli_pair){.cache = *base};
    ig_cli_use_policy(app, &pair->cache, policy);
    ig_cli_set_budget(&pair->cache, budget);
    if (is_full(policy)) pairs->full = pairs->n;
    pairs->n++;
    if (!pair->cache.sketch) return IG_EXIT_OK;
    pair->cache.sketch = pair->sketch = strdup(pair->cache.sketch);
    return pair->sketch ? IG_EXIT_OK : ig_cli_complain(app->o, "out of memory");
}

int ig_cli_open_pairs(ig_cli_pairs *out, ig_cli_app *app, const ig_cache_options *base) {
    const ig_cli_options *o = app->o;
    int code = IG_EXIT_OK;
    const ig_cli_amount whole = {.share = 1};
    *out = (ig_cli_pairs){.v = calloc((size_t)ig_cli_count_pairs(o), sizeof *out->v), .full = -1};
    if (!out->v) return ig_cli_complain(o, "out of memory");
    for (int p = 0; p < o->policies.n; p++) {
        bool full = is_full(o->policies.v[p]);
        if (full && out->full >= 0) continue;
        int n_budgets = full || !o->budgets.n ? 1 : o->budgets.n; /* without a list the first one is 0, the own */
        for (int b = 0; !code && b < n_budgets; b++)
            code = add_pair(out, app, base, o->policies.v[p], full ? whole : o->budgets.v[b]);
    }
    return code;
}

void ig_cli_close_pairs(ig_cli_pairs *pairs) {
    for (int i = 0; i < pairs->n; i++) free(pairs->v[i].sketch);
    free(pairs->v);
    *pairs = (ig_cli_pairs){0};
}

const char *ig_cli_pair_budget(char out[32], const ig_cli_pair *pair) {
    const ig_cache_options *o = &pair->cache;
    if (is_full(o->policy))
        out[0] = 0;
    else if (o->budget_entries)
        snprintf(out, 32, "%d", o->budget_entries);
    else if (o->budget > 0)
        snprintf(out, 32, "%.10g%%", o->budget * 100);
    else
        snprintf(out, 32, "own");
    return out;
}

json_t *ig_cli_pair_budget_json(const ig_cli_pair *pair) {
    const ig_cache_options *o = &pair->cache;
    if (o->budget_entries) return json_integer(o->budget_entries);
    return o->budget > 0 ? json_real(o->budget) : json_null();
}

/* ---- sums ------------------------------------------------------------------ */

void ig_cli_tally_session(ig_cli_tally *sum, const ig_session *s) {
    ig_session_stats st;
    ig_session_get_stats(s, &st);
    double n = (double)st.n_decoded, n_audits = (double)st.n_audits;
    ig_cli_tally more = {.n_decoded = st.n_decoded,
                         .n_audits = st.n_audits,
                         .seconds = st.decode_seconds,
                         .stall = st.decode_stall_seconds,
                         .read = (double)st.decode_read_bytes,
                         .kv_bytes = st.kv_bytes,
                         .sketch_bytes = st.sketch_bytes,
                         .selected = st.selected_share * n,
                         .fetched = st.fetched_share * n,
                         .blocks = st.block_share * n,
                         .mass = st.mass_mean * n_audits,
                         .mass_p1 = st.mass_p1 * n_audits};
    ig_cli_tally_add(sum, &more);
}

void ig_cli_tally_add(ig_cli_tally *sum, const ig_cli_tally *more) {
    sum->n_decoded += more->n_decoded;
    sum->n_audits += more->n_audits;
    sum->seconds += more->seconds;
    sum->stall += more->stall;
    sum->read += more->read;
    sum->selected += more->selected;
    sum->fetched += more->fetched;
    sum->blocks += more->blocks;
    sum->mass += more->mass;
    sum->mass_p1 += more->mass_p1;
    if (sum->kv_bytes < more->kv_bytes) sum->kv_bytes = more->kv_bytes;
    if (sum->sketch_bytes < more->sketch_bytes) sum->sketch_bytes = more->sketch_bytes;
}

double ig_cli_mean(double sum, uint64_t n) { return n ? sum / (double)n : 0; }

double ig_cli_tally_speed(const ig_cli_tally *t) { return t->seconds > 0 ? (double)t->n_decoded / t->seconds : 0; }

uint64_t ig_cli_tally_ram(const ig_cli_tally *t) { return t->kv_bytes + t->sketch_bytes; }

double ig_cli_tally_stall(const ig_cli_tally *t) { return t->seconds > 0 ? t->stall / t->seconds : 0; }

void ig_cli_tally_fields(json_t *json, const ig_cli_tally *t) {
    json_object_set_new(json, "selected_share", json_real(ig_cli_mean(t->selected, t->n_decoded)));
    json_object_set_new(json, "fetched_share", json_real(ig_cli_mean(t->fetched, t->n_decoded)));
    json_object_set_new(json, "block_share", json_real(ig_cli_mean(t->blocks, t->n_decoded)));
    json_object_set_new(json, "generation_tps", json_real(ig_cli_tally_speed(t)));
    json_object_set_new(json, "read_bytes_per_token", json_real(ig_cli_mean(t->read, t->n_decoded)));
    json_object_set_new(json, "stall_share", json_real(ig_cli_tally_stall(t)));
    json_object_set_new(json, "memory",
                        json_pack("{s:I, s:I}", "kv", (json_int_t)t->kv_bytes, "sketch", (json_int_t)t->sketch_bytes));
    if (!t->n_audits) return;
    json_object_set_new(json, "audit",
                        json_pack("{s:I, s:f, s:f}", "n", (json_int_t)t->n_audits, "mass_mean",
                                  ig_cli_mean(t->mass, t->n_audits), "mass_p1", ig_cli_mean(t->mass_p1, t->n_audits)));
}
