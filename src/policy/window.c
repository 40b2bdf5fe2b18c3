/* SPDX-License-Identifier: Apache-2.0
 *
 * `window`: the first entries (attention sinks) and the most recent ones, nothing between (StreamingLLM, Xiao et al.
 * 2023). The budget counts both; what lies between stays in the store but is never used again.
 */
#include <stdlib.h>

#include "policy/policy.h"

static ig_status window_open(ig_policy **out, const ig_policy_shape *shape, const ig_cache_options *options,
                             ig_error *err) {
    return ig_policy_new(out, sizeof **out, &ig_policy_window, shape, options, err);
}

static void window_close(ig_policy *p) { free(p); }

static int window_select(ig_policy *p, int layer, int list, const float *q, const ig_entries *e, int32_t *index,
                         const ig_rest *rest, void *scratch) {
    (void)layer, (void)list, (void)q, (void)rest, (void)scratch; /* position alone decides */
    int n = e->n, count = ig_policy_count(p, n), sinks = p->options.n_sinks;
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
    .select = window_select,
};
