/* SPDX-License-Identifier: Apache-2.0
 *
 * Which blocks of each KV head the latest step used. Attention moves little from one step to the next, while the
 * entries at the border of a selection change with every query. Of two that are about as heavy, the one whose block was
 * used before is the better choice: its block is at hand, the other's would have to be moved.
 *
 * The blocks of the step before the latest are kept too: a step that fails in a later layer is made again, and must
 * find what the first try found. So is the room of one step more, in which a step that fails leaves what it used: the
 * two before it may both be wanted, if the session is then cut by a token. And where steps are made ahead, so is the
 * room of as many as may be taken back.
 */
#ifndef IG_POLICY_HISTORY_H
#define IG_POLICY_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kv/head_table.h"

enum { IG_HISTORY_STEPS = 3 }; /* and one for each that may be made ahead */

typedef struct ig_history_state {
    int next;    /* the entry that comes next */
    bool met;    /* a step has met the last one that came */
    int n_met;   /* entries before the last one, one behind the other, that a step each has met */
    int now;     /* which of the steps is the latest; the one before it has the number before, in a ring */
    int n_known; /* steps up to that one of which anything is known */
} ig_history_state;

typedef struct ig_history_head {
    ig_history_state is, was; /* now, and after the latest step: what has come since may be taken back */
    int known[];              /* [n_steps] blocks that each saw. Behind them [n_steps][n_bytes] a bit for each block, as
                                 ig_pick_favour has them; touched only where it is needed */
} ig_history_head;

typedef struct ig_history {
    int block;           /* entries of a block, a power of two */
    int n_steps;         /* that have room */
    size_t n_bytes;      /* of a step's bits */
    ig_head_table heads; /* an ig_history_head each */
} ig_history;

/* Of a head with n entries in blocks of so many; n_ahead steps may be taken back at once. */
size_t ig_history_head_bytes(int n, int block, int n_ahead);
ig_status ig_history_open(ig_history *h, size_t n_heads, int n, int block, int n_ahead, ig_error *err);
void ig_history_close(ig_history *h);
/* An entry has come. If it is the last one again, the step that met it is undone; if it takes the place of another (the
 * session was cut), or no step came between it and the one before (a prompt), what was known of the head is forgotten.
 */
void ig_history_append(ig_history *h, size_t head, int entry);
/* Entries from this one on, which came in a step that failed, or in steps ahead, have not come. */
void ig_history_undo(ig_history *h, size_t head, int entry);
/* Entries were cut: what is known of the head from now on is not undone to what was known before. */
void ig_history_cut(ig_history *h, size_t head);
/* Entries before this one are there, and nothing is known of the head. */
void ig_history_resume(ig_history *h, size_t head, int entry);
/* w[n] of entries in blocks that the latest step used becomes (1 + inertia) times as much. Returns what that adds. */
double ig_history_favour(const ig_history *h, size_t head, float *w, int n, float inertia);
/* What that goes by when this entry, a step's own, has come, whether it has or not: a bit for each of the first *n
 * blocks, 1 if the latest step used it. */
const uint8_t *ig_history_used(const ig_history *h, size_t head, int entry, int *n);
/* A step uses the entries index[n_used], ascending, of n. */
void ig_history_note(ig_history *h, size_t head, const int32_t *index, int n_used, int n);

#endif
