/* SPDX-License-Identifier: Apache-2.0
 *
 * A configuration from GGUF metadata. Architectures are a table. Every key of the model's own section must be one
 * that is used here, one that changes nothing, or one that states its neutral value: anything else would mean that the
 * model computes something that this program would silently leave out.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/error.h"
#include "model/config_check.h"

typedef struct reader {
    const ig_gguf *g;
    const char *path, *architecture;
    ig_status status; /* the first failure */
    ig_error *err;
} reader;

typedef struct family {
    const char *name;
    ig_rope rope;                          /* converters permute q and k of some so that pairs are adjacent */
    void (*read)(reader *r, ig_config *c); /* what is its own */
    const char *own[14];                   /* keys that it uses, which must be neutral in others */
} family;

/* NEUTRAL: the value must be `neutral`, 0 or false; EXACT: it must be `neutral`. */
typedef enum key_kind { KEY_USED, KEY_IGNORED, KEY_NEUTRAL, KEY_EXACT } key_kind;

/* Keys after "<architecture>." */
static const struct {
    const char *name;
    key_kind kind;
    double neutral;
} known_keys[] = {
    {"attention.head_count", KEY_USED, 0},
    {"attention.head_count_kv", KEY_USED, 0},
    {"attention.key_length", KEY_USED, 0},
    {"attention.layer_norm_rms_epsilon", KEY_USED, 0},
    {"attention.sliding_window", KEY_USED, 0},
    {"attention.value_length", KEY_USED, 0},
    {"block_count", KEY_USED, 0},
    {"context_length", KEY_USED, 0},
    {"embedding_length", KEY_USED, 0},
    {"feed_forward_length", KEY_USED, 0},
    {"rope.dimension_count", KEY_USED, 0},
    {"rope.freq_base", KEY_USED, 0},
    {"rope.scale_linear", KEY_USED, 0},
    {"rope.scaling.factor", KEY_USED, 0},
    {"rope.scaling.original_context_length", KEY_USED, 0},
    {"rope.scaling.type", KEY_USED, 0},
    {"rope.scaling.yarn_beta_fast", KEY_USED, 0},
    {"rope.scaling.yarn_beta_slow", KEY_USED, 0},
    {"vocab_size", KEY_USED, 0},
    {"rope.scaling.finetuned", KEY_IGNORED, 0},
    {"rope.scaling.yarn_attn_factor", KEY_IGNORED, 0}, /* as llama.cpp does for these architectures */
    {"rope.scaling.yarn_ext_factor", KEY_NEUTRAL, 1},
    {"tensor_data_layout", KEY_IGNORED, 0},
    {"attention.causal", KEY_EXACT, 1},
    {"attention.clamp_kqv", KEY_NEUTRAL, 0},
    {"attention.max_alibi_bias", KEY_NEUTRAL, 0},
    {"attention.scale", KEY_NEUTRAL, 0},
    {"attn_logit_softcapping", KEY_NEUTRAL, 0},
    {"embedding_scale", KEY_NEUTRAL, 1},
    {"expert_count", KEY_NEUTRAL, 0},
    {"expert_used_count", KEY_NEUTRAL, 0},
    {"expert_gating_func", KEY_NEUTRAL, 1},
    {"expert_group_count", KEY_NEUTRAL, 1},
    {"expert_group_used_count", KEY_NEUTRAL, 1},
    {"expert_shared_feed_forward_length", KEY_NEUTRAL, 0},
    {"expert_weights_scale", KEY_NEUTRAL, 1},
    {"final_logit_softcapping", KEY_NEUTRAL, 0},
    {"logit_scale", KEY_NEUTRAL, 1},
    {"pooling_type", KEY_NEUTRAL, 0},
    {"residual_scale", KEY_NEUTRAL, 1},
    {"rope.scaling.attn_factor", KEY_NEUTRAL, 1},
    {"use_parallel_residual", KEY_NEUTRAL, 0},
};

/* "<architecture>.<name>" */
typedef struct full_key {
    char text[128];
} full_key;

