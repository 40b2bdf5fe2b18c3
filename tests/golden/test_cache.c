/* SPDX-License-Identifier: Apache-2.0
 *
 * Sessions that lie in one cache: whatever they share, whoever computed it, wherever it lies and whatever others do,
 * their logits are those of a session by itself, bit by bit; and what they have in common is there once.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "golden/cache_session.h"
#include "sanitized.h"
#include "unit/count_memory.h"

enum { SESSIONS = 8, CYCLES = TIMES(10000) };

static void prefixes_are_taken(void **state) {
    const variant *v = *state;
    ig_session_options o = options_of(v);
    ig_cache *c = open_cache(&o, v, SESSIONS);
    ig_session *s[SESSIONS], *alone[SESSIONS];
    int32_t ids[SESSIONS][N_CTX], next[SESSIONS];
    for (int i = 0; i < SESSIONS; i++) {
        fill(ids[i], i, i < 4 ? 150 : 135, N_CTX);
        s[i] = open_in(c, o);
        alone[i] = open_alone(v);
        prompt_both(s[i], alone[i], ids[i], 160 + i);
        assert_int_equal(stats(s[i]).n_taken > 0, i > 0 && v->shares);
    }
    for (int t = 0; t < 20; t++) {
        ig_error err = {0};
        for (int i = 0; i < SESSIONS; i++) next[i] = ids[i][160 + i + t];
        expect_ok(ig_session_decode(s, next, SESSIONS, &err), &err);
        for (int i = 0; i < SESSIONS; i++) {
            step(alone[i], next[i]);
            same(s[i], alone[i]);
        }
    }
    /* What was decoded is nobody else's, and not in the way of what is. */
    for (int i = 0; i < SESSIONS; i++) {
        if (v->shares) cut(s[i], 160 + i);
        prompt_both(s[i], alone[i], ids[i], v->shares ? 240 : 1);
    }
    for (int i = 0; i < SESSIONS; i++) {
        ig_session_close(s[i]);
        ig_session_close(alone[i]);
    }
    /* What closed sessions had is still there. */
    if (v->shares) assert_true(cache_stats(c).kept_tokens > 0 && cache_stats(c).tokens == 0);
    ig_session *late = open_in(c, o), *by_itself = open_alone(v);
    prompt_both(late, by_itself, ids[5], 250);
    if (v->shares) assert_true(stats(late).n_taken >= 128);
    ig_session_close(late);
    ig_session_close(by_itself);
    ig_cache_close(c);
}

/* A session that ends within a piece that others hold goes on in a copy. */
static void a_cut_copies(void **state) {
    const variant *v = *state;
    ig_session_options o = options_of(v);
    ig_cache *c = open_cache(&o, v, 3);
    ig_session *a = open_in(c, o), *b = open_in(c, o), *d = open_alone(v), *e = open_alone(v);
    int32_t ids[N_CTX], other[N_CTX];
    fill(ids, 1, 200, N_CTX);
    prompt_both(a, d, ids, 200);
    prompt_both(b, e, ids, 200);
    for (int n = 150; n > 20; n -= 37) {
        memcpy(other, ids, sizeof ids);
        fill(other + n, n, 0, N_CTX - n);
        cut(a, n);
        cut(d, n);
        for (int t = n; t < n + 24; t++) {
            step(a, other[t]);
            step(d, other[t]);
            same(a, d);
        }
        step(b, ids[200 + n % 7]);
        step(e, ids[200 + n % 7]);
        same(b, e);
        cut(a, n);
        cut(d, n);
    }
    /* A prompt after a cut may be taken again from the pieces that are there. */
    prompt_both(a, d, ids, 200);
    ig_session_close(a);
    ig_session_close(b);
    ig_session_close(d);
    ig_session_close(e);
    ig_cache_close(c);
}

