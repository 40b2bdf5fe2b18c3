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

enum { OPTIONS_MAX = 1024 };

double ig_eval_share(size_t right, size_t n) { return n ? (double)right / (double)n : 0; }

double ig_eval_share_error(size_t right, size_t n) {
    double p = ig_eval_share(right, n);
    return n > 1 ? sqrt(p * (1 - p) / (double)(n - 1)) : 0;
}

/* ---- one line ------------------------------------------------------------- */

typedef struct line_reader {
    const char *name;
    int line;
    json_t *object;
    ig_error *err;
} line_reader;

static ig_status refuse(const line_reader *r, const char *key, const char *why) {
    return ig_eval_fail(r->err, IG_E_FORMAT, "%s:%d: \"%s\" %s", r->name, r->line, key, why);
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
    if (!q->options) return ig_eval_fail(r->err, IG_E_MEMORY, "%s: out of memory for line %d", r->name, r->line);
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

static ig_status read_needle(ig_eval_question *q, const line_reader *r) {
    ig_status status = make_options(q, r, 1);
    if (!status) status = get_text(&q->options[0].context, r, "prompt");
    if (!status) status = get_text(&q->options[0].text, r, "answer");
    if (status) return status;
    if (!q->options[0].context[0]) return refuse(r, "prompt", "is empty");
    if (!q->options[0].text[0]) return refuse(r, "answer", "is empty");
    json_t *words = json_object_get(r->object, "context_words"), *depth = json_object_get(r->object, "depth");
    if (words && (!json_is_integer(words) || json_integer_value(words) < 0 || json_integer_value(words) > INT_MAX))
        return refuse(r, "context_words", "is not a whole number from 0 up");
    if (depth && (!json_is_number(depth) || !(json_number_value(depth) >= 0 && json_number_value(depth) <= 1)))
        return refuse(r, "depth", "is not between 0 and 1");
    q->context_words = words ? (int)json_integer_value(words) : -1;
    q->depth = depth ? json_number_value(depth) : -1;
    return IG_OK;
}

static ig_status find_form(ig_eval_form *form, const line_reader *r) {
    if (json_object_get(r->object, "choices"))
        *form = IG_EVAL_CHOICES;
    else if (json_object_get(r->object, "prefixes"))
        *form = IG_EVAL_PREFIXES;
    else if (json_object_get(r->object, "prompt"))
        *form = IG_EVAL_NEEDLE;
    else
        return ig_eval_fail(r->err, IG_E_FORMAT, "%s:%d: has none of the keys \"choices\", \"prefixes\" and \"prompt\"",
                            r->name, r->line);
    return IG_OK;
}

/* Parses one line and keeps it in the task. */
static ig_status read_line(ig_eval_task *task, ig_eval_question *q, line_reader *r, const char *text, size_t n) {
    json_error_t why;
    r->object = json_loadb(text, n, 0, &why);
    if (!r->object) return ig_eval_fail(r->err, IG_E_FORMAT, "%s:%d: no JSON: %s", r->name, r->line, why.text);
    if (json_array_append_new(task->lines, r->object) != 0)
        return ig_eval_fail(r->err, IG_E_MEMORY, "%s: out of memory for line %d", r->name, r->line);
    if (!json_is_object(r->object))
        return ig_eval_fail(r->err, IG_E_FORMAT, "%s:%d: is no JSON object", r->name, r->line);
    *q = (ig_eval_question){.line = r->line, .context_words = -1, .depth = -1};
    ig_status status = task->n == 0 ? find_form(&task->form, r) : IG_OK;
    if (status) return status;
    task->n++; /* from here on its options are freed with the task */
    return task->form == IG_EVAL_NEEDLE ? read_needle(q, r) : read_options(q, r, task->form == IG_EVAL_PREFIXES);
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
    return task->n ? IG_OK : ig_eval_fail(err, IG_E_FORMAT, "%s: has no questions", task->name);
}

ig_status ig_eval_task_open(ig_eval_task **out, const char *name, const char *text, size_t n_text, size_t limit,
                            ig_error *err) {
    *out = NULL;
    size_t lines = count_lines(text, n_text);
    if (lines > INT_MAX) return ig_eval_fail(err, IG_E_LIMIT, "%s: %zu lines are too many", name, lines);
    ig_eval_task *task = calloc(1, sizeof *task);
    if (task) {
        task->name = name;
        task->lines = json_array();
        task->questions = calloc(lines < limit ? lines : limit, sizeof *task->questions);
    }
    ig_status status = task && task->lines && task->questions
                           ? read_lines(task, text, n_text, limit, err)
                           : ig_eval_fail(err, IG_E_MEMORY, "%s: out of memory for %zu questions", name, lines);
    if (status)
        ig_eval_task_close(task);
    else
        *out = task;
    return status;
}

void ig_eval_task_close(ig_eval_task *task) {
    if (!task) return;
    for (size_t i = 0; i < task->n; i++) free(task->questions[i].options);
    free(task->questions);
    json_decref(task->lines);
    free(task);
}

ig_status ig_eval_task_examples(char **out, const ig_eval_task *examples, size_t n, ig_error *err) {
    *out = NULL;
    if (examples->form == IG_EVAL_NEEDLE)
        return ig_eval_fail(err, IG_E_FORMAT, "%s: needles are no examples", examples->name);
    if (n > examples->n)
        return ig_eval_fail(err, IG_E_FORMAT, "%s: has %zu examples, not %zu", examples->name, examples->n, n);
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
    if (!text) return ig_eval_fail(err, IG_E_MEMORY, "%s: out of memory for the examples", examples->name);
    *out = text;
    return IG_OK;
}
