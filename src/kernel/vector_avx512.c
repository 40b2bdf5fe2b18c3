/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels on plain vectors for AVX-512: 16 floats at a time, tails under a mask. Sums use
 * four accumulators, which both hides latency and keeps rounding errors small.
 */
#include <math.h>

#include "base/half.h"
#include "kernel/lanes_avx512.h"
#include "kernel/parts.h"

/* The sum of (x[i] - mean)^2. */
static float sum_squares(const float *x, int n, float mean) {
    __m512 s[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps()};
    __m512 m = _mm512_set1_ps(mean);
    int i = 0;
    for (; i + 64 <= n; i += 64) {
        for (int j = 0; j < 4; j++) {
            __m512 v = _mm512_sub_ps(_mm512_loadu_ps(x + i + 16 * j), m);
            s[j] = _mm512_fmadd_ps(v, v, s[j]);
        }
    }
    for (; i < n; i += 16) {
        __mmask16 lanes = first_lanes(n - i < 16 ? n - i : 16);
        __m512 v = _mm512_maskz_sub_ps(lanes, _mm512_maskz_loadu_ps(lanes, x + i), m);
        s[0] = _mm512_fmadd_ps(v, v, s[0]);
    }
    return _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(s[0], s[1]), _mm512_add_ps(s[2], s[3])));
}

/* The sum of x[i] - mean. */
static float sum_elements(const float *x, int n, float mean) {
    __m512 s[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps()};
    __m512 m = _mm512_set1_ps(mean);
    int i = 0;
    for (; i + 64 <= n; i += 64)
        for (int j = 0; j < 4; j++) s[j] = _mm512_add_ps(s[j], _mm512_sub_ps(_mm512_loadu_ps(x + i + 16 * j), m));
    for (; i < n; i += 16) {
        __mmask16 lanes = first_lanes(n - i < 16 ? n - i : 16);
        s[0] = _mm512_add_ps(s[0], _mm512_maskz_sub_ps(lanes, _mm512_maskz_loadu_ps(lanes, x + i), m));
    }
    return _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(s[0], s[1]), _mm512_add_ps(s[2], s[3])));
}

static void rms_norm_avx512(float *y, const float *x, const float *w, int n, float eps) {
    if (n <= 0) return;
    __m512 r = _mm512_set1_ps((float)ig_norm_factor((double)sum_squares(x, n, 0), n, eps));
    for (int i = 0; i < n; i += 16) {
        __mmask16 lanes = first_lanes(n - i < 16 ? n - i : 16);
        __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes, x + i), r);
        if (w) v = _mm512_mul_ps(v, _mm512_maskz_loadu_ps(lanes, w + i));
        _mm512_mask_storeu_ps(y + i, lanes, v);
    }
}

static void layer_norm_avx512(float *y, const float *x, const float *w, const float *b, int n, float eps) {
    if (n <= 0) return;
    /* 1 / std may be large: the second step takes the rounding of a long sum off the mean. */
    float mean = sum_elements(x, n, 0) / (float)n;
    mean += sum_elements(x, n, mean) / (float)n;
    __m512 m = _mm512_set1_ps(mean);
    __m512 r = _mm512_set1_ps((float)ig_norm_factor((double)sum_squares(x, n, mean), n, eps));
    for (int i = 0; i < n; i += 16) {
        __mmask16 lanes = first_lanes(n - i < 16 ? n - i : 16);
        __m512 v = _mm512_mul_ps(_mm512_sub_ps(_mm512_maskz_loadu_ps(lanes, x + i), m), r);
        if (w) v = _mm512_mul_ps(v, _mm512_maskz_loadu_ps(lanes, w + i));
        if (b) v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(lanes, b + i));
        _mm512_mask_storeu_ps(y + i, lanes, v);
    }
}

static void add_avx512(float *y, const float *x, int n) {
    for (int i = 0; i < n; i += 16) {
        __mmask16 lanes = first_lanes(n - i < 16 ? n - i : 16);
        __m512 v = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, y + i), _mm512_maskz_loadu_ps(lanes, x + i));
        _mm512_mask_storeu_ps(y + i, lanes, v);
    }
}

static void add_scaled_avx512(float *y, const float *x, float scale, int n) {
    __m512 s = _mm512_set1_ps(scale);
    for (int i = 0; i < n; i += 16) {
        __mmask16 lanes = first_lanes(n - i < 16 ? n - i : 16);
        __m512 v = _mm512_fmadd_ps(s, _mm512_maskz_loadu_ps(lanes, x + i), _mm512_maskz_loadu_ps(lanes, y + i));
        _mm512_mask_storeu_ps(y + i, lanes, v);
    }
}

