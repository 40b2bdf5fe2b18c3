/* SPDX-License-Identifier: Apache-2.0
 *
 * Entries' scores by their sketches, or by columns of their keys (columns.cuh), and what those that are not picked
 * (pick.cu) add to the attention, as policy/choose.h and values.h have it: 4-bit keys against 8-bit queries, and sums
 * of 2-bit values. A block of threads takes IG_SCAN_PART entries of a list and up to QUERIES of its queries; what parts
 * found is put together in their order.
 */
#include "device/cuda/columns.cuh"

#include <math.h>
#include <string.h>

extern "C" {
#include "kernel/sketch.h"
}

enum {
    THREADS = IG_SCAN_PART,
    WARPS = THREADS / IG_WARP,
    QUERIES = 8,
    UNIT = IG_SKETCH_TOKENS,
    UNITS = IG_SCAN_PART / UNIT, /* of a part */
    FOUR = 4,                    /* entries that a lane takes of a part, or bytes of a word */
    VALUE_WORDS = UNIT / FOUR,
    AHEAD = 16, /* words of codes that a thread has under way */
    STEP = 8    /* and that it multiplies without asking whether there are more */
};
static_assert(IG_SCAN_PART == IG_WARP * FOUR, "a warp goes through a part at once");

/* Blocks of threads that share a group's queries. */
static __host__ __device__ __forceinline__ int slices_of(int group) { return (group + QUERIES - 1) / QUERIES; }

/* Units of a list. What is looked up often is here, and not where the list lies. */
typedef struct table {
    const uint8_t *dev;
    const uint32_t *pieces;
    int shift;
    size_t bytes;
} table;

static __device__ __forceinline__ table table_of(const ig_scan_list *x, const ig_units *units) {
    return table{ig_global(units->dev), ig_global(x->pieces), x->shift, units->bytes};
}

static __device__ __forceinline__ const uint8_t *unit_at(const table *t, int i) {
    unsigned number = (unsigned)i, low = number & ((1u << t->shift) - 1);
    if (t->pieces) number = (t->pieces[i >> t->shift] << t->shift) + low;
    return t->dev + number * t->bytes;
}

/* ---- units ------------------------------------------------------------------------------ */

/* Unit number i of them, if there is one; by a warp. */
static __device__ void put_unit(ig_cuda_row_of_units units, int i) {
    if (i >= units.n) return;
    const ig_cuda_unit *unit = (const ig_cuda_unit *)(units.dev + (size_t)i * units.stride);
    const uint4 *from = (const uint4 *)(unit + 1);
    uint4 *to = (uint4 *)ig_global(unit->to);
    for (size_t k = threadIdx.x % IG_WARP; k < unit->n_bytes / sizeof *from; k += IG_WARP) to[k] = from[k];
}

static __global__ void put_units(ig_cuda_row_of_units units) {
    ig_begin();
    put_unit(units, (int)(blockIdx.x * WARPS + threadIdx.x / IG_WARP));
}

void ig_cuda_put_units(ig_queue q, ig_cuda_row_of_units units) {
    ig_launch(put_units, dim3((unsigned)(units.n + WARPS - 1) / WARPS), dim3(THREADS), 0, q, units);
}

/* ---- queries ------------------------------------------------------------------------------ */

/* In place of each n numbers, a power of two, of v [all]: hadamard() of kernel/kernel.h. */
static __device__ void transform(float *v, int all, int n) {
    for (int half = 1; half < n; half *= 2) {
        for (int i = (int)threadIdx.x; i < all; i += THREADS) {
            float a = v[i], b = i & half ? 0 : v[i + half];
            if (i & half) continue;
            v[i] = a + b;
            v[i + half] = a - b;
        }
        __syncthreads();
    }
}

