/* SPDX-License-Identifier: Apache-2.0
 *
 * Preparing a tiny model and running it with the sketch: exact at a whole budget, batch mates do not matter, sketches
 * of other models are refused, positions are spread, and what cannot be prepared is refused. The same for skews, whose
 * positions are the text's.
 */
#define _GNU_SOURCE
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cpu_level.h"
#include "engine/session.h"
#include "format/sketch.h"
#include "temp_dir.h"
#include "infinigen_tools.h"

enum { N_CTX = 300, N_CALIBRATION = 250, N_PROMPT = 200, N_STEPS = 20 };

static ig_context *ctx;
static ig_model *llama, *opt, *opt_350m;
static temp_dir dir;
static char llama_sketch[512], llama_skew[512];
static int32_t ids[N_CTX];

static void expect_ok(ig_status status, const ig_error *err) {
    if (status) fail_msg("%s", err->text);
}

static ig_status prepare(ig_model *m, const char *path, int n_ids, int n_ctx, int rank, ig_error *err) {
    ig_prepare_options o = ig_prepare_defaults();
    o.ids = ids;
    o.n_ids = n_ids;
    o.n_ctx = n_ctx;
    o.rank = rank;
    return ig_prepare(NULL, m, path, &o, err);
}

static ig_status prepare_skew(ig_model *m, const char *path, int n_ids, ig_error *err) {
    ig_prepare_options o = ig_prepare_defaults();
    o.skew = true;
    o.ids = ids;
    o.n_ids = n_ids;
    return ig_prepare(NULL, m, path, &o, err);
}

static int open_all(void **state) {
    (void)state;
    ig_error err = {0};
    ig_context_options o = ig_context_defaults();
    o.n_threads = 3;
    o.cpu_level = test_cpu_level();
    for (int i = 0; i < N_CTX; i++) ids[i] = (i * 7919 + i * i * 31) % 512;
    dir = temp_dir_open();
    temp_dir_path(&dir, "llama.igs", llama_sketch, sizeof llama_sketch);
    expect_ok(ig_context_open(&ctx, &o, &err), &err);
    expect_ok(ig_model_open(&llama, ctx, "tests/golden/models/llama31", NULL, &err), &err);
    expect_ok(ig_model_open(&opt, ctx, "tests/golden/models/opt", NULL, &err), &err);
    expect_ok(ig_model_open(&opt_350m, ctx, "tests/golden/models/opt-350m-like", NULL, &err), &err);
    expect_ok(prepare(llama, llama_sketch, N_CALIBRATION, N_CTX, 16, &err), &err);
    temp_dir_path(&dir, "llama-skew.igs", llama_skew, sizeof llama_skew);
    expect_ok(prepare_skew(llama, llama_skew, N_CALIBRATION, &err), &err);
    return 0;
}

static int close_all(void **state) {
    (void)state;
    ig_model_close(llama);
    ig_model_close(opt);
    ig_model_close(opt_350m);
    ig_context_close(ctx);
    temp_dir_close(&dir);
    return 0;
}

static ig_session *open_session(const char *policy, const char *sketch, double budget) {
    ig_session *s;
    ig_error err = {0};
    ig_session_options o = ig_session_defaults();
    o.n_ctx = N_CTX;
    o.cache.policy = policy;
    o.cache.sketch = sketch;
    o.cache.budget = budget;
    o.cache.n_recent = 8;
    o.cache.n_dense_layers = 1;
    expect_ok(ig_session_open(&s, llama, &o, &err), &err);
    return s;
}

static void fill(ig_session *s, int n) {
    ig_error err = {0};
    expect_ok(ig_session_sync(s, ids, n, &err), &err);
}

static void step(ig_session *const *s, int n, int position) {
    ig_error err = {0};
    int32_t next[2] = {ids[position], ids[position] ^ 1};
    expect_ok(ig_session_decode(s, next, n, &err), &err);
}

