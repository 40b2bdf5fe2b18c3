/* SPDX-License-Identifier: Apache-2.0
 *
 * Configurations: what is read from each family's config.json and GGUF metadata, both spellings of RoPE
 * settings, defaults, and which layers have a window.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "model/config.h"
#include "unit/tiny_gguf.h"

#define LLAMA                                                                                  \
    "\"vocab_size\":100,\"hidden_size\":48,\"num_hidden_layers\":3,\"num_attention_heads\":6," \
    "\"max_position_embeddings\":512,\"intermediate_size\":96"

static ig_config from_json(const char *text) {
    ig_config c;
    ig_error err = {0};
    if (ig_config_from_json(&c, text, strlen(text), "config.json", &err)) fail_msg("%s", err.text);
    return c;
}

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
    assert_int_equal(c.n_rot, 8);
    assert_int_equal(c.n_ctx_train, 512);
    assert_int_equal(c.norm, IG_NORM_RMS);
    assert_int_equal(c.activation, IG_SILU_GATED);
    assert_int_equal(c.rope, IG_ROPE_HALF);
    assert_true(c.norm_eps == 1e-6f && c.rope_theta == 10000 && c.rope_linear == 1 && c.rope_blend == IG_BLEND_NONE);
    assert_true(c.final_norm && !c.tied && c.norm_order == IG_NORMS_BEFORE);
    assert_int_equal(c.window[0], 0);
    assert_true(fabs(c.attn_scale - 1 / sqrt(8.0)) < 1e-12);
    c = from_json("{\"model_type\":\"llama\"," LLAMA
                  ",\"num_key_value_heads\":2,\"head_dim\":16,\"rms_norm_eps\":1e-5,"
                  "\"rope_theta\":500000.0,\"tie_word_embeddings\":true}");
    assert_int_equal(c.n_kv_heads, 2);
    assert_int_equal(c.head_dim, 16);
    assert_true(c.tied && c.rope_theta == 500000 && c.norm_eps == 1e-5f);
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
        assert_true(c.rope_blend == IG_BLEND_LLAMA3 && c.rope_theta == 5e5 && c.rope_factor == 8 &&
                    c.rope_low_freq == 1);
        assert_true(c.rope_high_freq == 4 && c.rope_original_ctx == 64 && c.rope_linear == 1);
    }
    ig_config c =
        from_json("{\"model_type\":\"llama\"," LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.5}}");
    assert_true(c.rope_linear == 2.5 && c.rope_blend == IG_BLEND_NONE);
    c = from_json("{\"model_type\":\"llama\"," LLAMA
                  ",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":7}}");
    assert_true(c.rope_linear == 1 && c.rope_theta == 7);
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
    assert_true(c.rope_blend == IG_BLEND_YARN && c.rope_factor == 4 && c.rope_low_freq == 1 && c.rope_high_freq == 32);
    assert_true(c.rope_original_ctx == 512 && c.rope_linear == 1 && fabs(c.rope_gain - gain) < 1e-12);
    assert_true(fabs(c.attn_scale - 1 / sqrt(8.0)) < 1e-12);
    assert_int_equal(c.n_ctx_train, 2048); /* what it is stretched to */
    assert_true(!c.rope_is_exact && with_yarn(",\"truncate\":false").rope_is_exact);
    c = with_yarn(",\"original_max_position_embeddings\":64,\"beta_slow\":2,\"beta_fast\":8,\"attention_factor\":1.5");
    assert_true(c.rope_original_ctx == 64 && c.rope_low_freq == 2 && c.rope_high_freq == 8 && c.rope_gain == 1.5);
    assert_int_equal(c.n_ctx_train, 512); /* as stated, where that is more */
    c = with_yarn(",\"original_max_position_embeddings\":64},\"original_max_position_embeddings\":32,\"x\":{\"y\":0");
    assert_true(c.rope_original_ctx == 32); /* the model's own */
    c = with_yarn(",\"mscale\":1,\"mscale_all_dim\":1");
    assert_true(c.rope_gain == 1);
    assert_true(fabs(with_yarn(",\"mscale\":2").rope_gain - gain) < 1e-12); /* one weight alone means nothing */
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
    assert_int_equal(c.n_rot, 64);
}

