/* SPDX-License-Identifier: Apache-2.0
 *
 * Use of entries: see usage.h. Positions are below 2^24, so that a float tells them apart.
 */
#include "policy/usage.h"

#include <string.h>

static size_t slot_bytes(ig_evict_rule rule) {
    return rule == IG_EVICT_COUNTER ? sizeof(uint8_t) : rule == IG_EVICT_LRU ? sizeof(uint32_t) : 0;
}

/* Heads keep the alignment of the word. */
static size_t head_bytes(ig_evict_rule rule, size_t n_slots) {
    size_t bytes = 2 * n_slots * slot_bytes(rule), word = sizeof(uint32_t);
    return bytes ? word + (bytes + word - 1) / word * word : 0;
}

uint64_t ig_usage_plan(ig_evict_rule rule, size_t n_heads, size_t n_slots) {
    return (uint64_t)n_heads * head_bytes(rule, n_slots);
}

ig_status ig_usage_open(ig_usage *u, ig_evict_rule rule, size_t n_heads, size_t n_slots, ig_error *err) {
    *u = (ig_usage){.rule = rule, .n_slots = n_slots, .step = 1};
    return ig_head_table_open(&u->heads, "use of KV entries", n_heads, head_bytes(rule, n_slots), err);
}

void ig_usage_close(ig_usage *u) {
    ig_head_table_close(&u->heads);
    *u = (ig_usage){0};
}

static uint8_t *counts(const ig_usage *u, size_t head) {
    return u->rule == IG_EVICT_COUNTER ? (uint8_t *)ig_head_table_at(&u->heads, head) + sizeof(uint32_t) : NULL;
}

static uint32_t *stamps(const ig_usage *u, size_t head) {
    return u->rule == IG_EVICT_LRU ? (uint32_t *)ig_head_table_at(&u->heads, head) + 1 : NULL;
}

/* Before a head's first selection of a step, or after the last one if it failed. */
static void copy_head(const ig_usage *u, size_t head, bool back) {
    size_t n = u->n_slots * slot_bytes(u->rule);
    uint8_t *now = (uint8_t *)ig_head_table_at(&u->heads, head) + sizeof(uint32_t);
    memcpy(back ? now : now + n, back ? now + n : now, n);
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
    uint32_t *stamp = stamps(u, head), *step = u->heads.heads ? ig_head_table_at(&u->heads, head) : NULL;
    if (step && *step != u->step) {
        copy_head(u, head, false);
        *step = u->step;
    }
    if (counts(u, head)) count_selected(counts(u, head), u->n_slots, slots, n);
    for (int i = 0; stamp && i < n; i++) stamp[slots[i]] = now;
}

void ig_usage_settle(ig_usage *u, bool failed) {
    for (size_t head = 0; failed && u->heads.heads && head < u->heads.n_heads; head++)
        if (*(const uint32_t *)ig_head_table_at(&u->heads, head) == u->step) copy_head(u, head, true);
    u->step++;
}

void ig_usage_value(const ig_usage *u, size_t head, const ig_entries *e, float *value) {
    const uint8_t *count = counts(u, head);
    const uint32_t *stamp = stamps(u, head);
    for (int i = 0; i < e->n; i++) {
        int slot = ig_entry_slot(e, i);
        value[i] = count ? (float)count[slot] : stamp ? (float)stamp[slot] : 0;
    }
}
