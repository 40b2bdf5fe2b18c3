/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of the kernels for a tile of a prompt's queries, where a level has them: how far they are from attention in
 * double precision, beside what rounding keys and values to 16-bit floats does; sums at the limits of their integers;
 * what is not finite; and that a query's bits depend on nothing but what it sees.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/half.h"
#include "check.h"

enum { MOST_KEYS = 400 };

/* A tile and the rows of its view, in memory that ends where theirs does. */
typedef struct problem {
    int n_q, d, n, window; /* 0: queries see all before their ends */
    float scale;
    bool is_coarse;
    float *q;
    uint16_t *rows; /* [n][2][d] keys and values */
    const uint16_t *k[MOST_KEYS], *v[MOST_KEYS];
    int begin[IG_PROMPT_QUERIES], end[IG_PROMPT_QUERIES];
} problem;

typedef struct result {
    float m[IG_PROMPT_QUERIES], l[IG_PROMPT_QUERIES], *acc;
} result;

static size_t row_bytes(const problem *p) { return (size_t)p->n * 2 * (size_t)p->d * sizeof *p->rows; }
static size_t query_bytes(const problem *p) { return (size_t)p->n_q * (size_t)p->d * sizeof *p->q; }

static problem *problem_new(int n_q, int d, int n, bool is_coarse) {
    problem *p = calloc(1, sizeof *p);
    p->n_q = n_q, p->d = d, p->n = n, p->is_coarse = is_coarse;
    p->scale = 1 / sqrtf((float)d);
    p->q = check_fenced(query_bytes(p));
    p->rows = check_fenced(row_bytes(p));
    for (int i = 0; i < n; i++) {
        p->k[i] = p->rows + (size_t)i * 2 * (size_t)d;
        p->v[i] = p->k[i] + d;
    }
    for (int r = 0; r < n_q; r++) p->end[r] = n;
    return p;
}

static void problem_free(problem *p) {
    check_fenced_free(p->q, query_bytes(p)), check_fenced_free(p->rows, row_bytes(p));
    free(p);
}

static void set_key(problem *p, int i, int j, double x) { p->rows[(i * 2) * p->d + j] = ig_f32_f16((float)x); }
static void set_value(problem *p, int i, int j, double x) { p->rows[(i * 2 + 1) * p->d + j] = ig_f32_f16((float)x); }

/* Queries see one key more each, in groups of 3, the last of them all, as heads of consecutive positions do. */
static void set_causal(problem *p) {
    for (int r = 0; r < p->n_q; r++) {
        int end = p->n - (p->n_q - 1 - r) / 3;
        p->end[r] = end > 1 ? end : 1;
    }
}

/* Queries see n rows before their ends, or those of their ends' chunk of n rows. */
static void set_window(problem *p, int n, bool in_chunks) {
    p->window = n;
    for (int r = 0; r < p->n_q; r++) {
        int begin = in_chunks ? (p->end[r] - 1) / n * n : p->end[r] - n;
        p->begin[r] = begin > 0 ? begin : 0;
    }
}

/* Queries [from, from + n_q) over chunks up to what the last of them sees; each in calls of their own if `cut`. */
static result *attend(check *c, const problem *p, int from, int n_q, bool cut) {
    size_t d = (size_t)p->d, bytes = c->k->prompt_bytes(p->d);
    result *r = calloc(1, sizeof *r);
    r->acc = calloc((size_t)n_q * d, sizeof *r->acc);
    for (int i = 0; i < n_q; i++) r->m[i] = -INFINITY;
    ig_prompt_tile t = {.n_q = n_q,
                        .d = p->d,
                        .q = p->q + (size_t)from * d,
                        .scale = p->scale,
                        .begin = p->window ? p->begin + from : NULL,
                        .end = p->end + from,
                        .m = r->m,
                        .l = r->l,
                        .acc = r->acc,
                        .is_coarse = p->is_coarse,
                        .scratch = check_buffer(bytes, 0)};
    int end = p->end[from + n_q - 1];
    void *chunk = check_buffer(c->k->prompt_chunk_bytes(p->d), 0);
    c->k->prompt_begin(&t);
    for (int first = 0; first < end; first += IG_PROMPT_KEYS) {
        int n = end - first < IG_PROMPT_KEYS ? end - first : IG_PROMPT_KEYS;
        c->k->prompt_keys(chunk, p->k + first, n, p->d);
        c->k->prompt_values(chunk, p->v + first, n, p->d);
        c->k->prompt_attend(&t, chunk, first, n);
        if (!cut) continue;
        c->k->prompt_end(&t);
        memset(t.scratch, 0x5a, bytes);
        c->k->prompt_begin(&t);
    }
    c->k->prompt_end(&t);
    check_that(c, check_guards(t.scratch) && check_guards(chunk), "n_q=%d d=%d n=%d: wrote outside", n_q, p->d, p->n);
    check_buffer_free(t.scratch), check_buffer_free(chunk);
    return r;
}

