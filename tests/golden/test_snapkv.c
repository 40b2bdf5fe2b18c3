/* SPDX-License-Identifier: Apache-2.0
 *
 * The policies snapkv and pyramidkv: what is kept of a prompt, against the rule in double precision, however the prompt
 * is cut; with the whole budget they are `full`.
 */
#define _GNU_SOURCE
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "golden/dropping_rule.h"

static const double budget = 0.3;

static void the_whole_budget_is_full(void **state) {
    ig_session_options o = options("full");
    ig_session *full = open_session(&o);
    o = options(*state);
    o.cache.budget = 1;
    ig_session *s = open_session(&o);
    int32_t ids[N_CTX];
    fill(ids, 14);
    put(full, ids, 320);
    put(s, ids, 320);
    for (int n = 320; n < N_CTX; n++) {
        step(full, ids[n]);
        step(s, ids[n]);
        same(full, s);
    }
    assert_true(stats(s).dropped == 0);
    ig_session_close(full);
    ig_session_close(s);
}

/* ---- against the rule ------------------------------------------------------------------ */

static int share_of(int n) {
    int share = (int)ceil(budget * n);
    return share > SINKS + RECENT ? share : SINKS + RECENT;
}

/* What the first layer keeps of n tokens; under pyramidkv it is the one that keeps most. */
static int kept_of(bool is_pyramid, int n) {
    int mean = share_of(n) - RECENT, most = 2 * mean - mean / 20;
    if (!is_pyramid || share_of(n) >= n) return share_of(n);
    if (most > n - RECENT) most = n - RECENT;
    return RECENT + (2 * mean - most < SINKS ? 2 * mean - SINKS : most);
}

static void drop(reference *ref, int head, int n_kept) {
    int held[N_CTX], n = 0;
    double mean[N_CTX];
    for (int t = ref->begin > ref->end - RECENT ? ref->begin : ref->end - RECENT; t < ref->end; t++)
        weigh(ref, head, ref->queries[t], t);
    for (int t = 0; t < ref->n; t++)
        if (ref->held[head][t]) held[n++] = t;
    int n_before = n - RECENT;
    for (int i = 0; i < n_before; i++) {
        mean[i] = 0;
        for (int j = i - 2; j <= i + 2; j++) mean[i] += j >= 0 && j < n_before ? ref->sums[head][held[j]] : 0;
    }
    for (int left = n; left > n_kept; left--) {
        int victim = -1;
        for (int i = 0; i < n_before; i++)
            if (ref->held[head][held[i]] && (victim < 0 || mean[i] < mean[victim])) victim = i;
        ref->held[head][held[victim]] = false;
    }
    memset(ref->sums[head], 0, sizeof ref->sums[head]);
}

static void see_layer(void *user, ig_tap_place at, int layer) {
    reference *ref = user;
    const ig_batch *b = &ref->s->model->batch;
    const ig_segment *seg = &b->segments[0];
    if (at != IG_TAP_HEADS || layer || seg->seq != &ref->s->seq) return;
    bool has_ended = ref->end == ref->n; /* the prompt, or decoding goes on */
    if (seg->dense && ref->end < ref->n) ref->begin = ref->n;
    if (seg->dense) memcpy(ref->queries[ref->n], b->rows.q.host, (size_t)seg->n * sizeof ref->queries[0]);
    for (int h = 0; h < KV_HEADS; h++) {
        if (!seg->dense && has_ended) drop(ref, h, kept_of(strcmp(ref->s->options.cache.policy, "snapkv"), ref->end));
        add_keys(ref, b, h, seg->n);
    }
    ref->n += seg->n;
    if (seg->dense) ref->end = ref->n;
}

/* A piece of a prompt of n tokens, as others' steps may cut it. */
static void put_piece(ig_session *s, const int32_t *ids, int begin, int end, int n) {
    ig_batch_item x = {.session = s, .ids = ids + begin, .n = end - begin, .prompt = true, .more = n - end};
    ig_error err = {0};
    assert_int_equal(ig_batch_step(&x, 1, &err), IG_OK);
    assert_int_equal(x.status, IG_OK);
}

/* Prompts of 100 tokens, of which the last batch has a part of the window, of 70 in pieces, and of fewer than a window;
 * after each some steps. */
