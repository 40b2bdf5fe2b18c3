/* SPDX-License-Identifier: Apache-2.0
 *
 * Sketch files: what is written is read back; files that are cut, changed or impossible are refused; a failed write
 * leaves nothing behind.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>
#include <xxhash.h>

#include "format/sketch.h"
#include "temp_dir.h"

enum { HEADER = 64, CHECKSUM = 48 };

static const ig_sketch_shape shape = {
    .kind = IG_SKETCH_BALANCED,
    .model = 0x0123456789abcdefu,
    .n_layers = 3,
    .n_heads = 2,
    .head_dim = 24,
    .rank = 8,
    .n_ctx = 5000,
};
static const ig_sketch_shape skew = {
    .kind = IG_SKETCH_SKEW, .model = 77, .n_layers = 2, .n_heads = 3, .head_dim = 16, .rank = 16, .n_ctx = 1234};

static size_t n_floats(const ig_sketch_shape *s) {
    return (size_t)s->n_layers * (size_t)s->n_heads * ig_sketch_head_floats(s);
}

/* A skew's columns are unit vectors: of head i, those of the dimensions in turn, beginning with i. */
static float *make_maps(const ig_sketch_shape *s) {
    size_t n = n_floats(s), d = (size_t)s->head_dim;
    float *maps = malloc(n * sizeof *maps);
    for (size_t i = 0; i < n; i++)
        if (s->kind == IG_SKETCH_BALANCED)
            maps[i] = (float)i - 100.5f;
        else
            maps[i] = i % d == (i / d + i / (d * d)) % d ? -1 : 0;
    return maps;
}

/* A whole file in memory, to be changed by the test. */
static uint8_t *make_file(size_t *n, const ig_sketch_shape *s) {
    char path[512];
    float *maps = make_maps(s);
    temp_dir d = temp_dir_open();
    temp_dir_path(&d, "a.igs", path, sizeof path);
    assert_int_equal(ig_sketch_file_save(path, s, maps, NULL), IG_OK);
    char *data;
    assert_int_equal(ig_file_read(&data, n, path, 1 << 20, NULL), IG_OK);
    assert_int_equal(*n, ig_sketch_file_bytes(s));
    temp_dir_close(&d);
    free(maps);
    return (uint8_t *)data;
}

static void sign(uint8_t *data, size_t n) {
    uint64_t sum = XXH3_64bits_withSeed(data + HEADER, n - HEADER, XXH3_64bits(data, CHECKSUM));
    for (int i = 0; i < 8; i++) data[CHECKSUM + i] = (uint8_t)(sum >> 8 * i);
}

static void expect_refused(const uint8_t *data, size_t n, ig_status status, const char *word) {
    ig_sketch_file f;
    ig_error err = {0};
    assert_int_equal(ig_sketch_file_open_memory(&f, data, n, "some.igs", &err), status);
    assert_null(f.maps);
    assert_non_null(strstr(err.text, "some.igs"));
    if (!strstr(err.text, word)) fail_msg("no '%s' in: %s", word, err.text);
}

static void round_trip(void **state) {
    (void)state;
    char path[512];
    ig_sketch_file f;
    float *maps = make_maps(&shape);
    temp_dir d = temp_dir_open();
    temp_dir_path(&d, "a.igs", path, sizeof path);
    temp_dir_write(&d, "a.igs", "old", 3); /* is replaced */
    assert_int_equal(ig_sketch_file_save(path, &shape, maps, NULL), IG_OK);
    assert_int_equal(ig_sketch_file_open(&f, path, NULL), IG_OK);
    assert_true(f.shape.kind == IG_SKETCH_BALANCED);
    assert_true(f.shape.model == shape.model && f.shape.n_layers == 3 && f.shape.n_heads == 2);
    assert_true(f.shape.head_dim == 24 && f.shape.rank == 8 && f.shape.n_ctx == 5000);
    size_t head = ig_sketch_head_floats(&shape), at = (2 * 2 + 1) * head;
    assert_int_equal(head, 8 * (24 + 24 + 1));
    assert_memory_equal(f.maps, maps, 3 * 2 * head * sizeof *maps);
    assert_ptr_equal(ig_sketch_query_map(&f, 2, 1), f.maps + at);
    assert_ptr_equal(ig_sketch_key_map(&f, 2, 1), f.maps + at + 8 * 24);
    assert_ptr_equal(ig_sketch_offset(&f, 2, 1), f.maps + at + 8 * 48);
    ig_sketch_file_close(&f);
    assert_null(f.maps);

    DIR *folder = opendir(d.path); /* no temporary file is left */
    int entries = 0;
    while (readdir(folder)) entries++;
    closedir(folder);
    assert_int_equal(entries, 3);
    temp_dir_close(&d);
    free(maps);
}

