/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights in the formats of model files, 16 at a time: w = scale * code + min with codes of 0..124, or -128..127 of
 * Q8_0, IQ4_NL, IQ4_XS, MXFP4 and NVFP4. Other formats with signed codes are kept so, too: their minimum is the scale
 * times the least code. The layouts are those of src/kernel/matmul_scalar.c and src/kernel/codebook.h.
 *
 * Matrices begin at multiples of 16 bytes, and codes of a block at a multiple of what its size and their offset allow,
 * at even addresses at the least, but for those of MXFP4. Loads are as wide as that.
 */
#ifndef IG_DEVICE_CUDA_WEIGHTS_H
#define IG_DEVICE_CUDA_WEIGHTS_H

#include "base/type.h"
#include "device/cuda/cuda.cuh"
#include "kernel/codebook_entries.h"

enum { IG_PART = 16 };

/* Formats of floats, and of codes: elements and bytes of a block, and how far apart two parts lie that have bytes in
 * common. */
#define IG_FLOAT_FORMATS(X) X(IG_TYPE_F32) X(IG_TYPE_F16) X(IG_TYPE_BF16) X(IG_TYPE_F8_E4M3)
#define IG_CODE_FORMATS(X)         \
    X(IG_TYPE_Q4_0, 32, 18, 1)     \
    X(IG_TYPE_Q4_1, 32, 20, 1)     \
    X(IG_TYPE_Q5_0, 32, 22, 1)     \
    X(IG_TYPE_Q5_1, 32, 24, 1)     \
    X(IG_TYPE_Q8_0, 32, 34, 1)     \
    X(IG_TYPE_Q2_K, 256, 84, 2)    \
    X(IG_TYPE_Q3_K, 256, 110, 2)   \
    X(IG_TYPE_Q4_K, 256, 144, 2)   \
    X(IG_TYPE_Q5_K, 256, 176, 2)   \
    X(IG_TYPE_IQ1_S, 256, 50, 1)   \
    X(IG_TYPE_IQ1_M, 256, 56, 1)   \
    X(IG_TYPE_IQ2_XXS, 256, 66, 1) \
    X(IG_TYPE_IQ2_XS, 256, 74, 1)  \
    X(IG_TYPE_IQ2_S, 256, 82, 1)   \
    X(IG_TYPE_IQ3_XXS, 256, 98, 1) \
    X(IG_TYPE_IQ3_S, 256, 110, 1)  \
    X(IG_TYPE_Q6_K, 256, 210, 4)   \
    X(IG_TYPE_IQ4_NL, 32, 18, 1)   \
    X(IG_TYPE_IQ4_XS, 256, 136, 1) \
    X(IG_TYPE_MXFP4, 32, 17, 1)    \
    X(IG_TYPE_NVFP4, 64, 36, 1)    \
    X(IG_TYPE_Q1_0, 128, 18, 1)    \
    X(IG_TYPE_Q2_0, 64, 18, 1)     \
    X(IG_TYPE_TQ1_0, 256, 54, 2)   \
    X(IG_TYPE_TQ2_0, 256, 66, 2)

typedef struct ig_part {
    uint32_t code[4]; /* four codes each, the first in the lowest byte */
    float scale, min;
} ig_part;

/* What one is made of, as it lies in memory. */
typedef struct ig_raw {
    uint32_t head[4], codes[4], high[4];
} ig_raw;

/* Number j. A byte below the bits of 2^23 is that much more: faster than to convert it, with the same bits. */
static __device__ __forceinline__ float ig_number(const ig_part *p, int j) {
    uint32_t positive = p->code[j / 4] ^ 0x80808080u;
    float code = __uint_as_float(__byte_perm(positive, 0x4b000000u, 0x7440u | j % 4)) - (0x1p23f + 128);
    return fmaf(p->scale, code, p->min);
}

/* 16 bytes from a multiple of `align`. Behind any even address three words lie whole, from p on or from p + 2 on, with
 * four bytes left over: five loads instead of eight, without a branch. */