static void same_logits(const ig_session *a, const ig_session *b) {
    assert_memory_equal(ig_session_logits(a), ig_session_logits(b), 512 * sizeof(float));
}

static void what_is_written(void **state) {
    (void)state;
    ig_sketch_info info;
    ig_error err = {0};
    expect_ok(ig_sketch_get_info(&info, llama_sketch, &err), &err);
    assert_true(info.model == ig_model_identity(llama) && info.model != ig_model_identity(opt));
    assert_int_equal(info.rank, 16);
    assert_int_equal(info.bits, 4);
    assert_int_equal(info.n_ctx, N_CTX);
    assert_true(info.kind == IG_SKETCH_BALANCED && info.n_layers == 4 && info.n_heads == 2 && info.head_dim == 32);

    expect_ok(ig_sketch_get_info(&info, llama_skew, &err), &err);
    assert_true(info.kind == IG_SKETCH_SKEW && info.model == ig_model_identity(llama) && info.n_layers == 4);
    assert_true(info.n_heads == 6 && info.head_dim == 32 && info.rank == 32 && info.bits == 16);
    assert_int_equal(info.n_ctx, N_CALIBRATION);
    assert_int_equal(info.bytes, 64 + 4 * 6 * 32 * 32 * 4);
}

/* What is taken out of all keys alike would be seen beside a sink. */
static void offsets(void **state) {
    (void)state;
    ig_model *gpt_oss;
    ig_error err = {0};
    char path[512];
    temp_dir_path(&dir, "gpt-oss.igs", path, sizeof path);
    expect_ok(ig_model_open(&gpt_oss, ctx, "tests/golden/models/gpt-oss/model.gguf", NULL, &err), &err);
    expect_ok(prepare(gpt_oss, path, N_CALIBRATION, N_CTX, 16, &err), &err);
    ig_model_close(gpt_oss);
    for (int has_sinks = 0; has_sinks < 2; has_sinks++) {
        ig_sketch_file f;
        float sum = 0;
        expect_ok(ig_sketch_file_open(&f, has_sinks ? path : llama_sketch, &err), &err);
        for (int i = 0; i < f.shape.rank; i++) sum += fabsf(ig_sketch_offset(&f, 1, 0)[i]);
        assert_true(has_sinks ? sum == 0 : sum > 0);
        ig_sketch_file_close(&f);
    }
}

static void skews_are_orthogonal(void **state) {
    (void)state;
    ig_sketch_file f;
    ig_error err = {0};
    expect_ok(ig_sketch_file_open(&f, llama_skew, &err), &err);
    for (int l = 0; l < f.shape.n_layers; l++)
        for (int h = 0; h < f.shape.n_heads; h++) {
            const float *a = ig_sketch_skew(&f, l, h);
            for (int i = 0; i < 32; i++)
                for (int j = 0; j < 32; j++) {
                    double sum = i == j ? -1 : 0;
                    for (int k = 0; k < 32; k++) sum += (double)a[i * 32 + k] * (double)a[j * 32 + k];
                    assert_true(fabs(sum) < 1e-5);
                }
        }
    assert_memory_not_equal(ig_sketch_skew(&f, 1, 0), ig_sketch_skew(&f, 1, 1), 32 * 32 * sizeof(float));
    ig_sketch_file_close(&f);
}

