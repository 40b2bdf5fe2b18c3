/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening, locking and naming; what is done with bytes is in prefix_file.c.
 */
#define _GNU_SOURCE
#include "kv/prefix_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/error.h"

#define LOCK_NAME "writer"
#define IDENTITY_NAME "store.id"
#define IDENTITY_TMP "store.id.tmp"

ig_status ig_prefix_dir_fail(const ig_prefix_dir *d, const char *what, int e, ig_error *err) {
    return ig_fail(err, e == ENOMEM ? IG_E_MEMORY : IG_E_IO, "KV store %s: %s: %s", d->path, what, strerror(e));
}

ig_status ig_prefix_dir_open(ig_prefix_dir *d, const char *path, bool make, ig_error *err) {
    d->fd = -1;
    d->path = strdup(path);
    if (!d->path) return ig_fail_memory(err, "KV store", strlen(path) + 1);
    if (make && mkdir(path, 0700) != 0 && errno != EEXIST) return ig_prefix_dir_fail(d, "cannot be made", errno, err);
    d->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d->fd >= 0) return IG_OK;
    if (errno == ENOENT || errno == ENOTDIR)
        return ig_fail(err, IG_E_NOT_FOUND, "KV store %s: %s", path, strerror(errno));
    return ig_prefix_dir_fail(d, "cannot be opened", errno, err);
}

void ig_prefix_dir_close(ig_prefix_dir *d) {
    if (d->fd >= 0) close(d->fd);
    free(d->path);
    d->fd = -1;
    d->path = NULL;
}

/* ---- the lock ------------------------------------------------------------ */

/* The number that the holder of the lock has written; 0 if it has not yet. */
static int read_holder(int fd) {
    char text[16] = "";
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    int pid = n > 0 ? atoi(text) : 0;
    return pid > 0 ? pid : 0;
}

static void write_holder(int fd) {
    char text[16];
    int n = snprintf(text, sizeof text, "%d\n", (int)getpid());
    /* For people only: whether it works does not matter. */
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)n, 0) != n) return;
}

int ig_prefix_dir_lock(const ig_prefix_dir *d, char *why, size_t cap) {
    int fd = openat(d->fd, LOCK_NAME, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd < 0) {
        snprintf(why, cap, "KV store %s cannot be written to: %s", d->path, strerror(errno));
        return -1;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        write_holder(fd);
        return fd;
    }
    int e = errno, pid = read_holder(fd);
    close(fd);
    if (e != EWOULDBLOCK)
        snprintf(why, cap, "KV store %s cannot be locked: %s", d->path, strerror(e));
    else if (pid == (int)getpid())
        snprintf(why, cap, "another cache of this process writes to the KV store %s: it is only read here", d->path);
    else if (pid)
        snprintf(why, cap, "another process (pid %d) writes to the KV store %s: it is only read here", pid, d->path);
    else
        snprintf(why, cap, "another process writes to the KV store %s: it is only read here", d->path);
    return e == EWOULDBLOCK ? IG_LOCK_TAKEN : -1;
}

/* ---- names --------------------------------------------------------------- */

/* BEGINNING, n hexadecimal digits (lower case), ENDING, and nothing else. */
static bool is_hex_name(const char *name, const char *beginning, size_t n_digits, const char *ending) {
    size_t n = strlen(beginning);
    return strncmp(name, beginning, n) == 0 && strspn(name + n, "0123456789abcdef") == n_digits &&
           strcmp(name + n + n_digits, ending) == 0;
}

ig_prefix_name ig_prefix_name_kind(const char *name, uint64_t *file) {
    if (is_hex_name(name, "kv-", 16, ".igkv")) {
        *file = strtoull(name + 3, NULL, 16);
        return *file <= INT64_MAX ? IG_PREFIX_PIECES : IG_PREFIX_OTHER; /* SQLite's numbers have a sign */
    }
    if (is_hex_name(name, "note-", 32, ".igkv")) return IG_PREFIX_NOTE;
    if (is_hex_name(name, "kv-", 16, ".igkv.tmp") || is_hex_name(name, "note-", 32, ".igkv.tmp") ||
        strcmp(name, IDENTITY_TMP) == 0)
        return IG_PREFIX_TMP;
    return IG_PREFIX_OTHER;
}

void ig_prefix_file_name(char name[IG_PREFIX_FILE_NAME], uint64_t file) {
    snprintf(name, IG_PREFIX_FILE_NAME, "kv-%016llx.igkv", (unsigned long long)file);
}

void ig_prefix_note_name(char name[IG_PREFIX_FILE_NAME], const ig_prefix_id *root, const char *note) {
    uint8_t bytes[16 + IG_PREFIX_NAME] = {0};
    ig_prefix_put_id(bytes, root);
    memcpy(bytes + 16, note, strnlen(note, IG_PREFIX_NAME - 1));
    XXH128_hash_t h = XXH3_128bits(bytes, sizeof bytes);
    snprintf(name, IG_PREFIX_FILE_NAME, "note-%016llx%016llx.igkv", (unsigned long long)h.high64,
             (unsigned long long)h.low64);
}

