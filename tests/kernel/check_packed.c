/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of packed keys and values: no number is farther than half a step from what is kept, the bits are those of the
 * scalar reference, whatever is not finite or all the same does no harm, and nothing is touched outside the rows.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "check.h"

enum { MOST_LINES = IG_KV_DIMS / IG_KV_GROUP, MOST = 65280, ROWS = 37, ROWS_LONG = 140, MOST_SHAPE = CHECK_SHAPES + 3 };

static const int dims[] = {8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 96, 112, 120, 128, 192, 256, 320, 512, 576};

static void fill_row(check *c, float *x, int d, int shape) {
    static const float odd[] = {NAN, INFINITY, -INFINITY, 65504.0f, -7e4f, 3e38f, -0.0f, 1e-42f, -6e-8f, 1};
    int n_odd = sizeof odd / sizeof *odd;
    if (shape < CHECK_SHAPES)
        check_fill(c, x, d, (check_shape)shape);
    else if (shape == CHECK_SHAPES)
        for (int i = 0; i < d; i++) x[i] = odd[check_int(c, 0, n_odd - 1)];
    else if (shape == CHECK_SHAPES + 1)
        for (int i = 0; i < d; i++) x[i] = i & 1 ? NAN : -INFINITY;
    else if (shape == CHECK_SHAPES + 2) /* whichever of them a level takes for the largest */
        for (int i = 0; i < d; i++) x[i] = check_int(c, 0, 1) ? 0.0f : -0.0f;
    else /* a far minimum with little above it: the step rounds most */
        for (int i = 0; i < d; i++) x[i] = 1000 + (float)check_normal(c) * 0.01f;
}

static double limited(float x, ig_kv_type type) {
    float most = type == IG_KV_Q1 ? MOST / 2 : MOST;
    return x != x ? 0 : x > most ? most : x < -most ? -most : x;
}

/* What is kept of number j, in double precision. */
static double kept(const ig_kv_line *lines, const uint8_t *row, ig_kv_type type, int d, int j, double *step) {
    int first = j / IG_KV_GROUP * IG_KV_GROUP, size = d - first < IG_KV_GROUP ? d - first : IG_KV_GROUP;
    int i = j - first, bits = ig_kv_bits(type), bytes = size * bits / 8, code;
    if (type == IG_KV_Q1)
        code = row[j / 8] >> j % 8 & 1;
    else
        code = row[first * bits / 8 + i % bytes] >> i / bytes * bits & ((1 << bits) - 1);
    *step = ig_f16_f32(lines[j / IG_KV_GROUP].step);
    return ig_f16_f32(lines[j / IG_KV_GROUP].min) + *step * code;
}

static void check_row(check *c, ig_kv_type type, int d, int shape) {
    size_t bytes = ig_kv_row_bytes(type, d), n_lines = ig_kv_row_lines(type, d);
    float *x = check_fenced((size_t)d * sizeof *x);
    uint8_t *row = check_buffer(bytes, (size_t)check_int(c, 0, 15) * 4), expected[2 * IG_KV_DIMS];
    ig_kv_line *lines = check_buffer(n_lines * sizeof *lines, (size_t)check_int(c, 0, 15) * 4), same_lines[MOST_LINES];
    fill_row(c, x, d, shape);
    c->k->kv_pack[type](row, lines, x, d);
    c->ref->kv_pack[type](expected, same_lines, x, d);
    check_that(c, check_guards(row) && check_guards(lines), "d=%d: wrote outside", d);
    check_that(c, !memcmp(row, expected, bytes) && !memcmp(lines, same_lines, n_lines * sizeof *lines),
               "d=%d shape %d: not the reference's bits", d, shape);
    for (int j = 0; type != IG_KV_F16 && j < d; j++) {
        double step, y = kept(lines, row, type, d, j, &step), want = limited(x[j], type);
        /* Codes to 255 are rounded after three operations in floats. */
        if (!check_that(c, fabs(y - want) <= step * (0.5 + 255 * 0x3p-24) + 1e-7 * fabs(want),
                        "d=%d shape %d: [%d] %g is kept as %g", d, shape, j, want, y))
            break;
    }
    check_fenced_free(x, (size_t)d * sizeof *x);
    check_buffer_free(row), check_buffer_free(lines);
}

