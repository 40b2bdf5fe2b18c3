/* SPDX-License-Identifier: Apache-2.0
 *
 * The sketch of the values in place of what attention does not read, against double precision, with the kernels of
 * every CPU level.
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
#include "policy/values.h"

enum { HEADS = 2, MAX_N = 1300, MAX_DIM = IG_KV_DIMS, MAX_GROUP = 33, STRIDE = 1312 };

typedef struct world {
    uint16_t v[HEADS][MAX_N][MAX_DIM];
    float p[MAX_GROUP][STRIDE]; /* weights of what is not read, not normalised */
    float r[MAX_GROUP];
    float value[MAX_GROUP * MAX_DIM], share[MAX_GROUP];
} world;

static world w;
static ig_random random_;

static double unit(void) { return ig_random_unit(&random_); }

/* Near normal, with one dim far larger than the others, as models have them. */
static void fill_value(int head, int entry, int d) {
    for (int c = 0; c < d; c++) {
        double x = unit() + unit() + unit() + unit() - 2;
        w.v[head][entry][c] = ig_f32_f16((float)(c == 3 ? 6 * x : x));
    }
}

/* Exponentials of scores of n slots, of which a fifth is read, up to the next multiple of 16; r makes them shares of
 * what all n would weigh. Returns that multiple. */
static int weigh(int n, int group) {
    int n_slots = (n + IG_SKETCH_TOKENS - 1) / IG_SKETCH_TOKENS * IG_SKETCH_TOKENS;
    for (int g = 0; g < group; g++) {
        double sum = 0;
        for (int i = 0; i < n_slots; i++) {
            double weight = i < n ? exp(-6 * unit()) : 0;
            sum += weight;
            w.p[g][i] = i % 5 ? (float)weight : 0;
        }
        w.r[g] = (float)(1 / sum);
    }
    return n_slots;
}

static ig_values open_values(ig_cpu_level level, int n, int d) {
    ig_values v;
    ig_error err = {0};
    static const int window[1];
    ig_policy p = {.ops = &ig_policy_infinigen,
                   .shape = {.n_layers = 1,
                             .n_kv_heads = HEADS,
                             .head_dim = d,
                             .n_ctx = n,
                             .window = window,
                             .kernels = ig_kernels_get(level)}};
    if (ig_values_open(&v, &p, &err)) fail_msg("%s", err.text);
    assert_true(ig_values_head_bytes(n, d) == ((size_t)n + 15) / 16 * (32 + 4 * (size_t)d));
    return v;
}

static void append(ig_values *v, int begin, int end) {
    for (int i = begin; i < end; i++)
        for (int h = 0; h < HEADS; h++) ig_values_append(v, (size_t)h, i, w.v[h][i]);
}

/* From sums of three parts at most. */
static void estimate(const ig_values *v, int head, int n_slots, int group) {
    enum { PART = 512, PARTS = 3 };
    static float left[PARTS * MAX_GROUP], sum[PARTS * MAX_GROUP * MAX_DIM], r[PARTS * MAX_GROUP];
    int n_parts = 0;
    for (int begin = 0; begin < n_slots; begin += PART, n_parts++) {
        int end = n_slots - begin < PART ? n_slots : begin + PART;
        size_t at = (size_t)n_parts * (size_t)group;
        for (int i = 0; i < group * v->head_dim; i++) sum[at * (size_t)v->head_dim + (size_t)i] = NAN;
        ig_values_sum(v, (size_t)head, begin, end, w.p[0], STRIDE, group, left + at, sum + at * (size_t)v->head_dim);
        memcpy(r + at, w.r, (size_t)group * sizeof *r);
    }
    for (int i = 0; i < group * v->head_dim; i++) w.value[i] = NAN;
    for (int g = 0; g < group; g++) w.share[g] = 0;
    ig_values_join(v, n_parts, left, sum, r, group, &(ig_rest){w.value, w.share});
}

/* The share is as given; the value is that of the values themselves up to what 2 bits leave of them: an eighth of
 * their variance, independent of each other, if they were normally distributed. */
