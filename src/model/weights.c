/* SPDX-License-Identifier: Apache-2.0
 *
 * Binding tensors to their places in the model. The same walk over the model's structure runs twice: first it checks
 * and sums the memory of converted vectors, then it fills it. Names come from two tables, one per kind of file; every
 * tensor that is used is marked, and what stays unmarked is an error.
 */
#include "model/weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/error.h"
#include "base/half.h"
#include "format/names.h"
#include "kernel/kernel.h"
#include "model/weight_binder.h"

/* One for all tokens. */
static void bind_ffn(ig_binder *b, ig_ffn *f, int i, int d_ff) {
    const ig_config *c = b->c;
    const ig_weight_names *n = &b->names;
    if (c->is_gate_up_fused) {
        ig_bind_parts(b, n->gate_up, i, (ig_matrix *[]){&f->gate, &f->up}, (int[]){d_ff, d_ff}, 2, c->d_model);
    } else {
        if (ig_activation_is_gated(c->activation)) f->gate = ig_bind_matrix(b, n->gate, i, d_ff, c->d_model);
        f->up = ig_bind_matrix(b, n->up, i, d_ff, c->d_model);
    }
    f->down = ig_bind_matrix(b, n->down, i, c->d_model, d_ff);
}

static void bind_shared(ig_binder *b, ig_ffn *f, int i) {
    const ig_config *c = b->c;
    const ig_weight_names *n = &b->names;
    if (!c->d_ff_shared) return;
    if (c->is_gate_up_fused) {
        int rows[] = {c->d_ff_shared, c->d_ff_shared};
        ig_bind_parts(b, n->gate_up, i, (ig_matrix *[]){&f->gate, &f->up}, rows, 2, c->d_model);
        f->down = ig_bind_matrix(b, n->shared_down, i, c->d_model, c->d_ff_shared);
        return;
    }
    if (ig_activation_is_gated(c->activation))
        f->gate = ig_bind_matrix(b, n->shared_gate, i, c->d_ff_shared, c->d_model);
    f->up = ig_bind_matrix(b, n->shared_up, i, c->d_ff_shared, c->d_model);
    f->down = ig_bind_matrix(b, n->shared_down, i, c->d_model, c->d_ff_shared);
}

/* One row, which may be stored as a vector. */
static ig_matrix bind_shared_gate(ig_binder *b, int layer) {
    ig_tensor_name name = ig_bind_name(b, b->names.shared_share, layer, ".weight");
    const ig_tensor *t = ig_bind_find(b, name.text);
    return ig_bind_first(b, name.text, t && t->n_dims == 1 ? 1 : 2, 1, 1, b->c->d_model);
}

/* A matrix of expert number e. */
static ig_matrix bind_expert(ig_binder *b, const char *part, int layer, int e, int n_out, int n_in) {
    int n = b->c->n_experts;
    ig_tensor_name name = ig_bind_expert_name(b, part, layer, e, b->names.expert_suffix);
    if (strstr(strstr(part, "%d") + 1, "%d")) return ig_bind_plain(b, name.text, n_out, n_in);
    ig_matrix all = ig_bind_first(b, name.text, 3, n, n_out, n_in);
    if (all.w) all.w = (const uint8_t *)all.w + (size_t)e * ig_matrix_bytes(&all);
    return all;
}

static void bind_expert_ffn(ig_binder *b, ig_ffn *f, int layer, int e) {
    const ig_config *c = b->c;
    int d = ig_config_expert_width(c);
    const ig_weight_names *n = &b->names;
    if (n->expert_gate_up) {
        ig_matrix both = bind_expert(b, n->expert_gate_up, layer, e, 2 * c->d_ff, d);
        f->gate = ig_bind_rows(both, 0, c->d_ff);
        f->up = ig_bind_rows(both, c->d_ff, c->d_ff);
    } else {
        if (ig_activation_is_gated(c->activation)) f->gate = bind_expert(b, n->expert_gate, layer, e, c->d_ff, d);
        f->up = bind_expert(b, n->expert_up, layer, e, c->d_ff, d);
    }
    f->down = bind_expert(b, n->expert_down, layer, e, d, c->d_ff);
}

/* Of all experts' matrices of this name, which Gemma 4 has as the experts' shares. */
static const float *bind_expert_factors(ig_binder *b, const char *part, int layer) {
    if (!part || b->c->is_shared_beside) return NULL;
    return ig_bind_factors(b, ig_bind_name(b, part, layer, ".weight").text, b->c->n_experts);
}

/* Of all experts' matrices of this name, where files have them one below the other: in all layers, or none. */
static const float *bind_expert_biases(ig_binder *b, const char *part, int layer, int n_out) {
    const char *end = b->names.expert_bias;
    if (!part || !ig_bind_find(b, ig_bind_name(b, part, 0, end).text)) return NULL;
    return ig_bind_vectors(b, ig_bind_name(b, part, layer, end).text, 2, b->c->n_experts, n_out, true);
}

