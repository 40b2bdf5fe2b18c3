/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of the kernels on plain vectors: every length from 0 to 67 and some longer ones, against double
 * precision, with inputs that end where memory ends and outputs between guards.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "check_lengths.h"

/* |got - want| <= rel |want| + abs for all i; NaN in got fails. */
static void compare(check *c, const char *what, const float *got, const double *want, int n, double rel, double abs) {
    for (int i = 0; i < n; i++) {
        double e = fabs((double)got[i] - want[i]), limit = rel * fabs(want[i]) + abs;
        if (!check_that(c, e <= limit, "%s n=%d: [%d] is %.9g, not %.9g", what, n, i, got[i], want[i])) return;
    }
}

/* ---- norms --------------------------------------------------------------------- */

static void norm_want(double *want, const float *x, const float *w, const float *b, int n, double eps, bool center) {
    double mean = 0, squares = 0;
    for (int i = 0; center && i < n; i++) mean += (double)x[i] / n;
    for (int i = 0; i < n; i++) squares += (x[i] - mean) * (x[i] - mean);
    for (int i = 0; i < n; i++) want[i] = (x[i] - mean) / sqrt(squares / n + eps) * (w ? w[i] : 1.0) + (b ? b[i] : 0.0);
}

static void check_norm(check *c, int n, check_shape shape, int variant) {
    float *x = filled(c, n, shape), *w = filled(c, n, CHECK_NORMAL), *b = filled(c, n, CHECK_NORMAL);
    float *y = output(c, n);
    double *want = malloc(((size_t)n + 1) * sizeof *want);
    const float *weight = variant & 1 ? w : NULL, *bias = variant & 2 ? b : NULL;
    float eps = variant & 2 ? 1e-5f : 1e-6f;

    norm_want(want, x, weight, NULL, n, eps, false);
    c->k->rms_norm(y, x, weight, n, eps);
    compare(c, "rms_norm", y, want, n, 1e-6, 1e-30);
    check_that(c, check_guards(y), "rms_norm n=%d: wrote outside", n);
    memcpy(y, x, (size_t)n * sizeof *x);
    c->k->rms_norm(y, y, weight, n, eps);
    compare(c, "rms_norm in place", y, want, n, 1e-6, 1e-30);

    /* The mean is off by rounding of the largest elements, and 1 / std multiplies that; weights are below 6. */
    double largest = 0, mean = 0, spread = 0;
    for (int i = 0; i < n; i++) largest = fmax(largest, fabs(x[i])), mean += (double)x[i] / n;
    for (int i = 0; i < n; i++) spread += (x[i] - mean) * (x[i] - mean) / n;
    norm_want(want, x, weight, bias, n, eps, true);
    c->k->layer_norm(y, x, weight, bias, n, eps);
    double abs = 6 * 2e-7 * largest / sqrt(spread + eps) + 1e-6;
    compare(c, "layer_norm", y, want, n, 1e-6, abs);
    check_that(c, check_guards(y), "layer_norm n=%d: wrote outside", n);
    memcpy(y, x, (size_t)n * sizeof *x);
    c->k->layer_norm(y, y, weight, bias, n, eps);
    compare(c, "layer_norm in place", y, want, n, 1e-6, abs);

    free(want);
    check_buffer_free(y);
    fenced_free(x, n), fenced_free(w, n), fenced_free(b, n);
}

static void check_norms(check *c) {
    if (!check_begin(c, "norm")) return;
    for (int i = 0; i < N_LENGTHS; i++)
        for (int s = 0; s < CHECK_SHAPES; s++) check_norm(c, length_at(i), (check_shape)s, i + s);
}

/* ---- element-wise --------------------------------------------------------------- */

