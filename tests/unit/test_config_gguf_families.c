/* SPDX-License-Identifier: Apache-2.0
 *
 * Configurations: what is read from each family's GGUF metadata.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "unit/tiny_config.h"

/* What GGUF files of families state, and what they leave to whoever knows the family. */
static void reads_gguf_of_their_own(void **state) {
    (void)state;
    tiny t = tiny_as("gemma3");
    tiny_u32(&t, "gemma3.attention.sliding_window", 16);
    ig_config c = from_tiny(&t);
    assert_true(c.norms.order == IG_NORMS_AROUND && c.norms.of_heads == IG_HEAD_NORM_EACH &&
                c.activation == IG_GELU_GATED);
    assert_true(c.norms.offset == 0 && fabs(c.embed_scale - sqrt(TINY_D)) < 1e-12); /* converters add the offset */
    assert_true(c.window[0] == 16 && c.rope.set[0] == IG_ROPE_LOCAL && c.rope.local_theta == 10000);
    tiny_f32(&t, "gemma3.rope.freq_base_swa", 5000);
    assert_true(from_tiny(&t).rope.local_theta == 5000);
    static const float bad[] = {0, -1, 0.5f, NAN, INFINITY};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tiny_f32(&t, "gemma3.rope.freq_base_swa", bad[i]);
        refuses_tiny(&t, "gemma3.rope.freq_base_swa");
    }
    tiny_f32(&t, "gemma3.rope.freq_base_swa", 5000);
    tiny_array(&t, "gemma3.attention.sliding_window_pattern", IG_GGUF_BOOL, 1, "\0", 1);
    c = from_tiny(&t);
    assert_true(c.window[0] == 0 && c.rope.set[0] == IG_ROPE_MAIN);
    tiny_array(&t, "gemma3.attention.sliding_window_pattern", IG_GGUF_BOOL, 2, "\0\0", 2);
    refuses_tiny(&t, "sliding_window_pattern");

    t = tiny_as("deepseek2");
    tiny_u32(&t, "deepseek2.attention.head_count_kv", 1);
    tiny_u32(&t, "deepseek2.attention.key_length", 40);
    tiny_u32(&t, "deepseek2.attention.value_length", 32);
    tiny_u32(&t, "deepseek2.attention.kv_lora_rank", 32);
    tiny_u32(&t, "deepseek2.rope.dimension_count", 8);
    tiny_u32(&t, "deepseek2.expert_count", 4);
    tiny_u32(&t, "deepseek2.expert_used_count", 2);
    tiny_u32(&t, "deepseek2.expert_feed_forward_length", 32);
    refuses_tiny(&t, "key_length_mla"); /* as files of before it was there */
    tiny_u32(&t, "deepseek2.attention.key_length_mla", 24);
    tiny_u32(&t, "deepseek2.attention.value_length_mla", 16);
    c = from_tiny(&t);
    assert_true(c.latent.kv_rank == 32 && !c.latent.q_rank && c.latent.key_dim == 16 && c.latent.value_dim == 16);
    assert_true(c.head_dim == 40 && c.rope.n == 8 && c.experts.routing == IG_ROUTING_SOFTMAX_FIRST &&
                c.experts.is_share_of_all);
    tiny_u32(&t, "deepseek2.expert_gating_func", 2);
    assert_int_equal(from_tiny(&t).experts.routing, IG_ROUTING_SIGMOID);
    tiny_u32(&t, "deepseek2.attention.key_length_mla", 8);
    refuses_tiny(&t, "key_length_mla");
    tiny_u32(&t, "deepseek2.attention.key_length_mla", 24);
    tiny_u32(&t, "deepseek2.attention.kv_lora_rank", 48);
    refuses_tiny(&t, "deepseek2.attention.key_length");
    tiny_u32(&t, "deepseek2.attention.kv_lora_rank", 32);
    tiny_u32(&t, "deepseek2.expert_group_count", 3);
    tiny_u32(&t, "deepseek2.expert_group_used_count", 1);
    refuses_tiny(&t, "groups");

    t = tiny_as("glm-dsa");
    tiny_u32(&t, "glm-dsa.block_count", 3);
    tiny_u32(&t, "glm-dsa.attention.head_count_kv", 1);
    tiny_u32(&t, "glm-dsa.attention.key_length", 40);
    tiny_u32(&t, "glm-dsa.attention.value_length", 32);
    tiny_u32(&t, "glm-dsa.attention.kv_lora_rank", 32);
    tiny_u32(&t, "glm-dsa.attention.q_lora_rank", 24);
    tiny_u32(&t, "glm-dsa.attention.key_length_mla", 24);
    tiny_u32(&t, "glm-dsa.attention.value_length_mla", 16);
    tiny_u32(&t, "glm-dsa.rope.dimension_count", 8);
    tiny_u32(&t, "glm-dsa.expert_count", 4);
    tiny_u32(&t, "glm-dsa.expert_used_count", 2);
    tiny_u32(&t, "glm-dsa.expert_feed_forward_length", 32);
    tiny_u32(&t, "glm-dsa.leading_dense_block_count", 1);
    tiny_array(&t, "glm-dsa.attention.indexer.types", IG_GGUF_BOOL, 3, "\1\0\1", 3);
    refuses_tiny(&t, "indexer.head_count");
    tiny_u32(&t, "glm-dsa.attention.indexer.head_count", 6);
    tiny_u32(&t, "glm-dsa.attention.indexer.key_length", 16);
    tiny_u32(&t, "glm-dsa.attention.indexer.top_k", 64);
    c = from_tiny(&t);
    assert_true(c.index.n_heads == 6 && c.index.dim == 16 && c.index.n_chosen == 64 && c.is_index_adjacent);
    assert_true(c.index_layer[0] == 0 && c.index_layer[1] == 0 && c.index_layer[2] == 2);
    tiny_array(&t, "glm-dsa.attention.indexer.types", IG_GGUF_BOOL, 3, "\0\1\1", 3);
    refuses_tiny(&t, "indexer.types");
    tiny_array(&t, "glm-dsa.attention.indexer.types", IG_GGUF_BOOL, 2, "\1\1", 2);
    refuses_tiny(&t, "indexer.types");
    tiny_drop_key(&t, "glm-dsa.attention.indexer.types");
    refuses_tiny(&t, "indexer.types"); /* nor is there a tensor of it */
    tiny_array(&t, "glm-dsa.attention.indexer.types", IG_GGUF_BOOL, 3, "\1\1\1", 3);
    tiny_u32(&t, "glm-dsa.attention.indexer.key_length", 4);
    refuses_tiny(&t, "indexer of 4");

    t = tiny_as("deepseek2"); /* Youtu */
    tiny_u32(&t, "deepseek2.attention.head_count_kv", 1);
    tiny_u32(&t, "deepseek2.attention.key_length", 40);
    tiny_u32(&t, "deepseek2.attention.value_length", 32);
    tiny_u32(&t, "deepseek2.attention.kv_lora_rank", 32);
    tiny_u32(&t, "deepseek2.attention.key_length_mla", 24);
    tiny_u32(&t, "deepseek2.attention.value_length_mla", 16);
    tiny_u32(&t, "deepseek2.rope.dimension_count", 8);
    tiny_u32(&t, "deepseek2.expert_feed_forward_length", 32);
    tiny_u32(&t, "deepseek2.expert_shared_count", 0);
    refuses_tiny(&t, "expert_count");
    tiny_u32(&t, "deepseek2.leading_dense_block_count", 1);
    c = from_tiny(&t);
    assert_true(c.experts.n == 0 && c.latent.kv_rank == 32);

    t = tiny_as("gemma4");
    static const uint32_t heads[] = {1, 2}, wide[] = {64, 128};
    tiny_u32(&t, "gemma4.block_count", 2);
    tiny_u32(&t, "gemma4.attention.key_length", 16);
    tiny_u32(&t, "gemma4.attention.value_length", 16);
    tiny_u32(&t, "gemma4.attention.key_length_swa", 8);
    tiny_u32(&t, "gemma4.attention.sliding_window", 16);
    tiny_array(&t, "gemma4.attention.sliding_window_pattern", IG_GGUF_BOOL, 2, "\1\0", 2);
    tiny_array(&t, "gemma4.attention.head_count_kv", IG_GGUF_U32, 2, heads, sizeof heads);
    tiny_array(&t, "gemma4.feed_forward_length", IG_GGUF_U32, 2, wide, sizeof wide);
    refuses_tiny(&t, "feed_forward_length"); /* no layer shares keys */
    tiny_u32(&t, "gemma4.feed_forward_length", 64);
    tiny_f32(&t, "gemma4.final_logit_softcapping", 30);
    tiny_u32(&t, "gemma4.embedding_length_per_layer_input", 32);
    c = from_tiny(&t);
    assert_true(c.window[0] == 16 && !c.window[1] && c.n_kv_heads == 2 && c.local_kv_heads == 1 && c.logit_cap == 30);
    assert_true(c.head_dim == 16 && c.local_head_dim == 8);
    assert_true(c.d_ff == 64 && c.d_layer_input == 32 && !c.has_layer_scales && c.are_keys_values && c.norms.of_values);
    tiny_u32(&t, "gemma4.attention.shared_kv_layers", 1);
    refuses_tiny(&t, "no keys");
    tiny_drop_key(&t, "gemma4.attention.shared_kv_layers");
    tiny_u32(&t, "gemma4.attention.value_length_swa", 4);
    refuses_tiny(&t, "value_length_swa");
    tiny_drop_key(&t, "gemma4.attention.value_length_swa");
    tiny_array(&t, "gemma4.attention.head_count_kv", IG_GGUF_U32, 1, heads, sizeof *heads);
    refuses_tiny(&t, "head_count_kv");

    t = tiny_as("laguna");
    static const uint32_t of_layers[] = {2, 4, 4, 4};
    tiny_u32(&t, "laguna.block_count", 4);
    tiny_u32(&t, "laguna.attention.key_length", 16);
    tiny_u32(&t, "laguna.attention.head_count_kv", 2);
    tiny_array(&t, "laguna.attention.head_count", IG_GGUF_U32, 4, of_layers, sizeof of_layers);
    tiny_u32(&t, "laguna.rope.dimension_count", 8);
    tiny_u32(&t, "laguna.rope.dimension_count_swa", 12);
    tiny_u32(&t, "laguna.expert_count", 4);
    tiny_u32(&t, "laguna.expert_used_count", 2);
    tiny_u32(&t, "laguna.expert_feed_forward_length", 24);
    tiny_u32(&t, "laguna.expert_shared_feed_forward_length", 48);
    tiny_u32(&t, "laguna.leading_dense_block_count", 1);
    refuses_tiny(&t, "head_count"); /* without windows all are of one kind */
    tiny_u32(&t, "laguna.attention.sliding_window", 16);
    c = from_tiny(&t);
    assert_true(!c.window[0] && c.window[1] == 16 && c.window[3] == 16 && c.rope.set[1] == IG_ROPE_LOCAL);
    assert_true(c.n_heads == 2 && c.local_heads == 4 && c.local_kv_heads == 2 && c.local_head_dim == 16);
    assert_true(c.rope.n == 8 && c.rope.local_n == 12 && ig_config_rotated(&c) == 20 &&
                ig_config_widest_heads(&c) == 64);
    assert_true(c.is_gate_softplus && !c.is_gate_of_heads && c.experts.d_shared == 48 && c.n_plain_layers == 1);
    tiny_u32(&t, "laguna.rope.dimension_count_swa", 20);
    refuses_tiny(&t, "20 numbers rotate");

    t = tiny_as("granite");
    tiny_f32(&t, "granite.attention.scale", 0.25f);
    tiny_f32(&t, "granite.embedding_scale", 12);
    tiny_f32(&t, "granite.residual_scale", 0.5f);
    tiny_f32(&t, "granite.logit_scale", 8);
    c = from_tiny(&t);
    assert_true(c.attn_scale == 0.25 && c.embed_scale == 24 && c.logit_scale == 8 && c.rope.kind == IG_ROPE_ADJACENT);
    assert_true(fabs((double)c.norms.eps - 4e-5) < 1e-10); /* of a state that is twice as large */
    tiny_f32(&t, "granite.logit_scale", 1e9f);
    refuses_tiny(&t, "granite.logit_scale");
    t = tiny_as("qwen2");
    tiny_f32(&t, "qwen2.attention.scale", 0.25f);
    refuses_tiny(&t, "qwen2.attention.scale");

    t = tiny_as("olmo2");
    c = from_tiny(&t);
    assert_true(c.norms.order == IG_NORMS_OF_PARTS && c.norms.of_heads == IG_HEAD_NORM_ALL && c.rope.local_theta == 0);
    t = tiny_as("phi3");
    assert_true(!from_tiny(&t).file.is_qkv_fused);
    tiny_add(&t, "blk.0.attn_qkv.weight", IG_TYPE_F32, TINY_D, 3 * TINY_D);
    tiny_u32(&t, "phi3.attention.sliding_window", 16);
    c = from_tiny(&t);
    assert_true(c.file.is_qkv_fused && c.file.is_gate_up_fused && c.window[0] == 16 && c.rope.blend == IG_BLEND_NONE);
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
    assert_true(c.has_sink_scores && c.rope.is_exact && c.activation == IG_SWIGLU_OAI && c.experts.n == 4 &&
                c.d_ff == 24);
    assert_true(c.window[0] == 16 && c.window[1] == 0 && c.window[2] == 16 && c.rope.set[0] == IG_ROPE_MAIN);
    t = tiny_as("smollm3");
    tiny_u32(&t, "smollm3.block_count", 5);
    c = from_tiny(&t);
    assert_true(c.rope.set[2] == IG_ROPE_MAIN && c.rope.set[3] == IG_ROPE_LEFT_OUT && c.rope.set[4] == IG_ROPE_MAIN);
}

