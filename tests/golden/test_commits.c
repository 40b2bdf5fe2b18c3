/* SPDX-License-Identifier: Apache-2.0
 *
 * What is written to a store of prefixes while its cache goes on: commits, those that fail, and notes.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/cache.h"
#include "golden/stored_session.h"
#include "infinigen_requests.h"
#include "kv/prefix_record.h"

static bool sync_fails; /* once: the program calls this file's function */

int fdatasync(int fd) {
    bool fails = sync_fails;
    sync_fails = false;
    if (fails) errno = EIO;
    return fails ? -1 : (int)syscall(SYS_fdatasync, fd);
}

static _Atomic time_t ahead; /* seconds, of the clock that only goes on: likewise */

int clock_gettime(clockid_t clock, struct timespec *t) {
    int result = (int)syscall(SYS_clock_gettime, clock, t);
    if (clock == CLOCK_MONOTONIC) t->tv_sec += ahead;
    return result;
}

/* ---- commits --------------------------------------------------------------------------- */

/* What is committed is there for a cache that opens while this one is open. */
static void a_commit_keeps(void **state) {
    static const variant v = {"infinigen", "f16", false, true};
    int32_t ids[N_CTX];
    ig_error err = {0};
    ig_session_options o = options_of(&v);
    ig_cache *c;
    (void)state;
    fill(ids, 6, N_CTX);
    o.cache.memory.store_path = store;
    expect_ok(ig_cache_open(&c, model, &o, &err), &err);
    o.shared = c;
    ig_session *s = open_session(&o);
    put(s, ids, 100);
    assert_true(compare(&v, ids, 100) == 0);
    expect_ok(ig_cache_commit(c, &err), &err);
    assert_true(compare(&v, ids, 100) == 96);
    ig_cache_stats st;
    ig_cache_get_stats(c, &st);
    assert_true(st.put_tokens == 96 && st.read_tokens == 0);
    ig_session_close(s);
    ig_cache_close(c);
}

/* What was lost with a commit that failed is stored again, before what builds on it. */
static void a_commit_that_failed(void **state) {
    static const variant v = {"infinigen", "f16", false, true};
    int32_t ids[N_CTX], other[N_CTX];
    ig_error err = {0};
    ig_cache_stats st;
    (void)state;
    fill(ids, 9, N_CTX);
    fill(other, 10, N_CTX);
    ig_cache *c = open_cache(&v);
    ig_session_options o = options_of(&v);
    o.shared = c;
    ig_session *s = open_session(&o);
    put(s, ids, 50);
    sync_fails = true;
    assert_int_equal(ig_cache_commit(c, &err), IG_E_IO);
    assert_false(sync_fails);
    ahead += 60; /* when it is tried again */
    put(s, ids, 100);
    expect_ok(ig_cache_commit(c, &err), &err);
    ig_cache_get_stats(c, &st);
    assert_int_equal(st.put_tokens, 96); /* 32 were put in vain before */
    put(s, other, 100);
    ig_session_close(s);
    ig_cache_close(c);
    assert_true(compare(&v, other, 100) == 96);
    assert_true(compare(&v, ids, 100) == 96);
    assert_int_equal(n_warnings, 0);
}

/* What a piece takes in the store. */
static uint64_t stored_bytes(const variant *v) {
    ig_cache *c = open_cache(v);
    uint64_t n = ig_prefix_record_bytes(ig_kv_piece_bytes(c->memory));
    ig_cache_close(c);
    return n;
}

/* What was put since the last commit fills the store: it is committed, and makes room for more. A prompt that is longer
 * than the store is kept as far as it fits, which is told once. */
