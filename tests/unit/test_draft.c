/* SPDX-License-Identifier: Apache-2.0
 *
 * Guesses of what comes next: where the text last said the same, how many are worth their time, and what is learnt from
 * those that came and did not.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/draft_model.h"

/* Tokens of a text with a letter each, and the drafter of them. */
typedef struct text {
    int32_t ids[512];
    int n;
    ig_drafter d;
} text;

static void come(text *t, const char *letters) {
    for (; *letters; letters++) {
        t->ids[t->n++] = *letters;
        ig_drafter_see(&t->d, t->ids, t->n);
    }
}

/* The n guesses that follow. */
static void expect(text *t, const char *letters) {
    int n = (int)strlen(letters);
    assert_true(t->d.length > 0);
    ig_drafter_write(&t->d, t->ids, n);
    for (int i = 0; i < n; i++) assert_int_equal(t->ids[t->n + i], letters[i]);
}

static void the_longest_run_goes_on(void **state) {
    static text t;
    (void)state;
    come(&t, "a");
    assert_int_equal(t.d.length, 0);
    come(&t, "bcd");
    assert_int_equal(t.d.length, 0);
    come(&t, "xbce.xbc");
    expect(&t, "e.xbce.");
    assert_int_equal(t.d.length, 3);
    come(&t, "e"); /* as it was guessed */
    assert_int_equal(t.d.length, 4);
    expect(&t, ".xb");
    come(&t, "-abc"); /* not */
    expect(&t, "dxb");
    come(&t, "?");
    assert_int_equal(t.d.length, 0);
}

static void of_two_the_last_one_counts(void **state) {
    static text t;
    (void)state;
    come(&t, "pq1,pq2,pq");
    expect(&t, "2,pq");
}

/* What was not seen token by token: a prompt that came at once, or a text that is another one now. */
static void texts_that_change(void **state) {
    static text t;
    (void)state;
    come(&t, "one two one ");
    expect(&t, "two");
    memcpy(t.ids, (const int32_t[]){'x', 'y', 'z', 'x', 'y'}, 5 * sizeof *t.ids);
    t.n = 5;
    ig_drafter_see(&t.d, t.ids, t.n);
    expect(&t, "zxy");
    for (int i = 0; i < IG_DRAFT_RUNS; i++) assert_true(t.d.came_true[i] <= t.d.guessed[i]);
    t.n = 3;
    come(&t, "y");
    expect(&t, "zy");
}

static int plan(const text *t, const ig_row_costs *c, int n_rows, int most) {
    ig_draft_step step = {.costs = c, .n_rows = n_rows, .most_rows = IG_ROW_COSTS_MOST, .expected = n_rows};
    int n = ig_drafter_plan(&t->d, &step, most);
    assert_int_equal(step.n_rows, n_rows + n);
    assert_true(n ? step.expected > n_rows && step.expected <= step.n_rows : step.expected >= n_rows);
    return n;
}

/* An answer that somebody expects: from its beginning, wherever the text says the same, and not behind its end. */
static void what_is_expected_comes_first(void **state) {
    static const int32_t expected[] = {'k', 'l', 'm', 'n'};
    static const ig_row_costs nothing = {.are_nothing = true};
    static text t;
    (void)state;
    come(&t, "klm? ");
    ig_drafter_expect(&t.d, t.n, expected, 4);
    expect(&t, "klmn");
    assert_int_equal(plan(&t, &nothing, 1, 15), 4);
    come(&t, "k");
    expect(&t, "lmn");
    come(&t, "x");
    assert_int_equal(t.d.length, 0);
    come(&t, "lm"); /* the text has gone on with "?" here, and what is expected with "n" */
    expect(&t, "n");
    assert_int_equal(plan(&t, &nothing, 1, 15), 1);
    come(&t, "n");
    assert_int_equal(t.d.length, 0);
    ig_drafter_expect(&t.d, t.n, NULL, 0);
    come(&t, "lm");
    expect(&t, "nlm");
}

static void as_many_as_are_worth_it(void **state) {
    static text t;
    static ig_row_costs dear, cheap, steps, nothing = {.are_nothing = true};
    (void)state;
    for (int rows = 1; rows <= 16; rows++) {
        ig_row_costs_took(&dear, rows, rows);
        ig_row_costs_took(&cheap, rows, 1 + 0.01 * rows);
        ig_row_costs_took(&steps, rows, (rows + 3) / 4);
    }
    assert_int_equal(plan(&t, &nothing, 1, 15), 0);
    for (int i = 0; i < 12; i++) come(&t, "abcdefg");
    assert_int_equal(plan(&t, &nothing, 1, 15), 15);
    assert_int_equal(plan(&t, &nothing, 1, 4), 4);
    assert_int_equal(plan(&t, &nothing, IG_ROW_COSTS_MOST - 2, 15), 2);
    assert_int_equal(plan(&t, &nothing, 1, -1), 0);
    assert_int_equal(plan(&t, &cheap, IG_ROW_COSTS_MOST, 15), 0); /* so many rows are no cost that is known */
    assert_int_equal(plan(&t, &cheap, 1000, 15), 0);
    assert_int_equal(plan(&t, &cheap, 1, 15), 15);
    cheap.going_back = 1000;
    assert_int_equal(plan(&t, &cheap, 1, 15), 0);
    assert_int_equal(plan(&t, &dear, 1, 15), 0);
    assert_int_equal(plan(&t, &steps, 1, 15), 3);
}

