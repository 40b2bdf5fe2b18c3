/* SPDX-License-Identifier: Apache-2.0
 *
 * Products with many columns of weights that are 16-bit or 8-bit floats, for the levels of x86, which differ in their
 * vectors and in how 16-bit numbers are multiplied: in fixed point (fixed.h), as that makes twice as many products as
 * FMA. What rounding weights to a group's scale adds is less than what keeping them as 16-bit floats has cost. A level
 * includes vectors_*.h first. All make the same bits.
 *
 * Rows are in the lanes. A panel of 16 rows is unpacked to scratch once and multiplied with all columns, TILE_COLS at a
 * time: for each group of elements [32 pairs][16 rows] of codes, then 16 scales.
 */
#ifndef IG_KERNEL_MATMUL_FIXED_H
#define IG_KERNEL_MATMUL_FIXED_H

#include "base/compiler.h"
#include "base/half.h"
#include "kernel/fixed.h"
#include "kernel/parts.h"

enum {
    ROWS = 16,
    VECTORS = ROWS / WIDTH,
    PAIRS = IG_FIXED_GROUP / 2,
    STEP = PAIRS * ROWS + ROWS, /* numbers of 4 bytes */
    /* As many sums in integers and in floats as there are registers for. */
    TILE_COLS = WIDTH == 16 ? 12 : 3,
};

/* ---- panels -------------------------------------------------------------------- */

/* Pairs of 16-bit weights: each becomes a float. */
typedef floats (*half_fn)(ints pairs);

/* Weights as they are stored: those of one byte are 8-bit floats, which have scales of blocks. */
typedef struct format {
    int bytes;
    half_fn low, high;
} format;

static inline floats low_f16(ints x) { return from_f16(x); }
static inline floats high_f16(ints x) { return from_f16(shift_right_16(x)); }
static inline floats low_bf16(ints x) { return lower_half(x); }
static inline floats high_bf16(ints x) { return upper_half(x); }

static const format of_f16 = {2, low_f16, high_f16}, of_bf16 = {2, low_bf16, high_bf16}, of_f8 = {1, low_f16, high_f16};

/* A group of WIDTH rows, n (1..64) elements at row[..]: to every ROWS-th pair of numbers from `step` on, and scales,
 * times those that they have. */
INLINE void unpack_group(int32_t *step, float *scales, const uint8_t *const row[WIDTH], int n, floats blocks,
                         const format f) {
    uint16_t padded[WIDTH][IG_FIXED_GROUP];
    ints pairs[PAIRS];
    for (int i = 0; i < WIDTH; i++) {
        const uint8_t *from = row[i];
        if (n < IG_FIXED_GROUP) {
            memset(padded[i], 0, sizeof padded[i]);
            from = memcpy(padded[i], from, (size_t)(n * f.bytes));
        }
        for (int j = 0; j < PAIRS / WIDTH; j++)
            pairs[j * WIDTH + i] = f.bytes == 2 ? load_any(from + 4 * WIDTH * j) : from_f8(from + 2 * WIDTH * j);
    }
    for (int j = 0; j < PAIRS / WIDTH; j++) transpose(pairs + j * WIDTH);
    floats peak = all_floats(0), bad = peak; /* NaN where a weight is not finite */
    for (int i = 0; i < PAIRS; i++) {
        floats a = f.low(pairs[i]), b = f.high(pairs[i]);
        peak = larger(larger(magnitude(a), magnitude(b)), peak);
        bad = mul_add(a, all_floats(0), mul_add(b, all_floats(0), bad));
    }
    floats scale = add(mul(peak, all_floats(1.0f / IG_FIXED_PEAK)), bad);
    floats factor = quotient(all_floats(IG_FIXED_PEAK), larger(peak, all_floats(IG_FIXED_TINY)));
    for (int i = 0; i < PAIRS; i++) {
        ints a = to_ints(mul(f.low(pairs[i]), factor)), b = to_ints(mul(f.high(pairs[i]), factor));
        store_ints(step + i * ROWS, pairs_of(a, b));
    }
    store_floats(scales, f.bytes == 1 ? mul(scale, blocks) : scale);
}

/* Of the blocks that rows r + first .. of n_rows from r on have at element `at`, as below. */
INLINE floats block_scales(const ig_matmul *m, int r, int first, int n_rows, int at) {
    _Alignas(64) float scale[WIDTH];
    for (int i = 0; i < WIDTH; i++) {
        const float *s = ig_scales_of_row(&m->scales, r + ig_min_int(first + i, n_rows - 1));
        scale[i] = IG_F8_UNIT * (s ? s[at / m->scales.n_cols] : 1);
    }
    return load_floats(scale);
}

/* Rows [r, r + n_rows) of the product to a panel; the last of them stands for those that are missing. */
INLINE void unpack(int32_t *panel, const ig_matmul *m, int r, int n_rows, const format f) {
    const int width = ig_scales_width(&m->scales, m->n_in);
    for (int v = 0; v < VECTORS; v++) {
        const uint8_t *row[WIDTH];
        for (int i = 0; i < WIDTH; i++)
            row[i] = (const uint8_t *)m->w + (size_t)(r + ig_min_int(WIDTH * v + i, n_rows - 1)) * m->row_bytes;
        int32_t *step = panel + WIDTH * v;
        floats blocks = all_floats(1);
        for (int at = 0; at < m->n_in; at += IG_FIXED_GROUP, step += STEP) {
            /* of each row the lines after next: 16 streams are too many for the processor to see */
            for (int i = 0; i < WIDTH; i++) {
                fetch_line(row[i] + 2 * f.bytes * IG_FIXED_GROUP);
                if (f.bytes == 2) fetch_line(row[i] + 4 * IG_FIXED_GROUP + 64);
            }
            if (f.bytes == 1 && at % width == 0) blocks = block_scales(m, r, WIDTH * v, n_rows, at);
            unpack_group(step, (float *)(void *)(step + PAIRS * ROWS), row, ig_min_int(m->n_in - at, IG_FIXED_GROUP),
                         blocks, f);
            for (int i = 0; i < WIDTH; i++) row[i] += f.bytes * IG_FIXED_GROUP;
        }
    }
}

