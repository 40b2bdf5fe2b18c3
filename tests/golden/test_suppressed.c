/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens that a model's files suppress never come in answers, and the model's logits stay what they are. The weights
 * are of one tiny model, and the tokenizer is of another. Suppressed are the tokens that are likeliest after a prompt,
 * and all that begin with a q.
 */
#define _GNU_SOURCE
#include <float.h>
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "golden/tiny_session.h"
#include "infinigen_requests.h"
#include "unit/temp_dir.h"

enum { N_LIKELIEST = 5, N_DRAWS = 3000, N_PREDICT = 30 };

static const int32_t prompt[] = {5, 9, 23, 42};
static ig_model *plain;            /* the same without the key */
static ig_session *with, *without; /* sessions of `model` and of `plain` */
static bool is_suppressed[N_VOCAB];
static int32_t order[N_VOCAB]; /* ids by descending logit, those that are suppressed before the others */
static const int32_t *others;  /* in `order`, the others */

static void add_link(const temp_dir *dir, const char *from, const char *name) {
    char target[PATH_MAX], path[512], here[PATH_MAX];
    snprintf(target, sizeof target, "%s/%s/%s", getcwd(here, sizeof here / 2), from, name);
    temp_dir_path(dir, name, path, sizeof path);
    if (symlink(target, path)) fail_msg("%s", path);
}

static ig_session *open_prompt(ig_model *m) {
    ig_session *s;
    ig_error err = {0};
    expect_ok(ig_session_open(&s, m, NULL, &err), &err);
    put(s, prompt, IG_COUNT(prompt));
    return s;
}

static int likelier_first(const void *a, const void *b) {
    int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    float x = ig_session_logits(without)[i], y = ig_session_logits(without)[j];
    if (is_suppressed[i] != is_suppressed[j]) return is_suppressed[i] ? -1 : 1;
    return x != y ? (x < y ? 1 : -1) : i - j;
}

static void choose_tokens(void) {
    int n = 0;
    for (int i = 0; i < N_VOCAB; i++) order[i] = i;
    qsort(order, N_VOCAB, sizeof *order, likelier_first);
    for (int i = 0; i < N_LIKELIEST; i++) is_suppressed[order[i]] = true;
    for (int32_t id = 0; id < N_VOCAB; id++) {
        char text[IG_TOKEN_BYTES_MAX];
        is_suppressed[id] |= ig_detokenize(plain, &id, 1, false, text, sizeof text) && text[0] == 'q';
        n += is_suppressed[id];
    }
    assert_true(n > N_LIKELIEST);
    qsort(order, N_VOCAB, sizeof *order, likelier_first);
    others = order + n;
}

/* With ids that the model has no row for, and one that is there twice. */
static void write_suppressed(const temp_dir *dir) {
    char text[1024] = "{\"suppress_tokens\": [512, 2147483647";
    for (const int32_t *id = others; id-- > order;)
        snprintf(text + strlen(text), sizeof text - strlen(text), ", %d", *id);
    snprintf(text + strlen(text), sizeof text - strlen(text), ", %d]}", order[0]);
    temp_dir_write(dir, "generation_config.json", text, strlen(text));
}

static int open_all(void **state) {
    (void)state;
    ig_error err = {0};
    ig_context_options o = ig_context_defaults();
    temp_dir dir = temp_dir_open();
    o.n_threads = 1;
    o.cpu_level = test_cpu_level();
    add_link(&dir, TINY_LLAMA, "config.json");
    add_link(&dir, TINY_LLAMA, "model.safetensors");
    add_link(&dir, "tests/data/tokenizers/llama3", "tokenizer.json");
    add_link(&dir, "tests/data/tokenizers/llama3", "tokenizer_config.json");
    expect_ok(ig_context_open(&ctx, &o, &err), &err);
    expect_ok(ig_model_open(&plain, ctx, dir.path, NULL, &err), &err);
    without = open_prompt(plain);
    choose_tokens();
    write_suppressed(&dir);
    expect_ok(ig_model_open(&model, ctx, dir.path, NULL, &err), &err);
    with = open_prompt(model);
    temp_dir_close(&dir);
    return 0;
}

static int close_all(void **state) {
    ig_session_close(with);
    ig_session_close(without);
    ig_model_close(plain);
    return close_tiny(state);
}

static ig_sampler *open_sampler(const ig_sampler_options *o) {
    ig_sampler *s;
    ig_error err = {0};
    expect_ok(ig_sampler_open(&s, model, o, &err), &err);
    return s;
}

static void logits_stay(void **state) {
    (void)state;
    same(with, without);
    ig_sampler *s = open_sampler(NULL);
    assert_int_equal(ig_sampler_next(s, with), others[0]); /* greedy: the likeliest that may come */
    same(with, without);
    ig_sampler_close(s);
}

/* Draws the next token again and again, and counts how often each came. */
static void draw_many(int counts[N_VOCAB], const ig_sampler_options *o) {
    ig_sampler *s = open_sampler(o);
    memset(counts, 0, N_VOCAB * sizeof *counts);
    for (int i = 0; i < N_DRAWS; i++) {
        int32_t id = ig_sampler_next(s, with);
        assert_true(id >= 0 && id < N_VOCAB && !is_suppressed[id]);
        counts[id]++;
        ig_sampler_restart(s);
    }
    ig_sampler_close(s);
}

