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

/* Of n rows, of which row `first` of the view is the first, by queries with these ends. */
static inline seen see(const ig_prompt_tile *t, const int32_t end[LANES], int first, int n) {
    int low = end[0], high = end[0];
    for (int j = 1; j < LANES; j++) {
        low = end[j] < low ? end[j] : low;
        high = end[j] > high ? end[j] : high;
    }
    seen s = {high - first < n ? high - first : n, false};
    if (s.n <= 0 || (t->window && first + s.n <= low - t->window)) return (seen){0};
    s.n = whole_groups(s.n);
    s.is_masked = low - first < s.n || (t->window && high - t->window > first);
    return s;
}

#endif
