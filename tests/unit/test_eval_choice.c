/* SPDX-License-Identifier: Apache-2.0
 *
 * Scores of choices on a tiny model, whose tokens are given as numbers: equal to those of one dense pass under `full`,
 * different under a small budget, and the same whatever the session read before.
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

#include "eval/choice.h"
#include "eval/perplexity.h"
#include "golden/tiny_session.h"

enum { N_CTX = 192, N_CONTEXT = 120, N_TEXT = 9 };

static int open_model(void **state) {
    (void)state;
    open_tiny(TINY_LLAMA, 2);
    return 0;
}

static ig_eval_reader open_reader(const char *policy) {
    ig_eval_reader r = {.n_vocab = N_VOCAB};
    ig_error err = {0};
    ig_session_options o = ig_session_defaults();
    o.n_ctx = N_CTX;
    o.n_batch = 64;
    o.cache.policy = policy;
    o.cache.budget = 0.1;
    o.cache.n_recent = 4;
    o.cache.n_sinks = 1;
    o.cache.n_dense_layers = 1;
    expect_ok(ig_session_open(&r.s, model, &o, &err), &err);
    return r;
}

/* A context by `seed`, and a text by `text_seed`. */
static ig_eval_pair make_pair(int32_t ids[N_CTX], int seed, int n_context, int text_seed, int n_text) {
    for (int i = 0; i < n_context; i++) ids[i] = (int32_t)((unsigned)(seed * 977 + i * 7919 + i * i * 31) % N_VOCAB);
    for (int i = 0; i < n_text; i++) ids[n_context + i] = (int32_t)((unsigned)(text_seed * 613 + i * 331) % N_VOCAB);
    return (ig_eval_pair){.ids = ids, .n = n_context + n_text, .n_context = n_context};
}

static double score(ig_eval_reader *r, const ig_eval_pair *pair) {
    double sum = 0;
    ig_error err = {0};
    expect_ok(ig_eval_score_pair(&sum, r, pair, &err), &err);
    return sum;
}

static double score_alone(const char *policy, const ig_eval_pair *pair) {
    ig_eval_reader r = open_reader(policy);
    double sum = score(&r, pair);
    ig_session_close(r.s);
    return sum;
}

typedef struct dense_sum {
    const ig_eval_pair *pair;
    double sum;
} dense_sum;

static bool add_rows(void *user, int first, int n_rows, const float *logits) {
    dense_sum *d = user;
    for (int i = first; i < first + n_rows; i++)
        if (i + 1 >= d->pair->n_context && i + 1 < d->pair->n)
            d->sum -= ig_eval_token_nll(logits + (size_t)(i - first) * N_VOCAB, N_VOCAB, d->pair->ids[i + 1]);
    return false;
}

static double score_dense(const ig_eval_pair *pair) {
    ig_eval_reader r = open_reader("full");
    dense_sum d = {pair, 0};
    ig_error err = {0};
    expect_ok(ig_session_sync_logits(r.s, pair->ids, pair->n, add_rows, &d, &err), &err);
    ig_session_close(r.s);
    return d.sum;
}

static void test_full_is_dense(void **state) {
    (void)state;
    int32_t ids[N_CTX];
    for (int k = 0; k < 3; k++) {
        int n_context[] = {N_CONTEXT, 2, 1}, n_text[] = {N_TEXT, 1, 4};
        ig_eval_pair pair = make_pair(ids, k, n_context[k], k + 5, n_text[k]);
        double dense = score_dense(&pair), ours = score_alone("full", &pair);
        assert_true(dense < -1);
        if (fabs(ours - dense) > 1e-3 * n_text[k]) fail_msg("pair %d: %.6f instead of %.6f", k, ours, dense);
    }
}

/* How much of the context is to be dense is nothing to a score that is computed as a prompt. */
static void test_dense_part_does_not_matter_to_full(void **state) {
    (void)state;
    int32_t ids[N_CTX];
    ig_eval_pair pair = make_pair(ids, 1, N_CONTEXT, 5, N_TEXT);
    double whole = score_alone("full", &pair);
    const int n_dense[] = {1, N_CONTEXT / 2, N_CONTEXT - 1, N_CONTEXT};
    for (int i = 0; i < 4; i++) {
        ig_eval_reader r = open_reader("full");
        pair.n_dense = n_dense[i];
        for (int round = 0; round < 2; round++) {
            double ours = score(&r, &pair);
            if (ours != whole) fail_msg("%d dense, round %d: %.9f instead of %.9f", pair.n_dense, round, ours, whole);
        }
        ig_session_close(r.s);
    }
}

static void test_policy_sees_first_token(void **state) {
    (void)state;
    int32_t ids[N_CTX];
    ig_eval_pair pair = make_pair(ids, 1, N_CONTEXT, 5, 1);
    assert_true(fabs(score_alone("infinigen", &pair) - score_alone("full", &pair)) > 1e-4);
}

/* A choice, a context that goes on with it, other choices after the first context, another context. Rows of a prompt
 * computed in other batches may differ in the last bits. */
static void test_history_does_not_matter(void **state) {
    (void)state;
    static int32_t ids[5][N_CTX];
    ig_eval_pair pairs[5] = {
        make_pair(ids[0], 1, N_CONTEXT, 5, N_TEXT),     make_pair(ids[1], 1, N_CONTEXT, 5, N_TEXT),
        make_pair(ids[2], 1, N_CONTEXT, 6, 1),          make_pair(ids[3], 1, N_CONTEXT, 7, 1),
        make_pair(ids[4], 2, N_CONTEXT / 2, 7, N_TEXT),
    };
    pairs[1].n_context = N_CONTEXT + N_TEXT - 2;
    for (int p = 0; p < 2; p++) {
        const char *policy = p ? "infinigen" : "full";
        ig_eval_reader r = open_reader(policy);
        for (int round = 0; round < 2; round++)
            for (int i = 0; i < 5; i++) {
                double ours = score(&r, &pairs[i]), alone = score_alone(policy, &pairs[i]);
                if (fabs(ours - alone) > 1e-5) fail_msg("%s, pair %d: %.9f instead of %.9f", policy, i, ours, alone);
            }
        ig_session_close(r.s);
    }
}

static bool stop(void) { return true; }

static void test_interrupted(void **state) {
    (void)state;
    int32_t ids[N_CTX];
    double sum;
    ig_error err = {0};
    ig_eval_pair pair = make_pair(ids, 1, N_CONTEXT, 5, N_TEXT);
    ig_eval_reader r = open_reader("infinigen");
    r.stopped = stop;
    assert_int_equal(ig_eval_score_pair(&sum, &r, &pair, &err), IG_E_INTERRUPTED);
    r.stopped = NULL;
    assert_true(fabs(score(&r, &pair) - score_alone("infinigen", &pair)) < 1e-5);
    ig_session_close(r.s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full_is_dense),
        cmocka_unit_test(test_dense_part_does_not_matter_to_full),
        cmocka_unit_test(test_policy_sees_first_token),
        cmocka_unit_test(test_history_does_not_matter),
        cmocka_unit_test(test_interrupted),
    };
    return cmocka_run_group_tests(tests, open_model, close_tiny);
}
