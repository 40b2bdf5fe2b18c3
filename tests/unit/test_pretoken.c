/* SPDX-License-Identifier: Apache-2.0
 *
 * Pre-tokenisers: known splits, that words give the text back, empty matches, what is removed, and that an expression
 * that explodes ends in an error.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buffer.h"
#include "base/random.h"
#include "token/pretoken.h"
#include "token/utf8.h"

typedef struct words { /* words separated by '|' */
    const char *text;
    ig_buffer out;
    size_t next;
    bool contiguous;
} words;

static ig_status add_word(void *user, size_t at, size_t size, ig_error *err) {
    words *w = user;
    (void)err;
    assert_true(size > 0 && at >= w->next);
    if (at != w->next) w->contiguous = false;
    w->next = at + size;
    if (w->out.size) ig_buffer_text(&w->out, "|");
    ig_buffer_add(&w->out, w->text + at, size);
    return IG_OK;
}

static void check_split(const ig_pretoken *p, const char *text, const char *want) {
    words w = {.text = text, .contiguous = true};
    ig_error err;
    assert_int_equal(ig_pretoken_run(p, text, strlen(text), add_word, &w, &err), IG_OK);
    assert_string_equal(w.out.data ? w.out.data : "", want);
    ig_buffer_close(&w.out);
}

static ig_pretoken open_named(const char *name) {
    ig_pretoken p = {0};
    bool a, b;
    ig_error err;
    if (ig_pretoken_named(&p, (ig_text){name, strlen(name)}, &a, &b, "test", &err)) fail_msg("%s", err.text);
    return p;
}

static void test_known(void **state) {
    (void)state;
    static const struct {
        const char *name, *text, *words;
    } cases[] = {
        {"gpt-2", "I'm here, it's 1234!  Ok\n\n x ", "I|'m| here|,| it|'s| 1234|!| | Ok|\n\n| x| "},
        {"gpt-2", "WE'LL", "WE|'|LL"},
        {"smollm", "v1234 a", "v|1|2|3|4| a"},
        {"llama-bpe", "I'M 12345\n\n  x_y (a)\r\n", "I|'M| |123|45|\n\n| | x|_y| (|a|)\r\n"},
        {"qwen2", "it'S 123\xe3\x80\x80z", "it|'S| |1|2|3|\xe3\x80\x80z"},
        {"qwen2", "  \n  \n a", "  \n  \n| a"},
        {"tekken", "camelCase HTTPServer x/y", "camel|Case| HTTPServer| x|/y"},
        {"default", "a=b 12345 c", "a|=|b| |123|45| c"},
        {"deepseek-v3",
         "abc\xe4\xb8\xad\xe6\x96\x87"
         "1234",
         "abc|\xe4\xb8\xad\xe6\x96\x87|123|4"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ig_pretoken p = open_named(cases[i].name);
        check_split(&p, cases[i].text, cases[i].words);
        ig_pretoken_close(&p);
    }
}

static void test_unknown_name(void **state) {
    (void)state;
    ig_pretoken p = {0};
    bool a, b;
    ig_error err;
    assert_int_equal(ig_pretoken_named(&p, (ig_text){"gpt", 3}, &a, &b, "f.gguf: pre", &err), IG_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "f.gguf: pre: unknown pre-tokeniser 'gpt'"));
}

/* Random Unicode text loses nothing under any known expression. */
static void test_nothing_lost(void **state) {
    (void)state;
    static const char *const names[] = {"gpt-2",  "smollm",  "llama-bpe",   "qwen2", "tekken",
                                        "falcon", "default", "deepseek-v3", "qwen35"};
    static const uint32_t bases[] = {0, 0x20, 0x41, 0x80, 0x300, 0x2000, 0x3000, 0x4e00, 0x1f600};
    ig_random random = {1};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        ig_pretoken p = open_named(names[k]);
        for (int round = 0; round < 60; round++) {
            char text[512];
            size_t n = 0;
            while (n < 300) {
                uint32_t c = bases[ig_random_u64(&random) % 9] + (uint32_t)(ig_random_u64(&random) % 64);
                if (c < 0x80)
                    text[n++] = (char)(c ? c : 1);
                else if (c < 0x800)
                    text[n++] = (char)(0xc0 | c >> 6);
                else if (c < 0x10000)
                    text[n++] = (char)(0xe0 | c >> 12), text[n++] = (char)(0x80 | (c >> 6 & 63));
                else
                    text[n++] = (char)(0xf0 | c >> 18), text[n++] = (char)(0x80 | (c >> 12 & 63)),
                    text[n++] = (char)(0x80 | (c >> 6 & 63));
                if (c >= 0x80) text[n++] = (char)(0x80 | (c & 63));
            }
            words w = {.text = text, .contiguous = true};
            ig_error err;
            assert_int_equal(ig_pretoken_run(&p, text, n, add_word, &w, &err), IG_OK);
            assert_true(w.contiguous);
            assert_int_equal(w.next, n);
            ig_buffer_close(&w.out);
        }
        ig_pretoken_close(&p);
    }
}

