/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of the matrix products: every weight type, gemv and gemm.
 *
 * The reference multiplies the dequantised weights with the activations rounded as their form
 * says (8 bits in groups of 32), in double precision, so the limits are those of float sums.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "kernel/fixed.h"
#include "matmul_problem.h"

static const type_case cases[] = {
    {IG_TYPE_F32, {-1, -1}, {0, 0}},      {IG_TYPE_F16, {-1, -1}, {0, 0}},     {IG_TYPE_BF16, {-1, -1}, {0, 0}},
    {IG_TYPE_Q4_0, {0, -1}, {8, 0}},      {IG_TYPE_Q4_1, {0, 2}, {15, 1}},     {IG_TYPE_Q5_0, {0, -1}, {16, 0}},
    {IG_TYPE_Q5_1, {0, 2}, {31, 1}},      {IG_TYPE_Q8_0, {0, -1}, {128, 0}},   {IG_TYPE_Q2_K, {80, 82}, {45, 15}},
    {IG_TYPE_Q3_K, {108, -1}, {128, 0}},  {IG_TYPE_Q4_K, {0, 2}, {945, 63}},   {IG_TYPE_Q5_K, {0, 2}, {1953, 63}},
    {IG_TYPE_Q6_K, {208, -1}, {4096, 0}}, {IG_TYPE_IQ4_NL, {0, -1}, {127, 0}}, {IG_TYPE_IQ4_XS, {0, -1}, {4064, 0}},
    {IG_TYPE_MXFP4, {0, -1}, {12, 0}},    {IG_TYPE_IQ1_S, {0, -1}, {17, 0}},   {IG_TYPE_IQ1_M, {49, -1}, {17, 0}},
    {IG_TYPE_IQ2_XXS, {0, -1}, {167, 0}}, {IG_TYPE_IQ2_XS, {0, -1}, {167, 0}}, {IG_TYPE_IQ2_S, {0, -1}, {167, 0}},
    {IG_TYPE_IQ3_XXS, {0, -1}, {481, 0}}, {IG_TYPE_IQ3_S, {0, -1}, {465, 0}},  {IG_TYPE_NVFP4, {0, -1}, {12, 0}},
    {IG_TYPE_Q1_0, {0, -1}, {1, 0}},      {IG_TYPE_Q2_0, {0, -1}, {2, 0}},     {IG_TYPE_TQ1_0, {52, -1}, {1, 0}},
    {IG_TYPE_TQ2_0, {64, -1}, {2, 0}},    {IG_TYPE_F8_E4M3, {-1, -1}, {0, 0}},
};

/* What the weights of a row may have been summed from: a minimum can cancel a scale. */
static void fill_reach(const problem *p, int r, const float *row, double *reach) {
    const uint8_t *w = p->w + (size_t)r * p->m.row_bytes;
    for (int i = 0; i < p->n_in; i++) reach[i] = fabs((double)row[i]);
    for (int b = 0; b < p->n_in && p->info->block > 1; b += p->info->block, w += p->info->block_bytes) {
        double sum = 0;
        for (int i = 0; i < 2 && p->t->scale[i] >= 0; i++) sum += p->t->reach[i] * fabs(get_scale(p->t, w, i));
        for (int i = b; i < b + p->info->block; i++) reach[i] = sum;
    }
}

/* What rounding both to fixed point may change of a row's product with a column. */
static double fixed_error(const float *w, const double *x, int n) {
    double error = 0;
    for (int g = 0; g < n; g += IG_FIXED_GROUP) {
        int end = g + IG_FIXED_GROUP < n ? g + IG_FIXED_GROUP : n;
        double peak = 0, squares = 0, sum_w = 0, sum_x = 0;
        for (int i = g; i < end; i++) {
            peak = fmax(peak, fabs((double)w[i]));
            squares += x[i] * x[i];
            sum_w += fabs((double)w[i]), sum_x += fabs(x[i]);
        }
        double of_w = 0.5001 * peak / IG_FIXED_PEAK, of_x = 0.5001 * sqrt(squares) / IG_FIXED_NORM;
        error += sum_w * of_x + sum_x * of_w + (end - g) * of_w * of_x;
    }
    return error;
}

