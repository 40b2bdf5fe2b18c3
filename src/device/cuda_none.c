/* SPDX-License-Identifier: Apache-2.0
 *
 * A build without CUDA.
 */
#include "device/gpu.h"

bool ig_cuda_is_built(void) { return false; }

int ig_cuda_count(void) { return 0; }

bool ig_cuda_describe(int number, ig_cuda_info *out) {
    (void)number, (void)out;
    return false;
}

ig_status ig_device_open_cuda(ig_device **out, int number, int n_threads, ig_error *err) {
    (void)n_threads;
    *out = NULL;
    return ig_fail(err, IG_E_UNSUPPORTED, "cuda:%d: this program was built without CUDA (INFINIGEN_CUDA)", number);
}
