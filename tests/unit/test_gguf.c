/* SPDX-License-Identifier: Apache-2.0
 *
 * The GGUF reader on valid files: what it reads, both versions, every value type, values as text, alignments;
 * then the same file cut at every byte, with every byte changed, and with every allocation failing.
 */
#define _GNU_SOURCE
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/random.h"
#include "model/weights.h"
#include "unit/count_memory.h"
#include "unit/temp_dir.h"
#include "unit/tiny_gguf.h"

static ig_gguf *open_tiny(const tiny *t, uint8_t **bytes) {
    size_t n;
    ig_gguf *g;
    ig_error err = {0};
    *bytes = tiny_write(t, &n);
    if (ig_gguf_open_memory(&g, *bytes, n, "tiny.gguf", &err)) fail_msg("%s", err.text);
    return g;
}

static void check_print(const ig_gguf *g, const char *key, const char *wanted) {
    char text[256];
    const ig_gguf_value *v = ig_gguf_find(g, key);
    assert_non_null(v);
    assert_int_equal(ig_gguf_print(v, text, sizeof text), strlen(wanted));
    assert_string_equal(text, wanted);
    assert_int_equal(ig_gguf_print(v, text, 4), strlen(wanted));
    assert_int_equal(strlen(text), strlen(wanted) < 3 ? strlen(wanted) : 3);
}

static void reads_model(void **state) {
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        tiny t = tiny_valid();
        uint8_t *bytes;
        t.version = version;
        ig_gguf *g = open_tiny(&t, &bytes);
        assert_int_equal(ig_gguf_n_values(g), t.n_values);
        assert_int_equal(ig_gguf_n_tensors(g), t.n_tensors);
        for (int i = 0; i < t.n_values; i++) {
            assert_string_equal(ig_gguf_value_at(g, (size_t)i)->key, t.values[i].key);
            assert_ptr_equal(ig_gguf_find(g, t.values[i].key), ig_gguf_value_at(g, (size_t)i));
        }
        const uint8_t *end = NULL;
        for (int i = 0; i < t.n_tensors; i++) {
            const ig_tensor *x = ig_gguf_tensor(g, t.tensors[i].name);
            assert_ptr_equal(x, ig_gguf_tensor_at(g, (size_t)i));
            assert_int_equal(x->type, t.tensors[i].type);
            assert_int_equal(x->n_dims, t.tensors[i].n_dims);
            assert_memory_equal(x->dims, t.tensors[i].dims, sizeof x->dims);
            assert_int_equal(x->n_bytes, tiny_bytes(&t.tensors[i]));
            assert_int_equal(((const uint8_t *)x->data - bytes) % 32, 0);
            assert_true(!end || ((const uint8_t *)x->data >= end && (const uint8_t *)x->data < end + 32));
            end = (const uint8_t *)x->data + x->n_bytes;
        }
        assert_null(ig_gguf_find(g, "general"));
        assert_null(ig_gguf_tensor(g, "blk.0"));
        assert_null(ig_gguf_tensor_at(g, (size_t)t.n_tensors));
        assert_string_equal(ig_gguf_path(g), "tiny.gguf");
        ig_gguf_close(g);
        free(bytes);
    }
}

