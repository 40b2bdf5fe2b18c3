/* SPDX-License-Identifier: Apache-2.0
 *
 * Policies and types of keys and values that tests of caches and of stored prefixes go through. Include after cmocka.h.
 */
#ifndef TESTS_VARIANT_H
#define TESTS_VARIANT_H

#include "golden/tiny_session.h"

enum { N_CTX = 256 };

/* How a cache of a test is to be. */
typedef struct variant {
    const char *policy, *type;
    bool on_disk; /* with the least RAM */
    bool shares;  /* the policy does */
} variant;

static inline ig_session_options options_of(const variant *v) {
    ig_session_options o = ig_session_defaults();
    o.n_ctx = N_CTX;
    o.n_batch = 64;
    o.cache.policy = v->policy;
    o.cache.memory.type = v->type;
    o.cache.budget = 0.3;
    o.cache.n_recent = 8;
    o.cache.n_dense_layers = 1;
    return o;
}

#endif
