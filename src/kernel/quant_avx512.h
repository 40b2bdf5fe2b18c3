/* SPDX-License-Identifier: Apache-2.0
 *
 * Quantised blocks in AVX-512 registers: 64 codes a register, in the order of the elements.
 *
 * Types with blocks of 32 are read two blocks at a time (a pair), those with blocks of 256
 * one at a time (a super). Codes are unsigned; signed types have an offset: value = code - offset.
 * Nothing outside the blocks asked for is read: masked lanes do not touch memory.
 */
#ifndef IG_KERNEL_QUANT_AVX512_H
#define IG_KERNEL_QUANT_AVX512_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "kernel/codebook_avx512.h"
#include "kernel/parts.h"
#include "kernel/quant.h"

/* ---- two blocks of 32 ------------------------------------------------------- */

typedef struct pair {
    __m512i code;
    __m512 scale, min; /* lanes 0-7: first block, 8-15: second; zero if there is none. Of 16 elements: 4 lanes each */
} pair;

static inline __m512 read_f16(const uint8_t *p) {
    int16_t h;
    memcpy(&h, p, sizeof h);
    return _mm512_cvtph_ps(_mm256_set1_epi16(h));
}

/* 16-bit words of a zmm: 8 times a, b, c, d. */
static inline __m512i words4(int a, int b, int c, int d) {
    __m512i ab = _mm512_inserti64x4(_mm512_set1_epi16((short)a), _mm256_set1_epi16((short)c), 1);
    __m512i cd = _mm512_inserti64x4(_mm512_set1_epi16((short)b), _mm256_set1_epi16((short)d), 1);
    return _mm512_mask_blend_epi64(0xcc, ab, cd);
}

/* `words` words of one block or two. */
static inline __m512i load_words(const uint8_t *p, int words, int n_blocks) {
    return _mm512_maskz_loadu_epi16(n_blocks == 2 ? (1ull << 2 * words) - 1 : (1ull << words) - 1, p);
}

/* Nibbles: 8 words from word `first` of each block, low halves before high halves. */
static inline __m512i nibbles(__m512i v, int first, int words) {
    __m512i run = _mm512_broadcast_i32x4(_mm_set_epi16(7, 6, 5, 4, 3, 2, 1, 0));
    __m512i index = _mm512_add_epi16(run, words4(first, first, words + first, words + first));
    __m512i both = _mm512_permutexvar_epi16(index, v);
    return _mm512_and_si512(_mm512_srlv_epi16(both, words4(0, 4, 0, 4)), _mm512_set1_epi8(15));
}

/* Word 0 of each block as float. */
static inline __m512 pair_scale(__m512i v, int words) {
    __m512i s = _mm512_permutexvar_epi16(words4(0, words, 0, words), v);
    return _mm512_cvtph_ps(_mm512_castsi512_si256(s));
}

/* Words 0 and 1 of each block as floats. */
static inline void pair_affine(pair *w, __m512i v, int words) {
    __m512i s = _mm512_permutexvar_epi16(words4(0, words, 1, words + 1), v);
    w->scale = _mm512_cvtph_ps(_mm512_castsi512_si256(s));
    w->min = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(s, 1));
}

/* Adds 16 where the fifth bit is set: bits of the first block at p, of the second `bytes` later. */
static inline __m512i fifth_bits(__m512i code, const uint8_t *p, int bytes, int n_blocks) {
    uint64_t bits = ig_read_u32(p);
    if (n_blocks == 2) bits |= (uint64_t)ig_read_u32(p + bytes) << 32;
    return _mm512_mask_add_epi8(code, bits, code, _mm512_set1_epi8(16));
}

static inline pair load_q4_0(const uint8_t *p, int n_blocks) {
    __m512i v = load_words(p, 9, n_blocks);
    return (pair){.code = nibbles(v, 1, 9), .scale = pair_scale(v, 9)};
}