static float rounded(double v) { return ig_bf16_f32(ig_f32_bf16((float)v)); }

/* What bfloat16 may change. Weights in 16-bit floats and their columns lose up to 2^-16 of each, and the product of
 * their low parts. Quantised ones and theirs are rounded, here as well; a weight that lies about halfway between two
 * numbers may be either. (Kernels add scale (256 + code) to min - 256 scale, which is rounded, by 2^-15 scale at most;
 * codes reach 3.) */
static double bf16_error(float *w, double *x, const double *reach, int n, bool is_quantised) {
    double error = 0;
    for (int i = 0; i < n; i++) {
        if (!is_quantised) {
            error += 0x1p-15 * fabs((double)w[i] * x[i]);
            continue;
        }
        double slack = 0x1p-16 * reach[i], low = (double)rounded((double)w[i] - slack);
        x[i] = (double)rounded(x[i]);
        error += fabs(x[i]) * ((double)rounded((double)w[i] + slack) - low);
        w[i] = rounded((double)w[i]);
    }
    return error;
}

/* Largest error of the product beside double precision, as a share of sum reach |x|. */
static double worst_error(check *c, const problem *p, const ig_matmul *m, int row_begin, int row_end) {
    const ig_act form = m->act == p->many_act ? c->k->many_act[p->t->type] : p->form;
    double worst = 0;
    float *row = check_buffer((size_t)p->n_in * sizeof(float), 0);
    double *x = check_buffer((size_t)p->n_in * sizeof(double), 0),
           *reach = check_buffer((size_t)p->n_in * sizeof(double), 0);
    for (int col = 0; col < p->n_cols; col++) {
        for (int r = row_begin; r < row_end; r++) {
            round_column(x, p->x + (size_t)col * (size_t)p->n_in, p->n_in, form);
            c->ref->dequantize[p->t->type](row, p->w + (size_t)r * p->m.row_bytes, p->n_in);
            ig_scale_codes(row, &p->m.scales, r, 0, p->n_in);
            fill_reach(p, r, row, reach);
            double sum = 0, size = 1e-30, allowed = 0;
            if (form == IG_ACT_FIXED) allowed = fixed_error(row, x, p->n_in);
            if (form == IG_ACT_BF16) allowed = bf16_error(row, x, reach, p->n_in, p->form == IG_ACT_Q8);
            for (int i = 0; i < p->n_in; i++) {
                sum += (double)row[i] * x[i];
                size += fabs(reach[i] * x[i]);
            }
            double got = (double)p->out[(size_t)col * p->out_stride + (size_t)r];
            double error = fmax(0, fabs(got - sum) - allowed) / size;
            if (!(error <= worst) || got != got) worst = got == got ? error : INFINITY;
        }
    }
    check_buffer_free(row);
    check_buffer_free(x);
    check_buffer_free(reach);
    return worst;
}

/* Whether the twin of the level makes the same bits. */
static void check_twin(check *c, problem *p, const ig_matmul *args, ig_matmul_fn fn, ig_matmul_fn twin,
                       const char *which) {
    size_t bytes = p->out_stride * (size_t)p->n_cols * sizeof(float);
    ig_matmul m = *args;
    m.out = check_buffer(bytes, 4);
    memset(m.out, 0xff, bytes);
    memset(p->out, 0xff, bytes);
    fn(args, 0, p->n_out);
    twin(&m, 0, p->n_out);
    check_that(c, !memcmp(m.out, p->out, bytes), "%s n_in %d rows %d cols %d: other bits", which, p->n_in, p->n_out,
               p->n_cols);
    check_buffer_free(m.out);
}

