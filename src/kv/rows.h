/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading and writing rows: a key and a value of a slot, whatever they are kept in.
 *
 * Packed keys of models whose keys have a bias (Qwen2, OPT) are kept relative to a frame: the bias of a few pairs of
 * channels is far larger than all else in a key, and a packed group would get a step to match. Where RoPE turns such a
 * pair slowly, its bias hardly changes over thousands of positions: it is subtracted. That adds the same to all scores
 * of a query, which softmax ignores, so nothing has to be put back (with a sink, which is a score too, nothing is
 * subtracted). What is left of the bias, all of it where RoPE is fast, is divided away, and queries are multiplied
 * instead. Factors are powers of two: apart from the codes nothing is rounded. Only attention sees keys so: policies
 * are shown them as they are.
 */
#ifndef IG_KV_ROWS_H
#define IG_KV_ROWS_H

#include "device/device.h"
#include "kernel/kernel.h"

/* Of a layer: kept = (key - origin) / scale, after RoPE. */
typedef struct ig_key_frame {
    float *origin; /* [n_kv_heads][head_dim] */
    float *scale;  /* [n_heads][head_dim], powers of two from 1 on, the same for all query heads of a KV head */
} ig_key_frame;

/* How the rows of a store are kept. */
typedef struct ig_kv_codec {
    const ig_kernels *kernels;
    const ig_key_frame *frames; /* [n_layers] of packed keys; NULL: they are kept as they are */
    ig_layer_heads heads;
    ig_kv_type type;
} ig_kv_codec;

/* What a layer's keys are relative to; NULL: nothing. */
static inline const ig_key_frame *ig_kv_frame(const ig_kv_codec *c, int layer) {
    return c->type == IG_KV_F16 || !c->frames ? NULL : &c->frames[layer];
}

/* Where a key and a value lie: codes or 16-bit floats, and of packed ones the lines. */
typedef struct ig_kv_row {
    uint8_t *key, *value;
    ig_kv_line *lines; /* [2][ig_kv_row_lines], the key's first; NULL: not packed */
} ig_kv_row;

/* A key and a value as 16-bit floats: those of the row itself, or as they were unpacked into `room`. */
typedef struct ig_kv_plain {
    const uint16_t *key, *value; /* [head_dim] */
    uint16_t room[2][IG_KV_DIMS];
} ig_kv_plain;

/* The row of a slot of a view. */
ig_kv_row ig_kv_view_at(const ig_kv_view *view, int slot);
/* key, value [head_dim]: post-RoPE, of a layer's KV head. */
void ig_kv_write(const ig_kv_codec *c, const ig_kv_row *row, int layer, int head, const float *key, const float *value);
void ig_kv_read(ig_kv_plain *out, const ig_kv_codec *c, const ig_kv_row *row, int layer, int head);
/* What the rows of a KV head keep of the model's own key of their token (ig_index_shape), [index.dim]: head's share of
 * it, half of which is behind its key and half behind its value, unless these are one row. Read: the share, [index.dim
 * / n_kv_heads] 16-bit floats. */
void ig_kv_write_index(const ig_kv_codec *c, const ig_kv_row *row, int head, const float *key);
void ig_kv_read_index(uint16_t share[IG_INDEX_DIMS], const ig_kv_codec *c, const ig_kv_row *row);

/* out [head_dim] = what is packed of a key of that KV head. */
void ig_key_frame_enter(float *out, const ig_key_frame *f, const ig_head_shape *s, int kv_head, const float *key);
/* key [head_dim], 16-bit floats as they were unpacked, as it is. */
void ig_key_frame_leave(uint16_t *key, const ig_key_frame *f, const ig_head_shape *s, int kv_head);

#endif
