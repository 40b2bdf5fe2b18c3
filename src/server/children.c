/* SPDX-License-Identifier: Apache-2.0
 *
 * Starting and ending the processes of a server of several models: see children.h.
 */
#define _GNU_SOURCE
#include "server/children.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "text/clock.h"

typedef struct child {
    ig_child_stage stage;
    pid_t pid;           /* 0: there is no process */
    int n_users;         /* requests that it answers */
    int n_waiting;       /* and that wait for it, since it was last tried */
    unsigned n_failures; /* starts that came to nothing */
    uint64_t used;       /* number of its last use */
    uint64_t wanted;     /* and of when somebody began to wait for it */
    double since;        /* when it became ready, answered last, or was told to end */
    struct sockaddr_un at;
    char **command; /* ends with NULL */
} child;

struct ig_children {
    const ig_server *server;
    pthread_mutex_t lock;
    pthread_cond_t work, changed; /* for the thread that starts and ends them, and for who waits for it */
    pthread_t thread;
    bool has_thread, is_ending;
    size_t n;
    child *list; /* [n] */
    uint64_t n_uses;
    char folder[64]; /* of the sockets, which no other user can open */
    char **environment;
};

static const char *name_of(const ig_children *k, size_t i) { return k->server->o->models[i].name; }

/* ---- one process ---------------------------------------------------------------------------- */

/* There is no process any more. Who has waited for one that could not be started has waited in vain. */
static void stop(ig_children *k, child *m) {
    bool has_failed = m->stage == IG_CHILD_LOADING;
    m->n_failures += has_failed;
    if (has_failed) m->n_waiting = 0;
    m->stage = IG_CHILD_OFF;
    m->pid = 0;
    pthread_cond_broadcast(&k->changed);
}

/* Everything is made before, since in the new process only little may be called. */
static void start(ig_children *k, size_t i) {
    child *m = &k->list[i];
    sigset_t none;
    sigemptyset(&none);
    unlink(m->at.sun_path);
    m->pid = fork();
    if (m->pid == 0) {
        signal(SIGPIPE, SIG_DFL);
        signal(SIGTTOU, SIG_IGN);
        setpgid(0, 0); /* a terminal's signals are for the server, which ends it when it is time */
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        sigprocmask(SIG_SETMASK, &none, NULL);
        execve("/proc/self/exe", m->command, k->environment);
        _exit(127);
    }
    bool has_failed = m->pid < 0;
    if (has_failed) ig_server_say(k->server, "%s: cannot start a process: %s", name_of(k, i), strerror(errno));
    if (!has_failed) ig_server_say(k->server, "loading %s", name_of(k, i));
    m->stage = IG_CHILD_LOADING;
    if (has_failed) stop(k, m);
}

static void end(child *m) {
    m->stage = IG_CHILD_ENDING;
    m->since = ig_text_seconds();
    kill(m->pid, SIGTERM);
}

/* One that has ended, whether it was told to or not. */
static void reap(ig_children *k, size_t i) {
    child *m = &k->list[i];
    int how;
    if (!m->pid || waitpid(m->pid, &how, WNOHANG) != m->pid) return;
    if (m->stage != IG_CHILD_ENDING && WIFSIGNALED(how))
        ig_server_say(k->server, "%s: its process was ended by signal %d", name_of(k, i), WTERMSIG(how));
    unlink(m->at.sun_path);
    stop(k, m);
}

/* -1: nobody listens there, or too many wait already. */
static int connect_to(const child *m) {
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&m->at, sizeof m->at) == 0) {
        fcntl(fd, F_SETFL, 0);
        return fd;
    }
    if (fd >= 0) close(fd);
    return -1;
}

