/* SPDX-License-Identifier: Apache-2.0
 *
 * The quantised products of the level i8mm with many columns: one instruction of ARMv8.6 adds up 8 products each of 2
 * rows and 2 columns, twice as many as a dot product.
 */
#include "kernel/matmul_neon.h"

static inline int8x16_t low_halves(int8x16_t a, int8x16_t b) {
    return vreinterpretq_s8_s64(vzip1q_s64(vreinterpretq_s64_s8(a), vreinterpretq_s64_s8(b)));
}

static inline int8x16_t high_halves(int8x16_t a, int8x16_t b) {
    return vreinterpretq_s8_s64(vzip2q_s64(vreinterpretq_s64_s8(a), vreinterpretq_s64_s8(b)));
}

/* [2 halves][2 pairs of rows][2 rows][8] */
static inline void put_pairs(int8_t *to, const int8x16_t row[GROUP_ROWS]) {
    for (int pair = 0; pair < 2; pair++) {
        vst1q_s8(to + 16 * pair, low_halves(row[2 * pair], row[2 * pair + 1]));
        vst1q_s8(to + 32 + 16 * pair, high_halves(row[2 * pair], row[2 * pair + 1]));
    }
}

/* Of a pair of columns sum[0] and sum[1] are [2 rows][2 columns], of rows 0 and 1 and of 2 and 3; the next pair's
 * follow. A column without another is a pair with itself. */
static inline void add_pairs(int32x4_t sum[COLUMNS], const int8_t *pairs, const int8x16_t x[COLUMNS], const int n) {
    int8x16_t w[4];
    for (int i = 0; i < 4; i++) w[i] = vld1q_s8(pairs + 16 * i);
#pragma GCC unroll 2
    for (int c = 0; c < n; c += 2) {
        int8x16_t other = x[n == 1 ? 0 : c + 1], low = low_halves(x[c], other), high = high_halves(x[c], other);
        for (int pair = 0; pair < 2; pair++)
            sum[c + pair] = vmmlaq_s32(vmmlaq_s32(sum[c + pair], w[pair], low), w[2 + pair], high);
    }
}

static inline void end_pairs(int32x4_t sum[COLUMNS], const int n) {
#pragma GCC unroll 2
    for (int c = 0; c < n; c += 2) {
        int32x4_t first = sum[c], second = sum[c + 1];
        sum[c] = vuzp1q_s32(first, second);
        sum[c + 1] = vuzp2q_s32(first, second);
    }
}

static const row_sums sums = {put_pairs, add_pairs, end_pairs};
QUANTISED_TYPES(DEFINE_GEMM)

void ig_kernels_fill_matmul_i8mm(ig_kernels *k) { QUANTISED_TYPES(SET_GEMM) }
