/* SPDX-License-Identifier: Apache-2.0
 *
 * Models of which some layers carry a state on instead of attending. A state cannot be cut back, so that what is kept
 * of them says where a session can go on; how little is computed again; and that logits are bitwise those of a session
 * that has computed all from the beginning. (At random, with several sessions: test_windows.c.)
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "golden/tiny_session.h"

enum { LONG = 1200, PIECE = 64 }; /* tokens; of a piece 64 at most: head dimension 32 */

static int open_dense(void **state) {
    (void)state;
    open_tiny("tests/golden/models/qwen3.5", 2);
    return 0;
}

static int open_experts(void **state) {
    (void)state;
    open_tiny("tests/golden/models/qwen3.5-moe", 2);
    return 0;
}

static int open_mamba(void **state) {
    (void)state;
    open_tiny("tests/golden/models/granite4-h", 2);
    return 0;
}

static int open_beside(void **state) {
    (void)state;
    open_tiny("tests/golden/models/falcon-h1", 2);
    return 0;
}

static int open_kimi(void **state) {
    (void)state;
    open_tiny("tests/golden/models/kimi-linear", 2);
    return 0;
}

static ig_session_options options(void) {
    ig_session_options o = ig_session_defaults();
    o.n_ctx = LONG;
    o.n_batch = 100; /* pieces of prompts end anywhere */
    o.cache.budget = 0.1;
    o.cache.n_dense_layers = 0;
    return o;
}

static void fill(int32_t *ids, int text, int common) {
    for (int i = 0; i < LONG; i++) ids[i] = (int32_t)((i < common ? i * 37 : i * 41 + text * 97 + 5) % N_VOCAB);
}

static int cut_to(ig_session *s, int n) {
    ig_error err = {0};
    expect_ok(ig_session_cut(s, n, &err), &err);
    return ig_session_tokens(s, NULL);
}

static uint64_t computed(const ig_session *s) { return stats(s).n_prefilled; }

/* The logits of these tokens, computed as one prompt. */
static void same_as_fresh(const ig_session *s, const int32_t *ids, int n) {
    ig_session_options o = options();
    ig_session *fresh = open_session(&o);
    put(fresh, ids, n);
    same(s, fresh);
    ig_session_close(fresh);
}

/* The step before is kept, and where prompts end. */
static void goes_back(void **state) {
    (void)state;
    ig_session_options o = options();
    ig_session *s = open_session(&o);
    int32_t ids[LONG];
    fill(ids, 1, 0);
    put(s, ids, 500);
    for (int i = 500; i < 510; i++) step(s, ids[i]);
    assert_int_equal(cut_to(s, 509), 509);
    assert_in_range(cut_to(s, 508), 500 - PIECE, 499);
    uint64_t before = computed(s);
    put(s, ids, 500);
    assert_in_range(computed(s) - before, 1, PIECE);
    same_as_fresh(s, ids, 500);
    put(s, ids, 900);
    before = computed(s);
    put(s, ids, 900); /* the same again */
    assert_int_equal(computed(s), before);
    assert_in_range(cut_to(s, 890), 500 - PIECE, 890);
    put(s, ids, 899);
    same_as_fresh(s, ids, 899);
    assert_in_range(cut_to(s, 500), 500 - PIECE, 500); /* where the first prompt ended */
    assert_int_equal(cut_to(s, 100), 0);
    put(s, ids, 100);
    same_as_fresh(s, ids, 100);
    ig_session_close(s);
}

/* Entries that stay after a prompt are not where its tokens were: states of the next prompt are for no piece, neither
 * the session's own nor one that it has given back. */
static void dropped_entries(void **state) {
    (void)state;
    ig_session_options o = options();
    ig_error err = {0};
    int32_t of_a[LONG], of_b[LONG];
    fill(of_a, 3, 0), fill(of_b, 4, 0);
    o.cache.policy = "snapkv";
    o.cache.memory.n_sessions = 3;
    expect_ok(ig_cache_open(&o.shared, model, &o, &err), &err);
    ig_session_options full = o, own = options();
    full.cache.policy = own.cache.policy = "full";
    ig_session *b = open_session(&full), *a = open_session(&o);
    put(b, of_b, 300);
    put(a, of_a, 600);
    for (int i = 600; i < 602; i++) step(a, of_a[i]);
    put(a, of_a, 700);
    for (int n = 30; n < 300; n += 30) {
        ig_session *c = open_session(&full), *alone = open_session(&own);
        put(c, of_b, n);
        put(alone, of_b, n);
        same(c, alone);
        ig_session_close(alone);
        ig_session_close(c);
    }
    ig_session_close(a);
    ig_session_close(b);
    ig_cache_close(o.shared);
}

/* A conversation: each turn begins as all that came before, of which the answer was decoded. */
static void turns(void **state) {
    (void)state;
    ig_session_options o = options();
    int32_t ids[LONG];
    ig_error err = {0};
    fill(ids, 2, 0);
    o.cache.memory.n_sessions = 2;
    expect_ok(ig_cache_open(&o.shared, model, &o, &err), &err);
    uint64_t all = 0;
    for (int n = 200; n <= 1000; n += 200) { /* the server has a session for each request */
        ig_session *s = open_session(&o);
        put(s, ids, n);
        same_as_fresh(s, ids, n);
        for (int i = 0; i < 20; i++) step(s, ids[n + i]);
        all += computed(s);
        ig_session_close(s);
    }
    assert_in_range(all, 1000, 1000 + 5 * PIECE);
    ig_cache_close(o.shared);
}

