/* SPDX-License-Identifier: Apache-2.0
 *
 * `infinigen eval`: asks the questions. Of each question a context is computed
 * once, and all runs answer from there; those that must see it being computed
 * come last and have it computed again. Options with the same context are
 * asked together, so that a run is changed as rarely as can be.
 */
#include "cli/eval.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "text/clock.h"

/* One question at work. */
typedef struct asking {
    ig_cli_evaluation *e;
    const ig_eval_question *q;
    const ig_eval_pair *options; /* [q->n_options], or [q->n_turns] */
    ig_error *err;
} asking;

int ig_cli_eval_room(const ig_cli_evaluation *e, const ig_eval_question *q, const ig_eval_pair *options) {
    int64_t most = 0, all = 0;
    for (int i = 0; i < q->n_options; i++)
        if (options[i].n > most) most = options[i].n;
    for (int i = 0; i < q->n_turns; i++) all += (int64_t)options[i].n + q->turns[i].max_tokens;
    if (ig_cli_eval_generates(e)) most = all;
    return most < INT_MAX ? (int)most : INT_MAX;
}

/* ---- answers under one run ----------------------------------------------------- */

/* Options [begin, end). */
static ig_status score_options(const asking *a, ig_cli_eval_answer *answer, int begin, int end) {
    for (int i = begin; i < end; i++) {
        ig_status status = ig_eval_score_pair(&answer->scores[i], a->e->reading, &a->options[i], a->err);
        if (status) return status;
        answer->scores[a->q->n_options + i] = answer->scores[i] / ig_eval_characters(a->q->options[i].text);
        answer->n_tokens += (uint64_t)(a->options[i].n - a->options[i].n_context);
    }
    return IG_OK;
}

/* Of how many turns something is expected. */
static int count_expected(const ig_eval_question *q) {
    int n = 0;
    for (int i = 0; i < q->n_turns; i++) n += q->turns[i].n_answers > 0;
    return n;
}

/* The context, then question after question, each with its answer. */
static ig_status answer_turns(const asking *a, ig_cli_eval_answer *answer) {
    ig_cli_evaluation *e = a->e;
    ig_status status = ig_eval_feed_context(e->reading, a->options, a->err);
    for (int i = 0; !status && i < a->q->n_turns; i++) {
        ig_eval_reply_options options = {e->sampler, e->app->o->ignore_end, i + 1 < a->q->n_turns};
        if (i) status = ig_eval_read_on(e->reading, a->options[i].ids, a->options[i].n, a->err);
        if (!status) status = ig_eval_reply_make(&answer->replies[i], e->reading, &a->q->turns[i], &options, a->err);
        answer->n_tokens += (uint64_t)answer->replies[i].n;
        answer->score += answer->replies[i].score;
    }
    if (count_expected(a->q)) answer->score /= count_expected(a->q);
    return status;
}

static ig_status answer_options(const asking *a, int run, int begin, int end) {
    ig_cli_evaluation *e = a->e;
    ig_cli_eval_answer *answer = &e->runs[run].now;
    e->reading = e->runs[run].reader;
    ig_status status = ig_cli_eval_generates(e) ? answer_turns(a, answer) : score_options(a, answer, begin, end);
    if (!status && e->pairs->n > 1) ig_cli_tally_session(&answer->tally, e->reading->s);
    return status;
}

/* ---- all runs ------------------------------------------------------------------ */

static bool same_context(const ig_eval_pair *a, const ig_eval_pair *b) {
    return a->n_context == b->n_context && memcmp(a->ids, b->ids, (size_t)a->n_context * sizeof *a->ids) == 0;
}

/* A run that cannot have what the session holds waits for its own turn. */
static ig_status answer_from_context(const asking *a, int run, int begin, int end) {
    ig_cli_evaluation *e = a->e;
    ig_status status = ig_eval_reader_use(e->runs[run].reader, &e->pairs->v[run].cache, a->err);
    if (status == IG_E_UNSUPPORTED) {
        e->runs[run].from_start = true;
        return IG_OK;
    }
    return status ? status : answer_options(a, run, begin, end);
}

