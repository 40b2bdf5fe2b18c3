/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of quantised weights for the levels that have NEON, which differ in how bytes are multiplied: matmul_neon.c,
 * matmul_dotprod.c and matmul_i8mm.c make the functions of each type from what stands here.
 *
 * Few columns: a row at a time straight from the file's format, elements in the lanes. Many columns: a panel of 8 rows
 * is unpacked to scratch once and multiplied with all columns, rows in the lanes. It holds two groups of 4 rows, each a
 * stream of steps of 32 elements: two halves of codes, each in the order of row_sums.put, [scales][4 rows] floats and,
 * if the type has them, as many minimums. Columns are taken four at a time; the operations for one (row, column) are
 * the same whatever the tile, and for all levels.
 */
#ifndef IG_KERNEL_MATMUL_NEON_H
#define IG_KERNEL_MATMUL_NEON_H

#include "base/compiler.h"
#include "kernel/dot_neon.h"
#include "kernel/lanes_neon.h"
#include "kernel/parts.h"
#include "kernel/quant.h"
#include "kernel/quant_neon.h"

enum {
    COLUMNS = 4,
    GROUP_ROWS = 4,
    GROUPS = 2, /* of a panel */
    PANEL_ROWS = GROUPS * GROUP_ROWS,
    CODE_BYTES = 32 * GROUP_ROWS, /* of a step */
    FLOAT_GROUPS = 4,             /* of a panel of floats */
    FLOAT_SLICE = 256,            /* elements */
    FLOAT_PANEL_BYTES = FLOAT_GROUPS * FLOAT_SLICE * GROUP_ROWS * (int)sizeof(float),
};

/* What the blocks of a type are like. */
typedef struct format {
    void (*load)(block *b, const uint8_t *p);
    int bytes, n_steps; /* of 32 elements */
    int n_scales;       /* per step: 1 or 2 */
    int has_min;        /* as many minimums */
} format;

/* The formats of all quantised types: X(TYPE, type, bytes, n_steps, n_scales, has_min). */
#define QUANTISED_TYPES(X)           \
    X(Q4_0, q4_0, 18, 1, 1, 0)       \
    X(Q4_1, q4_1, 20, 1, 1, 1)       \
    X(Q5_0, q5_0, 22, 1, 1, 0)       \
    X(Q5_1, q5_1, 24, 1, 1, 1)       \
    X(Q8_0, q8_0, 34, 1, 1, 0)       \
    X(Q2_K, q2_k, 84, 8, 2, 1)       \
    X(Q3_K, q3_k, 110, 8, 2, 0)      \
    X(Q4_K, q4_k, 144, 8, 1, 1)      \
    X(Q5_K, q5_k, 176, 8, 1, 1)      \
    X(Q6_K, q6_k, 210, 8, 2, 0)      \
    X(IQ1_S, iq1_s, 50, 8, 2, 0)     \
    X(IQ1_M, iq1_m, 56, 8, 2, 0)     \
    X(IQ2_XXS, iq2_xxs, 66, 8, 2, 0) \
    X(IQ2_XS, iq2_xs, 74, 8, 2, 0)   \
    X(IQ2_S, iq2_s, 82, 8, 2, 0)     \
    X(IQ3_XXS, iq3_xxs, 98, 8, 2, 0) \
    X(IQ3_S, iq3_s, 110, 8, 2, 0)    \
    X(IQ4_NL, iq4_nl, 18, 1, 1, 0)   \
    X(IQ4_XS, iq4_xs, 136, 8, 1, 0)  \
    X(MXFP4, mxfp4, 17, 1, 1, 0)     \
    X(NVFP4, nvfp4, 36, 2, 2, 0)     \
    X(Q1_0, q1_0, 18, 4, 1, 0)       \
    X(Q2_0, q2_0, 18, 2, 1, 0)       \
    X(TQ1_0, tq1_0, 54, 8, 1, 0)     \
    X(TQ2_0, tq2_0, 66, 8, 1, 0)

