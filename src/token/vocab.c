/* SPDX-License-Identifier: Apache-2.0
 *
 * Token table and merge table: open addressing, never more than half full.
 */
#include "token/vocab.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

bool ig_vocab_open(ig_vocab *v, int32_t n) {
    *v = (ig_vocab){.n = n};
    v->tokens = calloc(n ? (size_t)n : 1, sizeof *v->tokens);
    return v->tokens != NULL;
}

void ig_vocab_close(ig_vocab *v) {
    free(v->tokens);
    free(v->slots);
    ig_buffer_close(&v->bytes);
    *v = (ig_vocab){0};
}

bool ig_vocab_put(ig_vocab *v, int32_t id, const char *bytes, size_t size, ig_token_kind kind, int flags) {
    if (size > INT32_MAX - v->bytes.size) return false;
    v->tokens[id] = (ig_vocab_token){
        .at = (uint32_t)v->bytes.size, .size = (uint32_t)size, .kind = (uint8_t)kind, .flags = (uint8_t)flags};
    ig_buffer_add(&v->bytes, bytes, size);
    return !v->bytes.failed;
}

ig_text ig_vocab_text(const ig_vocab *v, int32_t id) {
    const ig_vocab_token *t = &v->tokens[id];
    return (ig_text){.data = t->size ? v->bytes.data + t->at : "", .size = t->size};
}

static uint64_t mix(uint64_t x) {
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    return x ^ x >> 32;
}

static uint64_t hash_bytes(const char *bytes, size_t size) {
    uint64_t h = size * 0x9e3779b97f4a7c15u, word;
    for (; size >= 8; size -= 8, bytes += 8) {
        memcpy(&word, bytes, 8);
        h = mix(h ^ word) + 0x9e3779b97f4a7c15u;
    }
    word = 0;
    if (size) memcpy(&word, bytes, size);
    return mix(h ^ word);
}

/* The slot that holds these bytes, or the empty one where they belong; NULL if there is neither. */
static int32_t *find_slot(const ig_vocab *v, const char *bytes, size_t size) {
    uint32_t i = (uint32_t)hash_bytes(bytes, size);
    for (int k = 0; k < IG_PROBES_MAX; k++) {
        int32_t *slot = &v->slots[i++ & v->mask];
        if (*slot < 0) return slot;
        const ig_vocab_token *t = &v->tokens[*slot];
        if (t->size == size && memcmp(v->bytes.data + t->at, bytes, size) == 0) return slot;
    }
    return NULL;
}

ig_status ig_vocab_fail_twice(const ig_vocab *v, int32_t id, const char *where, ig_error *err) {
    ig_text text = ig_vocab_text(v, id);
    return ig_fail(err, IG_E_FORMAT, "%s: token %d, '%.*s', is there twice", where, id, IG_SHOW(text));
}

ig_status ig_vocab_index(ig_vocab *v, const char *where, ig_error *err) {
    uint32_t n_slots = 16;
    while (n_slots / 2 < (uint32_t)v->n) n_slots *= 2;
    v->slots = malloc(n_slots * sizeof *v->slots);
    if (!v->slots) return ig_fail_memory(err, where, n_slots * sizeof *v->slots);
    memset(v->slots, 0xff, n_slots * sizeof *v->slots);
    v->mask = n_slots - 1;
    for (int32_t id = 0; id < v->n; id++) {
        const ig_vocab_token *t = &v->tokens[id];
        if (!(t->flags & IG_TOKEN_MODEL) || t->size == 0) continue;
        int32_t *slot = find_slot(v, v->bytes.data + t->at, t->size);
        if (!slot)
            return ig_fail(err, IG_E_LIMIT, "%s: token %d shares its place in the table with too many others", where,
                           id);
        if (*slot >= 0) return ig_vocab_fail_twice(v, id, where, err);
        *slot = id;
        if (t->size > v->longest) v->longest = t->size;
    }
    return IG_OK;
}

int32_t ig_vocab_find(const ig_vocab *v, const char *bytes, size_t size) {
    if (size == 0 || size > v->longest) return -1;
    const int32_t *slot = find_slot(v, bytes, size);
    return slot ? *slot : -1;
}

bool ig_merges_open(ig_merges *m, uint32_t n) {
    size_t n_slots = 16;
    *m = (ig_merges){0};
    if (n > 1u << 29) return false;
    while (n_slots / 2 < n) n_slots *= 2;
    m->slots = malloc(n_slots * sizeof *m->slots);
    if (!m->slots) return false;
    m->mask = (uint32_t)(n_slots - 1);
    for (size_t i = 0; i < n_slots; i++) m->slots[i].pair = UINT64_MAX;
    return true;
}

void ig_merges_close(ig_merges *m) {
    free(m->slots);
    *m = (ig_merges){0};
}

/* The slot of a pair, or the empty one where it belongs; NULL if there is neither. */
static ig_merge_slot *merge_slot(const ig_merges *m, int32_t left, int32_t right) {
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint32_t i = (uint32_t)mix(pair);
    for (int k = 0; k < IG_PROBES_MAX; k++) {
        ig_merge_slot *slot = &m->slots[i++ & m->mask];
        if (slot->pair == pair || slot->pair == UINT64_MAX) return slot;
    }
    return NULL;
}

bool ig_merges_put(ig_merges *m, int32_t left, int32_t right, uint32_t rank, int32_t id) {
    ig_merge_slot *slot = merge_slot(m, left, right);
    if (!slot) return false;
    *slot = (ig_merge_slot){.pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right, .rank = rank, .id = id};
    return true;
}

const ig_merge_slot *ig_merges_find(const ig_merges *m, int32_t left, int32_t right) {
    const ig_merge_slot *slot = merge_slot(m, left, right);
    return !slot || slot->pair == UINT64_MAX ? NULL : slot;
}
