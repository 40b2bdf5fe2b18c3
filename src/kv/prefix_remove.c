/* SPDX-License-Identifier: Apache-2.0
 *
 * Taking things out of a store by hand. Pieces leave the index some hundreds at a time, and their room is given back
 * before the next ones; ends before beginnings, so that what an interruption leaves can be found.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "kv/prefix_note.h"
#include "kv/prefix_store_parts.h"
#include "kv/prefix_tool.h"

enum { AT_ONCE = 512 };

typedef struct removal {
    ig_prefix_store *s;
    ig_stored_freed *out;
    uint64_t before; /* bytes */
    int n_begun;     /* pieces of the transaction; -1: there is none */
    ig_prefix_mute mute;
} removal;

static ig_status begin(removal *r, ig_stored_freed *out, ig_prefix_store *s, ig_error *err) {
    *out = (ig_stored_freed){0};
    if (!ig_prefix_is_writer(s)) return ig_fail(err, IG_E_UNSUPPORTED, "%s", s->why);
    *r = (removal){.s = s, .out = out, .before = s->bytes + s->cleared, .n_begun = -1};
    s->cleared = 0; /* is reported once */
    s->stuck = 0;
    ig_prefix_mute_begin(&r->mute);
    ig_prefix_enter(s);
    return IG_OK;
}

static void settle(removal *r) {
    if (r->n_begun < 0) return;
    if (ig_prefix_index_end(&r->s->index)) ig_prefix_make_holes(r->s);
    r->n_begun = -1;
}

