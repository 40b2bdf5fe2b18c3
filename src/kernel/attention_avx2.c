/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention and softmax for AVX2, with the design of attention_avx512.c: scores in tiles of 3 queries x
 * 4 keys with dims in the lanes, values in tiles of 6 queries x 16 dims. Scores of many queries convert a block of rows
 * at a time; else rows are converted as they are used. The order of operations is the same. Prompts have kernels of
 * their own (attention_prompt_avx2.c); of these only the scores are used for many queries, to weigh entries.
 */
#include <math.h>
#include <stdbool.h>

#include "kernel/lanes_avx2.h"
#include "kernel/parts.h"

enum {
    QUERIES = 3,    /* of a tile of scores: with 4 keys, 12 accumulators and 4 operands fill the registers */
    TILE = 4,       /* keys of a tile of scores */
    WIDE = 6,       /* queries of a tile of values */
    PAIR = 2,       /* vectors of dims of a tile of values */
    FEW = 8,        /* up to so many queries keys are converted as they are used */
    AHEAD = 32,     /* rows from the one in use to the one prefetched */
    FLOATS = 4096,  /* of a block of converted rows: half of the first-level cache */
    BLOCK_ROWS = 64 /* values used for all queries before the next */
};

/* Always inlined: calls of a function that does nothing but prefetch are dropped by GCC as without effect. */
INLINE void prefetch_rows(const uint16_t *const *rows, int n, int d) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < d; j += 32) fetch_line(rows[i] + j);
}

static void convert_rows(float *dst, const uint16_t *const *rows, int n, int d) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < d; j += 8) _mm256_store_ps(dst + (size_t)i * (size_t)d + j, load_f16(rows[i] + j));
}

/* ---- scores -------------------------------------------------------------------- */

/* Lane l of the result is the sum of a[l] over its lanes. */
INLINE __m128 sum_each(const __m256 a[TILE]) {
    __m256 x = _mm256_hadd_ps(_mm256_hadd_ps(a[0], a[1]), _mm256_hadd_ps(a[2], a[3]));
    return _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
}

/* n_q (1..3) queries with 4 keys, given as 16-bit rows, or as floats when half is NULL; n of the 4 are stored. */
INLINE void scores_tile(float *scores, size_t stride, const float *q, int n_q, int d, __m128 scale,
                        const uint16_t *const half[TILE], const float *full, int n) {
    __m256 acc[QUERIES][TILE];
    for (int g = 0; g < n_q; g++)
        for (int i = 0; i < TILE; i++) acc[g][i] = _mm256_setzero_ps();
    for (int j = 0; j < d; j += 8) {
        __m256 x[QUERIES];
        for (int g = 0; g < n_q; g++) x[g] = _mm256_loadu_ps(q + (size_t)g * (size_t)d + j);
        for (int i = 0; i < TILE; i++) {
            __m256 k = half ? load_f16(half[i] + j) : _mm256_load_ps(full + (size_t)i * (size_t)d + j);
            for (int g = 0; g < n_q; g++) acc[g][i] = _mm256_fmadd_ps(x[g], k, acc[g][i]);
        }
    }
    for (int g = 0; g < n_q; g++) {
        __m128 x = _mm_mul_ps(sum_each(acc[g]), scale);
        if (n >= TILE)
            _mm_storeu_ps(scores + (size_t)g * stride, x);
        else
            _mm_maskstore_ps(scores + (size_t)g * stride, _mm256_castsi256_si128(first_lanes(n)), x);
    }
}

/* All queries against the 4 keys of a tile. */
INLINE void scores_column(float *scores, size_t stride, const float *q, int n_q, int d, __m128 scale,
                          const uint16_t *const half[TILE], const float *full, int n) {
    for (int g = 0; g < n_q; g += QUERIES) {
        float *out = scores + (size_t)g * stride;
        const float *x = q + (size_t)g * (size_t)d;
        switch (n_q - g) {
            case 1:
                scores_tile(out, stride, x, 1, d, scale, half, full, n);
                break;
            case 2:
                scores_tile(out, stride, x, 2, d, scale, half, full, n);
                break;
            default:
                scores_tile(out, stride, x, 3, d, scale, half, full, n);
        }
    }
}

static void scores_few(float *scores, size_t stride, const float *q, int n_q, int d, __m128 scale,
                       const uint16_t *const *k, int n) {
    prefetch_rows(k, n < AHEAD ? n : AHEAD, d);
    for (int i = 0; i < n; i += TILE) {
        const uint16_t *rows[TILE];
        for (int j = 0; j < TILE; j++) rows[j] = k[i + j < n ? i + j : n - 1];
        int ahead = n - i - AHEAD;
        if (ahead > 0) prefetch_rows(k + i + AHEAD, ahead < TILE ? ahead : TILE, d);
        scores_column(scores + i, stride, q, n_q, d, scale, rows, NULL, n - i);
    }
}

