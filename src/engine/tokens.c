/* SPDX-License-Identifier: Apache-2.0
 *
 * The public face of the tokenizer: text to ids and back, streaming, chat prompts.
 */
#include <string.h>

#include "base/error.h"
#include "engine/session.h"
#include "format/json.h"

static ig_status need_tokenizer(const ig_model *m, ig_error *err) {
    if (!m) return ig_fail(err, IG_E_ARG, "no model");
    if (!m->tokenizer) return ig_fail(err, IG_E_NOT_FOUND, "%s: has no tokenizer", m->path);
    return IG_OK;
}

ig_status ig_tokenize(size_t *n_out, const ig_model *m, const char *text, size_t n_bytes, int flags, int32_t *ids,
                      size_t cap, ig_error *err) {
    ig_ids out = {.ids = ids, .cap = cap, .is_capped = (flags & IG_TOKENIZE_CAPPED) != 0};
    ig_status s = need_tokenizer(m, err);
    if (!s && (!n_out || (!text && n_bytes) || (!ids && cap)))
        s = ig_fail(err, IG_E_ARG, "ig_tokenize: a text and places for the results are needed");
    if (n_out) *n_out = 0;
    if (!s) s = ig_tokenizer_encode(m->tokenizer, &out, text, n_bytes, flags, err);
    if (!s && out.n_lost)
        ig_log(m->ctx, IG_LOG_ERROR, "%s: its vocabulary has nothing for %zu bytes of the text: they are left out",
               m->path, out.n_lost);
    if (!s || (out.is_capped && out.n > cap)) *n_out = out.n;
    return s;
}

static bool has_tokenizer(const ig_model *m) { return m && m->tokenizer; }

int32_t ig_token_bos(const ig_model *m) { return has_tokenizer(m) ? ig_tokenizer_bos(m->tokenizer) : -1; }
int32_t ig_token_eos(const ig_model *m) { return has_tokenizer(m) ? ig_tokenizer_eos(m->tokenizer) : -1; }
bool ig_token_adds_bos(const ig_model *m) { return has_tokenizer(m) && ig_tokenizer_adds_bos(m->tokenizer); }
bool ig_token_is_end(const ig_model *m, int32_t id) {
    return has_tokenizer(m) && ig_tokenizer_is_end(m->tokenizer, id);
}

/* ---- tokens to text ------------------------------------------------------------- */

/* One token's bytes, without the blank that SentencePiece put before the text. *started is false before the first. */
static size_t piece_of(const ig_model *m, int32_t id, bool special, bool *started, char *text, size_t cap) {
    size_t n = ig_tokenizer_piece(m->tokenizer, id, special, text, cap);
    bool first = !*started;
    if (n) *started = true;
    if (first && n && cap && text[0] == ' ' && ig_tokenizer_drops_first_blank(m->tokenizer)) {
        memmove(text, text + 1, (n < cap ? n : cap) - 1);
        return n - 1;
    }
    return n;
}

size_t ig_detokenize(const ig_model *m, const int32_t *ids, size_t n_ids, bool special, char *text, size_t cap) {
    if (!has_tokenizer(m) || !ids) return 0;
    if (!text) cap = 0;
    size_t n = 0;
    bool started = false;
    char piece[IG_TOKEN_BYTES_MAX];
    for (size_t i = 0; i < n_ids; i++) {
        size_t len = piece_of(m, ids[i], special, &started, piece, sizeof piece);
        size_t have = len < sizeof piece ? len : sizeof piece;
        if (n < cap) memcpy(text + n, piece, have < cap - n ? have : cap - n);
        n += have;
    }
    return n;
}

/* Bytes of the UTF-8 character that starts with `lead`; 1 for a byte that starts none. */
static int character_length(unsigned char lead) {
    return lead < 0xc2 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 1;
}

/* The stream is the caller's memory: a number that cannot be is none. */
static size_t n_pending(const ig_detok_stream *st) {
    return st->n_pending > 0 && (size_t)st->n_pending < sizeof st->pending ? (size_t)st->n_pending : 0;
}

