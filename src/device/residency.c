/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies of blocks in a device's own memory: see residency.h.
 */
#include "device/residency.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"

enum { IDLE_STEPS = 2 /* that a block was not wanted in before its copy may go */ };

/* ---- sizes ----------------------------------------------------------------- */

static size_t count_blocks(const ig_residency_shape *s) {
    return (size_t)s->n_layers * (size_t)s->n_heads * s->table_len;
}

static size_t copy_bytes(const ig_residency_shape *s) { return ig_round_up(s->block_bytes + s->line_bytes, 16); }

static size_t count_copies(const ig_residency_shape *s) {
    uint64_t table = (uint64_t)count_blocks(s) * sizeof(uint8_t *);
    uint64_t n = s->max_bytes > table ? (s->max_bytes - table) / copy_bytes(s) : 0;
    return n < count_blocks(s) ? (size_t)n : count_blocks(s);
}

uint64_t ig_residency_bytes(const ig_residency_shape *s) {
    return (uint64_t)count_blocks(s) * sizeof(uint8_t *) + (uint64_t)count_copies(s) * copy_bytes(s);
}

/* ---- opening ---------------------------------------------------------------- */

ig_status ig_residency_open(ig_residency **out, const ig_residency_shape *s, ig_error *err) {
    ig_residency *r = calloc(1, sizeof *r);
    *out = NULL;
    if (!r) return ig_fail_memory(err, "copies of K and V", sizeof *r);
    r->shape = *s;
    r->n_tables = (size_t)s->n_layers * (size_t)s->n_heads;
    r->n_blocks = count_blocks(s);
    r->n_copies = count_copies(s);
    r->copy_bytes = copy_bytes(s);
    size_t n_heads = (size_t)s->n_heads, n_orders = n_heads * s->table_len;
    r->blocks = ig_pages_reserve(r->n_blocks * sizeof *r->blocks);
    r->owner = ig_pages_reserve(r->n_copies * sizeof *r->owner);
    r->orders = ig_pages_reserve(n_orders * sizeof *r->orders);
    r->tables = calloc(r->n_tables, sizeof *r->tables);
    r->n_orders = calloc(n_heads, sizeof *r->n_orders);
    r->found = calloc(n_heads, sizeof *r->found);
    if (!r->blocks || !r->owner || !r->orders || !r->tables || !r->n_orders || !r->found) {
        ig_residency_close(r);
        return ig_fail_memory(err, "copies of K and V", count_blocks(s) * IG_RESIDENCY_BLOCK_BYTES);
    }
    r->step = 1;
    ig_residency_share_out(r, s->n_dense_layers);
    *out = r;
    return IG_OK;
}

void ig_residency_close(ig_residency *r) {
    if (!r) return;
    ig_pages_release(r->blocks, r->n_blocks * sizeof *r->blocks);
    ig_pages_release(r->owner, r->n_copies * sizeof *r->owner);
    ig_pages_release(r->orders, (size_t)r->shape.n_heads * r->shape.table_len * sizeof *r->orders);
    free(r->tables);
    free(r->n_orders);
    free(r->found);
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
    for (size_t b = 0; b < r->n_blocks; b++)
        if (r->blocks[b].copy) ig_residency_forget(r, b);
}

/* ---- copies ------------------------------------------------------------------- */

/* A copy of the table's that nothing needs, plus one; 0: there is none. */
static uint32_t find_copy(ig_residency *r, ig_resident_table *t) {
    if (t->n_fresh < t->n) return t->first + ++t->n_fresh;
    if (t->swept != r->step) t->swept = r->step, t->looks = t->n;
    while (t->looks) {
        uint32_t copy = t->first + t->hand + 1;
        ig_resident *b = &r->blocks[r->owner[copy - 1]];
        t->looks--;
        t->hand = t->hand + 1 < t->n ? t->hand + 1 : 0;
        if (b->copy != copy) return copy;
        if (b->used + IDLE_STEPS >= r->step) continue;
        b->copy = 0;
        return copy;
    }
    return 0;
}

/* A table that is being read. */
typedef struct touching {
    ig_residency *r;
    const ig_kv_view *view;
    int head;
    size_t first; /* block of the table */
    ig_touch_time when;
} touching;

