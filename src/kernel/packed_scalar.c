/* SPDX-License-Identifier: Apache-2.0
 *
 * Reference of packed keys and values.
 */
#include <math.h>

#include "kernel/packed.h"
#include "kernel/parts.h"

static float limited(float x, float most) {
    if (x != x) return 0;
    return x > most ? most : x < -most ? -most : x;
}

/* Codes of one group; returns its line. */
static ig_kv_line encode(uint8_t *codes, const float *x, int n, int levels) {
    float lo = INFINITY, hi = -INFINITY, min, inverse, most = ig_packed_most(levels);
    for (int i = 0; i < n; i++) {
        float v = limited(x[i], most);
        lo = v < lo ? v : lo;
        hi = v > hi ? v : hi;
    }
    ig_kv_line line = ig_packed_line(&min, &inverse, lo, hi, levels);
    for (int i = 0; i < n; i++) codes[i] = (uint8_t)lrintf((limited(x[i], most) - min) * inverse);
    return line;
}

static uint16_t decode(ig_kv_line line, int code) {
    return ig_f32_f16(ig_f16_f32(line.min) + ig_f16_f32(line.step) * (float)code);
}

static void pack_f16_scalar(void *row, ig_kv_line *lines, const float *x, int d) {
    uint16_t *out = row;
    (void)lines;
    for (int i = 0; i < d; i++) out[i] = ig_f32_f16(x[i]);
}

static void unpack_group(uint16_t *dst, ig_kv_line line, const uint8_t *codes, int n, int bits) {
    for (int i = 0; i < n * bits / 8; i++)
        for (int part = 0; part < 8 / bits; part++)
            dst[ig_packed_place(i, part, n, bits)] = decode(line, codes[i] >> part * bits & ((1 << bits) - 1));
}

static void unpack(uint16_t *dst, const ig_kv_packed *rows, int n, int d, int bits) {
    for (int r = 0; r < n; r++, dst += d)
        for (int j = 0; j < d; j += IG_KV_GROUP)
            unpack_group(dst + j, rows[r].lines[j / IG_KV_GROUP], rows[r].codes + j * bits / 8, ig_packed_group(j, d),
                         bits);
}

PACK_FUNCTIONS(scalar)

static void unpack_q8_scalar(uint16_t *dst, const ig_kv_packed *rows, int n, int d) { unpack(dst, rows, n, d, 8); }
static void unpack_q4_scalar(uint16_t *dst, const ig_kv_packed *rows, int n, int d) { unpack(dst, rows, n, d, 4); }
static void unpack_q2_scalar(uint16_t *dst, const ig_kv_packed *rows, int n, int d) { unpack(dst, rows, n, d, 2); }
static void unpack_q1_scalar(uint16_t *dst, const ig_kv_packed *rows, int n, int d) { unpack(dst, rows, n, d, 1); }

void ig_kernels_fill_packed_scalar(ig_kernels *k) {
    SET_PACK(k, scalar);
    k->kv_unpack[IG_KV_Q8] = unpack_q8_scalar;
    k->kv_unpack[IG_KV_Q4] = unpack_q4_scalar;
    k->kv_unpack[IG_KV_Q2] = unpack_q2_scalar;
    k->kv_unpack[IG_KV_Q1] = unpack_q1_scalar;
}
