/* SPDX-License-Identifier: Apache-2.0
 *
 * Answers that are generated greedily, and what they are worth: they must begin
 * with what is expected, or hold it anywhere. An answer ends as soon as it is
 * known what it is worth, at the model's end token, or after the question's
 * most tokens.
 *
 * A prompt is computed dense up to its last IG_EVAL_PROMPT_TAIL tokens, or up
 * to its question where the two are apart. The rest and the answer's tokens go
 * through the session's KV policy one by one: after a dense prompt the answer's
 * first token would not test the policy, and the attention that finds what is
 * asked often starts at the words that ask for it.
 */
#ifndef IG_EVAL_REPLY_H
#define IG_EVAL_REPLY_H

#include "eval/choice.h"

enum { IG_EVAL_PROMPT_TAIL = 8 };

typedef struct ig_eval_reply {
    int32_t *ids; /* [n]: without an end token */
    int n, cap;
    char *text; /* [n_text], then a NUL; without the blanks it begins with where it must begin with something */
    size_t n_text, cap_text;
    double score; /* 0 to 1; 0 where nothing is expected */
} ig_eval_reply;

typedef struct ig_eval_reply_options {
    ig_sampler *sampler; /* a greedy one */
    bool ignore_end;     /* go on after an end token */
    bool goes_on;        /* something will be read after the answer: its last token is computed too */
} ig_eval_reply_options;

/* Generates the answer to a question that the reader's session has just read; it needs room for the turn's max_tokens.
 * *out, zero at first, is used again. */
ig_status ig_eval_reply_make(ig_eval_reply *out, ig_eval_reader *r, const ig_eval_turn *turn,
                             const ig_eval_reply_options *options, ig_error *err);
void ig_eval_reply_close(ig_eval_reply *reply);

/* Tokens that both begin with, of as many as the longer one has; 1 of two empty ones. */
double ig_eval_reply_same(const ig_eval_reply *a, const ig_eval_reply *b);

/* ---- texts ----------------------------------------------------------------- */

/* Tokens of turn number i as the model reads it; free() the ids. The first one has the context before it, and what of
 * it is computed dense. With `chat` it is a conversation in the model's template; IG_E_UNSUPPORTED if there is none. */
ig_status ig_eval_encode_turn(ig_eval_pair *out, const ig_model *model, const ig_eval_question *q, int i, bool chat,
                              ig_error *err);

#endif
