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

/* What such a policy begins with. */
typedef struct ig_chooser {
    ig_policy base;
    ig_history history;
    ig_values values; /* with ig_cache_options.no_rest: nothing */
} ig_chooser;

/* For n entries of a KV head. */
size_t ig_chooser_head_bytes(const ig_policy_shape *s, const ig_cache_options *o, int n);
/* Of a policy that is being opened. */
ig_status ig_chooser_open(ig_chooser *c, ig_error *err);
void ig_chooser_close(ig_chooser *c);
/* An entry has come, as in ig_policy_ops.append. */
void ig_chooser_append(ig_chooser *c, size_t head, int slot, const uint16_t *value);

/* For ig_policy_ops.tables: that of the values goes to *table; their number. */
int ig_chooser_table(const ig_chooser *c, const ig_unit_table **table);
/* ig_policy_ops.undo, cut and resume. */
bool ig_chooser_undo(ig_policy *p, int n_tokens);
int ig_chooser_cut(ig_policy *p, int n_tokens);
void ig_chooser_resume(ig_policy *p, int n_tokens);

/* True if there is nothing to choose among n entries: the budget is all of them, and no mass was asked for. */
bool ig_chooser_takes_all(const ig_policy *p, int n);

/* What a list's scratch begins with. Parts are those of IG_POLICY_PART slots; stride: slots rounded up to 16. */
typedef struct ig_choice_scratch {
    float *scores; /* [group][stride] of the queries, in order of slot; then their exponentials */
    size_t stride;
    float *weights, *ordered; /* [stride] */
    float *top, *total;       /* [parts][group] the largest score of a part, and the sum of its exponentials */
    float *share;             /* [parts][group] times this they are shares of the attention */
    float *left, *sum;        /* [parts][group], [parts][group][head_dim]: see values.h */
} ig_choice_scratch;

/* Among entries in the first n_slots slots. */
ig_choice_scratch ig_choice_lay_out(ig_arena *arena, const ig_policy_shape *s, int n_slots);
/* The slots [*begin, *end) of a part of the list; the end is below stride. */
void ig_choice_part(const ig_choosing *x, int part, int *begin, int *end);

/* For ig_policy_ops.describe, of a list that is neither all nor in another order than its slots: all but the keys'
 * sketches and what maps queries and keys to them. And ig_policy_ops.take. */
void ig_chooser_describe(const ig_chooser *c, const ig_choosing *x, ig_scan_list *out);
void ig_chooser_take(ig_policy *p, const ig_choosing *x);

/* The stages. The first is the policy's: unless it takes all, it writes the scores of a part, and ends with
 * ig_chooser_scored(). Then each query's scores are softmax-normalised and the group's summed; sinks, recent entries
 * and the heaviest others are chosen, as the options say, those of blocks that were used before first; and what is left
 * out is estimated part by part. */
void ig_chooser_scored(const ig_policy *p, const ig_choosing *x, const ig_choice_scratch *s, int part);
void ig_chooser_choose(ig_policy *p, ig_choosing *x, int part);
void ig_chooser_estimate(ig_policy *p, ig_choosing *x, int part);
void ig_chooser_join(ig_policy *p, ig_choosing *x, int part);
#define IG_CHOOSER_STAGES(scan)                                                \
    {                                                                          \
        {.run = scan, .by_part = true}, {.run = ig_chooser_choose},            \
            {.run = ig_chooser_estimate, .by_part = true, .for_rest = true}, { \
            .run = ig_chooser_join, .for_rest = true                           \
        }                                                                      \
    }

#endif
