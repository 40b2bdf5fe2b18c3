/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights in less RAM than they take, FlexGen's way: what is used in every step beside the layers (embedding, output
 * layer, learned positions) and the layers that fit are copied into memory, the others are read from the model's files
 * in every step, layer by layer (weight_plan.h). A thread reads ahead of the computation, into room for two layers.
 *
 * The matrices of the model point to where their bytes are: to a copy, or, between take() and give(), to the room. At
 * all other times they point into the mapped file, as without a stream, so that who reads weights outside a step finds
 * them, slower. Reads go past the system's page cache where that is possible, which would otherwise hold the file.
 */
#ifndef IG_MODEL_WEIGHT_STREAM_H
#define IG_MODEL_WEIGHT_STREAM_H

#include "model/weight_plan.h"

typedef struct ig_weight_stream ig_weight_stream;

typedef struct ig_weight_stream_options {
    uint64_t ram_bytes;    /* for all weights */
    uint64_t fixed_bytes;  /* of these, what has been taken already */
    uint64_t expert_bytes; /* and what is left for mixtures of experts, which are another's (expert_cache.h) */
    ig_device *panels;     /* matrices that stay are put in its panels, where these are no larger; NULL: they are not */
    ig_progress_fn progress;
    void *progress_user;
} ig_weight_stream_options;

/* `weights` are bound to the files; they and the files outlive the stream. IG_E_LIMIT: too little RAM, with the least
 * that would do. */
ig_status ig_weight_stream_open(ig_weight_stream **out, ig_weights *weights, int n_layers, const ig_weight_file *files,
                                size_t n_files, const ig_weight_stream_options *o, ig_error *err);
void ig_weight_stream_close(ig_weight_stream *s);

/* For one thread at a time. After begin() the layers of a pass are taken in their order, one of them ahead if need be,
 * and given back; a pass may end early. A read that failed is an error of the take() that needs it, and the next pass
 * tries again. All do nothing if s is NULL. */
void ig_weight_stream_begin(ig_weight_stream *s);
ig_status ig_weight_stream_take(ig_weight_stream *s, int layer, ig_weight_part what, ig_error *err);
void ig_weight_stream_give(ig_weight_stream *s, int layer);

void ig_weight_stream_get_stats(ig_weight_stream *s, ig_weight_stats *out);

#endif
