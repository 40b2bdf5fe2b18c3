/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists of policies, budgets and other settings into options, statistics into sums. The name of
 * a sketch is copied, since the program keeps the latest one only.
 */
#define _GNU_SOURCE
#include "cli/pairs.h"

#include <stdlib.h>
#include <string.h>

#include "eval/compare.h"
#include "infinigen_tools.h"

/* ---- pairs ----------------------------------------------------------------- */

static bool evicts(const ig_memory_options *m) { return ig_eval_drops(m) || m->disk_bytes; }

/* How often each list makes the pairs more; the first changes slowest. */
enum { TYPES, POLICIES, BUDGETS, ALPHAS, PARTIALS, LIMITS, EVICTIONS, SKETCHES, N_LISTS };

static void count_lists(int n[N_LISTS], const ig_cli_options *o) {
    const int given[N_LISTS] = {o->kv_type.n,    o->kv_policy.n, o->kv_budget.n, o->kv_alpha.n,
                                o->kv_partial.n, o->kv_limit.n,  o->kv_evict.n,  o->kv_sketch.n};
    for (int i = 0; i < N_LISTS; i++) n[i] = given[i] ? given[i] : 1; /* what is not given is 0: the own */
}

/* Of what lists can change. */
static bool same_pair(const ig_cache_options *a, const ig_cache_options *b) {
    const ig_memory_options *m = &a->memory, *n = &b->memory;
    return ig_eval_same_text(a->policy, b->policy) && ig_eval_same_text(m->type, n->type) &&
           ig_eval_same_text(m->evict, n->evict) && ig_eval_same_text(a->sketch, b->sketch) &&
           memcmp(&a->budget, &b->budget, sizeof a->budget) == 0 && a->budget_entries == b->budget_entries &&
           memcmp(&a->alpha, &b->alpha, sizeof a->alpha) == 0 &&
           memcmp(&a->partial, &b->partial, sizeof a->partial) == 0 &&
           memcmp(&m->limit, &n->limit, sizeof m->limit) == 0 && m->limit_bytes == n->limit_bytes;
}

/* The pair with element at[i] of list i. What its policy does not look at is as if it had not been given. */
static ig_cache_options make_pair(ig_cli_app *app, const ig_cache_options *base, const int at[N_LISTS]) {
    const ig_cli_options *o = app->o;
    const char *policy = ig_cli_policy(app, at[POLICIES]), *sketch = o->kv_sketch.v[at[SKETCHES]];
    const ig_policy_info *info = ig_cache_policy_find(policy);
    ig_cache_options cache = *base, own = ig_cache_defaults();
    ig_memory_options *m = &cache.memory;
    ig_cli_use_policy(app, &cache, policy, sketch);
    ig_cli_set_budget(&cache, info->uses_everything ? (ig_cli_amount){.share = 1} : o->kv_budget.v[at[BUDGETS]]);
    if (!info->sketch) cache.sketch = NULL;
    m->type = o->kv_type.v[at[TYPES]];
    cache.alpha = info->takes_alpha ? o->kv_alpha.v[at[ALPHAS]] : own.alpha;
    cache.partial = info->takes_alpha ? o->kv_partial.v[at[PARTIALS]] : own.partial;
    m->limit = o->kv_limit.v[at[LIMITS]].share < 1 ? o->kv_limit.v[at[LIMITS]].share : 0;
    m->limit_bytes = o->kv_limit.v[at[LIMITS]].number;
    m->evict = o->kv_evict.v[evicts(m) ? at[EVICTIONS] : 0];
    return cache;
}

/* Whether `full` with a loses less than with b: drops nothing, or has more bits of each number. */
static bool is_more_exact(const ig_memory_options *a, const ig_memory_options *b) {
    if (ig_eval_drops(a) != ig_eval_drops(b)) return ig_eval_drops(b);
    return ig_cli_kv_type_number(a->type) < ig_cli_kv_type_number(b->type);
}

