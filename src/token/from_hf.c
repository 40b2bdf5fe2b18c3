/* SPDX-License-Identifier: Apache-2.0
 *
 * A tokenizer from a Hugging Face directory: which files make it, and what the configuration files beside them
 * say about special tokens, the end-of-generation set and the chat template.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "format/json.h"
#include "token/hf.h"

typedef struct source {
    const char *directory;
    ig_tokenizer *t;
    json_t *config, *special_map, *generation, *added; /* NULL: no such file */
    ig_buffer config_path, generation_path, added_path;
    ig_error *err;
} source;

static ig_status join(ig_buffer *path, const source *s, const char *name) {
    path->size = 0;
    ig_buffer_format(path, "%s/%s", s->directory, name);
    return path->failed ? ig_fail_memory(s->err, name, strlen(s->directory) + strlen(name) + 2) : IG_OK;
}

static ig_status find_file(bool *has, const source *s, const char *name) {
    ig_buffer path = {0};
    ig_status status = join(&path, s, name);
    *has = !status && ig_path_exists(path.data);
    ig_buffer_close(&path);
    return status;
}

/* Reads a JSON file that may be missing. */
static ig_status load_optional(json_t **out, ig_buffer *path, const source *s, const char *name) {
    size_t n_bytes;
    *out = NULL;
    ig_status status = join(path, s, name);
    if (status || !ig_path_exists(path->data)) return status;
    return ig_json_load(out, &n_bytes, path->data, s->err);
}

/* added_tokens_decoder of tokenizer_config.json; where older models have none, added_tokens.json. */
static ig_status read_added(source *s, ig_added_list *added) {
    const json_t *decoder = json_object_get(s->config, "added_tokens_decoder");
    ig_status status = decoder ? IG_OK : load_optional(&s->added, &s->added_path, s, "added_tokens.json");
    if (status) return status;
    if (s->added) return ig_added_read_ids(added, s->added, (ig_json_place){s->added_path.data, "tokens", s->err});
    return ig_added_read(added, decoder, (ig_json_place){s->config_path.data, "added_tokens_decoder", s->err});
}

/* What a slow tokenizer's class implies for vocab.json + merges.txt. */
static ig_status read_class(const source *s) {
    ig_json_place at = {s->config_path.data, "", s->err};
    ig_text name = {"GPT2Tokenizer", 13};
    bool unused, prefix = false;
    ig_status status = ig_json_text(s->config, "tokenizer_class", &name, at);
    if (!status) status = ig_json_bool(s->config, "add_prefix_space", &prefix, at);
    if (status) return status;
    const char *pre = strcmp(name.data, "GPT2Tokenizer") == 0 || strcmp(name.data, "GPT2TokenizerFast") == 0 ? "gpt-2"
                      : strcmp(name.data, "Qwen2Tokenizer") == 0 || strcmp(name.data, "Qwen2TokenizerFast") == 0
                          ? "qwen2"
                          : NULL;
    if (!pre)
        return ig_fail(s->err, IG_E_UNSUPPORTED,
                       "%s: tokenizer_class: '%.64s' is not supported without a tokenizer.json", s->config_path.data,
                       name.data);
    if (strcmp(pre, "qwen2") == 0) s->t->form = IG_NORMAL_NFC;
    s->t->prefix = prefix ? IG_PREFIX_ALWAYS : IG_PREFIX_NEVER;
    s->t->prefix_once = true;
    return ig_pretoken_named(&s->t->pretoken, (ig_text){pre, strlen(pre)}, &unused, &unused, s->directory, s->err);
}

