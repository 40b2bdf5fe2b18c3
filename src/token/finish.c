/* SPDX-License-Identifier: Apache-2.0
 *
 * What all tokenizer builders share: adding merges, and the last step that makes the tables which encoding
 * needs and checks them.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "token/parts.h"

int ig_tokenizer_byte_of(const char *text, size_t n) {
    if (n != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') return -1;
    int value = 0;
    for (int i = 3; i < 5; i++) {
        char c = text[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
        if (digit < 0) return -1;
        value = value * 16 + digit;
    }
    return value;
}

void ig_tokenizer_set_end(ig_tokenizer *t, int64_t id) {
    if (id >= 0 && id < t->vocab.n) t->vocab.tokens[id].flags |= IG_TOKEN_END;
}

bool ig_tokenizer_room_for_suppressed(ig_tokenizer *t, size_t n) {
    if (n <= SIZE_MAX / sizeof *t->suppressed) t->suppressed = malloc(n * sizeof *t->suppressed);
    return t->suppressed != NULL;
}

static int compare_ids(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* In order, each once. */
static void sort_suppressed(ig_tokenizer *t) {
    size_t n = 0;
    if (!t->n_suppressed) return;
    qsort(t->suppressed, t->n_suppressed, sizeof *t->suppressed, compare_ids);
    for (size_t i = 0; i < t->n_suppressed; i++)
        if (n == 0 || t->suppressed[i] != t->suppressed[n - 1]) t->suppressed[n++] = t->suppressed[i];
    t->n_suppressed = n;
}

static ig_status add_merge(ig_tokenizer *t, ig_text left, ig_text right, uint32_t i, const char *where, ig_error *err) {
    const ig_vocab *v = &t->vocab;
    int32_t a = ig_vocab_find(v, left.data, left.size), b = ig_vocab_find(v, right.data, right.size);
    ig_buffer joined = {0};
    ig_buffer_add(&joined, left.data, left.size);
    ig_buffer_add(&joined, right.data, right.size);
    ig_status s = IG_OK;
    int32_t id = joined.failed || !joined.size ? -1 : ig_vocab_find(v, joined.data, joined.size);
    if (joined.failed)
        s = ig_fail_memory(err, where, left.size + right.size);
    else if (a < 0 || b < 0 || id < 0)
        s = ig_fail(err, IG_E_FORMAT, "%s: merge %u: '%.*s' is not in the vocabulary", where, i,
                    IG_SHOW(a < 0   ? left
                            : b < 0 ? right
                                    : ((ig_text){joined.data, joined.size})));
    else if (!ig_merges_put(&t->rules.merges, a, b, i, id))
        s = ig_fail(err, IG_E_LIMIT, "%s: merge %u shares its place in the table with too many others", where, i);
    ig_buffer_close(&joined);
    return s;
}

ig_status ig_tokenizer_add_merge(ig_tokenizer *t, ig_text left, ig_text right, uint32_t i, const char *where,
                                 ig_error *err) {
    if (!t->rules.bytewise) return add_merge(t, left, right, i, where, err);
    ig_buffer a = {0}, b = {0};
    ig_status s;
    if (!ig_utf8_decode_letters(&a, left.data, left.size) || !ig_utf8_decode_letters(&b, right.data, right.size))
        s = ig_fail(err, IG_E_FORMAT, "%s: merge %u is not made of byte letters", where, i);
    else if (a.failed || b.failed)
        s = ig_fail_memory(err, where, left.size + right.size);
    else
        s = add_merge(t, (ig_text){a.data, a.size}, (ig_text){b.data, b.size}, i, where, err);
    ig_buffer_close(&a);
    ig_buffer_close(&b);
    return s;
}

typedef struct scored {
    float score;
    int32_t id;
} scored;

static int compare_scored(const void *a, const void *b) {
    float x = ((const scored *)a)->score, y = ((const scored *)b)->score;
    return x > y ? -1 : x < y;
}

ig_status ig_tokenizer_rank_scores(ig_tokenizer *t, const float *scores, const char *where, ig_error *err) {
    size_t n = (size_t)t->vocab.n;
    ig_status s = IG_OK;
    scored *list = malloc(n * sizeof *list);
    t->rules.ranks = malloc(n * sizeof *t->rules.ranks);
    if (!list || !t->rules.ranks) s = ig_fail_memory(err, "ranks of tokens", n * sizeof *list);
    for (size_t i = 0; i < n && !s; i++) {
        list[i] = (scored){scores[i], (int32_t)i};
        if (!isfinite(scores[i])) s = ig_fail(err, IG_E_FORMAT, "%s: the score of token %zu is not a number", where, i);
    }
    if (!s) {
        qsort(list, n, sizeof *list, compare_scored);
        uint32_t rank = 0;
        for (size_t i = 0; i < n; i++) {
            if (i > 0 && list[i].score != list[i - 1].score) rank++;
            t->rules.ranks[list[i].id] = rank;
        }
    }
    free(list);
    return s;
}

