/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps of stored panels (panel.h) in AVX-512 registers: a lane is a row.
 */
#ifndef IG_KERNEL_PANEL_AVX512_H
#define IG_KERNEL_PANEL_AVX512_H

#include <immintrin.h>

#include "kernel/panel.h"
#include "kernel/parts.h"

/* Adds to the bytes of v, from 16 on, the n (1..2) bits of those of `bits` that begin with bit `from`. */
INLINE __m512i high_bits(__m512i v, __m512i bits, const int n, const int from) {
    __m512i moved = from > 4 ? _mm512_srli_epi16(bits, from - 4) : _mm512_slli_epi16(bits, 4 - from);
    return _mm512_ternarylogic_epi32(v, moved, _mm512_set1_epi8(n == 1 ? 16 : 48), 0xf8); /* a | (b & c) */
}

/* ig_mxfp4_scale() of 16 exponents. */
INLINE __m512 mx_scales(__m512i exponent) {
    __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(exponent, _mm512_set1_epi32(1)), 23);
    __mmask16 small = _mm512_cmplt_epu32_mask(exponent, _mm512_set1_epi32(2));
    return _mm512_castsi512_ps(_mm512_mask_sllv_epi32(normal, small, _mm512_set1_epi32(0x200000), exponent));
}

/* Codes of elements 4 j .. 4 j + 3 of a step's 16 rows; steps are 16-byte aligned, those with halves 32. */
INLINE __m512i stored_codes(const char *step, const int j, const format f) {
    __m512i v = _mm512_loadu_si512(step + 64 * (j % 4));
    if (j >= 4) v = _mm512_srli_epi16(v, 4);
    v = _mm512_and_si512(v, _mm512_set1_epi8(15));
    if (f.mx) v = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_setr_epi8(IG_MXFP4_CODES)), v);
    if (f.bits == 5) v = high_bits(v, _mm512_loadu_si512(step + 256), 1, j);
    if (f.bits == 6) v = high_bits(v, _mm512_loadu_si512(step + 256 + 64 * (j / 4)), 2, 2 * (j % 4));
    return v;
}

INLINE __m512 load_halves(const char *p) { return _mm512_cvtph_ps(_mm256_load_si256((const void *)p)); }

/* Scales (which 0) or minimums (1) of 16 rows, number `part` of n_scales. */
INLINE __m512 stored_affine(const char *step, const char *head, const int which, const int part, const format f) {
    const char *p = step + code_bytes(f);
    const int at = (which * f.n_scales + part) * PANEL_ROWS;
    if (f.mx) return mx_scales(_mm512_cvtepu8_epi32(_mm_load_si128((const void *)p)));
    if (!f.super) return load_halves(p + 2 * at);
    __m512i bytes = _mm512_cvtepi8_epi32(_mm_load_si128((const void *)(p + at)));
    return _mm512_mul_ps(_mm512_cvtepi32_ps(bytes), load_halves(head + 2 * which * PANEL_ROWS));
}

#endif
