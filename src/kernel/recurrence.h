/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels of layers with a recurrence, in plain C: loops over columns, which compilers make vectors of, as wide as a
 * level has them. Nothing is added up across columns, so that all levels give the same bits.
 */
#ifndef IG_KERNEL_RECURRENCE_H
#define IG_KERNEL_RECURRENCE_H

#include "kernel/parts.h"

enum { STATE_COLUMNS = 16 }; /* that are kept in registers */

INLINE void convolve(float *out, const float *const *x, const float *w, size_t stride, int n_taps, int n) {
    for (int i = 0; i < n; i++) out[i] = 0;
    for (int t = 0; t < n_taps; t++) {
        const float *restrict from = x[t], *restrict by = w + (size_t)t * stride;
        for (int i = 0; from && i < n; i++) out[i] += by[i] * from[i];
    }
}

/* STATE_COLUMNS of a state, whose rows are `stride` apart. */
INLINE void change_columns(float *restrict out, float *restrict state, const float *restrict q, const float *restrict k,
                           const float *restrict v, float decay, float beta, int n_keys, size_t stride) {
    float read[STATE_COLUMNS] = {0}, change[STATE_COLUMNS], sum[STATE_COLUMNS] = {0};
    for (int i = 0; i < n_keys; i++) {
        float *row = state + (size_t)i * stride;
        for (int j = 0; j < STATE_COLUMNS; j++) {
            row[j] *= decay;
            read[j] += k[i] * row[j];
        }
    }
    for (int j = 0; j < STATE_COLUMNS; j++) change[j] = beta * (v[j] - read[j]);
    for (int i = 0; i < n_keys; i++) {
        float *row = state + (size_t)i * stride;
        for (int j = 0; j < STATE_COLUMNS; j++) {
            row[j] += k[i] * change[j];
            sum[j] += q[i] * row[j];
        }
    }
    memcpy(out, sum, sizeof sum);
}

INLINE void delta_rule(float *out, float *state, const float *q, const float *k, const float *v, float decay,
                       float beta, int n_keys, int n) {
    for (int j = 0; j < n; j += STATE_COLUMNS)
        change_columns(out + j, state + j, q, k, v + j, decay, beta, n_keys, (size_t)n);
}

#endif
