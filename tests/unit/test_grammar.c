/* SPDX-License-Identifier: Apache-2.0
 *
 * Grammars: what texts the rules take, against lists and against the C library's regular expressions, and what is no
 * grammar.
 */
#define _GNU_SOURCE
#include <regex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/buffer.h"
#include "base/random.h"
#include "grammar/automaton.h"

static ig_automaton *open_automaton(const char *gbnf) {
    ig_rules rules;
    ig_automaton *a;
    ig_error err;
    if (ig_rules_parse(&rules, gbnf, &err)) fail_msg("%s: %s", gbnf, err.text);
    if (ig_automaton_open(&a, &rules, &err)) fail_msg("%s: %s", gbnf, err.text);
    ig_automaton_allow(a, 1 << 24);
    return a;
}

/* 'y': the text is taken, 'n': it is not, 'p': it begins one. At some bytes all states but one are forgotten. */
static char verdict(ig_automaton *a, const char *text, size_t n, unsigned renew_every) {
    uint16_t state = ig_automaton_start(a);
    for (size_t i = 0; i < n; i++) {
        state = ig_automaton_step(a, state, (uint8_t)text[i]);
        assert_int_not_equal(state, IG_STATE_FULL);
        if (state == IG_STATE_DEAD) return 'n';
        if (renew_every && i % renew_every == 0) state = ig_automaton_renew(a, state);
    }
    if (!ig_automaton_accepts(a, state)) return 'p';
    return ig_automaton_is_end(a, state) ? 'Y' : 'y';
}

/* Y: taken, and nothing can follow. */
static const struct {
    const char *gbnf;
    const char *texts[12]; /* the verdict, then the text */
} cases[] = {
    {"root ::= \"a\"", {"p", "Ya", "nb", "naa"}},
    {"root ::= \"\"", {"Y", "na"}},
    {"root::=[a-c]+", {"p", "ya", "yabc", "nad"}},
    {"root ::= [^a-c\\n]", {"na", "Yd", "n\n", "Y\xc3\xa4", "p\xc3", "Y\xf0\x9f\x98\x80", "n\xed\xa0\x80", "n\xff"}},
    {"root ::= [\\]\\-^\\\\]+", {"y]", "y-", "y^", "y\\", "na"}},
    {"root ::= [a-]", {"Ya", "Y-", "nb"}},
    {"root ::= \"\\x41\\u00e4\\U0001F600\\t\\\"\"", {"YA\xc3\xa4\xf0\x9f\x98\x80\t\"", "pA\xc3\xa4"}},
    {"root ::= [\\u0400-\\u04FF]{2,3}",
     {"p\xd0\x90", "y\xd0\x90\xd1\x8f", "Y\xd0\x90\xd1\x8f\xd0\x90", "nA", "n\xd4\x80"}},
    {"root ::= . \".\"", {"Yx.", "Y\n.", "Y\xe2\x82\xac.", "nxy"}},
    {"root ::= \"a\"{3}", {"paa", "Yaaa", "naaaa"}},
    {"root ::= \"a\"{2,}", {"pa", "yaa", "yaaaaaa"}},
    {"root ::= \"a\"{0,2} \"b\"", {"Yb", "Yab", "Yaab", "naaa"}},
    {"root ::= \"a\"{0} \"b\"", {"Yb", "na"}},
    {"root ::= \"a\"*\"b\"?\"c\"+", {"yc", "yaabcc", "paab", "nbb"}},
    {"root ::= (\"a\"?)* \"b\"", {"Yb", "Yaaab"}},
    {"root ::= (\"ab\" | \"a\" [c-d])*", {"y", "pa", "yab", "yacadab", "nb"}},
    {"root ::= one | two\n  | \"3\" # a third\none ::= \"1\"\n# nothing\ntwo ::= (\n \"2\"\n)",
     {"Y1", "Y2", "Y3", "n4"}},
    {"root ::= | \"a\"", {"y", "Ya"}},
    {"root ::= \"(\" root \")\" | \"x\"", {"Yx", "Y((x))", "p((x)", "n)"}},
    {"root ::= list\nlist ::= \"a\" list | \"\"", {"y", "yaaa"}},
    {"root ::= e\ne ::= t (\"+\" t)*\nt ::= [0-9]+ | \"(\" e \")\"", {"y1+2", "y(1+(2))", "p1+", "n1)"}},
    {"root ::= a-b_c9\na-b_c9 ::= \"x\"\r\n", {"Yx"}},
    {"root ::= \"n\xc3\xa4\"", {"Yn\xc3\xa4"}},
    /* What never ends is no choice, unless there is nothing else. */
    {"root ::= \"a\" | \"b\" x\nx ::= \"c\" x", {"Ya", "nb"}},
    {"root ::= \"a\" x? \"b\"\nx ::= y\ny ::= \"c\" (x | \"d\" y)", {"Yab", "pa", "nac"}},
    {"root ::= \"a\" x\nx ::= \"c\" (x | y)\ny ::= \"\" | \"d\" z\nz ::= \"e\" z", {"yac", "yacc", "nacd"}},
    {"root ::= \"a\" root", {"p", "paaa", "nb"}},
};

