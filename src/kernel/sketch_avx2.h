/* SPDX-License-Identifier: Apache-2.0
 *
 * Scores of the 4-bit key sketch and sums of the 2-bit value sketch for the levels that have AVX2, which differ in how
 * bytes are multiplied. A 32-byte load of keys holds 8 dims of 8 tokens, and 4 dims of all of them meet 4 query bytes;
 * one of values holds 8 dims of 16 tokens, and 4 tokens of all dims meet 4 weights. A tile of keys is 8 tokens x up to
 * 4 queries, one of values 8 dims of up to 6 queries.
 */
#ifndef IG_KERNEL_SKETCH_AVX2_H
#define IG_KERNEL_SKETCH_AVX2_H

#include <stddef.h>
#include <string.h>

#include "kernel/lanes_avx2.h"
#include "kernel/parts.h"
#include "kernel/sketch.h"

enum {
    KEYS_TILE = 4,     /* queries */
    KEYS_LOADS = 4,    /* at a time */
    KEYS_AHEAD = 8192, /* bytes from the block of keys in use to the one prefetched */
    VALUES_TILE = 6,   /* queries */
    STRETCH = 32,      /* blocks of values */
};

/* ---- scores of keys -------------------------------------------------------------- */

/* Adds to acc[g] 8 dims x n_loads of 8 tokens against query g0 + g. */
typedef void (*add_dims_fn)(__m256i acc[KEYS_TILE], const ig_sketch_queries *q, int g0, int n_q, int j, int n_loads,
                            const uint8_t *codes);

/* Queries g0 .. g0 + n_q - 1 (n_q 1..4) against 8 tokens of a block; `half` is 0 or 1. */
INLINE void sketch_tile(float *scores, size_t stride, const ig_sketch_queries *q, int g0, int n_q, int d,
                        const uint8_t *block, int half, add_dims_fn add) {
    const uint8_t *codes = block + IG_SKETCH_CODES + 32 * half;
    __m256i acc[KEYS_TILE];
    for (int g = 0; g < n_q; g++) acc[g] = _mm256_setzero_si256();
    int j = 0;
    for (; j + 8 * KEYS_LOADS <= d; j += 8 * KEYS_LOADS) add(acc, q, g0, n_q, j, KEYS_LOADS, codes);
    for (; j < d; j += 8) add(acc, q, g0, n_q, j, 1, codes);
    const float *line = (const float *)(const void *)block;
    __m256 step = _mm256_loadu_ps(line + 8 * half), min = _mm256_loadu_ps(line + IG_SKETCH_TOKENS + 8 * half);
    for (int g = 0; g < n_q; g++) {
        __m256 s = _mm256_mul_ps(step, _mm256_cvtepi32_ps(acc[g]));
        s = _mm256_fmadd_ps(min, _mm256_set1_ps(q->sum[g0 + g]), s);
        _mm256_storeu_ps(scores + (size_t)(g0 + g) * stride + 8 * half,
                         _mm256_mul_ps(s, _mm256_set1_ps(q->scale[g0 + g])));
    }
}

INLINE void sketch_half(float *scores, size_t stride, const ig_sketch_queries *q, int n_q, int d, const uint8_t *block,
                        int half, add_dims_fn add) {
    for (int g = 0; g < n_q; g += KEYS_TILE) switch (n_q - g) {
            case 1:
                sketch_tile(scores, stride, q, g, 1, d, block, half, add);
                break;
            case 2:
                sketch_tile(scores, stride, q, g, 2, d, block, half, add);
                break;
            case 3:
                sketch_tile(scores, stride, q, g, 3, d, block, half, add);
                break;
            default:
                sketch_tile(scores, stride, q, g, KEYS_TILE, d, block, half, add);
        }
}

INLINE void sketch_scores(float *scores, size_t stride, const float *q, int n_q, int d, float scale, const void *blocks,
                          int n_blocks, add_dims_fn add) {
    ig_sketch_queries x;
    size_t block_bytes = ig_sketch_block_bytes(d);
    for (int g0 = 0; g0 < n_q; g0 += IG_SKETCH_QUERIES) {
        int m = n_q - g0 < IG_SKETCH_QUERIES ? n_q - g0 : IG_SKETCH_QUERIES;
        ig_sketch_quantize(&x, q + (size_t)g0 * (size_t)d, m, d, scale);
        float *out = scores + (size_t)g0 * stride;
        const uint8_t *block = blocks;
        for (int b = 0; b < n_blocks; b++, block += block_bytes, out += IG_SKETCH_TOKENS) {
            for (size_t i = 0; i < block_bytes; i += 64) fetch_line(block + KEYS_AHEAD + i);
            sketch_half(out, stride, &x, m, d, block, 0, add);
            sketch_half(out, stride, &x, m, d, block, 1, add);
        }
    }
}

/* ---- sums of values ---------------------------------------------------------------- */

/* Sums of products of 16 weights, unsigned bytes, with the codes of 8 dims: -3 to 3. */
typedef __m256i (*sum_tokens_fn)(const int32_t w8[4], const __m256i codes[4]);

/* The weights of a stretch of blocks for the queries of a tile. */
typedef struct stretch {
    int32_t w8[STRETCH][VALUES_TILE][4]; /* bytes, of 4 tokens each, to be broadcast from memory */
    float scale[STRETCH][VALUES_TILE];   /* of a sum of w8 * (2 * code - 3) */
    int live[STRETCH], n_live;           /* blocks that count for any of the queries */
} stretch;