static void result_free(result *r) {
    free(r->acc);
    free(r);
}

/* ---- precision ------------------------------------------------------------------ */

/* x moved by half a step of 16-bit floats, at most: as if it had been rounded to one of them. */
static double moved(check *c, double x) {
    int exponent;
    frexp(x, &exponent);
    return x + ldexp((double)check_int(c, -1000, 1000) / 1000, exponent - 12);
}

/* Query r in double precision; with a check, of rows that are moved. */
static void exact(double *out, const problem *p, const double *k, const double *v, int r) {
    double s[MOST_KEYS], top = -INFINITY, sum = 0;
    int begin = p->begin[r], d = p->d;
    for (int i = begin; i < p->end[r]; i++) {
        s[i] = 0;
        for (int j = 0; j < d; j++) s[i] += (double)p->q[r * d + j] * k[i * d + j];
        s[i] *= p->scale;
        top = fmax(top, s[i]);
    }
    for (int j = 0; j < d; j++) out[j] = 0;
    for (int i = begin; i < p->end[r]; i++) {
        double w = exp(s[i] - top);
        sum += w;
        for (int j = 0; j < d; j++) out[j] += w * v[i * d + j];
    }
    for (int j = 0; j < d; j++) out[j] /= sum;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Every level that has these kernels makes the same bits, up to AMX, whose numbers are others. */
static void check_levels(check *c, const problem *p, const result *got, const char *what) {
    size_t bytes = query_bytes(p);
    if (c->k->level == IG_CPU_AMX) return;
    for (ig_cpu_level level = IG_CPU_SCALAR; level < c->k->level; level++) {
        check other = {.k = ig_kernels_get(level)};
        if (!ig_cpu_has(level) || !other.k->prompt_bytes) continue;
        result *theirs = attend(&other, p, 0, p->n_q, false);
        check_that(c, !memcmp(theirs->acc, got->acc, bytes), "%s: other bits than %s", what, ig_cpu_level_name(level));
        result_free(theirs);
    }
}

/* How much coarser than 16-bit floats numbers are rounded: to bfloat16, which has 3 bits fewer. */
static double coarseness(const problem *p) { return p->is_coarse ? 8 : 1; }

/* The error of a tile's queries is, in the median, at most 4 times that of rounding to 16-bit floats, or to bfloat16.
 * (The mean of some shapes is that of a few queries for which two keys are about equal.) */
static void compare(check *c, const problem *p, const char *what) {
    size_t d = (size_t)p->d, n = (size_t)p->n * d;
    double *k[2], *v[2], *out[2], errors[2][IG_PROMPT_QUERIES] = {{0}};
    for (int x = 0; x < 2; x++) {
        k[x] = malloc(n * sizeof(double)), v[x] = malloc(n * sizeof(double)), out[x] = malloc(d * sizeof(double));
        for (size_t i = 0; i < n; i++) {
            k[x][i] = ig_f16_f32(p->k[i / d][i % d]), v[x][i] = ig_f16_f32(p->v[i / d][i % d]);
            if (x) k[x][i] = moved(c, k[x][i]), v[x][i] = moved(c, v[x][i]);
        }
    }
    result *got = attend(c, p, 0, p->n_q, false);
    check_levels(c, p, got, what);
    for (int r = 0; r < p->n_q; r++) {
        exact(out[0], p, k[0], v[0], r), exact(out[1], p, k[1], v[1], r);
        for (size_t j = 0; j < d; j++) {
            errors[0][r] += pow(got->acc[(size_t)r * d + j] / got->l[r] - out[0][j], 2);
            errors[1][r] += pow(out[1][j] - out[0][j], 2);
        }
    }
    for (int x = 0; x < 2; x++) {
        qsort(errors[x], (size_t)p->n_q, sizeof(double), by_size);
        free(k[x]), free(v[x]), free(out[x]);
    }
    double ratio = sqrt(errors[0][p->n_q / 2] / errors[1][p->n_q / 2]);
    check_that(c, ratio <= 4 * coarseness(p), "%s n_q=%d d=%d n=%d window=%d: %g times the error of 16-bit floats",
               what, p->n_q, p->d, p->n, p->window, ratio);
    result_free(got);
}

enum { NORMAL, PEAKED, FLAT, CHANNELS, SPREAD, VALUES, SHAPES };
static const char *const shape_names[] = {"normal", "peaked", "flat", "channels", "spread", "values"};

/* CHANNELS: a few dims of all keys lie far from 0, as Qwen2's biases make them. SPREAD: rows from 1e-3 to 1e3. VALUES:
 * a few dims of all values are 100 times as large. */
static void fill(check *c, problem *p, int shape) {
    double far[3] = {240, -120, 60}, q = shape == PEAKED ? 6 : shape == FLAT ? 0.05 : 1;
    for (int i = 0; i < p->n_q * p->d; i++) p->q[i] = (float)(q * check_normal(c));
    for (int i = 0; i < p->n; i++) {
        double key = shape == SPREAD ? pow(10, check_int(c, -30, 30) / 10.0) : 1;
        double value = shape == SPREAD ? pow(10, check_int(c, -30, 30) / 10.0) : 1;
        for (int j = 0; j < p->d; j++) {
            double base = shape == CHANNELS && j % 37 == 5 && j < 111 ? far[j / 37] : 0;
            set_key(p, i, j, key * check_normal(c) + base);
            set_value(p, i, j, value * check_normal(c) * (shape == VALUES && j % 31 == 4 ? 100 : 1));
        }
    }
}

static void check_precision(check *c, bool is_coarse) {
    static const int dims[] = {8, 24, 64, 72, 80, 128, 256, 512, 576};
    static const int queries[] = {24, 33, 47, 128};
    for (int shape = 0; shape < SHAPES; shape++)
        for (size_t i = 0; i < IG_COUNT(dims); i++) {
            int n_q = queries[check_int(c, 0, (int)IG_COUNT(queries) - 1)], n = check_int(c, 50, 300);
            problem *p = problem_new(dims[i] > 128 && n_q > 33 ? 33 : n_q, dims[i], n, is_coarse);
            fill(c, p, shape);
            set_causal(p);
            if (check_int(c, 0, 2) == 0) set_window(p, check_int(c, 30, n), check_int(c, 0, 1));
            compare(c, p, shape_names[shape]);
            problem_free(p);
        }
}

/* Windows that begin in the second chunk for some queries of a block, which see nothing of the first. */
static void check_windows(check *c, bool in_chunks, bool is_coarse) {
    problem *p = problem_new(48, 64, 200, is_coarse);
    fill(c, p, NORMAL);
    set_causal(p);
    double k[200 * 64], v[200 * 64], want[64];
    for (int i = 0; i < 200 * 64; i++) k[i] = ig_f16_f32(p->k[i / 64][i % 64]), v[i] = ig_f16_f32(p->v[i / 64][i % 64]);
    for (int n = 1; n < 80; n++) {
        set_window(p, n, in_chunks);
        result *got = attend(c, p, 0, p->n_q, false);
        for (int r = 0; r < p->n_q; r++) {
            double squares = 0, error = 0;
            exact(want, p, k, v, r);
            for (int j = 0; j < 64; j++) {
                squares += want[j] * want[j];
                error += pow(got->acc[r * 64 + j] / got->l[r] - want[j], 2);
            }
            check_that(c, sqrt(error) <= 1e-3 * coarseness(p) * sqrt(squares), "window=%d,%d: [%d] is off by %g", n,
                       in_chunks, r, sqrt(error / squares));
        }
        result_free(got);
    }
    problem_free(p);
}

/* ---- the same bits ---------------------------------------------------------------- */

static bool same_query(const result *a, int i, const result *b, int j, int d) {
    size_t bytes = (size_t)d * sizeof(float);
    return !memcmp(&a->m[i], &b->m[j], sizeof(float)) && !memcmp(&a->l[i], &b->l[j], sizeof(float)) &&
           !memcmp(a->acc + (size_t)i * (size_t)d, b->acc + (size_t)j * (size_t)d, bytes);
}

static void check_bits(check *c, bool is_coarse) {
    static const int dims[] = {8, 64, 80, 128};
    for (int round = 0; round < 24; round++) {
        int n_q = check_int(c, 1, IG_PROMPT_QUERIES), n = check_int(c, 43, MOST_KEYS);
        problem *p = problem_new(n_q, dims[round % 4], n, is_coarse);
        fill(c, p, round % SHAPES);
        set_causal(p);
        if (round % 3 == 0) set_window(p, check_int(c, 1, n), round % 2);
        result *all = attend(c, p, 0, n_q, false), *cut = attend(c, p, 0, n_q, true);
        for (int i = 0; i < n_q; i++)
            check_that(c, same_query(all, i, cut, i, p->d), "n_q=%d d=%d n=%d window=%d: [%d] depends on the calls",
                       n_q, p->d, n, p->window, i);
        for (int from = 0; from < n_q;) {
            int some = check_int(c, 1, n_q - from < 20 ? n_q - from : 20);
            result *part = attend(c, p, from, some, false);
            for (int i = 0; i < some; i++)
                check_that(c, same_query(all, from + i, part, i, p->d),
                           "n_q=%d d=%d n=%d window=%d: [%d] depends on the rest of the tile", n_q, p->d, n, p->window,
                           from + i);
            result_free(part);
            from += some;
        }
        result_free(all), result_free(cut);
        problem_free(p);
    }
}

/* ---- limits ------------------------------------------------------------------------ */

/* Sums as large as they can be: all dims or only one, in queries, keys and values; all weights alike, or only that of
 * row 40, whose value is another; queries as large as model/finite.c and a key's frame let them be. */
static void check_largest(check *c, bool is_coarse) {
    for (int d = 8; d <= 512; d *= 2)
        for (int shape = 0; shape < 32; shape++) {
            problem *p = problem_new(3, d, 96, is_coarse);
            float query = shape & 16 ? 1e13f * 65536 : 0.05f;
            double key = shape & 4 ? -65504 : 65504, value = shape & 8 ? -65504 : 65504;
            for (int i = 0; i < 3 * d; i++) p->q[i] = shape & 1 && i % d ? 0 : query;
            for (int i = 0; i < p->n; i++)
                for (int j = 0; j < d; j++) {
                    bool most = !(shape & 2) || i == 40;
                    set_key(p, i, j, shape & 1 && j ? 0 : most == (key > 0) ? key : key / 2);
                    set_value(p, i, j, most ? value : -value / 2);
                }
            result *got = attend(c, p, 0, 3, false);
            for (int i = 0; i < 3 * d; i++) {
                double x = got->acc[i] / got->l[i / d];
                if (!check_that(c, fabs(x / value - 1) <= 5e-4 * coarseness(p), "d=%d shape %d: [%d] is %g, not %g", d,
                                shape, i, x, value))
                    break;
            }
            result_free(got);
            problem_free(p);
        }
}

/* Queries and rows of zeros, and queries so small that their squares vanish, give the mean of what is seen. */
static void check_zeros(check *c, bool is_coarse) {
    for (int shape = 0; shape < 3; shape++) {
        problem *p = problem_new(20, 64, 70, is_coarse);
        fill(c, p, NORMAL);
        for (int i = 0; i < p->n_q * p->d; i++) p->q[i] *= shape == 1 ? 1e-30f : 0;
        for (int j = 0; j < p->d; j++)
            for (int i = 0; i < p->n; i += shape == 2 ? 1 : 3) set_key(p, i, j, 0), set_value(p, i, j, 0);
        result *got = attend(c, p, 0, p->n_q, false);
        for (int r = 0; r < p->n_q; r++)
            for (int j = 0; j < p->d; j++) {
                double mean = 0, x = got->acc[r * p->d + j] / got->l[r];
                for (int i = 0; i < p->n; i++) mean += ig_f16_f32(p->v[i][j]) / (double)p->n;
                check_that(c, fabs(x - mean) <= 1e-4 * coarseness(p), "zeros %d: [%d][%d] is %g, not %g", shape, r, j,
                           x, mean);
            }
        result_free(got);
        problem_free(p);
    }
}

/* What is not finite reaches every query that sees it. In a query or a key, no other query changes. */
static void check_not_finite(check *c, bool is_coarse) {
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int round = 0; round < 60; round++) {
        problem *p = problem_new(check_int(c, 1, 60), 64, check_int(c, 130, 200), is_coarse);
        fill(c, p, round % 2 ? NORMAL : PEAKED);
        set_causal(p);
        int where = round / 3 % 3, r = check_int(c, 0, p->n_q - 1), i = check_int(c, 0, p->n - 1),
            j = check_int(c, 0, 63);
        float x = bad[round % 3];
        result *before = attend(c, p, 0, p->n_q, false);
        if (where == 0) p->q[r * 64 + j] = x;
        if (where == 1) set_key(p, i, j, x);
        if (where == 2) set_value(p, i, j, x);
        result *got = attend(c, p, 0, p->n_q, false);
        for (int g = 0; g < p->n_q; g++) {
            float y = got->acc[g * 64 + j] / got->l[g];
            if (where ? p->end[g] > i : g == r)
                check_that(c, !isfinite(y), "%g in %d, key %d: query %d has %g", x, where, i, g, y);
            else if (where < 2)
                check_that(c, same_query(before, g, got, g, 64), "%g in %d, key %d: query %d changed", x, where, i, g);
        }
        result_free(before), result_free(got);
        problem_free(p);
    }
}

