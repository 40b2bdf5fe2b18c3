/* SPDX-License-Identifier: Apache-2.0
 *
 * Sessions on a tiny grouped-query model: syncing a prefix, batches of sequences, limits, interruption. What must be
 * equal is compared bitwise.
 */
#define _GNU_SOURCE
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "golden/tiny_session.h"
#include "policy/policy.h"

enum { N_CTX = 192, BATCH = 8 };

static int open_model(void **state) {
    (void)state;
    open_tiny(TINY_LLAMA, 3);
    return 0;
}

static ig_session *open_policy(const char *policy, int n_batch) {
    ig_session_options o = ig_session_defaults();
    o.n_ctx = N_CTX;
    o.n_batch = n_batch;
    o.cache.policy = policy;
    o.cache.budget = 0.3;
    o.cache.n_recent = 8;
    o.cache.n_dense_layers = 1;
    return open_session(&o);
}

static int32_t token(int seed, int i) {
    return (int32_t)(((unsigned)seed * 977u + (unsigned)i * 7919u + (unsigned)(i * i) * 31u) % N_VOCAB);
}

static void fill(int32_t *ids, int seed, int n) {
    for (int i = 0; i < n; i++) ids[i] = token(seed, i);
}

static void hold(ig_session *s, const int32_t *ids, int n) {
    put(s, ids, n);
    assert_int_equal(ig_session_tokens(s, NULL), n);
    assert_non_null(ig_session_logits(s));
}

/* What a session was before must not show: the same steps after any detour give the same bits. */
static void sync_cuts_back_and_extends(void **state) {
    (void)state;
    int32_t ids[N_CTX], other[N_CTX];
    fill(ids, 1, N_CTX);
    memcpy(other, ids, sizeof ids);
    fill(other + 40, 2, N_CTX - 40);
    ig_session *a = open_policy("infinigen", 20), *b = open_policy("infinigen", 20);
    hold(a, ids, 100);
    hold(a, other, 150); /* shares 40 tokens, two batches */
    hold(a, ids, 40);    /* a prefix of what it holds */
    hold(a, ids, 100);
    hold(b, ids, 39);
    hold(b, ids, 40);
    hold(b, ids, 100);
    same(a, b);
    uint64_t before, after;
    ig_session_stats st;
    ig_session_get_stats(a, &st);
    before = st.n_prefilled;
    hold(a, ids, 100); /* nothing to do */
    ig_session_get_stats(a, &st);
    after = st.n_prefilled;
    assert_int_equal(before, after);
    for (int i = 100; i < 130; i++) {
        ig_error err = {0};
        expect_ok(ig_session_decode(&a, &ids[i], 1, &err), &err);
        expect_ok(ig_session_decode(&b, &ids[i], 1, &err), &err);
        same(a, b);
    }
    ig_session_close(a);
    ig_session_close(b);
}

/* Another prompt, of which nothing was held: as in a session of its own. */
static void an_earlier_prompt_does_not_show(void **state) {
    int32_t first[N_CTX], ids[N_CTX];
    ig_error err = {0};
    (void)state;
    fill(first, 3, N_CTX);
    fill(ids, 4, N_CTX);
    const ig_policy_info *info;
    for (size_t i = 0; (info = ig_cache_policy(i)); i++) {
        const char *policy = info->name;
        if (strcmp(policy, "indexer") == 0) continue; /* the model brings none along */
        ig_session *a = open_policy(policy, 64), *b = open_policy(policy, 64);
        hold(a, first, 120);
        for (int t = 120; t < 130; t++) expect_ok(ig_session_decode(&a, &first[t], 1, &err), &err);
        hold(a, ids, 150);
        hold(b, ids, 150);
        for (int t = 150; t < 170; t++) {
            expect_ok(ig_session_decode(&a, &ids[t], 1, &err), &err);
            expect_ok(ig_session_decode(&b, &ids[t], 1, &err), &err);
            if (memcmp(ig_session_logits(a), ig_session_logits(b), N_VOCAB * sizeof(float)))
                fail_msg("%s: token %d", policy, t);
        }
        ig_session_close(a);
        ig_session_close(b);
    }
}

/* Steps without a prompt, in a session that held another text. */
static void an_earlier_text_does_not_show(void **state) {
    int32_t first[N_CTX], ids[N_CTX];
    ig_error err = {0};
    (void)state;
    fill(first, 5, N_CTX);
    fill(ids, 6, N_CTX);
    const ig_policy_info *info;
    for (size_t i = 0; (info = ig_cache_policy(i)); i++) {
        const char *policy = info->name;
        if (strcmp(policy, "indexer") == 0) continue; /* the model brings none along */
        ig_session *a = open_policy(policy, 64), *b = open_policy(policy, 64);
        hold(a, first, 120);
        for (int t = 120; t < 123; t++) step(a, first[t]);
        expect_ok(ig_session_cut(a, 0, &err), &err);
        for (int t = 0; t < 40; t++) {
            step(a, ids[t]);
            step(b, ids[t]);
            if (memcmp(ig_session_logits(a), ig_session_logits(b), N_VOCAB * sizeof(float)))
                fail_msg("%s: token %d", policy, t);
        }
        ig_session_close(a);
        ig_session_close(b);
    }
}

