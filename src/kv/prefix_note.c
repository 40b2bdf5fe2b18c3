/* SPDX-License-Identifier: Apache-2.0
 *
 * Notes: a file each, header and bytes, named by the hash of root and name. A new one takes the old one's name only
 * when all of it is on the disk. They are read by their name; the index only lists them and counts their bytes.
 */
#define _GNU_SOURCE
#include "kv/prefix_note.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

#define KIND "notes" /* of their root, for people */

static ig_status check_name(const ig_prefix_store *s, const char *name, ig_error *err) {
    if (!s->piece_bytes) return ig_fail(err, IG_E_ARG, "KV store: no root is open");
    if (ig_prefix_is_name(name)) return IG_OK;
    return ig_fail(err, IG_E_ARG,
                   "'%.80s' is no name: 1 to %d letters, digits, dots, dashes and underscores, no dot first", name,
                   IG_PREFIX_NAME - 1);
}

/* ---- writing ------------------------------------------------------------- */

/* 0: the note has its name, if not for certain on the disk. */
static int write_file(ig_prefix_store *s, const char *tmp, const char *name, ig_prefix_record *r, const void *bytes) {
    uint8_t page[IG_PREFIX_PAGE];
    struct iovec parts[2] = {{page, sizeof page}, {(void *)bytes, (size_t)r->payload_bytes}};
    int fd;
    if (!ig_prefix_hash(&r->payload_hash, parts + 1, 1)) return ENOMEM;
    ig_prefix_record_write(page, r);
    unlinkat(s->dir.fd, tmp, 0);
    int e = ig_prefix_make(&s->dir, tmp, &fd);
    if (e) return e;
    e = ig_prefix_write(&s->dir, fd, 0, parts, 2);
    if (!e) e = ig_prefix_rename(&s->dir, fd, tmp, name);
    close(fd);
    if (e) unlinkat(s->dir.fd, tmp, 0);
    return e;
}

/* Bytes that a note takes now; 0: there is none. */
static uint64_t taken_by(ig_prefix_store *s, const ig_prefix_id *root, const char *name) {
    int64_t n = ig_prefix_index_ask(&s->index, 0, IG_Q_NOTE, "xt", root, name);
    return n > 0 ? (uint64_t)n : 0;
}

static ig_status make_room(ig_prefix_store *s, const char *name, uint64_t n_bytes, ig_error *err) {
    ig_prefix_enter(s);
    uint64_t before = taken_by(s, &s->notes, name);
    ig_status status = before < n_bytes ? ig_prefix_make_room(s, n_bytes - before, NULL, err) : IG_OK;
    ig_prefix_leave(s);
    return status;
}

static ig_status index_note(ig_prefix_store *s, const char *name, uint64_t n_bytes, ig_error *err) {
    ig_prefix_index *ix = &s->index;
    ig_prefix_enter(s);
    if (ig_prefix_index_begin(ix)) {
        uint64_t before = taken_by(s, &s->notes, name);
        ig_prefix_index_do(ix, IG_Q_ADD_ROOT, "xtt", &s->notes, s->model, KIND);
        ig_prefix_index_do(ix, IG_Q_ADD_NOTE, "xtii", &s->notes, name, (int64_t)n_bytes, ig_prefix_now(s));
        if (ig_prefix_index_end(ix)) s->bytes += n_bytes - before;
    }
    return ig_prefix_leave_with(s, IG_OK, err);
}

static ig_status put(ig_prefix_store *s, const char *name, const void *bytes, size_t n, ig_error *err) {
    char file[IG_PREFIX_FILE_NAME], tmp[IG_PREFIX_FILE_NAME + 4];
    ig_prefix_record r = {.is_note = true, .store = s->store, .root = s->notes, .payload_bytes = n};
    memcpy(r.model, s->model, sizeof r.model);
    strcpy(r.kind, KIND);
    memcpy(r.name, name, strlen(name));
    ig_status status = make_room(s, name, IG_PREFIX_PAGE + (uint64_t)n, err);
    if (status) return status;
    ig_prefix_note_name(file, &s->notes, name);
    strcat(strcpy(tmp, file), ".tmp");
    int e = write_file(s, tmp, file, &r, bytes);
    if (e) return ig_prefix_dir_fail(&s->dir, name, e, err);
    status = index_note(s, name, IG_PREFIX_PAGE + (uint64_t)n, err); /* from here on it is what everybody reads */
    e = ig_prefix_sync_names(&s->dir);
    return e ? ig_prefix_dir_fail(&s->dir, name, e, err) : status;
}