static void reads_opt(void **state) {
    (void)state;
#define OPT                                                                                 \
    "\"model_type\":\"opt\",\"vocab_size\":100,\"hidden_size\":48,\"num_hidden_layers\":3," \
    "\"num_attention_heads\":6,\"max_position_embeddings\":512,\"ffn_dim\":96"
    ig_config c = from_json("{" OPT "}");
    assert_int_equal(c.norm, IG_NORM_LAYER);
    assert_int_equal(c.activation, IG_RELU);
    assert_int_equal(c.rope, IG_ROPE_NONE);
    assert_int_equal(c.learned_positions, 514);
    assert_int_equal(c.position_offset, 2);
    assert_int_equal(c.d_embed, 48);
    assert_int_equal(c.n_kv_heads, 6);
    assert_true(c.tied && c.final_norm && c.norm_order == IG_NORMS_BEFORE && c.norm_eps == 1e-5f);
    c = from_json("{" OPT ",\"do_layer_norm_before\":false,\"word_embed_proj_dim\":16}");
    assert_true(c.norm_order == IG_NORMS_OF_SUMS && !c.final_norm);
    assert_int_equal(c.d_embed, 16);
    c = from_json("{" OPT ",\"_remove_final_layer_norm\":true,\"tie_word_embeddings\":false}");
    assert_true(c.norm_order == IG_NORMS_BEFORE && !c.final_norm && !c.tied);
}

static ig_status read_tiny(ig_config *out, const tiny *t, ig_error *err) {
    size_t n;
    ig_gguf *g;
    uint8_t *bytes = tiny_write(t, &n);
    if (ig_gguf_open_memory(&g, bytes, n, "tiny.gguf", err)) fail_msg("%s", err->text);
    ig_status status = ig_config_from_gguf(out, g, err);
    ig_gguf_close(g);
    free(bytes);
    return status;
}

static ig_config from_tiny(const tiny *t) {
    ig_config c;
    ig_error err = {0};
    if (read_tiny(&c, t, &err)) fail_msg("%s", err.text);
    return c;
}

static void refuses_tiny(const tiny *t, const char *why) {
    ig_config c;
    ig_error err = {0};
    assert_true(read_tiny(&c, t, &err) != IG_OK);
    if (!strstr(err.text, why)) fail_msg("%s", err.text);
}

/* The tiny model under another architecture's name. */
static tiny tiny_as(const char *architecture) {
    tiny t = tiny_valid();
    tiny_string(&t, "general.architecture", architecture);
    for (int i = 0; i < t.n_values; i++) {
        char *key = t.values[i].key;
        char rest[sizeof t.values[i].key];
        if (strncmp(key, "llama.", 6) != 0) continue;
        strcpy(rest, key + 5);
        assert_true(snprintf(key, sizeof rest, "%s%s", architecture, rest) < (int)sizeof rest);
    }
    return t;
}

static void reads_gguf(void **state) {
    (void)state;
    tiny t = tiny_valid();
    ig_config c = from_tiny(&t);
    assert_string_equal(c.architecture, "llama");
    assert_string_equal(c.name, "tiny");
    assert_int_equal(c.n_layers, 1);
    assert_int_equal(c.n_heads, TINY_HEADS);
    assert_int_equal(c.n_kv_heads, TINY_HEADS);
    assert_int_equal(c.head_dim, TINY_D / TINY_HEADS);
    assert_int_equal(c.n_vocab, TINY_VOCAB);
    assert_int_equal(c.rope, IG_ROPE_ADJACENT);
    assert_true(c.tied && c.final_norm && c.norm_eps == 1e-5f && c.rope_theta == 10000 && c.rope_linear == 1);
    tiny_f32(&t, "llama.rope.freq_base", 500000);
    tiny_u32(&t, "llama.rope.dimension_count", 2);
    tiny_u64(&t, "llama.attention.head_count_kv", 1);
    tiny_u32(&t, "llama.attention.sliding_window", 16);
    tiny_f32(&t, "llama.rope.scaling.factor", 4);
    tiny_array(&t, "tokenizer.ggml.tokens", IG_GGUF_STRING, 3, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24);
    tiny_add(&t, "output.weight", IG_TYPE_F32, TINY_D, TINY_VOCAB);
    c = from_tiny(&t);
    assert_true(c.rope_theta == 500000 && c.rope_linear == 4 && !c.tied);
    assert_int_equal(c.n_rot, 2);
    assert_int_equal(c.n_kv_heads, 1);
    assert_int_equal(c.window[0], 16);
    assert_int_equal(c.n_vocab, 3); /* the tokens count, not what is stated */
    tiny_string(&t, "llama.rope.scaling.type", "none");
    assert_true(from_tiny(&t).rope_linear == 1);
    assert_true(from_tiny(&t).rope_gain == 1);
    tiny_string(&t, "general.name", "a\033[2J\xc2\x9b.");
    assert_string_equal(from_tiny(&t).name, "a?[2J??.");
}

