/* SPDX-License-Identifier: Apache-2.0
 *
 * The names of the types of keys and values.
 */
#include "base/kv_type.h"

#include <string.h>

#include "base/error.h"

static const char *const names[IG_KV_TYPES] = {
    [IG_KV_F16] = "f16", [IG_KV_Q8] = "q8", [IG_KV_Q4] = "q4", [IG_KV_Q2] = "q2", [IG_KV_Q1] = "q1"};

ig_status ig_kv_type_parse(ig_kv_type *out, const char *name, ig_error *err) {
    for (int i = 0; i < IG_KV_TYPES; i++)
        if (!name || strcmp(names[i], name) == 0) {
            *out = (ig_kv_type)i;
            return IG_OK;
        }
    return ig_fail(err, IG_E_ARG, "KV type '%s' is unknown; there are: f16, q8, q4, q2, q1", name);
}

const char *ig_kv_type_name(ig_kv_type type) { return names[type]; }
