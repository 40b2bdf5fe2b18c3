/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of the kernels of layers with a recurrence: against double precision, and bit by bit against the scalar ones.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_lengths.h"

enum { MOST_TAPS = 8 };

/* ---- convolution ------------------------------------------------------------------- */

static void check_convolve_at(check *c, int n, int n_taps, check_shape shape) {
    size_t stride = (size_t)n + (size_t)check_int(c, 0, 5);
    int n_w = n_taps ? (int)((size_t)(n_taps - 1) * stride) + n : 0;
    float *rows[MOST_TAPS], *w = filled(c, n_w, CHECK_NORMAL), *out = output(c, n), *ref = output(c, n);
    float *all = filled(c, n, shape), *bias = check_int(c, 0, 1) ? all : NULL;
    const float *x[MOST_TAPS];
    for (int t = 0; t < n_taps; t++) {
        rows[t] = filled(c, n, shape);
        x[t] = check_int(c, 0, 4) ? rows[t] : NULL;
    }
    c->k->convolve(out, x, w, bias, stride, n_taps, n);
    c->ref->convolve(ref, x, w, bias, stride, n_taps, n);
    check_that(c, check_guards(out), "convolve n=%d: wrote outside", n);
    check_that(c, !memcmp(out, ref, (size_t)n * sizeof *out), "convolve n=%d: other than scalar", n);
    for (int i = 0; i < n; i++) {
        double want = bias ? (double)bias[i] : 0, size = fabs(want);
        for (int t = 0; t < n_taps; t++) {
            double product = x[t] ? (double)x[t][i] * (double)w[(size_t)t * stride + (size_t)i] : 0;
            want += product, size += fabs(product);
        }
        check_that(c, fabs(out[i] - want) <= 5e-7 * size, "convolve n=%d: [%d] is %g, not %g", n, i, out[i], want);
    }
    for (int t = 0; t < n_taps; t++) fenced_free(rows[t], n);
    fenced_free(w, n_w), fenced_free(all, n);
    check_buffer_free(out), check_buffer_free(ref);
}

/* ---- what a token leaves of a state -------------------------------------------------- */

static void check_forget_at(check *c, int n, check_shape shape) {
    static const float odd[] = {0, 20, -20, 88, -88, 1e30f, -1e30f, 1e-30f, NAN, INFINITY, -INFINITY};
    float *x = filled(c, n, shape), *bias = filled(c, n, CHECK_NORMAL), *out = output(c, n), *ref = output(c, n);
    float rate = -(float)check_int(c, 0, 1600) / 100;
    for (int i = 0; i < check_int(c, 0, 4); i++) x[check_int(c, 0, n - 1)] = odd[check_int(c, 0, IG_COUNT(odd) - 1)];
    c->k->forget(out, x, bias, rate, n);
    c->ref->forget(ref, x, bias, rate, n);
    check_that(c, check_guards(out), "forget n=%d: wrote outside", n);
    check_that(c, !memcmp(out, ref, (size_t)n * sizeof *out), "forget n=%d: other than scalar", n);
    for (int i = 0; i < n; i++) {
        float at = x[i] + bias[i];
        double soft = at > 0 ? (double)at + log1p(exp(-(double)at)) : log1p(exp((double)at));
        double want = exp((double)rate * soft);
        bool is_near = fabs(out[i] - want) <= 1e-37 + 3e-7 * want * fmax(1, fabs((double)rate * soft));
        check_that(c, isfinite(at) ? is_near : isnan(out[i]), "forget n=%d: %g is %g, not %g", n, at, out[i], want);
    }
    fenced_free(x, n), fenced_free(bias, n);
    check_buffer_free(out), check_buffer_free(ref);
}

/* ---- a token and a state ------------------------------------------------------------ */

typedef struct token {
    const ig_kernels *k;
    float *state, *q, *key, *v, *decay, *out;
    float share, skip;
    int n_keys, n;
} token;

