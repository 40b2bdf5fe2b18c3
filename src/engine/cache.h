/* SPDX-License-Identifier: Apache-2.0
 *
 * ig_cache: a memory of keys and values with the options that its sessions share.
 */
#ifndef IG_ENGINE_CACHE_H
#define IG_ENGINE_CACHE_H

#include "engine/session.h"

struct ig_cache {
    ig_model *model;
    ig_session_options options; /* defaults filled in; names are gone but those of the type and the eviction */
    ig_kv_options tiers;        /* without the path */
    int least_dropping;         /* layers; there is no room for all entries of more of them */
    ig_kv_memory *memory;
    ig_keeper keeper;  /* its store is NULL if nothing is to outlive the process */
    ig_cache *drafts;  /* in which its sessions' draft sessions lie; NULL: there are none */
    ig_prefix_id root; /* of what sessions share */
    uint64_t taken_tokens;
};

/* The root of what sessions with these options' salt and scales of adapters share. */
ig_prefix_id ig_cache_root(const ig_cache *c, const ig_session_options *o);

/* Whether a prompt's keys and values are the same under both: they differ where its tokens choose. */
bool ig_cache_same_prompts(const ig_cache_options *a, const ig_cache_options *b);

/* What sessions of the cache cannot choose for themselves, as the cache has it. IG_E_ARG, IG_E_LIMIT. */
ig_status ig_cache_impose(ig_session_options *o, const ig_model *m, ig_error *err);
/* Whether a session of this plan may lie in the cache. */
ig_status ig_cache_check(const ig_cache *c, const ig_session_plan *p, ig_error *err);

#endif
