/* SPDX-License-Identifier: Apache-2.0
 *
 * Every number of every structure of options, set to what is out of its range: refused with a line that names the
 * field, wherever the structure is taken. What is at the ends of the ranges works.
 */
#define _GNU_SOURCE
#include <float.h>
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "golden/tiny_session.h"
#include "infinigen_tools.h"

enum { N_BAD = 4 };

/* A field and values that it cannot have; unused ones repeat the first. */
typedef struct field {
    const char *name;
    size_t offset;
    char type; /* int, float, double */
    double bad[N_BAD];
} field;

#define INT_FIELD(type, name, ...)                        \
    {                                                     \
#name, offsetof(type, name), 'i', { __VA_ARGS__ } \
    }
#define FLOAT_FIELD(type, name, ...)                                     \
    {                                                                    \
#name, offsetof(type, name), 'f', { NAN, INFINITY, __VA_ARGS__ } \
    }
#define DOUBLE_FIELD(type, name, ...)                                    \
    {                                                                    \
#name, offsetof(type, name), 'd', { NAN, INFINITY, __VA_ARGS__ } \
    }

static void set(void *options, const field *f, double value) {
    char *at = (char *)options + f->offset;
    int i = f->type == 'i' ? (int)value : 0;
    float x = (float)value;
    if (f->type == 'i')
        memcpy(at, &i, sizeof i);
    else if (f->type == 'f')
        memcpy(at, &x, sizeof x);
    else
        memcpy(at, &value, sizeof value);
}

/* A call that takes the options is refused. */
typedef ig_status (*taker)(const void *options, ig_error *err);

static void refuse_all(const field *fields, size_t n_fields, const void *defaults, size_t size, taker take) {
    char options[512];
    assert_true(size <= sizeof options);
    for (size_t i = 0; i < n_fields; i++)
        for (int k = 0; k < N_BAD; k++) {
            ig_error err = {0};
            double value = k && fields[i].bad[k] == 0 ? fields[i].bad[0] : fields[i].bad[k];
            memcpy(options, defaults, size);
            set(options, &fields[i], value);
            if (take(options, &err) != IG_E_ARG) fail_msg("%s = %g is taken", fields[i].name, value);
            if (!strstr(err.text, fields[i].name)) fail_msg("'%s' does not name %s", err.text, fields[i].name);
        }
}

static int open_model(void **state) {
    (void)state;
    open_tiny(TINY_LLAMA, 1);
    return 0;
}

/* ---- context -------------------------------------------------------------------- */

static ig_status take_context(const void *options, ig_error *err) {
    ig_context *c = ctx;
    ig_status s = ig_context_open(&c, options, err);
    assert_null(c);
    return s;
}

static void contexts(void **state) {
    (void)state;
    static const field fields[] = {
        INT_FIELD(ig_context_options, n_threads, -1, INT_MIN, IG_THREADS_MAX + 1, INT_MAX),
        INT_FIELD(ig_context_options, cpu_level, -5, 50, IG_CPU_I8MM + 1, INT_MAX),
    };
    ig_context_options o = ig_context_defaults();
    refuse_all(fields, IG_COUNT(fields), &o, sizeof o, take_context);
    ig_context *c;
    ig_error err = {0};
    o.cpu_level = IG_CPU_SCALAR;
    o.n_threads = 3;
    expect_ok(ig_context_open(&c, &o, &err), &err);
    assert_int_equal(ig_context_threads(c), 3);
    ig_context_close(c);
}

/* ---- sessions and caches ------------------------------------------------------------ */

static ig_status take_session(const void *options, ig_error *err) {
    ig_session *s = NULL;
    ig_cache_plan_info plan;
    ig_error other;
    ig_status status = ig_session_open(&s, model, options, err);
    assert_null(s);
    assert_int_equal(ig_cache_plan(&plan, model, options, &other), status);
    assert_string_equal(other.text, err->text);
    return status;
}

static void session_numbers(void **state) {
    (void)state;
    static const field fields[] = {
        INT_FIELD(ig_session_options, n_ctx, -1, INT_MIN, IG_CTX_MAX + 1, INT_MAX),
        INT_FIELD(ig_session_options, n_batch, -1, INT_MIN, IG_BATCH_MAX + 1, INT_MAX),
        INT_FIELD(ig_session_options, n_draft, -1, INT_MIN, IG_DRAFT_MAX + 1, INT_MAX),
    };
    ig_session_options o = ig_session_defaults();
    refuse_all(fields, IG_COUNT(fields), &o, sizeof o, take_session);
    o.n_batch = 0;
    ig_error err = {0};
    assert_int_equal(take_session(&o, &err), IG_E_ARG);
}

static ig_session *held; /* holds tokens, and keeps them */

static ig_status take_cache(const void *options, ig_error *err) {
    ig_session_options o = ig_session_defaults();
    ig_error other;
    o.cache = *(const ig_cache_options *)options;
    ig_status s = take_session(&o, err);
    assert_int_equal(ig_session_set_cache(held, options, &other), s);
    assert_string_equal(other.text, err->text);
    return s;
}