/* One block and query; returns whether it counts. */
INLINE int prepare_one(int32_t w8[4], float *scale, const float *w, const __m256 step[2]) {
    __m256 share[2] = {_mm256_mul_ps(step[0], _mm256_loadu_ps(w)), _mm256_mul_ps(step[1], _mm256_loadu_ps(w + 8))};
    float top = max_lanes(_mm256_max_ps(share[0], share[1]));
    if (!(top > IG_VALUE_LEAST)) {
        memset(w8, 0, 4 * sizeof *w8);
        *scale = 0;
        return 0;
    }
    *scale = top / 510;
    __m256 inverse = _mm256_set1_ps(255 / top);
    __m256i x = _mm256_packs_epi32(_mm256_cvtps_epi32(_mm256_mul_ps(share[0], inverse)),
                                   _mm256_cvtps_epi32(_mm256_mul_ps(share[1], inverse)));
    /* Tokens 0-3, 8-11, 4-7, 12-15 so far, 8 to a half of the register. */
    __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    _mm_storeu_si128((__m128i *)(void *)w8, _mm_shuffle_epi32(bytes, 0xd8));
    return 1;
}

static inline void prepare(stretch *s, const float *w, size_t stride, int n_q, const uint8_t *block, size_t block_bytes,
                           int n) {
    s->n_live = 0;
    for (int b = 0; b < n; b++, w += IG_SKETCH_TOKENS, block += block_bytes) {
        const uint16_t *half = (const uint16_t *)(const void *)block;
        __m256 step[2] = {load_f16(half), load_f16(half + 8)};
        int counts = 0;
        for (int g = 0; g < n_q; g++) counts |= prepare_one(s->w8[b][g], &s->scale[b][g], w + (size_t)g * stride, step);
        s->live[s->n_live] = b;
        s->n_live += counts;
    }
}

/* 8 dims of n_q queries over a stretch. acc and codes are at the first of the dims. */
INLINE void sums_tile(float *acc, int n_q, int d, const stretch *s, const uint8_t *codes, size_t block_bytes,
                      sum_tokens_fn sum_tokens) {
    __m256i low = _mm256_broadcastsi128_si256(_mm_setr_epi8(-3, -1, 1, 3, -3, -1, 1, 3, -3, -1, 1, 3, -3, -1, 1, 3));
    __m256i high = _mm256_broadcastsi128_si256(_mm_setr_epi8(-3, -3, -3, -3, -1, -1, -1, -1, 1, 1, 1, 1, 3, 3, 3, 3));
    __m256i nibble = _mm256_set1_epi8(15);
    __m256 sum[VALUES_TILE];
    for (int g = 0; g < n_q; g++) sum[g] = _mm256_loadu_ps(acc + (size_t)g * (size_t)d);
    for (int i = 0; i < s->n_live; i++) {
        int b = s->live[i];
        const uint8_t *at = codes + (size_t)b * block_bytes;
        fetch_line(at + STRETCH * block_bytes);
        __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)at), c[4];
        __m256i lo = _mm256_and_si256(x, nibble), hi = _mm256_and_si256(_mm256_srli_epi16(x, 4), nibble);
        c[0] = _mm256_shuffle_epi8(low, lo), c[1] = _mm256_shuffle_epi8(high, lo);
        c[2] = _mm256_shuffle_epi8(low, hi), c[3] = _mm256_shuffle_epi8(high, hi);
        for (int g = 0; g < n_q; g++) {
            __m256 value = _mm256_cvtepi32_ps(sum_tokens(s->w8[b][g], c));
            sum[g] = _mm256_fmadd_ps(_mm256_set1_ps(s->scale[b][g]), value, sum[g]);
        }
    }
    for (int g = 0; g < n_q; g++) _mm256_storeu_ps(acc + (size_t)g * (size_t)d, sum[g]);
}

INLINE void sums_stretch(float *acc, int n_q, int d, const stretch *s, const uint8_t *codes, size_t block_bytes,
                         sum_tokens_fn sum_tokens) {
    for (int i = 0; i < d; i += 8) sums_tile(acc + i, n_q, d, s, codes + 4 * i, block_bytes, sum_tokens);
}

INLINE void value_sums(float *acc, const float *w, size_t stride, int n_q, int d, const void *blocks, int n_blocks,
                       sum_tokens_fn sum_tokens) {
    stretch s;
    size_t block_bytes = ig_value_sketch_block_bytes(d);
    const uint8_t *block = blocks;
    for (int b = 0; b < n_blocks; b += STRETCH, block += STRETCH * block_bytes) {
        int n = n_blocks - b < STRETCH ? n_blocks - b : STRETCH;
        const uint8_t *codes = block + IG_VALUE_CODES;
        for (int g = 0; g < n_q; g += VALUES_TILE) {
            int m = n_q - g < VALUES_TILE ? n_q - g : VALUES_TILE;
            float *to = acc + (size_t)g * (size_t)d;
            prepare(&s, w + (size_t)g * stride + (size_t)b * IG_SKETCH_TOKENS, stride, m, block, block_bytes, n);
            switch (m) {
                case 1:
                    sums_stretch(to, 1, d, &s, codes, block_bytes, sum_tokens);
                    break;
                case 2:
                    sums_stretch(to, 2, d, &s, codes, block_bytes, sum_tokens);
                    break;
                case 3:
                    sums_stretch(to, 3, d, &s, codes, block_bytes, sum_tokens);
                    break;
                case 4:
                    sums_stretch(to, 4, d, &s, codes, block_bytes, sum_tokens);
                    break;
                case 5:
                    sums_stretch(to, 5, d, &s, codes, block_bytes, sum_tokens);
                    break;
                default:
                    sums_stretch(to, VALUES_TILE, d, &s, codes, block_bytes, sum_tokens);
            }
        }
    }
}

#endif
