/* SPDX-License-Identifier: Apache-2.0
 *
 * `infinigen perplexity` of several policies, settings and contexts: each pair
 * in each context is a run, a row of the table and an object of the JSON report.
 * Chunks count once they have been scored under all pairs, so that all rows of a
 * context are of the same tokens.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "cli/pairs.h"
#include "cli/perplexity.h"
#include "eval/compare.h"

/* What a run's session did, summed over chunks. */
typedef struct work {
    ig_eval_score score;
    ig_eval_score *parts; /* by position; NULL without --by */
    ig_cli_tally tally;
    double *layers; /* [n_layers] audited mass times number of audits; negative where there was none */
} work;

typedef struct run {
    work total, chunk;
    json_t *chunks;
} run;

/* Of one context. */
typedef struct table {
    ig_cli_app *app;                 /* with the flags of this context */
    bool is_last;                    /* no context follows */
    const ig_cli_options *all;       /* the flags as they are */
    ig_cli_pairs pairs;              /* borrowed */
    run *runs;                       /* [pairs.n] */
    ig_eval_rival *rivals;           /* [pairs.n] */
    json_t *json;                    /* list of runs; NULL: a table is printed */
    ig_eval_score *parts;            /* of the chunk and run at work; NULL without --by */
    int n_chunks, i_chunk, n_scored; /* runs scored of this chunk */
    ig_cli_progress bar;
} table;

ig_cli_options ig_cli_perplexity_at(const ig_cli_options *o, int i) {
    ig_cli_options one = *o;
    one.ctx = o->contexts.v[i];
    if (o->dense_prefix < 0) one.dense_prefix = one.ctx + o->dense_prefix > 0 ? one.ctx + o->dense_prefix : -1;
    return one;
}

/* ---- setting up ---------------------------------------------------------------- */

static int open_runs(table *t) {
    size_t n_layers = (size_t)t->app->info.n_attention_layers;
    t->runs = calloc((size_t)t->pairs.n, sizeof *t->runs);
    t->rivals = calloc((size_t)t->pairs.n, sizeof *t->rivals);
    t->parts = ig_cli_perplexity_new_parts(t->app->o);
    if (!t->runs || !t->rivals || (t->app->o->by && !t->parts)) return ig_cli_complain(t->app->o, "out of memory");
    for (int i = 0; i < t->pairs.n; i++) {
        run *r = &t->runs[i];
        t->rivals[i] = (ig_eval_rival){.cache = t->pairs.v[i].cache, .is_reference = i == t->pairs.full};
        r->chunks = json_array();
        r->total.layers = calloc(n_layers, sizeof *r->total.layers);
        r->chunk.layers = calloc(n_layers, sizeof *r->chunk.layers);
        r->total.parts = ig_cli_perplexity_new_parts(t->app->o);
        r->chunk.parts = ig_cli_perplexity_new_parts(t->app->o);
        bool has_parts = !t->app->o->by || (r->total.parts && r->chunk.parts);
        if (!r->total.layers || !r->chunk.layers || !has_parts) return ig_cli_complain(t->app->o, "out of memory");
    }
    return IG_EXIT_OK;
}

static void close_runs(table *t) {
    for (int i = 0; t->runs && i < t->pairs.n; i++) {
        json_decref(t->runs[i].chunks);
        free(t->runs[i].total.layers);
        free(t->runs[i].chunk.layers);
        free(t->runs[i].total.parts);
        free(t->runs[i].chunk.parts);
    }
    free(t->parts);
    free(t->runs);
    free(t->rivals);
}

/* ---- scoring ------------------------------------------------------------------- */

/* Progress within a run's part of a chunk, shown as part of the whole. */
static bool on_progress(void *user, uint64_t done, uint64_t total) {
    table *t = user;
    uint64_t n = (uint64_t)t->app->o->ctx, n_runs = (uint64_t)t->pairs.n;
    if (total)
        ig_cli_progress_show(&t->bar, ((uint64_t)t->i_chunk * n_runs + (uint64_t)t->n_scored) * n + done,
                             (uint64_t)t->n_chunks * n_runs * n);
    return ig_cli_interrupted() != 0;
}

static int count_parts(const table *t) { return ig_eval_count_parts(t->app->o->ctx, t->app->o->by); }

