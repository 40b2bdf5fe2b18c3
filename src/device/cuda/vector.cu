/* SPDX-License-Identifier: Apache-2.0
 *
 * Norms, rotary positions and element-wise operations. What is not finite stays so (kernel/kernel.h).
 *
 * In a decode step each of these would be a launch that does next to nothing. So a norm does the addition before it,
 * and makes the codes that the product behind it wants; activations make codes, too; and rotations of queries and keys
 * are one launch, which also looks for their largest numbers if that is asked for next.
 */
#include "device/cuda/codes.cuh"

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

/* Weights are on their way while the squares are added up. `added`, if there is any, joins x first. Codes are those of
 * whole warps: n is a multiple of IG_CODE_GROUP then. */
static __global__ void __launch_bounds__(MOST_THREADS)
    rms_norm(float *y, float *x, const float *w, float eps, int n, const float *added, ig_act_codes codes, int n_w) {
    ig_begin();
    IG_SHARED(double, shared);
    float *row = x + (size_t)blockIdx.x * (size_t)n;
    const float *more = added ? added + (size_t)blockIdx.x * (size_t)n : NULL;
    float *out = y + (size_t)blockIdx.x * (size_t)n, kept[KEPT], weight[KEPT];
    uint8_t *column = codes.act ? codes.act + (size_t)blockIdx.x * codes.stride : NULL;
    int thread = (int)threadIdx.x, threads = (int)blockDim.x;
    double squares = 0;
    if (w) w += (size_t)(blockIdx.x % (unsigned)n_w) * (size_t)n;
    IG_UNROLL for (int j = 0; j < KEPT; j++) {
        int i = thread + j * threads;
        kept[j] = i < n ? row[i] : 0.0f;
        if (more && i < n) kept[j] += more[i];
        weight[j] = i < n && w ? w[i] : 1.0f;
    }
    IG_UNROLL for (int j = 0; j < KEPT; j++) {
        if (more && thread + j * threads < n) row[thread + j * threads] = kept[j];
        squares += (double)kept[j] * (double)kept[j];
    }
    for (int i = thread + KEPT * threads; i < n; i += threads) {
        if (more) row[i] += more[i];
        squares += (double)row[i] * (double)row[i];
    }
    squares = block_sum(squares, shared);
    float r = (float)spread(thread == 0 ? norm_factor(squares, n, eps) : 0, shared);
    IG_UNROLL for (int j = 0; j < KEPT; j++) {
        int i = thread + j * threads;
        if (i >= n) continue;
        out[i] = kept[j] * r * weight[j];
        if (column) ig_put_code(column, n, i, kept[j] * r * weight[j]);
    }
    for (int i = thread + KEPT * threads; i < n; i += threads) {
        float v = row[i] * r * (w ? w[i] : 1.0f);
        out[i] = v;
        if (column) ig_put_code(column, n, i, v);
    }
}

static __global__ void __launch_bounds__(MOST_THREADS)
    layer_norm(float *y, const float *x, const float *w, const float *b, float eps, int n, int n_w) {
    ig_begin();
    IG_SHARED(double, shared);
    const float *row = x + (size_t)blockIdx.x * (size_t)n;
    float *out = y + (size_t)blockIdx.x * (size_t)n;
    int thread = (int)threadIdx.x, threads = (int)blockDim.x;
    double sum = 0, squares = 0;
    size_t w_at = (size_t)(blockIdx.x % (unsigned)n_w) * (size_t)n;
    if (w) w += w_at;
    if (b) b += w_at;
    for (int i = thread; i < n; i += threads) sum += (double)row[i];
    sum = block_sum(sum, shared);
    double mean = spread(thread == 0 ? sum / n : 0, shared);
    for (int i = thread; i < n; i += threads) squares += ((double)row[i] - mean) * ((double)row[i] - mean);
    squares = block_sum(squares, shared);
    double r = spread(thread == 0 ? norm_factor(squares, n, eps) : 0, shared);
    for (int i = thread; i < n; i += threads)
        out[i] = (float)(((double)row[i] - mean) * r) * (w ? w[i] : 1.0f) + (b ? b[i] : 0.0f);
}

static int norm_threads(int n) { return n < MOST_THREADS ? (n + IG_WARP - 1) / IG_WARP * IG_WARP : MOST_THREADS; }
static size_t norm_shared(int n) { return (size_t)(norm_threads(n) / IG_WARP) * sizeof(double); }

