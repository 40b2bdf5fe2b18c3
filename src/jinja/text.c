/* SPDX-License-Identifier: Apache-2.0
 *
 * Strings as Python has them: characters, not bytes, are counted. Views are cut from the text where that will do.
 */
#define _GNU_SOURCE
#include <string.h>
#include <utf8proc.h>

#include "jinja/parts.h"

bool ig_j_same(ig_text a, ig_text b) { return a.size == b.size && (!a.size || memcmp(a.data, b.data, a.size) == 0); }

/* ---- characters ---------------------------------------------------------- */

size_t ig_j_char(ig_text text, int32_t *code) {
    utf8proc_ssize_t size = text.size < 4 ? (utf8proc_ssize_t)text.size : 4;
    utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)text.data, size, code);
    if (n > 0) return (size_t)n;
    *code = 0xfffd;
    return 1;
}

bool ig_j_char_is_space(int32_t code) {
    if (code < 0x80) return code == ' ' || (code >= 9 && code <= 13) || (code >= 0x1c && code <= 0x1f);
    const utf8proc_property_t *p = utf8proc_get_property(code);
    return p->category == UTF8PROC_CATEGORY_ZS || p->bidi_class == UTF8PROC_BIDI_CLASS_WS ||
           p->bidi_class == UTF8PROC_BIDI_CLASS_B || p->bidi_class == UTF8PROC_BIDI_CLASS_S;
}

static bool is_first_byte(char c) { return (c & 0xc0) != 0x80; }

bool ig_j_spend_chars(ig_j_render *r, ig_text text) { return ig_j_spend(r, text.size / IG_JINJA_STEP_CHARS); }

size_t ig_j_char_count(ig_j_render *r, ig_text text) {
    size_t n = 0;
    if (!ig_j_spend(r, text.size / IG_JINJA_STEP_BYTES)) return 0;
    for (size_t i = 0; i < text.size; i++) n += is_first_byte(text.data[i]);
    return n;
}

size_t ig_j_char_offset(ig_text text, size_t i) {
    size_t at = 0;
    for (size_t n = 0; at < text.size; at++) {
        n += is_first_byte(text.data[at]);
        if (n > i) break;
    }
    return at;
}

/* ---- finding ------------------------------------------------------------- */

size_t ig_j_find(ig_j_render *r, ig_text in, ig_text what, size_t from) {
    size_t at = from;
    if (from > in.size) return IG_J_ABSENT;
    if (what.size) {
        const char *hit = memmem(in.data + from, in.size - from, what.data, what.size);
        at = hit ? (size_t)(hit - in.data) : IG_J_ABSENT;
    }
    size_t seen = (at == IG_J_ABSENT ? in.size : at) - from + what.size;
    return ig_j_spend(r, seen / IG_JINJA_STEP_BYTES) ? at : IG_J_ABSENT;
}

size_t ig_j_find_last(ig_j_render *r, ig_text in, ig_text what) {
    size_t from = what.size <= in.size ? in.size - what.size + 1 : 0, at = from;
    while (at-- > 0) {
        if (what.size && in.data[at] != what.data[0]) continue;
        if (!ig_j_spend(r, what.size / IG_JINJA_STEP_BYTES)) return IG_J_ABSENT;
        if (ig_j_same((ig_text){in.data + at, what.size}, what)) break;
    }
    return ig_j_spend(r, (from - at) / IG_JINJA_STEP_CHARS) ? at : IG_J_ABSENT; /* which is 0 - 1 */
}

/* ---- cutting ------------------------------------------------------------- */

static bool is_among(const ig_text *chars, ig_text one, int32_t code) {
    if (!chars) return ig_j_char_is_space(code);
    return one.size <= chars->size && memmem(chars->data, chars->size, one.data, one.size) != NULL;
}

ig_text ig_j_strip(ig_text text, const ig_text *chars, int sides) {
    int32_t code;
    while ((sides & IG_J_LEFT) && text.size) {
        size_t n = ig_j_char(text, &code);
        if (!is_among(chars, (ig_text){text.data, n}, code)) break;
        text = (ig_text){text.data + n, text.size - n};
    }
    while ((sides & IG_J_RIGHT) && text.size) {
        size_t at = text.size - 1;
        while (at > 0 && !is_first_byte(text.data[at]) && text.size - at < 4) at--;
        ig_text last = {text.data + at, text.size - at};
        if (ig_j_char(last, &code) < last.size || !is_among(chars, last, code)) break;
        text.size = at;
    }
    return text;
}

ig_j_value ig_j_stripped(ig_j_render *r, ig_text text, ig_j_value chars, int sides) {
    bool blanks = chars.kind == IG_J_UNDEFINED || chars.kind == IG_J_NONE;
    ig_text set = blanks ? IG_J_NAMED("") : ig_j_want_string(r, chars);
    if (set.size > IG_JINJA_STRIP_BYTES)
        return ig_j_refuse(r, IG_E_LIMIT, "more than %d bytes of characters to be stripped", IG_JINJA_STRIP_BYTES);
    ig_text left = ig_j_strip(text, blanks ? NULL : &set, sides);
    ig_j_spend_chars(r, (ig_text){text.data, text.size - left.size});
    return ig_j_string(left);
}

