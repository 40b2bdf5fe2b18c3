/* SPDX-License-Identifier: Apache-2.0
 *
 * Short sequences: with a budget of their own `infinigen` and `oracle` are `full` to the bit up to 512 entries and
 * select beyond, wherever keys and values lie and whoever computed them. A budget that is given holds at any length.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "golden/tiny_session.h"

enum { N_CTX = 560, WHOLE = 512 };

static int32_t ids[N_CTX];

static int open_all(void **state) {
    unsigned x = 12345;
    for (int i = 0; i < N_CTX; i++) {
        x = x * 1664525u + 1013904223u;
        ids[i] = (int32_t)((x >> 16) % N_VOCAB);
    }
    return open_tiny_and_folder(state);
}

/* What the latest step used, over its layers. */
typedef struct usage {
    uint64_t entries, selected;
} usage;

static void note(void *user, const ig_cache_step *step) {
    usage *u = user;
    if (step->layer == 0) *u = (usage){0};
    u->entries += step->entries;
    u->selected += step->selected;
}

static ig_session_options options(const char *policy, usage *u) {
    ig_session_options o = ig_session_defaults();
    o.n_ctx = N_CTX;
    o.n_batch = 64;
    o.cache.policy = policy;
    o.cache.n_dense_layers = 0;
    if (u) o.cache.trace = note, o.cache.trace_user = u;
    return o;
}

/* Steps of both sessions from n tokens on; the sparse one selects beyond 512 entries only. */
static void cross(ig_session *full, ig_session *sparse, const usage *u, int n) {
    for (; n < WHOLE; n++) {
        step(full, ids[n]);
        step(sparse, ids[n]);
        same(full, sparse);
        assert_true(u->selected == u->entries);
    }
    assert_true(stats(sparse).selected_share == 1);
    for (; n < WHOLE + 8; n++) {
        step(sparse, ids[n]);
        assert_true(u->selected < u->entries / 2);
    }
    assert_true(stats(sparse).selected_share < 1);
}

static void full_up_to_512_entries(void **state) {
    static const struct {
        const char *policy, *type;
        int n_sinks, n_recent;
    } each[] = {{"infinigen", "f16", 4, 32}, {"infinigen", "f16", 0, 1}, {"infinigen", "f16", 40, 8},
                {"infinigen", "q8", 4, 32},  {"infinigen", "q4", 4, 32}, {"oracle", "f16", 4, 32}};
    (void)state;
    for (size_t k = 0; k < sizeof each / sizeof *each; k++) {
        usage u;
        ig_session_options o = options("full", NULL);
        o.cache.memory.type = each[k].type;
        ig_session *full = open_session(&o);
        o = options(each[k].policy, &u);
        o.cache.memory.type = each[k].type;
        o.cache.n_sinks = each[k].n_sinks;
        o.cache.n_recent = each[k].n_recent;
        o.cache.audit_every = 1;
        ig_session *sparse = open_session(&o);
        int from = k == 0 ? 60 : WHOLE - 20;
        put(full, ids, from);
        put(sparse, ids, from);
        cross(full, sparse, &u, from);
        assert_true(stats(sparse).n_audits > 0 && stats(sparse).mass_mean < 1);
        assert_true(stats(full).n_audits == 0 && stats(full).mass_p1 == 0);
        ig_session_close(full);
        ig_session_close(sparse);
    }
}

static void budgets_that_are_given_hold(void **state) {
    (void)state;
    static const ig_cache_options each[] = {
        {.policy = "infinigen", .budget = 0.1},
        {.policy = "infinigen", .budget_entries = 64},
        {.policy = "oracle", .budget = 0.1},
        {.policy = "infinigen", .mass = 0.5},
        {.policy = "infinigen", .memory.limit = 0.5}, /* what is used says what to drop */
        {.policy = "window"},
        {.policy = "quest"}};
    for (size_t k = 0; k < sizeof each / sizeof *each; k++) {
        usage u;
        ig_session_options o = options(each[k].policy, &u);
        o.cache.budget = each[k].budget;
        o.cache.budget_entries = each[k].budget_entries;
        o.cache.mass = each[k].mass;
        o.cache.memory.limit = each[k].memory.limit;
        ig_session *s = open_session(&o);
        put(s, ids, 200);
        step(s, ids[200]);
        if (u.selected >= u.entries) fail_msg("%s, number %zu: uses everything", each[k].policy, k);
        if (each[k].budget_entries) assert_true(u.selected * 201 <= u.entries * 64);
        ig_session_close(s);
    }
}

