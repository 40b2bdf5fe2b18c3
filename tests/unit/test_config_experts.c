/* SPDX-License-Identifier: Apache-2.0
 *
 * Configurations: what is read from config.json of families of experts, of indexers and of compressed or recurrent
 * layers beside them.
 */
#include <math.h>

#include "unit/json_config.h"

static void reads_experts(void **state) {
    (void)state;
    ig_config c = from_json("{\"model_type\":\"mixtral\"," LLAMA ",\"num_local_experts\":8,\"num_key_value_heads\":2}");
    assert_true(c.experts.n == 8 && c.experts.n_used == 2 && c.d_ff == 96 && !c.experts.is_share_of_all);
    assert_true(c.rope.theta == 1e6 && c.norms.eps == 1e-5f && !c.window[0]);
    c = from_json("{\"model_type\":\"olmoe\"," LLAMA ",\"num_experts\":64,\"clip_qkv\":null}");
    assert_true(c.experts.n == 64 && c.experts.n_used == 8 && c.experts.is_share_of_all &&
                c.norms.of_heads == IG_HEAD_NORM_ALL);
#define QWEN3_MOE                                              \
    "{\"model_type\":\"qwen3_moe\"," LLAMA                     \
    ",\"num_key_value_heads\":2,\"moe_intermediate_size\":24," \
    "\"num_experts\":16,\"num_experts_per_tok\":4"
    c = from_json(QWEN3_MOE ",\"norm_topk_prob\":true,\"mlp_only_layers\":[]}");
    assert_true(c.experts.n == 16 && c.experts.n_used == 4 && c.d_ff == 24 && !c.experts.is_share_of_all &&
                c.head_dim == 128);
    c = from_json("{\"model_type\":\"granitemoe\"," LLAMA ",\"num_local_experts\":6,\"attention_multiplier\":0.5}");
    assert_true(c.experts.n == 6 && c.experts.n_used == 2 && c.attn_scale == 0.5);
#define GLM4_MOE                                               \
    "{\"model_type\":\"glm4_moe\"," LLAMA                      \
    ",\"num_key_value_heads\":2,\"moe_intermediate_size\":24," \
    "\"n_routed_experts\":16,\"num_experts_per_tok\":4"
    c = from_json(GLM4_MOE ",\"n_group\":1,\"routed_scaling_factor\":1.5,\"use_qk_norm\":true}");
    assert_true(c.experts.n == 16 && c.experts.n_used == 4 && c.d_ff == 24 && c.experts.d_shared == 24 &&
                c.d_ff_plain == 96);
    assert_true(c.n_plain_layers == 1 && c.experts.routing == IG_ROUTING_SIGMOID && !c.experts.is_share_of_all &&
                c.experts.scale == 1.5);
    assert_true(c.norms.of_heads == IG_HEAD_NORM_EACH && c.rope.n == c.head_dim / 2);
#define DEEPSEEK(type)                                                                               \
    "{\"model_type\":\"" type "\"," LLAMA                                                            \
    ",\"kv_lora_rank\":32,\"qk_nope_head_dim\":16,\"qk_rope_head_dim\":8,\"v_head_dim\":16,"         \
    "\"moe_intermediate_size\":24,\"n_routed_experts\":16,\"num_experts_per_tok\":4,\"head_dim\":8," \
    "\"first_k_dense_replace\":1"
    c = from_json(DEEPSEEK("deepseek_v3") ",\"q_lora_rank\":24,\"n_group\":4,\"topk_group\":2}");
    assert_true(c.latent.kv_rank == 32 && c.latent.q_rank == 24 && c.latent.key_dim == 16 && c.latent.value_dim == 16);
    assert_true(c.n_kv_heads == 1 && c.head_dim == 40 && c.rope.n == 8 && c.rope.kind == IG_ROPE_ADJACENT);
    assert_true(fabs(c.attn_scale * sqrt(24) - 1) < 1e-12 && c.experts.n_groups == 4 && c.experts.n_groups_used == 2);
    assert_true(c.experts.routing == IG_ROUTING_SIGMOID && !c.experts.is_share_of_all);
    c = from_json(DEEPSEEK(
        "deepseek_v2") ",\"q_lora_rank\":null,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":40,"
                       "\"mscale\":0.707,\"mscale_all_dim\":0.707,"
                       "\"original_max_position_embeddings\":64}}");
    assert_true(c.latent.q_rank == 0 && c.experts.routing == IG_ROUTING_SOFTMAX_FIRST && c.experts.is_share_of_all);
    assert_true(fabs(c.attn_scale * sqrt(24) - pow(1 + 0.0707 * log(40), 2)) < 1e-9 && c.rope.gain == 1);
#define LLAMA4 "{\"model_type\":\"llama4_text\"," LLAMA ",\"num_key_value_heads\":2"
    c = from_json(LLAMA4 ",\"moe_layers\":[]}");
    assert_true(c.window[0] == 8192 && c.has_chunks && c.rope.set[0] == IG_ROPE_MAIN && c.d_ff == 16384 &&
                !c.experts.n);
    assert_true(c.rope.query_growth == 0.1 && c.rope.growth_length == 8192 && c.rope.grows_unrotated &&
                c.norms.are_of_rotated);
    c = from_json(LLAMA4
                  ",\"num_local_experts\":0,\"no_rope_layers\":[1,0,1],\"attention_chunk_size\":32,"
                  "\"attn_temperature_tuning\":4,\"floor_scale\":16,\"intermediate_size_mlp\":80}");
    assert_true(c.window[0] == 32 && !c.window[1] && c.rope.set[1] == IG_ROPE_LEFT_OUT && c.rope.growth_length == 16);
    assert_true(c.d_ff == 80 && c.rope.kind == IG_ROPE_ADJACENT && c.head_dim == 128);
    c = from_json(LLAMA4
                  ",\"moe_layers\":[],\"no_rope_layers\":[1,1,1],\"use_qk_norm\":false,"
                  "\"attn_temperature_tuning\":false,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":16,"
                  "\"low_freq_factor\":1,\"high_freq_factor\":1,\"original_max_position_embeddings\":64},"
                  "\"layer_types\":[\"full_attention\",\"chunked_attention\",\"full_attention\"]}");
    assert_true(!c.window[0] && c.window[1] == 8192 && c.norms.of_heads == IG_HEAD_NORM_NONE &&
                c.rope.query_growth == 0);
    assert_true(c.rope.blend == IG_BLEND_LLAMA3 && c.rope.low_freq == c.rope.high_freq);
    c = from_json(LLAMA4 ",\"num_local_experts\":4,\"interleave_moe_layer_step\":2,\"moe_layers\":[1]}");
    assert_true(c.experts.n == 4 && c.experts.n_used == 1 && c.experts.step == 2 && ig_config_expert_layers(&c) == 1);
    assert_true(c.d_ff == 96 && c.d_ff_plain == 16384 && c.experts.d_shared == 96 && c.experts.are_inputs_shared);
    assert_true(c.file.expert_order == IG_EXPERTS_BY_COLUMNS && c.experts.routing == IG_ROUTING_SIGMOID_LAST);
    c = from_json("{\"model_type\":\"llama4_text\"," LLAMA
                  ",\"moe_layers\":[],\"head_dim\":null,\"num_key_value_heads\":null}");
    assert_true(c.head_dim == 8 && c.n_kv_heads == 6);
    static const char *const refused[][2] = {
        {LLAMA4 ",\"num_local_experts\":4,\"moe_layers\":[0,2]}", "moe_layers"},
        {LLAMA4 ",\"num_local_experts\":4,\"moe_layers\":\"all\"}", "moe_layers"},
        {LLAMA4 ",\"num_local_experts\":4,\"interleave_moe_layer_step\":99}", "no layer has any"},
        {LLAMA4 ",\"moe_layers\":[],\"layer_types\":[\"chunked_attention\",\"sliding_attention\","
                "\"full_attention\"]}",
         "layer_types"},
        {DEEPSEEK("deepseek_v3") ",\"n_group\":8,\"topk_group\":1}", "groups"},
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
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) refuses(refused[i][0], refused[i][1]);
}