static void check_unpack(check *c, ig_kv_type type, int d, int n) {
    size_t bytes = ig_kv_row_bytes(type, d), n_lines = ig_kv_row_lines(type, d);
    uint8_t *codes = check_fenced((size_t)n * bytes);
    ig_kv_line *lines = check_fenced((size_t)n * n_lines * sizeof *lines);
    ig_kv_packed *rows = check_fenced((size_t)n * sizeof *rows);
    uint16_t *got = check_buffer((size_t)(n * d) * sizeof *got, (size_t)check_int(c, 0, 7) * 8);
    uint16_t *want = check_buffer((size_t)(n * d) * sizeof *want, 0);
    float x[IG_KV_DIMS];
    for (int i = 0; i < n; i++) {
        int at = n - 1 - i;
        rows[i] = (ig_kv_packed){codes + (size_t)at * bytes, lines + (size_t)at * n_lines};
        fill_row(c, x, d, check_int(c, 0, MOST_SHAPE));
        c->ref->kv_pack[type](codes + (size_t)at * bytes, lines + (size_t)at * n_lines, x, d);
    }
    c->k->kv_unpack[type](got, rows, n, d);
    c->ref->kv_unpack[type](want, rows, n, d);
    check_that(c, check_guards(got), "d=%d n=%d: wrote outside", d, n);
    check_that(c, !memcmp(got, want, (size_t)(n * d) * sizeof *got), "d=%d n=%d: not the reference's bits", d, n);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < d; j++) {
            double step, y = kept(rows[i].lines, rows[i].codes, type, d, j, &step), z = ig_f16_f32(got[i * d + j]);
            if (!check_that(c, fabs(z - y) <= fabs(y) * 0x1p-11 + 0x1p-25, "d=%d: [%d][%d] is %g, not %g", d, i, j, z,
                            y))
                return;
        }
    check_buffer_free(got), check_buffer_free(want);
    check_fenced_free(rows, (size_t)n * sizeof *rows);
    check_fenced_free(lines, (size_t)n * n_lines * sizeof *lines);
    check_fenced_free(codes, (size_t)n * bytes);
}

/* ---- attention straight from packed rows --------------------------------------------- */

/* Scattered packed rows whose last in memory ends where memory ends. */
typedef struct packed {
    ig_kv_type type;
    int n, d;
    uint8_t *codes;
    ig_kv_line *lines;
    ig_kv_packed *rows;
} packed;

static packed packed_rows(check *c, ig_kv_type type, int n, int d) {
    size_t bytes = ig_kv_row_bytes(type, d), n_lines = ig_kv_row_lines(type, d);
    packed p = {.type = type, .n = n, .d = d};
    float x[IG_KV_DIMS];
    p.codes = check_fenced((size_t)n * bytes);
    p.lines = check_fenced((size_t)n * n_lines * sizeof *p.lines);
    p.rows = check_fenced((size_t)n * sizeof *p.rows);
    int step = n % 7 ? 7 : 5;
    while (n % step == 0) step++;
    for (int i = 0; i < n; i++) {
        size_t at = n == 1 ? 0 : (size_t)(i * step % n);
        p.rows[i] = (ig_kv_packed){p.codes + at * bytes, p.lines + at * n_lines};
        fill_row(c, x, d, i % 9 ? CHECK_NORMAL : CHECK_OUTLIER);
        c->ref->kv_pack[type](p.codes + at * bytes, p.lines + at * n_lines, x, d);
    }
    return p;
}

