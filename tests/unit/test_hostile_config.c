/* SPDX-License-Identifier: Apache-2.0
 *
 * Wrong config.json files, each a valid one with one field changed: every one must be refused with the right status
 * and a text that names file and field. (GGUF metadata: test_hostile_gguf.c.)
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/buffer.h"
#include "model/config.h"
#include "unit/count_memory.h"

/* Later fields win over these, which hold for all families. */
static const char *const fields[][2] = {
    {"model_type", "\"llama\""},  {"vocab_size", "100"},
    {"hidden_size", "48"},        {"num_hidden_layers", "3"},
    {"num_attention_heads", "6"}, {"max_position_embeddings", "512"},
    {"intermediate_size", "96"},  {"ffn_dim", "96"},
    {"rms_norm_eps", "1e-5"},     {"rope_theta", "1e4"},
};
enum { N_FIELDS = sizeof fields / sizeof *fields };

/* The valid text with this field set (or left out if value is NULL), of this family. */
static void make_text(ig_buffer *b, const char *family, const char *key, const char *value) {
    ig_buffer_text(b, "{");
    for (int i = 0; i < N_FIELDS; i++) {
        if (strcmp(fields[i][0], key) == 0) continue;
        const char *text = i == 0 ? family : fields[i][1];
        ig_buffer_format(b, i == 0 ? "\"%s\":\"%s\"," : "\"%s\":%s,", fields[i][0], text);
    }
    ig_buffer_format(b, "\"unrelated\":[1,{}]");
    if (value) ig_buffer_format(b, ",\"%s\":%s", key, value);
    ig_buffer_text(b, "}");
}

#define LLAMA3(rest) "{\"rope_type\":\"llama3\"" rest "}"
#define MAMBA "\"num_local_experts\":0,\"layer_types\":[\"mamba\",\"mamba\",\"attention\"]"
#define FALCON LFM2
#define LFM2 "\"num_key_value_heads\":2"
#define NEMOTRON                                                                                             \
    "\"hybrid_override_pattern\":\"ME*\",\"n_groups\":2,\"mamba_num_heads\":4,\"n_routed_experts\":4,\"moe_" \
    "intermediate_size\":8"
#define DEEPSEEK(rank, key, rotating, value)                                                                         \
    "\"kv_lora_rank\":" rank ",\"qk_nope_head_dim\":" key ",\"qk_rope_head_dim\":" rotating ",\"v_head_dim\":" value \
    ",\"first_k_dense_replace\":1,\"n_routed_experts\":16"
#define FP8(blocks) "{\"quant_method\":\"fp8\",\"weight_block_size\":" blocks "}"
#define GROUP(weights) \
    "{\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"group_0\":{\"weights\":" weights "}}}"
#define YARN(rest) "{\"rope_type\":\"yarn\"" rest "}"

