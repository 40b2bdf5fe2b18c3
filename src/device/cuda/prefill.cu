/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of prompts, on tensor cores, with FlashAttention-2's order of work (Dao 2023). The rows that a range of
 * keys needs come to the device once, as 16-bit floats (gather); then a block of threads takes a tile of queries,
 * positions times heads of a group, through them in steps of some keys with an online softmax. A warp has IG_MMA_ROWS
 * of its queries, and a lane parts of two of them, so that scores, weights and sums stay in registers. A query's sums
 * are made of the same steps whatever the tile: those begin at multiples of their size, and keys that it does not see
 * change no bit.
 *
 * Queries, of any size, meet keys as the sum of two 16-bit floats, which is as exact as 22 bits: scores can be large
 * and differ by little. Weights are rounded to 16 bits, times WEIGHT so that those of 2^-29 still have all of them.
 */
#include "device/cuda/mma.cuh"
#include "device/cuda/rows.cuh"

enum {
    THREADS = 128,
    MOST_WARPS = 4,
    MOST_KEYS = 32, /* of a step */
    DIMS = 128,     /* of values that a launch adds up: what a lane has registers for */
    WEIGHT = 1 << 15,
    SHARED_BYTES = 48 << 10, /* of a block: enough for 512 dims */
    TWIST = 64,              /* numbers of a row in shared memory come in multiples of that */
    KEY_TILES = MOST_KEYS / IG_MMA_COLS,
    DIM_TILES = DIMS / IG_MMA_COLS
};

/* What a shape makes of a tile. Keys are a power of 2, so that they divide IG_ATTEND_UNIT. */
typedef struct tiling {
    int group, d;
    int padded;    /* d up to a multiple of IG_MMA_DEPTH */
    int stride;    /* of rows in shared memory: d up to a multiple of TWIST */
    int warps;     /* of a block */
    int heads;     /* of the group in a tile */
    int n_slices;  /* that the group is cut into so */
    int positions; /* of a tile */
    int keys;      /* of a step */
    bool apart;    /* values have room of their own in shared memory */
} tiling;

static tiling tiling_of(const ig_head_shape *s) {
    int d = s->head_dim, group = s->n_heads / s->n_kv_heads, warps = d <= 128 ? MOST_WARPS : d <= 256 ? 2 : 1;
    int rows = warps * IG_MMA_ROWS, heads = group < rows ? group : rows, keys = d <= 128 ? MOST_KEYS : MOST_KEYS / 2;
    int padded = (d + IG_MMA_DEPTH - 1) / IG_MMA_DEPTH * IG_MMA_DEPTH, stride = (d + TWIST - 1) / TWIST * TWIST;
    bool apart = 2 * (rows + keys) * stride * (int)sizeof(uint16_t) <= SHARED_BYTES;
    return tiling{group, d, padded, stride, warps, heads, (group + heads - 1) / heads, rows / heads, keys, apart};
}

/* ---- gathering ------------------------------------------------------------------------- */

typedef struct gathering {
    const ig_attention *job;
    uint4 *rows;
    int begin, n, d;
} gathering;

template <bool is_f16>
static __device__ __forceinline__ uint4 eight(int type, ig_cuda_row row, int i, int d) {
    ig_cuda_eight x = ig_cuda_load<is_f16>(type, row.key, row.lines, i, d);
    uint16_t half[IG_CUDA_EIGHT];
    IG_UNROLL for (int j = 0; j < IG_CUDA_EIGHT; j++) half[j] = ig_cuda_half_of<is_f16>(&x, j);
    return uint4{ig_pack(half[0], half[1]), ig_pack(half[2], half[3]), ig_pack(half[4], half[5]),
                 ig_pack(half[6], half[7])};
}

