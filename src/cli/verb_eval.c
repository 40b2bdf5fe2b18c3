/* SPDX-License-Identifier: Apache-2.0
 *
 * `infinigen eval`: asks a model the questions of task files and counts the
 * right answers. A row or a JSON object for each file; what was counted before
 * an interruption or a failure is reported too.
 */
#define _GNU_SOURCE
#include "cli/app.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "eval/choice.h"
#include "eval/needle.h"

typedef enum outcome { NOT_ASKED, WRONG, RIGHT } outcome;

/* One task file being worked on. */
typedef struct evaluation {
    ig_cli_app *app;
    const ig_eval_task *task;
    char title[64];      /* the file's name without folder and ending */
    char *examples;      /* text before each question */
    FILE *answers;       /* -o; NULL: none */
    ig_eval_pair *pairs; /* of all options of all questions, in order */
    size_t n_pairs;
    unsigned char *outcomes; /* [task->n] */
    double *scores;          /* of one question: sums, then the same per character */
    int n_ctx;
    ig_eval_reader reader;
    ig_sampler *sampler; /* greedy, for needles */

    size_t n, n_skipped, n_right, n_right_norm;
    uint64_t n_tokens; /* scored or generated */
    double seconds;
    bool interrupted, failed;
    uint64_t done, total; /* tokens of prompts, or questions */
    ig_cli_progress bar;
} evaluation;

static bool is_needle(const evaluation *e) { return e->task->form == IG_EVAL_NEEDLE; }

static bool stopped(void) { return ig_cli_interrupted() != 0; }

/* An ig_progress_fn of the session: progress within a prompt. */
static bool on_prompt(void *user, uint64_t done, uint64_t total) {
    evaluation *e = user;
    if (is_needle(e) && done < total) ig_cli_progress_show(&e->bar, e->done + done, e->total);
    return stopped();
}

/* ---- tokens ------------------------------------------------------------------ */

/* Tokens of context that a question takes. */
static int room_of(const evaluation *e, const ig_eval_question *q, const ig_eval_pair *pairs) {
    int most = 0;
    for (int i = 0; i < q->n_options; i++)
        if (pairs[i].n > most) most = pairs[i].n;
    return most + (is_needle(e) ? ig_eval_needle_room(q->options[0].text) : 0);
}

static int encode_question(evaluation *e, const ig_eval_question *q) {
    for (int i = 0; i < q->n_options; i++) {
        const ig_eval_option *option = &q->options[i];
        ig_error err = {0};
        if (ig_eval_encode(&e->pairs[e->n_pairs], e->app->model, e->examples, option->context,
                           is_needle(e) ? "" : option->text, &err))
            return ig_cli_complain(e->app->o, "%s:%d: %s", e->task->name, q->line, err.text);
        e->n_pairs++;
    }
    return IG_EXIT_OK;
}

/* Tokens of all questions, and the context that the longest of those that fit takes. */
static int encode(evaluation *e) {
    const ig_cli_options *o = e->app->o;
    int limit = o->ctx ? o->ctx : e->app->info.n_ctx_train, longest = 0, most_options = 1;
    size_t n_options = 0;
    for (size_t i = 0; i < e->task->n; i++) {
        n_options += (size_t)e->task->questions[i].n_options;
        if (e->task->questions[i].n_options > most_options) most_options = e->task->questions[i].n_options;
    }
    e->pairs = calloc(n_options, sizeof *e->pairs);
    e->outcomes = calloc(e->task->n, sizeof *e->outcomes);
    e->scores = calloc((size_t)most_options * 2, sizeof *e->scores);
    if (!e->pairs || !e->outcomes || !e->scores) return ig_cli_complain(o, "%s: out of memory", e->task->name);

    for (size_t i = 0; i < e->task->n; i++) {
        const ig_eval_question *q = &e->task->questions[i];
        int code = stopped() ? IG_EXIT_INTERRUPTED : encode_question(e, q);
        if (code) return code;
        const ig_eval_pair *pairs = &e->pairs[e->n_pairs - (size_t)q->n_options];
        int room = room_of(e, q, pairs);
        if (room > limit) continue;
        if (room > longest) longest = room;
        e->total += is_needle(e) ? (uint64_t)pairs->n : 1;
    }
    e->n_ctx = o->ctx ? o->ctx : longest;
    if (longest == 0)
        return ig_cli_complain(o, "%s: every question is longer than the context of %d tokens", e->task->name, limit);
    return IG_EXIT_OK;
}

/* ---- questions --------------------------------------------------------------- */

