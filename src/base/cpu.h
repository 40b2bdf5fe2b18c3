/* SPDX-License-Identifier: Apache-2.0
 *
 * What this CPU can do, as the levels for which kernels exist.
 */
#ifndef IG_BASE_CPU_H
#define IG_BASE_CPU_H

#include <stdbool.h>

#include "infinigen.h"

enum { IG_CPU_LEVELS = IG_CPU_I8MM + 1 };

/* Whether the CPU and the operating system support a level. */
bool ig_cpu_has(ig_cpu_level level);
/* The best of those they support. */
ig_cpu_level ig_cpu_detect(void);
/* The level itself if they support it, else the best. */
ig_cpu_level ig_cpu_usable(ig_cpu_level level);
/* "scalar", "avx2", "avxvnni", "avx512", "amx", "neon", "dotprod", "i8mm" */
const char *ig_cpu_level_name(ig_cpu_level level);
/* Processors this process may run on (affinity and quota of its control groups), at least 1. */
int ig_cpu_count(void);

#endif
