/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers with a sliding window let go of what it has passed. Whatever is cut, shared, stored or computed again, logits
 * are bitwise those of a session that keeps everything.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "golden/tiny_session.h"
#include "sanitized.h"

enum { LONG = 4800 };

typedef struct variant {
    const char *model, *policy, *type;
    int mark; /* a session can go back to these many tokens, whatever was let go of: 16 times the window and 128 tokens
                 before, in whole pieces */
} variant;

static char store[] = "/tmp/infinigen-test-XXXXXX";

static int open_all(void **state) {
    const variant *v = *state;
    open_tiny(v->model, 2);
    return mkdtemp(store) ? 0 : -1;
}

static int close_all(void **state) {
    char command[64];
    close_tiny(state);
    snprintf(command, sizeof command, "rm -r %s", store);
    memset(store + sizeof store - 7, 'X', 6); /* for the next test */
    return system(command);
}

static ig_session_options options_of(const variant *v, bool whole) {
    ig_session_options o = ig_session_defaults();
    o.n_ctx = LONG;
    o.n_batch = 64;
    o.cache.policy = v->policy;
    o.cache.budget = 0.1;
    o.cache.n_dense_layers = 1;
    o.cache.memory.type = v->type;
    o.cache.memory.whole_windows = whole;
    return o;
}

static ig_session *open_as(const variant *v, bool whole) {
    ig_session_options o = options_of(v, whole);
    return open_session(&o);
}

static int32_t token(int text, int i) {
    return (int32_t)(((unsigned)text * 977u + (unsigned)i * 7919u + (unsigned)(i * i) * 31u) % N_VOCAB);
}

/* `common` tokens that all texts begin with, then those of this one. */
static void fill(int32_t *ids, int text, int common) {
    for (int i = 0; i < LONG; i++) ids[i] = token(i < common ? 0 : text, i);
}

static void go_on_together(ig_session *a, ig_session *b, int n) {
    for (int i = 0; i < n; i++) {
        step(a, token(9, i));
        step(b, token(9, i));
        same(a, b);
    }
}

static int cut_to(ig_session *s, int n) {
    ig_error err = {0};
    expect_ok(ig_session_cut(s, n, &err), &err);
    return ig_session_tokens(s, NULL);
}

static void less_memory_and_the_same_bits(void **state) {
    const variant *v = *state;
    ig_session *few = open_as(v, false), *all = open_as(v, true);
    int32_t ids[LONG];
    fill(ids, 1, 0);
    for (int n = 700; n < LONG; n += 700) {
        put(few, ids, n);
        put(all, ids, n);
        same(few, all);
    }
    go_on_together(few, all, 100);
    assert_true(stats(few).kv_bytes < 7 * stats(all).kv_bytes / 10);
    assert_true(stats(few).n_entries < 7 * stats(all).n_entries / 10);
    ig_session_options o = options_of(v, false);
    ig_cache_plan_info plan;
    ig_error err = {0};
    expect_ok(ig_cache_plan(&plan, model, &o, &err), &err);
    assert_true(stats(few).kv_bytes <= plan.kv);
    ig_session_close(few);
    ig_session_close(all);
}

/* With a limit too, where other layers hold less. */
static void no_more_than_planned(void **state) {
    const variant *v = *state;
    ig_session_options o = options_of(v, false);
    int32_t ids[LONG];
    ig_cache_plan_info plan;
    ig_error err = {0};
    fill(ids, 1, 0);
    o.cache.memory.limit = 0.3;
    expect_ok(ig_cache_plan(&plan, model, &o, &err), &err);
    ig_session *s = open_session(&o);
    put(s, ids, LONG);
    assert_in_range(stats(s).kv_bytes, plan.kv / 2, plan.kv);
    ig_session_close(s);
}