static void batch_mates_do_not_matter(void **state) {
    const char *policy = *state;
    ig_session *together[BATCH], *alone[BATCH];
    int32_t ids[BATCH][N_CTX], next[BATCH];
    ig_error err = {0};
    for (int b = 0; b < BATCH; b++) {
        int n = 3 + b * 17; /* ragged */
        fill(ids[b], 10 + b, N_CTX);
        together[b] = open_policy(b % 2 ? policy : "infinigen", 64);
        alone[b] = open_policy(b % 2 ? policy : "infinigen", 64);
        hold(together[b], ids[b], n);
        hold(alone[b], ids[b], n);
    }
    for (int step = 0; step < 40; step++) {
        int n = BATCH - step % 3; /* sometimes fewer, in another order */
        for (int b = 0; b < n; b++) next[b] = token(step, b);
        expect_ok(ig_session_decode(together, next, n, &err), &err);
        for (int b = 0; b < n; b++) {
            expect_ok(ig_session_decode(&alone[b], &next[b], 1, &err), &err);
            same(together[b], alone[b]);
        }
    }
    for (int b = 0; b < BATCH; b++) {
        ig_session_stats st;
        ig_session_get_stats(together[b], &st);
        if (!strcmp(st.policy, "full"))
            assert_true(st.selected_share == 1);
        else if (b > 2)
            assert_true(st.selected_share < 0.7);
        ig_session_close(together[b]);
        ig_session_close(alone[b]);
    }
}

/* Long enough that lists are cut into parts, where there are fewer of them than threads; with a disk, what is not read
 * is estimated while the rest comes. */
static void threads_and_disks_do_not_matter(void **state) {
    enum { LONG = 2 * IG_POLICY_PART + 300, N_STEPS = 4 };
    static int32_t ids[LONG];
    float logits[N_VOCAB] = {0};
    fill(ids, 5, LONG);
    for (int i = 0; i < 6; i++) {
        int n_threads = 1 << i / 2;
        ig_context *c;
        ig_model *m;
        ig_session *s;
        ig_error err = {0};
        ig_context_options co = ig_context_defaults();
        co.n_threads = n_threads;
        co.cpu_level = test_cpu_level();
        ig_session_options so = ig_session_defaults();
        so.n_ctx = LONG;
        so.cache.policy = *state;
        so.cache.budget = 0.3;
        if (i % 2) {
            so.cache.memory.disk_bytes = 64 << 20;
            so.cache.memory.disk_path = "/tmp";
            so.cache.memory.ram_bytes = least_ram(so);
        }
        expect_ok(ig_context_open(&c, &co, &err), &err);
        expect_ok(ig_model_open(&m, c, TINY_LLAMA, NULL, &err), &err);
        expect_ok(ig_session_open(&s, m, &so, &err), &err);
        hold(s, ids, LONG - N_STEPS);
        for (int k = LONG - N_STEPS; k < LONG; k++) expect_ok(ig_session_decode(&s, &ids[k], 1, &err), &err);
        if (i) assert_memory_equal(logits, ig_session_logits(s), sizeof logits);
        memcpy(logits, ig_session_logits(s), sizeof logits);
        ig_session_close(s);
        ig_model_close(m);
        ig_context_close(c);
    }
}

static bool stop_at_once(void *user, uint64_t done, uint64_t total) {
    (void)done, (void)total;
    return *(bool *)user;
}

static void interrupted_prefill_goes_on(void **state) {
    (void)state;
    int32_t ids[N_CTX];
    ig_error err = {0};
    bool stop = true;
    fill(ids, 6, N_CTX);
    ig_session_options o = ig_session_defaults();
    o.n_ctx = N_CTX;
    o.n_batch = 25;
    o.progress = stop_at_once;
    o.progress_user = &stop;
    ig_session *s, *whole = open_policy("full", 25);
    expect_ok(ig_session_open(&s, model, &o, &err), &err);
    assert_int_equal(ig_session_sync(s, ids, 120, &err), IG_E_INTERRUPTED);
    assert_int_equal(ig_session_tokens(s, NULL), 25);
    assert_null(ig_session_logits(s));
    stop = false;
    hold(s, ids, 120);
    hold(whole, ids, 120);
    same(s, whole);
    ig_session_close(s);
    ig_session_close(whole);
}

