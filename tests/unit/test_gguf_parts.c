/* SPDX-License-Identifier: Apache-2.0
 *
 * Models of several GGUF files: opened by any of them, refused where one is missing or belongs elsewhere, and with
 * every allocation failing.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "format/gguf.h"
#include "unit/count_memory.h"
#include "unit/temp_dir.h"
#include "unit/tiny_gguf.h"

enum { N_PARTS = 3, N_FIRST = 4, N_SECOND = 5 }; /* tensors of the first two; the rest is of the third */

typedef struct fixture {
    temp_dir folder;
    tiny parts[N_PARTS];
} fixture;

static fixture make_parts(void) {
    fixture f = {.folder = temp_dir_open()};
    tiny whole = tiny_valid();
    for (int i = 0; i < N_PARTS; i++) {
        int begin = i == 0 ? 0 : i == 1 ? N_FIRST : N_FIRST + N_SECOND;
        int end = i == 0 ? N_FIRST : i == 1 ? N_FIRST + N_SECOND : whole.n_tensors;
        tiny *t = &f.parts[i];
        *t = whole;
        if (i) t->n_values = 0;
        t->n_tensors = end - begin;
        memmove(t->tensors, whole.tensors + begin, (size_t)t->n_tensors * sizeof *t->tensors);
        tiny_u32(t, "split.no", (uint32_t)i);
        tiny_u32(t, "split.count", N_PARTS);
        tiny_i32(t, "split.tensors.count", whole.n_tensors);
    }
    return f;
}

static void part_path(const fixture *f, int i, char path[512]) {
    char name[64];
    snprintf(name, sizeof name, "a-model-%05d-of-%05d.gguf", i + 1, N_PARTS);
    temp_dir_path(&f->folder, name, path, 512);
}

static void write_parts(const fixture *f) {
    for (int i = 0; i < N_PARTS; i++) {
        char path[512];
        size_t n;
        uint8_t *bytes = tiny_write(&f->parts[i], &n);
        part_path(f, i, path);
        temp_dir_write(&f->folder, strrchr(path, '/') + 1, bytes, n);
        free(bytes);
    }
}

static void opens_by_any_part(void **state) {
    (void)state;
    fixture f = make_parts();
    tiny whole = tiny_valid();
    write_parts(&f);
    for (int copied = 0; copied < 2; copied++)
        for (int i = 0; i < N_PARTS; i++) {
            char path[512], first[512];
            const char *file;
            ig_gguf *g;
            ig_error err = {0};
            ig_loading loading = {0};
            part_path(&f, i, path);
            part_path(&f, 0, first);
            if (ig_gguf_open(&g, path, copied ? &loading : NULL, &err)) fail_msg("%s", err.text);
            assert_int_equal(loading.done, loading.total);
            assert_string_equal(ig_gguf_path(g), first);
            assert_int_equal(ig_gguf_n_files(g), N_PARTS);
            assert_int_equal(ig_gguf_n_values(g), whole.n_values + 3);
            assert_int_equal(ig_gguf_n_tensors(g), whole.n_tensors);
            for (int k = 0; k < whole.n_tensors; k++) {
                const ig_tensor *x = ig_gguf_tensor(g, whole.tensors[k].name);
                const ig_file *of = ig_gguf_file(g, k < N_FIRST ? 0 : k < N_FIRST + N_SECOND ? 1 : 2, &file);
                assert_ptr_equal(x, ig_gguf_tensor_at(g, (size_t)k));
                const uint8_t *data = x->data;
                assert_true(data >= of->data && data + x->n_bytes <= of->data + of->size);
            }
            assert_null(ig_gguf_changed(g));
            part_path(&f, 2, path);
            FILE *last = fopen(path, "ab");
            assert_true(last && fputc(0, last) == 0 && fclose(last) == 0);
            if (copied)
                assert_null(ig_gguf_changed(g));
            else
                assert_string_equal(ig_gguf_changed(g), path);
            ig_gguf_close(g);
            write_parts(&f);
        }
    temp_dir_close(&f.folder);
}

/* The first of the files that is wrong is named, or what is wrong with all. */
static void refuse(fixture *f, ig_status wanted, const char *words) {
    char path[512];
    ig_gguf *g;
    ig_error err = {0};
    part_path(f, 1, path);
    assert_int_equal(ig_gguf_open(&g, path, NULL, &err), wanted);
    assert_null(g);
    if (!strstr(err.text, words)) fail_msg("%s", err.text);
    temp_dir_close(&f->folder);
}

