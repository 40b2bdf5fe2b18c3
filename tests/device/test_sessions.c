/* SPDX-License-Identifier: Apache-2.0
 *
 * Sessions of tiny models on the GPU: like the CPU's with every policy, and the same bits however steps are made and
 * wherever keys and values lie.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>

#include "device/session_on.h"
#include "format/safetensors.h"
#include "golden/tiny_copy.h"
#include "infinigen_tools.h"

/* The logits of a prompt and of steps behind it. */
static void run(float *logits, const ig_session_options *o) {
    ig_session *s = open_session(o);
    put(s, ids, PROMPT);
    for (int i = 0; i <= STEPS; i++) {
        memcpy(logits + (size_t)i * N_VOCAB, ig_session_logits(s), N_VOCAB * sizeof *logits);
        if (i < STEPS) step(s, ids[PROMPT + i]);
    }
    ig_session_close(s);
}

#define GPT_OSS "tests/golden/models/gpt-oss/model.gguf"
#define QWEN "tests/golden/models/qwen3.5" /* most layers have a recurrence */

typedef struct kind {
    const char *model, *policy, *type;
    int audit_every;
    float near; /* of logits up to 4; more where rounding decides about what is used or kept */
    double limit;
} kind;
static const kind kinds[] = {{TINY_MISTRAL, "full", "f16", 0, 3e-2f, 0},
                             {"tests/golden/models/opt", "full", "q4", 0, 2e-1f, 0},
                             {TINY_LLAMA, "infinigen", "f16", 2, 1e-1f, 0},
                             {TINY_LLAMA, "infinigen", "f16", 0, 1e-1f, 0.4},
                             {"tests/golden/models/granitemoe", "full", "f16", 0, 3e-2f, 0},
                             {GPT_OSS, "full", "q8", 0, 1e-1f, 0},
                             {GPT_OSS, "infinigen", "f16", 0, 1e-1f, 0},
                             {QWEN, "full", "f16", 0, 3e-2f, 0},
                             {"tests/golden/models/lfm3", "infinigen", "f16", 0, 1e-1f, 0},
                             {"tests/golden/models/muse-glimmer", "infinigen", "q8", 0, 1e-1f, 0},
                             {QWEN, "infinigen", "q8", 0, 1e-1f, 0},
                             {"tests/golden/models/gemma4", "infinigen", "q8", 0, 1e-1f, 0},
                             {"tests/golden/models/gemma4-e", "infinigen", "f16", 0, 1e-1f, 0},
                             {"tests/golden/models/cohere2-moe", "infinigen", "f16", 0, 1e-1f, 0},
                             {"tests/golden/models/glm4-lite", "full", "f16", 0, 6e-2f, 0},
                             {"tests/golden/models/deepseek2", "infinigen", "q8", 2, 1e-1f, 0},
                             {"tests/golden/models/deepseek3", "full", "f16", 0, 3e-2f, 0},
                             {"tests/golden/models/glm-dsa", "indexer", "f16", 0, 3e-2f, 0},
                             {"tests/golden/models/minimax-m3", "indexer", "q8", 0, 3e-2f, 0},
                             {"tests/golden/models/kimi-linear", "infinigen", "f16", 0, 1e-1f, 0},
                             {"tests/golden/models/llama4", "infinigen", "q8", 0, 1e-1f, 0},
                             {"tests/golden/models/llama4-moe/model.gguf", "full", "f16", 0, 3e-2f, 0},
                             {"tests/golden/models/gpt-neox", "infinigen", "f16", 0, 1e-1f, 0},
                             {"tests/golden/models/starcoder2", "full", "f16", 0, 3e-2f, 0},
                             {"tests/golden/models/phi", "full", "f16", 0, 3e-2f, 0},
                             {"tests/golden/models/falcon-h1", "infinigen", "f16", 0, 1e-1f, 0},
                             {TINY_MISTRAL, "h2o", "q8", 0, 3e-2f, 0},
                             {TINY_LLAMA, "snapkv", "f16", 0, 3e-2f, 0},
                             {TINY_MISTRAL, "window", "q4", 0, 2e-1f, 0},
                             {"tests/golden/models/opt", "infinigen-osdi24", "f16", 0, 3e-2f, 0},
                             {TINY_LLAMA, "infinigen-osdi24", "f16", 0, 1e-1f, 0},
                             {TINY_LLAMA, "infinigen-osdi24", "f16", 0, 3e-1f, 0.6}};
