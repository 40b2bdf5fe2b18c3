/* SPDX-License-Identifier: Apache-2.0
 *
 * `infinigen eval`: opens task files and sessions, has the questions asked, and
 * reports. What was counted before an interruption or a failure is reported
 * too.
 */
#define _GNU_SOURCE
#include "cli/eval.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static bool stopped(void) { return ig_cli_interrupted() != 0; }

/* An ig_progress_fn of the session: progress within a prompt. */
static bool on_prompt(void *user, uint64_t done, uint64_t total) {
    ig_cli_evaluation *e = user;
    int own = ig_session_tokens(e->reading->s, NULL) - (e->n ? e->n_shared : 0);
    if (ig_cli_eval_generates(e) && done < total && own > 0)
        ig_cli_progress_show(&e->bar, e->done + (uint64_t)own, e->total);
    return stopped();
}

/* ---- tokens ------------------------------------------------------------------ */

/* What of a context is computed dense, if the flags say it. */
static void set_dense(ig_eval_pair *pair, ig_cli_amount dense) {
    double n = dense.number ? (double)dense.number : dense.share * pair->n_context;
    if (n > 0) pair->n_dense = n < 1 ? 1 : n < pair->n_context ? (int)n : pair->n_context;
}

static int encode_question(ig_cli_evaluation *e, const ig_eval_question *q) {
    const ig_cli_options *o = e->app->o;
    for (int i = 0; i < ig_cli_eval_pairs(e, q); i++) {
        ig_eval_pair *pair = &e->options[e->n_options];
        ig_error err = {0};
        ig_status status = ig_cli_eval_generates(e) ? ig_eval_encode_turn(pair, e->app->model, q, i, o->chat, &err)
                                                    : ig_eval_encode(pair, e->app->model, e->examples,
                                                                     q->options[i].context, q->options[i].text, &err);
        if (status) return ig_cli_complain(o, "%s:%d: %s", e->task->name, q->line, err.text);
        if (!ig_cli_eval_generates(e) || i == 0) set_dense(pair, o->dense_part);
        e->n_options++;
    }
    return IG_EXIT_OK;
}

/* How many of the n tokens all options begin with, or all questions' first turns. */
static int count_common(const ig_cli_evaluation *e, const int32_t *ids, int n) {
    const ig_eval_pair *options = e->options;
    for (size_t i = 0; i < e->task->n; i++) {
        int n_pairs = ig_cli_eval_pairs(e, &e->task->questions[i]);
        for (int k = 0; k < (ig_cli_eval_generates(e) ? 1 : n_pairs); k++) {
            int common = 0;
            while (common < n && common < options[k].n_context && ids[common] == options[k].ids[common]) common++;
            n = common;
        }
        options += n_pairs;
    }
    return n;
}

/* What all questions begin with is computed once: the examples, whose last tokens may be joined with what follows, or
 * the text that prompts have in common, as far as it ends with a step of the prompt: what is computed is the same then.
 */
static int count_shared(ig_cli_evaluation *e) {
    ig_eval_pair shots;
    ig_error err = {0};
    if (ig_cli_eval_generates(e)) {
        int common = count_common(e, e->options->ids, e->options->n_context);
        e->n_shared = common - common % e->app->o->batch;
    } else if (e->examples[0]) {
        if (ig_eval_encode(&shots, e->app->model, e->examples, "", "", &err)) return ig_cli_fail(e->app->o, &err);
        e->n_shared = count_common(e, shots.ids, shots.n);
        free(shots.ids);
    }
    return IG_EXIT_OK;
}

