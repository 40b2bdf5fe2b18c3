/* SPDX-License-Identifier: Apache-2.0
 *
 * Methods of Python's strings, lists and dicts. Those that change a list or dict are not there, as in Jinja's sandbox.
 */
#include <string.h>
#include <utf8proc.h>

#include "jinja/parts.h"

/* ---- strings ----------------------------------------------------------------- */

static ig_j_value strip(ig_j_render *r, ig_j_call *c, int sides) {
    return ig_j_like(ig_j_stripped(r, c->self.text, c->v[0], sides), c->self);
}
static ig_j_value str_strip(ig_j_render *r, ig_j_call *c) { return strip(r, c, IG_J_LEFT | IG_J_RIGHT); }
static ig_j_value str_lstrip(ig_j_render *r, ig_j_call *c) { return strip(r, c, IG_J_LEFT); }
static ig_j_value str_rstrip(ig_j_render *r, ig_j_call *c) { return strip(r, c, IG_J_RIGHT); }
static ig_j_value in_case(ig_j_render *r, ig_j_call *c, ig_j_case to) {
    return ig_j_like(ig_j_in_case(r, c->self.text, to), c->self);
}
static ig_j_value str_lower(ig_j_render *r, ig_j_call *c) { return in_case(r, c, IG_J_LOWER); }
static ig_j_value str_upper(ig_j_render *r, ig_j_call *c) { return in_case(r, c, IG_J_UPPER); }
static ig_j_value str_title(ig_j_render *r, ig_j_call *c) { return in_case(r, c, IG_J_TITLE); }
static ig_j_value str_capitalize(ig_j_render *r, ig_j_call *c) { return in_case(r, c, IG_J_CAPITAL); }
static ig_j_value str_islower(ig_j_render *r, ig_j_call *c) {
    return ig_j_bool(ig_j_is_case(r, c->self.text, IG_J_LOWER));
}
static ig_j_value str_isupper(ig_j_render *r, ig_j_call *c) {
    return ig_j_bool(ig_j_is_case(r, c->self.text, IG_J_UPPER));
}
static ig_j_value str_splitlines(ig_j_render *r, ig_j_call *c) {
    return ig_j_listed(IG_J_LIST, ig_j_split_lines(r, c->self.text));
}

static ig_text piece(ig_text text, size_t from, size_t to) { return (ig_text){text.data + from, to - from}; }

/* All words between blanks. */
static ig_j_list split_words(ig_j_render *r, ig_text text) {
    ig_j_list words = {0};
    if (!ig_j_spend_chars(r, text)) return words;
    for (text = ig_j_strip(text, NULL, IG_J_LEFT); text.size && ig_j_spend(r, 1);
         text = ig_j_strip(text, NULL, IG_J_LEFT)) {
        size_t end = 0;
        int32_t code;
        while (end < text.size) {
            size_t n = ig_j_char(piece(text, end, text.size), &code);
            if (ig_j_char_is_space(code)) break;
            end += n;
        }
        ig_j_list_add(r, &words, ig_j_string(piece(text, 0, end)));
        text = piece(text, end, text.size);
    }
    return words;
}

/* The first or last at_most words alone, and what is before or behind them as it is. */
static ig_j_list cut_words(ig_j_render *r, ig_text text, int64_t at_most, bool from_right) {
    ig_j_list words = split_words(r, text), cut = {0};
    if (at_most < 0 || words.n <= at_most || r->status) return words;
    uint32_t n = (uint32_t)at_most, edge = from_right ? words.n - n - 1 : n;
    const ig_text word = words.v[edge].text;
    size_t begin = (size_t)(word.data - text.data);
    if (from_right) ig_j_list_add(r, &cut, ig_j_string(piece(text, 0, begin + word.size)));
    for (uint32_t i = 0; i < n; i++) ig_j_list_add(r, &cut, words.v[from_right ? edge + 1 + i : i]);
    if (!from_right) ig_j_list_add(r, &cut, ig_j_string(piece(text, begin, text.size)));
    return cut;
}

static ig_j_list split_at_last(ig_j_render *r, ig_text text, ig_text by, int64_t at_most) {
    ig_j_list parts = {0}, turned = {0};
    for (size_t hit; at_most != 0 && ig_j_spend(r, 1) && (hit = ig_j_find_last(r, text, by)) != IG_J_ABSENT;
         at_most--) {
        ig_j_list_add(r, &parts, ig_j_string(piece(text, hit + by.size, text.size)));
        text = piece(text, 0, hit);
    }
    ig_j_list_add(r, &turned, ig_j_string(text));
    for (uint32_t i = parts.n; i-- > 0;) ig_j_list_add(r, &turned, parts.v[i]);
    return turned;
}

