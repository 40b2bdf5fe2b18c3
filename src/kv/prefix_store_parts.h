/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the prefix store share: its inside, and the steps that opening, eviction, notes and tools are made
 * of. `index_lock` guards the index and all counts; `write_lock`, taken first, the file that grows and
 * the files of notes. Functions here are called with index_lock held unless they say otherwise.
 */
#ifndef IG_KV_PREFIX_STORE_PARTS_H
#define IG_KV_PREFIX_STORE_PARTS_H

#include <pthread.h>

#include "kv/prefix_dir.h"
#include "kv/prefix_index.h"

enum { IG_PREFIX_TOUCHES = 512 }; /* uses that are noted before the index learns of them */

struct ig_prefix_store {
    ig_prefix_dir dir;
    ig_prefix_id store, root, notes;
    char model[IG_PREFIX_TEXT], kind[IG_PREFIX_TEXT];
    int piece_tokens;
    size_t piece_bytes; /* 0: no root */
    uint64_t max_bytes; /* 0: no limit */

    /* Changed with both locks held, by a reader that becomes the writer. */
    int lock;      /* file; -1: not the writer */
    char why[512]; /* it is not, as of the last time it was tried */
    bool can_punch;
    bool may_write, no_punch; /* as it was opened */

    pthread_mutex_t write_lock;
    int tmp;            /* the file that grows; -1: none */
    uint64_t tmp_bytes; /* its size */
    uint64_t tmp_file;  /* its number, 0 without one; changed with both locks held */
    bool is_protecting; /* the ancestors of what is pending are known */
    uint64_t last_file; /* the highest number given */

    pthread_mutex_t index_lock;
    ig_prefix_index index;
    bool may_touch;
    bool has_empty_files;               /* there may be files without a piece */
    int64_t touches[IG_PREFIX_TOUCHES]; /* pieces, in the order of use */
    int n_touches;
    double first_touch;  /* monotonic seconds */
    int64_t last_time;   /* the last time of use that was given */
    uint64_t bytes;      /* of data files; without the one that grows */
    uint64_t cleared;    /* bytes that the start gave back, of what is damaged or was never finished */
    uint64_t stuck_file; /* the last one that still holds what has left the index, */
    int stuck;           /* and why it could not be removed, an errno; 0: there was none */
    ig_prefix_store_stats stats;
};

static inline bool ig_prefix_is_writer(const ig_prefix_store *s) { return s->lock >= 0; }

/* For one public call that writes: takes write_lock. IG_E_UNSUPPORTED if the store is not the writer and cannot become
 * it now: the one that was it may have ended, a full disk may have room. Without index_lock. */
ig_status ig_prefix_begin_write(ig_prefix_store *s, ig_prefix_mute *mute, ig_error *err);
void ig_prefix_end_write(ig_prefix_store *s, const ig_prefix_mute *mute);

/* Reads the header of a row's record and compares them: an errno, ENOENT if the record has left, or in *damage what is
 * wrong. Without locks, as the next one. */
int ig_prefix_read_row(const ig_prefix_store *s, int fd, const ig_prefix_row *row, const ig_prefix_id *root,
                       ig_prefix_record *r, const char **damage);
/* The same of its payload, which was read with the result e; `hash` is what was read then. */
int ig_prefix_judge_payload(const ig_prefix_store *s, int fd, const ig_prefix_row *row, int e, const ig_prefix_id *hash,
                            const ig_prefix_record *r, const char **damage);

/* Whether the index has the piece. */
bool ig_prefix_find(ig_prefix_store *s, const ig_prefix_piece *piece, ig_prefix_row *row);
/* The areas must be as large as a piece. */
ig_status ig_prefix_check_areas(const ig_prefix_store *s, const ig_prefix_piece *piece, const struct iovec *areas,
                                int n, ig_error *err);

/* Locks the index for one public call. */
void ig_prefix_enter(ig_prefix_store *s);
void ig_prefix_leave(ig_prefix_store *s);
/* What went wrong, or else what the index has failed at. */
ig_status ig_prefix_leave_with(ig_prefix_store *s, ig_status status, ig_error *err);

/* Microseconds since 1970, always later than the last one. */
int64_t ig_prefix_now(ig_prefix_store *s);
void ig_prefix_touch(ig_prefix_store *s, int64_t piece);
void ig_prefix_flush_touches(ig_prefix_store *s);

/* ---- prefix_start.c ------------------------------------------------------- */

/* A writer's start: cleans, opens the index or makes it anew, and takes in what it does not know. */
ig_status ig_prefix_start_writer(ig_prefix_store *s, ig_error *err);
/* The writer's index, which is not open: the next one makes it anew. */
void ig_prefix_remove_index(ig_prefix_store *s);
ig_status ig_prefix_start_reader(ig_prefix_store *s, ig_error *err);

/* ---- prefix_evict.c ------------------------------------------------------- */

/* Makes room for n_bytes more beside the file that grows; IG_E_LIMIT if that cannot be. `parent`: of a piece that
 * comes, or NULL. What the present commit descends from stays. With write_lock too. */
ig_status ig_prefix_make_room(ig_prefix_store *s, uint64_t n_bytes, const ig_prefix_id *parent, ig_error *err);
/* Removes files without a piece: those of another version or store. */
void ig_prefix_remove_empty(ig_prefix_store *s);
/* Lets pieces leave until no more than `most` bytes are there; *is_done: it came to that. */
ig_status ig_prefix_shrink(ig_prefix_store *s, uint64_t most, bool *is_done, ig_error *err);
/* In a transaction: takes a piece out of the index and notes the hole that it leaves. */
void ig_prefix_remove_piece(ig_prefix_store *s, const ig_prefix_row *row);
/* In a transaction: takes a file out of the index. */
void ig_prefix_drop_file(ig_prefix_store *s, int64_t file);
/* After the transaction: makes the holes that are noted, removes files in which nothing is left. */
void ig_prefix_make_holes(ig_prefix_store *s);
/* A damaged piece: for good if this is the writer, else for this store. */
void ig_prefix_forget(ig_prefix_store *s, const ig_prefix_row *row);

#endif