/* One JSON object a line; takes `fields`. */
static void note_answer(evaluation *e, const ig_eval_question *q, json_t *fields) {
    json_t *line = json_pack("{s:o, s:i}", "task", ig_cli_json_text(e->title, strlen(e->title)), "line", q->line);
    json_object_update(line, fields);
    json_dumpf(line, e->answers, JSON_COMPACT | JSON_REAL_PRECISION(9));
    fputc('\n', e->answers);
    fflush(e->answers);
    json_decref(line);
    json_decref(fields);
}

static ig_status ask_choice(bool *right, evaluation *e, const ig_eval_question *q, const ig_eval_pair *pairs,
                            ig_error *err) {
    double *sums = e->scores, *norms = e->scores + q->n_options;
    for (int i = 0; i < q->n_options; i++) {
        ig_status status = ig_eval_score_pair(&sums[i], &e->reader, &pairs[i], err);
        if (status) return status;
        norms[i] = sums[i] / ig_eval_characters(q->options[i].text);
        e->n_tokens += (uint64_t)(pairs[i].n - pairs[i].n_context);
    }
    int chosen = ig_eval_argmax(sums, q->n_options), chosen_norm = ig_eval_argmax(norms, q->n_options);
    *right = chosen == q->answer;
    e->n_right_norm += chosen_norm == q->answer;
    if (e->answers) {
        json_t *list = json_array();
        for (int i = 0; i < q->n_options; i++) json_array_append_new(list, json_real(sums[i]));
        note_answer(e, q,
                    json_pack("{s:i, s:i, s:i, s:o}", "answer", q->answer, "chosen", chosen, "chosen_norm", chosen_norm,
                              "log_likelihoods", list));
    }
    return IG_OK;
}

static ig_status ask_needle(bool *right, evaluation *e, const ig_eval_question *q, const ig_eval_pair *pair,
                            ig_error *err) {
    ig_eval_needle_result result;
    const char *expected = q->options[0].text;
    ig_status status = ig_eval_needle(&result, &e->reader, e->sampler, pair, expected, err);
    if (status) return status;
    *right = result.right;
    e->n_tokens += (uint64_t)result.n_tokens;
    if (e->answers)
        note_answer(e, q,
                    json_pack("{s:s, s:o, s:b, s:i}", "answer", expected, "text",
                              ig_cli_json_text(result.text, strlen(result.text)), "right", (int)result.right,
                              "tokens_prompt", pair->n));
    return IG_OK;
}

static int ask_all(evaluation *e) {
    const ig_eval_pair *pairs = e->pairs;
    double start = ig_cli_seconds();
    ig_status status = IG_OK;
    ig_error err = {0};
    e->bar = ig_cli_progress_start(e->title, is_needle(e) ? "tokens" : "questions");
    for (size_t i = 0; !status && i < e->task->n; i++) {
        const ig_eval_question *q = &e->task->questions[i];
        if (room_of(e, q, pairs) > e->n_ctx) {
            e->n_skipped++;
        } else {
            bool right = false;
            status = is_needle(e) ? ask_needle(&right, e, q, pairs, &err) : ask_choice(&right, e, q, pairs, &err);
            if (status) break;
            e->outcomes[i] = right ? RIGHT : WRONG;
            e->n++;
            e->n_right += right;
            e->done += is_needle(e) ? (uint64_t)pairs->n : 1;
            ig_cli_progress_show(&e->bar, e->done, e->total);
            if (stopped() && e->done < e->total) status = ig_eval_fail(&err, IG_E_INTERRUPTED, "interrupted");
        }
        pairs += q->n_options;
    }
    ig_cli_progress_end(&e->bar);
    e->seconds = ig_cli_seconds() - start;
    e->interrupted = status == IG_E_INTERRUPTED;
    e->failed = status && !e->interrupted;
    return status ? ig_cli_fail(e->app->o, &err) : IG_EXIT_OK;
}

/* ---- report ------------------------------------------------------------------ */

/* Needles of one length and depth. */
typedef struct cell {
    int words;
    double depth;
    size_t n, n_right;
} cell;

static int compare_cells(const void *a, const void *b) {
    const cell *x = a, *y = b;
    if (x->words != y->words) return x->words < y->words ? -1 : 1;
    return (x->depth > y->depth) - (x->depth < y->depth);
}

/* Sorted by length, then depth; [*n], free() them. NULL if nothing says where it is. */
static cell *count_cells(size_t *n, const evaluation *e) {
    cell *cells = calloc(e->task->n, sizeof *cells);
    size_t n_all = 0;
    *n = 0;
    for (size_t i = 0; cells && i < e->task->n; i++) {
        const ig_eval_question *q = &e->task->questions[i];
        if (e->outcomes[i] == NOT_ASKED || q->context_words < 0 || q->depth < 0) continue;
        cells[n_all++] = (cell){q->context_words, q->depth, 1, e->outcomes[i] == RIGHT};
    }
    if (n_all) qsort(cells, n_all, sizeof *cells, compare_cells);
    for (size_t i = 0; i < n_all; i++) {
        if (*n && compare_cells(&cells[*n - 1], &cells[i]) == 0) {
            cells[*n - 1].n++;
            cells[*n - 1].n_right += cells[i].n_right;
        } else {
            cells[(*n)++] = cells[i];
        }
    }
    if (*n) return cells;
    free(cells);
    return NULL;
}

