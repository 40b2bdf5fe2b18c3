/* SPDX-License-Identifier: Apache-2.0
 *
 * Configurations: what is read from the GGUF metadata of families whose layers do not all attend, or carry a state.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "unit/tiny_config.h"

static void kimi_linear(void **state) {
    (void)state;
    tiny t = tiny_as("kimi-linear");
    tiny_u32(&t, "kimi-linear.block_count", 3);
    tiny_array(&t, "kimi-linear.attention.head_count_kv", IG_GGUF_U32, 3, "\0\0\0\0\1\0\0\0\0\0\0\0", 12);
    tiny_u32(&t, "kimi-linear.attention.key_length", 40);
    tiny_u32(&t, "kimi-linear.attention.value_length", 32);
    tiny_u32(&t, "kimi-linear.attention.kv_lora_rank", 32);
    tiny_u32(&t, "kimi-linear.attention.key_length_mla", 24);
    tiny_u32(&t, "kimi-linear.attention.value_length_mla", 16);
    tiny_u32(&t, "kimi-linear.rope.dimension_count", 8);
    tiny_u32(&t, "kimi-linear.expert_count", 4);
    tiny_u32(&t, "kimi-linear.expert_used_count", 2);
    tiny_u32(&t, "kimi-linear.expert_group_used_count", 1);
    tiny_u32(&t, "kimi-linear.expert_gating_func", 2);
    tiny_u32(&t, "kimi-linear.expert_feed_forward_length", 24);
    tiny_u32(&t, "kimi-linear.leading_dense_block_count", 1);
    tiny_u32(&t, "kimi-linear.ssm.conv_kernel", 4);
    refuses_tiny(&t, "kda.head_dim");
    tiny_u32(&t, "kimi-linear.kda.head_dim", 16);
    ig_config c = from_tiny(&t);
    assert_true(c.is_recurrent[0] && !c.is_recurrent[1] && c.is_recurrent[2] && c.rope.kind == IG_ROPE_NONE);
    assert_true(c.recurrence.kind == IG_KIMI_DELTA && c.recurrence.key_dim == 16 && c.recurrence.n_taps == 4);
    assert_true(!c.experts.is_share_of_all && c.experts.n_groups_used == 0 && c.latent.kv_rank == 32);
}

static void others(void **state) {
    (void)state;
    tiny t = tiny_as("qwen35");
    tiny_u32(&t, "qwen35.block_count", 4);
    tiny_u32(&t, "qwen35.nextn_predict_layers", 1);
    tiny_u32(&t, "qwen35.full_attention_interval", 3);
    tiny_u32(&t, "qwen35.ssm.conv_kernel", 4);
    tiny_u32(&t, "qwen35.ssm.state_size", 16);
    tiny_u32(&t, "qwen35.ssm.group_count", 2);
    tiny_u32(&t, "qwen35.ssm.time_step_rank", 4);
    tiny_u32(&t, "qwen35.ssm.inner_size", 128);
    ig_config c = from_tiny(&t);
    assert_true(c.n_layers == 3 && c.file.n_layers_left_out == 1 && c.n_recurrent == 2 && !c.is_recurrent[2]);
    assert_true(c.recurrence.is_tiled && c.recurrence.value_dim == 32 && c.recurrence.key_dim == 16 && c.is_gate_in_q);
    tiny_raw(&t, "qwen35.attention.recurrent_layers", IG_GGUF_ARRAY, "\7\0\0\0\4\0\0\0\0\0\0\0\1\0\1\0", 16);
    c = from_tiny(&t);
    assert_true(c.is_recurrent[0] && !c.is_recurrent[1] && c.is_recurrent[2]);
    tiny_u32(&t, "qwen35.ssm.inner_size", 129);
    refuses_tiny(&t, "qwen35.ssm.inner_size");

    static const char kv_heads[] = "\4\0\0\0\3\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0";
    t = tiny_as("granitehybrid");
    tiny_u32(&t, "granitehybrid.block_count", 3);
    tiny_raw(&t, "granitehybrid.attention.head_count_kv", IG_GGUF_ARRAY, kv_heads, sizeof kv_heads);
    tiny_u32(&t, "granitehybrid.ssm.conv_kernel", 4);
    tiny_u32(&t, "granitehybrid.ssm.state_size", 16);
    tiny_u32(&t, "granitehybrid.ssm.group_count", 1);
    tiny_u32(&t, "granitehybrid.ssm.time_step_rank", 4);
    tiny_u32(&t, "granitehybrid.ssm.inner_size", 128);
    c = from_tiny(&t);
    assert_true(c.n_recurrent == 2 && c.is_recurrent[0] && !c.is_recurrent[1] && c.n_kv_heads == 1);
    assert_true(c.recurrence.kind == IG_MAMBA_2 && c.recurrence.value_dim == 32 && !c.recurrence.is_tiled);
    tiny_u32(&t, "granitehybrid.block_count", 4);
    refuses_tiny(&t, "granitehybrid.attention.head_count_kv");
    t = tiny_as("falcon-h1");
    tiny_u32(&t, "falcon-h1.ssm.conv_kernel", 4);
    tiny_u32(&t, "falcon-h1.ssm.state_size", 16);
    tiny_u32(&t, "falcon-h1.ssm.group_count", 1);
    tiny_u32(&t, "falcon-h1.ssm.time_step_rank", 4);
    refuses_tiny(&t, "falcon-h1.ssm.inner_size");
    tiny_u32(&t, "falcon-h1.ssm.inner_size", 128);
    c = from_tiny(&t);
    assert_true(c.is_state_beside && c.has_no_state_norm && c.n_recurrent == c.n_layers && !c.has_multipliers);
    assert_true(!c.is_recurrent[0] && ig_config_attention_layers(&c) == c.n_layers && c.rope.kind == IG_ROPE_HALF);
    tiny_u32(&t, "falcon-h1.block_count", 3);
    tiny_raw(&t, "falcon-h1.attention.head_count_kv", IG_GGUF_ARRAY, kv_heads, sizeof kv_heads);
    refuses_tiny(&t, "layer 0 does not attend");
    t = tiny_as("lfm2");
    tiny_u32(&t, "lfm2.block_count", 3);
    tiny_raw(&t, "lfm2.attention.head_count_kv", IG_GGUF_ARRAY, kv_heads, sizeof kv_heads);
    tiny_u32(&t, "lfm2.shortconv.l_cache", 3);
    c = from_tiny(&t);
    assert_true(c.recurrence.kind == IG_SHORT_CONVOLUTION && c.n_recurrent == 2 && c.recurrence.value_dim == TINY_D);
    static const char widths[] = "\4\0\0\0\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\20\0\0";
    t = tiny_as("nemotron_h");
    tiny_u32(&t, "nemotron_h.block_count", 3);
    tiny_raw(&t, "nemotron_h.attention.head_count_kv", IG_GGUF_ARRAY, kv_heads, sizeof kv_heads);
    tiny_raw(&t, "nemotron_h.feed_forward_length", IG_GGUF_ARRAY, widths, sizeof widths);
    tiny_u32(&t, "nemotron_h.ssm.conv_kernel", 4);
    tiny_u32(&t, "nemotron_h.ssm.state_size", 16);
    tiny_u32(&t, "nemotron_h.ssm.group_count", 1);
    tiny_u32(&t, "nemotron_h.ssm.time_step_rank", 4);
    tiny_u32(&t, "nemotron_h.ssm.inner_size", 128);
    c = from_tiny(&t);
    assert_true(c.n_layers == 2 && c.is_recurrent[0] && c.has_no_ffn[0] && !c.has_no_ffn[1] &&
                c.file.first_part[1] == 1);
    assert_true(c.d_ff == 16 && c.activation == IG_RELU_SQUARED && c.rope.kind == IG_ROPE_NONE);
    t = tiny_as("llama");
    tiny_u32(&t, "llama.block_count", 3);
    tiny_raw(&t, "llama.feed_forward_length", IG_GGUF_ARRAY, widths, sizeof widths);
    refuses_tiny(&t, "feed-forward layers of width 0");
    t = tiny_as("llama");
    tiny_u32(&t, "llama.block_count", 3);
    tiny_raw(&t, "llama.attention.head_count_kv", IG_GGUF_ARRAY, kv_heads, sizeof kv_heads);
    refuses_tiny(&t, "'llama.attention.head_count_kv' is 0 in some layers");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(kimi_linear), cmocka_unit_test(others)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
