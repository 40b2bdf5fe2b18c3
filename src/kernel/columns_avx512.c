/* SPDX-License-Identifier: Apache-2.0
 *
 * Recurrences and functions of single numbers (recurrence.h, columns.h), as the compiler makes them for this level.
 */
#define LANES 16
#include "kernel/recurrence.h"

void ig_kernels_fill_columns_avx512(ig_kernels *k) {
    k->softplus_mul = softplus_mul;
    k->xielu = xielu;
    k->convolve = convolve;
    k->forget = forget;
    k->delta_rule = delta_rule;
    k->state_space = state_space;
}
