/* SPDX-License-Identifier: Apache-2.0
 *
 * What a model brings along to choose entries by (ig_index_shape): its keys and queries.
 */
#include "model/forward_parts.h"

/* Norms that are no RMS norms have an epsilon of their own, whatever a file states. */
static const float mean_eps = 1e-6f;

/* n_heads of each row from `first` on, normed and rotated. */
static void place(const forward *f, float *x, const ig_norm_weights *norm, int n_heads, int first) {
    int dim = f->c->index.dim;
    ig_norm how = {
        .n = dim, .is_rms = !norm->b, .eps = norm->b ? mean_eps : f->c->norms.inner_eps, .w = norm->w, .b = norm->b};
    x += (size_t)first * (size_t)(n_heads * dim);
    if (norm->w) f->dev->ops->norm(f->dev, x, x, &how, (f->n_rows - first) * n_heads);
    ig_forward_rotate_index(f, x, n_heads, first);
}

void ig_forward_make_index_keys(const forward *f, const ig_indexer *w, const float *x) {
    float *k = f->b->rows.index_k.dev;
    if (!w->k.w) return;
    ig_forward_multiply(f, &k, (const ig_matrix *[]){&w->k}, 1, x, 0);
    place(f, k, &w->k_norm, 1, 0);
}

void ig_forward_make_index_queries(const forward *f, const ig_indexer *w, const float *from, const float *x, int first,
                                   bool are_guessed) {
    const ig_index_rows *to = &f->b->rows.index[are_guessed];
    float *q = to->q.dev, *weights = to->weights.dev;
    if (!w->q.w) return;
    ig_forward_multiply(f, &q, (const ig_matrix *[]){&w->q}, 1, from, first);
    if (w->weights.w) ig_forward_multiply(f, &weights, (const ig_matrix *[]){&w->weights}, 1, x, first);
    place(f, q, &(ig_norm_weights){.w = w->q_norm}, f->c->index.n_heads, first);
}

void ig_forward_bring_index(const forward *f, const ig_indexer *w, int first, bool are_guessed) {
    const ig_index_shape *s = &f->c->index;
    const ig_index_rows *rows = &f->b->rows.index[are_guessed];
    if (!w->q.w) return;
    ig_forward_bring(f, &rows->q, first, s->n_heads * s->dim);
    if (w->weights.w) ig_forward_bring(f, &rows->weights, first, s->n_heads);
    if (!are_guessed) ig_forward_bring(f, &f->b->rows.index_k, 0, s->dim);
}
