/* SPDX-License-Identifier: Apache-2.0
 *
 * The one forward pass, for prefill and decode, all model families, policies and devices.
 */
#ifndef IG_MODEL_FORWARD_H
#define IG_MODEL_FORWARD_H

#include "model/model.h"

/* Runs all layers over the rows of b->segments [n_segments], prompts and decode steps in any order. Leaves the last
 * layer's residual stream in b->h. The results of a segment do not depend on the others' presence, bitwise. Allocates
 * nothing. Fails if a disk tier does, a number is not finite or the model's file has changed; the sequences then hold
 * what they held before. */
ig_status ig_forward(const ig_model *m, ig_batch *b, int n_segments, ig_error *err);

/* After ig_forward. Logits of tokens [first, first + n) of a prompt, segment number `segment`, n <= logit_rows, in
 * b->wide: [n][n_vocab]. IG_E_NUMBER if any is not finite, IG_E_CHANGED as ig_forward. */
ig_status ig_forward_logits(const float **out, const ig_model *m, ig_batch *b, int segment, int first, int n,
                            ig_error *err);
/* The same of the last token of each of segments [first, first + n), as a decode step computes them. */
ig_status ig_forward_last_logits(const float **out, const ig_model *m, ig_batch *b, int first, int n, ig_error *err);

#endif