/* Unless there is one like it. */
static int add_pair(ig_cli_pairs *pairs, const ig_cli_options *o, const ig_cache_options *cache) {
    for (int i = 0; i < pairs->n; i++)
        if (same_pair(&pairs->v[i].cache, cache)) return IG_EXIT_OK;
    if (pairs->n == IG_CLI_PAIRS_MAX)
        return ig_cli_complain(o, "the lists make more than %d combinations", IG_CLI_PAIRS_MAX);
    ig_cli_pair *pair = &pairs->v[pairs->n];
    *pair = (ig_cli_pair){.cache = *cache};
    if (ig_cache_policy_find(cache->policy)->uses_everything &&
        (pairs->full < 0 || is_more_exact(&cache->memory, &pairs->v[pairs->full].cache.memory)))
        pairs->full = pairs->n;
    pairs->n++;
    if (!cache->sketch) return IG_EXIT_OK;
    pair->cache.sketch = pair->sketch = strdup(cache->sketch);
    if (!pair->sketch) return ig_cli_complain(o, "out of memory");
    /* Of a file that is no sketch the session says so. */
    ig_sketch_info info;
    if (!ig_sketch_get_info(&info, pair->sketch, NULL) && info.kind == IG_SKETCH_BALANCED)
        pair->sketch_ctx = info.n_ctx;
    return IG_EXIT_OK;
}

int ig_cli_open_pairs(ig_cli_pairs *out, ig_cli_app *app, const ig_cache_options *base) {
    int code = IG_EXIT_OK, n[N_LISTS], at[N_LISTS] = {0}, last = 0;
    count_lists(n, app->o);
    *out = (ig_cli_pairs){.v = calloc(IG_CLI_PAIRS_MAX, sizeof *out->v), .full = -1};
    if (!out->v) return ig_cli_complain(app->o, "out of memory");
    while (!code && last >= 0) {
        ig_cache_options cache = make_pair(app, base, at);
        code = add_pair(out, app->o, &cache);
        for (last = N_LISTS - 1; last >= 0 && ++at[last] == n[last]; last--) at[last] = 0;
    }
    return code;
}

int ig_cli_check_pairs(ig_cli_app *app, const ig_cli_pairs *pairs, int n_ctx, int n_sessions) {
    ig_session_options options = ig_cli_session_options(app);
    ig_cache_plan_info plan;
    ig_error err = {0};
    options.n_ctx = n_ctx;
    for (int i = 0; i < pairs->n; i++) {
        options.cache = pairs->v[i].cache;
        options.cache.memory.n_sessions = n_sessions;
        if (ig_cache_plan(&plan, app->model, &options, &err)) return ig_cli_fail(app->o, &err);
    }
    return IG_EXIT_OK;
}

void ig_cli_close_pairs(ig_cli_pairs *pairs) {
    for (int i = 0; i < pairs->n; i++) free(pairs->v[i].sketch);
    free(pairs->v);
    *pairs = (ig_cli_pairs){0};
}

/* ---- what they are called ---------------------------------------------------- */

static const char *base_name(const char *path) { return strrchr(path, '/') ? strrchr(path, '/') + 1 : path; }

/* What steps in such a context use; NULL: none. */
static const char *sketch_of(const ig_cli_pair *pair, int n_ctx) {
    return pair->sketch_ctx && pair->sketch_ctx < n_ctx ? NULL : pair->cache.sketch;
}

const char *ig_cli_pair_settings(char out[96], const ig_cli_pair *pair, int n_ctx, const ig_cli_options *o) {
    const char *sketch = sketch_of(pair, n_ctx);
    const ig_cache_options *c = &pair->cache;
    const ig_memory_options *m = &c->memory;
    char size[32];
    size_t n = 0;
    const ig_policy_info *policy = ig_cache_policy_find(c->policy);
#define ADD(...) n += n < 96 ? (size_t)snprintf(out + n, 96 - n, __VA_ARGS__) : 0
    out[0] = 0;
    if (o->kv_type.n > 1) ADD(" %s", m->type);
    if (o->kv_alpha.n > 1 && policy->takes_alpha) ADD(" alpha %g", c->alpha);
    if (o->kv_partial.n > 1 && policy->takes_alpha) ADD(" partial %g", c->partial);
    if (o->kv_limit.n > 1 && m->limit > 0) ADD(" limit %.10g%%", m->limit * 100);
    if (o->kv_limit.n > 1 && m->limit_bytes) ADD(" limit %s", ig_cli_size(size, m->limit_bytes));
    if (o->kv_evict.n > 1 && evicts(m)) ADD(" %s", m->evict);
    if (o->kv_sketch.n > 1 && policy->sketch) ADD(" sketch %.20s", sketch ? base_name(sketch) : "none");
#undef ADD
    return out + (out[0] == ' ');
}

