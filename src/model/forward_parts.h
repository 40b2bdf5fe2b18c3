/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the forward pass: forward.c (the pass), forward_rows.c (its rows), forward_ffn.c (feed-forward parts),
 * forward_latent.c (attention with latents), forward_index.c (keys and queries of an indexer), forward_recurrence.c
 * (layers that do not attend) and finite.c (what must not go on).
 */
#ifndef IG_MODEL_FORWARD_PARTS_H
#define IG_MODEL_FORWARD_PARTS_H

#include "model/forward.h"

/* One call of ig_forward(). */
typedef struct forward {
    const ig_model *m;
    const ig_config *c;
    ig_batch *b;
    ig_device *dev;
    int n_rows, n_dense; /* rows of prompts come first */
    int n_kept;       /* of them, first of all: the last layer's keys and values are the last that is asked of them */
    ig_shares shares; /* that rows take of adapters */
    int layer;        /* at work */
    ig_step step;     /* the same layer's number of those that attend, or the next one's; all but keys and values is
                         computed from its first_row on */
} forward;

/* Rows from `row` on that go through the same kernels of n_w matrices, at most `most`: those of prompts, or those of
 * decode steps; both together where that changes no bit, so that weights are read once. */
int ig_forward_count_alike(const forward *f, const ig_matrix *const *w, int n_w, int row, int most);
/* y[i] = w[i] x for n rows that are alike, the first of which is number `row` of the batch; what they take of adapters.
 */
void ig_forward_multiply_alike(const forward *f, float *const *y, const ig_matrix *const *w, int n_w, const float *x,
                               ig_shares shares, int row, int n);
/* What rows from `row` on take of adapters. */
static inline ig_shares ig_forward_shares(const forward *f, int row) {
    return (ig_shares){f->shares.of_rows + (size_t)row * (size_t)f->c->n_adapters, f->shares.taken};
}
/* The same for all rows from `first` on. */
void ig_forward_multiply(const forward *f, float *const *y, const ig_matrix *const *w, int n_w, const float *x,
                         int first);

/* y = w x, of the rows from the step's first on. */
static inline void ig_forward_apply(const forward *f, float *y, const ig_matrix *w, const float *x) {
    ig_forward_multiply(f, &y, &w, 1, x, f->step.first_row);
}
/* y = norms of the rows of x, which may be y, from the step's first on. */
void ig_forward_normalise(const forward *f, float *y, const float *x, const ig_norm_weights *w);
/* Numbers of the rows from `first` on, `width` each, come to the host. */
void ig_forward_bring(const forward *f, const ig_twin *t, int first, int width);
/* Waits for the device; segments whose numbers must not go on fail, in a late pass when it has ended. */
ig_status ig_forward_finish(const forward *f, ig_error *err);

/* What the layer's feed-forward part makes of x, its input, to b->y. Writes x (forward_ffn.c). */
ig_status ig_forward_feed(const forward *f, const ig_layer *w, float *x, ig_error *err);

/* Queries and rows of a layer with latents from its input x; queries alone, of the rows from `first` on; and values of
 * all heads, [n_heads value_dim], from what attention gave, b->x (forward_latent.c). */
void ig_forward_project_latents(const forward *f, const ig_layer *w, const float *x);
void ig_forward_make_latent_queries(const forward *f, const ig_layer *w, const float *x, int first, bool are_guessed);
const float *ig_forward_make_values(const forward *f, const ig_layer *w);

/* The layer's own keys to choose entries by, of all rows of its input x, and queries, or guesses of them, of the rows
 * from `first` on: made of `from`, the latent of queries or x, with weights of x (forward_index.c). Nothing where it
 * has none. */
void ig_forward_make_index_keys(const forward *f, const ig_indexer *w, const float *x);
void ig_forward_make_index_queries(const forward *f, const ig_indexer *w, const float *from, const float *x, int first,
                                   bool are_guessed);
/* They come to the host. */
void ig_forward_bring_index(const forward *f, const ig_indexer *w, int first, bool are_guessed);

/* A step's tokens are about to change the states of its sequences (forward_recurrence.c). */
void ig_forward_begin_recurrences(forward *f);
/* What the layer at work, which does not attend, makes of x, its input, for all rows: what its last matrix gets. Writes
 * b->x, which x may be. */
const float *ig_forward_recur(const forward *f, const ig_recurrent *w, const float *x);

/* Prompts that go on get the first rows, then come other prompts, and decode steps behind them. Of the other prompts
 * that one is first which has most rows that are only kept: they join those before it. */
void ig_forward_share_rows(forward *f);
/* Tokens and positions of all rows, and their cosines and sines, which all layers share. */
void ig_forward_place_rows(forward *f);
/* Rows [row, row + n) take as much of adapters as the segment says; and once all rows are said, f->shares. */
void ig_forward_place_shares(forward *f, int row, int n, const ig_segment *seg);
void ig_forward_send_shares(forward *f);
/* Heads of f->layer, normed and rotated as the family does: queries of the rows from `first` on, keys of all. */
void ig_forward_place_queries(const forward *f, float *q, const ig_layer *w, int first);
void ig_forward_place_keys(const forward *f, float *k, const ig_layer *w);
/* The same of values, from what they are made of, which may be v. */
void ig_forward_place_values(const forward *f, float *v, const float *from);
/* RoPE alone, of n_heads of each row, the first of which is at x and number `first`; of what entries are chosen by. */
void ig_forward_rotate(const forward *f, float *x, int n_heads, bool are_queries, int first);
void ig_forward_rotate_index(const forward *f, float *x, int n_heads, int first);

/* IG_E_NUMBER, saying where, if anything is not finite, or too large to be kept or computed with (finite.c): the
 * residual stream after the embedding, or after `where`, "the attention of layer" f->layer; the layer's queries,
 * keys and values. It is the status of the segment, whose rows are zeros from then on. */
void ig_forward_check_embedding(const forward *f);
void ig_forward_check_state(const forward *f, const char *where);
void ig_forward_check_heads(const forward *f);
/* Rows [width] of segments that have failed become zeros in x, which was not made for them. */
void ig_forward_clear_failed(const forward *f, float *x, int width);
/* After a wait for the device, before anything is kept or told: what was looked at so far counts. */
void ig_forward_settle_checks(const forward *f);
/* After the wait of a late pass, when rows that were looked at are gone: whether there was no such number. */
bool ig_forward_is_finite(const forward *f);
/* As the first ones, of the logits of a segment's tokens [first, first + n), rows of b->logits from `row` on; the
 * segment does not fail. */
ig_status ig_forward_check_logits(const forward *f, const ig_segment *seg, int first, int n, int row, ig_error *err);

#endif
