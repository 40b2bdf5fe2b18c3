/* SPDX-License-Identifier: Apache-2.0
 *
 * Packed keys and values for AVX2. A group of 4-bit codes has only 16 values: they are computed once, as 16-bit
 * floats, and codes look up the low and the high bytes of them.
 */
#include <string.h>

#include "kernel/lanes_avx2.h"
#include "kernel/packed.h"
#include "kernel/parts.h"

enum { AHEAD = 16 }; /* rows from the one in use to the one prefetched: chosen rows are scattered */

static __m256 load_finite(const float *x) {
    __m256 v = _mm256_loadu_ps(x), most = _mm256_set1_ps(IG_KV_MOST);
    v = _mm256_and_ps(v, _mm256_cmp_ps(v, v, _CMP_ORD_Q));
    return _mm256_max_ps(_mm256_min_ps(v, most), _mm256_set1_ps(-IG_KV_MOST));
}

static ig_kv_line encode(uint8_t *codes, const float *x, int n, int levels) {
    __m256 lo = load_finite(x), hi = lo;
    for (int i = 8; i < n; i += 8) {
        __m256 v = load_finite(x + i);
        lo = _mm256_min_ps(lo, v);
        hi = _mm256_max_ps(hi, v);
    }
    float min, inverse;
    float lowest = -max_lanes(_mm256_xor_ps(lo, _mm256_set1_ps(-0.0f)));
    ig_kv_line line = ig_packed_line(&min, &inverse, lowest, max_lanes(hi), levels);
    __m256 from = _mm256_set1_ps(min), by = _mm256_set1_ps(inverse);
    for (int i = 0; i < n; i += 8) {
        __m256i c = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_sub_ps(load_finite(x + i), from), by));
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

static void pack_q8_avx2(void *row, ig_kv_line *lines, const float *x, int d) {
    uint8_t *codes = row;
    for (int j = 0; j < d; j += IG_KV_GROUP) *lines++ = encode(codes + j, x + j, ig_packed_group(j, d), 255);
}

static void pack_q4_avx2(void *row, ig_kv_line *lines, const float *x, int d) {
    uint8_t *out = row, codes[IG_KV_GROUP];
    for (int j = 0; j < d; j += IG_KV_GROUP) {
        int n = ig_packed_group(j, d);
        *lines++ = encode(codes, x + j, n, 15);
        for (int i = 0; i < n / 2; i++) *out++ = (uint8_t)(codes[i] | codes[n / 2 + i] << 4);
    }
}

static inline __m256 all_f16(uint16_t x) { return _mm256_cvtph_ps(_mm_set1_epi16((short)x)); }

static inline __attribute__((always_inline)) void prefetch_row(const ig_kv_packed *row, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 64) _mm_prefetch((const char *)(row->codes + i), _MM_HINT_T0);
    _mm_prefetch((const char *)row->lines, _MM_HINT_T0);
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

/* Low and high bytes of the 16 values of a line. */
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

/* 16 bytes of codes: numbers i.. and half + i.. of a group. */
static inline void unpack_pairs(uint16_t *dst, uint16_t *upper, const values *v, const uint8_t *codes) {
    __m128i c = _mm_loadu_si128((const __m128i *)(const void *)codes), nibble = _mm_set1_epi8(15);
    look_up(dst, v, _mm_and_si128(c, nibble));
    look_up(upper, v, _mm_and_si128(_mm_srli_epi16(c, 4), nibble));
}

static void unpack_short(uint16_t *dst, const values *v, const uint8_t *codes, int half) {
    uint8_t in[IG_KV_GROUP / 2] = {0};
    uint16_t out[IG_KV_GROUP];
    memcpy(in, codes, (size_t)half);
    for (int i = 0; i < IG_KV_GROUP / 2; i += 16) unpack_pairs(out + i, out + IG_KV_GROUP / 2 + i, v, in + i);
    memcpy(dst, out, (size_t)half * sizeof *dst);
    memcpy(dst + half, out + IG_KV_GROUP / 2, (size_t)half * sizeof *dst);
}

static void unpack_q4_avx2(uint16_t *dst, const ig_kv_packed *rows, int n, int d) {
    for (int r = 0; r < n; r++, dst += d) {
        if (r + AHEAD < n) prefetch_row(&rows[r + AHEAD], (size_t)d / 2);
        for (int j = 0; j < d; j += IG_KV_GROUP) {
            values v = values_of(rows[r].lines[j / IG_KV_GROUP]);
            const uint8_t *codes = rows[r].codes + j / 2;
            if (d - j < IG_KV_GROUP) {
                unpack_short(dst + j, &v, codes, (d - j) / 2);
                continue;
            }
            for (int i = 0; i < IG_KV_GROUP / 2; i += 16)
                unpack_pairs(dst + j + i, dst + j + IG_KV_GROUP / 2 + i, &v, codes + i);
        }
    }
}

void ig_kernels_fill_packed_avx2(ig_kernels *k) {
    k->kv_pack[IG_KV_F16] = pack_f16_avx2;
    k->kv_pack[IG_KV_Q8] = pack_q8_avx2;
    k->kv_pack[IG_KV_Q4] = pack_q4_avx2;
    k->kv_unpack[IG_KV_Q8] = unpack_q8_avx2;
    k->kv_unpack[IG_KV_Q4] = unpack_q4_avx2;
}
