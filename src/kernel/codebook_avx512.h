/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks of IQ2 and IQ3 in AVX-512 registers. Entries are looked up 32 at a time, each as a word with the places of its
 * numbers among the format's levels: a book of 256 entries is eight registers, of 1024 thirty-two.
 */
#ifndef IG_KERNEL_CODEBOOK_AVX512_H
#define IG_KERNEL_CODEBOOK_AVX512_H

#include <immintrin.h>
#include <string.h>

#include "kernel/codebook_avx2.h"
#include "kernel/codebook_entries.h"

/* ---- entries ------------------------------------------------------------------------ */

/* The words of a book of n entries that 32 indices below n name. */
INLINE __m512i look_up(const uint16_t *book, const int n, __m512i index) {
    __m512i found[16];
#pragma GCC unroll 16
    for (int i = 0; i < n / 64; i++)
        found[i] =
            _mm512_permutex2var_epi16(_mm512_loadu_si512(book + 64 * i), index, _mm512_loadu_si512(book + 64 * i + 32));
#pragma GCC unroll 4
    for (int bit = 0; 64 << bit < n; bit++) {
        __mmask32 odd = _mm512_test_epi16_mask(index, _mm512_set1_epi16((short)(64 << bit)));
#pragma GCC unroll 8
        for (int i = 0; i < n / 128 >> bit; i++)
            found[i] = _mm512_mask_blend_epi16(odd, found[2 * i], found[2 * i + 1]);
    }
    return found[0];
}

/* Words to their places, a byte each: 8 of 2 bits from each of words 8 i to 8 i + 7, or 4 of 3 bits from each of words
 * 16 i to 16 i + 15. */
INLINE __m512i places(__m512i words, const int i, const int bits) {
    const __m512i lane = _mm512_set_epi16(31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15, 14, 13,
                                          12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const int per_word = bits == 2 ? 2 : 1; /* lanes of 16 bits that take a word, as a power of two */
    __m512i from =
        _mm512_add_epi16(_mm512_srli_epi16(lane, (unsigned)per_word), _mm512_set1_epi16((short)(i * (32 >> per_word))));
    __m512i shift = bits == 2 ? _mm512_set1_epi64(0x000c000800040000) : _mm512_set1_epi32(0x00060000);
    __m512i low = _mm512_srlv_epi16(_mm512_permutexvar_epi16(from, words), shift);
    __m512i high = _mm512_slli_epi16(low, (unsigned)(8 - bits));
    __m512i both = _mm512_ternarylogic_epi64(_mm512_set1_epi16(255), low, high, 0xca); /* of bytes that one, or that */
    return _mm512_and_si512(both, _mm512_set1_epi8((char)((1 << bits) - 1)));
}

/* ---- indices -------------------------------------------------------------------------- */

/* words_<type>: words with the indices of entries 32 i to 32 i + 31. */
typedef __m512i (*words_fn)(const uint8_t *p, int i);

static inline __m512i words_of_bytes(const uint8_t *p) {
    return _mm512_cvtepu8_epi16(_mm256_loadu_si256((const void *)p));
}

INLINE __m512i words_iq2_xxs(const uint8_t *p, int i) {
    (void)i;
    return _mm512_cvtepu8_epi16(_mm512_cvtepi64_epi32(_mm512_loadu_si512(p + 2)));
}

INLINE __m512i words_iq2_xs(const uint8_t *p, int i) {
    (void)i;
    return _mm512_and_si512(_mm512_loadu_si512(p + 2), _mm512_set1_epi16(511));
}

INLINE __m512i words_iq2_s(const uint8_t *p, int i) {
    const __m512i each4 = _mm512_broadcast_i32x4(_mm_set_epi64x(0x0908090809080908, 0x0100010001000100));
    __m512i high = _mm512_cvtepu8_epi64(_mm_loadl_epi64((const void *)(p + 66))); /* two bits of four entries each */
    (void)i;
    high = _mm512_sllv_epi16(_mm512_shuffle_epi8(high, each4), _mm512_set1_epi64(0x0002000400060008));
    /* low | high & mask */
    return _mm512_ternarylogic_epi64(words_of_bytes(p + 2), high, _mm512_set1_epi16(0x300), 0xf8);
}

INLINE __m512i words_iq3_xxs(const uint8_t *p, int i) { return words_of_bytes(p + 2 + 32 * i); }

INLINE __m512i words_iq3_s(const uint8_t *p, int i) {
    __m512i low = words_of_bytes(p + 2 + 32 * i);
    return _mm512_mask_add_epi16(low, ig_read_u32(p + 66 + 4 * i), low, _mm512_set1_epi16(256));
}

/* ---- codes ---------------------------------------------------------------------------- */

/* The signs of elements 64 i to 64 i + 63. */
static inline __mmask64 negative_of(const book_block *b, int i) {
    uint64_t bits;
    memcpy(&bits, b->negative + 2 * i, sizeof bits);
    return bits;
}

/* Codes of elements 64 i to 64 i + 63. `levels`: the magnitudes of all places. */
INLINE __m512i codes_of(const book_block *b, const __m512i words[2], const int i, const int bits, const int offset,
                        __m128i levels) {
    __m512i more = _mm512_broadcast_i32x4(_mm_add_epi8(_mm_set1_epi8((char)offset), levels));
    __m512i less = _mm512_broadcast_i32x4(_mm_sub_epi8(_mm_set1_epi8((char)offset), levels));
    __m512i place = bits == 2 ? places(words[0], i, 2) : places(words[i / 2], i % 2, 3);
    return _mm512_mask_shuffle_epi8(_mm512_shuffle_epi8(more, place), negative_of(b, i), less, place);
}

#endif
