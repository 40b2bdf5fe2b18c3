/* SPDX-License-Identifier: Apache-2.0
 *
 * The policy `indexer` against formulas computed here in double: that of DeepSeek Sparse Attention, and that of MiniMax
 * M3, which chooses blocks. Which entries it chooses, whole lists and in parts, of layers with keys of their own and of
 * those that go by another's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/half.h"
#include "base/random.h"
#include "cpu_level.h"
#include "policy/policy.h"

enum { LAYERS = 3, HEADS = 7, DIM = 24, CHOSEN = 150, N_CTX = 2600 };
/* With blocks. */
enum { KV_HEADS = 3, BLOCK = 24, BLOCKS = 6, LOCAL = 2 };

static const int windows[LAYERS] = {0};
static const uint16_t layer_of[LAYERS] = {0, 0, 2}, some_have_none[LAYERS] = {IG_NO_INDEX, 1, 2};

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

static ig_policy *open_shape(ig_policy_shape shape, double budget, int entries, void **scratch) {
    shape.n_layers = LAYERS;
    shape.head_dim = 64;
    shape.n_ctx = N_CTX;
    shape.window = windows;
    shape.kernels = ig_kernels_get(test_cpu_level());
    ig_cache_options o = {.policy = "indexer", .budget = budget, .budget_entries = entries, .n_dense_layers = 2};
    const ig_policy_ops *ops;
    ig_policy *p = NULL;
    ig_error err = {0};
    if (ig_policy_find(&ops, &o, &err) || ig_policy_open(&p, ops, &shape, &o, &err)) fail_msg("%s", err.text);
    *scratch = aligned_alloc(64, (ops->scratch_bytes(&shape) + 63) / 64 * 64);
    assert_non_null(*scratch);
    return p;
}

static ig_policy *open_policy(double budget, int entries, void **scratch) {
    ig_policy_shape shape = {.n_heads = 4,
                             .n_kv_heads = 1,
                             .index = {.n_heads = HEADS, .dim = DIM, .n_chosen = CHOSEN},
                             .index_layer = layer_of};
    return open_shape(shape, budget, entries, scratch);
}

static ig_policy *open_blocks(double budget, int entries, void **scratch) {
    ig_policy_shape shape = {
        .n_heads = 2 * KV_HEADS,
        .n_kv_heads = KV_HEADS,
        .index = {.n_heads = KV_HEADS, .dim = DIM, .n_chosen = BLOCKS * BLOCK, .block = BLOCK, .n_local = LOCAL},
        .index_layer = some_have_none};
    return open_shape(shape, budget, entries, scratch);
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
            for (int l = 0; l < LAYERS; l++) p->ops->append_index(p, l, 0, t, w.keys[l][t]);
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
        for (int t = 0; t < 400; t++) p->ops->append_index(p, 0, 0, t, w.keys[0][t]);
        check(p, scratch, 0, 400, i ? 100 : 40);
        check(p, scratch, 1, 40, i ? 10 : 40);
        free(scratch);
        ig_policy_close(p);
    }
}

/* A KV head's choice among n entries: whole blocks, the last ones among them, and none that it leaves out is better
 * than one that it takes. */
static void check_blocks(ig_policy *p, void *scratch, int layer, int head, int n, int n_blocks) {
    static int32_t index[N_CTX];
    bool is_taken[N_CTX] = {false};
    int n_all = (n + BLOCK - 1) / BLOCK, n_taken = 0;
    ig_choosing x = {.layer = layer,
                     .list = head,
                     .index_q = w.q[0],
                     .e = {.n = n, .n_slots = n, .has_own = true},
                     .index = index,
                     .scratch = scratch};
    ig_policy_choose(p, &x);
    assert_int_equal(p->ops->takes_all(p, n), n_all <= n_blocks);
    assert_true(x.n <= p->ops->most(p, n) && p->ops->most(p, n) == (n_all <= n_blocks ? n : n_blocks * BLOCK));
    if (n_all <= n_blocks) {
        assert_int_equal(x.n, n);
        return;
    }
    for (int i = 0; i < x.n; i++) {
        assert_true(index[i] >= 0 && index[i] < n && (i == 0 || index[i] > index[i - 1]));
        is_taken[index[i]] = true;
    }
    double worst = 1e9, best = -1e9;
    for (int b = 0; b < n_all; b++) {
        double most = -1e9;
        for (int t = b * BLOCK; t < n && t < (b + 1) * BLOCK; t++) {
            double dot = 0;
            for (int i = 0; i < DIM; i++) dot += (double)w.q[head][i] * (double)ig_f16_f32(w.keys[layer][t][i]);
            if (dot > most) most = dot;
            assert_int_equal(is_taken[t], is_taken[b * BLOCK]);
        }
        bool is_local = b >= n_all - LOCAL;
        n_taken += is_taken[b * BLOCK];
        assert_true(is_taken[b * BLOCK] || !is_local);
        if (is_taken[b * BLOCK] && !is_local && most < worst) worst = most;
        if (!is_taken[b * BLOCK] && most > best) best = most;
    }
    assert_int_equal(n_taken, n_blocks);
    assert_true(worst > best - 1e-5);
}

static void show_shares(ig_policy *p, int layer, int n) {
    enum { SHARE = DIM / KV_HEADS };
    for (int h = KV_HEADS; h-- > 0;)
        for (int t = n; t-- > 0;) p->ops->append_index(p, layer, h, t, w.keys[layer][t] + h * SHARE);
}

static void blocks(void **state) {
    static const int lengths[] = {1, 24, 143, 144, 145, 167, 168, 169, 1023, 1024, 1025, 2047, N_CTX};
    void *scratch;
    (void)state;
    for (uint64_t seed = 1; seed < 4; seed++) {
        ig_policy *p = open_blocks(0, 0, &scratch);
        make(seed);
        for (int l = 1; l < LAYERS; l++) show_shares(p, l, N_CTX);
        for (int l = 1; l < LAYERS; l++)
            for (int h = 0; h < KV_HEADS; h++)
                for (size_t i = 0; i < IG_COUNT(lengths); i++) check_blocks(p, scratch, l, h, lengths[i], BLOCKS);
        assert_true(ig_policy_is_dense(p, 0) && !ig_policy_is_dense(p, 1) && !ig_policy_keeps_choice(p, 1));
        assert_int_equal(ig_policy_bytes(p, 100), 2 * 112 * DIM * sizeof(uint16_t));
        free(scratch);
        ig_policy_close(p);
    }
    for (int i = 0; i < 3;
         i++) { /* budgets of entries and of shares are rounded up to blocks, the last ones at least */
        ig_policy *p = i == 0 ? open_blocks(0.25, 0, &scratch) : open_blocks(0, i == 1 ? 50 : 1, &scratch);
        show_shares(p, 1, 1000);
        check_blocks(p, scratch, 1, 2, 1000, i == 0 ? 11 : i == 1 ? 3 : LOCAL);
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
        cmocka_unit_test(blocks),
        cmocka_unit_test(what_it_takes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
