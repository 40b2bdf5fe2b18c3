/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of decode steps, and the weights of rows. Rows of K and V are read in place, from wherever the host has
 * them, each once for all query heads of a group (of a slice of it, if that is large). A block of threads is a job, a
 * slice of heads and IG_CUDA_SPLIT rows of its view; the parts are merged in order, so that the same rows give the same
 * bits whichever policy chose them (device/cpu_attention.c does the same).
 */
#include "device/cuda/rows.cuh"

enum {
    THREADS = 128,
    WARPS = THREADS / IG_WARP,
    KEYS = 128,         /* of one step of the online softmax */
    SLICE_HEADS = 16,   /* query heads that share each row read, at most */
    SLICE_FLOATS = 4096 /* of their queries, at most */
};

/* Heads of a slice. */
static __host__ __device__ __forceinline__ int slice_heads(const ig_head_shape *s) {
    int group = s->n_heads / s->n_kv_heads, most = SLICE_FLOATS / s->head_dim;
    if (most > SLICE_HEADS) most = SLICE_HEADS;
    return group < most ? group : most;
}

static __host__ __device__ __forceinline__ int slices(const ig_head_shape *s) {
    int n = slice_heads(s);
    return (s->n_heads / s->n_kv_heads + n - 1) / n;
}

/* Shared memory of a block. */
typedef struct tile {
    float *q, *acc;    /* [heads][d] */
    float *scores;     /* [heads][KEYS] */
    float *m, *l, *r;  /* [heads] */
    ig_cuda_row *rows; /* [KEYS] */
} tile;

static __host__ __device__ __forceinline__ size_t tile_floats(int heads, int d) {
    return ((size_t)heads * (size_t)(2 * d + KEYS + 3) + 1) / 2 * 2; /* rows are aligned to 8 bytes */
}

static __device__ __forceinline__ tile lay_out(float *shared, int heads, int d) {
    tile t;
    t.q = shared;
    t.acc = t.q + heads * d;
    t.scores = t.acc + heads * d;
    t.m = t.scores + heads * KEYS;
    t.l = t.m + heads;
    t.r = t.l + heads;
    t.rows = (ig_cuda_row *)(shared + tile_floats(heads, d));
    return t;
}

static __device__ float scaled_query(const ig_attention *a, const ig_head_shape *s, int token, int head, int i) {
    size_t at = (size_t)head * (size_t)s->head_dim + (size_t)i;
    float q = a->q[(size_t)token * (size_t)s->n_heads * (size_t)s->head_dim + at];
    return a->q_scale ? q * a->q_scale[at] : q;
}

/* A warp takes every WARPS-th key; its lanes share the numbers of a row. */
static __device__ void score(const tile *t, const ig_kv_view *view, const ig_head_shape *s, int heads, int n) {
    int lane = (int)threadIdx.x % IG_WARP, d = s->head_dim;
    for (int k = (int)threadIdx.x / IG_WARP; k < n; k += WARPS) {
        float sum[SLICE_HEADS] = {0};
        for (int i = lane; i < d; i += IG_WARP) {
            float x = ig_cuda_number(view->type, t->rows[k].key, t->rows[k].lines, i, d);
            for (int h = 0; h < SLICE_HEADS; h++)
                if (h < heads) sum[h] = fmaf(t->q[h * d + i], x, sum[h]);
        }
        for (int h = 0; h < SLICE_HEADS; h += IG_SUMS) {
            if (h >= heads) break;
            float total = ig_warp_sums(sum + h, lane);
            if (lane % 8 == 0 && h + lane / 8 < heads) t->scores[(h + lane / 8) * KEYS + k] = s->scale * total;
        }
    }
}

/* A warp takes every WARPS-th head: softmax_step() of kernel/kernel.h. */
static __device__ void weigh_scores(const tile *t, int heads, int n) {
    int lane = (int)threadIdx.x % IG_WARP;
    for (int h = (int)threadIdx.x / IG_WARP; h < heads; h += WARPS) {
        float *x = t->scores + h * KEYS, old = t->m[h], max = -INFINITY, sum = 0;
        for (int k = lane; k < n; k += IG_WARP) max = x[k] > max ? x[k] : max;
        max = ig_warp_max(max);
        if (old > max) max = old;
        for (int k = lane; k < n; k += IG_WARP) sum += x[k] = max == -INFINITY ? 0.0f : expf(x[k] - max);
        sum = ig_warp_sum(sum);
        float r = max == -INFINITY ? 0.0f : expf(old - max);
        if (lane) continue;
        t->r[h] = r;
        t->l[h] = max == -INFINITY ? t->l[h] : t->l[h] * r + sum;
        t->m[h] = max;
    }
}

