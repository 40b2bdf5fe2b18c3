/* SPDX-License-Identifier: Apache-2.0
 *
 * Sessions of tiny models on a device, with policies that choose even from so few tokens. Include after cmocka.h.
 */
#ifndef TESTS_SESSION_ON_H
#define TESTS_SESSION_ON_H

#include <stdio.h>

#include "device/context.h"
#include "golden/tiny_session.h"

enum { PROMPT = 30, STEPS = 3, CTX = 64 };

static int32_t ids[PROMPT + STEPS];

static inline void open_on(const char *path, const char *device) {
    ig_error err = {0};
    ig_context_options o = ig_context_defaults();
    o.n_threads = 2;
    o.device = device;
    expect_ok(ig_context_open(&ctx, &o, &err), &err);
    expect_ok(ig_model_open(&model, ctx, path, NULL, &err), &err);
}

static inline ig_session_options options_of(const char *policy, const char *type) {
    ig_session_options o = ig_session_defaults();
    o.n_ctx = CTX;
    o.cache.policy = policy;
    o.cache.memory.type = type;
    if (strcmp(policy, "full") != 0) o.cache.budget = 0.5;
    o.cache.n_sinks = 2;
    o.cache.n_recent = 4;
    return o;
}

/* Makes the ids. 77, the exit status of a test program that cannot be run here: there is no GPU. */
static inline int begin_on_gpu(void) {
    ig_device_info d;
    for (int i = 0; i < PROMPT + STEPS; i++) ids[i] = (i * 37 + 5) % N_VOCAB;
    if (ig_device_at(1, &d)) return 0;
    printf("skipped: no GPU\n");
    return 77;
}

#endif
