/* SPDX-License-Identifier: Apache-2.0
 *
 * What families have of their own in a config.json, with the defaults of the published model classes.
 */
#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "base/error.h"
#include "model/config_hf.h"

enum { OPT_POSITION_OFFSET = 2 };

/* ---- windows ----------------------------------------------------------- */

/* Null means none. */
static int read_window_or(ig_hf_reader *r, int absent) {
    bool is_null = json_is_null(json_object_get(r->root, "sliding_window"));
    return ig_hf_int(r, r->root, "sliding_window", IG_MAX_CTX, is_null ? 0 : absent);
}

/* The default of most classes. */
static int read_window(ig_hf_reader *r) { return read_window_or(r, 4096); }

/* Of the layers that "layer_types" names, if stated, else of those from number `from` on. */
static void read_windows(ig_hf_reader *r, ig_config *c, int window, json_int_t from) {
    const json_t *types = ig_hf_get(r->root, "layer_types");
    if (types && (!json_is_array(types) || json_array_size(types) != (size_t)c->n_layers))
        ig_hf_fail_kind(r, "layer_types", "a list with one item per layer");
    for (int l = 0; l < c->n_layers && !r->status; l++) {
        bool is_sliding = l >= from;
        if (types) {
            const char *type = json_string_value(json_array_get(types, (size_t)l));
            is_sliding = type && strcmp(type, "sliding_attention") == 0;
            if (!is_sliding && !(type && strcmp(type, "full_attention") == 0))
                ig_hf_refuse(r, "layer_types", type ? type : "?");
        }
        c->window[l] = is_sliding ? window : 0;
    }
}

void ig_hf_read_local_layers(ig_hf_reader *r, ig_config *c, int pattern, int absent, ig_rope_set local,
                             ig_rope_set other) {
    int window = read_window_or(r, absent);
    read_windows(r, c, window, 0);
    for (int l = 0; l < c->n_layers && window; l++) {
        if (!ig_hf_get(r->root, "layer_types") && (l + 1) % pattern == 0) c->window[l] = 0;
        c->rope_set[l] = (unsigned char)(c->window[l] ? local : other);
    }
}

static void read_local_layers(ig_hf_reader *r, ig_config *c, int pattern, ig_rope_set local, ig_rope_set other) {
    ig_hf_read_local_layers(r, c, pattern, 4096, local, other);
}

/* Qwen: the layers from "max_window_layers" on. */
static void read_qwen_windows(ig_hf_reader *r, ig_config *c) {
    int window = ig_hf_bool(r, "use_sliding_window", false) ? read_window(r) : 0;
    const json_t *first = ig_hf_get(r->root, "max_window_layers");
    if (first && !json_is_integer(first)) ig_hf_fail_kind(r, "max_window_layers", "an integer");
    read_windows(r, c, window, first ? json_integer_value(first) : 28);
}

/* ---- families ---------------------------------------------------------- */

/* Fields that are absent are as c has them, if it does: other families have other defaults. */
void ig_hf_read_llama(ig_hf_reader *r, ig_config *c) {
    c->n_kv_heads = ig_hf_int(r, r->root, "num_key_value_heads", IG_MAX_HEADS, c->n_kv_heads);
    c->head_dim = ig_hf_int(r, r->root, "head_dim", IG_KV_DIMS, c->head_dim);
    ig_hf_size(r, &c->d_ff, "intermediate_size", IG_MAX_WIDTH);
    c->norm = IG_NORM_RMS;
    c->norm_eps = (float)ig_hf_number(r, r->root, "rms_norm_eps", c->norm_eps > 0 ? (double)c->norm_eps : 1e-6);
    c->tied = ig_hf_bool(r, "tie_word_embeddings", c->tied);
    const char *act = ig_hf_text(r, r->root, "hidden_act", "silu");
    if (c->activation == IG_SILU_GATED && strcmp(act, "silu") != 0 && strcmp(act, "swish") != 0)
        ig_hf_refuse(r, "hidden_act", act);
    ig_hf_rope(r, c);
}

/* So many experts for all tokens are one that is as wide as they are together. */
static void read_shared(ig_hf_reader *r, ig_config *c, const char *key, int absent) {
    c->d_ff_shared = c->d_ff * ig_hf_count(r, key, IG_MAX_WIDTH / c->d_ff, absent);
}

/* No checkpoint of most families chooses among groups of experts. */
static void refuse_groups(ig_hf_reader *r) {
    if (ig_hf_count(r, "n_group", IG_MAX_EXPERTS, 1) > 1) ig_hf_refuse(r, "n_group", "above 1");
}

static void read_mistral(ig_hf_reader *r, ig_config *c) {
    ig_hf_read_llama(r, c);
    read_windows(r, c, read_window(r), 0);
}

