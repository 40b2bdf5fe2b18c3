/* SPDX-License-Identifier: Apache-2.0
 *
 * `infinigen eval`: asks the questions. Of each question a context is computed
 * once, and all runs answer from there; those that must see it being computed
 * come last and have it computed again. Options with the same context are
 * asked together, so that a run is changed as rarely as can be.
 */
#include "cli/eval.h"

#include <string.h>

#include "eval/fail.h"

/* One question at work. */
typedef struct asking {
    ig_cli_evaluation *e;
    const ig_eval_question *q;
    const ig_eval_pair *options; /* [q->n_options] */
    ig_error *err;
} asking;

int ig_cli_eval_room(const ig_cli_evaluation *e, const ig_eval_question *q, const ig_eval_pair *options) {
    int most = 0;
    for (int i = 0; i < q->n_options; i++)
        if (options[i].n > most) most = options[i].n;
    return most + (ig_cli_eval_is_needle(e) ? ig_eval_needle_room(q->options[0].text) : 0);
}

/* ---- answers under one run ----------------------------------------------------- */

/* Options [begin, end). */
static ig_status score_options(const asking *a, ig_cli_eval_answer *answer, int begin, int end) {
    for (int i = begin; i < end; i++) {
        ig_status status = ig_eval_score_pair(&answer->scores[i], &a->e->reader, &a->options[i], a->err);
        if (status) return status;
        answer->scores[a->q->n_options + i] = answer->scores[i] / ig_eval_characters(a->q->options[i].text);
        answer->n_tokens += (uint64_t)(a->options[i].n - a->options[i].n_context);
    }
    return IG_OK;
}

static ig_status answer_options(const asking *a, int run, int begin, int end) {
    ig_cli_evaluation *e = a->e;
    ig_cli_eval_answer *answer = &e->runs[run].now;
    ig_status status;
    if (ig_cli_eval_is_needle(e)) {
        status = ig_eval_needle(&answer->needle, &e->reader, e->sampler, a->options, a->q->options[0].text, a->err);
        answer->n_tokens = (uint64_t)answer->needle.n_tokens;
    } else {
        status = score_options(a, answer, begin, end);
    }
    if (!status && e->pairs->n > 1) ig_cli_tally_session(&answer->tally, e->reader.s);
    return status;
}

/* ---- all runs ------------------------------------------------------------------ */

static bool same_context(const ig_eval_pair *a, const ig_eval_pair *b) {
    return a->n_context == b->n_context && memcmp(a->ids, b->ids, (size_t)a->n_context * sizeof *a->ids) == 0;
}

/* A run that cannot have what the session holds waits for its own turn. */
static ig_status answer_from_context(const asking *a, int run, int begin, int end) {
    ig_cli_evaluation *e = a->e;
    ig_status status = ig_eval_reader_use(&e->reader, &e->pairs->v[run].cache, a->err);
    if (status == IG_E_UNSUPPORTED) {
        e->runs[run].from_start = true;
        return IG_OK;
    }
    return status ? status : answer_options(a, run, begin, end);
}

/* Nothing is left over for others: what is shared is no batch of its own here. */
static ig_status answer_from_start(const asking *a, int run, int begin, int end) {
    ig_cli_evaluation *e = a->e;
    ig_eval_reader *reader = &e->reader;
    ig_status status = ig_eval_reader_clear(reader, a->err);
    if (!status && e->pairs->n > 1) status = ig_eval_reader_use(reader, &e->pairs->v[run].cache, a->err);
    if (status) return status;
    reader->n_shared = 0;
    status = answer_options(a, run, begin, end);
    reader->n_shared = e->n_shared;
    return status ? status : ig_eval_reader_clear(reader, a->err);
}

/* Options [begin, end), which have one context. */
static ig_status answer_all(const asking *a, int begin, int end) {
    const ig_cli_evaluation *e = a->e;
    ig_status status = IG_OK;
    bool alone = e->pairs->n == 1;
    for (int i = 0; !status && i < e->pairs->n; i++)
        if (!e->runs[i].from_start)
            status = alone ? answer_options(a, i, begin, end) : answer_from_context(a, i, begin, end);
    for (int i = 0; !status && i < e->pairs->n; i++)
        if (e->runs[i].from_start) status = answer_from_start(a, i, begin, end);
    return status;
}

/* Finds the runs that must see a prompt being computed: they do not take over a session with a token. */
static ig_status find_from_start(ig_cli_evaluation *e, ig_error *err) {
    ig_status status = IG_OK;
    for (int i = 0; !status && i < e->pairs->n; i++) {
        status = ig_eval_feed(&e->reader, e->options->ids, 1, 1, err);
        if (!status) status = ig_eval_reader_use(&e->reader, &e->pairs->v[i].cache, err);
        if (status != IG_E_UNSUPPORTED) continue;
        e->runs[i].from_start = true;
        status = IG_OK;
    }
    if (!status) status = ig_eval_reader_clear(&e->reader, err);
    e->reader.n_shared = e->n_shared;
    return status;
}

