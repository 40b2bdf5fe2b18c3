/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables of units with copies: whatever sequences do with their pieces, what is brought makes the copies what the host
 * has; and where a sequence only grows, it is the unit that is being filled and what follows.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "device/device.h"
#include "kv/store.h"
#include "kv/table.h"

enum { SEQUENCES = 3, HEADS = 2, N_CTX = 400, UNIT_BYTES = 16, ROUNDS = 5000 };

static ig_random dice = {5};
static ig_device *device;
static ig_kv_memory *memory;
static struct sequence {
    ig_kv *kv;
    ig_unit_table table;
    int n; /* tokens */
} sequences[SEQUENCES];

static int below(int n) { return (int)(ig_random_unit(&dice) * n); }

static int open_all(void **state) {
    ig_error err = {0};
    ig_kv_shape shape = {.n_layers = 1, .n_kv_heads = HEADS, .head_dim = 64, .n_ctx = N_CTX, .n_batch = N_CTX};
    (void)state;
    ig_status s = ig_device_open_cpu(&device, IG_CPU_SCALAR, 1, &err);
    ig_kv_options o = {.device = device, .n_sequences = SEQUENCES, .share = true};
    ig_table_plan plan = {.what = "units",
                          .n_heads = HEADS,
                          .n_used = HEADS,
                          .unit_bytes = UNIT_BYTES,
                          .n_slots = N_CTX,
                          .copies_on = device};
    if (!s) s = ig_kv_memory_open(&memory, &shape, &o, &err);
    for (int i = 0; i < SEQUENCES && !s; i++) {
        s = ig_kv_open_in(&sequences[i].kv, memory, &err);
        ig_kv_home home = ig_kv_home_of(sequences[i].kv);
        if (!s) s = ig_unit_table_open(&sequences[i].table, &home, &plan, &err);
    }
    if (s) print_error("%s\n", err.text);
    return s ? -1 : 0;
}

static int close_all(void **state) {
    (void)state;
    for (int i = 0; i < SEQUENCES; i++) {
        ig_unit_table_close(&sequences[i].table);
        ig_kv_close(sequences[i].kv);
    }
    ig_kv_memory_close(memory);
    ig_device_close(device);
    return 0;
}

/* A sequence has so many tokens: some go, or come and are noted. */
static void resize(struct sequence *x, int n) {
    if (n < x->n) assert_int_equal(ig_kv_cut(x->kv, n, NULL), IG_OK);
    if (n > x->n) assert_int_equal(ig_kv_extend(x->kv, 0, n, NULL), IG_OK);
    for (int t = x->n; t < n; t++)
        for (size_t h = 0; h < HEADS; h++)
            ((uint8_t *)ig_unit_table_edit(&x->table, h, t / IG_UNIT_SLOTS))[t % IG_UNIT_SLOTS] = (uint8_t)below(256);
    x->n = n;
}

/* Brings the units of the first n tokens; the first of them. */
static int bring(const struct sequence *x, size_t head, int n) {
    int n_units = (n + IG_UNIT_SLOTS - 1) / IG_UNIT_SLOTS;
    ig_units units = ig_unit_table_bring(&x->table, head, head, n_units);
    for (int i = 0; i < n_units; i++) {
        size_t at = ig_unit_number(&x->table.home, i) * UNIT_BYTES;
        if (i >= units.fresh) memcpy(units.dev + at, units.host + at, UNIT_BYTES);
        assert_memory_equal(units.dev + at, units.host + at, UNIT_BYTES);
    }
    return units.fresh;
}

static int full_pieces(const struct sequence *x) { return x->n / ig_kv_piece_tokens(memory); }

/* The table has what belongs to some full pieces. */
static void note(const struct sequence *x, int n) {
    for (int i = 0; i < n; i++) ig_unit_table_note(&x->table, ig_kv_piece(x->kv, i));
}

/* The first sequence has the full pieces of the second. */
static void adopt(struct sequence *to, const struct sequence *from) {
    if (to == from) return;
    uint32_t pieces[N_CTX];
    int n = full_pieces(from);
    note(from, n);
    for (int i = 0; i < n; i++) pieces[i] = ig_kv_piece(from->kv, i);
    resize(to, 0);
    ig_kv_adopt(to->kv, pieces, n);
    to->n = n * ig_kv_piece_tokens(memory);
}

/* A full piece takes the place of another, and gets what it lacks. */
static void replace(struct sequence *to, const struct sequence *from) {
    int i = below(full_pieces(to) + 1);
    if (to != from && i < full_pieces(to) && i < full_pieces(from))
        ig_kv_replace_piece(to->kv, i, ig_kv_piece(from->kv, i));
}

static void copies_are_current(void **state) {
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        struct sequence *x = &sequences[below(SEQUENCES)], *y = &sequences[below(SEQUENCES)];
        int what = below(40), n = x->n + 1 + below(40);
        if (what == 0) adopt(x, y);
        if (what == 1) resize(x, below(x->n + 1));
        if (what >= 2 && what < 10) replace(x, y);
        if (what == 10) note(x, below(full_pieces(x) + 1));
        if (what > 30) resize(x, n < N_CTX ? n : N_CTX);
        y = &sequences[below(SEQUENCES)];
        for (size_t h = 0; h < HEADS; h++) bring(y, h, what == 20 ? below(y->n + 1) : y->n);
    }
}

static void only_the_last_unit_is_brought(void **state) {
    (void)state;
    struct sequence *x = &sequences[0];
    for (int i = 0; i < SEQUENCES; i++) resize(&sequences[i], 0);
    resize(x, 100);
    assert_int_equal(bring(x, 0, x->n), 0);
    for (int n = 101; n < 300; n++) {
        resize(x, n);
        assert_int_equal(bring(x, 0, n), (n - 1) / IG_UNIT_SLOTS);
    }
    resize(x, 150);
    resize(x, 170);
    assert_int_equal(bring(x, 0, x->n), 150 / IG_UNIT_SLOTS);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(copies_are_current),
                                       cmocka_unit_test(only_the_last_unit_is_brought)};
    return cmocka_run_group_tests(tests, open_all, close_all);
}
