/* SPDX-License-Identifier: Apache-2.0
 *
 * Families with mixtures of experts whose layers all attend, from a Hugging Face config.json.
 */
#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "base/error.h"
#include "model/config_hf.h"

/* So many experts for all tokens are one that is as wide as they are together. */
static void read_shared(ig_hf_reader *r, ig_config *c, const char *key, int absent) {
    c->experts.d_shared = c->d_ff * ig_hf_count(r, key, IG_MAX_WIDTH / c->d_ff, absent);
}

/* No checkpoint of most families chooses among groups of experts. */
static void refuse_groups(ig_hf_reader *r) {
    if (ig_hf_count(r, "n_group", IG_MAX_EXPERTS, 1) > 1) ig_hf_refuse(r, "n_group", "above 1");
}

/* Layers before the first that has experts have none; those behind the last would be a family of their own. */
void ig_hf_read_ernie4_5_moe(ig_hf_reader *r, ig_config *c) {
    c->norms.eps = 1e-5f;
    c->n_kv_heads = 4;
    c->tied = true;
    c->rope.theta = 500000;
    ig_hf_read_llama(r, c);
    c->rope.kind = IG_ROPE_ADJACENT;
    ig_config_set_plain_layers(c, ig_hf_count(r, "moe_layer_start_index", c->n_layers - 1, 1));
    c->experts.n = ig_hf_int(r, r->root, "moe_num_experts", IG_MAX_EXPERTS, 64);
    c->experts.n_used = ig_hf_int(r, r->root, "moe_k", c->experts.n, ig_min_int(6, c->experts.n));
    c->d_ff = ig_hf_int(r, r->root, "moe_intermediate_size", IG_MAX_WIDTH, IG_HF_ABSENT);
    read_shared(r, c, "moe_num_shared_experts", 2);
    c->experts.routing = IG_ROUTING_SOFTMAX_FIRST;
    if (ig_hf_int(r, r->root, "moe_layer_interval", IG_MAX_LAYERS, 1) != 1)
        ig_hf_refuse(r, "moe_layer_interval", "above 1");
    const json_t *last = ig_hf_get(r->root, "moe_layer_end_index");
    if (last && json_integer_value(last) != -1 && json_integer_value(last) < c->n_layers - 1)
        ig_hf_refuse(r, "moe_layer_end_index", "before the last layer");
}

/* The width is an expert's. */
void ig_hf_read_experts(ig_hf_reader *r, ig_config *c, const char *width, int n_used) {
    static const char *const names[] = {"num_experts", "n_routed_experts", "num_local_experts"};
    size_t at = 0;
    while (at + 1 < IG_COUNT(names) && !ig_hf_get(r->root, names[at])) at++;
    const char *number = names[at];
    c->experts.n = ig_hf_int(r, r->root, number, IG_MAX_EXPERTS, IG_HF_ABSENT);
    c->experts.n_used = ig_hf_int(r, r->root, "num_experts_per_tok", IG_MAX_EXPERTS, n_used);
    c->d_ff = ig_hf_int(r, r->root, width, IG_MAX_WIDTH, IG_HF_ABSENT);
    if (c->experts.n_used > c->experts.n) ig_hf_fail_kind(r, "num_experts_per_tok", "at most the number of experts");
}

void ig_hf_read_mixtral(ig_hf_reader *r, ig_config *c) {
    c->norms.eps = 1e-5f;
    c->n_kv_heads = 8;
    c->rope.theta = 1000000;
    ig_hf_read_llama(r, c);
    ig_hf_read_windows(r, c, ig_hf_int(r, r->root, "sliding_window", IG_MAX_CTX, 0), 0);
    ig_hf_read_experts(r, c, "intermediate_size", 2);
}

void ig_hf_read_olmoe(ig_hf_reader *r, ig_config *c) {
    c->norms.of_heads = IG_HEAD_NORM_ALL;
    c->norms.eps = 1e-5f;
    ig_hf_read_llama(r, c);
    ig_hf_read_experts(r, c, "intermediate_size", 8);
    c->experts.is_share_of_all = !ig_hf_bool(r, "norm_topk_prob", false);
}

