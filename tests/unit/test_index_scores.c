/* SPDX-License-Identifier: Apache-2.0
 *
 * The policy `indexer` against the formula of DeepSeek Sparse Attention, computed here in double: which entries it
 * chooses, whole lists and in parts, of layers with keys of their own and of those that go by another's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/half.h"
#include "base/random.h"
#include "cpu_level.h"
#include "policy/policy.h"

enum { LAYERS = 3, HEADS = 7, DIM = 24, CHOSEN = 150, N_CTX = 2600 };

static const int windows[LAYERS] = {0};
static const uint16_t layer_of[LAYERS] = {0, 0, 2};

typedef struct world {
    uint16_t keys[LAYERS][N_CTX][DIM];
    float q[HEADS][DIM], weights[HEADS];
} world;

static world w;

static void make(uint64_t seed) {
    ig_random r = {seed};
    for (int l = 0; l < LAYERS; l++)
        for (int t = 0; t < N_CTX; t++)
            for (int i = 0; i < DIM; i++) w.keys[l][t][i] = ig_f32_f16((float)(2 * ig_random_unit(&r) - 1));
    for (int h = 0; h < HEADS; h++) {
        w.weights[h] = (float)(2 * ig_random_unit(&r) - 1.2); /* some below 0 */
        for (int i = 0; i < DIM; i++) w.q[h][i] = (float)(2 * ig_random_unit(&r) - 1);
    }
}

static double score(int layer, int t) {
    double sum = 0;
    for (int h = 0; h < HEADS; h++) {
        double dot = 0;
        for (int i = 0; i < DIM; i++) dot += (double)w.q[h][i] * (double)ig_f16_f32(w.keys[layer_of[layer]][t][i]);
        if (dot > 0) sum += (double)w.weights[h] * dot;
    }
    return sum;
}

static ig_policy *open_policy(double budget, int entries, void **scratch) {
    ig_policy_shape shape = {.n_layers = LAYERS,
                             .n_heads = 4,
                             .n_kv_heads = 1,
                             .head_dim = 64,
                             .n_ctx = N_CTX,
                             .window = windows,
                             .index = {HEADS, DIM, CHOSEN},
                             .index_layer = layer_of,
                             .kernels = ig_kernels_get(test_cpu_level())};
    ig_cache_options o = {.policy = "indexer", .budget = budget, .budget_entries = entries, .n_dense_layers = 2};
    const ig_policy_ops *ops;
    ig_policy *p = NULL;
    ig_error err = {0};
    if (ig_policy_find(&ops, &o, &err) || ig_policy_open(&p, ops, &shape, &o, &err)) fail_msg("%s", err.text);
    *scratch = aligned_alloc(64, (ops->scratch_bytes(&shape) + 63) / 64 * 64);
    assert_non_null(*scratch);
    return p;
}

/* Chooses of n entries. Each that it leaves out must be no better than each that it takes, but for rounding. */
static void check(ig_policy *p, void *scratch, int layer, int n, int count) {
    static int32_t index[N_CTX];
    bool is_taken[N_CTX] = {false};
    ig_choosing x = {.layer = layer,
                     .index_q = w.q[0],
                     .index_weights = w.weights,
                     .e = {.n = n, .n_slots = n, .has_own = true},
                     .index = index,
                     .scratch = scratch};
    ig_policy_choose(p, &x);
    assert_int_equal(x.n, count);
    assert_int_equal(p->ops->takes_all(p, n), count == n);
    if (count == n) return;
    double worst = 1e9, best = -1e9;
    for (int i = 0; i < x.n; i++) {
        assert_true(index[i] >= 0 && index[i] < n && (i == 0 || index[i] > index[i - 1]));
        is_taken[index[i]] = true;
    }
    for (int t = 0; t < n; t++) {
        double s = score(layer, t);
        if (is_taken[t] && s < worst) worst = s;
        if (!is_taken[t] && s > best) best = s;
    }
    assert_true(worst > best - 1e-5);
}

static void as_the_formula(void **state) {
    static const int lengths[] = {1, 100, 150, 151, 200, 1024, 1025, 2047, 2048, N_CTX};
    void *scratch;
    (void)state;
    for (uint64_t seed = 1; seed < 4; seed++) {
        ig_policy *p = open_policy(0, 0, &scratch);
        make(seed);
        for (int t = N_CTX; t-- > 0;) /* in any order */
            for (int l = 0; l < LAYERS; l++) p->ops->append_index(p, l, t, w.keys[l][t]);
        for (int l = 0; l < LAYERS; l++)
            for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
                check(p, scratch, l, lengths[i], lengths[i] < CHOSEN ? lengths[i] : CHOSEN);
        free(scratch);
        ig_policy_close(p);
    }
}

static void other_budgets(void **state) {
    void *scratch;
    (void)state;
    make(9);
    for (int i = 0; i < 2; i++) {
        ig_policy *p = i ? open_policy(0.25, 0, &scratch) : open_policy(0, 40, &scratch);
        for (int t = 0; t < 400; t++) p->ops->append_index(p, 0, t, w.keys[0][t]);
        check(p, scratch, 0, 400, i ? 100 : 40);
        check(p, scratch, 1, 40, i ? 10 : 40);
        free(scratch);
        ig_policy_close(p);
    }
}

/* No layer is dense, whatever the options say; and what it takes is of layers with keys of their own. */
static void what_it_takes(void **state) {
    void *scratch;
    (void)state;
    ig_policy *p = open_policy(0, 0, &scratch);
    for (int l = 0; l < LAYERS; l++) assert_false(ig_policy_is_dense(p, l));
    assert_int_equal(ig_policy_bytes(p, 100), 2 * 112 * DIM * sizeof(uint16_t)); /* whole units */
    free(scratch);
    ig_policy_close(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_the_formula),
        cmocka_unit_test(other_budgets),
        cmocka_unit_test(what_it_takes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
