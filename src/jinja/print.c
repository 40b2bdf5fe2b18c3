/* SPDX-License-Identifier: Apache-2.0
 *
 * Values as text: as Python's str() and repr() show them, and as its json module writes them.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "jinja/parts.h"

void ig_j_put(ig_j_render *r, ig_buffer *b, ig_text text) {
    if (!ig_j_spend(r, 1 + text.size / IG_JINJA_STEP_BYTES)) return;
    if (text.size > IG_JINJA_STRING_BYTES - b->size) {
        ig_j_refuse(r, IG_E_LIMIT, "a text of more than %d bytes", IG_JINJA_STRING_BYTES);
        return;
    }
    ig_buffer_add(b, text.data, text.size);
    if (b->failed) ig_j_refuse(r, IG_E_MEMORY, "out of memory for a text of %zu bytes", b->size + text.size);
}

static void put(ig_j_render *r, ig_buffer *b, const char *text) { ig_j_put(r, b, (ig_text){text, strlen(text)}); }

ig_j_value ig_j_take_string(ig_j_render *r, ig_buffer *b) {
    size_t size = b->size;
    char *text = r->status ? NULL : ig_j_take(r, size);
    if (text && size) memcpy(text, b->data, size);
    ig_buffer_close(b);
    return text ? ig_j_string((ig_text){text, size}) : ig_j_string(IG_J_NAMED(""));
}

ig_j_value ig_j_joined(ig_j_render *r, ig_text a, ig_text b) {
    ig_j_pool *pool = &r->pool;
    bool is_last = a.size && a.data + a.size == pool->base + pool->used; /* then the other is put behind it */
    if (a.size + b.size > IG_JINJA_STRING_BYTES)
        return ig_j_refuse(r, IG_E_LIMIT, "a text of more than %d bytes", IG_JINJA_STRING_BYTES);
    if (!ig_j_spend(r, (b.size + (is_last ? 0 : a.size)) / IG_JINJA_STEP_BYTES)) return ig_j_none();
    if (is_last && b.size <= pool->size - pool->used) {
        memcpy(pool->base + pool->used, b.data, b.size);
        pool->used += b.size;
        return ig_j_string((ig_text){a.data, a.size + b.size});
    }
    char *text = ig_j_take(r, a.size + b.size);
    if (!text) return ig_j_none();
    if (a.size) memcpy(text, a.data, a.size);
    if (b.size) memcpy(text + a.size, b.data, b.size);
    return ig_j_string((ig_text){text, a.size + b.size});
}

/* ---- numbers ------------------------------------------------------------- */

/* The shortest digits that read back as f, with an exponent where Python has one. */
static void put_float(ig_j_render *r, ig_buffer *b, double f) {
    char digits[40];
    int precision = 0;
    if (isnan(f) || isinf(f)) {
        put(r, b, isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
        return;
    }
    do snprintf(digits, sizeof digits, "%.*e", precision, f);
    while (strtod(digits, NULL) != f && precision++ < 17);
    int exponent = atoi(strchr(digits, 'e') + 1);
    if (exponent >= -4 && exponent < 16)
        snprintf(digits, sizeof digits, "%.*f", precision > exponent ? precision - exponent : 1, f);
    put(r, b, digits);
}

static void put_int(ig_j_render *r, ig_buffer *b, int64_t i) {
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, i);
    put(r, b, text);
}

/* ---- strings with escapes ------------------------------------------------ */

static bool is_printable(int32_t code) {
    utf8proc_category_t category = utf8proc_category(code);
    return code == ' ' || (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_SO);
}

/* What a character is written as in quotes of Python; false: as it is. */
static bool python_escape(char out[16], int32_t code, char quote) {
    if (code == '\n' || code == '\r' || code == '\t')
        snprintf(out, 16, "\\%c", code == '\n' ? 'n' : code == '\r' ? 'r' : 't');
    else if (code == '\\' || code == quote)
        snprintf(out, 16, "\\%c", (char)code);
    else if (is_printable(code))
        return false;
    else
        snprintf(out, 16, code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned)code);
    return true;
}

static bool json_escape(char out[16], int32_t code, char ascii) {
    static const char plain[] = "\"\\\b\f\n\r\t", names[] = "\"\\bfnrt";
    const char *known = code && code < 0x80 ? strchr(plain, code) : NULL;
    unsigned high = 0xd800 + (((unsigned)code - 0x10000) >> 10), low = 0xdc00 + ((unsigned)code & 0x3ff);
    if (known)
        snprintf(out, 16, "\\%c", names[known - plain]);
    else if (code >= 0x20 && (code < 0x7f || !ascii))
        return false;
    else if (code < 0x10000)
        snprintf(out, 16, "\\u%04x", (unsigned)code);
    else
        snprintf(out, 16, "\\u%04x\\u%04x", high, low);
    return true;
}

