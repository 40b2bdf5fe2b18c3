/* SPDX-License-Identifier: Apache-2.0
 *
 * Models with latent attention: DeepSeek-V2 and V3, and what is built like them (GLM-4.7-Flash, Mistral Small 4,
 * Youtu-LLM).
 */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "model/config_hf.h"
#include "model/config_section.h"

/* Sizes that both kinds of file state; of the heads as published, whose keys have `n_rot` numbers that rotate. */
static void set_latent(ig_config *c, ig_latent_shape s, int n_rot) {
    c->latent = s;
    c->n_kv_heads = 1;
    c->head_dim = s.kv_rank + n_rot;
    c->rope.n = n_rot;
    c->attn_scale = 1 / sqrt((double)s.key_dim + n_rot);
}

/* YaRN's gain is not of cosines and sines but, squared, of all scores. */
static void set_gain(ig_config *c, double of_all) {
    double gain = 1 + of_all * log(c->rope.factor);
    if (c->rope.blend == IG_BLEND_YARN) c->attn_scale *= gain * gain;
}

/* Which layers have an index of their own; the others go by that of the last one before them that has. */
static bool set_index_layers(ig_config *c, const bool *own) {
    for (int l = 0; l < c->n_layers; l++) c->index_layer[l] = (uint16_t)(own[l] ? l : l ? c->index_layer[l - 1] : 0);
    return own[0];
}

/* ---- GGUF ------------------------------------------------------------------------------------------------------ */

static ig_status refuse_key(const ig_section *r, const char *name, const char *why) {
    return ig_fail(r->err, IG_E_UNSUPPORTED, "%s: key '%s' %s", r->path, ig_section_name(r, name).text, why);
}

/* Files of GLM-4.7-Flash do not say how scores become weights: a bias is for sigmoids alone. */
static void read_routing(ig_section *r, ig_config *c) {
    enum { SOFTMAX = 1, SIGMOID };
    char bias[64];
    snprintf(bias, sizeof bias, "blk.%d.exp_probs_b.bias", ig_config_first_expert_layer(c));
    int kind = ig_section_count(r, "expert_gating_func", SIGMOID);
    if (kind == 0) kind = ig_gguf_tensor(r->g, bias) ? SIGMOID : SOFTMAX;
    c->experts.routing = kind == SIGMOID ? IG_ROUTING_SIGMOID : IG_ROUTING_SOFTMAX_FIRST;
    ig_section_read_groups(r, c);
}

void ig_gguf_read_deepseek2(ig_section *r, ig_config *c) {
    ig_latent_shape s = {.kv_rank = ig_section_int(r, "attention.kv_lora_rank", IG_KV_DIMS, -1),
                         .q_rank = ig_section_count(r, "attention.q_lora_rank", IG_MAX_WIDTH),
                         .key_dim = ig_section_count(r, "attention.key_length_mla", IG_KV_DIMS),
                         .value_dim = ig_section_count(r, "attention.value_length_mla", IG_KV_DIMS)};
    int key_length = c->head_dim, n_rot = c->rope.n;
    s.key_dim -= n_rot;
    if (!r->status && (s.key_dim < 1 || !s.value_dim))
        r->status = refuse_key(r, "attention.key_length_mla",
                               "is missing or too small: files from before April 2025 must be converted again");
    if (!r->status && (n_rot < 1 || c->n_kv_heads != 1 || key_length != s.kv_rank + n_rot))
        r->status = refuse_key(r, "attention.key_length", "and the ranks of latents do not belong together");
    if (r->status) return;
    set_latent(c, s, n_rot);
    c->rope.gain = 1;
    set_gain(c, ig_section_number(r, "rope.scaling.yarn_log_multiplier", 0));
    if (ig_gguf_find(r->g, ig_section_name(r, "expert_count").text)) {
        ig_section_read_later_experts(r, c);
        if (!r->status) read_routing(r, c);
    } else if (ig_section_count(r, "leading_dense_block_count", c->n_layers) != c->n_layers && !r->status) {
        r->status = refuse_key(r, "expert_count", "is missing, and not all layers are without experts");
    }
    c->rope.query_growth = ig_section_scale(r, "attention.temperature_scale", 0);
    int from = ig_section_int(r, "attention.temperature_length", IG_MAX_CTX, (int)fmax(c->rope.original_ctx, 1));
    if (!c->rope.query_growth || r->status) return;
    if (c->rope.blend != IG_BLEND_YARN)
        c->rope.original_ctx = from;
    else if (from != c->rope.original_ctx)
        r->status = refuse_key(r, "attention.temperature_length", "is not YaRN's original context");
}

