/* SPDX-License-Identifier: Apache-2.0
 *
 * SentencePiece models: a small one written field by field, what it must give, and malformed variants of it.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buffer.h"
#include "token/tokenizer.h"
#include "unit/count_memory.h"
#include "unit/temp_dir.h"

/* ---- protocol buffers ---- */

static void put_varint(ig_buffer *b, uint64_t x) {
    do {
        char c = (char)((x & 127) | (x > 127 ? 128 : 0));
        ig_buffer_add(b, &c, 1);
        x >>= 7;
    } while (x);
}

static void put_int(ig_buffer *b, uint64_t field, uint64_t x) {
    put_varint(b, field << 3);
    put_varint(b, x);
}

static void put_bytes(ig_buffer *b, uint64_t field, const void *bytes, size_t n) {
    put_varint(b, field << 3 | 2);
    put_varint(b, n);
    ig_buffer_add(b, bytes, n);
}

static void put_piece(ig_buffer *b, const char *text, size_t n, float score, uint64_t type) {
    ig_buffer piece = {0};
    put_bytes(&piece, 1, text, n);
    put_varint(&piece, 2 << 3 | 5);
    ig_buffer_add(&piece, &score, sizeof score);
    if (type != 1) put_int(&piece, 3, type);
    put_bytes(b, 1, piece.data, piece.size);
    ig_buffer_close(&piece);
}

/* ---- a model ---- */

enum { NORMAL = 1, UNKNOWN, CONTROL, USER, UNUSED, BYTE };

typedef struct model {
    struct {
        char text[16];
        float score;
        int type;
    } pieces[24];
    int n_pieces;
    uint64_t model_type, unk, bos, eos, suffix, dummy_prefix, remove_blanks, escape;
    const char *map;
    const char *tail; /* bytes put behind everything */
    size_t n_tail;
} model;

static model make_model(void) {
    model m = {.model_type = 2,
               .bos = 1,
               .eos = 2,
               .dummy_prefix = 1,
               .escape = 1,
               .map = "",
               .n_pieces = 15,
               .pieces = {{"<unk>", 0, UNKNOWN},
                          {"<s>", 0, CONTROL},
                          {"</s>", 0, CONTROL},
                          {"<0xC3>", 0, BYTE},
                          {"<0xA9>", 0, BYTE},
                          {"\xe2\x96\x81", -9, NORMAL},
                          {"a", -8, NORMAL},
                          {"b", -7, NORMAL},
                          {"ab", -2, NORMAL},
                          {"ba", -1, NORMAL},
                          {"\xe2\x96\x81"
                           "a",
                           -3, NORMAL},
                          {"\xe2\x96\x81\xe2\x96\x81", -4, NORMAL},
                          {"[x]", 0, USER},
                          {"\xe2\x96\x81"
                           "ab",
                           -5, NORMAL},
                          {"c", -6, NORMAL}}};
    return m;
}

static void write_model(const temp_dir *d, const model *m) {
    ig_buffer b = {0}, spec = {0};
    for (int i = 0; i < m->n_pieces; i++)
        put_piece(&b, m->pieces[i].text, strlen(m->pieces[i].text), m->pieces[i].score, (uint64_t)m->pieces[i].type);
    put_int(&spec, 3, m->model_type);
    put_int(&spec, 24, m->suffix);
    put_int(&spec, 40, m->unk);
    put_int(&spec, 41, m->bos);
    put_int(&spec, 42, m->eos);
    put_bytes(&b, 2, spec.data, spec.size);
    spec.size = 0;
    put_bytes(&spec, 1, "identity", 8);
    put_bytes(&spec, 2, m->map, strlen(m->map));
    put_int(&spec, 3, m->dummy_prefix);
    put_int(&spec, 4, m->remove_blanks);
    put_int(&spec, 5, m->escape);
    put_bytes(&b, 3, spec.data, spec.size);
    ig_buffer_add(&b, m->tail, m->n_tail);
    temp_dir_write(d, "tokenizer.model", b.data, b.size);
    ig_buffer_close(&b);
    ig_buffer_close(&spec);
}

static ig_tokenizer *open_model(const temp_dir *d) {
    ig_error err;
    ig_tokenizer *t;
    if (ig_tokenizer_from_hf(&t, d->path, 0, &err)) fail_msg("%s", err.text);
    return t;
}

