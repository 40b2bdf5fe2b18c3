/* SPDX-License-Identifier: Apache-2.0
 *
 * The rows of a step: which ones segments get, their positions, and what positions do to queries and keys.
 */
#include <math.h>

#include "model/forward_parts.h"

/* Where the cosines and sines of a row are, of a rotation: these are one behind the other, of all rows each. */
static size_t rotation_at(const forward *f, int rotation, int row) {
    size_t before = 0;
    for (int r = 0; r < rotation; r++) before += (size_t)ig_config_n_rot(f->c, r);
    return before * (size_t)f->n_rows + (size_t)row * (size_t)ig_config_n_rot(f->c, rotation);
}

/* Row `row` of the batch and of a rotation. */
static void rotate_row(void *arg, int number, int thread) {
    const forward *f = arg;
    const ig_config *c = f->c;
    int row = number % f->n_rows, rotation = number / f->n_rows, position = f->b->positions[row];
    bool is_grown = rotation == ig_config_rope_sets(c);
    int set = is_grown ? IG_ROPE_MAIN : rotation, half = ig_config_n_rot(c, rotation) / 2,
        n_turning = is_grown && c->rope.grows_unrotated ? 0 : ig_config_n_rot(c, set) / 2;
    float *cs = f->b->cs.host + rotation_at(f, rotation, row);
    double steps = is_grown ? floor((position + c->rope.grows_unrotated) / c->rope.growth_length) : 0;
    double growth = is_grown ? 1 + c->rope.query_growth * log(1 + steps) : 1;
    double gain = set == IG_ROPE_MAIN ? c->rope.gain * growth : 1;
    (void)thread;
    for (int i = 0; i < half; i++) {
        double angle = i < n_turning ? position * f->m->inv_freq[set][i] : 0;
        cs[i] = (float)((i < n_turning ? gain : growth) * cos(angle));
        cs[half + i] = (float)(gain * sin(angle));
    }
}

/* Of a segment's first rows nothing is asked beyond the keys and values of all layers; so many. */
static int count_kept(const forward *f, const ig_segment *seg) {
    if (!seg->dense || f->b->tap || seg->seq->policy->ops->info.sees_prompts) return 0;
    return seg->n > seg->n_asked ? seg->n - seg->n_asked : 0;
}

void ig_forward_share_rows(forward *f) {
    enum { KEPT, SPLIT, DENSE, DECODE, KINDS };
    int row[KINDS] = {0}, split = -1, most = 0;
    for (int s = 0; s < f->b->n_segments; s++) {
        const ig_segment *seg = &f->b->segments[s];
        int n = count_kept(f, seg);
        if (seg->dense) f->n_dense += seg->n;
        if (n == seg->n)
            row[SPLIT] += n;
        else if (n > most)
            split = s, most = n;
    }
    f->n_kept = row[SPLIT] + most;
    row[DENSE] = row[SPLIT] + (split < 0 ? 0 : f->b->segments[split].n);
    row[DECODE] = f->n_dense;
    for (int s = 0; s < f->b->n_segments; s++) {
        ig_segment *seg = &f->b->segments[s];
        int kind = s == split ? SPLIT : !seg->dense ? DECODE : count_kept(f, seg) == seg->n ? KEPT : DENSE;
        seg->row = row[kind];
        row[kind] += seg->n;
    }
    f->n_rows = row[DECODE];
}

void ig_forward_place_shares(forward *f, int row, int n, const ig_segment *seg) {
    int n_adapters = f->c->n_adapters;
    float *to = f->b->shares.host + (size_t)row * (size_t)n_adapters;
    for (int i = 0; i < n * n_adapters; i++) {
        int adapter = i % n_adapters;
        to[i] = seg->shares ? seg->shares[adapter] : (float)f->m->adapters[adapter].scale;
        f->shares.taken |= (uint64_t)(to[i] != 0) << adapter;
    }
}

void ig_forward_send_shares(forward *f) {
    const ig_twin *t = &f->b->shares;
    size_t n = (size_t)f->n_rows * (size_t)f->c->n_adapters;
    if (n) f->dev->ops->copy(f->dev, t->dev, t->host, n * sizeof *t->host);
    f->shares.of_rows = t->dev;
}

