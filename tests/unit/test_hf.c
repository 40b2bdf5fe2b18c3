/* SPDX-License-Identifier: Apache-2.0
 *
 * What the fields of a tokenizer.json do, on vocabularies of a few tokens: the ids are those of Hugging Face's
 * tokenizers.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "token/tokenizer.h"
#include "unit/temp_dir.h"

#define LLAMA                                                                                           \
    "{\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Prepend\", \"prepend\": " \
    "\"\xe2\x96\x81\"}, "                                                                               \
    "{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"\xe2\x96\x81\"}]}, "
#define BYTELEVEL(normalizer) \
    "{\"normalizer\": " normalizer ", \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false}, "
#define METASPACE                                                                                           \
    "{\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"\xe2\x96\x81\", \"prepend_scheme\": " \
    "\"always\"}, "
#define GEMMA                                                                                                     \
    "{\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"\xe2\x96\x81\"}, " \
    "\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"String\": \" \"}, \"behavior\": "                   \
    "\"MergedWithPrevious\", "                                                                                    \
    "\"invert\": false}, "
#define ADDED(tokens) "\"added_tokens\": [" tokens "], "
#define MODEL(fields, vocab, merges) \
    "\"model\": {\"type\": \"BPE\", " fields "\"vocab\": {" vocab "}, \"merges\": [" merges "]}}"

typedef struct example {
    const char *text, *ids;
} example;

static void check(const char *json, const example *examples, size_t n) {
    temp_dir d = temp_dir_open();
    ig_tokenizer *t;
    ig_error err;
    temp_dir_write(&d, "tokenizer.json", json, strlen(json));
    if (ig_tokenizer_from_hf(&t, d.path, 0, &err)) fail_msg("%s", err.text);
    for (size_t i = 0; i < n; i++) {
        int32_t ids[64];
        char text[512] = "";
        ig_ids out = {.ids = ids, .cap = 64};
        if (ig_tokenizer_encode(t, &out, examples[i].text, strlen(examples[i].text), IG_TOKENIZE_PARSE_SPECIAL, &err))
            fail_msg("%s", err.text);
        for (size_t k = 0, at = 0; k < out.n; k++)
            at += (size_t)snprintf(text + at, sizeof text - at, "%d ", (int)ids[k]);
        assert_string_equal(text, examples[i].ids);
    }
    ig_tokenizer_close(t);
    temp_dir_close(&d);
}

#define CHECK(json, ...) \
    check(json, (const example[]){__VA_ARGS__}, sizeof((const example[]){__VA_ARGS__}) / sizeof(example))

/* A split at blanks splits nothing where these have become U+2581. */
static void test_split_at_no_blanks(void **state) {
    (void)state;
#define B "\xe2\x96\x81"
    CHECK(GEMMA MODEL("", "\"" B "\": 0, \"a\": 1, \"b\": 2, \"" B "b\": 3, \"ab\": 4, \"" B B "\": 5",
                      "\"" B " " B "\", \"" B " b\", \"a b\""),
          {"ab b", "4 3 "}, {"a  b", "1 5 2 "}, {" ab", "0 4 "});
#undef B
}

/* Tokens written <0x7A> stand for bytes if the file says so. */
static void test_byte_fallback(void **state) {
    (void)state;
#define VOCAB "\"<unk>\": 0, \"<0x7A>\": 1, \"\xe2\x96\x81\": 2, \"a\": 3"
    CHECK(LLAMA MODEL("\"unk_token\": \"<unk>\", \"byte_fallback\": true, ", VOCAB, ""), {"az", "2 3 1 "});
    CHECK(LLAMA MODEL("\"unk_token\": \"<unk>\", \"byte_fallback\": false, ", VOCAB, ""), {"az", "2 3 0 "});
    CHECK(LLAMA MODEL("\"unk_token\": \"<unk>\", ", VOCAB, ""), {"az", "2 3 0 "});
    /* Also if they are added as well. */
    CHECK(LLAMA ADDED("{\"id\": 1, \"content\": \"<0x7A>\", \"special\": true}")
              MODEL("\"unk_token\": \"<unk>\", \"byte_fallback\": true, ", VOCAB, ""),
          {"az", "2 3 1 "}, {"a<0x7A>", "2 3 1 "});
#undef VOCAB
}

