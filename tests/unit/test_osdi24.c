/* SPDX-License-Identifier: Apache-2.0
 *
 * The policy infinigen-osdi24 against the paper's formulas, computed here in double from the same random queries, keys
 * and orthogonal matrices: which columns, which entries, how many; and what must not matter.
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
#include "policy/policy.h"

enum { LAYERS = 2, HEADS = 6, KV_HEADS = 2, GROUP = HEADS / KV_HEADS, DIM = 32, N_CTX = 400, PROMPT = 300 };
#define SCALE 0.18f
#define PARTIAL 0.3 /* 9 of 32 columns */

static const int windows[LAYERS] = {0, 0};

/* One layer's world; layer 0 of the policy is dense, layer 1 is tried. */
typedef struct world {
    float a[LAYERS][HEADS][DIM][DIM]; /* columns of A */
    ig_sketch_file sketch;
    float q[N_CTX][HEADS][DIM];
    uint16_t k[N_CTX][KV_HEADS][DIM];
} world;

typedef struct result {
    int n[HEADS];
    int32_t index[HEADS][N_CTX];
} result;

/* ---- making ------------------------------------------------------------------- */

static double normal(ig_random *r) {
    double sum = -6;
    for (int i = 0; i < 12; i++) sum += ig_random_unit(r);
    return sum;
}

/* Random directions made orthogonal (Gram-Schmidt, twice over). */
static void make_orthogonal(float a[DIM][DIM], ig_random *r) {
    double m[DIM][DIM];
    for (int i = 0; i < DIM; i++) {
        for (int j = 0; j < DIM; j++) m[i][j] = normal(r);
        for (int round = 0; round < 2; round++)
            for (int p = 0; p < i; p++) {
                double dot = 0;
                for (int j = 0; j < DIM; j++) dot += m[p][j] * m[i][j];
                for (int j = 0; j < DIM; j++) m[i][j] -= dot * m[p][j];
            }
        double length = 0;
        for (int j = 0; j < DIM; j++) length += m[i][j] * m[i][j];
        for (int j = 0; j < DIM; j++) m[i][j] /= sqrt(length);
    }
    for (int i = 0; i < DIM; i++)
        for (int j = 0; j < DIM; j++) a[i][j] = (float)m[i][j];
}

/* Queries and keys with a few large directions, of unequal size from head to head. */
static world *make_world(uint64_t seed) {
    world *w = calloc(1, sizeof *w);
    ig_random r = {seed};
    for (int l = 0; l < LAYERS; l++)
        for (int h = 0; h < HEADS; h++) make_orthogonal(w->a[l][h], &r);
    w->sketch = (ig_sketch_file){
        .shape =
            {.kind = IG_SKETCH_SKEW, .n_layers = LAYERS, .head_dim = DIM, .n_heads = HEADS, .rank = DIM, .n_ctx = 1},
        .maps = w->a[0][0][0]};
    for (int t = 0; t < N_CTX; t++) {
        for (int h = 0; h < HEADS; h++)
            for (int i = 0; i < DIM; i++) w->q[t][h][i] = (float)(normal(&r) * (1.5 + 1.2 * h) * pow(0.93, i));
        for (int h = 0; h < KV_HEADS; h++)
            for (int i = 0; i < DIM; i++) w->k[t][h][i] = ig_f32_f16((float)(2 * normal(&r) * pow(0.95, i)));
    }
    return w;
}

static ig_policy *open_with(const world *w, bool skewed, double alpha, double budget, int n_query_in) {
    ig_policy_shape shape = {.n_layers = LAYERS,
                             .n_heads = HEADS,
                             .n_kv_heads = KV_HEADS,
                             .head_dim = DIM,
                             .n_ctx = N_CTX,
                             .scale = SCALE,
                             .n_query_in = n_query_in,
                             .window = windows,
                             .kernels = ig_kernels_get(test_cpu_level()),
                             .sketch = skewed ? &w->sketch : NULL};
    ig_cache_options o = {.policy = "infinigen-osdi24",
                          .budget = budget,
                          .mass = 1,
                          .n_recent = 32,
                          .n_sinks = 4,
                          .n_dense_layers = 1,
                          .alpha = alpha,
                          .partial = PARTIAL};
    const ig_policy_ops *ops;
    ig_policy *p = NULL;
    ig_error err = {0};
    if (ig_policy_find(&ops, &o, &err) || ig_policy_open(&p, ops, &shape, &o, &err)) fail_msg("%s", err.text);
    assert_true(ig_policy_is_dense(p, 0) && !ig_policy_is_dense(p, 1));
    return p;
}

