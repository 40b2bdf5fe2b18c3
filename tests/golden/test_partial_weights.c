/* SPDX-License-Identifier: Apache-2.0
 *
 * The partial query weights of infinigen-osdi24 in a model without RoPE: guesses through them choose what guesses
 * through all of W_Q choose, they are what guesses are made from, and they are made anew for each prompt.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/session.h"
#include "golden/tiny_session.h"
#include "unit/count_memory.h"
#include "unit/temp_dir.h"
#include "infinigen_tools.h"

enum { HEADS = 4, WIDTH = 128, COLUMNS = 9, SPARSE = 2, N_CTX = 240, N_PROMPT = 180, N_STEPS = 40 };

static temp_dir dir;
static char skew[512];
static int32_t ids[N_CTX];
static ig_policy_ops whole_ops; /* without partial weights */

static int open_opt(void **state) {
    (void)state;
    ig_error err = {0};
    open_tiny("tests/golden/models/opt", 2);
    dir = temp_dir_open();
    temp_dir_path(&dir, "skew.igs", skew, sizeof skew);
    for (int i = 0; i < N_CTX; i++) ids[i] = (i * 7919 + i * i * 31) % N_VOCAB;
    ig_prepare_options o = ig_prepare_defaults();
    o.skew = true;
    o.ids = ids;
    o.n_ids = N_PROMPT;
    expect_ok(ig_prepare(NULL, model, skew, &o, &err), &err);
    whole_ops = ig_policy_infinigen_osdi24;
    whole_ops.narrow = NULL;
    return 0;
}

static int close_opt(void **state) {
    temp_dir_close(&dir);
    return close_tiny(state);
}

static ig_session_options options(const char *sketch) {
    ig_session_options o = ig_session_defaults();
    o.n_ctx = N_CTX;
    o.cache.policy = "infinigen-osdi24";
    o.cache.sketch = sketch;
    return o;
}

static ig_session *open_paper(const char *sketch, bool whole) {
    ig_session_options o = options(sketch);
    ig_session *s = open_session(&o);
    if (whole) s->seq.policy->ops = &whole_ops;
    return s;
}

/* Of the entries that `a` chose in its last layer, the share that `b` chose there, too. */
static double common_share(const ig_session *a, const ig_session *b) {
    int n = 0, n_common = 0;
    for (int h = 0; h < HEADS; h++) {
        const int32_t *x = a->seq.chosen->slots + h * N_CTX, *y = b->seq.chosen->slots + h * N_CTX;
        assert_true(!a->seq.chosen->all[h] && a->seq.chosen->n[h] > 5);
        for (int i = 0; i < a->seq.chosen->n[h]; i++, n++)
            for (int j = 0; j < b->seq.chosen->n[h]; j++) n_common += x[i] == y[j];
    }
    return (double)n_common / n;
}

/* The model's weights are 16-bit floats: rows taken from them are the same, and columns of W_Q A are rounded. */
static void they_choose_the_same(void **state) {
    const char *sketch = *state;
    ig_session *a = open_paper(sketch, false), *b = open_paper(sketch, true);
    double share = 0;
    put(a, ids, N_PROMPT);
    put(b, ids, N_PROMPT);
    for (int i = 0; i < N_STEPS; i++) {
        step(a, ids[N_PROMPT + i]);
        step(b, ids[N_PROMPT + i]);
        assert_true((a->seq.narrow != NULL) == (i > 0)); /* the first step chooses the columns */
        assert_null(b->seq.narrow);
        share += common_share(a, b) / N_STEPS;
        if (!sketch) same(a, b);
    }
    assert_int_equal(a->seq.narrow->n_out, HEADS * COLUMNS);
    assert_int_equal(a->seq.narrow->n_in, WIDTH);
    if (share < 0.99) fail_msg("%.3f of the entries in common", share);
    ig_session_close(a);
    ig_session_close(b);
}

/* Without them nothing can be told from anything. */
static void guesses_are_made_from_them(void **state) {
    (void)state;
    ig_session *a = open_paper(skew, false), *b = open_paper(skew, true);
    put(a, ids, N_PROMPT);
    put(b, ids, N_PROMPT);
    for (int i = 0; i < 2; i++) {
        step(a, ids[N_PROMPT + i]);
        step(b, ids[N_PROMPT + i]);
    }
    assert_true(common_share(a, b) > 0.9);
    memset((void *)(uintptr_t)a->seq.narrow->w, 0, HEADS * COLUMNS * WIDTH * sizeof(uint16_t));
    step(a, ids[N_PROMPT + 2]);
    step(b, ids[N_PROMPT + 2]);
    assert_true(common_share(a, b) < 0.7);
    ig_session_close(a);
    ig_session_close(b);
}

