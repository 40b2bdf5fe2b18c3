/* SPDX-License-Identifier: Apache-2.0
 *
 * Regular expressions of ECMA-262 of the kind that is a grammar as it stands. What they match is written as it is, or
 * for a schema's pattern as JSON strings are, each character in one way: `"` and `\` and five controls with a
 * backslash. Other controls are left out.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/schema_parts.h"
#include "token/utf8.h"

enum { MAX_BYTES = 4096, MAX_DEPTH = 32, MAX_RANGES = 256, LAST_ASCII = 0x7f, LAST_CODE = 0x10ffff };

typedef struct code_range {
    uint32_t from, to;
} code_range;

typedef struct code_set {
    code_range ranges[MAX_RANGES];
    size_t n;
    bool has_words; /* \d or \w is among them */
} code_set;

/* What was just written: how many characters it counts to when its repetitions are written out, and if it may be none.
 */
typedef struct extent {
    size_t n;
    bool may_be_empty;
} extent;

typedef struct reader {
    ig_schema_writer *w;
    const ig_schema_at *at;
    const char *name;     /* of the expression, for errors */
    const char *text, *p; /* where the reader is in it */
    int depth;
    bool is_whole;   /* it is all of an answer; else it is a JSON string, and the whole may have more around a match */
    bool in_literal; /* the last thing written is an open literal */
} reader;

static ig_status refuse(const reader *r, const char *what) {
    return ig_fail(r->w->err, IG_E_UNSUPPORTED, "%s: %s: %s is not supported (at byte %zu)", r->at->place, r->name,
                   what, (size_t)(r->p - r->text));
}

static bool skip(reader *r, const char *text) {
    size_t n = strlen(text);
    bool is_there = strncmp(r->p, text, n) == 0;
    if (is_there) r->p += n;
    return is_there;
}

/* A new element behind the last one. */
static ig_buffer *begin(reader *r) {
    ig_buffer_text(&r->w->line, r->in_literal ? "\" " : " ");
    r->in_literal = false;
    return &r->w->line;
}

/* ---- sets of characters ------------------------------------------------------ */

static const code_range digits[] = {{'0', '9'}}, words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
static const code_range blanks[] = {{9, 13},          {' ', ' '},       {0xa0, 0xa0},     {0x1680, 0x1680},
                                    {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f},
                                    {0x3000, 0x3000}, {0xfeff, 0xfeff}};
