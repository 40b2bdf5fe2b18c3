/* SPDX-License-Identifier: Apache-2.0
 *
 * Two rings of io_uring. The first has a thread, which takes requests from the queue as far as the ring has room, hands
 * them to the kernel in one call, sleeps in the same call until something happens, and gives back what is done. New
 * requests wake it through an eventfd that the ring always reads from.
 *
 * Why a thread: with more requests than the device has tags for (some hundred), and a prefetch is often that, the call
 * that submits sleeps until there are tags again, 10 ms for 1024 random blocks where their transfer takes 15.
 *
 * The second is for a few reads that somebody waits for, and the caller's own thread drives it: where all processors
 * compute, the turns of another thread, to start a read and to give it back, take as long as the device.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "kv/tier_disk_queue.h"

enum {
    AT_ONCE = 64,       /* requests taken and given back under one lock */
    LAST_WAITS = 100000 /* of 100 us, for a device that may never answer */
};

struct ig_disk_ring {
    unsigned depth, n_in_ring;             /* requests; the read of the eventfd comes on top */
    int event;                             /* -1: of the caller's ring */
    bool is_armed;                         /* the read of it is in the ring */
    uint64_t counts;                       /* what it reads */
    uint8_t *staging[IG_DISK_STAGING_MAX]; /* those not in use */
    unsigned n_staging;
    ig_disk_request *held; /* waits for one */
    struct io_uring io;
};

/* One operation that does nothing: a sandbox may allow a ring to be made and yet not to be used. */
static bool works(struct io_uring *io) {
    struct io_uring_cqe *cqe;
    struct io_uring_sqe *sqe = io_uring_get_sqe(io);
    if (!sqe) return false;
    io_uring_prep_nop(sqe);
    int n;
    do n = io_uring_submit_and_wait(io, 1);
    while (n == -EINTR);
    if (n < 0 || io_uring_peek_cqe(io, &cqe) != 0) return false;
    bool ok = cqe->res == 0;
    io_uring_cqe_seen(io, cqe);
    return ok;
}

/* A ring that reads and writes and does nothing else, whoever gets hold of it: operations of a ring pass by the filters
 * of calls that a sandbox sets. */
static bool open_ring(struct io_uring *io, unsigned depth) {
    static const uint8_t operations[] = {IORING_OP_NOP, IORING_OP_READ, IORING_OP_WRITEV};
    struct io_uring_restriction only[3] = {{0}};
    for (size_t i = 0; i < 3; i++) {
        only[i].opcode = IORING_RESTRICTION_SQE_OP;
        only[i].sqe_op = operations[i];
    }
    if (io_uring_queue_init(depth, io, IORING_SETUP_R_DISABLED) != 0) return false;
    /* liburing 2.3 declares functions for both, but has none. */
    if (syscall(SYS_io_uring_register, io->ring_fd, IORING_REGISTER_RESTRICTIONS, only, 3) == 0 &&
        syscall(SYS_io_uring_register, io->ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0) == 0 && works(io))
        return true;
    io_uring_queue_exit(io);
    return false;
}

ig_disk_ring *ig_disk_ring_open(unsigned depth, uint8_t *staging, unsigned n_staging, bool wakes) {
    ig_disk_ring *ring = calloc(1, sizeof *ring);
    if (!ring) return NULL;
    ring->depth = depth;
    while (ring->n_staging < n_staging) {
        ring->staging[ring->n_staging++] = staging;
        staging += IG_DISK_STAGED_MAX * IG_FRAME_BYTES;
    }
    ring->event = wakes ? eventfd(0, EFD_CLOEXEC) : -1;
    if ((ring->event >= 0 || !wakes) && open_ring(&ring->io, depth + 1)) return ring;
    if (ring->event >= 0) close(ring->event);
    free(ring);
    return NULL;
}

void ig_disk_ring_close(ig_disk_ring *ring) {
    if (!ring) return;
    io_uring_queue_exit(&ring->io);
    if (ring->event >= 0) close(ring->event);
    free(ring);
}

void ig_disk_ring_wake(ig_disk_ring *ring) {
    ssize_t n;
    do n = write(ring->event, &(uint64_t){1}, sizeof(uint64_t));
    while (n < 0 && errno == EINTR);
}

/* False: it is held until there is a buffer for it. */
static bool put(ig_disk_ring *ring, ig_disk_queue *q, ig_disk_request *r) {
    if (r->is_staged && !ring->n_staging) {
        ring->held = r;
        return false;
    }
    if (r->is_staged) r->staging = ring->staging[--ring->n_staging];
    struct io_uring_sqe *sqe = io_uring_get_sqe(&ring->io);
    unsigned n = r->n_blocks - r->n_done;
    __u64 at = (__u64)ig_disk_request_offset(r);
    if (r->kind == IG_DISK_WRITE)
        io_uring_prep_writev(sqe, q->fd, r->from + r->n_done, n, at);
    else
        io_uring_prep_read(sqe, q->fd, ig_disk_request_memory(r), n * IG_FRAME_BYTES, at);
    io_uring_sqe_set_data(sqe, r);
    ring->n_in_ring++;
    return true;
}