/* ---- time ------------------------------------------------------------------------------ */

typedef struct bench {
    const ig_kernels *k;
    ig_prompt_tile t;
    const problem *p;
    void *chunk;
} bench;

static void run_chunk(void *arg) {
    bench *b = arg;
    b->k->prompt_keys(b->chunk, b->p->k, IG_PROMPT_KEYS, b->t.d);
    b->k->prompt_values(b->chunk, b->p->v, IG_PROMPT_KEYS, b->t.d);
    b->k->prompt_attend(&b->t, b->chunk, 0, IG_PROMPT_KEYS);
}

static void bench_prompt(check *c, int d, bool is_coarse) {
    char what[32];
    problem *p = problem_new(126, d, IG_PROMPT_KEYS, is_coarse);
    fill(c, p, NORMAL);
    result r = {.acc = calloc(126 * (size_t)d, sizeof(float))};
    bench b = {c->k,
               {.n_q = 126,
                .d = d,
                .q = p->q,
                .scale = p->scale,
                .end = p->end,
                .m = r.m,
                .l = r.l,
                .acc = r.acc,
                .is_coarse = is_coarse},
               p,
               NULL};
    b.t.scratch = check_buffer(c->k->prompt_bytes(d), 0);
    b.chunk = check_buffer(c->k->prompt_chunk_bytes(d), 0);
    c->k->prompt_begin(&b.t);
    snprintf(what, sizeof what, "126q d%d 128%s", d, is_coarse ? " coarse" : "");
    check_report(c, what, check_time(run_chunk, &b), (double)row_bytes(p), 2.0 * 126 * IG_PROMPT_KEYS * d);
    check_buffer_free(b.t.scratch), check_buffer_free(b.chunk);
    free(r.acc);
    problem_free(p);
}

void check_prompt(check *c) {
    if (!c->k->prompt_bytes || !check_begin(c, "prompt")) return;
    int ways = c->k->level == IG_CPU_AMX ? 2 : 1; /* other levels know one alone */
    for (int is_coarse = 0; is_coarse < ways; is_coarse++) {
        if (c->is_bench) {
            bench_prompt(c, 64, is_coarse), bench_prompt(c, 128, is_coarse);
            continue;
        }
        check_precision(c, is_coarse);
        check_windows(c, false, is_coarse);
        check_windows(c, true, is_coarse);
        check_bits(c, is_coarse);
        check_largest(c, is_coarse);
        check_zeros(c, is_coarse);
        check_not_finite(c, is_coarse);
    }
}