/* A share as a number with a fraction, a count as a whole one, null where the policy has its own. */
static json_t *budget_json(const ig_cli_pair *pair) {
    const ig_cache_options *o = &pair->cache;
    if (o->budget_entries) return json_integer(o->budget_entries);
    return o->budget > 0 ? json_real(o->budget) : json_null();
}

void ig_cli_pair_fields(json_t *json, const ig_cli_pair *pair, int n_ctx) {
    const ig_cache_options *c = &pair->cache;
    const ig_memory_options *m = &c->memory;
    const char *sketch = sketch_of(pair, n_ctx);
    bool has_alpha = ig_cache_policy_find(c->policy)->takes_alpha;
    json_t *limit = m->limit_bytes ? json_integer((json_int_t)m->limit_bytes)
                    : m->limit > 0 ? json_real(m->limit)
                                   : json_null();
    json_object_set_new(json, "policy", json_string(c->policy));
    json_object_set_new(json, "budget", budget_json(pair));
    json_object_set_new(json, "kv_type", json_string(m->type));
    json_object_set_new(json, "alpha", has_alpha ? json_real(c->alpha) : json_null());
    json_object_set_new(json, "partial", has_alpha ? json_real(c->partial) : json_null());
    json_object_set_new(json, "limit", limit);
    json_object_set_new(json, "evict", evicts(m) ? json_string(m->evict) : json_null());
    json_object_set_new(json, "sketch", sketch ? ig_text_string(sketch) : json_null());
}

const char *ig_cli_pair_budget(char out[32], const ig_cli_pair *pair) {
    const ig_cache_options *o = &pair->cache;
    if (ig_cache_policy_find(o->policy)->uses_everything)
        out[0] = 0;
    else if (o->budget_entries)
        snprintf(out, 32, "%d", o->budget_entries);
    else if (o->budget > 0)
        snprintf(out, 32, "%.10g%%", o->budget * 100);
    else
        snprintf(out, 32, "own");
    return out;
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
                         .vram_read = (double)st.decode_vram_read_bytes,
                         .kv_bytes = st.kv_bytes,
                         .sketch_bytes = st.sketch_bytes,
                         .selected = st.selected_share * n,
                         .fetched = st.fetched_share * n,
                         .blocks = st.block_share * n,
                         .mass = st.mass_mean * n_audits,
                         .mass_p1 = st.mass_p1 * n_audits,
                         .cosine = st.cosine_mean * n_audits,
                         .output_cosine = st.output_cosine_mean * n_audits,
                         .needed = st.needed_mean * n_audits,
                         .used = (double)st.used_entries,
                         .seen = (double)st.seen_entries};
    memcpy(more.parts, st.parts, sizeof more.parts);
    ig_cli_tally_add(sum, &more);
}

void ig_cli_tally_add(ig_cli_tally *sum, const ig_cli_tally *more) {
    sum->n_decoded += more->n_decoded;
    sum->n_audits += more->n_audits;
    sum->seconds += more->seconds;
    sum->stall += more->stall;
    sum->read += more->read;
    sum->vram_read += more->vram_read;
    sum->selected += more->selected;
    sum->fetched += more->fetched;
    sum->blocks += more->blocks;
    sum->mass += more->mass;
    sum->mass_p1 += more->mass_p1;
    sum->cosine += more->cosine;
    sum->output_cosine += more->output_cosine;
    sum->needed += more->needed;
    sum->used += more->used;
    sum->seen += more->seen;
    for (int p = 0; p < IG_STEP_PARTS; p++) ig_part_work_add(&sum->parts[p], &more->parts[p], 1);
    if (sum->kv_bytes < more->kv_bytes) sum->kv_bytes = more->kv_bytes;
    if (sum->sketch_bytes < more->sketch_bytes) sum->sketch_bytes = more->sketch_bytes;
}

