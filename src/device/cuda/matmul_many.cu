/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products of many columns, those of prompts.
 *
 * Weights of any type become 16-bit floats in shared memory and meet activations of 16 bits on tensor cores. A column
 * is scaled by a power of two so that its largest number is in 2^14 .. 2^15: what is 2^28 times smaller still has all
 * its bits. A block of threads has a square tile, as large as leaves work for all multiprocessors: the larger it is,
 * the less often is a number loaded. In each of them a result is the same chain of products. Of a matrix with few rows
 * it is the sum of several, shares of the matrix' width, that blocks of threads of their own compute: how many is said
 * by the matrix alone.
 */
#include "device/cuda/matmul.cuh"
#include "device/cuda/mma.cuh"

enum {
    THREADS = 128, /* but of tiles */
    FLOATS = 8,    /* that a thread loads at a time, as long as rows are multiples of STEP */
    SIDES = 3,     /* tiles have 32, 64 or 128 columns and as many rows of the matrix */
    LEAST_SIDE = 32,
    LEAST_WARP_ROWS = 32, /* of a warp, which has half of the rows if these are more, and half of the columns */
    STEP = IG_GPU_HALVES, /* elements of each that are multiplied between two barriers */
    STAGES = 4,           /* steps of columns that shared memory has room for; of weights it is 2 */
    EIGHT = 8,            /* elements of 16 bytes */
    PIECES = STEP / EIGHT,
    LEAST_SHARE = 512, /* of a matrix' width */
    MOST_SHARES = 8    /* of a matrix, and as make its rows no more than IG_GPU_SHARED_ROWS */
};

static constexpr int warp_rows(int side) { return side / 2 > LEAST_WARP_ROWS ? side / 2 : LEAST_WARP_ROWS; }
static constexpr int warps_of(int side) { return 2 * (side / warp_rows(side)); }
/* Blocks of threads of a multiprocessor, whose registers they share. */
static constexpr int resident(int side) {
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ < 800
    return side > 64 ? 1 : 2;
#else
    return side > 64 ? 2 : side > 32 ? 4 : 8;
#endif
}

/* ---- activations -------------------------------------------------------------------- */

