/* SPDX-License-Identifier: Apache-2.0
 *
 * What sessions may ask of the cache that they lie in, and what is refused; and what they share if it is told to.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "golden/cache_session.h"

static void what_cannot_lie_in_a_cache_is_refused(void **state) {
    const variant v = {.policy = "infinigen"};
    ig_session_options o = options_of(&v), p;
    ig_cache *c = open_cache(&o, &v, 1);
    ig_session *s, *one = open_in(c, o);
    ig_error err = {0};
    (void)state;
    p = o;
    p.shared = c;
    assert_int_equal(ig_session_open(&s, model, &p, &err), IG_E_LIMIT);
    ig_session_close(one);
    p.n_ctx = N_CTX + 1;
    assert_int_equal(ig_session_open(&s, model, &p, &err), IG_E_LIMIT);
    p.n_ctx = 0;
    p.n_batch = 65;
    assert_int_equal(ig_session_open(&s, model, &p, &err), IG_E_LIMIT);
    p.n_batch = 16;
    p.cache.policy = "h2o";
    assert_int_equal(ig_session_open(&s, model, &p, &err), IG_E_ARG);
    p.cache.policy = "full";
    p.cache.memory.limit = 0.5;
    assert_int_equal(ig_session_open(&s, model, &p, &err), IG_E_ARG);
    p.cache.memory.limit = 0;
    expect_ok(ig_session_open(&s, model, &p, &err), &err);
    assert_int_equal(ig_session_ctx(s), N_CTX);
    ig_session_close(s);
    ig_cache *inner;
    assert_int_equal(ig_cache_open(&inner, model, &p, &err), IG_E_ARG);
    ig_cache_close(c);
}

/* Each session of a cache may have tables that no other has. */
static void policies_that_all_differ(void **state) {
    static const char *const policies[] = {"infinigen", "quest", "oracle"};
    enum { N = 12 };
    const variant v = {.policy = "infinigen"};
    ig_session_options o = options_of(&v);
    ig_cache *c = open_cache(&o, &v, N);
    ig_session *all[N];
    int32_t ids[40];
    (void)state;
    fill(ids, 1, 0, 40);
    for (int i = 0; i < N; i++) {
        ig_session_options p = o;
        p.cache.policy = policies[i % 3];
        p.cache.n_dense_layers = i / 3;
        all[i] = open_in(c, p);
        put(all[i], ids, 40);
    }
    for (int i = 0; i < N; i++) ig_session_close(all[i]);
    ig_cache_close(c);
}

/* A cache with a limit has no room for all entries of layers that the others drop entries in. */
static void a_limit_for_all(void **state) {
    const variant v = {.policy = "infinigen"};
    ig_session_options o = options_of(&v), p;
    ig_session *s;
    ig_error err = {0};
    (void)state;
    o.cache.memory.limit = 0.5;
    ig_cache *c = open_cache(&o, &v, 2);
    p = o;
    p.shared = c;
    p.cache.n_dense_layers = 2;
    assert_int_equal(ig_session_open(&s, model, &p, &err), IG_E_ARG);
    assert_non_null(strstr(err.text, "layers only"));
    p.cache.n_dense_layers = 1;
    p.cache.policy = "window";
    expect_ok(ig_session_open(&s, model, &p, &err), &err);
    ig_session_close(s);
    ig_cache_close(c);
}

/* What was decoded is taken only where that is wanted; it is nearly what a prompt gives. */
static void answers_are_shared_if_wanted(void **state) {
    const variant *v = *state;
    enum { N_PROMPT = 70, N = 170 };
    int32_t ids[N];
    fill(ids, 3, 0, N);
    for (int wanted = 0; wanted < 2; wanted++) {
        ig_session_options o = options_of(v);
        o.cache.memory.share_answers = wanted;
        ig_cache *c = open_cache(&o, v, 2);
        ig_session *a = open_in(c, o), *alone = open_alone(v);
        put(a, ids, N_PROMPT);
        for (int i = N_PROMPT; i < N; i++) step(a, ids[i]);
        ig_session_close(a);
        uint64_t before = cache_stats(c).taken_tokens;
        a = open_in(c, o);
        put(a, ids, N);
        put(alone, ids, N);
        uint64_t n_taken = cache_stats(c).taken_tokens - before;
        assert_true(wanted ? n_taken > N - 40 && n_taken < N : n_taken <= N_PROMPT);
        if (!wanted) same(a, alone);
        const float *x = ig_session_logits(a), *y = ig_session_logits(alone);
        double differ = 0, size = 0;
        for (int i = 0; i < N_VOCAB; i++) {
            differ += (x[i] - y[i]) * (x[i] - y[i]);
            size += y[i] * y[i];
        }
        assert_true(differ <= 0.05 * size);
        step(a, 5);
        ig_session_close(a);
        ig_session_close(alone);
        ig_cache_close(c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_cannot_lie_in_a_cache_is_refused),
        cmocka_unit_test(policies_that_all_differ),
        cmocka_unit_test(a_limit_for_all),
        WITH(answers_are_shared_if_wanted, "full", .policy = "full"),
        WITH(answers_are_shared_if_wanted, "infinigen", .policy = "infinigen"),
        WITH(answers_are_shared_if_wanted, "quest on disk", .policy = "quest", .on_disk = true),
    };
    return cmocka_run_group_tests(tests, open_tiny_and_folder, close_tiny_and_folder);
}