/* The files state how scores of a text longer than the one that was trained with are kept apart. */
static void read_ministral3(ig_hf_reader *r, ig_config *c) {
    const json_t *rope = ig_hf_get(r->root, "rope_parameters");
    c->norm_eps = 1e-5f;
    c->n_kv_heads = 8;
    c->head_dim = 128;
    ig_hf_read_llama(r, c);
    read_windows(r, c, ig_hf_int(r, r->root, "sliding_window", IG_MAX_CTX, 0), 0);
    c->query_growth = ig_hf_number(r, rope, "llama_4_scaling_beta", IG_HF_ABSENT);
    c->rope_original_ctx = ig_hf_int(r, rope, "original_max_position_embeddings", IG_MAX_CTX, IG_HF_ABSENT);
    if (c->query_growth > IG_MAX_GAIN) ig_hf_fail_kind(r, "llama_4_scaling_beta", "at most 100");
}

static void read_qwen2(ig_hf_reader *r, ig_config *c) {
    ig_hf_read_llama(r, c);
    read_qwen_windows(r, c);
}

static void read_qwen3(ig_hf_reader *r, ig_config *c) {
    c->head_norm = IG_HEAD_NORM_EACH;
    c->head_dim = 128;
    read_qwen2(r, c);
}

static void read_seed_oss(ig_hf_reader *r, ig_config *c) {
    c->n_kv_heads = 8;
    c->head_dim = 128;
    ig_hf_read_llama(r, c);
}

static void read_ernie4_5(ig_hf_reader *r, ig_config *c) {
    c->norm_eps = 1e-5f;
    c->n_kv_heads = 2;
    c->head_dim = 128;
    c->tied = true;
    c->rope_theta = 500000;
    ig_hf_read_llama(r, c);
    c->rope = IG_ROPE_ADJACENT;
}

/* Layers before the first that has experts have none; those behind the last would be a family of their own. */
static void read_ernie4_5_moe(ig_hf_reader *r, ig_config *c) {
    c->norm_eps = 1e-5f;
    c->n_kv_heads = 4;
    c->tied = true;
    c->rope_theta = 500000;
    ig_hf_read_llama(r, c);
    c->rope = IG_ROPE_ADJACENT;
    ig_config_set_plain_layers(c, ig_hf_count(r, "moe_layer_start_index", c->n_layers - 1, 1));
    c->n_experts = ig_hf_int(r, r->root, "moe_num_experts", IG_MAX_EXPERTS, 64);
    c->n_experts_used = ig_hf_int(r, r->root, "moe_k", c->n_experts, ig_min_int(6, c->n_experts));
    c->d_ff = ig_hf_int(r, r->root, "moe_intermediate_size", IG_MAX_WIDTH, IG_HF_ABSENT);
    read_shared(r, c, "moe_num_shared_experts", 2);
    c->routing = IG_ROUTING_SOFTMAX_FIRST;
    if (ig_hf_int(r, r->root, "moe_layer_interval", IG_MAX_LAYERS, 1) != 1)
        ig_hf_refuse(r, "moe_layer_interval", "above 1");
    const json_t *last = ig_hf_get(r->root, "moe_layer_end_index");
    if (last && json_integer_value(last) != -1 && json_integer_value(last) < c->n_layers - 1)
        ig_hf_refuse(r, "moe_layer_end_index", "before the last layer");
}

static void read_hunyuan(ig_hf_reader *r, ig_config *c) {
    c->norm_eps = 1e-5f;
    c->head_norm = IG_HEAD_NORM_EACH;
    c->rotates_first = true;
    ig_hf_read_llama(r, c);
}

/* The width is an expert's. */
void ig_hf_read_experts(ig_hf_reader *r, ig_config *c, const char *width, int n_used) {
    static const char *const names[] = {"num_experts", "n_routed_experts", "num_local_experts"};
    size_t at = 0;
    while (at + 1 < IG_COUNT(names) && !ig_hf_get(r->root, names[at])) at++;
    const char *number = names[at];
    c->n_experts = ig_hf_int(r, r->root, number, IG_MAX_EXPERTS, IG_HF_ABSENT);
    c->n_experts_used = ig_hf_int(r, r->root, "num_experts_per_tok", IG_MAX_EXPERTS, n_used);
    c->d_ff = ig_hf_int(r, r->root, width, IG_MAX_WIDTH, IG_HF_ABSENT);
    if (c->n_experts_used > c->n_experts) ig_hf_fail_kind(r, "num_experts_per_tok", "at most the number of experts");
}

static void read_mixtral(ig_hf_reader *r, ig_config *c) {
    c->norm_eps = 1e-5f;
    c->n_kv_heads = 8;
    c->rope_theta = 1000000;
    ig_hf_read_llama(r, c);
    read_windows(r, c, ig_hf_int(r, r->root, "sliding_window", IG_MAX_CTX, 0), 0);
    ig_hf_read_experts(r, c, "intermediate_size", 2);
}

static void read_olmoe(ig_hf_reader *r, ig_config *c) {
    c->head_norm = IG_HEAD_NORM_ALL;
    c->norm_eps = 1e-5f;
    ig_hf_read_llama(r, c);
    ig_hf_read_experts(r, c, "intermediate_size", 8);
    c->is_share_of_all = !ig_hf_bool(r, "norm_topk_prob", false);
}