static void launch_rms_norm(ig_queue q, float *y, float *x, const float *w, int n_w, float eps, int n_rows, int n,
                            const float *added, ig_act_codes codes) {
    dim3 grid((unsigned)n_rows), block((unsigned)norm_threads(n));
    ig_launch(rms_norm, grid, block, norm_shared(n), q, y, x, w, eps, n, added, codes, n_w);
}

/* What joins the n numbers at x in the last launch, which is taken back; NULL: nothing does. */
static const float *take_addition(ig_queue q, const float *x, size_t n);

void ig_cuda_norm(ig_queue q, float *y, float *x, const ig_norm *norm, int n_rows) {
    int n = norm->n;
    if (norm->is_rms) {
        const float *added = take_addition(q, x, (size_t)n_rows * (size_t)n);
        launch_rms_norm(q, y, x, norm->w, norm->n_w, norm->eps, n_rows, n, added, ig_act_codes{NULL, 0});
    } else {
        dim3 grid((unsigned)n_rows), block((unsigned)norm_threads(n));
        ig_launch(layer_norm, grid, block, norm_shared(n), q, y, (const float *)x, norm->w, norm->b, norm->eps, n,
                  norm->n_w);
    }
}

bool ig_cuda_norm_codes(ig_queue q, ig_act_codes codes, const float *x, int n, int n_cols) {
    const ig_command *last = ig_queue_last(q, IG_KERNEL(rms_norm));
    if (!last || ig_command_value<float *>(last, 0) != x || (int)last->grid.x != n_cols ||
        ig_command_value<int>(last, 4) != n || ig_command_value<ig_act_codes>(last, 6).act)
        return false;
    float *from = ig_command_value<float *>(last, 1);
    const float *w = ig_command_value<const float *>(last, 2), *added = ig_command_value<const float *>(last, 5);
    float eps = ig_command_value<float>(last, 3);
    int n_w = ig_command_value<int>(last, 7);
    ig_queue_drop_last(q);
    launch_rms_norm(q, (float *)(uintptr_t)x, from, w, n_w, eps, n_cols, n, added, codes);
    return true;
}

/* ---- rotary positions -------------------------------------------------------------------- */

/* Heads of one array or two, of the same rows. */
typedef struct rotation {
    float *x[2];
    int n_heads[2];
    const float *cs;
    int n_rows, n_rot, head_dim;
    bool adjacent;
} rotation;

/* Pair number j of a row's heads. */
static __device__ __forceinline__ void rotate_pair(const rotation *r, int array, int row, int j) {
    int half = r->n_rot / 2, i = j % half;
    const float *c = r->cs + (size_t)row * (size_t)r->n_rot;
    float *head = r->x[array] + ((size_t)row * (size_t)r->n_heads[array] + (size_t)(j / half)) * (size_t)r->head_dim;
    float *a = head + (r->adjacent ? 2 * i : i), *b = a + (r->adjacent ? 1 : half), u = *a, v = *b;
    *a = u * c[i] - v * c[half + i];
    *b = v * c[i] + u * c[half + i];
}

/* A thread is a pair of numbers. */
static __global__ void rotate(rotation r) {
    ig_begin();
    int j = (int)(blockIdx.y * THREADS + threadIdx.x), of_first = r.n_heads[0] * r.n_rot / 2;
    int of_second = r.n_heads[1] * r.n_rot / 2;
    if (j < of_first)
        rotate_pair(&r, 0, (int)blockIdx.x, j);
    else if (j < of_first + of_second)
        rotate_pair(&r, 1, (int)blockIdx.x, j - of_first);
}

