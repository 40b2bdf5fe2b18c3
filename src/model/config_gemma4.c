/* SPDX-License-Identifier: Apache-2.0
 *
 * Gemma 4: layers with a window have heads of their own, values may be what keys are made of, and the small ones' last
 * layers share keys and values and have an embedding of each token to themselves.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/error.h"
#include "model/config_hf.h"
#include "model/config_section.h"

enum { LOCAL_PATTERN = 6 /* every last one of so many layers has no window */ };

static void set_family(ig_config *c) {
    c->norms.order = IG_NORMS_AROUND;
    c->norms.of_heads = IG_HEAD_NORM_EACH;
    c->norms.of_values = true;
    c->activation = IG_GELU_GATED;
    c->attn_scale = 1;
    c->embed_scale = sqrt((double)c->d_model);
}

/* Experts beside a feed-forward layer for all tokens, which is as wide as those of other models. */
static void set_experts(ig_config *c, int width) {
    c->experts.is_shared_beside = true;
    c->experts.d_shared = c->d_ff;
    c->d_ff = width;
}

/* Those of layers that share keys and values are of another width. */
static void set_wide_layers(ig_config *c, int width) {
    ig_config_set_plain_layers(c, c->n_layers - c->n_layers_sharing);
    c->d_ff = width;
}

/* ---- config.json ------------------------------------------------------------------------------ */

const ig_config ig_hf_gemma4_sizes = {
    .n_vocab = 262144, .d_model = 2304, .d_ff = 9216, .n_layers = 30, .n_heads = 8, .n_ctx_train = 131072};

/* A field of layers without a window: one of the root, or "per_layer_config" has it in an object for each of them. */
static int read_global(ig_hf_reader *r, const ig_config *c, const char *root_key, const char *key, int max,
                       int absent) {
    const json_t *layers = ig_hf_get(r->root, "per_layer_config");
    const char *name;
    json_t *of_layer;
    int n = 0;
    if (!layers) return ig_hf_int(r, r->root, root_key, max, absent);
    if (!json_is_object(layers)) ig_hf_fail_kind(r, "per_layer_config", "an object");
    json_object_foreach((json_t *)(uintptr_t)layers, name, of_layer) {
        int layer = -1, own = ig_hf_int(r, of_layer, key, max, absent);
        if (sscanf(name, "%9d", &layer) != 1 || layer < 0 || layer >= c->n_layers || c->window[layer])
            ig_hf_refuse(r, "per_layer_config", "of a layer with a window, or of none");
        if (n && own != n) ig_hf_refuse(r, key, "not the same in all layers without a window");
        n = own;
    }
    return n ? n : absent;
}

/* The one of 12B, which has no experts and no embeddings of layers. */
static bool is_unified(const ig_config *c) { return strcmp(c->architecture, "gemma4_unified_text") == 0; }

/* The last layer has no window, whatever is stated. */
static void read_layers(ig_hf_reader *r, ig_config *c) {
    ig_hf_read_local_layers(r, c, LOCAL_PATTERN, is_unified(c) ? 1024 : 512, IG_ROPE_LOCAL, IG_ROPE_MAIN);
    c->window[c->n_layers - 1] = 0;
    c->rope.set[c->n_layers - 1] = IG_ROPE_MAIN;
    c->n_layers_sharing = ig_hf_count(r, "num_kv_shared_layers", c->n_layers - 1, 0);
}

static void read_mixture(ig_hf_reader *r, ig_config *c) {
    if (!ig_hf_bool(r, "enable_moe_block", false)) return;
    c->experts.n = ig_hf_int(r, r->root, "num_experts", IG_MAX_EXPERTS, IG_HF_ABSENT);
    c->experts.n_used = ig_hf_int(r, r->root, "top_k_experts", IG_MAX_EXPERTS, IG_HF_ABSENT);
    int width = ig_hf_int(r, r->root, "moe_intermediate_size", IG_MAX_WIDTH, IG_HF_ABSENT);
    if (c->experts.n_used > c->experts.n) ig_hf_fail_kind(r, "top_k_experts", "at most 'num_experts'");
    set_experts(c, width);
}

/* Absent is not null here. */
static void read_inputs(ig_hf_reader *r, ig_config *c) {
    static const char key[] = "hidden_size_per_layer_input";
    bool is_null = json_is_null(json_object_get(r->root, key));
    c->d_layer_input = ig_hf_count(r, key, IG_MAX_WIDTH / c->n_layers, is_null ? 0 : 256);
    if (c->d_layer_input && ig_hf_int(r, r->root, "vocab_size_per_layer_input", IG_MAX_VOCAB, 262144) != c->n_vocab)
        ig_hf_refuse(r, "vocab_size_per_layer_input", "another size than 'vocab_size'");
}

