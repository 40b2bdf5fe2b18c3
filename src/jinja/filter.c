/* SPDX-License-Identifier: Apache-2.0
 *
 * Filters that make one value of one. Those of text take any value as its text.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "jinja/node.h"

static ig_text text_of(ig_j_render *r, const ig_j_call *c) { return ig_j_to_text(r, c->self); }

/* ---- text ------------------------------------------------------------------- */

static ig_j_value in_case(ig_j_render *r, ig_j_call *c, ig_j_case to) {
    return ig_j_like(ig_j_in_case(r, text_of(r, c), to), c->self);
}
static ig_j_value filter_lower(ig_j_render *r, ig_j_call *c) { return in_case(r, c, IG_J_LOWER); }
static ig_j_value filter_upper(ig_j_render *r, ig_j_call *c) { return in_case(r, c, IG_J_UPPER); }
static ig_j_value filter_capitalize(ig_j_render *r, ig_j_call *c) { return in_case(r, c, IG_J_CAPITAL); }
/* Loses the mark of `safe`, as in Jinja, and so does replace. */
static ig_j_value filter_title(ig_j_render *r, ig_j_call *c) { return ig_j_in_case(r, text_of(r, c), IG_J_HEADLINE); }

static ig_j_value filter_string(ig_j_render *r, ig_j_call *c) {
    return c->self.kind == IG_J_STRING ? c->self : ig_j_string(text_of(r, c));
}

static ig_j_value filter_trim(ig_j_render *r, ig_j_call *c) {
    return ig_j_like(ig_j_stripped(r, text_of(r, c), c->v[0], IG_J_LEFT | IG_J_RIGHT), c->self);
}

static ig_j_value filter_replace(ig_j_render *r, ig_j_call *c) {
    ig_text text = text_of(r, c), from = ig_j_to_text(r, c->v[0]), to = ig_j_to_text(r, c->v[1]);
    return ig_j_replace(r, text, from, to, ig_j_want_int(r, c->v[2], -1));
}

static ig_j_value filter_safe(ig_j_render *r, ig_j_call *c) {
    ig_j_value v = ig_j_string(text_of(r, c));
    v.is_markup = true;
    return v;
}

static ig_j_value filter_escape(ig_j_render *r, ig_j_call *c) { return ig_j_escaped(r, c->self); }

/* indent(width, first, blank) */
static ig_j_value filter_indent(ig_j_render *r, ig_j_call *c) {
    ig_text text = ig_j_want_string(r, c->self), blank = IG_J_NAMED(" ");
    bool first = ig_j_truth(c->v[1]), blanks = ig_j_truth(c->v[2]);
    int64_t width = c->v[0].kind == IG_J_STRING ? 1 : ig_j_want_int(r, c->v[0], 4);
    if (c->v[0].kind == IG_J_STRING) blank = c->v[0].text;
    ig_j_list lines = ig_j_split_lines(r, ig_j_joined(r, text, IG_J_NAMED("\n")).text);
    ig_buffer out = {0};
    for (uint32_t i = 0; i < lines.n && !r->status; i++) {
        ig_text line = lines.v[i].text;
        bool indents = i ? blanks || line.size : first;
        if (i) ig_j_put(r, &out, IG_J_NAMED("\n"));
        for (int64_t k = 0; indents && k < width && !r->status; k++) ig_j_put(r, &out, blank);
        ig_j_put(r, &out, line);
    }
    return ig_j_like(ig_j_take_string(r, &out), c->self);
}

static ig_j_value filter_wordcount(ig_j_render *r, ig_j_call *c) {
    ig_text text = text_of(r, c);
    int64_t n = 0;
    int32_t code;
    bool within = false;
    if (!ig_j_spend_chars(r, text)) return ig_j_none();
    for (size_t at = 0; at < text.size;) {
        at += ig_j_char((ig_text){text.data + at, text.size - at}, &code);
        utf8proc_category_t category = utf8proc_category(code);
        bool is_letter = category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
        bool is_digit = category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
        bool is_word = is_letter || is_digit || code == '_';
        n += is_word && !within;
        within = is_word;
    }
    return ig_j_int(n);
}

/* ---- numbers ------------------------------------------------------------------ */

/* A number that is written like a literal, blanks around it. */
static bool read_float(ig_text text, double *f) {
    char digits[64], *end;
    text = ig_j_strip(text, NULL, IG_J_LEFT | IG_J_RIGHT);
    if (!text.size || text.size >= sizeof digits) return false;
    for (size_t i = 0; i < text.size; i++)
        if (!memchr("0123456789.eE+-", text.data[i], 15)) return false;
    memcpy(digits, text.data, text.size);
    digits[text.size] = 0;
    *f = strtod(digits, &end);
    return *end == 0;
}

static ig_j_value cut_float(ig_j_render *r, double f, ig_j_value otherwise) {
    if (!isfinite(f)) return otherwise;
    if (fabs(f) >= 9.2e18) return ig_j_refuse(r, IG_E_LIMIT, "a number is too large");
    return ig_j_int((int64_t)f);
}

