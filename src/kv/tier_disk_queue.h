/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests of the disk tier, and the queue that carries them out on threads of its own: one that drives an io_uring, or
 * several that call pread and pwritev. With io_uring the caller's thread starts a few reads that are waited for
 * itself, never more than the device accepts at once: so what it computes meanwhile really overlaps. The queue does not
 * look at results, retry, or know of slots.
 */
#ifndef IG_KV_TIER_DISK_QUEUE_H
#define IG_KV_TIER_DISK_QUEUE_H

#include <pthread.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <xxhash.h>

#include "kv/frame_pool.h"
#include "kv/tier_disk.h"

/* In the order in which requests are taken. */
typedef enum ig_disk_kind { IG_DISK_READ, IG_DISK_READ_AHEAD, IG_DISK_WRITE, IG_DISK_KINDS } ig_disk_kind;

enum { IG_DISK_BLOCKS_MAX = 32 }; /* of one request: 128 KiB */
enum { IG_DISK_THREADS = 16 };    /* without io_uring; they sleep in the kernel, as many requests as the device sees */

/* Consecutive blocks of the file. Those of a read go to frames that follow one another in memory, or it is staged: it
 * goes to a buffer of the queue's, from where the queue's threads copy what is wanted. Belongs to the queue from
 * start() until it is reaped. */
typedef struct ig_disk_request {
    struct ig_disk_request *next; /* in a list of its holder */
    ig_slot first;
    uint32_t n_blocks, n_done; /* n_done: blocks moved by earlier tries */
    uint32_t batch;
    uint32_t n_idle_tries; /* in a row, that moved no block */
    ig_disk_kind kind;
    bool is_staged, is_in_flight;
    int result;       /* of the last try: bytes or -errno */
    uint8_t *staging; /* the queue's, while it moves */
    union {
        struct iovec from[IG_DISK_BLOCKS_MAX]; /* of a write */
        struct {
            uint8_t *frame;       /* NULL: not wanted, read because it lies between others */
            uint64_t hash;        /* of what came */
        } to[IG_DISK_BLOCKS_MAX]; /* of a read */
    };
} ig_disk_request;

static inline uint64_t ig_disk_hash(const void *frame) { return XXH3_64bits(frame, IG_FRAME_BYTES); }

static inline off_t ig_disk_request_offset(const ig_disk_request *r) {
    return (off_t)(r->first + (uint64_t)r->n_done) * IG_FRAME_BYTES;
}

typedef struct ig_disk_list {
    ig_disk_request *first, *last;
} ig_disk_list;

typedef struct ig_disk_ring ig_disk_ring; /* io_uring and what its thread knows */

typedef struct ig_disk_queue {
    int fd;
    ig_disk_ring *ring;                /* NULL: threads */
    ig_disk_ring *own;                 /* of the caller's thread, for a few reads that are waited for; NULL: none */
    int own_broken;                    /* -errno: that one has failed */
    uint8_t *staging, *staging_memory; /* [n_staging][IG_DISK_STAGED_MAX] frames, somewhere in the latter */
    unsigned n_staging;
    ig_disk_list added[IG_DISK_KINDS]; /* by the caller, not started yet */

    pthread_mutex_t lock; /* of all below */
    pthread_cond_t work, done;
    ig_disk_list waiting[IG_DISK_KINDS]; /* started */
    ig_disk_request *finished;
    /* Requests with the device, of each kind: a few saturate it, and more would delay what is more urgent. */
    unsigned n_moving[IG_DISK_KINDS], most_moving[IG_DISK_KINDS];
    int broken; /* -errno: the threads have given up */
    bool stop;

    unsigned n_threads, n_serving;
    pthread_t threads[IG_DISK_THREADS];
} ig_disk_queue;

/* depth: requests that the device gets at once, by io_uring. n_staging: buffers, at most IG_DISK_STAGING_MAX. The queue
 * must stay where it is until it is closed. */
ig_status ig_disk_queue_open(ig_disk_queue *q, int fd, unsigned depth, unsigned n_staging, bool no_uring,
                             ig_error *err);
/* Nothing may be under way. */
void ig_disk_queue_close(ig_disk_queue *q);
/* Adds a request; none starts before start(). */
void ig_disk_queue_add(ig_disk_queue *q, ig_disk_request *r);
void ig_disk_queue_start(ig_disk_queue *q);
/* The number of requests that came back and were put in done[], at most cap; with `wait` at least one, so there must be
 * one under way. Negative errno: the queue is broken. */
ssize_t ig_disk_queue_reap(ig_disk_queue *q, ig_disk_request **done, size_t cap, bool wait);
/* Of a queue that is broken: nothing moves any more afterwards, and nothing will come back. */
void ig_disk_queue_halt(ig_disk_queue *q);

/* For the queue's threads. Their work is short and waited for, while the threads that compute take all they get: a
 * short time slice brings a thread's turn soon (Linux 6.12 and later; nobody loses time by it). */
void ig_disk_queue_ask_for_turns(void);
/* Takes a request, and waits for one if `wait`. NULL: there is none now, or with `wait`: the queue closes. */
ig_disk_request *ig_disk_queue_take(ig_disk_queue *q, bool wait);
void ig_disk_queue_finish(ig_disk_queue *q, ig_disk_request **r, size_t n);
void ig_disk_queue_break(ig_disk_queue *q, int error);
/* A try has ended with r->result: what it read goes to its frames, hashed. */
void ig_disk_request_arrived(ig_disk_request *r);
/* Where a read's next try goes. */
static inline uint8_t *ig_disk_request_memory(const ig_disk_request *r) {
    return r->is_staged ? r->staging : r->to[r->n_done].frame;
}

/* `wakes`: a thread serves it, and can be woken. NULL: the kernel has no io_uring, refuses it, or there is no memory
 * for it. */
ig_disk_ring *ig_disk_ring_open(unsigned depth, uint8_t *staging, unsigned n_staging, bool wakes);
void ig_disk_ring_close(ig_disk_ring *ring);
void ig_disk_ring_wake(ig_disk_ring *ring);
/* The ring's thread, until the queue closes or breaks. */
void *ig_disk_ring_serve(void *queue);
/* Of the ring without a thread. Whether it has room for these requests; takes them and starts them; and gives back what
 * is done, with `wait` at least one if any was started. Negative errno: the ring is broken. */
bool ig_disk_ring_has_room(const ig_disk_ring *ring, const ig_disk_list *list);
int ig_disk_ring_start(ig_disk_ring *ring, ig_disk_queue *q, ig_disk_list *list);
ssize_t ig_disk_ring_reap(ig_disk_ring *ring, ig_disk_request **done, size_t cap, bool wait);

#endif
