/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokenizers against ids made by other programs: the small ones of tests/data/tokenizers
 * (tools/make_golden_tokenizers.py), the Llama-2 model of ../shared, and the model that other tests use, where they are
 * at hand. Also that pieces give the text back.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/buffer.h"
#include "base/file.h"
#include "token/tokenizer.h"
#include "unit/count_memory.h"

#define SHARED "../shared/fixtures/tokenizers/"

static ig_tokenizer *open_tokenizer(const char *path) {
    ig_error err;
    ig_tokenizer *t = NULL;
    ig_gguf *g = NULL;
    ig_status s;
    if (ig_path_is_directory(path)) {
        s = ig_tokenizer_from_hf(&t, path, 0, &err);
    } else {
        s = ig_gguf_open(&g, path, NULL, &err);
        if (!s) s = ig_tokenizer_from_gguf(&t, g, &err);
    }
    ig_gguf_close(g);
    if (s) fail_msg("%s", err.text);
    return t;
}

/* The pieces of ids as text, without the blank that SentencePiece put first. */
static char *join_pieces(const ig_tokenizer *t, const int32_t *ids, size_t n, size_t *size) {
    ig_buffer text = {0};
    char piece[IG_TOKEN_BYTES_MAX];
    for (size_t i = 0; i < n; i++) {
        size_t k = ig_tokenizer_piece(t, ids[i], true, piece, sizeof piece);
        assert_true(k <= sizeof piece);
        ig_buffer_add(&text, piece, k);
    }
    size_t cut = ig_tokenizer_drops_first_blank(t) && text.size && text.data[0] == ' ';
    *size = text.size - cut;
    char *copy = test_calloc(1, *size + 1);
    if (*size) memcpy(copy, text.data + cut, *size);
    ig_buffer_close(&text);
    return copy;
}

static void check_line(const ig_tokenizer *t, const json_t *line, bool reversible) {
    const char *text = json_string_value(json_object_get(line, "text"));
    const json_t *want = json_object_get(line, "ids");
    bool special = json_is_true(json_object_get(line, "special"));
    size_t size = strlen(text), cap = size + 3;
    int32_t *ids = test_calloc(cap, sizeof *ids);
    ig_ids out = {.ids = ids, .cap = cap};
    ig_error err;
    int flags = special ? IG_TOKENIZE_ADD_SPECIAL | IG_TOKENIZE_PARSE_SPECIAL : 0;
    assert_int_equal(ig_tokenizer_encode(t, &out, text, size, flags, &err), IG_OK);
    size_t n = out.n;
    assert_true(n <= cap && out.n_lost == 0);
    bool equal = n == json_array_size(want);
    for (size_t i = 0; i < n && equal; i++) equal = ids[i] == json_integer_value(json_array_get(want, i));
    if (!equal) fail_msg("other ids for \"%s\"", text);
    if (reversible && !special) {
        size_t back_size;
        char *back = join_pieces(t, ids, n, &back_size);
        assert_int_equal(back_size, size);
        assert_memory_equal(back, text, size);
        test_free(back);
    }
    test_free(ids);
}

static void check_golden(const char *tokenizer, const char *golden, bool reversible) {
    ig_tokenizer *t = open_tokenizer(tokenizer);
    FILE *f = fopen(golden, "r");
    if (!f) fail_msg("%s is missing", golden);
    int n_lines = 0;
    for (json_t *line; (line = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL)) != NULL; n_lines++) {
        check_line(t, line, reversible);
        json_decref(line);
    }
    fclose(f);
    assert_true(n_lines > 30);
    ig_tokenizer_close(t);
}

static void check_small(const char *name, bool reversible) {
    char directory[256], golden[300];
    snprintf(directory, sizeof directory, "tests/data/tokenizers/%s", name);
    snprintf(golden, sizeof golden, "%s/golden.jsonl", directory);
    check_golden(directory, golden, reversible);
}

