/* SPDX-License-Identifier: Apache-2.0
 *
 * The public calls on pieces. A put writes behind the end of a file that nobody knows yet; a commit makes it known.
 */
#define _GNU_SOURCE
#include "kv/prefix_store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "kv/prefix_store_parts.h"

static const double TOUCH_SECONDS = 1; /* pieces used within such a time were used together */

/* ---- opening ------------------------------------------------------------- */

static ig_status check_options(const ig_prefix_store_options *o, ig_error *err) {
    int n = o->piece_tokens;
    if (!o->directory || !o->directory[0]) return ig_fail(err, IG_E_ARG, "KV store: no directory");
    if (o->must_exist && !o->piece_bytes) return IG_OK;
    if (!o->model || !o->kind) return ig_fail(err, IG_E_ARG, "KV store: no name of the model or the kind");
    if (n < IG_PREFIX_TOKENS_MIN || n > IG_PREFIX_TOKENS_MAX || (n & (n - 1)))
        return ig_fail(err, IG_E_ARG, "KV store: pieces of %d tokens; %d to %d, powers of two, can be stored", n,
                       IG_PREFIX_TOKENS_MIN, IG_PREFIX_TOKENS_MAX);
    if (!o->piece_bytes || o->piece_bytes > IG_PREFIX_PAYLOAD_MAX)
        return ig_fail(err, IG_E_ARG, "KV store: pieces of %zu bytes; 1 to %d can be stored", o->piece_bytes,
                       IG_PREFIX_PAYLOAD_MAX);
    return IG_OK;
}

/* Names go to terminals and into headers, which hold no control characters; cut at a whole character. */
static void take_text(char to[IG_PREFIX_TEXT], const char *from) {
    size_t n = from ? strlen(from) : 0;
    if (n >= IG_PREFIX_TEXT)
        for (n = IG_PREFIX_TEXT - 1; n && ((unsigned char)from[n] & 0xc0) == 0x80;) n--;
    for (size_t i = 0; i < n; i++) to[i] = (unsigned char)from[i] < 0x20 || from[i] == 0x7f ? '?' : from[i];
}

static ig_prefix_store *make_store(const ig_prefix_store_options *o) {
    ig_prefix_store *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->dir = (ig_prefix_dir){.fd = -1, .fault = o->fault, .fault_user = o->fault_user};
    s->root = o->root;
    s->notes = o->notes;
    s->piece_tokens = o->piece_tokens;
    s->piece_bytes = o->piece_bytes;
    s->max_bytes = o->max_bytes;
    s->lock = s->tmp = -1;
    s->may_write = !o->read_only;
    s->no_punch = o->no_punch;
    take_text(s->model, o->model);
    take_text(s->kind, o->kind);
    pthread_mutex_init(&s->write_lock, NULL);
    pthread_mutex_init(&s->index_lock, NULL);
    return s;
}

/* The writer's start. If the disk is full or says no to it, what is there can still be read. */
static ig_status start_writer(ig_prefix_store *s, ig_error *err) {
    ig_error why = {0};
    ig_prefix_id store;
    ig_status status = ig_prefix_start_writer(s, &why);
    if (status != IG_E_IO || ig_prefix_dir_identity(&s->dir, &store) != 0) {
        if (status && err) *err = why;
        return status;
    }
    snprintf(s->why, sizeof s->why, "%s", why.text);
    close(s->lock);
    s->lock = -1;
    ig_prefix_index_close(&s->index);
    s->may_touch = s->has_empty_files = s->can_punch = false;
    return ig_prefix_start_reader(s, err);
}

