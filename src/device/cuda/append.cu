/* SPDX-License-Identifier: Apache-2.0
 *
 * New keys and values go to their rows in page-locked memory of the host, in the bits that ig_kv_write() of kv/rows.h
 * gives them, and to copies of their blocks.
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

/* A row of a key or a value, in one of its places. */
typedef struct place {
    uint8_t *to;
    ig_kv_line *lines;
} place;

static __device__ __forceinline__ place place_of(const ig_kv_view *v, const uint8_t *block, size_t number, int slot,
                                                 bool is_value, int d) {
    ig_cuda_row row = ig_cuda_row_in(v, block, number, slot);
    place p = {(uint8_t *)row.key + (is_value ? v->v_offset : 0), (ig_kv_line *)row.lines};
    if (is_value) p.lines += ig_cuda_lines(v->type, d);
    return p;
}

/* Codes of n numbers from number `first` on, to the warp's part of shared memory, and from there to their bytes. */
static __device__ void pack_group(const place *places, int n_places, int group, uint8_t *codes, const numbers *r,
                                  int first, int n, int bits) {
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
        IG_UNROLL for (int k = 0; k < 2; k++) if (k < n_places) places[k].to[first * bits / 8 + i] = (uint8_t)byte;
    }
    IG_UNROLL for (int k = 0; k < 2; k++) if (k < n_places && lane == 0) places[k].lines[group] = made;
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
    const uint8_t *copy = view->where ? view->where[number] : NULL;
    place places[2] = {place_of(view, ig_cuda_home(view, slot >> view->shift, number), number, slot, is_value, d)};
    int n_places = (size_t)copy & 1 ? 2 : 1;
    if (n_places == 2) places[1] = place_of(view, copy, number, slot, is_value, d);
    size_t at = ((size_t)token * (size_t)shape.n_kv_heads + (size_t)head) * (size_t)d;
    numbers r = {(is_value ? a->v : a->k) + at, NULL, NULL, view->type == IG_KV_Q1 ? IG_KV_MOST / 2 : IG_KV_MOST};
    if (view->type == IG_KV_F16) {
        for (int i = (int)threadIdx.x; i < d; i += IG_WARP)
            IG_UNROLL for (int k = 0; k < 2; k++) if (k < n_places)((uint16_t *)places[k].to)[i] = ig_to_half(r.x[i]);
        return;
    }
    if (a->origin && !is_value) {
        r.origin = a->origin + (size_t)head * (size_t)d;
        r.scale = a->scale + (size_t)head * (size_t)(shape.n_heads / shape.n_kv_heads) * (size_t)d;
    }
    int bits = 16 >> view->type;
    for (int first = 0; first < d; first += IG_KV_GROUP) {
        int n = d - first < IG_KV_GROUP ? d - first : IG_KV_GROUP;
        pack_group(places, n_places, first / IG_KV_GROUP, codes + is_value * IG_KV_GROUP, &r, first, n, bits);
    }
}

/* As many of n jobs as there is room for, from the first on; returns how many. */
static int append_some(gpu *g, const ig_head_shape *shape, const ig_append *jobs, int n) {
    int most = (int)(IG_GPU_MAIL / ig_cuda_mail_job_bytes<ig_append>(1, shape->n_kv_heads)), n_tokens = 0;
    n = min_int(n, most);
    if (ig_cuda_mail_job_bytes<ig_append>(n, shape->n_kv_heads) > ig_cuda_mail_room(&g->mail)) ig_cuda_wait(g);
    ig_cuda_letter kept = ig_cuda_mail_jobs(&g->mail, jobs, n, shape->n_kv_heads);
    ig_cuda_await_ahead(g); /* a copy that is being made would lack the rows */
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
