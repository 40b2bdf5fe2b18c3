/* SPDX-License-Identifier: Apache-2.0
 *
 * Many columns of weights that are 32-bit floats, AVX-512: rows in the lanes. A wide panel is [element][32 rows]
 * floats, a slice of elements at a time.
 */
#include "kernel/matmul_avx512.h"
#include "kernel/wide_avx512.h"

static void unpack_f32(float *panel, panel_rows rows, int half, int first, int n) {
    for (int i = 0; i < n; i += 16) {
        __mmask16 mask = (__mmask16)(n - i < 16 ? (1u << (n - i)) - 1 : 0xffff);
        __m512i v[16];
        for (int r = 0; r < 16; r++) {
            v[r] = _mm512_setzero_si512();
            if (r < rows.n)
                v[r] = _mm512_maskz_loadu_epi32(
                    mask, rows.w + (size_t)r * rows.row_bytes + (size_t)(first + i) * sizeof(float));
        }
        transpose16(v);
        for (int j = 0; j < 16; j++) _mm512_store_si512(panel + (i + j) * WIDE_ROWS + 16 * half, v[j]);
    }
}

/* Elements first .. first + n of a slice; later slices add to what is in out. */
INLINE void tile_f32(const float *panel, int first, int n, const char *act, size_t act_stride, tile_out t,
                     const int n_cols) {
    __m512 acc[2][TILE_COLS];
#pragma GCC unroll 8
    for (int c = 0; c < n_cols; c++)
        for (int h = 0; h < 2; h++)
            acc[h][c] =
                first ? _mm512_maskz_loadu_ps(t.mask[h], t.out + (size_t)c * t.stride + 16 * h) : _mm512_setzero_ps();
    const char *x = act + (size_t)first * sizeof(float);
    for (int i = 0; i < n; i++, x += sizeof(float)) {
        __m512 w0 = _mm512_load_ps(panel + i * WIDE_ROWS), w1 = _mm512_load_ps(panel + i * WIDE_ROWS + 16);
#pragma GCC unroll 8
        for (int c = 0; c < n_cols; c++) {
            __m512 v = _mm512_set1_ps(*(const float *)(const void *)(x + (size_t)c * act_stride));
            acc[0][c] = _mm512_fmadd_ps(w0, v, acc[0][c]);
            acc[1][c] = _mm512_fmadd_ps(w1, v, acc[1][c]);
        }
    }
#pragma GCC unroll 8
    for (int c = 0; c < n_cols; c++)
        for (int h = 0; h < 2; h++) _mm512_mask_storeu_ps(t.out + (size_t)c * t.stride + 16 * h, t.mask[h], acc[h][c]);
}

static void tiles_f32(const ig_matmul *m, int first, int n, int r, int n_rows) {
    for (int c = 0, n_cols; c < m->n_cols; c += n_cols) {
        n_cols = tile_width(m->n_cols - c);
        const char *act = (const char *)m->act + (size_t)c * m->act_stride;
        tile_out t = tile_out_at(m, r, n_rows, c);
        if (n_cols == 6)
            tile_f32(m->scratch, first, n, act, m->act_stride, t, 6);
        else if (n_cols == 4)
            tile_f32(m->scratch, first, n, act, m->act_stride, t, 4);
        else if (n_cols == 2)
            tile_f32(m->scratch, first, n, act, m->act_stride, t, 2);
        else
            tile_f32(m->scratch, first, n, act, m->act_stride, t, 1);
    }
}

void ig_gemm_f32_avx512(const ig_matmul *m, int row_begin, int row_end) {
    for (int r = row_begin; r < row_end; r += WIDE_ROWS)
        for (int first = 0; first < m->n_in; first += FLOAT_SLICE) {
            int n = ig_min_int(m->n_in - first, FLOAT_SLICE);
            for (int half = 0; half < 2; half++)
                unpack_f32(m->scratch, rows_at(m, r + 16 * half, row_end), half, first, n);
            tiles_f32(m, first, n, r, ig_min_int(row_end - r, WIDE_ROWS));
        }
}
