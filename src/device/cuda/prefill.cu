/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of prompts, on tensor cores, with FlashAttention-2's order of work (Dao 2023). The rows that a range of
 * keys needs come to the device once, as 16-bit floats (gather); then a block of threads takes a tile of queries,
 * positions times heads of a group, through a part of them, in steps of some keys with an online softmax. A warp has
 * IG_MMA_ROWS of its queries, and a lane parts of two of them, so that scores, weights and sums stay in registers. What
 * parts of a query's rows have come to is added up in order (combine). A query's sums are made of the same parts and
 * steps whatever the tile: those begin at multiples of their size, and keys that it does not see change no bit.
 *
 * Queries, of any size, meet keys as the sum of two 16-bit floats, which is as exact as 22 bits: scores can be large
 * and differ by little. Weights are rounded to 16 bits, times WEIGHT so that those of 2^-29 still have all of them.
 * Scores are powers of 2 here, not of e, from weigh_scores() to what is written.
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
    KEY_STEPS = MOST_KEYS / IG_MMA_DEPTH,
    DIM_TILES = DIMS / IG_MMA_COLS
};
static const float LOG2_E = 1.4426950408889634f, LN_2 = 0.6931471805599453f;

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
    float *state; /* what the part has come to: m, l, sums of values */
    float m, l;
    float scale; /* of its products */
} query;

/* Number i of a tile's queries: position i / heads, and head i % heads of those from `head` on. */
static __device__ query query_of(const ig_head_shape *s, const tiling *g, const ig_cuda_prompt *p, float *part, int i,
                                 int token, int n_tokens, int head, int heads, bool fresh) {
    query q;
    int n = token + i / g->heads, h = head + i % g->heads;
    q.exists = i < n_tokens * g->heads && i % g->heads < heads;
    q.pos = p->n_rows - p->job->n_tokens + p->first + n;
    q.row = (size_t)(p->first + n) * (size_t)s->n_heads + (size_t)h;
    q.state = part + ((size_t)n * (size_t)s->n_heads + (size_t)h) * ((size_t)g->d + 2);
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
        IG_UNROLL for (int i = 0; i < 2; i++) if (r == lane / 4 + 8 * i) q[i].scale = s->scale * undo * LOG2_E;
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

/* Products of a query with n keys from number `begin` on that it does not see become -INFINITY. */
static __device__ __forceinline__ void hide_keys(float x[KEY_TILES][4], int at, const query *q, int window, int begin,
                                                 int n, int lane) {
    int end = q->pos + 1 < begin + n ? q->pos + 1 : begin + n, first = window ? q->pos + 1 - window : 0;
    IG_UNROLL for (int j = 0; j < 2 * KEY_TILES; j++) {
        int key = begin + j / 2 * IG_MMA_COLS + lane % 4 * 2 + j % 2;
        if (!q->exists || key < first || key >= end) x[j / 2][at + j % 2] = -INFINITY;
    }
}

/* softmax_step() of kernel/kernel.h, for the query whose products are x[..][at] and x[..][at + 1] in the four lanes of
 * its row. They become weights; returns what earlier sums are multiplied by. */
static __device__ __forceinline__ float weigh_scores(float x[KEY_TILES][4], int at, query *q) {
    float most = -INFINITY, sum = 0;
    IG_UNROLL for (int j = 0; j < 2 * KEY_TILES; j++) most = fmaxf(most, x[j / 2][at + j % 2]);
    for (int bit = 1; bit <= 2; bit *= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, bit));
    float max = fmaxf(q->m, most * q->scale);
    IG_UNROLL for (int j = 0; j < 2 * KEY_TILES; j++) {
        float *s = &x[j / 2][at + j % 2];
        sum += *s = max == -INFINITY ? 0.0f : ig_exp2(*s * q->scale - max);
    }
    for (int bit = 1; bit <= 2; bit *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, bit);
    float r = max == -INFINITY ? 0.0f : ig_exp2(q->m - max);
    q->l = q->l * r + sum;
    q->m = max;
    return r;
}

