/* SPDX-License-Identifier: Apache-2.0
 *
 * The 4-bit key sketch for AVX-512 VNNI: a 64-byte load holds 8 dims of 16 tokens, and one
 * vpdpbusd takes 4 of these dims for all 16 tokens, against 4 query bytes sent to every lane.
 * A tile is 2 blocks x up to 8 queries, so that a broadcast query serves twice and codes are unpacked once for all
 * queries of most groups. Blocks to come are prefetched in the order of memory, as the products run.
 */
#include <math.h>
#include <stddef.h>

#include "kernel/lanes_avx512.h"
#include "kernel/parts.h"
#include "kernel/sketch.h"

enum {
    TILE = 8,
    AHEAD = 8192 /* bytes from the blocks in use to the lines prefetched */
};

static void sketch_put_avx512(void *block, int t, const uint16_t *key, int d) {
    __m512 low = _mm512_set1_ps(INFINITY), high = _mm512_set1_ps(-INFINITY);
    for (int i = 0; i < d; i += 16) {
        __mmask16 lanes = d - i < 16 ? 0xff : 0xffff;
        __m512 x = within_f16(load_f16_first(lanes, key + i));
        low = _mm512_mask_min_ps(low, lanes, low, x);
        high = _mm512_mask_max_ps(high, lanes, high, x);
    }
    float lo = _mm512_reduce_min_ps(low), hi = _mm512_reduce_max_ps(high);
    __m512 zero = _mm512_setzero_ps(), c = zero, cc = zero, sx = zero, cx = zero;
    __m512 to_code = _mm512_set1_ps(hi > lo ? 15.0f / (hi - lo) : 0.0f);
    uint8_t *codes = (uint8_t *)block + IG_SKETCH_CODES + 4 * t;
    for (int i = 0; i < d; i += 16) {
        __mmask16 lanes = d - i < 16 ? 0xff : 0xffff;
        __m512 x = _mm512_maskz_sub_ps(lanes, within_f16(load_f16_first(lanes, key + i)), _mm512_set1_ps(lo));
        __m512i code = _mm512_cvtps_epi32(_mm512_mul_ps(x, to_code));
        __m512 f = _mm512_cvtepi32_ps(code);
        c = _mm512_add_ps(c, f);
        cc = _mm512_fmadd_ps(f, f, cc);
        sx = _mm512_add_ps(sx, x);
        cx = _mm512_fmadd_ps(f, x, cx);
        /* Bytes of dims 8j..8j+3, then 8j+4..8j+7: the second four go to the high nibbles. */
        __m128i bytes = _mm512_cvtepi32_epi8(code);
        bytes = _mm_or_si128(bytes, _mm_srli_epi64(bytes, 28));
        uint32_t out[2] = {(uint32_t)_mm_extract_epi32(bytes, 0), (uint32_t)_mm_extract_epi32(bytes, 2)};
        memcpy(codes + 8 * i, &out[0], 4);
        if (i + 8 < d) memcpy(codes + 8 * i + 64, &out[1], 4);
    }
    ig_sketch_sums sums = {_mm512_reduce_add_ps(c), _mm512_reduce_add_ps(cc), _mm512_reduce_add_ps(sx),
                           _mm512_reduce_add_ps(cx)};
    ig_sketch_finish(block, t, lo, &sums, d);
}

/* Always inline: a function that does nothing but prefetch counts as one that does nothing. */
static inline __attribute__((always_inline)) void prefetch_lines(const uint8_t *begin, const uint8_t *end) {
    for (; begin < end; begin += 64) fetch_line(begin);
}