static void reads_gguf_yarn(void **state) {
    (void)state;
    tiny t = tiny_valid();
    tiny_string(&t, "llama.rope.scaling.type", "yarn");
    tiny_f32(&t, "llama.rope.scaling.factor", 8);
    ig_config c = from_tiny(&t);
    assert_true(c.rope_blend == IG_BLEND_YARN && c.rope_factor == 8 && c.rope_linear == 1);
    assert_true(c.rope_low_freq == 1 && c.rope_high_freq == 32 && fabs(c.rope_gain - 1 - 0.1 * log(8)) < 1e-12);
    assert_int_equal(c.n_ctx_train, 8 * (int)c.rope_original_ctx);
    tiny_u32(&t, "llama.rope.scaling.original_context_length", 4);
    tiny_f32(&t, "llama.rope.scaling.yarn_beta_fast", 16);
    tiny_f32(&t, "llama.rope.scaling.yarn_beta_slow", 2);
    c = from_tiny(&t);
    assert_true(c.rope_original_ctx == 4 && c.rope_low_freq == 2 && c.rope_high_freq == 16);
}

static void reads_gguf_families(void **state) {
    (void)state;
    static const char *const names[] = {"qwen2", "qwen3"};
    for (size_t i = 0; i < 2; i++) {
        tiny t = tiny_as(names[i]);
        ig_config c = from_tiny(&t);
        assert_string_equal(c.architecture, names[i]);
        assert_int_equal(c.rope, IG_ROPE_HALF);
    }
}

/* What GGUF files of families state, and what they leave to whoever knows the family. */
static void reads_gguf_of_their_own(void **state) {
    (void)state;
    tiny t = tiny_as("gemma3");
    tiny_u32(&t, "gemma3.attention.sliding_window", 16);
    ig_config c = from_tiny(&t);
    assert_true(c.norm_order == IG_NORMS_AROUND && c.head_norm == IG_HEAD_NORM_EACH && c.activation == IG_GELU_GATED);
    assert_true(c.norm_offset == 0 && fabs(c.embed_scale - sqrt(TINY_D)) < 1e-12); /* converters add the offset */
    assert_true(c.window[0] == 16 && c.rope_set[0] == IG_ROPE_LOCAL && c.rope_local_theta == 10000);
    tiny_f32(&t, "gemma3.rope.freq_base_swa", 5000);
    assert_true(from_tiny(&t).rope_local_theta == 5000);
    static const float bad[] = {0, -1, 0.5f, NAN, INFINITY};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tiny_f32(&t, "gemma3.rope.freq_base_swa", bad[i]);
        refuses_tiny(&t, "gemma3.rope.freq_base_swa");
    }
    tiny_f32(&t, "gemma3.rope.freq_base_swa", 5000);
    tiny_array(&t, "gemma3.attention.sliding_window_pattern", IG_GGUF_BOOL, 1, "\0", 1);
    c = from_tiny(&t);
    assert_true(c.window[0] == 0 && c.rope_set[0] == IG_ROPE_MAIN);
    tiny_array(&t, "gemma3.attention.sliding_window_pattern", IG_GGUF_BOOL, 2, "\0\0", 2);
    refuses_tiny(&t, "sliding_window_pattern");

    t = tiny_as("granite");
    tiny_f32(&t, "granite.attention.scale", 0.25f);
    tiny_f32(&t, "granite.embedding_scale", 12);
    tiny_f32(&t, "granite.residual_scale", 0.5f);
    tiny_f32(&t, "granite.logit_scale", 8);
    c = from_tiny(&t);
    assert_true(c.attn_scale == 0.25 && c.embed_scale == 24 && c.logit_scale == 8 && c.rope == IG_ROPE_ADJACENT);
    assert_true(fabs((double)c.norm_eps - 4e-5) < 1e-10); /* of a state that is twice as large */
    tiny_f32(&t, "granite.logit_scale", 1e9f);
    refuses_tiny(&t, "granite.logit_scale");
    t = tiny_as("qwen2");
    tiny_f32(&t, "qwen2.attention.scale", 0.25f);
    refuses_tiny(&t, "qwen2.attention.scale");

    t = tiny_as("olmo2");
    c = from_tiny(&t);
    assert_true(c.norm_order == IG_NORMS_OF_PARTS && c.head_norm == IG_HEAD_NORM_ALL && c.rope_local_theta == 0);
    t = tiny_as("phi3");
    tiny_u32(&t, "phi3.attention.sliding_window", 16);
    c = from_tiny(&t);
    assert_true(c.is_qkv_fused && c.is_gate_up_fused && c.window[0] == 16 && c.rope_blend == IG_BLEND_NONE);
    tiny_f32(&t, "phi3.rope.scaling.attn_factor", 1e9f);
    tiny_add(&t, "rope_factors_long.weight", IG_TYPE_F32, 4, 0);
    refuses_tiny(&t, "phi3.rope.scaling.attn_factor");
    t = tiny_as("gpt-oss");
    tiny_u32(&t, "gpt-oss.block_count", 3);
    tiny_u32(&t, "gpt-oss.attention.sliding_window", 16);
    tiny_u32(&t, "gpt-oss.expert_count", 4);
    tiny_u32(&t, "gpt-oss.expert_used_count", 2);
    tiny_u32(&t, "gpt-oss.expert_feed_forward_length", 24);
    c = from_tiny(&t);
    assert_true(c.has_sink_scores && c.rope_is_exact && c.activation == IG_SWIGLU_OAI && c.n_experts == 4 &&
                c.d_ff == 24);
    assert_true(c.window[0] == 16 && c.window[1] == 0 && c.window[2] == 16 && c.rope_set[0] == IG_ROPE_MAIN);
    t = tiny_as("smollm3");
    tiny_u32(&t, "smollm3.block_count", 5);
    c = from_tiny(&t);
    assert_true(c.rope_set[2] == IG_ROPE_MAIN && c.rope_set[3] == IG_ROPE_LEFT_OUT && c.rope_set[4] == IG_ROPE_MAIN);
}

