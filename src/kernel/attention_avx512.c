/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention and softmax for AVX-512.
 *
 * Scores: a tile of 4 queries x 4 keys has 16 accumulators whose lanes are dims; a tree of
 * shuffles then sums all 16 across lanes at once. Values: a tile of 4 queries x 64 dims is kept in
 * registers over a block of rows. Few queries (decode) convert the 16-bit rows as they are
 * used and prefetch those to come, because selected rows are scattered; many (prefill) convert
 * a block of rows to floats once. Both do the same operations in the same order for each
 * (query, key) and each (query, dim), so their results are the same to the bit.
 */
#include <math.h>
#include <stdbool.h>

#include "kernel/attention_avx512.h"
#include "kernel/parts.h"

enum {
    FEW = 8,        /* up to so many queries rows are converted as they are used */
    AHEAD = 32,     /* rows from the one in use to the one prefetched */
    FLOATS = 4096,  /* of a block of converted rows: a third of the first-level cache */
    BLOCK_ROWS = 64 /* rows used for all queries before the next, when they are not converted beforehand */
};

INLINE void prefetch_rows(const uint16_t *const *rows, int n, int d) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < d; j += 32) fetch_line(rows[i] + j);
}

/* Rows of d 16-bit floats to rows of `padded` (d up to a multiple of 16) floats. */
static void convert_rows(float *dst, int padded, const uint16_t *const *rows, int n, int d) {
    for (int i = 0; i < n; i++) {
        int j = 0;
        for (; j + 16 <= d; j += 16) _mm512_store_ps(dst + i * padded + j, load_f16(rows[i] + j));
        if (j < d) _mm512_store_ps(dst + i * padded + j, load_f16_first(0xff, rows[i] + j));
    }
}

/* ---- scores -------------------------------------------------------------------- */

/* Adds dims j.. of the products of n_q (1..4) queries with 4 keys, which are 16-bit rows, or floats when half is NULL.
 */
INLINE void add_products(__m512 acc[TILE * TILE], const float *q, int n_q, int d, const uint16_t *const half[TILE],
                         const float *full, int padded, int j, bool is_tail) {
    __m512 k[TILE];
    for (int i = 0; i < TILE; i++) {
        if (!half)
            k[i] = _mm512_load_ps(full + i * padded + j);
        else
            k[i] = is_tail ? load_f16_first(0xff, half[i] + j) : load_f16(half[i] + j);
    }
    for (int g = 0; g < n_q; g++) {
        const float *at = q + (size_t)g * (size_t)d + j;
        __m512 x = is_tail ? _mm512_maskz_loadu_ps(0xff, at) : _mm512_loadu_ps(at);
        for (int i = 0; i < TILE; i++) acc[TILE * g + i] = _mm512_fmadd_ps(x, k[i], acc[TILE * g + i]);
    }
}

/* acc[TILE g + i] becomes the products of query g and key i, summed up to 16 lanes. */
INLINE void products(__m512 acc[TILE * TILE], const float *q, int n_q, int d, const uint16_t *const half[TILE],
                     const float *full, int padded) {
    for (int i = 0; i < TILE * n_q; i++) acc[i] = _mm512_setzero_ps();
    int j = 0;
    for (; j + 16 <= d; j += 16) add_products(acc, q, n_q, d, half, full, padded, j, false);
    if (j < d) add_products(acc, q, n_q, d, half, full, padded, j, true);
}

/* n keys, 16-bit rows k or, if that is NULL, converted ones, against n_q (1..4) queries. The last part of a tile's sums
 * is left until the products of the next are under way: it would wait for its own, and the scheduler with it. */