enum { KINDS = sizeof kinds / sizeof *kinds, ROWS = (STEPS + 1) * N_VOCAB };

static void run_kinds(float (*logits)[ROWS], const char *device) {
    for (int k = 0; k < KINDS; k++) {
        open_on(kinds[k].model, device);
        ig_session_options o = options_of(kinds[k].policy, kinds[k].type);
        o.cache.audit_every = kinds[k].audit_every;
        o.cache.memory.limit = kinds[k].limit;
        run(logits[k], &o);
        close_tiny(NULL);
    }
}

static void like_the_cpu(void **state) {
    (void)state;
    static float want[KINDS][ROWS], got[KINDS][ROWS];
    run_kinds(want, "cpu");
    run_kinds(got, "cuda");
    for (int k = 0; k < KINDS; k++)
        for (int i = 0; i < ROWS; i++)
            if (!(fabsf(want[k][i] - got[k][i]) < kinds[k].near))
                fail_msg("%s: logit %d of step %d is %g, not %g", kinds[k].policy, i % N_VOCAB, i / N_VOCAB,
                         (double)got[k][i], (double)want[k][i]);
}

/* Where nothing has to be chosen, or the GPU can, all layers go through without a wait, and it keeps keys and values
 * itself. An audit looks at each layer: then the host keeps them, which changes no bit. */
static void all_layers_at_once(void **state) {
    (void)state;
    static const struct {
        const char *model, *policy, *type;
        double budget;
    } of[] = {{"tests/golden/models/opt", "full", "q4", 0},
              {TINY_LLAMA, "infinigen", "q8", 1},
              {TINY_LLAMA, "infinigen", "f16", 0.5},
              {TINY_LLAMA, "quest", "q8", 0.5}, /* of steps: the prompt alone is late */
              {TINY_LLAMA, "quest", "q1", 1},
              {QWEN, "full", "f16", 0},
              {QWEN, "infinigen", "q8", 0.5}};
    static float late[ROWS], watched[ROWS];
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        open_on(of[i].model, "cuda");
        ig_session_options o = options_of(of[i].policy, of[i].type);
        o.cache.budget = of[i].budget;
        run(late, &o);
        o.cache.audit_every = 1;
        run(watched, &o);
        assert_memory_equal(late, watched, sizeof late);
        close_tiny(NULL);
    }
}

/* Nor does an audit where another policy has dropped entries: tokens do not lie in slots of their numbers then. */
static void all_layers_at_once_after_drops(void **state) {
    (void)state;
    static float logits[2][N_VOCAB];
    open_on(TINY_LLAMA, "cuda");
    for (int watched = 0; watched < 2; watched++) {
        ig_error err = {0};
        ig_session_options o = options_of("h2o", "f16");
        o.cache.budget = 0.4;
        ig_session *s = open_session(&o);
        put(s, ids, PROMPT), step(s, ids[PROMPT]);
        ig_cache_options full = options_of("full", "f16").cache;
        full.audit_every = watched;
        expect_ok(ig_session_set_cache(s, &full, &err), &err);
        for (int i = 1; i < STEPS; i++) step(s, ids[PROMPT + i]);
        memcpy(logits[watched], ig_session_logits(s), sizeof logits[0]);
        ig_session_close(s);
    }
    assert_memory_equal(logits[0], logits[1], sizeof logits[0]);
    close_tiny(NULL);
}

