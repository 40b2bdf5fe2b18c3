/* SPDX-License-Identifier: Apache-2.0
 *
 * Every call of the public headers with each of its pointers missing, and with numbers that name nothing: it answers,
 * by IG_E_ARG or by the harmless value that the header promises, and goes on. The last test looks for every call of the
 * header in this file, so that a new one cannot be left out.
 */
#define _GNU_SOURCE
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "golden/tiny_session.h"
#include "unit/temp_dir.h"
#include "unit/tiny_gguf.h"
#include "infinigen_requests.h"
#include "infinigen_tools.h"

enum { N_IDS = 100 };

static ig_model *vocabulary; /* a tokenizer with a chat template, no weights */
static ig_model *six_tokens; /* a GGUF file of another, tiny vocabulary */
static ig_session *session;
static ig_sampler *sampler;
static int32_t ids[N_IDS];
static ig_error error;

#define OK(call)                                         \
    do {                                                 \
        if ((call) != IG_OK) fail_msg("%s", error.text); \
    } while (0)

/* It is refused, with a line that says why, and as well if nobody wants the line: ERR stands for that argument. */
#define REFUSED(call)                             \
    do {                                          \
        ig_error *ERR = &error;                   \
        error = (ig_error){0};                    \
        assert_int_equal((call), IG_E_ARG);       \
        assert_int_equal(error.status, IG_E_ARG); \
        assert_int_not_equal(error.text[0], 0);   \
        ERR = NULL;                               \
        assert_int_equal((call), IG_E_ARG);       \
    } while (0)

static void open_vocabulary(void) {
    static const char jinja[] = "<|im_start|>user<|im_end|>";
    temp_dir dir = temp_dir_open();
    char path[512], *tokenizer = realpath("tests/data/tokenizers/smollm/tokenizer.json", NULL);
    ig_model_options o = ig_model_defaults();
    o.tokenizer_only = true;
    temp_dir_path(&dir, "tokenizer.json", path, sizeof path);
    temp_dir_write(&dir, "chat_template.jinja", jinja, strlen(jinja));
    assert_non_null(tokenizer);
    assert_int_equal(symlink(tokenizer, path), 0);
    OK(ig_model_open(&vocabulary, ctx, dir.path, &o, &error));
    temp_dir_close(&dir);
    free(tokenizer);
}

static void open_six_tokens(void) {
    temp_dir dir = temp_dir_open();
    char path[512];
    tiny t = tiny_valid();
    tiny_u32(&t, "llama.attention.head_count", 1); /* of 8 numbers, a width that there are kernels for */
    size_t n;
    uint8_t *bytes = tiny_write(&t, &n);
    temp_dir_write(&dir, "tiny.gguf", bytes, n);
    temp_dir_path(&dir, "tiny.gguf", path, sizeof path);
    OK(ig_model_open(&six_tokens, ctx, path, NULL, &error));
    temp_dir_close(&dir);
    free(bytes);
}

static int open_all(void **state) {
    (void)state;
    for (int i = 0; i < N_IDS; i++) ids[i] = (i * 37 + 5) % N_VOCAB;
    open_tiny(TINY_LLAMA, 1);
    open_vocabulary();
    open_six_tokens();
    OK(ig_session_open(&session, model, NULL, &error));
    OK(ig_session_sync(session, ids, 20, &error));
    OK(ig_sampler_open(&sampler, model, NULL, &error));
    return 0;
}

static int close_all(void **state) {
    ig_sampler_close(sampler);
    ig_session_close(session);
    ig_model_close(six_tokens);
    ig_model_close(vocabulary);
    return close_tiny(state);
}

/* ---- context, model --------------------------------------------------------------- */

static void texts_and_defaults(void **state) {
    (void)state;
    assert_string_equal(ig_status_text((ig_status)12345), "unknown status");
    assert_non_null(ig_version());
    assert_int_equal(ig_model_defaults().tokenizer_only, false);
    assert_int_equal(ig_generate_defaults().n_predict, -1);
    assert_null(ig_cache_policy(SIZE_MAX));
    assert_null(ig_cache_policy_find(NULL));
    assert_null(ig_cache_policy_find("no such"));
    assert_ptr_equal(ig_cache_policy_find(ig_cache_policy(0)->name), ig_cache_policy(0));
}

