/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads and checks task files. What is wrong is said with file, line and key.
 */
#define _GNU_SOURCE
#include "eval/task.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/json.h"

enum { OPTIONS_MAX = 1024, ANSWERS_MAX = 100000, TASK_BYTES_MAX = 64 };

double ig_eval_mean(double sum, size_t n) { return n ? sum / (double)n : 0; }

double ig_eval_mean_error(double sum, double sum_2, size_t n) {
    double mean = ig_eval_mean(sum, n), variance = ig_eval_mean(sum_2, n) - mean * mean;
    return n > 1 && variance > 0 ? sqrt(variance / (double)(n - 1)) : 0;
}

/* ---- one line ------------------------------------------------------------- */

typedef struct line_reader {
    const char *name;
    int line;
    json_t *object;
    ig_error *err;
} line_reader;

static ig_status refuse(const line_reader *r, const char *key, const char *why) {
    return ig_text_fail(r->err, IG_E_FORMAT, "%s:%d: \"%s\" %s", r->name, r->line, key, why);
}

static ig_status get_text(const char **out, const line_reader *r, const char *key) {
    json_t *value = json_object_get(r->object, key);
    if (!value) return refuse(r, key, "is missing");
    if (!json_is_string(value)) return refuse(r, key, "is not a string");
    *out = json_string_value(value);
    return IG_OK;
}

/* An array of two strings or more; `out` borrows it. */
static ig_status get_texts(json_t **out, const line_reader *r, const char *key) {
    json_t *value = json_object_get(r->object, key), *item;
    size_t i;
    if (!value) return refuse(r, key, "is missing");
    if (!json_is_array(value) || json_array_size(value) < 2 || json_array_size(value) > OPTIONS_MAX)
        return refuse(r, key, "is not an array of 2 to 1024 strings");
    json_array_foreach(value, i, item) if (!json_is_string(item)) return refuse(r, key,
                                                                                "is not an array of 2 to 1024 strings");
    *out = value;
    return IG_OK;
}

static ig_status make_options(ig_eval_question *q, const line_reader *r, int n) {
    q->options = calloc((size_t)n, sizeof *q->options);
    if (!q->options) return ig_text_fail(r->err, IG_E_MEMORY, "%s: out of memory for line %d", r->name, r->line);
    q->n_options = n;
    return IG_OK;
}

/* "query" with "choices", or "prefixes" with "suffix". */
static ig_status read_options(ig_eval_question *q, const line_reader *r, bool prefixes) {
    json_t *list = NULL;
    const char *common = NULL, *common_key = prefixes ? "suffix" : "query",
               *list_key = prefixes ? "prefixes" : "choices";
    ig_status status = get_text(&common, r, common_key);
    if (!status) status = get_texts(&list, r, list_key);
    if (!status) status = make_options(q, r, (int)json_array_size(list));
    if (status) return status;
    for (int i = 0; i < q->n_options; i++) {
        const char *own = json_string_value(json_array_get(list, (size_t)i));
        q->options[i] = prefixes ? (ig_eval_option){own, common} : (ig_eval_option){common, own};
        if (!q->options[i].text[0]) return refuse(r, prefixes ? common_key : list_key, "has an empty text");
    }
    json_t *answer = json_object_get(r->object, "answer");
    if (!answer) return refuse(r, "answer", "is missing");
    if (!json_is_integer(answer)) return refuse(r, "answer", "is not a whole number");
    if (json_integer_value(answer) < 0 || json_integer_value(answer) >= q->n_options)
        return refuse(r, "answer", "is not the index of an option");
    q->answer = (int)json_integer_value(answer);
    return IG_OK;
}

/* ---- generated answers ---------------------------------------------------- */

enum { ANSWER_TOKENS = 128, BEGIN_BYTES_MAX = 4096, ROOM_FOR_BLANKS = 8 };

/* A whole number from `least` to `most`; `otherwise` if the key is not there. */
static ig_status get_number(int *out, const line_reader *r, const char *key, int least, int most, int otherwise) {
    json_t *value = json_object_get(r->object, key);
    char why[64];
    *out = otherwise;
    if (!value) return IG_OK;
    if (json_is_integer(value) && json_integer_value(value) >= least && json_integer_value(value) <= most) {
        *out = (int)json_integer_value(value);
        return IG_OK;
    }
    snprintf(why, sizeof why, "is not a whole number from %d to %d", least, most);
    return refuse(r, key, most < INT_MAX ? why : "is not a whole number from 0 up");
}

