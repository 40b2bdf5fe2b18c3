/* SPDX-License-Identifier: Apache-2.0
 *
 * Generation that keeps to a grammar, and which tokens end an answer, with the weights of one tiny model and the
 * tokenizer of another.
 */
#define _GNU_SOURCE
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cpu_level.h"
#include "engine/answer.h"
#include "infinigen.h"
#include "unit/temp_dir.h"

static ig_context *ctx;
static ig_model *m, *without_words;
static ig_session *s;

static void add_link(const temp_dir *dir, const char *from, const char *name) {
    char target[PATH_MAX], path[512], here[PATH_MAX];
    snprintf(target, sizeof target, "%s/%s/%s", getcwd(here, sizeof here / 2), from, name);
    temp_dir_path(dir, name, path, sizeof path);
    if (symlink(target, path)) fail_msg("%s", path);
}

static int open_all(void **state) {
    (void)state;
    ig_error err = {0};
    ig_context_options o = ig_context_defaults();
    o.n_threads = 1;
    o.cpu_level = test_cpu_level();
    const int32_t ids[] = {5, 9, 23, 42};
    temp_dir dir = temp_dir_open();
    add_link(&dir, "tests/golden/models/llama31", "config.json");
    add_link(&dir, "tests/golden/models/llama31", "model.safetensors");
    add_link(&dir, "tests/data/tokenizers/llama3", "tokenizer.json");
    add_link(&dir, "tests/data/tokenizers/llama3", "tokenizer_config.json");
    if (ig_context_open(&ctx, &o, &err) || ig_model_open(&m, ctx, dir.path, NULL, &err) ||
        ig_model_open(&without_words, ctx, "tests/golden/models/llama31", NULL, &err) ||
        ig_session_open(&s, m, NULL, &err) || ig_session_sync(s, ids, 4, &err))
        fail_msg("%s", err.text);
    temp_dir_close(&dir);
    return 0;
}

static int close_all(void **state) {
    (void)state;
    ig_session_close(s);
    ig_model_close(m);
    ig_model_close(without_words);
    ig_context_close(ctx);
    return 0;
}

typedef struct answer {
    char text[4096];
    size_t n;
} answer;

static bool on_text(void *user, const char *text, size_t n) {
    answer *a = user;
    assert_true(a->n + n < sizeof a->text);
    memcpy(a->text + a->n, text, n);
    a->text[a->n += n] = 0;
    return false;
}

static ig_sampler *open_sampler(const char *gbnf) {
    ig_sampler_options o = ig_sampler_defaults();
    ig_sampler *sampler;
    ig_error err;
    o.grammar = gbnf;
    o.temperature = 2;
    if (ig_sampler_open(&sampler, m, &o, &err)) fail_msg("%s", err.text);
    return sampler;
}

/* One sampler makes one answer after another, and each ends where the grammar does. */
static void answers_keep_to_it(void **state) {
    (void)state;
    ig_sampler *sampler = open_sampler("root ::= \"(\" [0-9]{3} \")\"");
    ig_generate_options o = ig_generate_defaults();
    for (int k = 0; k < 3; k++) {
        answer a = {0};
        ig_generate_result result;
        ig_error err;
        int x;
        o.on_text = on_text;
        o.user = &a;
        o.n_predict = 20;
        o.n_least = k == 2 ? 15 : 0; /* the grammar's end is an end in any case */
        o.stops = (const char *const[]){").", NULL};
        o.n_stops = 1; /* what might have begun one is shown */
        if (ig_generate(&result, s, sampler, &o, &err)) fail_msg("%s", err.text);
        assert_int_equal(a.n, 5);
        assert_int_equal(sscanf(a.text, "(%3d)", &x), 1);
        assert_int_equal(a.text[4], ')');
        assert_int_equal(result.finish, IG_FINISH_END);
    }
    ig_sampler_close(sampler);
}

/* A text function is asked at each token, also while nothing can be shown. */
static bool third_time(void *user, const char *text, size_t n) {
    (void)text;
    assert_int_equal(n, 0); /* it might begin the stop string */
    return ++*(int *)user == 3;
}

static void nothing_to_show(void **state) {
    (void)state;
    ig_sampler *sampler = open_sampler("root ::= \"aaaaaaaaaaaaaaaaaaaa\"");
    ig_generate_options o = ig_generate_defaults();
    int n_asked = 0;
    ig_generate_result result;
    ig_error err;
    o.on_text = third_time;
    o.user = &n_asked;
    o.stops = (const char *const[]){"aaaaaaaaaaaaaaaaaaaaab"};
    o.n_stops = 1;
    if (ig_generate(&result, s, sampler, &o, &err)) fail_msg("%s", err.text);
    assert_int_equal(result.finish, IG_FINISH_INTERRUPTED);
    assert_int_equal(result.n_tokens, 3);
    ig_sampler_close(sampler);
}

