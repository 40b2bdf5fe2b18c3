/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of a prompt's queries for the levels of x86, which differ in their vectors and in how 16-bit numbers are
 * multiplied: in fixed point, as that makes twice as many products as FMA. A level includes vectors_*.h first.
 *
 * A lane is a query throughout, so that no sum, maximum or mask crosses lanes and no query sees its neighbours. The
 * tile's queries stand in blocks of two vectors. For a block and a chunk of keys: scores from pairs of dims, softmax,
 * weights in 16 bits, and values from pairs of rows, all within the first-level cache. All levels make the same bits.
 *
 * Rounding. |sum a[i] b[i]| <= |a| |b| (Cauchy-Schwarz): a key is scaled to a norm of 2^15, a query to one of 2^16 (and
 * no element above 2^15), and 32 bits hold every sum, whatever the number of dims. A row of values is scaled to 2^14;
 * its scale goes into the weights. Those of a group of 32 rows are scaled to a sum of 2^17, no weight above 2^15, and
 * their sums go to floats after each group. For rows of about normal numbers that is half of what rounding to 16-bit
 * floats has cost already.
 *
 * What is not finite makes the scale NaN or infinite, and by that the result.
 */
#ifndef IG_KERNEL_ATTENTION_PROMPT_H
#define IG_KERNEL_ATTENTION_PROMPT_H

#include <float.h>
#include <math.h>
#include <stdbool.h>

#include "kernel/attention_block.h"
#include "kernel/lanes_avx2.h"
#include "kernel/parts.h"

/* The rows of a group share the scale of their weights. */
enum {
    TILE = 4, /* keys, or dims of values, of a tile: with 2 vectors of queries, 8 accumulators */
    PAIRS = GROUP / 2,
    GROUPS = IG_PROMPT_KEYS / GROUP,
    KEY_NORM = 32767,
    QUERY_NORM = 65400, /* with rounding, (65400 + 12) (32767 + 12) < 2^31 for 576 dims */
    PEAK = 32767,       /* of a query's elements, and of weights */
    VALUE_PEAK = 16383,
    WEIGHT_SUM = 131000, /* with rounding, (131000 + 16) 16383 < 2^31 */
};

/* How a tile's scratch is used. */
typedef struct work {
    int32_t *q;             /* [blocks][d / 2][LANES] dims in pairs */
    float *acc;             /* [blocks][d][LANES] */
    float *q_scale, *m, *l; /* [queries] */
    int32_t *begin, *end;   /* [queries] */
    float *s;               /* [keys][LANES] a block's scores, then its weights */
    int32_t *w;             /* [keys / 2][LANES] weights, rows in pairs */
} work;

/* How a chunk of rows lies in memory. */
typedef struct chunk {
    int32_t *k;               /* [keys][d / 2] dims in pairs */
    int32_t *v;               /* [d / TILE][keys / 2][TILE] rows in pairs */
    float *k_scale, *v_scale; /* [keys] */
} chunk;

