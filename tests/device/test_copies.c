/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies of blocks in the GPU's memory change no bit of any result, however many there is room for, whatever the
 * policy, wherever the blocks lie and whatever becomes of them; and what came over the bus is counted.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "base/random.h"
#include "device/context.h"
#include "device/space.h"
#include "golden/tiny_session.h"
#include "kv/store.h"

/* Of the models here a block holds 32 tokens as f16: a prompt fills some. */
enum { PROMPT = 70, BACK = 50, STEPS = 4, CTX = 128, SIZES = 3 };

static int32_t ids[CTX];
static uint64_t sizes[SIZES]; /* of --kv-vram: none, some, all */
static uint64_t sketches;     /* copies of these are there in any case */

static ig_session_options options_of(const char *policy, const char *type) {
    ig_session_options o = ig_session_defaults();
    o.n_ctx = CTX;
    o.n_batch = 64;
    o.cache.policy = policy;
    o.cache.memory.type = type;
    if (strcmp(policy, "full") != 0) o.cache.budget = 0.3;
    o.cache.n_sinks = 2;
    o.cache.n_recent = 4;
    return o;
}

/* Sizes for a kind of session, from what everything takes. */
static void open_on(const char *path, const ig_session_options *options) {
    ig_error err = {0};
    ig_context_options c = ig_context_defaults();
    ig_session_options o = *options;
    ig_cache_plan_info all, none;
    c.n_threads = 2;
    c.device = "cuda";
    expect_ok(ig_context_open(&ctx, &c, &err), &err);
    expect_ok(ig_model_open(&model, ctx, path, NULL, &err), &err);
    expect_ok(ig_cache_plan(&all, model, &o, &err), &err);
    o.cache.memory.vram_bytes = 0;
    expect_ok(ig_cache_plan(&none, model, &o, &err), &err);
    uint64_t copies = all.gpu.kv - none.gpu.kv;
    assert_true(copies >= all.kv / 2 && none.gpu.kv < copies / 50);
    sizes[0] = 0, sizes[1] = none.gpu.kv + (copies / 4), sizes[2] = all.gpu.kv;
    sketches = all.gpu.sketch;
}

static ig_session *open_sized(const ig_session_options *options, int size) {
    ig_session_options o = *options;
    o.cache.memory.vram_bytes = sizes[size];
    return open_session(&o);
}

/* Tokens of all sessions in one step: what a step costs here is its products. */
static void step_all(ig_session *const *s, int k) {
    ig_error err = {0};
    int32_t next[SIZES];
    for (int i = 0; i < SIZES; i++) next[i] = (k * 29 + 3) % N_VOCAB;
    expect_ok(ig_session_decode(s, next, SIZES, &err), &err);
    for (int i = 1; i < SIZES; i++) same(s[0], s[i]);
}

/* A prompt, steps, going back into the middle of a full block, another text from there on: in sessions of all sizes. */
static void live(const ig_session_options *o) {
    ig_session *s[SIZES];
    for (int i = 0; i < SIZES; i++) s[i] = open_sized(o, i);
    for (int round = 0; round < 2; round++) {
        ids[BACK] += round;
        for (int i = 0; i < SIZES; i++) put(s[i], ids, round ? BACK + 10 : PROMPT);
        for (int k = 0; k < STEPS; k++) step_all(s, k);
    }
    for (int i = 0; i < SIZES; i++) {
        ig_session_stats st = stats(s[i]);
        assert_int_equal(st.vram_hits > 0, i > 0);
        assert_int_equal(st.vram_copied > 0, i > 0);
        assert_true(i == 0 || st.vram_bytes <= sizes[i]);
        assert_true(st.vram_rows > 0 && st.decode_vram_read_bytes > 0);
        assert_true(st.vram_read_bytes > st.decode_vram_read_bytes);
        ig_session_close(s[i]);
    }
}

typedef struct kind {
    const char *model, *policy, *type, *speculate;
    int audit_every;
    double limit;
} kind;

