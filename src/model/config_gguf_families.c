/* SPDX-License-Identifier: Apache-2.0
 *
 * What architectures have of their own in GGUF metadata.
 */
#include <math.h>
#include <stdlib.h>
#include <stdio.h>

#include "base/compiler.h"
#include "base/error.h"
#include "model/config_section.h"

static int read_window(ig_section *r) { return ig_section_count(r, "attention.sliding_window", IG_MAX_CTX); }

/* Of all layers. */
static void read_one_window(ig_section *r, ig_config *c) {
    int window = read_window(r);
    for (int l = 0; l < c->n_layers; l++) c->window[l] = window;
}

/* As members of family.own: keys of all that have experts, and of models whose pictures have positions in two
 * dimensions. A text's are the same in all, and what layers get of pictures is nothing without any. */
#define EXPERT_KEYS "expert_count", "expert_used_count"
#define LATER_EXPERT_KEYS                                                                                          \
    EXPERT_KEYS, "expert_feed_forward_length", "expert_gating_func", "expert_shared_count", "expert_weights_norm", \
        "expert_weights_scale", "leading_dense_block_count", "nextn_predict_layers"
#define LATENT_KEYS                                                                                   \
    LATER_EXPERT_KEYS, "attention.key_length_mla", "attention.kv_lora_rank", "attention.q_lora_rank", \
        "attention.temperature_length", "attention.temperature_scale", "attention.value_length",      \
        "attention.value_length_mla", "expert_group_count", "expert_group_used_count",                \
        "rope.scaling.yarn_log_multiplier"
#define INDEX_KEYS \
    "attention.indexer.head_count", "attention.indexer.key_length", "attention.indexer.top_k", "attention.indexer.types"
#define SCALE_KEYS "attention.scale", "embedding_scale", "logit_scale", "residual_scale"
#define STATE_KEYS "ssm.conv_kernel", "ssm.group_count", "ssm.inner_size", "ssm.state_size", "ssm.time_step_rank"
#define GRANITE_KEYS SCALE_KEYS, STATE_KEYS
#define RECURRENCE_KEYS                                                                                         \
    "attention.recurrent_layers", "full_attention_interval", "nextn_predict_layers", "rope.dimension_sections", \
        STATE_KEYS
#define PICTURE_KEYS "rope.dimension_sections", "n_deepstack_layers"

/* The Qwen files do not say which layers it applies to. */
void ig_gguf_read_no_window(ig_section *r, ig_config *c) {
    int window = read_window(r);
    if (window && window < c->n_ctx_train && !r->status)
        r->status = ig_fail(r->err, IG_E_UNSUPPORTED, "%s: key '%s' is %d, which is not supported", r->path,
                            ig_section_name(r, "attention.sliding_window").text, window);
}

/* Layers that have the window: one by one, or all but every last of so many, or every first of minus so many. */
static void read_pattern(ig_section *r, const ig_config *c, bool *is_local, int pattern) {
    static const char name[] = "attention.sliding_window_pattern";
    if (ig_section_flags(r, c, name, is_local)) return;
    int span = ig_section_int(r, name, IG_MAX_LAYERS, abs(pattern)), whole = pattern < 0 ? 0 : span - 1;
    for (int l = 0; l < c->n_layers && !r->status; l++) is_local[l] = l % span != whole;
}

/* Windows, if there are any, and which frequencies layers with and without one rotate by. */
void ig_gguf_read_windows(ig_section *r, ig_config *c, int pattern, ig_rope_set local, ig_rope_set other) {
    bool is_local[IG_MAX_LAYERS] = {0};
    int window = read_window(r);
    if (!window) return;
    read_pattern(r, c, is_local, pattern);
    for (int l = 0; l < c->n_layers; l++) {
        c->window[l] = is_local[l] ? window : 0;
        c->rope.set[l] = (unsigned char)(is_local[l] ? local : other);
    }
}

/* Layers with a window rotate by frequencies of a base of their own. */
void ig_section_read_local_windows(ig_section *r, ig_config *c, int pattern, double local_theta) {
    if (!read_window(r)) return;
    c->rope.local_theta = ig_section_ranged(r, "rope.freq_base_swa", 1, IG_MAX_THETA, local_theta);
    ig_gguf_read_windows(r, c, pattern, IG_ROPE_LOCAL, IG_ROPE_MAIN);
}

/* And Mixtral. */
static void read_llama(ig_section *r, ig_config *c) {
    read_one_window(r, c);
    ig_section_read_experts(r, c);
}

