/* SPDX-License-Identifier: Apache-2.0
 *
 * Panels of 16 rows of quantised weights, and what they make of columns (AVX2): rows in the lanes.
 *
 * An unpacked panel, in scratch, is a stream of steps of 32 elements: [4 elements][16 rows] bytes of codes eight times,
 * then one or two vectors of 16 scales and as many minimums, as floats. A stored one (panel.h) takes as many bits as
 * the type does in the file.
 *
 * The arithmetic is the same for both kinds, and so are the bits of what they make.
 */
#ifndef IG_KERNEL_PANEL_AVX2_H
#define IG_KERNEL_PANEL_AVX2_H

#include "base/memory.h"

#include "kernel/panel.h"
#include "kernel/parts.h"
#include "kernel/quant.h"
#include "kernel/quant_avx2.h"

enum { TILE_COLS = 3 };

/* Unpacked panels: 4 bits and fewer, 5, signed bytes; 3, 5, 6 and 7 bits with scales of 16. */
static const format bits4 = {1, 32, 8, false, 0, false}, bits5 = {1, 16, 8, false, 0, false},
                    bits8 = {1, 0, 8, false, 0, false}, bits3_16 = {2, 32, 8, false, 0, false},
                    bits5_16 = {2, 16, 8, false, 0, false}, bits6_16 = {2, 8, 8, false, 0, false},
                    bits7_16 = {2, 4, 8, false, 0, false};

/* ---- codes and scales -------------------------------------------------------------- */

/* The n bits from `from` on of each byte, moved to bit `to`. */
INLINE __m256i move_bits(__m256i v, const int n, const int from, const int to) {
    v = _mm256_and_si256(v, _mm256_set1_epi8((char)(((1 << n) - 1) << from)));
    return from > to ? _mm256_srli_epi16(v, from - to) : _mm256_slli_epi16(v, to - from);
}

/* Codes of MXFP4 from their indices, and scales from exponents (ig_mxfp4_scale()). */
INLINE __m256i mx_codes(__m256i index) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_setr_epi8(IG_MXFP4_CODES)), index);
}

INLINE __m256 mx_scales(__m256i exponent) {
    __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(exponent, _mm256_set1_epi32(1)), 23);
    __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x200000), exponent);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, small, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), exponent)));
}

/* Codes of elements 4 j .. 4 j + 3 of rows 8 h .. 8 h + 7 of a step. */
INLINE __m256i load_codes(const char *step, const int j, const int h, const format f) {
    if (f.bits == 8) return _mm256_load_si256((const void *)(step + 64 * j + 32 * h));
    __m256i v = _mm256_loadu_si256((const void *)(step + 64 * (j % 4) + 32 * h));
    if (j >= 4) v = _mm256_srli_epi16(v, 4);
    v = _mm256_and_si256(v, _mm256_set1_epi8(15));
    if (f.mx) return mx_codes(v);
    if (f.bits == 5) {
        __m256i high = _mm256_load_si256((const void *)(step + 256 + 32 * h));
        v = _mm256_or_si256(v, move_bits(high, 1, j, 4));
    }
    if (f.bits == 6) {
        __m256i high = _mm256_load_si256((const void *)(step + 256 + 64 * (j / 4) + 32 * h));
        v = _mm256_or_si256(v, move_bits(high, 2, 2 * (j % 4), 4));
    }
    return v;
}

INLINE __m256 load_halves(const char *p) { return _mm256_cvtph_ps(_mm_load_si128((const void *)p)); }

/* Scales (which 0) or stored minimums (1) of rows 8 h .. 8 h + 7; number `part` of n_scales. */
INLINE __m256 load_stored(const char *step, const char *head, const int which, const int part, const int h,
                          const format f) {
    const char *p = step + code_bytes(f);
    const int at = (which * f.n_scales + part) * PANEL_ROWS + 8 * h;
    if (f.bits == 8) return _mm256_load_ps((const float *)(const void *)p + at);
    if (!f.super && !f.mx) return load_halves(p + 2 * at);
    __m128i bytes = _mm_loadl_epi64((const void *)(p + at));
    if (f.mx) return mx_scales(_mm256_cvtepu8_epi32(bytes));
    return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
                         load_halves(head + 2 * (which * PANEL_ROWS + 8 * h)));
}