static void check_product(check *c, problem *p, const ig_matmul *m, ig_matmul_fn fn, const char *which, int row_begin,
                          int row_end) {
    size_t n = p->out_stride * (size_t)p->n_cols;
    for (size_t i = 0; i < n; i++) p->out[i] = 12345.0f;
    fn(m, row_begin, row_end);
    double worst = worst_error(c, p, m, row_begin, row_end);
    /* Sums of n equal numbers in one float drift with n. */
    double limit = p->form == IG_ACT_F32 ? fmax(4e-6, 2e-8 * p->n_in) : 4e-6;
    check_that(c, worst < limit, "%s n_in %d rows %d..%d of %d cols %d: error %g", which, p->n_in, row_begin, row_end,
               p->n_out, p->n_cols, worst);
    bool is_kept = true;
    for (size_t i = 0; i < n; i++) {
        int r = (int)(i % p->out_stride);
        if ((r < row_begin || r >= row_end) && p->out[i] != 12345.0f) is_kept = false;
    }
    check_that(c, is_kept, "%s n_in %d rows %d..%d: wrote other rows", which, p->n_in, row_begin, row_end);
    check_that(c, check_guards(p->out) && check_guards(p->scratch) && check_guards(p->act), "%s n_in %d: wrote outside",
               which, p->n_in);
}

static void check_shapes(check *c, const type_case *t) {
    const ig_type_info *info = ig_type_get(t->type);
    static const int rows[] = {1, 2, 3, 5, 15, 16, 17, 31, 33, 35, 67}, cols[] = {1, 2, 3, 4, 5, 6, 7, 8, 11, 13, 19};
    static const int blocks[] = {1, 2, 3, 5, 18, 28, 35, 67};
    for (int i = 0; i < 88; i++) {
        int n_in = blocks[i % 8] * info->block;
        if (info->block > 32 && n_in > 1280) n_in = 1280 / info->block * info->block;
        if (info->block == 1 && i % 3 == 0) n_in = check_int(c, 1, 67) + i % 2 * 1024;
        problem p;
        problem_init(c, &p, t, n_in, rows[i % 11], cols[(i / 8 + i) % 11]);
        fill_weights(c, t, p.w, p.w_bytes, (weight_shape)(i / 3 % WEIGHT_SHAPES));
        for (int col = 0; col < p.n_cols; col++)
            check_fill(c, p.x + (size_t)col * (size_t)n_in, n_in, (check_shape)((i + col) % CHECK_SHAPES));
        problem_prepare(c, &p);
        int begin = i % 4 == 3 ? check_int(c, 0, p.n_out - 1) : 0,
            end = i % 4 == 2 ? check_int(c, 1, p.n_out) : p.n_out;
        check_product(c, &p, &p.m, c->k->gemv[t->type], "gemv", begin, end);
        check_product(c, &p, &p.many, c->k->gemm[t->type], "gemm", begin, end);
        if (c->twin) check_twin(c, &p, &p.m, c->k->gemv[t->type], c->twin->gemv[t->type], "gemv");
        if (c->twin) check_twin(c, &p, &p.many, c->k->gemm[t->type], c->twin->gemm[t->type], "gemm");
        problem_deinit(&p);
    }
}

/* A result must be the same bits alone, among other columns and in any range of rows. */
static void check_invariance(check *c, const type_case *t) {
    const ig_type_info *info = ig_type_get(t->type);
    int n_in = info->block > 64 ? 768 : 576, n_out = 77, n_cols = 23;
    problem p;
    problem_init(c, &p, t, n_in, n_out, n_cols);
    fill_weights(c, t, p.w, p.w_bytes, WEIGHT_NOISE);
    check_fill(c, p.x, n_in * n_cols, CHECK_OUTLIER);
    problem_prepare(c, &p);
    size_t n = p.out_stride * (size_t)n_cols;
    float *whole = check_buffer(n * sizeof(float), 0);
    for (int kind = 0; kind < 2; kind++) {
        ig_matmul_fn fn = kind ? c->k->gemm[t->type] : c->k->gemv[t->type];
        const ig_matmul *args = kind ? &p.many : &p.m;
        fn(args, 0, n_out);
        memcpy(whole, p.out, n * sizeof(float));
        for (int i = 0; i < 40; i++) {
            ig_matmul m = *args;
            int col = check_int(c, 0, n_cols - 1), begin = check_int(c, 0, n_out - 1);
            int end = check_int(c, begin + 1, n_out);
            m.n_cols = check_int(c, 1, n_cols - col);
            m.act = (const char *)args->act + (size_t)col * args->act_stride;
            m.out = p.out + (size_t)col * p.out_stride;
            memset(p.out, 0xff, n * sizeof(float));
            fn(&m, begin, end);
            bool is_same = true;
            for (int j = col; j < col + m.n_cols; j++)
                is_same =
                    is_same && !memcmp(p.out + (size_t)j * p.out_stride + begin,
                                       whole + (size_t)j * p.out_stride + begin, (size_t)(end - begin) * sizeof(float));
            check_that(c, is_same, "%s of columns %d+%d rows %d..%d differs from the whole", kind ? "gemm" : "gemv",
                       col, m.n_cols, begin, end);
        }
    }
    check_buffer_free(whole);
    problem_deinit(&p);
}