/* The same of those that came later. */
static void reads_gguf_of_others(void **state) {
    (void)state;
    tiny t = tiny_as("exaone4");
    ig_config c = from_tiny(&t);
    assert_true(c.norm_order == IG_NORMS_OF_PARTS && c.head_norm == IG_HEAD_NORM_EACH && c.rope == IG_ROPE_HALF);
    assert_true(c.window[0] == 0 && c.rope_set[0] == IG_ROPE_MAIN);
    tiny_u32(&t, "exaone4.block_count", 4);
    tiny_u32(&t, "exaone4.attention.sliding_window", 16);
    c = from_tiny(&t);
    assert_true(c.window[2] == 16 && c.rope_set[2] == IG_ROPE_MAIN);
    assert_true(c.window[3] == 0 && c.rope_set[3] == IG_ROPE_LEFT_OUT);

    t = tiny_as("glm4");
    c = from_tiny(&t);
    assert_true(c.norm_order == IG_NORMS_AROUND && c.is_gate_up_fused && !c.is_qkv_fused);
    assert_true(c.rope == IG_ROPE_ADJACENT && c.head_norm == IG_HEAD_NORM_NONE);
    t = tiny_as("hunyuan-dense");
    c = from_tiny(&t);
    assert_true(c.rotates_first && c.head_norm == IG_HEAD_NORM_EACH);
    t = tiny_as("ernie4_5");
    assert_true(from_tiny(&t).rope == IG_ROPE_ADJACENT);
    t = tiny_as("seed_oss");
    assert_true(from_tiny(&t).rope == IG_ROPE_HALF);

    t = tiny_as("minimax-m2");
    refuses_tiny(&t, "minimax-m2.expert_count");
    tiny_u32(&t, "minimax-m2.expert_count", 4);
    tiny_u32(&t, "minimax-m2.expert_used_count", 2);
    tiny_u32(&t, "minimax-m2.expert_gating_func", 2);
    tiny_u32(&t, "minimax-m2.expert_feed_forward_length", 24);
    c = from_tiny(&t);
    assert_true(c.is_sigmoid_routed && !c.is_share_of_all && c.d_ff == 24 && c.head_norm == IG_HEAD_NORM_ALL);
    tiny_u32(&t, "minimax-m2.expert_gating_func", 1);
    refuses_tiny(&t, "minimax-m2.expert_gating_func");

    t = tiny_as("mistral3");
    c = from_tiny(&t);
    assert_true(c.query_growth == 0 && c.rope == IG_ROPE_ADJACENT && c.rope_gain == 1);
    tiny_f32(&t, "mistral3.attention.temperature_scale", 0.125f);
    tiny_string(&t, "mistral3.rope.scaling.type", "yarn");
    tiny_f32(&t, "mistral3.rope.scaling.factor", 16);
    tiny_u32(&t, "mistral3.rope.scaling.original_context_length", 32);
    c = from_tiny(&t);
    assert_true(c.query_growth == 0.125 && c.rope_original_ctx == 32 && fabs(c.rope_gain - 1 - 0.1 * log(16)) < 1e-12);
    tiny_f32(&t, "mistral3.rope.scaling.yarn_log_multiplier", 1);
    assert_true(from_tiny(&t).rope_gain == 1);
    tiny_f32(&t, "mistral3.attention.temperature_scale", -1);
    refuses_tiny(&t, "mistral3.attention.temperature_scale");

    static const int32_t sections[] = {1, 1, 0, 0};
    t = tiny_as("qwen3vl");
    tiny_u32(&t, "qwen3vl.n_deepstack_layers", 3);
    tiny_array(&t, "qwen3vl.rope.dimension_sections", IG_GGUF_I32, 4, sections, sizeof sections);
    assert_true(from_tiny(&t).head_norm == IG_HEAD_NORM_EACH);
    t = tiny_as("qwen3");
    tiny_array(&t, "qwen3.rope.dimension_sections", IG_GGUF_I32, 4, sections, sizeof sections);
    refuses_tiny(&t, "qwen3.rope.dimension_sections");
}

