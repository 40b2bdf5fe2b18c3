/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of quantised weights as they are stored in a file, to unpacked panels (AVX2). Dwords of 8 rows are transposed,
 * those of nibbles before they are cut in two.
 */
#ifndef IG_KERNEL_UNPACK_AVX2_H
#define IG_KERNEL_UNPACK_AVX2_H

#include "kernel/panel_avx2.h"
#include "kernel/transpose_avx2.h"

/* Eight dwords of each of 8 rows to a panel of 16 rows; half 0 or 1. */
static inline void put_columns(char *panel, int half, __m256i v[8]) {
    transpose8(v);
    for (int i = 0; i < 8; i++) _mm256_store_si256((void *)(panel + (2 * i + half) * 32), v[i]);
}

static inline float *affine_at(char *step, int i, int half) {
    return (float *)(void *)(step + 32 * PANEL_ROWS + (2 * i + half) * 32);
}

typedef struct panel_rows {
    const uint8_t *w; /* the slice of the first of the 8 */
    size_t row_bytes;
    int n; /* rows there are, 0..8; for the others the first is read again, and what comes of them is not stored */
} panel_rows;

static inline const uint8_t *row_at(const panel_rows *rows, int r) {
    return rows->w + (size_t)(r < rows->n ? r : 0) * rows->row_bytes;
}

/* 16 bytes of each of 8 rows, the first of which are at p[]: dword i of all rows goes to v[i]. */
INLINE void gather4(__m256i v[4], const uint8_t *const p[8], size_t offset) {
    __m256i t[4];
    for (int r = 0; r < 4; r++) {
        __m128i low = _mm_loadu_si128((const void *)(p[r] + offset));
        t[r] =
            _mm256_inserti128_si256(_mm256_castsi128_si256(low), _mm_loadu_si128((const void *)(p[r + 4] + offset)), 1);
    }
    __m256i a = _mm256_unpacklo_epi32(t[0], t[1]), b = _mm256_unpacklo_epi32(t[2], t[3]);
    __m256i c = _mm256_unpackhi_epi32(t[0], t[1]), d = _mm256_unpackhi_epi32(t[2], t[3]);
    v[0] = _mm256_unpacklo_epi64(a, b);
    v[1] = _mm256_unpackhi_epi64(a, b);
    v[2] = _mm256_unpacklo_epi64(c, d);
    v[3] = _mm256_unpackhi_epi64(c, d);
}

/* A dword of each of 8 rows. */
INLINE __m256i gather1(const uint8_t *const p[8], size_t offset) {
    uint32_t v[8];
    for (int r = 0; r < 8; r++) v[r] = ig_read_u32(p[r] + offset);
    return _mm256_setr_epi32((int)v[0], (int)v[1], (int)v[2], (int)v[3], (int)v[4], (int)v[5], (int)v[6], (int)v[7]);
}

/* Of 8 dwords the 16-bit floats in their low halves, or their high ones. */
INLINE __m256 half_floats(__m256i v, bool high) {
    if (high) v = _mm256_srli_epi32(v, 16);
    v = _mm256_packus_epi32(_mm256_and_si256(v, _mm256_set1_epi32(0xffff)), _mm256_setzero_si256());
    return _mm256_cvtph_ps(_mm256_castsi256_si128(_mm256_permute4x64_epi64(v, 0x08)));
}

/* 16 in the bytes of elements 4 i .. 4 i + 3 of 8 rows, where the bit of `bits` is set. */
INLINE __m256i fifth_of(__m256i bits, const int i) {
    const __m256i each = _mm256_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12, 0, 0, 0, 0, 4, 4, 4, 4, 8,
                                          8, 8, 8, 12, 12, 12, 12);
    const __m256i bit = _mm256_set1_epi32(i % 2 ? (int)0x80402010 : 0x08040201);
    __m256i v = _mm256_shuffle_epi8(bits, _mm256_add_epi8(each, _mm256_set1_epi8((char)(i / 2))));
    return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(v, bit), bit), _mm256_set1_epi8(16));
}

/* Q4_0, Q4_1, Q5_0, Q5_1: a scale, perhaps a minimum, perhaps 32 fifth bits, and 16 bytes: 16 low nibbles, then 16 high
 * ones. */
