/* SPDX-License-Identifier: Apache-2.0
 *
 * The policy h2o: what it keeps, against its rule in double precision; with its whole budget it is `full`; with a disk
 * tier what it keeps comes into RAM.
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

static void h2o_with_the_whole_budget(void **state) {
    (void)state;
    ig_session_options o = options("full");
    ig_session *full = open_session(&o);
    o = options("h2o");
    o.cache.budget = 1;
    ig_session *h2o = open_session(&o);
    int32_t ids[N_CTX];
    fill(ids, 4);
    put(full, ids, 320);
    put(h2o, ids, 320);
    for (int n = 320; n < N_CTX; n++) {
        step(full, ids[n]);
        step(h2o, ids[n]);
        same(full, h2o);
    }
    assert_true(stats(h2o).dropped == 0);
    ig_session_close(full);
    ig_session_close(h2o);
}

/* ---- h2o against its rule ------------------------------------------------------------- */

static void reference_drop(reference *ref, int head, int n_kept) {
    int n = 0, n_recent = 0, first_recent = ref->n;
    for (int t = 0; t < ref->n; t++) n += ref->held[head][t];
    while (n_recent < n_kept / 2) n_recent += ref->held[head][--first_recent];
    for (; n > n_kept; n--) {
        int victim = -1;
        for (int t = 0; t < first_recent; t++)
            if (ref->held[head][t] && (victim < 0 || ref->sums[head][t] < ref->sums[head][victim])) victim = t;
        ref->held[head][victim] = false;
    }
}

static void see_layer(void *user, ig_tap_place at, int layer) {
    reference *ref = user;
    const ig_batch *b = &ref->s->model->batch;
    if (at != IG_TAP_HEADS || layer || b->segments[0].seq != &ref->s->seq) return;
    int n = b->segments[0].n, share = (int)ceil(0.15 * (ref->n + 1)), least = SINKS + RECENT;
    for (int h = 0; h < KV_HEADS; h++) {
        if (!b->segments[0].dense) reference_drop(ref, h, (share > least ? share : least) - 1);
        add_keys(ref, b, h, n);
        for (int i = 0; i < n; i++) weigh(ref, h, b->rows.q.host + i * HEADS * DIM, ref->n + i);
    }
    ref->n += n;
}

static void h2o_keeps_the_heaviest(void **state) {
    (void)state;
    rule_pair p = open_rule("h2o", 0.15, see_layer);
    int32_t ids[N_CTX];
    fill(ids, 5);
    /* A prompt, some steps, more of the prompt, and so on. */
    for (int n = 0, until; n < N_CTX; n = until) {
        until = n == 0 ? 120 : n == 180 ? 230 : n + 1;
        put_both(&p, ids, n, until);
        expect_held(&p);
    }
    close_rule(&p);
}

/* ---- from disk ------------------------------------------------------------------------- */

static void h2o_from_disk(void **state) {
    (void)state;
    int32_t ids[N_CTX], other[N_CTX];
    fill(ids, 6);
    fill(other, 7);
    memcpy(other, ids, 100 * sizeof *ids);
    ig_session_options o = options("h2o"), tiered;
    o.cache.n_dense_layers = 1;
    tiered = o;
    tiered.cache.memory.disk_bytes = 64 << 20;
    tiered.cache.memory.disk_path = folder;
    tiered.cache.memory.ram_bytes = least_ram(tiered);
    ig_session *a = open_session(&o), *b = open_session(&tiered);
    for (int round = 0; round < 3; round++) {
        const int32_t *text = round == 1 ? other : ids;
        put(a, text, 300);
        put(b, text, 300);
        same(a, b);
        assert_true(stats(b).kv_bytes <= tiered.cache.memory.ram_bytes);
        uint64_t on_disk = stats(b).disk_bytes;
        for (int n = 300; n < 340; n++) {
            step(a, text[n]);
            step(b, text[n]);
            same(a, b);
            assert_true(stats(b).kv_bytes <= tiered.cache.memory.ram_bytes);
        }
        assert_true(stats(b).disk_bytes < on_disk / 2); /* the dense layer's */
        put(a, text, 350);                              /* goes on with what is left */
        put(b, text, 350);
        same(a, b);
        step(a, text[350]);
        step(b, text[350]);
        same(a, b);
        assert_true(stats(a).dropped == stats(b).dropped && stats(a).n_entries == stats(b).n_entries);
    }
    ig_session_close(a);
    ig_session_close(b);
}

/* The least RAM that is asked for has room for it. */
static void what_is_kept_fits(void **state) {
    (void)state;
    int32_t ids[N_CTX];
    fill(ids, 8);
    ig_session_options o = options("h2o");
    o.n_batch = 8;
    o.cache.budget = 0.95;
    o.cache.memory.disk_bytes = 64 << 20;
    o.cache.memory.disk_path = folder;
    o.cache.memory.ram_bytes = least_ram(o);
    ig_session *s = open_session(&o);
    put(s, ids, 390);
    for (int n = 390; n < N_CTX; n++) step(s, ids[n]);
    ig_session_close(s);
}

/* Of what is decoded nothing is dropped: an answer may outgrow what is kept of a prompt. */
static void too_little_ram_for_what_is_decoded(void **state) {
    (void)state;
    int32_t ids[N_CTX];
    ig_error err = {0};
    ig_status status = IG_OK;
    fill(ids, 8);
    ig_session_options o = options("snapkv");
    o.n_batch = 8;
    o.cache.budget = 0.01;
    o.cache.n_sinks = 1, o.cache.n_recent = 4;
    o.cache.memory.disk_bytes = 64 << 20;
    o.cache.memory.disk_path = folder;
    o.cache.memory.ram_bytes = least_ram(o);
    ig_session *s = open_session(&o);
    put(s, ids, 20);
    for (int i = 20; i < N_CTX && !status; i++) status = ig_session_decode(&s, &ids[i], 1, &err);
    assert_int_equal(status, IG_E_LIMIT);
    assert_non_null(strstr(err.text, "the KV cache's share of RAM is too small for the entries that stay in it"));
    assert_int_equal(ig_session_tokens(s, NULL), 0);
    assert_null(ig_session_logits(s));
    put(s, ids, 30); /* fits */
    step(s, ids[30]);
    ig_session_close(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(h2o_with_the_whole_budget),
        cmocka_unit_test(h2o_keeps_the_heaviest),
        cmocka_unit_test(h2o_from_disk),
        cmocka_unit_test(what_is_kept_fits),
        cmocka_unit_test(too_little_ram_for_what_is_decoded),
    };
    return cmocka_run_group_tests(tests, open_tiny_and_folder, close_tiny_and_folder);
}
