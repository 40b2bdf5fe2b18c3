/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies of blocks: where the GPU is about to read must be what the blocks hold, whatever is written, moved and read
 * meanwhile; and what crosses the bus is what the rules say.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "device/residency.h"
#include "two_devices.h"

enum {
    LAYERS = 3,
    HEADS = 2,
    LEN = 12,    /* of tables that one block of threads looks at */
    LONG = 1100, /* that some look at */
    SHIFT = 2,
    ROWS = 1 << SHIFT,
    SLOTS = LONG * ROWS,
    TABLES = LAYERS * HEADS,
    BLOCKS = TABLES * LEN,
    MOST_BLOCKS = TABLES * LONG,
    DIM = 16,
    ROW_BYTES = 2 * DIM,
    BLOCK_BYTES = 2 * ROWS * ROW_BYTES,
    VIEWS = 2 * HEADS,
    JOBS = IG_WANTS + 2,
    HOMES = 2 * MOST_BLOCKS
};

/* When rows are read, and who has the lists. */
typedef enum reading { NOW, HIDDEN, AHEAD } reading;

/* Memory that the GPU reads. */
typedef struct shared {
    uint8_t homes[HOMES][BLOCK_BYTES];
    const uint8_t *frames[MOST_BLOCKS];
} shared;

/* A memory of blocks whose bytes are all the same number, and the device's side. */
typedef struct world {
    ig_device *dev;
    ig_residency *r;
    ig_random dice;
    shared *at;
    int len, n_blocks; /* of a table, of all */
    uint8_t held[MOST_BLOCKS];
    int home[MOST_BLOCKS]; /* number of the home that a block lies in */
    bool taken[HOMES];
    ig_kv_traffic traffic, others;   /* of the first job of a call; of its other ones */
    int32_t lists[VIEWS][SLOTS + 1]; /* the last one is their number */
    int32_t *hidden;                 /* the device's: [VIEWS][SLOTS + 1] */
    float *q;                        /* the device's: [2][VIEWS][DIM], the result behind it */
    ig_kv_view views[VIEWS];
    bool careless; /* blocks are written without a word */
} world;

static int roll(world *w, int n) { return (int)(ig_random_unit(&w->dice) * n); }

static void put_block(world *w, int b) { memset(w->at->homes[w->home[b]], w->held[b], BLOCK_BYTES); }

static void write_block(world *w, int b) {
    if (!w->careless) ig_residency_forget(w->r, (size_t)b);
    w->held[b]++;
    put_block(w, b);
}

/* To another frame, as if it had been on disk; what was there is overwritten. */
static void move_block(world *w, int b) {
    int to = roll(w, 2 * w->n_blocks);
    if (w->taken[to]) return;
    memset(w->at->homes[w->home[b]], 0xee, BLOCK_BYTES);
    w->taken[w->home[b]] = false;
    w->taken[to] = true;
    w->home[b] = to;
    w->at->frames[b] = w->at->homes[to];
    put_block(w, b);
}

/* The least that is enough for so many copies. */
static uint64_t bytes_for(ig_residency_shape s, int n_copies) {
    s.max_bytes = 0;
    uint64_t books = ig_residency_bytes(&s);
    s.max_bytes = UINT64_MAX;
    return n_copies < TABLES * (int)s.table_len
               ? books + (uint64_t)n_copies * (BLOCK_BYTES + sizeof(uint32_t)) + IG_ALIGN
               : ig_residency_bytes(&s);
}

/* ALL: a copy of each block. */
enum { ALL = INT32_MAX };

