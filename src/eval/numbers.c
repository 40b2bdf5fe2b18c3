/* SPDX-License-Identifier: Apache-2.0
 *
 * The library's own clock is behind the wall.
 */
#define _GNU_SOURCE
#include "eval/numbers.h"

#include <time.h>

double ig_eval_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int ig_eval_compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
