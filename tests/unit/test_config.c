/* SPDX-License-Identifier: Apache-2.0
 *
 * Configurations: what is read from each family's config.json, both spellings of RoPE settings, defaults, and which
 * layers have a window.
 */
#include <math.h>

#include "unit/json_config.h"

static void reads_llama(void **state) {
    (void)state;
    ig_config c = from_json("{\"model_type\":\"llama\"," LLAMA ",\"rope_scaling\":null,\"head_dim\":null}");
    assert_string_equal(c.architecture, "llama");
    assert_int_equal(c.n_vocab, 100);
    assert_int_equal(c.d_model, 48);
    assert_int_equal(c.d_embed, 48);
    assert_int_equal(c.d_ff, 96);
    assert_int_equal(c.n_layers, 3);
    assert_int_equal(c.n_heads, 6);
    assert_int_equal(c.n_kv_heads, 6);
    assert_int_equal(c.head_dim, 8);
    assert_int_equal(c.rope.n, 8);
    assert_int_equal(c.n_ctx_train, 512);
    assert_int_equal(c.norms.kind, IG_NORM_RMS);
    assert_int_equal(c.activation, IG_SILU_GATED);
    assert_int_equal(c.rope.kind, IG_ROPE_HALF);
    assert_true(c.norms.eps == 1e-6f && c.rope.theta == 10000 && c.rope.linear == 1 && c.rope.blend == IG_BLEND_NONE);
    assert_true(c.norms.has_final && !c.tied && c.norms.order == IG_NORMS_BEFORE);
    assert_int_equal(c.window[0], 0);
    assert_true(fabs(c.attn_scale - 1 / sqrt(8.0)) < 1e-12);
    c = from_json("{\"model_type\":\"llama\"," LLAMA
                  ",\"num_key_value_heads\":2,\"head_dim\":16,\"rms_norm_eps\":1e-5,"
                  "\"rope_theta\":500000.0,\"tie_word_embeddings\":true}");
    assert_int_equal(c.n_kv_heads, 2);
    assert_int_equal(c.head_dim, 16);
    assert_true(c.tied && c.rope.theta == 500000 && c.norms.eps == 1e-5f);
}

static void reads_rope(void **state) {
    (void)state;
#define SCALES "\"factor\":8,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,\"original_max_position_embeddings\":64"
    static const char *const llama3[] = {
        "\"rope_theta\":5e5,\"rope_scaling\":{\"rope_type\":\"llama3\"," SCALES "}",
        "\"rope_theta\":5e5,\"rope_scaling\":{\"type\":\"llama3\"," SCALES "}",
        "\"rope_parameters\":{\"rope_theta\":5e5,\"rope_type\":\"llama3\"," SCALES "}",
    };
    char text[1024];
    for (size_t i = 0; i < 3; i++) {
        snprintf(text, sizeof text, "{\"model_type\":\"llama\"," LLAMA ",%s}", llama3[i]);
        ig_config c = from_json(text);
        assert_true(c.rope.blend == IG_BLEND_LLAMA3 && c.rope.theta == 5e5 && c.rope.factor == 8 &&
                    c.rope.low_freq == 1);
        assert_true(c.rope.high_freq == 4 && c.rope.original_ctx == 64 && c.rope.linear == 1);
    }
    ig_config c =
        from_json("{\"model_type\":\"llama\"," LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.5}}");
    assert_true(c.rope.linear == 2.5 && c.rope.blend == IG_BLEND_NONE);
    c = from_json("{\"model_type\":\"llama\"," LLAMA
                  ",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":7}}");
    assert_true(c.rope.linear == 1 && c.rope.theta == 7);
}

static ig_config with_yarn(const char *rest) {
    char text[1024];
    snprintf(text, sizeof text,
             "{\"model_type\":\"qwen2\"," LLAMA ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4%s}}", rest);
    return from_json(text);
}

static void reads_yarn(void **state) {
    (void)state;
    ig_config c = with_yarn("");
    double gain = 1 + 0.1 * log(4);
    assert_true(c.rope.blend == IG_BLEND_YARN && c.rope.factor == 4 && c.rope.low_freq == 1 && c.rope.high_freq == 32);
    assert_true(c.rope.original_ctx == 512 && c.rope.linear == 1 && fabs(c.rope.gain - gain) < 1e-12);
    assert_true(fabs(c.attn_scale - 1 / sqrt(8.0)) < 1e-12);
    assert_int_equal(c.n_ctx_train, 2048); /* what it is stretched to */
    assert_true(!c.rope.is_exact && with_yarn(",\"truncate\":false").rope.is_exact);
    c = with_yarn(",\"original_max_position_embeddings\":64,\"beta_slow\":2,\"beta_fast\":8,\"attention_factor\":1.5");
    assert_true(c.rope.original_ctx == 64 && c.rope.low_freq == 2 && c.rope.high_freq == 8 && c.rope.gain == 1.5);
    assert_int_equal(c.n_ctx_train, 512); /* as stated, where that is more */
    c = with_yarn(",\"original_max_position_embeddings\":64},\"original_max_position_embeddings\":32,\"x\":{\"y\":0");
    assert_true(c.rope.original_ctx == 32); /* the model's own */
    c = with_yarn(",\"mscale\":1,\"mscale_all_dim\":1");
    assert_true(c.rope.gain == 1);
    assert_true(fabs(with_yarn(",\"mscale\":2").rope.gain - gain) < 1e-12); /* one weight alone means nothing */
    assert_int_equal(with_yarn(",\"original_max_position_embeddings\":9000000").n_ctx_train, 16 << 20);
}

