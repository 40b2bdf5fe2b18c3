/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the CUDA device: what it is, for the files that have operations. Operations write down commands
 * (commands.cuh), in the order of their calls, each between enter() and leave().
 */
#ifndef IG_DEVICE_CUDA_GPU_H
#define IG_DEVICE_CUDA_GPU_H

#include "device/cuda/mail.cuh"

#include <pthread.h>

/* Memory of the host that has a copy on the GPU. */
typedef struct binding {
    const uint8_t *host;
    uint8_t *copy;
    size_t n_bytes;
    int n_users; /* how often it was bound, less how often given up */
} binding;

/* Sums that traffic is added to at the next wait: of a sequence, and of its memory. */
typedef struct ig_cuda_counted {
    ig_kv_traffic *sum, *total;
} ig_cuda_counted;

enum { IG_CUDA_COUNTS = 1024 /* sequences whose traffic is counted between two waits */ };

typedef struct gpu {
    ig_device base;
    int number;
    char name[256];
    int n_multiprocessors; /* no bit of a result depends on it */
    ig_pool *pool;
    pthread_mutex_t turn; /* of all below */
    ig_commands *commands;
    ig_queue work, ahead; /* of them; `ahead` brings blocks that are foreseen */
    bool is_ahead;        /* `ahead` has work that `work` has not waited for yet */
    cudaEvent_t chosen;   /* the host waits for it */
    cudaError_t failure;  /* the first since the last finish() */

    binding *bound; /* [n_bound], ascending */
    size_t n_bound, cap_bound;

    ig_device_need have;
    uint8_t *scratch; /* holds what follows; its bytes */
    size_t scratch_bytes;
    uint8_t *act;                            /* [max_rows] columns of activations */
    float *parts, *state;                    /* decode steps' parts; prompts' running sums */
    float *sums;                             /* what parts of prompts' rows and shares of products come to */
    uint16_t *rows;                          /* gathered keys and values */
    float *low_rank;                         /* products with what adapters have */
    size_t n_parts, n_state, n_sums, n_rows; /* elements of these */

    ig_cuda_mail mail;                   /* what attention was called with since the last wait */
    unsigned *peak;                      /* behind the mail */
    ig_kv_traffic *counts, *host_counts; /* [IG_CUDA_COUNTS] behind it too: what the books have counted since then */
    ig_cuda_counted counted[IG_CUDA_COUNTS]; /* [n_counted] of whom */
    int n_counted;
} gpu;

static inline gpu *gpu_of(ig_device *d) { return (gpu *)d; }

static inline void note(gpu *g, cudaError_t e) {
    if (e != cudaSuccess && g->failure == cudaSuccess) g->failure = e;
}

/* From here to leave() the device is the caller's. */
static inline gpu *enter(ig_device *d) {
    gpu *g = gpu_of(d);
    pthread_mutex_lock(&g->turn);
    note(g, cudaSetDevice(g->number));
    return g;
}

static inline void leave(gpu *g) {
    note(g, cudaGetLastError()); /* of a launch */
    pthread_mutex_unlock(&g->turn);
}

/* Commands so far are submitted. */
static inline void submit(gpu *g) { note(g, ig_commands_submit(g->commands)); }

/* All of them have ended; what was counted is added up, and the mail is empty. */
void ig_cuda_wait(gpu *g);

/* What follows in `work` waits for the blocks that are brought. */
static inline void ig_cuda_await_ahead(gpu *g) {
    if (g->is_ahead) ig_queue_join(g->work);
    g->is_ahead = false;
}

/* Number of the first binding that begins behind p. */
static inline size_t bound_behind(const gpu *g, const void *p) {
    size_t low = 0, high = g->n_bound;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (g->bound[middle].host <= (const uint8_t *)p)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Where the GPU has what the host has at p: in a copy, or there. */
template <typename T>
static inline const T *find(const gpu *g, const T *p) {
    size_t i = bound_behind(g, p);
    if (i == 0) return p;
    const binding *b = &g->bound[i - 1];
    size_t at = (size_t)((const uint8_t *)p - b->host);
    return at < b->n_bytes ? (const T *)(const void *)(b->copy + at) : p;
}

static inline int max_int(int a, int b) { return a > b ? a : b; }
static inline int min_int(int a, int b) { return a < b ? a : b; }

/* Zeroed memory of the GPU, or NULL; in turn. */
void *ig_cuda_take(gpu *g, size_t n_bytes);
ig_status ig_cuda_fail(ig_error *err, const gpu *g, const char *what, cudaError_t e);

/* Operations of residency.cu; and what it has to be told before jobs are sent whose rows it is to look through. */
ig_status ig_cuda_open_copies(ig_device *d, ig_residency **out, const ig_residency_shape *shape, ig_error *err);
void ig_cuda_close_copies(ig_device *d, ig_residency *r);
void ig_cuda_begin_touching(gpu *g, const ig_attention *job, bool ahead);

/* Operations of attend.cu. */
void ig_cuda_prefetch(ig_device *d, const ig_head_shape *shape, const ig_attention *jobs, int n_jobs);
void ig_cuda_attend(ig_device *d, const ig_head_shape *shape, const ig_attention *jobs, int n_jobs);
void ig_cuda_weigh_rows(ig_device *d, const ig_head_shape *shape, const ig_attention *job, int begin, int end,
                        float *weights, size_t stride);

/* The operation of append.cu. */
void ig_cuda_append_rows(ig_device *d, const ig_head_shape *shape, const ig_append *jobs, int n_jobs);

/* Operations of products.cu. */
void ig_cuda_embed_rows(ig_device *d, float *out, const ig_matrix *m, float scale, const int32_t *ids, int n_rows,
                        bool add);
void ig_cuda_multiply(ig_device *d, float *const *y, const ig_matrix *const *m, int n_m, const float *x,
                      const ig_shares *shares, int n_rows, bool few);
void ig_cuda_multiply_heads(ig_device *d, const ig_head_product *p, int n_rows, bool few);

/* Operations of recurrence.cu. */
void ig_cuda_convolve(ig_device *d, float *out, const float *x, const ig_recurrence_shape *s,
                      const ig_recurrence_weights *w, const ig_recurrence *jobs, int n_jobs);
void ig_cuda_recur(ig_device *d, float *out, const float *x, const float *beta, const float *alpha,
                   const ig_recurrence_shape *s, const ig_recurrence_weights *w, const ig_recurrence *jobs, int n_jobs);

/* The operation of choose.cu. */
void ig_cuda_choose_lists(ig_device *d, const ig_scan_list *lists, int n, bool is_awaited);

#endif
