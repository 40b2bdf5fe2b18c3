/* SPDX-License-Identifier: Apache-2.0
 *
 * The disk tier at work: blocks come back as they were written, in any order and by both queues; neighbours share
 * requests; slots are reused; limits hold; nothing is allocated after open.
 */
#define _GNU_SOURCE
#include "tier_disk_rig.h"

#include <linux/magic.h>
#include <pthread.h>
#include <sys/vfs.h>

#include "count_memory.h"
#include "kv/tier_disk_slots.h"

static const bool uring = false, threads = true;

static void blocks_come_back_in_any_order(void **state) {
    rig r;
    ig_slot slots[RIG_BLOCKS];
    uint8_t *in[RIG_BLOCKS];
    ig_ticket t;
    rig_init(&r, *(const bool *)*state);
    static const unsigned depths[] = {2, 7, 0, IG_DISK_DEPTH_MAX};
    for (size_t k = 0; k < sizeof depths / sizeof *depths; k++) {
        r.options.depth = depths[k];
        r.options.no_tmpfile = k & 1;
        rig_open_tier(&r);
        assert_int_equal(rig_write(&r, 0, RIG_BLOCKS), IG_OK);
        for (uint32_t i = 1; i < RIG_BLOCKS; i++) assert_int_equal(r.slots[i], r.slots[i - 1] + 1);
        assert_int_equal(rig_read(&r, 0, RIG_BLOCKS), IG_OK);
        rig_check(&r, 0, RIG_BLOCKS, 0);
        /* 587 and 1500 have no common factor: each block once, no two neighbours in a row. One block twice. */
        for (uint32_t i = 0; i < RIG_BLOCKS; i++) {
            slots[i] = r.slots[i * 587 % RIG_BLOCKS];
            in[i] = r.in[i * 587 % RIG_BLOCKS];
        }
        slots[RIG_BLOCKS - 1] = slots[0];
        memset(in[RIG_BLOCKS - 1], 0, IG_FRAME_BYTES);
        assert_int_equal(r.ops->read(r.tier, &t, slots, in, RIG_BLOCKS, false, &r.err), IG_OK);
        assert_int_equal(r.ops->wait(r.tier, t, &r.err), IG_OK);
        assert_true(rig_holds(in[RIG_BLOCKS - 1], 0, 0));
        ig_tier_stats s = rig_stats(&r);
        assert_int_equal(s.bytes_written, (uint64_t)RIG_BLOCKS * IG_FRAME_BYTES);
        assert_int_equal(s.bytes_read, 2ull * RIG_BLOCKS * IG_FRAME_BYTES);
        assert_int_equal(s.used_bytes, (uint64_t)RIG_BLOCKS * IG_FRAME_BYTES);
        assert_int_equal(s.requests_in_flight, 0);
        assert_int_equal(s.n_failed_blocks, 0);
        r.ops->close(r.tier);
        r.tier = NULL;
    }
    rig_close(&r);
}

static void neighbours_share_requests(void **state) {
    rig r;
    ig_ticket t;
    rig_open(&r, *(const bool *)*state);
    assert_int_equal(rig_write(&r, 0, 128), IG_OK);
    assert_int_equal(rig_stats(&r).requests_written, 4);
    /* Three runs, handed over out of order: 100..109, 3, 40..47 */
    ig_slot slots[19];
    uint8_t *in[19];
    for (uint32_t i = 0; i < 19; i++) {
        uint32_t block = i < 8 ? 47 - i : i < 18 ? 100 + i - 8 : 3;
        slots[i] = r.slots[block];
        in[i] = r.in[block];
    }
    assert_int_equal(r.ops->read(r.tier, &t, slots, in, 19, false, &r.err), IG_OK);
    while (!r.ops->poll(r.tier, t)) continue;
    assert_int_equal(r.ops->wait(r.tier, t, &r.err), IG_OK);
    assert_int_equal(rig_stats(&r).requests_read, 3);
    rig_check(&r, 40, 8, 0);
    rig_check(&r, 100, 10, 0);
    rig_check(&r, 3, 1, 0);
    rig_close(&r);
}