/* Which layers have experts can be stated; in all published models all have. */
static void read_qwen_experts(ig_hf_reader *r, ig_config *c, int n_used) {
    const json_t *plain = ig_hf_get(r->root, "mlp_only_layers");
    ig_hf_read_experts(r, c, "moe_intermediate_size", n_used);
    c->is_share_of_all = !ig_hf_bool(r, "norm_topk_prob", false);
    if (ig_hf_int(r, r->root, "decoder_sparse_step", IG_MAX_LAYERS, 1) != 1)
        ig_hf_refuse(r, "decoder_sparse_step", "above 1");
    if (plain && (!json_is_array(plain) || json_array_size(plain)))
        ig_hf_refuse(r, "mlp_only_layers", "a list of layers");
}

static void read_qwen2_moe(ig_hf_reader *r, ig_config *c) {
    c->n_kv_heads = 16;
    read_qwen2(r, c);
    read_qwen_experts(r, c, 4);
    c->d_ff_shared = ig_hf_int(r, r->root, "shared_expert_intermediate_size", IG_MAX_WIDTH, 5632);
    c->is_shared_gated = true;
}

static void read_qwen3_moe(ig_hf_reader *r, ig_config *c) {
    read_qwen3(r, c);
    read_qwen_experts(r, c, 8);
}

void ig_hf_read_granite(ig_hf_reader *r, ig_config *c) {
    ig_hf_read_llama(r, c);
    c->embed_scale = ig_hf_scale(r, "embedding_multiplier", 1);
    c->residual_scale = ig_hf_scale(r, "residual_multiplier", 1);
    c->logit_scale = ig_hf_scale(r, "logits_scaling", 1);
    c->attn_scale = ig_hf_scale(r, "attention_multiplier", 1);
}

/* Trinity. Layers without a window do not rotate. */
static void read_afmoe(ig_hf_reader *r, ig_config *c) {
    c->norm_order = IG_NORMS_AROUND;
    c->norm_eps = 1e-5f;
    c->head_norm = IG_HEAD_NORM_EACH;
    c->head_dim = 128;
    c->has_attn_gate = true;
    ig_hf_read_llama(r, c);
    if (ig_hf_bool(r, "mup_enabled", false)) c->embed_scale = sqrt((double)c->d_model);
    read_local_layers(r, c, ig_hf_int(r, r->root, "global_attn_every_n_layers", IG_MAX_LAYERS, 4), IG_ROPE_MAIN,
                      IG_ROPE_LEFT_OUT);
    ig_config_set_plain_layers(c, ig_hf_count(r, "num_dense_layers", c->n_layers - 1, 1));
    ig_hf_read_experts(r, c, "moe_intermediate_size", 6);
    read_shared(r, c, "num_shared_experts", 2);
    c->routing = IG_ROUTING_SIGMOID;
    c->is_share_of_all = !ig_hf_bool(r, "route_norm", true);
    c->expert_scale = ig_hf_scale(r, "route_scale", 1);
    refuse_groups(r);
}

