/* SPDX-License-Identifier: Apache-2.0
 *
 * New keys and values go to their rows in page-locked memory of the host, in the bits that ig_kv_write() of kv/rows.h
 * gives them.
 */
#include "device/cuda/gpu.cuh"
#include "device/cuda/rows.cuh"

#include <math.h>

enum { KEY_AND_VALUE = 2 }; /* warps of a block of threads, which is a token's */

/* What packed groups of a row are made of: a key relative to its frame, or a value. */
typedef struct numbers {
    const float *x, *origin, *scale; /* [head_dim]; origin NULL: as they are */
    float most;                      /* of a magnitude that is kept */
} numbers;

static __device__ __forceinline__ float number_at(const numbers *r, int i) {
    float x = r->origin ? (r->x[i] - r->origin[i]) / r->scale[i] : r->x[i];
    if (x != x) return 0;
    return x > r->most ? r->most : x < -r->most ? -r->most : x;
}

/* ig_packed_line() of kernel/packed.h. */
static __device__ __forceinline__ ig_kv_line line_of(float *min, float *inverse, float lo, float hi, int levels) {
    lo += 0.0f, hi += 0.0f; /* -0 is 0 */
    uint16_t down = ig_to_half(lo);
    if (ig_half(down) > lo) down = (uint16_t)(lo < 0 ? down + 1 : down - 1);
    *min = ig_half(down);
    float step = (hi - *min) / (float)levels;
    uint16_t up = ig_to_half(step);
    if (ig_half(up) < step) up++;
    *inverse = up ? 1.0f / ig_half(up) : 0;
    ig_kv_line line = {up, down};
    return line;
}

/* Codes of n numbers from number `first` on, to the warp's part of shared memory, and from there to their bytes. */
static __device__ void pack_group(uint8_t *to, ig_kv_line *line, uint8_t *codes, const numbers *r, int first, int n,
                                  int bits) {
    int lane = (int)threadIdx.x, levels = (1 << bits) - 1, bytes = n * bits / 8;
    float lo = INFINITY, hi = -INFINITY, min, inverse;
    for (int i = lane; i < n; i += IG_WARP) {
        float x = number_at(r, first + i);
        lo = x < lo ? x : lo;
        hi = x > hi ? x : hi;
    }
    lo = -ig_warp_max(-lo);
    hi = ig_warp_max(hi);
    ig_kv_line made = line_of(&min, &inverse, lo, hi, levels);
    for (int i = lane; i < n; i += IG_WARP) codes[i] = (uint8_t)(int)rintf((number_at(r, first + i) - min) * inverse);
    __syncthreads();
    for (int i = lane; i < bytes; i += IG_WARP) {
        int byte = 0;
        for (int part = 0; part < 8 / bits; part++)
            byte |= codes[bits == 1 ? 8 * i + part : part * bytes + i] << part * bits;
        to[i] = (uint8_t)byte;
    }
    if (lane == 0) *line = made;
    __syncthreads();
}

/* A block of threads is a token of a KV head: a warp its key, another its value. */
static __global__ void append(const ig_append *jobs, ig_head_shape shape) {
    ig_begin();
    IG_SHARED(uint8_t, codes);
    const ig_append *a = &jobs[blockIdx.z];
    int token = (int)blockIdx.x, head = (int)blockIdx.y, is_value = (int)threadIdx.y, d = shape.head_dim;
    if (token >= a->n) return;
    const ig_kv_view *view = &a->views[head];
    int slot = view->first + token;
    size_t number = ig_cuda_block(view, slot);
    ig_cuda_row row = ig_cuda_row_in(view, ig_cuda_home(view, slot >> view->shift, number), number, slot, d);
    if (view->where && threadIdx.x == 0) view->where[number] = NULL; /* a copy is not what the block is any more */
    uint8_t *to = (uint8_t *)row.key + (is_value ? view->v_offset : 0);
    size_t at = ((size_t)token * (size_t)shape.n_kv_heads + (size_t)head) * (size_t)d;
    numbers r = {(is_value ? a->v : a->k) + at, NULL, NULL, view->type == IG_KV_Q1 ? IG_KV_MOST / 2 : IG_KV_MOST};
    if (view->type == IG_KV_F16) {
        for (int i = (int)threadIdx.x; i < d; i += IG_WARP) ((uint16_t *)to)[i] = ig_to_half(r.x[i]);
        return;
    }
    if (a->origin && !is_value) {
        r.origin = a->origin + (size_t)head * (size_t)d;
        r.scale = a->scale + (size_t)head * (size_t)(shape.n_heads / shape.n_kv_heads) * (size_t)d;
    }
    int bits = 16 >> view->type;
    ig_kv_line *lines = (ig_kv_line *)row.lines + (is_value ? ig_cuda_lines(view->type, d) : 0);
    for (int first = 0; first < d; first += IG_KV_GROUP) {
        int n = d - first < IG_KV_GROUP ? d - first : IG_KV_GROUP;
        pack_group(to + first * bits / 8, lines++, codes + is_value * IG_KV_GROUP, &r, first, n, bits);
    }
}

/* As many of n jobs as there is room for, from the first on; returns how many. */
static int append_some(gpu *g, const ig_head_shape *shape, const ig_append *jobs, int n) {
    int most = (int)(IG_GPU_MAIL / ig_cuda_mail_job_bytes<ig_append>(1, shape->n_kv_heads)), n_tokens = 0;
    n = min_int(n, most);
    if (ig_cuda_mail_job_bytes<ig_append>(n, shape->n_kv_heads) > ig_cuda_mail_room(&g->mail)) ig_cuda_wait(g);
    ig_cuda_letter kept = ig_cuda_mail_jobs(&g->mail, jobs, n, shape->n_kv_heads);
    for (int i = 0; i < n; i++) {
        ig_append *job = &((ig_append *)kept.host)[i];
        if (job->origin) job->origin = find(g, job->origin), job->scale = find(g, job->scale);
        n_tokens = max_int(n_tokens, job->n);
    }
    ig_launch(append, dim3((unsigned)n_tokens, (unsigned)shape->n_kv_heads, (unsigned)n), dim3(IG_WARP, KEY_AND_VALUE),
              KEY_AND_VALUE * IG_KV_GROUP, g->work, (const ig_append *)kept.dev, *shape);
    return n;
}

void ig_cuda_append_rows(ig_device *d, const ig_head_shape *shape, const ig_append *jobs, int n_jobs) {
    gpu *g = enter(d);
    for (int i = 0; i < n_jobs;) i += append_some(g, shape, jobs + i, n_jobs - i);
    leave(g);
}