template <int align>
static __device__ __forceinline__ void ig_load16(uint32_t *out, const uint8_t *p) {
    if (align >= 16) {
        uint4 v = *(const uint4 *)p;
        out[0] = v.x, out[1] = v.y, out[2] = v.z, out[3] = v.w;
    } else if (align == 8) {
        for (int j = 0; j < 2; j++) {
            uint64_t v = ((const uint64_t *)p)[j];
            out[2 * j] = (uint32_t)v, out[2 * j + 1] = (uint32_t)(v >> 32);
        }
    } else if (align == 4) {
        for (int j = 0; j < 4; j++) out[j] = ((const uint32_t *)p)[j];
    } else {
        bool between = (uintptr_t)p & 2;
        const uint32_t *words = (const uint32_t *)(p + (between ? 2 : 0));
        uint32_t half = *(const uint16_t *)(p + (between ? 0 : 12)), last = *(const uint16_t *)(p + 14);
        uint32_t all[] = {half << 16, words[0], words[1], words[2], between ? last : half | last << 16};
        for (int j = 0; j < 4; j++) out[j] = (uint32_t)((all[j] | (uint64_t)all[j + 1] << 32) >> (between ? 16 : 32));
    }
}

/* The same from any address that another byte lies before. */
static __device__ __forceinline__ void ig_load16_odd(uint32_t *out, const uint8_t *p) {
    bool odd = (uintptr_t)p & 1;
    uint32_t all[5] = {};
    ig_load16<2>(all, p - (odd ? 1 : 0));
    if (odd) all[4] = p[15];
    for (int j = 0; j < 4; j++) out[j] = (uint32_t)((all[j] | (uint64_t)all[j + 1] << 32) >> (odd ? 8 : 0));
}