static bool open_runs(ig_cli_evaluation *e, int most_options) {
    e->runs = calloc((size_t)e->pairs->n, sizeof *e->runs);
    e->turns = calloc((size_t)e->most_turns, sizeof *e->turns);
    for (int i = 0; e->runs && i < e->pairs->n; i++) {
        ig_cli_eval_run *run = &e->runs[i];
        run->outcomes = calloc(e->task->n, sizeof *run->outcomes);
        run->now.scores = calloc((size_t)most_options * 2, sizeof *run->now.scores);
        run->now.replies = calloc((size_t)e->most_turns, sizeof *run->now.replies);
        run->turns = calloc((size_t)e->most_turns, sizeof *run->turns);
        if (!run->outcomes || !run->now.scores || !run->now.replies || !run->turns) return false;
    }
    return e->runs && e->turns;
}

static void close_runs(ig_cli_evaluation *e) {
    for (int i = 0; e->runs && i < e->pairs->n; i++) {
        ig_cli_eval_run *run = &e->runs[i];
        for (int k = 0; run->now.replies && k < e->most_turns; k++) ig_eval_reply_close(&run->now.replies[k]);
        free(run->now.replies);
        free(run->outcomes);
        free(run->now.scores);
        free(run->turns);
    }
    free(e->runs);
    free(e->turns);
}

static int open_all(ig_cli_evaluation *e) {
    size_t n_options = 0;
    int most_options = 1;
    e->most_turns = 1;
    for (size_t i = 0; i < e->task->n; i++) {
        const ig_eval_question *q = &e->task->questions[i];
        n_options += (size_t)ig_cli_eval_pairs(e, q);
        if (q->n_options > most_options) most_options = q->n_options;
        if (q->n_turns > e->most_turns) e->most_turns = q->n_turns;
    }
    e->options = calloc(n_options, sizeof *e->options);
    return e->options && open_runs(e, most_options) ? IG_EXIT_OK
                                                    : ig_cli_complain(e->app->o, "%s: out of memory", e->task->name);
}

/* Tokens of all questions, and the context that the longest of those that fit takes. */
static int encode(ig_cli_evaluation *e) {
    const ig_cli_options *o = e->app->o;
    int limit = e->limit = o->ctx ? o->ctx : e->app->info.n_ctx_train, longest = 0, code = open_all(e);
    size_t n_asked = 0;
    for (size_t i = 0; !code && i < e->task->n; i++) {
        const ig_eval_question *q = &e->task->questions[i];
        const ig_eval_pair *options = &e->options[e->n_options];
        code = stopped() ? ig_cli_fail(o, &(ig_error){.status = IG_E_INTERRUPTED}) : encode_question(e, q);
        int room = code ? 0 : ig_cli_eval_room(e, q, options);
        if (code || room > limit) continue;
        if (room > longest) longest = room;
        n_asked++;
        e->total += ig_cli_eval_generates(e) ? (uint64_t)options->n : 1;
    }
    if (code) return code;
    e->n_ctx = o->ctx ? o->ctx : longest;
    if (longest == 0)
        return ig_cli_complain(o, "%s: every question is longer than the context of %d tokens", e->task->name, limit);
    code = count_shared(e);
    if (ig_cli_eval_generates(e)) e->total -= (uint64_t)(n_asked - 1) * (uint64_t)e->n_shared;
    return code;
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
    if (task->form == IG_EVAL_GENERATED) {
        ig_cli_complain(o, "%s: needles take no examples (--shots)", task->name);
        return IG_EXIT_USAGE;
    }
    int code = read_task(&examples, o, path, (size_t)o->shots);
    if (!code && ig_eval_task_examples(out, examples, (size_t)o->shots, &err)) code = ig_cli_fail(o, &err);
    ig_eval_task_close(examples);
    return code;
}

/* ---- tasks ------------------------------------------------------------------- */

/* The reader of run i: that of a run before it that keeps keys and values in the same way, or one with a new session.
 */