static void limits_are_errors(void **state) {
    (void)state;
    int32_t ids[N_CTX + 1] = {0};
    ig_error err = {0};
    ig_session *s = open_policy("full", 32), *twice[2] = {s, s};
    assert_int_equal(ig_session_sync(s, ids, N_CTX + 1, &err), IG_E_LIMIT);
    assert_int_equal(ig_session_sync(s, ids, 0, &err), IG_E_ARG);
    ids[3] = N_VOCAB;
    assert_int_equal(ig_session_sync(s, ids, 5, &err), IG_E_ARG);
    assert_non_null(strstr(err.text, "512"));
    ids[3] = -1;
    assert_int_equal(ig_session_sync(s, ids, 5, &err), IG_E_ARG);
    ids[3] = 0;
    hold(s, ids, N_CTX - 1);
    assert_int_equal(ig_session_decode(twice, ids, 2, &err), IG_E_ARG);
    expect_ok(ig_session_decode(&s, ids, 1, &err), &err);
    assert_int_equal(ig_session_decode(&s, ids, 1, &err), IG_E_LIMIT);
    ig_session_close(s);

    ig_session_options o = ig_session_defaults();
    o.cache.policy = "nonesuch";
    assert_int_equal(ig_session_open(&s, model, &o, &err), IG_E_ARG);
    assert_non_null(strstr(err.text, "infinigen"));
    o.cache.policy = "full";
    static const ig_cache_options no_budgets[] = {
        {.budget = -1}, {.budget = 1.5}, {.budget = NAN}, {.budget_entries = -1}, {.budget = 0.5, .budget_entries = 5}};
    for (size_t i = 0; i < sizeof no_budgets / sizeof *no_budgets; i++) {
        o.cache.budget = no_budgets[i].budget;
        o.cache.budget_entries = no_budgets[i].budget_entries;
        assert_int_equal(ig_session_open(&s, model, &o, &err), IG_E_ARG);
        assert_non_null(strstr(err.text, "budget"));
    }
}

typedef struct nested {
    ig_session *other;
    ig_status synced, stepped, batched, cut;
} nested;

static bool call_another(void *user, int first, int n_rows, const float *logits) {
    nested *x = user;
    int32_t id = 1;
    (void)first, (void)n_rows, (void)logits;
    x->synced = ig_session_sync(x->other, &id, 1, NULL);
    x->stepped = ig_session_decode(&x->other, &id, 1, NULL);
    x->batched = ig_batch_step(&(ig_batch_item){.session = x->other, .ids = &id, .n = 1}, 1, NULL);
    x->cut = ig_session_cut(x->other, 0, NULL);
    return false;
}

/* All sessions of a model share the memory of a step: whoever is called in the middle of one is told so. */
static void a_sink_may_not_step(void **state) {
    (void)state;
    int32_t ids[30];
    ig_error err = {0};
    fill(ids, 3, 30);
    ig_session *s = open_policy("full", 16), *plain = open_policy("full", 16);
    nested x = {.other = open_policy("full", 16)};
    hold(x.other, ids, 2);
    hold(plain, ids, 30);
    for (int own = 0; own < 2; own++) { /* nor its own session */
        ig_session *other = x.other;
        if (own) x.other = s;
        expect_ok(ig_session_cut(s, 0, &err), &err);
        expect_ok(ig_session_sync_logits(s, ids, 30, call_another, &x, &err), &err);
        assert_int_equal(x.synced, IG_E_ARG);
        assert_int_equal(x.stepped, IG_E_ARG);
        assert_int_equal(x.batched, IG_E_ARG);
        assert_int_equal(x.cut, IG_E_ARG);
        same(s, plain);
        x.other = other;
    }
    assert_int_equal(ig_session_tokens(x.other, NULL), 2);
    hold(x.other, ids, 30);
    same(x.other, plain);
    ig_session_close(s);
    ig_session_close(plain);
    ig_session_close(x.other);
}

static bool stop_and_count(void *user, int first, int n_rows, const float *logits) {
    (void)first, (void)n_rows, (void)logits;
    ++*(int *)user;
    return true;
}

/* Also in the last batch of a prompt. */
static void a_sink_stops(void **state) {
    (void)state;
    int32_t ids[30];
    int n_calls = 0;
    ig_error err = {0};
    fill(ids, 3, 30);
    ig_session *s = open_policy("full", 16), *plain = open_policy("full", 16);
    for (int held = 16; held <= 30; held += 14) {
        assert_int_equal(ig_session_sync_logits(s, ids, 30, stop_and_count, &n_calls, &err), IG_E_INTERRUPTED);
        assert_int_equal(ig_session_tokens(s, NULL), held);
    }
    assert_int_equal(n_calls, 2);
    hold(s, ids, 30);
    hold(plain, ids, 30);
    same(s, plain);
    ig_session_close(s);
    ig_session_close(plain);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sink_may_not_step),
        cmocka_unit_test(a_sink_stops),
        cmocka_unit_test(sync_cuts_back_and_extends),
        cmocka_unit_test(an_earlier_prompt_does_not_show),
        cmocka_unit_test(an_earlier_text_does_not_show),
        {"batch mates do not matter, full", batch_mates_do_not_matter, NULL, NULL, "full"},
        {"batch mates do not matter, infinigen", batch_mates_do_not_matter, NULL, NULL, "infinigen"},
        {"threads and disks do not matter, infinigen", threads_and_disks_do_not_matter, NULL, NULL, "infinigen"},
        {"threads and disks do not matter, oracle", threads_and_disks_do_not_matter, NULL, NULL, "oracle"},
        cmocka_unit_test(interrupted_prefill_goes_on),
        cmocka_unit_test(limits_are_errors),
    };
    return cmocka_run_group_tests(tests, open_model, close_tiny);
}
