/* SPDX-License-Identifier: Apache-2.0
 *
 * Norms, rotary positions and element-wise operations. What is not finite stays so (kernel/kernel.h).
 */
#include "device/cuda/kernels.cuh"

enum { THREADS = 128, MOST_BLOCKS = 1024 };

/* ---- norms ---------------------------------------------------------------------------- */

enum {
    MOST_THREADS = 512, /* of a row */
    KEPT = 8            /* numbers of it that each keeps in registers */
};

/* Of x over all threads of a block, to thread 0 alone: many GPUs have few units for 64 bits. `shared` holds a number
 * per warp. */
static __device__ double block_sum(double x, double *shared) {
    int warp = (int)threadIdx.x / IG_WARP;
    x = ig_warp_sum(x);
    __syncthreads();
    shared[warp] = x;
    __syncthreads();
    x = 0;
    for (unsigned i = 0; threadIdx.x == 0 && i < blockDim.x / IG_WARP; i++) x += shared[i];
    return x;
}

/* Thread 0's x, to all threads; what block_sum() had in `shared` is over. */
static __device__ double spread(double x, double *shared) {
    if (threadIdx.x == 0) shared[0] = x;
    __syncthreads();
    return shared[0];
}

/* What n numbers are multiplied by, given the sum of their squares; NaN if that has overflowed. */
static __device__ double norm_factor(double squares, int n, float eps) {
    return squares < INFINITY ? 1.0 / sqrt(squares / n + (double)eps) : NAN;
}

/* Weights are on their way while the squares are added up. */
static __global__ void __launch_bounds__(MOST_THREADS)
    rms_norm(float *y, const float *x, const float *w, float eps, int n) {
    ig_begin();
    IG_SHARED(double, shared);
    const float *row = x + (size_t)blockIdx.x * (size_t)n;
    float *out = y + (size_t)blockIdx.x * (size_t)n, kept[KEPT], weight[KEPT];
    int thread = (int)threadIdx.x, threads = (int)blockDim.x;
    double squares = 0;
    IG_UNROLL for (int j = 0; j < KEPT; j++) {
        int i = thread + j * threads;
        kept[j] = i < n ? row[i] : 0.0f;
        weight[j] = i < n && w ? w[i] : 1.0f;
    }
    IG_UNROLL for (int j = 0; j < KEPT; j++) squares += (double)kept[j] * (double)kept[j];
    for (int i = thread + KEPT * threads; i < n; i += threads) squares += (double)row[i] * (double)row[i];
    squares = block_sum(squares, shared);
    float r = (float)spread(thread == 0 ? norm_factor(squares, n, eps) : 0, shared);
    IG_UNROLL for (int j = 0; j < KEPT; j++) if (thread + j * threads < n) out[thread + j * threads] =
        kept[j] * r * weight[j];
    for (int i = thread + KEPT * threads; i < n; i += threads) out[i] = row[i] * r * (w ? w[i] : 1.0f);
}

static __global__ void __launch_bounds__(MOST_THREADS)
    layer_norm(float *y, const float *x, const float *w, const float *b, float eps, int n) {
    ig_begin();
    IG_SHARED(double, shared);
    const float *row = x + (size_t)blockIdx.x * (size_t)n;
    float *out = y + (size_t)blockIdx.x * (size_t)n;
    int thread = (int)threadIdx.x, threads = (int)blockDim.x;
    double sum = 0, squares = 0;
    for (int i = thread; i < n; i += threads) sum += (double)row[i];
    sum = block_sum(sum, shared);
    double mean = spread(thread == 0 ? sum / n : 0, shared);
    for (int i = thread; i < n; i += threads) squares += ((double)row[i] - mean) * ((double)row[i] - mean);
    squares = block_sum(squares, shared);
    double r = spread(thread == 0 ? norm_factor(squares, n, eps) : 0, shared);
    for (int i = thread; i < n; i += threads)
        out[i] = (float)(((double)row[i] - mean) * r) * (w ? w[i] : 1.0f) + (b ? b[i] : 0.0f);
}