/* "" if the key is not there. */
static ig_status get_optional_text(const char **out, const line_reader *r, const char *key) {
    *out = "";
    return json_object_get(r->object, key) ? get_text(out, r, key) : IG_OK;
}

static ig_status make_answers(ig_eval_turn *turn, const line_reader *r, size_t n) {
    turn->answers = calloc(n, sizeof *turn->answers);
    if (!turn->answers) return ig_text_fail(r->err, IG_E_MEMORY, "%s: out of memory for line %d", r->name, r->line);
    turn->n_answers = (int)n;
    return IG_OK;
}

/* Digits, with a '-' before them or none. */
static bool is_number(const char *text) {
    text += *text == '-';
    return *text && strspn(text, "0123456789") == strlen(text);
}

/* "answers" and "match" */
static ig_status read_answers(ig_eval_turn *turn, const line_reader *r, json_t *list) {
    static const char why[] = "is not an array of 1 to 100000 strings that are not empty";
    const char *match = "";
    json_t *item;
    size_t i;
    if (!json_is_array(list) || json_array_size(list) < 1 || json_array_size(list) > ANSWERS_MAX)
        return refuse(r, "answers", why);
    ig_status status = make_answers(turn, r, json_array_size(list));
    if (status) return status;
    json_array_foreach(list, i, item) {
        if (!json_is_string(item) || !json_string_length(item)) return refuse(r, "answers", why);
        turn->answers[i] = json_string_value(item);
    }
    status = get_optional_text(&match, r, "match");
    turn->match = IG_EVAL_ALL;
    if (strcmp(match, "any") == 0)
        turn->match = IG_EVAL_ANY;
    else if (strcmp(match, "number") == 0)
        turn->match = IG_EVAL_NUMBER;
    else if (!status && *match && strcmp(match, "all") != 0)
        status = refuse(r, "match", "is none of \"all\", \"any\" and \"number\"");
    if (!status && turn->match == IG_EVAL_NUMBER && (turn->n_answers > 1 || !is_number(turn->answers[0])))
        status = refuse(r, "answers", "is not one whole number, as \"match\" says");
    return status ? status
                  : get_number(&turn->max_tokens, r, "max_tokens", 1, IG_EVAL_ANSWER_TOKENS_MAX, ANSWER_TOKENS);
}

/* "answer", without blanks before it, as those of the output are passed over. A blank there, or a line end, costs
 * tokens of their own. */
static ig_status read_beginning(ig_eval_turn *turn, const line_reader *r) {
    const char *answer = "";
    ig_status status = get_text(&answer, r, "answer");
    answer += strspn(answer, " \t\r\n");
    if (!status && !*answer) status = refuse(r, "answer", "is empty");
    if (!status) status = make_answers(turn, r, 1);
    if (status) return status;
    size_t n = strlen(answer);
    turn->answers[0] = answer;
    turn->match = IG_EVAL_BEGIN;
    return get_number(&turn->max_tokens, r, "max_tokens", 1, IG_EVAL_ANSWER_TOKENS_MAX,
                      (int)(n < BEGIN_BYTES_MAX ? n : BEGIN_BYTES_MAX) + ROOM_FOR_BLANKS);
}

/* What the reader's object says of a question. */
static ig_status read_turn(ig_eval_turn *turn, const line_reader *r, bool needs_question) {
    json_t *answers = json_object_get(r->object, "answers");
    ig_status status = needs_question ? get_text(&turn->question, r, "question") : IG_OK;
    if (!needs_question) turn->question = "";
    if (!status && needs_question && !*turn->question) status = refuse(r, "question", "is empty");
    if (!status) status = get_optional_text(&turn->prefix, r, "answer_prefix");
    if (status) return status;
    if (answers) return read_answers(turn, r, answers);
    if (json_object_get(r->object, "answer") || !json_object_get(r->object, "max_tokens"))
        return read_beginning(turn, r);
    return get_number(&turn->max_tokens, r, "max_tokens", 1, IG_EVAL_ANSWER_TOKENS_MAX, ANSWER_TOKENS);
}