static const code_range line_ends[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
/* What stands for itself. Without what some call blank and others do not. */
static const code_range plain[] = {{'\t', '\n'},   {'\r', '\r'},     {' ', '~'},
                                   {0xa0, 0xd7ff}, {0xe000, 0xfefe}, {0xff00, LAST_CODE}};
static const code_range plain_in_json[] = {{' ', '!'},     {'#', '['},       {']', '~'},
                                           {0xa0, 0xd7ff}, {0xe000, 0xfefe}, {0xff00, LAST_CODE}};

/* As they are in the string and behind a backslash in its text. */
static const char escaped[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";

static void add(code_set *set, uint32_t from, uint32_t to) {
    if (set->n < MAX_RANGES) set->ranges[set->n++] = (code_range){from, to};
}

static int compare(const void *a, const void *b) {
    uint32_t x = ((const code_range *)a)->from, y = ((const code_range *)b)->from;
    return (x > y) - (x < y);
}

static void add_all(code_set *set, const code_range *ranges, size_t n) {
    for (size_t i = 0; i < n; i++) add(set, ranges[i].from, ranges[i].to);
}

/* What is up to `last` and in none of the sorted ranges. */
static void add_others(code_set *set, const code_range *ranges, size_t n, uint32_t last) {
    uint32_t next = 0;
    for (size_t i = 0; i < n && next <= last; i++) {
        if (ranges[i].from > next) add(set, next, ranges[i].from - 1 < last ? ranges[i].from - 1 : last);
        if (ranges[i].to >= next) next = ranges[i].to + 1;
    }
    if (next <= last) add(set, next, last);
}

/* The set that a letter stands for. Some take \d and \w to have digits and letters of all scripts, so what is in
 * neither is ASCII. */
static bool add_named(code_set *set, char letter) {
    static const struct {
        const char *letters; /* for it, and for all else */
        const code_range *ranges;
        size_t n;
        uint32_t last;
    } sets[] = {{"dD", digits, IG_COUNT(digits), LAST_ASCII},
                {"wW", words, IG_COUNT(words), LAST_ASCII},
                {"sS", blanks, IG_COUNT(blanks), LAST_CODE}};
    for (size_t i = 0; i < IG_COUNT(sets) && letter; i++) {
        if (!strchr(sets[i].letters, letter)) continue;
        set->has_words |= sets[i].last == LAST_ASCII;
        if (letter == *sets[i].letters)
            add_all(set, sets[i].ranges, sets[i].n);
        else
            add_others(set, sets[i].ranges, sets[i].n, sets[i].last);
        return true;
    }
    return false;
}

static ig_status write_set(reader *r, code_set *set) {
    ig_buffer found = {0}, behind = {0};
    const code_range *own = r->is_whole ? plain : plain_in_json;
    size_t n_own = r->is_whole ? IG_COUNT(plain) : IG_COUNT(plain_in_json);
    qsort(set->ranges, set->n, sizeof *set->ranges, compare);
    for (size_t i = 0; i < set->n; i++) {
        code_range range = set->ranges[i];
        for (size_t k = 0; k < n_own; k++) {
            uint32_t from = range.from > own[k].from ? range.from : own[k].from;
            uint32_t to = range.to < own[k].to ? range.to : own[k].to;
            if (from > to) continue;
            ig_schema_class_char(&found, from);
            if (to > from + 1) ig_buffer_text(&found, "-");
            if (to > from) ig_schema_class_char(&found, to);
        }
        for (size_t k = 0; escaped[k] && !r->is_whole; k++)
            if (range.from <= (uint32_t)escaped[k] && range.to >= (uint32_t)escaped[k])
                ig_schema_class_char(&behind, (uint32_t)letters[k]);
    }
    ig_buffer *line = begin(r);
    if (behind.size) ig_buffer_text(line, "(");
    if (found.size) ig_buffer_format(line, "[%s]", found.data);
    if (behind.size) ig_buffer_format(line, "%s\"\\\\\" [%s])", found.size ? " | " : "", behind.data);
    bool is_empty = !found.size && !behind.size;
    line->failed |= found.failed || behind.failed;
    ig_buffer_close(&found);
    ig_buffer_close(&behind);
    return is_empty && !line->failed ? refuse(r, "a set of no characters, or of controls") : IG_OK;
}

/* ---- single characters ------------------------------------------------------- */

static bool read_hex(reader *r, size_t n, uint32_t *code) {
    char text[9] = {0};
    if (n > 8 || strspn(r->p, "0123456789abcdefABCDEF") < n) return false;
    memcpy(text, r->p, n);
    *code = (uint32_t)strtoul(text, NULL, 16);
    r->p += n;
    return n > 0;
}

/* Behind \u: four digits, twice that for a surrogate pair, or any number in braces. */
static bool read_unicode(reader *r, uint32_t *code) {
    uint32_t low;
    if (skip(r, "{")) return read_hex(r, strcspn(r->p, "}"), code) && skip(r, "}") && *code <= LAST_CODE;
    if (!read_hex(r, 4, code)) return false;
    if (*code < 0xd800 || *code > 0xdfff) return true;
    if (*code > 0xdbff || !skip(r, "\\u") || !read_hex(r, 4, &low) || low < 0xdc00 || low > 0xdfff) return false;
    *code = 0x10000 + ((*code - 0xd800) << 10) + (low - 0xdc00);
    return true;
}

/* Behind a backslash: a character, or a set of them that is added. */
static ig_status read_escape(reader *r, code_set *set, uint32_t *code) {
    static const char names[] = "tnrfv", codes[] = "\t\n\r\f\v";
    char c = *r->p;
    const char *name = c ? strchr(names, c) : NULL;
    bool is_read = true;
    if (c) r->p++;
    if (add_named(set, c)) return IG_OK;
    if (name)
        *code = (uint32_t)codes[name - names];
    else if (c == 'x')
        is_read = read_hex(r, 2, code);
    else if (c == 'u')
        is_read = read_unicode(r, code);
    else if (c > ' ' && c < 0x7f && ispunct((unsigned char)c))
        *code = (uint32_t)c;
    else
        is_read = false;
    return is_read ? IG_OK : refuse(r, "the escape before this");
}

static ig_status read_code(reader *r, code_set *set, uint32_t *code) {
    if (skip(r, "\\")) return read_escape(r, set, code);
    size_t n = ig_utf8_next(r->p, strnlen(r->p, 4), code);
    r->p += n;
    return n ? IG_OK : refuse(r, "what is not UTF-8");
}

/* One part of [...]: a set, a character or a range of them. */
static ig_status read_class_part(reader *r, code_set *set) {
    size_t n = set->n;
    uint32_t from = 0, to;
    ig_status s = read_code(r, set, &from);
    bool is_set = set->n > n;
    if (s) return s;
    to = from;
    if (*r->p == '-' && r->p[1] && r->p[1] != ']') {
        n = set->n;
        r->p++;
        s = read_code(r, set, &to);
        if (!s && (is_set || set->n > n || to < from)) return refuse(r, "the range before this");
    }
    if (!s && !is_set) add(set, from, to);
    return s;
}

static ig_status read_class(reader *r, code_set *set) {
    bool is_inverse = skip(r, "^");
    code_set inner = {.n = 0};
    ig_status s = IG_OK;
    if (*r->p == ']') return refuse(r, "an empty class");
    while (*r->p && *r->p != ']' && !s) s = read_class_part(r, &inner);
    if (s) return s;
    if (!skip(r, "]")) return refuse(r, "a class without an end");
    if (inner.n >= MAX_RANGES - 1) return refuse(r, "a class of so many parts");
    qsort(inner.ranges, inner.n, sizeof *inner.ranges, compare);
    if (is_inverse)
        add_others(set, inner.ranges, inner.n, inner.has_words ? LAST_ASCII : LAST_CODE);
    else
        add_all(set, inner.ranges, inner.n);
    return IG_OK;
}

/* ---- repetitions ------------------------------------------------------------- */

static bool is_repeated(const char *p) {
    return *p == '*' || *p == '+' || *p == '?' || (*p == '{' && isdigit((unsigned char)p[1]));
}

static size_t read_count(reader *r) {
    size_t n = 0;
    for (; isdigit((unsigned char)*r->p); r->p++)
        if (n <= IG_SCHEMA_REPEAT) n = 10 * n + (size_t)(*r->p - '0');
    return n;
}

static bool read_span(reader *r, ig_schema_span *span) {
    char c = *r->p++;
    *span = (ig_schema_span){c == '+', c == '?' ? 1 : SIZE_MAX};
    if (c == '{') {
        span->min = span->max = read_count(r);
        if (skip(r, ",")) span->max = isdigit((unsigned char)*r->p) ? read_count(r) : SIZE_MAX;
        if (!skip(r, "}")) return false;
    }
    skip(r, "?"); /* which of several matches it is says nothing here */
    return span->max && span->min <= span->max;
}

static ig_status read_repetition(reader *r, extent *e) {
    ig_schema_span span;
    if (!is_repeated(r->p)) return IG_OK;
    if (!read_span(r, &span)) return refuse(r, "the repetition before this");
    if (e->may_be_empty && span.max > 1) return refuse(r, "repeating what may be empty, before this,");
    size_t n = span.max != SIZE_MAX ? span.max : span.min ? span.min : 1;
    if (n > IG_SCHEMA_REPEAT || e->n * n > IG_SCHEMA_REPEAT)
        return ig_fail(r->w->err, IG_E_LIMIT, "%s: %s repeats more than %d", r->at->place, r->name, IG_SCHEMA_REPEAT);
    ig_schema_times(&r->w->line, span);
    e->n *= n;
    e->may_be_empty |= !span.min;
    return IG_OK;
}

/* ---- elements ---------------------------------------------------------------- */

static void write_code(reader *r, uint32_t code) {
    const char *letter = code < 0x80 && !r->is_whole ? strchr(escaped, (char)code) : NULL;
    ig_buffer *line = &r->w->line;
    if (is_repeated(r->p) || !r->in_literal) ig_buffer_text(begin(r), "\"");
    if (letter) ig_buffer_text(line, "\\\\");
    if (letter) code = (uint32_t)letters[letter - escaped];
    if (code == '"' || code == '\\') ig_buffer_text(line, "\\");
    if (code >= ' ' && code < 0x7f)
        ig_buffer_add(line, &(char){(char)code}, 1);
    else
        ig_schema_class_char(line, code);
    r->in_literal = !is_repeated(r->p);
    if (!r->in_literal) ig_buffer_text(line, "\"");
}

/* A character, or a set of them. */
static ig_status read_single(reader *r) {
    code_set set = {.n = 0};
    uint32_t code = 0;
    ig_status s = IG_OK;
    if (skip(r, "."))
        add_others(&set, line_ends, IG_COUNT(line_ends), LAST_CODE);
    else if (skip(r, "["))
        s = read_class(r, &set);
    else
        s = read_code(r, &set, &code);
    if (s) return s;
    if (!set.n && ((code < ' ' && !strchr(r->is_whole ? "\n\r\t" : "\b\f\n\r\t", (char)code)) || !code || code == 0x7f))
        return refuse(r, "a control character");
    if (set.n) return write_set(r, &set);
    write_code(r, code);
    return IG_OK;
}

static ig_status read_alternatives(reader *r, extent *e);

static ig_status read_group(reader *r, extent *e) {
    if (skip(r, "?") && !skip(r, ":")) return refuse(r, "a group of this kind");
    if (r->depth == MAX_DEPTH) return refuse(r, "so deep a group");
    ig_buffer_text(begin(r), "(");
    r->depth++;
    ig_status s = read_alternatives(r, e);
    r->depth--;
    ig_buffer_text(begin(r), ")");
    if (!s && !skip(r, ")")) return refuse(r, "a group without an end");
    return s;
}

static ig_status read_element(reader *r, extent *e) {
    *e = (extent){1, false};
    if (strchr("*+?{^$", *r->p)) return refuse(r, "this here");
    ig_status s = skip(r, "(") ? read_group(r, e) : read_single(r);
    return s ? s : read_repetition(r, e);
}

static ig_status read_sequence(reader *r, extent *e) {
    ig_status s = IG_OK;
    *e = (extent){0, true};
    while (*r->p && *r->p != '|' && *r->p != ')' && !(*r->p == '$' && !r->depth) && !s) {
        extent one;
        s = read_element(r, &one);
        if (s) return s;
        e->n += one.n;
        e->may_be_empty &= one.may_be_empty;
    }
    return s;
}

static void write_anything(reader *r) {
    ig_buffer_text(begin(r), "char*");
    r->w->used |= IG_BIT(IG_COMMON_CHAR);
}

/* Without ^ and $ anything may stand before and behind, unless the expression is all of an answer. */
static ig_status read_alternatives(reader *r, extent *e) {
    bool is_outer = !r->depth;
    *e = (extent){0, false};
    do {
        extent one;
        if (e->n || e->may_be_empty) ig_buffer_text(begin(r), "|");
        if (is_outer && !skip(r, "^") && !r->is_whole) write_anything(r);
        ig_status s = read_sequence(r, &one);
        if (s) return s;
        if (is_outer && !skip(r, "$") && !r->is_whole) write_anything(r);
        e->n += one.n;
        e->may_be_empty |= one.may_be_empty;
    } while (skip(r, "|"));
    return IG_OK;
}

/* Writes it between two texts. */
static ig_status write_expression(reader *r, const char *before, const char *behind) {
    extent all;
    ig_schema_writer *w = r->w;
    if (strlen(r->text) > MAX_BYTES)
        return ig_fail(w->err, IG_E_LIMIT, "%s: %s is longer than %d bytes", r->at->place, r->name, MAX_BYTES);
    ig_buffer_text(&w->line, before);
    ig_status s = read_alternatives(r, &all);
    if (!s && *r->p) return refuse(r, "this here");
    ig_buffer_text(begin(r), behind);
    return s ? s : ig_schema_expand(w, r->at, all.n);
}

ig_status ig_schema_pattern(ig_schema_writer *w, const ig_schema_at *at) {
    const char *text = json_string_value(json_object_get(at->schema, "pattern"));
    reader r = {.w = w, .at = at, .name = "'pattern'", .text = text, .p = text};
    if (!text) return ig_fail(w->err, IG_E_FORMAT, "%s: 'pattern' is not a text", at->place);
    return write_expression(&r, "\"\\\"\" (", ") \"\\\"\"");
}

ig_status ig_regex_to_gbnf(char **out, const char *expression, ig_error *err) {
    ig_schema_writer w = {.err = err};
    ig_schema_at at = {.place = "regex"};
    reader r = {.w = &w, .at = &at, .name = "the expression", .text = expression, .p = expression, .is_whole = true};
    if (out) *out = NULL;
    if (!out || !expression) return ig_fail(err, IG_E_ARG, "ig_regex_to_gbnf: an expression and a result are needed");
    ig_status s = write_expression(&r, "root ::=", "\n");
    if (!s && w.line.failed) s = ig_fail_memory(err, "a grammar", w.line.size);
    if (!s)
        *out = w.line.data;
    else
        ig_buffer_close(&w.line);
    return s;
}
