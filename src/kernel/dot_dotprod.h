/* SPDX-License-Identifier: Apache-2.0
 *
 * The sums of dot_neon.h with the dot product instructions of ARMv8.2 (ASIMDDP).
 */
#ifndef IG_KERNEL_DOT_DOTPROD_H
#define IG_KERNEL_DOT_DOTPROD_H

#include <arm_neon.h>

static inline int32x4_t dot_dotprod(int32x4_t sum, int8x16_t a, int8x16_t b) { return vdotq_s32(sum, a, b); }

static inline int32x4_t dot_rows_dotprod(int32x4_t sum, const int8x16_t w[4], int8x16_t x) {
    sum = vdotq_laneq_s32(sum, w[0], x, 0);
    sum = vdotq_laneq_s32(sum, w[1], x, 1);
    sum = vdotq_laneq_s32(sum, w[2], x, 2);
    return vdotq_laneq_s32(sum, w[3], x, 3);
}

static inline uint32x4_t dot_rows_unsigned_dotprod(uint32x4_t sum, const uint8x16_t w[4], uint8x16_t x) {
    sum = vdotq_laneq_u32(sum, w[0], x, 0);
    sum = vdotq_laneq_u32(sum, w[1], x, 1);
    sum = vdotq_laneq_u32(sum, w[2], x, 2);
    return vdotq_laneq_u32(sum, w[3], x, 3);
}

#endif
