/* SPDX-License-Identifier: Apache-2.0
 *
 * Models that bring an indexer along: tokens of prompts choose as decoded ones do, with the same bits however a prompt
 * is cut, wherever its entries lie and whoever has computed them.
 */
#define _GNU_SOURCE
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "format/safetensors.h"
#include "golden/cache_session.h"
#include "golden/tiny_copy.h"

enum { N_PROMPT = 150, N_STEPS = 6, SESSIONS = 3 };

static int32_t ids[N_CTX];

static int open_indexed(void **state) {
    for (int i = 0; i < N_CTX; i++) ids[i] = (i * 7919 + i / 3) % N_VOCAB;
    open_tiny(*state, 2);
    return 0;
}

/* Budgets are rounded up to blocks where there are any. */
static bool has_blocks(void) {
    ig_model_info info;
    ig_model_get_info(model, &info);
    return info.index_block > 0;
}

static ig_session_options own_options(const char *type, int budget) {
    ig_session_options o = ig_session_defaults();
    o.n_ctx = N_CTX;
    o.cache.memory.type = type;
    o.cache.budget_entries = budget;
    return o;
}

/* Logits of every token of the prompt, [N_PROMPT][N_VOCAB]. */
static bool keep_rows(void *user, int first, int n_rows, const float *logits) {
    memcpy((float *)user + (size_t)first * N_VOCAB, logits, (size_t)n_rows * N_VOCAB * sizeof *logits);
    return false;
}

static ig_session *run(ig_session_options o, int n_batch, float *rows) {
    ig_error err = {0};
    o.n_batch = n_batch;
    ig_session *s = open_session(&o);
    assert_string_equal(stats(s).policy, "indexer");
    expect_ok(ig_session_sync_logits(s, ids, N_PROMPT, keep_rows, rows, &err), &err);
    return s;
}

/* Cut into pieces, with and without a disk, prompts and what follows have the same bits. */
static void cut_anywhere(void **state) {
    static const int pieces[] = {1, 7, 16, 33, 64};
    static float whole_rows[N_PROMPT * N_VOCAB], rows[N_PROMPT * N_VOCAB];
    static const struct {
        const char *type;
        int budget;
    } of[] = {{"f16", 0}, {"f16", 20}, {"q8", 33}, {"q4", 50}};
    (void)state;
    for (size_t k = 0; k < IG_COUNT(of); k++) {
        ig_session_options o = own_options(of[k].type, of[k].budget);
        ig_session *whole = run(o, N_PROMPT, whole_rows), *cut[IG_COUNT(pieces)];
        temp_dir disk = temp_dir_open();
        for (size_t i = 0; i < IG_COUNT(pieces); i++) {
            if (i % 2) {
                o.n_batch = pieces[i];
                o.cache.memory.disk_bytes = 64 << 20;
                o.cache.memory.disk_path = disk.path;
                o.cache.memory.ram_bytes = 0;
                o.cache.memory.ram_bytes = least_ram(o);
            } else {
                o = own_options(of[k].type, of[k].budget);
            }
            cut[i] = run(o, pieces[i], rows);
            for (int t = 0; t < N_PROMPT; t++)
                if (memcmp(whole_rows + (size_t)t * N_VOCAB, rows + (size_t)t * N_VOCAB, N_VOCAB * sizeof *rows) != 0)
                    fail_msg("%s, %d entries, pieces of %d: token %d differs", of[k].type, of[k].budget, pieces[i], t);
            same(whole, cut[i]);
        }
        for (int n = N_PROMPT; n < N_PROMPT + N_STEPS; n++) {
            step(whole, ids[n]);
            for (size_t i = 0; i < IG_COUNT(pieces); i++) {
                step(cut[i], ids[n]);
                same(whole, cut[i]);
            }
        }
        ig_session_close(whole);
        for (size_t i = 0; i < IG_COUNT(pieces); i++) ig_session_close(cut[i]);
        temp_dir_close(&disk);
    }
}

static double distance(const float *a, const float *b) {
    double most = 0;
    for (int i = 0; i < N_VOCAB; i++) most = fmax(most, fabs((double)a[i] - (double)b[i]));
    return most;
}

