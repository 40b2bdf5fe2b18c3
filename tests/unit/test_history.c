/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks used before: which weights they favour, what a repeated step finds, and when everything is forgotten.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "policy/history.h"

enum { HEADS = 2, N = 16, BLOCK = 4, AHEAD = 3 };

static ig_history history;

/* A step over n entries that uses `entry`. */
static void use(int n, int entry) { ig_history_note(&history, 1, &(int32_t){entry}, 1, n); }

/* Expects that of n weights of 1 those of `block` become 4, or (-1) none. */
static void expect_favoured(int n, int block) {
    float w[N];
    int n_more = 0;
    for (int i = 0; i < n; i++) w[i] = 1;
    double more = ig_history_favour(&history, 1, w, n, 3);
    for (int i = 0; i < n; i++) {
        float want = i / BLOCK == block ? 4 : 1;
        assert_float_equal(w[i], want, 0);
        n_more += w[i] > 1;
    }
    assert_float_equal((float)more, (float)(3 * n_more), 0);
}

/* What is known when an entry has come was foreseen. */
static void come(int entry) {
    int known, still;
    float w[N];
    const uint8_t *used = ig_history_used(&history, 1, entry, &known);
    for (int i = 0; i < N; i++) w[i] = 1;
    ig_history_append(&history, 1, entry);
    ig_history_favour(&history, 1, w, N, 3);
    for (int i = 0; i < N; i++) assert_int_equal(w[i] > 1, i / BLOCK < known && used[0] >> i / BLOCK & 1);
    assert_ptr_equal(ig_history_used(&history, 1, entry, &still), used);
    assert_int_equal(still, known);
}

static int open_prompt(void **state) {
    ig_error err = {0};
    (void)state;
    if (ig_history_open(&history, HEADS, N, BLOCK, AHEAD, &err)) return -1;
    for (int i = 0; i < 6; i++) come(i);
    return 0;
}

static int close_it(void **state) {
    (void)state;
    ig_history_close(&history);
    return 0;
}

static void the_latest_step_is_favoured(void **state) {
    (void)state;
    expect_favoured(6, -1);
    use(6, 2);
    come(6);
    expect_favoured(7, 0);
    use(7, 5); /* block 1 is not full yet: entries that come are favoured with it */
    come(7);
    expect_favoured(8, 1);
    use(8, 5);
    come(8); /* a block that no step has seen */
    expect_favoured(9, 1);
}

/* Blocks that hold several, the first and last ones, and a short one at the end; then none at all. */
static void all_blocks_of_a_step_are_known(void **state) {
    const int32_t some[] = {0, 1, 3, 8, 11, 12};
    int n;
    (void)state;
    ig_history_note(&history, 1, some, 6, 13);
    assert_int_equal(*ig_history_used(&history, 1, 6, &n), 1 | 1 << 2 | 1 << 3);
    assert_int_equal(n, 4);
    come(6);
    for (int i = 7; i < 7 + IG_HISTORY_STEPS + AHEAD; i++) {
        ig_history_note(&history, 1, NULL, 0, 13);
        come(i);
    }
    assert_int_equal(*ig_history_used(&history, 1, 12, &n), 0);
    assert_int_equal(n, 4);
}

static void a_step_made_again_finds_the_same(void **state) {
    (void)state;
    use(6, 1);
    come(6);
    for (int i = 0; i < 3; i++) {
        expect_favoured(7, 0);
        use(7, 4);
        come(6);
    }
    expect_favoured(7, 0);
    use(7, 4);
    come(7);
    come(7); /* failed before a step met it */
    expect_favoured(8, 1);
}

static void prompts_and_cuts_forget(void **state) {
    (void)state;
    use(6, 1);
    come(6);
    come(7); /* no step between: a prompt */
    expect_favoured(8, -1);
    use(8, 1);
    come(3); /* cut back to three */
    expect_favoured(4, -1);
}

