/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies of blocks: a device is played that does what it is told, and what it then reads must be what the blocks hold,
 * whatever is written, moved and read meanwhile.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "device/residency.h"

enum {
    LAYERS = 3,
    HEADS = 2,
    LEN = 12,
    SHIFT = 2,
    ROWS = 1 << SHIFT,
    BLOCKS = LAYERS * HEADS * LEN,
    BLOCK_BYTES = 32,
    VIEWS = 2 * HEADS,
    HOMES = 2 * BLOCKS
};

/* A memory of blocks whose bytes are all the same number, and the device's side. */
typedef struct world {
    ig_residency *r;
    ig_random dice;
    uint8_t homes[HOMES][BLOCK_BYTES];
    const uint8_t *frames[BLOCKS];
    uint8_t held[BLOCKS];
    int home[BLOCKS]; /* number of the home that a block lies in */
    bool taken[HOMES];
    ig_kv_traffic traffic;
    int32_t lists[VIEWS][LEN * ROWS];
    ig_kv_view views[VIEWS];
    bool careless; /* blocks are written without a word */
} world;

static int roll(world *w, int n) { return (int)(ig_random_unit(&w->dice) * n); }

static void put_block(world *w, int b) { memset(w->homes[w->home[b]], w->held[b], BLOCK_BYTES); }

static void write_block(world *w, int b) {
    if (!w->careless) ig_residency_forget(w->r, (size_t)b);
    w->held[b]++;
    put_block(w, b);
}

/* To another frame, as if it had been on disk; what was there is overwritten. */
static void move_block(world *w, int b) {
    int to = roll(w, HOMES);
    if (w->taken[to]) return;
    memset(w->homes[w->home[b]], 0xee, BLOCK_BYTES);
    w->taken[w->home[b]] = false;
    w->taken[to] = true;
    w->home[b] = to;
    w->frames[b] = w->homes[to];
    put_block(w, b);
}

static uint64_t bytes_for(int n_copies) { return BLOCKS * sizeof(uint8_t *) + (uint64_t)n_copies * BLOCK_BYTES; }

static world *open_world(int n_copies, int n_dense_layers) {
    world *w = calloc(1, sizeof *w);
    ig_error err = {0};
    ig_residency_shape s = {.n_layers = LAYERS,
                            .n_heads = HEADS,
                            .table_len = LEN,
                            .block_bytes = BLOCK_BYTES,
                            .n_dense_layers = n_dense_layers,
                            .max_bytes = bytes_for(n_copies)};
    assert_non_null(w);
    if (ig_residency_open(&w->r, &s, &err)) fail_msg("%s", err.text);
    assert_int_equal(w->r->n_copies, n_copies < BLOCKS ? n_copies : BLOCKS);
    assert_true(ig_residency_bytes(&s) <= s.max_bytes);
    w->r->copies = malloc((size_t)n_copies * BLOCK_BYTES + 1);
    w->r->where = calloc(BLOCKS, sizeof *w->r->where);
    w->dice = (ig_random){(uint64_t)n_copies + 1};
    for (int b = 0; b < BLOCKS; b++) {
        w->home[b] = b;
        w->taken[b] = true;
        w->frames[b] = w->homes[b];
        write_block(w, b);
    }
    return w;
}

static void close_world(world *w) {
    free(w->r->copies);
    free(w->r->where);
    ig_residency_close(w->r);
    free(w);
}

/* What the device does, in an order of its own. */
static void obey(world *w) {
    bool told[BLOCKS] = {false};
    ig_residency *r = w->r;
    for (int h = HEADS - 1; h >= 0; h--) {
        assert_true(r->n_orders[h] <= LEN);
        for (uint32_t i = r->n_orders[h]; i-- > 0;) {
            ig_copy_order o = r->orders[h * LEN + (int)i];
            assert_false(told[o.block]); /* twice at once would be a race */
            told[o.block] = true;
            if (o.copy) memcpy(r->copies + (o.copy - 1) * BLOCK_BYTES, o.from, BLOCK_BYTES);
            r->where[o.block] = o.copy ? ig_copy_address(r, o.copy) : o.from;
        }
    }
}

