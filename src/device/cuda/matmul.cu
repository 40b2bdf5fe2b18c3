/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products of few columns, those of decode steps, and embeddings.
 *
 * What counts is that enough loads of weights are under way. Two rows of the matrix and 1, 2, 4 or 8 columns are a
 * warp's, or two or four warps' if rows are long. Each lane loads its next piece of both rows, as wide as it goes,
 * before it computes with any, and columns once for both. Lanes' sums are added in a fixed tree, and what a lane takes
 * depends on the matrix alone, so that a column's result is the same whichever share the call, and in how many.
 * Quantised weights meet activations of 8 bits (codes.cuh) by dot products of bytes, floats meet floats.
 */
#include "device/cuda/matmul.cuh"

enum {
    COLUMNS = 8, /* of a warp at most: there are instances for 1, 2, 4 and 8 */
    ROWS = 2,    /* of a warp */
    WARPS = 4,
    THREADS = WARPS * IG_WARP,
    PAIR = 2 * IG_PART,
    FLOATS = 8 /* that a lane loads at a time */
};

/* ---- activations -------------------------------------------------------------------- */

typedef struct act_part {
    uint32_t code[4]; /* as those of ig_part */
    ig_act_line line;
} act_part;

/* A warp is a group. */
static __global__ void quantise(ig_act_codes to, const float *x, size_t apart, int n) {
    ig_begin();
    int g = (int)(blockIdx.x * WARPS + threadIdx.y), i = g * IG_CODE_GROUP + (int)threadIdx.x;
    if (g >= n / IG_CODE_GROUP) return;
    size_t column = blockIdx.y;
    ig_put_code(to.act + column * to.stride, n, i, x[column * apart + (size_t)i]);
}

void ig_cuda_quantise_apart(ig_queue q, uint8_t *act, const float *x, size_t apart, int n, int n_cols) {
    ig_act_codes to = {act, ig_gpu_act_bytes(n)};
    dim3 grid((unsigned)(n / IG_CODE_GROUP + WARPS - 1) / WARPS, (unsigned)n_cols), block(IG_WARP, WARPS);
    ig_launch(quantise, grid, block, 0, q, to, x, apart, n);
}

void ig_cuda_quantise(ig_queue q, uint8_t *act, const float *x, int n, int n_cols) {
    ig_act_codes to = {act, ig_gpu_act_bytes(n)};
    if (ig_cuda_norm_codes(q, to, x, n, n_cols) || ig_cuda_activate_codes(q, to, x, n, n_cols) ||
        ig_cuda_merge_codes(q, to, x, n, n_cols))
        return;
    ig_cuda_quantise_apart(q, act, x, (size_t)n, n, n_cols);
}

/* ---- products -------------------------------------------------------------------------- */

/* Rows and columns, n of these, that the warps of the same threadIdx.z share. Where there are no more, the last one is
 * taken again, to no use, so that loads need no conditions. */
template <int n>
struct tile {
    int row, column;
    const uint8_t *w[ROWS], *x[n];
    float sum[(ROWS * n + IG_SUMS - 1) / IG_SUMS * IG_SUMS]; /* [ROWS][n] */
};

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
    m->y[(size_t)column * (size_t)m->y_column + (size_t)row] = total * m->scale + (m->bias ? m->bias[row] : 0.0f);
}

static __device__ __forceinline__ void fetch_part(act_part *out, const uint8_t *column, int n, unsigned i) {
    ig_load16<16>(out->code, column + i * IG_PART);
    out->line = ((const ig_act_line *)(column + n))[i];
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
    const product m = product_number(&all, (int)blockIdx.z);
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
    const product m = product_number(&all, (int)blockIdx.z);
    if ((int)(blockIdx.x * blockDim.z) * ROWS >= m.n_out) return;
    tile<n> t = begin_tile<n>(&m);
    int lane = (int)(threadIdx.y * IG_WARP + threadIdx.x), lanes = (int)blockDim.y * IG_WARP;
    for (int i = lane * each; i < m.n_in; i += lanes * each) {
        float w[ROWS][each], x[each];
        for (int r = 0; r < ROWS; r++) {
            ig_elements<type, each>(w[r], t.w[r], i);
            if constexpr (type != IG_TYPE_F8_E4M3) continue;
            float scale = block_scale(&m.blocks, least(t.row + r, m.n_out - 1), i);
            for (int j = 0; j < each; j++) w[r][j] *= scale;
        }
        IG_UNROLL
        for (int c = 0; c < n; c++) {
            ig_elements<IG_TYPE_F32, each>(x, t.x[c], i);
            for (int r = 0; r < ROWS; r++)
                for (int j = 0; j < each; j++) t.sum[r * n + c] = fmaf(w[r][j], x[j], t.sum[r * n + c]);
        }
    }
    end_tile(&t, &m);
}

