/* SPDX-License-Identifier: Apache-2.0
 *
 * The sketch of the values: see values.h.
 */
#include "policy/values.h"

#include <string.h>

size_t ig_values_head_bytes(int n, int head_dim) {
    return ((size_t)n + IG_SKETCH_TOKENS - 1) / IG_SKETCH_TOKENS * ig_value_sketch_block_bytes(head_dim);
}

ig_status ig_values_open(ig_values *v, const ig_policy *p, ig_error *err) {
    *v = (ig_values){.kernels = p->shape.kernels, .head_dim = p->shape.head_dim};
    return ig_policy_open_table(&v->sketch, p, "value sketch", 0, ig_value_sketch_block_bytes(v->head_dim), err);
}

void ig_values_close(ig_values *v) { ig_unit_table_close(&v->sketch); }

void ig_values_append(ig_values *v, size_t head, int slot, const uint16_t *value) {
    void *block = ig_unit_table_edit(&v->sketch, head, slot / IG_SKETCH_TOKENS);
    float x[IG_KV_DIMS];
    v->kernels->f16_to_f32(x, value, v->head_dim);
    v->kernels->hadamard(x, v->head_dim);
    v->kernels->value_put(block, slot % IG_SKETCH_TOKENS, x, v->head_dim);
}

void ig_values_sum(const ig_values *v, size_t head, int begin, int end, const float *p, size_t stride, int group,
                   float *left, float *sum) {
    int last = end / IG_SKETCH_TOKENS;
    memset(sum, 0, (size_t)group * (size_t)v->head_dim * sizeof *sum);
    for (int i = begin / IG_SKETCH_TOKENS, run; i < last; i += run) {
        run = ig_unit_run(&v->sketch.home, i, last - i);
        v->kernels->value_sums(sum, p + (size_t)i * IG_SKETCH_TOKENS, stride, group, v->head_dim,
                               ig_unit_table_at(&v->sketch, head, i), run);
    }
    for (int g = 0; g < group; g++) v->kernels->count_above(p + (size_t)g * stride + begin, end - begin, 0, &left[g]);
}

void ig_values_join(const ig_values *v, int n_parts, const float *left, const float *sum, const float *r, int group,
                    const ig_rest *out) {
    size_t d = (size_t)v->head_dim;
    memset(out->value, 0, (size_t)group * d * sizeof(float));
    for (int part = 0; part < n_parts; part++)
        for (int g = 0; g < group; g++) {
            size_t at = (size_t)part * (size_t)group + (size_t)g;
            out->share[g] += left[at] * r[at];
            for (size_t i = 0; i < d; i++) out->value[(size_t)g * d + i] += sum[at * d + i] * r[at];
        }
    for (int g = 0; g < group; g++) v->kernels->hadamard(out->value + (size_t)g * d, v->head_dim);
}
