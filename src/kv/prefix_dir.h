/* SPDX-License-Identifier: Apache-2.0
 *
 * The directory of stored prefixes: names of its files, the lock, the store's number, and reading and writing that goes
 * through a hook for tests. Only regular files are opened, and no link is followed. Calls give 0 or an errno.
 */
#ifndef IG_KV_PREFIX_DIR_H
#define IG_KV_PREFIX_DIR_H

#include <dirent.h>
#include <sys/stat.h>

#include "kv/prefix_record.h"

enum { IG_PREFIX_FILE_NAME = 64 };

typedef struct ig_prefix_dir {
    int fd;
    char *path;
    ig_prefix_fault_fn fault; /* may be NULL */
    void *fault_user;
} ig_prefix_dir;

ig_status ig_prefix_dir_open(ig_prefix_dir *d, const char *path, bool make, ig_error *err);
void ig_prefix_dir_close(ig_prefix_dir *d);
/* IG_E_IO, of ENOMEM IG_E_MEMORY: "KV store DIR: WHAT: strerror(e)" */
ig_status ig_prefix_dir_fail(const ig_prefix_dir *d, const char *what, int e, ig_error *err);

enum { IG_LOCK_TAKEN = -2 }; /* by another process */

/* Takes the lock of the writer. IG_LOCK_TAKEN or -1, and a line that says why, if it cannot be had. */
int ig_prefix_dir_lock(const ig_prefix_dir *d, char *why, size_t cap);

/* The store's own number: read, or found in a data file. ENOENT: there is none yet; another errno: none was found, and
 * something that may have it could not be read. */
int ig_prefix_dir_identity(const ig_prefix_dir *d, ig_prefix_id *out);
ig_status ig_prefix_dir_make_identity(const ig_prefix_dir *d, ig_prefix_id *out, ig_error *err);

/* ---- names --------------------------------------------------------------- */

typedef enum ig_prefix_name { IG_PREFIX_OTHER, IG_PREFIX_PIECES, IG_PREFIX_NOTE, IG_PREFIX_TMP } ig_prefix_name;
/* What a file of this name is; `file` gets the number of a file of pieces. */
ig_prefix_name ig_prefix_name_kind(const char *name, uint64_t *file);
void ig_prefix_file_name(char name[IG_PREFIX_FILE_NAME], uint64_t file);
void ig_prefix_note_name(char name[IG_PREFIX_FILE_NAME], const ig_prefix_id *root, const char *note);

/* All names there are, for readdir(), and to be closed. */
ig_status ig_prefix_dir_list(DIR **out, const ig_prefix_dir *d, ig_error *err);

/* ---- files --------------------------------------------------------------- */

/* Opens a regular file, for reading or for both; *fd is -1 after an error. `st` may be NULL. */
int ig_prefix_open(const ig_prefix_dir *d, const char *name, bool write, int *fd, struct stat *st);
/* Makes a file that must not be there. */
int ig_prefix_make(const ig_prefix_dir *d, const char *name, int *fd);
/* All areas from `offset` on. ENODATA: the file ends before. */
int ig_prefix_read(const ig_prefix_dir *d, int fd, uint64_t offset, const struct iovec *to, int n);
int ig_prefix_write(const ig_prefix_dir *d, int fd, uint64_t offset, const struct iovec *from, int n);
/* The system begins to write these bytes to the disk; nobody waits for them. */
void ig_prefix_begin_sync(int fd, uint64_t offset, uint64_t n_bytes);
/* The page at `offset` as a header: what it is, and unless that is a hole or damaged *r. */
int ig_prefix_read_header(const ig_prefix_dir *d, int fd, uint64_t offset, ig_prefix_header *kind, ig_prefix_record *r);
/* Data to the disk, then under its name. */
int ig_prefix_rename(const ig_prefix_dir *d, int fd, const char *tmp, const char *name);
/* Names to the disk. */
int ig_prefix_sync_names(const ig_prefix_dir *d);
/* The directory's own name to the disk. Where the one above may not be read, or its file system cannot do that, the
 * directory was not made by this program. */
int ig_prefix_sync_parent(const ig_prefix_dir *d);
/* The file to the disk, then its name. After an error the file may have its name already. */
int ig_prefix_publish(const ig_prefix_dir *d, int fd, const char *tmp, const char *name);
/* Takes a record out of its file. *is_freed: its room was given back; else only its header was made zeros. */
int ig_prefix_punch(const ig_prefix_dir *d, uint64_t file, uint64_t offset, uint64_t n_bytes, bool *is_freed);
bool ig_prefix_can_punch(int fd);
/* A file of pieces, as a whole. */
int ig_prefix_remove(const ig_prefix_dir *d, uint64_t file);

/* Makes a hole of what no record takes, if the file system can. */
void ig_prefix_clear(int fd, uint64_t from, uint64_t to);

/* Whether a record whose payload is wrong has just left: then its header is zeros, if not at once, then soon. */
bool ig_prefix_has_left(const ig_prefix_dir *d, int fd, uint64_t offset);

/* Goes through the headers of a file of pieces. What is neither a record of the store nor a hole is counted: as foreign
 * if its header says so, else as damaged, unless it comes after a hole: then it may be what is left of a record. */
typedef struct ig_prefix_scan {
    const ig_prefix_dir *dir;
    int fd, e;              /* e: errno of a read that failed, which ends it */
    uint64_t file, n_bytes; /* number and size of the file */
    uint64_t found;         /* where the last record begins */
    uint64_t offset;        /* where the search goes on */
    uint64_t n_damaged, n_foreign;
    bool is_after_hole;
} ig_prefix_scan;
/* The next record of a store, or with NULL of any; false at the end. */
bool ig_prefix_scan_next(ig_prefix_scan *s, const ig_prefix_id *store, ig_prefix_record *r);

/* Between these two a file that reaches the limit of `ulimit -f` is an error of this thread and not the end of the
 * program. */
typedef struct ig_prefix_mute {
    bool was_blocked, was_pending;
} ig_prefix_mute;
void ig_prefix_mute_begin(ig_prefix_mute *m);
void ig_prefix_mute_end(const ig_prefix_mute *m);

#endif
