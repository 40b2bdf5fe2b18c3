/* SPDX-License-Identifier: Apache-2.0
 *
 * The CPU level that the tests run at: IG_CPU_MASK as the program reads it, so that one build is
 * tested with the scalar kernels and with the best ones.
 */
#ifndef IG_TESTS_CPU_LEVEL_H
#define IG_TESTS_CPU_LEVEL_H

#include <stdlib.h>
#include <string.h>

#include "infinigen.h"

static inline ig_cpu_level test_cpu_level(void) {
    const char *mask = getenv("IG_CPU_MASK");
    if (!mask) return IG_CPU_BEST;
    if (!strcmp(mask, "scalar")) return IG_CPU_SCALAR;
    if (!strcmp(mask, "avx2")) return IG_CPU_AVX2;
    return strcmp(mask, "avx512") ? IG_CPU_BEST : IG_CPU_AVX512;
}

#endif
