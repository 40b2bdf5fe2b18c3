/* SPDX-License-Identifier: Apache-2.0
 *
 * Families of which some layers do not attend, or carry a state beside, with the defaults of the published model
 * classes.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "model/config_hf.h"

/* Which layers carry a state on, and which have a window, if any may; what classes call the others has changed. False:
 * it is not stated. */
static bool read_layer_types(ig_hf_reader *r, ig_config *c, int window) {
    static const char *const kinds[] = {"full_attention",   "attention", "sliding_attention",
                                        "linear_attention", "mamba",     "conv"};
    enum { SLIDING = 2 };
    const json_t *types = ig_hf_get(r->root, "layer_types");
    if (!types) return false;
    if (json_array_size(types) != (size_t)c->n_layers)
        ig_hf_fail_kind(r, "layer_types", "a list with one item per layer");
    for (int l = 0; l < c->n_layers && !r->status; l++) {
        const char *type = json_string_value(json_array_get(types, (size_t)l));
        size_t kind = 0;
        while (kind < IG_COUNT(kinds) && !(type && strcmp(type, kinds[kind]) == 0)) kind++;
        if (kind == IG_COUNT(kinds) || (kind == SLIDING && !window)) ig_hf_refuse(r, "layer_types", type ? type : "?");
        c->is_recurrent[l] = kind > SLIDING;
        c->window[l] = kind == SLIDING ? window : 0;
    }
    return true;
}

/* ---- Qwen3.5 ---------------------------------------------------------------------------------- */

/* All layers but every so many, unless they are stated one by one. */
static void read_delta_net(ig_hf_reader *r, ig_config *c) {
    int interval = ig_hf_int(r, r->root, "full_attention_interval", IG_MAX_LAYERS, 4);
    bool is_stated = read_layer_types(r, c, 0);
    for (int l = 0; l < c->n_layers && !is_stated; l++) c->is_recurrent[l] = (l + 1) % interval != 0;
    c->recurrence =
        (ig_recurrence_shape){.n_key_heads = ig_hf_int(r, r->root, "linear_num_key_heads", IG_MAX_HEADS, 16),
                              .n_value_heads = ig_hf_int(r, r->root, "linear_num_value_heads", IG_MAX_HEADS, 32),
                              .key_dim = ig_hf_int(r, r->root, "linear_key_head_dim", IG_RECURRENCE_DIMS, 128),
                              .value_dim = ig_hf_int(r, r->root, "linear_value_head_dim", IG_RECURRENCE_DIMS, 128),
                              .n_taps = ig_hf_int(r, r->root, "linear_conv_kernel_dim", IG_RECURRENCE_TAPS, 4)};
}

void ig_hf_read_qwen3_5(ig_hf_reader *r, ig_config *c) {
    c->norms.of_heads = IG_HEAD_NORM_EACH;
    c->norms.offset = 1;
    if (!c->n_kv_heads) c->n_kv_heads = 4;
    c->head_dim = 256;
    c->has_attn_gate = c->is_gate_in_q = true;
    int head_dim = ig_hf_int(r, r->root, "head_dim", IG_KV_DIMS, c->head_dim);
    c->rope.n = ig_hf_read_n_rot(r, head_dim, 0.25);
    ig_hf_read_llama(r, c);
    read_delta_net(r, c);
    if (ig_hf_bool(r, "attention_bias", false)) ig_hf_refuse(r, "attention_bias", "true");
    c->file.n_layers_left_out = ig_hf_count(r, "mtp_num_hidden_layers", IG_MAX_LAYERS, 0);
}

void ig_hf_read_qwen3_5_moe(ig_hf_reader *r, ig_config *c) {
    c->n_kv_heads = 2;
    c->d_ff = ig_hf_int(r, r->root, "moe_intermediate_size", IG_MAX_WIDTH, 512); /* all layers have experts */
    ig_hf_read_qwen3_5(r, c);
    ig_hf_read_experts(r, c, "moe_intermediate_size", 8);
    c->experts.d_shared = ig_hf_int(r, r->root, "shared_expert_intermediate_size", IG_MAX_WIDTH, 512);
    c->experts.is_shared_gated = true;
}

/* Files may hold a layer that guesses tokens ahead, which no field states. */
void ig_hf_read_qwen3_next(ig_hf_reader *r, ig_config *c) {
    ig_hf_read_qwen3_5_moe(r, c);
    ig_hf_read_qwen_experts(r, c, 10, true);
    c->recurrence.has_gate_pairs = true;
    c->file.n_layers_left_out = 1;
}

