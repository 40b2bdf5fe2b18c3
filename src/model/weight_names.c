/* SPDX-License-Identifier: Apache-2.0
 *
 * Two tables of names, and where families have others.
 */
#include "model/weight_names.h"

#include <stdio.h>
#include <string.h>

#include "base/compiler.h"

static const ig_weight_names gguf_names = {
    .prefix = "",
    .embed = "token_embd",
    .final_norm = "output_norm",
    .head = "output.weight",
    .attn_norm = "blk.%d.attn_norm",
    .q = "blk.%d.attn_q",
    .k = "blk.%d.attn_k",
    .v = "blk.%d.attn_v",
    .o = "blk.%d.attn_output",
    .q_norm = "blk.%d.attn_q_norm",
    .k_norm = "blk.%d.attn_k_norm",
    .ffn_norm = "blk.%d.ffn_norm",
    .gate = "blk.%d.ffn_gate",
    .up = "blk.%d.ffn_up",
    .down = "blk.%d.ffn_down",
    .attn_norm_after = "blk.%d.post_attention_norm",
    .ffn_norm_after = "blk.%d.post_ffw_norm",
    .attn_gate = "blk.%d.attn_gate",
    .mixed = "blk.%d.attn_qkv",
    .mixed_gate = "blk.%d.attn_gate",
    .beta = "blk.%d.ssm_beta",
    .alpha = "blk.%d.ssm_alpha",
    .taps = "blk.%d.ssm_conv1d",
    .decay = "blk.%d.ssm_a",
    .decay_bias = "blk.%d.ssm_dt.bias",
    .skip = "blk.%d.ssm_d",
    .mixed_norm = "blk.%d.ssm_norm.weight",
    .mixed_out = "blk.%d.ssm_out",
    .taps_q = "blk.%d.ssm_conv1d_q",
    .taps_k = "blk.%d.ssm_conv1d_k",
    .taps_v = "blk.%d.ssm_conv1d_v",
    .mixed_gate_in = "blk.%d.ssm_g_a",
    .alpha_in = "blk.%d.ssm_f_a",
    .sinks = "blk.%d.attn_sinks.weight",
    .q_in = "blk.%d.attn_q_a",
    .q_in_norm = "blk.%d.attn_q_a_norm",
    .q_up = "blk.%d.attn_q_b",
    .latent = "blk.%d.attn_kv_a_mqa",
    .latent_norm = "blk.%d.attn_kv_a_norm",
    .keys_up = "blk.%d.attn_k_b",
    .values_up = "blk.%d.attn_v_b",
    .index_q = "blk.%d.indexer.attn_q_b",
    .index_k = "blk.%d.indexer.attn_k",
    .index_norm = "blk.%d.indexer.k_norm",
    .index_q_norm = "blk.%d.indexer.q_norm",
    .index_weights = "blk.%d.indexer.proj",
    .qkv = "blk.%d.attn_qkv",
    .gate_up = "blk.%d.ffn_up",
    .expert_suffix = ".weight",
    .expert_bias = ".bias",
    .shared_share = "blk.%d.ffn_gate_inp_shexp",
    .router = "blk.%d.ffn_gate_inp",
    .expert_gate = "blk.%d.ffn_gate_exps",
    .expert_up = "blk.%d.ffn_up_exps",
    .expert_down = "blk.%d.ffn_down_exps",
    .router_bias = "blk.%d.exp_probs_b.bias",
    .experts_in = "blk.%d.ffn_latent_down",
    .experts_out = "blk.%d.ffn_latent_up",
    .shared_gate = "blk.%d.ffn_gate_shexp",
    .shared_up = "blk.%d.ffn_up_shexp",
    .shared_down = "blk.%d.ffn_down_shexp",
    .router_scale = "blk.%d.ffn_gate_inp.scale",
    .expert_scales = "blk.%d.ffn_down_exps.scale",
    .experts_norm = "blk.%d.pre_ffw_norm_2",
    .experts_norm_after = "blk.%d.post_ffw_norm_2",
    .shared_norm_after = "blk.%d.post_ffw_norm_1",
    .input_table = "per_layer_token_embd",
    .input_in = "per_layer_model_proj",
    .input_norm = "per_layer_proj_norm",
    .input_gate = "blk.%d.inp_gate",
    .input_out = "blk.%d.proj",
    .input_norm_after = "blk.%d.post_norm",
    .layer_scale = "blk.%d.layer_output_scale.weight",
};