/* What lies between blocks that are near each other is read with them, whatever it is, and goes nowhere. */
static void gaps_are_passed_over(void **state) {
    rig r;
    ig_ticket t;
    rig_open(&r, *(const bool *)*state);
    assert_int_equal(rig_write(&r, 0, 128), IG_OK);
    /* 2 and 5 are freed and broken; blocks 0, 3, 6 and 9 share a request, as 40 and 49, not 60 and 70. */
    int fd = rig_reopen_file(&r);
    static const uint32_t broken[] = {2, 5, 44}, wanted[] = {70, 0, 6, 49, 9, 60, 3, 40};
    for (int i = 0; i < 3; i++) assert_int_equal(pwrite(fd, "harm", 4, (off_t)broken[i] * IG_FRAME_BYTES), 4);
    close(fd);
    r.ops->free_slots(r.tier, &r.slots[2], 1);
    r.ops->free_slots(r.tier, &r.slots[5], 1);
    memset(r.memory + (size_t)RIG_BLOCKS * IG_FRAME_BYTES, 0xee, (size_t)RIG_BLOCKS * IG_FRAME_BYTES);
    ig_slot slots[8];
    uint8_t *in[8];
    for (int i = 0; i < 8; i++) slots[i] = r.slots[wanted[i]], in[i] = r.in[wanted[i]];
    assert_int_equal(r.ops->read(r.tier, &t, slots, in, 8, false, &r.err), IG_OK);
    assert_int_equal(r.ops->wait(r.tier, t, &r.err), IG_OK);
    ig_tier_stats st = rig_stats(&r);
    assert_int_equal(st.requests_read, 4);
    assert_int_equal(st.bytes_read, 8 * IG_FRAME_BYTES);
    assert_int_equal(st.bytes_passed_over, (6 + 8) * IG_FRAME_BYTES);
    for (int i = 0; i < 8; i++) rig_check(&r, wanted[i], 1, 0);
    for (uint32_t i = 0; i < 80; i++) {
        bool is_wanted = false;
        for (int k = 0; k < 8; k++) is_wanted = is_wanted || wanted[k] == i;
        for (size_t k = 0; !is_wanted && k < IG_FRAME_BYTES; k++) assert_int_equal(r.in[i][k], 0xee);
    }
    rig_close(&r);
}

static void a_block_is_read_while_it_is_written(void **state) {
    rig r;
    ig_ticket w, t;
    rig_open(&r, *(const bool *)*state);
    for (uint32_t round = 0; round < 5; round++) {
        for (uint32_t i = 0; i < 300; i++) rig_fill(r.out[i], i, round);
        assert_int_equal(r.ops->write(r.tier, &w, r.slots, (const uint8_t *const *)r.out, 300, &r.err), IG_OK);
        assert_int_equal(r.ops->read(r.tier, &t, r.slots, r.in, 300, false, &r.err), IG_OK);
        assert_int_equal(r.ops->wait(r.tier, t, &r.err), IG_OK);
        rig_check(&r, 0, 300, round);
        r.ops->free_slots(r.tier, r.slots, 300);
        assert_int_equal(r.ops->wait(r.tier, w, &r.err), IG_OK);
    }
    assert_int_equal(rig_stats(&r).used_bytes, 0);
    rig_close(&r);
}

static void *start_reads(void *rig_) {
    rig *r = rig_;
    static ig_ticket tickets[2];
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(r->ops->read(r->tier, &tickets[i], r->slots + 8 * i, r->in + 8 * i, 8, false, &r->err), IG_OK);
    return tickets;
}

/* The thread that starts a read may end before another waits for it: what the system then cancels is tried again. */
static void a_thread_that_reads_ends(void **state) {
    rig r;
    pthread_t thread;
    void *tickets;
    rig_open(&r, *(const bool *)*state);
    assert_int_equal(rig_write(&r, 0, 16), IG_OK);
    for (int round = 0; round < 50; round++) {
        memset(r.memory + (size_t)RIG_BLOCKS * IG_FRAME_BYTES, 0xee, (size_t)16 * IG_FRAME_BYTES);
        assert_int_equal(pthread_create(&thread, NULL, start_reads, &r), 0);
        assert_int_equal(pthread_join(thread, &tickets), 0);
        for (int i = 0; i < 2; i++) assert_int_equal(r.ops->wait(r.tier, ((ig_ticket *)tickets)[i], &r.err), IG_OK);
        rig_check(&r, 0, 16, 0);
    }
    rig_close(&r);
}

/* What was started before the slots were freed is not disturbed by what comes into them. */
static void slots_are_freed_while_they_move(void **state) {
    rig r;
    ig_ticket t[3];
    rig_open(&r, *(const bool *)*state);
    const uint8_t *const *out = (const uint8_t *const *)r.out;
    assert_int_equal(rig_write(&r, 0, 400), IG_OK);
    assert_int_equal(r.ops->read(r.tier, &t[0], r.slots, r.in, 400, false, &r.err), IG_OK);
    r.ops->free_slots(r.tier, r.slots, 400);
    assert_int_equal(r.ops->write(r.tier, &t[1], r.slots + 400, out + 400, 400, &r.err), IG_OK);
    r.ops->free_slots(r.tier, r.slots + 400, 400);
    assert_int_equal(r.ops->write(r.tier, &t[2], r.slots + 800, out + 800, 400, &r.err), IG_OK);
    assert_int_equal(r.slots[800], r.slots[0]);
    for (int i = 0; i < 3; i++) assert_int_equal(r.ops->wait(r.tier, t[i], &r.err), IG_OK);
    rig_check(&r, 0, 400, 0);
    assert_int_equal(rig_read(&r, 800, 400), IG_OK);
    rig_check(&r, 800, 400, 0);
    rig_close(&r);
}

