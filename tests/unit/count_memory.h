/* SPDX-License-Identifier: Apache-2.0
 *
 * Counting and failing allocations: this program's own malloc, in front of the C library's. Include it in one file of a
 * test. Under sanitizers, which bring their own malloc, nothing is counted and nothing fails.
 */
#ifndef TESTS_COUNT_MEMORY_H
#define TESTS_COUNT_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include "sanitized.h"

static struct {
    bool is_on;
    size_t largest; /* bytes asked for at once */
    long n_taken, n_given;
    long fail_at; /* the allocation that fails, counted from 0; -1: none */
} memory_count = {.fail_at = -1};

static inline void memory_count_start(long fail_at) {
    memory_count.largest = 0;
    memory_count.n_taken = memory_count.n_given = 0;
    memory_count.fail_at = fail_at;
    memory_count.is_on = true;
}

static inline void memory_count_stop(void) { memory_count.is_on = false; }

#if !defined(IS_SANITIZED) && defined(__GLIBC__)
#define MEMORY_IS_COUNTED 1

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t alignment, size_t n);
void __libc_free(void *p);

/* True if this allocation is to fail. */
static inline bool count_one(size_t n) {
    if (!memory_count.is_on) return false;
    if (n > memory_count.largest) memory_count.largest = n;
    if (memory_count.fail_at == memory_count.n_taken) {
        memory_count.fail_at = -1;
        return true;
    }
    memory_count.n_taken++;
    return false;
}

/* Visible, so that shared libraries are counted too. */
#define COUNTED __attribute__((visibility("default")))

COUNTED void *malloc(size_t n) { return count_one(n) ? NULL : __libc_malloc(n); }
COUNTED void *calloc(size_t n, size_t size) { return count_one(n * size) ? NULL : __libc_calloc(n, size); }
COUNTED void *aligned_alloc(size_t alignment, size_t n) { return count_one(n) ? NULL : __libc_memalign(alignment, n); }

COUNTED void *realloc(void *p, size_t n) {
    if (count_one(n)) return NULL;
    if (memory_count.is_on && p) memory_count.n_given++;
    return __libc_realloc(p, n);
}

COUNTED void free(void *p) {
    if (memory_count.is_on && p) memory_count.n_given++;
    __libc_free(p);
}
#endif

#endif
