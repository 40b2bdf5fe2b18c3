/* SPDX-License-Identifier: Apache-2.0
 *
 * The GPU's operations with matrices against the scalar CPU's; and that a row's bits depend on nothing but the row.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "matrices.h"

/* Rows take of adapters, of which these are taken, what `shares` says; NULL: there are none. */
static void multiply_adapted(const both *y, const ig_matrix *m, const both *x, const both *shares, uint64_t taken,
                             int first, int n_rows, bool few) {
    for (int d = 0; d < DEVICES; d++) {
        const ig_shares of = {shares ? shares->on[d] : NULL, taken};
        float *to = y->on[d] + (size_t)first * (size_t)m->n_out;
        devices[d]->ops->matmul(devices[d], &to, &m, 1, x->on[d] + (size_t)first * (size_t)m->n_in, shares ? &of : NULL,
                                n_rows, few);
        finish(d);
    }
}

static void multiply(const both *y, const ig_matrix *m, const both *x, int first, int n_rows, bool few) {
    multiply_adapted(y, m, x, NULL, 0, first, n_rows, few);
}

/* With the 11 bits of a 16-bit float, whatever its size. */
static double rounded(double x) {
    int power;
    double share = frexp(x, &power);
    return ldexp(nearbyint(ldexp(share, 11)), power - 11);
}

/* The GPU's products of a prompt are those of numbers in 16 bits. */
static void expect_rounded_products(const both *y, const ig_matrix *m, const both *x, int n_rows) {
    float *w = malloc((size_t)m->n_in * sizeof *w);
    const float *got = get(y, GPU);
    double squares = 0, most = 0;
    for (int o = 0; o < m->n_out; o++) {
        ig_kernels_get(IG_CPU_SCALAR)
            ->dequantize[m->type](w, (const uint8_t *)m->w + (size_t)o * m->row_bytes, m->n_in);
        ig_scale_codes(w, &m->block_scales, o, 0, m->n_in);
        for (int r = 0; r < n_rows; r++) {
            double sum = 0;
            for (int i = 0; i < m->n_in; i++)
                sum += rounded((double)w[i]) * rounded((double)x->host[(size_t)r * (size_t)m->n_in + (size_t)i]);
            sum += m->bias ? (double)m->bias[o] : 0;
            squares += sum * sum;
            most = fmax(most, fabs(sum - (double)got[r * m->n_out + o]));
        }
    }
    if (!(most <= 1e-4 * sqrt(squares / (n_rows * m->n_out))))
        fail_msg("%s: %g off where numbers are about %g", ig_type_get(m->type)->name, most,
                 sqrt(squares / (n_rows * m->n_out)));
    free(w);
}

/* Few rows against the CPU's, many against sums of their own; and each as when it comes with others. */
static void products(void **state) {
    (void)state;
    enum { OUT = 70, ROWS = 69 };
    /* Few: of a row that is one warp's, two warps' and four's. Many: whole, and in three shares. */
    static const int widths[] = {768, 256, 2304, 4352, 1792};
    float bias[OUT];
    ig_error err = {0};
    for (int i = 0; i < OUT; i++) bias[i] = (float)i - 10;
    if (devices[GPU]->ops->bind(devices[GPU], bias, sizeof bias, &err)) fail_msg("%s", err.text);
    for (int t = 0; t < N_TYPES; t++)
        for (int kind = 0; kind < 5; kind++) {
            bool few = kind % 4 > 0;
            int rows = few ? 19 : ROWS, n_in = widths[kind];
            ig_matrix m = make_matrix(t, OUT, n_in, t % 2 ? bias : NULL);
            both x = make_both((size_t)rows * (size_t)n_in, 3), y = make_both((size_t)rows * OUT, 1);
            multiply(&y, &m, &x, 0, rows, few);
            if (few)
                expect_near(&y, 1e-5, ig_type_get(m.type)->name);
            else
                expect_rounded_products(&y, &m, &x, rows);
            float *together = malloc(y.n * sizeof *together);
            memcpy(together, get(&y, GPU), y.n * sizeof *together);
            for (int r = 0, n = 1; r < rows; r += n, n = few ? 2 + r % 3 : 40)
                multiply(&y, &m, &x, r, n < rows - r ? n : rows - r, few);
            assert_memory_equal(together, get(&y, GPU), y.n * sizeof *together);
            free(together);
            free_matrix(&m);
            free_both(&x);
            free_both(&y);
        }
    devices[GPU]->ops->unbind(devices[GPU], bias);
}

