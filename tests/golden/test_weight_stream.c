/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights in less RAM than they take: the bits are those of mapped weights, whatever stays in RAM and whichever layers
 * are read; what is read is what was said; too little RAM is refused with the least that would do; and a file that is
 * cut short ends a step, not the program.
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

#include "golden/tiny_session.h"
#include "golden/tiny_copy.h"
#include "model/model.h"

enum { N_PROMPT = 90, N_CTX = 160, N_STEPS = 6, N_BATCH = 3 };

static int32_t ids[N_BATCH][N_CTX];

static uint64_t least_of(const char *path) {
    ig_error err = {0};
    ig_model *m;
    assert_int_equal(open_limited(&m, path, 1, 0, &err), IG_E_LIMIT);
    return least_in(&err);
}

static ig_session *open_on(ig_model *m, const char *policy, const char *speculate) {
    ig_session_options o = ig_session_defaults();
    ig_session *s;
    ig_error err = {0};
    o.n_ctx = N_CTX;
    o.n_batch = 32;
    o.cache.policy = policy;
    o.cache.speculate = speculate;
    o.cache.budget_entries = 24;
    if (speculate) {
        o.cache.memory.disk_path = "/tmp";
        o.cache.memory.disk_bytes = 16 << 20;
    }
    expect_ok(ig_session_open(&s, m, &o, &err), &err);
    return s;
}

/* A prompt and steps of a batch, on both. */
static void compare(ig_model *streamed, const char *policy, const char *speculate) {
    ig_session *a[N_BATCH], *b[N_BATCH];
    ig_error err = {0};
    for (int i = 0; i < N_BATCH; i++) {
        a[i] = open_on(model, policy, speculate);
        b[i] = open_on(streamed, policy, speculate);
        put(a[i], ids[i], N_PROMPT + i);
        put(b[i], ids[i], N_PROMPT + i);
        same(a[i], b[i]);
    }
    for (int t = 0; t < N_STEPS; t++) {
        int32_t next[N_BATCH];
        for (int i = 0; i < N_BATCH; i++) next[i] = ids[i][N_PROMPT + i + t];
        expect_ok(ig_session_decode(a, next, N_BATCH, &err), &err);
        expect_ok(ig_session_decode(b, next, N_BATCH, &err), &err);
        for (int i = 0; i < N_BATCH; i++) same(a[i], b[i]);
    }
    for (int t = 0; t < N_STEPS; t++) {
        expect_ok(ig_session_decode(a, &ids[1][t], 1, &err), &err);
        expect_ok(ig_session_decode(b, &ids[1][t], 1, &err), &err);
        same(a[0], b[0]);
    }
    for (int i = 0; i < N_BATCH; i++) ig_session_close(a[i]), ig_session_close(b[i]);
}

static void bits_are_those_of_mapped_weights(void **state) {
    static const struct {
        const char *policy, *speculate;
    } kinds[] = {{"full", NULL},        {"infinigen", NULL},    {"infinigen", "late"},
                 {"infinigen", "norm"}, {"infinigen", "paper"}, {"infinigen-osdi24", NULL}};
    const char *path = *state;
    open_tiny(path, 2);
    uint64_t least = least_of(path), rams[] = {least, least + least / 3, 64 << 20};
    int streamed[3];
    for (int r = 0; r < 3; r++) {
        ig_model *m;
        ig_error err = {0};
        expect_ok(open_limited(&m, path, rams[r], 0, &err), &err);
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) compare(m, kinds[k].policy, kinds[k].speculate);
        ig_weight_stats st = weight_stats(m);
        streamed[r] = st.n_streamed_layers;
        assert_true(st.ram_bytes <= rams[r]);
        assert_true((st.step_bytes > 0) == (st.n_streamed_layers > 0));
        assert_true(st.read_bytes >= st.step_bytes * (N_STEPS + 3) * 6);
        ig_model_close(m);
    }
    assert_true(streamed[0] >= 3 && streamed[1] <= streamed[0] && streamed[2] == 0);
    close_tiny(NULL);
}