/* Whether it takes requests. */
static bool is_ready(const child *m) {
    static const char ask[] = "GET /health HTTP/1.0\r\n\r\n";
    enum { PATIENCE_MS = 50, N_REPLY = 12 };
    char reply[N_REPLY] = "";
    int fd = connect_to(m);
    if (fd < 0) return false;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    bool is_told = send(fd, ask, sizeof ask - 1, MSG_NOSIGNAL) > 0 && poll(&p, 1, PATIENCE_MS) > 0 &&
                   recv(fd, reply, N_REPLY, 0) == N_REPLY;
    close(fd);
    return is_told && memcmp(reply + N_REPLY - 4, " 200", 4) == 0;
}

/* ---- which ones run -------------------------------------------------------------------------- */

/* Of those that answer requests, and have been given all that waited for them, the one that was not asked for longest;
 * -1: there is none. */
static int find_oldest(const ig_children *k, bool is_idle) {
    int oldest = -1;
    for (size_t i = 0; i < k->n; i++) {
        const child *m = &k->list[i];
        if (m->stage != IG_CHILD_READY || m->n_waiting || (is_idle && m->n_users)) continue;
        if (oldest < 0 || m->used < k->list[oldest].used) oldest = (int)i;
    }
    return oldest;
}

static int count_running(const ig_children *k, bool are_leaving) {
    int n = 0;
    for (size_t i = 0; i < k->n; i++) {
        ig_child_stage stage = k->list[i].stage;
        n += stage != IG_CHILD_OFF && (!are_leaving || stage == IG_CHILD_LEAVING || stage == IG_CHILD_ENDING);
    }
    return n;
}

/* Of those that are asked for and do not run the one that has been waited for longest; -1: there is none. */
static int find_wanted(const ig_children *k) {
    int first = -1;
    for (size_t i = 0; i < k->n; i++) {
        const child *m = &k->list[i];
        if (!m->n_waiting || m->stage != IG_CHILD_OFF) continue;
        if (first < 0 || m->wanted < k->list[first].wanted) first = (int)i;
    }
    return first;
}

/* Those that are asked for start as far as there is room, each in its turn; for the next one somebody makes room, best
 * one that has nothing to do. */
static void start_wanted(ig_children *k) {
    int wanted;
    while ((wanted = find_wanted(k)) >= 0 && count_running(k, false) < k->server->o->most_models)
        start(k, (size_t)wanted);
    if (wanted < 0 || count_running(k, true)) return;
    int leaves = find_oldest(k, true);
    if (leaves < 0) leaves = find_oldest(k, false);
    if (leaves >= 0) k->list[leaves].stage = IG_CHILD_LEAVING;
}

static void go_on(ig_children *k, size_t i) {
    child *m = &k->list[i];
    reap(k, i);
    if (m->stage == IG_CHILD_LOADING && is_ready(m)) {
        m->stage = IG_CHILD_READY;
        m->since = ig_text_seconds();
        pthread_cond_broadcast(&k->changed);
    }
    double sleep = k->server->o->sleep_seconds;
    bool is_idle = m->stage == IG_CHILD_READY && !m->n_users && !m->n_waiting;
    if (is_idle && sleep >= 0 && ig_text_seconds() > m->since + sleep) m->stage = IG_CHILD_LEAVING;
    bool is_over = m->stage == IG_CHILD_LEAVING && !m->n_users;
    if (m->pid && m->stage != IG_CHILD_ENDING && (is_over || k->is_ending)) end(m);
    if (m->stage == IG_CHILD_ENDING && ig_text_seconds() > m->since + k->server->o->drain_seconds + 5)
        kill(m->pid, SIGKILL);
}

static void wait_for(pthread_cond_t *what, pthread_mutex_t *lock, long ms) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += ms * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(what, lock, &until);
}

static bool is_quiet(const ig_children *k) {
    for (size_t i = 0; i < k->n; i++) {
        ig_child_stage stage = k->list[i].stage;
        if (k->list[i].n_waiting || (stage != IG_CHILD_OFF && stage != IG_CHILD_READY)) return false;
    }
    return true;
}

