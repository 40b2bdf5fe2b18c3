/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of the disk tier's slots: which are free, what each holds, its checksum. Slots are handed out side by
 * side: from a gap that is long enough, else at the end, and only when there is no room left piece by piece.
 */
#ifndef IG_KV_TIER_DISK_SLOTS_H
#define IG_KV_TIER_DISK_SLOTS_H

#include "kv/tier.h"

enum { IG_SLOT_FREE, IG_SLOT_WRITING, IG_SLOT_STORED, IG_SLOT_FAILED };

typedef struct ig_slot_table {
    size_t n_slots;
    size_t end;         /* slots at and behind it were never used, or are free again */
    size_t n_free;      /* below the end */
    size_t cursor;      /* where the search for a gap goes on */
    uint8_t *state;     /* [n_slots] IG_SLOT_... */
    uint16_t *n_moving; /* [n_slots] transfers under way */
    uint64_t *checksum; /* [n_slots] */
} ig_slot_table;

/* RAM for n_slots, also what open takes; false if it cannot be counted. */
bool ig_slot_table_plan(size_t *n_bytes, size_t n_slots);
ig_status ig_slot_table_open(ig_slot_table *t, size_t n_slots, ig_error *err);
void ig_slot_table_close(ig_slot_table *t);

/* Picks n slots, as the head of this file says. No slot at or behind `limit` is used. False: there is no room.
 * Nothing changes until ig_slot_table_take(). */
bool ig_slot_table_find(ig_slot_table *t, ig_slot *slots, size_t n, size_t limit);
void ig_slot_table_take(ig_slot_table *t, const ig_slot *slots, size_t n);
void ig_slot_table_give(ig_slot_table *t, ig_slot slot);

#endif
