/* SPDX-License-Identifier: Apache-2.0
 *
 * Task files: questions with a known answer, one JSON object a line. Four
 * forms, told apart by the keys of the first line:
 *
 *   {"query": "...", "choices": [" ...", " ..."], "answer": 0}        multiple choice
 *   {"prefixes": ["...", "..."], "suffix": " ...", "answer": 1}       the same, WinoGrande's form
 *   {"prompt": "...", "answer": "12345"}                              a needle in a text
 *   {"context": "...", "question": "...", "answers": ["...", "..."]}  what answers must hold
 *
 * A file may mix lines of the last two, whose answers are generated. All of
 * them may say "answers" with "match" ("all" of them, as is the default, "any",
 * or "number": the first number of the output), or "answer", which the output
 * must begin with; "max_tokens";
 * "answer_prefix". A context may have "questions" instead, objects with these
 * keys that are asked in turn. A line that names "max_tokens" alone expects
 * nothing: its answers are only compared with each other.
 *
 * Lines may say where they belong: "task" (text) and "length" (integer), or
 * "context_words" (integer) and "depth" (0 to 1). Other keys are ignored, and
 * so are empty lines.
 */
#ifndef IG_EVAL_TASK_H
#define IG_EVAL_TASK_H

#include <jansson.h>

#include "text/text.h"

typedef enum ig_eval_form { IG_EVAL_CHOICES, IG_EVAL_PREFIXES, IG_EVAL_GENERATED } ig_eval_form;

/* One choice: `text` is scored as what follows `context`. */
typedef struct ig_eval_option {
    const char *context, *text;
} ig_eval_option;

/* What an answer must do. */
typedef enum ig_eval_match {
    IG_EVAL_BEGIN,  /* begin with the one string, blanks aside */
    IG_EVAL_ALL,    /* hold the strings, case ignored; the score is the share that it holds */
    IG_EVAL_ANY,    /* hold one of them */
    IG_EVAL_NUMBER, /* the first number that it holds is the one string */
} ig_eval_match;

enum { IG_EVAL_TURNS_MAX = 256, IG_EVAL_ANSWER_TOKENS_MAX = 1 << 20 };

/* A question whose answer is generated. */
typedef struct ig_eval_turn {
    const char *question; /* stands after the context, or after the answer before; "": the context says it all */
    const char *prefix;   /* what the answer begins with, before what is generated; may be "" */
    const char **answers; /* [n_answers] */
    int n_answers;        /* 0: nothing is expected */
    ig_eval_match match;
    int max_tokens;
} ig_eval_turn;

typedef struct ig_eval_question {
    int line; /* in the file, from 1 */
    /* choices, prefixes */
    ig_eval_option *options; /* [n_options] */
    int n_options;
    int answer; /* index of the right option */
    /* generated */
    const char *context;
    bool is_apart; /* the context and what is asked are apart */
    ig_eval_turn *turns;
    int n_turns;
    /* where it belongs */
    const char *task;  /* NULL: not stated */
    int length;        /* -1: not stated */
    int context_words; /* -1: not stated */
    double depth;      /* -1: not stated */
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

/* Mean of n scores by their sum, and its standard error by the sum of their squares too; 0 of none. */
double ig_eval_mean(double sum, size_t n);
double ig_eval_mean_error(double sum, double sum_2, size_t n);

#endif
