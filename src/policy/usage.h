/* SPDX-License-Identifier: Apache-2.0
 *
 * How much use entries were of, for dropping the least useful ones (ig_memory_options.limit; the paper's section 4.4):
 *
 *   fifo     nothing is kept: the oldest goes
 *   lru      the position at which each was last selected, or came; the smallest goes
 *   counter  how often each was selected; when a count reaches 255 all of that KV head are halved; the smallest goes
 *
 * Of equal ones the oldest goes. Heads are numbered over all layers; different heads may come from different threads.
 */
#ifndef IG_POLICY_USAGE_H
#define IG_POLICY_USAGE_H

#include "kv/entries.h"
#include "kv/evict.h"
#include "kv/head_table.h"

typedef struct ig_usage {
    ig_evict_rule rule;
    size_t n_slots; /* of a head */
    /* A word, the step that selected last, and [2][n_slots] counts (`counter`, 8 bits) or positions (`lru`, 32 bits):
     * now, and before that step. */
    ig_head_table heads;
    uint32_t step;
} ig_usage;

uint64_t ig_usage_plan(ig_evict_rule rule, size_t n_heads, size_t n_slots);
ig_status ig_usage_open(ig_usage *u, ig_evict_rule rule, size_t n_heads, size_t n_slots, ig_error *err);
void ig_usage_close(ig_usage *u);

/* An entry came to lie in the slot, at position `now`. */
void ig_usage_come(ig_usage *u, size_t head, int slot, uint32_t now);
/* The entries in these slots were selected by the query at position `now`. */
void ig_usage_select(ig_usage *u, size_t head, const int32_t *slots, int n, uint32_t now);
/* The step of these calls is over: it has failed, and what it selected was not selected, or it holds. */
void ig_usage_settle(ig_usage *u, bool failed);
/* How much each entry is worth keeping, value [e->n]. */
void ig_usage_value(const ig_usage *u, size_t head, const ig_entries *e, float *value);

#endif