static void reads_scalars(void **state) {
    (void)state;
    tiny t = tiny_valid();
    uint8_t *bytes;
    double f64 = -0.125, inf = INFINITY;
    int8_t i8 = -5;
    int16_t i16 = -300;
    uint16_t u16 = 60000;
    uint8_t u8 = 200;
    int64_t i64 = INT64_MIN;
    tiny_raw(&t, "x.f64", IG_GGUF_F64, &f64, 8);
    tiny_raw(&t, "x.inf", IG_GGUF_F64, &inf, 8);
    tiny_raw(&t, "x.i8", IG_GGUF_I8, &i8, 1);
    tiny_raw(&t, "x.u8", IG_GGUF_U8, &u8, 1);
    tiny_raw(&t, "x.i16", IG_GGUF_I16, &i16, 2);
    tiny_raw(&t, "x.u16", IG_GGUF_U16, &u16, 2);
    tiny_raw(&t, "x.i64", IG_GGUF_I64, &i64, 8);
    tiny_i32(&t, "x.i32", -70000);
    tiny_u64(&t, "x.u64", UINT64_MAX);
    tiny_bool(&t, "x.bool", 1);
    tiny_string(&t, "x.text", "a\n\x01\"z");
    ig_gguf *g = open_tiny(&t, &bytes);
    ig_status s = IG_OK;
    ig_error err;
    int64_t x = 0;
    double d = 0;
    bool flag = false;
    ig_text text;
    assert_true(ig_gguf_int(g, "x.i8", -5, -5, &x, &s, &err) && x == -5);
    assert_true(ig_gguf_int(g, "x.u8", 0, 255, &x, &s, &err) && x == 200);
    assert_true(ig_gguf_int(g, "x.i16", -300, 0, &x, &s, &err) && x == -300);
    assert_true(ig_gguf_int(g, "x.u16", 0, 60000, &x, &s, &err) && x == 60000);
    assert_true(ig_gguf_int(g, "x.i32", -70000, 0, &x, &s, &err) && x == -70000);
    assert_true(ig_gguf_int(g, "x.i64", INT64_MIN, 0, &x, &s, &err) && x == INT64_MIN);
    assert_true(ig_gguf_float(g, "x.f64", &d, &s, &err) && d == -0.125);
    assert_true(ig_gguf_float(g, "x.i8", &d, &s, &err) && d == -5);
    assert_true(ig_gguf_bool(g, "x.bool", &flag, &s, &err) && flag);
    assert_true(ig_gguf_string(g, "x.text", &text, &s, &err) && text.size == 5 && text.data[0] == 'a');
    assert_false(ig_gguf_int(g, "x.none", 0, 1, &x, &s, &err));
    assert_int_equal(s, IG_OK);
    assert_false(ig_gguf_int(g, "x.u64", 0, 1 << 30, &x, &s, &err)); /* the first failure stays */
    assert_false(ig_gguf_bool(g, "x.text", &flag, &s, &err));
    assert_int_equal(s, IG_E_FORMAT);
    assert_non_null(strstr(err.text, "tiny.gguf: key 'x.u64'"));
    s = IG_OK;
    assert_false(ig_gguf_float(g, "x.inf", &d, &s, &err));
    assert_non_null(strstr(err.text, "key 'x.inf' is not finite"));
    s = IG_OK;
    assert_false(ig_gguf_string(g, "x.i8", &text, &s, &err));
    assert_non_null(strstr(err.text, "key 'x.i8' is of type i8, must be string"));
    check_print(g, "x.u64", "18446744073709551615");
    check_print(g, "x.i64", "-9223372036854775808");
    check_print(g, "x.f64", "-0.125");
    check_print(g, "x.bool", "true");
    check_print(g, "x.text", "a\\n\\x01\"z");
    ig_gguf_close(g);
    free(bytes);
}

