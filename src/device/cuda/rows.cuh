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

/* What a query head's sink adds to the sum of its exponentials, relative to m. */
static __device__ __forceinline__ float ig_cuda_sink(const ig_attention *a, int head, float m) {
    return a->sink_scores ? expf(a->sink_scores[head] - m) : 0;
}

/* Rows of a view. */
static __device__ __forceinline__ int ig_cuda_rows(const ig_kv_view *v) { return v->n_listed ? *v->n_listed : v->n; }

/* Number of the block of a slot. */
static __device__ __forceinline__ size_t ig_cuda_block(const ig_kv_view *v, int slot) {
    int block = slot >> v->shift;
    return v->number ? v->number[block] : (size_t)block;
}

/* Where the host has a block of the sequence. */
static __device__ __forceinline__ const uint8_t *ig_cuda_home(const ig_kv_view *v, int block, size_t number) {
    return v->blocks[v->is_staged ? (size_t)(block - v->block_base) : number];
}

/* The row of a slot in the block that lies at `at`. The lines of one that is a copy lie behind it, as bit 0 of its
 * address says (ig_resident_books.where). */
static __device__ __forceinline__ ig_cuda_row ig_cuda_row_in(const ig_kv_view *v, const uint8_t *at, size_t number,
                                                             int slot) {
    size_t within = (size_t)(slot & ((1 << v->shift) - 1));
    const ig_kv_line *lines = v->lines ? v->lines + (number << v->shift) * v->slot_lines : NULL;
    if ((size_t)at & 1) {
        at--;
        lines = (const ig_kv_line *)(at + (v->row_bytes << v->shift) + v->v_offset);
    }
    ig_cuda_row row = {at + within * v->row_bytes + v->at, lines ? lines + within * v->slot_lines + v->lines_at : NULL};
    return row;
}

/* Row number i of a view. */
static __device__ __forceinline__ ig_cuda_row ig_cuda_row_at(const ig_kv_view *v, int i) {
    int slot = v->index ? v->index[i] : v->first + i;
    size_t number = ig_cuda_block(v, slot);
    const uint8_t *at = v->where ? v->where[number] : ig_cuda_home(v, slot >> v->shift, number);
    return ig_cuda_row_in(v, at, number, slot);
}

/* Code i of a packed row of d. */
static __device__ __forceinline__ int ig_cuda_code(int type, const uint8_t *row, int i, int d) {
    int bits = 16 >> type, group = i / IG_KV_GROUP, j = i % IG_KV_GROUP, left = d - group * IG_KV_GROUP;
    int bytes = (left < IG_KV_GROUP ? left : IG_KV_GROUP) * bits / 8;
    int byte = bits == 1 ? j / 8 : j % bytes, part = bits == 1 ? j % 8 : j / bytes;
    return row[group * (IG_KV_GROUP * bits / 8) + byte] >> part * bits & ((1 << bits) - 1);
}

/* Number i of a row of d in 16 bits, as kv_unpack of kernel/kernel.h has it. */
static __device__ __forceinline__ uint16_t ig_cuda_half(int type, const uint8_t *row, const ig_kv_line *lines, int i,
                                                        int d) {
    if (type == IG_KV_F16) return ((const uint16_t *)row)[i];
    const ig_kv_line *line = &lines[i / IG_KV_GROUP];
    return ig_to_half(fmaf(ig_half(line->step), (float)ig_cuda_code(type, row, i, d), ig_half(line->min)));
}

/* Eight numbers of a row, [i, i + 8) with i a multiple of 8, on their way: as they are loaded, which is all that is
 * done before others are loaded too, and in 16 bits. */
enum { IG_CUDA_EIGHT = 8 };
typedef struct ig_cuda_eight {
    uint4 x; /* 16-bit floats; or codes, a byte each, in the first two words */
    ig_kv_line line;
    int shift, mask; /* where a code is in its byte */
} ig_cuda_eight;

template <bool is_f16>
static __device__ __forceinline__ ig_cuda_eight ig_cuda_load(int type, const uint8_t *row, const ig_kv_line *lines,
                                                             int i, int d) {
    if (is_f16) return ig_cuda_eight{((const uint4 *)row)[i / IG_CUDA_EIGHT], {0, 0}, 0, 0};
    int bits = 16 >> type, group = i / IG_KV_GROUP, j = i % IG_KV_GROUP, bytes = IG_KV_GROUP * bits / 8;
    ig_cuda_eight out = {{0, 0, 0, 0}, lines[group], 0, (1 << bits) - 1};
    if (bits > 1 && d % IG_KV_GROUP == 0) {
        const uint32_t *codes = (const uint32_t *)(row + group * bytes + j % bytes);
        out.x.x = codes[0], out.x.y = codes[1], out.shift = j / bytes * bits;
        return out;
    }
    IG_LOOP for (int k = IG_CUDA_EIGHT - 1; k >= 0; k--) {
        out.x.y = out.x.y << 8 | out.x.x >> 24;
        out.x.x = out.x.x << 8 | (uint32_t)ig_cuda_code(type, row, i + k, d);
    }
    return out;
}

/* Number j of them. */
template <bool is_f16>
static __device__ __forceinline__ uint16_t ig_cuda_half_of(const ig_cuda_eight *e, int j) {
    const uint32_t word[4] = {e->x.x, e->x.y, e->x.z, e->x.w};
    if (is_f16) return (uint16_t)(word[j / 2] >> 16 * (j % 2));
    int code = (int)(word[j / 4] >> (8 * (j % 4) + e->shift)) & e->mask;
    return ig_to_half(fmaf(ig_half(e->line.step), (float)code, ig_half(e->line.min)));
}

#endif