static world *open_world_of(int len, int n_copies, int n_dense_layers) {
    world *w = calloc(1, sizeof *w);
    ig_error err = {0};
    ig_residency_shape s = {.n_layers = LAYERS,
                            .n_heads = HEADS,
                            .table_len = (size_t)len,
                            .block_bytes = BLOCK_BYTES,
                            .n_dense_layers = n_dense_layers};
    assert_non_null(w);
    w->len = len, w->n_blocks = TABLES * len;
    s.max_bytes = bytes_for(s, n_copies);
    w->dev = devices[GPU];
    if (w->dev->ops->open_copies(w->dev, &w->r, &s, &err)) fail_msg("%s", err.text);
    assert_int_equal(w->r->n_copies, n_copies < w->n_blocks ? n_copies : w->n_blocks);
    assert_true(ig_residency_bytes(&s) <= s.max_bytes);
    w->at = ig_device_alloc(w->dev, IG_PLACE_HOST, sizeof *w->at);
    w->hidden = ig_device_alloc(w->dev, IG_PLACE_DEVICE, sizeof w->lists);
    w->q = ig_device_alloc(w->dev, IG_PLACE_DEVICE, 2 * VIEWS * DIM * sizeof(float));
    reserve_both(
        &(ig_device_need){.max_rows = JOBS, .max_in = 64, .max_entries = len * ROWS, .heads = {VIEWS, VIEWS, DIM, 1}});
    w->dice = (ig_random){(uint64_t)n_copies + 1};
    for (int b = 0; b < w->n_blocks; b++) {
        w->home[b] = b;
        w->taken[b] = true;
        w->at->frames[b] = w->at->homes[b];
        write_block(w, b);
    }
    return w;
}

static world *open_world(int n_copies, int n_dense_layers) { return open_world_of(LEN, n_copies, n_dense_layers); }

static void close_world(world *w) {
    w->dev->ops->close_copies(w->dev, w->r);
    ig_device_free(w->dev, IG_PLACE_HOST, w->at, sizeof *w->at);
    ig_device_free(w->dev, IG_PLACE_DEVICE, w->hidden, sizeof w->lists);
    ig_device_free(w->dev, IG_PLACE_DEVICE, w->q, 0);
    free(w);
}

/* Views of n_views lists, every slot but the last one, or some. */
static void make_views(world *w, int layer, int n_views, bool dense) {
    for (int v = 0; v < n_views; v++) {
        int table = layer * HEADS + v * HEADS / n_views, n = 0, odds = 1 + roll(w, 8), n_slots = w->len * ROWS;
        for (int slot = 0; slot < n_slots; slot++)
            if (roll(w, odds) == 0) w->lists[v][n++] = slot;
        w->views[v] = (ig_kv_view){.blocks = w->at->frames + table * w->len,
                                   .is_ascending = true,
                                   .shift = SHIFT,
                                   .row_bytes = ROW_BYTES,
                                   .v_offset = ROWS * ROW_BYTES,
                                   .index = dense ? NULL : w->lists[v],
                                   .n = dense ? n_slots - 1 : n,
                                   .n_slots = dense ? n_slots - 1 : n_slots,
                                   .copies = w->r,
                                   .where = w->r->books.where + table * w->len,
                                   .table = (size_t)table};
    }
}

/* What they read, as lists. */
static void list_all(world *w, int n_views) {
    for (int v = 0; v < n_views; v++) {
        for (int i = 0; i < w->views[v].n; i++) w->lists[v][i] = i;
        w->views[v].index = w->lists[v];
    }
}

/* Lists in another order. */
static void shuffle(world *w, int n_views) {
    for (int v = 0; v < n_views; v++) {
        int32_t *list = w->lists[v];
        for (int i = w->views[v].index ? w->views[v].n : 0; i > 1; i--) {
            int j = roll(w, i), x = list[j];
            list[j] = list[i - 1];
            list[i - 1] = x;
        }
        w->views[v].is_ascending = false;
    }
}

/* Lists that the device alone has. */
static void hide(world *w, ig_kv_view *views, int n_views) {
    for (int v = 0; v < n_views; v++) w->lists[v][SLOTS] = views[v].n;
    w->dev->ops->copy(w->dev, w->hidden, w->lists, sizeof w->lists);
    finish(GPU);
    for (int v = 0; v < n_views; v++) {
        if (!views[v].index) continue;
        views[v].index = w->hidden + v * (SLOTS + 1);
        views[v].n_listed = views[v].index + SLOTS;
        views[v].n = SLOTS;
    }
}

