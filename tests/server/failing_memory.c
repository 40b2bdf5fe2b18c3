/* SPDX-License-Identifier: Apache-2.0
 *
 * A library to be preloaded, in which one allocation fails: test_failed_memory.py says which. The file that
 * FAILING_MEMORY names holds a number of 64 bits, mapped by both: how many allocations come before the one that fails.
 * Each allocation takes one off, so that it says afterwards how many there were; below zero none fails.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t alignment, size_t n);

static _Atomic int64_t nobody = -1, *left = &nobody;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("FAILING_MEMORY");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *shared = mmap(NULL, sizeof *left, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared != MAP_FAILED) left = shared;
    close(fd);
}

static bool fails(void) {
    if (atomic_fetch_sub(left, 1) != 0) return false;
    errno = ENOMEM;
    return true;
}

#pragma GCC visibility push(default)

void *malloc(size_t n) { return fails() ? NULL : __libc_malloc(n); }
void *calloc(size_t n, size_t size) { return fails() ? NULL : __libc_calloc(n, size); }
void *realloc(void *p, size_t n) { return fails() ? NULL : __libc_realloc(p, n); }
void *aligned_alloc(size_t alignment, size_t n) { return fails() ? NULL : __libc_memalign(alignment, n); }

int posix_memalign(void **out, size_t alignment, size_t n) {
    void *p = fails() ? NULL : __libc_memalign(alignment, n);
    if (p) *out = p;
    return p ? 0 : ENOMEM;
}

#pragma GCC visibility pop
