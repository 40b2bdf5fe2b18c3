/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of CUDA that src/device/cuda uses, on the CPU, so that its sources are tested where there is no GPU:
 * compiled as plain C++ with this in the place of the toolkit's headers.
 *
 * The threads of a block are fibers of one thread of the host. They run in an order drawn from a seed, all in turn or
 * warp after warp, and change over only where they meet, at a barrier or in a warp's exchange; blocks run one after the
 * other, last ones first at every other launch. What a GPU would punish shows here: memory of the device starts as NaN
 * (every byte 0xff) and is closed to the host except while a stream runs, a stream runs nothing before it is waited
 * for, and others then, by lot, only what it waits for itself, or all that they can and before it, shared memory is
 * 0xff for each block and ends, but for 15 bytes, where the launch has said, threads that wait for each other for ever,
 * warps that have lost a lane and addresses that are not aligned (tests/CMakeLists.txt) end the program. Not shown:
 * what depends on time, on the order of memory between blocks, on occupancy.
 */
#ifndef TESTS_CUDA_ON_CPU_H
#define TESTS_CUDA_ON_CPU_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include <functional>
#include <tuple>
#include <utility>

#include "base/half.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define IG_ON_CPU 1

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

struct uint3 {
    unsigned x, y, z;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
extern __thread uint3 threadIdx, blockIdx, blockDim, gridDim;

/* ---- the runtime ------------------------------------------------------------------ */

typedef enum cudaError {
    cudaSuccess,
    cudaErrorInvalidValue,
    cudaErrorMemoryAllocation,
    cudaErrorInsufficientDriver = 35,
    cudaErrorNoKernelImageForDevice = 209,
    cudaErrorNotReady = 600,
    cudaErrorUnknown = 999
} cudaError_t;
typedef enum cudaMemcpyKind { cudaMemcpyDefault } cudaMemcpyKind;
typedef struct cuda_on_cpu_stream *cudaStream_t;
typedef struct cuda_on_cpu_event *cudaEvent_t;

struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem;
    int major, minor, multiProcessorCount;
};

typedef enum cudaDeviceAttr { cudaDevAttrConcurrentManagedAccess = 89 } cudaDeviceAttr;
enum { cudaMemAttachGlobal = 1 };
enum { cudaHostAllocPortable = 1, cudaHostAllocMapped = 2, cudaStreamNonBlocking = 1 };
enum { cudaEventDefault = 0, cudaEventDisableTiming = 2 };

cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaGetDeviceCount(int *n);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device);
cudaError_t cudaDeviceGetAttribute(int *v, cudaDeviceAttr attribute, int device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaMemGetInfo(size_t *left, size_t *all);
cudaError_t cudaMalloc(void **p, size_t n_bytes);
cudaError_t cudaMallocManaged(void **p, size_t n_bytes, unsigned flags); /* of the host's */
cudaError_t cudaFree(void *p);
cudaError_t cudaHostAlloc(void **p, size_t n_bytes, unsigned flags);
cudaError_t cudaFreeHost(void *p);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t s);
cudaError_t cudaStreamSynchronize(cudaStream_t s);
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t e);
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s);
cudaError_t cudaEventSynchronize(cudaEvent_t e);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n_bytes, cudaMemcpyKind kind, cudaStream_t s);
cudaError_t cudaMemsetAsync(void *to, int byte, size_t n_bytes, cudaStream_t s);
cudaError_t cudaGetLastError(void);
cudaError_t cudaFuncGetName(const char **name, const void *kernel); /* of none does it know more than that it is one */
const char *cudaGetErrorString(cudaError_t e);

typedef enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 } cudaFuncAttribute;
cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute attribute, int value);

/* ---- launches ----------------------------------------------------------------------- */

void *cuda_on_cpu_shared(void);

/* What a launch of a kernel does in each thread, with copies of its arguments. */
typedef std::function<void()> (*cuda_on_cpu_binder)(const void *kernel, void **args);
void cuda_on_cpu_know(const void *kernel, cuda_on_cpu_binder binder);

template <typename... P, size_t... I>
static inline std::function<void()> cuda_on_cpu_bind(void (*kernel)(P...), void **args, std::index_sequence<I...>) {
    std::tuple<P...> own(*(P *)args[I]...);
    return [=] { std::apply(kernel, own); };
}

template <typename... P>
static inline const void *cuda_on_cpu_kernel(void (*kernel)(P...)) {
    cuda_on_cpu_know((const void *)kernel, [](const void *k, void **args) {
        return cuda_on_cpu_bind((void (*)(P...))k, args, std::index_sequence_for<P...>());
    });
    return (const void *)kernel;
}

cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **args, size_t shared_bytes,
                             cudaStream_t s);

/* What no compiler but CUDA's understands has these names on both sides (src/device/cuda/cuda.cuh). */
#define IG_KERNEL(kernel) cuda_on_cpu_kernel(kernel)
#define IG_SHARED(type, name) type *name = (type *)cuda_on_cpu_shared()

/* ---- graphs --------------------------------------------------------------------------- */

typedef struct cuda_on_cpu_graph *cudaGraph_t;
typedef struct cuda_on_cpu_exec *cudaGraphExec_t;
typedef struct cuda_on_cpu_node *cudaGraphNode_t;

struct cudaKernelNodeParams {
    void *func;
    dim3 gridDim, blockDim;
    unsigned sharedMemBytes;
    void **kernelParams, **extra;
};
struct cudaMemsetParams {
    void *dst;
    size_t pitch;
    unsigned value, elementSize;
    size_t width, height;
};

