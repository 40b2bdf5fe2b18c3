/* SPDX-License-Identifier: Apache-2.0
 *
 * A draft model: answers are the same with one as without, sooner where it is right; what cannot be one is refused, and
 * one that fails is done without.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "engine/session.h"
#include "golden/tiny_session.h"
#include "golden/tiny_copy.h"

enum { N_PROMPT = 90, N_ANSWER = 80, N_TEXT = N_PROMPT + N_ANSWER };

static ig_model *draft;

static ig_model *open_other(const char *path) {
    ig_model *m;
    ig_error err = {0};
    expect_ok(ig_model_open(&m, ctx, path, NULL, &err), &err);
    return m;
}

/* The draft model is the model itself, opened again. */
static int open_both(void **state) {
    open_tiny_llama(state);
    model->batch.costs.are_nothing = true;
    draft = open_other(TINY_LLAMA);
    return 0;
}

static int close_both(void **state) {
    ig_model_close(draft);
    return close_tiny(state);
}

static ig_session_options options(ig_model *draft_model) {
    ig_session_options o = ig_session_defaults();
    o.n_ctx = 256;
    o.n_draft = draft_model ? IG_DRAFT_MAX : 0;
    o.draft_model = draft_model;
    return o;
}

/* Goes on with a text of n tokens by the likeliest one, and each eighth time by another, so that it does not only say
 * what it has said. */
static ig_session_stats go_on(ig_session *s, int32_t text[N_TEXT], int n) {
    put(s, text, n);
    for (int i = n; i < N_TEXT; i++) {
        text[i] = ig_kernels_get(ctx->level)->argmax(ig_session_logits(s), N_VOCAB);
        if (i % 8 == 0) text[i] = (text[i] + i) % N_VOCAB;
        step(s, text[i]);
    }
    return stats(s);
}

static void some_text(int32_t text[N_TEXT]) {
    for (int i = 0; i < N_PROMPT; i++) text[i] = (i * i + 7 * i + 3) % N_VOCAB;
}

static void answers_are_the_same(void **state) {
    int32_t text[2][N_TEXT];
    ig_session_options o[2] = {options(NULL), options(draft)};
    ig_session_stats st = {0};
    ig_session *s[2];
    (void)state;
    for (int k = 0; k < 2; k++) {
        s[k] = open_session(&o[k]);
        some_text(text[k]);
        go_on(s[k], text[k], N_PROMPT);
        st = go_on(s[k], text[k], N_PROMPT + 20); /* it goes back */
    }
    assert_memory_equal(text[0], text[1], sizeof *text);
    same(s[0], s[1]);
    assert_true(st.draft_seconds > 0 && st.draft_seconds < st.decode_seconds);
    assert_true(st.n_draft_hits > N_ANSWER && st.n_draft_hits * 3 > st.n_drafted && !st.n_expected);
    for (int k = 0; k < 2; k++) ig_session_close(s[k]);
}

/* Sessions of a cache: what one draft session has of a prompt the next one takes over. */
static void in_a_cache(void **state) {
    ig_error err = {0};
    ig_session_options o = options(draft);
    ig_cache *cache;
    int32_t alone[N_TEXT], text[N_TEXT];
    (void)state;
    o.cache.memory.n_sessions = 2;
    expect_ok(ig_cache_open(&cache, model, &o, &err), &err);
    o.shared = cache;
    o.draft_model = NULL; /* in a cache it is the cache's */
    some_text(alone);
    for (int i = 0; i < 2; i++) {
        ig_session *s = open_session(&o);
        assert_non_null(s->draft.session);
        some_text(text);
        ig_session_stats st = go_on(s, i ? text : alone, N_PROMPT);
        assert_true(st.n_draft_hits > N_ANSWER / 2);
        assert_int_equal(st.n_taken > 0, i > 0);
        assert_int_equal(stats(s->draft.session).n_taken > 0, i > 0);
        ig_session_close(s);
    }
    assert_memory_equal(text, alone, sizeof text);
    ig_cache_close(cache);
}