static const ig_weight_names hf_names = {
    .prefix = "model.",
    .embed = "embed_tokens",
    .final_norm = "norm",
    .head = "lm_head.weight",
    .attn_norm = "layers.%d.input_layernorm",
    .q = "layers.%d.self_attn.q_proj",
    .k = "layers.%d.self_attn.k_proj",
    .v = "layers.%d.self_attn.v_proj",
    .o = "layers.%d.self_attn.o_proj",
    .q_norm = "layers.%d.self_attn.q_norm",
    .k_norm = "layers.%d.self_attn.k_norm",
    .ffn_norm = "layers.%d.post_attention_layernorm",
    .gate = "layers.%d.mlp.gate_proj",
    .up = "layers.%d.mlp.up_proj",
    .down = "layers.%d.mlp.down_proj",
    .attn_norm_after = "layers.%d.post_attention_layernorm",
    .ffn_norm_after = "layers.%d.post_feedforward_layernorm",
    .attn_gate = "layers.%d.self_attn.gate_proj",
    .mixed = "layers.%d.linear_attn.in_proj_qkv",
    .mixed_gate = "layers.%d.linear_attn.in_proj_z",
    .beta = "layers.%d.linear_attn.in_proj_b",
    .alpha = "layers.%d.linear_attn.in_proj_a",
    .taps = "layers.%d.linear_attn.conv1d",
    .decay = "layers.%d.linear_attn.A_log",
    .decay_bias = "layers.%d.linear_attn.dt_bias",
    .mixed_norm = "layers.%d.linear_attn.norm.weight",
    .mixed_out = "layers.%d.linear_attn.out_proj",
    .taps_q = "layers.%d.self_attn.q_conv1d",
    .taps_k = "layers.%d.self_attn.k_conv1d",
    .taps_v = "layers.%d.self_attn.v_conv1d",
    .mixed_gate_in = "layers.%d.self_attn.g_a_proj",
    .alpha_in = "layers.%d.self_attn.f_a_proj",
    .sinks = "layers.%d.self_attn.sinks",
    .q_in = "layers.%d.self_attn.q_a_proj",
    .q_in_norm = "layers.%d.self_attn.q_a_layernorm",
    .q_up = "layers.%d.self_attn.q_b_proj",
    .latent = "layers.%d.self_attn.kv_a_proj_with_mqa",
    .latent_norm = "layers.%d.self_attn.kv_a_layernorm",
    .keys_values_up = "layers.%d.self_attn.kv_b_proj",
    .index_q = "layers.%d.self_attn.indexer.wq_b",
    .index_k = "layers.%d.self_attn.indexer.wk",
    .index_norm = "layers.%d.self_attn.indexer.k_norm",
    .index_weights = "layers.%d.self_attn.indexer.weights_proj",
    .activation = "layers.%d.mlp.act_fn.",
    .qkv = "layers.%d.self_attn.qkv_proj",
    .gate_up = "layers.%d.mlp.gate_up_proj",
    .expert_suffix = ".weight",
    .expert_bias = ".bias",
    .shared_share = "layers.%d.mlp.shared_expert_gate",
    .router = "layers.%d.mlp.gate",
    .expert_gate = "layers.%d.mlp.experts.%d.gate_proj",
    .expert_up = "layers.%d.mlp.experts.%d.up_proj",
    .expert_down = "layers.%d.mlp.experts.%d.down_proj",
    .router_bias = "layers.%d.mlp.gate.e_score_correction_bias",
    .shared_gate = "layers.%d.mlp.shared_experts.gate_proj",
    .shared_up = "layers.%d.mlp.shared_experts.up_proj",
    .shared_down = "layers.%d.mlp.shared_experts.down_proj",
    .router_scale = "layers.%d.router.scale",
    .expert_scales = "layers.%d.router.per_expert_scale",
    .experts_norm = "layers.%d.pre_feedforward_layernorm_2",
    .experts_norm_after = "layers.%d.post_feedforward_layernorm_2",
    .shared_norm_after = "layers.%d.post_feedforward_layernorm_1",
    .input_table = "embed_tokens_per_layer",
    .input_in = "per_layer_model_projection",
    .input_norm = "per_layer_projection_norm",
    .input_gate = "layers.%d.per_layer_input_gate",
    .input_out = "layers.%d.per_layer_projection",
    .input_norm_after = "layers.%d.post_per_layer_input_norm",
    .layer_scale = "layers.%d.layer_scalar",
};

