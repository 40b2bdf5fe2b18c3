/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of float weights for NEON, with the design of matmul_neon.h: few columns with elements in the lanes, many
 * with rows in the lanes. A panel has 16 rows, in groups of 4, and a slice of the elements: [group][element][4 rows]
 * floats.
 */
#include "kernel/matmul_neon.h"

/* The first n of 4 elements, all if n is larger; the rest are zero. */
typedef float32x4_t (*load_fn)(const uint8_t *p, int n);

static inline float32x4_t load_f32(const uint8_t *p, int n) {
    uint8_t tail[16] = {0};
    if (n >= 4) return vreinterpretq_f32_u8(vld1q_u8(p));
    memcpy(tail, p, (size_t)n * sizeof(float));
    return vreinterpretq_f32_u8(vld1q_u8(tail));
}

static inline uint16x4_t load_words(const uint8_t *p, int n) {
    uint8_t tail[8] = {0};
    if (n >= 4) return vreinterpret_u16_u8(vld1_u8(p));
    memcpy(tail, p, (size_t)n * sizeof(uint16_t));
    return vreinterpret_u16_u8(vld1_u8(tail));
}

static inline float32x4_t load_f16_words(const uint8_t *p, int n) {
    return vcvt_f32_f16(vreinterpret_f16_u16(load_words(p, n)));
}

static inline float32x4_t load_bf16(const uint8_t *p, int n) {
    return vreinterpretq_f32_u32(vshll_n_u16(load_words(p, n), 16));
}

static inline const float *column_f32(const ig_matmul *m, int c) {
    return (const float *)(const void *)((const char *)m->act + (size_t)c * m->act_stride);
}

/* ---- few columns ----------------------------------------------------------------- */

/* 16 elements from element i on, or, of the last ones of a row, up to 4. */
INLINE void add_products(float32x4_t acc[COLUMNS][4], const ig_matmul *m, const uint8_t *w, int c0, const int n_cols,
                         int i, const int n_v, load_fn load, const int bytes) {
    int n_left = n_v == 4 ? 16 : m->n_in - i;
#pragma GCC unroll 4
    for (int j = 0; j < n_v; j++) {
        float32x4_t v = load(w + (size_t)(i + 4 * j) * (size_t)bytes, n_left - 4 * j);
#pragma GCC unroll 4
        for (int c = 0; c < n_cols; c++)
            acc[c][j] = vfmaq_f32(acc[c][j], v, vld1q_f32(column_f32(m, c0 + c) + i + 4 * j));
    }
}

INLINE void row_floats(const ig_matmul *m, int r, int c0, const int n_cols, load_fn load, const int bytes) {
    const uint8_t *w = (const uint8_t *)m->w + (size_t)r * m->row_bytes;
    float32x4_t acc[COLUMNS][4];
#pragma GCC unroll 4
    for (int c = 0; c < n_cols; c++)
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) acc[c][j] = vdupq_n_f32(0);
    int i = 0;
    for (; i + 16 <= m->n_in; i += 16) add_products(acc, m, w, c0, n_cols, i, 4, load, bytes);
    for (; i < m->n_in; i += 4) add_products(acc, m, w, c0, n_cols, i, 1, load, bytes);
#pragma GCC unroll 4
    for (int c = 0; c < n_cols; c++) m->out[(size_t)(c0 + c) * m->out_stride + (size_t)r] = vaddvq_f32(sum4(acc[c]));
}

INLINE void gemv_floats(const ig_matmul *m, int row_begin, int row_end, load_fn load, const int bytes) {
    for (int r = row_begin; r < row_end; r++)
        for (int c = 0, n_cols; c < m->n_cols; c += n_cols) {
            n_cols = columns_at_once(m->n_cols - c);
            if (n_cols == COLUMNS)
                row_floats(m, r, c, COLUMNS, load, bytes);
            else if (n_cols == 3)
                row_floats(m, r, c, 3, load, bytes);
            else if (n_cols == 2)
                row_floats(m, r, c, 2, load, bytes);
            else
                row_floats(m, r, c, 1, load, bytes);
        }
}

/* ---- many columns ---------------------------------------------------------------- */

/* n elements from `first` of rows r to r + 3; those from row_end on are zeros. */
INLINE void unpack_floats(float *panel, const ig_matmul *m, int r, int row_end, int first, int n, load_fn load,
                          const int bytes) {
    const uint8_t *w = (const uint8_t *)m->w + (size_t)r * m->row_bytes + (size_t)first * (size_t)bytes;
    for (int i = 0; i < n; i += 4) {
        float32x4x4_t v;
        for (int k = 0; k < GROUP_ROWS; k++)
            v.val[k] = r + k < row_end ? load(w + (size_t)k * m->row_bytes + (size_t)i * (size_t)bytes, n - i)
                                       : vdupq_n_f32(0);
        vst4q_f32(panel + (size_t)i * GROUP_ROWS, v);
    }
}

