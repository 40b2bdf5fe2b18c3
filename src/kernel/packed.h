/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernels of packed keys and values share at all CPU levels: the line of a group, and where its codes lie.
 *
 * The minimum is rounded down and the step up to a 16-bit float, before the codes are made: the line then covers the
 * whole group, and no number is farther than half a step from its code. Step times code is exact in 32 bits, so that
 * levels with and without fused multiply-add agree.
 */
#ifndef IG_KERNEL_PACKED_H
#define IG_KERNEL_PACKED_H

#include "base/half.h"
#include "kernel/kernel.h"
#include "kernel/parts.h"

/* The line of a group whose numbers are in [lo, hi]. *min and *inverse: code = round((x - *min) * *inverse). */
static inline ig_kv_line ig_packed_line(float *min, float *inverse, float lo, float hi, int levels) {
    lo += 0.0f, hi += 0.0f; /* -0 is 0 */
    uint16_t down = ig_f32_f16(lo), up;
    if (ig_f16_f32(down) > lo) down = (uint16_t)(lo < 0 ? down + 1 : down - 1);
    *min = ig_f16_f32(down);
    float step = (hi - *min) / (float)levels;
    up = ig_f32_f16(step);
    if (ig_f16_f32(up) < step) up++;
    *inverse = up ? 1.0f / ig_f16_f32(up) : 0;
    return (ig_kv_line){up, down};
}

/* The largest number that codes of so many levels keep (base/kv_type.h). */
static inline float ig_packed_most(int levels) { return levels == 1 ? IG_KV_MOST / 2 : IG_KV_MOST; }

/* Numbers of the group that starts at number j of d. */
static inline int ig_packed_group(int j, int d) { return d - j < IG_KV_GROUP ? d - j : IG_KV_GROUP; }

/* Of a group of n numbers: that of code `part` of byte `byte`, counted from its lowest bits, of so many bits each. */
static inline int ig_packed_place(int byte, int part, int n, int bits) {
    return bits == 1 ? 8 * byte + part : part * (n * bits / 8) + byte;
}

/* The bytes of a group of n codes. */
static inline void ig_packed_put(uint8_t *out, const uint8_t *codes, int n, int bits) {
    for (int i = 0; i < n * bits / 8; i++) {
        int byte = 0;
        for (int part = 0; part < 8 / bits; part++) byte |= codes[ig_packed_place(i, part, n, bits)] << part * bits;
        out[i] = (uint8_t)byte;
    }
}

/* Makes the codes, 0 to `levels`, of a group of n numbers and returns its line: what the levels of CPUs differ in. */
typedef ig_kv_line (*ig_packed_encode_fn)(uint8_t *codes, const float *x, int n, int levels);

/* A row of d numbers in codes of so many bits. */
INLINE void ig_packed_pack(uint8_t *row, ig_kv_line *lines, const float *x, int d, int bits,
                           ig_packed_encode_fn encode) {
    uint8_t codes[IG_KV_GROUP];
    for (int j = 0; j < d; j += IG_KV_GROUP) {
        int n = ig_packed_group(j, d);
        *lines++ = encode(codes, x + j, n, (1 << bits) - 1);
        ig_packed_put(row + j * bits / 8, codes, n, bits);
    }
}

/* The functions of a level, which has encode(). */
#define PACK_FUNCTION(bits, level)                                                            \
    static void pack_q##bits##_##level(void *row, ig_kv_line *lines, const float *x, int d) { \
        ig_packed_pack(row, lines, x, d, bits, encode);                                       \
    }
#define PACK_FUNCTIONS(level) \
    PACK_FUNCTION(8, level) PACK_FUNCTION(4, level) PACK_FUNCTION(2, level) PACK_FUNCTION(1, level)
#define SET_PACK(k, level)                                                                \
    (k)->kv_pack[IG_KV_F16] = pack_f16_##level, (k)->kv_pack[IG_KV_Q8] = pack_q8_##level, \
    (k)->kv_pack[IG_KV_Q4] = pack_q4_##level, (k)->kv_pack[IG_KV_Q2] = pack_q2_##level,   \
    (k)->kv_pack[IG_KV_Q1] = pack_q1_##level

#endif