static void contexts(void **state) {
    (void)state;
    ig_context *c;
    ig_context_options o = ig_context_defaults();
    OK(ig_context_open(&c, NULL, NULL));
    ig_context_close(c);
    OK(ig_context_open(&c, &o, NULL));
    ig_context_close(c);
    ig_context_close(NULL);
    REFUSED(ig_context_open(NULL, NULL, ERR));
    assert_int_equal(ig_context_threads(NULL), 0);
    assert_string_equal(ig_context_cpu(NULL), "");
    assert_string_equal(ig_context_device(NULL), "");
    assert_string_equal(ig_context_device(ctx), "cpu");
    double speed = 0;
    REFUSED(ig_context_read_speed(NULL, ctx, ERR));
    REFUSED(ig_context_read_speed(&speed, NULL, ERR));
    OK(ig_context_read_speed(&speed, ctx, NULL));
    assert_true(speed > 1e6);
    ig_device_info d = {.memory_bytes = 0};
    assert_true(ig_device_at(0, &d));
    assert_string_equal(d.device, "cpu");
    assert_false(ig_device_at(0, NULL));
    assert_false(ig_device_at(SIZE_MAX, &d));
    static const char *const no_devices[] = {"", "gpu", "cuda:", "cuda:x", "cuda0", "cuda:-1", "cuda:1000"};
    for (size_t i = 0; i < sizeof no_devices / sizeof *no_devices; i++) {
        o.device = no_devices[i];
        REFUSED(ig_context_open(&c, &o, ERR));
        assert_null(c);
    }
    o.device = "cuda:999"; /* a name, but of no GPU */
    assert_int_equal(ig_context_open(&c, &o, &error), ig_has_cuda() ? IG_E_NOT_FOUND : IG_E_UNSUPPORTED);
}

static void models(void **state) {
    (void)state;
    ig_model *m = model;
    REFUSED(ig_model_open(NULL, ctx, TINY_LLAMA, NULL, ERR));
    REFUSED(ig_model_open(&m, ctx, NULL, NULL, ERR));
    assert_null(m);
    REFUSED(ig_model_open(&m, NULL, TINY_LLAMA, NULL, ERR));
    ig_model_options o = ig_model_defaults();
    o.n_adapters = 1;
    REFUSED(ig_model_open(&m, ctx, TINY_LLAMA, &o, ERR));
    o.adapters = &(ig_adapter){.scale = 1};
    REFUSED(ig_model_open(&m, ctx, TINY_LLAMA, &o, ERR));
    o.adapters = &(ig_adapter){.path = TINY_LLAMA "/adapter", .scale = NAN};
    REFUSED(ig_model_open(&m, ctx, TINY_LLAMA, &o, ERR));
    o.adapters = &(ig_adapter){.path = TINY_LLAMA "/adapter", .scale = 1};
    o.tokenizer_only = true;
    REFUSED(ig_model_open(&m, ctx, TINY_LLAMA, &o, ERR));
    ig_model_close(NULL);
    ig_model_info info;
    memset(&info, 1, sizeof info);
    ig_model_get_info(model, NULL);
    ig_model_get_info(NULL, &info);
    ig_weight_stats weights = {.ram_bytes = 1};
    ig_model_get_weight_stats(model, NULL);
    ig_model_get_weight_stats(NULL, &weights);
    assert_true(weights.ram_bytes == 0);
    assert_int_equal(info.n_layers, 0);
    assert_string_equal(info.path, "");
    assert_true(!info.chat_template && !info.chat_error);
    assert_int_equal(ig_model_identity(NULL), 0);
    assert_true(isnan(ig_model_rank(NULL, NULL)) && isnan(ig_model_rank(model, (const float[1]){0})));
    ig_tensor_info tensor;
    assert_true(ig_model_tensor(model, 0, &tensor));
    assert_false(ig_model_tensor(model, 0, NULL));
    assert_false(ig_model_tensor(NULL, 0, &tensor));
    assert_false(ig_model_tensor(model, SIZE_MAX, &tensor));
}

static void metadata(void **state) {
    (void)state;
    char value[64];
    const char *key;
    assert_true(ig_model_meta(six_tokens, 0, &key, value, sizeof value));
    assert_true(ig_model_meta(six_tokens, 0, NULL, value, sizeof value));
    assert_true(ig_model_meta(six_tokens, 0, &key, NULL, sizeof value));
    assert_true(ig_model_meta(six_tokens, 0, &key, value, 0));
    assert_false(ig_model_meta(six_tokens, SIZE_MAX, &key, value, sizeof value));
    assert_false(ig_model_meta(NULL, 0, &key, value, sizeof value));
    assert_false(ig_model_meta(model, 0, &key, value, sizeof value));
}

/* ---- tokens ------------------------------------------------------------------------ */

static void to_tokens(void **state) {
    (void)state;
    size_t n;
    int32_t out[8];
    OK(ig_tokenize(&n, vocabulary, "text", 4, 0, out, 8, &error));
    OK(ig_tokenize(&n, vocabulary, "text", 4, 0, NULL, 0, &error));
    OK(ig_tokenize(&n, vocabulary, NULL, 0, 0, out, 8, &error));
    REFUSED(ig_tokenize(NULL, vocabulary, "text", 4, 0, out, 8, ERR));
    REFUSED(ig_tokenize(&n, NULL, "text", 4, 0, out, 8, ERR));
    REFUSED(ig_tokenize(&n, vocabulary, NULL, 4, 0, out, 8, ERR));
    REFUSED(ig_tokenize(&n, vocabulary, "text", 4, 0, NULL, 8, ERR));
    assert_int_equal(ig_tokenize(&n, model, "text", 4, 0, out, 8, &error), IG_E_NOT_FOUND);
}

