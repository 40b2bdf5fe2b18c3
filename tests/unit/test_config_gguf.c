/* SPDX-License-Identifier: Apache-2.0
 *
 * Configurations from GGUF metadata: what all families have in common, and experts.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "unit/tiny_config.h"

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
    assert_int_equal(c.rope.kind, IG_ROPE_ADJACENT);
    assert_true(c.tied && c.norms.has_final && c.norms.eps == 1e-5f && c.rope.theta == 10000 && c.rope.linear == 1);
    tiny_f32(&t, "llama.rope.freq_base", 500000);
    tiny_u32(&t, "llama.rope.dimension_count", 2);
    tiny_u64(&t, "llama.attention.head_count_kv", 1);
    tiny_u32(&t, "llama.attention.sliding_window", 16);
    tiny_f32(&t, "llama.rope.scaling.factor", 4);
    tiny_array(&t, "tokenizer.ggml.tokens", IG_GGUF_STRING, 3, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24);
    tiny_add(&t, "output.weight", IG_TYPE_F32, TINY_D, TINY_VOCAB);
    c = from_tiny(&t);
    assert_true(c.rope.theta == 500000 && c.rope.linear == 4 && !c.tied);
    assert_int_equal(c.rope.n, 2);
    assert_int_equal(c.n_kv_heads, 1);
    assert_int_equal(c.window[0], 16);
    assert_int_equal(c.n_vocab, 3); /* the tokens count, not what is stated */
    tiny_string(&t, "llama.rope.scaling.type", "none");
    assert_true(from_tiny(&t).rope.linear == 1);
    assert_true(from_tiny(&t).rope.gain == 1);
    tiny_string(&t, "general.name", "a\033[2J\xc2\x9b.");
    assert_string_equal(from_tiny(&t).name, "a?[2J??.");
}

static void reads_gguf_yarn(void **state) {
    (void)state;
    tiny t = tiny_valid();
    tiny_string(&t, "llama.rope.scaling.type", "yarn");
    tiny_f32(&t, "llama.rope.scaling.factor", 8);
    ig_config c = from_tiny(&t);
    assert_true(c.rope.blend == IG_BLEND_YARN && c.rope.factor == 8 && c.rope.linear == 1);
    assert_true(c.rope.low_freq == 1 && c.rope.high_freq == 32 && fabs(c.rope.gain - 1 - 0.1 * log(8)) < 1e-12);
    assert_int_equal(c.n_ctx_train, 8 * (int)c.rope.original_ctx);
    tiny_u32(&t, "llama.rope.scaling.original_context_length", 4);
    tiny_f32(&t, "llama.rope.scaling.yarn_beta_fast", 16);
    tiny_f32(&t, "llama.rope.scaling.yarn_beta_slow", 2);
    c = from_tiny(&t);
    assert_true(c.rope.original_ctx == 4 && c.rope.low_freq == 2 && c.rope.high_freq == 16);
}

static void reads_gguf_families(void **state) {
    (void)state;
    static const char *const names[] = {"qwen2", "qwen3"};
    for (size_t i = 0; i < 2; i++) {
        tiny t = tiny_as(names[i]);
        ig_config c = from_tiny(&t);
        assert_string_equal(c.architecture, names[i]);
        assert_int_equal(c.rope.kind, IG_ROPE_HALF);
    }
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
        assert_true(c.experts.n == 4 && c.experts.n_used == 2 && c.experts.is_share_of_all == (i == 2));
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
    assert_true(c.n_layers == 5 && c.experts.routing == IG_ROUTING_SIGMOID && c.experts.is_share_of_all &&
                c.experts.scale == 1 && !c.experts.d_shared);
    tiny_u32(&t, "glm4moe.expert_shared_count", 2);
    tiny_u32(&t, "glm4moe.leading_dense_block_count", 3);
    tiny_u32(&t, "glm4moe.nextn_predict_layers", 1);
    tiny_f32(&t, "glm4moe.expert_weights_scale", 2.5f);
    c = from_tiny(&t);
    assert_true(c.n_layers == 4 && c.file.n_layers_left_out == 1 && c.n_plain_layers == 3 && c.d_ff_plain == TINY_FF);
    assert_true(c.d_ff == 24 && c.experts.d_shared == 48 && c.experts.scale == 2.5);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_gguf),
        cmocka_unit_test(reads_gguf_yarn),
        cmocka_unit_test(reads_gguf_families),
        cmocka_unit_test(reads_gguf_experts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
