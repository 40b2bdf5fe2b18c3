/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks used before: see history.h.
 */
#include "policy/history.h"

#include <string.h>

#include "base/compiler.h"
#include "base/memory.h"

static size_t blocks_of(int n, int block) { return ((size_t)n + (size_t)block - 1) / (size_t)block; }

enum { WORD_BITS = 64, WORD_BYTES = WORD_BITS / 8 };

/* Of a bit for each block. */
static size_t bit_bytes(size_t n_blocks) { return (n_blocks + WORD_BITS - 1) / WORD_BITS * WORD_BYTES; }

static void put_word(uint8_t *used, int word, uint64_t bits) {
    for (int i = 0; i < WORD_BYTES; i++) used[word * WORD_BYTES + i] = (uint8_t)(bits >> 8 * i);
}

size_t ig_history_head_bytes(int n, int block, int n_ahead) {
    size_t n_steps = (size_t)(IG_HISTORY_STEPS + n_ahead);
    size_t bytes = sizeof(ig_history_head) + n_steps * (sizeof(int) + bit_bytes(blocks_of(n, block)));
    return ig_round_up(bytes, sizeof(int));
}

ig_status ig_history_open(ig_history *h, size_t n_heads, int n, int block, int n_ahead, ig_error *err) {
    *h = (ig_history){.block = block, .n_steps = IG_HISTORY_STEPS + n_ahead, .n_bytes = bit_bytes(blocks_of(n, block))};
    size_t each = ig_history_head_bytes(n, block, n_ahead);
    return ig_head_table_open(&h->heads, "the use of KV blocks", n_heads, each, err);
}

void ig_history_close(ig_history *h) { ig_head_table_close(&h->heads); }

/* The last n steps have not been. */
static void go_back(const ig_history *h, ig_history_state *is, int n) {
    is->now = (is->now + h->n_steps - n) % h->n_steps;
    is->n_known = ig_max_int(is->n_known - n, 0);
}

/* The state when an entry has come; the same if it had. */
static ig_history_state state_with(const ig_history *h, ig_history_state is, int entry) {
    bool again = entry == is.next - 1;
    if (again && is.met)
        go_back(h, &is, 1);
    else if (!again && (!is.met || entry < is.next))
        is.n_known = 0;
    is.n_met = entry == is.next && is.met ? is.n_met + 1 : 0;
    is.met = false;
    is.next = entry + 1;
    return is;
}

void ig_history_append(ig_history *h, size_t head, int entry) {
    ig_history_head *x = ig_head_table_at(&h->heads, head);
    if (entry != x->is.next)
        x->was.next = -1; /* what is cut does not come back */
    else if (x->is.met)
        x->was = x->is;
    x->is = state_with(h, x->is, entry);
}

/* Entries that came one after the other, each with a step of its own, have not come, if there is room of them still. */
static void undo_steps(const ig_history *h, ig_history_state *is, int entry) {
    int n_met = is->n_met + is->met, n = is->next - entry - !is->met;
    if (n < 0 || n > n_met || n > h->n_steps - 2) return;
    go_back(h, is, n);
    is->met = n < n_met;
    is->n_met = n_met - n - is->met;
    is->next = entry;
}

void ig_history_undo(ig_history *h, size_t head, int entry) {
    ig_history_head *x = ig_head_table_at(&h->heads, head);
    if (entry <= 0 || x->is.next <= entry) return;
    if (x->was.next == entry)
        x->is = x->was;
    else
        undo_steps(h, &x->is, entry);
}

void ig_history_cut(ig_history *h, size_t head) {
    ig_history_head *x = ig_head_table_at(&h->heads, head);
    if (x->is.next == 0) return; /* there is nothing, and perhaps no memory yet */
    x->was.next = -1;
    x->is.n_met = 0;
}

void ig_history_resume(ig_history *h, size_t head, int entry) {
    ig_history_head *x = ig_head_table_at(&h->heads, head);
    x->is = (ig_history_state){.next = entry};
    x->was.next = -1;
}

/* Bits of the latest step of a state, */
static uint8_t *blocks_used(const ig_history *h, ig_history_head *x, const ig_history_state *is) {
    return (uint8_t *)(x->known + h->n_steps) + (size_t)is->now * h->n_bytes;
}

/* and how many blocks they are of. */
static int count_known(const ig_history_head *x, const ig_history_state *is) {
    return is->n_known ? x->known[is->now] : 0;
}

const uint8_t *ig_history_used(const ig_history *h, size_t head, int entry, int *n) {
    ig_history_head *x = ig_head_table_at(&h->heads, head);
    ig_history_state is = state_with(h, x->is, entry);
    *n = count_known(x, &is);
    return blocks_used(h, x, &is);
}

double ig_history_favour(const ig_history *h, size_t head, float *w, int n, float inertia) {
    ig_history_head *x = ig_head_table_at(&h->heads, head);
    const uint8_t *used = blocks_used(h, x, &x->is);
    int known = count_known(x, &x->is);
    double more = 0;
    for (int b = 0, begin = 0; b < known && begin < n; b++, begin += h->block) {
        int end = begin + h->block < n ? begin + h->block : n;
        float sum = 0;
        if (!(used[b >> 3] >> (b & 7) & 1)) continue;
        for (int i = begin; i < end; i++) {
            sum += w[i];
            w[i] += inertia * w[i];
        }
        more += (double)(inertia * sum);
    }
    return more;
}

void ig_history_note(ig_history *h, size_t head, const int32_t *index, int n_used, int n) {
    ig_history_head *x = ig_head_table_at(&h->heads, head);
    size_t known = blocks_of(n, h->block);
    x->is.now = (x->is.now + 1) % h->n_steps;
    x->is.n_known = ig_min_int(x->is.n_known + 1, h->n_steps);
    x->known[x->is.now] = (int)known;
    x->is.met = true;
    uint8_t *used = blocks_used(h, x, &x->is);
    memset(used, 0, bit_bytes(known));
    /* Of scattered entries a test whether a block is noted already would be foretold wrongly too often; whether the
     * next word begins is not. */
    uint64_t bits = 0;
    int word = 0;
    for (int i = 0, shift = ig_log2(h->block); i < n_used; i++) {
        int b = index[i] >> shift;
        if (b / WORD_BITS != word) {
            put_word(used, word, bits);
            bits = 0;
            word = b / WORD_BITS;
        }
        bits |= (uint64_t)1 << b % WORD_BITS;
    }
    put_word(used, word, bits);
}