/* Another policy finds K and V, and makes of them what it keeps beside them. */
static void policies_share_keys_and_values(void **state) {
    const variant *v = *state;
    static const char *const names[] = {"full", "quest", "infinigen", "oracle", "window", "infinigen"};
    ig_session_options o = options_of(v);
    ig_cache *c = open_cache(&o, v, 8);
    ig_session *first = open_in(c, o);
    int32_t ids[N_CTX];
    fill(ids, 1, 0, N_CTX);
    put(first, ids, 200);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        variant other = {.policy = names[i], .type = v->type};
        ig_session_options p = o;
        p.cache.policy = names[i];
        p.cache.no_rest = i == 5;
        ig_session *s = open_in(c, p);
        p = options_of(&other);
        p.cache.no_rest = i == 5;
        ig_session *alone = open_session(&p);
        prompt_both(s, alone, ids, 210);
        assert_int_equal(stats(s).n_taken, 192); /* twelve pieces of 16, or three of 64 */
        for (int t = 210; t < 230; t++) {
            step(s, ids[t]);
            step(alone, ids[t]);
            same(s, alone);
        }
        ig_error err = {0};
        p.cache.policy = i % 2 ? "infinigen" : "quest";
        expect_ok(ig_session_set_cache(alone, &p.cache, &err), &err);
        p.cache = o.cache;
        p.cache.no_rest = i == 5;
        p.cache.policy = i % 2 ? "infinigen" : "quest";
        expect_ok(ig_session_set_cache(s, &p.cache, &err), &err);
        for (int t = 230; t < 235; t++) {
            step(s, ids[t]);
            step(alone, ids[t]);
            same(s, alone);
        }
        ig_session_close(s);
        ig_session_close(alone);
    }
    ig_session_close(first);
    ig_cache_close(c);
}

/* More text passes through than there is room for; sessions rest while others work. */
static void resting_sessions_come_back(void **state) {
    const variant *v = *state;
    ig_session_options o = options_of(v);
    ig_cache *c = open_cache(&o, v, 4);
    ig_cache_plan_info plan;
    ig_error err = {0};
    expect_ok(ig_cache_plan(&plan, model, &o, &err), &err);
    ig_session *s[4], *alone[4];
    int32_t ids[4][N_CTX];
    for (int i = 0; i < 4; i++) {
        fill(ids[i], i + 1, 0, N_CTX);
        s[i] = open_in(c, o);
        alone[i] = open_alone(v);
        prompt_both(s[i], alone[i], ids[i], 200);
    }
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < 4; i++)
            for (int t = 0; t < 8; t++) {
                int32_t id = ids[i][200 + round * 8 + t];
                step(s[i], id);
                step(alone[i], id);
                same(s[i], alone[i]);
                assert_true(cache_stats(c).kv_bytes <= plan.kv);
                assert_true(cache_stats(c).sketch_bytes <= plan.sketch);
            }
    if (v->on_disk) { /* what was moved was moved for one of them */
        uint64_t read = 0;
        for (int i = 0; i < 4; i++) {
            read += stats(s[i]).read_bytes;
            assert_true(stats(s[i]).written_bytes > 0);
            assert_true(stats(s[i]).kv_bytes < cache_stats(c).kv_bytes);
        }
        assert_true(cache_stats(c).demoted > 0 && read <= cache_stats(c).read_bytes);
        assert_true(read * 10 >= cache_stats(c).read_bytes * 9);
    }
    for (int i = 0; i < 4; i++) {
        ig_session_close(s[i]);
        ig_session_close(alone[i]);
    }
    for (int i = 0; i < TIMES(40); i++) { /* kept ones make room */
        int32_t text[N_CTX];
        fill(text, 100 + i, i % 3 * 20, N_CTX);
        ig_session *x = open_in(c, o), *y = open_alone(v);
        prompt_both(x, y, text, 100 + i * 3);
        assert_true(cache_stats(c).kv_bytes <= plan.kv);
        ig_session_close(x);
        ig_session_close(y);
    }
    ig_cache_close(c);
}

