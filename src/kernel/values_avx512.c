/* SPDX-License-Identifier: Apache-2.0
 *
 * The 2-bit value sketch for AVX-512 VNNI. A 64-byte load holds 16 dims of 16
 * tokens; a byte shuffle makes signed bytes of the codes of 4 tokens, and one vpdpbusd adds these tokens for all 16
 * dims, their weights sent to every lane as 4 bytes. A stretch of blocks has its weights prepared once; then, 32 dims
 * at a time, the floats of up to 8 queries stay in registers while the stretch goes by, its codes unpacked once for all
 * of them. The lines that the next stretch needs are prefetched as those of this one are used.
 */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "kernel/lanes_avx512.h"
#include "kernel/parts.h"
#include "kernel/sketch.h"

enum {
    TILE = 8,     /* queries */
    PAIR = 2,     /* vectors of 16 dims */
    STRETCH = 32, /* blocks: a multiple of 4 */
};

/* ---- value_put ----------------------------------------------------------------- */

static __mmask16 dims_left(int d, int i) { return d - i < 16 ? 0xff : 0xffff; }

static void value_put_avx512(void *block, int t, const float *x, int d) {
    __m512 zero = _mm512_setzero_ps(), squares = zero, xc = zero;
    for (int i = 0; i < d; i += 16) {
        __m512 v = within_f16(_mm512_maskz_loadu_ps(dims_left(d, i), x + i));
        squares = _mm512_fmadd_ps(v, v, squares);
    }
    float square = _mm512_reduce_add_ps(squares), threshold = ig_value_threshold(square, d);
    __m512 far = _mm512_set1_ps(threshold), near = _mm512_set1_ps(-threshold);
    int shift = t % 4 * 8 + t / 4 * 2;
    __m128i by = _mm_cvtsi32_si128(shift);
    __m512i one = _mm512_set1_epi32(1), keep = _mm512_set1_epi32((int)~(3u << shift));
    uint8_t *codes = (uint8_t *)block + IG_VALUE_CODES;
    for (int i = 0; i < d; i += 16) {
        __mmask16 lanes = dims_left(d, i);
        __m512 v = within_f16(_mm512_maskz_loadu_ps(lanes, x + i));
        __m512i code = _mm512_maskz_mov_epi32(_mm512_cmp_ps_mask(v, zero, _CMP_GE_OQ), one);
        code = _mm512_mask_add_epi32(code, _mm512_cmp_ps_mask(v, far, _CMP_GE_OQ), code, one);
        code = _mm512_mask_add_epi32(code, _mm512_cmp_ps_mask(v, near, _CMP_GE_OQ), code, one);
        __m512 c = _mm512_maskz_sub_ps(lanes, _mm512_cvtepi32_ps(code), _mm512_set1_ps(1.5f));
        xc = _mm512_fmadd_ps(v, c, xc);
        __m512i old = _mm512_and_si512(_mm512_maskz_loadu_epi32(lanes, codes + 4 * i), keep);
        _mm512_mask_storeu_epi32(codes + 4 * i, lanes, _mm512_or_si512(old, _mm512_sll_epi32(code, by)));
    }
    ig_value_finish(block, t, _mm512_reduce_add_ps(xc), square);
}

/* ---- value_sums ---------------------------------------------------------------- */

/* The weights of a stretch of blocks for the queries of a tile. */
typedef struct stretch {
    int32_t w8[STRETCH][TILE][4]; /* bytes, of 4 tokens each, to be broadcast from memory */
    float scale[TILE][STRETCH];   /* of a sum of w8 * (2 * code - 3) */
    int live[STRETCH], n_live;    /* blocks that count for any of the queries */
} stretch;

/* The largest lane of a[i], in lane i of every 4. */
INLINE __m512 largest_each(const __m512 a[4]) {
    __m512 x = _mm512_max_ps(_mm512_unpacklo_ps(a[0], a[1]), _mm512_unpackhi_ps(a[0], a[1]));
    __m512 y = _mm512_max_ps(_mm512_unpacklo_ps(a[2], a[3]), _mm512_unpackhi_ps(a[2], a[3]));
    __m512d xd = _mm512_castps_pd(x), yd = _mm512_castps_pd(y);
    x = _mm512_max_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(xd, yd)), _mm512_castpd_ps(_mm512_unpackhi_pd(xd, yd)));
    x = _mm512_max_ps(x, _mm512_shuffle_f32x4(x, x, 0x4e));
    return _mm512_max_ps(x, _mm512_shuffle_f32x4(x, x, 0xb1));
}

INLINE void put_weights(int32_t to[4], __m512 share, __m512 inverse) {
    __m512i x = _mm512_cvtps_epi32(_mm512_mul_ps(share, inverse));
    _mm_storeu_si128((__m128i *)(void *)to, _mm512_cvtepi32_epi8(x));
}

