/* SPDX-License-Identifier: Apache-2.0
 *
 * Quantised blocks in NEON registers: 16 codes a register, in the order of the elements.
 *
 * Codes are signed, those of types without minimums less their offset. Nothing outside the block is read.
 */
#ifndef IG_KERNEL_QUANT_NEON_H
#define IG_KERNEL_QUANT_NEON_H

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#include "base/half.h"
#include "kernel/codebook.h"
#include "kernel/parts.h"
#include "kernel/quant.h"

/* A block of 32 to 256 elements; what a type or a smaller block has not is not set. */
typedef struct block {
    int8x16_t code[16];
    float scale[16], min[16]; /* per 16 or 32 elements */
} block;

static inline float half_float(uint16_t h) {
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(h))), 0);
}

static inline float read_f16(const uint8_t *p) {
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return half_float(h);
}

/* Codes less an offset. */
static inline int8x16_t less(uint8x16_t code, int offset) {
    return vsubq_s8(vreinterpretq_s8_u8(code), vdupq_n_s8((int8_t)offset));
}

static inline uint8x16_t low_nibbles(uint8x16_t v) { return vandq_u8(v, vdupq_n_u8(15)); }

/* `value` in each byte of v that has one of the bits. */
static inline uint8x16_t where_bits(uint8x16_t v, uint8x16_t bits, int value) {
    return vandq_u8(vtstq_u8(v, bits), vdupq_n_u8((uint8_t)value));
}

/* ---- blocks of 32 ------------------------------------------------------------ */

/* 16 bytes: 16 low nibbles, then 16 high ones. */
static inline void nibbles(block *b, const uint8_t *p, int offset) {
    uint8x16_t v = vld1q_u8(p);
    b->code[0] = less(low_nibbles(v), offset);
    b->code[1] = less(vshrq_n_u8(v, 4), offset);
}

/* The same with fifth bits from the 32 at `high`. */
static inline void nibbles_and_bits(block *b, const uint8_t *p, const uint8_t *high, int offset) {
    const uint8x16_t bits = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201ull));
    uint8x16_t v = vld1q_u8(p), low[2] = {low_nibbles(v), vshrq_n_u8(v, 4)};
    for (int i = 0; i < 2; i++) {
        uint8x16_t bytes = vcombine_u8(vdup_n_u8(high[2 * i]), vdup_n_u8(high[2 * i + 1]));
        b->code[i] = less(vorrq_u8(low[i], where_bits(bytes, bits, 16)), offset);
    }
}

static inline void load_q4_0(block *b, const uint8_t *p) {
    b->scale[0] = read_f16(p);
    nibbles(b, p + 2, 8);
}

static inline void load_q4_1(block *b, const uint8_t *p) {
    b->scale[0] = read_f16(p);
    b->min[0] = read_f16(p + 2);
    nibbles(b, p + 4, 0);
}

static inline void load_q5_0(block *b, const uint8_t *p) {
    b->scale[0] = read_f16(p);
    nibbles_and_bits(b, p + 6, p + 2, 16);
}

static inline void load_q5_1(block *b, const uint8_t *p) {
    b->scale[0] = read_f16(p);
    b->min[0] = read_f16(p + 2);
    nibbles_and_bits(b, p + 8, p + 4, 0);
}

static inline void load_q8_0(block *b, const uint8_t *p) {
    b->scale[0] = read_f16(p);
    for (int i = 0; i < 2; i++) b->code[i] = less(vld1q_u8(p + 2 + 16 * i), 0);
}

static const int8_t iq4_values[16] = {IG_IQ4_VALUES}, mxfp4_values[16] = {IG_MXFP4_VALUES};

/* Nibbles as in Q4_0, by the table of their values. */
static inline void put_values(int8x16_t code[2], const uint8_t *p, const int8_t values[16]) {
    uint8x16_t v = vld1q_u8(p);
    code[0] = vqtbl1q_s8(vld1q_s8(values), low_nibbles(v));
    code[1] = vqtbl1q_s8(vld1q_s8(values), vshrq_n_u8(v, 4));
}

static inline void load_iq4_nl(block *b, const uint8_t *p) {
    b->scale[0] = read_f16(p);
    put_values(b->code, p + 2, iq4_values);
}

static inline void load_mxfp4(block *b, const uint8_t *p) {
    b->scale[0] = ig_mxfp4_scale(p);
    put_values(b->code, p + 1, mxfp4_values);
}

/* ---- blocks of 64 to 256 with one scale, or one of each 16 ---------------------- */

static inline void same_scale(block *b, int n, float scale) {
    for (int i = 0; i < n / 32; i++) b->scale[i] = scale;
}

/* Four scales, then 8 bytes for each 16 codes: 8 low nibbles, then 8 high ones. */
static inline void load_nvfp4(block *b, const uint8_t *p) {
    for (int i = 0; i < 4; i++) {
        uint8x8_t v = vld1_u8(p + 4 + 8 * i);
        uint8x16_t index = vcombine_u8(vand_u8(v, vdup_n_u8(15)), vshr_n_u8(v, 4));
        b->scale[i] = ig_nvfp4_scale(p[i]);
        b->code[i] = vqtbl1q_s8(vld1q_s8(mxfp4_values), index);
    }
}

