/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensor cores: a warp's product of 16-bit floats with sums of 32 bits, sum [16][8] += a [16][16] b [16][8]. Which
 * numbers a lane has is mma.m16n8k16's (PTX ISA), of a and b two in a word, the first in the lower bits. With
 * i = lane / 4 and k = 2 (lane % 4) a lane's
 *
 *     sum is [i][k], [i][k + 1], [i + 8][k], [i + 8][k + 1]
 *     a   is [i][k and k + 1], [i + 8][the same], [i][k + 8 and k + 9], [i + 8][the same]
 *     b   is [k and k + 1][i], [k + 8 and k + 9][i]
 *
 * A sum is the same whichever row and column it stands in. The order within it is the GPU's.
 */
#ifndef IG_DEVICE_CUDA_MMA_H
#define IG_DEVICE_CUDA_MMA_H

#include "device/cuda/cuda.cuh"

enum { IG_MMA_ROWS = 16, IG_MMA_COLS = 8, IG_MMA_DEPTH = 16 };

static __device__ __forceinline__ void ig_mma(float *sum, const uint32_t *a, const uint32_t *b) {
#ifdef IG_ON_CPU
    cuda_on_cpu_mma(sum, a, b);
#elif __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
        "%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    for (int i = 0; i < 2; i++)
        asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
            : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
            : "r"(a[2 * i]), "r"(a[2 * i + 1]), "r"(b[i]));
#endif
}

/* Four matrices [8][8] of halves in shared memory, row i of matrix j, 16 bytes, at what lane 8 j + i calls with: x[j]
 * is [lane / 4][k and k + 1] of it. So four that are the quarters of a become a: the upper left one, the lower left
 * one, and those to their right. And b of two products, whose columns are rows: of each the left one and the one to its
 * right. */
static __device__ __forceinline__ void ig_mma_load(uint32_t *x, const uint16_t *row) {
#ifdef IG_ON_CPU
    cuda_on_cpu_load_matrices(x, row, false);
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row)));
#endif
}

/* The same of matrices that are turned over, x[j] being [k and k + 1][lane / 4]: b of two products, whose rows are
 * rows, from the quarters as those of a. */
static __device__ __forceinline__ void ig_mma_load_down(uint32_t *x, const uint16_t *row) {
#ifdef IG_ON_CPU
    cuda_on_cpu_load_matrices(x, row, true);
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row)));
#endif
}

/* 16 bytes to shared memory, which other threads go on without: they are there when the thread has awaited them and
 * then met the others at a barrier. What was sent up to an end is a group; GPUs below 8.0 bring it at once. */
static __device__ __forceinline__ void ig_send16(void *to, const void *from) {
#ifdef IG_ON_CPU
    cuda_on_cpu_send(to, from);
#elif __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from));
#else
    *(uint4 *)to = *(const uint4 *)from;
#endif
}

static __device__ __forceinline__ void ig_send_end(void) {
#ifdef IG_ON_CPU
    cuda_on_cpu_send_end();
#elif __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;");
#endif
}

/* All groups but the last n. */
template <int n>
static __device__ __forceinline__ void ig_await_sent(void) {
#ifdef IG_ON_CPU
    cuda_on_cpu_await_sent(n);
#elif __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory");
#endif
}

/* What brings numbers, given the bits of the largest magnitude, to below 2^15: a power of two, that of 2^14 .. 2^15 but
 * for those that hardly differ from 0. Not finite ones stay so. */
static __device__ __forceinline__ float ig_mma_factor(uint32_t most) {
    int power = (int)(most >> 23) - 127, least = -100;
    return __uint_as_float((uint32_t)(127 + 14 - (power > least ? power : least)) << 23);
}

static __device__ __forceinline__ uint32_t ig_pack(uint16_t low, uint16_t high) { return low | (uint32_t)high << 16; }

#endif
