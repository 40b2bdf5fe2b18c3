/* SPDX-License-Identifier: Apache-2.0
 *
 * The keys and values of one sequence: a list of pieces of a memory (memory.h), and how far each layer has come.
 *
 * A layer reads its entries in one of two ways: ig_kv_load() brings the blocks of chosen entries into RAM, where
 * they stay until others need the room; ig_kv_stream() passes all blocks by in order through a small staging area
 * and leaves what is in RAM as it is, since a scan would only push out what is useful.
 *
 * Entries of a layer can be dropped for ever (ig_kv_keep()). From then on entry i of a KV head does not lie in slot i:
 * new tokens take the slots that are free, and the layer stays in RAM. Sequences of which entries are dropped share
 * nothing.
 */
#ifndef IG_KV_STORE_H
#define IG_KV_STORE_H

#include "kv/entries.h"
#include "kv/memory.h"
#include "kv/rows.h"
#include "kv/table.h"

/* A sequence in a memory, which outlives it. IG_E_LIMIT if as many lie in it as it was made for. */
ig_status ig_kv_open_in(ig_kv **out, ig_kv_memory *m, ig_error *err);
/* One with a memory of its own. */
ig_status ig_kv_open(ig_kv **out, const ig_kv_shape *shape, const ig_kv_options *options, ig_error *err);
void ig_kv_close(ig_kv *kv);
ig_kv_memory *ig_kv_memory_of(const ig_kv *kv);
/* Where what policies keep of its tokens lies; stays true as tokens come and go. */
ig_kv_home ig_kv_home_of(const ig_kv *kv);

/* Tokens that every layer has seen; those that it dropped count. */
int ig_kv_length(const ig_kv *kv);
ig_entries ig_kv_entries(const ig_kv *kv, int layer, int head);
/* Whether blocks can be elsewhere than in RAM. */
bool ig_kv_has_disk(const ig_kv *kv);
/* Whether some may have to be waited for: those on disk, and those that a GPU has no copies of. */
bool ig_kv_may_wait(const ig_kv *kv);
/* Whether a device may have copies of blocks in memory of its own. */
bool ig_kv_has_copies(const ig_kv *kv);
/* Whether entries of any layer were dropped for ever. */
bool ig_kv_has_dropped(const ig_kv *kv);

/* Makes room for tokens [0, n) in one layer. Without a disk tier it cannot fail for n <= n_ctx. */
ig_status ig_kv_extend(ig_kv *kv, int layer, int n, ig_error *err);
/* A step reads a layer that it adds nothing to. */
void ig_kv_read_again(ig_kv *kv, int layer);
/* The slot of a token that was not dropped and is not before one that was. */
int ig_kv_slot(const ig_kv *kv, int layer, int head, int token);
/* Where the row of a slot of the layer's last block or of the latest extension lies, to be written once. */
ig_kv_row ig_kv_at(const ig_kv *kv, int layer, int head, int slot);
/* The rows of the layer are written: full blocks go to the disk tier, behind what follows. */
ig_status ig_kv_seal(ig_kv *kv, int layer, ig_error *err);
/* A step is over, and the first n tokens will not be taken back: layers with a window may let go of what theirs has
 * passed, and what begin_carry() named is valid. */
void ig_kv_go_on(ig_kv *kv, int n);
/* Drops tokens from n on in all layers. What is left of a piece that others own or may find is copied. May have to read
 * blocks back; where that fails, fewer than n tokens are left (length()). What was dropped cannot come back: if a layer
 * that has seen more than n tokens dropped some, nothing is left; if layers with a window have let go of what comes
 * before n, what ig_kv_whole() says is. */
ig_status ig_kv_cut(ig_kv *kv, int n, ig_error *err);

/* Takes memory for the lists that keep() and drop() need, unless it is there. */
ig_status ig_kv_may_drop(ig_kv *kv, ig_error *err);
/* A KV head of a layer keeps its entries of these numbers, ascending, fewer than it has; the others are gone for ever.
 * All heads of the layer must keep as many. Heads may come from several threads. */
void ig_kv_keep(ig_kv *kv, int layer, int head, const int32_t *index, int n);
/* The same for all entries but number i. */
void ig_kv_drop(ig_kv *kv, int layer, int head, int i);
/* After keep() or drop(): moves the layer's entries together and gives the room behind them back; moved() is told of
 * each that gets another slot. With a disk tier it must follow a layer's first drop, since it brings what is kept into
 * RAM; where that fails, only cut() may follow. */