size_t ig_detok_push(ig_detok_stream *st, const ig_model *m, int32_t id, bool special, char *text, size_t cap) {
    if (!st || !has_tokenizer(m)) return 0;
    char piece[IG_TOKEN_BYTES_MAX + sizeof st->pending];
    size_t n = n_pending(st), out = 0, i = 0;
    if (!text) cap = 0;
    memcpy(piece, st->pending, n);
    size_t len = piece_of(m, id, special, &st->started, piece + n, IG_TOKEN_BYTES_MAX);
    n += len < IG_TOKEN_BYTES_MAX ? len : IG_TOKEN_BYTES_MAX;
    st->n_pending = 0;
    while (i < n) {
        size_t want = (size_t)character_length((unsigned char)piece[i]), have = 1;
        while (have < want && i + have < n && ((unsigned char)piece[i + have] & 0xc0) == 0x80) have++;
        if (have < want && i + have == n) { /* the rest may come with the next token */
            memcpy(st->pending, piece + i, have);
            st->n_pending = (int)have;
            break;
        }
        if (have > cap - out) break;
        memcpy(text + out, piece + i, have);
        out += have;
        i += have;
    }
    return out;
}

size_t ig_detok_flush(ig_detok_stream *st, char *text, size_t cap) {
    if (!st || !text || !n_pending(st) || cap < 3) return 0;
    st->n_pending = 0;
    memcpy(text, "\xef\xbf\xbd", 3);
    return 3;
}

/* ---- chat ------------------------------------------------------------------------ */

static ig_status check_chat(const size_t *n_out, const ig_model *m, const char *text, size_t cap, ig_error *err) {
    ig_status s = need_tokenizer(m, err);
    if (s) return s;
    if (!n_out || (!text && cap)) return ig_fail(err, IG_E_ARG, "a chat prompt needs a place for the result");
    if (m->chat.template) return IG_OK;
    if (!m->chat.why.status) return ig_fail(err, IG_E_UNSUPPORTED, "%s: has no chat template", m->path);
    return ig_fail(err, IG_E_UNSUPPORTED, "%s: its chat template cannot be used: %s", m->path, m->chat.why.text);
}

/* Takes the variables over. */
static ig_status render(size_t *n_out, const ig_model *m, json_t *variables, char *text, size_t cap, ig_error *err) {
    ig_buffer b = {0};
    ig_status s = ig_chat_render(&b, &m->chat, variables, err);
    json_decref(variables);
    if (!s) {
        *n_out = b.size;
        if (b.size < cap)
            memcpy(text, b.size ? b.data : "", b.size + 1);
        else if (cap)
            memcpy(text, b.data, cap);
    }
    ig_buffer_close(&b);
    return s;
}

static bool add_message(json_t *list, const ig_chat_message *m) {
    json_t *o = json_object();
    bool ok = json_object_set_new_nocheck(o, "role", json_string_nocheck(m->role)) == 0 &&
              json_object_set_new_nocheck(o, "content", json_string_nocheck(m->content)) == 0;
    return json_array_append_new(list, o) == 0 && ok;
}

ig_status ig_chat_prompt(size_t *n_out, const ig_model *m, const ig_chat_message *messages, size_t n_messages,
                         bool add_assistant, char *text, size_t cap, ig_error *err) {
    ig_status s = check_chat(n_out, m, text, cap, err);
    if (s) return s;
    if (!messages || !n_messages) return ig_fail(err, IG_E_ARG, "ig_chat_prompt: a chat prompt needs a message");
    for (size_t i = 0; i < n_messages; i++)
        if (!messages[i].role || !messages[i].content)
            return ig_fail(err, IG_E_ARG, "ig_chat_prompt: message %zu has no role or no content", i);
    json_t *list = json_array(), *variables = json_object();
    bool ok = list && variables;
    for (size_t i = 0; i < n_messages && ok; i++) ok = add_message(list, &messages[i]);
    ok = json_object_set_new_nocheck(variables, "messages", list) == 0 && ok;
    ok = ok && json_object_set_new_nocheck(variables, "add_generation_prompt", json_boolean(add_assistant)) == 0;
    if (ok) return render(n_out, m, variables, text, cap, err);
    json_decref(variables);
    return ig_fail_memory(err, "chat prompt", n_messages * sizeof *messages);
}

ig_status ig_chat_prompt_json(size_t *n_out, const ig_model *m, const char *variables, size_t n_bytes, char *text,
                              size_t cap, ig_error *err) {
    json_t *object;
    ig_status s = check_chat(n_out, m, text, cap, err);
    if (s) return s;
    if (!variables) return ig_fail(err, IG_E_ARG, "ig_chat_prompt_json: variables are needed");
    s = ig_json_parse(&object, variables, n_bytes, "variables of a chat template", err);
    if (s) return s;
    if (json_is_object(object)) return render(n_out, m, object, text, cap, err);
    json_decref(object);
    return ig_fail(err, IG_E_ARG, "ig_chat_prompt_json: variables must be an object");
}