/* The last token of a prompt gets what a step gives; `full` computes something else, as soon as there is a choice. */
static void tokens_of_prompts_choose(void **state) {
    ig_session_options o = own_options("f16", 20), full = o;
    full.cache.policy = "full";
    ig_session *whole = open_session(&o), *stepped = open_session(&o), *all = open_session(&full);
    (void)state;
    put(whole, ids, N_PROMPT);
    put(all, ids, N_PROMPT);
    put(stepped, ids, N_PROMPT - 40);
    for (int n = N_PROMPT - 40; n < N_PROMPT; n++) step(stepped, ids[n]);
    double near = distance(ig_session_logits(whole), ig_session_logits(stepped)),
           far = distance(ig_session_logits(whole), ig_session_logits(all));
    print_message("%g from what steps give, %g from full\n", near, far);
    assert_true(near < far / 4);
    ig_session_stats st = stats(stepped);
    assert_true(st.n_decoded == 40 &&
                fabs(st.selected_share - 20.0 / (N_PROMPT - 19.5)) < (has_blocks() ? 0.05 : 0.01));
    ig_session_close(whole);
    ig_session_close(stepped);
    ig_session_close(all);

    o.cache.budget_entries = full.cache.budget_entries = 0; /* the model's own, more than there are */
    ig_session *few = open_session(&o), *everything = open_session(&full);
    put(few, ids, has_blocks() ? 40 : 80);
    put(everything, ids, has_blocks() ? 40 : 80);
    same(few, everything);
    ig_session_close(few);
    ig_session_close(everything);
}

/* Where what prompts choose differs, keys and values do: nothing is taken over. */
static void it_sees_prompts(void **state) {
    ig_error err = {0};
    ig_session_options o = own_options("f16", 20);
    ig_cache_options own = o.cache, full = own;
    full.policy = "full";
    (void)state;
    ig_session *s = open_session(&o), *other = open_session(&o);
    put(s, ids, N_PROMPT);
    assert_int_equal(ig_session_set_cache(s, &full, &err), IG_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "full"));
    own.budget_entries = 40;
    assert_int_equal(ig_session_set_cache(s, &own, &err), IG_E_UNSUPPORTED);
    own.budget_entries = 20, own.n_recent = 3; /* which means nothing to it */
    expect_ok(ig_session_set_cache(s, &own, &err), &err);
    put(other, ids, N_PROMPT);
    step(s, ids[N_PROMPT]);
    step(other, ids[N_PROMPT]);
    same(s, other);
    expect_ok(ig_session_cut(s, 0, &err), &err);
    expect_ok(ig_session_set_cache(s, &full, &err), &err);
    put(s, ids, N_PROMPT);
    assert_int_equal(ig_session_set_cache(s, &own, &err), IG_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "indexer"));
    expect_ok(ig_session_cut(s, 0, &err), &err);
    expect_ok(ig_session_set_cache(s, &own, &err), &err);
    put(s, ids, N_PROMPT);
    step(s, ids[N_PROMPT]);
    same(s, other);
    ig_session_close(s);
    ig_session_close(other);
}

/* Sessions that choose alike share prompts, in RAM and in a store; those that do not, don't. */
static void prompts_are_shared(void **state) {
    temp_dir store = temp_dir_open();
    (void)state;
    for (int round = 0; round < 2; round++) {
        ig_error err = {0};
        ig_cache *c;
        ig_session_options o = own_options("f16", 20), alone = o, other = o, full = o;
        o.cache.memory.n_sessions = 4;
        o.cache.memory.store_path = store.path;
        expect_ok(ig_cache_open(&c, model, &o, &err), &err);
        other.shared = full.shared = o.shared = c;
        other.cache.budget_entries = 30;
        full.cache.policy = "full";
        ig_session *by_itself = open_session(&alone);
        put(by_itself, ids, N_PROMPT);
        for (int i = 0; i < SESSIONS; i++) {
            ig_session *s = open_session(&o);
            put(s, ids, N_PROMPT);
            same(s, by_itself);
            assert_int_equal(stats(s).n_taken, i || round ? 128 : 0);
            step(s, ids[N_PROMPT]);
            step(by_itself, ids[N_PROMPT]);
            same(s, by_itself);
            put(by_itself, ids, N_PROMPT - 1); /* without the step */
            put(by_itself, ids, N_PROMPT);
            ig_session_close(s);
            if (i < SESSIONS - 1) continue;
            ig_session *more = open_session(&other), *all = open_session(&full);
            put(more, ids, N_PROMPT);
            put(all, ids, N_PROMPT);
            assert_int_equal(stats(more).n_taken, round ? 128 : 0); /* of its own kind */
            assert_int_equal(stats(all).n_taken, round ? 128 : 0);
            ig_session_close(more);
            ig_session_close(all);
        }
        ig_session_close(by_itself);
        expect_ok(ig_cache_commit(c, &err), &err);
        ig_cache_close(c);
    }
    temp_dir_close(&store);
}

