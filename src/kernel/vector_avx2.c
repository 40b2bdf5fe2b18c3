/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels on plain vectors for AVX2: 8 floats at a time, then the tail under a mask. Sums use
 * four accumulators, which both hides latency and keeps rounding errors small.
 */
#include <math.h>

#include "base/half.h"
#include "kernel/lanes_avx2.h"
#include "kernel/parts.h"

/* The sum of (x[i] - mean)^2. */
static float sum_squares(const float *x, int n, float mean) {
    __m256 s[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
    __m256 m = _mm256_set1_ps(mean);
    int i = 0;
    for (; i + 32 <= n; i += 32) {
        for (int j = 0; j < 4; j++) {
            __m256 v = _mm256_sub_ps(_mm256_loadu_ps(x + i + 8 * j), m);
            s[j] = _mm256_fmadd_ps(v, v, s[j]);
        }
    }
    for (; i < n; i += 8) {
        __m256i lanes = first_lanes(n - i);
        __m256 v = _mm256_sub_ps(_mm256_maskload_ps(x + i, lanes), m);
        v = _mm256_and_ps(v, _mm256_castsi256_ps(lanes));
        s[0] = _mm256_fmadd_ps(v, v, s[0]);
    }
    return sum_lanes(_mm256_add_ps(_mm256_add_ps(s[0], s[1]), _mm256_add_ps(s[2], s[3])));
}

/* The sum of x[i] - mean. */
static float sum_elements(const float *x, int n, float mean) {
    __m256 s[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
    __m256 m = _mm256_set1_ps(mean);
    int i = 0;
    for (; i + 32 <= n; i += 32)
        for (int j = 0; j < 4; j++) s[j] = _mm256_add_ps(s[j], _mm256_sub_ps(_mm256_loadu_ps(x + i + 8 * j), m));
    for (; i < n; i += 8) {
        __m256i lanes = first_lanes(n - i);
        __m256 v = _mm256_sub_ps(_mm256_maskload_ps(x + i, lanes), m);
        s[0] = _mm256_add_ps(s[0], _mm256_and_ps(v, _mm256_castsi256_ps(lanes)));
    }
    return sum_lanes(_mm256_add_ps(_mm256_add_ps(s[0], s[1]), _mm256_add_ps(s[2], s[3])));
}

static void rms_norm_avx2(float *y, const float *x, const float *w, int n, float eps) {
    if (n <= 0) return;
    float r = (float)ig_norm_factor((double)sum_squares(x, n, 0), n, eps);
    __m256 rs = _mm256_set1_ps(r);
    int i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 v = _mm256_mul_ps(_mm256_loadu_ps(x + i), rs);
        if (w) v = _mm256_mul_ps(v, _mm256_loadu_ps(w + i));
        _mm256_storeu_ps(y + i, v);
    }
    for (; i < n; i++) y[i] = x[i] * r * (w ? w[i] : 1.0f);
}

static void layer_norm_avx2(float *y, const float *x, const float *w, const float *b, int n, float eps) {
    if (n <= 0) return;
    /* 1 / std may be large: the second step takes the rounding of a long sum off the mean. */
    float mean = sum_elements(x, n, 0) / (float)n;
    mean += sum_elements(x, n, mean) / (float)n;
    float r = (float)ig_norm_factor((double)sum_squares(x, n, mean), n, eps);
    __m256 ms = _mm256_set1_ps(mean), rs = _mm256_set1_ps(r);
    int i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 v = _mm256_mul_ps(_mm256_sub_ps(_mm256_loadu_ps(x + i), ms), rs);
        if (w) v = _mm256_mul_ps(v, _mm256_loadu_ps(w + i));
        if (b) v = _mm256_add_ps(v, _mm256_loadu_ps(b + i));
        _mm256_storeu_ps(y + i, v);
    }
    for (; i < n; i++) y[i] = (x[i] - mean) * r * (w ? w[i] : 1.0f) + (b ? b[i] : 0.0f);
}

static void add_avx2(float *y, const float *x, int n) {
    int i = 0;
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(y + i, _mm256_add_ps(_mm256_loadu_ps(y + i), _mm256_loadu_ps(x + i)));
    for (; i < n; i++) y[i] += x[i];
}

static void add_scaled_avx2(float *y, const float *x, float scale, int n) {
    __m256 s = _mm256_set1_ps(scale);
    int i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, _mm256_fmadd_ps(s, _mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i)));
    for (; i < n; i++) y[i] += scale * x[i];
}

