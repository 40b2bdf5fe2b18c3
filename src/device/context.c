/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening a context.
 */
#include "device/context.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cpu.h"
#include "base/error.h"
#include "base/ranges.h"

ig_context_options ig_context_defaults(void) { return (ig_context_options){.cpu_level = IG_CPU_BEST}; }

ig_status ig_context_open(ig_context **out, const ig_context_options *options, ig_error *err) {
    if (!out) return ig_fail(err, IG_E_ARG, "ig_context_open: no place for the result");
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
    s = ig_device_open_cpu(&ctx->device, ctx->level, ctx->n_threads, err);
    if (s) {
        free(ctx);
        return s;
    }
    if (o.cpu_level != IG_CPU_BEST && o.cpu_level != ctx->level)
        ig_log(ctx, IG_LOG_WARN, "this CPU has no %s: using %s", ig_cpu_level_name(o.cpu_level),
               ig_cpu_level_name(ctx->level));
    ig_log(ctx, IG_LOG_INFO, "cpu: %s kernels, %d threads", ig_cpu_level_name(ctx->level), ctx->n_threads);
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

void ig_log(const ig_context *ctx, ig_log_level level, const char *format, ...) {
    if (!ctx->log) return;
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    ctx->log(ctx->log_user, level, text);
}