/* The paper's method: with no threshold, no cap and all columns it is exact, with its own settings it is not. */
static void the_papers_method(void **state) {
    (void)state;
    const char *sketches[] = {llama_skew, NULL};
    ig_session_stats st;
    for (int i = 0; i < 2; i++) {
        ig_session *full = open_session("full", NULL, 0.1);
        ig_session *paper = open_session("infinigen-osdi24", sketches[i], 0.1), *whole;
        ig_error err = {0};
        ig_session_options o = ig_session_defaults();
        o.n_ctx = N_CTX;
        o.cache.policy = "infinigen-osdi24";
        o.cache.sketch = sketches[i];
        o.cache.n_dense_layers = 1;
        o.cache.budget = 1;
        o.cache.alpha = 1e9;
        o.cache.partial = 1;
        expect_ok(ig_session_open(&whole, llama, &o, &err), &err);
        fill(full, N_PROMPT);
        fill(paper, N_PROMPT);
        fill(whole, N_PROMPT);
        bool differs = false;
        for (int t = 0; t < N_STEPS; t++) {
            step(&full, 1, N_PROMPT + t);
            step(&paper, 1, N_PROMPT + t);
            step(&whole, 1, N_PROMPT + t);
            same_logits(full, whole);
            differs = differs || memcmp(ig_session_logits(full), ig_session_logits(paper), 512 * sizeof(float)) != 0;
        }
        assert_true(differs);
        ig_session_get_stats(paper, &st);
        assert_true(st.selected_share > 0.02 && st.selected_share < 0.12);
        ig_session_close(full);
        ig_session_close(paper);
        ig_session_close(whole);
    }
}

static void whole_budget_is_full(void **state) {
    (void)state;
    ig_session *full = open_session("full", NULL, 0.1), *whole = open_session("infinigen", llama_sketch, 1);
    fill(full, N_PROMPT);
    fill(whole, N_PROMPT);
    for (int i = 0; i < N_STEPS; i++) {
        step(&full, 1, N_PROMPT + i);
        step(&whole, 1, N_PROMPT + i);
        same_logits(full, whole);
    }
    ig_session_close(full);
    ig_session_close(whole);
}

/* A model with learned positions, whose skew is of all the positions it has. */
static void the_papers_method_with_opt(void **state) {
    (void)state;
    char path[512];
    ig_error err = {0};
    ig_session *full, *whole, *paper;
    ig_session_options o = ig_session_defaults();
    temp_dir_path(&dir, "opt-skew.igs", path, sizeof path);
    expect_ok(prepare_skew(opt, path, N_CALIBRATION, &err), &err);
    o.n_ctx = 200;
    o.cache.policy = "full";
    expect_ok(ig_session_open(&full, opt, &o, &err), &err);
    o.cache.policy = "infinigen-osdi24";
    o.cache.sketch = path;
    expect_ok(ig_session_open(&paper, opt, &o, &err), &err);
    o.cache.budget = 1;
    o.cache.alpha = 1e9;
    o.cache.partial = 1;
    expect_ok(ig_session_open(&whole, opt, &o, &err), &err);
    fill(full, 150);
    fill(whole, 150);
    fill(paper, 150);
    for (int t = 0; t < N_STEPS; t++) {
        step(&full, 1, 150 + t);
        step(&whole, 1, 150 + t);
        step(&paper, 1, 150 + t);
        same_logits(full, whole);
    }
    assert_memory_not_equal(ig_session_logits(full), ig_session_logits(paper), 512 * sizeof(float));
    ig_session_close(full);
    ig_session_close(whole);
    ig_session_close(paper);
}

static void add_selected(void *user, const ig_cache_step *step) { ((uint64_t *)user)[step->layer] += step->selected; }

/* Entries used per layer over some steps. */
static void count_selected(uint64_t sums[4], ig_model *m, const char *speculate) {
    ig_session *s;
    ig_error err = {0};
    ig_session_options o = ig_session_defaults();
    memset(sums, 0, 4 * sizeof *sums);
    o.n_ctx = N_PROMPT + N_STEPS;
    o.cache.policy = "infinigen-osdi24";
    o.cache.sketch = m == llama ? llama_skew : NULL;
    o.cache.n_dense_layers = 1;
    o.cache.budget = 1;
    o.cache.alpha = 0.5;
    o.cache.speculate = speculate;
    o.cache.trace = add_selected;
    o.cache.trace_user = sums;
    expect_ok(ig_session_open(&s, m, &o, &err), &err);
    fill(s, N_PROMPT);
    for (int i = 0; i < N_STEPS; i++) step(&s, 1, N_PROMPT + i);
    ig_session_close(s);
}

