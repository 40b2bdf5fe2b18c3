/* SPDX-License-Identifier: Apache-2.0
 *
 * Stored prefixes where there is no room: a file that may not grow, a full disk, an index that finds no memory. What is
 * stored is read, and none of it is lost.
 */
#define _GNU_SOURCE
#include "prefix_rig.h"

#include <limits.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <sqlite3.h>

/* The limit of `ulimit -f`, whose signal would end the program. */
static void a_limit_of_the_file_size(void **state) {
    (void)state;
    prefix_rig r;
    int status;
    rig_start(&r);
    rig_keep(&r, 1, 0, 1);
    rig_close_store(&r);
    pid_t child = fork();
    if (child == 0) {
        const struct rlimit limit = {RIG_RECORD + 5000, RIG_RECORD + 5000};
        signal(SIGXFSZ, SIG_DFL);
        if (ig_prefix_store_open(&r.store, &r.o, &r.err) != IG_OK) _exit(1);
        if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(2);
        bool refused = false;
        for (int i = 2; i < 5; i++) { /* the index may be the first to have no room: none of it ends the process */
            ig_status put = rig_put(&r, 1, i);
            if (put != IG_OK && put != IG_E_IO) _exit(3);
            refused |= put != IG_OK;
            ig_status kept = ig_prefix_store_commit(r.store, &r.err);
            if (kept != IG_OK && kept != IG_E_IO) _exit(4);
            refused |= kept != IG_OK;
        }
        refused |= ig_prefix_store_note_put(r.store, "long", r.dir.path, 200, &r.err) != IG_OK;
        rig_piece p;
        uint8_t got[RIG_BYTES];
        struct iovec area = {got, RIG_BYTES};
        for (int i = 0; i < 2; i++) {
            rig_make(&p, &r.o, 1, i);
            if (ig_prefix_store_read(r.store, &p.piece, &area, 1, &r.err) != IG_OK) _exit(6);
            if (memcmp(got, p.bytes, RIG_BYTES) != 0) _exit(7);
        }
        for (int i = 2; i < 4 && !refused; i++) rig_put(&r, 2, i);
        ig_prefix_store_close(r.store);
        _exit(refused ? 0 : 8);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    rig_open(&r);
    for (int i = 0; i < 2; i++) RIG_OK(&r, rig_read(&r, 1, i));
    rig_keep(&r, 1, 2, 4);
    for (int i = 2; i < 5; i++) RIG_OK(&r, rig_read(&r, 1, i));
    rig_end(&r);
}

/* A store whose index cannot be written when it is opened is read, and written to as soon as there is room. */
static void opened_on_a_full_disk(void **state) {
    (void)state;
    prefix_rig r;
    int status;
    rig_start(&r);
    rig_keep(&r, 1, 0, 2);
    rig_close_store(&r);
    for (int with_index = 1; with_index >= 0; with_index--) {
        if (!with_index) rig_remove_index(&r);
        pid_t child = fork();
        if (child == 0) {
            struct rlimit limit = {1000, RLIM_INFINITY};
            signal(SIGXFSZ, SIG_DFL);
            sqlite3_soft_heap_limit64(1); /* SQLite writes at once what it else writes of a large index */
            if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(1);
            if (ig_prefix_store_open(&r.store, &r.o, &r.err) != IG_OK) _exit(2);
            const char *why = ig_prefix_store_why_read_only(r.store);
            if (!why || !strstr(why, r.dir.path)) _exit(3);
            for (int i = 0; i < 3; i++)
                if (rig_read(&r, 1, i) != IG_OK) _exit(4);
            if (rig_put(&r, 1, 3) != IG_E_UNSUPPORTED) _exit(5);
            prefix_rig second = r; /* the lock is free again */
            if (ig_prefix_store_open(&second.store, &r.o, &r.err) != IG_OK) _exit(6);
            if (strcmp(ig_prefix_store_why_read_only(second.store), why) != 0) _exit(7);
            ig_prefix_store_close(second.store);
            limit.rlim_cur = RLIM_INFINITY;
            if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(8);
            if (rig_put(&r, 1, 3) != IG_OK || ig_prefix_store_commit(r.store, &r.err) != IG_OK) _exit(9);
            if (ig_prefix_store_why_read_only(r.store)) _exit(10);
            for (int i = 0; i < 4; i++)
                if (rig_read(&r, 1, i) != IG_OK) _exit(11);
            ig_prefix_store_close(r.store);
            _exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    rig_open(&r);
    assert_null(ig_prefix_store_why_read_only(r.store));
    for (int i = 0; i < 4; i++) RIG_OK(&r, rig_read(&r, 1, i));
    rig_end(&r);
}

static sqlite3_mem_methods memory;
static int n_taken, n_given = INT_MAX;

static void *take_memory(int n) { return n_taken++ < n_given ? memory.xMalloc(n) : NULL; }
static void *take_more(void *p, int n) { return n_taken++ < n_given ? memory.xRealloc(p, n) : NULL; }

/* An index that cannot be made costs no piece, wherever that ends. */
static void an_index_without_memory(void **state) {
    (void)state;
    prefix_rig r;
    ig_status status = IG_E_MEMORY;
    rig_start(&r);
    for (uint64_t chain = 1; chain <= 3; chain++) rig_keep(&r, chain, 0, 3);
    for (int n = 1; status; n += 7) {
        rig_close_store(&r);
        rig_remove_index(&r);
        n_taken = 0, n_given = n;
        status = ig_prefix_store_open(&r.store, &r.o, &r.err);
        n_given = INT_MAX;
    }
    rig_reopen(&r);
    for (uint64_t chain = 1; chain <= 3; chain++)
        for (int i = 0; i < 4; i++) RIG_OK(&r, rig_read(&r, chain, i));
    rig_end(&r);
}

int main(void) {
    sqlite3_config(SQLITE_CONFIG_GETMALLOC, &memory);
    sqlite3_mem_methods counting = memory;
    counting.xMalloc = take_memory, counting.xRealloc = take_more;
    sqlite3_config(SQLITE_CONFIG_MALLOC, &counting);
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_limit_of_the_file_size),
                                       cmocka_unit_test(opened_on_a_full_disk),
                                       cmocka_unit_test(an_index_without_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
