/* SPDX-License-Identifier: Apache-2.0
 *
 * Many columns, AVX2: rows in the lanes.
 */
#include "kernel/fixed.h"
#include "kernel/matmul_gemm_avx2.h"

static const format floats = {0};

static size_t scratch_bytes(int n_in) {
    size_t quantised = panel_bytes(bits6_16, n_in + 31), most = ig_fixed_panel_bytes(n_in);
    size_t whole = FLOAT_SLICE * PANEL_ROWS * sizeof(float);
    if (most < quantised) most = quantised;
    return ((most > whole ? most : whole) + 63) / 64 * 64;
}

/* ---- floats ------------------------------------------------------------------------- */

static void unpack_f32(char *panel, panel_rows rows, int half, int n) {
    for (int i = 0; i < n; i += 8) {
        __m256i v[8];
        for (int r = 0; r < 8; r++) {
            v[r] = _mm256_setzero_si256();
            if (r < rows.n)
                v[r] = _mm256_castps_si256(
                    load_f32(rows.w + (size_t)r * rows.row_bytes + (size_t)i * sizeof(float), n - i));
        }
        put_columns(panel + (size_t)i * PANEL_ROWS * sizeof(float), half, v);
    }
}

/* Sums of 8 rows so far. */
static inline __m256 load_half(const tile_at *t, int c, int half) {
    int n = t->n_rows - 8 * half;
    if (t->first == 0 || n <= 0) return _mm256_setzero_ps();
    return load_f32((const uint8_t *)(t->out + (size_t)c * t->m->out_stride + 8 * half), n);
}

INLINE void tile_f32(const char *panel, const tile_at *t, const format unused, const int n_cols) {
    __m256 acc[2][FLOAT_COLS];
    size_t stride = t->m->act_stride;
    const char *x = (const char *)t->m->act + (size_t)t->column * stride + (size_t)t->first * sizeof(float);
    (void)unused;
#pragma GCC unroll 6
    for (int c = 0; c < n_cols; c++)
        for (int h = 0; h < 2; h++) acc[h][c] = load_half(t, c, h);
    for (int i = 0; i < t->n; i++, x += sizeof(float), panel += PANEL_ROWS * sizeof(float)) {
        __m256 w[2] = {_mm256_load_ps((const void *)panel), _mm256_load_ps((const void *)(panel + 32))};
#pragma GCC unroll 6
        for (int c = 0; c < n_cols; c++) {
            __m256 v = _mm256_set1_ps(*(const float *)(const void *)(x + (size_t)c * stride));
            for (int h = 0; h < 2; h++) acc[h][c] = _mm256_fmadd_ps(w[h], v, acc[h][c]);
        }
    }
#pragma GCC unroll 6
    for (int c = 0; c < n_cols; c++)
        for (int h = 0; h < 2; h++) store_half(t, c, h, acc[h][c]);
}

TILES(floats, tile_f32, FLOAT_COLS)
DEFINE_GEMM(F32, f32, 1, 4, floats)

/* ---- bytes -------------------------------------------------------------------------- */

INLINE void clear(__m256i sum[2][TILE_COLS], const int n_cols) {
#pragma GCC unroll 3
    for (int c = 0; c < n_cols; c++) sum[0][c] = sum[1][c] = _mm256_setzero_si256();
}

/* As many products are added in 16 bits as fit. */
INLINE void dot_unsigned(__m256i dot[2][TILE_COLS], const char *step, const int8_t *const q[TILE_COLS], const int begin,
                         const int end, const format f, const int n_cols) {
    const int n_16 = end - begin < f.fits ? end - begin : f.fits;
    __m256i sum[2][TILE_COLS], w[2];
#pragma GCC unroll 2
    for (int i = begin; i < end; i += n_16) {
        clear(sum, n_cols);
#pragma GCC unroll 8
        for (int j = i; j < i + n_16; j += 4) {
            for (int h = 0; h < 2; h++) w[h] = load_codes(step, j / 4, h, f);
#pragma GCC unroll 3
            for (int c = 0; c < n_cols; c++) {
                __m256i x = repeat4(q[c] + j);
                for (int h = 0; h < 2; h++) {
                    sum[h][c] = _mm256_add_epi16(sum[h][c], _mm256_maddubs_epi16(w[h], x));
                    STAY(sum[h][c]);
                }
            }
        }
#pragma GCC unroll 3
        for (int c = 0; c < n_cols; c++)
            for (int h = 0; h < 2; h++) {
                __m256i s = _mm256_madd_epi16(sum[h][c], _mm256_set1_epi16(1));
                dot[h][c] = i > begin ? _mm256_add_epi32(dot[h][c], s) : s;
            }
    }
}

/* Codes with a sign, of which no two products fit. */
INLINE void dot_signed(__m256i dot[2][TILE_COLS], const char *step, const int8_t *const q[TILE_COLS], const int begin,
                       const int end, const format f, const int n_cols) {
    __m256i w[2];
    clear(dot, n_cols);
#pragma GCC unroll 8
    for (int i = begin; i < end; i += 4) {
        for (int h = 0; h < 2; h++) w[h] = load_codes(step, i / 4, h, f);
#pragma GCC unroll 3
        for (int c = 0; c < n_cols; c++) {
            __m256i x = repeat4(q[c] + i);
            for (int h = 0; h < 2; h++) {
                dot[h][c] = _mm256_add_epi32(dot[h][c], dot4_avx2(w[h], x, 1));
                STAY(dot[h][c]);
            }
        }
    }
}

INLINE void dot_step(__m256i dot[2][TILE_COLS], const char *step, const int8_t *const q[TILE_COLS], const int begin,
                     const int end, const format f, const int n_cols) {
    if (f.fits)
        dot_unsigned(dot, step, q, begin, end, f, n_cols);
    else
        dot_signed(dot, step, q, begin, end, f, n_cols);
}

INLINE void tile_q8(const char *panel, const tile_at *t, const format f, const int n_cols) {
    tile_codes(panel, t, f, n_cols, dot_step);
}

DEFINE_QUANTISED

void ig_kernels_fill_gemm_avx2(ig_kernels *k) {
    k->scratch_bytes = scratch_bytes;
    SET_GEMM(F32, f32)
    ROW_TYPES(SET_GEMM)
    PANEL_TYPES(SET_PANELS)
}
