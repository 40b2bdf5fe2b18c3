/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of prompts. The rows that a range of keys needs come to the device once, as 16-bit floats (gather); then a
 * block of threads takes a tile of queries, positions times heads of a group, through them in steps of KEYS keys with
 * an online softmax. A query's sums are made of the same steps whatever the tile: those begin at multiples of KEYS, and
 * keys that it does not see change no bit.
 */
#include "device/cuda/rows.cuh"

enum {
    THREADS = 128,
    MOST_ROWS = 64,    /* queries of a tile */
    MOST_KEYS = 32,    /* of a step */
    TILE_FLOATS = 4096 /* of a tile's queries, and of a step's keys */
};

/* What a shape makes of a tile. */
typedef struct tiling {
    int group, d;
    int heads;     /* of the group in a tile */
    int n_slices;  /* that the group is cut into so */
    int positions; /* of a tile */
    int keys;      /* of a step: a power of 2, so that it divides IG_ATTEND_UNIT */
} tiling;

static tiling tiling_of(const ig_head_shape *s) {
    tiling t = {s->n_heads / s->n_kv_heads, s->head_dim, 0, 0, 0, MOST_KEYS};
    int rows = TILE_FLOATS / t.d < MOST_ROWS ? TILE_FLOATS / t.d : MOST_ROWS;
    while (t.keys * t.d > TILE_FLOATS) t.keys /= 2;
    t.heads = t.group < rows ? t.group : rows;
    t.n_slices = (t.group + t.heads - 1) / t.heads;
    t.positions = rows / t.heads;
    return t;
}

/* ---- gathering ------------------------------------------------------------------------- */

typedef struct gathering {
    const ig_attention *job;
    uint16_t *rows;
    int begin, n, d;
} gathering;

/* A block of threads is a row of a KV head. */
static __global__ void gather(gathering g) {
    const ig_kv_view *view = &g.job->views[blockIdx.y];
    ig_cuda_row row = ig_cuda_row_at(view, g.begin + (int)blockIdx.x, g.d);
    int n_lines = ig_cuda_lines(view->type, g.d);
    uint16_t *to = g.rows + ((size_t)blockIdx.y * (size_t)g.n + blockIdx.x) * 2 * (size_t)g.d;
    for (int i = (int)threadIdx.x; i < 2 * g.d; i += THREADS) {
        const uint8_t *from = i < g.d ? row.key : row.key + view->v_offset;
        const ig_kv_line *lines = i < g.d ? row.lines : row.lines + n_lines;
        to[i] = view->type == IG_KV_F16 ? ((const uint16_t *)from)[i % g.d]
                                        : ig_to_half(ig_cuda_number(view->type, from, lines, i % g.d, g.d));
    }
}

void ig_cuda_gather(cudaStream_t s, uint16_t *rows, const ig_head_shape *shape, const ig_attention *job, int begin,
                    int end) {
    gathering g = {job, rows, begin, end - begin, shape->head_dim};
    IG_LAUNCH(gather, dim3((unsigned)g.n, (unsigned)shape->n_kv_heads), dim3(THREADS), 0, s, g);
}

/* ---- attention ------------------------------------------------------------------------------- */

typedef struct tile {
    float *q, *acc;   /* [rows][d] */
    float *scores;    /* [rows][keys] */
    float *m, *l, *r; /* [rows] */
    uint16_t *kv;     /* [keys][d + 2] keys, then values; the gap spreads rows over the banks */
} tile;

static __host__ __device__ __forceinline__ size_t tile_bytes(const tiling *t) {
    size_t rows = (size_t)t->positions * (size_t)t->heads;
    return rows * (size_t)(2 * t->d + t->keys + 3) * sizeof(float) + (size_t)t->keys * (size_t)(t->d + 2) * 2;
}

