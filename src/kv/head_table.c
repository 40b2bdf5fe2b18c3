/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables of heads: see head_table.h.
 */
#include "kv/head_table.h"

#include "base/error.h"
#include "base/memory.h"

ig_status ig_head_table_open(ig_head_table *t, const char *what, size_t n_heads, size_t head_bytes, ig_error *err) {
    size_t bytes;
    *t = (ig_head_table){.n_heads = n_heads, .head_bytes = head_bytes};
    if (!ig_mul_size(&bytes, n_heads, head_bytes))
        return ig_fail(err, IG_E_LIMIT, "%s: %zu heads of %zu bytes are too much to be addressed", what, n_heads,
                       head_bytes);
    if (!bytes) return IG_OK;
    t->heads = ig_pages_reserve(bytes);
    return t->heads ? IG_OK : ig_fail_memory(err, what, bytes);
}

void ig_head_table_close(ig_head_table *t) {
    ig_pages_release(t->heads, t->n_heads * t->head_bytes);
    *t = (ig_head_table){0};
}
