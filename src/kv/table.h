/* SPDX-License-Identifier: Apache-2.0
 *
 * What policies keep of the tokens beside K and V: so many bytes for each unit of 16 consecutive slots of each KV head
 * of each layer, in tables of a memory (memory.h). The units of a piece are found by its number, so that what
 * sequences share of K and V they share of the tables as well. Address space for all is reserved at open; physical
 * memory is taken as it is first written, so that heads of dense layers, and tokens that do not come, cost nothing.
 *
 * Sequences whose policies keep the same thing use the same table; `kind` says what it is.
 */
#ifndef IG_KV_TABLE_H
#define IG_KV_TABLE_H

#include <stdatomic.h>

#include "device/device.h"

enum { IG_UNIT_SHIFT = 4, IG_UNIT_SLOTS = 1 << IG_UNIT_SHIFT };

struct ig_kv_memory;
struct ig_kv_table; /* of a memory, or of one policy alone */

/* Where the units of a sequence lie. */
typedef struct ig_kv_home {
    struct ig_kv_memory *memory; /* NULL: in tables of the policy's own, unit i is number i */
    const uint32_t *pieces;      /* of the sequence, as they come and go */
    const uint32_t *n_replaced;  /* how often one of them has taken the place of another */
    int shift;                   /* units of a piece: 1 << shift */
} ig_kv_home;

/* What a sequence knows of a head: units before `first` have copies, as long as `state` is what it was. */
typedef struct ig_unit_mark {
    atomic_int first;
    uint32_t state;
} ig_unit_mark;

/* A sequence's view of a table. */
typedef struct ig_unit_table {
    struct ig_kv_table *table;
    uint8_t *heads;  /* [n_heads][n_units][unit_bytes], zero at first */
    uint8_t *copies; /* [n_used][n_units][unit_bytes] in a device's own memory, for heads that are used; or NULL */
    atomic_uchar *brought; /* [n_heads][n_units] with copies: 1: the device has the unit as it is here */
    ig_unit_mark *marks;   /* [n_heads] with copies */
    size_t n_units, unit_bytes;
    ig_kv_home home;
} ig_unit_table;

/* What a table is to be. */
typedef struct ig_table_plan {
    const char *what; /* for the error */
    uint64_t kind;
    size_t n_heads, unit_bytes;
    size_t n_used;        /* heads that will ever be written */
    int n_slots;          /* most of a sequence */
    ig_device *copies_on; /* a device whose operations read units, and that has room for copies; NULL: there is none */
} ig_table_plan;

/* The table of this kind in the home's memory, as it is or made now. */
ig_status ig_unit_table_open(ig_unit_table *t, const ig_kv_home *home, const ig_table_plan *plan, ig_error *err);
/* A GPU has no room for copies of what it is to choose by. */
ig_status ig_table_fail_copies(ig_error *err, const char *what, size_t n_bytes);
/* Harmless on a zeroed or closed one. */
void ig_unit_table_close(ig_unit_table *t);

/* Whether the table has what belongs to a full piece; in tables of a memory. */
bool ig_unit_table_has(const ig_unit_table *t, uint32_t piece);
void ig_unit_table_note(const ig_unit_table *t, uint32_t piece);

static inline size_t ig_unit_number(const ig_kv_home *h, int unit) {
    if (!h->memory) return (size_t)unit;
    return ((size_t)h->pieces[unit >> h->shift] << h->shift) + (size_t)(unit & ((1 << h->shift) - 1));
}

/* Where a unit of a head lies. */
static inline const void *ig_unit_table_at(const ig_unit_table *t, size_t head, int unit) {
    return t->heads + (head * t->n_units + ig_unit_number(&t->home, unit)) * t->unit_bytes;
}

/* The same to write there: what a device has of the unit is old then. */
static inline void *ig_unit_table_edit(const ig_unit_table *t, size_t head, int unit) {
    size_t at = head * t->n_units + ig_unit_number(&t->home, unit);
    if (t->brought) {
        atomic_int *first = &t->marks[head].first;
        atomic_store_explicit(&t->brought[at], 0, memory_order_relaxed);
        if (unit < atomic_load_explicit(first, memory_order_relaxed))
            atomic_store_explicit(first, 0, memory_order_relaxed);
    }
    return t->heads + at * t->unit_bytes;
}

/* The first n units of a head, number `used` of those that are used, for a device: from the first one on that it does
 * not have as it is they are to be brought, and count as brought. Several threads may ask, each of other heads. */
ig_units ig_unit_table_bring(const ig_unit_table *t, size_t head, size_t used, int n);

/* How many of the n units from `unit` on lie side by side: 1 or more. */
int ig_unit_run(const ig_kv_home *h, int unit, int n);

#endif
