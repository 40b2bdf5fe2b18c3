/* SPDX-License-Identifier: Apache-2.0
 *
 * Looking after stored prefixes through the public calls: listing, verifying, collecting, removing.
 */
#define _GNU_SOURCE
#include "prefix_rig.h"
#include "infinigen_tools.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <sqlite3.h>

enum { MANY = 16 };

typedef struct seen {
    int n, n_notes, stop_at;
    char ids[MANY][33], roots[MANY][33], names[MANY][65], models[MANY][64], files[MANY][64], damage[MANY][128];
    uint64_t tokens[MANY], bytes[MANY];
    bool whole[MANY];
    double used[MANY];
} seen;

static bool see(void *user, const ig_stored_item *item) {
    seen *s = user;
    int i = s->n++;
    assert_true(i < MANY);
    snprintf(s->ids[i], sizeof s->ids[i], "%s", item->id);
    snprintf(s->roots[i], sizeof s->roots[i], "%s", item->root);
    snprintf(s->names[i], sizeof s->names[i], "%s", item->note);
    snprintf(s->models[i], sizeof s->models[i], "%s", item->model);
    snprintf(s->files[i], sizeof s->files[i], "%s", item->file);
    snprintf(s->damage[i], sizeof s->damage[i], "%s", item->damage);
    s->tokens[i] = item->n_tokens;
    s->bytes[i] = item->bytes;
    s->whole[i] = item->is_whole;
    s->used[i] = item->used;
    s->n_notes += item->note[0] != 0;
    return s->n == s->stop_at;
}

static void id_text(char out[33], ig_prefix_id id) {
    snprintf(out, 33, "%016llx%016llx", (unsigned long long)id.high, (unsigned long long)id.low);
}

static int find_id(const seen *s, ig_prefix_id id) {
    char text[33];
    id_text(text, id);
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->ids[i], text) == 0) return i;
    return -1;
}

/* A second chain that shares the first pieces of another: piece `number` of `chain` on piece at - 1 of `base`. */
static void put_branch(prefix_rig *r, uint64_t base, uint64_t chain, int at, int last) {
    struct iovec areas[RIG_AREAS];
    for (int i = at; i <= last; i++) {
        rig_piece p;
        rig_make(&p, &r->o, chain, i);
        if (i == at) p.piece.parent = rig_id(&r->o, base, at - 1);
        RIG_OK(r, ig_prefix_store_put(r->store, &p.piece, areas, rig_scatter(areas, p.bytes, RIG_BYTES), &r->err));
    }
    rig_commit(r);
}

/* Chain 1: 0..4; chain 2 branches from it at 2: 2..3; chain 3 of another root and model: 0..1; a note of each root. */
static void fill(prefix_rig *r) {
    rig_start(r);
    rig_keep(r, 1, 0, 4);
    put_branch(r, 1, 2, 2, 3);
    RIG_OK(r, ig_prefix_store_note_put(r->store, "first", "12345", 5, &r->err));
    rig_close_store(r);
    ig_prefix_store_options o = r->o;
    r->o.root.high++;
    r->o.notes.high++;
    r->o.model = "another q4_0";
    rig_open(r);
    rig_keep(r, 3, 0, 1);
    RIG_OK(r, ig_prefix_store_note_put(r->store, "second", "1234567", 7, &r->err));
    rig_close_store(r);
    r->o = o;
}

static ig_stored *open_stored(prefix_rig *r, bool write) {
    ig_stored *s;
    RIG_OK(r, ig_stored_open(&s, r->dir.path, write, &r->err));
    return s;
}

static seen list(prefix_rig *r) {
    seen l = {0};
    ig_stored *s = open_stored(r, false);
    RIG_OK(r, ig_stored_list(s, see, &l, &r->err));
    ig_stored_close(s);
    return l;
}