static ig_policy *open_policy(const world *w, bool skewed, double alpha, double budget) {
    ig_policy *p = open_with(w, skewed, alpha, budget, 0);
    assert_int_equal(p->ops->scratch_bytes(&p->shape), 0);
    return p;
}

/* Shows tokens [first, first + n) as a prompt's, in pieces. */
static void show_prompt(ig_policy *p, const world *w, int first, int n) {
    for (int t = first, m; t < first + n; t += m) {
        m = first + n - t < 70 ? first + n - t : 70;
        for (int h = 0; h < HEADS; h++) p->ops->see_queries(p, 1, h, w->q[t][h], HEADS * DIM, t, m);
        for (int h = 0; h < KV_HEADS; h++)
            for (int i = t; i < t + m; i++) p->ops->append(p, 1, h, i, w->k[i][h], w->k[i][h]);
    }
}

static void append_token(ig_policy *p, const world *w, int t) {
    for (int h = 0; h < KV_HEADS; h++) p->ops->append(p, 1, h, t, w->k[t][h], w->k[t][h]);
}

/* Of the queries of token t. */
static void choose(result *out, ig_policy *p, const world *w, int t, const ig_entries *e) {
    memset(out, -1, sizeof *out);
    ig_choosing x[HEADS];
    for (int h = 0; h < HEADS; h++)
        x[h] = (ig_choosing){.layer = 1, .list = h, .q = w->q[t][h], .e = *e, .index = out->index[h]};
    for (const ig_policy_stage *stage = p->ops->stages; stage->run; stage++)
        for (int h = 0; h < HEADS; h++) stage->run(p, &x[h], 0);
    for (int h = 0; h < HEADS; h++) out->n[h] = x[h].n;
}

static void step(result *out, ig_policy *p, const world *w, int t) {
    ig_entries e = {.n = t + 1, .n_slots = t + 1, .has_own = true};
    append_token(p, w, t);
    choose(out, p, w, t, &e);
}

/* ---- the formulas ----------------------------------------------------------------- */

static double f16(double x) { return (double)ig_f16_f32(ig_f32_f16((float)x)); }

static double skewed_at(const world *w, bool skewed, int head, int column, const float *x) {
    if (!skewed) return (double)x[column];
    double sum = 0;
    for (int i = 0; i < DIM; i++) sum += (double)w->a[1][head][column][i] * (double)x[i];
    return sum;
}

static void key_of(float *out, const world *w, int t, int head) {
    for (int i = 0; i < DIM; i++) out[i] = ig_f16_f32(w->k[t][head / GROUP][i]);
}

typedef struct columns {
    bool in[DIM];
} columns;

static columns columns_of(const world *w, bool skewed, int head, int n_prompt) {
    columns c = {{false}};
    double sums[DIM];
    float key[DIM];
    for (int j = 0; j < DIM; j++) {
        sums[j] = 0;
        for (int t = 0; t < n_prompt; t++) {
            key_of(key, w, t, head);
            sums[j] += fabs(skewed_at(w, skewed, head, j, w->q[t][head])) + fabs(skewed_at(w, skewed, head, j, key));
        }
    }
    for (int i = 0; i < (int)(PARTIAL * DIM); i++) {
        int best = -1;
        for (int j = 0; j < DIM; j++)
            if (!c.in[j] && (best < 0 || sums[j] > sums[best])) best = j;
        c.in[best] = true;
    }
    return c;
}

static void scores_of(double *out, const world *w, bool skewed, int head, const columns *c, int query, int n) {
    float key[DIM];
    for (int t = 0; t < n; t++) {
        out[t] = 0;
        key_of(key, w, t, head);
        for (int j = 0; j < DIM; j++)
            if (c->in[j])
                out[t] += skewed_at(w, skewed, head, j, w->q[query][head]) * f16(skewed_at(w, skewed, head, j, key));
        out[t] *= (double)SCALE;
    }
}

static double largest(const double *x, int n) {
    double best = x[0];
    for (int i = 1; i < n; i++) best = x[i] > best ? x[i] : best;
    return best;
}