static ig_status read_turns(ig_eval_question *q, const line_reader *r) {
    json_t *list = json_object_get(r->object, "questions");
    size_t n = list ? json_array_size(list) : 1; /* 0 of what is no array */
    if (n < 1 || n > IG_EVAL_TURNS_MAX) return refuse(r, "questions", "is not an array of 1 to 256 objects");
    q->turns = calloc(n, sizeof *q->turns);
    if (!q->turns) return ig_text_fail(r->err, IG_E_MEMORY, "%s: out of memory for line %d", r->name, r->line);
    q->n_turns = (int)n;
    if (!list) return read_turn(q->turns, r, q->is_apart);
    for (size_t i = 0; i < n; i++) {
        line_reader inner = *r;
        inner.object = json_array_get(list, i);
        if (!json_is_object(inner.object)) return refuse(r, "questions", "is not an array of 1 to 256 objects");
        ig_status status = read_turn(&q->turns[i], &inner, true);
        if (status) return status;
    }
    return IG_OK;
}

/* A name that can be printed; NULL if the key is not there. */
static ig_status get_task(const char **out, const line_reader *r) {
    if (!json_object_get(r->object, "task")) return IG_OK;
    ig_status status = get_text(out, r, "task");
    if (status) return status;
    size_t n = strlen(*out);
    bool is_name = n >= 1 && n <= TASK_BYTES_MAX;
    for (size_t i = 0; is_name && i < n; i++) is_name = (*out)[i] > ' ' && (*out)[i] < 0x7f;
    return is_name ? IG_OK : refuse(r, "task", "is not a word of 1 to 64 ASCII characters");
}

static ig_status read_generated(ig_eval_question *q, const line_reader *r) {
    json_t *depth = json_object_get(r->object, "depth");
    q->is_apart = json_object_get(r->object, "context") != NULL;
    const char *key = q->is_apart ? "context" : "prompt";
    ig_status status = get_text(&q->context, r, key);
    if (!status && !q->context[0]) status = refuse(r, key, "is empty");
    if (!status) status = read_turns(q, r);
    if (!status) status = get_number(&q->context_words, r, "context_words", 0, INT_MAX, -1);
    if (!status) status = get_number(&q->length, r, "length", 0, INT_MAX, -1);
    if (!status) status = get_task(&q->task, r);
    if (status) return status;
    if (depth && (!json_is_number(depth) || !(json_number_value(depth) >= 0 && json_number_value(depth) <= 1)))
        return refuse(r, "depth", "is not between 0 and 1");
    q->depth = depth ? json_number_value(depth) : -1;
    return IG_OK;
}

/* ---- any line --------------------------------------------------------------- */

static ig_status find_form(ig_eval_form *form, const line_reader *r) {
    if (json_object_get(r->object, "choices"))
        *form = IG_EVAL_CHOICES;
    else if (json_object_get(r->object, "prefixes"))
        *form = IG_EVAL_PREFIXES;
    else if (json_object_get(r->object, "prompt") || json_object_get(r->object, "context"))
        *form = IG_EVAL_GENERATED;
    else
        return ig_text_fail(r->err, IG_E_FORMAT,
                            "%s:%d: has none of the keys \"choices\", \"prefixes\", \"prompt\" and \"context\"",
                            r->name, r->line);
    return IG_OK;
}

/* Parses one line and keeps it in the task. */
static ig_status read_line(ig_eval_task *task, ig_eval_question *q, line_reader *r, const char *text, size_t n) {
    json_error_t why;
    bool failed;
    r->object = ig_json_of_text(text, n, JSON_REJECT_DUPLICATES, &why, &failed);
    if (failed) return ig_text_fail(r->err, IG_E_MEMORY, "%s: out of memory for line %d", r->name, r->line);
    if (!r->object) return ig_text_fail(r->err, IG_E_FORMAT, "%s:%d: no JSON: %s", r->name, r->line, why.text);
    if (json_array_append_new(task->lines, r->object) != 0)
        return ig_text_fail(r->err, IG_E_MEMORY, "%s: out of memory for line %d", r->name, r->line);
    if (!json_is_object(r->object))
        return ig_text_fail(r->err, IG_E_FORMAT, "%s:%d: is no JSON object", r->name, r->line);
    *q = (ig_eval_question){.line = r->line, .length = -1, .context_words = -1, .depth = -1};
    ig_status status = task->n == 0 ? find_form(&task->form, r) : IG_OK;
    if (status) return status;
    task->n++; /* from here on its options are freed with the task */
    return task->form == IG_EVAL_GENERATED ? read_generated(q, r) : read_options(q, r, task->form == IG_EVAL_PREFIXES);
}