/* Of mixtures of experts those that are chosen are read, unless they are there. */
static void experts_are_read_when_they_are_chosen(void **state) {
    const char *path = *state;
    open_tiny(path, 2);
    uint64_t least = least_of(path), read[3];
    const uint64_t rams[] = {least, least + 200000, 64 << 20};
    for (int r = 0; r < 3; r++) {
        ig_model *m;
        ig_error err = {0};
        expect_ok(open_limited(&m, path, rams[r], 0, &err), &err);
        for (int round = 0; round < 2; round++) compare(m, round ? "infinigen" : "full", NULL);
        ig_weight_stats st = weight_stats(m);
        assert_true(st.ram_bytes <= rams[r] && st.n_experts > 0 && st.n_held_experts <= st.n_experts);
        assert_int_equal(st.n_held_experts == st.n_experts, r == 2);
        assert_int_equal(st.step_bytes == 0, st.n_streamed_layers == 0 && r == 2);
        read[r] = st.read_bytes;
        ig_model_close(m);
    }
    assert_true(read[0] > read[1] && read[1] > 0 && read[2] == 0);
    close_tiny(NULL);
}

static void too_little_is_refused(void **state) {
    (void)state;
    open_tiny(TINY_LLAMA, 2);
    uint64_t least = least_of(TINY_LLAMA);
    ig_error err = {0};
    ig_model *m;
    assert_int_equal(open_limited(&m, TINY_LLAMA, least - 1, 0, &err), IG_E_LIMIT);
    expect_ok(open_limited(&m, TINY_LLAMA, least, 0, &err), &err);
    ig_cache_plan_info plan;
    ig_model_info info;
    expect_ok(ig_cache_plan(&plan, m, NULL, &err), &err);
    ig_model_get_info(m, &info);
    assert_true(plan.weights == least && info.private_bytes == least && weight_stats(m).ram_bytes == least);
    ig_model_close(m);
    for (int i = 0; i < 3; i++) {
        ig_model_options o = {
            .weights_ram = 1 << 30, .no_mmap = i == 0, .tokenizer_only = i == 1, .metadata_only = i == 2};
        assert_int_equal(ig_model_open(&m, ctx, TINY_LLAMA, &o, &err), IG_E_ARG);
    }
    close_tiny(NULL);
}

static bool note_progress(void *user, uint64_t done, uint64_t total) {
    uint64_t *told = user;
    told[0] = done, told[1] = total;
    return done > total;
}

static void loading_is_told_to_its_end(void **state) {
    (void)state;
    open_tiny(TINY_LLAMA, 2);
    const uint64_t rams[] = {0, least_of(TINY_LLAMA), 64 << 20};
    for (int r = 0; r < 3; r++) {
        uint64_t told[2] = {0};
        ig_error err = {0};
        ig_model *m;
        ig_model_options o = {.weights_ram = rams[r], .progress = note_progress, .progress_user = told};
        expect_ok(ig_model_open(&m, ctx, TINY_LLAMA, &o, &err), &err);
        assert_true(told[0] > 0);
        assert_int_equal(told[0], told[1]);
        ig_model_close(m);
    }
    close_tiny(NULL);
}

/* Sequences that fail, one by one and all, and then go on. */
static void passes_that_end_early(void **state) {
    const char *path = *state;
    ig_error err = {0};
    ig_model *m;
    open_tiny(path, 2);
    expect_ok(open_limited(&m, path, least_of(path), 0, &err), &err);
    ig_session *a = open_on(model, "full", NULL), *b = open_on(m, "full", NULL);
    for (int round = 0; round < 4; round++) {
        int32_t wrong = N_VOCAB + 5;
        assert_int_equal(ig_session_decode(&b, &wrong, 1, &err), IG_E_ARG);
        put(a, ids[0], 20 + round);
        put(b, ids[0], 20 + round);
        same(a, b);
    }
    ig_session_close(a), ig_session_close(b);
    ig_model_close(m);
    close_tiny(NULL);
}

/* Three layers pass. After the first one was given back its slot may go to the third before the next pass begins with
 * the first. */
