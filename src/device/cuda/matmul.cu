/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products and embeddings.
 *
 * Few columns, those of decode steps: what counts is that enough loads of weights are under way. Two rows of the matrix
 * and 1, 2, 4 or 8 columns are a warp's, or two or four warps' if rows are long. Each lane loads its next piece of both
 * rows, as wide as it goes, before it computes with any, and columns once for both. Lanes' sums are added in a fixed
 * tree, and what a lane takes depends on the matrix alone, so that a column's result is the same whichever share the
 * call, and in how many. Quantised weights meet activations of 8 bits (IG_ACT_Q8 of kernel/kernel.h) by dot products of
 * bytes, floats meet floats.
 *
 * Many, those of prompts: weights of any type become 16-bit floats in shared memory and meet activations of 16 bits on
 * tensor cores, SIDE columns and SIDE rows of the matrix in a block of threads. A column is scaled by a power of two so
 * that its largest number is in 2^14 .. 2^15: what is 2^28 times smaller still has all its bits.
 */
#include "device/cuda/kernels.cuh"
#include "device/cuda/mma.cuh"
#include "device/cuda/weights.cuh"

enum {
    COLUMNS = 8, /* of a warp at most: there are instances for 1, 2, 4 and 8 */
    ROWS = 2,    /* of a warp */
    WARPS = 4,
    THREADS = WARPS * IG_WARP,
    GROUP = 32, /* activations that share a scale */
    PAIR = 2 * IG_PART,
    FLOATS = 8 /* that a lane loads at a time */
};
enum {
    SIDE = 64,            /* columns, and rows of the matrix, of a block of many */
    WARP_SIDE = 32,       /* of a warp, of which there are 2 x 2 */
    STEP = IG_GPU_HALVES, /* elements of each that are in shared memory at a time */
    STRIDE = STEP + IG_MMA_GAP,
    A_TILES = WARP_SIDE / IG_MMA_ROWS,
    B_TILES = WARP_SIDE / IG_MMA_COLS
};

/* ---- activations -------------------------------------------------------------------- */

/* What goes with the codes of a part: numbers are scale * code, and the codes add up to this sum. */
typedef struct alignas(8) act_line {
    float scale, sum;
} act_line;

typedef struct act_part {
    uint32_t code[4]; /* as those of ig_part */
    act_line line;
} act_part;

/* A warp is a group: x ~ scale * code. The order of magnitudes is that of their bits, NaN above all. */
static __global__ void quantise(uint8_t *act, const float *x, int n, size_t stride) {
    ig_begin();
    int lane = (int)threadIdx.x, g = (int)(blockIdx.x * WARPS + threadIdx.y);
    if (g >= n / GROUP) return;
    const float least = 0x1p-100f; /* magnitudes below count as zero: the inverse must be finite */
    float v = x[(size_t)blockIdx.y * (size_t)n + (size_t)(g * GROUP + lane)];
    float max = __uint_as_float(ig_warp_max(__float_as_uint(v) & 0x7fffffffu));
    uint8_t *column = act + (size_t)blockIdx.y * stride;
    bool fits = max > least && max < INFINITY;
    int code = fits ? (int)rintf(v * (127.0f / max)) : 0, sum = code;
    for (int bit = IG_PART / 2; bit; bit /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, bit);
    column[g * GROUP + lane] = (uint8_t)code;
    float scale = fits ? max / 127.0f : max <= least ? 0.0f : NAN;
    if (lane % IG_PART == 0) ((act_line *)(column + n))[(g * GROUP + lane) / IG_PART] = act_line{scale, (float)sum};
}

void ig_cuda_quantise(ig_queue q, uint8_t *act, const float *x, int n, int n_cols) {
    dim3 grid((unsigned)(n / GROUP + WARPS - 1) / WARPS, (unsigned)n_cols), block(IG_WARP, WARPS);
    ig_launch(quantise, grid, block, 0, q, act, x, n, ig_gpu_act_bytes(n));
}

