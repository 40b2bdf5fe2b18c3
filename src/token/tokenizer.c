/* SPDX-License-Identifier: Apache-2.0
 *
 * The handle: encoding and pieces. Text is cut in this order: added tokens of the raw text, normal form or
 * SentencePiece's blanks, added tokens of the normalised text, words, merges. Every call has its own work space, so
 * that one handle serves any number of threads.
 */
#include "token/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "token/parts.h"

ig_tokenizer *ig_tokenizer_new(void) {
    ig_tokenizer *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    t->bos = t->eos = t->rules.unknown = -1;
    for (int i = 0; i < 256; i++) t->rules.byte_ids[i] = -1;
    return t;
}

void ig_tokenizer_close(ig_tokenizer *t) {
    if (!t) return;
    ig_vocab_close(&t->vocab);
    ig_merges_close(&t->rules.merges);
    free(t->rules.ranks);
    ig_match_close(&t->added);
    ig_match_close(&t->added_normalized);
    ig_pretoken_close(&t->pretoken);
    free(t->suppressed);
    free(t->chat_template);
    free(t);
}

bool ig_tokenizer_normalize(const ig_tokenizer *t, ig_buffer *out, ig_text text, bool blank_first) {
    if (!t->sentencepiece) return ig_utf8_normalize(out, text.data, text.size, t->form);
    if (blank_first) ig_buffer_text(out, IG_BLANK);
    for (size_t at = 0, end; at < text.size; at = end + 1) {
        const char *space = memchr(text.data + at, ' ', text.size - at);
        end = space ? (size_t)(space - text.data) : text.size;
        ig_buffer_add(out, text.data + at, end - at);
        if (space) ig_buffer_text(out, IG_BLANK);
    }
    return !out->failed;
}

typedef struct encoder { /* one call of ig_tokenizer_encode() */
    const ig_tokenizer *t;
    bool special;
    bool at_start, after_added; /* what precedes the piece of text at hand */
    const char *text;           /* that ig_pretoken_run() splits */
    ig_ids *out;
    ig_pretoken_sink words;
    ig_merge_space space;
    ig_buffer normal, repaired, prefixed;
    ig_error *err;
} encoder;

static ig_status encode_word(void *user, size_t at, size_t size, ig_error *err) {
    encoder *e = user;
    return ig_merge_word(&e->t->rules, &e->space, e->text + at, size, e->out, err);
}

/* True if a blank goes before this piece of text. */
static bool wants_blank(const encoder *e, const char *text, size_t n) {
    const ig_tokenizer *t = e->t;
    if (t->prefix_once && (text[0] == ' ' || (t->sentencepiece && ig_is_blank_at(text, n, 0)))) return false;
    return t->prefix == IG_PREFIX_ALWAYS ? e->after_added || e->at_start : t->prefix == IG_PREFIX_FIRST && e->at_start;
}

/* Byte-level: the expressions see the text with its invalid bytes replaced, the merges see the true bytes. */
static ig_status encode_bytewise(encoder *e, const char *text, size_t n) {
    if (wants_blank(e, text, n)) {
        e->prefixed.size = 0;
        ig_buffer_text(&e->prefixed, " ");
        ig_buffer_add(&e->prefixed, text, n);
        if (e->prefixed.failed) return ig_fail_memory(e->err, "tokenising text", n);
        text = e->prefixed.data;
        n = e->prefixed.size;
    }
    const char *visible = ig_utf8_repair(&e->repaired, text, n);
    if (!visible) return ig_fail_memory(e->err, "tokenising text", n);
    e->text = text;
    e->at_start = e->after_added = false;
    return ig_pretoken_run(&e->t->pretoken, &e->words, visible, n, e->err);
}

static ig_status encode_escaped(encoder *e, const char *text, size_t n) {
    const ig_tokenizer *t = e->t;
    ig_status s = IG_OK;
    size_t start = 0;
    for (size_t at = 1; at < n && !s; at++) {
        if (text[at] != IG_BLANK[0] || !ig_is_blank_at(text, n, at)) continue;
        if (!t->cut_every_blank && (!t->cut_at_blank || (at >= 3 && ig_is_blank_at(text, n, at - 3)))) continue;
        s = ig_merge_word(&t->rules, &e->space, text + start, at - start, e->out, e->err);
        start = at;
    }
    return s ? s : ig_merge_word(&t->rules, &e->space, text + start, n - start, e->out, e->err);
}

/* Makes of a text what the second stage takes. */
static ig_status normalize(encoder *e, const char **text, size_t *n) {
    const ig_tokenizer *t = e->t;
    if (!ig_tokenizer_normalizes(t)) return IG_OK;
    bool blank_first = t->sentencepiece && wants_blank(e, *text, *n);
    e->normal.size = 0;
    if (!ig_tokenizer_normalize(t, &e->normal, (ig_text){*text, *n}, blank_first))
        return ig_fail_memory(e->err, "normalising text", *n);
    *text = e->normal.data;
    *n = e->normal.size;
    if (t->sentencepiece) e->at_start = e->after_added = false;
    return IG_OK;
}

