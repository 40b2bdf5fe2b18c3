/* SPDX-License-Identifier: Apache-2.0
 *
 * ig_session: one timeline of tokens, its KV store and its policy.
 */
#ifndef IG_ENGINE_SESSION_H
#define IG_ENGINE_SESSION_H

#include "engine/draft_model.h"
#include "model/forward.h"

/* What a session is to be, worked out from its options. */
struct ig_session_plan {
    ig_session_options o; /* defaults filled in */
    ig_kv_shape kv;
    ig_kv_options tiers; /* with the limit in entries of a KV head */
    ig_step_need scratch;
    ig_policy_shape policy;
    const ig_policy_ops *ops;
    ig_speculation speculate;
    const ig_sketch_file *sketch; /* that the policy uses; NULL: none */
    int n_draft;                  /* of the options, or 0 where it cannot be */
};

struct ig_session {
    ig_model *model;
    ig_session_options options;
    ig_kv_options tiers;          /* of the store, without the path */
    const ig_sketch_file *sketch; /* maps of the policy's sketch; NULL: none */
    ig_cache *own_cache;          /* that only it lies in; NULL: none */
    ig_sequence seq;
    ig_arena arena;  /* of the arrays below */
    int32_t *tokens; /* [n_ctx] */
    int n_tokens;
    float *all_logits; /* [1 + n_draft][n_vocab] after the last token of a step, and after those ahead of it */
    float *logits;     /* [n_vocab] of these, those after the last token */
    bool has_logits;
    /* Tokens ahead (draft.h): computed as if they had come, which nobody knows yet. */
    int n_draft;     /* at most; 0: there are none */
    int n_guesses;   /* behind the token that the step to come decodes; no step has computed them */
    int n_ahead;     /* tokens and logits behind n_tokens and `logits`; the store and the policy have them too */
    int most_tokens; /* that there is room for, those ahead counted. Default n_ctx */
    ig_drafter drafter;
    ig_draft_model draft;
    bool is_draft;    /* it guesses for another session */
    bool is_expected; /* guesses, and those ahead, are what the caller expects */
    uint64_t n_drafted, n_draft_hits, n_expected, n_expected_hits;
    uint64_t n_prefilled, n_decoded, n_taken;
    double prefill_seconds, decode_seconds, draft_seconds;
    ig_part_work parts[IG_STEP_PARTS];
    uint64_t decode_read_bytes; /* what decode steps caused */
    uint64_t decode_vram_read_bytes;
    double decode_stall_seconds;
    ig_kv_stats step_start; /* what was moved for it as the present decode step began */
};

/* Whether everything that was ever there is kept for audits, beside what the policy holds. */
bool ig_session_has_shadow(const ig_session_plan *p);
/* Checks the options (NULL: the defaults) and fills the plan. */
ig_status ig_session_make_plan(ig_session_plan *p, const ig_model *m, const ig_session_options *options, ig_error *err);
/* Pages of memory come as they are written, so that a cache may be opened for which there is too little: says so. */
void ig_session_warn_of_size(const ig_session_plan *p, const ig_model *m);
/* Names in options that are kept are gone, since they may live in the caller's memory; the policy's is this one. */
void ig_session_forget_names(ig_cache_options *o, const char *policy);
/* Of a plan that will not be used, or of a session. NULL is fine. */
void ig_session_give_sketch(const ig_model *m, const ig_sketch_file *f);
/* Adds to the bytes of each place what a session takes beside its keys and values and what its policy keeps. */
void ig_session_plan_bytes(uint64_t bytes[IG_PLACES], const ig_session_plan *p, const ig_model *m);
/* Gives a session, which has its model, all but its keys and values `kv`. Takes the plan's sketch file. In any case
 * strip() it in the end. */
ig_status ig_session_equip(ig_session *s, ig_session_plan *p, ig_kv *kv, ig_error *err);
void ig_session_strip(ig_session *s);

/* ig_session_reuse(), but of the store at most most_read tokens. *is_cut: it has more, which another call gives. */
ig_status ig_session_reuse_some(int *n_held, bool *is_cut, ig_session *s, const int32_t *ids, int n, int most_read,
                                ig_error *err);

/* What computed tokens of a prompt give: logits, or states. */
typedef struct ig_prompt_sink {
    ig_logits_fn fn; /* NULL: nobody wants them */
    void *user;
    bool are_states;
} ig_prompt_sink;

/* ig_session_sync_logits(), or _states(), of a prompt of n_all tokens that later calls complete. */
ig_status ig_session_sync_some(ig_session *s, const int32_t *ids, int n, int n_all, ig_prompt_sink sink, ig_error *err);

/* After a step that failed: the session holds the n tokens that it had before, and what layers and policy have of later
 * ones is dropped. What could not be read nobody else takes over. */
void ig_session_roll_back(ig_session *s, int n, ig_status why);

/* Whether this token was computed ahead and may come next; and it does: its logits are current. */
bool ig_session_foresaw(const ig_session *s, int32_t id);
void ig_session_take_ahead(ig_session *s);
/* What was computed ahead is taken back, if anything was. If reading fails, the session may hold fewer tokens. */
ig_status ig_session_drop_ahead(ig_session *s, ig_error *err);

/* After ig_forward(), the batch's turn: the session holds the segment's tokens, those ahead as such. */
void ig_session_take_tokens(ig_session *s, const ig_segment *seg);
/* The same: the last logits of all segments that have not failed go to their sessions, which have none that are current
 * until the caller says so. Fails for all or, by its status, for a segment. */
ig_status ig_session_take_logits(ig_model *m, ig_error *err);

#endif
