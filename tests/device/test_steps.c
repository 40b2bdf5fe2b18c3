/* SPDX-License-Identifier: Apache-2.0
 *
 * What a step on the GPU costs the host: how often it waits, and what it launches.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/trial.h"
#include "device/session_on.h"
#include "model/model.h"

/* Of the stand-in for a GPU (cuda_on_cpu.h) alone: calls of a name so far; and that they fail. */
__attribute__((weak)) uint64_t cuda_on_cpu_count(const char *call);
__attribute__((weak)) uint64_t cuda_on_cpu_copied(void);
__attribute__((weak)) void cuda_on_cpu_fail(const char *call, int error);

enum { GRAPH_STEPS = 6 };

typedef struct calls {
    uint64_t launches, graphs, made, changes;
    uint64_t bytes; /* copied, but by a graph */
    uint64_t mail;  /* bytes that were planned for it */
} calls;

static calls calls_so_far(void) {
    return (calls){cuda_on_cpu_count("cudaLaunchKernel"),
                   cuda_on_cpu_count("cudaGraphLaunch"),
                   cuda_on_cpu_count("cudaGraphInstantiateWithFlags"),
                   cuda_on_cpu_count("cudaGraphExecKernelNodeSetParams"),
                   cuda_on_cpu_copied(),
                   model->batch.have.mail_bytes};
}

static const char *path = TINY_LLAMA; /* of the model */

/* Of the last of some steps, whose logits [GRAPH_STEPS][N_VOCAB] and statistics are given. */
static calls calls_of_a_step(const ig_session_options *o, float *logits, ig_session_stats *stats) {
    open_on(path, "cuda");
    ig_session *s = open_session(o);
    calls x = {0};
    put(s, ids, PROMPT);
    for (int i = 0; i < GRAPH_STEPS; i++) {
        x = calls_so_far();
        step(s, ids[i]);
        memcpy(logits + (size_t)i * N_VOCAB, ig_session_logits(s), N_VOCAB * sizeof *logits);
    }
    calls end = calls_so_far();
    ig_session_get_stats(s, stats);
    ig_session_close(s);
    close_tiny(NULL);
    return (calls){end.launches - x.launches, end.graphs - x.graphs, end.made - x.made,
                   end.changes - x.changes,   end.bytes - x.bytes,   end.mail};
}

/* The layers of a step are one graph, the same as in the step before but for a few numbers; a new one, if the driver
 * refuses to change these; or, if it makes no graphs, they are launched one by one. */
static void steps_are_graphs(void **state) {
    (void)state;
    enum { LAYERS = 4, LEAST = 12 * LAYERS, FEW = 8 << 10, OTHER = 4 << 10, INVALID_VALUE = 1, MEMORY_ALLOCATION = 2 };
    static const struct {
        const char *policy, *speculate;
        uint64_t vram;
    } runs[] = {{"full", "auto", IG_VRAM_AUTO},
                {"full", "auto", FEW},
                {"infinigen", "auto", IG_VRAM_AUTO},
                {"infinigen", "late", FEW},
                {"infinigen-osdi24", "paper", FEW}};
    static float logits[2][GRAPH_STEPS * N_VOCAB];
    ig_session_stats st[2];
    if (!cuda_on_cpu_count) skip();
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        ig_session_options o = options_of(runs[i].policy, "f16");
        o.cache.speculate = runs[i].speculate;
        o.cache.memory.vram_bytes = runs[i].vram;
        calls x = calls_of_a_step(&o, logits[0], &st[0]);
        assert_true(x.graphs == 1 && x.made == 0 && x.launches < LAYERS);
        assert_true(x.changes > 0 && x.changes <= 2 * LAYERS);
        assert_true(x.mail > 0 && x.bytes <= x.mail + OTHER);
        cuda_on_cpu_fail("cudaGraphExecKernelNodeSetParams", INVALID_VALUE);
        x = calls_of_a_step(&o, logits[1], &st[1]);
        assert_true(x.graphs == 1 && x.made == 1 && x.launches < LAYERS);
        assert_memory_equal(logits[0], logits[1], sizeof *logits);
        cuda_on_cpu_fail("cudaGraphInstantiateWithFlags", MEMORY_ALLOCATION);
        x = calls_of_a_step(&o, logits[1], &st[1]);
        cuda_on_cpu_fail(NULL, 0);
        assert_true(x.graphs == 0 && x.launches >= LEAST);
        assert_memory_equal(logits[0], logits[1], sizeof *logits);
        assert_int_equal(st[0].vram_hits, st[1].vram_hits);
        assert_int_equal(st[0].vram_copied, st[1].vram_copied);
        assert_int_equal(st[0].vram_read_bytes, st[1].vram_read_bytes);
    }
}

