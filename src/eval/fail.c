/* SPDX-License-Identifier: Apache-2.0
 *
 * Errors of the measurements' own.
 */
#include "eval/fail.h"

#include <stdarg.h>
#include <stdio.h>

void ig_eval_make_harmless(char *text) {
    for (unsigned char *p = (unsigned char *)text; *p; p++) {
        if (*p < 0x20 || *p == 0x7f) *p = '?';
        if (p[0] == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f) p[0] = p[1] = '?';
    }
}

ig_status ig_eval_fail(ig_error *err, ig_status status, const char *format, ...) {
    va_list args;
    if (!err) return status;
    err->status = status;
    va_start(args, format);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    ig_eval_make_harmless(err->text);
    return status;
}
