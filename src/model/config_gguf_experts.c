/* SPDX-License-Identifier: Apache-2.0
 *
 * Families with mixtures of experts whose layers all attend, from GGUF metadata.
 */
#include <math.h>
#include <stdio.h>

#include "base/error.h"
#include "model/config_section.h"

/* In all layers, if there are any; the width is an expert's. */
void ig_section_read_experts(ig_section *r, ig_config *c) {
    int n = ig_section_count(r, "expert_count", IG_MAX_EXPERTS);
    if (!n || r->status) return;
    c->experts.n = n;
    c->experts.n_used = ig_section_int(r, "expert_used_count", IG_MAX_EXPERTS, -1);
    if (c->experts.n_used > c->experts.n && !r->status)
        r->status = ig_fail(r->err, IG_E_FORMAT, "%s: key '%s' is %d, must be at most 'expert_count' (%d)", r->path,
                            ig_section_name(r, "expert_used_count").text, c->experts.n_used, c->experts.n);
}

/* How many of the first layers have no experts. */
static int read_n_plain(ig_section *r, const ig_config *c) {
    return ig_section_count(r, "leading_dense_block_count", c->n_layers - 1);
}

void ig_gguf_read_ernie4_5_moe(ig_section *r, ig_config *c) {
    ig_config_set_plain_layers(c, read_n_plain(r, c));
    c->d_ff = ig_section_int(r, "expert_feed_forward_length", IG_MAX_WIDTH, c->d_ff);
    c->experts.d_shared = ig_section_count(r, "expert_shared_feed_forward_length", IG_MAX_WIDTH);
    c->experts.routing = IG_ROUTING_SOFTMAX_FIRST;
    ig_section_int(r, "expert_count", IG_MAX_EXPERTS, -1);
    ig_section_read_experts(r, c);
    ig_gguf_read_no_window(r, c);
    if (ig_section_int(r, "interleave_moe_layer_step", IG_MAX_LAYERS, 1) != 1 && !r->status)
        r->status = ig_fail(r->err, IG_E_UNSUPPORTED, "%s: key '%s' is above 1, which is not supported", r->path,
                            ig_section_name(r, "interleave_moe_layer_step").text);
}

/* Every other layer has a window, from the first on. Files do not say that YaRN's blend is not of whole numbers. */
void ig_gguf_read_gpt_oss(ig_section *r, ig_config *c) {
    ig_gguf_read_windows(r, c, 2, IG_ROPE_MAIN, IG_ROPE_MAIN);
    c->activation = IG_SWIGLU_OAI;
    c->has_sink_scores = true;
    c->rope.is_exact = true;
    ig_section_read_experts(r, c);
    c->d_ff = ig_section_int(r, "expert_feed_forward_length", IG_MAX_WIDTH, -1);
}

/* Every fourth layer neither rotates nor attends to chunks, unless files say that none does; and every so many have
 * experts. That heads are normed in one size, and not in the other, no key says. */
void ig_gguf_read_llama4(ig_section *r, ig_config *c) {
    enum { PERIOD = 4, EXPERTS_OF_MAVERICK = 128 };
    bool is_stated = ig_gguf_find(r->g, ig_section_name(r, "attention.sliding_window").text) != NULL;
    int chunk = is_stated ? ig_section_count(r, "attention.sliding_window", IG_MAX_CTX) : IG_LLAMA4_CHUNK;
    c->experts.step = ig_section_count(r, "interleave_moe_layer_step", IG_MAX_LAYERS);
    if (c->experts.step) ig_section_read_experts(r, c);
    if (!c->experts.n) c->experts.step = 0;
    if (c->experts.n) {
        c->d_ff_plain = c->d_ff;
        c->d_ff = c->experts.d_shared = ig_section_int(r, "expert_feed_forward_length", IG_MAX_WIDTH, -1);
        c->experts.routing = IG_ROUTING_SIGMOID_LAST;
        c->experts.are_inputs_shared = true;
    }
    if (c->experts.n != EXPERTS_OF_MAVERICK) {
        c->norms.of_heads = IG_HEAD_NORM_EACH;
        c->norms.of_heads_are_plain = c->norms.follow_rope = c->norms.are_of_rotated = true;
    }
    if (!chunk) return;
    for (int l = 0; l < c->n_layers; l++) {
        bool is_whole = (l + 1) % PERIOD == 0;
        c->window[l] = is_whole ? 0 : chunk;
        c->rope.set[l] = is_whole ? IG_ROPE_LEFT_OUT : IG_ROPE_MAIN;
    }
    c->has_chunks = c->rope.grows_unrotated = true;
    c->rope.query_growth = 0.1;
    c->rope.growth_length = IG_LLAMA4_CHUNK;
}

