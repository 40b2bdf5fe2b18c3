/* SPDX-License-Identifier: Apache-2.0
 *
 * A GPU that cannot be used, or no longer, says why in one line; memory that ends holds up nobody else; and copies that
 * are foreseen arrive, however many they are.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>

#include "device/residency.h"
#include "two_devices.h"

/* Of the stand-in for a GPU (cuda_on_cpu.h) alone. */
__attribute__((weak)) void cuda_on_cpu_fail(const char *call, int error);
__attribute__((weak)) size_t cuda_on_cpu_room(bool is_host, size_t n_bytes);

/* Errors of the CUDA runtime. */
enum { INSUFFICIENT_DRIVER = 35, NO_KERNEL_IMAGE = 209, UNKNOWN = 999 };

static void says(ig_status want, const char *words, const char *call, int error) {
    ig_device *d;
    ig_error err = {0};
    cuda_on_cpu_fail(call, error);
    ig_status got = ig_device_open_cuda(&d, 0, 2, &err);
    cuda_on_cpu_fail(NULL, 0);
    if (got != want || !strstr(err.text, words) || strchr(err.text, '\n')) fail_msg("status %d: %s", got, err.text);
    assert_null(d);
}

static void why_it_does_not_open(void **state) {
    (void)state;
    ig_device *d;
    ig_error err = {0};
    assert_int_equal(ig_device_open_cuda(&d, ig_cuda_count(), 2, &err), IG_E_NOT_FOUND);
    assert_non_null(strstr(err.text, "no such GPU"));
    if (!cuda_on_cpu_fail) skip();
    says(IG_E_NOT_FOUND, "the driver knows CUDA up to 12.4, this program was built with 13.0", "cudaGetDeviceCount",
         INSUFFICIENT_DRIVER);
    says(IG_E_NOT_FOUND, "no GPU can be used", "cudaGetDeviceCount", UNKNOWN);
    says(IG_E_DEVICE, "fibers on the CPU: opening the device", "cudaSetDevice", UNKNOWN);
    says(IG_E_UNSUPPORTED, "compute capability, 7.5", "cudaGetLastError", NO_KERNEL_IMAGE);
    says(IG_E_DEVICE, "trying the device", "cudaStreamSynchronize", UNKNOWN);
}

/* An error that comes with a wait is told once, and by the wait that it came with. */
static void an_error_is_told(void **state) {
    (void)state;
    ig_device *d = devices[GPU];
    ig_error err = {0};
    if (!cuda_on_cpu_fail) skip();
    cuda_on_cpu_fail("cudaStreamSynchronize", UNKNOWN);
    assert_int_equal(d->ops->finish(d, &err), IG_E_DEVICE);
    cuda_on_cpu_fail(NULL, 0);
    finish(GPU);
}

/* Where each operation is waited for the error names the one. */
static void the_kernel_that_failed(void **state) {
    (void)state;
    ig_device *d;
    ig_error err = {0};
    if (!cuda_on_cpu_fail) skip();
    setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
    assert_int_equal(ig_device_open_cuda(&d, 0, 2, &err), IG_OK);
    unsetenv("CUDA_LAUNCH_BLOCKING");
    float *x = ig_device_alloc(d, IG_PLACE_DEVICE, sizeof *x);
    d->ops->add(d, x, x, 1);
    cuda_on_cpu_fail("cudaStreamSynchronize", UNKNOWN);
    assert_int_equal(d->ops->finish(d, &err), IG_E_DEVICE);
    cuda_on_cpu_fail(NULL, 0);
    assert_non_null(strstr(err.text, "a kernel of the tests"));
    ig_device_free(d, IG_PLACE_DEVICE, x, sizeof *x);
    ig_device_close(d);
}

/* Page-locked memory is zero and begins at a page, whatever the driver gives; none is given back. */
static void host_memory_begins_at_a_page(void **state) {
    (void)state;
    enum { PAGE = 4096 };
    static const size_t sizes[] = {1, 64, 100, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE, 100000};
    size_t before = cuda_on_cpu_room ? cuda_on_cpu_room(true, SIZE_MAX) : 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint8_t *p = ig_device_alloc(devices[GPU], IG_PLACE_HOST, sizes[i]);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % PAGE, 0);
        assert_true(p[0] == 0 && p[sizes[i] - 1] == 0);
        memset(p, 1, sizes[i]);
        ig_device_free(devices[GPU], IG_PLACE_HOST, p, sizes[i]);
    }
    ig_device_free(devices[GPU], IG_PLACE_HOST, NULL, 0);
    if (cuda_on_cpu_room) assert_int_equal(cuda_on_cpu_room(true, SIZE_MAX), before);
    finish(GPU);
}

