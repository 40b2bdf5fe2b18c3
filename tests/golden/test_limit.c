/* SPDX-License-Identifier: Apache-2.0
 *
 * Sessions with a limit on entries, under every policy that takes one; batches with sessions of h2o, which drops too.
 */
#define _GNU_SOURCE
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "golden/dropping.h"
#include "unit/count_memory.h"

static int open_model(void **state) {
    (void)state;
    open_tiny(TINY_LLAMA, 2);
    return 0;
}

static bool has(const int *positions, int n, int wanted) {
    for (int i = 0; i < n; i++)
        if (positions[i] == wanted) return true;
    return false;
}

typedef struct variant {
    const char *policy, *evict;
    double limit;
    uint64_t limit_bytes; /* instead */
} variant;

static void the_limit_holds(void **state) {
    const variant *v = *state;
    enum { PROMPT = 150, STEPS = 120 };
    ig_session_options o = options("full");
    ig_session *all = open_session(&o);
    o = options(v->policy);
    o.cache.memory.limit = v->limit;
    o.cache.memory.limit_bytes = v->limit_bytes;
    o.cache.memory.evict = v->evict;
    ig_session *s = open_session(&o);
    int limit = s->seq.limit, before[KV_HEADS][N_CTX], n_before[KV_HEADS];
    bool plain = !strcmp(v->policy, "infinigen-osdi24");
    int n_sinks = plain ? 0 : SINKS, n_recent = plain ? 1 : RECENT, n_lost_late = 0;
    assert_int_equal(limit, v->limit_bytes ? 130 : (int)ceil(v->limit * N_CTX));
    int32_t ids[N_CTX];
    fill(ids, 1);
    for (int n = PROMPT; n <= PROMPT + STEPS; n++) {
        if (n == PROMPT) {
            put(s, ids, n);
            put(all, ids, n);
        } else {
            step(s, ids[n - 1]);
            step(all, ids[n - 1]);
        }
        int expected = n < limit ? n : limit;
        for (int l = 0; l < LAYERS; l++)
            for (int h = 0; h < KV_HEADS; h++) {
                ig_entries e = ig_kv_entries(s->seq.kv, l, h);
                assert_int_equal(e.n, expected);
                assert_true(e.n_slots <= limit + N_BATCH);
            }
        for (int h = 0; h < KV_HEADS; h++) {
            int now[N_CTX], count = held_positions(now, s, all, h);
            for (int i = 0; i < n_sinks; i++) assert_int_equal(now[i], i);
            for (int i = 1; i <= n_recent; i++) assert_int_equal(now[count - i], n - i);
            if (n > PROMPT) {
                for (int i = 0; i < count - 1; i++) assert_true(has(before[h], n_before[h], now[i]));
                for (int i = n_sinks; i < n_before[h]; i++)
                    if (!has(now, count, before[h][i])) n_lost_late += i != n_sinks;
            }
            n_before[h] = count;
            memcpy(before[h], now, sizeof now);
        }
    }
    assert_true(stats(s).dropped == (uint64_t)(PROMPT + STEPS - limit) * LAYERS * KV_HEADS);
    assert_true(stats(s).n_entries == (uint64_t)limit * LAYERS * KV_HEADS);
    /* Only a rule that looks at use drops others than the oldest. */
    bool looks = strcmp(v->evict, "fifo") && strcmp(v->policy, "full");
    assert_true(looks == (n_lost_late > 0));
    ig_session_close(s);
    ig_session_close(all);
}

/* ---- nothing changes where nothing is lost ------------------------------------------- */

