/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes from a client and to it. Reading waits for as long as watch.c lets it; writing tells watch.c when it has to
 * wait for the client.
 */
#define _GNU_SOURCE
#include "server/wire.h"
#include "text/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- reading ------------------------------------------------------------------------- */

static void wait_for_bytes(ig_wire *w) {
    struct pollfd p = {.fd = w->fd, .events = POLLIN};
    atomic_store(&w->connection->is_waiting, true);
    while (poll(&p, 1, -1) < 0 && errno == EINTR) continue;
    atomic_store(&w->connection->is_waiting, false);
}

/* More bytes; false: the client, or its time, has come to the end. */
static bool fill(ig_wire *w) {
    if (w->at == w->n) w->at = w->n = 0;
    if (w->n == sizeof w->buffer) {
        memmove(w->buffer, w->buffer + w->at, w->n - w->at);
        w->n -= w->at;
        w->at = 0;
    }
    if (w->n == sizeof w->buffer) return false;
    ssize_t n;
    wait_for_bytes(w);
    do n = recv(w->fd, w->buffer + w->n, sizeof w->buffer - w->n, 0);
    while (n < 0 && errno == EINTR);
    if (n <= 0) return false;
    w->n += (size_t)n;
    return true;
}

unsigned ig_wire_head(ig_wire *w, char **head, size_t *n) {
    size_t found = 0, seen = 0;
    *head = NULL;
    for (;;) {
        /* Empty lines before a request are those that some clients add to the one before. */
        while (!seen && w->n - w->at >= 2 && memcmp(w->buffer + w->at, "\r\n", 2) == 0) w->at += 2;
        size_t have = w->n - w->at;
        bool may_be_blank = have == 1 && w->buffer[w->at] == '\r';
        if (have && !may_be_blank) {
            ig_watch_begin(&w->server->watch, w->connection);
            found = ig_head_find(w->buffer + w->at, have, seen);
            seen = have;
            if (found || have > IG_HEAD_BYTES_MAX) break;
        }
        if (!fill(w)) return w->n > w->at ? 408 : IG_WIRE_GONE;
    }
    if (!found || found > IG_HEAD_BYTES_MAX)
        return memchr(w->buffer + w->at, '\n', seen) ? 431 : 414; /* not even the first line has ended */
    *head = malloc(found + 1);
    if (!*head) return 500;
    memcpy(*head, w->buffer + w->at, found);
    *n = found;
    w->at += found;
    return 0;
}

bool ig_wire_some(ig_wire *w, size_t most, const char **data, size_t *n) {
    if (w->at == w->n && !fill(w)) return false;
    *data = w->buffer + w->at;
    *n = w->n - w->at < most ? w->n - w->at : most;
    w->at += *n;
    return true;
}

bool ig_wire_line(ig_wire *w, const char **line, size_t *n) {
    for (;;) {
        size_t have = w->n - w->at;
        const char *end = memchr(w->buffer + w->at, '\n', have);
        *n = end ? (size_t)(end - (w->buffer + w->at)) : have;
        if (end || *n > IG_CHUNK_LINE_MAX) {
            *line = *n > IG_CHUNK_LINE_MAX ? NULL : w->buffer + w->at;
            w->at += *n + (end != NULL);
            return true;
        }
        if (!fill(w)) return false;
    }
}

/* ---- writing ------------------------------------------------------------------------------ */

/* Waits until more can be sent; false: it cannot. */
static bool wait_for_client(ig_wire *w) {
    struct pollfd p = {.fd = w->fd, .events = POLLOUT};
    int n;
    do n = poll(&p, 1, (int)(w->server->o->limits.idle_seconds * 1000));
    while (n < 0 && errno == EINTR);
    return n > 0;
}

bool ig_wire_send(ig_wire *w, struct iovec *parts, size_t n) {
    bool waits = false;
    while (n && !w->is_broken) {
        struct msghdr m = {.msg_iov = parts, .msg_iovlen = n};
        ssize_t sent = sendmsg(w->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            if (!waits) ig_watch_stage(&w->server->watch, w->connection, IG_STAGE_SEND);
            waits = true;
            w->is_broken = !wait_for_client(w);
            continue;
        }
        w->is_broken = sent < 0;
        size_t left = w->is_broken ? 0 : (size_t)sent;
        for (; n && left >= parts->iov_len; parts++, n--) left -= parts->iov_len;
        if (!n) break;
        parts->iov_base = (char *)parts->iov_base + left;
        parts->iov_len -= left;
    }
    if (waits) ig_watch_stage(&w->server->watch, w->connection, IG_STAGE_REPLY);
    return !w->is_broken;
}

static const double linger_seconds = 10;

void ig_wire_end(ig_wire *w) {
    enum { ROUND_MS = 100 };
    double end = ig_text_seconds() + linger_seconds;
    shutdown(w->fd, SHUT_WR);
    while (!w->is_broken && ig_text_seconds() < end) {
        struct pollfd p = {.fd = w->fd, .events = POLLIN};
        if (poll(&p, 1, ROUND_MS) > 0 && recv(w->fd, w->buffer, sizeof w->buffer, 0) <= 0) return;
    }
}
