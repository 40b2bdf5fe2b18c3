/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables of units: see table.h.
 */
#include "kv/table.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "kv/memory_parts.h"

enum { TABLES_EACH = 4 }; /* of a sequence at most: a policy's two, and those of another that is to take over */

int ig_unit_run(const ig_kv_home *h, int unit, int n) {
    if (!h->memory) return n;
    int piece = unit >> h->shift, end = ((unit + n - 1) >> h->shift) + 1, at = piece + 1;
    while (at < end && h->pieces[at] == h->pieces[at - 1] + 1) at++;
    int run = (at << h->shift) - unit;
    return run < n ? run : n;
}

ig_status ig_table_fail_copies(ig_error *err, const char *what, size_t n_bytes) {
    return ig_fail(err, IG_E_MEMORY,
                   "%s: the GPU has no %zu bytes left for its copies; a smaller --kv-vram or context leaves more", what,
                   n_bytes);
}

static void release(ig_kv_table *t) {
    ig_pages_release(t->heads, t->n_heads * t->n_units * t->unit_bytes);
    ig_device_free(t->device, IG_PLACE_DEVICE, t->copies, t->n_used * t->n_units * t->unit_bytes);
    ig_pages_release((void *)t->brought, t->n_heads * t->n_units);
    ig_pages_release(t->written, t->n_pieces);
    *t = (ig_kv_table){0};
}

/* A table of n_units, of n_pieces of a memory. */
static ig_status make(ig_kv_table *t, const ig_table_plan *plan, size_t n_units, size_t n_pieces, ig_error *err) {
    size_t head_bytes, bytes;
    *t = (ig_kv_table){.n_heads = plan->n_heads,
                       .n_used = plan->n_used,
                       .n_units = n_units,
                       .unit_bytes = plan->unit_bytes,
                       .kind = plan->kind,
                       .n_pieces = n_pieces,
                       .device = plan->copies_on};
    if (!ig_mul_size(&head_bytes, n_units, plan->unit_bytes) || !ig_mul_size(&bytes, plan->n_heads, head_bytes))
        return ig_fail(err, IG_E_LIMIT, "%s: %zu heads of %zu units are too much to be addressed", plan->what,
                       plan->n_heads, n_units);
    t->heads = ig_pages_reserve(bytes);
    if (n_pieces) t->written = ig_pages_reserve(n_pieces);
    if (t->device) t->copies = ig_device_alloc(t->device, IG_PLACE_DEVICE, t->n_used * head_bytes);
    if (t->device) t->brought = ig_pages_reserve(t->n_heads * t->n_units);
    if (t->heads && (t->written || !n_pieces) && ((t->copies && t->brought) || !t->device)) return IG_OK;
    bool lacks_copies = t->heads && t->device && !t->copies;
    size_t copied = t->n_used * head_bytes;
    release(t);
    if (lacks_copies) return ig_table_fail_copies(err, plan->what, copied);
    return ig_fail_memory(err, plan->what, bytes);
}

/* A table of one policy alone. */
static ig_status make_alone(ig_kv_table **out, const ig_table_plan *plan, ig_error *err) {
    ig_kv_table *t = calloc(1, sizeof *t);
    if (!t) return ig_fail_memory(err, plan->what, sizeof *t);
    ig_status s = make(t, plan, ((size_t)plan->n_slots + IG_UNIT_SLOTS - 1) / IG_UNIT_SLOTS, 0, err);
    if (s)
        free(t);
    else
        *out = t;
    return s;
}

/* The one that is as planned, or one that is empty, after what nobody uses any more was given back. */
static ig_kv_table *find_table(ig_kv_memory *m, const ig_table_plan *plan) {
    ig_kv_table *empty = NULL;
    for (size_t i = 0; i < m->n_tables_used; i++) {
        ig_kv_table *t = &m->tables[i];
        if (t->heads && t->kind == plan->kind && t->n_heads == plan->n_heads && t->unit_bytes == plan->unit_bytes)
            return t;
    }
    for (size_t i = 0; i < m->n_tables_used; i++) {
        ig_kv_table *t = &m->tables[i];
        if (t->heads && !t->n_users) release(t);
        if (!t->heads && !empty) empty = t;
    }
    if (!empty && m->n_tables_used < m->most_tables) empty = &m->tables[m->n_tables_used++];
    return empty;
}

static ig_status share(ig_kv_table **out, ig_kv_memory *m, const ig_table_plan *plan, ig_error *err) {
    ig_kv_table *t = find_table(m, plan);
    if (!t) return ig_fail(err, IG_E_LIMIT, "sequences of one KV cache have too many policies that differ");
    ig_status s = t->heads ? IG_OK : make(t, plan, m->n_pieces << (m->piece_shift - IG_UNIT_SHIFT), m->n_pieces, err);
    if (s) return s;
    ig_kv_tables_enlarge(m);
    t->n_users++;
    *out = t;
    return IG_OK;
}

ig_status ig_unit_table_open(ig_unit_table *t, const ig_kv_home *home, const ig_table_plan *plan, ig_error *err) {
    *t = (ig_unit_table){.home = *home};
    ig_status s = home->memory ? share(&t->table, home->memory, plan, err) : make_alone(&t->table, plan, err);
    if (s) return s;
    t->heads = t->table->heads;
    t->copies = t->table->copies;
    t->brought = t->table->brought;
    t->n_units = t->table->n_units;
    t->unit_bytes = t->table->unit_bytes;
    if (t->brought) t->marks = calloc(plan->n_heads, sizeof *t->marks);
    if (!t->brought || t->marks) return IG_OK;
    ig_unit_table_close(t);
    return ig_fail_memory(err, plan->what, plan->n_heads * sizeof *t->marks);
}