/* gate / (1 + exp(-at)) * up */
static __m256 gate_lanes(__m256 gate, __m256 at, __m256 up) {
    __m256 e = exp_lanes(_mm256_sub_ps(_mm256_setzero_ps(), at));
    return _mm256_mul_ps(_mm256_div_ps(gate, _mm256_add_ps(_mm256_set1_ps(1.0f), e)), up);
}

static __m256 silu_mul(__m256 gate, __m256 up) { return gate_lanes(gate, gate, up); }
static __m256 sigmoid_mul(__m256 gate, __m256 up) {
    __m256 lost = _mm256_mul_ps(gate, _mm256_setzero_ps());
    return _mm256_add_ps(gate_lanes(_mm256_set1_ps(1.0f), gate, up), lost);
}

static __m256 gelu_mul(__m256 gate, __m256 up) {
    __m256 third = _mm256_mul_ps(_mm256_set1_ps(IG_GELU_3), gate);
    return gate_lanes(gate, _mm256_mul_ps(gate, _mm256_fmadd_ps(third, gate, _mm256_set1_ps(IG_GELU_1))), up);
}

static __m256 swiglu_oai(__m256 gate, __m256 up) {
    __m256 limit = _mm256_set1_ps(IG_OAI_LIMIT), least = _mm256_set1_ps(-IG_OAI_LIMIT), zero = _mm256_setzero_ps();
    __m256 lost = _mm256_fmadd_ps(gate, zero, _mm256_mul_ps(up, zero)), g = _mm256_min_ps(gate, limit);
    __m256 more = _mm256_add_ps(_mm256_max_ps(_mm256_min_ps(up, limit), least), _mm256_set1_ps(1.0f));
    return _mm256_add_ps(gate_lanes(g, _mm256_mul_ps(g, _mm256_set1_ps(IG_OAI_ALPHA)), more), lost);
}

/* 2 / (1 + exp(-2x)) - 1; of `same` there is nothing. */
static __m256 tanh_lanes(__m256 x, __m256 same) {
    __m256 one = _mm256_set1_ps(1.0f), twice = gate_lanes(_mm256_set1_ps(2.0f), _mm256_add_ps(x, x), one);
    (void)same;
    return _mm256_fmadd_ps(x, _mm256_setzero_ps(), _mm256_sub_ps(twice, one));
}

static inline void multiply_gates(float *gate, const float *up, int n, __m256 (*of)(__m256, __m256)) {
    int i = 0;
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(gate + i, of(_mm256_loadu_ps(gate + i), _mm256_loadu_ps(up + i)));
    if (i == n) return;
    __m256i lanes = first_lanes(n - i);
    __m256 v = of(_mm256_maskload_ps(gate + i, lanes), _mm256_maskload_ps(up + i, lanes));
    _mm256_maskstore_ps(gate + i, lanes, v);
}

static void sigmoid_mul_avx2(float *gate, const float *up, int n) { multiply_gates(gate, up, n, sigmoid_mul); }
static void silu_mul_avx2(float *gate, const float *up, int n) { multiply_gates(gate, up, n, silu_mul); }
static void gelu_mul_avx2(float *gate, const float *up, int n) { multiply_gates(gate, up, n, gelu_mul); }
static void swiglu_oai_avx2(float *gate, const float *up, int n) { multiply_gates(gate, up, n, swiglu_oai); }
static void tanh_avx2(float *x, int n) { multiply_gates(x, x, n, tanh_lanes); }

static void relu_avx2(float *x, int n) {
    __m256 zero = _mm256_setzero_ps();
    int i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 v = _mm256_loadu_ps(x + i);
        _mm256_storeu_ps(x + i, _mm256_fmadd_ps(v, zero, _mm256_max_ps(v, zero)));
    }
    for (; i < n; i++) x[i] = (x[i] > 0 ? x[i] : 0.0f) + 0 * x[i];
}

static void rope_half_avx2(float *x, const float *cs, int n_rot) {
    int half = n_rot / 2, i = 0;
    for (; i + 8 <= half; i += 8) {
        __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + half + i);
        __m256 c = _mm256_loadu_ps(cs + i), s = _mm256_loadu_ps(cs + half + i);
        _mm256_storeu_ps(x + i, _mm256_fmsub_ps(a, c, _mm256_mul_ps(b, s)));
        _mm256_storeu_ps(x + half + i, _mm256_fmadd_ps(b, c, _mm256_mul_ps(a, s)));
    }
    for (; i < half; i++) {
        float a = x[i], b = x[i + half], c = cs[i], s = cs[i + half];
        x[i] = a * c - b * s;
        x[i + half] = b * c + a * s;
    }
}

