/* SPDX-License-Identifier: Apache-2.0
 *
 * Starting threads, and waiting for what they do.
 */
#define _GNU_SOURCE
#include "base/thread.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>

#include "base/compiler.h"

enum { N_SPINS = 1000 }; /* some 20 us */

/* Signals are the program's business: its own threads take them. A fault, such as a page of the model that cannot be
 * read, is a signal of the thread that meets it, and the program may have a handler for that. */
static int create_quiet(pthread_t *thread, const pthread_attr_t *attributes, void *(*fn)(void *), void *arg) {
    static const int faults[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL};
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (size_t i = 0; i < IG_COUNT(faults); i++) sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    int failed = pthread_create(thread, attributes, fn, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

ig_status ig_thread_start(pthread_t *thread, void *(*fn)(void *), void *arg, const char *what, ig_error *err) {
    pthread_attr_t attributes;
    int failed = pthread_attr_init(&attributes);
    if (!failed) {
        pthread_attr_setstacksize(&attributes, IG_THREAD_STACK);
        failed = create_quiet(thread, &attributes, fn, arg);
        pthread_attr_destroy(&attributes);
    }
    if (!failed) return IG_OK;
    /* EAGAIN is both: the system does not say which. */
    return ig_fail(err, IG_E_MEMORY, "cannot start %s: %s", what,
                   failed == EAGAIN || failed == ENOMEM ? "no memory for its stack, or too many threads (ulimit -v, -u)"
                                                        : strerror(failed));
}

void ig_thread_await(const atomic_int *n, int wanted) {
    for (int i = 0; atomic_load_explicit(n, memory_order_acquire) < wanted; i++)
        if (i < N_SPINS)
            IG_RELAX();
        else
            sched_yield(); /* one of those threads may have no processor */
}