static void any_kind(void **state) {
    const kind *k = *state;
    ig_session_options o = options_of(k->policy, k->type);
    o.cache.speculate = k->speculate;
    o.cache.audit_every = k->audit_every;
    o.cache.memory.limit = k->limit;
    open_on(k->model, &o);
    live(&o);
    close_tiny(NULL);
}

/* With room for everything each block comes over the bus once: in the second step that reads it, the prompt's being one
 * of them. What joins it then is written to both places. */
static void full_stays(void **state) {
    (void)state;
    enum { BLOCK = 32, TABLES = 8 };
    ig_session_options o = options_of("full", "f16");
    open_on(TINY_LLAMA, &o);
    ig_session *s = open_session(&o); /* by default it takes all it can use */
    put(s, ids, PROMPT);
    assert_int_equal(stats(s).vram_bytes, sizes[SIZES - 1]);
    uint64_t rows = 0;
    for (int n = PROMPT + 1; n <= PROMPT + STEPS; n++) {
        step(s, ids[n]);
        int last = (n - 1) % BLOCK + 1; /* rows of the last block */
        rows += TABLES * (n == PROMPT + 1 || last == 2 ? BLOCK : last == 1 ? 1 : 0);
        assert_int_equal(stats(s).decode_vram_read_bytes, rows * 4096 / BLOCK);
    }
    ig_session_close(s);
    close_tiny(NULL);
}

/* Without copies each entry that a step reads comes over the bus, also where the GPU alone had the list. */
static void all_rows_are_counted(void **state) {
    (void)state;
    enum { BLOCK = 32 };
    ig_session_options o = options_of("infinigen", "f16");
    o.cache.speculate = "none";
    open_on(TINY_LLAMA, &o);
    ig_session *s = open_sized(&o, 0);
    put(s, ids, PROMPT);
    for (int k = 0; k < 2; k++) step(s, ids[k]);
    assert_true(stats(s).used_entries > 0);
    assert_int_equal(stats(s).decode_vram_read_bytes, stats(s).used_entries * 4096 / BLOCK);
    ig_session_close(s);
    close_tiny(NULL);
}

/* More than there is room for, of which everything is read: what is there stays, nothing is copied in turns. */
static void full_does_not_thrash(void **state) {
    (void)state;
    ig_session_options o = options_of("full", "f16");
    open_on(TINY_LLAMA, &o);
    ig_session *s = open_sized(&o, 1);
    put(s, ids, 100);
    uint64_t copied = stats(s).vram_copied;
    for (int k = 0; k < 3; k++) step(s, ids[k]);
    assert_int_equal(stats(s).vram_copied, copied);
    ig_session_close(s);
    close_tiny(NULL);
}

/* Sessions with a beginning in common, stepped together; one closes, and another takes its place and its blocks. */
static void batches(void **state) {
    (void)state;
    enum { N = 3, TURNS = 5 };
    static float logits[2][TURNS][N][N_VOCAB];
    ig_error err = {0};
    ig_session_options o = options_of("infinigen", "f16");
    o.cache.memory.n_sessions = N;
    open_on(TINY_LLAMA, &o);
    for (int size = 0; size < 2; size++) {
        ig_cache *cache;
        ig_session *s[N];
        ig_session_options own = o;
        own.cache.memory.vram_bytes = sizes[size];
        expect_ok(ig_cache_open(&cache, model, &own, &err), &err);
        own.shared = cache;
        for (int i = 0; i < N; i++) {
            s[i] = open_session(&own);
            int32_t text[PROMPT];
            memcpy(text, ids, sizeof text);
            text[BACK] += i;
            put(s[i], text, PROMPT - 10 * i);
        }
        for (int k = 0; k < TURNS; k++) {
            int32_t next[N] = {k, 40 + k, 80 + k};
            if (k == 2) {
                ig_session_close(s[1]);
                s[1] = open_session(&own);
                put(s[1], ids + 7, BACK);
            }
            expect_ok(ig_session_decode(s, next, N, &err), &err);
            for (int i = 0; i < N; i++) memcpy(logits[size][k][i], ig_session_logits(s[i]), sizeof logits[size][k][i]);
        }
        ig_cache_stats st;
        ig_cache_get_stats(cache, &st);
        assert_int_equal(st.vram_hits > 0, size);
        assert_true(st.vram_bytes <= sizes[size] || !size);
        assert_true(!size || st.vram_hits > stats(s[0]).vram_hits);
        for (int i = 0; i < N; i++) ig_session_close(s[i]);
        ig_cache_close(cache);
    }
    assert_memory_equal(logits[0], logits[1], sizeof logits[0]);
    close_tiny(NULL);
}

