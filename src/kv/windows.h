/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the memory of keys and values: what layers whose attention sees the last tokens only (a sliding window)
 * let go of. Such a layer never reads again what its window has passed, unless a sequence is cut, or another begins as
 * this one did. So a memory without a disk tier has fewer frames than all layers could fill, and where none is left a
 * piece that no sequence sees through a window any more becomes *thin*: its blocks of these layers are free, those of
 * the others stay. The one that was let go of longest ago is first; but last of all come places where sequences have
 * ended, as a conversation does until its next turn, or have begun, as behind what prompts have in common.
 *
 * A sequence can be cut, or begin with pieces of others, only where the pieces before are whole as far back as the
 * widest window reaches: ig_kv_whole() says where. From there on the prompt is computed again, and what is thin is
 * whole again. *Marks* bound how much that is: at multiples of 16 spans of a window the last span never becomes thin.
 */
#ifndef IG_KV_WINDOWS_H
#define IG_KV_WINDOWS_H

#include "base/memory.h"
#include "kv/memory.h"

typedef struct ig_kv_windows {
    const int *window;        /* [n_layers] tokens; 0: all. NULL: no layer has one */
    int widest;               /* of those below n_ctx; 0: nothing is let go of */
    size_t n_heads, n_tables; /* of layers that have such a one: KV heads, and tables of their blocks */
    uint32_t *n_seers;        /* [n_pieces] sequences that need the piece whole */
    uint8_t *is_thin;         /* [n_pieces] */
    size_t n_thin;            /* of these */
    uint8_t *is_place; /* [n_pieces] a sequence has ended where it needed the piece, or begun there: others may */
    ig_evict order;    /* of pieces that may become thin: first those that windows have merely passed */
    ig_arena arena;
} ig_kv_windows;

/* Sizes of m are counted. */
void ig_kv_windows_plan(ig_kv_memory *m, const int *window);
/* Frames fewer than there are blocks; bytes of tables. */
size_t ig_kv_windows_saved(const ig_kv_memory *m);
size_t ig_kv_windows_bytes(const ig_kv_memory *m);
ig_status ig_kv_windows_open(ig_kv_memory *m, ig_error *err);
void ig_kv_windows_close(ig_kv_memory *m);

/* Blocks that were let go of. */
size_t ig_kv_windows_gone(const ig_kv_memory *m);
/* Entries of the sequence that were let go of, over layers and KV heads. */
uint64_t ig_kv_count_thin(const ig_kv *kv);

/* A piece is about to be free: nothing is known of it. */
void ig_kv_windows_forget(ig_kv_memory *m, uint32_t piece);
/* Frees frames; false if no piece may become thin. */
bool ig_kv_thin_oldest(ig_kv_memory *m);

/* The sequence has got piece i, or is about to give it back or to have another in its place. */
void ig_kv_see(ig_kv *kv, int i);
void ig_kv_unsee(ig_kv *kv, int i);
/* It goes on from n tokens, whose pieces are whole as far as that needs. */
void ig_kv_see_from(ig_kv *kv, int n);
/* What it needs of piece number i on is a place. */
void ig_kv_note_place(ig_kv *kv, int i);
/* `piece`, which holds the same as piece i of the sequence, gets what it lacks of that. */
void ig_kv_make_whole(ig_kv *kv, int i, uint32_t piece);

#endif
