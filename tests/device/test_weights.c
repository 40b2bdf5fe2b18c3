/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights in less memory of a GPU than they take: the bits are those of a GPU that has them all, whatever stays there
 * and however passes end; too little memory is refused with the least that would do; and a model that cannot be opened
 * leaves nothing behind.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "format/safetensors.h"
#include "golden/tiny_session.h"
#include "golden/tiny_copy.h"

enum { PROMPT = 9, STEPS = 2, CTX = 32, BATCH = 2 };

static int32_t ids[CTX];

/* Of the stand-in for a GPU (cuda_on_cpu.h) alone: the memory that there is; returns what is taken of it. */
__attribute__((weak)) size_t cuda_on_cpu_room(bool is_host, size_t n_bytes);

static void open_gpu(void) {
    ig_error err = {0};
    ig_context_options o = ig_context_defaults();
    o.n_threads = 2;
    o.device = "cuda";
    expect_ok(ig_context_open(&ctx, &o, &err), &err);
}

static uint64_t least_of(const char *path) {
    ig_error err = {0};
    ig_model *m;
    assert_int_equal(open_limited(&m, path, 0, 1, &err), IG_E_LIMIT);
    return least_in(&err);
}

typedef struct kind {
    const char *model, *policy, *speculate;
} kind;

static ig_session *open_on(ig_model *m, const kind *k) {
    ig_session_options o = ig_session_defaults();
    ig_session *s;
    ig_error err = {0};
    o.n_ctx = CTX;
    o.n_batch = 8;
    o.cache.policy = k->policy;
    o.cache.speculate = k->speculate;
    o.cache.n_sinks = 2;
    o.cache.n_recent = 4;
    if (k->speculate) {
        o.cache.budget = 0.5;
        o.cache.memory.disk_path = "/tmp";
        o.cache.memory.disk_bytes = 16 << 20;
    }
    expect_ok(ig_session_open(&s, m, &o, &err), &err);
    return s;
}

/* The logits of prompts in pieces, and of steps of a batch behind them. */
static void run(float (*logits)[BATCH][N_VOCAB], ig_model *m, const kind *k) {
    ig_error err = {0};
    ig_session *s[BATCH];
    for (int b = 0; b < BATCH; b++) {
        s[b] = open_on(m, k);
        put(s[b], ids + b, PROMPT);
    }
    for (int i = 0; i <= STEPS; i++) {
        int32_t next[BATCH];
        for (int b = 0; b < BATCH; b++) {
            memcpy(logits[i][b], ig_session_logits(s[b]), sizeof logits[i][b]);
            next[b] = ids[PROMPT + b + i];
        }
        if (i < STEPS) expect_ok(ig_session_decode(s, next, BATCH, &err), &err);
    }
    for (int b = 0; b < BATCH; b++) ig_session_close(s[b]);
}

static void bits_do_not_depend_on_the_memory(void **state) {
    static const kind kinds[] = {{TINY_LLAMA, "full", NULL},
                                 {TINY_MISTRAL, "infinigen", "late"},
                                 {"tests/golden/models/opt", "infinigen-osdi24", "paper"},
                                 {"tests/golden/models/opt-350m-like", "infinigen", "norm"},
                                 {"tests/golden/models/qwen3.5", "full", NULL},
                                 {"tests/golden/models/qwen3.5", "infinigen", "late"},
                                 {"tests/golden/models/gemma4-e", "infinigen", "late"},
                                 {"tests/golden/models/deepseek3", "infinigen", "late"},
                                 {"tests/golden/models/nemotron-h", "infinigen", "late"}};
    (void)state;
    open_gpu();
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        static float want[STEPS + 1][BATCH][N_VOCAB], got[STEPS + 1][BATCH][N_VOCAB];
        ig_model *m;
        ig_error err = {0};
        expect_ok(ig_model_open(&m, ctx, kinds[k].model, NULL, &err), &err);
        run(want, m, &kinds[k]);
        uint64_t all = weight_stats(m).vram_bytes, least = least_of(kinds[k].model),
                 sizes[] = {least, k % 2 ? all : all - 1}; /* with three layers all or none are streamed */
        assert_true(weight_stats(m).n_streamed_layers == 0 && weight_stats(m).ram_bytes == 0 && least < all);
        ig_model_close(m);
        for (int i = 0; i < 2; i++) {
            bool streams = sizes[i] < all;
            expect_ok(open_limited(&m, kinds[k].model, 0, sizes[i], &err), &err);
            memset(got, 0, sizeof got);
            run(got, m, &kinds[k]);
            if (memcmp(want, got, sizeof want) != 0)
                fail_msg("%s, %s: other bits with %llu bytes", kinds[k].model, kinds[k].policy,
                         (unsigned long long)sizes[i]);
            ig_weight_stats st = weight_stats(m);
            assert_true(st.vram_bytes <= sizes[i] && st.ram_bytes >= st.step_bytes && st.wait_seconds >= 0);
            assert_true((st.n_streamed_layers >= 3) == streams && (st.step_bytes > 0) == streams);
            assert_true(st.read_bytes >= st.step_bytes * (2 * BATCH + STEPS));
            ig_model_close(m);
        }
    }
    ig_context_close(ctx);
}