static full_key key_of(const reader *r, const char *name) {
    full_key k;
    snprintf(k.text, sizeof k.text, "%s.%s", r->architecture, name);
    return k;
}

/* An integer of the model's section; `absent` if it is not there, required if absent is -1. */
static int read_int(reader *r, const char *name, int max, int absent) {
    full_key k = key_of(r, name);
    int64_t x = absent;
    bool found = ig_gguf_int(r->g, k.text, 1, max, &x, &r->status, r->err);
    if (!found && absent < 0 && !r->status)
        r->status = ig_fail(r->err, IG_E_FORMAT, "%s: key '%s' is missing", r->path, k.text);
    return r->status ? 1 : (int)x;
}

/* One of 0 to max; 0 if it is not there. */
static int read_count(reader *r, const char *name, int max) {
    int64_t n = 0;
    ig_gguf_int(r->g, key_of(r, name).text, 0, max, &n, &r->status, r->err);
    return (int)n;
}

static double read_number(reader *r, const char *name, double absent) {
    full_key k = key_of(r, name);
    double x = absent;
    ig_gguf_float(r->g, k.text, &x, &r->status, r->err);
    return x;
}

/* The same, low to high if it is stated. */
static double read_ranged(reader *r, const char *name, double low, double high, double absent) {
    double x = read_number(r, name, absent);
    if (!r->status && x != absent && !(x >= low && x <= high))
        r->status = ig_fail(r->err, IG_E_FORMAT, "%s: key '%s' is %g, must be %g to %g", r->path, key_of(r, name).text,
                            x, low, high);
    return x;
}

static double read_scale(reader *r, const char *name, double absent) {
    return read_ranged(r, name, IG_LEAST_SCALE, IG_MAX_SCALE, absent);
}

static bool is_own(const family *f, const char *name) {
    for (size_t i = 0; i < IG_COUNT(f->own); i++)
        if (f->own[i] && strcmp(f->own[i], name) == 0) return true;
    return false;
}

/* Refuses keys that nothing here understands. */
static void check_key(reader *r, const ig_gguf_value *v, const char *name) {
    for (size_t i = 0; i < IG_COUNT(known_keys); i++) {
        if (strcmp(known_keys[i].name, name) != 0) continue;
        if (known_keys[i].kind == KEY_USED || known_keys[i].kind == KEY_IGNORED) return;
        double x = 0;
        bool flag;
        if (v->type == IG_GGUF_BOOL) {
            if (ig_gguf_bool(r->g, v->key, &flag, &r->status, r->err)) x = flag;
        } else {
            ig_gguf_float(r->g, v->key, &x, &r->status, r->err);
        }
        if (!r->status && x != known_keys[i].neutral && (x != 0 || known_keys[i].kind == KEY_EXACT))
            r->status =
                ig_fail(r->err, IG_E_UNSUPPORTED, "%s: key '%s' is %g, which is not supported", r->path, v->key, x);
        return;
    }
    r->status = ig_fail(r->err, IG_E_UNSUPPORTED,
                        "%s: key '%.120s' is not understood, so the model cannot be computed rightly", r->path, v->key);
}

static void check_keys(reader *r, const family *f) {
    size_t n = strlen(r->architecture);
    for (size_t i = 0; i < ig_gguf_n_values(r->g) && !r->status; i++) {
        const ig_gguf_value *v = ig_gguf_value_at(r->g, i);
        if (strncmp(v->key, r->architecture, n) == 0 && v->key[n] == '.' && !is_own(f, v->key + n + 1))
            check_key(r, v, v->key + n + 1);
    }
}

/* The tokens counted, or what the file states if it has none. */
static int read_vocab(reader *r) {
    const ig_gguf_value *tokens = ig_gguf_find(r->g, "tokenizer.ggml.tokens");
    if (!tokens) return read_int(r, "vocab_size", IG_MAX_VOCAB, -1);
    if (tokens->type == IG_GGUF_ARRAY && tokens->n_items >= 1 && tokens->n_items <= IG_MAX_VOCAB)
        return (int)tokens->n_items;
    if (!r->status)
        r->status = ig_fail(r->err, IG_E_FORMAT, "%s: key 'tokenizer.ggml.tokens' must be an array of 1 to %d items",
                            r->path, IG_MAX_VOCAB);
    return 1;
}