static __device__ __forceinline__ tile lay_out(float *shared, const tiling *g) {
    int rows = g->positions * g->heads;
    tile t;
    t.q = shared;
    t.acc = t.q + rows * g->d;
    t.scores = t.acc + rows * g->d;
    t.m = t.scores + rows * g->keys;
    t.l = t.m + rows;
    t.r = t.l + rows;
    t.kv = (uint16_t *)(t.r + rows);
    return t;
}

/* Keys (part 0) or values (1) of rows [begin, begin + n) to the tile. */
static __device__ void load(const tile *t, const tiling *g, const uint16_t *rows, int n, int part) {
    for (int i = (int)threadIdx.x; i < n * g->d; i += THREADS)
        t->kv[i / g->d * (g->d + 2) + i % g->d] = rows[(size_t)(2 * (i / g->d) + part) * (size_t)g->d + i % g->d];
}

/* Scores of n keys from number `begin` on; what a query does not see is -INFINITY. */
static __device__ void score(const tile *t, const tiling *g, float scale, int rows, int first_pos, int window,
                             int begin, int n) {
    for (int i = (int)threadIdx.x; i < rows * g->keys; i += THREADS) {
        int r = i / g->keys, k = i % g->keys, pos = first_pos + r / g->heads, key = begin + k;
        float sum = -INFINITY;
        if (k < n && key <= pos && (!window || key + window > pos)) {
            const float *q = t->q + r * g->d;
            const uint16_t *x = t->kv + k * (g->d + 2);
            sum = 0;
            for (int c = 0; c < g->d; c++) sum = fmaf(q[c], ig_half(x[c]), sum);
            sum *= scale;
        }
        t->scores[i] = sum;
    }
}

/* A thread is a query: softmax_step() of kernel/kernel.h. */
static __device__ void weigh_scores(const tile *t, int keys, int rows) {
    int r = (int)threadIdx.x;
    if (r >= rows) return;
    float *x = t->scores + r * keys, old = t->m[r], max = old, sum = 0;
    for (int k = 0; k < keys; k++) max = x[k] > max ? x[k] : max;
    for (int k = 0; k < keys; k++) sum += x[k] = max == -INFINITY ? 0.0f : expf(x[k] - max);
    t->r[r] = max == -INFINITY ? 0.0f : expf(old - max);
    if (max == -INFINITY) return;
    t->l[r] = t->l[r] * t->r[r] + sum;
    t->m[r] = max;
}

static __device__ void add_values(const tile *t, const tiling *g, int rows, int n) {
    for (int i = (int)threadIdx.x; i < rows * g->d; i += THREADS) {
        int r = i / g->d, c = i % g->d;
        float sum = t->r[r] == 0 ? 0.0f : t->acc[i] * t->r[r];
        const float *p = t->scores + r * g->keys;
        for (int k = 0; k < n; k++) sum = fmaf(p[k], ig_half(t->kv[k * (g->d + 2) + c]), sum);
        t->acc[i] = sum;
    }
}

/* Queries of a tile and their running sums: new ones, or those of the rows before. Number i of query r lies at
 * position r / heads. */
static __device__ void begin_tile(const tile *t, const tiling *g, const ig_head_shape *s, const ig_cuda_prompt *p,
                                  int token, int head, int rows, bool fresh) {
    for (int i = (int)threadIdx.x; i < rows * g->d; i += THREADS) {
        int r = i / g->d, c = i % g->d, h = head + r % g->heads, n = token + r / g->heads;
        size_t at = (size_t)h * (size_t)g->d + (size_t)c, row = (size_t)(p->first + n) * (size_t)s->n_heads;
        float q = h < s->n_heads ? p->job->q[row * (size_t)g->d + at] : 0;
        t->q[i] = p->job->q_scale && h < s->n_heads ? q * p->job->q_scale[at] : q;
        const float *state = p->state + ((size_t)n * (size_t)s->n_heads + (size_t)h) * ((size_t)g->d + 2);
        t->acc[i] = fresh || h >= s->n_heads ? 0 : state[2 + c];
        if (c) continue;
        t->m[r] = fresh || h >= s->n_heads ? -INFINITY : state[0];
        t->l[r] = fresh || h >= s->n_heads ? 0 : state[1];
    }
}

