/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrices of random codes, of all types. Include after cmocka.h.
 */
#ifndef TESTS_DEVICE_MATRICES_H
#define TESTS_DEVICE_MATRICES_H

#include "two_devices.h"

#include "kernel/kernel.h"

/* Where scales lie in a block, as 16-bit floats, or in MXFP4 as an exponent; -1: nowhere, or random bytes do. */
static const struct {
    ig_type type;
    int scales[2];
} types[] = {
    {IG_TYPE_F32, {-1, -1}},    {IG_TYPE_F16, {-1, -1}},    {IG_TYPE_BF16, {-1, -1}},   {IG_TYPE_Q4_0, {0, -1}},
    {IG_TYPE_Q4_1, {0, 2}},     {IG_TYPE_Q5_0, {0, -1}},    {IG_TYPE_Q5_1, {0, 2}},     {IG_TYPE_Q8_0, {0, -1}},
    {IG_TYPE_Q2_K, {80, 82}},   {IG_TYPE_Q3_K, {108, -1}},  {IG_TYPE_Q4_K, {0, 2}},     {IG_TYPE_Q5_K, {0, 2}},
    {IG_TYPE_Q6_K, {208, -1}},  {IG_TYPE_IQ4_NL, {0, -1}},  {IG_TYPE_IQ4_XS, {0, -1}},  {IG_TYPE_MXFP4, {0, -1}},
    {IG_TYPE_IQ1_S, {0, -1}},   {IG_TYPE_IQ1_M, {-1, -1}},  {IG_TYPE_IQ2_XXS, {0, -1}}, {IG_TYPE_IQ2_XS, {0, -1}},
    {IG_TYPE_IQ2_S, {0, -1}},   {IG_TYPE_IQ3_XXS, {0, -1}}, {IG_TYPE_IQ3_S, {0, -1}},   {IG_TYPE_NVFP4, {-1, -1}},
    {IG_TYPE_Q1_0, {0, -1}},    {IG_TYPE_Q2_0, {0, -1}},    {IG_TYPE_TQ1_0, {52, -1}},  {IG_TYPE_TQ2_0, {64, -1}},
    {IG_TYPE_F8_E4M3, {-1, -1}}};
enum { N_TYPES = sizeof types / sizeof *types };

/* A matrix of random codes in the host's memory, which the GPU gets a copy of; to be given to free_matrix(). */
static inline ig_matrix make_matrix(int t, int n_out, int n_in, const float *bias) {
    const ig_type_info *info = ig_type_get(types[t].type);
    size_t row = ig_type_row_bytes(info, (size_t)n_in), bytes = row * (size_t)n_out;
    ig_block_scales blocks = {.first = 4, .n_rows = 9, .n_cols = 128, .n_across = (n_in + 127) / 128};
    size_t n_scales = types[t].type == IG_TYPE_F8_E4M3 ? (size_t)(n_out / 9 + 2) * (size_t)blocks.n_across : 0;
    size_t scales_at = (bytes + 15) / 16 * 16; /* behind the codes */
    uint8_t *w = malloc(scales_at + n_scales * sizeof(float));
    float *scales = (float *)(void *)(w + scales_at);
    for (size_t i = 0; i < bytes; i++) w[i] = (uint8_t)ig_random_u64(&dice);
    for (size_t i = 0; i < n_scales; i++) scales[i] = (float)(0.01 + 0.02 * ig_random_unit(&dice));
    if (n_scales) blocks.s = scales;
    for (size_t i = 0; info->block > 1 && i < bytes; i += (size_t)info->block_bytes)
        for (int s = 0; s < 2; s++) {
            uint16_t half = ig_f32_f16((float)(0.01 + 0.02 * ig_random_unit(&dice)));
            if (types[t].type == IG_TYPE_MXFP4)
                w[i] = (uint8_t)(119 + ig_random_u64(&dice) % 4);
            else if (types[t].type == IG_TYPE_IQ1_M)
                for (int j = 0; j < 4; j++)
                    w[i + 49 + 2 * (size_t)j] = (uint8_t)((w[i + 49 + 2 * (size_t)j] & 15) | (half >> 4 * j & 15) << 4);
            else if (types[t].scales[s] >= 0)
                memcpy(w + i + types[t].scales[s], &half, sizeof half);
        }
    for (size_t i = 0; info->block == 1 && i < bytes / (size_t)info->block_bytes; i++) {
        float v = (float)(2 * ig_random_unit(&dice) - 1);
        uint16_t half = types[t].type == IG_TYPE_F16 ? ig_f32_f16(v) : ig_f32_bf16(v);
        if (types[t].type == IG_TYPE_F8_E4M3) { /* codes are random as they are, but NaN */
            if ((w[i] & IG_F8_NAN) == IG_F8_NAN) w[i] ^= 1;
            continue;
        }
        memcpy(w + i * (size_t)info->block_bytes, info->block_bytes == 4 ? (void *)&v : (void *)&half,
               (size_t)info->block_bytes);
    }
    ig_error err = {0};
    if (devices[GPU]->ops->bind(devices[GPU], w, scales_at + n_scales * sizeof(float), &err)) fail_msg("%s", err.text);
    return (ig_matrix){.w = w,
                       .bias = bias,
                       .block_scales = blocks,
                       .n_out = n_out,
                       .n_in = n_in,
                       .type = types[t].type,
                       .row_bytes = row};
}

static inline void free_matrix(ig_matrix *m) {
    devices[GPU]->ops->unbind(devices[GPU], m->w);
    free((void *)(uintptr_t)m->w);
}

static inline int open_and_reserve(void **state) {
    open_devices(state);
    reserve_both(
        &(ig_device_need){.max_rows = 80, .max_in = 4352, .max_rank = 8, .max_entries = 1, .heads = {1, 1, 8, 0}});
    return 0;
}

#endif
