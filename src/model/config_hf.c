/* SPDX-License-Identifier: Apache-2.0
 *
 * A configuration from a Hugging Face config.json. Absent fields have the defaults of the published
 * model classes. Fields that would change the computation in a way that this program does not know are refused by name.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/file.h"
#include "format/json.h"
#include "model/config_check.h"

enum { MAX_CONFIG_BYTES = 1 << 20, OPT_POSITION_OFFSET = 2, MAX_GAIN = 100, ABSENT = -1 };

typedef struct reader {
    const json_t *root;
    const char *path;
    ig_status status; /* the first failure */
    ig_error *err;
} reader;

/* A field that is neither absent nor null, else NULL. */
static const json_t *get(const json_t *object, const char *key) {
    const json_t *v = json_object_get(object, key);
    return json_is_null(v) ? NULL : v;
}

static void fail_kind(reader *r, const char *key, const char *wanted) {
    if (!r->status) r->status = ig_fail(r->err, IG_E_FORMAT, "%s: '%s' must be %s", r->path, key, wanted);
}

/* An integer of 1 to max; `absent` if it is not there, required if absent is ABSENT. */
static int read_int(reader *r, const json_t *object, const char *key, int max, int absent) {
    const json_t *v = get(object, key);
    if (!v) {
        if (absent == ABSENT && !r->status)
            r->status = ig_fail(r->err, IG_E_FORMAT, "%s: '%s' is missing", r->path, key);
        return absent == ABSENT ? 1 : absent;
    }
    if (!json_is_integer(v)) {
        fail_kind(r, key, "an integer");
        return 1;
    }
    json_int_t x = json_integer_value(v);
    if (x >= 1 && x <= max) return (int)x;
    if (!r->status)
        r->status = ig_fail(r->err, IG_E_FORMAT, "%s: '%s' is %lld, must be 1 to %d", r->path, key, (long long)x, max);
    return 1;
}

/* A number above 0; required if absent is ABSENT. */
static double read_number(reader *r, const json_t *object, const char *key, double absent) {
    const json_t *v = get(object, key);
    if (!v) {
        if (absent == ABSENT && !r->status)
            r->status = ig_fail(r->err, IG_E_FORMAT, "%s: '%s' is missing", r->path, key);
        return absent;
    }
    double x = json_number_value(v);
    if (!json_is_number(v) || !isfinite(x) || x <= 0) fail_kind(r, key, "a number above 0");
    return x;
}

static bool read_bool(reader *r, const char *key, bool absent) {
    const json_t *v = get(r->root, key);
    if (!v) return absent;
    if (!json_is_boolean(v)) fail_kind(r, key, "true or false");
    return json_is_true(v);
}

/* The text of a field, `absent` if it is not there. */
static const char *read_text(reader *r, const json_t *object, const char *key, const char *absent) {
    const json_t *v = get(object, key);
    if (!v) return absent;
    if (!json_is_string(v)) {
        fail_kind(r, key, "a string");
        return absent;
    }
    return json_string_value(v);
}

static void refuse(reader *r, const char *key, const char *value) {
    if (!r->status)
        r->status =
            ig_fail(r->err, IG_E_UNSUPPORTED, "%s: '%s' is '%.60s', which is not supported", r->path, key, value);
}

/* Fields that, unless absent, null or neutral (0, false, `neutral`), change the computation. */
static void check_unknown(reader *r) {
    static const struct {
        const char *key;
        double neutral;
    } fields[] = {
        {"quantization_config", 0},
        {"num_experts", 0},
        {"num_local_experts", 0},
        {"final_logit_softcapping", 0},
        {"attn_logit_softcapping", 0},
        {"embedding_multiplier", 1},
        {"residual_multiplier", 1},
        {"logits_scaling", 1},
        {"attention_multiplier", 0},
        {"partial_rotary_factor", 1},
        {"rope_interleaved", 0},
        {"alibi", 0},
        {"use_qk_norm", 0},
        {"qk_layernorm", 0},
        {"add_cross_attention", 0},
    };
    for (size_t i = 0; i < IG_COUNT(fields) && !r->status; i++) {
        const json_t *v = get(r->root, fields[i].key);
        double x = json_is_true(v) ? 1 : json_number_value(v);
        bool is_scalar = json_is_boolean(v) || json_is_number(v);
        if (!v || (is_scalar && (x == 0 || x == fields[i].neutral))) continue;
        r->status =
            ig_fail(r->err, IG_E_UNSUPPORTED, "%s: '%s' is set, which is not supported", r->path, fields[i].key);
    }
}