/* A block of threads is a column, whose scale is that of the largest magnitude: by their bits, NaN above all. */
static __global__ void halve(uint8_t *act, const float *x, size_t apart, int n, size_t stride) {
    ig_begin();
    IG_SHARED(uint32_t, largest);
    int thread = (int)threadIdx.x, padded = (n + STEP - 1) / STEP * STEP;
    uint16_t *to = (uint16_t *)(act + (size_t)blockIdx.x * stride);
    uint32_t most = 0;
    x += (size_t)blockIdx.x * apart;
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

static void halve_apart(ig_queue q, uint8_t *act, const float *x, size_t apart, int n, int n_cols) {
    ig_launch(halve, dim3((unsigned)n_cols), dim3(THREADS), THREADS / IG_WARP * sizeof(uint32_t), q, act, x, apart, n,
              ig_gpu_half_bytes(n));
}

void ig_cuda_halve(ig_queue q, uint8_t *act, const float *x, int n, int n_cols) {
    halve_apart(q, act, x, (size_t)n, n, n_cols);
}

/* ---- products -------------------------------------------------------------------------- */

/* IG_PART numbers of a row as they lie in memory, on their way: codes, or floats. */
typedef struct weights {
    ig_raw codes;
    uint32_t floats[IG_PART]; /* those of 16 bits two in a word, those of 8 four */
} weights;

/* Those from number `at` on of a row of n. Floats come 16 bytes at a time where n is a multiple of STEP, which `block`
 * says by being FLOATS; else one by one, and what is behind the end is 0. */
template <int type, int block, int bytes>
static __device__ __forceinline__ void fetch_weights(weights *out, const uint8_t *row, int at, int n) {
    constexpr int each = 4 / ig_float_bytes(type), words = IG_PART / each;
    if constexpr (block > FLOATS) {
        ig_fetch<type>(&out->codes, row + (size_t)(at / block) * bytes, at % block / IG_PART);
    } else if constexpr (block == FLOATS) {
        for (int j = 0; j < words; j += 4) ig_load16<16>(out->floats + j, row + (at / each + j) * 4);
    } else {
        for (int j = 0; j < IG_PART; j++) {
            uint32_t bits = at + j < n ? ig_float_bits<type>(row, at + j) << 32 / each * (j % each) : 0;
            out->floats[j / each] = j % each ? out->floats[j / each] | bits : bits;
        }
    }
}

/* Where 8 numbers of a row of a step lie in shared memory: eight rows one after the other, read or written at the same
 * piece, fall on all banks. */
static __device__ __forceinline__ int place(int row, int piece) {
    return row * STEP + (piece ^ row / 2 % PIECES) * EIGHT;
}

/* They become numbers of 16 bits in shared memory, at `to` and in the piece next to it; scale: of 8-bit floats. */
template <int type, int block>
static __device__ __forceinline__ void put_weights(uint16_t *rows, int to, const weights *w, int at, float scale) {
    uint32_t h[IG_PART / 2];
    ig_part p;
    if constexpr (block > FLOATS) ig_unpack<type>(&p, &w->codes, at % block / IG_PART);
    for (int j = 0; j < IG_PART / 2; j++) {
        const uint32_t *x = w->floats;
        if constexpr (block > FLOATS)
            h[j] = ig_to_halves(ig_number(&p, 2 * j), ig_number(&p, 2 * j + 1));
        else if constexpr (type == IG_TYPE_F8_E4M3)
            h[j] = ig_to_halves(scale * ig_f8(x[j / 2] >> j % 2 * 16), scale * ig_f8(x[j / 2] >> (j % 2 * 16 + 8)));
        else
            h[j] = type == IG_TYPE_F16   ? x[j]
                   : type == IG_TYPE_F32 ? ig_to_halves(ig_float<type>(x[2 * j]), ig_float<type>(x[2 * j + 1]))
                                         : ig_to_halves(ig_float<type>(x[j]), ig_float<type>(x[j] >> 16));
    }
    for (int i = 0; i < 2; i++)
        *(uint4 *)(rows + (to ^ i * EIGHT)) = uint4{h[4 * i], h[4 * i + 1], h[4 * i + 2], h[4 * i + 3]};
}

/* What a thread brings to shared memory: pieces of a step's columns and parts of rows, twice as many of those, each
 * `apart` columns or rows behind the one before. */
template <int side>
struct carrier {
    enum {
        THREADS = warps_of(side) * IG_WARP,
        WARP_ROWS = warp_rows(side),
        COLUMNS_APART = THREADS / PIECES,
        ROWS_APART = THREADS / (STEP / IG_PART),
        N_PIECES = side / COLUMNS_APART,
        N_PARTS = side / ROWS_APART
    };
    const uint8_t *x[N_PIECES], *w[N_PARTS];
    int piece, part; /* where the first ones go */
};

template <int side>
static __device__ __forceinline__ carrier<side> carrier_of(const product *m, int column, int row, int begin,
                                                           int thread) {
    typedef carrier<side> own;
    own c;
    int i = thread / PIECES, piece = thread % PIECES;
    IG_UNROLL for (int j = 0; j < own::N_PIECES; j++) c.x[j] =
        m->x + (size_t)least(column + i + j * own::COLUMNS_APART, m->n_cols - 1) * m->stride +
        (begin + piece * EIGHT) * 2;
    IG_UNROLL for (int j = 0; j < own::N_PARTS; j++) c.w[j] =
        m->w + (size_t)least(row + thread / 2 + j * own::ROWS_APART, m->n_out - 1) * m->row_bytes;
    c.piece = place(i, piece);
    c.part = place(thread / 2, thread % 2 * 2);
    return c;
}

/* Of step number s; of none this is an empty group. */
template <int side>
static __device__ __forceinline__ void send_columns(uint16_t *columns, const carrier<side> *c, int s, int n_steps) {
    IG_UNROLL for (int j = 0; j < carrier<side>::N_PIECES; j++) if (s < n_steps)
        ig_send16(columns + (s % STAGES * side + j * carrier<side>::COLUMNS_APART) * STEP + c->piece,
                  c->x[j] + (size_t)s * STEP * 2);
    ig_send_end();
}

/* Numbers from `at` on of a thread's rows: to registers, and from there to shared memory. */
template <int type, int block, int bytes, int side>
static __device__ __forceinline__ void fetch_parts(weights *next, const carrier<side> *c, int at, int n) {
    IG_UNROLL for (int j = 0; j < carrier<side>::N_PARTS; j++)
        fetch_weights<type, block, bytes>(&next[j], c->w[j], at, n);
}

template <int type, int block, int side>
static __device__ __forceinline__ void put_parts(uint16_t *rows, const carrier<side> *c, const weights *next, int at,
                                                 const product *m, int row) {
    IG_UNROLL for (int j = 0; j < carrier<side>::N_PARTS; j++) {
        float scale = 1;
        if constexpr (type == IG_TYPE_F8_E4M3)
            scale = block_scale(&m->blocks, least(row + j * carrier<side>::ROWS_APART, m->n_out - 1),
                                least(at, m->n_in - 1));
        put_weights<type, block>(rows + j * carrier<side>::ROWS_APART * STEP, c->part, &next[j], at, scale);
    }
}

/* Products of a step, of a warp's columns and rows; a and b are where the lane loads from. */
template <int tiles, int b_tiles>
static __device__ __forceinline__ void multiply_step(float sum[tiles][b_tiles][4], const uint16_t *columns, int a,
                                                     const uint16_t *rows, int b) {
    IG_UNROLL for (int i = 0; i < STEP; i += IG_MMA_DEPTH) {
        uint32_t x[4], w[b_tiles][2];
        IG_UNROLL for (int u = 0; u < b_tiles; u += 2) ig_mma_load(w[u], rows + u * IG_MMA_COLS * STEP + (b ^ i));
        IG_UNROLL for (int t = 0; t < tiles; t++) {
            ig_mma_load(x, columns + t * IG_MMA_ROWS * STEP + (a ^ i));
            IG_UNROLL for (int u = 0; u < b_tiles; u++) ig_mma(sum[t][u], x, w[u]);
        }
    }
}

/* What a lane has of a warp's sums: y of two columns and two rows of the matrix. */
static __device__ __forceinline__ void put_tile(const product *m, const float *sum, int column, int row) {
    const size_t scale = (size_t)((m->n_in + STEP - 1) / STEP * STEP) * 2;
    for (int i = 0; i < 4; i++) {
        int c = column + i / 2 * 8, r = row + i % 2;
        if (c >= m->n_cols || r >= m->n_out) continue;
        float y = sum[i] * *(const float *)(m->x + (size_t)c * m->stride + scale);
        m->y[(size_t)c * (size_t)m->y_column + (size_t)r] = y * m->scale + (m->bias ? m->bias[r] : 0.0f);
    }
}

/* Elements of each of n shares of a width of n_in. */
static __host__ __device__ __forceinline__ int share_of(int n_in, int n) { return (n_in / n + STEP - 1) / STEP * STEP; }

/* Which matrix a block of threads has, and which share of it. */
static __device__ __forceinline__ product product_here(const products *all, int *share) {
    int i = 0;
    *share = (int)blockIdx.z;
    if (all->n_heads) {
        *share = 0;
        return product_number(all, (int)blockIdx.z);
    }
    while (*share >= all->of[i].n_shares) *share -= all->of[i++].n_shares;
    product m = all->of[i];
    if (m.n_shares == 1) return m;
    m.y = m.sums + (size_t)*share * (size_t)m.n_cols * (size_t)m.n_out;
    m.y_column = m.n_out;
    m.bias = NULL;
    m.scale = 1;
    return m;
}

/* While a step is multiplied, columns of the next ones come to shared memory and weights of the next but one to
 * registers. Those of the next one are there, and become 16-bit floats in shared memory behind the products. So one
 * barrier a step is enough: what is written was read, or is to be read, on the other side of it. */
template <int type, int block, int bytes, int side>
static __global__ void __launch_bounds__(warps_of(side) * IG_WARP, resident(side)) multiply(products all) {
    ig_begin();
    typedef carrier<side> carried;
    enum { TILES = side / 2 / IG_MMA_ROWS, B_TILES = carried::WARP_ROWS / IG_MMA_COLS, SIZE = side * STEP };
    int share;
    const product m = product_here(&all, &share);
    int row = (int)blockIdx.x * side, column = (int)blockIdx.y * side, width = share_of(m.n_in, m.n_shares);
    int begin = share * width, end = share + 1 == m.n_shares ? m.n_in : begin + width;
    int n_steps = (end - begin + STEP - 1) / STEP;
    if (row >= m.n_out) return;
    IG_SHARED(uint4, shared);
    uint16_t *columns = (uint16_t *)shared, *rows = columns + STAGES * SIZE;
    int lane = (int)threadIdx.x, warp = (int)threadIdx.y, thread = warp * IG_WARP + lane;
    int part = begin + thread % 2 * IG_PART, warp_column = warp % 2 * (side / 2),
        warp_row = warp / 2 * carried::WARP_ROWS;
    int a = place(lane % 16, lane / 16), b = place(lane / 16 * 8 + lane % 8, lane / 8 % 2);
    carried c = carrier_of<side>(&m, column, row, begin, thread);
    float sum[TILES][B_TILES][4] = {};
    weights next[carried::N_PARTS];
    for (int s = 0; s < STAGES - 1; s++) send_columns<side>(columns, &c, s, n_steps);
    fetch_parts<type, block, bytes, side>(next, &c, part, m.n_in);
    const int first_row = row + thread / 2; /* that the thread brings */
    put_parts<type, block, side>(rows, &c, next, part, &m, first_row);
    if (n_steps > 1) fetch_parts<type, block, bytes, side>(next, &c, part + STEP, m.n_in);
    IG_LOOP for (int s = 0; s < n_steps; s++, part += STEP) {
        ig_await_sent<STAGES - 2>();
        __syncthreads();
        send_columns<side>(columns, &c, s + STAGES - 1, n_steps);
        multiply_step<TILES, B_TILES>(sum, columns + s % STAGES * SIZE + warp_column * STEP, a,
                                      rows + s % 2 * SIZE + warp_row * STEP, b);
        if (s + 1 < n_steps)
            put_parts<type, block, side>(rows + (s + 1) % 2 * SIZE, &c, next, part + STEP, &m, first_row);
        if (s + 2 < n_steps) fetch_parts<type, block, bytes, side>(next, &c, part + 2 * STEP, m.n_in);
    }
    column += warp_column + lane / 4;
    row += warp_row + lane % 4 * 2;
    IG_UNROLL for (int t = 0; t < TILES; t++) IG_UNROLL for (int u = 0; u < B_TILES; u++)
        put_tile(&m, sum[t][u], column + t * IG_MMA_ROWS, row + u * IG_MMA_COLS);
}

enum { NUMBERS = 4 /* of a thread */ };

/* y = the sum of the shares, in order, * scale + bias. */
static __global__ void add_shares(products all) {
    ig_begin();
    const product m = all.of[blockIdx.y];
    size_t n = (size_t)m.n_cols * (size_t)m.n_out, first = (size_t)blockIdx.x * NUMBERS * THREADS + threadIdx.x;
    if (m.n_shares == 1) return;
    IG_UNROLL for (int j = 0; j < NUMBERS; j++) {
        size_t i = first + (size_t)j * THREADS;
        if (i >= n) continue;
        float y = m.sums[i];
        for (int k = 1; k < m.n_shares; k++) y += m.sums[(size_t)k * n + i];
        m.y[i] = y * m.scale + (m.bias ? m.bias[i % (size_t)m.n_out] : 0.0f);
    }
}

/* ---- by type ---------------------------------------------------------------------------------- */

typedef struct kernels {
    void (*multiply[SIDES])(products all); /* in tiles of 32, 64 and 128 */
    void (*multiply_ragged)(products all); /* where rows are no multiple of STEP */
} kernels;

template <int type, int block, int bytes>
static kernels kernels_in_tiles(void) {
    return kernels{{multiply<type, block, bytes, LEAST_SIDE>, multiply<type, block, bytes, 2 * LEAST_SIDE>,
                    multiply<type, block, bytes, 4 * LEAST_SIDE>},
                   NULL};
}

template <int type, int block, int bytes, int apart>
static kernels kernels_of_codes(void) {
    return kernels_in_tiles<type, block, bytes>();
}

template <int type>
static kernels kernels_of_floats(void) {
    kernels k = kernels_in_tiles<type, FLOATS, 0>();
    k.multiply_ragged = multiply<type, 1, 0, LEAST_SIDE>;
    return k;
}

KERNELS_BY_TYPE

static int shares_of(const ig_matrix *m) {
    int n = IG_GPU_SHARED_ROWS / m->n_out, most = least(m->n_in / LEAST_SHARE, MOST_SHARES);
    n = m->n_in % STEP ? 1 : least(n, most);
    return n > 1 ? shares(m->n_in, share_of(m->n_in, n)) : 1;
}

static int heads_of(const products *all) { return all->n_heads ? all->n_heads : 1; }

static int tiles_of(const products *all, int n_m, int n_cols, int side) {
    unsigned n = 0;
    for (int i = 0; i < n_m; i++) n += all->of[i].n_shares * shares(all->of[i].n_out, side) * shares(n_cols, side);
    return (int)n * heads_of(all);
}

/* So many columns that there is room for what their shares come to. */
static void multiply_some(const kernels *k, ig_queue q, products *all, int n_m, int n_cols, int n_tiles, float *sums) {
    int n_out = 0, n_shares = 0, size = all->of[0].n_in % STEP ? 0 : SIDES - 1, side = LEAST_SIDE << size;
    bool ragged = !size;
    for (int i = 0; i < n_m; i++) {
        product *m = &all->of[i];
        m->n_cols = n_cols;
        m->sums = sums;
        if (m->n_shares > 1) sums += (size_t)m->n_shares * (size_t)n_cols * (size_t)m->n_out;
        n_out = m->n_out > n_out ? m->n_out : n_out;
        n_shares += m->n_shares;
    }
    while (size && (n_cols <= side / 2 || tiles_of(all, n_m, n_cols, side) < n_tiles)) side = LEAST_SIDE << --size;
    dim3 grid(shares(n_out, side), shares(n_cols, side), (unsigned)(n_shares * heads_of(all)));
    dim3 block(IG_WARP, (unsigned)warps_of(side));
    size_t shared_bytes = (size_t)(STAGES + 2) * (size_t)side * STEP * sizeof(uint16_t);
    ig_launch(ragged ? k->multiply_ragged : k->multiply[size], grid, block, shared_bytes, q, *all);
    if (n_shares == n_m) return;
    size_t n = (size_t)n_out * (size_t)n_cols;
    dim3 blocks((unsigned)((n + NUMBERS * THREADS - 1) / (NUMBERS * THREADS)), (unsigned)n_m);
    ig_launch(add_shares, blocks, dim3(THREADS), 0, q, *all);
}

void ig_cuda_matmul_many(ig_queue q, float *const *y, const ig_matrix *m, int n_m, const uint8_t *act, int n_cols,
                         int n_tiles, ig_cuda_room sums) {
    int n_out, most = n_cols;
    size_t stride = ig_gpu_half_bytes(m->n_in), each = 0;
    kernels k = kernels_of(m->type);
    products all = products_of(&n_out, y, m, n_m, act, stride, n_cols);
    for (int i = 0; i < n_m; i++) {
        all.of[i].n_shares = shares_of(&m[i]);
        if (all.of[i].n_shares > 1) each += (size_t)all.of[i].n_shares * (size_t)m[i].n_out;
    }
    if (each && (size_t)most > sums.n / each) most = (int)(sums.n / each);
    if (most < n_cols && most > LEAST_SIDE << (SIDES - 1)) most -= most % (LEAST_SIDE << (SIDES - 1));
    for (int first = 0, n; first < n_cols; first += n) {
        n = least(n_cols - first, most);
        for (int i = 0; i < n_m; i++) {
            all.of[i].x = act + (size_t)first * stride;
            all.of[i].y = y[i] + (size_t)first * (size_t)m[i].n_out;
        }
        multiply_some(&k, q, &all, n_m, n, n_tiles, sums.x);
    }
}

void ig_cuda_matmul_heads_many(ig_queue q, const ig_head_product *p, const ig_matrix *m, uint8_t *act, int n_rows,
                               int n_tiles) {
    kernels k = kernels_of(m->type);
    size_t each = ig_gpu_half_bytes(m->n_in);
    halve_apart(q, act, p->x, p->x_head, m->n_in, n_rows * p->n_heads);
    products all = products_of_heads(p, m, act, each, n_rows);
    multiply_some(&k, q, &all, 1, n_rows, n_tiles, NULL);
}
