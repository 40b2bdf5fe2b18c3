/* SPDX-License-Identifier: Apache-2.0
 *
 * A prompt's queries in blocks of two vectors, on x86, and what a block sees of a chunk of keys. A level includes
 * vectors_*.h first.
 */
#ifndef IG_KERNEL_ATTENTION_BLOCK_H
#define IG_KERNEL_ATTENTION_BLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "kernel/kernel.h"

enum {
    VECTORS = 2,             /* of a block; 1 where no more queries than one has are left */
    LANES = VECTORS * WIDTH, /* queries of a block */
    GROUP = 32,              /* rows that kernels take at a time */
};

/* The next room for numbers of 4 bytes, at the 64-byte aligned `base`. */
static inline void *take(uint8_t *base, size_t *at, size_t numbers) {
    void *p = base + *at;
    *at += (numbers * 4 + 63) / 64 * 64;
    return p;
}

static inline int whole_groups(int n) { return (n + GROUP - 1) / GROUP * GROUP; }

static inline int blocks_of(const ig_prompt_tile *t) { return (t->n_q + LANES - 1) / LANES; }

typedef struct seen {
    int n;          /* rows of the chunk from its first: whole groups; 0: none */
    bool is_masked; /* some query does not see all n */
} seen;

/* The smallest and the largest of a block's numbers. */
typedef struct range {
    int low, high;
} range;

static inline range range_of(const int32_t x[LANES]) {
    range r = {x[0], x[0]};
    for (int j = 1; j < LANES; j++) {
        r.low = x[j] < r.low ? x[j] : r.low;
        r.high = x[j] > r.high ? x[j] : r.high;
    }
    return r;
}

/* Of n rows, of which row `first` of the view is the first, by queries that begin (NULL: at 0) and end there. */
static inline seen see(const int32_t *begin, const int32_t *end, int first, int n) {
    range begins = begin ? range_of(begin) : (range){0, 0}, ends = range_of(end);
    seen s = {ends.high - first < n ? ends.high - first : n, false};
    if (s.n <= 0 || first + s.n <= begins.low) return (seen){0};
    s.n = whole_groups(s.n);
    s.is_masked = ends.low - first < s.n || begins.high > first;
    return s;
}

#endif
