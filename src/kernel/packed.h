/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernels of packed keys and values share at all CPU levels: the line of a group.
 *
 * The minimum is rounded down and the step up to a 16-bit float, before the codes are made: the line then covers the
 * whole group, and no number is farther than half a step from its code. Step times code is exact in 32 bits, so that
 * levels with and without fused multiply-add agree.
 */
#ifndef IG_KERNEL_PACKED_H
#define IG_KERNEL_PACKED_H

#include "base/half.h"
#include "kernel/kernel.h"

/* The line of a group whose numbers are in [lo, hi]. *min and *inverse: code = round((x - *min) * *inverse). */
static inline ig_kv_line ig_packed_line(float *min, float *inverse, float lo, float hi, int levels) {
    lo += 0.0f; /* -0 is 0 */
    uint16_t down = ig_f32_f16(lo), up;
    if (ig_f16_f32(down) > lo) down = (uint16_t)(lo < 0 ? down + 1 : down - 1);
    *min = ig_f16_f32(down);
    float step = (hi - *min) / (float)levels;
    up = ig_f32_f16(step);
    if (ig_f16_f32(up) < step) up++;
    *inverse = up ? 1.0f / ig_f16_f32(up) : 0;
    return (ig_kv_line){up, down};
}

/* Numbers of the group that starts at number j of d. */
static inline int ig_packed_group(int j, int d) { return d - j < IG_KV_GROUP ? d - j : IG_KV_GROUP; }

#endif
