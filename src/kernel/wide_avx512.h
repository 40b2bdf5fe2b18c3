/* SPDX-License-Identifier: Apache-2.0
 *
 * What the AVX-512 products with many columns have in common: 32 rows at a time, in the lanes of two registers, are
 * unpacked to scratch, a wide panel, and meet up to six columns at a time.
 */
#ifndef IG_KERNEL_WIDE_AVX512_H
#define IG_KERNEL_WIDE_AVX512_H

#include <immintrin.h>

#include "base/compiler.h"
#include "kernel/kernel.h"
#include "kernel/parts.h"
#include "kernel/transpose_avx512.h"

enum { WIDE_ROWS = 32, TILE_COLS = 6, FLOAT_SLICE = 1024 };

typedef struct panel_rows {
    const uint8_t *w; /* first of 16 */
    size_t row_bytes;
    int n;        /* rows there are, 0..16 */
    size_t ahead; /* bytes from a row to the one that is fetched as it is unpacked, that of the next wide panel */
} panel_rows;

/* Rows of a tile: lanes to write of the two halves. */
typedef struct tile_out {
    float *out;
    size_t stride;
    __mmask16 mask[2];
} tile_out;

/* How quantised weights lie in a wide panel: a stream of steps of 64 elements, each [16 fours][32 rows][4] bytes of
 * codes, then the scales and minimums of its groups as floats, [n_scales + n_mins][32 rows]. */
typedef struct wide {
    int n_scales; /* of a step: 2 or 4 */
    int n_mins;   /* 0: codes have a sign, and are kept as code + 128. Else as many as scales */
} wide;

static const wide signed32 = {2, 0}, signed16 = {4, 0}, affine32 = {2, 2}, affine16 = {4, 4};

enum { CODE_BYTES = 64 * WIDE_ROWS };

static inline size_t wide_bytes(wide f) { return CODE_BYTES + (size_t)(f.n_scales + f.n_mins) * WIDE_ROWS * 4; }

/* Vector i of the scales and minimums of a step, for half the rows. */
static inline float *affine_at(char *step, int i, int half) {
    return (float *)(void *)(step + CODE_BYTES + (2 * i + half) * 64);
}

static inline panel_rows rows_at(const ig_matmul *m, int r, int row_end) {
    int n = row_end - r < 0 ? 0 : ig_min_int(row_end - r, 16);
    return (panel_rows){.w = (const uint8_t *)m->w + (size_t)(n ? r : 0) * m->row_bytes,
                        .row_bytes = m->row_bytes,
                        .n = n,
                        .ahead = r + WIDE_ROWS < row_end ? WIDE_ROWS * m->row_bytes : 0};
}

static inline int tile_width(int n_left) { return n_left >= 6 ? 6 : n_left >= 4 ? 4 : n_left >= 2 ? 2 : 1; }

static inline tile_out tile_out_at(const ig_matmul *m, int r, int n_rows, int c) {
    uint32_t mask = (uint32_t)((1ull << n_rows) - 1);
    return (tile_out){
        m->out + (size_t)c * m->out_stride + (size_t)r, m->out_stride, {(__mmask16)mask, (__mmask16)(mask >> 16)}};
}

#endif
