/* SPDX-License-Identifier: Apache-2.0
 *
 * The vectors of attention_prompt.h and matmul_fixed.h, AVX2.
 */
#ifndef IG_KERNEL_VECTORS_AVX2_H
#define IG_KERNEL_VECTORS_AVX2_H

#include <immintrin.h>
#include <math.h>
#include <stdint.h>

#include "kernel/parts.h"
#include "kernel/transpose_avx2.h"

enum { WIDTH = 8 }; /* lanes */

typedef __m256 floats;
typedef __m256i ints;

INLINE ints load_ints(const int32_t *p) { return _mm256_load_si256((const void *)p); }
INLINE ints load_any(const uint8_t *p) { return _mm256_loadu_si256((const void *)p); } /* unaligned */
INLINE void store_ints(int32_t *p, ints x) { _mm256_store_si256((void *)p, x); }
INLINE ints all_ints(int32_t x) { return _mm256_set1_epi32(x); }
INLINE floats load_floats(const float *p) { return _mm256_load_ps(p); }
INLINE void store_floats(float *p, floats x) { _mm256_store_ps(p, x); }
INLINE floats all_floats(float x) { return _mm256_set1_ps(x); }
INLINE floats add(floats x, floats y) { return _mm256_add_ps(x, y); }
INLINE floats sub(floats x, floats y) { return _mm256_sub_ps(x, y); }
INLINE floats mul(floats x, floats y) { return _mm256_mul_ps(x, y); }
INLINE floats mul_add(floats x, floats y, floats z) { return _mm256_fmadd_ps(x, y, z); }
INLINE floats quotient(floats x, floats y) { return _mm256_div_ps(x, y); }
/* y if either is NaN. */
INLINE floats larger(floats x, floats y) { return _mm256_max_ps(x, y); }
INLINE floats to_floats(ints x) { return _mm256_cvtepi32_ps(x); }
INLINE ints to_ints(floats x) { return _mm256_cvtps_epi32(x); }

/* 2^(the lowest 8 bits of x - 127); 0 for 0. */
INLINE floats power_of_2(floats x) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(x), 23)); }

/* Pairs of 16-bit numbers: those of a in the lower halves. */
INLINE ints pairs_of(ints a, ints b) { return _mm256_blend_epi16(a, _mm256_slli_epi32(b, 16), 0xaa); }

/* The bits of each lane as a float, and the lower 16 of them as the upper ones of a float. */
INLINE floats upper_half(ints x) {
    return _mm256_castsi256_ps(_mm256_and_si256(x, _mm256_set1_epi32((int)0xffff0000u)));
}
INLINE floats lower_half(ints x) { return _mm256_castsi256_ps(_mm256_slli_epi32(x, 16)); }
/* The lower 16 bits of each lane as a 16-bit float. */
INLINE floats from_f16(ints x) {
    x = _mm256_packus_epi32(_mm256_and_si256(x, _mm256_set1_epi32(0xffff)), x);
    return _mm256_cvtph_ps(_mm256_castsi256_si128(_mm256_permute4x64_epi64(x, 0x08)));
}
/* 2 WIDTH numbers in E4M3, at any address, as 16-bit floats of the same bits (ig_f8_bits()). */
INLINE ints from_f8(const uint8_t *p) {
    __m256i v = _mm256_slli_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)p)), 7);
    __m256i nan = _mm256_cmpeq_epi16(_mm256_and_si256(v, _mm256_set1_epi16(0x3f80)), _mm256_set1_epi16(0x3f80));
    return _mm256_or_si256(_mm256_and_si256(v, _mm256_set1_epi16((short)0xbfff)), nan);
}
INLINE ints shift_right_16(ints x) { return _mm256_srli_epi32(x, 16); }
INLINE floats magnitude(floats x) {
    return _mm256_castsi256_ps(_mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff)));
}

/* s, but -INFINITY in lanes that do not see the row: those see rows [begin, end), all before end without a begin. */
INLINE floats hide(floats s, const int32_t *begin, const int32_t *end, int row) {
    ints at = _mm256_set1_epi32(row), sees = _mm256_cmpgt_epi32(load_ints(end), at);
    if (begin) sees = _mm256_andnot_si256(_mm256_cmpgt_epi32(load_ints(begin), at), sees);
    return _mm256_blendv_ps(_mm256_set1_ps(-INFINITY), s, _mm256_castsi256_ps(sees));
}

/* WIDTH rows of as many numbers to columns. */
INLINE void transpose(ints v[WIDTH]) { transpose8(v); }

#endif