static const struct {
    const char *family, *key, *value;
    ig_status wanted;
    const char *field;
} cases[] = {
    {"llama", "model_type", NULL, IG_E_FORMAT, "'model_type' is missing"},
    {"llama", "model_type", "1", IG_E_FORMAT, "'model_type' must be a string"},
    {"gemma9", "x", NULL, IG_E_UNSUPPORTED, "'gemma9' is not supported"},
    {"", "x", NULL, IG_E_UNSUPPORTED, "'model_type' ''"},
    {"llama", "quantization_config", "{\"quant_method\":\"gptq\",\"bits\":3}", IG_E_UNSUPPORTED,
     "'quantization_config'"},
    {"llama", "quantization_config", "{}", IG_E_UNSUPPORTED, "'quantization_config'"},
    {"llama", "quantization_config", "7", IG_E_UNSUPPORTED, "'quantization_config'"},
    {"llama", "quantization_config", "{\"quant_method\":8}", IG_E_FORMAT, "'quant_method' must be a string"},
    {"llama", "quantization_config", "{\"quant_method\":\"modelopt\",\"quant_algo\":\"W4A16_AWQ\"}", IG_E_UNSUPPORTED,
     "'quantization_config'"},
    {"llama", "quantization_config", FP8("8"), IG_E_FORMAT, "'weight_block_size' must be"},
    {"llama", "quantization_config", FP8("[128]"), IG_E_FORMAT, "'weight_block_size' must be"},
    {"llama", "quantization_config", FP8("[0,128]"), IG_E_FORMAT, "'weight_block_size' must be"},
    {"llama", "quantization_config", FP8("[128,1.5]"), IG_E_FORMAT, "'weight_block_size' must be"},
    {"llama", "quantization_config", FP8("[128,100]"), IG_E_FORMAT, "'weight_block_size' must be"},
    {"llama", "quantization_config", FP8("[128,1e300]"), IG_E_FORMAT, "'weight_block_size' must be"},
    {"llama", "quantization_config", GROUP("{\"num_bits\":4,\"type\":\"float\"}"), IG_E_UNSUPPORTED, "'config_groups'"},
    {"llama", "quantization_config", GROUP("{\"num_bits\":6,\"type\":\"int\"}"), IG_E_UNSUPPORTED, "'config_groups'"},
    {"llama", "quantization_config", GROUP("{}"), IG_E_FORMAT, "'num_bits'"},
    {"llama", "quantization_config", "{\"quant_method\":\"fp8\",\"transform_config\":{\"R1\":1}}", IG_E_UNSUPPORTED,
     "'transform_config'"},
    {"qwen3", "num_experts", "128", IG_E_UNSUPPORTED, "'num_experts'"},
    {"llama", "num_local_experts", "8", IG_E_UNSUPPORTED, "'num_local_experts'"},
    {"llama", "final_logit_softcapping", "30.0", IG_E_UNSUPPORTED, "'final_logit_softcapping'"},
    {"granite", "logits_scaling", "1e9", IG_E_FORMAT, "'logits_scaling'"},
    {"granite", "residual_multiplier", "1e-9", IG_E_FORMAT, "'residual_multiplier'"},
    {"gemma3_text", "rope_local_base_freq", "1e-300", IG_E_FORMAT, "'rope_local_base_freq'"},
    {"gemma4_text", "num_kv_shared_layers", "512", IG_E_FORMAT, "'num_kv_shared_layers'"},
    {"gemma4_text", "hidden_size_per_layer_input", "1048577", IG_E_FORMAT, "'hidden_size_per_layer_input'"},
    {"gemma4_text", "rope_scaling", "{\"rope_type\":\"proportional\",\"partial_rotary_factor\":1e300}", IG_E_FORMAT,
     "'partial_rotary_factor'"},
    {"gemma4_text", "global_head_dim", "577", IG_E_FORMAT, "'global_head_dim'"},
    {"gemma4_text", "final_logit_softcapping", "1e300", IG_E_FORMAT, "'final_logit_softcapping'"},
    {"deepseek_v3", "moe_intermediate_size", "8," DEEPSEEK("577", "16", "8", "16"), IG_E_FORMAT, "'kv_lora_rank'"},
    {"deepseek_v3", "moe_intermediate_size", "8," DEEPSEEK("24", "16", "8", "16"), IG_E_UNSUPPORTED, "latents of 24"},
    {"deepseek_v3", "moe_intermediate_size", "8," DEEPSEEK("576", "16", "8", "16"), IG_E_UNSUPPORTED, "584 together"},
    {"deepseek_v3", "moe_intermediate_size", "8," DEEPSEEK("32", "16", "8", "20"), IG_E_UNSUPPORTED, "values of 20"},
    {"deepseek_v3", "moe_intermediate_size", "8," DEEPSEEK("32", "12", "8", "16"), IG_E_UNSUPPORTED, "keys of 12"},
    {"deepseek_v3", "moe_intermediate_size", "8," DEEPSEEK("32", "16", "12", "16"), IG_E_UNSUPPORTED, "12 that rotate"},
    {"deepseek_v3", "moe_intermediate_size", "8," DEEPSEEK("32", "16", "8", "16") ",\"q_lora_rank\":-1", IG_E_FORMAT,
     "'q_lora_rank'"},
    {"deepseek_v3", "moe_intermediate_size", "8," DEEPSEEK("32", "16", "8", "16") ",\"n_group\":3", IG_E_FORMAT,
     "of 3 groups"},
    {"deepseek_v3", "moe_intermediate_size", "8," DEEPSEEK("32", "16", "8", "16") ",\"topk_group\":3", IG_E_FORMAT,
     "'topk_group'"},
    {"deepseek_v3", "moe_intermediate_size", "8," DEEPSEEK("32", "16", "8", "16") ",\"scoring_func\":\"softmax\"",
     IG_E_UNSUPPORTED, "'scoring_func'"},
    {"deepseek_v3", "moe_intermediate_size", "8," DEEPSEEK("32", "16", "8", "16") ",\"attention_bias\":true",
     IG_E_UNSUPPORTED, "'attention_bias'"},
    {"deepseek_v2", "moe_intermediate_size", "8," DEEPSEEK("32", "16", "8", "16") ",\"topk_method\":\"noaux_tc\"",
     IG_E_UNSUPPORTED, "'topk_method'"},
    {"deepseek_v2", "moe_intermediate_size", "8," DEEPSEEK("32", "16", "8", "16") ",\"norm_topk_prob\":true",
     IG_E_UNSUPPORTED, "'norm_topk_prob'"},
    {"glm4_moe_lite", "moe_intermediate_size",
     "8," DEEPSEEK("32", "16", "8", "16") ",\"mlp_layer_types\":[\"dense\",\"dense\"]", IG_E_UNSUPPORTED,
     "'mlp_layer_types'"},
    {"phi3", "partial_rotary_factor", "1.5", IG_E_FORMAT, "'partial_rotary_factor'"},
    {"phi3", "partial_rotary_factor", "1e-9", IG_E_FORMAT, "'partial_rotary_factor'"},
    {"phi3", "rope_scaling", "{\"rope_type\":\"longrope\",\"short_factor\":[1]}", IG_E_FORMAT, "_factor'"},
    {"llama", "partial_rotary_factor", "0.5", IG_E_UNSUPPORTED, "'partial_rotary_factor'"},
    {"llama", "alibi", "true", IG_E_UNSUPPORTED, "'alibi'"},
    {"llama", "residual_multiplier", "0.22", IG_E_UNSUPPORTED, "'residual_multiplier'"},
    {"llama", "vocab_size", NULL, IG_E_FORMAT, "'vocab_size' is missing"},
    {"llama", "vocab_size", "0", IG_E_FORMAT, "'vocab_size' is 0"},
    {"llama", "vocab_size", "-1", IG_E_FORMAT, "'vocab_size' is -1"},
    {"llama", "vocab_size", "4194305", IG_E_FORMAT, "'vocab_size' is 4194305"},
    {"llama", "vocab_size", "9223372036854775807", IG_E_FORMAT, "'vocab_size' is 9223372036854775807"},
    {"llama", "vocab_size", "1.5", IG_E_FORMAT, "'vocab_size' must be an integer"},
    {"llama", "vocab_size", "\"100\"", IG_E_FORMAT, "'vocab_size' must be an integer"},
    {"llama", "hidden_size", "0", IG_E_FORMAT, "'hidden_size' is 0"},
    {"llama", "hidden_size", "2147483648", IG_E_FORMAT, "'hidden_size' is 2147483648"},
    {"llama", "hidden_size", "47", IG_E_FORMAT, "'hidden_size' (47) is no multiple"},
    {"llama", "hidden_size", "6144", IG_E_FORMAT, "heads of 1024"},
    {"llama", "num_hidden_layers", "0", IG_E_FORMAT, "'num_hidden_layers' is 0"},
    {"llama", "num_hidden_layers", "577", IG_E_FORMAT, "'num_hidden_layers' is 577"},
    {"llama", "num_hidden_layers", "[3]", IG_E_FORMAT, "'num_hidden_layers' must be an integer"},
    {"llama", "num_attention_heads", "0", IG_E_FORMAT, "'num_attention_heads' is 0"},
    {"llama", "num_attention_heads", "4097", IG_E_FORMAT, "'num_attention_heads' is 4097"},
    {"llama", "num_key_value_heads", "0", IG_E_FORMAT, "'num_key_value_heads' is 0"},
    {"llama", "num_key_value_heads", "4", IG_E_FORMAT, "'num_key_value_heads' (4)"},
    {"llama", "num_key_value_heads", "12", IG_E_FORMAT, "'num_key_value_heads' (12)"},
    {"llama", "head_dim", "0", IG_E_FORMAT, "'head_dim' is 0"},
    {"llama", "head_dim", "7", IG_E_FORMAT, "'head_dim' is 7"},
    {"llama", "head_dim", "577", IG_E_FORMAT, "'head_dim' is 577"},
    {"llama", "max_position_embeddings", "0", IG_E_FORMAT, "'max_position_embeddings' is 0"},
    {"llama", "max_position_embeddings", "16777217", IG_E_FORMAT, "'max_position_embeddings'"},
    {"llama", "intermediate_size", NULL, IG_E_FORMAT, "'intermediate_size' is missing"},
    {"llama", "intermediate_size", "0", IG_E_FORMAT, "'intermediate_size' is 0"},
    {"llama", "rms_norm_eps", "0", IG_E_FORMAT, "'rms_norm_eps'"},
    {"llama", "rms_norm_eps", "-1e-5", IG_E_FORMAT, "'rms_norm_eps'"},
    {"llama", "rms_norm_eps", "1.0", IG_E_FORMAT, "'rms_norm_eps' is 1"},
    {"llama", "rms_norm_eps", "1e-50", IG_E_FORMAT, "'rms_norm_eps' is 0"},
    {"llama", "rms_norm_eps", "\"NaN\"", IG_E_FORMAT, "'rms_norm_eps' must be a number"},
    {"llama", "rms_norm_eps", "NaN", IG_E_FORMAT, "line 1"},
    {"llama", "rms_norm_eps", "1e999", IG_E_FORMAT, "line 1"},
    {"llama", "hidden_act", "\"gelu\"", IG_E_UNSUPPORTED, "'hidden_act' is 'gelu'"},
    {"llama", "hidden_act", "3", IG_E_FORMAT, "'hidden_act' must be a string"},
    {"llama", "tie_word_embeddings", "1", IG_E_FORMAT, "'tie_word_embeddings' must be true or false"},
    {"llama", "rope_theta", "0", IG_E_FORMAT, "'rope_theta'"},
    {"llama", "rope_theta", "1e16", IG_E_FORMAT, "'rope_theta'"},
    {"llama", "rope_theta", "true", IG_E_FORMAT, "'rope_theta'"},
    {"llama", "rope_scaling", "\"linear\"", IG_E_FORMAT, "'rope_scaling' must be an object"},
    {"llama", "rope_theta", "1", IG_E_FORMAT, "'rope_theta' is 1"},
    {"llama", "rope_scaling", YARN(""), IG_E_FORMAT, "'factor' is missing"},
    {"llama", "rope_scaling", YARN(",\"factor\":0.5"), IG_E_FORMAT, "'factor'"},
    {"llama", "rope_scaling", YARN(",\"factor\":4,\"beta_fast\":1"), IG_E_FORMAT,
     "'beta_fast' must be above 'beta_slow'"},
    {"llama", "rope_scaling", YARN(",\"factor\":4,\"attention_factor\":-1"), IG_E_FORMAT, "'attention_factor'"},
    {"llama", "rope_scaling", YARN(",\"factor\":4,\"attention_factor\":1e30"), IG_E_FORMAT, "'attention_factor'"},
    {"llama", "rope_scaling", YARN(",\"factor\":4,\"attention_factor\":1e-200"), IG_E_FORMAT, "'attention_factor'"},
    {"llama", "rope_scaling", YARN(",\"factor\":4,\"mscale\":1e9,\"mscale_all_dim\":1"), IG_E_FORMAT, "'mscale'"},
    {"llama", "rope_scaling", YARN(",\"factor\":4,\"mscale\":1,\"mscale_all_dim\":1e9"), IG_E_FORMAT, "'mscale'"},
    {"llama", "rope_scaling", YARN(",\"factor\":1e6,\"mscale\":1.7e308,\"mscale_all_dim\":1.7e308"), IG_E_FORMAT,
     "'mscale'"},
    {"llama", "rope_scaling", YARN(",\"factor\":4,\"original_max_position_embeddings\":0"), IG_E_FORMAT,
     "'original_max_position_embeddings' is 0"},
    {"llama", "rope_scaling", "{\"rope_type\":\"longrope\"}", IG_E_UNSUPPORTED, "'longrope'"},
    {"llama", "rope_scaling", "{\"rope_type\":\"dynamic\",\"factor\":2}", IG_E_UNSUPPORTED, "'dynamic'"},
    {"llama", "rope_scaling", "{\"type\":\"su\"}", IG_E_UNSUPPORTED, "'su'"},
    {"llama", "rope_scaling", "{\"type\":1}", IG_E_FORMAT, "'type' must be a string"},
    {"llama", "rope_scaling", "{\"type\":\"linear\"}", IG_E_FORMAT, "'factor' is missing"},
    {"llama", "rope_scaling", "{\"type\":\"linear\",\"factor\":0}", IG_E_FORMAT, "'factor'"},
    {"llama", "rope_scaling", "{\"type\":\"linear\",\"factor\":1e7}", IG_E_FORMAT, "'factor'"},
    {"llama", "rope_scaling", "{\"type\":\"linear\",\"factor\":1e-300}", IG_E_FORMAT, "'factor'"},
    {"llama", "rope_scaling", LLAMA3(""), IG_E_FORMAT, "'factor' is missing"},
    {"llama", "rope_scaling",
     LLAMA3(",\"factor\":8,\"low_freq_factor\":4,\"high_freq_factor\":3,\"original_max_position_embeddings\":64"),
     IG_E_FORMAT, "'high_freq_factor'"},
    {"llama", "rope_scaling",
     LLAMA3(",\"factor\":0.5,\"low_freq_factor\":1,\"high_freq_factor\":4,\"original_max_position_embeddings\":64"),
     IG_E_FORMAT, "'factor'"},
    {"llama", "rope_scaling", LLAMA3(",\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4"), IG_E_FORMAT,
     "'original_max_position_embeddings' is missing"},
    {"llama", "rope_parameters", "{\"full_attention\":{\"rope_theta\":1}}", IG_E_UNSUPPORTED, "'full_attention'"},
    {"llama", "rope_parameters", "{\"partial_rotary_factor\":0.25}", IG_E_UNSUPPORTED, "'partial_rotary_factor'"},
    {"llama", "is_causal", "false", IG_E_UNSUPPORTED, "'is_causal' is 'false'"},
    {"llama", "rope_parameters", "{\"rope_theta\":1e6},\"rope_scaling\":" YARN(",\"factor\":4"), IG_E_UNSUPPORTED,
     "'rope_scaling' is 'set beside"},
    {"mistral", "sliding_window", "0", IG_E_FORMAT, "'sliding_window' is 0"},
    {"mistral", "sliding_window", "\"4096\"", IG_E_FORMAT, "'sliding_window' must be an integer"},
    {"qwen2", "max_window_layers", "\"1\"", IG_E_FORMAT, "'max_window_layers'"},
    {"qwen2", "use_sliding_window", "\"yes\"", IG_E_FORMAT, "'use_sliding_window'"},
    {"qwen2", "layer_types", "[\"full_attention\"]", IG_E_FORMAT, "'layer_types'"},
    {"qwen2", "layer_types", "[\"full_attention\",1,\"full_attention\"]", IG_E_UNSUPPORTED, "'layer_types'"},
    {"qwen3", "layer_types", "[\"full_attention\",\"linear_attention\",\"full_attention\"]", IG_E_UNSUPPORTED,
     "'layer_types' is 'linear_attention'"},
    {"qwen3_5_text", "layer_types", "[\"full_attention\"]", IG_E_FORMAT, "'layer_types'"},
    {"qwen3_5_text", "layer_types", "[\"linear_attention\",\"rwkv\",\"full_attention\"]", IG_E_UNSUPPORTED,
     "'layer_types' is 'rwkv'"},
    {"qwen3_5_text", "full_attention_interval", "4,\"num_key_value_heads\":2", IG_E_UNSUPPORTED, "no layer attends"},
    {"qwen3_5_text", "linear_num_value_heads", "24,\"num_key_value_heads\":2,\"full_attention_interval\":2",
     IG_E_FORMAT, "no multiple of their 16"},
    {"qwen3_5_text", "linear_key_head_dim", "512", IG_E_FORMAT, "'linear_key_head_dim'"},
    {"qwen3_5_text", "linear_conv_kernel_dim", "9", IG_E_FORMAT, "'linear_conv_kernel_dim'"},
    {"granitemoehybrid", "layer_types", NULL, IG_E_FORMAT, "'layer_types' must be a list"},
    {"granitemoehybrid", "mamba_n_heads", "5," MAMBA, IG_E_FORMAT, "'mamba_d_head' must be"},
    {"granitemoehybrid", "mamba_n_heads", "3,\"mamba_n_groups\":2," MAMBA, IG_E_FORMAT, "no multiple of their 2"},
    {"granitemoehybrid", "mamba_d_state", "20,\"mamba_n_heads\":3," MAMBA, IG_E_UNSUPPORTED, "multiples of 16"},
    {"granitemoehybrid", "mamba_d_state", "512,\"mamba_n_heads\":3," MAMBA, IG_E_FORMAT, "'mamba_d_state'"},
    {"granitemoehybrid", "mamba_n_heads", "1,\"mamba_expand\":9," MAMBA, IG_E_UNSUPPORTED, "at most 256"},
    {"granitemoehybrid", "mamba_proj_bias", "true,\"mamba_n_heads\":3," MAMBA, IG_E_UNSUPPORTED, "'mamba_proj_bias'"},
    {"granitemoehybrid", "time_step_limit", "[0.001,0.1],\"mamba_n_heads\":3," MAMBA, IG_E_UNSUPPORTED,
     "'time_step_limit'"},
    {"falcon_h1", "mamba_n_heads", "5,\"mamba_d_ssm\":96,\"mamba_d_head\":16," FALCON, IG_E_FORMAT,
     "'mamba_d_head' must be 'mamba_d_ssm'"},
    {"falcon_h1", "mlp_multipliers", "[1]," FALCON, IG_E_FORMAT, "'mlp_multipliers' must be a list of scales"},
    {"falcon_h1", "ssm_multipliers", "[1,1,0,1,1]," FALCON, IG_E_FORMAT, "'ssm_multipliers' must be"},
    {"falcon_h1", "ssm_multipliers", "[1,1,\"a\",1,1]," FALCON, IG_E_FORMAT, "'ssm_multipliers' must be"},
    {"falcon_h1", "key_multiplier", "1e9," FALCON, IG_E_FORMAT, "'key_multiplier'"},
    {"falcon_h1", "projectors_bias", "true," FALCON, IG_E_UNSUPPORTED, "'projectors_bias'"},
    {"falcon_h1", "mamba_rms_norm", "true," FALCON, IG_E_UNSUPPORTED, "'mamba_norm_before_gate'"},
    {"lfm2", "layer_types", "[\"conv\",\"conv\",\"conv\"]," LFM2, IG_E_UNSUPPORTED, "no layer attends"},
    {"lfm2", "full_attn_idxs", "[]," LFM2, IG_E_UNSUPPORTED, "no layer attends"},
    {"lfm2", "conv_L_cache", "9," LFM2, IG_E_FORMAT, "'conv_L_cache'"},
    {"lfm2", "conv_bias", "true," LFM2, IG_E_UNSUPPORTED, "'conv_bias'"},
    {"lfm2", "block_ffn_dim_multiplier", "1e6," LFM2, IG_E_FORMAT, "'block_ffn_dim_multiplier' must be smaller"},
    {"lfm2", "layer_types", "[\"conv\",\"sliding_attention\",\"full_attention\"]," LFM2, IG_E_UNSUPPORTED,
     "'layer_types' is 'sliding_attention'"},
    {"lfm3", "conv_bias", "true,\"num_key_value_heads\":2", IG_E_UNSUPPORTED, "'conv_bias'"},
    {"lfm3", "layer_types", "[\"conv\"],\"num_key_value_heads\":2", IG_E_FORMAT, "'layer_types' must be a list"},
    {"muse_glimmer_text", "layer_rope_theta", "[0,1]", IG_E_FORMAT, "'layer_rope_theta' must be a list"},
    {"muse_glimmer_text", "layer_rope_theta", "[0,1,2]", IG_E_UNSUPPORTED, "'layer_rope_theta'"},
    {"muse_glimmer_text", "layer_rope_theta", "[0,true,0]", IG_E_FORMAT,
     "'layer_rope_theta' must be a list of numbers"},
    {"muse_glimmer_text", "post_norm_eps", "1e39", IG_E_FORMAT, "'post_norm_eps'"},
    {"muse_glimmer_text", "post_norm_eps", "1e-60", IG_E_FORMAT, "'post_norm_eps'"},
    {"muse_glimmer_text", "hidden_activation", "\"gelu\"", IG_E_UNSUPPORTED, "'hidden_activation' is 'gelu'"},
    {"lfm2_moe", "num_experts_per_tok", "5,\"num_experts\":4,\"moe_intermediate_size\":8," LFM2, IG_E_FORMAT,
     "'num_experts_per_tok'"},
    {"nemotron_h", "layers_block_type", "[]", IG_E_FORMAT, "'layers_block_type' must be a list"},
    {"nemotron_h", "layers_block_type", "3", IG_E_FORMAT, "'layers_block_type' must be a list"},
    {"nemotron_h", "hybrid_override_pattern", "\"M*X\",\"num_key_value_heads\":2", IG_E_UNSUPPORTED,
     "'hybrid_override_pattern' is 'X'"},
    {"nemotron_h", "hybrid_override_pattern", "\"-M*\",\"num_key_value_heads\":2", IG_E_UNSUPPORTED, "follows none"},
    {"nemotron_h", "hybrid_override_pattern", "\"M--*\",\"num_key_value_heads\":2", IG_E_UNSUPPORTED, "follows none"},
    {"nemotron_h", "hybrid_override_pattern", "\"M-*E\",\"num_key_value_heads\":2", IG_E_UNSUPPORTED,
     "experts in some"},
    {"nemotron_h", "hybrid_override_pattern", "\"M-M\",\"num_key_value_heads\":2", IG_E_UNSUPPORTED,
     "no layer attends"},
    {"nemotron_h", "layers_block_type", "[\"mamba\",7,\"attention\"]", IG_E_UNSUPPORTED, "'layers_block_type' is '?'"},
    {"nemotron_h", "mlp_hidden_act", "\"silu\"," NEMOTRON, IG_E_UNSUPPORTED, "'mlp_hidden_act' is 'silu'"},
    {"nemotron_h", "moe_latent_size", "0," NEMOTRON, IG_E_FORMAT, "'moe_latent_size'"},
    {"nemotron_h", "num_experts_per_tok", "5," NEMOTRON, IG_E_FORMAT, "'num_experts_per_tok'"},
    {"nemotron_h", "n_group", "2," NEMOTRON, IG_E_UNSUPPORTED, "'n_group' is 'above 1'"},
    {"opt", "ffn_dim", NULL, IG_E_FORMAT, "'ffn_dim' is missing"},
    {"opt", "ffn_dim", "0", IG_E_FORMAT, "'ffn_dim' is 0"},
    {"opt", "word_embed_proj_dim", "-8", IG_E_FORMAT, "'word_embed_proj_dim' is -8"},
    {"opt", "activation_function", "\"gelu\"", IG_E_UNSUPPORTED, "'activation_function' is 'gelu'"},
    {"opt", "do_layer_norm_before", "0", IG_E_FORMAT, "'do_layer_norm_before'"},
    {"opt", "layer_norm_elementwise_affine", "false", IG_E_UNSUPPORTED, "'layer_norm_elementwise_affine'"},
};

