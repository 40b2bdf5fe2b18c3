/* SPDX-License-Identifier: Apache-2.0
 *
 * Stored prefixes that several have open at a time: processes, stores of one process, threads. One writes, the others
 * read, and the first of them that has something to write takes over when it ends.
 */
#define _GNU_SOURCE
#include "prefix_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

static void one_writes_others_read(void **state) {
    (void)state;
    prefix_rig r, second;
    rig_start(&r);
    rig_keep(&r, 1, 0, 1);
    second = r;
    rig_open(&second);
    const char *why = ig_prefix_store_why_read_only(second.store);
    assert_non_null(why);
    assert_non_null(strstr(why, "another cache of this process"));
    RIG_OK(&r, rig_read(&second, 1, 1));
    assert_int_equal(rig_put(&second, 1, 2), IG_E_UNSUPPORTED);
    assert_string_equal(second.err.text, why);
    rig_keep(&r, 1, 2, 2);
    RIG_OK(&r, rig_read(&second, 1, 2)); /* as soon as it is there */
    rig_commit(&second);
    rig_close_store(&r);
    rig_reopen(&second); /* now it is the one */
    assert_null(ig_prefix_store_why_read_only(second.store));
    rig_keep(&second, 1, 3, 3);
    rig_open(&r);
    assert_non_null(ig_prefix_store_why_read_only(r.store));
    RIG_OK(&r, rig_read(&r, 1, 3));
    rig_close_store(&second);
    rig_end(&r);
}

/* The first that writes after the writer has ended, a piece or a note, is the next one; what it noted as a reader
 * stays. */
static void a_reader_takes_over(void **state) {
    (void)state;
    for (int with_note = 0; with_note < 2; with_note++) {
        prefix_rig r, second, third;
        rig_start(&r);
        rig_keep(&r, 1, 0, 1);
        second = third = r;
        rig_open(&second);
        third.o.read_only = true;
        rig_open(&third);
        RIG_OK(&r, rig_read(&second, 1, 1));
        rig_keep(&r, 1, 2, 2);
        rig_close_store(&r);
        if (with_note)
            RIG_OK(&second, ig_prefix_store_note_put(second.store, "a", "note", 4, &second.err));
        else
            RIG_OK(&second, rig_put(&second, 1, 3));
        assert_null(ig_prefix_store_why_read_only(second.store));
        rig_open(&r);
        assert_non_null(ig_prefix_store_why_read_only(r.store));
        assert_int_equal(rig_put(&r, 1, 3), IG_E_UNSUPPORTED);
        assert_int_equal(rig_put(&third, 1, 3), IG_E_UNSUPPORTED);
        rig_keep(&second, 1, 3, 4);
        for (int i = 0; i < 5; i++) {
            RIG_OK(&second, rig_read(&second, 1, i));
            RIG_OK(&r, rig_read(&r, 1, i));
            RIG_OK(&third, rig_read(&third, 1, i));
        }
        rig_close_store(&third);
        assert_int_equal(rig_put(&r, 1, 5), IG_E_UNSUPPORTED);
        rig_close_store(&second);
        rig_keep(&r, 1, 5, 5);
        rig_end(&r);
    }
}

/* Another store that lies there by now is not written to by who has read the one before. */
static void not_of_another_store(void **state) {
    (void)state;
    prefix_rig r, second;
    temp_dir moved = temp_dir_open();
    rig_start(&r);
    rig_keep(&r, 1, 0, 1);
    second = r;
    rig_open(&second);
    rig_close_store(&r);
    assert_int_equal(rename(r.o.directory, moved.path), 0);
    assert_int_equal(rig_put(&second, 1, 2), IG_E_UNSUPPORTED);
    assert_non_null(strstr(second.err.text, strerror(ENOENT)));
    rig_open(&r);
    rig_keep(&r, 1, 0, 0);
    rig_close_store(&r);
    assert_int_equal(rig_put(&second, 1, 2), IG_E_UNSUPPORTED);
    assert_non_null(strstr(second.err.text, "another store"));
    RIG_OK(&second, rig_read(&second, 1, 1)); /* of what it has open */
    rig_close_store(&second);
    temp_dir_close(&moved);
    rig_open(&r); /* the lock is free */
    assert_null(ig_prefix_store_why_read_only(r.store));
    assert_int_equal(rig_read(&r, 1, 1), IG_E_NOT_FOUND);
    rig_end(&r);
}

static void reading_only_writes_nothing(void **state) {
    (void)state;
    prefix_rig r, second;
    rig_start(&r);
    rig_keep(&r, 1, 0, 1);
    rig_close_store(&r);
    second = r;
    second.o.read_only = true;
    rig_open(&second);
    assert_non_null(ig_prefix_store_why_read_only(second.store));
    RIG_OK(&second, rig_read(&second, 1, 0));
    rig_open(&r); /* the lock is free */
    assert_null(ig_prefix_store_why_read_only(r.store));
    rig_close_store(&second);
    rig_end(&r);
    second.o.directory = "/nowhere/at/all";
    assert_int_equal(ig_prefix_store_open(&second.store, &second.o, &second.err), IG_E_NOT_FOUND);
}

