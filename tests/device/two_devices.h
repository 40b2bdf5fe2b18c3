/* SPDX-License-Identifier: Apache-2.0
 *
 * The GPU, or what stands in for it (cuda_on_cpu.h), beside the scalar CPU device: both get the same arrays, and their
 * results are compared. Include after cmocka.h.
 */
#ifndef TESTS_TWO_DEVICES_H
#define TESTS_TWO_DEVICES_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "base/random.h"
#include "device/gpu.h"
#include "device/space.h"

/* Of the stand-in for a GPU (cuda_on_cpu.h) alone: bytes copied so far. */
__attribute__((weak)) uint64_t cuda_on_cpu_copied(void);
__attribute__((weak)) uint64_t cuda_on_cpu_count(const char *call);

enum { CPU, GPU, DEVICES };
static ig_device *devices[DEVICES];
static ig_random dice = {7};

/* The exit status of a test program that cannot be run here; 0: it can. */
static inline int missing_gpu(void) {
    if (ig_cuda_count() > 0) return 0;
    printf("skipped: no GPU\n");
    return 77;
}

static inline int open_devices(void **state) {
    (void)state;
    ig_error err = {0};
    if (ig_device_open_cpu(&devices[CPU], IG_CPU_SCALAR, 2, &err)) fail_msg("%s", err.text);
    if (ig_device_open_cuda(&devices[GPU], 0, 2, &err)) fail_msg("%s", err.text);
    return 0;
}

static inline int close_devices(void **state) {
    (void)state;
    for (int d = 0; d < DEVICES; d++) ig_device_close(devices[d]);
    return 0;
}

static inline void reserve_both(const ig_device_need *need) {
    ig_error err = {0};
    for (int d = 0; d < DEVICES; d++)
        if (devices[d]->ops->reserve(devices[d], need, &err)) fail_msg("%s", err.text);
}

static inline void finish(int d) {
    ig_error err = {0};
    if (devices[d]->ops->finish(devices[d], &err)) fail_msg("%s", err.text);
}

/* Floats that both devices have, each in a memory of its own. */
typedef struct both {
    float *on[DEVICES];
    float *host; /* as they were made; where results of a device come to */
    size_t n;
} both;

/* From the host to the devices, n from number `at` on. */
static inline void put_some(const both *x, size_t at, size_t n) {
    for (int d = 0; d < DEVICES; d++) {
        devices[d]->ops->copy(devices[d], x->on[d] + at, x->host + at, n * sizeof(float));
        finish(d);
    }
}

static inline void put(const both *x) { put_some(x, 0, x->n); }

/* Uniform in -size .. size. */
static inline both make_both(size_t n, double size) {
    both x = {.host = malloc((n + 1) * sizeof(float)), .n = n};
    for (size_t i = 0; i < n; i++) x.host[i] = (float)(size * (2 * ig_random_unit(&dice) - 1));
    for (int d = 0; d < DEVICES; d++) {
        x.on[d] = ig_device_alloc(devices[d], IG_PLACE_DEVICE, n * sizeof(float));
        assert_non_null(x.on[d]);
    }
    put(&x);
    return x;
}

static inline void free_both(both *x) {
    for (int d = 0; d < DEVICES; d++) ig_device_free(devices[d], IG_PLACE_DEVICE, x->on[d], x->n * sizeof(float));
    free(x->host);
}

/* A device's numbers come to x->host. */
static inline const float *get(const both *x, int d) {
    devices[d]->ops->copy(devices[d], x->host, x->on[d], x->n * sizeof(float));
    finish(d);
    return x->host;
}

/* The devices' numbers are the same, but for `share` of their size (root mean square); NaN where there is NaN. */
static inline void expect_near(const both *x, double share, const char *what) {
    float *a = malloc((x->n + 1) * sizeof *a);
    memcpy(a, get(x, CPU), x->n * sizeof *a);
    const float *b = get(x, GPU);
    double squares = 0;
    size_t n = 0;
    for (size_t i = 0; i < x->n; i++)
        if (isfinite(a[i])) squares += (double)a[i] * (double)a[i], n++;
    double most = share * sqrt(squares / (double)(n ? n : 1)) + 1e-30;
    for (size_t i = 0; i < x->n; i++) {
        if (isnan(a[i]) && isnan(b[i])) continue;
        if (a[i] != b[i] && !(fabs((double)a[i] - (double)b[i]) <= most))
            fail_msg("%s: number %zu of %zu is %.9g, not %.9g", what, i, x->n, (double)b[i], (double)a[i]);
    }
    free(a);
}

#endif