/* n_b (1..2) blocks against queries g0 .. g0 + n_q - 1 (n_q 1..8). `ahead`: two blocks to prefetch, or NULL. */
static inline __attribute__((always_inline)) void sketch_tile(float *scores, size_t stride, const ig_sketch_queries *q,
                                                              int g0, int n_q, int d, const uint8_t *block, int n_b,
                                                              const uint8_t *ahead) {
    size_t block_bytes = ig_sketch_block_bytes(d);
    __m512i acc[TILE][2], nibble = _mm512_set1_epi8(15);
    for (int g = 0; g < n_q; g++)
        for (int b = 0; b < n_b; b++) acc[g][b] = _mm512_setzero_si512();
    for (int j = 0; j < d; j += 8) {
        __m512i lo[2], hi[2];
        if (ahead) prefetch_lines(ahead + 16 * (size_t)j, ahead + 16 * (size_t)j + 128);
        for (int b = 0; b < n_b; b++) {
            __m512i x = _mm512_loadu_si512(block + (size_t)b * block_bytes + IG_SKETCH_CODES + 8 * (size_t)j);
            lo[b] = _mm512_and_si512(x, nibble);
            hi[b] = _mm512_and_si512(_mm512_srli_epi16(x, 4), nibble);
        }
        for (int g = 0; g < n_q; g++) {
            const int32_t *four = q->q8[g0 + g] + j / 4;
            __m512i q_lo = _mm512_set1_epi32(four[0]), q_hi = _mm512_set1_epi32(four[1]);
            for (int b = 0; b < n_b; b++) {
                acc[g][b] = _mm512_dpbusd_epi32(acc[g][b], lo[b], q_lo);
                acc[g][b] = _mm512_dpbusd_epi32(acc[g][b], hi[b], q_hi);
            }
        }
    }
    if (ahead) prefetch_lines(ahead + 16 * (size_t)d, ahead + 2 * block_bytes);
    for (int b = 0; b < n_b; b++) {
        const float *line = (const float *)(const void *)(block + (size_t)b * block_bytes);
        __m512 step = _mm512_loadu_ps(line), min = _mm512_loadu_ps(line + IG_SKETCH_TOKENS);
        for (int g = 0; g < n_q; g++) {
            __m512 x = _mm512_mul_ps(step, _mm512_cvtepi32_ps(acc[g][b]));
            x = _mm512_fmadd_ps(min, _mm512_set1_ps(q->sum[g0 + g]), x);
            x = _mm512_mul_ps(x, _mm512_set1_ps(q->scale[g0 + g]));
            _mm512_storeu_ps(scores + (size_t)(g0 + g) * stride + (size_t)b * IG_SKETCH_TOKENS, x);
        }
    }
}

static inline __attribute__((always_inline)) void sketch_blocks(float *scores, size_t stride,
                                                                const ig_sketch_queries *q, int n_q, int d,
                                                                const uint8_t *block, int n_b, const uint8_t *ahead) {
    for (int g = 0; g < n_q; g += TILE, ahead = NULL) switch (n_q - g) {
            case 1:
                sketch_tile(scores, stride, q, g, 1, d, block, n_b, ahead);
                break;
            case 2:
                sketch_tile(scores, stride, q, g, 2, d, block, n_b, ahead);
                break;
            case 3:
                sketch_tile(scores, stride, q, g, 3, d, block, n_b, ahead);
                break;
            case 4:
                sketch_tile(scores, stride, q, g, 4, d, block, n_b, ahead);
                break;
            case 5:
                sketch_tile(scores, stride, q, g, 5, d, block, n_b, ahead);
                break;
            case 6:
                sketch_tile(scores, stride, q, g, 6, d, block, n_b, ahead);
                break;
            case 7:
                sketch_tile(scores, stride, q, g, 7, d, block, n_b, ahead);
                break;
            default:
                sketch_tile(scores, stride, q, g, TILE, d, block, n_b, ahead);
        }
}

static void sketch_scores_avx512(float *scores, size_t stride, const float *q, int n_q, int d, float scale,
                                 const void *blocks, int n_blocks) {
    ig_sketch_queries x;
    size_t block_bytes = ig_sketch_block_bytes(d);
    for (int g0 = 0; g0 < n_q; g0 += IG_SKETCH_QUERIES) {
        int m = n_q - g0 < IG_SKETCH_QUERIES ? n_q - g0 : IG_SKETCH_QUERIES;
        ig_sketch_quantize(&x, q + (size_t)g0 * (size_t)d, m, d, scale);
        float *out = scores + (size_t)g0 * stride;
        const uint8_t *block = blocks;
        int b = 0;
        for (; b + 2 <= n_blocks; b += 2) {
            sketch_blocks(out + (size_t)b * IG_SKETCH_TOKENS, stride, &x, m, d, block, 2, block + AHEAD);
            block += 2 * block_bytes;
        }
        if (b < n_blocks) sketch_blocks(out + (size_t)b * IG_SKETCH_TOKENS, stride, &x, m, d, block, 1, NULL);
    }
}

void ig_kernels_fill_sketch_avx512(ig_kernels *k) {
    k->sketch_put = sketch_put_avx512;
    k->sketch_scores = sketch_scores_avx512;
}