/* gate / (1 + exp(-at)) * up */
static __m512 gate_lanes(__m512 gate, __m512 at, __m512 up) {
    __m512 e = exp_lanes(_mm512_sub_ps(_mm512_setzero_ps(), at));
    return _mm512_mul_ps(_mm512_div_ps(gate, _mm512_add_ps(_mm512_set1_ps(1.0f), e)), up);
}

static __m512 silu_mul(__m512 gate, __m512 up) { return gate_lanes(gate, gate, up); }
static __m512 sigmoid_mul(__m512 gate, __m512 up) {
    __m512 lost = _mm512_mul_ps(gate, _mm512_setzero_ps());
    return _mm512_add_ps(gate_lanes(_mm512_set1_ps(1.0f), gate, up), lost);
}

static __m512 gelu_mul(__m512 gate, __m512 up) {
    __m512 third = _mm512_mul_ps(_mm512_set1_ps(IG_GELU_3), gate);
    return gate_lanes(gate, _mm512_mul_ps(gate, _mm512_fmadd_ps(third, gate, _mm512_set1_ps(IG_GELU_1))), up);
}

static __m512 swiglu_oai(__m512 gate, __m512 up) {
    __m512 limit = _mm512_set1_ps(IG_OAI_LIMIT), least = _mm512_set1_ps(-IG_OAI_LIMIT), zero = _mm512_setzero_ps();
    __m512 lost = _mm512_fmadd_ps(gate, zero, _mm512_mul_ps(up, zero)), g = _mm512_min_ps(gate, limit);
    __m512 more = _mm512_add_ps(_mm512_max_ps(_mm512_min_ps(up, limit), least), _mm512_set1_ps(1.0f));
    return _mm512_add_ps(gate_lanes(g, _mm512_mul_ps(g, _mm512_set1_ps(IG_OAI_ALPHA)), more), lost);
}

/* 2 / (1 + exp(-2x)) - 1; of `same` there is nothing. */
static __m512 tanh_lanes(__m512 x, __m512 same) {
    __m512 one = _mm512_set1_ps(1.0f), twice = gate_lanes(_mm512_set1_ps(2.0f), _mm512_add_ps(x, x), one);
    (void)same;
    return _mm512_fmadd_ps(x, _mm512_setzero_ps(), _mm512_sub_ps(twice, one));
}

static inline void multiply_gates(float *gate, const float *up, int n, __m512 (*of)(__m512, __m512)) {
    for (int i = 0; i < n; i += 16) {
        __mmask16 lanes = first_lanes(n - i < 16 ? n - i : 16);
        __m512 v = of(_mm512_maskz_loadu_ps(lanes, gate + i), _mm512_maskz_loadu_ps(lanes, up + i));
        _mm512_mask_storeu_ps(gate + i, lanes, v);
    }
}

static void sigmoid_mul_avx512(float *gate, const float *up, int n) { multiply_gates(gate, up, n, sigmoid_mul); }
static void silu_mul_avx512(float *gate, const float *up, int n) { multiply_gates(gate, up, n, silu_mul); }
static void gelu_mul_avx512(float *gate, const float *up, int n) { multiply_gates(gate, up, n, gelu_mul); }
static void swiglu_oai_avx512(float *gate, const float *up, int n) { multiply_gates(gate, up, n, swiglu_oai); }
static void tanh_avx512(float *x, int n) { multiply_gates(x, x, n, tanh_lanes); }

static void relu_avx512(float *x, int n) {
    __m512 zero = _mm512_setzero_ps();
    for (int i = 0; i < n; i += 16) {
        __mmask16 lanes = first_lanes(n - i < 16 ? n - i : 16);
        __m512 v = _mm512_maskz_loadu_ps(lanes, x + i);
        _mm512_mask_storeu_ps(x + i, lanes, _mm512_fmadd_ps(v, zero, _mm512_max_ps(v, zero)));
    }
}

static void rope_half_avx512(float *x, const float *cs, int n_rot) {
    int half = n_rot / 2;
    for (int i = 0; i < half; i += 16) {
        __mmask16 lanes = first_lanes(half - i < 16 ? half - i : 16);
        __m512 a = _mm512_maskz_loadu_ps(lanes, x + i), b = _mm512_maskz_loadu_ps(lanes, x + half + i);
        __m512 c = _mm512_maskz_loadu_ps(lanes, cs + i), s = _mm512_maskz_loadu_ps(lanes, cs + half + i);
        _mm512_mask_storeu_ps(x + i, lanes, _mm512_fmsub_ps(a, c, _mm512_mul_ps(b, s)));
        _mm512_mask_storeu_ps(x + half + i, lanes, _mm512_fmadd_ps(b, c, _mm512_mul_ps(a, s)));
    }
}

