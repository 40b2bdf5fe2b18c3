/* SPDX-License-Identifier: Apache-2.0
 *
 * The matrix products of the AVX-512 level, one pair of functions per weight type.
 */
#ifndef IG_KERNEL_MATMUL_AVX512_H
#define IG_KERNEL_MATMUL_AVX512_H

#include "kernel/kernel.h"

/* In the file's order: a function for few columns and one for many, or one for both. */
#define IG_DECLARE(kind, type) void ig_##kind##_##type##_avx512(const ig_matmul *m, int row_begin, int row_end);
/* Types that come in panels (panel.h): X(TYPE, type). */
#define IG_PANEL_TYPES(X) \
    X(Q4_0, q4_0)         \
    X(Q4_1, q4_1)         \
    X(Q5_0, q5_0)         \
    X(Q5_1, q5_1)         \
    X(Q4_K, q4_k)         \
    X(Q5_K, q5_k)         \
    X(Q6_K, q6_k)
#define IG_ROW_TYPES(X) \
    X(F32, f32)         \
    X(Q8_0, q8_0)       \
    X(IQ4_NL, iq4_nl)   \
    X(IQ4_XS, iq4_xs)   \
    X(Q2_K, q2_k)       \
    X(Q3_K, q3_k)

#define IG_DECLARE_PANELS(TYPE, type) IG_DECLARE(gemm, type) IG_DECLARE(panels, type)
#define IG_DECLARE_ROWS(TYPE, type) IG_DECLARE(gemm, type) IG_DECLARE(gemv, type)
IG_PANEL_TYPES(IG_DECLARE_PANELS)
IG_ROW_TYPES(IG_DECLARE_ROWS)
IG_DECLARE(gemv, f16)
IG_DECLARE(gemv, bf16)

size_t ig_gemm_scratch_bytes_avx512(int n_in);

#endif
