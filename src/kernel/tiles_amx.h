/* SPDX-License-Identifier: Apache-2.0
 *
 * Tiles of AMX, and floats as sums of two bfloat16.
 */
#ifndef IG_KERNEL_TILES_AMX_H
#define IG_KERNEL_TILES_AMX_H

#include <immintrin.h>
#include <stdint.h>

#include "kernel/parts.h"

enum { TILE_BYTES = 1024 }; /* 16 rows of 64 */

typedef struct tile_config {
    uint8_t palette, start, none[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

/* The intrinsics of tiles do not tell the compiler what they read and write: memory has to be up to date before them,
 * and to be read anew after them. */
INLINE void settle(const void *p) { __asm__ volatile("" ::"r"(p) : "memory"); }

/* All tiles have 16 rows of 64 bytes. */
INLINE void set_whole_tiles(void) {
    tile_config t = {.palette = 1};
    for (int i = 0; i < 8; i++) t.rows[i] = 16, t.row_bytes[i] = 64;
    settle(&t);
    _tile_loadconfig(&t);
}

INLINE __m512i to_bf16(__m512 first, __m512 second) { return (__m512i)_mm512_cvtne2ps_pbh(second, first); }

INLINE __m512 from_bf16(__m256i v) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16)); }

/* What rounding 32 numbers to `high` has left of them. */
INLINE __m512i rest_of(__m512 first, __m512 second, __m512i high) {
    __m512 first_high = from_bf16(_mm512_castsi512_si256(high)),
           second_high = from_bf16(_mm512_extracti64x4_epi64(high, 1));
    return to_bf16(_mm512_sub_ps(first, first_high), _mm512_sub_ps(second, second_high));
}

/* The numbers of the first half in turn with those of the second. */
INLINE __m512i interleave(__m512i v) {
    const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i second = _mm512_slli_epi32(_mm512_add_epi32(first, _mm512_set1_epi32(16)), 16);
    return _mm512_permutexvar_epi16(_mm512_or_si512(first, second), v);
}

/* The first n of 16 lanes, any n. */
INLINE __mmask16 lanes_left(int n) { return (__mmask16)(n >= 16 ? 0xffff : n <= 0 ? 0 : (1 << n) - 1); }

#endif
