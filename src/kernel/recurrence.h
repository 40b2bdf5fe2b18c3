/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels of layers with a recurrence: loops over columns, in vectors as wide as a level has them (LANES). Nothing is
 * added up across columns, so that all levels give the same bits.
 */
#ifndef IG_KERNEL_RECURRENCE_H
#define IG_KERNEL_RECURRENCE_H

#include "kernel/parts.h"

#ifndef LANES
#define LANES 4 /* floats of a vector, where a level's file does not say otherwise */
#endif

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

/* LANES columns of a state, a vector of the level; at any address of floats. */
typedef float columns __attribute__((vector_size(4 * LANES), aligned(4)));

INLINE columns *columns_at(float *x) { return (columns *)(void *)x; }
INLINE const columns *columns_from(const float *x) { return (const columns *)(const void *)x; }

typedef int32_t column_bits __attribute__((vector_size(4 * LANES), aligned(4)));

/* Of each lane the larger one of x and least; least where x is NaN. */
INLINE columns at_least(columns x, float least) {
    column_bits is_more = x > least;
    columns other = {0};
    other += least;
    return (columns)(((column_bits)x & is_more) | ((column_bits)other & ~is_more));
}

/* e^x, x <= 0: x = n ln 2 + r, a polynomial of degree 7 in r, times 2^n. Below -87 as there. */
INLINE columns exponential(columns x) {
    x = at_least(x, -87.0f);
    column_bits n = __builtin_convertvector(x * 1.44269504f - 0.5f, column_bits); /* towards 0 */
    columns whole = __builtin_convertvector(n, columns), r = x - whole * 0.693359375f - whole * -2.12194440e-4f;
    columns sum = r * (1.0f / 5040) + 1.0f / 720;
    sum = sum * r + 1.0f / 120;
    sum = sum * r + 1.0f / 24;
    sum = sum * r + 1.0f / 6;
    sum = sum * r + 0.5f;
    sum = sum * r + 1.0f;
    sum = sum * r + 1.0f;
    return sum * (columns)((n + 127) << 23);
}

/* ln(1 + e^x) = max(x, 0) + ln(1 + y) with y = e^-|x|, and ln(1 + y) = 2 artanh(y / (2 + y)). */
INLINE columns softplus(columns x) {
    columns above = at_least(x, 0), y = exponential(x - 2 * above), s = y / (2.0f + y), t = s * s;
    columns sum = t * (1.0f / 15) + 1.0f / 13;
    sum = sum * t + 1.0f / 11;
    sum = sum * t + 1.0f / 9;
    sum = sum * t + 1.0f / 7;
    sum = sum * t + 1.0f / 5;
    sum = sum * t + 1.0f / 3;
    sum = sum * t + 1.0f;
    return above + 2 * s * sum;
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

#endif
