/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products and embeddings.
 *
 * Few columns: a warp is a row of the matrix and up to COLUMNS columns; each lane takes every 32nd part of the row, and
 * the lanes' sums are added in a fixed tree, so that a column's result is the same whichever share the call. Quantised
 * weights meet activations of 8 bits (IG_ACT_Q8 of kernel/kernel.h) by dot products of bytes, floats meet floats.
 *
 * Many, those of prompts: weights of any type become 16-bit floats in shared memory and meet activations of 16 bits on
 * tensor cores, SIDE columns and SIDE rows of the matrix in a block of threads. A column is scaled by a power of two so
 * that its largest number is in 2^14 .. 2^15: what is 2^28 times smaller still has all its bits.
 */
#include "device/cuda/kernels.cuh"
#include "device/cuda/mma.cuh"
#include "device/cuda/weights.cuh"

enum { COLUMNS = 8, ROWS = 4 /* warps of a block */, GROUP = 32, THREADS = 128 };
enum {
    SIDE = 64,            /* columns, and rows of the matrix, of a block of many */
    WARP_SIDE = 32,       /* of a warp, of which there are 2 x 2 */
    STEP = IG_GPU_HALVES, /* elements of each that are in shared memory at a time */
    STRIDE = STEP + IG_MMA_GAP,
    A_TILES = WARP_SIDE / IG_MMA_ROWS,
    B_TILES = WARP_SIDE / IG_MMA_COLS
};

/* ---- activations -------------------------------------------------------------------- */

/* A warp is a group: x ~ d * q. The order of magnitudes is that of their bits, NaN above all. */
static __global__ void quantise(uint8_t *act, const float *x, int n, size_t stride) {
    int lane = (int)threadIdx.x, g = (int)(blockIdx.x * ROWS + threadIdx.y);
    if (g >= n / GROUP) return;
    const float least = 0x1p-100f; /* magnitudes below count as zero: the inverse must be finite */
    float v = x[(size_t)blockIdx.y * (size_t)n + (size_t)(g * GROUP + lane)];
    float max = __uint_as_float(ig_warp_max(__float_as_uint(v) & 0x7fffffffu));
    uint8_t *column = act + (size_t)blockIdx.y * stride;
    bool fits = max > least && max < INFINITY;
    column[g * GROUP + lane] = (uint8_t)(fits ? (int)rintf(v * (127.0f / max)) : 0);
    if (lane == 0) ((float *)(column + n))[g] = fits ? max / 127.0f : max <= least ? 0.0f : NAN;
}

void ig_cuda_quantise(ig_queue q, uint8_t *act, const float *x, int n, int n_cols) {
    dim3 grid((unsigned)(n / GROUP + ROWS - 1) / ROWS, (unsigned)n_cols), block(IG_WARP, ROWS);
    ig_launch(quantise, grid, block, 0, q, act, x, n, ig_gpu_act_bytes(n));
}

/* A block of threads is a column, whose scale is that of the largest magnitude; as above NaN is above all. */
static __global__ void halve(uint8_t *act, const float *x, int n, size_t stride) {
    IG_SHARED(uint32_t, largest);
    int thread = (int)threadIdx.x, padded = (n + STEP - 1) / STEP * STEP;
    uint16_t *to = (uint16_t *)(act + (size_t)blockIdx.x * stride);
    uint32_t most = 0;
    x += (size_t)blockIdx.x * (size_t)n;
    for (int i = thread; i < n; i += THREADS) {
        uint32_t v = __float_as_uint(x[i]) & 0x7fffffffu;
        most = v > most ? v : most;
    }
    most = ig_warp_max(most);
    if (thread % IG_WARP == 0) largest[thread / IG_WARP] = most;
    __syncthreads();
    for (int i = 0; i < THREADS / IG_WARP; i++) most = largest[i] > most ? largest[i] : most;
    bool finite = most < 0x7f800000u;
    float factor = ig_mma_factor(most);
    for (int i = thread; i < padded; i += THREADS) to[i] = finite && i < n ? ig_to_half(x[i] * factor) : 0;
    if (thread == 0) *(float *)(to + padded) = finite ? 1.0f / factor : NAN;
}

void ig_cuda_halve(ig_queue q, uint8_t *act, const float *x, int n, int n_cols) {
    ig_launch(halve, dim3((unsigned)n_cols), dim3(THREADS), THREADS / IG_WARP * sizeof(uint32_t), q, act, x, n,
              ig_gpu_half_bytes(n));
}

/* ---- products -------------------------------------------------------------------------- */

