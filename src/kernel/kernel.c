/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernel tables, one per CPU level. The levels of a kind of processor stand in order: a table starts as the one of
 * the level before that the CPU has, and each part then puts its faster versions in. All are filled once, on the first
 * call.
 */
#include "kernel/kernel.h"

#include <pthread.h>

#include "base/compiler.h"
#include "base/cpu.h"
#include "kernel/parts.h"

static const struct level {
    ig_cpu_level level;
    void (*fill[4])(ig_kernels *k);
} levels[] = {
    {IG_CPU_SCALAR,
     {ig_kernels_fill_matmul_scalar, ig_kernels_fill_vector_scalar, ig_kernels_fill_attention_scalar,
      ig_kernels_fill_columns_scalar}},
#if defined(__x86_64__)
    {IG_CPU_AVX2,
     {ig_kernels_fill_matmul_avx2, ig_kernels_fill_vector_avx2, ig_kernels_fill_attention_avx2,
      ig_kernels_fill_columns_avx2}},
    {IG_CPU_AVXVNNI, {ig_kernels_fill_matmul_avxvnni, ig_kernels_fill_sketch_avxvnni, ig_kernels_fill_prompt_avxvnni}},
    {IG_CPU_AVX512,
     {ig_kernels_fill_matmul_avx512, ig_kernels_fill_vector_avx512, ig_kernels_fill_attention_avx512,
      ig_kernels_fill_columns_avx512}},
    {IG_CPU_AMX, {ig_kernels_fill_matmul_amx, ig_kernels_fill_prompt_amx}},
#elif defined(__aarch64__)
    {IG_CPU_NEON, {ig_kernels_fill_matmul_neon, ig_kernels_fill_vector_neon, ig_kernels_fill_attention_neon}},
    {IG_CPU_DOTPROD, {ig_kernels_fill_matmul_dotprod, ig_kernels_fill_sketch_dotprod}},
    {IG_CPU_I8MM, {ig_kernels_fill_matmul_i8mm}},
#endif
};

static ig_kernels tables[IG_CPU_LEVELS];
static pthread_once_t filled = PTHREAD_ONCE_INIT;

static void fill_tables(void) {
    ig_kernels k = {0};
    for (size_t i = 0; i < IG_COUNT(levels); i++) {
        if (!ig_cpu_has(levels[i].level)) continue;
        k.level = levels[i].level;
        for (size_t j = 0; j < IG_COUNT(levels[i].fill) && levels[i].fill[j]; j++) levels[i].fill[j](&k);
        tables[k.level] = k;
    }
}

const ig_kernels *ig_kernels_get(ig_cpu_level level) {
    pthread_once(&filled, fill_tables);
    return &tables[ig_cpu_usable(level)];
}

ig_act ig_kernels_act(ig_type type) {
    const ig_type_info *info = ig_type_get(type);
    return info && info->block == 1 ? IG_ACT_F32 : IG_ACT_Q8;
}
