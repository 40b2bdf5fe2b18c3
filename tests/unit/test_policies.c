/* SPDX-License-Identifier: Apache-2.0
 *
 * Every policy on keys and queries of our own making: what must be selected always, budgets, the whole budget, and that
 * a policy finds the entries it is meant to find.
 */
#include <math.h>
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
#include "policy/choose.h"

enum { LAYERS = 3, HEADS = 4, KV_HEADS = 2, DIM = 32, N_CTX = 1000 };

static const int windows[LAYERS] = {0, 100, 0};
static uint16_t keys[KV_HEADS][N_CTX][DIM];
static int32_t index_[N_CTX];

#define ENTRIES(count) ((ig_entries){.n = count, .n_slots = count})

static ig_policy *open_policy(const char *name, double budget, void **scratch) {
    ig_policy_shape shape = {.n_layers = LAYERS,
                             .n_heads = HEADS,
                             .n_kv_heads = KV_HEADS,
                             .head_dim = DIM,
                             .n_ctx = N_CTX,
                             .scale = 0.2f,
                             .block_tokens = 8,
                             .window = windows,
                             .kernels = ig_kernels_get(test_cpu_level())};
    ig_cache_options o = {
        .policy = name, .budget = budget, .mass = 1, .n_sinks = 4, .n_recent = 32, .alpha = 4, .partial = 0.3};
    const ig_policy_ops *ops;
    ig_policy *p = NULL;
    ig_error err = {0};
    if (ig_policy_find(&ops, &o, &err) || ig_policy_open(&p, ops, &shape, &o, &err)) fail_msg("%s", err.text);
    *scratch = aligned_alloc(64, ((ops->scratch_bytes ? ops->scratch_bytes(&shape) : 0) + 127) / 64 * 64);
    assert_non_null(*scratch);
    return p;
}

static void fill_keys(uint64_t seed) {
    ig_random r = {seed};
    for (int h = 0; h < KV_HEADS; h++)
        for (int t = 0; t < N_CTX; t++)
            for (int c = 0; c < DIM; c++) keys[h][t][c] = ig_f32_f16((float)(2 * ig_random_unit(&r) - 1));
}

static void append_all(ig_policy *p, int n) {
    for (int l = 0; l < LAYERS; l++)
        for (int h = 0; h < KV_HEADS && !ig_policy_is_dense(p, l) && p->ops->append; h++)
            for (int t = 0; t < n; t++) p->ops->append(p, l, h, t, keys[h][t], keys[h][t]);
}

/* A list of a head, in index_. Returns its length. */
static int choose(ig_policy *p, int layer, int head, const float *q, ig_entries e, void *scratch) {
    ig_choosing x = {.layer = layer, .list = head, .q = q, .e = e, .index = index_, .scratch = scratch};
    ig_policy_choose(p, &x);
    ig_policy_estimate(p, &x);
    return x.n;
}

static bool has(const int32_t *list, int n, int token) {
    for (int i = 0; i < n; i++)
        if (list[i] == token) return true;
    return false;
}

static void keeps_its_promises(void **state) {
    const char *name = *state;
    ig_random r = {5};
    void *scratch;
    ig_policy *p = open_policy(name, 0.2, &scratch);
    fill_keys(1);
    assert_true(ig_policy_is_dense(p, 1)); /* a window */
    assert_false(ig_policy_is_dense(p, 0));
    append_all(p, N_CTX);
    for (int round = 0; round < 40; round++) {
        int n = 1 + (int)(ig_random_u64(&r) % N_CTX), layer = round % 2 ? 2 : 0;
        float q[HEADS / KV_HEADS * DIM];
        for (size_t i = 0; i < sizeof q / sizeof *q; i++) q[i] = (float)(8 * ig_random_unit(&r) - 4);
        int chosen = choose(p, layer, round % KV_HEADS, q, ENTRIES(n), scratch);
        int most = (n + 4) / 5 > 36 ? (n + 4) / 5 : 36;
        if (n <= 36) assert_int_equal(chosen, n);
        if (chosen == n) continue;
        assert_true(chosen <= most);
        for (int i = 0; i < chosen; i++) assert_true(index_[i] < n && index_[i] > (i ? index_[i - 1] : -1));
        for (int t = 0; t < 4; t++) assert_true(has(index_, chosen, t));
        for (int t = n - 32; t < n; t++) assert_true(has(index_, chosen, t));
    }
    ig_policy_close(p);
    free(scratch);
}

static void a_whole_budget_is_everything(void **state) {
    void *scratch;
    ig_policy *p = open_policy(*state, 1, &scratch);
    float q[HEADS / KV_HEADS * DIM] = {1};
    append_all(p, N_CTX);
    for (int n = 1; n < N_CTX; n += 97) assert_int_equal(choose(p, 0, 0, q, ENTRIES(n), scratch), n);
    ig_policy_close(p);
    free(scratch);
}