static void everything_is_listed(void **state) {
    (void)state;
    prefix_rig r;
    char root[33];
    fill(&r);
    for (int with_index = 1; with_index >= 0; with_index--) {
        if (!with_index) rig_remove_index(&r);
        seen l = list(&r);
        assert_int_equal(l.n, 5);
        assert_int_equal(l.n_notes, 2);
        int one = find_id(&l, rig_id(&r.o, 1, 4)), two = find_id(&l, rig_id(&r.o, 2, 3));
        assert_true(one >= 0 && two >= 0 && one != two);
        assert_int_equal(l.tokens[one], 5 * RIG_TOKENS);
        assert_int_equal(l.bytes[one], 5 * RIG_RECORD);
        assert_int_equal(l.tokens[two], 4 * RIG_TOKENS);
        assert_true(l.whole[one] && l.whole[two]);
        assert_string_equal(l.models[one], "smollm2-135m q8_0");
        id_text(root, rig_root);
        assert_string_equal(l.roots[one], root);
        assert_true(l.used[one] > 1.6e9 && l.used[one] < 1e11);
        int n_first = 0;
        for (int i = 0; i < l.n; i++) {
            if (strcmp(l.names[i], "first") == 0) {
                n_first++;
                assert_int_equal(l.bytes[i], 4096 + 5);
                assert_string_equal(l.ids[i], "");
                assert_string_equal(l.roots[i], root);
            }
        }
        assert_int_equal(n_first, 1);
    }
    ig_stored *s = open_stored(&r, false);
    ig_stored_info info;
    ig_stored_get_info(s, &info);
    assert_int_equal(info.n_pieces, 9);
    assert_int_equal(info.bytes, 9 * RIG_RECORD + 2 * 4096 + 12);
    seen l = {.stop_at = 4};
    assert_int_equal(ig_stored_list(s, see, &l, &r.err), IG_E_INTERRUPTED);
    assert_int_equal(l.n, 4);
    ig_stored_close(s);
    rig_end(&r);
}

