/* SPDX-License-Identifier: Apache-2.0
 *
 * Malformed tokenizers in GGUF files, each a valid one with one thing changed: every one must be refused with the right
 * status and a text that names file and key, without taking more memory than the file's size justifies. What odd but
 * valid ones mean, and valid ones while every allocation fails in turn.
 */
#define _GNU_SOURCE
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/buffer.h"
#include "token/tokenizer.h"
#include "unit/count_memory.h"
#include "unit/temp_dir.h"
#include "unit/tiny_gguf.h"

/* An array of short texts, separated by blanks in `list`; '_' stands for a blank. */
static void put_texts(tiny *t, const char *key, const char *list) {
    ig_buffer items = {0};
    uint64_t n = 0;
    for (const char *at = list; *at; n++) {
        uint64_t size = strcspn(at, " ");
        ig_buffer_add(&items, &size, sizeof size);
        for (uint64_t i = 0; i < size; i++) ig_buffer_add(&items, at[i] == '_' ? " " : &at[i], 1);
        at += size + (at[size] == ' ');
    }
    tiny_array(t, key, IG_GGUF_STRING, n, items.data, items.size);
    ig_buffer_close(&items);
}

static void put_types(tiny *t, int n, int32_t last) {
    int32_t types[8] = {3, 1, 1, 1, last};
    tiny_array(t, "tokenizer.ggml.token_type", IG_GGUF_I32, (uint64_t)n, types, (size_t)n * sizeof *types);
}

static void put_scores(tiny *t, int n, float last) {
    float scores[8] = {0, -1, -2, -3, last};
    tiny_array(t, "tokenizer.ggml.scores", IG_GGUF_F32, (uint64_t)n, scores, (size_t)n * sizeof *scores);
}

/* Five tokens: a control token, a, b, ab and a last one of a type of its own. */
static tiny gguf_valid(bool spm) {
    tiny t = tiny_valid();
    tiny_string(&t, "tokenizer.ggml.model", spm ? "llama" : "gpt2");
    put_texts(&t, "tokenizer.ggml.tokens", spm ? "<s> a b ab <0x0A>" : "<s> a b ab c");
    put_types(&t, 5, spm ? 6 : 1);
    if (spm) {
        put_scores(&t, 5, 0);
    } else {
        tiny_string(&t, "tokenizer.ggml.pre", "gpt-2");
        put_texts(&t, "tokenizer.ggml.merges", "a_b");
    }
    tiny_u32(&t, "tokenizer.ggml.bos_token_id", 0);
    tiny_u32(&t, "tokenizer.ggml.eos_token_id", 0);
    return t;
}

