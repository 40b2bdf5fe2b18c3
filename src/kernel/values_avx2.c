/* SPDX-License-Identifier: Apache-2.0
 *
 * The 2-bit value sketch for AVX2, with the design of values_avx512.c: a 32-byte load holds 8 dims of 16 tokens, and
 * vpmaddubsw multiplies 4 tokens of all 8 dims with 4 weights. A 16-bit lane gets at most 4 x 2 x 255 x 3, so that it
 * is widened once per block. A tile is 8 dims of up to 6 queries.
 */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "kernel/lanes_avx2.h"
#include "kernel/parts.h"
#include "kernel/sketch.h"

enum {
    TILE = 6,     /* queries */
    STRETCH = 32, /* blocks */
    PIECE = 8,    /* vectors of a transform in registers */
};

/* ---- value_put ----------------------------------------------------------------- */

/* -1 where x is at least y. */
static __m256i at_least(__m256 x, __m256 y) { return _mm256_castps_si256(_mm256_cmp_ps(x, y, _CMP_GE_OQ)); }

static void value_put_avx2(void *block, int t, const float *x, int d) {
    __m256 zero = _mm256_setzero_ps(), squares = zero, xc = zero;
    for (int i = 0; i < d; i += 8) {
        __m256 v = within_f16(_mm256_loadu_ps(x + i));
        squares = _mm256_fmadd_ps(v, v, squares);
    }
    float square = sum_lanes(squares), threshold = ig_value_threshold(square, d);
    __m256 far = _mm256_set1_ps(threshold), near = _mm256_set1_ps(-threshold);
    int shift = t % 4 * 8 + t / 4 * 2;
    __m128i by = _mm_cvtsi32_si128(shift);
    __m256i keep = _mm256_set1_epi32((int)~(3u << shift));
    uint8_t *codes = (uint8_t *)block + IG_VALUE_CODES;
    for (int i = 0; i < d; i += 8) {
        __m256 v = within_f16(_mm256_loadu_ps(x + i));
        __m256i code = _mm256_add_epi32(at_least(v, zero), _mm256_add_epi32(at_least(v, far), at_least(v, near)));
        code = _mm256_sub_epi32(_mm256_setzero_si256(), code);
        __m256 c = _mm256_sub_ps(_mm256_cvtepi32_ps(code), _mm256_set1_ps(1.5f));
        xc = _mm256_fmadd_ps(v, c, xc);
        __m256i *at = (__m256i *)(void *)(codes + 4 * i);
        __m256i old = _mm256_and_si256(_mm256_loadu_si256(at), keep);
        _mm256_storeu_si256(at, _mm256_or_si256(old, _mm256_sll_epi32(code, by)));
    }
    ig_value_finish(block, t, sum_lanes(xc), square);
}

/* ---- value_sums ---------------------------------------------------------------- */

/* The weights of a stretch of blocks for the queries of a tile. */
typedef struct stretch {
    int32_t w8[STRETCH][TILE][4]; /* bytes, of 4 tokens each, to be broadcast from memory */
    float scale[STRETCH][TILE];   /* of a sum of w8 * (2 * code - 3) */
    int live[STRETCH], n_live;    /* blocks that count for any of the queries */
} stretch;

/* One block and query; returns whether it counts. */
INLINE int prepare_one(int32_t w8[4], float *scale, const float *w, const __m256 step[2]) {
    __m256 share[2] = {_mm256_mul_ps(step[0], _mm256_loadu_ps(w)), _mm256_mul_ps(step[1], _mm256_loadu_ps(w + 8))};
    float top = max_lanes(_mm256_max_ps(share[0], share[1]));
    if (!(top > IG_VALUE_LEAST)) {
        memset(w8, 0, 4 * sizeof *w8);
        *scale = 0;
        return 0;
    }
    *scale = top / 510;
    __m256 inverse = _mm256_set1_ps(255 / top);
    __m256i x = _mm256_packs_epi32(_mm256_cvtps_epi32(_mm256_mul_ps(share[0], inverse)),
                                   _mm256_cvtps_epi32(_mm256_mul_ps(share[1], inverse)));
    /* Tokens 0-3, 8-11, 4-7, 12-15 so far, 8 to a half of the register. */
    __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    _mm_storeu_si128((__m128i *)(void *)w8, _mm_shuffle_epi32(bytes, 0xd8));
    return 1;
}

