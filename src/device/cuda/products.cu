/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations with matrices: products, what adapters add to them, and rows that are looked up.
 */
#include "device/cuda/gpu.cuh"

/* A matrix with the GPU's own addresses. */
static ig_matrix matrix_of(const gpu *g, const ig_matrix *m) {
    ig_matrix found = *m;
    found.w = m->panels ? m->panels : find(g, (const uint8_t *)m->w);
    if (m->bias) found.bias = find(g, m->bias);
    if (m->block_scales.s) found.block_scales.s = find(g, m->block_scales.s);
    return found;
}

void ig_cuda_embed_rows(ig_device *d, float *out, const ig_matrix *m, float scale, const int32_t *ids, int n_rows,
                        bool add) {
    gpu *g = enter(d);
    ig_matrix found = matrix_of(g, m);
    ig_cuda_embed(g->work, out, &found, scale, ids, n_rows, add);
    leave(g);
}

/* Up to as many matrices as are of the first one's type; their number. The columns are prepared. */
static int multiply(gpu *g, float *const *y, const ig_matrix *const *m, int n_m, const float *x, int n_rows, bool few) {
    ig_matrix found[IG_CUDA_MATRICES] = {};
    int n = 0;
    for (; n < n_m && n < IG_CUDA_MATRICES && m[n]->type == m[0]->type; n++) found[n] = matrix_of(g, m[n]);
    if (few)
        ig_cuda_matmul(g->work, y, found, n, ig_cuda_has_codes(found) ? (const void *)g->act : x, n_rows);
    else
        ig_cuda_matmul_many(g->work, y, found, n, g->act, n_rows, g->n_multiprocessors,
                            ig_cuda_room{g->sums, g->n_sums});
    return n;
}

/* What adapters add. */
static void add_low_rank(gpu *g, float *y, const ig_matrix *m, const float *x, const ig_shares *shares, int n_rows,
                         bool few) {
    const ig_low_rank *l = m->low_rank;
    for (int i = 0; i < l->n_parts; i++) {
        const ig_low_rank_part *part = &l->parts[i];
        const ig_matrix *a = &part->a;
        if (!(shares->taken >> part->adapter & 1)) continue;
        multiply(g, &g->low_rank, &a, 1, x, n_rows, few);
        ig_cuda_add_products(g->work, y, g->low_rank, a->n_out, find(g, part->b) + m->low_rank_row, (size_t)l->n_out,
                             shares->of_rows + part->adapter, l->n_adapters, n_rows, m->n_out);
    }
}

/* Columns are brought to the form that products want once for all matrices. */
void ig_cuda_multiply(ig_device *d, float *const *y, const ig_matrix *const *m, int n_m, const float *x,
                      const ig_shares *shares, int n_rows, bool few) {
    gpu *g = enter(d);
    bool any = false;
    for (int i = 0; i < n_m; i++) any = any || ig_cuda_has_codes(m[i]);
    if (!few)
        ig_cuda_halve(g->work, g->act, x, m[0]->n_in, n_rows);
    else if (any)
        ig_cuda_quantise(g->work, g->act, x, m[0]->n_in, n_rows);
    for (int i = 0; i < n_m;) i += multiply(g, y + i, m + i, n_m - i, x, n_rows, few);
    for (int i = 0; i < n_m; i++)
        if (m[i]->low_rank) add_low_rank(g, y[i], m[i], x, shares, n_rows, few);
    leave(g);
}

void ig_cuda_multiply_heads(ig_device *d, const ig_head_product *p, int n_rows, bool few) {
    gpu *g = enter(d);
    ig_matrix found = matrix_of(g, p->m);
    if (few)
        ig_cuda_matmul_heads(g->work, p, &found, g->act, n_rows);
    else
        ig_cuda_matmul_heads_many(g->work, p, &found, g->act, n_rows, g->n_multiprocessors);
    leave(g);
}