ig_status ig_prefix_store_note_put(ig_prefix_store *s, const char *name, const void *bytes, size_t n, ig_error *err) {
    ig_prefix_mute mute;
    ig_status status = check_name(s, name, err);
    if (status) return status;
    if (n > IG_PREFIX_NOTE_MAX)
        return ig_fail(err, IG_E_LIMIT, "KV store %s: %s: %zu bytes; a note may have %d", s->dir.path, name, n,
                       IG_PREFIX_NOTE_MAX);
    status = ig_prefix_begin_write(s, &mute, err);
    if (status) return status;
    status = put(s, name, bytes, n, err);
    ig_prefix_end_write(s, &mute);
    return status;
}

ig_status ig_prefix_note_drop(ig_prefix_store *s, const ig_prefix_id *root, const char *name, ig_error *err) {
    char file[IG_PREFIX_FILE_NAME];
    ig_prefix_index *ix = &s->index;
    ig_prefix_note_name(file, root, name);
    int e = unlinkat(s->dir.fd, file, 0) == 0 ? 0 : errno;
    if (e && e != ENOENT) return ig_prefix_dir_fail(&s->dir, name, e, err);
    uint64_t n_bytes = taken_by(s, root, name);
    if (!ig_prefix_index_do(ix, IG_Q_REMOVE_NOTE, "xt", root, name)) return ig_prefix_index_fail(ix, s->dir.path, err);
    s->bytes -= n_bytes < s->bytes ? n_bytes : s->bytes;
    return e ? ig_fail(err, IG_E_NOT_FOUND, "KV store %s: no note '%s'", s->dir.path, name) : IG_OK;
}

ig_status ig_prefix_store_note_remove(ig_prefix_store *s, const char *name, ig_error *err) {
    ig_prefix_mute mute;
    ig_status status = check_name(s, name, err);
    if (status) return status;
    status = ig_prefix_begin_write(s, &mute, err); /* a put between name and index is not done yet */
    if (status) return status;
    ig_prefix_enter(s);
    status = ig_prefix_note_drop(s, &s->notes, name, err);
    ig_prefix_leave(s);
    int e = status ? 0 : ig_prefix_sync_names(&s->dir);
    if (e) status = ig_prefix_dir_fail(&s->dir, name, e, err);
    ig_prefix_end_write(s, &mute);
    return status;
}

/* ---- reading ------------------------------------------------------------- */

bool ig_prefix_note_next(ig_prefix_store *s, int64_t *root, ig_prefix_item *item) {
    ig_prefix_index *ix = &s->index;
    char before[IG_PREFIX_NAME];
    memcpy(before, item->note, sizeof before);
    sqlite3_stmt *q = ig_prefix_index_query(ix, IG_Q_NEXT_NOTE, "it", *root, before);
    if (!ig_prefix_index_step(ix, q)) return false;
    *item = (ig_prefix_item){.is_whole = true, .used = 1e-6 * (double)sqlite3_column_int64(q, 4)};
    *root = sqlite3_column_int64(q, 0);
    ig_prefix_index_id(&item->root, q, 1);
    ig_prefix_index_text(item->note, sizeof item->note, q, 2);
    item->bytes = (uint64_t)sqlite3_column_int64(q, 3);
    ig_prefix_index_text(item->model, sizeof item->model, q, 5);
    ig_prefix_index_text(item->kind, sizeof item->kind, q, 6);
    sqlite3_reset(q);
    return true;
}

