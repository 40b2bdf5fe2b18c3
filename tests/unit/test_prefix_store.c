/* SPDX-License-Identifier: Apache-2.0
 *
 * Stored prefixes when all goes well: what was put and committed comes back bit by bit, in this process and a later
 * one; the order in which pieces leave; the bound of the size.
 */
#define _GNU_SOURCE
#include "prefix_rig.h"

static void pieces_come_back(void **state) {
    (void)state;
    prefix_rig r;
    rig_start(&r);
    assert_null(ig_prefix_store_why_read_only(r.store));
    for (int i = 0; i < 5; i++) RIG_OK(&r, rig_put(&r, 1, i));
    assert_false(rig_has(&r, 1, 0));
    assert_int_equal(rig_read(&r, 1, 0), IG_E_NOT_FOUND);
    rig_commit(&r);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 5; i++) assert_true(rig_has(&r, 1, i));
        for (int i = 4; i >= 0; i--) RIG_OK(&r, rig_read(&r, 1, i));
        assert_false(rig_has(&r, 1, 5));
        assert_int_equal(rig_read(&r, 1, 5), IG_E_NOT_FOUND);
        assert_false(rig_has(&r, 2, 0));
        assert_int_equal(stats_of(&r).n_pieces, 5);
        assert_int_equal(stats_of(&r).bytes, 5 * RIG_RECORD);
        assert_int_equal(stats_of(&r).n_read, 5);
        assert_int_equal(stats_of(&r).n_written, round ? 0 : 5);
        rig_reopen(&r);
    }
    rig_end(&r);
}

static void a_piece_is_written_once(void **state) {
    (void)state;
    prefix_rig r;
    rig_start(&r);
    RIG_OK(&r, rig_put(&r, 1, 0));
    RIG_OK(&r, rig_put(&r, 1, 0));
    rig_commit(&r);
    rig_keep(&r, 1, 0, 0);
    assert_int_equal(stats_of(&r).n_pieces, 1);
    assert_int_equal(stats_of(&r).bytes, RIG_RECORD);
    assert_int_equal(rig_count_files(&r, "kv-", ".igkv"), 1);
    rig_commit(&r); /* of nothing */
    assert_int_equal(rig_count_files(&r, "kv-", ""), 1);
    rig_end(&r);
}

/* Pieces whose parent is neither kept nor pending would be found by nobody. */
static void what_leads_to_a_piece(void **state) {
    (void)state;
    prefix_rig r;
    rig_piece p[3];
    rig_start(&r);
    for (int i = 0; i < 3; i++) rig_make(&p[i], &r.o, 1, i);
    assert_true(ig_prefix_store_leads_to(r.store, &p[0].piece));
    assert_false(ig_prefix_store_leads_to(r.store, &p[1].piece));
    RIG_OK(&r, rig_put(&r, 1, 0));
    assert_true(ig_prefix_store_leads_to(r.store, &p[1].piece));
    assert_false(ig_prefix_store_leads_to(r.store, &p[2].piece));
    rig_reopen(&r);
    assert_false(ig_prefix_store_leads_to(r.store, &p[1].piece));
    rig_keep(&r, 1, 0, 0);
    assert_true(ig_prefix_store_leads_to(r.store, &p[1].piece));
    rig_end(&r);
}

static void what_is_not_committed_is_gone(void **state) {
    (void)state;
    prefix_rig r;
    rig_start(&r);
    rig_keep(&r, 1, 0, 1);
    RIG_OK(&r, rig_put(&r, 1, 2));
    assert_int_equal(rig_count_files(&r, "kv-", ".tmp"), 1);
    rig_reopen(&r);
    assert_int_equal(rig_count_files(&r, "kv-", ".tmp"), 0);
    assert_int_equal(rig_read(&r, 1, 2), IG_E_NOT_FOUND);
    RIG_OK(&r, rig_read(&r, 1, 1));
    rig_keep(&r, 1, 2, 2);
    RIG_OK(&r, rig_read(&r, 1, 2));
    rig_end(&r);
}

