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
#include "model/config_hf.h"

enum { MAX_CONFIG_BYTES = 16 << 20 }; /* some list thousands of matrices that are packed */

/* Fields that, unless absent, null or neutral (0, false, `neutral`), change the computation; a family knows its own. */
static void check_unknown(ig_hf_reader *r, const char *const *own, size_t n_own) {
    static const struct {
        const char *key;
        double neutral;
    } fields[] = {
        {"num_experts", 0},
        {"num_local_experts", 0},
        {"clip_qkv", 0},
        {"final_logit_softcapping", 0},
        {"attn_logit_softcapping", 0},
        {"embedding_multiplier", 1},
        {"residual_multiplier", 1},
        {"logits_scaling", 1},
        {"attention_multiplier", 0},
        {"partial_rotary_factor", 1},
        {"rope_interleaved", 0},
        {"alibi", 0},
        {"qk_layernorm", 0},
        {"add_cross_attention", 0},
    };
    for (size_t i = 0; i < IG_COUNT(fields) && !r->status; i++) {
        const json_t *v = ig_hf_get(r->root, fields[i].key);
        bool is_own = false;
        for (size_t k = 0; k < n_own; k++) is_own = is_own || (own[k] && strcmp(own[k], fields[i].key) == 0);
        double x = json_is_true(v) ? 1 : json_number_value(v);
        bool is_scalar = json_is_boolean(v) || json_is_number(v);
        if (!v || is_own || (is_scalar && (x == 0 || x == fields[i].neutral))) continue;
        r->status =
            ig_fail(r->err, IG_E_UNSUPPORTED, "%s: '%s' is set, which is not supported", r->path, fields[i].key);
    }
}

/* Where heads are normed in any case, as in Qwen3, it says nothing. */
static void check_head_norms(ig_hf_reader *r, const ig_config *c, const ig_hf_family *f) {
    static const char key[] = "use_qk_norm";
    bool is_own = false;
    for (size_t k = 0; k < IG_COUNT(f->own); k++) is_own = is_own || (f->own[k] && strcmp(f->own[k], key) == 0);
    if (!is_own && c->norms.of_heads == IG_HEAD_NORM_NONE && ig_hf_bool(r, key, false)) ig_hf_refuse(r, key, "true");
}

/* Models that also see pictures state what their text part is apart; of these that is all that there is to know. */
static const char *const with_pictures[] = {
    "gemma3",   "gemma4",     "gemma4_unified", "llama4",      "minimax_m3_vl", "mistral3",    "muse_glimmer",
    "qwen2_vl", "qwen2_5_vl", "qwen3_5",        "qwen3_5_moe", "qwen3_vl",      "qwen3_vl_moe"};

/* Whether it is such a model; from then on the reader's root is its text part, if that is stated apart. */
static bool enter_text_part(ig_hf_reader *r) {
    const char *type = ig_hf_text(r, r->root, "model_type", "");
    const json_t *part = ig_hf_get(r->root, "text_config");
    size_t i = 0;
    while (i < IG_COUNT(with_pictures) && strcmp(with_pictures[i], type) != 0) i++;
    if (i == IG_COUNT(with_pictures)) return false;
    check_unknown(r, NULL, 0);
    if (part && !json_is_object(part)) ig_hf_fail_kind(r, "text_config", "an object");
    if (part) r->root = part;
    return true;
}

static void read_common(ig_hf_reader *r, ig_config *c) {
    ig_hf_size(r, &c->n_vocab, "vocab_size", IG_MAX_VOCAB);
    ig_hf_size(r, &c->d_model, "hidden_size", IG_MAX_WIDTH);
    ig_hf_size(r, &c->n_layers, "num_hidden_layers", IG_MAX_LAYERS);
    ig_hf_size(r, &c->n_heads, "num_attention_heads", IG_MAX_HEADS);
    ig_hf_size(r, &c->n_ctx_train, "max_position_embeddings", IG_MAX_CTX);
    c->norms.has_final = true;
    if (!ig_hf_bool(r, "is_causal", true)) ig_hf_refuse(r, "is_causal", "false");
}

static ig_status read_root(ig_config *out, ig_hf_reader *r) {
    static const char missing[] = "";
    ig_config quantized = {0};
    ig_hf_read_quantization(r, &quantized);
    bool is_tied = ig_hf_bool(r, "tie_word_embeddings", false), is_text_part = enter_text_part(r);
    if (is_text_part) ig_hf_read_quantization(r, &quantized);
    const char *type = ig_hf_text(r, r->root, "model_type", missing);
    if (r->status) return r->status;
    if (type == missing) return ig_fail(r->err, IG_E_FORMAT, "%s: 'model_type' is missing", r->path);
    const ig_hf_family *f = ig_hf_family_named(type);
    if (!f) return ig_fail(r->err, IG_E_UNSUPPORTED, "%s: 'model_type' '%.60s' is not supported", r->path, type);
    if (f->sizes) *out = *f->sizes;
    out->file.fp8_block_rows = quantized.file.fp8_block_rows;
    out->file.fp8_block_cols = quantized.file.fp8_block_cols;
    out->file.zero_offset = quantized.file.zero_offset;
    out->tied = is_tied;
    out->file.is_text_part = is_text_part;
    snprintf(out->architecture, sizeof out->architecture, "%s", type);
    check_unknown(r, f->own, IG_COUNT(f->own));
    read_common(r, out);
    if (!r->status) f->read(r, out);
    if (!r->status) check_head_norms(r, out, f);
    if (r->status) return r->status;
    const ig_config_names names = {r->path,    "hidden_size", "num_attention_heads", "num_key_value_heads",
                                   "head_dim", "head_dim",    "rms_norm_eps",        "rope_theta"};
    return ig_config_finish(out, &names, r->err);
}

