/* SPDX-License-Identifier: Apache-2.0
 *
 * Quantised blocks in AVX2 registers: 32 codes a register, in the order of the elements.
 *
 * Codes are unsigned and at most 127, so that the 16-bit sums of vpmaddubsw cannot overflow;
 * signed types carry their offset as a minimum of -offset * scale. Only those whose parts of 32
 * are read alone have signed codes. Nothing outside the block is read.
 */
#ifndef IG_KERNEL_QUANT_AVX2_H
#define IG_KERNEL_QUANT_AVX2_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "kernel/codebook_avx2.h"
#include "kernel/parts.h"
#include "kernel/quant.h"

static inline float read_f16(const uint8_t *p) {
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return _cvtsh_ss(h);
}

/* Four activations in each lane. */
static inline __m256i repeat4(const int8_t *q) {
    int32_t v;
    memcpy(&v, q, sizeof v);
    return _mm256_set1_epi32(v);
}

static inline __m256i load32(const uint8_t *p) { return _mm256_loadu_si256((const void *)p); }

/* ---- 32 signed bytes with a scale --------------------------------------------- */

/* Part i of the block at p. Lanes 0-3: the scale of its first 16 elements, 4-7: of the others. */
typedef __m256i (*load_bytes_fn)(__m256 *scale, const uint8_t *p, int i);

static inline __m256 one_scale(const uint8_t *p) { return _mm256_set1_ps(read_f16(p)); }

static inline __m256i load_q8_0(__m256 *scale, const uint8_t *p, int i) {
    (void)i;
    *scale = one_scale(p);
    return load32(p + 2);
}

/* 16 bytes: 16 low nibbles, then 16 high ones; by the table of their values. */
static inline __m256i iq4_codes(const uint8_t *p) {
    const __m256i values = _mm256_broadcastsi128_si256(_mm_setr_epi8(IG_IQ4_VALUES));
    __m128i v = _mm_loadu_si128((const void *)p);
    __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(v), _mm_srli_epi16(v, 4), 1);
    return _mm256_shuffle_epi8(values, _mm256_and_si256(both, _mm256_set1_epi8(15)));
}

static inline __m256i load_iq4_nl(__m256 *scale, const uint8_t *p, int i) {
    (void)i;
    *scale = one_scale(p);
    return iq4_codes(p + 2);
}

static inline __m256i load_iq4_xs(__m256 *scale, const uint8_t *p, int i) {
    *scale = _mm256_set1_ps(read_f16(p) * (float)ig_iq4_xs_scale(p, i));
    return iq4_codes(p + 8 + 16 * i);
}

/* ig_nvfp4_scale() of four. */
static inline __m128 nvfp4_scales(const uint8_t *p) {
    const __m128i none = _mm_set1_epi16(127);
    __m128i v = _mm_and_si128(_mm_cvtepu8_epi16(_mm_loadu_si32(p)), none);
    v = _mm_andnot_si128(_mm_cmpeq_epi16(v, none), _mm_slli_epi16(v, 7));
    return _mm_mul_ps(_mm_cvtph_ps(v), _mm_set1_ps(128));
}

/* Four scales, then 8 bytes for each 16 codes: 8 low nibbles, then 8 high ones. */
INLINE __m256i load_nvfp4(__m256 *scale, const uint8_t *p, const int i) {
    const __m256i each = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1);
    const __m256i values = _mm256_broadcastsi128_si256(_mm_setr_epi8(IG_MXFP4_VALUES));
    __m128i v = _mm_loadu_si128((const void *)(p + 4 + 16 * i)), high = _mm_srli_epi16(v, 4);
    __m256i both = _mm256_set_m128i(_mm_unpackhi_epi64(v, high), _mm_unpacklo_epi64(v, high));
    *scale = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(nvfp4_scales(p)),
                                      _mm256_add_epi32(each, _mm256_set1_epi32(2 * i)));
    return _mm256_shuffle_epi8(values, _mm256_and_si256(both, _mm256_set1_epi8(15)));
}

/* 255 in each byte whose bit is set; in each of eight bytes where all eight bits are. */
INLINE __m256i byte_masks(uint32_t bits, const bool by_eights) {
    const __m256i each = _mm256_setr_epi64x(0, IG_BYTES(1), IG_BYTES(2), IG_BYTES(3));
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201ull);
    __m256i v = _mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), each);
    return by_eights ? v : _mm256_cmpeq_epi8(_mm256_and_si256(v, bit), bit);
}

static inline __m256i load_q1_0(__m256 *scale, const uint8_t *p, int i) {
    *scale = one_scale(p);
    return _mm256_or_si256(byte_masks(~ig_read_u32(p + 2 + 4 * i), false), _mm256_set1_epi8(1));
}

