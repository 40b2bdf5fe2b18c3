/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading a stored piece, and what becomes of those that are damaged.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "kv/prefix_store_parts.h"

int ig_prefix_read_row(const ig_prefix_store *s, int fd, const ig_prefix_row *row, const ig_prefix_id *root,
                       ig_prefix_record *r, const char **damage) {
    ig_prefix_header kind;
    int e = ig_prefix_read_header(&s->dir, fd, row->offset, &kind, r);
    if (!e && kind == IG_PREFIX_HOLE) return ENOENT;
    if (e == ENODATA)
        *damage = "its file is too short";
    else if (e)
        return e;
    else if (kind != IG_PREFIX_VALID)
        *damage = "its header is damaged";
    else if (!ig_prefix_same(&r->store, &s->store))
        *damage = "it is of another store";
    else if (r->is_note || r->file != row->file || r->offset != row->offset || !ig_prefix_same(&r->root, root) ||
             !ig_prefix_same(&r->id, &row->id) || !ig_prefix_same(&r->parent, &row->parent) ||
             r->number != row->number || r->n_tokens != row->n_tokens ||
             ig_prefix_record_bytes(r->payload_bytes) != row->bytes)
        *damage = "its header is another's";
    return 0;
}

int ig_prefix_judge_payload(const ig_prefix_store *s, int fd, const ig_prefix_row *row, int e, const ig_prefix_id *hash,
                            const ig_prefix_record *r, const char **damage) {
    if (e && e != ENODATA) return e;
    if (!e && ig_prefix_same(hash, &r->payload_hash)) return 0;
    *damage = e ? "its file is too short" : "its checksum is wrong";
    return ig_prefix_has_left(&s->dir, fd, row->offset) ? ENOENT : 0;
}

static int read_open_record(const ig_prefix_store *s, int fd, const ig_prefix_row *row, const int32_t *tokens,
                            const struct iovec *to, int n, const char **damage) {
    ig_prefix_record r;
    ig_prefix_id hash;
    int e = ig_prefix_read_row(s, fd, row, &s->root, &r, damage);
    if (e || *damage) return e;
    if (r.n_tokens != s->piece_tokens || r.payload_bytes != s->piece_bytes)
        *damage = "its header is another's";
    else if (tokens && memcmp(r.tokens, tokens, (size_t)r.n_tokens * sizeof *r.tokens) != 0)
        *damage = "it is of other tokens";
    if (*damage) return 0;
    e = ig_prefix_read(&s->dir, fd, row->offset + IG_PREFIX_PAGE, to, n);
    if (!e && !ig_prefix_hash(&hash, to, n)) return ENOMEM;
    return ig_prefix_judge_payload(s, fd, row, e, &hash, &r, damage);
}

/* What a read has found: an errno, ENOENT for what is not there any more, or a reason in *damage. `tokens`: the
 * piece's; NULL: they are not known. */
static int read_record(const ig_prefix_store *s, const ig_prefix_row *row, const int32_t *tokens,
                       const struct iovec *to, int n, const char **damage) {
    char name[IG_PREFIX_FILE_NAME];
    int fd = -1;
    *damage = NULL;
    ig_prefix_file_name(name, row->file);
    int e = ig_prefix_open(&s->dir, name, false, &fd, NULL);
    if (!e) e = read_open_record(s, fd, row, tokens, to, n, damage);
    if (fd >= 0) close(fd);
    return e;
}

/* Where one piece is damaged those behind it often are. They are read into the same areas, which hold nothing yet, up
 * to one that is well; *out [n], malloc'ed: those that are damaged. */
static size_t find_damaged(ig_prefix_store *s, const ig_prefix_row *first, const struct iovec *to, int n_areas,
                           ig_prefix_row **out) {
    ig_prefix_row row = *first;
    size_t n = 0;
    *out = NULL;
    for (bool has_next = ig_prefix_is_writer(s); has_next; n++) {
        const char *damage;
        ig_prefix_enter(s);
        has_next = ig_prefix_index_find(&s->index, &row, IG_Q_CHILD, "i", row.piece);
        ig_prefix_leave(s);
        if (!has_next || read_record(s, &row, NULL, to, n_areas, &damage) || !damage) break;
        ig_prefix_row *more = realloc(*out, (n + 1) * sizeof **out);
        if (!more) break;
        *out = more;
        more[n] = row;
    }
    return n;
}

/* All of them are computed and kept anew at once then, and not one in each run. */
static void forget_damaged(ig_prefix_store *s, const ig_prefix_row *first, const struct iovec *to, int n_areas) {
    ig_prefix_row *others;
    size_t n = find_damaged(s, first, to, n_areas, &others);
    ig_prefix_enter(s);
    ig_prefix_forget(s, first);
    for (size_t i = 0; i < n; i++) ig_prefix_forget(s, &others[i]);
    s->stats.n_damaged += 1 + n;
    ig_prefix_leave(s);
    free(others);
}

ig_status ig_prefix_store_read(ig_prefix_store *s, const ig_prefix_piece *piece, const struct iovec *to, int n,
                               ig_error *err) {
    char name[IG_PREFIX_FILE_NAME];
    const char *damage = NULL;
    ig_prefix_row row;
    ig_status status = ig_prefix_check_areas(s, piece, to, n, err);
    if (status) return status;
    ig_prefix_enter(s);
    bool found = ig_prefix_find(s, piece, &row);
    if (!found && s->index.failed) status = ig_prefix_index_fail(&s->index, s->dir.path, err);
    ig_prefix_leave(s);
    if (status) return status;
    if (!found) return ig_fail(err, IG_E_NOT_FOUND, "KV store %s: no such piece", s->dir.path);

    int e = read_record(s, &row, piece->tokens, to, n, &damage);
    ig_prefix_file_name(name, row.file);
    if (!e && damage) forget_damaged(s, &row, to, n);

    ig_prefix_enter(s);
    if (e == ENOENT) ig_prefix_forget(s, &row);
    if (!e && !damage) {
        ig_prefix_touch(s, row.piece);
        s->stats.n_read++;
        s->stats.read_bytes += s->piece_bytes;
    }
    ig_prefix_leave(s);
    if (e == ENOENT) return ig_fail(err, IG_E_NOT_FOUND, "KV store %s: the piece has left", s->dir.path);
    if (e) return ig_prefix_dir_fail(&s->dir, name, e, err);
    if (!damage) return IG_OK;
    return ig_fail(err, IG_E_FORMAT, "KV store %s: %s: a piece is damaged and forgotten: %s", s->dir.path, name,
                   damage);
}
