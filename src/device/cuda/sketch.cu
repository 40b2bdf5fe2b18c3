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
    THREADS = 128,
    WARPS = THREADS / IG_WARP,
    QUERIES = 8,
    UNIT = IG_SKETCH_TOKENS,
    UNITS = IG_SCAN_PART / UNIT, /* of a part */
    VALUE_WORDS = UNIT / 4
};

static __device__ __forceinline__ const uint8_t *unit_at(const ig_scan_list *x, const ig_units *units, int i) {
    return units->dev + ig_cuda_unit_number(x, i) * units->bytes;
}

/* ---- units ------------------------------------------------------------------------------ */

/* A warp is a unit. */
static __global__ void put_units(const uint8_t *units, size_t stride, int n) {
    ig_begin();
    int i = (int)(blockIdx.x * WARPS + threadIdx.y);
    if (i >= n) return;
    const ig_cuda_unit *unit = (const ig_cuda_unit *)(units + (size_t)i * stride);
    const uint4 *from = (const uint4 *)(unit + 1);
    for (size_t k = threadIdx.x; k < unit->n_bytes / sizeof *from; k += IG_WARP) ((uint4 *)unit->to)[k] = from[k];
}

void ig_cuda_put_units(ig_queue q, const uint8_t *units, size_t stride, int n) {
    ig_launch(put_units, dim3((unsigned)(n + WARPS - 1) / WARPS), dim3(IG_WARP, WARPS), 0, q, units, stride, n);
}

/* ---- queries ------------------------------------------------------------------------------ */

/* In place: hadamard() of kernel/kernel.h. */
static __device__ void transform(float *v, int d) {
    int n = d & -d;
    for (int half = 1; half < n; half *= 2) {
        for (int i = (int)threadIdx.x; i < d; i += THREADS) {
            float a = v[i], b = i & half ? 0 : v[i + half];
            if (i & half) continue;
            v[i] = a + b;
            v[i + half] = a - b;
        }
        __syncthreads();
    }
}

/* out [rank] = map x - offset; without a map x itself. A warp is a row of the map. */
static __device__ void map_to(float *out, const ig_scan_list *x, const float *map, const float *offset,
                              const float *from) {
    int lane = (int)threadIdx.x % IG_WARP, d = x->head_dim;
    for (int i = (int)threadIdx.x; !map && i < d; i += THREADS) out[i] = from[i];
    for (int r = (int)threadIdx.x / IG_WARP; map && r < x->rank; r += WARPS) {
        float sum = 0;
        for (int i = lane; i < d; i += IG_WARP) sum = fmaf(map[(size_t)r * (size_t)d + (size_t)i], from[i], sum);
        sum = ig_warp_sum(sum);
        if (lane == 0) out[r] = offset ? sum - offset[r] : sum;
    }
}

/* A block of threads is a query of a list: as the sketch wants it, and its score of the entry that has no sketch. All
 * of them clear the list's board. */
static __global__ void prepare(const ig_scan_list *lists) {
    ig_begin();
    IG_SHARED(float, v); /* [2][rank] */
    const ig_scan_list *x = &lists[blockIdx.y];
    int g = (int)blockIdx.x, rank = x->rank;
    if (g >= x->group) return;
    ig_cuda_scratch s = ig_cuda_scratch_of(x);
    float *k = v + rank, scale = 1 / sqrtf((float)(rank & -rank));
    ig_cuda_units *board = (ig_cuda_units *)(void *)s.board;
    for (size_t i = (size_t)g * THREADS + threadIdx.x; i < sizeof *s.board / sizeof *board;
         i += (size_t)x->group * THREADS)
        board[i] = 0;
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
    transform(v, rank);
    for (int i = (int)threadIdx.x; i < rank; i += THREADS) s.queries[g * rank + i] = v[i] * scale;
}

/* ---- scores ------------------------------------------------------------------------------ */