static void check_ids(const ig_tokenizer *t, const char *text, int flags, const int32_t *want, size_t n_want) {
    int32_t ids[32];
    ig_ids out = {.ids = ids, .cap = 32};
    ig_error err;
    assert_int_equal(ig_tokenizer_encode(t, &out, text, strlen(text), flags, &err), IG_OK);
    assert_int_equal(out.n, n_want);
    assert_memory_equal(ids, want, n_want * sizeof *ids);
}
#define IDS(...) (const int32_t[]){__VA_ARGS__}, sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t)

static void test_small_model(void **state) {
    (void)state;
    temp_dir d = temp_dir_open();
    model m = make_model();
    write_model(&d, &m);
    ig_tokenizer *t = open_model(&d);
    check_ids(t, "ab", 0, IDS(13));      /* ab joins first, then the blank joins with it */
    check_ids(t, "aba", 0, IDS(10, 9));  /* ba has the best score */
    check_ids(t, "  a", 0, IDS(11, 10)); /* of three blanks the last joins with a, which scores better */
    check_ids(t, "b ab", 0, IDS(5, 7, 13));
    check_ids(t, "\xc3\xa9z", 0, IDS(5, 3, 4, 0));       /* bytes where there are byte tokens, else unknown */
    check_ids(t, "zyz\xc3\xa9z", 0, IDS(5, 0, 3, 4, 0)); /* one unknown for a run of them */
    check_ids(t, "a[x]b", 0, IDS(10, 12, 7));            /* a user's token always counts, no blank goes behind it */
    check_ids(t, "[x]ab [x]", 0, IDS(5, 12, 8, 5, 12));
    check_ids(t, "a</s>", 2, IDS(10, 2));
    check_ids(t, "a<unk>", 2, IDS(10, 0));
    check_ids(t, "b", 1, IDS(1, 5, 7));
    assert_true(ig_tokenizer_adds_bos(t) && ig_tokenizer_is_end(t, 2) && ig_tokenizer_drops_first_blank(t));
    char piece[8];
    assert_int_equal(ig_tokenizer_piece(t, 13, false, piece, sizeof piece), 3);
    assert_memory_equal(piece, " ab", 3);
    assert_int_equal(ig_tokenizer_piece(t, 3, false, piece, sizeof piece), 1);
    assert_memory_equal(piece, "\xc3", 1);
    assert_int_equal(ig_tokenizer_piece(t, 0, false, piece, sizeof piece), 0);
    ig_tokenizer_close(t);

    m.dummy_prefix = 0;
    write_model(&d, &m);
    t = open_model(&d);
    check_ids(t, "ab", 0, IDS(8));
    assert_false(ig_tokenizer_drops_first_blank(t));
    ig_tokenizer_close(t);
    temp_dir_close(&d);
}

/* A piece that goes on over a blank forbids cutting the text there. */
static void test_piece_over_blank(void **state) {
    (void)state;
    temp_dir d = temp_dir_open();
    model m = make_model();
    strcpy(m.pieces[14].text, "b\xe2\x96\x81");
    m.pieces[14].score = -0.5f;
    write_model(&d, &m);
    ig_tokenizer *t = open_model(&d);
    check_ids(t, "b a", 0, IDS(5, 14, 6));
    ig_tokenizer_close(t);
    temp_dir_close(&d);
}

/* A user's piece of blanks is found where the text has as many, the one that is put first among them. */
static void test_user_blanks(void **state) {
    (void)state;
    temp_dir d = temp_dir_open();
    model m = make_model();
    m.pieces[11].type = USER;
    write_model(&d, &m);
    ig_tokenizer *t = open_model(&d);
    check_ids(t, " a", 0, IDS(11, 6));
    check_ids(t, "  b", 0, IDS(11, 5, 7));
    check_ids(t, "b  b", 0, IDS(5, 7, 11, 7));
    ig_tokenizer_close(t);
    temp_dir_close(&d);
}

static void test_config_beside(void **state) {
    (void)state;
    static const char config[] =
        "{\"add_bos_token\": false, \"eos_token\": {\"content\": \"<end>\"}, \"added_tokens_decoder\": "
        "{\"0\": {\"content\": \"<unk>\", \"special\": true}, \"4\": {\"content\": \"<0xA9>\"}, \"15\": {\"content\": "
        "\"<end>\", \"special\": true}}}";
    temp_dir d = temp_dir_open();
    model m = make_model();
    write_model(&d, &m);
    temp_dir_write(&d, "tokenizer_config.json", config, sizeof config - 1);
    ig_tokenizer *t = open_model(&d);
    assert_int_equal(ig_tokenizer_n_vocab(t), 16);
    assert_int_equal(ig_tokenizer_eos(t), 15);
    assert_true(ig_tokenizer_is_end(t, 15) && !ig_tokenizer_adds_bos(t));
    check_ids(t, "a<end>", 3, IDS(10, 15));
    check_ids(t, "\xc3\xa9", 0, IDS(5, 3, 4)); /* a byte's token that is added is still the byte's */
    ig_tokenizer_close(t);
    temp_dir_close(&d);
}