static void scores_many(float *scores, size_t stride, const float *q, int n_q, int d, __m128 scale,
                        const uint16_t *const *k, int n) {
    _Alignas(32) float block[FLOATS];
    int rows = FLOATS / d / TILE * TILE;
    for (int i = 0; i < n; i += rows) {
        int m = n - i < rows ? n - i : rows;
        convert_rows(block, k + i, m, d);
        for (int g = 0; g < n_q; g += QUERIES) /* the block stays in the first-level cache, not all queries fit */
            for (int j = 0; j < m; j += TILE)
                scores_column(scores + (size_t)g * stride + i + j, stride, q + (size_t)g * (size_t)d,
                              n_q - g < QUERIES ? n_q - g : QUERIES, d, scale, NULL, block + (size_t)j * (size_t)d,
                              m - j);
    }
}

static void attn_scores_avx2(float *scores, size_t stride, const float *q, int n_q, int d, float scale,
                             const uint16_t *const *k, int n) {
    __m128 s = _mm_set1_ps(scale);
    if (n_q <= FEW || d > FLOATS / TILE)
        scores_few(scores, stride, q, n_q, d, s, k, n);
    else
        scores_many(scores, stride, q, n_q, d, s, k, n);
}

/* ---- values -------------------------------------------------------------------- */

/* A block's share of attn_values. */
typedef struct values_job {
    const float *r; /* NULL: the factors have been applied */
    const float *p; /* [n_q][stride] */
    size_t stride;
    int d, n, n_left; /* n rows of the block; rows from its first to the last of all */
    const uint16_t *const *rows;
} values_job;

INLINE void values_tile(const values_job *w, float *acc, int g0, int n_q, int j, int n_v) {
    __m256 a[WIDE][PAIR];
    float *at = acc + (size_t)g0 * (size_t)w->d + j;
    for (int g = 0; g < n_q; g++) {
        for (int x = 0; x < n_v; x++) {
            __m256 v = _mm256_loadu_ps(at + (size_t)g * (size_t)w->d + 8 * x);
            if (w->r) v = w->r[g0 + g] == 0 ? _mm256_setzero_ps() : _mm256_mul_ps(v, _mm256_set1_ps(w->r[g0 + g]));
            a[g][x] = v;
        }
    }
    const float *p = w->p + (size_t)g0 * w->stride;
    for (int i = 0; i < w->n; i++) {
        __m256 v[PAIR];
        for (int x = 0; x < n_v; x++) v[x] = load_f16(w->rows[i] + j + 8 * x);
        if (g0 == 0 && j % 32 == 0) fetch_line(w->rows[i + AHEAD < w->n_left ? i + AHEAD : w->n_left - 1] + j);
        for (int g = 0; g < n_q; g++) {
            __m256 f = _mm256_broadcast_ss(p + (size_t)g * w->stride + i);
            for (int x = 0; x < n_v; x++) a[g][x] = _mm256_fmadd_ps(f, v[x], a[g][x]);
        }
    }
    for (int g = 0; g < n_q; g++)
        for (int x = 0; x < n_v; x++) _mm256_storeu_ps(at + (size_t)g * (size_t)w->d + 8 * x, a[g][x]);
}

INLINE void values_wide(const values_job *w, float *acc, int g0, int n_q) {
    int j = 0;
    for (; j + 8 * PAIR <= w->d; j += 8 * PAIR) values_tile(w, acc, g0, n_q, j, PAIR);
    if (j < w->d) values_tile(w, acc, g0, n_q, j, 1);
}

static void values_block(const values_job *w, float *acc, int n_q) {
    for (int g = 0; g < n_q; g += WIDE) switch (n_q - g) {
            case 1:
                values_wide(w, acc, g, 1);
                break;
            case 2:
                values_wide(w, acc, g, 2);
                break;
            case 3:
                values_wide(w, acc, g, 3);
                break;
            case 4:
                values_wide(w, acc, g, 4);
                break;
            case 5:
                values_wide(w, acc, g, 5);
                break;
            default:
                values_wide(w, acc, g, WIDE);
        }
}

