/* SPDX-License-Identifier: Apache-2.0
 *
 * How a store starts. The writer removes what is not finished, brings the index and the directory together, and makes
 * the holes that are still to be made. All of the index's changes are one transaction, so that readers see the index
 * before or after it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "kv/prefix_store_parts.h"

/* ---- taking files in ------------------------------------------------------ */

static void add_root(ig_prefix_store *s, const ig_prefix_record *r) {
    ig_prefix_index_do(&s->index, IG_Q_ADD_ROOT, "xtt", &r->root, r->model, r->kind);
}

/* A record of which the index knows another copy is only room that can be given back. */
static void add_piece(ig_prefix_store *s, const ig_prefix_record *r, int64_t used) {
    ig_prefix_index *ix = &s->index;
    int64_t file = (int64_t)r->file, offset = (int64_t)r->offset;
    int64_t n_bytes = (int64_t)ig_prefix_record_bytes(r->payload_bytes);
    add_root(s, r);
    ig_prefix_index_do(ix, IG_Q_ADD_PIECE, "xxxiiiiii", &r->root, &r->id, &r->parent, (int64_t)r->number,
                       (int64_t)r->n_tokens, file, offset, n_bytes, used);
    if (sqlite3_changes(ix->db) == 0) ig_prefix_index_do(ix, IG_Q_ADD_HOLE, "iii", file, offset, n_bytes);
}

/* Adds the pieces of an open file; their number. What lies between them gives its room back, where that is the
 * writer's to do: damaged records, and what is left of one when a process is killed while it makes a hole. */
static uint64_t add_pieces(ig_prefix_store *s, ig_prefix_scan *scan, int64_t used) {
    ig_prefix_record r;
    uint64_t n_pieces = 0, end = 0;
    while (!s->index.failed && ig_prefix_scan_next(scan, &s->store, &r)) {
        if (s->can_punch && !scan->n_foreign) ig_prefix_clear(scan->fd, end, scan->found);
        add_piece(s, &r, used);
        end = scan->offset;
        n_pieces++;
    }
    if (n_pieces && s->can_punch && !scan->n_foreign && !scan->e && !s->index.failed)
        ig_prefix_clear(scan->fd, end, scan->n_bytes);
    return n_pieces;
}

/* Room on the disk. Holes take none. */
static uint64_t room_of(const struct stat *st) {
    uint64_t taken = (uint64_t)st->st_blocks * 512, size = (uint64_t)st->st_size;
    return taken < size ? taken : size;
}

