/* SPDX-License-Identifier: Apache-2.0
 *
 * A small pool of threads for arithmetic: fork, share tasks by a counter, join.
 *
 * Why not OpenMP: its waiting threads spin for milliseconds by default, which collapses when two programs share
 * the cores, and a library can change that only through the environment. Here a thread that finds nothing to do
 * spins for some microseconds (the gap between two operations of a step) and then sleeps in the kernel, and
 * tasks are taken one by one, so that a thread that lost its core delays the others by at most one task.
 * docs/speed-log.md has the comparison.
 */
#ifndef IG_DEVICE_POOL_H
#define IG_DEVICE_POOL_H

#include "infinigen.h"

typedef struct ig_pool ig_pool;

/* What has been done so far: tasks, and the seconds that threads spent in them, summed over threads. */
typedef struct ig_pool_work {
    uint64_t n_tasks;
    double busy;
} ig_pool_work;

/* Called once for each task in [0, n_tasks), by thread [0, n_threads) (0 is the caller). */
typedef void (*ig_task_fn)(void *arg, int task, int thread);

/* n_threads includes the calling thread. */
ig_status ig_pool_open(ig_pool **out, int n_threads, ig_error *err);
void ig_pool_close(ig_pool *p);
/* Of the jobs that have ended. */
ig_pool_work ig_pool_worked(const ig_pool *p);
/* Runs all tasks and returns when they are done. Tasks start in ascending order. Calls from several threads
 * take turns; a task must not call it. */
void ig_pool_run(ig_pool *p, int n_tasks, ig_task_fn fn, void *arg);

#endif