/* malloc'ed bytes of an open file, or what is wrong with it. */
static int read_file(const ig_prefix_store *s, int fd, uint64_t n_bytes, const ig_prefix_id *root, const char *name,
                     char **out, size_t *n, const char **damage) {
    ig_prefix_header kind;
    ig_prefix_record r;
    ig_prefix_id hash;
    int e = ig_prefix_read_header(&s->dir, fd, 0, &kind, &r);
    if (e && e != ENODATA) return e;
    *damage = "its header is damaged";
    if (e || kind != IG_PREFIX_VALID || !r.is_note) return 0;
    *damage = "its header is another's";
    if (!ig_prefix_same(&r.store, &s->store) || !ig_prefix_same(&r.root, root) || strcmp(r.name, name) != 0) return 0;
    *damage = "its file has another length";
    if (n_bytes != IG_PREFIX_PAGE + r.payload_bytes) return 0;
    struct iovec area = {malloc((size_t)r.payload_bytes + 1), (size_t)r.payload_bytes};
    if (!area.iov_base) return ENOMEM;
    e = ig_prefix_read(&s->dir, fd, IG_PREFIX_PAGE, &area, 1);
    if (!e && !ig_prefix_hash(&hash, &area, 1)) e = ENOMEM;
    if (!e) *damage = ig_prefix_same(&hash, &r.payload_hash) ? NULL : "its checksum is wrong";
    if (e == ENODATA) e = 0; /* it has just become shorter */
    if (e || *damage) {
        free(area.iov_base);
        return e;
    }
    *out = area.iov_base;
    *n = area.iov_len;
    (*out)[*n] = 0;
    return 0;
}

ig_status ig_prefix_note_read(ig_prefix_store *s, const ig_prefix_id *root, const char *name, char **bytes, size_t *n,
                              ig_error *err) {
    char file[IG_PREFIX_FILE_NAME];
    const char *damage = NULL;
    struct stat st;
    int fd;
    *bytes = NULL;
    *n = 0;
    ig_prefix_note_name(file, root, name);
    int e = ig_prefix_open(&s->dir, file, false, &fd, &st);
    if (e == ENOENT) return ig_fail(err, IG_E_NOT_FOUND, "KV store %s: no note '%s'", s->dir.path, name);
    if (!e) e = read_file(s, fd, (uint64_t)st.st_size, root, name, bytes, n, &damage);
    if (fd >= 0) close(fd);
    if (e) return ig_prefix_dir_fail(&s->dir, name, e, err);
    return damage ? ig_fail(err, IG_E_FORMAT, "KV store %s: the note '%s' is damaged: %s", s->dir.path, name, damage)
                  : IG_OK;
}

ig_status ig_prefix_store_note_get(ig_prefix_store *s, const char *name, void **bytes, size_t *n, ig_error *err) {
    char *text;
    *bytes = NULL;
    *n = 0;
    ig_status status = check_name(s, name, err);
    if (status) return status;
    status = ig_prefix_note_read(s, &s->notes, name, &text, n, err);
    *bytes = text;
    return status;
}

ig_status ig_prefix_store_note_list(ig_prefix_store *s, bool (*each)(void *user, const ig_prefix_note *note),
                                    void *user, ig_error *err) {
    ig_prefix_index *ix = &s->index;
    ig_prefix_enter(s);
    sqlite3_stmt *q = ig_prefix_index_query(ix, IG_Q_NOTES, "x", &s->notes);
    while (ig_prefix_index_step(ix, q)) {
        ig_prefix_note note = {.bytes = (uint64_t)sqlite3_column_int64(q, 1) - IG_PREFIX_PAGE,
                               .written = 1e-6 * (double)sqlite3_column_int64(q, 2)};
        const char *name = (const char *)sqlite3_column_text(q, 0);
        if (!name || !ig_prefix_is_name(name)) continue;
        memcpy(note.name, name, strlen(name));
        if (each(user, &note)) break;
    }
    sqlite3_reset(q);
    return ig_prefix_leave_with(s, IG_OK, err);
}
