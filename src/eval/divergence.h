/* SPDX-License-Identifier: Apache-2.0
 *
 * How far a distribution of the next token is from a reference: the
 * Kullback-Leibler divergence sum over tokens of p log(p / q), p being the
 * reference's.
 *
 * References of thousands of tokens are kept at a time, and a whole one of a
 * large vocabulary is half a megabyte. So tokens less likely than
 * IG_EVAL_RARE are kept as one: what differs among them alone does not count.
 */
#ifndef IG_EVAL_DIVERGENCE_H
#define IG_EVAL_DIVERGENCE_H

#include "infinigen.h"

#define IG_EVAL_RARE 1e-6

/* ig_log_sum() in double: divergences may be smaller than its errors. */
double ig_eval_log_sum(const float *logits, int n_vocab);

/* Distributions of consecutive tokens. */
typedef struct ig_eval_reference ig_eval_reference;

/* cap_bytes: the most it takes. */
ig_status ig_eval_reference_open(ig_eval_reference **out, int n_vocab, size_t cap_bytes, ig_error *err);
void ig_eval_reference_close(ig_eval_reference *r);
void ig_eval_reference_clear(ig_eval_reference *r);

/* Keeps that of the next token; log_sum is ig_eval_log_sum() of the logits. Once there is no room left nothing more is
 * kept. */
ig_status ig_eval_reference_keep(ig_eval_reference *r, const float *logits, double log_sum, ig_error *err);
/* The divergence from that of token i (from 0); false if it was not kept. */
bool ig_eval_reference_compare(double *kl, const ig_eval_reference *r, size_t i, const float *logits, double log_sum);

#endif
