/* SPDX-License-Identifier: Apache-2.0 */
#include "matmul_problem.h"

#include <math.h>
#include <string.h>

#include "base/half.h"
#include "kernel/quant.h"

static void put_u16(uint8_t *p, uint16_t v) { memcpy(p, &v, sizeof v); }

/* The scale of IQ1_M, in the upper halves of four bytes. */
static void put_nibbles(uint8_t *p, uint16_t v) {
    for (int i = 0; i < 4; i++) p[2 * i] = (uint8_t)((p[2 * i] & 15) | (v >> 4 * i & 15) << 4);
}

static uint16_t get_nibbles(const uint8_t *p) {
    return (uint16_t)(p[0] >> 4 | p[2] >> 4 << 4 | p[4] >> 4 << 8 | p[6] >> 4 << 12);
}

/* Four scales of NVFP4, a power of two and three a little larger. */
static void put_scales(uint8_t *p, double v) {
    int exponent = v != 0 ? ilogb(v) + 8 : 0;
    exponent = exponent < 0 ? 0 : exponent > 15 ? 15 : exponent;
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(8 * exponent + i);
}

void put_scale(const type_case *t, uint8_t *p, int i, double v) {
    if (t->type == IG_TYPE_MXFP4)
        p[0] = (uint8_t)(128 + ilogb(v));
    else if (t->type == IG_TYPE_NVFP4)
        put_scales(p, v);
    else if (t->type == IG_TYPE_IQ1_M)
        put_nibbles(p + t->scale[i], ig_f32_f16((float)v));
    else
        put_u16(p + t->scale[i], ig_f32_f16((float)v));
}

double get_scale(const type_case *t, const uint8_t *p, int i) {
    uint16_t h;
    if (t->type == IG_TYPE_MXFP4) return ldexp(1, p[0] - 128);
    if (t->type == IG_TYPE_NVFP4) return (double)ig_nvfp4_scale(p[3]);
    memcpy(&h, p + t->scale[i], sizeof h);
    if (t->type == IG_TYPE_IQ1_M) h = get_nibbles(p + t->scale[i]);
    return (double)ig_f16_f32(h);
}

/* Every code but NaN; the largest, 0, or the subnormal ones. */
static void put_f8(check *c, uint8_t *w, weight_shape shape) {
    uint8_t any = (uint8_t)ig_random_u64(&c->rng);
    if ((any & IG_F8_NAN) == IG_F8_NAN) any ^= 1;
    *w = shape == WEIGHT_ALL_ONES ? 0x7e : shape == WEIGHT_ALL_ZEROS ? 0 : shape == WEIGHT_TINY ? any & 0x87 : any;
}

/* Blocks of 3 rows and 128 columns, in the middle of which the first row stands, or of a row, or the whole. */
static void put_scales_of_blocks(check *c, problem *p) {
    static const int heights[] = {3, 1, 1 << 20};
    int kind = check_int(c, 0, 2);
    ig_block_scales b = {.first = kind == 2 ? 0 : 2, .n_rows = heights[kind], .n_cols = kind ? p->n_in : 128};
    b.n_across = (p->n_in + b.n_cols - 1) / b.n_cols;
    size_t n = (size_t)((p->n_out + b.first + b.n_rows - 1) / b.n_rows) * (size_t)b.n_across;
    p->scales = check_buffer(n * sizeof *p->scales, 4);
    for (size_t i = 0; i < n; i++) p->scales[i] = (float)check_normal(c) * 1e-3f;
    b.s = p->scales;
    p->m.scales = b;
}

static void fill_floats(check *c, ig_type type, uint8_t *w, size_t n, weight_shape shape) {
    for (size_t i = 0; i < n; i++) {
        float v = (float)check_normal(c) * 0.05f;
        if (shape == WEIGHT_ALL_ONES) v = 60000;
        if (shape == WEIGHT_ALL_ZEROS) v = 0;
        if (shape == WEIGHT_TINY) v *= 1e-5f;
        if (type == IG_TYPE_F32)
            memcpy(w + 4 * i, &v, 4);
        else if (type == IG_TYPE_F8_E4M3)
            put_f8(c, w + i, shape);
        else
            put_u16(w + 2 * i, type == IG_TYPE_F16 ? ig_f32_f16(v) : ig_f32_bf16(v));
    }
}

void fill_weights(check *c, const type_case *t, uint8_t *w, size_t bytes, weight_shape shape) {
    const ig_type_info *info = ig_type_get(t->type);
    if (info->block == 1) {
        fill_floats(c, t->type, w, bytes / (size_t)info->block_bytes, shape);
        return;
    }
    for (size_t i = 0; i < bytes; i++)
        w[i] = shape == WEIGHT_ALL_ONES ? 0xff : shape == WEIGHT_ALL_ZEROS ? 0 : (uint8_t)ig_random_u64(&c->rng);
    for (size_t at = 0; at < bytes; at += (size_t)info->block_bytes)
        for (int i = 0; i < 2 && t->scale[i] >= 0; i++) {
            double v = shape == WEIGHT_TINY ? 1e-6 * check_normal(c) : 0.01 * check_normal(c);
            put_scale(t, w + at, i, v);
        }
}

