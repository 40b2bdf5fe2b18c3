/* SPDX-License-Identifier: Apache-2.0
 *
 * Sessions whose disk fails now and then: what fails says so, and whatever is done afterwards gives bitwise the logits
 * of a session whose cache lies in RAM. The functions that the disk tier's threads call are those of this file.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <errno.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/random.h"
#include "golden/tiny_session.h"

enum { N_CTX = 640, N_ROUNDS = 32 };

/* ---- the device ----------------------------------------------------------------------- */

typedef enum trouble { FAILS, MOVES_NOTHING, HARMS } trouble;

static _Atomic int n_left = INT32_MAX; /* calls until the trouble begins */
static _Atomic int n_failed;
static _Atomic int n_long; /* calls that it lasts */
static _Atomic trouble kind;

static ssize_t move(bool is_write, int fd, const struct iovec *iov, int n_iov, off_t at) {
    int n = atomic_fetch_sub(&n_left, 1);
    bool harmed = n <= 0 && n > -n_long && (!is_write || kind != HARMS);
    if (harmed) atomic_fetch_add(&n_failed, 1);
    if (harmed && kind == MOVES_NOTHING) return 0;
    if (harmed && kind == FAILS) {
        errno = EIO;
        return -1;
    }
    ssize_t moved = syscall(is_write ? SYS_pwritev : SYS_preadv, fd, iov, (long)n_iov, (long)at, 0L);
    for (int i = 0; harmed && i < n_iov; i++)
        for (size_t k = 77; k < iov[i].iov_len; k += 4096) ((uint8_t *)iov[i].iov_base)[k] ^= 1;
    return moved;
}

ssize_t preadv(int fd, const struct iovec *iov, int n_iov, off_t at) { return move(false, fd, iov, n_iov, at); }
ssize_t pwritev(int fd, const struct iovec *iov, int n_iov, off_t at) { return move(true, fd, iov, n_iov, at); }
ssize_t pread(int fd, void *to, size_t n, off_t at) { return move(false, fd, &(struct iovec){to, n}, 1, at); }

/* ---- two sessions ------------------------------------------------------------------------ */

typedef struct pair {
    ig_session *ram, *disk;
    ig_random random;
    int32_t ids[N_CTX];
    int n; /* tokens that both hold */
    int n_errors;
} pair;

static int any(pair *p, int limit) { return (int)(ig_random_u64(&p->random) % (uint64_t)limit); }

static void break_device(pair *p) {
    kind = (trouble)any(p, 3);
    n_long = 1 + any(p, 3) * any(p, 40);
    n_left = any(p, 4) ? any(p, 1 + any(p, 60)) : INT32_MAX; /* soon, more often than not */
}

static void mend_device(void) { n_left = INT32_MAX; }

/* The disk's session failed: the device must have, and the error must say so. */
static void check_error(pair *p, ig_status status, const ig_error *err) {
    p->n_errors++;
    if (!n_failed || status != IG_E_IO || !strstr(err->text, folder))
        fail_msg("%d (%d calls failed): %s", (int)status, (int)n_failed, err->text);
    n_failed = 0;
}

static void agree(pair *p) {
    const int32_t *held;
    assert_int_equal(ig_session_tokens(p->disk, &held), p->n);
    assert_memory_equal(held, p->ids, (size_t)p->n * sizeof *held);
    assert_memory_equal(ig_session_logits(p->disk), ig_session_logits(p->ram), N_VOCAB * sizeof(float));
}

/* The first `keep` tokens stay, others follow; with a device that works from the second try on. */
static void go_to(pair *p, int keep, int n) {
    ig_error err = {0};
    for (int i = keep; i < n; i++) p->ids[i] = any(p, N_VOCAB);
    ig_status status = ig_session_sync(p->disk, p->ids, n, &err);
    if (status) {
        check_error(p, status, &err);
        mend_device();
        /* Tokens that would be computed again, not in the batches of before: both sessions begin anew. */
        if (ig_session_tokens(p->disk, NULL) < keep) p->ids[0] = (p->ids[0] + 1) % N_VOCAB;
        expect_ok(ig_session_sync(p->disk, p->ids, n, &err), &err);
    }
    mend_device();
    expect_ok(ig_session_sync(p->ram, p->ids, n, &err), &err);
    p->n = n;
    agree(p);
}

/* One token more. If the session lost some it is filled again. */
static void advance(pair *p) {
    ig_error err = {0};
    int32_t id = any(p, N_VOCAB);
    ig_status status = ig_session_decode(&p->disk, &id, 1, &err);
    if (status) {
        check_error(p, status, &err);
        mend_device();
        int left = ig_session_tokens(p->disk, NULL);
        assert_true(left <= p->n);
        assert_true((left == p->n) == (ig_session_logits(p->disk) != NULL));
        if (left < p->n) {
            go_to(p, 0, p->n);
        } else {
            agree(p);
        }
        expect_ok(ig_session_decode(&p->disk, &id, 1, &err), &err);
    }
    expect_ok(ig_session_decode(&p->ram, &id, 1, &err), &err);
    p->ids[p->n++] = id;
    agree(p);
}