/* Cuts added tokens out of the text; what lies between goes on to the next stage. */
static ig_status encode_stage(encoder *e, const char *text, size_t n, bool normalized) {
    const ig_tokenizer *t = e->t;
    const ig_match *m = normalized ? &t->added_normalized : &t->added;
    ig_status s = IG_OK;
    for (size_t at = 0; at < n && !s;) {
        ig_match_hit hit = ig_match_next(m, &t->vocab, text, n, at, e->special);
        const char *part = text + at;
        size_t size = hit.start - at;
        if (size && normalized == t->blanks_last) s = normalize(e, &part, &size);
        if (size && !s)
            s = !normalized        ? encode_stage(e, part, size, true)
                : t->sentencepiece ? encode_escaped(e, part, size)
                                   : encode_bytewise(e, part, size);
        if (hit.id >= 0 && !s) {
            ig_ids_add(e->out, hit.id);
            s = ig_ids_check(e->out, e->err);
            e->after_added = true;
            e->at_start = false;
        }
        at = hit.end;
    }
    return s;
}

ig_status ig_tokenizer_encode(const ig_tokenizer *t, ig_ids *out, const char *text, size_t n_bytes, int flags,
                              ig_error *err) {
    encoder e = {.t = t,
                 .special = (flags & IG_TOKENIZE_PARSE_SPECIAL) != 0,
                 .at_start = true,
                 .words = {.word = encode_word},
                 .out = out,
                 .err = err};
    e.words.user = &e;
    out->n = out->n_lost = 0;
    if ((flags & IG_TOKENIZE_ADD_SPECIAL) && t->adds_bos) ig_ids_add(out, t->bos);
    ig_status s = n_bytes ? encode_stage(&e, text, n_bytes, false) : IG_OK;
    if ((flags & IG_TOKENIZE_ADD_SPECIAL) && t->adds_eos) ig_ids_add(out, t->eos);
    if (!s) s = ig_ids_check(out, err);
    ig_merge_space_close(&e.space);
    ig_buffer_close(&e.normal);
    ig_buffer_close(&e.repaired);
    ig_buffer_close(&e.prefixed);
    return s;
}

/* Writes what fits of bytes [*at, *at + size). */
static void put(char *text, size_t cap, size_t *at, const char *bytes, size_t size) {
    if (*at < cap) memcpy(text + *at, bytes, size < cap - *at ? size : cap - *at);
    *at += size;
}

size_t ig_tokenizer_piece(const ig_tokenizer *t, int32_t id, bool special, char *text, size_t cap) {
    if (id < 0 || id >= t->vocab.n) return 0;
    ig_token_kind kind = (ig_token_kind)t->vocab.tokens[id].kind;
    ig_text piece = ig_vocab_text(&t->vocab, id);
    size_t n = 0;
    if (kind == IG_TOKEN_HOLE || kind == IG_TOKEN_UNUSED) return 0;
    if (!special && (kind == IG_TOKEN_CONTROL || kind == IG_TOKEN_UNKNOWN)) return 0;
    if (kind == IG_TOKEN_BYTE) {
        char byte = (char)ig_tokenizer_byte_of(piece.data, piece.size);
        put(text, cap, &n, &byte, 1);
        return n;
    }
    if (!t->sentencepiece) {
        put(text, cap, &n, piece.data, piece.size);
        return n;
    }
    for (size_t at = 0; at < piece.size;) {
        bool blank = ig_is_blank_at(piece.data, piece.size, at);
        put(text, cap, &n, blank ? " " : piece.data + at, 1);
        at += blank ? 3 : 1;
    }
    return n;
}

int ig_tokenizer_n_vocab(const ig_tokenizer *t) { return t->vocab.n; }
bool ig_tokenizer_drops_first_blank(const ig_tokenizer *t) { return t->prefix != IG_PREFIX_NEVER; }
int32_t ig_tokenizer_bos(const ig_tokenizer *t) { return t->bos; }
int32_t ig_tokenizer_eos(const ig_tokenizer *t) { return t->eos; }
bool ig_tokenizer_adds_bos(const ig_tokenizer *t) { return t->adds_bos; }
bool ig_tokenizer_is_end(const ig_tokenizer *t, int32_t id) {
    return id >= 0 && id < t->vocab.n && (t->vocab.tokens[id].flags & IG_TOKEN_END) != 0;
}
size_t ig_tokenizer_suppressed(const ig_tokenizer *t, const int32_t **ids) {
    *ids = t->suppressed;
    return t->n_suppressed;
}
const char *ig_tokenizer_chat_template(const ig_tokenizer *t) { return t->chat_template; }

ig_status ig_tokenizer_set_chat_template(ig_tokenizer *t, const char *text, size_t n, ig_error *err) {
    char *copy = malloc(n + 1);
    if (!copy) return ig_fail_memory(err, "chat template", n + 1);
    memcpy(copy, text, n);
    copy[n] = 0;
    free(t->chat_template);
    t->chat_template = copy;
    return IG_OK;
}