static void packed_free(packed *p) {
    check_fenced_free(p->rows, (size_t)p->n * sizeof *p->rows);
    check_fenced_free(p->lines, (size_t)p->n * ig_kv_row_lines(p->type, p->d) * sizeof *p->lines);
    check_fenced_free(p->codes, (size_t)p->n * ig_kv_row_bytes(p->type, p->d));
}

static double element(const packed *p, int i, int j) {
    double step;
    return kept(p->rows[i].lines, p->rows[i].codes, p->type, p->d, j, &step);
}

static bool same(float a, float b) { return !memcmp(&a, &b, sizeof a); }

static void check_scores(check *c, const packed *k, int n_q) {
    int d = k->d, n = k->n;
    size_t stride = (size_t)n + (size_t)check_int(c, 0, 9);
    float *q = check_fenced((size_t)(n_q * d) * sizeof *q), *s = check_buffer((size_t)n_q * stride * sizeof *s, 4);
    check_fill(c, q, n_q * d, CHECK_NORMAL);
    c->k->packed_scores[k->type](s, stride, q, n_q, d, 0.125f, k->rows, n);
    check_that(c, check_guards(s), "scores n_q=%d d=%d n=%d: wrote outside", n_q, d, n);
    for (int g = 0; g < n_q; g++)
        for (int i = 0; i < n; i++) {
            double sum = 0, size = 0;
            for (int j = 0; j < d; j++) {
                double x = element(k, i, j), min = ig_f16_f32(k->rows[i].lines[j / IG_KV_GROUP].min);
                sum += q[g * d + j] * x;
                size += fabs((double)q[g * d + j]) * (fabs(x) + fabs(min));
            }
            float got = s[(size_t)g * stride + (size_t)i];
            if (!check_that(c, fabs(got - 0.125 * sum) <= 2e-6 * 0.125 * size,
                            "n_q=%d d=%d n=%d: [%d][%d] is %g, not %g", n_q, d, n, g, i, got, 0.125 * sum))
                return;
        }
    float alone[3 * ROWS_LONG];
    for (int round = 0; round < 5; round++) {
        int g = check_int(c, 0, n_q - 1), i = check_int(c, 0, n - 1), m = check_int(c, 1, n - i);
        int some = check_int(c, 1, n_q - g < 3 ? n_q - g : 3);
        c->k->packed_scores[k->type](alone, ROWS_LONG, q + g * d, some, d, 0.125f, k->rows + i, m);
        for (int h = 0; h < some; h++)
            for (int j = 0; j < m; j++)
                check_that(c, same(alone[h * ROWS_LONG + j], s[(size_t)(g + h) * stride + (size_t)(i + j)]),
                           "n_q=%d d=%d n=%d: [%d][%d] depends on the rest of the call", n_q, d, n, g + h, i + j);
    }
    check_fenced_free(q, (size_t)(n_q * d) * sizeof *q);
    check_buffer_free(s);
}

