/* SPDX-License-Identifier: Apache-2.0
 *
 * The arithmetic of the measurements: likelihoods, their means and errors, and
 * summaries of timings.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "eval/perplexity.h"
#include "eval/speed.h"

static void expect_near(double a, double b) {
    if (fabs(a - b) > 1e-9 * (1 + fabs(b))) fail_msg("%.17g is not %.17g", a, b);
}

static void test_token(void **state) {
    (void)state;
    float even[4] = {3, 3, 3, 3}, odds[2] = {0, (float)1.0986122886681098}, huge[3] = {1e30f, 0, -1e30f};
    expect_near(ig_eval_token_nll(even, 4, 2), log(4));
    if (fabs(ig_eval_token_nll(odds, 2, 1) - log(4.0 / 3.0)) > 1e-7) fail_msg("odds of 1 to 3");
    expect_near(ig_eval_token_nll(huge, 3, 0), 0);
    expect_near(ig_eval_token_nll(huge, 3, 1), (double)1e30f);
}

static void test_sums(void **state) {
    (void)state;
    ig_eval_score total = {0}, none = {0}, a = {2, 1 + 2, 1 + 4, 2, 0.5}, b = {1, 3, 9, 2, 0.3};
    ig_eval_add(&total, &a);
    ig_eval_add(&total, &none);
    ig_eval_add(&total, &b);
    assert_int_equal(total.n, 3);
    expect_near(ig_eval_nll(&total), 2);
    expect_near(ig_eval_perplexity(&total), exp(2));
    /* variance 2/3 of three values, error of the mean by n - 1, carried over to exp(mean) */
    expect_near(ig_eval_perplexity_error(&total), sqrt(2.0 / 3 / 2) * exp(2));
    expect_near(ig_eval_kl(&total), 0.2);
    expect_near(ig_eval_kl(&none), 0);
    expect_near(ig_eval_perplexity(&none), 1);
    expect_near(ig_eval_perplexity_error(&b), 0);
}

static void test_summary(void **state) {
    (void)state;
    double odd[] = {5, 1, 3}, even[] = {4, 1, 2, 3}, one[] = {7};
    ig_eval_summary s = ig_eval_summarize(odd, 3);
    expect_near(s.mean, 3);
    expect_near(s.median, 3);
    expect_near(s.deviation, 2);
    assert_true(odd[0] == 5); /* not sorted in place */
    expect_near(ig_eval_summarize(even, 4).median, 2.5);
    s = ig_eval_summarize(one, 1);
    expect_near(s.median, 7);
    expect_near(s.deviation, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_token),
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_summary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
