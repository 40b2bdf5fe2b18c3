/* SPDX-License-Identifier: Apache-2.0
 *
 * Rules that are the same in every grammar, and how rules are written.
 *
 * Formats are such that readers of all kinds take them: years from 1000, days that are there, labels of host names
 * without runs of hyphens, lengths that stay under every limit of theirs.
 */
#include <stdio.h>
#include <string.h>

#include "grammar/schema_parts.h"

enum { MAX_OUT = 4 << 20, MAX_REPEATED = 200000 };

#define B(name) IG_BIT(IG_COMMON_##name)

/* In the order of ig_schema_common, with ' where the grammar has ". */
static const struct {
    const char *name, *text;
    uint64_t uses;
} common[IG_N_COMMON] = {
    {"object", "'{' space (member (',' space member)* space)? '}'", B(MEMBER) | B(SPACE)},
    {"array", "'[' space (value (',' space value)* space)? ']'", B(VALUE) | B(SPACE)},
    {"string", "'\\\"' char* '\\\"'", B(CHAR)},
    {"number", "'-'? natural ('.' [0-9]{1,16})? ([eE] [+\\-]? [0-9]{1,2})?", B(NATURAL)},
    {"integer", "'0' | '-'? [1-9] [0-9]{0,15}", 0},
    {"boolean", "'true' | 'false'", 0},
    {"null", "'null'", 0},
    {"value", "object | array | string | number | boolean | null", IG_TYPES & ~B(INTEGER)},
    {"member", "string ':' space value", B(STRING) | B(SPACE) | B(VALUE)},
    {"natural", "'0' | [1-9] [0-9]{0,15}", 0},
    {"date-time", "date 'T' time", B(DATE) | B(TIME)},
    {"date", "[1-9] [0-9]{3} '-' date--day | date--leap-year '-02-29'", B(DAY) | B(LEAP_YEAR)},
    {"time", "time--hour ':' time--60 ':' time--60 ('.' [0-9]{1,6})? ('Z' | [+\\-] time--hour ':' time--60)",
     B(HOUR) | B(SIXTY)},
    {"duration", "'P' (duration--n 'W' | duration--date duration--time? | duration--time)",
     B(SPAN_DATE) | B(SPAN_TIME) | B(SPAN_N)},
    {"uuid", "hex{8} '-' hex{4} '-' hex{4} '-' hex{4} '-' hex{12}", B(HEX)},
    {"email", "email--atom ('.' email--atom){0,2} '@' (hostname--label '.'){1,3} [a-zA-Z]{2,12}", B(ATOM) | B(LABEL)},
    {"uri", "[a-z] [a-z0-9+.\\-]{0,14} '://' hostname (':' [1-9] [0-9]{0,3})? ('/' uri--char{0,200})? uri--end",
     B(HOSTNAME) | B(URI_CHAR) | B(URI_END)},
    {"hostname", "(hostname--label '.'){0,4} hostname--last", B(LABEL) | B(LAST_LABEL)},
    {"ipv4", "ipv4--byte ('.' ipv4--byte){3}", B(BYTE)},
    {"ipv6", "ipv6--word (':' ipv6--word){7} | (ipv6--word (':' ipv6--word){0,2})? '::' ipv6--end",
     B(WORD) | B(IPV6_END)},
    {"date--day",
     "('0' [1-9] | '1' [0-2]) '-' ('0' [1-9] | '1' [0-9] | '2' [0-8])"
     " | ('0' [13-9] | '1' [0-2]) '-' ('29' | '30') | ('0' [13578] | '1' [02]) '-31'",
     0},
    {"date--leap-year", "[1-9] [0-9] ('0' [48] | [2468] [048] | [13579] [26]) | ([2468] [048] | [13579] [26]) '00'", 0},
    {"time--hour", "[01] [0-9] | '2' [0-3]", 0},
    {"time--60", "[0-5] [0-9]", 0},
    {"duration--date",
     "duration--n 'Y' (duration--n 'M' (duration--n 'D')?)?"
     " | duration--n 'M' (duration--n 'D')? | duration--n 'D'",
     B(SPAN_N)},
    {"duration--time",
     "'T' (duration--n 'H' (duration--n 'M' (duration--n 'S')?)?"
     " | duration--n 'M' (duration--n 'S')? | duration--n 'S')",
     B(SPAN_N)},
    {"duration--n", "[0-9]{1,6}", 0},
    {"email--atom", "[a-zA-Z0-9_+\\-]{1,20}", 0},
    {"hostname--label", "[a-zA-Z0-9]{1,15} ('-' [a-zA-Z0-9]{1,15}){0,2}", 0},
    {"hostname--last", "[a-zA-Z] [a-zA-Z0-9]{0,14} ('-' [a-zA-Z0-9]{1,15}){0,2}", 0},
    {"uri--char", "[a-zA-Z0-9_.~!$&()*+,;=:@/\\-] | '%' hex{2}", B(HEX)},
    {"uri--end", "('?' uri--char{0,200})? ('#' uri--char{0,200})?", B(URI_CHAR)},
    {"ipv4--byte", "'25' [0-5] | '2' [0-4] [0-9] | '1' [0-9]{2} | [1-9] [0-9] | [0-9]", 0},
    {"ipv6--word", "hex{1,4}", B(HEX)},
    {"ipv6--end", "(ipv6--word (':' ipv6--word){0,3})?", B(WORD)},
    {"char", "[^\"\\\\\\x00-\\x1F\\x7F] | '\\\\' ([\"\\\\/bfnrt] | 'u' char--unit)", B(UNIT)},
    /* Halves of surrogate pairs only come in pairs. */
    {"char--unit", "[0-9A-CEFa-cef] hex{3} | [Dd] ([0-7] hex{2} | [89ABab] hex{2} '\\\\u' [Dd] [C-Fc-f] hex{2})",
     B(HEX)},
    {"hex", "[0-9A-Fa-f]", 0},
    {"space", "| ' ' | '\\n' [ \\t]{0,20}", 0},
};

