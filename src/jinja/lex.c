/* SPDX-License-Identifier: Apache-2.0
 *
 * Templates to tokens. Blanks around tags are dealt with here: a minus takes them all, a tag or comment alone at the
 * start of a line takes those before it (lstrip_blocks) and one newline behind it (trim_blocks), a plus prevents that.
 */
#define _GNU_SOURCE
#include <string.h>

#include "jinja/node.h"

static ig_j_token token(const ig_j_lexer *l, ig_j_token_kind kind, size_t from, size_t to) {
    return (ig_j_token){kind, l->line, {l->source.data + from, to - from}};
}

static ig_j_token bad(ig_j_lexer *l, const char *why) {
    l->at = l->source.size;
    l->inside = IG_J_TOKEN_DATA;
    return (ig_j_token){IG_J_TOKEN_BAD, l->line, {why, strlen(why)}};
}

static bool starts(const ig_j_lexer *l, size_t at, const char *mark) {
    size_t n = strlen(mark);
    return at <= l->source.size && n <= l->source.size - at && memcmp(l->source.data + at, mark, n) == 0;
}

static char sign_at(const ig_j_lexer *l, size_t at) {
    char c = at < l->source.size ? l->source.data[at] : 0;
    return c == '-' || c == '+' ? c : 0;
}

static size_t find(const ig_j_lexer *l, size_t at, const char *mark) {
    const char *hit = memmem(l->source.data + at, l->source.size - at, mark, strlen(mark));
    return hit ? (size_t)(hit - l->source.data) : l->source.size;
}

static size_t skip_blanks(const ig_j_lexer *l, size_t at) {
    int32_t code;
    while (at < l->source.size) {
        size_t n = ig_j_char((ig_text){l->source.data + at, l->source.size - at}, &code);
        if (!ig_j_char_is_space(code)) break;
        at += n;
    }
    return at;
}

static void move(ig_j_lexer *l, size_t to) {
    for (; l->at < to; l->at++) l->line += l->source.data[l->at] == '\n';
}

/* Where the text goes on behind the closing mark at `at`; 0 if there is none. */
static size_t match_end(const ig_j_lexer *l, size_t at, const char *mark, bool trims) {
    char sign = sign_at(l, at);
    if (sign == '+' && !trims) return 0;
    if (!starts(l, at + (sign != 0), mark)) return 0;
    at += strlen(mark) + (sign != 0);
    if (sign == '-') return skip_blanks(l, at);
    return at + (!sign && trims && starts(l, at, "\n"));
}

/* The same behind the tag at `at` if it is `word` alone. */
static size_t match_word(const ig_j_lexer *l, size_t at, const char *word, bool trims) {
    at += 2;
    at = skip_blanks(l, at + (sign_at(l, at) != 0));
    if (!starts(l, at, word)) return 0;
    return match_end(l, skip_blanks(l, at + strlen(word)), "%}", trims);
}

/* Text up to the mark at `to`, without the blanks that the mark takes. */
static ig_j_token data(const ig_j_lexer *l, size_t from, size_t to) {
    char sign = sign_at(l, to + 2);
    ig_j_token t = token(l, IG_J_TOKEN_DATA, from, to);
    if (to == l->source.size) return t;
    if (sign == '-') {
        t.text = ig_j_strip(t.text, NULL, IG_J_RIGHT);
    } else if (!sign && !starts(l, to, "{{")) {
        const char *newline = memrchr(t.text.data, '\n', t.text.size);
        size_t line = newline ? (size_t)(newline - l->source.data) + 1 : from;
        bool is_start = line == 0 || l->source.data[line - 1] == '\n';
        if (is_start && skip_blanks(l, line) >= to) t.text.size = line - from;
    }
    return t;
}

static ig_j_token skip_comment(ig_j_lexer *l) {
    size_t begin = l->at + 2 + (sign_at(l, l->at + 2) != 0), end = find(l, begin, "#}");
    if (end == l->source.size) return bad(l, "a comment does not end");
    if (end > begin && sign_at(l, end - 1)) end--;
    move(l, match_end(l, end, "#}", true));
    return token(l, IG_J_TOKEN_DATA, l->at, l->at);
}

static ig_j_token lex_raw(ig_j_lexer *l, size_t begin) {
    for (size_t at = begin; (at = find(l, at, "{%")) < l->source.size; at += 2) {
        size_t end = match_word(l, at, "endraw", true);
        if (!end) continue;
        move(l, begin);
        ig_j_token t = data(l, begin, at);
        move(l, end);
        return t;
    }
    return bad(l, "a raw block does not end");
}