/* A thread takes 8 numbers of a row's key and value. */
static __global__ void gather(gathering g) {
    ig_begin();
    const ig_kv_view *view = &g.job->views[blockIdx.y];
    int each = 2 * g.d / IG_CUDA_EIGHT, at = (int)(blockIdx.x * THREADS + threadIdx.x), i = at % each * IG_CUDA_EIGHT;
    if (at >= g.n * each) return;
    ig_cuda_row row = ig_cuda_row_at(view, g.begin + at / each, g.d);
    if (i >= g.d) {
        row.key += view->v_offset;
        row.lines += ig_cuda_lines(view->type, g.d);
        i -= g.d;
    }
    size_t to = (size_t)blockIdx.y * (size_t)g.n * (size_t)each + (size_t)at;
    if (view->type == IG_KV_F16)
        g.rows[to] = eight<true>(view->type, row, i, g.d);
    else
        g.rows[to] = eight<false>(view->type, row, i, g.d);
}

void ig_cuda_gather(ig_queue q, uint16_t *rows, const ig_head_shape *shape, const ig_attention *job, int begin,
                    int end) {
    gathering g = {job, (uint4 *)rows, begin, end - begin, shape->head_dim};
    int n = g.n * (2 * g.d / IG_CUDA_EIGHT);
    dim3 grid((unsigned)(n + THREADS - 1) / THREADS, (unsigned)shape->n_kv_heads);
    ig_launch(gather, grid, dim3(THREADS), 0, q, g);
}

/* ---- a tile ------------------------------------------------------------------------------- */

/* One of a lane's two queries. */
typedef struct query {
    bool exists;
    int pos;      /* the last row that it sees */
    size_t row;   /* in [token][head] */
    float *state; /* where its running sums outlive the call */
    float m, l;
    float scale; /* of its products */
} query;

/* Number i of a tile's queries: position i / heads, and head i % heads of those from `head` on. */
static __device__ query query_of(const ig_head_shape *s, const tiling *g, const ig_cuda_prompt *p, int i, int token,
                                 int n_tokens, int head, int heads, bool fresh) {
    query q;
    int n = token + i / g->heads, h = head + i % g->heads;
    q.exists = i < n_tokens * g->heads && i % g->heads < heads;
    q.pos = p->n_rows - p->job->n_tokens + p->first + n;
    q.row = (size_t)(p->first + n) * (size_t)s->n_heads + (size_t)h;
    q.state = p->state + ((size_t)n * (size_t)s->n_heads + (size_t)h) * ((size_t)g->d + 2);
    q.m = fresh || !q.exists ? -INFINITY : q.state[0];
    q.l = fresh || !q.exists ? 0 : q.state[1];
    return q;
}

/* Where number c of a row lies in shared memory: the same 8 numbers of eight rows one after the other fall on all
 * banks.
 */
static __device__ __forceinline__ int place(const tiling *g, int row, int c) {
    return row * g->stride + (c ^ row % 8 * 8);
}

/* A query to shared memory, times a power of two so that 16 bits hold it whatever its size: what they hold, then, `gap`
 * behind, what that leaves. x is NULL for one that is none. Returns what undoes the power; by a warp, to all its lanes.
 */
static __device__ float load_query(uint16_t *to, int gap, int row, const float *x, const float *scale,
                                   const tiling *g) {
    int lane = (int)threadIdx.x % IG_WARP;
    uint32_t most = 0;
    for (int c = lane; x && c < g->d; c += IG_WARP) {
        uint32_t v = __float_as_uint(scale ? x[c] * scale[c] : x[c]) & 0x7fffffffu;
        most = v > most ? v : most;
    }
    float factor = ig_mma_factor(ig_warp_max(most));
    for (int c = lane; c < g->stride; c += IG_WARP) {
        float v = x && c < g->d ? (scale ? x[c] * scale[c] : x[c]) * factor : 0.0f;
        int at = place(g, row, c);
        to[at] = ig_to_half(v);
        to[gap + at] = ig_to_half(v - ig_half(to[at]));
    }
    return 1.0f / factor;
}