/* The gain follows from the factor: files that state another hold keys that are not understood. */
static void read_yarn(reader *r, ig_config *c, double factor) {
    c->rope_blend = IG_BLEND_YARN;
    c->rope_factor = factor;
    c->rope_low_freq = read_number(r, "rope.scaling.yarn_beta_slow", 1);
    c->rope_high_freq = read_number(r, "rope.scaling.yarn_beta_fast", 32);
    c->rope_original_ctx = read_int(r, "rope.scaling.original_context_length", IG_MAX_CTX, c->n_ctx_train);
    if (r->status) return;
    if (!(factor >= 1 && factor <= 1e6))
        r->status = ig_fail(r->err, IG_E_FORMAT, "%s: key '%s.rope.scaling.factor' is %g, must be 1 to 1e6", r->path,
                            r->architecture, factor);
    else if (!(c->rope_low_freq > 0 && c->rope_high_freq > c->rope_low_freq && c->rope_high_freq <= 1e6))
        r->status = ig_fail(r->err, IG_E_FORMAT,
                            "%s: keys '%s.rope.scaling.yarn_beta_slow' and 'yarn_beta_fast' are %g and %g, must be "
                            "above 0, the second above the first",
                            r->path, r->architecture, c->rope_low_freq, c->rope_high_freq);
}

static void read_linear(reader *r, ig_config *c, double factor) {
    c->rope_linear = factor;
    if (!(factor >= 1e-6 && factor <= 1e6))
        r->status = ig_fail(r->err, IG_E_FORMAT, "%s: key '%s.rope.scaling.factor' is %g, must be 1e-6 to 1e6", r->path,
                            r->architecture, factor);
}

static void read_scaling(reader *r, ig_config *c) {
    ig_text type = {"linear", 6};
    full_key k = key_of(r, "rope.scaling.type");
    bool stated = ig_gguf_string(r->g, k.text, &type, &r->status, r->err);
    double factor = read_number(r, "rope.scaling.factor", read_number(r, "rope.scale_linear", 0));
    if (r->status || ig_text_is(type, "none") || (factor == 0 && !stated)) return;
    if (ig_text_is(type, "linear"))
        read_linear(r, c, factor);
    else if (ig_text_is(type, "yarn"))
        read_yarn(r, c, factor);
    else
        r->status =
            ig_fail(r->err, IG_E_UNSUPPORTED, "%s: key '%s' is '%.*s', only 'none', 'linear' and 'yarn' are supported",
                    r->path, k.text, (int)(type.size < 40 ? type.size : 40), type.data);
}

/* ---- what families have of their own ---------------------------------------------------------- */

static int read_window(reader *r) { return read_count(r, "attention.sliding_window", IG_MAX_CTX); }

/* Of all layers. */
static void read_one_window(reader *r, ig_config *c) {
    int window = read_window(r);
    for (int l = 0; l < c->n_layers; l++) c->window[l] = window;
}

/* As members of family.own: keys of all that have experts, and of models whose pictures have positions in two
 * dimensions. A text's are the same in all, and what layers get of pictures is nothing without any. */
#define EXPERT_KEYS "expert_count", "expert_used_count"
#define GRANITE_KEYS                                                                                             \
    "attention.scale", "embedding_scale", "logit_scale", "residual_scale", "ssm.conv_kernel", "ssm.group_count", \
        "ssm.inner_size", "ssm.state_size", "ssm.time_step_rank"
#define PICTURE_KEYS "rope.dimension_sections", "n_deepstack_layers"

