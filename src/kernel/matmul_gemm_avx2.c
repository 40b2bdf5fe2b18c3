/* SPDX-License-Identifier: Apache-2.0
 *
 * Many columns, AVX2: rows in the lanes.
 *
 * A panel of 16 rows is unpacked to scratch once, from the file's order or from a stored panel, and multiplied with all
 * columns, three at a time (six with float weights, and a slice of 512 elements). panel_avx2.h has what it looks like;
 * with float weights it is [element][16 rows] floats. Few columns meet a stored panel as it is, with the same bits.
 */
#include "kernel/matmul_avx2.h"
#include "kernel/panel_avx2.h"
#include "kernel/unpack_avx2.h"

enum { FLOAT_COLS = 6, FLOAT_SLICE = 512, FEW_COLS = 6 };

static const format floats = {0};

size_t ig_gemm_scratch_bytes_avx2(int n_in) {
    size_t quantised = panel_bytes(bits6_16, n_in + 31);
    size_t whole = FLOAT_SLICE * PANEL_ROWS * sizeof(float);
    return ((quantised > whole ? quantised : whole) + 63) / 64 * 64;
}

static int min_int(int a, int b) { return a < b ? a : b; }

/* ---- floats ------------------------------------------------------------------------- */

INLINE void unpack_floats(char *panel, panel_rows rows, int half, int n, __m256 (*load)(const uint8_t *, int),
                          const int bytes) {
    for (int i = 0; i < n; i += 8) {
        __m256i v[8];
        for (int r = 0; r < 8; r++) {
            v[r] = _mm256_setzero_si256();
            if (r < rows.n)
                v[r] = _mm256_castps_si256(load(rows.w + (size_t)r * rows.row_bytes + (size_t)(i * bytes), n - i));
        }
        put_columns(panel + (size_t)i * PANEL_ROWS * sizeof(float), half, v);
    }
}

#define UNPACK_FLOATS(type, bytes)                                             \
    static void unpack_##type(char *panel, panel_rows rows, int half, int n) { \
        unpack_floats(panel, rows, half, n, load_##type, bytes);               \
    }
UNPACK_FLOATS(f32, 4)
UNPACK_FLOATS(f16, 2)
UNPACK_FLOATS(bf16, 2)

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

/* ---- products ---------------------------------------------------------------------- */

TILES(bits4, tile_q8, TILE_COLS)
TILES(bits5, tile_q8, TILE_COLS)
TILES(bits8, tile_q8, TILE_COLS)
TILES(bits3_16, tile_q8, TILE_COLS)
TILES(bits6_16, tile_q8, TILE_COLS)
TILES(floats, tile_f32, FLOAT_COLS)

static panel_rows rows_at(const ig_matmul *m, int r, int row_end, size_t offset) {
    int n = row_end - r < 0 ? 0 : min_int(row_end - r, 8);
    return (panel_rows){(const uint8_t *)m->w + (size_t)(n ? r : 0) * m->row_bytes + offset, m->row_bytes, n};
}

/* Fetches n bytes of what is multiplied next, and returns where they end. */
static inline const char *fetch(const char *next, size_t n) {
    for (const char *p = next; p < next + n; p += 64) _mm_prefetch(p, _MM_HINT_T1);
    return next + n;
}

/* block: elements that take `bytes`. The rows of the next panel are fetched while this one meets the columns, an equal
 * share with each column. */
static void multiply(const ig_matmul *m, int row_begin, int row_end, unpack_fn unpack, tile_fn tile, int block,
                     int bytes) {
    const int slice = block == 1 ? FLOAT_SLICE : m->n_in;
    const size_t share = PANEL_ROWS * m->row_bytes / (size_t)m->n_cols;
    tile_at t = {.m = m};
    for (int r = row_begin; r < row_end; r += PANEL_ROWS) {
        const char *next = (const char *)m->w + (size_t)(r + PANEL_ROWS) * m->row_bytes;
        t.n_rows = min_int(row_end - r, PANEL_ROWS);
        for (t.first = 0; t.first < m->n_in; t.first += slice) {
            size_t offset = (size_t)(t.first / block) * (size_t)bytes;
            t.n = min_int(m->n_in - t.first, slice);
            for (int half = 0; half < 2; half++)
                unpack(m->scratch, rows_at(m, r + 8 * half, row_end, offset), half, t.n);
            for (int n = t.column = 0; t.column < m->n_cols; t.column += n) {
                t.out = m->out + (size_t)t.column * m->out_stride + (size_t)r;
                n = tile(m->scratch, &t, m->n_cols - t.column);
                if (t.first == 0 && r + PANEL_ROWS < row_end) next = fetch(next, (size_t)n * share);
            }
        }
    }
}

