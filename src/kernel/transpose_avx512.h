/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of dwords to columns, AVX-512.
 */
#ifndef IG_KERNEL_TRANSPOSE_AVX512_H
#define IG_KERNEL_TRANSPOSE_AVX512_H

#include <immintrin.h>

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

#endif