static const ig_device_ops *counted_ops;
static int n_waits, n_foreseen;

static ig_status count_wait(ig_device *d, ig_error *err) {
    n_waits++;
    return counted_ops->finish(d, err);
}

static void count_foreseen(ig_device *d, const ig_head_shape *shape, const ig_attention *jobs, int n_jobs) {
    n_foreseen++;
    counted_ops->prefetch(d, shape, jobs, n_jobs);
}

/* Waits of a prompt, or of step number `n_step`, from 1 on; vram: bytes for copies. */
static int waits_of(const char *policy, double budget, uint64_t vram, int n_step) {
    open_on(path, "cuda");
    ig_session_options o = options_of(policy, "f16");
    o.cache.budget = budget;
    o.cache.memory.vram_bytes = vram;
    ig_session *s = open_session(&o);
    if (n_step) put(s, ids, PROMPT);
    for (int i = 1; i < n_step; i++) step(s, ids[PROMPT]);
    counted_ops = ctx->device->ops;
    ig_device_ops counting = *counted_ops;
    counting.finish = count_wait;
    counting.prefetch = count_foreseen;
    ctx->device->ops = &counting;
    n_waits = n_foreseen = 0;
    if (n_step)
        step(s, ids[PROMPT]);
    else
        put(s, ids, PROMPT);
    ctx->device->ops = counted_ops;
    ig_session_close(s);
    close_tiny(NULL);
    return n_waits;
}

/* For layers, and for logits, which are looked at meanwhile; else for each layer. */
static void waits(void **state) {
    (void)state;
    enum { LEAST = 2, SPARSE = 3, FEW = 8 << 10 };
    const uint64_t all = IG_VRAM_AUTO;
    assert_int_equal(waits_of("full", 0, all, 0), LEAST);
    assert_int_equal(waits_of("full", 0, all, 1), LEAST);
    assert_int_equal(waits_of("infinigen", 0.3, all, 0), LEAST);
    assert_int_equal(waits_of("infinigen", 1, all, 1), LEAST);
    assert_int_equal(waits_of("infinigen", 0.3, all, 1), LEAST); /* the GPU chooses */
    assert_int_equal(n_foreseen, 0);
    assert_int_equal(waits_of("infinigen", 0.3, FEW, IG_TRIAL_TURN), LEAST); /* it guesses, too */
    assert_int_equal(n_foreseen, SPARSE);
    assert_int_equal(waits_of("infinigen", 0.3, FEW, IG_TRIAL_TURN + 1), LEAST); /* steps without are tried */
    assert_int_equal(n_foreseen, 0);
    assert_true(waits_of("infinigen-osdi24", 0.3, all, 1) >= LEAST + SPARSE); /* the host chooses columns */
    assert_int_equal(waits_of("infinigen-osdi24", 0.3, all, 2), LEAST);
    assert_true(waits_of("quest", 0.3, all, 1) >= LEAST + SPARSE);
}

/* Layers with a recurrence wait for nothing, and their steps are graphs. */
static void recurrences(void **state) {
    (void)state;
    static float logits[GRAPH_STEPS * N_VOCAB];
    ig_session_stats st;
    path = "tests/golden/models/qwen3.5";
    assert_int_equal(waits_of("full", 0, IG_VRAM_AUTO, 0), 2);
    assert_int_equal(waits_of("full", 0, IG_VRAM_AUTO, 1), 2);
    assert_int_equal(waits_of("infinigen", 0.3, IG_VRAM_AUTO, 1), 2);
    if (cuda_on_cpu_count) {
        ig_session_options o = options_of("full", "f16");
        calls x = calls_of_a_step(&o, logits, &st);
        assert_true(x.graphs == 1 && x.made == 0 && x.launches < 4);
    }
    path = TINY_LLAMA;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(waits), cmocka_unit_test(steps_are_graphs),
                                       cmocka_unit_test(recurrences)};
    int missing = begin_on_gpu();
    return missing ? missing : cmocka_run_group_tests(tests, NULL, NULL);
}