static uint64_t seed = 7;

static void open_pair(pair *p, const char *policy) {
    ig_session_options o = ig_session_defaults();
    o.n_ctx = N_CTX;
    o.n_batch = 64;
    o.cache.policy = policy;
    o.cache.budget = 0.15;
    o.cache.n_recent = 16;
    o.cache.n_dense_layers = 1;
    *p = (pair){.ram = open_session(&o), .random = {seed}};
    o.cache.memory.disk_bytes = 64 << 20;
    o.cache.memory.disk_path = folder;
    o.cache.memory.no_uring = true;
    o.cache.memory.ram_bytes = least_ram(o);
    p->disk = open_session(&o);
}

static void faults_are_errors_and_no_more(void **state) {
    pair p;
    open_pair(&p, *state);
    go_to(&p, 0, 500);
    for (int i = 0; i < N_ROUNDS; i++) {
        break_device(&p);
        int n = p.n, what = any(&p, 4);
        if (what == 0 || n > N_CTX - 40)
            go_to(&p, any(&p, n), 1 + any(&p, N_CTX - 40));
        else if (what == 1)
            go_to(&p, n - any(&p, n < 80 ? n : 80), n);
        else
            for (int k = any(&p, 30); k >= 0; k--) advance(&p);
        mend_device();
    }
    if (p.n_errors < N_ROUNDS / 10) fail_msg("only %d errors", p.n_errors);
    ig_session_close(p.ram);
    ig_session_close(p.disk);
}

/* What failed and is not tried again leaves nothing behind: other tokens follow as if nothing had come between. */
static void what_failed_is_forgotten(void **state) {
    enum { N = 500, N_TRIES = 12, N_STEPS = 20 };
    int n_failures = 0, n_kept = 0;
    for (int try = 0; try < N_TRIES; try++) {
        pair p;
        ig_error err = {0};
        open_pair(&p, *state);
        go_to(&p, 0, N + try % 16);
        kind = FAILS;
        n_long = INT32_MAX;
        n_left = try % 2 ? try / 4 : try * 3; /* a prompt needs the device less often */
        n_failed = 0;
        for (int i = p.n; i < p.n + 40; i++) p.ids[i] = any(&p, N_VOCAB);
        ig_status status = IG_OK;
        if (try % 2)
            status = ig_session_sync(p.disk, p.ids, p.n + 40, &err);
        else
            for (int i = 0; i < 40 && !status; i++) {
                status = ig_session_cut(p.disk, p.n, &err);
                if (!status) status = ig_session_decode(&p.disk, &p.ids[p.n], 1, &err);
                p.ids[p.n] = any(&p, N_VOCAB);
            }
        mend_device();
        n_failures += status != IG_OK;
        /* On a busy machine a write behind the last step may fail only now, and is told once. */
        if (ig_session_cut(p.disk, p.n, &err)) expect_ok(ig_session_cut(p.disk, p.n, &err), &err);
        bool kept = ig_session_tokens(p.disk, NULL) == p.n;
        n_kept += status && kept;
        for (int i = 0; kept && i < N_STEPS; i++) {
            p.ids[p.n] = any(&p, N_VOCAB);
            step(p.disk, p.ids[p.n]);
            step(p.ram, p.ids[p.n++]);
            agree(&p);
        }
        ig_session_close(p.ram);
        ig_session_close(p.disk);
    }
    if (n_failures < N_TRIES / 2 || n_kept < 3) fail_msg("%d failed, %d of them kept all", n_failures, n_kept);
}

/* A policy that could not be shown the keys leaves nothing behind: the reads that failed were its own. */
static void a_policy_that_cannot_take_over(void **state) {
    enum { N = 3 * N_CTX };
    static int32_t ids[N];
    ig_session_options o = ig_session_defaults();
    ig_error err = {0};
    (void)state;
    for (int i = 0; i < N; i++) ids[i] = i * 31 % N_VOCAB;
    o.n_ctx = N;
    o.n_batch = 64;
    o.cache.policy = "full";
    ig_session *ram = open_session(&o);
    o.cache.memory.disk_bytes = 64 << 20;
    o.cache.memory.disk_path = folder;
    o.cache.memory.no_uring = true;
    o.cache.memory.ram_bytes = least_ram(o);
    ig_session *disk = open_session(&o);
    put(ram, ids, N - 1);
    put(disk, ids, N - 1);
    o.cache.policy = "infinigen";
    kind = FAILS;
    n_long = INT32_MAX;
    n_left = 0;
    assert_int_equal(ig_session_set_cache(disk, &o.cache, &err), IG_E_IO);
    mend_device();
    same(ram, disk);
    step(ram, ids[N - 1]);
    step(disk, ids[N - 1]);
    same(ram, disk);
    expect_ok(ig_session_set_cache(disk, &o.cache, &err), &err);
    ig_session_close(ram);
    ig_session_close(disk);
}

