/* SPDX-License-Identifier: Apache-2.0
 *
 * Sessions of the tiny model in one cache, and the same by themselves.
 */
#ifndef TESTS_GOLDEN_CACHE_SESSION_H
#define TESTS_GOLDEN_CACHE_SESSION_H

#include "golden/variant.h"

static inline ig_cache *open_cache(ig_session_options *o, const variant *v, int n_sessions) {
    ig_cache *c;
    ig_error err = {0};
    o->cache.memory.n_sessions = n_sessions;
    if (v->on_disk) {
        o->cache.memory.disk_bytes = 64 << 20;
        o->cache.memory.disk_path = folder;
        o->cache.memory.ram_bytes = 1;
        assert_int_equal(ig_cache_open(&c, model, o, &err), IG_E_LIMIT);
        o->cache.memory.ram_bytes = strtoull(strstr(err.text, "at least ") + strlen("at least "), NULL, 10);
    }
    expect_ok(ig_cache_open(&c, model, o, &err), &err);
    return c;
}

static inline ig_session *open_in(ig_cache *c, ig_session_options o) {
    o.shared = c;
    return open_session(&o);
}

/* One by itself, all in RAM. */
static inline ig_session *open_alone(const variant *v) {
    ig_session_options o = options_of(v);
    return open_session(&o);
}

static inline ig_cache_stats cache_stats(const ig_cache *c) {
    ig_cache_stats st;
    ig_cache_get_stats(c, &st);
    return st;
}

static inline int32_t token(int seed, int i) {
    return (int32_t)(((unsigned)seed * 977u + (unsigned)i * 7919u + (unsigned)(i * i) * 31u) % N_VOCAB);
}

/* `common` tokens that all texts begin with, then those of text number `seed`. */
static inline void fill(int32_t *ids, int seed, int common, int n) {
    for (int i = 0; i < n; i++) ids[i] = token(i < common ? 0 : seed, i);
}

static inline void cut(ig_session *s, int n) {
    ig_error err = {0};
    expect_ok(ig_session_cut(s, n, &err), &err);
    assert_int_equal(ig_session_tokens(s, NULL), n);
}

/* The session holds what `alone` gets now: a prompt; both go on together. */
static inline void prompt_both(ig_session *s, ig_session *alone, const int32_t *ids, int n) {
    cut(alone, 0);
    put(s, ids, n);
    put(alone, ids, n);
    same(s, alone);
}

/* A test of a cache that is so. */
#define WITH(test, name, ...)                                        \
    {                                                                \
#test " " name, test, NULL, NULL, &(variant) { __VA_ARGS__ } \
    }

#endif
