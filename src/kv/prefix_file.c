/* SPDX-License-Identifier: Apache-2.0
 *
 * The bytes of data files.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "kv/prefix_dir.h"

enum { AREAS_AT_ONCE = 256 };

static int judge(const ig_prefix_dir *d, ig_prefix_call call, int result) {
    return d->fault ? d->fault(d->fault_user, call, result) : result;
}

int ig_prefix_open(const ig_prefix_dir *d, const char *name, bool write, int *fd, struct stat *st) {
    struct stat own;
    if (!st) st = &own;
    /* Not blocking: what has such a name might be a FIFO. */
    *fd = openat(d->fd, name, (write ? O_RDWR : O_RDONLY) | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (*fd < 0) return errno == ELOOP || errno == ENXIO ? EINVAL : errno;
    int e = fstat(*fd, st) != 0 ? errno : S_ISREG(st->st_mode) ? 0 : EINVAL;
    if (e) {
        close(*fd);
        *fd = -1;
    }
    return e;
}

int ig_prefix_make(const ig_prefix_dir *d, const char *name, int *fd) {
    *fd = openat(d->fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    return *fd < 0 ? errno : 0;
}

/* ---- moving bytes -------------------------------------------------------- */

/* Goes over areas in pieces that one call takes, and on after short ones. */
typedef struct cursor {
    const struct iovec *areas;
    int n, at;
    size_t done; /* of areas[at] */
} cursor;

static int take_areas(const cursor *c, struct iovec out[AREAS_AT_ONCE]) {
    int k = 0;
    for (int i = c->at; i < c->n && k < AREAS_AT_ONCE; i++) {
        size_t skip = i == c->at ? c->done : 0;
        if (c->areas[i].iov_len > skip)
            out[k++] = (struct iovec){(char *)c->areas[i].iov_base + skip, c->areas[i].iov_len - skip};
    }
    return k;
}

static void move_on(cursor *c, size_t n_bytes) {
    c->done += n_bytes;
    while (c->at < c->n && c->done >= c->areas[c->at].iov_len) c->done -= c->areas[c->at++].iov_len;
}

static int move_all(const ig_prefix_dir *d, ig_prefix_call call, int fd, uint64_t offset, const struct iovec *areas,
                    int n) {
    struct iovec some[AREAS_AT_ONCE];
    cursor c = {.areas = areas, .n = n};
    for (int k; move_on(&c, 0), (k = take_areas(&c, some)) > 0;) {
        ssize_t moved =
            call == IG_PREFIX_READ ? preadv(fd, some, k, (off_t)offset) : pwritev(fd, some, k, (off_t)offset);
        int result = judge(d, call, moved < 0 ? -errno : moved > INT32_MAX ? INT32_MAX : (int)moved);
        if (result == -EINTR) continue;
        if (result < 0) return -result;
        if (result == 0) return call == IG_PREFIX_READ ? ENODATA : ENOSPC;
        offset += (uint64_t)result;
        move_on(&c, (size_t)result);
    }
    return 0;
}

int ig_prefix_read(const ig_prefix_dir *d, int fd, uint64_t offset, const struct iovec *to, int n) {
    return move_all(d, IG_PREFIX_READ, fd, offset, to, n);
}

int ig_prefix_write(const ig_prefix_dir *d, int fd, uint64_t offset, const struct iovec *from, int n) {
    return move_all(d, IG_PREFIX_WRITE, fd, offset, from, n);
}

void ig_prefix_begin_sync(int fd, uint64_t offset, uint64_t n_bytes) {
    sync_file_range(fd, (off_t)offset, (off_t)n_bytes, SYNC_FILE_RANGE_WRITE);
}

int ig_prefix_read_header(const ig_prefix_dir *d, int fd, uint64_t offset, ig_prefix_header *kind,
                          ig_prefix_record *r) {
    uint8_t page[IG_PREFIX_PAGE];
    int e = ig_prefix_read(d, fd, offset, &(struct iovec){page, sizeof page}, 1);
    if (!e) *kind = ig_prefix_record_read(r, page);
    return e;
}

int ig_prefix_rename(const ig_prefix_dir *d, int fd, const char *tmp, const char *name) {
    int e = judge(d, IG_PREFIX_SYNC, fdatasync(fd) == 0 ? 0 : -errno);
    if (!e) e = judge(d, IG_PREFIX_RENAME, renameat(d->fd, tmp, d->fd, name) == 0 ? 0 : -errno);
    return -e;
}

int ig_prefix_sync_names(const ig_prefix_dir *d) { return -judge(d, IG_PREFIX_SYNC, fsync(d->fd) == 0 ? 0 : -errno); }

int ig_prefix_sync_parent(const ig_prefix_dir *d) {
    int fd = openat(d->fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return errno == EACCES ? 0 : errno;
    int e = judge(d, IG_PREFIX_SYNC, fsync(fd) == 0 ? 0 : -errno);
    close(fd);
    return e == -EINVAL ? 0 : -e;
}

int ig_prefix_publish(const ig_prefix_dir *d, int fd, const char *tmp, const char *name) {
    int e = ig_prefix_rename(d, fd, tmp, name);
    return e ? e : ig_prefix_sync_names(d);
}

/* ---- holes --------------------------------------------------------------- */

static int make_hole(int fd, uint64_t offset, uint64_t n_bytes) {
    int e;
    do e = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)n_bytes) == 0 ? 0 : -errno;
    while (e == -EINTR);
    return e;
}