/* K, V and sketch of what is common are there once. */
static void common_text_is_there_once(void **state) {
    const variant v = {.policy = "infinigen"};
    enum { COMMON = 200, OWN = 30 };
    ig_session_options o = options_of(&v);
    ig_cache *c = open_cache(&o, &v, SESSIONS);
    ig_session *s[SESSIONS];
    int32_t ids[N_CTX];
    (void)state;
    for (int i = 0; i < SESSIONS; i++) {
        s[i] = open_in(c, o);
        fill(ids, i + 1, COMMON, N_CTX);
        put(s[i], ids, COMMON + OWN);
    }
    uint64_t piece = 16;
    while (COMMON + OWN + (SESSIONS - 1) * OWN > 0 && cache_stats(c).tokens % (piece * 2) == 0 && piece < 64)
        piece *= 2;
    /* Every session may have begun a piece of its own at either end of what is its own. */
    assert_true(cache_stats(c).tokens <= COMMON + SESSIONS * (OWN + 2 * piece));
    assert_true(cache_stats(c).taken_tokens >= (SESSIONS - 1) * (COMMON - piece));
    ig_cache_stats before = cache_stats(c);
    for (int i = 1; i < SESSIONS; i++) ig_session_close(s[i]);
    assert_true(cache_stats(c).tokens < before.tokens);
    ig_session_close(s[0]);
    assert_true(cache_stats(c).tokens == 0);
    ig_cache_close(c);
}

static void a_salt_isolates(void **state) {
    const variant v = {.policy = "infinigen"};
    ig_session_options o = options_of(&v);
    ig_cache *c = open_cache(&o, &v, 3);
    int32_t ids[N_CTX];
    (void)state;
    fill(ids, 1, 0, N_CTX);
    ig_session *plain = open_in(c, o);
    put(plain, ids, 200);
    o.cache.salt = "one";
    ig_session *salted = open_in(c, o), *same_salt;
    put(salted, ids, 200);
    assert_true(stats(salted).n_taken == 0);
    char copy[] = "one";
    o.cache.salt = copy;
    same_salt = open_in(c, o);
    copy[0] = 'x'; /* it is not looked at any more */
    put(same_salt, ids, 200);
    assert_true(stats(same_salt).n_taken > 0);
    same(plain, same_salt);
    ig_session_close(plain);
    ig_session_close(salted);
    ig_session_close(same_salt);
    ig_cache_close(c);
}

/* A layer with a sliding window is chosen from in contexts no longer than the window, and not in others: sessions of
 * both kinds share keys and values, but nothing that a policy knows of them. */
static void contexts_within_a_window(void **state) {
    enum { WINDOW = 48, LONG = 64, PROMPT = 40 };
    const variant v = {.policy = "infinigen"};
    ig_error err = {0};
    ig_model *llama = model;
    int32_t ids[LONG];
    (void)state;
    expect_ok(ig_model_open(&model, ctx, TINY_MISTRAL, NULL, &err), &err);
    ig_session_options o = options_of(&v);
    o.n_ctx = LONG;
    ig_cache *c = open_cache(&o, &v, 2);
    fill(ids, 1, 0, LONG);
    ig_session *first = open_in(c, o);
    put(first, ids, LONG - 4);
    step(first, 7);
    o.n_ctx = WINDOW;
    ig_session *second = open_in(c, o), *alone = (o.cache.memory.n_sessions = 0, open_session(&o));
    prompt_both(second, alone, ids, PROMPT);
    assert_true(stats(second).n_taken > 0);
    for (int i = PROMPT; i < WINDOW; i++) {
        step(second, ids[i] / 2), step(alone, ids[i] / 2);
        same(second, alone);
    }
    ig_session_close(first), ig_session_close(second), ig_session_close(alone);
    ig_cache_close(c);
    ig_model_close(model);
    model = llama;
}

