/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames in the order of their last use: a ring of numbers 0 .. n - 1, and n before the oldest and behind the newest.
 */
#ifndef IG_MODEL_USE_ORDER_H
#define IG_MODEL_USE_ORDER_H

#include <stdbool.h>
#include <stdlib.h>

typedef struct ig_use_order {
    struct ig_use_place {
        int older, newer;
    } * places; /* [n + 1] */
    int n;
} ig_use_order;

static inline void ig_use_order_put(ig_use_order *o, int i, int older) {
    int newer = o->places[older].newer;
    o->places[i] = (struct ig_use_place){older, newer};
    o->places[older].newer = o->places[newer].older = i;
}

/* In the order of their numbers. False: no memory. */
static inline bool ig_use_order_open(ig_use_order *o, int n) {
    *o = (ig_use_order){.places = malloc(((size_t)n + 1) * sizeof *o->places), .n = n};
    if (!o->places) return false;
    o->places[n] = (struct ig_use_place){n, n};
    for (int i = 0; i < n; i++) ig_use_order_put(o, i, o->places[n].older);
    return true;
}

static inline void ig_use_order_close(ig_use_order *o) { free(o->places); }

/* Used last, or longest ago. */
static inline void ig_use_order_move(ig_use_order *o, int i, bool to_newest) {
    o->places[o->places[i].older].newer = o->places[i].newer;
    o->places[o->places[i].newer].older = o->places[i].older;
    ig_use_order_put(o, i, to_newest ? o->places[o->n].older : o->n);
}

/* The one after i, from the oldest on, which comes after n; n: there are no more. */
static inline int ig_use_order_next(const ig_use_order *o, int i) { return o->places[i].newer; }

#endif
