/* SPDX-License-Identifier: Apache-2.0
 *
 * What leaves, in which order, and how its room is given back.
 *
 * The piece that was not used for the longest time goes first, but never before those that build on it: a piece is as
 * young as its youngest child. Times of use are written of single pieces; a candidate that has children gets their time
 * and waits for its next turn, so that in the end a leaf goes. Where the file system cannot make holes, whole files go,
 * by the same rule.
 *
 * First a piece leaves the index, and its place is noted among the holes; when that is on record the hole is made. A
 * process killed between the two leaves the note, and the next writer makes the hole.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <unistd.h>

#include "base/error.h"
#include "kv/prefix_store_parts.h"

/* Keeps a piece's ancestors until the commit. They are in use, so that they do not stand first among the oldest. */
static void protect(ig_prefix_store *s, const ig_prefix_id *parent) {
    ig_prefix_index *ix = &s->index;
    ig_prefix_id id = *parent;
    ig_prefix_row row;
    for (int number = IG_CTX_MAX;; number = row.number, id = row.parent) {
        if (!ig_prefix_index_find(ix, &row, IG_Q_FIND, "xx", &s->root, &id)) return;
        if (row.number >= number) return; /* no chain: it would have no end */
        if (!ig_prefix_index_do(ix, IG_Q_PROTECT, "i", row.piece)) return;
        if (sqlite3_changes(ix->db) == 0) return; /* and so are those before it */
        ig_prefix_touch(s, row.piece);
    }
}

/* The first time that something must leave: those of all that was put until now. */
static void protect_pending(ig_prefix_store *s) {
    ig_prefix_index *ix = &s->index;
    for (int64_t at = 0; !s->is_protecting;) {
        sqlite3_stmt *q = ig_prefix_index_query(ix, IG_Q_NEXT_PENDING, "ii", at, (int64_t)s->tmp_file);
        if (!ig_prefix_index_step(ix, q)) break;
        at = sqlite3_column_int64(q, 0);
        ig_prefix_id parent = ig_prefix_get_id(sqlite3_column_blob(q, 1));
        sqlite3_reset(q);
        protect(s, &parent);
    }
    s->is_protecting = !ix->failed;
}

void ig_prefix_remove_piece(ig_prefix_store *s, const ig_prefix_row *row) {
    ig_prefix_index *ix = &s->index;
    ig_prefix_index_do(ix, IG_Q_REMOVE_PIECE, "i", row->piece);
    ig_prefix_index_do(ix, IG_Q_ADD_HOLE, "iii", (int64_t)row->file, (int64_t)row->offset, (int64_t)row->bytes);
}

/* ---- room ---------------------------------------------------------------- */

static void give_back(ig_prefix_store *s, uint64_t n_bytes) { s->bytes -= n_bytes < s->bytes ? n_bytes : s->bytes; }

static void note_stuck(ig_prefix_store *s, int64_t file, int e) {
    s->stuck_file = (uint64_t)file;
    s->stuck = e;
}

static void remove_file(ig_prefix_store *s, int64_t file, uint64_t n_bytes) {
    int e = ig_prefix_remove(&s->dir, (uint64_t)file);
    if (e && e != ENOENT) {
        note_stuck(s, file, e);
        return;
    }
    ig_prefix_index_do(&s->index, IG_Q_REMOVE_FILE, "i", file);
    give_back(s, n_bytes);
}

/* Whole files of which the index knows no piece, as it finds them at its start: those of another version or store. */
static bool remove_empty_file(ig_prefix_store *s) {
    ig_prefix_index *ix = &s->index;
    sqlite3_stmt *q = s->has_empty_files ? ig_prefix_index_query(ix, IG_Q_EMPTY_FILE, "") : NULL;
    s->has_empty_files = ig_prefix_index_step(ix, q);
    if (!s->has_empty_files) return false;
    int64_t file = sqlite3_column_int64(q, 0), n_bytes = sqlite3_column_int64(q, 1);
    sqlite3_reset(q);
    uint64_t before = s->bytes;
    remove_file(s, file, (uint64_t)n_bytes);
    return s->bytes < before;
}

