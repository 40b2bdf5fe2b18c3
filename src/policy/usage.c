/* SPDX-License-Identifier: Apache-2.0
 *
 * Use of entries: see usage.h. Positions are below 2^24, so that a float tells them apart.
 */
#include "policy/usage.h"

static size_t slot_bytes(ig_evict_rule rule) {
    return rule == IG_EVICT_COUNTER ? sizeof(uint8_t) : rule == IG_EVICT_LRU ? sizeof(uint32_t) : 0;
}

uint64_t ig_usage_plan(ig_evict_rule rule, size_t n_heads, size_t n_slots) {
    return (uint64_t)n_heads * n_slots * slot_bytes(rule);
}

ig_status ig_usage_open(ig_usage *u, ig_evict_rule rule, size_t n_heads, size_t n_slots, ig_error *err) {
    *u = (ig_usage){.rule = rule, .n_slots = n_slots};
    return ig_head_table_open(&u->heads, "use of KV entries", n_heads, n_slots * slot_bytes(rule), err);
}

void ig_usage_close(ig_usage *u) {
    ig_head_table_close(&u->heads);
    *u = (ig_usage){0};
}

static uint8_t *counts(const ig_usage *u, size_t head) {
    return u->rule == IG_EVICT_COUNTER ? ig_head_table_at(&u->heads, head) : NULL;
}

static uint32_t *stamps(const ig_usage *u, size_t head) {
    return u->rule == IG_EVICT_LRU ? ig_head_table_at(&u->heads, head) : NULL;
}

void ig_usage_come(ig_usage *u, size_t head, int slot, uint32_t now) {
    if (counts(u, head)) counts(u, head)[slot] = 0;
    if (stamps(u, head)) stamps(u, head)[slot] = now;
}

static void count_selected(uint8_t *count, size_t n_slots, const int32_t *slots, int n) {
    for (int i = 0; i < n; i++)
        if (++count[slots[i]] == UINT8_MAX)
            for (size_t s = 0; s < n_slots; s++) count[s] /= 2;
}

void ig_usage_select(ig_usage *u, size_t head, const int32_t *slots, int n, uint32_t now) {
    uint32_t *stamp = stamps(u, head);
    if (counts(u, head)) count_selected(counts(u, head), u->n_slots, slots, n);
    for (int i = 0; stamp && i < n; i++) stamp[slots[i]] = now;
}

void ig_usage_value(const ig_usage *u, size_t head, const ig_entries *e, float *value) {
    const uint8_t *count = counts(u, head);
    const uint32_t *stamp = stamps(u, head);
    for (int i = 0; i < e->n; i++) {
        int slot = e->slot ? e->slot[i] : i;
        value[i] = count ? (float)count[slot] : stamp ? (float)stamp[slot] : 0;
    }
}