/* As ig_eval_comparison wants it: the session's statistics are of this chunk and run. */
static void on_scored(void *user, int i, const ig_eval_score *score, const ig_session *s) {
    table *t = user;
    work *c = &t->runs[i].chunk;
    c->score = *score;
    if (t->parts) memcpy(c->parts, t->parts, (size_t)count_parts(t) * sizeof *c->parts);
    c->tally = (ig_cli_tally){0};
    ig_cli_tally_session(&c->tally, s);
    for (int l = 0; l < t->app->info.n_attention_layers; l++)
        c->layers[l] = ig_session_audit(s, l) * (double)c->tally.n_audits;
    t->n_scored++;
}

/* All runs have scored the chunk. */
static void count_chunk(table *t) {
    for (int i = 0; i < t->pairs.n; i++) {
        run *r = &t->runs[i];
        work *sum = &r->total;
        const work *c = &r->chunk;
        ig_eval_add(&sum->score, &c->score);
        ig_cli_perplexity_add_parts(sum->parts, c->parts, t->app->o);
        ig_cli_tally_add(&sum->tally, &c->tally);
        for (int l = 0; l < t->app->info.n_attention_layers; l++) sum->layers[l] += c->layers[l];
        json_t *chunk = ig_cli_perplexity_chunk(r->chunks, &c->score, c->tally.seconds);
        if (c->score.n_kl) json_object_set_new(chunk, "kl", json_real(ig_eval_kl(&c->score)));
    }
}

static int score_chunks(table *t, int32_t *ids) {
    ig_error err = {0};
    ig_eval_comparison c = {.rivals = t->rivals,
                            .n_rivals = t->pairs.n,
                            .model = t->app->model,
                            .session = ig_cli_session_options(t->app),
                            .scored = on_scored,
                            .user = t};
    c.session.progress = on_progress;
    c.session.progress_user = t;
    ig_eval_chunk_options options = ig_cli_perplexity_options(t->app);
    size_t n = (size_t)t->app->o->ctx;
    options.parts = t->parts;
    options.progress = on_progress;
    options.progress_user = t;
    ig_status status = ig_eval_comparison_open(&c, options.n_vocab, &err);
    t->bar = ig_cli_progress_start("scoring", "tokens");
    for (t->i_chunk = 0; !status && t->i_chunk < t->n_chunks; t->i_chunk++) {
        t->n_scored = 0;
        status = ig_eval_compare_chunk(&c, ids + (size_t)t->i_chunk * n, (int)n, &options, &err);
        if (status) break;
        count_chunk(t);
        /* A chunk that is one step of the prompt leaves nothing to stop: its callback comes when all is done. */
        if (ig_cli_interrupted() && !(t->is_last && t->i_chunk + 1 == t->n_chunks))
            status = ig_text_fail(&err, IG_E_INTERRUPTED, "interrupted");
    }
    ig_cli_progress_end(&t->bar);
    ig_eval_comparison_close(&c);
    return status ? ig_cli_fail(t->app->o, &err) : IG_EXIT_OK;
}

/* Whether there are chunks that were not scored. */
static bool is_partial(const table *t) { return t->i_chunk < t->n_chunks; }

/* ---- reports ------------------------------------------------------------------- */

/* Whether the runs are compared with `full`, token by token. */
static bool has_kl(const table *t) { return t->pairs.full >= 0 && t->app->o->dense_prefix; }

/* `code`: how the scoring ended. */
static void add_end(json_t *json, int code) {
    if (code) json_object_set_new(json, code == IG_EXIT_INTERRUPTED ? "interrupted" : "failed", json_true());
}

static json_t *json_of_run(const table *t, int i, int code) {
    const run *r = &t->runs[i];
    const work *a = &r->total;
    json_t *json = json_object();
    ig_cli_pair_fields(json, &t->pairs.v[i], t->app->o->ctx);
    json_object_set_new(json, "context", json_integer(t->app->o->ctx));
    json_object_set_new(json, "dense_prefix", json_integer(t->app->o->dense_prefix));
    ig_cli_perplexity_fields(json, &a->score);
    if (t->pairs.full >= 0) json_object_set_new(json, "reference", json_boolean(i == t->pairs.full));
    if (has_kl(t)) json_object_set_new(json, "kl", json_real(ig_eval_kl(&a->score)));
    if (has_kl(t)) json_object_set_new(json, "tokens_compared", json_integer((json_int_t)a->score.n_kl));
    ig_cli_tally_fields(json, &a->tally);
    json_t *layers = json_array();
    for (int l = 0; l < t->app->info.n_attention_layers; l++) {
        double mass = ig_cli_mean(a->layers[l], a->tally.n_audits);
        json_array_append_new(layers, mass < 0 ? json_null() : json_real(mass));
    }
    json_object_set(json_object_get(json, "audit"), "layers", layers); /* no audit: nothing is set */
    json_decref(layers);
    ig_cli_perplexity_parts_json(json, a->parts, t->app->o);
    json_object_set(json, "chunks", r->chunks);
    if (is_partial(t)) add_end(json, code);
    return json;
}

