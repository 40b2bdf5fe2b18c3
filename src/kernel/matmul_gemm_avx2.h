/* SPDX-License-Identifier: Apache-2.0
 *
 * Products with many columns for the levels that have AVX2, which differ in how bytes are multiplied:
 * matmul_gemm_avx2.c and matmul_avxvnni.c make the functions of each type from what stands here.
 *
 * A panel of 16 rows is unpacked to scratch once, from the file's order or from a stored panel, and multiplied with all
 * columns, three at a time (six with float weights, and a slice of 512 elements). panel_avx2.h has what it looks like;
 * with float weights it is [element][16 rows] floats. Few columns meet a stored panel as it is, with the same bits.
 */
#ifndef IG_KERNEL_MATMUL_GEMM_AVX2_H
#define IG_KERNEL_MATMUL_GEMM_AVX2_H

#include "base/compiler.h"
#include "kernel/matmul_avx2.h"
#include "kernel/panel_avx2.h"
#include "kernel/unpack_avx2.h"

enum { FLOAT_COLS = 6, FLOAT_SLICE = 512, FEW_COLS = 6 };

/* The quantised types: X(TYPE, type, elements of a block, its bytes, the unpacked panel). */
#define ROW_TYPES(X)                       \
    X(Q8_0, q8_0, 32, 34, bits8)           \
    X(IQ4_NL, iq4_nl, 32, 18, bits8)       \
    X(IQ4_XS, iq4_xs, 256, 136, bits8)     \
    X(NVFP4, nvfp4, 64, 36, bits5_16)      \
    X(Q1_0, q1_0, 128, 18, bits4)          \
    X(Q2_0, q2_0, 64, 18, bits4)           \
    X(TQ1_0, tq1_0, 256, 54, bits4)        \
    X(TQ2_0, tq2_0, 256, 66, bits4)        \
    X(Q2_K, q2_k, 256, 84, bits3_16)       \
    X(Q3_K, q3_k, 256, 110, bits3_16)      \
    X(IQ1_S, iq1_s, 256, 50, bits6_16)     \
    X(IQ1_M, iq1_m, 256, 56, bits6_16)     \
    X(IQ2_XXS, iq2_xxs, 256, 66, bits7_16) \
    X(IQ2_XS, iq2_xs, 256, 74, bits7_16)   \
    X(IQ2_S, iq2_s, 256, 82, bits7_16)     \
    X(IQ3_XXS, iq3_xxs, 256, 98, bits7_16) \
    X(IQ3_S, iq3_s, 256, 110, bits6_16)
#define PANEL_TYPES(X)                \
    X(Q4_0, q4_0, 32, 18, bits4)      \
    X(Q4_1, q4_1, 32, 20, bits4)      \
    X(Q5_0, q5_0, 32, 22, bits5)      \
    X(Q5_1, q5_1, 32, 24, bits5)      \
    X(Q4_K, q4_k, 256, 144, bits4)    \
    X(Q5_K, q5_k, 256, 176, bits5)    \
    X(Q6_K, q6_k, 256, 210, bits6_16) \
    X(MXFP4, mxfp4, 32, 17, bits5)

/* ---- from the file's order --------------------------------------------------------- */

static inline panel_rows rows_at(const ig_matmul *m, int r, int row_end, size_t offset) {
    int n = row_end - r < 0 ? 0 : ig_min_int(row_end - r, 8);
    return (panel_rows){(const uint8_t *)m->w + (size_t)(n ? r : 0) * m->row_bytes + offset, m->row_bytes, n};
}

/* Fetches n bytes of what is multiplied next, and returns where they end. */
static inline const char *fetch(const char *next, size_t n) {
    for (const char *p = next; p < next + n; p += 64) _mm_prefetch(p, _MM_HINT_T1);
    return next + n;
}

/* block: elements that take `bytes`. The rows of the next panel are fetched while this one meets the columns, an equal
 * share with each column. */
static inline void multiply(const ig_matmul *m, int row_begin, int row_end, unpack_fn unpack, tile_fn tile, int block,
                            int bytes) {
    const int slice = block == 1 ? FLOAT_SLICE : m->n_in;
    const size_t share = PANEL_ROWS * m->row_bytes / (size_t)m->n_cols;
    tile_at t = {.m = m};
    for (int r = row_begin; r < row_end; r += PANEL_ROWS) {
        const char *next = (const char *)m->w + (size_t)(r + PANEL_ROWS) * m->row_bytes;
        t.n_rows = ig_min_int(row_end - r, PANEL_ROWS);
        for (t.first = 0; t.first < m->n_in; t.first += slice) {
            size_t offset = (size_t)(t.first / block) * (size_t)bytes;
            t.n = ig_min_int(m->n_in - t.first, slice);
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
static inline void multiply_stored(const ig_matmul *m, int row_begin, int row_end, tile_fn stored, expand_fn unpack,
                                   tile_fn unpacked) {
    const size_t bytes = PANEL_ROWS * m->row_bytes, share = bytes / (size_t)m->n_cols;
    tile_at t = {.m = m};
    for (int r = row_begin; r < row_end; r += PANEL_ROWS) {
        const char *panel = (const char *)m->w + (size_t)r * m->row_bytes, *next = panel + bytes;
        tile_fn tile = stored;
        t.n_rows = ig_min_int(row_end - r, PANEL_ROWS);
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

/* ---- the functions of a level -------------------------------------------------------- */

/* tile_##panel multiplies what unpack_##type makes. */
#define DEFINE_GEMM(TYPE, type, block, bytes, panel)                                \
    static void gemm_##type(const ig_matmul *m, int row_begin, int row_end) {       \
        multiply(m, row_begin, row_end, unpack_##type, tile_##panel, block, bytes); \
    }
#define DEFINE_PANELS(TYPE, type, block, bytes, panel)                                           \
    DEFINE_GEMM(TYPE, type, block, bytes, panel)                                                 \
    TILES(stored_##type, tile_q8, TILE_COLS)                                                     \
    static void expand_##type(char *to, const char *stored, int n_in) {                          \
        expand(to, stored, n_in, stored_##type, panel);                                          \
    }                                                                                            \
    static void panels_##type(const ig_matmul *m, int row_begin, int row_end) {                  \
        multiply_stored(m, row_begin, row_end, tile_stored_##type, expand_##type, tile_##panel); \
    }
/* All of them, of tile_q8. */
#define DEFINE_QUANTISED                \
    TILES(bits4, tile_q8, TILE_COLS)    \
    TILES(bits5, tile_q8, TILE_COLS)    \
    TILES(bits8, tile_q8, TILE_COLS)    \
    TILES(bits3_16, tile_q8, TILE_COLS) \
    TILES(bits5_16, tile_q8, TILE_COLS) \
    TILES(bits6_16, tile_q8, TILE_COLS) \
    TILES(bits7_16, tile_q8, TILE_COLS) \
    ROW_TYPES(DEFINE_GEMM)              \
    PANEL_TYPES(DEFINE_PANELS)

#define SET_GEMM(TYPE, type, ...) k->gemm[IG_TYPE_##TYPE] = gemm_##type;
/* One function for all numbers of columns, also in the file's order. */
#define SET_PANELS(TYPE, type, ...)                                  \
    k->gemv[IG_TYPE_##TYPE] = k->gemm[IG_TYPE_##TYPE] = gemm_##type; \
    k->panels[IG_TYPE_##TYPE] =                                      \
        (ig_panels){ig_panel_bytes_##type##_avx2, ig_panel_put_##type##_avx2, panels_##type, panels_##type};

#endif
