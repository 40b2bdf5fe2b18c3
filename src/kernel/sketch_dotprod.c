/* SPDX-License-Identifier: Apache-2.0
 *
 * What the level dotprod has instead of the sketch kernels of NEON.
 */
#include "kernel/dot_dotprod.h"
#include "kernel/sketch_neon.h"

static void sketch_scores_dotprod(float *scores, size_t stride, const float *q, int n_q, int d, float scale,
                                  const void *blocks, int n_blocks) {
    sketch_scores(scores, stride, q, n_q, d, scale, blocks, n_blocks, dot_rows_dotprod);
}

static void value_sums_dotprod(float *acc, const float *w, size_t stride, int n_q, int d, const void *blocks,
                               int n_blocks) {
    value_sums(acc, w, stride, n_q, d, blocks, n_blocks, dot_rows_unsigned_dotprod);
}

void ig_kernels_fill_sketch_dotprod(ig_kernels *k) {
    k->sketch_scores = sketch_scores_dotprod;
    k->value_sums = value_sums_dotprod;
}
