/* SPDX-License-Identifier: Apache-2.0
 *
 * What stands for the values of the entries that a step does not read: the mean of each block's values. A selection
 * leaves out many entries of little weight each; together they can hold a tenth of the attention, and attention over
 * the rest alone lacks that. With the weights p that a sketch estimates of all entries, and m_b the mean value of block
 * b,
 *
 *     out = sum of p_i v_i, over all i  ~  (1 - share) * attention over what is read + value
 *     share = sum of p_i, value = sum of p_i m_block(i), over what is not read
 *
 * One mean for everything would not do: the first tokens hold little but weight, and values drift along a text. Nor is
 * that of a block all: the heavier of its entries say more than their number, and those were read. So an estimate is
 * trusted only in part; docs/quality.md has what was measured.
 */
#ifndef IG_POLICY_MEANS_H
#define IG_POLICY_MEANS_H

#include "policy/policy.h"

typedef struct ig_means {
    const ig_kernels *kernels;
    int head_dim;
    size_t n_heads, n_blocks;
    uint16_t *mean; /* [n_heads][n_blocks][head_dim] 16-bit floats; of whole blocks of IG_POLICY_UNIT entries */
    uint16_t *last; /* [n_heads][IG_POLICY_UNIT][head_dim] values of the latest block */
} ig_means;

/* Of so many heads with n entries. */
uint64_t ig_means_bytes(size_t n_heads, int n, int head_dim);
ig_status ig_means_open(ig_means *m, const ig_kernels *kernels, size_t n_heads, int n, int head_dim, ig_error *err);
void ig_means_close(ig_means *m);
/* An entry's value, [head_dim] 16-bit floats. Those of a block come in order, from its first one on, and may come
 * again. */
void ig_means_append(ig_means *m, size_t head, int entry, const uint16_t *value);
/* What is not read of the whole blocks of a head's n entries. p [group][stride]: weights of the entries, to be
 * multiplied by r [group] to add up to 1 for each query, or to what share of that is trusted; overwritten.
 * index [n_used]: the entries that are read. */
void ig_means_estimate(const ig_means *m, size_t head, int n, float *p, size_t stride, const float *r, int group,
                       const int32_t *index, int n_used, const ig_rest *out);

#endif
