/* SPDX-License-Identifier: Apache-2.0
 *
 * What this CPU can do, as the three levels for which kernels exist.
 */
#ifndef IG_BASE_CPU_H
#define IG_BASE_CPU_H

#include "infinigen.h"

/* The best level the CPU and the operating system support. AVX512 here means
 * F, BW, DQ, VL, VNNI and BF16 (Zen 4, Sapphire Rapids and later). */
ig_cpu_level ig_cpu_detect(void);
/* "scalar", "avx2", "avx512" */
const char *ig_cpu_level_name(ig_cpu_level level);
/* Processors this process may run on (affinity and cgroup quota), at least 1. */
int ig_cpu_count(void);

#endif