static atomic_bool is_over;

static void *ask(void *arg) {
    ig_device *d = arg;
    while (!is_over) d->ops->scratch_bytes(d);
    return NULL;
}

/* Another thread asks for its turn all the while. */
static void scratch_that_cannot_grow(void **state) {
    (void)state;
    ig_device *d = devices[GPU];
    ig_error err = {0};
    pthread_t other;
    if (!cuda_on_cpu_room) skip();
    ig_device_need need = {.max_rows = 8, .max_in = 256, .max_entries = 1 << 20, .heads = {8, 8, 64, 1}};
    cuda_on_cpu_room(false, 0);
    assert_int_equal(pthread_create(&other, NULL, ask, d), 0);
    for (int i = 0; i < 200000; i++) assert_int_equal(d->ops->reserve(d, &need, &err), IG_E_MEMORY);
    is_over = true;
    pthread_join(other, NULL);
    cuda_on_cpu_room(false, (size_t)1 << 36);
    assert_int_equal(d->ops->reserve(d, &need, &err), IG_OK);
}

/* More blocks in one go than there are threads to look at them. */
static void many_are_foreseen(void **state) {
    (void)state;
    enum { BLOCKS = 5000, ROW = 16, ROUNDS = 3 };
    ig_device *d = devices[GPU];
    ig_error err = {0};
    ig_residency *r;
    ig_residency_shape shape = {.n_layers = 1, .n_heads = 1, .table_len = BLOCKS, .block_bytes = 2 * ROW};
    shape.max_bytes = UINT64_MAX;
    if (d->ops->open_copies(d, &r, &shape, &err)) fail_msg("%s", err.text);
    assert_true(ig_residency_holds_all(r));
    uint8_t *home = ig_device_alloc(d, IG_PLACE_HOST, BLOCKS * 2 * ROW);
    const uint8_t **blocks = ig_device_alloc(d, IG_PLACE_HOST, BLOCKS * sizeof *blocks);
    uint8_t *got = malloc(BLOCKS * 2 * ROW);
    const uint8_t **where = malloc(BLOCKS * sizeof *where);
    for (int i = 0; i < BLOCKS; i++) blocks[i] = home + (size_t)i * 2 * ROW;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < BLOCKS; i++) memcpy(home + (size_t)i * 2 * ROW, (int[]){i, round}, 2 * sizeof i);
        ig_kv_traffic traffic = {0};
        ig_kv_view view = {.blocks = blocks,
                           .row_bytes = ROW,
                           .v_offset = ROW,
                           .n = BLOCKS,
                           .n_slots = BLOCKS,
                           .copies = r,
                           .where = r->books.where,
                           .traffic = &traffic};
        ig_residency_share_out(r, 0);
        d->ops->prefetch(d, &(ig_head_shape){1, 1, ROW / 2, 1}, &(ig_attention){.n_tokens = 1, .views = &view}, 1);
        finish(GPU);
        d->ops->copy(d, got, r->books.copies, BLOCKS * 2 * ROW);
        d->ops->copy(d, where, r->books.where, BLOCKS * sizeof *where);
        finish(GPU);
        assert_int_equal(traffic.copied, BLOCKS);
        for (int i = 0; i < BLOCKS; i++) /* whichever copy it got */
            assert_memory_equal(got + (where[i] - 1 - r->books.copies), home + i * 2 * ROW, 2 * ROW);
    }
    free(got);
    free(where);
    ig_device_free(d, IG_PLACE_HOST, home, 0), ig_device_free(d, IG_PLACE_HOST, (void *)blocks, 0);
    d->ops->close_copies(d, r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(why_it_does_not_open),     cmocka_unit_test(an_error_is_told),
        cmocka_unit_test(the_kernel_that_failed),   cmocka_unit_test(host_memory_begins_at_a_page),
        cmocka_unit_test(scratch_that_cannot_grow), cmocka_unit_test(many_are_foreseen)};
    int missing = missing_gpu();
    return missing ? missing : cmocka_run_group_tests(tests, open_devices, close_devices);
}