static void print_json(const evaluation *e) {
    json_t *json = ig_cli_report(e->app, e->reader.s);
    json_object_set_new(json, "task", ig_cli_json_text(e->task->name, strlen(e->task->name)));
    json_object_set_new(json, "shots", json_integer(e->app->o->shots));
    json_object_set_new(json, "questions", json_integer((json_int_t)e->n));
    json_object_set_new(json, "skipped", json_integer((json_int_t)e->n_skipped));
    json_object_set_new(json, "accuracy", json_real(ig_eval_share(e->n_right, e->n)));
    json_object_set_new(json, "accuracy_error", json_real(ig_eval_share_error(e->n_right, e->n)));
    if (e->task->form == IG_EVAL_CHOICES) {
        json_object_set_new(json, "accuracy_norm", json_real(ig_eval_share(e->n_right_norm, e->n)));
        json_object_set_new(json, "accuracy_norm_error", json_real(ig_eval_share_error(e->n_right_norm, e->n)));
    }
    json_object_set_new(json, is_needle(e) ? "tokens_generated" : "tokens_scored",
                        json_integer((json_int_t)e->n_tokens));
    json_object_set_new(json, "seconds", json_real(e->seconds));
    if (e->interrupted || e->failed) json_object_set_new(json, e->failed ? "failed" : "interrupted", json_true());
    if (is_needle(e)) {
        size_t n;
        cell *cells = count_cells(&n, e);
        json_t *list = json_array();
        for (size_t i = 0; i < n; i++)
            json_array_append_new(list, json_pack("{s:i, s:f, s:I, s:f}", "context_words", cells[i].words, "depth",
                                                  cells[i].depth, "questions", (json_int_t)cells[i].n, "accuracy",
                                                  ig_eval_share(cells[i].n_right, cells[i].n)));
        json_object_set_new(json, "cells", list);
        free(cells);
    }
    ig_cli_print_json(json);
}

/* A line for each length: its share of right answers, then right/asked at each depth. */
static void print_cells(const evaluation *e) {
    size_t n, end;
    cell *cells = count_cells(&n, e);
    for (size_t i = 0; i < n; i = end) {
        size_t asked = 0, right = 0;
        for (end = i; end < n && cells[end].words == cells[i].words; end++) {
            asked += cells[end].n;
            right += cells[end].n_right;
        }
        printf("  %6d words %8zu %8.4f  at depth", cells[i].words, asked, ig_eval_share(right, asked));
        for (size_t k = i; k < end; k++) printf("  %g: %zu/%zu", cells[k].depth, cells[k].n_right, cells[k].n);
        putchar('\n');
    }
    free(cells);
}

static void print_row(const evaluation *e, bool with_head) {
    char norm[32] = "";
    ig_session_stats st;
    ig_session_get_stats(e->reader.s, &st);
    if (with_head)
        printf("%-22s %6s %8s %8s %9s  %-16s %8s %9s\n", "task", "n", "acc", "+/-", "acc_norm", "policy", "KV used",
               "tokens/s");
    if (e->task->form == IG_EVAL_CHOICES) snprintf(norm, sizeof norm, "%.4f", ig_eval_share(e->n_right_norm, e->n));
    printf("%-22s %6zu %8.4f %8.4f %9s  %-16s %6.1f %% %9.1f\n", e->title, e->n, ig_eval_share(e->n_right, e->n),
           ig_eval_share_error(e->n_right, e->n), norm, st.policy, st.selected_share * 100,
           e->seconds > 0 ? (double)(st.n_prefilled + st.n_decoded) / e->seconds : 0);
    if (is_needle(e)) print_cells(e);
    if (e->n_skipped)
        printf("  %zu questions were skipped: longer than the context of %d tokens\n", e->n_skipped, e->n_ctx);
    if (e->interrupted || e->failed)
        printf("  %s after %zu of %zu questions\n", e->failed ? "failed" : "interrupted", e->n + e->n_skipped,
               e->task->n);
    fflush(stdout);
}

/* ---- files ------------------------------------------------------------------- */

static int read_task(ig_eval_task **out, const ig_cli_options *o, const char *path, size_t limit) {
    ig_cli_text text = {0};
    ig_error err = {0};
    int code = ig_cli_read_file(&text, o, path);
    if (code) return code;
    if (ig_eval_task_open(out, path, text.data, text.n, limit, &err)) code = ig_cli_fail(o, &err);
    free(text.data);
    return code;
}