/* Layers without a window do not rotate where others have one. */
static void read_exaone4(ig_section *r, ig_config *c) {
    c->norms.order = IG_NORMS_OF_PARTS;
    c->norms.of_heads = IG_HEAD_NORM_EACH;
    ig_gguf_read_windows(r, c, 4, IG_ROPE_MAIN, IG_ROPE_LEFT_OUT);
}

static void read_gemma(ig_section *r, ig_config *c) {
    c->activation = IG_GELU_GATED;
    c->embed_scale = sqrt((double)c->d_model);
    ig_gguf_read_no_window(r, c);
}

static void read_gemma2(ig_section *r, ig_config *c) {
    enum { LAYERS_27B = 46 }; /* the one size whose scores have another scale, which no key states */
    c->norms.order = IG_NORMS_AROUND;
    c->activation = IG_GELU_GATED;
    c->embed_scale = sqrt((double)c->d_model);
    if (c->n_layers == LAYERS_27B) c->attn_scale = 1 / sqrt((double)c->d_model / c->n_heads);
    c->score_cap = ig_section_scale(r, "attn_logit_softcapping", 50);
    c->logit_cap = ig_section_scale(r, "final_logit_softcapping", 30);
    ig_gguf_read_windows(r, c, 2, IG_ROPE_MAIN, IG_ROPE_MAIN);
}

/* Norms of what layers' parts give have an epsilon that no key states. Layers without a window do not rotate. */
static void read_muse_glimmer(ig_section *r, ig_config *c) {
    c->norms.order = IG_NORMS_AROUND;
    c->norms.after_eps = 1e-8f;
    c->norms.of_embeddings = true;
    c->norms.of_heads = IG_HEAD_NORM_EACH;
    c->has_attn_gate = true;
    c->logit_scale = 1 / ig_section_scale(r, "logit_scale", 1);
    c->logit_cap = ig_section_scale(r, "final_logit_softcapping", 0);
    c->rope.theta = ig_section_ranged(r, "rope.freq_base_swa", 1, IG_MAX_THETA, c->rope.theta);
    ig_section_int(r, "attention.sliding_window", IG_MAX_CTX, -1); /* without it no layer would be known to rotate */
    ig_gguf_read_windows(r, c, 4, IG_ROPE_MAIN, IG_ROPE_LEFT_OUT);
}

static void read_gemma3(ig_section *r, ig_config *c) {
    enum { LAYERS_27B = 62 }; /* the one size whose scores have another scale, which no key states */
    c->norms.order = IG_NORMS_AROUND;
    c->norms.of_heads = IG_HEAD_NORM_EACH;
    c->activation = IG_GELU_GATED;
    c->embed_scale = sqrt((double)c->d_model);
    if (c->n_layers == LAYERS_27B) c->attn_scale = 1 / sqrt((double)c->d_model / c->n_heads);
    ig_section_read_local_windows(r, c, 6, 10000);
}

static void read_glm4(ig_section *r, ig_config *c) {
    c->norms.order = IG_NORMS_AROUND;
    c->file.is_gate_up_fused = true;
    ig_gguf_read_no_window(r, c);
}

/* GLM-4 from before 2025. */
static void read_chatglm(ig_section *r, ig_config *c) {
    c->file.is_gate_up_fused = true;
    ig_gguf_read_no_window(r, c);
}

static void read_scales(ig_section *r, ig_config *c) {
    c->attn_scale = ig_section_scale(r, "attention.scale", 0);
    c->embed_scale = ig_section_scale(r, "embedding_scale", 1);
    c->residual_scale = ig_section_scale(r, "residual_scale", 1);
    c->logit_scale = ig_section_scale(r, "logit_scale", 1);
}

/* Sizes of the states of layers that do not attend. */
static void read_state(ig_section *r, ig_config *c, ig_recurrence_kind kind) {
    c->recurrence = (ig_recurrence_shape){.kind = kind,
                                          .n_key_heads = ig_section_int(r, "ssm.group_count", IG_MAX_HEADS, -1),
                                          .n_value_heads = ig_section_int(r, "ssm.time_step_rank", IG_MAX_HEADS, -1),
                                          .key_dim = ig_section_int(r, "ssm.state_size", IG_RECURRENCE_DIMS, -1),
                                          .n_taps = ig_section_int(r, "ssm.conv_kernel", IG_RECURRENCE_TAPS, -1)};
    int n_values = ig_section_int(r, "ssm.inner_size", IG_MAX_WIDTH, -1), n_heads = c->recurrence.n_value_heads;
    c->recurrence.value_dim = n_values / n_heads;
    if (n_values % n_heads && !r->status)
        r->status = ig_fail(r->err, IG_E_FORMAT, "%s: key '%s' is %d, must be a multiple of '%s' (%d)", r->path,
                            ig_section_name(r, "ssm.inner_size").text, n_values,
                            ig_section_name(r, "ssm.time_step_rank").text, n_heads);
}