/* Steps of two sessions, beside the prompt of a third one. What they choose and what is noted of it is the same whether
 * each layer is looked at or not, with copies of all blocks or of a few, guessed or not, with keys as they are or
 * mapped by a sketch file. So it is after a piece of a prompt, of a single token, and where a step is made again with
 * another token: what was known of blocks used before is forgotten or taken back then. */
static void late_steps_with(const ig_session_options *o, float *logits, ig_session_stats *stats_of) {
    enum { MANY = 157, OTHER = 50, AT_ONCE = 2, LATE_STEPS = 6, PIECE = 1, AGAIN = 5 };
    static int32_t many[MANY];
    ig_error err = {0};
    ig_session *s[AT_ONCE + 1];
    for (int i = 0; i < MANY; i++) many[i] = i * i * 11 % N_VOCAB;
    for (int i = 0; i <= AT_ONCE; i++) s[i] = open_session(o);
    for (int i = 0; i < AT_ONCE; i++) put(s[i], many + OTHER * i, MANY - OTHER * i);
    for (int k = 0; k < LATE_STEPS; k++) {
        int32_t next[AT_ONCE] = {k * 7 % N_VOCAB, k * 13 % N_VOCAB};
        if (k == AGAIN) expect_ok(ig_session_cut(s[1], ig_session_tokens(s[1], NULL) - 1, &err), &err);
        ig_batch_item items[AT_ONCE + 1] = {{.session = s[0], .ids = &next[0], .n = 1, .prompt = k == PIECE},
                                            {.session = s[1], .ids = &next[1], .n = 1},
                                            {.session = s[2], .ids = many + k, .n = 10, .prompt = true}};
        expect_ok(ig_batch_step(items, k < 3 ? AT_ONCE + 1 : AT_ONCE, &err), &err);
    }
    for (int i = 0; i < AT_ONCE; i++) {
        memcpy(logits + (size_t)i * N_VOCAB, ig_session_logits(s[i]), N_VOCAB * sizeof *logits);
        ig_session_get_stats(s[i], &stats_of[i]);
    }
    for (int i = 0; i <= AT_ONCE; i++) ig_session_close(s[i]);
}

static void late_steps(void **state) {
    (void)state;
    enum { LATE, WATCHED, FEW_COPIES, GUESSED, GUESSED_BEFORE, WAYS, CALIBRATION = 128 };
    static const char *const guesses[WAYS] = {[FEW_COPIES] = "none", [GUESSED] = "late", [GUESSED_BEFORE] = "norm"};
    int32_t text[CALIBRATION];
    static float logits[WAYS][2 * N_VOCAB];
    ig_error err = {0};
    char path[] = "/tmp/infinigen-sketch-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0 && !close(fd));
    for (int i = 0; i < CALIBRATION; i++) text[i] = i * i * 5 % N_VOCAB;
    open_on(TINY_LLAMA, "cuda");
    ig_prepare_options po = ig_prepare_defaults();
    ig_sketch_info info;
    po.ids = text, po.n_ids = CALIBRATION;
    expect_ok(ig_prepare(&info, model, path, &po, &err), &err);
    for (int mapped = 0; mapped < 2; mapped++) {
        ig_session_stats st[WAYS][2];
        ig_session_options o = options_of("infinigen", mapped ? "q8" : "f16");
        o.n_ctx = 200;
        o.cache.budget = 0.1;
        o.cache.sketch = mapped ? path : NULL;
        late_steps_with(&o, logits[LATE], st[LATE]);
        o.cache.audit_every = 1;
        late_steps_with(&o, logits[WATCHED], st[WATCHED]);
        o.cache.audit_every = 0;
        o.cache.memory.vram_bytes = 60 << 10;
        for (int w = FEW_COPIES; w < WAYS; w++) {
            o.cache.speculate = guesses[w];
            late_steps_with(&o, logits[w], st[w]);
        }
        for (int w = WATCHED; w < WAYS; w++) {
            assert_memory_equal(logits[w], logits[LATE], sizeof logits[w]);
            for (int i = 0; i < 2; i++) {
                assert_true(st[w][i].selected_share == st[LATE][i].selected_share);
                assert_true(st[w][i].block_share == st[LATE][i].block_share);
                assert_int_equal(st[w][i].used_entries, st[LATE][i].used_entries);
            }
        }
        assert_true(st[LATE][0].selected_share < 0.2);
        assert_true(st[FEW_COPIES][0].vram_rows > st[LATE][0].vram_rows && st[FEW_COPIES][0].vram_hits > 0);
    }
    close_tiny(NULL);
    unlink(path);
}

