/* SPDX-License-Identifier: Apache-2.0
 *
 * `window`: the first entries (attention sinks) and the most recent ones, nothing between (StreamingLLM, Xiao et al.
 * 2023). The budget counts both; what lies between stays in the store but is never used again.
 */
#include "policy/policy.h"

/* Position alone decides. */
static void window_choose(ig_policy *p, ig_choosing *x, int part) {
    int n = x->e.n, count = ig_policy_count(p, n), sinks = p->options.n_sinks;
    (void)part;
    x->n = n;
    if (ig_policy_has_room(p, n)) return;
    x->n = count;
    for (int i = 0; i < count; i++) x->index[i] = i < sinks ? i : n - count + i;
    ig_policy_name_slots(x);
}

const ig_policy_ops ig_policy_window = {
    .info = {.name = "window", .help = "use the first entries and the most recent ones (StreamingLLM)"},
    .takes_limit = true,
    .size = sizeof(ig_policy),
    .takes_all = ig_policy_has_room,
    .stages = {{.run = window_choose}},
};