/* out [rank] = map x - offset; without a map x itself. A warp has four rows of the map at a time. */
static __device__ void map_to(float *out, const ig_scan_list *x, const float *map, const float *offset,
                              const float *from) {
    int lane = (int)threadIdx.x % IG_WARP, d = x->head_dim, own = lane * IG_SUMS / IG_WARP;
    for (int i = (int)threadIdx.x; !map && i < d; i += THREADS) out[i] = from[i];
    for (int r = (int)threadIdx.x / IG_WARP * IG_SUMS; map && r < x->rank; r += WARPS * IG_SUMS) {
        const float *row = map + (size_t)r * (size_t)d;
        float sums[IG_SUMS] = {0, 0, 0, 0};
        for (int i = lane; i < d; i += IG_WARP) {
            float number = from[i];
            IG_UNROLL for (int k = 0; k < IG_SUMS; k++) sums[k] = fmaf(row[(size_t)(k * d + i)], number, sums[k]);
        }
        float sum = ig_warp_sums(sums, lane);
        if (lane * IG_SUMS % IG_WARP == 0) out[r + own] = offset ? sum - offset[r + own] : sum;
    }
}

/* Queries in 8 bits, as ig_sketch_query() of kernel/sketch.h makes them. */
typedef struct codes {
    uint4 *q8;    /* [n][n_words] bytes, of 4 numbers in a word, and 0 behind them */
    float *scale; /* [n] times the scale of the scores */
    float *sum;   /* [n] of q8 */
    int n_words;
} codes;

/* Where those of a list are. */
static __device__ __forceinline__ codes codes_of(const ig_scan_list *x, const ig_cuda_scratch *s) {
    codes c;
    c.n_words = (x->rank / 4 + 3) / 4;
    c.q8 = (uint4 *)(void *)s->queries;
    c.scale = (float *)(void *)(c.q8 + (size_t)x->group * (size_t)c.n_words);
    c.sum = c.scale + x->group;
    return c;
}

/* Query g, [rank]; by a warp. */
static __device__ void quantise(const codes *c, const ig_scan_list *x, const float *q, int g) {
    int lane = (int)threadIdx.x % IG_WARP, sum = 0;
    unsigned largest = 0; /* bits of floats, where NaN is above infinity */
    for (int i = lane; i < x->rank; i += IG_WARP) {
        unsigned bits = __float_as_uint(q[i]) & 0x7fffffffu;
        largest = bits > largest ? bits : largest;
    }
    float top = __uint_as_float(ig_warp_max(largest));
    bool counts = top > 1e-30f && top < INFINITY;
    float inverse = counts ? 127.0f / top : 0;
    unsigned *words = (unsigned *)(c->q8 + (size_t)g * (size_t)c->n_words);
    for (int w = lane; w < 4 * c->n_words; w += IG_WARP) {
        unsigned word = 0;
        for (int k = 0; k < 4 && 4 * w < x->rank && counts; k++) {
            int code = (int)rintf(q[4 * w + k] * inverse);
            sum += code;
            word |= (unsigned)(code & 255) << 8 * k;
        }
        words[w] = word;
    }
    sum = ig_warp_sum(sum);
    if (lane) return;
    c->scale[g] = counts ? top / 127.0f * x->scale : 0;
    c->sum[g] = (float)sum;
}

/* A block of threads is a query of a list: as the sketch wants it, and its score of the entry that has no sketch. All
 * of them clear the list's board and what follows it. Those behind the most queries that a list has bring units. */
