/* SPDX-License-Identifier: Apache-2.0
 *
 * The safetensors reader on valid files and directories, then the same file cut at every byte, with every
 * byte changed, and with every allocation failing.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "format/safetensors.h"
#include "unit/count_memory.h"
#include "unit/temp_dir.h"
#include "unit/tiny_safetensors.h"

static const char header[] =
    "{\"__metadata__\":{\"format\":\"pt\"},"
    "\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
    "\"b\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[24,32]},"
    "\"c\":{\"dtype\":\"BF16\",\"shape\":[2,1,2,1,3],\"data_offsets\":[32,56]},"
    "\"d\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[56,60]}}";
enum { DATA_BYTES = 60 };

static void check_tensor(const ig_safetensors *s, const char *name, ig_type type, int n_dims, uint64_t dim0,
                         uint64_t dim1, int first, size_t n_bytes) {
    const ig_tensor *t = ig_safetensors_tensor(s, name);
    assert_non_null(t);
    assert_string_equal(t->name, name);
    assert_int_equal(t->type, type);
    assert_int_equal(t->n_dims, n_dims);
    assert_int_equal(t->dims[0], dim0);
    assert_int_equal(t->dims[1], dim1);
    assert_int_equal(*(const uint8_t *)t->data, first);
    assert_int_equal(t->n_bytes, n_bytes);
}

static void check_all(const ig_safetensors *s) {
    assert_int_equal(ig_safetensors_n_tensors(s), 4);
    check_tensor(s, "a", IG_TYPE_F32, 2, 3, 2, 0, 24);
    check_tensor(s, "b", IG_TYPE_F16, 1, 4, 1, 24, 8);
    check_tensor(s, "c", IG_TYPE_BF16, 4, 3, 1, 32, 24);
    check_tensor(s, "d", IG_TYPE_F32, 1, 1, 1, 56, 4);
    assert_int_equal(ig_safetensors_tensor(s, "c")->dims[2], 2);
    assert_int_equal(ig_safetensors_tensor(s, "c")->dims[3], 2); /* five: the last two count as one */
    assert_null(ig_safetensors_tensor(s, "e"));
    assert_null(ig_safetensors_tensor(s, "__metadata__"));
    assert_null(ig_safetensors_tensor_at(s, 4));
}

static void reads_memory(void **state) {
    (void)state;
    size_t n;
    ig_safetensors *s;
    ig_error err = {0};
    uint8_t *bytes = tiny_safetensors(header, DATA_BYTES, &n);
    if (ig_safetensors_open_memory(&s, bytes, n, "tiny", &err)) fail_msg("%s", err.text);
    check_all(s);
    assert_string_equal(ig_safetensors_path(s), "tiny");
    ig_safetensors_close(s);
    ig_safetensors_close(NULL);
    free(bytes);
}

static void reads_directory(void **state) {
    (void)state;
    size_t n;
    ig_safetensors *s;
    ig_error err = {0};
    temp_dir dir = temp_dir_open();
    assert_int_equal(ig_safetensors_open(&s, dir.path, "model", NULL, &err), IG_E_NOT_FOUND);
    assert_non_null(strstr(err.text, "no model.safetensors"));
    temp_dir_write(&dir, "pytorch_model.bin", "", 0);
    assert_int_equal(ig_safetensors_open(&s, dir.path, "model", NULL, &err), IG_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "pytorch_model.bin"));
    uint8_t *bytes = tiny_safetensors(header, DATA_BYTES, &n);
    temp_dir_write(&dir, "model.safetensors", bytes, n);
    if (ig_safetensors_open(&s, dir.path, "model", NULL, &err)) fail_msg("%s", err.text);
    check_all(s);
    assert_string_equal(ig_safetensors_path(s), dir.path);
    ig_safetensors_close(s);
    temp_dir_close(&dir);
    free(bytes);
}

/* ---- shards ---- */

static void write_shard(const temp_dir *dir, const char *file, const char *text, size_t n_data) {
    size_t n;
    uint8_t *bytes = tiny_safetensors(text, n_data, &n);
    temp_dir_write(dir, file, bytes, n);
    free(bytes);
}