typedef struct product {
    const uint8_t *w;
    size_t row_bytes;
    const float *bias;
    const uint8_t *x; /* columns */
    size_t stride;    /* bytes from one to the next */
    float *y;
    int n_out, n_in, n_cols;
} product;

/* Of the same columns with matrices of one type and width: blocks of threads of the same z have the same one. */
typedef struct products {
    product of[IG_CUDA_MATRICES];
} products;

static __device__ __forceinline__ void put(const product *m, int row, int first, float *sum) {
    int lane = (int)threadIdx.x;
    for (int c = 0; c < COLUMNS; c += IG_SUMS) {
        if (first + c >= m->n_cols) break;
        float total = ig_warp_sums(sum + c, lane);
        int column = first + c + lane / 8;
        if (lane % 8 == 0 && column < m->n_cols)
            m->y[(size_t)column * (size_t)m->n_out + (size_t)row] = total + (m->bias ? m->bias[row] : 0.0f);
    }
}

/* A part of a row times that of a column. */
static __device__ __forceinline__ float multiply_part(const ig_part *p, const uint8_t *column, int n_in, int i) {
    const int *q = (const int *)(column + i * IG_PART);
    int dot = 0, sum = 0;
    for (int j = 0; j < 4; j++) {
        dot = __dp4a(p->code[j], q[j], dot);
        sum = __dp4a(0x01010101, q[j], sum);
    }
    float d = ((const float *)(column + n_in))[i / 2];
    return d * fmaf(p->scale, (float)dot, p->min * (float)sum);
}

template <int type, int block, int bytes>
static __global__ void multiply_codes(products all) {
    const product m = all.of[blockIdx.z];
    int row = (int)(blockIdx.x * ROWS + threadIdx.y), first = (int)blockIdx.y * COLUMNS;
    if (row >= m.n_out) return;
    const uint8_t *w = m.w + (size_t)row * m.row_bytes;
    float sum[COLUMNS] = {0};
    for (int i = (int)threadIdx.x; i < m.n_in / IG_PART; i += IG_WARP) {
        ig_part p;
        ig_unpack<type>(&p, w + (size_t)(i / (block / IG_PART)) * bytes, i % (block / IG_PART));
        for (int c = 0; c < COLUMNS; c++)
            if (first + c < m.n_cols) sum[c] += multiply_part(&p, m.x + (size_t)(first + c) * m.stride, m.n_in, i);
    }
    put(&m, row, first, sum);
}

template <int type, int block, int bytes>
static __global__ void multiply_floats(products all) {
    const product m = all.of[blockIdx.z];
    int row = (int)(blockIdx.x * ROWS + threadIdx.y), first = (int)blockIdx.y * COLUMNS;
    if (row >= m.n_out) return;
    const uint8_t *w = m.w + (size_t)row * m.row_bytes;
    float sum[COLUMNS] = {0};
    for (int i = (int)threadIdx.x; i < m.n_in; i += IG_WARP) {
        float v = ig_element<type>(w, i);
        for (int c = 0; c < COLUMNS; c++)
            if (first + c < m.n_cols)
                sum[c] = fmaf(v, ((const float *)(m.x + (size_t)(first + c) * m.stride))[i], sum[c]);
    }
    put(&m, row, first, sum);
}

/* ---- products with many columns ------------------------------------------------------------ */

/* IG_PART numbers of a row of n from number `at` on; what is behind its end is 0. */
typedef void (*numbers_fn)(float *out, const uint8_t *row, int at, int n);

template <int type, int block, int bytes>
static __device__ __forceinline__ void numbers_of_codes(float *out, const uint8_t *row, int at, int n) {
    ig_part p;
    (void)n;
    ig_unpack<type>(&p, row + (size_t)(at / block) * bytes, at % block / IG_PART);
    for (int j = 0; j < IG_PART; j++) out[j] = fmaf(p.scale, (float)ig_code(&p, j), p.min);
}

template <int type>
static __device__ __forceinline__ void numbers_of_floats(float *out, const uint8_t *row, int at, int n) {
    for (int j = 0; j < IG_PART; j++) out[j] = at + j < n ? ig_element<type>(row, at + j) : 0.0f;
}

/* Of 8 numbers, in 16 bits. */
static __device__ __forceinline__ uint4 halves_of(const float *v) {
    uint32_t two[4];
    for (int j = 0; j < 4; j++) two[j] = ig_pack(ig_to_half(v[2 * j]), ig_to_half(v[2 * j + 1]));
    return uint4{two[0], two[1], two[2], two[3]};
}

/* Elements [at, at + STEP) of the block's columns and rows, each thread 16 numbers of both; 0 for those that are none.
 */