/* What layer 1 is given does not depend on what is chosen: it counts otherwise only if the guess is what it uses. */
static void guesses_are_final(void **state) {
    ig_model *m = **(ig_model ***)state;
    uint64_t by_default[4], paper[4], none[4];
    count_selected(by_default, m, NULL);
    count_selected(paper, m, "paper");
    count_selected(none, m, "none");
    assert_memory_equal(by_default, paper, sizeof paper);
    for (int l = 1; l < (m == llama ? 4 : 3); l++) assert_int_not_equal(paper[l], none[l]);
    assert_int_equal(paper[0], none[0]); /* dense */
}

/* A session with a sketch and one without in one step; each gives what it gives alone. */
static void batch_mates_do_not_matter(void **state) {
    const char *name = *state, *sketch = strcmp(name, "infinigen") == 0 ? llama_sketch : llama_skew;
    ig_session *alone = open_session(name, sketch, 0.2), *plain = open_session(name, NULL, 0.2);
    ig_session *both[2] = {open_session(name, sketch, 0.2), open_session(name, NULL, 0.2)};
    fill(alone, N_PROMPT);
    fill(plain, N_PROMPT / 2);
    fill(both[0], N_PROMPT);
    fill(both[1], N_PROMPT / 2);
    bool differ = false;
    ig_session_stats st;
    for (int i = 0; i < N_STEPS; i++) {
        int32_t odd = ids[N_PROMPT + i] ^ 1;
        step(&alone, 1, N_PROMPT + i);
        expect_ok(ig_session_decode(&plain, &odd, 1, NULL), &(ig_error){.text = "decode"});
        step(both, 2, N_PROMPT + i);
        same_logits(alone, both[0]);
        same_logits(plain, both[1]);
        differ = differ || memcmp(ig_session_logits(alone), ig_session_logits(plain), 512 * sizeof(float)) != 0;
    }
    assert_true(differ);
    ig_session_get_stats(alone, &st);
    assert_true(st.selected_share > 0.15 && st.selected_share < 0.3);
    ig_session_close(alone);
    ig_session_close(plain);
    ig_session_close(both[0]);
    ig_session_close(both[1]);
}

/* Of the logits of some steps with a sketch (NULL: the keys themselves). */
static double distance_to_full(const char *sketch) {
    ig_session *full = open_session("full", NULL, 0.1), *s = open_session("infinigen", sketch, 0.3);
    double sum = 0;
    fill(full, N_PROMPT);
    fill(s, N_PROMPT);
    for (int i = 0; i < N_STEPS; i++) {
        step(&full, 1, N_PROMPT + i);
        step(&s, 1, N_PROMPT + i);
        for (int j = 0; j < 512; j++)
            sum += pow((double)ig_session_logits(full)[j] - (double)ig_session_logits(s)[j], 2);
    }
    ig_session_close(full);
    ig_session_close(s);
    return sqrt(sum);
}

/* A file whose maps say nothing about the keys. */
static void write_useless(const char *path) {
    ig_sketch_file f;
    ig_error err = {0};
    expect_ok(ig_sketch_file_open(&f, llama_sketch, &err), &err);
    float *zeros = calloc(1, ig_sketch_file_bytes(&f.shape));
    expect_ok(ig_sketch_file_save(path, &f.shape, zeros, &err), &err);
    free(zeros);
    ig_sketch_file_close(&f);
}

/* All of a key's numbers choose about as well as the key itself, half of them better than chance. */
static void sketches_help(void **state) {
    (void)state;
    char whole[512], useless[512];
    ig_error err = {0};
    temp_dir_path(&dir, "whole.igs", whole, sizeof whole);
    temp_dir_path(&dir, "useless.igs", useless, sizeof useless);
    expect_ok(prepare(llama, whole, N_CALIBRATION, N_CTX, 32, &err), &err);
    write_useless(useless);
    double with_whole = distance_to_full(whole), with_none = distance_to_full(NULL),
           with_half = distance_to_full(llama_sketch);
    double with_useless = distance_to_full(useless);
    assert_true(with_whole > 0);
    assert_true(with_whole < 1.2 * with_none);
    assert_true(with_half < 0.9 * with_useless);
}