/* In all layers, if there are any; the width is an expert's. */
static void read_experts(reader *r, ig_config *c) {
    int n = read_count(r, "expert_count", IG_MAX_EXPERTS);
    if (!n || r->status) return;
    c->n_experts = n;
    c->n_experts_used = read_int(r, "expert_used_count", IG_MAX_EXPERTS, -1);
    if (c->n_experts_used > c->n_experts && !r->status)
        r->status = ig_fail(r->err, IG_E_FORMAT, "%s: key '%s' is %d, must be at most 'expert_count' (%d)", r->path,
                            key_of(r, "expert_used_count").text, c->n_experts_used, c->n_experts);
}

/* The Qwen files do not say which layers it applies to. */
static void read_no_window(reader *r, ig_config *c) {
    int window = read_window(r);
    if (window && window < c->n_ctx_train && !r->status)
        r->status = ig_fail(r->err, IG_E_UNSUPPORTED, "%s: key '%s' is %d, which is not supported", r->path,
                            key_of(r, "attention.sliding_window").text, window);
}

/* Layers that have the window: all but every last of so many, or one by one. */
static void read_pattern(reader *r, const ig_config *c, bool *is_local, int pattern) {
    full_key k = key_of(r, "attention.sliding_window_pattern");
    const ig_gguf_value *v = ig_gguf_find(r->g, k.text);
    bool is_list = v && v->type == IG_GGUF_ARRAY;
    if (is_list && (v->item_type != IG_GGUF_BOOL || v->n_items != (uint64_t)c->n_layers) && !r->status)
        r->status = ig_fail(r->err, IG_E_FORMAT, "%s: key '%s' must be true or false for each layer", r->path, k.text);
    if (!is_list) pattern = read_int(r, "attention.sliding_window_pattern", IG_MAX_LAYERS, pattern);
    for (int l = 0; l < c->n_layers && !r->status; l++)
        is_local[l] = is_list ? ig_gguf_array_int(v, (uint64_t)l) != 0 : (l + 1) % pattern != 0;
}

/* Windows, if there are any, and which frequencies layers with and without one rotate by. */
static void read_windows(reader *r, ig_config *c, int pattern, ig_rope_set local, ig_rope_set other) {
    bool is_local[IG_MAX_LAYERS] = {0};
    int window = read_window(r);
    if (!window) return;
    read_pattern(r, c, is_local, pattern);
    for (int l = 0; l < c->n_layers; l++) {
        c->window[l] = is_local[l] ? window : 0;
        c->rope_set[l] = (unsigned char)(is_local[l] ? local : other);
    }
}

/* Layers with a window rotate by frequencies of a base of their own. */
static void read_local_windows(reader *r, ig_config *c, int pattern, double local_theta) {
    if (!read_window(r)) return;
    c->rope_local_theta = read_ranged(r, "rope.freq_base_swa", 1, IG_MAX_THETA, local_theta);
    read_windows(r, c, pattern, IG_ROPE_LOCAL, IG_ROPE_MAIN);
}

/* And Mixtral. */
static void read_llama(reader *r, ig_config *c) {
    read_one_window(r, c);
    read_experts(r, c);
}

static void read_ernie4_5_moe(reader *r, ig_config *c) {
    c->n_plain_layers = read_count(r, "leading_dense_block_count", c->n_layers - 1);
    c->d_ff_plain = c->n_plain_layers ? c->d_ff : 0;
    c->d_ff = read_int(r, "expert_feed_forward_length", IG_MAX_WIDTH, c->d_ff);
    c->d_ff_shared = read_count(r, "expert_shared_feed_forward_length", IG_MAX_WIDTH);
    c->routing = IG_ROUTING_SOFTMAX_FIRST;
    read_int(r, "expert_count", IG_MAX_EXPERTS, -1);
    read_experts(r, c);
    read_no_window(r, c);
    if (read_int(r, "interleave_moe_layer_step", IG_MAX_LAYERS, 1) != 1 && !r->status)
        r->status = ig_fail(r->err, IG_E_UNSUPPORTED, "%s: key '%s' is above 1, which is not supported", r->path,
                            key_of(r, "interleave_moe_layer_step").text);
}