static void check(int head, int n, int d, int g) {
    double share = 0, error = 0, expected = 0;
    for (int i = 0; i < n; i++) share += (double)w.p[g][i] * (double)w.r[g];
    assert_true(fabs((double)w.share[g] - share) <= 1e-5);
    for (int i = 0; i < n; i++) {
        double weight = (double)w.p[g][i] * (double)w.r[g], squares = 0;
        for (int c = 0; c < d; c++) squares += pow((double)ig_f16_f32(w.v[head][i][c]), 2);
        expected += weight * weight * squares / 8;
    }
    for (int c = 0; c < d; c++) {
        double want = 0;
        for (int i = 0; i < n; i++) want += (double)w.p[g][i] * (double)w.r[g] * (double)ig_f16_f32(w.v[head][i][c]);
        error += pow((double)w.value[g * d + c] - want, 2);
    }
    if (!(error <= 1.6 * expected + 1e-12)) fail_msg("d %d, n %d: %g, not %g", d, n, error, expected);
}

static void like_the_values(void **state) {
    enum { ALL = 4 * 4 * 3 };
    static const int dims[] = {32, 64, 96, 128}, groups[] = {1, 3, 7, MAX_GROUP}, ns[] = {319, 1039, MAX_N};
    (void)state;
    for (ig_cpu_level level = IG_CPU_SCALAR; level <= ig_cpu_detect(); level++) {
        random_ = (ig_random){1}; /* the same values at every level */
        for (size_t k = 0; ig_cpu_has(level) && k < ALL + 4; k++) {
            int d = k < ALL ? dims[k % 4] : IG_KV_DIMS, group = groups[k / 4 % 4], n = ns[k / 16 % 3],
                head = (int)k % HEADS;
            ig_values v = open_values(level, n + (int)k % 20, d);
            for (int h = 0; h < HEADS; h++)
                for (int i = 0; i < n; i++) fill_value(h, i, d);
            append(&v, 0, n);
            int n_slots = weigh(n, group);
            estimate(&v, head, n_slots, group);
            for (int g = 0; g < group; g++) check(head, n, d, g);
            ig_values_close(&v);
        }
    }
}

static void nothing_is_left_of_what_is_all_read(void **state) {
    enum { N = 96, D = 32 };
    (void)state;
    random_ = (ig_random){2};
    for (ig_cpu_level level = IG_CPU_SCALAR; level <= ig_cpu_detect(); level++) {
        if (!ig_cpu_has(level)) continue;
        ig_values v = open_values(level, N, D);
        for (int h = 0; h < HEADS; h++)
            for (int i = 0; i < N; i++) fill_value(h, i, D);
        append(&v, 0, N);
        weigh(N, 3);
        memset(w.p, 0, sizeof w.p);
        estimate(&v, 1, N, 3);
        for (int g = 0; g < 3; g++) assert_true(w.share[g] == 0);
        ig_values_close(&v);
    }
}

/* Slots are used again: what was there before leaves nothing behind, and what lies beside stays. */
static void a_slot_holds_what_came_last(void **state) {
    enum { N = 130, D = 64, GROUP = 5 };
    static float value[GROUP * D];
    (void)state;
    random_ = (ig_random){3};
    for (ig_cpu_level level = IG_CPU_SCALAR; level <= ig_cpu_detect(); level++) {
        if (!ig_cpu_has(level)) continue;
        ig_values used = open_values(level, N, D), fresh = open_values(level, N, D);
        for (int round = 0; round < 2; round++) {
            for (int h = 0; h < HEADS; h++)
                for (int i = round; i < N; i += 1 + 2 * round) fill_value(h, i, D);
            append(&used, 0, N);
        }
        append(&fresh, 0, N);
        int n_slots = weigh(N, GROUP);
        for (int h = 0; h < HEADS; h++) {
            estimate(&fresh, h, n_slots, GROUP);
            memcpy(value, w.value, sizeof value);
            estimate(&used, h, n_slots, GROUP);
            assert_memory_equal(w.value, value, sizeof value);
        }
        ig_values_close(&used);
        ig_values_close(&fresh);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(like_the_values),
        cmocka_unit_test(nothing_is_left_of_what_is_all_read),
        cmocka_unit_test(a_slot_holds_what_came_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