/* Files of before GLM-5.2 do not say which layers have an index of their own: those whose tensors are there. */
static void read_index(ig_section *r, ig_config *c) {
    static const char types[] = "attention.indexer.types";
    bool own[IG_MAX_LAYERS];
    ig_gguf_read_deepseek2(r, c);
    c->index = (ig_index_shape){.n_heads = ig_section_int(r, "attention.indexer.head_count", IG_INDEX_HEADS, -1),
                                .dim = ig_section_int(r, "attention.indexer.key_length", IG_INDEX_DIMS, -1),
                                .n_chosen = ig_section_int(r, "attention.indexer.top_k", IG_MAX_CTX, -1)};
    if (r->status) return;
    bool is_stated = ig_section_flags(r, c, types, own);
    for (int l = 0; l < c->n_layers && !is_stated; l++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.indexer.attn_k.weight", l);
        own[l] = ig_gguf_tensor(r->g, name) != NULL;
    }
    if (!r->status && !set_index_layers(c, own))
        r->status = refuse_key(r, types, "must begin with a layer that has one");
}

void ig_gguf_read_deepseek32(ig_section *r, ig_config *c) { read_index(r, c); }

void ig_gguf_read_glm_dsa(ig_section *r, ig_config *c) {
    c->is_index_adjacent = true;
    read_index(r, c);
}

static ig_recurrence_shape kimi_delta(int n_heads, int dim, int n_taps) {
    return (ig_recurrence_shape){.kind = IG_KIMI_DELTA,
                                 .n_key_heads = n_heads,
                                 .n_value_heads = n_heads,
                                 .key_dim = dim,
                                 .value_dim = dim,
                                 .n_taps = n_taps};
}

/* Layers that do not attend have no heads of keys and values; the others do not rotate. Shares of experts add up to
 * their scale, which no key says. */
void ig_gguf_read_kimi_linear(ig_section *r, ig_config *c) {
    ig_gguf_read_deepseek2(r, c);
    c->rope.kind = IG_ROPE_NONE;
    c->experts.is_share_of_all = false;
    c->recurrence = kimi_delta(c->n_heads, ig_section_int(r, "kda.head_dim", IG_RECURRENCE_DIMS, -1),
                               ig_section_int(r, "ssm.conv_kernel", IG_RECURRENCE_TAPS, -1));
}

/* ---- Hugging Face ---------------------------------------------------------------------------------------------- */

static ig_latent_shape read_shape(ig_hf_reader *r) {
    return (ig_latent_shape){.kv_rank = ig_hf_int(r, r->root, "kv_lora_rank", IG_KV_DIMS, 512),
                             .q_rank = ig_hf_count(r, "q_lora_rank", IG_MAX_WIDTH, 0),
                             .key_dim = ig_hf_int(r, r->root, "qk_nope_head_dim", IG_KV_DIMS, IG_HF_ABSENT),
                             .value_dim = ig_hf_int(r, r->root, "v_head_dim", IG_KV_DIMS, IG_HF_ABSENT)};
}

/* "head_dim" and "num_key_value_heads" mean nothing in these files. */
static void read_latent(ig_hf_reader *r, ig_config *c) {
    int n_rot = ig_hf_int(r, r->root, "qk_rope_head_dim", IG_KV_DIMS, 64);
    c->rope.n = n_rot;
    ig_hf_read_llama(r, c);
    set_latent(c, read_shape(r), n_rot);
    set_gain(c, 0.1 * ig_hf_number(r, ig_hf_rope_object(r), "mscale_all_dim", 0));
    if (ig_hf_bool(r, "rope_interleave", true)) c->rope.kind = IG_ROPE_ADJACENT;
    if (ig_hf_bool(r, "attention_bias", false)) ig_hf_refuse(r, "attention_bias", "true");
}

/* Groups of experts, of which the best ones are chosen first. */
static void read_groups(ig_hf_reader *r, ig_config *c) {
    c->experts.n_groups = ig_hf_count(r, "n_group", c->experts.n, 1);
    c->experts.n_groups_used = ig_hf_count(r, "topk_group", c->experts.n_groups, 1);
}

void ig_hf_read_deepseek_v2(ig_hf_reader *r, ig_config *c) {
    static const char method[] = "topk_method", greedy[] = "greedy";
    read_latent(r, c);
    ig_hf_read_later_experts(r, c, 0, false);
    if (r->status) return;
    if (strcmp(ig_hf_text(r, r->root, "scoring_func", "softmax"), "softmax") != 0)
        ig_hf_refuse(r, "scoring_func", "other than softmax");
    if (!c->experts.is_share_of_all) ig_hf_refuse(r, "norm_topk_prob", "true");
    c->experts.routing = IG_ROUTING_SOFTMAX_FIRST;
    const char *how = ig_hf_text(r, r->root, method, greedy);
    if (strcmp(how, "group_limited_greedy") == 0)
        read_groups(r, c);
    else if (strcmp(how, greedy) != 0)
        ig_hf_refuse(r, method, how);
}