/* A file that is nobody's. */
static void remove_file(ig_prefix_store *s, const char *name) {
    struct stat st;
    bool is_there = fstatat(s->dir.fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
    if (unlinkat(s->dir.fd, name, 0) == 0 && is_there) s->cleared += room_of(&st);
}

/* Takes a file of pieces in by its headers. One in which there is nothing is removed by who can. */
static void take_pieces(ig_prefix_store *s, const char *name, uint64_t file) {
    struct stat st;
    ig_prefix_scan scan = {.dir = &s->dir, .file = file};
    if (ig_prefix_open(&s->dir, name, ig_prefix_is_writer(s), &scan.fd, &st) != 0) return;
    scan.n_bytes = (uint64_t)st.st_size;
    int64_t used = (int64_t)st.st_mtim.tv_sec * 1000000 + st.st_mtim.tv_nsec / 1000;
    uint64_t before = room_of(&st), n_pieces = add_pieces(s, &scan, used);
    if (fstat(scan.fd, &st) != 0) st.st_blocks = 0;
    close(scan.fd);
    if (!n_pieces && !scan.n_foreign && !scan.e && !s->index.failed && ig_prefix_is_writer(s)) {
        remove_file(s, name);
        return;
    }
    uint64_t taken = room_of(&st);
    if (taken < before) s->cleared += before - taken;
    uint64_t size = scan.n_bytes + (scan.e != 0); /* of another size: the next start reads it anew */
    ig_prefix_index_do(&s->index, IG_Q_ADD_FILE, "iii", (int64_t)file, (int64_t)size, (int64_t)taken);
    if (file > s->last_file) s->last_file = file;
}

static void take_note(ig_prefix_store *s, const char *name) {
    ig_prefix_index *ix = &s->index;
    ig_prefix_header kind;
    char wanted[IG_PREFIX_FILE_NAME];
    struct stat st;
    ig_prefix_record r;
    int fd;
    if (ig_prefix_open(&s->dir, name, false, &fd, &st) != 0) return;
    int e = ig_prefix_read_header(&s->dir, fd, 0, &kind, &r);
    close(fd);
    if (e || kind != IG_PREFIX_VALID || !r.is_note) return;
    if (!ig_prefix_same(&r.store, &s->store) || (uint64_t)st.st_size != IG_PREFIX_PAGE + r.payload_bytes) return;
    ig_prefix_note_name(wanted, &r.root, r.name);
    if (strcmp(wanted, name) != 0) return;
    add_root(s, &r);
    ig_prefix_index_do(ix, IG_Q_ADD_NOTE, "xtii", &r.root, r.name, (int64_t)st.st_size,
                       (int64_t)st.st_mtim.tv_sec * 1000000 + st.st_mtim.tv_nsec / 1000);
}

static bool is_known(ig_prefix_store *s, uint64_t file, const char *name) {
    struct stat st;
    return fstatat(s->dir.fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           ig_prefix_index_ask(&s->index, -1, IG_Q_FILE, "i", (int64_t)file) == (int64_t)st.st_size;
}

static ig_status take_directory(ig_prefix_store *s, ig_error *err) {
    DIR *list;
    ig_status status = ig_prefix_dir_list(&list, &s->dir, err);
    if (status) return status;
    for (struct dirent *entry; !s->index.failed && (entry = readdir(list));) {
        const char *name = entry->d_name;
        uint64_t file;
        ig_prefix_name kind = ig_prefix_name_kind(name, &file);
        if (kind == IG_PREFIX_TMP && ig_prefix_is_writer(s)) remove_file(s, name);
        if (kind == IG_PREFIX_NOTE) take_note(s, name);
        if (kind != IG_PREFIX_PIECES || is_known(s, file, name)) continue;
        ig_prefix_drop_file(s, (int64_t)file);
        take_pieces(s, name, file);
    }
    closedir(list);
    return IG_OK;
}

/* Rows of files that are not there any more. */
static void drop_missing(ig_prefix_store *s) {
    ig_prefix_index *ix = &s->index;
    char name[IG_PREFIX_FILE_NAME];
    struct stat st;
    for (int64_t file = -1;;) {
        file = ig_prefix_index_ask(ix, -1, IG_Q_NEXT_FILE, "i", file);
        if (file < 0) return;
        ig_prefix_file_name(name, (uint64_t)file);
        if (fstatat(s->dir.fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0 && errno == ENOENT) ig_prefix_drop_file(s, file);
    }
}

/* ---- the index ------------------------------------------------------------ */

void ig_prefix_remove_index(ig_prefix_store *s) {
    static const char *const names[] = {IG_PREFIX_INDEX_NAME, IG_PREFIX_INDEX_NAME "-wal", IG_PREFIX_INDEX_NAME "-shm",
                                        IG_PREFIX_INDEX_NAME "-journal"};
    for (size_t i = 0; i < IG_COUNT(names); i++) unlinkat(s->dir.fd, names[i], 0);
}

/* Opens the index if it is this store's and whole; else an empty one. */
static ig_status open_index(ig_prefix_store *s, bool *is_new, ig_error *err) {
    ig_prefix_index *ix = &s->index;
    *is_new = false;
    if (ig_prefix_index_open(ix, s->dir.path, IG_PREFIX_INDEX_WRITE) && ig_prefix_index_is_of(ix, &s->store, true))
        return IG_OK;
    ig_prefix_index_close(ix);
    ig_prefix_remove_index(s);
    *is_new = true;
    return ig_prefix_index_open(ix, s->dir.path, IG_PREFIX_INDEX_WRITE) ? IG_OK
                                                                        : ig_prefix_index_fail(ix, s->dir.path, err);
}

/* Brings index and directory together. */
static ig_status fill_index(ig_prefix_store *s, bool is_new, ig_error *err) {
    ig_prefix_index *ix = &s->index;
    ig_status status = IG_OK;
    if (!ig_prefix_index_prepare(ix) || !ig_prefix_index_begin(ix)) return ig_prefix_index_fail(ix, s->dir.path, err);
    if (!is_new || ig_prefix_index_create(ix, &s->store)) {
        ig_prefix_index_do(ix, IG_Q_CLEAR_NOTES, ""); /* all of them are read anew */
        status = take_directory(s, err);
        drop_missing(s);
    }
    bool is_done = ig_prefix_index_end(ix);
    if (status) return status;
    return is_done ? IG_OK : ig_prefix_index_fail(ix, s->dir.path, err);
}

/* What is there already. A clock that was once ahead is no reason to take what comes now for older. */
static ig_status count(ig_prefix_store *s, ig_error *err) {
    ig_prefix_index *ix = &s->index;
    int64_t n_bytes = ig_prefix_index_ask(ix, 0, IG_Q_SUM_BYTES, "");
    int64_t last = ig_prefix_index_ask(ix, 0, IG_Q_LAST_FILE, "");
    int64_t used = ig_prefix_index_ask(ix, 0, IG_Q_LAST_USE, "");
    s->bytes = n_bytes > 0 ? (uint64_t)n_bytes : 0;
    if (last > 0 && (uint64_t)last > s->last_file) s->last_file = (uint64_t)last;
    if (used > s->last_time && used <= INT64_MAX / 2) s->last_time = used; /* more has no clock told */
    return ix->failed ? ig_prefix_index_fail(ix, s->dir.path, err) : IG_OK;
}

/* What the files say, for as long as this store is open: in a file without a name, or in memory where that has no room.
 */
static ig_status do_without_index(ig_prefix_store *s, ig_error *err) {
    ig_prefix_index *ix = &s->index;
    const ig_prefix_index_mode modes[] = {IG_PREFIX_INDEX_READ, IG_PREFIX_INDEX_IN_MEMORY};
    ig_status status = IG_E_IO;
    for (size_t i = 0; status == IG_E_IO && i < IG_COUNT(modes); i++) {
        ig_prefix_index_close(ix);
        status = ig_prefix_index_open(ix, NULL, modes[i]) ? fill_index(s, true, err)
                                                          : ig_prefix_index_fail(ix, s->dir.path, err);
    }
    return status;
}

static ig_status start_with_index(ig_prefix_store *s, ig_error *err) {
    bool is_new, is_done;
    ig_status status = open_index(s, &is_new, err);
    if (!status) status = fill_index(s, is_new, err);
    if (status == IG_E_IO && !s->piece_bytes && !s->index.is_corrupt) {
        /* Tools make room on a full disk; the next writer makes a new index. */
        ig_prefix_index_close(&s->index);
        ig_prefix_remove_index(s);
        status = do_without_index(s, err);
    }
    if (status) return status;
    ig_prefix_make_holes(s);
    s->index.failed = false;
    status = count(s, err);
    return !status && s->max_bytes ? ig_prefix_shrink(s, s->max_bytes, &is_done, err) : status;
}

/* An index may be damaged where only its use shows that. */
ig_status ig_prefix_start_writer(ig_prefix_store *s, ig_error *err) {
    s->may_touch = s->has_empty_files = true;
    ig_status status = ig_prefix_dir_make_identity(&s->dir, &s->store, err);
    if (!status) status = start_with_index(s, err);
    if (!status || !s->index.is_corrupt) return status;
    ig_prefix_index_close(&s->index);
    ig_prefix_remove_index(s);
    return start_with_index(s, err);
}

ig_status ig_prefix_start_reader(ig_prefix_store *s, ig_error *err) {
    ig_prefix_index *ix = &s->index;
    ig_prefix_index_mode mode = s->may_touch ? IG_PREFIX_INDEX_TOUCH : IG_PREFIX_INDEX_READ;
    bool has_store = ig_prefix_dir_identity(&s->dir, &s->store) == 0;
    if (has_store && ig_prefix_index_open(ix, s->dir.path, mode) && ig_prefix_index_is_of(ix, &s->store, false)) {
        if (!ig_prefix_index_prepare(ix)) return ig_prefix_index_fail(ix, s->dir.path, err);
        return count(s, err);
    }
    s->may_touch = false;
    ig_status status = do_without_index(s, err);
    return status ? status : count(s, err);
}