ig_j_value ig_j_replace(ig_j_render *r, ig_text in, ig_text from, ig_text to, int64_t at_most) {
    ig_buffer out = {0};
    size_t at = 0;
    for (int64_t n = 0; (at_most < 0 || n < at_most) && ig_j_spend(r, 1); n++) {
        size_t hit = ig_j_find(r, in, from, at);
        if (hit == IG_J_ABSENT) break;
        ig_j_put(r, &out, (ig_text){in.data + at, hit - at});
        ig_j_put(r, &out, to);
        at = hit + from.size;
        if (from.size) continue;
        size_t next = at + ig_j_char_offset((ig_text){in.data + at, in.size - at}, 1); /* between all characters */
        ig_j_put(r, &out, (ig_text){in.data + at, next - at});
        if (next == at) return ig_j_take_string(r, &out);
        at = next;
    }
    if (at == 0) {
        ig_buffer_close(&out);
        return ig_j_string(in);
    }
    ig_j_put(r, &out, (ig_text){in.data + at, in.size - at});
    return ig_j_take_string(r, &out);
}

ig_j_value ig_j_escaped(ig_j_render *r, ig_j_value v) {
    static const struct {
        ig_text from, to;
    } marks[] = {{{"&", 1}, {"&amp;", 5}},
                 {{"<", 1}, {"&lt;", 4}},
                 {{">", 1}, {"&gt;", 4}},
                 {{"'", 1}, {"&#39;", 5}},
                 {{"\"", 1}, {"&#34;", 5}}};
    if (v.is_markup) return v;
    v = ig_j_string(ig_j_to_text(r, v));
    for (size_t i = 0; i < IG_COUNT(marks); i++) v = ig_j_replace(r, v.text, marks[i].from, marks[i].to, -1);
    v.is_markup = true;
    return v;
}

ig_j_list ig_j_split(ig_j_render *r, ig_text text, ig_text by, int64_t at_most) {
    ig_j_list parts = {0};
    for (size_t hit; at_most != 0 && ig_j_spend(r, 1) && (hit = ig_j_find(r, text, by, 0)) != IG_J_ABSENT; at_most--) {
        ig_j_list_add(r, &parts, ig_j_string((ig_text){text.data, hit}));
        hit += by.size;
        text = (ig_text){text.data + hit, text.size - hit};
    }
    ig_j_list_add(r, &parts, ig_j_string(text));
    return parts;
}

static bool ends_line(int32_t code) {
    return (code >= 10 && code <= 13) || (code >= 0x1c && code <= 0x1e) || code == 0x85 || code == 0x2028 ||
           code == 0x2029;
}

ig_j_list ig_j_split_lines(ig_j_render *r, ig_text text) {
    ig_j_list lines = {0};
    int32_t code;
    size_t begin = 0;
    if (!ig_j_spend_chars(r, text)) return lines;
    for (size_t at = 0, n; at < text.size; at += n) {
        n = ig_j_char((ig_text){text.data + at, text.size - at}, &code);
        if (!ends_line(code)) continue;
        ig_j_list_add(r, &lines, ig_j_string((ig_text){text.data + begin, at - begin}));
        if (code == '\r' && at + 1 < text.size && text.data[at + 1] == '\n') n = 2;
        begin = at + n;
    }
    if (begin < text.size) ig_j_list_add(r, &lines, ig_j_string((ig_text){text.data + begin, text.size - begin}));
    return lines;
}

/* ---- case ---------------------------------------------------------------- */

static bool is_cased(int32_t code) {
    utf8proc_category_t category = utf8proc_category(code);
    return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL || category == UTF8PROC_CATEGORY_LT;
}

static int32_t in_large(int32_t code, ig_j_case to) {
    return to == IG_J_CAPITAL || to == IG_J_TITLE ? utf8proc_totitle(code) : utf8proc_toupper(code);
}

/* Whether the next character, behind `before`, is one that is made large. */
static bool is_head(ig_j_case to, int32_t before) {
    if (to == IG_J_TITLE) return !is_cased(before);
    if (to == IG_J_HEADLINE) return !before || ig_j_char_is_space(before) || (before < 0x80 && strchr("-({[<", before));
    return to == IG_J_UPPER || (to == IG_J_CAPITAL && !before);
}

ig_j_value ig_j_in_case(ig_j_render *r, ig_text text, ig_j_case to) {
    ig_buffer out = {0};
    int32_t code, before = 0;
    char run[64];
    size_t n_run = 0;
    if (!ig_j_spend_chars(r, text)) return ig_j_none();
    for (size_t at = 0, n; at < text.size && !r->status; at += n) {
        n = ig_j_char((ig_text){text.data + at, text.size - at}, &code);
        int32_t made = is_head(to, before) ? in_large(code, to) : utf8proc_tolower(code);
        before = code;
        n_run += (size_t)utf8proc_encode_char(made, (utf8proc_uint8_t *)run + n_run);
        if (n_run < sizeof run - 4 && at + n < text.size) continue;
        ig_j_put(r, &out, (ig_text){run, n_run});
        n_run = 0;
    }
    return ig_j_take_string(r, &out);
}

bool ig_j_is_case(ig_j_render *r, ig_text text, ig_j_case is) {
    bool any = false;
    int32_t code;
    if (!ig_j_spend_chars(r, text)) return false;
    for (size_t at = 0; at < text.size;) {
        at += ig_j_char((ig_text){text.data + at, text.size - at}, &code);
        if (!is_cased(code)) continue;
        if (utf8proc_category(code) != (is == IG_J_UPPER ? UTF8PROC_CATEGORY_LU : UTF8PROC_CATEGORY_LL)) return false;
        any = true;
    }
    return any;
}