static void test_texts(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ig_automaton *a = open_automaton(cases[i].gbnf);
        for (unsigned every = 0; every < 4; every++)
            for (const char *const *t = cases[i].texts; *t; t++)
                if (verdict(a, *t + 1, strlen(*t + 1), every) != **t)
                    fail_msg("%s: '%s' is %c", cases[i].gbnf, *t + 1, verdict(a, *t + 1, strlen(*t + 1), every));
        ig_automaton_close(a);
    }
}

static const struct {
    const char *gbnf, *needle;
} refused[] = {
    {"", "no rule 'root'"},
    {"a ::= \"a\"", "no rule 'root'"},
    {"root ::= a", "line 1: rule 'a' is missing"},
    {"root ::= \"a\"\n\nroot ::= \"b\"", "rule 'root' is given twice"},
    {"root ::= root \"a\" | \"b\"", "line 1: rule 'root' begins with itself"},
    {"root ::= a\na ::= b? a | \"x\"\nb ::= \"b\"", "line 2: rule 'a' begins with itself"},
    {"root ::= \"x\" a\na ::= b\nb ::= \"\" c\nc ::= a", "begins with itself"},
    {"root ::= \"a", "line 1: it ends within a text or class"},
    {"root ::= [a", "ends within"},
    {"root ::= []", "a class is empty"},
    {"root ::= [^\\x00-\\U0010FFFF]", "a class is empty"},
    {"root ::= [b-a]", "range of characters is empty"},
    {"root ::= \"\\q\"", "an escape is not known"},
    {"root ::= \"\\x4\"", "too few hexadecimal digits"},
    {"root ::= \"\\ud800\"", "no Unicode character"},
    {"root ::= \"\\U00110000\"", "no Unicode character"},
    {"root ::= \"\xff\"", "not UTF-8"},
    {"root ::= (\"a\"", "a group does not end"},
    {"root ::= \"a\")", "line 1: this is not understood"},
    {"root ::= \"a\"{", "a number of repetitions is missing"},
    {"root ::= \"a\"{2,1}", "repetitions are"},
    {"root ::= \"a\"{2", "repetitions are"},
    {"root ::= \"a\"{1000001}", "too many repetitions"},
    {"root ::= \"a\"{100000}{100000}", "too large"},
    {"root = \"a\"", "'::=' is missing"},
    {"::= \"a\"", "should stand here"},
    {"root ::= <[10]", "a token is"},
    {"root ::= <name>", "not understood"},
    {"root ::= !\"a\"", "not understood"},
    {"root ::= \"a\" !<[3]>", "tokens but one are not supported"},
};

static void test_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        ig_rules rules;
        ig_error err;
        if (!ig_rules_parse(&rules, refused[i].gbnf, &err)) fail_msg("%s is taken", refused[i].gbnf);
        if (!strstr(err.text, refused[i].needle)) fail_msg("%s: %s", refused[i].gbnf, err.text);
        assert_int_equal(ig_rules_parse(&rules, refused[i].gbnf, NULL), err.status);
    }
}