/* ---- LFM2 ------------------------------------------------------------------------------------- */

/* What the published class makes of the width that files state. */
static int adjust_width(ig_hf_reader *r, int width) {
    int unit = ig_hf_int(r, r->root, "block_multiple_of", IG_MAX_WIDTH, 256);
    double by = ig_hf_scale(r, "block_ffn_dim_multiplier", 1);
    if (!ig_hf_bool(r, "block_auto_adjust_ff_dim", true)) return width;
    double adjusted = trunc(by * trunc(2 * (double)width / 3));
    if (!(adjusted >= 1 && adjusted <= IG_MAX_WIDTH)) ig_hf_fail_kind(r, "block_ffn_dim_multiplier", "smaller");
    return r->status ? 1 : ((int)adjusted + unit - 1) / unit * unit;
}

static void read_convolutions(ig_hf_reader *r, ig_config *c) {
    const json_t *attends = ig_hf_get(r->root, "full_attn_idxs");
    c->norms.eps = (float)ig_hf_number(r, r->root, "norm_eps", 1e-5);
    c->norms.of_heads = IG_HEAD_NORM_EACH;
    if (!c->n_kv_heads) c->n_kv_heads = 8;
    c->rope.theta = 1000000;
    c->tied = ig_hf_bool(r, "tie_embedding", true);
    c->d_ff = ig_hf_int(r, r->root, "block_ff_dim", IG_MAX_WIDTH, c->d_ff ? c->d_ff : 12288);
    ig_hf_read_llama(r, c);
    bool is_stated = read_layer_types(r, c, 0);
    for (int l = 0; l < c->n_layers && attends && !is_stated; l++) c->is_recurrent[l] = true;
    for (size_t i = 0; i < json_array_size(attends) && !is_stated; i++) {
        json_int_t l = json_integer_value(json_array_get(attends, i));
        if (l >= 0 && l < c->n_layers) c->is_recurrent[l] = false;
    }
    c->recurrence = ig_config_short_convolution(c, ig_hf_int(r, r->root, "conv_L_cache", IG_RECURRENCE_TAPS, 3));
    if (ig_hf_bool(r, "conv_bias", false)) ig_hf_refuse(r, "conv_bias", "true");
}

void ig_hf_read_lfm2(ig_hf_reader *r, ig_config *c) {
    read_convolutions(r, c);
    c->d_ff = adjust_width(r, c->d_ff);
}

void ig_hf_read_lfm2_moe(ig_hf_reader *r, ig_config *c) {
    c->d_ff = 7168;
    read_convolutions(r, c);
    ig_config_set_plain_layers(c, ig_hf_count(r, "num_dense_layers", c->n_layers - 1, ig_min_int(2, c->n_layers - 1)));
    ig_hf_read_experts(r, c, "moe_intermediate_size", 4);
    c->experts.routing = IG_ROUTING_SIGMOID;
    c->experts.is_share_of_all = !ig_hf_bool(r, "norm_topk_prob", true);
    c->experts.scale = ig_hf_scale(r, "routed_scaling_factor", 1);
}

const ig_config ig_hf_lfm3_sizes = {
    .n_vocab = 128000, .d_model = 2048, .d_ff = 7680, .n_layers = 24, .n_heads = 16, .n_ctx_train = 128000};

/* Other layers than LFM2's have windows, and rotate by a base of their own; norms are on both sides of a layer's parts,
 * and each head has a gate. */