/* Of matrices with rows of gate and up, whose biases take turns in files: all experts' of gate, then those of up. */
static const float *bind_mixed_biases(ig_binder *b, int layer, const float **up) {
    const char *part = b->names.expert_gate_up, *end = b->names.expert_bias;
    if (!part || !ig_bind_find(b, ig_bind_name(b, part, 0, end).text)) return NULL;
    size_t n = (size_t)b->c->n_experts * (size_t)b->c->d_ff;
    const uint64_t dims[] = {2 * (uint64_t)b->c->d_ff, (uint64_t)b->c->n_experts};
    const float *gate = ig_bind_floats(b, ig_bind_name(b, part, layer, end).text, 2, dims, n, 2, true, true);
    *up = gate ? gate + n : NULL;
    return gate;
}

/* What adapters add to all experts' matrices of this name, where files have them one below the other. */
static const ig_low_rank *bind_expert_low_rank(ig_binder *b, const char *part, int layer, int n_out, int n_in) {
    if (!part || !b->g) return NULL;
    return ig_bind_low_rank(b, ig_bind_name(b, part, layer, ".weight").text, b->c->n_experts, n_out, n_in);
}

/* Biases and factors of the experts' matrices, and what adapters add; experts: NULL in the first walk. */
static void bind_beside_experts(ig_binder *b, ig_ffn *experts, int layer) {
    const ig_config *c = b->c;
    const ig_weight_names *n = &b->names;
    int d = ig_config_expert_width(c);
    const char *both = n->expert_gate_up, *gate = both ? both : n->expert_gate, *up = both ? both : n->expert_up;
    const float *up_bias = both ? NULL : bind_expert_biases(b, n->expert_up, layer, c->d_ff);
    const float *gate_bias =
        both ? bind_mixed_biases(b, layer, &up_bias) : bind_expert_biases(b, n->expert_gate, layer, c->d_ff);
    const float *down_bias = bind_expert_biases(b, n->expert_down, layer, d);
    const float *gate_factor = bind_expert_factors(b, gate, layer), *up_factor = bind_expert_factors(b, up, layer),
                *down_factor = bind_expert_factors(b, n->expert_down, layer);
    const ig_low_rank *gate_added = bind_expert_low_rank(b, gate, layer, both ? 2 * c->d_ff : c->d_ff, d),
                      *up_added = both ? gate_added : bind_expert_low_rank(b, up, layer, c->d_ff, d),
                      *down_added = bind_expert_low_rank(b, n->expert_down, layer, d, c->d_ff);
    for (int e = 0; experts && e < c->n_experts; e++) {
        ig_ffn *f = &experts[e];
        if (gate_bias) f->gate.bias = gate_bias + (size_t)e * (size_t)c->d_ff;
        if (up_bias) f->up.bias = up_bias + (size_t)e * (size_t)c->d_ff;
        if (down_bias) f->down.bias = down_bias + (size_t)e * (size_t)d;
        if (gate_factor) f->gate.scale = gate_factor + e;
        if (up_factor) f->up.scale = up_factor + e;
        if (down_factor) f->down.scale = down_factor + e;
        if (gate_added) f->gate.low_rank = gate_added + e;
        if (up_added) f->up.low_rank = up_added + e;
        if (down_added) f->down.low_rank = down_added + e;
    }
}

/* The scales of Gemma 4's norm before it are called what its factor would be. */
static ig_matrix bind_router(ig_binder *b, int layer) {
    const ig_config *c = b->c;
    if (!c->is_shared_beside) return ig_bind_matrix(b, b->names.router, layer, c->n_experts, c->d_model);
    return ig_bind_table(b, ig_bind_name(b, b->names.router, layer, ".weight").text, c->n_experts, c->d_model);
}

/* Some files have it as a matrix of one row. */
static const float *bind_router_bias(ig_binder *b, int layer) {
    ig_tensor_name name = ig_bind_name(b, b->names.router_bias, layer, "");
    const ig_tensor *t = ig_bind_find(b, name.text);
    if (!t || b->c->routing == IG_ROUTING_SOFTMAX) return NULL;
    return ig_bind_vectors(b, name.text, t->n_dims == 2 ? 2 : 1, 1, b->c->n_experts, true);
}

/* The router gets the state at length 1, times its scales. */
static void bind_norms_beside(ig_binder *b, ig_layer *l, int i) {
    const ig_weight_names *n = &b->names;
    const ig_config *c = b->c;
    l->router_norm.w = ig_bind_part_scale(b, n->router_scale, i, "", c->d_model, 1 / sqrt((double)c->d_model));
    l->experts_norm = ig_bind_norm(b, n->experts_norm, i, 1);
    l->experts_norm_after = ig_bind_norm(b, n->experts_norm_after, i, 1);
    l->shared_norm_after = ig_bind_norm(b, n->shared_norm_after, i, 1);
    l->expert_scales = ig_bind_part_vector(b, n->expert_scales, i, "", c->n_experts, true);
}