/* ---- without a model ---------------------------------------------------------------------- */

enum { LAYERS = 2, KV_HEADS = 2, HEADS = 4, DIM = 64, N_KVS = 3, TOKENS = 240 };

/* Stores with the same tokens and copies of different numbers of blocks, and attention over them. */
typedef struct stores {
    ig_device *dev;
    ig_kv *kv[N_KVS];
    ig_head_shape shape;
    float *q, *out; /* the host's: [HEADS][DIM], [N_KVS][HEADS][DIM] */
    int32_t *lists; /* [LAYERS][KV_HEADS][TOKENS] the host's */
    int n[LAYERS][KV_HEADS];
    ig_random dice;
} stores;

static int roll(stores *x, int n) { return (int)(ig_random_unit(&x->dice) * n); }

/* Tokens until there are n, of any numbers that are not too large. */
static void add_tokens(stores *x, int layer, int n) {
    ig_error err = {0};
    int first = ig_kv_entries(x->kv[0], layer, 0).n;
    for (int i = 0; i < N_KVS; i++) expect_ok(ig_kv_extend(x->kv[i], layer, n, &err), &err);
    for (int t = first; t < n; t++)
        for (int h = 0; h < KV_HEADS; h++) {
            uint8_t row[4 * DIM];
            for (int k = 0; k < 4 * DIM; k++) row[k] = (uint8_t)(k % 2 ? 0x30 + roll(x, 8) : roll(x, 256));
            for (int i = 0; i < N_KVS; i++) {
                ig_kv_row to = ig_kv_at(x->kv[i], layer, h, t);
                size_t n_bytes = to.lines ? DIM : 2 * DIM;
                memcpy(to.key, row, n_bytes);
                memcpy(to.value, row + 2 * DIM, n_bytes);
                if (to.lines) to.lines[0] = to.lines[1] = (ig_kv_line){0x2000, (uint16_t)(0x3000 + t)};
            }
        }
}

/* Some of n tokens, in runs, and the last one. */
static void choose(stores *x, int layer, int n) {
    for (int h = 0; h < KV_HEADS; h++) {
        int32_t *list = x->lists + (layer * KV_HEADS + h) * TOKENS;
        int k = 0;
        for (int t = roll(x, 24); t < n - 1; t += 1 + (roll(x, 4) ? 0 : roll(x, 40))) list[k++] = t;
        list[k++] = n - 1;
        x->n[layer][h] = k;
    }
}

static void view_chosen(stores *x, int layer, int i, ig_kv_view *views) {
    for (int h = 0; h < KV_HEADS; h++)
        views[h] = ig_kv_fetch(x->kv[i], layer, h, x->lists + (layer * KV_HEADS + h) * TOKENS, 0, x->n[layer][h]);
}

static void foresee(stores *x, int layer) {
    ig_kv_view views[N_KVS][KV_HEADS];
    ig_attention jobs[N_KVS] = {0};
    for (int i = 0; i < N_KVS; i++) {
        view_chosen(x, layer, i, views[i]);
        jobs[i] = (ig_attention){.n_tokens = 1, .views = views[i]};
    }
    x->dev->ops->prefetch(x->dev, &x->shape, jobs + 1, N_KVS - 1);
}

static void attend_chosen(stores *x, int layer) {
    ig_kv_view views[N_KVS][KV_HEADS];
    ig_attention jobs[N_KVS] = {0};
    for (int i = 0; i < N_KVS; i++) {
        view_chosen(x, layer, i, views[i]);
        jobs[i] = (ig_attention){.q = x->q, .out = x->out + i * HEADS * DIM, .n_tokens = 1, .views = views[i]};
    }
    x->dev->ops->attend(x->dev, &x->shape, jobs, N_KVS);
}

