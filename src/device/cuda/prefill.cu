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
    SHARED_BYTES = 48 << 10, /* of a block: enough for 512 dims; of more it is allowed to have more */
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
    ig_cuda_row row = ig_cuda_row_at(view, g.begin + at / each);
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
    int seen, pos; /* the first and the last row that it sees */
    size_t row;    /* in [token][head] */
    float *state;  /* what the part has come to: m, l, sums of values */
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
    q.seen = ig_window_begin(p->window, q.pos + 1);
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

/* A warp's queries of the tile, from number `first` on, to shared memory, times a power of two each so that 16 bits
 * hold them whatever their size: what they hold, then, `gap` behind, what that leaves; 0 for those that are none. Those
 * of a lane are number lane / 4 and 8 behind it. Some rows are on their way at a time. */
template <int dims>
static __device__ __forceinline__ void load_queries(uint16_t *to, int gap, query q[2], const ig_head_shape *s,
                                                    const tiling *g, const ig_cuda_prompt *p, int first, int token,
                                                    int n_tokens, int head, int heads) {
    enum { NEAR = dims > 64 ? 4 : dims ? 2 : 1, EACH = (dims ? dims : IG_KV_DIMS) / IG_WARP };
    int lane = (int)threadIdx.x % IG_WARP;
    IG_LOOP for (int r = 0; r < IG_MMA_ROWS; r += NEAR) {
        float x[NEAR][EACH];
        IG_UNROLL for (int k = 0; k < NEAR; k++) {
            int h = (first + r + k) % g->heads, n = (first + r + k) / g->heads;
            size_t row = (size_t)(p->first + token + n) * (size_t)s->n_heads, at = (size_t)(head + h) * (size_t)g->d;
            bool exists = n < n_tokens && h < heads;
            const float *from = p->job->q + row * (size_t)g->d + at, *scale = p->job->q_scale;
            IG_UNROLL for (int j = 0; j < EACH; j++) {
                int c = lane + j * IG_WARP;
                bool is_one = exists && c < g->d;
                x[k][j] = is_one ? from[c] : 0.0f;
                if (is_one && scale) x[k][j] *= scale[at + (size_t)c];
            }
        }
        IG_UNROLL for (int k = 0; k < NEAR; k++) {
            uint32_t most = 0;
            IG_UNROLL for (int j = 0; j < EACH; j++) {
                uint32_t v = __float_as_uint(x[k][j]) & 0x7fffffffu;
                most = v > most ? v : most;
            }
            float factor = ig_mma_factor(ig_warp_max(most)), undo = 1.0f / factor;
            IG_UNROLL for (int j = 0; j < EACH; j++) {
                int c = lane + j * IG_WARP;
                if (c >= g->stride) continue;
                float v = x[k][j] * factor;
                int there = place(g, first + r + k, c);
                to[there] = ig_to_half(v);
                to[gap + there] = ig_to_half(v - ig_half(to[there]));
            }
            IG_UNROLL for (int i = 0; i < 2; i++) if (r + k == lane / 4 + 8 * i) q[i].scale = s->scale * undo * LOG2_E;
        }
    }
}

/* Keys (part 0) or values (1) of n rows set out for shared memory; the last one instead of those that a step lacks. */
static __device__ __forceinline__ void send(uint16_t *to, const tiling *g, const uint16_t *rows, int n, int part) {
    IG_LOOP for (int key = (int)threadIdx.x / 8; key < g->keys; key += g->warps * IG_WARP / 8) {
        const uint16_t *from = rows + (size_t)(2 * (key < n ? key : n - 1) + part) * (size_t)g->d;
        for (int c = (int)threadIdx.x % 8 * 8; c < g->padded; c += TWIST)
            ig_send16(to + place(g, key, c), from + (c < g->d ? c : 0));
    }
}

/* A lane's part of the warp's queries, and of what 16 bits leave of them, for some dims. */
typedef struct piece {
    uint32_t high[4], low[4];
} piece;