/* Checkpoints of OPT start with "decoder." or just "decoder."; these follow either. */
static const ig_weight_names opt_names = {
    .prefix = "model.decoder.",
    .embed = "embed_tokens",
    .final_norm = "final_layer_norm",
    .head = "lm_head.weight",
    .attn_norm = "layers.%d.self_attn_layer_norm",
    .q = "layers.%d.self_attn.q_proj",
    .k = "layers.%d.self_attn.k_proj",
    .v = "layers.%d.self_attn.v_proj",
    .o = "layers.%d.self_attn.out_proj",
    .ffn_norm = "layers.%d.final_layer_norm",
    .up = "layers.%d.fc1",
    .down = "layers.%d.fc2",
};

/* ---- what families call otherwise in Hugging Face's files ------------------------------------- */

static void name_afmoe(ig_weight_names *n) {
    n->ffn_norm = "layers.%d.pre_mlp_layernorm";
    n->ffn_norm_after = "layers.%d.post_mlp_layernorm";
    n->router = "layers.%d.mlp.router.gate";
    n->router_bias = "layers.%d.mlp.expert_bias";
}

static void name_apertus(ig_weight_names *n) {
    n->attn_norm = "layers.%d.attention_layernorm";
    n->ffn_norm = "layers.%d.feedforward_layernorm";
}

static void name_ernie4_5_moe(ig_weight_names *n) {
    n->router_bias = "layers.%d.mlp.moe_statics.e_score_correction_bias";
}

static void name_exaone_moe(ig_weight_names *n) { n->router_bias = "layers.%d.mlp.e_score_correction_bias"; }

static void name_gemma3(ig_weight_names *n) { n->ffn_norm = "layers.%d.pre_feedforward_layernorm"; }

static void name_gemma4(ig_weight_names *n) {
    name_gemma3(n);
    n->router = "layers.%d.router.proj";
    n->shared_gate = n->gate;
    n->shared_up = n->up;
    n->shared_down = n->down;
    n->expert_gate_up = "layers.%d.experts.gate_up_proj";
    n->expert_down = "layers.%d.experts.down_proj";
    n->expert_suffix = "";
}

static void name_glm4(ig_weight_names *n) {
    n->attn_norm_after = "layers.%d.post_self_attn_layernorm";
    n->ffn_norm_after = "layers.%d.post_mlp_layernorm";
}

static void name_gpt_oss(ig_weight_names *n) {
    n->router = "layers.%d.mlp.router";
    n->expert_gate_up = "layers.%d.mlp.experts.gate_up_proj";
    n->expert_down = "layers.%d.mlp.experts.down_proj";
    n->expert_suffix = "";
    n->expert_bias = "_bias";
}

static void name_granitemoe(ig_weight_names *n) {
    n->router = "layers.%d.block_sparse_moe.router.layer";
    n->expert_gate_up = "layers.%d.block_sparse_moe.input_linear";
    n->expert_down = "layers.%d.block_sparse_moe.output_linear";
}

static void name_granite4(ig_weight_names *n) {
    name_granitemoe(n);
    n->mixed = "layers.%d.mamba.in_proj";
    n->taps = "layers.%d.mamba.conv1d";
    n->decay = "layers.%d.mamba.A_log";
    n->decay_bias = "layers.%d.mamba.dt_bias";
    n->skip = "layers.%d.mamba.D";
    n->mixed_norm = "layers.%d.mamba.norm.weight";
    n->mixed_out = "layers.%d.mamba.out_proj";
    n->gate_up = "layers.%d.shared_mlp.input_linear";
    n->down = n->shared_down = "layers.%d.shared_mlp.output_linear";
}

static void name_falcon_h1(ig_weight_names *n) {
    name_granite4(n);
    n->final_norm = "final_layernorm";
    n->ffn_norm = "layers.%d.pre_ff_layernorm";
    n->gate = "layers.%d.feed_forward.gate_proj";
    n->up = "layers.%d.feed_forward.up_proj";
    n->down = "layers.%d.feed_forward.down_proj";
}

