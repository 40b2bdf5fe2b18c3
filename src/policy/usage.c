/* SPDX-License-Identifier: Apache-2.0
 *
 * Use of entries: see usage.h. Positions are below 2^24, so that a float tells them apart.
 */
#include "policy/usage.h"

#include "base/error.h"
#include "base/memory.h"

static size_t slot_bytes(ig_evict_rule rule) {
    return rule == IG_EVICT_COUNTER ? sizeof(uint8_t) : rule == IG_EVICT_LRU ? sizeof(uint32_t) : 0;
}

uint64_t ig_usage_plan(ig_evict_rule rule, size_t n_heads, size_t n_slots) {
    return (uint64_t)n_heads * n_slots * slot_bytes(rule);
}

ig_status ig_usage_open(ig_usage *u, ig_evict_rule rule, size_t n_heads, size_t n_slots, ig_error *err) {
    *u = (ig_usage){.rule = rule, .n_heads = n_heads, .n_slots = n_slots};
    if (rule == IG_EVICT_FIFO) return IG_OK;
    size_t bytes = n_heads * n_slots * slot_bytes(rule);
    void *memory = ig_pages_reserve(bytes);
    if (!memory) return ig_fail_memory(err, "use of KV entries", bytes);
    if (rule == IG_EVICT_COUNTER)
        u->count = memory;
    else
        u->stamp = memory;
    return IG_OK;
}

void ig_usage_close(ig_usage *u) {
    ig_pages_release(u->count, u->n_heads * u->n_slots * sizeof *u->count);
    ig_pages_release(u->stamp, u->n_heads * u->n_slots * sizeof *u->stamp);
    *u = (ig_usage){0};
}

void ig_usage_come(ig_usage *u, size_t head, int slot, uint32_t now) {
    if (u->count) u->count[head * u->n_slots + (size_t)slot] = 0;
    if (u->stamp) u->stamp[head * u->n_slots + (size_t)slot] = now;
}

static void count_selected(uint8_t *count, size_t n_slots, const int32_t *slots, int n) {
    for (int i = 0; i < n; i++)
        if (++count[slots[i]] == UINT8_MAX)
            for (size_t s = 0; s < n_slots; s++) count[s] /= 2;
}

void ig_usage_select(ig_usage *u, size_t head, const int32_t *slots, int n, uint32_t now) {
    if (u->count) count_selected(u->count + head * u->n_slots, u->n_slots, slots, n);
    for (int i = 0; u->stamp && i < n; i++) u->stamp[head * u->n_slots + (size_t)slots[i]] = now;
}

void ig_usage_value(const ig_usage *u, size_t head, const ig_entries *e, float *value) {
    for (int i = 0; i < e->n; i++) {
        size_t at = head * u->n_slots + (size_t)(e->slot ? e->slot[i] : i);
        value[i] = u->count ? (float)u->count[at] : u->stamp ? (float)u->stamp[at] : 0;
    }
}