/* All pairs have the same tiers. */
static bool has_disk(const table *t) { return t->rivals[0].cache.memory.disk_bytes > 0; }

static void print_head(const table *t) {
    bool settings = ig_cli_has_settings(t->all), contexts = t->all->contexts.n > 1;
    printf("%s%s", contexts ? "| context " : "", settings ? "| settings             " : "");
    printf(
        "| policy           |  budget |     used |  fetched |   blocks | perplexity |   vs full |       KL |    KV RAM "
        "| tokens/s |%s\n",
        has_disk(t) ? " read/step | stalled |" : "");
    printf("%s%s", contexts ? "| ------: " : "", settings ? "| :------------------- " : "");
    printf(
        "| :--------------- | ------: | -------: | -------: | -------: | ---------: | --------: | -------: | --------: "
        "| -------: |%s\n",
        has_disk(t) ? " --------: | ------: |" : "");
}

static void print_row(const table *t, int i) {
    const run *r = &t->runs[i];
    const ig_cli_tally *a = &r->total.tally;
    int full = t->pairs.full;
    char budget[32], than_full[32] = "reference", kl[32] = "", speed[32] = "", settings[96];
    if (a->n_decoded) snprintf(speed, sizeof speed, "%.1f", ig_cli_tally_speed(a));
    double perplexity = ig_eval_perplexity(&r->total.score);
    if (full < 0 || t->pairs.n == 1) than_full[0] = 0;
    if (full >= 0 && i != full) {
        double reference = ig_eval_perplexity(&t->runs[full].total.score);
        snprintf(than_full, sizeof than_full, "%+.2f %%", (perplexity / reference - 1) * 100);
        snprintf(kl, sizeof kl, "%.5f", ig_eval_kl(&r->total.score));
    }
    if (t->all->contexts.n > 1) printf("| %7d ", t->app->o->ctx);
    if (ig_cli_has_settings(t->all))
        printf("| %-20s ", ig_cli_pair_settings(settings, &t->pairs.v[i], t->app->o->ctx, t->all));
    printf("| %-16s | %7s | %6.2f %% | %6.2f %% | %6.2f %% | %10.4f | %9s | %8s | %6.1f MB | %8s |",
           t->rivals[i].cache.policy, ig_cli_pair_budget(budget, &t->pairs.v[i]),
           ig_cli_mean_share(a->selected, a->n_decoded) * 100, ig_cli_mean_share(a->fetched, a->n_decoded) * 100,
           ig_cli_mean_share(a->blocks, a->n_decoded) * 100, perplexity, than_full, kl,
           (double)ig_cli_tally_ram(a) / 1e6, speed);
    if (has_disk(t))
        printf(" %6.2f MB | %5.1f %% |", ig_cli_mean(a->read, a->n_decoded) / 1e6, ig_cli_tally_stall(a) * 100);
    putchar('\n');
}

/* ---- by position ---------------------------------------------------------------- */

/* The part number i of run r as it stands in a table; "" where there is nothing to say. */
static const char *part_text(char out[32], const table *t, int r, int i, bool kl) {
    const ig_eval_score *part = &t->runs[r].total.parts[i];
    out[0] = 0;
    if (kl && part->n_kl)
        snprintf(out, 32, "%.5f", ig_eval_kl(part));
    else if (!kl)
        snprintf(out, 32, "%.4f", ig_eval_perplexity(part));
    return out;
}