static int above(const double *x, int n, double limit) {
    int count = 0;
    for (int i = 0; i < n; i++) count += x[i] > limit;
    return count;
}

/* 16-bit queries and sums of floats may decide otherwise than the reference this near a limit. */
#define NEAR 0.02

/* What the paper says for the queries of token `query`, over the first n tokens and its own, with J from n_prompt. */
static void expect_as_said(const result *r, const world *w, bool skewed, int query, int n, int n_prompt, double alpha,
                           double budget) {
    static double scores[HEADS][N_CTX];
    int low = 0, high = 0, cap = (int)ceil(budget * n);
    for (int h = 0; h < HEADS; h++) {
        columns c = columns_of(w, skewed, h, n_prompt);
        scores_of(scores[h], w, skewed, h, &c, query, n);
        low += above(scores[h], n, largest(scores[h], n) - alpha + NEAR);
        high += above(scores[h], n, largest(scores[h], n) - alpha - NEAR);
    }
    low = low / HEADS < cap ? low / HEADS : cap;
    high = high / HEADS < cap ? high / HEADS : cap;
    int count = r->n[0] - 1;
    assert_in_range(count, low, high);
    assert_true(low > 2 && high < n); /* or nothing is tested */
    for (int h = 0; h < HEADS; h++) {
        bool in[N_CTX] = {false};
        assert_int_equal(r->n[h], r->n[0]);
        double worst_in = INFINITY, best_out = -INFINITY;
        for (int i = 0; i < r->n[h]; i++) {
            assert_true(r->index[h][i] > (i ? r->index[h][i - 1] : -1) && r->index[h][i] <= n);
            in[r->index[h][i]] = true;
        }
        for (int t = 0; t < n; t++) {
            if (in[t] && scores[h][t] < worst_in) worst_in = scores[h][t];
            if (!in[t] && scores[h][t] > best_out) best_out = scores[h][t];
        }
        assert_true(worst_in > best_out - NEAR);
    }
}

/* ---- tests --------------------------------------------------------------------------- */

static void does_what_the_paper_says(void **state) {
    bool skewed = *(const bool *)*state;
    world *w = make_world(11);
    ig_policy *p = open_policy(w, skewed, 4, 1);
    result r;
    show_prompt(p, w, 0, PROMPT);
    for (int t = PROMPT; t < PROMPT + 20; t++) {
        step(&r, p, w, t);
        expect_as_said(&r, w, skewed, t, t, PROMPT, 4, 1);
        for (int h = 0; h < HEADS; h++) assert_int_equal(r.index[h][r.n[h] - 1], t); /* its own */
    }
    ig_policy_close(p);
    free(w);
}

/* A guess is made before the step's own token is there; nothing is forced then, the first one chooses J too. */
static void guesses_do_the_same(void **state) {
    (void)state;
    world *w = make_world(12);
    ig_policy *guesser = open_policy(w, true, 4, 1), *other = open_policy(w, true, 4, 1);
    result guess, r;
    show_prompt(guesser, w, 0, PROMPT);
    show_prompt(other, w, 0, PROMPT);
    for (int t = PROMPT; t < PROMPT + 5; t++) {
        choose(&guess, guesser, w, t, &(ig_entries){.n = t, .n_slots = t});
        append_token(guesser, w, t);
        step(&r, other, w, t);
        for (int h = 0; h < HEADS; h++) {
            assert_int_equal(guess.n[h], r.n[h] - 1);
            assert_memory_equal(guess.index[h], r.index[h], (size_t)guess.n[h] * sizeof(int32_t));
        }
    }
    ig_policy_close(guesser);
    ig_policy_close(other);
    free(w);
}

static int count_at(const world *w, double alpha, int budget) {
    ig_policy *p = open_policy(w, true, alpha, 0);
    p->options.budget_entries = budget;
    result r;
    show_prompt(p, w, 0, PROMPT);
    step(&r, p, w, PROMPT);
    ig_policy_close(p);
    for (int h = 1; h < HEADS; h++) assert_int_equal(r.n[h], r.n[0]);
    return r.n[0];
}

