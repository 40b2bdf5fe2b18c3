/* SPDX-License-Identifier: Apache-2.0
 *
 * Mapping and reading files.
 */
#define _GNU_SOURCE
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

/* Opens a regular file for reading; *fd is -1 on failure. */
static ig_status open_regular(int *fd, size_t *size, const char *path, ig_error *err) {
    struct stat st;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0) return ig_fail(err, errno == ENOENT ? IG_E_NOT_FOUND : IG_E_IO, "%s: %s", path, strerror(errno));
    if (fstat(*fd, &st) != 0) {
        int e = errno;
        close(*fd);
        return ig_fail(err, IG_E_IO, "%s: %s", path, strerror(e));
    }
    if (!S_ISREG(st.st_mode)) {
        close(*fd);
        return ig_fail(err, IG_E_IO, "%s: not a regular file", path);
    }
    *size = (size_t)st.st_size;
    return IG_OK;
}

ig_status ig_file_map(ig_file *out, const char *path, ig_error *err) {
    int fd;
    *out = (ig_file){0};
    ig_status s = open_regular(&fd, &out->size, path, err);
    if (s) return s;
    if (out->size) {
        void *p = mmap(NULL, out->size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED)
            s = ig_fail(err, IG_E_IO, "%s: cannot map %zu bytes: %s", path, out->size, strerror(errno));
        else
            out->data = p;
    }
    close(fd);
    if (s) *out = (ig_file){0};
    return s;
}

void ig_file_unmap(ig_file *f) {
    if (f->data) munmap((void *)(uintptr_t)f->data, f->size);
    *f = (ig_file){0};
}

ig_status ig_file_read(char **out, size_t *n_bytes, const char *path, size_t max_bytes, ig_error *err) {
    int fd;
    size_t size = 0, at = 0;
    *out = NULL;
    *n_bytes = 0;
    ig_status s = open_regular(&fd, &size, path, err);
    if (s) return s;
    char *text = NULL;
    if (size > max_bytes) {
        s = ig_fail(err, IG_E_LIMIT, "%s: %zu bytes is more than the %zu allowed", path, size, max_bytes);
        goto done;
    }
    text = malloc(size + 1);
    if (!text) {
        s = ig_fail_memory(err, path, size + 1);
        goto done;
    }
    while (at < size) {
        ssize_t n = read(fd, text + at, size - at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            s = ig_fail(err, IG_E_IO, "%s: %s", path, strerror(errno));
            goto done;
        }
        if (n == 0) break; /* became shorter meanwhile */
        at += (size_t)n;
    }
    text[at] = 0;
    *out = text;
    *n_bytes = at;
    text = NULL;
done:
    free(text);
    close(fd);
    return s;
}

bool ig_path_is_directory(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool ig_path_exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0;
}
