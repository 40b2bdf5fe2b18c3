/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests of the disk tier and the two ways to have them carried out, with the same four functions: io_uring, and
 * threads that call preadv and pwritev. Neither looks at results, retries, or knows of slots: that is the tier's part.
 */
#ifndef IG_KV_TIER_DISK_QUEUE_H
#define IG_KV_TIER_DISK_QUEUE_H

#include <sys/types.h>
#include <sys/uio.h>

#include "kv/pool.h"
#include "kv/tier.h"

enum { IG_DISK_BLOCKS_MAX = 32 }; /* of one request: 128 KiB */

/* Consecutive blocks of the file, to or from frames anywhere. */
typedef struct ig_disk_request {
    struct ig_disk_request *next; /* in a list of its holder */
    ig_slot first;
    uint32_t n_blocks, n_done; /* n_done: blocks moved by earlier tries */
    uint32_t batch;
    uint32_t n_idle_tries; /* in a row, that moved no block */
    bool is_write, is_in_flight;
    int result; /* of the last try: bytes or -errno */
    struct iovec frames[IG_DISK_BLOCKS_MAX];
} ig_disk_request;

static inline off_t ig_disk_request_offset(const ig_disk_request *r) {
    return (off_t)(r->first + (uint64_t)r->n_done) * IG_FRAME_BYTES;
}

typedef struct ig_disk_uring ig_disk_uring;
/* NULL: the kernel has no io_uring, refuses it, or there is no memory for it. */
ig_disk_uring *ig_disk_uring_open(int fd, unsigned depth);
void ig_disk_uring_close(ig_disk_uring *q);
/* Adds a request; at most `depth` are in the queue at once. Nothing starts before start(). */
void ig_disk_uring_add(ig_disk_uring *q, ig_disk_request *r);
void ig_disk_uring_start(ig_disk_uring *q);
/* The number of requests that came back and were put in done[], at most cap; with `wait` at least one, so there must be
 * one under way. Negative errno: the queue is broken, nothing will come back. */
ssize_t ig_disk_uring_reap(ig_disk_uring *q, ig_disk_request **done, size_t cap, bool wait);

typedef struct ig_disk_threads ig_disk_threads;
ig_status ig_disk_threads_open(ig_disk_threads **out, int fd, ig_error *err);
void ig_disk_threads_close(ig_disk_threads *q);
void ig_disk_threads_add(ig_disk_threads *q, ig_disk_request *r);
void ig_disk_threads_start(ig_disk_threads *q);
ssize_t ig_disk_threads_reap(ig_disk_threads *q, ig_disk_request **done, size_t cap, bool wait);

#endif
