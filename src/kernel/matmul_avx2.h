/* SPDX-License-Identifier: Apache-2.0
 *
 * The matrix products of the AVX2 level, one pair of functions per weight type.
 */
#ifndef IG_KERNEL_MATMUL_AVX2_H
#define IG_KERNEL_MATMUL_AVX2_H

#include "kernel/kernel.h"

#define IG_DECLARE(type)                                                        \
    void ig_gemv_##type##_avx2(const ig_matmul *m, int row_begin, int row_end); \
    void ig_gemm_##type##_avx2(const ig_matmul *m, int row_begin, int row_end);
IG_DECLARE(f32)
IG_DECLARE(f16)
IG_DECLARE(bf16)
IG_DECLARE(q4_0)
IG_DECLARE(q4_1)
IG_DECLARE(q5_0)
IG_DECLARE(q5_1)
IG_DECLARE(q8_0)
IG_DECLARE(q2_k)
IG_DECLARE(q3_k)
IG_DECLARE(q4_k)
IG_DECLARE(q5_k)
IG_DECLARE(q6_k)
#undef IG_DECLARE

size_t ig_gemm_scratch_bytes_avx2(int n_in);

#endif