static void to_text(void **state) {
    (void)state;
    const int32_t wild[] = {-1, INT_MIN, INT_MAX, 1 << 24};
    size_t n;
    int32_t id;
    char text[8];
    OK(ig_tokenize(&n, vocabulary, "a", 1, 0, &id, 1, &error));
    assert_int_equal(ig_detokenize(vocabulary, &id, 1, false, text, sizeof text), 1);
    assert_int_equal(ig_detokenize(vocabulary, &id, 1, false, NULL, 0), 1);
    assert_int_equal(ig_detokenize(vocabulary, &id, 1, false, NULL, sizeof text), 1);
    assert_int_equal(ig_detokenize(vocabulary, NULL, 1, false, text, sizeof text), 0);
    assert_int_equal(ig_detokenize(NULL, &id, 1, false, text, sizeof text), 0);
    assert_int_equal(ig_detokenize(model, &id, 1, false, text, sizeof text), 0);
    assert_int_equal(ig_detokenize(vocabulary, wild, 4, true, text, sizeof text), 0);
    for (size_t i = 0; i < IG_COUNT(wild); i++) assert_false(ig_token_is_end(vocabulary, wild[i]));
    assert_false(ig_token_is_end(NULL, id));
    assert_false(ig_token_adds_bos(NULL));
    assert_int_equal(ig_token_bos(NULL), -1);
    assert_int_equal(ig_token_eos(NULL), -1);
    assert_int_equal(ig_token_bos(model), -1);
}

static void streams(void **state) {
    (void)state;
    const int wild[] = {-1, INT_MIN, 9, INT_MAX};
    size_t n;
    int32_t id, euro[4];
    char text[IG_TOKEN_BYTES_MAX];
    ig_detok_stream st = {0};
    OK(ig_tokenize(&n, vocabulary, "a", 1, 0, &id, 1, &error));
    assert_int_equal(ig_detok_push(&st, vocabulary, id, false, text, sizeof text), 1);
    assert_int_equal(ig_detok_push(NULL, vocabulary, id, false, text, sizeof text), 0);
    assert_int_equal(ig_detok_push(&st, NULL, id, false, text, sizeof text), 0);
    assert_int_equal(ig_detok_push(&st, vocabulary, id, false, NULL, sizeof text), 0);
    assert_int_equal(ig_detok_push(&st, vocabulary, -5, false, text, sizeof text), 0);
    assert_int_equal(ig_detok_push(&st, vocabulary, INT_MAX, true, text, sizeof text), 0);
    for (size_t i = 0; i < IG_COUNT(wild); i++) {
        st.n_pending = wild[i];
        assert_int_equal(ig_detok_push(&st, vocabulary, id, false, text, sizeof text), 1);
        st.n_pending = wild[i];
        assert_int_equal(ig_detok_flush(&st, text, sizeof text), 0);
    }
    st = (ig_detok_stream){.pending = "\xe2\x82", .n_pending = 2};
    assert_int_equal(ig_detok_flush(NULL, text, sizeof text), 0);
    assert_int_equal(ig_detok_flush(&st, NULL, sizeof text), 0);
    assert_int_equal(ig_detok_flush(&st, text, 2), 0);
    assert_int_equal(ig_detok_flush(&st, text, 3), 3);
    /* What is said to be written is. */
    OK(ig_tokenize(&n, vocabulary, "\xe2\x82\xac", 3, 0, euro, 4, &error));
    for (size_t cap = 0; cap < 4; cap++) {
        size_t written = 0;
        st = (ig_detok_stream){.started = true};
        memset(text, '?', sizeof text);
        for (size_t i = 0; i < n; i++) written += ig_detok_push(&st, vocabulary, euro[i], false, text, cap);
        assert_int_equal(written, cap < 3 ? 0 : 3);
        assert_int_equal(text[0] == '?', cap < 3);
    }
}

static void chats(void **state) {
    (void)state;
    ig_chat_message m[2] = {{"user", "a"}, {"assistant", "b"}};
    size_t n;
    char text[256];
    OK(ig_chat_prompt(&n, vocabulary, m, 2, true, text, sizeof text, &error));
    OK(ig_chat_prompt(&n, vocabulary, m, 2, true, NULL, 0, &error));
    REFUSED(ig_chat_prompt(NULL, vocabulary, m, 2, true, text, sizeof text, ERR));
    REFUSED(ig_chat_prompt(&n, NULL, m, 2, true, text, sizeof text, ERR));
    REFUSED(ig_chat_prompt(&n, vocabulary, NULL, 2, true, text, sizeof text, ERR));
    REFUSED(ig_chat_prompt(&n, vocabulary, m, 0, true, text, sizeof text, ERR));
    REFUSED(ig_chat_prompt(&n, vocabulary, m, 2, true, NULL, sizeof text, ERR));
    m[1].content = NULL;
    REFUSED(ig_chat_prompt(&n, vocabulary, m, 2, true, text, sizeof text, ERR));
    static const char talk[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}";
    OK(ig_chat_prompt_json(&n, vocabulary, talk, sizeof talk - 1, text, sizeof text, &error));
    REFUSED(ig_chat_prompt_json(NULL, vocabulary, talk, sizeof talk - 1, text, sizeof text, ERR));
    REFUSED(ig_chat_prompt_json(&n, NULL, talk, sizeof talk - 1, text, sizeof text, ERR));
    REFUSED(ig_chat_prompt_json(&n, vocabulary, NULL, 0, text, sizeof text, ERR));
    REFUSED(ig_chat_prompt_json(&n, vocabulary, "[]", 2, text, sizeof text, ERR));
    REFUSED(ig_chat_prompt_json(&n, vocabulary, talk, sizeof talk - 1, NULL, sizeof text, ERR));
    m[1] = (ig_chat_message){NULL, "b"};
    REFUSED(ig_chat_prompt(&n, vocabulary, m, 2, true, text, sizeof text, ERR));
}

