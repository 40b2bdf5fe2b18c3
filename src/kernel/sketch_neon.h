/* SPDX-License-Identifier: Apache-2.0
 *
 * Scores of the 4-bit key sketch and sums of the 2-bit value sketch for the levels that have NEON, which differ in how
 * bytes are multiplied (kernel/dot_neon.h). A 16-byte load of keys holds 8 dims of 4 tokens, one of values 4 dims of 16
 * tokens: either way four rows of 4-byte pieces.
 */
#ifndef IG_KERNEL_SKETCH_NEON_H
#define IG_KERNEL_SKETCH_NEON_H

#include "kernel/dot_neon.h"
#include "kernel/lanes_neon.h"
#include "kernel/parts.h"
#include "kernel/sketch.h"

enum {
    QUERIES = 4,       /* of a tile */
    KEYS_AHEAD = 4096, /* bytes from the block of keys in use to the one prefetched */
    STRETCH = 32,      /* blocks of values */
};

/* ---- scores of keys -------------------------------------------------------------- */

/* Rows of `sum` for 16 dims of 4 tokens, or for 8 and zeros. */
INLINE void unpack_keys(int8x16_t w[4], const uint8_t *codes, int n_dims) {
    for (int i = 0; i < 2; i++) {
        uint8x16_t x = 8 * i < n_dims ? vld1q_u8(codes + 64 * i) : vdupq_n_u8(0);
        w[2 * i] = vreinterpretq_s8_u8(vandq_u8(x, vdupq_n_u8(15)));
        w[2 * i + 1] = vreinterpretq_s8_u8(vshrq_n_u8(x, 4));
    }
}

/* Queries g0 .. g0 + n_q - 1 (n_q 1..4) against tokens t to t + 3 of a block. */
INLINE void keys_tile(float *scores, size_t stride, const ig_sketch_queries *q, int g0, int n_q, int d,
                      const uint8_t *block, int t, dot_rows_fn dot_rows) {
    const uint8_t *codes = block + IG_SKETCH_CODES + 4 * t;
    int32x4_t sum[QUERIES];
    for (int g = 0; g < n_q; g++) sum[g] = vdupq_n_s32(0);
    for (int j = 0; j < d; j += 16) {
        int8x16_t w[4];
        unpack_keys(w, codes + 8 * j, d - j);
        for (int g = 0; g < n_q; g++) sum[g] = dot_rows(sum[g], w, vld1q_s8((const int8_t *)q->q8[g0 + g] + j));
    }
    const float *line = (const float *)(const void *)block;
    float32x4_t step = vld1q_f32(line + t), min = vld1q_f32(line + IG_SKETCH_TOKENS + t);
    for (int g = 0; g < n_q; g++) {
        float32x4_t s = vfmaq_n_f32(vmulq_f32(step, vcvtq_f32_s32(sum[g])), min, q->sum[g0 + g]);
        vst1q_f32(scores + (size_t)(g0 + g) * stride + t, vmulq_n_f32(s, q->scale[g0 + g]));
    }
}

INLINE void keys_block(float *scores, size_t stride, const ig_sketch_queries *q, int g, int n_q, int d,
                       const uint8_t *block, dot_rows_fn dot_rows) {
    for (int t = 0; t < IG_SKETCH_TOKENS; t += 4) keys_tile(scores, stride, q, g, n_q, d, block, t, dot_rows);
}

INLINE void sketch_scores(float *scores, size_t stride, const float *q, int n_q, int d, float scale, const void *blocks,
                          int n_blocks, dot_rows_fn dot_rows) {
    ig_sketch_queries x;
    size_t block_bytes = ig_sketch_block_bytes(d);
    for (int g0 = 0; g0 < n_q; g0 += IG_SKETCH_QUERIES) {
        int m = n_q - g0 < IG_SKETCH_QUERIES ? n_q - g0 : IG_SKETCH_QUERIES;
        ig_sketch_quantize(&x, q + (size_t)g0 * (size_t)d, m, d, scale);
        float *out = scores + (size_t)g0 * stride;
        const uint8_t *block = blocks;
        for (int b = 0; b < n_blocks; b++, block += block_bytes, out += IG_SKETCH_TOKENS) {
            for (size_t i = 0; i < block_bytes; i += 64) __builtin_prefetch(block + KEYS_AHEAD + i);
            for (int g = 0; g < m; g += QUERIES) switch (m - g) {
                    case 1:
                        keys_block(out, stride, &x, g, 1, d, block, dot_rows);
                        break;
                    case 2:
                        keys_block(out, stride, &x, g, 2, d, block, dot_rows);
                        break;
                    case 3:
                        keys_block(out, stride, &x, g, 3, d, block, dot_rows);
                        break;
                    default:
                        keys_block(out, stride, &x, g, QUERIES, d, block, dot_rows);
                }
        }
    }
}

/* ---- sums of values -------------------------------------------------------------- */

