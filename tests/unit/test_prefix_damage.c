/* SPDX-License-Identifier: Apache-2.0
 *
 * Stored prefixes when things go wrong: damaged, shortened and foreign files, disks that are full or fail. A payload is
 * right or there is none, and what is well is still served.
 */
#define _GNU_SOURCE
#include "prefix_rig.h"

#include "kv/prefix_store_parts.h"
#include "kv/prefix_tool.h"

#include <errno.h>
#include <sys/wait.h>

/* ---- damaged files ---------------------------------------------------------- */

/* As the headers are checked, without files: each bit counts. */
static void every_bit_of_a_header(void **state) {
    (void)state;
    uint8_t page[IG_PREFIX_PAGE];
    static ig_prefix_record r, got;
    r = (ig_prefix_record){.store = {1, 2}, .root = {3, 4}, .payload_bytes = 5, .id = {6, 7}, .number = 8};
    r.n_tokens = 512;
    r.file = 9;
    r.offset = 4096;
    for (int i = 0; i < 512; i++) r.tokens[i] = -i;
    snprintf(r.model, sizeof r.model, "a model");
    snprintf(r.kind, sizeof r.kind, "f16");
    for (int is_note = 0; is_note < 2; is_note++) {
        r.is_note = is_note;
        snprintf(r.name, sizeof r.name, "%s", is_note ? "name" : "");
        ig_prefix_record_write(page, &r);
        assert_int_equal(ig_prefix_record_read(&got, page), IG_PREFIX_VALID);
        if (!is_note) assert_memory_equal(&got, &r, sizeof r);
        for (size_t bit = 0; bit < sizeof page * 8; bit++) {
            page[bit / 8] ^= (uint8_t)(1 << bit % 8);
            assert_int_equal(ig_prefix_record_read(&got, page), IG_PREFIX_DAMAGED);
            page[bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
    }
    memset(page, 0, sizeof page);
    assert_int_equal(ig_prefix_record_read(&got, page), IG_PREFIX_HOLE);
}

/* A flipped bit of what the file holds is seen; in what fills it up it does not matter. Mostly by readers, which is
 * quick; who writes also takes what is damaged away. */
static void every_byte_flipped(void **state) {
    (void)state;
    prefix_rig r;
    char path[512];
    rig_start(&r);
    rig_keep(&r, 1, 0, 1);
    assert_true(rig_find_file(&r, "kv-", ".igkv", 0, path));
    rig_close_store(&r);
    rig_bytes good = load(path);
    assert_int_equal(good.n, 2 * RIG_RECORD);
    for (size_t at = 0; at < RIG_RECORD; at += at < 640 ? 1 : 9) {
        flip(path, at);
        r.o.read_only = at % 160 != 0;
        if (at % 320 == 0) rig_remove_index(&r);
        rig_open(&r);
        ig_status status = rig_read(&r, 1, 0); /* checks the bytes itself */
        bool is_fill = at >= 4096 + RIG_BYTES;
        if (is_fill)
            assert_int_equal(status, IG_OK);
        else if (status != IG_E_FORMAT && status != IG_E_NOT_FOUND)
            fail_msg("byte %zu: status %d", at, status);
        assert_int_equal(rig_has(&r, 1, 0), is_fill);
        RIG_OK(&r, rig_read(&r, 1, 1)); /* the neighbour is well */
        rig_close_store(&r);
        flip(path, at);
        if (r.o.read_only) continue;
        save(path, good.data, good.n);
        rig_remove_index(&r);
        rig_open(&r);
        RIG_OK(&r, rig_read(&r, 1, 0));
        rig_close_store(&r);
    }
    free(good.data);
    rig_end(&r);
}

static void every_length(void **state) {
    (void)state;
    prefix_rig r;
    char path[512];
    rig_start(&r);
    rig_keep(&r, 1, 0, 1);
    assert_true(rig_find_file(&r, "kv-", ".igkv", 0, path));
    rig_close_store(&r);
    rig_bytes good = load(path);
    for (int with_index = 0; with_index < 2; with_index++) {
        for (size_t n = 0; n < good.n + 1024; n += 512) {
            if (n > good.n) good.data = realloc(good.data, n);
            save(path, good.data, n);
            if (!with_index) rig_remove_index(&r);
            r.o.read_only = n % 1024;
            rig_open(&r);
            for (int i = 0; i < 2; i++) {
                size_t wanted = (size_t)(i + 1) * RIG_RECORD;
                ig_status status = rig_read(&r, 1, i);
                bool is_there = n >= wanted;
                /* A reader that trusts the index reads a payload that is whole but for what fills its last page. */
                if (with_index && r.o.read_only && n >= wanted - 4096 + RIG_BYTES % 4096) is_there = status == IG_OK;
                assert_int_equal(status == IG_OK, is_there);
                assert_int_equal(rig_has(&r, 1, i), is_there);
            }
            rig_close_store(&r);
            if (!r.o.read_only) assert_int_equal(access(path, F_OK) == 0, n >= RIG_RECORD);
        }
    }
    free(good.data);
    rig_end(&r);
}

/* The same under an open store: the index knows nothing of it. */
static void shortened_while_open(void **state) {
    (void)state;
    prefix_rig r;
    char path[512];
    rig_start(&r);
    rig_keep(&r, 1, 0, 1);
    assert_true(rig_find_file(&r, "kv-", ".igkv", 0, path));
    assert_int_equal(truncate(path, 2 * RIG_RECORD - 5000), 0);
    assert_int_equal(rig_read(&r, 1, 1), IG_E_FORMAT);
    assert_non_null(strstr(r.err.text, "too short"));
    assert_int_equal(rig_read(&r, 1, 1), IG_E_NOT_FOUND);
    RIG_OK(&r, rig_read(&r, 1, 0));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rig_read(&r, 1, 0), IG_E_NOT_FOUND);
    assert_int_equal(stats_of(&r).n_damaged, 1);
    rig_keep(&r, 1, 0, 1);
    for (int i = 0; i < 2; i++) RIG_OK(&r, rig_read(&r, 1, i));
    rig_end(&r);
}

/* A damaged piece can be put again, also by who met the damage. */
static void a_damaged_piece_is_replaced(void **state) {
    (void)state;
    prefix_rig r;
    char path[512];
    for (int no_punch = 0; no_punch < 2; no_punch++) {
        rig_init(&r);
        r.o.no_punch = no_punch;
        rig_open(&r);
        rig_keep(&r, 1, 0, 1);
        assert_true(rig_find_file(&r, "kv-", ".igkv", 0, path));
        rig_bytes b = load(path);
        b.data[4096 + 77] ^= 1;
        save(path, b.data, b.n);
        free(b.data);
        assert_int_equal(rig_read(&r, 1, 0), IG_E_FORMAT);
        assert_non_null(strstr(r.err.text, "checksum"));
        rig_keep(&r, 1, 0, 0);
        for (int i = 0; i < 2; i++) RIG_OK(&r, rig_read(&r, 1, i));
        rig_close_store(&r);
        rig_remove_index(&r); /* the old copy does not come back */
        rig_open(&r);
        for (int i = 0; i < 2; i++) RIG_OK(&r, rig_read(&r, 1, i));
        assert_int_equal(stats_of(&r).n_pieces, 2);
        rig_end(&r);
    }
}

/* Those behind a damaged piece are looked at, up to one that is well, and all that are damaged can be kept again. */
static void a_damaged_region_is_replaced(void **state) {
    (void)state;
    prefix_rig r;
    char path[512];
    rig_start(&r);
    rig_keep(&r, 1, 0, 7);
    assert_true(rig_find_file(&r, "kv-", ".igkv", 0, path));
    rig_close_store(&r);
    for (int i = 2; i <= 6; i++)
        if (i != 5) flip(path, (size_t)i * RIG_RECORD + (i == 3 ? 8 : 4096)); /* in one case the header */
    rig_open(&r);
    for (int i = 0; i < 2; i++) RIG_OK(&r, rig_read(&r, 1, i));
    assert_int_equal(rig_read(&r, 1, 2), IG_E_FORMAT);
    assert_int_equal(stats_of(&r).n_damaged, 3);
    for (int i = 2; i <= 7; i++) assert_int_equal(rig_has(&r, 1, i), i >= 5);
    rig_keep(&r, 1, 2, 4);
    for (int i = 0; i <= 5; i++) RIG_OK(&r, rig_read(&r, 1, i));
    assert_int_equal(rig_read(&r, 1, 6), IG_E_FORMAT);
    assert_int_equal(stats_of(&r).n_damaged, 4);
    RIG_OK(&r, rig_read(&r, 1, 7));
    rig_end(&r);
}

/* What has such a name but is no file of pieces is not opened, not followed, and does not hang. */
static void other_things_in_the_directory(void **state) {
    (void)state;
    prefix_rig r;
    char path[512], target[512];
    rig_start(&r);
    rig_keep(&r, 1, 0, 0);
    rig_close_store(&r);
    assert_true(rig_find_file(&r, "kv-", ".igkv", 0, target));
    temp_dir_path(&r.dir, "kv-0000000000000001.igkv", path, sizeof path);
    assert_int_equal(mkfifo(path, 0600), 0);
    temp_dir_path(&r.dir, "kv-0000000000000002.igkv", path, sizeof path);
    assert_int_equal(symlink(target, path), 0);
    temp_dir_path(&r.dir, "kv-0000000000000003.igkv", path, sizeof path);
    assert_int_equal(symlink("/dev/zero", path), 0);
    temp_dir_path(&r.dir, "note-00000000000000000000000000000001.igkv", path, sizeof path);
    assert_int_equal(mkfifo(path, 0600), 0);
    temp_dir_write(&r.dir, "kv-0000000000000004.igkv", "", 0);
    temp_dir_write(&r.dir, "kv-ffffffffffffffff.igkv", "number", 6);
    temp_dir_write(&r.dir, "kv-0000000000000005.igkv.bak", "mine", 4);
    rig_bytes b = load(target); /* a copy under another name is not that file */
    temp_dir_write(&r.dir, "kv-0000000000000006.igkv", b.data, b.n);
    free(b.data);
    temp_dir_path(&r.dir, "kv-0000000000000007.igkv", path, sizeof path);
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    assert_int_equal(ftruncate(fd, 1ll << 40), 0); /* nothing but a hole */
    close(fd);
    for (int with_index = 0; with_index < 2; with_index++) {
        if (!with_index) rig_remove_index(&r);
        rig_open(&r);
        RIG_OK(&r, rig_read(&r, 1, 0));
        assert_int_equal(stats_of(&r).n_pieces, 1);
        rig_close_store(&r);
    }
    temp_dir_path(&r.dir, "kv-0000000000000005.igkv.bak", path, sizeof path);
    assert_int_equal(access(path, F_OK), 0);
    temp_dir_path(&r.dir, "kv-0000000000000004.igkv", path, sizeof path);
    assert_int_equal(access(path, F_OK), -1); /* torn */
    rig_end(&r);
}

/* Files of another store that somebody put there: never served, and the first to leave. */
static void files_of_another_store(void **state) {
    (void)state;
    prefix_rig r, other;
    char from[512], path[512];
    rig_start(&r);
    rig_start(&other);
    rig_keep(&r, 1, 0, 0);
    rig_keep(&other, 2, 0, 1);
    rig_close_store(&r);
    assert_true(rig_find_file(&other, "kv-", ".igkv", 0, from));
    temp_dir_path(&r.dir, strrchr(from, '/') + 1, path, sizeof path);
    rig_bytes b = load(from);
    save(path, b.data, b.n);
    free(b.data);
    r.o.max_bytes = 3 * RIG_RECORD;
    rig_open(&r);
    assert_int_equal(rig_read(&r, 2, 0), IG_E_NOT_FOUND);
    assert_int_equal(stats_of(&r).bytes, 3 * RIG_RECORD);
    rig_keep(&r, 3, 0, 0);
    assert_int_equal(access(path, F_OK), -1);
    RIG_OK(&r, rig_read(&r, 1, 0));
    RIG_OK(&r, rig_read(&r, 3, 0));
    rig_end(&other);
    rig_end(&r);
}

static void a_directory_that_cannot_be_written(void **state) {
    (void)state;
    prefix_rig r;
    int status;
    rig_start(&r);
    rig_keep(&r, 1, 0, 2);
    rig_close_store(&r);
    for (int with_index = 1; with_index >= 0; with_index--) {
        if (!with_index) rig_remove_index(&r);
        assert_int_equal(chmod(r.dir.path, 0500), 0);
        pid_t child = fork();
        if (child == 0) { /* root may write everywhere */
            if (getuid() == 0 && (chown(r.dir.path, 65534, 65534) != 0 || setuid(65534) != 0)) _exit(0);
            ig_status opened = ig_prefix_store_open(&r.store, &r.o, &r.err);
            if (opened) _exit(1);
            if (!ig_prefix_store_why_read_only(r.store)) _exit(2);
            rig_piece p;
            rig_make(&p, &r.o, 1, 2);
            if (getuid() != 65534 && !ig_prefix_store_has(r.store, &p.piece)) _exit(3);
            if (rig_put(&r, 1, 3) != IG_E_UNSUPPORTED) _exit(4);
            ig_prefix_store_close(r.store);
            _exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        assert_int_equal(chmod(r.dir.path, 0700), 0);
    }
    rig_end(&r);
}

/* ---- disks that say no ------------------------------------------------------- */

static void a_write_that_fails(void **state) {
    (void)state;
    static const int errors[] = {-ENOSPC, -EIO, 0};
    for (size_t k = 0; k < IG_COUNT(errors); k++) {
        for (int after = 0; after < 3; after++) { /* header, payload, fill */
            prefix_rig r;
            trouble t = {.call = IG_PREFIX_WRITE, .result = errors[k]};
            rig_start_with(&r, make_trouble, &t);
            rig_keep(&r, 1, 0, 0);
            RIG_OK(&r, rig_put(&r, 1, 1));
            t.after = after;
            t.n_left = 1;
            assert_int_equal(rig_put(&r, 1, 2), IG_E_IO);
            assert_non_null(strstr(r.err.text, strerror(errors[k] ? -errors[k] : ENOSPC)));
            RIG_OK(&r, rig_read(&r, 1, 0));
            RIG_OK(&r, rig_put(&r, 1, 3));
            rig_commit(&r);
            for (int round = 0; round < 2; round++) {
                for (int i = 0; i < 4; i++) assert_int_equal(rig_read(&r, 1, i), i == 2 ? IG_E_NOT_FOUND : IG_OK);
                rig_close_store(&r);
                rig_remove_index(&r);
                rig_open(&r);
            }
            rig_end(&r);
        }
    }
}

/* Syncing the data, naming the file, syncing the directory. */
static void a_commit_that_fails(void **state) {
    (void)state;
    const trouble troubles[] = {{.call = IG_PREFIX_SYNC, .result = -EIO, .n_left = 1},
                                {.call = IG_PREFIX_RENAME, .result = -EIO, .n_left = 1},
                                {.call = IG_PREFIX_SYNC, .result = -EIO, .n_left = 1, .after = 1}};
    for (size_t k = 0; k < IG_COUNT(troubles); k++) {
        prefix_rig r;
        trouble t = {0};
        rig_start_with(&r, make_trouble, &t);
        rig_keep(&r, 1, 0, 0);
        for (int i = 1; i < 3; i++) RIG_OK(&r, rig_put(&r, 1, i));
        t = troubles[k];
        assert_int_equal(ig_prefix_store_commit(r.store, &r.err), IG_E_IO);
        assert_int_equal(rig_count_files(&r, "kv-", ""), 1);
        rig_commit(&r);
        for (int i = 1; i < 3; i++) assert_int_equal(rig_read(&r, 1, i), IG_E_NOT_FOUND);
        RIG_OK(&r, rig_read(&r, 1, 0));
        rig_keep(&r, 1, 1, 2);
        for (int i = 0; i < 3; i++) RIG_OK(&r, rig_read(&r, 1, i));
        assert_int_equal(stats_of(&r).bytes, 3 * RIG_RECORD);
        rig_end(&r);
    }
}

static int count_syncs(void *user, ig_prefix_call call, int result) {
    *(int *)user += call == IG_PREFIX_SYNC;
    return result;
}

/* Of a new store the name of its directory, its number, and the number's name. */
static void a_directory_is_brought_to_the_disk(void **state) {
    (void)state;
    for (int after = 0; after < 2; after++) {
        prefix_rig r;
        int n_syncs = 0;
        trouble t = {.call = IG_PREFIX_SYNC, .result = -EIO, .n_left = 1, .after = after};
        rig_init(&r);
        temp_dir below = r.dir;
        strcat(below.path, "/store");
        r.o.directory = below.path;
        r.o.fault = make_trouble;
        r.o.fault_user = &t;
        assert_int_equal(ig_prefix_store_open(&r.store, &r.o, &r.err), IG_E_IO);
        r.o.fault = count_syncs;
        r.o.fault_user = &n_syncs;
        rig_open(&r);
        assert_int_equal(n_syncs, 3);
        rig_reopen(&r);
        assert_int_equal(n_syncs, 3);
        rig_close_store(&r);
        temp_dir_close(&below);
        temp_dir_close(&r.dir);
    }
}

static void a_read_that_fails(void **state) {
    (void)state;
    prefix_rig r;
    trouble t = {.call = IG_PREFIX_READ, .result = -EIO};
    rig_start_with(&r, make_trouble, &t);
    rig_keep(&r, 1, 0, 1);
    for (int after = 0; after < 2; after++) {
        t.after = after;
        t.n_left = 1;
        assert_int_equal(rig_read(&r, 1, 0), IG_E_IO);
        assert_true(rig_has(&r, 1, 0)); /* the disk may come back */
        RIG_OK(&r, rig_read(&r, 1, 0));
    }
    t.n_left = 100;
    t.result = -EINTR;
    RIG_OK(&r, rig_read(&r, 1, 0));
    rig_end(&r);
}

static void holes_that_fail(void **state) {
    (void)state;
    prefix_rig r;
    trouble t = {.call = IG_PREFIX_PUNCH, .result = -EIO, .n_left = 1000};
    rig_init(&r);
    r.o.fault = make_trouble;
    r.o.fault_user = &t;
    r.o.max_bytes = 6 * RIG_RECORD;
    rig_open(&r);
    for (uint64_t chain = 0; chain < 12; chain++) {
        rig_keep(&r, chain, 0, 1);
        assert_true(stats_of(&r).bytes <= r.o.max_bytes);
        for (int i = 0; i < 2; i++) RIG_OK(&r, rig_read(&r, chain, i));
    }
    assert_true(stats_of(&r).n_pieces >= 4);
    rig_end(&r);
}

/* What has left the index and is still in its file is told, and tried again. */
static void files_that_stay(void **state) {
    (void)state;
    prefix_rig r;
    ig_stored_freed freed;
    char path[512];
    trouble t = {.call = IG_PREFIX_REMOVE, .result = -EPERM, .n_left = 1000};
    rig_start_with(&r, make_trouble, &t);
    rig_keep(&r, 1, 0, 2);
    assert_true(rig_find_file(&r, "kv-", ".igkv", 0, path));
    const rig_bytes file = load(path);
    assert_int_equal(ig_prefix_remove_model(&freed, r.store, NULL, &r.err), IG_E_IO);
    assert_non_null(strstr(r.err.text, strerror(EPERM)));
    assert_non_null(strstr(r.err.text, strrchr(path, '/') + 1));
    assert_int_equal(freed.bytes, 0);
    save(path, file.data, file.n); /* the hook does not keep a file from being removed */
    rig_reopen(&r);
    assert_false(rig_has(&r, 1, 0));
    assert_int_equal(ig_prefix_remove_model(&freed, r.store, NULL, &r.err), IG_E_IO);
    t.n_left = 0;
    save(path, file.data, file.n);
    rig_reopen(&r);
    RIG_OK(&r, ig_prefix_remove_model(&freed, r.store, NULL, &r.err));
    assert_int_equal(freed.bytes, 3 * RIG_RECORD);
    rig_close_store(&r);
    rig_remove_index(&r);
    rig_open(&r);
    assert_false(rig_has(&r, 1, 0));
    free(file.data);
    rig_end(&r);
}

/* One that cannot be read to its end, or is too long to be a store's, costs what is in it alone. */
static void files_that_cannot_be_read(void **state) {
    (void)state;
    for (int is_long = 0; is_long < 2; is_long++) {
        prefix_rig r;
        char path[512];
        trouble t = {.call = IG_PREFIX_READ, .result = -EIO, .after = 1};
        rig_start_with(&r, make_trouble, &t);
        rig_keep(&r, 1, 0, 2);
        assert_true(rig_find_file(&r, "kv-", ".igkv", 0, path));
        const rig_bytes file = load(path);
        rig_close_store(&r);
        if (!is_long) rig_remove_index(&r);
        if (is_long) assert_int_equal(truncate(path, (off_t)IG_PREFIX_FILE_MAX + 1), 0);
        if (!is_long) t.n_left = 1000; /* store.id */
        rig_open(&r);
        t.n_left = 0;
        rig_keep(&r, 2, 0, 1);
        RIG_OK(&r, rig_read(&r, 2, 1));
        assert_true(stats_of(&r).bytes >= 5 * RIG_RECORD);
        save(path, file.data, file.n);
        rig_reopen(&r);
        for (int i = 0; i < 3; i++) RIG_OK(&r, rig_read(&r, 1, i));
        free(file.data);
        rig_end(&r);
    }
}

static int refuse_to_forget(void *user, int action, const char *table, const char *b, const char *c, const char *d) {
    (void)user, (void)b, (void)c, (void)d;
    return action == SQLITE_DELETE && strcmp(table, "pending") == 0 ? SQLITE_DENY : SQLITE_OK;
}

/* What was put and never committed is not found in a later file, even where the index cannot forget it. */
static void an_index_that_forgets_nothing(void **state) {
    (void)state;
    prefix_rig r;
    rig_piece p;
    trouble t = {.call = IG_PREFIX_SYNC, .result = -EIO};
    rig_start_with(&r, make_trouble, &t);
    rig_keep(&r, 1, 0, 0);
    RIG_OK(&r, rig_put(&r, 2, 0));
    t.n_left = 1;
    sqlite3_set_authorizer(r.store->index.db, refuse_to_forget, NULL);
    assert_int_equal(ig_prefix_store_commit(r.store, &r.err), IG_E_IO);
    sqlite3_set_authorizer(r.store->index.db, NULL, NULL);
    rig_make(&p, &r.o, 2, 1);
    assert_false(ig_prefix_store_leads_to(r.store, &p.piece));
    rig_keep(&r, 3, 0, 0);
    assert_false(rig_has(&r, 2, 0));
    assert_int_equal(stats_of(&r).n_pieces, 2);
    rig_keep(&r, 2, 0, 1);
    for (int i = 0; i < 2; i++) RIG_OK(&r, rig_read(&r, 2, i));
    rig_end(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_that_stay),
        cmocka_unit_test(files_that_cannot_be_read),
        cmocka_unit_test(an_index_that_forgets_nothing),
        cmocka_unit_test(every_bit_of_a_header),
        cmocka_unit_test(every_byte_flipped),
        cmocka_unit_test(every_length),
        cmocka_unit_test(shortened_while_open),
        cmocka_unit_test(a_damaged_piece_is_replaced),
        cmocka_unit_test(a_damaged_region_is_replaced),
        cmocka_unit_test(other_things_in_the_directory),
        cmocka_unit_test(files_of_another_store),
        cmocka_unit_test(a_directory_that_cannot_be_written),
        cmocka_unit_test(a_write_that_fails),
        cmocka_unit_test(a_commit_that_fails),
        cmocka_unit_test(a_directory_is_brought_to_the_disk),
        cmocka_unit_test(a_read_that_fails),
        cmocka_unit_test(holes_that_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
