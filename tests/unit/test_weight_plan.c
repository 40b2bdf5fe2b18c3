/* SPDX-License-Identifier: Apache-2.0
 *
 * Which layers stay in a memory: as many as fit, the others evenly between them, in every order a pass may meet them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "model/weight_plan.h"

enum { MOST = 80, ROW = 64, FIXED = 1000 };

static uint8_t bytes[MOST + 1]; /* addresses of matrices */

static ig_matrix matrix(int n_out) { return (ig_matrix){.w = bytes, .n_out = n_out, .row_bytes = ROW}; }

static ig_ffn ffns[MOST];

/* Layers without a gate, every third one larger than the others. */
static ig_weights make(ig_layer *layers, int n) {
    ig_weights w = {.embed = matrix(100), .layers = layers};
    memset(layers, 0, (size_t)n * sizeof *layers);
    for (int i = 0; i < n; i++) {
        ig_matrix *const m[] = {&layers[i].q, &layers[i].k, &layers[i].v, &layers[i].o, &ffns[i].up, &ffns[i].down};
        ffns[i] = (ig_ffn){0};
        layers[i].experts = &ffns[i];
        layers[i].n_experts = 1;
        for (size_t k = 0; k < sizeof m / sizeof *m; k++) *m[k] = matrix(i % 3 ? 8 : 12);
    }
    w.head = w.embed;
    return w;
}

/* What the choice is made of. */
static void check(const ig_weight_plan *p, uint64_t most) {
    int n = 0, first = -1, last = -1, least = p->n_layers, largest = 0;
    uint64_t sum = p->others.room, step = 0;
    for (int i = 0; i < p->n_layers; i++) {
        if (!ig_weight_plan_streams(p, i)) {
            sum += p->layers[i].room;
            continue;
        }
        int gap = i - last;
        if (last >= 0) least = gap < least ? gap : least, largest = gap > largest ? gap : largest;
        assert_int_equal(ig_weight_plan_next(p, last), i);
        assert_true(p->layers[i].room <= p->slot_bytes);
        if (first < 0) first = i;
        step += p->layers[i].room;
        last = i;
        n++;
    }
    assert_int_equal(n, p->n_streamed);
    assert_true(n == 0 || n > IG_WEIGHT_SLOTS);
    assert_true(p->bytes == sum + IG_WEIGHT_SLOTS * p->slot_bytes && p->bytes + FIXED <= most && p->step_bytes == step);
    if (n) assert_true(largest - least <= 1 && ig_weight_plan_next(p, last) == first);
}

static void layers_are_spread(void **state) {
    (void)state;
    static ig_layer layers[MOST];
    for (int n = 1; n <= MOST; n += n < 8 ? 1 : 9) {
        ig_weights w = make(layers, n);
        ig_weight_plan p;
        ig_error err = {0};
        if (ig_weight_plan_open(&p, &w, n, true, NULL, NULL, &err)) fail_msg("%s", err.text);
        uint64_t all = FIXED + p.bytes, step = all / 50;
        int before = 0, fits = 0;
        for (uint64_t most = all; most > step; most -= step) {
            if (ig_weight_plan_fit(&p, most, FIXED, "RAM", &err)) {
                assert_int_equal(err.status, IG_E_LIMIT);
                assert_non_null(strstr(err.text, "bytes of RAM for the weights are too few"));
                break;
            }
            check(&p, most);
            assert_true(p.n_streamed >= before);
            before = p.n_streamed;
            fits++;
        }
        assert_true(fits > 0 && (n <= 3 || before == n));
        ig_weight_plan_close(&p);
    }
}

static void parts_of_a_layer(void **state) {
    (void)state;
    ig_layer layers[4];
    ig_weights w = make(layers, 4);
    ffns[1].gate = matrix(8);
    ig_weight_plan p;
    ig_error err = {0};
    assert_int_equal(ig_weight_plan_open(&p, &w, 4, true, NULL, NULL, &err), IG_OK);
    assert_ptr_equal(p.layers[1].places[0].matrix, &layers[1].q);
    assert_ptr_equal(p.layers[1].places[3].matrix, &layers[1].o);
    assert_int_equal(ig_weight_plan_count(&p.layers[1], IG_WEIGHTS_QUERY), 1);
    assert_int_equal(ig_weight_plan_count(&p.layers[1], IG_WEIGHTS_ATTENTION), 4);
    assert_int_equal(ig_weight_plan_count(&p.layers[1], IG_WEIGHTS_ALL), 7);
    assert_int_equal(ig_weight_plan_count(&p.layers[0], IG_WEIGHTS_ALL), 6);
    ig_weight_plan_close(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(layers_are_spread), cmocka_unit_test(parts_of_a_layer)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
