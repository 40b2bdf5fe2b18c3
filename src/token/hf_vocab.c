/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON fields, added tokens and vocabularies of Hugging Face tokenizers.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "format/json.h"
#include "token/hf.h"

ig_status ig_json_fail(ig_json_place at, const char *what) {
    return ig_fail(at.err, IG_E_FORMAT, "%s: %s: %s", at.path, at.field, what);
}

static ig_status fail_member(ig_json_place at, const char *key, const char *what) {
    return ig_fail(at.err, IG_E_FORMAT, "%s: %s%s%s: %s", at.path, at.field, at.field[0] ? "." : "", key, what);
}

ig_status ig_json_bool(const json_t *object, const char *key, bool *out, ig_json_place at) {
    const json_t *v = json_object_get(object, key);
    if (!v || json_is_null(v)) return IG_OK;
    if (!json_is_boolean(v)) return fail_member(at, key, "is not true or false");
    *out = json_is_true(v);
    return IG_OK;
}

ig_status ig_json_text(const json_t *object, const char *key, ig_text *out, ig_json_place at) {
    const json_t *v = json_object_get(object, key);
    if (!v || json_is_null(v)) return IG_OK;
    if (!json_is_string(v)) return fail_member(at, key, "is not a string");
    *out = (ig_text){json_string_value(v), json_string_length(v)};
    return IG_OK;
}

void ig_added_drop(ig_added_list *list, int64_t limit) {
    size_t n = 0;
    for (size_t i = 0; i < list->n; i++)
        if (!limit || list->items[i].id < limit) list->items[n++] = list->items[i];
    list->n = n;
}

void ig_added_close(ig_added_list *list) {
    free(list->items);
    *list = (ig_added_list){0};
}

static ig_status read_added(ig_added *out, const json_t *token, ig_json_place at) {
    static const struct {
        const char *key;
        int flag;
    } flags[] = {{"lstrip", IG_TOKEN_LSTRIP},
                 {"rstrip", IG_TOKEN_RSTRIP},
                 {"single_word", IG_TOKEN_SINGLE_WORD},
                 {"normalized", IG_TOKEN_NORMALIZED}};
    bool special = false;
    out->flags = IG_TOKEN_ADDED;
    out->text = (ig_text){0};
    if (!json_is_object(token)) return ig_json_fail(at, "an item is not an object");
    ig_status s = ig_json_text(token, "content", &out->text, at);
    if (!s && out->text.size == 0) s = ig_json_fail(at, "a token has no content");
    if (!s) s = ig_json_bool(token, "special", &special, at);
    for (size_t i = 0; i < IG_COUNT(flags) && !s; i++) {
        bool on = false;
        s = ig_json_bool(token, flags[i].key, &on, at);
        if (on) out->flags |= flags[i].flag;
    }
    out->kind = special ? IG_TOKEN_CONTROL : IG_TOKEN_USER;
    return s;
}

ig_status ig_added_read(ig_added_list *list, const json_t *tokens, ig_json_place at) {
    *list = (ig_added_list){0};
    if (!tokens || json_is_null(tokens)) return IG_OK;
    size_t n = json_is_array(tokens) ? json_array_size(tokens) : json_object_size(tokens);
    if (!json_is_array(tokens) && !json_is_object(tokens)) return ig_json_fail(at, "is neither an array nor an object");
    list->items = calloc(n ? n : 1, sizeof *list->items);
    if (!list->items) return ig_fail_memory(at.err, at.path, n * sizeof *list->items);
    ig_status s = IG_OK;
    if (json_is_array(tokens)) {
        for (size_t i = 0; i < n && !s; i++) {
            const json_t *token = json_array_get(tokens, i), *id = json_object_get(token, "id");
            s = read_added(&list->items[i], token, at);
            if (!s && !json_is_integer(id)) s = ig_json_fail(at, "a token's id is not an integer");
            list->items[list->n++].id = json_integer_value(id);
        }
        return s;
    }
    const char *key;
    json_t *token;
    json_object_foreach((json_t *)(uintptr_t)tokens, key, token) {
        char *end;
        ig_added *item = &list->items[list->n++];
        if (s) break;
        s = read_added(item, token, at);
        item->id = strtoll(key, &end, 10);
        if (!s && (*end || end == key)) s = ig_json_fail(at, "a key is not a token id");
    }
    return s;
}

ig_status ig_added_read_ids(ig_added_list *list, const json_t *ids, ig_json_place at) {
    const char *text;
    json_t *id;
    size_t n = json_object_size(ids);
    *list = (ig_added_list){.items = calloc(n ? n : 1, sizeof *list->items)};
    if (!list->items) return ig_fail_memory(at.err, at.path, n * sizeof *list->items);
    json_object_foreach((json_t *)(uintptr_t)ids, text, id) {
        ig_text t = {text, strlen(text)};
        if (!t.size || !json_is_integer(id)) return ig_json_fail(at, "an item is not a text with its id");
        list->items[list->n++] = (ig_added){.id = json_integer_value(id),
                                            .text = t,
                                            .kind = ig_tokenizer_names_end(t) ? IG_TOKEN_CONTROL : IG_TOKEN_USER,
                                            .flags = IG_TOKEN_ADDED | IG_TOKEN_NORMALIZED};
    }
    return IG_OK;
}

