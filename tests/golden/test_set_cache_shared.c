/* SPDX-License-Identifier: Apache-2.0
 *
 * Another policy for a session that shares its tokens with others, in a cache or by a store: what it holds, gives and
 * takes is what it would be in a memory of its own.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "golden/policy_session.h"
#include "unit/temp_dir.h"
#include "infinigen_tools.h"

enum { PIECE = 32 };

static ig_cache *open_cache(void) {
    ig_error err = {0};
    ig_cache *all;
    ig_cache_options c = cache("full");
    c.memory.n_sessions = 3;
    ig_session_options o = options_of(&c);
    expect_ok(ig_cache_open(&all, model, &o, &err), &err);
    return all;
}

static ig_session *open_in(ig_cache *all, const ig_cache_options *c) {
    ig_session_options o = options_of(c);
    o.shared = all;
    return open_session(&o);
}

static void change(ig_session *s, const ig_cache_options *c) {
    ig_error err = {0};
    expect_ok(ig_session_set_cache(s, c, &err), &err);
}

static void cut(ig_session *s, int n) {
    ig_error err = {0};
    expect_ok(ig_session_cut(s, n, &err), &err);
}

/* How many of n tokens the session can hold without computing. */
static int reuse(ig_session *s, int n) {
    ig_error err = {0};
    int held = 0;
    expect_ok(ig_session_reuse(&held, s, ids, n, &err), &err);
    return held;
}

static void steps_alike(ig_session *a, ig_session *b, int from, int n) {
    for (int i = from; i < from + n; i++) {
        step(a, ids[i]);
        step(b, ids[i]);
        same(a, b);
    }
}

static void close_all(ig_cache *all, ig_session *a, ig_session *b, ig_session *c) {
    ig_session_close(a);
    ig_session_close(b);
    ig_session_close(c);
    ig_cache_close(all);
}

/* What a session decoded while it shared nothing it does not give as a prompt when it shares later. What it computes
 * after a cut it gives again. */
static void what_was_not_shared_stays_so(void **state) {
    (void)state;
    ig_cache_options c = cache("window"), apart = c;
    apart.no_share = true;
    ig_cache *all = open_cache();
    ig_session *a = open_in(all, &apart), *b = open_in(all, &c), *alone = open_with(&c);
    put(a, ids, 400);
    for (int i = 400; i < N_PROMPT; i++) step(a, ids[i]);
    change(a, &c);
    step(a, ids[N_PROMPT]);
    put(b, ids, N_PROMPT);
    put(alone, ids, N_PROMPT);
    same(alone, b);
    assert_int_equal(stats(b).n_taken, 0);

    cut(a, 0);
    put(a, ids + 8, 384);
    cut(b, 0);
    put(b, ids + 8, 385);
    assert_int_equal(stats(b).n_taken, 384);
    close_all(all, a, b, alone);
}

/* The policy that comes fills the pieces, which others may find, without saying so: a cut into one takes along what the
 * policy knows of it. */
static void cuts_into_shared_pieces(void **state) {
    ig_cache_options full = cache("full"), c = cache(*state), apart = c;
    apart.no_share = true;
    for (int back = 0; back < 2; back++) {
        ig_cache *all = open_cache();
        ig_session *a = open_in(all, &full), *alone = open_with(&c);
        put(a, ids, 400);
        put(alone, ids, 400);
        change(a, &apart);
        if (back) change(a, &c);
        cut(a, 300);
        cut(alone, 300);
        steps_alike(a, alone, 300, 8);
        close_all(all, a, alone, NULL);
    }
}

/* What comes after a change of the salt goes to those of neither. */
static void a_salt_is_kept_to(void **state) {
    (void)state;
    ig_cache_options c = cache("infinigen"), salted = c;
    salted.salt = "a salt";
    ig_cache *all = open_cache();
    ig_session *a = open_in(all, &c), *b = open_in(all, &c), *d = open_in(all, &salted);
    put(a, ids, 2 * PIECE);
    change(a, &salted);
    put(a, ids, 400);
    assert_int_equal(reuse(b, 401), 2 * PIECE);
    assert_int_equal(reuse(d, 401), 0);
    close_all(all, a, b, d);
}