/* Four numbers in a byte: a table takes its lower or its upper two bits of four. */
static inline __m256i load_q2_0(__m256 *scale, const uint8_t *p, int i) {
    const __m256i each =
        _mm256_setr_epi32(0, 0x01010101, 0x02020202, 0x03030303, 0x04040404, 0x05050505, 0x06060606, 0x07070707);
    const __m256i values = _mm256_broadcastsi128_si256(_mm_setr_epi8(-1, 0, 1, 2, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0));
    __m256i v = _mm256_shuffle_epi8(_mm256_set1_epi64x((long long)ig_read_u64(p + 2 + 8 * i)), each);
    v = _mm256_blend_epi16(v, _mm256_srli_epi16(v, 4), 0xaa);
    *scale = one_scale(p);
    return _mm256_shuffle_epi8(values, _mm256_and_si256(v, _mm256_set1_epi32(0x0c030c03)));
}

/* Codes of 0, 1 and 2, and of 2 bits, stand for one less. */
static inline __m256i less_one(__m256i code) { return _mm256_sub_epi8(code, _mm256_set1_epi8(1)); }

static inline __m256i load_tq2_0(__m256 *scale, const uint8_t *p, int i) {
    __m256i v = _mm256_srl_epi16(load32(p + i / 4 * 32), _mm_cvtsi32_si128(i % 4 * 2));
    *scale = one_scale(p + 64);
    return less_one(_mm256_and_si256(v, _mm256_set1_epi8(3)));
}

/* Each byte times 3^n. */
INLINE __m256i times_3(__m256i v, const int n) {
#pragma GCC unroll 4
    for (int i = 0; i < n; i++) v = _mm256_add_epi8(v, _mm256_add_epi8(v, v));
    return v;
}

INLINE __m128i half_times_3(__m128i v, const int n) {
    return _mm256_castsi256_si128(times_3(_mm256_castsi128_si256(v), n));
}

/* The bytes of 32 elements of a block of TQ1_0, times the powers of ig_tq1_powers. */
INLINE __m256i tq1_products(const uint8_t *p, const int i) {
    if (i < 5) return times_3(load32(p), i);
    __m128i second = _mm_loadu_si128((const void *)(p + IG_TQ1_SECOND));
    if (i < 7) return times_3(_mm256_set_m128i(half_times_3(second, 1), second), 2 * (i - 5));
    __m128i last = _mm_loadu_si32(p + IG_TQ1_LAST), two = _mm_unpacklo_epi32(last, half_times_3(last, 1));
    return _mm256_set_m128i(_mm_unpacklo_epi64(two, half_times_3(two, 2)), half_times_3(second, 4));
}

/* Of a product 3 x >> 8 is 1 from 86 on, 2 from 171 on. */
INLINE __m256i load_tq1_0(__m256 *scale, const uint8_t *p, const int i) {
    const __m256i one = _mm256_set1_epi8(86), two = _mm256_set1_epi8((char)171);
    __m256i v = tq1_products(p, i);
    __m256i is_one = _mm256_cmpeq_epi8(_mm256_max_epu8(v, one), v);
    __m256i is_two = _mm256_cmpeq_epi8(_mm256_max_epu8(v, two), v);
    *scale = one_scale(p + IG_TQ1_D);
    return _mm256_sub_epi8(_mm256_sub_epi8(_mm256_set1_epi8(-1), is_one), is_two);
}

/* ---- a block of 256 ----------------------------------------------------------- */

typedef struct super {
    __m256i code[8];
    float scale[16], min[16]; /* 8 or 16 of each */
} super;

/* Eight scales or minimums from bytes. */
static inline void put_scales(float *dst, __m128i bytes, __m256 d) {
    _mm256_storeu_ps(dst, _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)), d));
}

/* d, dmin and what they are multiplied by. */
static inline void scales_k(super *w, const uint8_t *p) {
    uint64_t bytes[2];
    ig_q45_k_scales(bytes, p);
    put_scales(w->scale, _mm_cvtsi64_si128((long long)bytes[0]), _mm256_set1_ps(read_f16(p)));
    put_scales(w->min, _mm_cvtsi64_si128((long long)bytes[1]), _mm256_set1_ps(-read_f16(p + 2)));
}

static inline void load_q4_k(super *w, const uint8_t *p) {
    const __m256i low4 = _mm256_set1_epi8(15);
    scales_k(w, p);
    for (int i = 0; i < 4; i++) {
        __m256i v = load32(p + 16 + 32 * i);
        w->code[2 * i] = _mm256_and_si256(v, low4);
        w->code[2 * i + 1] = _mm256_and_si256(_mm256_srli_epi16(v, 4), low4);
    }
}

