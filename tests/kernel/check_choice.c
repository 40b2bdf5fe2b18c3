/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of the kernels that choosing entries takes: every length from 0 to 67 and some longer ones, against double
 * precision, with inputs that end where memory ends and outputs between guards.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "check_lengths.h"

static double *doubles(int n) {
    double *x = malloc(((size_t)n + 1) * sizeof *x);
    if (!x) exit(1);
    return x;
}

/* |got - want| <= limit[i] for all i; NaN in got fails. */
static void compare(check *c, const char *what, const float *got, const double *want, const double *limit, int n) {
    check_that(c, check_guards(got), "%s n=%d: wrote outside", what, n);
    for (int i = 0; i < n; i++)
        if (!check_that(c, fabs((double)got[i] - want[i]) <= limit[i], "%s n=%d: [%d] is %.9g, not %.9g", what, n, i,
                        (double)got[i], want[i]))
            return;
}

/* ---- weights --------------------------------------------------------------------- */

static void check_sum_rows_at(check *c, int n, int n_rows, check_shape shape) {
    size_t stride = (size_t)n + (size_t)check_int(c, 0, 5),
           n_s = n_rows ? (size_t)(n_rows - 1) * stride + (size_t)n : 0;
    float *s = filled(c, (int)n_s, shape), *r = filled(c, n_rows, CHECK_NORMAL), *w = output(c, n);
    double *want = doubles(n), *limit = doubles(n);
    for (int i = 0; i < n; i++) {
        want[i] = 0, limit[i] = 1e-37;
        for (int g = 0; g < n_rows; g++) {
            double x = (double)r[g] * (double)s[(size_t)g * stride + (size_t)i];
            want[i] += x, limit[i] += 1e-6 * fabs(x);
        }
    }
    c->k->sum_rows(w, r, s, stride, n_rows, n);
    compare(c, "sum_rows", w, want, limit, n);
    free(want), free(limit);
    check_buffer_free(w);
    fenced_free(s, (int)n_s), fenced_free(r, n_rows);
}

static void check_smooth_at(check *c, int n, int block, check_shape shape) {
    float *x = filled(c, n, shape), *w = output(c, n), share = (float)check_int(c, 0, 4) / 4;
    double *want = doubles(n), *limit = doubles(n);
    for (int begin = 0; begin < n; begin += block) {
        int end = n - begin < block ? n : begin + block;
        double sum = 0, size = 0;
        for (int i = begin; i < end; i++) sum += (double)x[i], size += fabs((double)x[i]);
        for (int i = begin; i < end; i++) {
            want[i] = (1 - (double)share) * (double)x[i] + (double)share * sum / (end - begin);
            limit[i] = 1e-6 * (fabs((double)x[i]) + size / (end - begin)) + 1e-37;
        }
    }
    memcpy(w, x, (size_t)n * sizeof *w);
    c->k->smooth(w, n, block, share);
    compare(c, "smooth", w, want, limit, n);
    c->k->smooth(x, n, block, share); /* reading past the end would fault here */
    free(want), free(limit);
    check_buffer_free(w);
    fenced_free(x, n);
}

static void check_weights(check *c) {
    static const int blocks[] = {1, 2, 3, 8, 12, 16, 24, 32, 64, 128};
    if (!check_begin(c, "weights")) return;
    for (int i = 0; i < N_LENGTHS; i++)
        for (int s = 0; s < CHECK_SHAPES; s++) {
            check_sum_rows_at(c, length_at(i), check_int(c, 0, 16), (check_shape)s);
            for (size_t b = 0; b < IG_COUNT(blocks); b++) check_smooth_at(c, length_at(i), blocks[b], (check_shape)s);
        }
}

/* ---- what lies above thresholds ------------------------------------------------------ */

/* Three at once, in any order. */
static void check_above3(check *c, const float *x, int n) {
    float t[3] = {(float)check_int(c, -2, 2) / 2, (float)check_int(c, -2, 2) / 2, -INFINITY}, sum[3];
    int count[3], again[3];
    c->k->count_above3(x, n, t, count, sum);
    c->k->count_above3(x, n, t, again, NULL);
    for (int j = 0; j < 3; j++) {
        double total = 0, size = 0;
        int want = 0;
        for (int i = 0; i < n; i++)
            if (x[i] > t[j]) want++, total += (double)x[i], size += fabs((double)x[i]);
        check_that(c, count[j] == want && again[j] == want, "count3[%d] n=%d is %d, %d, not %d", j, n, count[j],
                   again[j], want);
        check_that(c, fabs((double)sum[j] - total) <= 1e-5 * size, "sum3[%d] n=%d is %g, not %g", j, n, (double)sum[j],
                   total);
    }
}

