/* SPDX-License-Identifier: Apache-2.0
 *
 * The CPU device: operations on nothing, and scratch that grows with what is asked for.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cpu_level.h"
#include "device/device.h"

static int open_device(void **state) {
    ig_error err = {0};
    if (ig_device_open_cpu((ig_device **)state, test_cpu_level(), 2, &err)) fail_msg("%s", err.text);
    return 0;
}

static int close_device(void **state) {
    ig_device_close(*state);
    return 0;
}

static size_t scratch_for(ig_device *d, int max_rows, int max_in, int head_dim) {
    ig_error err = {0};
    ig_device_need need = {.max_rows = max_rows, .max_in = max_in, .max_entries = 64, .heads = {4, 2, head_dim, 0}};
    if (d->ops->reserve(d, &need, &err)) fail_msg("%s", err.text);
    return d->ops->scratch_bytes(d);
}

static void scratch_grows(void **state) {
    size_t first = scratch_for(*state, 8, 256, 64), more = scratch_for(*state, 64, 32, 8);
    assert_true(more > first);
    assert_int_equal(scratch_for(*state, 8, 256, 64), more);
    assert_int_equal(scratch_for(*state, 64, 256, 64), more);
    assert_true(scratch_for(*state, 1, 1, 512) > more);
}

static void products_of_no_rows(void **state) {
    static const float w[32][64];
    ig_device *d = *state;
    ig_matrix m = {.w = w, .n_out = 32, .n_in = 64, .type = IG_TYPE_F32, .row_bytes = sizeof w[0]};
    for (int few = 0; few < 2; few++)
        d->ops->matmul(d, (float *[]){NULL}, (const ig_matrix *[]){&m}, 1, NULL, NULL, 0, few);
}

/* Weights of a type are made of bytes that its blocks may hold: scales of 16-bit floats near 1, small codes. */
static void *make_weights(ig_type type, size_t n_bytes) {
    uint8_t *w = malloc(n_bytes);
    for (size_t i = 0; i < n_bytes; i++) w[i] = (uint8_t)(i * 37 % 101);
    if (type == IG_TYPE_Q8_0)
        for (size_t i = 0; i < n_bytes; i += 34) w[i] = 0, w[i + 1] = 0x2c;
    if (type == IG_TYPE_F32)
        for (size_t i = 0; i < n_bytes / 4; i++) ((float *)(void *)w)[i] = (float)(i % 13) - 6;
    return w;
}

/* As products of each head's rows alone. */
static void check_heads(ig_device *d, const ig_matrix *m, int n_heads, int first, int n, int n_rows, bool few) {
    int of_head = m->n_out / n_heads, x_head = m->n_in + 8, y_head = n + 5;
    size_t n_x = (size_t)(n_rows * n_heads * x_head), n_y = (size_t)(n_rows * n_heads * y_head);
    float *x = malloc(n_x * sizeof *x), *y = calloc(n_y, sizeof *y);
    float *one = malloc((size_t)(n_rows * m->n_in) * sizeof *one), *got = malloc((size_t)(n_rows * n) * sizeof *got);
    for (size_t i = 0; i < n_x; i++) x[i] = (float)(i * 7919 % 1000) / 500 - 1;
    ig_head_product p = {.m = m,
                         .n_heads = n_heads,
                         .of_head = of_head,
                         .first = first,
                         .n = n,
                         .x = x + 8,
                         .y = y + 5,
                         .x_head = (size_t)x_head,
                         .y_head = (size_t)y_head};
    d->ops->matmul_heads(d, &p, n_rows, few);
    for (int h = 0; h < n_heads; h++) {
        int row = h * of_head + first;
        ig_matrix part = *m;
        part.n_out = n;
        part.w = (const uint8_t *)m->w + (size_t)row * m->row_bytes;
        part.panels = NULL;
        d->ops->copy_rows(d, one, (size_t)m->n_in, p.x + (size_t)h * p.x_head, (size_t)n_heads * p.x_head, m->n_in,
                          n_rows);
        d->ops->matmul(d, &got, (const ig_matrix *[]){&part}, 1, one, NULL, n_rows, few);
        for (int r = 0; r < n_rows; r++)
            assert_memory_equal(p.y + (size_t)(r * n_heads) * p.y_head + (size_t)h * p.y_head, got + r * n,
                                (size_t)n * sizeof *got);
    }
    for (size_t i = 0; i < n_y; i += (size_t)y_head)
        for (size_t k = 0; k < 5; k++) assert_true(y[i + k] == 0);
    free(x), free(y), free(one), free(got);
}

static void products_of_heads(void **state) {
    enum { HEADS = 5, OF_HEAD = 80, IN = 64, ROWS = 37 };
    static const ig_type types[] = {IG_TYPE_F32, IG_TYPE_BF16, IG_TYPE_Q8_0};
    ig_device *d = *state;
    scratch_for(d, ROWS, 3 * IN, 8); /* of 37 rows less than of all heads */
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        ig_matrix m = {.n_out = HEADS * OF_HEAD, .n_in = IN, .type = types[t]};
        m.row_bytes = ig_type_row_bytes(ig_type_get(m.type), IN);
        void *w = make_weights(m.type, ig_matrix_bytes(&m));
        m.w = w;
        size_t n_panels = d->ops->panel_bytes(d, &m);
        void *panels = n_panels ? aligned_alloc(64, (n_panels + 63) / 64 * 64) : NULL;
        if (panels) d->ops->put_panels(d, panels, &m);
        for (int few = 0; few < 2; few++)
            for (int rows = 1; rows <= ROWS; rows += 9) {
                check_heads(d, &m, HEADS, 0, OF_HEAD, rows, few);
                check_heads(d, &m, HEADS, 21, 50, rows, few);
                m.panels = panels;
                check_heads(d, &m, HEADS, 16, 64, rows, few);
                m.panels = NULL;
            }
        free(panels), free(w);
    }
}