static __global__ void prepare(const ig_scan_list *lists, ig_cuda_row_of_units units, int most_queries) {
    ig_begin();
    IG_SHARED(float, v); /* [2][rank] */
    const ig_scan_list *x = &lists[blockIdx.y];
    int g = (int)blockIdx.x, rank = x->rank;
    if (g >= most_queries)
        put_unit(units, ((g - most_queries) * (int)gridDim.y + (int)blockIdx.y) * WARPS + (int)threadIdx.x / IG_WARP);
    if (g >= x->group) return;
    ig_cuda_scratch s = ig_cuda_scratch_of(x);
    float *k = v + rank, scale = 1 / sqrtf((float)(rank & -rank));
    uint4 *board = (uint4 *)(void *)s.board;
    for (size_t i = (size_t)g * THREADS + threadIdx.x; board + i < (uint4 *)(void *)s.exps;
         i += (size_t)x->group * THREADS)
        board[i] = uint4{0, 0, 0, 0};
    if (x->columns.n) {
        ig_column_query(s.queries, x);
        return;
    }
    map_to(v, x, x->query_map, NULL, x->q + (size_t)g * (size_t)x->head_dim);
    if (x->k) map_to(k, x, x->key_map, x->offset, x->k);
    __syncthreads();
    if (x->k && threadIdx.x < IG_WARP) {
        float sum = 0;
        for (int i = (int)threadIdx.x; i < rank; i += IG_WARP) sum = fmaf(v[i], k[i], sum);
        sum = ig_warp_sum(sum);
        if (threadIdx.x == 0) s.own[g] = x->scale * sum;
    }
    __syncthreads();
    transform(v, rank, rank & -rank);
    for (int i = (int)threadIdx.x; i < rank; i += THREADS) v[i] *= scale;
    __syncthreads();
    codes c = codes_of(x, &s);
    if (threadIdx.x < IG_WARP) quantise(&c, x, v, g);
}

/* ---- scores ------------------------------------------------------------------------------ */

/* Shared memory of scan(), and queries behind it. */
typedef struct scanning {
    float scores[QUERIES][IG_SCAN_PART];
    float scale[QUERIES], sum[QUERIES];
} scanning;

/* Queries [first, first + n_q). */
static __device__ void fetch_queries(scanning *b, const codes *c, int first, int n_q) {
    uint4 *q8 = (uint4 *)(void *)(b + 1);
    for (int i = (int)threadIdx.x; i < n_q * c->n_words; i += THREADS) q8[i] = c->q8[first * c->n_words + i];
    if ((int)threadIdx.x >= n_q) return;
    b->scale[threadIdx.x] = c->scale[first + (int)threadIdx.x];
    b->sum[threadIdx.x] = c->sum[first + (int)threadIdx.x];
}

/* Words [first, n) of an entry's codes, of 8 numbers each, as far as there is room: all are under way at once. */
static __device__ __forceinline__ void fetch_codes(int words[AHEAD], const int *code, int first, int n) {
    IG_UNROLL for (int i = 0; i < AHEAD; i++) words[i] = first + i < n ? code[(first + i) * UNIT] : 0;
}

/* Products of words from `first` on, of n, with a query, STEP words at a time: behind the last one they are 0, and what
 * is in the query's place does not matter. */
static __device__ __forceinline__ int multiply(const int words[AHEAD], const uint4 *q8, int first, int n) {
    int low = 0, high = 0;
    IG_UNROLL for (int step = 0; step < AHEAD; step += STEP) {
        if (first + step >= n) break;
        IG_UNROLL for (int i = step; i < step + STEP; i += 2) {
            uint4 q = q8[(first + i) / 2];
            low = __dp4a(words[i] & 0x0f0f0f0f, (int)q.x, low);
            high = __dp4a(words[i] >> 4 & 0x0f0f0f0f, (int)q.y, high);
            low = __dp4a(words[i + 1] & 0x0f0f0f0f, (int)q.z, low);
            high = __dp4a(words[i + 1] >> 4 & 0x0f0f0f0f, (int)q.w, high);
        }
    }
    return low + high;
}

/* The thread's entry against n_q queries, to shared memory; between its loads and their use, which waits for them, the
 * queries come. A thread that has none computes with what is in the last unit. */