/* Which layers have experts can be stated; in all published models all have. */
void ig_hf_read_qwen_experts(ig_hf_reader *r, ig_config *c, int n_used, bool is_normed) {
    const json_t *plain = ig_hf_get(r->root, "mlp_only_layers");
    ig_hf_read_experts(r, c, "moe_intermediate_size", n_used);
    c->experts.is_share_of_all = !ig_hf_bool(r, "norm_topk_prob", is_normed);
    if (ig_hf_int(r, r->root, "decoder_sparse_step", IG_MAX_LAYERS, 1) != 1)
        ig_hf_refuse(r, "decoder_sparse_step", "above 1");
    if (plain && (!json_is_array(plain) || json_array_size(plain)))
        ig_hf_refuse(r, "mlp_only_layers", "a list of layers");
}

void ig_hf_read_qwen2_moe(ig_hf_reader *r, ig_config *c) {
    c->n_kv_heads = 16;
    ig_hf_read_qwen2(r, c);
    ig_hf_read_qwen_experts(r, c, 4, false);
    c->experts.d_shared = ig_hf_int(r, r->root, "shared_expert_intermediate_size", IG_MAX_WIDTH, 5632);
    c->experts.is_shared_gated = true;
}

void ig_hf_read_qwen3_moe(ig_hf_reader *r, ig_config *c) {
    ig_hf_read_qwen3(r, c);
    ig_hf_read_qwen_experts(r, c, 8, false);
}

/* Chosen by sigmoids, beside n_shared for all tokens. */
static void read_sigmoid_experts(ig_hf_reader *r, ig_config *c, int n_used, int n_shared) {
    ig_hf_read_experts(r, c, "moe_intermediate_size", n_used);
    read_shared(r, c, "num_shared_experts", n_shared);
    c->experts.routing = IG_ROUTING_SIGMOID;
}

/* Trinity. Layers without a window do not rotate. */
void ig_hf_read_afmoe(ig_hf_reader *r, ig_config *c) {
    c->norms.order = IG_NORMS_AROUND;
    c->norms.eps = 1e-5f;
    c->norms.of_heads = IG_HEAD_NORM_EACH;
    c->head_dim = 128;
    c->has_attn_gate = true;
    ig_hf_read_llama(r, c);
    if (ig_hf_bool(r, "mup_enabled", false)) c->embed_scale = sqrt((double)c->d_model);
    ig_hf_read_local_layers(r, c, ig_hf_int(r, r->root, "global_attn_every_n_layers", IG_MAX_LAYERS, 4), IG_HF_WINDOW,
                            IG_ROPE_MAIN, IG_ROPE_LEFT_OUT);
    ig_config_set_plain_layers(c, ig_hf_count(r, "num_dense_layers", c->n_layers - 1, 1));
    read_sigmoid_experts(r, c, 6, 2);
    c->experts.is_share_of_all = !ig_hf_bool(r, "route_norm", true);
    c->experts.scale = ig_hf_scale(r, "route_scale", 1);
    refuse_groups(r);
}

/* How many of the first layers have no experts, if each layer is stated. */
static int read_n_plain(ig_hf_reader *r, const ig_config *c, int absent) {
    const json_t *kinds = ig_hf_get(r->root, "mlp_layer_types");
    int n_plain = absent;
    if (kinds && json_array_size(kinds) < (size_t)c->n_layers)
        ig_hf_fail_kind(r, "mlp_layer_types", "a list with one item per layer");
    for (int l = 0, is_dense = 1; kinds && l < c->n_layers && !r->status; l++) {
        const char *kind = json_string_value(json_array_get(kinds, (size_t)l));
        bool goes_on = is_dense && kind && strcmp(kind, "dense") == 0;
        if (!goes_on && (!kind || strcmp(kind, "sparse") != 0)) ig_hf_refuse(r, "mlp_layer_types", kind ? kind : "?");
        if (is_dense && !goes_on) n_plain = l;
        is_dense = goes_on;
    }
    return n_plain;
}

/* Heads of queries of layers with a window, of which all have as many, as have the others. */
static int read_local_heads(ig_hf_reader *r, ig_config *c) {
    static const char key[] = "num_attention_heads_per_layer";
    const json_t *list = ig_hf_get(r->root, key);
    int of[2] = {0, 0};
    if (!list) return c->n_heads;
    if (json_array_size(list) != (size_t)c->n_layers) ig_hf_fail_kind(r, key, "a list with one item per layer");
    for (int l = 0; l < c->n_layers && !r->status; l++) {
        int *n = &of[c->window[l] > 0];
        json_int_t stated = json_integer_value(json_array_get(list, (size_t)l));
        if (stated < 1 || stated > IG_MAX_HEADS || (*n && stated != *n))
            ig_hf_refuse(r, key, "other than one number for layers with a window, and one for the others");
        *n = (int)stated;
    }
    if (of[0]) c->n_heads = of[0];
    return of[1] ? of[1] : c->n_heads;
}

