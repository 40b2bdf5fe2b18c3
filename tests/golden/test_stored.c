/* SPDX-License-Identifier: Apache-2.0
 *
 * A store of prefixes: what one cache has computed another one reads, in whatever process, under whatever policy, and
 * gets the same logits, bit by bit; and what is wrong with the store costs time, never a token.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/session.h"
#include "golden/stored_session.h"
#include "golden/tiny_copy.h"
#include "infinigen_tools.h"

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

/* So that others' answers go on meanwhile. */
static void it_comes_in_portions(void **state) {
    static const variant of[] = {{"infinigen", "f16", false, true}, {"infinigen", "f16", true, true}};
    int32_t ids[N_CTX];
    ig_error err = {0};
    (void)state;
    fill(ids, 12, N_CTX);
    assert_true(compare(&of[0], ids, 230) == 0);
    for (int i = 0; i < 2; i++) {
        ig_session *s = open_stored(&of[i]), *alone = open_alone(&of[i]);
        int held = 0;
        for (bool is_cut = true; is_cut;) { /* a piece at a time */
            int before = held;
            expect_ok(ig_session_reuse_some(&held, &is_cut, s, ids, 230, 1, &err), &err);
            assert_int_equal(held, before + 32);
            assert_true(is_cut == (held < 224));
        }
        put(s, ids, 230);
        put(alone, ids, 230);
        same(s, alone);
        assert_int_equal(stats(s).n_taken, 224);
        ig_session_close(s);
        ig_session_close(alone);
    }
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
    static const variant v = {"infinigen", "f16", false, true};
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
    static const variant v = {"infinigen", "f16", false, true};
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
    static const variant v = {"infinigen", "f16", false, true};
    int32_t ids[N_CTX];
    (void)state;
    fill(ids, 8, N_CTX);
    assert_true(compare(&v, ids, 50) == 0); /* one piece of 32 tokens */
    ig_session_options o = options_of(&v);
    o.cache.memory.store_path = store;
    o.cache.memory.store_bytes = 2 * stored_bytes();
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
    static const variant v = {"infinigen", "f16", false, true};
    int32_t ids[4][N_CTX];
    ig_error err = {0};
    ig_cache *c;
    (void)state;
    for (int i = 0; i < 4; i++) fill(ids[i], 20 + i, N_CTX);
    assert_true(compare(&v, ids[0], 50) == 0); /* one piece */
    ig_session_options o = options_of(&v);
    o.cache.memory.store_path = store;
    o.cache.memory.store_bytes = 3 * stored_bytes();
    o.cache.memory.n_sessions = 5;
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

static bool see_whole(void *user, const ig_stored_item *item) {
    assert_true(item->is_whole && item->n_tokens == 192);
    ++*(int *)user;
    return false;
}

/* What was kept for those with a salt begins with them: tools find it whole and leave it. */
static void a_salt_is_kept(void **state) {
    static const variant v = {"infinigen", "f16", false, true};
    int32_t ids[N_CTX];
    int n_seen = 0;
    ig_error err = {0};
    ig_stored *stored;
    ig_stored_freed freed;
    ig_session_options o = options_of(&v);
    (void)state;
    fill(ids, 11, N_CTX);
    o.cache.memory.store_path = store;
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

/* Policies that must see a prompt being computed keep nothing, and say so. */
static void not_all_share(void **state) {
    static const variant sharing = {"quest", "f16", false, true}, seeing = {"h2o", "f16", false, false};
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
    static const variant v = {"infinigen", "f16", false, true};
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
    static const variant v = {"full", "f16", false, true};
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

/* One weight is another one: between the samples of which the identity is made. */
static void another_weight_takes_nothing(void **state) {
    variant v = {"full", "f16", false, false};
    tiny_copy c = copy_tiny("mistral");
    int32_t ids[N_CTX];
    (void)state;
    fill(ids, 8, N_CTX);
    open_edited(&c, "mistral", "mistral");
    uint64_t identity = ig_model_identity(model);
    assert_true(compare(&v, ids, 100) == 0);
    assert_true(compare(&v, ids, 100) == 96);
    copy_tiny_file(&c, "mistral", "model.safetensors");
    const ig_matrix *down = &model->weights.layers[1].experts->down;
    size_t at = 0, n = ig_matrix_bytes(down);
    while (memcmp(c.bytes + at, down->w, n) != 0) at++;
    c.bytes[at + n / 2 / 2 * 2 + 1] ^= 0x80; /* a sign */
    temp_dir_write(&c.dir, "model.safetensors", (char *)c.bytes, c.n);
    open_edited(&c, "mistral", "mistral");
    assert_true(ig_model_identity(model) == identity);
    assert_true(compare(&v, ids, 100) == 0);
    assert_true(compare(&v, ids, 100) == 96);
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
        WITH("infinigen", "infinigen", "f16", false, true),
        WITH("infinigen, disk", "infinigen", "f16", true, true),
        WITH("oracle q8, disk", "oracle", "q8", true, true),
        WITH("full q8", "full", "q8", false, true),
        cmocka_unit_test_setup_teardown(it_comes_in_portions, empty_store, empty_store),
        cmocka_unit_test_setup_teardown(faults_cost_time, empty_store, empty_store),
        cmocka_unit_test_setup_teardown(another_writer_is_told, empty_store, empty_store),
        cmocka_unit_test_setup_teardown(a_full_store_is_told_once, empty_store, empty_store),
        cmocka_unit_test_setup_teardown(what_ram_serves_stays, empty_store, empty_store),
        cmocka_unit_test_setup_teardown(a_salt_is_kept, empty_store, empty_store),
        cmocka_unit_test_setup_teardown(not_all_share, empty_store, empty_store),
        cmocka_unit_test_setup_teardown(another_model_takes_nothing, empty_store, empty_store),
        cmocka_unit_test_setup_teardown(another_config_takes_nothing, empty_store, empty_store),
        cmocka_unit_test_setup_teardown(another_weight_takes_nothing, empty_store, empty_store),
    };
    return cmocka_run_group_tests(tests, open_all, close_tiny_and_folder);
}
