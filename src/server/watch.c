/* SPDX-License-Identifier: Apache-2.0
 *
 * The thread that watches connections. Whose headers or body take too long is cut off; whose client has gone away while
 * it is being answered ends its call at once, so that nothing more is computed for it. Where there are too many
 * connections, those that wait for their clients make room, the oldest first: slow ones do not keep others out, and who
 * has sent a request is never dropped without a reply.
 */
#define _GNU_SOURCE
#include "server/exchange.h"
#include "text/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ROUND_MS = 500 };

static void wake(ig_watch *w) {
    ssize_t n = write(w->wake[1], "", 1); /* a full pipe wakes as well */
    (void)n;
}

/* With the lock, as the next five. */
static bool is_overdue(const ig_watch *w, const ig_connection *k, double now) {
    const ig_server_limits *l = w->limits;
    double waited = now - k->since;
    if (k->stage == IG_STAGE_HEADERS) return waited > l->header_seconds;
    if (k->stage == IG_STAGE_BODY) /* what has come fast lets nobody be silent for longer */
        return waited > l->body_seconds + (double)k->received / 1024 || now - k->latest > l->body_seconds;
    return k->stage == IG_STAGE_IDLE && waited > l->idle_seconds;
}

static bool goes_on(const ig_connection *k) { return k->call && atomic_load(&k->call->ended) == IG_CALL_GOES_ON; }

/* For the first reason that there is. */
static void end_call(ig_connection *k, ig_call_end why) {
    if (!goes_on(k)) return;
    atomic_store(&k->call->ended, why);
    if (k->call->exchange) ig_exchange_cancel(k->call->exchange);
}

static void end_overdue(ig_watch *w) {
    double now = ig_text_seconds(), most = w->limits->request_seconds;
    for (ig_connection *k = w->first; k; k = k->next) {
        if (is_overdue(w, k, now)) shutdown(k->fd, SHUT_RD); /* its thread says why */
        if (most > 0 && k->call && now - k->call->began >= most) end_call(k, IG_CALL_LATE);
    }
}

/* Clients that are waiting for an answer; *polled has room for all connections and one. */
static size_t collect(ig_watch *w, struct pollfd *polled, size_t cap) {
    size_t n = 0;
    polled[n++] = (struct pollfd){.fd = w->wake[0], .events = POLLIN};
    for (ig_connection *k = w->first; k && n < cap; k = k->next)
        if (goes_on(k)) polled[n++] = (struct pollfd){.fd = k->fd, .events = POLLRDHUP};
    return n;
}

/* Asked again, with the lock: since then a connection may have ended, and another one have its descriptor. */
static bool has_gone(int fd) {
    struct pollfd p = {.fd = fd, .events = POLLRDHUP};
    return poll(&p, 1, 0) > 0 && p.revents & (POLLRDHUP | POLLHUP | POLLERR);
}

static void end_gone(ig_watch *w, const struct pollfd *polled, size_t n) {
    for (size_t i = 1; i < n; i++) {
        if (!polled[i].revents) continue;
        for (ig_connection *k = w->first; k; k = k->next)
            if (k->fd == polled[i].fd && goes_on(k) && has_gone(k->fd)) end_call(k, IG_CALL_GONE);
    }
}

static void *run(void *arg) {
    ig_watch *w = arg;
    while (!atomic_load(&w->is_ending)) {
        pthread_mutex_lock(&w->lock);
        end_overdue(w);
        size_t n = collect(w, w->polled, w->cap_polled);
        pthread_mutex_unlock(&w->lock);
        int found = poll(w->polled, n, ROUND_MS);
        if (found <= 0) continue;
        char drop[64];
        while (w->polled[0].revents && read(w->wake[0], drop, sizeof drop) == (ssize_t)sizeof drop) continue;
        pthread_mutex_lock(&w->lock);
        end_gone(w, w->polled, n);
        pthread_mutex_unlock(&w->lock);
    }
    return NULL;
}

ig_status ig_watch_open(ig_watch *w, const ig_server_limits *limits, ig_error *err) {
    w->limits = limits;
    w->cap_polled = (size_t)limits->connections + 1;
    w->polled = calloc(w->cap_polled, sizeof *w->polled);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    if (pipe2(w->wake, O_CLOEXEC | O_NONBLOCK) != 0) {
        w->wake[0] = w->wake[1] = -1;
        return ig_text_fail(err, IG_E_IO, "pipe: %s", strerror(errno));
    }
    if (!w->polled) return ig_text_fail(err, IG_E_MEMORY, "out of memory for %zu connections", w->cap_polled);
    int failed = pthread_create(&w->thread, NULL, run, w);
    if (failed) return ig_text_fail(err, IG_E_MEMORY, "cannot start a thread: %s", strerror(failed));
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
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w->polled);
}

