/* SPDX-License-Identifier: Apache-2.0
 *
 * Scales that stand beside the weights of a matrix, one for each block of rows and columns, as Hugging Face's files in
 * FP8 have them. A weight is what its code says times the scale of its block.
 */
#ifndef IG_BASE_BLOCK_SCALES_H
#define IG_BASE_BLOCK_SCALES_H

#include <stddef.h>

enum { IG_SCALES_UNIT = 64 }; /* columns of blocks are a multiple of this, or all of a row */

typedef struct ig_block_scales {
    const float *s;     /* [blocks below each other][n_across]; NULL: all are 1 */
    int first;          /* the number there of the matrix's first row */
    int n_rows, n_cols; /* of a block */
    int n_across;       /* blocks side by side */
} ig_block_scales;

/* Those of a row's blocks, or NULL. */
static inline const float *ig_scales_of_row(const ig_block_scales *b, int row) {
    return b->s ? b->s + (size_t)((b->first + row) / b->n_rows) * (size_t)b->n_across : NULL;
}

/* How many columns of a row of n_in have the same scale. */
static inline int ig_scales_width(const ig_block_scales *b, int n_in) { return b->s ? b->n_cols : n_in; }

/* Codes of a row, n from number `begin` on, become weights. */
static inline void ig_scale_codes(float *w, const ig_block_scales *b, int row, int begin, int n) {
    const float *s = ig_scales_of_row(b, row);
    for (int i = 0; s && i < n; i++) w[i] *= s[(begin + i) / b->n_cols];
}

#endif
