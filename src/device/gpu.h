/* SPDX-License-Identifier: Apache-2.0
 *
 * GPUs, in builds that have them (cuda/device.cu); in others there is none (cuda_none.c).
 */
#ifndef IG_DEVICE_GPU_H
#define IG_DEVICE_GPU_H

#include "base/error.h"
#include "device/device.h"

typedef struct ig_cuda_info {
    char name[256];
    uint64_t memory_bytes, free_bytes;
    int major, minor; /* compute capability */
} ig_cuda_info;

bool ig_cuda_is_built(void);
/* GPUs that the driver knows; 0 without a driver. */
int ig_cuda_count(void);
/* False if there is no such GPU. */
bool ig_cuda_describe(int number, ig_cuda_info *out);
/* n_threads: of the host's side of a step. IG_E_UNSUPPORTED: this build has no GPUs. */
ig_status ig_device_open_cuda(ig_device **out, int number, int n_threads, ig_error *err);

/* ---- what one would take, also where there is none (gpu_plan.c) ---------------------------- */

enum {
    IG_GPU_PART = 1024,         /* rows that a block of threads takes, of a prompt's attention */
    IG_GPU_PARTS = 2048,        /* queries times parts that are under way at a time, or one part of all queries */
    IG_GPU_GATHERED = 32 << 20, /* bytes of keys and values that a prompt gathers at a time; two parts at least */
    IG_GPU_SHARED_ROWS = 8192,  /* of a matrix that is multiplied in shares of its width, times their number, at most */
    IG_GPU_SHARED_COLUMNS = 512, /* of two such matrices, whose shares there is room for */
    IG_GPU_MAIL = 8 << 20,       /* bytes, in both places, of what operations are called with between two waits, besides
                                    ig_device_need.mail_bytes; if there is no room left, they wait once more */
};

/* Scratch of a GPU's operations, in elements: columns of activations in bytes, decode steps' parts and prompts' running
 * sums in floats, as what parts of their rows or shares of products come to, gathered keys and values in halves, and
 * products with what adapters have, in floats. */
typedef struct ig_gpu_scratch {
    size_t act, parts, state, sums, rows, low_rank;
} ig_gpu_scratch;

ig_gpu_scratch ig_gpu_scratch_of(const ig_device_need *need);
/* Bytes of a column of n 8-bit activations, a multiple of 32: codes, then for each 16 of them their scale and sum. */
static inline size_t ig_gpu_act_bytes(int n) { return (size_t)n + (size_t)n / 16 * 2 * sizeof(float); }
/* Of a column of n activations in 16 bits: numbers up to a multiple of IG_GPU_HALVES, the rest of them 0, then a scale.
 */
enum { IG_GPU_HALVES = 32 };
static inline size_t ig_gpu_half_bytes(int n) {
    return ((size_t)n + IG_GPU_HALVES - 1) / IG_GPU_HALVES * IG_GPU_HALVES * 2 + 16;
}
/* Adds the bytes that opening the device and reserve() take. */
void ig_gpu_plan_scratch(uint64_t bytes[IG_PLACES], const ig_device_need *need);
/* A GPU that computes nothing and has no memory: what would lie there can be counted (ig_device_ops.is_plan). */
ig_status ig_device_open_plan(ig_device **out, ig_error *err);

#endif
