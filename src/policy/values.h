/* SPDX-License-Identifier: Apache-2.0
 *
 * A sketch of the values, for what a step does not read. A selection leaves out many entries of little weight each;
 * together they can hold a tenth of the attention, and attention over the rest alone lacks that. With the weights p
 * that the sketch of the keys estimates of all entries, and values v~ of 2 bits a number,
 *
 *     out = sum of p_i v_i, over all i  ~  (1 - share) * attention over what is read + value
 *     share = sum of p_i, value = sum of p_i v~_i, over what is not read
 *
 * Values are rotated before they are rounded (a Walsh-Hadamard transform, as QuIP# and QuaRot do it), which makes their
 * numbers alike in size, and the sum is rotated back. What 2 bits get wrong of each value is independent of the others
 * and mostly cancels in the sum; docs/speed-log.md has what was measured.
 */
#ifndef IG_POLICY_VALUES_H
#define IG_POLICY_VALUES_H

#include "policy/policy.h"

typedef struct ig_values {
    const ig_kernels *kernels;
    int head_dim;
    ig_unit_table sketch; /* units: a block of IG_SKETCH_TOKENS slots, see kernel/kernel.h */
} ig_values;

/* Of a head with n slots. */
size_t ig_values_head_bytes(int n, int head_dim);
/* Of a policy that is being opened. */
ig_status ig_values_open(ig_values *v, const ig_policy *p, ig_error *err);
void ig_values_close(ig_values *v);
/* A slot has got this value, [head_dim] 16-bit floats. */
void ig_values_append(ig_values *v, size_t head, int slot, const uint16_t *value);
/* Of a head's slots [begin, end), multiples of IG_SKETCH_TOKENS: left [group] = sum of p, sum [group][head_dim] = sum
 * of p times the rotated v~. p [group][stride]: weights for each query, 0 for those that are read. */
void ig_values_sum(const ig_values *v, size_t head, int begin, int end, const float *p, size_t stride, int group,
                   float *left, float *sum);
/* From n_parts of such sums, in their order: those of a part are shares of the attention times r, [n_parts][group]. */
void ig_values_join(const ig_values *v, int n_parts, const float *left, const float *sum, const float *r, int group,
                    const ig_rest *out);

#endif
