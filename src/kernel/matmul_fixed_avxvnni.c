/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights that are 16-bit floats and many columns, the level avxvnni.
 */
#include "kernel/vectors_avx2.h"

#include "kernel/matmul_fixed.h"

INLINE ints add_pairs(ints acc, ints x, ints y) { return _mm256_dpwssd_avx_epi32(acc, x, y); }

FIXED_FUNCTIONS(avxvnni, add_pairs)

void ig_kernels_fill_fixed_avxvnni(ig_kernels *k) { SET_FIXED(k, avxvnni); }
