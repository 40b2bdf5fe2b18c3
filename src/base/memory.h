/* SPDX-License-Identifier: Apache-2.0
 *
 * Checked sizes, 64-byte aligned memory, and the arena that sessions are made of:
 * a plan is summed first, one block is taken, and pieces are cut from it.
 * Everything handed out here is aligned to 64 bytes and zeroed; arenas and reserved pages cost physical memory
 * only where they are touched.
 */
#ifndef IG_BASE_MEMORY_H
#define IG_BASE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { IG_ALIGN = 64 };

/* *out = a * b (a + b); false on overflow. */
static inline bool ig_mul_size(size_t *out, size_t a, size_t b) { return !__builtin_mul_overflow(a, b, out); }
static inline bool ig_add_size(size_t *out, size_t a, size_t b) { return !__builtin_add_overflow(a, b, out); }
static inline size_t ig_round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }
/* Of a power of two. */
static inline int ig_log2(int n) { return __builtin_ctz((unsigned)n); }

/* Zeroed memory aligned to IG_ALIGN, or NULL; n_bytes may be 0. Free with ig_free_aligned. */
void *ig_alloc_aligned(size_t n_bytes);
void ig_free_aligned(void *p);

/* Reserves zeroed pages that cost physical memory only once touched; NULL if refused. */
void *ig_pages_reserve(size_t n_bytes);
/* Gives back the physical memory of n_bytes from p on, both whole pages of 4096; they are zero again. Where the
 * system's pages are larger it may keep the memory. */
void ig_pages_drop(void *p, size_t n_bytes);
/* Asks for large pages, which cost fewer misses of the TLB where all of the memory is read over and over. */
void ig_pages_want_large(void *p, size_t n_bytes);
/* The same for memory that is in use, from the start of a page on: it is copied to large pages now, where the system
 * can. */
void ig_pages_make_large(void *p, size_t n_bytes);
void ig_pages_release(void *p, size_t n_bytes);

/* Bytes of memory that are free or can be freed at once, within what is left of control groups' limits; UINT64_MAX if
 * the system does not tell. */
uint64_t ig_memory_available(void);

/* An arena is filled in two passes over the same code: with base == NULL ig_arena_take()
 * only sums what is wanted and returns NULL; then ig_arena_open() takes the block. */
typedef struct ig_arena {
    char *base;
    size_t used, size; /* bytes */
} ig_arena;

void *ig_arena_take(ig_arena *a, size_t n_bytes);
/* Takes the block for what the counting pass summed; false if there is no memory. */
bool ig_arena_open(ig_arena *a);
void ig_arena_close(ig_arena *a);

#endif