ig_status ig_prefix_store_open(ig_prefix_store **out, const ig_prefix_store_options *o, ig_error *err) {
    ig_prefix_mute mute;
    *out = NULL;
    ig_status status = check_options(o, err);
    if (status) return status;
    ig_prefix_store *s = make_store(o);
    if (!s) return ig_fail_memory(err, "KV store", sizeof *s);
    ig_prefix_mute_begin(&mute);
    status = ig_prefix_dir_open(&s->dir, o->directory, !o->read_only && !o->must_exist, err);
    int e = !status && o->must_exist ? ig_prefix_dir_identity(&s->dir, &s->store) : 0;
    if (e == ENOENT)
        status = ig_fail(err, IG_E_NOT_FOUND, "KV store %s: no KV is stored there", o->directory);
    else if (e)
        status = ig_prefix_dir_fail(&s->dir, "cannot be read", e, err);
    if (!status && o->read_only) snprintf(s->why, sizeof s->why, "KV store %s: opened for reading only", o->directory);
    if (!status && !o->read_only) s->lock = ig_prefix_dir_lock(&s->dir, s->why, sizeof s->why);
    if (!status && ig_prefix_is_writer(s)) {
        s->can_punch = !o->no_punch && ig_prefix_can_punch(s->lock);
        status = start_writer(s, err);
    } else if (!status) {
        s->may_touch = !o->read_only;
        status = ig_prefix_start_reader(s, err);
    }
    ig_prefix_mute_end(&mute);
    if (status) {
        ig_prefix_store_close(s);
        return status;
    }
    *out = s;
    return IG_OK;
}

bool ig_prefix_store_is_taken(const ig_prefix_store *s) { return s->lock == IG_LOCK_TAKEN; }

const char *ig_prefix_store_why_read_only(const ig_prefix_store *s) { return ig_prefix_is_writer(s) ? NULL : s->why; }

/* What a writer has of index and directory, from one that is closed then. With both locks. */
static void take_over(ig_prefix_store *s, ig_prefix_store *writer) {
    ig_prefix_flush_touches(s); /* they are rows of the reader's index, which may prepare a statement for them */
    const ig_prefix_index index = s->index;
    s->index = writer->index;
    writer->index = index;
    s->lock = writer->lock;
    writer->lock = -1;
    s->can_punch = writer->can_punch;
    s->may_touch = writer->may_touch;
    s->has_empty_files = writer->has_empty_files;
    dup3(writer->dir.fd, s->dir.fd, O_CLOEXEC); /* another one where the directory was removed */
    s->store = writer->store;
    s->last_file = writer->last_file;
    if (s->last_time < writer->last_time) s->last_time = writer->last_time;
    s->bytes = writer->bytes;
}

/* Whether somebody has removed the directory: nothing can be made in it any more. */
static bool is_gone(const ig_prefix_store *s) {
    struct stat st;
    return fstat(s->dir.fd, &st) == 0 && st.st_nlink == 0;
}

/* Opens the store once more, which stays a reader if that fails at any point. One whose directory was removed begins
 * anew. */
static bool open_as_writer(ig_prefix_store *s, bool is_new) {
    const ig_prefix_store_options o = {.directory = s->dir.path,
                                       .max_bytes = s->max_bytes,
                                       .root = s->root,
                                       .notes = s->notes,
                                       .model = s->model,
                                       .kind = s->kind,
                                       .piece_tokens = s->piece_tokens,
                                       .piece_bytes = s->piece_bytes,
                                       .must_exist = !is_new,
                                       .no_punch = s->no_punch,
                                       .fault = s->dir.fault,
                                       .fault_user = s->dir.fault_user};
    ig_prefix_store *anew;
    ig_error err;
    if (ig_prefix_store_open(&anew, &o, &err)) {
        snprintf(s->why, sizeof s->why, "%s", err.text);
        return false;
    }
    if (!ig_prefix_is_writer(anew)) {
        memcpy(s->why, anew->why, sizeof s->why);
    } else if (!is_new && !ig_prefix_same(&anew->store, &s->store)) {
        snprintf(s->why, sizeof s->why, "KV store %s: another store lies there by now", s->dir.path);
    } else {
        ig_prefix_enter(s);
        take_over(s, anew);
        ig_prefix_leave(s);
    }
    ig_prefix_store_close(anew);
    return ig_prefix_is_writer(s);
}

/* With write_lock, and without index_lock. */
static bool become_writer(ig_prefix_store *s) {
    if (ig_prefix_is_writer(s) || !s->may_write) return ig_prefix_is_writer(s);
    if (is_gone(s)) return open_as_writer(s, true);
    int lock = ig_prefix_dir_lock(&s->dir, s->why, sizeof s->why); /* where another writes, that is all it takes */
    if (lock < 0) return false;
    close(lock);
    return open_as_writer(s, false);
}

ig_status ig_prefix_begin_write(ig_prefix_store *s, ig_prefix_mute *mute, ig_error *err) {
    ig_prefix_mute_begin(mute);
    pthread_mutex_lock(&s->write_lock);
    if (become_writer(s)) return IG_OK;
    ig_status status = ig_fail(err, IG_E_UNSUPPORTED, "%s", s->why);
    ig_prefix_end_write(s, mute);
    return status;
}

