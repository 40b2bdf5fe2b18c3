/* SPDX-License-Identifier: Apache-2.0
 *
 * Mean values of blocks against double precision, with the kernels of every CPU level.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cpu.h"
#include "base/half.h"
#include "base/random.h"
#include "policy/means.h"

enum { UNIT = IG_POLICY_UNIT, HEADS = 2, MAX_N = 1300, MAX_DIM = 128, MAX_GROUP = 65, STRIDE = 1312 };

typedef struct world {
    uint16_t v[HEADS][MAX_N][MAX_DIM];
    float weight[MAX_GROUP][STRIDE]; /* not normalised */
    float p[MAX_GROUP][STRIDE];      /* what the estimate may overwrite */
    float r[MAX_GROUP];
    int32_t index[MAX_N];
    float value[MAX_GROUP * MAX_DIM], share[MAX_GROUP];
    bool used[MAX_N];
    int n_used;
} world;

static world w;
static ig_random random_;

static double unit(void) { return ig_random_unit(&random_); }

static void fill_value(int head, int entry, int d) {
    for (int c = 0; c < d; c++) w.v[head][entry][c] = ig_f32_f16((float)(4 * unit() - 2));
}

static void use_some(int n, double share) {
    w.n_used = 0;
    for (int i = 0; i < n; i++) {
        w.used[i] = unit() < share;
        if (w.used[i]) w.index[w.n_used++] = i;
    }
}

/* Exponentials of scores, as a softmax leaves them. */
static void weigh(int n, int group) {
    for (int g = 0; g < group; g++) {
        double sum = 0;
        for (int i = 0; i < n; i++) {
            w.weight[g][i] = (float)exp(-8 * unit());
            sum += (double)w.weight[g][i];
        }
        w.r[g] = (float)(1 / sum);
    }
}

static ig_means open_means(ig_cpu_level level, int n, int d) {
    ig_means m;
    ig_error err = {0};
    if (ig_means_open(&m, ig_kernels_get(level), HEADS, n, d, &err)) fail_msg("%s", err.text);
    return m;
}

static void append(ig_means *m, int begin, int end) {
    for (int i = begin; i < end; i++)
        for (int h = 0; h < HEADS; h++) ig_means_append(m, (size_t)h, i, w.v[h][i]);
}

static void estimate(const ig_means *m, int head, int n, int group) {
    memcpy(w.p, w.weight, sizeof w.p);
    for (int i = 0; i < group * m->head_dim; i++) w.value[i] = NAN;
    for (int g = 0; g < group; g++) w.share[g] = 0;
    ig_means_estimate(m, (size_t)head, n, w.p[0], STRIDE, w.r, group, w.index, w.n_used, &(ig_rest){w.value, w.share});
}

/* ---- against the definition --------------------------------------------------------- */

/* A mean is kept as a 16-bit float: 11 bits. */
static void check_value(int head, int n, int d, int g) {
    for (int c = 0; c < d; c++) {
        double want = 0, slack = 2e-6;
        for (int b = 0; b < n / UNIT; b++) {
            double mean = 0, weight = 0;
            for (int i = b * UNIT; i < (b + 1) * UNIT; i++) {
                mean += (double)ig_f16_f32(w.v[head][i][c]) / UNIT;
                if (!w.used[i]) weight += (double)w.weight[g][i] * (double)w.r[g];
            }
            want += weight * mean;
            slack += weight * fabs(mean) / 2048;
        }
        assert_true(fabs((double)w.value[g * d + c] - want) <= slack);
    }
}

static void check(int head, int n, int d, int group) {
    for (int g = 0; g < group; g++) {
        double share = 0;
        for (int i = 0; i < n / UNIT * UNIT; i++)
            if (!w.used[i]) share += (double)w.weight[g][i] * (double)w.r[g];
        assert_true(fabs((double)w.share[g] - share) <= 1e-5);
        if (share > 0) check_value(head, n, d, g);
    }
}

static void like_double_precision(void **state) {
    static const int dims[] = {32, 64, 128}, groups[] = {1, 3, 7, MAX_GROUP}, ns[] = {15, 16, 33, 319, 1039, MAX_N};
    (void)state;
    random_ = (ig_random){1};
    for (ig_cpu_level level = IG_CPU_SCALAR; level <= ig_cpu_detect(); level++)
        for (size_t k = 0; k < 3 * 4 * 6; k++) {
            int d = dims[k % 3], group = groups[k / 3 % 4], n = ns[k / 12], head = (int)k % HEADS;
            ig_means m = open_means(level, n + (int)k % 20, d); /* with room for more, or not */
            for (int h = 0; h < HEADS; h++)
                for (int i = 0; i < n; i++) fill_value(h, i, d);
            append(&m, 0, n);
            weigh(n, group);
            use_some(n, (double)(k % 5) / 5);
            estimate(&m, head, n, group);
            check(head, n, d, group);
            ig_means_close(&m);
        }
}