static __device__ __forceinline__ void load_piece(piece *p, const tiling *g, const uint16_t *q, int gap, int c,
                                                  int lane) {
    const uint16_t *row = q + lane % 16 * g->stride + ((lane / 16 ^ lane % 8) * 8 ^ c);
    ig_mma_load(p->high, row);
    ig_mma_load(p->low, row + gap);
}

/* Products of that piece with the keys of a step. Whichever are of one sum are apart. */
static __device__ __forceinline__ void multiply_piece(float x[KEY_TILES][4], const tiling *g, const piece *p,
                                                      const uint16_t *keys, int c, int lane) {
    const uint16_t *key = keys + (lane / 16 * 8 + lane % 8) * g->stride + ((lane / 8 % 2 ^ lane % 8) * 8 ^ c);
    uint32_t b[KEY_TILES][2];
    IG_UNROLL for (int j = 0; j < KEY_TILES; j += 2) if (j * IG_MMA_COLS < g->keys)
        ig_mma_load(b[j], key + j * IG_MMA_COLS * g->stride);
    IG_UNROLL for (int j = 0; j < KEY_TILES; j++) if (j * IG_MMA_COLS < g->keys) ig_mma(x[j], p->high, b[j]);
    IG_UNROLL for (int j = 0; j < KEY_TILES; j++) if (j * IG_MMA_COLS < g->keys) ig_mma(x[j], p->low, b[j]);
}