/* What begins with the mark at l->at: a tag or an output, or text without any. */
static ig_j_token lex_mark(ig_j_lexer *l) {
    size_t raw = 0;
    if (starts(l, l->at, "{#")) return skip_comment(l);
    if (starts(l, l->at, "{%")) raw = match_word(l, l->at, "raw", false);
    if (raw) return lex_raw(l, raw);
    l->inside = starts(l, l->at, "{{") ? IG_J_TOKEN_OUTPUT : IG_J_TOKEN_TAG;
    ig_j_token t = token(l, l->inside, l->at, l->at + 2);
    l->at += 2 + (size_t)(sign_at(l, l->at + 2) != 0);
    return t;
}

static ig_j_token lex_data(ig_j_lexer *l) {
    while (l->at < l->source.size) {
        size_t to = l->at;
        while (to < l->source.size && !starts(l, to, "{{") && !starts(l, to, "{%") && !starts(l, to, "{#")) to++;
        ig_j_token t = data(l, l->at, to);
        move(l, to);
        if (t.text.size) return t;
        if (to < l->source.size) t = lex_mark(l);
        if (t.kind != IG_J_TOKEN_DATA || t.text.size) return t;
    }
    return token(l, IG_J_TOKEN_END, l->at, l->at);
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80); }

/* NULs behind the source end all of these. */
static ig_j_token lex_number(ig_j_lexer *l) {
    const char *begin = l->source.data + l->at, *p = begin, *e;
    bool is_float = false, may_be = l->at == 0 || begin[-1] != '.';
    while (is_digit(*p)) p++;
    if (may_be && p[0] == '.' && is_digit(p[1]))
        for (is_float = true, p++; is_digit(*p);) p++;
    e = p + (p[1] == '+' || p[1] == '-') + 1;
    if (may_be && (*p == 'e' || *p == 'E') && is_digit(*e))
        for (is_float = true, p = e; is_digit(*p);) p++;
    if (!is_float && *begin == '0' && p > begin + 1) return bad(l, "a number begins with 0");
    if (*p == '_' || (*begin == '0' && p == begin + 1 && *p && strchr("bBoOxX", *p)))
        return bad(l, "a number is written otherwise than by decimal digits");
    l->at += (size_t)(p - begin);
    return token(l, is_float ? IG_J_TOKEN_FLOAT : IG_J_TOKEN_INT, l->at - (size_t)(p - begin), l->at);
}

static ig_j_token lex_string(ig_j_lexer *l) {
    size_t begin = l->at + 1, end = begin;
    char quote = l->source.data[l->at];
    while (end < l->source.size && l->source.data[end] != quote) end += l->source.data[end] == '\\' ? 2 : 1;
    if (end >= l->source.size) return bad(l, "a string does not end");
    ig_j_token t = token(l, IG_J_TOKEN_STRING, begin, end);
    move(l, end + 1);
    return t;
}

static ig_j_token lex_sign(ig_j_lexer *l) {
    static const char *const signs[] = {"==", "!=", ">=", "<=", "//", "**"};
    char c = l->source.data[l->at];
    size_t n = 1;
    for (size_t i = 0; i < IG_COUNT(signs); i++)
        if (starts(l, l->at, signs[i])) n = 2;
    if (n == 1 && !memchr("+-/*%~[](){}><=.:|,", c, 19)) return bad(l, "a character that means nothing here");
    if (strchr("([{", c)) l->n_open++;
    if (strchr(")]}", c) && --l->n_open < 0) return bad(l, "a bracket closes that was not opened");
    l->at += n;
    return token(l, IG_J_TOKEN_SIGN, l->at - n, l->at);
}

static ig_j_token lex_inside(ig_j_lexer *l) {
    bool is_tag = l->inside == IG_J_TOKEN_TAG;
    size_t end = 0;
    for (size_t next = l->at;; move(l, next)) { /* a closing mark may follow blanks, and be no minus */
        end = l->n_open ? 0 : match_end(l, l->at, is_tag ? "%}" : "}}", is_tag);
        next = skip_blanks(l, l->at);
        if (end || next == l->at) break;
    }
    if (end) {
        ig_j_token t = token(l, is_tag ? IG_J_TOKEN_TAG_END : IG_J_TOKEN_OUTPUT_END, l->at, l->at);
        move(l, end);
        l->inside = IG_J_TOKEN_DATA;
        return t;
    }
    if (l->at == l->source.size) return bad(l, is_tag ? "a tag does not end" : "an output does not end");
    char c = l->source.data[l->at];
    if (is_digit(c)) return lex_number(l);
    if (c == '"' || c == '\'') return lex_string(l);
    if (!is_letter(c)) return lex_sign(l);
    size_t begin = l->at;
    while (is_letter(l->source.data[l->at]) || is_digit(l->source.data[l->at])) l->at++;
    return token(l, IG_J_TOKEN_NAME, begin, l->at);
}

ig_j_token ig_j_lex(ig_j_lexer *l) { return l->inside == IG_J_TOKEN_DATA ? lex_data(l) : lex_inside(l); }
