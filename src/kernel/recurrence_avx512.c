/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers with a recurrence (recurrence.h), as the compiler makes them for this level.
 */
#define LANES 16
#include "kernel/recurrence.h"

static void convolve_avx512(float *out, const float *const *x, const float *w, size_t stride, int n_taps, int n) {
    convolve(out, x, w, stride, n_taps, n);
}

static void delta_rule_avx512(float *out, float *state, const float *q, const float *k, const float *v, float decay,
                              float beta, int n_keys, int n) {
    delta_rule(out, state, q, k, v, decay, beta, n_keys, n);
}

void ig_kernels_fill_recurrence_avx512(ig_kernels *k) {
    k->convolve = convolve_avx512;
    k->delta_rule = delta_rule_avx512;
}