static void freed_slots_are_used_again(void **state) {
    rig r;
    rig_init(&r, *(const bool *)*state);
    r.options.cap_bytes = 100 * IG_FRAME_BYTES + 4095;
    rig_open_tier(&r);
    assert_int_equal(rig_info(&r).cap_bytes, 100 * IG_FRAME_BYTES);
    assert_int_equal(rig_write(&r, 0, 100), IG_OK);
    assert_int_equal(rig_write(&r, 100, 1), IG_E_LIMIT);
    assert_non_null(strstr(r.err.text, "409600 bytes"));
    /* A gap of 10 among gaps of 1: ten blocks go there, and then four into the small ones. */
    for (uint32_t i = 1; i < 20; i += 2) r.ops->free_slots(r.tier, r.slots + i, 1);
    r.ops->free_slots(r.tier, r.slots + 50, 10);
    assert_int_equal(rig_write(&r, 200, 10), IG_OK);
    for (uint32_t i = 0; i < 10; i++) assert_int_equal(r.slots[200 + i], r.slots[50 + i]);
    assert_int_equal(rig_write(&r, 300, 11), IG_E_LIMIT);
    assert_int_equal(rig_write(&r, 300, 10), IG_OK);
    assert_int_equal(rig_write(&r, 400, 1), IG_E_LIMIT);
    assert_int_equal(rig_read(&r, 200, 10), IG_OK);
    rig_check(&r, 200, 10, 0);
    assert_int_equal(rig_read(&r, 300, 10), IG_OK);
    rig_check(&r, 300, 10, 0);
    assert_int_equal(rig_read(&r, 60, 40), IG_OK);
    rig_check(&r, 60, 40, 0);
    struct stat st;
    int fd = rig_reopen_file(&r);
    assert_int_equal(fstat(fd, &st), 0);
    assert_true(st.st_size <= 100 * IG_FRAME_BYTES);
    close(fd);
    rig_close(&r);
}

/* Against a plain list: no slot twice, none beyond the limit, room is found while there is any. */
static void slot_table_keeps_its_books(void **state) {
    (void)state;
    enum { N = 300 };
    ig_slot_table t;
    bool used[N] = {0};
    size_t n_used = 0;
    uint32_t x = 12345;
    assert_int_equal(ig_slot_table_open(&t, N, NULL), IG_OK);
    for (int step = 0; step < 20000; step++) {
        x = x * 1664525u + 1013904223u;
        ig_slot slots[40];
        size_t n = 1 + (x >> 8) % 40;
        if (x >> 31) {
            bool found = ig_slot_table_find(&t, slots, n, N);
            assert_int_equal(found, n <= N - n_used);
            if (!found) continue;
            for (size_t i = 0; i < n; i++) {
                assert_true(slots[i] < N && !used[slots[i]]);
                used[slots[i]] = true;
            }
            ig_slot_table_take(&t, slots, n);
            n_used += n;
        } else {
            for (size_t i = (x >> 4) % N; n > 0 && i < N; i++)
                if (used[i]) {
                    used[i] = false;
                    ig_slot_table_give(&t, (ig_slot)i);
                    n--, n_used--;
                }
        }
        assert_int_equal(t.end - t.n_free, n_used);
    }
    ig_slot_table_close(&t);
}

static void tickets_have_a_limit_and_one_wait(void **state) {
    rig r;
    ig_ticket tickets[IG_TIER_TICKETS], t;
    rig_open(&r, *(const bool *)*state);
    assert_int_equal(r.ops->write(r.tier, &t, NULL, NULL, 0, &r.err), IG_OK);
    assert_int_equal(t, 0);
    assert_int_equal(r.ops->wait(r.tier, t, &r.err), IG_OK);
    for (uint32_t i = 0; i < IG_TIER_TICKETS; i++)
        assert_int_equal(r.ops->write(r.tier, &tickets[i], r.slots + i, (const uint8_t *const *)r.out + i, 1, &r.err),
                         IG_OK);
    assert_int_equal(r.ops->read(r.tier, &t, r.slots, r.in, 1, false, &r.err), IG_E_LIMIT);
    assert_int_equal(r.ops->wait(r.tier, tickets[77], &r.err), IG_OK);
    assert_int_equal(r.ops->wait(r.tier, tickets[77], &r.err), IG_E_ARG);
    assert_int_equal(r.ops->read(r.tier, &t, r.slots + 9, r.in + 9, 1, false, &r.err), IG_OK);
    assert_int_equal(r.ops->wait(r.tier, tickets[77], &r.err), IG_E_ARG); /* its place has a new owner */
    assert_int_equal(r.ops->wait(r.tier, t, &r.err), IG_OK);
    assert_int_equal(r.ops->wait(r.tier, 12345, &r.err), IG_E_ARG);
    rig_check(&r, 9, 1, 0);
    rig_close(&r); /* the other tickets are not waited for */
}

