/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests of the disk tier, and the queue that carries them out on threads of its own: one that drives an io_uring, or
 * several that call preadv and pwritev. The caller's thread never waits for the device to accept something, so what it
 * computes meanwhile really overlaps. The queue does not look at results, retry, or know of slots.
 */
#ifndef IG_KV_TIER_DISK_QUEUE_H
#define IG_KV_TIER_DISK_QUEUE_H

#include <pthread.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "kv/pool.h"
#include "kv/tier.h"

enum { IG_DISK_BLOCKS_MAX = 32 }; /* of one request: 128 KiB */
enum { IG_DISK_THREADS = 16 };    /* without io_uring; they sleep in the kernel, as many requests as the device sees */

/* Consecutive blocks of the file, to or from frames anywhere. Belongs to the queue from start() until it is reaped. */
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

typedef struct ig_disk_list {
    ig_disk_request *first, *last;
} ig_disk_list;

typedef struct ig_disk_ring ig_disk_ring; /* io_uring and what its thread knows */

typedef struct ig_disk_queue {
    int fd;
    ig_disk_ring *ring;                     /* NULL: threads */
    ig_disk_list added_reads, added_writes; /* by the caller, not started yet */

    pthread_mutex_t lock; /* of all below */
    pthread_cond_t work, done;
    ig_disk_list reads, writes; /* started; reads go first */
    ig_disk_request *finished;
    unsigned n_writing, max_writing; /* writes with the device: a few saturate it, and more would delay reads */
    int broken;                      /* -errno: the threads have given up */
    bool stop;

    unsigned n_threads;
    pthread_t threads[IG_DISK_THREADS];
} ig_disk_queue;

/* depth: requests that the device gets at once, by io_uring. The queue must stay where it is until it is closed. */
ig_status ig_disk_queue_open(ig_disk_queue *q, int fd, unsigned depth, bool no_uring, ig_error *err);
/* Nothing may be under way. */
void ig_disk_queue_close(ig_disk_queue *q);
/* Adds a request; none starts before start(). */
void ig_disk_queue_add(ig_disk_queue *q, ig_disk_request *r);
void ig_disk_queue_start(ig_disk_queue *q);
/* The number of requests that came back and were put in done[], at most cap; with `wait` at least one, so there must be
 * one under way. Negative errno: the queue is broken, nothing will come back. */
ssize_t ig_disk_queue_reap(ig_disk_queue *q, ig_disk_request **done, size_t cap, bool wait);

/* For the queue's threads. Takes up to cap requests, and waits for one if `wait`; 0 otherwise means: none now, or with
 * `wait`: the queue closes. */
size_t ig_disk_queue_take(ig_disk_queue *q, ig_disk_request **r, size_t cap, bool wait);
void ig_disk_queue_finish(ig_disk_queue *q, ig_disk_request **r, size_t n);
void ig_disk_queue_break(ig_disk_queue *q, int error);

/* NULL: the kernel has no io_uring, refuses it, or there is no memory for it. */
ig_disk_ring *ig_disk_ring_open(unsigned depth);
void ig_disk_ring_close(ig_disk_ring *ring);
void ig_disk_ring_wake(ig_disk_ring *ring);
/* The ring's thread, until the queue closes or breaks. */
void *ig_disk_ring_serve(void *queue);

#endif
