/* SPDX-License-Identifier: Apache-2.0
 *
 * The sketch of the values: see values.h.
 */
#include "policy/values.h"

size_t ig_values_head_bytes(int n, int head_dim) {
    return ((size_t)n + IG_SKETCH_TOKENS - 1) / IG_SKETCH_TOKENS * ig_value_sketch_block_bytes(head_dim);
}

ig_status ig_values_open(ig_values *v, const ig_kernels *kernels, size_t n_heads, int n, int head_dim, ig_error *err) {
    *v = (ig_values){.kernels = kernels, .head_dim = head_dim};
    return ig_head_table_open(&v->sketch, "value sketch", n_heads, ig_values_head_bytes(n, head_dim), err);
}

void ig_values_close(ig_values *v) { ig_head_table_close(&v->sketch); }

void ig_values_append(ig_values *v, size_t head, int slot, const uint16_t *value) {
    uint8_t *sketch = ig_head_table_at(&v->sketch, head);
    size_t block = (size_t)(slot / IG_SKETCH_TOKENS) * ig_value_sketch_block_bytes(v->head_dim);
    float x[IG_KV_DIMS];
    v->kernels->f16_to_f32(x, value, v->head_dim);
    v->kernels->hadamard(x, v->head_dim);
    v->kernels->value_put(sketch + block, slot % IG_SKETCH_TOKENS, x, v->head_dim);
}

void ig_values_estimate(const ig_values *v, size_t head, int n, const float *p, size_t stride, const float *r,
                        int group, const ig_rest *out) {
    size_t d = (size_t)v->head_dim;
    v->kernels->value_sums(out->value, p, stride, group, v->head_dim, ig_head_table_at(&v->sketch, head),
                           n / IG_SKETCH_TOKENS);
    for (int g = 0; g < group; g++) {
        float *value = out->value + (size_t)g * d;
        v->kernels->count_above(p + (size_t)g * stride, n, 0, &out->share[g]);
        out->share[g] *= r[g];
        v->kernels->hadamard(value, v->head_dim);
        for (size_t i = 0; i < d; i++) value[i] *= r[g];
    }
}
