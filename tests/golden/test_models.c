/* SPDX-License-Identifier: Apache-2.0
 *
 * One tiny model per architecture feature against the logits that transformers computes from the same weights in
 * float32 (tools/make_golden_models.py). The cache holds 16-bit floats, so every logit must lie within 3e-2 of
 * the golden one (within 0.2 where weights are whole numbers, since products round states to 8 bits there), and greedy
 * tokens must agree wherever the golden margin exceeds twice that. The prompt goes
 * through prefill, the continuation through decoding.
 *
 * Models not kept in the repository are looked for beside it and skipped if absent.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>
#include <jansson.h>

#include "cpu_level.h"
#include "infinigen.h"

#define TOLERANCE 3e-2
#define TOLERANCE_OF_WHOLE_NUMBERS 0.2

static const char *const folders[] = {"tests/golden/models", "../shared/fixtures/models"};

typedef struct golden {
    char folder[256], model[300]; /* the folder, or a file in it */
    int32_t *prompt, *greedy;
    float *logits; /* [n_rows][n_vocab]: after the last n_rows tokens of the prompt */
    json_t *facts;
    int n_prompt, n_greedy, n_vocab, n_rows;
} golden;

static double tolerance_of(const golden *g) {
    static const char *const ends[] = {"-awq", "-gptq", "-int4", "-int8", "-mxfp4", "-nvfp4"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (strstr(g->folder, ends[i])) return TOLERANCE_OF_WHOLE_NUMBERS;
    return TOLERANCE;
}

typedef struct engine {
    ig_context *ctx;
    ig_model *model;
    ig_session *session;
} engine;

static void *read_array(const char *folder, const char *name, int *n_words) {
    char path[512];
    snprintf(path, sizeof path, "%s/golden/%s", folder, name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    long size = ftell(f);
    assert_true(size > 0 && size % 4 == 0);
    rewind(f);
    void *words = malloc((size_t)size);
    assert_non_null(words);
    assert_int_equal(fread(words, 1, (size_t)size, f), size);
    fclose(f);
    *n_words = (int)(size / 4);
    return words;
}

static bool find_model(golden *g, const char *name) {
    struct stat st;
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        snprintf(g->folder, sizeof g->folder, "%s/%s", folders[i], name);
        snprintf(g->model, sizeof g->model, "%s/model.gguf", g->folder);
        if (!stat(g->model, &st)) return true;
        snprintf(g->model, sizeof g->model, "%s", g->folder);
        if (!stat(g->model, &st)) return true;
    }
    return false;
}

static void read_golden(golden *g) {
    char path[512];
    snprintf(path, sizeof path, "%s/golden/golden.json", g->folder);
    g->facts = json_load_file(path, 0, NULL);
    assert_non_null(g->facts);
    g->n_vocab = (int)json_integer_value(json_object_get(g->facts, "vocab"));
    assert_true(g->n_vocab > 0);
    g->prompt = read_array(g->folder, "tokens.i32", &g->n_prompt);
    g->greedy = read_array(g->folder, "greedy.i32", &g->n_greedy);
    int n;
    g->logits = read_array(g->folder, "logits.f32", &n);
    g->n_rows = n / g->n_vocab;
    assert_true(g->n_rows > 0 && g->n_rows <= g->n_prompt);
}

static void free_golden(golden *g) {
    free(g->prompt);
    free(g->greedy);
    free(g->logits);
    json_decref(g->facts);
}

static void expect_ok(ig_status status, const ig_error *err) {
    if (status) fail_msg("%s", err->text);
}

static engine open_engine(const golden *g, const ig_cache_options *cache) {
    engine e = {0};
    ig_error err = {0};
    ig_context_options co = ig_context_defaults();
    co.n_threads = 2;
    co.cpu_level = test_cpu_level();
    co.device = test_device();
    expect_ok(ig_context_open(&e.ctx, &co, &err), &err);
    ig_model_options mo = ig_model_defaults();
    expect_ok(ig_model_open(&e.model, e.ctx, g->model, &mo, &err), &err);
    ig_session_options so = ig_session_defaults();
    so.n_ctx = g->n_prompt + g->n_greedy;
    so.n_batch = 37; /* several steps, the last one short */
    so.cache = *cache;
    expect_ok(ig_session_open(&e.session, e.model, &so, &err), &err);
    return e;
}

static void close_engine(engine *e) {
    ig_session_close(e->session);
    ig_model_close(e->model);
    ig_context_close(e->ctx);
}

typedef struct comparison {
    const golden *g;
    double worst;
    int n_compared;
} comparison;

static bool compare_rows(void *user, int first, int n_rows, const float *logits) {
    comparison *c = user;
    int skipped = c->g->n_prompt - c->g->n_rows;
    for (int r = 0; r < n_rows; r++) {
        int row = first + r - skipped;
        if (row < 0) continue;
        for (int i = 0; i < c->g->n_vocab; i++) {
            double d = fabs((double)logits[(size_t)r * (size_t)c->g->n_vocab + (size_t)i] -
                            (double)c->g->logits[(size_t)row * (size_t)c->g->n_vocab + (size_t)i]);
            if (!(d <= c->worst)) c->worst = d;
        }
        c->n_compared++;
    }
    return false;
}

static int argmax(const float *x, int n) {
    int best = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

/* A step reads all weights but tables of which it takes rows, positions and an embedding that is not the output too,
 * and experts that it does not use. */
static void check_decode_bytes(const ig_model *model) {
    uint64_t tables = 0, embedding = 0, experts = 0;
    bool has_head = false;
    ig_model_info info;
    ig_tensor_info t;
    ig_model_get_info(model, &info);
    for (size_t i = 0; ig_model_tensor(model, i, &t); i++) {
        if (strstr(t.name, "embed_positions.weight") || strstr(t.name, "tokens_per_layer.weight") ||
            !strcmp(t.name, "per_layer_token_embd.weight"))
            tables += t.bytes;
        if (strstr(t.name, "embed_tokens.weight") || strstr(t.name, "embeddings.weight") ||
            strstr(t.name, "embed_in.weight") || !strcmp(t.name, "token_embd.weight"))
            embedding = t.bytes;
        if ((strstr(t.name, ".experts.") && !strstr(t.name, "_scale") && !strstr(t.name, "_bias")) ||
            strstr(t.name, "moe.input_linear") || strstr(t.name, "moe.output_linear") || strstr(t.name, "_exps.weight"))
            experts += t.bytes;
        has_head |=
            strstr(t.name, "lm_head.weight") || strstr(t.name, "embed_out.weight") || !strcmp(t.name, "output.weight");
    }
    assert_true(embedding > 0);
    assert_true((experts > 0) == (info.n_experts > 0));
    if (experts) tables += experts / (uint64_t)info.n_experts * (uint64_t)(info.n_experts - info.n_experts_used);
    assert_true(info.decode_bytes == info.weight_bytes - tables - (has_head ? embedding : 0));
}

/* Then `full` computes something else. */
static bool has_index(const golden *g) {
    return strstr(g->folder, "/deepseek32") || strstr(g->folder, "/glm-dsa") || strstr(g->folder, "/minimax-m3");
}

static void check_model(void **state) {
    golden g = {0};
    if (!find_model(&g, *state)) skip();
    read_golden(&g);
    ig_cache_options cache = ig_cache_defaults();
    if (!has_index(&g)) cache.policy = "full";
    engine e = open_engine(&g, &cache);
    ig_error err = {0};
    check_decode_bytes(e.model);

    comparison c = {.g = &g};
    expect_ok(ig_session_sync_logits(e.session, g.prompt, g.n_prompt, compare_rows, &c, &err), &err);
    assert_int_equal(c.n_compared, g.n_rows);
    print_message("%s: worst logit %.2e off\n", g.folder, c.worst);
    if (!(c.worst <= tolerance_of(&g))) fail_msg("%s: a logit is %g off", g.folder, c.worst);

    json_t *margins = json_object_get(g.facts, "greedy_margin");
    int n_sure = 0;
    for (int i = 0; i < g.n_greedy; i++) {
        int32_t token = argmax(ig_session_logits(e.session), g.n_vocab);
        if (json_number_value(json_array_get(margins, (size_t)i)) > 2 * tolerance_of(&g)) {
            assert_int_equal(token, g.greedy[i]);
            n_sure++;
        }
        if (i + 1 < g.n_greedy) expect_ok(ig_session_decode(&e.session, &g.greedy[i], 1, &err), &err);
    }
    assert_true(n_sure > (tolerance_of(&g) > TOLERANCE ? 0 : g.n_greedy / 2));
    close_engine(&e);
    free_golden(&g);
}

/* A policy whose budget covers everything, as a share or as a number, gives bitwise the logits of `full`. */
static void check_whole_budget(void **state) {
    golden g = {0};
    if (!find_model(&g, *state)) skip();
    read_golden(&g);
    ig_cache_options full = ig_cache_defaults(), sparse = ig_cache_defaults();
    full.policy = "full";
    sparse.policy = "infinigen";
    sparse.budget = 1;
    sparse.n_dense_layers = 0;
    ig_error err = {0};
    engine a = open_engine(&g, &full), b = open_engine(&g, &sparse);
    sparse.budget = 0;
    sparse.budget_entries = 1000000;
    engine c = open_engine(&g, &sparse);
    expect_ok(ig_session_sync(a.session, g.prompt, g.n_prompt, &err), &err);
    expect_ok(ig_session_sync(b.session, g.prompt, g.n_prompt, &err), &err);
    expect_ok(ig_session_sync(c.session, g.prompt, g.n_prompt, &err), &err);
    size_t bytes = (size_t)g.n_vocab * sizeof(float);
    for (int i = 0; i < g.n_greedy - 1; i++) {
        assert_memory_equal(ig_session_logits(a.session), ig_session_logits(b.session), bytes);
        assert_memory_equal(ig_session_logits(a.session), ig_session_logits(c.session), bytes);
        expect_ok(ig_session_decode(&a.session, &g.greedy[i], 1, &err), &err);
        expect_ok(ig_session_decode(&b.session, &g.greedy[i], 1, &err), &err);
        expect_ok(ig_session_decode(&c.session, &g.greedy[i], 1, &err), &err);
    }
    assert_memory_equal(ig_session_logits(a.session), ig_session_logits(b.session), bytes);
    assert_memory_equal(ig_session_logits(a.session), ig_session_logits(c.session), bytes);
    close_engine(&a);
    close_engine(&b);
    close_engine(&c);
    free_golden(&g);
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* How far logits of a step are from those of `full`, squares summed up: the median, as a step in which a router chooses
 * otherwise is far off. */
static double distance_from_full(const golden *g, const ig_cache_options *cache) {
    ig_cache_options full = ig_cache_defaults();
    full.policy = "full";
    engine a = open_engine(g, &full), b = open_engine(g, cache);
    ig_error err = {0};
    double sums[64] = {0};
    assert_true(g->n_greedy <= 64);
    expect_ok(ig_session_sync(a.session, g->prompt, g->n_prompt, &err), &err);
    expect_ok(ig_session_sync(b.session, g->prompt, g->n_prompt, &err), &err);
    for (int i = 0; i < g->n_greedy; i++) {
        expect_ok(ig_session_decode(&a.session, &g->greedy[i], 1, &err), &err);
        expect_ok(ig_session_decode(&b.session, &g->greedy[i], 1, &err), &err);
        const float *x = ig_session_logits(a.session), *y = ig_session_logits(b.session);
        for (int j = 0; j < g->n_vocab; j++) sums[i] += pow((double)x[j] - (double)y[j], 2);
    }
    close_engine(&a);
    close_engine(&b);
    qsort(sums, (size_t)g->n_greedy, sizeof *sums, by_size);
    return sums[g->n_greedy / 2];
}

/* Beside sinks, too, estimates of what is not read bring logits nearer. */
static void check_estimates(void **state) {
    golden g = {0};
    if (!find_model(&g, *state)) skip();
    read_golden(&g);
    ig_cache_options cache = ig_cache_defaults();
    cache.policy = "oracle";
    cache.budget_entries = 30;
    cache.n_sinks = cache.n_recent = 1;
    double with = distance_from_full(&g, &cache);
    cache.no_rest = true;
    double without = distance_from_full(&g, &cache);
    print_message("%g with estimates, %g without\n", with, without);
    assert_true(with > 0 && with < without / 5);
    free_golden(&g);
}

/* What sinks take is not missed by an audit: all entries together hold all that entries have. */
static void check_audit(void **state) {
    golden g = {0};
    if (!find_model(&g, *state)) skip();
    read_golden(&g);
    ig_cache_options cache = ig_cache_defaults();
    cache.budget = cache.mass = 1;
    cache.audit_every = 1;
    engine e = open_engine(&g, &cache);
    ig_session_stats stats;
    ig_error err = {0};
    expect_ok(ig_session_sync(e.session, g.prompt, g.n_prompt, &err), &err);
    expect_ok(ig_session_decode(&e.session, &g.greedy[0], 1, &err), &err);
    ig_session_get_stats(e.session, &stats);
    assert_true(stats.n_audits > 0);
    assert_float_equal(stats.mass_mean, 1, 1e-5);
    close_engine(&e);
    free_golden(&g);
}

int main(void) {
#define MODEL(name)                                                \
    {name " like transformers", check_model, NULL, NULL, name}, {  \
        name " whole budget", check_whole_budget, NULL, NULL, name \
    }
    const struct CMUnitTest tests[] = {
        MODEL("opt"),
        MODEL("opt-350m-like"),
        MODEL("llama2"),
        MODEL("llama31"),
        MODEL("qwen2"),
        MODEL("qwen3"),
        MODEL("mistral"),
        MODEL("qwen2-yarn"),
        MODEL("gemma3"),
        MODEL("gemma4"),
        MODEL("gemma4-moe"),
        MODEL("gemma4-e"),
        MODEL("deepseek2"),
        MODEL("deepseek3"),
        MODEL("glm4-lite"),
        MODEL("deepseek32"),
        MODEL("glm-dsa"),
        MODEL("minimax-m3"),
        MODEL("kimi-linear"),
        MODEL("llama4"),
        MODEL("llama4-moe"),
        MODEL("gpt-neox"),
        MODEL("starcoder2"),
        MODEL("phi"),
        MODEL("stablelm"),
        MODEL("stablelm2"),
        MODEL("granite"),
        MODEL("olmo3"),
        MODEL("phi3"),
        MODEL("smollm3"),
        MODEL("qwen3moe"),
        MODEL("olmoe"),
        MODEL("mixtral"),
        MODEL("granitemoe"),
        MODEL("gpt-oss"),
        MODEL("glm4moe"),
        MODEL("mistral-wide"),
        MODEL("afmoe"),
        MODEL("hy-v3"),
        MODEL("mellum"),
        MODEL("granite-swa"),
        MODEL("glm"),
        MODEL("granite4"),
        MODEL("granite4-h"),
        MODEL("nemotron-h"),
        MODEL("nemotron-h-moe"),
        MODEL("nemotron-h-latent"),
        MODEL("falcon-h1"),
        MODEL("lfm2"),
        MODEL("lfm2-moe"),
        MODEL("lfm3"),
        MODEL("ernie4_5-moe"),
        MODEL("glm4"),
        MODEL("cohere"),
        MODEL("gemma2"),
        MODEL("mistral4"),
        MODEL("exaone-moe"),
        MODEL("qwen2-moe"),
        MODEL("arcee"),
        MODEL("nemotron"),
        MODEL("hunyuan-moe"),
        MODEL("muse-glimmer"),
        MODEL("youtu"),
        MODEL("laguna"),
        MODEL("apertus"),
        MODEL("qwen3-fp8"),
        MODEL("phi3-fp8"),
        MODEL("ministral3-fp8"),
        MODEL("deepseek3-fp8"),
        MODEL("gpt-oss-mxfp4"),
        MODEL("qwen3-awq"),
        MODEL("qwen3-nvfp4"),
        MODEL("smollm3-gptq"),
        MODEL("phi3-int4"),
        MODEL("olmoe-int4"),
        MODEL("qwen2-int8"),
        MODEL("cohere2"),
        MODEL("cohere2-moe"),
        MODEL("exaone4"),
        MODEL("hunyuan"),
        MODEL("minimax-m2"),
        MODEL("ministral3"),
        MODEL("qwen3-vl"),
        MODEL("qwen3.5"),
        MODEL("qwen3.5-moe"),
        MODEL("qwen3-next"),
        MODEL("qwen3-next-folder"),
        {"gpt-oss estimates", check_estimates, NULL, NULL, "gpt-oss"},
        {"gemma2 estimates", check_estimates, NULL, NULL, "gemma2"},
        {"gemma2 audit", check_audit, NULL, NULL, "gemma2"},
        {"gpt-oss audit", check_audit, NULL, NULL, "gpt-oss"},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
