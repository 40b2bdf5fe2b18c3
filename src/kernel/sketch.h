/* SPDX-License-Identifier: Apache-2.0
 *
 * What the sketch kernels of all CPU levels share: the parts of blocks (their layout is in
 * kernel.h), the line through a key's codes, the 8-bit query, the step of a value.
 */
#ifndef IG_KERNEL_SKETCH_H
#define IG_KERNEL_SKETCH_H

#include <math.h>
#include <string.h>

#include "base/half.h"
#include "kernel/kernel.h"

enum {
    IG_SKETCH_CODES = 2 * IG_SKETCH_TOKENS * (int)sizeof(float), /* where the codes begin */
    IG_SKETCH_QUERIES = 16,                                      /* quantised at a time */
};

/* Sums over the dims of a key: codes, their squares, values above the smallest, products. */
typedef struct ig_sketch_sums {
    float c, cc, x, cx;
} ig_sketch_sums;

/* A key's element as the sketch sees it: finite, so that every score is. */
static inline float ig_sketch_value(float x) {
    if (x != x) return 0;
    return x > 65504.0f ? 65504.0f : x < -65504.0f ? -65504.0f : x;
}

/* Sets step and min of token t to the least-squares line through (code, value). */
static inline void ig_sketch_finish(void *block, int t, float lo, const ig_sketch_sums *s, int d) {
    double n = d, spread = n * s->cc - (double)s->c * s->c;
    float step = spread > 0 ? (float)((n * s->cx - (double)s->c * s->x) / spread) : 0.0f;
    float min = d ? lo + (s->x - step * s->c) / (float)d : 0.0f;
    memcpy((uint8_t *)block + 4 * t, &step, sizeof step);
    memcpy((uint8_t *)block + 4 * (IG_SKETCH_TOKENS + t), &min, sizeof min);
}

/* q ~ scale * q8 in -127..127; returns scale and the sum of q8. A query that is zero or not finite gives scale 0.
 * q8 has room for IG_KV_DIMS. Bits of floats are compared, where NaN is above infinity, and adding 1.5 * 2^23
 * rounds to an integer in the low bits: both are what a compiler can turn into vectors. */
static inline float ig_sketch_query(int8_t *q8, int *q8_sum, const float *q, int d) {
    uint32_t largest = 0;
    for (int i = 0; i < d; i++) {
        uint32_t bits = ig_f32_bits(q[i]) & 0x7fffffffu;
        largest = bits > largest ? bits : largest;
    }
    *q8_sum = 0;
    memset(q8, 0, IG_KV_DIMS);
    float top = ig_bits_f32(largest);
    if (!(top > 1e-30f && top < INFINITY)) return 0;
    float inverse = 127.0f / top;
    int sum = 0;
    for (int i = 0; i < d; i++) {
        int code = (int)(ig_f32_bits(q[i] * inverse + 0x1.8p23f) - 0x4b400000u);
        q8[i] = (int8_t)code;
        sum += code;
    }
    *q8_sum = sum;
    return top / 127.0f;
}

/* The queries of one pass, in 8 bits. */
typedef struct ig_sketch_queries {
    int32_t q8[IG_SKETCH_QUERIES][IG_KV_DIMS / 4]; /* bytes, of 4 dims each, to be broadcast from memory */
    float scale[IG_SKETCH_QUERIES];                /* times the scale of the scores */
    float sum[IG_SKETCH_QUERIES];                  /* of q8 */
} ig_sketch_queries;

/* n queries q [n][d], n at most IG_SKETCH_QUERIES. */
static inline void ig_sketch_quantize(ig_sketch_queries *out, const float *q, int n, int d, float scale) {
    for (int g = 0; g < n; g++) {
        int sum;
        out->scale[g] = ig_sketch_query((int8_t *)out->q8[g], &sum, q + (size_t)g * (size_t)d, d) * scale;
        out->sum[g] = (float)sum;
    }
}

/* ---- values ---------------------------------------------------------------- */

enum { IG_VALUE_CODES = 2 * IG_SKETCH_TOKENS }; /* where the codes begin */

#define IG_VALUE_LEAST 1e-30f /* a block whose largest step * weight is no more counts nothing */

/* From where on, in both directions, values get the outer codes: for normally distributed ones the best threshold of
 * four evenly spaced levels (Max, "Quantizing for minimum distortion", 1960). */
static inline float ig_value_threshold(float squares, int d) { return d ? 0.9957f * sqrtf(squares / (float)d) : 0; }

/* Sets the step of token t from the sums of value * (code - 1.5) and of value^2: the one with which the product of the
 * kept value with the value is that of the value with itself. It is larger than the one nearest to the value, which in
 * sums of many makes all of them too small by the share that it leaves out (RaBitQ's estimator, Gao and Long 2024).
 * It is not negative, as no value has another sign than its code; it can be beyond what 16 bits hold. */
static inline void ig_value_finish(void *block, int t, float xc, float squares) {
    uint16_t step = ig_f32_f16(ig_sketch_value(xc > 0 ? squares / xc : 0));
    memcpy((uint8_t *)block + 2 * t, &step, sizeof step);
}

#endif
