/* SPDX-License-Identifier: Apache-2.0
 *
 * The KV store with a disk tier that takes no more for a while: what could not be written stays in RAM and is written
 * later, and whoever has to know is told. The function that the disk tier's threads call is that of this file.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "kv/frame_pool.h"
#include "kv/memory_parts.h"
#include "kv_disk_rig.h"

static _Atomic bool writes_fail, writes_wait, reads_fail; /* those of the disk tier's threads */
static _Atomic int n_writes;

ssize_t pwritev(int fd, const struct iovec *iov, int n_iov, off_t at) {
    while (writes_wait) usleep(100);
    ssize_t n = writes_fail ? -1 : syscall(SYS_pwritev, fd, iov, (long)n_iov, (long)at, 0L);
    if (writes_fail) errno = ENOSPC;
    n_writes++;
    return n;
}

ssize_t pread(int fd, void *to, size_t n, off_t at) {
    if (reads_fail) errno = EIO;
    return reads_fail ? -1 : syscall(SYS_pread64, fd, to, n, (long)at);
}

static void expect_no_space(const rig *r, ig_status s, const ig_error *err) {
    if (s != IG_E_IO || !strstr(err->text, "No space left") || !strstr(err->text, r->dir.path))
        fail_msg("%d: %s", (int)s, err->text);
}

/* Blocks that could not be written stay in RAM and are written later, or there would soon be no room. */
static void failed_writes_are_made_good(void **state) {
    rig r;
    ig_error err = {0};
    int n_failed = 0;
    (void)state;
    with_threads = true;
    open_rig(&r, IG_EVICT_COUNTER, 0);
    for (int n = 0; n < TOKENS; n += BATCH) {
        writes_fail = true;
        ig_status s = try_tokens(&r, n, BATCH, &err);
        bool waits = n / BATCH % 2; /* until all writes have failed; else some may come later, and succeed */
        if (waits) ig_kv_settle(r.kv->memory);
        if (waits && !s) s = ig_kv_extend(r.kv, 0, n + BATCH, &err);
        if (s) expect_no_space(&r, s, &err);
        n_failed += s != IG_OK;
        ig_kv_cut(r.kv, n, NULL);
        assert_int_equal(ig_kv_length(r.kv), n);
        writes_fail = false;
        add_tokens(&r, n, BATCH);
        assert_true(stats(&r).ram_bytes <= r.options.ram_bytes);
    }
    assert_true(n_failed >= TOKENS / BATCH / 2);
    for (int l = 0; l < LAYERS; l++) {
        pick_blocks(&r, 0, 1, TOKENS);
        expect_ok(load(&r, l, &err), &err);
        check_picks(&r, l);
    }
    expect_ok(ig_kv_cut(r.kv, 0, &err), &err);
    assert_int_equal(stats(&r).disk_bytes, 0);
    close_rig(&r);
    with_threads = false;
}

/* A failure may become known while blocks of the same layer are being written: it is not forgotten. */
static void a_failure_while_writing(void **state) {
    enum { BLOCKS = MAX_WRITES + 1 };
    rig r;
    ig_error err = {0};
    ig_status s = IG_E_IO;
    (void)state;
    with_threads = true;
    open_rig(&r, IG_EVICT_COUNTER, 0.9);
    writes_fail = true;
    n_writes = 0;
    for (int b = 1; b <= BLOCKS; b++) {
        expect_ok(ig_kv_extend(r.kv, 0, b * PER_BLOCK, &err), &err);
        if (b == BLOCKS) { /* all but this one have failed, which nobody has asked for yet */
            while (n_writes < MAX_WRITES) usleep(1000);
            writes_fail = false;
        }
        expect_ok(ig_kv_seal(r.kv, 0, &err), &err);
    }
    for (int i = 0; s && i < BLOCKS; i++) { /* each tells of a failure, or writes again */
        ig_kv_settle(r.kv->memory);
        s = ig_kv_extend(r.kv, 0, BLOCKS * PER_BLOCK, &err);
    }
    expect_ok(s, &err);
    ig_kv_settle(r.kv->memory);
    assert_int_equal(stats(&r).disk_bytes, (uint64_t)BLOCKS * HEADS * IG_FRAME_BYTES);
    close_rig(&r);
    with_threads = false;
}

/* TOKENS tokens are written, and one block more of each layer cannot be. */
static void fill_and_fail(rig *r) {
    ig_error err = {0};
    for (int n = 0; n < TOKENS; n += BATCH) add_tokens(r, n, BATCH);
    expect_ok(ig_kv_cut(r->kv, TOKENS, &err), &err); /* all is written */
    n_writes = 0;
    writes_fail = writes_wait = true;
    add_tokens(r, TOKENS, PER_BLOCK);
    writes_wait = false;
    while (n_writes < LAYERS) usleep(1000);
}

/* A prefetch takes what room there is; that a write has failed is not a lack of room. */
static void a_prefetch_tells_of_a_failed_write(void **state) {
    rig r;
    ig_error err = {0};
    (void)state;
    with_threads = true;
    open_rig(&r, IG_EVICT_COUNTER, 0);
    fill_and_fail(&r);
    pick_blocks(&r, 0, 1, TOKENS);
    ig_status s = IG_OK;
    for (int i = 0; !s && i < 100 * LAYERS; i++) { /* soon, not at once */
        s = prefetch(&r, i % LAYERS, &err);
        usleep(1000);
    }
    expect_no_space(&r, s, &err);
    writes_fail = false;
    close_rig(&r);
    with_threads = false;
}