/* So it is with the paper's method, whose guesses are final; also where each layer chooses for itself. */
static void late_steps_of_the_paper(void **state) {
    (void)state;
    enum { LATE, WATCHED, FEW_COPIES, WAYS };
    static const struct {
        const char *model, *type, *speculate;
    } of[] = {{TINY_LLAMA, "f16", "paper"}, {"tests/golden/models/opt", "q8", "paper"}, {TINY_LLAMA, "q8", "none"}};
    static float logits[WAYS][2 * N_VOCAB];
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        ig_session_stats st[WAYS][2];
        ig_session_options o = options_of("infinigen-osdi24", of[i].type);
        open_on(of[i].model, "cuda");
        o.n_ctx = 200;
        o.cache.budget = 0.1;
        o.cache.speculate = of[i].speculate;
        for (int w = 0; w < WAYS; w++) {
            o.cache.audit_every = w == WATCHED;
            o.cache.memory.vram_bytes = w == FEW_COPIES ? 60 << 10 : IG_VRAM_AUTO;
            late_steps_with(&o, logits[w], st[w]);
            assert_memory_equal(logits[w], logits[LATE], sizeof logits[w]);
            for (int k = 0; k < 2; k++) {
                assert_true(st[w][k].selected_share == st[LATE][k].selected_share);
                assert_true(st[w][k].block_share == st[LATE][k].block_share);
                assert_int_equal(st[w][k].used_entries, st[LATE][k].used_entries);
            }
        }
        close_tiny(NULL);
        assert_true(st[LATE][0].selected_share < 0.2);
    }
}

/* Prompts in pieces, and together with another session's steps. */
static void steps_of_any_make(void **state) {
    (void)state;
    ig_error err = {0};
    ig_session_options o = options_of("full", "f16");
    open_on(TINY_MISTRAL, "cuda");
    ig_session *one = open_session(&o), *other = open_session(&o);
    put(one, ids, PROMPT);
    o.n_batch = 7;
    ig_session *pieces = open_session(&o);
    put(pieces, ids, PROMPT);
    same(one, pieces);
    put(other, ids + 20, 11);
    step(one, ids[PROMPT]);
    expect_ok(ig_session_decode((ig_session *[]){other, pieces}, (int32_t[]){5, ids[PROMPT]}, 2, &err), &err);
    same(one, pieces);
    ig_session_close(one), ig_session_close(other), ig_session_close(pieces);
    close_tiny(NULL);
}

/* A text of n tokens, another one from number `from` on. */
static void vary(int32_t *text, int n, int from, int by) {
    for (int i = 0; i < n; i++) text[i] = ((i * 37 + 5) % N_VOCAB + (i >= from ? by : 0)) % N_VOCAB;
}

/* The same text and steps in a session and in a new one by itself. */
static void like_a_new_one(ig_session *s, const ig_session_options *o, const int32_t *text, int n) {
    ig_session *alone = open_session(o);
    put(s, text, n), put(alone, text, n);
    same(s, alone);
    for (int k = 0; k < STEPS; k++) {
        step(s, k * 50 + n), step(alone, k * 50 + n);
        same(s, alone);
    }
    ig_session_close(alone);
}

