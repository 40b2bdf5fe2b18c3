/* SPDX-License-Identifier: Apache-2.0
 *
 * What families have of their own in a config.json, with the defaults of the published model classes.
 */
#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "base/error.h"
#include "model/config_hf.h"

enum { OPT_POSITION_OFFSET = 2 };

/* ---- windows ----------------------------------------------------------- */

/* Null means none. */
static int read_window_or(ig_hf_reader *r, int absent) {
    bool is_null = json_is_null(json_object_get(r->root, "sliding_window"));
    return ig_hf_int(r, r->root, "sliding_window", IG_MAX_CTX, is_null ? 0 : absent);
}

/* The default of most classes. */
static int read_window(ig_hf_reader *r) { return read_window_or(r, IG_HF_WINDOW); }

/* Of the layers that "layer_types" calls so, if stated, else of those from number `from` on. */
static void read_kind(ig_hf_reader *r, ig_config *c, const char *kind, int window, json_int_t from) {
    const json_t *types = ig_hf_get(r->root, "layer_types");
    if (types && (!json_is_array(types) || json_array_size(types) != (size_t)c->n_layers))
        ig_hf_fail_kind(r, "layer_types", "a list with one item per layer");
    for (int l = 0; l < c->n_layers && !r->status; l++) {
        bool is_sliding = l >= from;
        if (types) {
            const char *type = json_string_value(json_array_get(types, (size_t)l));
            is_sliding = type && strcmp(type, kind) == 0;
            if (!is_sliding && !(type && strcmp(type, "full_attention") == 0))
                ig_hf_refuse(r, "layer_types", type ? type : "?");
        }
        c->window[l] = is_sliding ? window : 0;
    }
}

void ig_hf_read_windows(ig_hf_reader *r, ig_config *c, int window, json_int_t from) {
    read_kind(r, c, "sliding_attention", window, from);
}

void ig_hf_read_local_layers(ig_hf_reader *r, ig_config *c, int pattern, int absent, ig_rope_set local,
                             ig_rope_set other) {
    int window = read_window_or(r, absent);
    ig_hf_read_windows(r, c, window, 0);
    for (int l = 0; l < c->n_layers && window; l++) {
        if (!ig_hf_get(r->root, "layer_types") && (l + 1) % pattern == 0) c->window[l] = 0;
        c->rope.set[l] = (unsigned char)(c->window[l] ? local : other);
    }
}

void ig_hf_read_turning_layers(ig_hf_reader *r, ig_config *c) {
    bool is_listed = ig_hf_get(r->root, "layer_types") != NULL;
    int pattern = is_listed ? 1 : ig_hf_int(r, r->root, "sliding_window_pattern", IG_MAX_LAYERS, 4);
    ig_hf_read_local_layers(r, c, pattern, IG_HF_WINDOW, IG_ROPE_MAIN, IG_ROPE_LEFT_OUT);
}

/* Qwen: the layers from "max_window_layers" on. */
static void read_qwen_windows(ig_hf_reader *r, ig_config *c) {
    int window = ig_hf_bool(r, "use_sliding_window", false) ? read_window(r) : 0;
    const json_t *first = ig_hf_get(r->root, "max_window_layers");
    if (first && !json_is_integer(first)) ig_hf_fail_kind(r, "max_window_layers", "an integer");
    ig_hf_read_windows(r, c, window, first ? json_integer_value(first) : 28);
}

/* ---- families ---------------------------------------------------------- */

/* Fields that are absent are as c has them, if it does: other families have other defaults. */
void ig_hf_read_llama(ig_hf_reader *r, ig_config *c) {
    c->n_kv_heads = ig_hf_int(r, r->root, "num_key_value_heads", IG_MAX_HEADS, c->n_kv_heads);
    c->head_dim = ig_hf_int(r, r->root, "head_dim", IG_KV_DIMS, c->head_dim);
    ig_hf_size(r, &c->d_ff, "intermediate_size", IG_MAX_WIDTH);
    c->norms.kind = IG_NORM_RMS;
    c->norms.eps = (float)ig_hf_number(r, r->root, "rms_norm_eps", c->norms.eps > 0 ? (double)c->norms.eps : 1e-6);
    c->tied = ig_hf_bool(r, "tie_word_embeddings", c->tied);
    const char *act = ig_hf_text(r, r->root, "hidden_act", "silu");
    if (c->activation == IG_SILU_GATED && strcmp(act, "silu") != 0 && strcmp(act, "swish") != 0)
        ig_hf_refuse(r, "hidden_act", act);
    ig_hf_rope(r, c);
}