static int read_examples(char **out, const ig_cli_options *o, const ig_eval_task *task, const char *path) {
    ig_eval_task *examples = NULL;
    ig_error err = {0};
    if (!path) return (*out = strdup("")) ? IG_EXIT_OK : ig_cli_complain(o, "out of memory");
    if (task->form == IG_EVAL_NEEDLE) return ig_cli_complain(o, "%s: needles take no examples (--shots)", task->name);
    int code = read_task(&examples, o, path, (size_t)o->shots);
    if (!code && ig_eval_task_examples(out, examples, (size_t)o->shots, &err)) code = ig_cli_fail(o, &err);
    ig_eval_task_close(examples);
    return code;
}

static int open_session(evaluation *e) {
    ig_error err = {0};
    ig_session_options options = ig_cli_session_options(e->app);
    ig_sampler_options greedy = ig_sampler_defaults();
    options.n_ctx = e->n_ctx;
    options.progress = on_prompt;
    options.progress_user = e;
    e->reader = (ig_eval_reader){.n_vocab = e->app->info.n_vocab, .stopped = stopped};
    ig_status status = ig_session_open(&e->reader.s, e->app->model, &options, &err);
    if (!status) status = ig_sampler_open(&e->sampler, e->app->model, &greedy, &err);
    return status ? ig_cli_fail(e->app->o, &err) : IG_EXIT_OK;
}

/* "tasks/piqa.jsonl": piqa */
static void name_title(char title[64], const char *path) {
    const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path, *dot = strrchr(base, '.');
    snprintf(title, 64, "%.*s", dot && dot > base ? (int)(dot - base) : (int)strlen(base), base);
}

static int evaluate(ig_cli_app *app, const ig_eval_task *task, const char *shots_file, FILE *answers, bool is_first) {
    evaluation e = {.app = app, .task = task, .answers = answers};
    name_title(e.title, task->name);
    int code = read_examples(&e.examples, app->o, task, shots_file);
    if (!code) code = encode(&e);
    if (!code) code = open_session(&e);
    if (!code) {
        code = ask_all(&e);
        if (e.n + e.n_skipped) {
            if (app->o->json)
                print_json(&e);
            else
                print_row(&e, is_first);
        }
    }
    ig_sampler_close(e.sampler);
    ig_session_close(e.reader.s);
    for (size_t i = 0; i < e.n_pairs; i++) free(e.pairs[i].ids);
    free(e.pairs);
    free(e.outcomes);
    free(e.scores);
    free(e.examples);
    return code;
}

static int evaluate_all(ig_cli_app *app, ig_eval_task *const *tasks) {
    const ig_cli_options *o = app->o;
    FILE *answers = o->output ? fopen(o->output, "we") : NULL;
    if (o->output && !answers) return ig_cli_complain(o, "%s: %s", o->output, strerror(errno));
    int code = IG_EXIT_OK;
    for (int i = 0; !code && i < o->tasks.n; i++)
        code = evaluate(app, tasks[i], o->shots ? o->shots_files.v[i] : NULL, answers, i == 0);
    if (answers) {
        bool failed = ferror(answers) != 0;
        if ((fclose(answers) != 0 || failed) && !code)
            code = ig_cli_complain(o, "%s: %s", o->output, errno ? strerror(errno) : "writing failed");
    }
    return code;
}

static int check_options(const ig_cli_options *o) {
    if (!o->tasks.n) {
        ig_cli_complain(o, "--task FILE is missing");
        return IG_EXIT_USAGE;
    }
    if (o->shots && o->shots_files.n != o->tasks.n) {
        ig_cli_complain(o, "--shots needs a --shots-file for each --task, in the same order");
        return IG_EXIT_USAGE;
    }
    if (!o->shots && o->shots_files.n) {
        ig_cli_complain(o, "--shots-file needs --shots N, the number of examples");
        return IG_EXIT_USAGE;
    }
    return IG_EXIT_OK;
}

int ig_cli_eval(const ig_cli_options *o) {
    ig_eval_task *tasks[IG_CLI_LIST_MAX] = {NULL};
    ig_cli_app app = {0};
    int code = check_options(o);
    size_t limit = o->limit <= 0 ? SIZE_MAX : (size_t)o->limit;
    for (int i = 0; !code && i < o->tasks.n; i++) code = read_task(&tasks[i], o, o->tasks.v[i], limit);
    if (!code) code = ig_cli_open(&app, o, false);
    if (!code) code = evaluate_all(&app, tasks);
    for (int i = 0; i < o->tasks.n; i++) ig_eval_task_close(tasks[i]);
    ig_cli_close(&app);
    return code;
}