static __device__ void score(scanning *b, const ig_scan_list *x, const ig_cuda_scratch *s, int first, int n_q) {
    int t = (int)threadIdx.x, slot = (int)blockIdx.x * IG_SCAN_PART + t, n = x->rank / 8, sum[QUERIES] = {0};
    int last = x->n - 1, words[AHEAD];
    bool is_own = x->k && slot == last, is_there = slot <= last && !is_own;
    table keys = table_of(x, &x->keys);
    const uint8_t *unit = unit_at(&keys, (is_there ? slot : last) / UNIT);
    const float *line = (const float *)(const void *)unit + t % UNIT;
    const int *code = (const int *)(const void *)(unit + IG_SKETCH_CODES) + t % UNIT;
    float step = line[0], min = line[UNIT];
    fetch_codes(words, code, 0, n);
    const uint4 *q8 = (const uint4 *)(const void *)(b + 1);
    codes c = codes_of(x, s);
    fetch_queries(b, &c, first, n_q);
    __syncthreads();
    IG_LOOP for (int i = 0; i < n; i += AHEAD) {
        if (i) fetch_codes(words, code, i, n);
        IG_UNROLL for (int g = 0; g < QUERIES; g++) if (g < n_q) sum[g] += multiply(words, q8 + g * c.n_words, i, n);
    }
    IG_UNROLL for (int g = 0; g < QUERIES; g++) {
        if (g >= n_q) break;
        float score = b->scale[g] * (step * (float)sum[g] + min * b->sum[g]);
        b->scores[g][t] = is_there ? score : is_own ? s->own[first + g] : -INFINITY;
    }
}

static __device__ __forceinline__ float exp_of(float score, float top) {
    return top == -INFINITY ? 0.0f : expf(score - top);
}

/* A part's scores of one query become exponentials; by a warp. */
static __device__ void normalise(float *exps, const float *scores, float *top, float *total) {
    int lane = (int)threadIdx.x % IG_WARP;
    float4 x = ((const float4 *)(const void *)scores)[lane];
    float most = ig_warp_max(fmaxf(fmaxf(x.x, x.y), fmaxf(x.z, x.w)));
    x.x = exp_of(x.x, most), x.y = exp_of(x.y, most), x.z = exp_of(x.z, most), x.w = exp_of(x.w, most);
    float sum = ig_warp_sum((x.x + x.y) + (x.z + x.w));
    ((float4 *)(void *)exps)[lane] = x;
    if (lane == 0) *top = most, *total = sum;
}

static __global__ void __launch_bounds__(THREADS, 1) scan(const ig_scan_list *lists) {
    ig_begin();
    IG_SHARED(scanning, b);
    const ig_scan_list *x = &lists[blockIdx.z];
    int part = (int)blockIdx.x, first = (int)blockIdx.y * QUERIES, n_parts = ig_cuda_scan_parts(x->n);
    int n_q = x->group - first < QUERIES ? x->group - first : QUERIES;
    if (n_q <= 0 || part >= n_parts) return;
    ig_cuda_scratch s = ig_cuda_scratch_of(x);
    if (x->columns.n) {
        ig_score_columns(x, &s, (float *)(void *)b, part);
        return;
    }
    score(b, x, &s, first, n_q);
    __syncthreads();
    for (int g = (int)threadIdx.x / IG_WARP; g < n_q; g += WARPS) {
        float *exps = s.exps + (size_t)(first + g) * s.stride + (size_t)part * IG_SCAN_PART;
        int at = (first + g) * n_parts + part;
        normalise(exps, b->scores[g], &s.top[at], &s.total[at]);
    }
}

void ig_cuda_scan(ig_queue q, const ig_scan_list *lists, int n, const ig_scan_list *most, ig_cuda_row_of_units units) {
    dim3 grid((unsigned)ig_cuda_scan_parts(most->n), (unsigned)slices_of(most->group), (unsigned)n);
    size_t rank = (size_t)most->rank,
           shared = sizeof(scanning) + QUERIES * ((rank + 15) / 16 * 16) + STEP / 2 * sizeof(uint4);
    int bringing = (units.n + WARPS * n - 1) / (WARPS * n);
    ig_launch(prepare, dim3((unsigned)(most->group + bringing), (unsigned)n), dim3(THREADS), 2 * rank * sizeof(float),
              q, lists, units, most->group);
    ig_launch(scan, grid, dim3(THREADS), shared, q, lists);
}

/* ---- the rest ------------------------------------------------------------------------------- */

/* Weights of a unit's tokens for a query, times their steps, in 1/255 of the largest. */
typedef struct unit_weights {
    unsigned w8[VALUE_WORDS]; /* bytes, of 4 tokens each */
    float scale;              /* of a sum of w8 * (2 code - 3) */
    int sum;                  /* of w8 */
} unit_weights;

