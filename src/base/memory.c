/* SPDX-License-Identifier: Apache-2.0
 *
 * Aligned memory, lazily touched pages, arenas.
 */
#define _GNU_SOURCE
#include "base/memory.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/file.h"

void *ig_alloc_aligned(size_t n_bytes) {
    if (n_bytes > SIZE_MAX - IG_ALIGN) return NULL;
    size_t rounded = ig_round_up(n_bytes ? n_bytes : 1, IG_ALIGN);
    void *p = aligned_alloc(IG_ALIGN, rounded);
    if (p) memset(p, 0, rounded);
    return p;
}

void ig_free_aligned(void *p) { free(p); }

void *ig_pages_reserve(size_t n_bytes) {
    void *p =
        mmap(NULL, n_bytes ? n_bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

void ig_pages_drop(void *p, size_t n_bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    bool is_whole = (uintptr_t)p % page == 0 && n_bytes % page == 0; /* larger pages hold others' bytes too */
    if (n_bytes && (!is_whole || madvise(p, n_bytes, MADV_DONTNEED) != 0)) memset(p, 0, n_bytes); /* or locked */
}

void ig_pages_want_large(void *p, size_t n_bytes) { madvise(p, n_bytes, MADV_HUGEPAGE); }

void ig_pages_make_large(void *p, size_t n_bytes) {
    enum { COLLAPSE = 25 }; /* MADV_COLLAPSE of Linux 6.1, which not every C library knows */
    ig_pages_want_large(p, n_bytes);
    madvise(p, n_bytes, COLLAPSE);
}

void ig_pages_release(void *p, size_t n_bytes) {
    if (p) munmap(p, n_bytes ? n_bytes : 1);
}

uint64_t ig_memory_available(void) {
    uint64_t kib = ig_file_number("/proc/meminfo", "MemAvailable: %llu kB");
    uint64_t system = kib > UINT64_MAX / 1024 ? UINT64_MAX : kib * 1024, group = ig_cgroup_memory("");
    return group < system ? group : system;
}

void *ig_arena_take(ig_arena *a, size_t n_bytes) {
    size_t at = a->used;
    if (n_bytes > SIZE_MAX / 2 - at) { /* an impossible sum: make ig_arena_open() fail */
        a->used = SIZE_MAX / 2;
        return NULL;
    }
    a->used = ig_round_up(at + n_bytes, IG_ALIGN);
    if (!a->base) return NULL;
    assert(a->used <= a->size);
    return a->base + at;
}

bool ig_arena_open(ig_arena *a) {
    a->size = a->used;
    a->used = 0;
    a->base = a->size >= SIZE_MAX / 2 ? NULL : ig_pages_reserve(a->size);
    return a->base != NULL;
}

void ig_arena_close(ig_arena *a) {
    ig_pages_release(a->base, a->size);
    *a = (ig_arena){0};
}
