/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of attention's kernels against double precision, and of what the engine builds on: a result is
 * the same to the bit whatever other queries and keys share the call, and however the rows are cut into calls.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "check.h"

enum { MOST_ROWS = 300, SENTINEL = 12345 };

static const int dims[] = {8, 16, 24, 40, 64, 64, 72, 80, 96, 128, 128, 192, 256, 520, 1032};
static const int queries[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 15, 17, 33, 128};
static const int row_counts[] = {0, 1, 2, 3, 4, 5, 15, 16, 17, 20, 31, 33, 63, 64, 65, 66, 127, 130, 257, MOST_ROWS};

/* Rows of d 16-bit floats, scattered in memory; the last in memory ends where memory ends, and so do their addresses.
 */
typedef struct rows {
    uint16_t *data;
    int n, d;
    const uint16_t **at;
} rows;

static void rows_init(rows *r, check *c, int n, int d) {
    r->n = n, r->d = d;
    r->data = check_fenced((size_t)n * (size_t)d * sizeof *r->data);
    for (int i = 0; i < n * d; i++) r->data[i] = ig_f32_f16((float)check_normal(c));
    r->at = check_fenced((size_t)n * sizeof *r->at);
    for (int i = 0; i < n; i++) r->at[i] = r->data + (size_t)i * (size_t)d;
    for (int i = n - 1; i > 0; i--) {
        int j = check_int(c, 0, i);
        const uint16_t *t = r->at[i];
        r->at[i] = r->at[j], r->at[j] = t;
    }
}

static void rows_free(rows *r) {
    check_fenced_free(r->data, (size_t)r->n * (size_t)r->d * sizeof *r->data);
    check_fenced_free(r->at, (size_t)r->n * sizeof *r->at);
}

static float *floats(check *c, size_t n) {
    float *x = check_fenced(n * sizeof *x);
    check_fill(c, x, (int)n, CHECK_NORMAL);
    return x;
}

static float *output(check *c, size_t n) {
    float *x = check_buffer(n * sizeof *x, (size_t)check_int(c, 0, 15) * 4);
    for (size_t i = 0; i < n; i++) x[i] = SENTINEL;
    return x;
}

static bool same(float a, float b) { return !memcmp(&a, &b, sizeof a); }

/* ---- scores -------------------------------------------------------------------- */

static void compare_scores(check *c, const float *got, size_t stride, const float *q, int n_q, const rows *k) {
    for (int g = 0; g < n_q; g++) {
        for (int i = 0; i < k->n; i++) {
            double sum = 0, size = 0;
            for (int j = 0; j < k->d; j++) {
                double x = (double)q[g * k->d + j] * ig_f16_f32(k->at[i][j]);
                sum += x, size += fabs(x);
            }
            float s = got[(size_t)g * stride + (size_t)i];
            bool ok = fabs(s - 0.125 * sum) <= 2e-6 * 0.125 * size;
            if (!check_that(c, ok, "n_q=%d d=%d n=%d: [%d][%d] is %g, not %g", n_q, k->d, k->n, g, i, s, 0.125 * sum))
                return;
        }
        for (size_t i = (size_t)k->n; i < stride; i++)
            check_that(c, got[(size_t)g * stride + i] == SENTINEL, "n_q=%d d=%d n=%d: wrote between", n_q, k->d, k->n);
    }
}

