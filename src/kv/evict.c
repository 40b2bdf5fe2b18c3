/* SPDX-License-Identifier: Apache-2.0
 *
 * Eviction orders as doubly linked rings. fifo and lru use one ring, counter one per count.
 */
#include "kv/evict.h"

#include <string.h>

#include "base/error.h"

size_t ig_evict_bytes(size_t n_frames) { return 2 * (n_frames + IG_EVICT_LISTS) * sizeof(uint32_t) + 2 * n_frames; }

void ig_evict_open(ig_evict *e, ig_evict_rule rule, size_t n_frames, void *memory) {
    uint32_t *words = memory;
    *e = (ig_evict){
        .rule = rule, .n_frames = (uint32_t)n_frames, .prev = words, .next = words + n_frames + IG_EVICT_LISTS};
    e->count = (uint8_t *)(e->next + n_frames + IG_EVICT_LISTS);
    e->listed = e->count + n_frames;
    for (uint32_t i = 0; i < IG_EVICT_LISTS; i++) e->prev[e->n_frames + i] = e->next[e->n_frames + i] = e->n_frames + i;
}

static const char *const names[] = {[IG_EVICT_COUNTER] = "counter", [IG_EVICT_LRU] = "lru", [IG_EVICT_FIFO] = "fifo"};

const char *ig_evict_name(ig_evict_rule rule) { return names[rule]; }

ig_status ig_evict_parse(ig_evict_rule *out, const char *name, ig_error *err) {
    for (size_t i = 0; i < IG_COUNT(names); i++)
        if (strcmp(names[i], name) == 0) {
            *out = (ig_evict_rule)i;
            return IG_OK;
        }
    return ig_fail(err, IG_E_ARG, "KV eviction '%s' is unknown; there are: counter, lru, fifo", name);
}

static uint32_t ring_of(const ig_evict *e, uint32_t frame) {
    return e->n_frames + (e->rule == IG_EVICT_COUNTER ? e->count[frame] : 0);
}

static void unlink_frame(ig_evict *e, uint32_t frame) {
    e->next[e->prev[frame]] = e->next[frame];
    e->prev[e->next[frame]] = e->prev[frame];
}

/* At the ring's end: the last to leave of its ring. */
static void link_frame(ig_evict *e, uint32_t frame) {
    uint32_t head = ring_of(e, frame), last = e->prev[head];
    e->prev[frame] = last;
    e->next[frame] = head;
    e->next[last] = e->prev[head] = frame;
}

void ig_evict_add(ig_evict *e, uint32_t frame) {
    if (e->listed[frame]) return;
    e->listed[frame] = 1;
    link_frame(e, frame);
}

void ig_evict_remove(ig_evict *e, uint32_t frame) {
    e->count[frame] = 0;
    if (!e->listed[frame]) return;
    unlink_frame(e, frame);
    e->listed[frame] = 0;
}

/* Halves all counts: ring 2i and ring 2i + 1 become ring i. */
static void halve(ig_evict *e) {
    for (uint32_t f = 0; f < e->n_frames; f++) e->count[f] = (uint8_t)(e->count[f] / 2);
    for (uint32_t i = 1; i < IG_EVICT_LISTS; i++) {
        uint32_t from = e->n_frames + i, to = e->n_frames + i / 2;
        if (e->next[from] == from) continue;
        uint32_t first = e->next[from], last = e->prev[from], end = e->prev[to];
        e->next[end] = first;
        e->prev[first] = end;
        e->next[last] = to;
        e->prev[to] = last;
        e->next[from] = e->prev[from] = from;
    }
}

void ig_evict_use(ig_evict *e, uint32_t frame) {
    bool listed = e->listed[frame];
    if (e->rule == IG_EVICT_FIFO) return;
    if (listed) unlink_frame(e, frame);
    bool is_full = e->rule == IG_EVICT_COUNTER && ++e->count[frame] == IG_EVICT_LISTS - 1;
    if (listed) link_frame(e, frame);
    if (is_full) halve(e);
}

uint32_t ig_evict_victim(const ig_evict *e, bool (*keep)(void *user, uint32_t frame), void *user) {
    uint32_t n_rings = e->rule == IG_EVICT_COUNTER ? IG_EVICT_LISTS : 1;
    for (uint32_t i = 0; i < n_rings; i++) {
        uint32_t head = e->n_frames + i;
        for (uint32_t f = e->next[head]; f != head; f = e->next[f])
            if (!keep(user, f)) return f;
    }
    return UINT32_MAX;
}