typedef void (*ig_kv_moved_fn)(void *user, int layer, int head, int from, int to);
ig_status ig_kv_compact(ig_kv *kv, int layer, ig_kv_moved_fn moved, void *user, ig_error *err);

/* ig_kv_load_all() of this sequence alone, see memory.h. */
ig_status ig_kv_load(ig_kv *kv, int layer, const ig_kv_pick *picks, int n_picks, ig_error *err);
/* The rows that attention will read: tokens of the pick, or (index == NULL) first .. first + n - 1. All must be in RAM.
 */
ig_kv_view ig_kv_fetch(ig_kv *kv, int layer, int head, const int32_t *index, int first, int n);

/* Between the halves of a load(): whether anything is being waited for. */
bool ig_kv_is_loading(const ig_kv *kv);
/* Whether all blocks of a layer with slots [first, end) are in RAM, as far as there are such slots. */
bool ig_kv_in_ram(const ig_kv *kv, int layer, int first, int end);
/* Views [n_kv_heads] of tokens [begin, begin + IG_ATTEND_UNIT) of n, which last until the next call but one; begin is a
 * multiple of IG_ATTEND_UNIT. Meanwhile the piece that follows is read. */
ig_status ig_kv_stream(ig_kv *kv, int layer, int begin, int n, ig_kv_view *views, ig_error *err);

/* ---- what layers without keys carry on (states.h) ---- */

enum { IG_KV_CARRIED = IG_RECURRENCE_KEPT };

/* States of state_bytes that a step reads and writes. */
typedef struct ig_kv_carry {
    const uint8_t *from; /* before its tokens; NULL: there are none, and the state is one of zeros */
    int n_kept;
    struct {
        int after; /* so many of its tokens; ascending, the last is all of them */
        uint8_t *state;
    } kept[IG_KV_CARRIED];
} ig_kv_carry;

/* Tokens [first, first + n) are about to be computed, of a prompt that may go on, or one after the other, of which each
 * has a state; the sequence holds `first`. It has no state of them before go_on(), and none if it is cut instead. */
void ig_kv_begin_carry(ig_kv_carry *out, ig_kv *kv, int first, int n, bool is_prompt, bool goes_on);
/* Others have tokens [0, n) too: a prompt of the sequence that passes there leaves a state, if n ends a piece. */
void ig_kv_wish_state(ig_kv *kv, int n);

/* ---- pieces ---- */

/* Pieces that the sequence has, full ones and the last. */
int ig_kv_pieces(const ig_kv *kv);
/* held[i] of n sequences of a memory: pieces that numbers i to n - 1 have together, each counted once. */
void ig_kv_count_held(size_t *held, ig_kv *const *kvs, int n);
/* Number of piece i of those that are full in every layer; no entry was dropped. */
uint32_t ig_kv_piece(const ig_kv *kv, int i);
/* Whether all layers have all of piece i: not if those with a window have let go of it. */
bool ig_kv_is_whole(const ig_kv *kv, int i);
/* How many of n tokens, which lie in these pieces, a sequence can go on from: all, or those before some that layers
 * with a window have let go of; with states, those that end where there is one. */
int ig_kv_whole(const ig_kv_memory *m, const uint32_t *pieces, int n);
/* A sequence, whatever it held, owns these n pieces, which are full, together with others: it can go on from there. */
void ig_kv_adopt(ig_kv *kv, const uint32_t *pieces, int n);
/* The sequence takes another piece in place of its own number i, which is full and holds the same. The other one gets
 * what it lacks. */
void ig_kv_replace_piece(ig_kv *kv, int i, uint32_t piece);

/* K and V of full piece number i, wherever they are, to buffer [ig_kv_piece_bytes()]. Fails only if they cannot be
 * read: of a write that has failed the sequence is told when it goes on. */
ig_status ig_kv_copy_piece(ig_kv *kv, int i, uint8_t *buffer, ig_error *err);
/* The sequence, which holds full pieces only, gets another one, as copy_piece() gave it. After a failure it has what it
 * had. */
ig_status ig_kv_append_piece(ig_kv *kv, const uint8_t *buffer, ig_error *err);

/* What was read, written, found and waited for on behalf of this sequence; of what was done for several at once an even
 * share. Cheap. */
const ig_kv_stats *ig_kv_moved(const ig_kv *kv);
/* The same with its entries, and what its blocks take: with a memory of its own all that this takes. */
void ig_kv_get_stats(const ig_kv *kv, ig_kv_stats *out);

#endif