static ig_j_value split(ig_j_render *r, ig_j_call *c, bool from_right) {
    int64_t at_most = ig_j_want_int(r, c->v[1], -1);
    if (c->v[0].kind == IG_J_UNDEFINED || c->v[0].kind == IG_J_NONE)
        return ig_j_listed(IG_J_LIST, cut_words(r, c->self.text, at_most, from_right));
    ig_text by = ig_j_want_string(r, c->v[0]);
    if (!by.size) return ig_j_refuse(r, IG_E_FORMAT, "split by an empty str");
    return ig_j_listed(IG_J_LIST, (from_right ? split_at_last : ig_j_split)(r, c->self.text, by, at_most));
}

static ig_j_value str_split(ig_j_render *r, ig_j_call *c) { return split(r, c, false); }
static ig_j_value str_rsplit(ig_j_render *r, ig_j_call *c) { return split(r, c, true); }

static bool has_end(ig_j_render *r, ig_text text, ig_text end, bool last) {
    if (end.size > text.size || !ig_j_spend(r, end.size / IG_JINJA_STEP_BYTES)) return false;
    return ig_j_same(end, piece(text, last ? text.size - end.size : 0, last ? text.size : end.size));
}

/* One str or a tuple of them. */
static ig_j_value has_any_end(ig_j_render *r, ig_j_call *c, bool last) {
    ig_j_value ends = c->v[0];
    if (ends.kind != IG_J_TUPLE) return ig_j_bool(has_end(r, c->self.text, ig_j_want_string(r, ends), last));
    for (uint32_t i = 0; i < ends.list.n && ig_j_spend(r, 1); i++)
        if (has_end(r, c->self.text, ig_j_want_string(r, ends.list.v[i]), last)) return ig_j_bool(true);
    return ig_j_bool(false);
}

static ig_j_value str_startswith(ig_j_render *r, ig_j_call *c) { return has_any_end(r, c, false); }
static ig_j_value str_endswith(ig_j_render *r, ig_j_call *c) { return has_any_end(r, c, true); }

static ig_j_value str_removeprefix(ig_j_render *r, ig_j_call *c) {
    ig_text end = ig_j_want_string(r, c->v[0]), text = c->self.text;
    return ig_j_string(has_end(r, text, end, false) ? piece(text, end.size, text.size) : text);
}

static ig_j_value str_removesuffix(ig_j_render *r, ig_j_call *c) {
    ig_text end = ig_j_want_string(r, c->v[0]), text = c->self.text;
    return ig_j_string(has_end(r, text, end, true) ? piece(text, 0, text.size - end.size) : text);
}

/* The number of characters before it; -1 if it is not there. */
static ig_j_value find(ig_j_render *r, ig_j_call *c, bool last) {
    ig_text text = c->self.text, what = ig_j_want_string(r, c->v[0]);
    size_t hit = last ? ig_j_find_last(r, text, what) : ig_j_find(r, text, what, 0);
    return ig_j_int(hit == IG_J_ABSENT ? -1 : (int64_t)ig_j_char_count(r, piece(text, 0, hit)));
}

static ig_j_value str_find(ig_j_render *r, ig_j_call *c) { return find(r, c, false); }
static ig_j_value str_rfind(ig_j_render *r, ig_j_call *c) { return find(r, c, true); }

static ig_j_value str_index(ig_j_render *r, ig_j_call *c) {
    ig_j_value at = find(r, c, false);
    return at.i < 0 ? ig_j_refuse(r, IG_E_FORMAT, "the str that index() looks for is not there") : at;
}

static ig_j_value str_count(ig_j_render *r, ig_j_call *c) {
    ig_text what = ig_j_want_string(r, c->v[0]);
    int64_t n = 0;
    if (!what.size) return ig_j_int((int64_t)ig_j_char_count(r, c->self.text) + 1);
    for (size_t at = 0; ig_j_spend(r, 1) && (at = ig_j_find(r, c->self.text, what, at)) != IG_J_ABSENT; n++)
        at += what.size;
    return ig_j_int(n);
}

static ig_j_value str_replace(ig_j_render *r, ig_j_call *c) {
    ig_text from = ig_j_want_string(r, c->v[0]), to = ig_j_want_string(r, c->v[1]);
    return ig_j_replace(r, c->self.text, from, to, ig_j_want_int(r, c->v[2], -1));
}