/* Whatever becomes of entries, the GPU chooses by what was sketched of them and nothing older: in a session that goes
 * back and on with another text, and in one that takes from others and then writes to what it took. */
static void sketches_follow(void **state) {
    (void)state;
    enum { LONG = 72, BLOCK = 32 };
    int32_t text[LONG];
    ig_error err = {0};
    ig_cache *cache;
    ig_session_options o = options_of("infinigen", "f16"), shared;
    open_on(TINY_LLAMA, "cuda");
    o.n_ctx = LONG + STEPS;
    o.cache.budget = 0.3;
    o.cache.memory.vram_bytes = 0;
    shared = o;
    shared.cache.memory.n_sessions = 2;
    expect_ok(ig_cache_open(&cache, model, &shared, &err), &err);
    shared.shared = cache;
    ig_session *s[2] = {open_session(&shared), open_session(&shared)};
    for (int i = 0; i < 2; i++) {
        vary(text, LONG, 2 * BLOCK + 3, i);
        like_a_new_one(s[i], &o, text, LONG);
    }
    /* Into a piece that both have; out of the copy, which is free then; and to it again. */
    static const int from[] = {BLOCK + 21, 2 * BLOCK, BLOCK + 21, 9};
    for (int i = 0; i < 4; i++) {
        vary(text, LONG, from[i], 3 + i);
        like_a_new_one(s[1], &o, text, from[i] + 8);
    }
    ig_session_close(s[1]);
    s[1] = open_session(&shared);
    vary(text, LONG, BLOCK + 1, 7);
    like_a_new_one(s[1], &o, text, LONG - 5);
    for (int i = 0; i < 2; i++) ig_session_close(s[i]);
    ig_cache_close(cache);
    close_tiny(NULL);
}

/* So do partial keys: a piece of a prompt in the place of steps that were taken back leaves nothing of these behind.
 * And partial query weights: another prompt has others. */
static void partial_keys_follow(void **state) {
    (void)state;
    enum { PIECE = 15 };
    static const char *const models[] = {TINY_LLAMA, "tests/golden/models/opt"};
    int32_t text[PROMPT + 1 + PIECE];
    for (int m = 0; m < 2; m++) {
        ig_session_options o = options_of("infinigen-osdi24", "f16");
        o.cache.budget = 0.2;
        open_on(models[m], "cuda");
        ig_session *s[2] = {open_session(&o), open_session(&o)};
        for (int i = 0; i < PROMPT + 1 + PIECE; i++) text[i] = i < PROMPT ? ids[i] : 7 * i % N_VOCAB;
        for (int i = 0; i < 2; i++) {
            put(s[i], text, PROMPT);
            step(s[i], text[PROMPT]);
            for (int k = 0; i == 0 && k < 20; k++) step(s[i], 11 * k + 6);
            put(s[i], text, PROMPT + 1 + PIECE);
            for (int k = 0; k < 6; k++) step(s[i], 7 * k + 3);
        }
        same(s[0], s[1]);
        for (int i = 0; i < PROMPT; i++) text[i] = (11 * i + 1) % N_VOCAB;
        like_a_new_one(s[0], &o, text, PROMPT);
        ig_session_close(s[0]), ig_session_close(s[1]);
        close_tiny(NULL);
    }
}

