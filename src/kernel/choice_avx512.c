/* SPDX-License-Identifier: Apache-2.0
 *
 * What choosing entries takes, for AVX-512: weights from the exponentials of a group's scores, smoothed over blocks;
 * counts and lists of what lies above thresholds. The rows are longer than the first-level cache, so what matters is to
 * pass over them seldom. Tails are under a mask.
 */
#include <stdbool.h>
#include <stddef.h>

#include "kernel/lanes_avx512.h"
#include "kernel/parts.h"

enum { MOST = 3 }; /* thresholds counted at a time */

/* What lies above thresholds, by lanes. */
typedef struct counter {
    __m512 limit[MOST], total[MOST];
    __m512i found[MOST];
} counter;

INLINE void add_above(counter *a, int n_t, __mmask16 lanes, __m512 x, bool with_sums) {
    for (int j = 0; j < n_t; j++) {
        __mmask16 is_above = _mm512_mask_cmp_ps_mask(lanes, x, a->limit[j], _CMP_GT_OQ);
        a->found[j] = _mm512_mask_add_epi32(a->found[j], is_above, a->found[j], _mm512_set1_epi32(1));
        if (with_sums) a->total[j] = _mm512_mask_add_ps(a->total[j], is_above, a->total[j], x);
    }
}

/* How many of x are above each of n_t thresholds, and their sums. */
INLINE void count_each(const float *x, int n, const float *t, int n_t, int *counts, float *sums, bool with_sums) {
    counter a;
    int i = 0;
#pragma GCC unroll 3
    for (int j = 0; j < n_t; j++) {
        a.limit[j] = _mm512_set1_ps(t[j]);
        a.total[j] = _mm512_setzero_ps();
        a.found[j] = _mm512_setzero_si512();
    }
    for (; i + 16 <= n; i += 16) add_above(&a, n_t, 0xffff, _mm512_loadu_ps(x + i), with_sums);
    __mmask16 lanes = first_lanes(n - i);
    add_above(&a, n_t, lanes, _mm512_maskz_loadu_ps(lanes, x + i), with_sums);
#pragma GCC unroll 3
    for (int j = 0; j < n_t; j++) {
        counts[j] = _mm512_reduce_add_epi32(a.found[j]);
        if (with_sums) sums[j] = _mm512_reduce_add_ps(a.total[j]);
    }
}

static int count_above_avx512(const float *x, int n, float t, float *sum) {
    int found;
    if (sum)
        count_each(x, n, &t, 1, &found, sum, true);
    else
        count_each(x, n, &t, 1, &found, NULL, false);
    return found;
}

static void count_above3_avx512(const float *x, int n, const float *t, int *counts, float *sums) {
    if (sums)
        count_each(x, n, t, MOST, counts, sums, true);
    else
        count_each(x, n, t, MOST, counts, NULL, false);
}

static int list_above_avx512(int32_t *list, const float *x, int first, int n, float t) {
    __m512 limit = _mm512_set1_ps(t);
    __m512i at = _mm512_add_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                                  _mm512_set1_epi32(first));
    int count = 0;
    for (int i = 0; i < n; i += 16) {
        __mmask16 lanes = n - i < 16 ? first_lanes(n - i) : 0xffff;
        __mmask16 above = _mm512_mask_cmp_ps_mask(lanes, _mm512_maskz_loadu_ps(lanes, x + i), limit, _CMP_GT_OQ);
        int found = __builtin_popcount(above);
        /* Compressed in a register and stored under a mask: compressing stores are slow on some CPUs. */
        _mm512_mask_storeu_epi32(list + count, first_lanes(found), _mm512_maskz_compress_epi32(above, at));
        at = _mm512_add_epi32(at, _mm512_set1_epi32(16));
        count += found;
    }
    return count;
}

static void sum_rows_avx512(float *w, const float *r, const float *s, size_t stride, int n_rows, int n) {
    int i = 0;
    for (; i + 64 <= n; i += 64) {
        __m512 sum[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps()};
        for (int g = 0; g < n_rows; g++) {
            __m512 factor = _mm512_set1_ps(r[g]);
            const float *row = s + (size_t)g * stride + i;
            for (int j = 0; j < 4; j++) sum[j] = _mm512_fmadd_ps(factor, _mm512_loadu_ps(row + 16 * j), sum[j]);
        }
        for (int j = 0; j < 4; j++) _mm512_storeu_ps(w + i + 16 * j, sum[j]);
    }
    for (; i < n; i += 16) {
        __mmask16 lanes = first_lanes(n - i < 16 ? n - i : 16);
        __m512 sum = _mm512_setzero_ps();
        for (int g = 0; g < n_rows; g++)
            sum = _mm512_fmadd_ps(_mm512_set1_ps(r[g]), _mm512_maskz_loadu_ps(lanes, s + (size_t)g * stride + i), sum);
        _mm512_mask_storeu_ps(w + i, lanes, sum);
    }
}

/* The sum of each half's lanes, in all of them. */
static inline __m512 sum_halves(__m512 x) {
    x = _mm512_add_ps(x, _mm512_permute_ps(x, 0xb1));
    x = _mm512_add_ps(x, _mm512_permute_ps(x, 0x4e));
    return _mm512_add_ps(x, _mm512_shuffle_f32x4(x, x, 0xb1));
}

/* Whole blocks; block 8, or a multiple of 16. */
static void smooth_blocks(float *w, int n, int block, float share) {
    __m512 keep = _mm512_set1_ps(1 - share), part = _mm512_set1_ps(share / (float)block);
    if (block == 8) {
        int i = 0;
        for (; i + 16 <= n; i += 16) {
            __m512 x = _mm512_loadu_ps(w + i);
            _mm512_storeu_ps(w + i, _mm512_fmadd_ps(sum_halves(x), part, _mm512_mul_ps(x, keep)));
        }
        __mmask16 lanes = first_lanes(n - i);
        __m512 x = _mm512_maskz_loadu_ps(lanes, w + i);
        _mm512_mask_storeu_ps(w + i, lanes, _mm512_fmadd_ps(sum_halves(x), part, _mm512_mul_ps(x, keep)));
        return;
    }
    for (int begin = 0; begin < n; begin += block) {
        __m512 sum = _mm512_setzero_ps();
        for (int i = begin; i < begin + block; i += 16) sum = _mm512_add_ps(sum, _mm512_loadu_ps(w + i));
        sum = sum_halves(sum);
        sum = _mm512_mul_ps(_mm512_add_ps(sum, _mm512_shuffle_f32x4(sum, sum, 0x4e)), part);
        for (int i = begin; i < begin + block; i += 16)
            _mm512_storeu_ps(w + i, _mm512_fmadd_ps(_mm512_loadu_ps(w + i), keep, sum));
    }
}

static void smooth_avx512(float *w, int n, int block, float share) {
    int whole = block == 8 || block % 16 == 0 ? n / block * block : 0;
    smooth_blocks(w, whole, block, share);
    ig_kernels_get(IG_CPU_SCALAR)->smooth(w + whole, n - whole, block, share);
}

void ig_kernels_fill_choice_avx512(ig_kernels *k) {
    k->count_above = count_above_avx512;
    k->count_above3 = count_above3_avx512;
    k->list_above = list_above_avx512;
    k->sum_rows = sum_rows_avx512;
    k->smooth = smooth_avx512;
}
