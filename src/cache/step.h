/* SPDX-License-Identifier: Apache-2.0
 *
 * One layer of one step: what the forward pass asks of the stores and policies of the sequences whose tokens it
 * computes. Their keys and values are kept, entries are chosen and fetched, and attention is computed; and while this
 * layer goes on, the next one's entries are guessed and read ahead.
 *
 * What fails for a sequence fails for it alone: its segment says so, and from then on neither its store nor its policy
 * is called.
 */
#ifndef IG_CACHE_STEP_H
#define IG_CACHE_STEP_H

#include <stdatomic.h>

#include "base/clock.h"
#include "cache/sequence.h"
#include "device/space.h"

/* Consecutive new tokens of one sequence: rows of the batch. One whose status is not IG_OK takes no further part. */
typedef struct ig_segment {
    ig_sequence *seq;
    const int32_t *ids; /* [n] */
    int first;          /* position of its first token; the sequence holds `first` tokens already */
    int n;
    int number;          /* among those of a call, from 1, as errors name it; 0: it is alone */
    int ahead;           /* so many of its sequence's tokens in this step come before it, where each is a segment */
    bool dense;          /* attention over everything (prefill); else the policy selects, for one token after the other
                            (decode) */
    bool of_prompt;      /* the policy selects, but for a token of a prompt (ig_policy_info.chooses_in_prompts) */
    int n_to_come;       /* tokens of the same prompt that later steps get */
    const float *shares; /* [n_adapters] what it takes of each of the model's adapters; NULL: as the model has it */
    int n_asked;         /* of its last tokens: those whose logits may be asked for; 0: of a prompt that goes on */
    bool wants_states;   /* those of all of them are asked for, and no logits */
    ig_error *err;       /* gets the cause when it fails; NULL: nobody asks; several may share one */
    ig_status status;
    int row;             /* of its first token in the batch; the forward pass says */
    const float *logits; /* of its last token, or of all where it decodes; ig_forward_last_logits() says */
} ig_segment;

/* How far a segment is with attention of the layer at work. */
typedef struct ig_attending {
    bool alone;    /* what it wants was not to be had together with what others want */
    bool streamed; /* its rows have passed by, with those of another token */
    float *begun;  /* the device's: sums over rows that were there before the others; NULL: none */
} ig_attending;

/* What scratch is made for: the most of all sequences that will use it. */
typedef struct ig_step_need {
    int max_rows;        /* tokens of a batch */
    int n_ctx;           /* entries of a sequence */
    size_t select_bytes; /* what a policy wants per thread */
    bool streams;        /* sequences have a disk tier */
    bool weighs;         /* attention weights are wanted */
    bool drops;          /* entries are dropped for ever */
    int kept_entries;    /* of a list that a token of a prompt keeps for the next layers; 0: none does */
    int scans;           /* lists of a layer that the device helps to choose (ig_policy_is_helped()); 0: none */
    size_t mail_bytes;   /* what all layers of a step hand to a device with memory of its own: ig_device_need */
} ig_step_need;

/* A list that is being chosen, and where it goes. */
typedef struct ig_choice {
    ig_policy *policy;
    ig_selection *out;
    ig_rest rest;
    bool guess;                 /* for the next layer */
    bool estimates;             /* the rest is wanted, and the policy has one */
    bool later;                 /* it does, and what is chosen may have to be read first */
    bool described;             /* to the device, which chooses */
    const ig_late_choice *late; /* where what it chooses goes, of a late pass; NULL: to `out` */
    atomic_int n_done;          /* of its tasks, if it is cut into such */
    ig_choosing list;
} ig_choice;

/* Where the time of a pass goes. */
typedef struct ig_step_clock {
    const ig_device *dev;
    double start;
    double now; /* when the last part ended, and what threads had done by then */
    ig_pool_work worked;
    ig_part_work parts[IG_STEP_PARTS];
} ig_step_clock;

