/* SPDX-License-Identifier: Apache-2.0 */
#include "eval/numbers.h"

int ig_eval_compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
