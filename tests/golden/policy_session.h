/* SPDX-License-Identifier: Apache-2.0
 *
 * Sessions of the tiny model under policies that choose among some hundred tokens of one text.
 */
#ifndef TESTS_GOLDEN_POLICY_SESSION_H
#define TESTS_GOLDEN_POLICY_SESSION_H

#include "golden/tiny_session.h"

enum { N_CTX = 640, N_PROMPT = 560 };

static int32_t ids[N_CTX]; /* the text */

static inline int open_model(void **state) {
    for (int i = 0; i < N_CTX; i++) ids[i] = (int32_t)((unsigned)i * 7919u % N_VOCAB);
    return open_tiny_and_folder(state);
}

static inline ig_cache_options cache(const char *policy) {
    ig_cache_options c = ig_cache_defaults();
    c.policy = policy;
    c.budget = 0.15;
    c.n_recent = 16;
    c.n_dense_layers = 1;
    return c;
}

static inline ig_session_options options_of(const ig_cache_options *c) {
    ig_session_options o = ig_session_defaults();
    o.n_ctx = N_CTX;
    o.n_batch = 64;
    o.cache = *c;
    return o;
}

/* With a memory of its own. */
static inline ig_session *open_with(const ig_cache_options *c) {
    ig_session_options o = options_of(c);
    return open_session(&o);
}

#endif
