/* SPDX-License-Identifier: Apache-2.0
 *
 * Entries weighed by their sketches on a GPU, against the scalar kernels of the CPU; picked by these weights, against
 * the rule; and what is left out.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "two_devices.h"

#include "kernel/kernel.h"

enum { UNIT = IG_SKETCH_TOKENS, MAX_N = 4500, UNITS = 4 * ((MAX_N + UNIT - 1) / UNIT), LISTS = 3, MAX_GROUP = 9 };

/* A KV head's units, on either side: of what is written a copy is on the GPU as far as choose() has brought it. */
typedef struct head {
    int group, rank, d, shift, n;
    uint8_t *host[2]; /* keys, values */
    uint8_t *dev[2];
    size_t bytes[2]; /* of a unit */
    uint32_t pieces[UNITS];
    float *q;             /* [group][rank] as the sketch wants them */
    float *from, *k;      /* [group][d] queries and [d] the last key, where the GPU reads them */
    float *maps, *offset; /* [2][rank][d] of queries and keys, [rank]; or NULL */
    float *sink_scores;   /* [group] of heads with maps; or NULL */
    bool is_own;          /* of the last entry nothing was sketched */
    float own[MAX_GROUP]; /* its scores */
    float *scratch, *rest, *share;
    int32_t *index, *n_index, *picked; /* picked [n], then their number */
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

/* Rows of a single number, so that products are exact. */
static void bind_maps(head *x) {
    ig_error err = {0};
    size_t d = (size_t)x->d, rank = (size_t)x->rank, n = 2 * rank * d + rank + (size_t)x->group;
    x->maps = calloc(n, sizeof *x->maps);
    x->offset = x->maps + 2 * rank * d;
    x->sink_scores = x->offset + rank;
    for (int g = 0; g < x->group; g++) x->sink_scores[g] = (float)(2 * g);
    for (size_t r = 0; r < rank; r++) {
        x->maps[r * d + r * 7 % d] = r % 3 ? 1 : -1;
        x->maps[(rank + r) * d + r * 5 % d] = r % 2 ? 0.5f : -2;
        x->offset[r] = (float)(r % 4);
    }
    if (devices[GPU]->ops->bind(devices[GPU], x->maps, n * sizeof *x->maps, &err)) fail_msg("%s", err.text);
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
    x.from = take(IG_PLACE_HOST, g * (size_t)d * sizeof *x.from);
    x.k = take(IG_PLACE_HOST, (size_t)d * sizeof *x.k);
    x.picked = take(IG_PLACE_HOST, (MAX_N + 1) * sizeof *x.picked);
    if (rank != d) bind_maps(&x);
    x.scratch = take(IG_PLACE_DEVICE, ig_scan_floats(group, d, MAX_N) * sizeof *x.scratch);
    x.index = take(IG_PLACE_HOST, MAX_N * sizeof *x.index);
    x.n_index = take(IG_PLACE_HOST, sizeof *x.n_index);
    x.rest = take(IG_PLACE_HOST, g * (size_t)d * sizeof *x.rest);
    x.share = take(IG_PLACE_HOST, g * sizeof *x.share);
    return x;
}

static void close_head(head *x) {
    void *pinned[] = {x->index, x->n_index, x->rest, x->share, x->from, x->k, x->picked};
    for (int v = 0; v < 2; v++) ig_device_free(devices[GPU], IG_PLACE_DEVICE, x->dev[v], 0);
    for (size_t i = 0; i < sizeof pinned / sizeof *pinned; i++)
        ig_device_free(devices[GPU], IG_PLACE_HOST, pinned[i], 0);
    ig_device_free(devices[GPU], IG_PLACE_DEVICE, x->scratch, 0);
    if (x->maps) devices[GPU]->ops->unbind(devices[GPU], x->maps);
    free(x->host[0]), free(x->host[1]), free(x->q), free(x->maps);
}

/* What sketches are made of. */
static void map_to(float *out, const head *x, int map, const float *from) {
    size_t d = (size_t)x->d, rank = (size_t)x->rank;
    if (!x->maps) memcpy(out, from, d * sizeof *out);
    for (size_t r = 0; x->maps && r < rank; r++) {
        const float *row = x->maps + ((size_t)map * rank + r) * d;
        out[r] = map ? -x->offset[r] : 0;
        for (size_t i = 0; i < d; i++) out[r] += row[i] * from[i];
    }
}

/* The queries that `from` holds. */
static void prepare_queries(head *x) {
    float key[IG_KV_DIMS];
    map_to(key, x, 1, x->k);
    for (int g = 0; g < x->group; g++) {
        float *q = x->q + g * x->rank;
        map_to(q, x, 0, x->from + g * x->d);
        x->own[g] = 0;
        for (int i = 0; i < x->rank; i++) x->own[g] += 0.4f * q[i] * key[i];
        k()->hadamard(q, x->rank);
    }
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
    for (int i = 0; i < x->group * x->d; i++) x->from[i] = random_number();
    for (int i = 0; i < x->d; i++) x->k[i] = random_number();
    prepare_queries(x);
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
                          .sink_scores = x->sink_scores,
                          .q = x->from,
                          .k = x->is_own ? x->k : NULL,
                          .query_map = x->maps,
                          .key_map = x->maps ? x->maps + x->rank * x->d : NULL,
                          .offset = x->offset,
                          .rule = {.n_sinks = 4, .n_recent = 20, .count = x->n / 2, .mass = 0.8},
                          .favour = {.block = 16},
                          .scratch = x->scratch,
                          .index = x->index,
                          .n_index = x->n_index,
                          .picked = x->picked,
                          .n_picked = x->picked + MAX_N,
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
    if (x->is_own) p[x->n - 1] = x->own[g];
    for (int i = 0; i < x->n; i++) top = fmaxf(top, p[i]);
    for (int i = 0; i < x->n; i++) sum += exp((double)p[i] - (double)top);
    if (x->sink_scores) sum += exp((double)x->sink_scores[g] - (double)top);
    for (int i = 0; i < x->n; i++) p[i] = (float)(exp((double)p[i] - (double)top) / sum);
    for (int i = x->n; i % UNIT; i++) p[i] = 0;
}

/* What the GPU has picked by. */
static const float *weights_of(const head *x) {
    static float w[MAX_N];
    void *pinned = take(IG_PLACE_HOST, sizeof w);
    devices[GPU]->ops->copy(devices[GPU], pinned, x->scratch, (size_t)x->n * sizeof *w);
    finish(GPU);
    memcpy(w, pinned, (size_t)x->n * sizeof *w);
    ig_device_free(devices[GPU], IG_PLACE_HOST, pinned, 0);
    return w;
}

static void expect_weights(const head *x) {
    static float p[MAX_GROUP][MAX_N + UNIT];
    const float *weights = weights_of(x);
    for (int g = 0; g < x->group; g++) share_out(p[g], x, g);
    for (int i = 0; i < x->n; i++) {
        float want = 0;
        for (int g = 0; g < x->group; g++) want += p[g][i];
        expect_close(weights[i], want, want, "weight", i);
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

static void choose(const ig_scan_list *lists, int n) { devices[GPU]->ops->choose(devices[GPU], lists, n, true); }

/* Weights in the units that the GPU sums up. */
static uint64_t units_of(float w) { return (uint64_t)ldexp((double)w, 40); }

static const float *sorted_by;

static int heaviest_first(const void *a, const void *b) {
    int i = *(const int *)a, j = *(const int *)b;
    return sorted_by[i] != sorted_by[j] ? sorted_by[i] < sorted_by[j] ? 1 : -1 : i - j;
}

/* The list is what the rule says of its weights, `more` of which favour has added. */
static void expect_picks(const ig_scan_list *l, const float *w, double more) {
    static int order[MAX_N];
    static bool chosen[MAX_N];
    const ig_pick_rule *r = &l->rule;
    int n = l->n, begin = r->n_sinks < n ? r->n_sinks : n, end = r->n_recent < n - begin ? n - r->n_recent : begin,
        left = r->count - begin - (n - end), at = 0;
    uint64_t all = 0, taken = 0;
    for (int i = 0; i < n; i++) {
        chosen[i] = i < begin || i >= end;
        order[i] = i;
        all += units_of(w[i]);
        if (chosen[i]) taken += units_of(w[i]);
    }
    double until = (1 - (1 - r->mass) * l->group / (l->group + more)) * (double)all;
    sorted_by = w;
    qsort(order, (size_t)n, sizeof *order, heaviest_first);
    for (int i = 0; i < n && left > 0 && (r->mass >= 1 || (double)taken < until); i++) {
        if (chosen[order[i]]) continue;
        chosen[order[i]] = true;
        taken += units_of(w[order[i]]);
        left--;
    }
    for (int i = 0; i < n; i++) {
        if (!chosen[i]) continue;
        if (at >= *l->n_index || l->index[at] != i) fail_msg("entry %d is not number %d of the chosen", i, at);
        at++;
    }
    assert_int_equal(at, *l->n_index);
}

/* Lists of several shapes together, as entries come: only units that are fresh are brought. */
static void like_the_cpu(void **state) {
    static const int lengths[] = {1, 20, 512, 517, 1500, 2049, MAX_N};
    head x[LISTS] = {open_head(1, 64, 64, 0), open_head(3, IG_KV_DIMS, IG_KV_DIMS, 1),
                     open_head(MAX_GROUP, 96, 128, 2)};
    int before = 0;
    (void)state;
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; before = lengths[l++]) {
        ig_scan_list lists[LISTS];
        for (int i = 0; i < LISTS; i++) {
            write_entries(&x[i], lengths[l] - (lengths[l] > 3 ? i : 0));
            lists[i] = list_of(&x[i], before > 3 ? before - i : 0);
        }
        choose(lists, LISTS);
        for (int i = 0; i < LISTS; i++) expect_weights(&x[i]);
        for (int i = 0; i < LISTS; i++) expect_picks(&lists[i], weights_of(&x[i]), 0);
        for (int i = 0; i < LISTS; i++) expect_rest(&x[i], x[i].index, *x[i].n_index);
    }
    for (int i = 0; i < LISTS; i++) close_head(&x[i]);
}

/* Whether the GPU's copy of the last entry's unit is what the host has. */
static bool has_last_unit(const head *x, int v) {
    size_t at = number_of(x, (x->n - 1) / UNIT) * x->bytes[v];
    uint8_t *pinned = take(IG_PLACE_HOST, x->bytes[v]);
    devices[GPU]->ops->copy(devices[GPU], pinned, x->dev[v] + at, x->bytes[v]);
    finish(GPU);
    bool is_same = memcmp(pinned, x->host[v] + at, x->bytes[v]) == 0;
    ig_device_free(devices[GPU], IG_PLACE_HOST, pinned, 0);
    return is_same;
}

/* An entry of which nothing was sketched is weighed by its key, also where its unit is a new one, which is not brought
 * then: what is there of its sketch is not looked at. Without a wait all is there when the device is waited for, in
 * both places. */
static void an_entry_without_sketch(void **state) {
    static const int lengths[] = {1, 17, 512, 513, 700};
    head x[LISTS] = {open_head(1, 64, 64, 0), open_head(3, 32, 64, 1), open_head(MAX_GROUP, 96, 128, 2)};
    (void)state;
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        ig_scan_list lists[LISTS];
        for (int i = 0; i < LISTS; i++) {
            int before = x[i].n;
            write_entries(&x[i], lengths[l]);
            x[i].is_own = true;
            lists[i] = list_of(&x[i], before ? before - 1 : 0);
        }
        devices[GPU]->ops->choose(devices[GPU], lists, LISTS, false);
        finish(GPU);
        for (int i = 0; i < LISTS; i++) {
            expect_weights(&x[i]);
            expect_picks(&lists[i], weights_of(&x[i]), 0);
            expect_rest(&x[i], x[i].index, *x[i].n_index);
            for (int v = 0; v < 2; v++) assert_int_equal(has_last_unit(&x[i], v), lengths[l] % UNIT != 1);
            assert_int_equal(x[i].picked[MAX_N], *x[i].n_index);
            assert_memory_equal(x[i].picked, x[i].index, (size_t)*x[i].n_index * sizeof *x[i].index);
        }
    }
    for (int i = 0; i < LISTS; i++) close_head(&x[i]);
}

/* A list's bits do not depend on what shares the call, nor on when its units were brought. */
static void alone_and_together(void **state) {
    head x[2] = {open_head(4, 64, 64, 0), open_head(4, 64, 64, 0)};
    static float alone[MAX_N];
    static int32_t index[MAX_N];
    (void)state;
    write_entries(&x[0], 700), write_entries(&x[1], MAX_N);
    ig_scan_list lists[2] = {list_of(&x[0], 0), list_of(&x[1], 0)};
    choose(lists, 1);
    int n = *x[0].n_index;
    memcpy(alone, weights_of(&x[0]), 700 * sizeof *alone);
    memcpy(index, x[0].index, (size_t)n * sizeof *index);
    choose(lists, 2);
    assert_memory_equal(alone, weights_of(&x[0]), 700 * sizeof *alone);
    assert_int_equal(n, *x[0].n_index);
    assert_memory_equal(index, x[0].index, (size_t)n * sizeof *index);
    lists[0].keys.fresh = lists[0].values.fresh = MAX_N;
    choose(lists, 2);
    assert_memory_equal(alone, weights_of(&x[0]), 700 * sizeof *alone);
    assert_int_equal(n, *x[0].n_index);
    assert_memory_equal(index, x[0].index, (size_t)n * sizeof *index);
    for (int i = 0; i < 2; i++) close_head(&x[i]);
}

/* Rules of all kinds, also where all weights are equal. */
static void rules(void **state) {
    static const ig_pick_rule of[] = {{0, 0, 1, 1},        {0, 0, MAX_N, 0.95}, {0, 0, 100, 0.95},
                                      {0, 0, 700, 1},      {4, 64, 68, 0.5},    {4, 64, 69, 0.5},
                                      {4, 64, 300, 0.999}, {4, 64, MAX_N, 1},   {0, 0, 9, 1e-9},
                                      {2, MAX_N, 9, 0.5},  {MAX_N, 3, 4, 0.9},  {700, 700, MAX_N, 0.1}};
    head x[2] = {open_head(3, 64, 64, 0), open_head(1, 64, 64, 0)};
    (void)state;
    for (int i = 0; i < 2; i++) write_entries(&x[i], i ? MAX_N : 1300);
    for (int i = 0; i < 64; i++) x[1].from[i] = 0;
    prepare_queries(&x[1]);
    for (size_t k = 0; k < sizeof of / sizeof *of; k++) {
        ig_scan_list lists[2] = {list_of(&x[0], 0), list_of(&x[1], 0)};
        lists[0].rule = lists[1].rule = of[k];
        choose(lists, 2);
        for (int i = 0; i < 2; i++) expect_picks(&lists[i], weights_of(&x[i]), 0);
    }
    for (int i = 0; i < 2; i++) close_head(&x[i]);
}

/* Weights are drawn to the mean of their block, and those in blocks used before become more. */
static void favours(void **state) {
    enum { N = 1237 };
    static float want[N];
    static uint8_t used[(N + 7) / 8];
    static const ig_pick_favour of[] = {
        {16, 0.5f, 8, used, N / 16}, {8, 0, 3, used, 40}, {64, 0.25f, 0, used, 5}, {512, 0.9f, 2, used, 3}};
    head x = open_head(3, 64, 64, 0);
    (void)state;
    write_entries(&x, N);
    for (int i = 0; i < N; i++) used[i / 8] |= (uint8_t)((ig_random_unit(&dice) < 0.3) << i % 8);
    for (size_t k = 0; k < sizeof of / sizeof *of; k++) {
        const ig_kernels *kernels = ig_kernels_get(IG_CPU_SCALAR);
        ig_scan_list list = list_of(&x, 0);
        double more = 0;
        choose(&list, 1);
        memcpy(want, weights_of(&x), sizeof want);
        list.favour = of[k];
        choose(&list, 1);
        if (of[k].locality > 0) kernels->smooth(want, N, of[k].block, of[k].locality);
        for (int i = 0; i < N; i++) {
            int block = i / of[k].block;
            if (block >= of[k].n_known || !(used[block / 8] >> block % 8 & 1)) continue;
            more += (double)(of[k].inertia * want[i]);
            want[i] += of[k].inertia * want[i];
        }
        for (int i = 0; i < N; i++) expect_close(weights_of(&x)[i], want[i], want[i], "weight", i);
        expect_picks(&list, weights_of(&x), more);
    }
    close_head(&x);
}

/* Bytes that go over the bus for lists of two heads of a sequence, in so many layers. */
static uint64_t bytes_of_layers(const head *x, int n_layers, int n_known) {
    static const uint8_t used[MAX_N / 8];
    ig_scan_list lists[] = {list_of(x, MAX_N), list_of(x, MAX_N)};
    for (int i = 0; i < 2; i++) lists[i].favour.used = used, lists[i].favour.n_known = n_known;
    uint64_t before = cuda_on_cpu_copied();
    for (int l = 0; l < n_layers; l++) devices[GPU]->ops->choose(devices[GPU], lists, 2, false);
    finish(GPU);
    return cuda_on_cpu_copied() - before;
}

/* Numbers of pieces go once for all layers and heads, and of a block used before each head brings a bit. */
static void pieces_go_once(void **state) {
    enum { FEW = 100, MANY = 4000, KNOWN = 1024, LAYERS = 5 };
    head x = open_head(1, 64, 64, 0);
    uint64_t one[2], layers[2];
    (void)state;
    if (!cuda_on_cpu_copied) skip();
    for (int i = 0; i < 2; i++) {
        write_entries(&x, i ? MANY : FEW);
        ig_scan_list list = list_of(&x, 0);
        choose(&list, 1);
        finish(GPU);
        one[i] = bytes_of_layers(&x, 1, 0), layers[i] = bytes_of_layers(&x, LAYERS, 0);
    }
    assert_true(one[1] >= one[0] + (MANY - FEW) / UNIT * sizeof *x.pieces / 2);
    assert_int_equal(layers[1] - one[1], layers[0] - one[0]);
    assert_int_equal(bytes_of_layers(&x, LAYERS, KNOWN) - layers[1], LAYERS * 2 * KNOWN / 8);
    close_head(&x);
}

/* Queries that are zero or no numbers find all entries alike, as on the CPU; and more units than the mail holds. */
static void odd_queries_and_many_units(void **state) {
    (void)state;
    head x[LISTS] = {open_head(1, 64, 64, 0), open_head(1, 64, 64, 0), open_head(1, 64, 64, 0)};
    ig_scan_list lists[LISTS];
    for (int i = 0; i < LISTS; i++) write_entries(&x[i], 100), lists[i] = list_of(&x[i], 0);
    for (int i = 0; i < 64; i++) x[0].from[i] = 0;
    x[1].from[3] = NAN, x[2].from[63] = -INFINITY;
    choose(lists, LISTS);
    for (int i = 0; i < LISTS; i++)
        for (int t = 0; t < 100; t++) expect_close(weights_of(&x[i])[t], 0.01f, 0.01f, "weight", t);
    for (int i = 0; i < LISTS; i++) close_head(&x[i]);
    enum { MANY = 400 }; /* lists of one head */
    head y = open_head(1, 256, 256, 0);
    write_entries(&y, MAX_N);
    ig_scan_list *all = calloc(MANY, sizeof *all);
    size_t floats = ig_scan_floats(1, y.d, MAX_N);
    float *scratch = take(IG_PLACE_DEVICE, MANY * floats * sizeof *scratch);
    int32_t *index = take(IG_PLACE_HOST, MANY * (MAX_N + 1) * sizeof *index);
    for (int i = 0; i < MANY; i++) {
        all[i] = list_of(&y, i < MANY / 8 ? 0 : MAX_N);
        if (i) all[i].scratch = scratch + (size_t)i * floats;
        if (i) all[i].n_index = index + (size_t)i * (MAX_N + 1), all[i].index = all[i].n_index + 1;
    }
    choose(all, MANY);
    expect_weights(&y);
    free(all);
    ig_device_free(devices[GPU], IG_PLACE_DEVICE, scratch, 0);
    ig_device_free(devices[GPU], IG_PLACE_HOST, index, 0);
    close_head(&y);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(like_the_cpu),
                                       cmocka_unit_test(an_entry_without_sketch),
                                       cmocka_unit_test(alone_and_together),
                                       cmocka_unit_test(rules),
                                       cmocka_unit_test(favours),
                                       cmocka_unit_test(pieces_go_once),
                                       cmocka_unit_test(odd_queries_and_many_units)};
    int missing = missing_gpu();
    return missing ? missing : cmocka_run_group_tests(tests, open_devices, close_devices);
}
