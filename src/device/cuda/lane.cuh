/* SPDX-License-Identifier: Apache-2.0
 *
 * Lanes (ig_lane of device/device.h): a stream for copies beside that of the operations, and events between the two.
 * Calls take turns.
 */
#ifndef IG_DEVICE_CUDA_LANE_H
#define IG_DEVICE_CUDA_LANE_H

extern "C" {
#include "device/device.h"
}

#include "device/cuda/cuda.cuh"

/* `work`: the operations' stream. After a failure *out is NULL. */
cudaError_t ig_cuda_lane_open(ig_lane **out, cudaStream_t work, int n_marks);
/* Waits for what was sent; NULL: nothing. */
void ig_cuda_lane_close(ig_lane *l);
cudaError_t ig_cuda_lane_send(ig_lane *l, int mark, void *to, const void *from, size_t n_bytes);
cudaError_t ig_cuda_lane_follow(ig_lane *l);
cudaError_t ig_cuda_lane_await(ig_lane *l, int mark);
double ig_cuda_lane_waited(ig_lane *l);

#endif