static void a_full_store_is_committed(void **state) {
    static const variant v = {"infinigen", "f16", false, true};
    enum { PIECE = 32 };
    int32_t ids[N_CTX];
    ig_error err = {0};
    ig_cache_stats st;
    ig_session_options o = options_of(&v);
    ig_cache *c;
    (void)state;
    o.cache.memory.store_path = store;
    o.cache.memory.store_bytes = 4 * stored_bytes(&v);
    expect_ok(ig_cache_open(&c, model, &o, &err), &err);
    o.shared = c;
    for (int seed = 20; seed < 25; seed++) {
        ig_session *s = open_session(&o);
        fill(ids, seed, N_CTX);
        put(s, ids, 2 * PIECE + 1);
        ig_session_close(s);
    }
    assert_int_equal(n_warnings, 0);
    ig_cache_get_stats(c, &st);
    assert_int_equal(st.put_tokens, 2 * 4 * PIECE); /* twice what fits: two more wait */
    expect_ok(ig_cache_commit(c, &err), &err);
    assert_true(compare(&v, ids, 100) == 2 * PIECE);
    n_warnings = 0; /* that the store is another's */
    for (int seed = 25; seed < 28; seed++) {
        if (seed == 27) ahead += 60; /* it is tried again */
        ig_session *s = open_session(&o);
        fill(ids, seed, N_CTX);
        put(s, ids, 6 * PIECE);
        ig_session_close(s);
    }
    assert_int_equal(n_warnings, 1);
    ig_cache_close(c);
    assert_true(compare(&v, ids, 6 * PIECE) == 4 * PIECE);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

/* One token of an answer, after whose prompt a scheduler commits. */
typedef struct asked {
    bool fails; /* the commit */
    bool has_ended;
    int n_warnings; /* before it */
} asked;

static void on_token(void *user, const ig_request_token *token) {
    asked *a = user;
    (void)token;
    a->n_warnings = n_warnings;
    ahead += 60;
    if (a->fails) sync_fails = true;
}

static void on_end(void *user, const ig_request_result *result) {
    asked *a = user;
    pthread_mutex_lock(&lock);
    a->has_ended = true;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
    assert_int_equal(result->n_tokens, 1);
}

/* What was told of the commits before. */
static int ask(ig_scheduler *scheduler, int seed, int n, bool fails) {
    int32_t ids[N_CTX];
    asked a = {.fails = fails};
    ig_request *request;
    ig_request_options o = ig_request_defaults();
    ig_error err = {0};
    fill(ids, seed, n);
    o.ids = ids;
    o.n_ids = n;
    o.generate.n_predict = 1;
    o.generate.ignore_end = true;
    o.on_token = on_token;
    o.on_end = on_end;
    o.user = &a;
    expect_ok(ig_scheduler_submit(&request, NULL, scheduler, &o, 1, &err), &err);
    pthread_mutex_lock(&lock);
    while (!a.has_ended) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    ig_request_close(request);
    return a.n_warnings;
}

/* That a scheduler's commits fail is told once, until one does not. A short prompt is nothing that is stored. */
static void commits_that_fail_are_told_once(void **state) {
    static const variant v = {"infinigen", "f16", false, true};
    enum { SHORT = 8, LONG = 100 };
    ig_scheduler_options o = ig_scheduler_defaults();
    ig_scheduler *scheduler;
    ig_error err = {0};
    (void)state;
    o.session = options_of(&v);
    o.session.cache.memory.store_path = store;
    expect_ok(ig_scheduler_open(&scheduler, model, &o, &err), &err);
    ask(scheduler, 1, LONG, true);
    assert_int_equal(ask(scheduler, 2, SHORT, false), 1);
    ask(scheduler, 3, LONG, true);
    assert_int_equal(ask(scheduler, 4, SHORT, false), 1);
    ask(scheduler, 5, LONG, false);
    assert_int_equal(ask(scheduler, 6, LONG, true), 1);
    assert_int_equal(ask(scheduler, 7, SHORT, false), 2);
    ig_scheduler_close(scheduler);
}

/* ---- notes ------------------------------------------------------------------------------- */

static void expect_note(ig_cache *c, const char *name, const char *wanted) {
    ig_error err = {0};
    void *bytes;
    size_t n;
    expect_ok(ig_cache_note_get(&bytes, &n, c, name, &err), &err);
    assert_int_equal(n, strlen(wanted));
    assert_string_equal(bytes, wanted);
    free(bytes);
}

typedef struct listed {
    int n, most; /* stop at so many */
    char names[64];
} listed;

static bool see_note(void *user, const ig_cache_note *note) {
    listed *l = user;
    assert_in_range((uint64_t)note->written, 1700000000, 10000000000);
    snprintf(l->names + strlen(l->names), sizeof l->names - strlen(l->names), "%s %d, ", note->name,
             (int)note->n_bytes);
    return ++l->n == l->most;
}

static void notes_stay(void **state) {
    static const variant f16 = {"infinigen", "f16", false, true}, q8 = {"infinigen", "q8", false, true};
    ig_error err = {0};
    listed all = {.most = 9}, one = {.most = 1};
    void *bytes;
    size_t n;
    (void)state;
    ig_cache *c = open_cache(&f16);
    expect_ok(ig_cache_note_put(c, "talk-2", "what was said", 13, &err), &err);
    expect_ok(ig_cache_note_put(c, "talk-1", "hm", 2, &err), &err);
    expect_ok(ig_cache_note_put(c, "talk-2", "more of it", 10, &err), &err);
    expect_note(c, "talk-2", "more of it");
    assert_int_equal(ig_cache_note_put(c, "talk-1", &err, IG_NOTE_MAX + 1, &err), IG_E_LIMIT);
    ig_cache *second = open_cache(&f16); /* reads, and must not write */
    expect_note(second, "talk-1", "hm");
    assert_int_equal(ig_cache_note_put(second, "talk-1", "", 0, &err), IG_E_UNSUPPORTED);
    assert_int_equal(ig_cache_note_remove(second, "talk-1", &err), IG_E_UNSUPPORTED);
    ig_cache_close(second);
    ig_cache_close(c);

    c = open_cache(&q8); /* other rows, but notes are the model's */
    expect_note(c, "talk-1", "hm");
    assert_int_equal(ig_cache_note_get(&bytes, &n, c, "talk-3", &err), IG_E_NOT_FOUND);
    assert_null(bytes);
    ig_cache_close(c);

    c = open_cache(&f16);
    expect_ok(ig_cache_note_list(c, see_note, &all, &err), &err);
    assert_string_equal(all.names, "talk-1 2, talk-2 10, ");
    assert_int_equal(ig_cache_note_list(c, see_note, &one, &err), IG_E_INTERRUPTED);
    assert_int_equal(one.n, 1);
    expect_ok(ig_cache_note_remove(c, "talk-1", &err), &err);
    assert_int_equal(ig_cache_note_remove(c, "talk-1", &err), IG_E_NOT_FOUND);
    ig_cache_close(c);
}

static void spoil_note(const char *path, const char *name) {
    if (strncmp(name, "note-", 5) != 0) return;
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "?", 1, 4096), 1);
    close(fd);
}

static void a_damaged_note_is_none(void **state) {
    static const variant v = {"infinigen", "f16", false, true};
    ig_error err = {0};
    void *bytes;
    size_t n;
    (void)state;
    ig_cache *c = open_cache(&v);
    expect_ok(ig_cache_note_put(c, "talk", "what was said", 13, &err), &err);
    each_file(spoil_note);
    assert_int_equal(ig_cache_note_get(&bytes, &n, c, "talk", &err), IG_E_FORMAT);
    assert_true(!bytes && n == 0);
    ig_cache_close(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_commit_keeps, empty_store, empty_store),
        cmocka_unit_test_setup_teardown(a_commit_that_failed, empty_store, empty_store),
        cmocka_unit_test_setup_teardown(a_full_store_is_committed, empty_store, empty_store),
        cmocka_unit_test_setup_teardown(commits_that_fail_are_told_once, empty_store, empty_store),
        cmocka_unit_test_setup_teardown(notes_stay, empty_store, empty_store),
        cmocka_unit_test_setup_teardown(a_damaged_note_is_none, empty_store, empty_store),
    };
    return cmocka_run_group_tests(tests, open_all, close_tiny_and_folder);
}