#define K "tokenizer.ggml."
static void as_gemma(tiny *t) { tiny_string(t, K "model", "gemma4"); }
/* X(name, SentencePiece, wanted status, what the error names, the change) */
#define GGUF_CASES(X)                                                                                                 \
    X(no_model, false, IG_E_NOT_FOUND, K "model is missing", tiny_drop_key(t, K "model"))                             \
    X(no_vocab, false, IG_E_NOT_FOUND, "no tokenizer", tiny_string(t, K "model", "no_vocab"))                         \
    X(model_type, false, IG_E_FORMAT, K "model", tiny_u32(t, K "model", 1))                                           \
    X(model_unknown, false, IG_E_UNSUPPORTED, "unknown tokenizer 'bert'", tiny_string(t, K "model", "bert"))          \
    X(no_tokens, false, IG_E_NOT_FOUND, K "tokens is missing", tiny_drop_key(t, K "tokens"))                          \
    X(tokens_scalar, false, IG_E_FORMAT, K "tokens: is not an array", tiny_u32(t, K "tokens", 5))                     \
    X(tokens_numbers, false, IG_E_FORMAT, K "tokens: items are not strings",                                          \
      tiny_array(t, K "tokens", IG_GGUF_U8, 5, "abcde", 5))                                                           \
    X(tokens_none, false, IG_E_FORMAT, K "tokens: is empty", tiny_array(t, K "tokens", IG_GGUF_STRING, 0, "", 0))     \
    X(tokens_twice, false, IG_E_FORMAT, K "tokens: token 4, 'b', is there twice",                                     \
      put_texts(t, K "tokens", "<s> a b ab b"))                                                                       \
    X(types_fewer, false, IG_E_FORMAT, K "token_type: has not as many", put_types(t, 4, 1))                           \
    X(types_floats, false, IG_E_FORMAT, K "token_type: items are not integers",                                       \
      tiny_array(t, K "token_type", IG_GGUF_F32, 5, "aaaabbbbccccddddeeee", 20))                                      \
    X(types_unknown, false, IG_E_FORMAT, K "token_type: token 4 has the unknown type 9", put_types(t, 5, 9))          \
    X(types_negative, false, IG_E_FORMAT, K "token_type: token 4 has the unknown type -1", put_types(t, 5, -1))       \
    X(no_merges, false, IG_E_FORMAT, K "merges: is missing", tiny_drop_key(t, K "merges"))                            \
    X(merges_numbers, false, IG_E_FORMAT, K "merges: items are not strings",                                          \
      tiny_array(t, K "merges", IG_GGUF_U8, 1, "a", 1))                                                               \
    X(merge_single, false, IG_E_FORMAT, K "merges: merge 0 is not a pair", put_texts(t, K "merges", "ab"))            \
    X(merge_three, false, IG_E_FORMAT, K "merges: merge 0 is not made of byte letters",                               \
      put_texts(t, K "merges", "a_b_c"))                                                                              \
    X(merge_empty, false, IG_E_FORMAT, K "merges: merge 0 is not a pair",                                             \
      tiny_array(t, K "merges", IG_GGUF_STRING, 1, "\0\0\0\0\0\0\0\0", 8))                                            \
    X(merge_utf8, false, IG_E_FORMAT, K "merges: merge 0 is not made of byte letters",                                \
      put_texts(t, K "merges", "a_\xff"))                                                                             \
    X(merge_unknown_part, false, IG_E_FORMAT, K "merges: merge 0: 'z'", put_texts(t, K "merges", "a_z"))              \
    X(merge_unknown_whole, false, IG_E_FORMAT, K "merges: merge 1: 'bc'", put_texts(t, K "merges", "a_b b_c"))        \
    X(gemma_no_merges, false, IG_E_FORMAT, K "merges: is missing", (as_gemma(t), tiny_drop_key(t, K "merges")))       \
    X(gemma_merge_unknown, false, IG_E_FORMAT, K "merges: merge 0: 'b c' is not in the vocabulary",                   \
      (as_gemma(t), put_texts(t, K "merges", "a_b_c")))                                                               \
    X(gemma_unknown_id, false, IG_E_FORMAT, K "unknown_token_id: token 5",                                            \
      (as_gemma(t), tiny_u32(t, K "unknown_token_id", 5)))                                                            \
    X(pre_unknown, false, IG_E_UNSUPPORTED, K "pre: unknown pre-tokeniser 'gpt-9'", tiny_string(t, K "pre", "gpt-9")) \
    X(pre_type, false, IG_E_FORMAT, K "pre", tiny_u32(t, K "pre", 3))                                                 \
    X(bos_too_large, false, IG_E_FORMAT, K "bos_token_id: token 5", tiny_u32(t, K "bos_token_id", 5))                 \
    X(eos_negative, false, IG_E_FORMAT, K "eos_token_id", tiny_i32(t, K "eos_token_id", -2))                          \
    X(eos_type, false, IG_E_FORMAT, K "eos_token_id", tiny_string(t, K "eos_token_id", "x"))                          \
    X(eot_too_large, false, IG_E_FORMAT, K "eot_token_id: token 4294967294",                                          \
      tiny_u32(t, K "eot_token_id", UINT32_MAX - 1))                                                                  \
    X(add_bos_type, false, IG_E_FORMAT, K "add_bos_token", tiny_u32(t, K "add_bos_token", 1))                         \
    X(template_type, false, IG_E_FORMAT, "tokenizer.chat_template", tiny_u32(t, "tokenizer.chat_template", 1))        \
    X(no_scores, true, IG_E_FORMAT, K "scores: is missing", tiny_drop_key(t, K "scores"))                             \
    X(scores_fewer, true, IG_E_FORMAT, K "scores: has not as many", put_scores(t, 4, 0))                              \
    X(scores_nan, true, IG_E_FORMAT, K "scores: the score of token 4 is not a number", put_scores(t, 5, NAN))         \
    X(scores_integers, true, IG_E_FORMAT, K "scores: items are not floats",                                           \
      tiny_array(t, K "scores", IG_GGUF_I32, 5, "aaaabbbbccccddddeeee", 20))                                          \
    X(byte_form, true, IG_E_FORMAT, K "tokens: byte token 4 is '<0xZZ>'",                                             \
      put_texts(t, K "tokens", "<s> a b ab <0xZZ>"))                                                                  \
    X(spm_twice, true, IG_E_FORMAT, K "tokens: token 3, 'a', is there twice",                                         \
      put_texts(t, K "tokens", "<s> a b a <0x0A>"))                                                                   \
    X(remove_blanks, true, IG_E_UNSUPPORTED, K "remove_extra_whitespaces",                                            \
      tiny_bool(t, K "remove_extra_whitespaces", 1))

#define GGUF_FUNCTION(name, spm, status, mention, change) \
    static void change_##name(tiny *t) { (void)t, change; }
