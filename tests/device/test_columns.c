/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists that choose in common, by scores of some columns of their keys, on a GPU, against numbers of the host's.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "two_devices.h"

#include "kernel/kernel.h"

enum { UNIT = IG_SKETCH_TOKENS, MAX_N = 4500, UNITS = (MAX_N + UNIT - 1) / UNIT, HEADS = 3, MAX_D = 96 };

/* A query head. */
typedef struct head {
    int d, n_columns, rank, n;
    uint16_t *host; /* [UNITS][UNIT][rank] */
    uint8_t *dev;
    float *q, *map;      /* [d], or [n_columns] where there are no others; [d][d] bound, or NULL */
    int32_t *columns;    /* [n_columns], or NULL: there are no others */
    float narrow[MAX_D]; /* what entries are multiplied with */
    float scores[MAX_N]; /* of the host's */
    float *scratch;
    int32_t *index, *n_index, *picked; /* picked [n], then their number */
} head;

enum kind { MAPPED, PLAIN, ALL };

static const ig_kernels *k(void) { return ig_kernels_get(IG_CPU_SCALAR); }

static float random_number(void) { return (float)(2 * ig_random_unit(&dice) - 1); }

static void *take(ig_place place, size_t n_bytes) {
    void *p = ig_device_alloc(devices[GPU], place, n_bytes);
    assert_non_null(p);
    return p;
}

static size_t unit_bytes(const head *x) { return (size_t)(UNIT * x->rank) * sizeof *x->host; }

static void open_head(head *x, enum kind kind, int d, int n_columns) {
    size_t size = (size_t)(d * d) * sizeof *x->map;
    ig_error err = {0};
    *x = (head){.d = d, .n_columns = n_columns, .rank = (n_columns + 7) / 8 * 8};
    x->host = calloc(UNITS, unit_bytes(x));
    x->dev = take(IG_PLACE_DEVICE, UNITS * unit_bytes(x));
    x->q = take(IG_PLACE_HOST, (size_t)d * sizeof *x->q);
    if (kind != ALL) x->columns = take(IG_PLACE_HOST, (size_t)n_columns * sizeof *x->columns);
    for (int i = 0; x->columns && i < n_columns; i++) x->columns[i] = i * d / n_columns;
    x->map = kind == MAPPED ? malloc(size) : NULL;
    for (int i = 0; x->map && i < d * d; i++) x->map[i] = random_number();
    if (x->map && devices[GPU]->ops->bind(devices[GPU], x->map, size, &err)) fail_msg("%s", err.text);
    x->scratch = take(IG_PLACE_DEVICE, ig_scan_floats(1, d, MAX_N) * sizeof *x->scratch);
    x->index = take(IG_PLACE_HOST, MAX_N * sizeof *x->index);
    x->n_index = take(IG_PLACE_HOST, sizeof *x->n_index);
    x->picked = take(IG_PLACE_HOST, (MAX_N + 1) * sizeof *x->picked);
}

static void close_head(head *x) {
    void *pinned[] = {x->q, x->columns, x->index, x->n_index, x->picked};
    for (size_t i = 0; i < sizeof pinned / sizeof *pinned; i++)
        ig_device_free(devices[GPU], IG_PLACE_HOST, pinned[i], 0);
    ig_device_free(devices[GPU], IG_PLACE_DEVICE, x->dev, 0);
    ig_device_free(devices[GPU], IG_PLACE_DEVICE, x->scratch, 0);
    if (x->map) devices[GPU]->ops->unbind(devices[GPU], x->map);
    free(x->host), free(x->map);
}

static void map_query(head *x) {
    uint16_t halves[MAX_D];
    float rounded[MAX_D];
    int n = x->columns ? x->d : x->n_columns;
    k()->f32_to_f16(halves, x->q, n);
    k()->f16_to_f32(rounded, halves, n);
    for (int c = 0; c < x->n_columns; c++) {
        int row = x->columns ? x->columns[c] : c;
        x->narrow[c] = x->map ? 0 : rounded[row];
        for (int i = 0; x->map && i < x->d; i++) x->narrow[c] += x->map[row * x->d + i] * rounded[i];
    }
}

