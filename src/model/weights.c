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

/* Of this layer; files call it number i. */
static void bind_attention(ig_binder *b, ig_layer *l, int layer, int i) {
    const ig_config *c = b->c;
    const ig_weight_names *n = &b->names;
    const ig_layer_heads heads = ig_config_heads(c);
    const ig_head_shape *s = ig_heads_of(&heads, layer);
    int n_q = s->n_heads * s->head_dim, n_kv = s->n_kv_heads * s->head_dim;
    bool shares = layer >= c->n_layers - c->n_layers_sharing, has_values = !c->are_keys_values || c->window[layer];
    bool is_all = c->norms.of_heads == IG_HEAD_NORM_ALL;
    if (c->file.is_qkv_fused) {
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
    if (c->norms.of_heads == IG_HEAD_NORM_NONE || c->norms.of_heads_are_plain) return;
    l->q_norm = ig_bind_scale(b, n->q_norm, i, is_all ? n_q : s->head_dim, 1);
    if (!shares) l->k_norm = ig_bind_scale(b, n->k_norm, i, is_all ? n_kv : s->head_dim, 1);
}

/* What the layer brings along to choose entries by. */
static void bind_index(ig_binder *b, ig_indexer *x, int i) {
    const ig_config *c = b->c;
    const ig_index_shape *s = &c->index;
    const ig_weight_names *n = &b->names;
    int q_in = s->block ? c->d_model : c->latent.q_rank;
    x->q = ig_bind_plain(b, ig_bind_name(b, n->index_q, i, ".weight").text, s->n_heads * s->dim, q_in);
    x->k = ig_bind_plain(b, ig_bind_name(b, n->index_k, i, ".weight").text, s->dim, c->d_model);
    x->k_norm.w = ig_bind_scale(b, n->index_norm, i, s->dim, 1);
    if (s->block) {
        x->q_norm = ig_bind_scale(b, n->index_q_norm, i, s->dim, 1);
        return;
    }
    x->weights = ig_bind_plain(b, ig_bind_name(b, n->index_weights, i, ".weight").text, s->n_heads, c->d_model);
    x->k_norm.b = ig_bind_part_vector(b, n->index_norm, i, ".bias", s->dim, true);
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

static void multiply_layer(ig_binder *b, ig_layer *l) {
    const ig_multipliers *by = &b->c->multipliers;
    ig_recurrent *r = &l->recurrent;
    ig_ffn uncounted = {0}, *ffn = l->experts ? l->experts : &uncounted; /* not there in the first walk */
    ig_bind_multiply(b, &l->q, by->attn_in);
    ig_bind_multiply(b, &l->k, by->attn_in * by->key);
    ig_bind_multiply(b, &l->v, by->attn_in);
    ig_bind_multiply(b, &l->o, by->attn_out);
    ig_bind_multiply(b, &ffn->gate, by->gate);
    ig_bind_multiply(b, &ffn->down, by->down);
    ig_bind_multiply(b, &r->z, by->state_in * by->state_part[0]);
    ig_bind_multiply(b, &r->qkv, by->state_in); /* its parts by way of the convolution */
    ig_bind_multiply(b, &r->alpha, by->state_in * by->state_part[4]);
    ig_bind_multiply(b, &r->out, by->state_out);
    const ig_recurrence_shape *s = &b->c->recurrence;
    const int widths[] = {s->n_value_heads * s->value_dim, s->n_key_heads * s->key_dim, s->n_key_heads * s->key_dim};
    float *taps = (float *)(uintptr_t)r->w.taps;
    for (int t = 0; taps && t < s->n_taps; t++)
        for (size_t part = 0; part < IG_COUNT(widths); part++)
            for (int i = 0; i < widths[part]; i++) *taps++ *= (float)by->state_part[1 + part];
}

static void bind_layer(ig_binder *b, ig_layer *l, int i) {
    const ig_config *c = b->c;
    const ig_weight_names *n = &b->names;
    bool are_before = c->norms.order != IG_NORMS_OF_PARTS, are_numbered = c->file.has_numbered_parts,
         are_after = c->norms.order == IG_NORMS_AROUND || c->norms.order == IG_NORMS_OF_PARTS;
    int first = are_numbered ? c->file.first_part[i] : i, second = are_numbered ? first + 1 : i;
    bind_input(b, l, i);
    if (are_before) l->attn_norm = ig_bind_norm(b, n->attn_norm, first, 1);
    if (are_after) l->attn_norm_after = ig_bind_norm(b, n->attn_norm_after, first, 1);
    if (c->is_recurrent[i] || c->is_state_beside) ig_bind_recurrence(b, &l->recurrent, first);
    if (!c->is_recurrent[i] && c->latent.kv_rank)
        ig_bind_latent(b, l, first);
    else if (!c->is_recurrent[i])
        bind_attention(b, l, i, first);
    if (c->index.dim && c->index_layer[i] == i) bind_index(b, &l->index, first);
    if (c->has_no_ffn[i]) return;
    if (c->norms.order == IG_NORMS_SHARED)
        l->ffn_norm = l->attn_norm;
    else if (are_before)
        l->ffn_norm = ig_bind_norm(b, n->ffn_norm, second, 1);
    if (are_after) l->ffn_norm_after = ig_bind_norm(b, n->ffn_norm_after, second, 1);
    ig_bind_experts(b, l, second);
    if (c->has_multipliers) multiply_layer(b, l);
}

/* Of "longrope" files hold two sets, of which the one for long contexts is used throughout. */
static void bind_rope_factors(ig_binder *b) {
    ig_weights *w = b->w;
    bool is_long = b->c->rope.blend == IG_BLEND_LONGROPE;
    const char *name = is_long ? "rope_factors_long.weight" : "rope_freqs.weight";
    w->rope_factors = ig_bind_vector(b, name, b->c->rope.n / 2, is_long);
    if (is_long) ig_bind_vector(b, "rope_factors_short.weight", b->c->rope.n / 2, false);
    for (int i = 0; w->rope_factors && i < b->c->rope.n / 2; i++)
        if (!(w->rope_factors[i] > 0) && !b->status)
            b->status = ig_fail(b->err, IG_E_FORMAT, "%s: tensor '%s' holds %g, must be above 0", b->path, name,
                                (double)w->rope_factors[i]);
}

/* What ranks texts, instead of an output matrix, which need not be there. Which of two rows says yes, GGUF files tell
 * (ig_gguf_read_qwen3()). */
static void bind_classes(ig_binder *b) {
    const char *name = b->g ? "cls.output.weight" : "score.weight";
    const ig_tensor *t = ig_bind_find(b, name);
    if (!t) return;
    uint64_t n = t->n_dims == 2 ? t->dims[1] : 1, most = b->g ? 2 : 1;
    if ((n < 1 || n > most) && !b->status)
        b->status = ig_fail(b->err, IG_E_UNSUPPORTED, "%s: tensor '%s' has %llu rows: %s supported", b->path, name,
                            (unsigned long long)n, b->g ? "1 or 2 are" : "1 is");
    b->w->n_classes = (int)n;
    b->w->classes = ig_bind_vectors(b, name, (int)t->n_dims, (int)n, b->c->d_model, true);
}

/* The output matrix, and biases of logits, where these are products as they are (Phi-2). */
static void bind_head(ig_binder *b) {
    static const char suffix[] = ".weight";
    const ig_config *c = b->c;
    char bias[64];
    if (b->w->is_tied || (b->w->n_classes && !ig_bind_find(b, b->names.head))) {
        b->w->head = b->w->embed;
        return;
    }
    b->w->head = ig_bind_plain(b, b->names.head, c->n_vocab, c->d_embed);
    snprintf(bias, sizeof bias, "%.*s.bias", (int)(strlen(b->names.head) - strlen(suffix)), b->names.head);
    if (c->logit_scale == 1 && c->logit_cap == 0 && ig_bind_find(b, bias))
        b->w->head.bias = ig_bind_vector(b, bias, c->n_vocab, true);
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
    if (c->norms.is_final_whole) b->norm_offset = 0;
    if (c->norms.has_final) w->final_norm = ig_bind_norm(b, b->names.final_norm, 0, 1 / logits);
    b->norm_offset = c->norms.offset;
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

/* Tensors that may be left over: layers that guess tokens ahead, indexers of layers that go by another's, what sees
 * pictures, buffers that old checkpoints hold, and scales that nothing here needs. */
static bool is_harmless(const ig_binder *b, const ig_tensor *t) {
    size_t n_prefix = strlen(b->names.prefix);
    bool is_prefixed = strncmp(t->name, b->names.prefix, n_prefix) == 0;
    int layer = -1, n = b->c->file.has_numbered_parts ? b->c->file.n_parts : b->c->n_layers;
    if (is_prefixed && sscanf(t->name + n_prefix, b->g ? "blk.%4d." : "layers.%4d.", &layer) == 1 && layer >= n &&
        layer < n + b->c->file.n_layers_left_out)
        return true;
    if (is_left_of_sharing(b, t)) return true;
    if (layer >= 0 && layer < n && b->c->index.dim && b->c->index_layer[layer] != layer && strstr(t->name, ".indexer."))
        return true;
    if (b->g) return ig_name_ends_with(t->name, ".input_scale");
    if (is_prefixed && strncmp(t->name + n_prefix, "mtp_", 4) == 0) return true;
    if (b->c->file.n_layers_left_out && strncmp(t->name, "mtp.", 4) == 0) return true;
    if (b->c->file.is_text_part && !is_prefixed && strcmp(t->name, b->names.head) != 0) return true;
    static const char *const masks[] = {".rotary_emb.inv_freq", ".attention.bias", ".attention.masked_bias"};
    for (size_t i = 0; i < IG_COUNT(masks); i++)
        if (ig_name_ends_with(t->name, masks[i])) return true;
    return is_of_activations(t->name);
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
    ig_binder b = {
        .c = c, .g = g, .st = st, .norm_offset = c->norms.offset, .w = out, .adapters = adapters, .err = err};
    *out = (ig_weights){0};
    b.path = g ? ig_gguf_path(g) : ig_safetensors_path(st);
    b.n_tensors = ig_tensors_count(g, st);
    b.used = calloc(b.n_tensors + 1, sizeof *b.used);
    if (!b.used) return ig_fail_memory(err, "tensor list", b.n_tensors);
    ig_weight_names_choose(&b.names, c, g, st);
    /* An output matrix that is there counts, whatever is stated: the embedding's own, as old checkpoints have it, is
     * the same. Of a text part it can be stated in two places that differ, and a model without a head is for
     * embeddings. */
    bool may_lack_head = c->tied || c->file.is_text_part || (!g && !*b.names.prefix);
    out->is_tied = may_lack_head && !ig_bind_find(&b, b.names.head);
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
                              &w->index.q,
                              &w->index.weights,
                              &w->index.k,
                              &w->k,
                              &latent->rotating,
                              &w->v,
                              &w->attn_gate,
                              r->is_made ? NULL : &r->qkv,
                              r->is_made ? NULL : &r->z,
                              &r->q,
                              &r->k,
                              &r->v,
                              &r->z_in,
                              &r->alpha_in,
                              &r->beta,
                              &r->alpha,
                              &r->out,
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
