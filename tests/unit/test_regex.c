/* SPDX-License-Identifier: Apache-2.0
 *
 * Regular expressions as grammars: they take what PCRE2 matches as a whole, and what is refused says why.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pcre2.h>

#include "base/random.h"
#include "grammar/automaton.h"

static ig_automaton *automaton_of(const char *expression) {
    char *gbnf;
    ig_error err;
    ig_rules rules;
    ig_automaton *a = NULL;
    if (ig_regex_to_gbnf(&gbnf, expression, &err) || ig_rules_parse(&rules, gbnf, &err) ||
        ig_automaton_open(&a, &rules, &err))
        fail_msg("%s: %s", expression, err.text);
    free(gbnf);
    ig_automaton_allow(a, UINT64_MAX);
    return a;
}

static bool takes(ig_automaton *a, const char *text) {
    uint16_t at = ig_automaton_start(a);
    for (; *text && at != IG_STATE_DEAD; text++) at = ig_automaton_step(a, at, (uint8_t)*text);
    return at != IG_STATE_DEAD && ig_automaton_accepts(a, at);
}

static bool matches(const char *expression, const char *text) {
    int error;
    PCRE2_SIZE where;
    pcre2_code *code =
        pcre2_compile((PCRE2_SPTR)expression, PCRE2_ZERO_TERMINATED,
                      PCRE2_UTF | PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_ALT_BSUX, &error, &where, NULL);
    if (!code) fail_msg("PCRE2: %s at %zu", expression, where);
    pcre2_match_data *data = pcre2_match_data_create_from_pattern(code, NULL);
    int found = pcre2_match(code, (PCRE2_SPTR)text, strlen(text), 0, 0, data, NULL);
    pcre2_match_data_free(data);
    pcre2_code_free(code);
    return found >= 0;
}

/* A few of the characters that expressions here tell apart. */
static void make_text(char *text, ig_random *random) {
    static const char *const letters[] = {"a", "b", "c",  "1",  "7",  "_",        " ",
                                          "-", ".", "\"", "\\", "\n", "\xc3\xa9", "\xf0\x9f\x98\x80"};
    size_t n = ig_random_u64(random) % 6;
    *text = '\0';
    for (size_t i = 0; i < n; i++) strcat(text, letters[ig_random_u64(random) % (sizeof letters / sizeof *letters)]);
}

static void whole_texts_match(void **state) {
    static const char *const expressions[] = {
        "a",
        "",
        "ab|ba",
        "^ab|c$",
        "(a|b)*",
        "(?:ab)+c?",
        "[abc]{2,3}",
        "[^a]",
        "[^ab\\n]+",
        "\\d+(\\.\\d{1,2})?",
        "\\w+",
        "\\s",
        ".*",
        ".{2}",
        "a+?b*?",
        "\"[^\"]*\"",
        "\\\\.",
        "[\\\\\"]+",
        "\\u00e9",
        "[\xc3\xa9-\xc3\xaf]{1,2}",
        "\xf0\x9f\x98\x80?",
        "[abc17]{3}",
        "a{2,}",
        "(a(b(c|)|))",
        "[\\d_]+",
        "[a-c1]*\\.",
        "\\x61\\x2e",
        "\\n|\\t",
        "[-a]+",
        "a-[abc]?",
        "(-|_)?[17]",
    };
    (void)state;
    ig_random random = {.state = 7};
    for (size_t i = 0; i < sizeof expressions / sizeof *expressions; i++) {
        ig_automaton *a = automaton_of(expressions[i]);
        int n_taken = 0;
        for (int k = 0; k < 20000; k++) {
            char text[64];
            make_text(text, &random);
            bool taken = takes(a, text);
            n_taken += taken;
            if (taken != matches(expressions[i], text)) fail_msg("'%s' and '%s': %d", expressions[i], text, taken);
        }
        if (!n_taken) fail_msg("%s takes none of these", expressions[i]);
        ig_automaton_close(a);
    }
}

static void refused(void **state) {
    static const struct {
        const char *expression, *why;
    } cases[] = {{"(?=a)", "a group of this kind"},
                 {"a\\1", "the escape before this"},
                 {"\\bx", "the escape before this"},
                 {"[a", "a class without an end"},
                 {"(a", "a group without an end"},
                 {"a)", "this here"},
                 {"*a", "this here"},
                 {"(a*)*", "repeating what may be empty"},
                 {"[c-a]", "the range before this"},
                 {"a\x01", "a control character"},
                 {"a\xff", "what is not UTF-8"},
                 {"a\xe3\x81", "what is not UTF-8"},
                 {"(a{200}){200}", "repeats more than"},
                 {"\\p{L}", "the escape before this"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ig_error err = {0};
        char *gbnf;
        ig_status s = ig_regex_to_gbnf(&gbnf, cases[i].expression, &err);
        if (!s || !strstr(err.text, cases[i].why)) fail_msg("%s: %d %s", cases[i].expression, s, err.text);
        assert_null(gbnf);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(whole_texts_match), cmocka_unit_test(refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
