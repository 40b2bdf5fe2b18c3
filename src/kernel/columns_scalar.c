/* SPDX-License-Identifier: Apache-2.0
 *
 * Recurrences and functions of single numbers (recurrence.h, columns.h), as the compiler makes them for this level.
 */
#include "kernel/recurrence.h"

void ig_kernels_fill_columns_scalar(ig_kernels *k) { fill_columns(k); }