static void write_shards(const temp_dir *dir) {
    write_shard(dir, "1.safetensors",
                "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                "\"c\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
                8);
    write_shard(dir, "2.safetensors", "{\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8);
}

static ig_status open_index(const temp_dir *dir, const char *index, ig_safetensors **s, ig_error *err) {
    temp_dir_write(dir, "model.safetensors.index.json", index, strlen(index));
    return ig_safetensors_open(s, dir->path, "model", NULL, err);
}

/* An ig_progress_fn that notes what the first call says. */
static bool note_total(void *user, uint64_t done, uint64_t total) {
    uint64_t *first = user;
    (void)done;
    if (!*first) *first = total;
    return false;
}

static void reads_shards(void **state) {
    (void)state;
    ig_safetensors *s;
    ig_error err = {0};
    temp_dir dir = temp_dir_open();
    write_shards(&dir);
    if (open_index(&dir,
                   "{\"metadata\":{\"total_size\":12},\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\","
                   "\"c\":\"1.safetensors\"}}",
                   &s, &err))
        fail_msg("%s", err.text);
    assert_int_equal(ig_safetensors_n_tensors(s), 3);
    check_tensor(s, "a", IG_TYPE_F32, 1, 1, 1, 0, 4);
    check_tensor(s, "b", IG_TYPE_F32, 1, 1, 1, 4, 4);
    check_tensor(s, "c", IG_TYPE_F32, 1, 1, 1, 4, 4);
    ig_safetensors_close(s);

    /* Copied, the tensors stay when the files go. The sum of their sizes is known before the first byte is. */
    uint64_t first_total = 0;
    ig_loading copy = {.progress = note_total, .user = &first_total};
    if (ig_safetensors_open(&s, dir.path, "model", &copy, &err)) fail_msg("%s", err.text);
    assert_null(ig_safetensors_changed(s));
    write_shard(&dir, "1.safetensors", "{}", 0);
    write_shard(&dir, "2.safetensors", "{}", 0);
    assert_null(ig_safetensors_changed(s));
    check_tensor(s, "a", IG_TYPE_F32, 1, 1, 1, 0, 4);
    check_tensor(s, "b", IG_TYPE_F32, 1, 1, 1, 4, 4);
    check_tensor(s, "c", IG_TYPE_F32, 1, 1, 1, 4, 4);
    assert_true(copy.done == copy.total && first_total == copy.total && copy.total > 12 + 2 * 8);
    ig_safetensors_close(s);
    temp_dir_close(&dir);
}

static void refuses_indexes(void **state) {
    (void)state;
#define ONE "\"a\":\"1.safetensors\",\"c\":\"1.safetensors\""
    static const struct {
        const char *index;
        ig_status wanted;
        const char *field;
    } cases[] = {
        {"", IG_E_FORMAT, "index.json: line 1"},
        {"[]", IG_E_FORMAT, "'weight_map' is missing"},
        {"{\"weight_map\":", IG_E_FORMAT, "line 1"},
        {"{}", IG_E_FORMAT, "'weight_map' is missing"},
        {"{\"weight_map\":[]}", IG_E_FORMAT, "'weight_map' is missing"},
        {"{\"weight_map\":{}}", IG_E_FORMAT, "'weight_map' is missing"},
        {"{\"weight_map\":{\"a\":1}}", IG_E_FORMAT, "tensor 'a' is no plain file name"},
        {"{\"weight_map\":{\"a\":\"\"}}", IG_E_FORMAT, "tensor 'a' is no plain file name"},
        {"{\"weight_map\":{\"a\":\"../1.safetensors\"}}", IG_E_FORMAT, "'../1.safetensors' of tensor 'a'"},
        {"{\"weight_map\":{\"a\":\"/1.safetensors\"}}", IG_E_FORMAT, "'/1.safetensors' of tensor 'a'"},
        {"{\"weight_map\":{\"a\":\"x/1.safetensors\"}}", IG_E_FORMAT, "'x/1.safetensors' of tensor 'a'"},
        {"{\"weight_map\":{\"a\":\"..\"}}", IG_E_FORMAT, "'..' of tensor 'a'"},
        {"{\"weight_map\":{\"a\":\".\"}}", IG_E_FORMAT, "'.' of tensor 'a'"},
        {"{\"weight_map\":{\"a\":\"1..safetensors\"}}", IG_E_FORMAT, "'1..safetensors' of tensor 'a'"},
        {"{\"weight_map\":{\"a\":\"3.safetensors\"}}", IG_E_NOT_FOUND, "3.safetensors: "},
        {"{\"weight_map\":{\"a\":\"model.safetensors.index.json\"}}", IG_E_FORMAT, "index.json: header length"},
        {"{\"weight_map\":{\"a\":\"1.safetensors\"}}", IG_E_FORMAT, "lacks tensor 'c' of shard '1.safetensors'"},
        {"{\"weight_map\":{" ONE ",\"b\":\"1.safetensors\"}}", IG_E_FORMAT,
         "tensor 'b' is not in shard '1.safetensors'"},
        {"{\"weight_map\":{" ONE ",\"b\":\"2.safetensors\",\"d\":\"2.safetensors\"}}", IG_E_FORMAT,
         "tensor 'd' is not in shard"},
        {"{\"weight_map\":{\"a\":\"1.safetensors\",\"c\":\"2.safetensors\",\"b\":\"2.safetensors\"}}", IG_E_FORMAT,
         "puts tensor 'c' into '2.safetensors', but it is in '1.safetensors'"},
        {"{\"weight_map\":{\"a\":\"1.safetensors\",\"a\":\"1.safetensors\"}}", IG_E_FORMAT, "duplicate"},
        {"{\"weight_map\":{\"a\":\"1.safetensors\\u0000x\"}}", IG_E_FORMAT, "index.json: line 1"},
    };
#undef ONE
    temp_dir dir = temp_dir_open();
    write_shards(&dir);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ig_safetensors *s;
        ig_error err = {0};
        ig_status status = open_index(&dir, cases[i].index, &s, &err);
        if (status != cases[i].wanted || !strstr(err.text, cases[i].field) || !strstr(err.text, dir.path))
            fail_msg("%s: status %d, wanted %d naming %s: %s", cases[i].index, status, cases[i].wanted, cases[i].field,
                     err.text);
        assert_null(s);
    }
    temp_dir_close(&dir);
}

