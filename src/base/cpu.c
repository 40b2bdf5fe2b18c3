/* SPDX-License-Identifier: Apache-2.0
 *
 * CPU features and the number of usable processors.
 */
#define _GNU_SOURCE
#include "base/cpu.h"

#include <sched.h>
#include <stdlib.h>

#include "base/cgroup.h"

/* ---- levels ---------------------------------------------------------------- */

#if defined(__x86_64__)
#include <cpuid.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

/* __builtin_cpu_supports() knows neither in older compilers. */
static bool has_f16c(void) {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool has_avx_vnni(void) {
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1 << 4);
}

/* A process must ask the kernel for tiles; this one asks once, before a sandbox may forbid the question. */
enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 }; /* ARCH_REQ_XCOMP_PERM, of <asm/prctl.h> since Linux 5.16 */
static bool may_use_tiles;
static pthread_once_t asked = PTHREAD_ONCE_INIT;

static void ask_for_tiles(void) { may_use_tiles = syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0; }

static bool has_amx(void) {
    unsigned a, b, c, d;
    const unsigned bf16 = 1u << 22, tile = 1u << 24, int8 = 1u << 25;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & (bf16 | tile | int8)) != (bf16 | tile | int8)) return false;
    pthread_once(&asked, ask_for_tiles);
    return may_use_tiles;
}

static bool has_vectors(ig_cpu_level level) {
    __builtin_cpu_init();
    if (level == IG_CPU_AMX) return has_vectors(IG_CPU_AVX512) && __builtin_cpu_supports("avx512bf16") && has_amx();
    if (level > IG_CPU_AMX || !__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !has_f16c())
        return false;
    if (level == IG_CPU_AVXVNNI) return has_avx_vnni();
    return level == IG_CPU_AVX2 || (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                                    __builtin_cpu_supports("avx512vnni"));
}

#elif defined(__aarch64__)
#include <sys/auxv.h>

static bool has_vectors(ig_cpu_level level) {
    unsigned long has = getauxval(AT_HWCAP), has2 = getauxval(AT_HWCAP2);
    if (level == IG_CPU_NEON) return has & HWCAP_ASIMD;
    if (level == IG_CPU_DOTPROD) return has & HWCAP_ASIMDDP;
    return level == IG_CPU_I8MM && (has & HWCAP_ASIMDDP) && (has2 & HWCAP2_I8MM);
}

#else

static bool has_vectors(ig_cpu_level level) {
    (void)level;
    return false;
}

#endif

bool ig_cpu_has(ig_cpu_level level) { return level == IG_CPU_SCALAR || has_vectors(level); }

ig_cpu_level ig_cpu_detect(void) {
    int best = IG_CPU_LEVELS - 1;
    while (!ig_cpu_has((ig_cpu_level)best)) best--;
    return (ig_cpu_level)best;
}

ig_cpu_level ig_cpu_usable(ig_cpu_level level) { return ig_cpu_has(level) ? level : ig_cpu_detect(); }

const char *ig_cpu_level_name(ig_cpu_level level) {
    static const char *const names[IG_CPU_LEVELS] = {"scalar", "avx2", "avxvnni", "avx512",
                                                     "amx",    "neon", "dotprod", "i8mm"};
    return names[level];
}

/* ---- processors ------------------------------------------------------------ */

/* Those that the process may be put on, of however many there are. */
static int count_allowed(void) {
    for (size_t bytes = sizeof(cpu_set_t); bytes <= 1 << 16; bytes *= 2) {
        cpu_set_t *set = malloc(bytes);
        int n = set && sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
        free(set);
        if (n) return n;
    }
    return 1;
}

int ig_cpu_count(void) {
    int n = count_allowed(), quota = ig_cgroup_cpus("");
    return quota && quota < n ? quota : n;
}