/* With a disk tier and as little RAM as there can be, and copies of a few blocks in the GPU's memory. */
static void tiers(void **state) {
    (void)state;
    enum { MANY = 300 };
    static int32_t many[MANY];
    assert_non_null(mkdtemp(folder));
    open_on(TINY_LLAMA, "cuda");
    for (int i = 0; i < MANY; i++) many[i] = i * 11 % N_VOCAB;
    ig_session_options o = options_of("infinigen", "f16");
    o.n_ctx = MANY + 4;
    o.n_batch = 32;
    o.cache.memory.vram_bytes = 0;
    ig_session *plain = open_session(&o);
    o.cache.memory.disk_bytes = 64 << 20;
    o.cache.memory.disk_path = folder;
    o.cache.memory.ram_bytes = least_ram(o);
    o.cache.memory.vram_bytes = 100 << 10;
    ig_session *tiered = open_session(&o);
    put(plain, many, MANY), put(tiered, many, MANY);
    for (int i = 0; i < 2; i++) {
        same(plain, tiered);
        step(plain, many[i]), step(tiered, many[i]);
    }
    same(plain, tiered);
    assert_true(stats(tiered).demoted > 0);
    assert_true(stats(tiered).vram_hits > 0 && stats(tiered).vram_copied < 60);
    ig_session_close(plain), ig_session_close(tiered);
    close_tiny(NULL);
    assert_int_equal(rmdir(folder), 0);
}

/* A token of one of two sessions, in a step that they share. BAD, where it is one that the model's numbers break at. */
static void step_of_two(const char *policy, ig_batch_item items[2], float *logits, ig_session_stats *st) {
    enum { BAD = 77 };
    static const int32_t bad = BAD, good = 3;
    ig_error err = {0};
    ig_session_options o = options_of(policy, "f16");
    ig_session *s[2] = {open_session(&o), open_session(&o)};
    for (int i = 0; i < 2; i++) {
        ig_error own = {0};
        if (ig_session_sync(s[i], ids, PROMPT, &own) == IG_OK) continue;
        items[0].status = own.status; /* every token breaks */
        items[0].error = own;
        ig_session_close(s[0]), ig_session_close(s[1]);
        return;
    }
    items[0] = (ig_batch_item){.session = s[0], .ids = &bad, .n = 1};
    items[1] = (ig_batch_item){.session = s[1], .ids = &good, .n = 1};
    expect_ok(ig_batch_step(items, 2, &err), &err);
    assert_int_equal(ig_session_tokens(s[0], NULL), PROMPT);
    expect_ok(items[1].status, &items[1].error);
    memcpy(logits, ig_session_logits(s[1]), N_VOCAB * sizeof *logits);
    ig_session_get_stats(s[1], st);
    step(s[0], good); /* nothing is left of the other token */
    same(s[0], s[1]);
    ig_session_close(s[0]), ig_session_close(s[1]);
}

/* Numbers that are not finite are found after the fact, but before anything is kept, told or counted; the error is the
 * CPU's, and of a step for two sessions only the one fails that they are of. */
static void broken_models_with(const char *name, const char *policy, const char *const *names, size_t n) {
    for (size_t i = 0; i < n; i++) {
        static float logits[2][N_VOCAB];
        ig_error err = {0};
        ig_batch_item items[2][2] = {0};
        ig_session_stats st_of[2] = {0};
        ig_safetensors *st;
        tiny_copy copy = copy_tiny(name);
        expect_ok(ig_safetensors_open_memory(&st, copy.bytes, copy.n, name, &err), &err);
        const ig_tensor *t = ig_safetensors_tensor(st, names[i]);
        assert_non_null(t);
        size_t row = i == 0 ? 77 : (size_t)t->dims[1] / 2;                       /* of embeddings BAD's */
        ((uint16_t *)(uintptr_t)t->data)[row * (size_t)t->dims[0] + 1] = 0x7fc0; /* NaN as BF16 and F16 */
        temp_dir_write(&copy.dir, "model.safetensors", copy.bytes, copy.n);
        for (int d = 0; d < 2; d++) {
            open_on(copy.dir.path, d ? "cuda" : "cpu");
            step_of_two(policy, items[d], logits[d], &st_of[d]);
            close_tiny(NULL);
        }
        assert_int_equal(items[0][0].status, IG_E_NUMBER);
        assert_int_equal(items[1][0].status, IG_E_NUMBER);
        assert_string_equal(items[1][0].error.text, items[0][0].error.text);
        assert_int_equal(st_of[1].seen_entries, st_of[0].seen_entries);
        for (int k = 0; i == 0 && k < N_VOCAB; k++) assert_true(fabsf(logits[0][k] - logits[1][k]) < 3e-2f);
        ig_safetensors_close(st);
        drop_tiny_copy(&copy);
    }
}

