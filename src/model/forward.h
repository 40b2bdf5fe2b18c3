/* SPDX-License-Identifier: Apache-2.0
 *
 * The one forward pass, for prefill and decode, all model families, policies and devices.
 */
#ifndef IG_MODEL_FORWARD_H
#define IG_MODEL_FORWARD_H

#include "model/model.h"

/* Runs all layers over the rows of the segments, in their order; ids [rows]. Leaves the last layer's residual
 * stream in b->h. If no segment is dense (decode), the results of each do not depend on the others' presence,
 * bitwise. Allocates nothing. Fails if a disk tier does, a number is not finite or the model's file has changed; the
 * sequences then hold what they held before. */
ig_status ig_forward(const ig_model *m, ig_batch *b, const ig_segment *segments, int n_segments, const int32_t *ids,
                     ig_error *err);

/* Logits of rows [first, first + n) of the last ig_forward, n <= logit_rows, in b->wide: [n][n_vocab]. IG_E_NUMBER if
 * any is not finite, IG_E_CHANGED as ig_forward. */
ig_status ig_forward_logits(const float **out, const ig_model *m, ig_batch *b, int first, int n, bool few,
                            ig_error *err);

#endif