static inline size_t layout(work *w, uint8_t *base, int d) {
    const size_t dims = (size_t)d, queries = IG_PROMPT_QUERIES, keys = IG_PROMPT_KEYS;
    size_t at = 0;
    w->q = take(base, &at, queries * dims / 2);
    w->acc = take(base, &at, queries * dims);
    w->q_scale = take(base, &at, queries);
    w->m = take(base, &at, queries);
    w->l = take(base, &at, queries);
    w->begin = take(base, &at, queries);
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

static inline size_t work_bytes(int d) {
    work w;
    static uint8_t none;
    return layout(&w, &none, d);
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

/* ---- queries and running sums ---------------------------------------------------- */

/* 8 numbers times a factor, in 16 bits: 4 pairs. */
INLINE __m128i fixed(__m256 x, __m256 factor) {
    __m256i i = _mm256_cvtps_epi32(_mm256_mul_ps(x, factor));
    return _mm_packs_epi32(_mm256_castsi256_si128(i), _mm256_extracti128_si256(i, 1));
}

/* A query in 16 bits, to every LANES-th pair of q; returns its scale. */
static inline float take_query(int32_t *q, const float *x, int d) {
    __m256 squares = _mm256_setzero_ps(), peaks = squares, sign = _mm256_set1_ps(-0.0f);
    for (int j = 0; j < d; j += 8) {
        __m256 a = _mm256_loadu_ps(x + j);
        squares = _mm256_fmadd_ps(a, a, squares);
        peaks = _mm256_max_ps(peaks, _mm256_andnot_ps(sign, a));
    }
    float sum = sum_lanes(squares), scale = fmaxf(max_lanes(peaks) / PEAK, sqrtf(sum) / QUERY_NORM);
    __m256 factor = _mm256_set1_ps(scale > FLT_MIN ? 1 / scale : 0);
    for (int j = 0; j < d; j += 8) {
        int32_t pairs[4];
        _mm_storeu_si128((__m128i *)(void *)pairs, fixed(_mm256_loadu_ps(x + j), factor));
        for (int i = 0; i < 4; i++) q[(j / 2 + i) * LANES] = pairs[i];
    }
    return sum < INFINITY ? scale : NAN;
}

INLINE void prompt_begin(const ig_prompt_tile *t) {
    work w = work_of(t);
    size_t d = (size_t)t->d;
    for (int r = 0; r < blocks_of(t) * LANES; r++) {
        size_t from = (size_t)(r < t->n_q ? r : t->n_q - 1); /* lanes that are left over do as the last query does */
        size_t at = (size_t)(r / LANES) * LANES * d, lane = (size_t)(r % LANES);
        w.q_scale[r] = t->scale * take_query(w.q + at / 2 + lane, t->q + from * d, t->d);
        w.begin[r] = t->begin ? t->begin[from] : 0;
        w.end[r] = t->end[from];
        w.m[r] = t->m[from];
        w.l[r] = t->l[from];
        for (size_t j = 0; j < d; j++) w.acc[at + j * LANES + lane] = t->acc[from * d + j];
    }
}

INLINE void prompt_end(const ig_prompt_tile *t) {
    work w = work_of(t);
    size_t d = (size_t)t->d;
    memcpy(t->m, w.m, (size_t)t->n_q * sizeof(float));
    memcpy(t->l, w.l, (size_t)t->n_q * sizeof(float));
    for (size_t r = 0; r < (size_t)t->n_q; r++)
        for (size_t j = 0; j < d; j++) t->acc[r * d + j] = w.acc[r / LANES * LANES * d + j * LANES + r % LANES];
}

/* ---- a block and a chunk ----------------------------------------------------------- */

/* A block of queries and the keys of a chunk that any of them sees. */
typedef struct block {
    const int32_t *q;
    const int32_t *begin, *end; /* no begin: all from 0 on */
    const float *q_scale;
    float *m, *l, *acc;
    int d, first, n; /* keys of the chunk from its first: whole groups; row `first` of the view is its first */
    bool is_masked;  /* some query does not see all n */
} block;

/* acc += x[2 i] y[2 i] + x[2 i + 1] y[2 i + 1] of 16-bit numbers: what the levels differ in. */
typedef ints (*add_pairs_fn)(ints acc, ints x, ints y);

/* acc[i][x] += the products of pairs: LANES numbers for each of n steps of a, TILE of b, `stride` from one to the next
 * of these and `step` from one step to the next. */
INLINE void products(ints acc[TILE][VECTORS], const int32_t *a, const int32_t *b, size_t stride, size_t step, int n,
                     int n_v, add_pairs_fn sum_pairs) {
#pragma GCC unroll 4
    for (int j = 0; j < n; j++, a += LANES, b += step) {
        ints x[VECTORS];
        for (int v = 0; v < n_v; v++) x[v] = load_ints(a + WIDTH * v);
        for (int i = 0; i < TILE; i++) {
            ints y = all_ints(b[(size_t)i * stride]);
            for (int v = 0; v < n_v; v++) acc[i][v] = sum_pairs(acc[i][v], x[v], y);
        }
    }
}

/* Scores of all keys; top becomes the largest of each lane, or stays. */
INLINE void scores(const block *b, const work *w, const chunk *c, floats top[VECTORS], int n_v, bool is_masked,
                   add_pairs_fn sum_pairs) {
    floats scale[VECTORS];
    for (int v = 0; v < n_v; v++) scale[v] = load_floats(b->q_scale + WIDTH * v);
    size_t pairs = (size_t)b->d / 2;
    for (int i = 0; i < b->n; i += TILE) {
        ints sum[TILE][VECTORS];
        for (int k = 0; k < TILE; k++)
            for (int v = 0; v < n_v; v++) sum[k][v] = all_ints(0);
        products(sum, b->q, c->k + (size_t)i * pairs, pairs, 1, b->d / 2, n_v, sum_pairs);
        for (int k = 0; k < TILE; k++) {
            floats key = all_floats(c->k_scale[i + k]);
            for (int v = 0; v < n_v; v++) {
                floats s = mul(to_floats(sum[k][v]), mul(scale[v], key));
                if (is_masked)
                    s = hide(s, b->begin ? b->begin + WIDTH * v : NULL, b->end + WIDTH * v, b->first + i + k);
                top[v] = larger(s, top[v]);
                store_floats(w->s + (size_t)(i + k) * LANES + WIDTH * v, s);
            }
        }
    }
}

/* exp, x <= 0, to 4e-7: 2^n 2^r with a polynomial in r. Adding 1.5 2^23 + 127 leaves n + 127 in the lowest bits, which
 * below -127 is 0, and so then is the result (power_of_2() moves them to the exponent). NaN stays NaN. */
INLINE floats exp_weight(floats x) {
    const floats magic = all_floats(0x1.8p23f + 127);
    x = larger(all_floats(-127.0f), mul(x, all_floats(0x1.715476p0f)));
    floats n = add(x, magic), r = sub(x, sub(n, magic));
    floats p = all_floats(0x1.5ec866p-10f);
    p = mul_add(p, r, all_floats(0x1.3cbf6p-7f));
    p = mul_add(p, r, all_floats(0x1.c6afeep-5f));
    p = mul_add(p, r, all_floats(0x1.ebfa4cp-3f));
    p = mul_add(p, r, all_floats(0x1.62e43p-1f));
    p = mul_add(p, r, all_floats(1.0f));
    return mul(p, power_of_2(n));
}

/* The weights of a vector of lanes and a group of rows in 16 bits, from their scores; returns their scale and adds to
 * l. */
INLINE floats weights(int32_t *out, float *s, const float *v_scale, floats top, floats *l) {
    floats most = all_floats(0), sum = most;
    for (int i = 0; i < GROUP; i++) {
        floats p = exp_weight(sub(load_floats(s + i * LANES), top));
        *l = add(*l, p);
        p = mul(p, all_floats(v_scale[i]));
        most = larger(most, p);
        sum = add(sum, p);
        store_floats(s + i * LANES, p);
    }
    floats scale =
        larger(mul(most, all_floats(1.0f / PEAK)), mul(sum, all_floats(1.0f / WEIGHT_SUM))); /* NaN if the sum is */
    floats factor = quotient(all_floats(1), larger(scale, all_floats(FLT_MIN)));
    for (int i = 0; i < GROUP; i += 2) {
        ints a = to_ints(mul(load_floats(s + i * LANES), factor));
        ints b = to_ints(mul(load_floats(s + (i + 1) * LANES), factor));
        store_ints(out + i / 2 * LANES, pairs_of(a, b));
    }
    return scale;
}

INLINE void values(const block *b, const work *w, const chunk *c, const floats r[VECTORS], float scale[GROUPS][LANES],
                   int n_v, add_pairs_fn sum_pairs) {
    for (int j = 0; j < b->d; j += TILE) {
        float *acc = b->acc + (size_t)j * LANES;
        const int32_t *rows = c->v + (size_t)j * (IG_PROMPT_KEYS / 2);
        for (int g = 0; g < b->n / GROUP; g++) {
            ints sum[TILE][VECTORS];
            for (int i = 0; i < TILE; i++)
                for (int v = 0; v < n_v; v++) sum[i][v] = all_ints(0);
            products(sum, w->w + g * PAIRS * LANES, rows + g * PAIRS * TILE, 1, TILE, PAIRS, n_v, sum_pairs);
            for (int i = 0; i < TILE; i++)
                for (int v = 0; v < n_v; v++) {
                    floats a = load_floats(acc + i * LANES + WIDTH * v);
                    if (g == 0) a = mul(a, r[v]);
                    a = mul_add(to_floats(sum[i][v]), load_floats(scale[g] + WIDTH * v), a);
                    store_floats(acc + i * LANES + WIDTH * v, a);
                }
        }
    }
}

INLINE void attend_block(const block *b, const work *w, const chunk *c, int n_v, add_pairs_fn sum_pairs) {
    floats top[VECTORS], r[VECTORS];
    _Alignas(64) float scale[GROUPS][LANES];
    for (int v = 0; v < n_v; v++) top[v] = load_floats(b->m + WIDTH * v);
    if (b->is_masked)
        scores(b, w, c, top, n_v, true, sum_pairs);
    else
        scores(b, w, c, top, n_v, false, sum_pairs);
    for (int v = 0; v < n_v; v++) {
        floats old = load_floats(b->m + WIDTH * v), finite = larger(top[v], all_floats(-FLT_MAX));
        r[v] = exp_weight(sub(old, finite));
        floats l = mul(load_floats(b->l + WIDTH * v), r[v]);
        for (int g = 0; g < b->n / GROUP; g++) {
            float *s = w->s + g * GROUP * LANES + WIDTH * v;
            store_floats(scale[g] + WIDTH * v,
                         weights(w->w + g * PAIRS * LANES + WIDTH * v, s, c->v_scale + g * GROUP, finite, &l));
        }
        store_floats(b->m + WIDTH * v, top[v]);
        store_floats(b->l + WIDTH * v, l);
    }
    values(b, w, c, r, scale, n_v, sum_pairs);
}

INLINE void prompt_attend(const ig_prompt_tile *t, void *rows, int first, int n, add_pairs_fn sum_pairs) {
    work w = work_of(t);
    chunk c = chunk_of(rows, t->d);
    for (int i = 0; i < t->n_q; i += LANES) {
        const int32_t *begin = t->begin ? w.begin + i : NULL, *end = w.end + i;
        const seen rows_seen = see(begin, end, first, n);
        if (!rows_seen.n) continue;
        size_t at = (size_t)i * (size_t)t->d;
        block b = {.q = w.q + at / 2,
                   .begin = begin,
                   .end = end,
                   .q_scale = w.q_scale + i,
                   .m = w.m + i,
                   .l = w.l + i,
                   .acc = w.acc + at,
                   .d = t->d,
                   .first = first,
                   .n = rows_seen.n,
                   .is_masked = rows_seen.is_masked};
        if (t->n_q - i > WIDTH)
            attend_block(&b, &w, &c, 2, sum_pairs);
        else
            attend_block(&b, &w, &c, 1, sum_pairs);
    }
}

/* The functions of a level. */
#define PROMPT_FUNCTIONS(level, add_pairs)                                                     \
    static void prompt_begin_##level(const ig_prompt_tile *t) { prompt_begin(t); }             \
    static void prompt_end_##level(const ig_prompt_tile *t) { prompt_end(t); }                 \
    static void prompt_attend_##level(const ig_prompt_tile *t, void *rows, int first, int n) { \
        prompt_attend(t, rows, first, n, add_pairs);                                           \
    }
#define SET_PROMPT(k, level)                                                  \
    (k)->prompt_bytes = work_bytes, (k)->prompt_begin = prompt_begin_##level, \
    (k)->prompt_attend = prompt_attend_##level, (k)->prompt_end = prompt_end_##level

#endif
