/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens that are computed ahead: whatever comes, a session that guesses what comes next gets the bits of one that does
 * not.
 */
#define _GNU_SOURCE
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "golden/batch_pairs.h"

static void one_by_one(pair *p, int n) {
    for (int i = 0; i < n && p->n < n_ctx; i++) {
        int32_t id = next_of(p);
        step(p->together, id);
        follow(p, &(ig_batch_item){.session = p->together, .ids = &id, .n = 1});
    }
}

/* Whether what sessions of this kind do can be taken back. */
static bool may_guess(const kind *k) {
    return !drops(k) && strcmp(k->policy, "infinigen-osdi24") && (k->limit == 0 || has_window);
}

/* Another policy for both, if they have dropped nothing. */
static void go_on_with(pair *p, const char *policy) {
    ig_error err = {0};
    ig_cache_options o[2] = {p->together->options.cache, p->alone->options.cache};
    for (int i = 0; i < 2; i++) o[i].policy = policy, o[i].memory.type = stats(p->alone).kv_type;
    o[0].memory.disk_path = folder;
    if (!p->together->n_draft) return;
    expect_ok(ig_session_set_cache(p->alone, &o[1], &err), &err);
    expect_ok(ig_session_set_cache(p->together, &o[0], &err), &err);
    agree(p);
}

static void guesses_change_nothing(void **state) {
    uint64_t n_hits = 0;
    (void)state;
    for (size_t k = 0; k < IG_COUNT(kinds); k++) {
        pair p;
        open_pair(&p, &kinds[k], folder);
        restart(&p, k % 2 ? 100 : 500);
        one_by_one(&p, TIMES(130));
        ig_session_stats st = stats(p.together), alone = stats(p.alone);
        assert_int_equal(st.n_decoded, alone.n_decoded);
        assert_int_equal(st.used_entries, alone.used_entries);
        assert_int_equal(st.seen_entries, alone.seen_entries);
        assert_memory_equal(&st.selected_share, &alone.selected_share, sizeof st.selected_share);
        assert_memory_equal(&st.fetched_share, &alone.fetched_share, sizeof st.fetched_share);
        assert_memory_equal(&st.block_share, &alone.block_share, sizeof st.block_share);
        assert_true(alone.n_drafted == 0 && st.n_draft_hits <= st.n_drafted && !st.n_expected);
        if (!may_guess(&kinds[k])) assert_true(!st.n_drafted);
        if (may_guess(&kinds[k]) && !draft_model) assert_true(st.n_draft_hits > 0 && st.n_draft_hits < st.n_drafted);
        n_hits += st.n_draft_hits;
        close_pair(&p);
    }
    assert_true(n_hits > TIMES(200)); /* a draft model may be right or wrong in all of a few steps */
}

/* Steps of several sessions, with pieces of prompts; between them sessions are cut, and go on with another policy. */
static void among_others(void **state) {
    enum { N_ROUNDS = TIMES(100) };
    static pair p[MOST];
    uint64_t n_hits = 0;
    (void)state;
    for (int i = 0; i < MOST; i++) {
        open_pair(&p[i], &kinds[(size_t)i % IG_COUNT(kinds)], folder);
        if (i % 5) restart(&p[i], i % 7 ? 1 + i * 12 : 530);
    }
    for (int round = 0; round < N_ROUNDS; round++) {
        step_some(p, 1 + any(MOST));
        pair *x = &p[any(MOST)];
        if (x->n > 1 && any(4) == 0) cut_both(x, x->n - 1 - any(x->n < 30 ? x->n : 30));
        x = &p[any(MOST)];
        if (x->n > 1 && any(4) == 0) go_on_with(x, "infinigen");
        if (x->n > 1 && any(4) == 0) one_by_one(x, any(30));
    }
    for (int i = 0; i < MOST; i++) n_hits += stats(p[i].together).n_draft_hits;
    assert_true(n_hits > TIMES(20));
    for (int i = 0; i < MOST; i++) close_pair(&p[i]);
}

