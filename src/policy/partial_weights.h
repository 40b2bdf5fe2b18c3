/* SPDX-License-Identifier: Apache-2.0
 *
 * The paper's partial query weights (section 4.3): of W_Q A of each query head the columns J, in 16-bit floats, which
 * stand in for W_Q in a guess. They are made once J is known, by osdi24.c, for models whose queries are a linear map of
 * the layer's input. A device with memory of its own reads copies.
 */
#ifndef IG_POLICY_PARTIAL_WEIGHTS_H
#define IG_POLICY_PARTIAL_WEIGHTS_H

#include "device/space.h"
#include "policy/policy.h"

/* Of a policy's sparse layers, which are numbered 0 .. n_layers - 1. */
typedef struct ig_partial_weights {
    const ig_policy_shape *shape; /* borrowed */
    int n_layers, n_columns;
    int n_in;                /* of a row; 0: there are no partial weights */
    ig_head_table table;     /* of query heads: [n_columns][n_in] */
    bool *is_made;           /* [n_layers][n_heads] for J as it is */
    bool *is_copied;         /* [n_layers] whether the device has them as they are */
    float *bias;             /* [n_layers][n_heads][n_columns] */
    ig_matrix *narrow;       /* [n_layers] the weights, for others */
    const ig_matrix **whole; /* [n_layers] the model's; NULL: nobody has asked for weights */
} ig_partial_weights;

/* Takes all but the table from the space, in both of its passes; operations read the biases. */
void ig_partial_weights_lay_out(ig_partial_weights *w, ig_space *space);
/* Bytes of the table. */
uint64_t ig_partial_weights_plan(const ig_partial_weights *w);
/* The table, with copies on the shape's device if `copied`. */
ig_status ig_partial_weights_open(ig_partial_weights *w, bool copied, ig_error *err);
/* Harmless on zeroed or closed ones. */
void ig_partial_weights_close(ig_partial_weights *w);
/* Those of a head of model layer `layer`, sparse layer l, if anybody has asked for them: `columns` [n_columns] is J.
 * Heads may come from several threads. */
void ig_partial_weights_make(ig_partial_weights *w, int layer, int l, int head, const int32_t *columns, void *scratch);
/* J of a head is not known any more. Heads may come from several threads. */
void ig_partial_weights_forget(ig_partial_weights *w, size_t head);
/* For ig_policy_ops.narrow. */
const ig_matrix *ig_partial_weights_matrix(ig_partial_weights *w, int l, const ig_matrix *whole);
/* Bytes of those that are made. */
uint64_t ig_partial_weights_bytes(const ig_partial_weights *w);
/* Scratch of make(). */
size_t ig_partial_weights_scratch(const ig_policy_shape *shape);

#endif
