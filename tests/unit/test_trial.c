/* SPDX-License-Identifier: Apache-2.0
 *
 * Of two ways the faster one is kept, whatever single steps take, and both are tried again later.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/trial.h"

enum { TRIAL = IG_TRIAL_TURN * IG_TRIAL_TURNS };

/* n steps of a kind, of which each takes what its way does; how many were of way 1. */
static int steps(ig_trial *t, int kind, int n, double first, double second) {
    int n_second = 0;
    for (int i = 0; i < n; i++) {
        n_second += t->way;
        ig_trial_took(t, kind, t->way ? second : first);
    }
    return n_second;
}

static void both_take_turns_and_the_faster_stays(void **state) {
    (void)state;
    for (int faster = 0; faster < 2; faster++) {
        ig_trial t = {0};
        for (int round = 0; round < 3; round++) {
            assert_int_equal(t.way, 0);
            assert_int_equal(steps(&t, 1, TRIAL, faster ? 2 : 1, faster ? 1 : 2), TRIAL / 2);
            assert_int_equal(steps(&t, 1, IG_TRIAL_KEPT, 1, 1), faster ? IG_TRIAL_KEPT : 0);
        }
    }
}

static void what_has_changed_is_noticed(void **state) {
    ig_trial t = {0};
    (void)state;
    steps(&t, 1, TRIAL + IG_TRIAL_KEPT, 2, 1);
    steps(&t, 1, TRIAL, 1, 2);
    assert_int_equal(t.way, 0);
}

/* The first step of each turn, and two more of way 1, take a second. */
static void single_slow_steps_do_not_count(void **state) {
    ig_trial t = {0};
    (void)state;
    for (int i = 0; i < TRIAL; i++) {
        int at = i % IG_TRIAL_TURN, turn = i / IG_TRIAL_TURN;
        assert_int_equal(t.way, turn % 2);
        ig_trial_took(&t, 1, at == 0 || (turn == 1 && at < 3) ? 1 : t.way ? 0.010 : 0.011);
    }
    assert_int_equal(t.way, 1);
}

static void a_trial_is_of_one_kind_of_steps(void **state) {
    ig_trial t = {0};
    (void)state;
    steps(&t, 1, TRIAL - 1, 2, 1);
    assert_int_equal(t.way, 1);
    ig_trial_took(&t, 2, 1); /* the first step of a new trial */
    steps(&t, 2, TRIAL - 2, 1, 2);
    assert_int_equal(t.way, 1);
    ig_trial_took(&t, 2, 2);
    assert_int_equal(t.way, 0);
    /* What was found holds for other kinds, too. */
    t = (ig_trial){0};
    steps(&t, 1, TRIAL, 2, 1);
    assert_int_equal(steps(&t, 3, IG_TRIAL_KEPT, 1, 1), IG_TRIAL_KEPT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_take_turns_and_the_faster_stays),
        cmocka_unit_test(what_has_changed_is_noticed),
        cmocka_unit_test(single_slow_steps_do_not_count),
        cmocka_unit_test(a_trial_is_of_one_kind_of_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
