/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys and values in 8 bits and fewer under whole sessions: what must be the same to the bit with 16-bit floats must be
 * so with every type, the logits stay close to those of 16-bit floats, and the memory is what was planned. The same
 * where keys have large biases, as those of the qwen2 family have.
 */
#define _GNU_SOURCE
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "golden/tiny_session.h"
#include "model/model.h"

enum { N_CTX = 1400, N_PROMPT = 320, N_LONG = 1300, N_STEPS = 8, N_TYPES = 5 };

static const char *const types[N_TYPES] = {"f16", "q8", "q4", "q2", "q1"};
static int32_t ids[N_CTX];

/* Large biases in pairs of channels that RoPE turns fast, less fast and slowly. */
static int open_biased(void **state) {
    static float biases[4][64]; /* [layer][KV head and channel] */
    ig_error err = {0};
    open_tiny_llama(state);
    const ig_config *c = &model->config;
    assert_true(c->n_layers == 4 && c->n_kv_heads == 2 && c->head_dim == 32);
    for (int l = 0; l < 4; l++) {
        for (int i = 0; i < 64; i++)
            biases[l][i] = i % 16 == 1 ? 3.0f : i % 16 == 7 ? -6.0f : i % 16 > 12 ? (float)(60 + 9 * l - i) : 0.1f;
        model->weights.layers[l].k.bias = biases[l];
    }
    ig_key_frames_close(&model->key_frames);
    expect_ok(ig_key_frames_open(&model->key_frames, c, &model->weights, model->inv_freq, &err), &err);
    return 0;
}

static void advance(ig_session *s) { step(s, ids[ig_session_tokens(s, NULL)]); }

static ig_session_options options(const char *policy, const char *type) {
    ig_session_options o = ig_session_defaults();
    o.n_ctx = N_CTX;
    o.n_batch = 64;
    o.cache.policy = policy;
    o.cache.memory.type = type;
    o.cache.budget = 0.15;
    o.cache.n_recent = 16;
    o.cache.n_dense_layers = 1;
    return o;
}

/* Whatever chooses everything is like `full`. */
static void whole_budget_is_full(void **state) {
    static const char *const policies[] = {"infinigen", "quest", "window"};
    (void)state;
    for (int t = 0; t < N_TYPES; t++) {
        ig_session_options o = options("full", types[t]);
        ig_session *full = open_session(&o);
        put(full, ids, N_PROMPT);
        for (int i = 0; i < N_STEPS; i++) advance(full);
        for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
            o = options(policies[p], types[t]);
            o.cache.budget = 1;
            ig_session *s = open_session(&o);
            put(s, ids, N_PROMPT);
            for (int i = 0; i < N_STEPS; i++) advance(s);
            same(full, s);
            ig_session_close(s);
        }
        ig_session_close(full);
    }
}

/* Prompt, generation, a cut back into what is on disk, more of it. */
static void disk_is_like_ram(void **state) {
    static const char *const policies[] = {"full", "infinigen"};
    (void)state;
    for (int k = 0; k < 2 * (N_TYPES - 1); k++) {
        ig_session_options in_ram = options(policies[k % 2], types[1 + k / 2]), tiered = in_ram;
        tiered.cache.memory.disk_bytes = 64 << 20;
        tiered.cache.memory.disk_path = folder;
        tiered.cache.memory.ram_bytes = least_ram(tiered);
        ig_session *a = open_session(&in_ram), *b = open_session(&tiered);
        static const int lengths[] = {N_LONG, 233, N_LONG - 5};
        for (int c = 0; c < 3; c++) {
            put(a, ids, lengths[c]), put(b, ids, lengths[c]);
            same(a, b);
            for (int i = 0; i < N_STEPS; i++) {
                advance(a), advance(b);
                same(a, b);
            }
        }
        ig_session_stats st;
        ig_session_get_stats(b, &st);
        assert_true(st.kv_bytes <= tiered.cache.memory.ram_bytes);
        /* In 1 bit the least RAM holds this text. */
        if (k / 2 < N_TYPES - 2) assert_true(st.written_bytes > 0 && st.read_bytes > 0);
        ig_session_close(a);
        ig_session_close(b);
    }
}

/* Sequences of all types in one batch. */
static void batches_mix_types(void **state) {
    (void)state;
    enum { N = 2 * N_TYPES };
    ig_session *together[N], *alone[N];
    ig_error err = {0};
    for (int k = 0; k < N; k++) {
        ig_session_options o = options(k < N_TYPES ? "full" : "infinigen", types[k % N_TYPES]);
        together[k] = open_session(&o);
        alone[k] = open_session(&o);
        put(together[k], ids, 200 + 20 * k), put(alone[k], ids, 200 + 20 * k);
    }
    for (int i = 0; i < N_STEPS; i++) {
        int32_t next[N];
        for (int k = 0; k < N; k++) next[k] = ids[ig_session_tokens(together[k], NULL)];
        expect_ok(ig_session_decode(together, next, N, &err), &err);
        for (int k = 0; k < N; k++) {
            advance(alone[k]);
            same(together[k], alone[k]);
        }
    }
    for (int k = 0; k < N; k++) ig_session_close(together[k]), ig_session_close(alone[k]);
}

