/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the binding of tensors (weights*.c): finding one by its name, and checking what it is. The first failure
 * stays, and what is bound from then on means nothing.
 */
#ifndef IG_MODEL_WEIGHT_BINDER_H
#define IG_MODEL_WEIGHT_BINDER_H

#include "model/weight_names.h"
#include "model/weights.h"

typedef struct ig_binder {
    const ig_config *c;
    const ig_gguf *g;
    const ig_safetensors *st;
    ig_weight_names names;
    const char *path;
    size_t n_tensors;
    bool *used;        /* [n_tensors] */
    int n_experts;     /* of the layers so far */
    float norm_offset; /* of norms that follow */
    const ig_adapters *adapters;
    ig_weights *w;
    ig_status status; /* the first failure */
    ig_error *err;
} ig_binder;

typedef struct ig_tensor_name {
    char text[160];
} ig_tensor_name;

const ig_tensor *ig_bind_tensor_at(const ig_binder *b, size_t i);
const ig_tensor *ig_bind_find(const ig_binder *b, const char *name);
/* prefix + part (for this layer, and this expert) + suffix. */
ig_tensor_name ig_bind_expert_name(const ig_binder *b, const char *part, int layer, int expert, const char *suffix);
ig_tensor_name ig_bind_name(const ig_binder *b, const char *part, int layer, const char *suffix);
/* The tensor of this name with this shape, n_dims <= 3, marked as used. NULL after a failure, or if it is absent and
 * need not exist. */
const ig_tensor *ig_bind_take(ig_binder *b, const char *name, int n_dims, const uint64_t *dims, bool required);
/* n_vectors of n floats in the arena, from a tensor of these dims; NULL in the first walk, too. */
const float *ig_bind_floats(ig_binder *b, const char *name, int n_dims, const uint64_t *dims, size_t n_vectors,
                            size_t n, bool to_columns, bool required);
/* n_dims 1 or 2. */
const float *ig_bind_vectors(ig_binder *b, const char *name, int n_dims, int n_vectors, int n, bool required);
const float *ig_bind_vector(ig_binder *b, const char *name, int n, bool required);
const float *ig_bind_part_vector(ig_binder *b, const char *part, int layer, const char *suffix, int n, bool required);
/* The first of n matrices without bias, of n_out rows each, one below the other; a tensor of one has no dimension for
 * their number. With the scales of its blocks, if it is in FP8. */
ig_matrix ig_bind_first(ig_binder *b, const char *name, int n_dims, int n, int n_out, int n_in);
/* A matrix of which rows are read: no bias, no factor, and not in FP8. */
ig_matrix ig_bind_table(ig_binder *b, const char *name, int n_out, int n_in);
/* What the n matrices of this name are to be multiplied by, if there is a tensor "....scale" for "....weight", as
 * with weights in NVFP4. */
const float *ig_bind_factors(ig_binder *b, const char *name, int n);
/* What adapters add to products with the n matrices of this name, an element for each; NULL: nothing. */
const ig_low_rank *ig_bind_low_rank(ig_binder *b, const char *name, int n, int n_out, int n_in);
/* A matrix without bias. */
ig_matrix ig_bind_plain(ig_binder *b, const char *name, int n_out, int n_in);
/* Multiplies what products with the matrix give, which may have no bias. */
void ig_bind_multiply(ig_binder *b, ig_matrix *m, double by);
/* Rows [first, first + n) of a matrix. */
ig_matrix ig_bind_rows(ig_matrix m, int first, int n);
/* Parts of a matrix, one below the other: part i has n_out[i] rows. */
void ig_bind_parts(ig_binder *b, const char *part, int layer, ig_matrix *const *parts, const int *n_out, int n,
                   int n_in);
/* A matrix of a layer. It has a bias in all layers or in none. */
ig_matrix ig_bind_matrix(ig_binder *b, const char *part, int layer, int n_out, int n_in);
/* What a matrix whose rows or columns are to be turned becomes, without its weights: itself, or of FP8 one of 16-bit
 * floats. What rounding to these changes is 32 times less than what the 8 bits have cost. */
ig_matrix ig_bind_turnable(const ig_matrix *m);
/* Rows [first, first + n) of a matrix, in the form of ig_bind_turnable(). */
void ig_bind_copy_rows(void *to, const ig_matrix *from, int first, int n);
/* Weights of an RMS norm, times scale. */
const float *ig_bind_part_scale(ig_binder *b, const char *part, int layer, const char *suffix, int n, double scale);
const float *ig_bind_scale(ig_binder *b, const char *part, int layer, int n, double scale);
ig_norm_weights ig_bind_norm(ig_binder *b, const char *part, int layer, double scale);

/* ---- parts of a layer, which files call number i ---- */

void ig_bind_experts(ig_binder *b, ig_layer *l, int i); /* and other feed-forward parts */
void ig_bind_recurrence(ig_binder *b, ig_recurrent *r, int i);
void ig_bind_latent(ig_binder *b, ig_layer *l, int i);

#endif
