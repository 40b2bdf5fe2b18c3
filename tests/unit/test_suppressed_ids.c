/* SPDX-License-Identifier: Apache-2.0
 *
 * Ids that no answer may have, as GGUF files and Hugging Face directories name them.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "token/tokenizer.h"
#include "unit/temp_dir.h"
#include "unit/tiny_gguf.h"

static void expect_ids(const ig_tokenizer *t, const int32_t *wanted, size_t n) {
    const int32_t *ids;
    assert_int_equal(ig_tokenizer_suppressed(t, &ids), n);
    if (n) assert_memory_equal(ids, wanted, n * sizeof *ids);
}

static ig_status open_hf(ig_tokenizer **t, const char *generation, ig_error *err) {
    static const char tokenizer[] =
        "{\"added_tokens\": [{\"id\": 3, \"content\": \"<e>\", \"special\": true}], \"normalizer\": null,"
        " \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": true},"
        " \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": [\"a b\"]}}";
    temp_dir d = temp_dir_open();
    temp_dir_write(&d, "tokenizer.json", tokenizer, strlen(tokenizer));
    if (generation) temp_dir_write(&d, "generation_config.json", generation, strlen(generation));
    ig_status s = ig_tokenizer_from_hf(t, d.path, 0, err);
    temp_dir_close(&d);
    return s;
}

static void in_json(void **state) {
    static const struct {
        const char *text;
        int32_t ids[4];
        size_t n;
    } cases[] = {
        {NULL, {0}, 0},
        {"{\"eos_token_id\": 3}", {0}, 0},
        {"{\"suppress_tokens\": null}", {0}, 0},
        {"{\"suppress_tokens\": []}", {0}, 0},
        {"{\"suppress_tokens\": 2}", {2}, 1},
        {"{\"suppress_tokens\": [3, 0, 3, 1, 0], \"eos_token_id\": 3}", {0, 1, 3}, 3},
        {"{\"suppress_tokens\": [2147483647, 4, 0]}", {0, 4, INT32_MAX}, 3}, /* rows that no token belongs to */
    };
    (void)state;
    for (size_t i = 0; i < IG_COUNT(cases); i++) {
        ig_tokenizer *t;
        ig_error err;
        if (open_hf(&t, cases[i].text, &err)) fail_msg("%s: %s", cases[i].text, err.text);
        expect_ids(t, cases[i].ids, cases[i].n);
        ig_tokenizer_close(t);
    }
}

static void wrong_in_json(void **state) {
    static const char *const values[] = {
        "-1",        "[0, -1]", "[2147483648]", "[1.0]",  "[\"1\"]",         "[[1]]", "{}",
        "[1, null]", "true",    "\"1\"",        "[true]", "[0, 4294967296]", "1.5",   "[99999999999999999999]"};
    (void)state;
    for (size_t i = 0; i < IG_COUNT(values); i++) {
        char text[128];
        ig_tokenizer *t;
        ig_error err;
        snprintf(text, sizeof text, "{\"suppress_tokens\": %s}", values[i]);
        ig_status s = open_hf(&t, text, &err);
        if (s != IG_E_FORMAT || !strstr(err.text, "generation_config.json: suppress_tokens: is not a token id"))
            fail_msg("%s: %d: %s", values[i], (int)s, s ? err.text : "");
        assert_null(t);
    }
}

