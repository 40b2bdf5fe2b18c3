/* SPDX-License-Identifier: Apache-2.0
 *
 * `window`: the first entries (attention sinks) and the most recent ones, nothing between (StreamingLLM, Xiao et al.
 * 2023). The budget counts both; what lies between stays in the store but is never used again.
 */
#include <stdlib.h>

#include "base/error.h"
#include "policy/policy.h"

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

static int window_select(ig_policy *p, int layer, int list, const float *q, const ig_entries *e, int32_t *index,
                         void *scratch) {
    (void)layer, (void)list, (void)q, (void)scratch; /* position alone decides */
    int n = e->n, count = ig_policy_count(&p->options, n), sinks = p->options.n_sinks;
    if (count >= n) return n;
    for (int i = 0; i < count; i++) index[i] = i < sinks ? i : n - count + i;
    ig_policy_name_slots(index, count, e);
    return count;
}

const ig_policy_ops ig_policy_window = {
    .name = "window",
    .help = "use the first entries and the most recent ones (StreamingLLM)",
    .takes_limit = true,
    .open = window_open,
    .close = window_close,
    .is_dense = window_is_dense,
    .select = window_select,
};
