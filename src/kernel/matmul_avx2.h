/* SPDX-License-Identifier: Apache-2.0
 *
 * The matrix products of the AVX2 level. Most quantised types come in panels; of these a product in the file's order
 * has one function for all numbers of columns, whose bits are those of panels. The other types have one for few
 * columns, too.
 */
#ifndef IG_KERNEL_MATMUL_AVX2_H
#define IG_KERNEL_MATMUL_AVX2_H

#include "kernel/kernel.h"

#define IG_DECLARE_GEMM(type) void ig_gemm_##type##_avx2(const ig_matmul *m, int row_begin, int row_end);
#define IG_DECLARE(type)  \
    IG_DECLARE_GEMM(type) \
    void ig_gemv_##type##_avx2(const ig_matmul *m, int row_begin, int row_end);
#define IG_DECLARE_PANELS(type)                                                                          \
    IG_DECLARE_GEMM(type)                                                                                \
    size_t ig_panel_bytes_##type##_avx2(int n_in);                                                       \
    void ig_panel_put_##type##_avx2(void *panel, const void *w, size_t row_bytes, int n_rows, int n_in); \
    void ig_panels_##type##_avx2(const ig_matmul *m, int row_begin, int row_end);
IG_DECLARE(f32)
IG_DECLARE(f16)
IG_DECLARE(bf16)
IG_DECLARE(q8_0)
IG_DECLARE(q2_k)
IG_DECLARE(q3_k)
IG_DECLARE_PANELS(q4_0)
IG_DECLARE_PANELS(q4_1)
IG_DECLARE_PANELS(q5_0)
IG_DECLARE_PANELS(q5_1)
IG_DECLARE_PANELS(q4_k)
IG_DECLARE_PANELS(q5_k)
IG_DECLARE_PANELS(q6_k)
#undef IG_DECLARE_GEMM
#undef IG_DECLARE
#undef IG_DECLARE_PANELS

size_t ig_gemm_scratch_bytes_avx2(int n_in);

#endif
