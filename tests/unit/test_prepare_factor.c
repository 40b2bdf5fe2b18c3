/* SPDX-License-Identifier: Apache-2.0
 *
 * The factorisation behind a sketch: exact at full rank, better than any map of the plain dimensions below, and at ease
 * with directions that never occur. And the one behind a skew.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "prepare/factor.h"

enum { D = 16, N = 400 };

typedef struct sample {
    double q[N][D], k[N][D];
} sample;

static double normal(ig_random *r) {
    double sum = -6;
    for (int i = 0; i < 12; i++) sum += ig_random_unit(r);
    return sum;
}

/* Queries and keys of unequal spread in mixed directions; keys with a large mean, as biases make it. `flat`: so many
 * directions never occur. */
static sample *make_sample(int flat) {
    sample *s = calloc(1, sizeof *s);
    ig_random r = {7};
    double mix_q[D][D], mix_k[D][D], mean[D];
    for (int i = 0; i < D; i++) {
        mean[i] = 20 * normal(&r);
        for (int j = 0; j < D; j++) {
            mix_q[i][j] = i < flat ? 0 : normal(&r) * pow(0.7, i);
            mix_k[i][j] = i < flat ? 0 : normal(&r) * pow(0.6, (i * 5) % D);
        }
    }
    for (int t = 0; t < N; t++) {
        memcpy(s->k[t], mean, sizeof mean);
        for (int i = 0; i < D; i++) {
            double a = normal(&r), b = normal(&r);
            for (int j = 0; j < D; j++) {
                s->q[t][j] += a * mix_q[i][j];
                s->k[t][j] += b * mix_k[i][j];
            }
        }
    }
    return s;
}

static bool factor(float *maps, const sample *s, int rank) {
    double q2[D * D] = {0}, k2[D * D] = {0}, k1[D] = {0};
    ig_moments m = {q2, k2, k1, N};
    double *scratch = malloc(ig_factor_scratch(D) * sizeof *scratch);
    for (int t = 0; t < N; t++)
        for (int i = 0; i < D; i++) {
            k1[i] += s->k[t][i];
            for (int j = i; j < D; j++) {
                q2[i * D + j] += s->q[t][i] * s->q[t][j];
                k2[i * D + j] += s->k[t][i] * s->k[t][j];
            }
        }
    bool done = ig_factor(maps, &m, D, rank, scratch);
    free(scratch);
    return done;
}

static void mapped(double *out, const float *map, const double *x, int rank) {
    for (int i = 0; i < rank; i++) {
        out[i] = 0;
        for (int j = 0; j < D; j++) out[i] += (double)map[i * D + j] * x[j];
    }
}

