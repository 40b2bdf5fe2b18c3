/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to a step: step.c (the order of a layer, and what is kept), select.c, attend.c, late.c (steps that are seen
 * when all is done), observe.c (what is noted of it) and retain.c (what is dropped for ever).
 */
#ifndef IG_CACHE_STEP_PARTS_H
#define IG_CACHE_STEP_PARTS_H

#include "cache/step.h"

/* What a decode step's selection leaves out, of the queries from head number `head` on. */
static inline ig_rest ig_step_rest(const ig_step *step, const ig_segment *seg, int head) {
    size_t at = (size_t)seg->row * (size_t)step->heads.n_heads + (size_t)head;
    return (ig_rest){step->x->rest.value + at * (size_t)step->heads.head_dim, step->x->rest.share + at};
}
/* A decode step selects unless its policy is dense in this layer. */
static inline bool ig_step_selects(const ig_step *step, const ig_segment *seg) {
    return !seg->dense && !ig_policy_is_dense(seg->seq->policy, step->layer);
}
/* What its tokens have chosen in this layer. */
static inline ig_selection *ig_step_chosen(const ig_segment *seg) { return &seg->seq->chosen[seg->ahead]; }
/* What they see of a KV head: not those that follow in the same step. */
static inline ig_entries ig_step_entries(const ig_step *step, const ig_segment *seg, int head) {
    ig_entries e = ig_kv_entries(seg->seq->kv, step->layer, head);
    int behind = e.n - (seg->first + seg->n);
    if (behind > 0) e.n -= behind, e.n_slots -= behind; /* none was dropped */
    return e;
}
/* Whether the policy sees a segment's queries: a prompt's, and without a prompt the first step's. */
static inline bool ig_step_shows_queries(const ig_segment *seg) {
    return seg->seq->policy->ops->see_queries && (seg->dense || seg->first == 0);
}
/* Scratch of segment s: [n_heads]. */
static inline ig_kv_view *ig_step_views(const ig_step *step, int s) {
    return step->x->views + (size_t)s * (size_t)step->heads.n_heads;
}
/* A segment's attention in this layer, from x->q to x->out. */
ig_attention ig_step_job(const ig_step *step, const ig_segment *seg, ig_kv_view *views);
/* Views [n_kv_heads] of all entries of a layer, which must be in RAM. */
void ig_step_all_views(const ig_step *step, const ig_segment *seg, ig_kv_view *views);
/* Attention over all entries of a segment, wherever they are; job->q, out, lse are set. */
ig_status ig_step_attend_all(const ig_step *step, const ig_segment *seg, ig_attention *job, ig_kv_view *views);

/* The policies of all sequences that choose select with x->q, queries of step->layer (select.c): this layer's entries,
 * or those that are guessed from `kind`. */
void ig_step_select(ig_step *step, ig_speculation kind);
/* What this layer's selection left for when the blocks it chose are being read: estimates of the rest. */
void ig_step_estimate(ig_step *step);

/* What was chosen is fetched, and attended to (attend.c). */
ig_status ig_step_attend_to_chosen(ig_step *step, ig_error *err);
/* Where a sequence has failed, what follows of it in the step has, too. */
void ig_step_spread_failures(const ig_step *step);

/* Whether entries of the sequence may move after a layer's attention, or what this did is looked at. */
bool ig_sequence_is_watched(const ig_sequence *seq);
/* Whether the device has chosen the segment's entries of this layer and has the lists alone; and views of these
 * [n_lists], or of those that it has guessed. */
bool ig_step_is_hidden(const ig_step *step, const ig_segment *seg);
void ig_step_hidden_views(const ig_step *step, const ig_segment *seg, bool guess, ig_kv_view *views);

/* The slots [*n] that list number `list` of a decode step has chosen in this layer; NULL: all n. */
int32_t *ig_step_list(const ig_step *step, const ig_segment *seg, int list, int *n);

/* Notes how much a KV head uses in this layer (ig_sequence.use). Heads may come from several threads. */
void ig_step_count(const ig_step *step, const ig_segment *seg, int head, int thread);
/* After a segment's attention (observe.c), while what it chose is in RAM: what policies, audits and traces want to know
 * of it. */
void ig_step_observe(const ig_step *step, ig_segment *seg);

/* Entries that are dropped for ever (retain.c). Before a decode step's own is added: policies with a limit of their own
 * keep to it. After attention: those beyond ig_sequence.limit go. */
void ig_step_make_room(ig_step *step);
void ig_step_drop(ig_step *step);

#endif
