/* SPDX-License-Identifier: Apache-2.0
 *
 * Stands before the sources of the level avxvnni: its instructions in those of AVX2.
 */
#ifndef IG_TESTS_EMULATED_AVXVNNI_H
#define IG_TESTS_EMULATED_AVXVNNI_H

#include <immintrin.h>

/* sum + u[4 i] s[4 i] + ... + u[4 i + 3] s[4 i + 3] in lane i; u unsigned, s signed. */
static inline __m256i emulated_dpbusd(__m256i sum, __m256i u, __m256i s) {
    __m256i pairs[2];
    for (int i = 0; i < 2; i++) {
        __m128i a = i ? _mm256_extracti128_si256(u, 1) : _mm256_castsi256_si128(u);
        __m128i b = i ? _mm256_extracti128_si256(s, 1) : _mm256_castsi256_si128(s);
        pairs[i] = _mm256_madd_epi16(_mm256_cvtepu8_epi16(a), _mm256_cvtepi8_epi16(b));
    }
    __m256i fours = _mm256_permute4x64_epi64(_mm256_hadd_epi32(pairs[0], pairs[1]), 0xd8);
    return _mm256_add_epi32(sum, fours);
}

/* sum + x[2 i] y[2 i] + x[2 i + 1] y[2 i + 1] in lane i. */
static inline __m256i emulated_dpwssd(__m256i sum, __m256i x, __m256i y) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(x, y));
}

#define _mm256_dpwssd_avx_epi32 emulated_dpwssd
#define _mm256_dpbusd_avx_epi32 emulated_dpbusd

#endif
