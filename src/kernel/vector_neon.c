/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels on plain vectors for NEON: 4 floats at a time, then the tail. Sums use four accumulators, which both hides
 * latency and keeps rounding errors small.
 */
#include <math.h>

#include "base/half.h"
#include "kernel/lanes_neon.h"
#include "kernel/parts.h"

/* The sum of (x[i] - mean)^2. */
static float sum_squares(const float *x, int n, float mean) {
    float32x4_t s[4] = {vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)}, m = vdupq_n_f32(mean);
    int i = 0;
    for (; i + 16 <= n; i += 16)
        for (int j = 0; j < 4; j++) {
            float32x4_t v = vsubq_f32(vld1q_f32(x + i + 4 * j), m);
            s[j] = vfmaq_f32(s[j], v, v);
        }
    for (; i < n; i += 4) {
        float32x4_t v = vsubq_f32(load_first(x + i, n - i, mean), m);
        s[0] = vfmaq_f32(s[0], v, v);
    }
    return vaddvq_f32(sum4(s));
}

/* The sum of x[i] - mean. */
static float sum_elements(const float *x, int n, float mean) {
    float32x4_t s[4] = {vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)}, m = vdupq_n_f32(mean);
    int i = 0;
    for (; i + 16 <= n; i += 16)
        for (int j = 0; j < 4; j++) s[j] = vaddq_f32(s[j], vsubq_f32(vld1q_f32(x + i + 4 * j), m));
    for (; i < n; i += 4) s[0] = vaddq_f32(s[0], vsubq_f32(load_first(x + i, n - i, mean), m));
    return vaddvq_f32(sum4(s));
}

static void rms_norm_neon(float *y, const float *x, const float *w, int n, float eps) {
    if (n <= 0) return;
    float r = (float)ig_norm_factor((double)sum_squares(x, n, 0), n, eps);
    int i = 0;
    for (; i + 4 <= n; i += 4) {
        float32x4_t v = vmulq_n_f32(vld1q_f32(x + i), r);
        vst1q_f32(y + i, w ? vmulq_f32(v, vld1q_f32(w + i)) : v);
    }
    for (; i < n; i++) y[i] = x[i] * r * (w ? w[i] : 1.0f);
}

static void layer_norm_neon(float *y, const float *x, const float *w, const float *b, int n, float eps) {
    if (n <= 0) return;
    /* 1 / std may be large: the second step takes the rounding of a long sum off the mean. */
    float mean = sum_elements(x, n, 0) / (float)n;
    mean += sum_elements(x, n, mean) / (float)n;
    float r = (float)ig_norm_factor((double)sum_squares(x, n, mean), n, eps);
    int i = 0;
    for (; i + 4 <= n; i += 4) {
        float32x4_t v = vmulq_n_f32(vsubq_f32(vld1q_f32(x + i), vdupq_n_f32(mean)), r);
        if (w) v = vmulq_f32(v, vld1q_f32(w + i));
        if (b) v = vaddq_f32(v, vld1q_f32(b + i));
        vst1q_f32(y + i, v);
    }
    for (; i < n; i++) y[i] = (x[i] - mean) * r * (w ? w[i] : 1.0f) + (b ? b[i] : 0.0f);
}

static void add_neon(float *y, const float *x, int n) {
    int i = 0;
    for (; i + 4 <= n; i += 4) vst1q_f32(y + i, vaddq_f32(vld1q_f32(y + i), vld1q_f32(x + i)));
    for (; i < n; i++) y[i] += x[i];
}

static void add_scaled_neon(float *y, const float *x, float scale, int n) {
    int i = 0;
    for (; i + 4 <= n; i += 4) vst1q_f32(y + i, vfmaq_n_f32(vld1q_f32(y + i), vld1q_f32(x + i), scale));
    for (; i < n; i++) y[i] += scale * x[i];
}