static void alpha_and_budget(void **state) {
    (void)state;
    world *w = make_world(13);
    const double alphas[] = {0, 0.5, 1, 2, 3, 4, 6, 8, 12, 1e9, INFINITY};
    int last = 0;
    for (size_t i = 0; i < sizeof alphas / sizeof *alphas; i++) {
        int n = count_at(w, alphas[i], PROMPT);
        assert_true(n >= last);
        last = n;
    }
    assert_int_equal(count_at(w, 0, PROMPT), 2); /* the best and its own */
    assert_int_equal(last, PROMPT + 1);
    assert_int_equal(count_at(w, 1e9, 30), 31);
    assert_int_equal(count_at(w, 1e9, 17), 18);
    int by_alpha = count_at(w, 3, PROMPT);
    assert_true(by_alpha > 3 && by_alpha < PROMPT);
    assert_int_equal(count_at(w, 3, by_alpha - 2), by_alpha - 1);
    assert_int_equal(count_at(w, 3, by_alpha + 5), by_alpha);
    free(w);
}

/* The other way round, group by group and within the groups. */
static int mirrored(int head) { return HEADS - 1 - head; }

/* Heads' numbers do not matter: each has its own maximum, and all count alike. */
static void heads_may_change_places(void **state) {
    (void)state;
    world *w = make_world(14), *m = make_world(14);
    for (int h = 0; h < HEADS; h++) memcpy(m->a[1][mirrored(h)], w->a[1][h], sizeof w->a[1][h]);
    for (int t = 0; t < N_CTX; t++) {
        for (int h = 0; h < HEADS; h++) memcpy(m->q[t][mirrored(h)], w->q[t][h], sizeof w->q[t][h]);
        for (int h = 0; h < KV_HEADS; h++) memcpy(m->k[t][KV_HEADS - 1 - h], w->k[t][h], sizeof w->k[t][h]);
    }
    ig_policy *p = open_policy(w, true, 4, 1), *q = open_policy(m, true, 4, 1);
    result a, b;
    show_prompt(p, w, 0, PROMPT);
    show_prompt(q, m, 0, PROMPT);
    step(&a, p, w, PROMPT);
    step(&b, q, m, PROMPT);
    assert_true(a.n[0] > 3 && a.n[0] < PROMPT);
    for (int h = 0; h < HEADS; h++) {
        assert_int_equal(a.n[h], b.n[mirrored(h)]);
        assert_memory_equal(a.index[h], b.index[mirrored(h)], sizeof a.index[h]);
    }
    ig_policy_close(p);
    ig_policy_close(q);
    free(w);
    free(m);
}

/* J is the prompt's: a new one has its own, as in a new policy; one that continues keeps it. */
static void a_new_prompt(void **state) {
    (void)state;
    world *w = make_world(15), *other = make_world(16);
    memcpy(other->a, w->a, sizeof w->a);
    ig_policy *used = open_policy(w, true, 4, 1), *fresh = open_policy(w, true, 4, 1);
    result a, b;
    show_prompt(used, other, 0, PROMPT + 50);
    step(&a, used, other, PROMPT + 50);
    show_prompt(used, w, 0, PROMPT);
    show_prompt(fresh, w, 0, PROMPT);
    step(&a, used, w, PROMPT);
    step(&b, fresh, w, PROMPT);
    assert_memory_equal(&a, &b, sizeof a);
    show_prompt(fresh, w, PROMPT + 1, 40);
    step(&b, fresh, w, PROMPT + 41);
    expect_as_said(&b, w, true, PROMPT + 41, PROMPT + 41, PROMPT, 4, 1);
    ig_policy_close(used);
    ig_policy_close(fresh);
    free(w);
    free(other);
}

