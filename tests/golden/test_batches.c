/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps of several sessions, pieces of prompts among single tokens: each session gets the bits that it gets alone, and
 * what cannot be asked of one changes nothing for the others. Faults while a step is computed are in
 * test_batch_faults.c.
 */
#define _GNU_SOURCE
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "golden/batch_pairs.h"

/* ---- steps in which nothing fails ----------------------------------------------------------- */

static void each_as_if_alone(void **state) {
    enum { N_ROUNDS = TIMES(20) };
    static pair p[MOST];
    (void)state;
    for (int i = 0; i < MOST; i++) {
        open_pair(&p[i], &kinds[(size_t)i % IG_COUNT(kinds)], folder);
        if (i % 5) restart(&p[i], i % 7 ? 1 + i * 12 : 530); /* others begin within a step */
    }
    for (int round = 0; round < N_ROUNDS; round++) step_some(p, 1 + any(MOST));
    for (int i = 0; i < MOST; i++) close_pair(&p[i]);
}

/* Tokens are counted as what they were, and a step's seconds once. */
static void statistics(void **state) {
    pair p[3];
    int32_t ids[3][MOST_PIECE] = {{0}};
    (void)state;
    for (int i = 0; i < 3; i++) {
        open_pair(&p[i], &kinds[0], folder);
        restart(&p[i], 200);
    }
    ig_session_stats before[3], after[3];
    for (int i = 0; i < 3; i++) before[i] = stats(p[i].together);
    ig_batch_item items[3] = {{.session = p[0].together, .ids = ids[0], .n = 1},
                              {.session = p[1].together, .ids = ids[1], .n = 20, .prompt = true},
                              {.session = p[2].together, .ids = ids[2], .n = 1, .prompt = true}};
    run_step(items, 3);
    for (int i = 0; i < 3; i++) after[i] = stats(p[i].together);
    assert_int_equal(after[0].n_decoded - before[0].n_decoded, 1);
    assert_int_equal(after[0].n_prefilled - before[0].n_prefilled, 0);
    assert_int_equal(after[1].n_prefilled - before[1].n_prefilled, 20);
    assert_int_equal(after[1].n_decoded - before[1].n_decoded, 0);
    assert_int_equal(after[2].n_prefilled - before[2].n_prefilled, 1);
    double parts = 0;
    for (int k = 0; k < IG_STEP_PARTS; k++) {
        assert_true(after[0].parts[k].seconds >= 0 && after[1].parts[k].seconds >= before[1].parts[k].seconds);
        parts += after[0].parts[k].seconds;
    }
    assert_true(fabs(after[0].decode_seconds - parts) <= 1e-9 && after[0].parts[IG_STEP_FFN].seconds > 0);
    if (!test_device()) /* a GPU's work is no task */
        assert_true(after[0].parts[IG_STEP_FFN].n_tasks > 0 && after[0].parts[IG_STEP_FFN].busy_seconds > 0);
    assert_true(after[0].parts[IG_STEP_FFN].busy_seconds <= 2 * after[0].parts[IG_STEP_FFN].seconds + 1e-6);
    assert_true(after[0].decode_seconds > 0 && after[0].prefill_seconds == before[0].prefill_seconds);
    double one = after[2].prefill_seconds - before[2].prefill_seconds;
    double twenty = after[1].prefill_seconds - before[1].prefill_seconds;
    assert_true(one > 0 && fabs(twenty - 20 * one) < 1e-9);
    for (int i = 0; i < 3; i++) follow(&p[i], &items[i]);
    for (int i = 0; i < 3; i++) close_pair(&p[i]);
}
/* ---- steps that some cannot take part in ------------------------------------------------------- */

/* Of a step one item is harmed; it fails, with this status, and nothing changes for its session. */
static void refused_among_others(ig_batch_item *items, int n, pair *p, const int *which, int victim, ig_status wanted) {
    run_step(items, n);
    for (int i = 0; i < n; i++) {
        if (i == victim) {
            if (items[i].status != wanted || items[i].error.status != wanted)
                fail_msg("%d: %s", (int)items[i].status, items[i].error.text);
            assert_int_not_equal(items[i].error.text[0], 0);
            agree(&p[which[i]]);
            continue;
        }
        expect_ok(items[i].status, &items[i].error);
        follow(&p[which[i]], &items[i]);
    }
}

