/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers with a recurrence: their convolution, and the states that tokens change one after the other. Columns of a
 * state need nothing of each other: a warp has 32 of them, a lane a column, and of these the rows of 32 keys, which
 * stay in registers over all tokens of a job. So a decode step reads a state once and writes it once.
 *
 * A token needs what the whole column gives with its key before it can change it, and its query meets the column
 * thereafter. But the change is the key times a number, so that what the query reads of it is that number times the
 * product of query and key: both are known after one exchange between the warps. The next token's numbers are on their
 * way meanwhile. Sums are cut by constants, so that bits depend neither on how prompts are cut nor on other jobs.
 */
#include "device/cuda/gpu.cuh"

#include <math.h>

enum {
    CHANNEL_THREADS = 128, /* each of a channel */
    STRETCH = 32,          /* rows of a job that one of these goes through */
    COLUMNS = IG_WARP,     /* of a block of threads */
    ROWS = IG_WARP,        /* of a warp */
    MOST_THREADS = IG_RECURRENCE_DIMS,
    READS = 2,      /* sums over a column: with the key and with the query */
    PRODUCTS = 4,   /* numbers that a warp adds up of its keys and queries, three of them of use */
    TOKENS_KEPT = 3 /* whose keys and queries are in shared memory: a warp may lag behind a barrier */
};

/* ---- the convolution ------------------------------------------------------------------ */

/* What the kernel is called with. */
typedef struct convolution {
    float *out;
    const float *x, *taps, *bias; /* bias: NULL if there is none */
    const ig_recurrence *jobs;
    size_t n; /* channels */
    int n_taps;
    bool is_plain; /* the sum itself, not its silu */
} convolution;

/* What a channel gets of row i of a job; of a token before them if i < 0. */
static __device__ __forceinline__ float input_of(const convolution *c, const ig_recurrence *job, size_t channel,
                                                 int i) {
    if (i >= 0) return c->x[(size_t)(job->row + i) * c->n + channel];
    return job->from ? job->from[(size_t)(c->n_taps - 1 + i) * c->n + channel] : 0.0f;
}

/* Of the latest tokens, the last one first, to a state. */
static __device__ __forceinline__ void keep_inputs(const convolution *c, float *state, size_t channel,
                                                   const float *back) {
    IG_UNROLL for (int b = 0; b < IG_RECURRENCE_TAPS - 1; b++) {
        if (b < c->n_taps - 1) state[(size_t)(c->n_taps - 2 - b) * c->n + channel] = back[b];
    }
}

/* Rows [first, end) of a job; back[b] is the input b tokens before a row's. */
static __device__ __forceinline__ void convolve_channel(const convolution *c, const ig_recurrence *job, size_t channel,
                                                        int first, int end) {
    float tap[IG_RECURRENCE_TAPS], back[IG_RECURRENCE_TAPS], bias = c->bias ? c->bias[channel] : 0.0f;
    int kept = 0;
    IG_UNROLL for (int b = 0; b < IG_RECURRENCE_TAPS; b++) {
        tap[b] = b < c->n_taps ? c->taps[(size_t)(c->n_taps - 1 - b) * c->n + channel] : 0.0f;
        back[b] = b < c->n_taps - 1 ? input_of(c, job, channel, first - 1 - b) : 0.0f;
    }
    while (kept < job->n_kept && job->kept[kept].after <= first) kept++;
    IG_LOOP for (int i = first; i < end; i++) {
        float sum = bias;
        IG_UNROLL for (int b = IG_RECURRENCE_TAPS - 1; b > 0; b--) back[b] = back[b - 1];
        back[0] = input_of(c, job, channel, i);
        IG_UNROLL for (int b = IG_RECURRENCE_TAPS - 1; b >= 0; b--) {
            if (b < c->n_taps) sum = fmaf(tap[b], back[b], sum);
        }
        c->out[(size_t)(job->row + i) * c->n + channel] = c->is_plain ? sum : sum / (1.0f + expf(-sum));
        if (kept < job->n_kept && job->kept[kept].after == i + 1)
            keep_inputs(c, job->kept[kept++].state, channel, back);
    }
}

/* A thread is a channel of a stretch of a job's rows. */
static __global__ void __launch_bounds__(CHANNEL_THREADS) convolve(convolution c) {
    ig_begin();
    const ig_recurrence *job = &c.jobs[blockIdx.z];
    size_t channel = (size_t)blockIdx.x * CHANNEL_THREADS + threadIdx.x;
    int first = (int)blockIdx.y * STRETCH, end = first + STRETCH < job->n ? first + STRETCH : job->n;
    if (first < end && channel < c.n) convolve_channel(&c, job, channel, first, end);
}