static void nothing_is_allocated_after_open(void **state) {
    rig r;
    rig_open(&r, *(const bool *)*state);
    memory_count_start(-1);
    for (uint32_t round = 0; round < 3; round++) {
        assert_int_equal(rig_write(&r, 0, RIG_BLOCKS), IG_OK);
        for (uint32_t i = 0; i < RIG_BLOCKS / 2; i++) {
            ig_slot s = r.slots[i];
            r.slots[i] = r.slots[RIG_BLOCKS - 1 - i];
            r.slots[RIG_BLOCKS - 1 - i] = s;
        }
        assert_int_equal(rig_read(&r, 0, RIG_BLOCKS), IG_OK);
        r.ops->free_slots(r.tier, r.slots, RIG_BLOCKS);
    }
    memory_count_stop();
    assert_int_equal(memory_count.n_taken, 0);
    rig_close(&r);
}

static void open_says_what_it_found(void **state) {
    rig r;
    const bool no_uring = *(const bool *)*state;
    rig_open(&r, no_uring);
    ig_tier_info i = rig_info(&r);
    if (no_uring) assert_false(i.has_ring);
    print_message("%s: %s, %s\n", r.dir.path, i.has_ring ? "io_uring" : "threads",
                  i.is_direct ? "direct" : "through the page cache");
    uint64_t staging = (uint64_t)IG_DISK_STAGING_MAX * 16 * IG_FRAME_BYTES;
    assert_true(i.table_bytes > staging && i.table_bytes < staging + i.cap_bytes / 40);
    assert_false(i.is_direct && i.is_memory);
    rig_close(&r);
}

/* A file system in RAM: works, and says that it is one. */
static void memory_file_system(void **state) {
    rig r;
    struct statfs fs;
    if (statfs("/dev/shm", &fs) != 0 || fs.f_type != TMPFS_MAGIC || access("/dev/shm", W_OK) != 0) skip();
    rig_init(&r, *(const bool *)*state);
    r.options.directory = "/dev/shm";
    rig_open_tier(&r);
    assert_false(rig_info(&r).is_direct);
    assert_int_equal(rig_write(&r, 0, 700), IG_OK);
    assert_int_equal(rig_read(&r, 0, 700), IG_OK);
    rig_check(&r, 0, 700, 0);
    rig_close(&r);
}

static void refuses_bad_options(void **state) {
    ig_tier *t;
    ig_error err;
    (void)state;
    static const ig_tier_disk_options bad[] = {
        {.directory = "/", .cap_bytes = 4095},
        {.directory = "/", .cap_bytes = 1ull << 45},
        {.directory = "/", .cap_bytes = 1 << 20, .depth = 1},
        {.directory = "/", .cap_bytes = 1 << 20, .n_staging = IG_DISK_STAGING_MAX + 1},
        {.directory = "/", .cap_bytes = 1 << 20, .depth = IG_DISK_DEPTH_MAX + 1},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(ig_tier_disk_open(&t, &bad[i], &err), IG_E_LIMIT);
        assert_null(t);
    }
}

#define ON_BOTH(test)                                                     \
    {#test " (io_uring)", test, NULL, NULL, (void *)(uintptr_t)&uring}, { \
#test " (threads)", test, NULL, NULL, (void *)(uintptr_t)&threads \
    }

int main(void) {
    const struct CMUnitTest tests[] = {
        ON_BOTH(blocks_come_back_in_any_order),
        ON_BOTH(neighbours_share_requests),
        ON_BOTH(gaps_are_passed_over),
        ON_BOTH(a_block_is_read_while_it_is_written),
        ON_BOTH(a_thread_that_reads_ends),
        ON_BOTH(slots_are_freed_while_they_move),
        ON_BOTH(freed_slots_are_used_again),
        cmocka_unit_test(slot_table_keeps_its_books),
        ON_BOTH(tickets_have_a_limit_and_one_wait),
        ON_BOTH(nothing_is_allocated_after_open),
        ON_BOTH(open_says_what_it_found),
        ON_BOTH(memory_file_system),
        cmocka_unit_test(refuses_bad_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