INLINE void unpack_nibbles(char *panel, panel_rows rows, int half, int n, const int bytes, const format f) {
    const bool has_fifth = f.fits == bits5.fits, has_min = bytes == 20 + 4 * has_fifth;
    const uint8_t *p[8];
    for (int r = 0; r < 8; r++) p[r] = row_at(&rows, r);
    for (int b = 0; b < n / 32; b++, panel += step_bytes(f)) {
        __m256i code[4], affine = gather1(p, 0), bits = has_fifth ? gather1(p, (size_t)bytes - 20) : affine;
        gather4(code, p, (size_t)bytes - 16);
        __m256 scale = half_floats(affine, false);
        __m256 min = has_min ? half_floats(affine, true) : _mm256_mul_ps(scale, _mm256_set1_ps(has_fifth ? -16 : -8));
        _mm256_store_ps(affine_at(panel, 0, half), scale);
        _mm256_store_ps(affine_at(panel, 1, half), min);
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) {
            __m256i v = i < 4 ? code[i] : _mm256_srli_epi16(code[i - 4], 4);
            v = _mm256_and_si256(v, _mm256_set1_epi8(15));
            if (has_fifth) v = _mm256_or_si256(v, fifth_of(bits, i));
            _mm256_store_si256((void *)(panel + (2 * i + half) * 32), v);
        }
        for (int r = 0; r < 8; r++) p[r] += bytes;
    }
}

/* MXFP4: an exponent, and 16 bytes as above, of codes or of what they are an index of. */
INLINE void unpack_mx(char *panel, panel_rows rows, int half, int n, const bool as_index) {
    const uint8_t *p[8];
    for (int r = 0; r < 8; r++) p[r] = row_at(&rows, r);
    for (int b = 0; b < n / 32; b++, panel += step_bytes(bits5)) {
        __m256i code[4],
            exponent = _mm256_setr_epi32(p[0][0], p[1][0], p[2][0], p[3][0], p[4][0], p[5][0], p[6][0], p[7][0]);
        gather4(code, p, 1);
        __m256 scale = mx_scales(exponent);
        _mm256_store_ps(affine_at(panel, 0, half), scale);
        _mm256_store_ps(affine_at(panel, 1, half), _mm256_mul_ps(scale, _mm256_set1_ps(-IG_MXFP4_OFFSET)));
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) {
            __m256i v = i < 4 ? code[i] : _mm256_srli_epi16(code[i - 4], 4);
            v = _mm256_and_si256(v, _mm256_set1_epi8(15));
            _mm256_store_si256((void *)(panel + (2 * i + half) * 32), as_index ? v : mx_codes(v));
        }
        for (int r = 0; r < 8; r++) p[r] += 17;
    }
}

/* Signed bytes, whose blocks have n_parts of 32 elements; offset: what makes codes of the panel of them. */
INLINE void unpack_bytes(char *panel, panel_rows rows, int half, int n, load_bytes_fn load, const int bytes,
                         const int n_parts, const int offset, const format f) {
    for (int b = 0; b < n / 32; b++, panel += step_bytes(f)) {
        __m256i code[8];
        for (int r = 0; r < 8; r++) {
            __m256 scale;
            code[r] = load(&scale, row_at(&rows, r) + (size_t)(b / n_parts) * (size_t)bytes, b % n_parts);
            if (f.fits) code[r] = _mm256_add_epi8(code[r], _mm256_set1_epi8((char)offset));
            _mm_store_ss(affine_at(panel, 0, half) + r, _mm256_castps256_ps128(scale));
            if (f.n_scales == 2) _mm_store_ss(affine_at(panel, 1, half) + r, _mm256_extractf128_ps(scale, 1));
        }
        for (int i = 0; f.fits && i < f.n_scales; i++)
            _mm256_store_ps(affine_at(panel, f.n_scales + i, half),
                            _mm256_mul_ps(_mm256_load_ps(affine_at(panel, i, half)), _mm256_set1_ps((float)-offset)));
        put_columns(panel, half, code);
    }
}

/* Eight numbers of each of 8 blocks, the first of them number 8 k: number i of all blocks goes to affine[i] of steps
 * that have f.n_scales. */