static void each_prompt_has_its_own(void **state) {
    (void)state;
    ig_session *used = open_paper(skew, false), *fresh = open_paper(skew, false);
    put(used, ids + 40, N_PROMPT);
    for (int i = 0; i < 3; i++) step(used, ids[i]);
    assert_non_null(used->seq.narrow);
    put(used, ids, N_PROMPT);
    put(fresh, ids, N_PROMPT);
    for (int i = 0; i < 5; i++) {
        step(used, ids[N_PROMPT + i]);
        step(fresh, ids[N_PROMPT + i]);
        same(used, fresh);
    }
    ig_session_close(used);
    ig_session_close(fresh);
}

/* Sessions whose guesses come from parts of their own, from all weights, and that make none. */
static void batch_mates_do_not_matter(void **state) {
    (void)state;
    enum { N = 4 };
    ig_session *together[N], *alone[N];
    ig_error err = {0};
    for (int k = 0; k < N; k++) {
        for (int i = 0; i < 2; i++) {
            ig_session *s = k < 3 ? open_paper(k == 1 ? NULL : skew, k == 2) : NULL;
            if (!s) {
                ig_session_options o = options(NULL);
                o.cache.policy = "infinigen";
                s = open_session(&o);
            }
            put(s, ids + k, N_PROMPT - 10 * k);
            if (k == 1) step(s, ids[7]); /* one step ahead of the others */
            (i ? together : alone)[k] = s;
        }
    }
    for (int i = 0; i < 6; i++) {
        int32_t next[N];
        for (int k = 0; k < N; k++) next[k] = ids[N_PROMPT + i + k];
        expect_ok(ig_session_decode(together, next, N, &err), &err);
        for (int k = 0; k < N; k++) {
            step(alone[k], next[k]);
            same(together[k], alone[k]);
        }
    }
    assert_true(together[0]->seq.narrow && together[1]->seq.narrow && !together[2]->seq.narrow);
    for (int k = 0; k < N; k++) {
        ig_session_close(together[k]);
        ig_session_close(alone[k]);
    }
}

static uint64_t planned(const char *speculate) {
    ig_cache_plan_info plan;
    ig_error err = {0};
    ig_session_options o = options(skew);
    o.cache.speculate = speculate;
    expect_ok(ig_cache_plan(&plan, model, &o, &err), &err);
    return plan.sketch;
}

static void what_they_take(void **state) {
    (void)state;
    const uint64_t bytes = SPARSE * HEADS * COLUMNS * WIDTH * sizeof(uint16_t);
    ig_session *with = open_paper(skew, false), *without = open_paper(skew, true);
    put(with, ids, N_PROMPT);
    put(without, ids, N_PROMPT);
    assert_true(stats(with).sketch_bytes == stats(without).sketch_bytes);
    memory_count_start(-1);
    for (int i = 0; i < 2; i++) {
        step(with, ids[i]);
        step(without, ids[i]);
    }
    memory_count_stop();
    assert_int_equal(memory_count.n_taken, 0);
    assert_true(stats(with).sketch_bytes == stats(without).sketch_bytes + bytes);
    assert_true(stats(with).sketch_bytes <= planned(NULL));
    assert_true(planned(NULL) == planned("none") + bytes);
    ig_session_close(with);
    ig_session_close(without);
}

/* RoPE stands between W_Q and the columns. */
static void rope_wants_whole_queries(void **state) {
    (void)state;
    ig_model *opt = model, *llama;
    ig_error err = {0};
    expect_ok(ig_model_open(&llama, ctx, TINY_LLAMA, NULL, &err), &err);
    model = llama;
    ig_session *s = open_paper(NULL, false);
    put(s, ids, N_PROMPT);
    for (int i = 0; i < 3; i++) step(s, ids[i]);
    assert_null(s->seq.narrow);
    assert_true(s->seq.guess.layer >= 0 || s->seq.chosen->layer >= 0);
    ig_session_close(s);
    ig_model_close(llama);
    model = opt;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        {"they_choose_the_same: skewed", they_choose_the_same, NULL, NULL, skew},
        {"they_choose_the_same: not skewed", they_choose_the_same, NULL, NULL, NULL},
        cmocka_unit_test(guesses_are_made_from_them),
        cmocka_unit_test(each_prompt_has_its_own),
        cmocka_unit_test(batch_mates_do_not_matter),
        cmocka_unit_test(what_they_take),
        cmocka_unit_test(rope_wants_whole_queries),
    };
    return cmocka_run_group_tests(tests, open_opt, close_opt);
}