static __device__ void end_tile(const tile *t, const tiling *g, const ig_head_shape *s, const ig_cuda_prompt *p,
                                int token, int head, int heads, int rows, bool done) {
    for (int i = (int)threadIdx.x; i < rows * g->d; i += THREADS) {
        int r = i / g->d, c = i % g->d, h = head + r % g->heads, n = token + r / g->heads;
        if (r % g->heads >= heads) continue;
        size_t row = (size_t)(p->first + n) * (size_t)s->n_heads + (size_t)h;
        float *state = p->state + ((size_t)n * (size_t)s->n_heads + (size_t)h) * ((size_t)g->d + 2);
        if (done) {
            p->job->out[row * (size_t)g->d + (size_t)c] = t->acc[i] * (1.0f / t->l[r]);
            if (c == 0 && p->job->lse) p->job->lse[row] = t->m[r] + logf(t->l[r]);
            continue;
        }
        state[2 + c] = t->acc[i];
        if (c == 0) state[0] = t->m[r], state[1] = t->l[r];
    }
}

/* The first row that a query at this position sees, at the beginning of a step. */
static __host__ __device__ __forceinline__ int first_row(int window, int pos, int keys) {
    return window && pos + 1 > window ? (pos + 1 - window) / keys * keys : 0;
}

static __global__ void prefill(ig_head_shape s, tiling g, ig_cuda_prompt p) {
    IG_SHARED(float, shared);
    int kv_head = (int)blockIdx.y / g.n_slices, slice = (int)blockIdx.y % g.n_slices * g.heads;
    int head = kv_head * g.group + slice, heads = g.group - slice < g.heads ? g.group - slice : g.heads;
    int token = (int)blockIdx.x * g.positions, n_tokens = p.n - token < g.positions ? p.n - token : g.positions;
    int rows = n_tokens * g.heads, first_pos = p.n_rows - p.job->n_tokens + p.first + token;
    int all_begin = first_row(p.window, first_pos, g.keys), all_end = first_pos + n_tokens;
    int begin = all_begin > p.begin ? all_begin : p.begin, end = all_end < p.end ? all_end : p.end;
    if (begin >= end) return;
    tile t = lay_out(shared, &g);
    begin_tile(&t, &g, &s, &p, token, head, rows, p.begin <= all_begin);
    for (; begin < end; begin += g.keys) {
        int n = end - begin < g.keys ? end - begin : g.keys;
        const uint16_t *kv =
            p.rows + ((size_t)kv_head * (size_t)(p.end - p.begin) + (size_t)(begin - p.begin)) * 2 * (size_t)g.d;
        __syncthreads();
        load(&t, &g, kv, n, 0);
        __syncthreads();
        score(&t, &g, s.scale, rows, first_pos, p.window, begin, n);
        __syncthreads();
        weigh_scores(&t, g.keys, rows);
        load(&t, &g, kv, n, 1);
        __syncthreads();
        add_values(&t, &g, rows, n);
    }
    end_tile(&t, &g, &s, &p, token, head, heads, rows, all_end <= p.end);
}

void ig_cuda_prefill(cudaStream_t s, const ig_head_shape *shape, const ig_cuda_prompt *p) {
    tiling g = tiling_of(shape);
    dim3 grid((unsigned)(p->n + g.positions - 1) / (unsigned)g.positions, (unsigned)(shape->n_kv_heads * g.n_slices));
    IG_LAUNCH(prefill, grid, dim3(THREADS), tile_bytes(&g), s, *shape, g, *p);
}

int ig_cuda_first_row(const ig_head_shape *shape, const ig_attention *job, int first, int n) {
    return first_row(job->window, n - job->n_tokens + first, tiling_of(shape).keys);
}
