/* SPDX-License-Identifier: Apache-2.0
 *
 * Which experts rows go to: against a choice by sorting in double, with ties, rows that are left out, and scores that
 * are not finite.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/random.h"
#include "model/route.h"

enum { MOST_ROWS = 70 };

static ig_device *device;
static ig_space space;
static ig_routes routes;

static void open_routes(const ig_config *c) {
    space = (ig_space){0};
    ig_routes_lay_out(&space, &routes, c, MOST_ROWS, 16);
    assert_true(ig_space_open(&space));
    ig_routes_lay_out(&space, &routes, c, MOST_ROWS, 16);
}

/* The scores before they are used, and what is added where experts are chosen. */
static float scores_given[MOST_ROWS * IG_MAX_EXPERTS], bias[IG_MAX_EXPERTS];

/* Whether experts are chosen by their scores alone. */
static bool is_by_scores(const ig_config *c) {
    return c->experts.routing == IG_ROUTING_SOFTMAX || c->experts.routing == IG_ROUTING_SIGMOID_LAST;
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* Of a row's scores, before a bias. */
static double weights[IG_MAX_EXPERTS];

static void set_weights(const float *scores, const ig_config *c) {
    double sum = 0;
    for (int e = 0; e < c->experts.n; e++) sum += exp((double)scores[e]);
    for (int e = 0; e < c->experts.n; e++)
        weights[e] =
            c->experts.routing == IG_ROUTING_SIGMOID ? sigmoid((double)scores[e]) : exp((double)scores[e]) / sum;
}

static double value_of(const float *scores, const ig_config *c, int e);

/* By what a group is chosen: its best value, or of sigmoids the sum of the best two. */
static double group_value(const float *scores, const ig_config *c, int group) {
    int n = c->experts.n / c->experts.n_groups;
    double best = -INFINITY, most = -INFINITY;
    for (int i = group * n; i < (group + 1) * n; i++) {
        best = fmax(best, value_of(scores, c, i));
        for (int k = group * n; k < i; k++) most = fmax(most, value_of(scores, c, i) + value_of(scores, c, k));
    }
    return c->experts.routing == IG_ROUTING_SIGMOID && n > 1 ? most : best;
}

/* Whether experts are chosen from the group of this one. */
static bool is_in_question(const float *scores, const ig_config *c, int expert) {
    if (c->experts.n_groups < 2) return true;
    int own = expert / (c->experts.n / c->experts.n_groups), rank = 0;
    for (int g = 0; g < c->experts.n_groups; g++) rank += group_value(scores, c, g) > group_value(scores, c, own);
    return rank < c->experts.n_groups_used;
}

/* By which experts are chosen. */
static double value_of(const float *scores, const ig_config *c, int e) {
    if (is_by_scores(c)) return (double)scores[e];
    return weights[e] + (double)bias[e];
}

/* How many experts of a row come before this one. */
static int rank_of(const float *scores, const ig_config *c, int expert) {
    double value = value_of(scores, c, expert);
    int rank = 0;
    if (!is_in_question(scores, c, expert)) return c->experts.n;
    for (int e = 0; e < c->experts.n; e++) {
        if (!is_in_question(scores, c, e)) continue;
        double other = value_of(scores, c, e);
        rank += other > value || (other >= value && e < expert);
    }
    return rank;
}

static double share_of(const float *scores, const ig_config *c, int expert) {
    double own = (double)scores[expert], sum = 0;
    for (int e = 0; e < c->experts.n; e++) {
        bool counts = rank_of(scores, c, e) < c->experts.n_used;
        if (c->experts.routing != IG_ROUTING_SOFTMAX)
            sum += counts ? weights[e] / weights[expert] : 0;
        else if (c->experts.is_share_of_all || counts)
            sum += exp((double)scores[e] - own);
    }
    if (c->experts.routing == IG_ROUTING_SIGMOID_LAST ||
        (c->experts.routing == IG_ROUTING_SIGMOID && c->experts.is_share_of_all))
        return sigmoid(own) * c->experts.scale;
    return c->experts.scale / sum;
}

/* The lists hold each pair of a row and one of its experts once, in order. */
static void check(const ig_config *c, int first, int n_rows) {
    int n = 0;
    memcpy(scores_given, routes.scores.host, (size_t)(n_rows * c->experts.n) * sizeof *scores_given);
    ig_routes_choose(&routes, device, c, is_by_scores(c) ? NULL : bias, NULL, first, n_rows);
    assert_int_equal(routes.begin[0], 0);
    assert_int_equal(routes.begin[c->experts.n], (n_rows - first) * c->experts.n_used);
    for (int e = 0; e < c->experts.n; e++) {
        assert_int_equal(routes.begin[e], n);
        for (int row = first; row < n_rows; row++) {
            const float *scores = scores_given + row * c->experts.n;
            set_weights(scores, c);
            if (rank_of(scores, c, e) >= c->experts.n_used) continue;
            assert_int_equal(routes.rows[n], row);
            assert_true(fabs((double)routes.shares[n] - share_of(scores, c, e)) < 1e-6);
            n++;
        }
    }
    assert_int_equal(n, routes.begin[c->experts.n]);
}

static void rows_are_sorted(void **state) {
    static const int shapes[][2] = {{1, 1}, {4, 2}, {5, 5}, {64, 8}, {IG_MAX_EXPERTS, 12}};
    ig_random random = {7};
    (void)state;
    for (int e = 0; e < IG_MAX_EXPERTS; e++) bias[e] = (float)(e * 37 % 101) / 128;
    for (int i = 0; i < 40; i++) {
        ig_config c = {.d_model = 8, .experts.n = shapes[i / 8][0], .experts.n_used = shapes[i / 8][1]};
        c.experts.routing = (ig_routing)(i / 2 % 4);
        c.experts.is_share_of_all = i % 2 && c.experts.routing != IG_ROUTING_SOFTMAX_FIRST;
        c.experts.scale = c.experts.routing == IG_ROUTING_SOFTMAX ? 1 : 2.5;
        /* Beside biases weights of hardly anything would be told apart by rounding. */
        uint64_t n_scores = c.experts.routing == IG_ROUTING_SOFTMAX_FIRST ? 3 : 41;
        open_routes(&c);
        for (int round = 0; round < 5; round++) {
            int n = (int)(ig_random_u64(&random) % MOST_ROWS) + 1, first = (int)(ig_random_u64(&random) % (uint64_t)n);
            for (int k = 0; k < n * c.experts.n; k++)
                routes.scores.host[k] = (float)(ig_random_u64(&random) % n_scores) * 0.5f - 10; /* many are equal */
            check(&c, first, n);
        }
        ig_space_close(&space);
    }
}

/* Experts are of the best groups alone (DeepSeek-V2 and V3). */
static void groups_come_first(void **state) {
    static const int shapes[][4] = {{16, 3, 4, 2}, {48, 6, 8, 4}, {6, 2, 3, 1}, {8, 4, 8, 4}, {12, 2, 1, 1}};
    ig_random random = {11};
    (void)state;
    for (int e = 0; e < IG_MAX_EXPERTS; e++) bias[e] = (float)(e * 37 % 101) / 128;
    for (size_t i = 0; i < 2 * sizeof shapes / sizeof *shapes; i++) {
        const int *s = shapes[i / 2];
        ig_config c = {.d_model = 8,
                       .experts.n = s[0],
                       .experts.n_used = s[1],
                       .experts.n_groups = s[2],
                       .experts.n_groups_used = s[3],
                       .experts.routing = i % 2 ? IG_ROUTING_SIGMOID : IG_ROUTING_SOFTMAX_FIRST,
                       .experts.is_share_of_all = false,
                       .experts.scale = 2.5};
        open_routes(&c);
        for (int k = 0; k < 20 * c.experts.n; k++) routes.scores.host[k] = (float)(6 * ig_random_unit(&random)) - 3;
        check(&c, 0, 20);
        ig_space_close(&space);
    }
}

/* Such a row has its number of experts, and shares that show it; the others are as they would be. */
static void what_is_not_finite_shows(void **state) {
    static const float odd[] = {NAN, INFINITY, -INFINITY};
    (void)state;
    for (int i = 0; i < 48; i++) {
        ig_config c = {.d_model = 8,
                       .experts.n = 6,
                       .experts.n_used = 2,
                       .experts.is_share_of_all = i % 2,
                       .experts.routing = (ig_routing)(i / 12),
                       .experts.scale = 1};
        open_routes(&c);
        for (int k = 0; k < 18; k++) routes.scores.host[k] = (float)(k * 5 % 7);
        for (int e = 0; e < (i % 12 < 6 ? 1 : 6); e++) routes.scores.host[6 + e] = odd[i / 2 % 3];
        ig_routes_choose(&routes, device, &c, NULL, NULL, 0, 3);
        int seen = 0;
        for (int k = 0; k < 6; k++) {
            bool is_odd = routes.rows[k] == 1;
            seen += is_odd;
            if (!is_odd) assert_true(routes.shares[k] > 0 && routes.shares[k] <= 1);
        }
        assert_int_equal(seen, 2);
        if (i % 12 < 6 && i / 12 != 1 && odd[i / 2 % 3] < 0) { /* one that no expert is chosen by */
            ig_space_close(&space);
            continue;
        }
        bool shows = false;
        for (int k = 0; k < 6; k++) shows = shows || (routes.rows[k] == 1 && !isfinite(routes.shares[k]));
        assert_true(shows);
        ig_space_close(&space);
    }
}

static int open_device(void **state) {
    ig_error err = {0};
    (void)state;
    return ig_device_open_cpu(&device, IG_CPU_SCALAR, 2, &err) != IG_OK;
}

static int close_device(void **state) {
    (void)state;
    ig_device_close(device);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_sorted),
        cmocka_unit_test(groups_come_first),
        cmocka_unit_test(what_is_not_finite_shows),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