static inline pair load_q4_1(const uint8_t *p, int n_blocks) {
    __m512i v = load_words(p, 10, n_blocks);
    pair w = {.code = nibbles(v, 2, 10)};
    pair_affine(&w, v, 10);
    return w;
}

static inline pair load_q5_0(const uint8_t *p, int n_blocks) {
    __m512i v = load_words(p, 11, n_blocks);
    return (pair){.code = fifth_bits(nibbles(v, 3, 11), p + 2, 22, n_blocks), .scale = pair_scale(v, 11)};
}

static inline pair load_q5_1(const uint8_t *p, int n_blocks) {
    __m512i v = load_words(p, 12, n_blocks);
    pair w = {.code = fifth_bits(nibbles(v, 4, 12), p + 4, 24, n_blocks)};
    pair_affine(&w, v, 12);
    return w;
}

static inline pair load_q8_0(const uint8_t *p, int n_blocks) {
    __m256i first = _mm256_loadu_si256((const void *)(p + 2)), second = _mm256_setzero_si256();
    int16_t s0, s1 = 0;
    memcpy(&s0, p, sizeof s0);
    if (n_blocks == 2) {
        second = _mm256_loadu_si256((const void *)(p + 36));
        memcpy(&s1, p + 34, sizeof s1);
    }
    __m512i code = _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
    __m256i s = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_set1_epi16(s0)), _mm_set1_epi16(s1), 1);
    return (pair){.code = _mm512_xor_si512(code, _mm512_set1_epi8(-128)), .scale = _mm512_cvtph_ps(s)};
}

/* Indices to values + 128. */
static inline __m512i codes_by(__m128i values, __m512i index) {
    return _mm512_xor_si512(_mm512_shuffle_epi8(_mm512_broadcast_i32x4(values), index), _mm512_set1_epi8(-128));
}

static inline __m512i iq4_codes(__m512i index) { return codes_by(_mm_setr_epi8(IG_IQ4_VALUES), index); }

static inline pair load_iq4_nl(const uint8_t *p, int n_blocks) {
    __m512i v = load_words(p, 9, n_blocks);
    return (pair){.code = iq4_codes(nibbles(v, 1, 9)), .scale = pair_scale(v, 9)};
}

/* Its blocks are an odd number of bytes. */
static inline pair load_mxfp4(const uint8_t *p, int n_blocks) {
    __m128i first = _mm_loadu_si128((const void *)(p + 1)), second = _mm_setzero_si128();
    float s0 = ig_mxfp4_scale(p), s1 = 0;
    if (n_blocks == 2) {
        second = _mm_loadu_si128((const void *)(p + 18));
        s1 = ig_mxfp4_scale(p + 17);
    }
    __m512i both = _mm512_inserti32x4(_mm512_castsi128_si512(first), _mm_srli_epi16(first, 4), 1);
    both = _mm512_inserti32x4(_mm512_inserti32x4(both, second, 2), _mm_srli_epi16(second, 4), 3);
    return (pair){.code = codes_by(_mm_setr_epi8(IG_MXFP4_VALUES), _mm512_and_si512(both, _mm512_set1_epi8(15))),
                  .scale = _mm512_mask_mov_ps(_mm512_set1_ps(s0), 0xff00, _mm512_set1_ps(s1))};
}

/* Groups b and b + 1 of 32 elements of a row, or the first of them. b is even. */
typedef pair (*load_pair_fn)(const uint8_t *row, int b, int n_blocks);

/* Of blocks of 32. */
#define PAIR_OF(type, bytes)                                                     \
    static inline pair pair_of_##type(const uint8_t *row, int b, int n_blocks) { \
        return load_##type(row + (size_t)b * (bytes), n_blocks);                 \
    }
PAIR_OF(q4_0, 18)
PAIR_OF(q4_1, 20)
PAIR_OF(q5_0, 22)
PAIR_OF(q5_1, 24)
PAIR_OF(q8_0, 34)
PAIR_OF(iq4_nl, 18)
PAIR_OF(mxfp4, 17)