/* A row for each part, a column for each run. */
static void print_parts(const table *t, bool kl) {
    char text[192], budget[32], settings[96];
    if (t->all->contexts.n > 1) printf("\nContext of %d tokens:\n", t->app->o->ctx);
    printf("\n| %-16s |", kl ? "KL by position" : "by position");
    for (int r = 0; r < t->pairs.n; r++) {
        ig_cli_pair_budget(budget, &t->pairs.v[r]);
        ig_cli_pair_settings(settings, &t->pairs.v[r], t->app->o->ctx, t->all);
        snprintf(text, sizeof text, "%s%s%s%s%s", t->rivals[r].cache.policy, budget[0] ? " " : "", budget,
                 settings[0] ? " " : "", settings);
        printf(" %20s |", text);
    }
    printf("\n| ---------------: |");
    for (int r = 0; r < t->pairs.n; r++) printf(" -------------------: |");
    putchar('\n');
    for (int i = 0; i < count_parts(t); i++) {
        if (!t->runs[0].total.parts[i].n) continue;
        printf("| %16s |", ig_cli_perplexity_positions(text, i, t->app->o));
        for (int r = 0; r < t->pairs.n; r++) printf(" %20s |", part_text(budget, t, r, i, kl));
        putchar('\n');
    }
}

/* A line for each policy. */
static void print_audits(const table *t) {
    bool has_begun = false;
    for (int i = 0; i < t->pairs.n; i++) {
        char whose[96], budget[32];
        const char *text = ig_cli_pair_budget(budget, &t->pairs.v[i]);
        bool is_own = !*text || strcmp(text, "own") == 0;
        snprintf(whose, sizeof whose, "Audit of %s%s%s:", t->rivals[i].cache.policy, is_own ? "" : " ",
                 is_own ? "" : text);
        if (!has_begun && t->runs[i].total.tally.n_audits) has_begun = putchar('\n') != EOF;
        ig_cli_print_audit(stdout, whose, &t->runs[i].total.tally);
    }
}

/* `code`: how the scoring ended. */
static void report(table *t, int code) {
    for (int i = 0; t->json && i < t->pairs.n; i++) json_array_append_new(t->json, json_of_run(t, i, code));
    for (int i = 0; !t->json && i < t->pairs.n; i++) print_row(t, i);
    if (t->json) return;
    print_audits(t);
    if (t->parts) print_parts(t, false);
    if (t->parts && has_kl(t)) print_parts(t, true);
    if (is_partial(t)) printf("\nAfter %d of %d chunks.\n", t->i_chunk, t->n_chunks);
}

/* `code`: how the last context ended. */
static int print_json(const ig_cli_app *app, json_t *runs, int code) {
    const ig_cli_options *o = app->o;
    ig_cli_options one = ig_cli_perplexity_at(o, 0);
    json_t *json = ig_cli_report(app, NULL);
    if (o->contexts.n == 1) json_object_set_new(json, "context", json_integer(one.ctx));
    if (o->contexts.n == 1) json_object_set_new(json, "dense_prefix", json_integer(one.dense_prefix));
    json_object_set(json, "runs", runs);
    add_end(json, code);
    return ig_cli_print_json(json);
}

/* Everything of context number k. */
static int run_context(ig_cli_app *app, const ig_cli_pairs *pairs, int k, int32_t *ids, size_t n, json_t *json) {
    const ig_cli_options *all = app->o;
    ig_cli_options one = ig_cli_perplexity_at(all, k);
    table t = {.app = app, .all = all, .pairs = *pairs, .json = json, .is_last = k + 1 == all->contexts.n};
    app->o = &one;
    t.n_chunks = ig_cli_perplexity_chunks(&one, n);
    int code = open_runs(&t);
    if (!code) code = score_chunks(&t, ids);
    if (t.i_chunk && !json && (k == 0 || t.parts)) print_head(&t);
    if (t.i_chunk) report(&t, code);
    ig_cli_flush();
    close_runs(&t);
    app->o = all;
    return code;
}

int ig_cli_perplexity_table(ig_cli_app *app, const ig_cli_pairs *pairs, int32_t *ids, size_t n) {
    json_t *runs = app->o->json ? json_array() : NULL;
    int code = IG_EXIT_OK;
    for (int k = 0; !code && k < app->o->contexts.n; k++)
        code = ig_cli_check_pairs(app, pairs, app->o->contexts.v[k], 0);
    for (int k = 0; !code && k < app->o->contexts.n; k++) code = run_context(app, pairs, k, ids, n, runs);
    int reported = runs && json_array_size(runs) ? print_json(app, runs, code) : IG_EXIT_OK;
    json_decref(runs);
    return code ? code : reported;
}