static void read_mistral(ig_hf_reader *r, ig_config *c) {
    ig_hf_read_llama(r, c);
    ig_hf_read_windows(r, c, read_window(r), 0);
}

/* The files state how scores of a text longer than the one that was trained with are kept apart. */
static void read_ministral3(ig_hf_reader *r, ig_config *c) {
    c->norms.eps = 1e-5f;
    c->n_kv_heads = 8;
    c->head_dim = 128;
    ig_hf_read_llama(r, c);
    ig_hf_read_windows(r, c, ig_hf_int(r, r->root, "sliding_window", IG_MAX_CTX, 0), 0);
    ig_hf_read_growth(r, c);
}

void ig_hf_read_qwen2(ig_hf_reader *r, ig_config *c) {
    ig_hf_read_llama(r, c);
    read_qwen_windows(r, c);
}

void ig_hf_read_qwen3(ig_hf_reader *r, ig_config *c) {
    c->norms.of_heads = IG_HEAD_NORM_EACH;
    c->head_dim = 128;
    ig_hf_read_qwen2(r, c);
}

static void read_seed_oss(ig_hf_reader *r, ig_config *c) {
    c->n_kv_heads = 8;
    c->head_dim = 128;
    ig_hf_read_llama(r, c);
}

static void read_ernie4_5(ig_hf_reader *r, ig_config *c) {
    c->norms.eps = 1e-5f;
    c->n_kv_heads = 2;
    c->head_dim = 128;
    c->tied = true;
    c->rope.theta = 500000;
    ig_hf_read_llama(r, c);
    c->rope.kind = IG_ROPE_ADJACENT;
}

void ig_hf_read_hunyuan(ig_hf_reader *r, ig_config *c) {
    c->norms.eps = 1e-5f;
    c->norms.of_heads = IG_HEAD_NORM_EACH;
    c->norms.follow_rope = true;
    ig_hf_read_llama(r, c);
}

void ig_hf_read_granite(ig_hf_reader *r, ig_config *c) {
    ig_hf_read_llama(r, c);
    c->embed_scale = ig_hf_scale(r, "embedding_multiplier", 1);
    c->residual_scale = ig_hf_scale(r, "residual_multiplier", 1);
    c->logit_scale = ig_hf_scale(r, "logits_scaling", 1);
    c->attn_scale = ig_hf_scale(r, "attention_multiplier", 1);
}

/* Windows and sinks. Bases of layers are one by one, 0 where one does not rotate. */
static void read_granite_swa(ig_hf_reader *r, ig_config *c) {
    const json_t *bases = ig_hf_get(r->root, "layer_rope_theta");
    c->norms.eps = 1e-5f;
    c->tied = true;
    ig_hf_read_granite(r, c);
    ig_hf_read_local_layers(r, c, 4, IG_HF_WINDOW, IG_ROPE_MAIN, IG_ROPE_MAIN);
    c->has_sink_scores = true;
    if (!ig_hf_get(r->root, "layer_types")) ig_hf_fail_kind(r, "layer_types", "a list with one item per layer");
    if (bases && json_array_size(bases) != (size_t)c->n_layers)
        ig_hf_fail_kind(r, "layer_rope_theta", "a list with one item per layer");
    for (size_t l = 0; l < json_array_size(bases) && !r->status; l++) {
        double base = json_number_value(json_array_get(bases, l));
        if (base == 0) c->rope.set[l] = IG_ROPE_LEFT_OUT;
        if (base != 0 && base != c->rope.theta) ig_hf_refuse(r, "layer_rope_theta", "another base than 'rope_theta'");
    }
}

/* Layers that do not rotate are stated one by one, or every so many. */
static void read_rotating_layers(ig_hf_reader *r, ig_config *c) {
    const json_t *rotates = ig_hf_get(r->root, "no_rope_layers");
    if (json_is_array(rotates) && json_array_size(rotates) == 0) rotates = NULL;
    int interval = ig_hf_int(r, r->root, "no_rope_layer_interval", IG_MAX_LAYERS, 4);
    if (rotates && (!json_is_array(rotates) || json_array_size(rotates) < (size_t)c->n_layers))
        ig_hf_fail_kind(r, "no_rope_layers", "a list with one item per layer");
    for (int l = 0; l < c->n_layers && !r->status; l++) {
        bool is_rotated = (l + 1) % interval != 0;
        if (rotates) is_rotated = json_integer_value(json_array_get(rotates, (size_t)l)) != 0;
        c->rope.set[l] = is_rotated ? IG_ROPE_MAIN : IG_ROPE_LEFT_OUT;
    }
}

