/* SPDX-License-Identifier: Apache-2.0
 *
 * The one forward pass, for prefill and decode, all model families, policies and devices.
 */
#ifndef IG_MODEL_FORWARD_H
#define IG_MODEL_FORWARD_H

#include "base/memory.h"
#include "kv/store.h"
#include "model/model.h"
#include "policy/policy.h"
#include "policy/usage.h"

/* The state that the next layer's queries are guessed from (ig_cache_options.speculate). */
typedef enum ig_speculation {
    IG_SPECULATE_NONE,
    IG_SPECULATE_NORM,  /* before this layer's attention, through the next layer's norm */
    IG_SPECULATE_LATE,  /* the same after attention */
    IG_SPECULATE_PAPER, /* this layer's normed input; the true queries do not select again */
} ig_speculation;

/* Entries that a layer's attention uses. */
typedef struct ig_selection {
    int32_t *slots; /* [n_lists][n_ctx] in order of position, unless a list holds all entries */
    int *n;         /* [n_lists] */
    bool *all;      /* [n_lists] */
    int layer;      /* -1: of none */
} ig_selection;

enum { IG_AUDIT_BINS = 1000 };

/* Attention mass that the selected entries held, where it was measured. */
typedef struct ig_audit {
    int every;                           /* decode steps; 0: never */
    uint64_t n, bins[IG_AUDIT_BINS + 1]; /* heads measured, in all and by their mass in thousandths */
    double sum;
    double *layer_sum; /* [n_layers] */
    uint64_t *layer_n; /* [n_layers] */
} ig_audit;

/* What the forward pass needs of one timeline of tokens. */
typedef struct ig_sequence {
    ig_kv *kv;
    ig_policy *policy;
    struct ig_workspace *ws;   /* its own, for what it alone needs: weights, dense, carry, keep */
    int limit;                 /* most entries of a KV head after a step, where some may be dropped; 0: none */
    ig_usage usage;            /* with limit */
    int n_ctx, n_lists;        /* lists of entries in a layer: KV heads, or query heads */
    ig_selection chosen;       /* for the current layer */
    ig_selection guess;        /* for the next one */
    uint32_t *stamp, stamp_no; /* [n_ctx] for counting slots or blocks once */
    ig_speculation speculate;
    const ig_matrix *narrow; /* what made this guess's queries (ig_policy_ops.narrow); NULL: the model's weights */
    bool prefetch;           /* read guessed entries ahead, if there is a disk tier */
    ig_cache_trace_fn trace;
    void *trace_user;
    ig_kv_stats traced; /* as of the last call of trace */
    int n_steps;        /* decode steps so far */
    ig_audit audit;
    /* statistics of sparse decode steps */
    double share_sum, fetched_sum; /* of entries used / tokens seen, per list; the same per KV head */
    double block_sum;              /* of blocks that hold them / blocks of all tokens, per KV head */
    uint64_t n_shares, n_fetched;  /* what they are the sums of */
    double attention_seconds, select_seconds;
} ig_sequence;

/* Consecutive new tokens of one sequence: rows of the batch. */
typedef struct ig_segment {
    ig_sequence *seq;
    int first; /* position of its first token; the sequence holds `first` tokens already */
    int n;
    bool dense; /* attention over everything (prefill); else n is 1 and the policy selects (decode) */
} ig_segment;

enum { IG_FFN_ROWS = 128 }; /* rows that the feed-forward layer takes at once */

/* Scratch for batches of at most max_rows tokens. One arena; floats unless said otherwise. */
typedef struct ig_workspace {
    ig_arena arena;
    int max_rows;
    float *h; /* [max_rows][d_model] residual stream */
    float *x; /* [max_rows][max(d_model, d_embed, n_heads head_dim)] normed input of a sublayer; attention's output */
    float *y; /* [max_rows][max(d_model, d_embed)] output of a sublayer */
    float *q; /* [max_rows][n_heads][head_dim] */
    float *k, *v; /* [max_rows][n_kv_heads][head_dim] */
    float *wide;  /* gate and up [IG_FFN_ROWS][d_ff] each; then logits [logit_rows][n_vocab] */
    float *cs;    /* [max_rows][n_rot] cosines and sines of each row's position */
    int logit_rows;
    int n_rows; /* of the last ig_forward, and whether they were all decode steps */
    bool few;
    float *lse;              /* [max_rows][n_heads] */
    ig_rest rest;            /* [max_rows][n_heads] queries */
    int32_t *positions;      /* [max_rows] */
    ig_attention *jobs;      /* [max_rows] */
    ig_kv_view *views;       /* [max_rows][n_heads] */
    ig_segment *segments;    /* [max_rows], for callers */
    ig_kv_pick *picks;       /* [n_heads] */
    float *weights;          /* [n_heads][n_ctx] of entries; NULL unless they are observed, audited or dropped */
    int32_t *keep;           /* [n_kv_heads][n_ctx] numbers of entries; NULL unless some are dropped */
    float *dense;            /* [n_heads][head_dim] dense attention of an audit */
    float *carry;            /* attention over rows that come in pieces; NULL without a disk tier */
    size_t select_bytes;     /* policy scratch of one thread */
    uint8_t *select_scratch; /* [n_threads] */
    /* Called in each layer once q and k of the batch's rows are as attention will see them; NULL: not. */
    void (*tap)(void *user, int layer);
    void *tap_user;
} ig_workspace;

typedef struct ig_workspace_need {
    int max_rows;        /* tokens of a batch */
    int n_ctx;           /* entries of a sequence, at most */
    size_t select_bytes; /* what the policy wants per thread */
    bool streams;        /* sequences have a disk tier */
    bool weighs;         /* attention weights are wanted */
    bool drops;          /* entries are dropped for ever */
} ig_workspace_need;

ig_status ig_workspace_open(ig_workspace *ws, const ig_model *m, const ig_workspace_need *need, ig_error *err);
void ig_workspace_close(ig_workspace *ws);
uint64_t ig_workspace_plan(const ig_model *m, const ig_workspace_need *need);

/* Runs all layers over the rows of the segments, in their order; ids [rows]. Leaves the last layer's residual
 * stream in ws->h. If no segment is dense (decode), the results of each do not depend on the others' presence,
 * bitwise. Allocates nothing. Fails if a disk tier does, a number is not finite or the model's file has changed; the
 * sequences then hold what they held before. */
ig_status ig_forward(const ig_model *m, ig_workspace *ws, const ig_segment *segments, int n_segments,
                     const int32_t *ids, ig_error *err);

/* Logits of rows [first, first + n) of the last ig_forward, n <= logit_rows, in ws->wide: [n][n_vocab]. IG_E_NUMBER if
 * any is not finite, IG_E_CHANGED as ig_forward. */
ig_status ig_forward_logits(const float **out, const ig_model *m, ig_workspace *ws, int first, int n, bool few,
                            ig_error *err);

#endif