/* The weights of a stretch of blocks for the queries of a tile. */
typedef struct stretch {
    uint8_t w8[STRETCH][QUERIES][IG_SKETCH_TOKENS];
    int32_t total[STRETCH][QUERIES]; /* 3 times the sum of w8 */
    float scale[STRETCH][QUERIES];   /* of a sum of w8 * (2 * code - 3) */
    int live[STRETCH], n_live;       /* blocks that count for any of the queries */
} stretch;

/* One block and query; returns whether it counts. */
INLINE int weigh_block(stretch *s, int b, int g, const float *w, const float32x4_t step[4]) {
    float32x4_t share[4];
    for (int i = 0; i < 4; i++) share[i] = vmulq_f32(step[i], vld1q_f32(w + 4 * i));
    float top = vmaxnmvq_f32(vmaxnmq_f32(vmaxnmq_f32(share[0], share[1]), vmaxnmq_f32(share[2], share[3])));
    bool counts = top > IG_VALUE_LEAST;
    uint16x4_t x[4];
    for (int i = 0; i < 4; i++) x[i] = vqmovun_s32(vcvtnq_s32_f32(vmulq_n_f32(share[i], counts ? 255 / top : 0)));
    uint8x16_t bytes = vcombine_u8(vqmovn_u16(vcombine_u16(x[0], x[1])), vqmovn_u16(vcombine_u16(x[2], x[3])));
    vst1q_u8(s->w8[b][g], bytes);
    s->total[b][g] = 3 * vaddlvq_u8(bytes);
    s->scale[b][g] = counts ? top / 510 : 0;
    return counts;
}

static inline void weigh_stretch(stretch *s, const float *w, size_t stride, int n_q, const uint8_t *block,
                                 size_t block_bytes, int n) {
    s->n_live = 0;
    for (int b = 0; b < n; b++, w += IG_SKETCH_TOKENS, block += block_bytes) {
        float32x4_t step[4];
        int counts = 0;
        for (int i = 0; i < 4; i++) step[i] = load_f16((const uint16_t *)(const void *)block + 4 * i);
        for (int g = 0; g < n_q; g++) counts |= weigh_block(s, b, g, w + (size_t)g * stride, step);
        s->live[s->n_live] = b;
        s->n_live += counts;
    }
}

/* d dims of n_q queries over a stretch. */
INLINE void sum_stretch(float *acc, int n_q, int d, const stretch *s, const uint8_t *codes, size_t block_bytes,
                        dot_rows_unsigned_fn dot_rows) {
    const uint8x16_t low2 = vdupq_n_u8(3);
    for (int j = 0; j < d; j += 4) {
        float32x4_t sum[QUERIES];
        for (int g = 0; g < n_q; g++) sum[g] = vld1q_f32(acc + (size_t)g * (size_t)d + j);
        for (int i = 0; i < s->n_live; i++) {
            int b = s->live[i];
            uint8x16_t x = vld1q_u8(codes + (size_t)b * block_bytes + 4 * j);
            uint8x16_t c[4] = {vandq_u8(x, low2), vandq_u8(vshrq_n_u8(x, 2), low2), vandq_u8(vshrq_n_u8(x, 4), low2),
                               vshrq_n_u8(x, 6)};
            for (int g = 0; g < n_q; g++) {
                uint32x4_t products = dot_rows(vdupq_n_u32(0), c, vld1q_u8(s->w8[b][g]));
                int32x4_t twice = vreinterpretq_s32_u32(vaddq_u32(products, products));
                float32x4_t value = vcvtq_f32_s32(vsubq_s32(twice, vdupq_n_s32(s->total[b][g])));
                sum[g] = vfmaq_n_f32(sum[g], value, s->scale[b][g]);
            }
        }
        for (int g = 0; g < n_q; g++) vst1q_f32(acc + (size_t)g * (size_t)d + j, sum[g]);
    }
}

INLINE void value_sums(float *acc, const float *w, size_t stride, int n_q, int d, const void *blocks, int n_blocks,
                       dot_rows_unsigned_fn dot_rows) {
    stretch s;
    size_t block_bytes = ig_value_sketch_block_bytes(d);
    const uint8_t *block = blocks;
    for (int b = 0; b < n_blocks; b += STRETCH, block += STRETCH * block_bytes) {
        int n = n_blocks - b < STRETCH ? n_blocks - b : STRETCH;
        const uint8_t *codes = block + IG_VALUE_CODES;
        for (int g = 0; g < n_q; g += QUERIES) {
            int m = n_q - g < QUERIES ? n_q - g : QUERIES;
            float *to = acc + (size_t)g * (size_t)d;
            weigh_stretch(&s, w + (size_t)g * stride + (size_t)b * IG_SKETCH_TOKENS, stride, m, block, block_bytes, n);
            switch (m) {
                case 1:
                    sum_stretch(to, 1, d, &s, codes, block_bytes, dot_rows);
                    break;
                case 2:
                    sum_stretch(to, 2, d, &s, codes, block_bytes, dot_rows);
                    break;
                case 3:
                    sum_stretch(to, 3, d, &s, codes, block_bytes, dot_rows);
                    break;
                default:
                    sum_stretch(to, QUERIES, d, &s, codes, block_bytes, dot_rows);
            }
        }
    }
}

#endif
