/* SPDX-License-Identifier: Apache-2.0
 *
 * The one forward pass, for prefill and decode, all model families, policies and devices.
 */
#ifndef IG_MODEL_FORWARD_H
#define IG_MODEL_FORWARD_H

#include "model/model.h"

/* Runs all layers over the rows of b->segments [n_segments], prompts and decode steps in any order; those of n == 0 or
 * with a status take no part. Leaves the last layer's residual stream in b->h, but for segments with `more`. The
 * results of a segment do not depend on the others, bitwise. Allocates nothing. A disk tier that fails, and numbers
 * that are not finite, are the status of their segment, and the others go on. It fails for all if the model's file has
 * changed. Sequences that failed hold what they held before. */
ig_status ig_forward(const ig_model *m, ig_batch *b, int n_segments, ig_error *err);

/* After ig_forward. States of the first n tokens of a prompt, segment number `segment`, as the head gets them, to the
 * host's [n][d_model]. IG_E_CHANGED as ig_forward. */
ig_status ig_forward_states(float *out, const ig_model *m, ig_batch *b, int segment, int n, ig_error *err);
/* After ig_forward. Logits of tokens [first, first + n) of a prompt, segment number `segment`, n <= logit_rows, in
 * b->logits: [n][n_vocab]. IG_E_NUMBER if any is not finite, IG_E_CHANGED as ig_forward. */
ig_status ig_forward_logits(const float **out, const ig_model *m, ig_batch *b, int segment, int first, int n,
                            ig_error *err);
/* The same of the last token of segments from number `first` on, and of all tokens of those that decode, which have no
 * more than logit_rows, as a decode step computes them: to where each one's `logits` then points, NULL for those that
 * have failed or go on. As many segments as logit_rows allow, *n_segments; the next call takes the memory again. A
 * number that is not finite is its segment's status. */
ig_status ig_forward_last_logits(int *n_segments, const ig_model *m, ig_batch *b, int first, ig_error *err);

/* So many logits a segment gets there. */
int ig_segment_logits(const ig_segment *seg);

#endif