/* A prompt with a number that is not finite chooses nothing, after another one has chosen more than it has room for. */
static void a_prompt_fails_alone(void **state) {
    enum { BAD = 77, LONG = 3100 };
    static int32_t text[LONG];
    const uint16_t nan = 0x7fc0; /* of a bfloat16 */
    tiny_copy c = copy_tiny("glm-dsa");
    ig_error err = {0};
    ig_safetensors *st;
    (void)state;
    expect_ok(ig_safetensors_open_memory(&st, c.bytes, c.n, "glm-dsa", &err), &err);
    const ig_tensor *t = ig_safetensors_tensor(st, "model.embed_tokens.weight");
    memcpy((uint16_t *)(uintptr_t)t->data + BAD * t->dims[0], &nan, sizeof nan);
    temp_dir_write(&c.dir, "model.safetensors", c.bytes, c.n);
    ig_safetensors_close(st);
    close_tiny(NULL);
    open_tiny(c.dir.path, 2);
    for (int i = 0; i < LONG; i++) text[i] = i % BAD;
    ig_session_options large = own_options("f16", 3000), small = own_options("f16", 8);
    large.n_ctx = LONG, small.n_ctx = 64;
    ig_session *big = open_session(&large), *fails = open_session(&small), *goes_on = open_session(&small),
               *alone = open_session(&small);
    put(big, text, LONG);
    int32_t bad[50];
    memcpy(bad, text, sizeof bad);
    bad[30] = BAD;
    ig_batch_item items[] = {{.session = fails, .ids = bad, .n = 50, .prompt = true},
                             {.session = goes_on, .ids = text, .n = 50, .prompt = true}};
    expect_ok(ig_batch_step(items, IG_COUNT(items), &err), &err);
    assert_int_equal(items[0].status, IG_E_NUMBER);
    assert_int_equal(items[1].status, IG_OK);
    assert_int_equal(ig_session_tokens(fails, NULL), 0);
    put(alone, text, 50);
    same(goes_on, alone);
    put(fails, text, 50);
    same(fails, alone);
    ig_session_close(big);
    ig_session_close(fails);
    ig_session_close(goes_on);
    ig_session_close(alone);
    drop_tiny_copy(&c);
}

/* Other models have none. */
static void others_refuse(void **state) {
    ig_error err = {0};
    ig_session_options o = ig_session_defaults();
    ig_session *s;
    (void)state;
    o.cache.policy = "indexer";
    assert_int_equal(ig_session_open(&s, model, &o, &err), IG_E_ARG);
    assert_non_null(strstr(err.text, "brings no indexer along"));
}

int main(void) {
#define MODEL(test, name) \
    { name ": " #test, test, open_indexed, close_tiny, "tests/golden/models/" name }
    const struct CMUnitTest tests[] = {
        MODEL(cut_anywhere, "deepseek32"),          MODEL(cut_anywhere, "glm-dsa"),
        MODEL(cut_anywhere, "minimax-m3"),          MODEL(tokens_of_prompts_choose, "deepseek32"),
        MODEL(tokens_of_prompts_choose, "glm-dsa"), MODEL(tokens_of_prompts_choose, "minimax-m3"),
        MODEL(it_sees_prompts, "glm-dsa"),          MODEL(it_sees_prompts, "minimax-m3"),
        MODEL(prompts_are_shared, "deepseek32"),    MODEL(prompts_are_shared, "glm-dsa"),
        MODEL(prompts_are_shared, "minimax-m3"),    MODEL(a_prompt_fails_alone, "glm-dsa"),
        MODEL(others_refuse, "deepseek3"),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