void ig_hf_read_deepseek_v3(ig_hf_reader *r, ig_config *c) {
    read_latent(r, c);
    ig_hf_read_later_experts(r, c, 3, true);
    if (r->status) return;
    if (strcmp(ig_hf_text(r, r->root, "scoring_func", "sigmoid"), "sigmoid") != 0)
        ig_hf_refuse(r, "scoring_func", "other than sigmoid");
    c->experts.scale = ig_hf_scale(r, "routed_scaling_factor", 2.5);
    read_groups(r, c);
}

/* Mistral Small 4, whose queries grow with their position. */
void ig_hf_read_mistral4(ig_hf_reader *r, ig_config *c) {
    read_latent(r, c);
    ig_hf_read_later_experts(r, c, 0, true);
    if (r->status) return;
    c->experts.routing = IG_ROUTING_SOFTMAX_FIRST;
    read_groups(r, c);
    ig_hf_read_growth(r, c);
}

const ig_config ig_hf_youtu_sizes = {
    .n_vocab = 128256, .d_model = 2048, .d_ff = 6144, .n_layers = 32, .n_heads = 16, .n_ctx_train = 131072};

/* The same without experts. */
void ig_hf_read_youtu(ig_hf_reader *r, ig_config *c) {
    bool is_null = json_is_null(json_object_get(r->root, "q_lora_rank"));
    c->tied = true;
    read_latent(r, c);
    c->latent.q_rank = ig_hf_count(r, "q_lora_rank", IG_MAX_WIDTH, is_null ? 0 : 1536);
}

/* Which layers have experts, as it is stated a second time. */
static void check_plain_layers(ig_hf_reader *r, const ig_config *c) {
    const json_t *types = ig_hf_get(r->root, "mlp_layer_types");
    for (int l = 0; l < c->n_layers && json_is_array(types) && !r->status; l++) {
        const char *type = json_string_value(json_array_get(types, (size_t)l));
        bool is_plain = l < c->n_plain_layers;
        if (!type || strcmp(type, is_plain ? "dense" : "sparse") != 0)
            ig_hf_refuse(r, "mlp_layer_types", "not that of 'first_k_dense_replace'");
    }
}

/* GLM-4.7-Flash. */
void ig_hf_read_glm4_moe_lite(ig_hf_reader *r, ig_config *c) {
    c->norms.eps = 1e-5f;
    ig_hf_read_deepseek_v3(r, c);
    check_plain_layers(r, c);
    c->experts.scale = ig_hf_scale(r, "routed_scaling_factor", 1.8);
}

static void read_indexer(ig_hf_reader *r, ig_config *c, int n_heads) {
    ig_hf_read_deepseek_v3(r, c);
    check_plain_layers(r, c);
    c->index = (ig_index_shape){.n_heads = ig_hf_int(r, r->root, "index_n_heads", IG_INDEX_HEADS, n_heads),
                                .dim = ig_hf_int(r, r->root, "index_head_dim", IG_INDEX_DIMS, 128),
                                .n_chosen = ig_hf_int(r, r->root, "index_topk", IG_MAX_CTX, 2048)};
    c->is_index_adjacent = ig_hf_bool(r, "indexer_rope_interleave", c->is_index_adjacent);
}

/* DeepSeek-V3.2: an indexer in each layer. */
void ig_hf_read_deepseek_v32(ig_hf_reader *r, ig_config *c) {
    read_indexer(r, c, 64);
    for (int l = 0; l < c->n_layers; l++) c->index_layer[l] = (uint16_t)l;
}

/* Whether layer l has an indexer of its own: a list says so, a pattern, or every how many layers there is one. */
static bool has_indexer(ig_hf_reader *r, int l) {
    static const char types[] = "indexer_types", pattern[] = "index_topk_pattern";
    const json_t *list = ig_hf_get(r->root, types), *letters = ig_hf_get(r->root, pattern);
    const char *text = json_string_value(list ? json_array_get(list, (size_t)l) : letters);
    if (list) {
        if (!text || (strcmp(text, "full") != 0 && strcmp(text, "shared") != 0))
            ig_hf_fail_kind(r, types, "a list of \"full\" and \"shared\" for all layers");
        return text && *text == 'f';
    }
    if (letters) {
        if (!text || strlen(text) <= (size_t)l || !strchr("FS", text[l]))
            ig_hf_fail_kind(r, pattern, "a letter, F or S, for each layer");
        return text && strlen(text) > (size_t)l && text[l] == 'F';
    }
    int every = ig_hf_count(r, "index_topk_freq", IG_MAX_LAYERS, 1);
    int from = ig_hf_count(r, "index_skip_topk_offset", IG_MAX_LAYERS, 2) - 1;
    return l <= from || (l - from) % ig_max_int(every, 1) == 0;
}