static void read_smollm3(ig_hf_reader *r, ig_config *c) {
    c->rope.theta = 2000000;
    c->tied = true;
    ig_hf_read_llama(r, c);
    read_rotating_layers(r, c);
    if (ig_hf_bool(r, "use_sliding_window", false)) ig_hf_refuse(r, "use_sliding_window", "true");
}

/* Layers that rotate attend to their chunk alone, unless stated otherwise. */
void ig_hf_read_chunks(ig_hf_reader *r, ig_config *c) {
    read_rotating_layers(r, c);
    bool is_null = json_is_null(json_object_get(r->root, "attention_chunk_size"));
    int chunk = ig_hf_int(r, r->root, "attention_chunk_size", IG_MAX_CTX, is_null ? 0 : IG_LLAMA4_CHUNK);
    read_kind(r, c, "chunked_attention", chunk, c->n_layers);
    for (int l = 0; l < c->n_layers && !ig_hf_get(r->root, "layer_types"); l++)
        c->window[l] = c->rope.set[l] == IG_ROPE_MAIN ? chunk : 0;
    c->has_chunks = true;
}

static const char rotary_share[] = "partial_rotary_factor";

int ig_hf_n_rot(ig_hf_reader *r, const json_t *object, int head_dim, double absent) {
    double share = ig_hf_number(r, object, rotary_share, absent);
    int n_rot = share <= 1 ? (int)(head_dim * share) : 0;
    if (n_rot == 0) ig_hf_fail_kind(r, rotary_share, "above 0 and at most 1, and leave a part of a head");
    return n_rot;
}

/* Stated in one of two places. */
int ig_hf_read_n_rot(ig_hf_reader *r, int head_dim, double absent) {
    return ig_hf_n_rot(r, ig_hf_get(r->root, "rope_parameters"), head_dim,
                       ig_hf_number(r, r->root, rotary_share, absent));
}

static void read_phi3(ig_hf_reader *r, ig_config *c) {
    c->file.is_qkv_fused = c->file.is_gate_up_fused = true;
    c->norms.eps = 1e-5f;
    c->rope.n = ig_hf_read_n_rot(r, c->d_model / c->n_heads, 1);
    ig_hf_read_llama(r, c);
    int window = ig_hf_int(r, r->root, "sliding_window", IG_MAX_CTX, 0);
    for (int l = 0; l < c->n_layers; l++) c->window[l] = window;
}

static void read_glm(ig_hf_reader *r, ig_config *c) {
    c->norms.eps = 1.5625e-7f;
    c->file.is_gate_up_fused = true;
    c->n_kv_heads = 2;
    c->head_dim = 128;
    int head_dim = ig_hf_int(r, r->root, "head_dim", IG_KV_DIMS, c->head_dim);
    c->rope.n = ig_hf_read_n_rot(r, head_dim, 0.5);
    ig_hf_read_llama(r, c);
    c->rope.kind = IG_ROPE_ADJACENT;
}

static void read_glm4(ig_hf_reader *r, ig_config *c) {
    c->norms.order = IG_NORMS_AROUND;
    read_glm(r, c);
}

static void read_exaone4(ig_hf_reader *r, ig_config *c) {
    c->norms.order = IG_NORMS_OF_PARTS;
    c->norms.eps = 1e-5f;
    c->norms.of_heads = IG_HEAD_NORM_EACH;
    ig_hf_read_llama(r, c);
    ig_hf_read_turning_layers(r, c);
}

static const char gelu[] = "gelu_pytorch_tanh";

static void read_gemma(ig_hf_reader *r, ig_config *c) {
    c->norms.offset = 1;
    c->activation = IG_GELU_GATED;
    if (!c->n_kv_heads) c->n_kv_heads = 16;
    c->head_dim = 256;
    c->tied = true;
    ig_hf_read_llama(r, c);
    c->embed_scale = sqrt((double)c->d_model);
    /* Early files say "gelu", and mean this one. */
    const char *act = ig_hf_text(r, r->root, "hidden_activation", ig_hf_text(r, r->root, "hidden_act", gelu));
    if (strcmp(act, gelu) != 0 && strcmp(act, "gelu") != 0) ig_hf_refuse(r, "hidden_act", act);
}