static void a_limit_that_is_not_reached(void **state) {
    const char *policy = *state;
    ig_session_options o = options(policy);
    ig_session *without = open_session(&o);
    o.cache.memory.limit = 1;
    ig_session *whole = open_session(&o);
    o.cache.memory.limit = 0.5;
    ig_session *half = open_session(&o);
    int32_t ids[N_CTX];
    fill(ids, 2);
    for (int n = 180; n <= N_CTX / 2; n++) {
        ig_session *each[] = {without, whole, half};
        for (int i = 0; i < 3; i++) n == 180 ? put(each[i], ids, n) : step(each[i], ids[n - 1]);
        same(without, whole);
        same(without, half);
    }
    put(without, ids, N_CTX - 20);
    put(whole, ids, N_CTX - 20);
    for (int n = N_CTX - 20; n < N_CTX; n++) {
        step(without, ids[n]);
        step(whole, ids[n]);
        same(without, whole);
    }
    assert_true(stats(whole).dropped == 0 && stats(half).dropped == 0);
    ig_session_close(without);
    ig_session_close(whole);
    ig_session_close(half);
}

/* The window's entries are never the oldest: what is dropped would not have been used, wherever the rest lies. */
static void only_what_is_used_matters(void **state) {
    (void)state;
    ig_session_options o = options("window");
    o.cache.budget = 0;
    o.cache.budget_entries = 50;
    o.cache.n_recent = 46;
    ig_session *without = open_session(&o);
    o.cache.memory.limit = 0.2;
    o.cache.memory.evict = "fifo";
    ig_session *with = open_session(&o);
    int32_t ids[N_CTX];
    fill(ids, 3);
    put(without, ids, 70);
    put(with, ids, 70);
    for (int n = 70; n < 300; n++) {
        step(without, ids[n]);
        step(with, ids[n]);
        same(without, with);
    }
    assert_true(stats(with).kv_bytes < stats(without).kv_bytes / 2);
    ig_session_close(without);
    ig_session_close(with);
}

/* A later prompt stays while there is anything older, though decode steps have selected that and nothing of it. */
static void a_later_prompt_stays(void **state) {
    const variant *v = *state;
    enum { FIRST = 30, STEPS = 100, NEXT = 70, LIMIT = 120 };
    ig_session_options o = options("full");
    ig_session *all = open_session(&o);
    o = options(v->policy);
    o.cache.memory.limit = v->limit;
    o.cache.memory.evict = v->evict;
    ig_session *s = open_session(&o), *each[] = {all, s};
    assert_int_equal(s->seq.limit, LIMIT);
    int32_t ids[N_CTX];
    fill(ids, 11);
    for (int i = 0; i < 2; i++) {
        put(each[i], ids, FIRST);
        for (int n = FIRST; n < FIRST + STEPS; n++) step(each[i], ids[n]);
        put(each[i], ids, FIRST + STEPS + NEXT);
    }
    for (int h = 0; h < KV_HEADS; h++) {
        int held[N_CTX];
        assert_int_equal(held_positions(held, s, all, h), LIMIT);
        for (int i = 0; i < NEXT; i++) assert_int_equal(held[LIMIT - 1 - i], FIRST + STEPS + NEXT - 1 - i);
    }
    ig_session_close(s);
    ig_session_close(all);
}

/* ---- batches, other prompts ------------------------------------------------------ */

static void batches_of_all_sorts(void **state) {
    (void)state;
    static const variant each[] = {
        {"h2o", NULL, 0, 0},       {"infinigen", "counter", 0.3, 0}, {"infinigen-osdi24", "lru", 0.4, 0},
        {"full", "fifo", 0.35, 0}, {"infinigen", NULL, 0, 0},        {"h2o", NULL, 0, 0},
        {"window", "lru", 0.3, 0}, {"snapkv", NULL, 0, 0},           {"pyramidkv", NULL, 0, 0}};
    enum { N = sizeof each / sizeof *each };
    ig_session *together[N], *alone[N];
    ig_error err = {0};
    int32_t ids[N_CTX], next[N];
    for (int k = 0; k < N; k++) {
        ig_session_options o = options(each[k].policy);
        o.n_ctx = N_CTX - 20 * k;
        o.cache.memory.limit = each[k].limit;
        o.cache.memory.evict = each[k].evict;
        o.cache.n_dense_layers = k % 3;
        together[k] = open_session(&o);
        alone[k] = open_session(&o);
        fill(ids, 10 + k);
        put(together[k], ids, 80 + 15 * k);
        put(alone[k], ids, 80 + 15 * k);
    }
    for (int i = 0; i < 40; i++) {
        for (int k = 0; k < N; k++) next[k] = (i * 97 + k * 13) % N_VOCAB;
        expect_ok(ig_session_decode(together, next, N, &err), &err);
        for (int k = 0; k < N; k++) {
            step(alone[k], next[k]);
            same(together[k], alone[k]);
        }
    }
    for (int k = 0; k < N; k++) {
        assert_true(stats(together[k]).dropped == stats(alone[k]).dropped);
        assert_true((stats(together[k]).dropped > 0) == (k != 4));
        ig_session_close(together[k]);
        ig_session_close(alone[k]);
    }
}

