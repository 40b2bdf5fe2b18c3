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

enum { MOST_LINES = 8, MOST = 65280, ROWS = 37 };

static const int dims[] = {8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 96, 112, 120, 128, 192, 256, 320, 512};

static void fill_row(check *c, float *x, int d, int shape) {
    static const float odd[] = {NAN, INFINITY, -INFINITY, 65504.0f, -7e4f, 3e38f, -0.0f, 1e-42f, -6e-8f, 1};
    int n_odd = sizeof odd / sizeof *odd;
    if (shape < CHECK_SHAPES)
        check_fill(c, x, d, (check_shape)shape);
    else if (shape == CHECK_SHAPES)
        for (int i = 0; i < d; i++) x[i] = odd[check_int(c, 0, n_odd - 1)];
    else if (shape == CHECK_SHAPES + 1)
        for (int i = 0; i < d; i++) x[i] = i & 1 ? NAN : -INFINITY;
    else /* a far minimum with little above it: the step rounds most */
        for (int i = 0; i < d; i++) x[i] = 1000 + (float)check_normal(c) * 0.01f;
}

static double limited(float x) { return x != x ? 0 : x > MOST ? MOST : x < -MOST ? -MOST : x; }

/* What is kept of number j, in double precision. */
static double kept(const ig_kv_line *lines, const uint8_t *row, ig_kv_type type, int d, int j, double *step) {
    int first = j / IG_KV_GROUP * IG_KV_GROUP, half = (d - first < IG_KV_GROUP ? d - first : IG_KV_GROUP) / 2;
    int i = j - first, code;
    if (type == IG_KV_Q8)
        code = row[j];
    else
        code = i < half ? row[first / 2 + i] & 15 : row[first / 2 + i - half] >> 4;
    *step = ig_f16_f32(lines[j / IG_KV_GROUP].step);
    return ig_f16_f32(lines[j / IG_KV_GROUP].min) + *step * code;
}

static void check_row(check *c, ig_kv_type type, int d, int shape) {
    size_t bytes = ig_kv_row_bytes(type, d), n_lines = ig_kv_row_lines(type, d);
    float *x = check_fenced((size_t)d * sizeof *x);
    uint8_t *row = check_buffer(bytes, (size_t)check_int(c, 0, 15) * 4), expected[1024];
    ig_kv_line *lines = check_buffer(n_lines * sizeof *lines, (size_t)check_int(c, 0, 15) * 4), same_lines[MOST_LINES];
    fill_row(c, x, d, shape);
    c->k->kv_pack[type](row, lines, x, d);
    c->ref->kv_pack[type](expected, same_lines, x, d);
    check_that(c, check_guards(row) && check_guards(lines), "d=%d: wrote outside", d);
    check_that(c, !memcmp(row, expected, bytes) && !memcmp(lines, same_lines, n_lines * sizeof *lines),
               "d=%d shape %d: not the reference's bits", d, shape);
    for (int j = 0; type != IG_KV_F16 && j < d; j++) {
        double step, y = kept(lines, row, type, d, j, &step), want = limited(x[j]);
        if (!check_that(c, fabs(y - want) <= step * 0.50001 + 1e-7 * fabs(want), "d=%d shape %d: [%d] %g is kept as %g",
                        d, shape, j, want, y))
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
    float x[512];
    for (int i = 0; i < n; i++) {
        int at = n - 1 - i;
        rows[i] = (ig_kv_packed){codes + (size_t)at * bytes, lines + (size_t)at * n_lines};
        fill_row(c, x, d, check_int(c, 0, CHECK_SHAPES + 2));
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

/* ---- times ------------------------------------------------------------------------ */

typedef struct bench {
    const ig_kernels *k;
    ig_kv_type type;
    int d, n_rows;
    ig_kv_packed *rows;
    uint16_t *out; /* [128][d] */
} bench;

static void run_unpack(void *arg) {
    const bench *b = arg;
    for (int i = 0; i < b->n_rows; i += 128) b->k->kv_unpack[b->type](b->out, b->rows + i, 128, b->d);
}

/* Every `step`th row of a store with rows of a key and a value each. */
static void bench_one(check *c, const char *what, ig_kv_type type, int d, int n_rows, int step) {
    size_t bytes = ig_kv_row_bytes(type, d), n_lines = ig_kv_row_lines(type, d), n = (size_t)n_rows * (size_t)step;
    uint8_t *codes = check_buffer(n * 2 * bytes, 0);
    ig_kv_line *lines = check_buffer(n * 2 * n_lines * sizeof *lines, 0);
    bench b = {c->k, type, d, n_rows, malloc((size_t)n_rows * sizeof *b.rows), check_buffer((size_t)(256 * d), 0)};
    for (size_t i = 0; i < n * 2 * n_lines; i++) lines[i] = (ig_kv_line){0x2000, 0xbc00};
    for (int i = 0; i < n_rows; i++) {
        size_t at = ((size_t)i * (size_t)step + (size_t)check_int(c, 0, step - 1)) * 2;
        b.rows[i] = (ig_kv_packed){codes + at * bytes, lines + at * n_lines};
    }
    char line[64];
    snprintf(line, sizeof line, "%s d%d %d", what, d, n_rows);
    check_report(c, line, check_time(run_unpack, &b), (double)n_rows * d * 2, 0);
    check_buffer_free(codes), check_buffer_free(lines), check_buffer_free(b.out);
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
    static const char *const names[IG_KV_TYPES] = {"kv_f16", "kv_q8", "kv_q4"};
    for (ig_kv_type type = IG_KV_F16; type < IG_KV_TYPES; type++) {
        if (!check_begin(c, names[type]) || (c->is_bench && type == IG_KV_F16)) continue;
        if (c->is_bench) {
            bench_type(c, type);
            continue;
        }
        for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
            for (int shape = 0; shape < CHECK_SHAPES + 3; shape++)
                for (int round = 0; round < 4; round++) check_row(c, type, dims[i], shape);
            if (type != IG_KV_F16) check_unpack(c, type, dims[i], check_int(c, 1, ROWS));
        }
    }
}