/* n (1..4) blocks from block b of the stretch on; returns a bit for each that counts. */
INLINE unsigned prepare_four(stretch *s, const float *w, size_t stride, int n_q, const uint8_t *block,
                             size_t block_bytes, int b, int n) {
    __m512 step[4];
    for (int i = 0; i < 4; i++)
        step[i] =
            i < n ? load_f16((const uint16_t *)(const void *)(block + (size_t)i * block_bytes)) : _mm512_setzero_ps();
    unsigned counts = 0;
    for (int g = 0; g < n_q; g++, w += stride) {
        __m512 share[4];
        for (int i = 0; i < 4; i++)
            share[i] = i < n ? _mm512_mul_ps(step[i], _mm512_loadu_ps(w + 16 * i)) : _mm512_setzero_ps();
        __m512 top = largest_each(share);
        __m128 first = _mm512_castps512_ps128(top);
        __mmask8 some = _mm_cmp_ps_mask(first, _mm_set1_ps(IG_VALUE_LEAST), _CMP_GT_OQ);
        counts |= some;
        _mm_storeu_ps(s->scale[g] + b, _mm_maskz_div_ps(some, first, _mm_set1_ps(510)));
        __m512 inverse = _mm512_broadcast_f32x4(_mm_maskz_div_ps(some, _mm_set1_ps(255), first));
        put_weights(s->w8[b][g], share[0], _mm512_permute_ps(inverse, 0x00));
        put_weights(s->w8[b + 1][g], share[1], _mm512_permute_ps(inverse, 0x55));
        put_weights(s->w8[b + 2][g], share[2], _mm512_permute_ps(inverse, 0xaa));
        put_weights(s->w8[b + 3][g], share[3], _mm512_permute_ps(inverse, 0xff));
    }
    return counts;
}

static void prepare(stretch *s, const float *w, size_t stride, int n_q, const uint8_t *block, size_t block_bytes,
                    int n) {
    s->n_live = 0;
    for (int b = 0; b < n; b += 4, w += 4 * IG_SKETCH_TOKENS, block += 4 * block_bytes) {
        unsigned counts = n - b < 4 ? prepare_four(s, w, stride, n_q, block, block_bytes, b, n - b)
                                    : prepare_four(s, w, stride, n_q, block, block_bytes, b, 4);
        for (int i = 0; i < 4; i++) {
            s->live[s->n_live] = b + i;
            s->n_live += counts >> i & 1;
        }
    }
}

/* n_v vectors of dims of n_q queries over a stretch; `lanes` of the last vector. acc and codes are at the first dim. */
INLINE void sums_tile(float *acc, int n_q, int d, int n_v, __mmask16 lanes, const stretch *s, const uint8_t *codes,
                      size_t block_bytes) {
    __m512i low = _mm512_broadcast_i32x4(_mm_setr_epi8(-3, -1, 1, 3, -3, -1, 1, 3, -3, -1, 1, 3, -3, -1, 1, 3));
    __m512i high = _mm512_broadcast_i32x4(_mm_setr_epi8(-3, -3, -3, -3, -1, -1, -1, -1, 1, 1, 1, 1, 3, 3, 3, 3));
    __m512i nibble = _mm512_set1_epi8(15);
    __m512 sum[TILE][PAIR];
    for (int g = 0; g < n_q; g++)
        for (int v = 0; v < n_v; v++)
            sum[g][v] = _mm512_maskz_loadu_ps(v == n_v - 1 ? lanes : 0xffff, acc + (size_t)g * (size_t)d + 16 * v);
    for (int i = 0; i < s->n_live; i++) {
        int b = s->live[i];
        const uint8_t *at = codes + (size_t)b * block_bytes;
        __m512i c[PAIR][4];
        for (int v = 0; v < n_v; v++) {
            __m512i x = _mm512_maskz_loadu_epi32(v == n_v - 1 ? lanes : 0xffff, at + 64 * v);
            __m512i lo = _mm512_and_si512(x, nibble), hi = _mm512_and_si512(_mm512_srli_epi16(x, 4), nibble);
            c[v][0] = _mm512_shuffle_epi8(low, lo), c[v][1] = _mm512_shuffle_epi8(high, lo);
            c[v][2] = _mm512_shuffle_epi8(low, hi), c[v][3] = _mm512_shuffle_epi8(high, hi);
            fetch_line(at + STRETCH * block_bytes + 64 * v);
        }
        fetch_line(at + STRETCH * block_bytes + 64 * n_v - 1);
        for (int g = 0; g < n_q; g++) {
            const int32_t *w8 = s->w8[b][g];
            __m512i total[PAIR];
            for (int v = 0; v < n_v; v++) total[v] = _mm512_setzero_si512();
            for (int j = 0; j < 4; j++) {
                __m512i four = _mm512_set1_epi32(w8[j]);
                for (int v = 0; v < n_v; v++) total[v] = _mm512_dpbusd_epi32(total[v], four, c[v][j]);
            }
            __m512 scale = _mm512_set1_ps(s->scale[g][b]);
            for (int v = 0; v < n_v; v++) sum[g][v] = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(total[v]), sum[g][v]);
        }
    }
    for (int g = 0; g < n_q; g++)
        for (int v = 0; v < n_v; v++)
            _mm512_mask_storeu_ps(acc + (size_t)g * (size_t)d + 16 * v, v == n_v - 1 ? lanes : 0xffff, sum[g][v]);
}

INLINE void sums_stretch(float *acc, int n_q, int d, const stretch *s, const uint8_t *codes, size_t block_bytes) {
    int i = 0;
    for (; i + 16 * PAIR <= d; i += 16 * PAIR) sums_tile(acc + i, n_q, d, PAIR, 0xffff, s, codes + 4 * i, block_bytes);
    for (; i < d; i += 16) sums_tile(acc + i, n_q, d, 1, dims_left(d, i), s, codes + 4 * i, block_bytes);
}

static void value_sums_avx512(float *acc, const float *w, size_t stride, int n_q, int d, const void *blocks,
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
                case 6:
                    sums_stretch(to, 6, d, &s, codes, block_bytes);
                    break;
                case 7:
                    sums_stretch(to, 7, d, &s, codes, block_bytes);
                    break;
                default:
                    sums_stretch(to, TILE, d, &s, codes, block_bytes);
            }
        }
    }
}

void ig_kernels_fill_values_avx512(ig_kernels *k) {
    k->value_put = value_put_avx512;
    k->value_sums = value_sums_avx512;
}