static void cache_numbers(void **state) {
    (void)state;
#define CACHE ig_cache_options
    static const field fields[] = {
        DOUBLE_FIELD(CACHE, budget, -1, 1.01),
        INT_FIELD(CACHE, budget_entries, -1, INT_MIN),
        DOUBLE_FIELD(CACHE, mass, -0.5, 1.01),
        DOUBLE_FIELD(CACHE, locality, -0.5, 1.01),
        DOUBLE_FIELD(CACHE, inertia, -0.5, 1000.1),
        DOUBLE_FIELD(CACHE, alpha, -1, 1e300),
        DOUBLE_FIELD(CACHE, partial, -0.1, 1.01),
        DOUBLE_FIELD(CACHE, memory.limit, -1, 1.01),
        INT_FIELD(CACHE, n_sinks, -1, INT_MIN, INT_MAX, INT_MAX / 4 + 1),
        INT_FIELD(CACHE, n_recent, -1, INT_MIN, INT_MAX, INT_MAX / 4 + 1),
        INT_FIELD(CACHE, n_dense_layers, -2, INT_MIN),
        INT_FIELD(CACHE, audit_every, -1, INT_MIN),
    };
    int32_t ids[40] = {1, 2, 3};
    ig_error err = {0};
    ig_cache_options o = ig_cache_defaults();
    held = open_session(NULL);
    put(held, ids, 40);
    refuse_all(fields, IG_COUNT(fields), &o, sizeof o, take_cache);
    o.partial = 0;
    assert_int_equal(take_cache(&o, &err), IG_E_ARG);
    o = ig_cache_defaults();
    o.n_recent = 0;
    assert_int_equal(take_cache(&o, &err), IG_E_ARG);
    o = ig_cache_defaults();
    o.budget = 0.5;
    o.budget_entries = 10;
    assert_int_equal(take_cache(&o, &err), IG_E_ARG);
    o = ig_cache_defaults();
    o.memory.limit_bytes = UINT64_MAX;
    assert_int_equal(take_cache(&o, &err), IG_E_ARG);
    assert_int_equal(ig_session_tokens(held, NULL), 40);
    ig_session_close(held);
}

/* All that is allowed, to the ends: nothing overflows. */
static void ends_of_ranges(void **state) {
    (void)state;
    static const char *const policies[] = {"infinigen", "infinigen-osdi24", "full",   "quest", "h2o",
                                           "snapkv",    "pyramidkv",        "window", "oracle"};
    int32_t ids[40] = {1, 2, 3};
    for (size_t i = 0; i < IG_COUNT(policies); i++)
        for (int most = 0; most < 2; most++) {
            ig_session_options o = ig_session_defaults();
            ig_cache_options *c = &o.cache;
            o.n_batch = most ? IG_BATCH_MAX : 1;
            o.n_draft = most * IG_DRAFT_MAX;
            o.n_ctx = 64;
            c->policy = policies[i];
            c->budget = most ? 1 : DBL_MIN;
            c->mass = most ? 1 : DBL_MIN;
            c->partial = most ? 1 : DBL_MIN;
            c->alpha = most ? FLT_MAX : 0;
            c->locality = most;
            c->inertia = most * 1000;
            c->n_sinks = most ? INT_MAX / 4 : 0;
            c->n_recent = most ? INT_MAX / 4 : 1;
            c->n_dense_layers = most ? INT_MAX : 0;
            c->audit_every = most ? INT_MAX : 1;
            c->memory.ram_bytes = c->memory.disk_bytes =
                most && strcmp(policies[i], "h2o") && !strstr(policies[i], "kv") ? UINT64_MAX : 0;
            c->memory.disk_path = "/tmp";
            ig_session *s = open_session(&o);
            put(s, ids, 40);
            for (int k = 0; k < 10; k++) step(s, k);
            for (int v = 0; v < N_VOCAB; v++) assert_true(isfinite(ig_session_logits(s)[v]));
            ig_session_close(s);
        }
}

/* ---- preparing, sampling, generating --------------------------------------------------- */

static ig_status take_prepare(const void *options, ig_error *err) {
    return ig_prepare(NULL, model, "/nonexistent/sketch", options, err);
}

static void preparation(void **state) {
    (void)state;
    static const field fields[] = {
        INT_FIELD(ig_prepare_options, n_ids, -1, INT_MIN),
        INT_FIELD(ig_prepare_options, n_ctx, -1, INT_MIN, IG_CTX_MAX + 1, INT_MAX),
        INT_FIELD(ig_prepare_options, rank, -1, INT_MIN),
    };
    static const int32_t ids[1] = {0};
    ig_prepare_options o = ig_prepare_defaults();
    o.ids = ids;
    refuse_all(fields, IG_COUNT(fields), &o, sizeof o, take_prepare);
}

static ig_status take_sampler(const void *options, ig_error *err) {
    ig_sampler *s = NULL;
    ig_status status = ig_sampler_open(&s, model, options, err);
    assert_null(s);
    return status;
}