/* Shared memory of scan(): queries in 8 bits, as ig_sketch_query() of kernel/sketch.h makes them. */
typedef struct codes {
    int *q8;            /* [QUERIES][words] bytes, of 4 numbers each */
    float *scale, *sum; /* [QUERIES] times the scale of the scores; of q8 */
} codes;

static __device__ __forceinline__ codes lay_out(int *q8, int words) {
    float *scale = (float *)(q8 + QUERIES * words);
    codes c = {q8, scale, scale + QUERIES};
    return c;
}

/* A warp is a query. */
static __device__ void quantise(const codes *c, const ig_scan_list *x, const float *queries, int first, int n_q) {
    int lane = (int)threadIdx.x % IG_WARP, words = x->rank / 4;
    for (int g = (int)threadIdx.x / IG_WARP; g < n_q; g += WARPS) {
        const float *q = queries + (size_t)(first + g) * (size_t)x->rank;
        unsigned largest = 0; /* bits of floats, where NaN is above infinity */
        for (int i = lane; i < x->rank; i += IG_WARP) {
            unsigned bits = __float_as_uint(q[i]) & 0x7fffffffu;
            largest = bits > largest ? bits : largest;
        }
        float top = __uint_as_float(ig_warp_max(largest));
        bool counts = top > 1e-30f && top < INFINITY;
        float inverse = counts ? 127.0f / top : 0;
        int sum = 0;
        for (int w = lane; w < words; w += IG_WARP) {
            unsigned word = 0;
            for (int k = 0; k < 4 && counts; k++) {
                int code = (int)rintf(q[4 * w + k] * inverse);
                sum += code;
                word |= (unsigned)(code & 255) << 8 * k;
            }
            c->q8[g * words + w] = (int)word;
        }
        sum = ig_warp_sum(sum);
        if (lane) continue;
        c->scale[g] = counts ? top / 127.0f * x->scale : 0;
        c->sum[g] = (float)sum;
    }
}

/* One entry against n_q queries. */
static __device__ void score(float *scores, size_t stride, const codes *c, const ig_scan_list *x, int slot, int n_q) {
    const uint8_t *unit = unit_at(x, &x->keys, slot / UNIT);
    const float *line = (const float *)(const void *)unit;
    int t = slot % UNIT, words = x->rank / 4, sum[QUERIES] = {0};
    const int *code = (const int *)(const void *)(unit + IG_SKETCH_CODES) + t;
    for (int w = 0; w < words; w += 2, code += UNIT) {
        int low = *code & 0x0f0f0f0f, high = *code >> 4 & 0x0f0f0f0f;
        for (int g = 0; g < QUERIES; g++) {
            if (g >= n_q) break;
            sum[g] = __dp4a(low, c->q8[g * words + w], sum[g]);
            sum[g] = __dp4a(high, c->q8[g * words + w + 1], sum[g]);
        }
    }
    for (int g = 0; g < QUERIES; g++)
        if (g < n_q) scores[(size_t)g * stride] = c->scale[g] * (line[t] * (float)sum[g] + line[UNIT + t] * c->sum[g]);
}

/* A part's scores of one query become exponentials; by a warp. */
static __device__ void normalise(float *row, float *top, float *total) {
    int lane = (int)threadIdx.x % IG_WARP;
    float most = -INFINITY, sum = 0;
    for (int i = lane; i < IG_SCAN_PART; i += IG_WARP) most = row[i] > most ? row[i] : most;
    most = ig_warp_max(most);
    for (int i = lane; i < IG_SCAN_PART; i += IG_WARP) sum += row[i] = most == -INFINITY ? 0.0f : expf(row[i] - most);
    sum = ig_warp_sum(sum);
    if (lane == 0) *top = most, *total = sum;
}

