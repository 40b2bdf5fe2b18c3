/* SPDX-License-Identifier: Apache-2.0
 *
 * Looking after a store of prefixes without a model: what is in it, whether it is well, and taking things out. For
 * stores opened with must_exist; what changes something needs a writer, else it is IG_E_UNSUPPORTED.
 */
#ifndef IG_KV_PREFIX_TOOL_H
#define IG_KV_PREFIX_TOOL_H

#include "kv/prefix_store.h"
#include "infinigen_tools.h"

/* A chain of pieces, named by its last one, or a note. */
typedef struct ig_prefix_item {
    ig_prefix_id root, id; /* id: zero of a note */
    char model[IG_PREFIX_TEXT], kind[IG_PREFIX_TEXT];
    char note[IG_PREFIX_NAME]; /* its name; "": a chain */
    uint64_t n_pieces, n_tokens;
    uint64_t bytes;     /* of the chain from its first piece on, also where others share it */
    double used;        /* when the end was last used, a note written: seconds since 1970 */
    bool is_whole;      /* the chain has its first piece; else nobody finds it any more */
    const char *damage; /* verify: what is wrong */
    char file[64];      /* verify: where */
} ig_prefix_item;
/* True stops. It must not use the store. */
typedef bool (*ig_prefix_item_fn)(void *user, const ig_prefix_item *item);

/* Files that cannot be opened. */
uint64_t ig_prefix_count_unread(const ig_prefix_store *s);

/* All chains, each where no piece follows, then all notes. */
ig_status ig_prefix_list(ig_prefix_store *s, ig_prefix_item_fn each, void *user, ig_error *err);

/* Reads everything and checks it; `each` is called for what is damaged, one piece at a time. Nothing is changed. */
ig_status ig_prefix_verify(ig_stored_health *out, ig_prefix_store *s, ig_prefix_item_fn each, ig_progress_fn progress,
                           void *user, ig_error *err);

/* Removes what nobody can find any more (pieces without their parents, files of others), then what was not used for the
 * longest time until at most max_bytes are left; UINT64_MAX: no more than that. */
ig_status ig_prefix_collect(ig_stored_freed *out, ig_prefix_store *s, uint64_t max_bytes, ig_error *err);

/* The piece whose id begins with these hexadecimal digits: IG_E_NOT_FOUND, or IG_E_ARG if there are several. */
ig_status ig_prefix_remove_id(ig_stored_freed *out, ig_prefix_store *s, const char *digits, ig_error *err);
/* All of roots whose model is `model`, or begins with it and a blank; NULL: of all. IG_E_NOT_FOUND if that is none. */
ig_status ig_prefix_remove_model(ig_stored_freed *out, ig_prefix_store *s, const char *model, ig_error *err);
/* A note of this name, of every root that has one. */
ig_status ig_prefix_remove_notes(ig_stored_freed *out, ig_prefix_store *s, const char *name, ig_error *err);

#endif