/* Granite, and those with experts. Files of Granite 4 whose layers all attend hold the sizes of states, too. */
static void read_granite(ig_section *r, ig_config *c) {
    read_scales(r, c);
    ig_gguf_read_no_window(r, c);
    ig_section_read_experts(r, c);
    bool rotates = true;
    ig_gguf_bool(r->g, ig_section_name(r, "rope.scaling.finetuned").text, &rotates, &r->status, r->err);
    if (!rotates) c->rope.kind = IG_ROPE_NONE;
}

/* Granite 4, and Bamba, which rotates. Layers that do not attend have no heads of keys and values. */
static void read_granitehybrid(ig_section *r, ig_config *c) {
    read_granite(r, c);
    read_state(r, c, IG_MAMBA_2);
    if (c->experts.n) c->experts.d_shared = ig_section_count(r, "expert_shared_feed_forward_length", IG_MAX_WIDTH);
}

/* Windows and sinks; which layers rotate may be stated, which have a window must be. */
static void read_granite_swa(ig_section *r, ig_config *c) {
    bool flags[IG_MAX_LAYERS];
    read_scales(r, c);
    if (!ig_section_flags(r, c, "attention.sliding_window_pattern", flags) && !r->status)
        r->status = ig_fail(r->err, IG_E_FORMAT, "%s: key '%s' must be true or false for each layer", r->path,
                            ig_section_name(r, "attention.sliding_window_pattern").text);
    ig_gguf_read_windows(r, c, 1, IG_ROPE_MAIN, IG_ROPE_MAIN);
    c->has_sink_scores = true;
    bool is_stated = ig_section_flags(r, c, "attention.rope_pattern", flags);
    for (int l = 0; l < c->n_layers && is_stated && !r->status; l++)
        if (!flags[l]) c->rope.set[l] = IG_ROPE_LEFT_OUT;
}

void ig_gguf_read_hunyuan(ig_section *r, ig_config *c) {
    c->norms.of_heads = IG_HEAD_NORM_EACH;
    c->norms.follow_rope = true;
    ig_gguf_read_no_window(r, c);
}

static void read_arcee(ig_section *r, ig_config *c) {
    c->activation = IG_RELU_SQUARED;
    ig_gguf_read_no_window(r, c);
}

/* Feed-forward parts without a gate. */
static void read_apertus(ig_section *r, ig_config *c) {
    c->norms.of_heads = IG_HEAD_NORM_EACH;
    c->activation = IG_XIELU;
    ig_gguf_read_no_window(r, c);
}

/* Nemotron 4, Minitron. */
static void read_nemotron(ig_section *r, ig_config *c) {
    c->norms.kind = IG_NORM_LAYER;
    c->norms.eps = (float)ig_section_number(r, "attention.layer_norm_epsilon", 0);
    read_arcee(r, c);
}

/* Mistral Small 3.1 and later, and Ministral 3, whose queries grow. */
static void read_mistral3(ig_section *r, ig_config *c) {
    double of_all = ig_section_scale(r, "rope.scaling.yarn_log_multiplier", 0);
    read_one_window(r, c);
    if (c->rope.blend == IG_BLEND_YARN && of_all > 0)
        c->rope.gain = (1 + 0.1 * log(c->rope.factor)) / (1 + 0.1 * of_all * log(c->rope.factor));
    c->rope.query_growth = ig_section_scale(r, "attention.temperature_scale", 0);
    if (c->rope.query_growth > 0 && !r->status)
        c->rope.original_ctx = ig_section_int(r, "rope.scaling.original_context_length", IG_MAX_CTX, c->n_ctx_train);
}

/* And OLMo 3, which has windows. */
static void read_olmo2(ig_section *r, ig_config *c) {
    c->norms.order = IG_NORMS_OF_PARTS;
    c->norms.of_heads = IG_HEAD_NORM_ALL;
    ig_section_read_local_windows(r, c, 4, c->rope.theta);
}

