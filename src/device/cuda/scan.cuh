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

/* Sums of weights, and of what others add, are of whole units of 2^-40, so that they do not depend on their order. */
typedef unsigned long long ig_cuda_units;
#define IG_CUDA_UNITS 0x1p40f

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
    ig_cuda_units sums[IG_PICK_DIGITS]
                      [IG_PICK_BINS]; /* of weights that have a digit, the upper ones as the threshold */
    unsigned counts[IG_PICK_DIGITS][IG_PICK_BINS];
    ig_cuda_units all, always, more; /* weights: all, those of entries that are chosen anyway, what favour has added */
    ig_cuda_goal goals[IG_PICK_DIGITS]; /* after each digit */
    unsigned n_listed, n_added;         /* blocks of threads that have begun to list, and have added values */
} ig_cuda_board;
static_assert(sizeof(ig_cuda_board) <= IG_SCAN_BOARD * sizeof(float), "IG_SCAN_BOARD");

/* Scores of slots that are not there are -INFINITY, their exponentials 0. What is cleared begins and ends at multiples
 * of 16 bytes. */
typedef struct ig_cuda_scratch {
    size_t stride;              /* slots of all parts */
    float *weights;             /* [stride] */
    ig_cuda_board *board;       /* of picking; what is cleared begins here */
    ig_cuda_units *pages;       /* [parts] what each block of threads lists */
    ig_cuda_units *rest;        /* [group][head_dim + 1] sums of values, and of their shares; signed */
    float *exps;                /* [group][stride] scores, then exponentials, 1 for the largest of a part; cleared up to
                                   here */
    float *queries;             /* [group][rank] as the sketch wants them */
    float *own;                 /* [group] their scores of the entry that has no sketch */
    float *top, *total, *share; /* [group][parts]; times its share an exponential is one of the attention */
} ig_cuda_scratch;

static __device__ __forceinline__ ig_cuda_scratch ig_cuda_scratch_of(const ig_scan_list *x) {
    size_t parts = (size_t)ig_cuda_scan_parts(x->n), group = (size_t)x->group, each = parts * group;
    ig_cuda_scratch s;
    s.stride = parts * IG_SCAN_PART;
    s.weights = ig_global(x->scratch);
    s.board = (ig_cuda_board *)(void *)(s.weights + s.stride);
    s.pages = (ig_cuda_units *)(void *)(s.weights + s.stride + IG_SCAN_BOARD);
    s.rest = s.pages + parts;
    s.exps = (float *)(void *)(s.pages + (parts + group * ((size_t)x->head_dim + 1) + 1) / 2 * 2);
    s.queries = s.exps + group * s.stride;
    s.own = s.queries + group * (size_t)x->rank;
    s.top = s.own + group;
    s.total = s.top + each;
    s.share = s.total + each;
    return s;
}

#endif