static void reads_gguf_experts(void **state) {
    (void)state;
    static const char *const names[] = {"granitemoe", "llama", "olmoe", "qwen3moe"};
    for (size_t i = 0; i < 4; i++) {
        char count[64], used[64], width[64];
        snprintf(count, sizeof count, "%s.expert_count", names[i]);
        snprintf(used, sizeof used, "%s.expert_used_count", names[i]);
        snprintf(width, sizeof width, "%s.expert_feed_forward_length", names[i]);
        tiny t = tiny_as(names[i]);
        if (i == 0) tiny_f32(&t, "granitemoe.attention.scale", 0.25f);
        tiny_u32(&t, count, 4);
        refuses_tiny(&t, used);
        tiny_u32(&t, used, 2);
        if (i == 3) tiny_u32(&t, width, 24);
        ig_config c = from_tiny(&t);
        assert_true(c.n_experts == 4 && c.n_experts_used == 2 && c.is_share_of_all == (i == 2));
        assert_int_equal(c.d_ff, i == 3 ? 24 : TINY_FF);
        tiny_u32(&t, used, 5);
        refuses_tiny(&t, used);
        tiny_u32(&t, used, 2);
        tiny_u32(&t, count, IG_MAX_EXPERTS + 1);
        refuses_tiny(&t, count);
    }
    tiny t = tiny_as("glm4moe");
    tiny_u32(&t, "glm4moe.block_count", 5);
    tiny_u32(&t, "glm4moe.expert_used_count", 2);
    tiny_u32(&t, "glm4moe.expert_feed_forward_length", 24);
    refuses_tiny(&t, "glm4moe.expert_count");
    tiny_u32(&t, "glm4moe.expert_count", 4);
    ig_config c = from_tiny(&t);
    assert_true(c.n_layers == 5 && c.is_sigmoid_routed && c.is_share_of_all && c.expert_scale == 1 && !c.d_ff_shared);
    tiny_u32(&t, "glm4moe.expert_shared_count", 2);
    tiny_u32(&t, "glm4moe.leading_dense_block_count", 3);
    tiny_u32(&t, "glm4moe.nextn_predict_layers", 1);
    tiny_f32(&t, "glm4moe.expert_weights_scale", 2.5f);
    c = from_tiny(&t);
    assert_true(c.n_layers == 4 && c.n_layers_left_out == 1 && c.n_plain_layers == 3 && c.d_ff_plain == TINY_FF);
    assert_true(c.d_ff == 24 && c.d_ff_shared == 48 && c.expert_scale == 2.5);
    tiny_u32(&t, "glm4moe.expert_gating_func", 1);
    refuses_tiny(&t, "glm4moe.expert_gating_func");
    tiny_u32(&t, "glm4moe.expert_gating_func", 2);
    tiny_u32(&t, "glm4moe.expert_group_count", 8);
    refuses_tiny(&t, "glm4moe.expert_group_count");
    tiny_u32(&t, "glm4moe.expert_group_count", 1);
    tiny_u32(&t, "glm4moe.nextn_predict_layers", 2);
    refuses_tiny(&t, "glm4moe.nextn_predict_layers");
    tiny_u32(&t, "glm4moe.leading_dense_block_count", 5);
    refuses_tiny(&t, "glm4moe.leading_dense_block_count");
    t = tiny_as("qwen2");
    tiny_u32(&t, "qwen2.expert_count", 4);
    refuses_tiny(&t, "qwen2.expert_count");
    t = tiny_as("llama");
    tiny_u32(&t, "llama.expert_shared_feed_forward_length", 16);
    refuses_tiny(&t, "llama.expert_shared_feed_forward_length");
}