void ig_prefix_end_write(ig_prefix_store *s, const ig_prefix_mute *mute) {
    pthread_mutex_unlock(&s->write_lock);
    ig_prefix_mute_end(mute);
}

void ig_prefix_enter(ig_prefix_store *s) {
    pthread_mutex_lock(&s->index_lock);
    s->index.failed = false;
}

void ig_prefix_leave(ig_prefix_store *s) { pthread_mutex_unlock(&s->index_lock); }

ig_status ig_prefix_leave_with(ig_prefix_store *s, ig_status status, ig_error *err) {
    if (!status && s->index.failed) status = ig_prefix_index_fail(&s->index, s->dir.path, err);
    ig_prefix_leave(s);
    return status;
}

/* ---- uses ---------------------------------------------------------------- */

int64_t ig_prefix_now(ig_prefix_store *s) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    int64_t now = (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
    return s->last_time = now > s->last_time ? now : s->last_time + 1;
}

/* All of them get one time: so of a chain that was read from its head on, the tail is not the younger part. */
void ig_prefix_flush_touches(ig_prefix_store *s) {
    if (!s->n_touches) return;
    ig_prefix_index *ix = &s->index;
    ig_prefix_mute mute;
    int64_t now = ig_prefix_now(s);
    ig_prefix_mute_begin(&mute);
    if (ig_prefix_index_begin(ix)) {
        for (int i = 0; i < s->n_touches; i++) ig_prefix_index_do(ix, IG_Q_TOUCH, "ii", now, s->touches[i]);
        ig_prefix_index_end(ix);
    }
    s->n_touches = 0;
    ix->failed = false; /* what is lost is an order */
    ig_prefix_mute_end(&mute);
}

void ig_prefix_touch(ig_prefix_store *s, int64_t piece) {
    if (!s->may_touch) return;
    double now = ig_clock_seconds();
    if (s->n_touches == IG_PREFIX_TOUCHES || (s->n_touches && now > s->first_touch + TOUCH_SECONDS))
        ig_prefix_flush_touches(s);
    if (!s->n_touches) s->first_touch = now;
    s->touches[s->n_touches++] = piece;
}

/* ---- finding ------------------------------------------------------------- */

static bool find_id(ig_prefix_store *s, const ig_prefix_id *id, ig_prefix_row *row) {
    ig_prefix_index *ix = &s->index;
    return s->piece_bytes && ig_prefix_index_find(ix, row, IG_Q_FIND, "xx", &s->root, id);
}

static bool is_pending(ig_prefix_store *s, const ig_prefix_id *id) {
    ig_prefix_index *ix = &s->index;
    return ig_prefix_index_ask(ix, 0, IG_Q_IS_PENDING, "xi", id, (int64_t)s->tmp_file) == 1;
}

static bool is_of(const ig_prefix_row *row, const ig_prefix_piece *piece) {
    return row->number == piece->number && ig_prefix_same(&row->parent, &piece->parent);
}

bool ig_prefix_find(ig_prefix_store *s, const ig_prefix_piece *piece, ig_prefix_row *row) {
    return find_id(s, &piece->id, row) && is_of(row, piece);
}

bool ig_prefix_store_has(ig_prefix_store *s, const ig_prefix_piece *piece) {
    ig_prefix_row row;
    ig_prefix_enter(s);
    bool has = ig_prefix_find(s, piece, &row);
    ig_prefix_leave(s);
    return has;
}

bool ig_prefix_store_use(ig_prefix_store *s, ig_prefix_id id) {
    ig_prefix_row row;
    ig_prefix_enter(s);
    bool has = find_id(s, &id, &row);
    if (has) ig_prefix_touch(s, row.piece);
    ig_prefix_leave(s);
    return has;
}

bool ig_prefix_store_leads_to(ig_prefix_store *s, const ig_prefix_piece *piece) {
    ig_prefix_row row;
    if (piece->number == 0) return true;
    ig_prefix_enter(s);
    bool leads = is_pending(s, &piece->parent) || find_id(s, &piece->parent, &row);
    ig_prefix_leave(s);
    return leads;
}

