/* SPDX-License-Identifier: Apache-2.0
 *
 * Stored prefixes beside an index that is missing, broken, misleading or another's, and numbers that are lost: what the
 * files hold is found again.
 */
#define _GNU_SOURCE
#include "prefix_rig.h"

#include "kv/prefix_tool.h"

#include <errno.h>
#include <sqlite3.h>

static void break_index(prefix_rig *r, int how) {
    char path[512], from[512];
    temp_dir_path(&r->dir, "index.db", path, sizeof path);
    if (how == 0) rig_remove_index(r);
    if (how == 1) save_text(path, "this is no database, but long enough to be looked at");
    if (how == 2) save_text(path, "");
    if (how == 3 || how == 4) { /* in the middle; cut off */
        rig_bytes b = load(path);
        if (how == 3) memset(b.data + 4096, 0x5a, b.n - 4096);
        save(path, b.data, how == 3 ? b.n : b.n / 2);
        free(b.data);
    }
    if (how == 5) { /* another store's */
        prefix_rig other;
        rig_start(&other);
        rig_keep(&other, 9, 0, 3);
        rig_close_store(&other);
        assert_true(rig_find_file(&other, "index.db", "", 0, from));
        rig_bytes b = load(from);
        rig_remove_index(r);
        save(path, b.data, b.n);
        free(b.data);
        rig_end(&other);
    }
    if (how == 6) { /* another version */
        rig_bytes b = load(path);
        b.data[63]++; /* user_version */
        save(path, b.data, b.n);
        free(b.data);
    }
    if (how == 7) { /* a link to somewhere else */
        temp_dir_path(&r->dir, "elsewhere", from, sizeof from);
        rig_remove_index(r);
        assert_int_equal(symlink(from, path), 0);
    }
    if (how == 8) { /* a log that belongs to nothing */
        temp_dir_path(&r->dir, "index.db-wal", path, sizeof path);
        save_text(path, "\x37\x7f\x06\x82 and so on, and so on, and so on");
    }
}

static void a_broken_index_is_made_anew(void **state) {
    (void)state;
    for (int how = 0; how < 9; how++) {
        for (int read_only = 0; read_only < 2; read_only++) {
            prefix_rig r;
            rig_start(&r);
            rig_keep(&r, 1, 0, 2);
            rig_keep(&r, 2, 0, 0);
            RIG_OK(&r, ig_prefix_store_note_put(r.store, "saved", "text", 4, &r.err));
            rig_close_store(&r);
            break_index(&r, how);
            r.o.read_only = read_only;
            rig_open(&r);
            for (int i = 0; i < 3; i++) RIG_OK(&r, rig_read(&r, 1, i));
            RIG_OK(&r, rig_read(&r, 2, 0));
            if (!read_only) rig_keep(&r, 1, 3, 3);
            assert_int_equal(stats_of(&r).n_pieces, read_only ? 4 : 5);
            assert_int_equal(stats_of(&r).bytes, (read_only ? 4 : 5) * RIG_RECORD + 4100);
            rig_reopen(&r);
            assert_int_equal(stats_of(&r).n_pieces, read_only ? 4 : 5);
            assert_int_equal(rig_count_files(&r, "elsewhere", ""), 0);
            rig_end(&r);
        }
    }
}

/* Row number 1 of the pieces becomes another, which an index is not told of. */
static void mislead_index(const prefix_rig *r) {
    static const char columns[] = "SELECT rowid, rootpage, sql FROM sqlite_schema WHERE name = 'pieces_by_id'";
    char path[512], restore[512];
    sqlite3 *db;
    sqlite3_stmt *s;
    temp_dir_path(&r->dir, "index.db", path, sizeof path);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, columns, -1, &s, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(s), SQLITE_ROW);
    snprintf(restore, sizeof restore,
             "PRAGMA writable_schema = ON; INSERT INTO sqlite_schema(rowid, type, name, tbl_name, rootpage, sql)"
             " VALUES(%d, 'index', 'pieces_by_id', 'pieces', %d, '%s')",
             sqlite3_column_int(s, 0), sqlite3_column_int(s, 1), (const char *)sqlite3_column_text(s, 2));
    sqlite3_finalize(s);
    const char *const steps[] = {"PRAGMA writable_schema = ON; DELETE FROM sqlite_schema WHERE name = 'pieces_by_id'",
                                 "UPDATE pieces SET piece = piece + 1000 WHERE piece = (SELECT min(piece) FROM pieces)",
                                 restore};
    for (size_t i = 0; i < IG_COUNT(steps); i++) { /* each with the schema as it is then */
        sqlite3_close(db);
        assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
        if (sqlite3_exec(db, steps[i], NULL, NULL, NULL) != SQLITE_OK) fail_msg("%s", sqlite3_errmsg(db));
    }
    sqlite3_close(db);
}

/* Damage that only a change of the row shows: a start that has to remove some mends it, as does the next one after a
 * store that found it later. */
