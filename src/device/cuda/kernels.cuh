/* SPDX-License-Identifier: Apache-2.0
 *
 * What the device (device.cu) asks of the kernels: each call adds launches to a queue. Pointers are to memory
 * of the device, or to page-locked memory of the host. Sums are cut by sizes that are constants, so that a row's result
 * depends neither on other rows nor on how many there are, nor on the GPU.
 */
#ifndef IG_DEVICE_CUDA_KERNELS_H
#define IG_DEVICE_CUDA_KERNELS_H

extern "C" {
#include "device/gpu.h"
#include "device/residency.h"
#include "kernel/kernel.h"
}

#include "device/cuda/commands.cuh"

extern "C" {

/* ---- matmul.cu, matmul_many.cu ---- */

static inline bool ig_cuda_has_codes(const ig_matrix *m) { return ig_type_get((uint32_t)m->type)->block > 1; }

/* Columns x [n_cols][n], n a multiple of 32, to 8 bits as IG_ACT_Q8 has them, in ig_gpu_act_bytes() each. */
void ig_cuda_quantise(ig_queue q, uint8_t *act, const float *x, int n, int n_cols);
/* The same of columns that lie so many floats apart. */
void ig_cuda_quantise_apart(ig_queue q, uint8_t *act, const float *x, size_t apart, int n, int n_cols);
enum { IG_CUDA_MATRICES = 3 };
/* y[i][c][0..n_out) = m[i] x[c] + bias, for IG_CUDA_MATRICES matrices of one type at most. `x`: columns of floats, or
 * for quantised types ig_cuda_quantise()'s. Matrices and x begin at multiples of 16 bytes. */
void ig_cuda_matmul(ig_queue q, float *const *y, const ig_matrix *m, int n_m, const void *x, int n_cols);
/* n floats of the GPU's memory. */
typedef struct ig_cuda_room {
    float *x;
    size_t n;
} ig_cuda_room;

/* The same columns to 16-bit floats, n of any size, in ig_gpu_half_bytes() each, and products with them: of prompts, on
 * tensor cores, by n_tiles blocks of threads or more where there are as many small ones. What shares of a matrix come
 * to goes to `sums`, which has room for a column at least: IG_GPU_SHARED_ROWS of each matrix. */
void ig_cuda_halve(ig_queue q, uint8_t *act, const float *x, int n, int n_cols);
void ig_cuda_matmul_many(ig_queue q, float *const *y, const ig_matrix *m, int n_m, const uint8_t *act, int n_cols,
                         int n_tiles, ig_cuda_room sums);
/* Products of heads with m, the matrix of p with the GPU's own addresses: of few rows and of many. `act` has room for
 * all columns of n_rows rows. */
void ig_cuda_matmul_heads(ig_queue q, const ig_head_product *p, const ig_matrix *m, uint8_t *act, int n_rows);
void ig_cuda_matmul_heads_many(ig_queue q, const ig_head_product *p, const ig_matrix *m, uint8_t *act, int n_rows,
                               int n_tiles);
void ig_cuda_embed(ig_queue q, float *out, const ig_matrix *m, float scale, const int32_t *ids, int n_rows, bool add);

/* ---- vector.cu: as the operations of device.h; a norm may add to x what the addition before it was to ---- */

void ig_cuda_norm(ig_queue q, float *y, float *x, const ig_norm *norm, int n_rows);
void ig_cuda_rope(ig_queue q, float *x, const ig_rotation *by, int n_rows, int n_heads, int head_dim);
void ig_cuda_add(ig_queue q, float *y, const float *x, size_t n);
/* y[r][0..n) += the sum over k of x[r][k] * share * b[k * stride + i], in the order of k; rows of n_x and of n floats.
 * shares[r * n_shares] is the row's; with 0 nothing is added. */
void ig_cuda_add_products(ig_queue q, float *y, const float *x, int n_x, const float *b, size_t stride,
                          const float *shares, int n_shares, int n_rows, int n);
void ig_cuda_add_rows(ig_queue q, float *y, const float *x, const int32_t *rows, const float *shares, int n_rows,
                      int n);
void ig_cuda_copy_rows(ig_queue q, float *to, size_t to_row, const float *from, size_t from_row, int n, int n_rows);
void ig_cuda_gate_rows(ig_queue q, ig_activation kind, float *x, const float *gates, int n_rows, int n);
void ig_cuda_scale(ig_queue q, float *x, float factor, size_t n);
void ig_cuda_activate(ig_queue q, ig_activation kind, float *gate, const float *up, size_t n);
/* Of a few numbers the largest magnitudes of n_x arrays, IG_CUDA_PEAKS at most, to page-locked memory; of many *peak,
 * zero before, becomes the bits of it. */
enum { IG_CUDA_PEAKS = 4, IG_CUDA_FEW = 1 << 15 };
void ig_cuda_peaks(ig_queue q, float *out, const ig_floats *x, int n_x);
void ig_cuda_peak(ig_queue q, unsigned *peak, const ig_floats *x);

/* ---- residency.cu ---- */

/* Decode steps or prompts of one memory, whose views' rows [begin, end) of a layer are about to be read, or foreseen;
 * and blocks of the layer that the host has written since. */
typedef struct ig_cuda_touched {
    int layer;
    const ig_attention *jobs, *sent; /* as the host has them, and as the GPU reads them */
    int n_jobs, n_views;             /* views of each */
    int begin, end;
    bool ahead;
    const uint32_t *written; /* [n_written] where the GPU reads it */
    int n_written;
} ig_cuda_touched;

/* Copies what is worth it, and has the books say where the rows' blocks lie. */
void ig_cuda_touch(ig_queue q, const ig_residency *r, const ig_cuda_touched *x);

/* ---- sketch.cu, pick.cu: lists lie where the GPU reads them, with addresses of its own ---- */

/* A unit on its way: what the GPU gets is a row of these, each with the bytes behind it. */
typedef struct ig_cuda_unit {
    uint8_t *to;
    size_t n_bytes;
} ig_cuda_unit;

/* A list's unit is this one of its table. */
static __host__ __device__ __forceinline__ size_t ig_cuda_unit_number(const ig_scan_list *x, int unit) {
    size_t low = (size_t)(unit & ((1 << x->shift) - 1));
    return x->pieces ? ((size_t)x->pieces[unit >> x->shift] << x->shift) + low : (size_t)unit;
}

/* n of them, stride bytes apart. */
typedef struct ig_cuda_row_of_units {
    const uint8_t *dev;
    size_t stride;
    int n;
} ig_cuda_row_of_units;

void ig_cuda_put_units(ig_queue q, ig_cuda_row_of_units units);
/* Of n lists with at most `most` queries a group, numbers of a query and entries: scores, after these units were put
 * where they belong; weights, and what is picked by them (pick.cu); and what others add where that is asked for. */
void ig_cuda_scan(ig_queue q, const ig_scan_list *lists, int n, const ig_scan_list *most, ig_cuda_row_of_units units);
void ig_cuda_pick(ig_queue q, const ig_scan_list *lists, int n, const ig_scan_list *most);
void ig_cuda_estimate(ig_queue q, const ig_scan_list *lists, int n, const ig_scan_list *most);

/* ---- decode.cu, prefill.cu ---- */

/* Rows of a part of a decode step that reads n: as few as make no more than IG_ATTEND_PARTS of them, and divide
 * IG_ATTEND_UNIT. */
static __host__ __device__ __forceinline__ int ig_cuda_part_rows(int n) {
    int rows = IG_ATTEND_LEAST;
    while (rows < IG_ATTEND_UNIT && rows * IG_ATTEND_PARTS < n) rows *= 2;
    return rows;
}

/* Results of parts: [n_jobs][n_heads][n_parts][head_dim + 2]. Of jobs that are decode steps, which lie where the GPU
 * reads them, parts [first, end) are computed; n_parts is the most that any has. */
typedef struct ig_cuda_parts {
    const ig_attention *jobs;
    int n_jobs, first, end, n_parts;
    float *results;
    float *out; /* where the jobs' results lie, one behind the other; NULL: elsewhere */
} ig_cuda_parts;

void ig_cuda_decode(ig_queue q, const ig_head_shape *shape, const ig_cuda_parts *p);
void ig_cuda_merge(ig_queue q, const ig_head_shape *shape, const ig_cuda_parts *p);

/* Rows [begin, end) of all KV heads' views of a job to f16 [n_kv_heads][end - begin][key, value][head_dim]. */
void ig_cuda_gather(ig_queue q, uint16_t *rows, const ig_head_shape *shape, const ig_attention *job, int begin,
                    int end);

/* Queries [first, first + n) of a prompt against gathered rows [begin, end), which are cut into parts of IG_GPU_PART.
 * `parts` [parts][n][n_heads][head_dim + 2] is what each comes to; where rows end within one, the next call goes on.
 * `state` [n][n_heads][head_dim + 2] is what all parts before `begin` have come to. */
typedef struct ig_cuda_prompt {
    const ig_attention *job;
    const uint16_t *rows;
    float *state, *parts;
    int first, n, begin, end;
    int n_rows; /* of the view */
    ig_window window;
    bool is_whole; /* one part has all that the queries see: there is nothing to combine */
} ig_cuda_prompt;

static __host__ __device__ __forceinline__ int ig_cuda_parts_of(const ig_cuda_prompt *p) {
    return (p->end - 1) / IG_GPU_PART - p->begin / IG_GPU_PART + 1;
}

typedef struct ig_cuda_part_of_rows {
    int begin, end;
} ig_cuda_part_of_rows;

static __host__ __device__ __forceinline__ ig_cuda_part_of_rows ig_cuda_part_of(const ig_cuda_prompt *p, int i) {
    int begin = (p->begin / IG_GPU_PART + i) * IG_GPU_PART, end = begin + IG_GPU_PART;
    return ig_cuda_part_of_rows{begin > p->begin ? begin : p->begin, end < p->end ? end : p->end};
}

/* Once a device is open: that kernels have the shared memory that wide heads take. */
cudaError_t ig_cuda_allow_prefill(void);
void ig_cuda_prefill(ig_queue q, const ig_head_shape *shape, const ig_cuda_prompt *p);
/* Adds parts up to the state; queries that have seen all their rows get their result. Where rows end within a part it
 * waits for the rest of it. */
void ig_cuda_combine(ig_queue q, const ig_head_shape *shape, const ig_cuda_prompt *p);
/* The first row that any query from `first` on sees of a view of n rows, rounded down so that it does not change what
 * sums are made of. */
int ig_cuda_first_row(const ig_head_shape *shape, const ig_attention *job, int first, int n);
void ig_cuda_weigh(ig_queue q, const ig_head_shape *shape, const ig_attention *job, int begin, int end, float *weights,
                   size_t stride);
}

#endif