static ig_status read_tables(source *s) {
    ig_buffer path = {0}, merges = {0};
    ig_added_list added = {0};
    bool has_json, has_vocab, has_merges, has_model;
    ig_status status = find_file(&has_json, s, "tokenizer.json");
    if (!status) status = find_file(&has_vocab, s, "vocab.json");
    if (!status) status = find_file(&has_merges, s, "merges.txt");
    if (!status) status = find_file(&has_model, s, "tokenizer.model");
    if (status) return status;
    if (has_json) {
        status = join(&path, s, "tokenizer.json");
        if (!status) status = ig_hf_from_json(s->t, path.data, s->err);
    } else if (has_vocab && has_merges) {
        status = join(&path, s, "vocab.json");
        if (!status) status = join(&merges, s, "merges.txt");
        if (!status) status = read_class(s);
        if (!status) status = read_added(s, &added);
        ig_added_drop(&added, s->t->limit);
        if (!status) status = ig_hf_from_merges(s->t, path.data, merges.data, &added, s->err);
    } else if (has_model) {
        status = join(&path, s, "tokenizer.model");
        if (!status) status = read_added(s, &added);
        ig_added_drop(&added, s->t->limit);
        if (!status) status = ig_hf_from_spm(s->t, path.data, &added, s->err);
    } else {
        status = ig_fail(s->err, IG_E_NOT_FOUND,
                         "%s: no tokenizer.json, no vocab.json with merges.txt, no tokenizer.model", s->directory);
    }
    ig_added_close(&added);
    ig_buffer_close(&path);
    ig_buffer_close(&merges);
    return status;
}

/* A special token by its name in tokenizer_config.json or special_tokens_map.json: text, or object with "content". */
static const char *special_text(const source *s, const char *name) {
    const json_t *v = json_object_get(s->config, name);
    if (!v || json_is_null(v)) v = json_object_get(s->special_map, name);
    return json_string_value(json_is_object(v) ? json_object_get(v, "content") : v);
}

static int32_t find_text(const ig_tokenizer *t, const char *text) {
    for (int32_t id = 0; text && id < t->vocab.n; id++) {
        if (t->vocab.tokens[id].kind != IG_TOKEN_HOLE && ig_text_is(ig_vocab_text(&t->vocab, id), text)) return id;
    }
    return -1;
}

/* Special tokens by name; without a tokenizer.json only these names say which tokens are special. */
static void read_special(const source *s) {
    static const char *const names[] = {"bos_token", "eos_token", "unk_token", "pad_token"};
    ig_tokenizer *t = s->t;
    for (size_t i = 0; i < IG_COUNT(names); i++) {
        int32_t id = find_text(t, special_text(s, names[i]));
        if (id < 0) continue;
        ig_vocab_token *token = &t->vocab.tokens[id];
        if (token->kind == IG_TOKEN_NORMAL || token->kind == IG_TOKEN_USER) {
            token->kind = IG_TOKEN_CONTROL;
            token->flags |= IG_TOKEN_ADDED;
        }
        if (i == 0 && !t->adds_bos) t->bos = id;
        if (i == 0 && t->sentencepiece) t->bos = id;
        if (i == 1 && !t->adds_eos) t->eos = id;
    }
}

/* Number of ids of a key of generation_config.json: it has one, or a list of them. */
static size_t count_ids(const source *s, const char *key) {
    const json_t *value = json_object_get(s->generation, key);
    return json_is_array(value) ? json_array_size(value) : value && !json_is_null(value);
}

static ig_status read_id(const source *s, const char *key, size_t i, int32_t *out) {
    const json_t *value = json_object_get(s->generation, key);
    const json_t *item = json_is_array(value) ? json_array_get(value, i) : value;
    int64_t id = json_is_integer(item) ? json_integer_value(item) : -1;
    if (id < 0 || id > INT32_MAX)
        return ig_fail(s->err, IG_E_FORMAT, "%s: %s: is not a token id", s->generation_path.data, key);
    *out = (int32_t)id;
    return IG_OK;
}

static ig_status read_generation_ids(const source *s, const char *key, int32_t *first, bool ends) {
    for (size_t i = 0, n = count_ids(s, key); i < n; i++) {
        int32_t id;
        ig_status status = read_id(s, key, i, &id);
        if (status) return status;
        if (id >= s->t->vocab.n)
            return ig_fail(s->err, IG_E_FORMAT, "%s: %s: token %d is not below the vocabulary size %d",
                           s->generation_path.data, key, id, s->t->vocab.n);
        if (*first < 0) *first = id;
        if (ends) ig_tokenizer_set_end(s->t, id);
    }
    return IG_OK;
}

