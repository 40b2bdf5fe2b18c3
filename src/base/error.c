/* SPDX-License-Identifier: Apache-2.0
 *
 * Status texts and the one place where an ig_error is written.
 */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>

const char *ig_status_text(ig_status status) {
    switch (status) {
#define STATUS_CASE(name, value, text) \
    case IG_##name:                    \
        return text;
        IG_STATUS_LIST(STATUS_CASE)
#undef STATUS_CASE
    }
    return "unknown status";
}

void ig_make_harmless(char *text) {
    for (unsigned char *p = (unsigned char *)text; *p; p++) {
        if (*p < 0x20 || *p == 0x7f) *p = '?';
        if (p[0] == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f) p[0] = p[1] = '?';
    }
}

ig_status ig_fail_fill(ig_error *err, ig_status status, const char *format, ...) {
    if (!err) return status;
    err->status = status;
    va_list args;
    va_start(args, format);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    ig_make_harmless(err->text); /* names come from untrusted files: no newline or terminal escape may pass */
    return status;
}

ig_status ig_fail_memory(ig_error *err, const char *what, size_t n_bytes) {
    return ig_fail(err, IG_E_MEMORY, "out of memory: %s needs %zu bytes", what, n_bytes);
}

const char *ig_bytes_text(char out[64], uint64_t n_bytes) {
    static const char units[] = "KMGT";
    uint64_t unit = 1024;
    int u = 0;
    for (; u < 3 && n_bytes / unit >= 1024; u++) unit *= 1024;
    uint64_t tenths = n_bytes / unit * 10 + (n_bytes % unit * 10 + unit - 1) / unit;
    snprintf(out, 64, "%llu bytes (%llu.%llu%c)", (unsigned long long)n_bytes, (unsigned long long)(tenths / 10),
             (unsigned long long)(tenths % 10), units[u]);
    return out;
}

const char *ig_version(void) { return IG_VERSION; }