/* GLM-5. */
void ig_hf_read_glm_moe_dsa(ig_hf_reader *r, ig_config *c) {
    bool own[IG_MAX_LAYERS];
    c->norms.eps = 1e-5f;
    c->is_index_adjacent = true;
    read_indexer(r, c, 32);
    for (int l = 0; l < c->n_layers && !r->status; l++) own[l] = has_indexer(r, l);
    if (!r->status && !set_index_layers(c, own))
        r->status = ig_fail(r->err, IG_E_UNSUPPORTED, "%s: the first layer must have an indexer of its own", r->path);
}

const ig_config ig_hf_kimi_linear_sizes = {
    .n_vocab = 163840, .d_model = 2304, .d_ff = 9216, .n_layers = 27, .n_heads = 32, .n_ctx_train = 1048576};

/* Which layers attend: two lists of their numbers, from 1 on, a kind for each, or every fourth. */
static void read_kimi_layers(ig_hf_reader *r, ig_config *c, const json_t *own) {
    static const char key[] = "layer_types";
    const json_t *kinds = ig_hf_get(r->root, key), *attend = ig_hf_get(own, "full_attn_layers");
    if (kinds && json_array_size(kinds) != (size_t)c->n_layers)
        ig_hf_fail_kind(r, key, "a list with one item per layer");
    for (int l = 0; l < c->n_layers && !r->status; l++) {
        const char *kind = json_string_value(json_array_get(kinds, (size_t)l));
        c->is_recurrent[l] = kinds ? kind && strcmp(kind, "linear_attention") == 0 : attend || l == 0 || l % 4;
        if (kinds && !c->is_recurrent[l] && (!kind || strcmp(kind, "full_attention") != 0))
            ig_hf_refuse(r, key, kind ? kind : "?");
    }
    for (size_t i = 0; !kinds && i < json_array_size(attend); i++) {
        json_int_t l = json_integer_value(json_array_get(attend, i));
        if (l < 1 || l > c->n_layers) ig_hf_fail_kind(r, "full_attn_layers", "a list of numbers of layers");
        if (!r->status) c->is_recurrent[l - 1] = false;
    }
}

/* Kimi Linear. Layers that attend do not rotate. Files have other names for what experts state. */
void ig_hf_read_kimi_linear(ig_hf_reader *r, ig_config *c) {
    const json_t *own = ig_hf_get(r->root, "linear_attn_config"), *root = r->root;
    c->norms.eps = 1e-5f;
    c->n_ctx_train = ig_hf_int(r, root, "model_max_length", IG_MAX_CTX, c->n_ctx_train);
    read_latent(r, c);
    c->rope.kind = IG_ROPE_NONE;
    if (!ig_hf_bool(r, "mla_use_nope", true)) ig_hf_refuse(r, "mla_use_nope", "false");
    ig_hf_read_later_experts(r, c, 1, true);
    if (r->status) return;
    check_plain_layers(r, c);
    c->experts.n_used = ig_hf_int(r, root, "num_experts_per_token", c->experts.n, c->experts.n_used);
    c->experts.d_shared = c->d_ff * ig_hf_count(r, "num_shared_experts", IG_MAX_WIDTH / c->d_ff, 1);
    c->experts.is_share_of_all = !ig_hf_bool(r, "moe_renormalize", true);
    c->experts.scale = ig_hf_scale(r, "routed_scaling_factor", 2.446);
    c->experts.n_groups = ig_hf_count(r, "num_expert_group", c->experts.n, 1);
    c->experts.n_groups_used = ig_hf_count(r, "topk_group", c->experts.n_groups, 1);
    const char *scores = ig_hf_text(r, root, "moe_router_activation_func", "sigmoid");
    if (strcmp(scores, "sigmoid") != 0) ig_hf_refuse(r, "moe_router_activation_func", scores);
    c->recurrence =
        kimi_delta(ig_hf_int(r, own ? own : root, own ? "num_heads" : "linear_num_heads", IG_MAX_HEADS, 32),
                   ig_hf_int(r, own ? own : root, own ? "head_dim" : "linear_head_dim", IG_RECURRENCE_DIMS, 128),
                   ig_hf_int(r, own ? own : root, own ? "short_conv_kernel_size" : "linear_conv_kernel_dim",
                             IG_RECURRENCE_TAPS, 4));
    read_kimi_layers(r, c, own);
}