/* With shares of what adapters add, to rows in the middle of theirs. */
static void products_with_adapters(void **state) {
    (void)state;
    enum { OUT = 70, IN = 256, RANK = 6, FIRST = 9, ALL = 90, ROWS = 40, ADAPTERS = 2 };
    static const int of[] = {0, 1, 10}; /* F32, F16 and Q4_K */
    float b[RANK * ALL];
    ig_error err = {0};
    for (int i = 0; i < RANK * ALL; i++) b[i] = (float)(ig_random_unit(&dice) - 0.5);
    if (devices[GPU]->ops->bind(devices[GPU], b, sizeof b, &err)) fail_msg("%s", err.text);
    both shares = make_both(ROWS * ADAPTERS, 1);
    for (int i = 0; i < ROWS; i += 3) shares.host[i] = 0;
    put(&shares);
    for (size_t t = 0; t < IG_COUNT(of); t++)
        for (int few = 0; few < 2; few++) {
            ig_low_rank_part parts[] = {{1, make_matrix(t == 1, 2, IN, NULL), b},
                                        {0, make_matrix(t == 2, RANK - 2, IN, NULL), b + 2 * ALL}};
            ig_low_rank low = {.parts = parts, .n_parts = IG_COUNT(parts), .n_out = ALL, .n_adapters = ADAPTERS};
            ig_matrix m = make_matrix(of[t], OUT, IN, NULL);
            both x = make_both(ROWS * IN, 3), y = make_both(ROWS * OUT, 1);
            m.low_rank = &low, m.low_rank_row = FIRST;
            for (uint64_t taken = 0; taken < 4; taken++) {
                multiply_adapted(&y, &m, &x, &shares, taken, 0, few ? 3 : ROWS, few);
                expect_near(&y, few ? 1e-5 : 5e-2, "adapters"); /* a prompt's numbers are rounded in other ways */
            }
            free_matrix(&parts[0].a), free_matrix(&parts[1].a), free_matrix(&m);
            free_both(&x), free_both(&y);
        }
    free_both(&shares);
    devices[GPU]->ops->unbind(devices[GPU], b);
}

/* Rows of floats that are no multiple of what is loaded at a time, and columns of any size. */
static void odd_products(void **state) {
    (void)state;
    for (int t = 0; t < N_TYPES; t++) {
        if (ig_type_get(types[t].type)->block > 1) continue;
        ig_matrix m = make_matrix(t, 5, 56, NULL);
        both x = make_both(4 * 56, 1), y = make_both(4 * 5, 1);
        static const float sizes[] = {1e-30f, 3e36f, 1e-9f, 0};
        for (int i = 0; i < 4 * 56; i++) x.host[i] *= sizes[i / 56] * (i % 2 ? 1e-6f : 1);
        put(&x);
        multiply(&y, &m, &x, 0, 4, false);
        const both row = {.host = x.host, .n = 56};
        for (int r = 0; r < 4; r++) {
            both one = make_both(5, 1);
            devices[GPU]->ops->copy(devices[GPU], one.on[GPU], y.on[GPU] + r * 5, 5 * sizeof(float));
            expect_rounded_products(&one, &m, &(both){.host = row.host + (size_t)r * 56, .n = 56}, 1);
            free_both(&one);
        }
        free_matrix(&m), free_both(&x), free_both(&y);
    }
}

static void odd_products_of_few(void **state) {
    (void)state;
    for (int t = 0; t < 3; t++)
        for (int n_in = 53; n_in < 57; n_in++) {
            ig_matrix m = make_matrix(t, 5, n_in, NULL);
            both x = make_both(9 * (size_t)n_in, 1), y = make_both(9 * 5, 1);
            float together[9 * 5];
            multiply(&y, &m, &x, 0, 9, true);
            expect_near(&y, 1e-5, ig_type_get(m.type)->name);
            memcpy(together, get(&y, GPU), sizeof together);
            for (int r = 0; r < 9; r += 3) multiply(&y, &m, &x, r, 3, true);
            assert_memory_equal(together, get(&y, GPU), sizeof together);
            free_matrix(&m), free_both(&x), free_both(&y);
        }
}

