/* SPDX-License-Identifier: Apache-2.0
 *
 * Lanes: copies that run beside operations come when they are waited for, and not before what they replace was used.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "two_devices.h"

enum { ARRAYS = 40, N = 1000, SLOTS = 2 };

static ig_device *gpu;
static const ig_device_ops *ops;

/* Arrays pass through two slots and are added up; each sum is right whenever it is asked for. */
static void arrays_pass_through_slots(void **state) {
    (void)state;
    const size_t n_bytes = N * sizeof(float);
    float *home = ig_device_alloc(gpu, IG_PLACE_HOST, ARRAYS * n_bytes),
          *got = ig_device_alloc(gpu, IG_PLACE_HOST, n_bytes);
    float *slots = ig_device_alloc(gpu, IG_PLACE_DEVICE, SLOTS * n_bytes),
          *sum = ig_device_alloc(gpu, IG_PLACE_DEVICE, n_bytes), want[N] = {0};
    assert_true(home && got && slots && sum);
    ig_lane *lane;
    ig_error err = {0};
    if (ops->open_lane(gpu, &lane, SLOTS, &err)) fail_msg("%s", err.text);
    for (int i = 0; i < ARRAYS * N; i++) home[i] = (float)(i % 977);
    for (int i = 0; i < SLOTS; i++) {
        ops->follow(gpu, lane); /* zeros go first */
        ops->send(gpu, lane, i, slots + i * N, home + i * N, n_bytes);
    }
    for (int i = 0; i < ARRAYS; i++) {
        float *slot = slots + i % SLOTS * N;
        ops->await(gpu, lane, i % SLOTS);
        ops->add(gpu, sum, slot, N);
        for (int k = 0; k < N; k++) want[k] += home[i * N + k];
        ops->follow(gpu, lane);
        if (i + SLOTS < ARRAYS) ops->send(gpu, lane, i % SLOTS, slot, home + (i + SLOTS) * N, n_bytes);
        if (i % 3) continue;
        ops->copy(gpu, got, sum, n_bytes);
        finish(GPU);
        for (int k = 0; k < N; k++)
            if (got[k] != want[k]) fail_msg("sum %d of array %d is %g, not %g", k, i, (double)got[k], (double)want[k]);
    }
    assert_true(ops->waited(gpu, lane) >= 0);
    ops->close_lane(gpu, lane);
    ig_device_free(gpu, IG_PLACE_HOST, home, 0), ig_device_free(gpu, IG_PLACE_HOST, got, 0);
    ig_device_free(gpu, IG_PLACE_DEVICE, slots, 0), ig_device_free(gpu, IG_PLACE_DEVICE, sum, 0);
}

/* More waits than are kept track of, and a lane that is closed while it copies. */
static void waits_without_a_finish(void **state) {
    (void)state;
    enum { WAITS = 150 };
    float *home = ig_device_alloc(gpu, IG_PLACE_HOST, WAITS * sizeof(float)),
          *to = ig_device_alloc(gpu, IG_PLACE_DEVICE, WAITS * sizeof(float));
    ig_lane *lane;
    ig_error err = {0};
    assert_true(home && to);
    if (ops->open_lane(gpu, &lane, WAITS, &err)) fail_msg("%s", err.text);
    for (int i = 0; i < WAITS; i++) home[i] = (float)i;
    ops->follow(gpu, lane);
    for (int i = 0; i < WAITS; i++) ops->send(gpu, lane, i, to + i, home + i, sizeof(float));
    for (int i = 0; i < WAITS; i++) ops->await(gpu, lane, i);
    ops->copy(gpu, home, to + 1, (WAITS - 1) * sizeof(float));
    finish(GPU);
    for (int i = 0; i < WAITS - 1; i++) assert_true(home[i] == (float)i + 1);
    double waited = ops->waited(gpu, lane);
    assert_true(waited >= 0 && waited < 600);
    ops->send(gpu, lane, 0, to, home, WAITS * sizeof(float));
    ops->close_lane(gpu, lane);
    ig_device_free(gpu, IG_PLACE_HOST, home, 0), ig_device_free(gpu, IG_PLACE_DEVICE, to, 0);
}

static int open_gpu(void **state) {
    int failed = open_devices(state);
    gpu = devices[GPU];
    ops = gpu->ops;
    return failed;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(arrays_pass_through_slots),
                                       cmocka_unit_test(waits_without_a_finish)};
    int missing = missing_gpu();
    return missing ? missing : cmocka_run_group_tests(tests, open_gpu, close_devices);
}