/* A thread is a dimension. */
static __device__ void add_values(const tile *t, const ig_kv_view *view, int d, int heads, int n) {
    int n_lines = ig_cuda_lines(view->type, d);
    for (int i = (int)threadIdx.x; i < d; i += THREADS) {
        float acc[SLICE_HEADS];
        for (int h = 0; h < SLICE_HEADS; h++) acc[h] = h >= heads || t->r[h] == 0 ? 0.0f : t->acc[h * d + i] * t->r[h];
        for (int k = 0; k < n; k++) {
            const ig_cuda_row *row = &t->rows[k];
            float v = ig_cuda_number(view->type, row->key + view->v_offset, row->lines + n_lines, i, d);
            for (int h = 0; h < SLICE_HEADS; h++)
                if (h < heads) acc[h] = fmaf(t->scores[h * KEYS + k], v, acc[h]);
        }
        for (int h = 0; h < SLICE_HEADS; h++)
            if (h < heads) t->acc[h * d + i] = acc[h];
    }
}

static __device__ __forceinline__ float *result_at(const ig_cuda_parts *p, const ig_head_shape *s, int job, int head,
                                                   int part) {
    size_t at = ((size_t)job * (size_t)s->n_heads + (size_t)head) * (size_t)p->n_parts + (size_t)part;
    return p->results + at * ((size_t)s->head_dim + 2);
}

static __global__ void decode(ig_head_shape s, ig_cuda_parts p) {
    IG_SHARED(float, shared);
    int part = p.first + (int)blockIdx.x, kv_head = (int)blockIdx.y / slices(&s), d = s.head_dim;
    int group = s.n_heads / s.n_kv_heads, first = (int)blockIdx.y % slices(&s) * slice_heads(&s);
    int heads = group - first < slice_heads(&s) ? group - first : slice_heads(&s), head = kv_head * group + first;
    const ig_attention *a = &p.jobs[blockIdx.z];
    const ig_kv_view *view = &a->views[kv_head];
    int n_rows = ig_cuda_rows(view), begin = part * IG_CUDA_SPLIT;
    int end = begin + IG_CUDA_SPLIT < n_rows ? begin + IG_CUDA_SPLIT : n_rows;
    if (begin >= n_rows) return;
    tile t = lay_out(shared, slice_heads(&s), d);
    for (int i = (int)threadIdx.x; i < heads * d; i += THREADS) {
        t.q[i] = scaled_query(a, &s, 0, head + i / d, i % d);
        t.acc[i] = 0;
    }
    if ((int)threadIdx.x < heads) t.m[threadIdx.x] = -INFINITY, t.l[threadIdx.x] = 0;
    for (; begin < end; begin += KEYS) {
        int n = end - begin < KEYS ? end - begin : KEYS;
        __syncthreads();
        if ((int)threadIdx.x < n) t.rows[threadIdx.x] = ig_cuda_row_at(view, begin + (int)threadIdx.x, d);
        __syncthreads();
        score(&t, view, &s, heads, n);
        __syncthreads();
        weigh_scores(&t, heads, n);
        __syncthreads();
        add_values(&t, view, d, heads, n);
    }
    for (int h = 0; h < heads; h++) {
        float *to = result_at(&p, &s, (int)blockIdx.z, head + h, part);
        for (int i = (int)threadIdx.x; i < d; i += THREADS) to[2 + i] = t.acc[h * d + i];
        if (threadIdx.x == 0) to[0] = t.m[h], to[1] = t.l[h];
    }
}

void ig_cuda_decode(ig_queue q, const ig_head_shape *shape, const ig_cuda_parts *p) {
    dim3 grid((unsigned)(p->end - p->first), (unsigned)(shape->n_kv_heads * slices(shape)), (unsigned)p->n_jobs);
    size_t shared = tile_floats(slice_heads(shape), shape->head_dim) * sizeof(float) + KEYS * sizeof(ig_cuda_row);
    ig_launch(decode, grid, dim3(THREADS), shared, q, *shape, *p);
}

