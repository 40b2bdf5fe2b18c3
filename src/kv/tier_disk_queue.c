/* SPDX-License-Identifier: Apache-2.0
 *
 * The queue between the disk tier and the threads that do its input and output, and the plain kind of those threads.
 * A request is touched by one side at a time, so that the lists are all that needs the lock.
 */
#define _GNU_SOURCE
#include "kv/tier_disk_queue.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"

enum {
    STAGING_BYTES = IG_DISK_STAGED_MAX * IG_FRAME_BYTES,
    HUGE_PAGE = 2 << 20,
    SLICE = 100000, /* ns, the least that the kernel takes */
    AHEAD = 16,     /* requests ahead with the device: what is wanted at once waits for those */
    OWN = 16,       /* reads that the caller's thread starts itself: each takes it some 2 us, and 10 together; */
    OWN_BLOCKS = 64 /* of so many blocks: a layer that passes by in pieces is hashed and copied by the queue's thread */
};

static void append(ig_disk_list *to, ig_disk_list *from) {
    if (!from->first) return;
    if (to->first)
        to->last->next = from->first;
    else
        to->first = from->first;
    to->last = from->last;
    *from = (ig_disk_list){0};
}

static ig_disk_request *pop(ig_disk_list *list) {
    ig_disk_request *r = list->first;
    if (r) list->first = r->next;
    return r;
}

/* ---- the threads' side ------------------------------------------------------ */

ig_disk_request *ig_disk_queue_take(ig_disk_queue *q, bool wait) {
    ig_disk_request *r = NULL;
    pthread_mutex_lock(&q->lock);
    for (;;) {
        for (int k = 0; k < IG_DISK_KINDS && !r; k++)
            if (q->n_moving[k] < q->most_moving[k] && (r = pop(&q->waiting[k]))) q->n_moving[k]++;
        if (r || !wait || q->stop) break;
        pthread_cond_wait(&q->work, &q->lock);
    }
    pthread_mutex_unlock(&q->lock);
    return r;
}

void ig_disk_queue_finish(ig_disk_queue *q, ig_disk_request **r, size_t n) {
    if (!n) return;
    pthread_mutex_lock(&q->lock);
    for (size_t i = 0; i < n; i++) {
        q->n_moving[r[i]->kind]--;
        r[i]->next = q->finished;
        q->finished = r[i];
    }
    pthread_cond_signal(&q->done);
    pthread_mutex_unlock(&q->lock);
}

void ig_disk_queue_break(ig_disk_queue *q, int error) {
    pthread_mutex_lock(&q->lock);
    q->broken = error;
    pthread_cond_signal(&q->done);
    pthread_mutex_unlock(&q->lock);
}

void ig_disk_request_arrived(ig_disk_request *r) {
    uint32_t n = r->result > 0 && r->kind != IG_DISK_WRITE ? (uint32_t)r->result / IG_FRAME_BYTES : 0;
    const uint8_t *from = n ? ig_disk_request_memory(r) : NULL;
    for (uint32_t i = r->n_done; i < r->n_done + n && i < r->n_blocks; i++, from += IG_FRAME_BYTES) {
        if (!r->to[i].frame) continue;
        r->to[i].hash = ig_disk_hash(from);
        if (r->is_staged) memcpy(r->to[i].frame, from, IG_FRAME_BYTES);
    }
}

void ig_disk_queue_ask_for_turns(void) {
    /* The kernel's struct sched_attr as it was first; not every C library has it. */
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period; /* ns */
    } a = {.size = 48, .policy = SCHED_OTHER, .runtime = SLICE};
    a.nice = getpriority(PRIO_PROCESS, 0);
    syscall(SYS_sched_setattr, 0, &a, 0); /* where it is refused all works, later */
}

static void *serve(void *queue) {
    ig_disk_queue *q = queue;
    ig_disk_queue_ask_for_turns();
    pthread_mutex_lock(&q->lock);
    uint8_t *staging = q->staging + (size_t)q->n_serving++ * STAGING_BYTES;
    pthread_mutex_unlock(&q->lock);
    for (ig_disk_request *r; (r = ig_disk_queue_take(q, true));) {
        uint32_t n = r->n_blocks - r->n_done;
        off_t at = ig_disk_request_offset(r);
        r->staging = staging;
        ssize_t moved = r->kind == IG_DISK_WRITE
                            ? pwritev(q->fd, r->from + r->n_done, (int)n, at)
                            : pread(q->fd, ig_disk_request_memory(r), (size_t)n * IG_FRAME_BYTES, at);
        r->result = moved < 0 ? -errno : (int)moved;
        ig_disk_request_arrived(r);
        ig_disk_queue_finish(q, &r, 1);
    }
    return NULL;
}

/* ---- the tier's side -------------------------------------------------------- */

/* The device is twice as fast where a buffer is one piece of physical memory, so all of them share a large page if they
 * are as many as fill one. */
static bool take_staging(ig_disk_queue *q) {
    q->staging_memory = ig_pages_reserve((size_t)q->n_staging * STAGING_BYTES + HUGE_PAGE);
    if (!q->staging_memory) return false;
    q->staging = q->staging_memory + (HUGE_PAGE - (uintptr_t)q->staging_memory % HUGE_PAGE);
    if (q->n_staging * STAGING_BYTES >= HUGE_PAGE) ig_pages_want_large(q->staging, HUGE_PAGE);
    return true;
}

