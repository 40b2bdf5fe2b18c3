/* SPDX-License-Identifier: Apache-2.0
 *
 * The server's life: opening, signals, the end.
 */
#define _GNU_SOURCE
#include "server/answers.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "server/children.h"
#include "server/sandbox.h"
#include "text/clock.h"

void ig_server_say(const ig_server *s, const char *format, ...) {
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (s->o->say) s->o->say(s->o->user, line);
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
    double end = ig_text_seconds() + seconds;
    const struct timespec short_time = {.tv_nsec = 10000000};
    while (count_calls(s) && ig_text_seconds() < end) {
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
    ig_server_stop_listening(s);
    ig_server_say(s, "ending: %d requests are still being answered", count_calls(s));
    wait_for_calls(s, set, s->o->drain_seconds);
    ig_watch_end_calls(&s->watch);
    wait_for_calls(s, set, for_last_words);
}

/* ---- files that may be open --------------------------------------------------------------------- */

/* A connection is a file that is open, and where it is handed on another one. The limit is raised as far as it may be;
 * what it does not allow then, they do not get, and some are left for the model, its KV cache and the store. */
static int allowed_connections(const ig_server *s, int wanted) {
    enum { OTHERS = 256 };
    struct rlimit most;
    if (getrlimit(RLIMIT_NOFILE, &most) != 0) return wanted;
    rlim_t before = most.rlim_cur, each = s->o->models ? 2 : 1, enough = each * (rlim_t)wanted + OTHERS;
    if (before >= enough) return wanted;
    most.rlim_cur = most.rlim_max < enough ? most.rlim_max : enough;
    if (setrlimit(RLIMIT_NOFILE, &most) != 0) most.rlim_cur = before;
    if (most.rlim_cur >= enough) return wanted;
    rlim_t others = most.rlim_cur / 2 < OTHERS ? most.rlim_cur / 2 : OTHERS;
    int n = (int)((most.rlim_cur - others) / each);
    ig_server_say(s, "at most %d connections, not %d: only %llu files may be open (ulimit -Hn)", n, wanted,
                  (unsigned long long)most.rlim_cur);
    return n;
}

/* ---- the whole -------------------------------------------------------------------------------------- */

/* What can be known without the model. */
static ig_status check(ig_server *s, ig_error *err) {
    const ig_server_options *o = s->o;
    ig_status status = ig_server_read_keys(s, err);
    if (!status && o->origins && strchr(o->origins, '*') && !s->keys.n)
        return ig_text_fail(err, IG_E_ARG,
                            "--allowed-origins %s: any page in a browser here could use this server; give --api-key or "
                            "--api-key-file",
                            o->origins);
    return status;
}

ig_status ig_server_open(ig_server **out, const ig_server_options *o, ig_error *err) {
    *out = NULL;
    ig_server *s = calloc(1, sizeof *s);
    if (!s) return ig_text_fail(err, IG_E_MEMORY, "out of memory");
    s->o = o;
    s->listener = -1;
    s->created = (int64_t)time(NULL);
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->numbers.lock, NULL);
    pthread_mutex_init(&s->keys.lock, NULL);
    pthread_mutex_init(&s->fields.lock, NULL);
    signal(SIGPIPE, SIG_IGN); /* whoever read what the server says may end before it */
    ig_status status = check(s, err);
    if (!status) status = ig_server_listen(s, err);
    if (!status && !s->is_handed_over) status = ig_server_accept(s, err);
    if (status)
        ig_server_close(s);
    else
        *out = s;
    return status;
}