static void check_elements_at(check *c, int n, check_shape shape) {
    static const float edges[] = {0, -0.0f, 20, -20, 87, -87, 88.8f, -88.8f, 105, -105, 1000, -1000};
    float *x = filled(c, n, shape), *y = filled(c, n, CHECK_NORMAL), *out = output(c, n), *ref = output(c, n);
    double *want = malloc(((size_t)n + 1) * sizeof *want);

    memcpy(out, y, (size_t)n * sizeof *y);
    for (int i = 0; i < n; i++) want[i] = (double)(y[i] + x[i]);
    c->k->add(out, x, n);
    compare(c, "add", out, want, n, 0, 0);

    memcpy(out, y, (size_t)n * sizeof *y);
    for (int i = 0; i < n; i++) want[i] = (double)(y[i] * x[i]);
    c->k->multiply(out, x, n);
    compare(c, "multiply", out, want, n, 0, 0);

    memcpy(out, y, (size_t)n * sizeof *y);
    for (int i = 0; i < n; i++) want[i] = (double)y[i] + 0.3f * (double)x[i];
    c->k->add_scaled(out, x, 0.3f, n);
    compare(c, "add_scaled", out, want, n, 2e-7, 1e-6);

    memcpy(out, x, (size_t)n * sizeof *x);
    for (int i = 0; i < n; i++) want[i] = x[i] > 0 ? x[i] : 0;
    c->k->relu(out, n);
    compare(c, "relu", out, want, n, 0, 0);

    memcpy(out, x, (size_t)n * sizeof *x);
    for (int i = 0; i < n; i++) want[i] = x[i] > 0 ? (double)x[i] * (double)x[i] : 0;
    c->k->relu_squared(out, n);
    compare(c, "relu_squared", out, want, n, 1e-7, 0);

    for (int i = 0; i < n; i++)
        if (check_int(c, 0, 7) == 0) x[i] = edges[check_int(c, 0, (int)IG_COUNT(edges) - 1)];
    memcpy(out, x, (size_t)n * sizeof *x);
    for (int i = 0; i < n; i++) want[i] = 1 / (1 + exp(-(double)x[i])) * y[i];
    c->k->sigmoid_mul(out, y, n);
    compare(c, "sigmoid_mul", out, want, n, 6e-7, 1e-35);

    memcpy(out, x, (size_t)n * sizeof *x);
    for (int i = 0; i < n; i++) want[i] = (x[i] > 700 ? (double)x[i] : log1p(exp((double)x[i]))) * y[i];
    c->k->softplus_mul(out, y, n);
    compare(c, "softplus_mul", out, want, n, 6e-7, 1e-35);
    c->ref->softplus_mul(memcpy(ref, x, (size_t)n * sizeof *x), y, n);
    check_that(c, !memcmp(out, ref, (size_t)n * sizeof *out), "softplus_mul n=%d: other than scalar", n);

    memcpy(out, x, (size_t)n * sizeof *x);
    for (int i = 0; i < n; i++) want[i] = x[i] / (1 + exp(-(double)x[i])) * y[i];
    c->k->silu_mul(out, y, n);
    compare(c, "silu_mul", out, want, n, 6e-7, 1e-35);

    memcpy(out, x, (size_t)n * sizeof *x);
    for (int i = 0; i < n; i++) {
        double g = x[i], scale = sqrt(2 / acos(-1.0));
        want[i] = g / 2 * (1 + tanh(scale * (g + 0.044715 * g * g * g))) * y[i];
    }
    c->k->gelu_mul(out, y, n);
    compare(c, "gelu_mul", out, want, n, 4e-6, 1e-6);

    static const float p[] = {0.8f, 0.9f, 0.5f, -1e-6f};
    memcpy(out, x, (size_t)n * sizeof *x);
    for (int i = 0; i < n; i++) {
        double v = x[i];
        want[i] = v > 0 ? (p[0] * v + p[2]) * v : p[1] * (expm1(fmin(v, (double)p[3])) - v) + p[2] * v;
    }
    c->k->xielu(out, p, n);
    compare(c, "xielu", out, want, n, 4e-6, 1e-6);
    c->ref->xielu(memcpy(ref, x, (size_t)n * sizeof *x), p, n);
    check_that(c, !memcmp(out, ref, (size_t)n * sizeof *out), "xielu n=%d: other than scalar", n);

    memcpy(out, x, (size_t)n * sizeof *x);
    for (int i = 0; i < n; i++) {
        double g = x[i], scale = sqrt(2 / acos(-1.0));
        want[i] = g / 2 * (1 + tanh(scale * (g + 0.044715 * g * g * g)));
    }
    c->k->gelu(out, n);
    compare(c, "gelu", out, want, n, 4e-6, 1e-6);
    c->ref->gelu(memcpy(ref, x, (size_t)n * sizeof *x), n);
    check_that(c, !memcmp(out, ref, (size_t)n * sizeof *out), "gelu n=%d: other than scalar", n);

    memcpy(out, x, (size_t)n * sizeof *x);
    for (int i = 0; i < n; i++) want[i] = 0.5 * (double)x[i] * erfc(-(double)x[i] / sqrt(2));
    c->k->gelu_erf(out, n);
    compare(c, "gelu_erf", out, want, n, 1e-6, 1e-6);
    c->ref->gelu_erf(memcpy(ref, x, (size_t)n * sizeof *x), n);
    check_that(c, !memcmp(out, ref, (size_t)n * sizeof *out), "gelu_erf n=%d: other than scalar", n);

    memcpy(out, x, (size_t)n * sizeof *x);
    for (int i = 0; i < n; i++) want[i] = tanh((double)x[i]);
    c->k->tanh(out, n);
    compare(c, "tanh", out, want, n, 0, 3e-7);

    memcpy(out, x, (size_t)n * sizeof *x);
    for (int i = 0; i < n; i++) {
        double g = fmin((double)x[i], 7), u = fmax(fmin((double)y[i], 7), -7);
        want[i] = g / (1 + exp(-1.702 * g)) * (u + 1);
    }
    c->k->swiglu_oai(out, y, n);
    compare(c, "swiglu_oai", out, want, n, 4e-6, 1e-12);
    check_that(c, check_guards(out), "n=%d: wrote outside", n);
    /* Reading the in-out argument past its end would fault here. */
    c->k->add(x, y, n);
    c->k->add_scaled(x, y, 2, n);
    c->k->relu(x, n);
    c->k->relu_squared(x, n);
    c->k->sigmoid_mul(x, y, n);
    c->k->softplus_mul(x, y, n);
    c->k->silu_mul(x, y, n);
    c->k->gelu_mul(x, y, n);
    c->k->swiglu_oai(x, y, n);
    c->k->tanh(x, n);

    free(want);
    check_buffer_free(out), check_buffer_free(ref);
    fenced_free(x, n), fenced_free(y, n);
}