static void check_windows(const char *rest, const char *type, int w0, int w1, int w2) {
    char text[1024];
    snprintf(text, sizeof text, "{\"model_type\":\"%s\"," LLAMA "%s}", type, rest);
    ig_config c = from_json(text);
    assert_int_equal(c.window[0], w0);
    assert_int_equal(c.window[1], w1);
    assert_int_equal(c.window[2], w2);
    assert_int_equal(c.window[3], 0);
}

static void reads_windows(void **state) {
    (void)state;
    check_windows("", "mistral", 4096, 4096, 4096);
    check_windows(",\"sliding_window\":null", "mistral", 0, 0, 0);
    check_windows(",\"sliding_window\":32", "mistral", 32, 32, 32);
    check_windows(
        ",\"sliding_window\":32,\"layer_types\":"
        "[\"sliding_attention\",\"full_attention\",\"full_attention\"]",
        "mistral", 32, 0, 0);
    check_windows(",\"sliding_window\":32", "llama", 0, 0, 0);
    check_windows(",\"sliding_window\":32", "qwen2", 0, 0, 0);
    check_windows(",\"sliding_window\":32,\"use_sliding_window\":true", "qwen2", 0, 0, 0);
    check_windows(",\"sliding_window\":32,\"use_sliding_window\":true,\"max_window_layers\":1", "qwen2", 0, 32, 32);
    check_windows(
        ",\"sliding_window\":32,\"use_sliding_window\":true,\"max_window_layers\":0,\"layer_types\":"
        "[\"full_attention\",\"sliding_attention\",\"full_attention\"]",
        "qwen3", 0, 32, 0);
    check_windows(
        ",\"sliding_window\":32,\"use_sliding_window\":false,\"layer_types\":"
        "[\"full_attention\",\"sliding_attention\",\"full_attention\"]",
        "qwen3", 0, 0, 0);
}

static void reads_qwen3(void **state) {
    (void)state;
    ig_config c = from_json("{\"model_type\":\"qwen3\"," LLAMA "}");
    assert_int_equal(c.head_dim, 128); /* the family's default, not the width by the heads */
    c = from_json("{\"model_type\":\"qwen3\"," LLAMA ",\"head_dim\":64}");
    assert_int_equal(c.head_dim, 64);
    assert_int_equal(c.rope.n, 64);
}

static void reads_opt(void **state) {
    (void)state;
#define OPT                                                                                 \
    "\"model_type\":\"opt\",\"vocab_size\":100,\"hidden_size\":48,\"num_hidden_layers\":3," \
    "\"num_attention_heads\":6,\"max_position_embeddings\":512,\"ffn_dim\":96"
    ig_config c = from_json("{" OPT "}");
    assert_int_equal(c.norms.kind, IG_NORM_LAYER);
    assert_int_equal(c.activation, IG_RELU);
    assert_int_equal(c.rope.kind, IG_ROPE_NONE);
    assert_int_equal(c.learned_positions, 514);
    assert_int_equal(c.position_offset, 2);
    assert_int_equal(c.d_embed, 48);
    assert_int_equal(c.n_kv_heads, 6);
    assert_true(c.tied && c.norms.has_final && c.norms.order == IG_NORMS_BEFORE && c.norms.eps == 1e-5f);
    c = from_json("{" OPT ",\"do_layer_norm_before\":false,\"word_embed_proj_dim\":16}");
    assert_true(c.norms.order == IG_NORMS_OF_SUMS && !c.norms.has_final);
    assert_int_equal(c.d_embed, 16);
    c = from_json("{" OPT ",\"_remove_final_layer_norm\":true,\"tie_word_embeddings\":false}");
    assert_true(c.norms.order == IG_NORMS_BEFORE && !c.norms.has_final && !c.tied);
}

