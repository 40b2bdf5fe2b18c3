/* SPDX-License-Identifier: Apache-2.0
 *
 * What tests of sessions on a tiny model share: opening it, sessions of it, steps that must succeed, logits that must
 * be the same to the bit. Include after cmocka.h.
 */
#ifndef TESTS_TINY_SESSION_H
#define TESTS_TINY_SESSION_H

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cpu_level.h"
#include "infinigen.h"

#define TINY_LLAMA "tests/golden/models/llama31"
#define TINY_MISTRAL "tests/golden/models/mistral"
enum { N_VOCAB = 512 };

static ig_context *ctx;
static ig_model *model;

static inline void expect_ok(ig_status status, const ig_error *err) {
    if (status) fail_msg("%s", err->text);
}

/* The model of the tests that follow. */
static inline void open_tiny(const char *path, int n_threads) {
    ig_error err = {0};
    ig_context_options o = ig_context_defaults();
    o.n_threads = n_threads;
    o.cpu_level = test_cpu_level();
    o.device = test_device();
    expect_ok(ig_context_open(&ctx, &o, &err), &err);
    expect_ok(ig_model_open(&model, ctx, path, NULL, &err), &err);
}

static inline int open_tiny_llama(void **state) {
    (void)state;
    open_tiny(TINY_LLAMA, 2);
    return 0;
}

static inline int open_tiny_mistral(void **state) {
    (void)state;
    open_tiny(TINY_MISTRAL, 2);
    return 0;
}

static inline int close_tiny(void **state) {
    (void)state;
    ig_model_close(model);
    ig_context_close(ctx);
    model = NULL;
    ctx = NULL;
    return 0;
}

/* The same for tests of the tiny llama that need a folder for their disk tiers, in which nothing may be left. */
static char folder[] = "/tmp/infinigen-test-XXXXXX";

static inline int open_tiny_and_folder(void **state) {
    (void)state;
    open_tiny(TINY_LLAMA, 2);
    return mkdtemp(folder) ? 0 : -1;
}

static inline int close_tiny_and_folder(void **state) {
    close_tiny(state);
    int failed = rmdir(folder);
    memset(folder + sizeof folder - 7, 'X', 6); /* for the next test */
    return failed;
}

static inline ig_session *open_session(const ig_session_options *o) {
    ig_session *s;
    ig_error err = {0};
    expect_ok(ig_session_open(&s, model, o, &err), &err);
    return s;
}

/* What an error says would be enough. */
static inline uint64_t least_in(const ig_error *err) {
    const char *number = strstr(err->text, "at least ");
    if (!number) fail_msg("%s", err->text);
    return strtoull(number + strlen("at least "), NULL, 10);
}

/* The smallest --kv-ram that the library takes: it says so itself. */
static inline uint64_t least_ram(ig_session_options o) {
    ig_session *s;
    ig_error err = {0};
    o.cache.memory.ram_bytes = 1;
    assert_int_equal(ig_session_open(&s, model, &o, &err), IG_E_LIMIT);
    return least_in(&err);
}

/* A model with limits of its weights: of the host's memory for them, and of a GPU's; 0: none. */
static inline ig_status open_limited(ig_model **out, const char *path, uint64_t ram, uint64_t vram, ig_error *err) {
    ig_model_options o = ig_model_defaults();
    o.weights_ram = ram;
    o.weights_vram = vram;
    return ig_model_open(out, ctx, path, &o, err);
}

static inline ig_weight_stats weight_stats(const ig_model *m) {
    ig_weight_stats st;
    ig_model_get_weight_stats(m, &st);
    return st;
}

static inline void put(ig_session *s, const int32_t *ids, int n) {
    ig_error err = {0};
    expect_ok(ig_session_sync(s, ids, n, &err), &err);
}

static inline void step(ig_session *s, int32_t id) {
    ig_error err = {0};
    expect_ok(ig_session_decode(&s, &id, 1, &err), &err);
}

static inline void same(const ig_session *a, const ig_session *b) {
    assert_memory_equal(ig_session_logits(a), ig_session_logits(b), N_VOCAB * sizeof(float));
}

static inline ig_session_stats stats(const ig_session *s) {
    ig_session_stats st;
    ig_session_get_stats(s, &st);
    return st;
}

#endif
