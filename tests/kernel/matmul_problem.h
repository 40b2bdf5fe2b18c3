/* SPDX-License-Identifier: Apache-2.0
 *
 * What the checks of matrix products multiply: weights of every type, columns in their forms, and room for the results.
 * Weights lie in a buffer that ends at an untouchable page; outputs stand between guards.
 */
#ifndef IG_TESTS_KERNEL_MATMUL_PROBLEM_H
#define IG_TESTS_KERNEL_MATMUL_PROBLEM_H

#include "base/type.h"
#include "check.h"

/* Offsets of the 16-bit scales in a block (the other bytes may be anything), and the largest
 * factor of each: |weight| <= sum of |scale| * reach. */
typedef struct type_case {
    ig_type type;
    int scale[2]; /* -1: none */
    int reach[2];
} type_case;

typedef enum weight_shape { WEIGHT_NOISE, WEIGHT_ALL_ONES, WEIGHT_ALL_ZEROS, WEIGHT_TINY, WEIGHT_SHAPES } weight_shape;

/* Scale i of the block at p: a 16-bit float, or the exponent of a power of two. */
void put_scale(const type_case *t, uint8_t *p, int i, double v);
double get_scale(const type_case *t, const uint8_t *p, int i);
/* Codes are random bytes or all extreme; scales are small floats, some negative or subnormal. */
void fill_weights(check *c, const type_case *t, uint8_t *w, size_t bytes, weight_shape shape);
/* The activations as a column of the form sees them. */
void round_column(double *dst, const float *x, int n, ig_act form);

typedef struct problem {
    const ig_type_info *info;
    const type_case *t;
    ig_act form;
    int n_in, n_out, n_cols;
    size_t w_bytes, act_stride, act_bytes, out_stride;
    uint8_t *w;
    float *x; /* [n_cols][n_in] */
    char *act;
    float *out; /* guarded, off the alignment by 4 bytes */
    char *scratch;
    ig_matmul m, many;  /* for gemv and for gemm, which may want columns of another form */
    float *scales;      /* of blocks of codes in F8_E4M3 */
    char *many_act;     /* NULL: those of m */
    size_t panel_bytes; /* 0: not in panels */
    char *panels;       /* [ceil(n_out / 16)] */
    ig_matmul panels_few, panels_many;
} problem;

/* Weights and columns are for the caller to fill; columns then go through problem_prepare(). */
void problem_init(check *c, problem *p, const type_case *t, int n_in, int n_out, int n_cols);
void problem_prepare(check *c, problem *p);
/* The same product of weights in panels, if this level has them. */
bool problem_put_panels(check *c, problem *p);
void problem_deinit(problem *p);

#endif
