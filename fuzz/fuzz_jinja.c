/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: chat templates. An input is a template, a NUL and JSON variables; without a NUL there are none.
 */
#include <stdlib.h>
#include <string.h>

#include "jinja/jinja.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void render(const ig_jinja *t, const json_t *variables) {
    ig_buffer out = {0}, again = {0};
    ig_error err = {0};
    ig_status s = ig_jinja_render(&out, t, variables, 0, &err);
    if (s && (err.status != s || out.size)) abort();
    if (ig_jinja_render(&again, t, variables, 0, &err) != s || again.size != out.size) abort();
    if (out.size && memcmp(out.data, again.data, out.size) != 0) abort();
    ig_buffer_close(&out);
    ig_buffer_close(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    const uint8_t *end = n_bytes ? memchr(data, 0, n_bytes) : NULL;
    size_t n = end ? (size_t)(end - data) : n_bytes;
    ig_jinja *t = NULL;
    ig_error err = {0};
    char *copy = calloc(1, n ? n : 1); /* of exactly this size */
    if (!copy) return 0;
    if (n) memcpy(copy, data, n);
    ig_status s = ig_jinja_parse(&t, copy, n, &err);
    free(copy);
    if (s) {
        if (err.status != s || !err.text[0]) abort();
        return 0;
    }
    json_t *variables = end ? json_loadb((const char *)end + 1, n_bytes - n - 1, 0, NULL) : NULL;
    if (!json_is_object(variables)) {
        json_decref(variables);
        variables = json_object();
    }
    if (variables) render(t, variables);
    json_decref(variables);
    ig_jinja_close(t);
    return 0;
}