static void modes_are_private(void **state) {
    (void)state;
    prefix_rig r;
    char path[512];
    struct stat st;
    rig_init(&r);
    prefix_rig inner = r;
    strncat(inner.dir.path, "/store", 8);
    r.o.directory = inner.dir.path;
    rig_open(&r);
    rig_keep(&r, 1, 0, 0);
    assert_int_equal(stat(inner.dir.path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_true(rig_count_files(&inner, "", "") >= 5);
    for (int i = 0; rig_find_file(&inner, "", "", i, path); i++) {
        assert_int_equal(stat(path, &st), 0);
        if (S_ISREG(st.st_mode) && (st.st_mode & 0777) != 0600) fail_msg("%s: mode %o", path, st.st_mode & 0777);
    }
    rig_close_store(&r);
    temp_dir_close(&inner.dir);
    temp_dir_close(&r.dir);
}

static void options_are_checked(void **state) {
    (void)state;
    prefix_rig r;
    rig_init(&r);
    const ig_prefix_store_options good = r.o;
    for (int i = 0; i < 8; i++) {
        ig_prefix_store_options o = good;
        if (i == 0) o.directory = NULL;
        if (i == 1) o.directory = "";
        if (i == 2) o.piece_tokens = 8;
        if (i == 3) o.piece_tokens = 1024;
        if (i == 4) o.piece_tokens = 48;
        if (i == 5) o.piece_bytes = 0;
        if (i == 6) o.piece_bytes = (size_t)IG_PREFIX_PAYLOAD_MAX + 1;
        if (i == 7) o.model = NULL;
        assert_int_equal(ig_prefix_store_open(&r.store, &o, &r.err), IG_E_ARG);
        assert_null(r.store);
    }
    r.o.directory = "/nowhere/at/all";
    assert_int_equal(ig_prefix_store_open(&r.store, &r.o, &r.err), IG_E_IO);
    r.o.must_exist = true;
    assert_int_equal(ig_prefix_store_open(&r.store, &r.o, &r.err), IG_E_NOT_FOUND);
    r.o = good;
    rig_open(&r);
    rig_piece p;
    rig_make(&p, &r.o, 1, 0);
    struct iovec area = {p.bytes, RIG_BYTES - 1}, wild[2] = {{p.bytes, SIZE_MAX}, {p.bytes, SIZE_MAX}};
    assert_int_equal(ig_prefix_store_put(r.store, &p.piece, &area, 1, &r.err), IG_E_ARG);
    assert_int_equal(ig_prefix_store_read(r.store, &p.piece, &area, 1, &r.err), IG_E_ARG);
    assert_int_equal(ig_prefix_store_put(r.store, &p.piece, wild, 2, &r.err), IG_E_ARG);
    area.iov_len++;
    p.piece.number = -1;
    assert_int_equal(ig_prefix_store_put(r.store, &p.piece, &area, 1, &r.err), IG_E_ARG);
    p.piece.number = IG_CTX_MAX / RIG_TOKENS;
    assert_int_equal(ig_prefix_store_put(r.store, &p.piece, &area, 1, &r.err), IG_E_ARG);
    rig_end(&r);
}

/* What is like the piece in all but one thing is not it. */
static void other_pieces_are_not_served(void **state) {
    (void)state;
    for (int i = 0; i < 5; i++) {
        prefix_rig r;
        rig_piece p;
        uint8_t bytes[RIG_BYTES];
        struct iovec area = {bytes, RIG_BYTES};
        rig_start(&r);
        rig_keep(&r, 1, 0, 2);
        rig_make(&p, &r.o, 1, 1);
        if (i == 0) p.piece.id.low ^= 1;
        if (i == 1) p.piece.parent.high ^= 1;
        if (i == 2) p.piece.number++;
        if (i == 3) p.tokens[RIG_TOKENS - 1]++;
        if (i == 4) {
            r.o.root.low++;
            rig_reopen(&r);
        }
        assert_int_equal(ig_prefix_store_has(r.store, &p.piece), i == 3);
        ig_status status = ig_prefix_store_read(r.store, &p.piece, &area, 1, &r.err);
        assert_int_equal(status, i == 3 ? IG_E_FORMAT : IG_E_NOT_FOUND);
        assert_false(ig_prefix_store_has(r.store, &p.piece)); /* other tokens: forgotten */
        if (i == 4) {
            rig_keep(&r, 1, 1, 1); /* both roots beside each other */
            RIG_OK(&r, rig_read(&r, 1, 1));
            r.o.root = rig_root;
            rig_reopen(&r);
        }
        if (i != 3) RIG_OK(&r, rig_read(&r, 1, 1));
        RIG_OK(&r, rig_read(&r, 1, 0));
        RIG_OK(&r, rig_read(&r, 1, 2));
        if (i == 3) {
            rig_keep(&r, 1, 1, 1);
            RIG_OK(&r, rig_read(&r, 1, 1));
        }
        rig_end(&r);
    }
}

/* ---- what leaves ----------------------------------------------------------- */

/* With holes and without, where whole files leave. */
static const bool holes = false, no_holes = true;

static void the_size_is_bounded(void **state) {
    prefix_rig r;
    rig_init(&r);
    r.o.max_bytes = 10 * RIG_RECORD + 5;
    r.o.no_punch = *(const bool *)*state;
    rig_open(&r);
    for (uint64_t chain = 0; chain < 30; chain++) {
        for (int i = 0; i < 3; i++) {
            RIG_OK(&r, rig_put(&r, chain, i));
            assert_true(stats_of(&r).bytes <= r.o.max_bytes);
        }
        rig_commit(&r);
        assert_true(stats_of(&r).bytes <= r.o.max_bytes);
        uint64_t taken = 0;
        char path[512];
        struct stat st;
        for (int i = 0; rig_find_file(&r, "kv-", "", i, path); i++)
            if (stat(path, &st) == 0) taken += (uint64_t)st.st_blocks * 512;
        if (taken > r.o.max_bytes + 4096 * 12) fail_msg("%llu bytes on the disk", (unsigned long long)taken);
        for (int i = 0; i < 3; i++) RIG_OK(&r, rig_read(&r, chain, i));
        if (chain % 7 == 6) rig_reopen(&r);
    }
    assert_true(stats_of(&r).n_pieces >= 9);
    assert_false(rig_has(&r, 3, 0));
    rig_end(&r);
}

static void what_was_used_stays(void **state) {
    prefix_rig r;
    rig_init(&r);
    r.o.max_bytes = 6 * RIG_RECORD;
    r.o.no_punch = *(const bool *)*state;
    rig_open(&r);
    for (uint64_t chain = 0; chain < 3; chain++) rig_keep(&r, chain, 0, 1);
    for (int i = 0; i < 2; i++) RIG_OK(&r, rig_read(&r, 0, i));
    rig_reopen(&r); /* the uses are on record */
    rig_keep(&r, 3, 0, 1);
    for (int i = 0; i < 2; i++) {
        assert_true(rig_has(&r, 0, i));
        assert_false(rig_has(&r, 1, i));
        assert_true(rig_has(&r, 2, i));
        assert_true(rig_has(&r, 3, i));
    }
    assert_int_equal(stats_of(&r).n_evicted, 2);
    rig_end(&r);
}

/* Pieces that were kept while the clock was ahead are not younger than what comes after them. */
static void a_clock_that_was_ahead(void **state) {
    const struct timespec ahead[2] = {{.tv_sec = 10000000000}, {.tv_sec = 10000000000}};
    char path[512];
    prefix_rig r;
    rig_init(&r);
    r.o.max_bytes = 4 * RIG_RECORD;
    r.o.no_punch = *(const bool *)*state;
    rig_open(&r);
    for (uint64_t chain = 0; chain < 4; chain++) rig_keep(&r, chain, 0, 0);
    rig_close_store(&r);
    for (int i = 0; rig_find_file(&r, "kv-", "", i, path); i++)
        assert_int_equal(utimensat(AT_FDCWD, path, ahead, 0), 0);
    rig_remove_index(&r);
    for (uint64_t chain = 4; chain < 8; chain += 2) {
        rig_open(&r);
        for (uint64_t i = 0; i < 2; i++) rig_keep(&r, chain + i, 0, 0);
        rig_close_store(&r);
    }
    rig_open(&r);
    for (uint64_t chain = 0; chain < 8; chain++) assert_int_equal(rig_has(&r, chain, 0), chain >= 4);
    rig_end(&r);
}

/* A chain's head is as young as its tail, also if it was not read with it. */
static void tails_leave_before_heads(void **state) {
    (void)state;
    prefix_rig r;
    rig_init(&r);
    r.o.max_bytes = 6 * RIG_RECORD;
    rig_open(&r);
    for (int i = 0; i < 4; i++) rig_keep(&r, 0, i, i);
    rig_keep(&r, 1, 0, 1);
    for (int i = 0; i < 4; i++) {
        RIG_OK(&r, rig_read(&r, 0, i));
        rig_commit(&r); /* each at a later time than its head */
    }
    rig_keep(&r, 2, 0, 0);
    assert_true(rig_has(&r, 1, 0));
    assert_false(rig_has(&r, 1, 1));
    rig_keep(&r, 3, 0, 1);
    assert_false(rig_has(&r, 1, 0));
    for (int i = 0; i < 4; i++) assert_int_equal(rig_has(&r, 0, i), i < 3);
    rig_keep(&r, 4, 0, 2);
    for (int i = 0; i < 4; i++) assert_false(rig_has(&r, 0, i) && i && !rig_has(&r, 0, i - 1));
    rig_end(&r);
}

static void a_commit_keeps_its_ancestry(void **state) {
    prefix_rig r;
    rig_init(&r);
    r.o.max_bytes = 5 * RIG_RECORD;
    r.o.no_punch = *(const bool *)*state;
    rig_open(&r);
    rig_keep(&r, 0, 0, 1); /* the oldest, but what follows builds on it */
    rig_keep(&r, 1, 0, 1);
    for (int i = 2; i < 5; i++) RIG_OK(&r, rig_put(&r, 0, i));
    assert_int_equal(rig_put(&r, 0, 5), IG_E_LIMIT);
    assert_non_null(strstr(r.err.text, "does not fit"));
    rig_commit(&r);
    for (int i = 0; i < 5; i++) RIG_OK(&r, rig_read(&r, 0, i));
    assert_false(rig_has(&r, 1, 0));
    assert_int_equal(stats_of(&r).bytes, 5 * RIG_RECORD);
    rig_keep(&r, 2, 0, 0); /* afterwards they may leave */
    assert_true(rig_has(&r, 0, 0));
    assert_false(rig_has(&r, 0, 4));
    rig_end(&r);
}

/* What a put that did not fit would have built on may leave again, without a commit between. */
static void what_does_not_fit_keeps_nothing(void **state) {
    prefix_rig r;
    rig_init(&r);
    r.o.max_bytes = 4 * RIG_RECORD;
    r.o.no_punch = *(const bool *)*state;
    rig_open(&r);
    rig_keep(&r, 1, 0, 3);
    assert_int_equal(rig_put(&r, 1, 4), IG_E_LIMIT);
    rig_keep(&r, 2, 0, 0);
    assert_int_equal(rig_count_files(&r, "kv-", ".tmp"), 0);
    assert_int_equal(rig_has(&r, 1, 0), !r.o.no_punch);
    assert_false(rig_has(&r, 1, 3));
    rig_end(&r);
}

static void a_piece_larger_than_the_store(void **state) {
    (void)state;
    prefix_rig r;
    rig_init(&r);
    r.o.max_bytes = RIG_RECORD - 1;
    rig_open(&r);
    assert_int_equal(rig_put(&r, 0, 0), IG_E_LIMIT);
    rig_commit(&r);
    assert_int_equal(rig_count_files(&r, "kv-", ""), 0);
    rig_end(&r);
}

/* For what else wants the disk that it lies on. */
static void room_for_others(void **state) {
    (void)state;
    prefix_rig r;
    struct stat st;
    rig_start(&r);
    assert_int_equal(stat(r.dir.path, &st), 0);
    RIG_OK(&r, ig_prefix_store_check_room(r.store, st.st_dev, 4096, &r.err));
    RIG_OK(&r, ig_prefix_store_check_room(r.store, st.st_dev + 1, UINT64_MAX / 2, &r.err));
    assert_int_equal(ig_prefix_store_check_room(r.store, st.st_dev, UINT64_MAX / 2, &r.err), IG_E_IO);
    assert_non_null(strstr(r.err.text, "may be needed by the KV spill file"));
    rig_end(&r);
}

/* A smaller bound than before takes effect at once. */
static void a_smaller_bound(void **state) {
    (void)state;
    prefix_rig r;
    rig_start(&r);
    for (uint64_t chain = 0; chain < 8; chain++) rig_keep(&r, chain, 0, 0);
    r.o.max_bytes = 3 * RIG_RECORD;
    rig_reopen(&r);
    assert_int_equal(stats_of(&r).n_pieces, 3);
    rig_keep(&r, 8, 0, 0);
    assert_int_equal(stats_of(&r).n_pieces, 3);
    RIG_OK(&r, rig_read(&r, 8, 0));
    RIG_OK(&r, rig_read(&r, 7, 0));
    assert_int_equal(rig_count_files(&r, "kv-", ""), 3);
    rig_end(&r);
}

#define WITH(test, value) \
    { .name = #test " (" #value ")", .test_func = test, .initial_state = (void *)(uintptr_t)&value }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_come_back),
        cmocka_unit_test(a_piece_is_written_once),
        cmocka_unit_test(what_leads_to_a_piece),
        cmocka_unit_test(what_is_not_committed_is_gone),
        cmocka_unit_test(modes_are_private),
        cmocka_unit_test(options_are_checked),
        cmocka_unit_test(room_for_others),
        cmocka_unit_test(other_pieces_are_not_served),
        WITH(the_size_is_bounded, holes),
        WITH(the_size_is_bounded, no_holes),
        WITH(what_was_used_stays, holes),
        WITH(what_was_used_stays, no_holes),
        cmocka_unit_test(tails_leave_before_heads),
        WITH(a_commit_keeps_its_ancestry, holes),
        WITH(a_commit_keeps_its_ancestry, no_holes),
        WITH(a_clock_that_was_ahead, holes),
        WITH(a_clock_that_was_ahead, no_holes),
        WITH(what_does_not_fit_keeps_nothing, holes),
        WITH(what_does_not_fit_keeps_nothing, no_holes),
        cmocka_unit_test(a_piece_larger_than_the_store),
        cmocka_unit_test(a_smaller_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