static void check_scores_at(check *c, int n_q, int d, int n) {
    rows k;
    rows_init(&k, c, n, d);
    size_t stride = (size_t)n + (size_t)check_int(c, 0, 9);
    float *q = floats(c, (size_t)n_q * (size_t)d), *s = output(c, (size_t)n_q * stride);
    c->k->attn_scores(s, stride, q, n_q, d, 0.125f, k.at, n);
    compare_scores(c, s, stride, q, n_q, &k);
    check_that(c, check_guards(s), "n_q=%d d=%d n=%d: wrote outside", n_q, d, n);

    float alone[MOST_ROWS * 3];
    for (int round = 0; round < 6 && n; round++) {
        int g = check_int(c, 0, n_q - 1), i = check_int(c, 0, n - 1);
        int m = check_int(c, 1, n - i), some = check_int(c, 1, n_q - g < 3 ? n_q - g : 3);
        c->k->attn_scores(alone, MOST_ROWS, q + (size_t)g * (size_t)d, some, d, 0.125f, k.at + i, m);
        for (int h = 0; h < some; h++)
            for (int j = 0; j < m; j++)
                check_that(c, same(alone[h * MOST_ROWS + j], s[(size_t)(g + h) * stride + (size_t)(i + j)]),
                           "n_q=%d d=%d n=%d: [%d][%d] depends on the rest of the call", n_q, d, n, g + h, i + j);
    }
    check_fenced_free(q, (size_t)n_q * (size_t)d * sizeof *q);
    check_buffer_free(s);
    rows_free(&k);
}

/* ---- values -------------------------------------------------------------------- */

static void compare_values(check *c, const float *got, const float *acc, const float *r, const float *p, size_t stride,
                           int n_q, const rows *v) {
    int d = v->d;
    for (int g = 0; g < n_q; g++) {
        for (int j = 0; j < d; j++) {
            double sum = r[g] == 0 ? 0 : (double)acc[g * d + j] * r[g], size = fabs(sum);
            for (int i = 0; i < v->n; i++) {
                double x = (double)p[(size_t)g * stride + (size_t)i] * ig_f16_f32(v->at[i][j]);
                sum += x, size += fabs(x);
            }
            bool ok = fabs(got[g * d + j] - sum) <= 3e-6 * size;
            if (!check_that(c, ok, "n_q=%d d=%d n=%d: [%d][%d] is %g, not %g", n_q, d, v->n, g, j, got[g * d + j], sum))
                return;
        }
    }
}

static void check_values_at(check *c, int n_q, int d, int n) {
    rows v;
    rows_init(&v, c, n, d);
    size_t stride = (size_t)n + (size_t)check_int(c, 0, 9), size = (size_t)n_q * (size_t)d;
    /* The last row of p ends at n, not at the stride. */
    size_t n_p = n ? (size_t)(n_q - 1) * stride + (size_t)n : 0;
    float *p = floats(c, n_p), *r = floats(c, (size_t)n_q), *acc = floats(c, size), *out = output(c, size);
    for (int g = 0; g < n_q; g++)
        if (check_int(c, 0, 3) == 0) {
            r[g] = 0;
            for (int j = 0; j < d; j++) acc[g * d + j] = NAN;
        }
    memcpy(out, acc, size * sizeof *out);
    c->k->attn_values(out, r, p, stride, n_q, d, v.at, n);
    compare_values(c, out, acc, r, p, stride, n_q, &v);
    check_that(c, check_guards(out), "n_q=%d d=%d n=%d: wrote outside", n_q, d, n);

    /* Some of the queries, rows in two calls. */
    float *parts = malloc(size * sizeof *parts), one[3] = {1, 1, 1};
    for (int round = 0; round < 4; round++) {
        int g = check_int(c, 0, n_q - 1), some = check_int(c, 1, n_q - g < 3 ? n_q - g : 3), cut = check_int(c, 0, n);
        const float *from = p + (size_t)g * stride;
        memcpy(parts, acc + (size_t)g * (size_t)d, (size_t)some * (size_t)d * sizeof *parts);
        c->k->attn_values(parts, r + g, from, stride, some, d, v.at, cut);
        c->k->attn_values(parts, one, from + cut, stride, some, d, v.at + cut, n - cut);
        for (int i = 0; i < some * d; i++)
            check_that(c, parts[i] == out[g * d + i], "n_q=%d d=%d n=%d cut=%d: [%d] depends on the rest of the call",
                       n_q, d, n, cut, g * d + i);
    }
    c->k->attn_values(acc, r, p, stride, n_q, d, v.at, n);
    check_that(c, !memcmp(acc, out, size * sizeof *out), "n_q=%d d=%d n=%d: depends on alignment", n_q, d, n);

    free(parts);
    check_fenced_free(p, n_p * sizeof *p);
    check_fenced_free(r, (size_t)n_q * sizeof *r), check_fenced_free(acc, size * sizeof *acc);
    check_buffer_free(out);
    rows_free(&v);
}

