/* SPDX-License-Identifier: Apache-2.0
 *
 * Packed keys and values for AVX2. A group of codes of 4 bits or fewer has at most 16 values: they are computed once,
 * as 16-bit floats, and codes look up the low and the high bytes of them.
 */
#include <string.h>

#include "kernel/lanes_avx2.h"
#include "kernel/packed.h"
#include "kernel/parts.h"

enum { AHEAD = 16 }; /* rows from the one in use to the one prefetched: chosen rows are scattered */

static __m256 load_finite(const float *x, __m256 most) {
    __m256 v = _mm256_loadu_ps(x);
    v = _mm256_and_ps(v, _mm256_cmp_ps(v, v, _CMP_ORD_Q));
    return _mm256_max_ps(_mm256_min_ps(v, most), _mm256_sub_ps(_mm256_setzero_ps(), most));
}

static ig_kv_line encode(uint8_t *codes, const float *x, int n, int levels) {
    __m256 most = _mm256_set1_ps(ig_packed_most(levels)), lo = load_finite(x, most), hi = lo;
    for (int i = 8; i < n; i += 8) {
        __m256 v = load_finite(x + i, most);
        lo = _mm256_min_ps(lo, v);
        hi = _mm256_max_ps(hi, v);
    }
    float min, inverse;
    float lowest = -max_lanes(_mm256_xor_ps(lo, _mm256_set1_ps(-0.0f)));
    ig_kv_line line = ig_packed_line(&min, &inverse, lowest, max_lanes(hi), levels);
    __m256 from = _mm256_set1_ps(min), by = _mm256_set1_ps(inverse);
    for (int i = 0; i < n; i += 8) {
        __m256i c = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_sub_ps(load_finite(x + i, most), from), by));
        __m128i w = _mm_packus_epi32(_mm256_castsi256_si128(c), _mm256_extracti128_si256(c, 1));
        _mm_storel_epi64((__m128i *)(void *)(codes + i), _mm_packus_epi16(w, w));
    }
    return line;
}

static void pack_f16_avx2(void *row, ig_kv_line *lines, const float *x, int d) {
    uint16_t *out = row;
    (void)lines;
    for (int i = 0; i < d; i += 8)
        _mm_storeu_si128((__m128i *)(void *)(out + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT));
}

PACK_FUNCTIONS(avx2)

static inline __m256 all_f16(uint16_t x) { return _mm256_cvtph_ps(_mm_set1_epi16((short)x)); }

static inline __attribute__((always_inline)) void prefetch_row(const ig_kv_packed *row, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 64) fetch_line(row->codes + i);
    fetch_line(row->lines);
}

static void unpack_q8_avx2(uint16_t *dst, const ig_kv_packed *rows, int n, int d) {
    for (int r = 0; r < n; r++, dst += d) {
        if (r + AHEAD < n) prefetch_row(&rows[r + AHEAD], (size_t)d);
        for (int j = 0; j < d; j += IG_KV_GROUP) {
            ig_kv_line line = rows[r].lines[j / IG_KV_GROUP];
            __m256 step = all_f16(line.step), min = all_f16(line.min);
            int end = j + ig_packed_group(j, d);
            for (int i = j; i < end; i += 8) {
                __m128i c = _mm_loadl_epi64((const __m128i *)(const void *)(rows[r].codes + i));
                __m256 x = _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(c)), step, min);
                _mm_storeu_si128((__m128i *)(void *)(dst + i), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
            }
        }
    }
}

/* Low and high bytes of the 16 values that a line has for codes of 4 bits; those of fewer bits use the first. */
typedef struct values {
    __m128i low, high;
} values;

static inline values values_of(ig_kv_line line) {
    __m256 step = all_f16(line.step), min = all_f16(line.min);
    __m256 few = _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7), more = _mm256_add_ps(few, _mm256_set1_ps(8));
    __m128i a = _mm256_cvtps_ph(_mm256_fmadd_ps(few, step, min), _MM_FROUND_TO_NEAREST_INT);
    __m128i b = _mm256_cvtps_ph(_mm256_fmadd_ps(more, step, min), _MM_FROUND_TO_NEAREST_INT);
    __m128i bytes = _mm_set1_epi16(0xff);
    return (values){_mm_packus_epi16(_mm_and_si128(a, bytes), _mm_and_si128(b, bytes)),
                    _mm_packus_epi16(_mm_srli_epi16(a, 8), _mm_srli_epi16(b, 8))};
}

