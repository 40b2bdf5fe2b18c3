/* SPDX-License-Identifier: Apache-2.0
 *
 * The matrix products of the AVX-512 level, one pair of functions per weight type, and how quantised weights get to
 * wide panels.
 */
#ifndef IG_KERNEL_MATMUL_AVX512_H
#define IG_KERNEL_MATMUL_AVX512_H

#include "kernel/kernel.h"
#include "kernel/wide_avx512.h"

/* Quantised types, with the form of their wide panels: those that come in stored panels (panel.h), and the others. */
#define IG_PANEL_TYPES(X)   \
    X(Q4_0, q4_0, signed32) \
    X(Q4_1, q4_1, affine32) \
    X(Q5_0, q5_0, signed32) \
    X(Q5_1, q5_1, affine32) \
    X(Q4_K, q4_k, affine32) \
    X(Q5_K, q5_k, affine32) \
    X(Q6_K, q6_k, signed16) \
    X(MXFP4, mxfp4, signed32)
#define IG_ROW_TYPES(X)           \
    X(Q8_0, q8_0, signed32)       \
    X(IQ4_NL, iq4_nl, signed32)   \
    X(IQ4_XS, iq4_xs, signed32)   \
    X(NVFP4, nvfp4, signed16)     \
    X(Q1_0, q1_0, signed32)       \
    X(Q2_0, q2_0, signed32)       \
    X(TQ1_0, tq1_0, signed32)     \
    X(TQ2_0, tq2_0, signed32)     \
    X(Q2_K, q2_k, affine16)       \
    X(Q3_K, q3_k, signed16)       \
    X(IQ1_S, iq1_s, signed16)     \
    X(IQ1_M, iq1_m, signed16)     \
    X(IQ2_XXS, iq2_xxs, signed16) \
    X(IQ2_XS, iq2_xs, signed16)   \
    X(IQ2_S, iq2_s, signed16)     \
    X(IQ3_XXS, iq3_xxs, signed16) \
    X(IQ3_S, iq3_s, signed16)

/* 16 rows in the file's order to one half of a wide panel. n_in is a multiple of the type's block; an odd number of
 * groups of 32 is filled up with zeros. */
typedef void (*ig_unpack_fn)(char *panel, panel_rows rows, int half, int n_in);

/* In the file's order: a function for few columns and one for many, or one for both. */
#define IG_DECLARE(kind, type) void ig_##kind##_##type##_avx512(const ig_matmul *m, int row_begin, int row_end);
#define IG_DECLARE_UNPACK(type) void ig_unpack_##type##_avx512(char *panel, panel_rows rows, int half, int n_in);
#define IG_DECLARE_PANELS(TYPE, type, f) IG_DECLARE(gemm, type) IG_DECLARE(panels, type) IG_DECLARE_UNPACK(type)
#define IG_DECLARE_ROWS(TYPE, type, f) IG_DECLARE(gemm, type) IG_DECLARE(gemv, type) IG_DECLARE_UNPACK(type)
IG_PANEL_TYPES(IG_DECLARE_PANELS)
IG_ROW_TYPES(IG_DECLARE_ROWS)
IG_DECLARE(gemm, f32)
IG_DECLARE(gemv, f32)
IG_DECLARE(gemv, f16)
IG_DECLARE(gemv, bf16)
IG_DECLARE(gemv, f8_e4m3)

size_t ig_gemm_scratch_bytes_avx512(int n_in);

#endif
