/* SPDX-License-Identifier: Apache-2.0
 *
 * The GPU's operations but attention against the scalar CPU's; and that a row's bits depend on nothing but the row.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "two_devices.h"

#include "kernel/kernel.h"

/* Where scales lie in a block, as 16-bit floats, or in MXFP4 as an exponent; -1: nowhere, or random bytes do. */
static const struct {
    ig_type type;
    int scales[2];
} types[] = {
    {IG_TYPE_F32, {-1, -1}},   {IG_TYPE_F16, {-1, -1}},    {IG_TYPE_BF16, {-1, -1}},   {IG_TYPE_Q4_0, {0, -1}},
    {IG_TYPE_Q4_1, {0, 2}},    {IG_TYPE_Q5_0, {0, -1}},    {IG_TYPE_Q5_1, {0, 2}},     {IG_TYPE_Q8_0, {0, -1}},
    {IG_TYPE_Q2_K, {80, 82}},  {IG_TYPE_Q3_K, {108, -1}},  {IG_TYPE_Q4_K, {0, 2}},     {IG_TYPE_Q5_K, {0, 2}},
    {IG_TYPE_Q6_K, {208, -1}}, {IG_TYPE_IQ4_NL, {0, -1}},  {IG_TYPE_IQ4_XS, {0, -1}},  {IG_TYPE_MXFP4, {0, -1}},
    {IG_TYPE_IQ1_S, {0, -1}},  {IG_TYPE_IQ1_M, {-1, -1}},  {IG_TYPE_IQ2_XXS, {0, -1}}, {IG_TYPE_IQ2_XS, {0, -1}},
    {IG_TYPE_IQ2_S, {0, -1}},  {IG_TYPE_IQ3_XXS, {0, -1}}, {IG_TYPE_IQ3_S, {0, -1}},   {IG_TYPE_NVFP4, {-1, -1}},
    {IG_TYPE_Q1_0, {0, -1}},   {IG_TYPE_Q2_0, {0, -1}},    {IG_TYPE_TQ1_0, {52, -1}},  {IG_TYPE_TQ2_0, {64, -1}}};
enum { N_TYPES = sizeof types / sizeof *types };

/* A matrix of random codes in the host's memory, which the GPU gets a copy of; to be given to free_matrix(). */
static ig_matrix make_matrix(int t, int n_out, int n_in, const float *bias) {
    const ig_type_info *info = ig_type_get(types[t].type);
    size_t row = ig_type_row_bytes(info, (size_t)n_in), bytes = row * (size_t)n_out;
    uint8_t *w = malloc(bytes);
    for (size_t i = 0; i < bytes; i++) w[i] = (uint8_t)ig_random_u64(&dice);
    for (size_t i = 0; info->block > 1 && i < bytes; i += (size_t)info->block_bytes)
        for (int s = 0; s < 2; s++) {
            uint16_t half = ig_f32_f16((float)(0.01 + 0.02 * ig_random_unit(&dice)));
            if (types[t].type == IG_TYPE_MXFP4)
                w[i] = (uint8_t)(119 + ig_random_u64(&dice) % 4);
            else if (types[t].type == IG_TYPE_IQ1_M)
                for (int j = 0; j < 4; j++)
                    w[i + 49 + 2 * (size_t)j] = (uint8_t)((w[i + 49 + 2 * (size_t)j] & 15) | (half >> 4 * j & 15) << 4);
            else if (types[t].scales[s] >= 0)
                memcpy(w + i + types[t].scales[s], &half, sizeof half);
        }
    for (size_t i = 0; info->block == 1 && i < bytes / (size_t)info->block_bytes; i++) {
        float v = (float)(2 * ig_random_unit(&dice) - 1);
        uint16_t half = types[t].type == IG_TYPE_F16 ? ig_f32_f16(v) : ig_f32_bf16(v);
        memcpy(w + i * (size_t)info->block_bytes, info->block_bytes == 4 ? (void *)&v : (void *)&half,
               (size_t)info->block_bytes);
    }
    ig_error err = {0};
    if (devices[GPU]->ops->bind(devices[GPU], w, bytes, &err)) fail_msg("%s", err.text);
    return (ig_matrix){.w = w, .bias = bias, .n_out = n_out, .n_in = n_in, .type = types[t].type, .row_bytes = row};
}

static void free_matrix(ig_matrix *m) {
    devices[GPU]->ops->unbind(devices[GPU], m->w);
    free((void *)(uintptr_t)m->w);
}

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