void ig_prefix_remove_empty(ig_prefix_store *s) {
    while (remove_empty_file(s)) continue;
}

static bool is_emptied(ig_prefix_store *s, int64_t file) {
    ig_prefix_index *ix = &s->index;
    ig_prefix_row row;
    return !ig_prefix_index_find(ix, &row, IG_Q_PIECE_OF_FILE, "i", file) && !ix->failed;
}

/* What a file counts. */
static uint64_t bytes_of(ig_prefix_store *s, int64_t file) {
    sqlite3_stmt *q = ig_prefix_index_query(&s->index, IG_Q_FILE, "i", file);
    if (!ig_prefix_index_step(&s->index, q)) return 0;
    int64_t n_bytes = sqlite3_column_int64(q, 1);
    sqlite3_reset(q);
    return (uint64_t)n_bytes;
}

void ig_prefix_drop_file(ig_prefix_store *s, int64_t file) {
    ig_prefix_index *ix = &s->index;
    ig_prefix_row row;
    while (ig_prefix_index_find(ix, &row, IG_Q_PIECE_OF_FILE, "i", file))
        ig_prefix_index_do(ix, IG_Q_REMOVE_PIECE, "i", row.piece);
    ig_prefix_index_do(ix, IG_Q_REMOVE_FILE, "i", file);
}

/* In a file that holds other pieces too. */
static void punch(ig_prefix_store *s, int64_t file, int64_t offset, int64_t n_bytes) {
    ig_prefix_index *ix = &s->index;
    bool is_freed;
    int e = ig_prefix_punch(&s->dir, (uint64_t)file, (uint64_t)offset, (uint64_t)n_bytes, &is_freed);
    if (e == ENOENT) { /* somebody has removed it */
        uint64_t of_file = bytes_of(s, file);
        ig_prefix_drop_file(s, file);
        give_back(s, of_file);
        return;
    }
    if (e) note_stuck(s, file, e);
    if (!is_freed || !s->can_punch) {
        s->can_punch = false; /* from now on whole files leave */
    } else {
        ig_prefix_index_do(ix, IG_Q_SHRINK_FILE, "ii", n_bytes, file);
        give_back(s, (uint64_t)n_bytes);
    }
}

static void make_hole(ig_prefix_store *s, int64_t file, int64_t offset, int64_t n_bytes) {
    if (is_emptied(s, file))
        remove_file(s, file, bytes_of(s, file));
    else
        punch(s, file, offset, n_bytes);
    ig_prefix_index_do(&s->index, IG_Q_REMOVE_HOLE, "ii", file, offset);
}

void ig_prefix_make_holes(ig_prefix_store *s) {
    ig_prefix_index *ix = &s->index;
    if (!ig_prefix_index_begin(ix)) return;
    for (;;) {
        sqlite3_stmt *q = ig_prefix_index_query(ix, IG_Q_NEXT_HOLE, "");
        if (!ig_prefix_index_step(ix, q)) break;
        int64_t file = sqlite3_column_int64(q, 0), offset = sqlite3_column_int64(q, 1);
        int64_t n_bytes = sqlite3_column_int64(q, 2);
        sqlite3_reset(q);
        make_hole(s, file, offset, n_bytes);
        if (ix->failed) break;
    }
    ig_prefix_index_end(ix);
}

/* ---- the order ----------------------------------------------------------- */

/* The leaf that was not used for the longest time; false if all that is left is protected. */
static bool find_oldest(ig_prefix_store *s, ig_prefix_row *out) {
    ig_prefix_index *ix = &s->index;
    while (ig_prefix_index_find(ix, out, IG_Q_OLDEST, "")) {
        int64_t young = ig_prefix_index_ask(ix, -1, IG_Q_CHILD_USE, "i", out->piece);
        if (young <= out->used) return !ix->failed; /* a child of the same age had come before it */
        if (!ig_prefix_index_do(ix, IG_Q_TOUCH, "ii", young, out->piece)) return false;
    }
    return false;
}