/* ---- 64 elements of a larger block ------------------------------------------------ */

static inline __m512i twice(const uint8_t *p) { return _mm512_broadcast_i64x4(_mm256_loadu_si256((const void *)p)); }

/* 16-bit words a 16 times, b 16 times. */
static inline __m512i word_halves(int a, int b) {
    return _mm512_inserti64x4(_mm512_set1_epi16((short)a), _mm256_set1_epi16((short)b), 1);
}

/* Codes of 0, 1 and 2, and of 2 bits, are kept plus 127: they stand for one less. */
static inline __m512i less_one(__m512i code) { return _mm512_add_epi8(code, _mm512_set1_epi8(127)); }

static inline pair pair_of_q1_0(const uint8_t *row, int b, int n_blocks) {
    const uint8_t *p = row + (size_t)(b / 4) * 18;
    const __m512i minus = _mm512_set1_epi8(127), plus = _mm512_set1_epi8(-127);
    (void)n_blocks;
    return (pair){.code = _mm512_mask_blend_epi8(ig_read_u64(p + 2 + b % 4 * 4), minus, plus), .scale = read_f16(p)};
}

/* Four numbers in a byte: a table takes its lower or its upper two bits of four. */
static inline pair pair_of_q2_0(const uint8_t *row, int b, int n_blocks) {
    const uint8_t *p = row + (size_t)(b / 2) * 18;
    const __m512i each =
        _mm512_set_epi32(0x0f0f0f0f, 0x0e0e0e0e, 0x0d0d0d0d, 0x0c0c0c0c, 0x0b0b0b0b, 0x0a0a0a0a, 0x09090909, 0x08080808,
                         0x07070707, 0x06060606, 0x05050505, 0x04040404, 0x03030303, 0x02020202, 0x01010101, 0);
    const __m128i values = _mm_setr_epi8(-1, 0, 1, 2, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0);
    __m512i v = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const void *)(p + 2))), each);
    v = _mm512_srlv_epi16(v, _mm512_set1_epi32(4 << 16));
    (void)n_blocks;
    return (pair){.code = codes_by(values, _mm512_and_si512(v, _mm512_set1_epi32(0x0c030c03))), .scale = read_f16(p)};
}

static inline pair pair_of_tq2_0(const uint8_t *row, int b, int n_blocks) {
    const uint8_t *p = row + (size_t)(b / 8) * 66;
    int shift = b % 4 * 2;
    __m512i v = _mm512_srlv_epi16(twice(p + b % 8 / 4 * 32), word_halves(shift, shift + 2));
    (void)n_blocks;
    return (pair){.code = less_one(_mm512_and_si512(v, _mm512_set1_epi8(3))), .scale = read_f16(p + 64)};
}

/* The bytes of 32 elements of a block of TQ1_0 (ig_tq1_powers). */
static inline __m256i tq1_bytes(const uint8_t *p, int i) {
    if (i < 5) return _mm256_loadu_si256((const void *)p);
    __m128i second = _mm_loadu_si128((const void *)(p + IG_TQ1_SECOND));
    __m128i last = i < 7 ? second : _mm_set1_epi32((int)ig_read_u32(p + IG_TQ1_LAST));
    return _mm256_inserti128_si256(_mm256_castsi128_si256(second), last, 1);
}