/* Views of n_views lists, every slot or some. */
static void make_views(world *w, int layer, int n_views, bool dense) {
    for (int v = 0; v < n_views; v++) {
        int table = layer * HEADS + v * HEADS / n_views, n = 0, odds = 1 + roll(w, 8);
        for (int slot = 0; slot < LEN * ROWS; slot++)
            if (roll(w, odds) == 0) w->lists[v][n++] = slot;
        w->views[v] = (ig_kv_view){.blocks = w->frames + table * LEN,
                                   .shift = SHIFT,
                                   .index = dense ? NULL : w->lists[v],
                                   .n = dense ? LEN * ROWS - 1 : n,
                                   .copies = w->r,
                                   .table = (size_t)table,
                                   .traffic = &w->traffic};
    }
}

static void touch(world *w, int layer, int n_views, ig_touch_time when) {
    if (when != IG_TOUCH_AFTER) ig_residency_begin(w->r, layer);
    for (int h = 0; h < HEADS; h++) {
        const ig_kv_traffic *x = &w->r->found[h];
        ig_residency_touch(w->r, w->views, n_views, h, 0, LEN * ROWS, when);
        w->traffic.hits += x->hits, w->traffic.copied += x->copied;
        w->traffic.rows += x->rows, w->traffic.bytes += x->bytes;
    }
    obey(w);
}

/* What a device is told that has the lists alone. */
static void tell(world *w, int layer, int n_views) {
    ig_residency_begin(w->r, layer);
    for (int v = 0; v < n_views; v++) w->views[v].n_slots = LEN * ROWS;
    for (int h = 0; h < HEADS; h++) ig_residency_tell(w->r, w->views, n_views, h);
    obey(w);
}

/* Blocks of the views that the device does not find as they are. */
static int count_stale(const world *w, int n_views) {
    int stale = 0;
    for (int v = 0; v < n_views; v++)
        for (int i = 0; i < w->views[v].n; i++) {
            const ig_kv_view *view = &w->views[v];
            int slot = view->index ? view->index[i] : i, b = (int)view->table * LEN + (slot >> SHIFT);
            const uint8_t *at = w->r->where[b];
            if ((uintptr_t)at & 1) at--;
            stale += !at || at[0] != w->held[b] || at[BLOCK_BYTES - 1] != w->held[b];
        }
    return stale;
}

/* Steps over the layers, with all that can happen between them; blocks that were not found as they are. */
static int live(world *w, int n_steps) {
    int stale = 0;
    for (int i = 0; i < n_steps * LAYERS; i++) {
        int layer = i % LAYERS, n_views = roll(w, 2) ? HEADS : VIEWS;
        for (int k = roll(w, 6); k > 0; k--) write_block(w, roll(w, BLOCKS));
        for (int k = roll(w, 6); k > 0; k--) move_block(w, roll(w, BLOCKS));
        if (roll(w, 200) == 0) ig_residency_share_out(w->r, roll(w, LAYERS));
        make_views(w, layer, n_views, roll(w, 4) == 0);
        bool told = roll(w, 3) == 0;
        if (told)
            tell(w, layer, n_views);
        else
            touch(w, layer, n_views, IG_TOUCH_NOW);
        stale += count_stale(w, n_views);
        if (told) touch(w, layer, n_views, IG_TOUCH_AFTER);
        if (layer + 1 == LAYERS || roll(w, 2)) continue;
        make_views(w, layer + 1, HEADS, false);
        touch(w, layer + 1, HEADS, IG_TOUCH_AHEAD);
    }
    return stale;
}

/* Of any size, copies are current; if writing forgot to say so, this test would see it. */
static void always_current(void **state) {
    (void)state;
    static const int sizes[] = {0, 1, 5, HEADS * LAYERS, 30, BLOCKS - 1, BLOCKS};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        world *w = open_world(sizes[i], 0);
        assert_int_equal(live(w, 400), 0);
        assert_int_equal(ig_residency_holds_all(w->r), sizes[i] == BLOCKS);
        if (sizes[i]) assert_true(w->traffic.hits > 0);
        if (!sizes[i]) assert_int_equal(w->traffic.copied, 0);
        w->careless = true;
        if (sizes[i] >= 30) assert_true(live(w, 400) > 0);
        close_world(w);
    }
}

