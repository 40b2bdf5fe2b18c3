/* SPDX-License-Identifier: Apache-2.0
 *
 * ig_session: one timeline of tokens, its KV store and policy, and scratch for its batches.
 */
#ifndef IG_ENGINE_SESSION_H
#define IG_ENGINE_SESSION_H

#include "model/forward.h"

/* What a session is to be, worked out from its options. */
typedef struct ig_session_plan {
    ig_session_options o; /* defaults filled in */
    ig_kv_shape kv;
    ig_kv_options tiers; /* with the limit in entries of a KV head */
    ig_step_need scratch;
    ig_policy_shape policy;
    const ig_policy_ops *ops;
    ig_speculation speculate;
    ig_sketch_file *sketch; /* that the policy uses; NULL: none */
} ig_session_plan;

struct ig_session {
    ig_model *model;
    ig_session_options options;
    ig_kv_options tiers;    /* of the store, without the path */
    ig_sketch_file *sketch; /* maps of the policy's sketch; NULL: none */
    ig_sequence seq;
    ig_arena arena;  /* of the arrays below */
    int32_t *tokens; /* [n_ctx] */
    int n_tokens;
    float *logits; /* [n_vocab] after the last token */
    bool has_logits;
    uint64_t n_prefilled, n_decoded, n_taken;
    double prefill_seconds, decode_seconds;
    uint64_t decode_read_bytes; /* what decode steps caused */
    double decode_stall_seconds;
    ig_kv_stats step_start; /* of the store as the present decode step began, if it has a disk tier */
};

/* Checks the options (NULL: the defaults) and fills the plan. */
ig_status ig_session_make_plan(ig_session_plan *p, const ig_model *m, const ig_session_options *options, ig_error *err);
/* Of a plan that will not be used, or of a session. NULL is fine. */
void ig_session_close_sketch(ig_sketch_file *f);
/* Gives a session, which has its model, all but its keys and values `kv`. Takes the plan's sketch file. In any case
 * strip() it in the end. */
ig_status ig_session_equip(ig_session *s, ig_session_plan *p, ig_kv *kv, ig_error *err);
void ig_session_strip(ig_session *s);

/* True if it was opened for this model. */
bool ig_sampler_is_for(const ig_sampler *sampler, const ig_model *m);

#endif