static void nothing_is_left_of_what_is_all_used(void **state) {
    enum { N = 100, D = 32 };
    (void)state;
    random_ = (ig_random){2};
    for (ig_cpu_level level = IG_CPU_SCALAR; level <= ig_cpu_detect(); level++) {
        ig_means m = open_means(level, N, D);
        for (int h = 0; h < HEADS; h++)
            for (int i = 0; i < N; i++) fill_value(h, i, D);
        append(&m, 0, N);
        weigh(N, 3);
        use_some(N, 2);
        assert_int_equal(w.n_used, N);
        estimate(&m, 1, N, 3);
        for (int g = 0; g < 3; g++) assert_true(w.share[g] == 0);
        ig_means_close(&m);
    }
}

/* ---- entries that come again ---------------------------------------------------------- */

/* The session was cut at n, went on to `end`, and is shown the block of n from its first entry on. */
static void again(ig_cpu_level level, int before, int n, int end, int d) {
    static float value[7 * MAX_DIM], share[7];
    ig_means m = open_means(level, MAX_N, d), fresh = open_means(level, MAX_N, d);
    for (int h = 0; h < HEADS; h++)
        for (int i = 0; i < before; i++) fill_value(h, i, d);
    append(&m, 0, before);
    for (int h = 0; h < HEADS; h++)
        for (int i = n; i < end; i++) fill_value(h, i, d);
    append(&m, n / UNIT * UNIT, end);
    append(&fresh, 0, end);
    weigh(end, 7);
    use_some(end, 0.1);
    for (int h = 0; h < HEADS; h++) {
        estimate(&fresh, h, end, 7);
        memcpy(value, w.value, sizeof value);
        memcpy(share, w.share, sizeof share);
        estimate(&m, h, end, 7);
        assert_memory_equal(w.value, value, (size_t)(7 * d) * sizeof *value);
        assert_memory_equal(w.share, share, sizeof share);
    }
    ig_means_close(&m);
    ig_means_close(&fresh);
}

static void what_comes_again_takes_its_place(void **state) {
    (void)state;
    random_ = (ig_random){3};
    for (ig_cpu_level level = IG_CPU_SCALAR; level <= ig_cpu_detect(); level++) {
        static const int ns[] = {0, 1, 7, 15, 16, 17, 31, 95};
        for (size_t k = 0; k < sizeof ns / sizeof *ns; k++)
            for (int end = 96; end < 130; end += 11) { /* before and after what was there */
                again(level, 103, ns[k], end, 64);
                again(level, 96, ns[k], end, 32);
            }
    }
}

/* ---- in place of attention -------------------------------------------------------------- */

static double attention(int g, int c, int n, bool all) {
    double sum = 0, total = 0;
    for (int i = 0; i < n; i++) {
        if (!all && !w.used[i]) continue;
        sum += (double)w.weight[g][i] * (double)ig_f16_f32(w.v[0][i][c]);
        total += (double)w.weight[g][i];
    }
    return sum / total;
}

/* Where a block's values are all the same, its mean is what was left out: nothing is lost. */
static void exact_where_blocks_are_constant(void **state) {
    enum { N = 20 * UNIT + 9, D = 64, GROUP = 7 };
    (void)state;
    random_ = (ig_random){4};
    for (ig_cpu_level level = IG_CPU_SCALAR; level <= ig_cpu_detect(); level++) {
        ig_means m = open_means(level, N, D);
        for (int h = 0; h < HEADS; h++)
            for (int i = 0; i < N; i++) {
                if (i % UNIT == 0)
                    fill_value(h, i, D);
                else
                    memcpy(w.v[h][i], w.v[h][i - 1], sizeof w.v[h][i]);
            }
        append(&m, 0, N);
        weigh(N, GROUP);
        use_some(N, 0.2);
        w.n_used = 0;
        for (int i = 0; i < N; i++) {
            w.used[i] = w.used[i] || i >= N / UNIT * UNIT; /* recent entries are always read */
            if (w.used[i]) w.index[w.n_used++] = i;
        }
        estimate(&m, 0, N, GROUP);
        for (int g = 0; g < GROUP; g++)
            for (int c = 0; c < D; c++) {
                double got = (1 - (double)w.share[g]) * attention(g, c, N, false) + (double)w.value[g * D + c];
                assert_true(w.share[g] > 0.3F && fabs(got - attention(g, c, N, true)) < 1e-5);
            }
        ig_means_close(&m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(like_double_precision),
        cmocka_unit_test(nothing_is_left_of_what_is_all_used),
        cmocka_unit_test(what_comes_again_takes_its_place),
        cmocka_unit_test(exact_where_blocks_are_constant),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
