/* SPDX-License-Identifier: Apache-2.0
 *
 * Expressions of a tokenizer.json: what is passed on, what is written out, what is refused by name, and that lines
 * begin and end where they do for Oniguruma.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/buffer.h"
#include "token/hf.h"

#define CASELESS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define REST " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* The models' own, and one of each construct. */
static void test_passed_on(void **state) {
    (void)state;
    static const char *const same[] = {
        CASELESS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|" REST,
        "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+" CASELESS "?|" REST,
        "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+",
        "[\xe4\xb8\x80-\xe9\xbe\xa5\xe3\x81\x80-\xe3\x82\x9f]+",
        "'s|'t| ?\\p{L}+|\\s+(?!\\S)",
        "(?i)a|b",
        "[]a][^]b]",
        "\\x{41}\\x61\\p{^L}\\P{Zs}a{2}b{2,}?c{0,3}(?>d)(?<=e)(?<!f)(?=g)(h)\\Ai\\z\\Z\\[\\/\\_\\\xc3\xa9.^$",
    };
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        ig_buffer out = {0};
        ig_error err = {0};
        if (ig_hf_expression(&out, same[i], "f", &err)) fail_msg("%s", err.text);
        assert_string_equal(out.data, same[i]);
        ig_buffer_close(&out);
    }
}

static void test_refused(void **state) {
    (void)state;
    static const struct {
        const char *expression, *named;
    } cases[] = {
        {"(*sr:.*)Z|.", "byte 0: '(*s'"},
        {"a(*NO_JIT)", "byte 1: '(*N'"},
        {"\\X|.", "byte 0: '\\X'"},
        {"[\\h]", "byte 1: '\\h'"},
        {"\\H", "'\\H'"},
        {"\\bx", "'\\b'"},
        {"\\B", "'\\B'"},
        {"[\\W]", "'\\W'"},
        {"\\v", "'\\v'"},
        {"[\\z]", "'\\z'"},
        {"(a)\\1", "byte 3: '\\1'"},
        {"\\xe9", "'\\x'"},
        {"\\p{Han}+", "'\\p{Han}' is"},
        {"\\pL", "'\\p'"},
        {"\\p{", "'\\p{'"},
        {"[a&&b]", "byte 2: '&&'"},
        {"[[:alpha:]]", "byte 1: '['"},
        {"[^a[b]]", "byte 3: '['"},
        {"(?m:.)", "'(?m'"},
        {"(?s)", "'(?s'"},
        {"a(?i)b", "byte 1: '(?i'"},
        {"(?R)", "'(?R'"},
        {"(?C1)", "'(?C'"},
        {"(?", "'(?'"},
        {"a{2}?", "byte 1: '{2}?'"},
        {"a{1,2}+", "byte 1: '{1,2}+'"},
        {"a{,2}", "byte 1: '{,2}"},
        {"a{x", "byte 1: '{x'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ig_buffer out = {0};
        ig_error err = {0};
        assert_int_equal(ig_hf_expression(&out, cases[i].expression, "f.json: pre_tokenizer", &err), IG_E_UNSUPPORTED);
        if (strncmp(err.text, "f.json: pre_tokenizer: regular expression, at byte ", 50) != 0 ||
            !strstr(err.text, cases[i].named))
            fail_msg("%s", err.text);
        ig_buffer_close(&out);
    }
}

/* However much \w there is, no more is written than can be taken. */
static void test_long(void **state) {
    (void)state;
    static char text[1 << 16];
    ig_buffer out = {0};
    ig_error err;
    for (size_t i = 0; i + 1 < sizeof text; i++) text[i] = "\\w"[i % 2];
    assert_int_equal(ig_hf_expression(&out, text, "f", &err), IG_OK);
    assert_true(out.size > IG_PRETOKEN_BYTES_MAX && out.size < IG_PRETOKEN_BYTES_MAX + 256);
    ig_buffer_close(&out);
}

static ig_status add_word(void *user, size_t at, size_t size, ig_error *err) {
    (void)err;
    ig_buffer_format(user, "%zu+%zu ", at, size);
    return IG_OK;
}

static void test_matches(void **state) {
    (void)state;
    static const struct {
        const char *expression, *text, *words;
    } cases[] = {
        {"^ +", "  a\n  b\n", "0+2 2+2 4+2 6+2 "},   /* at every line */
        {" +$", "a \r\nb \nc ", "0+5 5+1 6+2 8+1 "}, /* which only a newline ends */
        {"\\s+\\Z", "a \n\n", "0+1 1+3 "},
        {".+", "a\rb\nc", "0+3 3+1 4+1 "},
        {"\\w+", "e\xcc\x81_\xc2\xb2-\xe2\x92\xb6", "0+6 6+1 7+3 "}, /* marks and circled letters belong to words */
        {"[\\w]+", "a\xc2\xb2", "0+1 1+2 "},
        {"\\W+", "a--b", "0+1 1+2 3+1 "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ig_buffer out = {0}, words = {0};
        ig_pretoken p = {0};
        ig_pretoken_sink sink = {.word = add_word, .user = &words};
        ig_error err = {0};
        if (ig_hf_expression(&out, cases[i].expression, "f", &err) ||
            ig_pretoken_add(&p, (ig_text){out.data, out.size}, false, "f", &err) ||
            ig_pretoken_run(&p, &sink, cases[i].text, strlen(cases[i].text), &err))
            fail_msg("%s", err.text);
        assert_string_equal(words.data, cases[i].words);
        ig_pretoken_close(&p);
        ig_buffer_close(&out);
        ig_buffer_close(&words);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_passed_on), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_long), cmocka_unit_test(test_matches)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
