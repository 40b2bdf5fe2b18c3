/* SPDX-License-Identifier: Apache-2.0
 *
 * Reference of packed keys and values.
 */
#include <math.h>

#include "kernel/packed.h"
#include "kernel/parts.h"

static float limited(float x) {
    if (x != x) return 0;
    return x > IG_KV_MOST ? IG_KV_MOST : x < -IG_KV_MOST ? -IG_KV_MOST : x;
}

/* Codes of one group; returns its line. */
static ig_kv_line encode(uint8_t *codes, const float *x, int n, int levels) {
    float lo = INFINITY, hi = -INFINITY, min, inverse;
    for (int i = 0; i < n; i++) {
        float v = limited(x[i]);
        lo = v < lo ? v : lo;
        hi = v > hi ? v : hi;
    }
    ig_kv_line line = ig_packed_line(&min, &inverse, lo, hi, levels);
    for (int i = 0; i < n; i++) codes[i] = (uint8_t)lrintf((limited(x[i]) - min) * inverse);
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

static void pack_q8_scalar(void *row, ig_kv_line *lines, const float *x, int d) {
    uint8_t *codes = row;
    for (int j = 0; j < d; j += IG_KV_GROUP) *lines++ = encode(codes + j, x + j, ig_packed_group(j, d), 255);
}

static void pack_q4_scalar(void *row, ig_kv_line *lines, const float *x, int d) {
    uint8_t *out = row, codes[IG_KV_GROUP];
    for (int j = 0; j < d; j += IG_KV_GROUP) {
        int n = ig_packed_group(j, d);
        *lines++ = encode(codes, x + j, n, 15);
        for (int i = 0; i < n / 2; i++) *out++ = (uint8_t)(codes[i] | codes[n / 2 + i] << 4);
    }
}

static void unpack_q8_scalar(uint16_t *dst, const ig_kv_packed *rows, int n, int d) {
    for (int r = 0; r < n; r++, dst += d)
        for (int j = 0; j < d; j++) dst[j] = decode(rows[r].lines[j / IG_KV_GROUP], rows[r].codes[j]);
}

static void unpack_q4_scalar(uint16_t *dst, const ig_kv_packed *rows, int n, int d) {
    for (int r = 0; r < n; r++, dst += d)
        for (int j = 0; j < d; j += IG_KV_GROUP) {
            int half = ig_packed_group(j, d) / 2;
            for (int i = 0; i < half; i++) {
                uint8_t pair = rows[r].codes[j / 2 + i];
                dst[j + i] = decode(rows[r].lines[j / IG_KV_GROUP], pair & 15);
                dst[j + half + i] = decode(rows[r].lines[j / IG_KV_GROUP], pair >> 4);
            }
        }
}

void ig_kernels_fill_packed_scalar(ig_kernels *k) {
    k->kv_pack[IG_KV_F16] = pack_f16_scalar;
    k->kv_pack[IG_KV_Q8] = pack_q8_scalar;
    k->kv_pack[IG_KV_Q4] = pack_q4_scalar;
    k->kv_unpack[IG_KV_Q8] = unpack_q8_scalar;
    k->kv_unpack[IG_KV_Q4] = unpack_q4_scalar;
}
