/* SPDX-License-Identifier: Apache-2.0
 *
 * The quantised products of the level dotprod.
 */
#include "kernel/dot_dotprod.h"
#include "kernel/matmul_neon.h"

static inline void add_quads_dotprod(int32x4_t sum[COLUMNS], const int8_t *w, const int8x16_t x[COLUMNS], const int n) {
    add_quads(sum, w, x, n, dot_rows_dotprod);
}

#define DEFINE(TYPE, type, ...)                                                                 \
    static void gemv_##type##_dotprod(const ig_matmul *m, int row_begin, int row_end) {         \
        gemv_quantised(m, row_begin, row_end, (format){load_##type, __VA_ARGS__}, dot_dotprod); \
    }                                                                                           \
    static void gemm_##type##_dotprod(const ig_matmul *m, int row_begin, int row_end) {         \
        gemm_quantised(m, row_begin, row_end, (format){load_##type, __VA_ARGS__},               \
                       (row_sums){put_quads, add_quads_dotprod, end_quads});                    \
    }
QUANTISED_TYPES(DEFINE)

void ig_kernels_fill_matmul_dotprod(ig_kernels *k) {
#define SET(TYPE, type, ...)                         \
    k->gemv[IG_TYPE_##TYPE] = gemv_##type##_dotprod; \
    k->gemm[IG_TYPE_##TYPE] = gemm_##type##_dotprod;
    QUANTISED_TYPES(SET)
}
