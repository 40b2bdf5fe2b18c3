/* SPDX-License-Identifier: Apache-2.0
 *
 * The matrix products of the level neon: 8-bit activations, and the functions of each quantised type.
 */
#include "kernel/matmul_neon.h"

#include <math.h>

/* Codes of 32 floats times `inverse`; their sums over 16 go to sums. */
static void put_group(int8_t *q, const float *x, float inverse, int sums[2]) {
    for (int half = 0; half < 2; half++) {
        int16x4_t v[4];
        for (int i = 0; i < 4; i++)
            v[i] = vmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + 16 * half + 4 * i), inverse)));
        int8x16_t bytes = vcombine_s8(vmovn_s16(vcombine_s16(v[0], v[1])), vmovn_s16(vcombine_s16(v[2], v[3])));
        vst1q_s8(q + 16 * half, bytes);
        sums[half] = vaddlvq_s8(bytes);
    }
}

/* The largest magnitude, whose order is that of the bits, NaN above all. */
static uint32_t largest_bits(const float *x) {
    uint32x4_t top = vdupq_n_u32(0);
    for (int i = 0; i < 32; i += 4) top = vmaxq_u32(top, vreinterpretq_u32_f32(vabsq_f32(vld1q_f32(x + i))));
    return vmaxvq_u32(top);
}

/* The same numbers as the scalar version, bit for bit. */
static void act_prepare_q8(void *dst, const float *x, int n) {
    memset(dst, 0, ig_q8_bytes(n));
    ig_q8 a = ig_q8_view(dst, n);
    for (int g = 0; g < n / 32; g++) {
        uint32_t top = largest_bits(x + 32 * g);
        float max = ig_bits_f32(top);
        if (top >= 0x7f800000u) a.d[g] = a.ds[g] = a.ds16[2 * g] = a.ds16[2 * g + 1] = NAN;
        if (!(max > IG_Q8_TINY && max < INFINITY)) continue;
        int sums[2];
        put_group(a.q + 32 * g, x + 32 * g, 127.0f / max, sums);
        ig_q8_put_sums(&a, g, max / 127.0f, sums);
    }
}

static size_t scratch_bytes(int n_in) {
    size_t quantised = GROUPS * group_bytes((format){.n_scales = 2, .has_min = 1}, n_in + 31);
    return ((quantised > FLOAT_PANEL_BYTES ? quantised : (size_t)FLOAT_PANEL_BYTES) + 63) / 64 * 64;
}

static inline void add_quads_neon(int32x4_t sum[COLUMNS], const int8_t *w, const int8x16_t x[COLUMNS], const int n) {
    add_quads(sum, w, x, n, dot_rows_neon);
}

static const dot_fn dot = dot_neon;
static const row_sums sums = {put_quads, add_quads_neon, end_quads};
QUANTISED_TYPES(DEFINE_GEMV)
QUANTISED_TYPES(DEFINE_GEMM)

void ig_kernels_fill_matmul_neon(ig_kernels *k) {
    k->act_prepare[IG_ACT_Q8] = act_prepare_q8;
    k->scratch_bytes = scratch_bytes;
    QUANTISED_TYPES(SET_GEMV)
    QUANTISED_TYPES(SET_GEMM)
    ig_kernels_fill_matmul_floats_neon(k);
}