static bool is_same_address(const ig_connection *k, const struct in6_addr *address) {
    return memcmp(&k->address, address, sizeof *address) == 0;
}

/* Those that have had their last reply are the first to go. */
static double waits_since(const ig_connection *k) { return k->stage == IG_STAGE_END ? 0 : k->since; }

/* In this order: what came between the two was not there when the choice was made. */
static bool waits_for_client(const ig_connection *k) {
    char byte;
    if (k->stage == IG_STAGE_SEND || k->stage == IG_STAGE_END) return true;
    bool has_sent = recv(k->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
    return !has_sent && atomic_load(&k->is_waiting);
}

/* Of an address, or of all (NULL), the one that has waited longest for its client is told to end. */
static bool drop_oldest(ig_watch *w, const struct in6_addr *address) {
    ig_connection *oldest = NULL;
    for (ig_connection *k = w->first; k; k = k->next) {
        if (k->is_dropped || (address && !is_same_address(k, address)) || !waits_for_client(k)) continue;
        if (!oldest || waits_since(k) < waits_since(oldest)) oldest = k;
    }
    if (!oldest) return false;
    oldest->is_dropped = true;
    shutdown(oldest->fd, SHUT_RDWR);
    return true;
}

/* With the lock. */
static bool make_room(ig_watch *w, const struct in6_addr *address) {
    static const struct in6_addr none;
    int n = 0, n_same = 0;
    bool is_limited = memcmp(address, &none, sizeof none) != 0;
    for (ig_connection *k = w->first; k; k = k->next) {
        n += !k->is_dropped;
        n_same += !k->is_dropped && is_same_address(k, address);
    }
    if (is_limited && n_same >= w->limits->connections_each) return drop_oldest(w, address);
    return n < w->limits->connections || drop_oldest(w, NULL);
}

void ig_watch_make_room(ig_watch *w) {
    pthread_mutex_lock(&w->lock);
    drop_oldest(w, NULL);
    pthread_mutex_unlock(&w->lock);
}

ig_connection *ig_watch_add(ig_watch *w, int fd, const struct in6_addr *address) {
    ig_connection *k = calloc(1, sizeof *k);
    if (!k) return NULL;
    k->fd = fd;
    k->address = *address;
    k->since = ig_text_seconds();
    k->is_waiting = true;
    pthread_mutex_lock(&w->lock);
    bool has_room = make_room(w, address);
    if (has_room) {
        k->next = w->first;
        k->link = &w->first;
        if (k->next) k->next->link = &k->next;
        w->first = k;
        w->n++;
    }
    pthread_mutex_unlock(&w->lock);
    if (has_room) return k;
    free(k);
    return NULL;
}

void ig_watch_remove(ig_watch *w, ig_connection *k) {
    pthread_mutex_lock(&w->lock);
    close(k->fd); /* with the lock: nobody else may end a later one of the same number */
    *k->link = k->next;
    if (k->next) k->next->link = k->link;
    w->n--;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    free(k);
}

void ig_watch_end_all(ig_watch *w) {
    pthread_mutex_lock(&w->lock);
    for (ig_connection *k = w->first; k; k = k->next) {
        end_call(k, IG_CALL_SHUT);
        shutdown(k->fd, SHUT_RDWR);
    }
    while (w->n) pthread_cond_wait(&w->changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
}

void ig_watch_stage(ig_watch *w, ig_connection *k, ig_server_stage stage) {
    pthread_mutex_lock(&w->lock);
    k->stage = stage;
    k->since = k->latest = ig_text_seconds();
    k->received = 0;
    pthread_mutex_unlock(&w->lock);
}

void ig_watch_begin(ig_watch *w, ig_connection *k) {
    pthread_mutex_lock(&w->lock);
    if (k->stage == IG_STAGE_IDLE) {
        k->stage = IG_STAGE_HEADERS;
        k->since = ig_text_seconds();
    }
    pthread_mutex_unlock(&w->lock);
}

void ig_watch_received(ig_watch *w, ig_connection *k, size_t n) {
    pthread_mutex_lock(&w->lock);
    k->received += n;
    k->latest = ig_text_seconds();
    pthread_mutex_unlock(&w->lock);
}

void ig_watch_call(ig_watch *w, ig_connection *k, ig_call *c) {
    pthread_mutex_lock(&w->lock);
    k->call = c;
    pthread_mutex_unlock(&w->lock);
    if (c) wake(w);
}

void ig_watch_end_calls(ig_watch *w) {
    pthread_mutex_lock(&w->lock);
    for (ig_connection *k = w->first; k; k = k->next) end_call(k, IG_CALL_SHUT);
    pthread_mutex_unlock(&w->lock);
}
