/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of a prompt's queries, AVX2: what is prepared and what comes of it.
 */
#include "kernel/vectors_avx2.h"

#include "kernel/attention_prompt.h"

static size_t prompt_chunk_bytes_avx2(int d) {
    chunk c;
    static uint8_t none;
    return layout_chunk(&c, &none, d);
}

/* ---- keys and values ------------------------------------------------------------- */

enum { AHEAD = 16 }; /* rows */

/* Row i + AHEAD of n comes from memory while row i is at work: blocks of rows are too short for the hardware to see. */
INLINE void fetch_ahead(const uint16_t *const *x, int i, int n, int d) {
    if (i + AHEAD >= n) return;
    for (int j = 0; j < d; j += 32) _mm_prefetch((const char *)(x[i + AHEAD] + j), _MM_HINT_T0);
}

/* The sums of squares of n keys. */
INLINE void add_squares(float *squares, const uint16_t *const *k, int n, int d) {
    for (int i = 0; i < n; i++) {
        __m256 sum[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
        fetch_ahead(k, i, n, d);
        for (int j = 0; j < d; j += 8) {
            __m256 x = load_f16(k[i] + j);
            sum[j / 8 % 2] = _mm256_fmadd_ps(x, x, sum[j / 8 % 2]);
        }
        squares[i] = sum_lanes(_mm256_add_ps(sum[0], sum[1]));
    }
}

/* n keys times their factors, in 16 bits. */
INLINE void put_keys(int32_t *to, const float *factor, const uint16_t *const *k, int n, int d) {
    for (int i = 0; i < n; i++) {
        __m256 f = _mm256_set1_ps(factor[i]);
        for (int j = 0; j < d; j += 8)
            _mm_store_si128((__m128i *)(void *)(to + ((size_t)i * (size_t)d + (size_t)j) / 2),
                            fixed(load_f16(k[i] + j), f));
    }
}

INLINE void prompt_keys(void *rows, const uint16_t *const *k, int n, int d) {
    chunk c = chunk_of(rows, d);
    int all = whole_groups(n);
    _Alignas(32) float squares[IG_PROMPT_KEYS] = {0}, factor[IG_PROMPT_KEYS];
    add_squares(squares, k, n, d);
    for (int i = 0; i < all; i += 8) {
        __m256 square = _mm256_load_ps(squares + i), zero = _mm256_setzero_ps(), norm = _mm256_sqrt_ps(square);
        __m256 f = _mm256_div_ps(_mm256_set1_ps(KEY_NORM), norm);
        _mm256_store_ps(factor + i, _mm256_and_ps(f, _mm256_cmp_ps(norm, zero, _CMP_NEQ_UQ)));
        norm = _mm256_fmadd_ps(norm, zero, norm); /* what is infinite becomes NaN */
        _mm256_store_ps(c.k_scale + i, _mm256_mul_ps(norm, _mm256_set1_ps(1.0f / KEY_NORM)));
    }
    put_keys(c.k, factor, k, n, d);
    memset(c.k + (size_t)n * (size_t)d / 2, 0, (size_t)(all - n) * (size_t)d / 2 * sizeof *c.k);
}

/* The usual lengths are known when the program is built: their loops are unrolled. */
static void prompt_keys_avx2(void *rows, const uint16_t *const *k, int n, int d) {
    switch (d) {
        case 64:
            prompt_keys(rows, k, n, 64);
            break;
        case 128:
            prompt_keys(rows, k, n, 128);
            break;
        default:
            prompt_keys(rows, k, n, d);
    }
}

/* The largest magnitude of a row: 16-bit floats without their signs stand in the order of their bits. */
INLINE float row_peak(const uint16_t *x, int d) {
    __m128i m = _mm_setzero_si128();
    for (int j = 0; j < d; j += 8)
        m = _mm_max_epu16(m, _mm_slli_epi16(_mm_loadu_si128((const __m128i *)(const void *)(x + j)), 1));
    __m128i least = _mm_minpos_epu16(_mm_xor_si128(m, _mm_set1_epi16(-1)));
    return _cvtsh_ss((uint16_t)(~_mm_extract_epi16(least, 0) >> 1 & 0x7fff));
}

INLINE void prompt_values(void *rows, const uint16_t *const *v, int n, int d) {
    chunk c = chunk_of(rows, d);
    int all = whole_groups(n);
    for (int i = 0; i < all; i += 2) {
        const uint16_t *row[2];
        __m256 factor[2];
        for (int x = 0; x < 2; x++) {
            row[x] = v[i + x < n ? i + x : n - 1];
            fetch_ahead(v, i + x, n, d);
            float peak = i + x < n ? row_peak(row[x], d) : 0;
            factor[x] = _mm256_set1_ps(peak > 0 ? VALUE_PEAK / peak : 0);
            c.v_scale[i + x] = peak / VALUE_PEAK;
        }
        for (int j = 0; j < d; j += 8) {
            __m128i a = fixed(load_f16(row[0] + j), factor[0]), b = fixed(load_f16(row[1] + j), factor[1]);
            int32_t *to = c.v + ((size_t)j / TILE * (IG_PROMPT_KEYS / 2) + (size_t)i / 2) * TILE;
            _mm_store_si128((__m128i *)(void *)to, _mm_unpacklo_epi16(a, b));
            _mm_store_si128((__m128i *)(void *)(to + IG_PROMPT_KEYS / 2 * TILE), _mm_unpackhi_epi16(a, b));
        }
    }
}

static void prompt_values_avx2(void *rows, const uint16_t *const *v, int n, int d) {
    switch (d) {
        case 64:
            prompt_values(rows, v, n, 64);
            break;
        case 128:
            prompt_values(rows, v, n, 128);
            break;
        default:
            prompt_values(rows, v, n, d);
    }
}

/* ---- the functions of the level ----------------------------------------------------------- */

INLINE ints add_pairs(ints acc, ints x, ints y) { return _mm256_add_epi32(acc, _mm256_madd_epi16(x, y)); }

PROMPT_FUNCTIONS(avx2, add_pairs)

void ig_kernels_fill_prompt_avx2(ig_kernels *k) {
    SET_PROMPT(k, avx2);
    k->prompt_chunk_bytes = prompt_chunk_bytes_avx2;
    k->prompt_keys = prompt_keys_avx2;
    k->prompt_values = prompt_values_avx2;
}