static void reads_arrays(void **state) {
    (void)state;
    tiny t = tiny_valid();
    uint8_t *bytes;
    const int32_t numbers[] = {-1, 2, 3, 4, 5, 6, 7, 8, 9};
    const float floats[] = {0.5f, -2};
    const char strings[] = "\1\0\0\0\0\0\0\0a\0\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0b\"";
    tiny_array(&t, "x.i32", IG_GGUF_I32, 9, numbers, sizeof numbers);
    tiny_array(&t, "x.f32", IG_GGUF_F32, 2, floats, sizeof floats);
    tiny_array(&t, "x.text", IG_GGUF_STRING, 3, strings, sizeof strings - 1);
    tiny_array(&t, "x.bool", IG_GGUF_BOOL, 2, "\1\0", 2);
    tiny_array(&t, "x.none", IG_GGUF_U8, 0, NULL, 0);
    ig_gguf *g = open_tiny(&t, &bytes);
    assert_int_equal(ig_gguf_array_int(ig_gguf_find(g, "x.i32"), 0), -1);
    assert_int_equal(ig_gguf_array_int(ig_gguf_find(g, "x.i32"), 8), 9);
    assert_true(ig_gguf_array_float(ig_gguf_find(g, "x.f32"), 1) == -2);
    ig_text text = ig_gguf_array_string(ig_gguf_find(g, "x.text"), 2);
    assert_int_equal(text.size, 2);
    assert_memory_equal(text.data, "b\"", 2);
    assert_int_equal(ig_gguf_array_string(ig_gguf_find(g, "x.text"), 1).size, 0);
    check_print(g, "x.i32", "[-1, 2, 3, 4, 5, 6, 7, 8, ... (9 items)]");
    check_print(g, "x.f32", "[0.5, -2]");
    check_print(g, "x.text", "[\"a\", \"\", \"b\\\"\"]");
    check_print(g, "x.bool", "[true, false]");
    check_print(g, "x.none", "[]");
    ig_gguf_close(g);
    free(bytes);
}

static void reads_alignments(void **state) {
    (void)state;
    for (uint32_t alignment = 8; alignment <= 4096; alignment *= 2) {
        tiny t = tiny_valid();
        uint8_t *bytes;
        t.alignment = alignment;
        tiny_u32(&t, "general.alignment", alignment);
        ig_gguf *g = open_tiny(&t, &bytes);
        for (size_t i = 0; i < ig_gguf_n_tensors(g); i++)
            assert_int_equal(((const uint8_t *)ig_gguf_tensor_at(g, i)->data - bytes) % alignment, 0);
        ig_gguf_close(g);
        free(bytes);
    }
}

static void reads_file(void **state) {
    (void)state;
    temp_dir dir = temp_dir_open();
    char path[512];
    tiny t = tiny_valid();
    size_t n;
    uint8_t *bytes = tiny_write(&t, &n);
    ig_gguf *g;
    ig_error err = {0};
    temp_dir_path(&dir, "tiny.gguf", path, sizeof path);
    assert_int_equal(ig_gguf_open(&g, path, NULL, &err), IG_E_NOT_FOUND);
    assert_null(g);
    assert_non_null(strstr(err.text, path));
    temp_dir_write(&dir, "tiny.gguf", bytes, n);
    assert_int_equal(ig_gguf_open(&g, path, NULL, &err), IG_OK);
    assert_int_equal(ig_gguf_n_tensors(g), t.n_tensors);
    ig_gguf_close(g);
    temp_dir_write(&dir, "tiny.gguf", bytes, 0);
    assert_int_equal(ig_gguf_open(&g, path, NULL, &err), IG_E_FORMAT);
    assert_int_equal(ig_gguf_open(&g, dir.path, NULL, &err), IG_E_IO);
    ig_gguf_close(NULL);
    temp_dir_close(&dir);
    free(bytes);
}

/* Everything up to bound weights. */
static ig_status load(const uint8_t *bytes, size_t n, ig_error *err) {
    ig_gguf *g;
    ig_config c;
    ig_weights w;
    ig_status s = ig_gguf_open_memory(&g, bytes, n, "tiny.gguf", err);
    if (s) return s;
    s = ig_config_from_gguf(&c, g, err);
    if (!s) s = ig_weights_bind(&w, &c, g, NULL, NULL, err);
    if (!s) ig_weights_close(&w);
    ig_gguf_close(g);
    return s;
}