/* ---- the state ------------------------------------------------------------------------ */

/* What the kernel is called with. */
typedef struct recurrence {
    float *out;
    const float *x, *beta, *alpha;
    ig_recurrence_shape s;
    size_t channels;
    ig_recurrence_parts at;
    const float *decay, *decay_bias, *skip;
    int n_decays; /* of a value head */
    const ig_recurrence *jobs;
} recurrence;

/* Of a block of threads. */
typedef struct place {
    int head, key_head, column, key; /* the thread's own column of the state, and number of a query and key */
    bool has_column, has_key;        /* whether there are such */
    int warp, lane, n_warps;
    int forgets;      /* number of the head's that says how much of the key's row is forgotten */
    float rate, bias; /* of the head, and of that number */
} place;

/* What a thread knows of a token, before others do. */
typedef struct token {
    float q, k, v, decay, share; /* decay: of the key's row */
} token;

/* Shared memory. Of TOKENS_KEPT tokens queries, keys and decays [n_warps ROWS] each, then products [n_warps][PRODUCTS];
 * of two what warps read of their rows, [n_warps][READS][COLUMNS]. */
static __host__ __device__ __forceinline__ int token_floats(int n_warps) { return n_warps * (3 * ROWS + PRODUCTS); }
static __host__ __device__ __forceinline__ int read_floats(int n_warps) { return n_warps * READS * COLUMNS; }

static __device__ __forceinline__ place place_of(const recurrence *r) {
    const ig_recurrence_shape *s = &r->s;
    place p;
    p.head = (int)blockIdx.y;
    p.key_head = s->is_tiled ? p.head % s->n_key_heads : p.head / (s->n_value_heads / s->n_key_heads);
    p.warp = (int)threadIdx.x / IG_WARP;
    p.lane = (int)threadIdx.x % IG_WARP;
    p.n_warps = (int)blockDim.x / IG_WARP;
    p.column = (int)blockIdx.x * COLUMNS + p.lane;
    p.has_column = p.column < s->value_dim;
    p.key = (int)threadIdx.x;
    p.has_key = p.key < s->key_dim;
    p.forgets = r->n_decays > 1 && p.has_key ? p.key : 0;
    p.rate = r->decay[p.head];
    p.bias = r->decay_bias[p.head * r->n_decays + p.forgets];
    return p;
}

/* NaN of what is not finite. */
static __device__ __forceinline__ float softplus(float x) { return (x > 20 ? x : log1pf(expf(x))) + (x - x); }
static __device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)) + (x - x); }
static __device__ __forceinline__ float scale_of(float squares) {
    return squares < INFINITY ? 1.0f / sqrtf(squares + 1e-6f) : NAN;
}

/* ig_recurrence_gate() */
static __device__ __forceinline__ size_t gate_of(const ig_recurrence_shape *s, const place *p, int row) {
    int group = s->n_value_heads / s->n_key_heads, others = s->has_gate_pairs ? p->head / group * group : 0;
    size_t stride = (size_t)(s->has_gate_pairs ? 2 * s->n_value_heads : s->n_value_heads);
    return (size_t)row * stride + (size_t)(p->head + others);
}

static __device__ __forceinline__ token token_of(const recurrence *r, const place *p, int row) {
    const ig_recurrence_shape *s = &r->s;
    const float *x = r->x + (size_t)row * r->channels, *own = x + p->key_head * s->key_dim + p->key;
    size_t gate = gate_of(s, p, row);
    float step = softplus(r->alpha[gate * (size_t)r->n_decays + (size_t)p->forgets] + p->bias);
    token t;
    t.q = p->has_key ? own[r->at.query] : 0.0f;
    t.k = p->has_key ? own[r->at.key] : 0.0f;
    t.v = p->has_column ? x[r->at.value + (size_t)(p->head * s->value_dim + p->column)] : 0.0f;
    t.share = r->beta ? sigmoid(r->beta[gate]) : step;
    t.decay = expf(p->rate * step);
    return t;
}

/* A token's query, key and decay go to shared memory, and what the first two are multiplied with each other and
 * themselves. */
static __device__ __forceinline__ void put_token(float *to, const place *p, const token *t) {
    const float products[IG_SUMS] = {t->q * t->q, t->k * t->k, t->q * t->k, 0};
    float sum = ig_warp_sums(products, p->lane);
    int dims = p->n_warps * ROWS;
    to[p->key] = t->q;
    to[dims + p->key] = t->k;
    to[2 * dims + p->key] = t->decay;
    if (p->lane % (IG_WARP / IG_SUMS) == 0) to[3 * dims + p->warp * PRODUCTS + p->lane / (IG_WARP / IG_SUMS)] = sum;
}