/* Loads part i of a block: bytes and no more, so that loads of several parts are under way before one is waited for. */
template <int type>
static __device__ __forceinline__ void ig_fetch(ig_raw *out, const uint8_t *p, int i) {
    const uint8_t *pairs = p + i / 4 * 32 + i % 2 * 16, *quads = p + i / 8 * 32 + i % 2 * 16;
    const uint16_t *half = (const uint16_t *)p;
    const uint32_t *word = (const uint32_t *)p;
    switch (type) {
        case IG_TYPE_Q4_0:
        case IG_TYPE_IQ4_NL:
            out->head[0] = half[0];
            ig_load16<2>(out->codes, p + 2);
            break;
        case IG_TYPE_Q4_1:
            out->head[0] = word[0];
            ig_load16<4>(out->codes, p + 4);
            break;
        case IG_TYPE_Q5_0:
            out->head[0] = half[0];
            out->head[1] = half[1] | (uint32_t)half[2] << 16;
            ig_load16<2>(out->codes, p + 6);
            break;
        case IG_TYPE_Q5_1:
            out->head[0] = word[0];
            out->head[1] = word[1];
            ig_load16<8>(out->codes, p + 8);
            break;
        case IG_TYPE_Q8_0:
            out->head[0] = half[0];
            ig_load16<2>(out->codes, p + 2 + 16 * i);
            break;
        case IG_TYPE_Q2_K:
            out->head[0] = word[20];
            out->head[1] = p[i];
            ig_load16<4>(out->codes, quads + 16);
            break;
        case IG_TYPE_Q3_K:
            out->head[0] = half[54];
            out->head[1] = p[96 + i % 8];
            out->head[2] = p[104 + i % 4];
            ig_load16<2>(out->codes, quads + 32);
            ig_load16<2>(out->high, p + i % 2 * 16);
            break;
        case IG_TYPE_Q4_K:
            ig_load16<16>(out->head, p);
            ig_load16<16>(out->codes, pairs + 16);
            break;
        case IG_TYPE_Q5_K:
            ig_load16<16>(out->head, p);
            ig_load16<16>(out->codes, pairs + 48);
            ig_load16<16>(out->high, p + 16 + i % 2 * 16);
            break;
        case IG_TYPE_Q6_K:
            out->head[0] = half[104];
            out->head[1] = p[192 + i];
            ig_load16<2>(out->codes, p + i / 8 * 64 + i % 4 * 16);
            ig_load16<2>(out->high, quads + 128);
            break;
        case IG_TYPE_IQ4_XS:
            out->head[0] = word[0];
            out->head[1] = p[4 + i / 4];
            ig_load16<8>(out->codes, p + 8 + i / 2 * 16);
            break;
        /* Of the codebook formats: d; what the scale is in; indices; what they lack and signs. */
        case IG_TYPE_IQ1_S:
            out->head[0] = half[0];
            out->head[1] = half[17 + i / 2];
            out->codes[0] = half[1 + i];
            break;
        case IG_TYPE_IQ1_M:
            out->head[0] = half[24] >> 12 | half[25] >> 12 << 4 | half[26] >> 12 << 8 | half[27] >> 12 << 12;
            out->head[1] = half[24 + i / 4];
            out->codes[0] = half[i];
            out->high[0] = p[32 + i];
            break;
        case IG_TYPE_IQ2_XXS:
            half += i / 2 * 4;
            out->head[0] = *(const uint16_t *)p;
            out->codes[0] = half[1 + i % 2];
            out->high[0] = half[3] | (uint32_t)half[4] << 16;
            break;
        case IG_TYPE_IQ2_XS:
            out->head[0] = half[0];
            out->head[1] = p[66 + i / 2];
            out->codes[0] = half[1 + 2 * i] | (uint32_t)half[2 + 2 * i] << 16;
            break;
        case IG_TYPE_IQ2_S:
            out->head[0] = half[0];
            out->head[1] = p[74 + i / 2];
            out->codes[0] = half[1 + i];
            out->high[0] = half[17 + i];
            out->high[1] = p[66 + i / 2];
            break;
        case IG_TYPE_IQ3_XXS:
            out->head[0] = half[0];
            out->codes[0] = half[1 + 2 * i] | (uint32_t)half[2 + 2 * i] << 16;
            half += i / 2 * 2;
            out->high[0] = half[33] | (uint32_t)half[34] << 16;
            break;
        case IG_TYPE_IQ3_S:
            out->head[0] = half[0];
            out->head[1] = p[106 + i / 4];
            out->codes[0] = half[1 + 2 * i] | (uint32_t)half[2 + 2 * i] << 16;
            out->high[0] = half[37 + i];
            out->high[1] = p[66 + i / 2];
            break;
        case IG_TYPE_MXFP4:
            out->head[0] = p[0];
            ig_load16_odd(out->codes, p + 1);
            break;
        case IG_TYPE_NVFP4:
            out->head[0] = p[i];
            for (int j = 0; j < 2; j++) out->codes[j] = word[1 + 2 * i + j];
            break;
        case IG_TYPE_Q1_0:
            out->head[0] = half[0];
            out->codes[0] = half[1 + i];
            break;
        case IG_TYPE_Q2_0:
            out->head[0] = half[0];
            out->codes[0] = half[1 + 2 * i] | (uint32_t)half[2 + 2 * i] << 16;
            break;
        case IG_TYPE_TQ1_0:
            out->head[0] = half[26];
            if (i < 15)
                ig_load16<2>(out->codes, p + (i < 10 ? i % 2 * 16 : 32));
            else
                out->codes[0] = half[24] | (uint32_t)half[25] << 16;
            break;
        case IG_TYPE_TQ2_0:
            out->head[0] = half[32];
            ig_load16<2>(out->codes, quads);
            break;
    }
}

/* Bits 0..3 of x, each to bit `to` of a byte of its own. */
static __device__ __forceinline__ uint32_t ig_spread(uint32_t x, int to) {
    return ((x & 1) | (x & 2) << 7 | (x & 4) << 14 | (x & 8) << 21) << to;
}

/* Bit or bits at `shift` of each byte. */
static __device__ __forceinline__ uint32_t ig_field(uint32_t bytes, int shift, uint32_t mask) {
    return bytes >> shift & mask * 0x01010101u;
}

