/* SPDX-License-Identifier: Apache-2.0
 *
 * Needles: does the model find a fact in a long text? The answer is generated
 * greedily and right if the text, without the blanks around it, begins with
 * what is expected.
 *
 * The prompt is computed dense up to its last IG_EVAL_NEEDLE_TAIL tokens. These
 * and the answer's go through the session's KV policy one by one: after a dense
 * prompt the answer's first token would not test the policy, and the attention
 * that finds the needle often starts at the words that ask for it.
 */
#ifndef IG_EVAL_NEEDLE_H
#define IG_EVAL_NEEDLE_H

#include "eval/choice.h"

enum { IG_EVAL_NEEDLE_TAIL = 8 };

typedef struct ig_eval_needle_result {
    bool right;
    int n_tokens;   /* generated */
    char text[128]; /* the answer, without leading blanks, cut to this length */
} ig_eval_needle_result;

/* Most tokens that an answer may take. */
int ig_eval_needle_room(const char *expected);

/* `sampler` is a greedy one. The session needs room for prompt->n + ig_eval_needle_room() tokens. */
ig_status ig_eval_needle(ig_eval_needle_result *out, ig_eval_reader *r, ig_sampler *sampler, const ig_eval_pair *prompt,
                         const char *expected, ig_error *err);

#endif
