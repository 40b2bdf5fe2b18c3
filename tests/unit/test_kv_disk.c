/* SPDX-License-Identifier: Apache-2.0
 *
 * The KV store with a disk tier: whatever is loaded is what was written, steps that want more than there is room for
 * keep a part of it, prefetches of two layers overlap, and RAM stays within its limit. A disk that fails is in
 * test_kv_disk_faults.c.
 */
#define _GNU_SOURCE
#include <stdio.h>

#include "kv/frame_pool.h"
#include "kv/memory_parts.h"
#include "kv_disk_rig.h"
#include "sanitized.h"

/* More is wanted in a step than there is room for, the same in every step: an order that knows only when a block was
 * used would have pushed out each of them before its turn comes again. */
static void steps_keep_a_part(void **state) {
    rig r;
    ig_error err = {0};
    open_rig(&r, *(const ig_evict_rule *)*state, 0.1);
    for (int n = 0; n < TOKENS; n += BATCH) add_tokens(&r, n, BATCH);
    int wanted = 0;
    for (int step = 0; step < 8; step++) {
        uint64_t before = stats(&r).recalled;
        wanted = 0;
        for (int l = 0; l < LAYERS; l++) {
            wanted += pick_blocks(&r, l, 2, TOKENS);
            expect_ok(load(&r, l, &err), &err);
            check_picks(&r, l);
        }
        uint64_t read = stats(&r).recalled - before;
        if (step >= 6) assert_true(read > 0 && read < (uint64_t)wanted * 3 / 4);
    }
    assert_true((uint64_t)wanted * IG_FRAME_BYTES > r.options.ram_bytes);
    close_rig(&r);
}

/* What is wanted changes: what was wanted long ago makes room. */
static void what_is_idle_leaves(void **state) {
    rig r;
    ig_error err = {0};
    open_rig(&r, *(const ig_evict_rule *)*state, 0.1);
    for (int n = 0; n < TOKENS; n += BATCH) add_tokens(&r, n, BATCH);
    for (int phase = 0; phase < 3; phase++)
        for (int step = 0; step < 8; step++) {
            uint64_t before = stats(&r).recalled;
            for (int l = 0; l < LAYERS; l++) {
                pick_blocks(&r, phase * 3, 10, TOKENS); /* a tenth of all: there is room for that */
                expect_ok(load(&r, l, &err), &err);
                check_picks(&r, l);
            }
            if (step == 7) assert_int_equal(stats(&r).recalled, before);
        }
    close_rig(&r);
}

static void prefetches_overlap(void **state) {
    rig r;
    ig_error err = {0};
    open_rig(&r, *(const ig_evict_rule *)*state, 0);
    for (int n = 0; n < TOKENS; n += BATCH) add_tokens(&r, n, BATCH);
    for (int step = 0; step < 4; step++)
        for (int l = 0; l < LAYERS; l++) {
            /* The next layer's before this one's load; the guess has four in five right. */
            pick_blocks(&r, l + 1 + step, 5, TOKENS * 4 / 5);
            if (l + 1 < LAYERS) expect_ok(prefetch(&r, l + 1, &err), &err);
            pick_blocks(&r, l + step, 5, TOKENS);
            expect_ok(load(&r, l, &err), &err);
            check_picks(&r, l);
        }
    ig_kv_stats st = stats(&r);
    assert_true(st.prefetch_hits > 0 && st.prefetch_misses > 0);
    assert_true(st.prefetch_hits + st.prefetch_misses <= st.recalled);
    /* One that nobody asks for, and one of everything. */
    pick_blocks(&r, 0, 1, TOKENS);
    expect_ok(prefetch(&r, 5, &err), &err);
    expect_ok(prefetch(&r, 8, &err), &err);
    expect_ok(load(&r, 2, &err), &err);
    check_picks(&r, 2);
    expect_ok(prefetch(&r, 4, &err), &err);
    expect_ok(ig_kv_cut(r.kv, 1000, &err), &err);
    pick_blocks(&r, 0, 1, 992);
    expect_ok(load(&r, 4, &err), &err);
    check_picks(&r, 4);
    close_rig(&r);
}