/* Panels: the bits of gemv and of gemm, for any number of columns and any panels. */
static void check_panels(check *c, const type_case *t) {
    const ig_type_info *info = ig_type_get(t->type);
    for (int i = 0; i < 60 && c->k->panels[t->type].put; i++) {
        problem p;
        problem_init(c, &p, t, check_int(c, 1, info->block == 256 ? 5 : 40) * info->block, check_int(c, 1, 67),
                     check_int(c, 1, 19));
        fill_weights(c, t, p.w, p.w_bytes, (weight_shape)(i % WEIGHT_SHAPES));
        for (int col = 0; col < p.n_cols; col++)
            check_fill(c, p.x + (size_t)col * (size_t)p.n_in, p.n_in, (check_shape)((i + col) % CHECK_SHAPES));
        problem_prepare(c, &p);
        problem_put_panels(c, &p);
        int begin = check_int(c, 0, (p.n_out - 1) / IG_PANEL_ROWS) * IG_PANEL_ROWS,
            end = i % 2 ? p.n_out : check_int(c, begin + 1, p.n_out);
        size_t bytes = p.out_stride * (size_t)p.n_cols * sizeof(float);
        float *wanted = check_buffer(bytes, 4);
        const bool many = i % 3 != 0;
        const ig_panels *k = &c->k->panels[t->type];
        ig_matmul m = many ? p.many : p.m;
        m.out = wanted;
        memset(wanted, 0xff, bytes);
        memset(p.out, 0xff, bytes);
        (many ? c->k->gemm : c->k->gemv)[t->type](&m, begin, end);
        (many ? k->gemm : k->gemv)(many ? &p.panels_many : &p.panels_few, begin, end);
        check_that(c, !memcmp(wanted, p.out, bytes) && check_guards(p.out) && check_guards(p.scratch),
                   "panels n_in %d rows %d..%d of %d cols %d differ", p.n_in, begin, end, p.n_out, p.n_cols);
        check_buffer_free(wanted);
        problem_deinit(&p);
    }
}

/* Infinite and NaN activations and scales: a column that has one gives no finite result that could be
 * taken for an answer; the other columns do not notice. */
static void check_not_finite(check *c, const type_case *t) {
    const ig_type_info *info = ig_type_get(t->type);
    int n_in = info->block > 64 ? 512 : 320, n_out = 19, n_cols = 7;
    problem p;
    problem_init(c, &p, t, n_in, n_out, n_cols);
    fill_weights(c, t, p.w, p.w_bytes, WEIGHT_NOISE);
    check_fill(c, p.x, n_in * n_cols, CHECK_NORMAL);
    p.x[1 * n_in + 33] = NAN;
    p.x[3 * n_in + 7] = INFINITY;
    p.x[5 * n_in + n_in - 1] = -INFINITY;
    if (info->block > 1) { /* random bits for scales of the last row: NaN, infinite, huge */
        uint8_t *last = p.w + p.w_bytes - p.m.row_bytes;
        for (size_t i = 0; i < p.m.row_bytes; i++) last[i] = (uint8_t)(ig_random_u64(&c->rng) | 0x7c);
    }
    const bool has_nan = t->type == IG_TYPE_F8_E4M3;
    if (has_nan) p.w[p.w_bytes - 1 - (size_t)check_int(c, 0, n_in - 1)] = check_int(c, 0, 1) ? 0xff : 0x7f;
    problem_prepare(c, &p);
    static const char *const names[] = {"gemv", "gemm", "few columns of panels", "many columns of panels"};
    const ig_panels *k = &c->k->panels[t->type];
    const ig_matmul_fn fn[] = {c->k->gemv[t->type], c->k->gemm[t->type], k->gemv, k->gemm};
    const ig_matmul *const m[] = {&p.m, &p.many, &p.panels_few, &p.panels_many};
    const int n_kinds = problem_put_panels(c, &p) ? 4 : 2;
    for (int kind = 0; kind < n_kinds; kind++) {
        fn[kind](m[kind], 0, n_out);
        for (int col = 0; col < n_cols; col++)
            for (int r = 0; r < n_out - !has_nan; r++) {
                float v = p.out[(size_t)col * p.out_stride + (size_t)r];
                bool is_finite = col % 2 == 0 && !(has_nan && r == n_out - 1);
                check_that(c, (isfinite(v) != 0) == is_finite, "%s column %d row %d is %g", names[kind], col, r,
                           (double)v);
            }
    }
    problem_deinit(&p);
}