static void check_elements(check *c) {
    if (!check_begin(c, "elements")) return;
    for (int i = 0; i < N_LENGTHS; i++)
        for (int s = 0; s < CHECK_SHAPES; s++) check_elements_at(c, length_at(i), (check_shape)s);
}

static void check_rope_at(check *c, int half, bool adjacent) {
    int n = 2 * half;
    float *x = filled(c, n, CHECK_OUTLIER), *cs = filled(c, n, CHECK_NORMAL), *out = output(c, n);
    for (int i = 0; i < half; i++) {
        double angle = check_normal(c) * 100;
        cs[i] = (float)cos(angle);
        cs[i + half] = (float)sin(angle);
    }
    memcpy(out, x, (size_t)n * sizeof *x);
    void (*rope)(float *, const float *, int) = adjacent ? c->k->rope_adjacent : c->k->rope_half;
    rope(out, cs, n);
    for (int i = 0; i < half; i++) {
        int at = adjacent ? 2 * i : i, to = adjacent ? 2 * i + 1 : i + half;
        double a = x[at], b = x[to], co = cs[i], si = cs[i + half], limit = 3e-7 * hypot(a, b);
        check_that(c, fabs(out[at] - (a * co - b * si)) <= limit, "adjacent=%d n=%d pair %d: first", adjacent, n, i);
        check_that(c, fabs(out[to] - (b * co + a * si)) <= limit, "adjacent=%d n=%d pair %d: second", adjacent, n, i);
    }
    check_that(c, check_guards(out), "adjacent=%d n=%d: wrote outside", adjacent, n);
    rope(x, cs, n);
    check_that(c, !memcmp(x, out, (size_t)n * sizeof *x), "adjacent=%d n=%d: depends on alignment", adjacent, n);
    check_buffer_free(out);
    fenced_free(x, n), fenced_free(cs, n);
}