/* As any file that a program makes; and what a process that was killed left is in nobody's way. */
static void mode_of_files(void **state) {
    (void)state;
    char path[512], left[64];
    struct stat st;
    float *maps = make_maps(&shape);
    temp_dir d = temp_dir_open();
    temp_dir_path(&d, "a.igs", path, sizeof path);
    snprintf(left, sizeof left, "a.igs.%d-0", (int)getpid());
    temp_dir_write(&d, left, "left", 4);
    mode_t was = umask(0);
    for (mode_t mask = 0; mask <= 077; mask += 011) {
        umask(mask);
        assert_int_equal(ig_sketch_file_save(path, &shape, maps, NULL), IG_OK);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0666 & ~mask);
    }
    umask(was);
    temp_dir_close(&d);
    free(maps);
}

static void skews_too(void **state) {
    (void)state;
    char path[512];
    ig_sketch_file f;
    float *maps = make_maps(&skew);
    temp_dir d = temp_dir_open();
    temp_dir_path(&d, "a.igs", path, sizeof path);
    assert_int_equal(ig_sketch_file_bytes(&skew), HEADER + 2 * 3 * 16 * 16 * 4);
    assert_int_equal(ig_sketch_file_save(path, &skew, maps, NULL), IG_OK);
    assert_int_equal(ig_sketch_file_open(&f, path, NULL), IG_OK);
    assert_true(f.shape.kind == IG_SKETCH_SKEW && f.shape.model == 77 && f.shape.n_layers == 2);
    assert_true(f.shape.n_heads == 3 && f.shape.head_dim == 16 && f.shape.rank == 16 && f.shape.n_ctx == 1234);
    assert_memory_equal(f.maps, maps, n_floats(&skew) * sizeof *maps);
    assert_ptr_equal(ig_sketch_skew(&f, 1, 2), f.maps + (1 * 3 + 2) * 16 * 16);
    ig_sketch_file_close(&f);
    temp_dir_close(&d);
    free(maps);

    size_t n;
    uint8_t *data = make_file(&n, &skew);
    const float half = 0.5f;
    memcpy(data + n - 4, &half, 4);
    sign(data, n);
    expect_refused(data, n, IG_E_FORMAT, "not orthogonal");
    free(data);
}

static void failed_writes(void **state) {
    (void)state;
    ig_error err = {0};
    float *maps = make_maps(&shape);
    ig_sketch_shape odd = shape;
    assert_int_equal(ig_sketch_file_save("/proc/nonexistent/folder/a.igs", &shape, maps, &err), IG_E_IO);
    assert_non_null(strstr(err.text, "/proc/nonexistent/folder/a.igs"));
    odd.rank = 12;
    assert_int_equal(ig_sketch_file_save("/proc/nonexistent/folder/a.igs", &odd, maps, &err), IG_E_ARG);
    odd = shape;
    odd.kind = IG_SKETCH_NONE;
    assert_int_equal(ig_sketch_file_save("/proc/nonexistent/folder/a.igs", &odd, maps, &err), IG_E_ARG);
    free(maps);
}