static void test_llama3(void **state) { (void)state, check_small("llama3", true); }
static void test_smollm(void **state) { (void)state, check_small("smollm", true); }
static void test_opt(void **state) { (void)state, check_small("opt", true); }
/* The normal form, and U+2581 in the text, cannot be undone. */
static void test_qwen2(void **state) { (void)state, check_small("qwen2", false); }
static void test_llama2(void **state) { (void)state, check_small("llama2", false); }
static void test_gemma4(void **state) {
    (void)state;
    check_small("gemma4", false);
    check_golden("tests/data/tokenizers/gemma4/vocab.gguf", "tests/data/tokenizers/gemma4/golden.jsonl", false);
}

static void test_special_ids(void **state) {
    (void)state;
    ig_tokenizer *t = open_tokenizer("tests/data/tokenizers/llama3");
    assert_int_equal(ig_tokenizer_bos(t), 420);
    assert_int_equal(ig_tokenizer_eos(t), 422); /* tokenizer_config.json names it */
    assert_true(ig_tokenizer_adds_bos(t));
    assert_true(ig_tokenizer_is_end(t, 421) && ig_tokenizer_is_end(t, 422)); /* generation_config.json lists them */
    assert_false(ig_tokenizer_is_end(t, 420) || ig_tokenizer_is_end(t, -1) || ig_tokenizer_is_end(t, 1 << 30));
    assert_string_equal(ig_tokenizer_chat_template(t), "<|start_header_id|>");
    assert_int_equal(ig_tokenizer_n_vocab(t), 428);
    char piece[8] = "";
    assert_int_equal(ig_tokenizer_piece(t, 420, false, piece, sizeof piece), 0);
    assert_int_equal(ig_tokenizer_piece(t, 420, true, piece, sizeof piece), strlen("<|begin_of_text|>"));
    assert_memory_equal(piece, "<|begin_", 8);
    assert_int_equal(ig_tokenizer_piece(t, -1, true, piece, sizeof piece), 0);
    assert_int_equal(ig_tokenizer_piece(t, 1 << 30, true, piece, sizeof piece), 0);
    ig_tokenizer_close(t);

    t = open_tokenizer("tests/data/tokenizers/opt");
    assert_int_equal(ig_tokenizer_bos(t), 2);
    assert_int_equal(ig_tokenizer_eos(t), 2);
    assert_true(ig_tokenizer_adds_bos(t) && ig_tokenizer_is_end(t, 2));
    ig_tokenizer_close(t);

    t = open_tokenizer("tests/data/tokenizers/qwen2");
    assert_false(ig_tokenizer_adds_bos(t));
    assert_null(ig_tokenizer_chat_template(t));
    assert_true(ig_tokenizer_is_end(t, 400)); /* <|endoftext|>, though no file says so */
    ig_tokenizer_close(t);

    static const char *const gemma[] = {"tests/data/tokenizers/gemma4", "tests/data/tokenizers/gemma4/vocab.gguf"};
    for (size_t i = 0; i < sizeof gemma / sizeof *gemma; i++) {
        t = open_tokenizer(gemma[i]);
        assert_int_equal(ig_tokenizer_bos(t), 2);
        assert_true(ig_tokenizer_adds_bos(t) && !ig_tokenizer_drops_first_blank(t));
        for (int32_t id = 0; id < 20; id++) /* <eos>, <|tool_response>, <turn|> */
            assert_int_equal(ig_tokenizer_is_end(t, id), id == 1 || id == 9 || id == 16);
        ig_tokenizer_close(t);
    }
}