static void read_phi3(ig_section *r, ig_config *c) {
    c->file.is_gate_up_fused = true;
    read_one_window(r, c);
    if (!ig_gguf_tensor(r->g, "rope_factors_long.weight")) return;
    c->rope.blend = IG_BLEND_LONGROPE;
    c->rope.gain = ig_section_ranged(r, "rope.scaling.attn_factor", IG_LEAST_GAIN, IG_MAX_GAIN, 1);
}

/* MiniCPM, whose older files do not state its scales. */
static void read_minicpm(ig_section *r, ig_config *c) {
    ig_gguf_read_no_window(r, c);
    c->embed_scale = ig_section_scale(r, "embedding_scale", 12);
    c->residual_scale = ig_section_scale(r, "residual_scale", 1.4 / sqrt(c->n_layers));
    c->logit_scale = ig_section_scale(r, "logit_scale", c->d_model / 256.0);
}

/* Of a model that ranks texts. */
static void check_classes(ig_section *r) {
    ig_section_key key = ig_section_name(r, "classifier.output_labels");
    const ig_gguf_value *v = ig_gguf_find(r->g, key.text);
    bool are_texts = v && v->type == IG_GGUF_ARRAY && v->item_type == IG_GGUF_STRING;
    if (!v || r->status) return;
    if (!are_texts || v->n_items != 2 || !ig_text_is(ig_gguf_array_string(v, 0), "yes") ||
        !ig_text_is(ig_gguf_array_string(v, 1), "no"))
        r->status = ig_fail(r->err, IG_E_UNSUPPORTED, "%s: key '%s' must be \"yes\" and \"no\"", r->path, key.text);
}

void ig_gguf_read_qwen3(ig_section *r, ig_config *c) {
    check_classes(r);
    c->norms.of_heads = IG_HEAD_NORM_EACH;
    ig_gguf_read_no_window(r, c);
}

/* Layers that do not attend: one by one, or all but every last of so many. */
static void read_recurrence(ig_section *r, ig_config *c) {
    int interval = ig_section_int(r, "full_attention_interval", IG_MAX_LAYERS, 4), n_layers = c->n_layers;
    c->n_layers += c->file.n_layers_left_out; /* a list has them, too */
    bool is_stated = ig_section_flags(r, c, "attention.recurrent_layers", c->is_recurrent);
    c->n_layers = n_layers;
    for (int l = 0; l < n_layers && !is_stated; l++) c->is_recurrent[l] = (l + 1) % interval != 0;
    read_state(r, c, IG_GATED_DELTA_NET);
    c->recurrence.is_tiled = true;
}

static void read_qwen35(ig_section *r, ig_config *c) {
    c->norms.of_heads = IG_HEAD_NORM_EACH;
    c->has_attn_gate = c->is_gate_in_q = true;
    c->file.is_qkv_fused = false; /* it is what layers without attention call theirs */
    c->file.n_layers_left_out = ig_section_count(r, "nextn_predict_layers", c->n_layers - 1);
    c->n_layers -= c->file.n_layers_left_out;
    ig_gguf_read_no_window(r, c);
    read_recurrence(r, c);
}

static void read_qwen35moe(ig_section *r, ig_config *c) {
    read_qwen35(r, c);
    ig_section_read_experts(r, c);
    c->d_ff = ig_section_int(r, "expert_feed_forward_length", IG_MAX_WIDTH, -1);
    c->experts.d_shared = ig_section_int(r, "expert_shared_feed_forward_length", IG_MAX_WIDTH, c->d_ff);
    c->experts.is_shared_gated = true;
}

/* Qwen3-Next. */
static void read_qwen3next(ig_section *r, ig_config *c) {
    read_qwen35moe(r, c);
    c->recurrence.is_tiled = false;
    c->recurrence.has_gate_pairs = true;
}

/* Each layer has attention and Mamba 2, of the same input. */
static void read_falcon_h1(ig_section *r, ig_config *c) {
    ig_gguf_read_no_window(r, c);
    read_state(r, c, IG_MAMBA_2);
    c->is_state_beside = true;
    c->has_no_state_norm = !ig_gguf_tensor(r->g, "blk.0.ssm_norm.weight");
}

/* Nemotron-H. Parts of layers are numbered one by one: those that attend have heads of keys and values, feed-forward
 * parts a width, and recurrences neither. */