static double dot(const double *a, const double *b, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* Sum over queries of the squared errors of their scores, each query's own constant aside, as a share of the whole. */
static double error_of(const sample *s, const float *maps, int rank) {
    double error = 0, whole = 0;
    static double k[N][D];
    for (int t = 0; t < N; t++) {
        mapped(k[t], maps + rank * D, s->k[t], rank);
        for (int i = 0; i < rank; i++) k[t][i] -= (double)maps[2 * rank * D + i];
    }
    for (int t = 0; t < N; t++) {
        double q[D], e1 = 0, e2 = 0, w1 = 0, w2 = 0;
        mapped(q, maps, s->q[t], rank);
        for (int u = 0; u < N; u++) {
            double score = dot(s->q[t], s->k[u], D), e = dot(q, k[u], rank) - score;
            e1 += e, e2 += e * e, w1 += score, w2 += score * score;
        }
        error += e2 - e1 * e1 / N;
        whole += w2 - w1 * w1 / N;
    }
    return error / whole;
}

static void full_rank_is_exact(void **state) {
    (void)state;
    float maps[D * (2 * D + 1)];
    sample *s = make_sample(0);
    assert_true(factor(maps, s, D));
    assert_true(error_of(s, maps, D) < 1e-9);
    free(s);
}

static void half_rank_is_best(void **state) {
    (void)state;
    float maps[D * (2 * D + 1)], plain[D * (2 * D + 1)];
    sample *s = make_sample(0);
    assert_true(factor(maps, s, 8));
    double error = error_of(s, maps, 8);
    assert_true(error > 0 && error < 0.05);
    for (int first = 0; first <= 8; first++) { /* eight of the plain dimensions do worse */
        memset(plain, 0, sizeof plain);
        for (int i = 0; i < 8; i++) plain[i * D + first + i] = plain[(8 + i) * D + first + i] = 1;
        assert_true(error_of(s, plain, 8) > 2 * error);
    }
    free(s);
}

/* Mapped keys have mean 0, and queries and keys share the weight of each dimension in equal parts. */
static void maps_are_balanced(void **state) {
    (void)state;
    float maps[8 * (2 * D + 1)];
    sample *s = make_sample(0);
    assert_true(factor(maps, s, 8));
    double mean[8] = {0}, k2[8] = {0}, q2[8] = {0};
    for (int t = 0; t < N; t++) {
        double q[D], k[D];
        mapped(q, maps, s->q[t], 8);
        mapped(k, maps + 8 * D, s->k[t], 8);
        for (int i = 0; i < 8; i++) {
            double x = k[i] - (double)maps[2 * 8 * D + i];
            mean[i] += x / N;
            k2[i] += x * x / N;
            q2[i] += q[i] * q[i] / N;
        }
    }
    assert_true(fabs(k2[0] - 1) < 1e-3);
    for (int i = 0; i < 8; i++) {
        assert_true(fabs(mean[i]) < 1e-3);
        assert_true(i == 0 || k2[i] < k2[i - 1]);
        assert_true(fabs(q2[i] / q2[0] - k2[i]) < 1e-3);
    }
    free(s);
}

static void directions_that_never_occur(void **state) {
    (void)state;
    float maps[D * (2 * D + 1)];
    sample *s = make_sample(10);
    assert_true(factor(maps, s, D));
    for (size_t i = 0; i < sizeof maps / sizeof maps[0]; i++) assert_true(isfinite(maps[i]));
    assert_true(error_of(s, maps, D) < 1e-9);
    memset(s, 0, sizeof *s);
    assert_true(factor(maps, s, D));
    for (size_t i = 0; i < sizeof maps / sizeof maps[0]; i++) assert_true(maps[i] == 0);
    free(s);
}

static bool factor_skew(float *columns, const sample *s) {
    double q2[D * D] = {0};
    double *scratch = malloc(ig_factor_scratch(D) * sizeof *scratch);
    for (int t = 0; t < N; t++)
        for (int i = 0; i < D; i++)
            for (int j = i; j < D; j++) q2[i * D + j] += s->q[t][i] * s->q[t][j];
    bool done = ig_factor_skew(columns, q2, D, scratch);
    free(scratch);
    return done;
}

/* Orthogonal; what the queries hold in one column has nothing of another, and falls from column to column. */
static void skews_are_singular_vectors(void **state) {
    (void)state;
    for (int flat = 0; flat <= D; flat += 8) {
        float a[D * D];
        sample *s = make_sample(flat);
        double energy[D][D] = {{0}};
        assert_true(factor_skew(a, s));
        for (int i = 0; i < D; i++)
            for (int j = 0; j < D; j++) {
                double sum = i == j ? -1 : 0;
                for (int k = 0; k < D; k++) sum += (double)a[i * D + k] * (double)a[j * D + k];
                assert_true(fabs(sum) < 1e-5);
            }
        for (int t = 0; t < N; t++) {
            double q[D];
            mapped(q, a, s->q[t], D);
            for (int i = 0; i < D; i++)
                for (int j = 0; j < D; j++) energy[i][j] += q[i] * q[j];
        }
        for (int i = 0; i < D; i++)
            for (int j = 0; j < D; j++)
                if (i != j) assert_true(fabs(energy[i][j]) <= 1e-5 * energy[0][0]);
        for (int i = 1; i < D; i++) assert_true(energy[i][i] <= energy[i - 1][i - 1] + 1e-9 * energy[0][0]);
        assert_true(flat == D || energy[0][0] > 3 * energy[D / 2][D / 2]);
        free(s);
    }
}

static void not_finite(void **state) {
    (void)state;
    float maps[D * (2 * D + 1)];
    sample *s = make_sample(0);
    s->q[3][5] = NAN;
    assert_false(factor(maps, s, 8));
    assert_false(factor_skew(maps, s));
    s->q[3][5] = 0;
    s->k[3][5] = INFINITY;
    assert_false(factor(maps, s, 8));
    free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_rank_is_exact),         cmocka_unit_test(half_rank_is_best),
        cmocka_unit_test(maps_are_balanced),          cmocka_unit_test(directions_that_never_occur),
        cmocka_unit_test(skews_are_singular_vectors), cmocka_unit_test(not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
