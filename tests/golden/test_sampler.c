/* SPDX-License-Identifier: Apache-2.0
 *
 * Sampling on the logits of a tiny model: the same seed gives the same tokens, filters leave what they promise, and
 * frequencies follow the probabilities that sorting and summing in doubles gives. Bias and penalties are checked by the
 * tokens that greedy sampling takes.
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
#include "base/random.h"
#include "infinigen.h"

enum { N_VOCAB = 512, N_DRAWS = 20000 };

static ig_context *ctx;
static ig_model *model;
static ig_session *session;
static int32_t order[N_VOCAB]; /* ids by descending logit */

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
    for (int i = 0; i < 40; i++) ids[i] = i * i % 29 * 17 + 5; /* some once, some several times */
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

/* Logits with bias, then penalties, by the definitions. */
static void adjusted(double logits[N_VOCAB], const ig_sampler_options *o) {
    const int32_t *tokens;
    int n = ig_session_tokens(session, &tokens),
        back = o->repeat_last_n < 0 || o->repeat_last_n > n ? n : o->repeat_last_n;
    for (int i = 0; i < N_VOCAB; i++) {
        int count = 0;
        double x = (double)ig_session_logits(session)[i];
        for (size_t k = 0; k < o->n_logit_bias; k++)
            if (o->logit_bias[k].id == i) x += (double)o->logit_bias[k].bias;
        for (int k = n - back; k < n; k++) count += tokens[k] == i;
        if (count) x = x > 0 ? x / (double)o->repeat_penalty : x * (double)o->repeat_penalty;
        if (count) x -= (double)o->presence_penalty;
        logits[i] = x - count * (double)o->frequency_penalty;
    }
}

/* What filters leave: tokens and their logits. */
typedef struct left {
    int n;
    int32_t id[N_VOCAB];
    double x[N_VOCAB], key[N_VOCAB];
} left;

/* Descending keys. */
static void put_in_order(left *l) {
    for (int i = 1; i < l->n; i++)
        for (int k = i; k > 0 && l->key[k] > l->key[k - 1]; k--) {
            int32_t id = l->id[k];
            double x = l->x[k], key = l->key[k];
            l->id[k] = l->id[k - 1], l->x[k] = l->x[k - 1], l->key[k] = l->key[k - 1];
            l->id[k - 1] = id, l->x[k - 1] = x, l->key[k - 1] = key;
        }
}

static void order_by_logit(left *l) {
    memcpy(l->key, l->x, sizeof l->key);
    put_in_order(l);
}

static void probabilities(double p[N_VOCAB], const left *l, double temperature) {
    double top = -INFINITY, sum = 0;
    for (int i = 0; i < l->n; i++) top = fmax(top, l->x[i]);
    for (int i = 0; i < l->n; i++) sum += p[i] = exp((l->x[i] - top) / temperature);
    for (int i = 0; i < l->n; i++) p[i] /= sum;
}

/* The first ones that have probability p together. */
static void keep_share(left *l, double share) {
    double p[N_VOCAB], sum = 0;
    int n = 0;
    probabilities(p, l, 1);
    while (n < l->n && (n == 0 || sum < share)) sum += p[n++];
    l->n = n;
}

static void keep_typical(left *l, double share) {
    double p[N_VOCAB], entropy = 0;
    probabilities(p, l, 1);
    for (int i = 0; i < l->n; i++) entropy -= p[i] > 0 ? p[i] * log(p[i]) : 0;
    for (int i = 0; i < l->n; i++) l->key[i] = -fabs(-log(p[i]) - entropy);
    put_in_order(l);
    keep_share(l, share);
}

static void keep_sigma(left *l, double n_sigma) {
    double mean = 0, variance = 0;
    for (int i = 0; i < l->n; i++) mean += l->x[i] / l->n;
    for (int i = 0; i < l->n; i++) variance += (l->x[i] - mean) * (l->x[i] - mean) / l->n;
    order_by_logit(l);
    while (l->x[l->n - 1] < l->x[0] - n_sigma * sqrt(variance)) l->n--;
}

static double dynamic_temperature(const left *l, const ig_sampler_options *o) {
    double p[N_VOCAB], entropy = 0, least = fmax(0, (double)(o->temperature - o->dynatemp_range));
    int n = 0;
    probabilities(p, l, 1);
    for (int i = 0; i < l->n; i++) {
        n += l->x[i] > -INFINITY;
        entropy -= p[i] > 0 ? p[i] * log(p[i]) : 0;
    }
    if (n < 2) return (double)o->temperature;
    return least +
           ((double)(o->temperature + o->dynatemp_range) - least) * pow(entropy / log(n), (double)o->dynatemp_exponent);
}

/* The probabilities of all tokens, by the definitions of the filters in their order; xtc: whether that one is applied.
 */
