/* SPDX-License-Identifier: Apache-2.0
 *
 * Packed keys and values for AVX-512: unpacking. A group of codes of 4 bits or fewer has at most 16 values: they are
 * computed once, as 16-bit floats, and a permutation of words looks up 32 codes at a time. The two values of 1-bit
 * codes are blended. Packing, which is done once per token, stays with AVX2.
 */
#include <string.h>

#include "kernel/lanes_avx512.h"
#include "kernel/packed.h"
#include "kernel/parts.h"

enum { AHEAD = 16 }; /* rows from the one in use to the one prefetched: chosen rows are scattered */

static inline __m512 all_f16(uint16_t x) { return _mm512_cvtph_ps(_mm256_set1_epi16((short)x)); }

static inline __mmask32 first_words(int n) { return (__mmask32)((1ull << n) - 1u); }

static inline __attribute__((always_inline)) void prefetch_row(const ig_kv_packed *row, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 64) fetch_line(row->codes + i);
    fetch_line(row->lines);
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

/* The 16 values of a line for codes of 4 bits; for those of 2 bits the 4 values again and again. Twice, so that the
 * bits of an index above the code do not matter. */
static inline __m512i values_of(ig_kv_line line, int bits) {
    __m512i codes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    codes = _mm512_and_si512(codes, _mm512_set1_epi32((1 << bits) - 1));
    __m512 x = _mm512_fmadd_ps(_mm512_cvtepi32_ps(codes), all_f16(line.step), all_f16(line.min));
    return _mm512_broadcast_i64x4(_mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

static inline __attribute__((always_inline)) void unpack_few(uint16_t *dst, const ig_kv_packed *rows, int n, int d,
                                                             int bits) {
    for (int r = 0; r < n; r++, dst += d) {
        if (r + AHEAD < n) prefetch_row(&rows[r + AHEAD], (size_t)(d * bits / 8));
        for (int j = 0; j < d; j += IG_KV_GROUP) {
            __m512i v = values_of(rows[r].lines[j / IG_KV_GROUP], bits);
            int n_bytes = ig_packed_group(j, d) * bits / 8;
            __mmask32 lanes = first_words(n_bytes);
            __m512i c = _mm512_cvtepu8_epi16(_mm256_maskz_loadu_epi8(lanes, rows[r].codes + j * bits / 8));
            for (int part = 0; part < 8 / bits; part++) {
                __m512i at = _mm512_srli_epi16(c, (unsigned)(part * bits));
                _mm512_mask_storeu_epi16(dst + j + part * n_bytes, lanes, _mm512_permutexvar_epi16(at, v));
            }
        }
    }
}

static void unpack_q4_avx512(uint16_t *dst, const ig_kv_packed *rows, int n, int d) { unpack_few(dst, rows, n, d, 4); }
static void unpack_q2_avx512(uint16_t *dst, const ig_kv_packed *rows, int n, int d) { unpack_few(dst, rows, n, d, 2); }

static void unpack_q1_avx512(uint16_t *dst, const ig_kv_packed *rows, int n, int d) {
    for (int r = 0; r < n; r++, dst += d) {
        if (r + AHEAD < n) prefetch_row(&rows[r + AHEAD], (size_t)d / 8);
        for (int j = 0; j < d; j += IG_KV_GROUP) {
            __m512i v = values_of(rows[r].lines[j / IG_KV_GROUP], 1);
            __m512i zero = _mm512_broadcastw_epi16(_mm512_castsi512_si128(v)),
                    one = _mm512_broadcastw_epi16(_mm_srli_si128(_mm512_castsi512_si128(v), 2));
            int size = ig_packed_group(j, d);
            uint64_t bits = 0;
            memcpy(&bits, rows[r].codes + j / 8, (size_t)size / 8);
            for (int i = 0; i < size; i += 32, bits >>= 32)
                _mm512_mask_storeu_epi16(dst + j + i, first_words(size - i < 32 ? size - i : 32),
                                         _mm512_mask_blend_epi16((__mmask32)bits, zero, one));
        }
    }
}

void ig_kernels_fill_packed_avx512(ig_kernels *k) {
    k->kv_unpack[IG_KV_Q8] = unpack_q8_avx512;
    k->kv_unpack[IG_KV_Q4] = unpack_q4_avx512;
    k->kv_unpack[IG_KV_Q2] = unpack_q2_avx512;
    k->kv_unpack[IG_KV_Q1] = unpack_q1_avx512;
    ig_kernels_fill_attention_packed_avx512(k);
}
