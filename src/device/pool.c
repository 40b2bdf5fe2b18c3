/* SPDX-License-Identifier: Apache-2.0
 *
 * The thread pool.
 *
 * One 64-bit word, `ticket`, is the whole protocol: the job's number in the high half, the tasks still to be
 * taken in the low half. A task is taken by a compare-and-swap that lowers the low half, so a thread that
 * comes late, with an old job number, can take nothing; and as the caller waits for all tasks, the job's
 * function and argument stay valid for whoever holds a task of it. What a thread has done it counts by itself, and
 * tells once it finds no more tasks.
 */
#define _GNU_SOURCE
#include "device/pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"

enum { N_SPINS = 1500 }; /* about 30 us: longer than the gap between two operations, shorter than a time slice */

struct ig_pool {
    int n_threads, n_started; /* n_started: worker threads that really run */
    pthread_t *threads;       /* [n_threads - 1] */
    pthread_mutex_t turn;     /* one job at a time */

    ig_task_fn fn;
    void *arg;
    int n_tasks;

    /* Cache lines of their own: some threads take tasks while others wait for a job, or for the last task. */
    _Alignas(IG_ALIGN) _Atomic uint64_t ticket; /* job << 32 | tasks left to take */
    _Alignas(IG_ALIGN) _Atomic uint32_t job;    /* futex: idle workers sleep on it */
    _Atomic int stop;
    _Atomic int n_sleeping;                     /* workers that sleep or are about to */
    _Alignas(IG_ALIGN) _Atomic uint32_t n_done; /* futex: the caller sleeps on it */
    _Atomic int caller_sleeps;

    _Atomic uint64_t n_tasks_run, busy_ns; /* of all jobs */
};

typedef struct worker_start {
    ig_pool *pool;
    int thread;
} worker_start;

static void futex_wait(_Atomic uint32_t *word, uint32_t expected) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int n) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

/* Tasks were done since `start`. */
static void add_busy(ig_pool *p, double start) {
    uint64_t ns = (uint64_t)((ig_clock_seconds() - start) * 1e9);
    atomic_fetch_add_explicit(&p->busy_ns, ns, memory_order_relaxed);
}

/* Takes and runs tasks of job `job` until none is left. Before it has told of its own no other job can begin. */
static void work(ig_pool *p, uint32_t job, int thread) {
    double start = 0;
    uint32_t n_tasks = 0, n_own = 0;
    uint64_t t = atomic_load_explicit(&p->ticket, memory_order_acquire);
    while ((uint32_t)(t >> 32) == job && (uint32_t)t != 0) {
        if (!atomic_compare_exchange_weak_explicit(&p->ticket, &t, t - 1, memory_order_acq_rel, memory_order_acquire))
            continue;
        if (!n_own++) start = ig_clock_seconds();
        n_tasks = (uint32_t)p->n_tasks;
        p->fn(p->arg, (int)(n_tasks - (uint32_t)t), thread);
        t = atomic_load_explicit(&p->ticket, memory_order_acquire);
    }
    if (!n_own) return;
    add_busy(p, start);
    if (atomic_fetch_add(&p->n_done, n_own) + n_own == n_tasks && atomic_load(&p->caller_sleeps))
        futex_wake(&p->n_done, 1);
}

/* Waits until the job's number differs from `seen`, and returns it: spins, then sleeps. */
static uint32_t await_job(ig_pool *p, uint32_t seen) {
    for (int i = 0; i < N_SPINS; i++) {
        uint32_t now = atomic_load_explicit(&p->job, memory_order_acquire);
        if (now != seen) return now;
        IG_RELAX();
    }
    atomic_fetch_add(&p->n_sleeping, 1);
    uint32_t now;
    while ((now = atomic_load(&p->job)) == seen) futex_wait(&p->job, seen);
    atomic_fetch_sub(&p->n_sleeping, 1);
    return now;
}

static void *worker_main(void *arg) {
    worker_start start = *(worker_start *)arg;
    free(arg);
    ig_pool *p = start.pool;
    uint32_t seen = 0;
    for (;;) {
        seen = await_job(p, seen);
        if (atomic_load(&p->stop)) return NULL;
        work(p, seen, start.thread);
    }
}

