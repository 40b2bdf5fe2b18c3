/* SPDX-License-Identifier: Apache-2.0
 *
 * What a policy keeps beside K and V: so many bytes for each KV head (or query head) of each layer. Address space for
 * all heads is reserved at open; physical memory is taken as it is first written, so that heads of dense layers, and
 * tokens that do not come, cost nothing.
 */
#ifndef IG_KV_HEAD_TABLE_H
#define IG_KV_HEAD_TABLE_H

#include "device/device.h"

typedef struct ig_head_table {
    uint8_t *heads;  /* [n_heads][head_bytes], zero at first */
    uint8_t *copies; /* [n_heads][head_bytes] in a device's own memory, for its operations to read; or NULL */
    size_t n_heads, head_bytes;
    ig_device *dev, *copies_on;
} ig_head_table;

/* `what` it is, for the error. A table of no bytes needs no memory. */
ig_status ig_head_table_open(ig_head_table *t, const char *what, size_t n_heads, size_t head_bytes, ig_error *err);
/* One that operations of a device read. */
ig_status ig_head_table_open_on(ig_head_table *t, ig_device *dev, const char *what, size_t n_heads, size_t head_bytes,
                                ig_error *err);
/* Room for copies of an open one, which its user brings there. */
ig_status ig_head_table_open_copies(ig_head_table *t, ig_device *dev, const char *what, ig_error *err);
/* Harmless on a zeroed or closed one. */
void ig_head_table_close(ig_head_table *t);

static inline void *ig_head_table_at(const ig_head_table *t, size_t head) { return t->heads + head * t->head_bytes; }

#endif