static void want_delta(double *out, double *state, const token *t) {
    double beta = (double)t->share;
    for (int j = 0; j < t->n; j++) {
        double read = 0, sum = 0;
        for (int i = 0; i < t->n_keys; i++) {
            state[i * t->n + j] *= (double)t->decay[i];
            read += t->key[i] * state[i * t->n + j];
        }
        for (int i = 0; i < t->n_keys; i++) {
            state[i * t->n + j] += t->key[i] * (beta * (t->v[j] - read));
            sum += t->q[i] * state[i * t->n + j];
        }
        out[j] = sum;
    }
}

static void want_state_space(double *out, double *state, const token *t) {
    for (int j = 0; j < t->n; j++) {
        out[j] = (double)t->skip * t->v[j];
        for (int i = 0; i < t->n_keys; i++) {
            double *x = &state[i * t->n + j];
            *x = (double)t->decay[0] * *x + (double)t->key[i] * (double)t->share * (double)t->v[j];
            out[j] += (double)t->q[i] * *x;
        }
    }
}

static void call_delta(const ig_kernels *k, const token *t, float *out, float *state) {
    k->delta_rule(out, state, state, t->q, t->key, t->v, t->decay, t->share, t->n_keys, t->n);
}

static void call_state_space(const ig_kernels *k, const token *t, float *out, float *state) {
    k->state_space(out, state, state, t->q, t->key, t->v, t->decay[0], t->share, t->skip, t->n_keys, t->n);
}

typedef struct rule {
    const char *name;
    void (*call)(const ig_kernels *k, const token *t, float *out, float *state);
    void (*want)(double *out, double *state, const token *t);
} rule;

static const rule rules[] = {{"delta_rule", call_delta, want_delta},
                             {"state_space", call_state_space, want_state_space}};

static void check_rule_at(check *c, const rule *r, int n_keys, int n) {
    size_t n_state = (size_t)n_keys * (size_t)n, bytes = n_state * sizeof(float);
    token t = {.n_keys = n_keys, .n = n};
    float *ref = output(c, (int)n_state), *ref_out = output(c, n);
    double *state = calloc(n_state, sizeof *state), *out = malloc((size_t)n * sizeof *out);
    t.state = output(c, (int)n_state), t.out = output(c, n);
    memset(t.state, 0, bytes), memset(ref, 0, bytes);
    for (int step = 0; step < 5; step++) {
        t.q = filled(c, n_keys, CHECK_NORMAL), t.key = filled(c, n_keys, CHECK_NORMAL),
        t.v = filled(c, n, CHECK_NORMAL), t.decay = filled(c, n_keys, CHECK_NORMAL);
        double length = 0;
        for (int i = 0; i < n_keys; i++) length += (double)t.key[i] * (double)t.key[i];
        for (int i = 0; i < n_keys; i++) t.key[i] /= (float)sqrt(length); /* as they are: else states grow */
        for (int i = 0; i < n_keys; i++) t.decay[i] = (float)check_int(c, 0, 100) / 100;
        t.share = (float)check_int(c, 0, 100) / 100;
        t.skip = (float)check_int(c, -100, 100) / 100;
        r->call(c->k, &t, t.out, t.state);
        r->call(c->ref, &t, ref_out, ref);
        r->want(out, state, &t);
        check_that(c, !memcmp(t.state, ref, bytes) && !memcmp(t.out, ref_out, (size_t)n * sizeof *ref_out),
                   "%s %dx%d: other than scalar", r->name, n_keys, n);
        for (int j = 0; j < n; j++)
            check_that(c, fabs(t.out[j] - out[j]) <= 2e-5 * sqrt(n_keys), "%s %dx%d: [%d] is %g, not %g", r->name,
                       n_keys, n, j, t.out[j], out[j]);
        fenced_free(t.q, n_keys), fenced_free(t.key, n_keys), fenced_free(t.v, n), fenced_free(t.decay, n_keys);
    }
    check_that(c, check_guards(t.state) && check_guards(t.out), "%s %dx%d: wrote outside", r->name, n_keys, n);
    check_buffer_free(t.state), check_buffer_free(t.out), check_buffer_free(ref), check_buffer_free(ref_out);
    free(state), free(out);
}