/* ---- RoPE -------------------------------------------------------------- */

/* Where both state it, the model's own field counts. */
static int read_original_ctx(reader *r, const json_t *rope, int absent) {
    static const char key[] = "original_max_position_embeddings";
    return read_int(r, get(r->root, key) ? r->root : rope, key, IG_MAX_CTX, absent);
}

/* Of both rules that stretch some frequencies. */
static void check_stretch(reader *r, const ig_config *c, const char *low, const char *high) {
    if (r->status) return;
    if (c->rope_factor < 1 || c->rope_factor > 1e6) {
        fail_kind(r, "factor", "1 to 1e6");
    } else if (c->rope_high_freq <= c->rope_low_freq) {
        char above[64];
        snprintf(above, sizeof above, "above '%s'", low);
        fail_kind(r, high, above);
    }
}

static void read_llama3(reader *r, ig_config *c, const json_t *rope) {
    c->rope_blend = IG_BLEND_LLAMA3;
    c->rope_factor = read_number(r, rope, "factor", ABSENT);
    c->rope_low_freq = read_number(r, rope, "low_freq_factor", ABSENT);
    c->rope_high_freq = read_number(r, rope, "high_freq_factor", ABSENT);
    c->rope_original_ctx = read_original_ctx(r, rope, ABSENT);
    check_stretch(r, c, "low_freq_factor", "high_freq_factor");
}

/* The gain is stated, or follows from two weights, or from the factor alone. */
static void read_yarn(reader *r, ig_config *c, const json_t *rope) {
    c->rope_blend = IG_BLEND_YARN;
    c->rope_factor = read_number(r, rope, "factor", ABSENT);
    c->rope_low_freq = read_number(r, rope, "beta_slow", 1);
    c->rope_high_freq = read_number(r, rope, "beta_fast", 32);
    c->rope_original_ctx = read_original_ctx(r, rope, c->n_ctx_train);
    check_stretch(r, c, "beta_slow", "beta_fast");
    c->rope_gain = read_number(r, rope, "attention_factor", 0);
    double weight = read_number(r, rope, "mscale", 0), of_all = read_number(r, rope, "mscale_all_dim", 0);
    if (r->status) return;
    if (c->rope_gain == 0 && weight > 0 && of_all > 0)
        c->rope_gain = (1 + 0.1 * weight * log(c->rope_factor)) / (1 + 0.1 * of_all * log(c->rope_factor));
    if (c->rope_gain != 0 && !(c->rope_gain >= 1.0 / MAX_GAIN && c->rope_gain <= MAX_GAIN)) /* also of a NaN */
        fail_kind(r, "attention_factor", "0.01 to 100, also as 'mscale' makes it");
    if (json_is_false(get(rope, "truncate"))) refuse(r, "truncate", "false");
}

/* Both spellings: "rope_scaling" beside "rope_theta", or one "rope_parameters". */
static void read_rope(reader *r, ig_config *c) {
    const char *name = get(r->root, "rope_parameters") ? "rope_parameters" : "rope_scaling";
    const json_t *rope = get(r->root, name);
    const char *key;
    json_t *member;
    c->rope = IG_ROPE_HALF;
    c->rope_theta = read_number(r, r->root, "rope_theta", 10000);
    if (!rope) return;
    if (strcmp(name, "rope_parameters") == 0 && get(r->root, "rope_scaling"))
        refuse(r, "rope_scaling", "set beside 'rope_parameters'");
    if (!json_is_object(rope)) {
        fail_kind(r, name, "an object");
        return;
    }
    json_object_foreach((json_t *)(uintptr_t)rope, key, member) {
        if (json_is_object(member)) refuse(r, name, key);
    }
    c->rope_theta = read_number(r, rope, "rope_theta", c->rope_theta);
    if (read_number(r, rope, "partial_rotary_factor", 1) != 1) refuse(r, name, "partial_rotary_factor");
    const char *type = read_text(r, rope, "rope_type", read_text(r, rope, "type", "default"));
    if (strcmp(type, "llama3") == 0) {
        read_llama3(r, c, rope);
    } else if (strcmp(type, "yarn") == 0) {
        read_yarn(r, c, rope);
    } else if (strcmp(type, "linear") == 0) {
        c->rope_linear = read_number(r, rope, "factor", ABSENT);
        if (!r->status && (c->rope_linear < 1e-6 || c->rope_linear > 1e6)) fail_kind(r, "factor", "1e-6 to 1e6");
    } else if (strcmp(type, "default") != 0 && !r->status) {
        r->status = ig_fail(r->err, IG_E_UNSUPPORTED,
                            "%s: '%s' is of type '%.60s', only 'default', 'linear', 'llama3' and 'yarn' are supported",
                            r->path, name, type);
    }
}