/* Queries of the model's own to choose by (ig_index_shape). */
typedef struct ig_index_rows {
    ig_twin q, weights; /* [max_rows][n_heads][dim], [max_rows][n_heads] */
} ig_index_rows;

/* Rows of a layer, and scratch, the host's and floats unless said otherwise. */
typedef struct ig_step_scratch {
    ig_twin q;              /* [max_rows][n_heads][head_dim] post-RoPE; a guess's queries too */
    ig_twin k, v;           /* [max_rows][n_kv_heads][head_dim] of the layer at work */
    ig_twin index_k;        /* [max_rows][index.dim] keys of the model's own to choose by, of the layer at work */
    ig_index_rows index[2]; /* of the last layer that has any; and guesses */
    float *out;         /* [max_rows][n_heads][head_dim] the device's: attention's result; lent by the forward pass */
    float *lse;         /* [max_rows][n_heads] the device's */
    ig_rest rest;       /* [max_rows][n_heads] queries */
    ig_attention *jobs; /* [max_rows] */
    ig_append *appends; /* [max_rows] */
    ig_kv_view *views;  /* [max_rows][n_heads] */
    ig_kv_pick *picks;  /* [max_rows][n_heads] */
    ig_kv_want *wants;  /* [max_rows] */
    ig_segment *single; /* [max_rows] of one token each, see ig_step_attend() */
    ig_segment *pieces; /* [max_rows] of prompts whose tokens choose */
    int32_t *kept; /* [max_rows][kept_entries] what these have chosen in the latest layer that does not go by another */
    int *n_kept;   /* [max_rows] */
    size_t kept_entries;
    ig_attending *attending; /* [max_rows] of segments */
    ig_choice *choices;      /* [max_rows][n_heads] */
    float *weights;          /* [n_heads][n_ctx] of entries; NULL unless they are observed, audited or dropped */
    int32_t *keep;           /* [n_kv_heads][n_ctx] numbers of entries; NULL unless some are dropped */
    float *dense, *own;      /* [n_heads][head_dim] of an audit: dense attention, and the step's own */
    float *sorted;           /* [n_ctx] weights of an audit */
    ig_cache_audit *audits;  /* [n_heads] of an audit */
    float *carry; /* [carry_floats] the device's: attention over rows that come in pieces; NULL without a disk tier */
    size_t carry_floats;
    float *begun; /* [begun_floats] the device's: of segments that attend before all is there; or NULL */
    size_t begun_floats;
    size_t select_bytes;     /* policy scratch of one thread */
    uint8_t *select_scratch; /* [n_scratch] of the threads, and of lists that are cut into tasks */
    int n_scratch;           /* 2 n_threads - 1, or with a disk tier or scans lists of a sequence if these are more */
    ig_scan_list *scans;     /* [n_scratch] lists for the device; NULL unless it helps to choose */
    float *scan_scratch;     /* [n_scratch][scan_floats] the device's */
    size_t scan_floats;
    ig_choice *later; /* [n_later] of choices: lists whose rest is not estimated yet; their scratch is their own */
    int n_later;
    double decode_seconds; /* of the present pass: what only its decode steps took */
    ig_step_clock clock;
    uint8_t *seen;        /* [n_threads][n_ctx] of slots or blocks of a KV head: 1: its lists hold some of it */
    size_t n_ctx;         /* most entries of a sequence */
    double *task_seconds; /* [n_threads][2] of a selection's tasks: in all, and in estimates of the rest */
    int n_threads;
} ig_step_scratch;

/* What has gone on since the last lap belongs to this part: a look at the clock. */
static inline void ig_step_lap(ig_step_scratch *x, ig_step_part part) {
    ig_step_clock *c = &x->clock;
    ig_part_work *w = &c->parts[part];
    double now = ig_clock_seconds();
    ig_pool_work worked = c->dev->ops->worked(c->dev);
    w->seconds += now - c->now;
    w->busy_seconds += worked.busy - c->worked.busy;
    w->n_tasks += (double)(worked.n_tasks - c->worked.n_tasks);
    c->now = now;
    c->worked = worked;
}

