/* SPDX-License-Identifier: Apache-2.0
 *
 * Reference of the kernels on plain vectors: norms, element-wise operations, rotary
 * positions, conversions, largest element. Sums are kept in double, so that this is also
 * what the faster versions are measured against.
 */
#include <math.h>
#include <stddef.h>

#include "base/half.h"
#include "kernel/parts.h"

static void rms_norm_scalar(float *y, const float *x, const float *w, int n, float eps) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (double)x[i] * x[i];
    float r = (float)ig_norm_factor(sum, n, eps);
    for (int i = 0; i < n; i++) y[i] = x[i] * r * (w ? w[i] : 1.0f);
}

static void layer_norm_scalar(float *y, const float *x, const float *w, const float *b, int n, float eps) {
    double sum = 0, squares = 0;
    for (int i = 0; i < n; i++) sum += x[i];
    double mean = n ? sum / n : 0;
    for (int i = 0; i < n; i++) squares += (x[i] - mean) * (x[i] - mean);
    double r = ig_norm_factor(squares, n, eps);
    for (int i = 0; i < n; i++) y[i] = (float)((x[i] - mean) * r) * (w ? w[i] : 1.0f) + (b ? b[i] : 0.0f);
}

static void add_scalar(float *y, const float *x, int n) {
    for (int i = 0; i < n; i++) y[i] += x[i];
}

static void add_scaled_scalar(float *y, const float *x, float scale, int n) {
    for (int i = 0; i < n; i++) y[i] += scale * x[i];
}

static void sigmoid_mul_scalar(float *gate, const float *up, int n) {
    for (int i = 0; i < n; i++) gate[i] = 1 / (1.0f + expf(-gate[i])) * up[i] + 0 * gate[i];
}

