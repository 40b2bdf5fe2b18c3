/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies of blocks in a device's own memory, the host's part: see residency.h.
 */
#include "device/residency.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* ---- sizes ----------------------------------------------------------------- */

/* All but how many copies there are. */
static ig_residency measure(const ig_residency_shape *s) {
    size_t n_tables = (size_t)s->n_layers * (size_t)s->n_heads;
    return (ig_residency){.shape = *s,
                          .n_tables = n_tables,
                          .n_blocks = n_tables * s->table_len,
                          .n_wants = IG_WANTS * s->table_len,
                          .copy_bytes = ig_round_up(s->block_bytes + s->line_bytes, 16)};
}

void ig_residency_lay_out(ig_residency *r, ig_arena *a) {
    ig_resident_books *b = &r->books;
    b->copies = ig_arena_take(a, r->n_copies * r->copy_bytes);
    b->where = ig_arena_take(a, r->n_blocks * sizeof *b->where);
    b->blocks = ig_arena_take(a, r->n_blocks * sizeof *b->blocks);
    b->tables = ig_arena_take(a, r->n_tables * sizeof *b->tables);
    b->owner = ig_arena_take(a, r->n_copies * sizeof *b->owner);
    b->wanted = ig_arena_take(a, (size_t)r->shape.n_heads * r->n_wants * sizeof *b->wanted);
    b->orders = ig_arena_take(a, (size_t)r->shape.n_heads * r->shape.table_len * sizeof *b->orders);
}

static size_t books_bytes(ig_residency *r) {
    ig_arena a = {0};
    ig_residency_lay_out(r, &a);
    return a.used;
}

static void count_copies(ig_residency *r) {
    uint64_t without = books_bytes(r), most = r->shape.max_bytes;
    uint64_t n = most > without ? (most - without) / (r->copy_bytes + sizeof *r->books.owner) : 0;
    r->n_copies = n < r->n_blocks ? (size_t)n : r->n_blocks;
    while (r->n_copies && books_bytes(r) > most) r->n_copies--; /* for the sake of alignment */
}

uint64_t ig_residency_bytes(const ig_residency_shape *s) {
    ig_residency r = measure(s);
    count_copies(&r);
    return books_bytes(&r);
}

/* ---- opening ---------------------------------------------------------------- */

ig_status ig_residency_open(ig_residency **out, const ig_residency_shape *s, ig_error *err) {
    ig_residency *r = malloc(sizeof *r);
    *out = NULL;
    if (!r) return ig_fail_memory(err, "copies of K and V", sizeof *r);
    *r = measure(s);
    count_copies(r);
    r->written = ig_pages_reserve(r->n_blocks);
    r->has_written = calloc(r->n_tables, 1);
    r->tables = calloc(r->n_tables, sizeof *r->tables);
    if (!r->written || !r->has_written || !r->tables) {
        size_t n_bytes = r->n_blocks * IG_RESIDENCY_BLOCK_BYTES;
        ig_residency_close(r);
        return ig_fail_memory(err, "copies of K and V", n_bytes);
    }
    r->step = 1;
    ig_residency_share_out(r, s->n_dense_layers);
    *out = r;
    return IG_OK;
}

void ig_residency_close(ig_residency *r) {
    if (!r) return;
    ig_pages_release(r->written, r->n_blocks);
    free(r->has_written);
    free(r->tables);
    free(r);
}

/* Tables of dense layers get a copy of each block, if that leaves half of all copies for the others. */
void ig_residency_share_out(ig_residency *r, int n_dense_layers) {
    r->shape.n_dense_layers = n_dense_layers;
    size_t len = r->shape.table_len, n_dense = (size_t)n_dense_layers * (size_t)r->shape.n_heads;
    if (n_dense >= r->n_tables || n_dense * len > r->n_copies / 2) n_dense = 0;
    size_t left = r->n_copies - n_dense * len, n_sparse = r->n_tables - n_dense, first = 0;
    for (size_t t = 0; t < r->n_tables; t++) {
        size_t n = t < n_dense ? len : left / n_sparse + (t - n_dense < left % n_sparse);
        if (n > len) n = len;
        r->tables[t] = (ig_resident_table){.first = (uint32_t)first, .n = (uint32_t)n};
        first += n;
    }
    r->is_new = true;
}

/* ---- what the device is told ---------------------------------------------------- */

void ig_residency_forget(ig_residency *r, size_t block) {
    r->written[block] = 1;
    __atomic_store_n(&r->has_written[block / r->shape.table_len], 1, __ATOMIC_RELAXED);
}

int ig_residency_take_written(ig_residency *r, int layer) {
    size_t n_heads = (size_t)r->shape.n_heads, len = r->shape.table_len, first = (size_t)layer * n_heads;
    int *n = &r->n_told;
    for (size_t t = first; t < first + n_heads; t++) {
        if (!r->has_written[t]) continue;
        uint8_t *table = r->written + t * len, *end = table + len;
        for (uint8_t *at = table; *n < IG_RESIDENCY_TOLD && (at = memchr(at, 1, (size_t)(end - at))) != NULL; *at = 0)
            r->told[(*n)++] = (uint32_t)(at - r->written);
        if (*n == IG_RESIDENCY_TOLD) return *n;
        r->has_written[t] = 0;
    }
    return *n;
}

void ig_residency_begin(ig_residency *r, int layer) {
    if (layer < r->last_layer && layer <= r->first_layer) r->step++, r->first_layer = layer;
    r->last_layer = layer;
}