/* Llama 4: the sizes that were published, and one without chunks. */
static void reads_gguf_of_llama4(void **state) {
    (void)state;
    tiny t = tiny_as("llama4");
    tiny_u32(&t, "llama4.block_count", 5);
    tiny_u32(&t, "llama4.expert_count", 4);
    tiny_u32(&t, "llama4.expert_used_count", 1);
    tiny_u32(&t, "llama4.interleave_moe_layer_step", 2);
    refuses_tiny(&t, "llama4.expert_feed_forward_length");
    tiny_u32(&t, "llama4.expert_feed_forward_length", 24);
    ig_config c = from_tiny(&t);
    assert_true(c.experts.n == 4 && ig_config_expert_layers(&c) == 2 && ig_config_first_expert_layer(&c) == 1);
    assert_true(ig_config_is_plain(&c, 2) && !ig_config_is_plain(&c, 3) && c.d_ff_plain == TINY_FF && c.d_ff == 24);
    assert_true(c.experts.d_shared == 24 && c.experts.routing == IG_ROUTING_SIGMOID_LAST &&
                c.experts.are_inputs_shared && c.norms.are_of_rotated);
    assert_true(c.has_chunks && c.window[2] == 8192 && !c.window[3] && c.rope.set[3] == IG_ROPE_LEFT_OUT);
    assert_true(c.rope.grows_unrotated && c.rope.growth_length == 8192 && c.rope.kind == IG_ROPE_ADJACENT &&
                !c.rope.is_paired);
    tiny_u32(&t, "llama4.expert_count", 128);
    c = from_tiny(&t);
    assert_true(c.norms.of_heads == IG_HEAD_NORM_NONE && !c.norms.are_of_rotated);
    tiny_u32(&t, "llama4.attention.sliding_window", 0);
    c = from_tiny(&t);
    assert_true(!c.window[0] && c.rope.set[3] == IG_ROPE_MAIN && c.rope.query_growth == 0 && !c.has_chunks);
    tiny_u32(&t, "llama4.interleave_moe_layer_step", 99);
    refuses_tiny(&t, "no layer has any");
    tiny_u32(&t, "llama4.interleave_moe_layer_step", 0);
    assert_true(from_tiny(&t).experts.n == 0);
    tiny_u32(&t, "llama4.interleave_moe_layer_step", 2);
    tiny_u32(&t, "llama4.expert_count", 0);
    c = from_tiny(&t);
    assert_true(c.experts.n == 0 && !ig_config_is_plain(&c, 0) && c.d_ff == TINY_FF);
}

