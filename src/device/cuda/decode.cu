/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of decode steps, and the weights of rows. Rows of K and V are read in place, from wherever the host has
 * them, each once for all query heads of a group (of a slice of it, if that is large). A block of threads is a job, a
 * slice of heads and IG_CUDA_SPLIT rows of its view; the parts are merged in order, so that the same rows give the same
 * bits whichever policy chose them (device/cpu_attention.c does the same). Memory answers late: each lane has 16 bytes
 * of several rows under way at a time.
 */
#include "device/cuda/rows.cuh"

enum {
    THREADS = 256,
    WARPS = THREADS / IG_WARP,
    WIDE = IG_CUDA_EIGHT, /* numbers of a row that a lane loads at a time */
    NEAR = IG_SUMS,       /* rows that a lane has under way at a time, one behind the other */
    SLICE_HEADS = 8,      /* query heads that share each row read, at most */
    SLICE_FLOATS = 4096   /* of their queries, at most */
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

/* A warp's lanes in teams, each of which takes NEAR rows at a time. */
typedef struct team {
    int width, lane; /* lanes of a team, a power of two; this one's number */
    int first, step; /* the first of its rows, and how far the next ones are */
} team;

static __device__ __forceinline__ team team_of(int d) {
    team x = {NEAR, 0, 0, 0};
    while (x.width < IG_WARP && x.width * WIDE < d) x.width *= 2;
    x.lane = (int)threadIdx.x % x.width;
    x.first = (int)threadIdx.x / x.width * NEAR;
    x.step = THREADS / x.width * NEAR;
    return x;
}

/* Shared memory of a block. */
typedef struct tile {
    float *q;          /* [heads][d] queries; after the scores, sums of values */
    float *scores;     /* [heads][IG_CUDA_SPLIT], then weights, with 0 behind the last row */
    float *m, *l;      /* [heads] the largest score, and the sum of the weights */
    ig_cuda_row *rows; /* [IG_CUDA_SPLIT] */
} tile;

static __host__ __device__ __forceinline__ size_t tile_floats(int heads, int d) {
    return ((size_t)heads * (size_t)(d + IG_CUDA_SPLIT + 2) + 1) / 2 * 2; /* rows are aligned to 8 bytes */
}

static __device__ __forceinline__ tile lay_out(float *shared, int heads, int d) {
    tile t;
    t.q = shared;
    t.scores = t.q + heads * d;
    t.m = t.scores + heads * IG_CUDA_SPLIT;
    t.l = t.m + heads;
    t.rows = (ig_cuda_row *)(shared + tile_floats(heads, d));
    return t;
}

static __device__ float scaled_query(const ig_attention *a, const ig_head_shape *s, int token, int head, int i) {
    size_t at = (size_t)head * (size_t)s->head_dim + (size_t)i;
    float q = a->q[(size_t)token * (size_t)s->n_heads * (size_t)s->head_dim + at];
    return a->q_scale ? q * a->q_scale[at] : q;
}

/* Numbers [i, i + WIDE) of NEAR rows from `first` on, of keys or of values; behind the last row that one's. */
template <bool is_f16>
static __device__ __forceinline__ void load_rows(ig_cuda_eight x[NEAR], const tile *t, const ig_kv_view *view,
                                                 bool values, int first, int n, int i, int d) {
    int n_lines = values ? ig_cuda_lines(view->type, d) : 0;
    size_t offset = values ? view->v_offset : 0;
    IG_UNROLL for (int r = 0; r < NEAR; r++) {
        ig_cuda_row row = t->rows[first + r < n ? first + r : n - 1];
        x[r] = ig_cuda_load<is_f16>(view->type, row.key + offset, row.lines + n_lines, i, d);
    }
}

/* Products of queries with the keys of n rows. A row's is the sum of what its team's lanes have. */
template <int most_heads, bool is_f16>
static __device__ void score(const tile *t, const ig_kv_view *view, const ig_head_shape *s, int heads, int n) {
    int d = s->head_dim;
    team x = team_of(d);
    int each = IG_WARP / x.width * NEAR; /* rows of a warp */
    for (int first = x.first; first / each * each < n; first += x.step) {
        float sum[most_heads][NEAR] = {};
        for (int i = WIDE * x.lane; i < d; i += WIDE * x.width) {
            ig_cuda_eight rows[NEAR];
            load_rows<is_f16>(rows, t, view, false, first, n, i, d);
            IG_UNROLL for (int j = 0; j < WIDE; j++) {
                float key[NEAR];
                IG_UNROLL for (int r = 0; r < NEAR; r++) key[r] = ig_half(ig_cuda_half_of<is_f16>(&rows[r], j));
                IG_UNROLL for (int h = 0; h < most_heads; h++) {
                    if (h >= heads) break;
                    float q = t->q[h * d + i + j];
                    IG_UNROLL for (int r = 0; r < NEAR; r++) sum[h][r] = fmaf(q, key[r], sum[h][r]);
                }
            }
        }
        IG_UNROLL for (int h = 0; h < most_heads; h++) {
            if (h >= heads) break;
            float total = ig_warp_sums(sum[h], x.lane, x.width);
            int row = first + x.lane / (x.width / NEAR);
            if (x.lane % (x.width / NEAR) == 0) t->scores[h * IG_CUDA_SPLIT + row] = s->scale * total;
        }
    }
}

/* A warp takes every WARPS-th head: scores become weights. */
static __device__ void weigh_scores(const tile *t, int heads, int n) {
    int lane = (int)threadIdx.x % IG_WARP;
    for (int h = (int)threadIdx.x / IG_WARP; h < heads; h += WARPS) {
        float *x = t->scores + h * IG_CUDA_SPLIT, max = -INFINITY, sum = 0;
        for (int k = lane; k < n; k += IG_WARP) max = x[k] > max ? x[k] : max;
        max = ig_warp_max(max);
        for (int k = lane; k < IG_CUDA_SPLIT; k += IG_WARP)
            sum += x[k] = k >= n || max == -INFINITY ? 0.0f : expf(x[k] - max);
        sum = ig_warp_sum(sum);
        if (lane == 0) t->m[h] = max, t->l[h] = sum;
    }
}

/* Sums of the values, weighted: of a team's rows, then of a warp's teams, then of the warps, one after the other. */
template <int most_heads, bool is_f16>
static __device__ void add_values(const tile *t, const ig_kv_view *view, int d, int heads, int n) {
    int warp = (int)threadIdx.x / IG_WARP, lane = (int)threadIdx.x % IG_WARP;
    team x = team_of(d);
    for (int begin = 0; begin < d; begin += WIDE * x.width) {
        float sum[most_heads][WIDE] = {};
        int i = begin + WIDE * x.lane;
        for (int first = x.first; first < n && i < d; first += x.step) {
            ig_cuda_eight rows[NEAR];
            load_rows<is_f16>(rows, t, view, true, first, n, i, d);
            IG_UNROLL for (int r = 0; r < NEAR; r++) {
                float value[WIDE];
                IG_UNROLL for (int j = 0; j < WIDE; j++) value[j] = ig_half(ig_cuda_half_of<is_f16>(&rows[r], j));
                IG_UNROLL for (int h = 0; h < most_heads; h++) {
                    if (h >= heads) break;
                    float p = t->scores[h * IG_CUDA_SPLIT + first + r];
                    IG_UNROLL for (int j = 0; j < WIDE; j++) sum[h][j] = fmaf(p, value[j], sum[h][j]);
                }
            }
        }
        IG_UNROLL for (int h = 0; h < most_heads; h++)
            IG_UNROLL for (int j = 0; j < WIDE; j++) for (int bit = IG_WARP / 2; h < heads && bit >= x.width; bit /= 2)
                sum[h][j] += __shfl_xor_sync(0xffffffffu, sum[h][j], bit);
        for (int w = 0; w < WARPS; w++) {
            __syncthreads();
            if (warp != w || lane >= x.width || i >= d) continue;
            IG_UNROLL for (int h = 0; h < most_heads; h++) IG_UNROLL for (int j = 0; j < WIDE; j++) if (h < heads)
                t->q[h * d + i + j] = sum[h][j] + (w ? t->q[h * d + i + j] : 0.0f);
        }
    }
}

template <int most_heads, bool is_f16>
static __device__ void attend(const tile *t, const ig_kv_view *view, const ig_head_shape *s, int heads, int n) {
    score<most_heads, is_f16>(t, view, s, heads, n);
    __syncthreads();
    weigh_scores(t, heads, n);
    __syncthreads();
    add_values<most_heads, is_f16>(t, view, s->head_dim, heads, n);
    __syncthreads();
}

static __device__ __forceinline__ float *result_at(const ig_cuda_parts *p, const ig_head_shape *s, int job, int head,
                                                   int part) {
    size_t at = ((size_t)job * (size_t)s->n_heads + (size_t)head) * (size_t)p->n_parts + (size_t)part;
    return p->results + at * ((size_t)s->head_dim + 2);
}

template <int most_heads>
static __global__ void __launch_bounds__(THREADS, most_heads > 4 ? 1 : 2) decode(ig_head_shape s, ig_cuda_parts p) {
    IG_SHARED(uint4, shared);
    int part = p.first + (int)blockIdx.x, kv_head = (int)blockIdx.y / slices(&s), d = s.head_dim;
    int group = s.n_heads / s.n_kv_heads, first = (int)blockIdx.y % slices(&s) * slice_heads(&s);
    int heads = group - first < slice_heads(&s) ? group - first : slice_heads(&s), head = kv_head * group + first;
    const ig_attention *a = &p.jobs[blockIdx.z];
    const ig_kv_view *view = &a->views[kv_head];
    int n = ig_cuda_rows(view) - part * IG_CUDA_SPLIT;
    if (n > IG_CUDA_SPLIT) n = IG_CUDA_SPLIT;
    if (n <= 0) return;
    tile t = lay_out((float *)shared, slice_heads(&s), d);
    for (int i = (int)threadIdx.x; i < n; i += THREADS) t.rows[i] = ig_cuda_row_at(view, part * IG_CUDA_SPLIT + i, d);
    for (int i = (int)threadIdx.x; i < heads * d; i += THREADS) t.q[i] = scaled_query(a, &s, 0, head + i / d, i % d);
    __syncthreads();
    if (view->type == IG_KV_F16)
        attend<most_heads, true>(&t, view, &s, heads, n);
    else
        attend<most_heads, false>(&t, view, &s, heads, n);
    for (int h = 0; h < heads; h++) {
        float *to = result_at(&p, &s, (int)blockIdx.z, head + h, part);
        for (int i = (int)threadIdx.x; i < d; i += THREADS) to[2 + i] = t.q[h * d + i];
        if (threadIdx.x == 0) to[0] = t.m[h], to[1] = t.l[h];
    }
}

void ig_cuda_decode(ig_queue q, const ig_head_shape *shape, const ig_cuda_parts *p) {
    int heads = slice_heads(shape);
    dim3 grid((unsigned)(p->end - p->first), (unsigned)(shape->n_kv_heads * slices(shape)), (unsigned)p->n_jobs);
    size_t shared = tile_floats(heads, shape->head_dim) * sizeof(float) + IG_CUDA_SPLIT * sizeof(ig_cuda_row);
    ig_launch(heads <= 1   ? decode<1>
              : heads <= 2 ? decode<2>
              : heads <= 4 ? decode<4>
                           : decode<SLICE_HEADS>,
              grid, dim3(THREADS), shared, q, *shape, *p);
}

/* ---- merging parts ---------------------------------------------------------------------- */

enum { MERGED = 256 /* parts of which the factors are in shared memory at a time, one of each thread */ };

/* out = sum_p acc_p e^(m_p - m) / sum_p l_p e^(m_p - m), and what the head does not read. */
static __global__ void merge(ig_head_shape s, ig_cuda_parts p) {
    IG_SHARED(float, factor); /* [MERGED] parts' e^(m_p - m), [MERGED] their l */
    int head = (int)blockIdx.x, job = (int)blockIdx.y, d = s.head_dim, thread = (int)threadIdx.x;
    const ig_attention *a = &p.jobs[job];
    int n = (ig_cuda_rows(&a->views[head / (s.n_heads / s.n_kv_heads)]) + IG_CUDA_SPLIT - 1) / IG_CUDA_SPLIT;
    const float *parts = result_at(&p, &s, job, head, 0);
    size_t each = (size_t)d + 2;
    float m = -INFINITY, l = 0, share = a->rest ? a->rest_share[head] : 0, *out = a->out + (size_t)head * (size_t)d;
    float sum[IG_KV_DIMS / MERGED] = {};
    for (int k = thread % IG_WARP; k < n; k += IG_WARP) m = fmaxf(m, parts[(size_t)k * each]);
    m = ig_warp_max(m);
    for (int first = 0; first < n; first += MERGED) {
        int end = n - first < MERGED ? n - first : MERGED;
        __syncthreads();
        if (thread < end) {
            const float *part = parts + (size_t)(first + thread) * each;
            factor[thread] = expf(part[0] - m);
            factor[MERGED + thread] = part[1];
        }
        __syncthreads();
        for (int k = 0; k < end; k++) {
            const float *part = parts + (size_t)(first + k) * each + 2;
            l += factor[MERGED + k] * factor[k];
            IG_UNROLL for (int j = 0; j < IG_KV_DIMS / MERGED; j++) if (thread + j * MERGED < d) sum[j] +=
                part[thread + j * MERGED] * factor[k];
        }
    }
    IG_UNROLL for (int j = 0; j < IG_KV_DIMS / MERGED; j++) {
        int i = thread + j * MERGED;
        if (i >= d) continue;
        float x = sum[j] / l;
        out[i] = share != 0 ? (1 - share) * x + a->rest[(size_t)head * (size_t)d + (size_t)i] : x;
    }
    if (thread == 0 && a->lse) a->lse[head] = m + logf(l);
}

void ig_cuda_merge(ig_queue q, const ig_head_shape *shape, const ig_cuda_parts *p) {
    dim3 grid((unsigned)shape->n_heads, (unsigned)p->n_jobs);
    ig_launch(merge, grid, dim3(MERGED), 2 * MERGED * sizeof(float), q, *shape, *p);
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
                dot = fmaf(scaled_query(a, &s, t, h, j), ig_half(ig_cuda_half(view->type, row.key, row.lines, j, d)),
                           dot);
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