/* By jobs that read the same. */
static void touch_together(world *w, int n_jobs, int n_views, reading when) {
    ig_kv_view views[JOBS][VIEWS];
    ig_head_shape shape = {VIEWS, n_views, DIM, 1};
    ig_attention jobs[JOBS] = {0};
    for (int j = 0; j < n_jobs; j++) {
        memcpy(views[j], w->views, sizeof w->views);
        if (when == HIDDEN) hide(w, views[j], n_views);
        for (int v = 0; v < n_views; v++) views[j][v].traffic = j ? &w->others : &w->traffic;
        jobs[j] = (ig_attention){.q = w->q, .out = w->q + VIEWS * DIM, .n_tokens = 1, .views = views[j]};
    }
    (when == AHEAD ? w->dev->ops->prefetch : w->dev->ops->attend)(w->dev, &shape, jobs, n_jobs);
    finish(GPU);
}

static void touch(world *w, int n_views, reading when) { touch_together(w, 1, n_views, when); }

/* Blocks of the views that the device does not find as they are. */
static int count_stale(const world *w, int n_views) {
    static uint8_t copies[MOST_BLOCKS * BLOCK_BYTES];
    static const uint8_t *where[MOST_BLOCKS];
    const ig_resident_books *books = &w->r->books;
    int stale = 0;
    w->dev->ops->copy(w->dev, copies, books->copies, w->r->n_copies * BLOCK_BYTES);
    w->dev->ops->copy(w->dev, where, books->where, (size_t)w->n_blocks * sizeof *where);
    finish(GPU);
    for (int v = 0; v < n_views; v++)
        for (int i = 0; i < w->views[v].n; i++) {
            const ig_kv_view *view = &w->views[v];
            int slot = view->index ? view->index[i] : i, b = (int)view->table * w->len + (slot >> SHIFT);
            const uint8_t *at = where[b];
            if ((uintptr_t)at & 1) at = copies + (at - 1 - books->copies);
            stale += !at || at[0] != w->held[b] || at[BLOCK_BYTES - 1] != w->held[b];
        }
    return stale;
}

