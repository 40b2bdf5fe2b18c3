/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the forward pass: forward.c (the pass) and attention.c (KV store, policy, attention of a layer).
 */
#ifndef IG_MODEL_FORWARD_PARTS_H
#define IG_MODEL_FORWARD_PARTS_H

#include "model/forward.h"

/* One call of ig_forward(). */
typedef struct forward {
    const ig_model *m;
    const ig_config *c;
    ig_device *dev;
    ig_workspace *ws;
    const ig_segment *segments;
    int n_segments, n_rows;
    bool few; /* decode: independent single tokens */
    int layer;
    const ig_kernels *kernels;
} forward;

/* The layer's keys and values (ws->k, ws->v) go to the store, the policy selects, attention replaces ws->q. */
ig_status ig_forward_attend(forward *f, ig_error *err);

/* Whether any sequence would prefetch for f->layer. */
bool ig_forward_prefetches(const forward *f);
/* Starts to read what ws->q, guessed queries of f->layer, select. */
ig_status ig_forward_prefetch(forward *f, ig_error *err);

#endif