static void check_shapes(check *c, void (*fn)(check *, int n_q, int d, int n)) {
    for (size_t i = 0; i < IG_COUNT(queries); i++)
        for (size_t j = 0; j < IG_COUNT(dims); j++) {
            int n = row_counts[check_int(c, 0, (int)IG_COUNT(row_counts) - 1)];
            fn(c, queries[i], dims[j], queries[i] * dims[j] > 4096 ? n % 70 : n);
        }
    for (size_t i = 0; i < IG_COUNT(row_counts); i++) {
        fn(c, 3, 64, row_counts[i]);
        fn(c, 12, 64, row_counts[i]);
    }
}

/* ---- softmax ------------------------------------------------------------------- */

/* n scores in chunks of `chunk` against the softmax in one go. */
static void check_step_at(check *c, int n, int chunk) {
    float *s = floats(c, (size_t)n), m = -INFINITY, l = 0, factor[SENTINEL / 64];
    double *want = malloc(((size_t)n + 1) * sizeof *want), max = -INFINITY, sum = 0;
    int masked = check_int(c, 0, 2);
    for (int i = 0; i < n; i++) {
        s[i] *= 10;
        if ((masked == 1 && check_int(c, 0, 2) == 0) || (masked == 2 && i < 2 * chunk)) s[i] = -INFINITY;
        if (s[i] > max) max = s[i];
    }
    for (int i = 0; i < n; i++) sum += want[i] = s[i] == -INFINITY ? 0 : exp(s[i] - max);
    int n_chunks = 0;
    for (int i = 0; i < n || i == 0; i += chunk)
        factor[n_chunks++] = c->k->softmax_step(s + i, n - i < chunk ? n - i : chunk, &m, &l);
    double left = 1; /* the product of the factors of later chunks */
    for (int j = n_chunks - 1; j >= 0; j--) {
        for (int i = j * chunk; i < n && i < (j + 1) * chunk; i++)
            check_that(c, fabs(s[i] * left - want[i]) <= 4e-6 * want[i] + 1e-37, "n=%d chunk=%d: [%d] is %g, not %g", n,
                       chunk, i, s[i] * left, want[i]);
        left *= factor[j];
    }
    check_that(c, left == 0, "n=%d chunk=%d: the first factor is not 0", n, chunk);
    check_that(c, fabs(l - sum) <= 2e-6 * sum && (n == 0 || m == (float)max), "n=%d chunk=%d: l=%g m=%g, not %g %g", n,
               chunk, l, m, sum, max);
    free(want);
    check_fenced_free(s, (size_t)n * sizeof *s);
}

static void check_exp(check *c) {
    enum { N = 120000 };
    static float s[N];
    float m = 0, l = 0;
    for (int i = 0; i < N; i++) s[i] = -(float)i / 1000 * (i % 2 ? 1 : 0.01f);
    static float x[N];
    memcpy(x, s, sizeof s);
    c->k->softmax_step(s, N, &m, &l);
    for (int i = 0; i < N; i++) {
        double want = exp((double)x[i]);
        check_that(c, fabs(s[i] - want) <= 2e-7 * want + 1.5e-45, "exp(%.9g) is %.9g, not %.9g", x[i], s[i], want);
    }
}