static inline void load_q1_0(block *b, const uint8_t *p) {
    const uint8x16_t bits = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201ull));
    same_scale(b, 128, read_f16(p));
    for (int i = 0; i < 8; i++) {
        uint8x16_t v = vcombine_u8(vdup_n_u8(p[2 + 2 * i]), vdup_n_u8(p[3 + 2 * i]));
        b->code[i] = less(where_bits(v, bits, 2), 1);
    }
}

static inline void load_q2_0(block *b, const uint8_t *p) {
    const int8x16_t shifts = vreinterpretq_s8_u32(vdupq_n_u32(0xfafcfe00u)); /* 0, -2, -4, -6 */
    same_scale(b, 64, read_f16(p));
    for (int i = 0; i < 4; i++) {
        uint8x16_t v = vreinterpretq_u8_u32(vdupq_n_u32(ig_read_u32(p + 2 + 4 * i)));
        const uint8x16_t each = vreinterpretq_u8_u32((uint32x4_t){0, 0x01010101u, 0x02020202u, 0x03030303u});
        v = vshlq_u8(vqtbl1q_u8(v, each), shifts);
        b->code[i] = less(vandq_u8(v, vdupq_n_u8(3)), 1);
    }
}

/* ig_tq1_powers has how numbers lie in bytes. */
static inline void load_tq1_0(block *b, const uint8_t *p) {
    const uint8x16_t first[2] = {vld1q_u8(p), vld1q_u8(p + 16)}, second = vld1q_u8(p + IG_TQ1_SECOND);
    const uint8x16_t last = vreinterpretq_u8_u32(vdupq_n_u32(ig_read_u32(p + IG_TQ1_LAST)));
    same_scale(b, 256, read_f16(p + IG_TQ1_D));
    for (int i = 0; i < 16; i++) {
        uint8x16_t v = i < 10 ? first[i % 2] : i < 15 ? second : last;
        v = vmulq_u8(v, vld1q_u8(ig_tq1_powers[i / 2] + 16 * (i % 2)));
        uint8x16_t code =
            vaddq_u8(vshrq_n_u8(vcgeq_u8(v, vdupq_n_u8(86)), 7), vshrq_n_u8(vcgeq_u8(v, vdupq_n_u8(171)), 7));
        b->code[i] = less(code, 1);
    }
}

/* ---- blocks of 256 ------------------------------------------------------------ */

/* Eight scales or minimums from bytes. */
static inline void put_scales(float *dst, int8x8_t bytes, float d) {
    int16x8_t words = vmovl_s8(bytes);
    vst1q_f32(dst, vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(words))), d));
    vst1q_f32(dst + 4, vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(vget_high_s16(words))), d));
}

static inline void put_scales16(float *dst, int8x16_t bytes, float d) {
    put_scales(dst, vget_low_s8(bytes), d);
    put_scales(dst + 8, vget_high_s8(bytes), d);
}

/* d, dmin and the 6-bit numbers of Q4_K and Q5_K. */
static inline void scales_k(block *w, const uint8_t *p) {
    uint64_t bytes[2];
    ig_q45_k_scales(bytes, p);
    put_scales(w->scale, vcreate_s8(bytes[0]), read_f16(p));
    put_scales(w->min, vcreate_s8(bytes[1]), -read_f16(p + 2));
}

static inline void load_q4_k(block *w, const uint8_t *p) {
    scales_k(w, p);
    for (int i = 0; i < 8; i++) {
        uint8x16_t v = vld1q_u8(p + 16 + 16 * i);
        int8x16_t *code = w->code + i / 2 * 4 + i % 2;
        code[0] = less(low_nibbles(v), 0);
        code[2] = less(vshrq_n_u8(v, 4), 0);
    }
}

static inline void load_q5_k(block *w, const uint8_t *p) {
    const uint8x16_t high[2] = {vld1q_u8(p + 16), vld1q_u8(p + 32)};
    scales_k(w, p);
    for (int i = 0; i < 8; i++) {
        uint8x16_t v = vld1q_u8(p + 48 + 16 * i), bit = vdupq_n_u8((uint8_t)(1 << i / 2 * 2));
        int8x16_t *code = w->code + i / 2 * 4 + i % 2;
        code[0] = less(vorrq_u8(low_nibbles(v), where_bits(high[i % 2], bit, 16)), 0);
        code[2] = less(vorrq_u8(vshrq_n_u8(v, 4), where_bits(high[i % 2], vaddq_u8(bit, bit), 16)), 0);
    }
}