static void expect(double expected[N_VOCAB], const ig_sampler_options *o, bool xtc) {
    double logits[N_VOCAB], p[N_VOCAB];
    left l = {0};
    adjusted(logits, o);
    for (int i = 0; i < N_VOCAB; i++)
        if (logits[i] > -INFINITY) l.id[l.n] = i, l.x[l.n++] = logits[i];
    if (o->top_n_sigma > 0) keep_sigma(&l, (double)o->top_n_sigma);
    order_by_logit(&l);
    if (o->top_k > 0 && o->top_k < l.n) l.n = o->top_k;
    if (o->typical_p < 1) keep_typical(&l, (double)o->typical_p);
    order_by_logit(&l);
    if (o->top_p < 1) keep_share(&l, (double)o->top_p);
    while (l.n > 1 && exp(l.x[l.n - 1] - l.x[0]) < (double)o->min_p) l.n--;
    probabilities(p, &l, 1);
    for (int i = 0; xtc && i + 1 < l.n && p[i + 1] >= (double)o->xtc_threshold; i++) l.x[i] = -INFINITY;
    probabilities(p, &l, o->dynatemp_range > 0 ? dynamic_temperature(&l, o) : (double)o->temperature);
    memset(expected, 0, N_VOCAB * sizeof *expected);
    for (int i = 0; i < l.n; i++) expected[l.id[i]] = p[i];
}