/* ---- sessions ---------------------------------------------------------------------- */

static void plans(void **state) {
    (void)state;
    ig_cache_plan_info plan;
    ig_session_options o = ig_session_defaults();
    OK(ig_cache_plan(&plan, model, NULL, &error));
    REFUSED(ig_cache_plan(NULL, model, NULL, ERR));
    REFUSED(ig_cache_plan(&plan, NULL, NULL, ERR));
    REFUSED(ig_cache_plan(&plan, vocabulary, NULL, ERR));
    o.cache.policy = "indexer"; /* the model has none */
    REFUSED(ig_cache_plan(&plan, model, &o, ERR));
    o.cache.policy = "none";
    REFUSED(ig_cache_plan(&plan, model, &o, ERR));
    o.cache = ig_cache_defaults();
    o.cache.memory.disk_bytes = 1 << 20; /* and no path */
    REFUSED(ig_cache_plan(&plan, model, &o, ERR));
}

static void preparation(void **state) {
    (void)state;
    temp_dir dir = temp_dir_open();
    char path[512];
    temp_dir_path(&dir, "sketch", path, sizeof path);
    ig_sketch_info info;
    ig_prepare_options o = ig_prepare_defaults();
    o.ids = ids;
    o.n_ids = N_IDS;
    o.n_ctx = 128;
    OK(ig_prepare(NULL, model, path, &o, &error));
    OK(ig_sketch_get_info(&info, path, &error));
    REFUSED(ig_sketch_get_info(NULL, path, ERR));
    REFUSED(ig_sketch_get_info(&info, NULL, ERR));
    REFUSED(ig_prepare(&info, NULL, path, &o, ERR));
    REFUSED(ig_prepare(&info, model, NULL, &o, ERR));
    REFUSED(ig_prepare(&info, model, path, NULL, ERR)); /* the built-in text, and no tokenizer */
    o.ids = NULL;
    REFUSED(ig_prepare(&info, model, path, &o, ERR));
    temp_dir_close(&dir);
}

static bool go_on(void *user, const ig_layer_activations *layer) {
    (void)user;
    return layer->heads == NULL;
}

static void activations(void **state) {
    (void)state;
    OK(ig_measure_activations(model, ids, N_IDS, go_on, NULL, &error));
    REFUSED(ig_measure_activations(NULL, ids, N_IDS, go_on, NULL, ERR));
    REFUSED(ig_measure_activations(vocabulary, ids, N_IDS, go_on, NULL, ERR));
    REFUSED(ig_measure_activations(model, NULL, N_IDS, go_on, NULL, ERR));
    REFUSED(ig_measure_activations(model, ids, N_IDS, NULL, NULL, ERR));
    REFUSED(ig_measure_activations(model, ids, 63, go_on, NULL, ERR)); /* twice the head dimension is needed */
    REFUSED(ig_measure_activations(model, ids, -1, go_on, NULL, ERR));
    REFUSED(ig_measure_activations(model, ids, IG_BATCH_MAX + 1, go_on, NULL, ERR));
    int32_t last = ids[N_IDS - 1];
    ids[N_IDS - 1] = -1;
    REFUSED(ig_measure_activations(model, ids, N_IDS, go_on, NULL, ERR));
    ids[N_IDS - 1] = last;
}

static void sessions(void **state) {
    (void)state;
    ig_session *s = session;
    const int32_t *held = ids;
    ig_cache_options cache = ig_cache_defaults();
    REFUSED(ig_session_open(NULL, model, NULL, ERR));
    REFUSED(ig_session_open(&s, NULL, NULL, ERR));
    assert_null(s);
    REFUSED(ig_session_open(&s, vocabulary, NULL, ERR));
    ig_session_close(NULL);
    assert_int_equal(ig_session_ctx(NULL), 0);
    assert_int_equal(ig_session_tokens(NULL, &held), 0);
    assert_null(held);
    assert_int_equal(ig_session_tokens(session, NULL), 20);
    assert_null(ig_session_logits(NULL));
    assert_true(isinf(ig_log_sum(NULL, 3)) && isinf(ig_log_sum(&(float){1}, 0)));
    REFUSED(ig_session_cut(NULL, 0, ERR));
    REFUSED(ig_session_cut(session, -1, ERR));
    REFUSED(ig_session_set_cache(NULL, &cache, ERR));
    REFUSED(ig_session_set_cache(session, NULL, ERR));
    ig_session_stats st;
    memset(&st, 1, sizeof st);
    ig_session_get_stats(session, NULL);
    ig_session_get_stats(NULL, &st);
    assert_int_equal(st.kv_bytes, 0);
    assert_string_equal(st.policy, "");
    const int layers[] = {-1, INT_MIN, INT_MAX, 0};
    for (size_t i = 0; i < IG_COUNT(layers); i++) assert_true(ig_session_audit(session, layers[i]) == -1);
    assert_true(ig_session_audit(NULL, 0) == -1);
}