static void bind_experts(ig_binder *b, ig_layer *l, int i) {
    const ig_config *c = b->c;
    ig_ffn unused = {0};
    bool is_plain = i < c->n_plain_layers;
    l->n_experts = c->n_experts && !is_plain ? c->n_experts : 1;
    l->experts = ig_arena_take(&b->w->owned, (size_t)l->n_experts * sizeof *l->experts);
    if (is_plain || !c->n_experts) {
        bind_ffn(b, l->experts ? l->experts : &unused, i, is_plain ? c->d_ff_plain : c->d_ff);
        return;
    }
    l->first_expert = b->n_experts;
    b->n_experts += c->n_experts;
    l->router = bind_router(b, i);
    if (c->is_shared_beside) bind_norms_beside(b, l, i);
    l->router_bias = bind_router_bias(b, i);
    bind_shared(b, &l->shared, i);
    if (c->is_shared_gated) l->shared_gate = bind_shared_gate(b, i);
    if (c->d_expert) {
        l->experts_in = ig_bind_matrix(b, b->names.experts_in, i, c->d_expert, c->d_model);
        l->experts_out = ig_bind_matrix(b, b->names.experts_out, i, c->d_model, c->d_expert);
    }
    for (int e = 0; e < c->n_experts; e++) bind_expert_ffn(b, l->experts ? &l->experts[e] : &unused, i, e);
    bind_beside_experts(b, l->experts, i);
}

/* A number of an activation: in GGUF files of all layers in a list. */
static float bind_number(ig_binder *b, const char *name, int layer) {
    char key[64];
    ig_tensor_name of_layer = ig_bind_name(b, "layers.%d.mlp.act_fn.", layer, name);
    const ig_tensor *t = b->g ? NULL : ig_bind_find(b, of_layer.text);
    const uint64_t dims[] = {1};
    if (!b->g) {
        const float *x = ig_bind_floats(b, of_layer.text, t ? (int)t->n_dims : 1, dims, 1, 1, false, true);
        return x ? *x : 0;
    }
    snprintf(key, sizeof key, "xielu.%s", name);
    const ig_gguf_value *v = ig_gguf_find(b->g, key);
    if (v && v->type == IG_GGUF_ARRAY && v->n_items > (uint64_t)layer)
        return (float)ig_gguf_array_float(v, (uint64_t)layer);
    if (!b->status)
        b->status = ig_fail(b->err, IG_E_FORMAT, "%s: key '%s' must be a number for each layer", b->path, key);
    return 0;
}

/* Two of them are kept so that what they stand for is above 0. */
static const float *bind_xielu(ig_binder *b, int layer) {
    float *p = ig_arena_take(&b->w->owned, 4 * sizeof *p);
    float above = bind_number(b, "alpha_p", layer), below = bind_number(b, "alpha_n", layer),
          slope = bind_number(b, "beta", layer), eps = bind_number(b, "eps", layer);
    if (!p) return NULL;
    p[0] = log1pf(expf(above)), p[1] = slope + log1pf(expf(below)), p[2] = slope, p[3] = eps;
    return p;
}

/* Taps of a convolution, [channels][n_taps] in files. */
static const float *bind_taps(ig_binder *b, int layer) {
    uint64_t n_taps = (uint64_t)b->c->recurrence.n_taps, channels = ig_recurrence_channels(&b->c->recurrence);
    ig_tensor_name name = ig_bind_name(b, b->names.taps, layer, ".weight");
    const uint64_t dims[] = {n_taps, b->g ? channels : 1, channels};
    return ig_bind_floats(b, name.text, b->g ? 2 : 3, dims, channels, n_taps, true, true);
}

/* n_rows times n numbers, which files may have in one row. */
static const float *bind_numbers(ig_binder *b, const char *part, int layer, int n_rows, int n) {
    ig_tensor_name name = ig_bind_name(b, part, layer, "");
    const ig_tensor *t = ig_bind_find(b, name.text);
    bool is_flat = t && t->n_dims == 1;
    return is_flat ? ig_bind_vector(b, name.text, n_rows * n, true) : ig_bind_vectors(b, name.text, 2, n_rows, n, true);
}

/* Hugging Face's files hold the logarithms. */
static const float *bind_decay(ig_binder *b, int layer, int n_heads) {
    float *decay = (float *)(uintptr_t)bind_numbers(b, b->names.decay, layer, n_heads, 1);
    for (int h = 0; decay && !b->g && h < n_heads; h++) decay[h] = -expf(decay[h]);
    return decay;
}

