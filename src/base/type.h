/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensor element types, numbered as in GGUF, and their block geometry: a row of n
 * elements is n / block elements long blocks of block_bytes bytes each.
 */
#ifndef IG_BASE_TYPE_H
#define IG_BASE_TYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum ig_type {
    IG_TYPE_F32 = 0,
    IG_TYPE_F16 = 1,
    IG_TYPE_Q4_0 = 2,
    IG_TYPE_Q4_1 = 3,
    IG_TYPE_Q5_0 = 6,
    IG_TYPE_Q5_1 = 7,
    IG_TYPE_Q8_0 = 8,
    IG_TYPE_Q2_K = 10,
    IG_TYPE_Q3_K = 11,
    IG_TYPE_Q4_K = 12,
    IG_TYPE_Q5_K = 13,
    IG_TYPE_Q6_K = 14,
    IG_TYPE_IQ2_XXS = 16,
    IG_TYPE_IQ2_XS = 17,
    IG_TYPE_IQ3_XXS = 18,
    IG_TYPE_IQ1_S = 19,
    IG_TYPE_IQ4_NL = 20,
    IG_TYPE_IQ3_S = 21,
    IG_TYPE_IQ2_S = 22,
    IG_TYPE_IQ4_XS = 23,
    IG_TYPE_I8 = 24, /* whole numbers are not computed with */
    IG_TYPE_I32 = 26,
    IG_TYPE_I64 = 27,
    IG_TYPE_IQ1_M = 29,
    IG_TYPE_BF16 = 30,
    IG_TYPE_TQ1_0 = 34,
    IG_TYPE_TQ2_0 = 35,
    IG_TYPE_MXFP4 = 39,
    IG_TYPE_NVFP4 = 40,
    IG_TYPE_Q1_0 = 41,
    IG_TYPE_Q2_0 = 42,
    IG_TYPE_U8 = 62, /* these are not GGUF's: behind all numbers that it has */
    IG_TYPE_F8_E4M3 = 63,
    IG_TYPE_COUNT,
} ig_type;

typedef struct ig_type_info {
    const char *name; /* "Q4_K" */
    int block;        /* elements per block */
    int block_bytes;
    bool is_computed; /* kernels know it */
} ig_type_info;

/* NULL for a number that is no type. Models are opened with types that are computed only. */
const ig_type_info *ig_type_get(uint32_t type);

/* In 16 or 32 bits. */
static inline bool ig_type_is_float(ig_type t) { return t == IG_TYPE_F32 || t == IG_TYPE_F16 || t == IG_TYPE_BF16; }

/* Bytes of a row of n elements; n is a multiple of the block (checked at load). */
static inline size_t ig_type_row_bytes(const ig_type_info *t, size_t n) {
    return n / (size_t)t->block * (size_t)t->block_bytes;
}

#endif