/* ---- merging parts ---------------------------------------------------------------------- */

/* out = sum_p acc_p e^(m_p - m) / sum_p l_p e^(m_p - m), and what the head does not read. */
static __global__ void merge(ig_head_shape s, ig_cuda_parts p) {
    int head = (int)blockIdx.x, job = (int)blockIdx.y, d = s.head_dim;
    const ig_attention *a = &p.jobs[job];
    int n = (ig_cuda_rows(&a->views[head / (s.n_heads / s.n_kv_heads)]) + IG_CUDA_SPLIT - 1) / IG_CUDA_SPLIT;
    float m = -INFINITY, l = 0, share = a->rest ? a->rest_share[head] : 0;
    for (int k = 0; k < n; k++) m = fmaxf(m, *result_at(&p, &s, job, head, k));
    for (int k = 0; k < n; k++) {
        const float *part = result_at(&p, &s, job, head, k);
        l += part[1] * expf(part[0] - m);
    }
    float *out = a->out + (size_t)head * (size_t)d;
    for (int i = (int)threadIdx.x; i < d; i += THREADS) {
        float sum = 0;
        for (int k = 0; k < n; k++) {
            const float *part = result_at(&p, &s, job, head, k);
            sum += part[2 + i] * expf(part[0] - m);
        }
        sum /= l;
        if (share != 0) sum = (1 - share) * sum + a->rest[(size_t)head * (size_t)d + (size_t)i];
        out[i] = sum;
    }
    if (threadIdx.x == 0 && a->lse) a->lse[head] = m + logf(l);
}

void ig_cuda_merge(ig_queue q, const ig_head_shape *shape, const ig_cuda_parts *p) {
    dim3 grid((unsigned)shape->n_heads, (unsigned)p->n_jobs);
    ig_launch(merge, grid, dim3(THREADS), 0, q, *shape, *p);
}

/* ---- weights of rows ------------------------------------------------------------------------ */

typedef struct weighing {
    const ig_attention *job;
    int begin, end;
    float *weights;
    size_t stride;
} weighing;

/* A warp is a row of a KV head; it meets all queries of the group, in order. */
static __global__ void weigh(ig_head_shape s, weighing w) {
    int lane = (int)threadIdx.x, kv_head = (int)blockIdx.y, d = s.head_dim, group = s.n_heads / s.n_kv_heads;
    int i = w.begin + (int)(blockIdx.x * WARPS + threadIdx.y);
    const ig_attention *a = w.job;
    const ig_kv_view *view = &a->views[kv_head];
    if (i >= w.end || i >= view->n) return;
    ig_cuda_row row = ig_cuda_row_at(view, i, d);
    int first_pos = view->n - a->n_tokens;
    float sum = 0;
    for (int t = i > first_pos ? i - first_pos : 0; t < a->n_tokens; t++) {
        if (a->window && i + a->window <= first_pos + t) break;
        for (int h = kv_head * group; h < (kv_head + 1) * group; h++) {
            float dot = 0;
            for (int j = lane; j < d; j += IG_WARP)
                dot = fmaf(scaled_query(a, &s, t, h, j), ig_cuda_number(view->type, row.key, row.lines, j, d), dot);
            dot = s.scale * ig_warp_sum(dot);
            float lse = a->lse[(size_t)t * (size_t)s.n_heads + (size_t)h];
            sum += expf(fminf(dot - lse, 0.0f)); /* no score is above lse, but for rounding */
        }
    }
    if (lane == 0) w.weights[(size_t)kv_head * w.stride + (size_t)i] += sum;
}

void ig_cuda_weigh(ig_queue q, const ig_head_shape *shape, const ig_attention *job, int begin, int end, float *weights,
                   size_t stride) {
    weighing w = {job, begin, end, weights, stride};
    dim3 grid((unsigned)(end - begin + WARPS - 1) / WARPS, (unsigned)shape->n_kv_heads), block(IG_WARP, WARPS);
    ig_launch(weigh, grid, block, 0, q, *shape, w);
}