/* Layers without a window do not rotate where others have one. */
static void read_exaone4(reader *r, ig_config *c) {
    c->norm_order = IG_NORMS_OF_PARTS;
    c->head_norm = IG_HEAD_NORM_EACH;
    read_windows(r, c, 4, IG_ROPE_MAIN, IG_ROPE_LEFT_OUT);
}

static void read_gemma3(reader *r, ig_config *c) {
    enum { LAYERS_27B = 62 }; /* the one size whose scores have another scale, which no key states */
    c->norm_order = IG_NORMS_AROUND;
    c->head_norm = IG_HEAD_NORM_EACH;
    c->activation = IG_GELU_GATED;
    c->embed_scale = sqrt((double)c->d_model);
    if (c->n_layers == LAYERS_27B) c->attn_scale = 1 / sqrt((double)c->d_model / c->n_heads);
    read_local_windows(r, c, 6, 10000);
}

static void read_glm4(reader *r, ig_config *c) {
    c->norm_order = IG_NORMS_AROUND;
    c->is_gate_up_fused = true;
    read_no_window(r, c);
}

/* GLM-4 from before 2025. */
static void read_chatglm(reader *r, ig_config *c) {
    c->is_gate_up_fused = true;
    read_no_window(r, c);
}

/* Granite, and those with experts. Files of Granite 4 whose layers all attend hold what the hybrid class would need. */
static void read_granite(reader *r, ig_config *c) {
    c->attn_scale = read_scale(r, "attention.scale", 0);
    c->embed_scale = read_scale(r, "embedding_scale", 1);
    c->residual_scale = read_scale(r, "residual_scale", 1);
    c->logit_scale = read_scale(r, "logit_scale", 1);
    read_no_window(r, c);
    read_experts(r, c);
    bool rotates = true;
    ig_gguf_bool(r->g, key_of(r, "rope.scaling.finetuned").text, &rotates, &r->status, r->err);
    if (!rotates) c->rope = IG_ROPE_NONE;
}

/* Every other layer has a window, from the first on. Files do not say that YaRN's blend is not of whole numbers. */
static void read_gpt_oss(reader *r, ig_config *c) {
    read_windows(r, c, 2, IG_ROPE_MAIN, IG_ROPE_MAIN);
    c->activation = IG_SWIGLU_OAI;
    c->has_sink_scores = true;
    c->rope_is_exact = true;
    read_experts(r, c);
    c->d_ff = read_int(r, "expert_feed_forward_length", IG_MAX_WIDTH, -1);
}

static void read_hunyuan(reader *r, ig_config *c) {
    c->head_norm = IG_HEAD_NORM_EACH;
    c->rotates_first = true;
    read_no_window(r, c);
}

/* Scores of experts are sigmoids, and a bias counts where some are chosen. */
static void read_sigmoid_experts(reader *r, ig_config *c) {
    read_int(r, "expert_count", IG_MAX_EXPERTS, -1);
    read_experts(r, c);
    c->routing = IG_ROUTING_SIGMOID;
    if (read_count(r, "expert_gating_func", 2) == 1 && !r->status)
        r->status = ig_fail(r->err, IG_E_UNSUPPORTED, "%s: key '%s' is 1, only 2 (sigmoid) is supported", r->path,
                            key_of(r, "expert_gating_func").text);
}

static void read_minimax_m2(reader *r, ig_config *c) {
    c->head_norm = IG_HEAD_NORM_ALL;
    read_no_window(r, c);
    read_sigmoid_experts(r, c);
    c->d_ff = read_int(r, "expert_feed_forward_length", IG_MAX_WIDTH, c->d_ff);
}

/* Mistral Small 3.1 and later, and Ministral 3, whose queries grow. */
static void read_mistral3(reader *r, ig_config *c) {
    double of_all = read_scale(r, "rope.scaling.yarn_log_multiplier", 0);
    read_one_window(r, c);
    if (c->rope_blend == IG_BLEND_YARN && of_all > 0)
        c->rope_gain = (1 + 0.1 * log(c->rope_factor)) / (1 + 0.1 * of_all * log(c->rope_factor));
    c->query_growth = read_scale(r, "attention.temperature_scale", 0);
    if (c->query_growth > 0 && !r->status)
        c->rope_original_ctx = read_int(r, "rope.scaling.original_context_length", IG_MAX_CTX, c->n_ctx_train);
}

