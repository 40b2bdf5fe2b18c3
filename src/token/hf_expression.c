/* SPDX-License-Identifier: Apache-2.0
 *
 * Regular expressions of a tokenizer.json. They are written for Oniguruma with Ruby's syntax and run by PCRE2 here,
 * with its options UTF, UCP and MULTILINE. What both read alike is passed on, \w is written out, and all else is
 * refused by name: \h is a digit there and a blank here, (?m:.) a newline there, [[:alpha:]] and && sets of sets there.
 * What begins with (* would even switch off the counting of work.
 */
#include <string.h>

#include "base/error.h"
#include "token/hf.h"

#define DIGITS "0123456789"
/* What Oniguruma calls a character of a word: letters, also the circled ones, marks, digits, underscores; outside of
 * classes also the fractions and small digits of Latin-1. */
#define WORD                                                                                          \
    "\\p{L}\\p{Nl}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}" \
    "\\p{M}\\p{Nd}\\p{Pc}"
#define LONE_WORD WORD "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"

/* The functions below give the length of what stands at p, 0 if it must be refused. */

/* \p{Lu}: of the properties only the general categories have the same names and members. */
static size_t property_size(const char *p) {
    size_t n = 3;
    if (p[2] != '{') return 0;
    if (p[n] == '^') n++;
    if (!p[n] || !strchr("LMNPSZC", p[n])) return 0;
    n++;
    if (p[n] >= 'a' && p[n] <= 'z') n++;
    return p[n] == '}' ? n + 1 : 0;
}

static size_t escape_size(const char *p, bool in_class) {
    char c = p[1];
    bool is_name = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    if (!c) return 1;
    if (c == 'p' || c == 'P') return property_size(p);
    if (c == 'x') return p[2] == '{' || (p[2] >= '0' && p[2] <= '7') ? 2 : 0; /* above, a byte there */
    return !is_name || strchr("aefnrtdDsS", c) || (!in_class && strchr("AzZ", c)) ? 2 : 0;
}

static size_t group_size(const char *p, bool is_first) {
    static const char *const heads[] = {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:"};
    if (p[1] != '?' && p[1] != '*') return 1;
    for (size_t i = 0; i < IG_COUNT(heads); i++)
        if (strncmp(p, heads[i], strlen(heads[i])) == 0) return strlen(heads[i]);
    return is_first && strncmp(p, "(?i)", 4) == 0 ? 4 : 0; /* elsewhere it also holds alternatives together there */
}

/* {2,3}. Before a plus it is not possessive there, and {2}? need not be. */
static size_t interval_size(const char *p) {
    size_t n_digits = strspn(p + 1, DIGITS), n = 1 + n_digits;
    bool is_range = p[n] == ',';
    if (is_range) n += 1 + strspn(p + n + 1, DIGITS);
    if (!n_digits || p[n++] != '}') return 0;
    return p[n] == '+' || (p[n] == '?' && !is_range) ? 0 : n;
}

static size_t class_size(const char *p) {
    size_t n = p[1] == '^' ? 2 : 1;
    return p[n] == ']' ? n + 1 : n; /* a bracket that comes first does not close */
}

static ig_status refuse(const char *p, size_t at, const char *where, ig_error *err) {
    size_t n = p[0] == '[' ? 1 : p[0] == '(' ? 3 : 2; /* shown */
    if (p[0] == '{') n = strcspn(p, "}") + 2;
    if (p[0] == '\\' && p[2] == '{') n = strcspn(p, "}") + 1;
    return ig_fail(err, IG_E_UNSUPPORTED, "%s: regular expression, at byte %zu: '%.*s' is not supported", where, at,
                   (int)(n < 32 ? n : 32), p);
}

ig_status ig_hf_expression(ig_buffer *out, const char *expression, const char *where, ig_error *err) {
    bool in_class = false;
    size_t n;
    for (const char *p = expression; *p && out->size <= IG_PRETOKEN_BYTES_MAX; p += n) {
        n = 1;
        if (p[0] == '\\' && (p[1] == 'w' || (p[1] == 'W' && !in_class))) {
            ig_buffer_text(out, in_class ? WORD : p[1] == 'w' ? "[" LONE_WORD "]" : "[^" LONE_WORD "]");
            n = 2;
            continue;
        }
        if (*p == '\\')
            n = escape_size(p, in_class);
        else if (in_class)
            n = *p == '[' || (p[0] == '&' && p[1] == '&') ? 0 : 1;
        else if (*p == '(')
            n = group_size(p, p == expression);
        else if (*p == '{')
            n = interval_size(p);
        else if (*p == '[')
            n = class_size(p);
        if (!n) return refuse(p, (size_t)(p - expression), where, err);
        if (*p == '[' || *p == ']') in_class = *p == '[';
        ig_buffer_add(out, p, n);
    }
    return out->failed ? ig_fail_memory(err, where, out->size) : IG_OK;
}
