/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks of K and V on their way to the GPU's memory. The host has listed which (device/residency.h); one kernel copies
 * them and notes where they lie. Small copies by the driver reach a tenth of the bus's rate, loads of a kernel all of
 * it: a warp takes a block, all of its loads under way at once, and a few blocks of threads keep the bus busy without
 * taking multiprocessors from what runs beside.
 */
#include "device/cuda/kernels.cuh"

enum {
    WARPS = 4,
    MOST_BLOCKS = 12, /* of threads: 192 KiB under way */
    LOADS = 8         /* of 16 bytes, of each lane at a time: 4 KiB of a warp */
};

typedef struct filling {
    const ig_copy_order *orders; /* [n] the host's */
    int n;
    uint8_t *copies;
    const uint8_t **where;
    size_t copy_bytes, block_bytes, line_bytes;
    const uint8_t *lines;
} filling;

/* n bytes, rounded up to 16, by a warp. */
static __device__ __forceinline__ void copy_bytes(uint8_t *to, const uint8_t *from, size_t n, int lane) {
    for (size_t first = 16 * (size_t)lane; first < n; first += 16 * IG_WARP * LOADS) {
        uint4 x[LOADS];
        for (int i = 0; i < LOADS; i++)
            if (first + 16 * IG_WARP * (size_t)i < n) x[i] = *(const uint4 *)(from + first + 16 * IG_WARP * (size_t)i);
        for (int i = 0; i < LOADS; i++)
            if (first + 16 * IG_WARP * (size_t)i < n) *(uint4 *)(to + first + 16 * IG_WARP * (size_t)i) = x[i];
    }
}

static __global__ void fill(filling f) {
    int lane = (int)threadIdx.x, step = (int)(gridDim.x * WARPS);
    for (int i = (int)(blockIdx.x * WARPS + threadIdx.y); i < f.n; i += step) {
        ig_copy_order o = f.orders[i];
        const uint8_t *at = o.from;
        if (o.copy) {
            uint8_t *to = f.copies + (size_t)(o.copy - 1) * f.copy_bytes;
            copy_bytes(to, o.from, f.block_bytes, lane);
            if (f.line_bytes)
                copy_bytes(to + f.block_bytes, f.lines + (size_t)o.block * f.line_bytes, f.line_bytes, lane);
            at = to + 1; /* ig_copy_address() */
        }
        if (lane == 0) f.where[o.block] = at;
    }
}

void ig_cuda_fill(cudaStream_t s, const ig_residency *r, const ig_copy_order *orders, int n) {
    filling f = {orders,
                 n,
                 r->copies,
                 r->where,
                 r->copy_bytes,
                 r->shape.block_bytes,
                 r->shape.line_bytes,
                 (const uint8_t *)r->shape.lines};
    int blocks = (n + WARPS - 1) / WARPS;
    IG_LAUNCH(fill, dim3((unsigned)(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS)), dim3(IG_WARP, WARPS), 0, s, f);
}
