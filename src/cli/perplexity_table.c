/* SPDX-License-Identifier: Apache-2.0
 *
 * `infinigen perplexity` of several policies and budgets: each pair is a run,
 * a row of the table and an object of the JSON report. Chunks count once they
 * have been scored under all of them, so that all rows are of the same tokens.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "cli/perplexity.h"
#include "eval/compare.h"

/* What a run's session did, summed over chunks. Means are sums of mean x number here. */
typedef struct tally {
    ig_eval_score score;
    uint64_t n_decoded, n_audits;
    double seconds, selected, fetched, blocks, mass, mass_p1;
    double *layers; /* [n_layers] audited mass, as `mass`; negative where there was none */
} tally;

typedef struct run {
    double budget; /* 0: the policy's own */
    char *sketch;
    tally total, chunk;
    json_t *chunks;
} run;

typedef struct table {
    ig_cli_app *app;
    run *runs;                       /* [n] */
    ig_eval_rival *rivals;           /* [n] */
    int n, reference;                /* number of the run of `full`, or -1 */
    int n_chunks, i_chunk, n_scored; /* runs scored of this chunk */
    ig_cli_progress bar;
} table;

static bool is_full(const char *policy) { return strcmp(policy, "full") == 0; }

/* `full` has no budget: it is one run. */
static int count_runs(const ig_cli_options *o) {
    int n = 0, n_budgets = o->budgets.n ? o->budgets.n : 1;
    bool has_full = false;
    for (int i = 0; i < o->policies.n; i++) {
        n += is_full(o->policies.v[i]) ? !has_full : n_budgets;
        has_full = has_full || is_full(o->policies.v[i]);
    }
    return n;
}

bool ig_cli_perplexity_is_table(const ig_cli_options *o) { return count_runs(o) > 1; }

/* ---- setting up ---------------------------------------------------------------- */

static int add_run(table *t, const ig_cache_options *cache, const char *policy, double budget) {
    run *r = &t->runs[t->n];
    ig_eval_rival *rival = &t->rivals[t->n];
    size_t n_layers = (size_t)t->app->info.n_layers;
    *rival = (ig_eval_rival){.cache = *cache, .is_reference = is_full(policy)};
    ig_cli_use_policy(t->app, &rival->cache, policy);
    rival->cache.budget = budget;
    if (rival->is_reference) t->reference = t->n;
    t->n++;
    r->budget = budget;
    r->chunks = json_array();
    r->total.layers = calloc(n_layers, sizeof *r->total.layers);
    r->chunk.layers = calloc(n_layers, sizeof *r->chunk.layers);
    if (rival->cache.sketch) rival->cache.sketch = r->sketch = strdup(rival->cache.sketch);
    if (!r->total.layers || !r->chunk.layers || (rival->cache.sketch && !r->sketch))
        return ig_cli_complain(t->app->o, "out of memory");
    return IG_EXIT_OK;
}

static int add_runs(table *t, const ig_cache_options *cache) {
    const ig_cli_options *o = t->app->o;
    int code = IG_EXIT_OK, n = count_runs(o);
    t->reference = -1;
    t->runs = calloc((size_t)n, sizeof *t->runs);
    t->rivals = calloc((size_t)n, sizeof *t->rivals);
    if (!t->runs || !t->rivals) return ig_cli_complain(o, "out of memory");
    for (int p = 0; p < o->policies.n; p++) {
        bool full = is_full(o->policies.v[p]);
        if (full && t->reference >= 0) continue;
        int n_budgets = full || !o->budgets.n ? 1 : o->budgets.n;
        for (int b = 0; !code && b < n_budgets; b++)
            code = add_run(t, cache, o->policies.v[p], full ? 1 : o->budgets.n ? o->budgets.v[b] : 0);
    }
    return code;
}

static void close_runs(table *t) {
    for (int i = 0; i < t->n; i++) {
        json_decref(t->runs[i].chunks);
        free(t->runs[i].total.layers);
        free(t->runs[i].chunk.layers);
        free(t->runs[i].sketch);
    }
    free(t->runs);
    free(t->rivals);
}

/* ---- scoring ------------------------------------------------------------------- */

