/* SPDX-License-Identifier: Apache-2.0
 *
 * Notes in the store of prefixes: they come back as they were or not at all, whatever happens to their files, and count
 * in its size.
 */
#define _GNU_SOURCE
#include "prefix_rig.h"

#include <pthread.h>

#include "kv/prefix_record.h"

#include <errno.h>

typedef struct listed {
    int n;
    char names[8][IG_PREFIX_NAME];
    uint64_t bytes[8];
} listed;

static bool list_note(void *user, const ig_prefix_note *note) {
    listed *l = user;
    snprintf(l->names[l->n], IG_PREFIX_NAME, "%s", note->name);
    l->bytes[l->n++] = note->bytes;
    return l->n == 8;
}

static void check_note(prefix_rig *r, const char *name, const char *text) {
    void *got;
    size_t n;
    RIG_OK(r, ig_prefix_store_note_get(r->store, name, &got, &n, &r->err));
    assert_int_equal(n, strlen(text));
    assert_string_equal(got, text);
    free(got);
}

static ig_status put_note(prefix_rig *r, const char *name, const char *text) {
    return ig_prefix_store_note_put(r->store, name, text, strlen(text), &r->err);
}

static void notes_come_back(void **state) {
    (void)state;
    prefix_rig r;
    rig_start(&r);
    RIG_OK(&r, put_note(&r, "b", "first"));
    RIG_OK(&r, put_note(&r, "b", "and another"));
    RIG_OK(&r, put_note(&r, "a.b-c_9", ""));
    r.o.notes.low++;
    rig_reopen(&r);
    RIG_OK(&r, put_note(&r, "b", "of another root"));
    r.o.notes = rig_root;
    r.o.root.low++; /* what pieces depend on may change */
    for (int round = 0; round < 3; round++) {
        rig_close_store(&r);
        if (round == 1) rig_remove_index(&r);
        r.o.read_only = round == 2;
        rig_open(&r);
        listed l = {0};
        RIG_OK(&r, ig_prefix_store_note_list(r.store, list_note, &l, &r.err));
        assert_int_equal(l.n, 2);
        assert_string_equal(l.names[0], "a.b-c_9");
        assert_int_equal(l.bytes[1], 11);
        check_note(&r, "b", "and another");
        check_note(&r, "a.b-c_9", "");
        assert_int_equal(stats_of(&r).bytes, 3 * 4096 + 11 + 15);
    }
    void *got;
    size_t n;
    assert_int_equal(put_note(&r, "b", "x"), IG_E_UNSUPPORTED);
    r.o.read_only = false;
    rig_reopen(&r);
    RIG_OK(&r, ig_prefix_store_note_remove(r.store, "b", &r.err));
    assert_int_equal(ig_prefix_store_note_remove(r.store, "b", &r.err), IG_E_NOT_FOUND);
    assert_int_equal(ig_prefix_store_note_get(r.store, "b", &got, &n, &r.err), IG_E_NOT_FOUND);
    assert_null(got);
    assert_int_equal(stats_of(&r).bytes, 2 * 4096 + 15);
    rig_end(&r);
}

static void notes_are_checked(void **state) {
    (void)state;
    prefix_rig r;
    char path[512], longest[IG_PREFIX_NAME + 1];
    void *got;
    size_t n;
    rig_start(&r);
    memset(longest, 'x', sizeof longest);
    longest[IG_PREFIX_NAME] = 0;
    const char *const bad[] = {"", ".", "..", ".a", "a/b", "a b", "\xc3\xa4", "a\n", longest};
    for (size_t i = 0; i < IG_COUNT(bad); i++) {
        assert_int_equal(put_note(&r, bad[i], "x"), IG_E_ARG);
        assert_int_equal(ig_prefix_store_note_get(r.store, bad[i], &got, &n, &r.err), IG_E_ARG);
        assert_int_equal(ig_prefix_store_note_remove(r.store, bad[i], &r.err), IG_E_ARG);
    }
    longest[IG_PREFIX_NAME - 1] = 0;
    RIG_OK(&r, put_note(&r, longest, "x"));
    check_note(&r, longest, "x");
    RIG_OK(&r, ig_prefix_store_note_remove(r.store, longest, &r.err));
    assert_int_equal(ig_prefix_store_note_put(r.store, "a", path, (size_t)IG_PREFIX_NOTE_MAX + 1, &r.err), IG_E_LIMIT);

    RIG_OK(&r, put_note(&r, "a", "the text of it"));
    assert_true(rig_find_file(&r, "note-", ".igkv", 0, path));
    rig_bytes b = load(path);
    for (size_t at = 0; at < b.n; at++) {
        b.data[at] ^= 0x20;
        save(path, b.data, b.n);
        b.data[at] ^= 0x20;
        assert_int_equal(ig_prefix_store_note_get(r.store, "a", &got, &n, &r.err), IG_E_FORMAT);
        assert_null(got);
    }
    for (size_t length = 0; length < b.n + 3; length += length < 4090 ? 409 : 1) {
        if (length == b.n) continue;
        save(path, b.data, length < b.n ? length : b.n);
        if (length > b.n) assert_int_equal(truncate(path, (off_t)length), 0);
        assert_int_equal(ig_prefix_store_note_get(r.store, "a", &got, &n, &r.err), IG_E_FORMAT);
    }
    free(b.data);
    RIG_OK(&r, put_note(&r, "a", "anew"));
    check_note(&r, "a", "anew");
    rig_end(&r);
}

