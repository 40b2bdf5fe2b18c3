/* SPDX-License-Identifier: Apache-2.0
 *
 * What choosing entries takes, for AVX2: weights from the exponentials of a group's scores, smoothed over blocks;
 * counts and lists of what lies above thresholds. Tails are left to plain loops.
 */
#include <stdbool.h>
#include <stddef.h>

#include "kernel/lanes_avx2.h"
#include "kernel/parts.h"

enum { MOST = 3 }; /* thresholds counted at a time */

/* How many of x are above each of n_t thresholds, and their sums. */
INLINE void count_each(const float *x, int n, const float *t, int n_t, int *counts, float *sums, bool with_sums) {
    __m256 total[MOST];
    __m256i found[MOST];
#pragma GCC unroll 3
    for (int j = 0; j < n_t; j++) total[j] = _mm256_setzero_ps(), found[j] = _mm256_setzero_si256();
    int whole = n / 8 * 8;
    for (int i = 0; i < whole; i += 8) {
        __m256 v = _mm256_loadu_ps(x + i);
        for (int j = 0; j < n_t; j++) {
            __m256 above = _mm256_cmp_ps(v, _mm256_set1_ps(t[j]), _CMP_GT_OQ);
            found[j] = _mm256_sub_epi32(found[j], _mm256_castps_si256(above));
            if (with_sums) total[j] = _mm256_add_ps(total[j], _mm256_and_ps(v, above));
        }
    }
#pragma GCC unroll 3
    for (int j = 0; j < n_t; j++) {
        int lanes[8];
        float rest = 0;
        _mm256_storeu_si256((void *)lanes, found[j]);
        counts[j] = 0;
        for (int i = 0; i < 8; i++) counts[j] += lanes[i];
        for (int i = whole; i < n; i++)
            if (x[i] > t[j]) counts[j]++, rest += x[i];
        if (with_sums) sums[j] = sum_lanes(total[j]) + rest;
    }
}

static int count_above_avx2(const float *x, int n, float t, float *sum) {
    int found;
    if (sum)
        count_each(x, n, &t, 1, &found, sum, true);
    else
        count_each(x, n, &t, 1, &found, NULL, false);
    return found;
}

static void count_above3_avx2(const float *x, int n, const float *t, int *counts, float *sums) {
    if (sums)
        count_each(x, n, t, MOST, counts, sums, true);
    else
        count_each(x, n, t, MOST, counts, NULL, false);
}

static int list_above_avx2(int32_t *list, const float *x, int first, int n, float t) {
    __m256 limit = _mm256_set1_ps(t);
    int i = 0, count = 0;
    for (; i + 8 <= n; i += 8) {
        unsigned above = (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(x + i), limit, _CMP_GT_OQ));
        for (; above; above &= above - 1) list[count++] = first + i + __builtin_ctz(above);
    }
    for (; i < n; i++)
        if (x[i] > t) list[count++] = first + i;
    return count;
}

static void sum_rows_avx2(float *w, const float *r, const float *s, size_t stride, int n_rows, int n) {
    int i = 0;
    for (; i + 32 <= n; i += 32) {
        __m256 sum[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
        for (int g = 0; g < n_rows; g++) {
            __m256 factor = _mm256_set1_ps(r[g]);
            const float *row = s + (size_t)g * stride + i;
            for (int j = 0; j < 4; j++) sum[j] = _mm256_fmadd_ps(factor, _mm256_loadu_ps(row + 8 * j), sum[j]);
        }
        for (int j = 0; j < 4; j++) _mm256_storeu_ps(w + i + 8 * j, sum[j]);
    }
    for (; i < n; i++) {
        float sum = 0;
        for (int g = 0; g < n_rows; g++) sum += r[g] * s[(size_t)g * stride + (size_t)i];
        w[i] = sum;
    }
}

/* The sum of the lanes, in all of them. */
static inline __m256 sum_everywhere(__m256 x) {
    x = _mm256_add_ps(x, _mm256_permute_ps(x, 0xb1));
    x = _mm256_add_ps(x, _mm256_permute_ps(x, 0x4e));
    return _mm256_add_ps(x, _mm256_permute2f128_ps(x, x, 1));
}

static void smooth_avx2(float *w, int n, int block, float share) {
    int whole = block % 8 == 0 ? n / block * block : 0;
    __m256 keep = _mm256_set1_ps(1 - share), part = _mm256_set1_ps(share / (float)block);
    for (int begin = 0; begin < whole; begin += block) {
        __m256 sum = _mm256_setzero_ps();
        for (int i = begin; i < begin + block; i += 8) sum = _mm256_add_ps(sum, _mm256_loadu_ps(w + i));
        sum = _mm256_mul_ps(sum_everywhere(sum), part);
        for (int i = begin; i < begin + block; i += 8)
            _mm256_storeu_ps(w + i, _mm256_fmadd_ps(_mm256_loadu_ps(w + i), keep, sum));
    }
    ig_kernels_get(IG_CPU_SCALAR)->smooth(w + whole, n - whole, block, share);
}

void ig_kernels_fill_choice_avx2(ig_kernels *k) {
    k->count_above = count_above_avx2;
    k->count_above3 = count_above3_avx2;
    k->list_above = list_above_avx2;
    k->sum_rows = sum_rows_avx2;
    k->smooth = smooth_avx2;
}
