/* SPDX-License-Identifier: Apache-2.0
 *
 * Stored panels: 16 rows of quantised weights side by side, with their scales, in as many bits as the type takes in the
 * file. All levels of x86 have the same ones (panel_put_avx2.c makes them), and each its own products.
 *
 * A panel is a stream of steps of 32 elements:
 *
 *     4 bits  [4][16 rows][4] bytes: of elements 4 j + i in the low and 16 + 4 j + i in the high nibble
 *     a fifth [16 rows][4] bytes: bit j of element 4 j + i
 *     6 bits  [2][16 rows][4] bytes: bits 2 j and 2 j + 1 of element 16 k + 4 j + i
 *     scales  16-bit floats [16 rows], then minimums if the type has them; in types of 256 elements a byte of each row,
 *             times a 16-bit float that stands before the 8 steps; in MXFP4 a byte of each row, its exponent
 */
#ifndef IG_KERNEL_PANEL_H
#define IG_KERNEL_PANEL_H

#include <stdbool.h>

#include "kernel/kernel.h"
#include "kernel/quant.h"

enum { PANEL_ROWS = IG_PANEL_ROWS };

/* How a quantised type lies in a panel. */
typedef struct format {
    int n_scales; /* per step of 32 elements: 1 or 2; as many minimums, if codes are unsigned */
    int fits;   /* elements of a row that 16 bits can add up, where a lane gets 2 products of each 4; 0: signed codes */
    int bits;   /* of a code; 8: the panel is unpacked */
    bool super; /* stored: scales are bytes times a float that 8 steps share */
    int offset; /* stored: minimums are scales times -offset; 0: they are stored */
    bool mx;    /* stored: codes are indices of IG_MXFP4_CODES, and scales exponents */
} format;

/* Those of the types that come in panels. */
static const format stored_q4_0 = {1, 32, 4, false, 8, false}, stored_q4_1 = {1, 32, 4, false, 0, false},
                    stored_q5_0 = {1, 16, 5, false, 16, false}, stored_q5_1 = {1, 16, 5, false, 0, false},
                    stored_q4_k = {1, 32, 4, true, 0, false}, stored_q5_k = {1, 16, 5, true, 0, false},
                    stored_q6_k = {2, 8, 6, true, 32, false}, stored_mxfp4 = {1, 16, 4, false, IG_MXFP4_OFFSET, true};

static inline size_t code_bytes(format f) { return (size_t)(4 * f.bits * PANEL_ROWS); }

static inline size_t step_bytes(format f) {
    size_t unpacked = (size_t)(f.n_scales * (f.fits ? 2 : 1)) * PANEL_ROWS * sizeof(float);
    size_t stored = (size_t)(f.n_scales * (f.offset ? 1 : 2)) * PANEL_ROWS * (f.super || f.mx ? 1 : sizeof(uint16_t));
    return code_bytes(f) + (f.bits == 8 ? unpacked : stored);
}

/* What stands before 8 steps. */
static inline size_t head_bytes(format f) {
    return f.super ? (size_t)(f.offset ? 1 : 2) * PANEL_ROWS * sizeof(uint16_t) : 0;
}

static inline size_t panel_bytes(format f, int n_in) {
    size_t steps = (size_t)n_in / 32;
    return steps * step_bytes(f) + steps / 8 * head_bytes(f);
}

#endif