/* Shared memory of add_values(), and numbers of the last block of threads behind it. */
typedef struct adding {
    unit_weights w[UNITS][QUERIES];
    float share[QUERIES];
    bool is_last;
} adding;

/* Sums over the FOUR lanes of a unit, and their maximum. */
static __device__ __forceinline__ int unit_sum(int x) {
    for (int bit = FOUR / 2; bit; bit /= 2) x += __shfl_xor_sync(0xffffffffu, x, bit);
    return x;
}

static __device__ __forceinline__ float unit_max(float x) {
    for (int bit = FOUR / 2; bit; bit /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, bit));
    return x;
}

/* Weights of the part for query g; by a warp, of which a lane has FOUR entries. `steps` are 0 where there is no unit.
 * The sum of their exponentials. */
static __device__ float weigh_units(adding *b, const float *exps, const float steps[FOUR], int g) {
    int lane = (int)threadIdx.x % IG_WARP, sum = 0;
    float4 e = ((const float4 *)(const void *)exps)[lane];
    const float x[FOUR] = {e.x, e.y, e.z, e.w};
    float top = 0;
    for (int i = 0; i < FOUR; i++) top = fmaxf(top, x[i] * steps[i]);
    top = unit_max(top);
    bool counts = top > IG_VALUE_LEAST;
    unsigned word = 0;
    for (int i = 0; i < FOUR; i++) {
        int code = counts ? (int)rintf(x[i] * steps[i] * (255 / top)) : 0;
        word |= (unsigned)code << 8 * i;
        sum += code;
    }
    sum = unit_sum(sum);
    unit_weights *w = &b->w[lane / FOUR][g];
    w->w8[lane % FOUR] = word;
    if (lane % FOUR == 0) w->scale = counts ? top / 510 : 0, w->sum = sum;
    return ig_warp_sum((x[0] + x[1]) + (x[2] + x[3]));
}

/* Steps of the FOUR entries of a lane. Of entries that are not there they may be no numbers. */
static __device__ __forceinline__ void fetch_steps(float steps[FOUR], const ig_scan_list *x, const table *values,
                                                   int part) {
    int lane = (int)threadIdx.x % IG_WARP, slot = part * IG_SCAN_PART + FOUR * lane;
    for (int i = 0; i < FOUR; i++) steps[i] = 0;
    if (slot >= x->n) return;
    const uint8_t *unit = unit_at(values, slot / UNIT);
    uint64_t four = ((const uint64_t *)(const void *)unit)[lane % FOUR];
    for (int i = 0; i < FOUR; i++)
        if (slot + i < x->n - (x->k != NULL)) steps[i] = ig_half((uint16_t)(four >> 16 * i & 0xffff));
}

/* Where the part's units lie; for those that are not there the last one. */
static __device__ __forceinline__ void find_units(const uint8_t *at[UNITS], const ig_scan_list *x, const table *values,
                                                  int part) {
    int first = part * UNITS, last = (x->n - 1) / UNIT;
    IG_UNROLL for (int u = 0; u < UNITS; u++) at[u] = unit_at(values, first + u < last ? first + u : last);
}

/* Numbers i of their values, all under way at once. */
static __device__ __forceinline__ void fetch_values(unsigned code[UNITS], const uint8_t *const at[UNITS], int i) {
    IG_UNROLL for (int u = 0; u < UNITS; u++) code[u] = ((const unsigned *)(const void *)(at[u] + IG_VALUE_CODES))[i];
}

static __device__ __forceinline__ ig_cuda_units signed_units(float x) {
    return (ig_cuda_units)(long long)(x * IG_CUDA_UNITS);
}

/* The sum of the values' numbers for query g. */
static __device__ __forceinline__ float add_up(const adding *b, const unsigned code[UNITS], int g) {
    float sum = 0;
    IG_UNROLL for (int u = 0; u < UNITS; u++) {
        const unit_weights *w = &b->w[u][g];
        unsigned total = 0;
        for (int j = 0; j < VALUE_WORDS; j++) total = __dp4a(w->w8[j], code[u] >> 2 * j & 0x03030303u, total);
        sum += w->scale * (float)(2 * (int)total - 3 * w->sum);
    }
    return sum;
}