static inline int columns_at_once(int n_left) { return ig_min_int(n_left, COLUMNS); }
/* Of kernels that take columns by twos. */
static inline int even_columns_at_once(int n_left) { return n_left >= COLUMNS ? COLUMNS : n_left >= 2 ? 2 : 1; }

static inline ig_q8 column_q8(const ig_matmul *m, int c) {
    return ig_q8_view((const char *)m->act + (size_t)c * m->act_stride, m->n_in);
}

/* ---- few columns ----------------------------------------------------------------- */

/* Adds n products of minimums and sums of activations; n is 1 or a multiple of 4. */
INLINE float32x4_t add_mins(float32x4_t sum, const float *min, const float *ds, const int n) {
    if (n == 1) return vfmaq_n_f32(sum, vsetq_lane_f32(min[0], vdupq_n_f32(0), 0), ds[0]);
    for (int i = 0; i < n; i += 4) sum = vfmaq_f32(sum, vld1q_f32(min + i), vld1q_f32(ds + i));
    return sum;
}

INLINE void row_quantised(const ig_matmul *m, int r, int c0, const int n_cols, const format f, dot_fn dot) {
    const uint8_t *w = (const uint8_t *)m->w + (size_t)r * m->row_bytes;
    const int32x4_t zero = vdupq_n_s32(0);
    const int n = f.n_steps * f.n_scales;
    float32x4_t acc[COLUMNS];
    ig_q8 a[COLUMNS];
    for (int c = 0; c < n_cols; c++) {
        a[c] = column_q8(m, c0 + c);
        acc[c] = vdupq_n_f32(0);
    }
    for (int i = 0; i < m->n_in / 32; i += f.n_steps, w += f.bytes) {
        block b;
        f.load(&b, w);
        for (int c = 0; c < n_cols; c++) {
            if (f.has_min) acc[c] = add_mins(acc[c], b.min, f.n_scales == 2 ? a[c].ds16 + 2 * i : a[c].ds + i, n);
            for (int j = 0; j < f.n_steps; j++) {
                const int8_t *q = a[c].q + 32 * (i + j);
                int32x4_t first = dot(zero, b.code[2 * j], vld1q_s8(q));
                int32x4_t second = dot(f.n_scales == 1 ? first : zero, b.code[2 * j + 1], vld1q_s8(q + 16));
                const float *scale = b.scale + j * f.n_scales, d = a[c].d[i + j];
                if (f.n_scales == 2) acc[c] = vfmaq_n_f32(acc[c], vcvtq_f32_s32(first), scale[0] * d);
                acc[c] = vfmaq_n_f32(acc[c], vcvtq_f32_s32(second), scale[f.n_scales - 1] * d);
            }
        }
    }
    for (int c = 0; c < n_cols; c++) m->out[(size_t)(c0 + c) * m->out_stride + (size_t)r] = vaddvq_f32(acc[c]);
}

INLINE void gemv_quantised(const ig_matmul *m, int row_begin, int row_end, const format f, dot_fn dot) {
    for (int r = row_begin; r < row_end; r++)
        for (int c = 0, n_cols; c < m->n_cols; c += n_cols) {
            n_cols = columns_at_once(m->n_cols - c);
            if (n_cols == COLUMNS)
                row_quantised(m, r, c, COLUMNS, f, dot);
            else if (n_cols == 3)
                row_quantised(m, r, c, 3, f, dot);
            else if (n_cols == 2)
                row_quantised(m, r, c, 2, f, dot);
            else
                row_quantised(m, r, c, 1, f, dot);
        }
}

/* ---- many columns ---------------------------------------------------------------- */

