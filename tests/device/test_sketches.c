/* SPDX-License-Identifier: Apache-2.0
 *
 * Entries weighed by their sketches on a GPU, and what is left out of them, against the scalar kernels of the CPU.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "two_devices.h"

#include "kernel/kernel.h"

enum { UNIT = IG_SKETCH_TOKENS, MAX_N = 1500, UNITS = 4 * ((MAX_N + UNIT - 1) / UNIT), LISTS = 3, MAX_GROUP = 9 };

/* A KV head's units, on either side: of what is written a copy is on the GPU as far as scan() has brought it. */
typedef struct head {
    int group, rank, d, shift, n;
    uint8_t *host[2]; /* keys, values */
    uint8_t *dev[2];
    size_t bytes[2]; /* of a unit */
    uint32_t pieces[UNITS];
    float *q, *scratch, *weights, *rest, *share;
} head;

static const ig_kernels *k(void) { return ig_kernels_get(IG_CPU_SCALAR); }

static float random_number(void) { return (float)(2 * ig_random_unit(&dice) - 1); }

static size_t number_of(const head *x, int unit) {
    return ((size_t)x->pieces[unit >> x->shift] << x->shift) + (size_t)(unit & ((1 << x->shift) - 1));
}

static void *take(ig_place place, size_t n_bytes) {
    void *p = ig_device_alloc(devices[GPU], place, n_bytes);
    assert_non_null(p);
    return p;
}

/* Pieces of 1 << shift units that lie in no order. */
static head open_head(int group, int rank, int d, int shift) {
    head x = {.group = group, .rank = rank, .d = d, .shift = shift};
    size_t g = (size_t)group;
    x.bytes[0] = ig_sketch_block_bytes(rank), x.bytes[1] = ig_value_sketch_block_bytes(d);
    for (int v = 0; v < 2; v++) {
        x.host[v] = calloc(UNITS, x.bytes[v]);
        x.dev[v] = take(IG_PLACE_DEVICE, UNITS * x.bytes[v]);
    }
    for (int i = 0; i << shift < UNITS; i++) x.pieces[i] = (uint32_t)(i * 5 % (UNITS >> shift));
    x.q = malloc(g * (size_t)rank * sizeof *x.q);
    x.scratch = take(IG_PLACE_DEVICE, ig_scan_floats(group, d, MAX_N) * sizeof *x.scratch);
    x.weights = take(IG_PLACE_HOST, MAX_N * sizeof *x.weights);
    x.rest = take(IG_PLACE_HOST, g * (size_t)d * sizeof *x.rest);
    x.share = take(IG_PLACE_HOST, g * sizeof *x.share);
    return x;
}

static void close_head(head *x) {
    void *pinned[] = {x->weights, x->rest, x->share};
    for (int v = 0; v < 2; v++) ig_device_free(devices[GPU], IG_PLACE_DEVICE, x->dev[v], 0);
    for (int i = 0; i < 3; i++) ig_device_free(devices[GPU], IG_PLACE_HOST, pinned[i], 0);
    ig_device_free(devices[GPU], IG_PLACE_DEVICE, x->scratch, 0);
    free(x->host[0]), free(x->host[1]), free(x->q);
}

/* Entries up to n, and other queries. */
static void write_entries(head *x, int n) {
    for (; x->n < n; x->n++) {
        float key[IG_KV_DIMS], value[IG_KV_DIMS];
        uint16_t halves[IG_KV_DIMS];
        for (int i = 0; i < x->rank; i++) key[i] = 3 * random_number();
        for (int i = 0; i < x->d; i++) value[i] = random_number();
        size_t unit = number_of(x, x->n / UNIT);
        k()->f32_to_f16(halves, key, x->rank);
        k()->sketch_put(x->host[0] + unit * x->bytes[0], x->n % UNIT, halves, x->rank);
        k()->value_put(x->host[1] + unit * x->bytes[1], x->n % UNIT, value, x->d);
    }
    for (int i = 0; i < x->group * x->rank; i++) x->q[i] = random_number();
}

static ig_scan_list list_of(const head *x, int fresh) {
    return (ig_scan_list){.keys = {x->host[0], x->dev[0], x->bytes[0], fresh / UNIT},
                          .values = {x->host[1], x->dev[1], x->bytes[1], fresh / UNIT},
                          .pieces = x->pieces,
                          .shift = x->shift,
                          .n = x->n,
                          .group = x->group,
                          .rank = x->rank,
                          .head_dim = x->d,
                          .scale = 0.4f,
                          .q = x->q,
                          .scratch = x->scratch,
                          .weights = x->weights,
                          .rest = x->rest,
                          .rest_share = x->share};
}

static void expect_close(float got, float want, float size, const char *what, int i) {
    if (!(fabsf(got - want) <= 2e-5f * size)) fail_msg("%s %d is %g, not %g", what, i, (double)got, (double)want);
}

/* A query's shares of the attention, padded to whole units. */
static void share_out(float *p, const head *x, int g) {
    double sum = 0;
    float top = -INFINITY;
    for (int u = 0; u * UNIT < x->n; u++)
        k()->sketch_scores(p + u * UNIT, 0, x->q + g * x->rank, 1, x->rank, 0.4f,
                           x->host[0] + number_of(x, u) * x->bytes[0], 1);
    for (int i = 0; i < x->n; i++) top = fmaxf(top, p[i]);
    for (int i = 0; i < x->n; i++) sum += exp((double)p[i] - (double)top);
    for (int i = 0; i < x->n; i++) p[i] = (float)(exp((double)p[i] - (double)top) / sum);
    for (int i = x->n; i % UNIT; i++) p[i] = 0;
}