/* `value` in each byte of v that has the bit. */
static inline __m256i where_bit(__m256i v, int bit, int value) {
    __m256i b = _mm256_set1_epi8((char)(1 << bit));
    return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(v, b), b), _mm256_set1_epi8((char)value));
}

static inline void load_q5_k(super *w, const uint8_t *p) {
    const __m256i low4 = _mm256_set1_epi8(15), high = load32(p + 16);
    scales_k(w, p);
    for (int i = 0; i < 4; i++) {
        __m256i v = load32(p + 48 + 32 * i);
        w->code[2 * i] = _mm256_or_si256(_mm256_and_si256(v, low4), where_bit(high, 2 * i, 16));
        v = _mm256_and_si256(_mm256_srli_epi16(v, 4), low4);
        w->code[2 * i + 1] = _mm256_or_si256(v, where_bit(high, 2 * i + 1, 16));
    }
}

/* 16 signed byte scales; minimums of -offset times them. */
static inline void scales_signed(super *w, __m128i bytes, float d, float offset) {
    put_scales(w->scale, bytes, _mm256_set1_ps(d));
    put_scales(w->scale + 8, _mm_srli_si128(bytes, 8), _mm256_set1_ps(d));
    for (int i = 0; i < 16; i += 8)
        _mm256_storeu_ps(w->min + i, _mm256_mul_ps(_mm256_loadu_ps(w->scale + i), _mm256_set1_ps(-offset)));
}

static inline void load_q6_k(super *w, const uint8_t *p) {
    const __m256i low4 = _mm256_set1_epi8(15), bits45 = _mm256_set1_epi8(0x30);
    for (int i = 0; i < 2; i++) {
        __m256i a = load32(p + 64 * i), b = load32(p + 64 * i + 32), high = load32(p + 128 + 32 * i);
        __m256i low[4] = {a, b, _mm256_srli_epi16(a, 4), _mm256_srli_epi16(b, 4)};
        __m256i top[4] = {_mm256_slli_epi16(high, 4), _mm256_slli_epi16(high, 2), high, _mm256_srli_epi16(high, 2)};
        for (int j = 0; j < 4; j++)
            w->code[4 * i + j] = _mm256_or_si256(_mm256_and_si256(low[j], low4), _mm256_and_si256(top[j], bits45));
    }
    scales_signed(w, _mm_loadu_si128((const void *)(p + 192)), read_f16(p + 208), 32);
}

/* The 2-bit codes of Q2_K and Q3_K. */
static inline void codes2(super *w, const uint8_t *p) {
    const __m256i low2 = _mm256_set1_epi8(3);
    for (int i = 0; i < 2; i++) {
        __m256i v = load32(p + 32 * i);
        w->code[4 * i] = _mm256_and_si256(v, low2);
        w->code[4 * i + 1] = _mm256_and_si256(_mm256_srli_epi16(v, 2), low2);
        w->code[4 * i + 2] = _mm256_and_si256(_mm256_srli_epi16(v, 4), low2);
        w->code[4 * i + 3] = _mm256_and_si256(_mm256_srli_epi16(v, 6), low2);
    }
}

static inline void load_q2_k(super *w, const uint8_t *p) {
    const __m128i low4 = _mm_set1_epi8(15);
    codes2(w, p + 16);
    __m128i bytes = _mm_loadu_si128((const void *)p);
    __m128i scale = _mm_and_si128(bytes, low4), min = _mm_and_si128(_mm_srli_epi16(bytes, 4), low4);
    __m256 d = _mm256_set1_ps(read_f16(p + 80)), dmin = _mm256_set1_ps(-read_f16(p + 82));
    put_scales(w->scale, scale, d);
    put_scales(w->scale + 8, _mm_srli_si128(scale, 8), d);
    put_scales(w->min, min, dmin);
    put_scales(w->min + 8, _mm_srli_si128(min, 8), dmin);
}

static inline void load_q3_k(super *w, const uint8_t *p) {
    codes2(w, p + 32);
    __m256i high = load32(p);
    for (int i = 0; i < 8; i++) w->code[i] = _mm256_or_si256(w->code[i], where_bit(high, i, 4));
    uint64_t scales[2];
    ig_q3_k_scales(scales, p);
    __m128i bytes = _mm_sub_epi8(_mm_set_epi64x((long long)scales[1], (long long)scales[0]), _mm_set1_epi8(32));
    scales_signed(w, bytes, read_f16(p + 108), 4);
}