/* The warp's rows of a column of the state decay, and are read. */
static __device__ __forceinline__ void read_rows(float *state, float *to, const float *from, const place *p) {
    int each = p->n_warps * ROWS / 4;
    const float4 *q = (const float4 *)(const void *)(from + p->warp * ROWS), *k = q + each, *decay = k + each;
    float by_key[4] = {}, by_query[4] = {};
    IG_UNROLL for (int i = 0; i < ROWS; i += 4) {
        float4 a = k[i / 4], b = q[i / 4], left = decay[i / 4];
        state[i] *= left.x, state[i + 1] *= left.y, state[i + 2] *= left.z, state[i + 3] *= left.w;
        by_key[0] = fmaf(a.x, state[i], by_key[0]), by_query[0] = fmaf(b.x, state[i], by_query[0]);
        by_key[1] = fmaf(a.y, state[i + 1], by_key[1]), by_query[1] = fmaf(b.y, state[i + 1], by_query[1]);
        by_key[2] = fmaf(a.z, state[i + 2], by_key[2]), by_query[2] = fmaf(b.z, state[i + 2], by_query[2]);
        by_key[3] = fmaf(a.w, state[i + 3], by_key[3]), by_query[3] = fmaf(b.w, state[i + 3], by_query[3]);
    }
    to += p->warp * READS * COLUMNS + p->lane;
    to[0] = (by_key[0] + by_key[1]) + (by_key[2] + by_key[3]);
    to[COLUMNS] = (by_query[0] + by_query[1]) + (by_query[2] + by_query[3]);
}

/* The rows change by what all warps have read; what the token's query reads of the whole column then. */
static __device__ __forceinline__ float change_rows(float *state, const float *from, const float *read, const place *p,
                                                    const token *t, const ig_recurrence_shape *s) {
    float by_key = 0, by_query = 0, sum[PRODUCTS] = {};
    int dims = p->n_warps * ROWS;
    for (int w = 0; w < p->n_warps; w++) {
        by_key += read[w * READS * COLUMNS + p->lane];
        by_query += read[w * READS * COLUMNS + COLUMNS + p->lane];
        IG_UNROLL for (int j = 0; j < PRODUCTS; j++) sum[j] += from[3 * dims + w * PRODUCTS + j];
    }
    bool is_delta = s->kind != IG_MAMBA_2;
    float query_scale = is_delta ? scale_of(sum[0]) / sqrtf((float)s->key_dim) : 1.0f;
    float key_scale = is_delta ? scale_of(sum[1]) : 1.0f;
    float change = key_scale * (t->share * (is_delta ? t->v - key_scale * by_key : t->v));
    const float4 *k = (const float4 *)(const void *)(from + dims + p->warp * ROWS);
    IG_UNROLL for (int i = 0; i < ROWS; i += 4) {
        float4 a = k[i / 4];
        state[i] = fmaf(a.x, change, state[i]);
        state[i + 1] = fmaf(a.y, change, state[i + 1]);
        state[i + 2] = fmaf(a.z, change, state[i + 2]);
        state[i + 3] = fmaf(a.w, change, state[i + 3]);
    }
    return query_scale * fmaf(sum[2], change, by_query);
}

/* The thread's rows of a state of a job, or zeros; and back. */
typedef struct rows {
    size_t first, stride; /* floats */
    int n;                /* of ROWS, 0 without a column */
} rows;

static __device__ __forceinline__ rows rows_of(const recurrence *r, const place *p) {
    const ig_recurrence_shape *s = &r->s;
    size_t row = (size_t)p->head * (size_t)s->key_dim + (size_t)(p->warp * ROWS), stride = (size_t)s->value_dim;
    size_t first = (size_t)(s->n_taps - 1) * r->channels + row * stride + (size_t)p->column;
    return rows{first, stride, p->has_column ? s->key_dim - p->warp * ROWS : 0};
}

static __device__ __forceinline__ void load_rows(float *state, const rows *r, const float *from) {
    int n = from ? r->n : 0;
    IG_UNROLL for (int i = 0; i < ROWS; i++) state[i] = i < n ? from[r->first + (size_t)i * r->stride] : 0.0f;
}

static __device__ __forceinline__ void store_rows(float *to, const rows *r, const float *state) {
    IG_UNROLL for (int i = 0; i < ROWS; i++) {
        if (i < r->n) to[r->first + (size_t)i * r->stride] = state[i];
    }
}

