/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory: a decode step allocates nothing, and when any one allocation fails during load or in a call after it, that
 * ends in an error and leaves nothing behind. The allocator's functions are replaced in this program, so that
 * allocations of the libraries count too; mmap as well, which the library calls for arenas and files.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "cpu_level.h"
#include "infinigen_tools.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
int main(void) { return 77; /* sanitizers bring an allocator of their own */ }
#else

/* ---- the counting allocator ------------------------------------------------------ */

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

static __thread bool counting;
static long n_calls, fail_at = -1, n_live;

/* True if this allocation is to fail. */
static bool account(void) { return counting && n_calls++ == fail_at; }

static void *counted(void *p) {
    if (counting && p) n_live++;
    return p;
}

void *malloc(size_t n) { return account() ? NULL : counted(__libc_malloc(n)); }
void *calloc(size_t n, size_t size) { return account() ? NULL : counted(__libc_calloc(n, size)); }
void *memalign(size_t align, size_t n) { return account() ? NULL : counted(__libc_memalign(align, n)); }
void *aligned_alloc(size_t align, size_t n) { return memalign(align, n); }

int posix_memalign(void **out, size_t align, size_t n) {
    *out = memalign(align, n);
    return *out ? 0 : ENOMEM;
}

void *realloc(void *p, size_t n) {
    if (account()) return NULL;
    void *q = __libc_realloc(p, n);
    if (counting && q && !p) n_live++;
    return q;
}

void free(void *p) {
    if (counting && p) n_live--;
    __libc_free(p);
}

void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset) {
    if (account()) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    void *p = (void *)syscall(SYS_mmap, at, n, prot, flags, fd, offset);
    return p == MAP_FAILED ? p : counted(p);
}

int munmap(void *p, size_t n) {
    if (counting) n_live--;
    return (int)syscall(SYS_munmap, p, n);
}

/* ---- what is opened ----------------------------------------------------------------- */

static const char model_path[] = "tests/golden/models/llama31";

typedef struct engine {
    ig_context *ctx;
    ig_model *model;
    ig_session *session;
    ig_sampler *sampler;
} engine;

static ig_status open_all(engine *e, ig_error *err) {
    *e = (engine){0};
    ig_context_options co = ig_context_defaults();
    co.n_threads = 1; /* threads take memory for themselves at times of their own */
    co.cpu_level = test_cpu_level();
    ig_session_options so = ig_session_defaults();
    so.n_ctx = 256;
    so.cache.budget = 0.3;
    ig_sampler_options sampling = ig_sampler_defaults();
    sampling.temperature = 0.8f;
    sampling.top_k = 40;
    sampling.repeat_penalty = 1.1f;
    ig_status s = ig_context_open(&e->ctx, &co, err);
    if (!s) s = ig_model_open(&e->model, e->ctx, model_path, NULL, err);
    if (!s) s = ig_session_open(&e->session, e->model, &so, err);
    if (!s) s = ig_sampler_open(&e->sampler, e->model, &sampling, err);
    return s;
}

static void close_all(engine *e) {
    ig_sampler_close(e->sampler);
    ig_session_close(e->session);
    ig_model_close(e->model);
    ig_context_close(e->ctx);
}

static void decoding_allocates_nothing(void **state) {
    (void)state;
    engine e;
    ig_error err = {0};
    int32_t ids[100];
    for (int i = 0; i < 100; i++) ids[i] = i * 5;
    if (open_all(&e, &err)) fail_msg("%s", err.text);
    if (ig_session_sync(e.session, ids, 100, &err)) fail_msg("%s", err.text);
    n_calls = 0;
    counting = true;
    ig_status s = IG_OK;
    for (int i = 0; i < 100 && !s; i++) {
        int32_t id = ig_sampler_next(e.sampler, e.session);
        ig_batch_item item = {.session = e.session, .ids = &id, .n = 1, .prompt = i % 4 == 1};
        s = i % 2 ? ig_batch_step(&item, 1, &err) : ig_session_decode(&e.session, &id, 1, &err);
        if (!s && i % 2) s = item.status;
    }
    counting = false;
    long calls = n_calls;
    assert_int_equal(s, IG_OK);
    assert_int_equal(calls, 0);
    close_all(&e);
}

static void every_failure_is_clean(void **state) {
    (void)state;
    engine e;
    ig_error err;
    long n_failures = 0;
    open_all(&e, NULL); /* what the libraries keep for ever is taken now */
    close_all(&e);
    for (fail_at = 0;; fail_at++) {
        memset(&err, 0, sizeof err);
        n_calls = n_live = 0;
        counting = true;
        ig_status s = open_all(&e, &err);
        close_all(&e);
        counting = false;
        long live = n_live;
        bool reached = n_calls > fail_at;
        if (live) fail_msg("allocation %ld fails: %ld pieces stay behind", fail_at, live);
        if (!reached) {
            assert_int_equal(s, IG_OK);
            break;
        }
        if (s) {
            n_failures++;
            assert_true(err.text[0] != 0);
            assert_int_equal(err.status, s);
        }
    }
    fail_at = -1;
    print_message("%ld allocations failed in turn\n", n_failures);
    assert_true(n_failures > 20);
}

/* ---- calls that take memory for themselves -------------------------------------------- */

static int32_t text[200];

static ig_status generate(engine *e, ig_error *err) {
    ig_generate_options o = ig_generate_defaults();
    o.n_predict = 2;
    o.n_least = 1;
    ig_status s = ig_session_sync(e->session, text, 20, err);
    return s ? s : ig_generate(NULL, e->session, e->sampler, &o, err);
}

static bool ignore(void *user, const ig_layer_activations *layer) {
    (void)user;
    (void)layer;
    return false;
}

static ig_status measure(engine *e, ig_error *err) {
    return ig_measure_activations(e->model, text, 200, ignore, NULL, err);
}

static ig_status prepare(engine *e, ig_error *err) {
    char path[] = "/tmp/infinigen-test-XXXXXX";
    ig_prepare_options o = ig_prepare_defaults();
    o.ids = text;
    o.n_ids = 200;
    int fd = mkstemp(path);
    ig_status s = ig_prepare(NULL, e->model, path, &o, err);
    close(fd);
    unlink(path);
    return s;
}

/* How many allocations a call makes, after each has failed: some it does without. */
static long fail_in_turn(engine *e, ig_status (*call)(engine *, ig_error *)) {
    for (fail_at = 0;; fail_at++) {
        ig_error err = {0};
        n_calls = n_live = 0;
        counting = true;
        ig_status s = call(e, &err);
        counting = false;
        if (n_live) fail_msg("allocation %ld fails: %ld pieces stay behind", fail_at, n_live);
        if (n_calls <= fail_at) return fail_at;
        if (s && s != IG_E_MEMORY) fail_msg("allocation %ld fails: status %d: %s", fail_at, s, err.text);
    }
}

static void every_failure_of_a_call_is_clean(void **state) {
    (void)state;
    engine e;
    ig_error err = {0};
    for (int i = 0; i < 200; i++) text[i] = (i * 37 + i * i % 11) % 500;
    if (open_all(&e, &err)) fail_msg("%s", err.text);
    ig_status (*const calls[])(engine *, ig_error *) = {generate, measure, prepare};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        if (calls[i](&e, &err)) fail_msg("%s", err.text); /* what is kept for ever is taken now */
        assert_true(fail_in_turn(&e, calls[i]) > 1);
    }
    fail_at = -1;
    close_all(&e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decoding_allocates_nothing),
        cmocka_unit_test(every_failure_is_clean),
        cmocka_unit_test(every_failure_of_a_call_is_clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
