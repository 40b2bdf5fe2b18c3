/* SPDX-License-Identifier: Apache-2.0
 *
 * What a cache keeps of one timeline of tokens: its KV store, its policy, what its steps chose and guessed, and what
 * was noted of them. One thread at a time.
 */
#ifndef IG_CACHE_SEQUENCE_H
#define IG_CACHE_SEQUENCE_H

#include "cache/keeper.h"
#include "device/space.h"
#include "kv/store.h"
#include "policy/policy.h"
#include "policy/usage.h"

/* The state that the next layer's queries are guessed from (ig_cache_options.speculate). */
typedef enum ig_speculation {
    IG_SPECULATE_NONE,
    IG_SPECULATE_NORM,  /* before this layer's attention, through the next layer's norm */
    IG_SPECULATE_LATE,  /* the same after attention */
    IG_SPECULATE_PAPER, /* this layer's normed input; the true queries do not select again */
    IG_SPECULATE_AUTO,  /* LATE or NONE, as the step says */
} ig_speculation;

/* Entries that a layer's attention uses. */
typedef struct ig_selection {
    int32_t *slots; /* [n_lists][n_ctx] in order of position, unless a list holds all entries */
    int *n;         /* [n_lists] */
    bool *all;      /* [n_lists] */
    int layer;      /* -1: of none */
} ig_selection;

/* Lists that the device has alone. */
typedef struct ig_hidden_lists {
    int32_t *slots, *n; /* [n_lists][most], [n_lists] */
} ig_hidden_lists;

/* What a step chooses whose layers all go through before the host sees any of it. */
typedef struct ig_late_choice {
    int most;                      /* entries of a list; 0: there is no such step */
    int32_t *slots, *n;            /* [n_layers][n_lists][most], [n_layers][n_lists] */
    ig_hidden_lists chosen, guess; /* of the layer under way; for the next one */
} ig_late_choice;

/* What the lists of a KV head hold: entries, and the blocks that these lie in. */
typedef struct ig_head_use {
    int entries, blocks;
} ig_head_use;

enum { IG_AUDIT_BINS = 1000 };

/* Attention mass that the selected entries held, where it was measured. */
typedef struct ig_audit {
    int every;              /* decode steps; 0: never */
    ig_cache_audit_fn call; /* NULL: nobody asks */
    void *user;
    uint64_t n, bins[IG_AUDIT_BINS + 1]; /* heads measured, in all and by their mass in thousandths */
    double sum;
    double cosine, output_cosine, needed; /* sums over query heads */
    uint64_t n_queries;
    double *layer_sum; /* [n_layers] */
    uint64_t *layer_n; /* [n_layers] */
} ig_audit;

/* Entries that decode steps used: sums over layers and lists, or KV heads. */
typedef struct ig_use_sums {
    double shares, fetched;       /* of entries used / tokens seen, per list; the same per KV head */
    double blocks;                /* of blocks that hold them / blocks of all tokens, per KV head */
    uint64_t n_shares, n_fetched; /* what they are the sums of */
    uint64_t used, seen;          /* entries, per KV head and layer */
} ig_use_sums;

enum { IG_STEP_ROWS = IG_DRAFT_MAX + 1 /* most tokens of a sequence that a step decodes */ };

typedef struct ig_sequence {
    ig_kv *kv; /* opened and closed by its holder, since it may outlive the rest */
    ig_kv_codec codec;
    ig_policy *policy;
    ig_space space;                    /* of the arrays below */
    int limit;                         /* most entries of a KV head after a step, where some may be dropped; 0: none */
    ig_usage usage;                    /* with limit */
    int stepped_end;                   /* tokens before this one came with the latest decode step, or before it */
    int n_ctx, n_lists;                /* lists of entries in a layer: KV heads, or query heads */
    ig_selection chosen[IG_STEP_ROWS]; /* [n_chosen] for the current layer: of a step's token, and of each decoded ahead
                                          of it; or of tokens of a prompt */
    int n_chosen;
    ig_selection guess; /* for the next one */
    ig_late_choice late;
    ig_kv_view *views; /* [n_kv_heads] for what no step is about */
    ig_head_use *use;  /* [n_layers][n_kv_heads] of the latest step, where it selected */
    ig_speculation speculate;
    const ig_matrix *narrow; /* what made this guess's queries (ig_policy_ops.narrow); NULL: the model's weights */
    bool prefetch;           /* read guessed entries ahead, if there is a disk tier */
    ig_kv *shadow;           /* everything that was ever there, for audits of what is dropped; NULL: kv has it */
    ig_cache_trace_fn trace;
    void *trace_user;
    ig_kv_stats traced; /* as of the last call of trace */
    int n_steps;        /* decode steps so far */
    ig_audit audit;
    ig_use_sums uses;                   /* of decoded tokens */
    ig_use_sums row_uses[IG_STEP_ROWS]; /* of those of the latest step, by position, until it is known that they came */
    /* what it has in common with others (share.c) */
    bool shares;         /* it takes prefixes and gives its own, */
    bool shares_answers; /* decoded ones too */
    ig_prefix_id root;   /* of what it takes and gives */
    ig_keeper *keeper;   /* the store that outlives the process; NULL: none */
    int n_published;     /* first pieces that are in the tree */
    int dense_end;       /* tokens from here on were decoded, or follow such; INT_MAX: none */
    uint32_t *pieces;    /* [n_ctx / IG_UNIT_SLOTS] found */
} ig_sequence;

