/* SPDX-License-Identifier: Apache-2.0
 *
 * tokenizer.json, and its older form vocab.json + merges.txt.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "format/json.h"
#include "token/hf.h"

/* The fields of "model" other than its tables. */
static ig_status read_model(ig_tokenizer *t, const json_t *model, ig_json_place at) {
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    ig_text type = {"BPE", 3};
    ig_status s = ig_json_text(model, "type", &type, at);
    if (!s && !ig_text_is(type, "BPE"))
        return ig_fail(at.err, IG_E_UNSUPPORTED, "%s: model.type: '%.64s' is not supported", at.path, type.data);
    for (size_t i = 0; i < IG_COUNT(affixes) && !s; i++) {
        ig_text affix = {0};
        s = ig_json_text(model, affixes[i], &affix, at);
        if (!s && affix.size)
            return ig_fail(at.err, IG_E_UNSUPPORTED, "%s: model.%s is not supported", at.path, affixes[i]);
    }
    if (!s) s = ig_json_bool(model, "ignore_merges", &t->rules.whole_words, at);
    if (!s) s = ig_json_bool(model, "fuse_unk", &t->rules.fuse_unknown, at);
    if (!s) s = ig_json_bool(model, "byte_fallback", &t->byte_fallback, at);
    if (!s && t->rules.bytewise && t->byte_fallback)
        return ig_fail(at.err, IG_E_UNSUPPORTED, "%s: model.byte_fallback with a ByteLevel pre_tokenizer", at.path);
    return s;
}

/* Merges as "a b" or ["a", "b"]. */
static ig_status read_merge(const json_t *merge, ig_text *left, ig_text *right) {
    if (json_is_array(merge) && json_array_size(merge) == 2) {
        const json_t *a = json_array_get(merge, 0), *b = json_array_get(merge, 1);
        if (!json_is_string(a) || !json_is_string(b)) return IG_E_FORMAT;
        *left = (ig_text){json_string_value(a), json_string_length(a)};
        *right = (ig_text){json_string_value(b), json_string_length(b)};
        return IG_OK;
    }
    const char *text = json_string_value(merge), *space = text ? strchr(text, ' ') : NULL;
    if (!space) return IG_E_FORMAT;
    *left = (ig_text){text, (size_t)(space - text)};
    *right = (ig_text){space + 1, strlen(space + 1)};
    return IG_OK;
}

static ig_status read_merges(ig_tokenizer *t, const json_t *merges, ig_json_place at) {
    if (!json_is_array(merges)) return ig_json_fail(at, "is not an array");
    size_t n = json_array_size(merges);
    ig_status s = IG_OK;
    if (!ig_merges_open(&t->rules.merges, (uint32_t)n))
        return ig_fail_memory(at.err, at.path, n * sizeof(ig_merge_slot));
    for (size_t i = 0; i < n && !s; i++) {
        ig_text left, right;
        if (read_merge(json_array_get(merges, i), &left, &right))
            return ig_fail(at.err, IG_E_FORMAT, "%s: %s: merge %zu is not a pair of texts", at.path, at.field, i);
        s = ig_hf_merge(t, left, right, (uint32_t)i, at);
    }
    return s;
}

static ig_status read_unknown(ig_tokenizer *t, const json_t *model, const json_t *vocab, ig_json_place at) {
    ig_text unknown = {0};
    ig_status s = ig_json_text(model, "unk_token", &unknown, at);
    if (s || !unknown.data) return s;
    const json_t *id = json_object_get(vocab, unknown.data);
    if (!id)
        return ig_fail(at.err, IG_E_FORMAT, "%s: model.unk_token: '%.64s' is not in the vocabulary", at.path,
                       unknown.data);
    t->rules.unknown = (int32_t)json_integer_value(id);
    return IG_OK;
}

ig_status ig_hf_from_json(ig_tokenizer *t, const char *path, ig_error *err) {
    json_t *root;
    size_t n_bytes;
    ig_added_list added = {0};
    ig_status s = ig_json_load(&root, &n_bytes, path, err);
    if (s) return s;
    const json_t *model = json_object_get(root, "model"), *vocab = json_object_get(model, "vocab");
    ig_json_place at = {path, "model", err};
    if (!json_is_object(model)) s = ig_json_fail(at, "is missing");
    if (!s) s = ig_hf_stages(t, root, path, err);
    if (!s) s = read_model(t, model, at);
    if (!s)
        s = ig_added_read(&added, json_object_get(root, "added_tokens"), (ig_json_place){path, "added_tokens", err});
    ig_added_drop(&added, t->limit);
    /* An id costs memory, so it may not be larger than the file that names it. */
    if (!s) s = ig_hf_vocab(t, vocab, &added, (int64_t)n_bytes, (ig_json_place){path, "model.vocab", err});
    if (!s) s = read_unknown(t, model, vocab, at);
    if (!s) s = read_merges(t, json_object_get(model, "merges"), (ig_json_place){path, "model.merges", err});
    ig_added_close(&added);
    json_decref(root);
    return s;
}

static ig_status read_merge_lines(ig_tokenizer *t, const char *text, size_t n, ig_json_place at) {
    uint32_t n_lines = 0, i = 0;
    ig_status s = IG_OK;
    for (size_t k = 0; k < n; k++) n_lines += text[k] == '\n';
    if (!ig_merges_open(&t->rules.merges, n_lines + 1))
        return ig_fail_memory(at.err, at.path, n_lines * sizeof(ig_merge_slot));
    for (size_t start = 0, end; start < n && !s; start = end + 1) {
        const char *newline = memchr(text + start, '\n', n - start);
        end = newline ? (size_t)(newline - text) : n;
        size_t size = end - start;
        const char *line = text + start;
        if (size && line[size - 1] == '\r') size--;
        if (size == 0 || (start == 0 && size > 8 && memcmp(line, "#version", 8) == 0)) continue;
        const char *space = memchr(line, ' ', size);
        if (!space) return ig_fail(at.err, IG_E_FORMAT, "%s: merge %u is not a pair of texts", at.path, i);
        s = ig_hf_merge(t, (ig_text){line, (size_t)(space - line)},
                        (ig_text){space + 1, size - 1 - (size_t)(space - line)}, i++, at);
    }
    return s;
}

ig_status ig_hf_from_merges(ig_tokenizer *t, const char *vocab_path, const char *merges_path,
                            const ig_added_list *added, ig_error *err) {
    json_t *vocab;
    size_t n_bytes, n_merge_bytes;
    char *text = NULL;
    t->rules.bytewise = true;
    ig_status s = ig_json_load(&vocab, &n_bytes, vocab_path, err);
    if (s) return s;
    s = ig_hf_vocab(t, vocab, added, (int64_t)n_bytes, (ig_json_place){vocab_path, "vocabulary", err});
    json_decref(vocab);
    if (!s) s = ig_file_read(&text, &n_merge_bytes, merges_path, (size_t)256 << 20, err);
    if (!s) s = read_merge_lines(t, text, n_merge_bytes, (ig_json_place){merges_path, "merges", err});
    free(text);
    return s;
}
