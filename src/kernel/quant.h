/* SPDX-License-Identifier: Apache-2.0
 *
 * Layout of a prepared column of 8-bit activations (IG_ACT_Q8), shared by all levels.
 *
 * A column of n values, n a multiple of 32, is cut into groups of 32: x ~ d * q, q in
 * -127..127. Weights are affine in groups of 16 or 32, w = s * u + m, so a group contributes
 * d * (s * sum(u * q)) + m * (d * sum(q)). The sums of q are stored too: as floats for weights
 * with a minimum, and as integers times -128 for signed weights kept as u = code + 128, whose
 * integer accumulator then starts at that number. Codes are padded with zeros to a multiple
 * of 64, the planes to a multiple of 16 groups, so that vector loads never leave the column.
 */
#ifndef IG_KERNEL_QUANT_H
#define IG_KERNEL_QUANT_H

#include <stddef.h>
#include <stdint.h>

#include "base/half.h"
#include "kernel/parts.h"

typedef struct ig_q8 {
    int8_t *q;    /* [n up to 64] */
    float *d;     /* [groups] scale; NaN if the group has a value that is not finite */
    float *ds;    /* [groups] d * sum of q */
    int32_t *n32; /* [groups] -128 * sum of q */
    float *ds16;  /* [2 * groups] d * sum of q over 16 */
    int32_t *n16; /* [2 * groups] -128 * sum of q over 16 */
} ig_q8;

/* What the 4-bit codes of IQ4_NL and IQ4_XS stand for: closer together around 0, where weights are dense. */
#define IG_IQ4_VALUES -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113

/* What those of MXFP4 stand for (OCP Microscaling Formats, E2M1), times 2. */
#define IG_MXFP4_VALUES 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12

/* And the same plus IG_MXFP4_OFFSET. */
#define IG_MXFP4_CODES 12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0
enum { IG_MXFP4_OFFSET = 12 };

/* The scale of the block of MXFP4 at p, for these: an exponent in one byte, 0 and 1 of which make subnormal
 * floats. */
static inline float ig_mxfp4_scale(const uint8_t *p) {
    return ig_bits_f32(p[0] > 1 ? (uint32_t)(p[0] - 1) << 23 : 0x200000u << p[0]);
}

/* The scale of 16 codes of NVFP4, for the same: a float with 4 bits of exponent and 3 of mantissa, whose sign does not
 * count and of which 127 is none. The bits of a 16-bit float would be 2^-7 times it. */
static inline float ig_nvfp4_scale(uint8_t code) {
    code &= 127;
    return code == 127 ? 0 : ig_f16_f32((uint16_t)(code << 7)) * 128;
}

/* A byte of TQ1_0 has five numbers of 0, 1 and 2, of which number n is 3 (byte 3^n mod 256) >> 8. 32 elements are those
 * of 32 bytes, or of 16 and 16 (IG_TQ1_SECOND) or 16 and four times 4 (IG_TQ1_LAST); here are the powers for each. */
enum { IG_TQ1_SECOND = 32, IG_TQ1_LAST = 48, IG_TQ1_D = 52 };
#define IG_TQ1_4(n) n, n, n, n
#define IG_TQ1_16(n) IG_TQ1_4(n), IG_TQ1_4(n), IG_TQ1_4(n), IG_TQ1_4(n)
static const uint8_t ig_tq1_powers[8][32] = {
    {IG_TQ1_16(1), IG_TQ1_16(1)},   {IG_TQ1_16(3), IG_TQ1_16(3)},
    {IG_TQ1_16(9), IG_TQ1_16(9)},   {IG_TQ1_16(27), IG_TQ1_16(27)},
    {IG_TQ1_16(81), IG_TQ1_16(81)}, {IG_TQ1_16(1), IG_TQ1_16(3)},
    {IG_TQ1_16(9), IG_TQ1_16(27)},  {IG_TQ1_16(81), IG_TQ1_4(1), IG_TQ1_4(3), IG_TQ1_4(9), IG_TQ1_4(27)},
};

/* Scale number i, of 32 elements, of the block of IQ4_XS at p, without its factor d: d, the upper 2 bits of eight
 * scales, their lower 4, and 16 bytes of codes each. */
static inline int ig_iq4_xs_scale(const uint8_t *p, int i) {
    int low = p[4 + i / 2] >> 4 * (i % 2) & 15, high = (p[2] | p[3] << 8) >> 2 * i & 3;
    return (low | high << 4) - 32;
}

/* The 6-bit numbers of the block of Q4_K or Q5_K at p, a byte each: 8 scales, then 8 minimums. */
static inline void ig_q45_k_scales(uint64_t bytes[2], const uint8_t *p) {
    uint64_t a = ig_read_u32(p + 4), b = ig_read_u32(p + 8), c = ig_read_u32(p + 12);
    const uint64_t low6 = 0x3f3f3f3f, low4 = 0x0f0f0f0f, low2 = 0x03030303;
    bytes[0] = (a & low6) | ((c & low4) | (a >> 6 & low2) << 4) << 32;
    bytes[1] = (b & low6) | ((c >> 4 & low4) | (b >> 6 & low2) << 4) << 32;
}

/* The 16 scales of the block of Q3_K at p plus 32, a byte each. */
static inline void ig_q3_k_scales(uint64_t bytes[2], const uint8_t *p) {
    uint64_t low = ig_read_u64(p + 96), top = ig_read_u32(p + 104);
    const uint64_t low4 = 0x0f0f0f0f0f0f0f0full, bits45 = 0x3030303030303030ull;
    bytes[0] = (low & low4) | ((top << 4 | top << 34) & bits45);
    bytes[1] = (low >> 4 & low4) | ((top | top << 30) & bits45);
}

/* Largest magnitude taken for zero: the inverse scale must stay finite. */
#define IG_Q8_TINY 0x1p-100f

static inline size_t ig_q8_codes(int n) { return ((size_t)n + 63) / 64 * 64; }
static inline size_t ig_q8_groups(int n) { return ((size_t)n + 511) / 512 * 16; }
static inline size_t ig_q8_bytes(int n) { return ig_q8_codes(n) + ig_q8_groups(n) * 28; }

static inline ig_q8 ig_q8_view(const void *column, int n) {
    size_t g = ig_q8_groups(n);
    int8_t *q = (int8_t *)column;
    float *d = (float *)(void *)(q + ig_q8_codes(n));
    return (ig_q8){q, d, d + g, (int32_t *)(void *)(d + 2 * g), d + 3 * g, (int32_t *)(void *)(d + 5 * g)};
}

/* The scale of group g and the sums of its two halves' codes. */
static inline void ig_q8_put_sums(const ig_q8 *a, int g, float d, const int sums[2]) {
    a->d[g] = d;
    a->ds[g] = d * (float)(sums[0] + sums[1]);
    a->n32[g] = -128 * (sums[0] + sums[1]);
    for (int h = 0; h < 2; h++) {
        a->ds16[2 * g + h] = d * (float)sums[h];
        a->n16[2 * g + h] = -128 * sums[h];
    }
}

#endif