/* Four entries of eight bytes, or eight of four. */
INLINE __m256i entries(const void *book, const int bytes, const uint16_t *index) {
    if (bytes == 4) {
        const uint32_t *e = book;
        return _mm256_setr_epi32((int)e[index[0]], (int)e[index[1]], (int)e[index[2]], (int)e[index[3]],
                                 (int)e[index[4]], (int)e[index[5]], (int)e[index[6]], (int)e[index[7]]);
    }
    const __m64 *e = book;
    __m128 low = _mm_castsi128_ps(_mm_loadl_epi64((const void *)(e + index[0])));
    __m128 high = _mm_castsi128_ps(_mm_loadl_epi64((const void *)(e + index[2])));
    low = _mm_loadh_pi(low, e + index[1]);
    high = _mm_loadh_pi(high, e + index[3]);
    return _mm256_castps_si256(_mm256_set_m128(high, low));
}

/* The codebook formats: end_<type> looks up the entries of a block that begin_<type> took apart. */
typedef void (*end_book_fn)(super *w, const book_block *b, const uint8_t *p);

/* Entries of so many bytes. */
INLINE void look_up_book(super *w, const book_block *b, const void *book, const int bytes, float d, const int offset,
                         const ig_signs kind) {
    const __m256i zero = _mm256_set1_epi8((char)offset), one = _mm256_set1_epi8(1);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        __m256i v = entries(book, bytes, b->index + 32 / bytes * i);
        __m256i mask = byte_masks(b->negative[i], kind == IG_SIGNS_EIGHTH);
        if (kind == IG_SIGNS_EIGHTH)
            w->code[i] = _mm256_add_epi8(v, _mm256_or_si256(mask, one));
        else
            w->code[i] = _mm256_add_epi8(zero, _mm256_sub_epi8(_mm256_xor_si256(v, mask), mask));
    }
    scales_signed(w, b->steps, d, (float)offset);
}

#define LOAD_BOOK(TYPE, type, unit, offset, signs)                                                               \
    INLINE void end_##type(super *w, const book_block *b, const uint8_t *p) {                                    \
        look_up_book(w, b, ig_book_##type, sizeof *ig_book_##type, _cvtsh_ss(ig_##type##_d(p)) * (unit), offset, \
                     signs);                                                                                     \
    }                                                                                                            \
    static inline void load_##type(super *w, const uint8_t *p) {                                                 \
        book_block b;                                                                                            \
        begin_##type(&b, p);                                                                                     \
        end_##type(w, &b, p);                                                                                    \
    }
IG_BOOK_TYPES(LOAD_BOOK)

/* ---- 8 floats -------------------------------------------------------------------- */

/* The first n of 8; the rest are zero. */
static inline __m256 load_f32(const uint8_t *p, int n) {
    float tail[8] = {0};
    if (n >= 8) return _mm256_loadu_ps((const void *)p);
    memcpy(tail, p, (size_t)n * sizeof(float));
    return _mm256_loadu_ps(tail);
}

static inline __m128i load_words(const uint8_t *p, int n) {
    uint16_t tail[8] = {0};
    if (n >= 8) return _mm_loadu_si128((const void *)p);
    memcpy(tail, p, (size_t)n * sizeof(uint16_t));
    return _mm_loadu_si128((const void *)tail);
}

static inline __m256 load_f16(const uint8_t *p, int n) { return _mm256_cvtph_ps(load_words(p, n)); }

static inline __m256 load_bf16(const uint8_t *p, int n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_words(p, n)), 16));
}

/* ---- 8-bit floats --------------------------------------------------------------- */

/* 16 in E4M3 as 16-bit floats, 1 / IG_F8_UNIT of them; NaN becomes a number. */
static inline __m256i finite_f8(__m128i codes) {
    return _mm256_and_si256(_mm256_slli_epi16(_mm256_cvtepi8_epi16(codes), 7), _mm256_set1_epi16((short)0xbfff));
}

/* The first n of 16 codes; the rest are zero. */
static inline __m128i load_first16(const uint8_t *p, int n) {
    uint8_t tail[16] = {0};
    if (n < 16) p = memcpy(tail, p, (size_t)n);
    return _mm_loadu_si128((const void *)p);
}

/* ---- sums ------------------------------------------------------------------------- */

static inline float sum8(__m256 v) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

/* Sums of four products of codes (unsigned, or signed bytes) and activations: what the levels differ in. */
typedef __m256i (*dot4_fn)(__m256i code, __m256i q, int is_signed);

static inline __m256i dot4_avx2(__m256i code, __m256i q, const int is_signed) {
    __m256i pairs = is_signed ? _mm256_maddubs_epi16(_mm256_abs_epi8(code), _mm256_sign_epi8(q, code))
                              : _mm256_maddubs_epi16(code, q);
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

#endif