static void check_values(check *c, const packed *v, int n_q) {
    int d = v->d, n = v->n, size = n_q * d;
    size_t n_p = (size_t)((n_q - 1) * (n + 3) + n);
    float *p = check_fenced(n_p * sizeof *p), *r = check_fenced((size_t)n_q * sizeof *r);
    float *acc = check_buffer((size_t)size * sizeof *acc, 4), *alone = malloc((size_t)d * sizeof *alone);
    double *want = malloc((size_t)size * sizeof *want), *most = malloc((size_t)size * sizeof *most);
    check_fill(c, p, (int)n_p, CHECK_NORMAL), check_fill(c, acc, size, CHECK_NORMAL);
    int g = check_int(c, 0, n_q - 1);
    for (int h = 0; h < n_q; h++) r[h] = check_int(c, 0, 3) ? 0.5f : 0;
    for (int x = 0; x < size; x++) {
        int h = x / d, j = x % d;
        if (r[h] == 0) acc[x] = NAN;
        want[x] = r[h] == 0 ? 0 : (double)acc[x] * r[h], most[x] = fabs(want[x]);
        for (int i = 0; i < n; i++) {
            double y = element(v, i, j), f = p[h * (n + 3) + i],
                   min = ig_f16_f32(v->rows[i].lines[j / IG_KV_GROUP].min);
            want[x] += f * y, most[x] += fabs(f) * (fabs(y) + fabs(min));
        }
    }
    memcpy(alone, acc + g * d, (size_t)d * sizeof *alone);
    c->k->packed_values[v->type](acc, r, p, (size_t)n + 3, n_q, d, v->rows, n);
    c->k->packed_values[v->type](alone, r + g, p + g * (n + 3), (size_t)n + 3, 1, d, v->rows, n);
    check_that(c, check_guards(acc), "values n_q=%d d=%d n=%d: wrote outside", n_q, d, n);
    for (int x = 0; x < size; x++)
        if (!check_that(c, fabs(acc[x] - want[x]) <= 3e-6 * most[x], "n_q=%d d=%d n=%d: [%d][%d] is %g, not %g", n_q, d,
                        n, x / d, x % d, acc[x], want[x]))
            break;
    check_that(c, !memcmp(alone, acc + g * d, (size_t)d * sizeof *alone),
               "n_q=%d d=%d n=%d: query %d depends on others", n_q, d, n, g);
    check_fenced_free(p, n_p * sizeof *p), check_fenced_free(r, (size_t)n_q * sizeof *r);
    check_buffer_free(acc);
    free(alone), free(want), free(most);
}

static void check_attention_of(check *c, ig_kv_type type) {
    static const int queries[] = {1, 2, 3, 4, 5, 7, 9, 16},
                     counts[] = {1, 2, 3, 5, 15, 16, 17, 63, 64, 65, 100, ROWS_LONG};
    if (!c->k->packed_scores[type]) return;
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        for (size_t x = 0; x < sizeof counts / sizeof *counts; x++) {
            packed p = packed_rows(c, type, counts[x], dims[i]);
            int n_q = queries[(i + x) % (sizeof queries / sizeof *queries)];
            check_scores(c, &p, n_q);
            check_values(c, &p, n_q);
            packed_free(&p);
        }
}

/* ---- times ------------------------------------------------------------------------ */

typedef struct bench {
    const ig_kernels *k;
    ig_kv_type type;
    int d, n_rows;
    ig_kv_packed *rows;
    uint16_t *out; /* [128][d] */
    float *q, *s, *acc, *r;
    bool direct;
    const uint16_t *at[128]; /* rows of out */
} bench;

/* Decode attention's work on 3 queries: scores, or values. */
static void run_scores(void *arg) {
    const bench *b = arg;
    for (int i = 0; i < b->n_rows; i += 128) {
        if (b->direct) {
            b->k->packed_scores[b->type](b->s, 128, b->q, 3, b->d, 0.1f, b->rows + i, 128);
            continue;
        }
        b->k->kv_unpack[b->type](b->out, b->rows + i, 128, b->d);
        b->k->attn_scores(b->s, 128, b->q, 3, b->d, 0.1f, b->at, 128);
    }
}

static void run_values(void *arg) {
    const bench *b = arg;
    for (int i = 0; i < b->n_rows; i += 128) {
        if (b->direct) {
            b->k->packed_values[b->type](b->acc, b->r, b->s, 128, 3, b->d, b->rows + i, 128);
            continue;
        }
        b->k->kv_unpack[b->type](b->out, b->rows + i, 128, b->d);
        b->k->attn_values(b->acc, b->r, b->s, 128, 3, b->d, b->at, 128);
    }
}

static void run_unpack(void *arg) {
    const bench *b = arg;
    for (int i = 0; i < b->n_rows; i += 128) b->k->kv_unpack[b->type](b->out, b->rows + i, 128, b->d);
}