static ig_pretoken open_expression(const char *expression, bool literal) {
    ig_pretoken p = {0};
    ig_error err;
    if (ig_pretoken_add(&p, (ig_text){expression, strlen(expression)}, literal, "test", &err)) fail_msg("%s", err.text);
    return p;
}

static void test_kinds_of_steps(void **state) {
    (void)state;
    ig_pretoken p = open_expression("(?=[A-Z])", false); /* empty matches split */
    check_split(&p, "oneTwoThree", "one|Two|Three");
    check_split(&p, "\xc3\xa9T", "\xc3\xa9|T");
    ig_pretoken_close(&p);
    p = open_expression("a.", true); /* plain text, not an expression */
    check_split(&p, "xa.yab", "x|a.|yab");
    p.steps[0].keep_match = false;
    check_split(&p, "xa.yab", "x|yab");
    p.steps[0].keep_match = true;
    p.steps[0].keep_gap = false;
    check_split(&p, "xa.yab", "a.");
    ig_pretoken_close(&p);
}

static void test_bad_expressions(void **state) {
    (void)state;
    static const char *const bad[] = {"(", "[a", "a{2,1}", "\\p{Nonsense}", "(?<n>a)\\k<m>", "*", "\\C", "(?"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ig_pretoken p = {0};
        ig_error err;
        assert_int_equal(ig_pretoken_add(&p, (ig_text){bad[i], strlen(bad[i])}, false, "f.json: pre_tokenizer", &err),
                         IG_E_FORMAT);
        assert_non_null(strstr(err.text, "f.json: pre_tokenizer: regular expression"));
        ig_pretoken_close(&p);
    }
}

static void test_exploding_expressions(void **state) {
    (void)state;
    static const char *const bombs[] = {"(?:a+)+[bc]", "(?:a|aa)+[bc]", "(?:a*a*)*[bc]", "(?:a?a?){60}a{60}[bc]"};
    char text[200];
    memset(text, 'a', sizeof text);
    for (size_t i = 0; i < sizeof bombs / sizeof *bombs; i++) {
        ig_pretoken p = open_expression(bombs[i], false);
        words w = {.text = text};
        ig_error err;
        assert_int_equal(ig_pretoken_run(&p, text, sizeof text, add_word, &w, &err), IG_E_LIMIT);
        assert_non_null(strstr(err.text, "expression 1"));
        ig_buffer_close(&w.out);
        ig_pretoken_close(&p);
    }
}

static void test_too_many_steps(void **state) {
    (void)state;
    ig_pretoken p = {0};
    ig_error err;
    for (int i = 0; i < IG_PRETOKEN_STEPS_MAX; i++)
        assert_int_equal(ig_pretoken_add(&p, (ig_text){"a", 1}, false, "f", &err), IG_OK);
    assert_int_equal(ig_pretoken_add(&p, (ig_text){"a", 1}, false, "f", &err), IG_E_LIMIT);
    ig_pretoken_close(&p);
}

/* What the expressions see of invalid bytes has the same offsets and is valid. */
static void test_repair(void **state) {
    (void)state;
    ig_buffer copy = {0};
    const char *plain = "plain \xc3\xa9";
    assert_ptr_equal(ig_utf8_repair(&copy, plain, strlen(plain)), plain);
    const char *seen = ig_utf8_repair(&copy, "a\xff\xc3z\xe1\xa0\x8e\xed\xa0\x80", 10);
    assert_memory_equal(seen, "a\x1a\x1az\xe2\x80\x8b\x1a\x1a\x1a", 10);
    ig_buffer_close(&copy);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known),           cmocka_unit_test(test_unknown_name),
        cmocka_unit_test(test_nothing_lost),    cmocka_unit_test(test_kinds_of_steps),
        cmocka_unit_test(test_bad_expressions), cmocka_unit_test(test_exploding_expressions),
        cmocka_unit_test(test_too_many_steps),  cmocka_unit_test(test_repair),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