static void check_rope(check *c) {
    if (!check_begin(c, "rope")) return;
    for (int half = 0; half < SHORT; half++) {
        check_rope_at(c, half, false);
        check_rope_at(c, half, true);
    }
}

/* ---- 16-bit floats -------------------------------------------------------------- */

static bool same_f16(uint16_t a, uint16_t b) {
    bool a_nan = (a & 0x7fff) > 0x7c00, b_nan = (b & 0x7fff) > 0x7c00;
    return a_nan || b_nan ? a_nan && b_nan : a == b;
}

static bool same_f32(float a, float b) { return a != a || b != b ? a != a && b != b : !memcmp(&a, &b, sizeof a); }

static void check_all_halves(check *c) {
    static uint16_t half[65536], back[65536];
    static float full[65536];
    for (int i = 0; i < 65536; i++) half[i] = (uint16_t)i;
    c->k->f16_to_f32(full, half, 65536);
    c->k->f32_to_f16(back, full, 65536);
    for (int i = 0; i < 65536; i++) {
        check_that(c, same_f32(full[i], ig_f16_f32(half[i])), "f16 %04x is %a", i, full[i]);
        check_that(c, same_f16(half[i], back[i]), "f16 %04x came back as %04x", i, back[i]);
    }
}

static void check_half_at(check *c, int n) {
    float *x = filled(c, n, CHECK_NORMAL);
    uint16_t *in = check_fenced((size_t)n * sizeof *in);
    uint16_t *out = check_buffer((size_t)n * sizeof *out, (size_t)check_int(c, 0, 31) * 2);
    float *y = output(c, n);
    for (int i = 0; i < n; i++) {
        /* Any bits; or near the middle between two 16-bit floats, where rounding decides. */
        uint64_t bits = ig_random_u64(&c->rng);
        in[i] = (uint16_t)(bits >> 48);
        x[i] = bits & 1 ? ig_bits_f32((uint32_t)(bits >> 16))
                        : ig_bits_f32(ig_f32_bits(ig_f16_f32(in[i])) + 0x1000u + (uint32_t)check_int(c, -1, 1));
    }
    c->k->f32_to_f16(out, x, n);
    c->k->f16_to_f32(y, in, n);
    for (int i = 0; i < n; i++) {
        check_that(c, same_f16(out[i], ig_f32_f16(x[i])), "f32_to_f16 n=%d: %a is %04x", n, x[i], out[i]);
        check_that(c, same_f32(y[i], ig_f16_f32(in[i])), "f16_to_f32 n=%d: %04x is %a", n, in[i], y[i]);
    }
    check_that(c, check_guards(out) && check_guards(y), "n=%d: wrote outside", n);
    check_buffer_free(out), check_buffer_free(y);
    fenced_free(x, n);
    check_fenced_free(in, (size_t)n * sizeof *in);
}

static void check_half(check *c) {
    if (!check_begin(c, "half")) return;
    check_all_halves(c);
    for (int i = 0; i < N_LENGTHS; i++) check_half_at(c, length_at(i));
}

/* ---- largest -------------------------------------------------------------------- */