static void read_olmoe(reader *r, ig_config *c) {
    c->head_norm = IG_HEAD_NORM_ALL;
    c->is_share_of_all = true;
    read_no_window(r, c);
    read_experts(r, c);
}

/* And OLMo 3, which has windows. */
static void read_olmo2(reader *r, ig_config *c) {
    c->norm_order = IG_NORMS_OF_PARTS;
    c->head_norm = IG_HEAD_NORM_ALL;
    read_local_windows(r, c, 4, c->rope_theta);
}

static void read_phi3(reader *r, ig_config *c) {
    c->is_gate_up_fused = true;
    read_one_window(r, c);
    if (!ig_gguf_tensor(r->g, "rope_factors_long.weight")) return;
    c->rope_blend = IG_BLEND_LONGROPE;
    c->rope_gain = read_ranged(r, "rope.scaling.attn_factor", IG_LEAST_GAIN, IG_MAX_GAIN, 1);
}

static void read_qwen3(reader *r, ig_config *c) {
    c->head_norm = IG_HEAD_NORM_EACH;
    read_no_window(r, c);
}

static void read_qwen3moe(reader *r, ig_config *c) {
    read_qwen3(r, c);
    read_experts(r, c);
    c->d_ff = read_int(r, "expert_feed_forward_length", IG_MAX_WIDTH, -1);
}

/* GLM 4.5 to 4.7. The first layers have no experts, and the last one of a file may guess tokens ahead. */
static void read_glm4moe(reader *r, ig_config *c) {
    bool is_normed = false;
    int n_plain = read_count(r, "leading_dense_block_count", c->n_layers - 1);
    c->n_layers_left_out = read_count(r, "nextn_predict_layers", c->n_layers - n_plain - 1);
    c->n_layers -= c->n_layers_left_out;
    c->n_plain_layers = n_plain;
    c->d_ff_plain = c->n_plain_layers ? c->d_ff : 0;
    c->d_ff = read_int(r, "expert_feed_forward_length", IG_MAX_WIDTH, -1);
    c->d_ff_shared = c->d_ff * read_count(r, "expert_shared_count", IG_MAX_WIDTH / c->d_ff);
    c->expert_scale = read_scale(r, "expert_weights_scale", 1);
    ig_gguf_bool(r->g, key_of(r, "expert_weights_norm").text, &is_normed, &r->status, r->err);
    c->is_share_of_all = !is_normed;
    read_sigmoid_experts(r, c);
    read_no_window(r, c);
    if (ig_gguf_tensor(r->g, "blk.0.attn_q_norm.weight")) c->head_norm = IG_HEAD_NORM_EACH;
}

static void read_smollm3(reader *r, ig_config *c) {
    for (int l = 3; l < c->n_layers; l += 4) c->rope_set[l] = IG_ROPE_LEFT_OUT;
    read_no_window(r, c);
}

/* ---- the whole ---------------------------------------------------------------------------------- */