/* Sums of products of 4 rows with up to COLUMNS columns. */
typedef struct row_sums {
    /* Writes 16 elements of each row to 64 bytes, in the order that add() wants. */
    void (*put)(int8_t *to, const int8x16_t row[GROUP_ROWS]);
    /* Adds what these have with 16 elements of n columns (1, 2 or 4) to the sums, in an order of its own. */
    void (*add)(int32x4_t sum[COLUMNS], const int8_t *w, const int8x16_t x[COLUMNS], int n);
    /* Brings the sum of row r and column c to lane r of sum[c]. */
    void (*end)(int32x4_t sum[COLUMNS], int n);
} row_sums;

/* The order of dot_rows_fn. */
INLINE void put_quads(int8_t *to, const int8x16_t row[GROUP_ROWS]) {
    int32x4x4_t quads;
    for (int k = 0; k < GROUP_ROWS; k++) quads.val[k] = vreinterpretq_s32_s8(row[k]);
    vst4q_s32((int32_t *)(void *)to, quads);
}

INLINE void add_quads(int32x4_t sum[COLUMNS], const int8_t *quads, const int8x16_t x[COLUMNS], const int n,
                      dot_rows_fn dot_rows) {
    int8x16_t w[4];
    for (int j = 0; j < 4; j++) w[j] = vld1q_s8(quads + 16 * j);
#pragma GCC unroll 4
    for (int c = 0; c < n; c++) sum[c] = dot_rows(sum[c], w, x[c]);
}

/* They lie there from the start. */
INLINE void end_quads(int32x4_t sum[COLUMNS], const int n) { (void)sum, (void)n; }

static inline size_t step_bytes(const format f) {
    return CODE_BYTES + (size_t)(f.n_scales * (1 + f.has_min)) * GROUP_ROWS * sizeof(float);
}

static inline size_t group_bytes(const format f, int n_in) { return (size_t)n_in / 32 * step_bytes(f); }

/* Rows r to r + 3 of the matrix; those from row_end on are zeros. */
INLINE void unpack_group(char *panel, const ig_matmul *m, int r, int row_end, const format f, const row_sums sums) {
    const uint8_t *w = (const uint8_t *)m->w + (size_t)r * m->row_bytes;
    block b[GROUP_ROWS];
    memset(b, 0, sizeof b);
    for (int i = 0; i < m->n_in / 32; i += f.n_steps, w += f.bytes) {
        for (int k = 0; k < GROUP_ROWS && r + k < row_end; k++) f.load(&b[k], w + (size_t)k * m->row_bytes);
        for (int j = 0; j < f.n_steps; j++, panel += step_bytes(f)) {
            for (int half = 0; half < 2; half++) {
                int8x16_t row[GROUP_ROWS];
                for (int k = 0; k < GROUP_ROWS; k++) row[k] = b[k].code[2 * j + half];
                sums.put((int8_t *)panel + half * CODE_BYTES / 2, row);
            }
            float *affine = (float *)(void *)(panel + CODE_BYTES);
            for (int s = 0; s < f.n_scales; s++)
                for (int k = 0; k < GROUP_ROWS; k++) {
                    affine[s * GROUP_ROWS + k] = b[k].scale[j * f.n_scales + s];
                    if (f.has_min) affine[(f.n_scales + s) * GROUP_ROWS + k] = b[k].min[j * f.n_scales + s];
                }
        }
    }
}