/* The same of config.json, with the defaults of each class. */
static void reads_their_own(void **state) {
    (void)state;
#define GEMMA3 "\"model_type\":\"gemma3_text\",\"num_key_value_heads\":2," LLAMA
    ig_config c = from_json("{" GEMMA3 ",\"sliding_window\":9}");
    assert_true(c.tied && c.norm_offset == 1 && c.rope_theta == 1e6 && c.rope_local_theta == 1e4);
    assert_true(c.window[0] == 9 && c.rope_set[0] == IG_ROPE_LOCAL && c.attn_scale == 1 / 16.0);
    c = from_json("{" GEMMA3
                  ",\"sliding_window_pattern\":2,\"rope_local_base_freq\":77,"
                  "\"rope_theta\":5e5,\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8.0}}");
    assert_true(c.window[0] == 4096 && c.window[1] == 0 && c.rope_set[1] == IG_ROPE_MAIN);
    assert_true(c.rope_theta == 5e5 && c.rope_local_theta == 77 && c.rope_linear == 8);
    c = from_json("{\"model_type\":\"granite\"," LLAMA
                  ",\"embedding_multiplier\":12.0,\"residual_multiplier\":0.5,"
                  "\"attention_multiplier\":0.0078125,\"logits_scaling\":8}");
    assert_true(c.embed_scale == 24 && c.residual_scale == 0.5 && c.logit_scale == 8 && c.attn_scale == 0.0078125);
    c = from_json("{\"model_type\":\"olmo3\"," LLAMA
                  ",\"layer_types\":[\"full_attention\",\"sliding_attention\","
                  "\"full_attention\"],\"sliding_window\":8}");
    assert_true(c.rope_theta == 5e5 && c.rope_local_theta == 5e5 && !c.window[0] && c.window[1] == 8);
    c = from_json("{\"model_type\":\"smollm3\"," LLAMA ",\"no_rope_layers\":[0,1,1]}");
    assert_true(c.rope_set[0] == IG_ROPE_LEFT_OUT && c.rope_set[1] == IG_ROPE_MAIN && c.tied && c.rope_theta == 2e6);
#define PHI3 "{\"model_type\":\"phi3\"," LLAMA ",\"partial_rotary_factor\":0.5,\"original_max_position_embeddings\":"
#define FACTORS ",\"rope_scaling\":{\"type\":\"longrope\",\"long_factor\":[2,3],\"short_factor\":[1,1.5]}}"
    c = from_json(PHI3 "128" FACTORS);
    assert_true(c.is_qkv_fused && c.is_gate_up_fused && c.n_rot == 4 && c.rope_long[0] == 2 && c.rope_long[1] == 3);
    assert_true(fabs(c.rope_gain - sqrt(1 + log(4) / log(128))) < 1e-12);
    c = from_json(PHI3 "512" FACTORS);
    assert_true(c.rope_long[0] == 1 && c.rope_long[1] == 1.5f && c.rope_gain == 1);
}