/* Progress within a run's part of a chunk, shown as part of the whole. */
static bool on_progress(void *user, uint64_t done, uint64_t total) {
    table *t = user;
    uint64_t n = (uint64_t)t->app->o->ctx, n_runs = (uint64_t)t->n;
    if (total)
        ig_cli_progress_show(&t->bar, ((uint64_t)t->i_chunk * n_runs + (uint64_t)t->n_scored) * n + done,
                             (uint64_t)t->n_chunks * n_runs * n);
    return ig_cli_interrupted() != 0;
}

/* As ig_eval_comparison wants it: the session's statistics are of this chunk and run. */
static void on_scored(void *user, int i, const ig_eval_score *score, const ig_session *s) {
    table *t = user;
    tally *c = &t->runs[i].chunk;
    ig_session_stats st;
    ig_session_get_stats(s, &st);
    double n = (double)st.n_decoded, n_audits = (double)st.n_audits;
    double *layers = c->layers;
    *c = (tally){.score = *score,
                 .n_decoded = st.n_decoded,
                 .n_audits = st.n_audits,
                 .seconds = st.decode_seconds,
                 .selected = st.selected_share * n,
                 .fetched = st.fetched_share * n,
                 .blocks = st.block_share * n,
                 .mass = st.mass_mean * n_audits,
                 .mass_p1 = st.mass_p1 * n_audits,
                 .layers = layers};
    for (int l = 0; l < t->app->info.n_layers; l++) layers[l] = ig_session_audit(s, l) * n_audits;
    t->n_scored++;
}

/* All runs have scored the chunk. */
static void count_chunk(table *t) {
    for (int i = 0; i < t->n; i++) {
        run *r = &t->runs[i];
        tally *sum = &r->total;
        const tally *c = &r->chunk;
        ig_eval_add(&sum->score, &c->score);
        sum->n_decoded += c->n_decoded;
        sum->n_audits += c->n_audits;
        sum->seconds += c->seconds;
        sum->selected += c->selected;
        sum->fetched += c->fetched;
        sum->blocks += c->blocks;
        sum->mass += c->mass;
        sum->mass_p1 += c->mass_p1;
        for (int l = 0; l < t->app->info.n_layers; l++) sum->layers[l] += c->layers[l];
        json_t *chunk = ig_cli_perplexity_chunk(r->chunks, &c->score, c->seconds);
        if (c->score.n_kl) json_object_set_new(chunk, "kl", json_real(ig_eval_kl(&c->score)));
    }
}

static int score_chunks(table *t, ig_session *s, int32_t *ids) {
    ig_error err = {0};
    ig_eval_comparison c = {.rivals = t->rivals, .n_rivals = t->n, .scored = on_scored, .user = t};
    ig_eval_chunk_options options = ig_cli_perplexity_options(t->app);
    size_t n = (size_t)t->app->o->ctx;
    options.progress = on_progress;
    options.progress_user = t;
    ig_status status = ig_eval_comparison_open(&c, options.n_vocab, &err);
    t->bar = ig_cli_progress_start("scoring", "tokens");
    for (t->i_chunk = 0; !status && t->i_chunk < t->n_chunks; t->i_chunk++) {
        t->n_scored = 0;
        status = ig_eval_compare_chunk(&c, s, ids + (size_t)t->i_chunk * n, (int)n, &options, &err);
        if (status) break;
        count_chunk(t);
    }
    ig_cli_progress_end(&t->bar);
    ig_eval_comparison_close(&c);
    return status ? ig_cli_fail(t->app->o, &err) : IG_EXIT_OK;
}

/* ---- reports ------------------------------------------------------------------- */

static double mean(double sum, uint64_t n) { return n ? sum / (double)n : 0; }

static double speed(const tally *a) { return a->seconds > 0 ? (double)a->n_decoded / a->seconds : 0; }

static json_t *json_of_audit(const table *t, const tally *a) {
    json_t *layers = json_array();
    for (int l = 0; l < t->app->info.n_layers; l++) {
        double mass = mean(a->layers[l], a->n_audits);
        json_array_append_new(layers, mass < 0 ? json_null() : json_real(mass));
    }
    return json_pack("{s:I, s:f, s:f, s:o}", "n", (json_int_t)a->n_audits, "mass_mean", mean(a->mass, a->n_audits),
                     "mass_p1", mean(a->mass_p1, a->n_audits), "layers", layers);
}