static void goes_back_to_what_is_whole(void **state) {
    const variant *v = *state;
    ig_session *few = open_as(v, false), *all = open_as(v, true);
    int32_t ids[LONG];
    fill(ids, 1, 0);
    put(few, ids, LONG - 10);
    put(all, ids, LONG - 10);
    go_on_together(few, all, 10); /* as long as it can get */
    assert_int_equal(cut_to(few, LONG - 20), LONG - 20);
    assert_int_equal(cut_to(few, LONG - 333), LONG - 333);
    const int to[] = {LONG - 1500, v->mark + 50, v->mark, v->mark - 1, 160};
    for (size_t i = 0; i < sizeof to / sizeof *to; i++) {
        int held = cut_to(few, to[i]);
        assert_in_range(held, to[i] < v->mark ? 0 : v->mark, to[i]);
        if (i == 0) assert_true(held < to[i]);
        put(few, ids, to[i] + 200);
        assert_int_equal(cut_to(all, 0), 0);
        put(all, ids, to[i] + 200);
        go_on_together(few, all, 20);
        put(few, ids, LONG - 1);
    }
    ig_session_close(few);
    ig_session_close(all);
}

/* A session alone in a cache, as full as it gets, cut to n tokens: the tokens it holds then. */
static int fill_and_cut(ig_session **out, ig_session_options *o, const int32_t *ids, int n) {
    ig_error err = {0};
    expect_ok(ig_cache_open(&o->shared, model, o, &err), &err);
    *out = open_session(o);
    put(*out, ids, o->n_ctx - 7);
    return cut_to(*out, n);
}

static void close_cut(ig_session *s, ig_session_options *o) {
    ig_session_close(s);
    ig_cache_close(o->shared);
    o->shared = NULL;
}

/* Within a piece that others may find, which is copied: room for the copy is not made of what comes before it. */
static void cut_where_the_first_whole_ones_are(void **state) {
    const variant *v = *state;
    ig_session_options o = options_of(v, false);
    int32_t ids[LONG];
    fill(ids, 1, 0);
    o.n_ctx = 2800; /* such that the copy finds no free frame */
    o.cache.memory.n_sessions = 1;
    ig_session *s, *all = open_as(v, true);
    int first = v->mark / 2, end = o.n_ctx - 7;
    while (first < end) {
        int n = (first + end) / 2;
        bool is_there = fill_and_cut(&s, &o, ids, n) == n;
        close_cut(s, &o);
        if (is_there)
            end = n;
        else
            first = n + 1;
    }
    for (int n = first; n < first + 150; n += 29) {
        assert_int_equal(fill_and_cut(&s, &o, ids, n), n);
        put(s, ids, n + 20);
        cut_to(all, 0);
        put(all, ids, n + 20);
        same(s, all);
        close_cut(s, &o);
    }
    ig_session_close(all);
}

/* Sessions of one memory, filled, cut, closed and opened at random. */
static void shared_and_cut_at_random(void **state) {
    enum { N = 3, COMMON = 1700 };
    const variant *v = *state;
    ig_session_options o = options_of(v, false);
    ig_error err = {0};
    o.cache.memory.n_sessions = N;
    expect_ok(ig_cache_open(&o.shared, model, &o, &err), &err);
    ig_session *few[N] = {0}, *all = open_as(v, true);
    int32_t ids[LONG];
    srand(5);
    for (int round = 0; round < TIMES(20); round++) {
        int i = rand() % N, n = 1 + rand() % (LONG - 12);
        if (few[i] && rand() % 3 == 0) ig_session_close(few[i]), few[i] = NULL;
        if (!few[i]) few[i] = open_session(&o);
        if (rand() % 3 == 0) cut_to(few[i], rand() % LONG);
        fill(ids, 1 + rand() % 4, COMMON);
        put(few[i], ids, n);
        cut_to(all, 0);
        put(all, ids, n);
        same(few[i], all);
        go_on_together(few[i], all, 1 + rand() % 10);
    }
    for (int i = 0; i < N; i++) { /* all of them full, of texts that have nothing in common */
        if (!few[i]) few[i] = open_session(&o);
        fill(ids, 20 + i, 0);
        put(few[i], ids, LONG);
    }
    for (int i = 0; i < N; i++) ig_session_close(few[i]);
    ig_session *next = open_session(&o);
    put(next, ids, LONG); /* kept as whole as there is room for */
    assert_true(stats(next).n_taken >= (uint64_t)v->mark);
    ig_session_close(next);
    ig_session_close(all);
    ig_cache_close(o.shared);
}