static void passes_that_end_after_a_layer(void **state) {
    enum { N = 3, FIRST = 1 /* of four layers */ };
    ig_error err = {0};
    ig_model *m = NULL;
    (void)state;
    open_tiny(TINY_LLAMA, 2);
    for (uint64_t ram = least_of(TINY_LLAMA); !m || weight_stats(m).n_streamed_layers > N; ram += 10000) {
        ig_model_close(m);
        expect_ok(open_limited(&m, TINY_LLAMA, ram, 0, &err), &err);
    }
    assert_int_equal(weight_stats(m).n_streamed_layers, N);
    for (int round = 0; round < 50; round++) {
        ig_weight_stream_begin(m->stream);
        usleep(1000);
        expect_ok(ig_weight_stream_take(m->stream, FIRST, IG_WEIGHTS_ALL, &err), &err);
        usleep(1000);
        ig_weight_stream_give(m->stream, FIRST);
    }
    ig_model_close(m);
    close_tiny(NULL);
}

static void a_file_that_is_cut_short_ends_the_step(void **state) {
    ig_error err = {0};
    tiny_copy copy = copy_tiny(*state);
    open_tiny(copy.dir.path, 2);
    ig_model_close(model);
    expect_ok(open_limited(&model, copy.dir.path, least_of(copy.dir.path), 0, &err), &err);
    ig_session *s = open_on(model, "full", NULL);
    put(s, ids[0], 40);
    assert_int_equal(truncate(copy.weights, (off_t)copy.n / 2), 0);
    for (int i = 0; i < 3; i++) {
        int32_t next = ids[0][40 + i];
        assert_int_equal(ig_session_decode(&s, &next, 1, &err), IG_E_CHANGED);
        if (!strstr(err.text, copy.weights)) fail_msg("%s", err.text);
        assert_int_equal(ig_session_tokens(s, NULL), 40);
    }
    ig_session_close(s);
    close_tiny(NULL);
    drop_tiny_copy(&copy);
}

int main(void) {
#define MODEL(name) \
    { name, bits_are_those_of_mapped_weights, NULL, NULL, "tests/golden/models/" name }
    const struct CMUnitTest tests[] = {
        MODEL("llama31"),
        MODEL("qwen3"),
        MODEL("opt"),
        MODEL("opt-350m-like"),
        MODEL("gemma3"),
        MODEL("gemma4-e"),
        MODEL("phi3"),
        MODEL("nemotron-h"),
        {"qwen3moe", experts_are_read_when_they_are_chosen, NULL, NULL, "tests/golden/models/qwen3moe"},
        {"granitemoe", experts_are_read_when_they_are_chosen, NULL, NULL, "tests/golden/models/granitemoe"},
        {"nemotron-h-moe", experts_are_read_when_they_are_chosen, NULL, NULL, "tests/golden/models/nemotron-h-moe"},
        {"nemotron-h-latent", experts_are_read_when_they_are_chosen, NULL, NULL,
         "tests/golden/models/nemotron-h-latent"},
        {"gemma4-moe", experts_are_read_when_they_are_chosen, NULL, NULL, "tests/golden/models/gemma4-moe"},
        {"deepseek3", experts_are_read_when_they_are_chosen, NULL, NULL, "tests/golden/models/deepseek3"},
        {"mixtral", experts_are_read_when_they_are_chosen, NULL, NULL, "tests/golden/models/mixtral"},
        {"glm4moe", experts_are_read_when_they_are_chosen, NULL, NULL, "tests/golden/models/glm4moe"},
        {"afmoe", experts_are_read_when_they_are_chosen, NULL, NULL, "tests/golden/models/afmoe"},
        {"gpt-oss", experts_are_read_when_they_are_chosen, NULL, NULL, "tests/golden/models/gpt-oss/model.gguf"},
        cmocka_unit_test(too_little_is_refused),
        cmocka_unit_test(loading_is_told_to_its_end),
        {"passes that end early", passes_that_end_early, NULL, NULL, TINY_LLAMA},
        {"passes that end early, experts", passes_that_end_early, NULL, NULL, "tests/golden/models/qwen3moe"},
        cmocka_unit_test(passes_that_end_after_a_layer),
        {"a file that is cut short ends the step", a_file_that_is_cut_short_ends_the_step, NULL, NULL, "llama31"},
        {"a file that is cut short, experts", a_file_that_is_cut_short_ends_the_step, NULL, NULL, "qwen3moe"},
    };
    for (int i = 0; i < N_BATCH; i++)
        for (int t = 0; t < N_CTX; t++) ids[i][t] = (t * 37 + 11 * i + 5) % N_VOCAB;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
