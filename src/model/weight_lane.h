/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights on a device with a memory of its own: copied there when the model is opened, as many as are allowed. Layers
 * that do not fit (weight_plan.h) lie in page-locked memory of the host and pass through two slots of the device's in
 * every step, FlexGen's way, on a lane: while one computes, the next is on its way. The host waits for none of it.
 *
 * ig_matrix.panels is where the device has a matrix; of a layer that passes only between take() and give(). ig_matrix.w
 * stays what the host reads: the page-locked copy of what passes, else the map.
 */
#ifndef IG_MODEL_WEIGHT_LANE_H
#define IG_MODEL_WEIGHT_LANE_H

#include "model/weight_plan.h"

typedef struct ig_weight_lane ig_weight_lane;

typedef struct ig_weight_lane_options {
    uint64_t vram_bytes;   /* most memory of the device for all weights; 0: no limit, and none pass */
    uint64_t fixed_bytes;  /* of these, what has been taken already */
    uint64_t expert_bytes; /* and what experts need at least, which have a lane of their own; 0: they are as all else */
    bool is_copied;        /* the files are; else they are mapped */
    ig_progress_fn progress;
    void *progress_user;
} ig_weight_lane_options;

/* `weights` are bound to maps or copies of files; they outlive the lane. IG_E_LIMIT: too little, with the least that
 * would do, or more page-locked memory than there is. */
ig_status ig_weight_lane_open(ig_weight_lane **out, ig_device *d, ig_weights *weights, int n_layers,
                              const ig_weight_lane_options *o, ig_error *err);
void ig_weight_lane_close(ig_weight_lane *l);

/* As ig_weight_stream_begin() and the others, but that nothing can fail: what does is an error of the device's
 * finish(). All do nothing if l is NULL. */
void ig_weight_lane_begin(ig_weight_lane *l);
void ig_weight_lane_take(ig_weight_lane *l, int layer, ig_weight_part what);
void ig_weight_lane_give(ig_weight_lane *l, int layer);

void ig_weight_lane_get_stats(ig_weight_lane *l, ig_weight_stats *out);

#endif