/* One gate for each head, or one for each number. */
static bool read_gate_kind(ig_hf_reader *r) {
    const json_t *kind = ig_hf_get(r->root, "gating");
    const char *name = kind && json_is_string(kind) ? json_string_value(kind) : "per-head";
    if (kind && !json_is_true(kind) && !json_is_string(kind)) ig_hf_refuse(r, "gating", "neither true nor a kind");
    if (strcmp(name, "per-head") != 0 && strcmp(name, "per-element") != 0) ig_hf_refuse(r, "gating", name);
    return strcmp(name, "per-head") == 0;
}

/* Laguna. Layers with a window have other heads of queries than the others, and other rules for what rotates. */
void ig_hf_read_laguna(ig_hf_reader *r, ig_config *c) {
    const json_t *rope = ig_hf_get(r->root, "rope_parameters");
    int dim = ig_hf_int(r, r->root, "head_dim", IG_KV_DIMS, 128);
    c->norms.of_heads = IG_HEAD_NORM_EACH;
    c->head_dim = dim;
    c->n_kv_heads = 8;
    c->rope.theta = 500000;
    c->rope.local_theta = 10000;
    c->rope.n = ig_hf_n_rot(r, ig_hf_get(rope, "full_attention"), dim, rope ? 1 : 0.5);
    c->rope.local_n = ig_hf_n_rot(r, ig_hf_get(rope, "sliding_attention"), dim, 1);
    ig_hf_read_llama(r, c);
    c->has_attn_gate = c->is_gate_softplus = true;
    c->is_gate_of_heads = read_gate_kind(r);
    ig_hf_read_windows(r, c, ig_hf_int(r, r->root, "sliding_window", IG_MAX_CTX, 512), c->n_layers);
    for (int l = 0; l < c->n_layers; l++) c->rope.set[l] = c->window[l] ? IG_ROPE_LOCAL : IG_ROPE_MAIN;
    ig_config_set_local_heads(c, read_local_heads(r, c), c->n_kv_heads, dim);
    ig_config_set_plain_layers(c, read_n_plain(r, c, 1));
    ig_hf_read_experts(r, c, "moe_intermediate_size", 8);
    c->experts.d_shared = ig_hf_int(r, r->root, "shared_expert_intermediate_size", IG_MAX_WIDTH, 512);
    c->experts.routing = IG_ROUTING_SIGMOID;
    c->experts.scale = ig_hf_scale(r, "moe_routed_scaling_factor", 1);
    if (json_number_value(ig_hf_get(r->root, "moe_router_logit_softcapping")) != 0)
        ig_hf_refuse(r, "moe_router_logit_softcapping", "other than 0");
    if (ig_hf_bool(r, "moe_apply_router_weight_on_input", false))
        ig_hf_refuse(r, "moe_apply_router_weight_on_input", "true");
}

/* K-EXAONE. */
void ig_hf_read_exaone_moe(ig_hf_reader *r, ig_config *c) {
    c->norms.eps = 1e-5f;
    c->norms.of_heads = IG_HEAD_NORM_EACH;
    ig_hf_read_llama(r, c);
    ig_hf_read_turning_layers(r, c);
    ig_config_set_plain_layers(c, read_n_plain(r, c, ig_hf_count(r, "first_k_dense_replace", c->n_layers - 1, 1)));
    c->file.n_layers_left_out = ig_hf_count(r, "num_nextn_predict_layers", IG_MAX_LAYERS, 0);
    read_sigmoid_experts(r, c, 8, 1);
    c->experts.is_share_of_all = !ig_hf_bool(r, "norm_topk_prob", true);
    c->experts.scale = ig_hf_scale(r, "routed_scaling_factor", 2.5);
    refuse_groups(r);
}

