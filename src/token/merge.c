/* SPDX-License-Identifier: Apache-2.0
 *
 * Merging: the pair of the lowest rank first, the leftmost of equals.
 *
 * A short word, as nearly all are, is a list of symbols on the stack, gone through for the best pair at each step.
 *
 * Others may be as long as the text, so that their symbols lie in one array with a number per byte. Where a symbol
 * begins is its token, whose length the vocabulary knows; where one of several bytes ends is where it began. So both
 * neighbours of a symbol are found from its place. Candidate pairs wait in a heap, as keys of rank and place; whether a
 * key still holds is seen by looking the pair up again. Of a long word only the lowest keys are held: when these are
 * used up, the word is gone through for the next ones.
 */
#include "token/merge.h"

#include <stdlib.h>

#include "token/utf8.h"

enum {
    NO_TOKEN = INT32_MAX, /* in symbols: a character that is no token */
    INSIDE = -1,          /* no symbol begins here; less than that: -2 - where the symbol that ends here began */
    SHORT_WORD = 24,      /* bytes up to which looking at all pairs is quicker than a heap */
    KEYS_MIN = 4096,      /* candidates held of a word of any length */
};

#define NO_PAIR UINT64_MAX

typedef struct word {
    const ig_merge_rules *rules;
    ig_merge_space *space;
    const char *text;
    int32_t n;
    uint64_t limit; /* keys above are not on the heap */
} word;

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

/* ---- the heap: the lowest key first -------------------------------------- */

static bool push_key(ig_merge_space *s, uint64_t key) {
    void *heap = s->heap;
    if (!reserve(&heap, &s->cap_heap, s->n_heap + 1, sizeof key)) return false;
    s->heap = heap;
    size_t i = s->n_heap++;
    for (; i > 0 && s->heap[(i - 1) / 2] > key; i = (i - 1) / 2) s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = key;
    return true;
}

static uint64_t pop_key(ig_merge_space *s) {
    uint64_t top = s->heap[0], last = s->heap[--s->n_heap];
    size_t i = 0, child;
    while ((child = 2 * i + 1) < s->n_heap) {
        if (child + 1 < s->n_heap && s->heap[child + 1] < s->heap[child]) child++;
        if (s->heap[child] >= last) break;
        s->heap[i] = s->heap[child];
        i = child;
    }
    s->heap[i] = last;
    return top;
}

/* ---- symbols and pairs --------------------------------------------------- */

typedef struct symbol {
    int32_t at, end; /* its bytes in the word */
    int32_t id;
} symbol;

static int32_t character_size(const word *w, int32_t at) {
    uint32_t code;
    size_t size = w->rules->bytewise ? 1 : ig_utf8_next(w->text + at, (size_t)(w->n - at), &code);
    return size ? (int32_t)size : 1;
}

/* The byte or character with which a symbol begins at first. */
static symbol first_symbol(const word *w, int32_t at) {
    const ig_merge_rules *r = w->rules;
    int32_t size = character_size(w, at);
    int32_t id =
        r->bytewise ? r->byte_ids[(unsigned char)w->text[at]] : ig_vocab_find(r->vocab, w->text + at, (size_t)size);
    return (symbol){at, at + size, id < 0 ? NO_TOKEN : id};
}

/* The key of two neighbours, NO_PAIR if they do not merge; *id is the token of both. */
static uint64_t pair_key(const word *w, symbol a, symbol b, int32_t *id) {
    const ig_merge_rules *r = w->rules;
    if (r->ranks) {
        *id = ig_vocab_find(r->vocab, w->text + a.at, (size_t)(b.end - a.at));
        return *id < 0 ? NO_PAIR : (uint64_t)r->ranks[*id] << 32 | (uint32_t)a.at;
    }
    const ig_merge_slot *slot = a.id == NO_TOKEN || b.id == NO_TOKEN ? NULL : ig_merges_find(&r->merges, a.id, b.id);
    if (!slot) return NO_PAIR;
    *id = slot->id;
    return (uint64_t)slot->rank << 32 | (uint32_t)a.at;
}

/* ---- ids ----------------------------------------------------------------- */

