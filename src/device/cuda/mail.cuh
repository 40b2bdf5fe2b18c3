/* SPDX-License-Identifier: Apache-2.0
 *
 * What attention reads of its jobs, on its way to the GPU: jobs, views, lists of rows and numbers of blocks are put
 * together in page-locked memory of the host, and go over the bus in one copy before the kernels that read them. What
 * is in it lasts until everything that was launched has ended.
 */
#ifndef IG_DEVICE_CUDA_MAIL_H
#define IG_DEVICE_CUDA_MAIL_H

#include <string.h>

#include "device/cuda/kernels.cuh"

typedef struct ig_cuda_mail {
    uint8_t *host, *dev; /* [size] */
    size_t size, used, sent;
} ig_cuda_mail;

/* A part of the mail as the host writes it, and where the GPU will find it; NULL: there is no room. */
typedef struct ig_cuda_letter {
    void *host, *dev;
} ig_cuda_letter;

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

/* Bytes of n jobs with n_views views each. */
size_t ig_cuda_mail_job_bytes(int n, int n_views);
/* Those jobs for kernels, for which there is room; their q_scale is left to the caller. Lists that there is no room for
 * are read where they are. */
ig_cuda_letter ig_cuda_mail_jobs(ig_cuda_mail *m, const ig_attention *jobs, int n, int n_views);
/* Sends what was put in since the last time. */
cudaError_t ig_cuda_mail_send(ig_cuda_mail *m, cudaStream_t s);

#endif
