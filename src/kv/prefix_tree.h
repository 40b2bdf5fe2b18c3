/* SPDX-License-Identifier: Apache-2.0
 *
 * Which pieces of a memory (memory.h) hold the beginning of which text: a tree of pieces, found by a chained hash
 * (XXH3-128 of the parent's and of the piece's tokens) and confirmed by the tokens themselves. The root says what else
 * must be equal: policies of sequences whose dense keys and values differ, or a caller's salt.
 *
 * Pieces that no sequence owns stay in the tree until their room is wanted; the one that was given back longest ago
 * leaves first. A sequence gives its pieces back from the last to the first, so that none leaves before its children.
 */
#ifndef IG_KV_PREFIX_TREE_H
#define IG_KV_PREFIX_TREE_H

#include "kv/prefix_id.h"

typedef struct ig_prefix_node ig_prefix_node;

typedef struct ig_prefix_tree {
    int piece_tokens;
    size_t n_pieces;
    ig_prefix_node *nodes; /* [n_pieces + 1]: the last is the head of the list of those that are kept */
    int32_t *tokens;       /* [n_pieces][piece_tokens] */
    uint32_t *buckets;     /* [n_buckets] first node of each, plus one */
    size_t n_buckets;
    size_t n_kept;
} ig_prefix_tree;

/* Bytes of the tables. */
size_t ig_prefix_tree_bytes(size_t n_pieces, int piece_tokens);
ig_status ig_prefix_tree_open(ig_prefix_tree *x, size_t n_pieces, int piece_tokens, ig_error *err);
void ig_prefix_tree_close(ig_prefix_tree *x);

/* The piece that holds these tokens after `parent`; UINT32_MAX: none. *id is theirs in any case. */
uint32_t ig_prefix_tree_find(const ig_prefix_tree *x, ig_prefix_id parent, const int32_t *tokens, ig_prefix_id *id);
/* A full piece is in the tree from now on. No other of this id is. */
void ig_prefix_tree_add(ig_prefix_tree *x, uint32_t piece, ig_prefix_id parent, ig_prefix_id id, const int32_t *tokens);
/* Nobody finds it any more. */
void ig_prefix_tree_remove(ig_prefix_tree *x, uint32_t piece);
bool ig_prefix_tree_has(const ig_prefix_tree *x, uint32_t piece);
/* Of a piece that is in the tree, or was and has owners still. */
ig_prefix_id ig_prefix_tree_id(const ig_prefix_tree *x, uint32_t piece);

/* No sequence owns the piece, which is in the tree, any more; one does again. */
void ig_prefix_tree_keep(ig_prefix_tree *x, uint32_t piece);
void ig_prefix_tree_unkeep(ig_prefix_tree *x, uint32_t piece);
/* The one of the kept that leaves first; UINT32_MAX: there is none. */
uint32_t ig_prefix_tree_oldest(const ig_prefix_tree *x);

#endif
