/* SPDX-License-Identifier: Apache-2.0
 *
 * Pre-tokenisers: known splits, that words give the text back, empty matches, what is removed, that the work of an
 * expression is bounded by the length of the text, and that those of real models stay far below that.
 */
#include <inttypes.h>
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
    ig_pretoken_sink sink = {.word = add_word, .user = &w};
    ig_error err;
    assert_int_equal(ig_pretoken_run(p, &sink, text, strlen(text), &err), IG_OK);
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
        {"afmoe", "a1234567 12 123", "a|1|234|567| |12| |123"},
        {"afmoe", "x中文\xed\x95\x9c y", "x|中文\xed\x95\x9c| y"},
        {"mellum2", "it's 12  x ", "it|'s| |1|2| | x| "},
        {"minimax-m2", "camelCase 1234", "camel|Case| |123|4"},
        {"seed-coder", "It's!\n\nx12", "It|'s|!|\n\n|x|1|2"},
        {"gpt-4o", "camelCase HTTPServer's x/y 1234", "camel|Case| HTTPServer's| x|/y| |123|4"},
        {"gpt-4o", "it'S x'\xc5\xbf \xc7\x85z A\xe4\xb8\xad//\n b",
         "it'S| x'\xc5\xbf| \xc7\x85z| A\xe4\xb8\xad|//\n| b"},
        {"tiny_aya", "1234567 x12 1234b5 123456!", "1|234|567| x|12| |123|4|b|5| |123|456|!"},
        {"cohere2moe", "12_3456 1.23456 \xef\xbc\x91\xef\xbc\x92\xef\xbc\x93\xef\xbc\x94 12\xc3\xa9",
         "12|_|3|456| |1|.|23|456| |\xef\xbc\x91|\xef\xbc\x92\xef\xbc\x93\xef\xbc\x94| |12|\xc3\xa9"},
        {"youtu", "It's x中文、ABc 12//\n한글 ", "It's| x|中文|、|ABc| |1|2|//\n|한글| "},
        {"bailingmoe2", "It'S 'LLx \n\n  a,b 12", "It|'S| '|LLx| \n\n| | a|,b| |1|2"},
        {"exaone-moe", "a b  c d'll x/\n\n 12", "a b| | c d|'ll| x|/\n|\n| |1|2"},
        {"kimi-k2",
         "It's A\xe4\xb8\xad"
         "b\xe3\x80\x85 1234.\n x",
         "It's| A|\xe4\xb8\xad|b|\xe3\x80\x85| |123|4|.\n| x"},
        {"grok-2", "it'S 123", "it|'S| |1|2|3"},
        {"minicpm5", "a  1234 x", "a|  |123|4| x"},
        {"tekken", "camelCase HTTPServer x/y", "camel|Case| HTTPServer| x|/y"},
        {"default", "a=b 12345 c", "a|=|b| |123|45| c"},
        {"deepseek-llm", "It's  x+y 123a.\n z  ", "It|'|s| | x|+|y| |123|a|.|\n| z|  "},
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
    static const char *const names[] = {"gpt-2",      "smollm",     "llama-bpe",  "qwen2",        "tekken",
                                        "gpt-4o",     "falcon",     "default",    "deepseek-v3",  "qwen35",
                                        "afmoe",      "mellum2",    "seed-coder", "deepseek-llm", "tiny_aya",
                                        "bailingmoe", "exaone-moe", "kimi-k2",    "youtu"};
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
            ig_pretoken_sink sink = {.word = add_word, .user = &w};
            ig_error err;
            assert_int_equal(ig_pretoken_run(&p, &sink, text, n, &err), IG_OK);
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

static void test_refused_expressions(void **state) {
    (void)state;
    static char large[IG_PRETOKEN_BYTES_MAX + 2];
    ig_pretoken p = {0};
    ig_error err;
    assert_int_equal(ig_pretoken_add(&p, (ig_text){"(a)\\1", 5}, false, "f", &err), IG_E_UNSUPPORTED);
    memset(large, 'a', sizeof large);
    assert_int_equal(ig_pretoken_add(&p, (ig_text){large, IG_PRETOKEN_BYTES_MAX + 1}, false, "f", &err), IG_E_LIMIT);
    assert_int_equal(ig_pretoken_add(&p, (ig_text){large, IG_PRETOKEN_BYTES_MAX}, true, "f", &err), IG_OK);
    assert_int_equal(ig_pretoken_add(&p, (ig_text){"a", 1}, true, "f", &err), IG_E_LIMIT);
    ig_pretoken_close(&p);
}

/* ---- work ---------------------------------------------------------------- */

enum { TEXT_BYTES = 20000 };

static ig_status count_word(void *user, size_t at, size_t size, ig_error *err) {
    (void)at, (void)err;
    *(size_t *)user += size;
    return IG_OK;
}

/* Splits TEXT_BYTES of a repeated unit; the work. */
static uint64_t split_repeated(const ig_pretoken *p, const char *unit, ig_status want, ig_error *err) {
    static char text[TEXT_BYTES + 16];
    size_t n = 0, n_split = 0, n_unit = strlen(unit);
    for (; n < TEXT_BYTES; n += n_unit) memcpy(text + n, unit, n_unit);
    ig_pretoken_sink sink = {.word = count_word, .user = &n_split};
    assert_int_equal(ig_pretoken_run(p, &sink, text, n, err), want);
    assert_true(want || n_split == n);
    return sink.work;
}

