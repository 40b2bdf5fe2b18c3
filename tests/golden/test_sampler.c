/* SPDX-License-Identifier: Apache-2.0
 *
 * Sampling on the logits of a tiny model: the same seed gives the same tokens, filters leave what they promise, and
 * frequencies follow the probabilities that sorting and summing gives.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cpu_level.h"
#include "infinigen.h"

enum { N_VOCAB = 512, N_DRAWS = 20000 };

static ig_context *ctx;
static ig_model *model;
static ig_session *session;
static int32_t order[N_VOCAB]; /* ids by descending logit */
static double expected[N_VOCAB];

static int heavier_first(const void *a, const void *b) {
    const float *logits = ig_session_logits(session);
    int i = *(const int32_t *)a, j = *(const int32_t *)b;
    if (logits[i] != logits[j]) return logits[i] < logits[j] ? 1 : -1;
    return i - j;
}

static int open_session(void **state) {
    (void)state;
    ig_error err = {0};
    ig_context_options o = ig_context_defaults();
    o.n_threads = 1;
    o.cpu_level = test_cpu_level();
    int32_t ids[40];
    for (int i = 0; i < 40; i++) ids[i] = (i * 37 + 5) % N_VOCAB;
    if (ig_context_open(&ctx, &o, &err) || ig_model_open(&model, ctx, "tests/golden/models/llama31", NULL, &err) ||
        ig_session_open(&session, model, NULL, &err) || ig_session_sync(session, ids, 40, &err))
        fail_msg("%s", err.text);
    for (int i = 0; i < N_VOCAB; i++) order[i] = i;
    qsort(order, N_VOCAB, sizeof *order, heavier_first);
    return 0;
}

static int close_session(void **state) {
    (void)state;
    ig_session_close(session);
    ig_model_close(model);
    ig_context_close(ctx);
    return 0;
}

static ig_sampler *open_sampler(ig_sampler_options o) {
    ig_sampler *s;
    ig_error err = {0};
    if (ig_sampler_open(&s, model, &o, &err)) fail_msg("%s", err.text);
    return s;
}

/* What top-k, then top-p, then min-p, then temperature leave, by the definitions. */
static void expect(const ig_sampler_options *o) {
    const float *logits = ig_session_logits(session);
    double p[N_VOCAB], total = 0, sum = 0;
    int n = o->top_k > 0 && o->top_k < N_VOCAB ? o->top_k : N_VOCAB;
    for (int i = 0; i < n; i++) total += p[i] = exp((double)logits[order[i]] - logits[order[0]]);
    if (o->top_p < 1) {
        int kept = 0;
        while (kept < n && (kept == 0 || sum < o->top_p * total)) sum += p[kept++];
        n = kept;
    }
    while (n > 1 && p[n - 1] < o->min_p) n--;
    memset(expected, 0, sizeof expected);
    sum = 0;
    for (int i = 0; i < n; i++) sum += p[i] = pow(p[i], 1 / (double)o->temperature);
    for (int i = 0; i < n; i++) expected[order[i]] = p[i] / sum;
}

static void check_frequencies(ig_sampler_options o) {
    static int counts[N_VOCAB];
    expect(&o);
    memset(counts, 0, sizeof counts);
    ig_sampler *s = open_sampler(o);
    for (int i = 0; i < N_DRAWS; i++) counts[ig_sampler_next(s, session)]++;
    ig_sampler_close(s);
    for (int i = 0; i < N_VOCAB; i++) {
        if (expected[i] == 0) assert_int_equal(counts[i], 0);
        double mean = expected[i] * N_DRAWS, deviation = sqrt(mean * (1 - expected[i]) + 1);
        assert_true(fabs(counts[i] - mean) < 5.5 * deviation);
    }
}

static void frequencies_follow_the_definitions(void **state) {
    (void)state;
    ig_sampler_options o = ig_sampler_defaults();
    o.temperature = 1;
    o.seed = 11;
    check_frequencies(o);
    o.temperature = 0.5f;
    check_frequencies(o);
    o.top_k = 7;
    check_frequencies(o);
    o.top_p = 0.6f;
    check_frequencies(o);
    o.top_k = 0;
    check_frequencies(o);
    o.min_p = 0.3f;
    check_frequencies(o);
    o.top_k = 40;
    o.top_p = 0.95f;
    o.min_p = 0.05f;
    o.temperature = 0.8f;
    check_frequencies(o);
    o.top_p = 1;
    check_frequencies(o);
}

static void narrow_filters_are_greedy(void **state) {
    (void)state;
    ig_sampler_options o = ig_sampler_defaults();
    ig_sampler_options narrow[4] = {o, o, o, o};
    narrow[1].top_k = 1;
    narrow[2].top_p = 1e-6f;
    narrow[3].min_p = 1;
    for (int i = 0; i < 4; i++) {
        if (i) narrow[i].temperature = 2;
        ig_sampler *s = open_sampler(narrow[i]);
        for (int k = 0; k < 20; k++) assert_int_equal(ig_sampler_next(s, session), order[0]);
        ig_sampler_close(s);
    }
}

static void seeds_repeat(void **state) {
    (void)state;
    ig_sampler_options o = ig_sampler_defaults();
    o.temperature = 1.5f;
    ig_sampler *a = open_sampler(o), *b = open_sampler(o);
    o.seed = 1;
    ig_sampler *c = open_sampler(o);
    int differ = 0;
    for (int i = 0; i < 200; i++) {
        int32_t x = ig_sampler_next(a, session);
        assert_int_equal(x, ig_sampler_next(b, session));
        differ += x != ig_sampler_next(c, session);
    }
    assert_true(differ > 50);
    ig_sampler_close(a);
    ig_sampler_close(b);
    ig_sampler_close(c);
}

static void penalty_turns_away_from_what_was_said(void **state) {
    (void)state;
    ig_sampler_options o = ig_sampler_defaults();
    o.repeat_penalty = 1e6f;
    o.repeat_last_n = -1;
    ig_sampler *s = open_sampler(o);
    ig_session *copy;
    ig_error err = {0};
    const int32_t *ids;
    int n = ig_session_tokens(session, &ids);
    if (ig_session_open(&copy, model, NULL, &err) || ig_session_sync(copy, ids, n, &err)) fail_msg("%s", err.text);
    bool seen[N_VOCAB] = {false};
    for (int i = 0; i < n; i++) seen[ids[i]] = true;
    for (int i = 0; i < 60; i++) { /* each token at most once, as positive logits shrink to nothing */
        int32_t id = ig_sampler_next(s, copy);
        assert_false(seen[id]);
        seen[id] = true;
        if (ig_session_decode(&copy, &id, 1, &err)) fail_msg("%s", err.text);
    }
    ig_session_close(copy);
    ig_sampler_close(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frequencies_follow_the_definitions),
        cmocka_unit_test(narrow_filters_are_greedy),
        cmocka_unit_test(seeds_repeat),
        cmocka_unit_test(penalty_turns_away_from_what_was_said),
    };
    return cmocka_run_group_tests(tests, open_session, close_session);
}
