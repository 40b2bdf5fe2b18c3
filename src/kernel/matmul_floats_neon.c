/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of float weights for NEON, with the design of matmul_neon.h: few columns with elements in the lanes, many
 * with rows in the lanes. A panel has 16 rows, in groups of 4, and a slice of the elements: [group][element][4 rows]
 * floats.
 */
#include "base/half.h"
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

/* 1 / IG_F8_UNIT of it, as its bits are (ig_f8_bits()). */
static inline float32x4_t load_f8(const uint8_t *p, int n) {
    uint32_t bytes = 0;
    memcpy(&bytes, p, n >= 4 ? 4 : (size_t)n);
    int16x8_t v = vshlq_n_s16(vmovl_s8(vcreate_s8(bytes)), 7), most = vdupq_n_s16(0x3f80);
    uint16x4_t nan = vget_low_u16(vceqq_s16(vandq_s16(v, most), most)),
               half = vand_u16(vreinterpret_u16_s16(vget_low_s16(v)), vdup_n_u16(0xbfff));
    return vcvt_f32_f16(vreinterpret_f16_u16(vorr_u16(half, nan)));
}

static inline const float *column_f32(const ig_matmul *m, int c) {
    return (const float *)(const void *)((const char *)m->act + (size_t)c * m->act_stride);
}

/* ---- few columns ----------------------------------------------------------------- */

/* If types have scales of blocks, what is loaded is 1 / unit of their codes; of others unit is 0. */
INLINE float block_scale(const ig_matmul *m, int r, int b, const float unit) {
    const float *s = ig_scales_of_row(&m->scales, r);
    return unit * (s ? s[b] : 1);
}

/* 16 elements from element i on, or, of the last ones of a row, up to 4. */
INLINE void add_products(float32x4_t acc[COLUMNS][4], const ig_matmul *m, const uint8_t *w, int c0, const int n_cols,
                         int i, const int n_v, const float *scale, load_fn load, const int bytes) {
    int n_left = n_v == 4 ? 16 : m->n_in - i;
#pragma GCC unroll 4
    for (int j = 0; j < n_v; j++) {
        float32x4_t v = load(w + (size_t)(i + 4 * j) * (size_t)bytes, n_left - 4 * j);
        if (scale) v = vmulq_n_f32(v, *scale);
#pragma GCC unroll 4
        for (int c = 0; c < n_cols; c++)
            acc[c][j] = vfmaq_f32(acc[c][j], v, vld1q_f32(column_f32(m, c0 + c) + i + 4 * j));
    }
}

INLINE void row_floats(const ig_matmul *m, int r, int c0, const int n_cols, load_fn load, const int bytes,
                       const float unit) {
    const uint8_t *w = (const uint8_t *)m->w + (size_t)r * m->row_bytes;
    const int width = unit != 0 ? ig_scales_width(&m->scales, m->n_in) : m->n_in;
    float32x4_t acc[COLUMNS][4];
#pragma GCC unroll 4
    for (int c = 0; c < n_cols; c++)
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) acc[c][j] = vdupq_n_f32(0);
    for (int b = 0, i = 0; i < m->n_in; b++) {
        const int end = ig_min_int((b + 1) * width, m->n_in);
        const float of_block = unit != 0 ? block_scale(m, r, b, unit) : 1, *scale = unit != 0 ? &of_block : NULL;
        for (; i + 16 <= end; i += 16) add_products(acc, m, w, c0, n_cols, i, 4, scale, load, bytes);
        for (; i < end; i += 4) add_products(acc, m, w, c0, n_cols, i, 1, scale, load, bytes);
    }
#pragma GCC unroll 4
    for (int c = 0; c < n_cols; c++) m->out[(size_t)(c0 + c) * m->out_stride + (size_t)r] = vaddvq_f32(sum4(acc[c]));
}