/* Every `step`th row of a store with rows of a key and a value each. */
static void bench_one(check *c, const char *what, ig_kv_type type, int d, int n_rows, int step) {
    size_t bytes = ig_kv_row_bytes(type, d), n_lines = ig_kv_row_lines(type, d), n = (size_t)n_rows * (size_t)step;
    uint8_t *codes = check_buffer(n * 2 * bytes, 0);
    ig_kv_line *lines = check_buffer(n * 2 * n_lines * sizeof *lines, 0);
    bench b = {.k = c->k, .type = type, .d = d, .n_rows = n_rows};
    b.rows = malloc((size_t)n_rows * sizeof *b.rows), b.out = check_buffer((size_t)(256 * d), 0);
    b.q = check_buffer((size_t)(3 * d) * 4, 0), b.acc = check_buffer((size_t)(3 * d) * 4, 0);
    b.s = check_buffer(3 * 128 * 4, 0), b.r = check_buffer(3 * 4, 0);
    check_fill(c, b.q, 3 * d, CHECK_NORMAL), check_fill(c, b.acc, 3 * d, CHECK_NORMAL);
    check_fill(c, b.s, 3 * 128, CHECK_NORMAL), check_fill(c, b.r, 3, CHECK_ONE);
    memset(codes, 0x35, n * 2 * bytes);
    for (int i = 0; i < 128; i++) b.at[i] = b.out + i * d;
    for (size_t i = 0; i < n * 2 * n_lines; i++) lines[i] = (ig_kv_line){0x2000, 0xbc00};
    for (int i = 0; i < n_rows; i++) {
        size_t at = ((size_t)i * (size_t)step + (size_t)check_int(c, 0, step - 1)) * 2;
        b.rows[i] = (ig_kv_packed){codes + at * bytes, lines + at * n_lines};
    }
    char line[64];
    snprintf(line, sizeof line, "%s d%d %d", what, d, n_rows);
    check_report(c, line, check_time(run_unpack, &b), (double)n_rows * d * 2, 0);
    for (int direct = 0; direct <= (c->k->packed_scores[type] != NULL); direct++) {
        b.direct = direct;
        snprintf(line, sizeof line, "%s d%d %d scores%s", what, d, n_rows, direct ? " direct" : "");
        check_report(c, line, check_time(run_scores, &b), (double)n_rows * d * 2, 3.0 * n_rows * d);
        snprintf(line, sizeof line, "%s d%d %d values%s", what, d, n_rows, direct ? " direct" : "");
        check_report(c, line, check_time(run_values, &b), (double)n_rows * d * 2, 3.0 * n_rows * d);
    }
    check_buffer_free(codes), check_buffer_free(lines), check_buffer_free(b.out);
    check_buffer_free(b.q), check_buffer_free(b.acc), check_buffer_free(b.s), check_buffer_free(b.r);
    free(b.rows);
}

static void bench_type(check *c, ig_kv_type type) {
    bench_one(c, "near", type, 64, 1024, 1);
    bench_one(c, "memory", type, 64, 65536, 1);
    bench_one(c, "scattered", type, 64, 8192, 10);
    bench_one(c, "near", type, 128, 512, 1);
    bench_one(c, "near", type, 80, 512, 1);
}

void check_packed(check *c) {
    static const char *const names[IG_KV_TYPES] = {"kv_f16", "kv_q8", "kv_q4", "kv_q2", "kv_q1"};
    for (ig_kv_type type = IG_KV_F16; type < IG_KV_TYPES; type++) {
        if (!check_begin(c, names[type]) || (c->is_bench && type == IG_KV_F16)) continue;
        if (c->is_bench) {
            bench_type(c, type);
            continue;
        }
        for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
            for (int shape = 0; shape <= MOST_SHAPE; shape++)
                for (int round = 0; round < 4; round++) check_row(c, type, dims[i], shape);
            if (type != IG_KV_F16) check_unpack(c, type, dims[i], check_int(c, 1, ROWS));
        }
        check_attention_of(c, type);
    }
}