static void check_masked_steps(check *c) {
    float s[40], m = -INFINITY, l = 0;
    for (int i = 0; i < 40; i++) s[i] = -INFINITY;
    float r = c->k->softmax_step(s, 40, &m, &l);
    check_that(c, r == 0 && m == -INFINITY && l == 0 && s[0] == 0 && s[39] == 0, "nothing seen: r=%g m=%g l=%g", r, m,
               l);
    s[7] = 3;
    for (int i = 0; i < 40; i++) s[i] = i == 7 ? 3 : -INFINITY;
    r = c->k->softmax_step(s, 40, &m, &l);
    check_that(c, r == 0 && m == 3 && l == 1 && s[7] == 1 && s[6] == 0, "one seen: r=%g m=%g l=%g", r, m, l);
    for (int i = 0; i < 40; i++) s[i] = -INFINITY;
    r = c->k->softmax_step(s, 40, &m, &l);
    check_that(c, r == 1 && m == 3 && l == 1 && s[7] == 0, "masked later: r=%g m=%g l=%g", r, m, l);
    r = c->k->softmax_step(s, 0, &m, &l);
    check_that(c, r == 1 && m == 3 && l == 1, "empty: r=%g m=%g l=%g", r, m, l);
}

/* What follows behind and is masked changes no bit. */
static void check_masked_behind(check *c) {
    enum { N = 80 };
    for (int n = 1; n <= N; n++) {
        float *s = floats(c, N), padded[N], m[2] = {-1, -1}, l[2] = {0.3f, 0.3f};
        for (int i = 0; i < N; i++) padded[i] = i < n ? s[i] : -INFINITY;
        float r = c->k->softmax_step(s, n, &m[0], &l[0]), of_all = c->k->softmax_step(padded, N, &m[1], &l[1]);
        check_that(c, r == of_all && m[0] == m[1] && l[0] == l[1] && !memcmp(s, padded, (size_t)n * sizeof *s),
                   "n=%d: r=%g m=%g l=%.9g, with masked ones behind r=%g m=%g l=%.9g", n, r, m[0], l[0], of_all, m[1],
                   l[1]);
        check_fenced_free(s, N * sizeof *s);
    }
}

static void check_softmax_add_at(check *c, int n, bool none) {
    float *s = floats(c, (size_t)n), *w = output(c, (size_t)n);
    double *want = malloc(((size_t)n + 1) * sizeof *want), max = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++) {
        s[i] = none || check_int(c, 0, 9) == 0 ? -INFINITY : 5 * s[i];
        w[i] = (float)check_int(c, 0, 1);
        max = fmax(max, s[i]);
    }
    for (int i = 0; i < n; i++) sum += s[i] == -INFINITY ? 0 : exp(s[i] - max);
    for (int i = 0; i < n; i++) want[i] = w[i] + (s[i] == -INFINITY ? 0 : exp(s[i] - max) / sum);
    c->k->softmax_add(w, s, n);
    for (int i = 0; i < n; i++)
        if (!check_that(c, fabs(w[i] - want[i]) <= (4e-6 + 1e-10 * n) * want[i] + 1e-37, "add n=%d: [%d] is %g, not %g",
                        n, i, w[i], want[i]))
            break;
    check_that(c, check_guards(w), "add n=%d: wrote outside", n);
    free(want);
    check_fenced_free(s, (size_t)n * sizeof *s);
    check_buffer_free(w);
}

static void check_softmax(check *c) {
    check_exp(c);
    check_masked_steps(c);
    check_masked_behind(c);
    for (int n = 0; n < 68; n++) {
        check_step_at(c, n, n + 1);
        check_step_at(c, n, check_int(c, 1, n + 1));
        check_softmax_add_at(c, n, false);
        check_softmax_add_at(c, n, true);
    }
    check_step_at(c, 1000, 64);
    check_step_at(c, 4096, 512);
    check_softmax_add_at(c, 100000, false);
}

/* ---- time ----------------------------------------------------------------------- */

typedef struct bench {
    const ig_kernels *k;
    int n_q, d, n; /* n rows of a call */
    int n_rows;    /* rows in all, in calls of n */
    float *q, *s, *acc, *r;
    const uint16_t **at;
} bench;

static void run_scores(void *arg) {
    bench *b = arg;
    for (int i = 0; i < b->n_rows; i += b->n)
        b->k->attn_scores(b->s, (size_t)b->n, b->q, b->n_q, b->d, 0.125f, b->at + i, b->n);
}

