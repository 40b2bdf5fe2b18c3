/* SPDX-License-Identifier: Apache-2.0
 *
 * Adapters by session: each computes what a model computes that was opened with just what the session takes of them,
 * whatever others in the same step take; and only sessions that take the same share what they have in common.
 */
#define _GNU_SOURCE
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "golden/tiny_session.h"

#define ADAPTER TINY_LLAMA "/adapter"

enum { ADAPTERS = 3, N_PROMPT = 70, N_STEPS = 12, N_TEXT = N_PROMPT + N_STEPS };

/* What sessions take; of the first one as much as the model says. */
static const float scales[][ADAPTERS] = {{1, 0.5F, 0}, {0, 1, 0}, {0, 0, 0}, {0, 0, -2}, {0.25F, 0, 1}};
enum { KINDS = (int)IG_COUNT(scales) };

/* The tiny model with those adapters whose scale is not 0. */
static ig_model *open_adapted(const float scale[ADAPTERS]) {
    ig_adapter list[ADAPTERS];
    ig_model_options o = ig_model_defaults();
    ig_model *m;
    ig_error err = {0};
    o.adapters = list;
    for (int i = 0; i < ADAPTERS; i++)
        if (scale[i] != 0) list[o.n_adapters++] = (ig_adapter){.path = ADAPTER, .scale = (double)scale[i]};
    expect_ok(ig_model_open(&m, ctx, TINY_LLAMA, &o, &err), &err);
    return m;
}

static int open_all(void **state) {
    open_tiny_llama(state);
    ig_model_close(model);
    ig_model_options o = ig_model_defaults();
    ig_error err = {0};
    o.adapters =
        (ig_adapter[ADAPTERS]){{.path = ADAPTER, .scale = 1}, {.path = ADAPTER, .scale = 0.5}, {.path = ADAPTER}};
    o.n_adapters = ADAPTERS;
    expect_ok(ig_model_open(&model, ctx, TINY_LLAMA, &o, &err), &err);
    return 0;
}

static ig_session *open_on(ig_model *m, ig_session_options o, const float *scale) {
    ig_session *s;
    ig_error err = {0};
    float own[ADAPTERS];
    if (scale) o.adapter_scales = memcpy(own, scale, sizeof own);
    expect_ok(ig_session_open(&s, m, &o, &err), &err);
    memset(own, 0xff, sizeof own); /* it was copied */
    return s;
}

static void some_text(int32_t text[N_TEXT], int seed) {
    for (int i = 0; i < N_TEXT; i++) text[i] = (i * i + 7 * i * seed + 3) % N_VOCAB;
}

static ig_session_options options(void) {
    ig_session_options o = ig_session_defaults();
    o.n_ctx = 128;
    return o;
}

static void together(ig_session *const *s, int32_t texts[KINDS][N_TEXT], int first, int n) {
    ig_batch_item items[KINDS];
    ig_error err = {0};
    for (int i = 0; i < KINDS; i++)
        items[i] = (ig_batch_item){.session = s[i], .ids = texts[i] + first, .n = n, .prompt = n > 1};
    expect_ok(ig_batch_step(items, KINDS, &err), &err);
    for (int i = 0; i < KINDS; i++) expect_ok(items[i].status, &items[i].error);
}

static void each_as_if_alone(void **state) {
    ig_model *alone[KINDS];
    ig_session *s[KINDS], *of_alone[KINDS];
    int32_t texts[KINDS][N_TEXT];
    (void)state;
    for (int i = 0; i < KINDS; i++) {
        some_text(texts[i], 1);
        alone[i] = open_adapted(scales[i]);
        s[i] = open_on(model, options(), i ? scales[i] : NULL);
        of_alone[i] = open_on(alone[i], options(), NULL);
        put(of_alone[i], texts[i], N_PROMPT);
    }
    together(s, texts, 0, N_PROMPT);
    for (int at = N_PROMPT; at < N_TEXT; at++) {
        for (int i = 0; i < KINDS; i++) {
            same(s[i], of_alone[i]);
            for (int k = 0; k < i; k++)
                assert_memory_not_equal(ig_session_logits(s[i]), ig_session_logits(s[k]), N_VOCAB * sizeof(float));
            step(of_alone[i], texts[i][at]);
        }
        together(s, texts, at, 1);
    }
    for (int i = 0; i < KINDS; i++) {
        ig_session_close(s[i]);
        ig_session_close(of_alone[i]);
        ig_model_close(alone[i]);
    }
}

/* Another policy changes nothing of what it takes. */
static void after_another_policy(void **state) {
    int32_t text[N_TEXT];
    ig_session *s = open_on(model, options(), scales[4]), *full = NULL;
    ig_session_options o = options();
    ig_error err = {0};
    (void)state;
    some_text(text, 2);
    put(s, text, N_PROMPT);
    o.cache.policy = "full";
    full = open_on(model, o, scales[4]);
    put(full, text, N_PROMPT);
    expect_ok(ig_session_set_cache(s, &o.cache, &err), &err);
    for (int at = N_PROMPT; at < N_TEXT; at++) {
        step(s, text[at]);
        step(full, text[at]);
        same(s, full);
    }
    ig_session_close(s);
    ig_session_close(full);
}

static void who_shares(void **state) {
    int32_t text[N_TEXT];
    ig_session_options o = options();
    ig_cache *cache;
    ig_error err = {0};
    ig_session *s[2 * KINDS], *salted;
    (void)state;
    some_text(text, 3);
    o.cache.memory.n_sessions = 2 * KINDS + 1;
    expect_ok(ig_cache_open(&cache, model, &o, &err), &err);
    o.shared = cache;
    for (int i = 0; i < 2 * KINDS; i++) {
        s[i] = open_on(model, o, i ? scales[i % KINDS] : NULL);
        put(s[i], text, N_PROMPT);
        assert_int_equal(stats(s[i]).n_taken > 0, i >= KINDS);
        if (i >= KINDS) same(s[i], s[i - KINDS]);
    }
    o.cache.salt = "adapters";
    salted = open_on(model, o, scales[1]);
    put(salted, text, N_PROMPT);
    assert_int_equal(stats(salted).n_taken, 0);
    same(salted, s[1]);
    ig_session_close(salted);
    for (int i = 0; i < 2 * KINDS; i++) ig_session_close(s[i]);
    ig_cache_close(cache);
}

static void what_is_refused(void **state) {
    static const float bad[][ADAPTERS] = {{1, NAN, 0}, {0, 0, -1001}};
    (void)state;
    for (size_t i = 0; i < IG_COUNT(bad); i++) {
        ig_session_options o = options();
        ig_session *s;
        ig_error err = {0};
        o.adapter_scales = bad[i];
        assert_int_equal(ig_session_open(&s, model, &o, &err), IG_E_ARG);
        assert_non_null(strstr(err.text, i ? "adapter_scales[2] must be" : "adapter_scales[1] must be"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_as_if_alone),
        cmocka_unit_test(after_another_policy),
        cmocka_unit_test(who_shares),
        cmocka_unit_test(what_is_refused),
    };
    return cmocka_run_group_tests(tests, open_all, close_tiny);
}
