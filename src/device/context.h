/* SPDX-License-Identifier: Apache-2.0
 *
 * ig_context: the device and the log sink that models and sessions share.
 */
#ifndef IG_DEVICE_CONTEXT_H
#define IG_DEVICE_CONTEXT_H

#include "base/compiler.h"
#include "device/device.h"

struct ig_context {
    ig_device *device;
    char device_name[16]; /* "cpu", "cuda:0" */
    ig_cpu_level level;
    int n_threads;
    ig_log_fn log;
    void *log_user;
};

/* What results depend on, bit by bit, of device and CPU: "cuda", "avx2". */
const char *ig_context_arithmetic(const ig_context *ctx);
void ig_log(const ig_context *ctx, ig_log_level level, const char *format, ...) IG_PRINTF(3, 4);

#endif
