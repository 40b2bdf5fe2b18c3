/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of a device, in arenas: one in each place. Where the device computes in the host's memory there is only one,
 * and what lies in both places is the same.
 */
#ifndef IG_DEVICE_SPACE_H
#define IG_DEVICE_SPACE_H

#include "base/memory.h"
#include "device/device.h"

/* Pages as ig_pages_reserve(), _release() and _drop() handle them, of a device; NULL: of the host alone. What is
 * dropped is zero again only there: page-locked memory stays as it is. */
void *ig_device_alloc(ig_device *d, ig_place place, size_t n_bytes);
void ig_device_free(ig_device *d, ig_place place, void *p, size_t n_bytes);
void ig_device_drop(ig_device *d, void *p, size_t n_bytes);

/* An array that operations use at `dev` and the host at `host`; ig_device_ops.copy() brings one up to the other. */
typedef struct ig_twin {
    float *dev, *host;
} ig_twin;

/* Filled in two passes, as an arena is. */
typedef struct ig_space {
    ig_device *dev; /* NULL: none, all is the host's alone */
    ig_arena at[IG_PLACES];
} ig_space;

void *ig_space_host(ig_space *s, size_t n_bytes);
void *ig_space_device(ig_space *s, size_t n_bytes);
ig_twin ig_space_twin(ig_space *s, size_t n_floats);
/* Bytes taken in both places; in the counting pass those that are wanted. */
size_t ig_space_bytes(const ig_space *s);
/* After the counting pass; false if there is no memory. */
bool ig_space_open(ig_space *s);
void ig_space_close(ig_space *s);

#endif
