/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON texts. jansson 2.14 goes on where it finds no memory for more of a string: what it reads then is written past
 * the end of what it has, or lacks letters, and what it writes lacks keys. So after one failure it finds none at all,
 * until it gives up. Its source of memory is one for the whole process: what was there before, of the program's, stays
 * behind ours.
 */
#define _GNU_SOURCE
#include "format/json.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"

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

void ig_json_begin_use(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install);
}

static void begin_work(void) {
    ig_json_begin_use();
    is_at_work = true;
}

/* Whether there was memory for all since the work began. */
static bool end_work(void) {
    bool had_all = !has_no_memory;
    is_at_work = has_no_memory = false;
    return had_all;
}

static json_t *load(const char *text, size_t n_bytes, size_t flags, json_error_t *at, bool *failed) {
    begin_work();
    json_t *v = json_loadb(text, n_bytes, flags, at);
    *failed = !end_work();
    if (!*failed) return v;
    json_decref(v);
    return NULL;
}

/* Integers of more than 64 bits, as the 10^30 that says "no limit" in many a tokenizer_config.json and bounds in
 * schemas, become real numbers in place: 12345 is 12e03. */
static void shorten_integers(char *text, size_t n_bytes) {
    bool in_string = false;
    for (size_t i = 0, n; i < n_bytes; i += n) {
        n = 1;
        if (text[i] == '"') in_string = !in_string;
        if (in_string && text[i] == '\\') n = 2;
        size_t n_digits = in_string ? 0 : strspn(text + i, "0123456789");
        if (!n_digits) continue;
        n = strspn(text + i, "+-.0123456789Ee"); /* of the whole number */
        if (n == n_digits && n >= 19) memcpy(text + i + n - 3, "e03", 3);
    }
}

static ig_status parse(json_t **out, const char *text, size_t n_bytes, size_t flags, const char *path, ig_error *err) {
    json_error_t at;
    bool failed;
    *out = load(text, n_bytes, JSON_REJECT_DUPLICATES | flags, &at, &failed);
    if (!*out && !failed && json_error_code(&at) == json_error_numeric_overflow) {
        char *shorter = malloc(n_bytes + 1);
        if (!shorter) return ig_fail_memory(err, path, n_bytes);
        memcpy(shorter, text, n_bytes);
        shorter[n_bytes] = 0;
        shorten_integers(shorter, n_bytes);
        *out = load(shorter, n_bytes, JSON_REJECT_DUPLICATES | flags, &at, &failed);
        free(shorter);
    }
    if (failed) return ig_fail_memory(err, path, n_bytes);
    if (*out) return IG_OK;
    return ig_fail(err, IG_E_FORMAT, "%s: line %d column %d: %s", path, at.line, at.column, at.text);
}

ig_status ig_json_parse(json_t **out, const char *text, size_t n_bytes, const char *path, ig_error *err) {
    return parse(out, text, n_bytes, 0, path, err);
}

ig_status ig_json_parse_any(json_t **out, const char *text, size_t n_bytes, const char *path, ig_error *err) {
    return parse(out, text, n_bytes, JSON_DECODE_ANY, path, err);
}

ig_status ig_json_load(json_t **out, size_t *n_bytes, const char *path, ig_error *err) {
    char *text;
    *out = NULL;
    ig_status s = ig_file_read(&text, n_bytes, path, (size_t)256 << 20, err);
    if (s) return s;
    s = ig_json_parse(out, text, *n_bytes, path, err);
    free(text);
    if (s) return s;
    if (json_is_object(*out)) return IG_OK;
    json_decref(*out);
    *out = NULL;
    return ig_fail(err, IG_E_FORMAT, "%s: is not a JSON object", path);
}

json_t *ig_json_value(const char *text, size_t n_bytes) {
    bool failed;
    return load(text, n_bytes, JSON_DECODE_ANY, NULL, &failed);
}

char *ig_json_write(const json_t *value, size_t flags) {
    if (!value) return NULL;
    begin_work();
    char *text = json_dumps(value, flags), *own = end_work() && text ? strdup(text) : NULL;
    if (text) give_back(text); /* it may be of the program's own memory */
    return own;
}