/* Models may have no row for an id, which then cannot come anyway. */
static ig_status read_suppressed(const source *s) {
    static const char key[] = "suppress_tokens";
    ig_tokenizer *t = s->t;
    size_t n = count_ids(s, key);
    ig_status status = IG_OK;
    if (n && !ig_tokenizer_room_for_suppressed(t, n)) return ig_fail_memory(s->err, key, n * sizeof *t->suppressed);
    for (; t->n_suppressed < n && !status; t->n_suppressed++)
        status = read_id(s, key, t->n_suppressed, &t->suppressed[t->n_suppressed]);
    return status;
}

static ig_status read_jinja(const source *s) {
    ig_buffer path = {0};
    char *data = NULL;
    size_t n;
    ig_status status = join(&path, s, "chat_template.jinja");
    if (!status) status = ig_file_read(&data, &n, path.data, (size_t)4 << 20, s->err);
    if (!status) status = ig_tokenizer_set_chat_template(s->t, data, n, s->err);
    free(data);
    ig_buffer_close(&path);
    return status;
}

/* The template of a configuration; text.data stays NULL if it has none. */
static ig_status find_template(ig_text *text, const json_t *config, const char *path, ig_error *err) {
    ig_json_place at = {path, "chat_template", err};
    ig_text name = {0};
    ig_status status = IG_OK;
    const json_t *value = json_object_get(config, "chat_template");
    if (!json_is_array(value)) {
        at.field = "";
        return ig_json_text(config, "chat_template", text, at);
    }
    for (size_t i = 0; i < json_array_size(value) && !status; i++) { /* several, by name */
        const json_t *item = json_array_get(value, i);
        status = ig_json_text(item, "name", &name, at);
        if (!status && name.data && strcmp(name.data, "default") == 0)
            status = ig_json_text(item, "template", text, at);
    }
    return status;
}

/* Models that also see pictures may have it in a file of its own. */
static ig_status read_template(const source *s) {
    ig_text text = {0};
    ig_buffer path = {0};
    json_t *other = NULL;
    bool has;
    ig_status status = find_file(&has, s, "chat_template.jinja");
    if (!status && has) return read_jinja(s);
    if (!status) status = find_template(&text, s->config, s->config_path.data, s->err);
    if (!status && !text.data) status = load_optional(&other, &path, s, "chat_template.json");
    if (!status && other) status = find_template(&text, other, path.data, s->err);
    if (!status && text.data) status = ig_tokenizer_set_chat_template(s->t, text.data, text.size, s->err);
    json_decref(other);
    ig_buffer_close(&path);
    return status;
}

static ig_status build(source *s) {
    ig_buffer map_path = {0};
    ig_status status = load_optional(&s->config, &s->config_path, s, "tokenizer_config.json");
    if (!status) status = load_optional(&s->special_map, &map_path, s, "special_tokens_map.json");
    if (!status) status = load_optional(&s->generation, &s->generation_path, s, "generation_config.json");
    ig_buffer_close(&map_path);
    if (!status) status = read_tables(s);
    if (status) return status;
    read_special(s);
    status = read_generation_ids(s, "bos_token_id", &s->t->bos, false);
    if (!status) status = read_generation_ids(s, "eos_token_id", &s->t->eos, true);
    if (!status) status = read_suppressed(s);
    ig_json_place at = {s->config_path.data, "", s->err};
    if (!status) status = ig_json_bool(s->config, "add_bos_token", &s->t->adds_bos, at);
    if (!status) status = ig_json_bool(s->config, "add_eos_token", &s->t->adds_eos, at);
    if (!status) status = read_template(s);
    return status ? status : ig_tokenizer_finish(s->t, s->directory, s->err);
}

ig_status ig_tokenizer_from_hf(ig_tokenizer **out, const char *directory, int32_t limit, ig_error *err) {
    source s = {.directory = directory, .t = ig_tokenizer_new(), .err = err};
    *out = NULL;
    if (!s.t) return ig_fail_memory(err, "tokenizer", sizeof *s.t);
    s.t->limit = limit;
    ig_status status = build(&s);
    json_decref(s.config);
    json_decref(s.special_map);
    json_decref(s.generation);
    json_decref(s.added);
    ig_buffer_close(&s.added_path);
    ig_buffer_close(&s.config_path);
    ig_buffer_close(&s.generation_path);
    if (status)
        ig_tokenizer_close(s.t);
    else
        *out = s.t;
    return status;
}
