/* SPDX-License-Identifier: Apache-2.0
 *
 * What is known of the use of entries, against a plain model of each rule.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "policy/usage.h"

enum { HEADS = 3, SLOTS = 50, STEPS = 2000 };

static void values_follow_the_rule(void **state) {
    ig_evict_rule rule = (ig_evict_rule)(intptr_t)*state;
    ig_usage u;
    ig_error err = {0};
    ig_random r = {3};
    int model[HEADS][SLOTS] = {{0}}, n_halvings = 0;
    assert_int_equal(ig_usage_open(&u, rule, HEADS, SLOTS, &err), IG_OK);
    assert_true(ig_usage_plan(IG_EVICT_COUNTER, HEADS, SLOTS) == HEADS * (4 + 2 * SLOTS));
    assert_true(ig_usage_plan(IG_EVICT_LRU, HEADS, SLOTS) == HEADS * (4 + 8 * SLOTS));
    assert_true(ig_usage_plan(IG_EVICT_FIFO, HEADS, SLOTS) == 0);
    for (int step = 1; step <= STEPS; step++) {
        size_t head = (size_t)(ig_random_u64(&r) % HEADS);
        int came = (int)(ig_random_u64(&r) % SLOTS), n = 0;
        int32_t chosen[SLOTS], order[SLOTS];
        if (step % 5 == 0) {
            ig_usage_come(&u, head, came, (uint32_t)step);
            model[head][came] = rule == IG_EVICT_LRU ? step : 0;
        }
        for (int s = 0; s < SLOTS; s++)
            if (s == 0 || ig_random_u64(&r) % 4 == 0) chosen[n++] = s;
        ig_usage_select(&u, head, chosen, n, (uint32_t)step);
        for (int i = 0; i < n && rule != IG_EVICT_FIFO; i++) {
            int *x = &model[head][chosen[i]];
            *x = rule == IG_EVICT_LRU ? step : *x + 1;
            if (rule != IG_EVICT_COUNTER || *x < 255) continue;
            n_halvings++;
            for (int s = 0; s < SLOTS; s++) model[head][s] /= 2;
        }
        for (int s = 0; s < SLOTS; s++) order[s] = (s * 7 + step) % SLOTS;
        float value[SLOTS];
        ig_usage_value(&u, head, &(ig_entries){.slot = order, .n = SLOTS, .n_slots = SLOTS}, value);
        for (int s = 0; s < SLOTS; s++) assert_true(value[s] == (float)model[head][order[s]]);
        ig_usage_value(&u, head, &(ig_entries){.n = SLOTS, .n_slots = SLOTS}, value);
        for (int s = 0; s < SLOTS; s++) assert_true(value[s] == (float)model[head][s]);
    }
    if (rule == IG_EVICT_COUNTER) assert_true(n_halvings >= HEADS);
    ig_usage_close(&u);
    ig_usage_close(&u);
}

/* Steps of all heads and of some: those that fail have never been, however often they are made again. */
static void a_step_that_fails(void **state) {
    ig_evict_rule rule = (ig_evict_rule)(intptr_t)*state;
    ig_usage u, model;
    ig_error err = {0};
    ig_random r = {4};
    const ig_entries all = {.n = SLOTS, .n_slots = SLOTS};
    assert_int_equal(ig_usage_open(&u, rule, HEADS, SLOTS, &err), IG_OK);
    assert_int_equal(ig_usage_open(&model, rule, HEADS, SLOTS, &err), IG_OK);
    for (uint32_t step = 1; step <= STEPS; step++) {
        bool failed = ig_random_u64(&r) % 3 == 0;
        for (size_t head = 0; head < HEADS; head++) {
            int32_t chosen[SLOTS];
            int n = 0;
            for (int s = 0; s < SLOTS; s++)
                if (s == 0 || ig_random_u64(&r) % 4 == 0) chosen[n++] = s;
            for (int list = (int)(ig_random_u64(&r) % 3); list > 0; list--) {
                ig_usage_select(&u, head, chosen, n, step);
                if (!failed) ig_usage_select(&model, head, chosen, n, step);
            }
        }
        ig_usage_settle(&u, failed);
        ig_usage_settle(&model, false);
        for (size_t head = 0; head < HEADS; head++) {
            float value[SLOTS], wanted[SLOTS];
            ig_usage_value(&u, head, &all, value);
            ig_usage_value(&model, head, &all, wanted);
            assert_memory_equal(value, wanted, sizeof value);
        }
    }
    ig_usage_close(&u);
    ig_usage_close(&model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        {"counter", values_follow_the_rule, NULL, NULL, (void *)(intptr_t)IG_EVICT_COUNTER},
        {"lru", values_follow_the_rule, NULL, NULL, (void *)(intptr_t)IG_EVICT_LRU},
        {"fifo", values_follow_the_rule, NULL, NULL, (void *)(intptr_t)IG_EVICT_FIFO},
        {"counter, a step that fails", a_step_that_fails, NULL, NULL, (void *)(intptr_t)IG_EVICT_COUNTER},
        {"lru, a step that fails", a_step_that_fails, NULL, NULL, (void *)(intptr_t)IG_EVICT_LRU},
        {"fifo, a step that fails", a_step_that_fails, NULL, NULL, (void *)(intptr_t)IG_EVICT_FIFO},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