static bool evict_piece(ig_prefix_store *s) {
    ig_prefix_row row;
    if (!find_oldest(s, &row)) return false;
    ig_prefix_remove_piece(s, &row);
    s->stats.n_evicted++;
    return true;
}

static bool evict_file(ig_prefix_store *s) {
    ig_prefix_index *ix = &s->index;
    ig_prefix_row row;
    int64_t file;
    do {
        file = ig_prefix_index_ask(ix, -1, IG_Q_OLDEST_FILE, "");
        if (file < 0) return false;
        if (!ig_prefix_index_do(ix, IG_Q_BUMP_FILE, "i", file)) return false;
    } while (sqlite3_changes(ix->db) > 0);
    while (ig_prefix_index_find(ix, &row, IG_Q_PIECE_OF_FILE, "i", file)) {
        ig_prefix_remove_piece(s, &row);
        s->stats.n_evicted++;
    }
    return !ix->failed;
}

ig_status ig_prefix_shrink(ig_prefix_store *s, uint64_t most, bool *is_done, ig_error *err) {
    ig_prefix_index *ix = &s->index;
    *is_done = true;
    while (s->bytes > most && *is_done) {
        if (remove_empty_file(s)) continue;
        ig_prefix_flush_touches(s);
        if (ig_prefix_index_begin(ix)) *is_done = s->can_punch ? evict_piece(s) : evict_file(s);
        if (ig_prefix_index_end(ix)) ig_prefix_make_holes(s);
        if (ix->failed) return ig_prefix_index_fail(ix, s->dir.path, err);
    }
    return IG_OK;
}

ig_status ig_prefix_make_room(ig_prefix_store *s, uint64_t n_bytes, const ig_prefix_id *parent, ig_error *err) {
    char text[64];
    uint64_t wanted = s->tmp_bytes + n_bytes;
    bool fits = wanted <= s->max_bytes;
    ig_status status = IG_OK;
    if (!s->max_bytes) return IG_OK;
    bool is_full = fits && s->bytes > s->max_bytes - wanted;
    if (is_full) protect_pending(s);
    if (parent && s->is_protecting) protect(s, parent);
    if (is_full && !s->index.failed) status = ig_prefix_shrink(s, s->max_bytes - wanted, &fits, err);
    if (!status && s->index.failed) return ig_prefix_index_fail(&s->index, s->dir.path, err);
    if (status || fits) return status;
    return ig_fail(err, IG_E_LIMIT, "KV store %s: what is to be kept together does not fit into %s", s->dir.path,
                   ig_bytes_text(text, s->max_bytes));
}

void ig_prefix_forget(ig_prefix_store *s, const ig_prefix_row *row) {
    ig_prefix_index *ix = &s->index;
    ig_prefix_row now;
    ig_prefix_mute mute;
    ix->failed = false;
    if (!ig_prefix_is_writer(s)) {
        ig_prefix_index_do(ix, IG_Q_FORGET, "ii", (int64_t)row->file, (int64_t)row->offset);
        ix->failed = false;
        return;
    }
    /* Another thread may have been here first, and the piece may have been put again. */
    if (!ig_prefix_index_find(ix, &now, IG_Q_PIECE, "i", row->piece)) return;
    if (now.file != row->file || now.offset != row->offset) return;
    ig_prefix_mute_begin(&mute);
    if (ig_prefix_index_begin(ix)) {
        ig_prefix_remove_piece(s, row);
        if (ig_prefix_index_end(ix)) ig_prefix_make_holes(s);
    }
    ix->failed = false;
    ig_prefix_mute_end(&mute);
}
