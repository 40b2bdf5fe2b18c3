/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels of layers with a recurrence, whose columns are those of a state.
 */
#ifndef IG_KERNEL_RECURRENCE_H
#define IG_KERNEL_RECURRENCE_H

#include "kernel/columns.h"

enum { MOST_CHANGED = 2, MOST_ADDED = 4 /* vectors whose sums are kept in registers */ };

static inline void convolve(float *out, const float *const *x, const float *w, const float *bias, size_t stride,
                            int n_taps, int n) {
    bool is_begun = bias;
    if (bias) memcpy(out, bias, (size_t)n * sizeof *out);
    for (int t = 0; t < n_taps; t++) {
        const float *restrict from = x[t], *restrict by = w + (size_t)t * stride;
        for (int i = 0; from && i < n; i++) out[i] = is_begun ? out[i] + by[i] * from[i] : by[i] * from[i];
        is_begun = is_begun || from;
    }
    if (!is_begun) memset(out, 0, (size_t)n * sizeof *out);
}

static inline void forget(float *left, const float *x, const float *bias, float rate, int n) {
    for (int i = 0; i < n; i += LANES) {
        columns a = *columns_from(x + i) + *columns_from(bias + i);
        *columns_at(left + i) = exponential(rate * softplus(a)) + (a - a); /* NaN of what is not finite */
    }
}

/* n_vectors of columns of a state, whose rows are `stride` apart; as they are at `from`, which may be `state`. */
INLINE void change_columns(float *out, float *state, const float *from, const float *q, const float *k, const float *v,
                           const float *decay, float beta, int n_keys, size_t stride, const int n_vectors) {
    columns read[MOST_CHANGED] = {0}, change[MOST_CHANGED], sum[MOST_CHANGED] = {0};
    for (int i = 0; i < n_keys; i++) {
        columns *row = columns_at(state + (size_t)i * stride);
        const columns *old = columns_from(from + (size_t)i * stride);
        for (int j = 0; j < n_vectors; j++) {
            columns x = old[j] * decay[i];
            row[j] = x;
            read[j] += k[i] * x;
        }
    }
    memcpy(change, v, (size_t)n_vectors * sizeof *change);
    for (int j = 0; j < n_vectors; j++) change[j] = beta * (change[j] - read[j]);
    for (int i = 0; i < n_keys; i++) {
        columns *row = columns_at(state + (size_t)i * stride);
        for (int j = 0; j < n_vectors; j++) {
            columns x = row[j] + k[i] * change[j];
            row[j] = x;
            sum[j] += q[i] * x;
        }
    }
    memcpy(out, sum, (size_t)n_vectors * sizeof *sum);
}

/* The same where a token adds `change` times its key whatever the state is. */
INLINE void add_columns(float *out, float *state, const float *from, const float *q, const float *k, const float *v,
                        float decay, float share, float skip, int n_keys, size_t stride, const int n_vectors) {
    columns value[MOST_ADDED], change[MOST_ADDED], sum[MOST_ADDED] = {0};
    memcpy(value, v, (size_t)n_vectors * sizeof *value);
    for (int j = 0; j < n_vectors; j++) change[j] = share * value[j];
    for (int i = 0; i < n_keys; i++) {
        columns *row = columns_at(state + (size_t)i * stride);
        const columns *old = columns_from(from + (size_t)i * stride);
        for (int j = 0; j < n_vectors; j++) {
            columns x = old[j] * decay + k[i] * change[j];
            row[j] = x;
            sum[j] += q[i] * x;
        }
    }
    for (int j = 0; j < n_vectors; j++) sum[j] += skip * value[j];
    memcpy(out, sum, (size_t)n_vectors * sizeof *sum);
}

static inline void state_space(float *out, float *state, const float *from, const float *q, const float *k,
                               const float *v, float decay, float share, float skip, int n_keys, int n) {
    enum { MOST = MOST_ADDED * LANES };
    int j = 0;
    for (; j + MOST <= n; j += MOST)
        add_columns(out + j, state + j, from + j, q, k, v + j, decay, share, skip, n_keys, (size_t)n, MOST_ADDED);
    for (; j < n; j += LANES)
        add_columns(out + j, state + j, from + j, q, k, v + j, decay, share, skip, n_keys, (size_t)n, 1);
}

static inline void delta_rule(float *out, float *state, const float *from, const float *q, const float *k,
                              const float *v, const float *decay, float beta, int n_keys, int n) {
    enum { MOST = MOST_CHANGED * LANES };
    int j = 0;
    for (; j + MOST <= n; j += MOST)
        change_columns(out + j, state + j, from + j, q, k, v + j, decay, beta, n_keys, (size_t)n, MOST_CHANGED);
    for (; j < n; j += LANES)
        change_columns(out + j, state + j, from + j, q, k, v + j, decay, beta, n_keys, (size_t)n, 1);
}

/* The functions of this header and of columns.h, as wide as LANES. */
static inline void fill_columns(ig_kernels *k) {
    k->softplus_mul = softplus_mul;
    k->xielu = xielu;
    k->gelu = gelu;
    k->gelu_erf = gelu_erf;
    k->convolve = convolve;
    k->forget = forget;
    k->delta_rule = delta_rule;
    k->state_space = state_space;
}

#endif