/* What was attended to last is the same with and without copies. */
static void finish_alike(stores *x) {
    ig_error err = {0};
    expect_ok(x->dev->ops->finish(x->dev, &err), &err);
    for (int i = 1; i < N_KVS; i++) assert_memory_equal(x->out, x->out + i * HEADS * DIM, HEADS * DIM * sizeof(float));
}

static void open_stores(stores *x, ig_kv_type type) {
    ig_error err = {0};
    ig_context_options c = ig_context_defaults();
    *x = (stores){.dice = {11}, .shape = {HEADS, KV_HEADS, DIM, 0.125f}};
    c.device = "cuda";
    expect_ok(ig_context_open(&ctx, &c, &err), &err);
    x->dev = ctx->device;
    ig_kv_shape shape = {.n_layers = LAYERS, .n_kv_heads = KV_HEADS, .head_dim = DIM, .n_ctx = TOKENS, .n_batch = 16};
    ig_kv_options o = {.device = x->dev, .type = type};
    for (int i = 0; i < N_KVS; i++) {
        o.vram_bytes = i == 0 ? 0 : i == 1 ? (type == IG_KV_F16 ? 100 << 10 : 50 << 10) : 1 << 20;
        expect_ok(ig_kv_open(&x->kv[i], &shape, &o, &err), &err);
    }
    x->q = ig_device_alloc(x->dev, IG_PLACE_HOST, HEADS * DIM * sizeof(float));
    x->out = ig_device_alloc(x->dev, IG_PLACE_HOST, N_KVS * HEADS * DIM * sizeof(float));
    x->lists = ig_device_alloc(x->dev, IG_PLACE_HOST, LAYERS * KV_HEADS * TOKENS * sizeof(int32_t));
    expect_ok(
        x->dev->ops->reserve(
            x->dev, &(ig_device_need){.max_rows = 1, .max_in = 64, .max_entries = TOKENS, .heads = x->shape}, &err),
        &err);
    for (int i = 0; i < HEADS * DIM; i++) x->q[i] = (float)(roll(x, 100) - 50) / 50;
}

static void close_stores(stores *x) {
    for (int i = 0; i < N_KVS; i++) ig_kv_close(x->kv[i]);
    ig_device_free(x->dev, IG_PLACE_HOST, x->q, 0);
    ig_device_free(x->dev, IG_PLACE_HOST, x->out, 0);
    ig_device_free(x->dev, IG_PLACE_HOST, x->lists, 0);
    ig_context_close(ctx);
}

/* Steps with lists by lot, foreseen or not, with and without a wait in between; sometimes back into a block. */
static void any_lists(void **state) {
    ig_error err = {0};
    stores x;
    open_stores(&x, *(const ig_kv_type *)*state);
    for (int n = 100, k = 0; k < 300; k++, n++) {
        bool again = k && roll(&x, 3); /* the lists of the step before: they lead to copies */
        if (n == TOKENS || roll(&x, 10) == 0) n = 60 + roll(&x, n - 60), again = false;
        for (int i = 0; i < N_KVS; i++) expect_ok(ig_kv_cut(x.kv[i], n - 1, &err), &err);
        for (int layer = 0; layer < LAYERS; layer++) {
            if (!again) choose(&x, layer, n);
            int order = roll(&x, 3); /* tokens come before or after the foresight, or there is none */
            if (order == 0) add_tokens(&x, layer, n);
            if (order < 2) foresee(&x, layer);
            if (order) expect_ok(x.dev->ops->finish(x.dev, &err), &err), add_tokens(&x, layer, n);
            attend_chosen(&x, layer);
            finish_alike(&x);
        }
    }
    ig_kv_stats st;
    ig_kv_get_stats(x.kv[1], &st);
    assert_true(st.bus.hits > 500 && st.bus.rows > 500);
    assert_true(st.bus.copied > 2 * st.vram_bytes / 4096); /* some made way for others */
    close_stores(&x);
}

