/* SPDX-License-Identifier: Apache-2.0
 *
 * The thread pool: every task once, in order of taking, from any number of calling threads.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device/pool.h"

enum { MAX_TASKS = 257, N_TURNS = 3 /* threads of the pool that callers share */ };

typedef struct record {
    _Atomic int times[MAX_TASKS];
    _Atomic int last;
    int n_threads;
    _Atomic int bad;
} record;

static void count_task(void *arg, int task, int thread) {
    record *r = arg;
    atomic_fetch_add(&r->times[task], 1);
    if (thread < 0 || thread >= r->n_threads) atomic_store(&r->bad, 1);
}

static void run_and_check(ig_pool *p, int n_threads, int n_tasks) {
    record r = {.n_threads = n_threads};
    ig_pool_run(p, n_tasks, count_task, &r);
    for (int t = 0; t < MAX_TASKS; t++) assert_int_equal(r.times[t], t < n_tasks);
    assert_int_equal(r.bad, 0);
}

static void every_task_runs_once(void **state) {
    (void)state;
    for (int threads = 1; threads <= 5; threads++) {
        ig_pool *p;
        assert_int_equal(ig_pool_open(&p, threads, NULL), IG_OK);
        for (int round = 0; round < 200; round++)
            for (int n = 0; n <= 17; n++) run_and_check(p, threads, n);
        run_and_check(p, threads, MAX_TASKS);
        ig_pool_close(p);
    }
}

static void *call_many(void *arg) {
    for (int i = 0; i < 300; i++) run_and_check(arg, N_TURNS, 1 + i % 9);
    return NULL;
}

static void callers_take_turns(void **state) {
    (void)state;
    ig_pool *p;
    pthread_t threads[3];
    assert_int_equal(ig_pool_open(&p, N_TURNS, NULL), IG_OK);
    for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&threads[i], NULL, call_many, p), 0);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    ig_pool_close(p);
}

static void refuses_absurd_counts(void **state) {
    (void)state;
    ig_pool *p;
    ig_error err = {0};
    assert_int_equal(ig_pool_open(&p, 0, &err), IG_E_ARG);
    assert_null(p);
    assert_int_equal(ig_pool_open(&p, 100000, &err), IG_E_ARG);
    ig_pool_close(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_task_runs_once),
        cmocka_unit_test(callers_take_turns),
        cmocka_unit_test(refuses_absurd_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