static void what_failed_is_taken_back(void **state) {
    (void)state;
    use(6, 1);
    come(6);
    come(7); /* a prompt, which fails */
    come(8);
    ig_history_undo(&history, 1, 6);
    come(6);
    expect_favoured(7, 0);
    use(7, 5); /* a step, which fails after it has chosen */
    ig_history_undo(&history, 1, 6);
    come(6);
    expect_favoured(7, 0);
    use(7, 5);
    come(7);
    come(8); /* a prompt that is there, and a second piece that fails */
    come(9);
    ig_history_undo(&history, 1, 9);
    come(9);
    expect_favoured(10, -1);
    come(7); /* cut back to where the first piece began, and failed there again */
    ig_history_undo(&history, 1, 7);
    come(7);
    expect_favoured(8, -1);
}

/* A step that failed has used the room of none that may be gone back to. */
static void a_step_fails_and_the_one_before_is_made_again(void **state) {
    (void)state;
    use(6, 1);
    come(6);
    use(7, 5);
    come(7);
    use(8, 2);
    come(8);
    use(9, 8); /* fails */
    ig_history_undo(&history, 1, 8);
    come(7); /* the session is cut by a token, and another follows */
    expect_favoured(8, 1);
}

/* What was known before a cut does not come back with a step that fails where the next one would have been. */
static void a_step_fails_where_there_was_a_cut(void **state) {
    (void)state;
    use(6, 1);
    come(6);
    use(7, 5);
    for (int i = 3; i < 7; i++) come(i); /* as a prompt */
    come(7);
    ig_history_undo(&history, 1, 7);
    come(7);
    expect_favoured(8, -1);
}

/* Steps that were made ahead are taken back, some of them or all, and one that fails behind them. */
static void steps_ahead_are_taken_back(void **state) {
    (void)state;
    use(6, 1);
    for (int round = 0; round < 3; round++) {
        come(6);
        expect_favoured(7, 0);
        use(7, 5);
        for (int i = 7; i < 7 + AHEAD; i++) {
            come(i);
            use(i + 1, i - 6);
        }
        ig_history_undo(&history, 1, 7 + AHEAD);
        if (round == 0) come(7 + AHEAD), ig_history_undo(&history, 1, 7 + AHEAD);
        ig_history_undo(&history, 1, 7);
        come(7);
        expect_favoured(8, 1);
        if (round == 1) come(8); /* a prompt, which fails */
        ig_history_undo(&history, 1, 7);
        ig_history_undo(&history, 1, 6);
    }
}

/* Not where others came between, or the session was cut. */
static void what_was_no_step_is_not_taken_back(void **state) {
    (void)state;
    use(6, 1);
    come(6);
    use(7, 5);
    ig_history_cut(&history, 1);
    come(7);
    use(8, 1);
    come(8);
    ig_history_undo(&history, 1, 6);
    come(6);
    expect_favoured(7, -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_latest_step_is_favoured, open_prompt, close_it),
        cmocka_unit_test_setup_teardown(all_blocks_of_a_step_are_known, open_prompt, close_it),
        cmocka_unit_test_setup_teardown(a_step_made_again_finds_the_same, open_prompt, close_it),
        cmocka_unit_test_setup_teardown(prompts_and_cuts_forget, open_prompt, close_it),
        cmocka_unit_test_setup_teardown(what_failed_is_taken_back, open_prompt, close_it),
        cmocka_unit_test_setup_teardown(a_step_fails_and_the_one_before_is_made_again, open_prompt, close_it),
        cmocka_unit_test_setup_teardown(a_step_fails_where_there_was_a_cut, open_prompt, close_it),
        cmocka_unit_test_setup_teardown(steps_ahead_are_taken_back, open_prompt, close_it),
        cmocka_unit_test_setup_teardown(what_was_no_step_is_not_taken_back, open_prompt, close_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