/* Everything of a layer is brought from disk, guessed or late, and then a selection of it. */
static void tiers_do_not_matter(void **state) {
    static const char *const guesses[] = {"late", "norm", "none"};
    (void)state;
    for (size_t k = 0; k < sizeof guesses / sizeof *guesses; k++) {
        usage u;
        ig_session_options o = options("full", NULL);
        ig_session *full = open_session(&o);
        o = options("infinigen", &u);
        o.cache.speculate = guesses[k];
        ig_session *in_ram = open_session(&o);
        o.cache.memory.disk_bytes = 1 << 30;
        o.cache.memory.disk_path = folder;
        o.cache.memory.ram_bytes = least_ram(o);
        ig_session *tiered = open_session(&o);
        put(full, ids, WHOLE - 8);
        put(in_ram, ids, WHOLE - 8);
        put(tiered, ids, WHOLE - 8);
        for (int n = WHOLE - 8; n < WHOLE + 8; n++) step(in_ram, ids[n]);
        cross(full, tiered, &u, WHOLE - 8);
        same(in_ram, tiered);
        assert_true(stats(tiered).read_bytes > 0);
        ig_session_close(full);
        ig_session_close(in_ram);
        ig_session_close(tiered);
    }
}

/* A final guess is made without the step's own entry. */
static void the_papers_speculation(void **state) {
    (void)state;
    usage u;
    ig_session_options o = options("full", NULL);
    ig_session *full = open_session(&o);
    o = options("infinigen", &u);
    o.cache.speculate = "paper";
    ig_session *sparse = open_session(&o);
    put(full, ids, WHOLE - 4);
    put(sparse, ids, WHOLE - 4);
    for (int n = WHOLE - 4; n < WHOLE; n++) {
        step(full, ids[n]);
        step(sparse, ids[n]);
        same(full, sparse);
    }
    for (int n = WHOLE; n < WHOLE + 4; n++) step(sparse, ids[n]);
    assert_true(u.selected < u.entries);
    ig_session_close(full);
    ig_session_close(sparse);
}

/* A policy that takes over goes on as one that was there from the start, and each sequence of a batch has a length of
 * its own. */
static void others_do_not_matter(void **state) {
    (void)state;
    ig_error err = {0};
    usage u;
    ig_session_options o = options("full", NULL), sparse = options("infinigen", &u);
    ig_session *full = open_session(&o), *late = open_session(&o);
    ig_session *alone = open_session(&sparse), *mate = open_session(&sparse);
    put(full, ids, 300);
    put(late, ids, WHOLE - 4);
    put(alone, ids, WHOLE - 4);
    put(mate, ids, 300);
    expect_ok(ig_session_set_cache(late, &sparse.cache, &err), &err);
    for (int i = 0; i < 8; i++) {
        int n = WHOLE - 4 + i, m = 300 + i;
        ig_session *both[] = {mate, late};
        int32_t next[] = {ids[m], ids[n]};
        expect_ok(ig_session_decode(both, next, 2, &err), &err);
        step(full, ids[m]);
        step(alone, ids[n]);
        same(mate, full);
        same(late, alone);
    }
    assert_true(stats(mate).selected_share == 1 && stats(late).selected_share < 1);
    ig_session_close(full);
    ig_session_close(late);
    ig_session_close(alone);
    ig_session_close(mate);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_up_to_512_entries), cmocka_unit_test(budgets_that_are_given_hold),
        cmocka_unit_test(tiers_do_not_matter),    cmocka_unit_test(the_papers_speculation),
        cmocka_unit_test(others_do_not_matter),
    };
    return cmocka_run_group_tests(tests, open_all, close_tiny_and_folder);
}