static void rope_adjacent_avx2(float *x, const float *cs, int n_rot) {
    int half = n_rot / 2, i = 0;
    __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    for (; i + 4 <= half; i += 4) {
        __m256 c = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(cs + i)), twice);
        __m256 s = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(cs + half + i)), twice);
        __m256 v = _mm256_loadu_ps(x + 2 * i), swapped = _mm256_permute_ps(v, 0xb1);
        _mm256_storeu_ps(x + 2 * i, _mm256_fmaddsub_ps(v, c, _mm256_mul_ps(swapped, s)));
    }
    for (; i < half; i++) {
        float a = x[2 * i], b = x[2 * i + 1], c = cs[i], s = cs[i + half];
        x[2 * i] = a * c - b * s;
        x[2 * i + 1] = b * c + a * s;
    }
}

static void f32_to_f16_avx2(uint16_t *dst, const float *src, int n) {
    int i = 0;
    for (; i + 8 <= n; i += 8) {
        __m128i h = _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        _mm_storeu_si128((__m128i *)(void *)(dst + i), h);
    }
    for (; i < n; i++) dst[i] = ig_f32_f16(src[i]);
}

static void f16_to_f32_avx2(float *dst, const uint16_t *src, int n) {
    int i = 0;
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(dst + i, load_f16(src + i));
    for (; i < n; i++) dst[i] = ig_f16_f32(src[i]);
}

/* Magnitudes are in the order of their bits. */
static float peak_avx2(const float *x, int n) {
    __m256i magnitude = _mm256_set1_epi32(0x7fffffff),
            m[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256()};
    int i = 0;
    for (; i + 32 <= n; i += 32)
        for (int j = 0; j < 4; j++)
            m[j] = _mm256_max_epu32(_mm256_and_si256(_mm256_castps_si256(_mm256_loadu_ps(x + i + 8 * j)), magnitude),
                                    m[j]);
    for (; i < n; i += 8) {
        __m256i v = _mm256_castps_si256(_mm256_maskload_ps(x + i, first_lanes(n - i)));
        m[0] = _mm256_max_epu32(_mm256_and_si256(v, magnitude), m[0]);
    }
    __m256i all = _mm256_max_epu32(_mm256_max_epu32(m[0], m[1]), _mm256_max_epu32(m[2], m[3]));
    __m128i top = _mm_max_epu32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
    top = _mm_max_epu32(top, _mm_shuffle_epi32(top, 0x4e));
    top = _mm_max_epu32(top, _mm_shuffle_epi32(top, 0xb1));
    return ig_bits_f32((uint32_t)_mm_cvtsi128_si32(top));
}

/* Where x is NaN max_ps gives its second operand, so NaN never wins. */
static float max_avx2(const float *x, int n) {
    __m256 none = _mm256_set1_ps(-INFINITY), m[4] = {none, none, none, none};
    int i = 0;
    for (; i + 32 <= n; i += 32)
        for (int j = 0; j < 4; j++) m[j] = _mm256_max_ps(_mm256_loadu_ps(x + i + 8 * j), m[j]);
    float max = max_lanes(_mm256_max_ps(_mm256_max_ps(m[0], m[1]), _mm256_max_ps(m[2], m[3])));
    for (; i < n; i++)
        if (x[i] > max) max = x[i];
    return max;
}

/* Two passes, the largest value and then its first place, are faster than carrying indices along. */
static int argmax_avx2(const float *x, int n) {
    float m = max_avx2(x, n);
    if (m == -INFINITY) return 0;
    __m256 wanted = _mm256_set1_ps(m);
    int i = 0;
    for (; i + 8 <= n; i += 8) {
        int found = _mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(x + i), wanted, _CMP_EQ_OQ));
        if (found) return i + __builtin_ctz((unsigned)found);
    }
    while (i < n && x[i] != m) i++;
    return i;
}

void ig_kernels_fill_vector_avx2(ig_kernels *k) {
    k->rms_norm = rms_norm_avx2;
    k->layer_norm = layer_norm_avx2;
    k->add = add_avx2;
    k->add_scaled = add_scaled_avx2;
    k->sigmoid_mul = sigmoid_mul_avx2;
    k->silu_mul = silu_mul_avx2;
    k->gelu_mul = gelu_mul_avx2;
    k->tanh = tanh_avx2;
    k->swiglu_oai = swiglu_oai_avx2;
    k->relu = relu_avx2;
    k->rope_half = rope_half_avx2;
    k->rope_adjacent = rope_adjacent_avx2;
    k->f32_to_f16 = f32_to_f16_avx2;
    k->f16_to_f32 = f16_to_f32_avx2;
    k->peak = peak_avx2;
    k->max = max_avx2;
    k->argmax = argmax_avx2;
    ig_kernels_fill_choice_avx2(k);
}