/* Steps over the layers, with all that can happen between them; blocks that were not found as they are. */
static int live(world *w, int n_steps) {
    int stale = 0;
    for (int i = 0; i < n_steps * LAYERS; i++) {
        int layer = i % LAYERS, n_views = roll(w, 2) ? HEADS : VIEWS;
        for (int k = roll(w, w->len / 2); k > 0; k--) write_block(w, roll(w, w->n_blocks));
        for (int k = roll(w, w->len / 2); k > 0; k--) move_block(w, roll(w, w->n_blocks));
        if (roll(w, 200) == 0) ig_residency_share_out(w->r, roll(w, LAYERS));
        make_views(w, layer, n_views, roll(w, 4) == 0);
        if (roll(w, 4) == 0) shuffle(w, n_views);
        touch_together(w, 1 + roll(w, 2), n_views, roll(w, 3) ? NOW : HIDDEN);
        stale += count_stale(w, n_views);
        if (layer + 1 == LAYERS || roll(w, 2)) continue;
        make_views(w, layer + 1, HEADS, false);
        touch(w, HEADS, AHEAD);
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

/* The same where several blocks of threads share each list. */
static void current_in_long_tables(void **state) {
    (void)state;
    for (int full = 0; full < 2; full++) {
        world *w = open_world_of(LONG, full ? ALL : MOST_BLOCKS / 8, 0);
        assert_int_equal(live(w, 8), 0);
        assert_true(w->traffic.hits > 0 && w->traffic.copied > 0);
        w->careless = true;
        assert_true(live(w, 4) > 0);
        close_world(w);
    }
}

/* All of every block: each is copied at once, but for those that are not full yet, in the second step. */
static void everything_fits(void **state) {
    const int *len = *state;
    const uint64_t full = (uint64_t)TABLES * (uint64_t)(*len - 1), all = full + TABLES, open_rows = TABLES * (ROWS - 1);
    world *w = open_world_of(*len, ALL, 0);
    for (int i = 0; i < 5 * LAYERS; i++) {
        make_views(w, i % LAYERS, HEADS, true);
        touch(w, HEADS, NOW);
    }
    assert_int_equal(w->traffic.copied, all);
    assert_int_equal(w->traffic.rows, open_rows);
    assert_int_equal(w->traffic.hits, 4 * full + 3 * TABLES);
    assert_int_equal(w->traffic.bytes, all * BLOCK_BYTES + open_rows * BLOCK_BYTES / ROWS);
    assert_int_equal(w->r->total.bytes, w->traffic.bytes);
    close_world(w);
}

/* More than there is room for in each step: what is there stays. */
static void no_thrashing(void **state) {
    const int *len = *state;
    const int each = *len / 3;
    world *w = open_world_of(*len, each * TABLES, 0);
    for (int i = 0; i < 10 * LAYERS; i++) {
        make_views(w, i % LAYERS, HEADS, true);
        touch(w, HEADS, NOW);
    }
    assert_int_equal(w->traffic.copied, each * TABLES);
    assert_int_equal(w->traffic.hits, 9 * each * TABLES);
    close_world(w);
}

/* Copies that tables have given out. */
static uint64_t count_used(world *w) {
    ig_resident_table tables[TABLES];
    uint64_t n = 0;
    w->dev->ops->copy(w->dev, tables, w->r->books.tables, sizeof tables);
    finish(GPU);
    for (int i = 0; i < TABLES; i++) {
        n += tables[i].n_fresh;
        assert_true(tables[i].n_wanted == 0 && tables[i].n_done == 0);
    }
    return n;
}

/* What several jobs, or lists of one, want in the same call gets one copy, which all of them read. Each of them counts
 * what it reads, from the copy or in place. */
static void one_copy_for_all(void **state) {
    const int *len = *state;
    for (int few = 0; few < 2; few++)
        for (int kind = 0; kind < 2; kind++) {
            const int n_jobs = kind ? 1 : 3, n_views = kind ? VIEWS : HEADS, times = n_jobs * n_views / HEADS;
            const uint64_t full = few ? (uint64_t)*len / 3 : (uint64_t)*len - 1, copied = TABLES * full,
                           in_place = TABLES * ((uint64_t)*len * ROWS - 1 - full * ROWS);
            world *w = open_world_of(*len, few ? (int)copied : ALL, 0);
            for (int i = 0; i < LAYERS; i++) {
                make_views(w, i, n_views, true);
                if (i) list_all(w, n_views);
                touch_together(w, n_jobs, n_views, i < 2 ? NOW : HIDDEN);
                assert_int_equal(count_stale(w, n_views), 0);
            }
            assert_int_equal(count_used(w), copied);
            assert_int_equal(w->traffic.copied, copied);
            assert_int_equal(w->others.copied, 0);
            assert_int_equal(w->traffic.hits + w->others.hits, (uint64_t)(times - 1) * copied);
            assert_int_equal(w->traffic.rows + w->others.rows, (uint64_t)times * in_place);
            if (n_jobs > 1) assert_int_equal(w->others.rows, (uint64_t)(n_jobs - 1) * in_place);
            close_world(w);
        }
}

/* Foreseen by several jobs: one copy, as far as there are any; nothing else is counted, nothing is paid. */
static void one_copy_is_foreseen(void **state) {
    const int *len = *state;
    static ig_resident blocks[MOST_BLOCKS];
    const int each = *len / 3;
    world *w = open_world_of(*len, each * TABLES, 0);
    for (int i = 1; i < LAYERS; i++) {
        make_views(w, i, HEADS, true);
        touch_together(w, 3, HEADS, AHEAD);
    }
    assert_int_equal(count_used(w), each * HEADS * (LAYERS - 1));
    assert_int_equal(w->traffic.copied, each * HEADS * (LAYERS - 1));
    assert_true(w->traffic.hits + w->traffic.rows + w->others.hits + w->others.rows + w->others.copied == 0);
    w->dev->ops->copy(w->dev, blocks, w->r->books.blocks, (size_t)w->n_blocks * sizeof *blocks);
    finish(GPU);
    int n_unpaid = 0;
    for (int b = HEADS * *len; b < w->n_blocks; b++) n_unpaid += blocks[b].paid == 0;
    assert_true(n_unpaid >= (LAYERS - 1) * HEADS * (*len - each - 1));
    close_world(w);
}

/* More jobs want the same blocks than there is room to say so: each block gets its copy all the same. */
static void too_many_wants(void **state) {
    const int *len = *state;
    const uint64_t full = (uint64_t)TABLES * (uint64_t)(*len - 1);
    world *w = open_world_of(*len, ALL, 0);
    for (int i = 0; i < LAYERS; i++) {
        make_views(w, i, HEADS, true);
        touch_together(w, JOBS, HEADS, NOW);
        assert_int_equal(count_stale(w, HEADS), 0);
    }
    assert_int_equal(count_used(w), w->traffic.copied + w->others.copied);
    for (int i = 0; i < LAYERS; i++) {
        make_views(w, i, HEADS, true);
        touch_together(w, JOBS, HEADS, NOW);
    }
    assert_int_equal(w->traffic.copied + w->others.copied, full + TABLES); /* those that are not full, too */
    assert_int_equal(count_used(w), full + TABLES);
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

typedef struct rental {
    reading when;
    int len;
    bool is_shuffled;
} rental;

/* A row of every block at each step is read in place until that has cost a copy. */
static void ski_rental(void **state) {
    const rental *x = *state;
    world *w = open_world_of(x->len, ALL, 0);
    for (int step = 1; step <= 2 * ROWS; step++) {
        uint64_t before = w->traffic.bytes;
        for (int layer = 0; layer < LAYERS; layer++) {
            make_views(w, layer, HEADS, false);
            for (int v = 0; v < HEADS; v++) {
                for (int b = 0; b < w->len; b++) w->lists[v][b] = b * ROWS + 1;
                w->views[v].n = w->len;
            }
            if (x->is_shuffled) shuffle(w, HEADS);
            touch(w, HEADS, x->when);
        }
        uint64_t row = (uint64_t)w->n_blocks * BLOCK_BYTES / ROWS;
        assert_int_equal(w->traffic.bytes - before, step < ROWS ? row : step == ROWS ? ROWS * row : 0);
        assert_int_equal(w->r->step, step);
    }
    assert_int_equal(w->traffic.hits, ROWS * w->n_blocks);
    close_world(w);
}

/* What was read in place of a block before it was written again has not paid for a copy of it. */
static void writing_begins_the_count_anew(void **state) {
    (void)state;
    world *w = open_world(BLOCKS, 0);
    for (int step = 0; step < 2 * ROWS; step++)
        for (int layer = 0; layer < LAYERS; layer++) {
            make_views(w, layer, HEADS, false);
            for (int v = 0; v < HEADS; v++) {
                w->lists[v][0] = 1;
                w->views[v].n = 1;
                if (step == ROWS - 1) write_block(w, (layer * HEADS + v) * LEN);
            }
            touch(w, HEADS, NOW);
            assert_int_equal(w->traffic.copied > 0, step >= 2 * ROWS - 2);
        }
    close_world(w);
}

/* Layers that are foreseen before the one at hand is read are of the same step. */
static void foreseen_layers_begin_no_step(void **state) {
    (void)state;
    world *w = open_world(BLOCKS / 2, 0);
    for (int step = 1; step < 4; step++)
        for (int layer = 0; layer < LAYERS; layer++) {
            make_views(w, (layer + 1) % LAYERS, HEADS, false);
            if (layer + 1 < LAYERS) touch(w, HEADS, AHEAD);
            make_views(w, layer, HEADS, false);
            touch(w, HEADS, NOW);
            assert_int_equal(w->r->step, step);
        }
    close_world(w);
}

/* Rows [first, end) of each table, once or more in a step. */
static void touch_rows(world *w, int first, int end, int n_times) {
    for (int layer = 0; layer < LAYERS; layer++) {
        make_views(w, layer, HEADS, false);
        for (int v = 0; v < HEADS; v++) {
            for (int i = first; i < end; i++) w->lists[v][i - first] = i;
            w->views[v].n = end - first;
        }
        for (int i = 0; i < n_times; i++) touch(w, HEADS, NOW);
    }
}

/* What is not wanted any more makes room after two steps, not before. */
static void idle_ones_leave(void **state) {
    const int *len = *state;
    const int each = *len / 4;
    world *w = open_world_of(*len, each * TABLES, 0);
    for (int step = 0; step < 8; step++) {
        int first = step >= 2 ? each * ROWS : 0;
        touch_rows(w, first, first + each * ROWS, 2);
        assert_int_equal(w->traffic.copied, (step < 4 ? 1 : 2) * each * TABLES);
    }
    close_world(w);
}

/* Nor do those that were idle until now: wherever in the lists they are, they are seen before any leaves. The blocks of
 * threads of one layer run in another order than those of the next. */
static void wanted_ones_stay(void **state) {
    const int *len = *state;
    const int each = *len / 4;
    for (int at_end = 0; at_end < 2; at_end++) {
        world *w = open_world_of(*len, each * TABLES, 0);
        int first = at_end ? (*len - each) * ROWS : 0;
        touch_rows(w, first, first + each * ROWS, 1);
        for (int step = 0; step < ROWS - 1; step++) touch_rows(w, 2 * each * ROWS, 2 * each * ROWS + 1, 1);
        uint64_t before = w->traffic.hits;
        touch_rows(w, 0, *len * ROWS, 1);
        assert_int_equal(w->traffic.copied, each * TABLES);
        assert_int_equal(w->traffic.hits - before, each * TABLES);
        close_world(w);
    }
}

/* However many commands wait to be submitted: what is told of a block goes before the kernel that asks for it. */
static void written_before_a_full_list(void **state) {
    (void)state;
    enum { LIST = 4096 }; /* commands of a list: MOST in commands.cu */
    world *w = open_world(BLOCKS, 0);
    make_views(w, 0, HEADS, true);
    touch(w, HEADS, AHEAD);
    for (int n = LIST - 3; n <= LIST; n++) {
        for (int b = n % 4; b < HEADS * LEN; b += 4) write_block(w, b); /* others than the time before */
        for (int i = 0; i < n; i++) w->dev->ops->clear(w->dev, w->q, sizeof *w->q);
        touch(w, HEADS, AHEAD);
        touch(w, HEADS, NOW);
        assert_int_equal(count_stale(w, HEADS), 0);
    }
    close_world(w);
}

int main(void) {
    static int lens[] = {LEN, LONG};
    static rental rentals[] = {{NOW, LEN, false}, {HIDDEN, LEN, false}, {HIDDEN, LONG, false}, {NOW, LONG, true}};
    const struct CMUnitTest tests[] = {cmocka_unit_test(always_current),
                                       cmocka_unit_test(current_in_long_tables),
                                       cmocka_unit_test_prestate(everything_fits, &lens[0]),
                                       cmocka_unit_test_prestate(everything_fits, &lens[1]),
                                       cmocka_unit_test_prestate(no_thrashing, &lens[0]),
                                       cmocka_unit_test_prestate(no_thrashing, &lens[1]),
                                       cmocka_unit_test_prestate(one_copy_for_all, &lens[0]),
                                       cmocka_unit_test_prestate(one_copy_for_all, &lens[1]),
                                       cmocka_unit_test_prestate(one_copy_is_foreseen, &lens[0]),
                                       cmocka_unit_test_prestate(one_copy_is_foreseen, &lens[1]),
                                       cmocka_unit_test_prestate(too_many_wants, &lens[0]),
                                       cmocka_unit_test_prestate(too_many_wants, &lens[1]),
                                       cmocka_unit_test(dense_layers),
                                       cmocka_unit_test_prestate(ski_rental, &rentals[0]),
                                       cmocka_unit_test_prestate(ski_rental, &rentals[1]),
                                       cmocka_unit_test_prestate(ski_rental, &rentals[2]),
                                       cmocka_unit_test_prestate(ski_rental, &rentals[3]),
                                       cmocka_unit_test(writing_begins_the_count_anew),
                                       cmocka_unit_test(foreseen_layers_begin_no_step),
                                       cmocka_unit_test_prestate(idle_ones_leave, &lens[0]),
                                       cmocka_unit_test_prestate(idle_ones_leave, &lens[1]),
                                       cmocka_unit_test_prestate(wanted_ones_stay, &lens[0]),
                                       cmocka_unit_test_prestate(wanted_ones_stay, &lens[1]),
                                       cmocka_unit_test(written_before_a_full_list)};
    int missing = missing_gpu();
    return missing ? missing : cmocka_run_group_tests(tests, open_devices, close_devices);
}