GGUF_CASES(GGUF_FUNCTION)

static const struct {
    const char *name;
    bool spm;
    ig_status status;
    const char *mention;
    void (*change)(tiny *t);
} gguf_cases[] = {
#define GGUF_ENTRY(name, spm, status, mention, change) {#name, spm, status, mention, change_##name},
    GGUF_CASES(GGUF_ENTRY)};

static ig_status open_gguf(ig_tokenizer **out, const temp_dir *d, const tiny *t, ig_error *err) {
    size_t size;
    uint8_t *bytes = tiny_write(t, &size);
    char path[512];
    ig_gguf *g = NULL;
    temp_dir_write(d, "m.gguf", bytes, size);
    free(bytes);
    temp_dir_path(d, "m.gguf", path, sizeof path);
    *out = NULL;
    ig_status s = ig_gguf_open(&g, path, NULL, err);
    if (s) fail_msg("%s", err->text);
    memory_count_start(-1);
    s = ig_tokenizer_from_gguf(out, g, err);
    memory_count_stop();
    assert_true(memory_count.largest <= 64 * size);
    ig_gguf_close(g);
    return s;
}

static void test_gguf(void **state) {
    (void)state;
    temp_dir d = temp_dir_open();
    for (size_t i = 0; i < sizeof gguf_cases / sizeof *gguf_cases; i++) {
        tiny t = gguf_valid(gguf_cases[i].spm);
        ig_tokenizer *tokenizer;
        ig_error err = {0};
        gguf_cases[i].change(&t);
        ig_status s = open_gguf(&tokenizer, &d, &t, &err);
        if (s != gguf_cases[i].status || !strstr(err.text, gguf_cases[i].mention) || !strstr(err.text, "m.gguf"))
            fail_msg("%s: wanted %d with \"%s\", got %d: %s", gguf_cases[i].name, gguf_cases[i].status,
                     gguf_cases[i].mention, s, err.text);
        assert_null(tokenizer);
        assert_int_equal(memory_count.n_taken, memory_count.n_given);
    }
    temp_dir_close(&d);
}

/* As in llama.cpp, by the model's name: no key says it. */
static void test_gguf_strips(void **state) {
    static const struct {
        const char *name, *tokens;
        bool strips;
    } cases[] = {{"tiny", "<|end|> a b ab <0x0A>", false},
                 {"Phi3", "<|end|> a b ab <0x0A>", true},
                 {"a phi-3.5", "<|end|> a b ab <0x0A>", true},
                 {"Phi3", "<s> a b ab <0x0A>", false}};
    (void)state;
    temp_dir d = temp_dir_open();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tiny t = gguf_valid(true);
        ig_tokenizer *tokenizer;
        ig_error err;
        char text[32];
        int32_t ids[8];
        ig_ids out = {.ids = ids, .cap = 8};
        tiny_string(&t, "general.name", cases[i].name);
        tiny_bool(&t, K "add_space_prefix", 0);
        put_texts(&t, K "tokens", cases[i].tokens);
        assert_int_equal(open_gguf(&tokenizer, &d, &t, &err), IG_OK);
        size_t n = (size_t)snprintf(text, sizeof text, "%.*s\nab", (int)strcspn(cases[i].tokens, " "), cases[i].tokens);
        assert_int_equal(ig_tokenizer_encode(tokenizer, &out, text, n, IG_TOKENIZE_PARSE_SPECIAL, &err), IG_OK);
        assert_int_equal(out.n, cases[i].strips ? 2 : 3);
        assert_int_equal(ids[0], 0);
        assert_int_equal(ids[out.n - 1], 3);
        ig_tokenizer_close(tokenizer);
    }
    temp_dir_close(&d);
}

/* Texts that are no UTF-8 or hold control characters are tokens like others. */
static void test_gguf_odd_texts(void **state) {
    (void)state;
    temp_dir d = temp_dir_open();
    tiny t = gguf_valid(false);
    ig_tokenizer *tokenizer;
    ig_error err;
    put_texts(&t, K "tokens", "<s> a b ab \xff\xc3");
    assert_int_equal(open_gguf(&tokenizer, &d, &t, &err), IG_OK);
    char piece[8];
    assert_int_equal(ig_tokenizer_piece(tokenizer, 4, true, piece, sizeof piece), 2);
    assert_memory_equal(piece, "\xff\xc3", 2);
    int32_t ids[8];
    ig_ids out = {.ids = ids, .cap = 8};
    assert_int_equal(ig_tokenizer_encode(tokenizer, &out, "<s>ab\xff\xc3", 7, IG_TOKENIZE_PARSE_SPECIAL, &err), IG_OK);
    assert_int_equal(out.n, 2); /* bytes without a token are left out, and counted */
    assert_int_equal(out.n_lost, 2);
    assert_int_equal(ids[0], 0);
    assert_int_equal(ids[1], 3);
    ig_tokenizer_close(tokenizer);
    temp_dir_close(&d);
}

