/* SPDX-License-Identifier: Apache-2.0
 *
 * The disk tier: an unlinked file of slots in a directory of the user's choice, used past the page cache where the file
 * system allows it, by io_uring or by threads. A checksum of every block stays in RAM, so that whatever happens to
 * the file, a block comes back as it was written or not at all.
 */
#ifndef IG_KV_TIER_DISK_H
#define IG_KV_TIER_DISK_H

#include "kv/tier.h"

enum { IG_DISK_DEPTH_DEFAULT = 128, IG_DISK_DEPTH_MAX = 1024, IG_DISK_STAGING_MAX = 32 };
enum { IG_DISK_STAGED_MAX = 16 }; /* frames of a staging buffer */

/* For tests: sees the result of each request (bytes moved or -errno) and returns the one to go on with. */
typedef int (*ig_disk_fault_fn)(void *user, bool is_write, uint64_t offset, size_t n_bytes, int result);

typedef struct ig_tier_disk_options {
    const char *directory;
    uint64_t cap_bytes; /* the file never grows beyond it; rounded down to whole blocks */
    unsigned depth;     /* requests that the device gets at once, by io_uring; 0: IG_DISK_DEPTH_DEFAULT */
    unsigned n_staging; /* buffers that reads of scattered blocks go through; 0: IG_DISK_STAGING_MAX */
    bool no_uring;      /* threads, as where the kernel has or allows no io_uring */
    bool no_tmpfile;    /* a file with a name for a moment, as where the file system has no O_TMPFILE */
    ig_disk_fault_fn fault;
    void *fault_user;
} ig_tier_disk_options;

/* Takes all memory, makes the file and tries it. Close with (*out)->ops->close(*out). */
ig_status ig_tier_disk_open(ig_tier **out, const ig_tier_disk_options *options, ig_error *err);

#endif