static bool take_rows(void *user, int first, int n_rows, const float *rows) {
    (void)user;
    return first < 0 || n_rows < 1 || !rows;
}

static void steps(void **state) {
    (void)state;
    ig_session *both[2] = {session, NULL}, *second = open_session(NULL);
    int32_t wild = INT_MIN;
    OK(ig_session_sync_logits(session, ids, 20, NULL, NULL, &error));
    REFUSED(ig_session_sync(NULL, ids, 20, ERR));
    REFUSED(ig_session_sync(session, NULL, 20, ERR));
    REFUSED(ig_session_sync(session, ids, 0, ERR));
    REFUSED(ig_session_sync(session, ids, INT_MIN, ERR));
    REFUSED(ig_session_sync(session, &wild, 1, ERR));
    REFUSED(ig_session_sync_logits(NULL, ids, 20, NULL, NULL, ERR));
    OK(ig_session_sync_states(session, ids, 20, take_rows, NULL, &error));
    REFUSED(ig_session_sync_states(session, ids, 20, NULL, NULL, ERR));
    REFUSED(ig_session_sync_states(NULL, ids, 20, take_rows, NULL, ERR));
    REFUSED(ig_session_sync_states(session, NULL, 20, take_rows, NULL, ERR));
    REFUSED(ig_session_sync_logits(session, NULL, 20, NULL, NULL, ERR));
    REFUSED(ig_session_decode(NULL, ids, 1, ERR));
    REFUSED(ig_session_decode(both, NULL, 1, ERR));
    REFUSED(ig_session_decode(both, ids, 0, ERR));
    REFUSED(ig_session_decode(both, ids, -1, ERR));
    REFUSED(ig_session_decode(both, ids, 2, ERR));
    REFUSED(ig_session_decode(both + 1, ids, 1, ERR));
    REFUSED(ig_session_decode(both, &wild, 1, ERR));
    both[1] = session;
    REFUSED(ig_session_decode(both, ids, 2, ERR));
    assert_int_equal(ig_session_tokens(session, NULL), 20); /* nothing has changed */
    both[1] = second;
    OK(ig_session_decode(both, ids, 2, &error));
    OK(ig_session_cut(session, 20, &error));
    OK(ig_session_sync(session, ids, 20, &error));
    ig_session_close(second);
}

/* A call that is wrong is refused as a whole, and every item says so. */
static void batches(void **state) {
    (void)state;
    ig_session *second = open_session(NULL);
    const ig_batch_item good[2] = {{.session = session, .ids = ids, .n = 1}, {.session = second, .ids = ids, .n = 9}};
    ig_batch_item x[2];
    memcpy(x, good, sizeof x);
    REFUSED(ig_batch_step(NULL, 1, ERR));
    REFUSED(ig_batch_step(NULL, 0, ERR));
    REFUSED(ig_batch_step(x, 0, ERR));
    REFUSED(ig_batch_step(x, 2, ERR)); /* nine tokens are a prompt */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(x[i].status, IG_E_ARG);
        assert_int_equal(x[i].error.status, IG_E_ARG);
        assert_int_not_equal(x[i].error.text[0], 0);
    }
    const int counts[] = {0, -1, INT_MIN};
    for (size_t i = 0; i < IG_COUNT(counts); i++) {
        x[1].n = counts[i];
        x[1].prompt = i & 1;
        REFUSED(ig_batch_step(x, 2, ERR));
    }
    memcpy(x, good, sizeof x);
    x[1].prompt = true;
    x[1].ids = NULL;
    REFUSED(ig_batch_step(x, 2, ERR));
    x[1].ids = ids;
    x[1].session = NULL;
    REFUSED(ig_batch_step(x, 2, ERR));
    x[1].session = session;
    REFUSED(ig_batch_step(x, 2, ERR));
    x[1].session = second;
    x[0].more = 1; /* of what is no prompt */
    REFUSED(ig_batch_step(x, 2, ERR));
    x[0].more = 0;
    x[0].on_states = take_rows; /* likewise */
    REFUSED(ig_batch_step(x, 2, ERR));
    x[0].on_states = NULL;
    x[1].more = -1;
    REFUSED(ig_batch_step(x, 2, ERR));
    x[1].more = INT_MAX;
    REFUSED(ig_batch_step(x, 2, ERR));
    x[1].more = 0;
    x[1].n = INT_MAX;
    assert_int_equal(ig_batch_step(x, 2, &error), IG_E_LIMIT);
    assert_int_equal(ig_session_tokens(session, NULL), 20); /* nothing has changed */
    assert_int_equal(ig_session_tokens(second, NULL), 0);
    x[1].n = 9;
    OK(ig_batch_step(x, 2, &error));
    OK(x[0].status);
    OK(x[1].status);
    OK(ig_session_cut(session, 20, &error));
    OK(ig_session_sync(session, ids, 20, &error));
    ig_session_close(second);
}

