/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of a prompt's queries, AVX-512 VNNI: blocks of 32 queries. The numbers are those of AVX2, bit by bit, which
 * also makes keys and values ready.
 */
#include "kernel/vectors_avx512.h"

#include "kernel/attention_prompt.h"

INLINE ints add_pairs(ints acc, ints x, ints y) { return _mm512_dpwssd_epi32(acc, x, y); }

PROMPT_FUNCTIONS(avx512, add_pairs)

void ig_kernels_fill_prompt_avx512(ig_kernels *k) { SET_PROMPT(k, avx512); }
