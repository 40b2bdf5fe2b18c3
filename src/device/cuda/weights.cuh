/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights in the formats of model files, 16 at a time: w = scale * code + min with codes of 0..63, or -128..127 of
 * Q8_0, IQ4_NL and IQ4_XS. Other formats with signed codes are kept so, too: their minimum is the scale times the least
 * code, which is a power of two. The layouts are those of src/kernel/matmul_scalar.c. Rows begin at even addresses, as
 * do the parts of all blocks.
 */
#ifndef IG_DEVICE_CUDA_WEIGHTS_H
#define IG_DEVICE_CUDA_WEIGHTS_H

#include "base/type.h"
#include "device/cuda/cuda.cuh"

enum { IG_PART = 16 };

typedef struct ig_part {
    int code[4]; /* four codes each, the first in the lowest byte */
    float scale, min;
} ig_part;

static __device__ __forceinline__ int ig_code(const ig_part *p, int j) {
    return (int8_t)(p->code[j / 4] >> 8 * (j % 4));
}

static __device__ __forceinline__ uint32_t ig_load4(const uint8_t *p) {
    const uint16_t *half = (const uint16_t *)p;
    return half[0] | (uint32_t)half[1] << 16;
}

static __device__ __forceinline__ float ig_load_half(const uint8_t *p) { return ig_half(*(const uint16_t *)p); }

/* Bits 0..3 of x, each to bit `to` of a byte of its own. */
static __device__ __forceinline__ uint32_t ig_spread(uint32_t x, int to) {
    return ((x & 1) | (x & 2) << 7 | (x & 4) << 14 | (x & 8) << 21) << to;
}

/* Bit or bits at `shift` of each byte. */
static __device__ __forceinline__ uint32_t ig_field(uint32_t bytes, int shift, uint32_t mask) {
    return bytes >> shift & mask * 0x01010101u;
}

static __device__ __forceinline__ void ig_line(ig_part *out, float scale, float min) {
    out->scale = scale;
    out->min = min;
}

/* Part i of a block. */
template <int type>
static __device__ __forceinline__ void ig_unpack(ig_part *out, const uint8_t *p, int i);

template <>
__device__ __forceinline__ void ig_unpack<IG_TYPE_Q4_0>(ig_part *out, const uint8_t *p, int i) {
    float d = ig_load_half(p);
    ig_line(out, d, -8 * d);
    for (int j = 0; j < 4; j++) out->code[j] = (int)ig_field(ig_load4(p + 2 + 4 * j), 4 * i, 15);
}

template <>
__device__ __forceinline__ void ig_unpack<IG_TYPE_Q4_1>(ig_part *out, const uint8_t *p, int i) {
    ig_line(out, ig_load_half(p), ig_load_half(p + 2));
    for (int j = 0; j < 4; j++) out->code[j] = (int)ig_field(ig_load4(p + 4 + 4 * j), 4 * i, 15);
}

template <>
__device__ __forceinline__ void ig_unpack<IG_TYPE_Q5_0>(ig_part *out, const uint8_t *p, int i) {
    float d = ig_load_half(p);
    uint32_t high = ig_load4(p + 2) >> 16 * i;
    ig_line(out, d, -16 * d);
    for (int j = 0; j < 4; j++)
        out->code[j] = (int)(ig_field(ig_load4(p + 6 + 4 * j), 4 * i, 15) | ig_spread(high >> 4 * j, 4));
}

template <>
__device__ __forceinline__ void ig_unpack<IG_TYPE_Q5_1>(ig_part *out, const uint8_t *p, int i) {
    uint32_t high = ig_load4(p + 4) >> 16 * i;
    ig_line(out, ig_load_half(p), ig_load_half(p + 2));
    for (int j = 0; j < 4; j++)
        out->code[j] = (int)(ig_field(ig_load4(p + 8 + 4 * j), 4 * i, 15) | ig_spread(high >> 4 * j, 4));
}

template <>
__device__ __forceinline__ void ig_unpack<IG_TYPE_Q8_0>(ig_part *out, const uint8_t *p, int i) {
    ig_line(out, ig_load_half(p), 0);
    for (int j = 0; j < 4; j++) out->code[j] = (int)ig_load4(p + 2 + 16 * i + 4 * j);
}

template <>
__device__ __forceinline__ void ig_unpack<IG_TYPE_Q2_K>(ig_part *out, const uint8_t *p, int i) {
    const uint8_t *codes = p + 16 + i / 8 * 32 + i % 2 * 16;
    ig_line(out, ig_load_half(p + 80) * (float)(p[i] & 15), -(ig_load_half(p + 82) * (float)(p[i] >> 4)));
    for (int j = 0; j < 4; j++) out->code[j] = (int)ig_field(ig_load4(codes + 4 * j), i / 2 % 4 * 2, 3);
}

