/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of a prompt's queries for the levels that have AVX2, which differ in how 16-bit numbers are multiplied: in
 * fixed point, as vpmaddwd makes twice as many products as FMA.
 *
 * A lane is a query throughout, so that no sum, maximum or mask crosses lanes and no query sees its neighbours. The
 * tile's queries stand in blocks of 16. For a block and a chunk of keys: scores from pairs of dims, softmax, weights in
 * 16 bits, and values from pairs of rows, all within the first-level cache.
 *
 * Rounding. |sum a[i] b[i]| <= |a| |b| (Cauchy-Schwarz): a key is scaled to a norm of 2^15, a query to one of 2^16 (and
 * no element above 2^15), and 32 bits hold every sum, whatever the number of dims. A row of values is scaled to 2^14;
 * its scale goes into the weights. Those of a group of 32 rows are scaled to a sum of 2^17, no weight above 2^15, and
 * their sums go to floats after each group. For rows of about normal numbers that is half of what rounding to 16-bit
 * floats has cost already.
 *
 * What is not finite makes the scale NaN or infinite, and by that the result.
 */
#ifndef IG_KERNEL_ATTENTION_PROMPT_AVX2_H
#define IG_KERNEL_ATTENTION_PROMPT_AVX2_H

#include <float.h>
#include <math.h>
#include <stdbool.h>

#include "kernel/lanes_avx2.h"
#include "kernel/parts.h"

enum {
    LANES = IG_PROMPT_BLOCK, /* queries of a block */
    VECTORS = 2,             /* of a block; 1 where no more than 8 queries are left */
    TILE = 4,                /* keys, or dims of values, of a tile: with 2 vectors of queries, 8 accumulators */
    GROUP = 32,              /* rows whose weights share a scale */
    PAIRS = GROUP / 2,
    AHEAD = 16, /* rows */
    GROUPS = IG_PROMPT_KEYS / GROUP,
    KEY_NORM = 32767,
    QUERY_NORM = 65400, /* with rounding, (65400 + 12) (32767 + 12) < 2^31 for 512 dims */
    PEAK = 32767,       /* of a query's elements, and of weights */
    VALUE_PEAK = 16383,
    WEIGHT_SUM = 131000, /* with rounding, (131000 + 16) 16383 < 2^31 */
};

/* How a tile's scratch is used. */
typedef struct work {
    int32_t *q;             /* [blocks][d / 2][LANES] dims in pairs */
    float *acc;             /* [blocks][d][LANES] */
    float *q_scale, *m, *l; /* [queries] */
    int32_t *end;           /* [queries] */
    float *s;               /* [keys][LANES] a block's scores, then its weights */
    int32_t *w;             /* [keys / 2][LANES] weights, rows in pairs */
} work;

/* How a chunk of rows lies in memory. */
typedef struct chunk {
    int32_t *k;               /* [keys][d / 2] dims in pairs */
    int32_t *v;               /* [d / TILE][keys / 2][TILE] rows in pairs */
    float *k_scale, *v_scale; /* [keys] */
} chunk;

static inline void *take(uint8_t *base, size_t *at, size_t numbers) {
    void *p = base + *at;
    *at += (numbers * 4 + 63) / 64 * 64;
    return p;
}

static inline size_t layout(work *w, uint8_t *base, int d) {
    const size_t dims = (size_t)d, queries = IG_PROMPT_QUERIES, keys = IG_PROMPT_KEYS;
    size_t at = 0;
    w->q = take(base, &at, queries * dims / 2);
    w->acc = take(base, &at, queries * dims);
    w->q_scale = take(base, &at, queries);
    w->m = take(base, &at, queries);
    w->l = take(base, &at, queries);
    w->end = take(base, &at, queries);
    w->s = take(base, &at, keys * LANES);
    w->w = take(base, &at, keys / 2 * LANES);
    return at;
}

static inline size_t layout_chunk(chunk *c, uint8_t *base, int d) {
    const size_t dims = (size_t)d, keys = IG_PROMPT_KEYS;
    size_t at = 0;
    c->k = take(base, &at, keys * dims / 2);
    c->v = take(base, &at, keys * dims / 2);
    c->k_scale = take(base, &at, keys);
    c->v_scale = take(base, &at, keys);
    return at;
}

static inline work work_of(const ig_prompt_tile *t) {
    work w;
    layout(&w, t->scratch, t->d);
    return w;
}

static inline chunk chunk_of(void *rows, int d) {
    chunk c;
    layout_chunk(&c, rows, d);
    return c;
}

static inline int whole_groups(int n) { return (n + GROUP - 1) / GROUP * GROUP; }

/* ---- a block and a chunk ----------------------------------------------------------- */

/* A block of queries and the keys of a chunk that any of them sees. */
typedef struct block {
    const int32_t *q, *end;
    const float *q_scale;
    float *m, *l, *acc;
    int d, first, n; /* keys of the chunk from its first: whole groups; row `first` of the view is its first */
    int window;
    bool is_masked; /* some query does not see all n */
} block;