static void norms(void **state) {
    (void)state;
    static const int widths[] = {1, 8, 64, 577};
    for (size_t i = 0; i < 4; i++)
        for (int kind = 0; kind < 8; kind++) {
            int n = widths[i], rows = 5;
            bool rms = kind & 1;
            int n_w = 1 + (int)i % 3;
            both x = make_both((size_t)(rows * n), 4), w = make_both((size_t)(n_w * n), 2),
                 b = make_both((size_t)(n_w * n), 2), y = make_both((size_t)(rows * n), 1);
            if (kind & 4) x.host[n] = 1e30f, x.host[2 * n] = NAN, put(&x);
            for (int d = 0; d < DEVICES; d++)
                devices[d]->ops->norm(devices[d], kind & 4 ? x.on[d] : y.on[d], x.on[d], kind & 2 ? w.on[d] : NULL,
                                      kind & 2 && !rms ? b.on[d] : NULL, n_w, rms, 1e-5f, rows, n);
            expect_near(kind & 4 ? &x : &y, 1e-6, "norm");
            free_both(&x), free_both(&y), free_both(&w), free_both(&b);
        }
}

/* What a decode step asks for between two products: state, its norm and the product of that; an FFN's hidden layer and
 * its product; heads that are rotated, and their largest numbers. */
enum { STEP_ROWS = 3, WIDE = 4160, HIDDEN = 96, N_OUT = 7, STEP_HEADS = 3, HEAD = 24, HEADS_WIDTH = STEP_HEADS * HEAD };
typedef struct steps {
    both h, part, normed, product, gate, up, down, q, k, v, cs;
    float *peaks; /* [3], page-locked */
} steps;

/* With a wait behind each, so that none finds another one before it, or without. */
static void run_steps(steps *x, const ig_matrix *w, const ig_matrix *w_down, const both *norm, ig_activation kind,
                      bool together) {
    ig_device *d = devices[GPU];
    const ig_device_ops *ops = d->ops;
    ops->add(d, x->h.on[GPU], x->part.on[GPU], STEP_ROWS * WIDE);
    if (!together) finish(GPU);
    ops->norm(d, x->normed.on[GPU], x->h.on[GPU], norm->on[GPU], NULL, 1, true, 1e-5f, STEP_ROWS, WIDE);
    if (!together) finish(GPU);
    ops->matmul(d, &x->product.on[GPU], &w, 1, x->normed.on[GPU], NULL, STEP_ROWS, true);
    if (!together) finish(GPU);
    ops->activate(d, kind, x->gate.on[GPU], x->up.on[GPU], STEP_ROWS * HIDDEN);
    if (!together) finish(GPU);
    ops->matmul(d, &x->down.on[GPU], &w_down, 1, x->gate.on[GPU], NULL, STEP_ROWS, true);
    ops->rope(d, x->q.on[GPU], x->cs.on[GPU], HEAD - 8, false, STEP_ROWS, STEP_HEADS, HEAD);
    if (!together) finish(GPU);
    ops->rope(d, x->k.on[GPU], x->cs.on[GPU], HEAD - 8, false, STEP_ROWS, 1, HEAD);
    if (!together) finish(GPU);
    const ig_floats seen[] = {{x->q.on[GPU], x->q.n}, {x->k.on[GPU], x->k.n}, {x->v.on[GPU], x->v.n}};
    ops->peak(d, x->peaks, seen, 3);
    finish(GPU);
}

static void operations_that_join(void **state) {
    (void)state;
    ig_matrix w = make_matrix(7, N_OUT, WIDE, NULL), w_down = make_matrix(7, N_OUT, HIDDEN, NULL);
    both norm = make_both(WIDE, 2);
    for (int kind = 0; kind < IG_ACTIVATIONS; kind++) {
        uint64_t dice_before = dice.state, launches[2] = {0};
        float *before[9] = {NULL};
        for (int together = 0; together < 2; together++) {
            dice.state = dice_before;
            steps x = {
                make_both(STEP_ROWS * WIDE, 4),   make_both(STEP_ROWS * WIDE, 3),
                make_both(STEP_ROWS * WIDE, 1),   make_both(STEP_ROWS * N_OUT, 1),
                make_both(STEP_ROWS * HIDDEN, 2), make_both(STEP_ROWS * HIDDEN, 2),
                make_both(STEP_ROWS * N_OUT, 1),  make_both(STEP_ROWS * HEADS_WIDTH, 2),
                make_both(STEP_ROWS * HEAD, 2),   make_both(STEP_ROWS * HEAD, 2),
                make_both(STEP_ROWS * HEAD, 1),   ig_device_alloc(devices[GPU], IG_PLACE_HOST, 3 * sizeof(float))};
            if (cuda_on_cpu_count) launches[together] -= cuda_on_cpu_count("cudaLaunchKernel");
            run_steps(&x, &w, &w_down, &norm, (ig_activation)kind, together);
            if (cuda_on_cpu_count) launches[together] += cuda_on_cpu_count("cudaLaunchKernel");
            both *all[] = {&x.h, &x.part, &x.normed, &x.product, &x.gate, &x.up, &x.down, &x.q, &x.k, &x.v, &x.cs};
            float most = 0;
            for (int i = 0; i < 9; i++) {
                const float *now = get(all[i], GPU);
                if (!together) before[i] = memcpy(malloc(all[i]->n * sizeof *now), now, all[i]->n * sizeof *now);
                assert_memory_equal(before[i], now, all[i]->n * sizeof *now);
                if (together) free(before[i]);
            }
            for (size_t i = 0; i < x.q.n; i++) most = fmaxf(most, fabsf(get(&x.q, GPU)[i]));
            assert_true(x.peaks[0] == most);
            for (int i = 0; i < 11; i++) free_both(all[i]);
            ig_device_free(devices[GPU], IG_PLACE_HOST, x.peaks, 3 * sizeof(float));
        }
        /* Addition, norm and codes; activation and codes; two rotations and a look. */
        if (cuda_on_cpu_count) assert_int_equal(launches[0] - launches[1], 5);
    }
    free_matrix(&w), free_matrix(&w_down), free_both(&norm);
}