static inline void look_up(uint16_t *dst, const values *v, __m128i codes) {
    __m128i low = _mm_shuffle_epi8(v->low, codes), high = _mm_shuffle_epi8(v->high, codes);
    _mm_storeu_si128((__m128i *)(void *)dst, _mm_unpacklo_epi8(low, high));
    _mm_storeu_si128((__m128i *)(void *)(dst + 8), _mm_unpackhi_epi8(low, high));
}

/* 16 codes of 1 bit, a byte each. */
static inline __m128i spread_bits(const uint8_t *codes) {
    const __m128i place = _mm_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1),
                  bits = _mm_set1_epi64x((long long)0x8040201008040201ull);
    uint16_t x;
    memcpy(&x, codes, sizeof x);
    return _mm_and_si128(_mm_cmpeq_epi8(_mm_and_si128(_mm_shuffle_epi8(_mm_set1_epi16((short)x), place), bits), bits),
                         _mm_set1_epi8(1));
}

/* A group of 64. */
static inline __attribute__((always_inline)) void unpack_group(uint16_t *dst, const values *v, const uint8_t *codes,
                                                               int bits) {
    if (bits == 1) {
        for (int i = 0; i < IG_KV_GROUP; i += 16) look_up(dst + i, v, spread_bits(codes + i / 8));
        return;
    }
    int n_bytes = IG_KV_GROUP * bits / 8;
    for (int i = 0; i < n_bytes; i += 16) {
        __m128i c = _mm_loadu_si128((const __m128i *)(const void *)(codes + i)), mask = _mm_set1_epi8((1 << bits) - 1);
        for (int part = 0; part < 8 / bits; part++)
            look_up(dst + part * n_bytes + i, v, _mm_and_si128(_mm_srli_epi16(c, part * bits), mask));
    }
}

/* A shorter one: its codes where those of one of 64 lie, and back. */
static inline __attribute__((always_inline)) void unpack_short(uint16_t *dst, const values *v, const uint8_t *codes,
                                                               int n, int bits) {
    uint8_t in[IG_KV_GROUP / 2] = {0};
    uint16_t out[IG_KV_GROUP];
    int stretch = bits == 1 ? n : n * bits / 8, whole = IG_KV_GROUP * bits / 8;
    memcpy(in, codes, (size_t)(n * bits / 8));
    unpack_group(out, v, in, bits);
    for (int i = 0, at = 0; i < n; i += stretch, at += whole) memcpy(dst + i, out + at, (size_t)stretch * sizeof *dst);
}

static inline __attribute__((always_inline)) void unpack(uint16_t *dst, const ig_kv_packed *rows, int n, int d,
                                                         int bits) {
    for (int r = 0; r < n; r++, dst += d) {
        if (r + AHEAD < n) prefetch_row(&rows[r + AHEAD], (size_t)(d * bits / 8));
        for (int j = 0; j < d; j += IG_KV_GROUP) {
            values v = values_of(rows[r].lines[j / IG_KV_GROUP]);
            const uint8_t *codes = rows[r].codes + j * bits / 8;
            if (d - j < IG_KV_GROUP)
                unpack_short(dst + j, &v, codes, d - j, bits);
            else
                unpack_group(dst + j, &v, codes, bits);
        }
    }
}

static void unpack_q4_avx2(uint16_t *dst, const ig_kv_packed *rows, int n, int d) { unpack(dst, rows, n, d, 4); }
static void unpack_q2_avx2(uint16_t *dst, const ig_kv_packed *rows, int n, int d) { unpack(dst, rows, n, d, 2); }
static void unpack_q1_avx2(uint16_t *dst, const ig_kv_packed *rows, int n, int d) { unpack(dst, rows, n, d, 1); }

void ig_kernels_fill_packed_avx2(ig_kernels *k) {
    SET_PACK(k, avx2);
    k->kv_unpack[IG_KV_Q8] = unpack_q8_avx2;
    k->kv_unpack[IG_KV_Q4] = unpack_q4_avx2;
    k->kv_unpack[IG_KV_Q2] = unpack_q2_avx2;
    k->kv_unpack[IG_KV_Q1] = unpack_q1_avx2;
}
