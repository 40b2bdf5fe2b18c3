/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of a step: rows of the tokens that are computed together, of any sequences of a model, and scratch. A
 * model has one for all its sessions, as large as the largest of them wants; steps take turns.
 */
#ifndef IG_MODEL_BATCH_H
#define IG_MODEL_BATCH_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/row_costs.h"
#include "base/trial.h"
#include "cache/step.h"
#include "model/config.h"
#include "model/route.h"

/* Rows that the feed-forward layer takes at once: on the host, and on a GPU, which wants more to do at a time. */
enum { IG_FFN_ROWS = 128, IG_FFN_ROWS_THERE = 512 };

/* Where a tap looks. What is named of a batch's arrays is there for all its rows. */
typedef enum ig_tap_place {
    IG_TAP_HEADS,     /* rows.q and rows.k are as attention will see them, on the host too; h enters the layer */
    IG_TAP_ATTENTION, /* y, attention's output, is about to be added to h */
    IG_TAP_FFN,       /* y, the feed-forward part's output, is about to be added to h */
} ig_tap_place;

/* Rows of numbers to look at, and what is said of them. */
typedef struct ig_looked_at {
    const float *x; /* [n][width] */
    int first, n, width;
    float most;          /* magnitude */
    const char *where;   /* "after the attention of layer" */
    int number;          /* of what `where` names, or IG_NUMBER_IS_COLUMN */
    const int32_t *list; /* [n] these are the numbers; NULL: `number` is */
} ig_looked_at;

enum { IG_NUMBER_IS_COLUMN = -1, IG_LAYER_LOOKS = 8 /* of a layer, at most */ };

/* Floats of the device unless said otherwise. */
typedef struct ig_batch {
    pthread_mutex_t turn; /* of all below */
    ig_step_need have;    /* what it is made for */
    ig_space space;
    atomic_size_t bytes; /* of it, for other threads */
    float *h;            /* [max_rows][d_model] residual stream */
    float *x; /* [max_rows][max(d_model, d_embed, ig_config_mixed())] normed input of a sublayer; attention's output */
    float *gate;     /* [max_rows][n_heads head_dim] of attention, if the model has any */
    float *mixed[2]; /* [max_rows][channels] each, of layers with a recurrence: before and after their convolution; the
                        first also queries with their gates, [max_rows][n_heads][2][head_dim] */
    float *mixed_gate; /* [max_rows][n_value_heads value_dim] of what they give */
    float *gates; /* [max_rows][n_value_heads] and [max_rows][n_value_heads][ig_recurrence_decays()] of their states */
    float *narrow[2];           /* [max_rows][key_dim] each, of Kimi Delta: what makes the latter, and mixed_gate */
    ig_recurrence *recurrences; /* [max_rows] the host's: of segments, in the next layer that has one */
    int32_t *halves;            /* [2][max_rows n_heads] of rows of queries with their gates: numbers of either */
    float *q_latent, *latent;   /* [max_rows][q_rank], [max_rows][kv_rank] of layers with latents; their keys' */
    float *rotating, *heads;    /* [max_rows][n_rot], and [max_rows][n_heads][key_dim n_rot, or value_dim] */
    float *inputs;              /* [max_rows][n_layers][d_layer_input] what layers get of tokens beside the state */
    float *input[2];            /* [max_rows][d_layer_input] each, of a layer: those, and what gates them */
    int32_t *input_rows;        /* [n_layers][max_rows] the host's: numbers of a layer's rows in `inputs` */
    float *y;                   /* [max_rows][max(d_model, d_embed)] output of a sublayer */
    float *beside;              /* [max_rows][d_model] attention's, if both are side by side; else NULL */
    ig_step_scratch rows;       /* queries, keys and values; rows.out is x */
    int ffn_rows;               /* IG_FFN_ROWS or IG_FFN_ROWS_THERE */
    float *wide;                /* gate and up [ffn_rows][d_ff] each */
    ig_routes routes;           /* of models with experts */
    ig_twin logits;             /* [logit_rows][n_vocab]; the device's are `wide` */
    ig_twin shares;             /* [rows][n_adapters] what each takes of adapters */
    ig_twin cs; /* [rotations][rows][n_rot] cosines and sines of each row's position (ig_config_n_rot) */
    int logit_rows;
    /* What is being looked at, all at once where a device would have to be waited for each time (finite.c). */
    ig_looked_at *looks; /* [most_looks], the host's */
    int n_looks, most_looks;
    float *peaks;             /* [most_looks + 1] the host's: largest magnitudes, of those and of one more */
    int32_t *ids, *positions; /* [max_rows], the host's */
    ig_segment *segments;     /* [max_rows], for callers: what ig_forward computes */
    int n_segments;           /* of the last ig_forward */
    ig_trial speculation;     /* whether steps with guesses (way 0) or without are faster */
    ig_row_costs costs;       /* of steps that do nothing but decode, */
    ig_row_costs draft_costs; /* but of draft sessions' here */
    /* Called at each of these places of each layer; NULL: not. It may fail segments. */
    void (*tap)(void *user, ig_tap_place at, int layer);
    void *tap_user;
} ig_batch;

/* The keys and values of a model's sequences. */
static inline ig_kv_shape ig_config_kv_shape(const ig_config *c, int n_ctx, int n_batch) {
    return (ig_kv_shape){.n_layers = ig_config_attention_layers(c),
                         .n_kv_heads = c->n_kv_heads,
                         .head_dim = c->head_dim,
                         .are_values_keys = c->latent.kv_rank > 0,
                         .n_index = ig_index_share(&c->index, c->n_kv_heads, c->latent.kv_rank ? 1 : 2),
                         .n_ctx = n_ctx,
                         .n_batch = n_batch,
                         .local_kv_heads = c->local_kv_heads,
                         .local_head_dim = c->local_head_dim,
                         .window = c->window};
}

void ig_batch_init(ig_batch *b);
void ig_batch_close(ig_batch *b);
/* Makes it large enough for `need`, and for what it was made for before; after a failure it is as it was. */
ig_status ig_batch_reserve(ig_batch *b, ig_context *ctx, const ig_config *c, const ig_step_need *need, ig_error *err);
/* Bytes that `need` takes by itself in each place, on a GPU with the operations' own scratch. */
void ig_batch_plan(uint64_t bytes[IG_PLACES], const ig_context *ctx, const ig_config *c, const ig_step_need *need);

/* Around a step and the use of its results. IG_E_ARG in a callback of a step of the same model, which has the turn. */
ig_status ig_batch_begin(ig_batch *b, ig_error *err);
void ig_batch_end(ig_batch *b);
/* Around what looks at or changes memory that sessions share. NULL, with which end() does nothing: within a step, by
 * the thread that has the turn already. */
ig_batch *ig_batch_enter(ig_batch *b);

#endif