/* Refused before the step: it is as if it had not been asked for, also by a session that a failed step would empty. */
static void what_cannot_be_asked(void **state) {
    enum { N = (int)IG_COUNT(kinds), N_ROUNDS = TIMES(24) };
    static int32_t too_many[N_CTX];
    pair p[N];
    int n_tried = 0;
    (void)state;
    for (int i = 0; i < N; i++) {
        open_pair(&p[i], &kinds[i], folder);
        restart(&p[i], i % 3 ? 10 + i * 10 : n_ctx - 2 - i);
    }
    for (int round = 0; round < N_ROUNDS; round++) {
        ig_batch_item items[MOST];
        int32_t ids[MOST][MOST_PIECE];
        int which[MOST], n = ask_some(p, N, items, ids, which);
        if (!n) continue;
        int v = any(n), left = n_ctx - p[which[v]].n;
        ig_batch_item *x = &items[v];
        if (left + 1 <= MOST_PIECE && any(2)) {
            x->ids = too_many;
            x->n = left + 1;
            x->prompt = left > 0 || any(2);
            int rows = 0;
            for (int i = 0; i < n; i++) rows += items[i].n;
            if (rows > N_BATCH) continue;
            refused_among_others(items, n, p, which, v, IG_E_LIMIT);
        } else {
            ids[v][any(x->n)] = any(2) ? -1 : N_VOCAB;
            refused_among_others(items, n, p, which, v, IG_E_ARG);
        }
        n_tried++;
    }
    assert_true(n_tried > N_ROUNDS / 2);
    for (int i = 0; i < N; i++) close_pair(&p[i]);
}

/* What the whole call may not be is said by every item. */
static void refused_as_a_whole(void **state) {
    pair p[2];
    int32_t ids[N_BATCH + 1] = {0};
    ig_error err = {0};
    (void)state;
    for (int i = 0; i < 2; i++) {
        open_pair(&p[i], &kinds[i], folder);
        restart(&p[i], 50);
    }
    for (int try = 0; try < 2; try++) {
        ig_batch_item items[2] = {{.session = p[0].together, .ids = ids, .n = 1},
                                  {.session = p[1].together, .ids = ids, .n = N_BATCH, .prompt = true}};
        if (try) items[1] = items[0];
        ig_status status = ig_batch_step(items, 2, &err);
        assert_int_equal(status, try ? IG_E_ARG : IG_E_LIMIT);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(items[i].status, status);
            assert_string_equal(items[i].error.text, err.text);
            agree(&p[i]);
        }
    }
    ig_batch_item all = {.session = p[0].together, .ids = ids, .n = N_BATCH, .prompt = true};
    run_step(&all, 1);
    expect_ok(all.status, &all.error);
    follow(&p[0], &all);
    for (int i = 0; i < 2; i++) close_pair(&p[i]);
}
static int open_folder(void **state) {
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int close_folder(void **state) {
    (void)state;
    return rmdir(folder);
}

static int open_llama_single(void **state) { return (void)state, set_up(TINY_LLAMA, 1, N_CTX); }

int main(void) {
    if (access(TINY_LLAMA, R_OK) != 0) return 77;
#define ALONE(what, path) \
    { "each as if alone, " what, each_as_if_alone, open_model, close_tiny, path }
    const struct CMUnitTest tests[] = {
        {"each as if alone, a thread", each_as_if_alone, open_llama_single, close_tiny, NULL},
        ALONE("two threads", TINY_LLAMA),
        ALONE("a sliding window", TINY_MISTRAL),
        ALONE("two sets of frequencies", "tests/golden/models/gemma3"),
        ALONE("norms of parts alone", "tests/golden/models/olmo3"),
        ALONE("layers that do not rotate", "tests/golden/models/smollm3"),
        ALONE("experts", "tests/golden/models/olmoe"),
        ALONE("an expert for all", "tests/golden/models/glm4moe"),
        ALONE("gated attention", "tests/golden/models/afmoe"),
        ALONE("queries that grow", "tests/golden/models/ministral3"),
        ALONE("recurrences", "tests/golden/models/qwen3.5"),
        ALONE("short convolutions", "tests/golden/models/lfm2-moe"),
        ALONE("short convolutions, windows, gates of heads", "tests/golden/models/lfm3"),
        ALONE("Mamba 2", "tests/golden/models/granite4-h"),
        ALONE("Mamba 2 beside attention", "tests/golden/models/falcon-h1"),
        ALONE("Kimi Delta, latents", "tests/golden/models/kimi-linear"),
        ALONE("layers that have no feed-forward part", "tests/golden/models/nemotron-h-moe"),
        ALONE("experts beside, other heads", "tests/golden/models/gemma4-moe"),
        ALONE("other heads of queries, gates of heads", "tests/golden/models/laguna"),
        ALONE("layers that share keys", "tests/golden/models/gemma4-e"),
        ALONE("latents", "tests/golden/models/glm4-lite"),
        ALONE("chunks, queries that grow where they do not rotate", "tests/golden/models/llama4"),
        ALONE("shares of what experts read", "tests/golden/models/llama4-moe/model.gguf"),
        ALONE("a norm for each of both parts", "tests/golden/models/gpt-neox"),
        ALONE("an indexer", "tests/golden/models/glm-dsa"),
        ALONE("an indexer of blocks", "tests/golden/models/minimax-m3"),
        cmocka_unit_test_setup_teardown(statistics, open_llama, close_tiny),
        cmocka_unit_test_setup_teardown(what_cannot_be_asked, open_llama_short, close_tiny),
        cmocka_unit_test_setup_teardown(refused_as_a_whole, open_llama_short, close_tiny),
    };
    return cmocka_run_group_tests(tests, open_folder, close_folder);
}