static void read_gemma3(ig_hf_reader *r, ig_config *c) {
    c->norms.order = IG_NORMS_AROUND;
    c->norms.of_heads = IG_HEAD_NORM_EACH;
    c->norms.offset = 1;
    c->activation = IG_GELU_GATED;
    c->n_kv_heads = 4;
    c->head_dim = 256;
    c->tied = true;
    c->rope.theta = 1000000;
    c->rope.local_theta = ig_hf_theta(r, r->root, "rope_local_base_freq", 10000);
    ig_hf_read_llama(r, c);
    c->embed_scale = sqrt((double)c->d_model);
    c->attn_scale = 1 / sqrt(ig_hf_scale(r, "query_pre_attn_scalar", 256));
    int pattern = ig_hf_int(r, r->root, "sliding_window_pattern", IG_MAX_LAYERS, 6);
    ig_hf_read_local_layers(r, c, pattern, IG_HF_WINDOW, IG_ROPE_LOCAL, IG_ROPE_MAIN);
    const char *act = ig_hf_text(r, r->root, "hidden_activation", gelu);
    if (strcmp(act, gelu) != 0) ig_hf_refuse(r, "hidden_activation", act);
    if (ig_hf_bool(r, "use_bidirectional_attention", false)) ig_hf_refuse(r, "use_bidirectional_attention", "true");
}

/* Each layer's base of frequencies: the same for all, or none. */
static void read_layer_thetas(ig_hf_reader *r, ig_config *c) {
    static const char key[] = "layer_rope_theta";
    const json_t *thetas = ig_hf_get(r->root, key);
    if (thetas && json_array_size(thetas) != (size_t)c->n_layers)
        ig_hf_fail_kind(r, key, "a list with one item per layer");
    for (int l = 0; l < c->n_layers && !r->status; l++) {
        const json_t *stated = json_array_get(thetas, (size_t)l);
        double theta = json_number_value(stated);
        if (thetas && !json_is_number(stated)) ig_hf_fail_kind(r, key, "a list of numbers");
        bool turns = thetas ? theta != 0 : (c->n_layers - 1 - l) % 4 != 0;
        if (thetas && turns && !(theta >= c->rope.theta && theta <= c->rope.theta))
            ig_hf_refuse(r, key, "other than 0 and 'rope_theta'");
        c->rope.set[l] = turns ? IG_ROPE_MAIN : IG_ROPE_LEFT_OUT;
    }
}

/* Every last layer of four has no window, counted from the end, unless each is stated. */
static void read_muse_glimmer(ig_hf_reader *r, ig_config *c) {
    c->norms.order = IG_NORMS_AROUND;
    c->norms.eps = 1e-5f;
    c->norms.offset = 1;
    c->norms.is_final_whole = true;
    c->norms.of_embeddings = true;
    c->norms.of_heads = IG_HEAD_NORM_EACH;
    c->norms.of_heads_are_plain = true;
    c->has_attn_gate = true;
    c->n_kv_heads = 2;
    c->head_dim = 128;
    ig_hf_read_llama(r, c);
    double after_eps = ig_hf_number(r, r->root, "post_norm_eps", 1e-8);
    if (!(after_eps >= 1e-30 && after_eps < 1)) ig_hf_fail_kind(r, "post_norm_eps", "1e-30 to 1");
    c->norms.after_eps = (float)after_eps;
    c->attn_scale = ig_hf_scale(r, "qk_scale_factor", 3.87) / sqrt((double)c->head_dim);
    c->logit_scale = 1 / ig_hf_scale(r, "output_multiplier", 0.19611613513818404);
    c->logit_cap = ig_hf_scale(r, "final_logit_softcapping", 20);
    ig_hf_read_windows(r, c, ig_hf_int(r, r->root, "sliding_window", IG_MAX_CTX, 2048), 0);
    for (int l = c->n_layers - 1; l >= 0 && !ig_hf_get(r->root, "layer_types"); l -= 4) c->window[l] = 0;
    read_layer_thetas(r, c);
    const char *act = ig_hf_text(r, r->root, "hidden_activation", "silu");
    if (strcmp(act, "silu") != 0) ig_hf_refuse(r, "hidden_activation", act);
}

/* null: there is none. */
static double read_cap(ig_hf_reader *r, const char *key, double absent) {
    return json_is_null(json_object_get(r->root, key)) ? 0 : ig_hf_scale(r, key, absent);
}