/* ---- damage ---- */

static void survives_cuts(void **state) {
    (void)state;
    size_t n;
    uint8_t *bytes = tiny_safetensors(header, DATA_BYTES, &n);
    for (size_t cut = 0; cut < n; cut++) {
        ig_safetensors *s;
        ig_error err = {0};
        uint8_t *exact = malloc(cut ? cut : 1);
        assert_non_null(exact);
        memcpy(exact, bytes, cut);
        assert_int_equal(ig_safetensors_open_memory(&s, exact, cut, "tiny", &err), IG_E_FORMAT);
        assert_non_null(strstr(err.text, "tiny: "));
        free(exact);
    }
    free(bytes);
}

static void survives_changes(void **state) {
    (void)state;
    size_t n;
    uint8_t *bytes = tiny_safetensors(header, DATA_BYTES, &n);
    for (size_t i = 0; i < n - DATA_BYTES; i++) {
        uint8_t kept = bytes[i];
        const uint8_t values[] = {0, 255, '"', '0', '9', ',', ']', (uint8_t)(kept ^ 1)};
        for (size_t k = 0; k < sizeof values; k++) {
            ig_safetensors *s;
            ig_error err = {0};
            bytes[i] = values[k];
            ig_status status = ig_safetensors_open_memory(&s, bytes, n, "tiny", &err);
            assert_true(status == IG_OK || err.text[0]);
            ig_safetensors_close(s);
        }
        bytes[i] = kept;
    }
    free(bytes);
}

static void survives_failing_memory(void **state) {
    (void)state;
#ifndef MEMORY_IS_COUNTED
    skip();
#endif
    temp_dir dir = temp_dir_open();
    write_shards(&dir);
    ig_safetensors *s;
    ig_error err = {0};
    if (open_index(&dir, "{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\",\"c\":\"1.safetensors\"}}",
                   &s, &err))
        fail_msg("%s", err.text);
    ig_safetensors_close(s);
    ig_loading loading = {0};
    for (long fail_at = 0, copied = 0;; fail_at++) {
        memory_count_start(fail_at);
        ig_status status = ig_safetensors_open(&s, dir.path, "model", copied ? &loading : NULL, &err);
        ig_safetensors_close(s);
        memory_count_stop();
        assert_int_equal(memory_count.n_taken, memory_count.n_given);
        if (memory_count.fail_at >= 0) {
            assert_int_equal(status, IG_OK);
            assert_true(fail_at > 20);
            if (copied++) break;
            fail_at = -1;
            continue;
        }
        /* jansson takes some failures for a syntax error */
        if (status != IG_E_MEMORY && status != IG_E_FORMAT && status != IG_OK)
            fail_msg("allocation %ld: status %d: %s", fail_at, status, err.text);
    }
    temp_dir_close(&dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_memory),
        cmocka_unit_test(reads_directory),
        cmocka_unit_test(reads_shards),
        cmocka_unit_test(refuses_indexes),
        cmocka_unit_test(survives_cuts),
        cmocka_unit_test(survives_changes),
        cmocka_unit_test(survives_failing_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