/* ---- tiles ---------------------------------------------------------------------- */

/* acc += x[2 i] y[2 i] + x[2 i + 1] y[2 i + 1] of 16-bit numbers: what the levels differ in. */
typedef ints (*add_pairs_fn)(ints acc, ints x, ints y);

/* Column c of a tile lies c * stride behind `p`. */
INLINE int32_t pair_at(const int16_t *p, size_t stride, int c) {
    int32_t pair;
    memcpy(&pair, (const char *)p + (size_t)c * stride, sizeof pair);
    return pair;
}

INLINE void tile(const int32_t *panel, const ig_matmul *m, int r, int n_rows, int column, const int n_cols,
                 add_pairs_fn sum_pairs) {
    const size_t stride = m->act_stride;
    const ig_fixed x = ig_fixed_view((const char *)m->act + (size_t)column * stride, m->n_in);
    floats acc[VECTORS][TILE_COLS];
#pragma GCC unroll 12
    for (int c = 0; c < n_cols; c++)
        for (int v = 0; v < VECTORS; v++) acc[v][c] = all_floats(0);
    const int16_t *q = x.q;
    const int n_groups = (int)ig_fixed_groups(m->n_in);
    for (int g = 0; g < n_groups; g++, panel += STEP) {
        ints sum[VECTORS][TILE_COLS];
#pragma GCC unroll 12
        for (int c = 0; c < n_cols; c++)
            for (int v = 0; v < VECTORS; v++) sum[v][c] = all_ints(0);
#pragma GCC unroll 4
        for (int i = 0; i < PAIRS; i++, q += 2) {
            ints w[VECTORS];
            for (int v = 0; v < VECTORS; v++) w[v] = load_ints(panel + i * ROWS + WIDTH * v);
#pragma GCC unroll 12
            for (int c = 0; c < n_cols; c++) {
                ints y = all_ints(pair_at(q, stride, c));
                for (int v = 0; v < VECTORS; v++) {
                    sum[v][c] = sum_pairs(sum[v][c], w[v], y);
                    STAY(sum[v][c]);
                }
            }
        }
        for (int v = 0; v < VECTORS; v++) {
            floats scale = load_floats((const float *)(const void *)panel + PAIRS * ROWS + WIDTH * v);
#pragma GCC unroll 12
            for (int c = 0; c < n_cols; c++) {
                floats each =
                    all_floats(*(const float *)(const void *)((const char *)(x.scale + g) + (size_t)c * stride));
                acc[v][c] = mul_add(to_floats(sum[v][c]), mul(scale, each), acc[v][c]);
            }
        }
    }
    for (int c = 0; c < n_cols; c++) {
        _Alignas(64) float out[ROWS];
        for (int v = 0; v < VECTORS; v++) store_floats(out + WIDTH * v, acc[v][c]);
        memcpy(m->out + (size_t)(column + c) * m->out_stride + r, out, (size_t)n_rows * sizeof *out);
    }
}

INLINE void multiply(const ig_matmul *m, int row_begin, int row_end, const format f, add_pairs_fn sum_pairs) {
    for (int r = row_begin; r < row_end; r += ROWS) {
        int n_rows = ig_min_int(row_end - r, ROWS);
        unpack(m->scratch, m, r, n_rows, f);
        for (int c = 0, n_cols; c < m->n_cols; c += n_cols) {
            int left = m->n_cols - c;
            if (left >= TILE_COLS)
                tile(m->scratch, m, r, n_rows, c, n_cols = TILE_COLS, sum_pairs);
            else if (TILE_COLS > 6 && left >= 6)
                tile(m->scratch, m, r, n_rows, c, n_cols = 6, sum_pairs);
            else if (TILE_COLS > 3 && left >= 3)
                tile(m->scratch, m, r, n_rows, c, n_cols = 3, sum_pairs);
            else
                tile(m->scratch, m, r, n_rows, c, n_cols = 1, sum_pairs);
        }
    }
}

/* The functions of a level. */
#define FIXED_FUNCTION(type, level, add_pairs)                                          \
    static void gemm_##type##_##level(const ig_matmul *m, int row_begin, int row_end) { \
        multiply(m, row_begin, row_end, of_##type, add_pairs);                          \
    }
#define FIXED_FUNCTIONS(level, add_pairs)  \
    FIXED_FUNCTION(f16, level, add_pairs)  \
    FIXED_FUNCTION(bf16, level, add_pairs) \
    FIXED_FUNCTION(f8, level, add_pairs)
#define SET_FIXED(k, level)                                                                 \
    (k)->gemm[IG_TYPE_F16] = gemm_f16_##level, (k)->gemm[IG_TYPE_BF16] = gemm_bf16_##level, \
    (k)->gemm[IG_TYPE_F8_E4M3] = gemm_f8_##level

#endif