static int open_list(DIR **out, const ig_prefix_dir *d) {
    int fd = openat(d->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *out = fd >= 0 ? fdopendir(fd) : NULL;
    int e = *out ? 0 : errno;
    if (e && fd >= 0) close(fd);
    return e;
}

ig_status ig_prefix_dir_list(DIR **out, const ig_prefix_dir *d, ig_error *err) {
    int e = open_list(out, d);
    return e ? ig_prefix_dir_fail(d, "cannot be listed", e, err) : IG_OK;
}

/* ---- the store's number -------------------------------------------------- */

/* The store that a note says it is of; store.id is one without bytes, with the same checks. EINVAL: it is no note. */
static int read_note(const ig_prefix_dir *d, const char *name, ig_prefix_id *out) {
    ig_prefix_header kind;
    ig_prefix_record r;
    int fd, e = ig_prefix_open(d, name, false, &fd, NULL);
    if (e) return e;
    e = ig_prefix_read_header(d, fd, 0, &kind, &r);
    close(fd);
    if (e == ENODATA || (!e && (kind != IG_PREFIX_VALID || !r.is_note))) e = EINVAL;
    if (!e) *out = r.store;
    return e;
}

/* The store that a file of pieces says it is of. EINVAL: it has none. */
static int read_pieces(const ig_prefix_dir *d, const char *name, uint64_t file, ig_prefix_id *out) {
    struct stat st;
    ig_prefix_record r;
    ig_prefix_scan scan = {.dir = d, .file = file};
    int e = ig_prefix_open(d, name, false, &scan.fd, &st);
    if (e) return e;
    scan.n_bytes = (uint64_t)st.st_size;
    bool found = ig_prefix_scan_next(&scan, NULL, &r);
    close(scan.fd);
    if (found) *out = r.store;
    return found ? 0 : scan.e && scan.e != EFBIG ? scan.e : EINVAL;
}

static int read_file(const ig_prefix_dir *d, const char *name, ig_prefix_id *out) {
    uint64_t file;
    ig_prefix_name kind = ig_prefix_name_kind(name, &file);
    if (kind == IG_PREFIX_NOTE) return read_note(d, name, out);
    return kind == IG_PREFIX_PIECES ? read_pieces(d, name, file, out) : EINVAL;
}

/* What was read and has no number, or has just left: another errno may hide one. */
static bool has_none(int e) { return e == ENOENT || e == EINVAL; }

int ig_prefix_dir_identity(const ig_prefix_dir *d, ig_prefix_id *out) {
    int e = read_note(d, IDENTITY_NAME, out), why = has_none(e) ? ENOENT : e;
    if (!e) return 0;
    DIR *list;
    e = open_list(&list, d);
    if (e) return e;
    bool found = false;
    for (struct dirent *entry; !found && (errno = 0, entry = readdir(list));) {
        e = read_file(d, entry->d_name, out);
        found = !e;
        if (e && !has_none(e)) why = e;
    }
    if (!found && errno) why = errno;
    closedir(list);
    return found ? 0 : why;
}

ig_status ig_prefix_dir_make_identity(const ig_prefix_dir *d, ig_prefix_id *out, ig_error *err) {
    uint8_t page[IG_PREFIX_PAGE];
    ig_prefix_record r = {.is_note = true, .name = "store"};
    int fd;
    int e = read_note(d, IDENTITY_NAME, out);
    if (!e) return IG_OK;
    if (!has_none(e)) return ig_prefix_dir_fail(d, IDENTITY_NAME " cannot be read", e, err);
    e = ig_prefix_dir_identity(d, out);
    if (e && e != ENOENT) return ig_prefix_dir_fail(d, "its number cannot be looked for", e, err);
    if (e && getrandom(out, sizeof *out, 0) != sizeof *out)
        return ig_prefix_dir_fail(d, "no random number", errno, err);
    r.store = *out;
    ig_prefix_record_write(page, &r);
    unlinkat(d->fd, IDENTITY_TMP, 0);
    e = ig_prefix_make(d, IDENTITY_TMP, &fd);
    if (!e) e = ig_prefix_write(d, fd, 0, &(struct iovec){page, sizeof page}, 1);
    if (!e) e = ig_prefix_sync_parent(d); /* once, before the number is there: the directory may be new */
    if (!e) e = ig_prefix_publish(d, fd, IDENTITY_TMP, IDENTITY_NAME);
    if (fd >= 0) close(fd);
    if (e) unlinkat(d->fd, IDENTITY_TMP, 0);
    return e ? ig_prefix_dir_fail(d, IDENTITY_NAME " cannot be written", e, err) : IG_OK;
}