/* Every byte string comes back: all bytes, cut-off and overlong characters, surrogates. */
static void test_invalid_bytes(void **state) {
    (void)state;
    static const char *const names[] = {"llama3", "smollm", "opt", "qwen2", "llama2", "gemma4"};
    static const char broken[] =
        "a\xffz \xc3 \xe2\x82 x\xed\xa0\x80 \xf0\x9f\x98 \xc0\xaf\xf4\x90\x80\x80 \x80\x80 \xe2\x96 e\xcc";
    char all[512];
    for (int i = 0; i < 512; i++) all[i] = (char)(i < 256 ? i : 767 - i);
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        char path[256];
        snprintf(path, sizeof path, "tests/data/tokenizers/%s", names[k]);
        ig_tokenizer *t = open_tokenizer(path);
        for (int pass = 0; pass < 2; pass++) {
            const char *text = pass ? all : broken;
            size_t size = pass ? sizeof all : sizeof broken - 1, back_size;
            int32_t ids[1024];
            ig_ids out = {.ids = ids, .cap = 1024};
            ig_error err;
            assert_int_equal(ig_tokenizer_encode(t, &out, text, size, 0, &err), IG_OK);
            char *back = join_pieces(t, ids, out.n, &back_size);
            assert_int_equal(back_size, size);
            assert_memory_equal(back, text, size);
            test_free(back);
        }
        ig_tokenizer_close(t);
    }
}

/* A buffer that is too small gets what fits, and the true number comes back. */
static void test_small_buffer(void **state) {
    (void)state;
    ig_tokenizer *t = open_tokenizer("tests/data/tokenizers/llama3");
    const char *text = "The tokens of a text that is cut";
    int32_t ids[64], few[64];
    ig_ids all = {.ids = ids, .cap = 64}, out = {.ids = few, .cap = 3}, none = {0};
    ig_error err;
    memset(few, 0x55, sizeof few);
    assert_int_equal(ig_tokenizer_encode(t, &all, text, strlen(text), IG_TOKENIZE_ADD_SPECIAL, &err), IG_OK);
    assert_int_equal(ig_tokenizer_encode(t, &out, text, strlen(text), IG_TOKENIZE_ADD_SPECIAL, &err), IG_OK);
    assert_int_equal(all.n, out.n);
    assert_memory_equal(ids, few, 3 * sizeof *ids);
    assert_int_equal(few[3], 0x55555555);
    assert_int_equal(ig_tokenizer_encode(t, &none, NULL, 0, 0, &err), IG_OK);
    assert_int_equal(none.n, 0);
    ig_tokenizer_close(t);
}

/* Where more than cap ids are an error, just as many are none, and a long text is not tokenised to its end: of many
 * words, of added tokens, of one word whose length shows it. */
static void test_capped(void **state) {
    (void)state;
    ig_tokenizer *t = open_tokenizer("tests/data/tokenizers/llama3");
    static const char *const units[] = {"a b", "<|eot_id|>", " "};
    size_t size = (size_t)1 << 20;
    char *text = test_malloc(size);
    int32_t ids[64];
    ig_error err;
    for (int u = 0; u < 3; u++) {
        ig_ids out = {.cap = 0};
        for (size_t i = 0; i < size; i++) text[i] = units[u][i % strlen(units[u])];
        assert_int_equal(ig_tokenizer_encode(t, &out, text, 30, IG_TOKENIZE_PARSE_SPECIAL, &err), IG_OK);
        out = (ig_ids){.ids = ids, .cap = out.n, .is_capped = true};
        assert_int_equal(ig_tokenizer_encode(t, &out, text, 30, IG_TOKENIZE_PARSE_SPECIAL, &err), IG_OK);
        assert_int_equal(out.n, out.cap);
        out.cap--;
        assert_int_equal(ig_tokenizer_encode(t, &out, text, 30, IG_TOKENIZE_PARSE_SPECIAL, &err), IG_E_LIMIT);
        out.cap = 64;
        memory_count_start(-1);
        assert_int_equal(ig_tokenizer_encode(t, &out, text, size, IG_TOKENIZE_PARSE_SPECIAL, &err), IG_E_LIMIT);
        memory_count_stop();
        assert_true(out.n > 64 && memory_count.largest < size / 8);
        assert_string_equal(err.text, "the text has more than 64 tokens");
    }
    test_free(text);
    ig_tokenizer_close(t);
}

