/* SPDX-License-Identifier: Apache-2.0
 *
 * What sequences of a memory have in common: full pieces of prompts, which the tree of prefixes (kv/prefix_tree.h)
 * finds by their tokens. K and V of a prompt depend on its tokens alone, whatever the policy, so that it makes no
 * difference, bitwise, who has computed them; but for policies that choose in prompts, too, which have roots of their
 * own. What a policy keeps beside them does too; of a policy that none of the piece's owners had it is made from K and
 * V. Tokens that were decoded attended to what a policy chose: they, and what follows them, are not shared, unless the
 * memory is told to share answers.
 */
#include <limits.h>

#include "cache/sequence.h"

bool ig_sequence_can_share(const ig_policy_ops *ops, int limit) {
    bool drops = ops->limit || limit;
    return !drops && !ops->info.sees_prompts && (ops->tables || !ig_policy_sees_rows(ops));
}

static int piece_tokens(const ig_sequence *seq) { return ig_kv_piece_tokens(ig_kv_memory_of(seq->kv)); }

/* ---- giving ------------------------------------------------------------------------ */

static void note_tables(const ig_sequence *seq, uint32_t piece) {
    const ig_unit_table *tables[IG_POLICY_TABLES];
    const ig_policy *p = seq->policy;
    int n = p->ops->tables ? p->ops->tables(p, tables) : 0;
    for (int i = 0; i < n; i++) ig_unit_table_note(tables[i], piece);
}

/* Piece i of tokens, whose parent is in the tree; its id is to be found. */
static ig_prefix_piece piece_of(const ig_sequence *seq, const int32_t *tokens, int i) {
    const ig_prefix_tree *tree = ig_kv_prefixes(ig_kv_memory_of(seq->kv));
    return (ig_prefix_piece){.parent = i ? ig_prefix_tree_id(tree, ig_kv_piece(seq->kv, i - 1)) : seq->root,
                             .number = i,
                             .tokens = tokens + (size_t)i * (size_t)tree->piece_tokens};
}

/* The sequence's next full piece goes to the tree; one that another sequence was quicker to give takes its place. */
static void publish(ig_sequence *seq, ig_prefix_piece *piece) {
    ig_prefix_tree *tree = ig_kv_prefixes(ig_kv_memory_of(seq->kv));
    uint32_t own = ig_kv_piece(seq->kv, piece->number),
             other = ig_prefix_tree_find(tree, piece->parent, piece->tokens, &piece->id);
    if (other == UINT32_MAX)
        ig_prefix_tree_add(tree, own, piece->parent, piece->id, piece->tokens);
    else
        ig_kv_replace_piece(seq->kv, piece->number, other);
    seq->n_published = piece->number + 1;
}

void ig_sequence_give(ig_sequence *seq, const int32_t *tokens, int n, bool dense) {
    if (!seq->shares) return;
    if (!dense && !seq->shares_answers && seq->dense_end == INT_MAX) seq->dense_end = n - 1;
    const ig_prefix_tree *tree = ig_kv_prefixes(ig_kv_memory_of(seq->kv));
    int end = (n < seq->dense_end ? n : seq->dense_end) / tree->piece_tokens;
    while (seq->n_published < end) {
        ig_prefix_piece piece = piece_of(seq, tokens, seq->n_published);
        piece.id = ig_prefix_next(piece.parent, piece.tokens, tree->piece_tokens);
        if (seq->keeper) ig_keeper_put(seq->keeper, seq->kv, &piece);
        note_tables(seq, ig_kv_piece(seq->kv, piece.number));
        publish(seq, &piece);
    }
}

/* Those that have them keep them, and go on giving what follows: ids say what tokens lead there, not who has them. */
void ig_sequence_withdraw(ig_sequence *seq, int first) {
    for (int i = first, n = seq->shares ? ig_kv_pieces(seq->kv) : 0; i < n; i++)
        ig_prefix_tree_remove(ig_kv_prefixes(ig_kv_memory_of(seq->kv)), ig_kv_piece(seq->kv, i));
}

void ig_sequence_take_back(ig_sequence *seq, int n) {
    if (!seq->shares) return;
    int n_full = n / piece_tokens(seq);
    if (seq->n_published > n_full) seq->n_published = n_full;
    if (n <= seq->dense_end) seq->dense_end = INT_MAX;
}

void ig_sequence_inherit(ig_sequence *seq, const ig_sequence *from) {
    if (!seq->shares) return;
    if (ig_kv_length(seq->kv) && !(from->shares && ig_prefix_same(&from->root, &seq->root))) {
        seq->dense_end = 0; /* nobody noted what was decoded, or it is not for these others: it gives nothing of it */
        return;
    }
    seq->dense_end = from->dense_end;
    seq->n_published = from->n_published;
    for (int i = 0; i < seq->n_published; i++) note_tables(seq, ig_kv_piece(seq->kv, i));
}

/* ---- taking ------------------------------------------------------------------------ */

/* The pieces that hold the longest beginning of ids [n] that a sequence can go on from, in seq->pieces; their number.
 */
static int find_pieces(const ig_sequence *seq, const int32_t *ids, int n) {
    const ig_prefix_tree *tree = ig_kv_prefixes(ig_kv_memory_of(seq->kv));
    ig_prefix_id parent = seq->root, id;
    int count = 0;
    for (; (count + 1) * tree->piece_tokens <= n; count++, parent = id) {
        const int32_t *of_piece = ids + (size_t)count * (size_t)tree->piece_tokens;
        seq->pieces[count] = ig_prefix_tree_find(tree, parent, of_piece, &id);
        if (seq->pieces[count] == UINT32_MAX) break;
    }
    ig_kv_wish_state(seq->kv, count * tree->piece_tokens);
    return ig_kv_whole(ig_kv_memory_of(seq->kv), seq->pieces, count * tree->piece_tokens) / tree->piece_tokens;
}

