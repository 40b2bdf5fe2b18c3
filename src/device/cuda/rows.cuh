/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of keys and values as kernels read them, in place: ig_kv_view of device/device.h and base/kv_type.h.
 */
#ifndef IG_DEVICE_CUDA_ROWS_H
#define IG_DEVICE_CUDA_ROWS_H

#include "device/cuda/kernels.cuh"

/* A key and, v_offset bytes on, a value; of packed rows their lines, the value's n_lines behind the key's. */
typedef struct ig_cuda_row {
    const uint8_t *key;
    const ig_kv_line *lines;
} ig_cuda_row;

static __device__ __forceinline__ int ig_cuda_lines(int type, int d) {
    return type == IG_KV_F16 ? 0 : (d + IG_KV_GROUP - 1) / IG_KV_GROUP;
}

/* Rows of a view. */
static __device__ __forceinline__ int ig_cuda_rows(const ig_kv_view *v) { return v->n_listed ? *v->n_listed : v->n; }

/* Row number i of a view. The lines of a block that is a copy lie behind it, as bit 0 of its address says
 * (ig_copy_address()). */
static __device__ __forceinline__ ig_cuda_row ig_cuda_row_at(const ig_kv_view *v, int i, int d) {
    int slot = v->index ? v->index[i] : v->first + i, within = slot & ((1 << v->shift) - 1);
    size_t number = v->number ? v->number[slot >> v->shift] : (size_t)(slot >> v->shift);
    size_t block = v->is_staged ? (size_t)((slot >> v->shift) - v->block_base) : number;
    const uint8_t *at = v->blocks[block];
    size_t each = 2 * (size_t)ig_cuda_lines(v->type, d);
    const ig_kv_line *lines = v->lines ? v->lines + (number << v->shift) * each : NULL;
    if ((size_t)at & 1) {
        at--;
        lines = (const ig_kv_line *)(at + 2 * v->v_offset);
    }
    ig_cuda_row row = {at + (size_t)within * v->row_bytes, lines ? lines + (size_t)within * each : NULL};
    return row;
}

/* Number i of a row of d, rounded to 16 bits, as kv_unpack of kernel/kernel.h has it. */
static __device__ __forceinline__ float ig_cuda_number(int type, const uint8_t *row, const ig_kv_line *lines, int i,
                                                       int d) {
    if (type == IG_KV_F16) return ig_half(((const uint16_t *)row)[i]);
    int bits = 16 >> type, group = i / IG_KV_GROUP, j = i % IG_KV_GROUP, left = d - group * IG_KV_GROUP;
    int bytes = (left < IG_KV_GROUP ? left : IG_KV_GROUP) * bits / 8;
    int byte = bits == 1 ? j / 8 : j % bytes, part = bits == 1 ? j % 8 : j / bytes;
    int code = row[group * (IG_KV_GROUP * bits / 8) + byte] >> part * bits & ((1 << bits) - 1);
    return ig_half(ig_to_half(fmaf(ig_half(lines[group].step), (float)code, ig_half(lines[group].min))));
}

#endif