template <numbers_fn numbers>
static __device__ __forceinline__ void load_step(uint16_t *columns, uint16_t *rows, const product *m, int at) {
    int thread = (int)(threadIdx.y * IG_WARP + threadIdx.x), i = thread / 2, part = thread % 2 * IG_PART;
    int column = (int)blockIdx.y * SIDE + i, row = (int)blockIdx.x * SIDE + i;
    uint4 none = {0, 0, 0, 0}, *to = (uint4 *)(columns + i * STRIDE + part), *w = (uint4 *)(rows + i * STRIDE + part);
    const uint4 *x = (const uint4 *)(m->x + (size_t)column * m->stride + (size_t)(at + part) * 2);
    float v[IG_PART] = {};
    if (row < m->n_out) numbers(v, m->w + (size_t)row * m->row_bytes, at + part, m->n_in);
    for (int j = 0; j < 2; j++) {
        to[j] = column < m->n_cols ? x[j] : none;
        w[j] = halves_of(v + 8 * j);
    }
}

/* What a lane has of a warp's sums: y of two columns and two rows of the matrix. */
static __device__ __forceinline__ void put_tile(const product *m, const float *sum, int column, int row) {
    const size_t scale = (size_t)((m->n_in + STEP - 1) / STEP * STEP) * 2;
    for (int i = 0; i < 4; i++) {
        int c = column + i / 2 * 8, r = row + i % 2;
        if (c >= m->n_cols || r >= m->n_out) continue;
        float y = sum[i] * *(const float *)(m->x + (size_t)c * m->stride + scale);
        m->y[(size_t)c * (size_t)m->n_out + (size_t)r] = y + (m->bias ? m->bias[r] : 0.0f);
    }
}

template <numbers_fn numbers>
static __global__ void multiply_many(products all) {
    const product m = all.of[blockIdx.z];
    if ((int)blockIdx.x * SIDE >= m.n_out) return;
    IG_SHARED(uint4, steps);
    uint16_t *columns = (uint16_t *)steps, *rows = columns + SIDE * STRIDE;
    int lane = (int)threadIdx.x, column = (int)threadIdx.y / 2 * WARP_SIDE, row = (int)threadIdx.y % 2 * WARP_SIDE;
    float sum[A_TILES][B_TILES][4] = {};
    for (int at = 0; at < m.n_in; at += STEP) {
        __syncthreads();
        load_step<numbers>(columns, rows, &m, at);
        __syncthreads();
        for (int i = 0; i < STEP; i += IG_MMA_DEPTH) {
            uint32_t a[A_TILES][4], b[B_TILES][2];
            for (int t = 0; t < A_TILES; t++)
                ig_mma_rows(a[t], columns + (column + t * IG_MMA_ROWS) * STRIDE + i, STRIDE, lane);
            for (int t = 0; t < B_TILES; t++)
                ig_mma_cols(b[t], rows + (row + t * IG_MMA_COLS) * STRIDE + i, STRIDE, lane);
            for (int t = 0; t < A_TILES; t++)
                for (int u = 0; u < B_TILES; u++) ig_mma(sum[t][u], a[t], b[u]);
        }
    }
    column += (int)blockIdx.y * SIDE + lane / 4;
    row += (int)blockIdx.x * SIDE + lane % 4 * 2;
    for (int t = 0; t < A_TILES; t++)
        for (int u = 0; u < B_TILES; u++) put_tile(&m, sum[t][u], column + t * IG_MMA_ROWS, row + u * IG_MMA_COLS);
}

/* ---- embeddings ---------------------------------------------------------------------------- */

typedef struct lookup {
    const uint8_t *w;
    size_t row_bytes;
    const int32_t *ids;
    float *out;
    int n;
    bool add;
} lookup;

template <int type, int block, int bytes>
static __global__ void embed_codes(lookup m) {
    const uint8_t *w = m.w + (size_t)m.ids[blockIdx.x] * m.row_bytes;
    float *out = m.out + (size_t)blockIdx.x * (size_t)m.n;
    for (int i = (int)threadIdx.x; i < m.n / IG_PART; i += THREADS) {
        ig_part p;
        ig_unpack<type>(&p, w + (size_t)(i / (block / IG_PART)) * bytes, i % (block / IG_PART));
        for (int j = 0; j < IG_PART; j++) {
            float v = fmaf(p.scale, (float)ig_code(&p, j), p.min);
            out[i * IG_PART + j] = m.add ? out[i * IG_PART + j] + v : v;
        }
    }
}

