/* SPDX-License-Identifier: Apache-2.0
 *
 * CPU features and the number of usable processors.
 */
#define _GNU_SOURCE
#include "base/cpu.h"

#include <sched.h>
#include <stdio.h>
#if defined(__x86_64__)
#include <cpuid.h>

/* __builtin_cpu_supports() knows no "f16c" in older clang. */
static bool has_f16c(void) {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

ig_cpu_level ig_cpu_detect(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !has_f16c()) return IG_CPU_SCALAR;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl") ||
        !__builtin_cpu_supports("avx512vnni") || !__builtin_cpu_supports("avx512bf16"))
        return IG_CPU_AVX2;
    return IG_CPU_AVX512;
#else
    return IG_CPU_SCALAR;
#endif
}

const char *ig_cpu_level_name(ig_cpu_level level) {
    return level == IG_CPU_AVX512 ? "avx512" : level == IG_CPU_AVX2 ? "avx2" : "scalar";
}

/* cgroup v2 quota in whole processors, rounded up; 0 if there is none. */
static int cgroup_quota(void) {
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
    if (!f) return 0;
    long quota = 0, period = 0;
    int n = fscanf(f, "%ld %ld", &quota, &period); /* "max 100000" reads nothing */
    fclose(f);
    if (n != 2 || quota <= 0 || period <= 0) return 0;
    return (int)((quota + period - 1) / period);
}

int ig_cpu_count(void) {
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    int quota = cgroup_quota();
    if (quota > 0 && quota < n) n = quota;
    return n < 1 ? 1 : n;
}