static void other_models_are_refused(void **state) {
    (void)state;
    ig_session *s;
    ig_cache_plan_info plan;
    ig_error err = {0};
    ig_session_options o = ig_session_defaults();
    o.n_ctx = 200;
    o.cache.sketch = llama_sketch;
    assert_int_equal(ig_session_open(&s, opt, &o, &err), IG_E_ARG);
    assert_null(s);
    assert_non_null(strstr(err.text, "another model"));
    assert_int_equal(ig_cache_plan(&plan, opt, &o, &err), IG_E_ARG);
    o.cache.policy = "infinigen-osdi24";
    assert_int_equal(ig_session_open(&s, llama, &o, &err), IG_E_ARG);
    assert_non_null(strstr(err.text, "of the kind balanced; the KV policy infinigen-osdi24 takes the kind skew"));
    o.cache.sketch = llama_skew;
    assert_int_equal(ig_session_open(&s, opt, &o, &err), IG_E_ARG);
    assert_non_null(strstr(err.text, "another model"));
    o.cache.policy = "infinigen";
    assert_int_equal(ig_session_open(&s, llama, &o, &err), IG_E_ARG);
    assert_non_null(strstr(err.text, "of the kind skew; the KV policy infinigen takes the kind balanced"));
    o.cache.sketch = "/nonexistent.igs";
    assert_int_equal(ig_session_open(&s, llama, &o, &err), IG_E_NOT_FOUND);
    o.cache.policy = "full"; /* has no use for it */
    expect_ok(ig_session_open(&s, llama, &o, &err), &err);
    ig_session_close(s);
}

static void plan_counts_the_sketch(void **state) {
    (void)state;
    ig_cache_plan_info with, without;
    ig_error err = {0};
    ig_session_options o = ig_session_defaults();
    o.n_ctx = 4096;
    expect_ok(ig_cache_plan(&without, llama, &o, &err), &err);
    o.cache.sketch = llama_sketch;
    expect_ok(ig_cache_plan(&with, llama, &o, &err), &err);
    size_t file = 64 + 4 * 2 * 16 * (2 * 32 + 1) * sizeof(float);
    assert_int_equal(with.sketch, without.sketch); /* prepared for less */
    o.n_ctx = N_CTX;
    expect_ok(ig_cache_plan(&with, llama, &o, &err), &err);
    o.cache.sketch = NULL;
    expect_ok(ig_cache_plan(&without, llama, &o, &err), &err);
    /* 3 sparse layers and 2 heads of 19 blocks of 16 tokens, 16 numbers less a key. */
    assert_int_equal(without.sketch - (with.sketch - file), 3 * 2 * 19 * 8 * 16);
    ig_cache_plan_info twice;
    o.cache.sketch = llama_sketch;
    o.cache.memory.n_sessions = 5;
    expect_ok(ig_cache_plan(&with, llama, &o, &err), &err);
    o.cache.memory.n_sessions = 10;
    expect_ok(ig_cache_plan(&twice, llama, &o, &err), &err);
    assert_int_equal(twice.sketch - file, 2 * (with.sketch - file)); /* the file is there once */
}

