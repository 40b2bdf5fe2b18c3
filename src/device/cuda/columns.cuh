/* SPDX-License-Identifier: Apache-2.0
 *
 * Entries' scores by some columns of their keys (ig_scan_columns), as policy/osdi24.c has it: 16-bit floats against
 * queries that were rounded to such before they were mapped. For the kernels of sketch.cu, in the place of what they do
 * with sketches.
 */
#ifndef IG_DEVICE_CUDA_COLUMNS_H
#define IG_DEVICE_CUDA_COLUMNS_H

#include "device/cuda/scan.cuh"

#include <math.h>

/* Entries that have columns. */
static __device__ __forceinline__ int ig_column_entries(const ig_scan_list *x) { return x->n - (x->k ? 1 : 0); }

/* A lane's share of number r of the query. */
static __device__ __forceinline__ float ig_column_share(const ig_scan_list *x, int r, int lane) {
    const ig_scan_columns *c = &x->columns;
    if (r >= c->n) return 0;
    int from = c->index ? c->index[r] : r, d = x->head_dim;
    if (!x->query_map) return lane == 0 ? ig_half(ig_to_half(x->q[from])) : 0;
    const float *row = x->query_map + (size_t)from * (size_t)d;
    float sum = 0;
    for (int i = lane; i < d; i += IG_WARP) sum = fmaf(row[i], ig_half(ig_to_half(x->q[i])), sum);
    return sum;
}

/* The query, [rank] numbers, 0 behind those that there are. A warp has four of them at a time. */
static __device__ __forceinline__ void ig_column_query(float *out, const ig_scan_list *x) {
    int lane = (int)threadIdx.x % IG_WARP, n_warps = (int)blockDim.x / IG_WARP;
    for (int r = (int)threadIdx.x / IG_WARP * IG_SUMS; r < x->rank; r += n_warps * IG_SUMS) {
        float sums[IG_SUMS];
        IG_UNROLL for (int k = 0; k < IG_SUMS; k++) sums[k] = ig_column_share(x, r + k, lane);
        float sum = ig_warp_sums(sums, lane);
        if (lane * IG_SUMS % IG_WARP == 0) out[r + lane * IG_SUMS / IG_WARP] = sum;
    }
}

/* Eight numbers of a query and of an entry, onto a sum. */
static __device__ __forceinline__ float ig_column_eight(float sum, const float *q, uint4 eight) {
    const unsigned two[] = {eight.x, eight.y, eight.z, eight.w};
    IG_UNROLL for (int k = 0; k < 4; k++) {
        sum = fmaf(q[2 * k], ig_half((uint16_t)(two[k] & 0xffff)), sum);
        sum = fmaf(q[2 * k + 1], ig_half((uint16_t)(two[k] >> 16)), sum);
    }
    return sum;
}

/* An entry's score; a few loads are under way at once. Infinities and NaN, which broken models make, become numbers. */
static __device__ __forceinline__ float ig_column_score(const ig_scan_list *x, const float *q, int slot) {
    enum { AHEAD = 8 };
    const float limit = 1e30f;
    const uint8_t *unit = x->keys.dev + ig_cuda_unit_number(x, slot / IG_SKETCH_TOKENS) * x->keys.bytes;
    const uint4 *row = (const uint4 *)(const void *)unit + slot % IG_SKETCH_TOKENS * x->rank / 8;
    float sum = 0;
    IG_LOOP for (int first = 0; first < x->rank / 8; first += AHEAD) {
        uint4 eight[AHEAD];
        IG_UNROLL for (int i = 0; i < AHEAD; i++) if (first + i < x->rank / 8) eight[i] = row[first + i];
        IG_UNROLL for (int i = 0; i < AHEAD; i++) if (first + i < x->rank / 8) sum =
            ig_column_eight(sum, q + 8 * (first + i), eight[i]);
    }
    sum *= x->scale;
    sum = sum > -limit ? sum : -limit;
    return sum < limit ? sum : limit;
}

/* Scores of a part of the entries, the largest and the smallest of which are left in top and total. `q` is shared
 * memory [rank]; of the scores those of the part. */
static __device__ __forceinline__ void ig_score_columns(const ig_scan_list *x, const ig_cuda_scratch *s, float *q,
                                                        int part) {
    int begin = part * IG_SCAN_PART, n = ig_column_entries(x) - begin, thread = (int)threadIdx.x;
    float *scores = s->exps + begin;
    if (n > IG_SCAN_PART) n = IG_SCAN_PART;
    for (int i = thread; i < x->rank; i += (int)blockDim.x) q[i] = s->queries[i];
    __syncthreads();
    for (int i = thread; i < n; i += (int)blockDim.x) scores[i] = ig_column_score(x, q, begin + i);
    __syncthreads();
    if (thread >= IG_WARP) return;
    float high = -INFINITY, low = -INFINITY; /* low: of what is below zero */
    for (int i = thread; i < n; i += IG_WARP) high = fmaxf(high, scores[i]), low = fmaxf(low, -scores[i]);
    high = ig_warp_max(high), low = ig_warp_max(low);
    if (thread == 0) s->top[part] = high, s->total[part] = -low;
}

#endif