/* Tokens for single bytes: by text "<0x0A>" with SentencePiece, else the one-byte tokens. */
static void find_byte_tokens(ig_tokenizer *t) {
    for (int32_t id = 0; id < t->vocab.n; id++) {
        ig_text piece = ig_vocab_text(&t->vocab, id);
        if (t->vocab.tokens[id].kind != IG_TOKEN_BYTE) continue;
        int byte = ig_tokenizer_byte_of(piece.data, piece.size);
        if (byte >= 0 && t->rules.byte_ids[byte] < 0) t->rules.byte_ids[byte] = id;
    }
    for (int byte = 0; byte < 256 && t->rules.bytewise; byte++) {
        char c = (char)byte;
        t->rules.byte_ids[byte] = ig_vocab_find(&t->vocab, &c, 1);
    }
}

bool ig_tokenizer_names_end(ig_text text) {
    static const char *const names[] = {"<|im_end|>",      "<|eot_id|>",      "<|eom_id|>",    "<|endoftext|>",
                                        "<|end_of_text|>", "<|end|>",         "<end_of_turn>", "<|return|>",
                                        "<|call|>",        "<|calls|>",       "<|flush|>",     "[e~[",
                                        "<turn|>",         "<|tool_response>"};
    for (size_t i = 0; i < IG_COUNT(names); i++)
        if (ig_text_is(text, names[i])) return true;
    return false;
}

/* What ends a generation in the models known, whatever a file forgets to say. Where <|return|> and <|call|> do, <|end|>
 * only ends one of the messages that an answer is made of, whatever a file says. */
static void find_end_tokens(ig_tokenizer *t) {
    int32_t end = -1;
    bool returns = false, calls = false;
    for (int32_t id = 0; id < t->vocab.n; id++) {
        ig_text piece = ig_vocab_text(&t->vocab, id);
        if (t->vocab.tokens[id].kind != IG_TOKEN_CONTROL) continue;
        if (ig_tokenizer_names_end(piece) || ig_text_is(piece, "</s>")) ig_tokenizer_set_end(t, id);
        if (ig_text_is(piece, "<|end|>")) end = id;
        returns |= ig_text_is(piece, "<|return|>");
        calls |= ig_text_is(piece, "<|call|>");
    }
    if (end >= 0 && returns && calls) t->vocab.tokens[end].flags &= (uint8_t)~IG_TOKEN_END;
    ig_tokenizer_set_end(t, t->eos);
}

/* True if no token of the hash goes on over a blank after something else. */
static bool blanks_only_lead(const ig_vocab *v) {
    for (int32_t id = 0; id < v->n; id++) {
        if (!(v->tokens[id].flags & IG_TOKEN_MODEL)) continue;
        ig_text piece = ig_vocab_text(v, id);
        bool other = false;
        for (size_t at = 0; at < piece.size;) {
            bool blank = ig_is_blank_at(piece.data, piece.size, at);
            if (blank && other) return false;
            other = other || !blank;
            at += blank ? 3 : 1;
        }
    }
    return true;
}

ig_status ig_tokenizer_finish(ig_tokenizer *t, const char *where, ig_error *err) {
    ig_vocab *v = &t->vocab;
    for (int32_t id = 0; id < v->n; id++)
        if ((v->tokens[id].flags & IG_TOKEN_ADDED) && v->tokens[id].size > IG_MATCH_BYTES_MAX)
            return ig_fail(err, IG_E_LIMIT, "%s: added token %d is %u bytes long, at most %d are supported", where, id,
                           v->tokens[id].size, IG_MATCH_BYTES_MAX);
    ig_status s = ig_match_open(&t->added, t, false, where, err);
    if (!s) s = ig_match_open(&t->added_normalized, t, true, where, err);
    if (s) return s;
    t->rules.vocab = v;
    t->cut_at_blank = t->sentencepiece && blanks_only_lead(v);
    find_byte_tokens(t);
    find_end_tokens(t);
    sort_suppressed(t);
    if (t->bos >= v->n || t->eos >= v->n || t->rules.unknown >= v->n)
        return ig_fail(err, IG_E_FORMAT, "%s: a special token id is not below the vocabulary size %d", where, v->n);
    if (t->bos < 0) t->adds_bos = false;
    if (t->eos < 0) t->adds_eos = false;
    return IG_OK;
}
