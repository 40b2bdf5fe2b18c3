/* SPDX-License-Identifier: Apache-2.0
 *
 * A tokenizer from the metadata of a GGUF file: models "gpt2" (byte-level BPE), "llama" (SentencePiece BPE) and
 * "gemma4", which writes text as SentencePiece does and has a table of merges. Where a key is missing the rule of
 * llama.cpp, the home of the format, holds. Text is not normalised, as there.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "token/parts.h"

#define KEY "tokenizer.ggml."

typedef enum family { GPT2, LLAMA, GEMMA4 } family;

typedef struct source {
    const ig_gguf *g;
    ig_tokenizer *t;
    family family;
    const ig_gguf_value *tokens, *types, *scores, *merges;
    ig_error *err;
} source;

static ig_status fail_key(const source *s, const char *key, const char *what) {
    return ig_fail(s->err, IG_E_FORMAT, "%s: %s%s: %s", ig_gguf_path(s->g), KEY, key, what);
}

/* An array of the wanted item type, or NULL if absent. n_items 0: any number. */
static ig_status find_array(const source *s, const char *key, bool numbers, bool floats, uint64_t n_items,
                            const ig_gguf_value **out) {
    char full[64] = KEY;
    strcat(full, key);
    const ig_gguf_value *v = *out = ig_gguf_find(s->g, full);
    if (!v) return IG_OK;
    if (v->type != IG_GGUF_ARRAY) return fail_key(s, key, "is not an array");
    bool is_float = v->item_type == IG_GGUF_F32 || v->item_type == IG_GGUF_F64;
    bool is_string = v->item_type == IG_GGUF_STRING, is_bool = v->item_type == IG_GGUF_BOOL;
    bool right = floats ? is_float : numbers ? !is_float && !is_string && !is_bool : is_string;
    if (!right)
        return fail_key(s, key,
                        floats    ? "items are not floats"
                        : numbers ? "items are not integers"
                                  : "items are not strings");
    if (n_items && v->n_items != n_items) return fail_key(s, key, "has not as many items as there are tokens");
    return IG_OK;
}

static ig_status read_arrays(source *s) {
    ig_status status = find_array(s, "tokens", false, false, 0, &s->tokens);
    if (status) return status;
    if (!s->tokens) return ig_fail(s->err, IG_E_NOT_FOUND, "%s: %stokens is missing", ig_gguf_path(s->g), KEY);
    if (s->tokens->n_items == 0 || s->tokens->n_items > INT32_MAX / 2)
        return fail_key(s, "tokens", "is empty or too long");
    status = find_array(s, "token_type", true, false, s->tokens->n_items, &s->types);
    if (!status) status = find_array(s, "scores", false, true, s->tokens->n_items, &s->scores);
    if (!status) status = find_array(s, "merges", false, false, 0, &s->merges);
    return status;
}

/* Kind of token `id`. */
static ig_status read_kind(const source *s, int32_t id, ig_text text, ig_token_kind *kind) {
    *kind = IG_TOKEN_NORMAL;
    if (!s->types) {
        if (s->t->sentencepiece && ig_tokenizer_byte_of(text.data, text.size) >= 0) *kind = IG_TOKEN_BYTE;
        return IG_OK;
    }
    int64_t type = ig_gguf_array_int(s->types, (uint64_t)id);
    if (type < IG_TOKEN_NORMAL || type > IG_TOKEN_BYTE)
        return ig_fail(s->err, IG_E_FORMAT, "%s: %stoken_type: token %d has the unknown type %lld", ig_gguf_path(s->g),
                       KEY, id, (long long)type);
    *kind = (ig_token_kind)type;
    /* Some converters call these words or a user's tokens. */
    if ((*kind == IG_TOKEN_NORMAL || *kind == IG_TOKEN_USER) && ig_tokenizer_names_end(text)) *kind = IG_TOKEN_CONTROL;
    if (*kind == IG_TOKEN_BYTE && ig_tokenizer_byte_of(text.data, text.size) < 0)
        return ig_fail(s->err, IG_E_FORMAT, "%s: %stokens: byte token %d is '%.*s', not of the form <0x0A>",
                       ig_gguf_path(s->g), KEY, id, (int)(text.size < 32 ? text.size : 32), text.data);
    return IG_OK;
}