/* Codes that have `mask` at `shift` of their bytes. */
static __device__ __forceinline__ void ig_codes(ig_part *out, const ig_raw *raw, int shift, uint32_t mask) {
    for (int j = 0; j < 4; j++) out->code[j] = ig_field(raw->codes[j], shift, mask);
}

/* And above their lower n bits these. */
static __device__ __forceinline__ void ig_high_codes(ig_part *out, const ig_raw *raw, int shift, uint32_t mask, int n) {
    for (int j = 0; j < 4; j++) out->code[j] |= ig_field(raw->high[j], shift, mask) << n;
}

/* Of blocks of 32: 4 bits, with a fifth where all of these lie side by side. */
static __device__ __forceinline__ void ig_five_bits(ig_part *out, const ig_raw *raw, int i) {
    ig_codes(out, raw, 4 * i, 15);
    for (int j = 0; j < 4; j++) out->code[j] |= ig_spread(raw->head[1] >> (16 * i + 4 * j), 4);
}

/* Scale and minimum, as multiples of those of the block, which are two 16-bit floats; or of its one scale. */
static __device__ __forceinline__ void ig_line(ig_part *out, const ig_raw *raw, float scale, float min) {
    out->scale = ig_half((uint16_t)raw->head[0]) * scale;
    out->min = ig_half((uint16_t)(raw->head[0] >> 16)) * min;
}

static __device__ __forceinline__ void ig_scale(ig_part *out, const ig_raw *raw, float scale, float min) {
    out->scale = ig_half((uint16_t)raw->head[0]) * scale;
    out->min = out->scale * min;
}

/* What part i is, of what was loaded. */
template <int type>
static __device__ __forceinline__ void ig_unpack(ig_part *out, const ig_raw *raw, int i);

template <>
__device__ __forceinline__ void ig_unpack<IG_TYPE_Q4_0>(ig_part *out, const ig_raw *raw, int i) {
    ig_scale(out, raw, 1, -8);
    ig_codes(out, raw, 4 * i, 15);
}

template <>
__device__ __forceinline__ void ig_unpack<IG_TYPE_Q4_1>(ig_part *out, const ig_raw *raw, int i) {
    ig_line(out, raw, 1, 1);
    ig_codes(out, raw, 4 * i, 15);
}

template <>
__device__ __forceinline__ void ig_unpack<IG_TYPE_Q5_0>(ig_part *out, const ig_raw *raw, int i) {
    ig_scale(out, raw, 1, -16);
    ig_five_bits(out, raw, i);
}

template <>
__device__ __forceinline__ void ig_unpack<IG_TYPE_Q5_1>(ig_part *out, const ig_raw *raw, int i) {
    ig_line(out, raw, 1, 1);
    ig_five_bits(out, raw, i);
}

template <>
__device__ __forceinline__ void ig_unpack<IG_TYPE_Q8_0>(ig_part *out, const ig_raw *raw, int i) {
    (void)i;
    ig_scale(out, raw, 1, 0);
    ig_codes(out, raw, 0, 255);
}

template <>
__device__ __forceinline__ void ig_unpack<IG_TYPE_Q2_K>(ig_part *out, const ig_raw *raw, int i) {
    ig_line(out, raw, (float)(raw->head[1] & 15), -(float)(raw->head[1] >> 4));
    ig_codes(out, raw, i / 2 % 4 * 2, 3);
}

template <>
__device__ __forceinline__ void ig_unpack<IG_TYPE_Q3_K>(ig_part *out, const ig_raw *raw, int i) {
    uint32_t low = raw->head[1] >> (i / 8 * 4) & 15, top = raw->head[2] >> (i / 4 * 2) & 3;
    ig_scale(out, raw, (float)((int)(low | top << 4) - 32), -4);
    ig_codes(out, raw, i / 2 % 4 * 2, 3);
    ig_high_codes(out, raw, i / 2, 1, 2);
}