/* A copy of a text, to be freed, with null where Python writes what JSON does not have: Infinity, in any sign. NULL: no
 * memory. */
static char *without_infinity(const char *text, size_t n) {
    static const char word[] = "Infinity";
    enum { SIZE = sizeof word - 1 };
    char *out = malloc(n + 1);
    bool in_string = false;
    if (!out) return NULL;
    memcpy(out, text, n);
    for (size_t i = 0; i < n; i++) {
        if (in_string && out[i] == '\\') {
            i++;
        } else if (out[i] == '"') {
            in_string = !in_string;
        } else if (!in_string && n - i >= SIZE && memcmp(out + i, word, SIZE) == 0) {
            if (i && out[i - 1] == '-') out[i - 1] = ' ';
            memcpy(out + i, "null    ", SIZE);
        }
    }
    return out;
}

ig_status ig_config_from_json(ig_config *out, const char *text, size_t n_bytes, const char *path, ig_error *err) {
    json_t *root;
    *out = (ig_config){0};
    char *plain = without_infinity(text, n_bytes);
    ig_status s = plain ? ig_json_parse(&root, plain, n_bytes, path, err) : ig_fail_memory(err, path, n_bytes);
    free(plain);
    if (s) return s;
    ig_hf_reader r = {.root = root, .path = path, .err = err};
    if (json_is_object(root))
        s = read_root(out, &r);
    else
        s = ig_fail(err, IG_E_FORMAT, "%s: not a JSON object", path);
    json_decref(root);
    return s;
}

/* What read() makes of a file of the directory. */
static ig_status read_file(ig_config *out, const char *directory, const char *name,
                           ig_status (*read)(ig_config *out, const char *text, size_t n, const char *path,
                                             ig_error *err),
                           ig_error *err) {
    ig_buffer path = {0};
    char *text = NULL;
    size_t n;
    ig_buffer_format(&path, "%s/%s", directory, name);
    ig_status s = path.failed ? ig_fail_memory(err, "path", strlen(directory))
                              : ig_file_read(&text, &n, path.data, MAX_CONFIG_BYTES, err);
    if (!s) s = read(out, text, n, path.data, err);
    free(text);
    ig_buffer_close(&path);
    return s;
}

/* The same of a file that need not be there: IG_E_NOT_FOUND is no error then. */
static ig_status read_if_there(ig_config *out, const char *directory, const char *name,
                               ig_status (*read)(ig_config *out, const char *text, size_t n, const char *path,
                                                 ig_error *err),
                               ig_error *err) {
    ig_error own = {0};
    ig_status s = read_file(out, directory, name, read, &own);
    if (s && s != IG_E_NOT_FOUND && err) *err = own;
    return s;
}

/* What a name of sentence-transformers' is. */
static ig_pooling pooling_named(const char *name) {
    if (strcmp(name, "lasttoken") == 0) return IG_POOLING_LAST;
    return strcmp(name, "mean") == 0 || strcmp(name, "mean_tokens") == 0 ? IG_POOLING_MEAN : IG_POOLING_OTHER;
}

/* As it is stated: "pooling_mode" is a name, or a list of some; or of several switches some are on, by default that of
 * the mean. What several make is longer. */
static ig_status read_pooling(ig_config *out, const char *text, size_t n, const char *path, ig_error *err) {
    static const char prefix[] = "pooling_mode_";
    json_t *root, *value;
    const char *key;
    int n_on = 0;
    ig_status s = ig_json_parse(&root, text, n, path, err);
    if (s) return s;
    const json_t *mode = ig_hf_get(root, "pooling_mode"),
                 *one = json_array_size(mode) == 1 ? json_array_get(mode, 0) : mode;
    out->pooling = mode ? IG_POOLING_OTHER : IG_POOLING_MEAN;
    if (json_is_string(one)) out->pooling = pooling_named(json_string_value(one));
    json_object_foreach(root, key, value) {
        if (strncmp(key, prefix, sizeof prefix - 1) != 0 || !json_is_true(value)) continue;
        out->pooling = n_on++ ? IG_POOLING_OTHER : pooling_named(key + sizeof prefix - 1);
    }
    if (!json_is_object(root)) s = ig_fail(err, IG_E_FORMAT, "%s: not a JSON object", path);
    json_decref(root);
    return s;
}

/* Behind the pooling there may be further layers. */
static ig_status read_modules(ig_config *out, const char *text, size_t n, const char *path, ig_error *err) {
    static const char *const known[] = {"Transformer", "Pooling", "Normalize"};
    json_t *root, *module;
    size_t i;
    ig_status s = ig_json_parse(&root, text, n, path, err);
    if (s) return s;
    json_array_foreach(root, i, module) {
        const char *type = json_string_value(json_object_get(module, "type")), *dot = type ? strrchr(type, '.') : NULL;
        bool is_known = false;
        for (size_t k = 0; dot && k < IG_COUNT(known); k++) is_known = is_known || strcmp(dot + 1, known[k]) == 0;
        if (!is_known) out->pooling = IG_POOLING_OTHER;
    }
    json_decref(root);
    return IG_OK;
}

ig_status ig_config_from_hf(ig_config *out, const char *directory, ig_error *err) {
    ig_status s = read_file(out, directory, "config.json", ig_config_from_json, err);
    if (s == IG_E_NOT_FOUND)
        return ig_fail(err, s, "%s: a directory without config.json is no Hugging Face model", directory);
    if (s) return s;
    s = read_if_there(out, directory, "1_Pooling/config.json", read_pooling, err);
    if (s == IG_E_NOT_FOUND) return IG_OK;
    if (!s) s = read_if_there(out, directory, "modules.json", read_modules, err);
    return s == IG_E_NOT_FOUND ? IG_OK : s;
}
