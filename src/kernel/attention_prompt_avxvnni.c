/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of a prompt's queries at the level avxvnni: vpdpwssd multiplies pairs and adds them. The numbers are those
 * of AVX2, bit by bit.
 */
#include "kernel/vectors_avx2.h"

#include "kernel/attention_prompt.h"

INLINE ints add_pairs(ints acc, ints x, ints y) { return _mm256_dpwssd_avx_epi32(acc, x, y); }

PROMPT_FUNCTIONS(avxvnni, add_pairs)

void ig_kernels_fill_prompt_avxvnni(ig_kernels *k) { SET_PROMPT(k, avxvnni); }