/* A head's product, and what it is to be, on their own. */
static void expect_product_of_head(const ig_head_product *p, const both *x, const both *y, int head, int rows,
                                   bool few) {
    int n_in = p->m->n_in;
    size_t from = (size_t)p->n_heads * p->x_head, to = (size_t)p->n_heads * p->y_head;
    both own = make_both((size_t)(rows * n_in), 1), one = make_both((size_t)(rows * p->n), 1);
    ig_matrix part = *p->m;
    part.w = (const uint8_t *)p->m->w + (size_t)(head * p->of_head + p->first) * p->m->row_bytes;
    part.n_out = p->n;
    for (int d = 0; d < DEVICES; d++) {
        devices[d]->ops->copy_rows(devices[d], own.on[d], (size_t)n_in, x->on[d] + 8 + (size_t)head * p->x_head, from,
                                   n_in, rows);
        devices[d]->ops->copy_rows(devices[d], one.on[d], (size_t)p->n, y->on[d] + (size_t)head * p->y_head, to, p->n,
                                   rows);
        finish(d);
    }
    get(&own, GPU);
    if (few)
        expect_near(&one, 1e-5, "a head's");
    else
        expect_rounded_products(&one, &part, &own, rows);
    free_both(&own), free_both(&one);
}

/* Of heads that lie apart, as many rows as a launch takes and more; what lies between them stays. */
static void products_of_heads(void **state) {
    enum { HEADS = 3, OF_HEAD = 80, N = 44, IN = 256, ROWS = 37, BETWEEN = 4 };
    (void)state;
    for (int t = 0; t < N_TYPES; t++)
        for (int few = 0; few < 2; few++) {
            if (types[t].type == IG_TYPE_F8_E4M3) continue; /* has scales */
            ig_matrix m = make_matrix(t, HEADS * OF_HEAD, IN, NULL);
            both x = make_both(8 + ROWS * HEADS * (IN + 16), 1), y = make_both(ROWS * HEADS * (N + BETWEEN), 1);
            ig_head_product p = {.m = &m,
                                 .n_heads = HEADS,
                                 .of_head = OF_HEAD,
                                 .first = 16,
                                 .n = N,
                                 .x_head = IN + 16,
                                 .y_head = N + BETWEEN};
            for (int d = 0; d < DEVICES; d++) {
                p.x = x.on[d] + 8;
                p.y = y.on[d];
                devices[d]->ops->matmul_heads(devices[d], &p, ROWS, few);
                finish(d);
            }
            for (int h = 0; h < HEADS; h++) expect_product_of_head(&p, &x, &y, h, ROWS, few);
            const float *kept = y.host;
            for (int d = 0; d < DEVICES; d++)
                for (int i = N; i < (N + BETWEEN) * HEADS * ROWS; i += N + BETWEEN) {
                    float got[BETWEEN], want[BETWEEN];
                    memcpy(want, kept + i, sizeof want);
                    devices[d]->ops->copy(devices[d], got, y.on[d] + i, sizeof got);
                    finish(d);
                    assert_memory_equal(got, want, sizeof got);
                }
            free_matrix(&m), free_both(&x), free_both(&y);
        }
}

/* Several matrices of one input, of types that want it in different forms. */
static void several_products(void **state) {
    (void)state;
    ig_matrix a = make_matrix(0, 5, 256, NULL), b = make_matrix(8, 9, 256, NULL), c = make_matrix(7, 3, 256, NULL);
    both x = make_both(2 * 256, 1), y[3] = {make_both(10, 1), make_both(18, 1), make_both(6, 1)};
    for (int few = 0; few < 2; few++) {
        for (int d = 0; d < DEVICES; d++) {
            float *to[] = {y[0].on[d], y[1].on[d], y[2].on[d]};
            devices[d]->ops->matmul(devices[d], to, (const ig_matrix *[]){&a, &b, &c}, 3, x.on[d], NULL, 2, few);
        }
        for (int i = 0; i < 3; i++)
            if (few)
                expect_near(&y[i], 1e-5, "several");
            else
                expect_rounded_products(&y[i], i == 0 ? &a : i == 1 ? &b : &c, &x, 2);
    }
    for (int i = 0; i < 3; i++) free_both(&y[i]);
    free_matrix(&a), free_matrix(&b), free_matrix(&c);
    free_both(&x);
}

