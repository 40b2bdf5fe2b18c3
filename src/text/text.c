/* SPDX-License-Identifier: Apache-2.0
 *
 * Characters, and what they may not be: control characters on a terminal, stray bytes in JSON.
 */
#include "text/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool continues(char c) { return ((unsigned char)c & 0xc0) == 0x80; }

size_t ig_text_character(const char *text, size_t n) {
    static const struct {
        unsigned char first, last, low, high; /* lead bytes; what may follow them */
        size_t n;
    } forms[] = {{0x00, 0x7f, 0, 0, 1},       {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
                 {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
                 {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4}};
    const unsigned char *c = (const unsigned char *)text;
    for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
        if (c[0] < forms[f].first || c[0] > forms[f].last) continue;
        if (forms[f].n > n || (forms[f].n > 1 && (c[1] < forms[f].low || c[1] > forms[f].high))) return 0;
        for (size_t i = 2; i < forms[f].n; i++)
            if (!continues(text[i])) return 0;
        return forms[f].n;
    }
    return 0;
}

size_t ig_text_unfinished(const char *text, size_t n) {
    size_t n_last = 0;
    while (n_last < n && n_last < 4 && continues(text[n - 1 - n_last])) n_last++;
    if (n_last == n || n_last == 4) return 0;
    unsigned first = (unsigned char)text[n - 1 - n_last];
    size_t wanted = first < 0xc2 || first > 0xf4 ? 0 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
    return n_last < wanted ? n_last + 1 : 0;
}

size_t ig_text_count(const char *text, size_t n) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += !continues(text[i]);
    return count;
}

bool ig_text_is_c1(const char *text, size_t n) {
    return n > 1 && (unsigned char)text[0] == 0xc2 && (unsigned char)text[1] >= 0x80 && (unsigned char)text[1] < 0xa0;
}

void ig_text_make_harmless(char *text) {
    for (; *text; text++) {
        if ((unsigned char)*text < 0x20 || *text == 0x7f) *text = '?';
        if (ig_text_is_c1(text, 2)) text[0] = text[1] = '?';
    }
}

json_t *ig_text_stringn(const char *text, size_t n) {
    json_t *whole = json_stringn(text, n);
    if (whole) return whole;
    char *copy = malloc(3 * n + 1);
    if (!copy) return NULL;
    size_t out = 0;
    for (size_t i = 0; i < n;) {
        size_t k = ig_text_character(text + i, n - i);
        memcpy(copy + out, k ? text + i : "\xef\xbf\xbd", k ? k : 3);
        out += k ? k : 3;
        i += k ? k : 1;
    }
    whole = json_stringn(copy, out);
    free(copy);
    return whole;
}

json_t *ig_text_string(const char *text) { return ig_text_stringn(text, strlen(text)); }

ig_status ig_text_fail(ig_error *err, ig_status status, const char *format, ...) {
    va_list args;
    if (!err) return status;
    err->status = status;
    va_start(args, format);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    ig_text_make_harmless(err->text);
    return status;
}