void ig_prefix_clear(int fd, uint64_t from, uint64_t to) {
    if (from < to) make_hole(fd, from, to - from);
}

bool ig_prefix_can_punch(int fd) { return make_hole(fd, IG_PREFIX_PAGE, IG_PREFIX_PAGE) == 0; }

int ig_prefix_punch(const ig_prefix_dir *d, uint64_t file, uint64_t offset, uint64_t n_bytes, bool *is_freed) {
    static const uint8_t zeros[IG_PREFIX_PAGE];
    char name[IG_PREFIX_FILE_NAME];
    int fd;
    *is_freed = false;
    ig_prefix_file_name(name, file);
    int e = ig_prefix_open(d, name, true, &fd, NULL);
    if (e) return e;
    *is_freed = judge(d, IG_PREFIX_PUNCH, make_hole(fd, offset, n_bytes)) == 0;
    if (!*is_freed) e = ig_prefix_write(d, fd, offset, &(struct iovec){(void *)zeros, sizeof zeros}, 1);
    close(fd);
    return e;
}

int ig_prefix_remove(const ig_prefix_dir *d, uint64_t file) {
    char name[IG_PREFIX_FILE_NAME];
    ig_prefix_file_name(name, file);
    return -judge(d, IG_PREFIX_REMOVE, unlinkat(d->fd, name, 0) == 0 ? 0 : -errno);
}

bool ig_prefix_has_left(const ig_prefix_dir *d, int fd, uint64_t offset) {
    const struct timespec pause = {.tv_nsec = 5000000};
    ig_prefix_header kind;
    ig_prefix_record r;
    for (int tries = 0; tries < 2; tries++) {
        if (tries) nanosleep(&pause, NULL);
        if (ig_prefix_read_header(d, fd, offset, &kind, &r) != 0) return false;
        if (kind == IG_PREFIX_HOLE) return true;
    }
    return false;
}

/* ---- looking for headers ------------------------------------------------- */

/* Past what the file system knows to be a hole; where it knows none, the offset stays. */
static void skip_hole(ig_prefix_scan *s) {
    uint64_t before = s->offset;
    off_t next = lseek(s->fd, (off_t)s->offset, SEEK_DATA);
    if (next < 0 && errno == ENXIO)
        s->offset = s->n_bytes;
    else if (next >= 0 && (uint64_t)next > s->offset)
        s->offset = (uint64_t)next / IG_PREFIX_PAGE * IG_PREFIX_PAGE;
    s->is_after_hole |= s->offset != before;
}

/* Judges what is at s->offset; true: the header of a record that is whole. */
static bool look_at(ig_prefix_scan *s, ig_prefix_header kind, const ig_prefix_record *r, const ig_prefix_id *store) {
    bool is_ours = kind == IG_PREFIX_VALID && !r->is_note && (!store || ig_prefix_same(&r->store, store));
    if (kind == IG_PREFIX_FOREIGN || (kind == IG_PREFIX_VALID && !is_ours)) s->n_foreign++;
    if (kind == IG_PREFIX_DAMAGED && !s->is_after_hole) s->n_damaged++;
    if (kind == IG_PREFIX_HOLE) s->is_after_hole = true;
    if (!is_ours || r->file != s->file || r->offset != s->offset) return false;
    s->is_after_hole = false;
    if (ig_prefix_record_bytes(r->payload_bytes) <= s->n_bytes - s->offset) return true;
    s->n_damaged++; /* torn */
    return false;
}

bool ig_prefix_scan_next(ig_prefix_scan *s, const ig_prefix_id *store, ig_prefix_record *r) {
    ig_prefix_header kind;
    s->e = s->n_bytes > IG_PREFIX_FILE_MAX ? EFBIG : 0;
    if (s->e) return false;
    for (skip_hole(s); s->offset + IG_PREFIX_PAGE <= s->n_bytes;) {
        s->e = ig_prefix_read_header(s->dir, s->fd, s->offset, &kind, r);
        if (s->e) return false;
        s->found = s->offset;
        if (look_at(s, kind, r, store)) {
            s->offset += ig_prefix_record_bytes(r->payload_bytes);
            return true;
        }
        s->offset += IG_PREFIX_PAGE;
        if (s->is_after_hole) skip_hole(s);
    }
    return false;
}

/* ---- the limit of a file's size ------------------------------------------ */

static sigset_t the_signal(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGXFSZ);
    return set;
}

void ig_prefix_mute_begin(ig_prefix_mute *m) {
    sigset_t set = the_signal(), pending, before;
    sigpending(&pending);
    m->was_pending = sigismember(&pending, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &set, &before);
    m->was_blocked = sigismember(&before, SIGXFSZ);
}

void ig_prefix_mute_end(const ig_prefix_mute *m) {
    sigset_t set = the_signal();
    const struct timespec now = {0};
    if (!m->was_pending)
        while (sigtimedwait(&set, NULL, &now) < 0 && errno == EINTR) continue;
    if (!m->was_blocked) pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}
