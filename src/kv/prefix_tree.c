/* SPDX-License-Identifier: Apache-2.0
 *
 * The tree of prefixes: a hash table of pieces with chains through their nodes, and a list of the kept ones.
 */
#include "kv/prefix_tree.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"

struct ig_prefix_node {
    ig_prefix_id id, parent;
    uint32_t next;         /* in its bucket, plus one; 0: the last */
    uint32_t older, newer; /* in the list of the kept */
    bool is_in, is_kept;
};

static size_t count_buckets(size_t n_pieces) {
    size_t n = 16;
    while (n < n_pieces) n *= 2;
    return n;
}

size_t ig_prefix_tree_bytes(size_t n_pieces, int piece_tokens) {
    return (n_pieces + 1) * sizeof(ig_prefix_node) + n_pieces * (size_t)piece_tokens * sizeof(int32_t) +
           count_buckets(n_pieces) * sizeof(uint32_t);
}

ig_status ig_prefix_tree_open(ig_prefix_tree *x, size_t n_pieces, int piece_tokens, ig_error *err) {
    *x = (ig_prefix_tree){.piece_tokens = piece_tokens, .n_pieces = n_pieces, .n_buckets = count_buckets(n_pieces)};
    x->nodes = ig_pages_reserve((n_pieces + 1) * sizeof *x->nodes);
    x->tokens = ig_pages_reserve(n_pieces * (size_t)piece_tokens * sizeof *x->tokens);
    x->buckets = ig_pages_reserve(x->n_buckets * sizeof *x->buckets);
    if (!x->nodes || !x->tokens || !x->buckets) {
        ig_prefix_tree_close(x);
        return ig_fail_memory(err, "prefixes", ig_prefix_tree_bytes(n_pieces, piece_tokens));
    }
    x->nodes[n_pieces].older = x->nodes[n_pieces].newer = (uint32_t)n_pieces;
    return IG_OK;
}

void ig_prefix_tree_close(ig_prefix_tree *x) {
    ig_pages_release(x->nodes, (x->n_pieces + 1) * sizeof *x->nodes);
    ig_pages_release(x->tokens, x->n_pieces * (size_t)x->piece_tokens * sizeof *x->tokens);
    ig_pages_release(x->buckets, x->n_buckets * sizeof *x->buckets);
    *x = (ig_prefix_tree){0};
}

/* ---- the tree --------------------------------------------------------------------- */

static uint32_t *bucket_of(const ig_prefix_tree *x, ig_prefix_id id) {
    return &x->buckets[id.low & (x->n_buckets - 1)];
}

static int32_t *tokens_of(const ig_prefix_tree *x, uint32_t piece) {
    return x->tokens + (size_t)piece * (size_t)x->piece_tokens;
}

uint32_t ig_prefix_tree_find(const ig_prefix_tree *x, ig_prefix_id parent, const int32_t *tokens, ig_prefix_id *id) {
    *id = ig_prefix_next(parent, tokens, x->piece_tokens);
    for (uint32_t at = *bucket_of(x, *id); at; at = x->nodes[at - 1].next) {
        const ig_prefix_node *node = &x->nodes[at - 1];
        if (ig_prefix_same(&node->id, id) && ig_prefix_same(&node->parent, &parent) &&
            memcmp(tokens_of(x, at - 1), tokens, (size_t)x->piece_tokens * sizeof *tokens) == 0)
            return at - 1;
    }
    return UINT32_MAX;
}

void ig_prefix_tree_add(ig_prefix_tree *x, uint32_t piece, ig_prefix_id parent, ig_prefix_id id,
                        const int32_t *tokens) {
    uint32_t *bucket = bucket_of(x, id);
    x->nodes[piece] = (ig_prefix_node){.id = id, .parent = parent, .next = *bucket, .is_in = true};
    memcpy(tokens_of(x, piece), tokens, (size_t)x->piece_tokens * sizeof *tokens);
    *bucket = piece + 1;
}

void ig_prefix_tree_remove(ig_prefix_tree *x, uint32_t piece) {
    ig_prefix_node *node = &x->nodes[piece];
    if (!node->is_in) return;
    ig_prefix_tree_unkeep(x, piece);
    uint32_t *at = bucket_of(x, node->id);
    while (*at != piece + 1) at = &x->nodes[*at - 1].next;
    *at = node->next;
    node->is_in = false;
}

bool ig_prefix_tree_has(const ig_prefix_tree *x, uint32_t piece) { return x->nodes[piece].is_in; }

ig_prefix_id ig_prefix_tree_id(const ig_prefix_tree *x, uint32_t piece) { return x->nodes[piece].id; }

/* ---- those that are kept ---------------------------------------------------------- */

void ig_prefix_tree_keep(ig_prefix_tree *x, uint32_t piece) {
    ig_prefix_node *node = &x->nodes[piece], *head = &x->nodes[x->n_pieces];
    if (node->is_kept) return;
    node->is_kept = true;
    node->newer = (uint32_t)x->n_pieces;
    node->older = head->older;
    x->nodes[head->older].newer = piece;
    head->older = piece;
    x->n_kept++;
}

void ig_prefix_tree_unkeep(ig_prefix_tree *x, uint32_t piece) {
    ig_prefix_node *node = &x->nodes[piece];
    if (!node->is_kept) return;
    node->is_kept = false;
    x->nodes[node->newer].older = node->older;
    x->nodes[node->older].newer = node->newer;
    x->n_kept--;
}

/* The head's neighbours: `older` is the newest of the list, `newer` the oldest. */
uint32_t ig_prefix_tree_oldest(const ig_prefix_tree *x) { return x->n_kept ? x->nodes[x->n_pieces].newer : UINT32_MAX; }