void ig_server_close(ig_server *s) {
    if (!s) return;
    ig_server_accept_no_more(s);
    ig_server_stop_listening(s);
    ig_server_free_keys(&s->keys);
    pthread_mutex_destroy(&s->fields.lock);
    pthread_mutex_destroy(&s->keys.lock);
    pthread_mutex_destroy(&s->numbers.lock);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* What answers need to know of the model. */
static ig_status look_at_model(ig_server *s, ig_error *err) {
    ig_model *m = s->o->model;
    ig_model_get_info(m, &s->info);
    ig_status status = ig_server_open_adapters(s, err);
    if (status) return status;
    snprintf(s->fingerprint, sizeof s->fingerprint, "ig-%016llx", (unsigned long long)ig_model_identity(m));
    if (!s->info.has_tokenizer) return ig_text_fail(err, IG_E_ARG, "%s: has no tokenizer", s->info.path);
    s->thoughts = ig_thought_marks_find(s->info.chat_template);
    ig_infill_find(&s->infill, m);
    status = ig_tool_format_find(s->tool_format, m, s->thoughts ? s->thoughts->channels : NULL, err);
    return status || !ig_json_take_loss() ? status
                                          : ig_text_fail(err, IG_E_MEMORY, "out of memory for a model's tools");
}

static ig_status open_model(ig_server *s, ig_error *err) {
    ig_status status = look_at_model(s, err);
    return status ? status : ig_scheduler_open(&s->scheduler, s->o->model, &s->o->scheduler, err);
}

static ig_status start(ig_server *s, ig_error *err) {
    ig_status status = s->o->models ? ig_children_open(&s->children, s, err) : open_model(s, err);
    if (!status) status = ig_watch_open(&s->watch, &s->o->limits, err);
    if (!status && s->o->is_sandboxed) status = ig_sandbox_calls(err);
    if (!status) atomic_store(&s->is_ready, true); /* who waits at a socket that was handed over is not turned away */
    if (!status && s->is_handed_over) status = ig_server_accept(s, err);
    return status;
}

static void stop(ig_server *s) {
    bool has_listened = s->watch.has_thread;
    ig_server_accept_no_more(s);
    if (has_listened) ig_watch_end_all(&s->watch);
    if (s->watch.limits) ig_watch_close(&s->watch);
    ig_children_close(s->children);
    ig_scheduler_close(s->scheduler);
    ig_server_close_adapters(s);
    ig_server_stop_listening(s);
}

static void say_ready(const ig_server *s) {
    if (s->children) {
        ig_server_say(s, "ready: %zu models, %d of them in memory at a time", s->o->n_models, s->o->most_models);
        return;
    }
    ig_server_say(s, "ready: %s, %d at a time, contexts of %d tokens", s->o->alias,
                  s->o->scheduler.session.cache.memory.n_sessions, ig_scheduler_ctx(s->scheduler));
    if (ig_scheduler_ctx(s->scheduler) > s->info.n_ctx_train)
        ig_server_say(s, "contexts are longer than the %d tokens that the model was trained for", s->info.n_ctx_train);
}

ig_status ig_server_run(ig_server *s, ig_error *err) {
    const ig_server_options *given = s->o;
    ig_server_options own = *given;
    ig_tool_format format = {0};
    sigset_t wanted, before;
    s->o = &own;
    s->thread = pthread_self();
    s->tool_format = &format;
    if (own.models) own.limits.request_seconds = 0, own.alias = ""; /* the processes see to that */
    json_t *alias = ig_text_string(own.alias); /* clients' JSON is UTF-8: so is what they call it */
    own.alias = json_string_value(alias);
    wanted_signals(&wanted, &own);
    pthread_sigmask(SIG_BLOCK, &wanted, &before); /* threads that are started from here on take none of them */
    own.limits.connections = allowed_connections(s, own.limits.connections);
    ig_status status = alias ? start(s, err) : ig_text_fail(err, IG_E_MEMORY, "out of memory");
    if (!status) {
        ig_server_say_where(s);
        say_ready(s);
        wait_for_end(s, &wanted);
        drain(s, &wanted);
    }
    stop(s);
    s->o = given;
    if (s->failure.status) status = ig_text_fail(err, s->failure.status, "%s", s->failure.text);
    json_decref(alias);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}