static void caches(void **state) {
    (void)state;
    ig_cache *c = (ig_cache *)&error;
    ig_session_options o = ig_session_defaults();
    ig_cache_stats st = {.n_sessions = 7};
    int held = 0;
    int32_t some[20] = {1, 2, 3};
    REFUSED(ig_cache_open(NULL, model, NULL, ERR));
    REFUSED(ig_cache_open(&c, NULL, NULL, ERR));
    assert_null(c);
    REFUSED(ig_cache_commit(NULL, ERR));
    ig_cache_get_stats(NULL, &st);
    assert_int_equal(st.n_sessions, 0);
    ig_cache_get_stats(NULL, NULL);
    ig_cache_close(NULL);
    o.n_ctx = 64;
    OK(ig_cache_open(&c, model, &o, &error));
    OK(ig_cache_commit(c, &error)); /* there is no store: nothing to keep */
    ig_cache_get_stats(c, NULL);
    REFUSED(ig_session_reuse(NULL, session, some, 20, ERR));
    REFUSED(ig_session_reuse(&held, NULL, some, 20, ERR));
    REFUSED(ig_session_reuse(&held, session, NULL, 20, ERR));
    REFUSED(ig_session_reuse(&held, session, some, 0, ERR));
    ig_cache_close(c);
}

static bool see_note(void *user, const ig_cache_note *note) {
    ++*(int *)user;
    return note->n_bytes > 0;
}

static void notes(void **state) {
    (void)state;
    temp_dir dir = temp_dir_open();
    char path[512], long_name[66];
    ig_session_options o = ig_session_defaults();
    ig_cache *c, *storeless;
    void *bytes = &o;
    size_t n = 7;
    int seen = 0;
    memset(long_name, 'a', sizeof long_name);
    long_name[65] = 0;
    temp_dir_path(&dir, "store", path, sizeof path);
    o.n_ctx = 64;
    OK(ig_cache_open(&storeless, model, &o, &error));
    o.cache.memory.store_path = path;
    OK(ig_cache_open(&c, model, &o, &error));
    const char *const names[] = {"", ".hidden", "a/b", "a b", "\xc3\xa4", long_name, NULL};
    for (size_t i = 0; i < IG_COUNT(names); i++) {
        REFUSED(ig_cache_note_put(c, names[i], "x", 1, ERR));
        REFUSED(ig_cache_note_get(&bytes, &n, c, names[i], ERR));
        assert_true(!bytes && n == 0);
        REFUSED(ig_cache_note_remove(c, names[i], ERR));
    }
    ig_cache *none[] = {NULL, storeless};
    for (size_t i = 0; i < IG_COUNT(none); i++) {
        REFUSED(ig_cache_note_put(none[i], "a", "x", 1, ERR));
        REFUSED(ig_cache_note_get(&bytes, &n, none[i], "a", ERR));
        REFUSED(ig_cache_note_remove(none[i], "a", ERR));
        REFUSED(ig_cache_note_list(none[i], see_note, &seen, ERR));
    }
    REFUSED(ig_cache_note_put(c, "a", NULL, 1, ERR));
    OK(ig_cache_note_put(c, "a", NULL, 0, &error));
    REFUSED(ig_cache_note_get(NULL, &n, c, "a", ERR));
    REFUSED(ig_cache_note_get(&bytes, NULL, c, "a", ERR));
    REFUSED(ig_cache_note_list(c, NULL, &seen, ERR));
    OK(ig_cache_note_list(c, see_note, &seen, &error));
    assert_int_equal(seen, 1);
    ig_cache_close(c);
    ig_cache_close(storeless);
    temp_dir_close(&dir);
}

/* ---- stored prefixes ---------------------------------------------------------------- */

static bool see_item(void *user, const ig_stored_item *item) {
    ++*(int *)user;
    return item->n_tokens > 0;
}

