/* SPDX-License-Identifier: Apache-2.0
 *
 * The quantised products of the level dotprod.
 */
#include "kernel/dot_dotprod.h"
#include "kernel/matmul_neon.h"

static inline void add_quads_dotprod(int32x4_t sum[COLUMNS], const int8_t *w, const int8x16_t x[COLUMNS], const int n) {
    add_quads(sum, w, x, n, dot_rows_dotprod);
}

static const dot_fn dot = dot_dotprod;
static const row_sums sums = {put_quads, add_quads_dotprod, end_quads};
QUANTISED_TYPES(DEFINE_GEMV)
QUANTISED_TYPES(DEFINE_GEMM)

void ig_kernels_fill_matmul_dotprod(ig_kernels *k) {
    QUANTISED_TYPES(SET_GEMV)
    QUANTISED_TYPES(SET_GEMM)
}
