/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention with latents (ig_latent_shape): what it gets of the state, and what becomes of what it gives.
 */
#include "model/forward_parts.h"

/* Norms within these layers have an epsilon of their own, whatever a file states. */
static const float latent_eps = 1e-6f;

static int key_width(const ig_config *c) { return c->latent.key_dim + c->rope.n; }

static void copy_parts(const forward *f, float *to, int to_row, const float *from, int from_row, int n, int n_rows) {
    f->dev->ops->copy_rows(f->dev, to, (size_t)to_row, from, (size_t)from_row, n, n_rows);
}

static void normalise(const forward *f, float *x, const float *norm, int n, int first) {
    x += (size_t)first * (size_t)n;
    f->dev->ops->norm(f->dev, x, x, &(ig_norm){.n = n, .is_rms = true, .eps = latent_eps, .w = norm},
                      f->n_rows - first);
}

/* Of heads by themselves, in the kinds of rows that there are, from row `first` on. */
static void multiply_heads(const forward *f, ig_head_product p, int first) {
    for (int row = first, n; row < f->n_rows; row += n) {
        ig_head_product of_rows = p;
        n = ig_forward_count_alike(f, &p.m, 1, row, f->n_rows);
        of_rows.x += (size_t)row * (size_t)p.n_heads * p.x_head;
        of_rows.y += (size_t)row * (size_t)p.n_heads * p.y_head;
        f->dev->ops->matmul_heads(f->dev, &of_rows, n, row >= f->n_dense);
    }
}

/* Rows: what rotates of a key, then the latent. */
static void make_rows(const forward *f, const ig_layer *w, const float *x) {
    const ig_config *c = f->c;
    float *latent = f->b->latent, *rotating = f->b->rotating, *k = f->b->rows.k.dev;
    int rank = c->latent.kv_rank;
    ig_forward_multiply(f, (float *[]){latent, rotating}, (const ig_matrix *[]){&w->k, &w->latent.rotating}, 2, x, 0);
    normalise(f, latent, w->k_norm, rank, 0);
    copy_parts(f, k, c->head_dim, rotating, c->rope.n, c->rope.n, f->n_rows);
    copy_parts(f, k + c->rope.n, c->head_dim, latent, rank, rank, f->n_rows);
    ig_forward_rotate(f, k, 1, false, 0);
    f->dev->ops->copy(f->dev, f->b->rows.v.dev, k, (size_t)f->n_rows * (size_t)c->head_dim * sizeof *k);
}

void ig_forward_make_latent_queries(const forward *f, const ig_layer *w, const float *x, int first, bool are_guessed) {
    const ig_config *c = f->c;
    float *heads = f->b->heads, *q = f->b->rows.q.dev;
    int width = key_width(c), d = c->head_dim;
    size_t row = (size_t)first * (size_t)c->n_heads;
    if (w->latent.q_in.w) {
        ig_forward_multiply(f, &f->b->q_latent, (const ig_matrix *[]){&w->latent.q_in}, 1, x, first);
        normalise(f, f->b->q_latent, w->q_norm, c->latent.q_rank, first);
        ig_forward_make_index_queries(f, &w->index, f->b->q_latent, x, first, are_guessed);
        x = f->b->q_latent;
    }
    ig_forward_multiply(f, &heads, (const ig_matrix *[]){&w->q}, 1, x, first);
    copy_parts(f, q + row * (size_t)d, d, heads + row * (size_t)width + c->latent.key_dim, width, c->rope.n,
               (f->n_rows - first) * c->n_heads);
    multiply_heads(f,
                   (ig_head_product){.m = &w->latent.key_up,
                                     .n_heads = c->n_heads,
                                     .of_head = c->latent.kv_rank,
                                     .n = c->latent.kv_rank,
                                     .x = heads,
                                     .y = q + c->rope.n,
                                     .x_head = (size_t)width,
                                     .y_head = (size_t)d},
                   first);
    ig_forward_rotate(f, q + row * (size_t)d, c->n_heads, true, first);
}

void ig_forward_project_latents(const forward *f, const ig_layer *w, const float *x) {
    make_rows(f, w, x);
    ig_forward_make_index_keys(f, &w->index, x);
    ig_forward_make_latent_queries(f, w, x, f->step.first_row, false);
}

const float *ig_forward_make_values(const forward *f, const ig_layer *w) {
    const ig_config *c = f->c;
    int of_head = w->latent.value_up.n_out / c->n_heads, n = c->latent.value_dim;
    multiply_heads(f,
                   (ig_head_product){.m = &w->latent.value_up,
                                     .n_heads = c->n_heads,
                                     .of_head = of_head,
                                     .first = of_head - n,
                                     .n = n,
                                     .x = f->b->x + c->rope.n,
                                     .y = f->b->heads,
                                     .x_head = (size_t)c->head_dim,
                                     .y_head = (size_t)n},
                   f->step.first_row);
    return f->b->heads;
}