/* Norms with biases, parts side by side. */
static void reads_gguf_of_neox(void **state) {
    (void)state;
    tiny t = tiny_as("gptneox");
    tiny_f32(&t, "gptneox.attention.layer_norm_epsilon", 1e-4f);
    ig_config c = from_tiny(&t);
    assert_true(c.norms.order == IG_NORMS_APART && c.norms.kind == IG_NORM_LAYER && c.activation == IG_GELU_ERF);
    assert_true(c.norms.eps == 1e-4f && c.rope.kind == IG_ROPE_HALF);
    tiny_bool(&t, "gptneox.use_parallel_residual", false);
    assert_true(from_tiny(&t).norms.order == IG_NORMS_BEFORE);
    t = tiny_as("starcoder2");
    tiny_f32(&t, "starcoder2.attention.layer_norm_epsilon", 1e-4f);
    c = from_tiny(&t);
    assert_true(c.norms.order == IG_NORMS_BEFORE && c.activation == IG_GELU && c.norms.kind == IG_NORM_LAYER);
    t = tiny_as("phi2");
    tiny_f32(&t, "phi2.attention.layer_norm_epsilon", 1e-4f);
    c = from_tiny(&t);
    assert_true(c.norms.order == IG_NORMS_SHARED && c.activation == IG_GELU && c.norms.kind == IG_NORM_LAYER);
    t = tiny_as("stablelm"); /* goes by the norms that are there */
    tiny_f32(&t, "stablelm.attention.layer_norm_epsilon", 1e-4f);
    tiny_bool(&t, "stablelm.use_parallel_residual", true);
    c = from_tiny(&t);
    assert_true(c.norms.order == IG_NORMS_BEFORE && c.activation == IG_SILU_GATED && c.norms.kind == IG_NORM_LAYER);
    tiny_drop_tensor(&t, "blk.0.ffn_norm.weight");
    assert_true(from_tiny(&t).norms.order == IG_NORMS_SHARED);
    t = tiny_as("maincoder");
    c = from_tiny(&t);
    assert_true(c.norms.of_heads == IG_HEAD_NORM_EACH && c.norms.follow_rope && c.rope.kind == IG_ROPE_ADJACENT);
    t = tiny_as("pangu-embedded");
    c = from_tiny(&t);
    assert_true(c.norms.kind == IG_NORM_RMS && c.rope.kind == IG_ROPE_HALF && !c.rope.is_paired);
}