/* Normalised added tokens are looked for after the others, in normalised text and normalised themselves. */
static void test_normalized(void **state) {
    (void)state;
#define BYTES "\"a\": 0, \"n\": 1, \"\xc3\x83\": 2, \"\xc2\xb1\": 3"
    CHECK(BYTELEVEL("{\"type\": \"NFC\"}") ADDED("{\"id\": 4, \"content\": \"n\xcc\x83\", \"normalized\": true}, "
                                                 "{\"id\": 5, \"content\": \"a\xcc\x83\", \"normalized\": false}")
              MODEL("", BYTES, ""),
          {"an\xcc\x83", "0 4 "}, {"\xc3\xb1n", "4 1 "}, {"a\xcc\x83", "5 "});
    CHECK(BYTELEVEL("null") ADDED("{\"id\": 4, \"content\": \"aaa\", \"normalized\": true}, "
                                  "{\"id\": 5, \"content\": \"na\", \"normalized\": false}") MODEL("", BYTES, ""),
          {"aaana", "4 5 "}, {"naaaa", "5 4 "}, {"naaa", "5 0 0 "});
#undef BYTES
    CHECK(LLAMA ADDED("{\"id\": 6, \"content\": \"<t>\", \"normalized\": true}")
              MODEL("", "\"<unk>\": 0, \"\xe2\x96\x81\": 1, \"a\": 2, \"<\": 3, \"t\": 4, \">\": 5", ""),
          {"<t>", "6 "}, {"a<t>", "1 2 3 4 5 "}, {"a <t>a", "1 2 6 2 "});
    /* Metaspace writes its blanks after both searches. */
    CHECK(METASPACE ADDED("{\"id\": 3, \"content\": \"aaa\", \"normalized\": true}, "
                          "{\"id\": 4, \"content\": \"na\", \"normalized\": false}, "
                          "{\"id\": 5, \"content\": \" n\", \"normalized\": true}")
              MODEL("", "\"\xe2\x96\x81\": 0, \"a\": 1, \"n\": 2", ""),
          {"aaana", "3 4 "}, {"naaaa", "4 3 "}, {"a na", "0 1 0 4 "}, {"a n", "0 1 5 "});
}

/* What a token of the vocabulary stands for is not what its letters say. */
static void test_added_letters(void **state) {
    (void)state;
    static const char json[] =
        BYTELEVEL("null") ADDED("{\"id\": 1, \"content\": \"\xc3\xa9\"}") MODEL("", "\"a\": 0, \"\xc3\xa9\": 1", "");
    temp_dir d = temp_dir_open();
    ig_tokenizer *t;
    ig_error err;
    temp_dir_write(&d, "tokenizer.json", json, sizeof json - 1);
    assert_int_equal(ig_tokenizer_from_hf(&t, d.path, 0, &err), IG_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "added token '\xc3\xa9'"));
    temp_dir_close(&d);
}

/* Of two equal merges the last one counts. */
static void test_equal_merges(void **state) {
    (void)state;
#define VOCAB "\"a\": 0, \"b\": 1, \"c\": 2, \"ab\": 3, \"bc\": 4"
    CHECK(BYTELEVEL("null") MODEL("", VOCAB, "\"a b\", \"b c\""), {"abc", "3 2 "});
    CHECK(BYTELEVEL("null") MODEL("", VOCAB, "\"a b\", \"b c\", \"a b\""), {"abc", "0 4 "});
#undef VOCAB
}

/* Added tokens that a model has no row for, as some Llama-2 files' <pad>, are as if they were not there; of the
 * vocabulary's own none is left out. */
static void test_more_tokens_than_rows(void **state) {
    static const char json[] = BYTELEVEL("null") ADDED("{\"id\": 2, \"content\": \"<pad>\", \"special\": true}")
        MODEL("", "\"a\": 0, \"b\": 1", "");
    temp_dir d = temp_dir_open();
    ig_error err;
    (void)state;
    temp_dir_write(&d, "tokenizer.json", json, sizeof json - 1);
    for (int limit = 0; limit < 4; limit++) {
        ig_tokenizer *t;
        if (ig_tokenizer_from_hf(&t, d.path, limit, &err)) fail_msg("%s", err.text);
        assert_int_equal(ig_tokenizer_n_vocab(t), limit == 0 || limit > 2 ? 3 : 2);
        ig_tokenizer_close(t);
    }
    temp_dir_close(&d);
}