static void samplers(void **state) {
    (void)state;
#define SAMPLER ig_sampler_options
    static const field fields[] = {
        FLOAT_FIELD(SAMPLER, temperature, -1, -INFINITY),
        FLOAT_FIELD(SAMPLER, top_p, -0.5, 1.01),
        FLOAT_FIELD(SAMPLER, min_p, -0.5, 1.01),
        FLOAT_FIELD(SAMPLER, typical_p, -0.5, 1.01),
        FLOAT_FIELD(SAMPLER, top_n_sigma, -1.5, -INFINITY),
        FLOAT_FIELD(SAMPLER, xtc_probability, -0.5, 1.01),
        FLOAT_FIELD(SAMPLER, xtc_threshold, -0.5, 1.01),
        FLOAT_FIELD(SAMPLER, repeat_penalty, -1, -INFINITY),
        FLOAT_FIELD(SAMPLER, presence_penalty, -1e4, 1e4),
        FLOAT_FIELD(SAMPLER, frequency_penalty, -1e4, 1e4),
        FLOAT_FIELD(SAMPLER, dry_multiplier, -1, 1e4),
        FLOAT_FIELD(SAMPLER, dry_base, 0.9, 1e4),
        FLOAT_FIELD(SAMPLER, dynatemp_range, -1, -INFINITY),
        FLOAT_FIELD(SAMPLER, dynatemp_exponent, -1, 1e4),
        INT_FIELD(SAMPLER, dry_allowed_length, 0, INT_MIN),
        INT_FIELD(SAMPLER, dry_last_n, -2, INT_MIN),
        INT_FIELD(SAMPLER, top_k, -1, INT_MIN),
        INT_FIELD(SAMPLER, repeat_last_n, -2, INT_MIN),
    };
    ig_error err = {0};
    ig_sampler_options o = ig_sampler_defaults();
    refuse_all(fields, IG_COUNT(fields), &o, sizeof o, take_sampler);
    float *const above_0[] = {&o.top_p, &o.typical_p, &o.repeat_penalty};
    for (size_t i = 0; i < IG_COUNT(above_0); i++) {
        float good = *above_0[i];
        *above_0[i] = 0;
        assert_int_equal(take_sampler(&o, &err), IG_E_ARG);
        *above_0[i] = good;
    }
}

static void breakers(void **state) {
    (void)state;
    static char long_one[IG_DRY_BREAKER_MAX + 2];
    memset(long_one, 'x', sizeof long_one - 1);
    const char *const bad[] = {"", NULL, long_one};
    ig_error err = {0};
    ig_sampler_options o = ig_sampler_defaults();
    o.n_dry_breakers = 1;
    assert_int_equal(take_sampler(&o, &err), IG_E_ARG);
    for (size_t i = 0; i < IG_COUNT(bad); i++) {
        o.dry_breakers = bad + i;
        assert_int_equal(take_sampler(&o, &err), IG_E_ARG);
    }
    o.dry_breakers = bad + 2;
    long_one[IG_DRY_BREAKER_MAX] = 0;
    ig_sampler *s;
    expect_ok(ig_sampler_open(&s, model, &o, &err), &err);
    ig_sampler_close(s);
}

static void biases(void **state) {
    (void)state;
    const ig_logit_bias bad[] = {{-1, 1}, {N_VOCAB, 1}, {INT_MAX, 1}, {INT_MIN, 1}, {0, NAN}, {0, INFINITY}};
    ig_error err = {0};
    ig_sampler_options o = ig_sampler_defaults();
    o.n_logit_bias = 1;
    assert_int_equal(take_sampler(&o, &err), IG_E_ARG);
    assert_non_null(strstr(err.text, "n_logit_bias"));
    for (size_t i = 0; i < IG_COUNT(bad); i++) {
        o.logit_bias = &bad[i];
        assert_int_equal(take_sampler(&o, &err), IG_E_ARG);
        assert_non_null(strstr(err.text, "bias"));
    }
}

static void generation(void **state) {
    (void)state;
    ig_error err = {0};
    ig_generate_options o = ig_generate_defaults();
    int32_t id = 1;
    ig_sampler *sampler;
    ig_session *s = open_session(NULL);
    expect_ok(ig_sampler_open(&sampler, model, NULL, &err), &err);
    put(s, &id, 1);
    o.n_predict = -2;
    assert_int_equal(ig_generate(NULL, s, sampler, &o, &err), IG_E_ARG);
    assert_non_null(strstr(err.text, "n_predict"));
    o.n_predict = 2;
    expect_ok(ig_generate(NULL, s, sampler, &o, &err), &err);
    ig_sampler_close(sampler);
    ig_session_close(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contexts),       cmocka_unit_test(session_numbers), cmocka_unit_test(cache_numbers),
        cmocka_unit_test(ends_of_ranges), cmocka_unit_test(preparation),     cmocka_unit_test(samplers),
        cmocka_unit_test(breakers),       cmocka_unit_test(biases),          cmocka_unit_test(generation),
    };
    return cmocka_run_group_tests(tests, open_model, close_tiny);
}