static void rotations(void **state) {
    (void)state;
    for (int adjacent = 0; adjacent < 2; adjacent++)
        for (int n_rot = 8; n_rot <= 24; n_rot += 16) {
            both x = make_both(6 * 5 * 24, 2), cs = make_both((size_t)(6 * n_rot), 1);
            for (int d = 0; d < DEVICES; d++)
                devices[d]->ops->rope(devices[d], x.on[d], cs.on[d], n_rot, adjacent, 6, 5, 24);
            expect_near(&x, 1e-6, "rope");
            free_both(&x), free_both(&cs);
        }
}

static void elements(void **state) {
    (void)state;
    static const size_t sizes[] = {1, 31, 129, 140001};
    static const struct {
        ig_activation kind;
        const char *name;
    } gated[] = {
        {IG_SILU_GATED, "silu"}, {IG_SIGMOID_GATED, "sigmoid"}, {IG_GELU_GATED, "gelu"}, {IG_SWIGLU_OAI, "swiglu_oai"}};
    for (size_t i = 0; i < 4; i++)
        for (int strange = 0; strange < 2; strange++) {
            both x = make_both(sizes[i], 20), y = make_both(sizes[i], 3);
            if (strange) x.host[sizes[i] / 2] = NAN, y.host[sizes[i] - 1] = -INFINITY, put(&x), put(&y);
            for (int d = 0; d < DEVICES; d++) devices[d]->ops->add(devices[d], y.on[d], x.on[d], sizes[i]);
            expect_near(&y, 0, "add");
            for (size_t k = 0; k < IG_COUNT(gated); k++, put(&x)) {
                for (int d = 0; d < DEVICES; d++)
                    devices[d]->ops->activate(devices[d], gated[k].kind, x.on[d], y.on[d], sizes[i]);
                expect_near(&x, 1e-6, gated[k].name);
            }
            for (int d = 0; d < DEVICES; d++) devices[d]->ops->activate(devices[d], IG_RELU, y.on[d], NULL, sizes[i]);
            expect_near(&y, 0, "relu");
            for (int d = 0; d < DEVICES; d++) devices[d]->ops->scale(devices[d], y.on[d], 0.7f, sizes[i]);
            expect_near(&y, 0, "scale");
            for (int d = 0; d < DEVICES; d++) devices[d]->ops->activate(devices[d], IG_TANH, y.on[d], NULL, sizes[i]);
            expect_near(&y, 1e-6, "tanh");
            free_both(&x), free_both(&y);
        }
}

static void rows_that_join(void **state) {
    (void)state;
    static const int widths[] = {1, 31, 300, 2049};
    for (size_t i = 0; i < 4; i++) {
        int n = widths[i];
        both x = make_both(5 * (size_t)n, 3), y = make_both(9 * (size_t)n, 2);
        for (int d = 0; d < DEVICES; d++) {
            int32_t *rows = ig_device_alloc(devices[d], IG_PLACE_HOST, 5 * sizeof *rows);
            float *shares = ig_device_alloc(devices[d], IG_PLACE_HOST, 5 * sizeof *shares);
            for (int r = 0; r < 5; r++) rows[r] = (r * 4 + 1) % 9, shares[r] = 0.25f * (float)(r + 1);
            devices[d]->ops->add_rows(devices[d], y.on[d], x.on[d], rows, shares, 5, n);
            finish(d);
            ig_device_free(devices[d], IG_PLACE_HOST, rows, 5 * sizeof *rows);
            ig_device_free(devices[d], IG_PLACE_HOST, shares, 5 * sizeof *shares);
        }
        for (int k = 0; k < n; k++) {
            float want = y.host[3 * n + k];
            for (int r = 0; r < 5; r++) want += (r * 4 + 1) % 9 == 3 ? 0.25f * (float)(r + 1) * x.host[r * n + k] : 0;
            assert_true(fabsf(y.on[CPU][3 * n + k] - want) <= 1e-5f * (1 + fabsf(want)));
        }
        expect_near(&y, 1e-6, "rows that join");
        free_both(&x), free_both(&y);
    }
}

