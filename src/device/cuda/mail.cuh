/* SPDX-License-Identifier: Apache-2.0
 *
 * What operations on rows read of their jobs, on its way to the GPU: jobs, views, lists of rows and numbers of blocks
 * are put together in page-locked memory of the host, and go over the bus in one copy before the commands
 * that read them (commands.cuh). What is in it lasts until these have ended.
 */
#ifndef IG_DEVICE_CUDA_MAIL_H
#define IG_DEVICE_CUDA_MAIL_H

#include <assert.h>
#include <string.h>

#include "device/cuda/kernels.cuh"

/* A part of the mail as the host writes it, and where the GPU will find it; NULL: there is no room. */
typedef struct ig_cuda_letter {
    void *host, *dev;
} ig_cuda_letter;

/* A list of the host's that is in the mail. */
typedef struct ig_cuda_posted {
    const void *list;
    size_t n_bytes;
    ig_cuda_letter letter;
} ig_cuda_posted;

enum { IG_CUDA_POSTED = 256 /* lists that are remembered; more go again for each layer */ };

typedef struct ig_cuda_mail {
    uint8_t *host, *dev; /* [size] */
    size_t size, used, sent;
    ig_cuda_posted posted[IG_CUDA_POSTED]; /* [n_posted] */
    int n_posted, next;                    /* next: probably the one that is asked for next */
} ig_cuda_mail;

static inline size_t ig_cuda_mail_room(const ig_cuda_mail *m) { return m->size - m->used; }

/* What n bytes take. */
static inline size_t ig_cuda_mail_bytes(size_t n) { return (n + 15) / 16 * 16; }

ig_cuda_letter ig_cuda_mail_take(ig_cuda_mail *m, size_t n_bytes);

/* A list of n for the kernels: in the mail, or, if there is no room or nothing in it, where it is. */
template <typename T>
static inline const T *ig_cuda_mail_list(ig_cuda_mail *m, const T *list, size_t n) {
    ig_cuda_letter part = {NULL, NULL};
    if (n) part = ig_cuda_mail_take(m, n * sizeof *list);
    if (!part.host) return list;
    memcpy(part.host, list, n * sizeof *list);
    return (const T *)part.dev;
}

/* The same where the host alone can read the list: there is room. */
template <typename T>
static inline const T *ig_cuda_mail_put(ig_cuda_mail *m, const T *list, size_t n) {
    const T *sent = ig_cuda_mail_list(m, list, n);
    assert(n == 0 || sent != list);
    return sent;
}

/* What n numbers take: room for more, so that what follows lies where it did in the step before. */
enum { IG_CUDA_ROUND = 64 };
static inline size_t ig_cuda_mail_numbers_bytes(size_t n) {
    return (n + IG_CUDA_ROUND - 1) / IG_CUDA_ROUND * IG_CUDA_ROUND * sizeof(uint32_t);
}

/* The same of a list that each layer asks for, such as numbers of blocks: it goes once, and again only if it has
 * changed or grown. */
const uint32_t *ig_cuda_mail_numbers(ig_cuda_mail *m, const uint32_t *list, size_t n);

/* Bytes of n jobs, ig_attention or ig_append, with n_views views each. */
template <typename T>
static inline size_t ig_cuda_mail_job_bytes(int n, int n_views) {
    return ig_cuda_mail_bytes((size_t)n * sizeof(T)) +
           (size_t)n * ig_cuda_mail_bytes((size_t)n_views * sizeof(ig_kv_view));
}

/* Views in the mail become what kernels read. Lists that there is no room for are read where they are. */
void ig_cuda_mail_views(ig_cuda_mail *m, ig_kv_view *views, int n);

/* What the host has of a letter that kernels read at p. */
template <typename T>
static inline T *ig_cuda_mail_twin(const ig_cuda_mail *m, const T *p) {
    return (T *)(void *)(m->host + ((const uint8_t *)(const void *)p - m->dev));
}

/* Those jobs for kernels, for which there is room; what else they point to is left to the caller. */
template <typename T>
static inline ig_cuda_letter ig_cuda_mail_jobs(ig_cuda_mail *m, const T *jobs, int n, int n_views) {
    ig_cuda_letter part = ig_cuda_mail_take(m, (size_t)n * sizeof *jobs);
    T *kept = (T *)part.host;
    memcpy(kept, jobs, (size_t)n * sizeof *jobs);
    for (int i = 0; i < n; i++) {
        ig_cuda_letter views = ig_cuda_mail_take(m, (size_t)n_views * sizeof(ig_kv_view));
        memcpy(views.host, jobs[i].views, (size_t)n_views * sizeof(ig_kv_view));
        kept[i].views = (const ig_kv_view *)views.dev;
    }
    for (int i = 0; i < n; i++) ig_cuda_mail_views(m, ig_cuda_mail_twin(m, kept[i].views), n_views);
    return part;
}

/* Sends what was put in since the last time. */
cudaError_t ig_cuda_mail_send(ig_cuda_mail *m, cudaStream_t s);
/* Nothing is in it: all that reads it has ended. */
void ig_cuda_mail_empty(ig_cuda_mail *m);

#endif
