/* SPDX-License-Identifier: Apache-2.0
 *
 * What choosing entries takes, for NEON: weights from the exponentials of a group's scores, smoothed over blocks;
 * counts and lists of what lies above thresholds. Tails are left to plain loops.
 */
#include <stdbool.h>
#include <stddef.h>

#include "kernel/lanes_neon.h"
#include "kernel/parts.h"

enum { MOST = 3 }; /* thresholds counted at a time */

/* How many of x are above each of n_t thresholds, and their sums. */
INLINE void count_each(const float *x, int n, const float *t, int n_t, int *counts, float *sums, bool with_sums) {
    float32x4_t total[MOST];
    uint32x4_t found[MOST];
    for (int j = 0; j < n_t; j++) total[j] = vdupq_n_f32(0), found[j] = vdupq_n_u32(0);
    int whole = n / 4 * 4;
    for (int i = 0; i < whole; i += 4) {
        float32x4_t v = vld1q_f32(x + i);
        for (int j = 0; j < n_t; j++) {
            uint32x4_t above = vcgtq_f32(v, vdupq_n_f32(t[j]));
            found[j] = vsubq_u32(found[j], above);
            if (with_sums) total[j] = vaddq_f32(total[j], where(above, v));
        }
    }
    for (int j = 0; j < n_t; j++) {
        float rest = 0;
        counts[j] = (int)vaddvq_u32(found[j]);
        for (int i = whole; i < n; i++)
            if (x[i] > t[j]) counts[j]++, rest += x[i];
        if (with_sums) sums[j] = vaddvq_f32(total[j]) + rest;
    }
}

static int count_above_neon(const float *x, int n, float t, float *sum) {
    int found;
    if (sum)
        count_each(x, n, &t, 1, &found, sum, true);
    else
        count_each(x, n, &t, 1, &found, NULL, false);
    return found;
}

static void count_above3_neon(const float *x, int n, const float *t, int *counts, float *sums) {
    if (sums)
        count_each(x, n, t, MOST, counts, sums, true);
    else
        count_each(x, n, t, MOST, counts, NULL, false);
}

/* Few are above: most stretches of 8 are passed over at once. */
static int list_above_neon(int32_t *list, const float *x, int first, int n, float t) {
    float32x4_t limit = vdupq_n_f32(t);
    int count = 0;
    for (int i = 0; i < n; i += 8) {
        int end = n - i < 8 ? n : i + 8;
        if (end == i + 8) {
            uint32x4_t above = vorrq_u32(vcgtq_f32(vld1q_f32(x + i), limit), vcgtq_f32(vld1q_f32(x + i + 4), limit));
            if (!vmaxvq_u32(above)) continue;
        }
        for (int j = i; j < end; j++) {
            list[count] = first + j;
            count += x[j] > t;
        }
    }
    return count;
}

static void sum_rows_neon(float *w, const float *r, const float *s, size_t stride, int n_rows, int n) {
    int i = 0;
    for (; i + 16 <= n; i += 16) {
        float32x4_t sum[4] = {vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)};
        for (int g = 0; g < n_rows; g++)
            for (int j = 0; j < 4; j++)
                sum[j] = vfmaq_n_f32(sum[j], vld1q_f32(s + (size_t)g * stride + i + 4 * j), r[g]);
        for (int j = 0; j < 4; j++) vst1q_f32(w + i + 4 * j, sum[j]);
    }
    for (; i < n; i++) {
        float sum = 0;
        for (int g = 0; g < n_rows; g++) sum += r[g] * s[(size_t)g * stride + (size_t)i];
        w[i] = sum;
    }
}

static void smooth_neon(float *w, int n, int block, float share) {
    int whole = block % 4 == 0 ? n / block * block : 0;
    float part = share / (float)block;
    for (int begin = 0; begin < whole; begin += block) {
        float32x4_t sum = vdupq_n_f32(0);
        for (int i = begin; i < begin + block; i += 4) sum = vaddq_f32(sum, vld1q_f32(w + i));
        float32x4_t mean = vdupq_n_f32(vaddvq_f32(sum) * part);
        for (int i = begin; i < begin + block; i += 4) vst1q_f32(w + i, vfmaq_n_f32(mean, vld1q_f32(w + i), 1 - share));
    }
    ig_kernels_get(IG_CPU_SCALAR)->smooth(w + whole, n - whole, block, share);
}

void ig_kernels_fill_choice_neon(ig_kernels *k) {
    k->count_above = count_above_neon;
    k->count_above3 = count_above3_neon;
    k->list_above = list_above_neon;
    k->sum_rows = sum_rows_neon;
    k->smooth = smooth_neon;
}
