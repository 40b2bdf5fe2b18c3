/* SPDX-License-Identifier: Apache-2.0
 *
 * Layout of a prepared column of two bfloat16 planes (IG_ACT_BF16), x ~ high + low. Both are padded with zeros to whole
 * tiles of 32 elements. A column takes an odd number of cache lines, so that neighbours don't share cache sets.
 */
#ifndef IG_KERNEL_PLANES_H
#define IG_KERNEL_PLANES_H

#include <stddef.h>
#include <stdint.h>

enum { IG_PLANE_STEP = 32 };

typedef struct ig_planes {
    uint16_t *high, *low;
} ig_planes;

static inline size_t ig_plane_elements(int n) {
    return ((size_t)n + IG_PLANE_STEP - 1) / IG_PLANE_STEP * IG_PLANE_STEP;
}

static inline size_t ig_planes_bytes(int n) { return 2 * sizeof(uint16_t) * ig_plane_elements(n) + 64; }

static inline ig_planes ig_planes_view(const void *column, int n) {
    uint16_t *high = (uint16_t *)column;
    return (ig_planes){high, high + ig_plane_elements(n)};
}

#endif