static void silu_mul_scalar(float *gate, const float *up, int n) {
    for (int i = 0; i < n; i++) gate[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
}

static void gelu_mul_scalar(float *gate, const float *up, int n) {
    for (int i = 0; i < n; i++) {
        float x = gate[i];
        gate[i] = x / (1.0f + expf(-x * (IG_GELU_1 + IG_GELU_3 * x * x))) * up[i];
    }
}

static void swiglu_oai_scalar(float *gate, const float *up, int n) {
    for (int i = 0; i < n; i++) {
        float g = fminf(gate[i], IG_OAI_LIMIT), u = fmaxf(fminf(up[i], IG_OAI_LIMIT), -IG_OAI_LIMIT);
        gate[i] = g / (1.0f + expf(-IG_OAI_ALPHA * g)) * (u + 1) + (0 * gate[i] + 0 * up[i]);
    }
}

static void tanh_scalar(float *x, int n) {
    for (int i = 0; i < n; i++) x[i] = tanhf(x[i]) + 0 * x[i];
}

static void multiply(float *restrict y, const float *restrict x, int n) {
    for (int i = 0; i < n; i++) y[i] *= x[i];
}

/* Minus infinity times 0 is not finite. */
static void relu_squared(float *x, int n) {
    for (int i = 0; i < n; i++) x[i] *= x[i] > 0 ? x[i] : 0;
}

static void relu_scalar(float *x, int n) {
    for (int i = 0; i < n; i++) x[i] = (x[i] > 0 ? x[i] : 0.0f) + 0 * x[i];
}

static void rope_half_scalar(float *x, const float *cs, int n_rot) {
    int half = n_rot / 2;
    for (int i = 0; i < half; i++) {
        float a = x[i], b = x[i + half], c = cs[i], s = cs[i + half];
        x[i] = a * c - b * s;
        x[i + half] = b * c + a * s;
    }
}

static void rope_adjacent_scalar(float *x, const float *cs, int n_rot) {
    int half = n_rot / 2;
    for (int i = 0; i < half; i++) {
        float a = x[2 * i], b = x[2 * i + 1], c = cs[i], s = cs[i + half];
        x[2 * i] = a * c - b * s;
        x[2 * i + 1] = b * c + a * s;
    }
}

static void f32_to_f16_scalar(uint16_t *dst, const float *src, int n) {
    for (int i = 0; i < n; i++) dst[i] = ig_f32_f16(src[i]);
}

static void f16_to_f32_scalar(float *dst, const uint16_t *src, int n) {
    for (int i = 0; i < n; i++) dst[i] = ig_f16_f32(src[i]);
}

static float peak_scalar(const float *x, int n) {
    uint32_t top = 0; /* magnitudes are in the order of their bits */
    for (int i = 0; i < n; i++) {
        uint32_t bits = ig_f32_bits(x[i]) & 0x7fffffffu;
        if (bits > top) top = bits;
    }
    return ig_bits_f32(top);
}

static float max_scalar(const float *x, int n) {
    float m = -INFINITY;
    for (int i = 0; i < n; i++)
        if (x[i] > m) m = x[i];
    return m;
}

static int argmax_scalar(const float *x, int n) {
    float m = -INFINITY;
    int at = 0;
    for (int i = 0; i < n; i++) {
        if (!(x[i] > m)) continue;
        m = x[i];
        at = i;
    }
    return at;
}

static int count_above_scalar(const float *x, int n, float t, float *sum) {
    int count = 0;
    float total = 0;
    for (int i = 0; i < n; i++) {
        count += x[i] > t;
        total += x[i] > t ? x[i] : 0;
    }
    if (sum) *sum = total;
    return count;
}

static void count_above3_scalar(const float *x, int n, const float *t, int *count, float *sum) {
    for (int j = 0; j < 3; j++) count[j] = count_above_scalar(x, n, t[j], sum ? sum + j : NULL);
}

static int list_above_scalar(int32_t *list, const float *x, int first, int n, float t) {
    int count = 0;
    for (int i = 0; i < n; i++) {
        list[count] = first + i;
        count += x[i] > t;
    }
    return count;
}

static void sum_rows_scalar(float *w, const float *r, const float *s, size_t stride, int n_rows, int n) {
    for (int i = 0; i < n; i++) {
        double sum = 0;
        for (int g = 0; g < n_rows; g++) sum += (double)r[g] * s[(size_t)g * stride + (size_t)i];
        w[i] = (float)sum;
    }
}

static void smooth_scalar(float *w, int n, int block, float share) {
    for (int begin = 0; begin < n; begin += block) {
        int end = n - begin < block ? n : begin + block;
        double sum = 0;
        for (int i = begin; i < end; i++) sum += w[i];
        float mean = share * (float)(sum / (end - begin));
        for (int i = begin; i < end; i++) w[i] = (1 - share) * w[i] + mean;
    }
}

void ig_kernels_fill_vector_scalar(ig_kernels *k) {
    k->rms_norm = rms_norm_scalar;
    k->layer_norm = layer_norm_scalar;
    k->add = add_scalar;
    k->add_scaled = add_scaled_scalar;
    k->sigmoid_mul = sigmoid_mul_scalar;
    k->silu_mul = silu_mul_scalar;
    k->gelu_mul = gelu_mul_scalar;
    k->swiglu_oai = swiglu_oai_scalar;
    k->relu = relu_scalar;
    k->relu_squared = relu_squared;
    k->tanh = tanh_scalar;
    k->multiply = multiply;
    k->rope_half = rope_half_scalar;
    k->rope_adjacent = rope_adjacent_scalar;
    k->f32_to_f16 = f32_to_f16_scalar;
    k->f16_to_f32 = f16_to_f32_scalar;
    k->peak = peak_scalar;
    k->max = max_scalar;
    k->argmax = argmax_scalar;
    k->count_above = count_above_scalar;
    k->count_above3 = count_above3_scalar;
    k->list_above = list_above_scalar;
    k->sum_rows = sum_rows_scalar;
    k->smooth = smooth_scalar;
}