/* A reader in another process while the writer puts and evicts: right or not found, and never anything else. */
static void read_until_told(prefix_rig *r, int pipe_end) {
    prefix_rig other = *r;
    int n_read = 0, n_gone = 0;
    char stop;
    if (ig_prefix_store_open(&other.store, &other.o, &other.err) != IG_OK) _exit(3);
    ig_random dice = {5};
    fcntl(pipe_end, F_SETFL, O_NONBLOCK);
    while (read(pipe_end, &stop, 1) < 0) {
        uint8_t bytes[RIG_BYTES];
        rig_piece p;
        rig_make(&p, &other.o, ig_random_u64(&dice) % 40, (int)(ig_random_u64(&dice) % 3));
        struct iovec area = {bytes, RIG_BYTES};
        ig_status status = ig_prefix_store_read(other.store, &p.piece, &area, 1, &other.err);
        if (status != IG_OK && status != IG_E_NOT_FOUND) {
            fprintf(stderr, "%s\n", other.err.text);
            _exit(4);
        }
        if (status == IG_OK && memcmp(bytes, p.bytes, RIG_BYTES) != 0) _exit(5);
        n_read += status == IG_OK;
        n_gone += status != IG_OK;
    }
    ig_prefix_store_close(other.store);
    _exit(n_read && n_gone ? 0 : 6);
}

static void read_while_pieces_leave(bool no_punch) {
    prefix_rig r;
    int ends[2], status;
    rig_init(&r);
    r.o.max_bytes = 30 * RIG_RECORD;
    r.o.no_punch = no_punch;
    assert_int_equal(pipe(ends), 0);
    rig_open(&r);
    rig_close_store(&r);
    pid_t child = fork();
    if (child == 0) {
        close(ends[1]);
        r.o.must_exist = true;
        usleep(50000); /* the parent writes */
        read_until_told(&r, ends[0]);
    }
    rig_open(&r);
    assert_null(ig_prefix_store_why_read_only(r.store));
    for (int round = 0; round < 4; round++)
        for (uint64_t chain = 0; chain < 40; chain++) rig_keep(&r, chain, 0, 2);
    close(ends[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    close(ends[0]);
    assert_int_equal(status, 0);
    assert_true(stats_of(&r).n_evicted > 60);
    rig_end(&r);
}

static void reading_while_pieces_leave(void **state) {
    (void)state;
    read_while_pieces_leave(false);
    read_while_pieces_leave(true);
}

typedef struct hammer {
    prefix_rig *r;
    int n_wrong;
    atomic_bool *stop;
} hammer;

static void *read_all_the_time(void *arg) {
    hammer *h = arg;
    ig_random dice = {(uint64_t)(uintptr_t)h};
    while (!*h->stop) {
        uint8_t bytes[RIG_BYTES];
        rig_piece p;
        rig_make(&p, &h->r->o, ig_random_u64(&dice) % 12, (int)(ig_random_u64(&dice) % 3));
        struct iovec area = {bytes, RIG_BYTES};
        if (!ig_prefix_store_has(h->r->store, &p.piece)) continue;
        ig_status status = ig_prefix_store_read(h->r->store, &p.piece, &area, 1, NULL);
        h->n_wrong += status != IG_OK && status != IG_E_NOT_FOUND;
        h->n_wrong += status == IG_OK && memcmp(bytes, p.bytes, RIG_BYTES) != 0;
        if (ig_random_u64(&dice) % 64) continue;
        status = ig_prefix_store_note_put(h->r->store, "note", "text", 4, NULL);
        h->n_wrong += status != IG_OK && status != IG_E_UNSUPPORTED;
    }
    return NULL;
}

/* Which becomes the writer meanwhile. */
static void threads_share_a_store(void **state) {
    (void)state;
    prefix_rig r, first;
    atomic_bool stop = false;
    pthread_t threads[3];
    hammer h[3];
    rig_init(&r);
    r.o.max_bytes = 20 * RIG_RECORD;
    first = r;
    rig_open(&first);
    rig_open(&r);
    for (int i = 0; i < 3; i++) {
        h[i] = (hammer){&r, 0, &stop};
        assert_int_equal(pthread_create(&threads[i], NULL, read_all_the_time, &h[i]), 0);
    }
    for (uint64_t chain = 0; chain < 12; chain++) rig_keep(&first, chain, 0, 2);
    rig_close_store(&first);
    for (int round = 0; round < 4; round++)
        for (uint64_t chain = 0; chain < 12; chain++) rig_keep(&r, chain, 0, 2);
    stop = true;
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(h[i].n_wrong, 0);
    }
    assert_int_equal(stats_of(&r).n_damaged, 0);
    rig_end(&r);
}

/* A directory that is removed, whether it is made again or not, is one that nothing was kept in yet. */
static void a_directory_that_is_removed(void **state) {
    (void)state;
    for (int made_again = 0; made_again < 2; made_again++) {
        prefix_rig r;
        rig_start(&r);
        rig_keep(&r, 1, 0, 1);
        temp_dir_close(&r.dir);
        if (made_again) assert_int_equal(mkdir(r.dir.path, 0700), 0);
        rig_put(&r, 1, 2); /* may find out */
        ig_prefix_store_commit(r.store, &r.err);
        rig_keep(&r, 1, 0, 1);
        RIG_OK(&r, rig_read(&r, 1, 1));
        rig_reopen(&r); /* it lies in the new one */
        RIG_OK(&r, rig_read(&r, 1, 1));
        assert_null(ig_prefix_store_why_read_only(r.store));
        rig_end(&r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_directory_that_is_removed), cmocka_unit_test(one_writes_others_read),
        cmocka_unit_test(a_reader_takes_over),         cmocka_unit_test(not_of_another_store),
        cmocka_unit_test(reading_only_writes_nothing), cmocka_unit_test(reading_while_pieces_leave),
        cmocka_unit_test(threads_share_a_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