static void expect_weights(const head *x) {
    static float p[MAX_GROUP][MAX_N + UNIT];
    for (int g = 0; g < x->group; g++) share_out(p[g], x, g);
    for (int i = 0; i < x->n; i++) {
        float want = 0;
        for (int g = 0; g < x->group; g++) want += p[g][i];
        expect_close(x->weights[i], want, want, "weight", i);
    }
}

/* Of every entry but those of the list. */
static void expect_rest(const head *x, const int32_t *index, int n_read) {
    for (int g = 0; g < x->group; g++) {
        float p[MAX_N + UNIT], want[IG_KV_DIMS] = {0}, size = 0;
        double left = 0;
        share_out(p, x, g);
        for (int i = 0; i < n_read; i++) p[index[i]] = 0;
        for (int i = 0; i < x->n; i++) left += (double)p[i];
        for (int u = 0; u * UNIT < x->n; u++)
            k()->value_sums(want, p + u * UNIT, 0, 1, x->d, x->host[1] + number_of(x, u) * x->bytes[1], 1);
        k()->hadamard(want, x->d);
        for (int i = 0; i < x->d; i++) size = fmaxf(size, fabsf(want[i]));
        expect_close(x->share[g], (float)left, (float)left, "share of query", g);
        /* Weights in 1/255 of a unit's largest may be rounded the other way. */
        for (int i = 0; i < x->d; i++) expect_close(x->rest[g * x->d + i], want[i], 100 * size, "rest, number", i);
    }
}

static void scan(const ig_scan_list *lists, int n) { devices[GPU]->ops->scan(devices[GPU], lists, n); }

/* Lists of several shapes together, as entries come: only units that are fresh are brought. */
static void like_the_cpu(void **state) {
    static const int lengths[] = {1, 20, 512, 517, MAX_N};
    static int32_t index[LISTS][MAX_N];
    head x[LISTS] = {open_head(1, 64, 64, 0), open_head(3, 32, 64, 1), open_head(MAX_GROUP, 128, 96, 2)};
    int before = 0;
    (void)state;
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; before = lengths[l++]) {
        ig_scan_list lists[LISTS];
        for (int i = 0; i < LISTS; i++) {
            write_entries(&x[i], lengths[l] - (lengths[l] > 3 ? i : 0));
            lists[i] = list_of(&x[i], before > 3 ? before - i : 0);
        }
        scan(lists, LISTS);
        for (int i = 0; i < LISTS; i++) expect_weights(&x[i]);
        for (int i = 0; i < LISTS; i++) {
            lists[i].index = index[i];
            for (int slot = 0; slot < x[i].n; slot += 1 + (int)(ig_random_unit(&dice) * 9))
                index[i][lists[i].n_read++] = slot;
        }
        devices[GPU]->ops->estimate(devices[GPU], lists, LISTS);
        finish(GPU);
        for (int i = 0; i < LISTS; i++) expect_rest(&x[i], index[i], lists[i].n_read);
    }
    for (int i = 0; i < LISTS; i++) close_head(&x[i]);
}

/* A list's bits do not depend on what shares the call, nor on when its units were brought. */
static void alone_and_together(void **state) {
    head x[2] = {open_head(4, 64, 64, 0), open_head(4, 64, 64, 0)};
    static float alone[MAX_N];
    (void)state;
    write_entries(&x[0], 700), write_entries(&x[1], MAX_N);
    ig_scan_list lists[2] = {list_of(&x[0], 0), list_of(&x[1], 0)};
    scan(lists, 1);
    memcpy(alone, x[0].weights, 700 * sizeof *alone);
    scan(lists, 2);
    assert_memory_equal(alone, x[0].weights, 700 * sizeof *alone);
    lists[0].keys.fresh = lists[0].values.fresh = MAX_N;
    scan(lists, 2);
    assert_memory_equal(alone, x[0].weights, 700 * sizeof *alone);
    for (int i = 0; i < 2; i++) close_head(&x[i]);
}

/* Queries that are zero or no numbers find all entries alike, as on the CPU; and more units than the mail holds. */
static void odd_queries_and_many_units(void **state) {
    (void)state;
    head x[LISTS] = {open_head(1, 64, 64, 0), open_head(1, 64, 64, 0), open_head(1, 64, 64, 0)};
    ig_scan_list lists[LISTS];
    for (int i = 0; i < LISTS; i++) write_entries(&x[i], 100), lists[i] = list_of(&x[i], 0);
    for (int i = 0; i < 64; i++) x[0].q[i] = 0;
    x[1].q[3] = NAN, x[2].q[63] = -INFINITY;
    scan(lists, LISTS);
    for (int i = 0; i < LISTS; i++)
        for (int t = 0; t < 100; t++) expect_close(x[i].weights[t], 0.01f, 0.01f, "weight", t);
    for (int i = 0; i < LISTS; i++) close_head(&x[i]);
    enum { MANY = 400 }; /* lists of one head */
    head y = open_head(1, 256, 256, 0);
    write_entries(&y, MAX_N);
    ig_scan_list *all = calloc(MANY, sizeof *all);
    for (int i = 0; i < MANY; i++) all[i] = list_of(&y, i < MANY / 8 ? 0 : MAX_N);
    scan(all, MANY);
    expect_weights(&y);
    free(all);
    close_head(&y);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(like_the_cpu), cmocka_unit_test(alone_and_together),
                                       cmocka_unit_test(odd_queries_and_many_units)};
    int missing = missing_gpu();
    return missing ? missing : cmocka_run_group_tests(tests, open_devices, close_devices);
}