/* Of the stand-in for a GPU (cuda_on_cpu.h) alone. */
__attribute__((weak)) uint64_t cuda_on_cpu_count(const char *call);
__attribute__((weak)) void cuda_on_cpu_fail(const char *call, int error);

/* Many steps that are foreseen, and one wait for them; what the second store counted. */
static ig_kv_stats foreseen_steps(void) {
    enum { WAITS = 20, ROUNDS = 8 };
    stores x;
    ig_kv_stats st;
    open_stores(&x, IG_KV_F16);
    for (int k = 0; k < WAITS; k++) {
        for (int layer = 0; layer < LAYERS; layer++) add_tokens(&x, layer, TOKENS - WAITS + k);
        for (int layer = 0; layer < LAYERS; layer++) choose(&x, layer, TOKENS - WAITS + k);
        for (int round = 0; round < ROUNDS; round++)
            for (int layer = 0; layer < LAYERS; layer++) {
                foresee(&x, layer);
                attend_chosen(&x, layer);
            }
        finish_alike(&x);
    }
    ig_kv_get_stats(x.kv[1], &st);
    close_stores(&x);
    return st;
}

/* Copies that are foreseen are the same in graphs and out of them. */
static void foreseen_in_graphs(void **state) {
    (void)state;
    enum { MEMORY_ALLOCATION = 2 };
    if (!cuda_on_cpu_count) skip();
    uint64_t n = cuda_on_cpu_count("cudaGraphLaunch");
    ig_kv_stats graphs = foreseen_steps();
    n = cuda_on_cpu_count("cudaGraphLaunch") - n;
    assert_true(n > 10);
    cuda_on_cpu_fail("cudaGraphInstantiateWithFlags", MEMORY_ALLOCATION);
    ig_kv_stats none = foreseen_steps();
    cuda_on_cpu_fail(NULL, 0);
    assert_true(none.bus.copied > 20);
    assert_memory_equal(&graphs.bus, &none.bus, sizeof none.bus);
}

static void attend_views(stores *x, int n_jobs, ig_kv_view views[][KV_HEADS]) {
    ig_attention jobs[N_KVS] = {0};
    ig_error err = {0};
    for (int i = 0; i < n_jobs; i++)
        jobs[i] = (ig_attention){.q = x->q, .out = x->out + i * HEADS * DIM, .n_tokens = 1, .views = views[i]};
    x->dev->ops->attend(x->dev, &x->shape, jobs, n_jobs);
    expect_ok(x->dev->ops->finish(x->dev, &err), &err);
}

static void view_rows(stores *x, int i, int layer, int first, int n, ig_kv_view *views) {
    for (int h = 0; h < KV_HEADS; h++) views[h] = ig_kv_fetch(x->kv[i], layer, h, NULL, first, n);
}

/* Blocks that have copies are written anew; in the next call jobs of another memory stand between two of theirs. */
static void written_between_others(void **state) {
    (void)state;
    enum { WHOLE = HEADS * DIM };
    ig_error err = {0};
    stores x;
    ig_kv_view views[N_KVS][KV_HEADS];
    float want[WHOLE];
    open_stores(&x, IG_KV_F16);
    for (int kept = 0; kept < 16; kept += 8) { /* tokens that stay */
        for (int i = 0; i < N_KVS; i++) expect_ok(ig_kv_cut(x.kv[i], kept, &err), &err);
        for (int layer = 0; layer < LAYERS; layer++) add_tokens(&x, layer, TOKENS);
        view_rows(&x, 0, 0, 0, TOKENS, views[0]);
        attend_views(&x, 1, views);
        memcpy(want, x.out, sizeof want);
        for (int i = 0; i < N_KVS; i++) view_rows(&x, i == 1 ? 1 : 2, 0, 0, TOKENS, views[i]);
        attend_views(&x, N_KVS, views);
        for (int i = 0; i < N_KVS; i++) assert_memory_equal(x.out + i * WHOLE, want, sizeof want);
    }
    close_stores(&x);
}

