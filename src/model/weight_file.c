/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading weights from files. Each file is opened a second time, through the descriptor that is mapped, so that it is
 * the same file whatever its name has become.
 */
#define _GNU_SOURCE
#include "model/weight_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"

enum { PAGE = IG_FILE_PAGE, PIECE = 8 << 20 /* bytes of a request */ };

struct ig_weight_reader {
    const ig_weight_file *files; /* [n_files] copied */
    size_t n_files;
    int *direct; /* [n_files] descriptors with O_DIRECT; -1: none */
    _Atomic bool is_direct;
};

ig_status ig_weight_reader_open(ig_weight_reader **out, const ig_weight_file *files, size_t n_files, ig_error *err) {
    ig_weight_reader *r = calloc(1, sizeof *r);
    ig_weight_file *copy = calloc(n_files, sizeof *copy);
    int *direct = calloc(n_files, sizeof *direct);
    *out = NULL;
    if (!r || !copy || !direct) {
        free(r), free(copy), free(direct);
        return ig_fail_memory(err, "list of files", n_files * sizeof *copy);
    }
    memcpy(copy, files, n_files * sizeof *copy);
    *r = (ig_weight_reader){.files = copy, .n_files = n_files, .direct = direct, .is_direct = true};
    for (size_t i = 0; i < n_files; i++) {
        char name[64];
        snprintf(name, sizeof name, "/proc/self/fd/%d", files[i].file->fd);
        direct[i] = open(name, O_RDONLY | O_CLOEXEC | O_DIRECT);
        if (direct[i] < 0) r->is_direct = false;
    }
    *out = r;
    return IG_OK;
}

void ig_weight_reader_close(ig_weight_reader *r) {
    if (!r) return;
    for (size_t i = 0; i < r->n_files; i++)
        if (r->direct[i] >= 0) close(r->direct[i]);
    free((void *)(uintptr_t)r->files);
    free(r->direct);
    free(r);
}

ig_status ig_weight_reader_find(ig_weight_span *out, const ig_weight_reader *r, const void *mapped, size_t n_bytes,
                                ig_error *err) {
    for (size_t i = 0; i < r->n_files; i++) {
        const ig_file *f = r->files[i].file;
        uintptr_t at = (uintptr_t)mapped, begin = (uintptr_t)f->data;
        if (at < begin || at - begin > f->size || n_bytes > f->size - (at - begin)) continue;
        size_t skip = (at - begin) % PAGE;
        *out = (ig_weight_span){.file = i,
                                .offset = at - begin - skip,
                                .skip = skip,
                                .bytes = n_bytes,
                                .room = ig_round_up(skip + n_bytes, PAGE)};
        return IG_OK;
    }
    return ig_fail(err, IG_E_ARG, "weights that are in no file");
}

/* One request at `at` of a span; 0 at the end of the file, -1 and errno. */
static ssize_t read_some(ig_weight_reader *r, const ig_weight_span *span, uint8_t *room, size_t at) {
    size_t n = span->room - at < PIECE ? span->room - at : PIECE;
    struct iovec to = {room + at, n};
    off_t offset = (off_t)(span->offset + at);
    int direct = r->direct[span->file], fd = r->files[span->file].file->fd;
    if (direct >= 0 && at % PAGE == 0) {
        ssize_t got = preadv(direct, &to, 1, offset);
        if (got >= 0 || errno != EINVAL) return got;
        r->is_direct = false; /* a file system that only says so now */
    }
    ssize_t got = preadv(fd, &to, 1, offset);
    if (got > 0) posix_fadvise(fd, offset, (off_t)got, POSIX_FADV_DONTNEED);
    return got;
}

ig_status ig_weight_reader_read(const void **bytes, ig_weight_reader *r, const ig_weight_span *span, uint8_t *room,
                                ig_error *err) {
    const char *path = r->files[span->file].path;
    for (size_t at = 0; at < span->skip + span->bytes;) {
        ssize_t got = read_some(r, span, room, at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return ig_fail(err, IG_E_IO, "%s: %s", path, strerror(errno));
        if (got == 0)
            return ig_fail(err, IG_E_IO, "%s: ends at byte %llu", path, (unsigned long long)(span->offset + at));
        at += (size_t)got;
    }
    *bytes = room + span->skip;
    return IG_OK;
}

void ig_weight_reader_forget(const ig_weight_reader *r) {
    for (size_t i = 0; i < r->n_files; i++) {
        const ig_file *f = r->files[i].file;
        if (f->size) madvise((void *)(uintptr_t)f->data, f->size, MADV_DONTNEED);
        posix_fadvise(f->fd, 0, 0, POSIX_FADV_DONTNEED);
    }
}

bool ig_weight_reader_is_direct(const ig_weight_reader *r) { return r->is_direct; }