/* Merges may make a token that the file calls a user's, and go on with it; of two equal ones the first counts. */
static void test_gguf_merged_token(void **state) {
    (void)state;
    temp_dir d = temp_dir_open();
    tiny t = gguf_valid(false);
    ig_tokenizer *tokenizer;
    ig_error err;
    int32_t types[] = {3, 1, 1, 4, 1, 1, 1}, ids[8];
    ig_ids out = {.ids = ids, .cap = 8};
    put_texts(&t, K "tokens", "<s> a b ab c abc bc");
    tiny_array(&t, K "token_type", IG_GGUF_I32, 7, types, sizeof types);
    put_texts(&t, K "merges", "a_b b_c ab_c a_b");
    assert_int_equal(open_gguf(&tokenizer, &d, &t, &err), IG_OK);
    assert_int_equal(ig_tokenizer_encode(tokenizer, &out, "ab", 2, 0, &err), IG_OK);
    assert_int_equal(out.n, 1);
    assert_int_equal(ids[0], 3);
    ig_tokenizer_close(tokenizer);
    types[3] = 3; /* a control token, which is not looked for in plain text */
    tiny_array(&t, K "token_type", IG_GGUF_I32, 7, types, sizeof types);
    assert_int_equal(open_gguf(&tokenizer, &d, &t, &err), IG_OK);
    assert_int_equal(ig_tokenizer_encode(tokenizer, &out, "abc", 3, 0, &err), IG_OK);
    assert_int_equal(out.n, 1);
    assert_int_equal(ids[0], 5);
    ig_tokenizer_close(tokenizer);
    temp_dir_close(&d);
}

/* The marks that end an answer are special tokens, also where a file calls them words or a user's tokens. */
static void test_gguf_end_tokens(void **state) {
    (void)state;
    for (int32_t type = 1; type <= 4; type += 3) {
        temp_dir d = temp_dir_open();
        tiny t = gguf_valid(false);
        ig_tokenizer *tokenizer;
        ig_error err;
        int32_t ids[16];
        ig_ids out = {.ids = ids, .cap = 16};
        put_texts(&t, K "tokens", "<s> a b ab <|end|>");
        put_types(&t, 5, type);
        assert_int_equal(open_gguf(&tokenizer, &d, &t, &err), IG_OK);
        assert_true(ig_tokenizer_is_end(tokenizer, 4));
        assert_int_equal(ig_tokenizer_piece(tokenizer, 4, false, NULL, 0), 0);
        ig_status s = ig_tokenizer_encode(tokenizer, &out, "a<|end|>", 8, IG_TOKENIZE_PARSE_SPECIAL, &err);
        assert_int_equal(s, IG_OK);
        assert_int_equal(out.n, 2);
        assert_int_equal(ids[1], 4);
        ig_tokenizer_close(tokenizer);
        temp_dir_close(&d);
    }
}

/* ---- failing allocations -------------------------------------------------- */

static void test_failing_gguf(void **state) {
    (void)state;
    temp_dir d = temp_dir_open();
    for (int spm = 0; spm < 2; spm++) {
        tiny t = gguf_valid(spm != 0);
        size_t size;
        uint8_t *bytes = tiny_write(&t, &size);
        char path[512];
        ig_gguf *g;
        ig_error err;
        temp_dir_write(&d, "m.gguf", bytes, size);
        free(bytes);
        temp_dir_path(&d, "m.gguf", path, sizeof path);
        assert_int_equal(ig_gguf_open(&g, path, NULL, &err), IG_OK);
        bool ok = false;
        for (long fail_at = 0; !ok; fail_at++) {
            ig_tokenizer *tokenizer = NULL;
            memory_count_start(fail_at);
            ig_status s = ig_tokenizer_from_gguf(&tokenizer, g, &err);
            ig_tokenizer_close(tokenizer);
            memory_count_stop();
            ok = memory_count.fail_at >= 0;
            if (s != IG_OK && s != IG_E_MEMORY) fail_msg("allocation %ld: %d: %s", fail_at, s, err.text);
            assert_int_equal(memory_count.n_taken, memory_count.n_given);
        }
        ig_gguf_close(g);
    }
    temp_dir_close(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gguf),
        cmocka_unit_test(test_gguf_strips),
        cmocka_unit_test(test_gguf_odd_texts),
        cmocka_unit_test(test_gguf_merged_token),
        cmocka_unit_test(test_gguf_end_tokens),
        cmocka_unit_test(test_failing_gguf),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
