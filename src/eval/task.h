/* SPDX-License-Identifier: Apache-2.0
 *
 * Task files: questions with a known answer, one JSON object a line. Three
 * forms, told apart by the keys of the first line:
 *
 *   {"query": "...", "choices": [" ...", " ..."], "answer": 0}        multiple choice
 *   {"prefixes": ["...", "..."], "suffix": " ...", "answer": 1}       the same, WinoGrande's form
 *   {"prompt": "...", "answer": "12345"}                              a needle in a text
 *
 * Needles may say where they are: "context_words" (integer) and "depth"
 * (0 to 1). Other keys are ignored, and so are empty lines.
 */
#ifndef IG_EVAL_TASK_H
#define IG_EVAL_TASK_H

#include <jansson.h>

#include "eval/fail.h"

typedef enum ig_eval_form { IG_EVAL_CHOICES, IG_EVAL_PREFIXES, IG_EVAL_NEEDLE } ig_eval_form;

/* One choice: `text` is scored as what follows `context`. */
typedef struct ig_eval_option {
    const char *context, *text;
} ig_eval_option;

typedef struct ig_eval_question {
    int line;                /* in the file, from 1 */
    ig_eval_option *options; /* [n_options]; a needle has one: its prompt, and the answer that is right */
    int n_options;
    int answer;        /* index of the right option */
    int context_words; /* needle; -1: not stated */
    double depth;      /* needle; -1: not stated */
} ig_eval_question;

typedef struct ig_eval_task {
    const char *name; /* of the file, as given */
    ig_eval_form form;
    size_t n;
    ig_eval_question *questions; /* [n] */
    json_t *lines;               /* owns the texts */
} ig_eval_task;

/* Reads at most `limit` questions from the text of a file. `name` is borrowed. */
ig_status ig_eval_task_open(ig_eval_task **out, const char *name, const char *text, size_t n_text, size_t limit,
                            ig_error *err);
void ig_eval_task_close(ig_eval_task *task);

/* What stands before a question that is asked after examples: the first n questions of `examples`, each with its right
 * option and a blank line. free() it. */
ig_status ig_eval_task_examples(char **out, const ig_eval_task *examples, size_t n, ig_error *err);

/* Right answers among n, as a share, and its standard error. */
double ig_eval_share(size_t right, size_t n);
double ig_eval_share_error(size_t right, size_t n);

#endif
