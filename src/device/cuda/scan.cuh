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

/* Sums of weights are of whole units of 2^-40, so that they do not depend on their order. */
typedef unsigned long long ig_cuda_units;

enum { IG_PICK_DIGITS = 3, IG_PICK_BITS = 11, IG_PICK_BINS = 1 << IG_PICK_BITS };

/* What is still to be chosen by weight when some digits of the threshold are known. */
typedef enum ig_cuda_picks { IG_PICK_NONE, IG_PICK_SOME, IG_PICK_ALL } ig_cuda_picks;
typedef struct ig_cuda_goal {
    ig_cuda_picks picks;
    unsigned digits;    /* of the threshold, as far as they are known */
    int count;          /* entries at most, beside those above these digits */
    ig_cuda_units mass; /* and until they weigh so much */
} ig_cuda_goal;

/* What the parts of a list add up to; zero at first. */
typedef struct ig_cuda_board {
    ig_cuda_units all, always, more; /* weights: all, those of entries that are chosen anyway, what favour has added */
    ig_cuda_goal goals[IG_PICK_DIGITS]; /* after each digit */
    ig_cuda_units sums[IG_PICK_DIGITS]
                      [IG_PICK_BINS]; /* of weights that have a digit, the upper ones as the threshold */
    unsigned counts[IG_PICK_DIGITS][IG_PICK_BINS];
} ig_cuda_board;
static_assert(sizeof(ig_cuda_board) <= IG_SCAN_BOARD * sizeof(float), "IG_SCAN_BOARD");

/* Scores of slots that are not there are -INFINITY, their exponentials 0. */
typedef struct ig_cuda_scratch {
    size_t stride;                     /* slots of all parts */
    float *weights;                    /* [stride] */
    ig_cuda_board *board;              /* of picking */
    int *above, *equal;                /* [parts] entries of runs of parts above the threshold, and at it */
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
    s.board = (ig_cuda_board *)(void *)(s.weights + s.stride);
    s.above = (int *)(void *)(s.weights + s.stride + IG_SCAN_BOARD);
    s.equal = s.above + parts;
    s.exps = (float *)(void *)(s.equal + parts);
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