ig_status ig_prefix_store_check_room(const ig_prefix_store *s, dev_t device, uint64_t n_bytes, ig_error *err) {
    struct stat st;
    struct statvfs disk;
    if (fstat(s->dir.fd, &st) != 0 || st.st_dev != device || fstatvfs(s->dir.fd, &disk) != 0) return IG_OK;
    uint64_t free_bytes = (uint64_t)disk.f_bavail * disk.f_frsize, own = ig_prefix_record_bytes(s->piece_bytes);
    if (free_bytes >= own && free_bytes - own >= n_bytes) return IG_OK;
    return ig_fail(err, IG_E_IO,
                   "KV store %s: the %llu bytes that are free on its disk may be needed by the KV spill file",
                   s->dir.path, (unsigned long long)free_bytes);
}

ig_status ig_prefix_check_areas(const ig_prefix_store *s, const ig_prefix_piece *piece, const struct iovec *areas,
                                int n, ig_error *err) {
    size_t sum = 0;
    for (int i = 0; i < n; i++)
        if (!ig_add_size(&sum, sum, areas[i].iov_len)) return ig_fail(err, IG_E_ARG, "KV store: areas without end");
    if (sum != s->piece_bytes || !s->piece_bytes)
        return ig_fail(err, IG_E_ARG, "KV store: areas of %zu bytes for a piece of %zu", sum, s->piece_bytes);
    if (piece->number < 0 || piece->number >= IG_CTX_MAX / s->piece_tokens)
        return ig_fail(err, IG_E_ARG, "KV store: no piece has the number %d", piece->number);
    return IG_OK;
}

/* ---- writing ------------------------------------------------------------- */

/* A number for a new file that none had before. */
static uint64_t new_file(ig_prefix_store *s) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    uint64_t now = (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
    return s->last_file = now > s->last_file ? now : s->last_file + 1;
}

static void tmp_name(const ig_prefix_store *s, char name[IG_PREFIX_FILE_NAME]) {
    ig_prefix_file_name(name, s->tmp_file);
    strcat(name, ".tmp");
}

static ig_status open_tmp(ig_prefix_store *s, ig_error *err) {
    char name[IG_PREFIX_FILE_NAME];
    if (s->tmp >= 0) return IG_OK;
    ig_prefix_enter(s);
    s->tmp_file = new_file(s);
    ig_prefix_leave(s);
    s->tmp_bytes = 0;
    tmp_name(s, name);
    int e = ig_prefix_make(&s->dir, name, &s->tmp);
    return e ? ig_prefix_dir_fail(&s->dir, name, e, err) : IG_OK;
}

/* The file that grows is closed: what was put until now is pending no more. With both locks. */
static void close_tmp(ig_prefix_store *s) {
    if (s->tmp >= 0) close(s->tmp);
    s->tmp = -1;
    s->tmp_file = s->tmp_bytes = 0;
}

/* Forgets what was put since the last commit. With write_lock. */
static void drop_tmp(ig_prefix_store *s) {
    char name[IG_PREFIX_FILE_NAME];
    if (s->tmp >= 0) {
        tmp_name(s, name);
        unlinkat(s->dir.fd, name, 0);
    }
    ig_prefix_enter(s);
    close_tmp(s);
    ig_prefix_index_do(&s->index, IG_Q_CLEAR_PENDING, "");
    ig_prefix_index_do(&s->index, IG_Q_CLEAR_PROTECTED, "");
    s->is_protecting = false;
    ig_prefix_leave(s);
}

/* After a failure: the writer of a directory that is gone is none, until it begins anew. With write_lock. */
static void leave_if_gone(ig_prefix_store *s) {
    if (!ig_prefix_is_writer(s) || !is_gone(s)) return;
    drop_tmp(s);
    ig_prefix_enter(s);
    close(s->lock);
    s->lock = -1;
    snprintf(s->why, sizeof s->why, "KV store %s: its directory was removed", s->dir.path);
    ig_prefix_leave(s);
}

