/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tests of the disk tier share: a tier in a directory of its own, frames with known content, and the file that
 * has no name.
 */
#ifndef TESTS_TIER_DISK_RIG_H
#define TESTS_TIER_DISK_RIG_H

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "kv/frame_pool.h"
#include "kv/tier_disk.h"
#include "temp_dir.h"

enum { RIG_BLOCKS = 1500 };

typedef struct rig {
    temp_dir dir;
    ig_tier_disk_options options;
    ig_tier *tier;
    const ig_tier_ops *ops;
    uint8_t *memory; /* frames of what is written, then of what is read */
    uint8_t *out[RIG_BLOCKS], *in[RIG_BLOCKS];
    ig_slot slots[RIG_BLOCKS];
    ig_error err;
} rig;

/* Block i of a generation differs from all others in every byte region. */
static inline void rig_fill(uint8_t *frame, uint32_t i, uint32_t generation) {
    uint32_t x = i * 2654435761u ^ generation * 40503u ^ 0x9e3779b9u;
    for (size_t k = 0; k < IG_FRAME_BYTES; k += 4) {
        x = x * 1664525u + 1013904223u;
        memcpy(frame + k, &x, 4);
    }
}

static inline bool rig_holds(const uint8_t *frame, uint32_t i, uint32_t generation) {
    uint8_t want[IG_FRAME_BYTES];
    rig_fill(want, i, generation);
    return memcmp(frame, want, sizeof want) == 0;
}

/* Frames only; the tier is opened with rig_open_tier. */
static inline void rig_init(rig *r, bool no_uring) {
    *r = (rig){.dir = temp_dir_open()};
    r->options = (ig_tier_disk_options){.directory = r->dir.path, .cap_bytes = 64 << 20, .no_uring = no_uring};
    r->memory = aligned_alloc(IG_FRAME_BYTES, (size_t)2 * RIG_BLOCKS * IG_FRAME_BYTES);
    assert_non_null(r->memory);
    /* Scattered: neighbours in the file are not neighbours in memory. */
    for (uint32_t i = 0; i < RIG_BLOCKS; i++) {
        r->out[i] = r->memory + (size_t)(i * 7 % RIG_BLOCKS) * IG_FRAME_BYTES;
        r->in[i] = r->memory + (size_t)(RIG_BLOCKS + i * 11 % RIG_BLOCKS) * IG_FRAME_BYTES;
        rig_fill(r->out[i], i, 0);
    }
}

static inline void rig_open_tier(rig *r) {
    if (ig_tier_disk_open(&r->tier, &r->options, &r->err)) fail_msg("%s", r->err.text);
    r->ops = r->tier->ops;
}

static inline void rig_open(rig *r, bool no_uring) {
    rig_init(r, no_uring);
    rig_open_tier(r);
}

static inline void rig_close(rig *r) {
    if (r->tier) r->ops->close(r->tier);
    free(r->memory);
    temp_dir_close(&r->dir);
}

/* Writes blocks [first, first + n) of a generation and waits. */
static inline ig_status rig_write(rig *r, uint32_t first, uint32_t n) {
    ig_ticket t;
    ig_status s = r->ops->write(r->tier, &t, r->slots + first, (const uint8_t *const *)(r->out + first), n, &r->err);
    return s ? s : r->ops->wait(r->tier, t, &r->err);
}

static inline ig_status rig_read(rig *r, uint32_t first, uint32_t n) {
    ig_ticket t;
    memset(r->memory + (size_t)RIG_BLOCKS * IG_FRAME_BYTES, 0xee, (size_t)RIG_BLOCKS * IG_FRAME_BYTES);
    ig_status s = r->ops->read(r->tier, &t, r->slots + first, r->in + first, n, false, &r->err);
    return s ? s : r->ops->wait(r->tier, t, &r->err);
}

static inline void rig_check(const rig *r, uint32_t first, uint32_t n, uint32_t generation) {
    for (uint32_t i = first; i < first + n; i++)
        if (!rig_holds(r->in[i], i, generation)) fail_msg("block %u came back changed", i);
}

/* Number of a descriptor of this process that points to what begins with `start`; -1: none. */
static inline int rig_find_fd(const char *start) {
    int found = -1;
    DIR *list = opendir("/proc/self/fd");
    for (struct dirent *e; list && (e = readdir(list));) {
        char path[300], target[512] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%s", e->d_name);
        if (readlink(path, target, sizeof target - 1) > 0 && strncmp(target, start, strlen(start)) == 0)
            found = atoi(e->d_name);
    }
    if (list) closedir(list);
    return found;
}

/* The spill file, opened once more. */
static inline int rig_reopen_file(const rig *r) {
    char path[64];
    int fd = rig_find_fd(r->dir.path);
    assert_true(fd >= 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static inline int rig_files_left(const char *directory) {
    int n = 0;
    DIR *list = opendir(directory);
    assert_non_null(list);
    for (struct dirent *e; (e = readdir(list));) n += e->d_name[0] != '.';
    closedir(list);
    return n;
}

static inline ig_tier_stats rig_stats(const rig *r) {
    ig_tier_stats s;
    r->ops->stats(r->tier, &s);
    return s;
}

static inline ig_tier_info rig_info(const rig *r) {
    ig_tier_info i;
    r->ops->info(r->tier, &i);
    return i;
}

#endif