void ig_hf_read_lfm3(ig_hf_reader *r, ig_config *c) {
    enum { PATTERN = 4 };
    c->n_kv_heads = 4;
    c->head_dim = 128;
    c->rope.n = ig_hf_int(r, r->root, "head_dim", IG_KV_DIMS, c->head_dim);
    c->rope.local_theta = 10000;
    c->norms.eps = (float)ig_hf_number(r, r->root, "norm_eps", 1e-5);
    c->norms.order = ig_hf_bool(r, "use_sandwich_norm", true) ? IG_NORMS_AROUND : IG_NORMS_BEFORE;
    c->norms.of_heads = IG_HEAD_NORM_EACH;
    c->has_attn_gate = c->is_gate_of_heads = ig_hf_bool(r, "use_attention_gate", true);
    c->rope.theta = 1000000;
    c->tied = true;
    ig_hf_read_llama(r, c);
    int window = ig_hf_int(r, r->root, "sliding_window", IG_MAX_CTX, 256);
    bool is_stated = read_layer_types(r, c, window);
    for (int l = 0; l < c->n_layers && !is_stated; l++) {
        c->is_recurrent[l] = l == 0 || l % PATTERN % 2;
        c->window[l] = l && l % PATTERN == 0 ? window : 0;
    }
    for (int l = 0; l < c->n_layers; l++) c->rope.set[l] = c->window[l] ? IG_ROPE_LOCAL : IG_ROPE_MAIN;
    c->recurrence = ig_config_short_convolution(c, ig_hf_int(r, r->root, "conv_L_cache", IG_RECURRENCE_TAPS, 7));
    if (ig_hf_bool(r, "conv_bias", false)) ig_hf_refuse(r, "conv_bias", "true");
}

/* ---- Mamba 2 ---------------------------------------------------------------------------------- */

/* Steps within limits would be another sum. */
static void refuse_step_limits(ig_hf_reader *r) {
    const json_t *limits = ig_hf_get(r->root, "time_step_limit"), *most = json_array_get(limits, 1);
    bool is_limit = json_is_number(most) && json_number_value(most) < (double)FLT_MAX;
    if (json_number_value(json_array_get(limits, 0)) > 0 || is_limit)
        ig_hf_refuse(r, "time_step_limit", "other than 0 and infinity");
}

/* Granite's and Falcon-H1's, of heads that are so wide together. */
static void read_mamba(ig_hf_reader *r, ig_config *c, const char *key, int width) {
    int n_heads = ig_hf_int(r, r->root, "mamba_n_heads", IG_MAX_HEADS, 128);
    bool is_derived = json_is_string(ig_hf_get(r->root, "mamba_d_head")); /* "auto" */
    c->recurrence = (ig_recurrence_shape){
        .kind = IG_MAMBA_2,
        .n_key_heads = ig_hf_int(r, r->root, "mamba_n_groups", IG_MAX_HEADS, 1),
        .n_value_heads = n_heads,
        .key_dim = ig_hf_int(r, r->root, "mamba_d_state", IG_RECURRENCE_DIMS, 256),
        .value_dim =
            is_derived ? width / n_heads : ig_hf_int(r, r->root, "mamba_d_head", IG_RECURRENCE_DIMS, width / n_heads),
        .n_taps = ig_hf_int(r, r->root, "mamba_d_conv", IG_RECURRENCE_TAPS, 4)};
    if (n_heads * c->recurrence.value_dim != width) ig_hf_fail_kind(r, "mamba_d_head", key);
    if (ig_hf_bool(r, "mamba_proj_bias", false)) ig_hf_refuse(r, "mamba_proj_bias", "true");
    refuse_step_limits(r);
}

/* How wide its heads are together unless that is stated. */
static int mamba_width(ig_hf_reader *r, const ig_config *c) {
    return ig_hf_int(r, r->root, "mamba_expand", IG_MAX_WIDTH / c->d_model, 2) * c->d_model;
}

/* What a part of a layer is called, in a list or by a letter of a text. */
static ig_part part_of(ig_hf_reader *r, const char *key, const json_t *kinds, size_t i) {
    static const struct {
        const char *names[2];
        char letter;
        ig_part part;
    } of[] = {{{"full_attention", "attention"}, '*', IG_PART_ATTENTION},
              {{"linear_attention", "mamba"}, 'M', IG_PART_RECURRENCE},
              {{"mlp", "mlp"}, '-', IG_PART_FFN},
              {{"moe", "moe"}, 'E', IG_PART_FFN}};
    const char *all = json_string_value(kinds), *name = json_string_value(json_array_get(kinds, i));
    for (size_t k = 0; k < IG_COUNT(of); k++)
        if (all ? all[i] == of[k].letter : name && (!strcmp(name, of[k].names[0]) || !strcmp(name, of[k].names[1])))
            return of[k].part;
    ig_hf_refuse(r, key, name ? name : all ? all + i : "?");
    return IG_PART_FFN;
}

