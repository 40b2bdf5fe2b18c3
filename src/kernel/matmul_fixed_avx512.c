/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights that are 16-bit floats and many columns, AVX-512 VNNI.
 */
#include "kernel/vectors_avx512.h"

#include "kernel/matmul_fixed.h"

INLINE ints add_pairs(ints acc, ints x, ints y) { return _mm512_dpwssd_epi32(acc, x, y); }

FIXED_FUNCTIONS(avx512, add_pairs)

void ig_kernels_fill_fixed_avx512(ig_kernels *k) { SET_FIXED(k, avx512); }