static ig_status read_tokens(source *s) {
    ig_tokenizer *t = s->t;
    ig_buffer letters = {0};
    ig_status status = IG_OK;
    if (!ig_vocab_open(&t->vocab, (int32_t)s->tokens->n_items))
        return ig_fail_memory(s->err, "vocabulary", s->tokens->n_items * sizeof(ig_vocab_token));
    for (int32_t id = 0; id < t->vocab.n && !status; id++) {
        ig_text text = ig_gguf_array_string(s->tokens, (uint64_t)id);
        ig_token_kind kind;
        status = read_kind(s, id, text, &kind);
        if (status) break;
        int flags = ig_token_flags(kind);
        letters.size = 0;
        bool is_spelt = t->rules.bytewise && ig_utf8_decode_letters(&letters, text.data, text.size);
        ig_text bytes = {letters.size ? letters.data : "", letters.size};
        if (is_spelt && kind == IG_TOKEN_NORMAL)
            text = bytes;
        else if (t->rules.bytewise && kind == IG_TOKEN_NORMAL)
            flags = 0; /* no text can give it, but it can be shown */
        else if (is_spelt && (kind == IG_TOKEN_USER || kind == IG_TOKEN_CONTROL) && ig_text_equal(bytes, text))
            flags |= IG_TOKEN_MODEL; /* written the same either way, it stays within reach of merges */
        if (letters.failed || !ig_vocab_put(&t->vocab, id, text.data, text.size, kind, flags))
            status = ig_fail(s->err, letters.failed || t->vocab.bytes.failed ? IG_E_MEMORY : IG_E_LIMIT,
                             "%s: %stokens: no room for the text of token %d", ig_gguf_path(s->g), KEY, id);
    }
    ig_buffer_close(&letters);
    if (status) return status;
    char where[512];
    snprintf(where, sizeof where, "%s: %stokens", ig_gguf_path(s->g), KEY);
    return ig_vocab_index(&t->vocab, where, s->err);
}

static ig_status read_merges(source *s) {
    if (!s->merges) return fail_key(s, "merges", "is missing");
    if (s->merges->n_items > INT32_MAX / 4) return fail_key(s, "merges", "is too long");
    uint32_t n = (uint32_t)s->merges->n_items;
    if (!ig_merges_open(&s->t->rules.merges, n)) return ig_fail_memory(s->err, "merges", n * sizeof(ig_merge_slot));
    char where[512];
    snprintf(where, sizeof where, "%s: %smerges", ig_gguf_path(s->g), KEY);
    ig_status status = IG_OK;
    for (uint32_t i = n; i-- > 0 && !status;) { /* of two equal merges llama.cpp takes the first */
        ig_text m = ig_gguf_array_string(s->merges, i);
        const char *space = m.size > 1 ? memchr(m.data + 1, ' ', m.size - 1) : NULL;
        size_t n_left = space ? (size_t)(space - m.data) : 0;
        status = space ? ig_tokenizer_add_merge(s->t, (ig_text){m.data, n_left},
                                                (ig_text){space + 1, m.size - 1 - n_left}, i, where, s->err)
                       : ig_fail(s->err, IG_E_FORMAT, "%s: merge %u is not a pair of texts", where, i);
    }
    return status;
}

static ig_status read_scores(source *s) {
    if (!s->scores) return fail_key(s, "scores", "is missing");
    size_t n = (size_t)s->t->vocab.n;
    char where[512];
    snprintf(where, sizeof where, "%s: %sscores", ig_gguf_path(s->g), KEY);
    float *scores = malloc(n * sizeof *scores);
    if (!scores) return ig_fail_memory(s->err, "scores", n * sizeof *scores);
    for (size_t i = 0; i < n; i++) scores[i] = (float)ig_gguf_array_float(s->scores, i);
    ig_status status = ig_tokenizer_rank_scores(s->t, scores, where, s->err);
    free(scores);
    return status;
}