INLINE void gemv_floats(const ig_matmul *m, int row_begin, int row_end, load_fn load, const int bytes,
                        const float unit) {
    for (int r = row_begin; r < row_end; r++)
        for (int c = 0, n_cols; c < m->n_cols; c += n_cols) {
            n_cols = columns_at_once(m->n_cols - c);
            if (n_cols == COLUMNS)
                row_floats(m, r, c, COLUMNS, load, bytes, unit);
            else if (n_cols == 3)
                row_floats(m, r, c, 3, load, bytes, unit);
            else if (n_cols == 2)
                row_floats(m, r, c, 2, load, bytes, unit);
            else
                row_floats(m, r, c, 1, load, bytes, unit);
        }
}

/* ---- many columns ---------------------------------------------------------------- */

/* n elements from `first` of rows r to r + 3; those from row_end on are zeros. */
INLINE void unpack_floats(float *panel, const ig_matmul *m, int r, int row_end, int first, int n, load_fn load,
                          const int bytes, const float unit) {
    const uint8_t *w = (const uint8_t *)m->w + (size_t)r * m->row_bytes + (size_t)first * (size_t)bytes;
    float scale[GROUP_ROWS] = {0};
    for (int i = 0; i < n; i += 4) {
        float32x4x4_t v;
        for (int k = 0; k < GROUP_ROWS; k++) {
            v.val[k] = r + k < row_end ? load(w + (size_t)k * m->row_bytes + (size_t)i * (size_t)bytes, n - i)
                                       : vdupq_n_f32(0);
            if (unit == 0 || r + k >= row_end) continue;
            if (i % IG_SCALES_UNIT == 0)
                scale[k] = block_scale(m, r + k, (first + i) / ig_scales_width(&m->scales, m->n_in), unit);
            v.val[k] = vmulq_n_f32(v.val[k], scale[k]);
        }
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

INLINE void gemm_floats(const ig_matmul *m, int row_begin, int row_end, load_fn load, const int bytes,
                        const float unit) {
    for (int r = row_begin; r < row_end; r += FLOAT_GROUPS * GROUP_ROWS)
        for (int first = 0; first < m->n_in; first += FLOAT_SLICE) {
            int n = m->n_in - first < FLOAT_SLICE ? m->n_in - first : FLOAT_SLICE;
            for (int h = 0; h < FLOAT_GROUPS; h++)
                unpack_floats((float *)m->scratch + h * FLOAT_SLICE * GROUP_ROWS, m, r + h * GROUP_ROWS, row_end, first,
                              n, load, bytes, unit);
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

#define DEFINE_FLOATS(type, load, bytes, unit)                                       \
    static void gemv_##type##_neon(const ig_matmul *m, int row_begin, int row_end) { \
        gemv_floats(m, row_begin, row_end, load, bytes, unit);                       \
    }                                                                                \
    static void gemm_##type##_neon(const ig_matmul *m, int row_begin, int row_end) { \
        gemm_floats(m, row_begin, row_end, load, bytes, unit);                       \
    }
DEFINE_FLOATS(f32, load_f32, 4, 0)
DEFINE_FLOATS(f16, load_f16_words, 2, 0)
DEFINE_FLOATS(bf16, load_bf16, 2, 0)
DEFINE_FLOATS(f8_e4m3, load_f8, 1, IG_F8_UNIT)

void ig_kernels_fill_matmul_floats_neon(ig_kernels *k) {
    k->gemv[IG_TYPE_F32] = gemv_f32_neon, k->gemm[IG_TYPE_F32] = gemm_f32_neon;
    k->gemv[IG_TYPE_F16] = gemv_f16_neon, k->gemm[IG_TYPE_F16] = gemm_f16_neon;
    k->gemv[IG_TYPE_BF16] = gemv_bf16_neon, k->gemm[IG_TYPE_BF16] = gemm_bf16_neon;
    k->gemv[IG_TYPE_F8_E4M3] = gemv_f8_e4m3_neon, k->gemm[IG_TYPE_F8_E4M3] = gemm_f8_e4m3_neon;
}