/* A pass begins. */
static inline void ig_step_start_clock(ig_step_scratch *x, const ig_device *dev) {
    double now = ig_clock_seconds();
    x->clock = (ig_step_clock){.dev = dev, .start = now, .now = now, .worked = dev->ops->worked(dev)};
    x->decode_seconds = 0;
}

/* Takes all but `out` from the space. */
void ig_step_lay_out(ig_space *a, ig_step_scratch *x, const ig_layer_heads *heads, int n_threads,
                     const ig_step_need *need);

typedef struct ig_step {
    ig_device *dev;
    const ig_kernels *kernels;
    const ig_layer_heads *layers;
    ig_head_shape heads;             /* of `layer` */
    const int *window;               /* [n_layers] ig_window's n */
    const float *const *sink_scores; /* [n_layers][n_heads] as in ig_attention; NULL: none */
    float cap;                       /* as in ig_attention */
    ig_step_scratch *x;
    ig_segment *segments;
    int n_segments, n_rows;
    int layer;
    bool is_shared;  /* it has no keys and values of its own, but those that an earlier one of the pass has kept */
    bool is_coarse;  /* as in ig_attention, of `layer` */
    int first_row;   /* of those before it only keys and values of this layer are asked for */
    bool speculates; /* IG_SPECULATE_AUTO is LATE */
    bool is_late;    /* all layers go through without a look at them (late.c) */
} ig_step;

/* From here on it is this layer's. */
static inline void ig_step_enter(ig_step *step, int layer) {
    step->layer = layer;
    step->heads = *ig_heads_of(step->layers, layer);
}

static inline ig_window ig_step_window(const ig_step *step) {
    return (ig_window){step->window[step->layer], step->layers->in_chunks};
}

/* Whether all layers can go through before the host looks at any of them: the device keeps rows itself, and chooses if
 * anything has to be chosen, and no entry moves. */
bool ig_step_may_be_late(const ig_step *step);
/* After a late pass: the policies see what was kept and chosen. */
void ig_step_catch_up(ig_step *step);

/* Queries of a segment's first token, the host's: [n_heads][head_dim]. */
static inline float *ig_step_queries(const ig_step *step, const ig_segment *seg) {
    return step->x->q.host + (size_t)seg->row * (size_t)step->heads.n_heads * (size_t)step->heads.head_dim;
}

/* Before all else of a pass. */
void ig_step_begin(const ig_step *step);
/* Before all else of a layer: final guesses for it become the choice, and make room for those of the next one. */
void ig_step_take_guesses(const ig_step *step);
/* The layer's keys and values (x->k, x->v) are kept, the policies select, attention of x->q goes to x->out. Where more
 * than a token of a sequence is decoded, each is kept and chosen for in a round of its own, and what all of them chose
 * is fetched together. Tokens of prompts that choose come behind all others, IG_STEP_ROWS of a prompt at a time.
 * Queries, keys and values are there on the host, too, unless the pass is late. It fails for all if the device does. */
ig_status ig_step_attend(ig_step *step, ig_error *err);

/* Whether reading guessed entries ahead may save the sequence a wait. */
bool ig_sequence_reads_ahead(const ig_sequence *seq);
/* What the sequence guesses from in this step, where it is not left to the step any more. */
ig_speculation ig_step_speculation(const ig_step *step, const ig_sequence *seq);
/* Whether the sequence wants step->layer's entries guessed from `kind`. */
bool ig_step_guesses(const ig_step *step, const ig_segment *seg, ig_speculation kind);
/* Selects with x->q, guessed queries of step->layer, for those, and starts to read what was selected. */
void ig_step_guess(ig_step *step, ig_speculation kind);

#endif