/* A text in which every guess is wrong is soon left alone, and a text that repeats itself is found again. */
static void chances_are_learnt(void **state) {
    static text t;
    static ig_row_costs c;
    int n = 0;
    (void)state;
    for (int i = 0; i < 40; i++) come(&t, (char[]){'a', (char)('A' + i % 26), (char)('0' + i / 26 * 3 + i % 3), 0});
    for (int rows = 1; rows <= 16; rows++) ig_row_costs_took(&c, rows, 1 + 0.2 * rows);
    come(&t, "a");
    assert_int_equal(plan(&t, &c, 1, 15), 0);
    while (n < 60 && !plan(&t, &c, 1, 15)) come(&t, "z"), n++;
    assert_in_range(n, 1, 30);
}

static void costs_are_those_of_late(void **state) {
    ig_row_costs c = {0};
    (void)state;
    assert_true(ig_row_costs_guess(&c, 8) > ig_row_costs_guess(&c, 1)); /* nothing is known */
    ig_row_costs_took(&c, 1, 1);
    assert_float_equal(ig_row_costs_guess(&c, 1), 1, 1e-9);
    assert_true(ig_row_costs_guess(&c, 4) < 1.5); /* it is tried */
    ig_row_costs_took(&c, 4, 3);
    assert_float_equal(ig_row_costs_guess(&c, 4), 3, 1e-9);
    assert_true(ig_row_costs_guess(&c, 5) > 3);
    assert_true(ig_row_costs_guess(&c, 1000) > ig_row_costs_guess(&c, IG_ROW_COSTS_MOST));
    ig_row_costs_took(&c, 4, 1000); /* the machine stood still */
    assert_true(ig_row_costs_guess(&c, 4) < 4);
    ig_row_costs_took(&c, 0, 1);
    ig_row_costs_took(&c, IG_ROW_COSTS_MOST + 1, 1);
    ig_row_costs_took(&c, 2, 0);
    for (int i = 0; i < 50; i++) ig_row_costs_went_back(&c, 0.5);
    assert_float_equal(c.going_back, 0.5, 1e-3);
    for (int i = 0; i < IG_ROW_COSTS_KEPT; i++) ig_row_costs_took(&c, 1, 2);
    assert_float_equal(ig_row_costs_guess(&c, 1), 2, 0.01);
    assert_true(ig_row_costs_guess(&c, 4) < 3); /* it is forgotten, and tried again */
}

/* What a draft model guessed: counted as it comes, up to the first that did not; what nobody asks is forgotten. */
static void what_came_of_a_model(void **state) {
    int32_t ids[] = {1, 2, 3, 4, 5, 6};
    ig_draft_model d = {.first = 2, .n = 3, .ids = {3, 4, 7}, .kinds = {5, 5, 2}};
    (void)state;
    ig_draft_model_see(&d, ids, 3);
    assert_true(d.n == 3 && d.n_compared == 1 && d.all_guessed == 1 && d.all_true == 1);
    ig_draft_model_see(&d, ids, 5);
    assert_true(d.n == 0 && d.guessed[5] > 1 && d.guessed[2] == 1 && d.came_true[2] == 0);
    assert_true(d.all_true < d.all_guessed && d.guessed[0] == 0);
    float known = d.all_guessed;
    for (int i = 0; i < 300; i++) ig_draft_model_see(&d, ids, 6);
    assert_true(d.all_guessed < known * 0.6F);
    d = (ig_draft_model){.first = 4, .n = 2, .ids = {5, 6}};
    ig_draft_model_see(&d, ids, 3); /* the text is another one */
    assert_true(d.n == 0 && d.all_guessed == 0);
    ig_row_costs nothing = {.are_nothing = true, .n_steps = 1};
    assert_true(ig_draft_model_rate(&d, &(ig_draft_step){.costs = &nothing, .n_rows = 1, .most_rows = 9, .expected = 1},
                                    4) == 0); /* there is none */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_longest_run_goes_on),      cmocka_unit_test(of_two_the_last_one_counts),
        cmocka_unit_test(what_is_expected_comes_first), cmocka_unit_test(texts_that_change),
        cmocka_unit_test(as_many_as_are_worth_it),      cmocka_unit_test(chances_are_learnt),
        cmocka_unit_test(costs_are_those_of_late),      cmocka_unit_test(what_came_of_a_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