#define GEMM(type, block, bytes, f)                                              \
    void ig_gemm_##type##_avx2(const ig_matmul *m, int row_begin, int row_end) { \
        multiply(m, row_begin, row_end, unpack_##type, tile_##f, block, bytes);  \
    }
GEMM(q4_0, 32, 18, bits4)
GEMM(q4_1, 32, 20, bits4)
GEMM(q5_0, 32, 22, bits5)
GEMM(q5_1, 32, 24, bits5)
GEMM(q8_0, 32, 34, bits8)
GEMM(q2_k, 256, 84, bits3_16)
GEMM(q3_k, 256, 110, bits3_16)
GEMM(q4_k, 256, 144, bits4)
GEMM(q5_k, 256, 176, bits5)
GEMM(q6_k, 256, 210, bits6_16)
GEMM(f32, 1, 4, floats)
GEMM(f16, 1, 2, floats)
GEMM(bf16, 1, 2, floats)

/* ---- stored panels ------------------------------------------------------------------ */

/* A stored panel to an unpacked one. */
INLINE void expand(char *panel, const char *step, int n_in, const format from, const format to) {
    const char *head = step;
    for (int g = 0; g < n_in / 32; g++, step += step_bytes(from), panel += step_bytes(to)) {
        if (from.super && g % 8 == 0) {
            head = step;
            step += head_bytes(from);
        }
        for (int h = 0; h < 2; h++) {
#pragma GCC unroll 8
            for (int j = 0; j < 8; j++)
                _mm256_store_si256((void *)(panel + 64 * j + 32 * h), load_codes(step, j, h, from));
#pragma GCC unroll 2
            for (int part = 0; part < from.n_scales; part++) {
                __m256 scale = load_stored(step, head, 0, part, h, from);
                _mm256_store_ps(affine_at(panel, part, h), scale);
                _mm256_store_ps(affine_at(panel, from.n_scales + part, h), load_min(scale, step, head, part, h, from));
            }
        }
    }
}

typedef void (*expand_fn)(char *panel, const char *stored, int n_in);

/* row_begin is the first of a panel. As in multiply() the next panel is fetched while this one meets the columns. */
static void multiply_stored(const ig_matmul *m, int row_begin, int row_end, tile_fn stored, expand_fn unpack,
                            tile_fn unpacked) {
    const size_t bytes = PANEL_ROWS * m->row_bytes, share = bytes / (size_t)m->n_cols;
    tile_at t = {.m = m};
    for (int r = row_begin; r < row_end; r += PANEL_ROWS) {
        const char *panel = (const char *)m->w + (size_t)r * m->row_bytes, *next = panel + bytes;
        tile_fn tile = stored;
        t.n_rows = min_int(row_end - r, PANEL_ROWS);
        if (m->n_cols > FEW_COLS) {
            unpack(m->scratch, panel, m->n_in);
            panel = m->scratch;
            tile = unpacked;
        }
        for (int n = t.column = 0; t.column < m->n_cols; t.column += n) {
            t.out = m->out + (size_t)t.column * m->out_stride + (size_t)r;
            n = tile(panel, &t, m->n_cols - t.column);
            if (tile == unpacked && r + PANEL_ROWS < row_end) next = fetch(next, (size_t)n * share);
        }
    }
}

#define PANELS(type, f)                                                                      \
    TILES(stored_##type, tile_q8, TILE_COLS)                                                 \
    static void expand_##type(char *panel, const char *stored, int n_in) {                   \
        expand(panel, stored, n_in, stored_##type, f);                                       \
    }                                                                                        \
    void ig_panels_##type##_avx2(const ig_matmul *m, int row_begin, int row_end) {           \
        multiply_stored(m, row_begin, row_end, tile_stored_##type, expand_##type, tile_##f); \
    }
PANELS(q4_0, bits4)
PANELS(q4_1, bits4)
PANELS(q5_0, bits5)
PANELS(q5_1, bits5)
PANELS(q4_k, bits4)
PANELS(q5_k, bits5)
PANELS(q6_k, bits6_16)