static ig_status read_id(const source *s, const char *key, int32_t fallback, int32_t *out) {
    char full[64] = KEY;
    ig_status status = IG_OK;
    int64_t id = -1, max = s->t->vocab.n - 1;
    strcat(full, key);
    *out = fallback <= max ? fallback : -1;
    if (!ig_gguf_find(s->g, full)) return IG_OK;
    /* 2^32 - 1 says "none" in files of some converters. */
    if (!ig_gguf_int(s->g, full, -1, UINT32_MAX, &id, &status, s->err)) return status;
    if (id == UINT32_MAX) id = -1;
    if (id > max)
        return ig_fail(s->err, IG_E_FORMAT, "%s: %s: token %lld is not below the vocabulary size %d",
                       ig_gguf_path(s->g), full, (long long)id, s->t->vocab.n);
    *out = (int32_t)id;
    return status;
}

/* -1 and 2^32 - 1 say "none" here too. Models may have no row for an id, which then cannot come anyway. */
static ig_status read_suppressed(const source *s) {
    ig_tokenizer *t = s->t;
    const ig_gguf_value *ids;
    ig_status status = find_array(s, "suppress_tokens", true, false, 0, &ids);
    if (status || !ids || !ids->n_items) return status;
    if (ids->n_items > INT32_MAX / 4) return fail_key(s, "suppress_tokens", "is too long");
    size_t n = (size_t)ids->n_items;
    if (!ig_tokenizer_room_for_suppressed(t, n))
        return ig_fail_memory(s->err, "suppressed tokens", n * sizeof *t->suppressed);
    for (size_t i = 0; i < n; i++) {
        int64_t id = ig_gguf_array_int(ids, i);
        if (id < -1 || id > UINT32_MAX) return fail_key(s, "suppress_tokens", "has an item that is not a token id");
        if (id >= 0 && id <= INT32_MAX) t->suppressed[t->n_suppressed++] = (int32_t)id;
    }
    return IG_OK;
}

static ig_status read_special(source *s, bool add_bos) {
    ig_tokenizer *t = s->t;
    bool is_llama = s->family == LLAMA, remove_blanks = false;
    int32_t end;
    ig_text template;
    ig_status status = read_id(s, "bos_token_id", is_llama ? 1 : -1, &t->bos);
    if (!status) status = read_id(s, "eos_token_id", is_llama ? 2 : -1, &t->eos);
    if (!status) status = read_id(s, "unknown_token_id", is_llama ? 0 : -1, &t->rules.unknown);
    if (t->rules.bytewise) t->rules.unknown = -1; /* such text knows no unknown characters */
    static const char *const ends[] = {"eot_token_id", "eom_token_id"};
    for (size_t i = 0; i < IG_COUNT(ends) && !status; i++) {
        status = read_id(s, ends[i], -1, &end);
        ig_tokenizer_set_end(t, end);
    }
    t->adds_bos = add_bos;
    if (!status) ig_gguf_bool(s->g, KEY "add_bos_token", &t->adds_bos, &status, s->err);
    t->adds_bos |= s->family == GEMMA4; /* whatever some of its first files say */
    if (!status) ig_gguf_bool(s->g, KEY "add_eos_token", &t->adds_eos, &status, s->err);
    bool prefix = true;
    if (!status) ig_gguf_bool(s->g, KEY "add_space_prefix", &prefix, &status, s->err);
    if (is_llama) t->prefix = prefix ? IG_PREFIX_ALWAYS : IG_PREFIX_NEVER;
    if (!status) ig_gguf_bool(s->g, KEY "remove_extra_whitespaces", &remove_blanks, &status, s->err);
    if (!status && is_llama && remove_blanks)
        return ig_fail(s->err, IG_E_UNSUPPORTED, "%s: %sremove_extra_whitespaces is not supported", ig_gguf_path(s->g),
                       KEY);
    if (!status && ig_gguf_string(s->g, "tokenizer.chat_template", &template, &status, s->err))
        return ig_tokenizer_set_chat_template(t, template.data, template.size, s->err);
    return status;
}