/* The name is the file's general.architecture. */
static const family families[] = {
    {"chatglm", IG_ROPE_ADJACENT, read_chatglm, {NULL}},
    {"ernie4_5-moe",
     IG_ROPE_ADJACENT,
     read_ernie4_5_moe,
     {EXPERT_KEYS, "expert_feed_forward_length", "expert_shared_count", "expert_shared_feed_forward_length",
      "interleave_moe_layer_step", "leading_dense_block_count"}},
    {"ernie4_5", IG_ROPE_ADJACENT, read_no_window, {NULL}},
    {"exaone4", IG_ROPE_HALF, read_exaone4, {"attention.sliding_window_pattern"}},
    {"gemma3", IG_ROPE_HALF, read_gemma3, {"attention.sliding_window_pattern", "rope.freq_base_swa"}},
    {"glm4", IG_ROPE_ADJACENT, read_glm4, {NULL}},
    {"granite", IG_ROPE_ADJACENT, read_granite, {GRANITE_KEYS, EXPERT_KEYS, "expert_shared_feed_forward_length"}},
    {"granitemoe", IG_ROPE_ADJACENT, read_granite, {GRANITE_KEYS, EXPERT_KEYS}},
    {"glm4moe",
     IG_ROPE_HALF,
     read_glm4moe,
     {EXPERT_KEYS, "expert_feed_forward_length", "expert_gating_func", "expert_shared_count", "expert_weights_norm",
      "expert_weights_scale", "leading_dense_block_count", "nextn_predict_layers"}},
    {"gpt-oss",
     IG_ROPE_HALF,
     read_gpt_oss,
     {EXPERT_KEYS, "attention.sliding_window_pattern", "expert_feed_forward_length"}},
    {"hunyuan-dense", IG_ROPE_HALF, read_hunyuan, {NULL}},
    {"llama", IG_ROPE_ADJACENT, read_llama, {EXPERT_KEYS}},
    {"minimax-m2", IG_ROPE_HALF, read_minimax_m2, {EXPERT_KEYS, "expert_feed_forward_length", "expert_gating_func"}},
    {"mistral3", IG_ROPE_ADJACENT, read_mistral3, {"attention.temperature_scale", "rope.scaling.yarn_log_multiplier"}},
    {"olmoe", IG_ROPE_HALF, read_olmoe, {EXPERT_KEYS}},
    {"olmo2", IG_ROPE_HALF, read_olmo2, {"attention.sliding_window_pattern", "rope.freq_base_swa"}},
    {"phi3", IG_ROPE_HALF, read_phi3, {"rope.scaling.attn_factor"}},
    {"qwen2", IG_ROPE_HALF, read_no_window, {NULL}},
    {"qwen2vl", IG_ROPE_HALF, read_no_window, {PICTURE_KEYS}},
    {"qwen3", IG_ROPE_HALF, read_qwen3, {NULL}},
    {"qwen3moe", IG_ROPE_HALF, read_qwen3moe, {EXPERT_KEYS, "expert_feed_forward_length"}},
    {"qwen3vl", IG_ROPE_HALF, read_qwen3, {PICTURE_KEYS}},
    {"qwen3vlmoe", IG_ROPE_HALF, read_qwen3moe, {EXPERT_KEYS, PICTURE_KEYS, "expert_feed_forward_length"}},
    {"seed_oss", IG_ROPE_HALF, read_no_window, {NULL}},
    {"smollm3", IG_ROPE_ADJACENT, read_smollm3, {NULL}},
};

static const family *find_family(reader *r) {
    ig_text name = {"", 0}, type = {"model", 5};
    bool found = ig_gguf_string(r->g, "general.architecture", &name, &r->status, r->err);
    ig_gguf_string(r->g, "general.type", &type, &r->status, r->err);
    if (r->status) return NULL;
    if (!found) {
        r->status = ig_fail(r->err, IG_E_FORMAT, "%s: key 'general.architecture' is missing", r->path);
    } else if (!ig_text_is(type, "model")) {
        r->status = ig_fail(r->err, IG_E_UNSUPPORTED, "%s: key 'general.type' is '%.*s', not a model", r->path,
                            (int)(type.size < 40 ? type.size : 40), type.data);
    } else {
        for (size_t i = 0; i < IG_COUNT(families); i++)
            if (ig_text_is(name, families[i].name)) return &families[i];
        r->status = ig_fail(r->err, IG_E_UNSUPPORTED, "%s: architecture '%.*s' is not supported", r->path,
                            (int)(name.size < 40 ? name.size : 40), name.data);
    }
    return NULL;
}

