/* SPDX-License-Identifier: Apache-2.0
 *
 * Merging: the pair of the lowest rank first, the leftmost of equals.
 */
#include "token/merge.h"

#include <stdlib.h>

#include "base/error.h"
#include "token/utf8.h"

typedef struct ig_merge_symbol {
    int32_t prev, next; /* -1: none */
    uint32_t at, size;  /* bytes of the word; size 0: merged away */
    int32_t id;         /* -1: no token */
} symbol;

typedef struct ig_merge_pair {
    uint64_t key;  /* rank << 32 | index of the left symbol */
    uint32_t size; /* bytes of both when found: another size now means that the pair is gone */
    int32_t id;
} pair;

void ig_merge_space_close(ig_merge_space *s) {
    free(s->symbols);
    free(s->heap);
    *s = (ig_merge_space){0};
}

/* Room for at least n items of `size` bytes in *items. */
static bool reserve(void **items, size_t *cap, size_t n, size_t size) {
    if (n <= *cap) return true;
    size_t wanted = n < 64 ? 64 : n + n / 2;
    void *p = realloc(*items, wanted * size);
    if (!p) return false;
    *items = p;
    *cap = wanted;
    return true;
}

static bool push_pair(ig_merge_space *s, pair p) {
    void *heap = s->heap;
    if (!reserve(&heap, &s->cap_heap, s->n_heap + 1, sizeof p)) return false;
    s->heap = heap;
    size_t i = s->n_heap++;
    for (; i > 0 && s->heap[(i - 1) / 2].key > p.key; i = (i - 1) / 2) s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = p;
    return true;
}

static pair pop_pair(ig_merge_space *s) {
    pair top = s->heap[0], last = s->heap[--s->n_heap];
    size_t i = 0, child;
    while ((child = 2 * i + 1) < s->n_heap) {
        if (child + 1 < s->n_heap && s->heap[child + 1].key < s->heap[child].key) child++;
        if (s->heap[child].key >= last.key) break;
        s->heap[i] = s->heap[child];
        i = child;
    }
    s->heap[i] = last;
    return top;
}

/* Puts the pair of symbol `left` and the next one on the heap if it can merge. */
static bool offer_pair(const ig_merge_rules *r, ig_merge_space *s, const char *word, int32_t left) {
    if (left < 0 || s->symbols[left].next < 0) return true;
    const symbol *a = &s->symbols[left], *b = &s->symbols[a->next];
    pair p = {.size = a->size + b->size};
    if (r->ranks) {
        p.id = ig_vocab_find(r->vocab, word + a->at, p.size);
        if (p.id < 0) return true;
        p.key = (uint64_t)r->ranks[p.id] << 32 | (uint32_t)left;
    } else {
        if (a->id < 0 || b->id < 0) return true;
        const ig_merge_slot *slot = ig_merges_find(&r->merges, a->id, b->id);
        if (!slot) return true;
        p.id = slot->id;
        p.key = (uint64_t)slot->rank << 32 | (uint32_t)left;
    }
    return push_pair(s, p);
}

static int32_t split_symbols(const ig_merge_rules *r, symbol *symbols, const char *word, size_t n) {
    int32_t count = 0;
    uint32_t code;
    for (size_t at = 0, size; at < n; at += size, count++) {
        size = 1;
        if (!r->bytewise && (size = ig_utf8_next(word + at, n - at, &code)) == 0) size = 1;
        symbols[count] = (symbol){
            .prev = count - 1,
            .next = count + 1,
            .at = (uint32_t)at,
            .size = (uint32_t)size,
            .id = r->bytewise ? r->byte_ids[(unsigned char)word[at]] : ig_vocab_find(r->vocab, word + at, size)};
    }
    symbols[count - 1].next = -1;
    return count;
}

/* A symbol that is no token: its bytes, or the unknown token. */
static void add_unknown(const ig_merge_rules *r, const char *bytes, size_t n, bool *after_unknown, ig_ids *out) {
    bool covered = true;
    for (size_t i = 0; i < n; i++) covered = covered && r->byte_ids[(unsigned char)bytes[i]] >= 0;
    for (size_t i = 0; covered && i < n; i++) ig_ids_add(out, r->byte_ids[(unsigned char)bytes[i]]);
    if (!covered && r->unknown >= 0 && !(*after_unknown && r->fuse_unknown)) ig_ids_add(out, r->unknown);
    *after_unknown = !covered;
}

ig_status ig_merge_word(const ig_merge_rules *r, ig_merge_space *s, const char *word, size_t n, ig_ids *out,
                        ig_error *err) {
    if (n == 0) return IG_OK;
    if (n > INT32_MAX) return ig_fail(err, IG_E_LIMIT, "a word of %zu bytes is too long to tokenise", n);
    if (r->whole_words || n == 1) {
        int32_t id = ig_vocab_find(r->vocab, word, n);
        if (id >= 0) {
            ig_ids_add(out, id);
            return IG_OK;
        }
    }
    void *symbols = s->symbols;
    if (!reserve(&symbols, &s->cap_symbols, n, sizeof(symbol)))
        return ig_fail_memory(err, "tokenising a word", n * sizeof(symbol));
    s->symbols = symbols;
    s->n_heap = 0;
    bool ok = true;
    int32_t count = split_symbols(r, s->symbols, word, n);
    for (int32_t i = 0; i + 1 < count && ok; i++) ok = offer_pair(r, s, word, i);
    while (ok && s->n_heap) {
        pair p = pop_pair(s);
        int32_t left = (int32_t)(uint32_t)p.key;
        symbol *a = &s->symbols[left];
        if (a->size == 0 || a->next < 0 || a->size + s->symbols[a->next].size != p.size) continue;
        symbol *b = &s->symbols[a->next];
        a->size = p.size;
        a->id = p.id;
        a->next = b->next;
        b->size = 0;
        if (a->next >= 0) s->symbols[a->next].prev = left;
        ok = offer_pair(r, s, word, a->prev) && offer_pair(r, s, word, left);
    }
    if (!ok) return ig_fail_memory(err, "tokenising a word", s->cap_heap * 2 * sizeof(pair));
    bool after_unknown = false;
    for (int32_t i = 0; i >= 0; i = s->symbols[i].next) {
        const symbol *a = &s->symbols[i];
        if (a->id < 0) {
            add_unknown(r, word + a->at, a->size, &after_unknown, out);
        } else {
            ig_ids_add(out, a->id);
            after_unknown = false;
        }
    }
    return IG_OK;
}
