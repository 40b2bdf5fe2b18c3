/* SPDX-License-Identifier: Apache-2.0
 *
 * The scheduler: who waits for whom; what is refused, cancelled, cut into pieces.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include "golden/scheduler_asks.h"

/* ---- who waits -------------------------------------------------------------------------- */

/* A running answer goes on while a long prompt is computed. */
static void pieces(void **state) {
    (void)state;
    open_scheduler(2, 512, 8, 0.001);
    asked *a = ask(1, 4, 600), *b = ask(2, 512, 1);
    a->follow = b;
    b->leader = a;
    submit(a);
    wait_for(2);
    assert_true(a->seen_by_follow >= 4);
    check_alone(b, 512);
    done(a);
    done(b);
    ig_scheduler_close(scheduler);
}

/* One place: of an owner who wants much and one who wants little the second is not last. Of one owner the order is that
 * of arrival. */
static void fair(void **state) {
    (void)state;
    enum { N = 6 };
    asked *all[N];
    open_scheduler(2, 64, 16, 0.1);
    for (int i = 0; i < N; i++) {
        all[i] = ask(i, 8, 40);
        all[i]->o.owner = i == N - 1;
    }
    asked *first = ask(9, 8, 60); /* has a place while the others are handed over */
    submit(first);
    for (int i = 0; i < N; i++) submit(all[i]);
    wait_for(N + 1);
    for (int i = 1; i + 1 < N; i++) assert_true(all[i]->result.wait_seconds >= all[i - 1]->result.wait_seconds - 0.1);
    assert_true(all[N - 1]->rank < all[N - 2]->rank);
    assert_true(all[N - 1]->rank < all[N - 3]->rank);
    for (int i = 0; i < N; i++) done(all[i]);
    done(first);
    ig_scheduler_close(scheduler);
}

/* A short and a longer prompt of two other owners, handed over while long ones of one owner are computed beside an
 * answer: they get their turns before the first of these is whole, and nothing else changes. */
static void owners_take_turns(void **state) {
    (void)state;
    enum { N = 6, N_FIRST = 4, N_BATCH = 32 };
    static const int lengths[N] = {4, 500, 510, 520, 3, 160};
    static const uint64_t owners[N] = {1, 1, 1, 1, 2, 3};
    asked *all[N];
    ig_request *requests[N_FIRST];
    ig_request_options o[N_FIRST];
    ig_error err = {0};
    open_scheduler(N, N_BATCH, 16, 0.001);
    for (int i = 0; i < N; i++) {
        all[i] = ask(20 + i, lengths[i], i ? 1 : 100);
        all[i]->o.owner = owners[i];
        if (i < N_FIRST) o[i] = all[i]->o;
    }
    all[0]->follow = all[4];
    all[4]->follow = all[5];
    expect_ok(ig_scheduler_submit(requests, NULL, scheduler, o, N_FIRST, &err), &err);
    for (int i = 0; i < N_FIRST; i++) all[i]->request = requests[i];
    wait_for(N);
    static const int order[] = {4, 5, 1, 2, 3};
    for (int i = 1; i < N - 1; i++) assert_true(all[order[i - 1]]->rank < all[order[i]]->rank);
    for (int i = 0; i < N; i++) check_alone(all[i], N_BATCH);
    for (int i = 0; i < N; i++) done(all[i]);
    ig_scheduler_close(scheduler);
}

static void cancels(void **state) {
    (void)state;
    open_scheduler(1, 64, 8, 0.1);
    asked *a = ask(1, 8, 500), *b = ask(2, 8, 500);
    a->cancel_at = 3;
    submit(a);
    submit(b);
    ig_request_cancel(b->request);
    wait_for(2);
    assert_int_equal(a->result.finish, IG_FINISH_INTERRUPTED);
    assert_int_equal(a->n, 3);
    assert_int_equal(b->result.finish, IG_FINISH_INTERRUPTED);
    ig_scheduler_stats st;
    do /* the cache is looked at after the last callback */
        ig_scheduler_get_stats(scheduler, &st);
    while (st.cache.n_sessions);
    assert_int_equal(st.n_cancelled, 2);
    done(a);
    done(b);
    asked *c = ask(3, 8, 500); /* closed while it runs */
    submit(c);
    done(c);
    ig_scheduler_close(scheduler);
}

/* A sink holds up the steps of all sessions of the model, and asks meanwhile. */
static bool ask_for_stats(void *user, int first, int n_rows, const float *logits) {
    (void)first, (void)n_rows, (void)logits;
    ig_scheduler_place place;
    ig_scheduler_get_stats(scheduler, user);
    return !ig_scheduler_get_place(scheduler, 0, &place);
}