/* As long as it stays what it is; another one in its place is for those who come later. */
static void sessions_share_a_file(void **state) {
    (void)state;
    char path[512];
    ig_error err = {0};
    temp_dir_path(&dir, "shared.igs", path, sizeof path);
    expect_ok(prepare(llama, path, N_CALIBRATION, N_CTX, 16, &err), &err);
    ig_session *a = open_session("infinigen", path, 0.1), *b = open_session("infinigen", path, 0.2);
    assert_ptr_equal(a->sketch, b->sketch);
    fill(a, N_PROMPT);
    ig_session_close(a);
    expect_ok(prepare(llama, path, N_CALIBRATION, N_CTX, 32, &err), &err);
    ig_session *c = open_session("infinigen", path, 0.1), *d = open_session("infinigen", llama_sketch, 0.1);
    assert_true(b->sketch->shape.rank == 16 && c->sketch->shape.rank == 32 && d->sketch != b->sketch);
    fill(b, N_PROMPT);
    fill(c, N_PROMPT);
    ig_session *all[] = {b, c, d};
    for (int i = 0; i < 3; i++) ig_session_close(all[i]);
    a = open_session("infinigen", path, 0.1);
    assert_int_equal(a->sketch->shape.rank, 32);
    ig_session_close(a);
}

/* Maps for a long context differ where positions rotate, and only there. */
static void positions_are_spread(void **state) {
    (void)state;
    char path[512];
    ig_error err = {0};
    ig_sketch_file a, b;
    struct {
        ig_model *m;
        int n_far;
        bool differ;
    } cases[] = {{llama, 4000, true}, {opt, 254, false}};
    for (int i = 0; i < 2; i++) {
        temp_dir_path(&dir, "near.igs", path, sizeof path);
        expect_ok(prepare(cases[i].m, path, 100, 100, 0, &err), &err);
        expect_ok(ig_sketch_file_open(&a, path, &err), &err);
        temp_dir_path(&dir, "far.igs", path, sizeof path);
        expect_ok(prepare(cases[i].m, path, 100, cases[i].n_far, 0, &err), &err);
        expect_ok(ig_sketch_file_open(&b, path, &err), &err);
        assert_int_equal(a.shape.rank, 32); /* the head dimension, unless it is said otherwise */
        size_t maps = ig_sketch_file_bytes(&a.shape) - 64;
        assert_true((memcmp(a.maps, b.maps, maps) != 0) == cases[i].differ);
        ig_sketch_file_close(&a);
        ig_sketch_file_close(&b);
    }
}

static bool stop_at_once(void *user, uint64_t done, uint64_t total) {
    (void)user;
    return done > 0 && done < total;
}

static void what_cannot_be_prepared(void **state) {
    (void)state;
    char path[512];
    ig_error err = {0};
    temp_dir_path(&dir, "no.igs", path, sizeof path);
    assert_int_equal(prepare(llama, path, 63, N_CTX, 0, &err), IG_E_ARG);
    assert_non_null(strstr(err.text, "too few"));
    assert_int_equal(prepare(llama, path, 100, N_CTX, 12, &err), IG_E_ARG);
    assert_int_equal(prepare(llama, path, 100, N_CTX, 40, &err), IG_E_ARG);
    assert_int_equal(prepare(llama, path, 100, 1, 0, &err), IG_E_ARG);
    assert_int_equal(prepare(opt, path, 100, 5000, 0, &err), IG_E_ARG); /* has learned positions */
    assert_int_equal(prepare(llama, "/proc/nonexistent/a.igs", 100, N_CTX, 0, &err), IG_E_IO);
    assert_int_equal(ig_prepare(NULL, llama, path, NULL, &err), IG_E_ARG);
    assert_non_null(strstr(err.text, "no tokenizer"));
    assert_int_equal(prepare_skew(llama, path, 63, &err), IG_E_ARG);
    assert_non_null(strstr(err.text, "too few"));
    ids[7] = 512;
    assert_int_equal(prepare(llama, path, 100, N_CTX, 0, &err), IG_E_ARG);
    ids[7] = 3;
    ig_prepare_options o = ig_prepare_defaults();
    o.ids = ids;
    o.n_ids = 100;
    o.progress = stop_at_once;
    assert_int_equal(ig_prepare(NULL, llama, path, &o, &err), IG_E_INTERRUPTED);
    o.skew = true;
    assert_int_equal(ig_prepare(NULL, llama, path, &o, &err), IG_E_INTERRUPTED);
    o.rank = 16;
    assert_int_equal(ig_prepare(NULL, llama, path, &o, &err), IG_E_ARG);
    o.rank = 0;
    o.n_ctx = 300;
    assert_int_equal(ig_prepare(NULL, llama, path, &o, &err), IG_E_ARG);
    assert_non_null(strstr(err.text, "no context"));
    assert_int_not_equal(access(path, F_OK), 0);
}