/* Pieces can be copied while a write has failed, of which the sequence itself is told. */
static void a_copy_keeps_a_failed_write(void **state) {
    rig r;
    ig_error err = {0};
    (void)state;
    with_threads = true;
    open_rig(&r, IG_EVICT_COUNTER, 0);
    uint8_t *piece = malloc(ig_kv_piece_bytes(ig_kv_memory_of(r.kv)));
    fill_and_fail(&r);
    for (int i = 0; i < TOKENS / PER_BLOCK; i++) expect_ok(ig_kv_copy_piece(r.kv, i, piece, &err), &err);
    ig_status s = ig_kv_cut(r.kv, TOKENS, &err);
    expect_no_space(&r, s, &err);
    writes_fail = false;
    free(piece);
    close_rig(&r);
    with_threads = false;
}

/* Where layers that are to stay cannot be read, those that stayed before do, and all others may leave. */
static void layers_that_cannot_stay(void **state) {
    rig r;
    ig_error err = {0};
    (void)state;
    with_threads = true;
    open_rig(&r, IG_EVICT_COUNTER, 0.5);
    ig_kv_memory *m = r.kv->memory;
    for (int n = 0; n < TOKENS; n += BATCH) add_tokens(&r, n, BATCH);
    pick_blocks(&r, 0, 1, TOKENS);
    for (int l = 2; l < LAYERS; l++) expect_ok(load(&r, l, &err), &err);
    ig_kv_settle(m);
    uint32_t n_listed = 0, n_now = 0;
    for (uint32_t f = 0; f < m->evict.n_frames; f++) n_listed += m->evict.listed[f];
    reads_fail = true;
    assert_int_equal(ig_kv_pin(m, 2, &err), IG_E_IO);
    reads_fail = false;
    assert_int_equal(m->n_pinned, 0);
    for (uint32_t f = 0; f < m->evict.n_frames; f++) n_now += m->evict.listed[f];
    assert_true(n_now > 0 && n_now <= n_listed); /* frames of what was being read are free */
    expect_ok(ig_kv_pin(m, 2, &err), &err);
    assert_true(m->n_pinned > 0);
    for (int l = 0; l < LAYERS; l++) {
        expect_ok(load(&r, l, &err), &err);
        check_picks(&r, l);
    }
    close_rig(&r);
}

/* What one sequence could not write is written by who takes it over: else it would be in the way for ever. */
static void who_adopts_writes(void **state) {
    enum { N = 5 * BATCH };
    rig r;
    ig_error err = {0};
    uint32_t pieces[N / PER_BLOCK];
    (void)state;
    with_threads = true;
    open_rig(&r, IG_EVICT_COUNTER, 0.25);
    ig_kv_close(r.kv);
    r.options.share = true, r.options.n_sequences = 2;
    ig_kv_memory *m;
    expect_ok(ig_kv_memory_open(&m, &shape, &r.options, &err), &err);
    expect_ok(ig_kv_open_in(&r.kv, m, &err), &err);
    writes_wait = writes_fail = true;
    for (int n = 0; n < N; n += BATCH) add_tokens(&r, n, BATCH);
    for (int i = 0; i < N / PER_BLOCK; i++) {
        int32_t tokens[PER_BLOCK] = {i};
        pieces[i] = ig_kv_piece(r.kv, i);
        ig_prefix_tree_add(ig_kv_prefixes(m), pieces[i], (ig_prefix_id){1, (uint64_t)i},
                           (ig_prefix_id){1, (uint64_t)i + 1}, tokens);
    }
    ig_kv *first = r.kv;
    expect_ok(ig_kv_open_in(&r.kv, m, &err), &err);
    writes_wait = false;
    ig_kv_close(first); /* all of its writes fail */
    writes_fail = false;
    ig_kv_adopt(r.kv, pieces, N / PER_BLOCK);
    for (int n = N; n < TOKENS; n += BATCH) add_tokens(&r, n, BATCH);
    ig_kv_settle(m);
    assert_int_equal(stats(&r).disk_bytes, (uint64_t)TOKENS / PER_BLOCK * LAYERS * HEADS * IG_FRAME_BYTES);
    for (int l = 0; l < LAYERS; l++) {
        pick_blocks(&r, 0, 1, TOKENS);
        expect_ok(load(&r, l, &err), &err);
        check_picks(&r, l);
    }
    ig_kv_close(r.kv);
    ig_kv_memory_close(m);
    temp_dir_close(&r.dir);
    with_threads = false;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failed_writes_are_made_good),
        cmocka_unit_test(a_failure_while_writing),
        cmocka_unit_test(a_prefetch_tells_of_a_failed_write),
        cmocka_unit_test(a_copy_keeps_a_failed_write),
        cmocka_unit_test(layers_that_cannot_stay),
        cmocka_unit_test(who_adopts_writes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