/* A mass that was asked for ends a selection also where the budget is everything; by itself none does. */
static void a_whole_budget_and_a_mass(void **state) {
    void *scratch;
    ig_policy *p = open_policy(*state, 1, &scratch);
    float q[HEADS / KV_HEADS * DIM];
    for (int i = 0; i < HEADS / KV_HEADS * DIM; i++) q[i] = (float)(i % 5);
    fill_keys(3);
    append_all(p, N_CTX);
    static const double masses[] = {1, 0, 0.95, 0.5};
    int last = N_CTX;
    for (int i = 0; i < 4; i++) {
        p->options.mass = masses[i];
        int n = choose(p, 0, 0, q, ENTRIES(N_CTX), scratch);
        assert_true(i < 2 ? n == N_CTX : n < last && n > 36);
        last = n;
    }
    p->options.budget = 0.2;
    p->options.mass = 0.95;
    int n = choose(p, 0, 0, q, ENTRIES(N_CTX), scratch);
    p->options.mass = 0;
    assert_int_equal(choose(p, 0, 0, q, ENTRIES(N_CTX), scratch), n);
    ig_policy_close(p);
    free(scratch);
}

/* A share of the entries, rounded up; a number of them; the policy's own. */
static void budgets(void **state) {
    (void)state;
    static const struct {
        ig_cache_options options;
        int n, want;
    } cases[] = {{{.budget = 0.2}, 1001, 201},        {{.budget = 1}, 1000, 1000},
                 {{.budget_entries = 1}, 1000, 1},    {{.budget_entries = 512}, 1000, 512},
                 {{.budget_entries = 512}, 100, 100}, {{0}, 1001, 101}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ig_policy p = {.ops = &ig_policy_window, .options = cases[i].options};
        assert_int_equal(ig_policy_budget(&p, cases[i].n), cases[i].want);
        p.options.n_recent = 300; /* are always used */
        assert_int_equal(ig_policy_count(&p, cases[i].n), cases[i].want < 300 ? 300 : cases[i].want);
    }
    ig_policy p = {.ops = &ig_policy_infinigen_osdi24};
    assert_int_equal(ig_policy_budget(&p, 1000), 200);
    p.ops = &ig_policy_infinigen; /* everything while it is little, unless entries are dropped */
    assert_int_equal(ig_policy_budget(&p, IG_CHOICE_WHOLE), IG_CHOICE_WHOLE);
    assert_int_equal(ig_policy_budget(&p, IG_CHOICE_WHOLE + 1), 52);
    p.shape.n_slots = 300;
    assert_int_equal(ig_policy_budget(&p, 300), 30);
}

/* Keys that answer the query strongly, hidden in the middle, are found by whoever looks at keys; also after the tokens
 * from 300 on were cut off and written anew. */
static void finds_the_needle(void **state) {
    void *scratch;
    ig_policy *p = open_policy(*state, 0.1, &scratch);
    float q[HEADS / KV_HEADS * DIM];
    fill_keys(2);
    for (int i = 0; i < HEADS / KV_HEADS * DIM; i++) q[i] = i % 3 ? 1.5f : -1.5f;
    for (int c = 0; c < DIM; c++) keys[1][700][c] = ig_f32_f16(3 * q[c]);
    append_all(p, N_CTX);
    int n = choose(p, 2, 1, q, ENTRIES(N_CTX), scratch);
    assert_true(has(index_, n, 700));
    fill_keys(3);
    for (int c = 0; c < DIM; c++) keys[1][410][c] = ig_f32_f16(3 * q[c]);
    for (int t = 300; t < N_CTX; t++) p->ops->append(p, 2, 1, t, keys[1][t], keys[1][t]);
    n = choose(p, 2, 1, q, ENTRIES(N_CTX), scratch);
    assert_true(has(index_, n, 410));
    ig_policy_close(p);
    free(scratch);
}

/* Pages that are used whatever they hold, sinks or recent ones, take no other page's place, however strong they are. */
static void pages_are_counted_once(void **state) {
    enum { N = 992 }; /* the recent ones are whole pages */
    void *scratch;
    ig_policy *p = open_policy(*state, 0.07, &scratch);
    float q[HEADS / KV_HEADS * DIM];
    p->options.n_sinks = 16;
    fill_keys(2);
    for (int i = 0; i < HEADS / KV_HEADS * DIM; i++) q[i] = i % DIM % 3 ? 1.5f : -1.5f;
    for (int t = 0; t < N; t += t == 15 ? N - 32 - 15 : 1)
        for (int c = 0; c < DIM; c++) keys[1][t][c] = ig_f32_f16(3 * q[c]);
    for (int c = 0; c < DIM; c++) keys[1][410][c] = ig_f32_f16(2 * q[c]);
    append_all(p, N);
    int n = choose(p, 2, 1, q, ENTRIES(N), scratch);
    assert_int_equal(n, 70); /* 7 %: of the last page what is left of it */
    assert_true(has(index_, n, 410));
    ig_policy_close(p);
    free(scratch);
}