/* Whatever sessions do in whatever order. */
static void any_order(void **state) {
    const variant *v = *state;
    enum { OPEN = 4 };
    ig_session_options o = options_of(v);
    ig_cache *c = open_cache(&o, v, OPEN);
    ig_session *s[OPEN] = {0}, *alone[OPEN] = {0};
    int held[OPEN] = {0};
    uint64_t random = 7;
    for (int i = 0; i < TIMES(300); i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        unsigned r = (unsigned)(random >> 40);
        int k = (int)(r % OPEN);
        int32_t ids[N_CTX];
        if (!s[k]) {
            s[k] = open_in(c, o);
            alone[k] = open_alone(v);
            held[k] = 0;
        }
        switch (r / OPEN % 4) {
            case 0: /* another prompt, of a few that have much in common */
                fill(ids, (int)(r / 16 % 5), (int)(r / 80 % 4) * 45, N_CTX);
                held[k] = 20 + (int)(r / 320 % 200);
                prompt_both(s[k], alone[k], ids, held[k]);
                break;
            case 1:
                for (int t = 0; t < 5 && held[k] < N_CTX; t++, held[k]++) {
                    step(s[k], token((int)(r / 16), t));
                    step(alone[k], token((int)(r / 16), t));
                    same(s[k], alone[k]);
                }
                break;
            case 2:
                if (held[k] > 1) held[k] -= (int)(r / 16 % (unsigned)held[k]) / 2;
                cut(s[k], held[k]);
                cut(alone[k], held[k]);
                break;
            default:
                ig_session_close(s[k]);
                ig_session_close(alone[k]);
                s[k] = NULL;
        }
    }
    for (int k = 0; k < OPEN; k++) {
        if (!s[k]) continue;
        ig_session_close(s[k]);
        ig_session_close(alone[k]);
    }
    assert_true(cache_stats(c).tokens == 0 && cache_stats(c).n_sessions == 0);
    ig_cache_close(c);
}

/* Sessions begin one after the other with pieces of prompts, while those before them decode. */
static void steps_are_mixed(void **state) {
    const variant *v = *state;
    enum { PROMPT = 150, STEPS = 30 };
    ig_session_options o = options_of(v);
    ig_cache *c = open_cache(&o, v, SESSIONS);
    ig_session *s[SESSIONS], *alone[SESSIONS];
    int32_t ids[SESSIONS][N_CTX];
    int held[SESSIONS] = {0};
    for (int i = 0; i < SESSIONS; i++) {
        fill(ids[i], i + 1, 130, N_CTX);
        s[i] = open_in(c, o);
        alone[i] = open_alone(v);
        put(alone[i], ids[i], PROMPT + i);
    }
    for (int n_open = 1; held[SESSIONS - 1] < PROMPT + SESSIONS + STEPS;) {
        ig_batch_item items[SESSIONS];
        int n = 0, room = 40;
        for (int i = 0; i < n_open; i++) {
            ig_error err = {0};
            bool prompt = held[i] < PROMPT + i;
            if (held[i] == 0) expect_ok(ig_session_reuse(&held[i], s[i], ids[i], PROMPT + i, &err), &err);
            if (held[i] >= PROMPT + i + STEPS + SESSIONS) continue;
            int left = PROMPT + i - held[i], piece = !prompt ? 1 : left < room ? left : room;
            if (prompt) room -= piece;
            if (!piece) continue;
            items[n++] = (ig_batch_item){.session = s[i], .ids = ids[i] + held[i], .n = piece, .prompt = prompt};
            held[i] += piece;
        }
        ig_error err = {0};
        expect_ok(ig_batch_step(items, (size_t)n, &err), &err);
        for (int k = 0, i = 0; k < n; k++, i++) {
            while (s[i] != items[k].session) i++;
            expect_ok(items[k].status, &items[k].error);
            if (!items[k].prompt) step(alone[i], items[k].ids[0]);
            if (held[i] >= PROMPT + i) same(s[i], alone[i]);
        }
        if (n_open < SESSIONS && held[n_open - 1] > 60) n_open++;
    }
    if (v->shares) assert_true(stats(s[SESSIONS - 1]).n_taken >= 128);
    for (int i = 0; i < SESSIONS; i++) {
        ig_session_close(s[i]);
        ig_session_close(alone[i]);
    }
    ig_cache_close(c);
}