void round_column(double *dst, const float *x, int n, ig_act form) {
    for (int i = 0; i < n; i++) dst[i] = (double)x[i];
    if (form != IG_ACT_Q8) return;
    for (int g = 0; g < n; g += 32) {
        float max = 0;
        for (int i = g; i < g + 32; i++) max = fmaxf(max, fabsf(x[i]));
        float inverse = max > 0 ? 127.0f / max : 0, d = max / 127.0f;
        for (int i = g; i < g + 32; i++) dst[i] = (double)d * (double)rintf(x[i] * inverse);
    }
}

void problem_init(check *c, problem *p, const type_case *t, int n_in, int n_out, int n_cols) {
    *p = (problem){.info = ig_type_get(t->type), .t = t, .form = ig_kernels_act(t->type)};
    p->n_in = n_in;
    p->n_out = n_out;
    p->n_cols = n_cols;
    size_t row_bytes = ig_type_row_bytes(p->info, (size_t)n_in);
    p->w_bytes = row_bytes * (size_t)n_out;
    p->w = check_fenced(p->w_bytes);
    p->x = check_buffer((size_t)n_in * (size_t)n_cols * sizeof(float), 0);
    p->act_stride = c->k->act_bytes(p->form, n_in);
    p->act_bytes = p->act_stride * (size_t)n_cols;
    p->act = check_buffer(p->act_bytes, 0);
    p->out_stride = (size_t)n_out + 3;
    p->out = check_buffer(p->out_stride * (size_t)n_cols * sizeof(float), 4);
    p->scratch = check_buffer(c->k->scratch_bytes(n_in), 0);
    p->m = (ig_matmul){p->w, row_bytes, n_in, p->act, p->act_stride, n_cols, p->out, p->out_stride, p->scratch, {0}};
    if (t->type == IG_TYPE_F8_E4M3 && check_int(c, 0, 4)) put_scales_of_blocks(c, p);
    p->many = p->m;
    ig_act many = c->k->many_act[t->type];
    if (many == p->form) return;
    p->many.act_stride = c->k->act_bytes(many, n_in);
    p->many.act = p->many_act = check_buffer(p->many.act_stride * (size_t)n_cols, 0);
}

void problem_prepare(check *c, problem *p) {
    for (int i = 0; i < p->n_cols; i++) {
        const float *x = p->x + (size_t)i * (size_t)p->n_in;
        c->k->act_prepare[p->form](p->act + (size_t)i * p->act_stride, x, p->n_in);
        if (!p->many_act) continue;
        c->k->act_prepare[c->k->many_act[p->t->type]](p->many_act + (size_t)i * p->many.act_stride, x, p->n_in);
        check_that(c, check_guards(p->many_act), "a column of %d for many: wrote outside", p->n_in);
    }
}

bool problem_put_panels(check *c, problem *p) {
    const ig_panels *k = &c->k->panels[p->t->type];
    if (!k->put) return false;
    p->panel_bytes = k->bytes(p->n_in);
    size_t n_panels = ((size_t)p->n_out + IG_PANEL_ROWS - 1) / IG_PANEL_ROWS;
    p->panels = check_buffer(n_panels * p->panel_bytes, 0);
    for (size_t i = 0; i < n_panels; i++) {
        int r = (int)i * IG_PANEL_ROWS, n_rows = p->n_out - r < IG_PANEL_ROWS ? p->n_out - r : IG_PANEL_ROWS;
        k->put(p->panels + i * p->panel_bytes, p->w + (size_t)r * p->m.row_bytes, p->m.row_bytes, n_rows, p->n_in);
    }
    p->panels_few = p->m;
    p->panels_many = p->many;
    p->panels_few.w = p->panels_many.w = p->panels;
    p->panels_few.row_bytes = p->panels_many.row_bytes = p->panel_bytes / IG_PANEL_ROWS;
    return check_that(c, p->panel_bytes % (p->t->type == IG_TYPE_MXFP4 ? 16 : 32) == 0 && check_guards(p->panels),
                      "panels of %d: size", p->n_in);
}

void problem_deinit(problem *p) {
    check_buffer_free(p->panels);
    check_fenced_free(p->w, p->w_bytes);
    check_buffer_free(p->x);
    check_buffer_free(p->act);
    check_buffer_free(p->many_act);
    check_buffer_free(p->out);
    check_buffer_free(p->scratch);
    check_buffer_free(p->scales);
}
