/* SPDX-License-Identifier: Apache-2.0
 *
 * `window`: the first entries (attention sinks) and the most recent ones, nothing between (StreamingLLM, Xiao et al.
 * 2023). The budget counts both; what lies between stays in the store but is never used again.
 */
#include <stdlib.h>

#include "base/error.h"
#include "policy/policy.h"

static uint64_t window_plan(const ig_policy_shape *shape, const ig_cache_options *options) {
    (void)shape, (void)options;
    return 0;
}

static ig_status window_open(ig_policy **out, const ig_policy_shape *shape, const ig_cache_options *options,
                             ig_error *err) {
    ig_policy *p = calloc(1, sizeof *p);
    *out = p;
    if (!p) return ig_fail_memory(err, "KV policy", sizeof *p);
    *p = (ig_policy){&ig_policy_window, *shape, *options};
    return IG_OK;
}

static void window_close(ig_policy *p) { free(p); }

static bool window_is_dense(const ig_policy *p, int layer) {
    return ig_policy_layer_is_dense(&p->shape, &p->options, layer);
}

static void window_append(ig_policy *p, int layer, int head, int token, const uint16_t *key) {
    (void)p, (void)layer, (void)head, (void)token, (void)key; /* position alone decides */
}

static int window_select(ig_policy *p, int layer, int head, const float *q, int n, int32_t *index, void *scratch) {
    (void)layer, (void)head, (void)q, (void)scratch;
    int count = ig_policy_count(&p->options, n), sinks = p->options.n_sinks;
    if (count >= n) return n;
    for (int i = 0; i < count; i++) index[i] = i < sinks ? i : n - count + i;
    return count;
}

static size_t window_scratch_bytes(const ig_policy_shape *shape) {
    (void)shape;
    return 0;
}

static uint64_t window_bytes(const ig_policy *p, int n) {
    (void)p, (void)n;
    return 0;
}

const ig_policy_ops ig_policy_window = {
    .name = "window",
    .help = "use the first entries and the most recent ones (StreamingLLM)",
    .plan = window_plan,
    .open = window_open,
    .close = window_close,
    .is_dense = window_is_dense,
    .append = window_append,
    .select = window_select,
    .scratch_bytes = window_scratch_bytes,
    .bytes = window_bytes,
};