static ig_status start_worker(ig_pool *p, int thread, ig_error *err) {
    char what[64];
    worker_start *start = malloc(sizeof *start);
    if (!start) return ig_fail_memory(err, "thread pool", sizeof *start);
    *start = (worker_start){p, thread};
    snprintf(what, sizeof what, "thread %d of %d", thread + 1, p->n_threads);
    ig_status s = ig_thread_start(&p->threads[p->n_started], worker_main, start, what, err);
    if (s) free(start);
    return s;
}

ig_status ig_pool_open(ig_pool **out, int n_threads, ig_error *err) {
    *out = NULL;
    if (n_threads < 1 || n_threads > IG_THREADS_MAX)
        return ig_fail(err, IG_E_ARG, "threads: %d is not in 1..%d", n_threads, IG_THREADS_MAX);
    ig_pool *p = ig_alloc_aligned(sizeof *p);
    if (!p) return ig_fail_memory(err, "thread pool", sizeof *p);
    p->n_threads = n_threads;
    p->threads = calloc((size_t)n_threads, sizeof *p->threads);
    if (!p->threads) {
        ig_free_aligned(p);
        return ig_fail_memory(err, "thread pool", (size_t)n_threads * sizeof *p->threads);
    }
    pthread_mutex_init(&p->turn, NULL);
    for (int i = 1; i < n_threads; i++) {
        ig_status s = start_worker(p, i, err);
        if (s) {
            ig_pool_close(p);
            return s;
        }
        p->n_started++;
    }
    *out = p;
    return IG_OK;
}

void ig_pool_close(ig_pool *p) {
    if (!p) return;
    atomic_store(&p->stop, 1);
    atomic_fetch_add(&p->job, 1);
    futex_wake(&p->job, p->n_threads);
    for (int i = 0; i < p->n_started; i++) pthread_join(p->threads[i], NULL);
    pthread_mutex_destroy(&p->turn);
    free(p->threads);
    ig_free_aligned(p);
}

ig_pool_work ig_pool_worked(const ig_pool *p) {
    return (ig_pool_work){atomic_load(&p->n_tasks_run), 1e-9 * (double)atomic_load(&p->busy_ns)};
}

void ig_pool_run(ig_pool *p, int n_tasks, ig_task_fn fn, void *arg) {
    if (n_tasks <= 0) return;
    pthread_mutex_lock(&p->turn);
    atomic_fetch_add(&p->n_tasks_run, (uint64_t)n_tasks);
    if (n_tasks == 1 || p->n_threads == 1) { /* still in turn: per-thread scratch belongs to thread 0 */
        double start = ig_clock_seconds();
        for (int i = 0; i < n_tasks; i++) fn(arg, i, 0);
        add_busy(p, start);
        pthread_mutex_unlock(&p->turn);
        return;
    }
    p->fn = fn;
    p->arg = arg;
    p->n_tasks = n_tasks;
    atomic_store(&p->n_done, 0);
    uint32_t job = atomic_load(&p->job) + 1;
    atomic_store_explicit(&p->ticket, (uint64_t)job << 32 | (uint32_t)n_tasks, memory_order_release);
    atomic_store(&p->job, job);
    int sleeping = atomic_load(&p->n_sleeping);
    if (sleeping) futex_wake(&p->job, n_tasks - 1 < sleeping ? n_tasks - 1 : sleeping);

    work(p, job, 0);

    uint32_t done;
    for (int i = 0; i < N_SPINS && atomic_load_explicit(&p->n_done, memory_order_acquire) != (uint32_t)n_tasks; i++)
        IG_RELAX();
    if (atomic_load(&p->n_done) != (uint32_t)n_tasks) {
        atomic_store(&p->caller_sleeps, 1);
        while ((done = atomic_load(&p->n_done)) != (uint32_t)n_tasks) futex_wait(&p->n_done, done);
        atomic_store(&p->caller_sleeps, 0);
    }
    pthread_mutex_unlock(&p->turn);
}