/* One number, or the same for each layer. */
static int read_of_layers(ig_hf_reader *r, const ig_config *c, const char *key, int max) {
    const json_t *list = ig_hf_get(r->root, key);
    if (!json_is_array(list)) return ig_hf_int(r, r->root, key, max, 1);
    json_int_t n = json_integer_value(json_array_get(list, 0));
    bool is_same = json_array_size(list) >= (size_t)c->n_layers && n >= 1 && n <= max;
    for (size_t l = 0; l < json_array_size(list); l++)
        is_same = is_same && json_integer_value(json_array_get(list, l)) == n;
    if (!is_same) ig_hf_fail_kind(r, key, "one number for all layers");
    return is_same ? (int)n : 1;
}

/* Hunyuan-A13B. What it states of the widths of experts is the width of all. */
void ig_hf_read_hunyuan_moe(ig_hf_reader *r, ig_config *c) {
    ig_hf_read_hunyuan(r, c);
    c->experts.n = read_of_layers(r, c, "num_experts", IG_MAX_EXPERTS);
    c->experts.n_used = read_of_layers(r, c, "moe_topk", IG_MAX_EXPERTS);
    c->experts.d_shared = c->d_ff;
    if (c->experts.n_used > c->experts.n) ig_hf_fail_kind(r, "moe_topk", "at most the number of experts");
}

/* Hunyuan 3. */
void ig_hf_read_hy_v3(ig_hf_reader *r, ig_config *c) {
    c->norms.eps = 1e-5f;
    c->n_kv_heads = 8;
    c->head_dim = 128;
    c->norms.of_heads = IG_HEAD_NORM_EACH;
    ig_hf_read_llama(r, c);
    ig_config_set_plain_layers(c, read_n_plain(r, c, 1));
    c->file.n_layers_left_out = ig_hf_count(r, "num_nextn_predict_layers", IG_MAX_LAYERS, 0);
    read_sigmoid_experts(r, c, 8, 1);
    c->experts.scale = ig_hf_scale(r, "router_scaling_factor", 2.826);
}

void ig_hf_read_mellum(ig_hf_reader *r, ig_config *c) {
    const json_t *kinds = ig_hf_get(r->root, "mlp_layer_types");
    c->n_kv_heads = 4;
    c->head_dim = 128;
    c->norms.of_heads = IG_HEAD_NORM_EACH;
    c->rope.theta = 500000;
    c->rope.local_theta = 10000;
    ig_hf_read_llama(r, c);
    if (ig_hf_get(r->root, "layer_types")) ig_hf_read_local_layers(r, c, 1, IG_HF_WINDOW, IG_ROPE_LOCAL, IG_ROPE_MAIN);
    ig_hf_read_experts(r, c, "moe_intermediate_size", 8);
    c->experts.is_share_of_all = !ig_hf_bool(r, "norm_topk_prob", true);
    for (size_t l = 0; l < json_array_size(kinds); l++) {
        const char *kind = json_string_value(json_array_get(kinds, l));
        if (!kind || strcmp(kind, "sparse") != 0) ig_hf_refuse(r, "mlp_layer_types", kind ? kind : "?");
    }
}

void ig_hf_read_qwen3_vl_moe(ig_hf_reader *r, ig_config *c) {
    ig_hf_read_qwen3_moe(r, c);
    c->experts.is_share_of_all = false; /* whatever is stated */
    c->file.expert_order = IG_EXPERTS_BY_COLUMNS;
}

/* Of IG_SWIGLU_OAI. */
static void check_swiglu(ig_hf_reader *r) {
    if (ig_hf_number(r, r->root, "swiglu_limit", 7) != 7) ig_hf_refuse(r, "swiglu_limit", "not 7");
    if (ig_hf_number(r, r->root, "swiglu_alpha", 1.702) != 1.702) ig_hf_refuse(r, "swiglu_alpha", "not 1.702");
}

/* Every other layer has a window, from the first on. Where experts' matrices are quantised they lie by rows. */
void ig_hf_read_gpt_oss(ig_hf_reader *r, ig_config *c) {
    c->file.expert_order = IG_EXPERTS_BY_MIXED_COLUMNS;
    c->activation = IG_SWIGLU_OAI;
    c->has_sink_scores = true;
    c->n_kv_heads = 8;
    c->head_dim = 64;
    c->norms.eps = 1e-5f;
    c->rope.theta = 150000;
    ig_hf_read_llama(r, c);
    ig_hf_read_local_layers(r, c, 2, 128, IG_ROPE_MAIN, IG_ROPE_MAIN);
    ig_hf_read_experts(r, c, "intermediate_size", 4);
    check_swiglu(r);
}