static void check_max_of(check *c, const float *x, int n) {
    float max = -INFINITY;
    int at = 0;
    for (int i = 0; i < n; i++)
        if (x[i] > max) max = x[i], at = i;
    check_that(c, c->k->max(x, n) == max, "max n=%d is %g, not %g", n, c->k->max(x, n), max);
    check_that(c, c->k->argmax(x, n) == at, "argmax n=%d is %d, not %d", n, c->k->argmax(x, n), at);
}

static void check_max(check *c) {
    if (!check_begin(c, "max")) return;
    for (int i = 0; i < N_LENGTHS; i++) {
        int n = length_at(i);
        float *x = filled(c, n, CHECK_NORMAL);
        check_max_of(c, x, n);
        for (int j = 0; j < n; j++) x[j] = (float)check_int(c, -3, 2); /* ties */
        check_max_of(c, x, n);
        for (int j = 0; j < n; j++)
            if (check_int(c, 0, 1)) x[j] = check_int(c, 0, 1) ? NAN : -INFINITY;
        check_max_of(c, x, n);
        for (int j = 0; j < n; j++) x[j] = -1 - (float)j;
        if (n) x[n - 1] = 0;
        check_max_of(c, x, n);
        for (int j = 0; j < n; j++) x[j] = j % 2 ? NAN : -INFINITY;
        check_max_of(c, x, n);
        fenced_free(x, n);
    }
}

static void check_peak(check *c) {
    if (!check_begin(c, "peak")) return;
    for (int i = 0; i < N_LENGTHS; i++) {
        int n = length_at(i);
        float *x = filled(c, n, CHECK_NORMAL), want = 0;
        for (int j = 0; j < n; j++) want = fmaxf(want, fabsf(x[j]));
        check_that(c, c->k->peak(x, n) == want, "peak n=%d is %g, not %g", n, c->k->peak(x, n), want);
        for (int j = 0; j < n; j++) {
            float was = x[j];
            x[j] = -INFINITY;
            check_that(c, c->k->peak(x, n) == INFINITY, "peak n=%d overlooks an infinity at %d", n, j);
            x[j] = j % 2 ? NAN : -NAN;
            x[n - 1 - j] = n - 1 - j == j ? x[j] : INFINITY;
            check_that(c, isnan(c->k->peak(x, n)), "peak n=%d overlooks NaN at %d", n, j);
            x[n - 1 - j] = 0;
            x[j] = was;
        }
        fenced_free(x, n);
    }
}

