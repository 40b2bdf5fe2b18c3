/* SPDX-License-Identifier: Apache-2.0
 *
 * Binding tensors of feed-forward parts: one for all tokens, or experts with what chooses among them.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "model/weight_binder.h"

/* One for all tokens. */
static void bind_ffn(ig_binder *b, ig_ffn *f, int i, int d_ff) {
    const ig_config *c = b->c;
    const ig_weight_names *n = &b->names;
    if (c->file.is_gate_up_fused) {
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
    if (!c->experts.d_shared) return;
    if (c->file.is_gate_up_fused) {
        int rows[] = {c->experts.d_shared, c->experts.d_shared};
        ig_bind_parts(b, n->gate_up, i, (ig_matrix *[]){&f->gate, &f->up}, rows, 2, c->d_model);
        f->down = ig_bind_matrix(b, n->shared_down, i, c->d_model, c->experts.d_shared);
        return;
    }
    if (ig_activation_is_gated(c->activation))
        f->gate = ig_bind_matrix(b, n->shared_gate, i, c->experts.d_shared, c->d_model);
    f->up = ig_bind_matrix(b, n->shared_up, i, c->experts.d_shared, c->d_model);
    f->down = ig_bind_matrix(b, n->shared_down, i, c->d_model, c->experts.d_shared);
}

/* One row, which may be stored as a vector. */
static ig_matrix bind_shared_gate(ig_binder *b, int layer) {
    ig_tensor_name name = ig_bind_name(b, b->names.shared_share, layer, ".weight");
    const ig_tensor *t = ig_bind_find(b, name.text);
    return ig_bind_first(b, name.text, t && t->n_dims == 1 ? 1 : 2, 1, 1, b->c->d_model);
}

/* A matrix of expert number e. */
static ig_matrix bind_expert(ig_binder *b, const char *part, int layer, int e, int n_out, int n_in) {
    int n = b->c->experts.n;
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
    if (!part || b->c->experts.is_shared_beside) return NULL;
    return ig_bind_factors(b, ig_bind_name(b, part, layer, ".weight").text, b->c->experts.n);
}

/* Of all experts' matrices of this name, where files have them one below the other: in all layers, or none. */
static const float *bind_expert_biases(ig_binder *b, const char *part, int layer, int n_out) {
    const char *end = b->names.expert_bias;
    if (!part || !ig_bind_find(b, ig_bind_name(b, part, 0, end).text)) return NULL;
    return ig_bind_vectors(b, ig_bind_name(b, part, layer, end).text, 2, b->c->experts.n, n_out, true);
}

/* Of matrices with rows of gate and up, whose biases take turns in files: all experts' of gate, then those of up. */
static const float *bind_mixed_biases(ig_binder *b, int layer, const float **up) {
    const char *part = b->names.expert_gate_up, *end = b->names.expert_bias;
    if (!part || !ig_bind_find(b, ig_bind_name(b, part, 0, end).text)) return NULL;
    size_t n = (size_t)b->c->experts.n * (size_t)b->c->d_ff;
    const uint64_t dims[] = {2 * (uint64_t)b->c->d_ff, (uint64_t)b->c->experts.n};
    const float *gate = ig_bind_floats(b, ig_bind_name(b, part, layer, end).text, 2, dims, n, 2, true, true);
    *up = gate ? gate + n : NULL;
    return gate;
}

/* What adapters add to all experts' matrices of this name, where files have them one below the other. */
static const ig_low_rank *bind_expert_low_rank(ig_binder *b, const char *part, int layer, int n_out, int n_in) {
    if (!part || !b->g) return NULL;
    return ig_bind_low_rank(b, ig_bind_name(b, part, layer, ".weight").text, b->c->experts.n, n_out, n_in);
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
    for (int e = 0; experts && e < c->experts.n; e++) {
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
    if (!c->experts.is_shared_beside) return ig_bind_matrix(b, b->names.router, layer, c->experts.n, c->d_model);
    return ig_bind_table(b, ig_bind_name(b, b->names.router, layer, ".weight").text, c->experts.n, c->d_model);
}

/* Some files have it as a matrix of one row. */
static const float *bind_router_bias(ig_binder *b, int layer) {
    ig_tensor_name name = ig_bind_name(b, b->names.router_bias, layer, "");
    const ig_tensor *t = ig_bind_find(b, name.text);
    if (!t || b->c->experts.routing == IG_ROUTING_SOFTMAX) return NULL;
    return ig_bind_vectors(b, name.text, t->n_dims == 2 ? 2 : 1, 1, b->c->experts.n, true);
}

/* The router gets the state at length 1, times its scales. */
static void bind_norms_beside(ig_binder *b, ig_layer *l, int i) {
    const ig_weight_names *n = &b->names;
    const ig_config *c = b->c;
    l->router_norm.w = ig_bind_part_scale(b, n->router_scale, i, "", c->d_model, 1 / sqrt((double)c->d_model));
    l->experts_norm = ig_bind_norm(b, n->experts_norm, i, 1);
    l->experts_norm_after = ig_bind_norm(b, n->experts_norm_after, i, 1);
    l->shared_norm_after = ig_bind_norm(b, n->shared_norm_after, i, 1);
    l->expert_scales = ig_bind_part_vector(b, n->expert_scales, i, "", c->experts.n, true);
}

/* A number of an activation: in GGUF files of all layers in a list. */
static float bind_number(ig_binder *b, const char *name, int layer) {
    char key[64];
    const uint64_t dims[] = {1};
    if (!b->g) {
        ig_tensor_name of_layer = ig_bind_name(b, b->names.activation, layer, name);
        const ig_tensor *t = ig_bind_find(b, of_layer.text);
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

void ig_bind_experts(ig_binder *b, ig_layer *l, int i) {
    const ig_config *c = b->c;
    ig_ffn unused = {0};
    bool is_plain = ig_config_is_plain(c, i);
    if (c->activation == IG_XIELU) l->xielu = bind_xielu(b, i);
    l->n_experts = c->experts.n && !is_plain ? c->experts.n : 1;
    l->experts = ig_arena_take(&b->w->owned, (size_t)l->n_experts * sizeof *l->experts);
    if (is_plain || !c->experts.n) {
        bind_ffn(b, l->experts ? l->experts : &unused, i, is_plain ? c->d_ff_plain : c->d_ff);
        return;
    }
    l->first_expert = b->n_experts;
    b->n_experts += c->experts.n;
    l->router = bind_router(b, i);
    if (c->experts.is_shared_beside) bind_norms_beside(b, l, i);
    l->router_bias = bind_router_bias(b, i);
    bind_shared(b, &l->shared, i);
    if (c->experts.is_shared_gated) l->shared_gate = bind_shared_gate(b, i);
    if (c->experts.width) {
        l->experts_in = ig_bind_matrix(b, b->names.experts_in, i, c->experts.width, c->d_model);
        l->experts_out = ig_bind_matrix(b, b->names.experts_out, i, c->d_model, c->experts.width);
    }
    for (int e = 0; e < c->experts.n; e++) bind_expert_ffn(b, l->experts ? &l->experts[e] : &unused, i, e);
    bind_beside_experts(b, l->experts, i);
}
