/* SPDX-License-Identifier: Apache-2.0
 *
 * A CPU that has the level EMULATED where it has the level BELOW. Linked with --wrap.
 */
#include "base/cpu.h"

bool __real_ig_cpu_has(ig_cpu_level level);
ig_cpu_level __real_ig_cpu_detect(void);
bool __wrap_ig_cpu_has(ig_cpu_level level);
ig_cpu_level __wrap_ig_cpu_detect(void);
ig_cpu_level __wrap_ig_cpu_usable(ig_cpu_level level);

bool __wrap_ig_cpu_has(ig_cpu_level level) { return __real_ig_cpu_has(level == EMULATED ? BELOW : level); }

ig_cpu_level __wrap_ig_cpu_detect(void) {
    ig_cpu_level best = __real_ig_cpu_detect();
    return best == BELOW ? EMULATED : best;
}

ig_cpu_level __wrap_ig_cpu_usable(ig_cpu_level level) {
    return __wrap_ig_cpu_has(level) ? level : __wrap_ig_cpu_detect();
}