/* Scales and minima of Q4_K and Q5_K have 6 bits and are those of two parts each: of the first four in the low bits of
 * four bytes each, of the others in nibbles, with their upper two bits above those of the first. */
static __device__ __forceinline__ void ig_line_k(ig_part *out, const ig_raw *raw, int i) {
    int shift = i / 2 % 4 * 8;
    uint32_t scale = raw->head[1] >> shift, min = raw->head[2] >> shift, low = raw->head[3] >> shift;
    scale = i < 8 ? scale & 63 : (low & 15) | (scale >> 6 & 3) << 4;
    min = i < 8 ? min & 63 : (low >> 4 & 15) | (min >> 6 & 3) << 4;
    ig_line(out, raw, (float)scale, -(float)min);
}

template <>
__device__ __forceinline__ void ig_unpack<IG_TYPE_Q4_K>(ig_part *out, const ig_raw *raw, int i) {
    ig_line_k(out, raw, i);
    ig_codes(out, raw, i / 2 % 2 * 4, 15);
}

template <>
__device__ __forceinline__ void ig_unpack<IG_TYPE_Q5_K>(ig_part *out, const ig_raw *raw, int i) {
    ig_line_k(out, raw, i);
    ig_codes(out, raw, i / 2 % 2 * 4, 15);
    ig_high_codes(out, raw, i / 2, 1, 4);
}

template <>
__device__ __forceinline__ void ig_unpack<IG_TYPE_Q6_K>(ig_part *out, const ig_raw *raw, int i) {
    ig_scale(out, raw, (float)(int8_t)raw->head[1], -32);
    ig_codes(out, raw, i % 8 / 4 * 4, 15);
    ig_high_codes(out, raw, i % 8 / 2 * 2, 3, 4);
}

/* Four indices to values, a byte each, of which `low` has the first eight, `high` the others. */
static __device__ __forceinline__ uint32_t ig_values_of(uint32_t index, uint64_t low, uint64_t high) {
    uint32_t out = 0;
    for (int j = 0; j < 4; j++) {
        uint32_t i = index >> 8 * j & 15;
        out |= (uint32_t)((i & 8 ? high : low) >> 8 * (i & 7) & 255) << 8 * j;
    }
    return out;
}

/* IG_IQ4_VALUES of src/kernel/quant.h. */
static __device__ __forceinline__ uint32_t ig_iq4_codes(uint32_t index) {
    return ig_values_of(index, 0xf6eaddcfbfad9881ull, 0x7159453526190d01ull);
}

template <>
__device__ __forceinline__ void ig_unpack<IG_TYPE_IQ4_NL>(ig_part *out, const ig_raw *raw, int i) {
    ig_scale(out, raw, 1, 0);
    ig_codes(out, raw, 4 * i, 15);
    for (int j = 0; j < 4; j++) out->code[j] = ig_iq4_codes(out->code[j]);
}

template <>
__device__ __forceinline__ void ig_unpack<IG_TYPE_IQ4_XS>(ig_part *out, const ig_raw *raw, int i) {
    uint32_t low = raw->head[1] >> i / 2 % 2 * 4 & 15, high = raw->head[0] >> (16 + i / 2 * 2) & 3;
    ig_scale(out, raw, (float)((int)(low | high << 4) - 32), 0);
    ig_codes(out, raw, i % 2 * 4, 15);
    for (int j = 0; j < 4; j++) out->code[j] = ig_iq4_codes(out->code[j]);
}

/* IG_MXFP4_VALUES and ig_mxfp4_scale() of src/kernel/quant.h. */
template <>
__device__ __forceinline__ void ig_unpack<IG_TYPE_MXFP4>(ig_part *out, const ig_raw *raw, int i) {
    uint32_t exponent = raw->head[0];
    out->scale = __uint_as_float(exponent > 1 ? (exponent - 1) << 23 : 0x200000u << exponent);
    out->min = 0;
    ig_codes(out, raw, 4 * i, 15);
    for (int j = 0; j < 4; j++) out->code[j] = ig_values_of(out->code[j], 0x0c08060403020100ull, 0xf4f8fafcfdfeff00ull);
}

