/* SPDX-License-Identifier: Apache-2.0
 *
 * Listing and checking. The index says what to look at, a step at a time, so that nothing is locked while a caller's
 * function runs and other processes may go on.
 */
#define _GNU_SOURCE
#include "kv/prefix_tool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/error.h"
#include "kv/prefix_note.h"
#include "kv/prefix_store_parts.h"

enum { BUFFER = 1 << 20 };

/* Hash, model and kind of a piece's root. */
static void fill_root(ig_prefix_store *s, int64_t piece, ig_prefix_item *item) {
    sqlite3_stmt *q = ig_prefix_index_query(&s->index, IG_Q_ROOT_OF, "i", piece);
    if (!ig_prefix_index_step(&s->index, q)) return;
    ig_prefix_index_id(&item->root, q, 0);
    ig_prefix_index_text(item->model, sizeof item->model, q, 1);
    ig_prefix_index_text(item->kind, sizeof item->kind, q, 2);
    sqlite3_reset(q);
}

/* ---- listing ------------------------------------------------------------- */

/* Sums a chain up from its end to its beginning. */
static void fill_chain(ig_prefix_store *s, ig_prefix_row row, ig_prefix_item *item) {
    ig_prefix_index *ix = &s->index;
    *item = (ig_prefix_item){.id = row.id, .used = 1e-6 * (double)row.used};
    fill_root(s, row.piece, item);
    do {
        item->n_pieces++;
        item->n_tokens += (uint64_t)row.n_tokens;
        item->bytes += row.bytes;
        item->is_whole = row.number == 0;
    } while (ig_prefix_index_find(ix, &row, IG_Q_PARENT, "i", row.piece));
}

ig_status ig_prefix_list(ig_prefix_store *s, ig_prefix_item_fn each, void *user, ig_error *err) {
    ig_prefix_index *ix = &s->index;
    ig_prefix_item item;
    ig_prefix_row row = {.piece = 0};
    ig_status status = IG_OK;
    for (bool more = true; more && !status;) {
        ig_prefix_enter(s);
        more = ig_prefix_index_find(ix, &row, IG_Q_NEXT_END, "i", row.piece);
        if (more) fill_chain(s, row, &item);
        status = ig_prefix_leave_with(s, IG_OK, err);
        if (!status && more && each(user, &item)) return IG_OK;
    }
    int64_t root = 0;
    item = (ig_prefix_item){.note = ""};
    for (bool more = true; more && !status;) {
        ig_prefix_enter(s);
        more = ig_prefix_note_next(s, &root, &item);
        status = ig_prefix_leave_with(s, IG_OK, err);
        if (!status && more && each(user, &item)) return IG_OK;
    }
    return status;
}

/* ---- checking ------------------------------------------------------------ */

typedef struct checker {
    ig_prefix_store *s;
    ig_stored_health *out;
    ig_prefix_item_fn each;
    ig_progress_fn progress;
    void *user;
    uint64_t n_done; /* bytes */
    uint8_t *buffer; /* [BUFFER] */
    XXH3_state_t *hash;
} checker;

static int hash_payload(checker *c, int fd, uint64_t offset, uint64_t n_bytes, ig_prefix_id *out) {
    XXH3_128bits_reset(c->hash);
    for (size_t n; n_bytes; n_bytes -= n, offset += n) {
        n = n_bytes < BUFFER ? (size_t)n_bytes : BUFFER;
        int e = ig_prefix_read(&c->s->dir, fd, offset, &(struct iovec){c->buffer, n}, 1);
        if (e) return e;
        XXH3_128bits_update(c->hash, c->buffer, n);
    }
    XXH128_hash_t h = XXH3_128bits_digest(c->hash);
    *out = (ig_prefix_id){h.low64, h.high64};
    return 0;
}

/* An errno, or ENOENT for what has left, or what is wrong in *damage. */
static int check_record(checker *c, int fd, const ig_prefix_row *row, const ig_prefix_id *root, const char **damage) {
    ig_prefix_record r;
    ig_prefix_id hash;
    int e = ig_prefix_read_row(c->s, fd, row, root, &r, damage);
    if (e || *damage) return e;
    e = hash_payload(c, fd, row->offset + IG_PREFIX_PAGE, r.payload_bytes, &hash);
    return ig_prefix_judge_payload(c->s, fd, row, e, &hash, &r, damage);
}

/* What could not be opened or read. */
static const char *reason_of(int e) { return e == EINVAL ? "it is no regular file" : strerror(e); }

/* True: stop. */
static bool report(checker *c, ig_prefix_item *item, const char *damage) {
    c->out->n_damaged++;
    item->damage = damage;
    return c->each && c->each(c->user, item);
}

static bool check_piece(checker *c, const ig_prefix_row *row, ig_prefix_item *item) {
    const char *damage = NULL;
    int fd = -1;
    ig_prefix_file_name(item->file, row->file);
    int e = ig_prefix_open(&c->s->dir, item->file, false, &fd, NULL);
    if (!e) e = check_record(c, fd, row, &item->root, &damage);
    if (fd >= 0) close(fd);
    if (e == ENOENT) return false;
    c->out->n_pieces++;
    c->out->bytes += row->bytes;
    if (e) damage = reason_of(e);
    if (!damage) return false;
    ig_prefix_enter(c->s);
    ig_prefix_index_do(&c->s->index, IG_Q_FORGET, "ii", (int64_t)row->file, (int64_t)row->offset);
    ig_prefix_leave(c->s);
    return report(c, item, damage);
}

