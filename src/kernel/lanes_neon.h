/* SPDX-License-Identifier: Apache-2.0
 *
 * Small helpers of the NEON kernels: tails, 16-bit floats, sums and maximums, exp.
 */
#ifndef IG_KERNEL_LANES_NEON_H
#define IG_KERNEL_LANES_NEON_H

#include <arm_neon.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

/* The first n of 4 lanes, all if n is larger; the others are `rest`. */
static inline float32x4_t load_first(const float *x, int n, float rest) {
    if (n >= 4) return vld1q_f32(x);
    float lanes[4] = {rest, rest, rest, rest};
    memcpy(lanes, x, (size_t)n * sizeof *x);
    return vld1q_f32(lanes);
}

static inline void store_first(float *x, float32x4_t v, int n) {
    float lanes[4];
    if (n >= 4) {
        vst1q_f32(x, v);
        return;
    }
    vst1q_f32(lanes, v);
    memcpy(x, lanes, (size_t)n * sizeof *x);
}

static inline float32x4_t load_f16(const uint16_t *x) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(x))); }

static inline void store_f16(uint16_t *x, float32x4_t v) { vst1_u16(x, vreinterpret_u16_f16(vcvt_f16_f32(v))); }

static inline float32x4_t sum4(const float32x4_t v[4]) {
    return vaddq_f32(vaddq_f32(v[0], v[1]), vaddq_f32(v[2], v[3]));
}

/* The largest of n, -INFINITY of none. Of a number and NaN the maximum is the number. */
static inline float largest(const float *x, int n) {
    float32x4_t none = vdupq_n_f32(-INFINITY), m[4] = {none, none, none, none};
    int i = 0;
    for (; i + 16 <= n; i += 16)
        for (int j = 0; j < 4; j++) m[j] = vmaxnmq_f32(m[j], vld1q_f32(x + i + 4 * j));
    for (; i < n; i += 4) m[0] = vmaxnmq_f32(m[0], load_first(x + i, n - i, -INFINITY));
    return vmaxnmvq_f32(vmaxnmq_f32(vmaxnmq_f32(m[0], m[1]), vmaxnmq_f32(m[2], m[3])));
}

/* x where the mask is set, else 0. */
static inline float32x4_t where(uint32x4_t mask, float32x4_t x) {
    return vreinterpretq_f32_u32(vandq_u32(mask, vreinterpretq_u32_f32(x)));
}

/* 2^n of a whole n in -126..127. */
static inline float32x4_t power_of_2(int32x4_t n) {
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n, vdupq_n_s32(127)), 23));
}

/* exp, x <= 0, to about 1 ulp: x = n ln 2 + r, a polynomial of degree 6 in r (minimax), times 2^n in two steps so
 * that both factors are normal numbers. Below -105 the result rounds to 0; the limit keeps n in range. NaN stays
 * NaN. */
static inline float32x4_t exp_negative(float32x4_t x) {
    x = vmaxq_f32(x, vdupq_n_f32(-105.0f));
    float32x4_t n = vrndnq_f32(vmulq_n_f32(x, 0x1.715476p0f));
    float32x4_t r = vfmsq_f32(x, n, vdupq_n_f32(0x1.62e4p-1f));
    r = vfmsq_f32(r, n, vdupq_n_f32(0x1.7f7d1cp-20f));
    float32x4_t p = vdupq_n_f32(0x1.6a23cep-10f);
    p = vfmaq_f32(vdupq_n_f32(0x1.123a2p-7f), p, r);
    p = vfmaq_f32(vdupq_n_f32(0x1.5558f2p-5f), p, r);
    p = vfmaq_f32(vdupq_n_f32(0x1.555492p-3f), p, r);
    p = vfmaq_f32(vdupq_n_f32(0x1.fffffcp-2f), p, r);
    p = vfmaq_f32(r, p, vmulq_f32(r, r));
    p = vaddq_f32(p, vdupq_n_f32(1.0f));
    int32x4_t whole = vcvtq_s32_f32(n), half = vshrq_n_s32(whole, 1);
    return vmulq_f32(vmulq_f32(p, power_of_2(half)), power_of_2(vsubq_s32(whole, half)));
}

/* Of any x: above 89 the result rounds to infinity. */
static inline float32x4_t exp_lanes(float32x4_t x) { return exp_negative(vminq_f32(x, vdupq_n_f32(89.0f))); }

/* NaN as 0, and nothing beyond +-most. */
static inline float32x4_t within(float32x4_t x, float most) {
    x = where(vceqq_f32(x, x), x);
    return vmaxq_f32(vminq_f32(x, vdupq_n_f32(most)), vdupq_n_f32(-most));
}

/* As ig_sketch_value() of kernel/sketch.h. */
static inline float32x4_t within_f16(float32x4_t x) { return within(x, 65504.0f); }

#endif