/* Groups without end, and far more of everything than there is room for. */
static void test_hostile(void **state) {
    (void)state;
    ig_rules rules;
    ig_error err;
    ig_buffer text = {0};
    ig_buffer_text(&text, "root ::= ");
    for (int i = 0; i < 100000; i++) ig_buffer_text(&text, "(");
    assert_int_equal(ig_rules_parse(&rules, text.data, &err), IG_E_FORMAT);
    assert_non_null(strstr(err.text, "nested too deeply"));
    text.size = 0;
    ig_buffer_text(&text, "root ::= r0\n");
    for (int i = 0; i < 100000; i++) ig_buffer_format(&text, "r%d ::= r%d\n", i, i + 1);
    ig_buffer_text(&text, "r100000 ::= \"a\"");
    ig_automaton *a = open_automaton(text.data); /* more rules to go through than there is room for */
    assert_int_equal(ig_automaton_start(a), IG_STATE_FULL);
    ig_automaton_close(a);
    ig_buffer_close(&text);
    a = open_automaton("root ::= \"(\" root \")\" | \"x\""); /* deeper than is remembered */
    uint16_t at = ig_automaton_start(a);
    for (int i = 0; i < 512; i++) at = ig_automaton_step(a, at, '(');
    assert_true(at > IG_STATE_DEAD);
    assert_int_equal(ig_automaton_step(a, at, '('), IG_STATE_DEAD);
    ig_automaton_close(a);
    a = open_automaton("root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"x\""); /* twice as many places with each a */
    at = ig_automaton_start(a);
    for (int i = 0; i < 30 && at != IG_STATE_FULL; i++) at = ig_automaton_step(a, at, 'a');
    assert_int_equal(at, IG_STATE_FULL);
    ig_automaton_close(a);
}

/* ---- against regular expressions -------------------------------------------------------- */

/* The same random expression over a, b and c in both forms. */
static void expression(ig_buffer *gbnf, ig_buffer *regex, ig_random *r, int depth) {
    static const char *const repeats[] = {"*", "+", "?", "{2}", "{1,3}", "{2,}", "{0,2}"};
    uint64_t kind = ig_random_u64(r) % (depth ? 6 : 2);
    char c = (char)('a' + ig_random_u64(r) % 3);
    switch (kind) {
        case 0:
            ig_buffer_format(gbnf, "\"%c\" ", c);
            ig_buffer_format(regex, "%c", c);
            break;
        case 1:
            ig_buffer_format(gbnf, "[^%c] ", c);
            ig_buffer_format(regex, "[^%c]", c);
            break;
        case 2:
        case 3:
            expression(gbnf, regex, r, depth - 1);
            expression(gbnf, regex, r, depth - 1);
            break;
        case 4:
            ig_buffer_text(gbnf, "(");
            ig_buffer_text(regex, "(");
            expression(gbnf, regex, r, depth - 1);
            ig_buffer_text(gbnf, "| ");
            ig_buffer_text(regex, "|");
            expression(gbnf, regex, r, depth - 1);
            ig_buffer_text(gbnf, ") ");
            ig_buffer_text(regex, ")");
            break;
        default: {
            const char *repeat = repeats[ig_random_u64(r) % 7];
            ig_buffer_text(gbnf, "(");
            ig_buffer_text(regex, "(");
            expression(gbnf, regex, r, depth - 1);
            ig_buffer_format(gbnf, ")%s ", repeat);
            ig_buffer_format(regex, ")%s", repeat);
        }
    }
}

static void test_expressions(void **state) {
    (void)state;
    ig_random random = {.state = 7};
    int n_taken = 0;
    for (int i = 0; i < 300; i++) {
        ig_buffer gbnf = {0}, regex = {0};
        regex_t compiled;
        ig_buffer_text(&gbnf, "root ::= ");
        ig_buffer_text(&regex, "^(");
        expression(&gbnf, &regex, &random, 4);
        ig_buffer_text(&regex, ")$");
        if (regcomp(&compiled, regex.data, REG_EXTENDED | REG_NOSUB)) fail_msg("%s", regex.data);
        ig_automaton *a = open_automaton(gbnf.data);
        for (int k = 0; k < 364; k++) { /* all texts of up to 5 letters */
            char text[8] = "";
            size_t n = 0;
            for (int left = k; left; left = (left - 1) / 3) text[n++] = (char)('a' + (left - 1) % 3);
            text[n] = 0;
            bool taken = regexec(&compiled, text, 0, NULL, 0) == 0;
            char found = verdict(a, text, n, (unsigned)k % 3);
            n_taken += taken;
            if (taken != (found == 'y' || found == 'Y')) fail_msg("%s: '%s' is %c", gbnf.data, text, found);
        }
        regfree(&compiled);
        ig_automaton_close(a);
        ig_buffer_close(&gbnf);
        ig_buffer_close(&regex);
    }
    assert_true(n_taken > 1000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_expressions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
