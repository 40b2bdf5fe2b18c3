/* SPDX-License-Identifier: Apache-2.0
 *
 * How `infinigen` and `oracle` choose among the entries of a KV head once they have scores of them all, and what they
 * must remember for it.
 */
#ifndef IG_POLICY_CHOOSE_H
#define IG_POLICY_CHOOSE_H

#include "base/memory.h"
#include "policy/history.h"
#include "policy/policy.h"
#include "policy/values.h"

/* Up to so many entries reading them all takes about as long as choosing among them. With AVX2 and 16-bit keys and
 * values the two are equal at some 400 entries of head dimension 64 and 200 of 128; at 512 a step of a small model
 * takes as long either way, with packed ones 5 % longer. Fixed: results must not depend on the machine or on the tiers.
 */
enum { IG_CHOICE_WHOLE = 512 };

typedef struct ig_chooser {
    ig_history history;
    ig_values values; /* with ig_cache_options.no_rest: nothing */
} ig_chooser;

/* For n entries of a KV head. */
size_t ig_chooser_head_bytes(const ig_policy_shape *s, const ig_cache_options *o, int n);
/* Of a policy that is being opened. */
ig_status ig_chooser_open(ig_chooser *c, const ig_policy *p, ig_error *err);
void ig_chooser_close(ig_chooser *c);
/* An entry has come, as in ig_policy_ops.append. */
void ig_chooser_append(ig_chooser *c, size_t head, int slot, const uint16_t *value);

/* For ig_policy_ops.tables: that of the values goes to *table; their number. And for ig_policy_ops.undo and resume. */
int ig_chooser_table(const ig_chooser *c, const ig_unit_table **table);
void ig_chooser_undo(ig_chooser *c, int n_tokens);
void ig_chooser_resume(ig_chooser *c, int n_tokens);

/* True if there is nothing to choose among n entries: the budget is all of them, and no mass was asked for. */
bool ig_chooser_takes_all(const ig_policy *p, int n);

/* Scratch of one choice. */
typedef struct ig_choice_scratch {
    float *scores; /* [group][stride] of the queries, in order of slot; the policy fills it in */
    size_t stride; /* slots rounded up to 16 */
    float *weights, *ordered;
    float *share; /* [group] */
} ig_choice_scratch;

/* Among entries in the first n_slots slots. */
ig_choice_scratch ig_choice_lay_out(ig_arena *arena, const ig_policy_shape *s, int n_slots);

/* Each query's scores are softmax-normalised and the group's are summed; sinks, recent entries and the heaviest others
 * are chosen, as the options say, those of blocks that were used before first. Arguments and result as of select(). */
int ig_chooser_choose(ig_chooser *c, const ig_policy *p, size_t head, const ig_entries *e, ig_choice_scratch *x,
                      int32_t *index, const ig_rest *rest);

#endif
