/* SPDX-License-Identifier: Apache-2.0
 *
 * What the level avxvnni has instead of the sketch kernels of AVX2: the same numbers, with vpdpbusd.
 */
#include "kernel/sketch_avx2.h"

INLINE void add_dims(__m256i acc[KEYS_TILE], const ig_sketch_queries *q, int g0, int n_q, int j, int n_loads,
                     const uint8_t *codes) {
    __m256i nibble = _mm256_set1_epi8(15);
    for (int end = j + 8 * n_loads; j < end; j += 8) {
        __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)(codes + 8 * (size_t)j));
        __m256i lo = _mm256_and_si256(x, nibble), hi = _mm256_and_si256(_mm256_srli_epi16(x, 4), nibble);
        for (int g = 0; g < n_q; g++) {
            const int32_t *four = q->q8[g0 + g] + j / 4;
            acc[g] = _mm256_dpbusd_avx_epi32(acc[g], lo, _mm256_set1_epi32(four[0]));
            acc[g] = _mm256_dpbusd_avx_epi32(acc[g], hi, _mm256_set1_epi32(four[1]));
        }
    }
}

INLINE __m256i sum_tokens(const int32_t w8[4], const __m256i codes[4]) {
    __m256i total = _mm256_setzero_si256();
    for (int j = 0; j < 4; j++) total = _mm256_dpbusd_avx_epi32(total, _mm256_set1_epi32(w8[j]), codes[j]);
    return total;
}

static void sketch_scores_avxvnni(float *scores, size_t stride, const float *q, int n_q, int d, float scale,
                                  const void *blocks, int n_blocks) {
    sketch_scores(scores, stride, q, n_q, d, scale, blocks, n_blocks, add_dims);
}

static void value_sums_avxvnni(float *acc, const float *w, size_t stride, int n_q, int d, const void *blocks,
                               int n_blocks) {
    value_sums(acc, w, stride, n_q, d, blocks, n_blocks, sum_tokens);
}

void ig_kernels_fill_sketch_avxvnni(ig_kernels *k) {
    k->sketch_scores = sketch_scores_avxvnni;
    k->value_sums = value_sums_avxvnni;
}
