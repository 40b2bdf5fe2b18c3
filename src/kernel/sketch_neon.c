/* SPDX-License-Identifier: Apache-2.0
 *
 * The sketches of keys and values for NEON.
 */
#include "kernel/sketch_neon.h"

/* ---- keys ------------------------------------------------------------------------ */

/* Codes of 4 dims of a key, and what they add to the sums of all. */
typedef struct key_sums {
    float32x4_t c, cc, x, cx;
} key_sums;

INLINE uint32x4_t key_codes(key_sums *s, const uint16_t *key, float lo, float to_code) {
    float32x4_t x = vsubq_f32(within_f16(load_f16(key)), vdupq_n_f32(lo));
    uint32x4_t code = vcvtnq_u32_f32(vmulq_n_f32(x, to_code));
    float32x4_t f = vcvtq_f32_u32(code);
    s->c = vaddq_f32(s->c, f);
    s->cc = vfmaq_f32(s->cc, f, f);
    s->x = vaddq_f32(s->x, x);
    s->cx = vfmaq_f32(s->cx, f, x);
    return code;
}

static void sketch_put_neon(void *block, int t, const uint16_t *key, int d) {
    float32x4_t low = vdupq_n_f32(INFINITY), high = vdupq_n_f32(-INFINITY), zero = vdupq_n_f32(0);
    for (int i = 0; i < d; i += 4) {
        float32x4_t x = within_f16(load_f16(key + i));
        low = vminq_f32(low, x);
        high = vmaxq_f32(high, x);
    }
    float lo = vminvq_f32(low), hi = vmaxvq_f32(high), to_code = hi > lo ? 15.0f / (hi - lo) : 0.0f;
    key_sums s = {zero, zero, zero, zero};
    uint8_t *codes = (uint8_t *)block + IG_SKETCH_CODES + 4 * t;
    for (int i = 0; i < d; i += 8) {
        uint32x4_t first = key_codes(&s, key + i, lo, to_code), second = key_codes(&s, key + i + 4, lo, to_code);
        uint16x4_t pairs = vmovn_u32(vorrq_u32(first, vshlq_n_u32(second, 4)));
        uint8x8_t bytes = vmovn_u16(vcombine_u16(pairs, pairs));
        vst1_lane_u32((uint32_t *)(void *)(codes + 8 * i), vreinterpret_u32_u8(bytes), 0);
    }
    ig_sketch_sums sums = {vaddvq_f32(s.c), vaddvq_f32(s.cc), vaddvq_f32(s.x), vaddvq_f32(s.cx)};
    ig_sketch_finish(block, t, lo, &sums, d);
}

static void sketch_scores_neon(float *scores, size_t stride, const float *q, int n_q, int d, float scale,
                               const void *blocks, int n_blocks) {
    sketch_scores(scores, stride, q, n_q, d, scale, blocks, n_blocks, dot_rows_neon);
}

/* ---- values ---------------------------------------------------------------------- */

static void value_put_neon(void *block, int t, const float *x, int d) {
    float32x4_t squares = vdupq_n_f32(0), xc = squares;
    for (int i = 0; i < d; i += 4) {
        float32x4_t v = within_f16(vld1q_f32(x + i));
        squares = vfmaq_f32(squares, v, v);
    }
    float square = vaddvq_f32(squares), far = ig_value_threshold(square, d);
    int shift = t % 4 * 8 + t / 4 * 2;
    uint32x4_t bits = vdupq_n_u32(3u << shift);
    uint8_t *codes = (uint8_t *)block + IG_VALUE_CODES;
    for (int i = 0; i < d; i += 4) {
        float32x4_t v = within_f16(vld1q_f32(x + i));
        uint32x4_t above = vaddq_u32(vcgezq_f32(v), vaddq_u32(vcgeq_f32(v, vdupq_n_f32(far)),
                                                              vcgeq_f32(v, vdupq_n_f32(-far)))); /* -1 for each */
        uint32x4_t code = vsubq_u32(vdupq_n_u32(0), above);
        xc = vfmaq_f32(xc, v, vsubq_f32(vcvtq_f32_u32(code), vdupq_n_f32(1.5f)));
        uint32_t *at = (uint32_t *)(void *)(codes + 4 * i);
        vst1q_u32(at, vbslq_u32(bits, vshlq_u32(code, vdupq_n_s32(shift)), vld1q_u32(at)));
    }
    ig_value_finish(block, t, vaddvq_f32(xc), square);
}

static void value_sums_neon(float *acc, const float *w, size_t stride, int n_q, int d, const void *blocks,
                            int n_blocks) {
    value_sums(acc, w, stride, n_q, d, blocks, n_blocks, dot_rows_unsigned_neon);
}

/* ---- hadamard -------------------------------------------------------------------- */

/* Sums and differences of lanes and those that `swapped` has in their place; sign is -1 for the lanes of the
 * differences. Exactly a + b and a - b, as nothing is rounded but the result. */
static float32x4_t butterfly(float32x4_t x, float32x4_t swapped, const float sign[4]) {
    return vfmaq_f32(swapped, x, vld1q_f32(sign));
}

static void transform(float *x, int n, float scale) {
    for (int i = 0; i < n; i += 4) {
        float32x4_t v = vld1q_f32(x + i);
        v = butterfly(v, vrev64q_f32(v), (const float[]){1, -1, 1, -1});
        vst1q_f32(x + i, butterfly(v, vextq_f32(v, v, 2), (const float[]){1, 1, -1, -1}));
    }
    for (int half = 4; half < n; half *= 2) {
        float by = 2 * half == n ? scale : 1;
        for (int i = 0; i < n; i += 4) {
            if (i & half) continue;
            float32x4_t a = vld1q_f32(x + i), b = vld1q_f32(x + i + half);
            vst1q_f32(x + i, vmulq_n_f32(vaddq_f32(a, b), by));
            vst1q_f32(x + i + half, vmulq_n_f32(vsubq_f32(a, b), by));
        }
    }
}

static void hadamard_neon(float *x, int d) {
    int n = d & -d;
    float scale = 1 / sqrtf((float)n);
    for (float *end = x + d; x < end; x += n) transform(x, n, scale);
}

void ig_kernels_fill_sketch_neon(ig_kernels *k) {
    k->sketch_put = sketch_put_neon;
    k->sketch_scores = sketch_scores_neon;
    k->value_put = value_put_neon;
    k->value_sums = value_sums_neon;
    k->hadamard = hadamard_neon;
}
