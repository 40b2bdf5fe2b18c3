/* SPDX-License-Identifier: Apache-2.0
 *
 * The CPU device: operations on nothing, and scratch that grows with what is asked for.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cpu_level.h"
#include "device/device.h"

static int open_device(void **state) {
    ig_error err = {0};
    if (ig_device_open_cpu((ig_device **)state, test_cpu_level(), 2, &err)) fail_msg("%s", err.text);
    return 0;
}

static int close_device(void **state) {
    ig_device_close(*state);
    return 0;
}

static size_t scratch_for(ig_device *d, int max_rows, int max_in, int head_dim) {
    ig_error err = {0};
    ig_device_need need = {.max_rows = max_rows, .max_in = max_in, .max_entries = 64, .heads = {4, 2, head_dim, 0}};
    if (d->ops->reserve(d, &need, &err)) fail_msg("%s", err.text);
    return d->ops->scratch_bytes(d);
}

static void scratch_grows(void **state) {
    size_t first = scratch_for(*state, 8, 256, 64), more = scratch_for(*state, 64, 32, 8);
    assert_true(more > first);
    assert_int_equal(scratch_for(*state, 8, 256, 64), more);
    assert_int_equal(scratch_for(*state, 64, 256, 64), more);
    assert_true(scratch_for(*state, 1, 1, 512) > more);
}

static void products_of_no_rows(void **state) {
    static const float w[32][64];
    ig_device *d = *state;
    ig_matrix m = {.w = w, .n_out = 32, .n_in = 64, .type = IG_TYPE_F32, .row_bytes = sizeof w[0]};
    for (int few = 0; few < 2; few++) d->ops->matmul(d, (float *[]){NULL}, (const ig_matrix *[]){&m}, 1, NULL, 0, few);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scratch_grows),
        cmocka_unit_test(products_of_no_rows),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