static ig_session *open_in(ig_cache *c, ig_session_options o, const char *policy) {
    o.shared = c;
    o.cache.policy = policy;
    return open_session(&o);
}

/* A piece of tokens that a session with an error holds for itself from then on is cut into and filled with others:
 * sketches of the first ones are not taken for those of the second by a session that takes it over. */
static void sketches_of_what_was_withdrawn(void **state) {
    enum { N = 240, N_DIFFERENT = 40, N_STEPS = 40 };
    ig_session_options o = ig_session_defaults();
    ig_error err = {0};
    ig_cache *c;
    int32_t first[N], second[N], other[N], id = 7;
    (void)state;
    o.n_ctx = 320;
    o.n_batch = 64;
    o.cache.policy = "quest";
    o.cache.budget = 0.2;
    o.cache.n_sinks = 2;
    o.cache.n_recent = 8;
    o.cache.n_dense_layers = 1;
    ig_session *ram = open_session(&o);
    o.cache.memory.n_sessions = 4;
    o.cache.memory.disk_bytes = 64 << 20;
    o.cache.memory.disk_path = folder;
    o.cache.memory.no_uring = true;
    o.cache.memory.ram_bytes = 1;
    assert_int_equal(ig_cache_open(&c, model, &o, &err), IG_E_LIMIT);
    o.cache.memory.ram_bytes = least_in(&err);
    expect_ok(ig_cache_open(&c, model, &o, &err), &err);
    for (int i = 0; i < N; i++) {
        first[i] = (i * 7919 + 13) % N_VOCAB;
        second[i] = i < N - N_DIFFERENT ? first[i] : (i * 104729 + 5) % N_VOCAB;
    }
    ig_session *a = open_in(c, o, "quest"), *b = open_in(c, o, "full");
    put(a, first, N);
    put(b, first, N);
    ig_session_close(a);
    for (int k = 0; k < 2; k++) { /* its blocks leave RAM */
        for (int i = 0; i < N; i++) other[i] = (i * (31 + k) + k * 7 + 1) % N_VOCAB;
        ig_session *s = open_in(c, o, "quest");
        put(s, other, N);
        for (int i = 0; i < 60; i++) step(s, i * 17 % N_VOCAB);
        ig_session_close(s);
    }
    kind = FAILS;
    n_long = INT32_MAX;
    n_left = 0;
    assert_int_equal(ig_session_decode(&b, &id, 1, &err), IG_E_IO);
    mend_device();
    put(b, second, N);
    a = open_in(c, o, "quest");
    put(a, second, N);
    put(ram, second, N);
    for (int i = 0; i < N_STEPS; i++) {
        step(a, (i * 31 + 3) % N_VOCAB);
        step(ram, (i * 31 + 3) % N_VOCAB);
        same(a, ram);
    }
    ig_session_close(a);
    ig_session_close(b);
    ig_session_close(ram);
    ig_cache_close(c);
}

/* SEED=N: other troubles at other times. */
int main(void) {
    if (getenv("SEED")) seed = strtoull(getenv("SEED"), NULL, 10);
    if (access("tests/golden/models/llama31", R_OK) != 0) return 77;
    const struct CMUnitTest tests[] = {
        {"full", faults_are_errors_and_no_more, NULL, NULL, (void *)"full"},
        {"infinigen", faults_are_errors_and_no_more, NULL, NULL, (void *)"infinigen"},
        {"h2o", faults_are_errors_and_no_more, NULL, NULL, (void *)"h2o"},
        {"snapkv", faults_are_errors_and_no_more, NULL, NULL, (void *)"snapkv"},
        {"window", faults_are_errors_and_no_more, NULL, NULL, (void *)"window"},
        {"infinigen-osdi24", faults_are_errors_and_no_more, NULL, NULL, (void *)"infinigen-osdi24"},
        {"quest", faults_are_errors_and_no_more, NULL, NULL, (void *)"quest"},
        {"infinigen, forgotten", what_failed_is_forgotten, NULL, NULL, (void *)"infinigen"},
        cmocka_unit_test(a_policy_that_cannot_take_over),
        cmocka_unit_test(sketches_of_what_was_withdrawn),
    };
    return cmocka_run_group_tests(tests, open_tiny_and_folder, close_tiny_and_folder);
}
