/* SPDX-License-Identifier: Apache-2.0
 *
 * `infinigen perplexity`: cuts a text into chunks, has them scored, and
 * reports. The lines for people are those of llama.cpp's llama-perplexity, so
 * that scripts which read one read the other. Several policies or budgets make
 * a table instead (perplexity_table.c).
 */
#define _GNU_SOURCE
#include "cli/perplexity.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "text/clock.h"

typedef struct measurement {
    ig_cli_app app;
    const ig_session *session;
    int n_ctx, n_chunks, i_chunk;
    ig_eval_score total;
    ig_eval_score *parts, *part_totals; /* of a chunk, and of all; NULL without --by */
    json_t *chunks;
    ig_cli_progress bar;
} measurement;

/* Progress within a chunk, shown as part of the whole. `done` counts anew in the half of a chunk that is scored. */
static bool on_chunk_progress(void *user, uint64_t done, uint64_t total) {
    measurement *m = user;
    uint64_t n = (uint64_t)m->n_ctx;
    done = (uint64_t)ig_session_tokens(m->session, NULL);
    if (total) ig_cli_progress_show(&m->bar, (uint64_t)m->i_chunk * n + done, (uint64_t)m->n_chunks * n);
    return ig_cli_interrupted() != 0;
}

void ig_cli_perplexity_fields(json_t *json, const ig_eval_score *total) {
    json_object_set_new(json, "perplexity", json_real(ig_eval_perplexity(total)));
    json_object_set_new(json, "perplexity_error", json_real(ig_eval_perplexity_error(total)));
    json_object_set_new(json, "nll", json_real(ig_eval_nll(total)));
    json_object_set_new(json, "tokens_scored", json_integer((json_int_t)total->n));
}

json_t *ig_cli_perplexity_chunk(json_t *chunks, const ig_eval_score *score, double seconds) {
    json_t *chunk = json_pack("{s:f, s:f, s:I, s:f}", "perplexity", ig_eval_perplexity(score), "nll",
                              ig_eval_nll(score), "tokens_scored", (json_int_t)score->n, "seconds", seconds);
    json_array_append_new(chunks, chunk);
    return chunk;
}

ig_eval_chunk_options ig_cli_perplexity_options(const ig_cli_app *app) {
    return (ig_eval_chunk_options){
        .n_vocab = app->info.n_vocab,
        .bos = ig_token_adds_bos(app->model) ? ig_token_bos(app->model) : -1,
        .dense_prefix = app->o->dense_prefix,
        .by = app->o->by,
    };
}

static void note_chunk(measurement *m, const ig_eval_score *score, double seconds) {
    ig_eval_add(&m->total, score);
    ig_cli_perplexity_add_parts(m->part_totals, m->parts, m->app.o);
    ig_cli_perplexity_chunk(m->chunks, score, seconds);
    if (m->app.o->json) return;
    if (isatty(STDOUT_FILENO)) ig_cli_progress_end(&m->bar);
    printf("[%d]%.4f,", m->i_chunk + 1, ig_eval_perplexity(&m->total));
    ig_cli_flush();
}

static int score_chunks(measurement *m, ig_session *s, int32_t *ids) {
    const ig_cli_options *o = m->app.o;
    ig_error err = {0};
    ig_eval_chunk_options options = ig_cli_perplexity_options(&m->app);
    options.parts = m->parts;
    options.progress = on_chunk_progress;
    options.progress_user = m;
    m->session = s;
    m->bar = ig_cli_progress_start("scoring", "tokens");
    for (m->i_chunk = 0; m->i_chunk < m->n_chunks; m->i_chunk++) {
        ig_eval_score score;
        double start = ig_text_seconds();
        if (ig_eval_chunk(&score, s, ids + (size_t)m->i_chunk * (size_t)m->n_ctx, m->n_ctx, &options, &err)) break;
        note_chunk(m, &score, ig_text_seconds() - start);
        /* A chunk that is one step of the prompt leaves nothing to stop: its callback comes when all is done. */
        if (ig_cli_interrupted() && m->i_chunk + 1 < m->n_chunks) {
            m->i_chunk++;
            err = (ig_error){IG_E_INTERRUPTED, "interrupted"};
            break;
        }
    }
    ig_cli_progress_end(&m->bar);
    if (!o->json && m->i_chunk) putchar('\n');
    return err.status ? ig_cli_fail(o, &err) : IG_EXIT_OK;
}

/* `code`: how the scoring ended. What was finished before a failure counts. */
static int report(const measurement *m, const ig_session *s, const ig_cli_pair *pair, int code) {
    if (!m->app.o->json) {
        if (code)
            printf("Estimate after %d of %d chunks: ", m->i_chunk, m->n_chunks);
        else
            printf("Final estimate: ");
        printf("PPL = %.4f +/- %.5f\n", ig_eval_perplexity(&m->total), ig_eval_perplexity_error(&m->total));
        ig_cli_perplexity_print_parts(m->part_totals, m->app.o);
        if (isatty(STDERR_FILENO) || m->app.o->verbose)
            ig_cli_print_stats(&m->app, s);
        else
            ig_cli_print_audits(s);
        return IG_EXIT_OK;
    }
    json_t *json = ig_cli_report(&m->app, s);
    ig_cli_pair_fields(json, pair, m->n_ctx);
    json_object_set_new(json, "context", json_integer(m->n_ctx));
    json_object_set_new(json, "dense_prefix", json_integer(m->app.o->dense_prefix));
    ig_cli_perplexity_fields(json, &m->total);
    ig_cli_perplexity_parts_json(json, m->part_totals, m->app.o);
    json_object_set(json, "chunks", m->chunks);
    if (code) json_object_set_new(json, code == IG_EXIT_INTERRUPTED ? "interrupted" : "failed", json_true());
    return ig_cli_print_json(json);
}