/* A matrix in FP8 as one of 16-bit floats, whose rows and columns can be turned: what rounding to these changes is 32
 * times less than what the 8 bits have cost. */
static ig_matrix widen(ig_binder *b, const ig_matrix *from) {
    const ig_kernels *k = ig_kernels_get(IG_CPU_SCALAR);
    ig_matrix m = {.n_out = from->n_out, .n_in = from->n_in, .type = IG_TYPE_BF16};
    m.row_bytes = ig_type_row_bytes(ig_type_get(m.type), (size_t)m.n_in);
    uint16_t *to = ig_arena_take(&b->w->owned, ig_matrix_bytes(&m));
    m.w = to;
    for (int r = 0; to && r < m.n_out; r++) {
        const uint8_t *row = (const uint8_t *)from->w + (size_t)r * from->row_bytes;
        for (int i = 0, n; i < m.n_in; i += n) {
            float w[IG_SCALES_UNIT];
            n = ig_min_int(m.n_in - i, IG_SCALES_UNIT);
            k->dequantize[from->type](w, row + i, n);
            ig_scale_codes(w, &from->block_scales, r, i, n);
            for (int j = 0; j < n; j++) *to++ = ig_f32_bf16(w[j]);
        }
    }
    return m;
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
    if (all.type == IG_TYPE_F8_E4M3) all = widen(b, &all);
    uint8_t *to = ig_arena_take(&b->w->owned, ig_matrix_bytes(&all));
    const uint8_t *from = all.w;
    r->is_made = true;
    r->qkv = r->z = all;
    r->qkv.n_out = channels, r->qkv.w = to;
    r->z.n_out = n * values, r->z.w = to ? to + (size_t)channels * all.row_bytes : NULL;
    for (int h = 0; to && h < n; h++)
        for (int k = 0, first = 0; k < 4; first += n * of_head[k++]) {
            size_t n_bytes = (size_t)of_head[k] * all.row_bytes;
            memcpy(to + (size_t)(first + h * of_head[k]) * all.row_bytes, from, n_bytes);
            from += n_bytes;
        }
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

static void bind_mamba(ig_binder *b, ig_recurrent *r, int i) {
    const ig_weight_names *n = &b->names;
    const ig_recurrence_shape *s = &b->c->recurrence;
    int channels = (int)ig_recurrence_channels(s), n_values = s->n_value_heads * s->value_dim;
    ig_bind_parts(b, n->mixed, i, (ig_matrix *[]){&r->z, &r->qkv, &r->alpha},
                  (int[]){n_values, channels, s->n_value_heads}, 3, b->c->d_model);
    r->w.taps_bias = ig_bind_part_vector(b, n->taps, i, ".bias", channels, false);
    r->w.skip = bind_numbers(b, n->skip, i, s->n_value_heads, 1);
    r->norm = bind_numbers(b, n->mixed_norm, i, s->n_key_heads, n_values / s->n_key_heads);
}

static void bind_convolution(ig_binder *b, ig_recurrent *r, int i) {
    int d = b->c->d_model;
    ig_bind_parts(b, b->names.mixed, i, (ig_matrix *[]){&r->beta, &r->z, &r->qkv}, (int[]){d, d, d}, 3, d);
}

static void bind_recurrence(ig_binder *b, ig_layer *l, int i) {
    static void (*const kinds[])(ig_binder * b, ig_recurrent * r, int i) = {
        [IG_GATED_DELTA_NET] = bind_delta_net, [IG_MAMBA_2] = bind_mamba, [IG_SHORT_CONVOLUTION] = bind_convolution};
    const ig_recurrence_shape *s = &b->c->recurrence;
    ig_recurrent *r = &l->recurrent;
    kinds[s->kind](b, r, i);
    r->w.taps = bind_taps(b, i);
    l->o = ig_bind_matrix(b, b->names.mixed_out, i, b->c->d_model, s->n_value_heads * s->value_dim);
    if (s->kind == IG_SHORT_CONVOLUTION) return;
    r->w.decay = bind_decay(b, i, s->n_value_heads);
    r->w.decay_bias = ig_bind_part_vector(b, b->names.decay_bias, i, "", s->n_value_heads, true);
}

/* Keys of the latent, as a file has them, [n_heads][key_dim and others][kv_rank], to [n_heads][kv_rank][key_dim]. */
static void turn_keys(uint8_t *to, const ig_matrix *from, const ig_config *c) {
    size_t of_head = (size_t)(from->n_out / c->n_heads), rank = (size_t)c->latent.kv_rank,
           n = (size_t)c->latent.key_dim, size = from->row_bytes / rank;
    for (size_t h = 0; h < (size_t)c->n_heads; h++)
        for (size_t i = 0; i < n; i++) {
            const uint8_t *row = (const uint8_t *)from->w + (h * of_head + i) * from->row_bytes;
            for (size_t k = 0; k < rank; k++) memcpy(to + ((h * rank + k) * n + i) * size, row + k * size, size);
        }
}

/* One matrix of keys and values of all heads. */
static void bind_keys_and_values(ig_binder *b, ig_latent *l, int i) {
    const ig_config *c = b->c;
    int n = c->n_heads * (c->latent.key_dim + c->latent.value_dim);
    ig_tensor_name name = ig_bind_name(b, b->names.keys_values_up, i, ".weight");
    l->value_up = ig_bind_first(b, name.text, 2, 1, n, c->latent.kv_rank);
    if (b->status) return;
    l->is_value_up_made = l->value_up.type == IG_TYPE_F8_E4M3;
    if (l->is_value_up_made) l->value_up = widen(b, &l->value_up);
    if (ig_type_get(l->value_up.type)->block > 1) {
        b->status = ig_fail(b->err, IG_E_UNSUPPORTED, "%s: tensor '%s' is of type %s, must be F32, F16 or BF16",
                            b->path, name.text, ig_type_get(l->value_up.type)->name);
        return;
    }
    l->is_key_up_made = true;
    l->key_up =
        (ig_matrix){.n_out = c->n_heads * c->latent.kv_rank, .n_in = c->latent.key_dim, .type = l->value_up.type};
    l->key_up.row_bytes = ig_type_row_bytes(ig_type_get(l->key_up.type), (size_t)l->key_up.n_in);
    void *made = ig_arena_take(&b->w->owned, ig_matrix_bytes(&l->key_up));
    l->key_up.w = made;
    if (made) turn_keys(made, &l->value_up, c);
}

/* A matrix of all heads, which a file has in as many parts. */
static ig_matrix bind_heads(ig_binder *b, const char *part, int i, int of_head, int n_in) {
    int n = b->c->n_heads;
    ig_matrix m = ig_bind_first(b, ig_bind_name(b, part, i, ".weight").text, 3, n, of_head, n_in);
    m.n_out = n * of_head;
    return m;
}

static void bind_latent(ig_binder *b, ig_layer *l, int i) {
    const ig_config *c = b->c;
    const ig_weight_names *n = &b->names;
    const ig_latent_shape *s = &c->latent;
    int q_in = s->q_rank ? s->q_rank : c->d_model;
    ig_latent *latent = &l->latent;
    if (s->q_rank) latent->q_in = ig_bind_plain(b, ig_bind_name(b, n->q_in, i, ".weight").text, s->q_rank, c->d_model);
    if (s->q_rank) l->q_norm = ig_bind_scale(b, n->q_in_norm, i, s->q_rank, 1);
    const char *q = s->q_rank ? n->q_up : n->q;
    l->q = ig_bind_plain(b, ig_bind_name(b, q, i, ".weight").text, c->n_heads * (s->key_dim + c->n_rot), q_in);
    ig_bind_parts(b, n->latent, i, (ig_matrix *[]){&l->k, &latent->rotating}, (int[]){s->kv_rank, c->n_rot}, 2,
                  c->d_model);
    l->k_norm = ig_bind_scale(b, n->latent_norm, i, s->kv_rank, 1);
    if (n->keys_values_up) {
        bind_keys_and_values(b, latent, i);
    } else {
        latent->key_up = bind_heads(b, n->keys_up, i, s->kv_rank, s->key_dim);
        latent->value_up = bind_heads(b, n->values_up, i, s->value_dim, s->kv_rank);
    }
    l->o = ig_bind_plain(b, ig_bind_name(b, n->o, i, ".weight").text, c->d_model, c->n_heads * s->value_dim);
}

/* Of this layer; files call it number i. */
static void bind_attention(ig_binder *b, ig_layer *l, int layer, int i) {
    const ig_config *c = b->c;
    const ig_weight_names *n = &b->names;
    const ig_layer_heads heads = ig_config_heads(c);
    const ig_head_shape *s = ig_heads_of(&heads, layer);
    int n_q = s->n_heads * s->head_dim, n_kv = s->n_kv_heads * s->head_dim;
    bool shares = layer >= c->n_layers - c->n_layers_sharing, has_values = !c->are_keys_values || c->window[layer];
    bool is_all = c->head_norm == IG_HEAD_NORM_ALL;
    if (c->is_qkv_fused) {
        ig_bind_parts(b, n->qkv, i, (ig_matrix *[]){&l->q, &l->k, &l->v}, (int[]){n_q, n_kv, n_kv}, 3, c->d_model);
    } else {
        l->q = ig_bind_matrix(b, n->q, i, c->is_gate_in_q ? 2 * n_q : n_q, c->d_model);
        if (!shares) l->k = ig_bind_matrix(b, n->k, i, n_kv, c->d_model);
        if (!shares && has_values) l->v = ig_bind_matrix(b, n->v, i, n_kv, c->d_model);
    }
    if (c->has_attn_gate && !c->is_gate_in_q)
        l->attn_gate = ig_bind_matrix(b, n->attn_gate, i, c->is_gate_of_heads ? s->n_heads : n_q, c->d_model);
    l->o = ig_bind_matrix(b, n->o, i, c->d_model, n_q);
    if (c->has_sink_scores) {
        const float *sinks = ig_bind_part_vector(b, n->sinks, i, "", s->n_heads, true);
        if (b->w->sink_scores) b->w->sink_scores[i] = sinks;
    }
    if (c->head_norm == IG_HEAD_NORM_NONE || c->are_head_norms_plain) return;
    l->q_norm = ig_bind_scale(b, n->q_norm, i, is_all ? n_q : s->head_dim, 1);
    if (!shares) l->k_norm = ig_bind_scale(b, n->k_norm, i, is_all ? n_kv : s->head_dim, 1);
}

/* What the layer gets of each token beside the state, and the scale of what it leaves. */
static void bind_input(ig_binder *b, ig_layer *l, int i) {
    const ig_config *c = b->c;
    const ig_weight_names *n = &b->names;
    const float *scale = c->has_layer_scales ? ig_bind_part_vector(b, n->layer_scale, i, "", 1, true) : NULL;
    l->scale = scale ? *scale : 1;
    if (!c->d_layer_input) return;
    l->input_gate = ig_bind_matrix(b, n->input_gate, i, c->d_layer_input, c->d_model);
    l->input_out = ig_bind_matrix(b, n->input_out, i, c->d_model, c->d_layer_input);
    l->input_norm_after = ig_bind_norm(b, n->input_norm_after, i, 1);
}

static void bind_layer(ig_binder *b, ig_layer *l, int i) {
    const ig_config *c = b->c;
    const ig_weight_names *n = &b->names;
    bool are_before = c->norm_order != IG_NORMS_OF_PARTS, are_numbered = c->has_numbered_parts,
         are_after = c->norm_order == IG_NORMS_AROUND || c->norm_order == IG_NORMS_OF_PARTS;
    int first = are_numbered ? c->first_part[i] : i, second = are_numbered ? first + 1 : i;
    bind_input(b, l, i);
    if (are_before) l->attn_norm = ig_bind_norm(b, n->attn_norm, first, 1);
    if (are_after) l->attn_norm_after = ig_bind_norm(b, n->attn_norm_after, first, 1);
    if (c->is_recurrent[i])
        bind_recurrence(b, l, first);
    else if (c->latent.kv_rank)
        bind_latent(b, l, first);
    else
        bind_attention(b, l, i, first);
    if (c->has_no_ffn[i]) return;
    if (c->norm_order == IG_NORMS_SHARED)
        l->ffn_norm = l->attn_norm;
    else if (are_before)
        l->ffn_norm = ig_bind_norm(b, n->ffn_norm, second, 1);
    if (are_after) l->ffn_norm_after = ig_bind_norm(b, n->ffn_norm_after, second, 1);
    bind_experts(b, l, second);
    if (c->activation == IG_XIELU) l->xielu = bind_xielu(b, second);
}

/* Of "longrope" files hold two sets, of which the one for long contexts is used throughout. */
static void bind_rope_factors(ig_binder *b) {
    ig_weights *w = b->w;
    bool is_long = b->c->rope_blend == IG_BLEND_LONGROPE;
    const char *name = is_long ? "rope_factors_long.weight" : "rope_freqs.weight";
    w->rope_factors = ig_bind_vector(b, name, b->c->n_rot / 2, is_long);
    if (is_long) ig_bind_vector(b, "rope_factors_short.weight", b->c->n_rot / 2, false);
    for (int i = 0; w->rope_factors && i < b->c->n_rot / 2; i++)
        if (!(w->rope_factors[i] > 0) && !b->status)
            b->status = ig_fail(b->err, IG_E_FORMAT, "%s: tensor '%s' holds %g, must be above 0", b->path, name,
                                (double)w->rope_factors[i]);
}

/* What ranks texts, instead of an output matrix, which need not be there. */
static void bind_classes(ig_binder *b) {
    const char *name = b->g ? "cls.output.weight" : "score.weight";
    const ig_tensor *t = ig_bind_find(b, name);
    if (!t) return;
    uint64_t n = t->n_dims == 2 ? t->dims[1] : 1;
    if ((n != 1 && n != 2) && !b->status)
        b->status = ig_fail(b->err, IG_E_UNSUPPORTED, "%s: tensor '%s' has %llu rows: 1 or 2 are supported", b->path,
                            name, (unsigned long long)n);
    b->w->n_classes = (int)n;
    b->w->classes = ig_bind_vectors(b, name, (int)t->n_dims, (int)n, b->c->d_model, true);
}

/* The output matrix. */
static void bind_head(ig_binder *b) {
    const ig_config *c = b->c;
    if (b->w->is_tied || (b->w->n_classes && !ig_bind_find(b, b->names.head))) {
        b->w->head = b->w->embed;
        return;
    }
    b->w->head = ig_bind_plain(b, b->names.head, c->n_vocab, c->d_embed);
}

/* What all layers get of a token beside the state is the mean of two, but for a factor of sqrt(2): of a table of
 * embeddings, and of norms of products, whose weights have the factor in them. */
static void bind_inputs(ig_binder *b) {
    const ig_config *c = b->c;
    const ig_weight_names *n = &b->names;
    int all = c->n_layers * c->d_layer_input;
    b->w->input_table = ig_bind_table(b, ig_bind_name(b, n->input_table, 0, ".weight").text, c->n_vocab, all);
    b->w->input_in = ig_bind_plain(b, ig_bind_name(b, n->input_in, 0, ".weight").text, all, c->d_model);
    b->w->input_norm = ig_bind_scale(b, n->input_norm, 0, c->d_layer_input, sqrt(0.5));
}

/* One walk over the whole model. */
static void bind_all(ig_binder *b) {
    const ig_config *c = b->c;
    ig_weights *w = b->w;
    b->n_experts = 0;
    w->layers = ig_arena_take(&w->owned, (size_t)c->n_layers * sizeof *w->layers);
    if (c->has_sink_scores) w->sink_scores = ig_arena_take(&w->owned, (size_t)c->n_layers * sizeof *w->sink_scores);
    w->embed = ig_bind_table(b, ig_bind_name(b, b->names.embed, 0, ".weight").text, c->n_vocab, c->d_embed);
    if (c->learned_positions)
        w->positions =
            ig_bind_table(b, ig_bind_name(b, "embed_positions", 0, ".weight").text, c->learned_positions, c->d_model);
    if (c->d_embed != c->d_model) {
        w->embed_in = ig_bind_plain(b, ig_bind_name(b, "project_in", 0, ".weight").text, c->d_model, c->d_embed);
        w->embed_out = ig_bind_plain(b, ig_bind_name(b, "project_out", 0, ".weight").text, c->d_embed, c->d_model);
    }
    double logits = c->logit_cap > 0 ? c->logit_scale * c->logit_cap : c->logit_scale;
    if (c->is_final_norm_whole) b->norm_offset = 0;
    if (c->final_norm) w->final_norm = ig_bind_norm(b, b->names.final_norm, 0, 1 / logits);
    b->norm_offset = c->norm_offset;
    if (c->d_layer_input) bind_inputs(b);
    bind_classes(b);
    bind_head(b);
    if (b->g) bind_rope_factors(b);
    for (int i = 0; i < c->n_layers && !b->status; i++) {
        ig_layer unused = {0};
        bind_layer(b, w->layers ? &w->layers[i] : &unused, i);
    }
}

/* Keys and values of layers that share those of others. */
static bool is_left_of_sharing(const ig_binder *b, const ig_tensor *t) {
    const ig_weight_names *n = &b->names;
    const char *const parts[] = {n->k, n->v, n->k_norm};
    for (int l = b->c->n_layers - b->c->n_layers_sharing; l < b->c->n_layers; l++)
        for (size_t i = 0; i < IG_COUNT(parts); i++)
            if (strcmp(t->name, ig_bind_name(b, parts[i], l, ".weight").text) == 0) return true;
    return false;
}

/* What activations, keys and values are to be divided by where they are in 4 or 8 bits, too. */
static bool is_of_activations(const char *name) {
    static const char *const ends[] = {
        ".input_scale", ".input_global_scale", ".output_scale", ".activation_scale", ".q_scale", ".k_scale",
        ".v_scale"};
    for (size_t i = 0; i < IG_COUNT(ends); i++)
        if (ig_name_ends_with(name, ends[i])) return true;
    return false;
}

/* Tensors that may be left over: layers that guess tokens ahead, what sees pictures, buffers that old checkpoints hold,
 * copies of a tied embedding, and scales that nothing here needs. */
static bool is_harmless(const ig_binder *b, const ig_tensor *t) {
    size_t n_prefix = strlen(b->names.prefix);
    bool is_prefixed = strncmp(t->name, b->names.prefix, n_prefix) == 0;
    int layer = -1, n = b->c->has_numbered_parts ? b->c->n_parts : b->c->n_layers;
    if (is_prefixed && sscanf(t->name + n_prefix, b->g ? "blk.%4d." : "layers.%4d.", &layer) == 1 && layer >= n &&
        layer < n + b->c->n_layers_left_out)
        return true;
    if (is_left_of_sharing(b, t)) return true;
    if (b->g) return ig_name_ends_with(t->name, ".input_scale");
    if (is_prefixed && strncmp(t->name + n_prefix, "mtp_", 4) == 0) return true;
    if (b->c->n_layers_left_out && strncmp(t->name, "mtp.", 4) == 0) return true;
    if (b->c->is_text_part && !is_prefixed && strcmp(t->name, b->names.head) != 0) return true;
    if (ig_name_ends_with(t->name, ".rotary_emb.inv_freq") || is_of_activations(t->name)) return true;
    return b->w->is_tied && strcmp(t->name, b->names.head) == 0 && t->n_dims == 2 &&
           t->dims[0] == (uint64_t)b->c->d_embed && t->dims[1] == (uint64_t)b->c->n_vocab;
}

static void check_unused(ig_binder *b) {
    for (size_t i = 0; i < b->n_tensors && !b->status; i++) {
        const ig_tensor *t = ig_bind_tensor_at(b, i);
        if (!b->used[i] && !is_harmless(b, t))
            b->status = ig_fail(b->err, IG_E_UNSUPPORTED, "%s: tensor '%.120s' is not used by architecture '%s'",
                                b->path, t->name, b->c->architecture);
    }
}

static void check_adapters(ig_binder *b) {
    for (int i = 0; b->adapters && i < b->adapters->n && !b->status; i++)
        b->status = ig_adapter_check_used(&b->adapters->files[i], b->err);
}

static void count_bytes(ig_binder *b) {
    for (size_t i = 0; i < b->n_tensors; i++) {
        const ig_tensor *t = ig_bind_tensor_at(b, i);
        if (!b->used[i]) continue;
        b->w->stored_bytes += t->n_bytes;
        b->w->n_params += t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
    }
}

static void check_types(ig_binder *b) {
    for (size_t i = 0; i < b->n_tensors && !b->status; i++) {
        const ig_tensor *t = ig_bind_tensor_at(b, i);
        const ig_type_info *type = ig_type_get((uint32_t)t->type);
        if (!type->is_computed)
            b->status = ig_fail(b->err, IG_E_UNSUPPORTED, "%s: tensor '%.120s': type %s is not supported", b->path,
                                t->name, type->name);
    }
}

ig_status ig_weights_bind(ig_weights *out, const ig_config *c, const ig_gguf *g, const ig_safetensors *st,
                          const ig_adapters *adapters, ig_error *err) {
    ig_binder b = {.c = c, .g = g, .st = st, .norm_offset = c->norm_offset, .w = out, .adapters = adapters, .err = err};
    *out = (ig_weights){0};
    b.path = g ? ig_gguf_path(g) : ig_safetensors_path(st);
    b.n_tensors = ig_tensors_count(g, st);
    b.used = calloc(b.n_tensors + 1, sizeof *b.used);
    if (!b.used) return ig_fail_memory(err, "tensor list", b.n_tensors);
    ig_weight_names_choose(&b.names, c, g, st);
    /* Of a text part it can be stated in two places that differ, and a model without a head is for embeddings. */
    bool may_lack_head = c->is_text_part || (!g && !*b.names.prefix);
    out->is_tied = c->tied || (may_lack_head && !ig_bind_find(&b, b.names.head));
    check_types(&b);
    if (!b.status) bind_all(&b);
    if (!b.status) check_unused(&b);
    if (!b.status) check_adapters(&b);
    if (!b.status && !ig_arena_open(&out->owned)) b.status = ig_fail_memory(err, "norms and biases", out->owned.size);
    if (!b.status) {
        bind_all(&b);
        count_bytes(&b);
    }
    out->is_used = b.used;
    if (b.status) ig_weights_close(out);
    return b.status;
}

void ig_layer_matrices(ig_matrix *out[IG_LAYER_MATRICES], ig_layer *w) {
    ig_ffn *shared = &w->shared;
    ig_recurrent *r = &w->recurrent;
    ig_latent *latent = &w->latent;
    ig_matrix *const all[] = {&latent->q_in,
                              &w->q,
                              latent->is_key_up_made ? NULL : &latent->key_up,
                              &w->k,
                              &latent->rotating,
                              &w->v,
                              &w->attn_gate,
                              r->is_made ? NULL : &r->qkv,
                              r->is_made ? NULL : &r->z,
                              &r->beta,
                              &r->alpha,
                              latent->is_value_up_made ? NULL : &latent->value_up,
                              &w->o,
                              &w->router,
                              &shared->gate,
                              &shared->up,
                              &shared->down,
                              &w->shared_gate,
                              &w->experts_in,
                              &w->experts_out,
                              &w->input_gate,
                              &w->input_out};
    _Static_assert(IG_COUNT(all) == IG_LAYER_MATRICES, "all of a layer");
    memcpy(out, all, sizeof all);
}

void ig_weights_close(ig_weights *w) {
    if (!w) return;
    ig_arena_close(&w->owned);
    ig_arena_close(&w->panels);
    free(w->is_used);
    *w = (ig_weights){0};
}
