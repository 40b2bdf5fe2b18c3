/* SPDX-License-Identifier: Apache-2.0
 *
 * Small helpers of the AVX-512 kernels: masks for tails, unaligned 16-bit floats, exp.
 */
#ifndef IG_KERNEL_LANES_AVX512_H
#define IG_KERNEL_LANES_AVX512_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

/* The first n of 16 lanes, n = 0..16. */
static inline __mmask16 first_lanes(int n) { return (__mmask16)((1u << n) - 1u); }

static inline __m512 load_f16(const uint16_t *x) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)x));
}

static inline __m512 load_f16_first(__mmask16 lanes, const uint16_t *x) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(lanes, x));
}

/* exp, x <= 0, to about 1 ulp: x = n ln 2 + r, a polynomial of degree 6 in r (minimax), times 2^n. Below -105
 * the result rounds to 0; the limit keeps n finite. NaN stays NaN. */
static inline __m512 exp_negative(__m512 x) {
    x = _mm512_max_ps(_mm512_set1_ps(-105.0f), x);
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(0x1.715476p0f)),
                                    _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.62e4p-1f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.7f7d1cp-20f), r);
    __m512 p = _mm512_set1_ps(0x1.6a23cep-10f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.123a2p-7f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.5558f2p-5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.555492p-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.fffffcp-2f));
    p = _mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r);
    p = _mm512_add_ps(p, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, n);
}

/* Of any x: above 89 the result rounds to infinity. */
static inline __m512 exp_lanes(__m512 x) { return exp_negative(_mm512_min_ps(_mm512_set1_ps(89.0f), x)); }

/* As ig_sketch_value() of kernel/sketch.h: NaN as 0, and nothing beyond the largest 16-bit float. */
static inline __m512 within_f16(__m512 x) {
    __m512 limit = _mm512_set1_ps(65504.0f);
    x = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, x, _CMP_ORD_Q), x);
    return _mm512_min_ps(_mm512_max_ps(x, _mm512_sub_ps(_mm512_setzero_ps(), limit)), limit);
}

#endif
