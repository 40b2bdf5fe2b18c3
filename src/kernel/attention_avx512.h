/* SPDX-License-Identifier: Apache-2.0
 *
 * What the AVX-512 attention kernels share: the end of a tile of scores.
 */
#ifndef IG_KERNEL_ATTENTION_AVX512_H
#define IG_KERNEL_ATTENTION_AVX512_H

#include "kernel/lanes_avx512.h"
#include "kernel/parts.h"

enum { TILE = 4 }; /* queries, and keys or vectors of dims, of a tile */

/* The sums of 16 accumulators across their lanes, in a tree of two parts. The first leaves two vectors a query. */
INLINE void sum_first(__m512 b[2 * TILE], const __m512 a[TILE * TILE], int n_q) {
    for (int i = 0; i < 2 * n_q; i++)
        b[i] = _mm512_add_ps(_mm512_unpacklo_ps(a[2 * i], a[2 * i + 1]), _mm512_unpackhi_ps(a[2 * i], a[2 * i + 1]));
}

/* Lane TILE g + i of the result is the sum of a[TILE g + i], for g < n_q. */
INLINE __m512 sum_rest(const __m512 b[2 * TILE], int n_q) {
    __m512 c[TILE];
    for (int g = 0; g < n_q; g++) {
        __m512d x = _mm512_castps_pd(b[2 * g]), y = _mm512_castps_pd(b[2 * g + 1]);
        c[g] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)), _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
    }
    for (int g = n_q; g < TILE; g++) c[g] = c[0];
    __m512 lo = _mm512_add_ps(_mm512_shuffle_f32x4(c[0], c[1], 0x88), _mm512_shuffle_f32x4(c[0], c[1], 0xdd));
    __m512 hi = _mm512_add_ps(_mm512_shuffle_f32x4(c[2], c[3], 0x88), _mm512_shuffle_f32x4(c[2], c[3], 0xdd));
    return _mm512_add_ps(_mm512_shuffle_f32x4(lo, hi, 0x88), _mm512_shuffle_f32x4(lo, hi, 0xdd));
}

INLINE void store_tile(float *scores, size_t stride, int n_q, __m512 x, int n) {
    __m128 part[TILE] = {_mm512_castps512_ps128(x), _mm512_extractf32x4_ps(x, 1), _mm512_extractf32x4_ps(x, 2),
                         _mm512_extractf32x4_ps(x, 3)};
    if (n >= TILE) {
        for (int g = 0; g < n_q; g++) _mm_storeu_ps(scores + (size_t)g * stride, part[g]);
    } else {
        for (int g = 0; g < n_q; g++)
            _mm_mask_storeu_ps(scores + (size_t)g * stride, (__mmask8)((1 << n) - 1), part[g]);
    }
}

#endif