/* Sums of all parts to what is asked for, of queries [first, first + n_q); `v` [n_q][head_dim] is shared memory. */
static __device__ void give_rest(const ig_scan_list *x, const ig_cuda_scratch *s, float *v, int first, int n_q) {
    int d = x->head_dim, n = n_q * d;
    const long long *sums = (const long long *)(const void *)s->rest + (size_t)first * (size_t)(d + 1);
    float *rest = x->rest + (size_t)first * (size_t)d, scale = 1 / (sqrtf((float)(d & -d)) * IG_CUDA_UNITS);
    for (int i = (int)threadIdx.x; i < n; i += THREADS) v[i] = (float)sums[i + i / d];
    __syncthreads();
    transform(v, n, d & -d);
    for (int i = (int)threadIdx.x; i < n; i += THREADS) rest[i] = v[i] * scale;
    if ((int)threadIdx.x < n_q)
        x->rest_share[first + (int)threadIdx.x] = (float)sums[(int)threadIdx.x * (d + 1) + d] / IG_CUDA_UNITS;
    __syncthreads();
}

/* Whether all other blocks of threads of the list are done. What this one's threads have added was gathered by a
 * barrier before one of them fenced it. */
static __device__ bool is_last(adding *b, ig_cuda_board *board, int n_blocks) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        b->is_last = atomicAdd(&board->n_added, 1u) == (unsigned)n_blocks - 1;
        __threadfence();
    }
    __syncthreads();
    return b->is_last;
}

static __global__ void __launch_bounds__(THREADS) add_values(const ig_scan_list *lists) {
    ig_begin();
    IG_SHARED(adding, a);
    const ig_scan_list *x = &lists[blockIdx.z];
    int part = (int)blockIdx.x, first = (int)blockIdx.y * QUERIES, n_parts = ig_cuda_scan_parts(x->n), d = x->head_dim;
    int n_q = x->group - first < QUERIES ? x->group - first : QUERIES;
    if (n_q <= 0 || part >= n_parts || !x->rest) return;
    ig_cuda_scratch s = ig_cuda_scratch_of(x);
    ig_cuda_units *sums = s.rest + (size_t)first * (size_t)(d + 1);
    const uint8_t *at[UNITS];
    unsigned code[UNITS];
    float steps[FOUR];
    table values = table_of(x, &x->values);
    find_units(at, x, &values, part);
    if ((int)threadIdx.x < d) fetch_values(code, at, (int)threadIdx.x);
    fetch_steps(steps, x, &values, part);
    for (int g = (int)threadIdx.x / IG_WARP; g < n_q; g += WARPS) {
        float share = s.share[(first + g) * n_parts + part];
        float left = weigh_units(a, s.exps + (size_t)(first + g) * s.stride + (size_t)part * IG_SCAN_PART, steps, g);
        if (threadIdx.x % IG_WARP) continue;
        a->share[g] = share;
        atomicAdd(&sums[g * (d + 1) + d], signed_units(left * share));
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < d; i += THREADS) {
        if (i >= THREADS) fetch_values(code, at, i);
        for (int g = 0; g < n_q; g++) atomicAdd(&sums[g * (d + 1) + i], signed_units(add_up(a, code, g) * a->share[g]));
    }
    if (!is_last(a, s.board, n_parts * slices_of(x->group))) return;
    for (int g = 0; g < x->group; g += QUERIES)
        give_rest(x, &s, (float *)(void *)(a + 1), g, x->group - g < QUERIES ? x->group - g : QUERIES);
}

void ig_cuda_estimate(ig_queue q, const ig_scan_list *lists, int n, const ig_scan_list *most) {
    dim3 grid((unsigned)ig_cuda_scan_parts(most->n), (unsigned)slices_of(most->group), (unsigned)n);
    size_t shared = sizeof(adding) + QUERIES * (size_t)most->head_dim * sizeof(float);
    ig_launch(add_values, grid, dim3(THREADS), shared, q, lists);
}