/* A step fails because of what it computes ahead: without that it does not. */
static void spoil_what_is_ahead(void *user, ig_tap_place at, int layer) {
    static const float nan = NAN;
    const ig_batch *b = &model->batch;
    int *n_spoilt = user;
    for (int s = 0; s < b->n_segments; s++) {
        const ig_segment *seg = &b->segments[s];
        if (at != IG_TAP_ATTENTION || layer != 1 || seg->status || seg->n == 1) continue;
        float *h = &b->h[(size_t)(seg->row + seg->n) * (size_t)model->config.d_model - 3];
        ctx->device->ops->copy(ctx->device, h, &nan, sizeof nan);
        ++*n_spoilt;
    }
}

static void a_guess_that_fails(void **state) {
    int n_spoilt = 0;
    (void)state;
    for (size_t k = 0; k < IG_COUNT(kinds); k++) {
        pair p[2];
        for (int i = 0; i < 2; i++) open_pair(&p[i], &kinds[(k + (size_t)i) % IG_COUNT(kinds)], folder);
        for (int i = 0; i < 2; i++) restart(&p[i], 200);
        for (int i = 0; i < 2; i++) one_by_one(&p[i], 40);
        for (int round = 0; round < 20; round++) {
            int32_t ids[2];
            ig_batch_item items[2];
            for (int i = 0; i < 2; i++) {
                ids[i] = next_of(&p[i]);
                items[i] = (ig_batch_item){.session = p[i].together, .ids = &ids[i], .n = 1};
            }
            model->batch.tap_user = &n_spoilt;
            model->batch.tap = round % 2 ? spoil_what_is_ahead : NULL;
            run_step(items, 2);
            model->batch.tap = NULL;
            for (int i = 0; i < 2; i++) {
                expect_ok(items[i].status, &items[i].error);
                follow(&p[i], &items[i]);
            }
        }
        for (int i = 0; i < 2; i++) close_pair(&p[i]);
    }
    assert_true(n_spoilt > 4);
}

/* Sessions of one cache, whose share of RAM is so small that what a step's tokens want of a layer does not fit
 * together.
 */
static void in_little_ram(void **state) {
    static const kind some[] = {{"infinigen", "f16", true, 0}, {"full", "q8", true, 0}, {"window", "f16", true, 0}};
    static pair p[MOST];
    uint64_t n_hits = 0;
    (void)state;
    for (size_t k = 0; k < IG_COUNT(some); k++) {
        ig_error err = {0};
        ig_cache *cache;
        ig_session_options o = ig_session_defaults();
        o.n_ctx = n_ctx;
        o.n_batch = N_BATCH;
        o.cache.policy = some[k].policy;
        o.cache.memory.type = some[k].type;
        o.cache.budget = 0.15;
        ig_session_options alone = o;
        o.n_draft = n_draft;
        o.cache.memory.n_sessions = MOST;
        o.cache.memory.disk_path = folder;
        o.cache.memory.disk_bytes = 64 << 20;
        o.cache.memory.ram_bytes = 1;
        assert_int_equal(ig_cache_open(&cache, model, &o, &err), IG_E_LIMIT);
        o.cache.memory.ram_bytes = least_in(&err);
        expect_ok(ig_cache_open(&cache, model, &o, &err), &err);
        o.shared = cache;
        for (int i = 0; i < MOST; i++) {
            p[i] = (pair){.together = open_session(&o), .alone = open_session(&alone)};
            restart(&p[i], n_ctx - 100 - any(20));
        }
        for (int i = 0; i < TIMES(60); i++) {
            step_some(p, MOST);
            pair *one = &p[any(MOST)];
            if (any(8) == 0 && one->n > 40) cut_both(one, one->n - 1 - any(30));
        }
        for (int i = 0; i < MOST; i++) {
            ig_session_stats st = stats(p[i].together);
            n_hits += st.n_draft_hits;
            assert_int_equal(st.used_entries, stats(p[i].alone).used_entries);
            close_pair(&p[i]);
        }
        ig_cache_close(cache);
    }
    assert_true(n_hits > 50);
}