/* Layers that rotate attend to their chunk alone, unless stated otherwise, and every so many have experts, if any do.
 * Early files state the growth of queries as a number. */
void ig_hf_read_llama4(ig_hf_reader *r, ig_config *c) {
    const json_t *layers = ig_hf_get(r->root, "moe_layers"), *growth = ig_hf_get(r->root, "attn_temperature_tuning"),
                 *experts = ig_hf_get(r->root, "num_local_experts");
    bool has_none = (layers && json_array_size(layers) == 0) || (experts && json_number_value(experts) == 0);
    if (layers && !json_is_array(layers)) ig_hf_fail_kind(r, "moe_layers", "a list of layers");
    c->norms.eps = 1e-5f;
    if (!json_is_null(json_object_get(r->root, "num_key_value_heads"))) c->n_kv_heads = 8; /* null: as many as heads */
    if (!json_is_null(json_object_get(r->root, "head_dim"))) c->head_dim = 128; /* and what is left of each */
    c->rope.theta = 500000;
    ig_hf_read_llama(r, c);
    c->d_ff = ig_hf_int(r, r->root, "intermediate_size_mlp", IG_MAX_WIDTH, 16384);
    c->rope.kind = IG_ROPE_ADJACENT;
    ig_hf_read_chunks(r, c);
    if (!growth || json_is_true(growth) || json_number_value(growth) > 0) {
        c->rope.query_growth = ig_hf_scale(r, "attn_scale", 0.1);
        c->rope.growth_length = ig_hf_int(r, r->root, "floor_scale", IG_MAX_CTX, IG_LLAMA4_CHUNK);
        c->rope.grows_unrotated = true;
    }
    if (ig_hf_bool(r, "use_qk_norm", true)) {
        c->norms.of_heads = IG_HEAD_NORM_EACH;
        c->norms.of_heads_are_plain = c->norms.follow_rope = c->norms.are_of_rotated = true;
    }
    if (has_none) return;
    c->experts.step = ig_hf_int(r, r->root, "interleave_moe_layer_step", IG_MAX_LAYERS, 1);
    for (size_t i = 0, n = json_array_size(layers); layers && i <= n && !r->status; i++) {
        json_int_t wanted = ((json_int_t)i + 1) * c->experts.step - 1; /* behind the last one there is no layer */
        if (i < n ? json_integer_value(json_array_get(layers, i)) != wanted : wanted < c->n_layers)
            ig_hf_refuse(r, "moe_layers", "others than every so many layers");
    }
    c->d_ff_plain = c->d_ff;
    ig_hf_read_experts(r, c, "intermediate_size", 1);
    c->experts.d_shared = c->d_ff;
    c->experts.routing = IG_ROUTING_SIGMOID_LAST;
    c->experts.are_inputs_shared = true;
    c->file.expert_order = IG_EXPERTS_BY_COLUMNS;
}

void ig_hf_read_granitemoe(ig_hf_reader *r, ig_config *c) {
    ig_hf_read_granite(r, c);
    ig_hf_read_experts(r, c, "intermediate_size", 2);
}

/* Their width, and how much of it RoPE turns: share of it, where the file does not say. */
static void read_minimax_heads(ig_hf_reader *r, ig_config *c, double share) {
    c->head_dim = 128;
    c->rope.theta = 5000000;
    int head_dim = ig_hf_int(r, r->root, "head_dim", IG_KV_DIMS, c->head_dim);
    c->rope.n = ig_hf_int(r, r->root, "rotary_dim", head_dim, ig_hf_read_n_rot(r, head_dim, share));
}

void ig_hf_read_minimax_m2(ig_hf_reader *r, ig_config *c) {
    c->norms.of_heads = IG_HEAD_NORM_ALL;
    c->n_kv_heads = 8;
    read_minimax_heads(r, c, 1);
    ig_hf_read_llama(r, c);
    ig_hf_read_experts(r, c, "intermediate_size", 8);
    c->experts.routing = IG_ROUTING_SIGMOID;
}