/* Of a byte's product with its power 3 x >> 8 is 1 from 86 on, 2 from 171 on. */
static inline pair pair_of_tq1_0(const uint8_t *row, int b, int n_blocks) {
    const uint8_t *p = row + (size_t)(b / 8) * 54;
    const __m512i one = _mm512_set1_epi8(1);
    __m512i v = _mm512_inserti64x4(_mm512_castsi256_si512(tq1_bytes(p, b % 8)), tq1_bytes(p, b % 8 + 1), 1);
    __m512i powers = _mm512_loadu_si512(ig_tq1_powers[b % 8]);
    __m512i odd = _mm512_mullo_epi16(_mm512_srli_epi16(v, 8), _mm512_srli_epi16(powers, 8));
    v = _mm512_mask_mov_epi8(_mm512_mullo_epi16(v, powers), 0xaaaaaaaaaaaaaaaaull, _mm512_slli_epi16(odd, 8));
    __m512i code = _mm512_set1_epi8(127);
    code = _mm512_mask_add_epi8(code, _mm512_cmpge_epu8_mask(v, _mm512_set1_epi8(86)), code, one);
    code = _mm512_mask_add_epi8(code, _mm512_cmpge_epu8_mask(v, _mm512_set1_epi8((char)171)), code, one);
    (void)n_blocks;
    return (pair){.code = code, .scale = read_f16(p + IG_TQ1_D)};
}

/* Four scales, then 8 bytes for each 16 codes: 8 low nibbles, then 8 high ones. */
static inline pair pair_of_nvfp4(const uint8_t *row, int b, int n_blocks) {
    const uint8_t *p = row + (size_t)(b / 2) * 36;
    const __m512i each = _mm512_set_epi64(3, 3, 2, 2, 1, 1, 0, 0), nibble = _mm512_set_epi64(4, 0, 4, 0, 4, 0, 4, 0);
    __m512i v = _mm512_permutexvar_epi64(each, _mm512_castsi256_si512(_mm256_loadu_si256((const void *)(p + 4))));
    __m512i scale = _mm512_cvtepu8_epi32(
        _mm_shuffle_epi8(_mm_loadu_si32(p), _mm_setr_epi8(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3)));
    scale = _mm512_and_si512(scale, _mm512_set1_epi32(127));
    __mmask16 is_number = _mm512_cmpneq_epi32_mask(scale, _mm512_set1_epi32(127));
    __m512 number = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_slli_epi32(scale, 7)));
    v = _mm512_and_si512(_mm512_srlv_epi64(v, nibble), _mm512_set1_epi8(15));
    (void)n_blocks;
    return (pair){.code = codes_by(_mm_setr_epi8(IG_MXFP4_VALUES), v),
                  .scale = _mm512_maskz_mul_ps(is_number, number, _mm512_set1_ps(128))};
}

/* ---- a block of 256 --------------------------------------------------------- */

typedef struct super {
    __m512i code[4];
    /* Scales of 32 elements: 8 scales and 8 minimums in `scale`. Of 16: a full register of each. */
    __m512 scale, min;
} super;

/* d, dmin and the 6-bit numbers of Q4_K and Q5_K. */
static inline __m512 scales_k(const uint8_t *p) {
    uint64_t numbers[2];
    ig_q45_k_scales(numbers, p);
    __m512i bytes = _mm512_cvtepu8_epi32(_mm_set_epi64x((int64_t)numbers[1], (int64_t)numbers[0]));
    __m512i h = _mm512_castsi128_si512(_mm_loadu_si32(p));
    __m512i hh = _mm512_permutexvar_epi16(words4(0, 1, 0, 1), h);
    __m512 d = _mm512_cvtph_ps(_mm512_castsi512_si256(hh));
    __m512 s = _mm512_mul_ps(_mm512_cvtepi32_ps(bytes), d);
    return _mm512_castsi512_ps(
        _mm512_mask_xor_epi32(_mm512_castps_si512(s), 0xff00, _mm512_castps_si512(s), _mm512_set1_epi32(INT32_MIN)));
}

/* Bytes a 32 times, b 32 times. */
static inline __m512i halves(int a, int b) {
    return _mm512_inserti64x4(_mm512_set1_epi8((char)a), _mm256_set1_epi8((char)b), 1);
}

/* 32 bytes: 32 low nibbles, then 32 high ones. */
static inline __m512i nibbles_k(const uint8_t *p) {
    return _mm512_and_si512(_mm512_srlv_epi16(twice(p), word_halves(0, 4)), _mm512_set1_epi8(15));
}

