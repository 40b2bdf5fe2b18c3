/* SPDX-License-Identifier: Apache-2.0
 *
 * Divergences against the sum over the whole vocabulary.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/random.h"
#include "unit/count_memory.h"
#include "eval/divergence.h"

enum { N = 3000, TOKENS = 5 };

static float p[TOKENS][N], q[N];

static ig_eval_reference *open_reference(size_t cap) {
    ig_eval_reference *r;
    ig_error err = {0};
    if (ig_eval_reference_open(&r, N, cap, &err)) fail_msg("%s", err.text);
    return r;
}

static void keep(ig_eval_reference *r, const float *logits) {
    ig_error err = {0};
    if (ig_eval_reference_keep(r, logits, ig_eval_log_sum(logits, N), &err)) fail_msg("%s", err.text);
}

static bool compare(double *kl, const ig_eval_reference *r, size_t i, const float *logits) {
    return ig_eval_reference_compare(kl, r, i, logits, ig_eval_log_sum(logits, N));
}

/* Peaked: some tokens are likely, most are rarer than what is kept one by one. */
static void fill(uint64_t seed) {
    ig_random r = {seed};
    for (int t = 0; t < TOKENS; t++)
        for (int i = 0; i < N; i++) p[t][i] = (float)(24 * ig_random_unit(&r));
    for (int i = 0; i < N; i++) q[i] = p[2][i] + (float)(ig_random_unit(&r) - 0.5);
}

static double direct(const float *a, const float *b) {
    double sum = 0, log_a = ig_eval_log_sum(a, N), log_b = ig_eval_log_sum(b, N);
    for (int i = 0; i < N; i++) sum += exp((double)a[i] - log_a) * ((double)a[i] - log_a - (double)b[i] + log_b);
    return sum;
}

static void is_the_sum_over_all(void **state) {
    (void)state;
    double kl;
    fill(1);
    ig_eval_reference *r = open_reference(1 << 20);
    for (int t = 0; t < TOKENS; t++) keep(r, p[t]);
    assert_true(compare(&kl, r, 2, q));
    double want = direct(p[2], q);
    if (!(want > 0.01) || fabs(kl - want) > 1e-3 * want) fail_msg("%g is not %g", kl, want);
    for (size_t t = 0; t < TOKENS; t++) {
        assert_true(compare(&kl, r, t, p[t]));
        assert_true(kl == 0);
    }
    assert_true(compare(&kl, r, 3, q) && kl > 1);
    assert_false(compare(&kl, r, TOKENS, q));

    ig_eval_reference_clear(r);
    assert_false(compare(&kl, r, 0, q));
    keep(r, q);
    assert_true(compare(&kl, r, 0, q) && kl == 0);
    ig_eval_reference_close(r);
}

/* All mass on one token, and a token that the other holds impossible: large, but a number. */
static void extremes_are_numbers(void **state) {
    (void)state;
    static float sure[N], elsewhere[N];
    double kl;
    ig_eval_reference *r = open_reference(1 << 20);
    sure[7] = elsewhere[8] = 1000;
    keep(r, sure);
    assert_true(compare(&kl, r, 0, elsewhere));
    if (fabs(kl - 1000) > 1e-3) fail_msg("%g", kl);
    assert_true(compare(&kl, r, 0, sure) && kl == 0);
    ig_eval_reference_close(r);
}

/* Beyond the cap nothing more is kept, also no smaller one. */
static void stays_within_its_cap(void **state) {
    (void)state;
    static float even[N], sure[N];
    double kl;
    ig_eval_reference *r = open_reference(5 * N * 8 / 2);
    sure[0] = 1000;
    keep(r, even);
    keep(r, even);
    keep(r, even);
    keep(r, sure);
    assert_true(compare(&kl, r, 1, even));
    assert_false(compare(&kl, r, 2, even));
    assert_false(compare(&kl, r, 3, sure));
    ig_eval_reference_close(r);
    ig_eval_reference_close(NULL);
}

/* Arrays grow by doubling, but not beyond what they may take. */
static void asks_for_no_more_than_its_cap(void **state) {
    (void)state;
#ifndef MEMORY_IS_COUNTED
    skip();
#endif
    static float even[N], sure[N];
    const size_t cap = 96000;
    ig_eval_reference *r = open_reference(cap);
    sure[0] = 1000;
    memory_count_start(-1);
    keep(r, sure);
    for (int i = 0; i < 3; i++) keep(r, even);
    memory_count_stop();
    assert_in_range(memory_count.largest, cap / 2, cap * 15 / 16);
    ig_eval_reference_close(r);

    r = open_reference(cap);
    memory_count_start(-1);
    for (int i = 0; i < 2000; i++) keep(r, sure);
    memory_count_stop();
    assert_in_range(memory_count.largest, 1, cap * 15 / 16);
    double kl;
    assert_true(compare(&kl, r, cap / 16 / 16 - 1, sure));
    assert_false(compare(&kl, r, cap / 16 / 16, sure));
    ig_eval_reference_close(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_the_sum_over_all),
        cmocka_unit_test(extremes_are_numbers),
        cmocka_unit_test(stays_within_its_cap),
        cmocka_unit_test(asks_for_no_more_than_its_cap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
