/* SPDX-License-Identifier: Apache-2.0
 *
 * The 2-bit value sketch for AVX2.
 */
#include "kernel/sketch_avx2.h"

enum { PIECE = 8 }; /* vectors of a transform in registers */

/* ---- value_put ----------------------------------------------------------------- */

/* -1 where x is at least y. */
static __m256i at_least(__m256 x, __m256 y) { return _mm256_castps_si256(_mm256_cmp_ps(x, y, _CMP_GE_OQ)); }

static void value_put_avx2(void *block, int t, const float *x, int d) {
    __m256 zero = _mm256_setzero_ps(), squares = zero, xc = zero;
    for (int i = 0; i < d; i += 8) {
        __m256 v = within_f16(_mm256_loadu_ps(x + i));
        squares = _mm256_fmadd_ps(v, v, squares);
    }
    float square = sum_lanes(squares), threshold = ig_value_threshold(square, d);
    __m256 far = _mm256_set1_ps(threshold), near = _mm256_set1_ps(-threshold);
    int shift = t % 4 * 8 + t / 4 * 2;
    __m128i by = _mm_cvtsi32_si128(shift);
    __m256i keep = _mm256_set1_epi32((int)~(3u << shift));
    uint8_t *codes = (uint8_t *)block + IG_VALUE_CODES;
    for (int i = 0; i < d; i += 8) {
        __m256 v = within_f16(_mm256_loadu_ps(x + i));
        __m256i code = _mm256_add_epi32(at_least(v, zero), _mm256_add_epi32(at_least(v, far), at_least(v, near)));
        code = _mm256_sub_epi32(_mm256_setzero_si256(), code);
        __m256 c = _mm256_sub_ps(_mm256_cvtepi32_ps(code), _mm256_set1_ps(1.5f));
        xc = _mm256_fmadd_ps(v, c, xc);
        __m256i *at = (__m256i *)(void *)(codes + 4 * i);
        __m256i old = _mm256_and_si256(_mm256_loadu_si256(at), keep);
        _mm256_storeu_si256(at, _mm256_or_si256(old, _mm256_sll_epi32(code, by)));
    }
    ig_value_finish(block, t, sum_lanes(xc), square);
}

/* ---- value_sums ---------------------------------------------------------------- */

/* A 16-bit lane gets at most 4 x 2 x 255 x 3. */
INLINE __m256i sum_tokens_avx2(const int32_t w8[4], const __m256i codes[4]) {
    __m256i total = _mm256_maddubs_epi16(_mm256_set1_epi32(w8[0]), codes[0]);
    for (int j = 1; j < 4; j++)
        total = _mm256_add_epi16(total, _mm256_maddubs_epi16(_mm256_set1_epi32(w8[j]), codes[j]));
    return _mm256_madd_epi16(total, _mm256_set1_epi16(1));
}

static void value_sums_avx2(float *acc, const float *w, size_t stride, int n_q, int d, const void *blocks,
                            int n_blocks) {
    value_sums(acc, w, stride, n_q, d, blocks, n_blocks, sum_tokens_avx2);
}

/* ---- hadamard ------------------------------------------------------------------ */

/* Sums and differences of lanes and those that `swapped` has in their place; sign is -1 for the lanes of the
 * differences. Exactly a + b and a - b, as nothing is rounded but the result. */
INLINE __m256 butterfly(__m256 x, __m256 swapped, __m256 sign) { return _mm256_fmadd_ps(x, sign, swapped); }

/* 8 * n_v floats, n_v a power of 2, at most PIECE. */
INLINE void transform_piece(float *x, int n_v, float scale) {
    __m256 v[PIECE];
    for (int i = 0; i < n_v; i++) {
        __m256 y = _mm256_loadu_ps(x + 8 * i);
        y = butterfly(y, _mm256_permute_ps(y, 0xb1), _mm256_setr_ps(1, -1, 1, -1, 1, -1, 1, -1));
        y = butterfly(y, _mm256_permute_ps(y, 0x4e), _mm256_setr_ps(1, 1, -1, -1, 1, 1, -1, -1));
        v[i] = butterfly(y, _mm256_permute2f128_ps(y, y, 1), _mm256_setr_ps(1, 1, 1, 1, -1, -1, -1, -1));
    }
    for (int half = 1; half < n_v; half *= 2)
        for (int i = 0; i < n_v; i++) {
            if (i & half) continue;
            __m256 a = v[i], b = v[i + half];
            v[i] = _mm256_add_ps(a, b);
            v[i + half] = _mm256_sub_ps(a, b);
        }
    for (int i = 0; i < n_v; i++) _mm256_storeu_ps(x + 8 * i, _mm256_mul_ps(v[i], _mm256_set1_ps(scale)));
}

/* n floats, of which either half is transformed; in memory. */
static void join_halves(float *x, int n, float scale) {
    __m256 r = _mm256_set1_ps(scale);
    for (int i = 0; i < n / 2; i += 8) {
        __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + n / 2 + i);
        _mm256_storeu_ps(x + i, _mm256_mul_ps(_mm256_add_ps(a, b), r));
        _mm256_storeu_ps(x + n / 2 + i, _mm256_mul_ps(_mm256_sub_ps(a, b), r));
    }
}

static void transform(float *x, int n, float scale) {
    switch (n) {
        case 8:
            transform_piece(x, 1, scale);
            break;
        case 16:
            transform_piece(x, 2, scale);
            break;
        case 32:
            transform_piece(x, 4, scale);
            break;
        case 8 * PIECE:
            transform_piece(x, PIECE, scale);
            break;
        default:
            transform(x, n / 2, 1);
            transform(x + n / 2, n / 2, 1);
            join_halves(x, n, scale);
    }
}

static void hadamard_avx2(float *x, int d) {
    int n = d & -d;
    float scale = 1 / sqrtf((float)n);
    for (float *end = x + d; x < end; x += n) transform(x, n, scale);
}

void ig_kernels_fill_values_avx2(ig_kernels *k) {
    k->value_put = value_put_avx2;
    k->value_sums = value_sums_avx2;
    k->hadamard = hadamard_avx2;
}
