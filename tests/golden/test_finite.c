/* SPDX-License-Identifier: Apache-2.0
 *
 * Models with a number that is not finite, or so large that others overflow: no logits come of them, the error says
 * where it began, and a session holds what it held before.
 */
#define _GNU_SOURCE
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "format/safetensors.h"
#include "golden/tiny_session.h"
#include "golden/tiny_copy.h"

enum { N_PROMPT = 40, N_CTX = 96, BAD = 77 /* a token that the prompt has not, or at its end */ };

static const char *const models[] = {"llama31",     "mistral",    "qwen3",    "opt",     "opt-350m-like",
                                     "qwen3.5-moe", "granite4-h", "lfm2",     "glm-dsa", "minimax-m3",
                                     "kimi-linear", "llama4",     "falcon-h1"};
static const char *const policies[] = {"infinigen", "full",      "infinigen-osdi24", "quest", "h2o",
                                       "snapkv",    "pyramidkv", "window",           "oracle"};
/* Whether the policy drops entries: a session is empty after a step that failed. */
static bool drops(const char *policy) { return strcmp(policy, "h2o") == 0 || strstr(policy, "kv"); }

static const char *const types[] = {"f16", "q8", "q4", "q1"};

static int32_t ids[N_CTX];
static int n_rows_seen; /* by the sink */

static bool has(const char *text, const char *part) { return strstr(text, part) != NULL; }

/* ---- broken models --------------------------------------------------------------------------- */

/* A tiny model whose weights are changed one at a time. */
typedef struct patient {
    tiny_copy copy;
    ig_safetensors *st; /* of the copy in memory */
} patient;

static patient admit(const char *name) {
    patient p = {.copy = copy_tiny(name)};
    ig_error err = {0};
    expect_ok(ig_safetensors_open_memory(&p.st, p.copy.bytes, p.copy.n, name, &err), &err);
    return p;
}

static void discharge(patient *p) {
    close_tiny(NULL);
    ig_safetensors_close(p->st);
    drop_tiny_copy(&p->copy);
}

/* Opens the model with element `at` of a tensor changed. False if that is refused, as it is where a tensor is small
 * enough to be looked through. */
static bool open_with(const patient *p, const ig_tensor *t, size_t at, float value, ig_cpu_level level) {
    ig_error err = {0};
    ig_context_options o = ig_context_defaults();
    uint16_t *element = (uint16_t *)(uintptr_t)t->data + at, was = *element;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    /* 16-bit floats reach their ends sooner. */
    *element = t->type == IG_TYPE_BF16 ? (uint16_t)(bits >> 16)
               : isnan(value)          ? 0x7e00
               : isinf(value)          ? 0x7c00
                                       : 0x7bff;
    temp_dir_write(&p->copy.dir, "model.safetensors", p->copy.bytes, p->copy.n);
    *element = was;
    close_tiny(NULL);
    o.n_threads = 2;
    o.cpu_level = level;
    expect_ok(ig_context_open(&ctx, &o, &err), &err);
    ig_status status = ig_model_open(&model, ctx, p->copy.dir.path, NULL, &err);
    if (status == IG_E_FORMAT && !isfinite(value) && has(err.text, "not finite") &&
        (t->n_dims == 1 || has(t->name, "conv1d") || has(t->name, "conv.conv") || has(t->name, "A_log")))
        return false;
    expect_ok(status, &err);
    return true;
}