/* Of older models: what is no special token by name is its user's. */
static void test_added_tokens_beside(void **state) {
    (void)state;
    static const char config[] = "{\"eos_token\": \"<end>\"}",
                      added[] = "{\"<tool>\": 16, \"<end>\": 15, \"<|im_end|>\": 17}";
    temp_dir d = temp_dir_open();
    model m = make_model();
    write_model(&d, &m);
    temp_dir_write(&d, "tokenizer_config.json", config, sizeof config - 1);
    temp_dir_write(&d, "added_tokens.json", added, sizeof added - 1);
    ig_tokenizer *t = open_model(&d);
    assert_int_equal(ig_tokenizer_n_vocab(t), 18);
    assert_true(ig_tokenizer_eos(t) == 15 && ig_tokenizer_is_end(t, 15) && ig_tokenizer_is_end(t, 17));
    check_ids(t, "a<tool>", 0, IDS(10, 16));
    check_ids(t, "a<tool><end><|im_end|>", 2, IDS(10, 16, 15, 17));
    assert_int_equal(ig_tokenizer_piece(t, 15, false, NULL, 0), 0);
    assert_int_equal(ig_tokenizer_piece(t, 16, false, NULL, 0), 6);
    ig_tokenizer_close(t);
    temp_dir_close(&d);
}

/* ---- malformed ---- */

#define SPM_CASES(X)                                                                                                  \
    X(no_pieces, IG_E_FORMAT, "pieces: there are none", m->n_pieces = 0)                                              \
    X(unigram, IG_E_UNSUPPORTED, "model_type: unigram", m->model_type = 1)                                            \
    X(word, IG_E_UNSUPPORTED, "model_type: word", m->model_type = 3)                                                  \
    X(suffix, IG_E_UNSUPPORTED, "treat_whitespace_as_suffix", m->suffix = 1)                                          \
    X(map, IG_E_UNSUPPORTED, "precompiled_charsmap", m->map = "xyz")                                                  \
    X(remove_blanks, IG_E_UNSUPPORTED, "remove_extra_whitespaces", m->remove_blanks = 1)                              \
    X(escape, IG_E_UNSUPPORTED, "escape_whitespaces", m->escape = 0)                                                  \
    X(type_0, IG_E_FORMAT, "piece 6: unknown type 0", m->pieces[6].type = 0)                                          \
    X(type_7, IG_E_FORMAT, "piece 6: unknown type 7", m->pieces[6].type = 7)                                          \
    X(empty, IG_E_FORMAT, "piece 6 is empty", m->pieces[6].text[0] = 0)                                               \
    X(byte, IG_E_FORMAT, "piece 3: a byte not of the form", strcpy(m->pieces[3].text, "<0xc3>"))                      \
    X(twice, IG_E_FORMAT, "token 7, 'a', is there twice", strcpy(m->pieces[7].text, "a"))                             \
    X(user_twice, IG_E_FORMAT, "'[x]', is there twice", (strcpy(m->pieces[2].text, "[x]"), m->pieces[2].type = USER)) \
    X(score, IG_E_FORMAT, "score of token 6 is not a number", m->pieces[6].score = (float)atof("nan"))                \
    X(score_infinite, IG_E_FORMAT, "score of token 6 is not a number", m->pieces[6].score = (float)atof("inf"))       \
    X(bos, IG_E_FORMAT, "special token id", m->bos = 15)                                                              \
    X(unk, IG_E_FORMAT, "special token id", m->unk = 1000000)                                                         \
    X(tail_tag, IG_E_FORMAT, "cut off or malformed", (m->tail = "\x0a", m->n_tail = 1))                               \
    X(tail_length, IG_E_FORMAT, "cut off or malformed",                                                               \
      (m->tail = "\x0a\x05"                                                                                           \
                 "ab",                                                                                                \
       m->n_tail = 4))                                                                                                \
    X(tail_huge, IG_E_FORMAT, "cut off or malformed",                                                                 \
      (m->tail = "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", m->n_tail = 11))                                     \
    X(tail_varint, IG_E_FORMAT, "cut off or malformed",                                                               \
      (m->tail = "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", m->n_tail = 12))                                 \
    X(tail_fixed, IG_E_FORMAT, "cut off or malformed", (m->tail = "\x0d\x01\x02", m->n_tail = 3))                     \
    X(tail_group, IG_E_FORMAT, "cut off or malformed", (m->tail = "\x0b", m->n_tail = 1))                             \
    X(tail_field_0, IG_E_FORMAT, "cut off or malformed", (m->tail = "\x00\x00", m->n_tail = 2))                       \
    X(tail_piece, IG_E_FORMAT, "piece 15 is malformed", (m->tail = "\x0a\x02\x0a\x05", m->n_tail = 4))                \
    X(tail_empty_piece, IG_E_FORMAT, "piece 15 is empty", (m->tail = "\x0a\x00", m->n_tail = 2))                      \
    X(tail_trainer, IG_E_FORMAT, "cut off or malformed", (m->tail = "\x12\x01\x18", m->n_tail = 3))

