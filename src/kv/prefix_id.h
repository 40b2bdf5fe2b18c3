/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of the beginnings of texts: XXH3-128 of the parent's id and the tokens that follow, so that an id stands for
 * all tokens from the first one on, and for the root: whatever else must be equal.
 */
#ifndef IG_KV_PREFIX_ID_H
#define IG_KV_PREFIX_ID_H

#include "infinigen.h"

typedef struct ig_prefix_id {
    uint64_t low, high;
} ig_prefix_id;

/* An id from bytes of any kind: of a root. */
ig_prefix_id ig_prefix_root(const void *bytes, size_t n);
/* The id of n tokens after `parent`. */
ig_prefix_id ig_prefix_next(ig_prefix_id parent, const int32_t *tokens, int n);
static inline bool ig_prefix_same(const ig_prefix_id *a, const ig_prefix_id *b) {
    return a->low == b->low && a->high == b->high;
}

#endif
