/* SPDX-License-Identifier: Apache-2.0
 *
 * Recurrences and functions of single numbers (recurrence.h, columns.h), as the compiler makes them for this level.
 */
#define LANES 16
#include "kernel/recurrence.h"

void ig_kernels_fill_columns_avx512(ig_kernels *k) { fill_columns(k); }