#define SPM_FUNCTION(name, status, mention, change) \
    static void change_##name(model *m) { change; }
SPM_CASES(SPM_FUNCTION)

static const struct {
    const char *name;
    ig_status status;
    const char *mention;
    void (*change)(model *m);
} spm_cases[] = {
#define SPM_ENTRY(name, status, mention, change) {#name, status, mention, change_##name},
    SPM_CASES(SPM_ENTRY)};

static void test_malformed(void **state) {
    (void)state;
    temp_dir d = temp_dir_open();
    for (size_t i = 0; i < sizeof spm_cases / sizeof *spm_cases; i++) {
        model m = make_model();
        ig_error err = {0};
        ig_tokenizer *t;
        spm_cases[i].change(&m);
        write_model(&d, &m);
        memory_count_start(-1);
        ig_status s = ig_tokenizer_from_hf(&t, d.path, 0, &err);
        memory_count_stop();
        if (s != spm_cases[i].status || !strstr(err.text, spm_cases[i].mention) || !strstr(err.text, d.path))
            fail_msg("%s: wanted %d with \"%s\", got %d: %s", spm_cases[i].name, spm_cases[i].status,
                     spm_cases[i].mention, s, err.text);
        assert_null(t);
        assert_int_equal(memory_count.n_taken, memory_count.n_given);
        assert_true(memory_count.largest < 65536);
    }
    temp_dir_close(&d);
}

/* Cut off anywhere, or with any byte changed: an error or a model, never a crash. */
static void test_damaged(void **state) {
    (void)state;
    temp_dir d = temp_dir_open();
    model m = make_model();
    char path[512], bytes[1024];
    write_model(&d, &m);
    temp_dir_path(&d, "tokenizer.model", path, sizeof path);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t size = fread(bytes, 1, sizeof bytes, f);
    ig_ids out = {0};
    fclose(f);
    for (size_t i = 0; i < 2 * size; i++) {
        bool cut = i < size;
        ig_error err;
        ig_tokenizer *t;
        char *at = &bytes[i % size], old = *at;
        *at = (char)(cut ? old : ~old);
        temp_dir_write(&d, "tokenizer.model", bytes, cut ? i : size);
        if (ig_tokenizer_from_hf(&t, d.path, 0, &err) == IG_OK)
            assert_int_equal(ig_tokenizer_encode(t, &out, "ab  a[x]\xc3\xa9", 11, 3, &err), IG_OK);
        ig_tokenizer_close(t);
        *at = old;
    }
    temp_dir_close(&d);
}

static void test_failing_allocations(void **state) {
    (void)state;
    temp_dir d = temp_dir_open();
    model m = make_model();
    write_model(&d, &m);
    bool ok = false;
    for (long fail_at = 0; !ok; fail_at++) {
        ig_error err = {0};
        ig_tokenizer *t = NULL;
        ig_ids out = {0};
        memory_count_start(fail_at);
        ig_status s = ig_tokenizer_from_hf(&t, d.path, 0, &err);
        if (!s) s = ig_tokenizer_encode(t, &out, "ab a", 4, 3, &err);
        ig_tokenizer_close(t);
        memory_count_stop();
        ok = memory_count.fail_at >= 0;
        if (s != IG_OK && s != IG_E_MEMORY) fail_msg("allocation %ld: %d: %s", fail_at, s, err.text);
        assert_true(ok ? s == IG_OK : s == IG_E_MEMORY);
        assert_int_equal(memory_count.n_taken, memory_count.n_given);
    }
    temp_dir_close(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_model),
        cmocka_unit_test(test_piece_over_blank),
        cmocka_unit_test(test_user_blanks),
        cmocka_unit_test(test_config_beside),
        cmocka_unit_test(test_added_tokens_beside),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