static __global__ void scan(const ig_scan_list *lists) {
    ig_begin();
    IG_SHARED(int, q8);
    const ig_scan_list *x = &lists[blockIdx.z];
    int part = (int)blockIdx.x, first = (int)blockIdx.y * QUERIES, begin = part * IG_SCAN_PART;
    int n_q = x->group - first < QUERIES ? x->group - first : QUERIES;
    if (n_q <= 0 || begin >= x->n) return;
    codes c = lay_out(q8, x->rank / 4);
    ig_cuda_scratch s = ig_cuda_scratch_of(x);
    if (x->columns.n) {
        ig_score_columns(x, &s, (float *)q8, part);
        return;
    }
    float *row = s.exps + (size_t)first * s.stride + begin;
    quantise(&c, x, s.queries, first, n_q);
    __syncthreads();
    for (int i = (int)threadIdx.x; i < IG_SCAN_PART; i += THREADS) {
        bool is_own = x->k && begin + i == x->n - 1;
        if (begin + i < x->n && !is_own)
            score(row + i, s.stride, &c, x, begin + i, n_q);
        else
            for (int g = 0; g < n_q; g++) row[(size_t)g * s.stride + (size_t)i] = is_own ? s.own[first + g] : -INFINITY;
    }
    __syncthreads();
    for (int g = (int)threadIdx.x / IG_WARP; g < n_q; g += WARPS) {
        size_t at = (size_t)part * (size_t)x->group + (size_t)(first + g);
        normalise(row + (size_t)g * s.stride, &s.top[at], &s.total[at]);
    }
}

void ig_cuda_scan(ig_queue q, const ig_scan_list *lists, int n, const ig_scan_list *most) {
    unsigned parts = (unsigned)ig_cuda_scan_parts(most->n), slices = (unsigned)(most->group + QUERIES - 1) / QUERIES;
    size_t shared = QUERIES * ((size_t)most->rank / 4 * sizeof(int) + 2 * sizeof(float));
    ig_launch(prepare, dim3((unsigned)most->group, (unsigned)n), dim3(THREADS), 2 * (size_t)most->rank * sizeof(float),
              q, lists);
    ig_launch(scan, dim3(parts, slices, (unsigned)n), dim3(THREADS), shared, q, lists);
}

/* ---- the rest ------------------------------------------------------------------------------- */

/* Shared memory of add_values(): weights of a unit's tokens for a query, times their steps, in 1/255 of the largest. */
typedef struct unit_weights {
    unsigned w8[VALUE_WORDS]; /* bytes, of 4 tokens each */
    float scale;              /* of a sum of w8 * (2 code - 3) */
    int sum;                  /* of w8 */
} unit_weights;

static __device__ unit_weights weights_of(const uint8_t *unit, const float *exps) {
    const uint16_t *step = (const uint16_t *)(const void *)unit;
    unit_weights w = {{0}, 0, 0};
    float top = 0;
    for (int t = 0; t < UNIT; t++) top = fmaxf(top, exps[t] * ig_half(step[t]));
    if (!(top > IG_VALUE_LEAST)) return w;
    for (int t = 0; t < UNIT; t++) {
        int code = (int)rintf(exps[t] * ig_half(step[t]) * (255 / top));
        w.w8[t / 4] |= (unsigned)code << t % 4 * 8;
        w.sum += code;
    }
    w.scale = top / 510;
    return w;
}

/* Dimension i of the values of a part for n_q queries. */
static __device__ void add_dimension(float *sums, const ig_scan_list *x, const unit_weights *w, int begin, int n_units,
                                     int n_q, int i) {
    float acc[QUERIES] = {0};
    for (int u = 0; u < n_units; u++) {
        const uint8_t *unit = unit_at(x, &x->values, begin / UNIT + u);
        unsigned code = ((const unsigned *)(const void *)(unit + IG_VALUE_CODES))[i];
        for (int g = 0; g < QUERIES; g++) {
            if (g >= n_q) break;
            const unit_weights *own = &w[u * QUERIES + g];
            unsigned total = 0;
            for (int j = 0; j < VALUE_WORDS; j++) total = __dp4a(own->w8[j], code >> 2 * j & 0x03030303u, total);
            acc[g] += own->scale * (float)(2 * (int)total - 3 * own->sum);
        }
    }
    for (int g = 0; g < QUERIES; g++)
        if (g < n_q) sums[(size_t)g * (size_t)x->head_dim] = acc[g];
}