INLINE void scores_rows(float *scores, size_t stride, const float *q, int n_q, int d, __m512 scale,
                        const uint16_t *const *k, const float *full, int padded, int n, int n_left) {
    __m512 sums[2 * TILE];
    for (int i = 0; i < 2 * n_q; i++) sums[i] = _mm512_setzero_ps();
    for (int i = 0; i < n; i += TILE) {
        __m512 acc[TILE * TILE];
        if (k) {
            const uint16_t *rows[TILE];
            for (int j = 0; j < TILE; j++) rows[j] = k[i + j < n ? i + j : n - 1];
            int ahead = n_left - i - AHEAD;
            if (ahead > 0) prefetch_rows(k + i + AHEAD, ahead < TILE ? ahead : TILE, d);
            products(acc, q, n_q, d, rows, NULL, 0);
        } else {
            products(acc, q, n_q, d, NULL, full + i * padded, padded);
        }
        if (i > 0) store_tile(scores + i - TILE, stride, n_q, _mm512_mul_ps(sum_rest(sums, n_q), scale), TILE);
        sum_first(sums, acc, n_q);
    }
    int last = (n - 1) / TILE * TILE;
    store_tile(scores + last, stride, n_q, _mm512_mul_ps(sum_rest(sums, n_q), scale), n - last);
}

static void attn_scores_avx512(float *scores, size_t stride, const float *q, int n_q, int d, float scale,
                               const uint16_t *const *k, int n) {
    _Alignas(64) float block[FLOATS];
    int padded = (d + 15) & ~15;
    bool is_few = n_q <= FEW || padded > FLOATS / TILE;
    int rows = is_few ? BLOCK_ROWS : FLOATS / padded / TILE * TILE;
    __m512 s = _mm512_set1_ps(scale);
    if (is_few) prefetch_rows(k, n < AHEAD ? n : AHEAD, d);
    for (int i = 0; i < n; i += rows) {
        int m = n - i < rows ? n - i : rows;
        if (!is_few) convert_rows(block, padded, k + i, m, d);
        for (int g = 0; g < n_q; g += TILE) {
            float *out = scores + (size_t)g * stride + i;
            const float *x = q + (size_t)g * (size_t)d;
            int left = g == 0 ? n - i : 0; /* later queries find the rows in the cache */
            if (is_few) switch (n_q - g) {
                    case 1:
                        scores_rows(out, stride, x, 1, d, s, k + i, NULL, 0, m, left);
                        break;
                    case 2:
                        scores_rows(out, stride, x, 2, d, s, k + i, NULL, 0, m, left);
                        break;
                    case 3:
                        scores_rows(out, stride, x, 3, d, s, k + i, NULL, 0, m, left);
                        break;
                    default:
                        scores_rows(out, stride, x, 4, d, s, k + i, NULL, 0, m, left);
                }
            else
                switch (n_q - g) {
                    case 1:
                        scores_rows(out, stride, x, 1, d, s, NULL, block, padded, m, 0);
                        break;
                    case 2:
                        scores_rows(out, stride, x, 2, d, s, NULL, block, padded, m, 0);
                        break;
                    case 3:
                        scores_rows(out, stride, x, 3, d, s, NULL, block, padded, m, 0);
                        break;
                    default:
                        scores_rows(out, stride, x, 4, d, s, NULL, block, padded, m, 0);
                }
        }
    }
}

/* ---- values -------------------------------------------------------------------- */

/* A block's share of attn_values. */
typedef struct values_job {
    const float *r; /* NULL: the factors have been applied */
    const float *p; /* [n_q][stride] */
    size_t stride;
    int d, n, n_left;            /* rows of the block; rows from its first to the last of all */
    const uint16_t *const *half; /* the rows, */
    const float *full;           /* or, if there are many queries, converted: [n][padded] */
    int padded;
} values_job;