static ig_status open_reader(ig_cli_evaluation *e, int i, ig_session_options *options, ig_error *err) {
    for (int k = 0; k < i; k++) {
        e->runs[i].reader = e->runs[k].reader;
        if (ig_eval_same_store(&e->pairs->v[k].cache.memory, &e->pairs->v[i].cache.memory)) return IG_OK;
    }
    ig_eval_reader *reader = e->runs[i].reader = &e->readers[e->n_readers++];
    *reader = (ig_eval_reader){.model = e->app->model, .n_vocab = e->app->info.n_vocab, .stopped = stopped};
    options->cache = e->pairs->v[i].cache;
    return ig_session_open(&reader->s, e->app->model, options, err);
}

static int open_sessions(ig_cli_evaluation *e) {
    ig_error err = {0};
    ig_session_options options = ig_cli_session_options(e->app);
    ig_sampler_options greedy = ig_sampler_defaults();
    options.n_ctx = e->n_ctx;
    options.progress = on_prompt;
    options.progress_user = e;
    e->readers = calloc((size_t)e->pairs->n, sizeof *e->readers);
    if (!e->readers) return ig_cli_complain(e->app->o, "out of memory");
    e->reading = e->readers;
    ig_status status = IG_OK;
    for (int i = 0; !status && i < e->pairs->n; i++) status = open_reader(e, i, &options, &err);
    if (!status) status = ig_sampler_open(&e->sampler, e->app->model, &greedy, &err);
    return status ? ig_cli_fail(e->app->o, &err) : IG_EXIT_OK;
}

/* "tasks/piqa.jsonl": piqa */
static void name_title(char title[64], const char *path) {
    const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path, *dot = strrchr(base, '.');
    snprintf(title, 64, "%.*s", dot && dot > base ? (int)(dot - base) : (int)strlen(base), base);
}

static int evaluate(ig_cli_evaluation *e, const char *shots_file, bool is_first) {
    name_title(e->title, e->task->name);
    if (e->app->o->chat && !ig_cli_eval_generates(e))
        return ig_cli_complain(e->app->o, "%s: --chat is for questions whose answer is generated", e->task->name),
               IG_EXIT_USAGE;
    int code = read_examples(&e->examples, e->app->o, e->task, shots_file);
    if (!code) code = encode(e);
    if (!code) code = open_sessions(e);
    if (!code && is_first && e->app->o->output) /* a command that is refused leaves what is there */
        code = ig_cli_create_file(&e->answers, e->app->o, e->app->path, e->app->o->output);
    if (!code) {
        code = ig_cli_eval_ask(e);
        if (e->n + e->n_skipped) ig_cli_eval_report(e, is_first);
    }
    ig_sampler_close(e->sampler);
    for (int i = 0; i < e->n_readers; i++) ig_session_close(e->readers[i].s);
    free(e->readers);
    for (size_t i = 0; i < e->n_options; i++) free(e->options[i].ids);
    free(e->options);
    close_runs(e);
    free(e->examples);
    return code;
}

static int evaluate_all(ig_cli_app *app, ig_eval_task *const *tasks) {
    const ig_cli_options *o = app->o;
    ig_session_options session = ig_cli_session_options(app);
    ig_cli_pairs pairs;
    FILE *answers = NULL;
    json_t *all = o->json && o->tasks.n > 1 ? json_array() : NULL;
    int code = ig_cli_open_pairs(&pairs, app, &session.cache);
    for (int i = 0; !code && i < o->tasks.n; i++) {
        ig_cli_evaluation e = {.app = app, .task = tasks[i], .pairs = &pairs, .answers = answers, .all = all};
        code = evaluate(&e, o->shots ? o->shots_files.v[i] : NULL, i == 0);
        answers = e.answers;
    }
    if (json_array_size(all)) {
        if (ig_cli_print_json(json_incref(all)) && !code) code = IG_EXIT_FAILED;
    }
    json_decref(all);
    ig_cli_close_pairs(&pairs);
    if (answers && fclose(answers) != 0 && !code) code = ig_cli_complain(o, "%s: %s", o->output, strerror(errno));
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
    return ig_cli_close(&app, code);
}
