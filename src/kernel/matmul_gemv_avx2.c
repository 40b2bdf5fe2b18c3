/* SPDX-License-Identifier: Apache-2.0
 *
 * Few columns of types that do not come in panels, AVX2.
 */
#include "base/half.h"
#include "kernel/matmul_gemv_avx2.h"

INLINE void row_floats(const ig_matmul *m, const uint8_t *w, int c0, const int n_cols, float *sums,
                       __m256 (*load)(const uint8_t *, int), const int bytes) {
    __m256 acc[2][MAX_COLS];
    const char *x = (const char *)m->act + (size_t)c0 * m->act_stride;
    for (int c = 0; c < n_cols; c++) acc[0][c] = acc[1][c] = _mm256_setzero_ps();
    for (int i = 0; i < m->n_in; i += 16) {
        for (int h = 0; h < 2 && i + 8 * h < m->n_in; h++) {
            __m256 v = load(w + (size_t)(i + 8 * h) * (size_t)bytes, m->n_in - i - 8 * h);
            for (int c = 0; c < n_cols; c++) {
                const float *xc = (const float *)(const void *)(x + (size_t)c * m->act_stride);
                acc[h][c] = _mm256_fmadd_ps(v, _mm256_load_ps(xc + i + 8 * h), acc[h][c]);
            }
        }
    }
    for (int c = 0; c < n_cols; c++) sums[c] = sum8(_mm256_add_ps(acc[0][c], acc[1][c]));
}

/* 16 elements of 8 bits from i on, n of the row's, to sums of a block of columns; *most is the largest code without its
 * sign, by which a NaN is found. */
INLINE void add_f8(__m256 sum[2][MAX_COLS], __m128i *most, const ig_matmul *m, const uint8_t *w, const char *x, int i,
                   int n, const int n_cols) {
    __m128i codes = load_first16(w + i, n);
    __m256i halves = finite_f8(codes);
    *most = _mm_max_epu8(*most, _mm_and_si128(codes, _mm_set1_epi8(IG_F8_NAN)));
    for (int h = 0; h < 2 && 8 * h < n; h++) {
        __m256 v = _mm256_cvtph_ps(h ? _mm256_extracti128_si256(halves, 1) : _mm256_castsi256_si128(halves));
        for (int c = 0; c < n_cols; c++) {
            const float *xc = (const float *)(const void *)(x + (size_t)c * m->act_stride);
            sum[h][c] = _mm256_fmadd_ps(v, _mm256_load_ps(xc + i + 8 * h), sum[h][c]);
        }
    }
}

INLINE void row_f8(const ig_matmul *m, const uint8_t *w, int c0, const int n_cols, float *sums, const float unit) {
    __m256 acc[MAX_COLS];
    __m128i most = _mm_setzero_si128();
    const int row = (int)((size_t)(w - (const uint8_t *)m->w) / m->row_bytes),
              width = ig_scales_width(&m->scales, m->n_in);
    const float *scales = ig_scales_of_row(&m->scales, row);
    const char *x = (const char *)m->act + (size_t)c0 * m->act_stride;
    for (int c = 0; c < n_cols; c++) acc[c] = _mm256_setzero_ps();
    for (int b = 0, i = 0; i < m->n_in; b++) {
        const int end = ig_min_int(i + width, m->n_in);
        __m256 sum[2][MAX_COLS], scale = _mm256_set1_ps(unit * (scales ? scales[b] : 1));
        for (int c = 0; c < n_cols; c++) sum[0][c] = sum[1][c] = _mm256_setzero_ps();
        for (; i + 64 <= end; i += 64) {
            fetch_weights(w + i, 64);
#pragma GCC unroll 4
            for (int j = 0; j < 64; j += 16) add_f8(sum, &most, m, w, x, i + j, 16, n_cols);
        }
        for (; i < end; i += 16) add_f8(sum, &most, m, w, x, i, ig_min_int(end - i, 16), n_cols);
        i = end;
        for (int c = 0; c < n_cols; c++) acc[c] = _mm256_fmadd_ps(scale, _mm256_add_ps(sum[0][c], sum[1][c]), acc[c]);
    }
    bool is_nan = _mm_movemask_epi8(_mm_cmpeq_epi8(most, _mm_set1_epi8(IG_F8_NAN))) != 0;
    for (int c = 0; c < n_cols; c++) sums[c] = is_nan ? NAN : sum8(acc[c]);
}

DEFINE_QUANTISED_GEMV(dot4_avx2)
DEFINE_GEMV(f32, row_floats, load_f32, 4)
DEFINE_GEMV(f16, row_floats, load_f16, 2)
DEFINE_GEMV(bf16, row_floats, load_bf16, 2)
DEFINE_GEMV(f8_e4m3, row_f8, IG_F8_UNIT)

void ig_kernels_fill_gemv_avx2(ig_kernels *k) {
    SET_GEMV(F32, f32)
    SET_GEMV(F16, f16)
    SET_GEMV(BF16, bf16)
    SET_GEMV(F8_E4M3, f8_e4m3)
    SET_GEMV(Q8_0, q8_0)
    SET_GEMV(IQ4_NL, iq4_nl)
    SET_GEMV(IQ4_XS, iq4_xs)
    SET_GEMV(NVFP4, nvfp4)
    SET_GEMV(Q1_0, q1_0)
    SET_GEMV(Q2_0, q2_0)
    SET_GEMV(TQ1_0, tq1_0)
    SET_GEMV(TQ2_0, tq2_0)
    SET_GEMV(Q2_K, q2_k)
    SET_GEMV(Q3_K, q3_k)
    IG_BOOK_TYPES(SET_GEMV)
}