/* Against scores, softmax and sorting in double: no entry that was left out outweighs one that was chosen. Entries lie
 * in slots of another order, some of them not in use. What is left is known; sinks have their share of the attention.
 */
static void run_oracle(const float *sinks) {
    enum { N = 500, GROUP = HEADS / KV_HEADS };
    static double weight[N], share[GROUP][N];
    static int32_t slots[N];
    static bool is_chosen[N_CTX];
    const float *sink_scores[LAYERS] = {sinks, sinks, sinks};
    void *scratch;
    ig_policy *p = open_policy("oracle", 0.3, &scratch);
    ig_random r = {11};
    float q[GROUP * DIM], value[GROUP * DIM], left[GROUP] = {0};
    if (sinks) p->shape.sink_scores = sink_scores;
    fill_keys(4);
    append_all(p, N_CTX);
    for (int i = 0; i < GROUP * DIM; i++) q[i] = (float)(6 * ig_random_unit(&r) - 3);
    for (int i = 0; i < N; i++) slots[i] = (i * 7 + 3) % N_CTX;
    memset(weight, 0, sizeof weight);
    for (int g = 0; g < GROUP; g++) {
        double e[N], sum = sinks ? exp((double)sinks[GROUP + g]) : 0;
        for (int i = 0; i < N; i++) {
            double dot = 0;
            for (int c = 0; c < DIM; c++) dot += (double)q[g * DIM + c] * (double)ig_f16_f32(keys[1][slots[i]][c]);
            sum += e[i] = exp(dot * 0.2);
        }
        for (int i = 0; i < N; i++) weight[i] += share[g][i] = e[i] / sum;
    }
    ig_choosing x = {.layer = 2,
                     .list = 1,
                     .q = q,
                     .e = {.slot = slots, .n = N, .n_slots = N_CTX, .has_own = true},
                     .index = index_,
                     .rest = &(ig_rest){value, left},
                     .scratch = scratch};
    ig_policy_choose(p, &x);
    ig_policy_estimate(p, &x);
    assert_int_equal(x.n, 150);
    memset(is_chosen, 0, sizeof is_chosen);
    for (int i = 0; i < x.n; i++) is_chosen[index_[i]] = true;
    for (int g = 0; g < GROUP; g++) {
        double sum = 0;
        for (int i = 0; i < N; i++) sum += is_chosen[slots[i]] ? 0 : share[g][i];
        assert_true(fabs((double)left[g] - sum) < 1e-4 * sum);
    }
    double least = 1e9, most = 0;
    for (int i = 4; i < N - 32; i++) {
        if (is_chosen[slots[i]] && weight[i] < least) least = weight[i];
        if (!is_chosen[slots[i]] && weight[i] > most) most = weight[i];
    }
    assert_true(most <= least * (1 + 1e-4));
    ig_policy_close(p);
    free(scratch);
}

static void the_oracle_is_exact(void **state) {
    static const float sinks[HEADS] = {0, 0, 9, -2};
    (void)state;
    run_oracle(NULL);
    run_oracle(sinks);
}

/* Blocks of which index_[n] has some entries but not all. */
static int count_parts(int n) {
    int parts = 0;
    for (int i = 0, end; i < n; i = end) {
        for (end = i; end < n && index_[end] / 16 == index_[i] / 16; end++) continue;
        parts += end - i < 16;
    }
    return parts;
}

/* With full locality what lies between sinks and recent entries is chosen by whole blocks. */
static void locality_chooses_whole_blocks(void **state) {
    void *scratch;
    ig_policy *p = open_policy(*state, 0.2, &scratch);
    p->shape.block_tokens = 16;
    p->options.locality = 1;
    p->options.mass = 1;
    fill_keys(1);
    append_all(p, N_CTX);
    ig_random r = {5};
    float q[HEADS / KV_HEADS * DIM];
    for (int i = 0; i < HEADS / KV_HEADS * DIM; i++) q[i] = (float)(8 * ig_random_unit(&r) - 4);
    int n = choose(p, 0, 0, q, ENTRIES(N_CTX), scratch);
    assert_int_equal(n, ig_policy_budget(p, N_CTX));
    assert_in_range(count_parts(n), 1, 4); /* sinks, where recent ones begin, the end, and where the budget ends */
    p->options.locality = 0;
    n = choose(p, 0, 0, q, ENTRIES(N_CTX), scratch);
    assert_true(count_parts(n) > 20);
    ig_policy_close(p);
    free(scratch);
}