/* What families have of their own, with the defaults of each class. */
static void reads_their_own(void **state) {
    (void)state;
#define GEMMA3 "\"model_type\":\"gemma3_text\",\"num_key_value_heads\":2," LLAMA
    ig_config c = from_json("{" GEMMA3 ",\"sliding_window\":9}");
    assert_true(c.tied && c.norms.offset == 1 && c.rope.theta == 1e6 && c.rope.local_theta == 1e4);
    assert_true(c.window[0] == 9 && c.rope.set[0] == IG_ROPE_LOCAL && c.attn_scale == 1 / 16.0);
    c = from_json("{" GEMMA3
                  ",\"sliding_window_pattern\":2,\"rope_local_base_freq\":77,"
                  "\"rope_theta\":5e5,\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8.0}}");
    assert_true(c.window[0] == 4096 && c.window[1] == 0 && c.rope.set[1] == IG_ROPE_MAIN);
    assert_true(c.rope.theta == 5e5 && c.rope.local_theta == 77 && c.rope.linear == 8);
    c = from_json("{\"model_type\":\"granite\"," LLAMA
                  ",\"embedding_multiplier\":12.0,\"residual_multiplier\":0.5,"
                  "\"attention_multiplier\":0.0078125,\"logits_scaling\":8}");
    assert_true(c.embed_scale == 24 && c.residual_scale == 0.5 && c.logit_scale == 8 && c.attn_scale == 0.0078125);
    c = from_json("{\"model_type\":\"olmo3\"," LLAMA
                  ",\"layer_types\":[\"full_attention\",\"sliding_attention\","
                  "\"full_attention\"],\"sliding_window\":8}");
    assert_true(c.rope.theta == 5e5 && c.rope.local_theta == 5e5 && !c.window[0] && c.window[1] == 8);
    c = from_json("{\"model_type\":\"smollm3\"," LLAMA ",\"no_rope_layers\":[0,1,1]}");
    assert_true(c.rope.set[0] == IG_ROPE_LEFT_OUT && c.rope.set[1] == IG_ROPE_MAIN && c.tied && c.rope.theta == 2e6);
    c = from_json("{\"model_type\":\"gpt_neox\"," LLAMA ",\"rotary_pct\":0.5,\"rotary_emb_base\":5000}");
    assert_true(c.norms.order == IG_NORMS_APART && c.norms.kind == IG_NORM_LAYER && c.rope.n == 4 &&
                c.rope.theta == 5000);
    assert_true(c.activation == IG_GELU_ERF && c.file.is_qkv_fused && c.file.are_heads_mixed && c.norms.eps == 1e-5f &&
                !c.tied);
    c = from_json("{\"model_type\":\"gpt_neox\"," LLAMA
                  ",\"use_parallel_residual\":false,\"hidden_act\":\"gelu_new\","
                  "\"rope_parameters\":{\"rope_type\":\"default\",\"partial_rotary_factor\":0.25}}");
    assert_true(c.norms.order == IG_NORMS_BEFORE && c.activation == IG_GELU && c.rope.n == 2);
    c = from_json("{\"model_type\":\"starcoder2\"," LLAMA ",\"norm_epsilon\":1e-6,\"sliding_window\":32}");
    assert_true(c.activation == IG_GELU && c.n_kv_heads == 2 && c.window[2] == 32 && c.norms.eps == 1e-6f && c.tied);
    c = from_json("{\"model_type\":\"phi\"," LLAMA "}");
    assert_true(c.norms.order == IG_NORMS_SHARED && c.norms.kind == IG_NORM_LAYER && c.activation == IG_GELU &&
                c.rope.n == 4 && c.norms.eps == 1e-5f && !c.tied);
    refuses("{\"model_type\":\"phi\"," LLAMA ",\"qk_layernorm\":true}", "qk_layernorm");
    c = from_json("{\"model_type\":\"stablelm\"," LLAMA "}");
    assert_true(c.norms.order == IG_NORMS_BEFORE && c.norms.kind == IG_NORM_LAYER && c.activation == IG_SILU_GATED &&
                c.rope.n == 2);
    c = from_json("{\"model_type\":\"stablelm\"," LLAMA ",\"use_parallel_residual\":true,\"layer_norm_eps\":1e-4}");
    assert_true(c.norms.order == IG_NORMS_SHARED && c.norms.eps == 1e-4f);
    refuses("{\"model_type\":\"stablelm\"," LLAMA ",\"qk_layernorm\":true}", "qk_layernorm");
#define PHI3 "{\"model_type\":\"phi3\"," LLAMA ",\"partial_rotary_factor\":0.5,\"original_max_position_embeddings\":"
#define FACTORS ",\"rope_scaling\":{\"type\":\"longrope\",\"long_factor\":[2,3],\"short_factor\":[1,1.5]}}"
    c = from_json(PHI3 "128" FACTORS);
    assert_true(c.file.is_qkv_fused && c.file.is_gate_up_fused && c.rope.n == 4 && c.rope.divisors[0] == 2 &&
                c.rope.divisors[1] == 3);
    assert_true(fabs(c.rope.gain - sqrt(1 + log(4) / log(128))) < 1e-12);
    c = from_json(PHI3 "512" FACTORS);
    assert_true(c.rope.divisors[0] == 1 && c.rope.divisors[1] == 1.5f && c.rope.gain == 1);
}