/* The same of those that came later. */
static void reads_gguf_of_others(void **state) {
    (void)state;
    tiny t = tiny_as("exaone4");
    ig_config c = from_tiny(&t);
    assert_true(c.norms.order == IG_NORMS_OF_PARTS && c.norms.of_heads == IG_HEAD_NORM_EACH &&
                c.rope.kind == IG_ROPE_HALF);
    assert_true(c.window[0] == 0 && c.rope.set[0] == IG_ROPE_MAIN);
    tiny_u32(&t, "exaone4.block_count", 4);
    tiny_u32(&t, "exaone4.attention.sliding_window", 16);
    c = from_tiny(&t);
    assert_true(c.window[2] == 16 && c.rope.set[2] == IG_ROPE_MAIN);
    assert_true(c.window[3] == 0 && c.rope.set[3] == IG_ROPE_LEFT_OUT);

    static const char *const paired[] = {"llama", "granite", "mistral3", "smollm3", "arcee", "internlm2", "minicpm"};
    for (size_t i = 0; i < sizeof paired / sizeof *paired; i++) {
        t = tiny_as(paired[i]);
        c = from_tiny(&t);
        assert_true(c.rope.is_paired && c.rope.kind == IG_ROPE_ADJACENT);
    }
    assert_true(fabs(c.logit_scale - TINY_D / 256.0) < 1e-9 &&
                fabs(c.embed_scale - 12 / 1.4) < 1e-6); /* MiniCPM's own */
    tiny_string(&t, "minicpm.rope.scaling.type", "longrope");
    refuses_tiny(&t, "is 'longrope'");
    tiny_add(&t, "rope_factors_long.weight", IG_TYPE_F32, 4, 0);
    c = from_tiny(&t);
    assert_true(c.rope.blend == IG_BLEND_LONGROPE && c.rope.gain == 1);
    t = tiny_as("exaone");
    c = from_tiny(&t);
    assert_true(!c.rope.is_paired && c.rope.kind == IG_ROPE_HALF && c.norms.order == IG_NORMS_BEFORE);
    t = tiny_as("bailingmoe2");
    tiny_u32(&t, "bailingmoe2.block_count", 3);
    tiny_u32(&t, "bailingmoe2.leading_dense_block_count", 1);
    tiny_u32(&t, "bailingmoe2.expert_count", 8);
    tiny_u32(&t, "bailingmoe2.expert_used_count", 2);
    tiny_u32(&t, "bailingmoe2.expert_feed_forward_length", 24);
    tiny_u32(&t, "bailingmoe2.expert_shared_count", 2);
    tiny_u32(&t, "bailingmoe2.expert_group_count", 4);
    tiny_u32(&t, "bailingmoe2.expert_group_used_count", 2);
    tiny_f32(&t, "bailingmoe2.expert_weights_scale", 2.5f);
    c = from_tiny(&t);
    assert_true(c.experts.routing == IG_ROUTING_SIGMOID && c.n_plain_layers == 1 && c.experts.n_groups == 4 &&
                c.experts.n_groups_used == 2 && c.experts.scale == 2.5 && c.experts.d_shared == 48 &&
                c.experts.is_share_of_all);
    assert_true(c.norms.of_heads == IG_HEAD_NORM_EACH);
    tiny_u32(&t, "bailingmoe2.expert_shared_feed_forward_length", 40);
    assert_int_equal(from_tiny(&t).experts.d_shared, 40);
    tiny_u32(&t, "bailingmoe2.expert_group_count", 3);
    refuses_tiny(&t, "groups");
    t = tiny_as("deepseek");
    tiny_u32(&t, "deepseek.expert_count", 4);
    tiny_u32(&t, "deepseek.expert_used_count", 2);
    tiny_u32(&t, "deepseek.expert_feed_forward_length", 24);
    tiny_u32(&t, "deepseek.expert_shared_count", 1);
    c = from_tiny(&t);
    assert_true(c.rope.is_paired && c.experts.routing != IG_ROUTING_SIGMOID && c.experts.is_share_of_all &&
                c.experts.d_shared == 24);
    t = tiny_as("gemma2");
    tiny_u32(&t, "gemma2.attention.sliding_window", 16);
    tiny_f32(&t, "gemma2.attn_logit_softcapping", 25);
    c = from_tiny(&t);
    assert_true(c.score_cap == 25 && c.logit_cap == 30 && c.norms.order == IG_NORMS_AROUND && c.norms.offset == 0);
    assert_true(c.window[0] == 16 && c.activation == IG_GELU_GATED);
    t = tiny_as("muse-glimmer");
    tiny_u32(&t, "muse-glimmer.attention.sliding_window", 16);
    tiny_f32(&t, "muse-glimmer.logit_scale", 0.25f);
    tiny_f32(&t, "muse-glimmer.final_logit_softcapping", 20);
    c = from_tiny(&t);
    assert_true(c.logit_scale == 4 && c.logit_cap == 20 && c.norms.after_eps == 1e-8f && c.norms.of_embeddings &&
                c.rope.is_paired);
    assert_true(c.norms.offset == 0 && !c.norms.of_heads_are_plain && c.window[0] == 16 && c.has_attn_gate);
    t = tiny_as("command-r");
    tiny_f32(&t, "command-r.attention.layer_norm_epsilon", 1e-5f);
    tiny_f32(&t, "command-r.logit_scale", 0.0625f);
    c = from_tiny(&t);
    assert_true(c.norms.kind == IG_NORM_LAYER_UNBIASED && c.norms.order == IG_NORMS_SHARED && c.logit_scale == 16);
    assert_true(c.norms.eps == 1e-5f && c.rope.kind == IG_ROPE_ADJACENT && !c.rope.is_paired);

    t = tiny_as("glm4");
    c = from_tiny(&t);
    assert_true(c.norms.order == IG_NORMS_AROUND && c.file.is_gate_up_fused && !c.file.is_qkv_fused);
    assert_true(c.rope.kind == IG_ROPE_ADJACENT && c.norms.of_heads == IG_HEAD_NORM_NONE);
    t = tiny_as("chatglm");
    c = from_tiny(&t);
    assert_true(c.norms.order == IG_NORMS_BEFORE && c.file.is_gate_up_fused && c.rope.kind == IG_ROPE_ADJACENT);
    t = tiny_as("granite");
    tiny_f32(&t, "granite.attention.scale", 0.25f);
    tiny_u32(&t, "granite.block_count", 2);
    tiny_u32(&t, "granite.ssm.conv_kernel", 4);
    tiny_array(&t, "granite.attention.head_count_kv", IG_GGUF_I32, 2, ((int32_t[]){1, 1}), 8);
    c = from_tiny(&t);
    assert_true(c.n_kv_heads == 1 && c.rope.kind == IG_ROPE_ADJACENT);
    tiny_raw(&t, "granite.rope.scaling.finetuned", IG_GGUF_BOOL, "\0", 1);
    assert_true(from_tiny(&t).rope.kind == IG_ROPE_NONE);
    tiny_array(&t, "granite.attention.head_count_kv", IG_GGUF_I32, 2, ((int32_t[]){1, 2}), 8);
    refuses_tiny(&t, "granite.attention.head_count_kv");
    t = tiny_as("granite_swa");
    tiny_f32(&t, "granite_swa.attention.scale", 0.25f);
    tiny_u32(&t, "granite_swa.block_count", 2);
    tiny_u32(&t, "granite_swa.attention.sliding_window", 16);
    refuses_tiny(&t, "granite_swa.attention.sliding_window_pattern");
    tiny_array(&t, "granite_swa.attention.sliding_window_pattern", IG_GGUF_BOOL, 2, "\0\1", 2);
    tiny_array(&t, "granite_swa.attention.rope_pattern", IG_GGUF_BOOL, 2, "\0\1", 2);
    c = from_tiny(&t);
    assert_true(c.has_sink_scores && c.attn_scale == 0.25 && c.window[0] == 0 && c.window[1] == 16);
    assert_true(c.rope.set[0] == IG_ROPE_LEFT_OUT && c.rope.set[1] == IG_ROPE_MAIN);
    tiny_array(&t, "granite_swa.attention.rope_pattern", IG_GGUF_BOOL, 1, "\0", 1);
    refuses_tiny(&t, "granite_swa.attention.rope_pattern");
    t = tiny_as("hunyuan-dense");
    c = from_tiny(&t);
    assert_true(c.norms.follow_rope && c.norms.of_heads == IG_HEAD_NORM_EACH);
    t = tiny_as("ernie4_5");
    assert_true(from_tiny(&t).rope.kind == IG_ROPE_ADJACENT);
    t = tiny_as("seed_oss");
    assert_true(from_tiny(&t).rope.kind == IG_ROPE_HALF);

    t = tiny_as("minimax-m2");
    refuses_tiny(&t, "minimax-m2.expert_count");
    tiny_u32(&t, "minimax-m2.expert_count", 4);
    tiny_u32(&t, "minimax-m2.expert_used_count", 2);
    tiny_u32(&t, "minimax-m2.expert_gating_func", 2);
    tiny_u32(&t, "minimax-m2.expert_feed_forward_length", 24);
    c = from_tiny(&t);
    assert_true(c.experts.routing == IG_ROUTING_SIGMOID && !c.experts.is_share_of_all && c.d_ff == 24 &&
                c.norms.of_heads == IG_HEAD_NORM_ALL);
    tiny_u32(&t, "minimax-m2.expert_gating_func", 1);
    refuses_tiny(&t, "minimax-m2.expert_gating_func");

    t = tiny_as("minimax-m3");
    tiny_u32(&t, "minimax-m3.block_count", 3);
    tiny_u32(&t, "minimax-m3.leading_dense_block_count", 1);
    tiny_u32(&t, "minimax-m3.expert_count", 4);
    tiny_u32(&t, "minimax-m3.expert_used_count", 2);
    tiny_u32(&t, "minimax-m3.expert_gating_func", 2);
    tiny_u32(&t, "minimax-m3.expert_shared_count", 1);
    tiny_u32(&t, "minimax-m3.expert_feed_forward_length", 24);
    tiny_u32(&t, "minimax-m3.attention.indexer.head_count", 2);
    tiny_u32(&t, "minimax-m3.attention.indexer.key_length", 64);
    tiny_u32(&t, "minimax-m3.attention.indexer.top_k", 5);
    refuses_tiny(&t, "indexer.block_size");
    tiny_u32(&t, "minimax-m3.attention.indexer.block_size", 16);
    tiny_u32(&t, "minimax-m3.attention.indexer.local_blocks", 1);
    c = from_tiny(&t);
    assert_true(c.index.block == 16 && c.index.n_chosen == 80 && c.index.n_local == 1 && c.index.n_heads == 2);
    assert_true(c.index_layer[0] == IG_NO_INDEX && c.index_layer[1] == 1 && c.experts.d_shared == 24);
    assert_true(c.activation == IG_SWIGLU_OAI && c.norms.of_heads == IG_HEAD_NORM_EACH && c.norms.offset == 0);
    tiny_u32(&t, "minimax-m3.attention.indexer.head_count", 3);
    refuses_tiny(&t, "KV heads");

    t = tiny_as("ernie4_5-moe");
    tiny_u32(&t, "ernie4_5-moe.block_count", 3);
    tiny_u32(&t, "ernie4_5-moe.expert_count", 4);
    tiny_u32(&t, "ernie4_5-moe.expert_used_count", 2);
    tiny_u32(&t, "ernie4_5-moe.leading_dense_block_count", 1);
    tiny_u32(&t, "ernie4_5-moe.expert_feed_forward_length", 24);
    tiny_u32(&t, "ernie4_5-moe.expert_shared_feed_forward_length", 48);
    tiny_u32(&t, "ernie4_5-moe.interleave_moe_layer_step", 1);
    c = from_tiny(&t);
    assert_true(c.experts.routing == IG_ROUTING_SOFTMAX_FIRST && c.n_plain_layers == 1 && c.d_ff_plain == TINY_FF);
    assert_true(c.d_ff == 24 && c.experts.d_shared == 48 && c.rope.kind == IG_ROPE_ADJACENT);
    tiny_u32(&t, "ernie4_5-moe.interleave_moe_layer_step", 2);
    refuses_tiny(&t, "interleave_moe_layer_step");

    t = tiny_as("afmoe");
    tiny_u32(&t, "afmoe.block_count", 5);
    tiny_u32(&t, "afmoe.expert_count", 4);
    tiny_u32(&t, "afmoe.expert_used_count", 2);
    tiny_u32(&t, "afmoe.expert_feed_forward_length", 24);
    tiny_u32(&t, "afmoe.leading_dense_block_count", 1);
    tiny_u32(&t, "afmoe.attention.sliding_window", 16);
    c = from_tiny(&t);
    assert_true(c.has_attn_gate && c.norms.order == IG_NORMS_AROUND && c.norms.of_heads == IG_HEAD_NORM_EACH);
    assert_true(c.window[0] == 16 && c.rope.set[0] == IG_ROPE_MAIN && c.rope.set[3] == IG_ROPE_LEFT_OUT);
    assert_true(c.n_plain_layers == 1 && c.experts.routing == IG_ROUTING_SIGMOID &&
                fabs(c.embed_scale - sqrt(TINY_D)) < 1e-12);

    t = tiny_as("dots1");
    tiny_u32(&t, "dots1.expert_count", 4);
    tiny_u32(&t, "dots1.expert_used_count", 2);
    tiny_u32(&t, "dots1.expert_feed_forward_length", 24);
    assert_true(from_tiny(&t).experts.routing == IG_ROUTING_SIGMOID);
    t = tiny_as("gemma");
    c = from_tiny(&t);
    assert_true(c.activation == IG_GELU_GATED && c.norms.order == IG_NORMS_BEFORE && c.embed_scale == sqrt(TINY_D));

    t = tiny_as("hy_v3");
    tiny_u32(&t, "hy_v3.block_count", 3);
    tiny_u32(&t, "hy_v3.expert_count", 4);
    tiny_u32(&t, "hy_v3.expert_used_count", 2);
    tiny_u32(&t, "hy_v3.expert_feed_forward_length", 24);
    tiny_u32(&t, "hy_v3.expert_shared_feed_forward_length", 48);
    tiny_raw(&t, "hy_v3.expert_weights_norm", IG_GGUF_BOOL, "\1", 1);
    tiny_add(&t, "blk.1.ffn_gate_inp.weight", IG_TYPE_F32, TINY_D, 4);
    c = from_tiny(&t);
    assert_true(c.n_plain_layers == 1 && c.d_ff_plain == TINY_FF && c.d_ff == 24 && c.experts.d_shared == 48);
    assert_true(c.experts.routing == IG_ROUTING_SIGMOID && !c.experts.is_share_of_all &&
                c.norms.of_heads == IG_HEAD_NORM_EACH);

    t = tiny_as("mellum");
    tiny_u32(&t, "mellum.block_count", 4);
    tiny_u32(&t, "mellum.expert_count", 4);
    tiny_u32(&t, "mellum.expert_used_count", 2);
    tiny_u32(&t, "mellum.expert_feed_forward_length", 24);
    tiny_u32(&t, "mellum.attention.sliding_window", 16);
    tiny_f32(&t, "mellum.rope.freq_base_swa", 5000);
    c = from_tiny(&t);
    assert_true(c.experts.n == 4 && c.d_ff == 24 && c.window[0] == 16 && c.window[3] == 0);
    assert_true(c.rope.local_theta == 5000 && c.rope.set[0] == IG_ROPE_LOCAL && c.rope.set[3] == IG_ROPE_MAIN);

    t = tiny_as("mistral3");
    c = from_tiny(&t);
    assert_true(c.rope.query_growth == 0 && c.rope.kind == IG_ROPE_ADJACENT && c.rope.gain == 1);
    tiny_f32(&t, "mistral3.attention.temperature_scale", 0.125f);
    tiny_string(&t, "mistral3.rope.scaling.type", "yarn");
    tiny_f32(&t, "mistral3.rope.scaling.factor", 16);
    tiny_u32(&t, "mistral3.rope.scaling.original_context_length", 32);
    c = from_tiny(&t);
    assert_true(c.rope.query_growth == 0.125 && c.rope.original_ctx == 32 &&
                fabs(c.rope.gain - 1 - 0.1 * log(16)) < 1e-12);
    tiny_f32(&t, "mistral3.rope.scaling.yarn_log_multiplier", 1);
    assert_true(from_tiny(&t).rope.gain == 1);
    tiny_u32(&t, "mistral3.rope.dimension_count", 2);
    c = from_tiny(&t); /* what does not rotate grows, too */
    assert_true(c.rope.n == 2 && ig_config_n_rot(&c, ig_config_rope_sets(&c)) == c.head_dim);
    tiny_f32(&t, "mistral3.attention.temperature_scale", -1);
    refuses_tiny(&t, "mistral3.attention.temperature_scale");

    static const int32_t sections[] = {1, 1, 0, 0};
    t = tiny_as("qwen3vl");
    tiny_u32(&t, "qwen3vl.n_deepstack_layers", 3);
    tiny_array(&t, "qwen3vl.rope.dimension_sections", IG_GGUF_I32, 4, sections, sizeof sections);
    assert_true(from_tiny(&t).norms.of_heads == IG_HEAD_NORM_EACH);
    t = tiny_as("qwen3");
    tiny_array(&t, "qwen3.rope.dimension_sections", IG_GGUF_I32, 4, sections, sizeof sections);
    refuses_tiny(&t, "qwen3.rope.dimension_sections");
    tiny_drop_key(&t, "qwen3.rope.dimension_sections");

    /* strings behind their lengths: what ranks texts says yes before no */
    static const char yes[] = "\3\0\0\0\0\0\0\0yes", no[] = "\2\0\0\0\0\0\0\0no";
    char labels[sizeof yes + sizeof no];
    memcpy(labels, yes, sizeof yes - 1), memcpy(labels + sizeof yes - 1, no, sizeof no - 1);
    tiny_array(&t, "qwen3.classifier.output_labels", IG_GGUF_STRING, 2, labels, sizeof yes + sizeof no - 2);
    from_tiny(&t);
    memcpy(labels, no, sizeof no - 1), memcpy(labels + sizeof no - 1, yes, sizeof yes - 1);
    tiny_array(&t, "qwen3.classifier.output_labels", IG_GGUF_STRING, 2, labels, sizeof yes + sizeof no - 2);
    refuses_tiny(&t, "qwen3.classifier.output_labels");
    tiny_array(&t, "qwen3.classifier.output_labels", IG_GGUF_STRING, 1, yes, sizeof yes - 1);
    refuses_tiny(&t, "qwen3.classifier.output_labels");
    tiny_array(&t, "qwen3.classifier.output_labels", IG_GGUF_I32, 2, sections, 2 * sizeof *sections);
    refuses_tiny(&t, "qwen3.classifier.output_labels");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_gguf_of_their_own),
        cmocka_unit_test(reads_gguf_of_others),
        cmocka_unit_test(reads_gguf_of_llama4),
        cmocka_unit_test(reads_gguf_of_neox),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