/* Opening and closing leaves nothing behind. */
static void cycles_do_not_grow(void **state) {
    const variant v = {.policy = "infinigen"};
    ig_session_options o = options_of(&v);
    ig_cache *c = open_cache(&o, &v, 2);
    ig_cache_stats first = {0};
    int32_t ids[N_CTX];
    (void)state;
    for (int i = 0; i < CYCLES; i++) {
        ig_session *s = open_in(c, o);
        if (i % (CYCLES / 100) == 0) {
            fill(ids, i / (CYCLES / 100) % 7, 20, N_CTX);
            put(s, ids, 40);
        }
        ig_session_close(s);
        ig_cache_stats now = cache_stats(c);
        if (i == CYCLES / 5) first = now;
        assert_true(now.tokens == 0 && now.n_sessions == 0);
        if (i > CYCLES / 5) assert_true(now.kv_bytes <= first.kv_bytes && now.sketch_bytes <= first.sketch_bytes);
    }
    ig_cache_close(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH(prefixes_are_taken, "infinigen", "infinigen", "f16", false, true),
        WITH(prefixes_are_taken, "infinigen q8", "infinigen", "q8", false, true),
        WITH(prefixes_are_taken, "infinigen, disk", "infinigen", "f16", true, true),
        WITH(prefixes_are_taken, "full q4, disk", "full", "q4", true, true),
        WITH(prefixes_are_taken, "full", "full", "f16", false, true),
        WITH(prefixes_are_taken, "quest, disk", "quest", "f16", true, true),
        WITH(prefixes_are_taken, "oracle", "oracle", "f16", false, true),
        WITH(prefixes_are_taken, "window", "window", "q8", true, true),
        WITH(prefixes_are_taken, "h2o", "h2o", "f16", false, false),
        WITH(prefixes_are_taken, "snapkv", "snapkv", "f16", false, false),
        WITH(prefixes_are_taken, "osdi24", "infinigen-osdi24", "f16", true, false),
        WITH(a_cut_copies, "infinigen", "infinigen", "f16", false, true),
        WITH(a_cut_copies, "infinigen q4, disk", "infinigen", "q4", true, true),
        WITH(a_cut_copies, "quest, disk", "quest", "f16", true, true),
        WITH(policies_share_keys_and_values, "f16", "infinigen", "f16", false, true),
        WITH(policies_share_keys_and_values, "disk", "full", "f16", true, true),
        WITH(resting_sessions_come_back, "infinigen", "infinigen", "f16", false, true),
        WITH(resting_sessions_come_back, "infinigen, disk", "infinigen", "f16", true, true),
        WITH(resting_sessions_come_back, "full q8, disk", "full", "q8", true, true),
        cmocka_unit_test(common_text_is_there_once),
        cmocka_unit_test(a_salt_isolates),
        cmocka_unit_test(contexts_within_a_window),
        WITH(any_order, "infinigen", "infinigen", "f16", false, true),
        WITH(any_order, "infinigen, disk", "infinigen", "f16", true, true),
        WITH(any_order, "quest q8, disk", "quest", "q8", true, true),
        WITH(any_order, "full", "full", "f16", false, true),
        WITH(steps_are_mixed, "infinigen", "infinigen", "f16", false, true),
        WITH(steps_are_mixed, "infinigen q8, disk", "infinigen", "q8", true, true),
        WITH(steps_are_mixed, "infinigen, disk", "infinigen", "f16", true, true),
        WITH(steps_are_mixed, "full", "full", "f16", false, true),
        WITH(steps_are_mixed, "quest, disk", "quest", "f16", true, true),
        WITH(steps_are_mixed, "osdi24, disk", "infinigen-osdi24", "f16", true, false),
        cmocka_unit_test(cycles_do_not_grow),
    };
    return cmocka_run_group_tests(tests, open_tiny_and_folder, close_tiny_and_folder);
}