void ig_cuda_norm(ig_queue q, float *y, const float *x, const float *w, const float *b, bool rms, float eps, int n_rows,
                  int n) {
    int threads = n < MOST_THREADS ? (n + IG_WARP - 1) / IG_WARP * IG_WARP : MOST_THREADS;
    size_t shared = (size_t)(threads / IG_WARP) * sizeof(double);
    if (rms)
        ig_launch(rms_norm, dim3((unsigned)n_rows), dim3((unsigned)threads), shared, q, y, x, w, eps, n);
    else
        ig_launch(layer_norm, dim3((unsigned)n_rows), dim3((unsigned)threads), shared, q, y, x, w, b, eps, n);
}

/* ---- rotary positions -------------------------------------------------------------------- */

/* A thread is a pair of numbers. */
static __global__ void rotate(float *x, const float *cs, int n_rot, bool adjacent, int n_heads, int head_dim) {
    ig_begin();
    int half = n_rot / 2, j = (int)(blockIdx.y * THREADS + threadIdx.x), i = j % half;
    const float *c = cs + (size_t)blockIdx.x * (size_t)n_rot;
    float *row = x + (size_t)blockIdx.x * (size_t)n_heads * (size_t)head_dim;
    if (j < n_heads * half) {
        float *a = row + j / half * head_dim + (adjacent ? 2 * i : i), *b = a + (adjacent ? 1 : half), u = *a, v = *b;
        *a = u * c[i] - v * c[half + i];
        *b = v * c[i] + u * c[half + i];
    }
}

void ig_cuda_rope(ig_queue q, float *x, const float *cs, int n_rot, bool adjacent, int n_rows, int n_heads,
                  int head_dim) {
    dim3 grid((unsigned)n_rows, (unsigned)((n_heads * n_rot / 2 + THREADS - 1) / THREADS));
    ig_launch(rotate, grid, dim3(THREADS), 0, q, x, cs, n_rot, adjacent, n_heads, head_dim);
}

/* ---- element-wise ------------------------------------------------------------------------- */

static unsigned blocks_for(size_t n) {
    size_t blocks = (n + THREADS - 1) / THREADS;
    return blocks < MOST_BLOCKS ? (unsigned)blocks : (unsigned)MOST_BLOCKS;
}

static __device__ __forceinline__ size_t first_element(void) { return (size_t)blockIdx.x * THREADS + threadIdx.x; }
static __device__ __forceinline__ size_t stride(void) { return (size_t)gridDim.x * THREADS; }

static __global__ void add(float *y, const float *x, size_t n) {
    ig_begin();
    for (size_t i = first_element(); i < n; i += stride()) y[i] += x[i];
}

/* A block of threads is a row. */
static __global__ void add_rows(float *y, const float *x, const int32_t *rows, const float *shares, int n) {
    ig_begin();
    float *to = y + (size_t)rows[blockIdx.x] * (size_t)n, share = shares[blockIdx.x];
    const float *from = x + (size_t)blockIdx.x * (size_t)n;
    for (int i = (int)threadIdx.x; i < n; i += THREADS) to[i] += share * from[i];
}