static void run_values(void *arg) {
    bench *b = arg;
    for (int i = 0; i < b->n_rows; i += b->n)
        b->k->attn_values(b->acc, b->r, b->s, (size_t)b->n, b->n_q, b->d, b->at + i, b->n);
}

static void run_step(void *arg) {
    bench *b = arg;
    for (int g = 0; g < b->n_q; g++) {
        float m = -INFINITY, l = 0;
        b->k->softmax_step(b->s + (size_t)g * (size_t)b->n, b->n, &m, &l);
    }
}

/* Every `step`th row of a store with rows of 2 d numbers (key, then value). */
static void bench_one(check *c, const char *what, int n_q, int d, int n, int n_rows, int step) {
    bench b = {c->k, n_q, d, n, n_rows, NULL, NULL, NULL, NULL, NULL};
    size_t row = 2 * (size_t)d, total = (size_t)n_rows * (size_t)step * row, n_scores = (size_t)n_q * (size_t)n;
    uint16_t *data = check_buffer(total * 2, 0);
    for (size_t i = 0; i < total; i++) data[i] = (uint16_t)(0x3000 + i % 251);
    b.at = malloc((size_t)n_rows * sizeof *b.at);
    for (int i = 0; i < n_rows; i++)
        b.at[i] = data + ((size_t)i * (size_t)step + (size_t)check_int(c, 0, step - 1)) * row;
    b.q = check_buffer((size_t)n_q * (size_t)d * 4, 0);
    b.acc = check_buffer((size_t)n_q * (size_t)d * 4, 0);
    b.s = check_buffer(n_scores * 4, 0);
    b.r = check_buffer((size_t)n_q * 4, 0);
    check_fill(c, b.q, n_q * d, CHECK_NORMAL), check_fill(c, b.acc, n_q * d, CHECK_NORMAL);
    check_fill(c, b.s, (int)n_scores, CHECK_NORMAL);
    for (int g = 0; g < n_q; g++) b.r[g] = 0.5f;
    double macs = (double)n_rows * n_q * d, bytes = (double)n_rows * d * 2;
    char line[64];
    if (check_begin(c, "values")) {
        snprintf(line, sizeof line, "%s %dq d%d %d/%d", what, n_q, d, n_rows, n);
        check_report(c, line, check_time(run_values, &b), bytes, macs);
    }
    if (check_begin(c, "scores")) {
        snprintf(line, sizeof line, "%s %dq d%d %d/%d", what, n_q, d, n_rows, n);
        check_report(c, line, check_time(run_scores, &b), bytes, macs);
    }
    if (check_begin(c, "softmax")) {
        snprintf(line, sizeof line, "step %d of %d", n_q, n);
        check_report(c, line, check_time(run_step, &b), 8.0 * (double)n_scores, 0);
    }
    check_buffer_free(data), check_buffer_free(b.q), check_buffer_free(b.acc), check_buffer_free(b.s);
    check_buffer_free(b.r);
    free(b.at);
}

static void bench_attention(check *c) {
    bench_one(c, "near", 3, 64, 256, 1024, 1);
    bench_one(c, "memory", 3, 64, 256, 65536, 1);
    bench_one(c, "scattered", 3, 64, 256, 8192, 10);
    bench_one(c, "near", 6, 128, 256, 512, 1);
    bench_one(c, "memory", 6, 128, 256, 32768, 1);
    bench_one(c, "scattered", 6, 128, 256, 8192, 10);
    bench_one(c, "tile", 96, 64, 256, 256, 1);
    bench_one(c, "tile", 96, 128, 256, 256, 1);
}

void check_attention(check *c) {
    if (c->is_bench) {
        bench_attention(c);
        return;
    }
    if (check_begin(c, "scores")) check_shapes(c, check_scores_at);
    if (check_begin(c, "values")) check_shapes(c, check_values_at);
    if (check_begin(c, "softmax")) check_softmax(c);
}
