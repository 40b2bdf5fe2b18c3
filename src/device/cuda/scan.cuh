/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernels that choose by sketches (sketch.cu, pick.cu) leave for each other in a list's scratch.
 */
#ifndef IG_DEVICE_CUDA_SCAN_H
#define IG_DEVICE_CUDA_SCAN_H

#include "device/cuda/kernels.cuh"

static __host__ __device__ __forceinline__ int ig_cuda_scan_parts(int n) {
    return (n + IG_SCAN_PART - 1) / IG_SCAN_PART;
}

/* Scores of slots that are not there are -INFINITY, their exponentials 0. */
typedef struct ig_cuda_scratch {
    size_t stride;                     /* slots of all parts */
    float *weights;                    /* [stride] */
    int *picked;                       /* [stride] */
    float *exps;                       /* [group][stride] scores, then exponentials, 1 for the largest of a part */
    float *top, *total, *share, *left; /* [parts][group]; times its share an exponential is one of the attention */
    float *sum;                        /* [parts][group][head_dim] */
    float *queries;                    /* [group][rank] as the sketch wants them */
    float *own;                        /* [group] their scores of the entry that has no sketch */
} ig_cuda_scratch;

static __device__ __forceinline__ ig_cuda_scratch ig_cuda_scratch_of(const ig_scan_list *x) {
    size_t parts = (size_t)ig_cuda_scan_parts(x->n), each = parts * (size_t)x->group;
    ig_cuda_scratch s;
    s.stride = parts * IG_SCAN_PART;
    s.weights = x->scratch;
    s.picked = (int *)(void *)(s.weights + s.stride);
    s.exps = s.weights + 2 * s.stride;
    s.top = s.exps + (size_t)x->group * s.stride;
    s.total = s.top + each;
    s.share = s.total + each;
    s.left = s.share + each;
    s.sum = s.left + each;
    s.queries = s.sum + each * (size_t)x->head_dim;
    s.own = s.queries + (size_t)x->group * (size_t)x->rank;
    return s;
}

#endif
