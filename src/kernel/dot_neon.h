/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums of products of bytes with the instructions of ARMv8.0. Two products of -128..127 and -127..127 are added up in
 * 16 bits, before they are widened. dot_dotprod.h has the same sums in one instruction each.
 */
#ifndef IG_KERNEL_DOT_NEON_H
#define IG_KERNEL_DOT_NEON_H

#include <arm_neon.h>

/* Adds the products of 16 elements; which of them go to which lane is left open. */
typedef int32x4_t (*dot_fn)(int32x4_t sum, int8x16_t a, int8x16_t b);

/* Adds to lane r the products of x[0..15] with 16 elements of row r: bytes 4r to 4r + 3 of w[i] are elements 4i to
 * 4i + 3 of it. */
typedef int32x4_t (*dot_rows_fn)(int32x4_t sum, const int8x16_t w[4], int8x16_t x);

/* The same of unsigned bytes; those of w are at most 3. */
typedef uint32x4_t (*dot_rows_unsigned_fn)(uint32x4_t sum, const uint8x16_t w[4], uint8x16_t x);

static inline int32x4_t dot_neon(int32x4_t sum, int8x16_t a, int8x16_t b) {
    int16x8_t pairs = vmull_s8(vget_low_s8(a), vget_low_s8(b));
    return vpadalq_s16(sum, vmlal_s8(pairs, vget_high_s8(a), vget_high_s8(b)));
}

/* Four bytes of x, twice. */
static inline int8x8_t quad_neon(int8x16_t x, int i) {
    return vreinterpret_s8_s32(vdup_n_s32(vreinterpretq_s32_s8(x)[i]));
}

static inline int32x4_t dot_rows_neon(int32x4_t sum, const int8x16_t w[4], int8x16_t x) {
    int32x4_t low = vdupq_n_s32(0), high = low; /* two lanes a row */
    for (int i = 0; i < 4; i += 2) {
        int8x8_t a = quad_neon(x, i), b = quad_neon(x, i + 1);
        int16x8_t l = vmull_s8(vget_low_s8(w[i]), a), h = vmull_s8(vget_high_s8(w[i]), a);
        low = vpadalq_s16(low, vmlal_s8(l, vget_low_s8(w[i + 1]), b));
        high = vpadalq_s16(high, vmlal_s8(h, vget_high_s8(w[i + 1]), b));
    }
    return vaddq_s32(sum, vpaddq_s32(low, high));
}

/* All 16 products of a row fit 16 bits. */
static inline uint32x4_t dot_rows_unsigned_neon(uint32x4_t sum, const uint8x16_t w[4], uint8x16_t x) {
    uint16x8_t low = vdupq_n_u16(0), high = low; /* four lanes a row */
    for (int i = 0; i < 4; i++) {
        uint8x8_t a = vreinterpret_u8_s8(quad_neon(vreinterpretq_s8_u8(x), i));
        low = vmlal_u8(low, vget_low_u8(w[i]), a);
        high = vmlal_u8(high, vget_high_u8(w[i]), a);
    }
    return vpadalq_u16(sum, vpaddq_u16(low, high));
}

#endif