/* Of mixtures of experts those that find no room are sent when a router has chosen them. */
static void experts_are_sent_when_they_are_chosen(void **state) {
    const kind k = {*state, "full", NULL};
    static float want[STEPS + 1][BATCH][N_VOCAB], got[STEPS + 1][BATCH][N_VOCAB];
    ig_model *m;
    ig_error err = {0};
    open_gpu();
    expect_ok(ig_model_open(&m, ctx, k.model, NULL, &err), &err);
    run(want, m, &k);
    uint64_t all = weight_stats(m).vram_bytes, least = least_of(k.model);
    assert_true(weight_stats(m).n_experts == 0 && least < all);
    ig_model_close(m);
    const uint64_t sizes[] = {least, least + (all - least) / 4, (least + all) / 2, all - 1, all};
    for (int i = 0; i < 5; i++) {
        expect_ok(open_limited(&m, k.model, 0, sizes[i], &err), &err);
        memset(got, 0, sizeof got);
        for (int round = 0; round < 2; round++) {
            run(got, m, &k);
            assert_memory_equal(want, got, sizeof want);
        }
        ig_weight_stats st = weight_stats(m);
        assert_true(st.vram_bytes <= sizes[i] && st.n_held_experts <= st.n_experts && st.wait_seconds >= 0);
        assert_true((st.n_experts > 0) == (sizes[i] < all) && (st.step_bytes > 0 || !st.read_bytes));
        if (i < 2) assert_true(st.n_held_experts < st.n_experts && st.read_bytes > 0 && st.ram_bytes > st.step_bytes);
        ig_model_close(m);
    }
    ig_context_close(ctx);
}

static void too_little_is_refused(void **state) {
    (void)state;
    ig_error err = {0};
    ig_model *m;
    open_gpu();
    uint64_t least = least_of(TINY_LLAMA);
    assert_int_equal(open_limited(&m, TINY_LLAMA, 0, least - 1, &err), IG_E_LIMIT);
    expect_ok(open_limited(&m, TINY_LLAMA, 0, least, &err), &err);
    ig_model_info info;
    ig_model_get_info(m, &info);
    assert_true(weight_stats(m).vram_bytes == least && info.private_bytes == least + weight_stats(m).ram_bytes);
    ig_model_close(m);
    ig_context_close(ctx);
    ig_context_options cpu = ig_context_defaults();
    expect_ok(ig_context_open(&ctx, &cpu, &err), &err);
    assert_int_equal(open_limited(&m, TINY_LLAMA, 0, least, &err), IG_E_ARG);
    ig_context_close(ctx);
}

/* A token whose embedding is not finite ends a pass in its first layer; the one after it starts anew. */
static void passes_that_end_early(void **state) {
    (void)state;
    enum { BAD = 77 };
    const kind k = {.policy = "full"};
    ig_error err = {0};
    ig_safetensors *st;
    ig_model *m;
    tiny_copy copy = copy_tiny("mistral");
    expect_ok(ig_safetensors_open_memory(&st, copy.bytes, copy.n, "mistral", &err), &err);
    const ig_tensor *t = ig_safetensors_tensor(st, "model.embed_tokens.weight");
    ((uint16_t *)(uintptr_t)t->data)[BAD * (size_t)t->dims[0]] = 0x7fc0; /* NaN as BF16 and F16 */
    temp_dir_write(&copy.dir, "model.safetensors", copy.bytes, copy.n);
    open_gpu();
    expect_ok(ig_model_open(&model, ctx, copy.dir.path, NULL, &err), &err);
    expect_ok(open_limited(&m, copy.dir.path, 0, least_of(copy.dir.path), &err), &err);
    ig_session *a = open_on(model, &k), *b = open_on(m, &k);
    put(a, ids, PROMPT), put(b, ids, PROMPT);
    for (int i = 0; i < 2; i++) {
        const int32_t bad = BAD;
        assert_int_equal(ig_session_decode(&b, &bad, 1, &err), IG_E_NUMBER);
        step(a, ids[PROMPT + i]), step(b, ids[PROMPT + i]);
        same(a, b);
    }
    ig_session_close(a), ig_session_close(b);
    ig_model_close(m);
    close_tiny(NULL);
    ig_safetensors_close(st);
    drop_tiny_copy(&copy);
}

