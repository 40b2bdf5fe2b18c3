/* SPDX-License-Identifier: Apache-2.0
 *
 * Reference of attention over 16-bit keys and values, of softmax, and of the 4-bit key
 * sketch. Loops say what is computed; the vector versions keep the same contract with
 * another order of summation.
 */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/half.h"
#include "kernel/parts.h"
#include "kernel/sketch.h"

static void attn_scores_scalar(float *scores, size_t stride, const float *q, int n_q, int d, float scale,
                               const uint16_t *const *k, int n) {
    for (int i = 0; i < n; i++) {
        for (int g = 0; g < n_q; g++) {
            float sum = 0;
            for (int j = 0; j < d; j++) sum += q[(size_t)g * d + j] * ig_f16_f32(k[i][j]);
            scores[g * stride + i] = scale * sum;
        }
    }
}

static float softmax_step_scalar(float *s, int n, float *m, float *l) {
    float old = *m, max = old, sum = 0;
    for (int i = 0; i < n; i++)
        if (s[i] > max) max = s[i];
    if (max == -INFINITY) {
        for (int i = 0; i < n; i++) s[i] = 0;
        return 0;
    }
    for (int i = 0; i < n; i++) sum += s[i] = expf(s[i] - max);
    float r = expf(old - max);
    *m = max;
    *l = *l * r + sum;
    return r;
}

static void attn_values_scalar(float *acc, const float *r, const float *p, size_t stride, int n_q, int d,
                               const uint16_t *const *v, int n) {
    for (int g = 0; g < n_q; g++) {
        float *a = acc + (size_t)g * d;
        for (int j = 0; j < d; j++) a[j] = r[g] == 0 ? 0.0f : a[j] * r[g];
        for (int i = 0; i < n; i++)
            for (int j = 0; j < d; j++) a[j] += p[g * stride + i] * ig_f16_f32(v[i][j]);
    }
}

static void softmax_add_scalar(float *w, const float *s, int n) {
    float max = -INFINITY;
    double sum = 0;
    for (int i = 0; i < n; i++)
        if (s[i] > max) max = s[i];
    if (max == -INFINITY) return;
    for (int i = 0; i < n; i++) sum += expf(s[i] - max);
    float r = (float)(1.0 / sum);
    for (int i = 0; i < n; i++) w[i] += expf(s[i] - max) * r;
}

/* Codes from the range of the key, then the line step * code + min that fits them best: the
 * second step costs little and takes off some of the error that rounding leaves. */
static void sketch_put_scalar(void *block, int t, const uint16_t *key, int d) {
    float lo = INFINITY, hi = -INFINITY;
    for (int i = 0; i < d; i++) {
        float x = ig_sketch_value(ig_f16_f32(key[i]));
        lo = x < lo ? x : lo;
        hi = x > hi ? x : hi;
    }
    float to_code = hi > lo ? 15.0f / (hi - lo) : 0.0f;
    uint8_t *codes = (uint8_t *)block + IG_SKETCH_CODES + 4 * t;
    ig_sketch_sums sums = {0};
    for (int i = 0; i < d; i++) {
        float x = ig_sketch_value(ig_f16_f32(key[i])) - lo;
        int code = (int)lrintf(x * to_code);
        uint8_t *at = codes + 64 * (i / 8) + i % 4;
        *at = (uint8_t)(i & 4 ? (*at & 15) | code << 4 : code);
        sums.c += code;
        sums.cc += code * code;
        sums.x += x;
        sums.cx += (float)code * x;
    }
    ig_sketch_finish(block, t, lo, &sums, d);
}

static void sketch_scores_scalar(float *scores, size_t stride, const float *q, int n_q, int d, float scale,
                                 const void *blocks, int n_blocks) {
    size_t block_bytes = ig_sketch_block_bytes(d);
    for (int g = 0; g < n_q; g++) {
        int8_t q8[IG_KV_DIMS];
        int q8_sum;
        float q_scale = ig_sketch_query(q8, &q8_sum, q + (size_t)g * d, d) * scale;
        for (int b = 0; b < n_blocks; b++) {
            const uint8_t *block = (const uint8_t *)blocks + (size_t)b * block_bytes;
            float line[2 * IG_SKETCH_TOKENS]; /* step, min */
            memcpy(line, block, sizeof line);
            for (int t = 0; t < IG_SKETCH_TOKENS; t++) {
                int sum = 0;
                for (int i = 0; i < d; i++) {
                    int pair = block[IG_SKETCH_CODES + 64 * (i / 8) + 4 * t + i % 4];
                    sum += q8[i] * (i & 4 ? pair >> 4 : pair & 15);
                }
                scores[g * stride + (size_t)b * IG_SKETCH_TOKENS + t] =
                    q_scale * (line[t] * (float)sum + line[IG_SKETCH_TOKENS + t] * (float)q8_sum);
            }
        }
    }
}

