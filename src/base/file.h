/* SPDX-License-Identifier: Apache-2.0
 *
 * Files as read-only memory. Model files are mapped, so weights are used where they lie.
 */
#ifndef IG_BASE_FILE_H
#define IG_BASE_FILE_H

#include "infinigen.h"

typedef struct ig_file {
    const uint8_t *data; /* page-aligned; NULL if size is 0 */
    size_t size;
} ig_file;

/* Maps a regular file. Errors name the path. */
ig_status ig_file_map(ig_file *out, const char *path, ig_error *err);
void ig_file_unmap(ig_file *f);

/* Reads a whole file of at most max_bytes into malloc'ed memory with a final NUL (not counted). */
ig_status ig_file_read(char **out, size_t *n_bytes, const char *path, size_t max_bytes, ig_error *err);

bool ig_path_is_directory(const char *path);
bool ig_path_exists(const char *path);

#endif
