/* SPDX-License-Identifier: Apache-2.0
 *
 * Sessions that are cut in the middle of what a policy sums up (ig_policy_ops.sums_up): what follows is bitwise what a
 * session computes that only ever saw the tokens that are left.
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

#include "golden/tiny_session.h"

enum { N_CTX = 900, N_STEPS = 24 }; /* enough to end the unit that was cut, and for it to leave the recent entries */

static bool interrupt;

typedef struct variant {
    const char *policy, *type;
    bool on_disk;
} variant;

static bool on_progress(void *user, uint64_t done, uint64_t total) {
    (void)user, (void)done, (void)total;
    return interrupt;
}

/* Tokens of the way that is kept, or of another. */
static int32_t token(int i, int way) { return (int32_t)((unsigned)(i * 7919 + way * 131 * (i % 7 + 1)) % N_VOCAB); }

static void steps(ig_session *s, int n, int way) {
    for (int i = 0; i < n; i++) step(s, token(ig_session_tokens(s, NULL), way));
}

/* The first n tokens are kept, and others follow. */
static ig_status sync_beyond(ig_session *s, int n, int more) {
    int32_t ids[N_CTX];
    ig_error err = {0};
    for (int i = 0; i < n + more; i++) ids[i] = token(i, i >= n);
    return ig_session_sync(s, ids, n + more, &err);
}

typedef enum beyond { BY_A_STEP, BY_STEPS, BY_A_PROMPT, INTERRUPTED, N_WAYS } beyond;

static void go_beyond(ig_session *s, int n, beyond how) {
    if (how == BY_A_STEP) steps(s, 1, 1);
    if (how == BY_STEPS) steps(s, 25, 1);
    if (how == BY_A_PROMPT) assert_int_equal(sync_beyond(s, n, 45), IG_OK);
    interrupt = how == INTERRUPTED;
    if (how == INTERRUPTED) assert_int_equal(sync_beyond(s, n, 90), IG_E_INTERRUPTED);
    interrupt = false;
    assert_true(ig_session_tokens(s, NULL) > n);
}

static void cut_and_go_on(const ig_session_options *o, const ig_session_options *plain, int n, beyond how) {
    ig_session *s = open_session(o), *fresh = open_session(plain);
    ig_error err = {0};
    assert_int_equal(sync_beyond(s, n, 0), IG_OK);
    assert_int_equal(sync_beyond(fresh, n, 0), IG_OK);
    go_beyond(s, n, how);
    expect_ok(ig_session_cut(s, n, &err), &err);
    assert_int_equal(ig_session_tokens(s, NULL), n);
    for (int i = 0; i < N_STEPS; i++) {
        steps(s, 1, 0);
        steps(fresh, 1, 0);
        if (memcmp(ig_session_logits(s), ig_session_logits(fresh), N_VOCAB * sizeof(float)) != 0)
            fail_msg("cut at %d (%% 16 = %d), beyond %d: step %d differs", n, n % 16, (int)how, i);
    }
    assert_true(stats(fresh).selected_share < 0.5);
    if (o->cache.memory.disk_bytes) assert_true(stats(s).read_bytes > 0);
    ig_session_close(s);
    ig_session_close(fresh);
}

static void like_what_only_saw_what_is_left(void **state) {
    const variant *v = *state;
    ig_session_options o = ig_session_defaults();
    o.n_ctx = N_CTX;
    o.n_batch = 64;
    o.progress = on_progress;
    o.cache.policy = v->policy;
    o.cache.memory.type = v->type;
    o.cache.budget = 0.1;
    o.cache.n_recent = 4;
    o.cache.n_dense_layers = 1;
    ig_session_options plain = o;
    if (v->on_disk) {
        o.cache.memory.disk_bytes = 64 << 20;
        o.cache.memory.disk_path = folder;
        o.cache.memory.ram_bytes = least_ram(o);
    }
    /* In RAM all there is; on disk, where it must be a longer text, each once. */
    static const int left[N_WAYS] = {1, 7, 15, 9};
    int units = v->on_disk ? 50 : 8;
    for (int k = 0; k < N_WAYS; k++)
        for (int how = 0; how < N_WAYS; how++)
            if (!v->on_disk || how == k) cut_and_go_on(&o, &plain, 16 * (units - k) + left[k], (beyond)how);
}

/* The columns that osdi24 keeps are of the queries of its first prompt: those of an end that was cut off before any
 * step don't count. */
static void prompt_without_its_end(void **state) {
    ig_session_options o = ig_session_defaults();
    ig_error err = {0};
    (void)state;
    o.n_ctx = N_CTX;
    o.n_batch = 64;
    o.cache.policy = "infinigen-osdi24";
    o.cache.n_dense_layers = 1;
    for (int is_cut = 0; is_cut < 2; is_cut++) {
        ig_session *s = open_session(&o), *fresh = open_session(&o);
        assert_int_equal(sync_beyond(s, 120, 90), IG_OK);
        if (is_cut) expect_ok(ig_session_cut(s, 120, &err), &err);
        assert_int_equal(sync_beyond(s, 120, 0), IG_OK);
        assert_int_equal(sync_beyond(fresh, 120, 0), IG_OK);
        for (int i = 0; i < N_STEPS; i++) {
            steps(s, 1, 0);
            steps(fresh, 1, 0);
            assert_memory_equal(ig_session_logits(s), ig_session_logits(fresh), N_VOCAB * sizeof(float));
        }
        ig_session_close(s);
        ig_session_close(fresh);
    }
}

#define CUTS(policy, type)                                                                                      \
    {policy " " type, like_what_only_saw_what_is_left, NULL, NULL, &(variant){policy, type, false}}, {          \
        policy " " type " disk", like_what_only_saw_what_is_left, NULL, NULL, &(variant) { policy, type, true } \
    }

int main(void) {
    if (access(TINY_LLAMA, R_OK) != 0) return 77;
    const struct CMUnitTest tests[] = {
        CUTS("infinigen", "f16"),
        CUTS("infinigen", "q4"),
        CUTS("oracle", "f16"),
        CUTS("quest", "q4"),
        cmocka_unit_test(prompt_without_its_end),
    };
    return cmocka_run_group_tests(tests, open_tiny_and_folder, close_tiny_and_folder);
}