void ig_forward_place_rows(forward *f) {
    int offset = f->m->weights.positions.w ? f->c->position_offset : 0;
    for (int s = 0; s < f->b->n_segments; s++) {
        const ig_segment *seg = &f->b->segments[s];
        for (int i = 0; i < seg->n; i++) {
            f->b->ids[seg->row + i] = seg->ids[i];
            f->b->positions[seg->row + i] = seg->first + i + offset;
        }
        ig_forward_place_shares(f, seg->row, seg->n, seg);
    }
    ig_forward_send_shares(f);
    int n_heads = f->n_rows * f->c->n_heads;
    for (int i = 0; f->c->is_gate_in_q && i < n_heads; i++) {
        f->b->halves[i] = 2 * i;
        f->b->halves[n_heads + i] = 2 * i + 1;
    }
    for (int l = 0; f->c->d_layer_input && l < f->c->n_layers; l++)
        for (int row = 0; row < f->n_rows; row++) f->b->input_rows[l * f->n_rows + row] = row * f->c->n_layers + l;
    if (f->c->rope.kind == IG_ROPE_NONE) return;
    int n = f->n_rows * ig_config_rotations(f->c);
    f->dev->ops->parallel(f->dev, n, rotate_row, f);
    size_t n_floats = (size_t)f->n_rows * (size_t)ig_config_rotated(f->c);
    f->dev->ops->copy(f->dev, f->b->cs.dev, f->b->cs.host, n_floats * sizeof(float));
}

static void normalise_heads(const forward *f, float *x, int n_heads, const float *norm, int n_rows) {
    const ig_config *c = f->c;
    int dim = f->step.heads.head_dim, width = c->norms.of_heads == IG_HEAD_NORM_ALL ? n_heads * dim : dim;
    int n = n_rows * (n_heads * dim / width);
    if (c->norms.are_of_rotated && c->rope.set[f->layer] == IG_ROPE_LEFT_OUT) return;
    if (norm || c->norms.of_heads_are_plain)
        f->dev->ops->norm(f->dev, x, x, &(ig_norm){.n = width, .is_rms = true, .eps = c->norms.inner_eps, .w = norm},
                          n);
}

void ig_forward_rotate(const forward *f, float *x, int n_heads, bool are_queries, int first) {
    const ig_config *c = f->c;
    int set = c->rope.set[f->layer];
    bool is_left_out = set == IG_ROPE_LEFT_OUT;
    if (are_queries && c->rope.query_growth > 0 && is_left_out == c->rope.grows_unrotated)
        set = ig_config_rope_sets(c);
    else if (c->rope.kind == IG_ROPE_NONE || is_left_out)
        return;
    const ig_rotation by = {f->b->cs.dev + rotation_at(f, set, first), ig_config_n_rot(c, set),
                            c->rope.kind == IG_ROPE_ADJACENT};
    f->dev->ops->rope(f->dev, x, &by, f->n_rows - first, n_heads, f->step.heads.head_dim);
}

void ig_forward_rotate_index(const forward *f, float *x, int n_heads, int first) {
    const ig_config *c = f->c;
    const ig_rotation by = {f->b->cs.dev + rotation_at(f, IG_ROPE_MAIN, first), c->rope.n, c->is_index_adjacent};
    f->dev->ops->rope(f->dev, x, &by, f->n_rows - first, n_heads, c->index.dim);
}

/* Heads of the rows from `first` on, normed and rotated as the family does. */
static void place_heads(const forward *f, float *x, int n_heads, const float *norm, bool are_queries, int first) {
    int n = f->n_rows - first;
    x += (size_t)first * (size_t)n_heads * (size_t)f->step.heads.head_dim;
    if (!f->c->norms.follow_rope) normalise_heads(f, x, n_heads, norm, n);
    ig_forward_rotate(f, x, n_heads, are_queries, first);
    if (f->c->norms.follow_rope) normalise_heads(f, x, n_heads, norm, n);
}

void ig_forward_place_queries(const forward *f, float *q, const ig_layer *w, int first) {
    place_heads(f, q, f->step.heads.n_heads, w->q_norm, true, first);
}

void ig_forward_place_values(const forward *f, float *v, const float *from) {
    const ig_head_shape *s = &f->step.heads;
    int n = f->n_rows * s->n_kv_heads;
    if (f->c->norms.of_values)
        f->dev->ops->norm(f->dev, v, from, &(ig_norm){.n = s->head_dim, .is_rms = true, .eps = f->c->norms.inner_eps},
                          n);
    else if (v != from)
        f->dev->ops->copy(f->dev, v, from, (size_t)n * (size_t)s->head_dim * sizeof *v);
}

void ig_forward_place_keys(const forward *f, float *k, const ig_layer *w) {
    place_heads(f, k, f->step.heads.n_kv_heads, w->k_norm, false, 0);
}