/* What the error must say of a matrix that has NaN. */
static void expected_place(char *out, size_t cap, const ig_tensor *t) {
    static const struct {
        const char *part, *place;
    } places[] = {
        {"embed_tokens", "in the embedding of token 77"},
        {"project_in", "in the embedding of token"},
        {"embed_positions", "in the embedding of token 77"},
        {"q_proj", "in the queries of layer"},
        {"q_a_proj", "in the queries of layer"},
        {"q_b_proj", "in the queries of layer"},
        {"kv_a_proj", "in the keys of layer"},
        {"kv_b_proj", "in the queries of layer"}, /* a row that makes keys is multiplied into them */
        {"indexer.wq_b", "in the indexer's queries of layer"},
        {"indexer.weights_proj", "in the indexer's weights of layer"},
        {"indexer.wk", "in the indexer's keys of layer"},
        {"k_proj", "in the keys of layer"},
        {"index_q_proj", "in the indexer's queries of layer"},
        {"index_k_proj", "in the indexer's keys of layer"},
        {"v_proj", "in the values of layer"},
        {"o_proj", "after the attention of layer"},
        {"out_proj", "after the attention of layer"},
        {"linear_attn", "after the recurrence of layer"},
        {"mamba", "after the recurrence of layer"},
        {".conv.", "after the recurrence of layer"},
        {"mlp", "after the feed-forward part of layer"},
        {"moe", "after the feed-forward part of layer"},
        {"feed_forward", "after the feed-forward part of layer"},
        {"fc", "after the feed-forward part of layer"},
        {"lm_head", "in the logit of token"},
        {"project_out", "in the logit of token"},
    };
    const char *layer = strstr(t->name, "layers."), *place = "";
    for (size_t i = 0; i < IG_COUNT(places); i++)
        if (has(t->name, places[i].part)) place = places[i].place;
    ig_model_info info;
    ig_model_get_info(model, &info);
    if (has(t->name, "q_proj") && has(info.architecture, "qwen3_5"))
        place = "after the attention of layer"; /* a gate */
    if (layer && has(t->name, "self_attn") && has(info.architecture, "kimi") &&
        atoi(layer + strlen("layers.")) % 2 == 0)
        place = "after the recurrence of layer"; /* every other one */
    if (!*place) fail_msg("%s is not expected", t->name);
    if (layer)
        snprintf(out, cap, "%s %d at position ", place, atoi(layer + strlen("layers.")));
    else
        snprintf(out, cap, "%s", place);
}

/* An element that the prompt uses: of tables, in the row of its last token. */
static size_t used_element(const ig_tensor *t) {
    size_t column = (size_t)t->dims[0] / 3;
    if (has(t->name, "embed_tokens")) return BAD * (size_t)t->dims[0] + column;
    if (has(t->name, "embed_positions")) return (N_PROMPT + 1) * (size_t)t->dims[0] + column;
    return column + (size_t)t->dims[0] * ((size_t)t->dims[1] / 2);
}

static ig_session_options options(size_t i) {
    ig_session_options o = ig_session_defaults();
    o.n_ctx = N_CTX;
    o.n_batch = 16;
    o.cache.policy = policies[i % IG_COUNT(policies)];
    o.cache.memory.type = types[i % IG_COUNT(types)];
    o.cache.n_recent = 4;
    o.cache.n_sinks = 1;
    return o;
}

/* A sink that wants logits that are finite, and not all 0 as after a norm that overflows. */
static bool count_rows(void *user, int first, int n_rows, const float *logits) {
    (void)user;
    for (int r = 0; r < n_rows; r++, logits += N_VOCAB) {
        float most = 0;
        for (int i = 0; i < N_VOCAB; i++) {
            if (!isfinite(logits[i])) fail_msg("a logit of row %d is %g", first + r, (double)logits[i]);
            most = fmaxf(most, fabsf(logits[i]));
        }
        if (most == 0) fail_msg("all logits of row %d are 0", first + r);
    }
    n_rows_seen += n_rows;
    return false;
}

static ig_cpu_level level_of(size_t i) { return i & 1 ? IG_CPU_SCALAR : test_cpu_level(); }

/* Whether a prompt gets there at its end alone: of the last layer keys, values and states only are made before, unless
 * the policy wants to see the prompt. */
static bool is_late(const char *place, const char *policy) {
    ig_model_info info;
    char last[24];
    ig_model_get_info(model, &info);
    snprintf(last, sizeof last, "layer %d at", info.n_layers - 1);
    if (has(place, "token 77") || has(place, "logit")) return true;
    bool is_early = has(place, "keys") || has(place, "values") || has(place, "recurrence") || has(policy, "osdi24");
    return has(place, last) && !is_early;
}

/* ---- prompts --------------------------------------------------------------------------------- */