/* A tokenizer of the three tokens a, b and ab, with an array of ids. */
static ig_status open_gguf(ig_tokenizer **t, uint32_t item_type, uint64_t n, const void *ids, size_t n_bytes,
                           ig_error *err) {
    static const char tokens[] = "\1\0\0\0\0\0\0\0a\1\0\0\0\0\0\0\0b\2\0\0\0\0\0\0\0ab";
    static const char merge[] = "\3\0\0\0\0\0\0\0a b";
    tiny file = tiny_valid();
    ig_gguf *g;
    size_t size;
    tiny_string(&file, "tokenizer.ggml.model", "gpt2");
    tiny_string(&file, "tokenizer.ggml.pre", "gpt-2");
    tiny_array(&file, "tokenizer.ggml.tokens", IG_GGUF_STRING, 3, tokens, sizeof tokens - 1);
    tiny_array(&file, "tokenizer.ggml.merges", IG_GGUF_STRING, 1, merge, sizeof merge - 1);
    tiny_array(&file, "tokenizer.ggml.suppress_tokens", item_type, n, ids, n_bytes);
    uint8_t *bytes = tiny_write(&file, &size);
    if (ig_gguf_open_memory(&g, bytes, size, "m.gguf", err)) fail_msg("%s", err->text);
    ig_status s = ig_tokenizer_from_gguf(t, g, err);
    ig_gguf_close(g);
    free(bytes);
    return s;
}

static void in_gguf(void **state) {
    static const int32_t ids[] = {2, 0, 2, INT32_MAX, -1, 3, 0};
    static const uint32_t unsigned_ids[] = {1, UINT32_MAX, UINT32_MAX - 1};
    static const uint8_t bytes[] = {1, 255, 1};
    ig_tokenizer *t;
    ig_error err;
    (void)state;
    if (open_gguf(&t, IG_GGUF_I32, IG_COUNT(ids), ids, sizeof ids, &err)) fail_msg("%s", err.text);
    expect_ids(t, (const int32_t[]){0, 2, 3, INT32_MAX}, 4);
    ig_tokenizer_close(t);
    if (open_gguf(&t, IG_GGUF_U32, IG_COUNT(unsigned_ids), unsigned_ids, sizeof unsigned_ids, &err))
        fail_msg("%s", err.text);
    expect_ids(t, (const int32_t[]){1}, 1);
    ig_tokenizer_close(t);
    if (open_gguf(&t, IG_GGUF_U8, IG_COUNT(bytes), bytes, sizeof bytes, &err)) fail_msg("%s", err.text);
    expect_ids(t, (const int32_t[]){1, 255}, 2);
    ig_tokenizer_close(t);
    if (open_gguf(&t, IG_GGUF_I32, 0, NULL, 0, &err)) fail_msg("%s", err.text);
    expect_ids(t, NULL, 0);
    ig_tokenizer_close(t);
}

static void wrong_in_gguf(void **state) {
    static const int32_t negative[] = {1, -2};
    static const uint64_t large[] = {1, UINT64_MAX - 1, (uint64_t)1 << 32};
    static const float floats[] = {1};
    static const uint8_t flags[] = {1};
    static const struct {
        uint32_t type;
        uint64_t n;
        const void *ids;
        size_t n_bytes;
        const char *mention;
    } cases[] = {
        {IG_GGUF_I32, 2, negative, sizeof negative, "suppress_tokens: has an item that is not a token id"},
        {IG_GGUF_U64, 2, large, 16, "suppress_tokens: has an item that is not a token id"},
        {IG_GGUF_U64, 1, large + 2, 8, "suppress_tokens: has an item that is not a token id"},
        {IG_GGUF_F32, 1, floats, sizeof floats, "suppress_tokens: items are not integers"},
        {IG_GGUF_BOOL, 1, flags, sizeof flags, "suppress_tokens: items are not integers"},
    };
    (void)state;
    for (size_t i = 0; i < IG_COUNT(cases); i++) {
        ig_tokenizer *t;
        ig_error err;
        ig_status s = open_gguf(&t, cases[i].type, cases[i].n, cases[i].ids, cases[i].n_bytes, &err);
        if (s != IG_E_FORMAT || !strstr(err.text, cases[i].mention))
            fail_msg("%zu: %d: %s", i, (int)s, s ? err.text : "");
        assert_null(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_json),
        cmocka_unit_test(wrong_in_json),
        cmocka_unit_test(in_gguf),
        cmocka_unit_test(wrong_in_gguf),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