/* What is not finite, or overflows, does not become an ordinary number. */
static void check_not_finite(check *c) {
    static const float odd[] = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f};
    if (!check_begin(c, "not_finite")) return;
    for (int i = 0; i < N_LENGTHS; i++) {
        int n = length_at(i), at = n ? check_int(c, 0, n - 1) : 0;
        float *x = filled(c, n, CHECK_NORMAL), *y = output(c, n), *ones = filled(c, n, CHECK_NORMAL);
        for (size_t j = 0; n > 1 && j < sizeof odd / sizeof *odd; j++) {
            for (int k = 0; k < n; k++) ones[k] = 1;
            x[at] = odd[j];
            c->k->rms_norm(y, x, NULL, n, 1e-5f);
            check_that(c, !(c->k->peak(y, n) < 0.5f), "rms_norm n=%d: %g is lost", n, odd[j]);
            c->k->layer_norm(y, x, NULL, NULL, n, 1e-5f);
            check_that(c, !(c->k->peak(y, n) < 0.5f), "layer_norm n=%d: %g is lost", n, odd[j]);
            if (isfinite(odd[j])) continue;
            memcpy(y, x, (size_t)n * sizeof *y);
            c->k->relu(y, n);
            check_that(c, !isfinite(y[at]), "relu n=%d: %g became %g", n, odd[j], y[at]);
            memcpy(y, x, (size_t)n * sizeof *y);
            c->k->relu_squared(y, n);
            check_that(c, !isfinite(y[at]), "relu_squared n=%d: %g became %g", n, odd[j], y[at]);
            memcpy(y, x, (size_t)n * sizeof *y);
            c->k->tanh(y, n);
            check_that(c, !isfinite(y[at]), "tanh n=%d: %g became %g", n, odd[j], y[at]);
            for (int k = 0; k < n; k++) y[k] = 1;
            c->k->add_scaled(y, x, 0, n);
            check_that(c, !isfinite(y[at]), "add_scaled n=%d: 0 times %g is %g", n, odd[j], y[at]);
            memcpy(y, x, (size_t)n * sizeof *y);
            c->k->sigmoid_mul(y, ones, n);
            check_that(c, !isfinite(y[at]), "sigmoid_mul n=%d: %g became %g", n, odd[j], y[at]);
            memcpy(y, x, (size_t)n * sizeof *y);
            c->k->softplus_mul(y, ones, n);
            check_that(c, !isfinite(y[at]), "softplus_mul n=%d: %g became %g", n, odd[j], y[at]);
            memcpy(y, x, (size_t)n * sizeof *y);
            c->k->silu_mul(y, ones, n);
            check_that(c, !isfinite(y[at]), "silu_mul n=%d: %g became %g", n, odd[j], y[at]);
            memcpy(y, x, (size_t)n * sizeof *y);
            c->k->gelu_mul(y, ones, n);
            check_that(c, !isfinite(y[at]), "gelu_mul n=%d: %g became %g", n, odd[j], y[at]);
            memcpy(y, x, (size_t)n * sizeof *y);
            c->k->gelu(y, n);
            check_that(c, !isfinite(y[at]), "gelu n=%d: %g became %g", n, odd[j], y[at]);
            memcpy(y, x, (size_t)n * sizeof *y);
            c->k->gelu_erf(y, n);
            check_that(c, !isfinite(y[at]), "gelu_erf n=%d: %g became %g", n, odd[j], y[at]);
            memcpy(y, x, (size_t)n * sizeof *y);
            c->k->swiglu_oai(y, ones, n);
            check_that(c, !isfinite(y[at]), "swiglu_oai n=%d: %g became %g", n, odd[j], y[at]);
            c->k->silu_mul(ones, x, n);
            check_that(c, !isfinite(ones[at]), "silu_mul n=%d: times %g is %g", n, odd[j], ones[at]);
            ones[at] = 1;
            c->k->softplus_mul(ones, x, n);
            check_that(c, !isfinite(ones[at]), "softplus_mul n=%d: times %g is %g", n, odd[j], ones[at]);
            ones[at] = 1;
            c->k->sigmoid_mul(ones, x, n);
            check_that(c, !isfinite(ones[at]), "sigmoid_mul n=%d: times %g is %g", n, odd[j], ones[at]);
            ones[at] = 1;
            c->k->swiglu_oai(ones, x, n);
            check_that(c, !isfinite(ones[at]), "swiglu_oai n=%d: times %g is %g", n, odd[j], ones[at]);
        }
        check_buffer_free(y);
        fenced_free(x, n);
        fenced_free(ones, n);
    }
}

/* ---- time ----------------------------------------------------------------------- */

enum { BENCH_N = 4096, BENCH_VOCABULARY = 150000 };

typedef struct bench {
    const ig_kernels *k;
    float *x, *y, *w;
    uint16_t *h;
} bench;