/* Integers beyond 64 bits are numbers like others, and what looks like one in a text stays. */
static void test_large_integers(void **state) {
    static const char json[] = BYTELEVEL("null") MODEL("", "\"a\": 0", ""),
                      config[] =
                          "{\"model_max_length\": 1000000000000000019884624838656, "
                          "\"x\": [-18446744073709551616,1e30,12345678901234567890.5], "
                          "\"chat_template\": \"\\\"1000000000000000019884624838656\"}";
    temp_dir d = temp_dir_open();
    ig_tokenizer *t;
    ig_error err;
    (void)state;
    temp_dir_write(&d, "tokenizer.json", json, sizeof json - 1);
    temp_dir_write(&d, "tokenizer_config.json", config, sizeof config - 1);
    if (ig_tokenizer_from_hf(&t, d.path, 0, &err)) fail_msg("%s", err.text);
    assert_string_equal(ig_tokenizer_chat_template(t), "\"1000000000000000019884624838656");
    ig_tokenizer_close(t);
    temp_dir_close(&d);
}

/* The first of three files that has one. */
static void test_template_files(void **state) {
    static const char *const files[][2] = {
        {"chat_template.json", "{\"chat_template\": \"three\"}"},
        {"tokenizer_config.json", "{\"chat_template\": \"two\"}"},
        {"chat_template.jinja", "one"},
    };
    static const char tokenizer[] = BYTELEVEL("null") MODEL("", "\"a\": 0", "");
    static const char *const wanted[] = {NULL, "three", "two", "one"};
    temp_dir d = temp_dir_open();
    (void)state;
    temp_dir_write(&d, "tokenizer.json", tokenizer, strlen(tokenizer));
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        ig_tokenizer *t;
        ig_error err;
        if (i > 0) temp_dir_write(&d, files[i - 1][0], files[i - 1][1], strlen(files[i - 1][1]));
        if (ig_tokenizer_from_hf(&t, d.path, 0, &err)) fail_msg("%s", err.text);
        const char *template = ig_tokenizer_chat_template(t);
        assert_true(wanted[i] ? template && strcmp(template, wanted[i]) == 0 : !template);
        ig_tokenizer_close(t);
    }
    temp_dir_close(&d);
}

/* <|end|> ends an answer, but not where others do that are for answers of several messages. */
static void test_ends(void **state) {
    static const char *const texts[] = {"a", "<|end|>", "<|return|>", "<|call|>"};
    (void)state;
    for (int n = 2; n <= 4; n++) {
        char json[1024], list[512] = "";
        temp_dir d = temp_dir_open();
        ig_tokenizer *t;
        ig_error err;
        for (int i = 1; i < n; i++)
            snprintf(list + strlen(list), sizeof list - strlen(list),
                     "%s{\"id\": %d, \"content\": \"%s\", \"special\": true, \"normalized\": false}", i > 1 ? ", " : "",
                     i, texts[i]);
        int size = snprintf(json, sizeof json, BYTELEVEL("null") ADDED("%s") MODEL("", "\"a\": 0", ""), list);
        temp_dir_write(&d, "tokenizer.json", json, (size_t)size);
        temp_dir_write(&d, "generation_config.json", "{\"eos_token_id\": [0, 1]}", 24);
        if (ig_tokenizer_from_hf(&t, d.path, 0, &err)) fail_msg("%s", err.text);
        for (int i = 0; i < n; i++) assert_int_equal(ig_tokenizer_is_end(t, i), i != 1 || n < 4);
        ig_tokenizer_close(t);
        temp_dir_close(&d);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split_at_no_blanks), cmocka_unit_test(test_byte_fallback),
        cmocka_unit_test(test_normalized),         cmocka_unit_test(test_added_letters),
        cmocka_unit_test(test_equal_merges),       cmocka_unit_test(test_more_tokens_than_rows),
        cmocka_unit_test(test_large_integers),     cmocka_unit_test(test_ends),
        cmocka_unit_test(test_template_files)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