static void name_nemotron(ig_weight_names *n) {
    n->embed = "embeddings";
    n->final_norm = "norm_f";
    n->attn_norm = n->ffn_norm = "layers.%d.norm";
    n->q = "layers.%d.mixer.q_proj";
    n->k = "layers.%d.mixer.k_proj";
    n->v = "layers.%d.mixer.v_proj";
    n->o = "layers.%d.mixer.o_proj";
    n->up = "layers.%d.mixer.up_proj";
    n->down = "layers.%d.mixer.down_proj";
    n->router = "layers.%d.mixer.gate";
    n->router_bias = "layers.%d.mixer.gate.e_score_correction_bias";
    n->experts_in = "layers.%d.mixer.fc1_latent_proj";
    n->experts_out = "layers.%d.mixer.fc2_latent_proj";
    n->expert_up = "layers.%d.mixer.experts.%d.up_proj";
    n->expert_down = "layers.%d.mixer.experts.%d.down_proj";
    n->shared_up = "layers.%d.mixer.shared_experts.up_proj";
    n->shared_down = "layers.%d.mixer.shared_experts.down_proj";
    n->mixed = "layers.%d.mixer.in_proj";
    n->taps = "layers.%d.mixer.conv1d";
    n->decay = "layers.%d.mixer.A_log";
    n->decay_bias = "layers.%d.mixer.dt_bias";
    n->skip = "layers.%d.mixer.D";
    n->mixed_norm = "layers.%d.mixer.norm.weight";
    n->mixed_out = "layers.%d.mixer.out_proj";
}

static void name_gpt_neox(ig_weight_names *n) {
    n->embed = "embed_in";
    n->final_norm = "final_layer_norm";
    n->head = "embed_out.weight";
    n->qkv = "layers.%d.attention.query_key_value";
    n->o = "layers.%d.attention.dense";
    n->up = "layers.%d.mlp.dense_h_to_4h";
    n->down = "layers.%d.mlp.dense_4h_to_h";
}

static void name_phi(ig_weight_names *n) {
    n->final_norm = "final_layernorm";
    n->o = "layers.%d.self_attn.dense";
    n->up = "layers.%d.mlp.fc1";
    n->down = "layers.%d.mlp.fc2";
}

static void name_starcoder2(ig_weight_names *n) {
    n->up = "layers.%d.mlp.c_fc";
    n->down = "layers.%d.mlp.c_proj";
}

static void name_hunyuan(ig_weight_names *n) {
    n->q_norm = "layers.%d.self_attn.query_layernorm";
    n->k_norm = "layers.%d.self_attn.key_layernorm";
}

static void name_shared_mlp(ig_weight_names *n) {
    n->shared_gate = "layers.%d.mlp.shared_mlp.gate_proj";
    n->shared_up = "layers.%d.mlp.shared_mlp.up_proj";
    n->shared_down = "layers.%d.mlp.shared_mlp.down_proj";
}

static void name_hunyuan_moe(ig_weight_names *n) {
    name_hunyuan(n);
    n->router = "layers.%d.mlp.gate.wg";
    name_shared_mlp(n);
}

static void name_hy_v3(ig_weight_names *n) {
    n->router = "layers.%d.mlp.router.gate";
    n->router_bias = "layers.%d.mlp.expert_bias";
    name_shared_mlp(n);
}

static void name_lfm2(ig_weight_names *n) {
    n->final_norm = "embedding_norm";
    n->attn_norm = "layers.%d.operator_norm";
    n->ffn_norm = "layers.%d.ffn_norm";
    n->o = "layers.%d.self_attn.out_proj";
    n->q_norm = "layers.%d.self_attn.q_layernorm";
    n->k_norm = "layers.%d.self_attn.k_layernorm";
    n->mixed = "layers.%d.conv.in_proj";
    n->taps = "layers.%d.conv.conv";
    n->mixed_out = "layers.%d.conv.out_proj";
    n->gate = "layers.%d.feed_forward.w1";
    n->up = "layers.%d.feed_forward.w3";
    n->down = "layers.%d.feed_forward.w2";
    n->router = "layers.%d.feed_forward.gate";
    n->router_bias = "layers.%d.feed_forward.expert_bias";
    n->expert_gate = "layers.%d.feed_forward.experts.%d.w1";
    n->expert_up = "layers.%d.feed_forward.experts.%d.w3";
    n->expert_down = "layers.%d.feed_forward.experts.%d.w2";
}

static void name_lfm3(ig_weight_names *n) {
    name_lfm2(n);
    n->o = "layers.%d.self_attn.o_proj";
    n->q_norm = "layers.%d.self_attn.q_norm";
    n->k_norm = "layers.%d.self_attn.k_norm";
    n->attn_norm_after = "layers.%d.post_operator_norm";
    n->ffn_norm_after = "layers.%d.post_ffn_norm";
}