/* A session with a store of its own keeps it through a change, also to policies that drop entries while it is empty. */
static void a_store_is_kept(void **state) {
    (void)state;
    ig_error err = {0};
    temp_dir store = temp_dir_open();
    ig_cache_options c = cache("infinigen"), quest = cache("quest"), h2o = cache("h2o");
    c.memory.store_path = quest.memory.store_path = h2o.memory.store_path = store.path;
    ig_session *s = open_with(&c);
    put(s, ids, 200);
    change(s, &quest);
    cut(s, 0);
    change(s, &h2o);
    put(s, ids, 200);
    step(s, ids[200]);
    ig_session_close(s);

    ig_stored *stored;
    ig_stored_info info;
    expect_ok(ig_stored_open(&stored, store.path, true, &err), &err); /* nobody writes to it any more */
    ig_stored_get_info(stored, &info);
    assert_int_equal(info.n_pieces, 200 / PIECE);
    ig_stored_close(stored);
    temp_dir_close(&store);
}

/* What a policy that drops entries takes more of the RAM, pieces that are kept make room for. */
static void kept_pieces_make_room(void **state) {
    (void)state;
    temp_dir store = temp_dir_open();
    ig_cache_options c = cache("infinigen"), h2o = cache("h2o");
    c.memory.store_path = h2o.memory.store_path = store.path;
    c.n_dense_layers = h2o.n_dense_layers = 0;
    c.memory.disk_bytes = h2o.memory.disk_bytes = 1 << 26;
    c.memory.disk_path = h2o.memory.disk_path = store.path;
    c.memory.ram_bytes = h2o.memory.ram_bytes = least_ram(options_of(&h2o)) + 65536;
    ig_session *a = open_with(&c), *b = open_with(&h2o);
    put(a, ids, N_CTX); /* every frame holds something */
    cut(a, 0);
    change(a, &h2o);
    put(a, ids, N_PROMPT);
    put(b, ids, N_PROMPT);
    steps_alike(a, b, N_PROMPT, 3);
    assert_true(stats(a).kv_bytes <= h2o.memory.ram_bytes);
    ig_session_close(a);
    ig_session_close(b);
    temp_dir_close(&store);
}

/* Tokens that were taken stay counted. */
static void statistics_of_prompts_stay(void **state) {
    (void)state;
    ig_cache_options c = cache("infinigen"), quest = cache("quest");
    ig_cache *all = open_cache();
    ig_session *a = open_in(all, &c), *b = open_in(all, &c);
    put(a, ids, 400);
    put(b, ids, 400);
    change(b, &quest);
    assert_int_equal(stats(b).n_taken, 384);
    assert_int_equal(stats(b).n_prefilled, 16);
    close_all(all, a, b, NULL);
}

/* What a session has decoded others' prompts do not take the place of: alone it would keep it. */
static void what_was_decoded_stays(void **state) {
    (void)state;
    ig_cache_options c = cache("window");
    ig_cache *all = open_cache();
    ig_session *a = open_in(all, &c), *b = open_in(all, &c), *alone = open_with(&c);
    put(a, ids, 300);
    put(alone, ids, 300);
    steps_alike(a, alone, 300, 40);
    put(b, ids, 400);
    put(a, ids, 400);
    put(alone, ids, 400);
    same(a, alone);
    assert_int_equal(stats(a).n_taken, 0);
    close_all(all, a, b, alone);
}

typedef struct caller {
    ig_session *s;
    ig_cache_options other;
    ig_status status;
} caller;

static void change_within(void *user, const ig_cache_step *x) {
    caller *c = user;
    ig_error err = {0};
    if (x->layer == 1 && !c->status) c->status = ig_session_set_cache(c->s, &c->other, &err);
}

/* A change from within a step is refused, and the step ends as if nobody had asked. */
static void a_change_within_a_step(void **state) {
    (void)state;
    caller x = {.other = cache("quest")};
    ig_cache_options plain = cache("infinigen"), traced = plain;
    traced.trace = change_within;
    traced.trace_user = &x;
    ig_session *a = open_with(&traced), *b = open_with(&plain);
    x.s = a;
    put(a, ids, 576); /* the step's entry is the first of its block */
    put(b, ids, 576);
    steps_alike(a, b, 576, 8);
    assert_int_equal(x.status, IG_E_ARG);
    close_all(NULL, a, b, NULL);
}

int main(void) {
#define POLICY(test, name) \
    { name ": " #test, test, NULL, NULL, name }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_not_shared_stays_so),
        POLICY(cuts_into_shared_pieces, "infinigen"),
        POLICY(cuts_into_shared_pieces, "oracle"),
        POLICY(cuts_into_shared_pieces, "quest"),
        cmocka_unit_test(a_salt_is_kept_to),
        cmocka_unit_test(a_store_is_kept),
        cmocka_unit_test(kept_pieces_make_room),
        cmocka_unit_test(statistics_of_prompts_stay),
        cmocka_unit_test(what_was_decoded_stays),
        cmocka_unit_test(a_change_within_a_step),
    };
    return cmocka_run_group_tests(tests, open_model, close_tiny_and_folder);
}