/* Rows as floats, and a column prepared at this level, beside the scalar level. */
static void check_parts(check *c, const type_case *t) {
    const ig_type_info *info = ig_type_get(t->type);
    for (int i = 1; i <= 67; i++) {
        int n = i * info->block;
        if (n > 4096) break;
        size_t bytes = ig_type_row_bytes(info, (size_t)n);
        uint8_t *w = check_fenced(bytes);
        float *a = check_buffer((size_t)n * 4, 4), *b = check_buffer((size_t)n * 4, 4);
        fill_weights(c, t, w, bytes, (weight_shape)(i % WEIGHT_SHAPES));
        c->k->dequantize[t->type](a, w, n);
        c->ref->dequantize[t->type](b, w, n);
        check_that(c, !memcmp(a, b, (size_t)n * 4) && check_guards(a), "dequantize of %d differs", n);

        ig_act form = ig_kernels_act(t->type);
        size_t act_bytes = c->k->act_bytes(form, n);
        float *x = check_fenced((size_t)n * 4);
        char *p = check_buffer(act_bytes, 0), *q = check_buffer(act_bytes, 0);
        check_fill(c, x, n, (check_shape)(i % CHECK_SHAPES));
        if (i % 9 == 0) x[n / 2] = i % 2 ? NAN : INFINITY;
        c->k->act_prepare[form](p, x, n);
        c->ref->act_prepare[form](q, x, n);
        check_that(c, act_bytes % 64 == 0 && check_guards(p), "act_prepare of %d: size", n);
        check_that(c, i % 9 == 0 || !memcmp(p, q, act_bytes), "act_prepare of %d differs", n);
        check_fenced_free(w, bytes);
        check_fenced_free(x, (size_t)n * 4);
        check_buffer_free(a);
        check_buffer_free(b);
        check_buffer_free(p);
        check_buffer_free(q);
    }
}

/* A column in fixed point: within half a step of what it stands for, and of a norm that sums can hold. */
static void check_fixed_columns(check *c) {
    for (int n = 1; n <= 200 && c->k->act_prepare[IG_ACT_FIXED]; n++) {
        size_t bytes = c->k->act_bytes(IG_ACT_FIXED, n);
        float *x = check_fenced((size_t)n * sizeof *x);
        char *column = check_buffer(bytes, 0);
        check_fill(c, x, n, (check_shape)(n % CHECK_SHAPES));
        if (n % 9 == 0) x[n / 2] = n % 2 ? NAN : INFINITY;
        memset(column, 0x55, bytes);
        c->k->act_prepare[IG_ACT_FIXED](column, x, n);
        ig_fixed a = ig_fixed_view(column, n);
        for (int g = 0; g * IG_FIXED_GROUP < n; g++) {
            bool is_close = true, is_finite = true;
            double squares = 0;
            for (int i = g * IG_FIXED_GROUP; i < (g + 1) * IG_FIXED_GROUP; i++) {
                double at = i < n ? (double)x[i] : 0, q = a.q[i], scale = (double)a.scale[g];
                is_finite = is_finite && isfinite(at);
                is_close = is_close && fabs(at - scale * q) <= 0.501 * scale + IG_FIXED_TINY;
                squares += q * q;
            }
            check_that(c, is_finite ? is_close : isnan(a.scale[g]), "column of %d in fixed point: group %d", n, g);
            check_that(c, sqrt(squares) <= IG_FIXED_NORM + 4, "column of %d in fixed point: norm", n);
        }
        check_that(c, bytes % 64 == 0 && check_guards(column), "column of %d in fixed point: size", n);
        check_fenced_free(x, (size_t)n * sizeof *x);
        check_buffer_free(column);
    }
}

