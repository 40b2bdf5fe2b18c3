/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of keys and values: see rows.h.
 */
#include "kv/rows.h"

#include <string.h>

#include "base/half.h"

ig_kv_row ig_kv_view_at(const ig_kv_view *view, int slot) {
    uint8_t *key = (uint8_t *)(uintptr_t)ig_kv_view_row(view, slot);
    const ig_kv_line *lines = view->lines ? ig_kv_view_lines(view, slot) : NULL;
    return (ig_kv_row){key, key + view->v_offset, (ig_kv_line *)(uintptr_t)lines};
}

/* The scale of a KV head is that of the first of its query heads. */
static const float *scale_of(const ig_key_frame *f, const ig_head_shape *s, int kv_head) {
    return f->scale + (size_t)kv_head * (size_t)(s->n_heads / s->n_kv_heads) * (size_t)s->head_dim;
}

void ig_key_frame_enter(float *out, const ig_key_frame *f, const ig_head_shape *s, int kv_head, const float *key) {
    const float *origin = f->origin + (size_t)kv_head * (size_t)s->head_dim, *scale = scale_of(f, s, kv_head);
    for (int i = 0; i < s->head_dim; i++) out[i] = (key[i] - origin[i]) / scale[i];
}

void ig_key_frame_leave(uint16_t *key, const ig_key_frame *f, const ig_head_shape *s, int kv_head) {
    const float *origin = f->origin + (size_t)kv_head * (size_t)s->head_dim, *scale = scale_of(f, s, kv_head);
    for (int i = 0; i < s->head_dim; i++) key[i] = ig_f32_f16(ig_f16_f32(key[i]) * scale[i] + origin[i]);
}

void ig_kv_write(const ig_kv_codec *c, const ig_kv_row *row, int layer, int head, const float *key,
                 const float *value) {
    const ig_key_frame *frame = ig_kv_frame(c, layer);
    const ig_head_shape *heads = ig_heads_of(&c->heads, layer);
    int d = heads->head_dim;
    float framed[IG_KV_DIMS];
    if (frame) ig_key_frame_enter(framed, frame, heads, head, key);
    c->kernels->kv_pack[c->type](row->key, row->lines, frame ? framed : key, d);
    c->kernels->kv_pack[c->type](row->value, row->lines ? row->lines + ig_kv_row_lines(c->type, d) : NULL, value, d);
}

void ig_kv_read(ig_kv_plain *out, const ig_kv_codec *c, const ig_kv_row *row, int layer, int head) {
    const ig_key_frame *frame = ig_kv_frame(c, layer);
    const ig_head_shape *heads = ig_heads_of(&c->heads, layer);
    int d = heads->head_dim;
    out->key = (const uint16_t *)(const void *)row->key;
    out->value = (const uint16_t *)(const void *)row->value;
    if (c->type == IG_KV_F16) return;
    c->kernels->kv_unpack[c->type](out->room[0], &(ig_kv_packed){row->key, row->lines}, 1, d);
    c->kernels->kv_unpack[c->type](out->room[1], &(ig_kv_packed){row->value, row->lines + ig_kv_row_lines(c->type, d)},
                                   1, d);
    if (frame) ig_key_frame_leave(out->room[0], frame, heads, head);
    out->key = out->room[0];
    out->value = out->room[1];
}

/* Rows of a head that keep some of the model's own key, and how many numbers each. */
static int count_rows(const ig_kv_row *row) { return row->value == row->key ? 1 : 2; }

static int count_numbers(const ig_kv_codec *c, const ig_kv_row *row) {
    return ig_index_share(&c->heads.index, c->heads.all.n_kv_heads, count_rows(row));
}

/* Where row number i keeps them. */
static ig_kv_packed index_of(const ig_kv_codec *c, const ig_kv_row *row, int i) {
    int d = c->heads.all.head_dim;
    size_t lines = 2 * ig_kv_row_lines(c->type, d) + (size_t)i * ig_kv_row_lines(c->type, count_numbers(c, row));
    return (ig_kv_packed){(i ? row->value : row->key) + ig_kv_row_bytes(c->type, d),
                          row->lines ? row->lines + lines : NULL};
}

void ig_kv_write_index(const ig_kv_codec *c, const ig_kv_row *row, int head, const float *key) {
    int n_rows = count_rows(row), n = count_numbers(c, row);
    for (int i = 0; i < n_rows; i++) {
        ig_kv_packed at = index_of(c, row, i);
        c->kernels->kv_pack[c->type]((void *)(uintptr_t)at.codes, (ig_kv_line *)(uintptr_t)at.lines,
                                     key + (head * n_rows + i) * n, n);
    }
}

void ig_kv_read_index(uint16_t share[IG_INDEX_DIMS], const ig_kv_codec *c, const ig_kv_row *row) {
    int n_rows = count_rows(row), n = count_numbers(c, row);
    for (int i = 0; i < n_rows; i++) {
        ig_kv_packed at = index_of(c, row, i);
        if (c->type == IG_KV_F16)
            memcpy(share + i * n, at.codes, (size_t)n * sizeof *share);
        else
            c->kernels->kv_unpack[c->type](share + i * n, &at, 1, n);
    }
}