/* Products of a query with n keys from number `begin` on that it does not see become -INFINITY. */
static __device__ __forceinline__ void hide_keys(float x[KEY_TILES][4], int at, const query *q, int begin, int n,
                                                 int lane) {
    int end = q->pos + 1 < begin + n ? q->pos + 1 : begin + n;
    IG_UNROLL for (int j = 0; j < 2 * KEY_TILES; j++) {
        int key = begin + j / 2 * IG_MMA_COLS + lane % 4 * 2 + j % 2;
        if (!q->exists || key < q->seen || key >= end) x[j / 2][at + j % 2] = -INFINITY;
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
static __host__ __device__ __forceinline__ int first_row(ig_window window, int pos, int keys) {
    return ig_window_begin(window, pos + 1) / keys * keys;
}

/* Where a block of threads is: its queries, and the rows of its part that these see. */
typedef struct position {
    int kv_head, head, heads, token, n_tokens, first_pos;
    int all_begin, all_end; /* rows that its queries see */
    int last_begin;         /* the first that its last one sees */
    int begin, end;         /* those of the part */
} position;

static __device__ __forceinline__ position position_of(const tiling *g, const ig_cuda_prompt *p) {
    position x;
    int slice = (int)blockIdx.y % g->n_slices * g->heads;
    x.kv_head = (int)blockIdx.y / g->n_slices;
    x.head = x.kv_head * g->group + slice;
    x.heads = g->group - slice < g->heads ? g->group - slice : g->heads;
    x.token = (int)blockIdx.x * g->positions;
    x.n_tokens = p->n - x.token < g->positions ? p->n - x.token : g->positions;
    x.first_pos = p->n_rows - p->job->n_tokens + p->first + x.token;
    x.all_begin = first_row(p->window, x.first_pos, g->keys), x.all_end = x.first_pos + x.n_tokens;
    x.last_begin = ig_window_begin(p->window, x.all_end);
    ig_cuda_part_of_rows part = ig_cuda_part_of(p, (int)blockIdx.z);
    x.begin = x.all_begin > part.begin ? x.all_begin : part.begin;
    x.end = x.all_end < part.end ? x.all_end : part.end;
    return x;
}

/* Products of a step of n keys from number `begin` on become weights, which earlier sums of values are scaled to. */
static __device__ __forceinline__ void weigh_step(float x[KEY_TILES][4], float acc[DIM_TILES][4], query q[2],
                                                  const tiling *g, const position *at, int begin, int n, int lane) {
    bool all_seen = g->keys == MOST_KEYS && begin + g->keys <= at->first_pos + 1 && begin >= at->last_begin;
    IG_UNROLL for (int i = 0; i < 2; i++) {
        if (!all_seen) hide_keys(x, 2 * i, &q[i], begin, n, lane);
        float r = weigh_scores(x, 2 * i, &q[i]);
        IG_UNROLL for (int j = 0; j < DIM_TILES; j++) if (j * IG_MMA_COLS < g->d) acc[j][2 * i] *= r,
            acc[j][2 * i + 1] *= r;
    }
}

/* All steps, queries being in registers: rows of the next one come to shared memory meanwhile. */
template <int dims>
static __device__ __forceinline__ void take_steps_near(float acc[DIM_TILES][4], query q[2], const tiling *g,
                                                       const position *at, uint16_t *shared, int gap, int first,
                                                       const uint16_t *rows, int dim, int lane) {
    enum { SIZE = MOST_KEYS * dims };
    piece pieces[dims / IG_MMA_DEPTH];
    int each = 2 * dims, stage = 0;
    IG_UNROLL for (int i = 0; i < dims / IG_MMA_DEPTH; i++)
        load_piece(&pieces[i], g, shared + first * g->stride, gap, i * IG_MMA_DEPTH, lane);
    __syncthreads(); /* rows take the place of queries */
    for (int part = 0; part < 2; part++) send(shared + part * SIZE, g, rows, at->end - at->begin, part);
    ig_send_end();
    IG_LOOP for (int begin = at->begin; begin < at->end; begin += MOST_KEYS, rows += MOST_KEYS * each) {
        int n = at->end - begin < MOST_KEYS ? at->end - begin : MOST_KEYS, left = at->end - begin - MOST_KEYS;
        const uint16_t *here = shared + stage * 2 * SIZE;
        float x[KEY_TILES][4] = {};
        stage ^= 1;
        for (int part = 0; part < 2 && left > 0; part++)
            send(shared + (stage * 2 + part) * SIZE, g, rows + MOST_KEYS * each, left, part);
        ig_send_end();
        ig_await_sent<1>();
        __syncthreads();
        IG_UNROLL for (int i = 0; i < dims / IG_MMA_DEPTH; i++)
            multiply_piece(x, g, &pieces[i], here, i * IG_MMA_DEPTH, lane);
        weigh_step(x, acc, q, g, at, begin, n, lane);
        add_values(acc, x, g, here + SIZE, dim, lane);
        __syncthreads();
    }
}

/* All steps, queries being in shared memory. Values of a step come there while its keys are multiplied, and keys of the
 * next one while its values are; without room for both they wait for each other. */
static __device__ __forceinline__ void take_steps(float acc[DIM_TILES][4], query q[2], const tiling *g,
                                                  const position *at, uint16_t *shared, int gap, int first,
                                                  const uint16_t *rows, int dim, int lane) {
    uint16_t *keys = shared + 2 * gap, *values = keys + (g->apart ? g->keys * g->stride : 0);
    int each = 2 * g->d;
    send(keys, g, rows, at->end - at->begin, 0);
    ig_send_end();
    IG_LOOP for (int begin = at->begin; begin < at->end; begin += g->keys, rows += g->keys * each) {
        int n = at->end - begin < g->keys ? at->end - begin : g->keys, left = at->end - begin - g->keys;
        float x[KEY_TILES][4] = {};
        ig_await_sent<0>();
        __syncthreads();
        if (g->apart) send(values, g, rows, n, 1);
        for (int c = 0; c < g->d; c += IG_MMA_DEPTH) {
            piece p;
            load_piece(&p, g, shared + first * g->stride, gap, c, lane);
            multiply_piece(x, g, &p, keys, c, lane);
        }
        if (!g->apart) {
            __syncthreads();
            send(values, g, rows, n, 1);
        }
        ig_send_end();
        weigh_step(x, acc, q, g, at, begin, n, lane);
        ig_await_sent<0>();
        __syncthreads();
        if (g->apart && left > 0) send(keys, g, rows + g->keys * each, left, 0);
        add_values(acc, x, g, values, dim, lane);
        if (!g->apart && left > 0) {
            __syncthreads();
            send(keys, g, rows + g->keys * each, left, 0);
        }
        ig_send_end();
    }
}

/* Blocks of threads of a multiprocessor, whose registers they share. */
static constexpr int resident(int dims) {
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ < 800
    const bool few = false;
#else
    const bool few = true; /* registers are enough */
#endif
    return few && dims == 64 ? 3 : 2;
}

/* Dims [dim, dim + DIMS) of what a part comes to, and of the result if there is no other. Instances are for some dims
 * of heads, whose queries registers have room for, or 0: for any. */
template <int dims>
static __global__ void __launch_bounds__(THREADS, resident(dims))
    prefill(ig_head_shape s, tiling g, ig_cuda_prompt p, int dim) {
    ig_begin();
    if (dims) g.d = g.padded = g.stride = dims, g.warps = MOST_WARPS, g.keys = MOST_KEYS;
    if (dims && dims < DIMS) dim = 0;
    IG_SHARED(uint4, shared);
    position at = position_of(&g, &p);
    if (at.begin >= at.end) return;
    bool fresh = at.begin == at.all_begin || at.begin % IG_GPU_PART == 0;
    float *part = p.parts + (size_t)blockIdx.z * (size_t)p.n * (size_t)s.n_heads * ((size_t)g.d + 2);
    int lane = (int)threadIdx.x % IG_WARP, first = (int)threadIdx.x / IG_WARP * IG_MMA_ROWS;
    int gap = g.warps * IG_MMA_ROWS * g.stride;
    size_t row = (size_t)at.kv_head * (size_t)(p.end - p.begin) + (size_t)(at.begin - p.begin);
    query q[2];
    float acc[DIM_TILES][4];
    IG_UNROLL for (int i = 0; i < 2; i++) {
        q[i] = query_of(&s, &g, &p, part, first + lane / 4 + 8 * i, at.token, at.n_tokens, at.head, at.heads, fresh);
        take_state(acc, 2 * i, &q[i], g.d, dim, fresh, lane);
    }
    uint16_t *there = (uint16_t *)shared;
    const uint16_t *rows = p.rows + row * 2 * (size_t)g.d;
    load_queries<dims>(there, gap, q, &s, &g, &p, first, at.token, at.n_tokens, at.head, at.heads);
    if constexpr (dims > 0) {
        __syncthreads();
        take_steps_near<dims>(acc, q, &g, &at, there, gap, first, rows, dim, lane);
    } else {
        take_steps(acc, q, &g, &at, there, gap, first, rows, dim, lane);
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
    int first = ig_window_begin(p.window, pos + 1);
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

/* Bytes of shared memory of a block: of queries and rows of a step. */
static size_t shared_bytes(const tiling *g) {
    bool near = g->d == 64 || g->d == 128; /* two steps' rows take the place of the queries */
    size_t rows = (size_t)(2 * g->warps * IG_MMA_ROWS + (near ? 0 : g->apart ? 2 * g->keys : g->keys));
    return rows * (size_t)g->stride * sizeof(uint16_t);
}

cudaError_t ig_cuda_allow_prefill(void) {
    ig_head_shape widest = {1, 1, IG_KV_DIMS, 1};
    tiling g = tiling_of(&widest);
    return cudaFuncSetAttribute((const void *)(void (*)(ig_head_shape, tiling, ig_cuda_prompt, int))prefill<0>,
                                cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_bytes(&g));
}

void ig_cuda_prefill(ig_queue q, const ig_head_shape *shape, const ig_cuda_prompt *p) {
    tiling g = tiling_of(shape);
    dim3 grid((unsigned)(p->n + g.positions - 1) / (unsigned)g.positions, (unsigned)(shape->n_kv_heads * g.n_slices),
              (unsigned)ig_cuda_parts_of(p));
    auto kernel = g.d == 64 ? prefill<64> : g.d == 128 ? prefill<128> : prefill<0>;
    for (int dim = 0; dim < g.d; dim += DIMS)
        ig_launch(kernel, grid, dim3((unsigned)g.warps * IG_WARP), shared_bytes(&g), q, *shape, g, *p, dim);
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