/* ---- activations ------------------------------------------------------------------- */

static double sum_of(const double *x, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += x[i];
    return sum;
}

/* A skew moves energy between columns and makes none; the query heads of a group have the same keys. */
static bool check_layer(void *user, const ig_layer_activations *layer) {
    int *n_layers = user, d = layer->head_dim;
    assert_int_equal(layer->layer, (*n_layers)++);
    assert_true(layer->n_heads == 6 && d == 32);
    assert_true((layer->layer == 0) == (layer->input_cosine == 0));
    assert_true(fabs(layer->input_cosine) < 1 && fabs(layer->attention_cosine) < 1 && fabs(layer->ffn_cosine) < 1);
    for (int h = 0; h < layer->n_heads; h++) {
        const ig_head_activations *head = &layer->heads[h], *first = &layer->heads[h / 3 * 3];
        double q = sum_of(head->q.energy, d), k = sum_of(head->k.energy, d);
        assert_true(fabs(sum_of(head->q_skewed.energy, d) - q) < 1e-5 * q);
        assert_true(fabs(sum_of(head->k_skewed.energy, d) - k) < 1e-5 * k);
        assert_memory_equal(head->k.magnitude, first->k.magnitude, (size_t)d * sizeof(double));
        for (int i = 1; i < d; i++) assert_true(head->q_skewed.energy[i] <= head->q_skewed.energy[i - 1] * 1.00001);
        assert_true(head->q_skewed.energy[0] > head->q.energy[0]);
    }
    return false;
}

static bool stop_at_two(void *user, const ig_layer_activations *layer) {
    *(int *)user = layer->layer;
    return layer->layer == 2;
}

static void activations(void **state) {
    (void)state;
    ig_error err = {0};
    int n = 0;
    expect_ok(ig_measure_activations(llama, ids, N_CALIBRATION, check_layer, &n, &err), &err);
    assert_int_equal(n, 4);
    assert_int_equal(ig_measure_activations(opt, ids, N_CALIBRATION, stop_at_two, &n, &err), IG_E_INTERRUPTED);
    assert_int_equal(n, 2);
    assert_int_equal(ig_measure_activations(opt, ids, 257, stop_at_two, &n, &err), IG_E_ARG); /* learned positions */
    assert_non_null(strstr(err.text, "64..256"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written),
        cmocka_unit_test(whole_budget_is_full),
        cmocka_unit_test(offsets),
        cmocka_unit_test(skews_are_orthogonal),
        cmocka_unit_test(the_papers_method),
        cmocka_unit_test(the_papers_method_with_opt),
        {"guesses_are_final: llama", guesses_are_final, NULL, NULL, &llama},
        {"guesses_are_final: norms that follow", guesses_are_final, NULL, NULL, &opt_350m},
        {"batch_mates_do_not_matter: infinigen", batch_mates_do_not_matter, NULL, NULL, "infinigen"},
        {"batch_mates_do_not_matter: infinigen-osdi24", batch_mates_do_not_matter, NULL, NULL, "infinigen-osdi24"},
        cmocka_unit_test(sketches_help),
        cmocka_unit_test(other_models_are_refused),
        cmocka_unit_test(plan_counts_the_sketch),
        cmocka_unit_test(sessions_share_a_file),
        cmocka_unit_test(positions_are_spread),
        cmocka_unit_test(what_cannot_be_prepared),
        cmocka_unit_test(activations),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