/* Puts requests into the ring: never more than it has places for, so that there is always an entry. */
static void fill(ig_disk_ring *ring, ig_disk_queue *q, bool stop) {
    if (!ring->is_armed && !stop) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(&ring->io);
        io_uring_prep_read(sqe, ring->event, &ring->counts, sizeof ring->counts, 0);
        io_uring_sqe_set_data(sqe, NULL);
        ring->is_armed = true;
    }
    ig_disk_request *r = ring->held;
    ring->held = NULL;
    while (ring->n_in_ring < ring->depth && (r || (r = ig_disk_queue_take(q, false)))) {
        if (!put(ring, q, r)) return;
        r = NULL;
    }
    ring->held = r;
}

/* At most cap requests that are done. */
static size_t collect(ig_disk_ring *ring, ig_disk_request **done, size_t cap) {
    struct io_uring_cqe *cqe;
    size_t n = 0;
    while (n < cap && io_uring_peek_cqe(&ring->io, &cqe) == 0) {
        ig_disk_request *r = io_uring_cqe_get_data(cqe);
        if (r) {
            r->result = cqe->res;
            ig_disk_request_arrived(r);
            if (r->is_staged) ring->staging[ring->n_staging++] = r->staging;
            done[n++] = r;
            ring->n_in_ring--;
        } else {
            ring->is_armed = false;
        }
        io_uring_cqe_seen(&ring->io, cqe);
    }
    return n;
}

/* Gives back what is done. */
static void drain(ig_disk_ring *ring, ig_disk_queue *q) {
    ig_disk_request *done[AT_ONCE];
    size_t n;
    do ig_disk_queue_finish(q, done, n = collect(ring, done, AT_ONCE));
    while (n == AT_ONCE);
}

static void nap(void) { nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL); }

/* The ring is of no use any more: what the kernel has of it still moves. It is told to the thread that started it. */
static void await_kernel(ig_disk_ring *ring) {
    if (ring->event >= 0) ig_disk_ring_wake(ring);
    for (int i = 0; i < LAST_WAITS; i++) {
        if (io_uring_cq_ready(&ring->io) + io_uring_sq_ready(&ring->io) >= ring->n_in_ring + ring->is_armed) return;
        nap();
    }
}

/* Starts what is in the ring, and waits until `wait` requests are done; negative errno if the ring is of no use. */
static int enter(ig_disk_ring *ring, unsigned wait) {
    int n = io_uring_submit_and_wait(&ring->io, wait);
    if (n >= 0 || n == -EINTR) return 0;
    if (n == -EAGAIN || n == -EBUSY) {
        nap(); /* short of memory for requests: time helps, and what is done leaves room */
        return 0;
    }
    await_kernel(ring);
    return n;
}

static bool is_stopped(ig_disk_queue *q) {
    pthread_mutex_lock(&q->lock);
    bool stop = q->stop;
    pthread_mutex_unlock(&q->lock);
    return stop;
}

void *ig_disk_ring_serve(void *queue) {
    ig_disk_queue *q = queue;
    ig_disk_ring *ring = q->ring;
    ig_disk_queue_ask_for_turns();
    for (;;) {
        /* The queue wakes the ring after it has set `stop`, so that the read comes back: the kernel must not hold on
         * to memory that is freed. */
        bool stop = is_stopped(q);
        if (stop && !ring->is_armed && !ring->n_in_ring) return NULL;
        fill(ring, q, stop);
        int failed = enter(ring, 1);
        drain(ring, q);
        if (failed) {
            ig_disk_queue_break(q, failed);
            return NULL;
        }
    }
}

/* ---- the caller's ring -------------------------------------------------------- */

bool ig_disk_ring_has_room(const ig_disk_ring *ring, const ig_disk_list *list) {
    unsigned n = ring->n_in_ring, n_staged = 0;
    for (const ig_disk_request *r = list->first; r && n <= ring->depth; r = r->next) n++, n_staged += r->is_staged;
    return n <= ring->depth && n_staged <= ring->n_staging;
}

int ig_disk_ring_start(ig_disk_ring *ring, ig_disk_queue *q, ig_disk_list *list) {
    for (ig_disk_request *r = list->first, *next; r; r = next) {
        next = r->next;
        put(ring, q, r);
    }
    *list = (ig_disk_list){0};
    return enter(ring, 0);
}

ssize_t ig_disk_ring_reap(ig_disk_ring *ring, ig_disk_request **done, size_t cap, bool wait) {
    size_t n = collect(ring, done, cap);
    while (wait && !n && ring->n_in_ring) {
        int failed = enter(ring, 1);
        n = collect(ring, done, cap);
        if (failed && !n) return failed;
    }
    return (ssize_t)n;
}