static void order(const touching *t, const uint8_t *from, size_t block, uint32_t copy) {
    ig_residency *r = t->r;
    ig_copy_order *list = r->orders + (size_t)t->head * r->shape.table_len;
    list[r->n_orders[t->head]++] = (ig_copy_order){from, (uint32_t)block, copy};
    r->blocks[block].told = copy ? ig_copy_address(r, copy) : from;
}

static const uint8_t *address(const ig_kv_view *v, size_t number, int in_sequence) {
    return v->blocks[v->is_staged ? (size_t)(in_sequence - v->block_base) : number];
}

/* Whether n more rows in place would be more than a copy costs. What is read in place in a step stays so in that step,
 * lest the device be told of two places at once. */
static bool is_worth(const touching *t, const ig_resident *b, int n) {
    return b->paid + (uint32_t)n >= (uint32_t)1 << t->view->shift && b->used != t->r->step;
}

/* n rows of block number i of the sequence. */
static void touch_block(const touching *t, int i, int n) {
    ig_residency *r = t->r;
    ig_kv_traffic *found = &r->found[t->head];
    size_t number = t->view->number ? t->view->number[i] : (size_t)i, block = t->first + number;
    size_t bytes = r->shape.block_bytes + r->shape.line_bytes;
    ig_resident *b = &r->blocks[block];
    const uint8_t *home = address(t->view, number, i);
    if (b->copy) {
        b->used = r->step;
        found->hits += t->when != IG_TOUCH_AHEAD;
        return;
    }
    uint32_t copy = home && is_worth(t, b, n) ? find_copy(r, &r->tables[t->view->table]) : 0;
    bool in_place = t->when == IG_TOUCH_AFTER || (t->when == IG_TOUCH_NOW && !copy);
    if (in_place) {
        b->used = r->step;
        b->paid += (uint32_t)n;
        found->rows += (uint64_t)n;
        found->bytes += (bytes * (size_t)n) >> t->view->shift;
    }
    if (copy) {
        b->copy = copy;
        b->used = r->step;
        b->paid = 0;
        r->owner[copy - 1] = (uint32_t)block;
        order(t, home, block, copy);
        found->copied++;
        found->bytes += bytes;
    } else if (in_place && b->told != home) {
        order(t, home, block, 0);
    }
}

static void touch_view(const touching *t, int begin, int end) {
    const ig_kv_view *v = t->view;
    for (int i = begin, n; i < end; i += n) {
        int slot = v->index ? v->index[i] : v->first + i, block = slot >> v->shift;
        n = 1;
        if (!v->index) n = ((block + 1) << v->shift) - slot;
        if (n > end - i) n = end - i;
        while (v->index && i + n < end && v->index[i + n] >> v->shift == block) n++;
        touch_block(t, block, n);
    }
}

void ig_residency_begin(ig_residency *r, int layer) {
    if (layer < r->last_layer) r->step++;
    r->last_layer = layer;
}

static void start(ig_residency *r, int head) {
    r->n_orders[head] = 0;
    r->found[head] = (ig_kv_traffic){0};
}

void ig_residency_touch(ig_residency *r, const ig_kv_view *views, int n_views, int head, int begin, int end,
                        ig_touch_time when) {
    int n_heads = r->shape.n_heads;
    start(r, head);
    for (int v = head * n_views / n_heads; v < (head + 1) * n_views / n_heads; v++) {
        const ig_kv_view *view = &views[v];
        touching t = {r, view, head, view->table * r->shape.table_len, when};
        touch_view(&t, begin, end < view->n ? end : view->n);
    }
}

static void tell_view(const touching *t) {
    const ig_kv_view *v = t->view;
    for (int i = 0, n = (v->n_slots + (1 << v->shift) - 1) >> v->shift; i < n; i++) {
        size_t number = v->number ? v->number[i] : (size_t)i;
        const ig_resident *b = &t->r->blocks[t->first + number];
        const uint8_t *home = address(v, number, i);
        if (!b->copy && b->told != home) order(t, home, t->first + number, 0);
    }
}

void ig_residency_tell(ig_residency *r, const ig_kv_view *views, int n_views, int head) {
    int n_heads = r->shape.n_heads;
    start(r, head);
    for (int v = head * n_views / n_heads; v < (head + 1) * n_views / n_heads; v++) {
        touching t = {r, &views[v], head, views[v].table * r->shape.table_len, IG_TOUCH_NOW};
        tell_view(&t);
    }
}
