/* SPDX-License-Identifier: Apache-2.0
 *
 * What tests of sessions that drop entries for ever share. What a KV head holds is read from the store and recognised
 * by the first layer's keys, which do not depend on attention.
 */
#ifndef TESTS_DROPPING_H
#define TESTS_DROPPING_H

#include "engine/session.h"
#include "golden/tiny_session.h"

enum { N_CTX = 400, N_BATCH = 48, LAYERS = 4, HEADS = 6, KV_HEADS = 2, DIM = 32, SINKS = 4, RECENT = 16 };

static inline ig_session_options options(const char *policy) {
    ig_session_options o = ig_session_defaults();
    o.n_ctx = N_CTX;
    o.n_batch = N_BATCH;
    o.cache.policy = policy;
    o.cache.budget = 0.2;
    o.cache.n_sinks = SINKS;
    o.cache.n_recent = RECENT;
    o.cache.n_dense_layers = 0;
    return o;
}

static inline void fill(int32_t *ids, int seed) {
    unsigned x = (unsigned)seed * 2654435761u + 12345u;
    for (int i = 0; i < N_CTX; i++) {
        x = x * 1664525u + 1013904223u;
        ids[i] = (int32_t)((x >> 16) % N_VOCAB);
    }
}

static inline const uint16_t *key_of(const ig_session *s, int head, int slot) {
    return (const uint16_t *)(const void *)ig_kv_at(s->seq.kv, 0, head, slot).key;
}

/* The positions that a KV head of the first layer holds; `all` has seen the same tokens in the same batches, and holds
 * them all. */
static inline int held_positions(int *positions, const ig_session *s, const ig_session *all, int head) {
    ig_entries e = ig_kv_entries(s->seq.kv, 0, head);
    int n = ig_kv_entries(all->seq.kv, 0, head).n, at = 0;
    for (int i = 0; i < e.n; i++, at++) {
        const uint16_t *key = key_of(s, head, e.slot ? e.slot[i] : i);
        while (at < n && memcmp(key, key_of(all, head, at), DIM * sizeof *key)) at++;
        if (at == n) fail_msg("entry %d of %d is of no token, or not in order", i, e.n);
        positions[i] = at;
    }
    return e.n;
}

#endif
