/* SPDX-License-Identifier: Apache-2.0
 *
 * The disk tier under whole sessions: whatever the policy, the order of eviction and the way of reading, the logits are
 * bitwise those of a session whose cache lies in RAM.
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

#include "base/compiler.h"
#include "golden/tiny_session.h"

enum { N_CTX = 640, N_PROMPT = 600, N_STEPS = 10 }; /* more than one piece of a scan */

static int32_t ids[N_CTX];

static ig_session_options options(const char *policy) {
    ig_session_options o = ig_session_defaults();
    o.n_ctx = N_CTX;
    o.n_batch = 64;
    o.cache.policy = policy;
    o.cache.budget = 0.15;
    o.cache.n_recent = 16;
    o.cache.n_dense_layers = 1;
    return o;
}

/* Prompt, generation, a cut back into what is on disk, another way on. */
static void run_both(ig_session *a, ig_session *b) {
    ig_session *both[2] = {a, b};
    ig_error err = {0};
    static const int cuts[] = {N_PROMPT, N_PROMPT - 37, 300, 33};
    for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++) {
        int n = cuts[c];
        for (int i = 0; i < N_CTX; i++)
            ids[i] = (int32_t)((unsigned)(i * 7919 + (i > n - 20 ? (int)c * 13 : 0)) % N_VOCAB);
        for (int k = 0; k < 2; k++) expect_ok(ig_session_sync(both[k], ids, n, &err), &err);
        same(a, b);
        for (int i = n; i < n + N_STEPS && i < N_CTX; i++) {
            for (int k = 0; k < 2; k++) expect_ok(ig_session_decode(&both[k], &ids[i], 1, &err), &err);
            same(a, b);
        }
    }
}

typedef struct variant {
    const char *policy, *evict;
    bool no_prefetch, no_uring, roomy;
} variant;

static void disk_is_like_ram(void **state) {
    const variant *v = *state;
    ig_session_options in_ram = options(v->policy), tiered = in_ram;
    tiered.cache.memory.disk_bytes = 64 << 20;
    tiered.cache.memory.disk_path = folder;
    tiered.cache.memory.evict = v->evict;
    tiered.cache.no_prefetch = v->no_prefetch;
    tiered.cache.memory.no_uring = v->no_uring;
    uint64_t least = least_ram(tiered);
    tiered.cache.memory.ram_bytes = v->roomy ? least + (least / 8) : least;
    ig_session *a = open_session(&in_ram), *b = open_session(&tiered);
    run_both(a, b);
    ig_session_stats st;
    ig_session_get_stats(b, &st);
    assert_true(st.kv_bytes <= tiered.cache.memory.ram_bytes);
    assert_true(st.demoted > 0 && st.written_bytes > 0 && st.read_bytes > 0);
    if (!strcmp(v->policy, "infinigen")) {
        assert_true(st.recalled > 0);
        if (v->no_prefetch) assert_int_equal(st.prefetch_hits, 0);
    }
    ig_session_close(a);
    ig_session_close(b);
}

/* Sequences of a batch, some in RAM and some not, each with its own selection. */
static void batches_mix(void **state) {
    (void)state;
    ig_session *together[4], *alone[4];
    ig_error err = {0};
    for (int k = 0; k < 4; k++) {
        ig_session_options o = options(k % 2 ? "full" : "infinigen"), t = o;
        t.cache.memory.disk_bytes = 64 << 20;
        t.cache.memory.disk_path = folder;
        t.cache.memory.ram_bytes = least_ram(t);
        together[k] = open_session(k < 2 ? &t : &o);
        alone[k] = open_session(&o);
        for (int i = 0; i < N_CTX; i++) ids[i] = (i * 31 + k * 17) % N_VOCAB;
        expect_ok(ig_session_sync(together[k], ids, 450 + 40 * k, &err), &err);
        expect_ok(ig_session_sync(alone[k], ids, 450 + 40 * k, &err), &err);
    }
    for (int step = 0; step < N_STEPS; step++) {
        int32_t next[4];
        for (int k = 0; k < 4; k++) next[k] = (step * 97 + k) % N_VOCAB;
        expect_ok(ig_session_decode(together, next, 4, &err), &err);
        for (int k = 0; k < 4; k++) {
            expect_ok(ig_session_decode(&alone[k], &next[k], 1, &err), &err);
            same(together[k], alone[k]);
        }
    }
    for (int k = 0; k < 4; k++) {
        ig_session_close(together[k]);
        ig_session_close(alone[k]);
    }
}

