/* SPDX-License-Identifier: Apache-2.0
 *
 * Errors of the measurements' own.
 */
#include "eval/fail.h"

#include <stdarg.h>
#include <stdio.h>

ig_status ig_eval_fail(ig_error *err, ig_status status, const char *format, ...) {
    va_list args;
    if (!err) return status;
    err->status = status;
    va_start(args, format);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    return status;
}
