/* SPDX-License-Identifier: Apache-2.0
 *
 * jansson 2.14 goes on where it finds no memory for more of a string: what it reads then is written past the end of
 * what it has, or lacks letters, and what it writes lacks keys. So after one failure it finds none at all, until it
 * gives up. The library has the same behind its wall (format/json.c).
 */
#define _GNU_SOURCE
#include "text/json.h"

#include <pthread.h>
#include <string.h>

static _Thread_local bool is_at_work, has_no_memory;

static json_malloc_t next;
static json_free_t give_back;

static void *find_memory(size_t n) {
    void *found = has_no_memory ? NULL : next(n);
    has_no_memory = is_at_work && !found;
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

json_t *ig_json_of_text(const char *text, size_t n, size_t flags, json_error_t *error, bool *failed) {
    const char *nul = memchr(text, '\0', n); /* which jansson 2.14 passes over behind a number */
    *failed = false;
    if (nul && error) *error = (json_error_t){.position = (int)(nul - text), .text = "it has a NUL"};
    if (nul) return NULL;
    begin_work();
    json_t *v = json_loadb(text, n, flags, error);
    *failed = !end_work();
    if (!*failed) return v;
    json_decref(v);
    return NULL;
}

char *ig_text_of_json(const json_t *value, size_t flags) {
    if (!value) return NULL;
    begin_work();
    char *text = json_dumps(value, flags), *own = end_work() && text ? strdup(text) : NULL;
    if (text) give_back(text);
    return own;
}
