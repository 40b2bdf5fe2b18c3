/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the CPU device: cpu.c (rows and elementwise operations), cpu_matmul.c, cpu_attention.c,
 * cpu_recurrence.c.
 */
#ifndef IG_DEVICE_CPU_H
#define IG_DEVICE_CPU_H

#include <math.h>
#include <pthread.h>

#include "base/memory.h"
#include "device/device.h"
#include "kernel/kernel.h"

enum {
    IG_TILE_ROWS = IG_PROMPT_QUERIES, /* query rows (positions x heads of a group) of one prefill tile */
    IG_TILE_KEYS = IG_PROMPT_KEYS,    /* keys of one inner step, prefill and decode */
    IG_CPU_SMALL = 4096,              /* elements below which an elementwise operation is not shared out */
    IG_SPLIT = IG_ATTEND_UNIT,        /* rows of one decode task; fixed, so that results do not depend on the threads */
};

typedef struct ig_cpu_device {
    ig_device base;
    const ig_kernels *k;
    ig_pool *pool;
    int n_threads;
    pthread_mutex_t turn; /* one operation at a time: the scratch below is shared */

    ig_device_need have;
    ig_arena arena;
    uint8_t *act; /* [max_rows] prepared activation columns of at most act_bytes each */
    size_t act_bytes;
    uint8_t *thread_scratch; /* [n_threads] of thread_bytes: gemm panels or attention tiles */
    size_t thread_bytes;
    float *low_rank; /* [low_rank_floats] products with what adapters have */
    size_t low_rank_floats;
    float *partial; /* decode attention: partial results, see cpu_attention.c */
    size_t partial_floats;
    uint8_t *chunks; /* a prompt's attention: rows made ready for its kernels */
    float *carry;    /* and what one such part of them hands on to the next */
} ig_cpu_device;

/* NaN of what is not finite. */
static inline float ig_softplus(float x) { return (x > 20 ? x : log1pf(expf(x))) + (x - x); }
static inline float ig_sigmoid(float x) { return 1 / (1 + expf(-x)) + (x - x); }

static inline ig_cpu_device *ig_cpu(ig_device *d) { return (ig_cpu_device *)d; }

void ig_cpu_matmul(ig_device *d, float *const *y, const ig_matrix *const *m, int n_m, const float *x,
                   const ig_shares *shares, int n_rows, bool few);
void ig_cpu_matmul_heads(ig_device *d, const ig_head_product *p, int n_rows, bool few);
bool ig_cpu_few_as_many(const ig_device *d, const ig_matrix *m);
size_t ig_cpu_panel_bytes(ig_device *d, const ig_matrix *m);
void ig_cpu_put_panels(ig_device *d, void *to, const ig_matrix *m);

/* Scratch that attention needs: bytes of each thread, floats of partials, bytes of chunks, floats of carry. */
size_t ig_cpu_attention_thread_bytes(const ig_kernels *k, const ig_head_shape *shape);
size_t ig_cpu_attention_partial_floats(const ig_device_need *need);
size_t ig_cpu_attention_chunk_bytes(const ig_kernels *k, const ig_device_need *need);
size_t ig_cpu_attention_carry_floats(const ig_kernels *k, const ig_device_need *need);
void ig_cpu_attend(ig_device *d, const ig_head_shape *shape, const ig_attention *jobs, int n_jobs);
void ig_cpu_convolve(ig_device *d, float *out, const float *x, const ig_recurrence_shape *s,
                     const ig_recurrence_weights *w, const ig_recurrence *jobs, int n_jobs);
void ig_cpu_recur(ig_device *d, float *out, const float *x, const float *beta, const float *alpha,
                  const ig_recurrence_shape *s, const ig_recurrence_weights *w, const ig_recurrence *jobs, int n_jobs);
void ig_cpu_weigh(ig_device *d, const ig_head_shape *shape, const ig_attention *job, int begin, int end, float *weights,
                  size_t stride);

#endif