static void read_gemma2(ig_hf_reader *r, ig_config *c) {
    c->n_kv_heads = 4;
    read_gemma(r, c);
    c->norms.order = IG_NORMS_AROUND;
    c->attn_scale = 1 / sqrt(ig_hf_scale(r, "query_pre_attn_scalar", 256));
    c->score_cap = read_cap(r, "attn_logit_softcapping", 50);
    c->logit_cap = read_cap(r, "final_logit_softcapping", 30);
    ig_hf_read_local_layers(r, c, 2, IG_HF_WINDOW, IG_ROPE_MAIN, IG_ROPE_MAIN);
}

/* Feed-forward parts without a gate. */
static void read_relu_squared(ig_hf_reader *r, ig_config *c) {
    const char *act = ig_hf_text(r, r->root, "hidden_act", "relu2");
    c->activation = IG_RELU_SQUARED;
    ig_hf_read_llama(r, c);
    if (strcmp(act, "relu2") != 0) ig_hf_refuse(r, "hidden_act", act);
}

static void read_arcee(ig_hf_reader *r, ig_config *c) {
    c->norms.eps = 1e-5f;
    read_relu_squared(r, c);
}

/* The class has a rule for long contexts where a file states none. */
static void read_apertus(ig_hf_reader *r, ig_config *c) {
    const char *act = ig_hf_text(r, r->root, "hidden_act", "xielu");
    c->norms.of_heads = IG_HEAD_NORM_EACH;
    c->norms.eps = 1e-5f;
    c->activation = IG_XIELU;
    c->rope.theta = 12000000;
    ig_hf_read_llama(r, c);
    if (strcmp(act, "xielu") != 0) ig_hf_refuse(r, "hidden_act", act);
    if (!ig_hf_rope_object(r)) ig_hf_fail_kind(r, "rope_parameters", "an object");
}

/* Nemotron 4, Minitron. */
static void read_nemotron(ig_hf_reader *r, ig_config *c) {
    int head_dim = ig_hf_int(r, r->root, "head_dim", IG_KV_DIMS, c->d_model / c->n_heads);
    c->rope.n = ig_hf_read_n_rot(r, head_dim, 0.5);
    c->norms.eps = (float)ig_hf_number(r, r->root, "norm_eps", 1e-5);
    c->norms.offset = 1;
    read_relu_squared(r, c);
    c->norms.kind = IG_NORM_LAYER;
}

static void read_olmo2(ig_hf_reader *r, ig_config *c) {
    c->norms.order = IG_NORMS_OF_PARTS;
    c->norms.of_heads = IG_HEAD_NORM_ALL;
    c->norms.eps = 1e-5f;
    ig_hf_read_llama(r, c);
}

static void read_olmo3(ig_hf_reader *r, ig_config *c) {
    c->rope.theta = 500000;
    c->rope.local_theta = ig_hf_theta(r, r->root, "rope_theta", c->rope.theta);
    read_olmo2(r, c);
    ig_hf_read_local_layers(r, c, 4, IG_HF_WINDOW, IG_ROPE_LOCAL, IG_ROPE_MAIN);
}

/* Command R, Aya: attention and the feed-forward part side by side. */
static void read_cohere(ig_hf_reader *r, ig_config *c) {
    c->norms.eps = (float)ig_hf_number(r, r->root, "layer_norm_eps", 1e-5);
    c->tied = true;
    ig_hf_read_llama(r, c);
    c->norms.kind = IG_NORM_LAYER_UNBIASED;
    c->norms.order = IG_NORMS_SHARED;
    c->rope.kind = IG_ROPE_ADJACENT;
    c->logit_scale = 1 / ig_hf_scale(r, "logit_scale", 0.0625);
}

/* Command R7B, Command A: layers without a window do not rotate. */
void ig_hf_read_cohere2(ig_hf_reader *r, ig_config *c) {
    read_cohere(r, c);
    ig_hf_read_turning_layers(r, c);
    const json_t *window = json_object_get(r->root, "sliding_window");
    if (json_is_null(window)) ig_hf_refuse(r, "sliding_window", "null");
}

/* Feed-forward parts without a gate, of either form of gelu. */
static void read_gelu(ig_hf_reader *r, ig_config *c, const char *absent) {
    const char *act = ig_hf_text(r, r->root, "hidden_act", absent);
    bool is_exact = strcmp(act, "gelu") == 0,
         is_tanh = strcmp(act, gelu) == 0 || strcmp(act, "gelu_new") == 0 || strcmp(act, "gelu_fast") == 0;
    c->activation = is_exact ? IG_GELU_ERF : IG_GELU;
    if (!is_exact && !is_tanh) ig_hf_refuse(r, "hidden_act", act);
}