static int open_measurement(measurement *m, ig_session **s, const ig_cli_pair *pair) {
    const ig_cli_options *o = m->app.o;
    ig_error err = {0};
    ig_session_options options = ig_cli_session_options(&m->app);
    options.n_ctx = m->n_ctx;
    options.cache = pair->cache;
    options.progress = on_chunk_progress;
    options.progress_user = m;
    m->chunks = json_array();
    m->parts = ig_cli_perplexity_new_parts(o);
    m->part_totals = ig_cli_perplexity_new_parts(o);
    if (o->by && (!m->parts || !m->part_totals)) return ig_cli_complain(o, "out of memory for the parts of --by");
    return ig_session_open(s, m->app.model, &options, &err) ? ig_cli_fail(o, &err) : IG_EXIT_OK;
}

static int measure(measurement *m, const ig_cli_pair *pair, int32_t *ids) {
    ig_session *s = NULL;
    int code = open_measurement(m, &s, pair);
    if (!code) code = score_chunks(m, s, ids);
    if (m->total.n) {
        int reported = report(m, s, pair, code);
        if (!code) code = reported;
    }
    json_decref(m->chunks);
    free(m->parts);
    free(m->part_totals);
    ig_session_close(s);
    return code;
}

int ig_cli_perplexity_chunks(const ig_cli_options *o, size_t n) {
    size_t n_chunks = n / (size_t)o->ctx;
    if (o->chunks > 0 && n_chunks > (size_t)o->chunks) n_chunks = (size_t)o->chunks;
    return n_chunks < INT_MAX ? (int)n_chunks : INT_MAX;
}

static int refuse(const ig_cli_options *o, const char *why) {
    ig_cli_complain(o, "%s", why);
    return IG_EXIT_USAGE;
}

static int check_context(const ig_cli_options *o) {
    /* What is scored first follows from the prefix alone: no policy has a step before the second. */
    if ((o->dense_prefix && o->dense_prefix > o->ctx - 2) || o->dense_prefix < 0) {
        ig_cli_complain(o,
                        "--dense-prefix leaves fewer than two tokens to score, or none before them, in chunks of %d "
                        "tokens (-c)",
                        o->ctx);
        return IG_EXIT_USAGE;
    }
    return IG_EXIT_OK;
}

static int check_options(const ig_cli_options *o) {
    int code = IG_EXIT_OK;
    if (!o->file && !o->tokens) code = refuse(o, "-f FILE is missing (- is standard input), or --tokens FILE");
    if (o->file && o->tokens) code = refuse(o, "-f and --tokens are both texts: give one");
    for (int i = 0; !code && i < o->contexts.n; i++) {
        ig_cli_options one = ig_cli_perplexity_at(o, i);
        code = check_context(&one);
    }
    return code;
}

/* Each of several policies, settings and contexts, or the only one. */
static int measure_all(measurement *m, const ig_cli_pairs *pairs, int32_t *ids, size_t n) {
    const ig_cli_options *o = m->app.o;
    bool is_table = pairs->n > 1 || o->contexts.n > 1;
    ig_cli_options one = ig_cli_perplexity_at(o, 0);
    if (pairs->n > 1 && !o->dense_prefix)
        return refuse(o,
                      "several policies or settings need --dense-prefix N: without it every token is computed with "
                      "dense attention");
    for (int i = 0; i < o->contexts.n; i++)
        if (n < (size_t)o->contexts.v[i])
            return ig_cli_complain(o, "%s: %zu tokens are less than one chunk of %d (-c)",
                                   o->file ? o->file : o->tokens, n, o->contexts.v[i]);
    if (is_table) return ig_cli_perplexity_table(&m->app, pairs, ids, n);
    m->app.o = &one;
    m->n_ctx = one.ctx;
    m->n_chunks = ig_cli_perplexity_chunks(&one, n);
    int code = measure(m, pairs->v, ids);
    m->app.o = o;
    return code;
}

int ig_cli_perplexity(const ig_cli_options *o) {
    measurement m = {.n_chunks = 0};
    ig_cli_text text = {0};
    ig_cli_pairs pairs = {0};
    int32_t *ids = NULL;
    size_t n = 0;
    int code = check_options(o);
    if (!code && o->file) code = ig_cli_read_file(&text, o, o->file);
    if (code) return code;
    code = ig_cli_open(&m.app, o, false);
    if (!code) code = ig_cli_file_tokens(&ids, &n, &m.app, &text);
    free(text.data);
    if (!code) {
        ig_session_options options = ig_cli_session_options(&m.app);
        code = ig_cli_open_pairs(&pairs, &m.app, &options.cache);
    }
    if (!code) code = measure_all(&m, &pairs, ids, n);
    ig_cli_close_pairs(&pairs);
    free(ids);
    return ig_cli_close(&m.app, code);
}
