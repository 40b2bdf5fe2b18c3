/* SPDX-License-Identifier: Apache-2.0
 *
 * A store of prefixes: what one cache has computed another one reads, in whatever process, under whatever policy, and
 * gets the same logits, bit by bit; and what is wrong with the store costs time, never a token.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "golden/tiny_session.h"

#include "golden/tiny_copy.h"

enum { N_CTX = 256 };

typedef struct variant {
    const char *policy, *type;
    bool on_disk; /* with little RAM */
} variant;

static char store[sizeof folder + 16];
static int n_warnings;

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

static void on_log(void *user, ig_log_level level, const char *text) {
    (void)user;
    if (level > IG_LOG_WARN) return;
    n_warnings++;
    assert_null(strchr(text, '\n'));
}

static void open_model(const char *path, int n_threads) {
    ig_error err = {0};
    ig_context_options o = ig_context_defaults();
    o.n_threads = n_threads;
    o.cpu_level = test_cpu_level();
    o.log = on_log;
    expect_ok(ig_context_open(&ctx, &o, &err), &err);
    expect_ok(ig_model_open(&model, ctx, path, NULL, &err), &err);
}

static int open_all(void **state) {
    (void)state;
    open_model(TINY_LLAMA, 2);
    if (!mkdtemp(folder)) return -1;
    snprintf(store, sizeof store, "%s/store", folder);
    return 0;
}

/* Calls fn for every file of the store. */
static void each_file(void (*fn)(const char *path, const char *name)) {
    DIR *d = opendir(store);
    if (!d) return;
    for (struct dirent *e; (e = readdir(d));) {
        char path[sizeof store + 300];
        snprintf(path, sizeof path, "%s/%s", store, e->d_name);
        if (e->d_name[0] != '.') fn(path, e->d_name);
    }
    closedir(d);
}

static void remove_file(const char *path, const char *name) {
    (void)name;
    unlink(path);
}

static int empty_store(void **state) {
    (void)state;
    each_file(remove_file);
    rmdir(store);
    n_warnings = 0;
    return 0;
}

static ig_session_options options_of(const variant *v) {
    ig_session_options o = ig_session_defaults();
    o.n_ctx = N_CTX;
    o.n_batch = 64;
    o.cache.policy = v->policy;
    o.cache.type = v->type;
    o.cache.budget = 0.3;
    o.cache.n_recent = 8;
    o.cache.n_dense_layers = 1;
    return o;
}

static ig_session *open_stored(const variant *v) {
    ig_session_options o = options_of(v);
    o.cache.store_path = store;
    if (v->on_disk) {
        o.cache.disk_bytes = 64 << 20;
        o.cache.disk_path = folder;
        o.cache.ram_bytes = least_ram(o);
    }
    return open_session(&o);
}

static ig_session *open_alone(const variant *v) {
    ig_session_options o = options_of(v);
    return open_session(&o);
}

static void fill(int32_t *ids, int seed, int n) {
    for (int i = 0; i < n; i++)
        ids[i] = (int32_t)(((unsigned)seed * 977u + (unsigned)i * 7919u + (unsigned)(i * i) * 31u) % N_VOCAB);
}

/* The prompt and some steps, in a session with the store and in one without; tokens that were not computed. */
static uint64_t compare(const variant *v, const int32_t *ids, int n) {
    ig_session *s = open_stored(v), *alone = open_alone(v);
    put(s, ids, n);
    put(alone, ids, n);
    same(s, alone);
    for (int t = n; t < n + 12; t++) {
        step(s, ids[t]);
        step(alone, ids[t]);
        same(s, alone);
    }
    uint64_t taken = stats(s).n_taken;
    ig_session_close(s);
    ig_session_close(alone);
    return taken;
}

static void a_restart_reads(void **state) {
    const variant *v = *state;
    int32_t ids[N_CTX], other[N_CTX];
    fill(ids, 1, N_CTX);
    memcpy(other, ids, sizeof ids);
    fill(other + 140, 2, N_CTX - 140);
    assert_true(compare(v, ids, 200) == 0);
    assert_true(compare(v, ids, 200) >= 128); /* whole pieces: of 16 tokens, of packed ones up to 128 */
    assert_true(compare(v, ids, 230) >= 128);
    assert_true(compare(v, other, 230) >= 128);
    variant full = *v;
    full.policy = "quest"; /* another policy */
    assert_true(compare(&full, other, 240) >= 128);
    assert_int_equal(n_warnings, 0);
    full.type = strcmp(v->type, "f16") ? "f16" : "q8"; /* other rows: nothing of it fits */
    assert_true(compare(&full, other, 240) == 0);
}

