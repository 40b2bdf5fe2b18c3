/* SPDX-License-Identifier: Apache-2.0
 *
 * The growable byte buffer.
 */
#include "base/buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Room for n more bytes and a NUL. */
static bool grow(ig_buffer *b, size_t n) {
    if (b->failed) return false;
    if (n < b->cap - b->size) return true;
    size_t cap = b->cap ? b->cap : 64;
    while (cap - b->size <= n) {
        if (cap > (size_t)-1 / 4) goto failed;
        cap *= 2;
    }
    char *data = realloc(b->data, cap);
    if (!data) goto failed;
    b->data = data;
    b->cap = cap;
    return true;
failed:
    b->failed = true;
    return false;
}

void ig_buffer_add(ig_buffer *b, const void *bytes, size_t n) {
    if (!grow(b, n)) return;
    if (n) memcpy(b->data + b->size, bytes, n);
    b->size += n;
    b->data[b->size] = 0;
}

void ig_buffer_text(ig_buffer *b, const char *text) { ig_buffer_add(b, text, strlen(text)); }

void ig_buffer_format(ig_buffer *b, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0 || !grow(b, (size_t)n)) return;
    va_start(args, format);
    vsnprintf(b->data + b->size, (size_t)n + 1, format, args);
    va_end(args);
    b->size += (size_t)n;
}

void ig_buffer_close(ig_buffer *b) {
    free(b->data);
    *b = (ig_buffer){0};
}
