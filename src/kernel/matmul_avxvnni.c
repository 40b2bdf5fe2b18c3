/* SPDX-License-Identifier: Apache-2.0
 *
 * The quantised products of the level avxvnni: vpdpbusd multiplies four unsigned bytes by four signed ones and adds all
 * of it to 32 bits. The numbers are those of AVX2, bit by bit.
 */
#include "kernel/matmul_gemm_avx2.h"
#include "kernel/matmul_gemv_avx2.h"

/* -128 times the sum of 32 codes, in all lanes. */
INLINE __m256i minus_128_times(const int8_t *q) {
    __m256i zero = _mm256_setzero_si256(), s = _mm256_load_si256((const void *)q);
    s = _mm256_dpbusd_avx_epi32(zero, _mm256_set1_epi8(-128), s);
    s = _mm256_hadd_epi32(s, s);
    s = _mm256_hadd_epi32(s, s);
    return _mm256_sub_epi32(zero, _mm256_add_epi32(s, _mm256_permute2x128_si256(s, s, 1)));
}

/* Codes with a sign, which come in steps with one scale, are multiplied as codes + 128. */
INLINE void dot_step(__m256i dot[2][TILE_COLS], const char *step, const int8_t *const q[TILE_COLS], const int begin,
                     const int end, const format f, const int n_cols) {
    const bool is_signed = !f.fits;
    __m256i w[2];
#pragma GCC unroll 3
    for (int c = 0; c < n_cols; c++) dot[0][c] = dot[1][c] = is_signed ? minus_128_times(q[c]) : _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int i = begin; i < end; i += 4) {
        for (int h = 0; h < 2; h++) {
            w[h] = load_codes(step, i / 4, h, f);
            if (is_signed) w[h] = _mm256_xor_si256(w[h], _mm256_set1_epi8(-128));
        }
#pragma GCC unroll 3
        for (int c = 0; c < n_cols; c++) {
            __m256i x = repeat4(q[c] + i);
            for (int h = 0; h < 2; h++) {
                dot[h][c] = _mm256_dpbusd_avx_epi32(dot[h][c], w[h], x);
                STAY(dot[h][c]);
            }
        }
    }
}

INLINE void tile_q8(const char *panel, const tile_at *t, const format f, const int n_cols) {
    tile_codes(panel, t, f, n_cols, dot_step);
}

INLINE __m256i dot4(__m256i code, __m256i q, const int is_signed) {
    __m256i zero = _mm256_setzero_si256();
    return is_signed ? _mm256_dpbusd_avx_epi32(zero, _mm256_abs_epi8(code), _mm256_sign_epi8(q, code))
                     : _mm256_dpbusd_avx_epi32(zero, code, q);
}

DEFINE_QUANTISED
DEFINE_QUANTISED_GEMV(dot4)

void ig_kernels_fill_matmul_avxvnni(ig_kernels *k) {
    ROW_TYPES(SET_GEMV)
    ROW_TYPES(SET_GEMM)
    PANEL_TYPES(SET_PANELS)
    ig_kernels_fill_fixed_avxvnni(k);
}