/* Writes header, payload and what fills the last page. */
static ig_status write_record(ig_prefix_store *s, const ig_prefix_piece *piece, const struct iovec *from, int n,
                              ig_error *err) {
    static const uint8_t zeros[IG_PREFIX_PAGE];
    uint8_t page[IG_PREFIX_PAGE];
    char name[IG_PREFIX_FILE_NAME];
    ig_prefix_record r = {.store = s->store,
                          .root = s->root,
                          .id = piece->id,
                          .parent = piece->parent,
                          .number = piece->number,
                          .n_tokens = s->piece_tokens,
                          .payload_bytes = s->piece_bytes,
                          .file = s->tmp_file,
                          .offset = s->tmp_bytes};
    memcpy(r.model, s->model, sizeof r.model);
    memcpy(r.kind, s->kind, sizeof r.kind);
    memcpy(r.tokens, piece->tokens, (size_t)s->piece_tokens * sizeof *r.tokens);
    if (!ig_prefix_hash(&r.payload_hash, from, n)) return ig_fail_memory(err, "KV store", sizeof r);
    ig_prefix_record_write(page, &r);
    size_t fill = (size_t)(ig_prefix_record_bytes(s->piece_bytes) - IG_PREFIX_PAGE) - s->piece_bytes;
    uint64_t at = s->tmp_bytes;
    int e = ig_prefix_write(&s->dir, s->tmp, at, &(struct iovec){page, sizeof page}, 1);
    if (!e) e = ig_prefix_write(&s->dir, s->tmp, at + IG_PREFIX_PAGE, from, n);
    if (!e)
        e = ig_prefix_write(&s->dir, s->tmp, at + IG_PREFIX_PAGE + s->piece_bytes, &(struct iovec){(void *)zeros, fill},
                            1);
    if (!e) {
        /* A commit holds up all answers: it should find most of its data on the disk. */
        ig_prefix_begin_sync(s->tmp, at, ig_prefix_record_bytes(s->piece_bytes));
        return IG_OK;
    }
    tmp_name(s, name);
    return ig_prefix_dir_fail(&s->dir, name, e, err);
}

static int set_end(ig_prefix_store *s, uint64_t n_bytes) { return ftruncate(s->tmp, (off_t)n_bytes) == 0 ? 0 : errno; }

/* What must be so before a piece is written; *is_there: nothing is to be done. */
static ig_status prepare_put(ig_prefix_store *s, const ig_prefix_piece *piece, bool *is_there, ig_error *err) {
    ig_prefix_row row;
    ig_status status = IG_OK;
    ig_prefix_enter(s);
    *is_there = is_pending(s, &piece->id);
    if (!*is_there && find_id(s, &piece->id, &row)) {
        *is_there = is_of(&row, piece);
        if (*is_there)
            ig_prefix_touch(s, row.piece);
        else
            ig_prefix_forget(s, &row);
    }
    if (!*is_there) status = ig_prefix_make_room(s, ig_prefix_record_bytes(s->piece_bytes), &piece->parent, err);
    return ig_prefix_leave_with(s, status, err);
}

static ig_status put(ig_prefix_store *s, const ig_prefix_piece *piece, const struct iovec *from, int n, ig_error *err) {
    ig_prefix_index *ix = &s->index;
    bool is_there;
    uint64_t before = s->tmp_bytes, n_bytes = ig_prefix_record_bytes(s->piece_bytes);
    if (before + n_bytes > IG_PREFIX_FILE_MAX)
        return ig_fail(err, IG_E_LIMIT, "KV store %s: too much for one commit", s->dir.path);
    ig_status status = prepare_put(s, piece, &is_there, err);
    if (status || is_there) return status;
    status = open_tmp(s, err);
    if (status) return status;
    status = write_record(s, piece, from, n, err);
    if (!status) {
        ig_prefix_enter(s);
        if (!ig_prefix_index_do(ix, IG_Q_ADD_PENDING, "xxiiiii", &piece->id, &piece->parent, (int64_t)piece->number,
                                (int64_t)s->piece_tokens, (int64_t)before, (int64_t)n_bytes, (int64_t)s->tmp_file))
            status = ig_prefix_index_fail(ix, s->dir.path, err);
        ig_prefix_leave(s);
    }
    if (!status) s->tmp_bytes = before + n_bytes;
    /* Gives back its room. Should that fail, the next put overwrites what is behind the end, or the commit cuts it. */
    if (status) set_end(s, before);
    return status;
}