/* Entries up to n, and another query. */
static void write_entries(head *x, int n, float size) {
    for (; x->n < n; x->n++) {
        float key[MAX_D] = {0};
        for (int i = 0; i < x->n_columns; i++) key[i] = size * random_number();
        k()->f32_to_f16(x->host + (size_t)(x->n * x->rank), key, x->rank);
    }
    for (int i = 0; i < x->d; i++) x->q[i] = random_number();
    map_query(x);
}

static ig_scan_list list_of(const head *x, int number, int fresh, bool has_own, int count, float alpha) {
    return (ig_scan_list){.keys = {(const uint8_t *)x->host, x->dev, unit_bytes(x), fresh / UNIT},
                          .n = x->n + has_own,
                          .group = 1,
                          .rank = x->rank,
                          .head_dim = x->d,
                          .scale = 0.4f,
                          .q = x->q,
                          .k = has_own ? x->q : NULL,
                          .query_map = x->map,
                          .rule = {.n_recent = has_own, .count = count + has_own, .mass = 1},
                          .columns = {x->n_columns, x->columns, alpha, number, HEADS},
                          .scratch = x->scratch,
                          .index = x->index,
                          .n_index = x->n_index,
                          .picked = x->picked,
                          .n_picked = x->picked + MAX_N};
}

/* The host's scores; how many of them are within alpha of the best. */
static int score(head *x, float alpha) {
    float best = -INFINITY;
    int n = 0;
    for (int i = 0; i < x->n; i++) {
        float key[MAX_D];
        double sum = 0;
        k()->f16_to_f32(key, x->host + (size_t)(i * x->rank), x->rank);
        for (int c = 0; c < x->n_columns; c++) sum += (double)(x->narrow[c] * key[c]);
        x->scores[i] = (float)(0.4 * sum);
        best = fmaxf(best, x->scores[i]);
    }
    for (int i = 0; i < x->n; i++) n += x->scores[i] > best - alpha;
    return n;
}

/* Slots of the list are in order, `count` of them and the own one, and none that is left out scores more than one that
 * is not, but for rounding. */
static void expect_best(const head *x, int count, bool has_own) {
    float least = INFINITY, most = -INFINITY;
    int n = *x->n_index, at = 0;
    if (count > x->n) count = x->n;
    assert_int_equal(n, count + has_own);
    assert_int_equal(x->picked[MAX_N], n);
    assert_memory_equal(x->picked, x->index, (size_t)n * sizeof *x->index);
    for (int i = 0; i < x->n; i++) {
        bool is = at < n && x->index[at] == i;
        at += is;
        least = is ? fminf(least, x->scores[i]) : least;
        most = is ? most : fmaxf(most, x->scores[i]);
    }
    if (has_own) assert_int_equal(x->index[at++], x->n);
    assert_int_equal(at, n);
    if (most > least + 1e-4f) fail_msg("one that scores %g is left out for %g", (double)most, (double)least);
}

/* Lists of all kinds, as entries come, of which only fresh ones are brought; they choose as many as on the average are
 * near the best, or as the rule allows. Near ones are counted where no rounding decides. */
static void choose_in_common(head *x, int fresh, bool has_own, int most, float alpha) {
    ig_scan_list lists[HEADS];
    int sum = 0, unsure = 0;
    for (int i = 0; i < HEADS; i++) {
        lists[i] = list_of(&x[i], i, fresh, has_own, most, alpha);
        sum += score(&x[i], alpha);
        unsure += score(&x[i], alpha + 1e-4f) - score(&x[i], alpha - 1e-4f);
    }
    devices[GPU]->ops->choose(devices[GPU], lists, HEADS, true);
    finish(GPU);
    int mean = sum / HEADS, n = *x[0].n_index - has_own;
    if (mean > most) mean = most;
    if (mean < 1) mean = 1;
    if (abs(n - mean) > (unsure ? unsure / HEADS + 1 : 0)) fail_msg("%d entries are chosen, not %d", n, mean);
    for (int i = 0; i < HEADS; i++) expect_best(&x[i], n, has_own);
}

