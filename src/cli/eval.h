/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to `infinigen eval`: what its files share. verb_eval.c opens the
 * tasks and sessions, eval_ask.c asks the questions, eval_report.c prints.
 *
 * Each pair of policy and budget is a run. A question counts once it has been
 * answered under all of them, so that all runs are of the same questions.
 */
#ifndef IG_CLI_EVAL_H
#define IG_CLI_EVAL_H

#include "cli/pairs.h"
#include "eval/choice.h"
#include "eval/needle.h"

typedef enum ig_cli_outcome { IG_CLI_NOT_ASKED, IG_CLI_WRONG, IG_CLI_RIGHT } ig_cli_outcome;

/* The answer to one question. */
typedef struct ig_cli_eval_answer {
    double *scores; /* of its options: sums, then the same per character */
    int chosen, chosen_norm;
    ig_eval_needle_result needle;
    bool right, right_norm;
    uint64_t n_tokens; /* scored or generated */
    ig_cli_tally tally;
} ig_cli_eval_answer;

typedef struct ig_cli_eval_run {
    ig_cli_eval_answer now;
    bool from_start;         /* the policy must see the prompt being computed */
    unsigned char *outcomes; /* [task->n], an ig_cli_outcome each */
    size_t n_right, n_right_norm;
    size_t n_agree; /* answers that are the first run's */
    uint64_t n_tokens;
    ig_cli_tally tally; /* several runs only */
} ig_cli_eval_run;

/* One task file being worked on. */
typedef struct ig_cli_evaluation {
    ig_cli_app *app;
    const ig_eval_task *task;
    const ig_cli_pairs *pairs;
    char title[64];        /* the file's name without folder and ending */
    char *examples;        /* text before each question */
    FILE *answers;         /* -o; NULL: none */
    ig_eval_pair *options; /* of all questions, in order */
    size_t n_options;
    int n_shared;          /* tokens that all options begin with and that are computed once */
    ig_cli_eval_run *runs; /* [pairs->n] */
    int n_ctx;
    ig_eval_reader reader;
    ig_sampler *sampler; /* greedy, for needles */

    size_t n, n_skipped;
    double seconds;
    bool interrupted, failed;
    uint64_t done, total; /* tokens of prompts, or questions */
    ig_cli_progress bar;
} ig_cli_evaluation;

static inline bool ig_cli_eval_is_needle(const ig_cli_evaluation *e) { return e->task->form == IG_EVAL_NEEDLE; }

/* Tokens of context that a question takes whose options begin at `options`. */
int ig_cli_eval_room(const ig_cli_evaluation *e, const ig_eval_question *q, const ig_eval_pair *options);
/* Asks all questions; the exit code. What was answered before a failure counts. */
int ig_cli_eval_ask(ig_cli_evaluation *e);
/* A row for each run, or a JSON object. */
void ig_cli_eval_report(const ig_cli_evaluation *e, bool with_head);

#endif