static void keeps_what_the_end_attends_to(void **state) {
    rule_pair p = open_rule(*state, budget, see_layer);
    int32_t ids[N_CTX];
    fill(ids, 15);
    for (int n = 0, until; n < N_CTX; n = until) {
        static const int cuts[] = {130, 150, 188, 193, 200};
        until = n == 0 ? 100 : n == 130 ? 200 : n == 230 ? 239 : n + 1;
        if (until != 200) put_both(&p, ids, n, until);
        for (int i = 0; i < 4 && until == 200; i++) {
            put_piece(p.s, ids, cuts[i], cuts[i + 1], until);
            put_piece(p.all, ids, cuts[i], cuts[i + 1], until);
        }
        expect_held(&p);
    }
    close_rule(&p);
}

/* Whether its window had begun or not. */
static void a_prompt_that_is_broken_off(void **state) {
    int32_t ids[N_CTX];
    fill(ids, 19);
    for (int n_all = 50; n_all <= 200; n_all += 150) {
        ig_session_options o = options(*state);
        ig_session *s = open_session(&o);
        put_piece(s, ids, 0, 40, n_all);
        for (int n = 40; n < 120; n++) step(s, ids[n]);
        assert_int_equal(ig_kv_entries(s->seq.kv, 0, 0).n, 120);
        put(s, ids, 150);
        step(s, ids[150]);
        assert_true(ig_kv_entries(s->seq.kv, 0, 0).n < 100);
        ig_session_close(s);
    }
}

/* ---- layers ------------------------------------------------------------------------------ */

/* Layers of a pyramid hold fewer and fewer, and together as many as if all held the same. */
static void layers_of_a_pyramid(void **state) {
    (void)state;
    int32_t ids[N_CTX];
    fill(ids, 16);
    for (int percent = 10; percent < 100; percent += 10) {
        ig_session_options o = options("pyramidkv");
        o.cache.budget = percent / 100.0;
        ig_session *s = open_session(&o);
        int sum = 0, last = N_CTX, share = (int)ceil(o.cache.budget * 300);
        put(s, ids, 300);
        step(s, ids[300]);
        for (int l = 0; l < LAYERS; l++) {
            int n = ig_kv_entries(s->seq.kv, l, 0).n;
            assert_in_range(n, SINKS + RECENT + 1, last - (share < 300 - RECENT));
            sum += last = n;
        }
        assert_in_range(sum, LAYERS * (share + 1) - LAYERS, LAYERS * (share + 1) + LAYERS);
        ig_session_close(s);
    }
}

/* ---- a text that begins anew ------------------------------------------------------------- */

/* Of what a session held before nothing is left, by whatever way it went. */
static void begins_anew(void **state) {
    ig_session_options o = options(*state);
    int32_t ids[N_CTX], other[N_CTX];
    fill(ids, 17);
    fill(other, 18);
    ig_session *used = open_session(&o), *fresh = open_session(&o);
    for (int round = 0; round < 4; round++) {
        put(used, other, 120);
        if (round & 1) step(used, other[120]);
        if (round & 2) {
            ig_error err;
            assert_int_equal(ig_session_cut(used, 0, &err), IG_OK);
            for (int n = 0; n < 150; n++) step(used, ids[n]); /* without a prompt nothing is dropped */
            assert_int_equal(ig_kv_entries(used->seq.kv, 0, 0).n, 150);
        }
        put(used, ids, 120);
        put(fresh, ids, 120);
        for (int n = 120; n < 130; n++) {
            step(used, ids[n]);
            step(fresh, ids[n]);
            same(used, fresh);
        }
        ig_session_close(fresh);
        fresh = open_session(&o);
    }
    ig_session_close(used);
    ig_session_close(fresh);
}

#define OF(test, policy) \
    { #test " " policy, test, NULL, NULL, (void *)(uintptr_t)policy }

int main(void) {
    const struct CMUnitTest tests[] = {
        OF(the_whole_budget_is_full, "snapkv"),
        OF(the_whole_budget_is_full, "pyramidkv"),
        OF(keeps_what_the_end_attends_to, "snapkv"),
        OF(keeps_what_the_end_attends_to, "pyramidkv"),
        OF(a_prompt_that_is_broken_off, "snapkv"),
        OF(a_prompt_that_is_broken_off, "pyramidkv"),
        cmocka_unit_test(layers_of_a_pyramid),
        OF(begins_anew, "snapkv"),
        OF(begins_anew, "pyramidkv"),
    };
    return cmocka_run_group_tests(tests, open_tiny_and_folder, close_tiny_and_folder);
}