/* Nothing is left over for others: what is shared is no batch of its own here. */
static ig_status answer_from_start(const asking *a, int run, int begin, int end) {
    ig_cli_evaluation *e = a->e;
    ig_eval_reader *reader = e->runs[run].reader;
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
        e->reading = e->runs[i].reader;
        status = ig_eval_feed(e->reading, e->options->ids, 1, 1, err);
        if (!status) status = ig_eval_reader_use(e->reading, &e->pairs->v[i].cache, err);
        if (status != IG_E_UNSUPPORTED) continue;
        e->runs[i].from_start = true;
        status = IG_OK;
    }
    for (int i = 0; !status && i < e->n_readers; i++) {
        status = ig_eval_reader_clear(&e->readers[i], err);
        e->readers[i].n_shared = e->n_shared;
    }
    return status;
}

/* ---- counting ------------------------------------------------------------------ */

static json_t *json_of_reply(const ig_eval_reply *reply) { return ig_text_stringn(reply->text, reply->n_text); }

/* What was generated; of several turns also each one's. */
static json_t *json_of_replies(const asking *a, const ig_cli_eval_answer *answer) {
    const ig_eval_turn *first = a->q->turns;
    json_t *fields = json_pack("{s:o, s:b, s:f, s:i, s:I}", "text", json_of_reply(answer->replies), "right",
                               answer->score == 1, "score", answer->score, "tokens_prompt", a->options->n,
                               "tokens_generated", (json_int_t)answer->n_tokens);
    if (first->match == IG_EVAL_BEGIN && first->n_answers)
        json_object_set_new(fields, "answer", json_string(first->answers[0]));
    if (a->q->n_turns == 1) return fields;
    json_t *list = json_array();
    for (int i = 0; i < a->q->n_turns; i++)
        json_array_append_new(list, json_pack("{s:o, s:f}", "text", json_of_reply(&answer->replies[i]), "score",
                                              answer->replies[i].score));
    json_object_set_new(fields, "turns", list);
    return fields;
}

static json_t *json_of_choice(const asking *a, const ig_cli_eval_answer *answer) {
    json_t *list = json_array();
    for (int i = 0; i < a->q->n_options; i++) json_array_append_new(list, json_real(answer->scores[i]));
    return json_pack("{s:i, s:i, s:i, s:o}", "answer", a->q->answer, "chosen", answer->chosen, "chosen_norm",
                     answer->chosen_norm, "log_likelihoods", list);
}

/* One JSON object a line. */
static void note_answer(const asking *a, int run) {
    const ig_cli_evaluation *e = a->e;
    const ig_cli_eval_answer *answer = &e->runs[run].now;
    const ig_cli_pair *pair = &e->pairs->v[run];
    json_t *line = json_pack("{s:o, s:i}", "task", ig_text_string(e->title), "line", a->q->line);
    ig_cli_pair_fields(line, pair, e->n_ctx);
    json_t *fields = ig_cli_eval_generates(e) ? json_of_replies(a, answer) : json_of_choice(a, answer);
    json_object_update(line, fields);
    json_dumpf(line, e->answers, JSON_COMPACT | JSON_REAL_PRECISION(12));
    fputc('\n', e->answers);
    json_decref(line);
    json_decref(fields);
}

/* Whether two runs gave the same answer, and how much of what they generated is the same. */
static bool compare(double *same, const asking *a, const ig_cli_eval_answer *x, const ig_cli_eval_answer *y) {
    bool equal = true;
    double sum = 0;
    *same = x->chosen == y->chosen;
    if (!ig_cli_eval_generates(a->e)) return x->chosen == y->chosen;
    for (int i = 0; i < a->q->n_turns; i++) {
        equal = equal && strcmp(x->replies[i].text, y->replies[i].text) == 0;
        sum += ig_eval_reply_same(&x->replies[i], &y->replies[i]);
    }
    *same = sum / a->q->n_turns;
    return equal;
}

static void choose(const asking *a, ig_cli_eval_answer *answer) {
    answer->chosen = ig_eval_argmax(answer->scores, a->q->n_options);
    answer->chosen_norm = ig_eval_argmax(answer->scores + a->q->n_options, a->q->n_options);
    answer->right_norm = answer->chosen_norm == a->q->answer;
    answer->score = answer->chosen == a->q->answer;
}

