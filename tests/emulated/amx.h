/* SPDX-License-Identifier: Apache-2.0
 *
 * Stands before the sources of the level amx: its instructions in C, as Intel's manual describes them.
 */
#ifndef IG_TESTS_EMULATED_AMX_H
#define IG_TESTS_EMULATED_AMX_H

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

static struct {
    uint8_t palette, start, none[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} emulated_shape;
static uint8_t emulated_tile[8][16][64];

static __attribute__((noinline)) void emulated_load(int t, const void *base, size_t stride) {
    memset(emulated_tile[t], 0, sizeof emulated_tile[t]);
    for (size_t r = 0; r < emulated_shape.rows[t]; r++)
        memcpy(emulated_tile[t][r], (const char *)base + r * stride, emulated_shape.row_bytes[t]);
}

static __attribute__((noinline)) void emulated_store(int t, void *base, size_t stride) {
    for (size_t r = 0; r < emulated_shape.rows[t]; r++)
        memcpy((char *)base + r * stride, emulated_tile[t][r], emulated_shape.row_bytes[t]);
}

static inline float emulated_number(const uint8_t *p) {
    uint32_t bits = (uint32_t)(p[0] | p[1] << 8) << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static __attribute__((noinline)) void emulated_multiply(int to, int a, int b) {
    for (int m = 0; m < emulated_shape.rows[to]; m++)
        for (int n = 0; n < emulated_shape.row_bytes[to] / 4; n++) {
            float sum, parts[2] = {0, 0};
            for (int k = 0; k < emulated_shape.row_bytes[a] / 4; k++)
                for (int i = 0; i < 2; i++)
                    parts[i] = fmaf(emulated_number(&emulated_tile[a][m][4 * k + 2 * i]),
                                    emulated_number(&emulated_tile[b][k][4 * n + 2 * i]), parts[i]);
            memcpy(&sum, &emulated_tile[to][m][4 * n], sizeof sum);
            sum += parts[0] + parts[1];
            memcpy(&emulated_tile[to][m][4 * n], &sum, sizeof sum);
        }
}

#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbf16ps
#define _tile_loadconfig(p) memcpy(&emulated_shape, p, sizeof emulated_shape)
#define _tile_release() memset(&emulated_shape, 0, sizeof emulated_shape)
#define _tile_loadd(t, base, stride) emulated_load(t, base, stride)
#define _tile_stored(t, base, stride) emulated_store(t, base, stride)
#define _tile_zero(t) memset(emulated_tile[t], 0, sizeof emulated_tile[t])
#define _tile_dpbf16ps(to, a, b) emulated_multiply(to, a, b)

#endif