/* A list that only the GPU has wants blocks whose copies have been idle; in the same call another sequence of the
 * memory, which is looked at before, wants copies for blocks of its own: these stay where they are. */
static void copies_that_a_hidden_list_wants(void **state) {
    (void)state;
    enum { BLOCK = 32, FULL = 2 * BLOCK, N = 5 * BLOCK - 3, IDLE = 4, BOOKS = 4096, COPIES = 2 };
    ig_error err = {0};
    ig_context_options c = ig_context_defaults();
    stores x = {.dice = {5}, .shape = {HEADS, KV_HEADS, DIM, 0.125f}};
    ig_kv_view views[2][KV_HEADS];
    ig_kv_memory *memory;
    c.device = "cuda";
    expect_ok(ig_context_open(&ctx, &c, &err), &err);
    x.dev = ctx->device;
    ig_kv_shape shape = {.n_layers = LAYERS, .n_kv_heads = KV_HEADS, .head_dim = DIM, .n_ctx = TOKENS, .n_batch = 16};
    ig_kv_options o = {.device = x.dev, .type = IG_KV_F16, .n_sequences = 2};
    expect_ok(ig_kv_open(&x.kv[0], &shape, &o, &err), &err);
    o.vram_bytes = LAYERS * KV_HEADS * COPIES * 4096 + BOOKS - 1;
    expect_ok(ig_kv_memory_open(&memory, &shape, &o, &err), &err);
    for (int i = 1; i < N_KVS; i++) expect_ok(ig_kv_open_in(&x.kv[i], memory, &err), &err);
    x.q = ig_device_alloc(x.dev, IG_PLACE_HOST, HEADS * DIM * sizeof(float));
    x.out = ig_device_alloc(x.dev, IG_PLACE_HOST, 2 * HEADS * DIM * sizeof(float));
    x.lists = ig_device_alloc(x.dev, IG_PLACE_HOST, (FULL + 1) * sizeof(int32_t));
    int32_t *hidden = ig_device_alloc(x.dev, IG_PLACE_DEVICE, (FULL + 1) * sizeof(int32_t));
    expect_ok(x.dev->ops->reserve(
                  x.dev, &(ig_device_need){.max_rows = 1, .max_in = 64, .max_entries = TOKENS, .heads = x.shape}, &err),
              &err);
    for (int i = 0; i < HEADS * DIM; i++) x.q[i] = (float)(roll(&x, 100) - 50) / 50;
    for (int i = 0; i <= FULL; i++) x.lists[i] = i;
    x.dev->ops->copy(x.dev, hidden, x.lists, (FULL + 1) * sizeof *hidden); /* the last one is their number */
    for (int l = 0; l < LAYERS; l++) add_tokens(&x, l, N);
    static float want[HEADS * DIM];
    view_rows(&x, 0, 0, 0, FULL, views[0]);
    attend_views(&x, 1, views);
    memcpy(want, x.out, sizeof want);
    view_rows(&x, 1, 0, 0, FULL, views[0]);
    attend_views(&x, 1, views);
    for (int step = 0; step < IDLE; step++)
        for (int l = LAYERS; l-- > 0;) view_rows(&x, 1, l, FULL, 1, views[0]), attend_views(&x, 1, views);
    for (int h = 0; h < KV_HEADS; h++) {
        views[1][h] = ig_kv_fetch(x.kv[1], 0, h, hidden, 0, FULL);
        views[1][h].n_listed = hidden + FULL;
    }
    view_rows(&x, 2, 0, FULL, FULL, views[0]);
    attend_views(&x, 2, views);
    for (int i = 1; i < N_KVS; i++) {
        ig_kv_stats st;
        ig_kv_get_stats(x.kv[i], &st);
        assert_int_equal(st.bus.copied, i == 1 ? COPIES * KV_HEADS : 0);
    }
    assert_memory_equal(x.out + HEADS * DIM, want, sizeof want);
    for (int i = 0; i < N_KVS; i++) ig_kv_close(x.kv[i]);
    ig_kv_memory_close(memory);
    void *pinned[] = {x.q, x.out, x.lists};
    for (int i = 0; i < 3; i++) ig_device_free(x.dev, IG_PLACE_HOST, pinned[i], 0);
    ig_device_free(x.dev, IG_PLACE_DEVICE, hidden, 0);
    ig_context_close(ctx);
}