typedef bool escape_fn(char out[16], int32_t code, char how);

static void put_escaped(ig_j_render *r, ig_buffer *b, ig_text text, escape_fn *escape, char how) {
    char escaped[16];
    int32_t code;
    size_t begin = 0;
    if (!ig_j_spend_chars(r, text)) return;
    for (size_t at = 0, n; at < text.size && !r->status; at += n) {
        n = ig_j_char((ig_text){text.data + at, text.size - at}, &code);
        if (!escape(escaped, code, how)) continue;
        ig_j_put(r, b, (ig_text){text.data + begin, at - begin});
        put(r, b, escaped);
        begin = at + n;
    }
    if (begin < text.size) ig_j_put(r, b, (ig_text){text.data + begin, text.size - begin});
}

static void put_quoted(ig_j_render *r, ig_buffer *b, ig_text text) {
    bool has_single = text.size && memchr(text.data, '\'', text.size);
    char quote = has_single && !memchr(text.data, '"', text.size) ? '"' : '\'';
    ig_j_put(r, b, (ig_text){&quote, 1});
    put_escaped(r, b, text, python_escape, quote);
    ig_j_put(r, b, (ig_text){&quote, 1});
}

/* ---- str() and repr() ---------------------------------------------------- */

static void put_repr(ig_j_render *r, ig_buffer *b, ig_j_value v);

static void put_items(ig_j_render *r, ig_buffer *b, ig_j_list items, const char *brackets) {
    ig_j_put(r, b, (ig_text){brackets, 1});
    for (uint32_t i = 0; i < items.n && !r->status; i++) {
        if (i) put(r, b, ", ");
        put_repr(r, b, items.v[i]);
    }
    if (items.n == 1 && *brackets == '(') put(r, b, ",");
    put(r, b, brackets + 1);
}

static void put_dict(ig_j_render *r, ig_buffer *b, ig_j_dict d) {
    put(r, b, "{");
    for (uint32_t i = 0; i < d.n && !r->status; i++) {
        if (i) put(r, b, ", ");
        put_repr(r, b, d.v[i].key);
        put(r, b, ": ");
        put_repr(r, b, d.v[i].value);
    }
    put(r, b, "}");
}

static void put_simple(ig_j_render *r, ig_buffer *b, ig_j_value v) {
    if (v.kind == IG_J_STRING)
        ig_j_put(r, b, v.text);
    else if (v.kind == IG_J_NONE)
        put(r, b, "None");
    else if (v.kind == IG_J_BOOL)
        put(r, b, v.yes ? "True" : "False");
    else if (v.kind == IG_J_INT)
        put_int(r, b, v.i);
    else if (v.kind == IG_J_FLOAT)
        put_float(r, b, v.f);
    else if (v.kind == IG_J_DICT)
        put_dict(r, b, v.dict);
    else if (v.kind == IG_J_LIST || v.kind == IG_J_TUPLE || v.kind == IG_J_VIEW)
        put_items(r, b, v.list, v.kind == IG_J_TUPLE ? "()" : "[]");
    else if (v.kind != IG_J_UNDEFINED) /* Python shows where it lies */
        put(r, b, "<"), put(r, b, ig_j_kind_name(v)), put(r, b, ">");
}

static void put_repr(ig_j_render *r, ig_buffer *b, ig_j_value v) {
    if (!ig_j_enter(r)) return;
    if (v.kind == IG_J_STRING)
        put_quoted(r, b, v.text);
    else if (v.kind == IG_J_UNDEFINED)
        put(r, b, "Undefined");
    else
        put_simple(r, b, v);
    r->depth--;
}

void ig_j_put_value(ig_j_render *r, ig_buffer *b, ig_j_value v) {
    if (!ig_j_enter(r)) return;
    put_simple(r, b, v);
    r->depth--;
}

ig_text ig_j_to_text(ig_j_render *r, ig_j_value v) {
    ig_buffer b = {0};
    if (v.kind == IG_J_STRING) return v.text;
    ig_j_put_value(r, &b, v);
    return ig_j_take_string(r, &b).text;
}

/* ---- JSON ---------------------------------------------------------------- */

typedef struct json_style {
    bool ascii, sorted, has_lines;
    ig_text indent, comma, colon;
} json_style;

static void put_json(ig_j_render *r, ig_buffer *b, ig_j_value v, const json_style *s, int level);

static void put_line(ig_j_render *r, ig_buffer *b, const json_style *s, int level) {
    if (!s->has_lines) return;
    put(r, b, "\n");
    for (int i = 0; i < level && !r->status; i++) ig_j_put(r, b, s->indent);
}

static void put_json_string(ig_j_render *r, ig_buffer *b, ig_text text, const json_style *s) {
    put(r, b, "\"");
    put_escaped(r, b, text, json_escape, s->ascii);
    put(r, b, "\"");
}

