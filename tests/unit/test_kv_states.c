/* SPDX-License-Identifier: Apache-2.0
 *
 * States that pieces have, of sequences that compute the same prompt at a time.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kv/memory_parts.h"

enum { PIECE = 16, STEP = 2 * PIECE };

static void step(ig_kv *kv, int first, bool goes_on) {
    ig_error err = {0};
    ig_kv_carry carry;
    ig_kv_begin_carry(&carry, kv, first, STEP, true, goes_on);
    for (int l = 0; l < 2; l++)
        if (ig_kv_extend(kv, l, first + STEP, &err)) fail_msg("%s", err.text);
    ig_kv_go_on(kv, first + STEP);
}

/* A piece that has made way for another one is another sequence's by the time its state would be passed by. */
static void a_piece_that_was_replaced(void **state) {
    const ig_kv_shape shape = {.n_layers = 2, .n_kv_heads = 1, .head_dim = 64, .n_ctx = 256, .n_batch = STEP};
    const ig_kv_options o = {.n_sequences = 3, .state_bytes = 64, .share = true};
    int32_t tokens[PIECE] = {0};
    ig_error err = {0};
    ig_kv_memory *m;
    ig_kv *a, *b, *c;
    (void)state;
    if (ig_kv_memory_open(&m, &shape, &o, &err)) fail_msg("%s", err.text);
    assert_int_equal(ig_kv_piece_tokens(m), PIECE);
    if (ig_kv_open_in(&a, m, &err) || ig_kv_open_in(&b, m, &err) || ig_kv_open_in(&c, m, &err))
        fail_msg("%s", err.text);
    step(a, 0, true);
    step(b, 0, true);
    ig_prefix_tree_add(ig_kv_prefixes(m), ig_kv_piece(a, 0), (ig_prefix_id){1, 0}, (ig_prefix_id){1, 1}, tokens);
    ig_kv_replace_piece(b, 0, ig_kv_piece(a, 0));
    step(c, 0, false);
    uint32_t piece = ig_kv_piece(c, 0);
    assert_int_equal(ig_kv_whole(m, &piece, PIECE), PIECE);
    step(b, STEP, true);
    assert_int_equal(ig_kv_whole(m, &piece, PIECE), PIECE);
    ig_kv_close(c), ig_kv_close(b), ig_kv_close(a);
    ig_kv_memory_close(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_piece_that_was_replaced)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