static ig_j_value str_join(ig_j_render *r, ig_j_call *c) {
    ig_j_list items = ig_j_iterate(r, c->v[0]);
    ig_buffer out = {0};
    for (uint32_t i = 0; i < items.n && !r->status; i++) {
        if (i) ig_j_put(r, &out, c->self.text);
        ig_j_put(r, &out, ig_j_want_string(r, items.v[i]));
    }
    return ig_j_take_string(r, &out);
}

/* What stands for a field of format(): "" is the next argument, a number one of them, else a name. */
static ig_j_value field(ig_j_render *r, const ig_j_call *c, ig_text name, uint32_t *next) {
    uint64_t i = name.size ? 0 : (*next)++;
    bool is_number = true;
    for (size_t k = 0; k < name.size; k++) {
        is_number = is_number && name.data[k] >= '0' && name.data[k] <= '9' && i < UINT32_MAX;
        if (is_number) i = i * 10 + (uint64_t)(name.data[k] - '0');
    }
    const ig_j_value *v = is_number ? (i < c->n ? &c->v[i] : NULL) : ig_j_dict_named(r, &c->named, name);
    return v ? *v : ig_j_refuse(r, IG_E_FORMAT, "format() has no argument '%.*s'", IG_SHOW(name));
}

static ig_j_value str_format(ig_j_render *r, ig_j_call *c) {
    ig_text text = c->self.text;
    ig_buffer out = {0};
    uint32_t next = 0;
    for (size_t at = 0, end; at < text.size && !r->status; at = end) {
        char b = text.data[at];
        end = at + 1;
        if ((b == '{' || b == '}') && end < text.size && text.data[end] == b) {
            ig_j_put(r, &out, piece(text, at, end++));
        } else if (b == '{') {
            while (end < text.size && !memchr("}!:.[{", text.data[end], 6)) end++;
            if (end == text.size || text.data[end] != '}')
                ig_j_refuse(r, IG_E_UNSUPPORTED, "format() with more than names in braces is not supported");
            else
                ig_j_put_value(r, &out, field(r, c, piece(text, at + 1, end++), &next));
        } else if (b == '}') {
            ig_j_refuse(r, IG_E_FORMAT, "format() of a '}' alone");
        } else {
            while (end < text.size && text.data[end] != '{' && text.data[end] != '}') end++;
            ig_j_put(r, &out, piece(text, at, end));
        }
    }
    return ig_j_take_string(r, &out);
}

/* Whether all characters, and at least one, are of such categories of Unicode. */
static ig_j_value all_within(ig_j_render *r, const ig_j_call *c, utf8proc_category_t first, utf8proc_category_t last) {
    int32_t code;
    if (!ig_j_spend_chars(r, c->self.text)) return ig_j_none();
    for (size_t at = 0; at < c->self.text.size;) {
        at += ig_j_char(piece(c->self.text, at, c->self.text.size), &code);
        utf8proc_category_t category = utf8proc_category(code);
        if (category < first || category > last) return ig_j_bool(false);
    }
    return ig_j_bool(c->self.text.size > 0);
}

static ig_j_value str_isalpha(ig_j_render *r, ig_j_call *c) {
    return all_within(r, c, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LO);
}
static ig_j_value str_isdigit(ig_j_render *r, ig_j_call *c) {
    return all_within(r, c, UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_ND);
}
static ig_j_value str_isnumeric(ig_j_render *r, ig_j_call *c) {
    return all_within(r, c, UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NO);
}
static ig_j_value str_isspace(ig_j_render *r, ig_j_call *c) {
    return ig_j_bool(c->self.text.size && !ig_j_stripped(r, c->self.text, ig_j_none(), IG_J_LEFT).text.size);
}

