/* SPDX-License-Identifier: Apache-2.0
 *
 * The thread that watches connections. Whose headers or body take too long is cut off; whose client has gone away while
 * it is being answered ends its call at once, so that nothing more is computed for it.
 */
#define _GNU_SOURCE
#include "server/parts.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ROUND_MS = 500, POLLED_MAX = IG_SERVER_CONNECTIONS + 1 };

static void wake(ig_watch *w) {
    ssize_t n = write(w->wake[1], "", 1); /* a full pipe wakes as well */
    (void)n;
}

/* With the lock, as the next three. */
static bool is_overdue(const ig_connection *k, double now) {
    double waited = now - k->since;
    if (k->stage == IG_STAGE_HEADERS) return waited > IG_SERVER_HEADER_SECONDS;
    if (k->stage == IG_STAGE_BODY) return waited > IG_SERVER_BODY_SECONDS + (double)k->received / 1024;
    return k->stage == IG_STAGE_IDLE && waited > IG_SERVER_IDLE_SECONDS;
}

static size_t collect(ig_watch *w, struct pollfd *polled) {
    double now = ig_server_seconds();
    size_t n = 0;
    polled[n++] = (struct pollfd){.fd = w->wake[0], .events = POLLIN};
    for (ig_connection *k = w->first; k; k = k->next) {
        if (is_overdue(k, now)) shutdown(k->fd, SHUT_RDWR);
        if (k->call && !atomic_load(&k->call->is_gone) && n < POLLED_MAX)
            polled[n++] = (struct pollfd){.fd = k->fd, .events = POLLRDHUP};
    }
    return n;
}

static void end_call(ig_connection *k) {
    if (!k->call) return;
    atomic_store(&k->call->is_gone, true);
    if (k->call->exchange) ig_exchange_cancel(k->call->exchange);
}

static void end_gone(ig_watch *w, const struct pollfd *polled, size_t n) {
    for (size_t i = 1; i < n; i++) {
        if (!(polled[i].revents & (POLLRDHUP | POLLHUP | POLLERR))) continue;
        for (ig_connection *k = w->first; k; k = k->next)
            if (k->fd == polled[i].fd) end_call(k);
    }
}

static void *run(void *arg) {
    static struct pollfd polled[POLLED_MAX];
    ig_watch *w = arg;
    while (!atomic_load(&w->is_ending)) {
        pthread_mutex_lock(&w->lock);
        size_t n = collect(w, polled);
        pthread_mutex_unlock(&w->lock);
        int found = poll(polled, n, ROUND_MS);
        if (found <= 0) continue;
        char drop[64];
        while (polled[0].revents && read(w->wake[0], drop, sizeof drop) == (ssize_t)sizeof drop) continue;
        pthread_mutex_lock(&w->lock);
        end_gone(w, polled, n);
        pthread_mutex_unlock(&w->lock);
    }
    return NULL;
}

ig_status ig_watch_open(ig_watch *w, ig_error *err) {
    pthread_mutex_init(&w->lock, NULL);
    if (pipe2(w->wake, O_CLOEXEC | O_NONBLOCK) != 0) {
        w->wake[0] = w->wake[1] = -1;
        return ig_server_fail(err, IG_E_IO, "pipe: %s", strerror(errno));
    }
    int failed = pthread_create(&w->thread, NULL, run, w);
    if (failed) return ig_server_fail(err, IG_E_MEMORY, "cannot start a thread: %s", strerror(failed));
    w->has_thread = true;
    return IG_OK;
}

void ig_watch_close(ig_watch *w) {
    atomic_store(&w->is_ending, true);
    if (w->has_thread) {
        wake(w);
        pthread_join(w->thread, NULL);
    }
    for (int i = 0; i < 2; i++)
        if (w->wake[i] >= 0) close(w->wake[i]);
    pthread_mutex_destroy(&w->lock);
}

ig_connection *ig_watch_add(ig_watch *w, int fd) {
    ig_connection *k = calloc(1, sizeof *k);
    if (!k) return NULL;
    k->fd = fd;
    k->since = ig_server_seconds();
    pthread_mutex_lock(&w->lock);
    k->next = w->first;
    k->link = &w->first;
    if (k->next) k->next->link = &k->next;
    w->first = k;
    w->n++;
    pthread_mutex_unlock(&w->lock);
    return k;
}

void ig_watch_remove(ig_watch *w, ig_connection *k) {
    if (!k) return;
    pthread_mutex_lock(&w->lock);
    *k->link = k->next;
    if (k->next) k->next->link = k->link;
    w->n--;
    pthread_mutex_unlock(&w->lock);
    free(k);
}

void ig_watch_stage(ig_watch *w, ig_connection *k, ig_server_stage stage) {
    if (!k) return;
    pthread_mutex_lock(&w->lock);
    k->stage = stage;
    k->since = ig_server_seconds();
    k->received = 0;
    pthread_mutex_unlock(&w->lock);
}

void ig_watch_received(ig_watch *w, ig_connection *k, size_t n) {
    if (!k) return;
    pthread_mutex_lock(&w->lock);
    k->received += n;
    pthread_mutex_unlock(&w->lock);
}

void ig_watch_call(ig_watch *w, ig_connection *k, ig_call *c) {
    if (!k) return;
    pthread_mutex_lock(&w->lock);
    k->call = c;
    pthread_mutex_unlock(&w->lock);
    if (c) wake(w);
}

void ig_watch_end_calls(ig_watch *w) {
    pthread_mutex_lock(&w->lock);
    for (ig_connection *k = w->first; k; k = k->next) end_call(k);
    pthread_mutex_unlock(&w->lock);
}
