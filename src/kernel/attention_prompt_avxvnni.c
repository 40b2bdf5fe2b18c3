/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of a prompt's queries at the level avxvnni: vpdpwssd multiplies pairs and adds them. The numbers are those
 * of AVX2, bit by bit.
 */
#include "kernel/attention_prompt_avx2.h"

INLINE __m256i add_pairs(__m256i acc, __m256i x, __m256i y) { return _mm256_dpwssd_avx_epi32(acc, x, y); }

static void prompt_attend_avxvnni(const ig_prompt_tile *t, void *rows, int first, int n) {
    prompt_attend(t, rows, first, n, add_pairs);
}

void ig_kernels_fill_prompt_avxvnni(ig_kernels *k) { k->prompt_attend = prompt_attend_avxvnni; }