static bool has_word(ig_text text, const char *word) {
    size_t n = strlen(word);
    for (size_t at = 0; at + n <= text.size; at++)
        if (strncasecmp(text.data + at, word, n) == 0) return true;
    return false;
}

/* The special tokens of Phi-3 take the blanks behind them along, which GGUF has no key for. */
static ig_status read_strips(source *s) {
    static const char *const others[] = {"<unk>", "<s>", "<|endoftext|>"};
    const ig_vocab *v = &s->t->vocab;
    ig_status status = IG_OK;
    ig_text name = {"", 0};
    ig_gguf_string(s->g, "general.name", &name, &status, s->err);
    if (!has_word(name, "phi3") && !has_word(name, "phi-3")) return status;
    for (int32_t id = 0; id < v->n; id++) {
        bool strips = (v->tokens[id].flags & IG_TOKEN_ADDED) != 0;
        for (size_t i = 0; i < IG_COUNT(others); i++) strips = strips && !ig_text_is(ig_vocab_text(v, id), others[i]);
        if (strips) v->tokens[id].flags |= IG_TOKEN_RSTRIP;
    }
    return status;
}

static ig_status build(source *s, ig_text model) {
    static const char *const names[] = {[GPT2] = "gpt2", [LLAMA] = "llama", [GEMMA4] = "gemma4"};
    ig_tokenizer *t = s->t;
    size_t i = 0;
    while (i < IG_COUNT(names) && !ig_text_is(model, names[i])) i++;
    if (i == IG_COUNT(names))
        return ig_fail(s->err, IG_E_UNSUPPORTED, "%s: %smodel: unknown tokenizer '%.*s'", ig_gguf_path(s->g), KEY,
                       IG_SHOW(model));
    s->family = (family)i;
    t->rules.bytewise = s->family == GPT2;
    t->sentencepiece = !t->rules.bytewise;
    t->rules.fuse_unknown = s->family == GEMMA4;
    bool add_bos = s->family == LLAMA;
    ig_status status = read_arrays(s);
    if (!status) status = read_tokens(s);
    if (!status) status = s->family == LLAMA ? read_scores(s) : read_merges(s);
    if (!status && t->rules.bytewise) {
        char where[512];
        ig_text pre = {"default", 7};
        snprintf(where, sizeof where, "%s: %spre", ig_gguf_path(s->g), KEY);
        ig_gguf_string(s->g, KEY "pre", &pre, &status, s->err);
        if (!status) status = ig_pretoken_named(&t->pretoken, pre, &t->rules.whole_words, &add_bos, where, s->err);
    }
    if (!status) status = read_special(s, add_bos);
    if (!status) status = read_suppressed(s);
    if (!status) status = read_strips(s);
    return status ? status : ig_tokenizer_finish(t, ig_gguf_path(s->g), s->err);
}

ig_status ig_tokenizer_from_gguf(ig_tokenizer **out, const ig_gguf *g, ig_error *err) {
    ig_status status = IG_OK;
    ig_text model;
    *out = NULL;
    if (!ig_gguf_string(g, KEY "model", &model, &status, err))
        return status ? status
                      : ig_fail(err, IG_E_NOT_FOUND, "%s: no tokenizer: %smodel is missing", ig_gguf_path(g), KEY);
    if (ig_text_is(model, "no_vocab") || ig_text_is(model, "none"))
        return ig_fail(err, IG_E_NOT_FOUND, "%s: no tokenizer: %smodel is '%.*s'", ig_gguf_path(g), KEY,
                       (int)model.size, model.data);
    source s = {.g = g, .t = ig_tokenizer_new(), .err = err};
    if (!s.t) return ig_fail_memory(err, "tokenizer", sizeof *s.t);
    status = build(&s, model);
    if (status) {
        ig_tokenizer_close(s.t);
        return status;
    }
    *out = s.t;
    return IG_OK;
}