static void run_rms_norm(void *arg) {
    bench *b = arg;
    b->k->rms_norm(b->y, b->x, b->w, BENCH_N, 1e-5f);
}
static void run_layer_norm(void *arg) {
    bench *b = arg;
    b->k->layer_norm(b->y, b->x, b->w, b->w, BENCH_N, 1e-5f);
}
static void run_add(void *arg) {
    bench *b = arg;
    b->k->add(b->y, b->x, BENCH_N);
}
static void run_silu_mul(void *arg) {
    bench *b = arg;
    memcpy(b->y, b->x, BENCH_N * sizeof(float));
    b->k->silu_mul(b->y, b->w, BENCH_N);
}
static void run_softplus_mul(void *arg) {
    bench *b = arg;
    memcpy(b->y, b->x, BENCH_N * sizeof(float));
    b->k->softplus_mul(b->y, b->w, BENCH_N);
}
static void run_xielu(void *arg) {
    static const float p[] = {0.8f, 0.9f, 0.5f, -1e-6f};
    bench *b = arg;
    memcpy(b->y, b->x, BENCH_N * sizeof(float));
    b->k->xielu(b->y, p, BENCH_N);
}
static void run_rope_half(void *arg) {
    bench *b = arg;
    b->k->rope_half(b->y, b->w, 128);
}
static void run_rope_adjacent(void *arg) {
    bench *b = arg;
    b->k->rope_adjacent(b->y, b->w, 128);
}
static void run_f32_to_f16(void *arg) {
    bench *b = arg;
    b->k->f32_to_f16(b->h, b->x, BENCH_N);
}
static void run_f16_to_f32(void *arg) {
    bench *b = arg;
    b->k->f16_to_f32(b->y, b->h, BENCH_N);
}
static void run_argmax(void *arg) {
    bench *b = arg;
    b->k->argmax(b->x, BENCH_VOCABULARY);
}

static void run_peak(void *arg) {
    bench *b = arg;
    b->k->peak(b->x, BENCH_N);
}

static void bench_vector(check *c) {
    static const struct {
        const char *name, *what;
        void (*run)(void *);
        double bytes;
    } cases[] = {
        {"norm", "rms_norm 4096", run_rms_norm, 12.0 * BENCH_N},
        {"norm", "layer_norm 4096", run_layer_norm, 16.0 * BENCH_N},
        {"elements", "add 4096", run_add, 12.0 * BENCH_N},
        {"elements", "silu_mul 4096", run_silu_mul, 12.0 * BENCH_N},
        {"elements", "softplus_mul 4096", run_softplus_mul, 12.0 * BENCH_N},
        {"elements", "xielu 4096", run_xielu, 8.0 * BENCH_N},
        {"rope", "rope_half 128", run_rope_half, 12.0 * 128},
        {"rope", "rope_adjacent 128", run_rope_adjacent, 12.0 * 128},
        {"half", "f32_to_f16 4096", run_f32_to_f16, 6.0 * BENCH_N},
        {"half", "f16_to_f32 4096", run_f16_to_f32, 6.0 * BENCH_N},
        {"peak", "peak 4096", run_peak, 4.0 * BENCH_N},
        {"max", "argmax 150000", run_argmax, 4.0 * BENCH_VOCABULARY},
    };
    bench b = {.k = c->k};
    b.x = check_buffer(BENCH_VOCABULARY * sizeof(float), 0);
    b.y = check_buffer(BENCH_N * sizeof(float), 0);
    b.w = check_buffer(BENCH_N * sizeof(float), 0);
    b.h = check_buffer(BENCH_N * sizeof(uint16_t), 0);
    check_fill(c, b.x, BENCH_VOCABULARY, CHECK_NORMAL);
    for (int i = 0; i < BENCH_N; i++) b.w[i] = 0.70710678f; /* cos = sin: rope keeps the length */
    c->k->f32_to_f16(b.h, b.x, BENCH_N);
    for (size_t i = 0; i < IG_COUNT(cases); i++)
        if (check_begin(c, cases[i].name))
            check_report(c, cases[i].what, check_time(cases[i].run, &b), cases[i].bytes, 0);
    check_buffer_free(b.x), check_buffer_free(b.y), check_buffer_free(b.w), check_buffer_free(b.h);
}

void check_vector(check *c) {
    if (c->is_bench) {
        bench_vector(c);
        return;
    }
    check_norms(c);
    check_elements(c);
    check_rope(c);
    check_half(c);
    check_peak(c);
    check_not_finite(c);
    check_max(c);
}