/* ---- what is wrong with it ---------------------------------------------------------------- */

static void flip_byte(const char *path, const char *name) {
    struct stat st;
    uint8_t byte;
    int fd = open(path, O_RDWR);
    if (strncmp(name, "kv-", 3) == 0 && !fstat(fd, &st)) {
        off_t at = st.st_size / 2;
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= 0x10;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    }
    close(fd);
}

static void cut_file(const char *path, const char *name) {
    struct stat st;
    if (strncmp(name, "kv-", 3) == 0 && !stat(path, &st)) assert_int_equal(truncate(path, st.st_size / 3), 0);
}

static void remove_index(const char *path, const char *name) {
    if (strncmp(name, "index", 5) == 0) unlink(path);
}

static void spoil_index(const char *path, const char *name) {
    if (strcmp(name, "index.db") != 0) return;
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "what is this?", 13, 20), 13);
    close(fd);
}

static void faults_cost_time(void **state) {
    static const struct {
        void (*damage)(const char *path, const char *name);
        bool is_lost; /* a part of it */
    } faults[] = {
        {flip_byte, true}, {cut_file, true}, {remove_index, false}, {spoil_index, false}, {remove_file, true}};
    static const variant v = {"infinigen", "f16", false};
    int32_t ids[N_CTX];
    (void)state;
    fill(ids, 3, N_CTX);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        empty_store(NULL);
        assert_true(compare(&v, ids, 200) == 0);
        each_file(faults[i].damage);
        uint64_t taken = compare(&v, ids, 200);
        if (faults[i].is_lost)
            assert_true(taken < 192);
        else
            assert_true(taken == 192);
        assert_true(compare(&v, ids, 200) == 192); /* what was computed again is kept again */
    }
}

static void another_writer_is_told(void **state) {
    static const variant v = {"infinigen", "f16", false};
    int32_t ids[N_CTX], other[N_CTX];
    (void)state;
    fill(ids, 4, N_CTX);
    fill(other, 5, N_CTX);
    ig_session *first = open_stored(&v);
    put(first, ids, 100);
    assert_int_equal(n_warnings, 0);
    assert_true(compare(&v, other, 100) == 0); /* works, keeps nothing, says so */
    assert_int_equal(n_warnings, 1);
    ig_session_close(first);
    assert_true(compare(&v, other, 100) == 0);
    assert_true(compare(&v, ids, 100) == 96);
}

static uint64_t stored_bytes(void) {
    struct stat st;
    uint64_t bytes = 0;
    DIR *d = opendir(store);
    for (struct dirent *e; (e = readdir(d));)
        if (strncmp(e->d_name, "kv-", 3) == 0 && fstatat(dirfd(d), e->d_name, &st, 0) == 0)
            bytes += (uint64_t)st.st_size;
    closedir(d);
    return bytes;
}

/* One line for a prompt that does not fit, not one for each of its pieces. */
static void a_full_store_is_told_once(void **state) {
    static const variant v = {"infinigen", "f16", false};
    int32_t ids[N_CTX];
    (void)state;
    fill(ids, 8, N_CTX);
    assert_true(compare(&v, ids, 50) == 0); /* one piece of 32 tokens */
    ig_session_options o = options_of(&v);
    o.cache.store_path = store;
    o.cache.store_bytes = 2 * stored_bytes();
    ig_session *s = open_session(&o), *alone = open_alone(&v);
    put(s, ids, 200);
    put(alone, ids, 200);
    same(s, alone);
    assert_true(stats(s).n_taken == 32);
    assert_int_equal(n_warnings, 1);
    ig_session_close(s);
    ig_session_close(alone);
    assert_int_equal(n_warnings, 1);
    uint64_t taken = compare(&v, ids, 200); /* what is kept is served */
    assert_true(taken >= 32 && taken < 192);
}