/* Questions that are asked one after the other; a single one is none of them. */
static int count_in_turn(const ig_eval_question *q) { return q->n_turns > 1 ? q->n_turns : 0; }

static void count_answer(const asking *a, int i, ig_cli_eval_outcome *outcome) {
    ig_cli_evaluation *e = a->e;
    ig_cli_eval_run *run = &e->runs[i];
    const ig_cli_eval_answer *answer = &run->now;
    double ignored;
    *outcome = (ig_cli_eval_outcome){
        .asked = true, .is_scored = !ig_cli_eval_generates(e) || count_expected(a->q), .score = answer->score};
    run->score += answer->score;
    run->score_2 += answer->score * answer->score;
    run->n_right_norm += answer->right_norm;
    run->n_agree += compare(&ignored, a, answer, &e->runs[0].now);
    if (e->pairs->full >= 0) {
        outcome->is_same = compare(&outcome->same, a, answer, &e->runs[e->pairs->full].now);
        run->n_same += outcome->is_same;
        run->same += outcome->same;
    }
    for (int k = 0; k < count_in_turn(a->q); k++) run->turns[k] += answer->replies[k].score;
    run->n_tokens += answer->n_tokens;
    ig_cli_tally_add(&run->tally, &answer->tally);
}

/* The question has been answered under all runs. */
static void count_answers(const asking *a, size_t question) {
    ig_cli_evaluation *e = a->e;
    bool generates = ig_cli_eval_generates(e);
    for (int i = 0; !generates && i < e->pairs->n; i++) choose(a, &e->runs[i].now);
    for (int i = 0; i < e->pairs->n; i++) {
        count_answer(a, i, &e->runs[i].outcomes[question]);
        if (e->answers) note_answer(a, i);
    }
    for (int k = 0; k < count_in_turn(a->q); k++) e->turns[k] += a->q->turns[k].n_answers > 0;
    e->n++;
    e->n_scored += e->runs[0].outcomes[question].is_scored;
    e->done += generates ? (uint64_t)(a->options->n - (e->n > 1 ? e->n_shared : 0)) : 1;
}

static ig_status ask(const asking *a, size_t question) {
    const ig_cli_evaluation *e = a->e;
    ig_status status = IG_OK;
    for (int i = 0; i < e->pairs->n; i++) {
        ig_cli_eval_answer *answer = &e->runs[i].now;
        *answer = (ig_cli_eval_answer){.scores = answer->scores, .replies = answer->replies};
    }
    if (ig_cli_eval_generates(e)) status = answer_all(a, 0, 1);
    for (int begin = 0, end; !status && begin < a->q->n_options; begin = end) {
        for (end = begin + 1; end < a->q->n_options && same_context(&a->options[begin], &a->options[end]); end++) {
        }
        status = answer_all(a, begin, end);
    }
    if (status) return status;
    count_answers(a, question);
    if (e->answers && fflush(e->answers) != 0)
        return ig_text_fail(a->err, IG_E_IO, "%s: %s", e->app->o->output, strerror(errno));
    return IG_OK;
}

int ig_cli_eval_ask(ig_cli_evaluation *e) {
    const ig_eval_pair *options = e->options;
    double start = ig_text_seconds();
    ig_error err = {0};
    e->bar = ig_cli_progress_start(e->title, ig_cli_eval_generates(e) ? "tokens" : "questions");
    ig_status status = find_from_start(e, &err);
    for (size_t i = 0; !status && i < e->task->n; i++) {
        asking a = {e, &e->task->questions[i], options, &err};
        options += ig_cli_eval_pairs(e, a.q);
        if (ig_cli_eval_room(e, a.q, a.options) > e->n_ctx) {
            e->n_skipped++;
            continue;
        }
        status = ask(&a, i);
        if (status) break;
        ig_cli_progress_show(&e->bar, e->done, e->total);
        if (ig_cli_interrupted() && e->done < e->total) status = ig_text_fail(&err, IG_E_INTERRUPTED, "interrupted");
    }
    ig_cli_progress_end(&e->bar);
    e->seconds = ig_text_seconds() - start;
    e->interrupted = status == IG_E_INTERRUPTED;
    e->failed = status && !e->interrupted;
    return status ? ig_cli_fail(e->app->o, &err) : IG_EXIT_OK;
}
