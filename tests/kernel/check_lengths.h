/* SPDX-License-Identifier: Apache-2.0
 *
 * What checks of kernels on plain floats share: lengths from 0 to 67 and some longer ones, inputs that end where memory
 * ends, outputs between guards.
 */
#ifndef IG_TESTS_KERNEL_CHECK_LENGTHS_H
#define IG_TESTS_KERNEL_CHECK_LENGTHS_H

#include "check.h"

static const int lengths[] = {96, 127, 128, 129, 576, 1023, 4864};
enum { SHORT = 68, N_LENGTHS = SHORT + (int)IG_COUNT(lengths) };

static inline int length_at(int i) { return i < SHORT ? i : lengths[i - SHORT]; }

static inline float *filled(check *c, int n, check_shape shape) {
    float *x = check_fenced((size_t)n * sizeof *x);
    check_fill(c, x, n, shape);
    return x;
}

static inline void fenced_free(float *x, int n) { check_fenced_free(x, (size_t)n * sizeof *x); }

static inline float *output(check *c, int n) {
    return check_buffer((size_t)n * sizeof(float), (size_t)check_int(c, 0, 15) * 4);
}

#endif
