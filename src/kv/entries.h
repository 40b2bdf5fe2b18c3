/* SPDX-License-Identifier: Apache-2.0
 *
 * What policies know of the KV store: which entries there are, by the slots they lie in.
 */
#ifndef IG_KV_ENTRIES_H
#define IG_KV_ENTRIES_H

#include <stdbool.h>
#include <stdint.h>

/* What a KV head of a layer holds, in order of position. */
typedef struct ig_entries {
    const int32_t *slot; /* [n] where each lies; NULL: entry i lies in slot i */
    int n;
    int n_slots;  /* all lie in slots below this */
    bool has_own; /* the last one is the token that the queries are of */
    bool narrow;  /* the queries are what ig_policy_ops.narrow's weights make of the layer's input */
} ig_entries;

static inline int ig_entry_slot(const ig_entries *e, int i) { return e->slot ? e->slot[i] : i; }

#endif