/* Windows and sinks. Bases of layers are one by one, 0 where one does not rotate. */
static void read_granite_swa(ig_hf_reader *r, ig_config *c) {
    const json_t *bases = ig_hf_get(r->root, "layer_rope_theta");
    c->norm_eps = 1e-5f;
    c->tied = true;
    ig_hf_read_granite(r, c);
    read_local_layers(r, c, 4, IG_ROPE_MAIN, IG_ROPE_MAIN);
    c->has_sink_scores = true;
    if (!ig_hf_get(r->root, "layer_types")) ig_hf_fail_kind(r, "layer_types", "a list with one item per layer");
    if (bases && json_array_size(bases) != (size_t)c->n_layers)
        ig_hf_fail_kind(r, "layer_rope_theta", "a list with one item per layer");
    for (size_t l = 0; l < json_array_size(bases) && !r->status; l++) {
        double base = json_number_value(json_array_get(bases, l));
        if (base == 0) c->rope_set[l] = IG_ROPE_LEFT_OUT;
        if (base != 0 && base != c->rope_theta) ig_hf_refuse(r, "layer_rope_theta", "another base than 'rope_theta'");
    }
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

/* K-EXAONE. */
static void read_exaone_moe(ig_hf_reader *r, ig_config *c) {
    c->norm_eps = 1e-5f;
    c->head_norm = IG_HEAD_NORM_EACH;
    ig_hf_read_llama(r, c);
    bool is_listed = ig_hf_get(r->root, "layer_types") != NULL;
    int pattern = is_listed ? 1 : ig_hf_int(r, r->root, "sliding_window_pattern", IG_MAX_LAYERS, 4);
    read_local_layers(r, c, pattern, IG_ROPE_MAIN, IG_ROPE_LEFT_OUT);
    ig_config_set_plain_layers(c, read_n_plain(r, c, ig_hf_count(r, "first_k_dense_replace", c->n_layers - 1, 1)));
    c->n_layers_left_out = ig_hf_count(r, "num_nextn_predict_layers", IG_MAX_LAYERS, 0);
    ig_hf_read_experts(r, c, "moe_intermediate_size", 8);
    read_shared(r, c, "num_shared_experts", 1);
    c->routing = IG_ROUTING_SIGMOID;
    c->is_share_of_all = !ig_hf_bool(r, "norm_topk_prob", true);
    c->expert_scale = ig_hf_scale(r, "routed_scaling_factor", 2.5);
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
static void read_hunyuan_moe(ig_hf_reader *r, ig_config *c) {
    read_hunyuan(r, c);
    c->n_experts = read_of_layers(r, c, "num_experts", IG_MAX_EXPERTS);
    c->n_experts_used = read_of_layers(r, c, "moe_topk", IG_MAX_EXPERTS);
    c->d_ff_shared = c->d_ff;
    if (c->n_experts_used > c->n_experts) ig_hf_fail_kind(r, "moe_topk", "at most the number of experts");
}

/* Hunyuan 3. */
static void read_hy_v3(ig_hf_reader *r, ig_config *c) {
    c->norm_eps = 1e-5f;
    c->n_kv_heads = 8;
    c->head_dim = 128;
    c->head_norm = IG_HEAD_NORM_EACH;
    ig_hf_read_llama(r, c);
    int n_plain = read_n_plain(r, c, 1);
    ig_config_set_plain_layers(c, n_plain);
    c->n_layers_left_out = ig_hf_count(r, "num_nextn_predict_layers", IG_MAX_LAYERS, 0);
    ig_hf_read_experts(r, c, "moe_intermediate_size", 8);
    read_shared(r, c, "num_shared_experts", 1);
    c->routing = IG_ROUTING_SIGMOID;
    c->expert_scale = ig_hf_scale(r, "router_scaling_factor", 2.826);
}

static void read_mellum(ig_hf_reader *r, ig_config *c) {
    const json_t *kinds = ig_hf_get(r->root, "mlp_layer_types");
    c->n_kv_heads = 4;
    c->head_dim = 128;
    c->head_norm = IG_HEAD_NORM_EACH;
    c->rope_theta = 500000;
    c->rope_local_theta = 10000;
    ig_hf_read_llama(r, c);
    if (ig_hf_get(r->root, "layer_types")) read_local_layers(r, c, 1, IG_ROPE_LOCAL, IG_ROPE_MAIN);
    ig_hf_read_experts(r, c, "moe_intermediate_size", 8);
    c->is_share_of_all = !ig_hf_bool(r, "norm_topk_prob", true);
    for (size_t l = 0; l < json_array_size(kinds); l++) {
        const char *kind = json_string_value(json_array_get(kinds, l));
        if (!kind || strcmp(kind, "sparse") != 0) ig_hf_refuse(r, "mlp_layer_types", kind ? kind : "?");
    }
}

/* Experts' matrices lie there by columns, or gate and up in turns, or what recurrences get. */
static void refuse_order(ig_hf_reader *r, ig_config *c) {
    r->status = ig_fail(r->err, IG_E_UNSUPPORTED, "%s: 'model_type' '%s' is supported as a GGUF file only", r->path,
                        c->architecture);
}

static void read_granitemoe(ig_hf_reader *r, ig_config *c) {
    ig_hf_read_granite(r, c);
    ig_hf_read_experts(r, c, "intermediate_size", 2);
}

/* Layers that do not rotate are stated one by one, or every so many. */
static void read_smollm3(ig_hf_reader *r, ig_config *c) {
    c->rope_theta = 2000000;
    c->tied = true;
    ig_hf_read_llama(r, c);
    const json_t *rotates = ig_hf_get(r->root, "no_rope_layers");
    int interval = ig_hf_int(r, r->root, "no_rope_layer_interval", IG_MAX_LAYERS, 4);
    if (rotates && (!json_is_array(rotates) || json_array_size(rotates) < (size_t)c->n_layers))
        ig_hf_fail_kind(r, "no_rope_layers", "a list with one item per layer");
    for (int l = 0; l < c->n_layers && !r->status; l++) {
        bool is_rotated = (l + 1) % interval != 0;
        if (rotates) is_rotated = json_integer_value(json_array_get(rotates, (size_t)l)) != 0;
        c->rope_set[l] = is_rotated ? IG_ROPE_MAIN : IG_ROPE_LEFT_OUT;
    }
    if (ig_hf_bool(r, "use_sliding_window", false)) ig_hf_refuse(r, "use_sliding_window", "true");
}

/* How much of a head is rotated, stated in one of two places. */
int ig_hf_read_n_rot(ig_hf_reader *r, int head_dim, double absent) {
    static const char key[] = "partial_rotary_factor";
    double share = ig_hf_number(r, ig_hf_get(r->root, "rope_parameters"), key, ig_hf_number(r, r->root, key, absent));
    int n_rot = share <= 1 ? (int)(head_dim * share) : 0;
    if (n_rot == 0) ig_hf_fail_kind(r, key, "above 0 and at most 1, and leave a part of a head");
    return n_rot;
}

static void read_phi3(ig_hf_reader *r, ig_config *c) {
    c->is_qkv_fused = c->is_gate_up_fused = true;
    c->norm_eps = 1e-5f;
    c->n_rot = ig_hf_read_n_rot(r, c->d_model / c->n_heads, 1);
    ig_hf_read_llama(r, c);
    int window = ig_hf_int(r, r->root, "sliding_window", IG_MAX_CTX, 0);
    for (int l = 0; l < c->n_layers; l++) c->window[l] = window;
}

static void read_glm(ig_hf_reader *r, ig_config *c) {
    c->norm_eps = 1.5625e-7f;
    c->is_gate_up_fused = true;
    c->n_kv_heads = 2;
    c->head_dim = 128;
    int head_dim = ig_hf_int(r, r->root, "head_dim", IG_KV_DIMS, c->head_dim);
    c->n_rot = ig_hf_read_n_rot(r, head_dim, 0.5);
    ig_hf_read_llama(r, c);
    c->rope = IG_ROPE_ADJACENT;
}

static void read_glm4(ig_hf_reader *r, ig_config *c) {
    c->norm_order = IG_NORMS_AROUND;
    read_glm(r, c);
}

static void read_minimax_m2(ig_hf_reader *r, ig_config *c) {
    c->head_norm = IG_HEAD_NORM_ALL;
    c->n_kv_heads = 8;
    c->head_dim = 128;
    c->rope_theta = 5000000;
    int head_dim = ig_hf_int(r, r->root, "head_dim", IG_KV_DIMS, c->head_dim);
    c->n_rot = ig_hf_int(r, r->root, "rotary_dim", head_dim, ig_hf_read_n_rot(r, head_dim, 1));
    ig_hf_read_llama(r, c);
    ig_hf_read_experts(r, c, "intermediate_size", 8);
    c->routing = IG_ROUTING_SIGMOID;
}

void ig_hf_read_later_experts(ig_hf_reader *r, ig_config *c, int n_plain, bool is_normed) {
    ig_config_set_plain_layers(c, ig_hf_count(r, "first_k_dense_replace", c->n_layers - 1, n_plain));
    c->n_layers_left_out = ig_hf_count(r, "num_nextn_predict_layers", IG_MAX_LAYERS, 0);
    ig_hf_read_experts(r, c, "moe_intermediate_size", 8);
    read_shared(r, c, "n_shared_experts", 1);
    c->routing = IG_ROUTING_SIGMOID;
    c->is_share_of_all = !ig_hf_bool(r, "norm_topk_prob", is_normed);
    c->expert_scale = ig_hf_scale(r, "routed_scaling_factor", 1);
}

static void read_later_experts(ig_hf_reader *r, ig_config *c, int n_plain, bool is_normed) {
    ig_hf_read_later_experts(r, c, n_plain, is_normed);
    refuse_groups(r);
}

/* GLM 4.5 to 4.7. */
static void read_glm4_moe(ig_hf_reader *r, ig_config *c) {
    c->norm_eps = 1e-5f;
    c->n_kv_heads = 8;
    c->head_norm = ig_hf_bool(r, "use_qk_norm", false) ? IG_HEAD_NORM_EACH : IG_HEAD_NORM_NONE;
    int head_dim = ig_hf_int(r, r->root, "head_dim", IG_KV_DIMS, c->d_model / c->n_heads);
    c->n_rot = ig_hf_read_n_rot(r, head_dim, 0.5);
    ig_hf_read_llama(r, c);
    read_later_experts(r, c, 1, true);
}

static void read_dots1(ig_hf_reader *r, ig_config *c) {
    c->head_norm = IG_HEAD_NORM_EACH;
    ig_hf_read_llama(r, c);
    read_later_experts(r, c, 0, false);
    if (ig_hf_get(r->root, "layer_types"))
        read_windows(r, c, ig_hf_int(r, r->root, "sliding_window", IG_MAX_CTX, 4096), 0);
}

static void read_solar_open(ig_hf_reader *r, ig_config *c) {
    c->norm_eps = 1e-5f;
    c->n_kv_heads = 8;
    c->head_dim = 128;
    c->rope_theta = 1000000;
    c->d_ff = ig_hf_int(r, r->root, "moe_intermediate_size", IG_MAX_WIDTH, IG_HF_ABSENT); /* all layers have experts */
    ig_hf_read_llama(r, c);
    read_later_experts(r, c, 0, true);
}

static void read_exaone4(ig_hf_reader *r, ig_config *c) {
    c->norm_order = IG_NORMS_OF_PARTS;
    c->norm_eps = 1e-5f;
    c->head_norm = IG_HEAD_NORM_EACH;
    ig_hf_read_llama(r, c);
    bool is_listed = ig_hf_get(r->root, "layer_types") != NULL;
    int pattern = is_listed ? 1 : ig_hf_int(r, r->root, "sliding_window_pattern", IG_MAX_LAYERS, 4);
    read_local_layers(r, c, pattern, IG_ROPE_MAIN, IG_ROPE_LEFT_OUT);
}

static const char gelu[] = "gelu_pytorch_tanh";

static void read_gemma(ig_hf_reader *r, ig_config *c) {
    c->norm_offset = 1;
    c->activation = IG_GELU_GATED;
    if (!c->n_kv_heads) c->n_kv_heads = 16;
    c->head_dim = 256;
    c->tied = true;
    ig_hf_read_llama(r, c);
    c->embed_scale = sqrt((double)c->d_model);
    /* Early files say "gelu", and mean this one. */
    const char *act = ig_hf_text(r, r->root, "hidden_activation", ig_hf_text(r, r->root, "hidden_act", gelu));
    if (strcmp(act, gelu) != 0 && strcmp(act, "gelu") != 0) ig_hf_refuse(r, "hidden_act", act);
}

static void read_gemma3(ig_hf_reader *r, ig_config *c) {
    c->norm_order = IG_NORMS_AROUND;
    c->head_norm = IG_HEAD_NORM_EACH;
    c->norm_offset = 1;
    c->activation = IG_GELU_GATED;
    c->n_kv_heads = 4;
    c->head_dim = 256;
    c->tied = true;
    c->rope_theta = 1000000;
    c->rope_local_theta = ig_hf_theta(r, r->root, "rope_local_base_freq", 10000);
    ig_hf_read_llama(r, c);
    c->embed_scale = sqrt((double)c->d_model);
    c->attn_scale = 1 / sqrt(ig_hf_scale(r, "query_pre_attn_scalar", 256));
    int pattern = ig_hf_int(r, r->root, "sliding_window_pattern", IG_MAX_LAYERS, 6);
    read_local_layers(r, c, pattern, IG_ROPE_LOCAL, IG_ROPE_MAIN);
    const char *act = ig_hf_text(r, r->root, "hidden_activation", gelu);
    if (strcmp(act, gelu) != 0) ig_hf_refuse(r, "hidden_activation", act);
    if (ig_hf_bool(r, "use_bidirectional_attention", false)) ig_hf_refuse(r, "use_bidirectional_attention", "true");
}

static void read_gemma2(ig_hf_reader *r, ig_config *c) {
    c->n_kv_heads = 4;
    read_gemma(r, c);
    c->norm_order = IG_NORMS_AROUND;
    c->attn_scale = 1 / sqrt(ig_hf_scale(r, "query_pre_attn_scalar", 256));
    c->score_cap = ig_hf_scale(r, "attn_logit_softcapping", 50);
    c->logit_cap = ig_hf_scale(r, "final_logit_softcapping", 30);
    read_local_layers(r, c, 2, IG_ROPE_MAIN, IG_ROPE_MAIN);
}

/* Feed-forward parts without a gate. */
static void read_relu_squared(ig_hf_reader *r, ig_config *c) {
    const char *act = ig_hf_text(r, r->root, "hidden_act", "relu2");
    c->activation = IG_RELU_SQUARED;
    ig_hf_read_llama(r, c);
    if (strcmp(act, "relu2") != 0) ig_hf_refuse(r, "hidden_act", act);
}

static void read_arcee(ig_hf_reader *r, ig_config *c) {
    c->norm_eps = 1e-5f;
    read_relu_squared(r, c);
}

/* Nemotron 4, Minitron. */
static void read_nemotron(ig_hf_reader *r, ig_config *c) {
    int head_dim = ig_hf_int(r, r->root, "head_dim", IG_KV_DIMS, c->d_model / c->n_heads);
    c->n_rot = ig_hf_read_n_rot(r, head_dim, 0.5);
    c->norm_eps = (float)ig_hf_number(r, r->root, "norm_eps", 1e-5);
    c->norm_offset = 1;
    read_relu_squared(r, c);
    c->norm = IG_NORM_LAYER;
}

static void read_olmo2(ig_hf_reader *r, ig_config *c) {
    c->norm_order = IG_NORMS_OF_PARTS;
    c->head_norm = IG_HEAD_NORM_ALL;
    c->norm_eps = 1e-5f;
    ig_hf_read_llama(r, c);
}

static void read_olmo3(ig_hf_reader *r, ig_config *c) {
    c->rope_theta = 500000;
    c->rope_local_theta = ig_hf_theta(r, r->root, "rope_theta", c->rope_theta);
    read_olmo2(r, c);
    read_local_layers(r, c, 4, IG_ROPE_LOCAL, IG_ROPE_MAIN);
}

/* Command R, Aya: attention and the feed-forward part side by side. */
static void read_cohere(ig_hf_reader *r, ig_config *c) {
    c->norm_eps = (float)ig_hf_number(r, r->root, "layer_norm_eps", 1e-5);
    c->tied = true;
    ig_hf_read_llama(r, c);
    c->norm = IG_NORM_LAYER_UNBIASED;
    c->norm_order = IG_NORMS_SHARED;
    c->rope = IG_ROPE_ADJACENT;
    c->logit_scale = 1 / ig_hf_scale(r, "logit_scale", 0.0625);
}

/* Command R7B, Command A: layers without a window do not rotate. */
static void read_cohere2(ig_hf_reader *r, ig_config *c) {
    read_cohere(r, c);
    bool is_listed = ig_hf_get(r->root, "layer_types") != NULL;
    int pattern = is_listed ? 1 : ig_hf_int(r, r->root, "sliding_window_pattern", IG_MAX_LAYERS, 4);
    read_local_layers(r, c, pattern, IG_ROPE_MAIN, IG_ROPE_LEFT_OUT);
    const json_t *window = json_object_get(r->root, "sliding_window");
    if (json_is_null(window)) ig_hf_refuse(r, "sliding_window", "null");
}

/* North. The first layers have none, and rotate in any case. What experts give is averaged with
 * what one for all tokens does. */
static void read_cohere2_moe(ig_hf_reader *r, ig_config *c) {
    int first = ig_hf_count(r, "first_k_dense_replace", c->n_layers - 1, 0);
    c->head_dim = 128;
    read_cohere2(r, c);
    if (!ig_hf_get(r->root, "layer_types")) ig_hf_fail_kind(r, "layer_types", "a list with one item per layer");
    if (ig_hf_get(r->root, "rms_norm_eps")) c->norm = IG_NORM_RMS;
    int n_plain = read_n_plain(r, c, first);
    if (n_plain) ig_hf_size(r, &c->d_ff, "prefix_dense_intermediate_size", IG_MAX_WIDTH);
    ig_config_set_plain_layers(c, n_plain);
    bool rotate = ig_hf_int(r, r->root, "prefix_dense_sliding_window_pattern", IG_MAX_LAYERS, 1) == 1;
    for (int l = 0; l < n_plain && rotate; l++) c->rope_set[l] = IG_ROPE_MAIN;
    c->n_layers_left_out = ig_hf_count(r, "num_nextn_predict_layers", IG_MAX_LAYERS, 0);
    ig_hf_read_experts(r, c, "intermediate_size", 2);
    read_shared(r, c, "num_shared_experts", 0);
    const char *how = ig_hf_text(r, r->root, "shared_expert_combination_strategy", "average");
    if (c->d_ff_shared && strcmp(how, "average") == 0)
        c->expert_scale = c->shared_scale = 0.5;
    else if (strcmp(how, "average") != 0 && strcmp(how, "sum") != 0)
        ig_hf_refuse(r, "shared_expert_combination_strategy", how);
    const char *scores = ig_hf_text(r, r->root, "expert_selection_fn", "softmax");
    if (strcmp(scores, "sigmoid") == 0) {
        c->routing = IG_ROUTING_SIGMOID;
        c->is_share_of_all = !ig_hf_bool(r, "norm_topk_prob", true);
    } else if (strcmp(scores, "softmax") != 0) {
        ig_hf_refuse(r, "expert_selection_fn", scores);
    }
}

static void read_opt(ig_hf_reader *r, ig_config *c) {
    c->d_ff = ig_hf_int(r, r->root, "ffn_dim", IG_MAX_WIDTH, IG_HF_ABSENT);
    c->d_embed = ig_hf_int(r, r->root, "word_embed_proj_dim", IG_MAX_WIDTH, 0);
    c->norm = IG_NORM_LAYER;
    c->norm_eps = 1e-5f; /* the class states no other */
    c->activation = IG_RELU;
    c->rope = IG_ROPE_NONE;
    c->tied = ig_hf_bool(r, "tie_word_embeddings", true);
    bool is_first = ig_hf_bool(r, "do_layer_norm_before", true);
    c->norm_order = is_first ? IG_NORMS_BEFORE : IG_NORMS_OF_SUMS;
    c->final_norm = is_first && !ig_hf_bool(r, "_remove_final_layer_norm", false);
    c->position_offset = OPT_POSITION_OFFSET;
    c->learned_positions = c->n_ctx_train + OPT_POSITION_OFFSET;
    const char *act = ig_hf_text(r, r->root, "activation_function", "relu");
    if (strcmp(act, "relu") != 0) ig_hf_refuse(r, "activation_function", act);
    if (!ig_hf_bool(r, "layer_norm_elementwise_affine", true))
        ig_hf_refuse(r, "layer_norm_elementwise_affine", "false");
}

/* What the class has where a file states nothing: those of 4b and larger leave most of it out. */
static const ig_config gemma3_sizes = {
    .n_vocab = 262208, .d_model = 2304, .d_ff = 9216, .n_layers = 26, .n_heads = 8, .n_ctx_train = 131072};

/* The number of layers is that of a list. */
static const ig_config nemotron_sizes = {.n_layers = 1};

static const ig_hf_family families[] = {
    {"afmoe", read_afmoe, {"num_experts", "num_local_experts"}, NULL},
    {"arcee", read_arcee, {NULL}, NULL},
    {"cohere", read_cohere, {NULL}, NULL},
    {"cohere2", read_cohere2, {NULL}, NULL},
    {"cohere2_moe", read_cohere2_moe, {"num_experts", "num_local_experts"}, NULL},
    {"deepseek_v2", ig_hf_read_deepseek_v2, {"num_experts", "num_local_experts"}, NULL},
    {"deepseek_v3", ig_hf_read_deepseek_v3, {"num_experts", "num_local_experts"}, NULL},
    {"dots1", read_dots1, {"num_experts", "num_local_experts"}, NULL},
    {"ernie4_5", read_ernie4_5, {NULL}, NULL},
    {"ernie4_5_moe", read_ernie4_5_moe, {NULL}, NULL},
    {"exaone4", read_exaone4, {NULL}, NULL},
    {"exaone_moe", read_exaone_moe, {"num_experts", "num_local_experts"}, NULL},
    {"gemma", read_gemma, {NULL}, NULL},
    {"gemma2", read_gemma2, {"attn_logit_softcapping", "final_logit_softcapping"}, NULL},
    {"gemma3_text", read_gemma3, {NULL}, &gemma3_sizes},
    {"gemma4_text", ig_hf_read_gemma4, {"final_logit_softcapping", "num_experts"}, &ig_hf_gemma4_sizes},
    {"gemma4_unified_text", ig_hf_read_gemma4, {"final_logit_softcapping"}, &ig_hf_gemma4_sizes},
    {"glm", read_glm, {"partial_rotary_factor"}, NULL},
    {"glm4", read_glm4, {"partial_rotary_factor"}, NULL},
    {"glm4_moe", read_glm4_moe, {"num_experts", "num_local_experts", "partial_rotary_factor", "use_qk_norm"}, NULL},
    {"glm4_moe_lite", ig_hf_read_glm4_moe_lite, {"num_experts", "num_local_experts"}, NULL},
    {"gpt_oss", refuse_order, {"num_local_experts", "quantization_config"}, NULL},
    {"granite",
     ig_hf_read_granite,
     {"attention_multiplier", "embedding_multiplier", "logits_scaling", "residual_multiplier"},
     NULL},
    {"granite_swa",
     read_granite_swa,
     {"attention_multiplier", "embedding_multiplier", "logits_scaling", "residual_multiplier"},
     NULL},
    {"granitemoe",
     read_granitemoe,
     {"attention_multiplier", "embedding_multiplier", "logits_scaling", "residual_multiplier", "num_local_experts"},
     NULL},
    {"granitemoehybrid",
     ig_hf_read_granite4,
     {"attention_multiplier", "embedding_multiplier", "logits_scaling", "residual_multiplier", "num_local_experts"},
     NULL},
    {"hunyuan_v1_dense", read_hunyuan, {"use_qk_norm"}, NULL},
    {"hunyuan_v1_moe", read_hunyuan_moe, {"num_experts", "num_local_experts", "use_qk_norm"}, NULL},
    {"hy_v3", read_hy_v3, {"num_experts", "num_local_experts"}, NULL},
    {"lfm2", ig_hf_read_lfm2, {NULL}, NULL},
    {"lfm2_moe", ig_hf_read_lfm2_moe, {"num_experts", "num_local_experts"}, NULL},
    {"llama", ig_hf_read_llama, {NULL}, NULL},
    {"mellum", read_mellum, {"num_experts", "num_local_experts"}, NULL},
    {"minimax_m2", read_minimax_m2, {"num_local_experts", "partial_rotary_factor", "use_qk_norm"}, NULL},
    {"ministral3", read_ministral3, {NULL}, NULL},
    {"mistral", read_mistral, {NULL}, NULL},
    {"mistral4", ig_hf_read_mistral4, {"num_experts", "num_local_experts", "partial_rotary_factor"}, NULL},
    {"mixtral", read_mixtral, {"num_local_experts"}, NULL},
    {"nemotron", read_nemotron, {"partial_rotary_factor"}, NULL},
    {"nemotron_h", ig_hf_read_nemotron_h, {"num_experts", "num_local_experts"}, &nemotron_sizes},
    {"olmo2", read_olmo2, {NULL}, NULL},
    {"olmo3", read_olmo3, {NULL}, NULL},
    {"olmoe", read_olmoe, {"num_experts", "num_local_experts"}, NULL},
    {"opt", read_opt, {NULL}, NULL},
    {"phi3", read_phi3, {"partial_rotary_factor"}, NULL},
    {"qwen2", read_qwen2, {NULL}, NULL},
    {"qwen2_5_vl", read_qwen2, {NULL}, NULL},
    {"qwen2_5_vl_text", read_qwen2, {NULL}, NULL},
    {"qwen2_moe", read_qwen2_moe, {"num_experts", "num_local_experts"}, NULL},
    {"qwen2_vl", read_qwen2, {NULL}, NULL},
    {"qwen2_vl_text", read_qwen2, {NULL}, NULL},
    {"qwen3", read_qwen3, {NULL}, NULL},
    {"qwen3_moe", read_qwen3_moe, {"num_experts", "num_local_experts"}, NULL},
    {"qwen3_next", refuse_order, {"num_experts", "num_local_experts", "partial_rotary_factor"}, NULL},
    {"qwen3_vl_moe_text", refuse_order, {"num_experts", "num_local_experts"}, NULL},
    {"qwen3_vl_text", read_qwen3, {NULL}, NULL},
    {"qwen3_5_moe_text", ig_hf_read_qwen3_5_moe, {"num_experts", "num_local_experts", "partial_rotary_factor"}, NULL},
    {"qwen3_5_text", ig_hf_read_qwen3_5, {"partial_rotary_factor"}, NULL},
    {"seed_oss", read_seed_oss, {NULL}, NULL},
    {"smollm3", read_smollm3, {NULL}, NULL},
    {"solar_open", read_solar_open, {"num_experts", "num_local_experts", "partial_rotary_factor", "use_qk_norm"}, NULL},
};

const ig_hf_family *ig_hf_family_named(const char *name) {
    for (size_t i = 0; i < IG_COUNT(families); i++)
        if (strcmp(families[i].name, name) == 0) return &families[i];
    return NULL;
}
