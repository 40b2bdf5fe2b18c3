/* SPDX-License-Identifier: Apache-2.0
 *
 * Models whose file is changed while they are open: no logits come of a change, whatever is asked of the model then. A
 * model that was copied into memory goes on as if nothing had happened.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "golden/tiny_session.h"
#include "golden/tiny_copy.h"
#include "infinigen_tools.h"

enum { N_PROMPT = 100, N_CTX = 200 };

static tiny_copy copy;
static int32_t ids[N_CTX];
static uint64_t most_done;

static const struct timespec past[2] = {{1000000000, 5}, {1000000000, 5}};

static bool on_progress(void *user, uint64_t done, uint64_t total) {
    assert_true(done <= total && done >= most_done);
    most_done = done;
    return user && done * 2 > total;
}

static ig_status open_copy(bool no_mmap, bool interrupt, ig_error *err) {
    ig_context_options o = ig_context_defaults();
    ig_model_options m = ig_model_defaults();
    o.n_threads = 2;
    o.cpu_level = test_cpu_level();
    m.no_mmap = no_mmap;
    m.progress = on_progress;
    m.progress_user = interrupt ? &m : NULL;
    most_done = 0;
    expect_ok(ig_context_open(&ctx, &o, err), err);
    return ig_model_open(&model, ctx, copy.dir.path, &m, err);
}

static int set_up(void **state) {
    (void)state;
    copy = copy_tiny("llama31");
    for (int i = 0; i < N_CTX; i++) ids[i] = (i * 37 + 11) % N_VOCAB;
    return utimensat(AT_FDCWD, copy.weights, past, 0);
}

static int tear_down(void **state) {
    close_tiny(state);
    drop_tiny_copy(&copy);
    return 0;
}

static ig_session *open_small(void) {
    ig_session_options o = ig_session_defaults();
    o.n_ctx = N_CTX;
    o.n_batch = 32;
    return open_session(&o);
}

static void put_byte(void) {
    FILE *f = fopen(copy.weights, "r+b");
    assert_true(f && fseek(f, (long)copy.n / 2, SEEK_SET) == 0 && fputc(0x7f, f) == 0x7f && fclose(f) == 0);
}

static void cut_short(void) { assert_int_equal(truncate(copy.weights, 4096), 0); }

static void touch(void) { assert_int_equal(utimensat(AT_FDCWD, copy.weights, NULL, 0), 0); }

static void expect_changed(ig_status status, const ig_error *err) {
    if (status != IG_E_CHANGED || !strstr(err->text, copy.weights)) fail_msg("%d: %s", (int)status, err->text);
}

/* What the session holds stays, as do its logits, but nothing can be computed any more. */
static void a_change_ends_everything(void **state) {
    void (*const changes[])(void) = {put_byte, cut_short, touch};
    void (*const change)(void) = changes[*(const int *)*state];
    ig_error err = {0};
    ig_session *fresh;
    ig_cache_plan_info plan;
    ig_cache_options window = ig_cache_defaults();
    ig_prepare_options calibration = {.ids = ids, .n_ids = N_CTX};
    window.policy = "window";
    expect_ok(open_copy(false, false, &err), &err);
    ig_session *s = open_small(), *other = open_small();
    uint64_t identity = ig_model_identity(model);
    put(s, ids, N_PROMPT);
    step(s, 5);
    change();
    for (int tries = 0; tries < 2; tries++) {
        expect_changed(ig_session_decode(&s, ids, 1, &err), &err);
        assert_non_null(strstr(err.text, "open the model again"));
        ig_batch_item items[2] = {{.session = s, .ids = ids, .n = 1},
                                  {.session = other, .ids = ids, .n = 20, .prompt = true}};
        expect_changed(ig_batch_step(items, 2, &err), &err);
        for (int i = 0; i < 2; i++) expect_changed(items[i].status, &items[i].error);
        assert_int_equal(ig_session_tokens(s, NULL), N_PROMPT + 1);
        assert_non_null(ig_session_logits(s));
        expect_changed(ig_session_sync(other, ids, N_PROMPT, &err), &err);
        assert_int_equal(ig_session_tokens(other, NULL), 0);
        assert_null(ig_session_logits(other));
        expect_changed(ig_session_open(&fresh, model, NULL, &err), &err);
        expect_changed(ig_session_set_cache(s, &window, &err), &err);
        expect_changed(ig_cache_plan(&plan, model, NULL, &err), &err);
        expect_changed(ig_prepare(NULL, model, "/nowhere/sketch", &calibration, &err), &err);
        assert_true(ig_model_identity(model) == identity);
        /* A time set back does not make it whole. */
        if (change != cut_short) temp_dir_write(&copy.dir, "model.safetensors", copy.bytes, copy.n);
        assert_int_equal(utimensat(AT_FDCWD, copy.weights, past, 0), 0);
    }
    expect_ok(ig_session_cut(s, 3, &err), &err);
    ig_session_close(s);
    ig_session_close(other);
}

