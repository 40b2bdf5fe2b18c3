/* SPDX-License-Identifier: Apache-2.0
 *
 * The tokens that may come next, and the filters that thin them out. Every filter leaves one at least.
 */
#ifndef IG_ENGINE_CANDIDATES_H
#define IG_ENGINE_CANDIDATES_H

#include "kernel/kernel.h"

typedef struct ig_candidate {
    float logit;
    float key; /* what they are put in order by: the logit, unless a filter says otherwise */
    int32_t id;
} ig_candidate;

typedef struct ig_candidates {
    ig_candidate *v;     /* [n] */
    ig_candidate *spare; /* as large: where filters put them in order */
    int n;
} ig_candidates;

/* Room for n_vocab tokens; false without memory. */
bool ig_candidates_open(ig_candidates *c, int n_vocab);
void ig_candidates_close(ig_candidates *c);

/* All tokens whose logits are numbers above minus infinity; there may be none. */
void ig_candidates_fill(ig_candidates *c, const float *logits, int n_vocab);
/* Of these, those whose logits are above `least`: fast where they are few. */
void ig_candidates_fill_above(ig_candidates *c, const ig_kernels *kernels, const float *logits, int n_vocab,
                              float least);
/* The k likeliest of these, in descending order; k is at least 1. */
void ig_candidates_fill_top_k(ig_candidates *c, const float *logits, int n_vocab, int k);
/* The highest logit; there is one candidate at least, here and below. */
float ig_candidates_top(const ig_candidates *c);
/* The sum of exp(logit - the highest one). */
double ig_candidates_total(const ig_candidates *c);

/* top-n-sigma (Tang et al. 2024): those within n standard deviations of the highest logit. */
void ig_candidates_top_n_sigma(ig_candidates *c, float n);
/* The k likeliest, in descending order. */
void ig_candidates_top_k(ig_candidates *c, int k);
/* Locally typical sampling (Meister et al. 2022): those whose surprise is nearest to the mean one, with probability p
 * in all. */
void ig_candidates_typical(ig_candidates *c, float p);
/* The likeliest, with probability p in all, in descending order; of what has this total, where the candidates are the
 * likeliest of that. */
void ig_candidates_top_p(ig_candidates *c, float p, double total);
/* Those at least p times as likely as the likeliest. */
void ig_candidates_min_p(ig_candidates *c, float p);
/* Exclude top choices: of those that have a probability of `threshold` or more, the least likely alone stays. */
void ig_candidates_xtc(ig_candidates *c, float threshold);

#endif
