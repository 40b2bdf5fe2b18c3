/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks of the codebook formats, taken apart in AVX2 registers.
 */
#ifndef IG_KERNEL_CODEBOOK_AVX2_H
#define IG_KERNEL_CODEBOOK_AVX2_H

#include <immintrin.h>
#include <string.h>

#include "kernel/codebook.h"

/* A block without its d. */
typedef struct book_block {
    uint16_t index[64];   /* of 32 entries, of IQ3 of 64 */
    uint32_t negative[8]; /* ig_<type>_signs(), all eight of them where seven are stored */
    __m128i steps;        /* bytes */
} book_block;

/* ---- indices ------------------------------------------------------------------------- */

/* Loads of single indices are cheaper than to take them out of the register, as GCC would. */
static inline void put_index(book_block *b, int at, __m256i words) {
    _mm256_storeu_si256((void *)(b->index + at), words);
    __asm__("" : "+m"(b->index));
}

static inline __m256i words_of(const uint8_t *p) { return _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)p)); }

/* To 16 bytes at p their bits of `mask`, out of 16 words. */
static inline void put_long_index(book_block *b, int at, const uint8_t *p, __m256i words, int mask) {
    words = _mm256_and_si256(words, _mm256_set1_epi16((short)mask));
    put_index(b, at, _mm256_or_si256(words_of(p), words));
}

/* 16 words, `each` times a byte and then the next one, from byte `first` of the eight at p on. */
INLINE __m256i spread_bytes(const uint8_t *p, const int first, const int each) {
    const __m256i lane = _mm256_setr_epi16(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const int shift = each == 8 ? 3 : each == 4 ? 2 : 1;
    __m256i from = _mm256_add_epi16(_mm256_srli_epi16(lane, shift), _mm256_set1_epi16((short)first));
    __m256i all = _mm256_set1_epi64x((long long)ig_read_u64(p));
    return _mm256_shuffle_epi8(all, _mm256_or_si256(from, _mm256_set1_epi16((short)0x8000)));
}

/* ---- signs ----------------------------------------------------------------------------- */

static inline void put_signs(book_block *b, __m256i signs) { _mm256_storeu_si256((void *)b->negative, signs); }

/* Seven signs a byte to eight, of which an even number is set. */
static inline __m256i even_signs(__m256i seven) {
    __m256i odd = _mm256_xor_si256(seven, _mm256_srli_epi16(seven, 4));
    odd = _mm256_xor_si256(odd, _mm256_srli_epi16(odd, 2));
    odd = _mm256_xor_si256(odd, _mm256_srli_epi16(odd, 1));
    return _mm256_or_si256(seven, _mm256_and_si256(_mm256_slli_epi16(odd, 7), _mm256_set1_epi8(-128)));
}

/* Four times seven signs in each of 8 words of 32 bits, above them a scale. */
static inline __m256i spread_sevens(__m256i v) {
    __m256i two = _mm256_or_si256(_mm256_and_si256(v, _mm256_set1_epi32(0x3fff)),
                                  _mm256_and_si256(_mm256_slli_epi32(v, 2), _mm256_set1_epi32(0x3fff0000)));
    return _mm256_or_si256(_mm256_and_si256(two, _mm256_set1_epi16(0x7f)),
                           _mm256_and_si256(_mm256_slli_epi16(two, 1), _mm256_set1_epi16(0x7f00)));
}

/* ---- steps ------------------------------------------------------------------------------ */

static inline __m128i odd_bytes(__m128i v) { return _mm_add_epi8(_mm_add_epi8(v, v), _mm_set1_epi8(1)); }

/* Eight words below 128 to twice as many bytes, each twice. */
static inline __m128i each_twice(__m128i words) { return _mm_or_si128(words, _mm_slli_epi16(words, 8)); }

/* `bytes` with two each, the lower half first. */
static inline __m128i two_each(uint64_t bytes) {
    __m128i v = _mm_cvtsi64_si128((long long)bytes), low = _mm_set1_epi8(15);
    return _mm_unpacklo_epi8(_mm_and_si128(v, low), _mm_and_si128(_mm_srli_epi16(v, 4), low));
}

/* Of IQ2_XXS and IQ3_XXS. */
static inline void put_signs_and_steps(book_block *b, __m256i v) {
    put_signs(b, even_signs(spread_sevens(v)));
    v = _mm256_srli_epi32(v, 28);
    b->steps = odd_bytes(each_twice(_mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1))));
}

/* ---- the types ---------------------------------------------------------------------------- */

/* index_<type>: indices, for entries by loads. rest_<type>: signs and steps. */
typedef void (*take_fn)(book_block *b, const uint8_t *p);

/* Words 4 i to 4 i + 3 of eight that both halves of v hold, four times each. */
INLINE __m256i spread_words(__m256i v, const int i) {
    const __m256i lane =
        _mm256_setr_epi64x(0x0100010001000100, 0x0302030203020302, 0x0504050405040504, 0x0706070607060706);
    return _mm256_shuffle_epi8(v, _mm256_add_epi8(lane, _mm256_set1_epi8((char)(8 * i))));
}

INLINE void index_iq1_s(book_block *b, const uint8_t *p) {
    __m256i high = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)(p + 34)));
    for (int i = 0; i < 2; i++) {
        __m256i v = spread_words(high, i);
        __m256i left = _mm256_mullo_epi16(v, _mm256_set1_epi64x(0x0000000400200100)); /* by 8, 5 and 2 bits */
        v = _mm256_blend_epi16(left, _mm256_srli_epi16(v, 1), 0x88);
        put_long_index(b, 16 * i, p + 2 + 16 * i, v, 0x700);
    }
}

