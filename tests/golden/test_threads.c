/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads with sessions of their own, all of one model, that open, compute, ask and close as they like: each gets the
 * bits that it gets alone. Under the thread sanitizer this is the proof of what infinigen.h says of threads.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "golden/tiny_session.h"

enum { N_THREADS = 4, N_ROUNDS = 3, N_PROMPT = 70, N_STEPS = 6 };

/* What a thread does, and what came of it. Assertions are for the main thread alone. */
typedef struct user {
    int number;
    uint64_t sum;         /* of the bits of all logits */
    uint64_t scratch;     /* the last that it was told */
    uint64_t n_meanwhile; /* bytes of text, models, plans: what it asked besides */
    ig_error err;
} user;

static void add(uint64_t *sum, const float *logits) {
    for (int i = 0; i < N_VOCAB; i++) {
        uint32_t bits;
        memcpy(&bits, &logits[i], sizeof bits);
        *sum = *sum * 31 + bits;
    }
}

static ig_status generate_and_ask(user *u, ig_session *s, ig_sampler *sampler) {
    ig_status status = IG_OK;
    for (int i = 0; !status && i < N_STEPS; i++) {
        ig_session_stats st;
        int32_t id = ig_sampler_next(sampler, s);
        status = ig_session_decode(&s, &id, 1, &u->err);
        if (status) break;
        add(&u->sum, ig_session_logits(s));
        ig_session_get_stats(s, &st);
        u->scratch = st.scratch_bytes;
    }
    return status;
}

static ig_cache *shared; /* that the sessions lie in; NULL: each in memory of its own */

/* A longer context and batch each time, so that the shared scratch must grow while others use it. */
static ig_status one_round(user *u, int round) {
    static const char *const policies[N_THREADS] = {"infinigen", "full", "quest", "h2o"};
    static const char *const sharing[N_THREADS] = {"infinigen", "full", "quest", "infinigen"};
    int32_t ids[N_PROMPT];
    ig_session *s = NULL;
    ig_sampler *sampler = NULL;
    ig_cache_plan_info plan;
    ig_model_info info;
    ig_session_options o = ig_session_defaults();
    ig_sampler_options sampling = ig_sampler_defaults();
    o.n_ctx = 100 + 60 * round + 10 * u->number;
    o.n_batch = 16 + 8 * round + u->number;
    o.cache.policy = shared ? sharing[u->number] : policies[u->number];
    o.shared = shared;
    o.cache.budget = 0.3;
    sampling.temperature = 0.8f;
    sampling.frequency_penalty = 0.5f;
    for (int i = 0; i < N_PROMPT; i++) ids[i] = (i * (shared && i < 50 ? 1 : u->number + 3) + round) % N_VOCAB;
    ig_model_get_info(model, &info);
    ig_status status = ig_cache_plan(&plan, model, &o, &u->err);
    if (!status) status = ig_session_open(&s, model, &o, &u->err);
    if (!status) status = ig_sampler_open(&sampler, model, &sampling, &u->err);
    if (!status) status = ig_session_sync(s, ids, N_PROMPT, &u->err);
    if (!status) status = generate_and_ask(u, s, sampler);
    u->n_meanwhile += plan.total + info.weight_bytes + ig_model_identity(model);
    ig_sampler_close(sampler);
    ig_session_close(s);
    return status;
}

static atomic_int n_at_work;

static void *use(void *arg) {
    user *u = arg;
    for (int i = 0; i < N_ROUNDS && !u->err.status; i++) one_round(u, i);
    atomic_fetch_sub(&n_at_work, 1);
    return NULL;
}

/* Does nothing but ask about a session of its own, so that nothing else puts its thread in step with the others. */
static void ask_while_others_work(const ig_session *s) {
    while (atomic_load(&n_at_work)) {
        assert_true(stats(s).scratch_bytes > 0);
        assert_int_equal(ig_session_tokens(s, NULL), 0);
        usleep(100);
    }
}

static int open_model(void **state) {
    (void)state;
    open_tiny(TINY_LLAMA, 2);
    return 0;
}

static void each_gets_what_it_gets_alone(void **state) {
    (void)state;
    pthread_t threads[N_THREADS];
    user together[N_THREADS] = {0}, alone[N_THREADS] = {0};
    ig_session_options small = ig_session_defaults();
    small.n_ctx = 40;
    small.n_batch = 8;
    ig_session *s = open_session(&small);
    atomic_store(&n_at_work, N_THREADS);
    for (int i = 0; i < N_THREADS; i++) {
        together[i].number = alone[i].number = i;
        assert_int_equal(pthread_create(&threads[i], NULL, use, &together[i]), 0);
    }
    ask_while_others_work(s);
    for (int i = 0; i < N_THREADS; i++) pthread_join(threads[i], NULL);
    ig_session_close(s);
    for (int i = 0; i < N_THREADS; i++) {
        use(&alone[i]);
        expect_ok(together[i].err.status, &together[i].err);
        expect_ok(alone[i].err.status, &alone[i].err);
        assert_true(together[i].sum == alone[i].sum);
        assert_true(together[i].n_meanwhile == alone[i].n_meanwhile);
        assert_true(together[i].scratch > 0);
    }
}

/* The same in one cache, where they take from each other what they have in common. */
static void one_cache_is_no_difference(void **state) {
    ig_session_options o = ig_session_defaults();
    ig_error err = {0};
    (void)state;
    o.n_ctx = 300;
    o.n_batch = 64;
    o.cache.memory.n_sessions = N_THREADS;
    expect_ok(ig_cache_open(&shared, model, &o, &err), &err);
    each_gets_what_it_gets_alone(NULL);
    ig_cache_stats st;
    ig_cache_get_stats(shared, &st);
    assert_true(st.taken_tokens > 0 && st.tokens == 0);
    ig_cache_close(shared);
    shared = NULL;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_gets_what_it_gets_alone),
        cmocka_unit_test(one_cache_is_no_difference),
    };
    return cmocka_run_group_tests(tests, open_model, close_tiny);
}