/* ---- windows ----------------------------------------------------------- */

/* Of the layers that "layer_types" names, if stated, else of those from number `from` on. */
static void read_windows(reader *r, ig_config *c, int window, json_int_t from) {
    const json_t *types = get(r->root, "layer_types");
    if (types && (!json_is_array(types) || json_array_size(types) != (size_t)c->n_layers))
        fail_kind(r, "layer_types", "a list with one item per layer");
    for (int l = 0; l < c->n_layers && !r->status; l++) {
        bool is_sliding = l >= from;
        if (types) {
            const char *type = json_string_value(json_array_get(types, (size_t)l));
            is_sliding = type && strcmp(type, "sliding_attention") == 0;
            if (!is_sliding && !(type && strcmp(type, "full_attention") == 0))
                refuse(r, "layer_types", type ? type : "?");
        }
        c->window[l] = is_sliding ? window : 0;
    }
}

/* Mistral: all layers; the class default is 4096, null means none. */
static void read_mistral_window(reader *r, ig_config *c) {
    bool is_null = json_is_null(json_object_get(r->root, "sliding_window"));
    int window = read_int(r, r->root, "sliding_window", IG_MAX_CTX, is_null ? 0 : 4096);
    read_windows(r, c, window, 0);
}

/* Qwen: the layers from "max_window_layers" on. */
static void read_qwen_windows(reader *r, ig_config *c) {
    bool is_null = json_is_null(json_object_get(r->root, "sliding_window"));
    int window = read_int(r, r->root, "sliding_window", IG_MAX_CTX, is_null ? 0 : 4096);
    if (!read_bool(r, "use_sliding_window", false)) window = 0;
    const json_t *first = get(r->root, "max_window_layers");
    if (first && !json_is_integer(first)) fail_kind(r, "max_window_layers", "an integer");
    read_windows(r, c, window, first ? json_integer_value(first) : 28);
}

/* ---- families ---------------------------------------------------------- */

static void read_common(reader *r, ig_config *c) {
    c->n_vocab = read_int(r, r->root, "vocab_size", IG_MAX_VOCAB, ABSENT);
    c->d_model = read_int(r, r->root, "hidden_size", IG_MAX_WIDTH, ABSENT);
    c->n_layers = read_int(r, r->root, "num_hidden_layers", IG_MAX_LAYERS, ABSENT);
    c->n_heads = read_int(r, r->root, "num_attention_heads", IG_MAX_HEADS, ABSENT);
    c->n_ctx_train = read_int(r, r->root, "max_position_embeddings", IG_MAX_CTX, ABSENT);
    c->final_norm = true;
    if (!read_bool(r, "is_causal", true)) refuse(r, "is_causal", "false");
}

static void read_llama(reader *r, ig_config *c) {
    c->n_kv_heads = read_int(r, r->root, "num_key_value_heads", IG_MAX_HEADS, 0);
    c->head_dim = read_int(r, r->root, "head_dim", IG_MAX_HEAD_DIM, 0);
    c->d_ff = read_int(r, r->root, "intermediate_size", IG_MAX_WIDTH, ABSENT);
    c->norm = IG_NORM_RMS;
    c->norm_eps = (float)read_number(r, r->root, "rms_norm_eps", 1e-6);
    c->ffn = IG_FFN_SILU_GATED;
    c->tied = read_bool(r, "tie_word_embeddings", false);
    const char *act = read_text(r, r->root, "hidden_act", "silu");
    if (strcmp(act, "silu") != 0 && strcmp(act, "swish") != 0) refuse(r, "hidden_act", act);
    read_rope(r, c);
}

