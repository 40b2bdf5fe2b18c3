/* SPDX-License-Identifier: Apache-2.0
 *
 * Connections: one thread takes them, and each gets a thread of its own, which a slow client holds up and nobody else.
 */
#define _GNU_SOURCE
#include "server/call.h"
#include "text/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void *serve(void *arg) {
    ig_wire *w = arg;
    ig_http_serve(w);
    ig_watch_remove(&w->server->watch, w->connection);
    free(w);
    return NULL;
}

static bool start_thread(ig_wire *w) {
    enum { STACK_BYTES = 1 << 20 };
    pthread_t thread;
    pthread_attr_t with;
    pthread_attr_init(&with);
    pthread_attr_setstacksize(&with, STACK_BYTES);
    pthread_attr_setdetachstate(&with, PTHREAD_CREATE_DETACHED);
    bool ok = pthread_create(&thread, &with, serve, w) == 0;
    pthread_attr_destroy(&with);
    return ok;
}

/* All that is said to one who is turned away for now. What has come of its request is read and dropped: a connection
 * that is closed before may lose the reply. For what does not come within `patience` seconds nobody waits. */
static void turn_away(int fd, const char *why, double patience) {
    char body[256], reply[512], dropped[16 << 10];
    int n_body =
        snprintf(body, sizeof body,
                 "{\"error\":{\"message\":\"%s\",\"type\":\"unavailable_error\",\"param\":null,\"code\":null}}\n", why);
    int n_reply =
        snprintf(reply, sizeof reply,
                 "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
                 "Retry-After: 1\r\nConnection: close\r\n\r\n%s",
                 n_body, body);
    ssize_t n = send(fd, reply, (size_t)n_reply, MSG_NOSIGNAL | MSG_DONTWAIT);
    shutdown(fd, SHUT_WR);
    double end = ig_text_seconds() + patience;
    for (int i = 0; n > 0 && (i < 16 || ig_text_seconds() < end); i++) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        double left = end - ig_text_seconds();
        poll(&p, 1, left > 0 ? (int)(left * 1e3) : 0);
        n = recv(fd, dropped, sizeof dropped, MSG_DONTWAIT);
    }
}

static void take(ig_server *s, int fd, const struct in6_addr *address) {
    ig_wire *w = malloc(sizeof *w);
    if (!w) {
        close(fd);
        return;
    }
    w->server = s;
    w->fd = fd;
    w->is_broken = false;
    w->at = w->n = 0;
    w->connection = ig_watch_add(&s->watch, fd, address);
    if (w->connection && start_thread(w)) return;
    turn_away(fd, "too many connections", 0);
    if (w->connection) {
        if (!s->has_no_threads)
            ig_server_say(s, "the system gives no thread for another connection: it is turned away");
        s->has_no_threads = true;
        ig_watch_remove(&s->watch, w->connection);
        ig_watch_make_room(&s->watch);
    } else {
        close(fd);
    }
    free(w);
}

static struct in6_addr address_of(const struct sockaddr_storage *from) {
    struct in6_addr address = {0};
    if (from->ss_family == AF_INET6) address = ((const struct sockaddr_in6 *)(const void *)from)->sin6_addr;
    if (from->ss_family == AF_INET) {
        memset(&address.s6_addr[10], 0xff, 2); /* as IPv6 writes it */
        memcpy(&address.s6_addr[12], &((const struct sockaddr_in *)(const void *)from)->sin_addr, 4);
    }
    return address;
}

static void *accept_all(void *arg) {
    enum { ROUND_MS = 100 };
    ig_server *s = arg;
    while (!atomic_load(&s->is_draining)) {
        struct pollfd p = {.fd = s->listener, .events = POLLIN};
        if (poll(&p, 1, s->is_handed_over ? ROUND_MS : -1) == 0) continue;
        struct sockaddr_storage from = {0};
        socklen_t n = sizeof from;
        int fd = accept4(s->listener, (struct sockaddr *)&from, &n, SOCK_CLOEXEC), on = 1;
        if (fd >= 0 && !atomic_load(&s->is_ready)) {
            turn_away(fd, "the model is being loaded", 0.2);
            close(fd);
        } else if (fd >= 0) {
            struct in6_addr address = address_of(&from);
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on,
                       sizeof on); /* a socket in the file system has no such thing */
            take(s, fd, &address);
        } else if (errno != EINTR && errno != ECONNABORTED) {
            if ((errno == EMFILE || errno == ENFILE) && atomic_load(&s->is_ready)) ig_watch_make_room(&s->watch);
            usleep(20000);
        }
    }
    return NULL;
}

ig_status ig_server_accept(ig_server *s, ig_error *err) {
    fcntl(s->listener, F_SETFL, O_NONBLOCK); /* poll() is what waits */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the main thread */
    int failed = pthread_create(&s->accepting, NULL, accept_all, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) return ig_text_fail(err, IG_E_MEMORY, "cannot start a thread: %s", strerror(failed));
    s->is_accepting = true;
    return IG_OK;
}

void ig_server_accept_no_more(ig_server *s) {
    if (!s->is_accepting) return;
    atomic_store(&s->is_draining, true);
    if (!s->is_handed_over) shutdown(s->listener, SHUT_RDWR); /* wakes poll() */
    pthread_join(s->accepting, NULL);
    s->is_accepting = false;
}