/* A block of threads is COLUMNS of a value head of a job, for all its tokens. */
static __global__ void __launch_bounds__(MOST_THREADS) recur(recurrence r) {
    ig_begin();
    IG_SHARED(float, shared);
    const ig_recurrence *job = &r.jobs[blockIdx.z];
    if (job->n == 0) return;
    place p = place_of(&r);
    rows own = rows_of(&r, &p);
    float state[ROWS], *tokens = shared, *reads = shared + TOKENS_KEPT * token_floats(p.n_warps);
    int n = job->n, kept = 0;
    size_t width = (size_t)r.s.n_value_heads * own.stride;
    float *out = r.out + (size_t)job->row * width + (size_t)p.head * own.stride + (size_t)p.column;
    load_rows(state, &own, job->from);
    token now = token_of(&r, &p, job->row), next = now;
    put_token(tokens, &p, &now);
    __syncthreads();
    IG_LOOP for (int i = 0; i < n; i++, now = next) {
        const float *from = tokens + i % TOKENS_KEPT * token_floats(p.n_warps);
        float *read = reads + i % 2 * read_floats(p.n_warps);
        if (i + 1 < n) next = token_of(&r, &p, job->row + i + 1);
        read_rows(state, read, from, &p);
        if (i + 1 < n) put_token(tokens + (i + 1) % TOKENS_KEPT * token_floats(p.n_warps), &p, &next);
        __syncthreads();
        float got = change_rows(state, from, read, &p, &now, &r.s);
        if (r.skip) got = fmaf(r.skip[p.head], now.v, got);
        if (p.warp == 0 && p.has_column) out[(size_t)i * width] = got;
        if (kept < job->n_kept && job->kept[kept].after == i + 1) store_rows(job->kept[kept++].state, &own, state);
    }
}

/* ---- the operations --------------------------------------------------------------------- */

enum { MOST_JOBS = 4096 /* of a launch */ };

/* Jobs for kernels, n of them, for which there is room in the mail; the rows of the longest one. */
static const ig_recurrence *send_jobs(gpu *g, const ig_recurrence *jobs, int n, int *most) {
    if (ig_cuda_mail_bytes((size_t)n * sizeof *jobs) > ig_cuda_mail_room(&g->mail)) ig_cuda_wait(g);
    *most = 0;
    for (int i = 0; i < n; i++) *most = max_int(*most, jobs[i].n);
    return ig_cuda_mail_put(&g->mail, jobs, (size_t)n);
}

static unsigned parts_of(size_t n, size_t size) { return (unsigned)((n + size - 1) / size); }

void ig_cuda_convolve(ig_device *d, float *out, const float *x, const ig_recurrence_shape *s,
                      const ig_recurrence_weights *w, const ig_recurrence *jobs, int n_jobs) {
    gpu *g = enter(d);
    const float *bias = w->taps_bias ? find(g, w->taps_bias) : NULL;
    convolution c = {
        out, x, find(g, w->taps), bias, NULL, ig_recurrence_channels(s), s->n_taps, s->kind == IG_SHORT_CONVOLUTION};
    for (int i = 0, n, most; i < n_jobs; i += n) {
        n = min_int(n_jobs - i, MOST_JOBS);
        c.jobs = send_jobs(g, jobs + i, n, &most);
        dim3 grid(parts_of(c.n, CHANNEL_THREADS), parts_of((size_t)most, STRETCH), (unsigned)n);
        ig_launch(convolve, grid, dim3(CHANNEL_THREADS), 0, g->work, c);
    }
    leave(g);
}

void ig_cuda_recur(ig_device *d, float *out, const float *x, const float *beta, const float *alpha,
                   const ig_recurrence_shape *s, const ig_recurrence_weights *w, const ig_recurrence *jobs,
                   int n_jobs) {
    gpu *g = enter(d);
    unsigned n_warps = parts_of((size_t)s->key_dim, ROWS);
    size_t n_shared = (size_t)(TOKENS_KEPT * token_floats((int)n_warps) + 2 * read_floats((int)n_warps));
    bool is_mamba = s->kind == IG_MAMBA_2;
    recurrence r = {out,
                    x,
                    is_mamba ? NULL : beta,
                    alpha,
                    *s,
                    ig_recurrence_channels(s),
                    ig_recurrence_places(s),
                    find(g, w->decay),
                    find(g, w->decay_bias),
                    is_mamba ? find(g, w->skip) : NULL,
                    ig_recurrence_decays(s),
                    NULL};
    for (int i = 0, n, most; i < n_jobs; i += n) {
        n = min_int(n_jobs - i, MOST_JOBS);
        r.jobs = send_jobs(g, jobs + i, n, &most);
        dim3 grid(parts_of((size_t)s->value_dim, COLUMNS), (unsigned)s->n_value_heads, (unsigned)n);
        ig_launch(recur, grid, dim3(n_warps * IG_WARP), n_shared * sizeof(float), g->work, r);
    }
    leave(g);
}