static bool has_part(const json_t *kinds, const char *name, char letter) {
    const char *all = json_string_value(kinds);
    if (all) return strchr(all, letter) != NULL;
    for (size_t i = 0; i < json_array_size(kinds); i++) {
        const char *kind = json_string_value(json_array_get(kinds, i));
        if (kind && strcmp(kind, name) == 0) return true;
    }
    return false;
}

/* The parts of layers, which are numbered one by one. True: feed-forward parts have experts. */
static bool read_parts(ig_hf_reader *r, ig_config *c) {
    static const char *const keys[] = {"layers_block_type", "layer_types", "hybrid_override_pattern"};
    ig_part parts[IG_MAX_LAYERS];
    size_t at = 0;
    while (at + 1 < IG_COUNT(keys) && !ig_hf_get(r->root, keys[at])) at++;
    const json_t *kinds = ig_hf_get(r->root, keys[at]);
    size_t n = json_is_string(kinds) ? json_string_length(kinds) : json_array_size(kinds);
    if (n < 1 || n > IG_MAX_LAYERS) ig_hf_fail_kind(r, keys[at], "a list of the kinds of 1 to 512 parts of layers");
    for (size_t i = 0; i < n && !r->status; i++) parts[i] = part_of(r, keys[at], kinds, i);
    if (r->status) return false;
    bool has_experts = has_part(kinds, "moe", 'E');
    if (has_experts && has_part(kinds, "mlp", '-'))
        ig_hf_refuse(r, keys[at], "experts in some of the feed-forward parts");
    if (!ig_config_join_parts(c, parts, (int)n))
        ig_hf_refuse(r, keys[at], "a feed-forward part that follows none that mixes tokens");
    return has_experts;
}

/* Nemotron-H and Nemotron 3. */
void ig_hf_read_nemotron_h(ig_hf_reader *r, ig_config *c) {
    static const char *const biases[] = {"attention_bias", "mlp_bias", "use_bias", "mamba_proj_bias"};
    const char *act = ig_hf_text(r, r->root, "mlp_hidden_act", "relu2");
    c->n_kv_heads = 8;
    c->head_dim = ig_hf_int(r, r->root, "attention_head_dim", IG_KV_DIMS, 128);
    c->norms.eps = (float)ig_hf_number(r, r->root, "layer_norm_epsilon", 1e-5);
    ig_hf_read_llama(r, c);
    c->rope.kind = IG_ROPE_NONE;
    c->activation = IG_RELU_SQUARED;
    if (strcmp(act, "relu2") != 0) ig_hf_refuse(r, "mlp_hidden_act", act);
    for (size_t i = 0; i < IG_COUNT(biases); i++)
        if (ig_hf_bool(r, biases[i], false)) ig_hf_refuse(r, biases[i], "true");
    bool has_experts = read_parts(r, c);
    c->recurrence = (ig_recurrence_shape){.kind = IG_MAMBA_2,
                                          .n_key_heads = ig_hf_int(r, r->root, "n_groups", IG_MAX_HEADS, 8),
                                          .n_value_heads = ig_hf_int(r, r->root, "mamba_num_heads", IG_MAX_HEADS, 128),
                                          .key_dim = ig_hf_int(r, r->root, "ssm_state_size", IG_RECURRENCE_DIMS, 128),
                                          .value_dim = ig_hf_int(r, r->root, "mamba_head_dim", IG_RECURRENCE_DIMS, 64),
                                          .n_taps = ig_hf_int(r, r->root, "conv_kernel", IG_RECURRENCE_TAPS, 4)};
    refuse_step_limits(r);
    c->file.n_layers_left_out = ig_hf_count(r, "num_nextn_predict_layers", IG_MAX_LAYERS, 0);
    if (!has_experts) return;
    ig_hf_read_experts(r, c, "moe_intermediate_size", 2);
    c->experts.d_shared = ig_hf_int(r, r->root, "moe_shared_expert_intermediate_size", IG_MAX_WIDTH, 7688);
    c->experts.routing = IG_ROUTING_SIGMOID;
    c->experts.is_share_of_all = !ig_hf_bool(r, "norm_topk_prob", true);
    c->experts.scale = ig_hf_scale(r, "routed_scaling_factor", 1);
    if (ig_hf_count(r, "n_group", IG_MAX_EXPERTS, 1) > 1) ig_hf_refuse(r, "n_group", "above 1");
    if (ig_hf_count(r, "n_shared_experts", IG_MAX_EXPERTS, 1) != 1) ig_hf_refuse(r, "n_shared_experts", "other than 1");
    c->experts.width = ig_hf_int(r, r->root, "moe_latent_size", IG_MAX_WIDTH, 0);
}