static void an_index_that_misleads(void **state) {
    (void)state;
    for (int later = 0; later < 2; later++) {
        prefix_rig r;
        ig_stored_freed freed;
        rig_start(&r);
        rig_keep(&r, 1, 0, 2);
        rig_close_store(&r);
        mislead_index(&r);
        if (!later) r.o.max_bytes = 2 * RIG_RECORD;
        rig_open(&r);
        if (later) assert_int_equal(ig_prefix_collect(&freed, r.store, 1, &r.err), IG_E_IO);
        if (later) assert_non_null(strstr(r.err.text, "makes it anew"));
        rig_reopen(&r);
        assert_int_equal(stats_of(&r).n_pieces, later ? 1 : 2); /* those that left before stay away */
        RIG_OK(&r, rig_read(&r, 1, 0));
        if (later) RIG_OK(&r, ig_prefix_collect(&freed, r.store, 1, &r.err));
        rig_end(&r);
    }
}

static void what_holes_left_stays_away(void **state) {
    (void)state;
    prefix_rig r;
    rig_init(&r);
    r.o.max_bytes = 4 * RIG_RECORD;
    rig_open(&r);
    rig_keep(&r, 1, 0, 2);
    rig_keep(&r, 2, 0, 1);
    assert_int_equal(stats_of(&r).n_evicted, 1);
    rig_close_store(&r);
    rig_remove_index(&r);
    rig_open(&r);
    assert_int_equal(stats_of(&r).n_pieces, 4);
    assert_int_equal(stats_of(&r).bytes, 4 * RIG_RECORD);
    assert_int_equal(rig_read(&r, 1, 2), IG_E_NOT_FOUND);
    for (int i = 0; i < 2; i++) RIG_OK(&r, rig_read(&r, 1, i));
    rig_end(&r);
}

static void a_lost_number_is_found_in_the_files(void **state) {
    (void)state;
    prefix_rig r;
    char path[512];
    rig_start(&r);
    rig_keep(&r, 1, 0, 2);
    for (int how = 0; how < 2; how++) {
        rig_close_store(&r);
        assert_true(rig_find_file(&r, "store.id", "", 0, path));
        assert_int_equal(how ? truncate(path, 100) : unlink(path), 0);
        rig_open(&r);
        RIG_OK(&r, rig_read(&r, 1, 2));
        rig_keep(&r, 2 + (uint64_t)how, 0, 0);
    }
    rig_end(&r);
}

static void a_damaged_number_of_an_empty_store(void **state) {
    (void)state;
    prefix_rig r;
    char path[512];
    rig_start(&r);
    rig_close_store(&r);
    assert_true(rig_find_file(&r, "store.id", "", 0, path));
    assert_int_equal(truncate(path, 100), 0);
    rig_open(&r);
    rig_keep(&r, 1, 0, 2);
    rig_reopen(&r);
    RIG_OK(&r, rig_read(&r, 1, 2));
    rig_end(&r);
}

/* With another number all that is there would be another store's. */
static void no_new_number_while_files_cannot_be_read(void **state) {
    (void)state;
    prefix_rig r;
    char path[512];
    trouble t = {.call = IG_PREFIX_READ, .result = -EIO, .n_left = 1000};
    rig_start(&r);
    rig_keep(&r, 1, 0, 2);
    rig_close_store(&r);
    assert_true(rig_find_file(&r, "store.id", "", 0, path));
    assert_int_equal(unlink(path), 0);
    r.o.fault = make_trouble;
    r.o.fault_user = &t;
    assert_int_equal(ig_prefix_store_open(&r.store, &r.o, &r.err), IG_E_IO);
    t.n_left = 0;
    rig_open(&r);
    for (int i = 0; i < 3; i++) RIG_OK(&r, rig_read(&r, 1, i));
    rig_end(&r);
}

/* Without pieces, in a note. */
static void a_lost_number_is_found_in_a_note(void **state) {
    (void)state;
    prefix_rig r;
    char path[512];
    void *bytes;
    size_t n;
    rig_start(&r);
    RIG_OK(&r, ig_prefix_store_note_put(r.store, "a", "text", 4, &r.err));
    rig_close_store(&r);
    assert_true(rig_find_file(&r, "store.id", "", 0, path));
    assert_int_equal(truncate(path, 0), 0);
    for (int round = 0; round < 2; round++) {
        r.o.read_only = r.o.must_exist = round == 0;
        rig_open(&r);
        RIG_OK(&r, ig_prefix_store_note_get(r.store, "a", &bytes, &n, &r.err));
        free(bytes);
        rig_close_store(&r);
    }
    rig_end(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_broken_index_is_made_anew),
        cmocka_unit_test(an_index_that_misleads),
        cmocka_unit_test(what_holes_left_stays_away),
        cmocka_unit_test(a_lost_number_is_found_in_the_files),
        cmocka_unit_test(a_damaged_number_of_an_empty_store),
        cmocka_unit_test(no_new_number_while_files_cannot_be_read),
        cmocka_unit_test(a_lost_number_is_found_in_a_note),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