/* How many of the pieces of ids [n] that follow the first `count` the store has, as far as it knows; `most` at most. */
static int count_stored(const ig_sequence *seq, const int32_t *ids, int n, int count, int most) {
    const ig_prefix_tree *tree = ig_kv_prefixes(ig_kv_memory_of(seq->kv));
    ig_prefix_piece piece = {.id = count ? ig_prefix_tree_id(tree, seq->pieces[count - 1]) : seq->root};
    int end = count;
    for (; seq->keeper && end - count < most && (end + 1) * tree->piece_tokens <= n; end++) {
        piece.parent = piece.id;
        piece.number = end;
        piece.tokens = ids + (size_t)end * (size_t)tree->piece_tokens;
        piece.id = ig_prefix_next(piece.parent, piece.tokens, tree->piece_tokens);
        if (!ig_prefix_store_has(seq->keeper->store, &piece)) break;
    }
    return end - count;
}

/* What is taken from RAM is used in the store, too: else the prefixes that are used most would be the first to leave
 * there. A piece does not leave before what builds on it, so that it is enough to note the last one. How many of the
 * `count` pieces the store has. */
static int note_use(const ig_sequence *seq, int count) {
    const ig_prefix_tree *tree = ig_kv_prefixes(ig_kv_memory_of(seq->kv));
    while (seq->keeper && count &&
           !ig_prefix_store_use(seq->keeper->store, ig_prefix_tree_id(tree, seq->pieces[count - 1])))
        count--;
    return count;
}

static bool may_keep_missed(const ig_sequence *seq) { return seq->keeper && ig_keeper_may_have_missed(seq->keeper); }

/* Pieces [first, end) of those that were found, which the sequence holds and the store lacks: if it could not take
 * pieces for a while these may be such. */
static void keep_missed(const ig_sequence *seq, const int32_t *ids, int first, int end) {
    const ig_prefix_tree *tree = ig_kv_prefixes(ig_kv_memory_of(seq->kv));
    for (int i = first; may_keep_missed(seq) && i < end; i++) {
        ig_prefix_piece piece = {.id = ig_prefix_tree_id(tree, seq->pieces[i]),
                                 .parent = i ? ig_prefix_tree_id(tree, seq->pieces[i - 1]) : seq->root,
                                 .number = i,
                                 .tokens = ids + (size_t)i * (size_t)tree->piece_tokens};
        if (ig_kv_is_whole(seq->kv, i)) ig_keeper_put(seq->keeper, seq->kv, &piece);
    }
}

/* Takes what the store has after the first `count` pieces, which the sequence holds. The number of pieces then. */
static int take_stored(ig_sequence *seq, const int32_t *ids, int n, int count) {
    const ig_prefix_tree *tree = ig_kv_prefixes(ig_kv_memory_of(seq->kv));
    for (; seq->keeper && (count + 1) * tree->piece_tokens <= n; count++) {
        ig_prefix_piece piece = piece_of(seq, ids, count);
        piece.id = ig_prefix_next(piece.parent, piece.tokens, tree->piece_tokens);
        if (!ig_keeper_get(seq->keeper, seq->kv, &piece)) break;
        publish(seq, &piece); /* the tree may have it without what layers with a window have let go of */
        seq->pieces[count] = ig_kv_piece(seq->kv, count);
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

ig_status ig_sequence_take(bool *is_cut, ig_sequence *seq, ig_device *dev, const int32_t *ids, int n, int most_read,
                           ig_error *err) {
    *is_cut = false;
    if (!seq->shares) return IG_OK;
    if (ig_kv_length(seq->kv) > seq->dense_end) return IG_OK; /* what it has decoded is not what a prompt gives */
    int count = find_pieces(seq, ids, n), each = piece_tokens(seq);
    int most = most_read > each ? most_read / each : 1;
    int stored = count_stored(seq, ids, n, count, most + 1);
    bool takes = (count + stored) * each > ig_kv_length(seq->kv);
    if (!takes && !may_keep_missed(seq)) return IG_OK;
    int kept = note_use(seq, count);
    if (!takes) {
        keep_missed(seq, ids, kept, count);
        return IG_OK;
    }
    ig_kv_adopt(seq->kv, seq->pieces, count);
    keep_missed(seq, ids, kept, count);
    seq->dense_end = INT_MAX;
    seq->n_published = count;
    int end = stored > most ? (count + most) * each : n;
    if (stored) count = take_stored(seq, ids, end, count);
    bool has_more = stored > most && count * each == end;
    int unwritten = find_unwritten(seq, count);
    ig_status s = IG_OK;
    if (unwritten < count) s = ig_sequence_replay(seq, dev, unwritten * each, count * each, err);
    if (s) { /* what it was to be made from cannot be read */
        ig_sequence_withdraw(seq, unwritten);
        ig_sequence_cut(seq, unwritten * each, NULL);
        count = unwritten;
    }
    *is_cut = has_more && !s;
    for (int i = unwritten; i < count; i++) note_tables(seq, seq->pieces[i]);
    if (seq->policy->ops->resume) seq->policy->ops->resume(seq->policy, count * each);
    return s;
}
