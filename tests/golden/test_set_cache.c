/* SPDX-License-Identifier: Apache-2.0
 *
 * Another policy for a session that holds tokens: from there on it gives bitwise what a session gives that had this
 * policy from the start; what cannot be is refused and changes nothing.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "golden/policy_session.h"
#include "model/model.h"
#include "unit/count_memory.h"

enum { N_STEPS = 12 };

static void prompt(ig_session *s) { put(s, ids, N_PROMPT); }

static void decode(ig_session *s, int n) {
    for (int i = N_PROMPT; i < N_PROMPT + n; i++) step(s, ids[i]);
}

/* Both go on; the same logits and shares. */
static void go_on_alike(ig_session *a, ig_session *b) {
    ig_error err = {0};
    ig_session_stats x, y;
    for (int i = N_PROMPT; i < N_PROMPT + N_STEPS; i++) {
        expect_ok(ig_session_decode(&a, &ids[i], 1, &err), &err);
        expect_ok(ig_session_decode(&b, &ids[i], 1, &err), &err);
        same(a, b);
    }
    ig_session_get_stats(a, &x);
    ig_session_get_stats(b, &y);
    assert_string_equal(x.policy, y.policy);
    assert_true(x.selected_share == y.selected_share && x.fetched_share == y.fetched_share);
    assert_true(x.n_decoded == N_STEPS && y.n_decoded == N_STEPS && y.decode_seconds > 0);
    assert_true(x.n_audits == y.n_audits && x.mass_mean == y.mass_mean);
}

/* From the state of a prompt: with its logits, or cut back to it after other steps. */
static void check_going_on(const char *policy, const char *type) {
    ig_error err = {0};
    ig_cache_options c = cache(policy), full = cache("full"), window = cache("window");
    c.memory.type = full.memory.type = window.memory.type = type;
    ig_session *a = open_with(&c), *b = open_with(&full);
    c.audit_every = 4;
    expect_ok(ig_session_set_cache(a, &c, &err), &err); /* of an empty session */
    prompt(a);
    prompt(b);
    expect_ok(ig_session_set_cache(b, &c, &err), &err);
    same(a, b);
    go_on_alike(a, b);
    ig_session_stats st;
    ig_session_get_stats(b, &st);
    assert_true(st.n_prefilled == N_PROMPT);

    expect_ok(ig_session_cut(b, N_PROMPT, &err), &err);
    assert_null(ig_session_logits(b));
    expect_ok(ig_session_set_cache(b, &window, &err), &err);
    decode(b, 3);
    for (int k = 0; k < 2; k++) {
        ig_session *s = k ? b : a;
        expect_ok(ig_session_cut(s, N_PROMPT, &err), &err);
        assert_int_equal(ig_session_tokens(s, NULL), N_PROMPT);
        expect_ok(ig_session_set_cache(s, &c, &err), &err);
    }
    go_on_alike(a, b);
    ig_session_close(a);
    ig_session_close(b);
}

static void goes_on_as_if_from_the_start(void **state) {
    static const char *const types[] = {"f16", "q8", "q4", "q2"};
    for (int i = 0; i < 4; i++) check_going_on(*state, types[i]);
}

/* The keys are read back from the disk, piece by piece. */
static void keys_on_disk_are_seen(void **state) {
    ig_error err = {0};
    ig_session *s = NULL;
    ig_session_options o = ig_session_defaults();
    o.n_ctx = N_CTX;
    o.n_batch = 64;
    o.cache = cache(*state);
    o.cache.memory.disk_bytes = 64 << 20;
    o.cache.memory.disk_path = folder;
    o.cache.memory.ram_bytes = 1;
    assert_int_equal(ig_session_open(&s, model, &o, &err), IG_E_LIMIT);
    const char *number = strstr(err.text, "at least ");
    assert_non_null(number);
    o.cache.memory.ram_bytes = strtoull(number + strlen("at least "), NULL, 10);
    ig_cache_options c = o.cache, in_ram = cache(*state);
    ig_session *a = open_with(&in_ram);
    o.cache.policy = "full";
    expect_ok(ig_session_open(&s, model, &o, &err), &err);
    prompt(a);
    prompt(s);
    c.memory.disk_path = NULL; /* nobody looks at it */
    expect_ok(ig_session_set_cache(s, &c, &err), &err);
    go_on_alike(a, s);
    ig_session_stats st;
    ig_session_get_stats(s, &st);
    assert_true(st.written_bytes > 0 && st.recalled > 0);
    ig_session_close(a);
    ig_session_close(s);
}

