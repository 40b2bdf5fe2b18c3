/* SPDX-License-Identifier: Apache-2.0
 *
 * Partial query weights: see partial_weights.h.
 */
#include "policy/partial_weights.h"

#include <string.h>

enum { FOLD = 256 }; /* columns of W_Q multiplied with A in one call: a multiple of every type's block */

static size_t n_heads(const ig_partial_weights *w) { return (size_t)w->n_layers * (size_t)w->shape->n_heads; }

/* The rows of a query head; heads follow each other without a gap, as in a matrix. */
static size_t head_bytes(const ig_partial_weights *w) {
    return (size_t)w->n_columns * (size_t)w->n_in * sizeof(uint16_t);
}

void ig_partial_weights_lay_out(ig_partial_weights *w, ig_space *space) {
    size_t heads = n_heads(w), layers = (size_t)w->n_layers;
    w->is_made = ig_space_host(space, heads * sizeof *w->is_made);
    w->is_copied = ig_space_host(space, layers * sizeof *w->is_copied);
    w->bias = ig_space_host(space, heads * (size_t)w->n_columns * sizeof *w->bias);
    w->narrow = ig_space_host(space, layers * sizeof *w->narrow);
    w->whole = ig_space_host(space, layers * sizeof *w->whole);
}

uint64_t ig_partial_weights_plan(const ig_partial_weights *w) { return (uint64_t)n_heads(w) * head_bytes(w); }

ig_status ig_partial_weights_open(ig_partial_weights *w, bool copied, ig_error *err) {
    static const char what[] = "partial query weights";
    ig_device *dev = w->shape->device;
    ig_status s = ig_head_table_open_on(&w->table, dev, what, n_heads(w), head_bytes(w), err);
    return s || !copied ? s : ig_head_table_open_copies(&w->table, dev, what, err);
}

void ig_partial_weights_close(ig_partial_weights *w) { ig_head_table_close(&w->table); }

/* out = column j of A times rows [head_dim][n]. */
static void combine(float *out, const ig_policy_shape *s, int layer, int head, int32_t j, const float *rows, int n) {
    size_t d = (size_t)s->head_dim;
    if (s->sketch)
        s->kernels->sum_rows(out, ig_sketch_skew(s->sketch, layer, head) + (size_t)j * d, rows, (size_t)n, s->head_dim,
                             n);
    else
        memcpy(out, rows + (size_t)j * (size_t)n, (size_t)n * sizeof *out);
}

void ig_partial_weights_make(ig_partial_weights *w, int layer, int l, int head, const int32_t *columns, void *scratch) {
    const ig_policy_shape *s = w->shape;
    const ig_matrix *whole = w->whole[l];
    if (!whole) return;
    size_t at = (size_t)l * (size_t)s->n_heads + (size_t)head, d = (size_t)s->head_dim;
    const uint8_t *rows = (const uint8_t *)whole->w + (size_t)head * d * whole->row_bytes;
    uint16_t *made = ig_head_table_at(&w->table, at);
    float *sum = scratch, *tile = sum + FOLD, *bias = w->bias + at * (size_t)w->n_columns;
    for (int begin = 0; begin < w->n_in; begin += FOLD) {
        int n = w->n_in - begin < FOLD ? w->n_in - begin : FOLD;
        size_t offset = whole->row_bytes * (size_t)begin / (size_t)w->n_in;
        for (size_t i = 0; i < d; i++) {
            float *row = tile + i * (size_t)n;
            s->kernels->dequantize[whole->type](row, rows + i * whole->row_bytes + offset, n);
            ig_scale_codes(row, &whole->block_scales, head * (int)d + (int)i, begin, n);
        }
        for (int c = 0; c < w->n_columns; c++) {
            combine(sum, s, layer, head, columns[c], tile, n);
            s->kernels->f32_to_f16(made + (size_t)c * (size_t)w->n_in + begin, sum, n);
        }
    }
    for (int c = 0; whole->bias && c < w->n_columns; c++)
        combine(bias + c, s, layer, head, columns[c], whole->bias + (size_t)head * d, 1);
    w->is_made[at] = true;
}

void ig_partial_weights_forget(ig_partial_weights *w, size_t head) { w->is_made[head] = false; }

/* Of a layer, to the device's own memory; NULL: it has none. */
static const void *bring(ig_partial_weights *w, int l) {
    ig_device *dev = w->table.copies_on;
    size_t bytes = (size_t)w->shape->n_heads * w->table.head_bytes, at = (size_t)l * bytes;
    if (!w->table.copies) return NULL;
    if (!w->is_copied[l]) dev->ops->copy(dev, w->table.copies + at, w->table.heads + at, bytes);
    w->is_copied[l] = true;
    return w->table.copies + at;
}

const ig_matrix *ig_partial_weights_matrix(ig_partial_weights *w, int l, const ig_matrix *whole) {
    int heads = w->shape->n_heads;
    size_t first = (size_t)l * (size_t)heads;
    if (w->n_in == 0) return NULL;
    w->whole[l] = whole;
    for (int h = 0; h < heads; h++)
        if (!w->is_made[first + (size_t)h]) {
            w->is_copied[l] = false;
            return NULL;
        }
    w->narrow[l] = (ig_matrix){.w = ig_head_table_at(&w->table, first),
                               .panels = bring(w, l),
                               .bias = whole->bias ? w->bias + first * (size_t)w->n_columns : NULL,
                               .scale = whole->scale,
                               .n_out = heads * w->n_columns,
                               .n_in = w->n_in,
                               .type = IG_TYPE_F16,
                               .row_bytes = (size_t)w->n_in * sizeof(uint16_t)};
    return &w->narrow[l];
}

uint64_t ig_partial_weights_bytes(const ig_partial_weights *w) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < n_heads(w); i++) bytes += w->is_made[i] ? head_bytes(w) : 0;
    return bytes;
}

size_t ig_partial_weights_scratch(const ig_policy_shape *shape) {
    return shape->n_query_in ? ((size_t)shape->head_dim + 1) * FOLD * sizeof(float) : 0;
}