static const ig_j_builtin str_methods[] = {
    {"strip", str_strip, "chars", 0},
    {"lstrip", str_lstrip, "chars", 0},
    {"rstrip", str_rstrip, "chars", 0},
    {"split", str_split, "sep maxsplit", 0},
    {"rsplit", str_rsplit, "sep maxsplit", 0},
    {"splitlines", str_splitlines, "", 0},
    {"startswith", str_startswith, "prefix", 1},
    {"endswith", str_endswith, "suffix", 1},
    {"removeprefix", str_removeprefix, "prefix", 1},
    {"removesuffix", str_removesuffix, "suffix", 1},
    {"replace", str_replace, "old new count", 2},
    {"find", str_find, "sub", 1},
    {"rfind", str_rfind, "sub", 1},
    {"index", str_index, "sub", 1},
    {"count", str_count, "sub", 1},
    {"join", str_join, "iterable", 1},
    {"format", str_format, NULL, 0},
    {"lower", str_lower, "", 0},
    {"upper", str_upper, "", 0},
    {"title", str_title, "", 0},
    {"capitalize", str_capitalize, "", 0},
    {"islower", str_islower, "", 0},
    {"isupper", str_isupper, "", 0},
    {"isalpha", str_isalpha, "", 0},
    {"isdigit isdecimal", str_isdigit, "", 0},
    {"isnumeric", str_isnumeric, "", 0},
    {"isspace", str_isspace, "", 0},
};

/* ---- lists, dicts, cyclers -------------------------------------------------------- */

static ig_j_value list_index(ig_j_render *r, ig_j_call *c) {
    for (uint32_t i = 0; i < c->self.list.n && !r->status; i++)
        if (ig_j_equal(r, c->self.list.v[i], c->v[0])) return ig_j_int(i);
    return ig_j_refuse(r, IG_E_FORMAT, "the value that index() looks for is not there");
}

static ig_j_value list_count(ig_j_render *r, ig_j_call *c) {
    int64_t n = 0;
    for (uint32_t i = 0; i < c->self.list.n && !r->status; i++) n += ig_j_equal(r, c->self.list.v[i], c->v[0]);
    return ig_j_int(n);
}

static ig_j_value copy(ig_j_render *r, ig_j_call *c) { return (void)r, c->self; }

static ig_j_value dict_get(ig_j_render *r, ig_j_call *c) {
    const ig_j_value *v = ig_j_dict_find(r, &c->self.dict, c->v[0]);
    bool has_default = c->v[1].kind != IG_J_UNDEFINED || c->n + c->named.n > 1;
    return v ? *v : has_default ? c->v[1] : ig_j_none();
}

static ig_j_value dict_items(ig_j_render *r, ig_j_call *c) {
    ig_j_list all = {0};
    for (uint32_t i = 0; i < c->self.dict.n && !r->status; i++)
        ig_j_list_add(r, &all, ig_j_dict_item(r, c->self.dict.v[i]));
    return ig_j_listed(IG_J_VIEW, all);
}

static ig_j_value dict_keys(ig_j_render *r, ig_j_call *c) { return ig_j_listed(IG_J_VIEW, ig_j_iterate(r, c->self)); }

static ig_j_value dict_values(ig_j_render *r, ig_j_call *c) {
    ig_j_list all = {0};
    for (uint32_t i = 0; i < c->self.dict.n && !r->status; i++) ig_j_list_add(r, &all, c->self.dict.v[i].value);
    return ig_j_listed(IG_J_VIEW, all);
}

static ig_j_value cycler_next(ig_j_render *r, ig_j_call *c) {
    ig_j_cycler *y = c->self.cycler;
    ig_j_value now = y->items.v[y->at];
    y->at = (y->at + 1) % y->items.n;
    return (void)r, now;
}

static ig_j_value cycler_reset(ig_j_render *r, ig_j_call *c) {
    c->self.cycler->at = 0;
    return (void)r, ig_j_none();
}

static const ig_j_builtin cycler_methods[] = {{"next", cycler_next, "", 0}, {"reset", cycler_reset, "", 0}};

static const ig_j_builtin list_methods[] = {
    {"index", list_index, "value", 1}, {"count", list_count, "value", 1}, {"copy", copy, "", 0}};

static const ig_j_builtin dict_methods[] = {
    {"get", dict_get, "key default", 1}, {"items", dict_items, "", 0}, {"keys", dict_keys, "", 0},
    {"values", dict_values, "", 0},      {"copy", copy, "", 0},
};

const ig_j_builtin *ig_j_method_named(ig_j_value of, ig_text name) {
    if (of.kind == IG_J_STRING) return ig_j_builtin_find(str_methods, IG_COUNT(str_methods), name);
    if (of.kind == IG_J_DICT) return ig_j_builtin_find(dict_methods, IG_COUNT(dict_methods), name);
    if (of.kind == IG_J_CYCLER) return ig_j_builtin_find(cycler_methods, IG_COUNT(cycler_methods), name);
    bool is_list = of.kind == IG_J_LIST || of.kind == IG_J_TUPLE;
    return is_list ? ig_j_builtin_find(list_methods, IG_COUNT(list_methods), name) : NULL;
}