static void prepare(stretch *s, const float *w, size_t stride, int n_q, const uint8_t *block, size_t block_bytes,
                    int n) {
    s->n_live = 0;
    for (int b = 0; b < n; b++, w += IG_SKETCH_TOKENS, block += block_bytes) {
        const uint16_t *half = (const uint16_t *)(const void *)block;
        __m256 step[2] = {load_f16(half), load_f16(half + 8)};
        int counts = 0;
        for (int g = 0; g < n_q; g++) counts |= prepare_one(s->w8[b][g], &s->scale[b][g], w + (size_t)g * stride, step);
        s->live[s->n_live] = b;
        s->n_live += counts;
    }
}

/* 8 dims of n_q queries over a stretch. acc and codes are at the first of the dims. */
INLINE void sums_tile(float *acc, int n_q, int d, const stretch *s, const uint8_t *codes, size_t block_bytes) {
    __m256i low = _mm256_broadcastsi128_si256(_mm_setr_epi8(-3, -1, 1, 3, -3, -1, 1, 3, -3, -1, 1, 3, -3, -1, 1, 3));
    __m256i high = _mm256_broadcastsi128_si256(_mm_setr_epi8(-3, -3, -3, -3, -1, -1, -1, -1, 1, 1, 1, 1, 3, 3, 3, 3));
    __m256i nibble = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
    __m256 sum[TILE];
    for (int g = 0; g < n_q; g++) sum[g] = _mm256_loadu_ps(acc + (size_t)g * (size_t)d);
    for (int i = 0; i < s->n_live; i++) {
        int b = s->live[i];
        const uint8_t *at = codes + (size_t)b * block_bytes;
        _mm_prefetch((const char *)at + STRETCH * block_bytes, _MM_HINT_T0);
        __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)at), c[4];
        __m256i lo = _mm256_and_si256(x, nibble), hi = _mm256_and_si256(_mm256_srli_epi16(x, 4), nibble);
        c[0] = _mm256_shuffle_epi8(low, lo), c[1] = _mm256_shuffle_epi8(high, lo);
        c[2] = _mm256_shuffle_epi8(low, hi), c[3] = _mm256_shuffle_epi8(high, hi);
        for (int g = 0; g < n_q; g++) {
            const int32_t *w8 = s->w8[b][g];
            __m256i total = _mm256_maddubs_epi16(_mm256_set1_epi32(w8[0]), c[0]);
            for (int j = 1; j < 4; j++)
                total = _mm256_add_epi16(total, _mm256_maddubs_epi16(_mm256_set1_epi32(w8[j]), c[j]));
            __m256 value = _mm256_cvtepi32_ps(_mm256_madd_epi16(total, ones));
            sum[g] = _mm256_fmadd_ps(_mm256_set1_ps(s->scale[b][g]), value, sum[g]);
        }
    }
    for (int g = 0; g < n_q; g++) _mm256_storeu_ps(acc + (size_t)g * (size_t)d, sum[g]);
}

INLINE void sums_stretch(float *acc, int n_q, int d, const stretch *s, const uint8_t *codes, size_t block_bytes) {
    for (int i = 0; i < d; i += 8) sums_tile(acc + i, n_q, d, s, codes + 4 * i, block_bytes);
}

