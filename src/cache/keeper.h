/* SPDX-License-Identifier: Apache-2.0
 *
 * Between sequences and the store on disk (kv/prefix_store.h): full pieces of prompts go there as they are computed,
 * and come back in another process, K and V; what policies keep beside them is made of these again, so that a stored
 * prefix serves every policy. A fault of the store costs what is stored, never a result: it is logged, and the prompt
 * is computed. After a fault of the disk nothing is written for a while, and then it is tried again; so it is where
 * another process writes, or a prompt is longer than all that may be kept.
 */
#ifndef IG_CACHE_KEEPER_H
#define IG_CACHE_KEEPER_H

#include "device/context.h"
#include "kv/prefix_store.h"
#include "kv/store.h"

typedef struct ig_keeper {
    const ig_context *ctx; /* for the log */
    ig_prefix_store *store;
    uint8_t *buffer; /* [piece_bytes] */
    double next_put; /* monotonic seconds: a while after the disk has failed, or was another's to write */
    bool is_failing; /* which has been told */
    bool has_missed; /* pieces that were computed, and were not put since the disk failed or was another's */
    uint64_t n_put;  /* pieces since the latest commit */
    uint64_t n_kept; /* pieces that commits have kept, so far */
    uint64_t n_taken;
} ig_keeper;

typedef struct ig_keeper_options {
    const char *directory, *model, *kind; /* the latter two for people */
    uint64_t max_bytes;                   /* 0: no limit */
    ig_prefix_id root, notes;
} ig_keeper_options;

/* For pieces of the memory. In any case close() in the end, which keeps what was put. */
ig_status ig_keeper_open(ig_keeper *k, const ig_context *ctx, const ig_kv_memory *m, const ig_keeper_options *o,
                         ig_error *err);
void ig_keeper_close(ig_keeper *k);

/* Stores a full piece of the sequence, number piece->number; but not if one before it is missing in the store, which
 * did not fit, was lost with a commit or has left: nobody would find it. May commit, where nothing else makes room. */
void ig_keeper_put(ig_keeper *k, ig_kv *kv, const ig_prefix_piece *piece);
/* Whether pieces that sequences hold may be missing there, and could be put now. */
bool ig_keeper_may_have_missed(const ig_keeper *k);
/* From here on what was put is kept, whatever happens. */
ig_status ig_keeper_commit(ig_keeper *k, ig_error *err);
/* The sequence, which holds piece->number full pieces and nothing else, gets this one too. False: it is not to be had.
 */
bool ig_keeper_get(ig_keeper *k, ig_kv *kv, const ig_prefix_piece *piece);

#endif
