/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of low-rank adapters: see adapter.h.
 */
#include "model/adapter.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/compiler.h"
#include "base/error.h"
#include "base/file.h"
#include "format/json.h"

enum { MAX_CONFIG_BYTES = 1 << 20, MAX_NAME = 192 };

/* ---- GGUF ------------------------------------------------------------------------------------- */

/* The key must be there, and say this. */
static ig_status check_text(const ig_adapter_file *f, const char *key, const char *wanted, ig_error *err) {
    ig_text text = {"", 0};
    ig_status status = IG_OK;
    ig_gguf_string(f->g, key, &text, &status, err);
    if (status || ig_text_is(text, wanted)) return status;
    return ig_fail(err, IG_E_UNSUPPORTED, "%s: '%s' is '%.*s', must be '%s'", f->path, key,
                   (int)(text.size < 80 ? text.size : 80), text.data, wanted);
}

static ig_status open_gguf(ig_adapter_file *f, const ig_config *c, ig_error *err) {
    static const char activated[] = "adapter.alora.invocation_tokens";
    ig_loading copy = {0};
    ig_status status = ig_gguf_open(&f->g, f->path, &copy, err);
    if (!status) status = check_text(f, "general.type", "adapter", err);
    if (!status) status = check_text(f, "adapter.type", "lora", err);
    if (!status) status = check_text(f, "general.architecture", c->architecture, err);
    if (!status && ig_gguf_find(f->g, activated))
        status = ig_fail(err, IG_E_UNSUPPORTED, "%s: '%s' is set, which is not supported", f->path, activated);
    if (!status && !ig_gguf_float(f->g, "adapter.lora.alpha", &f->alpha, &status, err) && !status)
        status = ig_fail(err, IG_E_FORMAT, "%s: key 'adapter.lora.alpha' is missing", f->path);
    return status;
}

/* ---- directories ------------------------------------------------------------------------------ */

/* Fields that, unless absent, null, false or empty, change the computation. */
static ig_status check_neutral(const ig_adapter_file *f, const json_t *root, ig_error *err) {
    static const char *const fields[] = {
        "alora_invocation_tokens",
        "alpha_pattern",
        "arrow_config",
        "fan_in_fan_out",
        "kasa_config",
        "layer_replication",
        "lora_bias",
        "target_parameters",
        "use_bdlora",
        "use_dora",
        "use_qalora",
    };
    for (size_t i = 0; i < IG_COUNT(fields); i++) {
        const json_t *v = json_object_get(root, fields[i]);
        if (!v || json_is_null(v) || json_is_false(v)) continue;
        if ((json_is_object(v) && !json_object_size(v)) || (json_is_array(v) && !json_array_size(v))) continue;
        return ig_fail(err, IG_E_UNSUPPORTED, "%s: '%s' is set, which is not supported", f->path, fields[i]);
    }
    return IG_OK;
}

/* Some ways to begin its training change the model's own weights, too. */
static ig_status check_beginning(const ig_adapter_file *f, const json_t *root, ig_error *err) {
    static const char *const harmless[] = {"gaussian", "eva", "orthogonal"};
    const char *how = json_string_value(json_object_get(root, "init_lora_weights"));
    bool is_harmless = !how;
    for (size_t i = 0; i < IG_COUNT(harmless) && how; i++) is_harmless = is_harmless || !strcmp(how, harmless[i]);
    if (is_harmless) return IG_OK;
    return ig_fail(err, IG_E_UNSUPPORTED, "%s: 'init_lora_weights' is '%.80s', which is not supported", f->path, how);
}

static ig_status read_peft(ig_adapter_file *f, const json_t *root, ig_error *err) {
    const char *kind = json_string_value(json_object_get(root, "peft_type"));
    const json_t *alpha = json_object_get(root, "lora_alpha");
    if (!kind || strcmp(kind, "LORA") != 0)
        return ig_fail(err, IG_E_UNSUPPORTED, "%s: 'peft_type' is '%.80s', must be 'LORA'", f->path, kind ? kind : "");
    if (!json_is_number(alpha)) return ig_fail(err, IG_E_FORMAT, "%s: 'lora_alpha' must be a number", f->path);
    f->alpha = json_number_value(alpha);
    f->is_root_of_rank = json_is_true(json_object_get(root, "use_rslora"));
    ig_status status = check_neutral(f, root, err);
    return status ? status : check_beginning(f, root, err);
}

static ig_status open_directory(ig_adapter_file *f, ig_error *err) {
    char path[4096], *text = NULL;
    size_t n_bytes = 0;
    json_t *root = NULL;
    if (snprintf(path, sizeof path, "%s/adapter_config.json", f->path) >= (int)sizeof path)
        return ig_fail(err, IG_E_ARG, "%s: the path is too long", f->path);
    ig_status status = ig_file_read(&text, &n_bytes, path, MAX_CONFIG_BYTES, err);
    if (!status) status = ig_json_parse(&root, text, n_bytes, path, err);
    free(text);
    if (!status) status = read_peft(f, root, err);
    json_decref(root);
    return status ? status : ig_safetensors_open(&f->st, f->path, "adapter_model", &(ig_loading){0}, err);
}