static void every_tensor_with_nan(void **state) {
    patient p = admit(*state);
    for (size_t i = 0; i < ig_safetensors_n_tensors(p.st); i++) {
        const ig_tensor *t = ig_safetensors_tensor_at(p.st, i);
        ig_error err = {0};
        char place[80];
        bool is_expert = has(t->name, ".experts.") || (t->n_dims == 3 && !has(t->name, "conv"));
        bool is_of_pictures = has(t->name, "vision_tower") || has(t->name, "projector") || has(t->name, "patch_merge");
        if (is_expert) continue; /* perhaps no row of the last layer has chosen it */
        if (is_of_pictures) continue;
        if (!open_with(&p, t, used_element(t), i % 3 ? NAN : INFINITY, level_of(i / 2))) continue;
        ig_session_options o = options(i);
        ig_session *s = open_session(&o);
        expected_place(place, sizeof place, t);
        ig_status status = ig_session_sync(s, ids, N_PROMPT, &err);
        if (status != IG_E_NUMBER || !has(err.text, place) || !has(err.text, "not finite"))
            fail_msg("%s: %d: %s", t->name, (int)status, err.text);
        assert_null(ig_session_logits(s));
        bool late = is_late(place, o.cache.policy) && !drops(o.cache.policy);
        assert_int_equal(ig_session_tokens(s, NULL), late ? 32 : 0); /* the batches before it stay */
        ig_session_close(s);
    }
    discharge(&p);
}

/* Finite weights: either the logits are finite or there are none. */
static void every_tensor_with_a_huge_number(void **state) {
    patient p = admit(*state);
    int n_errors = 0;
    for (size_t i = 0; i < ig_safetensors_n_tensors(p.st); i++) {
        const ig_tensor *t = ig_safetensors_tensor_at(p.st, i);
        ig_error err = {0};
        open_with(&p, t, used_element(t), i % 3 ? 3e38f : -3e38f, level_of(i / 2));
        ig_session_options o = options(i);
        ig_session *s = open_session(&o);
        ig_status status = ig_session_sync_logits(s, ids, N_PROMPT, count_rows, NULL, &err);
        for (int k = 0; k < 4 && !status; k++) {
            status = ig_session_decode(&s, &ids[k], 1, &err);
            if (!status) count_rows(NULL, 0, 1, ig_session_logits(s));
        }
        if (status && status != IG_E_NUMBER) fail_msg("%s: %s", t->name, err.text);
        n_errors += status != IG_OK;
        ig_session_close(s);
    }
    if (!has(*state, "opt") && n_errors < 8) fail_msg("only %d errors", n_errors);
    discharge(&p);
}

/* Finite, but more than 16-bit floats, or packed numbers, hold; queries of which a kernel for prompts makes NaN. */
static void numbers_too_large_for_attention(void **state) {
    static const struct {
        const char *name, *place;
        float large;
    } of[] = {{"model.layers.2.self_attn.k_proj.weight", "keys", 1e9f},
              {"model.layers.2.self_attn.v_proj.weight", "values", 1e9f},
              {"model.layers.2.self_attn.q_proj.weight", "queries", 1e21f}};
    patient p = admit("llama31");
    (void)state;
    for (size_t i = 0; i < 3 * IG_COUNT(of); i++) {
        size_t k = i % IG_COUNT(of);
        const ig_tensor *t = ig_safetensors_tensor(p.st, of[k].name);
        ig_error err = {0};
        open_with(&p, t, used_element(t), of[k].large, test_cpu_level());
        ig_session_options o = options(0);
        o.cache.memory.type = types[i / IG_COUNT(of)];
        ig_session *s = open_session(&o);
        assert_int_equal(ig_session_sync(s, ids, N_PROMPT, &err), IG_E_NUMBER);
        if (!has(err.text, "too large") || !has(err.text, of[k].place)) fail_msg("%s", err.text);
        ig_session_close(s);
    }
    discharge(&p);
}