INLINE void put_affine(char *panel, int half, __m256i v[8], int k, int which, const format f) {
    transpose8(v);
    for (int i = 0; i < 8; i++) {
        int at = 8 * k + i;
        float *to = affine_at(panel + (size_t)(at / f.n_scales) * step_bytes(f), which + at % f.n_scales, half);
        _mm256_store_si256((void *)to, v[i]);
    }
}

INLINE void unpack_supers(char *panel, panel_rows rows, int half, int n, void (*load)(super *, const uint8_t *),
                          const int bytes, const format f) {
    for (int b = 0; b < n / 256; b++, panel += 8 * step_bytes(f)) {
        super w[8];
        __m256i v[8];
        for (int r = 0; r < 8; r++) load(&w[r], row_at(&rows, r) + (size_t)b * (size_t)bytes);
        for (int i = 0; i < 8; i++) {
            for (int r = 0; r < 8; r++) v[r] = w[r].code[i];
            put_columns(panel + (size_t)i * step_bytes(f), half, v);
        }
        for (int k = 0; k < f.n_scales; k++) {
            for (int r = 0; r < 8; r++) v[r] = load32((const void *)(w[r].scale + 8 * k));
            put_affine(panel, half, v, k, 0, f);
            for (int r = 0; r < 8; r++) v[r] = load32((const void *)(w[r].min + 8 * k));
            put_affine(panel, half, v, k, f.n_scales, f);
        }
    }
}

/* Eight rows and n elements to one half of a panel. */
typedef void (*unpack_fn)(char *panel, panel_rows rows, int half, int n);

#define UNPACK_NIBBLES(type, bytes, f)                                                \
    static inline void unpack_##type(char *panel, panel_rows rows, int half, int n) { \
        unpack_nibbles(panel, rows, half, n, bytes, f);                               \
    }
UNPACK_NIBBLES(q4_0, 18, bits4)
UNPACK_NIBBLES(q4_1, 20, bits4)
UNPACK_NIBBLES(q5_0, 22, bits5)
UNPACK_NIBBLES(q5_1, 24, bits5)

static inline void unpack_mxfp4(char *panel, panel_rows rows, int half, int n) {
    unpack_mx(panel, rows, half, n, false);
}

#define UNPACK_BYTES(type, bytes, n_parts, offset, f)                                 \
    static inline void unpack_##type(char *panel, panel_rows rows, int half, int n) { \
        unpack_bytes(panel, rows, half, n, load_##type, bytes, n_parts, offset, f);   \
    }
UNPACK_BYTES(q8_0, 34, 1, 0, bits8)
UNPACK_BYTES(iq4_nl, 18, 1, 0, bits8)
UNPACK_BYTES(iq4_xs, 136, 8, 0, bits8)
UNPACK_BYTES(nvfp4, 36, 2, IG_MXFP4_OFFSET, bits5_16)
UNPACK_BYTES(q1_0, 18, 4, 1, bits4)
UNPACK_BYTES(q2_0, 18, 2, 1, bits4)
UNPACK_BYTES(tq1_0, 54, 8, 1, bits4)
UNPACK_BYTES(tq2_0, 66, 8, 1, bits4)

#define UNPACK_SUPERS(type, bytes, f)                                                 \
    static inline void unpack_##type(char *panel, panel_rows rows, int half, int n) { \
        unpack_supers(panel, rows, half, n, load_##type, bytes, f);                   \
    }
UNPACK_SUPERS(q2_k, 84, bits3_16)
UNPACK_SUPERS(q3_k, 110, bits3_16)
UNPACK_SUPERS(q4_k, 144, bits4)
UNPACK_SUPERS(q5_k, 176, bits5)
UNPACK_SUPERS(q6_k, 210, bits6_16)
UNPACK_SUPERS(iq1_s, 50, bits6_16)
UNPACK_SUPERS(iq1_m, 56, bits6_16)
UNPACK_SUPERS(iq2_xxs, 66, bits7_16)
UNPACK_SUPERS(iq2_xs, 74, bits7_16)
UNPACK_SUPERS(iq2_s, 82, bits7_16)
UNPACK_SUPERS(iq3_xxs, 98, bits7_16)
UNPACK_SUPERS(iq3_s, 110, bits6_16)

#endif
