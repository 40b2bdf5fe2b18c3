/* SPDX-License-Identifier: Apache-2.0
 *
 * The AVX-512 part of the table: 8-bit activations, and the matrix products of the other matmul_*_avx512.c.
 */
#include "kernel/matmul_avx512.h"

#include <math.h>

#include "kernel/parts.h"
#include "kernel/quant.h"
#include "kernel/quant_avx512.h"

static inline int sum_codes(__m128i q) { return _mm512_reduce_add_epi32(_mm512_cvtepi8_epi32(q)); }

/* The same numbers as the scalar version, bit for bit. */
static void act_prepare_q8(void *dst, const float *x, int n) {
    memset(dst, 0, ig_q8_bytes(n));
    ig_q8 a = ig_q8_view(dst, n);
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    for (int g = 0; g < n / 32; g++) {
        __m512 x0 = _mm512_loadu_ps(x + 32 * g), x1 = _mm512_loadu_ps(x + 32 * g + 16);
        __m512i m0 = _mm512_and_si512(_mm512_castps_si512(x0), magnitude);
        __m512i m1 = _mm512_and_si512(_mm512_castps_si512(x1), magnitude);
        uint32_t top = _mm512_reduce_max_epu32(_mm512_max_epu32(m0, m1));
        float max;
        memcpy(&max, &top, sizeof max);
        if (top >= 0x7f800000u) a.d[g] = a.ds[g] = a.ds16[2 * g] = a.ds16[2 * g + 1] = NAN;
        if (!(max > IG_Q8_TINY && max < INFINITY)) continue;
        __m512 inverse = _mm512_set1_ps(127.0f / max);
        __m128i q0 = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(x0, inverse)));
        __m128i q1 = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(x1, inverse)));
        _mm_store_si128((void *)(a.q + 32 * g), q0);
        _mm_store_si128((void *)(a.q + 32 * g + 16), q1);
        int sums[2] = {sum_codes(q0), sum_codes(q1)};
        ig_q8_put_sums(&a, g, max / 127.0f, sums);
    }
}

void ig_kernels_fill_matmul_avx512(ig_kernels *k) {
    k->act_prepare[IG_ACT_Q8] = act_prepare_q8;
    k->scratch_bytes = ig_gemm_scratch_bytes_avx512;
#define SET_ROWS(TYPE, type, f)                        \
    k->gemv[IG_TYPE_##TYPE] = ig_gemv_##type##_avx512; \
    k->gemm[IG_TYPE_##TYPE] = ig_gemm_##type##_avx512;
/* The panels are those of AVX2. */
#define SET_PANELS(TYPE, type, f)                                                \
    k->gemv[IG_TYPE_##TYPE] = k->gemm[IG_TYPE_##TYPE] = ig_gemm_##type##_avx512; \
    k->panels[IG_TYPE_##TYPE].gemv = k->panels[IG_TYPE_##TYPE].gemm = ig_panels_##type##_avx512;
    IG_ROW_TYPES(SET_ROWS)
    IG_PANEL_TYPES(SET_PANELS)
    k->gemv[IG_TYPE_F32] = ig_gemv_f32_avx512;
    k->gemm[IG_TYPE_F32] = ig_gemm_f32_avx512;
    k->gemv[IG_TYPE_F16] = ig_gemv_f16_avx512;
    k->gemv[IG_TYPE_BF16] = ig_gemv_bf16_avx512;
    k->gemv[IG_TYPE_F8_E4M3] = ig_gemv_f8_e4m3_avx512;
    ig_kernels_fill_fixed_avx512(k);
}
