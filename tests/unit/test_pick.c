/* SPDX-License-Identifier: Apache-2.0
 *
 * Choosing entries: ig_pick() against sorting, on weights of many shapes.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/random.h"
#include "cpu_level.h"
#include "policy/policy.h"

enum { MAX_N = 3000, SHAPES = 7 };

static float weights[MAX_N];
static int32_t picked[MAX_N], order[MAX_N];

static int pick(int n, int sinks, int recent, int count, double mass) {
    ig_pick_rule rule = {sinks, recent, count, mass};
    return ig_pick(ig_kernels_get(test_cpu_level()), picked, weights, n, &rule);
}

static int heavier_first(const void *a, const void *b) {
    int i = *(const int32_t *)a, j = *(const int32_t *)b;
    if (weights[i] != weights[j]) return weights[i] < weights[j] ? 1 : -1;
    return i < j ? -1 : 1;
}

static void fill(ig_random *r, int n, int shape) {
    for (int i = 0; i < n; i++) {
        double u = ig_random_unit(r);
        switch (shape) {
            case 0:
                weights[i] = (float)u;
                break;
            case 1:
                weights[i] = (float)exp(-20 * u);
                break; /* a long tail, as softmax has */
            case 2:
                weights[i] = 0.25f;
                break; /* all equal */
            case 3:
                weights[i] = u < 0.9 ? 0 : (float)u;
                break; /* mostly nothing */
            case 4:
                weights[i] = (float)(1 + 1e-3 * u) * 1e-3f;
                break; /* nearly equal */
            case 5:
                weights[i] = (float)(int)(5 * u);
                break; /* few values, none or more often */
            default:
                weights[i] = u < 0.5 ? 1e-42f * (float)(int)(9 * u) : u < 0.9 ? 1 : 1e30f;
                break; /* from the smallest numbers to large ones */
        }
    }
}

static void check_choice(int n, int sinks, int recent, int count) {
    static char chosen[MAX_N];
    int got = pick(n, sinks, recent, count, 1);
    int forced = sinks + recent < n ? sinks + recent : n;
    int want = count < forced ? forced : count > n ? n : count;
    assert_int_equal(got, want);
    for (int i = 0; i < n; i++) chosen[i] = 0;
    for (int i = 0; i < got; i++) {
        if (i) assert_true(picked[i] > picked[i - 1]);
        assert_true(picked[i] >= 0 && picked[i] < n);
        chosen[picked[i]] = 1;
    }
    for (int i = 0; i < sinks && i < n; i++) assert_true(chosen[i]);
    for (int i = n - recent < 0 ? 0 : n - recent; i < n; i++) assert_true(chosen[i]);
    int n_others = n - forced;
    for (int i = 0; i < n_others; i++) order[i] = sinks + i;
    qsort(order, (size_t)n_others, sizeof *order, heavier_first);
    for (int i = 0; i < n_others; i++) assert_int_equal(chosen[order[i]], i < want - forced);
}

static void takes_the_heaviest(void **state) {
    (void)state;
    ig_random r = {1};
    for (int shape = 0; shape < SHAPES; shape++)
        for (int round = 0; round < 60; round++) {
            int n = 1 + (int)(ig_random_u64(&r) % MAX_N);
            fill(&r, n, shape);
            check_choice(n, (int)(ig_random_u64(&r) % 6), 1 + (int)(ig_random_u64(&r) % 64),
                         1 + (int)(ig_random_u64(&r) % (uint64_t)n));
        }
}

/* With mass < 1: no more than needed, and what is chosen reaches the mass unless the count stops it. */
static void stops_at_the_mass(void **state) {
    (void)state;
    ig_random r = {2};
    for (int shape = 0; shape < SHAPES; shape++)
        for (int round = 0; round < 40; round++) {
            int n = 200 + (int)(ig_random_u64(&r) % 2000), n_taken;
            double mass = 0.05 + 0.9 * ig_random_unit(&r), sum = 0, got = 0;
            fill(&r, n, shape);
            n_taken = pick(n, 4, 32, n, mass);
            for (int i = 0; i < n; i++) sum += weights[i];
            for (int i = 0; i < n_taken; i++) got += weights[picked[i]];
            assert_true(got >= mass * sum * (1 - 1e-6));
            int need = 36;
            double have = 0;
            for (int i = 0; i < 4; i++) have += weights[i];
            for (int i = n - 32; i < n; i++) have += weights[i];
            for (int i = 4; i < n - 32; i++) order[i - 4] = i;
            qsort(order, (size_t)n - 36, sizeof *order, heavier_first);
            for (int i = 0; i < n - 36 && have < mass * sum; i++, need++) have += weights[order[i]];
            assert_true(n_taken <= need + 2);
        }
}

static void odd_weights_do_no_harm(void **state) {
    (void)state;
    for (int i = 0; i < 100; i++) weights[i] = i % 3 ? (float)NAN : i % 2 ? (float)INFINITY : 0;
    int n = pick(100, 4, 8, 20, 1);
    assert_in_range(n, 12, 100);
    for (int i = 1; i < n; i++) assert_true(picked[i] > picked[i - 1]);
}

static void shares(void **state) {
    (void)state;
    assert_int_equal(ig_pick_share(0.1, 1000), 100);
    assert_int_equal(ig_pick_share(0.1, 1001), 101);
    assert_int_equal(ig_pick_share(1e-9, 100), 1);
    assert_int_equal(ig_pick_share(1, 100), 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_the_heaviest),
        cmocka_unit_test(stops_at_the_mass),
        cmocka_unit_test(odd_weights_do_no_harm),
        cmocka_unit_test(shares),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
