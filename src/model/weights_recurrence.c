/* SPDX-License-Identifier: Apache-2.0
 *
 * Binding tensors of layers that do not attend.
 */
#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "model/weight_binder.h"

/* n_rows times n numbers of a tensor, which may have dimensions of 1 anywhere. */
static const float *bind_rows(ig_binder *b, const char *name, int n_rows, int n, bool to_columns) {
    const ig_tensor *t = ig_bind_find(b, name);
    const uint64_t want[] = {(uint64_t)n, (uint64_t)n_rows};
    int n_kept = 0, n_wanted = 0;
    uint64_t kept[4], wanted[2];
    for (int d = 0; t && d < t->n_dims; d++)
        if (t->dims[d] != 1) kept[n_kept++] = t->dims[d];
    for (int d = 0; d < 2; d++)
        if (want[d] != 1) wanted[n_wanted++] = want[d];
    bool is_alike = t && n_kept == n_wanted && memcmp(kept, wanted, (size_t)n_kept * sizeof *kept) == 0;
    return ig_bind_floats(b, name, is_alike ? t->n_dims : 2, is_alike ? t->dims : want, (size_t)n_rows, (size_t)n,
                          to_columns, true);
}

/* The same of one row, too, that has them all. */
static const float *bind_numbers(ig_binder *b, const char *part, int layer, int n_rows, int n) {
    ig_tensor_name name = ig_bind_name(b, part, layer, "");
    const ig_tensor *t = ig_bind_find(b, name.text);
    bool is_flat = t && t->n_dims == 1;
    return is_flat ? ig_bind_vector(b, name.text, n_rows * n, true) : bind_rows(b, name.text, n_rows, n, false);
}

/* Taps of a convolution, [channels][n_taps] in files. */
static const float *bind_taps(ig_binder *b, const char *part, int layer, int channels) {
    return bind_rows(b, ig_bind_name(b, part, layer, ".weight").text, channels, b->c->recurrence.n_taps, true);
}

/* Those of three convolutions side by side. */
static const float *bind_three_taps(ig_binder *b, int layer) {
    const ig_recurrence_shape *s = &b->c->recurrence;
    const char *const parts[] = {b->names.taps_q, b->names.taps_k, b->names.taps_v};
    size_t all = ig_recurrence_channels(s), n = all / IG_COUNT(parts);
    float *to = ig_arena_take(&b->w->owned, (size_t)s->n_taps * all * sizeof *to);
    for (size_t i = 0; i < IG_COUNT(parts); i++) {
        const float *from = bind_taps(b, parts[i], layer, (int)n);
        for (int t = 0; to && from && t < s->n_taps; t++)
            memcpy(to + (size_t)t * all + i * n, from + (size_t)t * n, n * sizeof *to);
    }
    return to;
}

/* Hugging Face's files hold the logarithms. */
static const float *bind_decay(ig_binder *b, int layer, int n_heads) {
    float *decay = (float *)(uintptr_t)bind_numbers(b, b->names.decay, layer, n_heads, 1);
    for (int h = 0; decay && !b->g && h < n_heads; h++) decay[h] = -expf(decay[h]);
    return decay;
}

/* Of each key head the rows of queries, keys, values and z, one below the other, which become those of all heads, as
 * other files have them. */
static void bind_turns(ig_binder *b, ig_recurrent *r, int i) {
    const ig_recurrence_shape *s = &b->c->recurrence;
    int n = s->n_key_heads, values = s->n_value_heads / n * s->value_dim, channels = (int)ig_recurrence_channels(s);
    const int of_head[] = {s->key_dim, s->key_dim, values, values};
    ig_matrix all = ig_bind_first(b, ig_bind_name(b, b->names.mixed, i, ".weight").text, 2, 1, channels + n * values,
                                  b->c->d_model);
    if (b->status) return;
    ig_matrix m = ig_bind_turnable(&all);
    uint8_t *to = ig_arena_take(&b->w->owned, ig_matrix_bytes(&m));
    r->is_made = true;
    r->qkv = r->z = m;
    r->qkv.n_out = channels, r->qkv.w = to;
    r->z.n_out = n * values, r->z.w = to ? to + (size_t)channels * m.row_bytes : NULL;
    for (int h = 0, from = 0; to && h < n; h++)
        for (int k = 0, first = 0; k < 4; first += n * of_head[k], from += of_head[k], k++)
            ig_bind_copy_rows(to + (size_t)(first + h * of_head[k]) * m.row_bytes, &all, from, of_head[k]);
}