/* Prompts that begin alike: the second one leaves a state where they part, and the third takes it. */
static void common_beginning(void **state) {
    (void)state;
    ig_session_options o = options();
    int32_t ids[LONG];
    ig_error err = {0};
    uint64_t taken[4];
    o.cache.memory.n_sessions = 1;
    expect_ok(ig_cache_open(&o.shared, model, &o, &err), &err);
    for (int text = 0; text < 4; text++) {
        ig_session *s = open_session(&o);
        fill(ids, text, 700);
        put(s, ids, 900);
        same_as_fresh(s, ids, 900);
        taken[text] = stats(s).n_taken;
        ig_session_close(s);
    }
    assert_int_equal(taken[0], 0);
    assert_in_range(taken[2], 700 - PIECE, 700);
    assert_int_equal(taken[3], taken[2]);
    ig_cache_close(o.shared);
}

/* Sessions that have too little RAM for what they hold, and those that drop some of it. */
static void tiers_and_limits(void **state) {
    enum { N = 4 };
    (void)state;
    ig_session_options o = options(), on_disk = options();
    ig_memory_options *memory = &on_disk.cache.memory;
    ig_error err = {0};
    int32_t ids[LONG];
    memory->disk_path = "/tmp";
    memory->disk_bytes = (uint64_t)1 << 26;
    memory->n_sessions = N;
    memory->ram_bytes = 1;
    assert_int_equal(ig_cache_open(&on_disk.shared, model, &on_disk, &err), IG_E_LIMIT);
    memory->ram_bytes = least_in(&err);
    expect_ok(ig_cache_open(&on_disk.shared, model, &on_disk, &err), &err);
    ig_session *all = open_session(&o), *few[N];
    for (int i = 0; i < N; i++) {
        few[i] = open_session(&on_disk);
        fill(ids, i, 0);
        put(few[i], ids, 1000 + i);
    }
    for (int i = 0; i < N; i++) {
        fill(ids, i, 0);
        put(all, ids, 1000 + i);
        for (int k = 0; k < 10; k++) {
            step(all, ids[k]), step(few[i], ids[k]);
            same(all, few[i]);
        }
        cut_to(all, 0);
    }
    ig_cache_stats st;
    ig_cache_get_stats(on_disk.shared, &st);
    assert_true(st.read_bytes > 0);
    for (int i = 0; i < N; i++) ig_session_close(few[i]);
    ig_cache_close(on_disk.shared);
    ig_session_close(all);
    o.cache.policy = "h2o";
    ig_session *c = open_session(&o);
    fill(ids, 4, 0);
    put(c, ids, 600);
    step(c, ids[600]);
    assert_true(stats(c).dropped > 0);
    assert_int_equal(cut_to(c, 550), 0);
    put(c, ids, 100);
    ig_session_close(c);
}

static void planned(void **state) {
    (void)state;
    ig_session_options o = options();
    ig_cache_plan_info plan;
    ig_model_info info;
    ig_error err = {0};
    int32_t ids[LONG];
    fill(ids, 5, 0);
    ig_model_get_info(model, &info);
    assert_int_equal(info.n_attention_layers, 2);
    assert_int_equal(info.state_bytes % (3 * sizeof(float)), 0);
    expect_ok(ig_cache_plan(&plan, model, &o, &err), &err);
    ig_session *s = open_session(&o);
    put(s, ids, LONG);
    assert_in_range(stats(s).kv_bytes, 2 * info.state_bytes, plan.kv);
    ig_session_close(s);
}

static void refused(void **state) {
    (void)state;
    ig_session_options o = options();
    ig_session *s;
    ig_error err = {0};
    o.cache.memory.store_path = "/tmp/infinigen-test-no-such-store";
    assert_int_equal(ig_session_open(&s, model, &o, &err), IG_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "store of prefixes"));
}

#define ON_BOTH(test) \
    {#test ", dense", test, open_dense, close_tiny, NULL}, { #test ", experts", test, open_experts, close_tiny, NULL }

int main(void) {
    if (access("tests/golden/models/qwen3.5", R_OK) != 0) return 77;
    const struct CMUnitTest tests[] = {
        ON_BOTH(goes_back),
        ON_BOTH(turns),
        ON_BOTH(common_beginning),
        ON_BOTH(tiers_and_limits),
        ON_BOTH(planned),
        cmocka_unit_test_setup_teardown(refused, open_dense, close_tiny),
        cmocka_unit_test_setup_teardown(dropped_entries, open_dense, close_tiny),
        {"dropped_entries, Mamba 2", dropped_entries, open_mamba, close_tiny, NULL},
        {"goes_back, Mamba 2", goes_back, open_mamba, close_tiny, NULL},
        {"common_beginning, Mamba 2", common_beginning, open_mamba, close_tiny, NULL},
        {"tiers_and_limits, Mamba 2", tiers_and_limits, open_mamba, close_tiny, NULL},
        {"goes_back, Mamba 2 beside attention", goes_back, open_beside, close_tiny, NULL},
        {"turns, Mamba 2 beside attention", turns, open_beside, close_tiny, NULL},
        {"common_beginning, Mamba 2 beside attention", common_beginning, open_beside, close_tiny, NULL},
        {"tiers_and_limits, Mamba 2 beside attention", tiers_and_limits, open_beside, close_tiny, NULL},
        {"goes_back, Kimi Delta", goes_back, open_kimi, close_tiny, NULL},
        {"common_beginning, Kimi Delta", common_beginning, open_kimi, close_tiny, NULL},
        {"tiers_and_limits, Kimi Delta", tiers_and_limits, open_kimi, close_tiny, NULL},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
