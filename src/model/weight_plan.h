/* SPDX-License-Identifier: Apache-2.0
 *
 * Which weights stay in a memory that is too small for all, and which pass through it in every step. What every step
 * uses beside the layers (embedding, output layer, learned positions) stays, and of the layers as many as fit. Those
 * that pass are spread evenly, so that each has as many of the others before it, whose work hides its way: were they
 * next to each other, what brings them would stand still while the others compute, and be waited for afterwards. Two
 * slots take turns: one layer computes in its slot while the next comes into the other. A third would only let it come
 * earlier than that.
 */
#ifndef IG_MODEL_WEIGHT_PLAN_H
#define IG_MODEL_WEIGHT_PLAN_H

#include "model/weight_place.h"
#include "model/weights.h"

enum { IG_WEIGHT_SLOTS = 2 };

/* What of a layer is needed, in the order in which it comes. */
typedef enum ig_weight_part { IG_WEIGHTS_QUERY, IG_WEIGHTS_ATTENTION, IG_WEIGHTS_ALL, IG_WEIGHT_PARTS } ig_weight_part;

typedef struct ig_weight_group {
    /* [n] of a layer what makes queries, k, v, attention's gate, or those of a recurrence, o, router, and gate, up,
     * down of each part, those there are */
    ig_weight_place *places;
    int n, n_query, n_attention; /* the first ones are of queries, and of attention */
    size_t room, kept;           /* bytes that it takes as it passes, and where it stays */
} ig_weight_group;

typedef struct ig_weight_plan {
    ig_weight_group others; /* than layers */
    ig_weight_group *layers;
    ig_weight_place *places; /* of all groups */
    int n_layers, n_streamed;
    size_t slot_bytes;   /* the largest layer that passes; 0: none does */
    uint64_t bytes;      /* of what stays, and of the slots */
    uint64_t step_bytes; /* of the layers that pass */
} ig_weight_plan;

/* Lists the matrices of weights that are bound to maps, by their spans in the reader's files (NULL: none), those of
 * mixtures of experts only if `with_experts`. All stay, those of products with room for their panels on a device, if
 * that is not NULL. */
ig_status ig_weight_plan_open(ig_weight_plan *out, ig_weights *w, int n_layers, bool with_experts,
                              const ig_weight_reader *r, ig_device *panels, ig_error *err);
void ig_weight_plan_close(ig_weight_plan *p);
/* Lets as few layers pass as `most` bytes of a memory, "RAM", allow, `fixed` of which are taken already. IG_E_LIMIT: no
 * choice does; it says the least that would. */
ig_status ig_weight_plan_fit(ig_weight_plan *p, uint64_t most, uint64_t fixed, const char *memory, ig_error *err);

/* Whether layer i passes. */
static inline bool ig_weight_plan_streams(const ig_weight_plan *p, int i) {
    return (int64_t)i * p->n_streamed / p->n_layers != ((int64_t)i + 1) * p->n_streamed / p->n_layers;
}

/* The layer that passes after layer i, which may be -1; the first one after the last. There is one. */
static inline int ig_weight_plan_next(const ig_weight_plan *p, int i) {
    do i = i + 1 < p->n_layers ? i + 1 : 0;
    while (!ig_weight_plan_streams(p, i));
    return i;
}

/* How many of a layer's matrices, the first ones, a part and those before it are. */
static inline int ig_weight_plan_count(const ig_weight_group *layer, ig_weight_part part) {
    return part == IG_WEIGHTS_QUERY ? layer->n_query : part == IG_WEIGHTS_ATTENTION ? layer->n_attention : layer->n;
}

#endif