/* A prompt that is served from RAM is used in the store as well: another one leaves. */
static void what_ram_serves_stays(void **state) {
    static const variant v = {"infinigen", "f16", false};
    int32_t ids[4][N_CTX];
    ig_error err = {0};
    ig_cache *c;
    (void)state;
    for (int i = 0; i < 4; i++) fill(ids[i], 20 + i, N_CTX);
    assert_true(compare(&v, ids[0], 50) == 0); /* one piece */
    ig_session_options o = options_of(&v);
    o.cache.store_path = store;
    o.cache.store_bytes = 3 * stored_bytes();
    o.cache.n_sessions = 5;
    expect_ok(ig_cache_open(&c, model, &o, &err), &err);
    o.shared = c;
    const int order[] = {0, 1, 2, 0, 3};
    ig_session *s[5];
    for (int i = 0; i < 5; i++) {
        s[i] = open_session(&o);
        put(s[i], ids[order[i]], 50);
        expect_ok(ig_cache_commit(c, &err), &err);
    }
    for (int i = 0; i < 5; i++) ig_session_close(s[i]);
    ig_cache_close(c);
    for (int i = 0; i < 4; i++) assert_int_equal(compare(&v, ids[i], 50), i == 1 ? 0 : 32);
}

static ig_cache *open_cache(const variant *v) {
    ig_error err = {0};
    ig_session_options o = options_of(v);
    ig_cache *c;
    o.cache.store_path = store;
    expect_ok(ig_cache_open(&c, model, &o, &err), &err);
    return c;
}

