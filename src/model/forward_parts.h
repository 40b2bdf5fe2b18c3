/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the forward pass: forward.c (the pass), attention.c (KV store, policy, attention of a layer), observe.c
 * (what is noted of it), retain.c (what is dropped for ever) and finite.c (what must not go on).
 */
#ifndef IG_MODEL_FORWARD_PARTS_H
#define IG_MODEL_FORWARD_PARTS_H

#include "model/forward.h"

/* One call of ig_forward(). */
typedef struct forward {
    const ig_model *m;
    const ig_config *c;
    ig_device *dev;
    ig_workspace *ws;
    const ig_segment *segments;
    int n_segments, n_rows;
    bool few; /* decode: independent single tokens */
    int layer;
    const ig_kernels *kernels;
} forward;

/* Before all else of a layer: final guesses for it become the choice, and make room for those of the next one. */
void ig_forward_take_guesses(const forward *f);
/* The layer's keys and values (ws->k, ws->v) go to the store, the policy selects, attention of ws->q goes to ws->x. */
ig_status ig_forward_attend(forward *f, ig_error *err);

/* Whether the sequence wants f->layer's entries guessed from `kind`. */
bool ig_forward_guesses(const forward *f, const ig_segment *seg, ig_speculation kind);
/* Selects with ws->q, guessed queries of f->layer, for those, and starts to read what was selected. */
ig_status ig_forward_guess(forward *f, ig_speculation kind, ig_error *err);

/* ---- shared by attention.c and observe.c --------------------------------------------------- */

/* Row of a segment's first token in the batch. */
int ig_forward_row(const forward *f, int segment);
/* Queries of a segment's first token: [n_heads][head_dim]. */
static inline float *ig_forward_queries(const forward *f, int segment) {
    return f->ws->q + (size_t)ig_forward_row(f, segment) * (size_t)f->c->n_heads * (size_t)f->c->head_dim;
}
/* What a decode step's selection leaves out, of the queries from head number `head` on. */
static inline ig_rest ig_forward_rest(const forward *f, int segment, int head) {
    size_t at = (size_t)ig_forward_row(f, segment) * (size_t)f->c->n_heads + (size_t)head;
    return (ig_rest){f->ws->rest.value + at * (size_t)f->c->head_dim, f->ws->rest.share + at};
}
/* A decode step selects unless its policy is dense in this layer. */
static inline bool ig_forward_selects(const forward *f, const ig_segment *seg) {
    return !seg->dense && !ig_policy_is_dense(seg->seq->policy, f->layer);
}
static inline ig_head_shape ig_forward_heads(const forward *f) {
    return (ig_head_shape){f->c->n_heads, f->c->n_kv_heads, f->c->head_dim, (float)f->c->attn_scale};
}
/* What the layer's keys are packed in; NULL: they are kept as they are. */
static inline const ig_key_frame *ig_forward_key_frame(const forward *f, const ig_segment *seg) {
    return ig_model_key_frame(f->m, ig_kv_type_of(seg->seq->kv), f->layer);
}
/* A segment's attention in this layer, from ws->q to ws->x. */
ig_attention ig_forward_job(const forward *f, int segment, ig_kv_view *views);
/* Whether a layer's entries from number `first` on are all in RAM; all of them if some were dropped. */
bool ig_forward_in_ram(const forward *f, const ig_segment *seg, int first);
/* Views [n_kv_heads] of all entries of a layer, which must be in RAM. */
void ig_forward_all_views(const forward *f, const ig_segment *seg, ig_kv_view *views);
/* Attention over all entries of a segment, wherever they are; job->q, out, lse are set. */
ig_status ig_forward_attend_all(const forward *f, const ig_segment *seg, ig_attention *job, ig_kv_view *views,
                                ig_error *err);

/* After attention (observe.c): what policies, audits and traces want to know of it. */
ig_status ig_forward_observe(forward *f, ig_error *err);

/* IG_E_NUMBER, saying where, if anything is not finite, or too large to be kept or computed with (finite.c): the
 * residual stream after the embedding, or after `where`, "the attention of layer" f->layer; the layer's queries, keys
 * and values; the logits of rows from `first` on. */
ig_status ig_forward_check_embedding(const forward *f, const int32_t *ids, ig_error *err);
ig_status ig_forward_check_state(const forward *f, const char *where, ig_error *err);
ig_status ig_forward_check_heads(const forward *f, ig_error *err);
ig_status ig_forward_check_logits(const forward *f, int first, const float *logits, ig_error *err);

/* Entries that are dropped for ever (retain.c). Before a decode step's own is added: policies with a limit of their own
 * keep to it. After attention: those beyond ig_sequence.limit go. */
ig_status ig_forward_make_room(forward *f, ig_error *err);
void ig_forward_drop(forward *f);

#endif