/* ---- embeddings ---------------------------------------------------------------------------- */

typedef struct lookup {
    const uint8_t *w;
    size_t row_bytes;
    const int32_t *ids;
    float *out;
    float scale;
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
            float v = m.scale * ig_number(&p, j);
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
        float v = m.scale * ig_element<type>(w, i);
        out[i] = m.add ? out[i] + v : v;
    }
}

/* ---- by type ---------------------------------------------------------------------------------- */

typedef struct kernels {
    void (*multiply[4])(products all);     /* of 1, 2, 4 and 8 columns */
    void (*multiply_ragged)(products all); /* of COLUMNS, where rows are no multiple of FLOATS */
    void (*embed)(lookup m);
} kernels;

template <int type, int block, int bytes, int apart>
static kernels kernels_of_codes(void) {
    return kernels{{multiply_codes<type, block, bytes, apart, 1>, multiply_codes<type, block, bytes, apart, 2>,
                    multiply_codes<type, block, bytes, apart, 4>, multiply_codes<type, block, bytes, apart, COLUMNS>},
                   NULL,
                   embed_codes<type, block, bytes>};
}

template <int type>
static kernels kernels_of_floats(void) {
    return kernels{{multiply_floats<type, FLOATS, 1>, multiply_floats<type, FLOATS, 2>,
                    multiply_floats<type, FLOATS, 4>, multiply_floats<type, FLOATS, COLUMNS>},
                   multiply_floats<type, 1, COLUMNS>,
                   embed_floats<type>};
}

KERNELS_BY_TYPE

/* Of n_m matrices, or heads. */
static void multiply(ig_queue q, const ig_matrix *m, const products *all, int n_m, int n_out, int n_cols) {
    bool codes = ig_cuda_has_codes(m);
    kernels k = kernels_of(m->type);
    int size = 0 /* 1 << size columns */, pieces = m->n_in / (codes ? PAIR : FLOATS);
    while (size < 3 && 1 << size < n_cols) size++;
    if (!codes && m->n_in % FLOATS) size = 3, k.multiply[size] = k.multiply_ragged;
    unsigned warps = 1;
    while (warps < WARPS && (int)warps * 2 * IG_WARP <= pieces) warps *= 2;
    dim3 block(IG_WARP, warps, WARPS / warps);
    dim3 grid(shares(n_out, ROWS * (int)block.z), shares(n_cols, 1 << size), (unsigned)n_m);
    ig_launch(k.multiply[size], grid, block, WARPS * ROWS * COLUMNS * sizeof(float), q, *all);
}

void ig_cuda_matmul(ig_queue q, float *const *y, const ig_matrix *m, int n_m, const void *x, int n_cols) {
    size_t stride = ig_cuda_has_codes(m) ? ig_gpu_act_bytes(m->n_in) : (size_t)m->n_in * sizeof(float);
    int n_out;
    products all = products_of(&n_out, y, m, n_m, x, stride, n_cols);
    multiply(q, m, &all, n_m, n_out, n_cols);
}

void ig_cuda_matmul_heads(ig_queue q, const ig_head_product *p, const ig_matrix *m, uint8_t *act, int n_rows) {
    enum { MOST = 65535 /* columns of a launch */ };
    bool codes = ig_cuda_has_codes(m);
    size_t each = codes ? ig_gpu_act_bytes(m->n_in) : p->x_head * sizeof(float);
    for (int first = 0, n; first < n_rows; first += n) {
        ig_head_product of_rows = *p;
        size_t at = (size_t)first * (size_t)p->n_heads;
        n = least(n_rows - first, MOST / p->n_heads);
        of_rows.x += at * p->x_head;
        of_rows.y += at * p->y_head;
        if (codes) ig_cuda_quantise_apart(q, act, of_rows.x, p->x_head, m->n_in, n * p->n_heads);
        products all = products_of_heads(&of_rows, m, codes ? (const void *)act : of_rows.x, each, n);
        multiply(q, m, &all, p->n_heads, p->n, n);
    }
}

void ig_cuda_embed(ig_queue q, float *out, const ig_matrix *m, float scale, const int32_t *ids, int n_rows, bool add) {
    lookup l = {(const uint8_t *)m->w, m->row_bytes, ids, out, scale, m->n_in, add};
    ig_launch(kernels_of(m->type).embed, dim3((unsigned)n_rows), dim3(THREADS), 0, q, l);
}