/* A warp's queries of the tile, from number `first` on; those of a lane are number lane / 4 and 8 behind it. */
static __device__ __forceinline__ void load_queries(uint16_t *to, int gap, query q[2], const ig_head_shape *s,
                                                    const tiling *g, const ig_cuda_prompt *p, int first, int token,
                                                    int n_tokens, int head, int heads) {
    int lane = (int)threadIdx.x % IG_WARP;
    for (int r = 0; r < IG_MMA_ROWS; r++) {
        int h = (first + r) % g->heads, n = (first + r) / g->heads;
        size_t row = (size_t)(p->first + token + n) * (size_t)s->n_heads, at = (size_t)(head + h) * (size_t)g->d;
        bool exists = n < n_tokens && h < heads;
        const float *x = exists ? p->job->q + row * (size_t)g->d + at : NULL;
        const float *scale = exists && p->job->q_scale ? p->job->q_scale + at : NULL;
        float undo = load_query(to, gap, first + r, x, scale, g);
        IG_UNROLL for (int i = 0; i < 2; i++) if (r == lane / 4 + 8 * i) q[i].scale = s->scale * undo;
    }
}

/* Keys (part 0) or values (1) of n rows set out for shared memory; the last one instead of those that a step lacks. */
static __device__ __forceinline__ void send(uint16_t *to, const tiling *g, const uint16_t *rows, int n, int part) {
    for (int key = (int)threadIdx.x / 8; key < g->keys; key += g->warps * IG_WARP / 8) {
        const uint16_t *from = rows + (size_t)(2 * (key < n ? key : n - 1) + part) * (size_t)g->d;
        for (int c = (int)threadIdx.x % 8 * 8; c < g->padded; c += TWIST)
            ig_send16(to + place(g, key, c), from + (c < g->d ? c : 0));
    }
    ig_send_end();
}

/* Products of a warp's queries, their second halves `gap` behind, with the keys of a step. */
static __device__ __forceinline__ void multiply_keys(float x[KEY_TILES][4], const tiling *g, const uint16_t *q, int gap,
                                                     const uint16_t *keys, int lane) {
    const uint16_t *row = q + lane % 16 * g->stride, *key = keys + (lane / 16 * 8 + lane % 8) * g->stride;
    int a = (lane / 16 ^ lane % 8) * 8, b = (lane / 8 % 2 ^ lane % 8) * 8;
    for (int c = 0; c < g->d; c += IG_MMA_DEPTH) {
        uint32_t high[4], low[4], two[4];
        ig_mma_load(high, row + (a ^ c));
        ig_mma_load(low, row + gap + (a ^ c));
        IG_UNROLL for (int j = 0; j < KEY_TILES; j += 2) {
            if (j * IG_MMA_COLS >= g->keys) continue;
            ig_mma_load(two, key + j * IG_MMA_COLS * g->stride + (b ^ c));
            for (int i = 0; i < 2; i++) {
                ig_mma(x[j + i], high, two + 2 * i);
                ig_mma(x[j + i], low, two + 2 * i);
            }
        }
    }
}

/* softmax_step() of kernel/kernel.h, for the query whose products are x[..][at] and x[..][at + 1] in the four lanes of
 * its row, of n keys from number `begin` on. They become weights; returns what earlier sums are multiplied by. */
static __device__ __forceinline__ float weigh_scores(float x[KEY_TILES][4], int at, query *q, int window, int begin,
                                                     int n, int lane) {
    int end = q->pos + 1 < begin + n ? q->pos + 1 : begin + n, first = window ? q->pos + 1 - window : 0;
    float old = q->m, max = old, sum = 0;
    IG_UNROLL for (int j = 0; j < 2 * KEY_TILES; j++) {
        float *s = &x[j / 2][at + j % 2];
        int key = begin + j / 2 * IG_MMA_COLS + lane % 4 * 2 + j % 2;
        *s = q->exists && key >= first && key < end ? *s * q->scale : -INFINITY;
        max = *s > max ? *s : max;
    }
    for (int bit = 1; bit <= 2; bit *= 2) {
        float other = __shfl_xor_sync(0xffffffffu, max, bit);
        max = other > max ? other : max;
    }
    IG_UNROLL for (int j = 0; j < 2 * KEY_TILES; j++) {
        float *s = &x[j / 2][at + j % 2];
        sum += *s = max == -INFINITY ? 0.0f : expf(*s - max);
    }
    for (int bit = 1; bit <= 2; bit *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, bit);
    float r = max == -INFINITY ? 0.0f : expf(old - max);
    q->l = q->l * r + sum;
    q->m = max;
    return r;
}

