/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the ids of a text's tokens go.
 */
#ifndef IG_TOKEN_IDS_H
#define IG_TOKEN_IDS_H

#include "base/error.h"

typedef struct ig_ids {
    int32_t *ids;
    size_t n, cap;  /* n counts on past cap */
    bool is_capped; /* more than cap ids are an error */
    size_t n_lost;  /* bytes that no token stands for */
} ig_ids;

static inline void ig_ids_add(ig_ids *out, int32_t id) {
    if (out->n < out->cap) out->ids[out->n] = id;
    out->n++;
}

/* IG_E_LIMIT if there are more ids than there may be. */
static inline ig_status ig_ids_check(const ig_ids *out, ig_error *err) {
    if (!out->is_capped || out->n <= out->cap) return IG_OK;
    return ig_fail(err, IG_E_LIMIT, "the text has more than %zu tokens", out->cap);
}

#endif