/* acc += x[2 i] y[2 i] + x[2 i + 1] y[2 i + 1] of 16-bit numbers: what the levels differ in. */
typedef __m256i (*add_pairs_fn)(__m256i acc, __m256i x, __m256i y);

/* acc[i][x] += the products of pairs: LANES numbers for each of n steps of a, TILE of b, `stride` from one to the next
 * of these and `step` from one step to the next. */
INLINE void products(__m256i acc[TILE][VECTORS], const int32_t *a, const int32_t *b, size_t stride, size_t step, int n,
                     int n_v, add_pairs_fn add) {
#pragma GCC unroll 4
    for (int j = 0; j < n; j++, a += LANES, b += step) {
        __m256i x[VECTORS];
        for (int v = 0; v < n_v; v++) x[v] = _mm256_load_si256((const __m256i *)(const void *)(a + 8 * v));
        for (int i = 0; i < TILE; i++) {
            __m256i y = _mm256_set1_epi32(b[(size_t)i * stride]);
            for (int v = 0; v < n_v; v++) acc[i][v] = add(acc[i][v], x[v], y);
        }
    }
}

/* -INFINITY for lanes that do not see row `at` of the view. */
INLINE __m256 masked(__m256 s, const int32_t *end, int at, int window) {
    __m256i last = _mm256_load_si256((const __m256i *)(const void *)end), row = _mm256_set1_epi32(at);
    __m256i sees = _mm256_cmpgt_epi32(last, row);
    if (window) {
        __m256i begin = _mm256_sub_epi32(last, _mm256_set1_epi32(window));
        sees = _mm256_andnot_si256(_mm256_cmpgt_epi32(begin, row), sees);
    }
    return _mm256_blendv_ps(_mm256_set1_ps(-INFINITY), s, _mm256_castsi256_ps(sees));
}

/* Scores of all keys; top becomes the largest of each lane, or stays. */
INLINE void scores(const block *b, const work *w, const chunk *c, __m256 top[VECTORS], int n_v, bool is_masked,
                   add_pairs_fn add) {
    __m256 scale[VECTORS];
    for (int v = 0; v < n_v; v++) scale[v] = _mm256_load_ps(b->q_scale + 8 * v);
    size_t pairs = (size_t)b->d / 2;
    for (int i = 0; i < b->n; i += TILE) {
        __m256i sum[TILE][VECTORS];
        for (int k = 0; k < TILE; k++)
            for (int v = 0; v < n_v; v++) sum[k][v] = _mm256_setzero_si256();
        products(sum, b->q, c->k + (size_t)i * pairs, pairs, 1, b->d / 2, n_v, add);
        for (int k = 0; k < TILE; k++) {
            __m256 key = _mm256_broadcast_ss(c->k_scale + i + k);
            for (int v = 0; v < n_v; v++) {
                __m256 s = _mm256_mul_ps(_mm256_cvtepi32_ps(sum[k][v]), _mm256_mul_ps(scale[v], key));
                if (is_masked) s = masked(s, b->end + 8 * v, b->first + i + k, b->window);
                top[v] = _mm256_max_ps(s, top[v]);
                _mm256_store_ps(w->s + (size_t)(i + k) * LANES + 8 * v, s);
            }
        }
    }
}

/* exp, x <= 0, to 4e-7: 2^n 2^r with a polynomial in r. Adding 1.5 2^23 + 127 leaves n + 127 in the lowest bits, which
 * below -127 is 0, and so then is the result. NaN stays NaN. */
INLINE __m256 exp_weight(__m256 x) {
    const __m256 magic = _mm256_set1_ps(0x1.8p23f + 127);
    x = _mm256_max_ps(_mm256_set1_ps(-127.0f), _mm256_mul_ps(x, _mm256_set1_ps(0x1.715476p0f)));
    __m256 n = _mm256_add_ps(x, magic), r = _mm256_sub_ps(x, _mm256_sub_ps(n, magic));
    __m256 p = _mm256_set1_ps(0x1.5ec866p-10f);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.3cbf6p-7f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.c6afeep-5f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.ebfa4cp-3f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.62e43p-1f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    return _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(n), 23)));
}

