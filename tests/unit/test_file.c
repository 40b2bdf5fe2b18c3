/* SPDX-License-Identifier: Apache-2.0
 *
 * Files as memory: mapped or copied, and what is noticed of a file that changes.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/file.h"
#include "unit/temp_dir.h"

enum { N = (40 << 20) + 17 }; /* a few pieces */

static temp_dir dir;
static char path[512];
static uint8_t *bytes; /* [N] */

/* Files carry a time long past, so that the next write has another whatever the clock's ticks. */
static void write_file(size_t n) {
    const struct timespec then[2] = {{1000000000, 1}, {1000000000, 1}};
    temp_dir_write(&dir, "file", bytes, n);
    assert_int_equal(utimensat(AT_FDCWD, path, then, 0), 0);
}

static int set_up(void **state) {
    (void)state;
    dir = temp_dir_open();
    temp_dir_path(&dir, "file", path, sizeof path);
    bytes = malloc(N);
    for (size_t i = 0; bytes && i < N; i++) bytes[i] = (uint8_t)(i * 7 + i / 999);
    return bytes ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    temp_dir_close(&dir);
    free(bytes);
    return 0;
}

static ig_file take(ig_loading *copy) {
    ig_file f;
    ig_error err = {0};
    if (ig_file_open(&f, path, &err) || ig_file_take(&f, path, copy, &err)) fail_msg("%s", err.text);
    return f;
}

static void maps_and_copies(void **state) {
    static const size_t sizes[] = {0, 1, 63, 4096, N};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        ig_loading loading = {0};
        write_file(sizes[i]);
        ig_file mapped = take(NULL), copied = take(&loading);
        assert_true(mapped.size == sizes[i] && copied.size == sizes[i] && loading.done == sizes[i]);
        if (sizes[i]) assert_memory_equal(mapped.data, bytes, sizes[i]);
        assert_memory_equal(copied.data, bytes, sizes[i]);
        assert_false(ig_file_is_changed(&mapped) || ig_file_is_changed(&copied));
        ig_file_close(&mapped);
        ig_file_close(&copied);
        assert_false(ig_file_is_changed(&mapped));
    }
}

/* What may happen to a file in use. */
static void overwrite(void) {
    FILE *f = fopen(path, "r+b");
    assert_true(f && fputc(bytes[0], f) == bytes[0] && fclose(f) == 0); /* the same byte: only the time tells */
}
static void cut_short(void) { assert_int_equal(truncate(path, 100), 0); }
static void append(void) {
    FILE *f = fopen(path, "ab");
    assert_true(f && fputc(1, f) == 1 && fclose(f) == 0);
}
static void replace(void) {
    temp_dir_write(&dir, "other", bytes, 5);
    char other[512];
    temp_dir_path(&dir, "other", other, sizeof other);
    assert_int_equal(rename(other, path), 0);
}
static void take_away(void) { assert_int_equal(unlink(path), 0); }
static void read_only(void) { assert_int_equal(chmod(path, 0400), 0); }

static void notices_changes(void **state) {
    static const struct {
        void (*happens)(void);
        bool noticed;
    } cases[] = {{overwrite, true}, {cut_short, true},  {append, true},
                 {replace, false},  {take_away, false}, {read_only, false}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ig_loading loading = {0};
        write_file(5000);
        ig_file mapped = take(NULL), copied = take(&loading);
        cases[i].happens();
        assert_int_equal(ig_file_is_changed(&mapped), cases[i].noticed);
        assert_false(ig_file_is_changed(&copied));
        assert_memory_equal(copied.data, bytes, 5000);
        ig_file_close(&mapped);
        ig_file_close(&copied);
        unlink(path);
    }
}

/* ---- copying that does not come to its end ---------------------------------------------------- */

typedef struct watch {
    int n_calls, stop_at;
    uint64_t done;
    void (*happens)(void);
} watch;

static bool on_progress(void *user, uint64_t done, uint64_t total) {
    watch *w = user;
    assert_true(done > w->done && done <= total && total == N);
    w->done = done;
    if (w->n_calls == 0 && w->happens) w->happens();
    return ++w->n_calls == w->stop_at;
}

static ig_status copy_with(watch *w, ig_error *err) {
    ig_file f;
    ig_loading loading = {.progress = on_progress, .user = w, .total = N};
    write_file(N);
    assert_int_equal(ig_file_open(&f, path, err), IG_OK);
    ig_status status = ig_file_take(&f, path, &loading, err);
    ig_file_close(&f);
    assert_non_null(status && status != IG_E_INTERRUPTED ? strstr(err->text, path) : path);
    return status;
}

static void copies_whole_or_not_at_all(void **state) {
    ig_error err = {0};
    (void)state;
    watch w = {.stop_at = -1};
    assert_int_equal(copy_with(&w, &err), IG_OK);
    assert_true(w.n_calls == 3 && w.done == N);
    for (int i = 1; i <= 3; i++) {
        w = (watch){.stop_at = i};
        assert_int_equal(copy_with(&w, &err), IG_E_INTERRUPTED);
        assert_int_equal(w.n_calls, i);
    }
    void (*const changes[])(void) = {overwrite, cut_short, append};
    for (size_t i = 0; i < 3; i++) {
        w = (watch){.stop_at = -1, .happens = changes[i]};
        assert_int_equal(copy_with(&w, &err), IG_E_CHANGED);
    }
}

static void refuses_what_is_no_file(void **state) {
    ig_file f;
    ig_error err = {0};
    (void)state;
    unlink(path);
    assert_int_equal(ig_file_open(&f, path, &err), IG_E_NOT_FOUND);
    assert_int_equal(ig_file_open(&f, dir.path, &err), IG_E_IO);
    ig_file_close(&f);
    /* As large as no memory is: nothing is read. */
    write_file(1);
    f = (ig_file){.size = SIZE_MAX};
    ig_loading loading = {0};
    assert_int_equal(ig_file_take(&f, path, &loading, &err), IG_E_MEMORY);
    assert_non_null(strstr(err.text, path));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(maps_and_copies),
        cmocka_unit_test(notices_changes),
        cmocka_unit_test(copies_whole_or_not_at_all),
        cmocka_unit_test(refuses_what_is_no_file),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