/* The processes end with this thread, should the server be killed. */
static void *keep(void *arg) {
    enum { BUSY_MS = 30, QUIET_MS = 500 };
    ig_children *k = arg;
    pthread_mutex_lock(&k->lock);
    for (;;) {
        for (size_t i = 0; i < k->n; i++) go_on(k, i);
        if (k->is_ending && !count_running(k, false)) break;
        if (!k->is_ending) start_wanted(k);
        wait_for(&k->work, &k->lock, is_quiet(k) ? QUIET_MS : BUSY_MS);
    }
    pthread_mutex_unlock(&k->lock);
    return NULL;
}

/* ---- for requests ------------------------------------------------------------------------------ */

int ig_children_take(ig_children *k, size_t i, ig_call *c) {
    enum { ROUND_MS = 100 }; /* as seldom a call is looked at */
    child *m = &k->list[i];
    int fd = -1;
    pthread_mutex_lock(&k->lock);
    unsigned failures = m->n_failures;
    if (!m->n_waiting++) m->wanted = ++k->n_uses;
    pthread_cond_signal(&k->work);
    while (m->n_failures == failures && !k->is_ending && !atomic_load(&c->ended)) {
        if (m->stage == IG_CHILD_READY && (fd = connect_to(m)) >= 0) break;
        wait_for(&k->changed, &k->lock, ROUND_MS);
    }
    bool has_failed = m->n_failures != failures;
    m->n_waiting -= !has_failed;
    m->n_users += fd >= 0;
    if (fd >= 0) m->used = ++k->n_uses;
    pthread_mutex_unlock(&k->lock);
    if (fd >= 0) return fd;
    if (atomic_load(&c->ended) == IG_CALL_GONE)
        c->closes = true; /* nobody is there to be answered */
    else if (has_failed)
        ig_refuse(c, 500, "model", "the model '%.128s' could not be loaded: the server's log says why", name_of(k, i));
    else
        ig_refuse(c, 503, NULL, "the server is being shut down");
    return -1;
}

void ig_children_give(ig_children *k, size_t i, int connection) {
    close(connection);
    pthread_mutex_lock(&k->lock);
    k->list[i].n_users--;
    k->list[i].since = ig_text_seconds();
    pthread_cond_signal(&k->work);
    pthread_mutex_unlock(&k->lock);
}

void ig_children_leave(ig_children *k, size_t i) {
    pthread_mutex_lock(&k->lock);
    ig_child_stage stage = k->list[i].stage;
    if (stage == IG_CHILD_READY || stage == IG_CHILD_LOADING) k->list[i].stage = IG_CHILD_LEAVING;
    pthread_cond_signal(&k->work);
    pthread_mutex_unlock(&k->lock);
}

ig_child_stage ig_children_stage(ig_children *k, size_t i) {
    pthread_mutex_lock(&k->lock);
    ig_child_stage stage = k->list[i].stage;
    pthread_mutex_unlock(&k->lock);
    return stage;
}

int ig_children_latest(ig_children *k) {
    int latest = -1;
    pthread_mutex_lock(&k->lock);
    for (size_t i = 0; i < k->n; i++)
        if (k->list[i].stage == IG_CHILD_READY && (latest < 0 || k->list[i].used > k->list[latest].used))
            latest = (int)i;
    pthread_mutex_unlock(&k->lock);
    return latest;
}

/* ---- the whole ----------------------------------------------------------------------------------- */

/* The words of a command line, copied, with room for `more` and a NULL behind them. */
static char **copy_words(const char *const *words, size_t more, size_t *n) {
    for (*n = 0; words[*n];) ++*n;
    char **copy = calloc(*n + more + 1, sizeof *copy);
    for (size_t i = 0; copy && i < *n; i++) copy[i] = (char *)(uintptr_t)words[i];
    return copy;
}

static bool make_command(ig_children *k, size_t i) {
    const ig_server_model *model = &k->server->o->models[i];
    const char *const own[] = {"-m",        model->path,   "--alias", model->name,           "--log-name",
                               model->name, "--any-model", "--unix",  k->list[i].at.sun_path};
    enum { N_OWN = sizeof own / sizeof *own };
    size_t n;
    char **to = k->list[i].command = copy_words(k->server->o->command, N_OWN, &n);
    for (size_t w = 0; to && w < N_OWN; w++) to[n + w] = (char *)(uintptr_t)own[w];
    return to != NULL;
}