/* Prompts of clients that take turns: each finds what it had computed, as long as there is room for ends. */
static void ends_stay(void **state) {
    enum { N = 4, PROMPT = 1500 };
    const variant *v = *state;
    ig_session_options o = options_of(v, false);
    ig_error err = {0};
    int32_t ids[LONG];
    o.n_ctx = 2048;
    o.cache.memory.n_sessions = N;
    expect_ok(ig_cache_open(&o.shared, model, &o, &err), &err);
    for (int turn = 0; turn < 2 * (N + 1); turn++) {
        ig_session *s = open_session(&o);
        fill(ids, 1 + turn % (N + 1), 0);
        put(s, ids, PROMPT + turn);
        assert_true(turn <= N || stats(s).n_taken >= PROMPT - 128);
        ig_session_close(s);
    }
    ig_cache_close(o.shared);
}

/* A store on disk has whole pieces, and makes thin ones whole. */
static void stored_whole(void **state) {
    const variant *v = *state;
    ig_error err = {0};
    ig_session_options o = options_of(v, false);
    int32_t ids[LONG];
    fill(ids, 1, 0);
    o.cache.memory.store_path = store;
    ig_session *all = open_as(v, true);
    for (int time = 0; time < 2; time++) {
        expect_ok(ig_cache_open(&o.shared, model, &o, &err), &err);
        ig_session *s = open_session(&o);
        put(s, ids, LONG - 40);
        if (time) assert_true(stats(s).n_taken >= LONG - 200);
        cut_to(all, 0);
        put(all, ids, LONG - 40);
        same(s, all);
        go_on_together(s, all, 40);
        cut_to(s, 2000);
        put(s, ids, 2000); /* from the store, where the memory has let go of it */
        if (time) assert_true(stats(s).n_taken >= LONG + 1800);
        cut_to(all, 0);
        put(all, ids, 2000);
        go_on_together(s, all, 20);
        ig_session_close(s);
        ig_cache_close(o.shared);
        o.shared = NULL;
    }
    ig_session_close(all);
}

#define GEMMA "tests/golden/models/gemma3"
#define GPT_OSS "tests/golden/models/gpt-oss/model.gguf"

#define WITH(test, ...)                                                               \
    {                                                                                 \
#test " " #__VA_ARGS__, test, open_all, close_all, &(variant) { __VA_ARGS__ } \
    }
#define ALL(...)                                                                                     \
    WITH(less_memory_and_the_same_bits, __VA_ARGS__), WITH(goes_back_to_what_is_whole, __VA_ARGS__), \
        WITH(shared_and_cut_at_random, __VA_ARGS__), WITH(stored_whole, __VA_ARGS__)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH(ends_stay, GEMMA, "full", "f16", 0),
        ALL(GEMMA, "infinigen", "q8", 16 * 192),
        ALL("tests/golden/models/mistral-wide", "full", "f16", 16 * 176), /* two blocks in a piece */
        ALL("tests/golden/models/gemma4-e", "infinigen", "q8", 16 * 192), /* heads of their own, some shared */
        ALL("tests/golden/models/llama4", "infinigen", "f16", 16 * 160),  /* chunks */
        WITH(no_more_than_planned, GEMMA, "infinigen", "q8", 0),
        WITH(no_more_than_planned, "tests/golden/models/gemma4", "infinigen", "q4", 0),
        WITH(shared_and_cut_at_random, "tests/golden/models/qwen3.5", "infinigen", "q8", 0), /* recurrences likewise */
#ifndef IS_SANITIZED /* nor all of them where that takes minutes */
        ALL(GEMMA, "full", "f16", 16 * 160),
        ALL(GPT_OSS, "infinigen", "f16", 16 * 160),
        ALL(TINY_MISTRAL, "full", "q4", 16 * 256),
#endif
        WITH(cut_where_the_first_whole_ones_are, TINY_MISTRAL, "full", "q4", 16 * 256),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