/* What is not finite in a value is not finite in what is read. */
static void check_hostile(check *c, const rule *r) {
    enum { N = 16 };
    float state[N * N] = {0}, v[N], key[N], decay[N], out[N];
    for (int i = 0; i < N; i++) v[i] = decay[i] = 1, key[i] = 0.25f;
    v[3] = NAN, v[7] = INFINITY;
    token t = {.q = key, .key = key, .v = v, .decay = decay, .share = 0.5f, .n_keys = N, .n = N};
    r->call(c->k, &t, out, state);
    for (int i = 0; i < N; i++)
        check_that(c, isfinite(out[i]) == (i != 3 && i != 7), "%s: [%d] is %g", r->name, i, out[i]);
}

/* ---- time ---------------------------------------------------------------------------- */

typedef struct timed {
    token t;
    const rule *r;
} timed;

static void run_rule(void *arg) {
    timed *x = arg;
    x->r->call(x->t.k, &x->t, x->t.out, x->t.state);
}

static void bench_rule(check *c, const rule *r) {
    enum { D = 128 };
    char name[40];
    token t = {.k = c->k, .share = 0.5f, .n_keys = D, .n = D};
    snprintf(name, sizeof name, "%s 128x128", r->name);
    t.state = output(c, D * D), t.q = output(c, D), t.key = output(c, D), t.v = output(c, D), t.out = output(c, D);
    t.decay = output(c, D);
    for (int i = 0; i < D; i++) t.decay[i] = 0.9f;
    check_fill(c, t.state, D * D, CHECK_NORMAL), check_fill(c, t.q, D, CHECK_SMALL);
    check_fill(c, t.key, D, CHECK_SMALL), check_fill(c, t.v, D, CHECK_NORMAL);
    check_report(c, name, check_time(run_rule, &(timed){t, r}), 2.0 * D * D * sizeof(float), 3.0 * D * D);
    check_buffer_free(t.state), check_buffer_free(t.q), check_buffer_free(t.key), check_buffer_free(t.v);
    check_buffer_free(t.out), check_buffer_free(t.decay);
}

static void run_forget(void *arg) {
    const token *t = arg;
    t->k->forget(t->out, t->v, t->key, -1.5f, t->n_keys);
}

static void bench_forget(check *c) {
    enum { D = 128 };
    token t = {.k = c->k, .n_keys = D};
    t.key = output(c, D), t.v = output(c, D), t.out = output(c, D);
    check_fill(c, t.key, D, CHECK_NORMAL), check_fill(c, t.v, D, CHECK_NORMAL);
    check_report(c, "forget 128", check_time(run_forget, &t), 3.0 * D * sizeof(float), 0);
    check_buffer_free(t.key), check_buffer_free(t.v), check_buffer_free(t.out);
}

void check_recurrence(check *c) {
    static const int dims[] = {16, 32, 48, 64, 128, 256};
    if (!check_begin(c, "recurrence")) return;
    if (c->is_bench) {
        for (size_t r = 0; r < IG_COUNT(rules); r++) bench_rule(c, &rules[r]);
        bench_forget(c);
        return;
    }
    for (int i = 0; i < N_LENGTHS; i++)
        for (int s = 0; s < CHECK_SHAPES; s++) check_convolve_at(c, length_at(i), i % (MOST_TAPS + 1), (check_shape)s);
    for (size_t i = 0; i < IG_COUNT(dims); i++)
        for (int s = 0; s < CHECK_SHAPES; s++) check_forget_at(c, dims[i], (check_shape)s);
    for (size_t r = 0; r < IG_COUNT(rules); r++) {
        for (size_t i = 0; i < IG_COUNT(dims); i++)
            for (size_t j = 0; j < IG_COUNT(dims); j++) check_rule_at(c, &rules[r], dims[i], dims[j]);
        check_hostile(c, &rules[r]);
    }
}
