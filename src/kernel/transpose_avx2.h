/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of dwords to columns, AVX2.
 */
#ifndef IG_KERNEL_TRANSPOSE_AVX2_H
#define IG_KERNEL_TRANSPOSE_AVX2_H

#include <immintrin.h>

/* 8 rows of 8 dwords to 8 columns. */
static inline void transpose8(__m256i v[8]) {
    __m256i t[8], u[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_epi32(v[i], v[i + 1]);
        t[i + 1] = _mm256_unpackhi_epi32(v[i], v[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        u[i] = _mm256_unpacklo_epi64(t[i], t[i + 2]);
        u[i + 1] = _mm256_unpackhi_epi64(t[i], t[i + 2]);
        u[i + 2] = _mm256_unpacklo_epi64(t[i + 1], t[i + 3]);
        u[i + 3] = _mm256_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_permute2x128_si256(u[i], u[4 + i], 0x20);
        v[4 + i] = _mm256_permute2x128_si256(u[i], u[4 + i], 0x31);
    }
}

#endif