/* Wherever memory ends while a model is opened; the first time that it is enough everything works. */
static void memory_that_ends(void **state) {
    const char *path = *state;
    ig_error err = {0};
    ig_model *m;
    if (!cuda_on_cpu_room) skip();
    open_gpu();
    uint64_t least = least_of(path);
    for (int is_host = 0; is_host < 2; is_host++) {
        size_t all = is_host ? SIZE_MAX : (size_t)1 << 36, before = cuda_on_cpu_room(is_host, all), room = before;
        ig_status status = IG_E_MEMORY;
        for (int n_failed = 0; status; n_failed++, room += least / 5) {
            cuda_on_cpu_room(is_host, room);
            status = open_limited(&m, path, 0, least, &err);
            if (status) {
                assert_int_equal(status, IG_E_MEMORY);
                assert_true(cuda_on_cpu_room(is_host, all) == before && n_failed < 20);
            } else {
                assert_true(n_failed > (is_host ? 1 : 3));
                ig_model_close(m);
            }
        }
        assert_true(cuda_on_cpu_room(is_host, all) == before);
    }
    cuda_on_cpu_room(false, cuda_on_cpu_room(false, (size_t)1 << 36) + least);
    assert_int_equal(ig_model_open(&m, ctx, path, NULL, &err), IG_E_MEMORY);
    if (!strstr(err.text, "--weights-vram")) fail_msg("%s", err.text);
    cuda_on_cpu_room(false, (size_t)1 << 36);
    ig_context_close(ctx);
}

static void open_planning(void) {
    ig_error err = {0};
    ig_context_options o = ig_context_defaults();
    o.device = "cuda:0";
    o.n_threads = 2;
    o.plan_only = true;
    expect_ok(ig_context_open(&ctx, &o, &err), &err);
}

/* What a context without a GPU plans is what one with a GPU plans, and what is taken then. */
static void plans_without_a_gpu(void **state) {
    (void)state;
    enum { SLACK = 256 << 10 }; /* pages, and jobs of attention */
    ig_error err = {0};
    ig_model *m;
    ig_session *s;
    ig_cache *c;
    ig_cache_plan_info plans[2];
    ig_session_options o = ig_session_defaults();
    o.n_ctx = 4096;
    o.n_batch = 64;
    o.cache.memory.vram_bytes = 1 << 20;
    open_planning();
    uint64_t least = least_of(TINY_LLAMA);
    expect_ok(open_limited(&m, TINY_LLAMA, 0, least, &err), &err);
    expect_ok(ig_cache_plan(&plans[0], m, &o, &err), &err);
    assert_int_equal(ig_session_open(&s, m, &o, &err), IG_E_UNSUPPORTED);
    assert_int_equal(ig_cache_open(&c, m, &o, &err), IG_E_UNSUPPORTED);
    assert_string_equal(ig_context_device(ctx), "cuda:0");
    ig_model_close(m);
    ig_context_close(ctx);
    open_gpu();
    expect_ok(open_limited(&m, TINY_LLAMA, 0, least, &err), &err);
    expect_ok(ig_cache_plan(&plans[1], m, &o, &err), &err);
    assert_memory_equal(&plans[0], &plans[1], sizeof plans[0]);
    assert_true(plans[0].gpu.weights + plans[0].gpu.slots == least && plans[0].gpu.slots > 0);
    assert_true(plans[0].locked.weights == weight_stats(m).ram_bytes && plans[0].locked.kv == plans[0].kv);
    expect_ok(ig_session_open(&s, m, &o, &err), &err);
    for (int is_host = 0; cuda_on_cpu_room && is_host < 2; is_host++) {
        size_t taken = cuda_on_cpu_room(is_host, is_host ? SIZE_MAX : (size_t)1 << 36);
        uint64_t planned = is_host ? plans[0].locked.total : plans[0].gpu.total;
        if (taken > planned * 1.05 + SLACK || taken < planned * 0.95)
            fail_msg("%zu bytes are taken, %llu were planned", taken, (unsigned long long)planned);
    }
    ig_session_close(s);
    ig_model_close(m);
    ig_context_close(ctx);
}

int main(void) {
#define OF(test, path) \
    { #test " of " path, test, NULL, NULL, path }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_do_not_depend_on_the_memory),
        OF(experts_are_sent_when_they_are_chosen, "tests/golden/models/qwen3moe"),
        OF(experts_are_sent_when_they_are_chosen, "tests/golden/models/granitemoe"),
        OF(experts_are_sent_when_they_are_chosen, "tests/golden/models/glm4moe"),
        OF(experts_are_sent_when_they_are_chosen, "tests/golden/models/nemotron-h-moe"),
        OF(experts_are_sent_when_they_are_chosen, "tests/golden/models/gemma4-moe"),
        OF(experts_are_sent_when_they_are_chosen, "tests/golden/models/gpt-oss/model.gguf"),
        cmocka_unit_test(too_little_is_refused),
        cmocka_unit_test(passes_that_end_early),
        OF(memory_that_ends, TINY_LLAMA),
        OF(memory_that_ends, "tests/golden/models/qwen3moe"),
        cmocka_unit_test(plans_without_a_gpu),
    };
    ig_device_info d;
    for (int i = 0; i < CTX; i++) ids[i] = (i * 37 + 5) % N_VOCAB;
    if (!ig_device_at(1, &d)) {
        printf("skipped: no GPU\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