/* What a sequence is to be. */
typedef struct ig_sequence_plan {
    ig_kv *kv;
    bool has_disk; /* the memory that kv lies in */
    const ig_policy_ops *ops;
    const ig_policy_shape *policy;
    const ig_cache_options *options; /* defaults filled in */
    const ig_key_frame *frames;      /* [n_layers] the model's; NULL: it has none */
    const ig_kv_shape *shadow;       /* of what audits compare with, if the policy drops entries; NULL: none */
    ig_kv_type type;
    ig_evict_rule evict; /* with limit: what is dropped first */
    int limit;
    ig_speculation speculate;
    bool shares; /* its memory does, and ig_sequence_can_share() */
    ig_prefix_id root;
    ig_keeper *keeper; /* NULL: none */
} ig_sequence_plan;

/* Adds to the bytes of each place what open() takes beside policy, usage and shadow. kv is not looked at. */
void ig_sequence_plan_bytes(uint64_t bytes[IG_PLACES], const ig_sequence_plan *p);
/* All but the KV store. In any case close() in the end. */
ig_status ig_sequence_open(ig_sequence *seq, const ig_sequence_plan *p, ig_error *err);
void ig_sequence_close(ig_sequence *seq);

/* Shows the policy a row of the store that lies in `slot`: of what is packed what can be had of it. */
void ig_sequence_show(const ig_sequence *seq, int layer, int head, int slot, const ig_kv_row *row);
/* Shows the policy the keys and values that the store holds of tokens from `first` on, of n_tokens. After a failure
 * only a cut of the store may follow. */
ig_status ig_sequence_replay(ig_sequence *seq, ig_device *dev, int first, int n_tokens, ig_error *err);

/* A step has added tokens, a piece of a prompt or a decoded one: it holds tokens [n]. */
void ig_sequence_stepped(ig_sequence *seq, const int32_t *tokens, int n, bool dense);
/* Drops tokens from n on, as ig_kv_cut(). */
ig_status ig_sequence_cut(ig_sequence *seq, int n, ig_error *err);

/* ---- sharing (share.c) ---- */

/* Whether a policy's sequences can share pieces: nothing is dropped, and it knows nothing of a prompt but K and V. */
bool ig_sequence_can_share(const ig_policy_ops *ops, int limit);
/* What of its tokens [n] can be shared others may take from now on; after a cut, what is left of n. */
void ig_sequence_give(ig_sequence *seq, const int32_t *tokens, int n, bool dense);
void ig_sequence_take_back(ig_sequence *seq, int n);
/* Something of its pieces from `first` on cannot be read: nobody else takes them over from here on. */
void ig_sequence_withdraw(ig_sequence *seq, int first);
/* Another policy, which was shown all that is held, goes on with the keys and values of `from`. */
void ig_sequence_inherit(ig_sequence *seq, const ig_sequence *from);
/* Takes pieces that hold the beginning of ids [n], of other sequences or from the store, if they hold more than the
 * sequence does, which is a beginning of ids too: it holds nothing else then (ig_kv_length()), and after a failure
 * what it can. Of the store no more than most_read tokens come, or a piece; *is_cut: it has more of them. */
ig_status ig_sequence_take(bool *is_cut, ig_sequence *seq, ig_device *dev, const int32_t *ids, int n, int most_read,
                           ig_error *err);

#endif