/* Dropped entries: the rest may lie anywhere, before J is chosen and after. */
static void slots_are_used_again(void **state) {
    bool late = *(const bool *)*state;
    world *w = make_world(17), *without = make_world(17);
    ig_policy *p = open_policy(w, true, 4, 1), *plain = open_policy(w, true, 4, 1);
    result a, b;
    int32_t slots[PROMPT];
    show_prompt(p, w, 0, PROMPT);
    show_prompt(plain, w, 0, PROMPT);
    if (late) step(&a, p, w, PROMPT);
    /* Token 100 goes, the last one takes its slot; and token PROMPT takes the last one's. */
    for (int h = 0; h < KV_HEADS; h++) p->ops->move(p, 1, h, PROMPT - 1, 100);
    int n = 0;
    for (int t = 0; t < PROMPT; t++)
        if (t != 100) slots[n++] = t == PROMPT - 1 ? 100 : t;
    for (int h = 0; h < KV_HEADS; h++) p->ops->append(p, 1, h, PROMPT - 1, w->k[PROMPT][h], w->k[PROMPT][h]);
    slots[n++] = PROMPT - 1;
    choose(&a, p, w, PROMPT, &(ig_entries){.slot = slots, .n = n, .n_slots = PROMPT, .has_own = true});

    /* J from all of the prompt, if it was chosen before. */
    for (int t = 100; t < PROMPT; t++) memcpy(without->k[t], w->k[t + 1], sizeof w->k[t]);
    if (late) step(&b, plain, w, PROMPT);
    for (int t = 100; t < PROMPT; t++) append_token(plain, without, t);
    choose(&b, plain, w, PROMPT, &(ig_entries){.n = PROMPT, .n_slots = PROMPT, .has_own = true});
    for (int h = 0; h < HEADS; h++) {
        assert_int_equal(a.n[h], b.n[h]);
        for (int i = 0; i < a.n[h]; i++) assert_int_equal(a.index[h][i], slots[b.index[h][i]]);
    }
    ig_policy_close(p);
    ig_policy_close(plain);
    free(w);
    free(without);
}

/* Keys while the prompt is read, then the columns alone: 9, in rows of 16, for each query head. */
static void says_what_it_keeps(void **state) {
    (void)state;
    world *w = make_world(18);
    ig_policy *p = open_policy(w, true, 4, 1);
    result r;
    uint64_t empty = p->ops->bytes(p, 0);
    assert_int_equal(p->ops->bytes(p, 10), empty);
    show_prompt(p, w, 0, PROMPT);
    assert_int_equal(p->ops->bytes(p, PROMPT) - empty, KV_HEADS * DIM * 2 * PROMPT);
    step(&r, p, w, PROMPT);
    assert_int_equal(p->ops->bytes(p, PROMPT + 1) - empty, HEADS * 16 * 2 * (PROMPT + 1));
    assert_true(p->ops->plan(&p->shape, &p->options, N_CTX) >=
                empty + (KV_HEADS * DIM * 2 + HEADS * 16 * 2) * N_CTX); /* both, in the step between */
    ig_policy_close(p);
    free(w);
}

/* ---- partial query weights ------------------------------------------------------------ */

enum { N_IN = 608 }; /* more than are folded at once, and no multiple of that */

/* A row of W_Q in Q8_0. */
typedef struct q8_row {
    struct {
        uint16_t scale;
        int8_t code[32];
    } blocks[N_IN / 32];
} q8_row;

static double weight_at(const q8_row *row, int i) {
    return (double)ig_f16_f32(row->blocks[i / 32].scale) * row->blocks[i / 32].code[i % 32];
}

static void make_weights(q8_row rows[HEADS * DIM], float bias[HEADS * DIM]) {
    ig_random r = {5};
    for (int o = 0; o < HEADS * DIM; o++) {
        bias[o] = (float)normal(&r);
        for (int i = 0; i < N_IN; i++) {
            rows[o].blocks[i / 32].scale = ig_f32_f16(0.001F * (float)(1 + (o + i / 32) % 7));
            rows[o].blocks[i / 32].code[i % 32] = (int8_t)(normal(&r) * 30);
        }
    }
}

/* Columns J of the head's W_Q A and of its bias, rounded to 16 bits. */
static void expect_folded(const ig_matrix *m, const world *w, bool skewed, int head, const q8_row *rows,
                          const float *bias) {
    columns c = columns_of(w, skewed, head, PROMPT);
    const int n_columns = (int)(PARTIAL * DIM);
    int row = head * n_columns;
    float column[DIM];
    for (int j = 0; j < DIM; j++) {
        if (!c.in[j]) continue;
        const uint16_t *folded = (const uint16_t *)m->w + (size_t)row * N_IN;
        for (int i = 0; i < N_IN; i++) {
            for (int k = 0; k < DIM; k++) column[k] = (float)weight_at(&rows[head * DIM + k], i);
            double x = skewed_at(w, skewed, head, j, column);
            assert_true(fabs((double)ig_f16_f32(folded[i]) - x) <= 1e-3 * fabs(x) + 1e-5);
        }
        double x = skewed_at(w, skewed, head, j, bias + (ptrdiff_t)head * DIM);
        assert_true(fabs((double)m->bias[row] - x) <= 1e-5);
        row++;
    }
    assert_int_equal(row, (head + 1) * n_columns);
}

