/* SPDX-License-Identifier: Apache-2.0
 *
 * Small helpers of the AVX2 kernels: tails, sums across lanes, 16-bit floats, exp.
 */
#ifndef IG_KERNEL_LANES_AVX2_H
#define IG_KERNEL_LANES_AVX2_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

/* The first n of 8 lanes, for maskload and maskstore. */
static inline __m256i first_lanes(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static inline __m256 load_f16(const uint16_t *x) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)x));
}

static inline float sum_lanes(__m256 x) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

static inline float max_lanes(__m256 x) {
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

/* exp, x <= 0, to about 1 ulp: x = n ln 2 + r, a polynomial of degree 6 in r (minimax), times 2^n in two steps so
 * that both factors are normal numbers. Below -105 the result rounds to 0; the limit keeps n in range. NaN stays
 * NaN. */
static inline __m256 exp_negative(__m256 x) {
    x = _mm256_max_ps(_mm256_set1_ps(-105.0f), x);
    __m256 n =
        _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(0x1.715476p0f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.62e4p-1f), x);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.7f7d1cp-20f), r);
    __m256 p = _mm256_set1_ps(0x1.6a23cep-10f);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.123a2p-7f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.5558f2p-5f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.555492p-3f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.fffffcp-2f));
    p = _mm256_fmadd_ps(p, _mm256_mul_ps(r, r), r);
    p = _mm256_add_ps(p, _mm256_set1_ps(1.0f));
    __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1), bias = _mm256_set1_epi32(127);
    __m256i rest = _mm256_sub_epi32(whole, half);
    p = _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23)));
    return _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23)));
}

/* Of any x: above 89 the result rounds to infinity. */
static inline __m256 exp_lanes(__m256 x) { return exp_negative(_mm256_min_ps(_mm256_set1_ps(89.0f), x)); }

/* As ig_sketch_value() of kernel/sketch.h: NaN as 0, and nothing beyond the largest 16-bit float. */
static inline __m256 within_f16(__m256 x) {
    __m256 limit = _mm256_set1_ps(65504.0f);
    x = _mm256_and_ps(x, _mm256_cmp_ps(x, x, _CMP_ORD_Q));
    return _mm256_min_ps(_mm256_max_ps(x, _mm256_sub_ps(_mm256_setzero_ps(), limit)), limit);
}

#endif