/* Layers that are dense for their window keep nothing: nothing is planned for them, and what is planned is reached. */
static void windows_need_no_memory(void **state) {
    static const int no_windows[LAYERS];
    void *scratch;
    ig_policy *p = open_policy(*state, 0.2, &scratch);
    ig_policy_shape plain = p->shape;
    plain.window = no_windows;
    uint64_t two_layers = p->ops->plan(&p->shape, &p->options, N_CTX), three = p->ops->plan(&plain, &p->options, N_CTX);
    assert_true(two_layers > 0 && two_layers * 3 == three * 2);
    assert_true(ig_policy_bytes(p, N_CTX) == two_layers);
    ig_policy_close(p);
    free(scratch);
}

static void the_oracle_keeps_keys_blocks_and_values(void **state) {
    void *scratch;
    ig_policy *p = open_policy("oracle", 0.3, &scratch);
    (void)state;
    uint64_t rows = N_CTX * DIM * 2,
             blocks = (sizeof(ig_history_head) + IG_HISTORY_STEPS * (sizeof(int) + (N_CTX / 8 + 7) / 8) + 3) / 4 * 4,
             values = (N_CTX + 15) / 16 * (32 + 4 * DIM);
    assert_true(ig_policy_bytes(p, N_CTX) == (LAYERS - 1) * KV_HEADS * (rows + blocks + values));
    p->options.no_rest = true;
    assert_true(ig_policy_bytes(p, N_CTX) == (LAYERS - 1) * KV_HEADS * (rows + blocks));
    ig_policy_close(p);
    free(scratch);
}

static void unknown_names_are_refused(void **state) {
    (void)state;
    ig_error err = {0};
    const ig_policy_ops *ops;
    ig_cache_options o = {.policy = "nonesuch", .budget = 1, .mass = 1, .n_recent = 1, .alpha = 4, .partial = 1};
    assert_int_equal(ig_policy_find(&ops, &o, &err), IG_E_ARG);
    assert_non_null(strstr(err.text, "window"));
}

/* What a policy says of itself is what its functions do. */
static void what_they_say_is_so(void **state) {
    (void)state;
    const ig_policy_info *info;
    for (size_t i = 0; (info = ig_cache_policy(i)); i++) {
        const ig_policy_ops *ops;
        ig_cache_options o = {.policy = info->name};
        assert_int_equal(ig_policy_find(&ops, &o, NULL), IG_OK);
        assert_ptr_equal(info, &ops->info);
        assert_ptr_equal(info, ig_cache_policy_find(info->name));
        assert_int_equal(info->sees_prompts, ops->see_queries || ops->observe);
        assert_int_equal(info->uses_everything, !ops->stages[0].run);
        assert_int_equal(info->chooses_in_prompts, ops->most != NULL);
        bool estimates = false;
        for (const ig_policy_stage *s = ops->stages; s->run; s++) estimates = estimates || s->for_rest;
        assert_int_equal(info->takes_mass, estimates);
    }
}

int main(void) {
#define POLICY(test, name) \
    { name ": " #test, test, NULL, NULL, name }
    const struct CMUnitTest tests[] = {
        POLICY(keeps_its_promises, "infinigen"),
        POLICY(keeps_its_promises, "window"),
        POLICY(keeps_its_promises, "quest"),
        POLICY(keeps_its_promises, "oracle"),
        POLICY(a_whole_budget_and_a_mass, "infinigen"),
        POLICY(a_whole_budget_and_a_mass, "oracle"),
        cmocka_unit_test(budgets),
        POLICY(locality_chooses_whole_blocks, "infinigen"),
        POLICY(locality_chooses_whole_blocks, "oracle"),
        POLICY(a_whole_budget_is_everything, "infinigen"),
        POLICY(a_whole_budget_is_everything, "window"),
        POLICY(a_whole_budget_is_everything, "quest"),
        POLICY(a_whole_budget_is_everything, "oracle"),
        POLICY(finds_the_needle, "infinigen"),
        POLICY(finds_the_needle, "quest"),
        POLICY(finds_the_needle, "oracle"),
        POLICY(pages_are_counted_once, "quest"),
        POLICY(windows_need_no_memory, "infinigen"),
        POLICY(windows_need_no_memory, "quest"),
        POLICY(windows_need_no_memory, "oracle"),
        POLICY(windows_need_no_memory, "h2o"),
        POLICY(windows_need_no_memory, "snapkv"),
        cmocka_unit_test(the_oracle_is_exact),
        cmocka_unit_test(the_oracle_keeps_keys_blocks_and_values),
        cmocka_unit_test(unknown_names_are_refused),
        cmocka_unit_test(what_they_say_is_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