bool ig_schema_names_open(ig_schema_writer *w) {
    for (size_t i = 0; i < IG_N_COMMON; i++) {
        snprintf(w->rules[i].name, IG_SCHEMA_NAME, "%s", common[i].name);
        if (json_object_set_new(w->known, common[i].name, json_null()) != 0) return false;
    }
    w->n_rules = IG_N_COMMON;
    return true;
}

bool ig_schema_name(ig_schema_writer *w, char name[IG_SCHEMA_NAME], const char *hint) {
    int n = 0;
    for (; *hint && n < IG_SCHEMA_NAME - 24; hint++) {
        bool is_plain =
            (*hint >= 'a' && *hint <= 'z') || (*hint >= 'A' && *hint <= 'Z') || (*hint >= '0' && *hint <= '9');
        if (is_plain || (n && name[n - 1] != '-')) name[n++] = is_plain ? *hint : '-';
    }
    while (n && name[n - 1] == '-') n--;
    if (!n) name[n++] = 'x';
    name[n] = 0;
    while (json_object_get(w->known, name)) snprintf(name + n, (size_t)(IG_SCHEMA_NAME - n), "-%zu", ++w->n_clashes);
    return json_object_set_new(w->known, name, json_null()) == 0;
}

void ig_schema_write_common(ig_schema_writer *w) {
    for (uint64_t before = 0; before != w->used;) {
        before = w->used;
        for (size_t i = 0; i < IG_N_COMMON; i++)
            if (w->used & IG_BIT(i)) w->used |= common[i].uses;
    }
    for (size_t i = 0; i < IG_N_COMMON; i++) {
        if (!(w->used & IG_BIT(i))) continue;
        ig_buffer_format(&w->out, "%s ::= ", common[i].name);
        for (const char *p = common[i].text; *p; p++) ig_buffer_add(&w->out, *p == '\'' ? "\"" : p, 1);
        ig_buffer_text(&w->out, "\n");
    }
}

ig_status ig_schema_check_size(const ig_schema_writer *w) {
    if (w->out.size + w->line.size + w->below.size <= MAX_OUT) return IG_OK;
    return ig_fail(w->err, IG_E_LIMIT, "schema: its grammar is larger than %d MiB", MAX_OUT >> 20);
}

void ig_schema_literal(ig_buffer *b, const char *text, size_t n) {
    ig_buffer_text(b, "\"");
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '"' || text[i] == '\\') ig_buffer_text(b, "\\");
        ig_buffer_add(b, text + i, 1);
    }
    ig_buffer_text(b, "\"");
}

void ig_schema_class_char(ig_buffer *b, uint32_t code) {
    if (code < 0x20 || code == 0x7f) {
        ig_buffer_format(b, "\\x%02X", (unsigned)code);
    } else if (code < 0x7f) {
        char c = (char)code;
        if (strchr("\\]-^", c)) ig_buffer_text(b, "\\");
        ig_buffer_add(b, &c, 1);
    } else {
        ig_buffer_format(b, code > 0xffff ? "\\U%08X" : "\\u%04X", (unsigned)code);
    }
}

void ig_schema_times(ig_buffer *b, ig_schema_span span) {
    if (span.min == span.max) {
        if (span.max != 1) ig_buffer_format(b, "{%zu}", span.min);
    } else if (span.max != SIZE_MAX) {
        if (span.min == 0 && span.max == 1)
            ig_buffer_text(b, "?");
        else
            ig_buffer_format(b, "{%zu,%zu}", span.min, span.max);
    } else if (span.min <= 1) {
        ig_buffer_text(b, span.min ? "+" : "*");
    } else {
        ig_buffer_format(b, "{%zu,}", span.min);
    }
}

ig_status ig_schema_expand(ig_schema_writer *w, const ig_schema_at *at, size_t n) {
    w->n_repeated += n;
    if (w->n_repeated <= MAX_REPEATED) return IG_OK;
    return ig_fail(w->err, IG_E_LIMIT, "%s: with this, repetitions count to more than %d", at->place, MAX_REPEATED);
}

ig_status ig_schema_repeat(ig_schema_writer *w, const ig_schema_at *at, ig_schema_span span) {
    ig_schema_times(&w->line, span);
    return ig_schema_expand(w, at, span.max == SIZE_MAX ? span.min : span.max);
}
