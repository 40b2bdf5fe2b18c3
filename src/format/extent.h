/* SPDX-License-Identifier: Apache-2.0
 *
 * Byte ranges of tensors in a file, to see that no two overlap.
 */
#ifndef IG_FORMAT_EXTENT_H
#define IG_FORMAT_EXTENT_H

#include <stddef.h>
#include <stdint.h>

typedef struct ig_extent {
    uint64_t begin, end; /* bytes; begin < end */
    size_t i;            /* the tensor */
} ig_extent;

/* Sorts by position. Returns the later one of two that overlap (the earlier one lies before it in the
 * array), NULL if none do. */
const ig_extent *ig_extents_overlap(ig_extent *extents, size_t n);

#endif
