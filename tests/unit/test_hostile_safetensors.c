/* SPDX-License-Identifier: Apache-2.0
 *
 * Malformed safetensors files: every one must be refused with the right status and a text that names file and
 * field, without taking more memory than the file's size justifies.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/buffer.h"
#include "format/safetensors.h"
#include "unit/count_memory.h"
#include "unit/tiny_safetensors.h"

#define T(name, dtype, shape, offsets) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static const struct {
    const char *header;
    size_t n_data;
    ig_status wanted;
    const char *field;
} cases[] = {
    /* the header as JSON */
    {"", 0, IG_E_FORMAT, "no JSON object"},
    {" {}", 0, IG_E_FORMAT, "no JSON object"},
    {"[]", 0, IG_E_FORMAT, "no JSON object"},
    {"{", 0, IG_E_FORMAT, "line 1"},
    {"{]", 0, IG_E_FORMAT, "line 1"},
    {"{}{}", 0, IG_E_FORMAT, "line 1"},
    {"{\"a\":\"\xff\"}", 0, IG_E_FORMAT, "line 1"},
    {"{\"a\\u0000\":1}", 0, IG_E_FORMAT, "line 1"},
    {"{" T("a", "F32", "[1]", "[0,4]") "," T("a", "F32", "[1]", "[4,8]") "}", 8, IG_E_FORMAT, "duplicate"},
    {"{" T("a", "F32", "[99999999999999999999]", "[0,4]") "}", 4, IG_E_FORMAT, "'a': 'shape'"},
    /* descriptions */
    {"{\"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz\":1}", 4, IG_E_FORMAT, "its description is no object"},
    {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]},\"__metadata__\":{}}", 4, IG_E_FORMAT, "'a': 'dtype'"},
    {"{\"a\":{\"dtype\":1,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, IG_E_FORMAT, "'a': 'dtype'"},
    {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]},\"__metadata__\":{}}", 4, IG_E_FORMAT, "'a': 'shape'"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]},\"__metadata__\":{\"a\":\"b\"}}", 4, IG_E_FORMAT, "'a': 'data_offsets'"},
    {"{" T("", "F32", "[1]", "[0,4]") "}", 4, IG_E_FORMAT, "its name has 0 bytes"},
    {"{" T("a\\u001b[2J", "F32", "[1]", "[0,4]") "}", 4, IG_E_FORMAT, "control character"},
    {"{" T("a", "F64", "[1]", "[0,8]") "}", 8, IG_E_UNSUPPORTED, "'a': dtype 'F64'"},
    {"{" T("a", "F64", "[1]", "[0,8]") "}", 8, IG_E_UNSUPPORTED, "'a': dtype 'F64'"},
    {"{" T("a", "F8_E5M2", "[4]", "[0,4]") "}", 4, IG_E_UNSUPPORTED, "'a': dtype 'F8_E5M2'"},
    {"{" T("a", "f32", "[1]", "[0,4]") "}", 4, IG_E_UNSUPPORTED, "'a': dtype 'f32'"},
    {"{" T("a", "", "[1]", "[0,4]") "}", 4, IG_E_UNSUPPORTED, "'a': dtype ''"},
    /* shapes */
    {"{" T("a", "F32", "4", "[0,16]") "}", 16, IG_E_FORMAT, "'a': 'shape'"},
    {"{" T("a", "F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]") "}", 4, IG_E_FORMAT, "'a': 'shape'"},
    {"{" T("a", "F32", "[0]", "[0,0]") "}", 4, IG_E_FORMAT, "'a': 'shape' item 0"},
    {"{" T("a", "F32", "[2,-1]", "[0,8]") "}", 8, IG_E_FORMAT, "'a': 'shape' item 1"},
    {"{" T("a", "F32", "[1.0]", "[0,4]") "}", 4, IG_E_FORMAT, "'a': 'shape' item 0"},
    {"{" T("a", "F32", "[\"1\"]", "[0,4]") "}", 4, IG_E_FORMAT, "'a': 'shape' item 0"},
    {"{" T("a", "F32", "[4294967296,4294967296]", "[0,4]") "}", 4, IG_E_FORMAT, "'a': the product of 'shape'"},
    {"{" T("a", "F32", "[4611686018427387905]", "[0,4]") "}", 4, IG_E_FORMAT, "'a': the product of 'shape'"},
    {"{" T("a", "F16", "[2147483648,2147483648]", "[0,4]") "}", 4, IG_E_FORMAT, "'a': the product of 'shape'"},
    /* offsets */
    {"{" T("a", "F32", "[1]", "[0]") "}", 4, IG_E_FORMAT, "'a': 'data_offsets'"},
    {"{" T("a", "F32", "[1]", "[0,4,8]") "}", 8, IG_E_FORMAT, "'a': 'data_offsets'"},
    {"{" T("a", "F32", "[1]", "{}") "}", 4, IG_E_FORMAT, "'a': 'data_offsets'"},
    {"{" T("a", "F32", "[1]", "[0,4.0]") "}", 4, IG_E_FORMAT, "'a': 'data_offsets'"},
    {"{" T("a", "F32", "[1]", "[4,0]") "}", 4, IG_E_FORMAT, "'a': 'data_offsets' 4 to 0"},
    {"{" T("a", "F32", "[1]", "[4,4]") "}", 4, IG_E_FORMAT, "'a': 'data_offsets' 4 to 4"},
    {"{" T("a", "F32", "[1]", "[-4,0]") "}", 4, IG_E_FORMAT, "'a': 'data_offsets' -4 to 0"},
    {"{" T("a", "F32", "[1]", "[-9223372036854775808,4]") "}", 4, IG_E_FORMAT, "'a': 'data_offsets'"},
    {"{" T("a", "F32", "[1]", "[0,8]") "}", 8, IG_E_FORMAT, "'a': 'data_offsets' span 8 bytes"},
    {"{" T("a", "F32", "[2]", "[0,4]") "}", 8, IG_E_FORMAT, "'a': 'data_offsets' span 4 bytes"},
    {"{" T("a", "F32", "[1]", "[0,4]") "}", 3, IG_E_FORMAT, "'a': 'data_offsets' end at 4"},
    {"{" T("a", "F32", "[1]", "[4,8]") "}", 4, IG_E_FORMAT, "'a': 'data_offsets' end at 8"},
    {"{" T("a", "F32", "[1]", "[9223372036854775803,9223372036854775807]") "}", 4, IG_E_FORMAT, "'data_offsets' end"},
    {"{" T("a", "F32", "[1]", "[2,6]") "}", 8, IG_E_UNSUPPORTED, "'a': its data is not aligned"},
    {"{" T("a", "F16", "[1]", "[1,3]") "}", 8, IG_E_UNSUPPORTED, "'a': its data is not aligned"},
    {"{" T("a", "F32", "[2]", "[0,8]") "," T("b", "F32", "[2]", "[4,12]") "}", 12, IG_E_FORMAT, "'a' and 'b' overlap"},
    {"{" T("a", "F32", "[2]", "[0,8]") "," T("b", "F32", "[2]", "[0,8]") "}", 8, IG_E_FORMAT, "overlap"},
    {"{" T("a", "F32", "[4]", "[0,16]") "," T("b", "F32", "[1]", "[4,8]") "}", 16, IG_E_FORMAT, "'a' and 'b' overlap"},
};

