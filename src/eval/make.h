/* SPDX-License-Identifier: Apache-2.0
 *
 * Long-context tasks that need no data: each sample is a context that is made,
 * one or more questions about it, and the strings that answers must hold. The
 * rules are those of RULER (Hsieh et al. 2024, arXiv 2404.06654), Lost in the
 * Middle, InfiniteBench and SCBench; the words are the project's own.
 *
 * A sample of length L takes at most L units: its context, its questions, what
 * the answers begin with, and the tokens that answers may take. The filler is
 * the most that fits. A unit is what the caller counts.
 */
#ifndef IG_EVAL_MAKE_H
#define IG_EVAL_MAKE_H

#include <jansson.h>

#include "eval/make_words.h"

/* Units of a text; negative: *err says why it cannot be told. */
typedef int64_t (*ig_eval_count_fn)(void *user, const char *text, size_t n, ig_error *err);

typedef struct ig_eval_make_options {
    int length;          /* L */
    int i_sample, n_all; /* number of the sample, of how many: tasks that sweep a position spread it over them */
    int seed;
    const ig_eval_filler *filler;
    ig_eval_count_fn count;
    void *user;
    int token_units; /* units that a token is taken to have: 1 where units are tokens */
} ig_eval_make_options;

/* Name of task number i; NULL past the end. */
const char *ig_eval_make_name(size_t i);

/* A sample as a line of a task file has it, without saying what is a unit; json_decref() it. The same options give the
 * same sample. IG_E_LIMIT if the task does not fit into the length. */
ig_status ig_eval_make(json_t **out, const char *task, const ig_eval_make_options *options, ig_error *err);

#endif
