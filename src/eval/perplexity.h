/* SPDX-License-Identifier: Apache-2.0
 *
 * Perplexity of a text under a model, on the public API alone.
 *
 * Chunks as in llama.cpp's llama-perplexity: the text is tokenised once, cut
 * into chunks of n tokens, and the second half of each chunk is scored; if the
 * model wants a BOS, it replaces the first token of each chunk. With a dense
 * prefix of P tokens everything after the prefix is scored instead, token by
 * token through the session's KV policy.
 */
#ifndef IG_EVAL_PERPLEXITY_H
#define IG_EVAL_PERPLEXITY_H

#include "eval/divergence.h"

/* A sum over scored tokens. */
typedef struct ig_eval_score {
    uint64_t n;        /* tokens scored */
    double sum, sum_2; /* of their negative log-likelihoods, and of the squares */
    uint64_t n_kl;     /* tokens whose distribution was compared with a reference */
    double kl;         /* sum of the divergences */
} ig_eval_score;

double ig_eval_nll(const ig_eval_score *score);              /* mean, nats per token */
double ig_eval_perplexity(const ig_eval_score *score);       /* exp(mean) */
double ig_eval_perplexity_error(const ig_eval_score *score); /* standard error of the perplexity */
double ig_eval_kl(const ig_eval_score *score);               /* mean divergence from the reference, nats per token */
void ig_eval_add(ig_eval_score *total, const ig_eval_score *part);

/* Parts of chunks of n tokens, `by` tokens each and the last one what is left. */
int ig_eval_count_parts(int n, int by);

/* -log softmax(logits)[token], computed in double. */
double ig_eval_token_nll(const float *logits, int n_vocab, int32_t token);

typedef struct ig_eval_chunk_options {
    int n_vocab;
    int32_t bos;                  /* replaces the first token; -1: none */
    int dense_prefix;             /* 0: score the second half of a dense pass */
    ig_eval_reference *reference; /* distributions of the tokens after the dense prefix; NULL: none */
    bool keep;                    /* keep them there, instead of comparing with what is there */
    int by;                       /* tokens of one part of a chunk; 0: no parts */
    ig_eval_score *parts; /* [ig_eval_count_parts()]: set to what each part has of the chunk's score, by the position of
                             the token that is predicted */
    /* Called between the tokens that are scored one by one; true stops. */
    ig_progress_fn progress;
    void *progress_user;
} ig_eval_chunk_options;

/* Adds the scores of the tokens `from` .. n - 1, which are computed as a prompt after what the session holds of the n
 * tokens; that is less than `from` tokens. */
ig_status ig_eval_score_prompt(ig_eval_score *out, ig_session *s, const int32_t *ids, int n, int from,
                               const ig_eval_chunk_options *options, ig_error *err);
/* Scores one chunk of `n` tokens (2 or more, and more than the dense prefix), which are changed where BOS goes in. What
 * the session holds is dropped before. */
ig_status ig_eval_chunk(ig_eval_score *out, ig_session *s, int32_t *ids, int n, const ig_eval_chunk_options *options,
                        ig_error *err);
/* The part of it after the dense prefix, which the session holds; `first` are the logits that predict what follows. */
ig_status ig_eval_chunk_rest(ig_eval_score *out, ig_session *s, const int32_t *ids, int n, const float *first,
                             const ig_eval_chunk_options *options, ig_error *err);

#endif