void ig_hf_read_gemma4(ig_hf_reader *r, ig_config *c) {
    static const char gelu[] = "gelu_pytorch_tanh";
    bool is_alike = ig_hf_bool(r, "attention_k_eq_v", false);
    set_family(c);
    c->tied = true;
    c->has_layer_scales = true;
    c->n_kv_heads = 4;
    c->head_dim = 256;
    c->rope.theta = 1000000;
    c->rope.local_theta = 10000;
    read_layers(r, c);
    int head_dim = read_global(r, c, "global_head_dim", "head_dim", IG_KV_DIMS, 512);
    c->rope.n = head_dim;
    ig_hf_read_llama(r, c);
    int local_heads = c->n_kv_heads, local_dim = c->head_dim;
    if (is_alike || ig_hf_get(r->root, "per_layer_config"))
        c->n_kv_heads =
            read_global(r, c, "num_global_key_value_heads", "num_key_value_heads", IG_MAX_HEADS, c->n_kv_heads);
    c->head_dim = head_dim;
    ig_config_set_local_heads(c, c->n_heads, local_heads, local_dim);
    c->are_keys_values = is_alike;
    c->logit_cap = ig_hf_number(r, r->root, "final_logit_softcapping", 0);
    if (c->logit_cap > IG_MAX_SCALE) ig_hf_fail_kind(r, "final_logit_softcapping", "at most 1e6");
    if (!is_unified(c)) read_inputs(r, c);
    if (c->n_layers_sharing && ig_hf_bool(r, "use_double_wide_mlp", false)) {
        if (c->d_ff > IG_MAX_WIDTH / 2) ig_hf_fail_kind(r, "intermediate_size", "half as large");
        set_wide_layers(c, 2 * c->d_ff);
    }
    if (!is_unified(c)) read_mixture(r, c);
    if (c->experts.n && c->n_plain_layers) ig_hf_refuse(r, "enable_moe_block", "true where some layers are wider");
    const char *act = ig_hf_text(r, r->root, "hidden_activation", gelu);
    if (strcmp(act, gelu) != 0) ig_hf_refuse(r, "hidden_activation", act);
    if (ig_hf_bool(r, "attention_bias", false)) ig_hf_refuse(r, "attention_bias", "true");
    const json_t *both_ways = ig_hf_get(r->root, "use_bidirectional_attention"); /* "vision": of pictures */
    if (both_ways && strcmp(ig_hf_text(r, r->root, "use_bidirectional_attention", ""), "vision") != 0)
        ig_hf_refuse(r, "use_bidirectional_attention", "not of pictures alone");
}

/* ---- GGUF ------------------------------------------------------------------------------------- */

/* The widths of layers that share keys and values may be others. */
static void read_widths(ig_section *r, ig_config *c) {
    int of[IG_MAX_LAYERS], n_own = c->n_layers - c->n_layers_sharing;
    ig_section_list(r, "feed_forward_length", IG_MAX_WIDTH, of, c->n_layers);
    c->d_ff = of[0];
    for (int l = 1; l < c->n_layers && !r->status; l++)
        if (of[l] != (l < n_own ? of[0] : of[n_own]))
            r->status = ig_fail(r->err, IG_E_UNSUPPORTED, "%s: key '%s' is %d in layer %d, unlike in those before it",
                                r->path, ig_section_name(r, "feed_forward_length").text, of[l], l);
    if (c->n_layers_sharing && of[n_own] != c->d_ff) set_wide_layers(c, of[n_own]);
}

/* Whether layers without a window lack a matrix of values. */
static bool lacks_values(const ig_section *r, const ig_config *c) {
    char name[64];
    int l = 0;
    while (l < c->n_layers - 1 && c->window[l]) l++;
    snprintf(name, sizeof name, "blk.%d.attn_v.weight", l);
    return !ig_gguf_tensor(r->g, name);
}

void ig_gguf_read_gemma4(ig_section *r, ig_config *c) {
    set_family(c);
    ig_section_read_local_windows(r, c, LOCAL_PATTERN, 10000);
    c->n_layers_sharing = ig_section_count(r, "attention.shared_kv_layers", c->n_layers - 1);
    if (!c->head_dim) c->head_dim = ig_min_int(c->d_model / c->n_heads, IG_KV_DIMS);
    int local_heads, local_dim = ig_section_int(r, "attention.key_length_swa", IG_KV_DIMS, c->head_dim);
    ig_section_read_kinds(r, c, "attention.head_count_kv", IG_MAX_HEADS, &local_heads, &c->n_kv_heads);
    ig_config_set_local_heads(c, c->n_heads, local_heads, local_dim);
    if (ig_section_int(r, "attention.value_length_swa", IG_KV_DIMS, local_dim) != local_dim && !r->status)
        r->status = ig_fail(r->err, IG_E_UNSUPPORTED, "%s: key '%s' is not %d as that of keys", r->path,
                            ig_section_name(r, "attention.value_length_swa").text, local_dim);
    if (ig_section_int(r, "rope.dimension_count_swa", IG_KV_DIMS, local_dim) != local_dim && !r->status)
        r->status = ig_fail(r->err, IG_E_UNSUPPORTED, "%s: key '%s' is not %d, the heads' width", r->path,
                            ig_section_name(r, "rope.dimension_count_swa").text, local_dim);
    c->are_keys_values = lacks_values(r, c);
    c->logit_cap = ig_section_scale(r, "final_logit_softcapping", 0);
    c->d_layer_input = ig_section_count(r, "embedding_length_per_layer_input", IG_MAX_WIDTH / c->n_layers);
    c->has_layer_scales = ig_gguf_tensor(r->g, "blk.0.layer_output_scale.weight") != NULL;
    read_widths(r, c);
    if (ig_gguf_tensor(r->g, "blk.0.ffn_gate_inp.weight"))
        ig_section_read_experts(r, c); /* keys may be left of others */
    if (c->experts.n && c->n_plain_layers && !r->status)
        r->status = ig_fail(r->err, IG_E_UNSUPPORTED, "%s: experts, and layers that are wider than others", r->path);
    if (c->experts.n) set_experts(c, ig_section_int(r, "expert_feed_forward_length", IG_MAX_WIDTH, -1));
}
