/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers with a recurrence (recurrence.h), as the compiler makes them for this level.
 */
#include "kernel/recurrence.h"

void ig_kernels_fill_recurrence_scalar(ig_kernels *k) {
    k->convolve = convolve;
    k->forget = forget;
    k->delta_rule = delta_rule;
    k->state_space = state_space;
}
