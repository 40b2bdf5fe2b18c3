/* SPDX-License-Identifier: Apache-2.0
 *
 * The slot table. A free slot is found by memchr over one byte per slot, some 10 GB/s, which makes a smarter structure
 * needless: the table of a 100 GB file is 25 MB, and the search for a gap looks at a few places per call only.
 */
#include "kv/tier_disk_slots.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"

enum { GAPS_TRIED = 64 }; /* per search: a file full of small holes must not slow every write down */

bool ig_slot_table_plan(size_t *n_bytes, size_t n_slots) {
    return ig_mul_size(n_bytes, n_slots, sizeof(uint64_t) + sizeof(uint16_t) + sizeof(uint8_t));
}

ig_status ig_slot_table_open(ig_slot_table *t, size_t n_slots, ig_error *err) {
    size_t n_bytes;
    *t = (ig_slot_table){0};
    if (n_slots > UINT32_MAX || !ig_slot_table_plan(&n_bytes, n_slots))
        return ig_fail(err, IG_E_LIMIT, "KV spill file: %zu blocks are more than can be addressed", n_slots);
    t->n_slots = n_slots;
    t->checksum = ig_pages_reserve(n_slots * sizeof *t->checksum);
    t->n_moving = ig_pages_reserve(n_slots * sizeof *t->n_moving);
    t->state = ig_pages_reserve(n_slots * sizeof *t->state);
    if (t->checksum && t->n_moving && t->state) return IG_OK;
    ig_slot_table_close(t);
    return ig_fail_memory(err, "table of the KV spill file", n_bytes);
}

void ig_slot_table_close(ig_slot_table *t) {
    ig_pages_release(t->checksum, t->n_slots * sizeof *t->checksum);
    ig_pages_release(t->n_moving, t->n_slots * sizeof *t->n_moving);
    ig_pages_release(t->state, t->n_slots * sizeof *t->state);
    *t = (ig_slot_table){0};
}

/* The first free slot in [from, end), or end. */
static size_t next_free(const ig_slot_table *t, size_t from, size_t end) {
    const uint8_t *p = from < end ? memchr(t->state + from, IG_SLOT_FREE, end - from) : NULL;
    return p ? (size_t)(p - t->state) : end;
}

/* A gap of n slots: *at, else false. Goes on where the last search ended, once around. */
static bool find_gap(ig_slot_table *t, size_t *at, size_t n) {
    size_t i = t->cursor < t->end ? t->cursor : 0;
    bool wrapped = i == 0;
    for (int tries = 0; t->n_free >= n && tries < GAPS_TRIED; tries++) {
        i = next_free(t, i, t->end);
        size_t j = i;
        while (j < t->end && j - i < n && t->state[j] == IG_SLOT_FREE) j++;
        if (j - i == n) {
            *at = i;
            t->cursor = j;
            return true;
        }
        i = j;
        if (i == t->end) {
            if (wrapped) break;
            wrapped = true;
            i = 0;
        }
    }
    t->cursor = i;
    return false;
}

bool ig_slot_table_find(ig_slot_table *t, ig_slot *slots, size_t n, size_t limit) {
    size_t at;
    if (n > t->n_free + (limit - t->end)) return false;
    if (find_gap(t, &at, n)) {
        for (size_t i = 0; i < n; i++) slots[i] = (ig_slot)(at + i);
        return true;
    }
    size_t i = 0, from = 0;
    if (n > limit - t->end)
        for (; i < n && (from = next_free(t, from, t->end)) < t->end; i++) slots[i] = (ig_slot)from++;
    for (size_t k = 0; i < n; i++, k++) slots[i] = (ig_slot)(t->end + k);
    return true;
}

void ig_slot_table_take(ig_slot_table *t, const ig_slot *slots, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (slots[i] >= t->end)
            t->end = (size_t)slots[i] + 1;
        else
            t->n_free--;
        t->state[slots[i]] = IG_SLOT_WRITING;
    }
}

void ig_slot_table_give(ig_slot_table *t, ig_slot slot) {
    t->state[slot] = IG_SLOT_FREE;
    t->n_free++;
    for (; t->end > 0 && t->state[t->end - 1] == IG_SLOT_FREE; t->end--) t->n_free--;
}
