/* SPDX-License-Identifier: Apache-2.0
 *
 * CUDA, or what stands in for it in tests (tests/device/cuda_on_cpu.h), under the names that both know: kernels get
 * their shared memory, all of it dynamic, by IG_SHARED, and are known to the runtime as IG_KERNEL. Loops over what must
 * stay in registers are unrolled (IG_UNROLL), some are not to be (IG_LOOP). Sources look like C, and keep to what both
 * sides have. Warps are used whole; a thread leaves a kernel only together with its warp, and not before a barrier that
 * others wait at.
 */
#ifndef IG_DEVICE_CUDA_CUDA_H
#define IG_DEVICE_CUDA_CUDA_H

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#define IG_KERNEL(kernel) ((const void *)(kernel))
#define IG_SHARED(type, name) extern __shared__ type name[]
#define IG_UNROLL _Pragma("unroll")
#define IG_LOOP _Pragma("unroll 1")
#if CUDART_VERSION < 12030
#define cudaFuncGetName(name, kernel) ((void)(name))
#endif

/* Every kernel begins with this. In a graph a launch comes to the multiprocessors while the one before it ends
 * (programmatic dependent launch, from compute capability 9.0 on), and waits here until that has: the time from one to
 * the next would else be as long as many of them take. */
static __device__ __forceinline__ void ig_begin(void) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
    cudaTriggerProgrammaticLaunchCompletion();
#endif
}

/* Whether the code of a kernel, as that of all kernels, waits there. */
static inline bool ig_kernel_waits(const void *kernel) {
    cudaFuncAttributes a = {};
    return CUDART_VERSION >= 12030 && cudaFuncGetAttributes(&a, kernel) == cudaSuccess && a.ptxVersion >= 90 &&
           a.binaryVersion >= 90;
}

/* A launch follows another one so. */
static inline cudaError_t ig_graph_follow(cudaGraph_t g, cudaGraphNode_t before, cudaGraphNode_t node) {
#if CUDART_VERSION >= 12030
    cudaGraphEdgeData edge = {};
    edge.from_port = cudaGraphKernelNodePortProgrammatic;
    edge.type = cudaGraphDependencyTypeProgrammatic;
#if CUDART_VERSION >= 13000
    return cudaGraphAddDependencies(g, &before, &node, &edge, 1);
#else
    return cudaGraphAddDependencies_v2(g, &before, &node, &edge, 1);
#endif
#else
    return cudaGraphAddDependencies(g, &before, &node, 1);
#endif
}
#else
#include "cuda_on_cpu.h"
#define IG_UNROLL
#define IG_LOOP
#endif

enum { IG_WARP = 32 };

/* 2^x, with an error of 2^-22 of it; 0 instead of what has fewer than 24 bits. */
static __device__ __forceinline__ float ig_exp2(float x) {
#ifdef IG_ON_CPU
    return exp2f(x);
#else
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

static __device__ __forceinline__ float ig_half(uint16_t bits) { return __half2float(__ushort_as_half(bits)); }
static __device__ __forceinline__ uint16_t ig_to_half(float x) { return __half_as_ushort(__float2half_rn(x)); }

/* Two in a word, the first in the lower bits. */
static __device__ __forceinline__ uint32_t ig_to_halves(float low, float high) {
    __half2 two = __floats2half2_rn(low, high);
    uint32_t bits;
    memcpy(&bits, &two, sizeof bits);
    return bits;
}

/* p, which is known not to be shared memory. Of pointers that it has loaded the compiler knows nothing: it would ask at
 * each access, and wait for what an atomicAdd() returns, even if nothing wants it. */
template <typename T>
static __device__ __forceinline__ T *ig_global(T *p) {
#ifndef IG_ON_CPU
    __builtin_assume(__isGlobal(p));
#endif
    return p;
}

/* Sums and maxima over a warp, the same bits in every lane: pairs of lanes that differ in one bit of their number, from
 * the highest bit on. */
template <typename T>
static __device__ __forceinline__ T ig_warp_sum(T x) {
    for (int bit = IG_WARP / 2; bit; bit /= 2) x += __shfl_xor_sync(0xffffffffu, x, bit);
    return x;
}

/* Sums of four numbers at once, each by the same tree as above: lane i gets that of x[i / 8], and has less to exchange
 * than for four sums one by one. Or of each `width` lanes, a power of two from 4 on: lane i gets x[4 i / width]'s. */
enum { IG_SUMS = 4 };
static __device__ __forceinline__ float ig_warp_sums(const float *x, int lane, int width = IG_WARP) {
    int half = width / 2, quarter = width / 4;
    bool high = lane & half, low = lane & quarter;
    float a = high ? x[2] : x[0], b = high ? x[3] : x[1];
    a += __shfl_xor_sync(0xffffffffu, high ? x[0] : x[2], half);
    b += __shfl_xor_sync(0xffffffffu, high ? x[1] : x[3], half);
    float sum = low ? b : a;
    sum += __shfl_xor_sync(0xffffffffu, low ? a : b, quarter);
    for (int bit = quarter / 2; bit; bit /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, bit);
    return sum;
}

template <typename T>
static __device__ __forceinline__ T ig_warp_max(T x) {
    for (int bit = IG_WARP / 2; bit; bit /= 2) {
        T other = __shfl_xor_sync(0xffffffffu, x, bit);
        x = other > x ? other : x;
    }
    return x;
}

/* The sum of what lanes before this one have counted. */
template <typename T>
static __device__ __forceinline__ T ig_warp_sum_before(T mine) {
    int lane = (int)threadIdx.x % IG_WARP;
    T sum = mine;
    for (int back = 1; back < IG_WARP; back *= 2) {
        T other = __shfl_sync(0xffffffffu, sum, (lane - back) & (IG_WARP - 1));
        if (lane >= back) sum += other;
    }
    return sum - mine;
}

/* The sum of what threads of the block before this one have counted: `totals` [warps] are shared memory, and add up to
 * that of all. Begins with a barrier. */
template <typename T>
static __device__ __forceinline__ T ig_sum_before(T *totals, T mine) {
    int warp = (int)threadIdx.x / IG_WARP;
    T before = ig_warp_sum_before(mine);
    __syncthreads();
    if (threadIdx.x % IG_WARP == IG_WARP - 1) totals[warp] = before + mine;
    __syncthreads();
    for (int i = 0; i < warp; i++) before += totals[i];
    return before;
}

#endif