/* A symbol that is no token: its bytes, or the unknown token. */
static void add_unknown(const ig_merge_rules *r, const char *bytes, size_t n, bool *after_unknown, ig_ids *out) {
    bool covered = true;
    for (size_t i = 0; i < n; i++) covered = covered && r->byte_ids[(unsigned char)bytes[i]] >= 0;
    for (size_t i = 0; covered && i < n; i++) ig_ids_add(out, r->byte_ids[(unsigned char)bytes[i]]);
    if (!covered && r->unknown >= 0 && !(*after_unknown && r->fuse_unknown)) ig_ids_add(out, r->unknown);
    if (!covered && r->unknown < 0) out->n_lost += n;
    *after_unknown = !covered;
}

static void add_symbol(const word *w, symbol s, bool *after_unknown, ig_ids *out) {
    if (s.id == NO_TOKEN) {
        add_unknown(w->rules, w->text + s.at, (size_t)(s.end - s.at), after_unknown, out);
    } else {
        ig_ids_add(out, s.id);
        *after_unknown = false;
    }
}

/* ---- short words --------------------------------------------------------- */

static void merge_short(const word *w, ig_ids *out) {
    symbol symbols[SHORT_WORD];
    uint64_t keys[SHORT_WORD]; /* of a symbol and the next one */
    int32_t ids[SHORT_WORD], n = 0, best = 0;
    bool after_unknown = false;
    for (int32_t at = 0; at < w->n; at = symbols[n++].end) symbols[n] = first_symbol(w, at);
    for (int32_t i = 0; i + 1 < n; i++) keys[i] = pair_key(w, symbols[i], symbols[i + 1], &ids[i]);
    for (;; n--) {
        uint64_t key = NO_PAIR;
        for (int32_t i = 0; i + 1 < n; i++)
            if (keys[i] < key) key = keys[i], best = i;
        if (key == NO_PAIR) break;
        symbols[best] = (symbol){symbols[best].at, symbols[best + 1].end, ids[best]};
        for (int32_t i = best + 1; i + 1 < n; i++) {
            symbols[i] = symbols[i + 1];
            keys[i] = keys[i + 1];
            ids[i] = ids[i + 1];
        }
        if (best + 2 < n) keys[best] = pair_key(w, symbols[best], symbols[best + 1], &ids[best]);
        if (best > 0) keys[best - 1] = pair_key(w, symbols[best - 1], symbols[best], &ids[best - 1]);
    }
    for (int32_t i = 0; i < n; i++) add_symbol(w, symbols[i], &after_unknown, out);
}

/* ---- longer words -------------------------------------------------------- */

static symbol symbol_at(const word *w, int32_t at) {
    int32_t id = w->space->symbols[at];
    int32_t size = id == NO_TOKEN ? character_size(w, at) : (int32_t)w->rules->vocab->tokens[id].size;
    return (symbol){at, at + size, id};
}

static void put_symbol(word *w, symbol s) {
    if (s.end - s.at > 1) w->space->symbols[s.end - 1] = -2 - s.at;
    w->space->symbols[s.at] = s.id;
}

/* Where the symbol before the one at `at` > 0 begins. */
static int32_t before(const word *w, int32_t at) {
    int32_t last = w->space->symbols[at - 1];
    return last < INSIDE ? -2 - last : at - 1;
}

/* The key of a symbol and the next one. */
static uint64_t key_at(const word *w, symbol s, int32_t *id) {
    return s.end == w->n ? NO_PAIR : pair_key(w, s, symbol_at(w, s.end), id);
}

static bool offer_pair(const word *w, int32_t left) {
    int32_t id;
    uint64_t key = key_at(w, symbol_at(w, left), &id);
    return key == NO_PAIR || key > w->limit || push_key(w->space, key);
}