ig_status ig_disk_queue_open(ig_disk_queue *q, int fd, unsigned depth, unsigned n_staging, bool no_uring,
                             ig_error *err) {
    *q = (ig_disk_queue){.fd = fd, .n_staging = n_staging};
    if (!take_staging(q)) return ig_fail_memory(err, "staging of the KV spill file", (size_t)n_staging * STAGING_BYTES);
    unsigned n_own = n_staging / 4; /* buffers of the caller's ring */
    if (!no_uring)
        q->ring = ig_disk_ring_open(depth, q->staging + (size_t)n_own * STAGING_BYTES, n_staging - n_own, true);
    if (q->ring) q->own = ig_disk_ring_open(OWN, q->staging, n_own, false);
    unsigned most = q->ring ? depth : IG_DISK_THREADS;
    q->most_moving[IG_DISK_READ] = most;
    q->most_moving[IG_DISK_READ_AHEAD] = most / 2 < AHEAD ? most / 2 : AHEAD;
    q->most_moving[IG_DISK_WRITE] = most / 2;
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->work, NULL);
    pthread_cond_init(&q->done, NULL);
    unsigned wanted = q->ring ? 1 : n_staging < IG_DISK_THREADS ? n_staging : IG_DISK_THREADS;
    ig_status s = IG_OK;
    while (q->n_threads < wanted && !s) {
        s = ig_thread_start(&q->threads[q->n_threads], q->ring ? ig_disk_ring_serve : serve, q,
                            "a thread for the KV spill file", err);
        if (!s) q->n_threads++;
    }
    if (q->n_threads) return IG_OK; /* one will do */
    ig_disk_queue_close(q);
    return s;
}

void ig_disk_queue_close(ig_disk_queue *q) {
    pthread_mutex_lock(&q->lock);
    q->stop = true;
    pthread_cond_broadcast(&q->work);
    pthread_mutex_unlock(&q->lock);
    if (q->ring) ig_disk_ring_wake(q->ring);
    for (unsigned i = 0; i < q->n_threads; i++) pthread_join(q->threads[i], NULL);
    ig_disk_ring_close(q->ring);
    ig_disk_ring_close(q->own);
    ig_pages_release(q->staging_memory, (size_t)q->n_staging * STAGING_BYTES + HUGE_PAGE);
    pthread_cond_destroy(&q->done);
    pthread_cond_destroy(&q->work);
    pthread_mutex_destroy(&q->lock);
}

void ig_disk_queue_add(ig_disk_queue *q, ig_disk_request *r) {
    r->next = NULL;
    append(&q->added[r->kind], &(ig_disk_list){r, r});
}

/* Whether the caller's thread starts the reads that were added. */
static bool are_few(const ig_disk_queue *q) {
    const ig_disk_list *reads = &q->added[IG_DISK_READ];
    unsigned n_blocks = 0;
    if (!reads->first || !q->own || q->own_broken) return false;
    for (const ig_disk_request *r = reads->first; r && n_blocks <= OWN_BLOCKS; r = r->next) n_blocks += r->n_blocks;
    return n_blocks <= OWN_BLOCKS && ig_disk_ring_has_room(q->own, reads);
}

void ig_disk_queue_start(ig_disk_queue *q) {
    bool any = false;
    if (are_few(q)) q->own_broken = ig_disk_ring_start(q->own, q, &q->added[IG_DISK_READ]);
    for (int k = 0; k < IG_DISK_KINDS; k++) any = any || q->added[k].first;
    if (!any) return;
    pthread_mutex_lock(&q->lock);
    for (int k = 0; k < IG_DISK_KINDS; k++) append(&q->waiting[k], &q->added[k]);
    if (!q->ring) pthread_cond_broadcast(&q->work);
    pthread_mutex_unlock(&q->lock);
    if (q->ring) ig_disk_ring_wake(q->ring);
}

ssize_t ig_disk_queue_reap(ig_disk_queue *q, ig_disk_request **done, size_t cap, bool wait) {
    size_t n = 0;
    ssize_t own = q->own ? ig_disk_ring_reap(q->own, done, cap, wait) : 0;
    if (own || q->own_broken) return own ? own : q->own_broken;
    pthread_mutex_lock(&q->lock);
    while (wait && !q->finished && !q->broken) pthread_cond_wait(&q->done, &q->lock);
    for (; n < cap && q->finished; n++) {
        done[n] = q->finished;
        q->finished = q->finished->next;
    }
    ssize_t result = n ? (ssize_t)n : q->broken;
    pthread_mutex_unlock(&q->lock);
    return result;
}

static bool is_moving(const ig_disk_queue *q) {
    unsigned n = 0;
    for (int k = 0; k < IG_DISK_KINDS; k++) n += q->n_moving[k];
    return n > 0;
}

void ig_disk_queue_halt(ig_disk_queue *q) {
    ig_disk_request *done[OWN];
    pthread_mutex_lock(&q->lock);
    for (int k = 0; k < IG_DISK_KINDS; k++) q->waiting[k] = q->added[k] = (ig_disk_list){0};
    while (!q->broken && is_moving(q)) pthread_cond_wait(&q->done, &q->lock); /* the ring that is whole goes on */
    pthread_mutex_unlock(&q->lock);
    while (q->own && !q->own_broken && ig_disk_ring_reap(q->own, done, OWN, true) > 0) continue;
}
