/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the memory of keys and values: states of layers that do not attend. Such a layer has no entries; all that
 * it knows of the tokens so far is a state of fixed size, and each token changes the whole of it. So a sequence can go
 * back, or begin as another did, only to places of which a state was kept.
 *
 * A sequence has two, as of its last token and as of the step before: a step reads one and writes the other, so that
 * one that fails has changed nothing; and one more for each token that a step may compute ahead. Beside them the memory
 * has some that belong to full pieces (memory.h), behind the last of whose tokens they are: where a prompt ends, and
 * where one left what it had in common with others, which more will. The one that was used longest ago makes room for
 * the next.
 */
#ifndef IG_KV_STATES_H
#define IG_KV_STATES_H

#include "kv/store.h"

typedef struct ig_kv_state {
    uint32_t piece; /* that it belongs to; UINT32_MAX: to none */
    bool is_taken;
    uint64_t used; /* when, of those that belong to pieces */
} ig_kv_state;

enum { IG_KV_OWN_STATES = 1 + IG_KV_CARRIED };

typedef struct ig_kv_states {
    size_t bytes;       /* of one, those of all layers; 0: no layer has any */
    int n_own;          /* that a sequence has, at most IG_KV_OWN_STATES */
    size_t n;           /* of them */
    uint8_t *memory;    /* [n][bytes] the device's */
    ig_kv_state *list;  /* [n] */
    uint16_t *of_piece; /* [n_pieces] number plus one of the piece's; 0: it has none */
    uint64_t clock;     /* of uses */
} ig_kv_states;

/* What a sequence has of them. */
typedef struct ig_kv_own_states {
    int number[IG_KV_OWN_STATES];  /* [n_own] */
    int at[IG_KV_OWN_STATES];      /* tokens that each is of; -1: it is of no use */
    int writing[IG_KV_OWN_STATES]; /* tokens of which the step under way writes it; -1: it does not */
    int n_kept;                    /* of the step: others that it writes, which pieces will get, */
    int kept[2], kept_at[2];
    int wished;       /* where one that other sequences would use is to be kept; 0: nowhere */
    uint32_t passing; /* piece whose state was kept in the middle of a prompt; UINT32_MAX: none */
    bool goes_on;     /* the step's prompt does */
} ig_kv_own_states;

/* Counts them, of so many bytes each, with n_ahead of a sequence for tokens ahead; bytes that they take together. */
void ig_kv_states_plan(ig_kv_memory *m, size_t bytes, int n_ahead);
uint64_t ig_kv_states_bytes(const ig_kv_memory *m);
ig_status ig_kv_states_open(ig_kv_memory *m, ig_error *err);
void ig_kv_states_close(ig_kv_memory *m);

/* A sequence takes its own, and gives all back. */
void ig_kv_states_take(ig_kv *kv);
void ig_kv_states_give(ig_kv *kv);

/* A piece is not full any more, or about to be free: it has no state. Or another that holds the same gets its own. */
void ig_kv_states_forget(ig_kv_memory *m, uint32_t piece);
void ig_kv_states_move(ig_kv_memory *m, uint32_t from, uint32_t to);

/* How many of n tokens, which lie in these pieces, end where a piece has a state; 0: none. */
int ig_kv_states_before(const ig_kv_memory *m, const uint32_t *pieces, int n);
/* The same with the sequence's own states. */
int ig_kv_states_reach(const ig_kv *kv, int n);
/* It holds n tokens from here on, of which there is a state; what it kept of a step is dropped. */
void ig_kv_states_go_back(ig_kv *kv, int n);
/* The step under way has added what it was to. */
void ig_kv_states_go_on(ig_kv *kv);

#endif