static void a_full_disk_is_an_error(void **state) {
    (void)state;
    ig_session_options o = options("infinigen");
    ig_error err = {0};
    o.cache.memory.disk_bytes = 64 << 10; /* sixteen blocks */
    o.cache.memory.disk_path = folder;
    o.cache.memory.ram_bytes = least_ram(o);
    ig_session *s = open_session(&o);
    for (int i = 0; i < N_CTX; i++) ids[i] = i % N_VOCAB;
    assert_int_equal(ig_session_sync(s, ids, N_PROMPT, &err), IG_E_LIMIT);
    assert_true(err.text[0] != 0);
    int held = ig_session_tokens(s, NULL);
    assert_true(held < N_PROMPT && !ig_session_logits(s));
    expect_ok(ig_session_sync(s, ids, 30, &err), &err); /* what fits still works */
    ig_session_close(s);

    o.cache.memory.disk_path = "/nonexistent/folder";
    assert_true(ig_session_open(&s, model, &o, &err) != IG_OK);
    assert_non_null(strstr(err.text, "/nonexistent/folder"));
    o.cache.memory.disk_bytes = 0;
    assert_int_equal(ig_session_open(&s, model, &o, &err), IG_E_ARG);
}

/* What a plan says yes to can be opened, and what not is refused in the same words. */
static void plans_are_as_strict_as_opening(void **state) {
    (void)state;
    for (int i = 0; i < N_CTX; i++) ids[i] = i % N_VOCAB;
    static const char *const policies[] = {"full", "infinigen", "h2o", "pyramidkv"};
    for (size_t i = 0; i < IG_COUNT(policies); i++) {
        ig_session_options o = options(policies[i]);
        ig_cache_plan_info plan;
        ig_session *s;
        ig_error said = {0}, err = {0};
        o.cache.memory.disk_bytes = 64 << 20;
        o.cache.memory.disk_path = folder;
        uint64_t least = least_ram(o);
        o.cache.memory.ram_bytes = least - 1;
        assert_int_equal(ig_session_open(&s, model, &o, &said), IG_E_LIMIT);
        assert_int_equal(ig_cache_plan(&plan, model, &o, &err), IG_E_LIMIT);
        assert_string_equal(err.text, said.text);
        for (int k = 0; k < 3; k++) { /* as little as can be, a little more, far more than needed */
            o.cache.memory.ram_bytes = k == 0 ? least : k == 1 ? least + (least / 8) : 1 << 30;
            expect_ok(ig_cache_plan(&plan, model, &o, &err), &err);
            assert_true(k ? plan.kv > least && plan.kv <= o.cache.memory.ram_bytes : plan.kv == least);
            s = open_session(&o);
            put(s, ids, N_CTX);
            assert_true(stats(s).kv_bytes <= plan.kv);
            ig_session_close(s);
        }
        o.cache.memory.disk_bytes = 4095; /* less than a block */
        assert_int_equal(ig_session_open(&s, model, &o, &said), IG_E_LIMIT);
        assert_int_equal(ig_cache_plan(&plan, model, &o, &err), IG_E_LIMIT);
        assert_string_equal(err.text, said.text);
    }
}

int main(void) {
    static variant variants[] = {
        {"full", "counter", false, false, false},      {"full", "fifo", false, true, true},
        {"infinigen", "counter", false, false, false}, {"infinigen", "lru", false, false, true},
        {"infinigen", "fifo", true, false, false},     {"infinigen", "counter", false, true, true},
    };
    static variant windowed[] = {{"full", "counter", false, false, false}, {"infinigen", "lru", false, true, false}};
    const struct CMUnitTest tests[] = {
        {"full", disk_is_like_ram, NULL, NULL, &variants[0]},
        {"full, threads", disk_is_like_ram, NULL, NULL, &variants[1]},
        {"infinigen, counter", disk_is_like_ram, NULL, NULL, &variants[2]},
        {"infinigen, lru", disk_is_like_ram, NULL, NULL, &variants[3]},
        {"infinigen, fifo, no prefetch", disk_is_like_ram, NULL, NULL, &variants[4]},
        {"infinigen, threads", disk_is_like_ram, NULL, NULL, &variants[5]},
        cmocka_unit_test(batches_mix),
        cmocka_unit_test(a_full_disk_is_an_error),
        cmocka_unit_test(plans_are_as_strict_as_opening),
    };
    const struct CMUnitTest window_tests[] = {
        {"windows, full", disk_is_like_ram, NULL, NULL, &windowed[0]},
        {"windows, infinigen", disk_is_like_ram, NULL, NULL, &windowed[1]},
    };
    if (!mkdtemp(folder)) return 1;
    int failed = cmocka_run_group_tests(tests, open_tiny_llama, close_tiny);
    failed += cmocka_run_group_tests(window_tests, open_tiny_mistral, close_tiny);
    if (rmdir(folder)) failed++; /* nothing may be left in it */
    return failed;
}