static void read_mistral(reader *r, ig_config *c) {
    read_llama(r, c);
    read_mistral_window(r, c);
}

static void read_qwen2(reader *r, ig_config *c) {
    read_llama(r, c);
    read_qwen_windows(r, c);
}

static void read_qwen3(reader *r, ig_config *c) {
    read_qwen2(r, c);
    if (!c->head_dim) c->head_dim = 128;
}

static void read_opt(reader *r, ig_config *c) {
    c->d_ff = read_int(r, r->root, "ffn_dim", IG_MAX_WIDTH, ABSENT);
    c->d_embed = read_int(r, r->root, "word_embed_proj_dim", IG_MAX_WIDTH, 0);
    c->norm = IG_NORM_LAYER;
    c->norm_eps = 1e-5f; /* the class states no other */
    c->ffn = IG_FFN_RELU;
    c->rope = IG_ROPE_NONE;
    c->tied = read_bool(r, "tie_word_embeddings", true);
    c->post_norm = !read_bool(r, "do_layer_norm_before", true);
    c->final_norm = !c->post_norm && !read_bool(r, "_remove_final_layer_norm", false);
    c->position_offset = OPT_POSITION_OFFSET;
    c->learned_positions = c->n_ctx_train + OPT_POSITION_OFFSET;
    const char *act = read_text(r, r->root, "activation_function", "relu");
    if (strcmp(act, "relu") != 0) refuse(r, "activation_function", act);
    if (!read_bool(r, "layer_norm_elementwise_affine", true)) refuse(r, "layer_norm_elementwise_affine", "false");
}

static const struct {
    const char *name;
    void (*read)(reader *r, ig_config *c);
} families[] = {
    {"llama", read_llama}, {"mistral", read_mistral}, {"qwen2", read_qwen2}, {"qwen3", read_qwen3}, {"opt", read_opt},
};

static ig_status read_root(ig_config *out, reader *r) {
    static const char missing[] = "";
    const char *type = read_text(r, r->root, "model_type", missing);
    if (r->status) return r->status;
    if (type == missing) return ig_fail(r->err, IG_E_FORMAT, "%s: 'model_type' is missing", r->path);
    size_t i = 0;
    while (i < IG_COUNT(families) && strcmp(families[i].name, type) != 0) i++;
    if (i == IG_COUNT(families))
        return ig_fail(r->err, IG_E_UNSUPPORTED, "%s: 'model_type' '%.60s' is not supported", r->path, type);
    snprintf(out->architecture, sizeof out->architecture, "%s", type);
    check_unknown(r);
    read_common(r, out);
    if (!r->status) families[i].read(r, out);
    if (r->status) return r->status;
    const ig_config_names names = {r->path,    "hidden_size", "num_attention_heads", "num_key_value_heads",
                                   "head_dim", "head_dim",    "rms_norm_eps",        "rope_theta"};
    return ig_config_finish(out, &names, r->err);
}

ig_status ig_config_from_json(ig_config *out, const char *text, size_t n_bytes, const char *path, ig_error *err) {
    json_t *root;
    *out = (ig_config){0};
    ig_status s = ig_json_parse(&root, text, n_bytes, path, err);
    if (s) return s;
    reader r = {.root = root, .path = path, .err = err};
    if (json_is_object(root))
        s = read_root(out, &r);
    else
        s = ig_fail(err, IG_E_FORMAT, "%s: not a JSON object", path);
    json_decref(root);
    return s;
}

ig_status ig_config_from_hf(ig_config *out, const char *directory, ig_error *err) {
    ig_buffer path = {0};
    char *text = NULL;
    size_t n;
    ig_buffer_format(&path, "%s/config.json", directory);
    if (path.failed) {
        ig_buffer_close(&path);
        return ig_fail_memory(err, "path", strlen(directory));
    }
    ig_status s = ig_file_read(&text, &n, path.data, MAX_CONFIG_BYTES, err);
    if (s == IG_E_NOT_FOUND)
        s = ig_fail(err, s, "%s: a directory without config.json is no Hugging Face model", directory);
    if (!s) s = ig_config_from_json(out, text, n, path.data, err);
    free(text);
    ig_buffer_close(&path);
    return s;
}