static inline super load_q4_k(const uint8_t *p) {
    super w = {.scale = scales_k(p)};
    for (int i = 0; i < 4; i++) w.code[i] = nibbles_k(p + 16 + 32 * i);
    return w;
}

static inline super load_q5_k(const uint8_t *p) {
    super w = {.scale = scales_k(p)};
    __m512i high = twice(p + 16);
    for (int i = 0; i < 4; i++) {
        __mmask64 set = _mm512_test_epi8_mask(high, halves(1 << 2 * i, 2 << 2 * i));
        __m512i low = nibbles_k(p + 48 + 32 * i);
        w.code[i] = _mm512_mask_add_epi8(low, set, low, _mm512_set1_epi8(16));
    }
    return w;
}

static inline super load_q6_k(const uint8_t *p) {
    super w;
    const __m512i low4 = _mm512_set1_epi8(15), bits45 = _mm512_set1_epi8(0x30);
    for (int i = 0; i < 2; i++) {
        __m512i low = _mm512_loadu_si512(p + 64 * i), high = twice(p + 128 + 32 * i);
        __m512i first = _mm512_and_si512(low, low4), second = _mm512_and_si512(_mm512_srli_epi16(low, 4), low4);
        /* 0xf8: a | (b & c) */
        w.code[2 * i] = _mm512_ternarylogic_epi32(first, _mm512_sllv_epi16(high, word_halves(4, 2)), bits45, 0xf8);
        w.code[2 * i + 1] = _mm512_ternarylogic_epi32(second, _mm512_srlv_epi16(high, word_halves(0, 2)), bits45, 0xf8);
    }
    __m512i s = _mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)(p + 192)));
    w.scale = _mm512_mul_ps(_mm512_cvtepi32_ps(s), read_f16(p + 208));
    w.min = _mm512_mul_ps(w.scale, _mm512_set1_ps(-32));
    return w;
}

static inline super load_q2_k(const uint8_t *p) {
    super w;
    const __m512i low2 = _mm512_set1_epi8(3);
    for (int i = 0; i < 2; i++) {
        __m512i bits = twice(p + 16 + 32 * i);
        w.code[2 * i] = _mm512_and_si512(_mm512_srlv_epi16(bits, word_halves(0, 2)), low2);
        w.code[2 * i + 1] = _mm512_and_si512(_mm512_srlv_epi16(bits, word_halves(4, 6)), low2);
    }
    __m512i s = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)p)), low4 = _mm512_set1_epi32(15);
    __m512 dmin = _mm512_sub_ps(_mm512_setzero_ps(), read_f16(p + 82));
    w.scale = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_and_si512(s, low4)), read_f16(p + 80));
    w.min = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_srli_epi32(s, 4)), dmin);
    return w;
}

static inline super load_q3_k(const uint8_t *p) {
    super w;
    const __m512i low2 = _mm512_set1_epi8(3), four = _mm512_set1_epi8(4);
    __m512i high = twice(p);
    for (int i = 0; i < 4; i++) {
        __m512i shift = i % 2 ? word_halves(4, 6) : word_halves(0, 2);
        __m512i low = _mm512_and_si512(_mm512_srlv_epi16(twice(p + 32 + i / 2 * 32), shift), low2);
        __mmask64 set = _mm512_test_epi8_mask(high, halves(1 << 2 * i, 2 << 2 * i));
        w.code[i] = _mm512_mask_add_epi8(low, set, low, four);
    }
    uint64_t scales[2];
    ig_q3_k_scales(scales, p);
    __m512i s = _mm512_cvtepi8_epi32(_mm_set_epi64x((int64_t)scales[1], (int64_t)scales[0]));
    s = _mm512_sub_epi32(s, _mm512_set1_epi32(32));
    w.scale = _mm512_mul_ps(_mm512_cvtepi32_ps(s), read_f16(p + 108));
    w.min = _mm512_mul_ps(w.scale, _mm512_set1_ps(-4));
    return w;
}