static uint64_t resident_bytes(void) {
    unsigned long long pages[2] = {0};
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%llu %llu", &pages[0], &pages[1]) != 2) pages[1] = 0;
    if (f) fclose(f);
    return pages[1] * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void ram_stays_within_its_limit(void **state) {
    enum { SLACK = 1 << 20 }; /* the program's own: stacks, libraries, requests under way */
    rig r;
    ig_error err = {0};
    uint64_t start = resident_bytes(), most = 0;
    open_rig(&r, *(const ig_evict_rule *)*state, 0.2);
    for (int n = 0; n < TOKENS; n += BATCH) {
        add_tokens(&r, n, BATCH);
        assert_true(stats(&r).ram_bytes <= r.options.ram_bytes);
    }
    for (int n = TOKENS; n < TOKENS + 40; n++) {
        add_tokens(&r, n, 1);
        for (int l = 0; l < LAYERS; l++) {
            pick_blocks(&r, n * 5 + l, 3, TOKENS);
            if (l + 1 < LAYERS) expect_ok(prefetch(&r, l + 1, &err), &err);
            expect_ok(load(&r, l, &err), &err);
            ig_kv_view views[HEADS];
            if (n % 20 == 0)
                for (int begin = 0; begin < n; begin += IG_ATTEND_UNIT)
                    expect_ok(ig_kv_stream(r.kv, l, begin, n, views, &err), &err);
            assert_true(stats(&r).ram_bytes <= r.options.ram_bytes);
        }
        if (resident_bytes() > most) most = resident_bytes();
    }
    assert_true(stats(&r).ram_bytes > r.options.ram_bytes * 3 / 4); /* it uses what it may */
#if defined(IS_SANITIZED) || defined(IS_EMULATED)
    (void)start;
#else
    assert_true(most - start <= r.options.ram_bytes + SLACK);
#endif
    close_rig(&r);
}

/* Pieces are copied whole, most of them from the disk. */
static void pieces_are_copied(void **state) {
    rig r;
    ig_error err = {0};
    (void)state;
    open_rig(&r, IG_EVICT_COUNTER, 0);
    for (int n = 0; n < TOKENS; n += BATCH) add_tokens(&r, n, BATCH);
    const ig_kv_memory *m = r.kv->memory;
    int each = ig_kv_piece_tokens(m);
    uint16_t *got = malloc(ig_kv_piece_bytes(m));
    for (int i = 0; i < TOKENS / each; i++) {
        expect_ok(ig_kv_copy_piece(r.kv, i, (uint8_t *)got, &err), &err);
        const uint16_t *at = got; /* [layers][heads][blocks][key, value][tokens][DIM] */
        for (int l = 0; l < LAYERS; l++)
            for (int h = 0; h < HEADS; h++)
                for (int t = i * each; t < (i + 1) * each; t += PER_BLOCK, at += 2 * PER_BLOCK * DIM)
                    for (int k = 0; k < PER_BLOCK; k++) {
                        assert_int_equal(at[k * DIM + 5], stamp(l, h, t + k, 5));
                        assert_int_equal(at[(PER_BLOCK + k) * DIM + 5], (uint16_t)~stamp(l, h, t + k, 5));
                    }
    }
    free(got);
    close_rig(&r);
}

/* Marks of what was wanted are counted in 32 bits, which a server goes through in days. */
static void marks_begin_anew(void **state) {
    ig_error err = {0};
    (void)state;
    for (uint32_t before = 0; before < 4; before++) { /* within a load or a prefetch */
        rig r;
        open_rig(&r, IG_EVICT_COUNTER, 0);
        for (int n = 0; n < TOKENS; n += BATCH) add_tokens(&r, n, BATCH);
        for (int step = 0; step < 4; step++)
            for (int l = 0; l < LAYERS; l++) {
                if (step == 1 && l == 4) r.kv->memory->epoch = UINT32_MAX - before;
                pick_blocks(&r, l + 1 + step, 5, TOKENS / 2);
                if (l + 1 < LAYERS) expect_ok(prefetch(&r, l + 1, &err), &err);
                pick_blocks(&r, l + step, 5, TOKENS);
                expect_ok(load(&r, l, &err), &err);
                check_picks(&r, l);
            }
        close_rig(&r);
    }
}

/* Layers that are to stay are read back in portions, which go over several short layers. */
static void short_layers_come_to_stay(void **state) {
    enum { SHORT = 192, STAY = 3 };
    rig r;
    ig_error err = {0};
    (void)state;
    shape.n_ctx = SHORT;
    shape.n_batch = PER_BLOCK;
    open_rig(&r, IG_EVICT_COUNTER, 0.027);
    ig_kv_memory *m = r.kv->memory;
    assert_true(m->layer_blocks < 64);
    for (int n = 0; n < SHORT; n += PER_BLOCK) add_tokens(&r, n, PER_BLOCK);
    pick_blocks(&r, 0, 1, SHORT);
    for (int l = STAY + 1; l < LAYERS; l++) expect_ok(load(&r, l, &err), &err);
    uint64_t before = stats(&r).recalled;
    expect_ok(ig_kv_pin(m, STAY, &err), &err);
    assert_true(stats(&r).recalled - before > m->layer_blocks);
    for (int l = 0; l < STAY; l++) {
        expect_ok(load(&r, l, &err), &err);
        check_picks(&r, l);
    }
    close_rig(&r);
    shape.n_ctx = TOKENS + 64;
    shape.n_batch = BATCH;
}

static void see_move(void *user, int layer, int head, int from, int to) {
    (void)user, (void)layer, (void)head;
    assert_true(to < from);
}

/* Drops the first entries of a layer; what is left is what it was. */
static ig_status drop_first(rig *r, int layer, int n_tokens, ig_error *err) {
    enum { FIRST = 40 };
    int n = n_tokens - FIRST;
    for (int i = 0; i < n; i++) r->index[0][i] = FIRST + i;
    for (int h = 0; h < HEADS; h++) ig_kv_keep(r->kv, layer, h, r->index[0], n);
    ig_status s = ig_kv_compact(r->kv, layer, see_move, NULL, err);
    for (int h = 0; !s && h < HEADS; h++)
        for (int i = 0; i < n; i++) {
            uint16_t key;
            memcpy(&key, ig_kv_at(r->kv, layer, h, i).key, sizeof key);
            assert_int_equal(key, stamp(layer, h, FIRST + i, 0));
        }
    return s;
}

/* Layers that entries were dropped of stay in RAM, until there is no room for one more. */
static void what_stays_fills_ram(void **state) {
    (void)state;
    n_dropping = LAYERS;
    for (int i = 0; i < 16; i++) {
        rig r;
        ig_error err = {0};
        ig_status s = IG_OK;
        int l = 0;
        open_rig(&r, IG_EVICT_COUNTER, i * 0.002);
        for (int n = 0; n < TOKENS; n += BATCH) add_tokens(&r, n, BATCH);
        for (; l < LAYERS && !s; l++) s = drop_first(&r, l, TOKENS, &err);
        assert_int_equal(s, IG_E_LIMIT);
        assert_non_null(strstr(err.text, "too small for the entries that stay in it"));
        close_rig(&r);
    }
    n_dropping = 0;
}

/* Two full pieces that others may find. */
static void publish(ig_kv *kv, uint32_t pieces[2]) {
    ig_prefix_tree *tree = ig_kv_prefixes(ig_kv_memory_of(kv));
    int32_t tokens[2 * PER_BLOCK] = {0};
    ig_prefix_id parent = {1, 2}, id;
    for (int i = 0; i < 2; i++, parent = id) {
        pieces[i] = ig_kv_piece(kv, i);
        ig_prefix_tree_find(tree, parent, tokens + i * PER_BLOCK, &id);
        ig_prefix_tree_add(tree, pieces[i], parent, id, tokens + i * PER_BLOCK);
    }
}

/* Grows a sequence whose blocks all stay in RAM until that is full. */
static void fill_ram(rig *r) {
    ig_error err = {0};
    expect_ok(ig_kv_may_drop(r->kv, &err), &err);
    add_tokens(r, 0, PER_BLOCK);
    for (int l = 0; l < LAYERS; l++) {
        for (int h = 0; h < HEADS; h++) ig_kv_drop(r->kv, l, h, 3);
        expect_ok(ig_kv_compact(r->kv, l, see_move, NULL, &err), &err);
    }
    ig_status s = IG_OK;
    for (int n = 2 * PER_BLOCK; !s && n <= TOKENS; n += PER_BLOCK)
        for (int l = 0; !s && l < LAYERS; l++) s = ig_kv_extend(r->kv, l, n, &err);
    assert_int_equal(s, IG_E_LIMIT);
}

/* A cut within a shared piece copies it, block by block, through the few frames that are left. */
static void a_cut_with_little_room(void **state) {
    rig r = {.dir = temp_dir_open()};
    ig_kv_options o = {
        .ram_bytes = 1, .disk_bytes = 64 << 20, .disk_path = r.dir.path, .share = true, .n_sequences = 4};
    ig_error err = {0};
    ig_kv_memory *m;
    ig_kv *kvs[4]; /* one that computes, one that shares, one that fills RAM, one that leaves a little room */
    uint32_t pieces[2];
    (void)state;
    assert_int_equal(ig_kv_memory_open(&m, &shape, &o, &err), IG_E_LIMIT);
    o.ram_bytes = least_of(&err);
    expect_ok(ig_kv_memory_open(&m, &shape, &o, &err), &err);
    for (int i = 0; i < 4; i++) expect_ok(ig_kv_open_in(&kvs[i], m, &err), &err);
    r.kv = kvs[0];
    add_tokens(&r, 0, 2 * PER_BLOCK);
    publish(r.kv, pieces);
    ig_kv_adopt(kvs[1], pieces, 2);
    expect_ok(ig_kv_extend(kvs[3], 0, 1, &err), &err);
    r.kv = kvs[2];
    fill_ram(&r);
    ig_kv_close(kvs[3]);
    assert_int_equal(ig_kv_cut(kvs[1], PER_BLOCK + 4, &err), IG_E_LIMIT);
    assert_int_equal(ig_kv_length(kvs[1]), PER_BLOCK);
    ig_kv_close(kvs[2]);
    ig_kv_adopt(kvs[1], pieces, 2);
    expect_ok(ig_kv_cut(kvs[1], PER_BLOCK + 4, &err), &err);
    assert_int_equal(ig_kv_length(kvs[1]), PER_BLOCK + 4);
    r.kv = kvs[1];
    pick_blocks(&r, 0, 1, PER_BLOCK);
    for (int l = 0; l < LAYERS; l++) {
        expect_ok(load(&r, l, &err), &err);
        check_picks(&r, l);
        assert_int_equal(*(const uint16_t *)ig_kv_at(r.kv, l, 0, PER_BLOCK + 3).key, stamp(l, 0, PER_BLOCK + 3, 0));
    }
    ig_kv_close(kvs[0]);
    ig_kv_close(kvs[1]);
    ig_kv_memory_close(m);
    temp_dir_close(&r.dir);
}

#define WITH(test, rule) \
    { #test " (" #rule ")", test, NULL, NULL, &rule }

int main(void) {
    static ig_evict_rule counter = IG_EVICT_COUNTER, lru = IG_EVICT_LRU, fifo = IG_EVICT_FIFO;
    const struct CMUnitTest tests[] = {
        WITH(ram_stays_within_its_limit, counter),
        WITH(steps_keep_a_part, counter),
        WITH(steps_keep_a_part, lru),
        WITH(steps_keep_a_part, fifo),
        WITH(what_is_idle_leaves, counter),
        WITH(what_is_idle_leaves, lru),
        WITH(what_is_idle_leaves, fifo),
        WITH(prefetches_overlap, counter),
        WITH(prefetches_overlap, lru),
        cmocka_unit_test(pieces_are_copied),
        cmocka_unit_test(marks_begin_anew),
        cmocka_unit_test(short_layers_come_to_stay),
        cmocka_unit_test(what_stays_fills_ram),
        cmocka_unit_test(a_cut_with_little_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