/* Behind the attention of the last layer. */
static void put_nan(void *user, ig_tap_place at, int layer) {
    (void)user;
    if (at == IG_TAP_HEADS && layer == LAYERS - 1) model->batch.h[3] = NAN;
}

/* Steps that fail while nothing is dropped yet have chosen nothing: what is dropped later is the same without them. */
static void steps_that_fail(void **state) {
    const variant *v = *state;
    ig_session_options o = options(v->policy);
    o.cache.memory.limit = v->limit;
    o.cache.memory.evict = v->evict;
    ig_session *a = open_session(&o), *b = open_session(&o);
    ig_error err = {0};
    int32_t ids[N_CTX];
    fill(ids, 11);
    put(a, ids, 60);
    put(b, ids, 60);
    for (int n = 60; n < 200; n++) {
        for (int32_t other = 0; n < 90 && other < 4; other++) {
            model->batch.tap = put_nan;
            assert_int_equal(ig_session_decode(&a, &other, 1, &err), IG_E_NUMBER);
            model->batch.tap = NULL;
            assert_int_equal(ig_session_tokens(a, NULL), n);
        }
        step(a, ids[n]);
        step(b, ids[n]);
        same(a, b);
    }
    assert_true(stats(a).dropped > 0 && stats(a).dropped == stats(b).dropped);
    ig_session_close(a);
    ig_session_close(b);
}

static void other_prompts(void **state) {
    const variant *v = *state;
    ig_session_options o = options(v->policy);
    o.cache.memory.limit = v->limit;
    o.cache.memory.evict = v->evict;
    ig_session *a = open_session(&o), *b = open_session(&o);
    int32_t ids[N_CTX], other[N_CTX];
    fill(ids, 8);
    fill(other, 9);
    memcpy(other, ids, 200 * sizeof *ids);
    put(a, ids, 220);
    for (int n = 220; n < 240; n++) step(a, ids[n]);
    assert_true(stats(a).dropped > 0);
    uint64_t n_prefilled = stats(a).n_prefilled;
    put(a, ids, 300); /* more of the same */
    assert_true(stats(a).n_prefilled == n_prefilled + 60);
    put(a, other, 300); /* 200 tokens in common, of which some are gone */
    assert_true(stats(a).n_prefilled == n_prefilled + 360);
    put(b, other, 300);
    same(a, b);
    for (int n = 300; n < 320; n++) {
        step(a, other[n]);
        step(b, other[n]);
        same(a, b);
    }
    ig_error err = {0};
    expect_ok(ig_session_cut(a, 100, &err), &err);
    assert_int_equal(ig_session_tokens(a, NULL), 0);
    ig_session_close(a);
    ig_session_close(b);
}

/* ---- what is refused, what is planned ----------------------------------------------------- */

static void refuse(const ig_session_options *o, ig_status status, const char *text) {
    ig_session *s;
    ig_error err = {0};
    assert_int_equal(ig_session_open(&s, model, o, &err), status);
    if (!strstr(err.text, text)) fail_msg("%s", err.text);
}

