/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products and embeddings. A warp is a row of the matrix and up to COLUMNS columns: each lane takes every 32nd
 * part of the row, and the lanes' sums are added in a fixed tree, so that a column's result is the same whichever share
 * the call. Quantised weights meet activations of 8 bits (IG_ACT_Q8 of kernel/kernel.h) by dot products of bytes,
 * floats meet floats. Prompts go through the same kernel, COLUMNS columns at a time.
 */
#include "device/cuda/kernels.cuh"
#include "device/cuda/weights.cuh"

enum { COLUMNS = 8, ROWS = 4 /* warps of a block */, GROUP = 32, THREADS = 128 };

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

void ig_cuda_quantise(cudaStream_t s, uint8_t *act, const float *x, int n, int n_cols) {
    dim3 grid((unsigned)(n / GROUP + ROWS - 1) / ROWS, (unsigned)n_cols), block(IG_WARP, ROWS);
    IG_LAUNCH(quantise, grid, block, 0, s, act, x, n, ig_gpu_act_bytes(n));
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
static __global__ void multiply_codes(product m) {
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
static __global__ void multiply_floats(product m) {
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
            float v = fmaf(p.scale, (float)(int8_t)(p.code[j / 4] >> 8 * (j % 4)), p.min);
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
    void (*multiply)(product m);
    void (*embed)(lookup m);
} kernels;

#define CODES(type, block, bytes) \
    case type:                    \
        return kernels{multiply_codes<type, block, bytes>, embed_codes<type, block, bytes>};
#define FLOATS(type) \
    case type:       \
        return kernels{multiply_floats<type, 1, 1>, embed_floats<type, 1, 1>};

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
        case IG_TYPE_COUNT:
            break;
    }
    return kernels{NULL, NULL};
}

void ig_cuda_matmul(cudaStream_t s, float *y, const ig_matrix *m, const void *x, int n_cols) {
    bool floats = m->type == IG_TYPE_F32 || m->type == IG_TYPE_F16 || m->type == IG_TYPE_BF16;
    product p = {(const uint8_t *)m->w,
                 m->row_bytes,
                 m->bias,
                 (const uint8_t *)x,
                 floats ? (size_t)m->n_in * sizeof(float) : ig_gpu_act_bytes(m->n_in),
                 y,
                 m->n_out,
                 m->n_in,
                 n_cols};
    dim3 grid((unsigned)(m->n_out + ROWS - 1) / ROWS, (unsigned)(n_cols + COLUMNS - 1) / COLUMNS), block(IG_WARP, ROWS);
    IG_LAUNCH(kernels_of(m->type).multiply, grid, block, 0, s, p);
}

void ig_cuda_embed(cudaStream_t s, float *out, const ig_matrix *m, const int32_t *ids, int n_rows, bool add) {
    lookup l = {(const uint8_t *)m->w, m->row_bytes, ids, out, m->n_in, add};
    IG_LAUNCH(kernels_of(m->type).embed, dim3((unsigned)n_rows), dim3(THREADS), 0, s, l);
}