static ig_status check_pieces(checker *c, ig_error *err) {
    ig_prefix_store *s = c->s;
    ig_prefix_index *ix = &s->index;
    ig_prefix_row row = {.piece = 0};
    for (;;) {
        ig_prefix_item item = {.is_whole = true};
        ig_prefix_enter(s);
        bool more = ig_prefix_index_find(ix, &row, IG_Q_NEXT_PIECE, "i", row.piece);
        if (more) fill_root(s, row.piece, &item);
        ig_status status = ig_prefix_leave_with(s, IG_OK, err);
        if (status || !more) return status;
        item.id = row.id;
        item.n_pieces = 1;
        item.n_tokens = (uint64_t)row.n_tokens;
        item.bytes = row.bytes;
        item.used = 1e-6 * (double)row.used;
        c->n_done += row.bytes;
        if (c->progress && c->progress(c->user, c->n_done, s->bytes > c->n_done ? s->bytes : c->n_done))
            return ig_fail(err, IG_E_INTERRUPTED, "interrupted");
        if (check_piece(c, &row, &item)) return ig_fail(err, IG_E_INTERRUPTED, "interrupted");
    }
}

static ig_status check_notes(checker *c, ig_error *err) {
    ig_prefix_item item = {.note = ""};
    ig_error why;
    int64_t root = 0;
    for (;;) {
        char *bytes;
        size_t n;
        ig_prefix_enter(c->s);
        bool more = ig_prefix_note_next(c->s, &root, &item);
        ig_status status = ig_prefix_leave_with(c->s, IG_OK, err);
        if (status || !more) return status;
        status = ig_prefix_note_read(c->s, &item.root, item.note, &bytes, &n, &why);
        free(bytes);
        if (status == IG_E_NOT_FOUND) continue;
        c->out->n_notes++;
        c->out->bytes += item.bytes;
        ig_prefix_note_name(item.file, &item.root, item.note);
        if (status && report(c, &item, why.text)) return ig_fail(err, IG_E_INTERRUPTED, "interrupted");
    }
}

/* A file of pieces with something in it that is no piece; what was reported of it is not reported again. */
static bool check_file(checker *c, const char *name, uint64_t file) {
    struct stat st;
    ig_prefix_record r;
    ig_prefix_item item = {.is_whole = true};
    ig_prefix_scan scan = {.dir = &c->s->dir, .file = file};
    int e = ig_prefix_open(&c->s->dir, name, false, &scan.fd, &st);
    if (e == ENOENT) return false;
    if (!e) {
        scan.n_bytes = (uint64_t)st.st_size;
        while (ig_prefix_scan_next(&scan, &c->s->store, &r)) continue;
        close(scan.fd);
        e = scan.e;
    }
    if (!e && scan.n_foreign) { /* what follows such a header says nothing to us */
        c->out->n_foreign++;
        return false;
    }
    if (!e && !scan.n_damaged) return false;
    ig_prefix_enter(c->s);
    bool is_known = ig_prefix_index_ask(&c->s->index, 0, IG_Q_WAS_FORGOTTEN, "i", (int64_t)file);
    ig_prefix_leave(c->s);
    if (is_known) return false;
    snprintf(item.file, sizeof item.file, "%s", name);
    item.bytes = (uint64_t)st.st_size;
    return report(c, &item, e ? reason_of(e) : "it holds something that is no piece");
}

uint64_t ig_prefix_count_unread(const ig_prefix_store *s) {
    uint64_t n = 0, file;
    ig_error err;
    DIR *list;
    if (ig_prefix_dir_list(&list, &s->dir, &err)) return 0;
    for (struct dirent *entry; (entry = readdir(list));) {
        int fd, e = 0;
        ig_prefix_name kind = ig_prefix_name_kind(entry->d_name, &file);
        if (kind != IG_PREFIX_PIECES && kind != IG_PREFIX_NOTE) continue;
        e = ig_prefix_open(&s->dir, entry->d_name, false, &fd, NULL);
        if (!e) close(fd);
        n += e && e != ENOENT && e != EINVAL; /* which are no files of a store's, or have just left */
    }
    closedir(list);
    return n;
}

static ig_status check_files(checker *c, ig_error *err) {
    bool stop = false;
    DIR *list;
    ig_status status = ig_prefix_dir_list(&list, &c->s->dir, err);
    if (status) return status;
    for (struct dirent *entry; !stop && (entry = readdir(list));) {
        uint64_t file;
        if (ig_prefix_name_kind(entry->d_name, &file) == IG_PREFIX_PIECES) stop = check_file(c, entry->d_name, file);
    }
    closedir(list);
    return stop ? ig_fail(err, IG_E_INTERRUPTED, "interrupted") : IG_OK;
}

ig_status ig_prefix_verify(ig_stored_health *out, ig_prefix_store *s, ig_prefix_item_fn each, ig_progress_fn progress,
                           void *user, ig_error *err) {
    checker c = {.s = s, .out = out, .each = each, .progress = progress, .user = user};
    *out = (ig_stored_health){0};
    c.buffer = malloc(BUFFER);
    c.hash = XXH3_createState();
    ig_status status = c.buffer && c.hash ? IG_OK : ig_fail_memory(err, "checking a KV store", BUFFER);
    if (!status) status = check_pieces(&c, err);
    if (!status) status = check_notes(&c, err);
    if (!status) status = check_files(&c, err);
    XXH3_freeState(c.hash);
    free(c.buffer);
    return status;
}
