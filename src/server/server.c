/* SPDX-License-Identifier: Apache-2.0
 *
 * The server's life: listening, signals, the end.
 */
#define _GNU_SOURCE
#include "server/answers.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "server/sandbox.h"

enum { BACKLOG = 1024 };

void ig_server_say(const ig_server *s, const char *format, ...) {
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (s->o->say) s->o->say(s->o->user, line);
}

/* ---- listening ------------------------------------------------------------------------------- */

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
    ig_server_say(s, "listening at the socket %s", path);
    return IG_OK;
}

/* Nobody new gets in, nor finds the socket that was made for it; one that another server has made there since stays. */
static void stop_listening(ig_server *s) {
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
    bool is_long = strchr(o->host, ':') && o->host[0] != '[';
    ig_server_say(s, "listening at http://%s%s%s:%d", is_long ? "[" : "", o->host, is_long ? "]" : "",
                  port_of(s->listener));
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
    ig_server_say(s, "listening at a socket that was handed over");
    return IG_OK;
}

static ig_status listen_somewhere(ig_server *s, ig_error *err) {
    if (s->o->listener >= 0) return take_listener(s, err);
    return s->o->unix_path ? listen_unix(s, err) : listen_tcp(s, err);
}

/* ---- the end ------------------------------------------------------------------------------------- */

/* Signals to the main thread, which waits for nothing else. The end of its terminal is the server's, but under nohup.
 */
static void wanted_signals(sigset_t *set, const ig_server_options *o) {
    struct sigaction hup;
    bool is_ignored = sigaction(SIGHUP, NULL, &hup) == 0 && !(hup.sa_flags & SA_SIGINFO) && hup.sa_handler == SIG_IGN;
    sigemptyset(set);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
    if (o->key_file || !is_ignored) sigaddset(set, SIGHUP);
}

static void read_keys_again(ig_server *s) {
    ig_error err = {0};
    if (ig_server_read_keys(s, &err))
        ig_server_say(s, "the keys stay as they are: %s", err.text);
    else
        ig_server_say(s, "keys were read again");
}

static void wait_for_end(ig_server *s, const sigset_t *set) {
    for (;;) {
        int number = sigwaitinfo(set, NULL);
        if (number == SIGHUP && s->o->key_file)
            read_keys_again(s);
        else if (number > 0)
            return;
    }
}

static int count_calls(ig_server *s) {
    pthread_mutex_lock(&s->lock);
    int n = s->n_calls;
    pthread_mutex_unlock(&s->lock);
    return n;
}

/* Until all that is being answered has been, the time is over, or there is a signal. */
static void wait_for_calls(ig_server *s, const sigset_t *set, double seconds) {
    double end = ig_server_seconds() + seconds;
    const struct timespec short_time = {.tv_nsec = 10000000};
    while (count_calls(s) && ig_server_seconds() < end) {
        int number = sigtimedwait(set, NULL, &short_time);
        if (number == SIGINT || number == SIGTERM) return;
    }
}

void ig_server_see_failure(ig_server *s, const ig_error *why) {
    if (why->status != IG_E_CHANGED || atomic_exchange(&s->is_draining, true)) return; /* or it ends already */
    s->failure = *why;
    pthread_kill(s->thread, SIGTERM);
}

/* What is being answered comes to its end, or to the end that a second signal or the time sets: then there is a little
 * time to say so. */
static void drain(ig_server *s, const sigset_t *set) {
    const double for_last_words = 1;
    atomic_store(&s->is_draining, true);
    ig_server_accept_no_more(s);
    stop_listening(s);
    ig_server_say(s, "ending: %d requests are still being answered", count_calls(s));
    wait_for_calls(s, set, s->o->drain_seconds);
    ig_watch_end_calls(&s->watch);
    wait_for_calls(s, set, for_last_words);
}

/* ---- files that may be open --------------------------------------------------------------------- */

/* A connection is a file that is open. The limit is raised as far as it may be; what it does not allow then, they do
 * not get, and some are left for the model, its KV cache and the store. */
static int allowed_connections(const ig_server *s, int wanted) {
    enum { OTHERS = 256 };
    struct rlimit most;
    if (getrlimit(RLIMIT_NOFILE, &most) != 0) return wanted;
    rlim_t before = most.rlim_cur, enough = (rlim_t)wanted + OTHERS;
    if (before >= enough) return wanted;
    most.rlim_cur = most.rlim_max < enough ? most.rlim_max : enough;
    if (setrlimit(RLIMIT_NOFILE, &most) != 0) most.rlim_cur = before;
    if (most.rlim_cur >= enough) return wanted;
    rlim_t others = most.rlim_cur / 2 < OTHERS ? most.rlim_cur / 2 : OTHERS;
    int n = (int)(most.rlim_cur - others);
    ig_server_say(s, "at most %d connections, not %d: only %llu files may be open (ulimit -Hn)", n, wanted,
                  (unsigned long long)most.rlim_cur);
    return n;
}