/* ig_nvfp4_scale() of src/kernel/quant.h. Eight low nibbles, then eight high ones. */
template <>
__device__ __forceinline__ void ig_unpack<IG_TYPE_NVFP4>(ig_part *out, const ig_raw *raw, int i) {
    uint32_t number = raw->head[0] & 127;
    (void)i;
    out->scale = number == 127 ? 0.0f : ig_half((uint16_t)(number << 7)) * 128;
    out->min = 0;
    for (int j = 0; j < 4; j++)
        out->code[j] =
            ig_values_of(ig_field(raw->codes[j % 2], j / 2 * 4, 15), 0x0c08060403020100ull, 0xf4f8fafcfdfeff00ull);
}

template <>
__device__ __forceinline__ void ig_unpack<IG_TYPE_Q1_0>(ig_part *out, const ig_raw *raw, int i) {
    (void)i;
    ig_scale(out, raw, 2, -0.5f);
    for (int j = 0; j < 4; j++) out->code[j] = ig_spread(raw->codes[0] >> 4 * j, 0);
}

template <>
__device__ __forceinline__ void ig_unpack<IG_TYPE_Q2_0>(ig_part *out, const ig_raw *raw, int i) {
    (void)i;
    ig_scale(out, raw, 1, -1);
    for (int j = 0; j < 4; j++) {
        uint32_t four = raw->codes[0] >> 8 * j;
        out->code[j] = (four & 3) | (four & 12) << 6 | (four & 0x30) << 12 | (four & 0xc0) << 18;
    }
}

/* Four numbers of 0, 1 and 2, number n of each byte (ig_tq1_powers). */
static __device__ __forceinline__ uint32_t ig_ternary(uint32_t bytes, uint32_t power) {
    uint32_t out = 0;
    for (int j = 0; j < 4; j++) out |= ((bytes >> 8 * j & 255) * power & 255) * 3 >> 8 << 8 * j;
    return out;
}

template <>
__device__ __forceinline__ void ig_unpack<IG_TYPE_TQ1_0>(ig_part *out, const ig_raw *raw, int i) {
    uint32_t power = 1;
    ig_scale(out, raw, 1, -1);
    for (int k = i < 10 ? i / 2 : i - 10; i < 15 && k > 0; k--) power *= 3;
    for (int j = 0; j < 4; j++) {
        out->code[j] = ig_ternary(raw->codes[i < 15 ? j : 0], power);
        if (i == 15) power *= 3;
    }
}

template <>
__device__ __forceinline__ void ig_unpack<IG_TYPE_TQ2_0>(ig_part *out, const ig_raw *raw, int i) {
    ig_scale(out, raw, 1, -1);
    ig_codes(out, raw, i / 2 % 4 * 2, 3);
}

static __device__ const uint64_t ig_cuda_iq1[2048] = {IG_BOOK_IQ1(IG_ENTRY_IQ1)};
static __device__ const uint64_t ig_cuda_iq2_xxs[256] = {IG_BOOK_IQ2_XXS(IG_ENTRY_IQ2)};
static __device__ const uint64_t ig_cuda_iq2_xs[512] = {IG_BOOK_IQ2_XS(IG_ENTRY_IQ2)};
static __device__ const uint64_t ig_cuda_iq2_s[1024] = {IG_BOOK_IQ2_S(IG_ENTRY_IQ2)};
static __device__ const uint32_t ig_cuda_iq3_xxs[256] = {IG_BOOK_IQ3_XXS(IG_ENTRY_IQ3_XXS)};
static __device__ const uint32_t ig_cuda_iq3_s[512] = {IG_BOOK_IQ3_S(IG_ENTRY_IQ3_S)};

static __device__ __forceinline__ void ig_put_eight(ig_part *out, int h, uint64_t entry) {
    out->code[2 * h] = (uint32_t)entry;
    out->code[2 * h + 1] = (uint32_t)(entry >> 32);
}

