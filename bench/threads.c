/* SPDX-License-Identifier: Apache-2.0
 *
 * Why the library has a thread pool of its own: fork and join of small pieces of work, as a decode step does some
 * hundred times, by the pool and by OpenMP, with the machine to itself and beside a second copy of itself.
 *
 *   cmake --build --preset release --target bench-threads && build/release/tests/bench-threads
 *
 * Prints microseconds per operation: median of interleaved repetitions.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <omp.h>

#include "device/pool.h"

enum { OPS = 4000, REPEATS = 5, TASKS = 8, SPIN = 2500 };

static volatile unsigned sink[64];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void work(void *arg, int task, int thread) {
    unsigned x = (unsigned)task + 1;
    (void)arg;
    for (int i = 0; i < SPIN; i++) x = x * 1664525u + 1013904223u;
    sink[thread & 63] = x;
}

static double run_pool(ig_pool *p) {
    double start = now();
    for (int i = 0; i < OPS; i++) ig_pool_run(p, TASKS, work, NULL);
    return (now() - start) / OPS;
}

static double run_openmp(int n_threads) {
    double start = now();
    for (int i = 0; i < OPS; i++) {
#pragma omp parallel for schedule(dynamic) num_threads(n_threads)
        for (int t = 0; t < TASKS; t++) work(NULL, t, omp_get_thread_num());
    }
    return (now() - start) / OPS;
}

static int by_value(const void *a, const void *b) { return *(const double *)a < *(const double *)b ? -1 : 1; }

/* Medians of pool and OpenMP, measured alternately. */
static void measure(double out[2], int n_threads) {
    double t[2][REPEATS];
    ig_pool *p;
    if (ig_pool_open(&p, n_threads, NULL)) exit(1);
    for (int r = 0; r < REPEATS; r++) {
        t[0][r] = run_pool(p);
        t[1][r] = run_openmp(n_threads);
    }
    ig_pool_close(p);
    for (int i = 0; i < 2; i++) {
        qsort(t[i], REPEATS, sizeof t[i][0], by_value);
        out[i] = t[i][REPEATS / 2];
    }
}

/* The same in n processes at once; the slowest counts. */
static void measure_copies(double out[2], int n_copies, int n_threads) {
    int pipes[2];
    if (pipe(pipes)) exit(1);
    for (int c = 0; c < n_copies; c++)
        if (fork() == 0) {
            double mine[2];
            measure(mine, n_threads);
            _exit(write(pipes[1], mine, sizeof mine) != (ssize_t)sizeof mine);
        }
    close(pipes[1]); /* a child that fails is the end of what can be read */
    out[0] = out[1] = 0;
    for (int c = 0; c < n_copies; c++) {
        double mine[2];
        if (read(pipes[0], mine, sizeof mine) != (ssize_t)sizeof mine) exit(1);
        for (int i = 0; i < 2; i++)
            if (mine[i] > out[i]) out[i] = mine[i];
    }
    close(pipes[0]);
    while (wait(NULL) > 0) continue;
}

int main(int argc, char **argv) {
    int n_threads = argc > 1 ? atoi(argv[1]) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    printf("| copies | pool, us | OpenMP, us |\n|---:|---:|---:|\n");
    for (int copies = 1; copies <= 2; copies++) {
        double t[2];
        measure_copies(t, copies, n_threads);
        printf("| %d | %.1f | %.1f |\n", copies, t[0], t[1]);
    }
    return 0;
}