/* Products of the weights with the values of a step, for dims from `first` on. */
static __device__ __forceinline__ void add_values(float acc[DIM_TILES][4], float x[KEY_TILES][4], const tiling *g,
                                                  const uint16_t *values, int first, int lane) {
    const uint16_t *row = values + lane % 16 * g->stride;
    int at = (lane / 16 ^ lane % 8) * 8;
    uint32_t a[KEY_STEPS][4], two[4];
    IG_UNROLL for (int k = 0; k < KEY_STEPS; k++)
        IG_UNROLL for (int i = 0; i < 4; i++) { /* what is one product's result is the next one's rows */
        const float *w = &x[2 * k + i / 2][i % 2 * 2];
        a[k][i] = ig_to_halves(w[0] * WEIGHT, w[1] * WEIGHT);
    }
    IG_UNROLL for (int j = 0; j < DIM_TILES; j += 2) {
        int c = first + j * IG_MMA_COLS;
        if (c >= g->d) continue;
        float sum[2][4] = {}; /* tensor cores cut sums off, which would add up over a long context */
        IG_UNROLL for (int k = 0; k < KEY_STEPS; k++) {
            if (k * IG_MMA_DEPTH >= g->keys) continue;
            ig_mma_load_down(two, row + k * IG_MMA_DEPTH * g->stride + (at ^ c));
            for (int i = 0; i < 2; i++) ig_mma(sum[i], a[k], two + 2 * i);
        }
        for (int i = 0; i < 8; i++) acc[j + i / 4][i % 4] += sum[i / 4][i % 4];
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

/* What a query's sums are divided by, with its sink. */
static __device__ __forceinline__ float whole_of(const ig_attention *job, const ig_head_shape *s, size_t row, float m,
                                                 float l) {
    return l + ig_cuda_sink(job, (int)(row % (size_t)s->n_heads), m * LN_2);
}

/* The result, or what the part has come to. Of several launches, each for some dims, the last one writes what all
 * read. */
static __device__ __forceinline__ void put_state(float acc[DIM_TILES][4], int at, const query *q,
                                                 const ig_attention *job, const ig_head_shape *s, int first, bool done,
                                                 int lane) {
    if (!q->exists) return;
    int d = s->head_dim;
    float l = done ? whole_of(job, s, q->row, q->m, q->l) : q->l;
    float *to = done ? job->out + q->row * (size_t)d : q->state + 2, factor = done ? 1.0f / (l * WEIGHT) : 1.0f;
    IG_UNROLL for (int j = 0; j < 2 * DIM_TILES; j++) {
        int c = first + j / 2 * IG_MMA_COLS + lane % 4 * 2 + j % 2;
        if (c < d) to[c] = acc[j / 2][at + j % 2] * factor;
    }
    if (lane % 4 || first + DIMS < d) return;
    if (!done) q->state[0] = q->m, q->state[1] = q->l;
    if (done && job->lse) job->lse[q->row] = q->m * LN_2 + logf(l);
}

/* ---- attention ------------------------------------------------------------------------------- */

/* The first row that a query at this position sees, at the beginning of a step. */
static __host__ __device__ __forceinline__ int first_row(int window, int pos, int keys) {
    return window && pos + 1 > window ? (pos + 1 - window) / keys * keys : 0;
}

/* Dims [dim, dim + DIMS) of what a part comes to, and of the result if there is no other. Values of a step come to
 * shared memory while its keys are multiplied, and keys of the next one while its values are: two barriers a step.
 * Without room for both they wait for each other. Instances are for some dims of heads, or 0: for any. */
template <int dims>
static __global__ void __launch_bounds__(THREADS, 3) prefill(ig_head_shape s, tiling g, ig_cuda_prompt p, int dim) {
    ig_begin();
    if (dims) g.d = g.padded = g.stride = dims, g.warps = MOST_WARPS, g.keys = MOST_KEYS, g.apart = true;
    IG_SHARED(uint4, shared);
    int kv_head = (int)blockIdx.y / g.n_slices, slice = (int)blockIdx.y % g.n_slices * g.heads;
    int head = kv_head * g.group + slice, heads = g.group - slice < g.heads ? g.group - slice : g.heads;
    int token = (int)blockIdx.x * g.positions, n_tokens = p.n - token < g.positions ? p.n - token : g.positions;
    int first_pos = p.n_rows - p.job->n_tokens + p.first + token;
    int all_begin = first_row(p.window, first_pos, g.keys), all_end = first_pos + n_tokens;
    ig_cuda_part_of_rows rows_here = ig_cuda_part_of(&p, (int)blockIdx.z);
    int begin = all_begin > rows_here.begin ? all_begin : rows_here.begin;
    int end = all_end < rows_here.end ? all_end : rows_here.end;
    if (begin >= end) return;
    bool fresh = begin == all_begin || begin % IG_GPU_PART == 0;
    float *part = p.parts + (size_t)blockIdx.z * (size_t)p.n * (size_t)s.n_heads * ((size_t)g.d + 2);
    int lane = (int)threadIdx.x % IG_WARP, first = (int)threadIdx.x / IG_WARP * IG_MMA_ROWS;
    int gap = g.warps * IG_MMA_ROWS * g.stride, each = 2 * g.d;
    uint16_t *queries = (uint16_t *)shared, *keys = queries + 2 * gap,
             *values = keys + (g.apart ? g.keys * g.stride : 0);
    query q[2];
    float acc[DIM_TILES][4];
    IG_UNROLL for (int i = 0; i < 2; i++) {
        q[i] = query_of(&s, &g, &p, part, first + lane / 4 + 8 * i, token, n_tokens, head, heads, fresh);
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
        bool all_seen =
            g.keys == MOST_KEYS && begin + g.keys <= first_pos + 1 && (!p.window || begin + p.window >= all_end);
        IG_UNROLL for (int i = 0; i < 2; i++) {
            if (!all_seen) hide_keys(x, 2 * i, &q[i], p.window, begin, n, lane);
            float r = weigh_scores(x, 2 * i, &q[i]);
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
    IG_UNROLL for (int i = 0; i < 2; i++) put_state(acc, 2 * i, &q[i], p.job, &s, dim, p.is_whole, lane);
}

/* ---- parts ----------------------------------------------------------------------------------- */

/* A warp is a query's head: adds what parts have come to, in order, to what those before them have, and writes the
 * result once all rows that the query sees are among them. */
static __global__ void combine(ig_head_shape s, ig_cuda_prompt p) {
    ig_begin();
    int lane = (int)threadIdx.x, d = s.head_dim, at = (int)(blockIdx.x * MOST_WARPS + threadIdx.y);
    int token = at / s.n_heads, pos = p.n_rows - p.job->n_tokens + p.first + token;
    int first = p.window && pos + 1 > p.window ? pos + 1 - p.window : 0;
    if (at >= p.n * s.n_heads || first >= p.end || pos < p.begin) return;
    size_t each = (size_t)d + 2, row = (size_t)p.first * (size_t)s.n_heads + (size_t)at;
    float *state = p.state + (size_t)at * each, m = -INFINITY, l = 0, sum[IG_KV_DIMS / IG_WARP] = {};
    bool done = pos < p.end;
    if (first / IG_GPU_PART < p.begin / IG_GPU_PART) {
        m = __shfl_sync(0xffffffffu, state[0], 0),
        l = __shfl_sync(0xffffffffu, state[1], 0); /* all before it is written */
        IG_UNROLL for (int j = 0; j < IG_KV_DIMS / IG_WARP; j++) if (lane + j * IG_WARP < d) sum[j] =
            state[2 + lane + j * IG_WARP];
    }
    for (int i = 0; i < ig_cuda_parts_of(&p); i++) {
        ig_cuda_part_of_rows rows = ig_cuda_part_of(&p, i);
        if (first >= rows.end || pos < rows.begin) continue;
        const float *part = p.parts + ((size_t)i * (size_t)p.n * (size_t)s.n_heads + (size_t)at) * each;
        float max = fmaxf(m, part[0]), base = max == -INFINITY ? 0.0f : max;
        float before = ig_exp2(m - base), now = ig_exp2(part[0] - base);
        IG_UNROLL for (int j = 0; j < IG_KV_DIMS / IG_WARP; j++) if (lane + j * IG_WARP < d) sum[j] =
            sum[j] * before + part[2 + lane + j * IG_WARP] * now;
        l = l * before + part[1] * now;
        m = max;
    }
    float whole = done ? whole_of(p.job, &s, row, m, l) : 0, factor = done ? 1.0f / (whole * WEIGHT) : 1.0f;
    float *to = done ? p.job->out + row * (size_t)d : state + 2;
    IG_UNROLL for (int j = 0; j < IG_KV_DIMS / IG_WARP; j++) if (lane + j * IG_WARP < d) to[lane + j * IG_WARP] =
        sum[j] * factor;
    if (lane) return;
    if (!done) state[0] = m, state[1] = l;
    if (done && p.job->lse) p.job->lse[row] = m * LN_2 + logf(whole);
}

void ig_cuda_prefill(ig_queue q, const ig_head_shape *shape, const ig_cuda_prompt *p) {
    tiling g = tiling_of(shape);
    dim3 grid((unsigned)(p->n + g.positions - 1) / (unsigned)g.positions, (unsigned)(shape->n_kv_heads * g.n_slices),
              (unsigned)ig_cuda_parts_of(p));
    size_t rows = (size_t)(2 * g.warps * IG_MMA_ROWS + (g.apart ? 2 : 1) * g.keys);
    auto kernel = g.d == 64 ? prefill<64> : g.d == 128 ? prefill<128> : prefill<0>;
    for (int dim = 0; dim < g.d; dim += DIMS)
        ig_launch(kernel, grid, dim3((unsigned)g.warps * IG_WARP), rows * (size_t)g.stride * sizeof(uint16_t), q,
                  *shape, g, *p, dim);
}

void ig_cuda_combine(ig_queue q, const ig_head_shape *shape, const ig_cuda_prompt *p) {
    int n = p->n * shape->n_heads;
    ig_cuda_prompt whole = *p; /* its first part from where that began, in an earlier call */
    whole.begin = p->begin / IG_GPU_PART * IG_GPU_PART;
    ig_launch(combine, dim3((unsigned)(n + MOST_WARPS - 1) / MOST_WARPS), dim3(IG_WARP, MOST_WARPS), 0, q, *shape,
              whole);
}

int ig_cuda_first_row(const ig_head_shape *shape, const ig_attention *job, int first, int n) {
    return first_row(job->window, n - job->n_tokens + first, tiling_of(shape).keys);
}
