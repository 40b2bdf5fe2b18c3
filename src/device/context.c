/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening a context, the devices that there are, and how fast they read.
 */
#include "device/context.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/ranges.h"
#include "device/gpu.h"
#include "device/space.h"
#include "format/json.h"

ig_context_options ig_context_defaults(void) { return (ig_context_options){.cpu_level = IG_CPU_BEST}; }

/* ---- devices -------------------------------------------------------------------- */

bool ig_has_cuda(void) { return ig_cuda_is_built(); }

bool ig_device_at(size_t i, ig_device_info *info) {
    if (!info) return false;
    *info = (ig_device_info){.device = "cpu"};
    if (i == 0) {
        snprintf(info->name, sizeof info->name, "%s", ig_cpu_level_name(ig_cpu_usable(IG_CPU_BEST)));
        info->memory_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
        info->free_bytes = ig_memory_available();
        return true;
    }
    ig_cuda_info gpu;
    if (i > (size_t)ig_cuda_count() || !ig_cuda_describe((int)i - 1, &gpu)) return false;
    snprintf(info->device, sizeof info->device, "cuda:%u", (unsigned)(i - 1) % 1000);
    snprintf(info->name, sizeof info->name, "%s", gpu.name);
    info->memory_bytes = gpu.memory_bytes;
    info->free_bytes = gpu.free_bytes;
    return true;
}

/* The number of the GPU that a name means, -1 for the CPU. */
static ig_status parse_device(int *number, const char *name, ig_error *err) {
    *number = -1;
    if (!name || strcmp(name, "cpu") == 0) return IG_OK;
    if (strcmp(name, "auto") == 0) {
        if (ig_cuda_count() > 0) *number = 0;
        return IG_OK;
    }
    const char *digits = strncmp(name, "cuda", 4) == 0 ? name + 4 : NULL;
    if (digits && !*digits) digits = ":0";
    if (!digits || digits[0] != ':' || !digits[1] || strlen(digits) > 4 ||
        strspn(digits + 1, "0123456789") + 1 != strlen(digits))
        return ig_fail(err, IG_E_ARG, "device '%.40s' is not one of cpu, cuda, cuda:NUMBER, auto", name);
    *number = atoi(digits + 1);
    return IG_OK;
}

static ig_status open_device(ig_context *ctx, const ig_context_options *o, ig_error *err) {
    int number;
    ig_status s = parse_device(&number, o->device, err);
    if (s) return s;
    if (number < 0) {
        strcpy(ctx->device_name, "cpu");
        return ig_device_open_cpu(&ctx->device, ctx->level, ctx->n_threads, err);
    }
    snprintf(ctx->device_name, sizeof ctx->device_name, "cuda:%d", number);
    if (o->plan_only) return ig_device_open_plan(&ctx->device, err);
    return ig_device_open_cuda(&ctx->device, number, ctx->n_threads, err);
}

/* ---- what a device can ------------------------------------------------------------------ */

enum { READ_BYTES = 256 << 20, READ_PASSES = 5 };

/* Of x [READ_BYTES], the device's. An operation that does next to nothing with what it reads. */
static ig_status time_reads(double *best, ig_device *d, float *peak, const float *x, ig_error *err) {
    ig_status s = d->ops->finish(d, err);
    for (int i = 0; !s && i < READ_PASSES; i++) {
        double start = ig_clock_seconds();
        d->ops->peak(d, peak, &(ig_floats){x, READ_BYTES / sizeof *x}, 1);
        s = d->ops->finish(d, err);
        double seconds = ig_clock_seconds() - start;
        if (i == 0 || seconds < *best) *best = seconds;
    }
    return s;
}

ig_status ig_context_read_speed(double *bytes_per_second, ig_context *ctx, ig_error *err) {
    if (!bytes_per_second || !ctx) return ig_fail(err, IG_E_ARG, "ig_context_read_speed: an argument is missing");
    double seconds = 0;
    ig_device *d = ctx->device;
    if (d->ops->is_plan) return ig_fail(err, IG_E_UNSUPPORTED, "a context that only plans reads nothing");
    float *x = ig_device_alloc(d, IG_PLACE_DEVICE, READ_BYTES);
    float *peak = ig_device_alloc(d, IG_PLACE_HOST, sizeof *peak);
    ig_status s = IG_E_MEMORY;
    if (x && peak) {
        d->ops->clear(d, x, READ_BYTES); /* memory that was never written may not be there */
        s = time_reads(&seconds, d, peak, x, err);
    } else {
        ig_fail_memory(err, "array to read", READ_BYTES);
    }
    ig_device_free(d, IG_PLACE_DEVICE, x, READ_BYTES);
    ig_device_free(d, IG_PLACE_HOST, peak, sizeof *peak);
    if (!s) *bytes_per_second = READ_BYTES / seconds;
    return s;
}

/* ---- contexts ----------------------------------------------------------------------- */

ig_status ig_context_open(ig_context **out, const ig_context_options *options, ig_error *err) {
    if (!out) return ig_fail(err, IG_E_ARG, "ig_context_open: no place for the result");
    ig_json_begin_use();
    *out = NULL;
    ig_context_options o = options ? *options : ig_context_defaults();
    ig_status s = ig_check_context_options(&o, err);
    if (s) return s;
    ig_context *ctx = calloc(1, sizeof *ctx);
    if (!ctx) return ig_fail_memory(err, "context", sizeof *ctx);
    ctx->level = ig_cpu_usable(o.cpu_level);
    ctx->n_threads = o.n_threads ? o.n_threads : ig_cpu_count();
    ctx->log = o.log;
    ctx->log_user = o.log_user;
    s = open_device(ctx, &o, err);
    if (s) {
        free(ctx);
        return s;
    }
    if (o.cpu_level != IG_CPU_BEST && o.cpu_level != ctx->level)
        ig_log(ctx, IG_LOG_WARN, "this CPU has no %s: using %s", ig_cpu_level_name(o.cpu_level),
               ig_cpu_level_name(ctx->level));
    ig_log(ctx, IG_LOG_INFO, "device %s; cpu: %s kernels, %d threads", ctx->device_name, ig_cpu_level_name(ctx->level),
           ctx->n_threads);
    *out = ctx;
    return IG_OK;
}

void ig_context_close(ig_context *ctx) {
    if (!ctx) return;
    ig_device_close(ctx->device);
    free(ctx);
}

int ig_context_threads(const ig_context *ctx) { return ctx ? ctx->n_threads : 0; }

const char *ig_context_cpu(const ig_context *ctx) { return ctx ? ig_cpu_level_name(ctx->level) : ""; }

const char *ig_context_device(const ig_context *ctx) { return ctx ? ctx->device_name : ""; }

const char *ig_context_arithmetic(const ig_context *ctx) {
    return ctx->device->ops->is_host ? ig_cpu_level_name(ctx->level) : ctx->device->ops->name;
}

void ig_log(const ig_context *ctx, ig_log_level level, const char *format, ...) {
    if (!ctx->log) return;
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    ctx->log(ctx->log_user, level, text);
}