/* int(default, base) */
static ig_j_value filter_int(ig_j_render *r, ig_j_call *c) {
    ig_j_value otherwise = ig_j_given(c, ig_j_int(0));
    int64_t base = ig_j_want_int(r, c->v[1], 10);
    double f;
    if (c->self.kind == IG_J_UNDEFINED) ig_j_refuse(r, IG_E_FORMAT, "'%.*s' is undefined", IG_SHOW(c->self.text));
    if (ig_j_is_whole(c->self)) return ig_j_int(ig_j_whole(c->self));
    if (c->self.kind == IG_J_FLOAT) return cut_float(r, c->self.f, otherwise);
    if (c->self.kind != IG_J_STRING) return otherwise;
    if (base != 10) return ig_j_refuse(r, IG_E_UNSUPPORTED, "int() of a base other than 10 is not supported");
    ig_text text = ig_j_strip(c->self.text, NULL, IG_J_LEFT | IG_J_RIGHT);
    int64_t i = 0;
    size_t at = text.size && (text.data[0] == '-' || text.data[0] == '+'), first = at;
    for (; at < text.size && text.data[at] >= '0' && text.data[at] <= '9'; at++)
        if (__builtin_mul_overflow(i, 10, &i) || __builtin_sub_overflow(i, text.data[at] - '0', &i))
            return ig_j_refuse(r, IG_E_LIMIT, "a number is too large");
    if (at == text.size && at > first) return text.data[0] == '-' ? ig_j_int(i) : ig_j_negate(r, ig_j_int(i), true);
    return read_float(text, &f) ? cut_float(r, f, otherwise) : otherwise;
}

static ig_j_value filter_float(ig_j_render *r, ig_j_call *c) {
    double f;
    if (c->self.kind == IG_J_UNDEFINED) ig_j_refuse(r, IG_E_FORMAT, "'%.*s' is undefined", IG_SHOW(c->self.text));
    if (ig_j_is_number(c->self)) return ig_j_float(ig_j_number(c->self));
    if (c->self.kind == IG_J_STRING && read_float(c->self.text, &f)) return ig_j_float(f);
    return ig_j_given(c, ig_j_float(0));
}

static ig_j_value filter_abs(ig_j_render *r, ig_j_call *c) {
    ig_j_value v = c->self;
    if (!ig_j_is_number(v)) return ig_j_refuse(r, IG_E_FORMAT, "abs() of '%s'", ig_j_kind_name(v));
    if (v.kind == IG_J_FLOAT) return ig_j_float(fabs(v.f));
    if (ig_j_whole(v) == INT64_MIN) return ig_j_refuse(r, IG_E_LIMIT, "a number is too large");
    return ig_j_int(ig_j_whole(v) < 0 ? -ig_j_whole(v) : ig_j_whole(v));
}

/* round(precision, method) */
static ig_j_value filter_round(ig_j_render *r, ig_j_call *c) {
    char digits[400];
    int64_t precision = ig_j_want_int(r, c->v[0], 0);
    bool is_common = c->v[1].kind == IG_J_UNDEFINED || ig_j_same(ig_j_want_string(r, c->v[1]), IG_J_NAMED("common"));
    if (!ig_j_is_number(c->self)) return ig_j_refuse(r, IG_E_FORMAT, "round() of '%s'", ig_j_kind_name(c->self));
    if (precision < 0 || precision > 15)
        return ig_j_refuse(r, IG_E_UNSUPPORTED, "round() to %d digits", (int)precision);
    double f = ig_j_number(c->self), scale = pow(10, (double)precision);
    if (is_common) {
        if (ig_j_is_whole(c->self)) return ig_j_int(ig_j_whole(c->self));
        snprintf(digits, sizeof digits, "%.*f", (int)precision, f);
        return ig_j_float(strtod(digits, NULL));
    }
    if (ig_j_same(c->v[1].text, IG_J_NAMED("ceil"))) return ig_j_float(ceil(f * scale) / scale);
    if (ig_j_same(c->v[1].text, IG_J_NAMED("floor"))) return ig_j_float(floor(f * scale) / scale);
    return ig_j_refuse(r, IG_E_FORMAT, "round() takes common, ceil or floor");
}

/* ---- others -------------------------------------------------------------------- */

/* default(default_value, boolean) */
static ig_j_value filter_default(ig_j_render *r, ig_j_call *c) {
    bool is_given = c->self.kind != IG_J_UNDEFINED && (!ig_j_truth(c->v[1]) || ig_j_truth(c->self));
    if (is_given) return (void)r, c->self;
    return ig_j_given(c, ig_j_string(IG_J_NAMED("")));
}

static ig_j_value filter_attr(ig_j_render *r, ig_j_call *c) {
    ig_text name = ig_j_want_string(r, c->v[0]);
    return c->self.kind == IG_J_DICT ? ig_j_undefined(name)
                                     : ig_j_attribute(r, c->self, name); /* never a key's value */
}

static const ig_j_builtin filters[] = {
    {"trim", filter_trim, "chars", 0},
    {"tojson", ig_j_to_json, "ensure_ascii indent separators sort_keys", 0},
    {"default d", filter_default, "default_value boolean", 0},
    {"string", filter_string, "", 0},
    {"safe", filter_safe, "", 0},
    {"lower", filter_lower, "", 0},
    {"upper", filter_upper, "", 0},
    {"title", filter_title, "", 0},
    {"capitalize", filter_capitalize, "", 0},
    {"replace", filter_replace, "old new count", 2},
    {"indent", filter_indent, "width first blank", 0},
    {"wordcount", filter_wordcount, "", 0},
    {"escape e", filter_escape, "", 0},
    {"int", filter_int, "default base", 0},
    {"float", filter_float, "default", 0},
    {"abs", filter_abs, "", 0},
    {"round", filter_round, "precision method", 0},
    {"attr", filter_attr, "name", 1},
};

const ig_j_builtin *ig_j_filter_named(ig_text name) {
    const ig_j_builtin *f = ig_j_builtin_find(filters, IG_COUNT(filters), name);
    return f ? f : ig_j_list_filter_named(name);
}