/* The weights of 8 lanes and a group of rows in 16 bits, from their scores; returns their scale and adds to l. */
INLINE __m256 weights(int32_t *out, float *s, const float *v_scale, __m256 top, __m256 *l) {
    __m256 most = _mm256_setzero_ps(), sum = most;
    for (int i = 0; i < GROUP; i++) {
        __m256 p = exp_weight(_mm256_sub_ps(_mm256_load_ps(s + i * LANES), top));
        *l = _mm256_add_ps(*l, p);
        p = _mm256_mul_ps(p, _mm256_broadcast_ss(v_scale + i));
        most = _mm256_max_ps(most, p);
        sum = _mm256_add_ps(sum, p);
        _mm256_store_ps(s + i * LANES, p);
    }
    __m256 scale = _mm256_max_ps(_mm256_mul_ps(most, _mm256_set1_ps(1.0f / PEAK)),
                                 _mm256_mul_ps(sum, _mm256_set1_ps(1.0f / WEIGHT_SUM))); /* NaN if the sum is */
    __m256 factor = _mm256_div_ps(_mm256_set1_ps(1), _mm256_max_ps(scale, _mm256_set1_ps(FLT_MIN)));
    for (int i = 0; i < GROUP; i += 2) {
        __m256i a = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_load_ps(s + i * LANES), factor));
        __m256i b = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_load_ps(s + (i + 1) * LANES), factor));
        _mm256_store_si256((__m256i *)(void *)(out + i / 2 * LANES),
                           _mm256_blend_epi16(a, _mm256_slli_epi32(b, 16), 0xaa));
    }
    return scale;
}

INLINE void values(const block *b, const work *w, const chunk *c, const __m256 r[VECTORS], float scale[GROUPS][LANES],
                   int n_v, add_pairs_fn add) {
    for (int j = 0; j < b->d; j += TILE) {
        float *acc = b->acc + (size_t)j * LANES;
        const int32_t *rows = c->v + (size_t)j * (IG_PROMPT_KEYS / 2);
        for (int g = 0; g < b->n / GROUP; g++) {
            __m256i sum[TILE][VECTORS];
            for (int i = 0; i < TILE; i++)
                for (int v = 0; v < n_v; v++) sum[i][v] = _mm256_setzero_si256();
            products(sum, w->w + g * PAIRS * LANES, rows + g * PAIRS * TILE, 1, TILE, PAIRS, n_v, add);
            for (int i = 0; i < TILE; i++)
                for (int v = 0; v < n_v; v++) {
                    __m256 a = _mm256_load_ps(acc + i * LANES + 8 * v);
                    if (g == 0) a = _mm256_mul_ps(a, r[v]);
                    a = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[i][v]), _mm256_load_ps(scale[g] + 8 * v), a);
                    _mm256_store_ps(acc + i * LANES + 8 * v, a);
                }
        }
    }
}

INLINE void attend_block(const block *b, const work *w, const chunk *c, int n_v, add_pairs_fn add) {
    __m256 top[VECTORS], r[VECTORS];
    _Alignas(32) float scale[GROUPS][LANES];
    for (int v = 0; v < n_v; v++) top[v] = _mm256_load_ps(b->m + 8 * v);
    if (b->is_masked)
        scores(b, w, c, top, n_v, true, add);
    else
        scores(b, w, c, top, n_v, false, add);
    for (int v = 0; v < n_v; v++) {
        __m256 old = _mm256_load_ps(b->m + 8 * v), finite = _mm256_max_ps(top[v], _mm256_set1_ps(-FLT_MAX));
        r[v] = exp_weight(_mm256_sub_ps(old, finite));
        __m256 l = _mm256_mul_ps(_mm256_load_ps(b->l + 8 * v), r[v]);
        for (int g = 0; g < b->n / GROUP; g++) {
            float *s = w->s + g * GROUP * LANES + 8 * v;
            _mm256_store_ps(scale[g] + 8 * v,
                            weights(w->w + g * PAIRS * LANES + 8 * v, s, c->v_scale + g * GROUP, finite, &l));
        }
        _mm256_store_ps(b->m + 8 * v, top[v]);
        _mm256_store_ps(b->l + 8 * v, l);
    }
    values(b, w, c, r, scale, n_v, add);
}

INLINE void prompt_attend(const ig_prompt_tile *t, void *rows, int first, int n, add_pairs_fn add) {
    work w = work_of(t);
    chunk c = chunk_of(rows, t->d);
    for (int i = 0; i < t->n_q; i += LANES) {
        const int32_t *end = w.end + i;
        int low = end[0], high = end[0];
        for (int j = 1; j < LANES; j++) {
            low = end[j] < low ? end[j] : low;
            high = end[j] > high ? end[j] : high;
        }
        int seen = high - first < n ? high - first : n;
        if (seen <= 0 || (t->window && first + seen <= low - t->window)) continue;
        size_t at = (size_t)i * (size_t)t->d;
        block b = {.q = w.q + at / 2,
                   .end = end,
                   .q_scale = w.q_scale + i,
                   .m = w.m + i,
                   .l = w.l + i,
                   .acc = w.acc + at,
                   .d = t->d,
                   .first = first,
                   .n = whole_groups(seen),
                   .window = t->window};
        b.is_masked = low - first < b.n || (t->window && high - t->window > first);
        if (t->n_q - i > LANES / VECTORS)
            attend_block(&b, &w, &c, 2, add);
        else
            attend_block(&b, &w, &c, 1, add);
    }
}

#endif