static void bind_delta_net(ig_binder *b, ig_recurrent *r, int i) {
    const ig_weight_names *n = &b->names;
    const ig_recurrence_shape *s = &b->c->recurrence;
    int d = b->c->d_model;
    if (n->mixed_gate) {
        r->qkv = ig_bind_matrix(b, n->mixed, i, (int)ig_recurrence_channels(s), d);
        r->z = ig_bind_matrix(b, n->mixed_gate, i, s->n_value_heads * s->value_dim, d);
    } else {
        bind_turns(b, r, i);
    }
    r->beta = ig_bind_matrix(b, n->beta, i, s->has_gate_pairs ? 2 * s->n_value_heads : s->n_value_heads, d);
    if (!s->has_gate_pairs) r->alpha = ig_bind_matrix(b, n->alpha, i, s->n_value_heads, d);
    r->norm = ig_bind_part_vector(b, n->mixed_norm, i, "", s->value_dim, true);
}

static void bind_kimi_delta(ig_binder *b, ig_recurrent *r, int i) {
    const ig_weight_names *n = &b->names;
    const ig_recurrence_shape *s = &b->c->recurrence;
    int d = b->c->d_model, dim = s->key_dim, all = s->n_value_heads * dim;
    r->q = ig_bind_matrix(b, n->q, i, all, d);
    r->k = ig_bind_matrix(b, n->k, i, all, d);
    r->v = ig_bind_matrix(b, n->v, i, all, d);
    r->z_in = ig_bind_matrix(b, n->mixed_gate_in, i, dim, d);
    r->z = ig_bind_matrix(b, n->mixed_gate, i, all, dim);
    r->alpha_in = ig_bind_matrix(b, n->alpha_in, i, dim, d);
    r->alpha = ig_bind_matrix(b, n->alpha, i, all, dim);
    r->beta = ig_bind_matrix(b, n->beta, i, s->n_value_heads, d);
    r->norm = ig_bind_part_vector(b, n->mixed_norm, i, "", dim, true);
}

static void bind_mamba(ig_binder *b, ig_recurrent *r, int i) {
    const ig_weight_names *n = &b->names;
    const ig_recurrence_shape *s = &b->c->recurrence;
    int channels = (int)ig_recurrence_channels(s), n_values = s->n_value_heads * s->value_dim;
    ig_bind_parts(b, n->mixed, i, (ig_matrix *[]){&r->z, &r->qkv, &r->alpha},
                  (int[]){n_values, channels, s->n_value_heads}, 3, b->c->d_model);
    r->w.taps_bias = ig_bind_part_vector(b, n->taps, i, ".bias", channels, false);
    r->w.skip = bind_numbers(b, n->skip, i, s->n_value_heads, 1);
    if (!b->c->has_no_state_norm)
        r->norm = bind_numbers(b, n->mixed_norm, i, s->n_key_heads, n_values / s->n_key_heads);
}

static void bind_convolution(ig_binder *b, ig_recurrent *r, int i) {
    int d = b->c->d_model;
    ig_bind_parts(b, b->names.mixed, i, (ig_matrix *[]){&r->beta, &r->z, &r->qkv}, (int[]){d, d, d}, 3, d);
}

void ig_bind_recurrence(ig_binder *b, ig_recurrent *r, int i) {
    static void (*const kinds[])(ig_binder * b, ig_recurrent * r, int i) = {[IG_GATED_DELTA_NET] = bind_delta_net,
                                                                            [IG_KIMI_DELTA] = bind_kimi_delta,
                                                                            [IG_MAMBA_2] = bind_mamba,
                                                                            [IG_SHORT_CONVOLUTION] = bind_convolution};
    const ig_recurrence_shape *s = &b->c->recurrence;
    kinds[s->kind](b, r, i);
    r->w.taps = s->kind == IG_KIMI_DELTA ? bind_three_taps(b, i)
                                         : bind_taps(b, b->names.taps, i, (int)ig_recurrence_channels(s));
    r->out = ig_bind_matrix(b, b->names.mixed_out, i, b->c->d_model, s->n_value_heads * s->value_dim);
    if (s->kind == IG_SHORT_CONVOLUTION) return;
    r->w.decay = bind_decay(b, i, s->n_value_heads);
    int n_decays = s->n_value_heads * ig_recurrence_decays(s);
    r->w.decay_bias = ig_bind_part_vector(b, b->names.decay_bias, i, "", n_decays, true);
}