void ig_gguf_read_hunyuan_moe(ig_section *r, ig_config *c) {
    ig_gguf_read_hunyuan(r, c);
    ig_section_read_experts(r, c);
    c->d_ff = ig_section_int(r, "expert_feed_forward_length", IG_MAX_WIDTH, c->d_ff);
    c->experts.d_shared = ig_section_int(r, "expert_shared_feed_forward_length", IG_MAX_WIDTH, -1);
}

/* Scores of experts are sigmoids, and a bias counts where some are chosen. */
void ig_gguf_read_sigmoid_experts(ig_section *r, ig_config *c) {
    ig_section_int(r, "expert_count", IG_MAX_EXPERTS, -1);
    ig_section_read_experts(r, c);
    c->experts.routing = IG_ROUTING_SIGMOID;
    if (ig_section_count(r, "expert_gating_func", 2) == 1 && !r->status)
        r->status = ig_fail(r->err, IG_E_UNSUPPORTED, "%s: key '%s' is 1, only 2 (sigmoid) is supported", r->path,
                            ig_section_name(r, "expert_gating_func").text);
}

void ig_gguf_read_minimax_m2(ig_section *r, ig_config *c) {
    c->norms.of_heads = IG_HEAD_NORM_ALL;
    ig_gguf_read_no_window(r, c);
    ig_gguf_read_sigmoid_experts(r, c);
    c->d_ff = ig_section_int(r, "expert_feed_forward_length", IG_MAX_WIDTH, c->d_ff);
}

void ig_gguf_read_olmoe(ig_section *r, ig_config *c) {
    c->norms.of_heads = IG_HEAD_NORM_ALL;
    c->experts.is_share_of_all = true;
    ig_gguf_read_no_window(r, c);
    ig_section_read_experts(r, c);
}

void ig_gguf_read_qwen2moe(ig_section *r, ig_config *c) {
    ig_gguf_read_no_window(r, c);
    ig_section_read_experts(r, c);
    c->experts.is_share_of_all = true;
    c->d_ff = ig_section_int(r, "expert_feed_forward_length", IG_MAX_WIDTH, -1);
    c->experts.d_shared = ig_section_int(r, "expert_shared_feed_forward_length", IG_MAX_WIDTH, -1);
    c->experts.is_shared_gated = true;
}

void ig_gguf_read_qwen3moe(ig_section *r, ig_config *c) {
    ig_gguf_read_qwen3(r, c);
    ig_section_read_experts(r, c);
    c->d_ff = ig_section_int(r, "expert_feed_forward_length", IG_MAX_WIDTH, -1);
}

/* What shares add up to. */
static void read_scale(ig_section *r, ig_config *c) {
    bool is_normed = false;
    c->experts.scale = ig_section_scale(r, "expert_weights_scale", 1);
    ig_gguf_bool(r->g, ig_section_name(r, "expert_weights_norm").text, &is_normed, &r->status, r->err);
    c->experts.is_share_of_all = !is_normed;
}

void ig_gguf_read_sigmoid_shares(ig_section *r, ig_config *c) {
    read_scale(r, c);
    ig_gguf_read_sigmoid_experts(r, c);
}

