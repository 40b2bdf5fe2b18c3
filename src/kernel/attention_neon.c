/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention and softmax for NEON: scores in tiles of 4 queries x 4 keys with dims in the lanes, values in tiles of 4
 * queries x 16 dims. Rows are converted as they are used, whatever the number of queries: a tile's four queries share
 * what is converted.
 */
#include <math.h>

#include "kernel/lanes_neon.h"
#include "kernel/parts.h"

enum {
    TILE = 4,       /* queries and keys of a tile */
    QUADS = 4,      /* vectors of dims of a tile of values */
    AHEAD = 16,     /* rows from the one in use to the one prefetched */
    BLOCK_ROWS = 64 /* rows used for all queries before the next */
};

/* ---- scores -------------------------------------------------------------------- */

/* n_q (1..4) queries with 4 keys, n of which are stored. */
INLINE void scores_tile(float *scores, size_t stride, const float *q, int n_q, int d, float scale,
                        const uint16_t *const k[TILE], int n) {
    float32x4_t acc[TILE][TILE];
#pragma GCC unroll 4 /* here and below, or the sums are kept in memory */
    for (int g = 0; g < n_q; g++)
#pragma GCC unroll 4
        for (int i = 0; i < TILE; i++) acc[g][i] = vdupq_n_f32(0);
    for (int j = 0; j < d; j += 4) {
        float32x4_t x[TILE];
#pragma GCC unroll 4
        for (int g = 0; g < n_q; g++) x[g] = vld1q_f32(q + (size_t)g * (size_t)d + j);
#pragma GCC unroll 4
        for (int i = 0; i < TILE; i++) {
            float32x4_t key = load_f16(k[i] + j);
#pragma GCC unroll 4
            for (int g = 0; g < n_q; g++) acc[g][i] = vfmaq_f32(acc[g][i], x[g], key);
        }
    }
#pragma GCC unroll 4
    for (int g = 0; g < n_q; g++) {
        const float32x4_t *a = acc[g];
        float32x4_t sums = vpaddq_f32(vpaddq_f32(a[0], a[1]), vpaddq_f32(a[2], a[3]));
        store_first(scores + (size_t)g * stride, vmulq_n_f32(sums, scale), n);
    }
}

INLINE void prefetch_row(const uint16_t *row, int d) {
    for (int j = 0; j < d; j += 32) __builtin_prefetch(row + j);
}

