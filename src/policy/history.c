/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks used before: see history.h.
 */
#include "policy/history.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"

static size_t blocks_of(int n, int block) { return ((size_t)n + (size_t)block - 1) / (size_t)block; }

uint64_t ig_history_bytes(size_t n_heads, int n, int block) { return (uint64_t)n_heads * 2 * blocks_of(n, block); }

ig_status ig_history_open(ig_history *h, size_t n_heads, int n, int block, ig_error *err) {
    *h = (ig_history){.block = block, .n_heads = n_heads, .n_blocks = blocks_of(n, block)};
    size_t bytes = n_heads * 2 * h->n_blocks;
    h->heads = calloc(n_heads, sizeof *h->heads);
    h->used = ig_pages_reserve(bytes);
    if (h->heads && h->used) return IG_OK;
    ig_history_close(h);
    return ig_fail_memory(err, "the use of KV blocks", bytes);
}

void ig_history_close(ig_history *h) {
    ig_pages_release(h->used, h->n_heads * 2 * h->n_blocks);
    free(h->heads);
    *h = (ig_history){0};
}

void ig_history_append(ig_history *h, size_t head, int entry) {
    ig_history_head *x = &h->heads[head];
    bool again = entry == x->next - 1;
    if (again && x->met)
        x->now ^= 1;
    else if (!again && (!x->met || entry < x->next))
        x->known[0] = x->known[1] = 0;
    x->met = false;
    x->next = entry + 1;
}

/* [n_blocks] of the latest step, or the one before. */
static uint8_t *blocks_used(const ig_history *h, size_t head) {
    return h->used + (head * 2 + (size_t)h->heads[head].now) * h->n_blocks;
}

double ig_history_favour(const ig_history *h, size_t head, float *w, int n, float inertia) {
    const uint8_t *used = blocks_used(h, head);
    double more = 0;
    for (int b = 0, begin = 0; b < h->heads[head].known[h->heads[head].now] && begin < n; b++, begin += h->block) {
        int end = begin + h->block < n ? begin + h->block : n;
        float sum = 0;
        if (!used[b]) continue;
        for (int i = begin; i < end; i++) {
            sum += w[i];
            w[i] += inertia * w[i];
        }
        more += (double)(inertia * sum);
    }
    return more;
}

void ig_history_note(ig_history *h, size_t head, const int32_t *index, int n_used, int n) {
    ig_history_head *x = &h->heads[head];
    size_t known = blocks_of(n, h->block);
    x->now ^= 1;
    x->known[x->now] = (int)known;
    x->met = true;
    uint8_t *used = blocks_used(h, head);
    memset(used, 0, known);
    for (int i = 0; i < n_used; i++) used[index[i] / h->block] = 1;
}