static void peaks(void **state) {
    (void)state;
    static const float odd[] = {0, -70, INFINITY, NAN};
    ig_device *g = devices[GPU];
    float *a = ig_device_alloc(devices[CPU], IG_PLACE_HOST, 32 * sizeof *a),
          *b = ig_device_alloc(g, IG_PLACE_HOST, 32 * sizeof *b);
    b[20] = 1;
    g->ops->peak(g, &b[20], &(ig_floats){NULL, 0}, 1);
    finish(GPU);
    assert_true(b[20] == 0);
    for (int i = 0; i < 4; i++) {
        both x = make_both(i < 3 ? 5000 : 70000, 7); /* few, and many */
        x.host[x.n - 1 - (size_t)i] = odd[i];
        put(&x);
        for (int d = 0; d < DEVICES; d++) {
            ig_floats all[] = {
                {x.on[d], x.n}, {x.on[d], 3}, {x.on[d] + 7, 1000}, {x.on[d] + 1, x.n - 1}, {x.on[d], 40}};
            float *out = (d == GPU ? b : a) + 5 * i;
            devices[d]->ops->peak(devices[d], out, all, 5);
            finish(d);
        }
        free_both(&x);
    }
    assert_memory_equal(a, b, 20 * sizeof *a);
    ig_device_free(devices[CPU], IG_PLACE_HOST, a, 32 * sizeof *a);
    ig_device_free(g, IG_PLACE_HOST, b, 32 * sizeof *b);
}

static void memory(void **state) {
    (void)state;
    ig_device *g = devices[GPU];
    both x = make_both(100, 1);
    float *more = ig_device_alloc(g, IG_PLACE_DEVICE, 300 * sizeof *more), host[300], kept[100];
    memcpy(kept, x.host, sizeof kept);
    g->ops->copy(g, host, more, sizeof host);
    finish(GPU);
    for (int i = 0; i < 300; i++) assert_true(host[i] == 0); /* new memory is zero */
    g->ops->copy(g, more + 100, x.on[GPU], 100 * sizeof *more);
    g->ops->copy(g, more + 150, more + 100, 50 * sizeof *more);
    g->ops->clear(g, more + 160, 10 * sizeof *more);
    g->ops->copy(g, host, more, sizeof host);
    finish(GPU);
    assert_memory_equal(host + 100, kept, 50 * sizeof *kept);
    assert_memory_equal(host + 150, kept, 10 * sizeof *kept);
    assert_memory_equal(host + 170, kept + 20, 30 * sizeof *kept);
    for (int i = 160; i < 170; i++) assert_true(host[i] == 0);
    assert_null(ig_device_alloc(g, IG_PLACE_DEVICE, SIZE_MAX / 4));
    ig_device_free(g, IG_PLACE_DEVICE, more, sizeof host);
    ig_error err = {0};
    assert_int_equal(ig_device_open_cuda(&g, ig_cuda_count(), 1, &err), IG_E_NOT_FOUND);
    free_both(&x);
}

static int open_and_reserve(void **state) {
    open_devices(state);
    reserve_both(
        &(ig_device_need){.max_rows = 80, .max_in = 4352, .max_rank = 8, .max_entries = 1, .heads = {1, 1, 8, 0}});
    return 0;
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
        cmocka_unit_test(memory),
        cmocka_unit_test(products),
        cmocka_unit_test(products_of_heads),
        cmocka_unit_test(several_products),
        cmocka_unit_test(products_in_shares),
        cmocka_unit_test(products_with_adapters),
        cmocka_unit_test(odd_products),
        cmocka_unit_test(odd_products_of_few),
        cmocka_unit_test(embeddings),
        cmocka_unit_test(norms),
        cmocka_unit_test(operations_that_join),
        cmocka_unit_test(products_of_strange_numbers),
        cmocka_unit_test(rotations),
        cmocka_unit_test(elements),
        cmocka_unit_test(rows_that_join),
        cmocka_unit_test(peaks),
    };
    int missing = missing_gpu();
    return missing ? missing : cmocka_run_group_tests(tests, open_and_reserve, close_devices);
}