/* A text of one word is the worst: six bytes for each of its bytes, and half as much again for room to grow. */
static void test_memory(void **state) {
    (void)state;
    ig_tokenizer *t = open_tokenizer("tests/data/tokenizers/smollm");
    size_t size = (size_t)1 << 20;
    char *text = test_malloc(size);
    ig_ids out = {0};
    ig_error err;
    memset(text, ' ', size);
    memory_count_start(-1);
    assert_int_equal(ig_tokenizer_encode(t, &out, text, size, 0, &err), IG_OK);
    memory_count_stop();
    assert_true(memory_count.largest <= 6 * size);
    for (size_t i = 0; i < size; i++) text[i] = "words of a text. "[i % 17];
    memory_count_start(-1);
    assert_int_equal(ig_tokenizer_encode(t, &out, text, size, 0, &err), IG_OK);
    memory_count_stop();
    assert_true(memory_count.largest < 1 << 16);
    test_free(text);
    ig_tokenizer_close(t);
}

/* One word of a quarter megabyte, of every sort that an expression could stumble over. A quadratic step would take a
 * minute. */
static void test_long_words(void **state) {
    (void)state;
    static const char *const names[] = {"llama3", "smollm", "opt", "qwen2", "llama2", "gemma4"};
    static const char *const units[] = {
        "a", "A", " ", "\n", "\n ", "1", "!", "'", "\t", "\xe4\xb8\xad", "\xcc\x81\xcc\x96", "\xff", "\xe2\x96\x81"};
    size_t size = 1 << 18;
    char *text = test_malloc(size + 1);
    ig_ids out = {0};
    ig_error err;
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        char path[256];
        snprintf(path, sizeof path, "tests/data/tokenizers/%s", names[k]);
        ig_tokenizer *t = open_tokenizer(path);
        for (size_t u = k; u < sizeof units / sizeof *units; u += 2) {
            size_t unit = strlen(units[u]);
            for (size_t i = 0; i < size; i++) text[i] = units[u][i % unit];
            text[size] = 'x';
            assert_int_equal(ig_tokenizer_encode(t, &out, text, size + 1, 0, &err), IG_OK);
            assert_true(out.n > 0 && out.n <= size + 2);
        }
        ig_tokenizer_close(t);
    }
    test_free(text);
}

static void test_shared_llama2(void **state) {
    (void)state;
    if (!ig_path_exists(SHARED "llama2/tokenizer.model")) skip();
    check_golden(SHARED "llama2", SHARED "llama2/golden.jsonl", true);
    ig_tokenizer *t = open_tokenizer(SHARED "llama2");
    assert_int_equal(ig_tokenizer_bos(t), 1);
    assert_int_equal(ig_tokenizer_eos(t), 2);
    assert_true(ig_tokenizer_adds_bos(t) && ig_tokenizer_drops_first_blank(t) && ig_tokenizer_is_end(t, 2));
    ig_tokenizer_close(t);
}

/* smollm2-135m: named by the environment, or in the program's cache. */
static void test_shared_smollm2(void **state) {
    (void)state;
    char path[512] = "";
    const char *named = getenv("INFINIGEN_TEST_MODEL"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (named)
        snprintf(path, sizeof path, "%s", named);
    else if (cache && *cache)
        snprintf(path, sizeof path, "%s/infinigen/models/smollm2-135m.gguf", cache);
    else if (home)
        snprintf(path, sizeof path, "%s/.cache/infinigen/models/smollm2-135m.gguf", home);
    if (!ig_path_exists(path) || !ig_path_exists(SHARED "smollm2-135m.jsonl")) skip();
    check_golden(path, SHARED "smollm2-135m.jsonl", true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama3),        cmocka_unit_test(test_smollm),
        cmocka_unit_test(test_opt),           cmocka_unit_test(test_qwen2),
        cmocka_unit_test(test_llama2),        cmocka_unit_test(test_gemma4),
        cmocka_unit_test(test_special_ids),   cmocka_unit_test(test_invalid_bytes),
        cmocka_unit_test(test_small_buffer),  cmocka_unit_test(test_capped),
        cmocka_unit_test(test_memory),        cmocka_unit_test(test_long_words),
        cmocka_unit_test(test_shared_llama2), cmocka_unit_test(test_shared_smollm2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