/* Two times seven signs, the eighth of which makes an even number of them, to 16. */
static __device__ __forceinline__ uint32_t ig_even_signs(uint32_t first, uint32_t second) {
    uint32_t both = (first & 127) | (second & 127) << 8, fold = both ^ both >> 4;
    return both | (0x6996u >> (fold & 15) & 1) << 7 | (0x6996u >> (fold >> 8 & 15) & 1) << 15;
}

/* Codes of magnitudes that are negative where their bit is set, as in src/kernel/codebook.h. */
static __device__ __forceinline__ void ig_signed_codes(ig_part *out, uint32_t signs, uint32_t offset) {
    for (int j = 0; j < 4; j++) {
        uint32_t mask = ig_spread(signs >> 4 * j, 0) * 255u;
        out->code[j] = (out->code[j] ^ mask) - mask + offset * 0x01010101u;
    }
}

static __device__ __forceinline__ float ig_odd(uint32_t step) { return (float)(2 * step + 1); }

/* Entries of IQ1, of which `high` has in 4 bits each the upper bits and which way they are moved. */
static __device__ __forceinline__ void ig_iq1_codes(ig_part *out, const ig_raw *raw, uint32_t high) {
    for (int h = 0; h < 2; h++) {
        uint32_t index = (raw->codes[0] >> 8 * h & 255) | (high >> 4 * h & 7) << 8;
        uint64_t one = 0x0101010101010101ull;
        ig_put_eight(out, h, high >> 4 * h & 8 ? ig_cuda_iq1[index] - one : ig_cuda_iq1[index] + one);
    }
}

template <>
__device__ __forceinline__ void ig_unpack<IG_TYPE_IQ1_S>(ig_part *out, const ig_raw *raw, int i) {
    uint32_t of32 = raw->head[1], bits = of32 >> i % 2 * 6, way = of32 >> 15;
    ig_scale(out, raw, 0.125f * ig_odd(of32 >> 12 & 7), -9);
    ig_iq1_codes(out, raw, (bits & 7) | (bits & 0x38) << 1 | way << 3 | way << 7);
}

template <>
__device__ __forceinline__ void ig_unpack<IG_TYPE_IQ1_M>(ig_part *out, const ig_raw *raw, int i) {
    ig_scale(out, raw, 0.125f * ig_odd(raw->head[1] >> i % 4 * 3 & 7), -9);
    ig_iq1_codes(out, raw, raw->high[0]);
}

template <>
__device__ __forceinline__ void ig_unpack<IG_TYPE_IQ2_XXS>(ig_part *out, const ig_raw *raw, int i) {
    uint32_t signs = raw->high[0] >> i % 2 * 14;
    ig_scale(out, raw, 0.125f * ig_odd(raw->high[0] >> 28), -43);
    for (int h = 0; h < 2; h++) ig_put_eight(out, h, ig_cuda_iq2_xxs[raw->codes[0] >> 8 * h & 255]);
    ig_signed_codes(out, ig_even_signs(signs, signs >> 7), 43);
}

template <>
__device__ __forceinline__ void ig_unpack<IG_TYPE_IQ2_XS>(ig_part *out, const ig_raw *raw, int i) {
    ig_scale(out, raw, 0.125f * ig_odd(raw->head[1] >> i % 2 * 4 & 15), -43);
    for (int h = 0; h < 2; h++) ig_put_eight(out, h, ig_cuda_iq2_xs[raw->codes[0] >> 16 * h & 511]);
    ig_signed_codes(out, ig_even_signs(raw->codes[0] >> 9, raw->codes[0] >> 25), 43);
}

template <>
__device__ __forceinline__ void ig_unpack<IG_TYPE_IQ2_S>(ig_part *out, const ig_raw *raw, int i) {
    ig_scale(out, raw, 0.125f * ig_odd(raw->head[1] >> i % 2 * 4 & 15), -43);
    for (int h = 0; h < 2; h++) {
        uint32_t high = raw->high[1] >> (i % 2 * 4 + 2 * h) & 3;
        ig_put_eight(out, h, ig_cuda_iq2_s[(raw->codes[0] >> 8 * h & 255) | high << 8]);
    }
    ig_signed_codes(out, raw->high[0], 43);
}

