/* SPDX-License-Identifier: Apache-2.0
 *
 * What sequences of a memory have in common: full pieces of prompts, which the tree of prefixes (kv/prefix_tree.h)
 * finds by their tokens. K and V of a prompt depend on its tokens alone, whatever the policy, so that it makes no
 * difference, bitwise, who has computed them. What a policy keeps beside them does too; of a policy that none of the
 * piece's owners had it is made from K and V. Tokens that were decoded attended to what a policy chose: they, and what
 * follows them, are not shared.
 */
#include <limits.h>

#include "cache/sequence.h"

bool ig_sequence_can_share(const ig_policy_ops *ops, int limit) {
    bool drops = ops->limit || limit, sees_more = ops->observe || ops->see_queries;
    return !drops && !sees_more && (ops->tables || !ops->append);
}

static int piece_shift(const ig_sequence *seq) {
    int shift = 0;
    while (ig_kv_piece_tokens(ig_kv_memory_of(seq->kv)) >> shift > 1) shift++;
    return shift;
}

/* ---- giving ------------------------------------------------------------------------ */

static void note_tables(const ig_sequence *seq, uint32_t piece) {
    const ig_unit_table *tables[IG_POLICY_TABLES];
    const ig_policy *p = seq->policy;
    int n = p->ops->tables ? p->ops->tables(p, tables) : 0;
    for (int i = 0; i < n; i++) ig_unit_table_note(tables[i], piece);
}

/* Pieces up to number `end` go to the tree; one that another sequence was quicker to give takes their place. */
static void publish(ig_sequence *seq, const int32_t *tokens, int end) {
    ig_prefix_tree *tree = ig_kv_prefixes(ig_kv_memory_of(seq->kv));
    for (int i = seq->n_published; i < end; i = ++seq->n_published) {
        ig_prefix_id parent = i ? ig_prefix_tree_id(tree, ig_kv_piece(seq->kv, i - 1)) : seq->root, id;
        const int32_t *of_piece = tokens + (size_t)i * (size_t)tree->piece_tokens;
        uint32_t own = ig_kv_piece(seq->kv, i), other = ig_prefix_tree_find(tree, parent, of_piece, &id);
        note_tables(seq, own);
        if (other == UINT32_MAX)
            ig_prefix_tree_add(tree, own, parent, id, of_piece);
        else
            ig_kv_replace_piece(seq->kv, i, other);
    }
}

void ig_sequence_stepped(ig_sequence *seq, const int32_t *tokens, int n, bool dense) {
    if (!seq->shares) return;
    if (!dense && seq->dense_end == INT_MAX) seq->dense_end = n - 1;
    int end = n < seq->dense_end ? n : seq->dense_end;
    publish(seq, tokens, end >> piece_shift(seq));
}

ig_status ig_sequence_cut(ig_sequence *seq, int n, ig_error *err) {
    ig_status s = ig_kv_cut(seq->kv, n, err);
    if (!seq->shares) return s;
    int length = ig_kv_length(seq->kv);
    if (seq->n_published > length >> piece_shift(seq)) seq->n_published = length >> piece_shift(seq);
    if (length <= seq->dense_end) seq->dense_end = INT_MAX;
    return s;
}

void ig_sequence_inherit(ig_sequence *seq, const ig_sequence *from) {
    if (!seq->shares) return; /* then there are no tokens */
    seq->dense_end = from->dense_end;
    seq->n_published = from->n_published;
    for (int i = 0; i < seq->n_published; i++) note_tables(seq, ig_kv_piece(seq->kv, i));
}

/* ---- taking ------------------------------------------------------------------------ */

/* The pieces that hold the longest beginning of ids [n], in seq->pieces; their number. */
static int find_pieces(const ig_sequence *seq, const int32_t *ids, int n) {
    const ig_prefix_tree *tree = ig_kv_prefixes(ig_kv_memory_of(seq->kv));
    ig_prefix_id parent = seq->root, id;
    int count = 0;
    for (; (count + 1) * tree->piece_tokens <= n; count++, parent = id) {
        seq->pieces[count] = ig_prefix_tree_find(tree, parent, ids + (size_t)count * (size_t)tree->piece_tokens, &id);
        if (seq->pieces[count] == UINT32_MAX) break;
    }
    return count;
}

/* The first of `count` pieces that the policy's tables lack something of; count: none. */
static int find_unwritten(const ig_sequence *seq, int count) {
    const ig_unit_table *tables[IG_POLICY_TABLES];
    const ig_policy *p = seq->policy;
    int n = p->ops->tables ? p->ops->tables(p, tables) : 0;
    for (int i = 0; i < count; i++)
        for (int t = 0; t < n; t++)
            if (!ig_unit_table_has(tables[t], seq->pieces[i])) return i;
    return count;
}

ig_status ig_sequence_take(ig_sequence *seq, ig_device *dev, const int32_t *ids, int n, int *taken, ig_error *err) {
    *taken = 0;
    if (!seq->shares) return IG_OK;
    int count = find_pieces(seq, ids, n), shift = piece_shift(seq);
    if (!count || count << shift <= ig_kv_length(seq->kv)) return IG_OK;
    ig_kv_adopt(seq->kv, seq->pieces, count);
    seq->dense_end = INT_MAX;
    seq->n_published = count;
    int unwritten = find_unwritten(seq, count);
    ig_status s = IG_OK;
    if (unwritten < count) s = ig_sequence_replay(seq, dev, unwritten << shift, count << shift, err);
    if (s) { /* what it was to be made from cannot be read */
        ig_sequence_cut(seq, unwritten << shift, NULL);
        count = unwritten;
    }
    for (int i = unwritten; i < count; i++) note_tables(seq, seq->pieces[i]);
    if (seq->policy->ops->resume) seq->policy->ops->resume(seq->policy, count << shift);
    *taken = count << shift;
    return s;
}