static ig_status end(removal *r, ig_status status, ig_error *err) {
    char name[IG_PREFIX_FILE_NAME];
    ig_prefix_index *ix = &r->s->index;
    settle(r);
    if (!ix->failed) ig_prefix_index_do(ix, IG_Q_REMOVE_ROOTS, "");
    /* What the log still has of the removed rows goes too; readers may make that wait. */
    sqlite3_wal_checkpoint_v2(ix->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    if (!status && ix->failed) status = ig_prefix_index_fail(ix, r->s->dir.path, err);
    int e = r->out->n_notes ? ig_prefix_sync_names(&r->s->dir) : 0;
    if (!status && e) status = ig_prefix_dir_fail(&r->s->dir, "its names", e, err);
    if (!status && r->s->stuck) {
        ig_prefix_file_name(name, r->s->stuck_file);
        status = ig_prefix_dir_fail(&r->s->dir, name, r->s->stuck, err);
    }
    r->out->bytes = r->before > r->s->bytes ? r->before - r->s->bytes : 0;
    ig_prefix_leave(r->s);
    ig_prefix_mute_end(&r->mute);
    return status;
}

static void remove_piece(removal *r, const ig_prefix_row *row) {
    if (r->n_begun == AT_ONCE) settle(r);
    if (r->n_begun < 0 && !r->s->index.failed) {
        ig_prefix_index_begin(&r->s->index);
        r->n_begun = 0;
    }
    ig_prefix_remove_piece(r->s, row);
    r->n_begun++;
    r->out->n_pieces++;
}

static bool get(removal *r, ig_prefix_query q, int64_t piece, ig_prefix_row *out) {
    return ig_prefix_index_find(&r->s->index, out, q, "i", piece);
}

/* A piece and all that builds on it, ends first. */
static void remove_tree(removal *r, const ig_prefix_row *top) {
    ig_prefix_row row = *top, other;
    for (;;) {
        while (get(r, IG_Q_CHILD, row.piece, &other)) row = other;
        bool is_top = row.piece == top->piece;
        bool has_parent = !is_top && get(r, IG_Q_PARENT, row.piece, &other);
        if (r->s->index.failed) return;
        remove_piece(r, &row);
        if (!has_parent) return;
        row = other;
    }
}

/* And those before it that nothing else builds on. */
static void remove_chain(removal *r, const ig_prefix_row *row) {
    ig_prefix_row before, other;
    bool has_parent = get(r, IG_Q_PARENT, row->piece, &before);
    remove_tree(r, row);
    while (has_parent && !r->s->index.failed && !get(r, IG_Q_CHILD, before.piece, &other)) {
        ig_prefix_row last = before;
        has_parent = get(r, IG_Q_PARENT, last.piece, &before);
        remove_piece(r, &last);
    }
}

/* ---- what nobody can find, what is old ------------------------------------ */

ig_status ig_prefix_collect(ig_stored_freed *out, ig_prefix_store *s, uint64_t max_bytes, ig_error *err) {
    removal r;
    ig_prefix_row row = {.piece = 0};
    bool is_done;
    ig_status status = begin(&r, out, s, err);
    if (status) return status;
    while (get(&r, IG_Q_NEXT_ORPHAN, row.piece, &row)) remove_tree(&r, &row);
    settle(&r);
    if (!s->index.failed) ig_prefix_remove_empty(s);
    uint64_t n_before = s->stats.n_evicted;
    if (!s->index.failed && s->bytes > max_bytes) status = ig_prefix_shrink(s, max_bytes, &is_done, err);
    out->n_pieces += s->stats.n_evicted - n_before;
    return end(&r, status, err);
}

/* ---- by name --------------------------------------------------------------- */

/* The lowest and the highest id that begin so. */
static bool read_digits(const char *digits, ig_prefix_id *low, ig_prefix_id *high) {
    size_t n = strlen(digits);
    if (!n || n > 32 || strspn(digits, "0123456789abcdefABCDEF") != n) return false;
    uint64_t *const lows[2] = {&low->high, &low->low}, *const highs[2] = {&high->high, &high->low};
    *low = (ig_prefix_id){0, 0};
    *high = (ig_prefix_id){UINT64_MAX, UINT64_MAX};
    for (size_t i = 0; i < n; i++) {
        const char digit[2] = {digits[i], 0};
        unsigned shift = (unsigned)(60 - 4 * (i % 16));
        uint64_t value = strtoull(digit, NULL, 16) << shift, mask = 15ull << shift;
        *lows[i / 16] |= value;
        *highs[i / 16] = (*highs[i / 16] & ~mask) | value;
    }
    return true;
}

static ig_status find_by_digits(ig_prefix_store *s, const char *digits, ig_prefix_row *row, ig_error *err) {
    ig_prefix_index *ix = &s->index;
    ig_prefix_id low, high, next;
    if (!read_digits(digits, &low, &high))
        return ig_fail(err, IG_E_ARG, "'%.40s' is no id: 1 to 32 hexadecimal digits", digits);
    if (!ig_prefix_index_find(ix, row, IG_Q_IDS_BETWEEN, "xx", &low, &high))
        return ix->failed ? IG_OK
                          : ig_fail(err, IG_E_NOT_FOUND, "KV store %s: nothing has an id that begins with %s",
                                    s->dir.path, digits);
    ig_prefix_row other;
    next = row->id;
    next.low++;
    next.high += !next.low;
    if (next.low | next.high) {
        if (ig_prefix_index_find(ix, &other, IG_Q_IDS_BETWEEN, "xx", &next, &high))
            return ig_fail(err, IG_E_ARG, "KV store %s: several ids begin with %s; say more of it", s->dir.path,
                           digits);
    }
    return IG_OK;
}

ig_status ig_prefix_remove_id(ig_stored_freed *out, ig_prefix_store *s, const char *digits, ig_error *err) {
    removal r;
    ig_prefix_row row;
    ig_status status = begin(&r, out, s, err);
    if (status) return status;
    status = find_by_digits(s, digits, &row, err);
    if (!status && !s->index.failed) remove_chain(&r, &row);
    return end(&r, status, err);
}

static ig_status remove_notes(removal *r, int64_t of_root, const char *of_name, ig_error *err) {
    ig_prefix_item item = {.note = ""};
    ig_status status = IG_OK;
    for (int64_t root = of_root; !status && ig_prefix_note_next(r->s, &root, &item);) {
        if (of_root && root != of_root) break;
        if (of_name && strcmp(of_name, item.note) != 0) continue;
        status = ig_prefix_note_drop(r->s, &item.root, item.note, err);
        if (status == IG_E_NOT_FOUND) status = IG_OK;
        r->out->n_notes += !status;
    }
    return status;
}

static bool is_model(const char *model, const char *wanted) {
    size_t n = wanted ? strlen(wanted) : 0;
    return !wanted || (strncmp(model, wanted, n) == 0 && (!model[n] || model[n] == ' '));
}

ig_status ig_prefix_remove_model(ig_stored_freed *out, ig_prefix_store *s, const char *model, ig_error *err) {
    removal r;
    ig_prefix_row row;
    ig_prefix_index *ix = &s->index;
    bool found = !model;
    ig_status status = begin(&r, out, s, err);
    if (status) return status;
    for (int64_t root = 0; !status && !ix->failed;) {
        sqlite3_stmt *q = ig_prefix_index_query(ix, IG_Q_NEXT_ROOT, "i", root);
        if (!ig_prefix_index_step(ix, q)) break;
        root = sqlite3_column_int64(q, 0);
        const char *text = (const char *)sqlite3_column_text(q, 2);
        bool is_wanted = text && is_model(text, model);
        sqlite3_reset(q);
        if (!is_wanted) continue;
        found = true;
        status = remove_notes(&r, root, NULL, err);
        while (!status && get(&r, IG_Q_ROOT_PIECE, root, &row)) remove_tree(&r, &row);
    }
    if (!status && !found && !ix->failed)
        status = ig_fail(err, IG_E_NOT_FOUND, "KV store %s: nothing of the model '%.100s'", s->dir.path, model);
    if (!status && !model) {
        settle(&r);
        ig_prefix_remove_empty(s);
    }
    return end(&r, status, err);
}

ig_status ig_prefix_remove_notes(ig_stored_freed *out, ig_prefix_store *s, const char *name, ig_error *err) {
    removal r;
    ig_status status = begin(&r, out, s, err);
    if (status) return status;
    status = remove_notes(&r, 0, name, err);
    if (!status && !out->n_notes && !s->index.failed)
        status = ig_fail(err, IG_E_NOT_FOUND, "KV store %s: no note '%.64s'", s->dir.path, name);
    return end(&r, status, err);
}
