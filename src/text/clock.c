/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "text/clock.h"

#include <time.h>

double ig_text_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
