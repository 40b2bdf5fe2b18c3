/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading weights from the files of a model into memory, past the page cache where the file system can (O_DIRECT);
 * elsewhere the cache is told to forget what was read.
 */
#ifndef IG_MODEL_WEIGHT_FILE_H
#define IG_MODEL_WEIGHT_FILE_H

#include "base/file.h"

/* A mapped file in which weights lie; borrowed. */
typedef struct ig_weight_file {
    const ig_file *file;
    const char *path;
} ig_weight_file;

enum { IG_FILE_PAGE = 4096 }; /* spans are of whole pages */

typedef struct ig_weight_reader ig_weight_reader;

/* Bytes of a file, with what lies around them in the same pages of 4096. */
typedef struct ig_weight_span {
    size_t file;     /* its number */
    uint64_t offset; /* of the first page */
    size_t skip;     /* bytes of it before those that are wanted */
    size_t bytes;    /* that are wanted */
    size_t room;     /* of the pages */
} ig_weight_span;

ig_status ig_weight_reader_open(ig_weight_reader **out, const ig_weight_file *files, size_t n_files, ig_error *err);
void ig_weight_reader_close(ig_weight_reader *r);
/* The span of mapped bytes. */
ig_status ig_weight_reader_find(ig_weight_span *out, const ig_weight_reader *r, const void *mapped, size_t n_bytes,
                                ig_error *err);
/* Reads a span into room of a multiple of 4096 at such an address; *bytes are those that are wanted. Safe for several
 * threads. */
ig_status ig_weight_reader_read(const void **bytes, ig_weight_reader *r, const ig_weight_span *span, uint8_t *room,
                                ig_error *err);
/* What has been touched of the maps leaves this process and, if nobody else uses it, the page cache. */
void ig_weight_reader_forget(const ig_weight_reader *r);
bool ig_weight_reader_is_direct(const ig_weight_reader *r);

#endif