static ig_status read_counted(const char *text, size_t n, ig_error *err) {
    static ig_config c;
    memory_count_start(-1);
    ig_status s = ig_config_from_json(&c, text, n, "hostile/config.json", err);
    memory_count_stop();
    assert_int_equal(memory_count.n_taken, memory_count.n_given);
    assert_true(memory_count.largest <= n + (1 << 20));
    return s;
}

static void refuses_cases(void **state) {
    (void)state;
    int n_wrong = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ig_buffer b = {0};
        ig_error err = {0};
        make_text(&b, cases[i].family, cases[i].key, cases[i].value);
        ig_status s = read_counted(b.data, b.size, &err);
        if (s != cases[i].wanted || !strstr(err.text, cases[i].field) || !strstr(err.text, "hostile/config.json: ")) {
            n_wrong++;
            print_error("%s %s=%s: status %d, wanted %d naming %s: %s\n", cases[i].family, cases[i].key,
                        cases[i].value ? cases[i].value : "", s, cases[i].wanted, cases[i].field, err.text);
        }
        ig_buffer_close(&b);
    }
    assert_int_equal(n_wrong, 0);
}

/* The text that the cases change is valid for every family. */
static void accepts_valid(void **state) {
    (void)state;
    static const char *const names[] = {"llama", "mistral", "qwen2", "qwen3", "opt"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        ig_buffer b = {0};
        ig_error err = {0};
        make_text(&b, names[i], "quantization_config", "null");
        if (read_counted(b.data, b.size, &err)) fail_msg("%s: %s", names[i], err.text);
        ig_buffer_close(&b);
    }
}

