/* SPDX-License-Identifier: Apache-2.0
 *
 * Making stored panels of rows as they lie in a file (AVX2): a block of 16 rows is unpacked to codes of a byte, as for
 * gemm, and these are put together in as many bits as they take. Scales are copied.
 */
#include "kernel/matmul_avx2.h"
#include "kernel/panel_avx2.h"
#include "kernel/unpack_avx2.h"

/* Numbers of a row's block as a panel stores them. */
typedef struct scales {
    uint16_t half[2];   /* 16-bit floats: scale and minimum, or what bytes are multiplied by */
    uint8_t byte[8][2]; /* of super blocks: of each step two scales, or a scale and a minimum; of MXFP4 an exponent */
} scales;

static inline uint16_t read_u16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }

static inline scales scales_small(const uint8_t *p) { return (scales){.half = {read_u16(p), read_u16(p + 2)}}; }

static inline scales scales_mx(const uint8_t *p) { return (scales){.byte = {{p[0]}}}; }

/* Minimums are subtracted: their factor gets the other sign. */
static inline scales scales_q4_k(const uint8_t *p) {
    scales s = {.half = {read_u16(p), read_u16(p + 2) ^ 0x8000}};
    uint64_t bytes[2];
    ig_q45_k_scales(bytes, p);
    for (int i = 0; i < 8; i++)
        for (int k = 0; k < 2; k++) s.byte[i][k] = (uint8_t)(bytes[k] >> 8 * i);
    return s;
}

static inline scales scales_q6_k(const uint8_t *p) {
    scales s = {.half = {read_u16(p + 208)}};
    memcpy(s.byte, p + 192, sizeof s.byte);
    return s;
}

/* The codes of a step of an unpacked panel. */
INLINE void put_codes(char *step, const char *unpacked, const format f) {
    const format bytes = {.bits = 8};
    for (int h = 0; h < 2; h++) {
        __m256i low[4], high[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
        const int at = f.bits == 6; /* two registers of high bits */
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) {
            __m256i v = load_codes(unpacked, j, h, bytes);
            __m256i nibble = move_bits(v, 4, 0, j < 4 ? 0 : 4);
            low[j % 4] = j < 4 ? nibble : _mm256_or_si256(low[j % 4], nibble);
            __m256i rest = f.bits == 6 ? move_bits(v, 2, 4, 2 * (j % 4)) : move_bits(v, 1, 4, j);
            high[at * (j / 4)] = _mm256_or_si256(high[at * (j / 4)], rest);
        }
        for (int j = 0; j < 4; j++) _mm256_storeu_si256((void *)(step + 64 * j + 32 * h), low[j]);
        for (int i = 0; i < f.bits - 4; i++) _mm256_store_si256((void *)(step + 256 + 64 * i + 32 * h), high[i]);
    }
}

/* Number r of 16 bytes, or of 16-bit floats. */
static void put_scales_of(char *head, char *step, int r, const scales *s, const format f) {
    uint16_t *half = (uint16_t *)(void *)(f.super ? head : step + code_bytes(f));
    if (f.mx) {
        step[code_bytes(f) + (size_t)r] = (char)s->byte[0][0];
        return;
    }
    for (int k = 0; k < (f.offset ? 1 : 2); k++) half[PANEL_ROWS * k + r] = s->half[k];
    for (int i = 0; f.super && i < 8; i++, step += step_bytes(f))
        for (int k = 0; k < 2; k++) step[code_bytes(f) + (size_t)(PANEL_ROWS * k + r)] = (char)s->byte[i][k];
}

INLINE void put_panel(char *panel, panel_rows rows[2], int n_in, unpack_fn unpack, const format from,
                      scales (*read)(const uint8_t *), const int bytes, const format f) {
    const int steps = f.super ? 8 : 1;
    _Alignas(IG_ALIGN) char unpacked[8 * (32 + 4 * sizeof(float)) * PANEL_ROWS];
    for (int b = 0; b < n_in / 32; b += steps) {
        char *head = panel, *step = head + head_bytes(f);
        for (int h = 0; h < 2; h++) {
            unpack(unpacked, rows[h], h, 32 * steps);
            for (int r = 0; r < 8; r++) {
                scales s = read(row_at(&rows[h], r));
                put_scales_of(head, step, 8 * h + r, &s, f);
            }
            rows[h].w += bytes;
        }
        for (int i = 0; i < steps; i++)
            put_codes(step + (size_t)i * step_bytes(f), unpacked + (size_t)i * step_bytes(from), f);
        panel = step + (size_t)steps * step_bytes(f);
    }
}

static inline void unpack_mx_indices(char *panel, panel_rows rows, int half, int n) {
    unpack_mx(panel, rows, half, n, true);
}

#define PUT(type, unpack, from, read, bytes)                                                                  \
    size_t ig_panel_bytes_##type##_avx2(int n_in) { return panel_bytes(stored_##type, n_in); }                \
    void ig_panel_put_##type##_avx2(void *panel, const void *w, size_t row_bytes, int n_rows, int n_in) {     \
        panel_rows rows[2] = {                                                                                \
            {w, row_bytes, n_rows < 8 ? n_rows : 8},                                                          \
            {(const uint8_t *)w + (n_rows > 8 ? 8 * row_bytes : 0), row_bytes, n_rows > 8 ? n_rows - 8 : 0}}; \
        put_panel(panel, rows, n_in, unpack, from, read, bytes, stored_##type);                               \
    }
PUT(q4_0, unpack_q4_0, bits4, scales_small, 18)
PUT(q4_1, unpack_q4_1, bits4, scales_small, 20)
PUT(q5_0, unpack_q5_0, bits5, scales_small, 22)
PUT(q5_1, unpack_q5_1, bits5, scales_small, 24)
PUT(q4_k, unpack_q4_k, bits4, scales_q4_k, 144)
PUT(q5_k, unpack_q5_k, bits5, scales_q4_k, 176)
PUT(q6_k, unpack_q6_k, bits6_16, scales_q6_k, 210)
PUT(mxfp4, unpack_mx_indices, bits5, scales_mx, 17)