/* The codebook formats: scales of a block, whose minimums are those of the offset. */
static inline void put_steps(super *w, const book_block *b, float d, int offset) {
    w->scale = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(b->steps)), _mm512_set1_ps(d));
    w->min = _mm512_mul_ps(w->scale, _mm512_set1_ps((float)-offset));
}

/* IQ1 has 2048 entries, which are looked up one by one: by end_<type>, once begin_<type> took the block apart. */
typedef super (*end_book_fn)(const book_block *b, const uint8_t *p);

INLINE super look_up_iq1(const book_block *b, float d, const int offset) {
    const __m512i one = _mm512_set1_epi8(1);
    super w;
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        long long e[8];
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) e[j] = (long long)ig_book_iq1[b->index[8 * i + j]];
        __m512i v = _mm512_set_epi64(e[7], e[6], e[5], e[4], e[3], e[2], e[1], e[0]);
        w.code[i] = _mm512_mask_sub_epi8(_mm512_add_epi8(v, one), negative_of(b, i), v, one);
    }
    put_steps(&w, b, d, offset);
    return w;
}

#define LOAD_IQ1(TYPE, type, unit, offset, signs)                            \
    INLINE super end_##type(const book_block *b, const uint8_t *p) {         \
        return look_up_iq1(b, _cvtsh_ss(ig_##type##_d(p)) * (unit), offset); \
    }                                                                        \
    static inline super load_##type(const uint8_t *p) {                      \
        book_block b;                                                        \
        begin_##type(&b, p);                                                 \
        return end_##type(&b, p);                                            \
    }
IG_IQ1_TYPES(LOAD_IQ1)

/* A book of n words of places of so many bits. */
INLINE super load_book(const uint8_t *p, words_fn index, take_fn rest, const uint16_t *book, const int n,
                       const int bits, float d, const int offset, __m128i levels) {
    __m512i words[2] = {look_up(book, n, index(p, 0)), _mm512_setzero_si512()};
    book_block b;
    super w;
    if (bits == 3) words[1] = look_up(book, n, index(p, 1));
    rest(&b, p);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) w.code[i] = codes_of(&b, words, i, bits, offset, levels);
    put_steps(&w, &b, d, offset);
    return w;
}

/* X: the magnitude at a place. */
#define LEVEL(X, i) ((char)X(i))
#define LEVELS(X)                                                                                            \
    _mm_setr_epi8(LEVEL(X, 0), LEVEL(X, 1), LEVEL(X, 2), LEVEL(X, 3), LEVEL(X, 4), LEVEL(X, 5), LEVEL(X, 6), \
                  LEVEL(X, 7), 0, 0, 0, 0, 0, 0, 0, 0)
#define LOAD_BOOK(type, bits, unit, offset, level)                                                          \
    static inline super load_##type(const uint8_t *p) {                                                     \
        return load_book(p, words_##type, rest_##type, ig_places_##type, sizeof ig_places_##type / 2, bits, \
                         _cvtsh_ss(ig_##type##_d(p)) * (unit), offset, LEVELS(level));                      \
    }
#define LOAD_IQ2(TYPE, type, unit, offset, signs) LOAD_BOOK(type, 2, unit, offset, IG_LEVEL_IQ2)
#define LOAD_IQ3(TYPE, type, unit, offset, signs) LOAD_BOOK(type, 3, unit, offset, IG_LEVEL_##TYPE)
IG_IQ2_TYPES(LOAD_IQ2)
IG_IQ3_TYPES(LOAD_IQ3)

static inline pair pair_of_iq4_xs(const uint8_t *row, int b, int n_blocks) {
    const uint8_t *p = row + (size_t)(b / 8) * 136;
    int i = b % 8;
    __m512i v = load_words(p + 8 + 16 * i, 8, 2), s = _mm512_set1_epi32(ig_iq4_xs_scale(p, i));
    s = _mm512_mask_mov_epi32(s, 0xff00, _mm512_set1_epi32(ig_iq4_xs_scale(p, i + 1)));
    (void)n_blocks;
    return (pair){.code = iq4_codes(nibbles(v, 0, 8)), .scale = _mm512_mul_ps(_mm512_cvtepi32_ps(s), read_f16(p))};
}

/* Its scales are in lanes 0..7. */
static inline super load_iq4_xs(const uint8_t *p) {
    super w = {.min = _mm512_setzero_ps()};
    int32_t scale[16] = {0};
    for (int i = 0; i < 8; i++) scale[i] = ig_iq4_xs_scale(p, i);
    for (int i = 0; i < 4; i++) w.code[i] = iq4_codes(nibbles(load_words(p + 8 + 32 * i, 8, 2), 0, 8));
    w.scale = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_loadu_si512(scale)), read_f16(p));
    return w;
}