/* Entries are dropped for ever, which takes lists: the room comes from the RAM that the session has. */
static void a_policy_that_drops_takes_over_on_disk(void **state) {
    ig_error err = {0};
    ig_session_options o = ig_session_defaults();
    (void)state;
    o.n_ctx = N_CTX;
    o.n_batch = 64;
    o.cache = cache("h2o");
    o.cache.memory.disk_bytes = 64 << 20;
    o.cache.memory.disk_path = folder;
    uint64_t least = least_ram(o);
    ig_cache_options h2o = o.cache, full = o.cache;
    full.policy = "full";
    full.memory.ram_bytes = h2o.memory.ram_bytes = least - 1;
    ig_session *a = open_with(&full);
    assert_int_equal(ig_session_set_cache(a, &h2o, &err), IG_E_LIMIT);
    prompt(a);
    ig_session_close(a);

    full.memory.ram_bytes = h2o.memory.ram_bytes = least;
    a = open_with(&full);
    ig_session *b = open_with(&h2o);
    prompt(a);
    decode(a, 3);
    assert_int_equal(ig_session_set_cache(a, &h2o, &err), IG_E_UNSUPPORTED);
    for (int round = 0; round < 3; round++) { /* there and back */
        expect_ok(ig_session_cut(a, 0, &err), &err);
        expect_ok(ig_session_set_cache(a, round == 1 ? &full : &h2o, &err), &err);
        if (round) expect_ok(ig_session_cut(b, 0, &err), &err);
        if (round) expect_ok(ig_session_set_cache(b, round == 1 ? &full : &h2o, &err), &err);
        prompt(a);
        prompt(b);
        go_on_alike(a, b);
        assert_true(stats(a).kv_bytes <= least && stats(b).kv_bytes <= least);
    }
    assert_true(stats(a).dropped > 0);
    assert_int_equal(ig_session_set_cache(a, &full, &err), IG_E_UNSUPPORTED); /* of dropped entries, on disk */
    ig_session_close(a);
    ig_session_close(b);
}

static void refusals_change_nothing(void **state) {
    (void)state;
    ig_error err = {0};
    ig_cache_options c = cache("quest"), x;
    ig_session *a = open_with(&c), *b = open_with(&c);
    prompt(a);
    prompt(b);
    x = c, x.policy = "nonesuch";
    assert_int_equal(ig_session_set_cache(a, &x, &err), IG_E_ARG);
    x = c, x.budget = -1;
    assert_int_equal(ig_session_set_cache(a, &x, &err), IG_E_ARG);
    x = c, x.memory.disk_bytes = 1 << 20, x.memory.disk_path = folder;
    assert_int_equal(ig_session_set_cache(a, &x, &err), IG_E_ARG);
    assert_non_null(strstr(err.text, "would change"));
    x = c, x.memory.type = "q8";
    assert_int_equal(ig_session_set_cache(a, &x, &err), IG_E_ARG);
    x = c, x.policy = "infinigen-osdi24";
    assert_int_equal(ig_session_set_cache(a, &x, &err), IG_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "infinigen-osdi24"));
    x = c, x.sketch = "/no/such/file", x.policy = "infinigen";
    assert_int_not_equal(ig_session_set_cache(a, &x, &err), IG_OK);
    assert_int_equal(ig_session_set_cache(NULL, &x, &err), IG_E_ARG);
    assert_int_equal(ig_session_cut(a, -1, &err), IG_E_ARG);
    go_on_alike(a, b);
    ig_session_close(b);

    /* A policy that must see the prompt can have an empty session. */
    x = cache("infinigen-osdi24");
    b = open_with(&x);
    expect_ok(ig_session_cut(a, 0, &err), &err);
    expect_ok(ig_session_set_cache(a, &x, &err), &err);
    prompt(a);
    prompt(b);
    go_on_alike(a, b);
    ig_session_close(a);
    ig_session_close(b);
}