static void read_starcoder2(ig_hf_reader *r, ig_config *c) {
    read_gelu(r, c, gelu);
    c->norms.eps = (float)ig_hf_number(r, r->root, "norm_epsilon", 1e-5);
    c->n_kv_heads = 2;
    c->tied = ig_hf_bool(r, "tie_word_embeddings", true);
    ig_hf_read_llama(r, c);
    c->norms.kind = IG_NORM_LAYER;
    ig_hf_read_windows(r, c, ig_hf_int(r, r->root, "sliding_window", IG_MAX_CTX, 0), 0);
}

/* Phi-1, 1.5 and 2: one norm of what attention and the feed-forward part get. */
static void read_phi(ig_hf_reader *r, ig_config *c) {
    read_gelu(r, c, "gelu_new");
    c->norms.eps = (float)ig_hf_number(r, r->root, "layer_norm_eps", 1e-5);
    c->rope.n = ig_hf_read_n_rot(r, c->d_model / c->n_heads, 0.5);
    ig_hf_read_llama(r, c);
    c->norms.kind = IG_NORM_LAYER;
    c->norms.order = IG_NORMS_SHARED;
    if (ig_hf_bool(r, "qk_layernorm", false)) ig_hf_refuse(r, "qk_layernorm", "true");
}

/* StableLM: the same where the file says so; else a norm of each. */
static void read_stablelm(ig_hf_reader *r, ig_config *c) {
    c->norms.eps = (float)ig_hf_number(r, r->root, "layer_norm_eps", 1e-5);
    c->rope.n = ig_hf_read_n_rot(r, c->d_model / c->n_heads, 0.25);
    ig_hf_read_llama(r, c);
    c->norms.kind = IG_NORM_LAYER;
    c->norms.order = ig_hf_bool(r, "use_parallel_residual", false) ? IG_NORMS_SHARED : IG_NORMS_BEFORE;
    if (ig_hf_bool(r, "qk_layernorm", false)) ig_hf_refuse(r, "qk_layernorm", "true");
}

/* Pythia and others: of each head the first part rotates, and what both parts of a layer give is added at once, unless
 * stated otherwise. */
static void read_gpt_neox(ig_hf_reader *r, ig_config *c) {
    double share = ig_hf_number(r, r->root, "rotary_pct", 0.25);
    read_gelu(r, c, "gelu");
    c->norms.eps = (float)ig_hf_number(r, r->root, "layer_norm_eps", 1e-5);
    c->rope.n = ig_hf_read_n_rot(r, c->d_model / c->n_heads, share);
    c->rope.theta = ig_hf_theta(r, r->root, "rotary_emb_base", 10000);
    ig_hf_read_llama(r, c);
    c->norms.kind = IG_NORM_LAYER;
    c->norms.order = ig_hf_bool(r, "use_parallel_residual", true) ? IG_NORMS_APART : IG_NORMS_BEFORE;
    c->file.is_qkv_fused = c->file.are_heads_mixed = true;
}

static void read_opt(ig_hf_reader *r, ig_config *c) {
    c->d_ff = ig_hf_int(r, r->root, "ffn_dim", IG_MAX_WIDTH, IG_HF_ABSENT);
    c->d_embed = ig_hf_int(r, r->root, "word_embed_proj_dim", IG_MAX_WIDTH, 0);
    c->norms.kind = IG_NORM_LAYER;
    c->norms.eps = 1e-5f; /* the class states no other */
    c->activation = IG_RELU;
    c->rope.kind = IG_ROPE_NONE;
    c->tied = ig_hf_bool(r, "tie_word_embeddings", true);
    bool is_first = ig_hf_bool(r, "do_layer_norm_before", true);
    c->norms.order = is_first ? IG_NORMS_BEFORE : IG_NORMS_OF_SUMS;
    c->norms.has_final = is_first && !ig_hf_bool(r, "_remove_final_layer_norm", false);
    c->position_offset = OPT_POSITION_OFFSET;
    c->learned_positions = c->n_ctx_train + OPT_POSITION_OFFSET;
    const char *act = ig_hf_text(r, r->root, "activation_function", "relu");
    if (strcmp(act, "relu") != 0) ig_hf_refuse(r, "activation_function", act);
    if (!ig_hf_bool(r, "layer_norm_elementwise_affine", true))
        ig_hf_refuse(r, "layer_norm_elementwise_affine", "false");
}

