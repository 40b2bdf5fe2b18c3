/* SPDX-License-Identifier: Apache-2.0
 *
 * Files as read-only memory: mapped, so that model files are used where they lie, or copied. What is mapped changes
 * with the file, and pages behind an end that has moved are a SIGBUS: ig_file_is_changed() tells, as far as the system
 * does.
 */
#ifndef IG_BASE_FILE_H
#define IG_BASE_FILE_H

#include <time.h>

#include "infinigen.h"

typedef struct ig_file {
    const uint8_t *data; /* aligned to IG_ALIGN; NULL if size is 0 */
    size_t size;
    enum { IG_FILE_BORROWED, IG_FILE_OPEN, IG_FILE_MAPPED, IG_FILE_COPIED } state; /* borrowed: of others' memory */
    int fd;                                                                        /* open and mapped */
    struct timespec written;                                                       /* as the file was opened */
} ig_file;

/* How far files have been copied; bytes. */
typedef struct ig_loading {
    ig_progress_fn progress; /* may be NULL */
    void *user;
    uint64_t done, total;
} ig_loading;
/* So many bytes more are done: tells whoever wants to know. IG_E_INTERRUPTED if that is to end it. */
ig_status ig_loading_add(ig_loading *loading, uint64_t n_bytes, ig_error *err);

/* Opens a regular file: its size is known then. Errors name the path. */
ig_status ig_file_open(ig_file *out, const char *path, ig_error *err);
/* Gets the data of a file just opened: by a copy, whose bytes are counted and told, or if `copy` is NULL by a map. A
 * file that is changed while it is copied is an error. */
ig_status ig_file_take(ig_file *f, const char *path, ig_loading *copy, ig_error *err);
/* Whether a file that is open or mapped has been written to or got another size since it was opened. False of others.
 */
bool ig_file_is_changed(const ig_file *f);
/* The pages that lie within n_bytes of the data of a file leave memory: those of a map are read again when they are
 * touched, those of a copy are zero from then on. */
void ig_file_forget(const void *data, size_t n_bytes);
void ig_file_close(ig_file *f);

/* Reads a whole file of at most max_bytes into malloc'ed memory with a final NUL (not counted). */
ig_status ig_file_read(char **out, size_t *n_bytes, const char *path, size_t max_bytes, ig_error *err);

/* The number in the first line of a file that has the format (of one "%llu"); UINT64_MAX if none has. */
uint64_t ig_file_number(const char *path, const char *format);

bool ig_path_is_directory(const char *path);
bool ig_path_exists(const char *path);

#endif
