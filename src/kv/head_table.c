/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables of heads: see head_table.h.
 */
#include "kv/head_table.h"

#include "base/error.h"
#include "base/memory.h"
#include "device/space.h"
#include "kv/table.h"

ig_status ig_head_table_open(ig_head_table *t, const char *what, size_t n_heads, size_t head_bytes, ig_error *err) {
    return ig_head_table_open_on(t, NULL, what, n_heads, head_bytes, err);
}

ig_status ig_head_table_open_on(ig_head_table *t, ig_device *dev, const char *what, size_t n_heads, size_t head_bytes,
                                ig_error *err) {
    size_t bytes;
    *t = (ig_head_table){.n_heads = n_heads, .head_bytes = head_bytes, .dev = dev};
    if (!ig_mul_size(&bytes, n_heads, head_bytes))
        return ig_fail(err, IG_E_LIMIT, "%s: %zu heads of %zu bytes are too much to be addressed", what, n_heads,
                       head_bytes);
    if (!bytes) return IG_OK;
    t->heads = ig_device_alloc(dev, IG_PLACE_HOST, bytes);
    return t->heads ? IG_OK : ig_fail_memory(err, what, bytes);
}

ig_status ig_head_table_open_copies(ig_head_table *t, ig_device *dev, const char *what, ig_error *err) {
    size_t bytes = t->n_heads * t->head_bytes;
    if (!bytes) return IG_OK;
    t->copies_on = dev;
    t->copies = ig_device_alloc(dev, IG_PLACE_DEVICE, bytes);
    return t->copies ? IG_OK : ig_table_fail_copies(err, what, bytes);
}

void ig_head_table_close(ig_head_table *t) {
    size_t bytes = t->n_heads * t->head_bytes;
    ig_device_free(t->copies_on, IG_PLACE_DEVICE, t->copies, bytes);
    ig_device_free(t->dev, IG_PLACE_HOST, t->heads, bytes);
    *t = (ig_head_table){0};
}
