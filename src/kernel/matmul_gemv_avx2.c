/* SPDX-License-Identifier: Apache-2.0
 *
 * Few columns of types that do not come in panels, AVX2.
 */
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

DEFINE_QUANTISED_GEMV(dot4_avx2)
DEFINE_GEMV(f32, row_floats, load_f32, 4)
DEFINE_GEMV(f16, row_floats, load_f16, 2)
DEFINE_GEMV(bf16, row_floats, load_bf16, 2)

void ig_kernels_fill_gemv_avx2(ig_kernels *k) {
    SET_GEMV(F32, f32)
    SET_GEMV(F16, f16)
    SET_GEMV(BF16, bf16)
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