/* The rows of a panel from row r on. */
INLINE void tile_quantised(const ig_matmul *m, int r, int row_end, int c0, const int n_cols, const format f,
                           const row_sums sums) {
    const char *panel = m->scratch;
    const size_t group = group_bytes(f, m->n_in);
    float32x4_t acc[GROUPS][COLUMNS];
    ig_q8 a[COLUMNS];
#pragma GCC unroll 4 /* here and below, or the sums are kept in memory */
    for (int c = 0; c < n_cols; c++) {
        a[c] = column_q8(m, c0 + c);
#pragma GCC unroll 2
        for (int h = 0; h < GROUPS; h++) acc[h][c] = vdupq_n_f32(0);
    }
    for (int i = 0; i < m->n_in / 32; i++, panel += step_bytes(f))
#pragma GCC unroll 2
        for (int h = 0; h < GROUPS; h++) {
            const char *step = panel + (size_t)h * group;
            const float *scale = (const float *)(const void *)(step + CODE_BYTES),
                        *min = scale + f.n_scales * GROUP_ROWS;
            int32x4_t sum[COLUMNS];
#pragma GCC unroll 2
            for (int half = 0; half < 2; half++) {
                const int s = half * (f.n_scales - 1);
                int8x16_t x[COLUMNS];
#pragma GCC unroll 4
                for (int c = 0; c < COLUMNS; c++) {
                    if (half == 0 || f.n_scales == 2) sum[c] = vdupq_n_s32(0);
                    if (c < n_cols) x[c] = vld1q_s8(a[c].q + 32 * i + 16 * half);
                }
                sums.add(sum, (const int8_t *)step + half * CODE_BYTES / 2, x, n_cols);
                if (half == 0 && f.n_scales == 1) continue;
                sums.end(sum, n_cols);
#pragma GCC unroll 4
                for (int c = 0; c < n_cols; c++) {
                    float32x4_t by = vmulq_n_f32(vld1q_f32(scale + s * GROUP_ROWS), a[c].d[i]);
                    acc[h][c] = vfmaq_f32(acc[h][c], vcvtq_f32_s32(sum[c]), by);
                    if (!f.has_min) continue;
                    float ds = f.n_scales == 2 ? a[c].ds16[2 * i + s] : a[c].ds[i];
                    acc[h][c] = vfmaq_n_f32(acc[h][c], vld1q_f32(min + s * GROUP_ROWS), ds);
                }
            }
        }
#pragma GCC unroll 4
    for (int c = 0; c < n_cols; c++)
#pragma GCC unroll 2
        for (int h = 0; h < GROUPS; h++) {
            int n = row_end - r - h * GROUP_ROWS;
            if (n > 0) store_first(m->out + (size_t)(c0 + c) * m->out_stride + r + h * GROUP_ROWS, acc[h][c], n);
        }
}

INLINE void gemm_quantised(const ig_matmul *m, int row_begin, int row_end, const format f, const row_sums s) {
    for (int r = row_begin; r < row_end; r += PANEL_ROWS) {
        for (int h = 0; h < GROUPS; h++)
            unpack_group((char *)m->scratch + (size_t)h * group_bytes(f, m->n_in), m, r + h * GROUP_ROWS, row_end, f,
                         s);
        for (int c = 0, n_cols; c < m->n_cols; c += n_cols) {
            n_cols = even_columns_at_once(m->n_cols - c);
            if (n_cols == COLUMNS)
                tile_quantised(m, r, row_end, c, COLUMNS, f, s);
            else if (n_cols == 2)
                tile_quantised(m, r, row_end, c, 2, f, s);
            else
                tile_quantised(m, r, row_end, c, 1, f, s);
        }
    }
}

/* ---- the functions of a level -------------------------------------------------------- */

/* Of every type, by what the level has: the dot_fn `dot`, and the row_sums `sums`. */
#define DEFINE_GEMV(TYPE, type, ...)                                                    \
    static void gemv_##type(const ig_matmul *m, int row_begin, int row_end) {           \
        gemv_quantised(m, row_begin, row_end, (format){load_##type, __VA_ARGS__}, dot); \
    }
#define DEFINE_GEMM(TYPE, type, ...)                                                     \
    static void gemm_##type(const ig_matmul *m, int row_begin, int row_end) {            \
        gemm_quantised(m, row_begin, row_end, (format){load_##type, __VA_ARGS__}, sums); \
    }
#define SET_GEMV(TYPE, type, ...) k->gemv[IG_TYPE_##TYPE] = gemv_##type;
#define SET_GEMM(TYPE, type, ...) k->gemm[IG_TYPE_##TYPE] = gemm_##type;

#endif