static void like_the_host(void **state) {
    static const int lengths[] = {1, 2, 20, 512, 517, 1500, 2048, 2049, MAX_N - 1};
    static head x[HEADS];
    (void)state;
    open_head(&x[0], MAPPED, 64, 19), open_head(&x[1], PLAIN, 96, 30), open_head(&x[2], ALL, 24, 24);
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        int before = x[0].n;
        for (int i = 0; i < HEADS; i++) write_entries(&x[i], lengths[l], 3);
        choose_in_common(x, before, l % 2, MAX_N, 4);
        choose_in_common(x, MAX_N, l % 2, lengths[l] / 5 + 1, 4);
        choose_in_common(x, MAX_N, !(l % 2), MAX_N, 1e30f); /* all are near */
        choose_in_common(x, MAX_N, l % 2, MAX_N, 0);        /* none is, and one is chosen */
    }
    for (int i = 0; i < HEADS; i++) close_head(&x[i]);
}

/* Of equal scores the first ones are chosen; what is no number counts as the least. */
static void equal_and_odd_scores(void **state) {
    static head x[HEADS];
    ig_scan_list lists[HEADS];
    (void)state;
    for (int i = 0; i < HEADS; i++) {
        open_head(&x[i], PLAIN, 64, 16);
        write_entries(&x[i], 1300, 0);
    }
    x[1].host[7 * x[1].rank] = x[2].host[9 * x[2].rank] = 0x7e00; /* NaN */
    for (int i = 0; i < HEADS; i++) lists[i] = list_of(&x[i], i, 0, false, 100, 1);
    devices[GPU]->ops->choose(devices[GPU], lists, HEADS, true);
    finish(GPU);
    for (int i = 0; i < HEADS; i++) {
        assert_int_equal(*x[i].n_index, 100);
        for (int j = 0, odd = i == 1 ? 7 : i == 2 ? 9 : 100; j < 100; j++)
            assert_int_equal(x[i].index[j], j < odd ? j : j + 1);
        close_head(&x[i]);
    }
}

/* Lists that choose in common stay together where the mail does not hold them all. */
static void many_lists(void **state) {
    enum { MANY = 150 * HEADS, N = 100, BULK = 60000 };
    static uint8_t bulk[BULK]; /* bits that nobody looks at */
    static head x[HEADS];
    size_t floats = ig_scan_floats(1, 64, N + HEADS + 1);
    float *scratch = take(IG_PLACE_DEVICE, MANY * floats * sizeof *scratch);
    int32_t *counts = take(IG_PLACE_HOST, MANY * sizeof *counts);
    static ig_scan_list lists[MANY];
    int n = 0;
    (void)state;
    for (int i = 0; i < HEADS; i++) {
        open_head(&x[i], PLAIN, 64, 20);
        write_entries(&x[i], N + i, 3);
        n += score(&x[i], 2) / HEADS;
    }
    for (int i = 0; i < MANY; i++) {
        lists[i] = list_of(&x[i % HEADS], i % HEADS, i < HEADS ? 0 : MAX_N, true, 50, 2);
        lists[i].scratch = scratch + (size_t)i * floats;
        lists[i].n_index = &counts[i];
        lists[i].favour.used = bulk, lists[i].favour.n_known = 8 * BULK;
    }
    devices[GPU]->ops->choose(devices[GPU], lists, MANY, true);
    finish(GPU);
    for (int i = 0; i < MANY; i++) assert_int_equal(counts[i], counts[0]);
    assert_true(abs(counts[0] - 1 - n) <= HEADS);
    for (int i = 0; i < HEADS; i++) close_head(&x[i]);
    ig_device_free(devices[GPU], IG_PLACE_DEVICE, scratch, 0);
    ig_device_free(devices[GPU], IG_PLACE_HOST, counts, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(like_the_host), cmocka_unit_test(equal_and_odd_scores),
                                       cmocka_unit_test(many_lists)};
    int missing = missing_gpu();
    return missing ? missing : cmocka_run_group_tests(tests, open_devices, close_devices);
}
