/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening, mapping, copying and reading files.
 */
#define _GNU_SOURCE
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"

enum { PIECE = 16 << 20 }; /* bytes copied between two reports */

ig_status ig_file_open(ig_file *out, const char *path, ig_error *err) {
    struct stat st;
    *out = (ig_file){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return ig_fail(err, errno == ENOENT ? IG_E_NOT_FOUND : IG_E_IO, "%s: %s", path, strerror(errno));
    if (fstat(fd, &st) != 0) {
        int e = errno;
        close(fd);
        return ig_fail(err, IG_E_IO, "%s: %s", path, strerror(e));
    }
    if (!S_ISREG(st.st_mode)) {
        close(fd);
        return ig_fail(err, IG_E_IO, "%s: not a regular file", path);
    }
    *out = (ig_file){.size = (size_t)st.st_size, .state = IG_FILE_OPEN, .fd = fd, .written = st.st_mtim};
    return IG_OK;
}

bool ig_file_is_changed(const ig_file *f) {
    struct stat st;
    if (f->state != IG_FILE_OPEN && f->state != IG_FILE_MAPPED) return false;
    return fstat(f->fd, &st) != 0 || (size_t)st.st_size != f->size || st.st_mtim.tv_sec != f->written.tv_sec ||
           st.st_mtim.tv_nsec != f->written.tv_nsec;
}

void ig_file_close(ig_file *f) {
    void *data = (void *)(uintptr_t)f->data;
    if (f->state == IG_FILE_COPIED) free(data);
    if (f->state == IG_FILE_MAPPED && data) munmap(data, f->size);
    if (f->state == IG_FILE_MAPPED || f->state == IG_FILE_OPEN) close(f->fd);
    *f = (ig_file){0};
}

/* Up to n bytes from where the file stands; fewer only at its end. */
static ig_status read_bytes(size_t *n_read, const ig_file *f, void *to, size_t n, const char *path, ig_error *err) {
    for (*n_read = 0; *n_read < n;) {
        ssize_t got = read(f->fd, (char *)to + *n_read, n - *n_read);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return ig_fail(err, IG_E_IO, "%s: %s", path, strerror(errno));
        if (got == 0) break;
        *n_read += (size_t)got;
    }
    return IG_OK;
}

static ig_status map(ig_file *f, const char *path, ig_error *err) {
    void *data = f->size ? mmap(NULL, f->size, PROT_READ, MAP_PRIVATE, f->fd, 0) : NULL;
    if (data == MAP_FAILED)
        return ig_fail(err, IG_E_IO, "%s: cannot map %zu bytes: %s", path, f->size, strerror(errno));
    f->data = data;
    f->state = IG_FILE_MAPPED;
    return IG_OK;
}

ig_status ig_loading_add(ig_loading *loading, uint64_t n_bytes, ig_error *err) {
    loading->done += n_bytes;
    bool stops = loading->progress && loading->progress(loading->user, loading->done, loading->total);
    return stops ? ig_fail(err, IG_E_INTERRUPTED, "loading was interrupted") : IG_OK;
}

static ig_status copy_to(uint8_t *to, const ig_file *f, const char *path, ig_loading *copy, ig_error *err) {
    for (size_t at = 0, n; at < f->size; at += n) {
        ig_status s = read_bytes(&n, f, to + at, f->size - at < PIECE ? f->size - at : PIECE, path, err);
        if (s) return s;
        if (n == 0) break; /* it has become shorter */
        s = ig_loading_add(copy, n, err);
        if (s) return s;
    }
    return ig_file_is_changed(f) ? ig_fail(err, IG_E_CHANGED, "%s: was changed while it was read", path) : IG_OK;
}

ig_status ig_file_take(ig_file *f, const char *path, ig_loading *copy, ig_error *err) {
    if (!copy) return map(f, path, err);
    /* Not ig_alloc_aligned(), which touches all pages, nor ig_pages_reserve(), which promises more than there is. */
    uint8_t *data = f->size <= SIZE_MAX / 2 ? aligned_alloc(IG_ALIGN, ig_round_up(f->size + 1, IG_ALIGN)) : NULL;
    if (!data) return ig_fail_memory(err, path, f->size);
    ig_status s = copy_to(data, f, path, copy, err);
    if (s) {
        free(data);
        return s;
    }
    close(f->fd);
    f->data = data;
    f->state = IG_FILE_COPIED;
    return IG_OK;
}

void ig_file_forget(const void *data, size_t n_bytes) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)data, last = (first + n_bytes) / page * page;
    first = (first + page - 1) / page * page;
    if (first < last) madvise((void *)first, last - first, MADV_DONTNEED);
}

ig_status ig_file_read(char **out, size_t *n_bytes, const char *path, size_t max_bytes, ig_error *err) {
    ig_file f;
    *out = NULL;
    *n_bytes = 0;
    ig_status s = ig_file_open(&f, path, err);
    if (s) return s;
    char *text = NULL;
    if (f.size > max_bytes)
        s = ig_fail(err, IG_E_LIMIT, "%s: %zu bytes is more than the %zu allowed", path, f.size, max_bytes);
    else if (!(text = malloc(f.size + 1)))
        s = ig_fail_memory(err, path, f.size + 1);
    else
        s = read_bytes(n_bytes, &f, text, f.size, path, err); /* fewer if it became shorter meanwhile */
    ig_file_close(&f);
    if (s) {
        free(text);
        return s;
    }
    text[*n_bytes] = 0;
    *out = text;
    return IG_OK;
}

uint64_t ig_file_number(const char *path, const char *format) {
    char line[128];
    unsigned long long n;
    uint64_t found = UINT64_MAX;
    FILE *f = fopen(path, "re");
    while (f && found == UINT64_MAX && fgets(line, sizeof line, f))
        if (sscanf(line, format, &n) == 1) found = n;
    if (f) fclose(f);
    return found;
}

bool ig_path_is_directory(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool ig_path_exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0;
}