INLINE void rest_iq1_s(book_block *b, const uint8_t *p) {
    __m128i high = _mm_loadu_si128((const void *)(p + 34));
    put_signs(b, _mm256_cvtepi16_epi32(_mm_srai_epi16(high, 15)));
    b->steps = odd_bytes(each_twice(_mm_and_si128(_mm_srli_epi16(high, 12), _mm_set1_epi16(7))));
}

/* Bits 8 to 10 of a word are those of an index, bit 11 is the sign. */
static inline __m256i iq1_m_high(const uint8_t *p, int i) {
    return _mm256_mullo_epi16(spread_bytes(p + 32 + 8 * i, 0, 2), _mm256_set1_epi32(0x00100100));
}

INLINE void index_iq1_m(book_block *b, const uint8_t *p) {
    for (int i = 0; i < 2; i++) put_long_index(b, 16 * i, p + 16 * i, iq1_m_high(p, i), 0x700);
}

INLINE void rest_iq1_m(book_block *b, const uint8_t *p) {
    __m256i v[2], steps = spread_words(_mm256_set1_epi64x((long long)ig_read_u64(p + 48)), 0);
    for (int i = 0; i < 2; i++) v[i] = _mm256_srai_epi16(_mm256_slli_epi16(iq1_m_high(p, i), 4), 15);
    put_signs(b, _mm256_permute4x64_epi64(_mm256_packs_epi16(v[0], v[1]), 0xd8));
    steps = _mm256_mullo_epi16(steps, _mm256_set1_epi64x(0x0010008004002000)); /* each three bits to the top */
    steps = _mm256_srli_epi16(steps, 13);
    b->steps = odd_bytes(_mm_packus_epi16(_mm256_castsi256_si128(steps), _mm256_extracti128_si256(steps, 1)));
}

/* The even words of 32 bits of 64 bytes, or the odd ones. */
INLINE __m256i every_other(const uint8_t *p, const bool odd) {
    __m256 low = _mm256_loadu_ps((const void *)p), high = _mm256_loadu_ps((const void *)(p + 32));
    __m256 v = odd ? _mm256_shuffle_ps(low, high, 0xdd) : _mm256_shuffle_ps(low, high, 0x88);
    return _mm256_permute4x64_epi64(_mm256_castps_si256(v), 0xd8);
}

INLINE void index_iq2_xxs(book_block *b, const uint8_t *p) {
    __m256i bytes = every_other(p + 2, false);
    put_index(b, 0, _mm256_cvtepu8_epi16(_mm256_castsi256_si128(bytes)));
    put_index(b, 16, _mm256_cvtepu8_epi16(_mm256_extracti128_si256(bytes, 1)));
}

INLINE void rest_iq2_xxs(book_block *b, const uint8_t *p) { put_signs_and_steps(b, every_other(p + 2, true)); }

INLINE void index_iq2_xs(book_block *b, const uint8_t *p) {
    for (int i = 0; i < 2; i++) {
        __m256i v = _mm256_loadu_si256((const void *)(p + 2 + 32 * i));
        put_index(b, 16 * i, _mm256_and_si256(v, _mm256_set1_epi16(511)));
    }
}

INLINE void rest_iq2_xs(book_block *b, const uint8_t *p) {
    __m256i low = _mm256_srli_epi16(_mm256_loadu_si256((const void *)(p + 2)), 9);
    __m256i high = _mm256_srli_epi16(_mm256_loadu_si256((const void *)(p + 34)), 9);
    put_signs(b, even_signs(_mm256_permute4x64_epi64(_mm256_packus_epi16(low, high), 0xd8)));
    b->steps = odd_bytes(two_each(ig_read_u64(p + 66)));
}

INLINE void index_iq2_s(book_block *b, const uint8_t *p) {
    const __m256i by = _mm256_set1_epi64x(0x0004001000400100); /* by 8, 6, 4 and 2 bits */
    for (int i = 0; i < 2; i++)
        put_long_index(b, 16 * i, p + 2 + 16 * i, _mm256_mullo_epi16(spread_bytes(p + 66, 4 * i, 4), by), 0x300);
}

INLINE void rest_iq2_s(book_block *b, const uint8_t *p) {
    memcpy(b->negative, p + 34, sizeof b->negative);
    b->steps = odd_bytes(two_each(ig_read_u64(p + 74)));
}

INLINE void index_iq3_xxs(book_block *b, const uint8_t *p) {
    for (int i = 0; i < 4; i++) put_index(b, 16 * i, words_of(p + 2 + 16 * i));
}

INLINE void rest_iq3_xxs(book_block *b, const uint8_t *p) {
    put_signs_and_steps(b, _mm256_loadu_si256((const void *)(p + 66)));
}

INLINE void index_iq3_s(book_block *b, const uint8_t *p) {
    const __m256i by = _mm256_broadcastsi128_si256(_mm_setr_epi16(256, 128, 64, 32, 16, 8, 4, 2));
    for (int i = 0; i < 4; i++)
        put_long_index(b, 16 * i, p + 2 + 16 * i, _mm256_mullo_epi16(spread_bytes(p + 66, 2 * i, 8), by), 0x100);
}

INLINE void rest_iq3_s(book_block *b, const uint8_t *p) {
    memcpy(b->negative, p + 74, sizeof b->negative);
    __m128i steps = two_each(ig_read_u32(p + 106));
    b->steps = odd_bytes(_mm_unpacklo_epi8(steps, steps));
}

/* begin_<type>: both. */
#define BEGIN_BOOK(TYPE, type, unit, offset, signs)             \
    INLINE void begin_##type(book_block *b, const uint8_t *p) { \
        index_##type(b, p);                                     \
        rest_##type(b, p);                                      \
    }
IG_BOOK_TYPES(BEGIN_BOOK)

#endif