static void value_sums_avx2(float *acc, const float *w, size_t stride, int n_q, int d, const void *blocks,
                            int n_blocks) {
    stretch s;
    size_t block_bytes = ig_value_sketch_block_bytes(d);
    const uint8_t *block = blocks;
    for (int b = 0; b < n_blocks; b += STRETCH, block += STRETCH * block_bytes) {
        int n = n_blocks - b < STRETCH ? n_blocks - b : STRETCH;
        const uint8_t *codes = block + IG_VALUE_CODES;
        for (int g = 0; g < n_q; g += TILE) {
            int m = n_q - g < TILE ? n_q - g : TILE;
            float *to = acc + (size_t)g * (size_t)d;
            prepare(&s, w + (size_t)g * stride + (size_t)b * IG_SKETCH_TOKENS, stride, m, block, block_bytes, n);
            switch (m) {
                case 1:
                    sums_stretch(to, 1, d, &s, codes, block_bytes);
                    break;
                case 2:
                    sums_stretch(to, 2, d, &s, codes, block_bytes);
                    break;
                case 3:
                    sums_stretch(to, 3, d, &s, codes, block_bytes);
                    break;
                case 4:
                    sums_stretch(to, 4, d, &s, codes, block_bytes);
                    break;
                case 5:
                    sums_stretch(to, 5, d, &s, codes, block_bytes);
                    break;
                default:
                    sums_stretch(to, TILE, d, &s, codes, block_bytes);
            }
        }
    }
}

/* ---- hadamard ------------------------------------------------------------------ */

/* Sums and differences of lanes and those that `swapped` has in their place; sign is -1 for the lanes of the
 * differences. Exactly a + b and a - b, as nothing is rounded but the result. */
INLINE __m256 butterfly(__m256 x, __m256 swapped, __m256 sign) { return _mm256_fmadd_ps(x, sign, swapped); }

/* 8 * n_v floats, n_v a power of 2, at most PIECE. */
INLINE void transform_piece(float *x, int n_v, float scale) {
    __m256 v[PIECE];
    for (int i = 0; i < n_v; i++) {
        __m256 y = _mm256_loadu_ps(x + 8 * i);
        y = butterfly(y, _mm256_permute_ps(y, 0xb1), _mm256_setr_ps(1, -1, 1, -1, 1, -1, 1, -1));
        y = butterfly(y, _mm256_permute_ps(y, 0x4e), _mm256_setr_ps(1, 1, -1, -1, 1, 1, -1, -1));
        v[i] = butterfly(y, _mm256_permute2f128_ps(y, y, 1), _mm256_setr_ps(1, 1, 1, 1, -1, -1, -1, -1));
    }
    for (int half = 1; half < n_v; half *= 2)
        for (int i = 0; i < n_v; i++) {
            if (i & half) continue;
            __m256 a = v[i], b = v[i + half];
            v[i] = _mm256_add_ps(a, b);
            v[i + half] = _mm256_sub_ps(a, b);
        }
    for (int i = 0; i < n_v; i++) _mm256_storeu_ps(x + 8 * i, _mm256_mul_ps(v[i], _mm256_set1_ps(scale)));
}

/* n floats, of which either half is transformed; in memory. */
static void join_halves(float *x, int n, float scale) {
    __m256 r = _mm256_set1_ps(scale);
    for (int i = 0; i < n / 2; i += 8) {
        __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + n / 2 + i);
        _mm256_storeu_ps(x + i, _mm256_mul_ps(_mm256_add_ps(a, b), r));
        _mm256_storeu_ps(x + n / 2 + i, _mm256_mul_ps(_mm256_sub_ps(a, b), r));
    }
}

static void transform(float *x, int n, float scale) {
    switch (n) {
        case 8:
            transform_piece(x, 1, scale);
            break;
        case 16:
            transform_piece(x, 2, scale);
            break;
        case 32:
            transform_piece(x, 4, scale);
            break;
        case 8 * PIECE:
            transform_piece(x, PIECE, scale);
            break;
        default:
            transform(x, n / 2, 1);
            transform(x + n / 2, n / 2, 1);
            join_halves(x, n, scale);
    }
}

static void hadamard_avx2(float *x, int d) {
    int n = d & -d;
    float scale = 1 / sqrtf((float)n);
    for (float *end = x + d; x < end; x += n) transform(x, n, scale);
}

void ig_kernels_fill_values_avx2(ig_kernels *k) {
    k->value_put = value_put_avx2;
    k->value_sums = value_sums_avx2;
    k->hadamard = hadamard_avx2;
}