static bool change_and_count(void *user, int first, int n_rows, const float *logits) {
    int *n_calls = user;
    (void)first, (void)n_rows, (void)logits;
    if (++*n_calls == 3) put_byte();
    return false;
}

/* Nothing is handed out from then on, and of a prompt only what was computed before stays. */
static void a_change_in_the_middle_of_a_prompt(void **state) {
    ig_error err = {0};
    int n_calls = 0;
    (void)state;
    expect_ok(open_copy(false, false, &err), &err);
    ig_session *s = open_small();
    expect_changed(ig_session_sync_logits(s, ids, N_PROMPT, change_and_count, &n_calls, &err), &err);
    assert_int_equal(n_calls, 3);
    assert_int_equal(ig_session_tokens(s, NULL), 96);
    assert_null(ig_session_logits(s));
    ig_session_close(s);
}

static void a_copy_needs_no_file(void **state) {
    ig_error err = {0};
    ig_model_info info;
    float logits[N_VOCAB];
    (void)state;
    expect_ok(open_copy(false, false, &err), &err);
    ig_session *s = open_small();
    ig_model_get_info(model, &info);
    uint64_t mapped = info.private_bytes, identity = ig_model_identity(model);
    put(s, ids, N_PROMPT);
    step(s, 5);
    memcpy(logits, ig_session_logits(s), sizeof logits);
    ig_session_close(s);
    close_tiny(state);

    expect_ok(open_copy(true, false, &err), &err);
    assert_true(most_done == copy.n);
    ig_model_get_info(model, &info);
    assert_true(info.private_bytes == mapped + copy.n && ig_model_identity(model) == identity);
    s = open_small();
    put(s, ids, 64); /* whole batches */
    put_byte();
    put(s, ids, N_PROMPT);
    cut_short();
    step(s, 5);
    assert_memory_equal(logits, ig_session_logits(s), sizeof logits);
    assert_int_equal(unlink(copy.weights), 0);
    ig_session_close(s);
    s = open_small();
    put(s, ids, N_PROMPT);
    step(s, 5);
    assert_memory_equal(logits, ig_session_logits(s), sizeof logits);
    ig_session_close(s);
}

static void loading_is_interrupted(void **state) {
    for (int no_mmap = 0; no_mmap < 2; no_mmap++) {
        ig_error err = {0};
        assert_int_equal(open_copy(no_mmap, true, &err), IG_E_INTERRUPTED);
        assert_null(model);
        close_tiny(state);
    }
}

int main(void) {
    static int which[] = {0, 1, 2};
    const struct CMUnitTest tests[] = {
        {"overwritten", a_change_ends_everything, set_up, tear_down, &which[0]},
        {"cut short", a_change_ends_everything, set_up, tear_down, &which[1]},
        {"touched", a_change_ends_everything, set_up, tear_down, &which[2]},
        cmocka_unit_test_setup_teardown(a_change_in_the_middle_of_a_prompt, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_copy_needs_no_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(loading_is_interrupted, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