/* What may end or go on ends by the model's own token. */
static void the_model_ends(void **state) {
    (void)state;
    ig_sampler *sampler = open_sampler("root ::= [ab]{2,}");
    ig_generate_options o = ig_generate_defaults();
    answer a = {0};
    ig_generate_result result;
    ig_error err;
    o.on_text = on_text;
    o.user = &a;
    if (ig_generate(&result, s, sampler, &o, &err)) fail_msg("%s", err.text);
    assert_int_equal(result.finish, IG_FINISH_END);
    assert_true(a.n >= 2);
    assert_int_equal(strspn(a.text, "ab"), a.n);
    ig_sampler_close(sampler);
}

static void tokens_one_by_one(void **state) {
    (void)state;
    ig_sampler *sampler = open_sampler("root ::= \"ab\"");
    for (int k = 0; k < 2; k++) {
        char text[8];
        size_t n = 0;
        for (int32_t id; n < 2 && (id = ig_sampler_next(sampler, s)) >= 0;)
            n += ig_detokenize(m, &id, 1, false, text + n, sizeof text - n);
        assert_memory_equal(text, "ab", 2);
        assert_true(ig_token_is_end(m, ig_sampler_next(sampler, s)));
        ig_sampler_restart(sampler);
    }
    ig_sampler_close(sampler);
}

/* While none may come: those of the model and of the caller, in the order of their numbers, each of them once. */
static void ends_are_listed(void **state) {
    (void)state;
    static const int32_t own[] = {300, 7, INT32_MAX, 7, 0, 512, -1, 511, INT32_MIN, 300};
    for (int k = 0; k < 2; k++) {
        ig_generate_options o = ig_generate_defaults();
        ig_answer a = {.session = s, .sampler = open_sampler(NULL), .o = &o};
        ig_error err;
        size_t n = 0, n_models = 0;
        o.ignore_end = k == 1;
        o.n_least = 1;
        o.stop_ids = own;
        o.n_stop_ids = sizeof own / sizeof *own;
        if (ig_answer_open(&a, &err)) fail_msg("%s", err.text);
        for (int32_t id = 0; id < 512; id++) {
            bool is_models = !o.ignore_end && ig_token_is_end(m, id);
            n_models += is_models;
            if (!is_models && id != 0 && id != 7 && id != 300 && id != 511) continue;
            assert_true(n < a.n_ends);
            assert_int_equal(a.ends[n++], id);
        }
        assert_int_equal(n, a.n_ends);
        assert_true((n_models > 0) == (k == 0));
        ig_answer_close(&a);
        ig_sampler_close(a.sampler);
    }
}

static void what_cannot_be(void **state) {
    (void)state;
    ig_sampler_options o = ig_sampler_defaults();
    ig_sampler *sampler;
    ig_error err;
    o.grammar = "root ::= \"a\"";
    assert_int_equal(ig_sampler_open(&sampler, without_words, &o, &err), IG_E_UNSUPPORTED);
    o.grammar = "root ::= [a-";
    assert_int_equal(ig_sampler_open(&sampler, m, &o, &err), IG_E_FORMAT);
    assert_null(sampler);
    assert_int_equal(ig_grammar_check(o.grammar, &err), IG_E_FORMAT);
    /* twice as many places with each letter, in the middle of an answer */
    sampler = open_sampler("root ::= \"a\" root \"b\" | \"a\" root \"c\"");
    ig_generate_options g = ig_generate_defaults();
    assert_int_equal(ig_generate(NULL, s, sampler, &g, &err), IG_E_ARG);
    assert_non_null(strstr(err.text, "too much work"));
    ig_sampler_close(sampler);
    /* every token that could come is banned */
    ig_logit_bias *all = calloc(512, sizeof *all);
    for (int i = 0; i < 512; i++) all[i] = (ig_logit_bias){i, -INFINITY};
    o.grammar = "root ::= \"a\"";
    o.logit_bias = all;
    o.n_logit_bias = 512;
    assert_int_equal(ig_sampler_open(&sampler, m, &o, &err), IG_OK);
    assert_int_equal(ig_generate(NULL, s, sampler, &g, &err), IG_E_ARG);
    assert_non_null(strstr(err.text, "no token can come next"));
    ig_sampler_close(sampler);
    free(all);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_keep_to_it), cmocka_unit_test(nothing_to_show), cmocka_unit_test(the_model_ends),
        cmocka_unit_test(tokens_one_by_one),  cmocka_unit_test(ends_are_listed), cmocka_unit_test(what_cannot_be),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
