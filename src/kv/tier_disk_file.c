/* SPDX-License-Identifier: Apache-2.0
 *
 * The spill file. O_TMPFILE makes it without a name, so that nothing can stay behind. Where the file system lacks that,
 * it is named infinigen-<pid>-<n>.kv and unlinked at once; a process killed between the two leaves an empty file,
 * which the next one to open a tier there removes.
 */
#define _GNU_SOURCE
#include "kv/tier_disk_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/error.h"
#include "kv/frame_pool.h"

#define NAME_FORMAT "infinigen-%d-%d.kv" /* process, number */

enum { NAMES_TRIED = 1000 };
static const uint64_t STEP = 32 << 20; /* the file grows by this much: few calls, and room that lies together */

static ig_status fail_errno(ig_error *err, const char *directory, int e) {
    return ig_fail(err, e == ENOENT || e == ENOTDIR ? IG_E_NOT_FOUND : IG_E_IO, "KV spill file in %s: %s", directory,
                   strerror(e));
}

/* Removes files of processes that are gone. That of a living process, had it one, would only lose its name early. */
static void remove_stale(const char *directory) {
    DIR *list = opendir(directory);
    if (!list) return;
    for (struct dirent *entry; (entry = readdir(list));) {
        int pid, number;
        char name[64];
        if (sscanf(entry->d_name, "infinigen-%9d-%9d.kv", &pid, &number) != 2 || pid <= 0) continue;
        snprintf(name, sizeof name, NAME_FORMAT, pid, number);
        if (kill(pid, 0) != 0 && errno == ESRCH) unlinkat(dirfd(list), name, 0);
    }
    closedir(list);
}

/* A file whose name is taken away at once; -1 and errno. */
static int make_named(const char *directory) {
    int folder = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd = -1;
    if (folder < 0) return -1;
    remove_stale(directory);
    for (int i = 0; i < NAMES_TRIED && fd < 0; i++) {
        char name[64];
        snprintf(name, sizeof name, NAME_FORMAT, (int)getpid(), i);
        fd = openat(folder, name, O_RDWR | O_CLOEXEC | O_CREAT | O_EXCL, 0600);
        if (fd >= 0)
            unlinkat(folder, name, 0);
        else if (errno != EEXIST)
            break;
    }
    int e = errno;
    close(folder);
    errno = e;
    return fd;
}

static int make_file(const char *directory, bool no_tmpfile) {
    int fd = no_tmpfile ? -1 : open(directory, O_RDWR | O_CLOEXEC | O_TMPFILE, 0600);
    /* Kernels without O_TMPFILE see an attempt to write a directory. */
    if (fd >= 0 || (!no_tmpfile && errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return fd;
    return make_named(directory);
}

static bool set_direct(int fd, bool on) {
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && fcntl(fd, F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

/* Beyond RLIMIT_FSIZE the kernel would send a signal that ends the program. */
static bool may_reach(uint64_t n_bytes) {
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || n_bytes <= limit.rlim_cur;
}

/* What the file may grow to before the disk, or what the process may write to a file, ends. */
static uint64_t count_room(const ig_disk_file *f) {
    struct statvfs disk;
    struct rlimit limit;
    uint64_t room = f->cap;
    if (fstatvfs(f->fd, &disk) == 0 && disk.f_blocks > 0 && disk.f_bavail < room / disk.f_frsize)
        room = (uint64_t)disk.f_bavail * disk.f_frsize;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < room) room = limit.rlim_cur;
    return room;
}

/* Writes one block: whether O_DIRECT is only accepted or also works, and whether there is a disk behind it at all. */
static int try_block(int fd) {
    if (!may_reach(IG_FRAME_BYTES)) return EFBIG;
    void *block = aligned_alloc(IG_FRAME_BYTES, IG_FRAME_BYTES);
    if (!block) return ENOMEM;
    memset(block, 0, IG_FRAME_BYTES);
    ssize_t n = pwrite(fd, block, IG_FRAME_BYTES, 0);
    int e = n < 0 ? errno : n == IG_FRAME_BYTES ? 0 : EIO;
    free(block);
    return e;
}

ig_status ig_disk_file_open(ig_disk_file *f, const char *directory, uint64_t cap, bool no_tmpfile, ig_error *err) {
    struct statfs fs;
    struct stat st;
    *f = (ig_disk_file){.fd = -1, .cap = cap, .size = IG_FRAME_BYTES, .directory = strdup(directory)};
    if (!f->directory) return ig_fail_memory(err, "KV spill file", strlen(directory) + 1);
    f->fd = make_file(directory, no_tmpfile);
    if (f->fd < 0) return fail_errno(err, directory, errno);
    f->room = count_room(f);
    if (fstat(f->fd, &st) == 0) f->device = st.st_dev;

    if (fstatfs(f->fd, &fs) == 0) f->is_memory = fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC;
    f->is_direct = !f->is_memory && set_direct(f->fd, true);
    int e = try_block(f->fd);
    if (e == EINVAL && f->is_direct) {
        f->is_direct = false;
        e = set_direct(f->fd, false) ? try_block(f->fd) : EINVAL;
    }
    return e ? fail_errno(err, directory, e) : IG_OK;
}

void ig_disk_file_close(ig_disk_file *f) {
    if (f->fd >= 0) close(f->fd);
    free(f->directory);
    *f = (ig_disk_file){.fd = -1};
}

/* 0 or an errno. */
static int reserve(ig_disk_file *f, uint64_t n_bytes) {
    if (!may_reach(n_bytes)) return EFBIG;
    int e = EOPNOTSUPP;
    if (!f->cannot_reserve) {
        do e = fallocate(f->fd, 0, (off_t)f->size, (off_t)(n_bytes - f->size)) == 0 ? 0 : errno;
        while (e == EINTR);
        f->cannot_reserve = e == EOPNOTSUPP || e == ENOSYS;
    }
    if (f->cannot_reserve) e = ftruncate(f->fd, (off_t)n_bytes) == 0 ? 0 : errno;
    return e;
}

ig_status ig_disk_file_grow(ig_disk_file *f, uint64_t n_bytes, ig_error *err) {
    if (n_bytes <= f->size) return IG_OK;
    uint64_t wanted = (n_bytes + STEP - 1) / STEP * STEP;
    if (wanted > f->cap) wanted = f->cap;
    int e = reserve(f, wanted);
    if (e && wanted > n_bytes) e = reserve(f, wanted = n_bytes);
    if (e)
        return ig_fail(err, IG_E_IO, "KV spill file in %s: cannot grow to %llu bytes: %s", f->directory,
                       (unsigned long long)n_bytes, strerror(e));
    f->size = wanted;
    return IG_OK;
}