static void broken_models(void **state) {
    (void)state;
    static const char *const names[] = {"model.embed_tokens.weight",
                                        "model.layers.1.self_attn.k_proj.weight",
                                        "model.layers.0.self_attn.o_proj.weight",
                                        "model.layers.0.mlp.down_proj.weight",
                                        "model.layers.2.mlp.up_proj.weight",
                                        "lm_head.weight"};
    static const char *const of_states[] = {"model.language_model.embed_tokens.weight",
                                            "model.language_model.layers.0.linear_attn.in_proj_qkv.weight",
                                            "model.language_model.layers.2.linear_attn.in_proj_a.weight",
                                            "model.language_model.layers.3.linear_attn.in_proj_b.weight"};
    broken_models_with("mistral", "infinigen", names, 6);
    broken_models_with("mistral", "full", names, 2); /* all layers have gone through by then */
    broken_models_with("qwen3.5", "full", of_states, 4);
}

/* What a GPU does not have is refused in one line. */
static void refusals(void **state) {
    (void)state;
    ig_error err = {0};
    ig_model_options mo = ig_model_defaults();
    ig_model *m;
    ig_session *s;
    open_on(TINY_MISTRAL, "auto");
    assert_string_equal(ig_context_device(ctx), "cuda:0");
    mo.weights_ram = 1 << 30;
    assert_int_equal(ig_model_open(&m, ctx, TINY_MISTRAL, &mo, &err), IG_E_UNSUPPORTED);
    ig_session_options o = options_of("full", "f16");
    o.cache.memory.map = true;
    o.cache.memory.ram_bytes = 1 << 20;
    o.cache.memory.disk_path = "/tmp";
    assert_int_equal(ig_session_open(&s, model, &o, &err), IG_E_ARG);
    o.cache.memory.ram_bytes = 0;
    o.cache.memory.vram_bytes = 1 << 20;
    assert_int_equal(ig_session_open(&s, model, &o, &err), IG_E_ARG);
    close_tiny(NULL);
}

/* Not every system lets the host touch it while kernels run. */
static bool has_managed(const ig_session_options *o) {
    ig_session *s;
    ig_error err = {0};
    ig_status status = ig_session_open(&s, model, o, &err);
    if (!status) ig_session_close(s);
    return !status || !strstr(err.text, "managed");
}

/* Where the driver moves pages changes no bit, and nothing is copied. */
static void managed_memory(void **state) {
    (void)state;
    static float plain[ROWS], managed[ROWS];
    static const char *const types[] = {"f16", "q8"};
    for (int i = 0; i < 2; i++) {
        open_on(TINY_LLAMA, "cuda");
        ig_session_options o = options_of("infinigen", types[i]);
        run(plain, &o);
        o.cache.memory.map = true;
        if (!has_managed(&o)) {
            close_tiny(NULL);
            skip();
        }
        run(managed, &o);
        assert_memory_equal(plain, managed, sizeof plain);
        ig_session *s = open_session(&o);
        ig_session_stats st;
        put(s, ids, PROMPT);
        ig_session_get_stats(s, &st);
        assert_true(st.kv_bytes > 0 && st.vram_bytes == 0 && st.vram_read_bytes == 0);
        ig_session_close(s);
        close_tiny(NULL);
    }
}

__attribute__((weak)) size_t cuda_on_cpu_room(bool is_host, size_t n_bytes);

