/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernel tables, one per CPU level. A table starts as the one of the level below, and
 * each part then puts its faster versions in. All are filled once, on the first call.
 */
#include "kernel/kernel.h"

#include <pthread.h>

#include "base/cpu.h"
#include "kernel/parts.h"

static ig_kernels tables[IG_CPU_AVX512 + 1];
static ig_cpu_level best;
static pthread_once_t filled = PTHREAD_ONCE_INIT;

static void fill_tables(void) {
    ig_kernels *k = &tables[IG_CPU_SCALAR];
    k->level = IG_CPU_SCALAR;
    ig_kernels_fill_matmul_scalar(k);
    ig_kernels_fill_vector_scalar(k);
    ig_kernels_fill_attention_scalar(k);
    best = ig_cpu_detect();
#if defined(__x86_64__)
    if (best < IG_CPU_AVX2) return;
    k = &tables[IG_CPU_AVX2];
    *k = tables[IG_CPU_SCALAR];
    k->level = IG_CPU_AVX2;
    ig_kernels_fill_matmul_avx2(k);
    ig_kernels_fill_vector_avx2(k);
    ig_kernels_fill_attention_avx2(k);

    if (best < IG_CPU_AVX512) return;
    k = &tables[IG_CPU_AVX512];
    *k = tables[IG_CPU_AVX2];
    k->level = IG_CPU_AVX512;
    ig_kernels_fill_matmul_avx512(k);
    ig_kernels_fill_vector_avx512(k);
    ig_kernels_fill_attention_avx512(k);
#endif
}

const ig_kernels *ig_kernels_get(ig_cpu_level level) {
    pthread_once(&filled, fill_tables);
    return &tables[level < best ? level : best];
}

ig_act ig_kernels_act(ig_type type) {
    return type == IG_TYPE_F32 || type == IG_TYPE_F16 || type == IG_TYPE_BF16 ? IG_ACT_F32 : IG_ACT_Q8;
}
