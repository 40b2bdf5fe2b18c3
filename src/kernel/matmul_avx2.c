/* SPDX-License-Identifier: Apache-2.0
 *
 * The AVX2 part of the table: 8-bit activations, and the matrix products of matmul_gemv_avx2.c and matmul_gemm_avx2.c.
 */
#include <immintrin.h>
#include <math.h>

#include "kernel/parts.h"
#include "kernel/quant.h"
#include "kernel/quant_avx2.h"

/* Codes of 32 floats times `inverse`; their sums over 16 go to sums. */
static void put_group(int8_t *q, const float *x, float inverse, int sums[2]) {
    __m256i v[4];
    for (int i = 0; i < 4; i++)
        v[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), _mm256_set1_ps(inverse)));
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_set_epi32(7, 3, 6, 2, 5, 1, 4, 0));
    _mm256_store_si256((void *)q, bytes);
    __m256i sum = _mm256_sad_epu8(_mm256_xor_si256(bytes, _mm256_set1_epi8(-128)), _mm256_setzero_si256());
    int64_t s[4];
    _mm256_storeu_si256((void *)s, sum);
    sums[0] = (int)(s[0] + s[1]) - 128 * 16;
    sums[1] = (int)(s[2] + s[3]) - 128 * 16;
}

static uint32_t largest_bits(const float *x) {
    __m256i top = _mm256_setzero_si256();
    for (int i = 0; i < 4; i++) {
        __m256i bits = _mm256_castps_si256(_mm256_loadu_ps(x + 8 * i));
        top = _mm256_max_epu32(top, _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff)));
    }
    __m128i m = _mm_max_epu32(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
    return (uint32_t)_mm_cvtsi128_si32(_mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1)));
}

/* The same numbers as the scalar version, bit for bit. */
static void act_prepare_q8(void *dst, const float *x, int n) {
    memset(dst, 0, ig_q8_bytes(n));
    ig_q8 a = ig_q8_view(dst, n);
    for (int g = 0; g < n / 32; g++) {
        uint32_t top = largest_bits(x + 32 * g);
        float max;
        memcpy(&max, &top, sizeof max);
        if (top >= 0x7f800000u) a.d[g] = a.ds[g] = a.ds16[2 * g] = a.ds16[2 * g + 1] = NAN;
        if (!(max > IG_Q8_TINY && max < INFINITY)) continue;
        int sums[2];
        put_group(a.q + 32 * g, x + 32 * g, 127.0f / max, sums);
        ig_q8_put_sums(&a, g, max / 127.0f, sums);
    }
}

void ig_kernels_fill_matmul_avx2(ig_kernels *k) {
    k->act_prepare[IG_ACT_Q8] = act_prepare_q8;
    ig_kernels_fill_gemv_avx2(k);
    ig_kernels_fill_gemm_avx2(k);
    ig_kernels_fill_fixed_avx2(k);
}
