/* SPDX-License-Identifier: Apache-2.0
 *
 * What tests of a store of prefixes share: a folder for it, sessions with the store and without, and their comparison.
 * Include after cmocka.h.
 */
#ifndef TESTS_STORED_SESSION_H
#define TESTS_STORED_SESSION_H

#include <dirent.h>
#include <stdio.h>

#include "golden/variant.h"

static char store[sizeof folder + 16];
static int n_warnings;

static inline void on_log(void *user, ig_log_level level, const char *text) {
    (void)user;
    if (level > IG_LOG_WARN) return;
    n_warnings++;
    assert_null(strchr(text, '\n'));
}

static inline void open_model(const char *path, int n_threads) {
    ig_error err = {0};
    ig_context_options o = ig_context_defaults();
    o.n_threads = n_threads;
    o.cpu_level = test_cpu_level();
    o.log = on_log;
    expect_ok(ig_context_open(&ctx, &o, &err), &err);
    expect_ok(ig_model_open(&model, ctx, path, NULL, &err), &err);
}

static inline int open_all(void **state) {
    (void)state;
    open_model(TINY_LLAMA, 2);
    if (!mkdtemp(folder)) return -1;
    snprintf(store, sizeof store, "%s/store", folder);
    return 0;
}

/* Calls fn for every file of the store. */
static inline void each_file(void (*fn)(const char *path, const char *name)) {
    DIR *d = opendir(store);
    if (!d) return;
    for (struct dirent *e; (e = readdir(d));) {
        char path[sizeof store + 300];
        snprintf(path, sizeof path, "%s/%s", store, e->d_name);
        if (e->d_name[0] != '.') fn(path, e->d_name);
    }
    closedir(d);
}

static inline void remove_file(const char *path, const char *name) {
    (void)name;
    unlink(path);
}

static inline int empty_store(void **state) {
    (void)state;
    each_file(remove_file);
    rmdir(store);
    n_warnings = 0;
    return 0;
}

static inline ig_session *open_stored(const variant *v) {
    ig_session_options o = options_of(v);
    o.cache.memory.store_path = store;
    if (v->on_disk) {
        o.cache.memory.disk_bytes = 64 << 20;
        o.cache.memory.disk_path = folder;
        o.cache.memory.ram_bytes = least_ram(o);
    }
    return open_session(&o);
}

static inline ig_session *open_alone(const variant *v) {
    ig_session_options o = options_of(v);
    return open_session(&o);
}

static inline void fill(int32_t *ids, int seed, int n) {
    for (int i = 0; i < n; i++)
        ids[i] = (int32_t)(((unsigned)seed * 977u + (unsigned)i * 7919u + (unsigned)(i * i) * 31u) % N_VOCAB);
}

/* The prompt and some steps, in a session with the store and in one without; tokens that were not computed. */
static inline uint64_t compare(const variant *v, const int32_t *ids, int n) {
    ig_session *s = open_stored(v), *alone = open_alone(v);
    put(s, ids, n);
    put(alone, ids, n);
    same(s, alone);
    for (int t = n; t < n + 12; t++) {
        step(s, ids[t]);
        step(alone, ids[t]);
        same(s, alone);
    }
    uint64_t taken = stats(s).n_taken;
    ig_session_close(s);
    ig_session_close(alone);
    return taken;
}

static inline ig_cache *open_cache(const variant *v) {
    ig_error err = {0};
    ig_session_options o = options_of(v);
    ig_cache *c;
    o.cache.memory.store_path = store;
    expect_ok(ig_cache_open(&c, model, &o, &err), &err);
    return c;
}

#endif