/* A sketch takes the place of a plain file only: pipes, links and folders stay what they are, as devices do. */
static void other_than_files_stay(void **state) {
    (void)state;
    char path[512], named[512];
    struct stat st;
    ig_error err = {0};
    float *maps = make_maps(&shape);
    temp_dir d = temp_dir_open();
    temp_dir_path(&d, "a.igs", path, sizeof path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(ig_sketch_file_save(path, &shape, maps, &err), IG_E_IO);
    assert_non_null(strstr(err.text, "a.igs: is not a regular file"));
    assert_true(lstat(path, &st) == 0 && S_ISFIFO(st.st_mode));

    unlink(path);
    temp_dir_write(&d, "plain", "old", 3);
    temp_dir_path(&d, "plain", named, sizeof named);
    assert_int_equal(symlink(named, path), 0);
    assert_int_equal(ig_sketch_file_save(path, &shape, maps, &err), IG_E_IO);
    assert_true(lstat(path, &st) == 0 && S_ISLNK(st.st_mode));
    assert_true(lstat(named, &st) == 0 && st.st_size == 3);

    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(ig_sketch_file_save(path, &shape, maps, &err), IG_E_IO);
    assert_non_null(strstr(err.text, "a.igs: is a directory"));
    assert_int_equal(rmdir(path), 0);
    temp_dir_close(&d);
    free(maps);
}

static void damaged_files(void **state) {
    size_t n;
    uint8_t *data = make_file(&n, *state);
    ig_sketch_file f;
    assert_int_equal(ig_sketch_file_open_memory(&f, data, n, "some.igs", NULL), IG_OK);
    for (size_t cut = 0; cut < n; cut += cut < 2 * HEADER ? 1 : 97) {
        uint8_t *copy = malloc(cut + 1); /* of its own size, so that a sanitizer sees a read behind it */
        memcpy(copy, data, cut);
        expect_refused(copy, cut, IG_E_FORMAT, cut < HEADER ? "not a sketch" : "its header says");
        free(copy);
    }
    for (size_t i = 0; i < n; i += i < HEADER ? 1 : 61) {
        data[i] ^= 0x10;
        assert_int_not_equal(ig_sketch_file_open_memory(&f, data, n, "some.igs", NULL), IG_OK);
        data[i] ^= 0x10;
    }
    free(data);
}

static void impossible_files(void **state) {
    (void)state;
    static const struct {
        int at;
        uint32_t value;
        ig_status status;
        const char *word;
    } cases[] = {
        {8, 1, IG_E_UNSUPPORTED, "version 1, this program reads version 2: prepare it anew"},
        {12, 8, IG_E_UNSUPPORTED, "8 bits"},
        {24, 0, IG_E_FORMAT, "shape"},
        {24, 0xffffffffu, IG_E_FORMAT, "shape"},
        {24, 512, IG_E_FORMAT, "its header says"},
        {28, 0, IG_E_FORMAT, "shape"},
        {28, 1u << 20, IG_E_FORMAT, "shape"},
        {32, 20, IG_E_FORMAT, "shape"},
        {32, IG_KV_DIMS + 8, IG_E_FORMAT, "shape"},
        {36, 0, IG_E_FORMAT, "shape"},
        {36, 4, IG_E_FORMAT, "shape"},
        {36, 32, IG_E_FORMAT, "shape"},
        {40, 0, IG_E_FORMAT, "shape"},
        {44, 0, IG_E_UNSUPPORTED, "kind 0"},
        {44, 2, IG_E_UNSUPPORTED, "4 bits"},
        {44, 3, IG_E_UNSUPPORTED, "kind 3"},
        {60, 1, IG_E_FORMAT, "bytes 56 to 63 of its header are not zero"},
    };
    size_t n;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint8_t *data = make_file(&n, &shape);
        memcpy(data + cases[i].at, &cases[i].value, 4);
        sign(data, n);
        expect_refused(data, n, cases[i].status, cases[i].word);
        free(data);
    }
    uint8_t *data = make_file(&n, &shape);
    const uint32_t nan = 0x7fc00000;
    memcpy(data + n - 4, &nan, 4);
    sign(data, n);
    expect_refused(data, n, IG_E_FORMAT, "not finite");
    free(data);
    const uint32_t eight = 8; /* a skew keeps all of the 16 */
    data = make_file(&n, &skew);
    memcpy(data + 36, &eight, 4);
    sign(data, n);
    expect_refused(data, n, IG_E_FORMAT, "shape");
    free(data);
}

static void missing_file(void **state) {
    (void)state;
    ig_sketch_file f;
    ig_error err = {0};
    assert_int_equal(ig_sketch_file_open(&f, "/proc/nonexistent/a.igs", &err), IG_E_NOT_FOUND);
    ig_sketch_file_close(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(skews_too),
        cmocka_unit_test(mode_of_files),
        cmocka_unit_test(failed_writes),
        cmocka_unit_test(other_than_files_stay),
        {"damaged_files: balanced", damaged_files, NULL, NULL, (void *)(uintptr_t)&shape},
        {"damaged_files: skew", damaged_files, NULL, NULL, (void *)(uintptr_t)&skew},
        cmocka_unit_test(impossible_files),
        cmocka_unit_test(missing_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