double ig_cli_mean(double sum, uint64_t n) { return n ? sum / (double)n : 0; }

double ig_cli_mean_share(double sum, uint64_t n) { return n ? sum / (double)n : 1; }

double ig_cli_tally_speed(const ig_cli_tally *t) { return ig_cli_per_second(t->n_decoded, t->seconds); }

uint64_t ig_cli_tally_ram(const ig_cli_tally *t) { return t->kv_bytes + t->sketch_bytes; }

double ig_cli_tally_stall(const ig_cli_tally *t) { return t->seconds > 0 ? t->stall / t->seconds : 0; }

const char *const ig_cli_part_names[] = {
#define PART_NAME(name, text) text,
    IG_STEP_PART_LIST(PART_NAME)
#undef PART_NAME
};

json_t *ig_cli_tally_step(const ig_cli_tally *t) {
    json_t *seconds = json_object(), *busy = json_object(), *tasks = json_object();
    for (int p = 0; p < IG_STEP_PARTS; p++) {
        const ig_part_work *w = &t->parts[p];
        json_object_set_new(seconds, ig_cli_part_names[p], json_real(ig_cli_mean(w->seconds, t->n_decoded)));
        json_object_set_new(busy, ig_cli_part_names[p], json_real(ig_cli_mean(w->busy_seconds, t->n_decoded)));
        json_object_set_new(tasks, ig_cli_part_names[p], json_real(ig_cli_mean(w->n_tasks, t->n_decoded)));
    }
    return json_pack("{s:f, s:o, s:o, s:o, s:f, s:f, s:f, s:f}", "seconds", ig_cli_mean(t->seconds, t->n_decoded),
                     "parts", seconds, "busy", busy, "tasks", tasks, "entries_used", ig_cli_mean(t->used, t->n_decoded),
                     "entries_seen", ig_cli_mean(t->seen, t->n_decoded), "read_bytes",
                     ig_cli_mean(t->read, t->n_decoded), "vram_read_bytes", ig_cli_mean(t->vram_read, t->n_decoded));
}

json_t *ig_cli_tally_audit(const ig_cli_tally *t) {
    uint64_t n = t->n_audits;
    return json_pack("{s:I, s:f, s:f, s:f, s:f, s:f}", "n", (json_int_t)n, "mass_mean", ig_cli_mean(t->mass, n),
                     "mass_p1", ig_cli_mean(t->mass_p1, n), "cosine_mean", ig_cli_mean(t->cosine, n),
                     "output_cosine_mean", ig_cli_mean(t->output_cosine, n), "needed_mean", ig_cli_mean(t->needed, n));
}

void ig_cli_print_audit(FILE *to, const char *whose, const ig_cli_tally *t) {
    if (t->n_audits)
        fprintf(to, "%s the entries used hold %.1f %% of the attention, 99 of 100 heads over %.1f %%\n", whose,
                ig_cli_mean(t->mass, t->n_audits) * 100, ig_cli_mean(t->mass_p1, t->n_audits) * 100);
}

void ig_cli_tally_fields(json_t *json, const ig_cli_tally *t) {
    json_object_set_new(json, "step", ig_cli_tally_step(t));
    json_object_set_new(json, "selected_share", json_real(ig_cli_mean_share(t->selected, t->n_decoded)));
    json_object_set_new(json, "fetched_share", json_real(ig_cli_mean_share(t->fetched, t->n_decoded)));
    json_object_set_new(json, "block_share", json_real(ig_cli_mean_share(t->blocks, t->n_decoded)));
    json_object_set_new(json, "generation_tps", json_real(ig_cli_tally_speed(t)));
    json_object_set_new(json, "read_bytes_per_token", json_real(ig_cli_mean(t->read, t->n_decoded)));
    json_object_set_new(json, "stall_share", json_real(ig_cli_tally_stall(t)));
    json_object_set_new(json, "memory",
                        json_pack("{s:I, s:I}", "kv", (json_int_t)t->kv_bytes, "sketch", (json_int_t)t->sketch_bytes));
    if (t->n_audits) json_object_set_new(json, "audit", ig_cli_tally_audit(t));
}
