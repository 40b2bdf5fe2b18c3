/* SPDX-License-Identifier: Apache-2.0
 *
 * The disk tier's requests by io_uring: many are prepared, one system call starts them, and those done are found in
 * shared memory without a call.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <time.h>

#include "kv/tier_disk_queue.h"

struct ig_disk_uring {
    int fd;
    unsigned n_waiting; /* prepared, not taken by the kernel yet */
    struct io_uring ring;
};

/* One operation that does nothing: a sandbox may allow a ring to be made and yet not to be used. */
static bool works(struct io_uring *ring) {
    struct io_uring_cqe *cqe;
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
    if (!sqe) return false;
    io_uring_prep_nop(sqe);
    int n;
    do n = io_uring_submit_and_wait(ring, 1);
    while (n == -EINTR);
    if (n < 0 || io_uring_peek_cqe(ring, &cqe) != 0) return false;
    bool ok = cqe->res == 0;
    io_uring_cqe_seen(ring, cqe);
    return ok;
}

ig_disk_uring *ig_disk_uring_open(int fd, unsigned depth) {
    ig_disk_uring *q = calloc(1, sizeof *q);
    if (!q) return NULL;
    q->fd = fd;
    if (io_uring_queue_init(depth, &q->ring, 0) == 0) {
        if (works(&q->ring)) return q;
        io_uring_queue_exit(&q->ring);
    }
    free(q);
    return NULL;
}

void ig_disk_uring_close(ig_disk_uring *q) {
    if (!q) return;
    io_uring_queue_exit(&q->ring);
    free(q);
}

void ig_disk_uring_add(ig_disk_uring *q, ig_disk_request *r) {
    /* Never NULL: the ring has a place for each of the `depth` requests. */
    struct io_uring_sqe *sqe = io_uring_get_sqe(&q->ring);
    const struct iovec *frames = r->frames + r->n_done;
    unsigned n = r->n_blocks - r->n_done;
    if (r->is_write)
        io_uring_prep_writev(sqe, q->fd, frames, n, (__u64)ig_disk_request_offset(r));
    else
        io_uring_prep_readv(sqe, q->fd, frames, n, (__u64)ig_disk_request_offset(r));
    io_uring_sqe_set_data(sqe, r);
    q->n_waiting++;
}

static bool is_passing(int error) { return error == -EINTR || error == -EAGAIN || error == -EBUSY; }

/* Hands the kernel what is prepared and waits for n_wanted completions; 0 or -errno. */
static int enter(ig_disk_uring *q, unsigned n_wanted) {
    int n = io_uring_submit_and_wait(&q->ring, n_wanted);
    if (n >= 0) {
        q->n_waiting -= (unsigned)n;
        return 0;
    }
    /* Short of memory for requests: some time helps, and there may be nothing under way to wait for. */
    if (n == -EAGAIN || n == -EBUSY) nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    return is_passing(n) ? 0 : n;
}

void ig_disk_uring_start(ig_disk_uring *q) {
    /* An error that lasts comes back from reap(). */
    if (q->n_waiting) enter(q, 0);
}

ssize_t ig_disk_uring_reap(ig_disk_uring *q, ig_disk_request **done, size_t cap, bool wait) {
    struct io_uring_cqe *cqe;
    size_t n = 0;
    for (;;) {
        while (n < cap && io_uring_peek_cqe(&q->ring, &cqe) == 0) {
            ig_disk_request *r = io_uring_cqe_get_data(cqe);
            r->result = cqe->res;
            done[n++] = r;
            io_uring_cqe_seen(&q->ring, cqe);
        }
        if (n || (!wait && !q->n_waiting)) return (ssize_t)n;
        int e = enter(q, wait ? 1 : 0);
        if (e) return e;
        if (!wait) return 0;
    }
}