static ig_status put_text(ig_tokenizer *t, int32_t id, ig_text text, ig_token_kind kind, int flags, ig_json_place at) {
    if (ig_vocab_put(&t->vocab, id, text.data, text.size, kind, flags)) return IG_OK;
    return ig_fail(at.err, t->vocab.bytes.failed ? IG_E_MEMORY : IG_E_LIMIT, "%s: %s: no room for token %d", at.path,
                   at.field, id);
}

/* One entry of the model's vocabulary. */
static ig_status put_model_token(ig_tokenizer *t, int32_t id, const char *key, ig_buffer *letters, ig_json_place at) {
    ig_text text = {key, strlen(key)};
    if (t->vocab.tokens[id].kind != IG_TOKEN_HOLE)
        return ig_fail(at.err, IG_E_FORMAT, "%s: %s: id %d is given to two tokens", at.path, at.field, id);
    if (t->sentencepiece) {
        bool is_byte = t->byte_fallback && ig_tokenizer_byte_of(text.data, text.size) >= 0;
        return put_text(t, id, text, is_byte ? IG_TOKEN_BYTE : IG_TOKEN_NORMAL, is_byte ? 0 : IG_TOKEN_MODEL, at);
    }
    letters->size = 0;
    if (!ig_utf8_decode_letters(letters, text.data, text.size)) return put_text(t, id, text, IG_TOKEN_NORMAL, 0, at);
    if (letters->failed) return ig_fail_memory(at.err, at.path, text.size);
    return put_text(t, id, (ig_text){letters->data, letters->size}, IG_TOKEN_NORMAL, IG_TOKEN_MODEL, at);
}

static ig_status put_added_token(ig_tokenizer *t, const json_t *vocab, const ig_added *a, ig_json_place at) {
    const json_t *known = json_object_get(vocab, a->text.data);
    ig_vocab_token *old = &t->vocab.tokens[a->id];
    if (known ? json_integer_value(known) != a->id : old->kind != IG_TOKEN_HOLE)
        return ig_fail(at.err, IG_E_FORMAT, "%s: added token '%.64s': its id %lld is not the vocabulary's", at.path,
                       a->text.data, (long long)a->id);
    if ((old->flags & IG_TOKEN_MODEL) && !ig_text_equal(ig_vocab_text(&t->vocab, (int32_t)a->id), a->text))
        return ig_fail(at.err, IG_E_UNSUPPORTED,
                       "%s: added token '%.64s' is also how the vocabulary writes other bytes", at.path, a->text.data);
    /* It stays within reach of merges, and stands for its byte. */
    return put_text(t, (int32_t)a->id, a->text, old->kind == IG_TOKEN_BYTE ? IG_TOKEN_BYTE : a->kind,
                    a->flags | (old->flags & IG_TOKEN_MODEL), at);
}

ig_status ig_hf_vocab(ig_tokenizer *t, const json_t *vocab, const ig_added_list *added, int64_t max_id,
                      ig_json_place at) {
    const char *key;
    json_t *value;
    int64_t last = -1;
    if (!json_is_object(vocab) || json_object_size(vocab) == 0) return ig_json_fail(at, "is not an object with tokens");
    if (max_id > INT32_MAX / 2) max_id = INT32_MAX / 2;
    json_object_foreach((json_t *)(uintptr_t)vocab, key, value) {
        int64_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        if (id < 0 || id >= max_id)
            return ig_fail(at.err, IG_E_FORMAT, "%s: %s: '%.64s' has no id in range", at.path, at.field, key);
        if (id > last) last = id;
    }
    for (size_t i = 0; i < added->n; i++) {
        int64_t id = added->items[i].id;
        if (id < 0 || id >= max_id)
            return ig_fail(at.err, IG_E_FORMAT, "%s: added token '%.64s' has no id in range", at.path,
                           added->items[i].text.data);
        if (id > last) last = id;
    }
    if (!ig_vocab_open(&t->vocab, (int32_t)last + 1))
        return ig_fail_memory(at.err, at.path, (size_t)last * sizeof(ig_vocab_token));
    ig_buffer letters = {0};
    ig_status s = IG_OK;
    json_object_foreach((json_t *)(uintptr_t)vocab, key, value) {
        s = put_model_token(t, (int32_t)json_integer_value(value), key, &letters, at);
        if (s) break;
    }
    ig_buffer_close(&letters);
    for (size_t i = 0; i < added->n && !s; i++) s = put_added_token(t, vocab, &added->items[i], at);
    if (s) return s;
    char where[512];
    snprintf(where, sizeof where, "%s: %s", at.path, at.field);
    return ig_vocab_index(&t->vocab, where, at.err);
}

ig_status ig_hf_merge(ig_tokenizer *t, ig_text left, ig_text right, uint32_t i, ig_json_place at) {
    char where[512];
    snprintf(where, sizeof where, "%s: %s", at.path, at.field);
    return ig_tokenizer_add_merge(t, left, right, i, where, at.err);
}
