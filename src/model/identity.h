/* SPDX-License-Identifier: Apache-2.0
 *
 * Which model this is, as a number: files made for one model (sketches) are refused for another.
 */
#ifndef IG_MODEL_IDENTITY_H
#define IG_MODEL_IDENTITY_H

#include "model/model.h"

/* For files that can be made again (sketches): the same for every copy of a file; another for another model,
 * quantisation or fine-tuning. The model has its weights. Reads two kilobytes of each tensor. */
uint64_t ig_model_identity_of(const ig_model *m);
/* For what must be of these weights, bit by bit (stored prefixes): a hash of all bytes of all tensors, which are read
 * by all threads. */
void ig_model_hash_weights(uint64_t out[2], const ig_model *m);

#endif