static void check_frequencies(ig_sampler_options o) {
    static int counts[N_VOCAB];
    double expected[N_VOCAB], with_xtc[N_VOCAB], share = (double)o.xtc_probability;
    expect(expected, &o, false);
    expect(with_xtc, &o, true);
    for (int i = 0; i < N_VOCAB; i++) expected[i] = (1 - share) * expected[i] + share * with_xtc[i];
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

static void further_filters_follow_the_definitions(void **state) {
    (void)state;
    const ig_logit_bias bias[] = {{3, 2}, {order[0], -1.5f}, {order[1], -INFINITY}, {3, 1.5f}};
    ig_sampler_options defaults = ig_sampler_defaults(), o = defaults;
    defaults.temperature = o.temperature = 1.2f;
    o.typical_p = 0.5f;
    check_frequencies(o);
    o.top_k = 30;
    check_frequencies(o);
    o.typical_p = 0.8f;
    o.top_p = 0.7f;
    o.min_p = 0.2f;
    check_frequencies(o);
    o = defaults;
    o.top_n_sigma = 1.5f;
    check_frequencies(o);
    o.typical_p = 0.6f;
    check_frequencies(o);
    o = defaults;
    o.top_k = 12;
    o.xtc_probability = 1;
    o.xtc_threshold = 0.08f;
    check_frequencies(o);
    o.xtc_probability = 0.3f;
    check_frequencies(o);
    o.dynatemp_range = 0.9f;
    check_frequencies(o);
    o = defaults;
    o.dynatemp_range = 0.5f;
    check_frequencies(o);
    o.dynatemp_range = 2; /* more than there is: from 0 on */
    o.dynatemp_exponent = 1.7f;
    check_frequencies(o);
    o.min_p = 0.2f;
    check_frequencies(o);
    o.top_k = 1;
    check_frequencies(o);
    o = defaults;
    o.top_k = 40;
    o.logit_bias = bias;
    o.n_logit_bias = 4;
    check_frequencies(o);
    o.presence_penalty = -2; /* what was said comes more often */
    o.frequency_penalty = -0.5f;
    o.repeat_last_n = 9;
    check_frequencies(o);
}

/* Any mixture of bias and penalties. */
static void greedy_takes_the_best_after_penalties(void **state) {
    (void)state;
    enum { N_TRIALS = 300, N_BIAS = 20 };
    ig_random random = {5};
    int changed = 0;
    for (int trial = 0; trial < N_TRIALS; trial++) {
        ig_sampler_options o = ig_sampler_defaults();
        ig_logit_bias bias[N_BIAS];
        double logits[N_VOCAB];
        for (int i = 0; i < N_BIAS; i++) {
            int32_t id = ig_random_u64(&random) % 2 ? order[ig_random_u64(&random) % 20] : (int32_t)(i * 17 + 5);
            bias[i] = (ig_logit_bias){id, (float)ig_random_unit(&random) * 2 - 1};
        }
        o.logit_bias = bias;
        o.n_logit_bias = ig_random_u64(&random) % (N_BIAS + 1);
        o.repeat_last_n = (int)(ig_random_u64(&random) % 45) - 1;
        if (trial % 2) o.repeat_penalty = 0.5f + (float)ig_random_unit(&random);
        if (trial % 3) o.frequency_penalty = (float)ig_random_unit(&random) * 2 - 1;
        if (trial % 5) o.presence_penalty = (float)ig_random_unit(&random) * 2 - 1;
        adjusted(logits, &o);
        int best = 0;
        for (int i = 1; i < N_VOCAB; i++)
            if (logits[i] > logits[best]) best = i;
        ig_sampler *s = open_sampler(o);
        for (int k = 0; k < 2; k++) assert_int_equal(ig_sampler_next(s, session), best);
        ig_sampler_close(s);
        changed += best != order[0];
    }
    assert_true(changed > N_TRIALS / 4);
}

/* Tokens that a bias rules out never come, and if it rules out all, there is none. */
static void a_bias_of_minus_infinity_rules_out(void **state) {
    (void)state;
    ig_logit_bias bias[N_VOCAB];
    ig_sampler_options o = ig_sampler_defaults();
    ig_generate_result result;
    ig_error err = {0};
    for (int i = 0; i < N_VOCAB; i++) bias[i] = (ig_logit_bias){i, i == 77 ? 0 : -INFINITY};
    o.logit_bias = bias;
    o.n_logit_bias = N_VOCAB;
    for (int hot = 0; hot < 2; hot++) {
        o.temperature = (float)hot;
        bias[77].bias = 0;
        ig_sampler *s = open_sampler(o);
        bias[77].bias = -INFINITY; /* it has copied them */
        for (int i = 0; i < 20; i++) assert_int_equal(ig_sampler_next(s, session), 77);
        ig_sampler_close(s);
        s = open_sampler(o);
        assert_int_equal(ig_sampler_next(s, session), -1);
        assert_int_equal(ig_generate(&result, session, s, NULL, &err), IG_E_ARG);
        assert_non_null(strstr(err.text, "no token"));
        ig_sampler_close(s);
    }
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

/* Of logits that are far from 0 the highest is left, whatever the others are. */
static void filters_leave_the_likeliest(void **state) {
    static const float far[] = {1e5F, 1e10F, 1e30F, -1e5F, -1e10F, -1e30F};
    ig_logit_bias bias[N_VOCAB];
    (void)state;
    for (size_t i = 0; i < sizeof far / sizeof *far; i++)
        for (int filters = 1; filters < 4; filters++) {
            ig_sampler_options o = ig_sampler_defaults();
            for (int k = 0; k < N_VOCAB; k++) bias[k] = (ig_logit_bias){k, k == 77 ? far[i] : 3 * -fabsf(far[i])};
            o.logit_bias = bias;
            o.n_logit_bias = N_VOCAB;
            o.temperature = 1;
            if (filters & 1) o.top_p = 0.9F;
            if (filters & 2) o.min_p = 1;
            ig_sampler *s = open_sampler(o);
            for (int k = 0; k < 5; k++) assert_int_equal(ig_sampler_next(s, session), 77);
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

/* Those that an answer made are in the session, but for one that came where the context was full. */
static void generated_tokens_are_appended(void **state) {
    (void)state;
    ig_session *small;
    ig_session_options o = ig_session_defaults();
    ig_generate_options answer = ig_generate_defaults();
    ig_generate_result result;
    ig_error err = {0};
    const int32_t *ids;
    int n = ig_session_tokens(session, &ids);
    o.n_ctx = n + 5;
    answer.ignore_end = true;
    ig_sampler *s = open_sampler(ig_sampler_defaults());
    if (ig_session_open(&small, model, &o, &err) || ig_session_sync(small, ids, n, &err)) fail_msg("%s", err.text);
    answer.n_predict = 3;
    if (ig_generate(&result, small, s, &answer, &err)) fail_msg("%s", err.text);
    assert_int_equal(result.finish, IG_FINISH_LENGTH);
    assert_int_equal(ig_session_tokens(small, NULL), n + result.n_tokens);
    answer.n_predict = -1;
    if (ig_generate(&result, small, s, &answer, &err)) fail_msg("%s", err.text);
    assert_int_equal(result.finish, IG_FINISH_CONTEXT);
    assert_int_equal(result.n_tokens, 3);
    assert_int_equal(ig_session_tokens(small, NULL), o.n_ctx);
    ig_session_close(small);
    ig_sampler_close(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frequencies_follow_the_definitions),
        cmocka_unit_test(further_filters_follow_the_definitions),
        cmocka_unit_test(greedy_takes_the_best_after_penalties),
        cmocka_unit_test(a_bias_of_minus_infinity_rules_out),
        cmocka_unit_test(narrow_filters_are_greedy),
        cmocka_unit_test(filters_leave_the_likeliest),
        cmocka_unit_test(seeds_repeat),
        cmocka_unit_test(penalty_turns_away_from_what_was_said),
        cmocka_unit_test(generated_tokens_are_appended),
    };
    return cmocka_run_group_tests(tests, open_session, close_session);
}
