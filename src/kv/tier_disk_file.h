/* SPDX-License-Identifier: Apache-2.0
 *
 * The spill file: made without a name, or with one for a moment; grows in large steps up to a cap.
 */
#ifndef IG_KV_TIER_DISK_FILE_H
#define IG_KV_TIER_DISK_FILE_H

#include <sys/types.h>

#include "infinigen.h"

typedef struct ig_disk_file {
    int fd;          /* -1: closed */
    char *directory; /* for messages */
    bool is_direct, is_memory;
    bool cannot_reserve; /* the file system has no fallocate: a full disk shows when a block is written */
    uint64_t size, cap;  /* bytes: what the file has, what it may have */
    uint64_t room;       /* of the cap, what the disk had room for when the file was opened */
    dev_t device;        /* the disk */
} ig_disk_file;

/* no_tmpfile: see ig_tier_disk_options. */
ig_status ig_disk_file_open(ig_disk_file *f, const char *directory, uint64_t cap, bool no_tmpfile, ig_error *err);
void ig_disk_file_close(ig_disk_file *f);

/* Makes the file hold at least n_bytes, which must be within the cap. */
ig_status ig_disk_file_grow(ig_disk_file *f, uint64_t n_bytes, ig_error *err);

#endif
