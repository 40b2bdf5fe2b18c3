/* SPDX-License-Identifier: Apache-2.0
 *
 * The vectors of attention_prompt.h and matmul_fixed.h, AVX-512.
 */
#ifndef IG_KERNEL_VECTORS_AVX512_H
#define IG_KERNEL_VECTORS_AVX512_H

#include <immintrin.h>
#include <math.h>
#include <stdint.h>

#include "kernel/parts.h"
#include "kernel/transpose_avx512.h"

enum { WIDTH = 16 }; /* lanes */

typedef __m512 floats;
typedef __m512i ints;

INLINE ints load_ints(const int32_t *p) { return _mm512_load_si512((const void *)p); }
INLINE ints load_any(const uint8_t *p) { return _mm512_loadu_si512((const void *)p); } /* unaligned */
INLINE void store_ints(int32_t *p, ints x) { _mm512_store_si512((void *)p, x); }
INLINE ints all_ints(int32_t x) { return _mm512_set1_epi32(x); }
INLINE floats load_floats(const float *p) { return _mm512_load_ps(p); }
INLINE void store_floats(float *p, floats x) { _mm512_store_ps(p, x); }
INLINE floats all_floats(float x) { return _mm512_set1_ps(x); }
INLINE floats add(floats x, floats y) { return _mm512_add_ps(x, y); }
INLINE floats sub(floats x, floats y) { return _mm512_sub_ps(x, y); }
INLINE floats mul(floats x, floats y) { return _mm512_mul_ps(x, y); }
INLINE floats mul_add(floats x, floats y, floats z) { return _mm512_fmadd_ps(x, y, z); }
INLINE floats quotient(floats x, floats y) { return _mm512_div_ps(x, y); }
/* y if either is NaN. */
INLINE floats larger(floats x, floats y) { return _mm512_max_ps(x, y); }
INLINE floats to_floats(ints x) { return _mm512_cvtepi32_ps(x); }
INLINE ints to_ints(floats x) { return _mm512_cvtps_epi32(x); }

/* 2^(the lowest 8 bits of x - 127); 0 for 0. */
INLINE floats power_of_2(floats x) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(x), 23)); }

/* Pairs of 16-bit numbers: those of a in the lower halves. */
INLINE ints pairs_of(ints a, ints b) { return _mm512_mask_blend_epi16(0xaaaaaaaa, a, _mm512_slli_epi32(b, 16)); }

/* The bits of each lane as a float, and the lower 16 of them as the upper ones of a float. */
INLINE floats upper_half(ints x) {
    return _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32((int)0xffff0000u)));
}
INLINE floats lower_half(ints x) { return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16)); }
/* The lower 16 bits of each lane as a 16-bit float. */
INLINE floats from_f16(ints x) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(x)); }
/* 2 WIDTH numbers in E4M3, at any address, as 16-bit floats of the same bits (ig_f8_bits()). */
INLINE ints from_f8(const uint8_t *p) {
    __m512i v = _mm512_slli_epi16(_mm512_cvtepi8_epi16(_mm256_loadu_si256((const void *)p)), 7);
    const __m512i most = _mm512_set1_epi16(0x3f80);
    __mmask32 nan = _mm512_cmpeq_epi16_mask(_mm512_and_si512(v, most), most);
    return _mm512_mask_set1_epi16(_mm512_and_si512(v, _mm512_set1_epi16((short)0xbfff)), nan, -1);
}
INLINE ints shift_right_16(ints x) { return _mm512_srli_epi32(x, 16); }
INLINE floats magnitude(floats x) {
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff)));
}

/* s, but -INFINITY in lanes that do not see the row: those see rows [begin, end), all before end without a begin. */
INLINE floats hide(floats s, const int32_t *begin, const int32_t *end, int row) {
    ints at = _mm512_set1_epi32(row);
    __mmask16 sees = _mm512_cmpgt_epi32_mask(load_ints(end), at);
    if (begin) sees &= (__mmask16)~_mm512_cmpgt_epi32_mask(load_ints(begin), at);
    return _mm512_mask_mov_ps(_mm512_set1_ps(-INFINITY), sees, s);
}

/* WIDTH rows of as many numbers to columns. */
INLINE void transpose(ints v[WIDTH]) { transpose16(v); }

#endif