/* Nested repeats, looking far ahead or behind or back for little, large counts, many places to begin at. */
static void test_hostile_expressions(void **state) {
    (void)state;
    static const struct {
        const char *expression, *unit;
        bool literal;
    } cases[] = {
        {"(?:a+)+[bc]", "a", false},
        {"(?:a|aa)+[bc]", "a", false},
        {"(?:a*a*)*[bc]", "a", false},
        {"(?:a?a?){60}a{60}[bc]", "a", false},
        {"(?:(a)|b)*c|.", "ab", false},
        {"(?:a|b)*+c|.", "ab", false},
        {"[ab]*c|.", "ab", false},
        {"[ab]*?c|.", "ab", false},
        {"(?=[ab]*c)|.", "ab", false},
        {"(?>[ab]+)c|.", "ab", false},
        {"a{1,60000}b|.", "a", false},
        {"a{9000}b|.", "a", false},
        {"(?<=[^b]{250})b|.", "a", false},
        {"\\X{900}b|.", "a\xcc\x81", false},
        {"(?:a(?R)?c|.)", "a", false},
        {"(?(?=a)a|b)*c|.", "ab", false},
        {"(*NO_JIT)[ab]*c|.", "ab", false},
        {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
         "a"
         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
         "a"
         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
         "a"
         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
         "b",
         "a", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ig_pretoken p = open_expression(cases[i].expression, cases[i].literal);
        ig_error err;
        uint64_t allowed = IG_PRETOKEN_WORK_FREE + IG_PRETOKEN_WORK_PER_BYTE * (uint64_t)(TEXT_BYTES + 4);
        uint64_t work = split_repeated(&p, cases[i].unit, IG_E_LIMIT, &err);
        if (work > allowed + TEXT_BYTES * (uint64_t)p.steps[0].weight)
            fail_msg("%s: %" PRIu64 " units of work, %" PRIu64 " are allowed", cases[i].expression, work, allowed);
        assert_non_null(strstr(err.text, "test: expression 1: splitting the text at byte "));
        ig_pretoken_close(&p);
    }
}

/* The bound is for a text, in however many runs it is split. */
static void test_work_of_a_text(void **state) {
    (void)state;
    ig_pretoken p = open_expression("[ab]*c|.", false);
    static char text[300];
    memset(text, 'a', sizeof text);
    for (int heavy = 0; heavy < 2; heavy++) {
        size_t n_split = 0;
        ig_pretoken_sink sink = {.word = count_word, .user = &n_split};
        ig_error err;
        ig_status s = IG_OK;
        p.steps[0].weight = heavy ? 16 : 1;
        for (int runs = 0; !s && runs < 1000; runs++) s = ig_pretoken_run(&p, &sink, text, sizeof text, &err);
        assert_int_equal(s, heavy ? IG_E_LIMIT : IG_OK);
    }
    ig_pretoken_close(&p);
}

/* Expressions as tokenizer.json files have them. An empty group keeps those that are also built in from being known,
 * and so from not being counted. */
#define CASELESS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define REST " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
static const char *const real[][4] = {
    {CASELESS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|" REST},
    {CASELESS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|" REST},
    {"(?:)\\p{N}", "(?:)'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"},
    {"(?:)\\p{N}{1,3}", "(?:)[\xe4\xb8\x80-\xe9\xbe\xa5\xe3\x81\x80-\xe3\x82\x9f]+",
     "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
     " ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
    {"(?:)[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+" CASELESS
     "?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*" CASELESS
     "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
};

static void test_real_expressions(void **state) {
    (void)state;
    static const char *const units[] = {"a",
                                        "Ab",
                                        "HTTP",
                                        " ",
                                        "\n",
                                        " \n",
                                        "\r\n",
                                        "\t \n x",
                                        "1",
                                        "12 ",
                                        "'",
                                        "'s",
                                        "'x",
                                        "!",
                                        "?.",
                                        "{}();\n",
                                        "x_y",
                                        "\xe4\xb8\xad",
                                        "\xe3\x81\x82",
                                        "\xf0\x9f\x98\x80",
                                        "a\xcc\x81",
                                        "\xcc\x81",
                                        "aB1 .\n",
                                        "prose, as. ",
                                        "\x1a"};
    for (size_t k = 0; k < sizeof real / sizeof *real; k++) {
        ig_pretoken p = {0};
        ig_error err;
        for (int i = 0; i < 4 && real[k][i]; i++)
            assert_int_equal(ig_pretoken_add(&p, (ig_text){real[k][i], strlen(real[k][i])}, false, "f", &err), IG_OK);
        for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
            uint64_t work = split_repeated(&p, units[u], IG_OK, &err);
            if (work < TEXT_BYTES || 20 * work > IG_PRETOKEN_WORK_PER_BYTE * (uint64_t)TEXT_BYTES)
                fail_msg("expression %zu on '%s': %" PRIu64 " units of work", k, units[u], work);
        }
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
        cmocka_unit_test(test_known),
        cmocka_unit_test(test_unknown_name),
        cmocka_unit_test(test_nothing_lost),
        cmocka_unit_test(test_kinds_of_steps),
        cmocka_unit_test(test_bad_expressions),
        cmocka_unit_test(test_refused_expressions),
        cmocka_unit_test(test_hostile_expressions),
        cmocka_unit_test(test_work_of_a_text),
        cmocka_unit_test(test_real_expressions),
        cmocka_unit_test(test_too_many_steps),
        cmocka_unit_test(test_repair),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