/* A block of threads is a column, whose scale is that of the largest magnitude; as above NaN is above all. */
static __global__ void halve(uint8_t *act, const float *x, int n, size_t stride) {
    ig_begin();
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

/* Rows and columns, n of these, that the warps of the same threadIdx.z share. Where there are no more, the last one is
 * taken again, to no use, so that loads need no conditions. */
template <int n>
struct tile {
    int row, column;
    const uint8_t *w[ROWS], *x[n];
    float sum[(ROWS * n + IG_SUMS - 1) / IG_SUMS * IG_SUMS]; /* [ROWS][n] */
};

static __device__ __forceinline__ int least(int a, int b) { return a < b ? a : b; }

template <int n>
static __device__ __forceinline__ tile<n> begin_tile(const product *m) {
    tile<n> t = {};
    t.row = (int)(blockIdx.x * blockDim.z + threadIdx.z) * ROWS;
    t.column = (int)blockIdx.y * n;
    for (int r = 0; r < ROWS; r++) t.w[r] = m->w + (size_t)least(t.row + r, m->n_out - 1) * m->row_bytes;
    for (int c = 0; c < n; c++) t.x[c] = m->x + (size_t)least(t.column + c, m->n_cols - 1) * m->stride;
    return t;
}

/* Adds up the sums of lanes, then those of warps. */
template <int n>
static __device__ __forceinline__ void end_tile(const tile<n> *t, const product *m) {
    enum { SUMS = sizeof t->sum / sizeof *t->sum };
    IG_SHARED(float, totals);
    int lane = (int)threadIdx.x, first = (int)(threadIdx.z * blockDim.y);
    for (int i = 0; i < SUMS; i += IG_SUMS) {
        float total = ig_warp_sums(t->sum + i, lane);
        if (lane % 8 == 0) totals[(first + (int)threadIdx.y) * SUMS + i + lane / 8] = total;
    }
    __syncthreads();
    int row = t->row + lane / n, column = t->column + lane % n;
    if (threadIdx.y || lane >= ROWS * n || row >= m->n_out || column >= m->n_cols) return;
    float total = totals[first * SUMS + lane];
    for (int i = 1; i < WARPS; i++) total += i < (int)blockDim.y ? totals[(first + i) * SUMS + lane] : 0.0f;
    m->y[(size_t)column * (size_t)m->n_out + (size_t)row] = total + (m->bias ? m->bias[row] : 0.0f);
}

static __device__ __forceinline__ void fetch_part(act_part *out, const uint8_t *column, int n, unsigned i) {
    ig_load16<16>(out->code, column + i * IG_PART);
    out->line = ((const act_line *)(column + n))[i];
}

static __device__ __forceinline__ float add_part(float sum, const ig_part *w, const act_part *x) {
    int dot = 0;
    for (int j = 0; j < 4; j++) dot = __dp4a((int)w->code[j], (int)x->code[j], dot);
    return fmaf(x->line.scale, fmaf(w->scale, (float)dot, w->min * x->line.sum), sum);
}

/* A lane takes pairs of parts that are `apart` in their block, so that they have bytes in common: by `|` the compiler
 * sees that, and loads these once. Loads of both rows come before what uses them. */
template <int type, int block, int bytes, int apart, int n>
static __global__ void multiply_codes(products all) {
    ig_begin();
    const product m = all.of[blockIdx.z];
    if ((int)(blockIdx.x * blockDim.z) * ROWS >= m.n_out) return;
    tile<n> t = begin_tile<n>(&m);
    unsigned lane = threadIdx.y * IG_WARP + threadIdx.x, lanes = blockDim.y * IG_WARP;
    for (unsigned i = lane; i < (unsigned)m.n_in / PAIR; i += lanes) {
        unsigned b = i / (block / PAIR), pair = i % (block / PAIR), first = pair / apart * apart * 2 | pair % apart;
        const unsigned part[] = {first, first | apart};
        ig_raw raw[ROWS][2];
        ig_part w[ROWS][2];
        for (int r = 0; r < ROWS; r++)
            for (int k = 0; k < 2; k++) ig_fetch<type>(&raw[r][k], t.w[r] + b * bytes, (int)part[k]);
        for (int r = 0; r < ROWS; r++)
            for (int k = 0; k < 2; k++) ig_unpack<type>(&w[r][k], &raw[r][k], (int)part[k]);
        IG_UNROLL
        for (int c = 0; c < n; c++) {
            act_part x[2];
            for (int k = 0; k < 2; k++) fetch_part(&x[k], t.x[c], m.n_in, b * (block / IG_PART) + part[k]);
            for (int r = 0; r < ROWS; r++)
                for (int k = 0; k < 2; k++) t.sum[r * n + c] = add_part(t.sum[r * n + c], &w[r][k], &x[k]);
        }
    }
    end_tile(&t, &m);
}

/* A lane takes pieces of `each`, FLOATS or 1. */
template <int type, int each, int n>
static __global__ void multiply_floats(products all) {
    ig_begin();
    const product m = all.of[blockIdx.z];
    if ((int)(blockIdx.x * blockDim.z) * ROWS >= m.n_out) return;
    tile<n> t = begin_tile<n>(&m);
    int lane = (int)(threadIdx.y * IG_WARP + threadIdx.x), lanes = (int)blockDim.y * IG_WARP;
    for (int i = lane * each; i < m.n_in; i += lanes * each) {
        float w[ROWS][each], x[each];
        for (int r = 0; r < ROWS; r++) ig_elements<type, each>(w[r], t.w[r], i);
        IG_UNROLL
        for (int c = 0; c < n; c++) {
            ig_elements<IG_TYPE_F32, each>(x, t.x[c], i);
            for (int r = 0; r < ROWS; r++)
                for (int j = 0; j < each; j++) t.sum[r * n + c] = fmaf(w[r][j], x[j], t.sum[r * n + c]);
        }
    }
    end_tile(&t, &m);
}

/* ---- products with many columns ------------------------------------------------------------ */

/* IG_PART numbers of a row of n from number `at` on; what is behind its end is 0. */
typedef void (*numbers_fn)(float *out, const uint8_t *row, int at, int n);

template <int type, int block, int bytes>
static __device__ __forceinline__ void numbers_of_codes(float *out, const uint8_t *row, int at, int n) {
    (void)n;
    ig_part p = ig_part_of<type>(row + (size_t)(at / block) * bytes, at % block / IG_PART);
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
    ig_begin();
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
    ig_begin();
    const uint8_t *w = m.w + (size_t)m.ids[blockIdx.x] * m.row_bytes;
    float *out = m.out + (size_t)blockIdx.x * (size_t)m.n;
    for (int i = (int)threadIdx.x; i < m.n / IG_PART; i += THREADS) {
        ig_part p = ig_part_of<type>(w + (size_t)(i / (block / IG_PART)) * bytes, i % (block / IG_PART));
        for (int j = 0; j < IG_PART; j++) {
            float v = fmaf(p.scale, (float)ig_code(&p, j), p.min);
            out[i * IG_PART + j] = m.add ? out[i * IG_PART + j] + v : v;
        }
    }
}

template <int type>
static __global__ void embed_floats(lookup m) {
    ig_begin();
    const uint8_t *w = m.w + (size_t)m.ids[blockIdx.x] * m.row_bytes;
    float *out = m.out + (size_t)blockIdx.x * (size_t)m.n;
    for (int i = (int)threadIdx.x; i < m.n; i += THREADS) {
        float v = ig_element<type>(w, i);
        out[i] = m.add ? out[i] + v : v;
    }
}

/* ---- by type ---------------------------------------------------------------------------------- */

typedef struct kernels {
    void (*multiply[4])(products all);     /* of 1, 2, 4 and 8 columns */
    void (*multiply_ragged)(products all); /* of COLUMNS, where rows are no multiple of FLOATS */
    void (*multiply_many)(products all);
    void (*embed)(lookup m);
} kernels;

template <int type, int block, int bytes, int apart>
static kernels kernels_of_codes(void) {
    return kernels{{multiply_codes<type, block, bytes, apart, 1>, multiply_codes<type, block, bytes, apart, 2>,
                    multiply_codes<type, block, bytes, apart, 4>, multiply_codes<type, block, bytes, apart, COLUMNS>},
                   NULL,
                   multiply_many<numbers_of_codes<type, block, bytes>>,
                   embed_codes<type, block, bytes>};
}

template <int type>
static kernels kernels_of_floats(void) {
    return kernels{{multiply_floats<type, FLOATS, 1>, multiply_floats<type, FLOATS, 2>,
                    multiply_floats<type, FLOATS, 4>, multiply_floats<type, FLOATS, COLUMNS>},
                   multiply_floats<type, 1, COLUMNS>,
                   multiply_many<numbers_of_floats<type>>,
                   embed_floats<type>};
}

static kernels kernels_of(ig_type type) {
    switch (type) {
        case IG_TYPE_F32:
            return kernels_of_floats<IG_TYPE_F32>();
        case IG_TYPE_F16:
            return kernels_of_floats<IG_TYPE_F16>();
        case IG_TYPE_BF16:
            return kernels_of_floats<IG_TYPE_BF16>();
        case IG_TYPE_Q4_0:
            return kernels_of_codes<IG_TYPE_Q4_0, 32, 18, 1>();
        case IG_TYPE_Q4_1:
            return kernels_of_codes<IG_TYPE_Q4_1, 32, 20, 1>();
        case IG_TYPE_Q5_0:
            return kernels_of_codes<IG_TYPE_Q5_0, 32, 22, 1>();
        case IG_TYPE_Q5_1:
            return kernels_of_codes<IG_TYPE_Q5_1, 32, 24, 1>();
        case IG_TYPE_Q8_0:
            return kernels_of_codes<IG_TYPE_Q8_0, 32, 34, 1>();
        case IG_TYPE_Q2_K:
            return kernels_of_codes<IG_TYPE_Q2_K, 256, 84, 2>();
        case IG_TYPE_Q3_K:
            return kernels_of_codes<IG_TYPE_Q3_K, 256, 110, 2>();
        case IG_TYPE_Q4_K:
            return kernels_of_codes<IG_TYPE_Q4_K, 256, 144, 2>();
        case IG_TYPE_Q5_K:
            return kernels_of_codes<IG_TYPE_Q5_K, 256, 176, 2>();
        case IG_TYPE_Q6_K:
            return kernels_of_codes<IG_TYPE_Q6_K, 256, 210, 4>();
        case IG_TYPE_IQ4_NL:
            return kernels_of_codes<IG_TYPE_IQ4_NL, 32, 18, 1>();
        case IG_TYPE_IQ4_XS:
            return kernels_of_codes<IG_TYPE_IQ4_XS, 256, 136, 1>();
        case IG_TYPE_COUNT:
            break;
    }
    return kernels{};
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
    bool codes = ig_cuda_has_codes(m);
    size_t stride = codes ? ig_gpu_act_bytes(m->n_in) : (size_t)m->n_in * sizeof(float);
    kernels k = kernels_of(m->type);
    int n_out, size = 0 /* 1 << size columns */, pieces = m->n_in / (codes ? PAIR : FLOATS);
    products all = products_of(&n_out, y, m, n_m, x, stride, n_cols);
    while (size < 3 && 1 << size < n_cols) size++;
    if (!codes && m->n_in % FLOATS) size = 3, k.multiply[size] = k.multiply_ragged;
    unsigned warps = 1;
    while (warps < WARPS && (int)warps * 2 * IG_WARP <= pieces) warps *= 2;
    dim3 block(IG_WARP, warps, WARPS / warps);
    dim3 grid(shares(n_out, ROWS * (int)block.z), shares(n_cols, 1 << size), (unsigned)n_m);
    ig_launch(k.multiply[size], grid, block, WARPS * ROWS * COLUMNS * sizeof(float), q, all);
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
