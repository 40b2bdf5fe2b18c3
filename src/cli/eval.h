/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to `infinigen eval`: what its files share. verb_eval.c opens the
 * tasks and sessions, eval_ask.c asks the questions, eval_report.c prints,
 * eval_groups.c prints by task and length.
 *
 * Each pair of a policy and its settings is a run. A question counts once it has been
 * answered under all of them, so that all runs are of the same questions.
 */
#ifndef IG_CLI_EVAL_H
#define IG_CLI_EVAL_H

#include "cli/pairs.h"
#include "eval/compare.h"
#include "eval/reply.h"

/* The answer to one question. */
typedef struct ig_cli_eval_answer {
    double *scores; /* of its options: sums, then the same per character */
    int chosen, chosen_norm;
    ig_eval_reply *replies; /* of its turns */
    double score;           /* 0 to 1: of a choice, or the mean of its turns */
    bool right_norm;
    uint64_t n_tokens; /* scored or generated */
    ig_cli_tally tally;
} ig_cli_eval_answer;

/* What is kept of it. */
typedef struct ig_cli_eval_outcome {
    bool asked;
    bool is_scored; /* something is expected */
    double score;
    double same; /* share of its tokens that are those under `full`, up to the first that is not */
    bool is_same;
} ig_cli_eval_outcome;

typedef struct ig_cli_eval_run {
    ig_cli_eval_answer now;
    bool from_start;               /* the policy must see the prompt being computed */
    ig_eval_reader *reader;        /* of runs that keep keys and values in the same way */
    ig_cli_eval_outcome *outcomes; /* [task->n] */
    double score, score_2;         /* sums of scores and of their squares */
    double *turns;                 /* [most_turns]: sums of the scores of first, second, ... questions */
    size_t n_right_norm;
    size_t n_agree; /* answers that are the first run's */
    size_t n_same;  /* answers that are those under `full` */
    double same;    /* sum of outcomes' */
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
    json_t *all;           /* reports of several tasks, to be printed at the end; NULL: there is one, or no --json */
    ig_eval_pair *options; /* of all questions, in order */
    size_t n_options;
    int n_shared;            /* tokens that all options begin with and that are computed once */
    ig_cli_eval_run *runs;   /* [pairs->n] */
    int limit;               /* tokens of the longest question that may be asked */
    int n_ctx;               /* those of the longest that is, or -c */
    ig_eval_reader *readers; /* [n_readers] */
    int n_readers;
    ig_eval_reader *reading; /* that computes at present */
    ig_sampler *sampler;     /* greedy */
    int most_turns;
    size_t *turns; /* [most_turns]: questions asked first, second, ... in turn, of which something is expected */

    size_t n, n_skipped;
    size_t n_scored; /* of n: something is expected */
    double seconds;
    bool interrupted, failed;
    uint64_t done, total; /* tokens of prompts, or questions */
    ig_cli_progress bar;
} ig_cli_evaluation;

static inline bool ig_cli_eval_generates(const ig_cli_evaluation *e) { return e->task->form == IG_EVAL_GENERATED; }

/* Options, or turns: a pair of tokens each. */
static inline int ig_cli_eval_pairs(const ig_cli_evaluation *e, const ig_eval_question *q) {
    return ig_cli_eval_generates(e) ? q->n_turns : q->n_options;
}

/* Tokens of context that a question takes whose options begin at `options`. */
int ig_cli_eval_room(const ig_cli_evaluation *e, const ig_eval_question *q, const ig_eval_pair *options);
/* Asks all questions; the exit code. What was answered before a failure counts. */
int ig_cli_eval_ask(ig_cli_evaluation *e);
/* A row for each run, or a JSON object. */
void ig_cli_eval_report(const ig_cli_evaluation *e, bool with_head);

/* ---- by task and length (eval_groups.c) ------------------------------------- */

typedef struct ig_cli_eval_groups ig_cli_eval_groups;

/* The questions asked that say where they belong. NULL if there are none, or no memory. */
ig_cli_eval_groups *ig_cli_eval_group(const ig_cli_evaluation *e);
void ig_cli_eval_groups_free(ig_cli_eval_groups *g);
/* Adds "tasks" and "summary" of a run. */
void ig_cli_eval_groups_json(json_t *json, const ig_cli_eval_groups *g, int run);
/* Rows of tasks and runs, columns of lengths. */
void ig_cli_eval_groups_print(const ig_cli_eval_groups *g);

#endif