static void put_json_list(ig_j_render *r, ig_buffer *b, ig_j_list l, const json_style *s, int level) {
    put(r, b, "[");
    for (uint32_t i = 0; i < l.n && !r->status; i++) {
        if (i) ig_j_put(r, b, s->comma);
        put_line(r, b, s, level + 1);
        put_json(r, b, l.v[i], s, level + 1);
    }
    if (l.n) put_line(r, b, s, level);
    put(r, b, "]");
}

static ig_j_dict sorted_dict(ig_j_render *r, ig_j_dict d) {
    ig_j_list keys = {0}, items = {0};
    ig_j_dict sorted = {0};
    for (uint32_t i = 0; i < d.n; i++) {
        ig_j_list_add(r, &keys, d.v[i].key);
        ig_j_list_add(r, &items, ig_j_int(i));
    }
    items = ig_j_sorted(r, items, keys, false);
    for (uint32_t i = 0; i < items.n; i++) ig_j_dict_add(r, &sorted, d.v[items.v[i].i].key, d.v[items.v[i].i].value);
    return sorted;
}

static void put_json_dict(ig_j_render *r, ig_buffer *b, ig_j_dict d, const json_style *s, int level) {
    if (s->sorted) d = sorted_dict(r, d);
    put(r, b, "{");
    for (uint32_t i = 0; i < d.n && !r->status; i++) {
        ig_j_value key = d.v[i].key;
        if (i) ig_j_put(r, b, s->comma);
        put_line(r, b, s, level + 1);
        if (key.kind == IG_J_STRING) {
            put_json_string(r, b, key.text, s);
        } else if (key.kind <= IG_J_FLOAT) {
            put(r, b, "\"");
            put_json(r, b, key, s, level);
            put(r, b, "\"");
        } else {
            ig_j_refuse(r, IG_E_FORMAT, "'%s' cannot be a key in JSON", ig_j_kind_name(key));
        }
        ig_j_put(r, b, s->colon);
        put_json(r, b, d.v[i].value, s, level + 1);
    }
    if (d.n) put_line(r, b, s, level);
    put(r, b, "}");
}

static void put_json(ig_j_render *r, ig_buffer *b, ig_j_value v, const json_style *s, int level) {
    if (!ig_j_enter(r)) return;
    if (v.kind == IG_J_NONE)
        put(r, b, "null");
    else if (v.kind == IG_J_BOOL)
        put(r, b, v.yes ? "true" : "false");
    else if (v.kind == IG_J_FLOAT && !isfinite(v.f))
        put(r, b, isnan(v.f) ? "NaN" : v.f < 0 ? "-Infinity" : "Infinity");
    else if (ig_j_is_number(v))
        put_simple(r, b, v);
    else if (v.kind == IG_J_STRING)
        put_json_string(r, b, v.text, s);
    else if (v.kind == IG_J_LIST || v.kind == IG_J_TUPLE)
        put_json_list(r, b, v.list, s, level);
    else if (v.kind == IG_J_DICT)
        put_json_dict(r, b, v.dict, s, level);
    else
        ig_j_refuse(r, IG_E_FORMAT, "'%s' cannot be JSON", ig_j_kind_name(v));
    r->depth--;
}

/* tojson(ensure_ascii, indent, separators, sort_keys) */
ig_j_value ig_j_to_json(ig_j_render *r, ig_j_call *c) {
    static const char blanks[] = "                ";
    ig_j_value indent = c->v[1], separators = c->v[2];
    json_style s = {.ascii = ig_j_truth(c->v[0]), .sorted = ig_j_truth(c->v[3])};
    s.has_lines = indent.kind != IG_J_UNDEFINED && indent.kind != IG_J_NONE;
    if (indent.kind == IG_J_STRING) {
        s.indent = indent.text;
    } else if (s.has_lines) {
        int64_t n = ig_j_want_int(r, indent, 0);
        if (n >= (int64_t)sizeof blanks) return ig_j_refuse(r, IG_E_LIMIT, "tojson: more than 16 blanks");
        s.indent = (ig_text){blanks, n > 0 ? (size_t)n : 0};
    }
    s.comma = s.has_lines ? IG_J_NAMED(",") : IG_J_NAMED(", ");
    s.colon = IG_J_NAMED(": ");
    if (ig_j_truth(separators)) {
        ig_j_list two = ig_j_iterate(r, separators);
        if (two.n != 2) return ig_j_refuse(r, IG_E_FORMAT, "tojson: separators are two");
        s.comma = ig_j_want_string(r, two.v[0]);
        s.colon = ig_j_want_string(r, two.v[1]);
    }
    ig_buffer b = {0};
    put_json(r, &b, c->self, &s, 0);
    return ig_j_take_string(r, &b);
}