static void rope_adjacent_avx512(float *x, const float *cs, int n_rot) {
    int half = n_rot / 2;
    __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    for (int i = 0; i < half; i += 8) {
        int n = half - i < 8 ? half - i : 8;
        __mmask16 pairs = first_lanes(n), lanes = first_lanes(2 * n);
        __m512 c = _mm512_permutexvar_ps(twice, _mm512_maskz_loadu_ps(pairs, cs + i));
        __m512 s = _mm512_permutexvar_ps(twice, _mm512_maskz_loadu_ps(pairs, cs + half + i));
        __m512 v = _mm512_maskz_loadu_ps(lanes, x + 2 * i);
        __m512 swapped = _mm512_permute_ps(v, 0xb1);
        _mm512_mask_storeu_ps(x + 2 * i, lanes, _mm512_fmaddsub_ps(v, c, _mm512_mul_ps(swapped, s)));
    }
}

static void f32_to_f16_avx512(uint16_t *dst, const float *src, int n) {
    for (int i = 0; i < n; i += 16) {
        __mmask16 lanes = first_lanes(n - i < 16 ? n - i : 16);
        __m256i h =
            _mm512_cvtps_ph(_mm512_maskz_loadu_ps(lanes, src + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        _mm256_mask_storeu_epi16(dst + i, lanes, h);
    }
}

static void f16_to_f32_avx512(float *dst, const uint16_t *src, int n) {
    for (int i = 0; i < n; i += 16) {
        __mmask16 lanes = first_lanes(n - i < 16 ? n - i : 16);
        _mm512_mask_storeu_ps(dst + i, lanes, load_f16_first(lanes, src + i));
    }
}

/* Magnitudes are in the order of their bits. */
static float peak_avx512(const float *x, int n) {
    __m512i magnitude = _mm512_set1_epi32(0x7fffffff),
            m[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()};
    int i = 0;
    for (; i + 64 <= n; i += 64)
        for (int j = 0; j < 4; j++)
            m[j] = _mm512_max_epu32(_mm512_and_si512(_mm512_loadu_si512(x + i + 16 * j), magnitude), m[j]);
    for (; i < n; i += 16) {
        __m512i v = _mm512_maskz_loadu_epi32(first_lanes(n - i < 16 ? n - i : 16), x + i);
        m[0] = _mm512_max_epu32(_mm512_and_si512(v, magnitude), m[0]);
    }
    __m512i all = _mm512_max_epu32(_mm512_max_epu32(m[0], m[1]), _mm512_max_epu32(m[2], m[3]));
    return ig_bits_f32(_mm512_reduce_max_epu32(all));
}

/* Where x is NaN max_ps gives its second operand, so NaN never wins. */
static float max_avx512(const float *x, int n) {
    __m512 none = _mm512_set1_ps(-INFINITY), m[4] = {none, none, none, none};
    int i = 0;
    for (; i + 64 <= n; i += 64)
        for (int j = 0; j < 4; j++) m[j] = _mm512_max_ps(_mm512_loadu_ps(x + i + 16 * j), m[j]);
    for (; i < n; i += 16)
        m[0] = _mm512_max_ps(_mm512_mask_loadu_ps(none, first_lanes(n - i < 16 ? n - i : 16), x + i), m[0]);
    return _mm512_reduce_max_ps(_mm512_max_ps(_mm512_max_ps(m[0], m[1]), _mm512_max_ps(m[2], m[3])));
}

/* Two passes, the largest value and then its first place, are faster than carrying indices along. */
static int argmax_avx512(const float *x, int n) {
    float m = max_avx512(x, n);
    if (m == -INFINITY) return 0;
    __m512 wanted = _mm512_set1_ps(m);
    for (int i = 0; i < n; i += 16) {
        __mmask16 lanes = first_lanes(n - i < 16 ? n - i : 16);
        __mmask16 found = _mm512_mask_cmp_ps_mask(lanes, _mm512_maskz_loadu_ps(lanes, x + i), wanted, _CMP_EQ_OQ);
        if (found) return i + __builtin_ctz(found);
    }
    return 0;
}

void ig_kernels_fill_vector_avx512(ig_kernels *k) {
    k->rms_norm = rms_norm_avx512;
    k->layer_norm = layer_norm_avx512;
    k->add = add_avx512;
    k->add_scaled = add_scaled_avx512;
    k->sigmoid_mul = sigmoid_mul_avx512;
    k->silu_mul = silu_mul_avx512;
    k->gelu_mul = gelu_mul_avx512;
    k->tanh = tanh_avx512;
    k->swiglu_oai = swiglu_oai_avx512;
    k->relu = relu_avx512;
    k->rope_half = rope_half_avx512;
    k->rope_adjacent = rope_adjacent_avx512;
    k->f32_to_f16 = f32_to_f16_avx512;
    k->f16_to_f32 = f16_to_f32_avx512;
    k->peak = peak_avx512;
    k->max = max_avx512;
    k->argmax = argmax_avx512;
    ig_kernels_fill_choice_avx512(k);
}
