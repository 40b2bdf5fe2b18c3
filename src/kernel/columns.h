/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops over columns that need nothing of each other, in vectors as wide as a level has them (LANES), as the compiler
 * makes them for it. Nothing is added up across columns, so that all levels give the same bits.
 */
#ifndef IG_KERNEL_COLUMNS_H
#define IG_KERNEL_COLUMNS_H

#include "kernel/parts.h"

#ifndef LANES
#define LANES 4 /* floats of a vector, where a level's file does not say otherwise */
#endif

/* LANES columns, a vector of the level; at any address of floats. */
typedef float columns __attribute__((vector_size(4 * LANES), aligned(4)));

INLINE columns *columns_at(float *x) { return (columns *)(void *)x; }
INLINE const columns *columns_from(const float *x) { return (const columns *)(const void *)x; }

typedef int32_t column_bits __attribute__((vector_size(4 * LANES), aligned(4)));

INLINE columns all_of(float x) {
    columns all = {0};
    return all + x;
}

/* Of each lane a where mask is set, else b. */
INLINE columns choose(column_bits mask, columns a, columns b) {
    return (columns)(((column_bits)a & mask) | ((column_bits)b & ~mask));
}

/* Of each lane the larger one of x and least; least where x is NaN. */
INLINE columns at_least(columns x, float least) { return choose(x > least, x, all_of(least)); }

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

/* f(x, beside) of n numbers, in place. Of the last ones there may be less than a vector. */
INLINE void each(float *x, const float *beside, int n, columns (*f)(columns x, columns beside, const float *p),
                 const float *p) {
    int i = 0;
    for (; i + LANES <= n; i += LANES) *columns_at(x + i) = f(*columns_from(x + i), *columns_from(beside + i), p);
    if (i == n) return;
    columns last[2] = {0};
    size_t size = (size_t)(n - i) * sizeof *x;
    memcpy(&last[0], x + i, size);
    memcpy(&last[1], beside + i, size);
    last[0] = f(last[0], last[1], p);
    memcpy(x + i, &last[0], size);
}

/* What is not finite stays so. */
INLINE columns times_softplus(columns x, columns beside, const float *p) {
    (void)p;
    return softplus(x) * beside + 0 * x;
}

static inline void softplus_mul(float *gate, const float *up, int n) { each(gate, up, n, times_softplus, NULL); }

INLINE columns xielu_of(columns x, columns beside, const float *p) {
    columns least = choose(x < p[3], x, all_of(p[3]));
    columns above = (p[0] * x + p[2]) * x, below = p[1] * (exponential(least) - 1.0f - x) + p[2] * x;
    (void)beside;
    return choose(x > 0, above, below);
}

static inline void xielu(float *x, const float *p, int n) { each(x, x, n, xielu_of, p); }

/* x times the sigmoid of y. What is not finite stays so. */
INLINE columns times_sigmoid(columns x, columns y) {
    columns small = exponential(choose(y > 0, -y, y)), one = all_of(1);
    return x * choose(y > 0, one, small) / (one + small) + 0 * x;
}

INLINE columns gelu_of(columns x, columns beside, const float *p) {
    (void)beside, (void)p;
    return times_sigmoid(x, x * (IG_GELU_1 + IG_GELU_3 * x * x));
}

static inline void gelu(float *x, int n) { each(x, x, n, gelu_of, NULL); }

/* The share beyond |x|, half of erfc(|x| / sqrt(2)), is a polynomial in t = 1 / (1 + p |x| / sqrt(2)) times e^-(x^2/2)
 * (Abramowitz and Stegun, 1964, 7.1.26). */
INLINE columns gelu_erf_of(columns x, columns beside, const float *p) {
    columns size = choose(x > 0, x, -x), t = 1.0f / (1.0f + 0.231641888f * size);
    columns sum = t * 1.061405429f - 1.453152027f;
    sum = sum * t + 1.421413741f;
    sum = sum * t - 0.284496736f;
    sum = sum * t + 0.254829592f;
    columns beyond = 0.5f * sum * t * exponential(-0.5f * x * x);
    (void)beside, (void)p;
    return x * choose(x > 0, 1.0f - beyond, beyond) + 0 * x;
}

static inline void gelu_erf(float *x, int n) { each(x, x, n, gelu_erf_of, NULL); }

#endif
