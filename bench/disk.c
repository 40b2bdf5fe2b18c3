/* SPDX-License-Identifier: Apache-2.0
 *
 * How fast the disk tier reads: random pieces of 4, 16 and 64 KiB, 64 requests with the device, by io_uring and by
 * threads (16).
 *
 *   cmake --build --preset release --target bench-disk && build/release/tests/bench-disk DIRECTORY [MiB [seconds]]
 *
 * The same of the device alone, for comparison:
 *
 *   fio --name=r --filename=DIRECTORY/fio.dat --size=1G --rw=randread --bs=4k --iodepth=64 --ioengine=io_uring \
 *       --direct=1 --runtime=3 --time_based
 *
 * Prints requests per second, GB per second, and the share of one CPU that the process took, checksums of all blocks
 * included. Use the same kind of memory for both: in huge pages, as here, large requests are far faster than in small
 * ones (for fio: GLIBC_TUNABLES=glibc.malloc.hugetlb=1).
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "kv/frame_pool.h"
#include "kv/tier_disk.h"

/* The device sees 64 requests at once, as many more wait for their turn: what prefetching in batches looks like. */
enum { DEPTH = 64, TICKETS = 16, PIECES = 2 * DEPTH / TICKETS, BLOCKS_MAX = 16, CHUNK = 256 };

static uint8_t *frames; /* [TICKETS][PIECES * BLOCKS_MAX] */

static void check(ig_status s, const ig_error *err) {
    if (!s) return;
    fprintf(stderr, "%s\n", err->text);
    exit(1);
}

static double cpu_seconds(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

/* Slots come out as 0 .. n_blocks - 1: the file is new. */
static void fill(ig_tier *t, uint32_t n_blocks) {
    const uint8_t *from[CHUNK];
    ig_slot slots[CHUNK];
    ig_ticket ticket;
    ig_error err;
    double start = ig_clock_seconds();
    for (uint32_t done = 0; done < n_blocks; done += CHUNK) {
        for (uint32_t i = 0; i < CHUNK; i++) {
            from[i] = frames + (size_t)i * IG_FRAME_BYTES;
            memcpy(frames + (size_t)i * IG_FRAME_BYTES, &(uint32_t){done + i}, 4);
        }
        check(t->ops->write(t, &ticket, slots, from, CHUNK, &err), &err);
        check(t->ops->wait(t, ticket, &err), &err);
    }
    double seconds = ig_clock_seconds() - start;
    printf("written: %.2f GB at %.2f GB/s\n", n_blocks * 4096e-9, n_blocks * 4096e-9 / seconds);
}

static uint32_t random_next(void) {
    static uint64_t x = 88172645463325252u;
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    return (uint32_t)(x >> 32);
}

static ig_ticket start_read(ig_tier *t, int at, uint32_t n_blocks, uint32_t piece) {
    ig_slot slots[PIECES * BLOCKS_MAX];
    uint8_t *to[PIECES * BLOCKS_MAX];
    ig_ticket ticket;
    ig_error err;
    uint32_t n = PIECES * piece;
    for (uint32_t i = 0; i < n; i++) {
        slots[i] = i % piece ? slots[i - 1] + 1 : random_next() % (n_blocks / piece) * piece;
        to[i] = frames + ((size_t)at * PIECES * BLOCKS_MAX + i) * IG_FRAME_BYTES;
    }
    check(t->ops->read(t, &ticket, slots, to, n, false, &err), &err);
    return ticket;
}

static void read_random(ig_tier *t, const char *method, uint32_t n_blocks, uint32_t piece, double limit) {
    ig_ticket tickets[TICKETS];
    ig_tier_stats before, after;
    ig_error err;
    int at = 0;
    for (int i = 0; i < TICKETS; i++) tickets[i] = start_read(t, i, n_blocks, piece);
    t->ops->stats(t, &before);
    double start = ig_clock_seconds(), cpu = cpu_seconds(), now;
    do {
        /* One that is slow must not hold up the others: that would measure another depth. */
        for (int i = 0; i < TICKETS; i++, at = (at + 1) % TICKETS)
            if (i == TICKETS - 1 || t->ops->poll(t, tickets[at])) {
                check(t->ops->wait(t, tickets[at], &err), &err);
                tickets[at] = start_read(t, at, n_blocks, piece);
            }
        now = ig_clock_seconds();
    } while (now - start < limit);
    t->ops->stats(t, &after);
    cpu = cpu_seconds() - cpu;
    for (int i = 0; i < TICKETS; i++) check(t->ops->wait(t, tickets[i], &err), &err);
    double bytes = (double)(after.bytes_read - before.bytes_read), seconds = now - start;
    printf("%-8s %3u KiB: %7.0f IOPS, %6.3f GB/s, CPU %3.0f %%\n", method, piece * 4, bytes / 4096 / piece / seconds,
           bytes * 1e-9 / seconds, 100 * cpu / seconds);
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: disk DIRECTORY [MiB [seconds]]\n");
        return 2;
    }
    uint32_t n_blocks = (uint32_t)(argc > 2 ? atoi(argv[2]) : 1024) * 256;
    double limit = argc > 3 ? atof(argv[3]) : 3;
    frames = aligned_alloc(2 << 20, (size_t)TICKETS * PIECES * BLOCKS_MAX * IG_FRAME_BYTES);
    if (!frames || !n_blocks) return 1;
    madvise(frames, (size_t)TICKETS * PIECES * BLOCKS_MAX * IG_FRAME_BYTES, MADV_HUGEPAGE); /* as the pool does */
    memset(frames, 1, (size_t)TICKETS * PIECES * BLOCKS_MAX * IG_FRAME_BYTES);
    for (int no_uring = 0; no_uring < 2; no_uring++) {
        ig_tier_disk_options o = {.directory = argv[1],
                                  .cap_bytes = (uint64_t)n_blocks * IG_FRAME_BYTES,
                                  .depth = DEPTH,
                                  .no_uring = no_uring};
        ig_tier *t;
        ig_tier_info info;
        ig_error err;
        check(ig_tier_disk_open(&t, &o, &err), &err);
        t->ops->info(t, &info);
        if (!info.is_direct) printf("%s goes through the page cache\n", argv[1]);
        fill(t, n_blocks);
        for (uint32_t piece = 1; piece <= BLOCKS_MAX; piece *= 4)
            read_random(t, info.has_ring ? "io_uring" : "threads", n_blocks, piece, limit);
        t->ops->close(t);
    }
    free(frames);
    return 0;
}