/* Keys and sockets are this process's alone. */
static bool make_environment(ig_children *k) {
    static const char *const dropped[] = {
        "INFINIGEN_API_KEY=", "LISTEN_FDS=", "LISTEN_PID=", "LISTEN_FDNAMES=", IG_SERVER_HANDED_ON "="};
    size_t n, kept = 0;
    char **all = k->environment = copy_words((const char *const *)environ, 1, &n);
    for (size_t i = 0; all && i < n; i++) {
        bool is_kept = true;
        for (size_t d = 0; d < sizeof dropped / sizeof *dropped; d++)
            is_kept = is_kept && strncmp(all[i], dropped[d], strlen(dropped[d])) != 0;
        if (is_kept) all[kept++] = all[i];
    }
    static char handed_on[] = IG_SERVER_HANDED_ON "=1";
    if (all) all[kept++] = handed_on, all[kept] = NULL;
    return all != NULL;
}

static bool make_folder(ig_children *k) {
    const char *const places[] = {getenv("XDG_RUNTIME_DIR"), "/tmp"}; /* the first may be another user's */
    for (size_t i = 0; i < 2; i++) {
        if (!places[i] || strlen(places[i]) >= sizeof k->folder - 24) continue;
        snprintf(k->folder, sizeof k->folder, "%s/infinigen-XXXXXX", places[i]);
        if (mkdtemp(k->folder)) return true;
    }
    k->folder[0] = 0;
    return false;
}

ig_status ig_children_open(ig_children **out, const ig_server *s, ig_error *err) {
    ig_children *k = *out = calloc(1, sizeof *k);
    if (!k) return ig_text_fail(err, IG_E_MEMORY, "out of memory");
    k->server = s;
    k->n = s->o->n_models;
    pthread_mutex_init(&k->lock, NULL);
    pthread_condattr_t how;
    pthread_condattr_init(&how);
    pthread_condattr_setclock(&how, CLOCK_MONOTONIC);
    pthread_cond_init(&k->work, &how);
    pthread_cond_init(&k->changed, &how);
    pthread_condattr_destroy(&how);
    k->list = calloc(k->n, sizeof *k->list);
    if (!k->list || !make_environment(k)) return ig_text_fail(err, IG_E_MEMORY, "out of memory");
    if (!make_folder(k)) return ig_text_fail(err, IG_E_IO, "a folder for sockets: %s", strerror(errno));
    for (size_t i = 0; i < k->n; i++) {
        k->list[i].at.sun_family = AF_UNIX;
        snprintf(k->list[i].at.sun_path, sizeof k->list[i].at.sun_path, "%s/%zu", k->folder, i);
        if (!make_command(k, i)) return ig_text_fail(err, IG_E_MEMORY, "out of memory");
    }
    int failed = pthread_create(&k->thread, NULL, keep, k);
    if (failed) return ig_text_fail(err, IG_E_MEMORY, "cannot start a thread: %s", strerror(failed));
    k->has_thread = true;
    return IG_OK;
}

void ig_children_close(ig_children *k) {
    if (!k) return;
    pthread_mutex_lock(&k->lock);
    k->is_ending = true;
    pthread_cond_signal(&k->work);
    pthread_cond_broadcast(&k->changed);
    pthread_mutex_unlock(&k->lock);
    if (k->has_thread) pthread_join(k->thread, NULL);
    for (size_t i = 0; k->list && i < k->n; i++) free(k->list[i].command);
    if (k->folder[0]) rmdir(k->folder);
    free(k->list);
    free(k->environment);
    pthread_cond_destroy(&k->changed);
    pthread_cond_destroy(&k->work);
    pthread_mutex_destroy(&k->lock);
    free(k);
}