/* Products of the weights with the values of a step, for dims from `first` on. */
static __device__ __forceinline__ void add_values(float acc[DIM_TILES][4], float x[KEY_TILES][4], const tiling *g,
                                                  const uint16_t *values, int first, int lane) {
    const uint16_t *row = values + lane % 16 * g->stride;
    int at = (lane / 16 ^ lane % 8) * 8;
    IG_UNROLL for (int k = 0; k < MOST_KEYS / IG_MMA_DEPTH; k++) {
        uint32_t a[4], two[4];
        if (k * IG_MMA_DEPTH >= g->keys) continue;
        for (int i = 0; i < 4; i++) { /* what is one product's result is the next one's rows */
            const float *w = &x[2 * k + i / 2][i % 2 * 2];
            a[i] = ig_to_halves(w[0] * WEIGHT, w[1] * WEIGHT);
        }
        IG_UNROLL for (int j = 0; j < DIM_TILES; j += 2) {
            int c = first + j * IG_MMA_COLS;
            if (c >= g->d) continue;
            ig_mma_load_down(two, row + k * IG_MMA_DEPTH * g->stride + (at ^ c));
            for (int i = 0; i < 2; i++) {
                float sum[4] = {}; /* tensor cores cut sums off, which would add up over a long context */
                ig_mma(sum, a, two + 2 * i);
                for (int k2 = 0; k2 < 4; k2++) acc[j + i][k2] += sum[k2];
            }
        }
    }
}

/* A lane's two numbers of a query in each tile of dims: acc[..][at] and the next one. */
static __device__ __forceinline__ void take_state(float acc[DIM_TILES][4], int at, const query *q, int d, int first,
                                                  bool fresh, int lane) {
    IG_UNROLL for (int j = 0; j < 2 * DIM_TILES; j++) {
        int c = first + j / 2 * IG_MMA_COLS + lane % 4 * 2 + j % 2;
        acc[j / 2][at + j % 2] = fresh || !q->exists || c >= d ? 0 : q->state[2 + c];
    }
}

/* The result, or what later rows go on with. Of several launches, each for some dims, the last one writes what all
 * read. */
static __device__ __forceinline__ void put_state(float acc[DIM_TILES][4], int at, const query *q,
                                                 const ig_attention *job, const ig_head_shape *s, int first, bool done,
                                                 int lane) {
    if (!q->exists) return;
    int d = s->head_dim;
    float l = done ? q->l + ig_cuda_sink(job, (int)(q->row % (size_t)s->n_heads), q->m) : q->l;
    float *to = done ? job->out + q->row * (size_t)d : q->state + 2, factor = done ? 1.0f / (l * WEIGHT) : 1.0f;
    IG_UNROLL for (int j = 0; j < 2 * DIM_TILES; j++) {
        int c = first + j / 2 * IG_MMA_COLS + lane % 4 * 2 + j % 2;
        if (c < d) to[c] = acc[j / 2][at + j % 2] * factor;
    }
    if (lane % 4 || first + DIMS < d) return;
    if (!done) q->state[0] = q->m, q->state[1] = q->l;
    if (done && job->lse) job->lse[q->row] = q->m + logf(l);
}

/* ---- attention ------------------------------------------------------------------------------- */

/* The first row that a query at this position sees, at the beginning of a step. */
static __host__ __device__ __forceinline__ int first_row(int window, int pos, int keys) {
    return window && pos + 1 > window ? (pos + 1 - window) / keys * keys : 0;
}

/* Dims [dim, dim + DIMS) of the result. Values of a step come to shared memory while its keys are multiplied, and keys
 * of the next one while its values are: two barriers a step. Without room for both they wait for each other. */