template <>
__device__ __forceinline__ void ig_unpack<IG_TYPE_Q3_K>(ig_part *out, const uint8_t *p, int i) {
    const uint8_t *s = p + 96, *codes = p + 32 + i / 8 * 32 + i % 2 * 16, *high = p + i % 2 * 16;
    int low = s[i % 8] >> (i / 8 * 4) & 15, top = s[8 + i % 4] >> (i / 4 * 2) & 3;
    float scale = ig_load_half(p + 108) * (float)((low | top << 4) - 32);
    ig_line(out, scale, -4 * scale);
    for (int j = 0; j < 4; j++)
        out->code[j] = (int)(ig_field(ig_load4(codes + 4 * j), i / 2 % 4 * 2, 3) |
                             ig_field(ig_load4(high + 4 * j), i / 2, 1) << 2);
}

/* Scale and minimum of 32 elements of Q4_K and Q5_K, number g. */
static __device__ __forceinline__ void ig_line_k(ig_part *out, const uint8_t *p, int g) {
    const uint8_t *s = p + 4;
    int scale = g < 4 ? s[g] & 63 : (s[g + 4] & 15) | s[g - 4] >> 6 << 4;
    int min = g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | s[g] >> 6 << 4;
    ig_line(out, ig_load_half(p) * (float)scale, -(ig_load_half(p + 2) * (float)min));
}

template <>
__device__ __forceinline__ void ig_unpack<IG_TYPE_Q4_K>(ig_part *out, const uint8_t *p, int i) {
    const uint8_t *codes = p + 16 + i / 4 * 32 + i % 2 * 16;
    ig_line_k(out, p, i / 2);
    for (int j = 0; j < 4; j++) out->code[j] = (int)ig_field(ig_load4(codes + 4 * j), i / 2 % 2 * 4, 15);
}

template <>
__device__ __forceinline__ void ig_unpack<IG_TYPE_Q5_K>(ig_part *out, const uint8_t *p, int i) {
    const uint8_t *codes = p + 48 + i / 4 * 32 + i % 2 * 16, *high = p + 16 + i % 2 * 16;
    ig_line_k(out, p, i / 2);
    for (int j = 0; j < 4; j++)
        out->code[j] = (int)(ig_field(ig_load4(codes + 4 * j), i / 2 % 2 * 4, 15) |
                             ig_field(ig_load4(high + 4 * j), i / 2, 1) << 4);
}

template <>
__device__ __forceinline__ void ig_unpack<IG_TYPE_Q6_K>(ig_part *out, const uint8_t *p, int i) {
    const uint8_t *codes = p + i / 8 * 64 + i % 4 * 16, *high = p + 128 + i / 8 * 32 + i % 2 * 16;
    float scale = ig_load_half(p + 208) * (float)(int8_t)p[192 + i];
    ig_line(out, scale, -32 * scale);
    for (int j = 0; j < 4; j++)
        out->code[j] = (int)(ig_field(ig_load4(codes + 4 * j), i % 8 / 4 * 4, 15) |
                             ig_field(ig_load4(high + 4 * j), i % 8 / 2 * 2, 3) << 4);
}

/* Four indices of IQ4_NL or IQ4_XS to their values: a byte each, IG_IQ4_VALUES of src/kernel/quant.h. */
static __device__ __forceinline__ int ig_iq4_codes(uint32_t index) {
    const unsigned long long low = 0xf6eaddcfbfad9881ull, high = 0x7159453526190d01ull;
    uint32_t out = 0;
    for (int j = 0; j < 4; j++) {
        uint32_t i = index >> 8 * j & 15;
        out |= (uint32_t)((i & 8 ? high : low) >> 8 * (i & 7) & 255) << 8 * j;
    }
    return (int)out;
}

template <>
__device__ __forceinline__ void ig_unpack<IG_TYPE_IQ4_NL>(ig_part *out, const uint8_t *p, int i) {
    ig_line(out, ig_load_half(p), 0);
    for (int j = 0; j < 4; j++) out->code[j] = ig_iq4_codes(ig_field(ig_load4(p + 2 + 4 * j), 4 * i, 15));
}

template <>
__device__ __forceinline__ void ig_unpack<IG_TYPE_IQ4_XS>(ig_part *out, const uint8_t *p, int i) {
    int g = i / 2, low = p[4 + g / 2] >> 4 * (g % 2) & 15, high = (p[2] | p[3] << 8) >> 2 * g & 3;
    ig_line(out, ig_load_half(p) * (float)((low | high << 4) - 32), 0);
    for (int j = 0; j < 4; j++)
        out->code[j] = ig_iq4_codes(ig_field(ig_load4(p + 8 + 16 * g + 4 * j), 4 * (i % 2), 15));
}

/* Element i of a row of floats. */
template <int type>
static __device__ __forceinline__ float ig_element(const uint8_t *row, int i) {
    if (type == IG_TYPE_F32) return ((const float *)row)[i];
    uint16_t half = ((const uint16_t *)row)[i];
    return type == IG_TYPE_F16 ? ig_half(half) : __uint_as_float((unsigned)half << 16);
}

#endif