/* Queries g0 .. g0 + n_q - 1 (n_q 1..4), n_v (1..4) vectors of dims from dim j; `lanes` are those of the last. */
INLINE void values_tile(const values_job *w, float *acc, int g0, int n_q, int j, int n_v, __mmask16 lanes,
                        bool is_half) {
    __m512 a[TILE][TILE];
    size_t d = (size_t)w->d, stride = w->stride;
    float *at = acc + (size_t)g0 * d + j;
    for (int g = 0; g < n_q; g++) {
        for (int x = 0; x < n_v; x++) {
            a[g][x] = _mm512_maskz_loadu_ps(lanes, at + (size_t)g * d + 16 * x);
            if (w->r)
                a[g][x] =
                    w->r[g0 + g] == 0 ? _mm512_setzero_ps() : _mm512_mul_ps(a[g][x], _mm512_set1_ps(w->r[g0 + g]));
        }
    }
    const float *p = w->p + (size_t)g0 * stride;
    for (int i = 0; i < w->n; i++) {
        __m512 v[TILE];
        for (int x = 0; x < n_v; x++) {
            if (!is_half)
                v[x] = _mm512_load_ps(w->full + (size_t)i * (size_t)w->padded + j + 16 * x);
            else if (lanes == 0xffff)
                v[x] = load_f16(w->half[i] + j + 16 * x);
            else
                v[x] = load_f16_first(lanes, w->half[i] + j + 16 * x);
        }
        if (is_half && g0 == 0) {
            const uint16_t *ahead = w->half[i + AHEAD < w->n_left ? i + AHEAD : w->n_left - 1] + j;
            for (int x = 0; x < n_v; x += 2) fetch_line(ahead + 16 * x);
        }
        for (int g = 0; g < n_q; g++) {
            __m512 f = _mm512_set1_ps(p[(size_t)g * stride + (size_t)i]);
            for (int x = 0; x < n_v; x++) a[g][x] = _mm512_fmadd_ps(f, v[x], a[g][x]);
        }
    }
    for (int g = 0; g < n_q; g++)
        for (int x = 0; x < n_v; x++) _mm512_mask_storeu_ps(at + (size_t)g * d + 16 * x, lanes, a[g][x]);
}

INLINE void values_rows(const values_job *w, float *acc, int g0, int n_q, bool is_half) {
    int j = 0;
    for (; j + 16 * TILE <= w->d; j += 16 * TILE) values_tile(w, acc, g0, n_q, j, TILE, 0xffff, is_half);
    for (; j + 16 <= w->d; j += 16) values_tile(w, acc, g0, n_q, j, 1, 0xffff, is_half);
    if (j < w->d) values_tile(w, acc, g0, n_q, j, 1, 0xff, is_half);
}

INLINE void values_block(const values_job *w, float *acc, int n_q, bool is_half) {
    for (int g = 0; g < n_q; g += TILE) switch (n_q - g) {
            case 1:
                values_rows(w, acc, g, 1, is_half);
                break;
            case 2:
                values_rows(w, acc, g, 2, is_half);
                break;
            case 3:
                values_rows(w, acc, g, 3, is_half);
                break;
            default:
                values_rows(w, acc, g, 4, is_half);
        }
}

static void attn_values_avx512(float *acc, const float *r, const float *p, size_t stride, int n_q, int d,
                               const uint16_t *const *v, int n) {
    _Alignas(64) float block[FLOATS];
    int padded = (d + 15) & ~15;
    bool is_few = n_q <= FEW || padded > FLOATS / TILE;
    int rows = is_few ? BLOCK_ROWS : FLOATS / padded, i = 0;
    if (is_few) prefetch_rows(v, n < AHEAD ? n : AHEAD, d);
    values_job w = {.r = r, .stride = stride, .d = d, .full = block, .padded = padded};
    do {
        w.p = p + i;
        w.n = n - i < rows ? n - i : rows;
        w.n_left = n - i;
        w.half = v + i;
        if (is_few) {
            values_block(&w, acc, n_q, true);
        } else {
            convert_rows(block, padded, w.half, w.n, d);
            values_block(&w, acc, n_q, false);
        }
        w.r = NULL;
        i += rows;
    } while (i < n);
}

/* ---- softmax ------------------------------------------------------------------- */