static void name_shared_expert(ig_weight_names *n) {
    n->shared_gate = "layers.%d.mlp.shared_expert.gate_proj";
    n->shared_up = "layers.%d.mlp.shared_expert.up_proj";
    n->shared_down = "layers.%d.mlp.shared_expert.down_proj";
}

static void name_qwen3_next(ig_weight_names *n) {
    name_shared_expert(n);
    n->mixed = "layers.%d.linear_attn.in_proj_qkvz";
    n->mixed_gate = NULL;
    n->beta = "layers.%d.linear_attn.in_proj_ba";
}

static void name_llama4(ig_weight_names *n) {
    n->gate = "layers.%d.feed_forward.gate_proj";
    n->up = "layers.%d.feed_forward.up_proj";
    n->down = "layers.%d.feed_forward.down_proj";
    n->router = "layers.%d.feed_forward.router";
    n->shared_gate = "layers.%d.feed_forward.shared_expert.gate_proj";
    n->shared_up = "layers.%d.feed_forward.shared_expert.up_proj";
    n->shared_down = "layers.%d.feed_forward.shared_expert.down_proj";
    n->expert_gate_up = "layers.%d.feed_forward.experts.gate_up_proj";
    n->expert_down = "layers.%d.feed_forward.experts.down_proj";
    n->expert_suffix = "";
}

static void name_laguna(ig_weight_names *n) {
    n->attn_gate = "layers.%d.self_attn.g_proj";
    n->router_bias = "layers.%d.mlp.experts.e_score_correction_bias";
    name_shared_expert(n);
}

static void name_mixtral(ig_weight_names *n) {
    n->router = "layers.%d.block_sparse_moe.gate";
    n->expert_gate = "layers.%d.block_sparse_moe.experts.%d.w1";
    n->expert_up = "layers.%d.block_sparse_moe.experts.%d.w3";
    n->expert_down = "layers.%d.block_sparse_moe.experts.%d.w2";
}

/* The same with one for all tokens. */
static void name_mixtral_shared(ig_weight_names *n) {
    name_mixtral(n);
    n->shared_gate = "layers.%d.block_sparse_moe.shared_experts.gate_proj";
    n->shared_up = "layers.%d.block_sparse_moe.shared_experts.up_proj";
    n->shared_down = "layers.%d.block_sparse_moe.shared_experts.down_proj";
}

static void name_minimax_m2(ig_weight_names *n) {
    name_mixtral(n);
    n->router_bias = "layers.%d.block_sparse_moe.e_score_correction_bias";
}

static void name_kimi_linear(ig_weight_names *n) {
    name_mixtral_shared(n);
    n->router_bias = "layers.%d.block_sparse_moe.gate.e_score_correction_bias";
    n->mixed_gate = "layers.%d.self_attn.g_b_proj";
    n->alpha = "layers.%d.self_attn.f_b_proj";
    n->beta = "layers.%d.self_attn.b_proj";
    n->decay = "layers.%d.self_attn.A_log";
    n->decay_bias = "layers.%d.self_attn.dt_bias";
    n->mixed_norm = "layers.%d.self_attn.o_norm.weight";
    n->mixed_out = "layers.%d.self_attn.o_proj";
}

static void name_minimax_m3(ig_weight_names *n) {
    name_mixtral_shared(n);
    n->router_bias = "layers.%d.block_sparse_moe.e_score_correction_bias";
    n->index_q = "layers.%d.self_attn.index_q_proj";
    n->index_k = "layers.%d.self_attn.index_k_proj";
    n->index_q_norm = "layers.%d.self_attn.index_q_norm";
    n->index_norm = "layers.%d.self_attn.index_k_norm";
}

static void name_opt(ig_weight_names *n) { *n = opt_names; }

static const struct {
    const char *architecture;
    void (*name)(ig_weight_names *n);
} families[] = {
    {"afmoe", name_afmoe},
    {"apertus", name_apertus},
    {"ernie4_5_moe", name_ernie4_5_moe},
    {"exaone_moe", name_exaone_moe},
    {"falcon_h1", name_falcon_h1},
    {"gemma2", name_gemma3},
    {"gemma3_text", name_gemma3},
    {"gemma4_text", name_gemma4},
    {"gemma4_unified_text", name_gemma4},
    {"glm4", name_glm4},
    {"gpt_neox", name_gpt_neox},
    {"gpt_oss", name_gpt_oss},
    {"granitemoe", name_granitemoe},
    {"granitemoehybrid", name_granite4},
    {"hunyuan_v1_dense", name_hunyuan},
    {"hunyuan_v1_moe", name_hunyuan_moe},
    {"hy_v3", name_hy_v3},
    {"kimi_linear", name_kimi_linear},
    {"laguna", name_laguna},
    {"lfm2", name_lfm2},
    {"lfm2_moe", name_lfm2},
    {"lfm3", name_lfm3},
    {"llama4_text", name_llama4},
    {"minimax_m2", name_minimax_m2},
    {"minimax_m3_vl_text", name_minimax_m3},
    {"mixtral", name_mixtral},
    {"muse_glimmer_text", name_gemma3},
    {"nemotron_h", name_nemotron},
    {"opt", name_opt},
    {"phi", name_phi},
    {"qwen2_moe", name_shared_expert},
    {"qwen3_5_moe_text", name_shared_expert},
    {"qwen3_next", name_qwen3_next},
    {"starcoder2", name_starcoder2},
};

