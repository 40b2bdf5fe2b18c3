/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights that are 16-bit floats and many columns, AVX2; columns in fixed point, for all levels.
 */
#include "kernel/lanes_avx2.h"
#include "kernel/vectors_avx2.h"

#include "kernel/matmul_fixed.h"

/* A group of n numbers, or 64 if there are more; returns its scale. */
static float put_group(int16_t *q, const float *x, int n) {
    floats peaks = all_floats(0), bad = peaks, squares = peaks, v[IG_FIXED_GROUP / 8];
    for (int i = 0; i < IG_FIXED_GROUP / 8; i++) {
        v[i] = _mm256_maskload_ps(x + 8 * i, first_lanes(n - 8 * i));
        peaks = larger(magnitude(v[i]), peaks);
        bad = mul_add(v[i], all_floats(0), bad);
    }
    float peak = max_lanes(peaks), zero = sum_lanes(bad);
    if (!(peak > IG_FIXED_TINY) || !(zero == 0)) {
        memset(q, 0, IG_FIXED_GROUP * sizeof *q);
        return zero;
    }
    floats inverse = all_floats(1 / peak);
    for (int i = 0; i < IG_FIXED_GROUP / 8; i++) {
        v[i] = mul(v[i], inverse);
        squares = mul_add(v[i], v[i], squares);
    }
    float norm = sqrtf(sum_lanes(squares));
    floats factor = all_floats(IG_FIXED_NORM / norm);
    for (int i = 0; i < IG_FIXED_GROUP / 8; i += 2) {
        ints both = _mm256_packs_epi32(to_ints(mul(v[i], factor)), to_ints(mul(v[i + 1], factor)));
        _mm256_store_si256((void *)(q + 8 * i), _mm256_permute4x64_epi64(both, 0xd8));
    }
    return peak * (norm / IG_FIXED_NORM);
}

static void act_prepare_fixed(void *dst, const float *x, int n) {
    ig_fixed a = ig_fixed_view(dst, n);
    int n_groups = (int)ig_fixed_groups(n);
    memset(a.scale, 0, ig_fixed_bytes(n) - (size_t)((char *)a.scale - (char *)dst));
    for (int g = 0; g < n_groups; g++)
        a.scale[g] = put_group(a.q + g * IG_FIXED_GROUP, x + g * IG_FIXED_GROUP, n - g * IG_FIXED_GROUP);
}

INLINE ints add_pairs(ints acc, ints x, ints y) { return _mm256_add_epi32(acc, _mm256_madd_epi16(x, y)); }

FIXED_FUNCTIONS(avx2, add_pairs)

void ig_kernels_fill_fixed_avx2(ig_kernels *k) {
    k->act_prepare[IG_ACT_FIXED] = act_prepare_fixed;
    k->many_act[IG_TYPE_F16] = k->many_act[IG_TYPE_BF16] = k->many_act[IG_TYPE_F8_E4M3] = IG_ACT_FIXED;
    SET_FIXED(k, avx2);
}