static void survives_cuts(void **state) {
    (void)state;
    tiny t = tiny_valid();
    size_t n;
    uint8_t *bytes = tiny_write(&t, &n);
    size_t padding = (t.alignment - tiny_bytes(&t.tensors[t.n_tensors - 1]) % t.alignment) % t.alignment;
    for (size_t cut = 0; cut <= n; cut++) {
        ig_error err = {0};
        uint8_t *exact = malloc(cut ? cut : 1);
        assert_non_null(exact);
        memcpy(exact, bytes, cut);
        ig_status s = load(exact, cut, &err);
        if (cut + padding >= n) {
            assert_int_equal(s, IG_OK);
        } else {
            assert_int_equal(s, IG_E_FORMAT);
            assert_int_equal(err.status, s);
            assert_non_null(strstr(err.text, "tiny.gguf: "));
        }
        free(exact);
    }
    free(bytes);
}

static void survives_changes(void **state) {
    (void)state;
    tiny t = tiny_valid();
    size_t n;
    uint8_t *bytes = tiny_write(&t, &n);
    ig_random random = {1};
    for (size_t i = 0; i < n; i++) {
        uint8_t kept = bytes[i];
        const uint8_t values[] = {0, 255, (uint8_t)(kept ^ 1), (uint8_t)(kept ^ 128), (uint8_t)ig_random_u64(&random)};
        for (size_t k = 0; k < sizeof values; k++) {
            ig_error err = {0};
            bytes[i] = values[k];
            ig_status s = load(bytes, n, &err);
            assert_true(s == IG_OK || err.text[0]);
        }
        bytes[i] = kept;
    }
    free(bytes);
}

/* What was checked stays as it was, whatever becomes of the file: here a string, and the lengths of the items of an
 * array. */
static void keeps_metadata(void **state) {
    (void)state;
    tiny t = tiny_valid();
    size_t n;
    ig_gguf *g;
    ig_error err;
    ig_text text;
    ig_status s = IG_OK;
    const char strings[] = "\1\0\0\0\0\0\0\0a\1\0\0\0\0\0\0\0b";
    tiny_array(&t, "x.text", IG_GGUF_STRING, 2, strings, sizeof strings - 1);
    uint8_t *bytes = tiny_write(&t, &n);
    assert_int_equal(ig_gguf_open_memory(&g, bytes, n, "tiny.gguf", &err), IG_OK);
    memset(bytes, 255, n);
    text = ig_gguf_array_string(ig_gguf_find(g, "x.text"), 1);
    assert_int_equal(text.size, 1);
    assert_memory_equal(text.data, "b", 1);
    assert_true(ig_gguf_string(g, "general.architecture", &text, &s, &err));
    assert_int_equal(text.size, strlen("llama"));
    assert_memory_equal(text.data, "llama", text.size);
    ig_gguf_close(g);
    free(bytes);
}

static void survives_failing_memory(void **state) {
    (void)state;
#ifndef MEMORY_IS_COUNTED
    skip();
#endif
    tiny t = tiny_valid();
    size_t n;
    const char strings[] = "\1\0\0\0\0\0\0\0a\1\0\0\0\0\0\0\0b";
    tiny_array(&t, "x.text", IG_GGUF_STRING, 2, strings, sizeof strings - 1);
    uint8_t *bytes = tiny_write(&t, &n);
    for (long fail_at = 0;; fail_at++) {
        ig_error err = {0};
        memory_count_start(fail_at);
        ig_status s = load(bytes, n, &err);
        memory_count_stop();
        assert_int_equal(memory_count.n_taken, memory_count.n_given);
        if (memory_count.fail_at >= 0) { /* there was no such allocation: all have failed once */
            assert_int_equal(s, IG_OK);
            assert_true(fail_at > 8);
            break;
        }
        assert_true(s == IG_E_MEMORY || s == IG_OK); /* qsort() does without its memory */
    }
    free(bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_model),      cmocka_unit_test(reads_scalars),  cmocka_unit_test(reads_arrays),
        cmocka_unit_test(reads_alignments), cmocka_unit_test(reads_file),     cmocka_unit_test(survives_cuts),
        cmocka_unit_test(survives_changes), cmocka_unit_test(keeps_metadata), cmocka_unit_test(survives_failing_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