/* gate / (1 + exp(-at)) * up */
static float32x4_t gate_lanes(float32x4_t gate, float32x4_t at, float32x4_t up) {
    float32x4_t e = exp_lanes(vnegq_f32(at));
    return vmulq_f32(vdivq_f32(gate, vaddq_f32(vdupq_n_f32(1.0f), e)), up);
}

static float32x4_t silu_mul(float32x4_t gate, float32x4_t up) { return gate_lanes(gate, gate, up); }
static float32x4_t sigmoid_mul(float32x4_t gate, float32x4_t up) {
    return vaddq_f32(gate_lanes(vdupq_n_f32(1.0f), gate, up), vmulq_n_f32(gate, 0));
}

static float32x4_t gelu_mul(float32x4_t gate, float32x4_t up) {
    float32x4_t third = vmulq_f32(vdupq_n_f32(IG_GELU_3), gate);
    return gate_lanes(gate, vmulq_f32(gate, vfmaq_f32(vdupq_n_f32(IG_GELU_1), third, gate)), up);
}

static float32x4_t swiglu_oai(float32x4_t gate, float32x4_t up) {
    float32x4_t limit = vdupq_n_f32(IG_OAI_LIMIT), least = vdupq_n_f32(-IG_OAI_LIMIT);
    float32x4_t lost = vmlaq_n_f32(vmulq_n_f32(up, 0), gate, 0), g = vminq_f32(gate, limit);
    float32x4_t more = vaddq_f32(vmaxq_f32(vminq_f32(up, limit), least), vdupq_n_f32(1.0f));
    return vaddq_f32(gate_lanes(g, vmulq_n_f32(g, IG_OAI_ALPHA), more), lost);
}

/* 2 / (1 + exp(-2x)) - 1; of `same` there is nothing. */
static float32x4_t tanh_lanes(float32x4_t x, float32x4_t same) {
    float32x4_t one = vdupq_n_f32(1.0f), twice = gate_lanes(vdupq_n_f32(2.0f), vaddq_f32(x, x), one);
    (void)same;
    return vfmaq_n_f32(vsubq_f32(twice, one), x, 0);
}

static inline void multiply_gates(float *gate, const float *up, int n, float32x4_t (*of)(float32x4_t, float32x4_t)) {
    int i = 0;
    for (; i + 4 <= n; i += 4) vst1q_f32(gate + i, of(vld1q_f32(gate + i), vld1q_f32(up + i)));
    if (i < n) store_first(gate + i, of(load_first(gate + i, n - i, 0), load_first(up + i, n - i, 0)), n - i);
}

static void sigmoid_mul_neon(float *gate, const float *up, int n) { multiply_gates(gate, up, n, sigmoid_mul); }
static void silu_mul_neon(float *gate, const float *up, int n) { multiply_gates(gate, up, n, silu_mul); }
static void gelu_mul_neon(float *gate, const float *up, int n) { multiply_gates(gate, up, n, gelu_mul); }
static void swiglu_oai_neon(float *gate, const float *up, int n) { multiply_gates(gate, up, n, swiglu_oai); }
static void tanh_neon(float *x, int n) { multiply_gates(x, x, n, tanh_lanes); }

static void relu_neon(float *x, int n) {
    float32x4_t zero = vdupq_n_f32(0);
    int i = 0;
    for (; i + 4 <= n; i += 4) {
        float32x4_t v = vld1q_f32(x + i);
        vst1q_f32(x + i, vfmaq_f32(vmaxq_f32(v, zero), v, zero));
    }
    for (; i < n; i++) x[i] = (x[i] > 0 ? x[i] : 0.0f) + 0 * x[i];
}

static void rope_half_neon(float *x, const float *cs, int n_rot) {
    int half = n_rot / 2, i = 0;
    for (; i + 4 <= half; i += 4) {
        float32x4_t a = vld1q_f32(x + i), b = vld1q_f32(x + half + i);
        float32x4_t c = vld1q_f32(cs + i), s = vld1q_f32(cs + half + i);
        vst1q_f32(x + i, vfmsq_f32(vmulq_f32(a, c), b, s));
        vst1q_f32(x + half + i, vfmaq_f32(vmulq_f32(b, c), a, s));
    }
    for (; i < half; i++) {
        float a = x[i], b = x[i + half], c = cs[i], s = cs[i + half];
        x[i] = a * c - b * s;
        x[i + half] = b * c + a * s;
    }
}