static void value_put_scalar(void *block, int t, const float *x, int d) {
    float squares = 0;
    for (int i = 0; i < d; i++) squares += ig_sketch_value(x[i]) * ig_sketch_value(x[i]);
    float far = ig_value_threshold(squares, d), xc = 0;
    for (int i = 0; i < d; i++) {
        float v = ig_sketch_value(x[i]);
        int code = (v >= 0) + (v >= far) + (v >= -far);
        xc += v * ((float)code - 1.5f);
        uint8_t *at = (uint8_t *)block + IG_VALUE_CODES + 4 * i + t % 4;
        *at = (uint8_t)((*at & ~(3 << t / 4 * 2)) | code << t / 4 * 2);
    }
    ig_value_finish(block, t, xc, squares);
}

/* The weights of a block's tokens, times their steps, in 1/255 of the largest, which is returned; 0 if it is too small
 * to count. */
static float value_weights(int w8[IG_SKETCH_TOKENS], const float *w, const uint8_t *block) {
    float share[IG_SKETCH_TOKENS], top = 0;
    for (int t = 0; t < IG_SKETCH_TOKENS; t++) {
        uint16_t step;
        memcpy(&step, block + 2 * t, sizeof step);
        share[t] = w[t] * ig_f16_f32(step);
        if (share[t] > top) top = share[t];
    }
    if (!(top > IG_VALUE_LEAST)) return 0;
    for (int t = 0; t < IG_SKETCH_TOKENS; t++) w8[t] = (int)rintf(share[t] * (255 / top));
    return top;
}

static void value_sums_scalar(float *acc, const float *w, size_t stride, int n_q, int d, const void *blocks,
                              int n_blocks) {
    for (int g = 0; g < n_q; g++) {
        const uint8_t *block = blocks;
        float *sum = acc + (size_t)g * (size_t)d;
        const float *row = w + (size_t)g * stride;
        for (int b = 0; b < n_blocks; b++, block += ig_value_sketch_block_bytes(d), row += IG_SKETCH_TOKENS) {
            int w8[IG_SKETCH_TOKENS];
            float top = value_weights(w8, row, block);
            if (top == 0) continue;
            for (int i = 0; i < d; i++) {
                int total = 0;
                for (int t = 0; t < IG_SKETCH_TOKENS; t++) {
                    int code = block[IG_VALUE_CODES + 4 * i + t % 4] >> t / 4 * 2 & 3;
                    total += w8[t] * (2 * code - 3);
                }
                sum[i] += top / 510 * (float)total;
            }
        }
    }
}

static void hadamard_scalar(float *x, int d) {
    int n = d & -d;
    float scale = 1 / sqrtf((float)n);
    for (float *end = x + d; x < end; x += n) {
        for (int half = 1; half < n; half *= 2)
            for (int i = 0; i < n; i++) {
                if (i & half) continue;
                float a = x[i], b = x[i + half];
                x[i] = a + b;
                x[i + half] = a - b;
            }
        for (int i = 0; i < n; i++) x[i] *= scale;
    }
}

void ig_kernels_fill_attention_scalar(ig_kernels *k) {
    k->attn_scores = attn_scores_scalar;
    k->softmax_step = softmax_step_scalar;
    k->attn_values = attn_values_scalar;
    k->softmax_add = softmax_add_scalar;
    k->sketch_put = sketch_put_scalar;
    k->sketch_scores = sketch_scores_scalar;
    k->value_put = value_put_scalar;
    k->value_sums = value_sums_scalar;
    k->hadamard = hadamard_scalar;
    ig_kernels_fill_packed_scalar(k);
}