/* Which layers have an indexer, as a list of ones and zeros says, or of kinds; the others use everything. */
static void read_indexed_layers(ig_hf_reader *r, ig_config *c, const json_t *own) {
    const json_t *kinds = ig_hf_get(r->root, "layer_types"), *flags = ig_hf_get(own, "sparse_attention_freq");
    const json_t *list = kinds ? kinds : flags;
    const char *key = kinds ? "layer_types" : "sparse_attention_freq";
    if (list && json_array_size(list) < (size_t)c->n_layers) ig_hf_fail_kind(r, key, "a list with one item per layer");
    for (int l = 0; l < c->n_layers && !r->status; l++) {
        const json_t *item = json_array_get(list, (size_t)l);
        const char *kind = json_string_value(item);
        bool is_indexed = kinds ? kind && strcmp(kind, "minimax_m3_sparse") == 0 : json_integer_value(item) != 0;
        if (kinds && !is_indexed && (!kind || strcmp(kind, "full_attention") != 0))
            ig_hf_refuse(r, key, kind ? kind : "?");
        c->index_layer[l] = is_indexed ? (uint16_t)l : IG_NO_INDEX;
    }
}

/* A number of the indexer, which files state apart under other names. */
static int read_of_index(ig_hf_reader *r, const json_t *own, const char *key, const char *inner, int max, int absent) {
    return ig_hf_get(own, inner) ? ig_hf_int(r, own, inner, max, absent) : ig_hf_int(r, r->root, key, max, absent);
}

/* How many of the first layers have no experts. */
static int read_n_plain_of_m3(ig_hf_reader *r, const ig_config *c) {
    const json_t *flags = ig_hf_get(r->root, "moe_layer_freq");
    int n = 0;
    if (ig_hf_get(r->root, "mlp_layer_types") || !json_is_array(flags)) return read_n_plain(r, c, 0);
    while (n < c->n_layers && json_integer_value(json_array_get(flags, (size_t)n)) == 0) n++;
    for (int l = n; l < c->n_layers && !r->status; l++)
        if (json_integer_value(json_array_get(flags, (size_t)l)) == 0)
            ig_hf_refuse(r, "moe_layer_freq", "0 behind a layer with experts");
    return n;
}

void ig_hf_read_minimax_m3(ig_hf_reader *r, ig_config *c) {
    const json_t *own = ig_hf_get(r->root, "sparse_attention_config");
    c->norms.eps = 1e-6f;
    c->norms.offset = 1;
    c->norms.of_heads = IG_HEAD_NORM_EACH;
    c->activation = IG_SWIGLU_OAI;
    c->n_kv_heads = 4;
    read_minimax_heads(r, c, 0.5);
    ig_hf_read_llama(r, c);
    int n_plain = read_n_plain_of_m3(r, c);
    c->d_ff = ig_hf_int(r, r->root, "dense_intermediate_size", IG_MAX_WIDTH, 12288);
    ig_config_set_plain_layers(c, n_plain);
    ig_hf_read_experts(r, c, "intermediate_size", 4);
    c->experts.d_shared = ig_hf_int(r, r->root, "shared_intermediate_size", IG_MAX_WIDTH, 3072);
    c->experts.routing = IG_ROUTING_SIGMOID;
    c->experts.scale = ig_hf_scale(r, "routed_scaling_factor", 2);
    check_swiglu(r);
    int block = read_of_index(r, own, "index_block_size", "sparse_block_size", IG_MAX_CTX, 128);
    c->index = (ig_index_shape){
        .n_heads = read_of_index(r, own, "index_n_heads", "sparse_num_index_heads", IG_INDEX_HEADS, 4),
        .dim = read_of_index(r, own, "index_head_dim", "sparse_index_dim", IG_INDEX_DIMS, 128),
        .block = block,
        .n_chosen = block * read_of_index(r, own, "index_topk_blocks", "sparse_topk_blocks", IG_MAX_CTX / block, 16),
        .n_local = read_of_index(r, own, "index_local_blocks", "sparse_local_block", IG_MAX_CTX, 1)};
    read_indexed_layers(r, c, own);
}

void ig_hf_read_later_experts(ig_hf_reader *r, ig_config *c, int n_plain, bool is_normed) {
    ig_config_set_plain_layers(c, ig_hf_count(r, "first_k_dense_replace", c->n_layers - 1, n_plain));
    c->file.n_layers_left_out = ig_hf_count(r, "num_nextn_predict_layers", IG_MAX_LAYERS, 0);
    ig_hf_read_experts(r, c, "moe_intermediate_size", 8);
    read_shared(r, c, "n_shared_experts", 1);
    c->experts.routing = IG_ROUTING_SIGMOID;
    c->experts.is_share_of_all = !ig_hf_bool(r, "norm_topk_prob", is_normed);
    c->experts.scale = ig_hf_scale(r, "routed_scaling_factor", 1);
}