/* The first layers have no experts, and the last one of a file may guess tokens ahead. */
static void read_widths(ig_section *r, ig_config *c, int n_plain) {
    c->file.n_layers_left_out = ig_section_count(r, "nextn_predict_layers", c->n_layers - n_plain - 1);
    c->n_layers -= c->file.n_layers_left_out;
    ig_config_set_plain_layers(c, n_plain);
    c->d_ff = ig_section_int(r, "expert_feed_forward_length", IG_MAX_WIDTH, -1);
    c->experts.d_shared = c->d_ff * ig_section_count(r, "expert_shared_count", IG_MAX_WIDTH / c->d_ff);
}

void ig_section_read_later_experts(ig_section *r, ig_config *c) {
    read_widths(r, c, read_n_plain(r, c));
    read_scale(r, c);
    ig_section_int(r, "expert_count", IG_MAX_EXPERTS, -1);
    ig_section_read_experts(r, c);
}

/* Experts are of the best groups alone. */
void ig_section_read_groups(ig_section *r, ig_config *c) {
    c->experts.n_groups = ig_section_count(r, "expert_group_count", c->experts.n);
    int n_used = ig_section_count(r, "expert_group_used_count", ig_max_int(c->experts.n_groups, 1));
    c->experts.n_groups_used = c->experts.n_groups ? n_used : 0; /* files of Kimi Linear say 1 of none */
}

static void read_later_experts(ig_section *r, ig_config *c, int n_plain) {
    read_widths(r, c, n_plain);
    ig_gguf_read_sigmoid_shares(r, c);
}

/* The first layers have neither experts nor an indexer. */
void ig_gguf_read_minimax_m3(ig_section *r, ig_config *c) {
    int n_plain = read_n_plain(r, c);
    c->norms.of_heads = IG_HEAD_NORM_EACH;
    c->activation = IG_SWIGLU_OAI;
    ig_gguf_read_no_window(r, c);
    read_later_experts(r, c, n_plain);
    int block = ig_section_int(r, "attention.indexer.block_size", IG_MAX_CTX, -1);
    c->index =
        (ig_index_shape){.n_heads = ig_section_int(r, "attention.indexer.head_count", IG_INDEX_HEADS, -1),
                         .dim = ig_section_int(r, "attention.indexer.key_length", IG_INDEX_DIMS, -1),
                         .block = block,
                         .n_chosen = block * ig_section_int(r, "attention.indexer.top_k", IG_MAX_CTX / block, -1),
                         .n_local = ig_section_count(r, "attention.indexer.local_blocks", IG_MAX_CTX)};
    for (int l = 0; l < c->n_layers; l++) c->index_layer[l] = l < n_plain ? IG_NO_INDEX : (uint16_t)l;
}

/* GLM 4.5 to 4.7. */
void ig_gguf_read_glm4moe(ig_section *r, ig_config *c) {
    read_later_experts(r, c, read_n_plain(r, c));
    ig_gguf_read_no_window(r, c);
    if (ig_gguf_tensor(r->g, "blk.0.attn_q_norm.weight")) c->norms.of_heads = IG_HEAD_NORM_EACH;
}

/* Ling and Ring 2. Experts are of the best groups, and files may hold the width of the shared part. */
void ig_gguf_read_bailingmoe2(ig_section *r, ig_config *c) {
    read_later_experts(r, c, read_n_plain(r, c));
    ig_section_read_groups(r, c);
    ig_gguf_read_no_window(r, c);
    c->norms.of_heads = IG_HEAD_NORM_EACH;
    c->experts.d_shared = ig_section_int(r, "expert_shared_feed_forward_length", IG_MAX_WIDTH, c->experts.d_shared);
}

/* DeepSeek's first mixture (16B), and Ling's. */
void ig_gguf_read_deepseek(ig_section *r, ig_config *c) {
    ig_section_read_later_experts(r, c);
    ig_gguf_read_no_window(r, c);
}

