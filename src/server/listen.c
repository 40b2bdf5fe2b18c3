/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the server listens: an address, a socket in the file system, or a socket that was handed over.
 */
#define _GNU_SOURCE
#include "server/state.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 1024 };

static ig_status listen_unix(ig_server *s, ig_error *err) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    const char *path = s->o->unix_path;
    struct stat st;
    if (strlen(path) >= sizeof at.sun_path)
        return ig_text_fail(err, IG_E_ARG, "--unix: the path is longer than %zu bytes", sizeof at.sun_path - 1);
    memcpy(at.sun_path, path, strlen(path) + 1);
    s->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s->listener < 0) return ig_text_fail(err, IG_E_IO, "%s: %s", path, strerror(errno));
    /* One that is left of a server that was killed: nobody answers there. */
    if (stat(path, &st) == 0 && S_ISSOCK(st.st_mode)) {
        int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (probe >= 0 && connect(probe, (struct sockaddr *)&at, sizeof at) != 0 && errno == ECONNREFUSED) unlink(path);
        if (probe >= 0) close(probe);
    }
    if (stat(path, &st) == 0 && !S_ISSOCK(st.st_mode))
        return ig_text_fail(err, IG_E_IO, "%s: is there, and no socket", path);
    mode_t before = umask(0177); /* for the same user only */
    int failed = bind(s->listener, (struct sockaddr *)&at, sizeof at);
    int why = errno;
    umask(before);
    if (failed || listen(s->listener, BACKLOG) != 0)
        return ig_text_fail(err, IG_E_IO, "%s: %s", path, strerror(failed ? why : errno));
    if (stat(path, &st) == 0) s->socket_device = st.st_dev, s->socket_inode = st.st_ino;
    return IG_OK;
}

/* Nobody new gets in, nor finds the socket that was made for it; one that another server has made there since stays. */
void ig_server_stop_listening(ig_server *s) {
    struct stat st;
    if (s->listener < 0) return;
    bool is_own = s->socket_inode && stat(s->o->unix_path, &st) == 0 && st.st_dev == s->socket_device &&
                  st.st_ino == s->socket_inode;
    if (is_own) unlink(s->o->unix_path);
    close(s->listener);
    s->listener = -1;
}

static int bind_to(const struct addrinfo *a) {
    int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol), on = 1;
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0) return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

static int port_of(int fd) {
    struct sockaddr_storage at;
    socklen_t n = sizeof at;
    if (getsockname(fd, (struct sockaddr *)&at, &n) != 0) return 0;
    return ntohs(at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port
                                          : ((struct sockaddr_in *)&at)->sin_port);
}

/* Of --host, for freeaddrinfo(). An address of IPv6 may stand in brackets, as it does in URLs. */
static ig_status find_addresses(struct addrinfo **all, const ig_server *s, ig_error *err) {
    const char *host = s->o->host;
    struct addrinfo want = {.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM};
    char port[16], name[256];
    size_t n = strlen(host);
    snprintf(port, sizeof port, "%d", s->o->port);
    if (n > 2 && n < sizeof name && host[0] == '[' && host[n - 1] == ']') {
        snprintf(name, sizeof name, "%.*s", (int)n - 2, host + 1);
        host = name;
    }
    int failed = getaddrinfo(host, port, &want, all);
    return failed ? ig_text_fail(err, IG_E_ARG, "--host %s: %s", s->o->host, gai_strerror(failed)) : IG_OK;
}

static ig_status listen_tcp(ig_server *s, ig_error *err) {
    const ig_server_options *o = s->o;
    struct addrinfo *all;
    ig_status status = find_addresses(&all, s, err);
    if (status) return status;
    for (struct addrinfo *a = all; a && s->listener < 0; a = a->ai_next) s->listener = bind_to(a);
    int why = errno;
    freeaddrinfo(all);
    if (s->listener < 0)
        return ig_text_fail(err, IG_E_IO, "%s, port %d: %s%s", o->host, o->port, strerror(why),
                            why == EADDRINUSE ? " (--port N; 0: any that is free)" : "");
    return IG_OK;
}

static bool is_loopback_address(const struct sockaddr *at) {
    const struct sockaddr_in *four = (const void *)at;
    const struct sockaddr_in6 *six = (const void *)at;
    if (at->sa_family == AF_INET) return ntohl(four->sin_addr.s_addr) >> 24 == 127;
    return at->sa_family == AF_INET6 ? IN6_IS_ADDR_LOOPBACK(&six->sin6_addr) : at->sa_family == AF_UNIX;
}

/* One that was handed over. */
static ig_status take_listener(ig_server *s, ig_error *err) {
    struct sockaddr_storage at;
    socklen_t n = sizeof at;
    int fd = s->o->listener, listens = 0;
    socklen_t n_listens = sizeof listens;
    if (getsockname(fd, (struct sockaddr *)&at, &n) != 0 ||
        getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &n_listens) != 0 || !listens)
        return ig_text_fail(err, IG_E_IO, "LISTEN_FDS: descriptor %d is no socket that listens", fd);
    s->is_unix = at.ss_family == AF_UNIX;
    if (!is_loopback_address((const struct sockaddr *)&at) && !s->keys.n)
        return ig_text_fail(err, IG_E_ARG, "LISTEN_FDS: others could use this server without a key");
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    s->listener = fd;
    return IG_OK;
}

/* Without a key. */
static ig_status check_host(const ig_server *s, ig_error *err) {
    struct addrinfo *all;
    bool is_loopback = true;
    ig_status status = find_addresses(&all, s, err);
    if (status) return status;
    for (const struct addrinfo *a = all; a; a = a->ai_next) is_loopback &= is_loopback_address(a->ai_addr);
    freeaddrinfo(all);
    if (is_loopback) return IG_OK;
    return ig_text_fail(err, IG_E_ARG,
                        "--host %s: others could use this server without a key; give --api-key or --api-key-file",
                        s->o->host);
}

ig_status ig_server_listen(ig_server *s, ig_error *err) {
    const ig_server_options *o = s->o;
    s->is_handed_over = o->listener >= 0;
    if (s->is_handed_over) return take_listener(s, err);
    s->is_unix = o->unix_path != NULL;
    if (s->is_unix) return listen_unix(s, err);
    ig_status status = s->keys.n ? IG_OK : check_host(s, err);
    return status ? status : listen_tcp(s, err);
}

void ig_server_say_where(const ig_server *s) {
    const char *host = s->o->host;
    bool is_long = strchr(host, ':') && host[0] != '[';
    if (s->is_handed_over)
        ig_server_say(s, "listening at a socket that was handed over");
    else if (s->is_unix)
        ig_server_say(s, "listening at the socket %s", s->o->unix_path);
    else
        ig_server_say(s, "listening at http://%s%s%s:%d", is_long ? "[" : "", host, is_long ? "]" : "",
                      port_of(s->listener));
}
