/* SPDX-License-Identifier: Apache-2.0
 *
 * The likeliest tokens, straight from the logits or out of a list of all: the same ones in the same order.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/random.h"
#include "engine/candidates.h"

enum { N = 1000 };

static void the_likeliest(void **state) {
    static float logits[N];
    static const int few[] = {1, 2, 3, 40, 500, N - 1};
    ig_random random = {7};
    ig_candidates all, top;
    (void)state;
    assert_true(ig_candidates_open(&all, N) && ig_candidates_open(&top, N));
    for (int round = 0; round < 200; round++) {
        int n_values = round % 2 ? 5 : 1 << 20; /* of which many are equal, or none */
        for (int i = 0; i < N; i++) logits[i] = (float)(int)(ig_random_unit(&random) * n_values) - 3;
        for (int i = 0; i < round % 7; i++) logits[(int)(ig_random_unit(&random) * N)] = i % 2 ? -INFINITY : NAN;
        for (size_t k = 0; k < sizeof few / sizeof *few; k++) {
            ig_candidates_fill(&all, logits, N);
            if (few[k] >= all.n) continue;
            ig_candidates_top_k(&all, few[k]);
            ig_candidates_fill_top_k(&top, logits, N, few[k]);
            assert_int_equal(top.n, few[k]);
            for (int i = 0; i < few[k]; i++) {
                assert_int_equal(top.v[i].id, all.v[i].id);
                assert_true(top.v[i].logit == all.v[i].logit && top.v[i].key == all.v[i].key);
            }
        }
    }
    ig_candidates_close(&all);
    ig_candidates_close(&top);
}

static void fewer_than_wanted(void **state) {
    const float logits[] = {-INFINITY, 1, NAN, 3, -INFINITY, 2};
    ig_candidates c;
    (void)state;
    assert_true(ig_candidates_open(&c, 6));
    ig_candidates_fill_top_k(&c, logits, 6, 5);
    assert_true(c.n == 3 && c.v[0].id == 3 && c.v[1].id == 5 && c.v[2].id == 1);
    ig_candidates_close(&c);
}

static void log_of_a_sum(void **state) {
    static float x[5000];
    static const int lengths[] = {1, 2, 15, 1023, 1024, 1025, 4999};
    ig_random random = {9};
    (void)state;
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++)
        for (int spread = 1; spread <= 64; spread *= 8) {
            int n = lengths[k];
            double sum = 0, top = -INFINITY;
            for (int i = 0; i < n; i++) x[i] = (float)((ig_random_unit(&random) - 0.5) * spread) - 20;
            if (n > 2) x[n / 2] = -INFINITY;
            for (int i = 0; i < n; i++) top = fmax(top, (double)x[i]);
            for (int i = 0; i < n; i++) sum += exp((double)x[i] - top);
            assert_true(fabs(ig_log_sum(x, (size_t)n) - top - log(sum)) < 3e-6);
        }
    for (int i = 0; i < 5000; i++) x[i] = i == 3000 ? 7.0f : -INFINITY;
    assert_true(ig_log_sum(x, 5000) == 7 && ig_log_sum(x, 3000) == -INFINITY && ig_log_sum(x, 0) == -INFINITY);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_likeliest), cmocka_unit_test(fewer_than_wanted),
                                       cmocka_unit_test(log_of_a_sum)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
