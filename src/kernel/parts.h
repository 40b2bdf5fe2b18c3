/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts from which kernel.c fills the tables: one function per family and CPU level.
 * A part sets the members it has; what it leaves alone keeps the version of the level below.
 * A level's functions exist where CMakeLists.txt builds them, for its kind of processor, and must not be called on a
 * lesser CPU.
 */
#ifndef IG_KERNEL_PARTS_H
#define IG_KERNEL_PARTS_H

#include <math.h>
#include <string.h>

#include "kernel/kernel.h"

/* What is inlined for the sake of its constant arguments, or must keep its prefetches. */
#define INLINE static inline __attribute__((always_inline))

/* A sum that is made where it stands (x86): left to itself GCC adds up more products at a time than there are
 * registers. */
#define STAY(sum) __asm__("" : "+v"(sum))

/* Numbers of quantised blocks, which lie at any address. */
static inline uint32_t ig_read_u32(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint64_t ig_read_u64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Fetches the line at `at`, of rows that are scattered or of a stream that is read faster than the first-level cache
 * can wait for lines: into the second, which waits for more of them (docs/speed-log.md, a step on AVX-512). */
INLINE void fetch_line(const void *at) { __builtin_prefetch(at, 0, 2); }

enum { WEIGHTS_AHEAD = 2048 }; /* bytes from the weights in use to those prefetched */

/* Fetches n bytes of a stream of weights: one core has too few reads under way without it. */
INLINE void fetch_weights(const void *at, const size_t n) {
#pragma GCC unroll 8
    for (size_t i = 0; i < n; i += 64) __builtin_prefetch((const char *)at + WEIGHTS_AHEAD + i);
}

/* What a norm multiplies n numbers by, given the sum of their squares. If that has overflowed, NaN: the reciprocal
 * would make zeros of them all. */
static inline double ig_norm_factor(double squares, int n, float eps) {
    return squares < INFINITY ? 1.0 / sqrt(squares / n + eps) : NAN;
}

/* act_*, gemv, gemm, panels, scratch_bytes, dequantize */
void ig_kernels_fill_matmul_scalar(ig_kernels *k);
void ig_kernels_fill_matmul_avx2(ig_kernels *k);
void ig_kernels_fill_gemv_avx2(ig_kernels *k);
void ig_kernels_fill_gemm_avx2(ig_kernels *k);
void ig_kernels_fill_fixed_avx2(ig_kernels *k);
void ig_kernels_fill_fixed_avxvnni(ig_kernels *k);
void ig_kernels_fill_fixed_avx512(ig_kernels *k);
void ig_kernels_fill_matmul_avxvnni(ig_kernels *k);
void ig_kernels_fill_matmul_avx512(ig_kernels *k);
void ig_kernels_fill_matmul_amx(ig_kernels *k);
void ig_kernels_fill_matmul_neon(ig_kernels *k);
void ig_kernels_fill_matmul_floats_neon(ig_kernels *k);
void ig_kernels_fill_matmul_dotprod(ig_kernels *k);
void ig_kernels_fill_matmul_i8mm(ig_kernels *k);

/* norms, element-wise operations, rope, conversions, largest, what choosing entries takes (faster versions by way of
 * the functions below) */
void ig_kernels_fill_vector_scalar(ig_kernels *k);
void ig_kernels_fill_vector_avx2(ig_kernels *k);
void ig_kernels_fill_vector_avx512(ig_kernels *k);
void ig_kernels_fill_vector_neon(ig_kernels *k);
void ig_kernels_fill_choice_avx2(ig_kernels *k);
void ig_kernels_fill_choice_avx512(ig_kernels *k);
void ig_kernels_fill_choice_neon(ig_kernels *k);

/* attention, softmax, packed rows and the sketches (by way of the functions below) */
void ig_kernels_fill_attention_scalar(ig_kernels *k);
void ig_kernels_fill_attention_avx2(ig_kernels *k);
void ig_kernels_fill_attention_avx512(ig_kernels *k);
void ig_kernels_fill_attention_neon(ig_kernels *k);
void ig_kernels_fill_prompt_avx2(ig_kernels *k);
void ig_kernels_fill_prompt_avxvnni(ig_kernels *k);
void ig_kernels_fill_prompt_avx512(ig_kernels *k);
void ig_kernels_fill_prompt_amx(ig_kernels *k);
void ig_kernels_fill_packed_scalar(ig_kernels *k);
void ig_kernels_fill_packed_avx2(ig_kernels *k);
void ig_kernels_fill_packed_avx512(ig_kernels *k);
void ig_kernels_fill_packed_neon(ig_kernels *k);
void ig_kernels_fill_attention_packed_avx512(ig_kernels *k);
void ig_kernels_fill_sketch_avx2(ig_kernels *k);
void ig_kernels_fill_sketch_avxvnni(ig_kernels *k);
void ig_kernels_fill_sketch_avx512(ig_kernels *k);
void ig_kernels_fill_sketch_neon(ig_kernels *k);
void ig_kernels_fill_sketch_dotprod(ig_kernels *k);
void ig_kernels_fill_values_avx2(ig_kernels *k);
void ig_kernels_fill_values_avx512(ig_kernels *k);
/* softplus_mul, xielu, gelu, gelu_erf, convolve, forget, delta_rule, state_space */
void ig_kernels_fill_columns_scalar(ig_kernels *k);
void ig_kernels_fill_columns_avx2(ig_kernels *k);
void ig_kernels_fill_columns_avx512(ig_kernels *k);

#endif
