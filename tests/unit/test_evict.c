/* SPDX-License-Identifier: Apache-2.0
 *
 * Eviction orders against their definitions, step by step on random histories.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "kv/evict.h"

enum { N = 37 };

typedef struct model {
    bool listed[N], kept[N];
    int count[N];
    long came[N], moved[N]; /* when it came; when it took its place in its ring */
} model;

static bool keep(void *user, uint32_t frame) { return ((model *)user)->kept[frame]; }

/* The victim by definition. */
static uint32_t expected(const model *m, ig_evict_rule rule) {
    uint32_t best = UINT32_MAX;
    for (uint32_t f = 0; f < N; f++) {
        if (!m->listed[f] || m->kept[f]) continue;
        if (best == UINT32_MAX) {
            best = f;
            continue;
        }
        bool earlier = m->moved[f] < m->moved[best];
        if (rule == IG_EVICT_FIFO) earlier = m->came[f] < m->came[best];
        if (rule == IG_EVICT_COUNTER && m->count[f] != m->count[best]) earlier = m->count[f] < m->count[best];
        if (earlier) best = f;
    }
    return best;
}

static void follows_its_rule(void **state) {
    ig_evict_rule rule = *(ig_evict_rule *)*state;
    ig_random r = {7};
    void *memory = calloc(1, ig_evict_bytes(N));
    ig_evict e;
    model m = {0};
    ig_evict_open(&e, rule, N, memory);
    for (long step = 1; step < 3000; step++) { /* fewer uses than would halve the counts, whose order then is its own */
        uint32_t f = (uint32_t)(ig_random_u64(&r) % N);
        switch (ig_random_u64(&r) % 4) {
            case 0:
                if (!m.listed[f]) m.came[f] = m.moved[f] = step, m.listed[f] = true;
                ig_evict_add(&e, f);
                break;
            case 1:
                m.listed[f] = false, m.count[f] = 0;
                ig_evict_remove(&e, f);
                break;
            case 2:
                m.count[f]++, m.moved[f] = step;
                if (m.count[f] > 250) continue;
                ig_evict_use(&e, f);
                break;
            default:
                m.kept[f] = !m.kept[f];
        }
        assert_int_equal(ig_evict_victim(&e, keep, &m), expected(&m, rule));
    }
    free(memory);
}

static bool keep_none(void *user, uint32_t frame) {
    (void)user, (void)frame;
    return false;
}

static void counts_are_halved(void **state) {
    (void)state;
    void *memory = calloc(1, ig_evict_bytes(3));
    ig_evict e;
    ig_evict_open(&e, IG_EVICT_COUNTER, 3, memory);
    for (uint32_t f = 0; f < 3; f++) ig_evict_add(&e, f);
    for (int i = 0; i < 100; i++) ig_evict_use(&e, 0);
    for (int i = 0; i < 300; i++) ig_evict_use(&e, 1);
    assert_int_equal(e.count[0], 50);
    assert_int_equal(e.count[1], 127 + 45);
    assert_int_equal(ig_evict_victim(&e, keep_none, NULL), 2);
    for (int i = 0; i < 60; i++) ig_evict_use(&e, 2);
    assert_int_equal(ig_evict_victim(&e, keep_none, NULL), 0);
    ig_evict_remove(&e, 0);
    ig_evict_remove(&e, 2);
    assert_int_equal(ig_evict_victim(&e, keep_none, NULL), 1);
    ig_evict_remove(&e, 1);
    assert_int_equal(ig_evict_victim(&e, keep_none, NULL), UINT32_MAX);
    free(memory);
}

int main(void) {
    static ig_evict_rule rules[] = {IG_EVICT_COUNTER, IG_EVICT_LRU, IG_EVICT_FIFO};
    const struct CMUnitTest tests[] = {
        {"counter", follows_its_rule, NULL, NULL, &rules[0]},
        {"lru", follows_its_rule, NULL, NULL, &rules[1]},
        {"fifo", follows_its_rule, NULL, NULL, &rules[2]},
        cmocka_unit_test(counts_are_halved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