static void damage_file(const char *path, off_t at) {
    uint8_t byte;
    int fd = open(path, O_RDWR);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static ig_stored_health verify(prefix_rig *r, seen *l) {
    ig_stored_health h;
    ig_stored *s = open_stored(r, false);
    *l = (seen){0};
    RIG_OK(r, ig_stored_verify(&h, s, see, NULL, l, &r->err));
    ig_stored_close(s);
    return h;
}

static bool stop_half_way(void *user, uint64_t done, uint64_t total) {
    assert_true(done <= total);
    return ++*(int *)user == 4;
}

static void damage_is_found(void **state) {
    (void)state;
    prefix_rig r;
    seen l;
    char path[512], note[512];
    fill(&r);
    ig_stored_health h = verify(&r, &l);
    assert_int_equal(h.n_pieces, 9);
    assert_int_equal(h.n_notes, 2);
    assert_int_equal(h.bytes, 9 * RIG_RECORD + 2 * 4096 + 12);
    assert_int_equal(h.n_damaged + h.n_foreign, 0);

    assert_true(rig_find_file(&r, "kv-", ".igkv", 0, path));
    damage_file(path, RIG_RECORD + 5000);
    h = verify(&r, &l);
    assert_int_equal(h.n_damaged, 1);
    assert_int_equal(find_id(&l, rig_id(&r.o, 1, 1)), 0);
    assert_string_equal(l.files[0], strrchr(path, '/') + 1);
    assert_non_null(strstr(l.damage[0], "checksum"));

    damage_file(path, 3 * RIG_RECORD + 100);
    assert_true(rig_find_file(&r, "note-", ".igkv", 0, note));
    damage_file(note, 4097);
    h = verify(&r, &l);
    assert_int_equal(h.n_damaged, 3);
    assert_int_equal(l.n_notes, 1);
    assert_non_null(strstr(l.damage[1], "header"));

    rig_remove_index(&r); /* then only the file says that there was a piece */
    h = verify(&r, &l);
    assert_int_equal(h.n_pieces, 8);
    assert_int_equal(h.n_damaged, 3 - 1); /* a piece, the note; the file has been told of with the piece */
    damage_file(path, RIG_RECORD + 5000);
    h = verify(&r, &l);
    assert_int_equal(h.n_damaged, 2);
    assert_string_equal(l.ids[l.n - 1], "");
    assert_non_null(strstr(l.damage[l.n - 1], "no piece"));

    int n = 0;
    ig_stored *s = open_stored(&r, false);
    assert_int_equal(ig_stored_verify(&h, s, NULL, stop_half_way, &n, &r.err), IG_E_INTERRUPTED);
    assert_int_equal(n, 4);
    ig_stored_close(s);
    rig_end(&r);
}

static void what_is_shared_stays(void **state) {
    (void)state;
    prefix_rig r;
    char id[33];
    ig_stored_freed freed;
    fill(&r);
    ig_stored *s = open_stored(&r, true);
    id_text(id, rig_id(&r.o, 1, 4));
    id[10] = 0;
    RIG_OK(&r, ig_stored_remove(&freed, s, IG_STORED_ID, id, &r.err)); /* 2..4 of chain 1; 0..1 are chain 2's too */
    assert_int_equal(freed.n_pieces, 3);
    assert_int_equal(freed.bytes, 3 * RIG_RECORD);
    assert_int_equal(ig_stored_remove(&freed, s, IG_STORED_ID, id, &r.err), IG_E_NOT_FOUND);
    assert_int_equal(freed.n_pieces, 0);
    ig_stored_close(s);
    rig_open(&r);
    for (int i = 0; i < 2; i++) RIG_OK(&r, rig_read(&r, 1, i));
    RIG_OK(&r, rig_read(&r, 2, 3));
    assert_int_equal(rig_read(&r, 1, 2), IG_E_NOT_FOUND);
    rig_close_store(&r);

    s = open_stored(&r, true);
    id_text(id, rig_id(&r.o, 1, 1)); /* one in the middle takes what follows it, and what was only for it */
    RIG_OK(&r, ig_stored_remove(NULL, s, IG_STORED_ID, id, &r.err));
    ig_stored_info info;
    ig_stored_get_info(s, &info);
    assert_int_equal(info.n_pieces, 2);
    ig_stored_close(s);
    rig_end(&r);
}

static void ids_are_checked(void **state) {
    (void)state;
    prefix_rig r;
    char id[33], next[33];
    fill(&r);
    ig_stored *s = open_stored(&r, true);
    static const char *const bad[] = {"", "xyz", "0x12", "12 ", "123456789012345678901234567890123"};
    for (size_t i = 0; i < IG_COUNT(bad); i++)
        assert_int_equal(ig_stored_remove(NULL, s, IG_STORED_ID, bad[i], &r.err), IG_E_ARG);
    assert_int_equal(ig_stored_remove(NULL, s, (ig_stored_what)9, "a", &r.err), IG_E_ARG);
    assert_int_equal(ig_stored_remove(NULL, s, IG_STORED_NOTE, NULL, &r.err), IG_E_ARG);
    ig_stored_close(s);
    /* Of nine ids some begin alike, or with few more they do. */
    rig_open(&r);
    for (uint64_t chain = 100; chain < 120; chain++) rig_keep(&r, chain, 0, 0);
    rig_close_store(&r);
    s = open_stored(&r, true);
    int n_several = 0, n_one = 0;
    for (uint64_t chain = 100; chain < 120; chain++) {
        id_text(id, rig_id(&r.o, chain, 0));
        snprintf(next, sizeof next, "%.1s", id);
        ig_status status = ig_stored_remove(NULL, s, IG_STORED_ID, next, &r.err);
        n_several += status == IG_E_ARG;
        n_one += status == IG_OK;
        if (status == IG_E_ARG) assert_non_null(strstr(r.err.text, "several"));
    }
    assert_true(n_several > 0 && n_one < 20);
    for (char *p = id; *p; p++)
        if (*p >= 'a') *p = (char)(*p - 'a' + 'A');
    ig_status status = ig_stored_remove(NULL, s, IG_STORED_ID, id, &r.err); /* capitals are the same digits */
    assert_true(status == IG_OK || status == IG_E_NOT_FOUND);
    ig_stored_close(s);
    rig_end(&r);
}

static void by_model_note_and_all(void **state) {
    (void)state;
    prefix_rig r;
    ig_stored_freed freed;
    fill(&r);
    ig_stored *s = open_stored(&r, true);
    assert_int_equal(ig_stored_remove(&freed, s, IG_STORED_MODEL, "smollm2", &r.err), IG_E_NOT_FOUND);
    assert_int_equal(ig_stored_remove(&freed, s, IG_STORED_NOTE, "third", &r.err), IG_E_NOT_FOUND);
    RIG_OK(&r, ig_stored_remove(&freed, s, IG_STORED_NOTE, "second", &r.err));
    assert_int_equal(freed.n_notes, 1);
    assert_int_equal(freed.bytes, 4096 + 7);
    RIG_OK(&r, ig_stored_remove(&freed, s, IG_STORED_MODEL, "smollm2-135m", &r.err));
    assert_int_equal(freed.n_pieces, 7);
    assert_int_equal(freed.n_notes, 1);
    assert_int_equal(freed.bytes, 7 * RIG_RECORD + 4096 + 5);
    ig_stored_close(s);
    seen l = list(&r);
    assert_int_equal(l.n, 1);
    assert_string_equal(l.models[0], "another q4_0");
    s = open_stored(&r, true);
    RIG_OK(&r, ig_stored_remove(&freed, s, IG_STORED_ALL, NULL, &r.err));
    assert_int_equal(freed.n_pieces, 2);
    RIG_OK(&r, ig_stored_remove(&freed, s, IG_STORED_ALL, NULL, &r.err));
    assert_int_equal(freed.n_pieces, 0);
    ig_stored_close(s);
    assert_int_equal(rig_count_files(&r, "kv-", "") + rig_count_files(&r, "note-", ""), 0);
    assert_int_equal(list(&r).n, 0);
    rig_end(&r);
}

static void collecting(void **state) {
    (void)state;
    prefix_rig r, other;
    char path[512], name[512];
    ig_stored_freed freed;
    fill(&r);
    /* A damaged beginning leaves what builds on it behind. */
    rig_open(&r);
    assert_true(rig_find_file(&r, "kv-", ".igkv", 0, path));
    damage_file(path, 4096);
    assert_int_equal(rig_read(&r, 1, 0), IG_E_FORMAT);
    rig_close_store(&r);
    /* And a file of another store. */
    rig_start(&other);
    rig_keep(&other, 9, 0, 0);
    rig_close_store(&other);
    assert_true(rig_find_file(&other, "kv-", ".igkv", 0, path));
    temp_dir_path(&r.dir, strrchr(path, '/') + 1, name, sizeof name);
    assert_int_equal(rename(path, name), 0);
    seen l;
    assert_int_equal(verify(&r, &l).n_foreign, 1);
    rig_end(&other);

    l = list(&r);
    assert_false(l.whole[find_id(&l, rig_id(&r.o, 1, 4))]);
    ig_stored *s = open_stored(&r, true);
    RIG_OK(&r, ig_stored_gc(&freed, s, UINT64_MAX, &r.err));
    assert_int_equal(freed.n_pieces, 6);
    assert_int_equal(freed.bytes, 7 * RIG_RECORD);
    RIG_OK(&r, ig_stored_gc(&freed, s, RIG_RECORD + 10000, &r.err));
    assert_int_equal(freed.n_pieces, 1);
    RIG_OK(&r, ig_stored_gc(&freed, s, 0, &r.err)); /* notes stay */
    assert_int_equal(freed.n_pieces, 1);
    ig_stored_info info;
    ig_stored_get_info(s, &info);
    assert_int_equal(info.bytes, 2 * 4096 + 12);
    ig_stored_close(s);
    assert_int_equal(list(&r).n, 2);
    rig_end(&r);
}

static uint64_t count_unread(prefix_rig *r, uint64_t *n_pieces) {
    ig_stored *s = open_stored(r, false);
    ig_stored_info info;
    ig_stored_get_info(s, &info);
    ig_stored_close(s);
    *n_pieces = info.n_pieces;
    return info.n_unread;
}

/* Of files that cannot be opened, whether an index knows them or not, is told. */
static void files_that_cannot_be_opened(void **state) {
    (void)state;
    prefix_rig r;
    char path[512];
    bool is_root = geteuid() == 0;
    uint64_t n_pieces;
    fill(&r);
    assert_int_equal(count_unread(&r, &n_pieces), 0);
    for (int with_index = 1; with_index >= 0; with_index--) {
        if (!with_index) rig_remove_index(&r);
        temp_dir_path(&r.dir, "store.id", path, sizeof path);
        assert_int_equal(chmod(path, 0444) | chmod(r.dir.path, 0755), 0);
        for (uint64_t n = 0; rig_find_file(&r, "kv-", ".igkv", n, path); n++) assert_int_equal(chmod(path, 0), 0);
        if (is_root) assert_int_equal(seteuid(65534), 0);
        assert_true(count_unread(&r, &n_pieces) >= (uint64_t)rig_count_files(&r, "kv-", ""));
        if (!with_index) assert_int_equal(n_pieces, 0);
        if (is_root) assert_int_equal(seteuid(0), 0);
    }
    rig_end(&r);
}

/* An index may say anything. */
static void names_that_are_none(void **state) {
    (void)state;
    static const char text[] =
        "INSERT INTO notes SELECT root, name || printf('%.*c', 80, 'x'), 5000, 1 FROM notes;"
        "INSERT INTO notes SELECT root, 'a' || char(0) || 'b', 5000, 1 FROM roots;"
        "INSERT INTO notes SELECT root, '.hidden', 5000, 1 FROM roots;"
        "INSERT INTO notes SELECT root, 'a' || char(228), 5000, 1 FROM roots;"
        "INSERT INTO notes SELECT root, 'a/b', 5000, 1 FROM roots;"
        "INSERT INTO notes SELECT root, '', 5000, 1 FROM roots;";
    prefix_rig r;
    char path[512];
    sqlite3 *db;
    ig_stored_health health;
    seen damaged = {0};
    fill(&r);
    temp_dir_path(&r.dir, "index.db", path, sizeof path);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, text, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    seen l = list(&r);
    assert_int_equal(l.n, 5);
    assert_int_equal(l.n_notes, 2);
    ig_stored *s = open_stored(&r, false);
    RIG_OK(&r, ig_stored_verify(&health, s, see, NULL, &damaged, &r.err));
    assert_int_equal(health.n_notes, 2);
    assert_int_equal(damaged.n, 0);
    ig_stored_close(s);
    rig_end(&r);
}

/* While another writes one may look, but not change. */
static void beside_a_writer(void **state) {
    (void)state;
    prefix_rig r;
    ig_stored *s;
    fill(&r);
    rig_open(&r);
    assert_int_equal(ig_stored_open(&s, r.dir.path, true, &r.err), IG_E_UNSUPPORTED);
    assert_non_null(strstr(r.err.text, "another cache of this process"));
    assert_null(s);
    assert_int_equal(list(&r).n, 5);
    s = open_stored(&r, false);
    assert_int_equal(ig_stored_gc(NULL, s, 0, &r.err), IG_E_UNSUPPORTED);
    assert_int_equal(ig_stored_remove(NULL, s, IG_STORED_ALL, NULL, &r.err), IG_E_UNSUPPORTED);
    ig_stored_close(s);
    rig_end(&r);
}

/* A chain of thousands: taking it out is quick, and in parts. */
static void a_long_chain(void **state) {
    (void)state;
    prefix_rig r;
    enum { N = 1500 };
    uint8_t byte = 7;
    int32_t tokens[RIG_TOKENS] = {0};
    struct iovec area = {&byte, 1};
    ig_stored_freed freed;
    rig_init(&r);
    r.o.piece_bytes = 1;
    rig_open(&r);
    for (int i = 0; i < N; i++) {
        ig_prefix_piece p = {rig_id(&r.o, 1, i), rig_id(&r.o, 1, i - 1), i, tokens};
        RIG_OK(&r, ig_prefix_store_put(r.store, &p, &area, 1, &r.err));
    }
    rig_commit(&r);
    rig_close_store(&r);
    seen l = list(&r);
    assert_int_equal(l.n, 1);
    assert_int_equal(l.tokens[0], N * RIG_TOKENS);
    ig_stored *s = open_stored(&r, true);
    RIG_OK(&r, ig_stored_remove(&freed, s, IG_STORED_ID, l.ids[0], &r.err));
    assert_int_equal(freed.n_pieces, N);
    ig_stored_close(s);
    assert_int_equal(rig_count_files(&r, "kv-", ""), 0);
    rig_end(&r);
}

/* What makes room works where there is none for the index. */
static void room_is_made_on_a_full_disk(void **state) {
    (void)state;
    for (int with_index = 1; with_index >= 0; with_index--) {
        prefix_rig r;
        int status;
        fill(&r);
        if (!with_index) rig_remove_index(&r);
        pid_t child = fork();
        if (child == 0) {
            const struct rlimit limit = {1000, 1000};
            ig_stored *s;
            ig_stored_freed freed;
            signal(SIGXFSZ, SIG_DFL);
            sqlite3_soft_heap_limit64(1); /* SQLite writes at once what it else writes of a large index */
            if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(1);
            if (ig_stored_open(&s, r.dir.path, true, &r.err) != IG_OK) _exit(2);
            if (ig_stored_remove(&freed, s, IG_STORED_MODEL, "another q4_0", &r.err) != IG_OK) _exit(3);
            if (freed.n_pieces != 2 || freed.n_notes != 1) _exit(4);
            ig_stored_close(s);
            _exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        seen l = list(&r);
        assert_int_equal(l.n, 3);
        rig_open(&r);
        assert_null(ig_prefix_store_why_read_only(r.store));
        for (int i = 0; i < 5; i++) RIG_OK(&r, rig_read(&r, 1, i));
        rig_end(&r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_is_listed),
        cmocka_unit_test(damage_is_found),
        cmocka_unit_test(what_is_shared_stays),
        cmocka_unit_test(ids_are_checked),
        cmocka_unit_test(by_model_note_and_all),
        cmocka_unit_test(collecting),
        cmocka_unit_test(names_that_are_none),
        cmocka_unit_test(files_that_cannot_be_opened),
        cmocka_unit_test(beside_a_writer),
        cmocka_unit_test(a_long_chain),
        cmocka_unit_test(room_is_made_on_a_full_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