static json_t *json_of_run(const table *t, int i) {
    const run *r = &t->runs[i];
    const tally *a = &r->total;
    json_t *json = json_pack("{s:s, s:o}", "policy", t->rivals[i].cache.policy, "budget",
                             r->budget > 0 ? json_real(r->budget) : json_null());
    ig_cli_perplexity_fields(json, &a->score);
    if (t->reference >= 0) json_object_set_new(json, "kl", json_real(ig_eval_kl(&a->score)));
    json_object_set_new(json, "selected_share", json_real(mean(a->selected, a->n_decoded)));
    json_object_set_new(json, "fetched_share", json_real(mean(a->fetched, a->n_decoded)));
    json_object_set_new(json, "block_share", json_real(mean(a->blocks, a->n_decoded)));
    json_object_set_new(json, "generation_tps", json_real(speed(a)));
    if (a->n_audits) json_object_set_new(json, "audit", json_of_audit(t, a));
    json_object_set(json, "chunks", r->chunks);
    return json;
}

static int print_json(const table *t, int code) {
    json_t *json = ig_cli_report(t->app, NULL), *runs = json_array();
    json_object_set_new(json, "context", json_integer(t->app->o->ctx));
    json_object_set_new(json, "dense_prefix", json_integer(t->app->o->dense_prefix));
    for (int i = 0; i < t->n; i++) json_array_append_new(runs, json_of_run(t, i));
    json_object_set_new(json, "runs", runs);
    if (code) json_object_set_new(json, code == IG_EXIT_INTERRUPTED ? "interrupted" : "failed", json_true());
    return ig_cli_print_json(json);
}

static void print_row(const table *t, int i) {
    const run *r = &t->runs[i];
    const tally *a = &r->total;
    char budget[32] = "own", than_full[32] = "", kl[32] = "";
    double perplexity = ig_eval_perplexity(&a->score);
    if (i == t->reference)
        budget[0] = 0;
    else if (r->budget > 0)
        snprintf(budget, sizeof budget, r->budget <= 1 ? "%.4g %%" : "%.0f",
                 r->budget <= 1 ? r->budget * 100 : r->budget);
    if (t->reference >= 0 && i != t->reference) {
        double full = ig_eval_perplexity(&t->runs[t->reference].total.score);
        snprintf(than_full, sizeof than_full, "%+.2f %%", (perplexity / full - 1) * 100);
        snprintf(kl, sizeof kl, "%.5f", ig_eval_kl(&a->score));
    }
    printf("| %-16s | %7s | %6.2f %% | %6.2f %% | %6.2f %% | %10.4f | %9s | %8s | %8.1f |\n", t->rivals[i].cache.policy,
           budget, mean(a->selected, a->n_decoded) * 100, mean(a->fetched, a->n_decoded) * 100,
           mean(a->blocks, a->n_decoded) * 100, perplexity, than_full, kl, speed(a));
}

/* `code`: how the scoring ended. */
static int report(const table *t, int code) {
    if (t->app->o->json) return print_json(t, code);
    printf(
        "| policy           |  budget |     used |  fetched |   blocks | perplexity |   vs full |       KL | tokens/s "
        "|\n"
        "| :--------------- | ------: | -------: | -------: | -------: | ---------: | --------: | -------: | -------: "
        "|\n");
    for (int i = 0; i < t->n; i++) print_row(t, i);
    if (code) printf("\nAfter %d of %d chunks.\n", t->i_chunk, t->n_chunks);
    return IG_EXIT_OK;
}

int ig_cli_perplexity_table(ig_cli_app *app, int32_t *ids, int n_chunks) {
    table t = {.app = app, .n_chunks = n_chunks};
    ig_session *s = NULL;
    ig_error err = {0};
    ig_session_options options = ig_cli_session_options(app);
    options.progress = on_progress;
    options.progress_user = &t;
    int code = add_runs(&t, &options.cache);
    options.cache.policy = "full";
    if (!code && ig_session_open(&s, app->model, &options, &err)) code = ig_cli_fail(app->o, &err);
    if (!code) {
        code = score_chunks(&t, s, ids);
        if (t.i_chunk) {
            int reported = report(&t, code);
            if (!code) code = reported;
        }
    }
    ig_session_close(s);
    close_runs(&t);
    return code;
}