static void stored_prefixes(void **state) {
    (void)state;
    temp_dir dir = temp_dir_open();
    ig_stored *s = (ig_stored *)&dir, *none = NULL;
    ig_stored_info info = {1, 1, 1};
    ig_stored_health health = {.n_damaged = 1};
    ig_stored_freed freed = {1, 1, 1};
    int n = 0;
    REFUSED(ig_stored_open(NULL, dir.path, false, ERR));
    REFUSED(ig_stored_open(&s, NULL, false, ERR));
    assert_null(s);
    REFUSED(ig_stored_open(&s, "", true, ERR));
    assert_int_equal(ig_stored_open(&s, dir.path, true, &error), IG_E_NOT_FOUND);
    temp_dir_write(&dir, "kv-0000000000000001.igkv", "", 0); /* nothing that could be used */
    assert_int_equal(ig_stored_open(&s, dir.path, false, NULL), IG_E_NOT_FOUND);
    ig_stored_close(NULL);
    ig_stored_get_info(NULL, &info);
    assert_int_equal(info.bytes + info.n_pieces, 0);
    ig_stored_get_info(NULL, NULL);
    REFUSED(ig_stored_list(none, see_item, &n, ERR));
    REFUSED(ig_stored_verify(&health, none, NULL, NULL, NULL, ERR));
    assert_int_equal(health.n_damaged, 0);
    REFUSED(ig_stored_gc(&freed, none, 0, ERR));
    assert_int_equal(freed.n_pieces, 0);
    REFUSED(ig_stored_remove(&freed, none, IG_STORED_ALL, NULL, ERR));
    temp_dir_close(&dir);
}

/* ---- sampling, generation ----------------------------------------------------------- */

static void samplers(void **state) {
    (void)state;
    ig_sampler *other = sampler;
    ig_session *empty = open_session(NULL);
    REFUSED(ig_sampler_open(NULL, model, NULL, ERR));
    REFUSED(ig_sampler_open(&other, NULL, NULL, ERR));
    assert_null(other);
    REFUSED(ig_sampler_open(&other, vocabulary, NULL, ERR));
    ig_sampler_close(NULL);
    ig_sampler_restart(NULL);
    ig_sampler_restart(sampler);
    REFUSED(ig_grammar_check(NULL, ERR));
    OK(ig_grammar_check("root ::= \"a\"", &error));
    char *gbnf;
    REFUSED(ig_schema_to_gbnf(NULL, "{}", 2, ERR));
    REFUSED(ig_schema_to_gbnf(&gbnf, NULL, 2, ERR));
    REFUSED(ig_regex_to_gbnf(NULL, "a", ERR));
    REFUSED(ig_regex_to_gbnf(&gbnf, NULL, ERR));
    assert_true(ig_sampler_next(sampler, session) >= 0);
    assert_int_equal(ig_sampler_next(NULL, session), -1);
    assert_int_equal(ig_sampler_next(sampler, NULL), -1);
    assert_int_equal(ig_sampler_next(sampler, empty), -1);
    REFUSED(ig_generate(NULL, empty, sampler, NULL, ERR));
    ig_session_close(empty);
}

static void generation(void **state) {
    (void)state;
    const char *stops[] = {"x", NULL};
    ig_generate_options o = ig_generate_defaults();
    ig_generate_result result;
    o.n_predict = 0;
    o.n_stops = 1;
    o.stops = stops;
    OK(ig_generate(NULL, session, sampler, &o, &error));
    REFUSED(ig_generate(&result, NULL, sampler, &o, ERR));
    REFUSED(ig_generate(&result, session, NULL, &o, ERR));
    o.n_stops = 2;
    REFUSED(ig_generate(&result, session, sampler, &o, ERR));
    o.stops = NULL;
    REFUSED(ig_generate(&result, session, sampler, &o, ERR));
    o.n_stops = 0;
    o.n_stop_ids = 1;
    REFUSED(ig_generate(&result, session, sampler, &o, ERR));
    o.n_stop_ids = 0;
    o.n_expected = 1;
    REFUSED(ig_generate(&result, session, sampler, &o, ERR));
    o.expected = (const int32_t[]){-1};
    REFUSED(ig_generate(&result, session, sampler, &o, ERR));
    o.expected = (const int32_t[]){N_VOCAB};
    REFUSED(ig_generate(&result, session, sampler, &o, ERR));
    o.expected = NULL;
    o.n_expected = 0;
    o.n_least = -1;
    REFUSED(ig_generate(&result, session, sampler, &o, ERR));
}

/* Its tokens are not what the sampler has room for. */
static void samplers_of_another_model(void **state) {
    (void)state;
    const int32_t few[] = {1, 2, 3};
    ig_sampler *other, *mine;
    ig_session *s;
    ig_sampler_options o = ig_sampler_defaults();
    ig_model_get_sampling(NULL, &o);
    ig_model_get_sampling(model, NULL);
    ig_model_get_sampling(model, &o); /* whose files say nothing of it */
    assert_int_equal(o.top_k, ig_sampler_defaults().top_k);
    o.repeat_penalty = 2;
    OK(ig_sampler_open(&other, six_tokens, &o, &error));
    OK(ig_sampler_open(&mine, model, &o, &error));
    OK(ig_session_open(&s, six_tokens, NULL, &error));
    OK(ig_session_sync(s, few, 3, &error));
    assert_in_range(ig_sampler_next(other, s), 0, TINY_VOCAB - 1);
    assert_int_equal(ig_sampler_next(other, session), -1);
    assert_int_equal(ig_sampler_next(mine, s), -1);
    REFUSED(ig_generate(NULL, session, other, NULL, ERR));
    REFUSED(ig_generate(NULL, s, mine, NULL, ERR));
    ig_session *mixed[2] = {session, s};
    REFUSED(ig_session_decode(mixed, few, 2, ERR));
    ig_batch_item items[2] = {{.session = session, .ids = few, .n = 1}, {.session = s, .ids = few, .n = 1}};
    REFUSED(ig_batch_step(items, 2, ERR));
    ig_session_close(s);
    ig_sampler_close(mine);
    ig_sampler_close(other);
}

