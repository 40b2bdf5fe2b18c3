/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies of tiny models, for tests that harm them. Include after golden/tiny_session.h.
 */
#ifndef TESTS_TINY_COPY_H
#define TESTS_TINY_COPY_H

#include "base/file.h"
#include "unit/temp_dir.h"

/* A folder with the configuration and the weights of a tiny model, which are also in memory. */
typedef struct tiny_copy {
    temp_dir dir;
    char weights[512]; /* path */
    uint8_t *bytes;    /* [n] of the weights; freed with the copy */
    size_t n;
} tiny_copy;

static inline void copy_tiny_file(tiny_copy *c, const char *name, const char *file) {
    char path[512], *text;
    ig_error err = {0};
    snprintf(path, sizeof path, "tests/golden/models/%s/%s", name, file);
    free(c->bytes);
    expect_ok(ig_file_read(&text, &c->n, path, 64 << 20, &err), &err);
    c->bytes = (uint8_t *)text;
    temp_dir_write(&c->dir, file, text, c->n);
}

static inline tiny_copy copy_tiny(const char *name) {
    tiny_copy c = {.dir = temp_dir_open()};
    copy_tiny_file(&c, name, "config.json");
    copy_tiny_file(&c, name, "model.safetensors");
    temp_dir_path(&c.dir, "model.safetensors", c.weights, sizeof c.weights);
    return c;
}

static inline void drop_tiny_copy(const tiny_copy *c) {
    temp_dir_close(&c->dir);
    free(c->bytes);
}

#endif