/* ---- directories beside GGUF models ------------------------------------------------------------- */

/* Matrices of a layer that files of the families without names of their own have, and whether they make what rotates.
 */
static const struct {
    const char *gguf, *module;
    bool is_rotated;
} modules[] = {
    {"attn_q", "self_attn.q_proj", true},      {"attn_k", "self_attn.k_proj", true},
    {"attn_v", "self_attn.v_proj", false},     {"attn_output", "self_attn.o_proj", false},
    {"attn_qkv", "self_attn.qkv_proj", false}, {"ffn_gate", "mlp.gate_proj", false},
    {"ffn_up", "mlp.up_proj", false},          {"ffn_up", "mlp.gate_up_proj", false},
    {"ffn_down", "mlp.down_proj", false},
};

/* ---- either ----------------------------------------------------------------------------------- */

static ig_status open_file(ig_adapter_file *f, const ig_config *c, bool is_gguf, ig_error *err) {
    bool is_directory = ig_path_is_directory(f->path);
    if (!(fabs(f->scale) <= IG_ADAPTER_SCALE_MAX))
        return ig_fail(err, IG_E_ARG, "%s: the scale of an adapter must be a number from -%d to %d", f->path,
                       IG_ADAPTER_SCALE_MAX, IG_ADAPTER_SCALE_MAX);
    if (!is_directory && !is_gguf)
        return ig_fail(err, IG_E_UNSUPPORTED,
                       "%s: is no directory as PEFT writes, which adapters of a Hugging Face directory are", f->path);
    f->is_translated = is_directory && is_gguf;
    f->split_heads = f->is_translated && c->rope.is_paired ? c->head_dim : 0;
    ig_status status = is_directory ? open_directory(f, err) : open_gguf(f, c, err);
    if (status) return status;
    size_t n = ig_tensors_count(f->g, f->st);
    f->used = calloc(n + 1, sizeof *f->used);
    return f->used ? IG_OK : ig_fail_memory(err, "tensor list", n);
}

/* What the file adds, with a scale of 1. */
static XXH128_hash_t hash_file(const ig_adapter_file *f) {
    const double numbers[] = {f->alpha, f->is_root_of_rank};
    XXH128_hash_t h = XXH3_128bits(numbers, sizeof numbers);
    for (size_t i = 0; i < ig_tensors_count(f->g, f->st); i++) {
        const ig_tensor *t = ig_tensors_at(f->g, f->st, i);
        const XXH128_hash_t parts[] = {h, XXH3_128bits(t->name, strlen(t->name)), XXH3_128bits(t->dims, sizeof t->dims),
                                       XXH3_128bits(t->data, t->n_bytes)};
        h = XXH3_128bits(parts, sizeof parts);
    }
    return h;
}

static void hash_further(uint64_t h[2], XXH128_hash_t file, double scale) {
    const struct {
        uint64_t before[2];
        XXH128_hash_t file;
        double scale;
    } parts = {{h[0], h[1]}, file, scale};
    XXH128_hash_t after = XXH3_128bits(&parts, sizeof parts);
    h[0] = after.low64;
    h[1] = after.high64;
}

ig_status ig_adapters_open(ig_adapters *out, const ig_adapter *list, int n, const ig_config *c, bool is_gguf,
                           ig_error *err) {
    *out = (ig_adapters){.files = n > 0 ? calloc((size_t)n, sizeof *out->files) : NULL};
    if (n > 0 && !out->files) return ig_fail_memory(err, "list of adapters", (size_t)n * sizeof *out->files);
    ig_status status = IG_OK;
    for (; out->n < n && !status; out->n++) {
        ig_adapter_file *f = &out->files[out->n];
        *f = (ig_adapter_file){.path = list[out->n].path, .scale = list[out->n].scale};
        status = open_file(f, c, is_gguf, err);
        if (status) continue;
        XXH128_hash_t h = hash_file(f);
        hash_further(out->hash_of_all, h, 1);
        if (f->scale != 0) hash_further(out->hash, h, f->scale);
    }
    if (status) ig_adapters_close(out);
    return status;
}

void ig_adapters_close(ig_adapters *a) {
    for (int i = 0; i < a->n; i++) {
        ig_gguf_close(a->files[i].g);
        ig_safetensors_close(a->files[i].st);
        free(a->files[i].used);
    }
    free(a->files);
    *a = (ig_adapters){0};
}

static const ig_tensor *take(ig_adapter_file *f, const char *name) {
    const ig_tensor *t = ig_tensors_find(f->g, f->st, name);
    if (t) f->used[t - ig_tensors_at(f->g, f->st, 0)] = true;
    return t;
}