static void read_nemotron_h(ig_section *r, ig_config *c) {
    ig_part parts[IG_MAX_LAYERS];
    c->file.n_layers_left_out = ig_section_count(r, "nextn_predict_layers", c->n_layers - 1);
    int n = c->n_layers - c->file.n_layers_left_out;
    for (int i = 0; i < n; i++)
        parts[i] = !c->has_no_ffn[i] ? IG_PART_FFN : c->is_recurrent[i] ? IG_PART_RECURRENCE : IG_PART_ATTENTION;
    if (!ig_config_join_parts(c, parts, n) && !r->status)
        r->status =
            ig_fail(r->err, IG_E_UNSUPPORTED, "%s: key '%s': a feed-forward part follows none that mixes tokens",
                    r->path, ig_section_name(r, "feed_forward_length").text);
    c->rope.kind = IG_ROPE_NONE;
    c->activation = IG_RELU_SQUARED;
    if (c->norms.eps == 0) c->norms.eps = (float)ig_section_number(r, "attention.layer_norm_epsilon", 0);
    ig_gguf_read_no_window(r, c);
    read_state(r, c, IG_MAMBA_2);
}

static void read_nemotron_h_moe(ig_section *r, ig_config *c) {
    read_nemotron_h(r, c);
    c->d_ff = ig_section_int(r, "expert_feed_forward_length", IG_MAX_WIDTH, c->d_ff);
    c->experts.d_shared = ig_section_int(r, "expert_shared_feed_forward_length", IG_MAX_WIDTH, -1);
    c->experts.width = ig_section_count(r, "moe_latent_size", IG_MAX_WIDTH);
    ig_gguf_read_sigmoid_shares(r, c);
}

/* Spark X2.5. */
static void read_spark2_5(ig_section *r, ig_config *c) {
    c->activation = IG_GELU_GATED;
    c->has_attn_gate = c->is_gate_of_heads = true;
    ig_section_read_local_windows(r, c, 4, c->rope.theta);
    c->rope.local_n = ig_section_int(r, "rope.dimension_count_swa", IG_KV_DIMS, c->rope.n ? c->rope.n : IG_KV_DIMS);
    if (c->rope.blend && !r->status)
        r->status = ig_fail(r->err, IG_E_UNSUPPORTED, "%s: key '%s' is of frequencies that are not all stretched alike",
                            r->path, ig_section_name(r, "rope.scaling.type").text);
}

/* LFM2. Layers that do not attend have no heads of keys and values. */
static void read_lfm2(ig_section *r, ig_config *c) {
    c->norms.of_heads = IG_HEAD_NORM_EACH;
    ig_gguf_read_no_window(r, c);
    c->recurrence = ig_config_short_convolution(c, ig_section_int(r, "shortconv.l_cache", IG_RECURRENCE_TAPS, -1));
}

/* Their shares add up to 1, which no key says. */
static void read_lfm2moe(ig_section *r, ig_config *c) {
    read_lfm2(r, c);
    ig_config_set_plain_layers(c, ig_section_count(r, "leading_dense_block_count", c->n_layers - 1));
    c->d_ff = ig_section_int(r, "expert_feed_forward_length", IG_MAX_WIDTH, -1);
    ig_gguf_read_sigmoid_experts(r, c);
}

static void read_smollm3(ig_section *r, ig_config *c) {
    for (int l = 3; l < c->n_layers; l += 4) c->rope.set[l] = IG_ROPE_LEFT_OUT;
    ig_gguf_read_no_window(r, c);
}

/* Attention and the feed-forward part side by side. */
static void read_side_by_side(ig_section *r, ig_config *c) {
    c->norms.kind = IG_NORM_LAYER_UNBIASED;
    c->norms.order = IG_NORMS_SHARED;
    c->norms.eps = (float)ig_section_number(r, "attention.layer_norm_epsilon", 0);
    c->logit_scale = 1 / ig_section_scale(r, "logit_scale", 1);
}

/* Norms with biases, and feed-forward parts without a gate. */
static void read_starcoder2(ig_section *r, ig_config *c) {
    c->norms.kind = IG_NORM_LAYER;
    c->norms.eps = (float)ig_section_number(r, "attention.layer_norm_epsilon", 0);
    c->activation = IG_GELU;
    read_one_window(r, c);
}

/* Phi-1, 1.5 and 2: one norm of what attention and the feed-forward part get. */
static void read_phi2(ig_section *r, ig_config *c) {
    read_starcoder2(r, c);
    c->norms.order = IG_NORMS_SHARED;
}

/* The same where there is no other norm: files say so of some that have one. */
static void read_stablelm(ig_section *r, ig_config *c) {
    bool is_side_by_side;
    c->norms.kind = IG_NORM_LAYER;
    c->norms.eps = (float)ig_section_number(r, "attention.layer_norm_epsilon", 0);
    ig_gguf_bool(r->g, ig_section_name(r, "use_parallel_residual").text, &is_side_by_side, &r->status, r->err);
    c->norms.order = ig_gguf_tensor(r->g, "blk.0.ffn_norm.weight") ? IG_NORMS_BEFORE : IG_NORMS_SHARED;
    ig_gguf_read_no_window(r, c);
}