/* ---- many requests ----------------------------------------------------------------------- */

static void scheduling(void **state) {
    (void)state;
    const int32_t few[] = {1, 2, 3};
    ig_scheduler_options o = ig_scheduler_defaults(), wrong = o;
    ig_request_options ask = ig_request_defaults(), none = ask;
    ig_scheduler *c = NULL;
    ig_scheduler_stats st;
    ig_scheduler_place place;
    ig_request *r = NULL;
    size_t refused;
    o.session.n_ctx = 64;
    ask.ids = few;
    ask.n_ids = 3;
    ask.generate.n_predict = 1;
    REFUSED(ig_scheduler_open(NULL, model, &o, ERR));
    REFUSED(ig_scheduler_open(&c, NULL, &o, ERR));
    wrong.session.n_batch = 0;
    REFUSED(ig_scheduler_open(&c, model, &wrong, ERR));
    wrong.session.cache.memory.n_sessions = -1;
    REFUSED(ig_scheduler_open(&c, model, &wrong, ERR));
    OK(ig_scheduler_open(&c, model, &o, &error));
    assert_int_equal(ig_scheduler_ctx(c), 64);
    assert_int_equal(ig_scheduler_ctx(NULL), 0);
    REFUSED(ig_scheduler_submit(NULL, &refused, c, &ask, 1, ERR));
    REFUSED(ig_scheduler_submit(&r, &refused, NULL, &ask, 1, ERR));
    REFUSED(ig_scheduler_submit(&r, &refused, c, NULL, 1, ERR));
    REFUSED(ig_scheduler_submit(&r, &refused, c, &ask, 0, ERR));
    REFUSED(ig_scheduler_submit(&r, NULL, c, &none, 1, ERR));
    assert_null(r);
    OK(ig_scheduler_submit(&r, NULL, c, &ask, 1, &error));
    ig_request_cancel(r);
    ig_request_cancel(NULL);
    ig_request_close(r);
    ig_request_close(NULL);
    ig_scheduler_get_stats(NULL, &st);
    assert_int_equal(st.n_places, 0);
    ig_scheduler_get_stats(c, NULL);
    assert_false(ig_scheduler_get_place(NULL, 0, &place));
    assert_false(ig_scheduler_get_place(c, 0, NULL));
    assert_false(ig_scheduler_get_place(c, -1, &place));
    assert_false(ig_scheduler_get_place(c, 4, &place));
    assert_true(ig_scheduler_get_place(c, 3, &place));
    ig_scheduler_close(c);
    ig_scheduler_close(NULL);
}

/* ---- all of them ---------------------------------------------------------------------- */

static char *text_of(const char *path) {
    enum { MOST = 1 << 17 };
    char *text = calloc(1, MOST);
    FILE *f = fopen(path, "r");
    assert_non_null(text);
    assert_non_null(f);
    assert_in_range(fread(text, 1, MOST, f), 1, MOST - 1);
    fclose(f);
    return text;
}

static int count_tested(const char *path, const char *tests) {
    static const char mark[] = "\nIG_API ";
    char *header = text_of(path), call[128];
    int n_calls = 0;
    for (char *at = header; (at = strstr(at, mark)); n_calls++) {
        char *end = at += strcspn(at, "(");
        while (end[-1] != ' ' && end[-1] != '*') end--;
        snprintf(call, sizeof call, "%.*s(", (int)(at - end), end);
        if (!strstr(tests, call)) fail_msg("%s) is not tested", call);
    }
    free(header);
    return n_calls;
}

static void no_call_is_left_out(void **state) {
    (void)state;
    char *tests = text_of("tests/golden/test_arguments.c");
    assert_true(count_tested("include/infinigen.h", tests) > 40);
    assert_true(count_tested("include/infinigen_requests.h", tests) > 8);
    assert_true(count_tested("include/infinigen_tools.h", tests) > 8);
    free(tests);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_and_defaults),
        cmocka_unit_test(contexts),
        cmocka_unit_test(models),
        cmocka_unit_test(metadata),
        cmocka_unit_test(to_tokens),
        cmocka_unit_test(to_text),
        cmocka_unit_test(streams),
        cmocka_unit_test(chats),
        cmocka_unit_test(plans),
        cmocka_unit_test(preparation),
        cmocka_unit_test(activations),
        cmocka_unit_test(sessions),
        cmocka_unit_test(steps),
        cmocka_unit_test(batches),
        cmocka_unit_test(caches),
        cmocka_unit_test(notes),
        cmocka_unit_test(stored_prefixes),
        cmocka_unit_test(samplers),
        cmocka_unit_test(generation),
        cmocka_unit_test(samplers_of_another_model),
        cmocka_unit_test(scheduling),
        cmocka_unit_test(no_call_is_left_out),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