/* What the class has where a file states nothing: those of 4b and larger leave most of it out. */
static const ig_config gemma3_sizes = {
    .n_vocab = 262208, .d_model = 2304, .d_ff = 9216, .n_layers = 26, .n_heads = 8, .n_ctx_train = 131072};

static const ig_config muse_glimmer_sizes = {
    .n_vocab = 202048, .d_model = 6656, .d_ff = 19968, .n_layers = 52, .n_heads = 32, .n_ctx_train = 131072};

/* The number of layers is that of a list. */
static const ig_config nemotron_sizes = {.n_layers = 1};

static const ig_hf_family families[] = {
    {"afmoe", ig_hf_read_afmoe, {"num_experts", "num_local_experts"}, NULL},
    {"apertus", read_apertus, {NULL}, NULL},
    {"arcee", read_arcee, {NULL}, NULL},
    {"cohere", read_cohere, {NULL}, NULL},
    {"cohere2", ig_hf_read_cohere2, {NULL}, NULL},
    {"cohere2_moe", ig_hf_read_cohere2_moe, {"num_experts", "num_local_experts"}, NULL},
    {"deepseek_v2", ig_hf_read_deepseek_v2, {"num_experts", "num_local_experts"}, NULL},
    {"deepseek_v3", ig_hf_read_deepseek_v3, {"num_experts", "num_local_experts"}, NULL},
    {"deepseek_v32", ig_hf_read_deepseek_v32, {"num_experts", "num_local_experts"}, NULL},
    {"dots1", ig_hf_read_dots1, {"num_experts", "num_local_experts"}, NULL},
    {"ernie4_5", read_ernie4_5, {NULL}, NULL},
    {"ernie4_5_moe", ig_hf_read_ernie4_5_moe, {NULL}, NULL},
    {"exaone4", read_exaone4, {NULL}, NULL},
    {"exaone_moe", ig_hf_read_exaone_moe, {"num_experts", "num_local_experts"}, NULL},
    {"falcon_h1", ig_hf_read_falcon_h1, {"embedding_multiplier"}, NULL},
    {"gemma", read_gemma, {NULL}, NULL},
    {"gemma2", read_gemma2, {"attn_logit_softcapping", "final_logit_softcapping"}, NULL},
    {"gemma3_text", read_gemma3, {NULL}, &gemma3_sizes},
    {"gemma4_text", ig_hf_read_gemma4, {"final_logit_softcapping", "num_experts"}, &ig_hf_gemma4_sizes},
    {"gemma4_unified_text", ig_hf_read_gemma4, {"final_logit_softcapping"}, &ig_hf_gemma4_sizes},
    {"glm", read_glm, {"partial_rotary_factor"}, NULL},
    {"glm4", read_glm4, {"partial_rotary_factor"}, NULL},
    {"glm4_moe",
     ig_hf_read_glm4_moe,
     {"num_experts", "num_local_experts", "partial_rotary_factor", "use_qk_norm"},
     NULL},
    {"glm4_moe_lite", ig_hf_read_glm4_moe_lite, {"num_experts", "num_local_experts"}, NULL},
    {"glm_moe_dsa", ig_hf_read_glm_moe_dsa, {"num_experts", "num_local_experts"}, NULL},
    {"gpt_neox", read_gpt_neox, {"partial_rotary_factor"}, NULL},
    {"gpt_oss", ig_hf_read_gpt_oss, {"num_local_experts"}, NULL},
    {"granite",
     ig_hf_read_granite,
     {"attention_multiplier", "embedding_multiplier", "logits_scaling", "residual_multiplier"},
     NULL},
    {"granite_swa",
     read_granite_swa,
     {"attention_multiplier", "embedding_multiplier", "logits_scaling", "residual_multiplier"},
     NULL},
    {"granitemoe",
     ig_hf_read_granitemoe,
     {"attention_multiplier", "embedding_multiplier", "logits_scaling", "residual_multiplier", "num_local_experts"},
     NULL},
    {"granitemoehybrid",
     ig_hf_read_granite4,
     {"attention_multiplier", "embedding_multiplier", "logits_scaling", "residual_multiplier", "num_local_experts"},
     NULL},
    {"hunyuan_v1_dense", ig_hf_read_hunyuan, {"use_qk_norm"}, NULL},
    {"hunyuan_v1_moe", ig_hf_read_hunyuan_moe, {"num_experts", "num_local_experts", "use_qk_norm"}, NULL},
    {"hy_v3", ig_hf_read_hy_v3, {"num_experts", "num_local_experts"}, NULL},
    {"kimi_linear", ig_hf_read_kimi_linear, {"num_experts", "num_local_experts"}, &ig_hf_kimi_linear_sizes},
    {"laguna", ig_hf_read_laguna, {"num_experts", "num_local_experts"}, NULL},
    {"lfm2", ig_hf_read_lfm2, {NULL}, NULL},
    {"lfm2_moe", ig_hf_read_lfm2_moe, {"num_experts", "num_local_experts"}, NULL},
    {"lfm3", ig_hf_read_lfm3, {NULL}, &ig_hf_lfm3_sizes},
    {"llama", ig_hf_read_llama, {NULL}, NULL},
    {"llama4_text", ig_hf_read_llama4, {"num_local_experts", "use_qk_norm"}, NULL},
    {"mellum", ig_hf_read_mellum, {"num_experts", "num_local_experts"}, NULL},
    {"minimax_m2", ig_hf_read_minimax_m2, {"num_local_experts", "partial_rotary_factor", "use_qk_norm"}, NULL},
    {"minimax_m3_vl_text", ig_hf_read_minimax_m3, {"num_local_experts", "partial_rotary_factor", "use_qk_norm"}, NULL},
    {"ministral3", read_ministral3, {NULL}, NULL},
    {"mistral", read_mistral, {NULL}, NULL},
    {"mistral4", ig_hf_read_mistral4, {"num_experts", "num_local_experts", "partial_rotary_factor"}, NULL},
    {"mixtral", ig_hf_read_mixtral, {"num_local_experts"}, NULL},
    {"muse_glimmer_text", read_muse_glimmer, {"final_logit_softcapping"}, &muse_glimmer_sizes},
    {"nemotron", read_nemotron, {"partial_rotary_factor"}, NULL},
    {"nemotron_h", ig_hf_read_nemotron_h, {"num_experts", "num_local_experts"}, &nemotron_sizes},
    {"olmo2", read_olmo2, {NULL}, NULL},
    {"olmo3", read_olmo3, {NULL}, NULL},
    {"olmoe", ig_hf_read_olmoe, {"num_experts", "num_local_experts"}, NULL},
    {"opt", read_opt, {NULL}, NULL},
    {"phi", read_phi, {"partial_rotary_factor"}, NULL},
    {"phi3", read_phi3, {"partial_rotary_factor"}, NULL},
    {"qwen2", ig_hf_read_qwen2, {NULL}, NULL},
    {"qwen2_5_vl", ig_hf_read_qwen2, {NULL}, NULL},
    {"qwen2_5_vl_text", ig_hf_read_qwen2, {NULL}, NULL},
    {"qwen2_moe", ig_hf_read_qwen2_moe, {"num_experts", "num_local_experts"}, NULL},
    {"qwen2_vl", ig_hf_read_qwen2, {NULL}, NULL},
    {"qwen2_vl_text", ig_hf_read_qwen2, {NULL}, NULL},
    {"qwen3", ig_hf_read_qwen3, {NULL}, NULL},
    {"qwen3_moe", ig_hf_read_qwen3_moe, {"num_experts", "num_local_experts"}, NULL},
    {"qwen3_next", ig_hf_read_qwen3_next, {"num_experts", "num_local_experts", "partial_rotary_factor"}, NULL},
    {"qwen3_vl_moe_text", ig_hf_read_qwen3_vl_moe, {"num_experts", "num_local_experts"}, NULL},
    {"qwen3_vl_text", ig_hf_read_qwen3, {NULL}, NULL},
    {"qwen3_5_moe_text", ig_hf_read_qwen3_5_moe, {"num_experts", "num_local_experts", "partial_rotary_factor"}, NULL},
    {"qwen3_5_text", ig_hf_read_qwen3_5, {"partial_rotary_factor"}, NULL},
    {"seed_oss", read_seed_oss, {NULL}, NULL},
    {"smollm3", read_smollm3, {NULL}, NULL},
    {"solar_open",
     ig_hf_read_solar_open,
     {"num_experts", "num_local_experts", "partial_rotary_factor", "use_qk_norm"},
     NULL},
    {"stablelm", read_stablelm, {"partial_rotary_factor"}, NULL},
    {"starcoder2", read_starcoder2, {NULL}, NULL},
    {"youtu", ig_hf_read_youtu, {NULL}, &ig_hf_youtu_sizes},
};

const ig_hf_family *ig_hf_family_named(const char *name) {
    for (size_t i = 0; i < IG_COUNT(families); i++)
        if (strcmp(families[i].name, name) == 0) return &families[i];
    return NULL;
}