/* What is committed is there for a cache that opens while this one is open. */
static void a_commit_keeps(void **state) {
    static const variant v = {"infinigen", "f16", false};
    int32_t ids[N_CTX];
    ig_error err = {0};
    ig_session_options o = options_of(&v);
    ig_cache *c;
    (void)state;
    fill(ids, 6, N_CTX);
    o.cache.store_path = store;
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

/* After a commit that failed nothing is stored that would build on what is not there. */
static void a_commit_that_failed(void **state) {
    static const variant v = {"infinigen", "f16", false};
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
    assert_int_equal(st.put_tokens, 32); /* in vain */
    put(s, other, 100);
    ig_session_close(s);
    ig_cache_close(c);
    assert_true(compare(&v, other, 100) == 96);
    assert_true(compare(&v, ids, 100) == 0);
    assert_true(compare(&v, ids, 100) == 96);
    assert_int_equal(n_warnings, 0);
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
    static const variant v = {"infinigen", "f16", false};
    enum { SHORT = 8, LONG = 100 };
    ig_scheduler_options o = ig_scheduler_defaults();
    ig_scheduler *scheduler;
    ig_error err = {0};
    (void)state;
    o.session = options_of(&v);
    o.session.cache.store_path = store;
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
    static const variant f16 = {"infinigen", "f16", false}, q8 = {"infinigen", "q8", false};
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
    static const variant v = {"infinigen", "f16", false};
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

/* Policies that must see a prompt being computed keep nothing, and say so. */
static bool see_whole(void *user, const ig_stored_item *item) {
    assert_true(item->is_whole && item->n_tokens == 192);
    ++*(int *)user;
    return false;
}

/* What was kept for those with a salt begins with them: tools find it whole and leave it. */
static void a_salt_is_kept(void **state) {
    static const variant v = {"infinigen", "f16", false};
    int32_t ids[N_CTX];
    int n_seen = 0;
    ig_error err = {0};
    ig_stored *stored;
    ig_stored_freed freed;
    ig_session_options o = options_of(&v);
    (void)state;
    fill(ids, 11, N_CTX);
    o.cache.store_path = store;
    o.cache.salt = "a salt";
    ig_session *s = open_session(&o);
    put(s, ids, 200);
    ig_session_close(s);
    expect_ok(ig_stored_open(&stored, store, true, &err), &err);
    expect_ok(ig_stored_list(stored, see_whole, &n_seen, &err), &err);
    assert_int_equal(n_seen, 1);
    expect_ok(ig_stored_gc(&freed, stored, UINT64_MAX, &err), &err);
    assert_true(freed.n_pieces == 0);
    ig_stored_close(stored);
    assert_true(compare(&v, ids, 200) == 0); /* for those without it is not */
    s = open_session(&o);
    put(s, ids, 200);
    assert_true(stats(s).n_taken == 192);
    ig_session_close(s);
}

static void not_all_share(void **state) {
    static const variant sharing = {"quest", "f16", false}, seeing = {"h2o", "f16", false};
    (void)state;
    ig_session *s = open_stored(&sharing), *none = open_alone(&sharing);
    assert_true(stats(s).shares && !stats(none).shares);
    ig_session_close(s);
    s = open_stored(&seeing);
    assert_false(stats(s).shares);
    ig_session_close(s);
    ig_session_close(none);
}

static void another_model_takes_nothing(void **state) {
    static const variant v = {"infinigen", "f16", false};
    int32_t ids[N_CTX];
    (void)state;
    fill(ids, 7, N_CTX);
    assert_true(compare(&v, ids, 100) == 0);
    close_tiny(NULL);
    open_model(TINY_MISTRAL, 1);
    assert_true(compare(&v, ids, 100) == 0);
    assert_true(compare(&v, ids, 100) == 96);
    close_tiny(NULL);
    open_model(TINY_LLAMA, 1); /* another number of threads is no difference */
    assert_true(compare(&v, ids, 100) == 96);
}

/* A copy of a model whose configuration says `now` where the model's own says `was`. */
static void open_edited(tiny_copy *c, const char *was, const char *now) {
    copy_tiny_file(c, "mistral", "config.json");
    const char *config = (const char *)c->bytes, *at = memmem(config, c->n, was, strlen(was));
    assert_non_null(at);
    char edited[4096];
    snprintf(edited, sizeof edited, "%.*s%s%.*s", (int)(at - config), config, now,
             (int)(c->n - (size_t)(at - config) - strlen(was)), at + strlen(was));
    temp_dir_write(&c->dir, "config.json", edited, strlen(edited));
    close_tiny(NULL);
    open_model(c->dir.path, 2);
}

/* Keys of all layers but the first depend on what the layers before attend to, and on how they norm. */
static void another_config_takes_nothing(void **state) {
    static const variant v = {"full", "f16", false};
    static const char window[] = "\"sliding_window\": 48", eps[] = "\"rms_norm_eps\": 1e-06";
    tiny_copy c = copy_tiny("mistral");
    int32_t ids[N_CTX];
    (void)state;
    fill(ids, 8, N_CTX);
    open_edited(&c, window, window);
    assert_true(compare(&v, ids, 100) == 0);
    assert_true(compare(&v, ids, 100) == 96);
    open_edited(&c, window, "\"sliding_window\": 16");
    assert_true(compare(&v, ids, 100) == 0);
    open_edited(&c, window, "\"sliding_window\": null");
    assert_true(compare(&v, ids, 100) == 0);
    open_edited(&c, eps, "\"rms_norm_eps\": 1e-02");
    assert_true(compare(&v, ids, 100) == 0);
    close_tiny(NULL);
    open_model(TINY_LLAMA, 2);
    drop_tiny_copy(&c);
}

#define WITH(name, ...)                                                                                \
    {                                                                                                  \
        "a_restart_reads " name, a_restart_reads, empty_store, empty_store, &(variant) { __VA_ARGS__ } \
    }

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH("infinigen", "infinigen", "f16", false),
        WITH("infinigen, disk", "infinigen", "f16", true),
        WITH("oracle q8, disk", "oracle", "q8", true),
        WITH("full q8", "full", "q8", false),
        cmocka_unit_test_setup_teardown(faults_cost_time, empty_store, empty_store),
        cmocka_unit_test_setup_teardown(another_writer_is_told, empty_store, empty_store),
        cmocka_unit_test_setup_teardown(a_full_store_is_told_once, empty_store, empty_store),
        cmocka_unit_test_setup_teardown(what_ram_serves_stays, empty_store, empty_store),
        cmocka_unit_test_setup_teardown(a_commit_keeps, empty_store, empty_store),
        cmocka_unit_test_setup_teardown(a_commit_that_failed, empty_store, empty_store),
        cmocka_unit_test_setup_teardown(commits_that_fail_are_told_once, empty_store, empty_store),
        cmocka_unit_test_setup_teardown(notes_stay, empty_store, empty_store),
        cmocka_unit_test_setup_teardown(a_damaged_note_is_none, empty_store, empty_store),
        cmocka_unit_test_setup_teardown(a_salt_is_kept, empty_store, empty_store),
        cmocka_unit_test_setup_teardown(not_all_share, empty_store, empty_store),
        cmocka_unit_test_setup_teardown(another_model_takes_nothing, empty_store, empty_store),
        cmocka_unit_test_setup_teardown(another_config_takes_nothing, empty_store, empty_store),
    };
    return cmocka_run_group_tests(tests, open_all, close_tiny_and_folder);
}
