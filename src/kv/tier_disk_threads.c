/* SPDX-License-Identifier: Apache-2.0
 *
 * The disk tier's requests by threads: each takes a request, calls preadv or pwritev, and puts it on the list of those
 * done. The threads touch a request only between taking it and putting it back, so that all the rest of the tier
 * needs no lock.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "kv/tier_disk_queue.h"

enum { N_THREADS = 16 }; /* they sleep in the kernel: what counts is how many requests the device sees at once */

struct ig_disk_threads {
    int fd;
    unsigned n_threads;
    pthread_t threads[N_THREADS];
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    ig_disk_request *added_first, *added_last; /* by the caller, not started yet */
    ig_disk_request *todo_first, *todo_last;   /* under the lock, as all below */
    ig_disk_request *finished;
    bool stop;
};

static ig_disk_request *take_work(ig_disk_threads *q) {
    pthread_mutex_lock(&q->lock);
    while (!q->todo_first && !q->stop) pthread_cond_wait(&q->work, &q->lock);
    ig_disk_request *r = q->todo_first;
    if (r) q->todo_first = r->next;
    pthread_mutex_unlock(&q->lock);
    return r;
}

static void *serve(void *arg) {
    ig_disk_threads *q = arg;
    for (ig_disk_request *r; (r = take_work(q));) {
        const struct iovec *frames = r->frames + r->n_done;
        int n = (int)(r->n_blocks - r->n_done);
        off_t at = ig_disk_request_offset(r);
        ssize_t moved = r->is_write ? pwritev(q->fd, frames, n, at) : preadv(q->fd, frames, n, at);
        r->result = moved < 0 ? -errno : (int)moved;
        pthread_mutex_lock(&q->lock);
        r->next = q->finished;
        q->finished = r;
        pthread_cond_signal(&q->done);
        pthread_mutex_unlock(&q->lock);
    }
    return NULL;
}

ig_status ig_disk_threads_open(ig_disk_threads **out, int fd, ig_error *err) {
    ig_disk_threads *q = *out = calloc(1, sizeof *q);
    if (!q) return ig_fail_memory(err, "KV spill threads", sizeof *q);
    q->fd = fd;
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->work, NULL);
    pthread_cond_init(&q->done, NULL);
    /* Signals are for the threads of the program. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int e = 0;
    while (q->n_threads < N_THREADS && !e) {
        e = pthread_create(&q->threads[q->n_threads], NULL, serve, q);
        if (!e) q->n_threads++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (q->n_threads) return IG_OK;
    ig_disk_threads_close(q);
    *out = NULL;
    return ig_fail(err, IG_E_MEMORY, "KV spill file: cannot start a thread: %s", strerror(e));
}

void ig_disk_threads_close(ig_disk_threads *q) {
    if (!q) return;
    pthread_mutex_lock(&q->lock);
    q->stop = true;
    pthread_cond_broadcast(&q->work);
    pthread_mutex_unlock(&q->lock);
    for (unsigned i = 0; i < q->n_threads; i++) pthread_join(q->threads[i], NULL);
    pthread_cond_destroy(&q->done);
    pthread_cond_destroy(&q->work);
    pthread_mutex_destroy(&q->lock);
    free(q);
}

void ig_disk_threads_add(ig_disk_threads *q, ig_disk_request *r) {
    r->next = NULL;
    if (q->added_first)
        q->added_last->next = r;
    else
        q->added_first = r;
    q->added_last = r;
}

void ig_disk_threads_start(ig_disk_threads *q) {
    if (!q->added_first) return;
    bool is_one = q->added_first == q->added_last;
    pthread_mutex_lock(&q->lock);
    if (q->todo_first)
        q->todo_last->next = q->added_first;
    else
        q->todo_first = q->added_first;
    q->todo_last = q->added_last;
    if (is_one)
        pthread_cond_signal(&q->work);
    else
        pthread_cond_broadcast(&q->work);
    pthread_mutex_unlock(&q->lock);
    q->added_first = q->added_last = NULL;
}

ssize_t ig_disk_threads_reap(ig_disk_threads *q, ig_disk_request **done, size_t cap, bool wait) {
    size_t n = 0;
    pthread_mutex_lock(&q->lock);
    while (wait && !q->finished) pthread_cond_wait(&q->done, &q->lock);
    for (; n < cap && q->finished; n++) {
        done[n] = q->finished;
        q->finished = q->finished->next;
    }
    pthread_mutex_unlock(&q->lock);
    return (ssize_t)n;
}