static __global__ void silu_mul(float *gate, const float *up, size_t n) {
    ig_begin();
    for (size_t i = first_element(); i < n; i += stride()) gate[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
}

static __global__ void gelu_mul(float *gate, const float *up, size_t n) {
    ig_begin();
    for (size_t i = first_element(); i < n; i += stride()) {
        float x = gate[i];
        gate[i] = x / (1.0f + expf(-x * (IG_GELU_1 + IG_GELU_3 * x * x))) * up[i];
    }
}

static __global__ void swiglu_oai(float *gate, const float *up, size_t n) {
    ig_begin();
    for (size_t i = first_element(); i < n; i += stride()) {
        float g = fminf(gate[i], IG_OAI_LIMIT), u = fmaxf(fminf(up[i], IG_OAI_LIMIT), -IG_OAI_LIMIT);
        gate[i] = g / (1.0f + expf(-IG_OAI_ALPHA * g)) * (u + 1) + (0 * gate[i] + 0 * up[i]);
    }
}

static __global__ void relu(float *x, size_t n) {
    ig_begin();
    for (size_t i = first_element(); i < n; i += stride()) x[i] = (x[i] > 0 ? x[i] : 0.0f) + 0 * x[i];
}

/* The largest of the numbers that a warp takes. The order of magnitudes is that of their bits, NaN above all. */
static __device__ __forceinline__ unsigned warp_peak(const float *x, size_t first, size_t step, size_t n) {
    unsigned top = 0;
    for (size_t i = first; i < n; i += step) {
        unsigned bits = __float_as_uint(x[i]) & 0x7fffffffu;
        top = bits > top ? bits : top;
    }
    return ig_warp_max(top);
}

static __global__ void find_peak(unsigned *peak, const float *x, size_t n) {
    ig_begin();
    unsigned top = warp_peak(x, first_element(), stride(), n);
    if (threadIdx.x % IG_WARP == 0) atomicMax(peak, top);
}

typedef struct arrays {
    ig_floats of[IG_CUDA_PEAKS];
} arrays;

/* A block of threads is an array. */
static __global__ void find_peaks(float *out, arrays all) {
    ig_begin();
    IG_SHARED(unsigned, tops); /* [warps] */
    const ig_floats *x = &all.of[blockIdx.x];
    unsigned top = warp_peak(x->x, threadIdx.x, blockDim.x, x->n);
    if (threadIdx.x % IG_WARP == 0) tops[threadIdx.x / IG_WARP] = top;
    __syncthreads();
    if (threadIdx.x) return;
    for (unsigned i = 1; i < blockDim.x / IG_WARP; i++) top = tops[i] > top ? tops[i] : top;
    out[blockIdx.x] = __uint_as_float(top);
}

void ig_cuda_add(ig_queue q, float *y, const float *x, size_t n) {
    ig_launch(add, dim3(blocks_for(n)), dim3(THREADS), 0, q, y, x, n);
}

void ig_cuda_add_rows(ig_queue q, float *y, const float *x, const int32_t *rows, const float *shares, int n_rows,
                      int n) {
    ig_launch(add_rows, dim3((unsigned)n_rows), dim3(THREADS), 0, q, y, x, rows, shares, n);
}

void ig_cuda_activate(ig_queue q, ig_activation kind, float *gate, const float *up, size_t n) {
    dim3 blocks(blocks_for(n)), threads(THREADS);
    switch (kind) {
        case IG_SILU_GATED:
            ig_launch(silu_mul, blocks, threads, 0, q, gate, up, n);
            break;
        case IG_GELU_GATED:
            ig_launch(gelu_mul, blocks, threads, 0, q, gate, up, n);
            break;
        case IG_SWIGLU_OAI:
            ig_launch(swiglu_oai, blocks, threads, 0, q, gate, up, n);
            break;
        case IG_RELU:
            ig_launch(relu, blocks, threads, 0, q, gate, n);
            break;
    }
}

void ig_cuda_peak(ig_queue q, unsigned *peak, const ig_floats *x) {
    ig_launch(find_peak, dim3(blocks_for(x->n)), dim3(THREADS), 0, q, peak, x->x, x->n);
}

void ig_cuda_peaks(ig_queue q, float *out, const ig_floats *x, int n_x) {
    const size_t most = 512 / IG_WARP;
    arrays all = {};
    size_t warps = 1;
    for (int i = 0; i < n_x; i++) {
        size_t own = (x[i].n + IG_WARP - 1) / IG_WARP;
        all.of[i] = x[i];
        warps = own < warps ? warps : own < most ? own : most;
    }
    ig_launch(find_peaks, dim3((unsigned)n_x), dim3((unsigned)warps * IG_WARP), warps * sizeof(unsigned), q, out, all);
}