#ifdef MEMORY_IS_COUNTED
/* Pages count as allocations too. */
COUNTED void *mmap(void *p, size_t n, int protection, int flags, int fd, off_t at) {
    if (!count_one(n)) return (void *)syscall(SYS_mmap, p, n, protection, flags, fd, at);
    errno = ENOMEM;
    return MAP_FAILED;
}

COUNTED int munmap(void *p, size_t n) {
    if (memory_count.is_on) memory_count.n_given++;
    return (int)syscall(SYS_munmap, p, n);
}
#endif

/* What has been dropped cannot be computed again, so that nothing is guessed until the session is empty. */
static void guesses_end_with_dropped_entries(void **state) {
    (void)state;
    ig_error err = {0};
    ig_cache_options h2o = cache("h2o"), c = cache("infinigen");
    ig_session_options o = options_of(&h2o);
    ig_session *b = open_session(&o);
    o.n_draft = 4;
    ig_session *a = open_session(&o);
    int32_t text[N_CTX];
    for (int i = 0; i < N_CTX; i++) text[i] = i % 30 == 29 ? 400 + i / 30 : i % 11;
    model->batch.costs.are_nothing = true;
    put(a, text, 300), put(b, text, 300);
    step(a, text[300]), step(b, text[300]);
    expect_ok(ig_session_set_cache(a, &c, &err), &err);
    expect_ok(ig_session_set_cache(b, &c, &err), &err);
    for (int i = 301; i < 500; i++) {
        step(a, text[i]), step(b, text[i]);
        assert_int_equal(ig_session_tokens(a, NULL), i + 1);
        same(a, b);
    }
    assert_true(stats(a).n_drafted == 0);
    put(a, text + 1, 300), put(b, text + 1, 300);
    for (int i = 301; i < 400; i++) {
        step(a, text[i]), step(b, text[i]);
        same(a, b);
    }
    assert_true(stats(a).n_drafted > 0);
    model->batch.costs.are_nothing = false;
    ig_session_close(a);
    ig_session_close(b);
}

/* Whichever allocation fails, the session is as it was, and nothing is kept. */
static void without_memory_nothing_changes(void **state) {
    (void)state;
    ig_error err = {0};
    ig_cache_options quest = cache("quest"), c = cache("infinigen");
    c.audit_every = 3;
    ig_session *a = open_with(&quest), *b = open_with(&quest);
    prompt(a);
    prompt(b);
    ig_status status = IG_E_MEMORY;
    long n = 0;
    for (; status; n++) {
        assert_true(n < 100);
        memory_count_start(n);
        status = ig_session_set_cache(b, &c, &err);
        memory_count_stop();
        if (!status) break;
        assert_int_equal(status, IG_E_MEMORY);
        assert_int_equal(memory_count.n_taken, memory_count.n_given);
        same(a, b);
    }
#ifdef MEMORY_IS_COUNTED
    if (n < 5) fail_msg("%ld allocations", n);
#endif
    expect_ok(ig_session_set_cache(b, &quest, &err), &err);
    go_on_alike(a, b);
    ig_session_close(a);
    ig_session_close(b);
}

int main(void) {
#define POLICY(test, name) \
    { name ": " #test, test, NULL, NULL, name }
    const struct CMUnitTest tests[] = {
        POLICY(goes_on_as_if_from_the_start, "infinigen"),
        POLICY(goes_on_as_if_from_the_start, "full"),
        POLICY(goes_on_as_if_from_the_start, "quest"),
        POLICY(goes_on_as_if_from_the_start, "window"),
        POLICY(goes_on_as_if_from_the_start, "oracle"),
        POLICY(keys_on_disk_are_seen, "infinigen"),
        POLICY(keys_on_disk_are_seen, "oracle"),
        cmocka_unit_test(refusals_change_nothing),
        cmocka_unit_test(a_policy_that_drops_takes_over_on_disk),
        cmocka_unit_test(without_memory_nothing_changes),
        cmocka_unit_test(guesses_end_with_dropped_entries),
    };
    return cmocka_run_group_tests(tests, open_model, close_tiny_and_folder);
}