/* sqrt(sum (a - b)^2 / sum (b - mean)^2) of the logits */
static double distance(const ig_session *a, const ig_session *b) {
    const float *x = ig_session_logits(a), *y = ig_session_logits(b);
    double mean = 0, error = 0, spread = 0;
    for (int i = 0; i < N_VOCAB; i++) mean += y[i] / (double)N_VOCAB;
    for (int i = 0; i < N_VOCAB; i++) {
        error += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
        spread += (y[i] - mean) * (y[i] - mean);
    }
    return sqrt(error / spread);
}

/* The types take effect, the fewer bits the more, and 8 and 4 bits little of it; a cache filled by decoding is like one
 * filled by a prompt. */
static void logits_stay_close(void **state) {
    static const double most[N_TYPES] = {0, 0.03, 0.4, 2, 4};
    (void)state;
    ig_session *s[N_TYPES];
    double last = 1e-5;
    for (int t = 0; t < N_TYPES; t++) {
        ig_session_options o = options("full", types[t]);
        s[t] = open_session(&o);
        put(s[t], ids, 300);
        for (int i = 0; i < N_STEPS; i++) advance(s[t]);
    }
    for (int t = 1; t < N_TYPES; t++) {
        double d = distance(s[t], s[0]);
        if (d <= last || d > most[t]) fail_msg("%s: %g after %g", types[t], d, last);
        last = d;
    }
    for (int t = 0; t < N_TYPES; t++) ig_session_close(s[t]);
}

/* Policies see keys as they are, however these are kept: what they choose holds as much of the attention, and one that
 * comes later chooses the same. */
static void policies_see_keys(void **state) {
    (void)state;
    double mass[N_TYPES];
    for (int t = 0; t < N_TYPES; t++) {
        ig_session_options o = options("oracle", types[t]);
        o.cache.audit_every = 1;
        ig_session *s = open_session(&o), *later;
        ig_cache_options oracle = o.cache;
        ig_error err = {0};
        o.cache.policy = "full";
        later = open_session(&o);
        put(s, ids, N_PROMPT), put(later, ids, N_PROMPT);
        expect_ok(ig_session_set_cache(later, &oracle, &err), &err);
        for (int i = 0; i < N_STEPS; i++) {
            advance(s), advance(later);
            same(s, later);
        }
        mass[t] = stats(s).mass_mean;
        ig_session_close(s), ig_session_close(later);
    }
    if (mass[1] < mass[0] - 0.005 || mass[2] < mass[0] - 0.05)
        fail_msg("f16 %g, q8 %g, q4 %g", mass[0], mass[1], mass[2]);
}

static void memory_is_as_planned(void **state) {
    (void)state;
    uint64_t planned[N_TYPES];
    for (int t = 0; t < N_TYPES; t++) {
        ig_session_options o = options("full", types[t]);
        ig_cache_plan_info plan;
        o.cache.memory.whole_windows = true;
        ig_session_stats st;
        ig_error err = {0};
        expect_ok(ig_cache_plan(&plan, model, &o, &err), &err);
        planned[t] = plan.kv;
        ig_session *s = open_session(&o);
        put(s, ids, N_CTX);
        ig_session_get_stats(s, &st);
        assert_string_equal(st.kv_type, types[t]);
        assert_true(st.kv_bytes == plan.kv);
        ig_session_close(s);
    }
    assert_true(planned[1] < planned[0] * 6 / 10);
    for (int t = 2; t < N_TYPES; t++) assert_true(planned[t] < planned[t - 1] * 7 / 10);
}

static void unknown_types_are_errors(void **state) {
    (void)state;
    static const char *const wrong[] = {"q3", "", "F16", "f16 "};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ig_session_options o = options("full", wrong[i]);
        ig_cache_plan_info plan;
        ig_session *s;
        ig_error err = {0};
        assert_int_equal(ig_session_open(&s, model, &o, &err), IG_E_ARG);
        assert_non_null(strstr(err.text, "f16, q8, q4, q2, q1"));
        assert_int_equal(ig_cache_plan(&plan, model, &o, &err), IG_E_ARG);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_budget_is_full), cmocka_unit_test(batches_mix_types),
        cmocka_unit_test(logits_stay_close),    cmocka_unit_test(memory_is_as_planned),
        cmocka_unit_test(policies_see_keys),
    };
    const struct CMUnitTest others[] = {
        cmocka_unit_test(disk_is_like_ram),
        cmocka_unit_test(unknown_types_are_errors),
    };
    for (int i = 0; i < N_CTX; i++) ids[i] = i * 7919 % N_VOCAB;
    if (!mkdtemp(folder)) return 1;
    int failed = cmocka_run_group_tests_name("llama", tests, open_tiny_llama, close_tiny);
    failed += cmocka_run_group_tests_name("windows", tests, open_tiny_mistral, close_tiny);
    failed += cmocka_run_group_tests_name("biases", tests, open_biased, close_tiny);
    failed += cmocka_run_group_tests_name("llama", others, open_tiny_llama, close_tiny);
    if (rmdir(folder)) failed++; /* nothing may be left in it */
    return failed;
}