/* Pythia and others. */
static void read_gptneox(ig_section *r, ig_config *c) {
    bool is_side_by_side = true;
    read_starcoder2(r, c);
    c->activation = IG_GELU_ERF;
    ig_gguf_bool(r->g, ig_section_name(r, "use_parallel_residual").text, &is_side_by_side, &r->status, r->err);
    c->norms.order = is_side_by_side ? IG_NORMS_APART : IG_NORMS_BEFORE;
}

static void read_command_r(ig_section *r, ig_config *c) {
    read_side_by_side(r, c);
    ig_gguf_read_no_window(r, c);
}

/* Layers without a window do not rotate. */
void ig_gguf_read_cohere2(ig_section *r, ig_config *c) {
    read_side_by_side(r, c);
    ig_section_int(r, "attention.sliding_window", IG_MAX_CTX, -1); /* without it no layer would be known to rotate */
    ig_gguf_read_windows(r, c, 4, IG_ROPE_MAIN, IG_ROPE_LEFT_OUT);
}

/* ---- the table -------------------------------------------------------------------------------- */

static const ig_gguf_family families[] = {
    {"afmoe", IG_ROPE_HALF, ig_gguf_read_afmoe, {LATER_EXPERT_KEYS}},
    {"apertus", IG_ROPE_HALF, read_apertus, {NULL}},
    {"arcee", IG_ROPE_PAIRED, read_arcee, {NULL}},
    {"bailingmoe", IG_ROPE_PAIRED, ig_gguf_read_deepseek, {LATER_EXPERT_KEYS}},
    {"bailingmoe2",
     IG_ROPE_HALF,
     ig_gguf_read_bailingmoe2,
     {LATER_EXPERT_KEYS, "expert_group_count", "expert_group_used_count", "expert_shared_feed_forward_length"}},
    {"chatglm", IG_ROPE_ADJACENT, read_chatglm, {NULL}},
    {"cohere2",
     IG_ROPE_ADJACENT,
     ig_gguf_read_cohere2,
     {"attention.layer_norm_epsilon", "attention.sliding_window_pattern", "logit_scale"}},
    {"cohere2moe",
     IG_ROPE_ADJACENT,
     ig_gguf_read_cohere2moe,
     {LATER_EXPERT_KEYS, "attention.layer_norm_epsilon", "attention.sliding_window_pattern",
      "expert_shared_feed_forward_length", "logit_scale"}},
    {"command-r", IG_ROPE_ADJACENT, read_command_r, {"attention.layer_norm_epsilon", "logit_scale"}},
    {"deepseek", IG_ROPE_PAIRED, ig_gguf_read_deepseek, {LATER_EXPERT_KEYS}},
    {"deepseek2", IG_ROPE_ADJACENT, ig_gguf_read_deepseek2, {LATENT_KEYS}},
    {"deepseek32", IG_ROPE_ADJACENT, ig_gguf_read_deepseek32, {LATENT_KEYS, INDEX_KEYS}},
    {"dots1", IG_ROPE_HALF, ig_gguf_read_glm4moe, {LATER_EXPERT_KEYS}},
    {"ernie4_5", IG_ROPE_ADJACENT, ig_gguf_read_no_window, {NULL}},
    {"ernie4_5-moe",
     IG_ROPE_ADJACENT,
     ig_gguf_read_ernie4_5_moe,
     {EXPERT_KEYS, "expert_feed_forward_length", "expert_shared_count", "expert_shared_feed_forward_length",
      "interleave_moe_layer_step", "leading_dense_block_count"}},
    {"exaone", IG_ROPE_HALF, ig_gguf_read_no_window, {NULL}},
    {"exaone4", IG_ROPE_HALF, read_exaone4, {"attention.sliding_window_pattern"}},
    {"exaone-moe",
     IG_ROPE_HALF,
     ig_gguf_read_exaone_moe,
     {LATER_EXPERT_KEYS, "attention.sliding_window_pattern", "expert_shared_feed_forward_length"}},
    {"falcon-h1", IG_ROPE_HALF, read_falcon_h1, {STATE_KEYS}},
    {"gemma", IG_ROPE_HALF, read_gemma, {NULL}},
    {"gemma2",
     IG_ROPE_HALF,
     read_gemma2,
     {"attention.sliding_window_pattern", "attn_logit_softcapping", "final_logit_softcapping"}},
    {"gemma3", IG_ROPE_HALF, read_gemma3, {"attention.sliding_window_pattern", "rope.freq_base_swa"}},
    {"gemma4",
     IG_ROPE_HALF,
     ig_gguf_read_gemma4,
     {EXPERT_KEYS, "attention.head_count_kv", "attention.key_length_swa", "attention.shared_kv_layers",
      "attention.sliding_window_pattern", "attention.value_length_swa", "embedding_length_per_layer_input",
      "expert_feed_forward_length", "feed_forward_length", "final_logit_softcapping", "rope.dimension_count_swa",
      "rope.freq_base_swa"}},
    {"glm4", IG_ROPE_ADJACENT, read_glm4, {NULL}},
    {"glm4moe", IG_ROPE_HALF, ig_gguf_read_glm4moe, {LATER_EXPERT_KEYS}},
    {"glm-dsa", IG_ROPE_ADJACENT, ig_gguf_read_glm_dsa, {LATENT_KEYS, INDEX_KEYS}},
    {"gpt-oss",
     IG_ROPE_HALF,
     ig_gguf_read_gpt_oss,
     {EXPERT_KEYS, "attention.sliding_window_pattern", "expert_feed_forward_length"}},
    {"gptneox", IG_ROPE_HALF, read_gptneox, {"attention.layer_norm_epsilon", "use_parallel_residual"}},
    {"granite", IG_ROPE_PAIRED, read_granite, {GRANITE_KEYS, EXPERT_KEYS, "expert_shared_feed_forward_length"}},
    {"granite_swa",
     IG_ROPE_PAIRED,
     read_granite_swa,
     {SCALE_KEYS, "attention.rope_pattern", "attention.sliding_window_pattern"}},
    {"granitehybrid",
     IG_ROPE_PAIRED,
     read_granitehybrid,
     {GRANITE_KEYS, EXPERT_KEYS, "expert_shared_feed_forward_length"}},
    {"granitemoe", IG_ROPE_PAIRED, read_granite, {GRANITE_KEYS, EXPERT_KEYS}},
    {"hunyuan-dense", IG_ROPE_HALF, ig_gguf_read_hunyuan, {NULL}},
    {"hunyuan-moe",
     IG_ROPE_HALF,
     ig_gguf_read_hunyuan_moe,
     {EXPERT_KEYS, "expert_feed_forward_length", "expert_shared_count", "expert_shared_feed_forward_length"}},
    {"hy_v3",
     IG_ROPE_HALF,
     ig_gguf_read_hy_v3,
     {EXPERT_KEYS, "expert_feed_forward_length", "expert_gating_func", "expert_shared_feed_forward_length",
      "expert_weights_norm", "expert_weights_scale", "nextn_predict_layers"}},
    {"internlm2", IG_ROPE_PAIRED, ig_gguf_read_no_window, {NULL}},
    {"kimi-linear", IG_ROPE_HALF, ig_gguf_read_kimi_linear, {LATENT_KEYS, "kda.head_dim", "ssm.conv_kernel"}},
    {"laguna",
     IG_ROPE_HALF,
     ig_gguf_read_laguna,
     {LATER_EXPERT_KEYS, "attention.head_count", "attention.sliding_window_pattern",
      "expert_shared_feed_forward_length", "rope.dimension_count_swa", "rope.freq_base_swa"}},
    {"lfm2", IG_ROPE_HALF, read_lfm2, {"shortconv.l_cache"}},
    {"lfm2moe", IG_ROPE_HALF, read_lfm2moe, {LATER_EXPERT_KEYS, "shortconv.l_cache"}},
    {"llama", IG_ROPE_PAIRED, read_llama, {EXPERT_KEYS}},
    {"llama4",
     IG_ROPE_ADJACENT,
     ig_gguf_read_llama4,
     {EXPERT_KEYS, "expert_feed_forward_length", "interleave_moe_layer_step"}},
    {"maincoder", IG_ROPE_ADJACENT, ig_gguf_read_hunyuan, {NULL}},
    {"mellum",
     IG_ROPE_HALF,
     ig_gguf_read_mellum,
     {EXPERT_KEYS, "attention.sliding_window_pattern", "expert_feed_forward_length", "rope.freq_base_swa"}},
    {"minicpm", IG_ROPE_PAIRED, read_minicpm, {SCALE_KEYS}},
    {"minimax-m2",
     IG_ROPE_HALF,
     ig_gguf_read_minimax_m2,
     {EXPERT_KEYS, "expert_feed_forward_length", "expert_gating_func"}},
    {"minimax-m3",
     IG_ROPE_HALF,
     ig_gguf_read_minimax_m3,
     {LATER_EXPERT_KEYS, INDEX_KEYS, "attention.indexer.block_size", "attention.indexer.local_blocks"}},
    {"mistral3", IG_ROPE_PAIRED, read_mistral3, {"attention.temperature_scale", "rope.scaling.yarn_log_multiplier"}},
    {"mistral4", IG_ROPE_ADJACENT, ig_gguf_read_deepseek2, {LATENT_KEYS}},
    {"muse-glimmer",
     IG_ROPE_PAIRED,
     read_muse_glimmer,
     {"attention.sliding_window_pattern", "final_logit_softcapping", "logit_scale", "rope.freq_base_swa"}},
    {"nemotron", IG_ROPE_HALF, read_nemotron, {"attention.layer_norm_epsilon"}},
    {"nemotron_h", IG_ROPE_HALF, read_nemotron_h, {STATE_KEYS, "attention.layer_norm_epsilon", "nextn_predict_layers"}},
    {"nemotron_h_moe",
     IG_ROPE_HALF,
     read_nemotron_h_moe,
     {STATE_KEYS, LATER_EXPERT_KEYS, "attention.layer_norm_epsilon", "expert_shared_feed_forward_length",
      "moe_latent_size"}},
    {"olmo2", IG_ROPE_HALF, read_olmo2, {"attention.sliding_window_pattern", "rope.freq_base_swa"}},
    {"olmoe", IG_ROPE_HALF, ig_gguf_read_olmoe, {EXPERT_KEYS}},
    {"pangu-embedded", IG_ROPE_HALF, ig_gguf_read_no_window, {NULL}},
    {"phi2", IG_ROPE_HALF, read_phi2, {"attention.layer_norm_epsilon"}},
    {"phi3", IG_ROPE_HALF, read_phi3, {"rope.scaling.attn_factor"}},
    {"qwen2", IG_ROPE_HALF, ig_gguf_read_no_window, {NULL}},
    {"qwen2moe",
     IG_ROPE_HALF,
     ig_gguf_read_qwen2moe,
     {EXPERT_KEYS, "expert_feed_forward_length", "expert_shared_feed_forward_length"}},
    {"qwen2vl", IG_ROPE_HALF, ig_gguf_read_no_window, {PICTURE_KEYS}},
    {"qwen3", IG_ROPE_HALF, ig_gguf_read_qwen3, {"classifier.output_labels"}},
    {"qwen35", IG_ROPE_HALF, read_qwen35, {RECURRENCE_KEYS}},
    {"qwen35moe",
     IG_ROPE_HALF,
     read_qwen35moe,
     {RECURRENCE_KEYS, EXPERT_KEYS, "expert_feed_forward_length", "expert_shared_feed_forward_length"}},
    {"qwen3moe", IG_ROPE_HALF, ig_gguf_read_qwen3moe, {EXPERT_KEYS, "expert_feed_forward_length"}},
    {"qwen3next",
     IG_ROPE_HALF,
     read_qwen3next,
     {RECURRENCE_KEYS, EXPERT_KEYS, "expert_feed_forward_length", "expert_shared_feed_forward_length"}},
    {"qwen3vl", IG_ROPE_HALF, ig_gguf_read_qwen3, {PICTURE_KEYS}},
    {"qwen3vlmoe", IG_ROPE_HALF, ig_gguf_read_qwen3moe, {EXPERT_KEYS, PICTURE_KEYS, "expert_feed_forward_length"}},
    {"seed_oss", IG_ROPE_HALF, ig_gguf_read_no_window, {NULL}},
    {"smollm3", IG_ROPE_PAIRED, read_smollm3, {NULL}},
    {"spark2_5",
     IG_ROPE_HALF,
     read_spark2_5,
     {"attention.sliding_window_pattern", "rope.dimension_count_swa", "rope.freq_base_swa"}},
    {"stablelm", IG_ROPE_HALF, read_stablelm, {"attention.layer_norm_epsilon", "use_parallel_residual"}},
    {"starcoder2", IG_ROPE_HALF, read_starcoder2, {"attention.layer_norm_epsilon"}},
};

const ig_gguf_family *ig_gguf_family_named(ig_text name) {
    for (size_t i = 0; i < IG_COUNT(families); i++)
        if (ig_text_is(name, families[i].name)) return &families[i];
    return NULL;
}