static void reads_others(void **state) {
    (void)state;
    ig_config c = from_json("{\"model_type\":\"exaone4\"," LLAMA ",\"sliding_window\":9,\"sliding_window_pattern\":2}");
    assert_true(c.window[0] == 9 && c.rope.set[0] == IG_ROPE_MAIN && c.norms.order == IG_NORMS_OF_PARTS);
    assert_true(c.window[1] == 0 && c.rope.set[1] == IG_ROPE_LEFT_OUT && c.norms.eps == 1e-5f);
    c = from_json("{\"model_type\":\"exaone4\"," LLAMA ",\"sliding_window\":null,\"sliding_window_pattern\":null}");
    assert_true(c.window[0] == 0 && c.rope.set[0] == IG_ROPE_MAIN && c.rope.set[2] == IG_ROPE_MAIN);
    c = from_json("{\"model_type\":\"gemma2\"," LLAMA
                  ",\"num_key_value_heads\":2,\"sliding_window\":9,\"final_logit_softcapping\":20}");
    assert_true(c.score_cap == 50 && c.logit_cap == 20 && c.norms.order == IG_NORMS_AROUND && c.norms.offset == 1);
    assert_true(c.window[0] == 9 && c.window[1] == 0 && c.attn_scale == 1 / 16.0 && c.activation == IG_GELU_GATED);
    c = from_json("{\"model_type\":\"muse_glimmer\",\"text_config\":{\"model_type\":\"muse_glimmer_text\"," LLAMA
                  ",\"sliding_window\":9,\"head_dim\":16,\"rms_norm_eps\":1e-3,\"qk_scale_factor\":2,"
                  "\"output_multiplier\":0.5}}");
    assert_true(c.window[1] == 9 && c.window[2] == 0 && c.rope.set[2] == IG_ROPE_LEFT_OUT && c.has_attn_gate);
    assert_true(c.logit_scale == 2 && c.logit_cap == 20 && c.attn_scale == 0.5 && c.norms.after_eps == 1e-8f);
    assert_true(c.norms.of_embeddings && c.norms.of_heads_are_plain && c.norms.is_final_whole && c.norms.offset == 1);
    c = from_json("{\"model_type\":\"cohere\"," LLAMA ",\"logit_scale\":0.25}");
    assert_true(c.norms.kind == IG_NORM_LAYER_UNBIASED && c.norms.order == IG_NORMS_SHARED &&
                c.rope.kind == IG_ROPE_ADJACENT);
    assert_true(c.tied && c.logit_scale == 4 && c.window[0] == 0 && c.norms.eps == 1e-5f);
    c = from_json("{\"model_type\":\"cohere2\"," LLAMA ",\"sliding_window\":9,\"sliding_window_pattern\":2}");
    assert_true(c.window[0] == 9 && c.rope.set[0] == IG_ROPE_MAIN && c.logit_scale == 16);
    assert_true(c.window[1] == 0 && c.rope.set[1] == IG_ROPE_LEFT_OUT);
    c = from_json("{\"model_type\":\"glm4\"," LLAMA "}");
    assert_true(c.rope.kind == IG_ROPE_ADJACENT && c.head_dim == 128 && c.rope.n == 64 && c.n_kv_heads == 2);
    assert_true(c.norms.order == IG_NORMS_AROUND && c.file.is_gate_up_fused && !c.file.is_qkv_fused);
    c = from_json("{\"model_type\":\"hunyuan_v1_dense\"," LLAMA
                  ",\"head_dim\":16,\"use_qk_norm\":true,\"rope_theta\":100,\"rope_scaling\":{\"type\":\"dynamic\","
                  "\"alpha\":8.0}}");
    assert_true(c.norms.follow_rope && fabs(c.rope.theta - 100 * pow(8, 16 / 14.0)) < 1e-9);
    c = from_json("{\"model_type\":\"ernie4_5\"," LLAMA "}");
    assert_true(c.rope.kind == IG_ROPE_ADJACENT && c.tied && c.n_kv_heads == 2 && c.head_dim == 128 &&
                c.rope.theta == 5e5);
    c = from_json("{\"model_type\":\"glm\"," LLAMA "}");
    assert_true(c.norms.order == IG_NORMS_BEFORE && c.file.is_gate_up_fused && c.rope.kind == IG_ROPE_ADJACENT);
#define GRANITE4 \
    "{\"model_type\":\"granitemoehybrid\"," LLAMA ",\"attention_multiplier\":0.5,\"shared_intermediate_size\":32"
    c = from_json(GRANITE4
                  ",\"position_embedding_type\":\"rope\",\"layer_types\":[\"attention\",\"attention\",\"attention\"]}");
    assert_true(c.rope.kind == IG_ROPE_HALF && c.d_ff == 32 && c.file.is_gate_up_fused && !c.experts.n);
    c = from_json(GRANITE4 ",\"layer_types\":[\"attention\",\"attention\",\"attention\"]}");
    assert_true(c.rope.kind == IG_ROPE_NONE);
#define ERNIE_MOE "{\"model_type\":\"ernie4_5_moe\",\"num_key_value_heads\":2," LLAMA ",\"moe_intermediate_size\":24"
    c = from_json(ERNIE_MOE ",\"moe_num_experts\":8}");
    assert_true(c.experts.routing == IG_ROUTING_SOFTMAX_FIRST && c.experts.n == 8 && c.experts.n_used == 6 &&
                c.experts.d_shared == 48);
    assert_true(c.n_plain_layers == 1 && c.d_ff_plain == 96 && c.rope.kind == IG_ROPE_ADJACENT);
#define GRANITE_SWA                                               \
    "{\"model_type\":\"granite_swa\",\"sliding_window\":9," LLAMA \
    ",\"rope_theta\":77,\"attention_multiplier\":0.5,"            \
    "\"layer_types\":[\"full_attention\",\"sliding_attention\",\"full_attention\"]"
    c = from_json(GRANITE_SWA ",\"layer_rope_theta\":[0,77,77]}");
    assert_true(c.has_sink_scores && c.tied && c.window[0] == 0 && c.window[1] == 9 && c.attn_scale == 0.5);
    assert_true(c.rope.set[0] == IG_ROPE_LEFT_OUT && c.rope.set[1] == IG_ROPE_MAIN && c.rope.theta == 77);
    c = from_json("{\"model_type\":\"afmoe\"," LLAMA
                  ",\"num_key_value_heads\":2,\"moe_intermediate_size\":24,\"num_experts\":16,"
                  "\"global_attn_every_n_layers\":2,\"sliding_window\":9,\"route_scale\":2.5}");
    assert_true(c.has_attn_gate && c.head_dim == 128 && c.embed_scale == 1 && c.experts.scale == 2.5);
    assert_true(c.window[0] == 9 && c.rope.set[1] == IG_ROPE_LEFT_OUT && c.window[1] == 0);
    assert_true(c.n_plain_layers == 1 && c.experts.n_used == 6 && c.experts.d_shared == 48 &&
                !c.experts.is_share_of_all);
#define QWEN35 \
    LLAMA ",\"num_key_value_heads\":2,\"head_dim\":32,\"linear_num_key_heads\":2,\"linear_num_value_heads\":6"
    c = from_json("{\"model_type\":\"qwen3_5_text\"," QWEN35 ",\"full_attention_interval\":2}");
    assert_true(c.is_recurrent[0] && !c.is_recurrent[1] && c.is_recurrent[2] && c.n_recurrent == 2 && c.is_gate_in_q);
    assert_true(c.rope.n == 8 && c.recurrence.n_key_heads == 2 && c.recurrence.n_value_heads == 6);
    assert_true(c.recurrence.key_dim == 128 && c.recurrence.n_taps == 4 && !c.recurrence.is_tiled);
    c = from_json("{\"model_type\":\"qwen3_5_moe_text\"," QWEN35
                  ",\"num_experts\":16,\"moe_intermediate_size\":24,"
                  "\"layer_types\":[\"full_attention\",\"linear_attention\",\"linear_attention\"]}");
    assert_true(!c.is_recurrent[0] && c.is_recurrent[1] && c.d_ff == 24 && c.experts.d_shared == 512 &&
                c.experts.is_shared_gated);
    c = from_json("{\"model_type\":\"gemma\"," LLAMA ",\"num_key_value_heads\":2,\"hidden_act\":\"gelu\"}");
    assert_true(c.norms.offset == 1 && c.tied && c.head_dim == 256 && c.activation == IG_GELU_GATED);
    assert_true(c.norms.order == IG_NORMS_BEFORE && c.embed_scale == sqrt(48));
#define GRANITE_4                                                                                \
    LLAMA                                                                                        \
    ",\"num_key_value_heads\":2,\"layer_types\":[\"mamba\",\"attention\",\"linear_attention\"]," \
    "\"shared_intermediate_size\":40,\"mamba_n_heads\":6,\"mamba_d_state\":32,\"mamba_d_head\":\"auto\""
    c = from_json("{\"model_type\":\"granitemoehybrid\"," GRANITE_4 ",\"num_local_experts\":0}");
    assert_true(c.is_recurrent[0] && !c.is_recurrent[1] && c.n_recurrent == 2 && c.rope.kind == IG_ROPE_NONE);
    assert_true(c.recurrence.kind == IG_MAMBA_2 && c.recurrence.n_key_heads == 1 && c.recurrence.value_dim == 16);
    assert_true(c.d_ff == 40 && c.experts.d_shared == 0 && c.experts.n == 0 && c.file.is_gate_up_fused);
    c = from_json("{\"model_type\":\"granitemoehybrid\"," GRANITE_4 ",\"num_local_experts\":4}");
    assert_true(c.experts.n == 4 && c.experts.n_used == 2 && c.experts.d_shared == 40);
#define FALCON_H1 "{\"model_type\":\"falcon_h1\",\"num_key_value_heads\":2,\"mamba_n_heads\":6," LLAMA
    c = from_json(FALCON_H1
                  ",\"mamba_d_ssm\":192,\"mamba_d_state\":32,\"mamba_d_head\":\"auto\","
                  "\"lm_head_multiplier\":0.5,\"embedding_multiplier\":3,\"mlp_multipliers\":[2,3]}");
    assert_true(c.is_state_beside && c.n_recurrent == c.n_layers && ig_config_attention_layers(&c) == c.n_layers);
    assert_true(c.has_no_state_norm && c.recurrence.value_dim == 32 && !c.is_recurrent[0] && c.kv_layer[2] == 2);
    assert_true(c.multipliers.gate == 2 && c.multipliers.down == 3 && c.multipliers.state_part[4] == 1);
    assert_true(c.logit_scale == 2 && c.embed_scale == 3 && c.multipliers.attn_in == 1);
    c = from_json(FALCON_H1
                  ",\"mamba_d_ssm\":null,\"mamba_d_state\":32,\"mamba_d_head\":16,\"mamba_rms_norm\":true,"
                  "\"mamba_norm_before_gate\":false}");
    assert_true(!c.has_no_state_norm && c.recurrence.value_dim == 16); /* 2 * 48 numbers in 6 heads */
    c = from_json("{\"model_type\":\"lfm2\"," LLAMA
                  ",\"num_key_value_heads\":2,\"full_attn_idxs\":[1],\"block_multiple_of\":20}");
    assert_true(c.is_recurrent[0] && !c.is_recurrent[1] && c.is_recurrent[2] && c.norms.of_heads == IG_HEAD_NORM_EACH);
    assert_true(c.recurrence.kind == IG_SHORT_CONVOLUTION && ig_recurrence_channels(&c.recurrence) == 48);
    assert_true(c.d_ff == 80 && c.tied && ig_config_state_bytes(&c) == 2 * 2 * 48 * sizeof(float));
    c = from_json("{\"model_type\":\"lfm3\",\"num_key_value_heads\":2," LLAMA
                  ",\"head_dim\":16,\"rope_parameters\":{\"full_attention\":{"
                  "\"rope_type\":\"proportional\",\"partial_rotary_factor\":0.5},\"sliding_attention\":{"
                  "\"rope_theta\":77}}}");
    assert_true(c.is_recurrent[0] && c.is_recurrent[1] && !c.is_recurrent[2] && c.norms.order == IG_NORMS_AROUND);
    assert_true(c.is_gate_of_heads && c.rope.n == 16 && c.rope.theta == 1000000 && c.rope.local_theta == 77);
    assert_true(isinf(c.rope.divisors[4]) && c.rope.divisors[3] == 1 && c.recurrence.n_taps == 7 && c.tied);
    c = from_json("{\"model_type\":\"lfm3\",\"num_key_value_heads\":2," LLAMA
                  ",\"head_dim\":16,\"sliding_window\":9,\"use_sandwich_norm\":false,"
                  "\"use_attention_gate\":false,\"layer_types\":[\"conv\",\"sliding_attention\",\"full_attention\"]}");
    assert_true(c.window[1] == 9 && c.kv_window[0] == 9 && c.kv_window[1] == 0 && c.rope.set[1] == IG_ROPE_LOCAL);
    assert_true(!c.has_attn_gate && c.norms.order == IG_NORMS_BEFORE);
    c = from_json("{\"model_type\":\"youtu\"," LLAMA
                  ",\"kv_lora_rank\":32,\"qk_nope_head_dim\":16,\"qk_rope_head_dim\":8,"
                  "\"v_head_dim\":16}");
    assert_true(c.latent.kv_rank == 32 && c.latent.q_rank == 1536 && c.experts.n == 0 && c.tied && c.n_kv_heads == 1);
    assert_true(c.rope.kind == IG_ROPE_ADJACENT && c.head_dim == 40);
#define NEMOTRON LLAMA ",\"num_key_value_heads\":2,\"n_groups\":2,\"mamba_num_heads\":4,\"mlp_hidden_act\":\"relu2\""
    c = from_json("{\"model_type\":\"nemotron_h\"," NEMOTRON ",\"hybrid_override_pattern\":\"M-M*-M*\"}");
    assert_true(c.n_layers == 5 && c.file.n_parts == 7 && c.n_recurrent == 3 && c.rope.kind == IG_ROPE_NONE);
    assert_true(!c.has_no_ffn[0] && c.has_no_ffn[1] && !c.has_no_ffn[2] && c.has_no_ffn[3] && c.has_no_ffn[4]);
    assert_true(c.file.first_part[1] == 2 && c.file.first_part[2] == 3 && c.file.first_part[3] == 5 &&
                !c.is_recurrent[2]);
    assert_true(c.activation == IG_RELU_SQUARED && ig_config_expert_layers(&c) == 0);
    c = from_json("{\"model_type\":\"nemotron_h\"," NEMOTRON
                  ",\"n_routed_experts\":4,\"moe_intermediate_size\":24,"
                  "\"layers_block_type\":[\"linear_attention\",\"moe\",\"mamba\",\"attention\",\"moe\"]}");
    assert_true(c.n_layers == 3 && ig_config_expert_layers(&c) == 2 && c.d_ff == 24 && c.experts.d_shared == 7688);
    c = from_json("{\"model_type\":\"nemotron_h\"," NEMOTRON
                  ",\"n_routed_experts\":4,\"moe_intermediate_size\":24,\"moe_latent_size\":16,"
                  "\"layers_block_type\":[\"linear_attention\",\"moe\",\"attention\",\"moe\"]}");
    assert_true(c.experts.width == 16 && ig_config_expert_width(&c) == 16);
    c = from_json(
        "{\"model_type\":\"qwen3_next\"," LLAMA
        ",\"num_key_value_heads\":2,\"num_experts\":16,\"moe_intermediate_size\":24,\"full_attention_interval\":3}");
    assert_true(c.n_recurrent == 2 && c.recurrence.has_gate_pairs && c.is_gate_in_q && c.norms.offset == 1);
    assert_true(c.experts.n_used == 10 && c.experts.is_shared_gated && !c.experts.is_share_of_all);
#define LAGUNA                                                                    \
    "{\"model_type\":\"laguna\"," LLAMA                                           \
    ",\"num_key_value_heads\":2,\"moe_intermediate_size\":24,\"num_experts\":16," \
    "\"layer_types\":[\"full_attention\",\"sliding_attention\",\"full_attention\"],"
    c = from_json(LAGUNA "\"num_attention_heads_per_layer\":[2,4,2]}");
    assert_true(c.n_heads == 2 && c.local_heads == 4 && c.rope.n == 64 && c.rope.local_n == 128 && c.window[1] == 512);
    assert_true(c.is_gate_of_heads && c.rope.local_theta == 10000 && c.rope.theta == 500000 &&
                c.experts.d_shared == 512);
    c = from_json(LAGUNA "\"gating\":\"per-element\"}");
    assert_true(!c.is_gate_of_heads && c.is_gate_softplus && c.local_heads == 0);
    refuses(LAGUNA "\"num_attention_heads_per_layer\":[2,4,4]}", "num_attention_heads_per_layer");
    refuses(LAGUNA "\"gating\":false}", "gating");
    refuses(LAGUNA "\"moe_router_logit_softcapping\":30.0}", "moe_router_logit_softcapping");
#define MIXTURE LLAMA ",\"num_key_value_heads\":2,\"moe_intermediate_size\":24,\"n_routed_experts\":16"
    c = from_json("{\"model_type\":\"dots1\"," MIXTURE "}");
    assert_true(c.norms.of_heads == IG_HEAD_NORM_EACH && c.n_plain_layers == 0 && c.experts.is_share_of_all &&
                c.experts.d_shared == 24);
    c = from_json("{\"model_type\":\"solar_open\"," MIXTURE ",\"n_shared_experts\":2}");
    assert_true(c.norms.of_heads == IG_HEAD_NORM_NONE && c.head_dim == 128 && c.rope.n == 128 &&
                c.experts.d_shared == 48);
    assert_true(c.experts.routing == IG_ROUTING_SIGMOID && !c.experts.is_share_of_all && c.n_plain_layers == 0);
#define HY_V3 \
    "{\"model_type\":\"hy_v3\",\"num_key_value_heads\":2," LLAMA ",\"moe_intermediate_size\":24,\"num_experts\":16"
    c = from_json(HY_V3 ",\"mlp_layer_types\":[\"dense\",\"dense\",\"sparse\"]}");
    assert_true(c.n_plain_layers == 2 && c.d_ff_plain == 96 && c.d_ff == 24 && c.experts.d_shared == 24);
    assert_true(c.experts.routing == IG_ROUTING_SIGMOID && c.experts.scale == 2.826 &&
                from_json(HY_V3 "}").n_plain_layers == 1);
    c = from_json("{\"model_type\":\"mellum\",\"num_key_value_heads\":2," LLAMA
                  ",\"moe_intermediate_size\":24,\"num_experts\":16,\"sliding_window\":9,"
                  "\"layer_types\":[\"sliding_attention\",\"full_attention\",\"sliding_attention\"],"
                  "\"rope_parameters\":{\"full_attention\":{\"rope_theta\":500,\"rope_type\":\"default\"},"
                  "\"sliding_attention\":{\"rope_theta\":50,\"rope_type\":\"default\"}}}");
    assert_true(c.rope.theta == 500 && c.rope.local_theta == 50 && c.window[0] == 9 && c.window[1] == 0);
    assert_true(c.rope.set[0] == IG_ROPE_LOCAL && c.experts.n == 16 && c.d_ff == 24 && !c.experts.is_share_of_all);
    c = from_json("{\"model_type\":\"minimax_m2\"," LLAMA
                  ",\"num_key_value_heads\":2,\"num_local_experts\":16,\"rotary_dim\":64,\"use_qk_norm\":true}");
    assert_true(c.experts.routing == IG_ROUTING_SIGMOID && c.experts.n_used == 8 &&
                c.norms.of_heads == IG_HEAD_NORM_ALL && c.rope.n == 64);
}