/* Granite 4. The feed-forward layer of all tokens is called shared also where there are no experts beside it. */
void ig_hf_read_granite4(ig_hf_reader *r, ig_config *c) {
    const char *position = ig_hf_text(r, r->root, "position_embedding_type", "nope");
    ig_hf_read_granite(r, c);
    if (strcmp(position, "rope") != 0) c->rope.kind = IG_ROPE_NONE;
    if (!read_layer_types(r, c, 0) && !r->status) ig_hf_fail_kind(r, "layer_types", "a list with one item per layer");
    if (memchr(c->is_recurrent, true, (size_t)c->n_layers) && !r->status)
        read_mamba(r, c, "'mamba_expand' times 'hidden_size', divided by 'mamba_n_heads'", mamba_width(r, c));
    int width = ig_hf_int(r, r->root, "shared_intermediate_size", IG_MAX_WIDTH, 1024);
    c->file.is_gate_up_fused = true;
    c->experts.d_shared = width;
    if (ig_hf_count(r, "num_local_experts", IG_MAX_EXPERTS, 0)) {
        ig_hf_read_experts(r, c, "intermediate_size", 2);
    } else {
        c->d_ff = width;
        c->experts.d_shared = 0;
    }
}

/* ---- Falcon-H1 -------------------------------------------------------------------------------- */

/* Item i of a list of n scales; 1 where there is no list. */
static double scale_at(ig_hf_reader *r, const char *key, size_t n, size_t i) {
    const json_t *list = ig_hf_get(r->root, key), *item = json_array_get(list, i);
    double x = list ? json_number_value(item) : 1;
    bool is_scale = fabs(x) >= IG_LEAST_SCALE && fabs(x) <= IG_MAX_SCALE;
    if (list && (json_array_size(list) != n || !is_scale)) ig_hf_fail_kind(r, key, "a list of scales, 1e-6 to 1e6");
    return x;
}

static void read_multipliers(ig_hf_reader *r, ig_multipliers *m) {
    m->attn_in = ig_hf_scale(r, "attention_in_multiplier", 1);
    m->attn_out = ig_hf_scale(r, "attention_out_multiplier", 1);
    m->key = ig_hf_scale(r, "key_multiplier", 1);
    m->state_in = ig_hf_scale(r, "ssm_in_multiplier", 1);
    m->state_out = ig_hf_scale(r, "ssm_out_multiplier", 1);
    m->gate = scale_at(r, "mlp_multipliers", 2, 0);
    m->down = scale_at(r, "mlp_multipliers", 2, 1);
    for (size_t i = 0; i < IG_COUNT(m->state_part); i++)
        m->state_part[i] = scale_at(r, "ssm_multipliers", IG_COUNT(m->state_part), i);
}

/* Each layer has attention and Mamba 2, of the same input. */
void ig_hf_read_falcon_h1(ig_hf_reader *r, ig_config *c) {
    static const char *const biases[] = {"attention_bias", "mlp_bias", "projectors_bias"};
    bool is_derived = json_is_null(json_object_get(r->root, "mamba_d_ssm")); /* absent is another number */
    c->norms.eps = 1e-5f;
    c->n_kv_heads = 8;
    ig_hf_read_llama(r, c);
    for (size_t i = 0; i < IG_COUNT(biases); i++)
        if (ig_hf_bool(r, biases[i], false)) ig_hf_refuse(r, biases[i], "true");
    c->is_state_beside = true;
    read_mamba(r, c, "'mamba_d_ssm' divided by 'mamba_n_heads'",
               is_derived ? mamba_width(r, c) : ig_hf_int(r, r->root, "mamba_d_ssm", IG_MAX_WIDTH, 1024));
    c->has_no_state_norm = !ig_hf_bool(r, "mamba_rms_norm", false);
    if (!c->has_no_state_norm && ig_hf_bool(r, "mamba_norm_before_gate", true))
        ig_hf_refuse(r, "mamba_norm_before_gate", "true");
    c->embed_scale = ig_hf_scale(r, "embedding_multiplier", 1);
    c->logit_scale = 1 / ig_hf_scale(r, "lm_head_multiplier", 1);
    c->has_multipliers = true;
    read_multipliers(r, &c->multipliers);
}