/* They take room from pieces, which they outlive. */
static void notes_count(void **state) {
    (void)state;
    prefix_rig r;
    char text[10000];
    memset(text, 'y', sizeof text);
    text[sizeof text - 1] = 0;
    rig_init(&r);
    r.o.max_bytes = 3 * RIG_RECORD;
    rig_open(&r);
    rig_keep(&r, 1, 0, 2);
    RIG_OK(&r, put_note(&r, "a", text));
    assert_int_equal(stats_of(&r).n_pieces, 2);
    RIG_OK(&r, put_note(&r, "a", text));
    assert_int_equal(stats_of(&r).n_pieces, 2);
    rig_keep(&r, 2, 0, 1);
    check_note(&r, "a", text);
    RIG_OK(&r, put_note(&r, "b", text));
    RIG_OK(&r, put_note(&r, "c", text));
    assert_int_equal(put_note(&r, "d", text), IG_E_LIMIT);
    assert_int_equal(stats_of(&r).n_pieces, 0);
    assert_true(stats_of(&r).bytes <= r.o.max_bytes);
    rig_end(&r);
}

static void a_note_that_cannot_be_written(void **state) {
    (void)state;
    prefix_rig r;
    trouble t = {.call = IG_PREFIX_WRITE, .result = -ENOSPC};
    rig_start_with(&r, make_trouble, &t);
    RIG_OK(&r, put_note(&r, "a", "old"));
    t.n_left = 1;
    assert_int_equal(put_note(&r, "a", "new"), IG_E_IO);
    t = (trouble){.call = IG_PREFIX_SYNC, .result = -EIO, .n_left = 1};
    assert_int_equal(put_note(&r, "a", "new"), IG_E_IO);
    check_note(&r, "a", "old");
    assert_int_equal(rig_count_files(&r, "note-", ""), 1);
    /* It has its name when the directory cannot be brought to the disk: then it is the new one for the index too. */
    listed l = {0};
    t = (trouble){.call = IG_PREFIX_SYNC, .result = -EIO, .n_left = 1, .after = 1};
    assert_int_equal(put_note(&r, "a", "longer"), IG_E_IO);
    check_note(&r, "a", "longer");
    RIG_OK(&r, ig_prefix_store_note_list(r.store, list_note, &l, &r.err));
    assert_int_equal(l.bytes[0], 6);
    assert_int_equal(stats_of(&r).bytes, 4096 + 6);
    rig_end(&r);
}

/* After a loss of power, too. */
static void a_removed_note_stays_away(void **state) {
    (void)state;
    prefix_rig r;
    trouble t = {0};
    rig_start_with(&r, make_trouble, &t);
    RIG_OK(&r, put_note(&r, "a", "text"));
    t = (trouble){.call = IG_PREFIX_SYNC, .result = -EIO, .n_left = 1};
    assert_int_equal(ig_prefix_store_note_remove(r.store, "a", &r.err), IG_E_IO);
    assert_int_equal(t.n_left, 0);
    assert_int_equal(ig_prefix_store_note_remove(r.store, "a", &r.err), IG_E_NOT_FOUND);
    rig_end(&r);
}

static void *remove_note(void *user) {
    prefix_rig *r = user;
    ig_error err;
    return ig_prefix_store_note_remove(r->store, "a", &err) == IG_OK ? user : NULL;
}

typedef struct remover {
    prefix_rig *r;
    pthread_t thread;
    bool is_started;
} remover;

/* Right before a note gets its name another thread begins to remove it. */
static int start_remover(void *user, ig_prefix_call call, int result) {
    remover *m = user;
    if (call != IG_PREFIX_RENAME || !m->r->store) return result;
    assert_int_equal(pthread_create(&m->thread, NULL, remove_note, m->r), 0);
    m->is_started = true;
    usleep(50000); /* time to be done with it, if it need not wait */
    return result;
}

static void a_note_removed_while_it_is_put(void **state) {
    (void)state;
    prefix_rig r;
    remover m = {.r = &r};
    void *is_removed;
    listed l = {0};
    rig_start_with(&r, start_remover, &m);
    RIG_OK(&r, put_note(&r, "a", "text"));
    assert_true(m.is_started);
    pthread_join(m.thread, &is_removed);
    assert_non_null(is_removed);
    RIG_OK(&r, ig_prefix_store_note_list(r.store, list_note, &l, &r.err));
    assert_int_equal(l.n, 0);
    assert_int_equal(rig_count_files(&r, "note-", ""), 0);
    assert_int_equal(stats_of(&r).bytes, 0);
    rig_end(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(notes_come_back),
        cmocka_unit_test(notes_are_checked),
        cmocka_unit_test(notes_count),
        cmocka_unit_test(a_note_that_cannot_be_written),
        cmocka_unit_test(a_removed_note_stays_away),
        cmocka_unit_test(a_note_removed_while_it_is_put),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
