/* SPDX-License-Identifier: Apache-2.0
 *
 * The CPU level that the tests run at: IG_CPU_MASK as the program reads it, so that one build is
 * tested with the scalar kernels and with the best ones. And the device: IG_TEST_DEVICE, or the CPU.
 */
#ifndef IG_TESTS_CPU_LEVEL_H
#define IG_TESTS_CPU_LEVEL_H

#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"

static inline ig_cpu_level test_cpu_level(void) {
    const char *mask = getenv("IG_CPU_MASK");
    for (int level = 0; mask && level < IG_CPU_LEVELS; level++)
        if (!strcmp(mask, ig_cpu_level_name((ig_cpu_level)level))) return (ig_cpu_level)level;
    return IG_CPU_BEST;
}

static inline const char *test_device(void) { return getenv("IG_TEST_DEVICE"); }

#endif