/* A row of the head that is no input of the prompt. */
static void a_logit_alone(void **state) {
    patient p = admit("llama31");
    const ig_tensor *t = ig_safetensors_tensor(p.st, "model.embed_tokens.weight");
    ig_error err = {0};
    (void)state;
    open_with(&p, t, 300 * (size_t)t->dims[0], NAN, test_cpu_level());
    for (size_t i = 0; i < IG_COUNT(policies); i++) {
        ig_session_options o = options(i);
        ig_session *s = open_session(&o);
        n_rows_seen = 0;
        assert_int_equal(ig_session_sync_logits(s, ids, N_PROMPT, count_rows, NULL, &err), IG_E_NUMBER);
        if (!has(err.text, "nan in the logit of token 300 at position 0")) fail_msg("%s", err.text);
        assert_int_equal(n_rows_seen + ig_session_tokens(s, NULL), 0);
        assert_int_equal(ig_session_sync(s, ids, N_PROMPT, &err), IG_E_NUMBER);
        assert_int_equal(ig_session_tokens(s, NULL), drops(o.cache.policy) ? 0 : 32);
        assert_null(ig_session_logits(s));
        ig_session_close(s);
    }
    discharge(&p);
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Sessions of which one is given the token that breaks it are as if that had never been: the steps that follow give the
 * bits of sessions without it. */
static void a_token_that_breaks_a_step(void **state) {
    enum { N = 3 };
    patient p = admit("mistral");
    const ig_tensor *t = ig_safetensors_tensor(p.st, "model.embed_tokens.weight");
    (void)state;
    open_with(&p, t, used_element(t), NAN, test_cpu_level());
    for (size_t i = 0; i < IG_COUNT(policies) * IG_COUNT(types); i++) {
        ig_session_options o = options(i);
        ig_session *tried[N], *plain[N];
        ig_error err = {0};
        bool forgets = drops(o.cache.policy);
        for (int k = 0; k < N; k++) {
            tried[k] = open_session(&o), plain[k] = open_session(&o);
            put(tried[k], ids + k, N_PROMPT - 1 - k);
            put(plain[k], ids + k, N_PROMPT - 1 - k);
        }
        assert_int_equal(ig_session_decode(tried, (int32_t[]){5, BAD, 6}, N, &err), IG_E_NUMBER);
        if (!has(err.text, "nan in the embedding of token 77 at position 38 of sequence 2 in the batch"))
            fail_msg("%s", err.text);
        for (int k = 0; k < N; k++) {
            assert_int_equal(ig_session_tokens(tried[k], NULL), forgets ? 0 : N_PROMPT - 1 - k);
            assert_true((ig_session_logits(tried[k]) == NULL) == forgets);
            if (forgets) put(tried[k], ids + k, N_PROMPT - 1 - k);
        }
        for (int n = 0; n < 6; n++)
            for (int k = 0; k < N; k++) {
                step(tried[k], 100 + n), step(plain[k], 100 + n);
                same(tried[k], plain[k]);
            }
        for (int k = 0; k < N; k++) ig_session_close(tried[k]), ig_session_close(plain[k]);
    }
    discharge(&p);
}

/* A prompt's batch that fails leaves the ones before it, and another end follows with the bits of a fresh session. */
static void a_token_that_breaks_a_prompt(void **state) {
    patient p = admit("mistral");
    const ig_tensor *t = ig_safetensors_tensor(p.st, "model.embed_tokens.weight");
    int32_t other[N_PROMPT];
    (void)state;
    memcpy(other, ids, sizeof other);
    other[N_PROMPT - 1] = 9;
    open_with(&p, t, used_element(t), NAN, test_cpu_level());
    for (size_t i = 0; i < IG_COUNT(policies) * IG_COUNT(types); i++) {
        ig_session_options o = options(i);
        ig_session *a = open_session(&o), *b = open_session(&o);
        ig_error err = {0};
        assert_int_equal(ig_session_sync(a, ids, N_PROMPT, &err), IG_E_NUMBER);
        if (!has(err.text, "nan in the embedding of token 77 at position 39")) fail_msg("%s", err.text);
        assert_null(ig_session_logits(a));
        assert_int_equal(ig_session_tokens(a, NULL), drops(o.cache.policy) ? 0 : 32);
        put(a, other, N_PROMPT);
        put(b, other, N_PROMPT);
        same(a, b);
        for (int n = 0; n < 4; n++) {
            step(a, 100 + n), step(b, 100 + n);
            same(a, b);
        }
        ig_session_close(a);
        ig_session_close(b);
    }
    discharge(&p);
}

static void fill_ids(void) {
    for (int i = 0; i < N_CTX; i++) ids[i] = (i * 37 + 11) % 250 + 100;
    ids[N_PROMPT - 1] = BAD;
}

int main(void) {
    struct CMUnitTest tests[2 * IG_COUNT(models) + 4];
    size_t n = 0;
    fill_ids();
    for (size_t i = 0; i < IG_COUNT(models); i++) {
        char *name = (char *)(uintptr_t)models[i];
        tests[n++] = (struct CMUnitTest){name, every_tensor_with_nan, NULL, NULL, name};
        tests[n++] = (struct CMUnitTest){name, every_tensor_with_a_huge_number, NULL, NULL, name};
    }
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(numbers_too_large_for_attention);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(a_logit_alone);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(a_token_that_breaks_a_step);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(a_token_that_breaks_a_prompt);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