/* Wherever page-locked or managed memory ends while a session is opened, nothing stays behind. */
static void memory_that_ends(void **state) {
    (void)state;
    enum { MORE = 64 << 10 };
    ig_session_options o = options_of("infinigen", "f16");
    if (!cuda_on_cpu_room) skip();
    open_on(TINY_LLAMA, "cuda");
    for (int map = 0; map < 2; map++) {
        o.cache.memory.map = map;
        ig_session_close(open_session(&o)); /* what the model keeps of it is there now */
        size_t before = cuda_on_cpu_room(true, SIZE_MAX), room = before;
        ig_status status = IG_E_MEMORY;
        bool managed = false;
        for (int n_failed = 0; status; n_failed++, room += MORE) {
            ig_error err = {0};
            ig_session *s;
            cuda_on_cpu_room(true, room);
            status = ig_session_open(&s, model, &o, &err);
            managed = managed || strstr(err.text, "managed");
            if (!status) {
                assert_true(n_failed > 1);
                ig_session_close(s);
            } else if (status != IG_E_MEMORY || n_failed == 100) {
                fail_msg("%s", err.text);
            }
            assert_true(cuda_on_cpu_room(true, SIZE_MAX) == before);
        }
        assert_int_equal(managed, map);
    }
    close_tiny(NULL);
}

/* States of recurrences are those of the text: in sessions of one memory that are filled, cut, closed and opened at
 * random, and begin with what others have computed. */
static void states_follow(void **state) {
    (void)state;
    enum { LONG = 150, COMMON = 70, N = 3, ROUNDS = 16 };
    int32_t text[LONG];
    ig_error err = {0};
    ig_session *s[N] = {0};
    ig_session_options o = options_of("full", "f16"), shared;
    ig_cache_plan_info plan;
    ig_cache_stats st;
    uint64_t n_taken = 0;
    open_on(QWEN, "cuda");
    o.n_ctx = LONG + STEPS;
    o.n_batch = 40;
    shared = o;
    shared.cache.memory.n_sessions = N;
    shared.cache.memory.vram_bytes = 0;
    expect_ok(ig_cache_plan(&plan, model, &shared, &err), &err);
    expect_ok(ig_cache_open(&shared.shared, model, &shared, &err), &err);
    srand(3);
    for (int round = 0; round < ROUNDS; round++) {
        int i = rand() % N;
        if (s[i] && rand() % 3 == 0) ig_session_close(s[i]), s[i] = NULL;
        if (!s[i]) s[i] = open_session(&shared);
        if (rand() % 3 == 0) expect_ok(ig_session_cut(s[i], rand() % LONG, &err), &err);
        vary(text, LONG, COMMON, rand() % 4);
        like_a_new_one(s[i], &o, text, 1 + rand() % LONG);
        n_taken += stats(s[i]).n_taken;
    }
    ig_cache_get_stats(shared.shared, &st);
    assert_true(n_taken > 0 && st.vram_bytes > 0 && st.vram_bytes == plan.gpu.kv);
    for (int i = 0; i < N; i++) ig_session_close(s[i]);
    ig_cache_close(shared.shared);
    close_tiny(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(like_the_cpu),       cmocka_unit_test(steps_of_any_make),
        cmocka_unit_test(all_layers_at_once), cmocka_unit_test(all_layers_at_once_after_drops),
        cmocka_unit_test(late_steps),         cmocka_unit_test(late_steps_of_the_paper),
        cmocka_unit_test(sketches_follow),    cmocka_unit_test(partial_keys_follow),
        cmocka_unit_test(states_follow),      cmocka_unit_test(tiers),
        cmocka_unit_test(broken_models),      cmocka_unit_test(refusals),
        cmocka_unit_test(managed_memory),     cmocka_unit_test(memory_that_ends)};
    int missing = begin_on_gpu();
    return missing ? missing : cmocka_run_group_tests(tests, NULL, NULL);
}