void ig_cuda_rope(ig_queue q, float *x, const ig_rotation *by, int n_rows, int n_heads, int head_dim) {
    rotation r = {};
    const ig_command *last = ig_queue_last(q, IG_KERNEL(rotate));
    r.x[0] = x, r.n_heads[0] = n_heads;
    r.cs = by->cs, r.n_rows = n_rows, r.n_rot = by->n_rot, r.head_dim = head_dim, r.adjacent = by->is_adjacent;
    if (last) {
        rotation before = ig_command_value<rotation>(last, 0);
        if (before.cs == r.cs && before.n_rows == n_rows && before.n_rot == r.n_rot && before.head_dim == head_dim &&
            before.adjacent == r.adjacent && !before.x[1] && before.x[0] != x) {
            r.x[0] = before.x[0], r.n_heads[0] = before.n_heads[0];
            r.x[1] = x, r.n_heads[1] = n_heads;
            ig_queue_drop_last(q);
        }
    }
    int pairs = (r.n_heads[0] + r.n_heads[1]) * r.n_rot / 2;
    dim3 grid((unsigned)n_rows, (unsigned)((pairs + THREADS - 1) / THREADS));
    ig_launch(rotate, grid, dim3(THREADS), 0, q, r);
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

/* A thread has a number of a row. */
static __global__ void add_products(float *y, const float *x, int n_x, const float *b, size_t stride,
                                    const float *shares, int n_shares, int n) {
    ig_begin();
    size_t row = blockIdx.y;
    int i = (int)(blockIdx.x * THREADS + threadIdx.x);
    float sum = 0, share = shares[row * (size_t)n_shares];
    if (i >= n || share == 0) return;
    for (int k = 0; k < n_x; k++) sum += share * x[row * (size_t)n_x + (size_t)k] * b[(size_t)k * stride + (size_t)i];
    y[row * (size_t)n + (size_t)i] += sum;
}

/* A block of threads is a row. */
static __global__ void add_rows(float *y, const float *x, const int32_t *rows, const float *shares, int n) {
    ig_begin();
    float *to = y + (size_t)rows[blockIdx.x] * (size_t)n, share = shares ? shares[blockIdx.x] : 1.0f;
    const float *from = x + (size_t)blockIdx.x * (size_t)n;
    for (int i = (int)threadIdx.x; i < n; i += THREADS) to[i] += share * from[i];
}

/* Above 20 it is the number itself, in 24 bits. */
static __device__ __forceinline__ float softplus(float x) { return (x > 20 ? x : log1pf(expf(x))) + 0 * x; }

static __global__ void gate_rows(bool is_softplus, float *x, const float *gates, int n, size_t all) {
    ig_begin();
    for (size_t i = first_element(); i < all; i += stride()) {
        float gate = gates[i / (size_t)n];
        x[i] *= is_softplus ? softplus(gate) : 1.0f / (1.0f + expf(-gate)) + 0 * gate;
    }
}

static const float *take_addition(ig_queue q, const float *x, size_t n) {
    const ig_command *last = ig_queue_last(q, IG_KERNEL(add));
    if (!last || ig_command_value<float *>(last, 0) != x || ig_command_value<size_t>(last, 2) != n) return NULL;
    const float *added = ig_command_value<const float *>(last, 1);
    ig_queue_drop_last(q);
    return added;
}

/* `up` is NULL where nothing is gated, but for IG_XIELU. */
template <ig_activation kind>
static __device__ __forceinline__ float activated(float gate, const float *up, size_t i) {
    if constexpr (kind == IG_SILU_GATED) {
        return gate / (1.0f + expf(-gate)) * up[i];
    } else if constexpr (kind == IG_SIGMOID_GATED) {
        return 1.0f / (1.0f + expf(-gate)) * up[i] + 0 * gate;
    } else if constexpr (kind == IG_SOFTPLUS_GATED) {
        return softplus(gate) * up[i];
    } else if constexpr (kind == IG_PRODUCT) {
        return gate * up[i];
    } else if constexpr (kind == IG_GELU_GATED) {
        return gate / (1.0f + expf(-gate * (IG_GELU_1 + IG_GELU_3 * gate * gate))) * up[i];
    } else if constexpr (kind == IG_SWIGLU_OAI) {
        float g = fminf(gate, IG_OAI_LIMIT), u = fmaxf(fminf(up[i], IG_OAI_LIMIT), -IG_OAI_LIMIT);
        return g / (1.0f + expf(-IG_OAI_ALPHA * g)) * (u + 1) + (0 * gate + 0 * up[i]);
    } else if constexpr (kind == IG_GELU) {
        return gate / (1.0f + expf(-gate * (IG_GELU_1 + IG_GELU_3 * gate * gate)));
    } else if constexpr (kind == IG_GELU_ERF) {
        return 0.5f * gate * erfcf(-0.707106781f * gate);
    } else if constexpr (kind == IG_XIELU) {
        return gate > 0 ? (up[0] * gate + up[2]) * gate : up[1] * (expm1f(fminf(gate, up[3])) - gate) + up[2] * gate;
    } else if constexpr (kind == IG_TANH) {
        return tanhf(gate) + 0 * gate;
    } else if constexpr (kind == IG_RELU_SQUARED) {
        return (gate > 0 ? gate : 0.0f) * gate;
    } else {
        return (gate > 0 ? gate : 0.0f) + 0 * gate;
    }
}

template <ig_activation kind>
static __global__ void activate(float *gate, const float *up, size_t n) {
    ig_begin();
    for (size_t i = first_element(); i < n; i += stride()) gate[i] = activated<kind>(gate[i], up, i);
}

/* Of columns of n; a warp is a group of a column's codes. */
template <ig_activation kind>
static __global__ void activate_to_codes(float *gate, const float *up, int n, ig_act_codes codes) {
    ig_begin();
    int i = (int)(blockIdx.x * THREADS + threadIdx.x);
    if (i >= n) return;
    size_t at = (size_t)blockIdx.y * (size_t)n + (size_t)i;
    float v = activated<kind>(gate[at], up, at);
    gate[at] = v;
    ig_put_code(codes.act + (size_t)blockIdx.y * codes.stride, n, i, v);
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

/* A block of threads is an array; of the first one or two heads are rotated first, if r says so. */
static __global__ void find_peaks(float *out, arrays all, rotation r) {
    ig_begin();
    IG_SHARED(unsigned, tops); /* [warps] */
    const ig_floats *x = &all.of[blockIdx.x];
    if (blockIdx.x < 2 && r.x[blockIdx.x]) {
        int pairs = r.n_heads[blockIdx.x] * (r.n_rot / 2);
        for (int j = (int)threadIdx.x; j < r.n_rows * pairs; j += (int)blockDim.x)
            rotate_pair(&r, (int)blockIdx.x, j / pairs, j % pairs);
        __syncthreads();
    }
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

void ig_cuda_add_products(ig_queue q, float *y, const float *x, int n_x, const float *b, size_t stride,
                          const float *shares, int n_shares, int n_rows, int n) {
    ig_launch(add_products, dim3((unsigned)((n + THREADS - 1) / THREADS), (unsigned)n_rows), dim3(THREADS), 0, q, y, x,
              n_x, b, stride, shares, n_shares, n);
}

void ig_cuda_add_rows(ig_queue q, float *y, const float *x, const int32_t *rows, const float *shares, int n_rows,
                      int n) {
    ig_launch(add_rows, dim3((unsigned)n_rows), dim3(THREADS), 0, q, y, x, rows, shares, n);
}

void ig_cuda_gate_rows(ig_queue q, ig_activation kind, float *x, const float *gates, int n_rows, int n) {
    size_t all = (size_t)n_rows * (size_t)n;
    ig_launch(gate_rows, dim3(blocks_for(all)), dim3(THREADS), 0, q, kind == IG_SOFTPLUS_GATED, x, gates, n, all);
}

static __global__ void copy_rows(float *to, size_t to_row, const float *from, size_t from_row, int n, size_t all) {
    ig_begin();
    for (size_t i = first_element(); i < all; i += stride()) {
        size_t row = i / (size_t)n, at = i % (size_t)n;
        to[row * to_row + at] = from[row * from_row + at];
    }
}

void ig_cuda_copy_rows(ig_queue q, float *to, size_t to_row, const float *from, size_t from_row, int n, int n_rows) {
    size_t all = (size_t)n * (size_t)n_rows;
    ig_launch(copy_rows, dim3(blocks_for(all)), dim3(THREADS), 0, q, to, to_row, from, from_row, n, all);
}

static __global__ void scale(float *x, float factor, size_t n) {
    ig_begin();
    for (size_t i = first_element(); i < n; i += stride()) x[i] *= factor;
}

void ig_cuda_scale(ig_queue q, float *x, float factor, size_t n) {
    ig_launch(scale, dim3(blocks_for(n)), dim3(THREADS), 0, q, x, factor, n);
}

typedef struct activations {
    void (*plain)(float *gate, const float *up, size_t n);
    void (*to_codes)(float *gate, const float *up, int n, ig_act_codes codes);
} activations;

static activations activations_of(ig_activation kind) {
    switch (kind) {
        case IG_SILU_GATED:
            return activations{activate<IG_SILU_GATED>, activate_to_codes<IG_SILU_GATED>};
        case IG_SIGMOID_GATED:
            return activations{activate<IG_SIGMOID_GATED>, activate_to_codes<IG_SIGMOID_GATED>};
        case IG_SOFTPLUS_GATED:
            return activations{activate<IG_SOFTPLUS_GATED>, activate_to_codes<IG_SOFTPLUS_GATED>};
        case IG_PRODUCT:
            return activations{activate<IG_PRODUCT>, activate_to_codes<IG_PRODUCT>};
        case IG_GELU_GATED:
            return activations{activate<IG_GELU_GATED>, activate_to_codes<IG_GELU_GATED>};
        case IG_SWIGLU_OAI:
            return activations{activate<IG_SWIGLU_OAI>, activate_to_codes<IG_SWIGLU_OAI>};
        case IG_RELU_SQUARED:
            return activations{activate<IG_RELU_SQUARED>, activate_to_codes<IG_RELU_SQUARED>};
        case IG_GELU:
            return activations{activate<IG_GELU>, activate_to_codes<IG_GELU>};
        case IG_GELU_ERF:
            return activations{activate<IG_GELU_ERF>, activate_to_codes<IG_GELU_ERF>};
        case IG_XIELU:
            return activations{activate<IG_XIELU>, activate_to_codes<IG_XIELU>};
        case IG_TANH:
            return activations{activate<IG_TANH>, activate_to_codes<IG_TANH>};
        case IG_RELU:
        case IG_ACTIVATIONS:
            break;
    }
    return activations{activate<IG_RELU>, activate_to_codes<IG_RELU>};
}

void ig_cuda_activate(ig_queue q, ig_activation kind, float *gate, const float *up, size_t n) {
    ig_launch(activations_of(kind).plain, dim3(blocks_for(n)), dim3(THREADS), 0, q, gate, up, n);
}

bool ig_cuda_activate_codes(ig_queue q, ig_act_codes codes, const float *x, int n, int n_cols) {
    for (int kind = 0; kind < IG_ACTIVATIONS; kind++) {
        activations a = activations_of((ig_activation)kind);
        const ig_command *last = ig_queue_last(q, IG_KERNEL(a.plain));
        if (!last || ig_command_value<float *>(last, 0) != x ||
            ig_command_value<size_t>(last, 2) != (size_t)n * (size_t)n_cols)
            continue;
        float *gate = ig_command_value<float *>(last, 0);
        const float *up = ig_command_value<const float *>(last, 1);
        ig_queue_drop_last(q);
        dim3 grid((unsigned)(n + THREADS - 1) / THREADS, (unsigned)n_cols);
        ig_launch(a.to_codes, grid, dim3(THREADS), 0, q, gate, up, n, codes);
        return true;
    }
    return false;
}

void ig_cuda_peak(ig_queue q, unsigned *peak, const ig_floats *x) {
    ig_launch(find_peak, dim3(blocks_for(x->n)), dim3(THREADS), 0, q, peak, x->x, x->n);
}

/* The last launch, if it rotates the first one or two of these arrays: it is taken back. */
static rotation take_rotation(ig_queue q, const ig_floats *x, int n_x) {
    const ig_command *last = ig_queue_last(q, IG_KERNEL(rotate));
    if (!last) return rotation{};
    rotation r = ig_command_value<rotation>(last, 0);
    for (int i = 0; i < 2; i++) {
        size_t n = (size_t)r.n_rows * (size_t)r.n_heads[i] * (size_t)r.head_dim;
        if (r.x[i] && (i >= n_x || x[i].x != r.x[i] || x[i].n != n)) return rotation{};
    }
    ig_queue_drop_last(q);
    return r;
}

void ig_cuda_peaks(ig_queue q, float *out, const ig_floats *x, int n_x) {
    const size_t most = 512 / IG_WARP;
    arrays all = {};
    rotation r = take_rotation(q, x, n_x);
    size_t warps = 1;
    for (int i = 0; i < n_x; i++) {
        size_t own = (x[i].n + IG_WARP - 1) / IG_WARP;
        all.of[i] = x[i];
        warps = own < warps ? warps : own < most ? own : most;
    }
    ig_launch(find_peaks, dim3((unsigned)n_x), dim3((unsigned)warps * IG_WARP), warps * sizeof(unsigned), q, out, all,
              r);
}