/* One number, or the same for each layer. */
static int read_kv_heads(reader *r) {
    static const char name[] = "attention.head_count_kv";
    full_key k = key_of(r, name);
    const ig_gguf_value *v = ig_gguf_find(r->g, k.text);
    if (!v || v->type != IG_GGUF_ARRAY) return read_int(r, name, IG_MAX_HEADS, 0);
    int64_t n = v->n_items ? ig_gguf_array_int(v, 0) : 0;
    for (uint64_t l = 1; l < v->n_items; l++)
        if (ig_gguf_array_int(v, l) != n) n = 0;
    if (n >= 1 && n <= IG_MAX_HEADS) return (int)n;
    if (!r->status)
        r->status = ig_fail(r->err, IG_E_UNSUPPORTED, "%s: key '%s' is not one number of 1 to %d for all layers",
                            r->path, k.text, IG_MAX_HEADS);
    return 1;
}

static void read_sizes(reader *r, ig_config *c) {
    c->n_layers = read_int(r, "block_count", IG_MAX_LAYERS, -1);
    c->n_ctx_train = read_int(r, "context_length", IG_MAX_CTX, -1);
    c->d_model = read_int(r, "embedding_length", IG_MAX_WIDTH, -1);
    c->d_ff = read_int(r, "feed_forward_length", IG_MAX_WIDTH, -1);
    c->n_heads = read_int(r, "attention.head_count", IG_MAX_HEADS, -1);
    c->n_kv_heads = read_kv_heads(r);
    c->head_dim = read_int(r, "attention.key_length", IG_MAX_HEAD_DIM, 0);
    int value_dim = read_int(r, "attention.value_length", IG_MAX_HEAD_DIM, 0);
    c->n_rot = read_int(r, "rope.dimension_count", IG_MAX_HEAD_DIM, 0);
    c->rope_theta = read_number(r, "rope.freq_base", 10000);
    c->norm_eps = (float)read_number(r, "attention.layer_norm_rms_epsilon", 0); /* absent: refused as 0 later */
    c->n_vocab = read_vocab(r);
    if (r->status) return;
    int key_dim = c->head_dim ? c->head_dim : c->d_model / c->n_heads;
    if (value_dim && value_dim != key_dim)
        r->status =
            ig_fail(r->err, IG_E_UNSUPPORTED, "%s: key '%s.attention.value_length' is %d, must equal the key length %d",
                    r->path, r->architecture, value_dim, key_dim);
}

/* The model's own name, fit to be printed. */
static void read_name(reader *r, ig_config *c) {
    ig_text name = {"", 0};
    ig_gguf_string(r->g, "general.name", &name, &r->status, r->err);
    snprintf(c->name, sizeof c->name, "%.*s", (int)(name.size < sizeof c->name ? name.size : sizeof c->name),
             name.data);
    ig_make_harmless(c->name);
}

ig_status ig_config_from_gguf(ig_config *out, const ig_gguf *g, ig_error *err) {
    reader r = {.g = g, .path = ig_gguf_path(g), .architecture = "", .err = err};
    *out = (ig_config){0};
    const family *f = find_family(&r);
    if (!f) return r.status;
    r.architecture = f->name;
    snprintf(out->architecture, sizeof out->architecture, "%s", f->name);
    read_name(&r, out);
    out->rope = f->rope;
    out->norm = IG_NORM_RMS;
    out->activation = IG_SILU_GATED;
    out->final_norm = true;
    out->tied = !ig_gguf_tensor(g, "output.weight");
    out->is_qkv_fused = ig_gguf_tensor(g, "blk.0.attn_qkv.weight") != NULL;
    check_keys(&r, f);
    read_sizes(&r, out);
    read_scaling(&r, out);
    if (!r.status) f->read(&r, out);
    if (r.status) return r.status;
    full_key d_model = key_of(&r, "embedding_length"), heads = key_of(&r, "attention.head_count"),
             kv_heads = key_of(&r, "attention.head_count_kv"), head_dim = key_of(&r, "attention.key_length"),
             n_rot = key_of(&r, "rope.dimension_count"), eps = key_of(&r, "attention.layer_norm_rms_epsilon"),
             theta = key_of(&r, "rope.freq_base");
    ig_config_names names = {r.path,        d_model.text, heads.text, kv_heads.text,
                             head_dim.text, n_rot.text,   eps.text,   theta.text};
    return ig_config_finish(out, &names, err);
}