template <int type, int block, int bytes>
static __global__ void embed_floats(lookup m) {
    const uint8_t *w = m.w + (size_t)m.ids[blockIdx.x] * m.row_bytes;
    float *out = m.out + (size_t)blockIdx.x * (size_t)m.n;
    for (int i = (int)threadIdx.x; i < m.n; i += THREADS) {
        float v = ig_element<type>(w, i);
        out[i] = m.add ? out[i] + v : v;
    }
}

/* ---- by type ---------------------------------------------------------------------------------- */

typedef struct kernels {
    void (*multiply)(products all);
    void (*multiply_many)(products all);
    void (*embed)(lookup m);
} kernels;

#define CODES(type, block, bytes)                                                                               \
    case type:                                                                                                  \
        return kernels{multiply_codes<type, block, bytes>, multiply_many<numbers_of_codes<type, block, bytes>>, \
                       embed_codes<type, block, bytes>};
#define FLOATS(type) \
    case type:       \
        return kernels{multiply_floats<type, 1, 1>, multiply_many<numbers_of_floats<type>>, embed_floats<type, 1, 1>};

static kernels kernels_of(ig_type type) {
    switch (type) {
        FLOATS(IG_TYPE_F32)
        FLOATS(IG_TYPE_F16)
        FLOATS(IG_TYPE_BF16)
        CODES(IG_TYPE_Q4_0, 32, 18)
        CODES(IG_TYPE_Q4_1, 32, 20)
        CODES(IG_TYPE_Q5_0, 32, 22)
        CODES(IG_TYPE_Q5_1, 32, 24)
        CODES(IG_TYPE_Q8_0, 32, 34)
        CODES(IG_TYPE_Q2_K, 256, 84)
        CODES(IG_TYPE_Q3_K, 256, 110)
        CODES(IG_TYPE_Q4_K, 256, 144)
        CODES(IG_TYPE_Q5_K, 256, 176)
        CODES(IG_TYPE_Q6_K, 256, 210)
        CODES(IG_TYPE_IQ4_NL, 32, 18)
        CODES(IG_TYPE_IQ4_XS, 256, 136)
        case IG_TYPE_COUNT:
            break;
    }
    return kernels{NULL, NULL, NULL};
}

/* Columns `stride` bytes apart; the largest matrix is *n_out rows. */
static products products_of(int *n_out, float *const *y, const ig_matrix *m, int n_m, const void *x, size_t stride,
                            int n_cols) {
    products all = {};
    *n_out = 0;
    for (int i = 0; i < n_m; i++) {
        all.of[i] = product{(const uint8_t *)m[i].w,
                            m[i].row_bytes,
                            m[i].bias,
                            (const uint8_t *)x,
                            stride,
                            y[i],
                            m[i].n_out,
                            m[i].n_in,
                            n_cols};
        if (m[i].n_out > *n_out) *n_out = m[i].n_out;
    }
    return all;
}

static unsigned shares(int n, int each) { return (unsigned)((n + each - 1) / each); }

void ig_cuda_matmul(ig_queue q, float *const *y, const ig_matrix *m, int n_m, const void *x, int n_cols) {
    size_t stride = ig_cuda_has_codes(m) ? ig_gpu_act_bytes(m->n_in) : (size_t)m->n_in * sizeof(float);
    int n_out;
    products all = products_of(&n_out, y, m, n_m, x, stride, n_cols);
    dim3 grid(shares(n_out, ROWS), shares(n_cols, COLUMNS), (unsigned)n_m), block(IG_WARP, ROWS);
    ig_launch(kernels_of(m->type).multiply, grid, block, 0, q, all);
}

void ig_cuda_matmul_many(ig_queue q, float *const *y, const ig_matrix *m, int n_m, const uint8_t *act, int n_cols) {
    int n_out;
    products all = products_of(&n_out, y, m, n_m, act, ig_gpu_half_bytes(m->n_in), n_cols);
    dim3 grid(shares(n_out, SIDE), shares(n_cols, SIDE), (unsigned)n_m), block(IG_WARP, THREADS / IG_WARP);
    ig_launch(kernels_of(m->type).multiply_many, grid, block, 2 * SIDE * STRIDE * sizeof(uint16_t), q, all);
}

void ig_cuda_embed(ig_queue q, float *out, const ig_matrix *m, const int32_t *ids, int n_rows, bool add) {
    lookup l = {(const uint8_t *)m->w, m->row_bytes, ids, out, m->n_in, add};
    ig_launch(kernels_of(m->type).embed, dim3((unsigned)n_rows), dim3(THREADS), 0, q, l);
}