ig_status ig_prefix_store_put(ig_prefix_store *s, const ig_prefix_piece *piece, const struct iovec *from, int n,
                              ig_error *err) {
    ig_prefix_mute mute;
    ig_status status = ig_prefix_check_areas(s, piece, from, n, err);
    if (status) return status;
    status = ig_prefix_begin_write(s, &mute, err);
    if (status) return status;
    status = put(s, piece, from, n, err);
    if (status && !s->tmp_bytes) drop_tmp(s); /* nothing is pending: what it would have built on may leave */
    if (status) leave_if_gone(s);
    ig_prefix_end_write(s, &mute);
    return status;
}

/* The file is there: now the index learns of it. */
static bool index_file(ig_prefix_store *s) {
    ig_prefix_index *ix = &s->index;
    int64_t file = (int64_t)s->tmp_file, n_bytes = (int64_t)s->tmp_bytes;
    ig_prefix_flush_touches(s);
    if (!ig_prefix_index_begin(ix)) return false;
    ig_prefix_index_do(ix, IG_Q_ADD_ROOT, "xtt", &s->root, s->model, s->kind);
    ig_prefix_index_do(ix, IG_Q_ADD_FILE, "iii", file, n_bytes, n_bytes);
    ig_prefix_index_do(ix, IG_Q_KEEP_PENDING, "xii", &s->root, file, ig_prefix_now(s));
    int n = sqlite3_changes(ix->db);
    ig_prefix_index_do(ix, IG_Q_CLEAR_PENDING, "");
    ig_prefix_index_do(ix, IG_Q_CLEAR_PROTECTED, "");
    if (!ig_prefix_index_end(ix)) return false;
    s->is_protecting = false;
    s->bytes += s->tmp_bytes;
    s->stats.n_written += (uint64_t)n;
    s->stats.written_bytes += (uint64_t)n * s->piece_bytes;
    return true;
}

static ig_status commit(ig_prefix_store *s, ig_error *err) {
    char name[IG_PREFIX_FILE_NAME], tmp[IG_PREFIX_FILE_NAME];
    ig_status status = IG_OK;
    if (s->tmp < 0 || !s->tmp_bytes) {
        drop_tmp(s);
        ig_prefix_enter(s);
        ig_prefix_flush_touches(s);
        ig_prefix_leave(s);
        return IG_OK;
    }
    tmp_name(s, tmp);
    ig_prefix_file_name(name, s->tmp_file);
    int e = set_end(s, s->tmp_bytes);
    if (!e) e = ig_prefix_publish(&s->dir, s->tmp, tmp, name);
    if (e) {
        status = ig_prefix_dir_fail(&s->dir, name, e, err);
    } else {
        ig_prefix_enter(s);
        if (!index_file(s))
            status = ig_prefix_index_fail(&s->index, s->dir.path, err);
        else
            close_tmp(s);
        ig_prefix_leave(s);
    }
    if (status) {
        unlinkat(s->dir.fd, name, 0);
        drop_tmp(s);
    }
    return status;
}

ig_status ig_prefix_store_commit(ig_prefix_store *s, ig_error *err) {
    ig_prefix_mute mute;
    ig_prefix_mute_begin(&mute);
    pthread_mutex_lock(&s->write_lock);
    ig_status status = commit(s, err);
    if (status) leave_if_gone(s);
    pthread_mutex_unlock(&s->write_lock);
    ig_prefix_mute_end(&mute);
    return status;
}

void ig_prefix_store_get_stats(ig_prefix_store *s, ig_prefix_store_stats *out) {
    ig_prefix_index *ix = &s->index;
    ig_prefix_enter(s);
    *out = s->stats;
    out->bytes = s->bytes;
    out->max_bytes = s->max_bytes;
    out->n_pieces = (uint64_t)ig_prefix_index_ask(ix, 0, IG_Q_COUNT_PIECES, "");
    ig_prefix_leave(s);
}

void ig_prefix_store_close(ig_prefix_store *s) {
    ig_prefix_mute mute;
    if (!s) return;
    ig_prefix_mute_begin(&mute);
    if (s->index.db) {
        drop_tmp(s);
        ig_prefix_flush_touches(s);
    }
    bool is_corrupt = s->index.is_corrupt;
    ig_prefix_index_close(&s->index);
    if (is_corrupt && s->lock >= 0) ig_prefix_remove_index(s);
    if (s->lock >= 0) close(s->lock);
    ig_prefix_dir_close(&s->dir);
    ig_prefix_mute_end(&mute);
    pthread_mutex_destroy(&s->write_lock);
    pthread_mutex_destroy(&s->index_lock);
    free(s);
}
