/* SPDX-License-Identifier: Apache-2.0
 *
 * Views of text, and the one growable byte buffer. Zero it to start, ig_buffer_close() at the end. A failed
 * allocation sets `failed` and later appends do nothing: check once, at the end.
 */
#ifndef IG_BASE_BUFFER_H
#define IG_BASE_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"

typedef struct ig_text { /* a view: not NUL-terminated */
    const char *data;
    size_t size;
} ig_text;
/* As much of it as an error shows, for "%.*s". */
#define IG_SHOW(text) (int)((text).size < 64 ? (text).size : 64), (text).data

typedef struct ig_buffer {
    char *data; /* NUL-terminated unless empty; NULL while empty */
    size_t size, cap;
    bool failed;
} ig_buffer;

void ig_buffer_add(ig_buffer *b, const void *bytes, size_t n);
void ig_buffer_text(ig_buffer *b, const char *text);
void ig_buffer_format(ig_buffer *b, const char *format, ...) IG_PRINTF(2, 3);
void ig_buffer_close(ig_buffer *b);

#endif