static void limits_that_make_no_sense(void **state) {
    (void)state;
    ig_session_options o = options("quest");
    o.cache.memory.limit = 0.5;
    refuse(&o, IG_E_ARG, "policy quest takes none");
    o.cache.policy = "h2o";
    refuse(&o, IG_E_ARG, "policy h2o takes none, its budget is one");
    o.cache.policy = "infinigen";
    o.cache.memory.limit = 0.05;
    refuse(&o, IG_E_LIMIT, "5 % is too small: a KV head has 20 entries then and needs 21");
    o.cache.memory.limit_bytes = 41 * LAYERS * KV_HEADS * DIM * 2;
    refuse(&o, IG_E_ARG, "KV limit: a share or bytes, not both");
    o.cache.memory.limit = 0;
    refuse(&o, IG_E_LIMIT, "need at least 21504");
    o.cache.memory.limit_bytes = 1;
    refuse(&o, IG_E_LIMIT, "KV limit of 1 bytes is too small");
    o.cache.memory.limit_bytes = 0;
    o.cache.memory.limit = 0.5;
    o.cache.memory.disk_bytes = 64 << 20;
    o.cache.memory.disk_path = "/tmp";
    refuse(&o, IG_E_ARG, "not together with a disk tier");
}

static ig_cache_plan_info planned(const ig_session_options *o) {
    ig_cache_plan_info plan;
    ig_error err = {0};
    expect_ok(ig_cache_plan(&plan, model, o, &err), &err);
    return plan;
}

static void plans_know_the_limit(void **state) {
    (void)state;
    ig_session_options o = options("infinigen");
    o.cache.n_dense_layers = 1;
    ig_cache_plan_info all = planned(&o), some;
    o.cache.memory.limit = 0.25;
    some = planned(&o);
    assert_true(some.sketch < all.sketch / 2);
    assert_true(some.kv < all.kv * (1 * N_CTX + 3 * (100 + N_BATCH + 32)) / (4 * N_CTX));
    int32_t ids[N_CTX];
    fill(ids, 1);
    ig_session *s = open_session(&o);
    put(s, ids, 390);
    for (int n = 390; n < N_CTX; n++) step(s, ids[n]);
    assert_true(stats(s).kv_bytes <= some.kv && stats(s).sketch_bytes <= some.sketch);
    ig_session_close(s);
    /* The same in bytes: the dense layer comes off first. */
    o.cache.memory.limit = 0;
    o.cache.memory.limit_bytes = (N_CTX + 3 * 100) * KV_HEADS * DIM * 4;
    s = open_session(&o);
    assert_int_equal(s->seq.limit, 100);
    ig_session_close(s);
}

/* What dropping needs is taken when the session is opened. */
static void dropping_allocates_nothing(void **state) {
    (void)state;
    static const variant each[] = {{"h2o", NULL, 0, 0},
                                   {"infinigen", "counter", 0.3, 0},
                                   {"infinigen", "lru", 0.3, 0},
                                   {"snapkv", NULL, 0, 0},
                                   {"full", "fifo", 0.3, 0}};
    int32_t ids[N_CTX];
    fill(ids, 1);
    for (size_t k = 0; k < sizeof each / sizeof *each; k++) {
        ig_session_options o = options(each[k].policy);
        o.cache.memory.limit = each[k].limit;
        o.cache.memory.evict = each[k].evict;
        ig_session *s = open_session(&o);
        put(s, ids, 300);
        memory_count_start(-1);
        for (int n = 300; n < 320; n++) step(s, ids[n]);
        memory_count_stop();
        assert_int_equal(memory_count.n_taken, 0);
        assert_true(stats(s).dropped > 0);
        ig_session_close(s);
    }
}