/* Heads of layers with a window, values, layers that share, and experts beside. */
static void reads_gemma4(void **state) {
    (void)state;
#define GEMMA4 "{\"model_type\":\"gemma4\",\"text_config\":{\"model_type\":\"gemma4_text\",\"sliding_window\":1024,"
    ig_config c = from_json(GEMMA4
                            "\"hidden_size\":2816,\"num_hidden_layers\":30,\"num_attention_heads\":16,"
                            "\"num_key_value_heads\":8,\"num_global_key_value_heads\":2,\"attention_k_eq_v\":true,"
                            "\"intermediate_size\":2112,\"moe_intermediate_size\":704,\"enable_moe_block\":true,"
                            "\"num_experts\":128,\"top_k_experts\":8,\"final_logit_softcapping\":30.0,"
                            "\"hidden_size_per_layer_input\":null,\"use_bidirectional_attention\":\"vision\","
                            "\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"proportional\","
                            "\"partial_rotary_factor\":0.25,\"rope_theta\":1000000.0},"
                            "\"sliding_attention\":{\"rope_type\":\"default\",\"rope_theta\":10000.0}}}}");
    assert_true(c.n_kv_heads == 2 && c.head_dim == 512 && c.local_kv_heads == 8 && c.local_head_dim == 256);
    assert_true(c.window[0] == 1024 && !c.window[5] && !c.window[29] && c.rope.set[5] == IG_ROPE_MAIN);
    assert_true(c.rope.n == 512 && c.rope.divisors[63] == 1 && isinf(c.rope.divisors[64]) && c.rope.gain == 1);
    assert_true(ig_config_n_rot(&c, IG_ROPE_LOCAL) == 256 && c.attn_scale == 1 && c.logit_cap == 30);
    assert_true(c.experts.n == 128 && c.experts.n_used == 8 && c.d_ff == 704 && c.experts.d_shared == 2112);
    assert_true(c.experts.is_shared_beside && c.are_keys_values && c.norms.of_values && !c.d_layer_input && c.tied);
#define GEMMA4_SHARED(n)                                                                  \
    GEMMA4                                                                                \
    "\"hidden_size\":1536,\"num_attention_heads\":8,\"num_key_value_heads\":1,"           \
    "\"intermediate_size\":6144,\"use_double_wide_mlp\":true,\"num_kv_shared_layers\":" n \
    ","                                                                                   \
    "\"layer_types\":[\"sliding_attention\",\"full_attention\",\"sliding_attention\","    \
    "\"sliding_attention\",\"full_attention\",\"sliding_attention\"],\"num_hidden_layers\":6"
#define GEMMA4_E GEMMA4_SHARED("3")
    c = from_json(GEMMA4_E "}}");
    assert_true(c.n_kv_heads == 1 && c.local_kv_heads == 1 && c.d_layer_input == 256 && !c.are_keys_values);
    assert_true(c.n_plain_layers == 3 && c.d_ff_plain == 6144 && c.d_ff == 12288 && !c.window[5]);
    c = from_json(
        "{\"model_type\":\"gemma4_unified\",\"text_config\":{\"model_type\":\"gemma4_unified_text\","
        "\"hidden_size\":3840,\"num_kv_shared_layers\":2}}");
    assert_true(c.window[0] == 1024 && !c.d_layer_input && !c.experts.n && c.n_layers_sharing == 2 &&
                c.file.is_text_part);
    c = from_json(GEMMA4_E "}}");
    static const int layers[] = {0, 1, 2, 2, 1, 1};
    for (int l = 0; l < 6; l++) assert_int_equal(c.kv_layer[l], layers[l]);
    assert_int_equal(ig_config_attention_layers(&c), 3);
    c = from_json(GEMMA4_E
                  ",\"per_layer_config\":{\"1\":{\"head_dim\":384,\"num_key_value_heads\":2},"
                  "\"4\":{\"head_dim\":384,\"num_key_value_heads\":2}}}}");
    assert_true(c.head_dim == 384 && c.n_kv_heads == 2 && c.local_kv_heads == 1);
    static const char *const refused[][2] = {
        {GEMMA4_E ",\"per_layer_config\":{\"0\":{\"head_dim\":384}}}}", "per_layer_config"},
        {GEMMA4_E ",\"per_layer_config\":{\"1\":{\"head_dim\":384},\"4\":{\"head_dim\":512}}}}", "head_dim"},
        {GEMMA4_E ",\"per_layer_config\":7}}", "per_layer_config"},
        {GEMMA4_E ",\"global_head_dim\":128}}", "layers with a window"},
        {GEMMA4_SHARED("5") "}}", "no keys"},
        {GEMMA4_E ",\"vocab_size_per_layer_input\":7}}", "vocab_size_per_layer_input"},
        {GEMMA4_E ",\"enable_moe_block\":true}}", "num_experts"},
        {GEMMA4_E ",\"attention_bias\":true}}", "attention_bias"},
        {GEMMA4_E ",\"use_bidirectional_attention\":\"all\"}}", "use_bidirectional_attention"},
        {GEMMA4_E ",\"final_logit_softcapping\":-1}}", "final_logit_softcapping"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) refuses(refused[i][0], refused[i][1]);
}

/* Of models that see pictures, too. */
static void reads_text_parts(void **state) {
    (void)state;
    ig_config c = from_json(
        "{\"model_type\":\"gemma3\",\"vision_config\":{},\"text_config\":{\"model_type\":\"gemma3_text\","
        "\"hidden_size\":64,\"sliding_window\":9}}");
    assert_true(c.file.is_text_part && c.tied && c.d_model == 64 && c.n_vocab == 262208 && c.n_heads == 8 &&
                c.window[0] == 9);
    assert_true(c.n_layers == 26 && c.d_ff == 9216 && c.n_ctx_train == 131072);
#define MINISTRAL3                                                                                                 \
    "{\"model_type\":\"mistral3\",\"text_config\":{\"model_type\":\"ministral3\",\"num_key_value_heads\":2," LLAMA \
    ",\"rope_parameters\":{\"type\":\"yarn\",\"factor\":16,\"original_max_position_embeddings\":32,"               \
    "\"mscale\":1,\"mscale_all_dim\":1"
    c = from_json(MINISTRAL3 ",\"llama_4_scaling_beta\":0.125}}}");
    assert_true(c.rope.query_growth == 0.125 && c.rope.original_ctx == 32 && c.rope.gain == 1 && !c.window[0] &&
                !c.tied);
    c = from_json("{\"model_type\":\"qwen2_5_vl\",\"num_key_value_heads\":2," LLAMA
                  ",\"rope_scaling\":{\"type\":\"mrope\",\"mrope_section\":[1,1,2]}}");
    assert_true(c.file.is_text_part && c.rope.linear == 1 && c.rope.blend == IG_BLEND_NONE);
    static const char *const refused[][2] = {
        {MINISTRAL3 "}}}", "llama_4_scaling_beta"},
        {"{\"model_type\":\"mistral3\",\"quantization_config\":{},\"text_config\":{\"model_type\":\"mistral\"," LLAMA
         "}}",
         "quantization_config"},
        {GRANITE4 ",\"layer_types\":[\"attention\",\"mamba\",\"attention\"]}", "mamba"},
        {GRANITE4 "}", "layer_types"},
        {GRANITE_SWA ",\"layer_rope_theta\":[0,77,78]}", "layer_rope_theta"},
        {GRANITE_SWA ",\"layer_rope_theta\":[0]}", "layer_rope_theta"},
        {"{\"model_type\":\"granite_swa\"," LLAMA ",\"attention_multiplier\":0.5}", "layer_types"},
        {HY_V3 ",\"mlp_layer_types\":[\"dense\",\"sparse\",\"dense\"]}", "mlp_layer_types"},
        {HY_V3 ",\"mlp_layer_types\":[\"dense\"]}", "mlp_layer_types"},
        {ERNIE_MOE ",\"moe_layer_interval\":2}", "moe_layer_interval"},
        {ERNIE_MOE ",\"moe_layer_end_index\":1}", "moe_layer_end_index"},
        {"{\"model_type\":\"gemma3\",\"text_config\":7}", "text_config"},
        {"{\"model_type\":\"gemma3\",\"text_config\":{}}", "model_type"},
        {"{\"model_type\":\"gemma3\"}", "gemma3"},
        {"{\"model_type\":\"llama\",\"text_config\":{\"model_type\":\"llama\"," LLAMA "}}", "vocab_size"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) refuses(refused[i][0], refused[i][1]);
}

/* What files of Python have, and what says nothing. */
static void reads_odd_fields(void **state) {
    (void)state;
    ig_config c =
        from_json("{\"model_type\":\"llama\",\"x\":[-Infinity,\"Infinity \\\"Infinity\",Infinity]," LLAMA "}");
    assert_int_equal(c.d_model, 48);
    c = from_json("{\"model_type\":\"qwen3\",\"head_dim\":8," LLAMA ",\"use_qk_norm\":true}");
    assert_int_equal(c.norms.of_heads, IG_HEAD_NORM_EACH);
    c = from_json("{\"model_type\":\"gemma2\",\"num_key_value_heads\":2," LLAMA ",\"final_logit_softcapping\":null}");
    assert_true(c.logit_cap == 0 && c.score_cap == 50);
    refuses("{\"model_type\":\"llama\"," LLAMA ",\"use_qk_norm\":true}", "use_qk_norm");
    refuses("{\"model_type\":\"llama\"," LLAMA ",\"x\":NaN}", "NaN");
    refuses("{\"model_type\":\"glm\"," LLAMA ",\"rope_scaling\":{\"rope_type\":\"proportional\"}}", "proportional");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_llama),      cmocka_unit_test(reads_rope),       cmocka_unit_test(reads_yarn),
        cmocka_unit_test(reads_windows),    cmocka_unit_test(reads_qwen3),      cmocka_unit_test(reads_opt),
        cmocka_unit_test(reads_their_own),  cmocka_unit_test(reads_others),     cmocka_unit_test(reads_gemma4),
        cmocka_unit_test(reads_text_parts), cmocka_unit_test(reads_odd_fields),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
