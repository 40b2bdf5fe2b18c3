/* SPDX-License-Identifier: Apache-2.0
 *
 * The trie of added tokens.
 */
#include "token/match.h"

#include <stdlib.h>

#include "base/error.h"
#include "token/parts.h"

static bool is_member(const ig_vocab_token *t, bool normalized) {
    return (t->flags & IG_TOKEN_ADDED) && t->size && ((t->flags & IG_TOKEN_NORMALIZED) != 0) == normalized;
}

/* The node behind `node`, or the root 0, by a byte; -1 if there is none. */
static int32_t step(const ig_match *m, int32_t node, char byte) {
    const ig_merge_slot *slot = ig_merges_find(&m->steps, node, (unsigned char)byte);
    return slot ? slot->id : -1;
}

/* An added token as it is looked for; false without memory. */
static bool write_token(ig_buffer *out, const ig_tokenizer *t, int32_t id, bool normalized) {
    ig_text text = ig_vocab_text(&t->vocab, id);
    out->size = 0;
    if (normalized && ig_tokenizer_normalizes(t) && !t->added_are_normal)
        return ig_tokenizer_normalize(t, out, text, t->prefix == IG_PREFIX_ALWAYS);
    ig_buffer_add(out, text.data, text.size);
    return !out->failed;
}

static ig_status add_token(ig_match *m, const ig_vocab *v, int32_t id, const ig_buffer *text, const char *where,
                           ig_error *err) {
    int32_t node = 0;
    for (size_t i = 0; i < text->size; i++) {
        int32_t next = step(m, node, text->data[i]);
        if (next < 0) {
            next = m->n++;
            m->ids[next] = -1;
            if (!ig_merges_put(&m->steps, node, (unsigned char)text->data[i], 0, next))
                return ig_fail(err, IG_E_LIMIT, "%s: added token %d shares its place in the table with too many others",
                               where, id);
        }
        node = next;
    }
    if (m->ids[node] >= 0) return ig_vocab_fail_twice(v, id, where, err);
    m->ids[node] = id;
    m->begins[(unsigned char)text->data[0]] = true;
    return IG_OK;
}

ig_status ig_match_open(ig_match *m, const ig_tokenizer *t, bool normalized, const char *where, ig_error *err) {
    const ig_vocab *v = &t->vocab;
    ig_buffer text = {0};
    size_t n_bytes = 0, n_taken;
    ig_status s = IG_OK;
    bool ok = true;
    *m = (ig_match){.n = 1};
    for (int32_t id = 0; id < v->n && ok; id++) {
        if (!is_member(&v->tokens[id], normalized)) continue;
        ok = write_token(&text, t, id, normalized);
        n_bytes += text.size;
    }
    n_taken = (n_bytes + 1) * sizeof *m->ids;
    if (ok && n_bytes && n_bytes < INT32_MAX / 4) m->ids = malloc(n_taken);
    if (!ok || (n_bytes && (!m->ids || !ig_merges_open(&m->steps, (uint32_t)n_bytes))))
        s = ig_fail_memory(err, where, n_taken);
    else if (m->ids)
        m->ids[0] = -1;
    for (int32_t id = 0; id < v->n && m->ids && !s; id++) {
        if (!is_member(&v->tokens[id], normalized)) continue;
        s = write_token(&text, t, id, normalized) ? add_token(m, v, id, &text, where, err)
                                                  : ig_fail_memory(err, where, text.size);
    }
    ig_buffer_close(&text);
    return s;
}

void ig_match_close(ig_match *m) {
    ig_merges_close(&m->steps);
    free(m->ids);
    *m = (ig_match){0};
}

/* Start of the character before `at`. */
static size_t step_back(const char *text, size_t at, uint32_t *code) {
    size_t start = at - 1;
    while (start > 0 && at - start < 4 && (text[start] & 0xc0) == 0x80) start--;
    if (ig_utf8_next(text + start, at - start, code) == at - start) return start;
    *code = 0xfffd;
    return at - 1;
}

static bool stands_alone(const char *text, size_t n, size_t start, size_t end) {
    uint32_t code;
    if (start > 0) {
        step_back(text, start, &code);
        if (ig_utf8_is_word(code)) return false;
    }
    return end == n || !ig_utf8_next(text + end, n - end, &code) || !ig_utf8_is_word(code);
}

static bool is_special(const ig_vocab_token *t) { return t->kind == IG_TOKEN_CONTROL || t->kind == IG_TOKEN_UNKNOWN; }

/* The longest token at `at`. */
static ig_match_hit longest(const ig_match *m, const ig_vocab *v, const char *text, size_t n, size_t at, bool special) {
    ig_match_hit hit = {at, at, -1};
    for (int32_t node = 0; at < n && (node = step(m, node, text[at])) >= 0; at++) {
        int32_t found = m->ids[node];
        if (found >= 0 && (special || !is_special(&v->tokens[found]))) hit.id = found, hit.end = at + 1;
    }
    return hit;
}

ig_match_hit ig_match_next(const ig_match *m, const ig_vocab *v, const char *text, size_t n, size_t from,
                           bool special) {
    uint32_t code;
    if (!m->ids) return (ig_match_hit){n, n, -1};
    for (size_t at = from; at < n; at++) {
        if (!m->begins[(unsigned char)text[at]]) continue;
        ig_match_hit hit = longest(m, v, text, n, at, special);
        if (hit.id < 0) continue;
        const ig_vocab_token *t = &v->tokens[hit.id];
        if ((t->flags & IG_TOKEN_SINGLE_WORD) && !stands_alone(text, n, hit.start, hit.end)) {
            at = hit.end - 1;
            continue;
        }
        if (t->flags & IG_TOKEN_LSTRIP)
            for (size_t prev; hit.start > from; hit.start = prev)
                if (prev = step_back(text, hit.start, &code), prev < from || !ig_utf8_is_space(code)) break;
        if (t->flags & IG_TOKEN_RSTRIP)
            for (size_t size; hit.end < n; hit.end += size)
                if ((size = ig_utf8_next(text + hit.end, n - hit.end, &code)) == 0 || !ig_utf8_is_space(code)) break;
        return hit;
    }
    return (ig_match_hit){n, n, -1};
}
