/* SPDX-License-Identifier: Apache-2.0
 *
 * Experts in less memory of a device than they take: all lie in page-locked memory of the host, and as many as fit in
 * frames of the device's. One that a router has chosen and that has no frame gets that of the expert which was used
 * longest ago, on a lane: behind the operations that have used the frame, and before those that will. The host waits
 * for none of it.
 */
#ifndef IG_MODEL_EXPERT_LANE_H
#define IG_MODEL_EXPERT_LANE_H

#include "model/weight_place.h"
#include "model/weights.h"

typedef struct ig_expert_lane ig_expert_lane;

/* Lists the experts of weights that are bound, which outlive the lane. It has no frames yet. */
ig_status ig_expert_lane_open(ig_expert_lane **out, ig_device *d, ig_weights *weights, const ig_config *c,
                              ig_error *err);
void ig_expert_lane_close(ig_expert_lane *x);

/* Bytes of all experts; and the least memory of the device that will do: for what a token chooses in a layer, and one
 * more. */
uint64_t ig_expert_lane_all(const ig_expert_lane *x);
uint64_t ig_expert_lane_least(const ig_expert_lane *x);
/* Takes as much of vram_bytes, which are no less, as it has use for, and fills it; and page-locked memory for all,
 * which the files need not keep in memory unless they are copied. */
ig_status ig_expert_lane_fill(ig_expert_lane *x, uint64_t vram_bytes, bool is_copied, ig_progress_fn progress,
                              void *user, ig_error *err);

/* For one thread at a time; they do nothing if x is NULL. What is called from here on may use these experts of a layer,
 * at most as many as a token chooses, until others are taken. */
void ig_expert_lane_take(ig_expert_lane *x, int layer, const int32_t *experts, int n);
/* They will be taken next: the first of them that have no frame are sent. */
void ig_expert_lane_expect(ig_expert_lane *x, int layer, const int32_t *experts, int n);

/* Adds what it has to the numbers of the other weights. */
void ig_expert_lane_add_stats(ig_expert_lane *x, ig_weight_stats *st);

#endif
