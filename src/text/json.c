/* SPDX-License-Identifier: Apache-2.0
 *
 * jansson 2.14 goes on where it finds no memory for more of a string: what it reads then is written past the end of
 * what it has, or lacks letters, and what it writes lacks keys. So after one failure it finds none at all, until it
 * gives up. The library has the same behind its wall (format/json.c).
 */
#define _GNU_SOURCE
#include "text/json.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local bool is_at_work, has_no_memory, has_lost;

static json_malloc_t next;
static json_free_t give_back;

static void *find_memory(size_t n) {
    void *found = has_no_memory ? NULL : next(n);
    has_no_memory = is_at_work && !found;
    has_lost |= !is_at_work && !found;
    return found;
}

static void install(void) {
    json_get_alloc_funcs(&next, &give_back);
    json_set_alloc_funcs(find_memory, give_back);
}

void ig_json_begin(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install);
}

bool ig_json_take_loss(void) {
    bool was_lost = has_lost;
    has_lost = false;
    return was_lost;
}

static void begin_work(void) {
    ig_json_begin();
    is_at_work = true;
}

/* Whether there was memory for all since the work began. */
static bool end_work(void) {
    bool had_all = !has_no_memory;
    is_at_work = has_no_memory = false;
    return had_all;
}

static json_t *load(const char *text, size_t n, size_t flags, json_error_t *error, bool *failed) {
    begin_work();
    json_t *v = json_loadb(text, n, flags, error);
    *failed = !end_work();
    if (!*failed) return v;
    json_decref(v);
    return NULL;
}

/* Bytes of the integer that text begins with, if its digits are as many as may not fit 64 bits; else 0. */
static size_t large_integer(const char *text, const char *end) {
    enum { DIGITS = 19 };
    const char *first = text + (*text == '-'), *at = first;
    while (at < end && *at >= '0' && *at <= '9') at++;
    bool goes_on = at < end && (*at == '.' || *at == 'e' || *at == 'E');
    return at - first < DIGITS || goes_on ? 0 : (size_t)(at - text);
}

/* The same text, to be freed, with ".0" behind such integers. NULL: no memory. */
static char *make_reals(const char *text, size_t n, size_t *n_out) {
    const char *end = text + n;
    char *out = malloc(n + n / 8 + 3), *to = out; /* of 19 bytes and one between become two more */
    bool in_string = false, is_number = false;
    for (const char *at = text; out && at < end;) {
        bool digit = *at >= '0' && *at <= '9';
        size_t size = !in_string && !is_number && (digit || *at == '-') ? large_integer(at, end) : 0,
               n_copied = size ? size : 1;
        if (in_string && *at == '\\' && at + 1 < end) n_copied = 2;
        if (*at == '"') in_string = !in_string;
        is_number = !in_string && (digit || (*at && strchr("+-.eE", *at)));
        memcpy(to, at, n_copied);
        at += n_copied, to += n_copied;
        if (size) *to++ = '.', *to++ = '0';
    }
    *n_out = (size_t)(to - out);
    return out;
}

json_t *ig_json_of_text(const char *text, size_t n, size_t flags, json_error_t *error, bool *failed) {
    const char *nul = memchr(text, '\0', n); /* which jansson 2.14 passes over behind a number */
    json_error_t why;
    *failed = false;
    if (nul && error) *error = (json_error_t){.position = (int)(nul - text), .text = "it has a NUL"};
    if (nul) return NULL;
    json_t *v = load(text, n, flags, &why, failed);
    if (!v && !*failed && json_error_code(&why) == json_error_numeric_overflow) {
        size_t n_loose;
        char *loose = make_reals(text, n, &n_loose);
        *failed = !loose;
        if (loose) v = load(loose, n_loose, flags, &why, failed);
        free(loose);
    }
    if (error) *error = why;
    return v;
}

char *ig_text_of_json(const json_t *value, size_t flags) {
    if (!value) return NULL;
    begin_work();
    char *text = json_dumps(value, flags), *own = end_work() && text ? strdup(text) : NULL;
    if (text) give_back(text);
    return own;
}