/* A and B of a module, by PEFT's names. */
static ig_adapter_pair find_module(ig_adapter_file *f, const char *prefix, const char *module, size_t length) {
    ig_adapter_pair p = {NULL, NULL, 0};
    char name[MAX_NAME + 96];
    for (int is_b = 0; is_b < 2; is_b++) {
        snprintf(name, sizeof name, "base_model.model.%s%.*s.lora_%c.weight", prefix, (int)length, module, "AB"[is_b]);
        *(is_b ? &p.b : &p.a) = take(f, name);
    }
    return p;
}

/* The same of a matrix of a GGUF file. */
static ig_adapter_pair find_translated(ig_adapter_file *f, const char *name, size_t length) {
    static const char *const prefixes[] = {"model.", "model.language_model.", "language_model.model."};
    ig_adapter_pair p = {NULL, NULL, 0};
    char part[64], module[96];
    int layer;
    if (strcmp(name, "output.weight") == 0) return find_module(f, "", "lm_head", strlen("lm_head"));
    if (length >= sizeof part || sscanf(name, "blk.%4d.%63[a-z_]", &layer, part) != 2) return p;
    for (size_t i = 0; i < IG_COUNT(modules) * IG_COUNT(prefixes) && !p.a && !p.b; i++) {
        size_t k = i / IG_COUNT(prefixes);
        if (strcmp(part, modules[k].gguf) != 0) continue;
        int n = snprintf(module, sizeof module, "layers.%d.%s", layer, modules[k].module);
        p = find_module(f, prefixes[i % IG_COUNT(prefixes)], module, (size_t)n);
        p.split_heads = modules[k].is_rotated ? f->split_heads : 0;
    }
    return p;
}

/* A and B for the tensor `name`, "....weight". */
static ig_adapter_pair find(ig_adapter_file *f, const char *name) {
    size_t length = strlen(name), n_end = strlen(".weight");
    if (length <= n_end || length > MAX_NAME || strcmp(name + length - n_end, ".weight") != 0)
        return (ig_adapter_pair){NULL, NULL, 0};
    if (f->is_translated) return find_translated(f, name, length - n_end);
    if (f->st) return find_module(f, "", name, length - n_end);
    char a[MAX_NAME + 8], b[MAX_NAME + 8];
    snprintf(a, sizeof a, "%s.lora_a", name);
    snprintf(b, sizeof b, "%s.lora_b", name);
    return (ig_adapter_pair){take(f, a), take(f, b), 0};
}

/* The tensor must hold n matrices of these numbers of rows and columns. */
static ig_status check_shape(const ig_adapter_file *f, const ig_tensor *t, int n, uint64_t n_out, uint64_t n_in,
                             ig_error *err) {
    const ig_type_info *type = ig_type_get((uint32_t)t->type);
    if (!type->is_computed)
        return ig_fail(err, IG_E_UNSUPPORTED, "%s: tensor '%.120s': type %s is not supported", f->path, t->name,
                       type->name);
    if (t->n_dims == (n > 1 ? 3 : 2) && t->dims[0] == n_in && t->dims[1] == n_out && t->dims[2] == (uint64_t)n)
        return IG_OK;
    return ig_fail(err, IG_E_FORMAT, "%s: tensor '%.120s' must have %d times %llu rows of %llu numbers", f->path,
                   t->name, n, (unsigned long long)n_out, (unsigned long long)n_in);
}

ig_status ig_adapter_find(ig_adapter_pair *out, ig_adapter_file *f, const char *name, int n, int n_out, int n_in,
                          ig_error *err) {
    *out = find(f, name);
    if (!out->a && !out->b) return IG_OK;
    if (!out->a || !out->b)
        return ig_fail(err, IG_E_FORMAT, "%s: tensor '%.120s' lacks the other one of its pair", f->path,
                       out->a ? out->a->name : out->b->name);
    uint64_t rank = out->a->dims[1];
    if (rank < 1 || rank > IG_MAX_ADAPTER_RANK)
        return ig_fail(err, IG_E_UNSUPPORTED, "%s: tensor '%.120s' is of rank %llu, must be 1 to %d", f->path,
                       out->a->name, (unsigned long long)rank, IG_MAX_ADAPTER_RANK);
    ig_status status = check_shape(f, out->a, n, rank, (uint64_t)n_in, err);
    return status ? status : check_shape(f, out->b, n, (uint64_t)n_out, rank, err);
}

/* As llama.cpp has it, an alpha of 0 in a GGUF file says nothing. */
double ig_adapter_scale(const ig_adapter_file *f, int rank) {
    if (f->g && f->alpha == 0) return 1;
    return f->alpha / (f->is_root_of_rank ? sqrt(rank) : rank);
}

ig_status ig_adapter_check_used(const ig_adapter_file *f, ig_error *err) {
    for (size_t i = 0; i < ig_tensors_count(f->g, f->st); i++)
        if (!f->used[i])
            return ig_fail(err, IG_E_UNSUPPORTED,
                           "%s: tensor '%.120s' is for no matrix of this model that can be adapted", f->path,
                           ig_tensors_at(f->g, f->st, i)->name);
    return IG_OK;
}