static __global__ void prefill(ig_head_shape s, tiling g, ig_cuda_prompt p, int dim) {
    ig_begin();
    IG_SHARED(uint4, shared);
    int kv_head = (int)blockIdx.y / g.n_slices, slice = (int)blockIdx.y % g.n_slices * g.heads;
    int head = kv_head * g.group + slice, heads = g.group - slice < g.heads ? g.group - slice : g.heads;
    int token = (int)blockIdx.x * g.positions, n_tokens = p.n - token < g.positions ? p.n - token : g.positions;
    int first_pos = p.n_rows - p.job->n_tokens + p.first + token;
    int all_begin = first_row(p.window, first_pos, g.keys), all_end = first_pos + n_tokens;
    int begin = all_begin > p.begin ? all_begin : p.begin, end = all_end < p.end ? all_end : p.end;
    if (begin >= end) return;
    bool fresh = p.begin <= all_begin, done = all_end <= p.end;
    int lane = (int)threadIdx.x % IG_WARP, first = (int)threadIdx.x / IG_WARP * IG_MMA_ROWS;
    int gap = g.warps * IG_MMA_ROWS * g.stride, each = 2 * g.d;
    uint16_t *queries = (uint16_t *)shared, *keys = queries + 2 * gap,
             *values = keys + (g.apart ? g.keys * g.stride : 0);
    query q[2];
    float acc[DIM_TILES][4];
    IG_UNROLL for (int i = 0; i < 2; i++) {
        q[i] = query_of(&s, &g, &p, first + lane / 4 + 8 * i, token, n_tokens, head, heads, fresh);
        take_state(acc, 2 * i, &q[i], g.d, dim, fresh, lane);
    }
    load_queries(queries, gap, q, &s, &g, &p, first, token, n_tokens, head, heads);
    const uint16_t *rows = p.rows + (size_t)kv_head * (size_t)(p.end - p.begin) * (size_t)each;
    rows += (size_t)(begin - p.begin) * (size_t)each;
    send(keys, &g, rows, end - begin, 0);
    for (; begin < end; begin += g.keys, rows += g.keys * each) {
        int n = end - begin < g.keys ? end - begin : g.keys, left = end - begin - g.keys;
        float x[KEY_TILES][4] = {};
        ig_await_sent<0>();
        __syncthreads();
        if (g.apart) send(values, &g, rows, n, 1);
        multiply_keys(x, &g, queries + first * g.stride, gap, keys, lane);
        if (!g.apart) {
            __syncthreads();
            send(values, &g, rows, n, 1);
        }
        IG_UNROLL for (int i = 0; i < 2; i++) {
            float r = weigh_scores(x, 2 * i, &q[i], p.window, begin, n, lane);
            IG_UNROLL for (int j = 0; j < DIM_TILES; j++) acc[j][2 * i] *= r, acc[j][2 * i + 1] *= r;
        }
        ig_await_sent<0>();
        __syncthreads();
        if (g.apart && left > 0) send(keys, &g, rows + g.keys * each, left, 0);
        add_values(acc, x, &g, values, dim, lane);
        if (!g.apart && left > 0) {
            __syncthreads();
            send(keys, &g, rows + g.keys * each, left, 0);
        }
    }
    IG_UNROLL for (int i = 0; i < 2; i++) put_state(acc, 2 * i, &q[i], p.job, &s, dim, done, lane);
}

void ig_cuda_prefill(ig_queue q, const ig_head_shape *shape, const ig_cuda_prompt *p) {
    tiling g = tiling_of(shape);
    dim3 grid((unsigned)(p->n + g.positions - 1) / (unsigned)g.positions, (unsigned)(shape->n_kv_heads * g.n_slices));
    size_t rows = (size_t)(2 * g.warps * IG_MMA_ROWS + (g.apart ? 2 : 1) * g.keys);
    for (int dim = 0; dim < g.d; dim += DIMS)
        ig_launch(prefill, grid, dim3((unsigned)g.warps * IG_WARP), rows * (size_t)g.stride * sizeof(uint16_t), q,
                  *shape, g, *p, dim);
}

int ig_cuda_first_row(const ig_head_shape *shape, const ig_attention *job, int first, int n) {
    return first_row(job->window, n - job->n_tokens + first, tiling_of(shape).keys);
}