static __global__ void add_values(const ig_scan_list *lists) {
    ig_begin();
    IG_SHARED(unit_weights, w); /* [UNITS][QUERIES] */
    const ig_scan_list *x = &lists[blockIdx.z];
    int part = (int)blockIdx.x, first = (int)blockIdx.y * QUERIES, begin = part * IG_SCAN_PART;
    int n_q = x->group - first < QUERIES ? x->group - first : QUERIES, n_units = (x->n - begin + UNIT - 1) / UNIT;
    if (n_units > UNITS) n_units = UNITS;
    if (n_q <= 0 || begin >= x->n || !x->rest) return;
    ig_cuda_scratch s = ig_cuda_scratch_of(x);
    const float *row = s.exps + (size_t)first * s.stride + begin;
    size_t at = (size_t)part * (size_t)x->group + (size_t)first;
    for (int i = (int)threadIdx.x; i < n_units * n_q; i += THREADS) {
        int u = i / n_q, g = i % n_q;
        w[u * QUERIES + g] =
            weights_of(unit_at(x, &x->values, begin / UNIT + u), row + (size_t)g * s.stride + u * UNIT);
    }
    for (int g = (int)threadIdx.x / IG_WARP; g < n_q; g += WARPS) {
        float left = 0;
        for (int i = (int)threadIdx.x % IG_WARP; i < IG_SCAN_PART; i += IG_WARP) left += row[(size_t)g * s.stride + i];
        left = ig_warp_sum(left);
        if (threadIdx.x % IG_WARP == 0) s.left[at + (size_t)g] = left;
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < x->head_dim; i += THREADS)
        add_dimension(s.sum + at * (size_t)x->head_dim + i, x, w, begin, n_units, n_q, i);
}

/* A block of threads is a query of a list. */
static __global__ void join(const ig_scan_list *lists) {
    ig_begin();
    IG_SHARED(float, v); /* [head_dim] */
    const ig_scan_list *x = &lists[blockIdx.y];
    int g = (int)blockIdx.x, d = x->head_dim, n = ig_cuda_scan_parts(x->n);
    if (g >= x->group || !x->rest) return;
    ig_cuda_scratch s = ig_cuda_scratch_of(x);
    for (int i = (int)threadIdx.x; i < d; i += THREADS) {
        float sum = 0;
        for (int p = 0; p < n; p++) {
            size_t at = (size_t)p * (size_t)x->group + (size_t)g;
            sum += s.sum[at * (size_t)d + (size_t)i] * s.share[at];
        }
        v[i] = sum;
    }
    __syncthreads();
    transform(v, d);
    float scale = 1 / sqrtf((float)(d & -d)), left = 0;
    for (int i = (int)threadIdx.x; i < d; i += THREADS) x->rest[(size_t)g * (size_t)d + (size_t)i] = v[i] * scale;
    for (int p = 0; p < n && threadIdx.x == 0; p++) left += s.left[p * x->group + g] * s.share[p * x->group + g];
    if (threadIdx.x == 0) x->rest_share[g] = left;
}

void ig_cuda_estimate(ig_queue q, const ig_scan_list *lists, int n, const ig_scan_list *most) {
    unsigned parts = (unsigned)ig_cuda_scan_parts(most->n), slices = (unsigned)(most->group + QUERIES - 1) / QUERIES;
    ig_launch(add_values, dim3(parts, slices, (unsigned)n), dim3(THREADS), UNITS * QUERIES * sizeof(unit_weights), q,
              lists);
    ig_launch(join, dim3((unsigned)most->group, (unsigned)n), dim3(THREADS), (size_t)most->head_dim * sizeof(float), q,
              lists);
}