static void draws_are_of_the_others(void **state) {
    int counts[N_VOCAB];
    ig_sampler_options o = ig_sampler_defaults();
    (void)state;
    o.temperature = 0.5f;
    draw_many(counts, &o);
    assert_true(counts[others[0]] > 0 && counts[others[1]] > 0);
    o.top_k = 2; /* of those that may come */
    draw_many(counts, &o);
    assert_int_equal(counts[others[0]] + counts[others[1]], N_DRAWS);
    assert_true(counts[others[0]] > 0 && counts[others[1]] > 0);
    o.top_k = 0;
    o.top_p = 0.5f;
    o.min_p = 0.01f;
    draw_many(counts, &o);
    o.repeat_penalty = 1.5f;
    o.repeat_last_n = -1;
    o.typical_p = 0.9f;
    draw_many(counts, &o);
}

/* A bias cannot bring them back. */
static void whatever_their_bias(void **state) {
    int counts[N_VOCAB];
    ig_sampler_options o = ig_sampler_defaults();
    (void)state;
    for (int i = 0; i < 2; i++) {
        ig_logit_bias bias = {order[0], i ? FLT_MAX : 1000};
        o.logit_bias = &bias;
        o.n_logit_bias = 1;
        o.temperature = 0;
        draw_many(counts, &o);
        assert_int_equal(counts[others[0]], N_DRAWS);
        o.temperature = 1;
        draw_many(counts, &o);
    }
}

static void in_a_grammar(void **state) {
    int counts[N_VOCAB];
    ig_sampler_options o = ig_sampler_defaults();
    ig_generate_options g = ig_generate_defaults();
    ig_error err = {0};
    (void)state;
    o.temperature = 2;
    o.grammar = "root ::= [a-zA-Z ]+";
    draw_many(counts, &o);
    o.grammar = "root ::= \"q\" | \"z\"";
    draw_many(counts, &o);
    o.grammar = "root ::= \"q\""; /* nothing is left */
    ig_sampler *s = open_sampler(&o);
    assert_int_equal(ig_sampler_next(s, with), -1);
    assert_int_equal(ig_generate(NULL, with, s, &g, &err), IG_E_ARG);
    assert_non_null(strstr(err.text, "no token can come next"));
    ig_sampler_close(s);
}

/* ---- answers ------------------------------------------------------------------------------------- */

typedef struct answer { /* of the scheduler's thread until it has ended */
    int32_t ids[N_PREDICT];
    ig_token_score top[IG_REQUEST_TOP_MAX]; /* of the first token */
    double logprob;
    int n, n_top;
    ig_error error;
    atomic_bool has_ended;
} answer;

static void on_token(void *user, const ig_request_token *t) {
    answer *a = user;
    if (a->n == N_PREDICT) return;
    if (a->n == 0) {
        a->logprob = t->token.logprob;
        a->n_top = t->n_top;
        memcpy(a->top, t->top, (size_t)t->n_top * sizeof *t->top);
    }
    a->ids[a->n++] = t->token.id;
}

static void on_end(void *user, const ig_request_result *result) {
    answer *a = user;
    a->error = result->error;
    a->has_ended = true;
}

/* A greedy answer. */
static void get_answer(answer *a) {
    ig_scheduler *scheduler;
    ig_request *request;
    ig_request_options o = ig_request_defaults();
    ig_error err = {0};
    expect_ok(ig_scheduler_open(&scheduler, model, NULL, &err), &err);
    o.ids = prompt;
    o.n_ids = IG_COUNT(prompt);
    o.has_scores = true;
    o.n_top = IG_REQUEST_TOP_MAX;
    o.generate.n_predict = N_PREDICT;
    o.generate.ignore_end = true;
    o.on_token = on_token;
    o.on_end = on_end;
    o.user = a;
    expect_ok(ig_scheduler_submit(&request, NULL, scheduler, &o, 1, &err), &err);
    while (!a->has_ended) usleep(1000);
    ig_request_close(request);
    ig_scheduler_close(scheduler);
    expect_ok(a->error.status, &a->error);
}

/* Probabilities are those among the tokens that may come. */
static void scores_are_of_the_others(void **state) {
    answer a = {.n = 0};
    float left[N_VOCAB];
    (void)state;
    get_answer(&a);
    memcpy(left, ig_session_logits(without), sizeof left);
    for (const int32_t *id = order; id < others; id++) left[*id] = -INFINITY;
    double total = ig_log_sum(left, N_VOCAB);
    assert_int_equal(a.n_top, IG_REQUEST_TOP_MAX);
    for (int i = 0; i < a.n_top; i++) {
        assert_int_equal(a.top[i].id, others[i]);
        assert_true(fabs(a.top[i].logprob - ((double)left[others[i]] - total)) < 1e-9);
    }
    assert_true(a.ids[0] == others[0] && a.logprob == a.top[0].logprob);
}

static void whole_answers(void **state) {
    answer a = {.n = 0};
    ig_generate_options g = ig_generate_defaults();
    ig_sampler *s = open_sampler(NULL);
    const int32_t *held;
    ig_error err = {0};
    (void)state;
    get_answer(&a);
    assert_int_equal(a.n, N_PREDICT);
    for (int i = 0; i < a.n; i++) assert_false(is_suppressed[a.ids[i]]);
    g.n_predict = N_PREDICT;
    g.ignore_end = true;
    expect_ok(ig_generate(NULL, with, s, &g, &err), &err);
    int n = ig_session_tokens(with, &held) - (int)IG_COUNT(prompt);
    assert_true(n >= N_PREDICT - 1); /* the last one is not computed */
    assert_memory_equal(held + IG_COUNT(prompt), a.ids, (size_t)n * sizeof *held);
    ig_sampler_close(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_stay),
        cmocka_unit_test(draws_are_of_the_others),
        cmocka_unit_test(whatever_their_bias),
        cmocka_unit_test(in_a_grammar),
        cmocka_unit_test(scores_are_of_the_others),
        cmocka_unit_test(whole_answers),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