/* Elements first to first + n - 1; later slices add to what is in out. */
INLINE void tile_floats(const ig_matmul *m, int r, int row_end, int c0, const int n_cols, int first, int n) {
    float32x4_t acc[FLOAT_GROUPS][COLUMNS];
    float *out = m->out + (size_t)c0 * m->out_stride + (size_t)r;
#pragma GCC unroll 4 /* here and below, or the sums are kept in memory */
    for (int c = 0; c < n_cols; c++)
#pragma GCC unroll 4
        for (int h = 0; h < FLOAT_GROUPS; h++) {
            int n_left = row_end - r - h * GROUP_ROWS;
            acc[h][c] = vdupq_n_f32(0);
            if (first && n_left > 0)
                acc[h][c] = load_first(out + (size_t)c * m->out_stride + h * GROUP_ROWS, n_left, 0);
        }
    for (int i = 0; i < n; i++) {
        float32x4_t w[FLOAT_GROUPS];
        for (int h = 0; h < FLOAT_GROUPS; h++)
            w[h] = vld1q_f32((const float *)m->scratch + (h * FLOAT_SLICE + i) * GROUP_ROWS);
#pragma GCC unroll 4
        for (int c = 0; c < n_cols; c++) {
            float x = column_f32(m, c0 + c)[first + i];
#pragma GCC unroll 4
            for (int h = 0; h < FLOAT_GROUPS; h++) acc[h][c] = vfmaq_n_f32(acc[h][c], w[h], x);
        }
    }
#pragma GCC unroll 4
    for (int c = 0; c < n_cols; c++)
#pragma GCC unroll 4
        for (int h = 0; h < FLOAT_GROUPS; h++) {
            int n_left = row_end - r - h * GROUP_ROWS;
            if (n_left > 0) store_first(out + (size_t)c * m->out_stride + h * GROUP_ROWS, acc[h][c], n_left);
        }
}

INLINE void gemm_floats(const ig_matmul *m, int row_begin, int row_end, load_fn load, const int bytes) {
    for (int r = row_begin; r < row_end; r += FLOAT_GROUPS * GROUP_ROWS)
        for (int first = 0; first < m->n_in; first += FLOAT_SLICE) {
            int n = m->n_in - first < FLOAT_SLICE ? m->n_in - first : FLOAT_SLICE;
            for (int h = 0; h < FLOAT_GROUPS; h++)
                unpack_floats((float *)m->scratch + h * FLOAT_SLICE * GROUP_ROWS, m, r + h * GROUP_ROWS, row_end, first,
                              n, load, bytes);
            for (int c = 0, n_cols; c < m->n_cols; c += n_cols) {
                n_cols = even_columns_at_once(m->n_cols - c);
                if (n_cols == COLUMNS)
                    tile_floats(m, r, row_end, c, COLUMNS, first, n);
                else if (n_cols == 2)
                    tile_floats(m, r, row_end, c, 2, first, n);
                else
                    tile_floats(m, r, row_end, c, 1, first, n);
            }
        }
}

#define DEFINE_FLOATS(type, load, bytes)                                             \
    static void gemv_##type##_neon(const ig_matmul *m, int row_begin, int row_end) { \
        gemv_floats(m, row_begin, row_end, load, bytes);                             \
    }                                                                                \
    static void gemm_##type##_neon(const ig_matmul *m, int row_begin, int row_end) { \
        gemm_floats(m, row_begin, row_end, load, bytes);                             \
    }
DEFINE_FLOATS(f32, load_f32, 4)
DEFINE_FLOATS(f16, load_f16_words, 2)
DEFINE_FLOATS(bf16, load_bf16, 2)

void ig_kernels_fill_matmul_floats_neon(ig_kernels *k) {
    k->gemv[IG_TYPE_F32] = gemv_f32_neon, k->gemm[IG_TYPE_F32] = gemm_f32_neon;
    k->gemv[IG_TYPE_F16] = gemv_f16_neon, k->gemm[IG_TYPE_F16] = gemm_f16_neon;
    k->gemv[IG_TYPE_BF16] = gemv_bf16_neon, k->gemm[IG_TYPE_BF16] = gemm_bf16_neon;
}