/* What lies above a threshold: counted, summed, listed; nothing written past the list. */
static void check_above(check *c) {
    if (!check_begin(c, "above")) return;
    for (int i = 0; i < N_LENGTHS; i++) {
        int n = length_at(i), count = 0;
        float *x = filled(c, n, CHECK_NORMAL), t = (float)check_int(c, -1, 1), sum = 0;
        int32_t *list = check_fenced((size_t)n * sizeof *list);
        double total = 0, size = 0;
        for (int j = 0; j < n; j++)
            if (check_int(c, 0, 9) == 0) x[j] = check_int(c, 0, 1) ? NAN : t;
        int found = c->k->list_above(list, x, 100, n, t);
        for (int j = 0; j < n; j++)
            if (x[j] > t) {
                check_that(c, count < found && list[count] == 100 + j, "list n=%d lacks %d", n, j);
                total += (double)x[j], size += fabs((double)x[j]);
                count++;
            }
        check_that(c, found == count, "list n=%d has %d, not %d", n, found, count);
        check_that(c, c->k->count_above(x, n, t, NULL) == count, "count n=%d is not %d", n, count);
        check_that(c, c->k->count_above(x, n, t, &sum) == count, "count n=%d with sum is not %d", n, count);
        check_that(c, fabs((double)sum - total) <= 1e-5 * size, "sum n=%d is %g, not %g", n, (double)sum, total);
        check_above3(c, x, n);
        check_fenced_free(list, (size_t)n * sizeof *list);
        fenced_free(x, n);
    }
}

/* ---- time ------------------------------------------------------------------------------ */

enum { BENCH_N = 16384, BENCH_ROWS = 6 };

typedef struct bench {
    const ig_kernels *k;
    float *w, *s, r[BENCH_ROWS];
    int32_t *list;
} bench;

static void run_sum_rows(void *arg) {
    bench *b = arg;
    b->k->sum_rows(b->w, b->r, b->s, BENCH_N, BENCH_ROWS, BENCH_N);
}
static void run_smooth(void *arg) {
    bench *b = arg;
    b->k->smooth(b->w, BENCH_N, 8, 0.5f);
}
static void run_count(void *arg) {
    bench *b = arg;
    float sum;
    b->k->count_above(b->s, BENCH_N, 1, &sum);
}
static void run_count3(void *arg) {
    bench *b = arg;
    float t[3] = {0, 1, 2}, sum[3];
    int count[3];
    b->k->count_above3(b->s, BENCH_N, t, count, sum);
}
static void run_list(void *arg) {
    bench *b = arg;
    b->k->list_above(b->list, b->s, 0, BENCH_N, 1.28f);
}

static void bench_choice(check *c) {
    static const struct {
        const char *name, *what;
        void (*run)(void *);
        double bytes; /* of an element */
    } cases[] = {
        {"weights", "sum_rows 6 of 16384", run_sum_rows, 4 * BENCH_ROWS + 4},
        {"weights", "smooth 16384 by 8", run_smooth, 8},
        {"above", "count_above 16384", run_count, 4},
        {"above", "count_above3 16384", run_count3, 4},
        {"above", "list_above 1640 of 16384", run_list, 4.4},
    };
    bench b = {.k = c->k};
    b.w = check_buffer(BENCH_N * sizeof(float), 0);
    b.s = check_buffer(BENCH_ROWS * BENCH_N * sizeof(float), 0);
    b.list = check_buffer(BENCH_N * sizeof(int32_t), 0);
    check_fill(c, b.w, BENCH_N, CHECK_NORMAL), check_fill(c, b.s, BENCH_ROWS * BENCH_N, CHECK_NORMAL);
    check_fill(c, b.r, BENCH_ROWS, CHECK_NORMAL);
    for (size_t i = 0; i < IG_COUNT(cases); i++) {
        check_fill(c, b.w, BENCH_N, CHECK_NORMAL);
        if (check_begin(c, cases[i].name))
            check_report(c, cases[i].what, check_time(cases[i].run, &b), cases[i].bytes * BENCH_N, 0);
    }
    check_buffer_free(b.w), check_buffer_free(b.s), check_buffer_free(b.list);
}

void check_choice(check *c) {
    if (c->is_bench) {
        bench_choice(c);
        return;
    }
    check_weights(c);
    check_above(c);
}