static ig_matrix rows_of(const float *a, int first, int n) {
    enum { IN = 64 };
    return (ig_matrix){.w = a + first * IN, .n_out = n, .n_in = IN, .type = IG_TYPE_F32, .row_bytes = IN * sizeof *a};
}

/* What adapters add is a product of its own, also where there is room for few of them at a time; and rows take of each
 * what they are said to, the same alone. Nobody takes of the second one of three, which is infinite. */
static void products_with_adapters(void **state) {
    enum { MATRICES = 7, OUT = 300, IN = 64, ROWS = 70, RANK = 6, FIRST = 11, ALL = OUT + 20, ADAPTERS = 3 };
    static const int adapter_of[RANK] = {2, 2, 1, 0, 0, 0};
    static const ig_type types[] = {IG_TYPE_F32, IG_TYPE_F32, IG_TYPE_Q8_0, IG_TYPE_Q8_0,
                                    IG_TYPE_F32, IG_TYPE_F32, IG_TYPE_Q8_0};
    static float a[RANK * IN], b[RANK * ALL], x[ROWS * IN], plain[MATRICES][ROWS * OUT], adapted[MATRICES][ROWS * OUT],
        shares[ROWS][ADAPTERS];
    ig_device_need need = {.max_rows = ROWS, .max_in = IN, .max_rank = RANK, .max_entries = 1, .heads = {1, 1, 8, 0}};
    ig_device *d = *state;
    ig_error err = {0};
    for (int i = 0; i < RANK * IN; i++) a[i] = (float)(i * 7919 % 1000) / 4000 - 0.125f;
    for (int i = 0; i < RANK * ALL; i++) b[i] = (float)(i * 104729 % 1000) / 500 - 1;
    for (int i = 0; i < ROWS * IN; i++) x[i] = (float)(i * 7919 % 1009) / 500 - 1;
    for (int i = 0; i < ROWS; i++) {
        const float of_row[ADAPTERS] = {i % 3 ? 1 : 0, 0, i % 4 ? (float)(i % 4) / 4 - 0.5f : 1};
        memcpy(shares[i], of_row, sizeof of_row);
    }
    for (int i = 0; i < ALL; i++) b[2 * ALL + i] = INFINITY;
    const ig_low_rank_part parts[] = {
        {2, rows_of(a, 0, 2), b}, {1, rows_of(a, 2, 1), b + 2 * ALL}, {0, rows_of(a, 3, 3), b + 3 * ALL}};
    const ig_low_rank low = {.parts = parts, .n_parts = IG_COUNT(parts), .n_out = ALL, .n_adapters = ADAPTERS};
    if (d->ops->reserve(d, &need, &err)) fail_msg("%s", err.text);
    ig_matrix m[MATRICES];
    const ig_matrix *all[MATRICES];
    float *to[MATRICES], *of_plain[MATRICES];
    for (int i = 0; i < MATRICES; i++) {
        m[i] = (ig_matrix){.n_out = OUT, .n_in = IN, .type = types[i]};
        m[i].row_bytes = ig_type_row_bytes(ig_type_get(types[i]), IN);
        m[i].w = make_weights(types[i], ig_matrix_bytes(&m[i]));
        all[i] = &m[i], to[i] = adapted[i], of_plain[i] = plain[i];
    }
    for (int few = 0; few < 2; few++)
        for (int rows = few ? 3 : ROWS, n = few ? MATRICES : 4; rows; rows = rows > 1 ? 1 : 0, n = MATRICES) {
            for (int i = 0; i < n; i++) m[i].low_rank = NULL;
            d->ops->matmul(d, of_plain, all, n, x, NULL, rows, few);
            for (int i = 0; i < n; i++) m[i].low_rank = i == 1 ? NULL : &low, m[i].low_rank_row = FIRST;
            d->ops->matmul(d, to, all, n, x, &(ig_shares){*shares, few ? 7 : 5}, rows, few);
            for (int i = 0; i < n; i++)
                for (int at = 0; at < rows * OUT; at++) {
                    double want = (double)plain[i][at];
                    for (int k = 0; k < RANK * IN && i != 1; k++)
                        if (k / IN != 2)
                            want += (double)shares[at / OUT][adapter_of[k / IN]] * (double)a[k] *
                                    (double)x[at / OUT * IN + k % IN] * (double)b[k / IN * ALL + FIRST + at % OUT];
                    if (!(fabs(want - (double)adapted[i][at]) < 1e-4 * (1 + fabs(want))))
                        fail_msg("matrix %d, number %d: %g, not %g", i, at, (double)adapted[i][at], want);
                }
            for (int row = 0; row < rows; row++) {
                d->ops->matmul(d, of_plain, all, n, x + row * IN, &(ig_shares){shares[row], 5}, 1, few);
                for (int i = 0; i < n; i++) assert_memory_equal(plain[i], adapted[i] + row * OUT, OUT * sizeof(float));
            }
        }
    for (int i = 0; i < MATRICES; i++) free((void *)(uintptr_t)m[i].w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scratch_grows),
        cmocka_unit_test(products_of_no_rows),
        cmocka_unit_test(products_of_heads),
        cmocka_unit_test(products_with_adapters),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
