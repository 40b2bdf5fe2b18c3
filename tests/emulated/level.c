/* SPDX-License-Identifier: Apache-2.0
 *
 * A CPU that has the level EMULATED where it has the level BELOW and what else EMULATED wants. Linked with --wrap.
 */
#include "base/cpu.h"

bool __real_ig_cpu_has(ig_cpu_level level);
ig_cpu_level __real_ig_cpu_detect(void);
bool __wrap_ig_cpu_has(ig_cpu_level level);
ig_cpu_level __wrap_ig_cpu_detect(void);
ig_cpu_level __wrap_ig_cpu_usable(ig_cpu_level level);

/* Vectors of bfloat16, which amx has besides tiles, are not emulated. */
static bool has_rest(void) {
#if defined(__x86_64__)
    if (EMULATED == IG_CPU_AMX) return __builtin_cpu_supports("avx512bf16");
#endif
    return true;
}

bool __wrap_ig_cpu_has(ig_cpu_level level) {
    return level == EMULATED ? __real_ig_cpu_has(BELOW) && has_rest() : __real_ig_cpu_has(level);
}

ig_cpu_level __wrap_ig_cpu_detect(void) {
    ig_cpu_level best = __real_ig_cpu_detect();
    return best == BELOW && has_rest() ? EMULATED : best;
}

ig_cpu_level __wrap_ig_cpu_usable(ig_cpu_level level) {
    return __wrap_ig_cpu_has(level) ? level : __wrap_ig_cpu_detect();
}