static void read_later_experts(ig_hf_reader *r, ig_config *c, int n_plain, bool is_normed) {
    ig_hf_read_later_experts(r, c, n_plain, is_normed);
    refuse_groups(r);
}

/* GLM 4.5 to 4.7. */
void ig_hf_read_glm4_moe(ig_hf_reader *r, ig_config *c) {
    c->norms.eps = 1e-5f;
    c->n_kv_heads = 8;
    c->norms.of_heads = ig_hf_bool(r, "use_qk_norm", false) ? IG_HEAD_NORM_EACH : IG_HEAD_NORM_NONE;
    int head_dim = ig_hf_int(r, r->root, "head_dim", IG_KV_DIMS, c->d_model / c->n_heads);
    c->rope.n = ig_hf_read_n_rot(r, head_dim, 0.5);
    ig_hf_read_llama(r, c);
    read_later_experts(r, c, 1, true);
}

void ig_hf_read_dots1(ig_hf_reader *r, ig_config *c) {
    c->norms.of_heads = IG_HEAD_NORM_EACH;
    ig_hf_read_llama(r, c);
    read_later_experts(r, c, 0, false);
    if (ig_hf_get(r->root, "layer_types"))
        ig_hf_read_windows(r, c, ig_hf_int(r, r->root, "sliding_window", IG_MAX_CTX, 4096), 0);
}

void ig_hf_read_solar_open(ig_hf_reader *r, ig_config *c) {
    c->norms.eps = 1e-5f;
    c->n_kv_heads = 8;
    c->head_dim = 128;
    c->rope.theta = 1000000;
    c->d_ff = ig_hf_int(r, r->root, "moe_intermediate_size", IG_MAX_WIDTH, IG_HF_ABSENT); /* all layers have experts */
    ig_hf_read_llama(r, c);
    read_later_experts(r, c, 0, true);
}

/* North. The first layers have none, and rotate in any case. What experts give is averaged with
 * what one for all tokens does. */
void ig_hf_read_cohere2_moe(ig_hf_reader *r, ig_config *c) {
    int first = ig_hf_count(r, "first_k_dense_replace", c->n_layers - 1, 0);
    c->head_dim = 128;
    ig_hf_read_cohere2(r, c);
    if (!ig_hf_get(r->root, "layer_types")) ig_hf_fail_kind(r, "layer_types", "a list with one item per layer");
    if (ig_hf_get(r->root, "rms_norm_eps")) c->norms.kind = IG_NORM_RMS;
    int n_plain = read_n_plain(r, c, first);
    if (n_plain) ig_hf_size(r, &c->d_ff, "prefix_dense_intermediate_size", IG_MAX_WIDTH);
    ig_config_set_plain_layers(c, n_plain);
    bool rotate = ig_hf_int(r, r->root, "prefix_dense_sliding_window_pattern", IG_MAX_LAYERS, 1) == 1;
    for (int l = 0; l < n_plain && rotate; l++) c->rope.set[l] = IG_ROPE_MAIN;
    c->file.n_layers_left_out = ig_hf_count(r, "num_nextn_predict_layers", IG_MAX_LAYERS, 0);
    ig_hf_read_experts(r, c, "intermediate_size", 2);
    read_shared(r, c, "num_shared_experts", 0);
    const char *how = ig_hf_text(r, r->root, "shared_expert_combination_strategy", "average");
    if (c->experts.d_shared && strcmp(how, "average") == 0)
        c->experts.scale = c->experts.shared_scale = 0.5;
    else if (strcmp(how, "average") != 0 && strcmp(how, "sum") != 0)
        ig_hf_refuse(r, "shared_expert_combination_strategy", how);
    const char *scores = ig_hf_text(r, r->root, "expert_selection_fn", "softmax");
    if (strcmp(scores, "sigmoid") == 0) {
        c->experts.routing = IG_ROUTING_SIGMOID;
        c->experts.is_share_of_all = !ig_hf_bool(r, "norm_topk_prob", true);
    } else if (strcmp(scores, "softmax") != 0) {
        ig_hf_refuse(r, "expert_selection_fn", scores);
    }
}