static void a_sink_may_ask(void **state) {
    (void)state;
    open_scheduler(1, 64, 8, 0.1);
    ig_session_options o = ig_session_defaults();
    ig_scheduler_stats st = {0};
    ig_error err = {0};
    o.n_ctx = 8;
    o.n_batch = 8;
    ig_session *s = open_session(&o);
    asked *a = ask(1, 8, 500);
    submit(a);
    while (st.n_ended < 1) {
        expect_ok(ig_session_cut(s, 0, &err), &err);
        expect_ok(ig_session_sync_logits(s, a->prompt, 2, ask_for_stats, &st, &err), &err);
    }
    wait_for(1);
    ig_session_close(s);
    done(a);
    ig_scheduler_close(scheduler);
}

/* ---- what is refused ------------------------------------------------------------------------ */

/* A named owner leaves an eighth of the queue, wherever its requests stand among those that are handed over. */
static void owners_have_shares(void **state) {
    (void)state;
    enum { N = 16 };
    ig_error err = {0};
    ig_request *out[N];
    ig_request_options o[N];
    size_t refused;
    open_scheduler(1, 64, N, 0.1);
    asked *a = ask(1, 8, 1);
    for (int i = 0; i < N; i++) {
        o[i] = a->o;
        o[i].on_end = NULL, o[i].on_token = NULL, o[i].on_progress = NULL, o[i].generate.on_text = NULL;
        o[i].owner = i == 0 ? 1 : 2;
    }
    assert_int_equal(ig_scheduler_submit(out, &refused, scheduler, o, N, &err), IG_E_LIMIT);
    assert_int_equal(refused, N);
    assert_non_null(strstr(err.text, "15 requests of one client would wait, and at most 14 may"));
    o[N - 1].owner = 1;
    expect_ok(ig_scheduler_submit(out, &refused, scheduler, o, N, &err), &err);
    for (int i = 0; i < N; i++) ig_request_close(out[i]);
    free(a);
    ig_scheduler_close(scheduler);
}

static void refuses(void **state) {
    (void)state;
    ig_error err = {0};
    ig_request *out[3];
    size_t refused = 9;
    open_scheduler(1, 64, 2, 0.1);
    asked *a = ask(1, 8, 1);
    ig_request_options o[3] = {a->o, a->o, a->o};
    assert_int_equal(ig_scheduler_submit(out, &refused, scheduler, o, 3, &err), IG_E_LIMIT);
    assert_int_equal(refused, 3);
    static const int32_t bad[] = {1, N_VOCAB};
    o[1].ids = bad;
    o[1].n_ids = 2;
    assert_int_equal(ig_scheduler_submit(out, &refused, scheduler, o, 2, &err), IG_E_ARG);
    assert_int_equal(refused, 1);
    assert_non_null(strstr(err.text, "512"));
    o[0].n_ids = N_CTX + 1;
    assert_int_equal(ig_scheduler_submit(out, &refused, scheduler, o, 1, &err), IG_E_LIMIT);
    assert_int_equal(refused, 0);
    o[0] = a->o;
    o[0].sampler.top_p = NAN;
    assert_int_equal(ig_scheduler_submit(out, NULL, scheduler, o, 1, &err), IG_E_ARG);
    o[0] = a->o;
    o[0].n_top = IG_REQUEST_TOP_MAX + 1;
    assert_int_equal(ig_scheduler_submit(out, NULL, scheduler, o, 1, &err), IG_E_ARG);
    o[0] = a->o;
    a->cache.policy = "nonsense";
    o[0].cache = &a->cache;
    assert_int_equal(ig_scheduler_submit(out, NULL, scheduler, o, 1, &err), IG_E_ARG);
    assert_int_equal(ig_scheduler_submit(out, NULL, NULL, o, 1, &err), IG_E_ARG);
    assert_int_equal(n_ended, 0);
    free(a);
    ig_scheduler_close(scheduler);

    ig_scheduler_options w = ig_scheduler_defaults();
    w.n_queue = 0;
    assert_int_equal(ig_scheduler_open(&scheduler, model, &w, &err), IG_E_ARG);
    w = ig_scheduler_defaults();
    w.piece_seconds = NAN;
    assert_int_equal(ig_scheduler_open(&scheduler, model, &w, &err), IG_E_ARG);
    w = ig_scheduler_defaults();
    w.session.n_batch = w.session.cache.memory.n_sessions = 4;
    assert_int_equal(ig_scheduler_open(&scheduler, model, &w, &err), IG_E_ARG);
    assert_null(scheduler);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(pieces, open_tiny_llama, close_tiny),
        cmocka_unit_test_setup_teardown(fair, open_tiny_llama, close_tiny),
        cmocka_unit_test_setup_teardown(owners_take_turns, open_tiny_llama, close_tiny),
        cmocka_unit_test_setup_teardown(cancels, open_tiny_llama, close_tiny),
        cmocka_unit_test_setup_teardown(a_sink_may_ask, open_tiny_llama, close_tiny),
        cmocka_unit_test_setup_teardown(owners_have_shares, open_tiny_llama, close_tiny),
        cmocka_unit_test_setup_teardown(refuses, open_tiny_llama, close_tiny),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