static void reads_others(void **state) {
    (void)state;
    ig_config c = from_json("{\"model_type\":\"exaone4\"," LLAMA ",\"sliding_window\":9,\"sliding_window_pattern\":2}");
    assert_true(c.window[0] == 9 && c.rope_set[0] == IG_ROPE_MAIN && c.norm_order == IG_NORMS_OF_PARTS);
    assert_true(c.window[1] == 0 && c.rope_set[1] == IG_ROPE_LEFT_OUT && c.norm_eps == 1e-5f);
    c = from_json("{\"model_type\":\"exaone4\"," LLAMA ",\"sliding_window\":null,\"sliding_window_pattern\":null}");
    assert_true(c.window[0] == 0 && c.rope_set[0] == IG_ROPE_MAIN && c.rope_set[2] == IG_ROPE_MAIN);
    c = from_json("{\"model_type\":\"glm4\"," LLAMA "}");
    assert_true(c.rope == IG_ROPE_ADJACENT && c.head_dim == 128 && c.n_rot == 64 && c.n_kv_heads == 2);
    assert_true(c.norm_order == IG_NORMS_AROUND && c.is_gate_up_fused && !c.is_qkv_fused);
    c = from_json("{\"model_type\":\"hunyuan_v1_dense\"," LLAMA
                  ",\"head_dim\":16,\"use_qk_norm\":true,\"rope_theta\":100,\"rope_scaling\":{\"type\":\"dynamic\","
                  "\"alpha\":8.0}}");
    assert_true(c.rotates_first && fabs(c.rope_theta - 100 * pow(8, 16 / 14.0)) < 1e-9);
    c = from_json("{\"model_type\":\"ernie4_5\"," LLAMA "}");
    assert_true(c.rope == IG_ROPE_ADJACENT && c.tied && c.n_kv_heads == 2 && c.head_dim == 128 && c.rope_theta == 5e5);
    c = from_json("{\"model_type\":\"minimax_m2\"," LLAMA
                  ",\"num_key_value_heads\":2,\"num_local_experts\":16,\"rotary_dim\":64,\"use_qk_norm\":true}");
    assert_true(c.is_sigmoid_routed && c.n_experts_used == 8 && c.head_norm == IG_HEAD_NORM_ALL && c.n_rot == 64);
}

