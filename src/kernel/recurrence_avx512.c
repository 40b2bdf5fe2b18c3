/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers with a recurrence (recurrence.h), as the compiler makes them for this level.
 */
#define LANES 16
#include "kernel/recurrence.h"

void ig_kernels_fill_recurrence_avx512(ig_kernels *k) {
    k->convolve = convolve;
    k->forget = forget;
    k->delta_rule = delta_rule;
    k->state_space = state_space;
}