static void refuses_texts(void **state) {
    (void)state;
    static const char *const texts[] = {
        "", "{", "[]", "1", "{\"model_type\":\"llama\"", "{\"a\":1,\"a\":2}", "\xef\xbb\xbf{}",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        ig_error err = {0};
        assert_int_equal(read_counted(texts[i], strlen(texts[i]), &err), IG_E_FORMAT);
        assert_non_null(strstr(err.text, "hostile/config.json: "));
    }
}

static void survives_cuts(void **state) {
    (void)state;
    ig_buffer b = {0};
    make_text(&b, "llama", "rope_scaling", LLAMA3(",\"factor\":8"));
    for (size_t n = 0; n < b.size; n++) {
        ig_error err = {0};
        assert_int_equal(read_counted(b.data, n, &err), IG_E_FORMAT);
    }
    ig_buffer_close(&b);
}

static void refuses_directories(void **state) {
    (void)state;
    ig_config c;
    ig_error err = {0};
    assert_int_equal(ig_config_from_hf(&c, "no/such/directory", &err), IG_E_NOT_FOUND);
    assert_non_null(strstr(err.text, "no/such/directory: a directory without config.json"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_cases), cmocka_unit_test(accepts_valid),       cmocka_unit_test(refuses_texts),
        cmocka_unit_test(survives_cuts), cmocka_unit_test(refuses_directories),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
