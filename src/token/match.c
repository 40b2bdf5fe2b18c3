/* SPDX-License-Identifier: Apache-2.0
 *
 * The trie of added tokens: children in lists, the first byte by table.
 */
#include "token/match.h"

#include <stdlib.h>

#include "token/utf8.h"

static bool is_member(const ig_vocab_token *t, bool normalized) {
    return (t->flags & IG_TOKEN_ADDED) && t->size && ((t->flags & IG_TOKEN_NORMALIZED) != 0) == normalized;
}

/* The child of `node` for a byte, made if missing; node 0 stands for the root. */
static int32_t step_or_add(ig_match *m, int32_t node, unsigned char byte) {
    int32_t *link = node ? &m->nodes[node].child : &m->roots[byte];
    while (*link && m->nodes[*link].byte != byte) link = &m->nodes[*link].sibling;
    if (!*link) {
        *link = m->n;
        m->nodes[m->n++] = (ig_match_node){.id = -1, .byte = byte};
    }
    return *link;
}

bool ig_match_open(ig_match *m, const ig_vocab *v, bool normalized, int32_t *duplicate) {
    size_t n_bytes = 0;
    *m = (ig_match){.n = 1};
    *duplicate = -1;
    for (int32_t id = 0; id < v->n; id++)
        if (is_member(&v->tokens[id], normalized)) n_bytes += v->tokens[id].size;
    if (n_bytes == 0) return true;
    if (n_bytes > INT32_MAX / 2) return false;
    m->nodes = malloc((n_bytes + 1) * sizeof *m->nodes);
    if (!m->nodes) return false;
    for (int32_t id = 0; id < v->n; id++) {
        const ig_vocab_token *t = &v->tokens[id];
        if (!is_member(t, normalized)) continue;
        int32_t node = 0;
        for (uint32_t i = 0; i < t->size; i++) node = step_or_add(m, node, (unsigned char)v->bytes.data[t->at + i]);
        if (m->nodes[node].id >= 0) {
            *duplicate = id;
            return true;
        }
        m->nodes[node].id = id;
    }
    return true;
}

void ig_match_close(ig_match *m) {
    free(m->nodes);
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
static int32_t longest(const ig_match *m, const ig_vocab *v, const char *text, size_t n, size_t at, bool special) {
    int32_t id = -1, node = m->roots[(unsigned char)text[at]];
    while (node) {
        int32_t found = m->nodes[node].id;
        if (found >= 0 && (special || !is_special(&v->tokens[found]))) id = found;
        if (++at == n) break;
        node = m->nodes[node].child;
        while (node && m->nodes[node].byte != (unsigned char)text[at]) node = m->nodes[node].sibling;
    }
    return id;
}

ig_match_hit ig_match_next(const ig_match *m, const ig_vocab *v, const char *text, size_t n, size_t from,
                           bool special) {
    uint32_t code;
    if (!m->nodes) return (ig_match_hit){n, n, -1};
    for (size_t at = from; at < n; at++) {
        if (!m->roots[(unsigned char)text[at]]) continue;
        int32_t id = longest(m, v, text, n, at, special);
        if (id < 0) continue;
        const ig_vocab_token *t = &v->tokens[id];
        ig_match_hit hit = {at, at + t->size, id};
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