/* ---- the rest ------------------------------------------------------------------------------- */

/* Of the stand-in for a GPU (cuda_on_cpu.h) alone, since drivers take memory in pieces of megabytes: the memory that
 * there is; returns what is taken of it. */
__attribute__((weak)) size_t cuda_on_cpu_room(bool is_host, size_t n_bytes);

static size_t taken_of_gpu(void) { return cuda_on_cpu_room(false, (size_t)1 << 36); }

/* What is taken of the GPU's memory is what was said. */
static void room(void **state) {
    (void)state;
    if (!cuda_on_cpu_room) skip();
    ig_session_options o = options_of("infinigen", "q8");
    open_on(TINY_LLAMA, &o);
    ig_session_close(open_sized(&o, 0)); /* scratch stays */
    for (int i = 0; i < SIZES; i++) {
        size_t before = taken_of_gpu();
        ig_session *s = open_sized(&o, i);
        size_t taken = taken_of_gpu() - before;
        assert_true(sketches > 0 && taken >= stats(s).vram_bytes + sketches);
        assert_true(taken <= sizes[i] + sketches + 4 * 4096 || i == 0);
        ig_session_close(s);
        assert_int_equal(taken_of_gpu(), before);
    }
    close_tiny(NULL);
}

static void not_on_the_cpu(void **state) {
    (void)state;
    ig_error err = {0};
    ig_session *s;
    ig_session_options o = options_of("full", "f16");
    expect_ok(ig_context_open(&ctx, NULL, &err), &err);
    expect_ok(ig_model_open(&model, ctx, TINY_LLAMA, NULL, &err), &err);
    o.cache.memory.vram_bytes = 1 << 20;
    assert_int_equal(ig_session_open(&s, model, &o, &err), IG_E_ARG);
    o.cache.memory.vram_bytes = 0;
    ig_session_close(open_session(&o));
    close_tiny(NULL);
}

int main(void) {
    static kind kinds[] = {{TINY_LLAMA, "infinigen", "q8", NULL, 3, 0},
                           {TINY_LLAMA, "infinigen", "q4", "late", 0, 0},
                           {TINY_LLAMA, "full", "q8", NULL, 0, 0},
                           {TINY_LLAMA, "infinigen", "f16", "none", 0, 0.5},
                           {"tests/golden/models/opt", "infinigen-osdi24", "f16", NULL, 0, 0}};
    enum { KINDS = sizeof kinds / sizeof *kinds, OTHERS = 11 };
    static ig_kv_type types[] = {IG_KV_F16, IG_KV_Q8};
    struct CMUnitTest tests[KINDS + OTHERS] = {cmocka_unit_test_prestate(any_lists, &types[0]),
                                               cmocka_unit_test_prestate(any_lists, &types[1]),
                                               cmocka_unit_test(foreseen_in_graphs),
                                               cmocka_unit_test(written_between_others),
                                               cmocka_unit_test(copies_that_a_hidden_list_wants),
                                               cmocka_unit_test(full_stays),
                                               cmocka_unit_test(all_rows_are_counted),
                                               cmocka_unit_test(full_does_not_thrash),
                                               cmocka_unit_test(batches),
                                               cmocka_unit_test(room),
                                               cmocka_unit_test(not_on_the_cpu)};
    ig_device_info d;
    for (int i = 0; i < KINDS; i++)
        tests[OTHERS + i] = (struct CMUnitTest)cmocka_unit_test_prestate(any_kind, &kinds[i]);
    for (int i = 0; i < CTX; i++) ids[i] = (i * 37 + 5) % (N_VOCAB - 1);
    if (!ig_device_at(1, &d)) {
        printf("skipped: no GPU\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