INLINE __m256 load_min(__m256 scale, const char *step, const char *head, const int part, const int h, const format f) {
    if (f.offset) return _mm256_mul_ps(scale, _mm256_set1_ps((float)-f.offset));
    return load_stored(step, head, 1, part, h, f);
}

/* ---- tiles ------------------------------------------------------------------------- */

/* What a panel and some columns make. */
typedef struct tile_at {
    const ig_matmul *m;
    float *out;   /* of the first row and column */
    int n_rows;   /* to write, 1..16 */
    int column;   /* the first */
    int first, n; /* elements of the slice; of quantised weights all */
} tile_at;

static inline void store_half(const tile_at *t, int c, int half, __m256 v) {
    float *dst = t->out + (size_t)c * t->m->out_stride + 8 * half, tail[8];
    int n = t->n_rows - 8 * half;
    if (n >= 8) {
        _mm256_storeu_ps(dst, v);
        return;
    }
    _mm256_storeu_ps(tail, v);
    for (int i = 0; i < n; i++) dst[i] = tail[i];
}

/* Integer sums of 16 rows and elements [begin, end) of a step, for each column at q: what the levels differ in. */
typedef void (*dot_fn)(__m256i dot[2][TILE_COLS], const char *step, const int8_t *const q[TILE_COLS], int begin,
                       int end, format f, int n_cols);

/* Adds the group of elements number `part` of step g to the sums of all columns. */
INLINE void add_group(__m256 acc[2][TILE_COLS], const char *step, const char *head, const ig_q8 a[TILE_COLS], int g,
                      const int part, const format f, const int n_cols, dot_fn sums) {
    const int n = f.n_scales, begin = 16 * part, end = begin + 32 / n;
    const int8_t *q[TILE_COLS];
    __m256i dot[2][TILE_COLS];
    for (int c = 0; c < n_cols; c++) q[c] = a[c].q + 32 * g;
    sums(dot, step, q, begin, end, f, n_cols);
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        __m256 scale = load_stored(step, head, 0, part, h, f);
        __m256 min = f.fits ? load_min(scale, step, head, part, h, f) : scale;
#pragma GCC unroll 3
        for (int c = 0; c < n_cols; c++) {
            __m256 d = _mm256_mul_ps(scale, _mm256_set1_ps(a[c].d[g]));
            __m256 ds = _mm256_set1_ps(n == 2 ? a[c].ds16[2 * g + part] : a[c].ds[g]);
            acc[h][c] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[h][c]), d, acc[h][c]);
            if (f.fits) acc[h][c] = _mm256_fmadd_ps(min, ds, acc[h][c]);
        }
    }
}

INLINE void tile_codes(const char *panel, const tile_at *t, const format f, const int n_cols, dot_fn sums) {
    __m256 acc[2][TILE_COLS];
    ig_q8 a[TILE_COLS];
    const char *step = panel, *head = NULL;
    for (int c = 0; c < n_cols; c++) {
        a[c] = ig_q8_view((const char *)t->m->act + (size_t)(t->column + c) * t->m->act_stride, t->m->n_in);
        acc[0][c] = acc[1][c] = _mm256_setzero_ps();
    }
    for (int g = 0; g < t->m->n_in / 32; g++, step += step_bytes(f)) {
        if (f.super && g % 8 == 0) {
            head = step;
            step += head_bytes(f);
        }
        if (f.bits < 8) fetch_weights(step, step_bytes(f));
#pragma GCC unroll 2
        for (int part = 0; part < f.n_scales; part++) add_group(acc, step, head, a, g, part, f, n_cols, sums);
    }
    for (int c = 0; c < n_cols; c++)
        for (int h = 0; h < 2; h++) store_half(t, c, h, acc[h][c]);
}

/* The widest tile, 2 columns or 1; returns which. */
#define TILES(f, tile, widest)                                             \
    static int tile_##f(const char *panel, const tile_at *t, int n_cols) { \
        if (n_cols >= widest) {                                            \
            tile(panel, t, f, widest);                                     \
            return widest;                                                 \
        }                                                                  \
        if (n_cols >= 2) {                                                 \
            tile(panel, t, f, 2);                                          \
            return 2;                                                      \
        }                                                                  \
        tile(panel, t, f, 1);                                              \
        return 1;                                                          \
    }

/* Multiplies at most n_cols columns, and returns how many. */
typedef int (*tile_fn)(const char *panel, const tile_at *t, int n_cols);

#endif
