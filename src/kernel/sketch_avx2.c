/* SPDX-License-Identifier: Apache-2.0
 *
 * The 4-bit key sketch for AVX2: a 32-byte load holds 8 dims of 8 tokens; vpmaddubsw multiplies 4 dims
 * of all 8 tokens with 4 query bytes. The 16-bit sums of both nibbles stay below 4 x 15 x 127 and are
 * widened at once.
 */
#include <math.h>
#include <stddef.h>

#include "kernel/lanes_avx2.h"
#include "kernel/parts.h"
#include "kernel/sketch.h"

enum { QUERIES = 16 /* quantised at a time */ };

/* The queries of one pass, in 8 bits. */
typedef struct queries {
    int32_t q8[QUERIES][IG_SKETCH_DIMS / 4]; /* bytes, of 4 dims each: broadcast from memory, not from a register */
    float scale[QUERIES];                    /* times the scale of the scores */
    float sum[QUERIES];                      /* of q8 */
} queries;

static __m256 sketch_value(__m256 x) {
    __m256 limit = _mm256_set1_ps(65504.0f);
    x = _mm256_and_ps(x, _mm256_cmp_ps(x, x, _CMP_ORD_Q));
    return _mm256_min_ps(_mm256_max_ps(x, _mm256_sub_ps(_mm256_setzero_ps(), limit)), limit);
}

static void sketch_put_avx2(void *block, int t, const uint16_t *key, int d) {
    __m256 low = _mm256_set1_ps(INFINITY), high = _mm256_set1_ps(-INFINITY);
    for (int i = 0; i < d; i += 8) {
        __m256 x = sketch_value(load_f16(key + i));
        low = _mm256_min_ps(low, x);
        high = _mm256_max_ps(high, x);
    }
    float lo = -max_lanes(_mm256_sub_ps(_mm256_setzero_ps(), low)), hi = max_lanes(high);
    __m256 zero = _mm256_setzero_ps(), c = zero, cc = zero, sx = zero, cx = zero;
    __m256 to_code = _mm256_set1_ps(hi > lo ? 15.0f / (hi - lo) : 0.0f), base = _mm256_set1_ps(lo);
    uint8_t *codes = (uint8_t *)block + IG_SKETCH_CODES + 4 * t;
    for (int i = 0; i < d; i += 8) {
        __m256 x = _mm256_sub_ps(sketch_value(load_f16(key + i)), base);
        __m256i code = _mm256_cvtps_epi32(_mm256_mul_ps(x, to_code));
        __m256 f = _mm256_cvtepi32_ps(code);
        c = _mm256_add_ps(c, f);
        cc = _mm256_fmadd_ps(f, f, cc);
        sx = _mm256_add_ps(sx, x);
        cx = _mm256_fmadd_ps(f, x, cx);
        __m128i pair = _mm_or_si128(_mm256_castsi256_si128(code), _mm_slli_epi32(_mm256_extracti128_si256(code, 1), 4));
        pair = _mm_packus_epi16(_mm_packus_epi32(pair, pair), pair);
        uint32_t out = (uint32_t)_mm_cvtsi128_si32(pair);
        memcpy(codes + 8 * i, &out, sizeof out);
    }
    ig_sketch_sums sums = {sum_lanes(c), sum_lanes(cc), sum_lanes(sx), sum_lanes(cx)};
    ig_sketch_finish(block, t, lo, &sums, d);
}

/* One query against 8 tokens of a block; `half` is 0 or 1. */
static void sketch_eight(float *scores, const int32_t *q8, float q_sum, float q_scale, int d, const uint8_t *block,
                         int half) {
    __m256i nibble = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1), acc = _mm256_setzero_si256();
    const uint8_t *codes = block + IG_SKETCH_CODES + 32 * half;
    for (int j = 0; j < d; j += 8) {
        __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)(codes + 8 * (size_t)j));
        __m256i lo = _mm256_and_si256(x, nibble), hi = _mm256_and_si256(_mm256_srli_epi16(x, 4), nibble);
        __m256i sum = _mm256_add_epi16(_mm256_maddubs_epi16(lo, _mm256_set1_epi32(q8[j / 4])),
                                       _mm256_maddubs_epi16(hi, _mm256_set1_epi32(q8[j / 4 + 1])));
        acc = _mm256_add_epi32(acc, _mm256_madd_epi16(sum, ones));
    }
    const float *line = (const float *)(const void *)block;
    __m256 s = _mm256_mul_ps(_mm256_loadu_ps(line + 8 * half), _mm256_cvtepi32_ps(acc));
    s = _mm256_fmadd_ps(_mm256_loadu_ps(line + IG_SKETCH_TOKENS + 8 * half), _mm256_set1_ps(q_sum), s);
    _mm256_storeu_ps(scores + 8 * half, _mm256_mul_ps(s, _mm256_set1_ps(q_scale)));
}

static void sketch_scores_avx2(float *scores, size_t stride, const float *q, int n_q, int d, float scale,
                               const void *blocks, int n_blocks) {
    queries x;
    size_t block_bytes = ig_sketch_block_bytes(d);
    for (int g0 = 0; g0 < n_q; g0 += QUERIES) {
        int m = n_q - g0 < QUERIES ? n_q - g0 : QUERIES;
        for (int g = 0; g < m; g++) {
            int sum;
            x.scale[g] = ig_sketch_query((int8_t *)x.q8[g], &sum, q + (size_t)(g0 + g) * (size_t)d, d) * scale;
            x.sum[g] = (float)sum;
        }
        for (int b = 0; b < n_blocks; b++) {
            const uint8_t *block = (const uint8_t *)blocks + (size_t)b * block_bytes;
            for (int g = 0; g < m; g++) {
                float *out = scores + (size_t)(g0 + g) * stride + (size_t)b * IG_SKETCH_TOKENS;
                sketch_eight(out, x.q8[g], x.sum[g], x.scale[g], d, block, 0);
                sketch_eight(out, x.q8[g], x.sum[g], x.scale[g], d, block, 1);
            }
        }
    }
}

void ig_kernels_fill_sketch_avx2(ig_kernels *k) {
    k->sketch_put = sketch_put_avx2;
    k->sketch_scores = sketch_scores_avx2;
}