static void attn_scores_neon(float *scores, size_t stride, const float *q, int n_q, int d, float scale,
                             const uint16_t *const *k, int n) {
    for (int i = 0; i < n; i += TILE) {
        const uint16_t *rows[TILE];
        for (int j = 0; j < TILE; j++) {
            rows[j] = k[i + j < n ? i + j : n - 1];
            if (i + j + AHEAD < n) prefetch_row(k[i + j + AHEAD], d);
        }
        for (int g = 0; g < n_q; g += TILE) {
            float *out = scores + (size_t)g * stride + i;
            const float *x = q + (size_t)g * (size_t)d;
            switch (n_q - g) {
                case 1:
                    scores_tile(out, stride, x, 1, d, scale, rows, n - i);
                    break;
                case 2:
                    scores_tile(out, stride, x, 2, d, scale, rows, n - i);
                    break;
                case 3:
                    scores_tile(out, stride, x, 3, d, scale, rows, n - i);
                    break;
                default:
                    scores_tile(out, stride, x, TILE, d, scale, rows, n - i);
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
    int d, n, n_left; /* n rows of the block; rows from its first to the last of all */
    const uint16_t *const *v;
} values_job;

INLINE void values_tile(const values_job *w, float *acc, int g0, int n_q, int j, int n_v) {
    float32x4_t a[TILE][QUADS];
    float *at = acc + (size_t)g0 * (size_t)w->d + j;
    for (int g = 0; g < n_q; g++)
        for (int x = 0; x < n_v; x++) {
            float32x4_t v = vld1q_f32(at + (size_t)g * (size_t)w->d + 4 * x);
            if (w->r) v = w->r[g0 + g] == 0 ? vdupq_n_f32(0) : vmulq_n_f32(v, w->r[g0 + g]);
            a[g][x] = v;
        }
    const float *p = w->p + (size_t)g0 * w->stride;
    for (int i = 0; i < w->n; i++) {
        float32x4_t v[QUADS];
        for (int x = 0; x < n_v; x++) v[x] = load_f16(w->v[i] + j + 4 * x);
        if (g0 == 0 && j % 32 == 0 && i + AHEAD < w->n_left) __builtin_prefetch(w->v[i + AHEAD] + j);
        for (int g = 0; g < n_q; g++)
            for (int x = 0; x < n_v; x++) a[g][x] = vfmaq_n_f32(a[g][x], v[x], p[(size_t)g * w->stride + i]);
    }
    for (int g = 0; g < n_q; g++)
        for (int x = 0; x < n_v; x++) vst1q_f32(at + (size_t)g * (size_t)w->d + 4 * x, a[g][x]);
}

INLINE void values_wide(const values_job *w, float *acc, int g0, int n_q) {
    int j = 0;
    for (; j + 4 * QUADS <= w->d; j += 4 * QUADS) values_tile(w, acc, g0, n_q, j, QUADS);
    if (j < w->d) values_tile(w, acc, g0, n_q, j, QUADS / 2);
}

static void values_block(const values_job *w, float *acc, int n_q) {
    for (int g = 0; g < n_q; g += TILE) switch (n_q - g) {
            case 1:
                values_wide(w, acc, g, 1);
                break;
            case 2:
                values_wide(w, acc, g, 2);
                break;
            case 3:
                values_wide(w, acc, g, 3);
                break;
            default:
                values_wide(w, acc, g, TILE);
        }
}

static void attn_values_neon(float *acc, const float *r, const float *p, size_t stride, int n_q, int d,
                             const uint16_t *const *v, int n) {
    int i = 0;
    do {
        int rows = n - i < BLOCK_ROWS ? n - i : BLOCK_ROWS;
        values_job w = {
            .r = i ? NULL : r, .p = p + i, .stride = stride, .d = d, .n = rows, .n_left = n - i, .v = v + i};
        values_block(&w, acc, n_q);
        i += BLOCK_ROWS;
    } while (i < n);
}

/* ---- softmax ------------------------------------------------------------------- */

/* The exponentials of four scores less the largest; beyond the first n of them those of -INFINITY. */
static float32x4_t exp_first(const float *s, float max, int n) {
    return exp_negative(vsubq_f32(load_first(s, n, -INFINITY), vdupq_n_f32(max)));
}

static float softmax_step_neon(float *s, int n, float *m, float *l) {
    float old = *m, max = fmaxf(old, largest(s, n));
    if (max == -INFINITY) {
        for (int i = 0; i < n; i++) s[i] = 0;
        return 0;
    }
    float32x4_t sum[4] = {vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)};
    int i = 0;
    for (; i + 16 <= n; i += 16)
        for (int j = 0; j < 4; j++) {
            float32x4_t e = exp_first(s + i + 4 * j, max, 4);
            vst1q_f32(s + i + 4 * j, e);
            sum[j] = vaddq_f32(sum[j], e);
        }
    for (int j = 0; i < n; i += 4, j++) { /* as if more scores followed */
        float32x4_t e = exp_first(s + i, max, n - i);
        store_first(s + i, e, n - i);
        sum[j] = vaddq_f32(sum[j], e);
    }
    float r = expf(old - max);
    *m = max;
    *l = *l * r + vaddvq_f32(sum4(sum));
    return r;
}

static void softmax_add_neon(float *w, const float *s, int n) {
    float max = largest(s, n);
    if (max == -INFINITY) return;
    float32x4_t sum[4] = {vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)};
    int i = 0;
    for (; i + 16 <= n; i += 16)
        for (int j = 0; j < 4; j++) sum[j] = vaddq_f32(sum[j], exp_first(s + i + 4 * j, max, 4));
    for (; i < n; i += 4) sum[0] = vaddq_f32(sum[0], exp_first(s + i, max, n - i));
    float r = 1.0f / vaddvq_f32(sum4(sum));
    for (i = 0; i < n; i += 4)
        store_first(w + i, vfmaq_n_f32(load_first(w + i, n - i, 0), exp_first(s + i, max, n - i), r), n - i);
}

void ig_kernels_fill_attention_neon(ig_kernels *k) {
    k->attn_scores = attn_scores_neon;
    k->softmax_step = softmax_step_neon;
    k->attn_values = attn_values_neon;
    k->softmax_add = softmax_add_neon;
    ig_kernels_fill_sketch_neon(k);
    ig_kernels_fill_packed_neon(k);
}