static float largest(const float *x, int n, float at_least) {
    __m512 low = _mm512_set1_ps(at_least), m[2] = {low, low};
    int i = 0;
    for (; i + 32 <= n; i += 32)
        for (int j = 0; j < 2; j++) m[j] = _mm512_max_ps(_mm512_loadu_ps(x + i + 16 * j), m[j]);
    for (; i < n; i += 16)
        m[0] = _mm512_max_ps(_mm512_mask_loadu_ps(low, first_lanes(n - i < 16 ? n - i : 16), x + i), m[0]);
    return _mm512_reduce_max_ps(_mm512_max_ps(m[0], m[1]));
}

static float softmax_step_avx512(float *s, int n, float *m, float *l) {
    float old = *m, max = largest(s, n, old);
    if (max == -INFINITY) {
        for (int i = 0; i < n; i++) s[i] = 0;
        return 0;
    }
    __m512 top = _mm512_set1_ps(max), sum[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    int i = 0;
    for (; i + 32 <= n; i += 32) {
        for (int j = 0; j < 2; j++) {
            __m512 e = exp_negative(_mm512_sub_ps(_mm512_loadu_ps(s + i + 16 * j), top));
            _mm512_storeu_ps(s + i + 16 * j, e);
            sum[j] = _mm512_add_ps(sum[j], e);
        }
    }
    for (; i < n; i += 16) {
        __mmask16 lanes = first_lanes(n - i < 16 ? n - i : 16);
        __m512 e = exp_negative(_mm512_sub_ps(_mm512_maskz_loadu_ps(lanes, s + i), top));
        _mm512_mask_storeu_ps(s + i, lanes, e);
        __m512 *part = &sum[i / 16 % 2]; /* as if more scores followed */
        *part = _mm512_mask_add_ps(*part, lanes, *part, e);
    }
    float r = expf(old - max);
    *m = max;
    *l = *l * r + _mm512_reduce_add_ps(_mm512_add_ps(sum[0], sum[1]));
    return r;
}

static void softmax_add_avx512(float *w, const float *s, int n) {
    float max = largest(s, n, -INFINITY);
    if (max == -INFINITY) return;
    __m512 top = _mm512_set1_ps(max), zero = _mm512_setzero_ps(), sum[4] = {zero, zero, zero, zero};
    int i = 0;
    for (; i + 64 <= n; i += 64)
        for (int j = 0; j < 4; j++)
            sum[j] = _mm512_add_ps(sum[j], exp_negative(_mm512_sub_ps(_mm512_loadu_ps(s + i + 16 * j), top)));
    for (; i < n; i += 16) {
        __mmask16 lanes = first_lanes(n - i < 16 ? n - i : 16);
        __m512 e = exp_negative(_mm512_sub_ps(_mm512_maskz_loadu_ps(lanes, s + i), top));
        sum[0] = _mm512_mask_add_ps(sum[0], lanes, sum[0], e);
    }
    float total = _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(sum[0], sum[1]), _mm512_add_ps(sum[2], sum[3])));
    __m512 r = _mm512_set1_ps(1.0f / total);
    for (i = 0; i < n; i += 16) {
        __mmask16 lanes = first_lanes(n - i < 16 ? n - i : 16);
        __m512 e = exp_negative(_mm512_sub_ps(_mm512_maskz_loadu_ps(lanes, s + i), top));
        _mm512_mask_storeu_ps(w + i, lanes, _mm512_fmadd_ps(e, r, _mm512_maskz_loadu_ps(lanes, w + i)));
    }
}

void ig_kernels_fill_attention_avx512(ig_kernels *k) {
    k->attn_scores = attn_scores_avx512;
    k->softmax_step = softmax_step_avx512;
    k->attn_values = attn_values_avx512;
    k->softmax_add = softmax_add_avx512;
    ig_kernels_fill_prompt_avx512(k);
    ig_kernels_fill_sketch_avx512(k);
    ig_kernels_fill_values_avx512(k);
    ig_kernels_fill_packed_avx512(k);
}