/* Beyond its context it guesses nothing, nor of a text that is far ahead of it. */
static void its_context_is_shorter(void **state) {
    int32_t text[2][N_TEXT];
    ig_session_options o[2] = {options(NULL), options(draft)};
    int n_ctx_train = draft->config.n_ctx_train;
    (void)state;
    draft->config.n_ctx_train = N_PROMPT + 20;
    for (int k = 0; k < 2; k++) {
        ig_session *s = open_session(&o[k]);
        some_text(text[k]);
        ig_session_stats st = go_on(s, text[k], N_PROMPT);
        if (k) assert_true(s->draft.session && st.n_draft_hits > 10 && st.n_draft_hits < N_ANSWER - 20);
        ig_session_close(s);
    }
    assert_memory_equal(text[0], text[1], sizeof *text);
    draft->config.n_ctx_train = n_ctx_train;
}

static void spoil(void *user, ig_tap_place at, int layer) {
    static const float nan = NAN;
    int *n_left = user;
    if (at == IG_TAP_ATTENTION && layer == 1 && --*n_left < 0)
        ctx->device->ops->copy(ctx->device, draft->batch.h, &nan, sizeof nan);
}

static void one_that_fails(void **state) {
    int32_t text[2][N_TEXT];
    ig_session_options o[2] = {options(NULL), options(draft)};
    (void)state;
    for (int n_left = 0; n_left < 40; n_left += 13) { /* in its prompt, and later */
        int left = n_left;
        draft->batch.tap = spoil;
        draft->batch.tap_user = &left;
        for (int k = 0; k < 2; k++) {
            ig_session *s = open_session(&o[k]);
            some_text(text[k]);
            go_on(s, text[k], N_PROMPT);
            if (k) assert_null(s->draft.session);
            ig_session_close(s);
        }
        draft->batch.tap = NULL;
        assert_memory_equal(text[0], text[1], sizeof *text);
    }
}

static void refuse(ig_model *m, ig_model *guesses, ig_status status, const char *why) {
    ig_error err = {0};
    ig_session *s;
    ig_session_options o = options(guesses);
    assert_int_equal(ig_session_open(&s, m, &o, &err), status);
    assert_non_null(strstr(err.text, why));
    assert_null(s);
}

/* Nor is one whose file has changed since: sessions are opened without it. */
static void one_whose_file_has_changed(void **state) {
    tiny_copy copy = copy_tiny("llama31");
    ig_model *changed = open_other(copy.dir.path);
    ig_session_options o = options(changed);
    static const struct timespec other[2] = {{1000, 0}, {1000, 0}};
    (void)state;
    assert_int_equal(utimensat(AT_FDCWD, copy.weights, other, 0), 0);
    ig_session *s = open_session(&o);
    assert_null(s->draft.session);
    int32_t text[N_TEXT] = {1, 2, 3};
    assert_true(go_on(s, text, N_PROMPT).n_decoded > 0);
    ig_session_close(s);
    ig_error err = {0};
    expect_ok(ig_cache_open(&o.shared, model, &o, &err), &err);
    s = open_session(&o);
    assert_null(s->draft.session);
    put(s, text, N_PROMPT);
    ig_session_close(s);
    ig_cache_close(o.shared);
    ig_model_close(changed);
    drop_tiny_copy(&copy);
}

static void what_is_refused(void **state) {
    ig_model *recurrent = open_other("tests/golden/models/qwen3.5"), *other = open_other(TINY_LLAMA);
    (void)state;
    refuse(model, model, IG_E_ARG, "of its own");
    refuse(model, recurrent, IG_E_UNSUPPORTED, "recurrent");
    other->config.n_vocab--;
    refuse(model, other, IG_E_ARG, "vocabulary");
    other->config.n_vocab++;
    ig_model_close(recurrent);
    ig_model_close(other);
}

/* Memory is told beforehand; where nothing can be computed ahead, there is nobody to guess. */
static void plans(void **state) {
    ig_error err = {0};
    ig_cache_plan_info with, without;
    ig_session_options o = options(draft), plain = options(NULL);
    (void)state;
    expect_ok(ig_cache_plan(&with, model, &o, &err), &err);
    expect_ok(ig_cache_plan(&without, model, &plain, &err), &err);
    assert_true(with.drafts > 0 && without.drafts == 0);
    assert_true(with.total >= without.total + with.drafts);
    o.cache.policy = "h2o";
    expect_ok(ig_cache_plan(&with, model, &o, &err), &err);
    assert_true(with.drafts == 0);
    ig_session *s = open_session(&o);
    assert_null(s->draft.session);
    ig_session_close(s);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_both, close_both)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(answers_are_the_same),
        TEST(in_a_cache),
        TEST(its_context_is_shorter),
        TEST(one_that_fails),
        TEST(one_whose_file_has_changed),
        TEST(what_is_refused),
        TEST(plans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