static void partial_query_weights(void **state) {
    bool skewed = *(const bool *)*state;
    static q8_row rows[HEADS * DIM];
    static float bias[HEADS * DIM];
    world *w = make_world(20);
    ig_policy *p = open_with(w, skewed, 4, 1, N_IN), *none = open_policy(w, skewed, 4, 1);
    void *scratch = malloc(p->ops->scratch_bytes(&p->shape));
    ig_matrix whole = {
        .w = rows, .bias = bias, .n_out = HEADS * DIM, .n_in = N_IN, .type = IG_TYPE_Q8_0, .row_bytes = sizeof *rows};
    make_weights(rows, bias);
    show_prompt(p, w, 0, PROMPT);
    assert_null(p->ops->narrow(p, 1, &whole));
    for (int h = 0; h < HEADS; h++) {
        assert_null(p->ops->narrow(p, 1, &whole));
        ig_choosing x = {
            .layer = 1, .list = h, .q = w->q[PROMPT][h], .e = {.n = PROMPT, .n_slots = PROMPT}, .scratch = scratch};
        p->ops->stages[0].run(p, &x, 0);
    }
    const ig_matrix *m = p->ops->narrow(p, 1, &whole);
    assert_true(m->n_out == HEADS * (int)(PARTIAL * DIM) && m->n_in == N_IN && m->type == IG_TYPE_F16);
    for (int h = 0; h < HEADS; h++) expect_folded(m, w, skewed, h, rows, bias);
    show_prompt(p, w, 0, PROMPT);
    assert_null(p->ops->narrow(p, 1, &whole));
    assert_null(none->ops->narrow(none, 1, &whole));
    ig_policy_close(p);
    ig_policy_close(none);
    free(scratch);
    free(w);
}

/* Keys and queries of a broken model, and no entries at all. */
static void numbers_that_are_none(void **state) {
    (void)state;
    world *w = make_world(19);
    ig_policy *p = open_policy(w, true, 4, 0.2);
    result r;
    show_prompt(p, w, 0, PROMPT);
    w->k[PROMPT][0][3] = 0x7e00; /* NaN */
    w->k[PROMPT][1][5] = 0x7c00; /* infinity */
    for (int i = 0; i < DIM; i++) w->q[PROMPT + 1][0][i] = NAN;
    for (int t = PROMPT; t < PROMPT + 3; t++) {
        step(&r, p, w, t);
        for (int h = 0; h < HEADS; h++) {
            assert_in_range(r.n[h], 2, t / 5 + 2);
            for (int i = 0; i < r.n[h]; i++)
                assert_true(r.index[h][i] > (i ? r.index[h][i - 1] : -1) && r.index[h][i] <= t);
        }
    }
    ig_policy_close(p);
    p = open_policy(w, true, 4, 0.2);
    step(&r, p, w, 0);
    for (int h = 0; h < HEADS; h++) assert_int_equal(r.n[h], 1);
    step(&r, p, w, 1);
    for (int h = 0; h < HEADS; h++) assert_int_equal(r.n[h], 2);
    ig_policy_close(p);
    free(w);
}

int main(void) {
    static bool yes = true, no = false;
    const struct CMUnitTest tests[] = {
        {"does_what_the_paper_says: skewed", does_what_the_paper_says, NULL, NULL, &yes},
        {"does_what_the_paper_says: not skewed", does_what_the_paper_says, NULL, NULL, &no},
        cmocka_unit_test(guesses_do_the_same),
        cmocka_unit_test(alpha_and_budget),
        cmocka_unit_test(heads_may_change_places),
        cmocka_unit_test(a_new_prompt),
        {"slots_are_used_again: before J", slots_are_used_again, NULL, NULL, &no},
        {"slots_are_used_again: after J", slots_are_used_again, NULL, NULL, &yes},
        cmocka_unit_test(says_what_it_keeps),
        {"partial_query_weights: skewed", partial_query_weights, NULL, NULL, &yes},
        {"partial_query_weights: not skewed", partial_query_weights, NULL, NULL, &no},
        cmocka_unit_test(numbers_that_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
