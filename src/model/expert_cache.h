/* SPDX-License-Identifier: Apache-2.0
 *
 * Experts in less RAM than they take: as many as fit lie in frames of one size, the others are read from the model's
 * files once a router has chosen them, by a few threads, past the page cache. The expert that was used longest ago
 * makes room; one that only a prompt has used, which uses nearly all of them, before others.
 *
 * The matrices of an expert point into its frame between take() and give(), and else into the mapped file.
 */
#ifndef IG_MODEL_EXPERT_CACHE_H
#define IG_MODEL_EXPERT_CACHE_H

#include "model/weight_place.h"
#include "model/weights.h"

typedef struct ig_expert_cache ig_expert_cache;

/* Lists the experts of weights that are bound to the files; all three outlive the cache. It has no frames yet. What
 * they hold at first and what is used often will be put in panels of a device, if that is not NULL. */
ig_status ig_expert_cache_open(ig_expert_cache **out, ig_weights *weights, const ig_config *c,
                               const ig_weight_file *files, size_t n_files, ig_device *panels, ig_error *err);
void ig_expert_cache_close(ig_expert_cache *x);

/* The least RAM that will do: for what a token chooses in a layer, and one more. */
uint64_t ig_expert_cache_least(const ig_expert_cache *x);
/* Takes as much of ram_bytes, which are no less, as it has use for, and fills it. */
ig_status ig_expert_cache_fill(ig_expert_cache *x, uint64_t ram_bytes, ig_progress_fn progress, void *user,
                               ig_error *err);

/* For one thread at a time; they do nothing if x is NULL. take() waits until experts [n] of a layer are there, at most
 * as many as a token chooses, which stay until they are given back. Its error is that of a read; then it took none. */
ig_status ig_expert_cache_take(ig_expert_cache *x, int layer, const int32_t *experts, int n, ig_error *err);
void ig_expert_cache_give(ig_expert_cache *x, int layer, const int32_t *experts, int n, bool of_prompt);
/* They will be taken next: the first of them that are not there begin to be read. */
void ig_expert_cache_expect(ig_expert_cache *x, int layer, const int32_t *experts, int n);

/* Adds what it has to the numbers of the other weights. */
void ig_expert_cache_add_stats(ig_expert_cache *x, ig_weight_stats *st);

#endif
