/* SPDX-License-Identifier: Apache-2.0
 *
 * What the AVX-512 products with many columns have in common: 32 rows at a time, in the lanes of two registers, are
 * unpacked to scratch, a wide panel, and meet up to six columns at a time.
 */
#ifndef IG_KERNEL_WIDE_AVX512_H
#define IG_KERNEL_WIDE_AVX512_H

#include <immintrin.h>

#include "kernel/kernel.h"
#include "kernel/parts.h"

enum { WIDE_ROWS = 32, TILE_COLS = 6, FLOAT_SLICE = 1024 };

/* 16 rows of 16 dwords to 16 columns. */
static inline void transpose16(__m512i v[16]) {
    __m512i t[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) { /* v[i + j]: column 4 * lane + j of rows i..i+3 */
        v[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        v[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        v[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        v[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int j = 0; j < 4; j++) {
        t[j] = _mm512_shuffle_i32x4(v[j], v[4 + j], 0x88);
        t[4 + j] = _mm512_shuffle_i32x4(v[j], v[4 + j], 0xdd);
        t[8 + j] = _mm512_shuffle_i32x4(v[8 + j], v[12 + j], 0x88);
        t[12 + j] = _mm512_shuffle_i32x4(v[8 + j], v[12 + j], 0xdd);
    }
    for (int j = 0; j < 4; j++) {
        v[j] = _mm512_shuffle_i32x4(t[j], t[8 + j], 0x88);
        v[4 + j] = _mm512_shuffle_i32x4(t[4 + j], t[12 + j], 0x88);
        v[8 + j] = _mm512_shuffle_i32x4(t[j], t[8 + j], 0xdd);
        v[12 + j] = _mm512_shuffle_i32x4(t[4 + j], t[12 + j], 0xdd);
    }
}

typedef struct panel_rows {
    const uint8_t *w; /* first of 16 */
    size_t row_bytes;
    int n; /* rows there are, 0..16 */
} panel_rows;

/* Rows of a tile: lanes to write of the two halves. */
typedef struct tile_out {
    float *out;
    size_t stride;
    __mmask16 mask[2];
} tile_out;

static inline int min_int(int a, int b) { return a < b ? a : b; }

static inline panel_rows rows_at(const ig_matmul *m, int r, int row_end) {
    int n = row_end - r < 0 ? 0 : min_int(row_end - r, 16);
    return (panel_rows){(const uint8_t *)m->w + (size_t)(n ? r : 0) * m->row_bytes, m->row_bytes, n};
}

static inline int tile_width(int n_left) { return n_left >= 6 ? 6 : n_left >= 4 ? 4 : n_left >= 2 ? 2 : 1; }

static inline tile_out tile_out_at(const ig_matmul *m, int r, int n_rows, int c) {
    uint32_t mask = (uint32_t)((1ull << n_rows) - 1);
    return (tile_out){
        m->out + (size_t)c * m->out_stride + (size_t)r, m->out_stride, {(__mmask16)mask, (__mmask16)(mask >> 16)}};
}

#endif
