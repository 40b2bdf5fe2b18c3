/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the entries of one KV head of one layer lie once some were dropped for ever: a list of slots in order of
 * position, and the slots that are free again. Until then entry i lies in slot i and nothing is written here.
 */
#ifndef IG_KV_SLOTS_H
#define IG_KV_SLOTS_H

#include <stdint.h>

typedef struct ig_slots {
    int32_t *order; /* [capacity] slots of the entries */
    int32_t *spare; /* [capacity] a stack of free slots below n_slots */
    int n, n_spare;
    int n_slots;   /* n + n_spare */
    int n_dropped; /* entries; 0: what is above does not count */
    uint64_t lost; /* entries dropped since the store was opened */
} ig_slots;

/* Of n entries those numbered index [n_kept], ascending, stay; the slots of the others are free. n_kept < n; n is that
 * of `s` unless this is the first drop. */
void ig_slots_keep(ig_slots *s, int n, const int32_t *index, int n_kept);
/* Of n entries number i is dropped; as above. */
void ig_slots_drop(ig_slots *s, int n, int i);
/* n_slots after n_new more entries; entries were dropped before. */
int ig_slots_after(const ig_slots *s, int n_new);
/* Adds entries at the end, in free slots as far as there are any. */
void ig_slots_add(ig_slots *s, int n_new);
/* Numbers the slots anew, so that none is free: move(user, from, to) is called for each entry that changes its slot;
 * `to` is free before. */
typedef void (*ig_slots_move_fn)(void *user, int from, int to);
void ig_slots_pack(ig_slots *s, ig_slots_move_fn move, void *user);
/* Holds nothing, and has dropped nothing. */
void ig_slots_clear(ig_slots *s);

#endif