static void rope_adjacent_neon(float *x, const float *cs, int n_rot) {
    int half = n_rot / 2, i = 0;
    for (; i + 4 <= half; i += 4) {
        float32x4x2_t v = vld2q_f32(x + 2 * i);
        float32x4_t a = v.val[0], b = v.val[1], c = vld1q_f32(cs + i), s = vld1q_f32(cs + half + i);
        v.val[0] = vfmsq_f32(vmulq_f32(a, c), b, s);
        v.val[1] = vfmaq_f32(vmulq_f32(b, c), a, s);
        vst2q_f32(x + 2 * i, v);
    }
    for (; i < half; i++) {
        float a = x[2 * i], b = x[2 * i + 1], c = cs[i], s = cs[i + half];
        x[2 * i] = a * c - b * s;
        x[2 * i + 1] = b * c + a * s;
    }
}

static void f32_to_f16_neon(uint16_t *dst, const float *src, int n) {
    int i = 0;
    for (; i + 4 <= n; i += 4) store_f16(dst + i, vld1q_f32(src + i));
    for (; i < n; i++) dst[i] = ig_f32_f16(src[i]);
}

static void f16_to_f32_neon(float *dst, const uint16_t *src, int n) {
    int i = 0;
    for (; i + 4 <= n; i += 4) vst1q_f32(dst + i, load_f16(src + i));
    for (; i < n; i++) dst[i] = ig_f16_f32(src[i]);
}

/* Magnitudes are in the order of their bits. */
static float peak_neon(const float *x, int n) {
    uint32x4_t m[2] = {vdupq_n_u32(0), vdupq_n_u32(0)};
    int i = 0;
    for (; i + 8 <= n; i += 8)
        for (int j = 0; j < 2; j++) m[j] = vmaxq_u32(m[j], vreinterpretq_u32_f32(vabsq_f32(vld1q_f32(x + i + 4 * j))));
    for (; i < n; i += 4) m[0] = vmaxq_u32(m[0], vreinterpretq_u32_f32(vabsq_f32(load_first(x + i, n - i, 0))));
    return ig_bits_f32(vmaxvq_u32(vmaxq_u32(m[0], m[1])));
}

static float max_neon(const float *x, int n) { return largest(x, n); }

/* Two passes, the largest value and then its first place, are faster than carrying indices along. */
static int argmax_neon(const float *x, int n) {
    float m = largest(x, n);
    if (m == -INFINITY) return 0;
    int i = 0;
    while (i + 4 <= n && !vmaxvq_u32(vceqq_f32(vld1q_f32(x + i), vdupq_n_f32(m)))) i += 4;
    while (i < n && x[i] != m) i++;
    return i;
}

void ig_kernels_fill_vector_neon(ig_kernels *k) {
    k->rms_norm = rms_norm_neon;
    k->layer_norm = layer_norm_neon;
    k->add = add_neon;
    k->add_scaled = add_scaled_neon;
    k->sigmoid_mul = sigmoid_mul_neon;
    k->silu_mul = silu_mul_neon;
    k->gelu_mul = gelu_mul_neon;
    k->tanh = tanh_neon;
    k->swiglu_oai = swiglu_oai_neon;
    k->relu = relu_neon;
    k->rope_half = rope_half_neon;
    k->rope_adjacent = rope_adjacent_neon;
    k->f32_to_f16 = f32_to_f16_neon;
    k->f16_to_f32 = f16_to_f32_neon;
    k->peak = peak_neon;
    k->max = max_neon;
    k->argmax = argmax_neon;
    ig_kernels_fill_choice_neon(k);
}
