/* SPDX-License-Identifier: Apache-2.0
 *
 * Configurations read from the tiny GGUF model; include it behind cmocka.h.
 */
#ifndef TESTS_TINY_CONFIG_H
#define TESTS_TINY_CONFIG_H

#include <stdio.h>

#include "model/config.h"
#include "unit/tiny_gguf.h"

static inline ig_status read_tiny(ig_config *out, const tiny *t, ig_error *err) {
    size_t n;
    ig_gguf *g;
    uint8_t *bytes = tiny_write(t, &n);
    if (ig_gguf_open_memory(&g, bytes, n, "tiny.gguf", err)) fail_msg("%s", err->text);
    ig_status status = ig_config_from_gguf(out, g, err);
    ig_gguf_close(g);
    free(bytes);
    return status;
}

static inline ig_config from_tiny(const tiny *t) {
    ig_config c;
    ig_error err = {0};
    if (read_tiny(&c, t, &err)) fail_msg("%s", err.text);
    return c;
}

static inline void refuses_tiny(const tiny *t, const char *why) {
    ig_config c;
    ig_error err = {0};
    assert_true(read_tiny(&c, t, &err) != IG_OK);
    if (!strstr(err.text, why)) fail_msg("%s", err.text);
}

/* The tiny model under another architecture's name. */
static inline tiny tiny_as(const char *architecture) {
    tiny t = tiny_valid();
    tiny_string(&t, "general.architecture", architecture);
    for (int i = 0; i < t.n_values; i++) {
        char *key = t.values[i].key;
        char rest[sizeof t.values[i].key];
        if (strncmp(key, "llama.", 6) != 0) continue;
        strcpy(rest, key + 5);
        assert_true(snprintf(key, sizeof rest, "%s%s", architecture, rest) < (int)sizeof rest);
    }
    return t;
}

#endif