/* ---- the whole -------------------------------------------------------------------------------------- */

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

static ig_status check(ig_server *s, ig_error *err) {
    const ig_server_options *o = s->o;
    s->is_unix = o->unix_path && o->listener < 0;
    ig_status status = ig_server_read_keys(s, err);
    if (!status && !o->unix_path && o->listener < 0 && !s->keys.n) status = check_host(s, err);
    if (!status && o->origins && strchr(o->origins, '*') && !s->keys.n)
        return ig_text_fail(err, IG_E_ARG,
                            "--allowed-origins %s: any page in a browser here could use this server; give --api-key or "
                            "--api-key-file",
                            o->origins);
    if (status) return status;
    if (!s->info.has_tokenizer) return ig_text_fail(err, IG_E_ARG, "%s: has no tokenizer", s->info.path);
    s->thoughts = ig_thought_marks_find(s->info.chat_template);
    ig_infill_find(&s->infill, s->o->model);
    bool has_channels = s->thoughts && s->thoughts->has_channels;
    return ig_tool_format_find(s->tool_format, s->o->model, has_channels, err);
}

static ig_status start(ig_server *s, ig_error *err) {
    ig_status status = check(s, err);
    if (!status) status = ig_scheduler_open(&s->scheduler, s->o->model, &s->o->scheduler, err);
    if (!status) status = listen_somewhere(s, err);
    if (!status) status = ig_watch_open(&s->watch, &s->o->limits, err);
    if (!status && s->o->is_sandboxed) status = ig_sandbox_calls(err);
    return status ? status : ig_server_accept(s, err);
}

static void stop(ig_server *s) {
    bool has_listened = s->watch.has_thread;
    if (has_listened) ig_watch_end_all(&s->watch);
    if (s->watch.limits) ig_watch_close(&s->watch);
    ig_scheduler_close(s->scheduler);
    stop_listening(s);
    ig_server_free_keys(&s->keys);
}

ig_status ig_server_run(const ig_server_options *o, ig_error *err) {
    ig_server_options own = *o;
    ig_tool_format format = {0};
    ig_server s = {
        .o = &own, .listener = -1, .thread = pthread_self(), .created = (int64_t)time(NULL), .tool_format = &format};
    sigset_t wanted, before;
    ig_model_get_info(o->model, &s.info);
    snprintf(s.fingerprint, sizeof s.fingerprint, "ig-%016llx", (unsigned long long)ig_model_identity(o->model));
    pthread_mutex_init(&s.lock, NULL);
    pthread_mutex_init(&s.numbers.lock, NULL);
    pthread_mutex_init(&s.keys.lock, NULL);
    pthread_mutex_init(&s.fields.lock, NULL);
    ig_json_begin();
    json_t *alias = ig_text_string(o->alias); /* clients' JSON is UTF-8: so is what they call it */
    own.alias = json_string_value(alias);
    signal(SIGPIPE, SIG_IGN); /* whoever read what the server says may end before it */
    wanted_signals(&wanted, &own);
    pthread_sigmask(SIG_BLOCK, &wanted, &before); /* threads that are started from here on take none of them */
    own.limits.connections = allowed_connections(&s, o->limits.connections);
    ig_status status = alias ? start(&s, err) : ig_text_fail(err, IG_E_MEMORY, "out of memory");
    if (!status) {
        ig_server_say(&s, "ready: %s, %d at a time, contexts of %d tokens", own.alias,
                      o->scheduler.session.cache.memory.n_sessions, ig_scheduler_ctx(s.scheduler));
        if (ig_scheduler_ctx(s.scheduler) > s.info.n_ctx_train)
            ig_server_say(&s, "contexts are longer than the %d tokens that the model was trained for",
                          s.info.n_ctx_train);
        wait_for_end(&s, &wanted);
        drain(&s, &wanted);
    }
    stop(&s);
    if (s.failure.status) status = ig_text_fail(err, s.failure.status, "%s", s.failure.text);
    json_decref(alias);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_mutex_destroy(&s.fields.lock);
    pthread_mutex_destroy(&s.keys.lock);
    pthread_mutex_destroy(&s.numbers.lock);
    pthread_mutex_destroy(&s.lock);
    return status;
}
