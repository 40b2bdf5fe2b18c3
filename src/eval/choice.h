/* SPDX-License-Identifier: Apache-2.0
 *
 * Multiple choice: the log-likelihood of each choice after its context, as
 * EleutherAI's lm-evaluation-harness defines it, on the public API alone.
 *
 * The context is computed dense, up to its last token; this one and the
 * choice's tokens go through the session's KV policy one by one, so that every
 * scored token has been predicted under the policy.
 *
 * Where the policy has used all entries, as `full` does, this is the plain
 * log-likelihood, but for rounding: decoding rounds in another way than a
 * prompt does. It is then computed as a prompt, and is bitwise what the server
 * says that scores the same tokens.
 */
#ifndef IG_EVAL_CHOICE_H
#define IG_EVAL_CHOICE_H

#include "eval/task.h"

/* Tokens of a context and of what follows it. */
typedef struct ig_eval_pair {
    int32_t *ids; /* [n]; free() it */
    int n, n_context;
    int n_dense; /* of the context, computed dense; the others go through the policy. 0: all but the last one */
} ig_eval_pair;

/* Tokens of a text, without a BOS; free() them, also after a failure. */
ig_status ig_eval_tokenize(int32_t **ids, size_t *n, const ig_model *model, const char *text, size_t n_text, int flags,
                           ig_error *err);
/* The token that a text begins with, or that stands for an empty one; -1: none. */
int32_t ig_eval_first_token(const ig_model *model, bool is_empty);
/* All tokens, after `first` unless that is -1, as a context that nothing follows. */
ig_status ig_eval_join(ig_eval_pair *out, int32_t first, const int32_t *ids, size_t n, ig_error *err);

/* Tokens of `examples` (may be "") and the option's context, and of its text after them: both together are tokenised,
 * and so is the context alone; the text's tokens are the rest. Blanks that end the context count to the text. A BOS is
 * added if the model wants one, and where the context would have no token. `text` may be "" for the context alone. */
ig_status ig_eval_encode(ig_eval_pair *out, const ig_model *model, const char *examples, const char *context,
                         const char *text, ig_error *err);

/* A session that reads one text after another. What was computed dense is reused where a text has the same dense part,
 * or begins with the same n_shared tokens: results are bitwise those of a new session. */
typedef struct ig_eval_reader {
    ig_session *s;
    const ig_model *model;
    int n_vocab;
    int n_shared;          /* tokens that all texts begin with, such as examples; set when the session holds nothing */
    int n_dense;           /* tokens at the session's beginning that were computed dense; 0 to start */
    double left_out;       /* of entries, by all steps until the dense part was held, see choice.c */
    bool (*stopped)(void); /* asked between steps; true ends with IG_E_INTERRUPTED. NULL: never */
} ig_eval_reader;

/* Goes on under another policy, with the tokens that were computed dense. IG_E_UNSUPPORTED if it must see them being
 * computed, or cannot have what the session holds: clear first. */
ig_status ig_eval_reader_use(ig_eval_reader *r, const ig_cache_options *cache, ig_error *err);
/* The session holds nothing. */
ig_status ig_eval_reader_clear(ig_eval_reader *r, ig_error *err);

/* Makes the session hold the n tokens, the last n_tail of them (all but the first at most) through the policy. */
ig_status ig_eval_feed(ig_eval_reader *r, const int32_t *ids, int n, int n_tail, ig_error *err);
/* The same with a pair's context, as far as its n_dense says. */
ig_status ig_eval_feed_context(ig_eval_reader *r, const ig_eval_pair *pair, ig_error *err);
/* Further tokens through the policy, one by one. */
ig_status ig_eval_read_on(ig_eval_reader *r, const int32_t *ids, int n, ig_error *err);

/* Sum of the log-likelihoods of the tokens after the context; the session needs room for n - 1 tokens. */
ig_status ig_eval_score_pair(double *out, ig_eval_reader *r, const ig_eval_pair *pair, ig_error *err);

/* Characters of a choice, without the blank it begins with; 1 at least. */
int ig_eval_characters(const char *text);

/* The greatest of n; the first of equals. */
int ig_eval_argmax(const double *values, int n);

#endif