/* What the gguf Python package, or ggml where this cannot, makes of fixed bytes: elements 5 and 300 of 512, and the sum
 * of all times 1 + i mod 37. The scales are powers of two, so every number is exact. */
static const struct golden {
    ig_type type;
    double w5, w300, sum;
} goldens[] = {
    {IG_TYPE_Q4_0, -0.0625, 0.3125, -344.3125},
    {IG_TYPE_Q4_1, 0.15625, 0.84375, 4153.53125},
    {IG_TYPE_Q5_0, -0.875, 0.4375, -457.0625},
    {IG_TYPE_Q5_1, 0.09375, 0.46875, 8788.28125},
    {IG_TYPE_Q8_0, -3.5625, -2.9375, -511.875},
    {IG_TYPE_Q2_K, 0.0, 0.90625, 8635.0625},
    {IG_TYPE_Q3_K, -6.25, -1.3125, -991.125},
    {IG_TYPE_Q4_K, 8.09375, 36.46875, 148949.40625},
    {IG_TYPE_Q5_K, 1.09375, 0.21875, 380284.125},
    {IG_TYPE_Q6_K, 98.75, -102.375, 20762.875},
    {IG_TYPE_IQ4_NL, -0.625, 4.3125, -4033.375},
    {IG_TYPE_IQ4_XS, -72.625, 0.875, 61212.0},
    {IG_TYPE_MXFP4, -0.75, 0.75, 81.0625},
    {IG_TYPE_IQ1_S, -0.4921875, 0.0234375, 370.4453125},
    {IG_TYPE_IQ1_M, -0.7734375, 0.6328125, 211.5078125},
    {IG_TYPE_IQ2_XXS, 0.9765625, -2.9296875, -2194.625},
    {IG_TYPE_IQ2_XS, -5.6640625, 0.3125, -1058.7421875},
    {IG_TYPE_IQ2_S, 3.3203125, -5.6640625, 382.3046875},
    {IG_TYPE_IQ3_XXS, -0.9375, -7.3125, -3318.9375},
    {IG_TYPE_IQ3_S, 0.0625, -1.4375, -1164.9375},
    {IG_TYPE_NVFP4, 0.1875, -0.3125, 30.34375},
    {IG_TYPE_Q1_0, -0.0625, -0.0625, -8.4375},
    {IG_TYPE_Q2_0, 0.0, -0.0625, 305.4375},
    {IG_TYPE_TQ1_0, 0.0625, 0.0, -23.3125},
    {IG_TYPE_TQ2_0, -0.0625, 0.0625, 301.5},
};

static void check_golden(check *c, const type_case *t) {
    for (size_t i = 0; i < IG_COUNT(goldens); i++) {
        const struct golden *g = &goldens[i];
        if (g->type != t->type) continue;
        const ig_type_info *info = ig_type_get(t->type);
        uint8_t raw[512 / 32 * 34];
        float w[512];
        uint32_t bytes = (uint32_t)ig_type_row_bytes(info, 512);
        for (uint32_t j = 0; j < bytes; j++) raw[j] = (uint8_t)((j * j * 73 + j * 41 + 5) >> 2);
        for (uint32_t j = 0; j < bytes; j += (uint32_t)info->block_bytes)
            for (int k = 0; k < 2 && t->scale[k] >= 0; k++) put_scale(t, raw + j, k, k ? -0x1p-5 : 0x1p-4);
        c->k->dequantize[t->type](w, raw, 512);
        double sum = 0;
        for (int j = 0; j < 512; j++) sum += (double)w[j] * (j % 37 + 1);
        check_that(c, (double)w[5] == g->w5 && (double)w[300] == g->w300 && sum == g->sum, "%g %g %g, not %g %g %g",
                   (double)w[5], (double)w[300], sum, g->w5, g->w300, g->sum);
    }
}