/* By which of the embedding's names the file has. A model that also sees pictures has its text part inside, and one for
 * embeddings alone, which needs no head, has nothing before names. */
static void choose_prefix(ig_weight_names *n, const ig_safetensors *st) {
    static const char *const prefixes[] = {
        "",          "model.",   "model.decoder.", "decoder.", "model.language_model.", "language_model.model.",
        "backbone.", "gpt_neox."};
    static const char inner_head[] = "language_model.lm_head.weight";
    char name[64];
    for (size_t i = 0; i < IG_COUNT(prefixes); i++) {
        snprintf(name, sizeof name, "%s%s.weight", prefixes[i], n->embed);
        if (ig_safetensors_tensor(st, name)) n->prefix = prefixes[i];
    }
    if (ig_safetensors_tensor(st, inner_head)) n->head = inner_head;
}

/* Where each layer's experts are two tensors, these have no suffix. */
static void choose_experts(ig_weight_names *n, const ig_safetensors *st) {
    char name[96];
    snprintf(name, sizeof name, "%slayers.0.mlp.experts.down_proj", n->prefix);
    if (!ig_safetensors_tensor(st, name)) return;
    n->expert_gate_up = "layers.%d.mlp.experts.gate_up_proj";
    n->expert_down = "layers.%d.mlp.experts.down_proj";
    n->expert_suffix = "";
}

void ig_weight_names_choose(ig_weight_names *out, const ig_config *c, const ig_gguf *g, const ig_safetensors *st) {
    *out = g ? gguf_names : hf_names;
    if (g) {
        /* Some families' files call it after what it follows. */
        if (c->norms.order == IG_NORMS_BEFORE && !c->is_state_beside && !ig_gguf_tensor(g, "blk.0.ffn_norm.weight"))
            out->ffn_norm = "blk.%d.post_attention_norm";
        if (c->recurrence.kind == IG_SHORT_CONVOLUTION) {
            out->final_norm = "token_embd_norm";
            out->mixed = "blk.%d.shortconv.in_proj";
            out->taps = "blk.%d.shortconv.conv";
            out->mixed_out = "blk.%d.shortconv.out_proj";
        }
        if (c->experts.is_shared_beside) {
            out->shared_gate = out->gate;
            out->shared_up = out->up;
            out->shared_down = out->down;
        }
        char both[48]; /* of the first layer that has experts */
        snprintf(both, sizeof both, "blk.%d.ffn_gate_up_exps.weight", ig_config_first_expert_layer(c));
        if (ig_gguf_tensor(g, both)) out->expert_gate_up = "blk.%d.ffn_gate_up_exps";
        if (c->file.has_numbered_parts) out->ffn_norm = out->attn_norm;
        if (c->recurrence.kind == IG_MAMBA_2) out->mixed = "blk.%d.ssm_in";
        if (c->recurrence.kind == IG_KIMI_DELTA) {
            out->mixed_gate = "blk.%d.ssm_g_b";
            out->alpha = "blk.%d.ssm_f_b";
            out->mixed_out = out->o;
        }
        if (c->recurrence.has_gate_pairs) out->beta = "blk.%d.ssm_ba";
        if (c->index.block) {
            out->index_q = "blk.%d.indexer.q_proj";
            out->index_k = "blk.%d.indexer.k_proj";
        }
        if (strcmp(c->architecture, "hy_v3") == 0) out->router_bias = "blk.%d.exp_probs_b";
        return;
    }
    for (size_t i = 0; i < IG_COUNT(families); i++)
        if (strcmp(c->architecture, families[i].architecture) == 0) families[i].name(out);
    choose_prefix(out, st);
    choose_experts(out, st);
}