static inline void load_q6_k(block *w, const uint8_t *p) {
    const uint8x16_t bits45 = vdupq_n_u8(0x30);
    for (int i = 0; i < 4; i++) { /* bytes 16i of 64: 32 of each half */
        const uint8_t *low = p + i / 2 * 64 + i % 2 * 16;
        uint8x16_t a = vld1q_u8(low), b = vld1q_u8(low + 32), high = vld1q_u8(p + 128 + 16 * i);
        int8x16_t *code = w->code + i / 2 * 8 + i % 2;
        code[0] = less(vorrq_u8(low_nibbles(a), vandq_u8(vshlq_n_u8(high, 4), bits45)), 32);
        code[2] = less(vorrq_u8(low_nibbles(b), vandq_u8(vshlq_n_u8(high, 2), bits45)), 32);
        code[4] = less(vorrq_u8(vshrq_n_u8(a, 4), vandq_u8(high, bits45)), 32);
        code[6] = less(vorrq_u8(vshrq_n_u8(b, 4), vandq_u8(vshrq_n_u8(high, 2), bits45)), 32);
    }
    put_scales16(w->scale, vld1q_s8((const int8_t *)p + 192), read_f16(p + 208));
}

/* The 2-bit codes of Q2_K, Q3_K and TQ2_0, with the bits of value 4 that are 1 and with the offset of Q3_K. */
static inline void codes2(block *w, const uint8_t *p, const uint8_t *high, int offset) {
    const uint8x16_t low2 = vdupq_n_u8(3);
    for (int i = 0; i < 16; i++) {
        uint8x16_t v = vld1q_u8(p + i / 8 * 32 + i % 2 * 16);
        v = vandq_u8(vshlq_u8(v, vdupq_n_s8((int8_t) - (i / 2 % 4 * 2))), low2);
        if (high) v = vorrq_u8(v, where_bits(vld1q_u8(high + i % 2 * 16), vdupq_n_u8((uint8_t)(1 << i / 2)), 4));
        w->code[i] = less(v, offset);
    }
}

static inline void load_tq2_0(block *w, const uint8_t *p) {
    codes2(w, p, NULL, 1);
    same_scale(w, 256, read_f16(p + 64));
}

static inline void load_q2_k(block *w, const uint8_t *p) {
    uint8x16_t bytes = vld1q_u8(p);
    codes2(w, p + 16, NULL, 0);
    put_scales16(w->scale, less(low_nibbles(bytes), 0), read_f16(p + 80));
    put_scales16(w->min, less(vshrq_n_u8(bytes, 4), 0), -read_f16(p + 82));
}

static inline void load_q3_k(block *w, const uint8_t *p) {
    codes2(w, p + 32, p, 4);
    uint64_t scales[2];
    ig_q3_k_scales(scales, p);
    uint8x16_t bytes = vcombine_u8(vcreate_u8(scales[0]), vcreate_u8(scales[1]));
    put_scales16(w->scale, less(bytes, 32), read_f16(p + 108));
}

/* The codebook formats. */
INLINE void load_book(block *w, const uint8_t *p, ig_book_entry_fn entry, ig_book_signs_fn signs,
                      const uint64_t steps[2], float d, const int offset, const ig_signs kind) {
    const uint8x16_t bits = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201ull));
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
        int8x16_t v = vcombine_s8(vcreate_s8(entry(p, 2 * i)), vcreate_s8(entry(p, 2 * i + 1)));
        uint32_t of16 = kind == IG_SIGNS_EVEN ? ig_even_signs(signs(p, i / 2)) : signs(p, i / 2);
        of16 >>= 16 * (i % 2);
        uint8x16_t set = vtstq_u8(vcombine_u8(vdup_n_u8((uint8_t)of16), vdup_n_u8((uint8_t)(of16 >> 8))), bits);
        if (kind == IG_SIGNS_EIGHTH)
            w->code[i] =
                vaddq_s8(vsubq_s8(v, vdupq_n_s8((int8_t)offset)), vbslq_s8(set, vdupq_n_s8(-1), vdupq_n_s8(1)));
        else
            w->code[i] = vbslq_s8(set, vnegq_s8(v), v);
    }
    put_scales16(w->scale, vcombine_s8(vcreate_s8(steps[0]), vcreate_s8(steps[1])), d);
}

#define LOAD_BOOK(TYPE, type, unit, offset, signs)                                                                  \
    static inline void load_##type(block *w, const uint8_t *p) {                                                    \
        uint64_t steps[2];                                                                                          \
        ig_##type##_steps(steps, p);                                                                                \
        load_book(w, p, ig_##type##_entry, ig_##type##_signs, steps, half_float(ig_##type##_d(p)) * (unit), offset, \
                  signs);                                                                                           \
    }
IG_BOOK_TYPES(LOAD_BOOK)

static inline void load_iq4_xs(block *w, const uint8_t *p) {
    float d = read_f16(p);
    for (int i = 0; i < 8; i++) {
        w->scale[i] = d * (float)ig_iq4_xs_scale(p, i);
        put_values(w->code + 2 * i, p + 8 + 16 * i, iq4_values);
    }
}

#endif
