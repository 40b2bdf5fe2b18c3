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
#include "model/config_section.h"

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
    {"pooling_type", KEY_USED, 0},
    {"residual_scale", KEY_NEUTRAL, 1},
    {"rope.scaling.attn_factor", KEY_NEUTRAL, 1},
    {"use_parallel_residual", KEY_NEUTRAL, 0},
};

static bool is_own(const ig_gguf_family *f, const char *name) {
    for (size_t i = 0; i < IG_COUNT(f->own); i++)
        if (f->own[i] && strcmp(f->own[i], name) == 0) return true;
    return false;
}

/* Refuses keys that nothing here understands. */
static void check_key(ig_section *r, const ig_gguf_value *v, const char *name) {
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

static void check_keys(ig_section *r, const ig_gguf_family *f) {
    size_t n = strlen(r->architecture);
    for (size_t i = 0; i < ig_gguf_n_values(r->g) && !r->status; i++) {
        const ig_gguf_value *v = ig_gguf_value_at(r->g, i);
        if (strncmp(v->key, r->architecture, n) == 0 && v->key[n] == '.' && !is_own(f, v->key + n + 1))
            check_key(r, v, v->key + n + 1);
    }
}

/* As llama.cpp numbers them: none, mean, first, last, rank. */
static void read_pooling(ig_section *r, ig_config *c) {
    int type = ig_section_count(r, "pooling_type", 4);
    c->pooling = type == 0 || type == 3 ? IG_POOLING_LAST : type == 1 ? IG_POOLING_MEAN : IG_POOLING_OTHER;
}

/* The tokens counted, or what the file states if it has none. */
static int read_vocab(ig_section *r) {
    const ig_gguf_value *tokens = ig_gguf_find(r->g, "tokenizer.ggml.tokens");
    if (!tokens) return ig_section_int(r, "vocab_size", IG_MAX_VOCAB, -1);
    if (tokens->type == IG_GGUF_ARRAY && tokens->n_items >= 1 && tokens->n_items <= IG_MAX_VOCAB)
        return (int)tokens->n_items;
    if (!r->status)
        r->status = ig_fail(r->err, IG_E_FORMAT, "%s: key 'tokenizer.ggml.tokens' must be an array of 1 to %d items",
                            r->path, IG_MAX_VOCAB);
    return 1;
}

/* The gain follows from the factor: files that state another hold keys that are not understood. */
static void read_yarn(ig_section *r, ig_config *c, double factor) {
    c->rope.blend = IG_BLEND_YARN;
    c->rope.factor = factor;
    c->rope.low_freq = ig_section_number(r, "rope.scaling.yarn_beta_slow", 1);
    c->rope.high_freq = ig_section_number(r, "rope.scaling.yarn_beta_fast", 32);
    c->rope.original_ctx = ig_section_int(r, "rope.scaling.original_context_length", IG_MAX_CTX, c->n_ctx_train);
    if (r->status) return;
    if (!(factor >= 1 && factor <= 1e6))
        r->status = ig_fail(r->err, IG_E_FORMAT, "%s: key '%s.rope.scaling.factor' is %g, must be 1 to 1e6", r->path,
                            r->architecture, factor);
    else if (!(c->rope.low_freq > 0 && c->rope.high_freq > c->rope.low_freq && c->rope.high_freq <= 1e6))
        r->status = ig_fail(r->err, IG_E_FORMAT,
                            "%s: keys '%s.rope.scaling.yarn_beta_slow' and 'yarn_beta_fast' are %g and %g, must be "
                            "above 0, the second above the first",
                            r->path, r->architecture, c->rope.low_freq, c->rope.high_freq);
}

static void read_linear(ig_section *r, ig_config *c, double factor) {
    c->rope.linear = factor;
    if (!(factor >= 1e-6 && factor <= 1e6))
        r->status = ig_fail(r->err, IG_E_FORMAT, "%s: key '%s.rope.scaling.factor' is %g, must be 1e-6 to 1e6", r->path,
                            r->architecture, factor);
}

static void read_scaling(ig_section *r, ig_config *c) {
    ig_text type = {"linear", 6};
    ig_section_key k = ig_section_name(r, "rope.scaling.type");
    bool stated = ig_gguf_string(r->g, k.text, &type, &r->status, r->err);
    double factor = ig_section_number(r, "rope.scaling.factor", ig_section_number(r, "rope.scale_linear", 0));
    if (r->status || ig_text_is(type, "none") || (factor == 0 && !stated)) return;
    if (ig_text_is(type, "linear"))
        read_linear(r, c, factor);
    else if (ig_text_is(type, "yarn"))
        read_yarn(r, c, factor);
    else if (ig_text_is(type, "longrope") && ig_gguf_tensor(r->g, "rope_factors_long.weight"))
        c->rope.blend = IG_BLEND_LONGROPE;
    else
        r->status =
            ig_fail(r->err, IG_E_UNSUPPORTED, "%s: key '%s' is '%.*s', only 'none', 'linear' and 'yarn' are supported",
                    r->path, k.text, (int)(type.size < 40 ? type.size : 40), type.data);
}

/* ---- the whole ---------------------------------------------------------------------------------- */

static const ig_gguf_family *find_family(ig_section *r) {
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
        const ig_gguf_family *f = ig_gguf_family_named(name);
        if (f) return f;
        r->status = ig_fail(r->err, IG_E_UNSUPPORTED, "%s: architecture '%.*s' is not supported", r->path,
                            (int)(name.size < 40 ? name.size : 40), name.data);
    }
    return NULL;
}