static ig_status open_counted(const uint8_t *bytes, size_t n, ig_error *err) {
    ig_safetensors *s;
    memory_count_start(-1);
    ig_status status = ig_safetensors_open_memory(&s, bytes, n, "hostile.safetensors", err);
    ig_safetensors_close(s);
    memory_count_stop();
    assert_int_equal(memory_count.n_taken, memory_count.n_given);
    assert_true(memory_count.largest <= n + (1 << 20));
    return status;
}

static void refuses_cases(void **state) {
    (void)state;
    int n_wrong = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n;
        ig_error err = {0};
        uint8_t *bytes = tiny_safetensors(cases[i].header, cases[i].n_data, &n);
        ig_status s = open_counted(bytes, n, &err);
        if (s != cases[i].wanted || !strstr(err.text, cases[i].field) || !strstr(err.text, "hostile.safetensors: ")) {
            n_wrong++;
            print_error("%s: status %d, wanted %d naming %s: %s\n", cases[i].header, s, cases[i].wanted, cases[i].field,
                        err.text);
        }
        free(bytes);
    }
    assert_int_equal(n_wrong, 0);
}

static void refuses_lengths(void **state) {
    (void)state;
    const uint64_t lengths[] = {17, 100000001, 1ull << 32, 1ull << 63, UINT64_MAX - 7, UINT64_MAX};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        size_t n;
        ig_error err = {0};
        uint8_t *bytes = tiny_safetensors("{\"a\":\"0123456\"}", 0, &n);
        memcpy(bytes, &lengths[i], sizeof lengths[i]);
        assert_int_equal(open_counted(bytes, n, &err), IG_E_FORMAT);
        assert_non_null(strstr(err.text, "hostile.safetensors: header length"));
        free(bytes);
    }
}

/* Texts that are much smaller than what they could make a careless reader build. */
static void refuses_bombs(void **state) {
    (void)state;
    size_t n;
    ig_error err = {0};
    ig_buffer b = {0};
    ig_buffer_text(&b, "{\"a\":");
    for (int i = 0; i < 100000; i++) ig_buffer_text(&b, "[");
    uint8_t *bytes = tiny_safetensors(b.data, 0, &n);
    assert_int_equal(open_counted(bytes, n, &err), IG_E_FORMAT);
    assert_non_null(strstr(err.text, "line 1"));
    free(bytes);
    ig_buffer_close(&b);

    ig_buffer_text(&b, "{\"a\":1");
    for (int i = 0; i < 50000; i++) ig_buffer_format(&b, ",\"%x\":1", i + 16);
    ig_buffer_text(&b, "}");
    bytes = tiny_safetensors(b.data, 0, &n);
    assert_int_equal(open_counted(bytes, n, &err), IG_E_FORMAT);
    assert_non_null(strstr(err.text, "header: "));
    free(bytes);
    ig_buffer_close(&b);
}

/* More tensors than any model has, each valid. */
static void refuses_many_tensors(void **state) {
    enum { MOST = 262144 };
    (void)state;
    size_t n;
    ig_error err = {0};
    ig_buffer b = {0};
    for (int i = 0; i <= MOST; i++)
        ig_buffer_format(&b, "%c\"%d\":{\"dtype\":\"F16\",\"shape\":[],\"data_offsets\":[%d,%d]}", i ? ',' : '{', i,
                         2 * i, 2 * i + 2);
    ig_buffer_text(&b, "}");
    uint8_t *bytes = tiny_safetensors(b.data, 2 * (MOST + 1), &n);
    assert_int_equal(open_counted(bytes, n, &err), IG_E_LIMIT);
    assert_non_null(strstr(err.text, "hostile.safetensors: header: more than 262144 tensors"));
    free(bytes);
    ig_buffer_close(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_cases),
        cmocka_unit_test(refuses_lengths),
        cmocka_unit_test(refuses_bombs),
        cmocka_unit_test(refuses_many_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
