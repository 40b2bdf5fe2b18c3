/* SPDX-License-Identifier: Apache-2.0
 *
 * Load on a server of OpenAI's API: a number of clients, each of which asks for a completion as soon as its last one
 * has come. Prompts are random tokens, or random words where a server takes texts only; answers have a fixed length.
 * Answers are streamed, and the times are those at which their texts arrive.
 */
#ifndef IG_EVAL_LOAD_H
#define IG_EVAL_LOAD_H

#include "infinigen.h"

typedef struct ig_eval_load ig_eval_load;

typedef struct ig_eval_load_options {
    const char *url;   /* "http://host:port", with or without "/v1" */
    const char *key;   /* NULL: none */
    const char *model; /* its name there; NULL: the first one that the server lists */
    uint64_t seed;     /* of the prompts */
    /* Requests that have ended; true ends a test with what there is. While a server is opened it is asked the same, and
     * of nothing, 0 of 0, before there is a request: true is then IG_E_INTERRUPTED. NULL: none. */
    ig_progress_fn progress;
    void *user;
} ig_eval_load_options;

typedef struct ig_eval_load_test {
    int n_clients;
    int n_requests; /* of each client */
    int n_prompt;   /* tokens */
    int n_shared;   /* the first ones, which all prompts of the test have in common */
    int n_gen;      /* tokens */
} ig_eval_load_test;

typedef struct ig_eval_quantiles {
    double median, p90, p99; /* seconds; 0 of no samples */
} ig_eval_quantiles;

typedef struct ig_eval_load_result {
    int n_done, n_failed;                                 /* requests */
    double seconds;                                       /* from the first request to the last end */
    uint64_t prompt_tokens, cached_tokens, answer_tokens; /* of those that are done, as the server counts */
    ig_eval_quantiles first_token, between_tokens, whole;
    bool is_interrupted;
    char error[320]; /* of the first one that failed */
} ig_eval_load_result;

/* Asks the server for its model, and what prompts it takes, by one short request. */
ig_status ig_eval_load_open(ig_eval_load **out, const ig_eval_load_options *options, ig_error *err);
void ig_eval_load_close(ig_eval_load *load);
const char *ig_eval_load_model(const ig_eval_load *load);
bool ig_eval_load_takes_tokens(const ig_eval_load *load);

/* Requests that fail are counted; an error is one of this side, such as no memory. */
ig_status ig_eval_load_run(ig_eval_load_result *out, ig_eval_load *load, const ig_eval_load_test *test, ig_error *err);

#endif
