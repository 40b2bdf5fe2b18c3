/* SPDX-License-Identifier: Apache-2.0
 *
 * Packed keys and values for AVX-512: unpacking. A group of 4-bit codes has only 16 values: they are computed once, as
 * 16-bit floats, and a permutation of words looks up 32 codes at a time. Packing, which is done once per token, stays
 * with AVX2.
 */
#include "kernel/lanes_avx512.h"
#include "kernel/packed.h"
#include "kernel/parts.h"

enum { AHEAD = 16 }; /* rows from the one in use to the one prefetched: chosen rows are scattered */

static inline __m512 all_f16(uint16_t x) { return _mm512_cvtph_ps(_mm256_set1_epi16((short)x)); }

static inline __mmask32 first_words(int n) { return (__mmask32)((1ull << n) - 1u); }

static inline __attribute__((always_inline)) void prefetch_row(const ig_kv_packed *row, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 64) _mm_prefetch((const char *)(row->codes + i), _MM_HINT_T0);
    _mm_prefetch((const char *)row->lines, _MM_HINT_T0);
}

static void unpack_q8_avx512(uint16_t *dst, const ig_kv_packed *rows, int n, int d) {
    for (int r = 0; r < n; r++, dst += d) {
        if (r + AHEAD < n) prefetch_row(&rows[r + AHEAD], (size_t)d);
        for (int j = 0; j < d; j += IG_KV_GROUP) {
            ig_kv_line line = rows[r].lines[j / IG_KV_GROUP];
            __m512 step = all_f16(line.step), min = all_f16(line.min);
            int end = j + ig_packed_group(j, d), i = j;
            for (; i + 16 <= end; i += 16) {
                __m128i c = _mm_loadu_si128((const __m128i *)(const void *)(rows[r].codes + i));
                __m512 x = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(c)), step, min);
                _mm256_storeu_si256((__m256i *)(void *)(dst + i), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
            }
            if (i == end) continue;
            __m128i c = _mm_loadl_epi64((const __m128i *)(const void *)(rows[r].codes + i));
            __m512 x = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(c)), step, min);
            _mm_storeu_si128((__m128i *)(void *)(dst + i),
                             _mm256_castsi256_si128(_mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT)));
        }
    }
}

/* The 16 values of a line, twice, so that bit 4 of an index does not matter. */
static inline __m512i values_of(ig_kv_line line) {
    __m512 codes = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512 x = _mm512_fmadd_ps(codes, all_f16(line.step), all_f16(line.min));
    return _mm512_broadcast_i64x4(_mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

static void unpack_q4_avx512(uint16_t *dst, const ig_kv_packed *rows, int n, int d) {
    for (int r = 0; r < n; r++, dst += d) {
        if (r + AHEAD < n) prefetch_row(&rows[r + AHEAD], (size_t)d / 2);
        for (int j = 0; j < d; j += IG_KV_GROUP) {
            __m512i v = values_of(rows[r].lines[j / IG_KV_GROUP]);
            const uint8_t *codes = rows[r].codes + j / 2;
            int half = ig_packed_group(j, d) / 2;
            if (half == 32) {
                __m512i c = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)codes));
                _mm512_storeu_si512(dst + j, _mm512_permutexvar_epi16(c, v));
                _mm512_storeu_si512(dst + j + 32, _mm512_permutexvar_epi16(_mm512_srli_epi16(c, 4), v));
                continue;
            }
            __mmask32 lanes = first_words(half);
            __m512i c = _mm512_cvtepu8_epi16(_mm256_maskz_loadu_epi8(lanes, codes));
            _mm512_mask_storeu_epi16(dst + j, lanes, _mm512_permutexvar_epi16(c, v));
            _mm512_mask_storeu_epi16(dst + j + half, lanes, _mm512_permutexvar_epi16(_mm512_srli_epi16(c, 4), v));
        }
    }
}

void ig_kernels_fill_packed_avx512(ig_kernels *k) {
    k->kv_unpack[IG_KV_Q8] = unpack_q8_avx512;
    k->kv_unpack[IG_KV_Q4] = unpack_q4_avx512;
    ig_kernels_fill_attention_packed_avx512(k);
}