/* ---- eight blocks of 32 ------------------------------------------------------- */

/* Four pairs of blocks as one super: eight scales and eight minimums. Their 16-bit floats are
 * gathered from the registers that hold the codes and converted together. */
static inline __m512 scales8(const __m512i v[4], int words, int offset) {
    int m = offset ? 0 : 1; /* word of the minimum; signed types make theirs of the scale */
    __m512i two = _mm512_castsi128_si512(_mm_set_epi16((short)(32 + words + m), (short)(32 + m), (short)(words + m),
                                                       (short)m, (short)(32 + words), 32, (short)words, 0));
    __m512i four = _mm512_castsi256_si512(_mm256_set_epi16(39, 38, 37, 36, 7, 6, 5, 4, 35, 34, 33, 32, 3, 2, 1, 0));
    __m512i first = _mm512_permutex2var_epi16(v[0], two, v[1]), second = _mm512_permutex2var_epi16(v[2], two, v[3]);
    __m512 s = _mm512_cvtph_ps(_mm512_castsi512_si256(_mm512_permutex2var_epi16(first, four, second)));
    return offset ? _mm512_mask_mul_ps(s, 0xff00, s, _mm512_set1_ps((float)-offset)) : s;
}

/* Blocks of `words` words with nibbles from word `first`. */
static inline super load8_nibbles(const uint8_t *p, int words, int first, int offset) {
    super w;
    __m512i v[4];
    for (int i = 0; i < 4; i++) {
        v[i] = load_words(p + 4 * words * i, words, 2);
        w.code[i] = nibbles(v[i], first, words);
    }
    w.scale = scales8(v, words, offset);
    return w;
}

static inline super load8_q4_0(const uint8_t *p) { return load8_nibbles(p, 9, 1, 8); }
static inline super load8_q4_1(const uint8_t *p) { return load8_nibbles(p, 10, 2, 0); }

static inline super load8_q5_0(const uint8_t *p) {
    super w = load8_nibbles(p, 11, 3, 16);
    for (int i = 0; i < 4; i++) w.code[i] = fifth_bits(w.code[i], p + 44 * i + 2, 22, 2);
    return w;
}

static inline super load8_q5_1(const uint8_t *p) {
    super w = load8_nibbles(p, 12, 4, 0);
    for (int i = 0; i < 4; i++) w.code[i] = fifth_bits(w.code[i], p + 48 * i + 4, 24, 2);
    return w;
}

/* ---- 8-bit floats --------------------------------------------------------------- */

/* 32 in E4M3 as 16-bit floats, 1 / IG_F8_UNIT of them; NaN becomes a number. */
static inline __m512i finite_f8(__m256i codes) {
    return _mm512_and_si512(_mm512_slli_epi16(_mm512_cvtepi8_epi16(codes), 7), _mm512_set1_epi16((short)0xbfff));
}

/* ---- 16 floats ---------------------------------------------------------------- */

static inline __m512 load_f32(const void *p, __mmask16 mask) { return _mm512_maskz_loadu_ps(mask, p); }

static inline __m512 load_f16(const void *p, __mmask16 mask) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, p));
}

static inline __m512 load_bf16(const void *p, __mmask16 mask) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, p)), 16));
}

#endif