/* ---- the file ------------------------------------------------------------- */

static size_t count_lines(const char *text, size_t n) {
    size_t lines = 1;
    for (size_t i = 0; i < n; i++) lines += text[i] == '\n';
    return lines;
}

static bool is_blank(const char *text, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!strchr(" \t\r", text[i]) || !text[i]) return false;
    return true;
}

static ig_status read_lines(ig_eval_task *task, const char *text, size_t n_text, size_t limit, ig_error *err) {
    line_reader r = {.name = task->name, .err = err};
    for (size_t at = 0; at < n_text && task->n < limit; r.object = NULL) {
        const char *end = memchr(text + at, '\n', n_text - at);
        size_t n = end ? (size_t)(end - text) - at : n_text - at;
        r.line++;
        if (!is_blank(text + at, n)) {
            ig_status status = read_line(task, &task->questions[task->n], &r, text + at, n);
            if (status) return status;
        }
        at += n + 1;
    }
    return task->n ? IG_OK : ig_text_fail(err, IG_E_FORMAT, "%s: has no questions", task->name);
}

ig_status ig_eval_task_open(ig_eval_task **out, const char *name, const char *text, size_t n_text, size_t limit,
                            ig_error *err) {
    static const char mark[] = "\xef\xbb\xbf"; /* of byte order, which some editors put before a text */
    *out = NULL;
    if (n_text >= 3 && memcmp(text, mark, 3) == 0) {
        text += 3;
        n_text -= 3;
    }
    size_t lines = count_lines(text, n_text);
    if (lines > INT_MAX) return ig_text_fail(err, IG_E_LIMIT, "%s: %zu lines are too many", name, lines);
    ig_eval_task *task = calloc(1, sizeof *task);
    if (task) {
        task->name = name;
        task->lines = json_array();
        task->questions = calloc(lines < limit ? lines : limit, sizeof *task->questions);
    }
    ig_status status = task && task->lines && task->questions
                           ? read_lines(task, text, n_text, limit, err)
                           : ig_text_fail(err, IG_E_MEMORY, "%s: out of memory for %zu questions", name, lines);
    if (status)
        ig_eval_task_close(task);
    else
        *out = task;
    return status;
}

void ig_eval_task_close(ig_eval_task *task) {
    if (!task) return;
    for (size_t i = 0; i < task->n; i++) {
        ig_eval_question *q = &task->questions[i];
        for (int k = 0; k < q->n_turns; k++) free(q->turns[k].answers);
        free(q->turns);
        free(q->options);
    }
    free(task->questions);
    json_decref(task->lines);
    free(task);
}

ig_status ig_eval_task_examples(char **out, const ig_eval_task *examples, size_t n, ig_error *err) {
    *out = NULL;
    if (examples->form == IG_EVAL_GENERATED)
        return ig_text_fail(err, IG_E_FORMAT, "%s: needles are no examples", examples->name);
    if (n > examples->n)
        return ig_text_fail(err, IG_E_FORMAT, "%s: has %zu examples, not %zu", examples->name, examples->n, n);
    char *text = NULL;
    size_t n_text = 0;
    FILE *f = open_memstream(&text, &n_text);
    if (f) {
        for (size_t i = 0; i < n; i++) {
            const ig_eval_option *right = &examples->questions[i].options[examples->questions[i].answer];
            fprintf(f, "%s%s\n\n", right->context, right->text);
        }
        if (fclose(f) != 0) {
            free(text);
            text = NULL;
        }
    }
    if (!text) return ig_text_fail(err, IG_E_MEMORY, "%s: out of memory for the examples", examples->name);
    *out = text;
    return IG_OK;
}
