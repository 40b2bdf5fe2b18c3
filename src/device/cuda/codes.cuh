/* SPDX-License-Identifier: Apache-2.0
 *
 * Activations of 8 bits, IG_ACT_Q8 of kernel/kernel.h, as products of decode steps read them: a column is n codes, then
 * a line for each IG_PART of them. Whoever makes activations of few columns can make their codes too.
 */
#ifndef IG_DEVICE_CUDA_CODES_H
#define IG_DEVICE_CUDA_CODES_H

#include "device/cuda/kernels.cuh"
#include "device/cuda/weights.cuh"

enum { IG_CODE_GROUP = 32 /* activations that share a scale */ };

/* What goes with the codes of a part: numbers are scale * code, and the codes add up to this sum. */
typedef struct alignas(8) ig_act_line {
    float scale, sum;
} ig_act_line;

/* Number i of a column of n, of which a warp has a group: x ~ scale * code. The order of magnitudes is that of their
 * bits, NaN above all. */
static __device__ __forceinline__ void ig_put_code(uint8_t *column, int n, int i, float v) {
    const float tiny = 0x1p-100f; /* magnitudes below count as zero: the inverse must be finite */
    float max = __uint_as_float(ig_warp_max(__float_as_uint(v) & 0x7fffffffu));
    bool fits = max > tiny && max < INFINITY;
    int code = fits ? (int)rintf(v * (127.0f / max)) : 0, sum = code;
    for (int bit = IG_PART / 2; bit; bit /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, bit);
    column[i] = (uint8_t)code;
    float scale = fits ? max / 127.0f : max <= tiny ? 0.0f : NAN;
    if (i % IG_PART == 0) ((ig_act_line *)(column + n))[i / IG_PART] = ig_act_line{scale, (float)sum};
}

/* Where a kernel puts codes of what it makes, in columns of ig_gpu_act_bytes(); NULL: nowhere. */
typedef struct ig_act_codes {
    uint8_t *act;
    size_t stride;
} ig_act_codes;

/* If the last launch gives x [n_cols][n] it gives the codes too, and these say so: norms and activations (vector.cu),
 * and attention of decode steps (decode.cu). */
bool ig_cuda_norm_codes(ig_queue q, ig_act_codes codes, const float *x, int n, int n_cols);
bool ig_cuda_activate_codes(ig_queue q, ig_act_codes codes, const float *x, int n, int n_cols);
bool ig_cuda_merge_codes(ig_queue q, ig_act_codes codes, const float *x, int n, int n_cols);

#endif