/* Which layers have an indexer of their own, as three kinds of field say it. */
static void reads_indexers(void **state) {
    (void)state;
#define INDEXED(type) DEEPSEEK(type) ",\"q_lora_rank\":24,\"index_n_heads\":4"
#define GLM(more) INDEXED("glm_moe_dsa") "," more "}"
    ig_config c = from_json(INDEXED("deepseek_v32") ",\"index_topk\":77}");
    assert_true(c.index.n_heads == 4 && c.index.dim == 128 && c.index.n_chosen == 77 && !c.is_index_adjacent);
    for (int l = 0; l < 3; l++) assert_int_equal(c.index_layer[l], l);
    static const struct {
        const char *text;
        int of[3];
    } all[] = {
        {GLM("\"x\":null"), {0, 1, 2}},
        {GLM("\"index_topk_freq\":3"), {0, 1, 1}},
        {GLM("\"index_topk_freq\":2,\"index_skip_topk_offset\":1"), {0, 0, 2}},
        {GLM("\"index_topk_pattern\":\"FSS\",\"index_topk_freq\":1"), {0, 0, 0}},
        {GLM("\"indexer_types\":[\"full\",\"shared\",\"full\"],\"index_topk_pattern\":\"FSS\""), {0, 0, 2}},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        c = from_json(all[i].text);
        assert_true(c.index.n_chosen == 2048 && c.is_index_adjacent && c.norms.eps == 1e-5f);
        for (int l = 0; l < 3; l++) assert_int_equal(c.index_layer[l], all[i].of[l]);
    }
    static const char *const refused[][2] = {
        {GLM("\"indexer_types\":[\"shared\",\"full\",\"shared\"]"), "the first layer"},
        {GLM("\"indexer_types\":[\"full\",\"full\"]"), "indexer_types"},
        {GLM("\"indexer_types\":[\"full\",\"full\",\"half\"]"), "indexer_types"},
        {GLM("\"indexer_types\":\"full\""), "indexer_types"},
        {GLM("\"index_topk_pattern\":\"FS\""), "index_topk_pattern"},
        {GLM("\"index_topk_pattern\":\"FSX\""), "index_topk_pattern"},
        {GLM("\"index_topk_pattern\":[1]"), "index_topk_pattern"},
        {GLM("\"index_topk\":0"), "index_topk"},
        {GLM("\"index_head_dim\":300"), "index_head_dim"},
        {GLM("\"index_head_dim\":20"), "indexer"},
        {INDEXED("deepseek_v32") ",\"index_topk\":77,\"index_head_dim\":4}", "indexer"},
        {DEEPSEEK("deepseek_v32") ",\"q_lora_rank\":null}", "indexer"},
        {DEEPSEEK("deepseek_v32") ",\"index_n_heads\":129}", "index_n_heads"},
        {GLM("\"mlp_layer_types\":[\"dense\",\"dense\",\"sparse\"]"), "mlp_layer_types"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) refuses(refused[i][0], refused[i][1]);
}

/* Blocks that are chosen, in layers of either list, with names of published files and with others. */
static void reads_blocks(void **state) {
    (void)state;
#define M3(more)                                                                                                \
    "{\"model_type\":\"minimax_m3_vl\",\"text_config\":{\"model_type\":\"minimax_m3_vl_text\",\"num_key_value_" \
    "heads\":2,\""                                                                                              \
    "num_local_experts\":16," LLAMA "," more "}}"
#define SPARSE(more)                                                                                                   \
    M3("\"moe_layer_freq\":[0,1,1],\"sparse_attention_config\":{\"sparse_num_index_heads\":2,\"sparse_index_dim\":64," \
       "\"sparse_attention_freq\":[0,0,1]," more)
    ig_config c = from_json(SPARSE("\"sparse_block_size\":32,\"sparse_topk_blocks\":7,\"sparse_local_block\":2}"));
    assert_true(c.index.n_heads == 2 && c.index.dim == 64 && c.index.block == 32 && c.index.n_chosen == 7 * 32);
    assert_true(c.index.n_local == 2 && c.index_layer[0] == IG_NO_INDEX && c.index_layer[2] == 2);
    assert_true(c.index_layer[1] == IG_NO_INDEX && c.n_plain_layers == 1 && c.d_ff_plain == 12288 && c.rope.n == 64);
    assert_true(c.experts.d_shared == 3072 && c.experts.scale == 2 && c.norms.offset == 1 &&
                c.activation == IG_SWIGLU_OAI);
    c = from_json(
        M3("\"index_n_heads\":2,\"layer_types\":[\"full_attention\",\"minimax_m3_sparse\",\"full_attention\"],"
           "\"mlp_layer_types\":[\"dense\",\"dense\",\"sparse\"]"));
    assert_true(c.index.dim == 128 && c.index.block == 128 && c.index.n_chosen == 2048 && c.index.n_local == 1);
    assert_true(c.index_layer[1] == 1 && c.index_layer[2] == IG_NO_INDEX && c.n_plain_layers == 2);
    static const char *const refused[][2] = {
        {SPARSE("\"sparse_block_size\":0}"), "sparse_block_size"},
        {SPARSE("\"sparse_block_size\":4096,\"sparse_topk_blocks\":100000}"), "sparse_topk_blocks"},
        {M3("\"index_n_heads\":4"), "KV heads"},
        {M3("\"index_n_heads\":2,\"index_head_dim\":72"), "KV heads"},
        {M3("\"index_n_heads\":2,\"layer_types\":[\"full_attention\"]"), "layer_types"},
        {M3("\"index_n_heads\":2,\"layer_types\":[\"full_attention\",\"x\",\"full_attention\"]"), "layer_types"},
        {M3("\"index_n_heads\":2,\"moe_layer_freq\":[1,0,1]"), "moe_layer_freq"},
        {M3("\"index_n_heads\":2,\"swiglu_limit\":8"), "swiglu_limit"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) refuses(refused[i][0], refused[i][1]);
}

/* Layers that attend, as lists of published files or kinds say, and what experts are called there. */
static void reads_kimi_linear(void **state) {
    (void)state;
#define KIMI(more)                                                                                                \
    "{\"model_type\":\"kimi_linear\"," LLAMA                                                                      \
    ",\"moe_intermediate_size\":24,\"kv_lora_rank\":32,"                                                          \
    "\"qk_nope_head_dim\":16,\"qk_rope_head_dim\":8,\"v_head_dim\":16,\"num_experts\":16,\"num_shared_experts\":" \
    "2," more "}"
#define KDA(lists) "\"linear_attn_config\":{\"head_dim\":32,\"num_heads\":5,\"short_conv_kernel_size\":3," lists "}"
    ig_config c = from_json(KIMI(KDA("\"full_attn_layers\":[3],\"kda_layers\":[1,2]") ",\"num_experts_per_token\":6"));
    assert_true(c.is_recurrent[0] && c.is_recurrent[1] && !c.is_recurrent[2] && c.rope.kind == IG_ROPE_NONE);
    assert_true(c.recurrence.kind == IG_KIMI_DELTA && c.recurrence.n_value_heads == 5 && c.recurrence.n_taps == 3);
    assert_true(c.recurrence.key_dim == 32 && c.recurrence.value_dim == 32 && c.latent.kv_rank == 32);
    assert_true(c.experts.n_used == 6 && c.experts.d_shared == 48 && c.n_plain_layers == 1 &&
                !c.experts.is_share_of_all);
    assert_true(c.experts.scale == 2.446 && fabs(c.attn_scale * sqrt(24) - 1) < 1e-9);
    c =
        from_json(KIMI("\"layer_types\":[\"linear_attention\",\"full_attention\",\"linear_attention\"],"
                       "\"linear_head_dim\":64,\"moe_renormalize\":false"));
    assert_true(c.is_recurrent[0] && !c.is_recurrent[1] && c.recurrence.key_dim == 64 && c.experts.is_share_of_all);
    static const char *const refused[][2] = {
        {KIMI(KDA("\"full_attn_layers\":[4]")), "full_attn_layers"},
        {KIMI(KDA("\"full_attn_layers\":[]")), "no layer attends"},
        {KIMI("\"layer_types\":[\"full_attention\"]"), "layer_types"},
        {KIMI("\"layer_types\":[\"full_attention\",\"conv\",\"full_attention\"]"), "layer_types"},
        {KIMI("\"mla_use_nope\":false"), "mla_use_nope"},
        {KIMI("\"moe_router_activation_func\":\"softmax\""), "moe_router_activation_func"},
        {KIMI(KDA("\"full_attn_layers\":[3]") ",\"num_experts_per_token\":17"), "num_experts_per_token"},
        {KIMI("\"linear_head_dim\":512"), "linear_head_dim"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) refuses(refused[i][0], refused[i][1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_experts),
        cmocka_unit_test(reads_indexers),
        cmocka_unit_test(reads_blocks),
        cmocka_unit_test(reads_kimi_linear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