/* K-EXAONE. Layers without a window do not rotate. */
void ig_gguf_read_exaone_moe(ig_section *r, ig_config *c) {
    c->norms.of_heads = IG_HEAD_NORM_EACH;
    read_later_experts(r, c, read_n_plain(r, c));
    ig_gguf_read_windows(r, c, 4, IG_ROPE_MAIN, IG_ROPE_LEFT_OUT);
}

/* Laguna. Layers with a window have more heads of queries than the others. */
void ig_gguf_read_laguna(ig_section *r, ig_config *c) {
    int local_heads, dim = ig_section_int(r, "attention.key_length", IG_KV_DIMS, -1);
    const ig_tensor *gate = ig_gguf_tensor(r->g, "blk.0.attn_gate.weight");
    read_later_experts(r, c, read_n_plain(r, c));
    c->experts.d_shared = ig_section_int(r, "expert_shared_feed_forward_length", IG_MAX_WIDTH, c->d_ff);
    c->norms.of_heads = IG_HEAD_NORM_EACH;
    c->has_attn_gate = c->is_gate_softplus = true;
    ig_section_read_local_windows(r, c, -4, 10000);
    ig_section_read_kinds(r, c, "attention.head_count", IG_MAX_HEADS, &local_heads, &c->n_heads);
    c->is_gate_of_heads = gate && gate->dims[1] == (uint64_t)(c->window[0] ? local_heads : c->n_heads);
    ig_config_set_local_heads(c, local_heads, c->n_kv_heads, dim);
    c->rope.local_n = ig_section_int(r, "rope.dimension_count_swa", IG_KV_DIMS, dim);
}

/* Trinity. */
void ig_gguf_read_afmoe(ig_section *r, ig_config *c) {
    read_later_experts(r, c, read_n_plain(r, c));
    c->norms.order = IG_NORMS_AROUND;
    c->norms.of_heads = IG_HEAD_NORM_EACH;
    c->has_attn_gate = true;
    c->embed_scale = sqrt((double)c->d_model);
    ig_gguf_read_windows(r, c, 4, IG_ROPE_MAIN, IG_ROPE_LEFT_OUT);
}

static int count_without_router(const ig_section *r, const ig_config *c) {
    char name[64];
    for (int n = 0; n < c->n_layers - 1; n++) {
        snprintf(name, sizeof name, "blk.%d.ffn_gate_inp.weight", n);
        if (ig_gguf_tensor(r->g, name)) return n;
    }
    return c->n_layers - 1;
}

/* Hunyuan 3. No key says how many of the first layers have no experts. */
void ig_gguf_read_hy_v3(ig_section *r, ig_config *c) {
    read_later_experts(r, c, count_without_router(r, c));
    ig_gguf_read_no_window(r, c);
    c->norms.of_heads = IG_HEAD_NORM_EACH;
    c->experts.d_shared = ig_section_count(r, "expert_shared_feed_forward_length", IG_MAX_WIDTH);
}

void ig_gguf_read_mellum(ig_section *r, ig_config *c) {
    c->norms.of_heads = IG_HEAD_NORM_EACH;
    ig_section_read_local_windows(r, c, 4, c->rope.theta);
    ig_section_read_experts(r, c);
    c->d_ff = ig_section_int(r, "expert_feed_forward_length", IG_MAX_WIDTH, -1);
}

/* But the first ones, which have no experts, do. What experts give is averaged with what one for all tokens does. */
void ig_gguf_read_cohere2moe(ig_section *r, ig_config *c) {
    float rms_eps = c->norms.eps;
    int n_plain = read_n_plain(r, c);
    read_later_experts(r, c, n_plain);
    ig_gguf_read_cohere2(r, c);
    if (rms_eps > 0) c->norms.kind = IG_NORM_RMS, c->norms.eps = rms_eps;
    for (int l = 0; l < n_plain; l++) c->rope.set[l] = IG_ROPE_MAIN;
    if (c->experts.d_shared) c->experts.shared_scale = 0.5, c->experts.scale *= 0.5;
}