static void another_policy_takes_over(void **state) {
    (void)state;
    ig_error err = {0};
    int32_t ids[N_CTX];
    fill(ids, 1);
    ig_session_options o = options("h2o"), next = options("quest");
    ig_session *s = open_session(&o);
    put(s, ids, 300);
    step(s, ids[300]);
    assert_int_equal(ig_session_set_cache(s, &next.cache, &err), IG_E_UNSUPPORTED);
    next = options("full");
    expect_ok(ig_session_set_cache(s, &next.cache, &err), &err);
    step(s, ids[301]);
    next = options("infinigen");
    next.cache.budget = 1;
    expect_ok(ig_session_set_cache(s, &next.cache, &err), &err);
    step(s, ids[302]);
    assert_true(stats(s).n_entries == (uint64_t)(61 + 2) * LAYERS * KV_HEADS);
    expect_ok(ig_session_cut(s, 0, &err), &err);
    expect_ok(ig_session_set_cache(s, &o.cache, &err), &err);
    put(s, ids, 300);
    step(s, ids[300]);
    assert_true(stats(s).n_entries == (uint64_t)61 * LAYERS * KV_HEADS);
    ig_session_close(s);
}

int main(void) {
    static variant variants[] = {{"infinigen", "counter", 0.3, 0},
                                 {"infinigen", "lru", 0.25, 0},
                                 {"infinigen", "fifo", 0.3, 0},
                                 {"full", "counter", 0.3, 0},
                                 {"window", "counter", 0.3, 0},
                                 {"infinigen-osdi24", "counter", 0.3, 0},
                                 {"infinigen-osdi24", "lru", 0.3, 0},
                                 {"infinigen", "counter", 0, 130 * LAYERS * KV_HEADS * DIM * 4},
                                 {"h2o", NULL, 0, 0}};
    const struct CMUnitTest tests[] = {
        {"infinigen, counter", the_limit_holds, NULL, NULL, &variants[0]},
        {"infinigen, lru", the_limit_holds, NULL, NULL, &variants[1]},
        {"infinigen, fifo", the_limit_holds, NULL, NULL, &variants[2]},
        {"full, counter", the_limit_holds, NULL, NULL, &variants[3]},
        {"window, counter", the_limit_holds, NULL, NULL, &variants[4]},
        {"infinigen-osdi24, counter", the_limit_holds, NULL, NULL, &variants[5]},
        {"infinigen-osdi24, lru", the_limit_holds, NULL, NULL, &variants[6]},
        {"infinigen, bytes", the_limit_holds, NULL, NULL, &variants[7]},
        {"not reached: infinigen", a_limit_that_is_not_reached, NULL, NULL, "infinigen"},
        {"not reached: infinigen-osdi24", a_limit_that_is_not_reached, NULL, NULL, "infinigen-osdi24"},
        {"not reached: full", a_limit_that_is_not_reached, NULL, NULL, "full"},
        cmocka_unit_test(only_what_is_used_matters),
        {"a later prompt: infinigen, counter", a_later_prompt_stays, NULL, NULL, &variants[0]},
        {"a later prompt: infinigen-osdi24, counter", a_later_prompt_stays, NULL, NULL, &variants[5]},
        {"a later prompt: infinigen-osdi24, lru", a_later_prompt_stays, NULL, NULL, &variants[6]},
        cmocka_unit_test(batches_of_all_sorts),
        {"other prompts: infinigen", other_prompts, NULL, NULL, &variants[0]},
        {"other prompts: infinigen-osdi24", other_prompts, NULL, NULL, &variants[6]},
        {"other prompts: h2o", other_prompts, NULL, NULL, &variants[8]},
        {"steps that fail: infinigen, counter", steps_that_fail, NULL, NULL, &variants[0]},
        {"steps that fail: infinigen, lru", steps_that_fail, NULL, NULL, &variants[1]},
        {"steps that fail: infinigen-osdi24", steps_that_fail, NULL, NULL, &variants[5]},
        cmocka_unit_test(limits_that_make_no_sense),
        cmocka_unit_test(plans_know_the_limit),
        cmocka_unit_test(dropping_allocates_nothing),
        cmocka_unit_test(another_policy_takes_over),
    };
    return cmocka_run_group_tests(tests, open_model, close_tiny);
}