/* ---- counting ------------------------------------------------------------------ */

/* One JSON object a line. */
static void note_answer(const asking *a, int run) {
    const ig_cli_evaluation *e = a->e;
    const ig_cli_eval_answer *answer = &e->runs[run].now;
    const ig_eval_needle_result *needle = &answer->needle;
    const ig_cli_pair *pair = &e->pairs->v[run];
    json_t *fields, *list,
        *line = json_pack("{s:o, s:i}", "task", ig_cli_json_text(e->title, strlen(e->title)), "line", a->q->line);
    if (e->pairs->n > 1) {
        json_object_set_new(line, "policy", json_string(pair->cache.policy));
        json_object_set_new(line, "budget", ig_cli_pair_budget_json(pair));
    }
    if (ig_cli_eval_is_needle(e)) {
        fields = json_pack("{s:s, s:o, s:b, s:i}", "answer", a->q->options[0].text, "text",
                           ig_cli_json_text(needle->text, strlen(needle->text)), "right", (int)answer->right,
                           "tokens_prompt", a->options->n);
    } else {
        list = json_array();
        for (int i = 0; i < a->q->n_options; i++) json_array_append_new(list, json_real(answer->scores[i]));
        fields = json_pack("{s:i, s:i, s:i, s:o}", "answer", a->q->answer, "chosen", answer->chosen, "chosen_norm",
                           answer->chosen_norm, "log_likelihoods", list);
    }
    json_object_update(line, fields);
    json_dumpf(line, e->answers, JSON_COMPACT | JSON_REAL_PRECISION(9));
    fputc('\n', e->answers);
    json_decref(line);
    json_decref(fields);
}

/* The question has been answered under all runs. */
static void count_answers(const asking *a, size_t question) {
    ig_cli_evaluation *e = a->e;
    bool needle = ig_cli_eval_is_needle(e);
    const ig_cli_eval_answer *first = &e->runs[0].now;
    for (int i = 0; i < e->pairs->n; i++) {
        ig_cli_eval_run *run = &e->runs[i];
        ig_cli_eval_answer *answer = &run->now;
        if (!needle) {
            answer->chosen = ig_eval_argmax(answer->scores, a->q->n_options);
            answer->chosen_norm = ig_eval_argmax(answer->scores + a->q->n_options, a->q->n_options);
            answer->right_norm = answer->chosen_norm == a->q->answer;
        }
        answer->right = needle ? answer->needle.right : answer->chosen == a->q->answer;
        run->outcomes[question] = answer->right ? IG_CLI_RIGHT : IG_CLI_WRONG;
        run->n_right += answer->right;
        run->n_right_norm += answer->right_norm;
        run->n_agree += needle ? strcmp(answer->needle.text, first->needle.text) == 0 : answer->chosen == first->chosen;
        run->n_tokens += answer->n_tokens;
        ig_cli_tally_add(&run->tally, &answer->tally);
        if (e->answers) note_answer(a, i);
    }
    if (e->answers) fflush(e->answers);
    e->n++;
    e->done += needle ? (uint64_t)(a->options->n - (e->n > 1 ? e->n_shared : 0)) : 1;
}

static ig_status ask(const asking *a, size_t question) {
    const ig_cli_evaluation *e = a->e;
    ig_status status = IG_OK;
    for (int i = 0; i < e->pairs->n; i++) {
        ig_cli_eval_answer *answer = &e->runs[i].now;
        *answer = (ig_cli_eval_answer){.scores = answer->scores};
    }
    for (int begin = 0, end; !status && begin < a->q->n_options; begin = end) {
        for (end = begin + 1; end < a->q->n_options && same_context(&a->options[begin], &a->options[end]); end++) {
        }
        status = answer_all(a, begin, end);
    }
    if (!status) count_answers(a, question);
    return status;
}

int ig_cli_eval_ask(ig_cli_evaluation *e) {
    const ig_eval_pair *options = e->options;
    double start = ig_cli_seconds();
    ig_error err = {0};
    e->bar = ig_cli_progress_start(e->title, ig_cli_eval_is_needle(e) ? "tokens" : "questions");
    ig_status status = find_from_start(e, &err);
    for (size_t i = 0; !status && i < e->task->n; i++) {
        asking a = {e, &e->task->questions[i], options, &err};
        options += a.q->n_options;
        if (ig_cli_eval_room(e, a.q, a.options) > e->n_ctx) {
            e->n_skipped++;
            continue;
        }
        status = ask(&a, i);
        if (status) break;
        ig_cli_progress_show(&e->bar, e->done, e->total);
        if (ig_cli_interrupted() && e->done < e->total) status = ig_eval_fail(&err, IG_E_INTERRUPTED, "interrupted");
    }
    ig_cli_progress_end(&e->bar);
    e->seconds = ig_cli_seconds() - start;
    e->interrupted = status == IG_E_INTERRUPTED;
    e->failed = status && !e->interrupted;
    return status ? ig_cli_fail(e->app->o, &err) : IG_EXIT_OK;
}