/* Of models that see pictures, too. */
static void reads_text_parts(void **state) {
    (void)state;
    ig_config c = from_json(
        "{\"model_type\":\"gemma3\",\"vision_config\":{},\"text_config\":{\"model_type\":\"gemma3_text\","
        "\"hidden_size\":64,\"sliding_window\":9}}");
    assert_true(c.is_text_part && c.tied && c.d_model == 64 && c.n_vocab == 262208 && c.n_heads == 8 &&
                c.window[0] == 9);
    assert_true(c.n_layers == 26 && c.d_ff == 9216 && c.n_ctx_train == 131072);
#define MINISTRAL3                                                                                                 \
    "{\"model_type\":\"mistral3\",\"text_config\":{\"model_type\":\"ministral3\",\"num_key_value_heads\":2," LLAMA \
    ",\"rope_parameters\":{\"type\":\"yarn\",\"factor\":16,\"original_max_position_embeddings\":32,"               \
    "\"mscale\":1,\"mscale_all_dim\":1"
    c = from_json(MINISTRAL3 ",\"llama_4_scaling_beta\":0.125}}}");
    assert_true(c.query_growth == 0.125 && c.rope_original_ctx == 32 && c.rope_gain == 1 && !c.window[0] && !c.tied);
    c = from_json("{\"model_type\":\"qwen2_5_vl\",\"num_key_value_heads\":2," LLAMA
                  ",\"rope_scaling\":{\"type\":\"mrope\",\"mrope_section\":[1,1,2]}}");
    assert_true(c.is_text_part && c.rope_linear == 1 && c.rope_blend == IG_BLEND_NONE);
    static const char *const refused[][2] = {
        {MINISTRAL3 "}}}", "llama_4_scaling_beta"},
        {"{\"model_type\":\"mistral3\",\"quantization_config\":{},\"text_config\":{\"model_type\":\"mistral\"," LLAMA
         "}}",
         "quantization_config"},
        {"{\"model_type\":\"gemma3\",\"text_config\":7}", "text_config"},
        {"{\"model_type\":\"gemma3\",\"text_config\":{}}", "model_type"},
        {"{\"model_type\":\"gemma3\"}", "gemma3"},
        {"{\"model_type\":\"llama\",\"text_config\":{\"model_type\":\"llama\"," LLAMA "}}", "vocab_size"},
        {"{\"model_type\":\"qwen3_vl_moe\",\"text_config\":{\"model_type\":\"qwen3_vl_moe_text\"," LLAMA "}}", "GGUF"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        ig_error err = {0};
        assert_true(ig_config_from_json(&c, refused[i][0], strlen(refused[i][0]), "config.json", &err));
        if (!strstr(err.text, refused[i][1])) fail_msg("%s", err.text);
    }
}

static void reads_experts(void **state) {
    (void)state;
    ig_config c = from_json("{\"model_type\":\"mixtral\"," LLAMA ",\"num_local_experts\":8,\"num_key_value_heads\":2}");
    assert_true(c.n_experts == 8 && c.n_experts_used == 2 && c.d_ff == 96 && !c.is_share_of_all);
    assert_true(c.rope_theta == 1e6 && c.norm_eps == 1e-5f && !c.window[0]);
    c = from_json("{\"model_type\":\"olmoe\"," LLAMA ",\"num_experts\":64,\"clip_qkv\":null}");
    assert_true(c.n_experts == 64 && c.n_experts_used == 8 && c.is_share_of_all && c.head_norm == IG_HEAD_NORM_ALL);
#define QWEN3_MOE                                              \
    "{\"model_type\":\"qwen3_moe\"," LLAMA                     \
    ",\"num_key_value_heads\":2,\"moe_intermediate_size\":24," \
    "\"num_experts\":16,\"num_experts_per_tok\":4"
    c = from_json(QWEN3_MOE ",\"norm_topk_prob\":true,\"mlp_only_layers\":[]}");
    assert_true(c.n_experts == 16 && c.n_experts_used == 4 && c.d_ff == 24 && !c.is_share_of_all && c.head_dim == 128);
    c = from_json("{\"model_type\":\"granitemoe\"," LLAMA ",\"num_local_experts\":6,\"attention_multiplier\":0.5}");
    assert_true(c.n_experts == 6 && c.n_experts_used == 2 && c.attn_scale == 0.5);
#define GLM4_MOE                                               \
    "{\"model_type\":\"glm4_moe\"," LLAMA                      \
    ",\"num_key_value_heads\":2,\"moe_intermediate_size\":24," \
    "\"n_routed_experts\":16,\"num_experts_per_tok\":4"
    c = from_json(GLM4_MOE ",\"n_group\":1,\"routed_scaling_factor\":1.5,\"use_qk_norm\":true}");
    assert_true(c.n_experts == 16 && c.n_experts_used == 4 && c.d_ff == 24 && c.d_ff_shared == 24 &&
                c.d_ff_plain == 96);
    assert_true(c.n_plain_layers == 1 && c.is_sigmoid_routed && !c.is_share_of_all && c.expert_scale == 1.5);
    assert_true(c.head_norm == IG_HEAD_NORM_EACH && c.n_rot == c.head_dim / 2);
    static const char *const refused[][2] = {
        {GLM4_MOE ",\"n_group\":8}", "n_group"},
        {GLM4_MOE ",\"first_k_dense_replace\":100}", "first_k_dense_replace"},
        {GLM4_MOE ",\"n_shared_experts\":-1}", "n_shared_experts"},
        {QWEN3_MOE ",\"mlp_only_layers\":[1]}", "mlp_only_layers"},
        {QWEN3_MOE ",\"decoder_sparse_step\":2}", "decoder_sparse_step"},
        {"{\"model_type\":\"olmoe\"," LLAMA ",\"num_experts\":4}", "num_experts_per_tok"},
        {"{\"model_type\":\"olmoe\"," LLAMA ",\"num_experts\":64,\"clip_qkv\":8.0}", "clip_qkv"},
        {"{\"model_type\":\"olmoe\"," LLAMA "}", "num_local_experts"},
        {"{\"model_type\":\"llama\"," LLAMA ",\"num_local_experts\":8}", "num_local_experts"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        ig_error err = {0};
        assert_true(ig_config_from_json(&c, refused[i][0], strlen(refused[i][0]), "config.json", &err));
        if (!strstr(err.text, refused[i][1])) fail_msg("%s", err.text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_llama),         cmocka_unit_test(reads_rope),
        cmocka_unit_test(reads_yarn),          cmocka_unit_test(reads_windows),
        cmocka_unit_test(reads_qwen3),         cmocka_unit_test(reads_opt),
        cmocka_unit_test(reads_gguf),          cmocka_unit_test(reads_gguf_yarn),
        cmocka_unit_test(reads_gguf_families), cmocka_unit_test(reads_gguf_of_their_own),
        cmocka_unit_test(reads_their_own),     cmocka_unit_test(reads_gguf_experts),
        cmocka_unit_test(reads_experts),       cmocka_unit_test(reads_gguf_of_others),
        cmocka_unit_test(reads_others),        cmocka_unit_test(reads_text_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
