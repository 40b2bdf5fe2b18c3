/* SPDX-License-Identifier: Apache-2.0
 *
 * The KV store of one sequence: owns blocks and block tables and moves bytes; it never decides which entry
 * matters (that is the policy's part).
 *
 * A block is one 4 KiB frame: K, then V, of consecutive tokens of one KV head of one layer, as 16-bit floats:
 * 2^shift tokens, 8 at head dimension 128, 16 at 64. There is a block table per layer and KV head.
 */
#ifndef IG_KV_STORE_H
#define IG_KV_STORE_H

#include "device/device.h"
#include "kv/pool.h"

typedef struct ig_kv_shape {
    int n_layers, n_kv_heads, head_dim; /* head_dim: a multiple of 8, at most 512 */
    int n_ctx;                          /* most tokens */
} ig_kv_shape;

typedef struct ig_kv ig_kv;

/* Bytes that a full store of this shape takes; false if they cannot be counted. */
bool ig_kv_plan(uint64_t *bytes, const ig_kv_shape *shape);
ig_status ig_kv_open(ig_kv **out, const ig_kv_shape *shape, ig_error *err);
void ig_kv_close(ig_kv *kv);

/* Makes room for tokens [0, n) in every layer and head; cuts back if it holds more. Allocates nothing but frames of the
 * pool, which cannot run out for n <= n_ctx. */
void ig_kv_resize(ig_kv *kv, int n);
int ig_kv_length(const ig_kv *kv);

/* Where the K and V (v_offset bytes on) of a token lie, head_dim 16-bit floats each, to be written once. */
uint16_t *ig_kv_key(ig_kv *kv, int layer, int head, int token);
uint16_t *ig_kv_value(ig_kv *kv, int layer, int head, int token);

/* The rows that attention will read: tokens index[0..n), ascending, or (index == NULL) first .. first + n - 1.
 * With every block in RAM this only describes them. The view lasts until the next resize. */
ig_kv_view ig_kv_fetch(const ig_kv *kv, int layer, int head, const int32_t *index, int first, int n);

/* Bytes of the blocks taken, and of the tables. */
uint64_t ig_kv_bytes(const ig_kv *kv);

#endif