/* A number that is not finite spoils its own row, and no other; so small that it is nothing, it is. */
static void products_of_strange_numbers(void **state) {
    (void)state;
    static const float strange[] = {NAN, INFINITY, -INFINITY, 1e-35f};
    ig_matrix m = make_matrix(7, 6, 256, NULL);
    for (int i = 0; i < 8; i++) {
        bool few = i < 4;
        both x = make_both(3 * 256, 1), y = make_both(3 * 6, 1);
        for (int k = 0; k < 32; k++) x.host[256 + 64 + k] = k == 5 ? strange[i % 4] : 0;
        put(&x);
        multiply(&y, &m, &x, 0, 3, few);
        if (few) expect_near(&y, 1e-5, "strange");
        const float *got = get(&y, GPU);
        for (int r = 0; r < 18; r++) assert_int_equal(isnan(got[r]), i % 4 < 3 && r / 6 == 1);
        free_both(&x);
        free_both(&y);
    }
    free_matrix(&m);
}

static void embeddings(void **state) {
    (void)state;
    int32_t ids[] = {3, 0, 6, 3};
    for (int t = 0; t < N_TYPES; t++) {
        ig_matrix m = make_matrix(t, 7, 512, NULL);
        both y = make_both(4 * 512, 1);
        for (int add = 0; add < 2; add++) {
            for (int d = 0; d < DEVICES; d++) {
                int32_t *there = ig_device_alloc(devices[d], IG_PLACE_HOST, sizeof ids);
                memcpy(there, ids, sizeof ids);
                devices[d]->ops->embed(devices[d], y.on[d], &m, add ? 1 : 0.75f, there, 4, add);
                finish(d);
                ig_device_free(devices[d], IG_PLACE_HOST, there, sizeof ids);
            }
            expect_near(&y, 1e-7, ig_type_get(m.type)->name);
        }
        free_both(&y);
        free_matrix(&m);
    }
}

/* Matrices that are multiplied in eight, eight and four shares, with more columns than there is room for at a time: the
 * bits of a few. */
static void products_in_shares(void **state) {
    enum { MATRICES = 3, ROWS = 6, FEW = 3, IN = 4096 };
    static const int n_out[MATRICES] = {1024, 1000, 2048};
    close_devices(state);
    open_devices(state);
    reserve_both(&(ig_device_need){.max_rows = ROWS, .max_in = IN, .max_entries = 1, .heads = {1, 1, 8, 0}});
    ig_matrix m[MATRICES];
    const ig_matrix *all[MATRICES];
    both x = make_both(ROWS * IN, 1), y[MATRICES];
    float *together[MATRICES];
    for (int i = 0; i < MATRICES; i++) {
        m[i] = make_matrix(1, n_out[i], IN, NULL);
        all[i] = &m[i];
        y[i] = make_both((size_t)n_out[i] * ROWS, 1);
    }
    for (int few = 0; few < 2; few++)
        for (int first = 0, n = few ? FEW : ROWS; first < ROWS; first += n) {
            float *to[MATRICES];
            for (int i = 0; i < MATRICES; i++) to[i] = y[i].on[GPU] + (size_t)first * (size_t)n_out[i];
            devices[GPU]->ops->matmul(devices[GPU], to, all, MATRICES, x.on[GPU] + (size_t)first * IN, NULL, n, false);
            for (int i = 0; i < MATRICES && !few; i++) {
                together[i] = malloc(y[i].n * sizeof(float));
                memcpy(together[i], get(&y[i], GPU), y[i].n * sizeof(float));
            }
        }
    for (int i = 0; i < MATRICES; i++) {
        assert_memory_equal(together[i], get(&y[i], GPU), y[i].n * sizeof(float));
        free(together[i]);
        free_matrix(&m[i]);
        free_both(&y[i]);
    }
    free_both(&x);
    close_devices(state);
    open_and_reserve(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products),
        cmocka_unit_test(products_of_heads),
        cmocka_unit_test(several_products),
        cmocka_unit_test(products_in_shares),
        cmocka_unit_test(products_with_adapters),
        cmocka_unit_test(odd_products),
        cmocka_unit_test(odd_products_of_few),
        cmocka_unit_test(embeddings),
        cmocka_unit_test(products_of_strange_numbers),
    };
    int missing = missing_gpu();
    return missing ? missing : cmocka_run_group_tests(tests, open_and_reserve, close_devices);
}
