/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of decode steps, and the weights of rows. A block of threads is a job, a slice of the query heads of a
 * group, and a part of the rows of its view (ig_cuda_part_rows()); the parts are merged in order, so that the same rows
 * give the same bits whichever policy chose them.
 *
 * A part goes chunk by chunk. Memory answers late, the host's above all: so all rows of a chunk, keys and values, are
 * under way at once, on their way to shared memory, each once for all heads of the slice. There they are 16-bit floats,
 * whatever they were. Then threads are rows, with two heads at a time, for the scores; and eight numbers of two heads
 * for the sums of values, which stay in registers from chunk to chunk and are scaled when a larger score comes. The
 * code is kept short: a step comes by each instruction once or twice, and these come from memory, too.
 */
#include "device/cuda/codes.cuh"
#include "device/cuda/rows.cuh"

enum {
    THREADS = 256,
    WARPS = THREADS / IG_WARP,
    WIDE = IG_CUDA_EIGHT,        /* numbers of a row that a thread takes at a time */
    SLICE_HEADS = WARPS,         /* query heads that share each row read, at most */
    SLICE_FLOATS = 3072,         /* of their queries, at most: with a chunk that is 48 KiB */
    PAIR = 2,                    /* heads that a thread takes at a time */
    MOST_ROWS = IG_ATTEND_LEAST, /* of a chunk, so that it divides each part */
    CHUNK_NUMBERS = 1 << 13      /* of its keys, at most */
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

/* Rows of a chunk, a power of two. */
static __host__ __device__ __forceinline__ int chunk_rows(int d) {
    int n = MOST_ROWS;
    while (n * d > CHUNK_NUMBERS) n /= 2;
    return n;
}

/* Shared memory of a block. Rows have a gap, so that those of neighbours lie in different banks. */
typedef struct tile {
    uint16_t *keys, *values; /* [chunk_rows][stride]; after the last chunk, sums of values */
    ig_cuda_row *rows;       /* [chunk_rows] */
    float *q;                /* [heads][d] */
    float *scores;           /* [heads][MOST_ROWS], then weights */
    float *m, *l, *factor;   /* [heads] the largest score, the sum of the weights; what sums before are worth */
    int stride;
} tile;

static __host__ __device__ __forceinline__ int row_stride(int d) { return d + WIDE; }

/* Bytes of keys and values, or of what each thread has of the sums. */
static __host__ __device__ __forceinline__ size_t chunk_bytes(int d) {
    size_t rows = (size_t)(2 * chunk_rows(d) * row_stride(d)) * sizeof(uint16_t);
    size_t sums = (size_t)(THREADS * PAIR * WIDE) * sizeof(float);
    return rows > sums ? rows : sums;
}

static size_t tile_bytes(int heads, int d) {
    return chunk_bytes(d) + MOST_ROWS * sizeof(ig_cuda_row) + (size_t)(heads * (d + MOST_ROWS + 3)) * sizeof(float);
}

static __device__ __forceinline__ tile lay_out(uint8_t *shared, int heads, int d) {
    tile t;
    t.stride = row_stride(d);
    t.keys = (uint16_t *)shared;
    t.values = t.keys + chunk_rows(d) * t.stride;
    t.rows = (ig_cuda_row *)(shared + chunk_bytes(d));
    t.q = (float *)(t.rows + MOST_ROWS);
    t.scores = t.q + heads * d;
    t.m = t.scores + heads * MOST_ROWS;
    t.l = t.m + heads;
    t.factor = t.l + heads;
    return t;
}

static __device__ __forceinline__ float scaled_query(const ig_attention *a, const ig_head_shape *s, int token, int head,
                                                     int i) {
    size_t at = (size_t)head * (size_t)s->head_dim + (size_t)i;
    float q = a->q[(size_t)token * (size_t)s->n_heads * (size_t)s->head_dim + at];
    return a->q_scale ? q * a->q_scale[at] : q;
}

template <bool is_f16>
static __device__ __forceinline__ uint4 halves_of(const ig_cuda_eight *e) {
    uint32_t two[4] = {e->x.x, e->x.y, e->x.z, e->x.w};
    IG_UNROLL for (int j = 0; j < 4 && !is_f16; j++) two[j] =
        ig_cuda_half_of<is_f16>(e, 2 * j) | (uint32_t)ig_cuda_half_of<is_f16>(e, 2 * j + 1) << 16;
    return uint4{two[0], two[1], two[2], two[3]};
}

/* The keys and values of n rows to shared memory. A thread has `near` pieces of both under way. */
template <bool is_f16, int near>
static __device__ __forceinline__ void load_chunk(const tile *t, const ig_kv_view *view, int n, int d) {
    int wide = d / WIDE, pieces = n * wide, n_lines = ig_cuda_lines(view->type, d);
    IG_LOOP for (int first = (int)threadIdx.x; first < pieces; first += near * THREADS) {
        ig_cuda_eight k[near], v[near];
        IG_UNROLL for (int j = 0; j < near; j++) {
            int at = first + j * THREADS < pieces ? first + j * THREADS : first, i = at % wide * WIDE;
            ig_cuda_row row = t->rows[at / wide];
            k[j] = ig_cuda_load<is_f16>(view->type, row.key, row.lines, i, d);
            v[j] = ig_cuda_load<is_f16>(view->type, row.key + view->v_offset, row.lines + n_lines, i, d);
        }
        IG_UNROLL for (int j = 0; j < near; j++) {
            int at = first + j * THREADS < pieces ? first + j * THREADS : first;
            int to = at / wide * t->stride + at % wide * WIDE;
            *(uint4 *)(t->keys + to) = halves_of<is_f16>(&k[j]);
            *(uint4 *)(t->values + to) = halves_of<is_f16>(&v[j]);
        }
    }
}

/* Eight 16-bit floats in shared memory. */
static __device__ __forceinline__ void read_eight(float *out, const uint16_t *p) {
    uint4 x = *(const uint4 *)p;
    const uint32_t word[4] = {x.x, x.y, x.z, x.w};
    IG_UNROLL for (int j = 0; j < WIDE; j++) out[j] = ig_half((uint16_t)(word[j / 2] >> 16 * (j % 2)));
}

static __device__ __forceinline__ void read_floats(float *out, const float *p) {
    IG_UNROLL for (int j = 0; j < WIDE; j += 4) {
        float4 x = *(const float4 *)(p + j);
        out[j] = x.x, out[j + 1] = x.y, out[j + 2] = x.z, out[j + 3] = x.w;
    }
}

/* Products of the queries with n keys: a thread's is one row, with the heads of every so many pairs. */
static __device__ void score(const tile *t, const ig_head_shape *s, int heads, int n) {
    int d = s->head_dim, most = chunk_rows(d), row = (int)threadIdx.x % most;
    if (row >= n) return;
    IG_LOOP for (int h = (int)threadIdx.x / most * PAIR; h < heads; h += THREADS / most * PAIR) {
        const float *a = t->q + h * d, *b = h + 1 < heads ? a + d : a;
        float sum[PAIR] = {}, key[WIDE], p[WIDE], q[WIDE];
        IG_LOOP for (int i = 0; i < d; i += WIDE) {
            read_eight(key, t->keys + row * t->stride + i);
            read_floats(p, a + i);
            read_floats(q, b + i);
            IG_UNROLL for (int j = 0; j < WIDE; j++) {
                sum[0] = fmaf(p[j], key[j], sum[0]);
                sum[1] = fmaf(q[j], key[j], sum[1]);
            }
        }
        t->scores[h * MOST_ROWS + row] = s->scale * sum[0];
        if (h + 1 < heads) t->scores[(h + 1) * MOST_ROWS + row] = s->scale * sum[1];
    }
}

/* A warp is a head: scores become weights, relative to the largest score so far. */
static __device__ void weigh_scores(const tile *t, int heads, int n) {
    int h = (int)threadIdx.x / IG_WARP, lane = (int)threadIdx.x % IG_WARP;
    if (h >= heads) return;
    float *x = t->scores + h * MOST_ROWS, before = t->m[h], max = before, sum = 0;
    for (int k = lane; k < n; k += IG_WARP) max = x[k] > max ? x[k] : max;
    max = ig_warp_max(max);
    for (int k = lane; k < n; k += IG_WARP) sum += x[k] = max == -INFINITY ? 0.0f : expf(x[k] - max);
    sum = ig_warp_sum(sum);
    if (lane) return;
    float factor = before == -INFINITY ? 0.0f : expf(before - max);
    t->m[h] = max;
    t->l[h] = t->l[h] * factor + sum;
    t->factor[h] = factor;
}

/* What a thread has of the sums of values: WIDE numbers from `at` on of heads `head` and the next one, of every
 * `teams`-th row from `first` on. */
typedef struct portion {
    int head, at, first, teams; /* head is -1 where threads are left over */
    float sum[PAIR][WIDE];
} portion;

static __device__ __forceinline__ portion portion_of(int most_heads, int d) {
    int wide = d / WIDE, pairs = (most_heads + PAIR - 1) / PAIR, number = (int)threadIdx.x / wide;
    portion x = {};
    x.teams = THREADS / wide / pairs;
    x.at = (int)threadIdx.x % wide * WIDE;
    x.head = number < x.teams * pairs ? number % pairs * PAIR : -1;
    x.first = number / pairs;
    return x;
}

static __device__ __forceinline__ void add_values(const tile *t, portion *x, int heads, int n) {
    if (x->head < 0 || x->head >= heads) return;
    int a = x->head, b = a + 1 < heads ? a + 1 : a;
    IG_UNROLL for (int j = 0; j < WIDE; j++) x->sum[0][j] *= t->factor[a], x->sum[1][j] *= t->factor[b];
    float value[WIDE];
    IG_LOOP for (int row = x->first; row < n; row += x->teams) {
        read_eight(value, t->values + row * t->stride + x->at);
        float p = t->scores[a * MOST_ROWS + row], q = t->scores[b * MOST_ROWS + row];
        IG_UNROLL for (int j = 0; j < WIDE; j++) {
            x->sum[0][j] = fmaf(p, value[j], x->sum[0][j]);
            x->sum[1][j] = fmaf(q, value[j], x->sum[1][j]);
        }
    }
}

static __device__ __forceinline__ float *result_at(const ig_cuda_parts *p, const ig_head_shape *s, int job, int head,
                                                   int part) {
    size_t at = ((size_t)job * (size_t)s->n_heads + (size_t)head) * (size_t)p->n_parts + (size_t)part;
    return p->results + at * ((size_t)s->head_dim + 2);
}

/* Teams' sums are added one after the other. Heads [head, head + heads) are those of the slice. */
static __device__ void put_result(const tile *t, const portion *x, const ig_cuda_parts *p, const ig_head_shape *s,
                                  int head, int heads, int part) {
    int d = s->head_dim, each = heads * d;
    float *sums = (float *)t->keys; /* [teams][heads][d] */
    for (int h = 0; x->head >= 0 && h < PAIR; h++) {
        if (x->head + h >= heads) break;
        float *to = sums + x->first * each + (x->head + h) * d + x->at;
        IG_UNROLL for (int j = 0; j < WIDE; j++) to[j] = x->sum[h][j];
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < each; i += THREADS) {
        float sum = 0;
        for (int team = 0; team < x->teams; team++) sum += sums[team * each + i];
        result_at(p, s, (int)blockIdx.z, head + i / d, part)[2 + i % d] = sum;
    }
    if ((int)threadIdx.x >= heads) return;
    float *to = result_at(p, s, (int)blockIdx.z, head + (int)threadIdx.x, part);
    to[0] = t->m[threadIdx.x], to[1] = t->l[threadIdx.x];
}

static __global__ void __launch_bounds__(THREADS, 3) decode(ig_head_shape s, ig_cuda_parts p) {
    ig_begin();
    IG_SHARED(uint4, shared);
    int part = p.first + (int)blockIdx.x, kv_head = (int)blockIdx.y / slices(&s), d = s.head_dim;
    int group = s.n_heads / s.n_kv_heads, most = slice_heads(&s), first = (int)blockIdx.y % slices(&s) * most;
    int heads = group - first < most ? group - first : most, head = kv_head * group + first;
    const ig_attention *a = &p.jobs[blockIdx.z];
    const ig_kv_view *view = &a->views[kv_head];
    int n = ig_cuda_rows(view), rows = ig_cuda_part_rows(n), begin = part * rows;
    int end = begin + rows < n ? begin + rows : n;
    if (begin >= end) return;
    tile t = lay_out((uint8_t *)shared, most, d);
    portion mine = portion_of(most, d);
    for (int i = (int)threadIdx.x; i < heads * d; i += THREADS) t.q[i] = scaled_query(a, &s, 0, head + i / d, i % d);
    if ((int)threadIdx.x < heads) t.m[threadIdx.x] = -INFINITY, t.l[threadIdx.x] = 0;
    IG_LOOP for (int at = begin; at < end; at += chunk_rows(d)) {
        int here = end - at < chunk_rows(d) ? end - at : chunk_rows(d);
        if ((int)threadIdx.x < here) t.rows[threadIdx.x] = ig_cuda_row_at(view, at + (int)threadIdx.x);
        __syncthreads();
        if (view->type == IG_KV_F16)
            load_chunk<true, 4>(&t, view, here, d);
        else
            load_chunk<false, 2>(&t, view, here, d);
        __syncthreads();
        score(&t, &s, heads, here);
        __syncthreads();
        weigh_scores(&t, heads, here);
        __syncthreads();
        add_values(&t, &mine, heads, here);
    }
    __syncthreads();
    put_result(&t, &mine, &p, &s, head, heads, part);
}

void ig_cuda_decode(ig_queue q, const ig_head_shape *shape, const ig_cuda_parts *p) {
    dim3 grid((unsigned)(p->end - p->first), (unsigned)(shape->n_kv_heads * slices(shape)), (unsigned)p->n_jobs);
    ig_launch(decode, grid, dim3(THREADS), tile_bytes(slice_heads(shape), shape->head_dim), q, *shape, *p);
}

/* ---- merging parts ---------------------------------------------------------------------- */

enum {
    MERGED = 256,  /* parts of which the factors are in shared memory at a time, one of each thread */
    UNDER_WAY = 8, /* numbers that a thread loads at a time */
    SUMS = (IG_KV_DIMS + MERGED - 1) / MERGED
};

/* The sum or the maximum of a number of each thread, warp by warp. `shared` [warps]; ends as it begins, with no thread
 * that still reads there. */
static __device__ __forceinline__ float over_block(float x, float *shared, bool is_max) {
    int warps = MERGED / IG_WARP;
    x = is_max ? ig_warp_max(x) : ig_warp_sum(x);
    if (threadIdx.x % IG_WARP == 0) shared[threadIdx.x / IG_WARP] = x;
    __syncthreads();
    x = shared[0];
    for (int i = 1; i < warps; i++) x = is_max ? fmaxf(x, shared[i]) : x + shared[i];
    __syncthreads();
    return x;
}

/* out = sum_p acc_p e^(m_p - m) / sum_p l_p e^(m_p - m), and what the head does not read. Teams of threads, as many as
 * there is room for d numbers each, take every so many parts. */
static __global__ void merge(ig_head_shape s, ig_cuda_parts p, ig_act_codes codes) {
    ig_begin();
    IG_SHARED(float, factor); /* [MERGED] parts' e^(m_p - m), then sums of teams; [MERGED / IG_WARP] */
    float *board = factor + IG_KV_DIMS;
    int head = (int)blockIdx.x, job = (int)blockIdx.y, d = s.head_dim, thread = (int)threadIdx.x;
    int teams = d < MERGED ? MERGED / d : 1, team = d < MERGED ? thread / d : 0, at = d < MERGED ? thread % d : thread;
    const ig_attention *a = &p.jobs[job];
    int n_rows = ig_cuda_rows(&a->views[head / (s.n_heads / s.n_kv_heads)]), rows = ig_cuda_part_rows(n_rows);
    int n = (n_rows + rows - 1) / rows;
    const float *parts = result_at(&p, &s, job, head, 0);
    size_t each = (size_t)d + 2;
    float m = -INFINITY, l = 0, share = a->rest ? a->rest_share[head] : 0, *out = a->out + (size_t)head * (size_t)d;
    float sum[SUMS] = {};
    for (int k = thread; k < n; k += MERGED) m = fmaxf(m, parts[(size_t)k * each]);
    m = over_block(m, board, true);
    for (int first = 0; first < n; first += MERGED) {
        int end = n - first < MERGED ? n - first : MERGED;
        const float *part = parts + (size_t)first * each;
        if (thread < end) {
            factor[thread] = expf(part[(size_t)thread * each] - m);
            l += part[(size_t)thread * each + 1] * factor[thread];
        }
        __syncthreads();
        for (int k = team; team < teams && k < end; k += UNDER_WAY * teams)
            IG_UNROLL for (int j = 0; j < SUMS; j++) if (at + j * MERGED < d) {
                float x[UNDER_WAY];
                IG_UNROLL for (int u = 0; u < UNDER_WAY; u++) {
                    int own = k + u * teams;
                    x[u] = own < end ? part[(size_t)own * each + (size_t)(2 + at + j * MERGED)] * factor[own] : 0.0f;
                }
                IG_UNROLL for (int u = 0; u < UNDER_WAY; u++) sum[j] += x[u];
            }
        __syncthreads();
    }
    l = over_block(l, board, false) + ig_cuda_sink(a, head, m);
    for (int k = 1; k < teams; k++) { /* teams add up in order */
        if (team == k) factor[at] = sum[0];
        __syncthreads();
        if (team == 0) sum[0] += factor[at];
        __syncthreads();
    }
    uint8_t *column = codes.act ? codes.act + (size_t)job * codes.stride : NULL;
    if (team == 0) IG_UNROLL for (int j = 0; j < SUMS; j++) {
            int i = at + j * MERGED;
            if (i >= d) continue;
            float x = sum[j] / l;
            if (share != 0) x = (1 - share) * x + a->rest[(size_t)head * (size_t)d + (size_t)i];
            out[i] = x;
            if (column) ig_put_code(column, s.n_heads * d, head * d + i, x);
        }
    if (thread == 0 && a->lse) a->lse[head] = m + logf(l);
}

static void launch_merge(ig_queue q, const ig_head_shape *shape, const ig_cuda_parts *p, ig_act_codes codes) {
    dim3 grid((unsigned)shape->n_heads, (unsigned)p->n_jobs);
    size_t shared = (IG_KV_DIMS + MERGED / IG_WARP) * sizeof(float);
    ig_launch(merge, grid, dim3(MERGED), shared, q, *shape, *p, codes);
}

void ig_cuda_merge(ig_queue q, const ig_head_shape *shape, const ig_cuda_parts *p) {
    launch_merge(q, shape, p, ig_act_codes{NULL, 0});
}

bool ig_cuda_merge_codes(ig_queue q, ig_act_codes codes, const float *x, int n, int n_cols) {
    const ig_command *last = ig_queue_last(q, IG_KERNEL(merge));
    if (!last) return false;
    ig_head_shape shape = ig_command_value<ig_head_shape>(last, 0);
    ig_cuda_parts p = ig_command_value<ig_cuda_parts>(last, 1);
    if (p.out != x || p.n_jobs != n_cols || shape.n_heads * shape.head_dim != n || shape.head_dim % IG_CODE_GROUP)
        return false;
    ig_queue_drop_last(q);
    launch_merge(q, &shape, &p, codes);
    return true;
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
    ig_begin();
    int lane = (int)threadIdx.x, kv_head = (int)blockIdx.y, d = s.head_dim, group = s.n_heads / s.n_kv_heads;
    int i = w.begin + (int)(blockIdx.x * WARPS + threadIdx.y);
    const ig_attention *a = w.job;
    const ig_kv_view *view = &a->views[kv_head];
    if (i >= w.end || i >= view->n) return;
    ig_cuda_row row = ig_cuda_row_at(view, i);
    int first_pos = view->n - a->n_tokens;
    float sum = 0;
    for (int t = i > first_pos ? i - first_pos : 0; t < a->n_tokens; t++) {
        if (i < ig_window_begin(a->window, first_pos + t + 1)) break;
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
