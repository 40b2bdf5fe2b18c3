/* SPDX-License-Identifier: Apache-2.0
 *
 * Speed of prompt and generation at a given depth of context and number of
 * sequences, on the public API alone. Tokens are pseudo-random; sampling and
 * tokenising are left out. What stands in the context before a test is
 * computed once and kept for all tests at that depth. A generation at depth 0
 * starts after one token, which a session holds at least.
 */
#ifndef IG_EVAL_SPEED_H
#define IG_EVAL_SPEED_H

#include "infinigen.h"

typedef struct ig_eval_speed ig_eval_speed;

typedef struct ig_eval_speed_options {
    ig_session_options session; /* n_ctx is set here from depth and room */
    int depth;                  /* tokens before each test */
    int room;                   /* most tokens a test adds */
    int max_batch;              /* most sequences of a generation test */
    bool (*stopped)(void);      /* asked between steps; true ends with IG_E_INTERRUPTED */
} ig_eval_speed_options;

/* Sessions are opened and filled when a test first needs them. */
ig_status ig_eval_speed_open(ig_eval_speed **out, ig_model *model, const ig_eval_speed_options *options, ig_error *err);
void ig_eval_speed_close(ig_eval_speed *speed);

/* Seconds to compute a prompt of n tokens. */
ig_status ig_eval_speed_prompt(double *seconds, ig_eval_speed *speed, int n, ig_error *err);
/* Seconds of n steps of `batch` sequences; *selected_share is that of these steps. */
ig_status ig_eval_speed_generate(double *seconds, double *selected_share, ig_eval_speed *speed, int n, int batch,
                                 ig_error *err);

typedef struct ig_eval_summary {
    double mean, median, deviation; /* sample standard deviation; 0 for one sample */
} ig_eval_summary;
/* Sorts a copy; n is at most 1000. */
ig_eval_summary ig_eval_summarize(const double *samples, int n);

#endif