template <>
__device__ __forceinline__ void ig_unpack<IG_TYPE_IQ3_XXS>(ig_part *out, const ig_raw *raw, int i) {
    uint32_t signs = raw->high[0] >> i % 2 * 14;
    ig_scale(out, raw, 0.25f * ig_odd(raw->high[0] >> 28), -62);
    for (int j = 0; j < 4; j++) out->code[j] = ig_cuda_iq3_xxs[raw->codes[0] >> 8 * j & 255];
    ig_signed_codes(out, ig_even_signs(signs, signs >> 7), 62);
}

template <>
__device__ __forceinline__ void ig_unpack<IG_TYPE_IQ3_S>(ig_part *out, const ig_raw *raw, int i) {
    ig_scale(out, raw, ig_odd(raw->head[1] >> i / 2 % 2 * 4 & 15), -15);
    for (int j = 0; j < 4; j++) {
        uint32_t high = raw->high[1] >> (i % 2 * 4 + j) & 1;
        out->code[j] = ig_cuda_iq3_s[(raw->codes[0] >> 8 * j & 255) | high << 8];
    }
    ig_signed_codes(out, raw->high[0], 15);
}

/* Both. */
template <int type>
static __device__ __forceinline__ ig_part ig_part_of(const uint8_t *p, int i) {
    ig_raw raw;
    ig_part out;
    ig_fetch<type>(&raw, p, i);
    ig_unpack<type>(&out, &raw, i);
    return out;
}

/* Bytes of a float. */
static __host__ __device__ constexpr int ig_float_bytes(int type) {
    return type == IG_TYPE_F32 ? 4 : type == IG_TYPE_F8_E4M3 ? 1 : 2;
}

/* ig_f8_f32() of src/base/half.h, of the low bits. */
static __device__ __forceinline__ float ig_f8(uint32_t bits) {
    uint32_t half = (bits & 0x80) << 8 | (bits & 0x7f) << 7;
    return (bits & 0x7f) == 0x7f ? NAN : 256.0f * ig_half((uint16_t)half);
}

/* The number of these bits; of shorter floats the low ones. */
template <int type>
static __device__ __forceinline__ float ig_float(uint32_t bits) {
    if constexpr (type == IG_TYPE_F8_E4M3) return ig_f8(bits);
    return type == IG_TYPE_F32   ? __uint_as_float(bits)
           : type == IG_TYPE_F16 ? ig_half((uint16_t)bits)
                                 : __uint_as_float(bits << 16);
}

/* Bits of element i of a row of floats. */
template <int type>
static __device__ __forceinline__ uint32_t ig_float_bits(const uint8_t *row, int i) {
    constexpr int bytes = ig_float_bytes(type);
    return bytes == 4 ? ((const uint32_t *)row)[i] : bytes == 2 ? ((const uint16_t *)row)[i] : row[i];
}

template <int type>
static __device__ __forceinline__ float ig_element(const uint8_t *row, int i) {
    return ig_float<type>(ig_float_bits<type>(row, i));
}

/* Elements i to i + n - 1 of a row; n is 1, or 8 where i and the row's length are multiples of it. */
template <int type, int n>
static __device__ __forceinline__ void ig_elements(float *out, const uint8_t *row, int i) {
    constexpr int bytes = ig_float_bytes(type), each = 4 / bytes;
    uint32_t words[8];
    if (n == 1) out[0] = ig_element<type>(row, i);
    for (int j = 0; j < n * bytes / 16; j++) ig_load16<16>(words + 4 * j, row + i * bytes + 16 * j);
    if (n > 1 && n * bytes == 8) words[0] = *(const uint32_t *)(row + i), words[1] = *(const uint32_t *)(row + i + 4);
    for (int j = 0; n > 1 && j < n; j++) out[j] = ig_float<type>(words[j / each] >> j % each * 8 * bytes);
}

#endif