/* One number, or one for each layer, the same for all but those that it is 0 of, which are marked. */
static int read_of_layers(ig_section *r, const ig_config *c, const char *name, int max, int absent, bool *is_zero) {
    ig_section_key k = ig_section_name(r, name);
    const ig_gguf_value *v = ig_gguf_find(r->g, k.text);
    if (!v || v->type != IG_GGUF_ARRAY) return ig_section_int(r, name, max, absent);
    int64_t n = 0;
    bool is_same = v->n_items >= (uint64_t)c->n_layers;
    for (uint64_t l = 0; l < v->n_items; l++) {
        int64_t of_layer = ig_gguf_array_int(v, l);
        if (of_layer && n == 0) n = of_layer;
        is_same = is_same && (of_layer == n || of_layer == 0);
        if (l < IG_MAX_LAYERS) is_zero[l] = of_layer == 0;
    }
    if (is_same && n >= 1 && n <= max) return (int)n;
    if (!r->status)
        r->status =
            ig_fail(r->err, IG_E_UNSUPPORTED, "%s: key '%s' is not one number of 1 to %d for all layers that have such",
                    r->path, k.text, max);
    return 1;
}

/* But those that families read as lists. */
static void read_sizes(ig_section *r, const ig_gguf_family *f, ig_config *c) {
    c->n_layers = ig_section_int(r, "block_count", IG_MAX_LAYERS, -1);
    c->n_ctx_train = ig_section_int(r, "context_length", IG_MAX_CTX, -1);
    c->d_model = ig_section_int(r, "embedding_length", IG_MAX_WIDTH, -1);
    int of_experts = ig_section_count(r, "expert_feed_forward_length", IG_MAX_WIDTH);
    if (!is_own(f, "feed_forward_length"))
        c->d_ff =
            read_of_layers(r, c, "feed_forward_length", IG_MAX_WIDTH, of_experts ? of_experts : -1, c->has_no_ffn);
    c->n_heads = is_own(f, "attention.head_count") ? 1 : ig_section_int(r, "attention.head_count", IG_MAX_HEADS, -1);
    if (!is_own(f, "attention.head_count_kv"))
        c->n_kv_heads = read_of_layers(r, c, "attention.head_count_kv", IG_MAX_HEADS, 0, c->is_recurrent);
    c->head_dim = ig_section_int(r, "attention.key_length", IG_KV_DIMS, 0);
    int value_dim =
        is_own(f, "attention.value_length") ? 0 : ig_section_int(r, "attention.value_length", IG_KV_DIMS, 0);
    c->rope.n = ig_section_int(r, "rope.dimension_count", IG_KV_DIMS, 0);
    c->rope.theta = ig_section_number(r, "rope.freq_base", 10000);
    c->norms.eps = (float)ig_section_number(r, "attention.layer_norm_rms_epsilon", 0); /* absent: refused as 0 later */
    c->n_vocab = read_vocab(r);
    if (r->status) return;
    int key_dim = c->head_dim ? c->head_dim : c->d_model / c->n_heads;
    if (value_dim && value_dim != key_dim)
        r->status =
            ig_fail(r->err, IG_E_UNSUPPORTED, "%s: key '%s.attention.value_length' is %d, must equal the key length %d",
                    r->path, r->architecture, value_dim, key_dim);
}

/* The model's own name, fit to be printed. */
static void read_name(ig_section *r, ig_config *c) {
    ig_text name = {"", 0};
    ig_gguf_string(r->g, "general.name", &name, &r->status, r->err);
    snprintf(c->name, sizeof c->name, "%.*s", (int)(name.size < sizeof c->name ? name.size : sizeof c->name),
             name.data);
    ig_make_harmless(c->name);
}

ig_status ig_config_from_gguf(ig_config *out, const ig_gguf *g, ig_error *err) {
    ig_section r = {.g = g, .path = ig_gguf_path(g), .architecture = "", .err = err};
    *out = (ig_config){0};
    const ig_gguf_family *f = find_family(&r);
    if (!f) return r.status;
    r.architecture = f->name;
    snprintf(out->architecture, sizeof out->architecture, "%s", f->name);
    read_name(&r, out);
    out->rope.is_paired = f->rope == IG_ROPE_PAIRED;
    out->rope.kind = out->rope.is_paired ? IG_ROPE_ADJACENT : f->rope;
    out->norms.kind = IG_NORM_RMS;
    out->activation = IG_SILU_GATED;
    out->norms.has_final = true;
    out->tied = !ig_gguf_tensor(g, "output.weight");
    out->file.is_qkv_fused = ig_gguf_tensor(g, "blk.0.attn_qkv.weight") != NULL;
    check_keys(&r, f);
    read_sizes(&r, f, out);
    read_scaling(&r, out);
    if (!r.status) f->read(&r, out);
    read_pooling(&r, out);
    if (r.status) return r.status;
    ig_section_key d_model = ig_section_name(&r, "embedding_length"),
                   heads = ig_section_name(&r, "attention.head_count"),
                   kv_heads = ig_section_name(&r, "attention.head_count_kv"),
                   head_dim = ig_section_name(&r, "attention.key_length"),
                   n_rot = ig_section_name(&r, "rope.dimension_count"),
                   eps = ig_section_name(&r, "attention.layer_norm_rms_epsilon"),
                   theta = ig_section_name(&r, "rope.freq_base");
    ig_config_names names = {r.path,        d_model.text, heads.text, kv_heads.text,
                             head_dim.text, n_rot.text,   eps.text,   theta.text};
    return ig_config_finish(out, &names, err);
}