static void refuses_what_is_not_whole(void **state) {
    (void)state;
    fixture f = make_parts();
    char path[512];
    write_parts(&f);
    part_path(&f, 2, path);
    assert_int_equal(unlink(path), 0);
    refuse(&f, IG_E_NOT_FOUND, "a-model-00003-of-00003.gguf: No such file");

    f = make_parts();
    tiny_u32(&f.parts[1], "split.no", 2);
    write_parts(&f);
    refuse(&f, IG_E_FORMAT,
           "a-model-00002-of-00003.gguf: by its name it is file 2 of 3 of a model, by its keys file 3 of 3");

    f = make_parts();
    tiny_u32(&f.parts[0], "split.count", 2);
    write_parts(&f);
    refuse(&f, IG_E_FORMAT,
           "a-model-00001-of-00003.gguf: by its name it is file 1 of 3 of a model, by its keys file 1 of 2");

    f = make_parts();
    tiny_drop_key(&f.parts[2], "split.count");
    write_parts(&f);
    refuse(&f, IG_E_FORMAT, "by its keys file 3 of 0");

    f = make_parts();
    tiny_i32(&f.parts[0], "split.tensors.count", 12);
    write_parts(&f);
    refuse(&f, IG_E_FORMAT, "'split.tensors.count' is 12, and all files have 11");

    f = make_parts();
    strcpy(f.parts[2].tensors[0].name, f.parts[0].tensors[0].name);
    write_parts(&f);
    refuse(&f, IG_E_FORMAT, "tensor 'token_embd.weight' appears twice");

    f = make_parts();
    f.parts[2].cut = 64;
    write_parts(&f);
    refuse(&f, IG_E_FORMAT, "a-model-00003-of-00003.gguf: tensor");
}

/* Names that only look like those of parts, or promise too many. */
static void reads_names(void **state) {
    (void)state;
    static const char *const whole[] = {"-00001-of-00003.gguf", "m-00004-of-00003.gguf", "m-00000-of-00003.gguf",
                                        "m-0001-of-00003.gguf", "m-00001-of-0000a.gguf", "m-00001-of-00001.gguf"};
    temp_dir folder = temp_dir_open();
    tiny t = tiny_valid();
    size_t n;
    uint8_t *bytes = tiny_write(&t, &n);
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        char path[512];
        ig_gguf *g;
        ig_error err = {0};
        temp_dir_write(&folder, whole[i], bytes, n);
        if (i == 0) { /* without a folder before it nothing is left for the model's name */
            assert_int_equal(chdir(folder.path), 0);
            snprintf(path, sizeof path, "%s", whole[i]);
        } else {
            temp_dir_path(&folder, whole[i], path, sizeof path);
        }
        if (ig_gguf_open(&g, path, NULL, &err)) fail_msg("%s", err.text);
        assert_int_equal(ig_gguf_n_files(g), 1);
        ig_gguf_close(g);
    }
    ig_gguf *g;
    ig_error err = {0};
    assert_int_equal(ig_gguf_open(&g, "m-00001-of-99999.gguf", NULL, &err), IG_E_LIMIT);
    assert_non_null(strstr(err.text, "a model of 99999 files, at most 512"));
    free(bytes);
    temp_dir_close(&folder);
}

static void survives_failing_memory(void **state) {
    (void)state;
#ifndef MEMORY_IS_COUNTED
    skip();
#endif
    fixture f = make_parts();
    char path[512];
    write_parts(&f);
    part_path(&f, 0, path);
    for (long fail_at = 0;; fail_at++) {
        ig_gguf *g;
        ig_error err = {0};
        memory_count_start(fail_at);
        ig_status s = ig_gguf_open(&g, path, NULL, &err);
        if (!s) ig_gguf_close(g);
        memory_count_stop();
        assert_int_equal(memory_count.n_taken, memory_count.n_given);
        if (memory_count.fail_at >= 0) { /* there was no such allocation: all have failed once */
            assert_int_equal(s, IG_OK);
            assert_true(fail_at > 30);
            break;
        }
        assert_true(s == IG_E_MEMORY || s == IG_OK); /* qsort() does without its memory */
    }
    temp_dir_close(&f.folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opens_by_any_part),
        cmocka_unit_test(refuses_what_is_not_whole),
        cmocka_unit_test(reads_names),
        cmocka_unit_test(survives_failing_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