cudaError_t cudaGraphCreate(cudaGraph_t *g, unsigned flags);
cudaError_t cudaGraphDestroy(cudaGraph_t g);
cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t *node, cudaGraph_t g, const cudaGraphNode_t *after, size_t n,
                                   const cudaKernelNodeParams *p);
cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t *node, cudaGraph_t g, const cudaGraphNode_t *after, size_t n,
                                   const cudaMemsetParams *p);
cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t *node, cudaGraph_t g, const cudaGraphNode_t *after, size_t n,
                                     void *to, const void *from, size_t n_bytes, cudaMemcpyKind kind);
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *x, cudaGraph_t g, unsigned long long flags);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t x);
cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t x, cudaGraphNode_t node, const cudaKernelNodeParams *p);
cudaError_t cudaGraphExecMemsetNodeSetParams(cudaGraphExec_t x, cudaGraphNode_t node, const cudaMemsetParams *p);
cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t x, cudaGraphNode_t node, void *to, const void *from,
                                               size_t n_bytes, cudaMemcpyKind kind);
cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s);

/* As in src/device/cuda/cuda.cuh: each thread of a launch must have come by the first, or the tests end. */
void ig_begin(void);
bool ig_kernel_waits(const void *kernel);
cudaError_t ig_graph_follow(cudaGraph_t g, cudaGraphNode_t before, cudaGraphNode_t node);

/* ---- for tests ------------------------------------------------------------------------- */

/* Calls of this name so far, of those that launch, copy and make graphs. */
extern "C" uint64_t cuda_on_cpu_count(const char *call);

/* Bytes of cudaMemcpyAsync() so far. */
extern "C" uint64_t cuda_on_cpu_copied(void);

/* So much memory there is, of the device or page-locked; returns how much of it is taken. */
extern "C" size_t cuda_on_cpu_room(bool is_host, size_t n_bytes);

/* Calls of this name fail so, of those that open a GPU, wait for it or make graphs; NULL: none do. */
extern "C" void cuda_on_cpu_fail(const char *call, int error);

/* The seed of the orders in which threads run; drawn anew for each block. */
void cuda_on_cpu_seed(uint64_t seed);

/* ---- inside kernels -------------------------------------------------------------------- */

void __syncthreads(void);
static inline void __threadfence(void) {} /* blocks of threads run one after the other */
/* All lanes of a warp: v of the lane `from`. */
uint64_t cuda_on_cpu_exchange(uint64_t v, int from);

template <typename T>
static inline T cuda_on_cpu_shuffle(T v, int from) {
    uint64_t bits = 0;
    memcpy(&bits, &v, sizeof v);
    bits = cuda_on_cpu_exchange(bits, from);
    memcpy(&v, &bits, sizeof v);
    return v;
}
int cuda_on_cpu_lane(void);

#define __shfl_sync(mask, v, from) cuda_on_cpu_shuffle(v, from)
#define __shfl_xor_sync(mask, v, bits) cuda_on_cpu_shuffle(v, cuda_on_cpu_lane() ^ (bits))

/* All lanes of a warp: mma.m16n8k16 of 16-bit floats (src/device/cuda/mma.cuh). */
void cuda_on_cpu_mma(float *sum, const uint32_t *a, const uint32_t *b);
/* Likewise ldmatrix, of four matrices, turned over or not. */
void cuda_on_cpu_load_matrices(uint32_t *x, const uint16_t *row, bool down);
/* cp.async of 16 bytes, the end of a group, and a wait for all groups but the last n: what is not waited for comes at
 * once, or never. */
void cuda_on_cpu_send(void *to, const void *from);
void cuda_on_cpu_send_end(void);
void cuda_on_cpu_await_sent(int n);

static inline unsigned __byte_perm(unsigned low, unsigned high, unsigned which) {
    unsigned out = 0;
    for (int i = 0; i < 4; i++)
        out |= (unsigned)((low | (uint64_t)high << 32) >> 8 * (which >> 4 * i & 7) & 255) << 8 * i;
    return out;
}

static inline int __dp4a(int a, int b, int sum) {
    for (int i = 0; i < 4; i++) sum += (int8_t)(a >> 8 * i) * (int8_t)(b >> 8 * i);
    return sum;
}

static inline unsigned __dp4a(unsigned a, unsigned b, unsigned sum) {
    for (int i = 0; i < 4; i++) sum += (a >> 8 * i & 255) * (b >> 8 * i & 255);
    return sum;
}

static inline unsigned atomicMax(unsigned *at, unsigned v) {
    unsigned old = *at;
    if (v > old) *at = v;
    return old;
}

template <typename T>
static inline T atomicAdd(T *at, T v) {
    T old = *at;
    *at += v;
    return old;
}

typedef struct __half {
    uint16_t bits;
} __half;
static inline __half __ushort_as_half(uint16_t bits) { return __half{bits}; }
static inline uint16_t __half_as_ushort(__half h) { return h.bits; }
static inline float __half2float(__half h) { return ig_f16_f32(h.bits); }
static inline __half __float2half_rn(float f) { return __half{ig_f32_f16(f)}; }
typedef struct __half2 {
    __half x, y;
} __half2;
static inline __half2 __floats2half2_rn(float x, float y) { return __half2{__float2half_rn(x), __float2half_rn(y)}; }
static inline float __uint_as_float(unsigned u) { return ig_bits_f32(u); }
static inline unsigned __float_as_uint(float f) { return ig_f32_bits(f); }

#endif
