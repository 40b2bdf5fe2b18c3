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
    uint64_t memory_bytes;
    int major, minor; /* compute capability */
} ig_cuda_info;

bool ig_cuda_is_built(void);
/* GPUs that the driver knows; 0 without a driver. */
int ig_cuda_count(void);
/* False if there is no such GPU. */
bool ig_cuda_describe(int number, ig_cuda_info *out);
/* n_threads: of the host's side of a step. IG_E_UNSUPPORTED: this build has no GPUs. */
ig_status ig_device_open_cuda(ig_device **out, int number, int n_threads, ig_error *err);

#endif