/* An answer that is expected as it comes, in part, or not at all. */
static void expected_answers(void **state) {
    enum { N = 60, N_PROMPT = 40 };
    int32_t prompt[N_PROMPT], answer[N], wrong[N], some[N];
    uint64_t n_hits[3] = {0};
    (void)state;
    for (int i = 0; i < N_PROMPT; i++) prompt[i] = any(N_VOCAB);
    for (int way = -1; way < 3; way++) {
        ig_session_options o = ig_session_defaults();
        ig_generate_options g = ig_generate_defaults();
        ig_sampler_options so = ig_sampler_defaults();
        ig_generate_result result;
        ig_sampler *sampler;
        ig_error err = {0};
        const int32_t *ids;
        const int32_t *const ways[] = {answer, some, wrong};
        o.n_ctx = 256;
        o.n_draft = way < 0 ? 0 : IG_DRAFT_MAX;
        so.temperature = 2;
        so.seed = 3;
        g.n_predict = N;
        g.ignore_end = true;
        if (way >= 0) g.expected = ways[way], g.n_expected = N;
        ig_session *s = open_session(&o);
        expect_ok(ig_sampler_open(&sampler, model, &so, &err), &err);
        put(s, prompt, N_PROMPT);
        expect_ok(ig_generate(&result, s, sampler, &g, &err), &err);
        assert_int_equal(ig_session_tokens(s, &ids), N_PROMPT + N);
        for (int i = 0; i < N && way < 0; i++) {
            answer[i] = ids[N_PROMPT + i];
            some[i] = i % 8 ? answer[i] : 0;
            wrong[i] = any(N_VOCAB);
        }
        assert_memory_equal(ids + N_PROMPT, answer, sizeof answer);
        ig_session_stats st = stats(s);
        if (way >= 0) n_hits[way] = st.n_draft_hits;
        assert_true(st.n_expected_hits <= st.n_draft_hits && st.n_expected_hits <= st.n_expected);
        assert_true(way != 0 || st.n_expected_hits > N - N / 8);
        assert_true(way >= 0 || !st.n_expected);
        ig_sampler_close(sampler);
        ig_session_close(s);
    }
    assert_true(n_hits[0] > N - N / 8 && n_hits[1] > N / 2 && n_hits[1] < n_hits[0] && n_hits[2] < n_hits[1]);
}

#define MODEL(test, name) \
    { name ": " #test, test, open_guessing, close_guessing, "tests/golden/models/" name }

#define DRAFTED(test, name) \
    { name ", drafted: " #test, test, open_drafting, close_drafting, "tests/golden/models/" name }

int main(void) {
    const struct CMUnitTest tests[] = {
        MODEL(guesses_change_nothing, "llama31"),
        MODEL(guesses_change_nothing, "mistral"),
        MODEL(guesses_change_nothing, "qwen3.5"),
        MODEL(guesses_change_nothing, "lfm2"),
        MODEL(guesses_change_nothing, "kimi-linear"),
        MODEL(guesses_change_nothing, "lfm3"),
        MODEL(guesses_change_nothing, "qwen3moe"),
        MODEL(guesses_change_nothing, "deepseek2"),
        MODEL(guesses_change_nothing, "gemma3"),
        MODEL(guesses_change_nothing, "llama4"),
        MODEL(guesses_change_nothing, "glm-dsa"),
        MODEL(guesses_change_nothing, "minimax-m3"),
        MODEL(in_little_ram, "llama31"),
        MODEL(in_little_ram, "mistral"),
        MODEL(in_little_ram, "llama4"),
        MODEL(in_little_ram, "glm4-lite"),
        MODEL(in_little_ram, "deepseek32"),
        MODEL(in_little_ram, "minimax-m3"),
        MODEL(among_others, "llama31"),
        MODEL(among_others, "mistral"),
        MODEL(among_others, "qwen3.5"),
        MODEL(among_others, "granitemoe"),
        MODEL(among_others, "mellum"),
        MODEL(among_others, "laguna"),
        MODEL(among_others, "granite4-h"),
        MODEL(among_others, "falcon-h1"),
        MODEL(a_guess_that_fails, "llama31"),
        MODEL(a_guess_that_fails, "mistral"),
        MODEL(a_guess_that_fails, "nemotron-h"),
        MODEL(expected_answers, "llama31"),
        DRAFTED(guesses_change_nothing, "llama31"),
        DRAFTED(guesses_change_nothing, "mistral"),
        DRAFTED(among_others, "llama31"),
        DRAFTED(among_others, "gemma3"),
        DRAFTED(among_others, "deepseek2"),
        DRAFTED(a_guess_that_fails, "llama31"),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