void ig_unit_table_close(ig_unit_table *t) {
    if (t->table && !t->home.memory) {
        release(t->table);
        free(t->table);
    } else if (t->table && --t->table->n_users == 0 && !t->home.memory->shares) {
        release(t->table); /* else pieces that are kept may want it again */
    }
    free(t->marks);
    *t = (ig_unit_table){0};
}

/* A copy of a sequence's unit becomes old where the sequence writes to it, which ig_unit_table_edit() notes, and where
 * a piece becomes another, or is completed. A full piece that several own nobody writes to. */
static uint32_t state_of(const ig_unit_table *t) {
    return t->table->n_completed + (t->home.memory ? *t->home.n_replaced : 0);
}

/* Nearly all units have copies: the search goes on where it ended. */
ig_units ig_unit_table_bring(const ig_unit_table *t, size_t head, size_t used, int n) {
    size_t head_bytes = t->n_units * t->unit_bytes;
    atomic_uchar *brought = t->brought + head * t->n_units;
    ig_unit_mark *mark = &t->marks[head];
    uint32_t state = state_of(t);
    int fresh = mark->state == state ? atomic_load_explicit(&mark->first, memory_order_relaxed) : 0;
    if (fresh > n) fresh = n;
    while (fresh < n && atomic_load_explicit(&brought[ig_unit_number(&t->home, fresh)], memory_order_relaxed)) fresh++;
    atomic_store_explicit(&mark->first, fresh, memory_order_relaxed);
    mark->state = state;
    for (int i = fresh; i < n; i++)
        atomic_store_explicit(&brought[ig_unit_number(&t->home, i)], 1, memory_order_relaxed);
    return (ig_units){t->heads + head * head_bytes, t->copies + used * head_bytes, t->unit_bytes, fresh};
}

bool ig_unit_table_has(const ig_unit_table *t, uint32_t piece) { return t->table->written[piece]; }

void ig_unit_table_note(const ig_unit_table *t, uint32_t piece) { t->table->written[piece] = 1; }

/* ---- all of a memory ------------------------------------------------------------- */

ig_status ig_kv_tables_open(ig_kv_memory *m, ig_error *err) {
    m->most_tables = TABLES_EACH * m->n_sequences;
    m->tables = calloc(m->most_tables, sizeof *m->tables);
    return m->tables ? IG_OK : ig_fail_memory(err, "KV cache", m->most_tables * sizeof *m->tables);
}

void ig_kv_tables_close(ig_kv_memory *m) {
    for (size_t i = 0; i < m->n_tables_used; i++) release(&m->tables[i]);
    free(m->tables);
}

void ig_kv_tables_enlarge(ig_kv_memory *m) {
    if (m->n_fresh < m->n_pieces - m->n_pieces / 4) return;
    for (size_t i = 0; i < m->n_tables_used; i++) {
        ig_kv_table *t = &m->tables[i];
        if (t->heads && !t->is_large) ig_pages_make_large(t->heads, t->n_heads * t->n_units * t->unit_bytes);
        t->is_large = t->heads != NULL;
    }
}

size_t ig_kv_tables_piece_bytes(const ig_kv_memory *m) {
    size_t bytes = 0;
    for (size_t i = 0; i < m->n_tables_used; i++)
        if (m->tables[i].heads)
            bytes += m->tables[i].n_used * m->tables[i].unit_bytes << (m->piece_shift - IG_UNIT_SHIFT);
    return bytes;
}

void ig_kv_tables_forget(ig_kv_memory *m, uint32_t piece) {
    for (size_t i = 0; i < m->n_tables_used; i++)
        if (m->tables[i].written) m->tables[i].written[piece] = 0;
}

static void copy_units(const ig_kv_memory *m, const ig_kv_table *t, uint32_t from, uint32_t to) {
    size_t units = (size_t)1 << (m->piece_shift - IG_UNIT_SHIFT), piece_bytes = units * t->unit_bytes;
    for (size_t h = 0; h < t->n_heads; h++) {
        uint8_t *head = t->heads + h * t->n_units * t->unit_bytes;
        memcpy(head + to * piece_bytes, head + from * piece_bytes, piece_bytes);
        for (size_t u = 0; t->brought && u < units; u++)
            atomic_store_explicit(&t->brought[h * t->n_units + to * units + u], 0, memory_order_relaxed);
    }
}

void ig_kv_tables_copy(ig_kv_memory *m, uint32_t from, uint32_t to) {
    for (size_t i = 0; i < m->n_tables_used; i++)
        if (m->tables[i].heads) copy_units(m, &m->tables[i], from, to);
}

void ig_kv_tables_complete(ig_kv_memory *m, uint32_t from, uint32_t to) {
    for (size_t i = 0; i < m->n_tables_used; i++) {
        ig_kv_table *t = &m->tables[i];
        if (!t->heads || !t->written[from] || t->written[to]) continue;
        copy_units(m, t, from, to);
        t->n_completed++;
        t->written[to] = 1;
    }
}
