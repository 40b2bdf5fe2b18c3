/* SPDX-License-Identifier: Apache-2.0
 *
 * Byte ranges that must not overlap.
 */
#include "format/extent.h"

#include <stdlib.h>

static int compare(const void *a, const void *b) {
    const ig_extent *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

const ig_extent *ig_extents_overlap(ig_extent *extents, size_t n) {
    if (n < 2) return NULL;
    qsort(extents, n, sizeof *extents, compare);
    for (size_t i = 1; i < n; i++)
        if (extents[i].begin < extents[i - 1].end) return &extents[i];
    return NULL;
}