/* All of every block: each is copied at once, and then nothing crosses the bus but what is not full yet. */
static void everything_fits(void **state) {
    (void)state;
    world *w = open_world(BLOCKS, 0);
    for (int i = 0; i < 5 * LAYERS; i++) {
        make_views(w, i % LAYERS, HEADS, true);
        touch(w, i % LAYERS, HEADS, IG_TOUCH_NOW);
    }
    enum { FULL = LAYERS * HEADS * (LEN - 1), OPEN = LAYERS * HEADS };
    /* The last blocks hold a row less: copied in their second step. */
    assert_int_equal(w->traffic.copied, FULL + OPEN);
    assert_int_equal(w->traffic.rows, OPEN * (ROWS - 1));
    assert_int_equal(w->traffic.hits, 4 * FULL + 3 * OPEN);
    assert_int_equal(w->traffic.bytes, (FULL + OPEN) * BLOCK_BYTES + OPEN * (ROWS - 1) * BLOCK_BYTES / ROWS);
    close_world(w);
}

/* More than there is room for in each step: what is there stays. */
static void no_thrashing(void **state) {
    (void)state;
    enum { EACH = 4 };
    world *w = open_world(EACH * LAYERS * HEADS, 0);
    for (int i = 0; i < 10 * LAYERS; i++) {
        make_views(w, i % LAYERS, HEADS, true);
        touch(w, i % LAYERS, HEADS, IG_TOUCH_NOW);
    }
    assert_int_equal(w->traffic.copied, EACH * LAYERS * HEADS);
    assert_int_equal(w->traffic.hits, 9 * EACH * LAYERS * HEADS);
    close_world(w);
}

/* The dense layer's tables get all they can use, if that leaves as much. */
static void dense_layers(void **state) {
    (void)state;
    for (int rich = 0; rich < 2; rich++) {
        world *w = open_world(rich ? 2 * HEADS * LEN : 2 * HEADS * LEN - 1, 1);
        const ig_resident_table *t = w->r->tables;
        assert_int_equal(t[0].n, rich ? LEN : 8);
        assert_int_equal(t[HEADS].n, rich ? HEADS * LEN / (HEADS * (LAYERS - 1)) : 8);
        close_world(w);
    }
}

/* A row of every block at each step is read in place until that has cost a copy. If this was not known before, the
 * last row is read in place as well. */
static void ski_rental(void **state) {
    const bool *told = *state;
    world *w = open_world(BLOCKS, 0);
    for (int step = 1; step <= 2 * ROWS; step++) {
        uint64_t before = w->traffic.bytes;
        for (int layer = 0; layer < LAYERS; layer++) {
            make_views(w, layer, HEADS, false);
            for (int v = 0; v < HEADS; v++) {
                for (int b = 0; b < LEN; b++) w->lists[v][b] = b * ROWS + 1;
                w->views[v].n = LEN;
            }
            if (*told) tell(w, layer, HEADS);
            touch(w, layer, HEADS, *told ? IG_TOUCH_AFTER : IG_TOUCH_NOW);
        }
        uint64_t row = BLOCKS * BLOCK_BYTES / ROWS, copy = BLOCKS * BLOCK_BYTES + (*told ? row : 0);
        assert_int_equal(w->traffic.bytes - before, step < ROWS ? row : step == ROWS ? copy : 0);
        assert_int_equal(w->r->step, step);
    }
    assert_int_equal(w->traffic.hits, ROWS * BLOCKS);
    close_world(w);
}

/* What is not wanted any more makes room after two steps, not before. */
static void idle_ones_leave(void **state) {
    (void)state;
    enum { EACH = 3 };
    world *w = open_world(EACH * LAYERS * HEADS, 0);
    for (int step = 0; step < 8; step++) {
        for (int layer = 0; layer < LAYERS; layer++) {
            make_views(w, layer, HEADS, false);
            for (int v = 0; v < HEADS; v++) {
                for (int i = 0; i < EACH * ROWS; i++) w->lists[v][i] = i + (step >= 2 ? EACH * ROWS : 0);
                w->views[v].n = EACH * ROWS;
            }
            touch(w, layer, HEADS, IG_TOUCH_NOW);
        }
        uint64_t rounds = step < 4 ? 1 : 2;
        assert_int_equal(w->traffic.copied, rounds * EACH * LAYERS * HEADS);
    }
    close_world(w);
}

int main(void) {
    static bool told[] = {false, true};
    const struct CMUnitTest tests[] = {cmocka_unit_test(always_current),
                                       cmocka_unit_test(everything_fits),
                                       cmocka_unit_test(no_thrashing),
                                       cmocka_unit_test(dense_layers),
                                       cmocka_unit_test_prestate(ski_rental, &told[0]),
                                       cmocka_unit_test_prestate(ski_rental, &told[1]),
                                       cmocka_unit_test(idle_ones_leave)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
