/* SPDX-License-Identifier: Apache-2.0
 *
 * Layout of a prepared column in 16-bit fixed point (IG_ACT_FIXED): groups of 64 elements, x ~ scale * q. Codes are
 * padded with zeros to whole groups.
 */
#ifndef IG_KERNEL_FIXED_H
#define IG_KERNEL_FIXED_H

#include <stddef.h>
#include <stdint.h>

enum {
    IG_FIXED_GROUP = 64,
    /* |sum w[i] x[i]| <= |w| |x| (Cauchy-Schwarz): a group of activations is scaled to a norm of 2^15, which rounding
     * takes up to 4 further. One of weights is scaled to a peak of 8191, where rounding ends too, and so to a norm of
     * up to 8191 * 8: (32767 + 4) * 8191 * 8 = 2,147,418,088 < 2^31. */
    IG_FIXED_NORM = 32767,
    IG_FIXED_PEAK = 8191,
};

/* Largest magnitude taken for zero: its inverse must stay finite. */
#define IG_FIXED_TINY 0x1p-100f

static inline size_t ig_fixed_groups(int n) { return ((size_t)n + IG_FIXED_GROUP - 1) / IG_FIXED_GROUP; }
static inline size_t ig_fixed_bytes(int n) {
    size_t groups = ig_fixed_groups(n);
    return groups * IG_FIXED_GROUP * sizeof(int16_t) + (groups * sizeof(float) + 63) / 64 * 64;
}

/* Of a panel of 16 rows of weights, as matmul_fixed.h has it. */
static inline size_t ig_fixed_panel_bytes(int n) {
    return ig_fixed_groups(n) * 16 * (IG_FIXED_GROUP * sizeof(int16_t) + sizeof(float));
}

typedef struct ig_fixed {
    int16_t *q;   /* [groups][IG_FIXED_GROUP] */
    float *scale; /* [groups]; NaN if the group has a value that is not finite */
} ig_fixed;

static inline ig_fixed ig_fixed_view(const void *column, int n) {
    int16_t *q = (int16_t *)column;
    return (ig_fixed){q, (float *)(void *)(q + ig_fixed_groups(n) * IG_FIXED_GROUP)};
}

#endif