static void attn_values_avx2(float *acc, const float *r, const float *p, size_t stride, int n_q, int d,
                             const uint16_t *const *v, int n) {
    values_job w = {.r = r, .stride = stride, .d = d};
    prefetch_rows(v, n < AHEAD ? n : AHEAD, d);
    int i = 0;
    do {
        w.p = p + i;
        w.n = n - i < BLOCK_ROWS ? n - i : BLOCK_ROWS;
        w.n_left = n - i;
        w.rows = v + i;
        values_block(&w, acc, n_q);
        w.r = NULL;
        i += BLOCK_ROWS;
    } while (i < n);
}

/* ---- softmax ------------------------------------------------------------------- */

static float largest(const float *x, int n, float at_least) {
    __m256 low = _mm256_set1_ps(at_least), m[2] = {low, low};
    int i = 0;
    for (; i + 16 <= n; i += 16)
        for (int j = 0; j < 2; j++) m[j] = _mm256_max_ps(_mm256_loadu_ps(x + i + 8 * j), m[j]);
    float max = max_lanes(_mm256_max_ps(m[0], m[1]));
    for (; i < n; i++)
        if (x[i] > max) max = x[i];
    return max;
}

static float softmax_step_avx2(float *s, int n, float *m, float *l) {
    float old = *m, max = largest(s, n, old);
    if (max == -INFINITY) {
        for (int i = 0; i < n; i++) s[i] = 0;
        return 0;
    }
    __m256 top = _mm256_set1_ps(max), sum[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    int i = 0;
    for (; i + 16 <= n; i += 16) {
        for (int j = 0; j < 2; j++) {
            __m256 e = exp_negative(_mm256_sub_ps(_mm256_loadu_ps(s + i + 8 * j), top));
            _mm256_storeu_ps(s + i + 8 * j, e);
            sum[j] = _mm256_add_ps(sum[j], e);
        }
    }
    for (; i < n; i += 8) {
        __m256i lanes = first_lanes(n - i);
        __m256 e = exp_negative(_mm256_sub_ps(_mm256_maskload_ps(s + i, lanes), top));
        _mm256_maskstore_ps(s + i, lanes, e);
        __m256 *part = &sum[i / 8 % 2]; /* as if more scores followed */
        *part = _mm256_add_ps(*part, _mm256_and_ps(e, _mm256_castsi256_ps(lanes)));
    }
    float r = expf(old - max);
    *m = max;
    *l = *l * r + sum_lanes(_mm256_add_ps(sum[0], sum[1]));
    return r;
}

static void softmax_add_avx2(float *w, const float *s, int n) {
    float max = largest(s, n, -INFINITY);
    if (max == -INFINITY) return;
    __m256 top = _mm256_set1_ps(max), zero = _mm256_setzero_ps(), sum[4] = {zero, zero, zero, zero};
    int i = 0;
    for (; i + 32 <= n; i += 32)
        for (int j = 0; j < 4; j++)
            sum[j] = _mm256_add_ps(sum[j], exp_negative(_mm256_sub_ps(_mm256_loadu_ps(s + i + 8 * j), top)));
    for (; i < n; i += 8) {
        __m256i lanes = first_lanes(n - i);
        __m256 e = exp_negative(_mm256_sub_ps(_mm256_maskload_ps(s + i, lanes), top));
        sum[0] = _mm256_add_ps(sum[0], _mm256_and_ps(e, _mm256_castsi256_ps(lanes)));
    }
    __m256 total = _mm256_add_ps(_mm256_add_ps(sum[0], sum[1]), _mm256_add_ps(sum[2], sum[3]));
    __m256 r = _mm256_set1_ps(1.0f / sum_lanes(total));
    for (i = 0; i + 8 <= n; i += 8) {
        __m256 e = exp_negative(_mm256_sub_ps(_mm256_loadu_ps(s + i), top));
        _mm256_storeu_ps(w + i, _mm256_fmadd_ps(e, r, _mm256_loadu_ps(w + i)));
    }
    if (i == n) return;
    __m256i lanes = first_lanes(n - i);
    __m256 e = exp_negative(_mm256_sub_ps(_mm256_maskload_ps(s + i, lanes), top));
    _mm256_maskstore_ps(w + i, lanes, _mm256_fmadd_ps(e, r, _mm256_maskload_ps(w + i, lanes)));
}

void ig_kernels_fill_attention_avx2(ig_kernels *k) {
    k->attn_scores = attn_scores_avx2;
    k->softmax_step = softmax_step_avx2;
    k->attn_values = attn_values_avx2;
    k->softmax_add = softmax_add_avx2;
    ig_kernels_fill_prompt_avx2(k);
    ig_kernels_fill_sketch_avx2(k);
    ig_kernels_fill_values_avx2(k);
    ig_kernels_fill_packed_avx2(k);
}