/* Puts the word's lowest pairs on the empty heap and sets the limit. */
static bool find_pairs(word *w) {
    ig_merge_space *s = w->space;
    size_t most = w->n / 4 < KEYS_MIN ? KEYS_MIN : (size_t)w->n / 4;
    bool ok = true;
    int32_t id;
    w->limit = UINT64_MAX;
    if ((size_t)w->n <= most) {
        for (int32_t at = 0; at < w->n && ok; at = symbol_at(w, at).end) ok = offer_pair(w, at);
        return ok;
    }
    /* With all bits turned the heap has the highest of them on top, which makes room for a lower one. */
    for (symbol a = {0}; a.end < w->n && ok;) {
        a = symbol_at(w, a.end);
        uint64_t key = key_at(w, a, &id);
        if (key == NO_PAIR || (s->n_heap == most && ~key < s->heap[0])) continue;
        if (s->n_heap == most) pop_key(s);
        ok = push_key(s, ~key);
    }
    if (s->n_heap == most) w->limit = ~s->heap[0];
    size_t n = s->n_heap;
    s->n_heap = 0;
    for (size_t i = 0; i < n && ok; i++) ok = push_key(s, ~s->heap[i]);
    return ok;
}

static bool merge_found(word *w) {
    ig_merge_space *s = w->space;
    bool ok = true;
    while (ok && s->n_heap) {
        uint64_t key = pop_key(s);
        int32_t left = (int32_t)(uint32_t)key, id;
        if (s->symbols[left] < 0) continue; /* merged with another */
        symbol a = symbol_at(w, left);
        if (key_at(w, a, &id) != key) continue;
        int32_t end = symbol_at(w, a.end).end;
        s->symbols[a.end] = INSIDE;
        put_symbol(w, (symbol){left, end, id});
        ok = offer_pair(w, left) && (left == 0 || offer_pair(w, before(w, left)));
    }
    return ok;
}

static ig_status merge_long(word *w, ig_ids *out, ig_error *err) {
    ig_merge_space *s = w->space;
    void *symbols = s->symbols;
    if (!reserve(&symbols, &s->cap_symbols, (size_t)w->n, sizeof *s->symbols))
        return ig_fail_memory(err, "tokenising a word", (size_t)w->n * sizeof *s->symbols);
    s->symbols = symbols;
    s->n_heap = 0;
    for (symbol a = {0}; a.end < w->n;) {
        a = first_symbol(w, a.end);
        put_symbol(w, a);
    }
    do
        if (!find_pairs(w) || !merge_found(w))
            return ig_fail_memory(err, "tokenising a word", s->cap_heap * 2 * sizeof *s->heap);
    while (w->limit != UINT64_MAX);
    bool after_unknown = false;
    for (symbol a = {0}; a.end < w->n;) {
        a = symbol_at(w, a.end);
        add_symbol(w, a, &after_unknown, out);
    }
    return IG_OK;
}

/* What the length of a word shows: no token stands for more bytes than the longest does, and those that have tokens of
 * their own are never left out. Where a word starts as characters, all bytes must have them. */
static size_t least_ids(const ig_merge_rules *r, const char *text, size_t n) {
    size_t n_covered = 0, n_tokens = 0, longest = r->vocab->longest ? r->vocab->longest : 1;
    for (int byte = 0; byte < 256; byte++) n_tokens += r->byte_ids[byte] >= 0;
    if (n_tokens == 256) return n / longest;
    for (size_t i = 0; i < n && r->bytewise; i++) n_covered += r->byte_ids[(unsigned char)text[i]] >= 0;
    return n_covered / longest;
}

ig_status ig_merge_word(const ig_merge_rules *r, ig_merge_space *s, const char *text, size_t n, ig_ids *out,
                        ig_error *err) {
    if (n == 0) return IG_OK;
    if (n > INT32_MAX) return ig_fail(err, IG_E_LIMIT, "a word of %zu bytes is too long to tokenise", n);
    if (out->is_capped && n > r->vocab->longest) {
        ig_ids least = *out;
        least.n += least_ids(r, text, n);
        if (ig_ids_check(&least, err)) {
            *out = least;
            return IG_E_LIMIT;
        }
    }
    ig_status status = IG_OK;
    word w = {r, s, text, (int32_t)n, 0};
    int32_t id = r->whole_words || n == 1 ? ig_vocab_find(r->vocab, text, n) : -1;
    if (id >= 0)
        ig_ids_add(out, id);
    else if (n <= SHORT_WORD)
        merge_short(&w, out);
    else
        status = merge_long(&w, out, err);
    return status ? status : ig_ids_check(out, err);
}