/* ---- bench ------------------------------------------------------------------ */

typedef struct timed {
    ig_matmul_fn fn;
    problem *p;
    const ig_matmul *m;
    int next, step; /* rows: a new part of the matrix at every call, so that it comes from memory */
} timed;

static void run_timed(void *arg) {
    timed *t = arg;
    if (t->next + t->step > t->p->n_out) t->next = 0;
    t->fn(t->m, t->next, t->next + t->step);
    t->next += t->step;
}

static void bench_product(check *c, const type_case *t, int n_in, int n_cols, bool is_cached) {
    const ig_type_info *info = ig_type_get(t->type);
    bool is_gemm = n_cols > 8;
    size_t row_bytes = ig_type_row_bytes(info, (size_t)n_in);
    int n_step = is_cached ? (int)((256u << 10) / row_bytes) / 16 * 16 : 256, n_out = n_step;
    if (!is_gemm && !is_cached) n_out = (int)((200u << 20) / row_bytes);
    problem p;
    problem_init(c, &p, t, n_in, n_out, n_cols);
    size_t sample = row_bytes * (n_out < 16 ? (size_t)n_out : 16);
    fill_weights(c, t, p.w, sample, WEIGHT_NOISE);
    for (size_t at = sample; at < p.w_bytes; at += row_bytes) memcpy(p.w + at, p.w + at % sample, row_bytes);
    check_fill(c, p.x, n_in * n_cols, CHECK_NORMAL);
    problem_prepare(c, &p);
    timed run = {is_gemm ? c->k->gemm[t->type] : c->k->gemv[t->type], &p, is_gemm ? &p.many : &p.m, 0, n_step};
    const char *which = is_gemm ? "gemm" : "gemv";
    for (bool panels = false;; panels = true) {
        double seconds = check_time(run_timed, &run);
        char what[64];
        snprintf(what, sizeof what, "%s%s n_in %d cols %d", which, is_cached ? " cached" : "", n_in, n_cols);
        check_report(c, what, seconds, (double)run.m->row_bytes * n_step, (double)n_in * n_step * n_cols);
        if (panels || !problem_put_panels(c, &p)) break;
        const ig_panels *k = &c->k->panels[t->type];
        run = (timed){is_gemm ? k->gemm : k->gemv, &p, is_gemm ? &p.panels_many : &p.panels_few, 0, n_step};
        which = "panels";
    }
    problem_deinit(&p);
}

static void bench_type(check *c, const type_case *t) {
    static const int sizes[] = {896, 1536, 8960};
    int block = ig_type_get(t->type)->block;
    for (size_t i = 0; i < IG_COUNT(sizes); i++) {
        int n_in = sizes[i] / block * block;
        bench_product(c, t, n_in, 1, true);
        bench_product(c, t, n_in, 1, false);
        bench_product(c, t, n_in, 4, true);
        bench_product(c, t, n_in, 16, false);
        bench_product(c, t, n_in, 512, false);
    }
}

void check_matmul(check *c) {
    if (check_begin(c, "fixed_columns") && !c->is_bench) check_fixed_columns(c);
    for (size_t i = 0; i < IG_COUNT(cases); i++) {
        char name[32];
        snprintf(name, sizeof name, "matmul_%s", ig_type_get(cases[i].type)->name);
        if (!check_begin(c, name)) continue;
        if (c->is_bench) {
            bench_type(c, &cases[i]);
            continue;
        }
        check_golden(c, &cases[i]);
        check_parts(c, &cases[i]);
        check_shapes(c, &cases[i]);
        check_invariance(c, &cases[i]);
        check_panels(c, &cases[i]);
        check_not_finite(c, &cases[i]);
    }
}
