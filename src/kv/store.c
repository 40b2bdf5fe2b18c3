/* SPDX-License-Identifier: Apache-2.0
 *
 * Block tables over the frame pool.
 */
#include "kv/store.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"

struct ig_kv {
    ig_kv_shape shape;
    int shift;        /* tokens of a block: 1 << shift */
    size_t row_bytes; /* of one key or value */
    size_t n_tables;  /* layers x KV heads */
    size_t table_len; /* blocks of a full table */
    int length;       /* tokens */
    uint8_t **tables; /* [n_layers][n_kv_heads][table_len] */
    ig_kv_pool pool;
};

/* The most tokens, a power of two, whose K and V fit one frame. */
static int block_shift(int head_dim) {
    int shift = 0;
    while (((size_t)2 << shift) * (size_t)head_dim * 4 <= IG_FRAME_BYTES) shift++;
    return shift;
}

static bool count(const ig_kv_shape *s, size_t *n_tables, size_t *table_len, size_t *n_blocks) {
    size_t tokens = (size_t)1 << block_shift(s->head_dim);
    *table_len = ((size_t)s->n_ctx + tokens - 1) / tokens;
    return ig_mul_size(n_tables, (size_t)s->n_layers, (size_t)s->n_kv_heads) &&
           ig_mul_size(n_blocks, *n_tables, *table_len);
}

bool ig_kv_plan(uint64_t *bytes, const ig_kv_shape *shape) {
    size_t n_tables, table_len, n_blocks, b;
    if (!count(shape, &n_tables, &table_len, &n_blocks)) return false;
    if (!ig_mul_size(&b, n_blocks, IG_FRAME_BYTES + sizeof(uint8_t *))) return false;
    *bytes = b;
    return true;
}

ig_status ig_kv_open(ig_kv **out, const ig_kv_shape *shape, ig_error *err) {
    *out = NULL;
    if (shape->head_dim < 8 || shape->head_dim > 512 || shape->head_dim % 8)
        return ig_fail(err, IG_E_UNSUPPORTED, "head dimension %d: need a multiple of 8, at most 512", shape->head_dim);
    size_t n_blocks, table_bytes;
    ig_kv *kv = calloc(1, sizeof *kv);
    if (!kv) return ig_fail_memory(err, "KV store", sizeof *kv);
    kv->shape = *shape;
    kv->shift = block_shift(shape->head_dim);
    kv->row_bytes = (size_t)shape->head_dim * sizeof(uint16_t);
    ig_status s;
    if (!count(shape, &kv->n_tables, &kv->table_len, &n_blocks) ||
        !ig_mul_size(&table_bytes, n_blocks, sizeof *kv->tables)) {
        s = ig_fail(err, IG_E_LIMIT, "KV cache for %d tokens: too large to be addressed", shape->n_ctx);
        goto fail;
    }
    s = ig_kv_pool_open(&kv->pool, n_blocks, err);
    if (s) goto fail;
    kv->tables = ig_pages_reserve(table_bytes);
    if (!kv->tables) {
        s = ig_fail_memory(err, "KV block tables", table_bytes);
        goto fail;
    }
    *out = kv;
    return IG_OK;
fail:
    ig_kv_close(kv);
    return s;
}

void ig_kv_close(ig_kv *kv) {
    if (!kv) return;
    ig_pages_release(kv->tables, kv->n_tables * kv->table_len * sizeof *kv->tables);
    ig_kv_pool_close(&kv->pool);
    free(kv);
}

static size_t blocks_for(const ig_kv *kv, int n) { return ((size_t)n + ((size_t)1 << kv->shift) - 1) >> kv->shift; }

void ig_kv_resize(ig_kv *kv, int n) {
    size_t old = blocks_for(kv, kv->length), now = blocks_for(kv, n);
    for (size_t t = 0; t < kv->n_tables && old != now; t++) {
        uint8_t **table = kv->tables + t * kv->table_len;
        for (size_t b = old; b < now; b++) table[b] = ig_kv_pool_take(&kv->pool);
        for (size_t b = now; b < old; b++) ig_kv_pool_give(&kv->pool, table[b]);
    }
    kv->length = n;
}

int ig_kv_length(const ig_kv *kv) { return kv->length; }

static uint8_t *const *table_of(const ig_kv *kv, int layer, int head) {
    return kv->tables + ((size_t)layer * (size_t)kv->shape.n_kv_heads + (size_t)head) * kv->table_len;
}

static uint8_t *row(const ig_kv *kv, int layer, int head, int token) {
    size_t slot = (size_t)token & (((size_t)1 << kv->shift) - 1);
    return table_of(kv, layer, head)[token >> kv->shift] + slot * kv->row_bytes;
}

uint16_t *ig_kv_key(ig_kv *kv, int layer, int head, int token) {
    return (uint16_t *)(void *)row(kv, layer, head, token);
}

uint16_t *ig_kv_value(ig_kv *kv, int layer, int head, int token) {
    return (uint16_t *)(void *)(row(kv, layer, head, token) + (kv->row_bytes << kv->shift));
}

ig_kv_view ig_kv_fetch(const ig_kv *kv, int layer, int head, const int32_t *index, int first, int n) {
    return (ig_kv_view){
        .blocks = (const uint8_t *const *)table_of(kv, layer, head),
        .shift = kv->shift,
        .row_bytes = kv->row_bytes,
        .v_offset = kv->row_bytes << kv->shift,
        .index = index,
        .first = first,
        .n = n,
    };
}

uint64_t ig_kv_bytes(const ig_kv *kv) {
    return ig_kv_pool_taken(&kv->pool) * IG_FRAME_BYTES + kv->n_tables * blocks_for(kv, kv->length) * sizeof *kv->tables;
}
