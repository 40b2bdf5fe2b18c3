/* SPDX-License-Identifier: Apache-2.0
 *
 * The 4-bit key sketch for AVX2.
 */
#include "kernel/sketch_avx2.h"

static void sketch_put_avx2(void *block, int t, const uint16_t *key, int d) {
    __m256 low = _mm256_set1_ps(INFINITY), high = _mm256_set1_ps(-INFINITY);
    for (int i = 0; i < d; i += 8) {
        __m256 x = within_f16(load_f16(key + i));
        low = _mm256_min_ps(low, x);
        high = _mm256_max_ps(high, x);
    }
    float lo = -max_lanes(_mm256_sub_ps(_mm256_setzero_ps(), low)), hi = max_lanes(high);
    __m256 zero = _mm256_setzero_ps(), c = zero, cc = zero, sx = zero, cx = zero;
    __m256 to_code = _mm256_set1_ps(hi > lo ? 15.0f / (hi - lo) : 0.0f), base = _mm256_set1_ps(lo);
    uint8_t *codes = (uint8_t *)block + IG_SKETCH_CODES + 4 * t;
    for (int i = 0; i < d; i += 8) {
        __m256 x = _mm256_sub_ps(within_f16(load_f16(key + i)), base);
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

/* Four loads are added up in 16 bits, where a lane gets at most 4 x 15 x 127 from one. */
INLINE void add_dims(__m256i acc[KEYS_TILE], const ig_sketch_queries *q, int g0, int n_q, int j, int n_loads,
                     const uint8_t *codes) {
    __m256i nibble = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1), sum[KEYS_TILE];
    for (int g = 0; g < n_q; g++) sum[g] = _mm256_setzero_si256();
#pragma GCC unroll 1 /* or GCC runs the loads ahead and out of registers */
    for (int end = j + 8 * n_loads; j < end; j += 8) {
        __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)(codes + 8 * (size_t)j));
        __m256i lo = _mm256_and_si256(x, nibble), hi = _mm256_and_si256(_mm256_srli_epi16(x, 4), nibble);
        for (int g = 0; g < n_q; g++) {
            const int32_t *four = q->q8[g0 + g] + j / 4;
            sum[g] = _mm256_add_epi16(sum[g], _mm256_maddubs_epi16(lo, _mm256_set1_epi32(four[0])));
            sum[g] = _mm256_add_epi16(sum[g], _mm256_maddubs_epi16(hi, _mm256_set1_epi32(four[1])));
        }
    }
    for (int g = 0; g < n_q; g++) acc[g] = _mm256_add_epi32(acc[g], _mm256_madd_epi16(sum[g], ones));
}

static void sketch_scores_avx2(float *scores, size_t stride, const float *q, int n_q, int d, float scale,
                               const void *blocks, int n_blocks) {
    sketch_scores(scores, stride, q, n_q, d, scale, blocks, n_blocks, add_dims);
}

void ig_kernels_fill_sketch_avx2(ig_kernels *k) {
    k->sketch_put = sketch_put_avx2;
    k->sketch_scores = sketch_scores_avx2;
}
