/* SPDX-License-Identifier: Apache-2.0
 *
 * Packed keys and values for NEON. A group of codes of 4 bits or fewer has at most 16 values: they are computed once,
 * as 16-bit floats, and codes look up the low and the high bytes of them.
 */
#include <string.h>

#include "kernel/lanes_neon.h"
#include "kernel/packed.h"
#include "kernel/parts.h"

enum { AHEAD = 16 }; /* rows from the one in use to the one prefetched: chosen rows are scattered */

/* ---- pack ------------------------------------------------------------------------ */

static ig_kv_line encode(uint8_t *codes, const float *x, int n, int levels) {
    float most = ig_packed_most(levels), min, inverse;
    float32x4_t lo = vdupq_n_f32(INFINITY), hi = vdupq_n_f32(-INFINITY);
    for (int i = 0; i < n; i += 4) {
        float32x4_t v = within(vld1q_f32(x + i), most);
        lo = vminq_f32(lo, v);
        hi = vmaxq_f32(hi, v);
    }
    ig_kv_line line = ig_packed_line(&min, &inverse, vminvq_f32(lo), vmaxvq_f32(hi), levels);
    for (int i = 0; i < n; i += 8) {
        uint16x4_t c[2];
        for (int j = 0; j < 2; j++) {
            float32x4_t v = vsubq_f32(within(vld1q_f32(x + i + 4 * j), most), vdupq_n_f32(min));
            c[j] = vqmovun_s32(vcvtnq_s32_f32(vmulq_n_f32(v, inverse)));
        }
        vst1_u8(codes + i, vqmovn_u16(vcombine_u16(c[0], c[1])));
    }
    return line;
}

static void pack_f16_neon(void *row, ig_kv_line *lines, const float *x, int d) {
    (void)lines;
    for (int i = 0; i < d; i += 4) store_f16((uint16_t *)row + i, vld1q_f32(x + i));
}

PACK_FUNCTIONS(neon)

/* ---- unpack ---------------------------------------------------------------------- */

INLINE void prefetch_row(const ig_kv_packed *row, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(row->codes + i);
    __builtin_prefetch(row->lines);
}

/* Eight codes as 16-bit floats. */
static inline uint16x8_t values_of_codes(ig_kv_line line, uint8x8_t codes) {
    float32x4_t step = vdupq_n_f32(ig_f16_f32(line.step)), min = vdupq_n_f32(ig_f16_f32(line.min));
    uint16x8_t words = vmovl_u8(codes);
    float32x4_t a = vfmaq_f32(min, vcvtq_f32_u32(vmovl_u16(vget_low_u16(words))), step);
    float32x4_t b = vfmaq_f32(min, vcvtq_f32_u32(vmovl_u16(vget_high_u16(words))), step);
    return vreinterpretq_u16_f16(vcombine_f16(vcvt_f16_f32(a), vcvt_f16_f32(b)));
}

static void unpack_q8_neon(uint16_t *dst, const ig_kv_packed *rows, int n, int d) {
    for (int r = 0; r < n; r++, dst += d) {
        if (r + AHEAD < n) prefetch_row(&rows[r + AHEAD], (size_t)d);
        for (int i = 0; i < d; i += 8)
            vst1q_u16(dst + i, values_of_codes(rows[r].lines[i / IG_KV_GROUP], vld1_u8(rows[r].codes + i)));
    }
}

/* Low and high bytes of the 16 values that a line has for codes of 4 bits; those of fewer bits use the first. */
static inline uint8x16x2_t values_of(ig_kv_line line) {
    uint16x8_t a = values_of_codes(line, vcreate_u8(0x0706050403020100ull));
    uint16x8_t b = values_of_codes(line, vcreate_u8(0x0f0e0d0c0b0a0908ull));
    return (uint8x16x2_t){{vcombine_u8(vmovn_u16(a), vmovn_u16(b)), vcombine_u8(vshrn_n_u16(a, 8), vshrn_n_u16(b, 8))}};
}

static inline void look_up(uint16_t *dst, uint8x16x2_t v, uint8x16_t codes) {
    uint8x16x2_t bytes = {{vqtbl1q_u8(v.val[0], codes), vqtbl1q_u8(v.val[1], codes)}};
    vst2q_u8((uint8_t *)dst, bytes);
}

/* 16 codes of 1 bit, a byte each. */
static inline uint8x16_t spread_bits(const uint8_t *codes) {
    const uint8x16_t bits = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201ull));
    uint8x16_t x = vcombine_u8(vdup_n_u8(codes[0]), vdup_n_u8(codes[1]));
    return vandq_u8(vtstq_u8(x, bits), vdupq_n_u8(1));
}

/* A group of 64. */
INLINE void unpack_group(uint16_t *dst, uint8x16x2_t v, const uint8_t *codes, int bits) {
    if (bits == 1) {
        for (int i = 0; i < IG_KV_GROUP; i += 16) look_up(dst + i, v, spread_bits(codes + i / 8));
        return;
    }
    int n_bytes = IG_KV_GROUP * bits / 8;
    for (int i = 0; i < n_bytes; i += 16) {
        uint8x16_t c = vld1q_u8(codes + i), mask = vdupq_n_u8((uint8_t)((1 << bits) - 1));
        for (int part = 0; part < 8 / bits; part++)
            look_up(dst + part * n_bytes + i, v, vandq_u8(vshlq_u8(c, vdupq_n_s8((int8_t)(-part * bits))), mask));
    }
}

/* A shorter one: its codes where those of one of 64 lie, and back. */
INLINE void unpack_short(uint16_t *dst, uint8x16x2_t v, const uint8_t *codes, int n, int bits) {
    uint8_t in[IG_KV_GROUP / 2] = {0};
    uint16_t out[IG_KV_GROUP];
    int stretch = bits == 1 ? n : n * bits / 8, whole = IG_KV_GROUP * bits / 8;
    memcpy(in, codes, (size_t)(n * bits / 8));
    unpack_group(out, v, in, bits);
    for (int i = 0, at = 0; i < n; i += stretch, at += whole) memcpy(dst + i, out + at, (size_t)stretch * sizeof *dst);
}

INLINE void unpack(uint16_t *dst, const ig_kv_packed *rows, int n, int d, int bits) {
    for (int r = 0; r < n; r++, dst += d) {
        if (r + AHEAD < n) prefetch_row(&rows[r + AHEAD], (size_t)(d * bits / 8));
        for (int j = 0; j < d; j += IG_KV_GROUP) {
            uint8x16x2_t v = values_of(rows[r].lines[j / IG_KV_GROUP]);
            const uint8_t *codes = rows[r].codes + j * bits / 8;
            if (d - j < IG_KV_GROUP)
                unpack_short(dst + j, v, codes, d - j, bits);
            else
                unpack_group(dst + j, v, codes, bits);
        }
    }
}

static void unpack_q4_neon(uint16_t *dst, const ig_kv_packed *rows, int n, int d) { unpack(dst, rows, n, d, 4); }
static void unpack_q2_neon(uint16_t *dst, const ig_kv_packed *rows, int n, int d) { unpack(dst, rows, n, d, 2); }
static void unpack_q1_neon(uint16_t *dst, const ig_kv_packed *rows, int n, int d) { unpack(dst, rows, n, d, 1); }

void ig_kernels_fill_packed_neon(ig_kernels *k) {
    SET_PACK(k, neon);
    k->kv_unpack[IG_KV_Q8] = unpack_q8_neon;
    k->kv_unpack[IG_KV_Q4] = unpack_q4_neon;
    k->kv_unpack[IG_KV_Q2] = unpack_q2_neon;
    k->kv_unpack[IG_KV_Q1] = unpack_q1_neon;
}
