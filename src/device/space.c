/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of a device: see space.h.
 */
#include "device/space.h"

static bool is_host(const ig_device *d) { return !d || d->ops->is_host; }

void *ig_device_alloc(ig_device *d, ig_place place, size_t n_bytes) {
    return is_host(d) ? ig_pages_reserve(n_bytes) : d->ops->alloc(d, place, n_bytes);
}

void ig_device_free(ig_device *d, ig_place place, void *p, size_t n_bytes) {
    if (is_host(d))
        ig_pages_release(p, n_bytes);
    else if (p)
        d->ops->free(d, place, p);
}

void ig_device_drop(ig_device *d, void *p, size_t n_bytes) {
    if (is_host(d)) ig_pages_drop(p, n_bytes);
}

void *ig_space_host(ig_space *s, size_t n_bytes) { return ig_arena_take(&s->at[IG_PLACE_HOST], n_bytes); }

void *ig_space_device(ig_space *s, size_t n_bytes) {
    return ig_arena_take(&s->at[is_host(s->dev) ? IG_PLACE_HOST : IG_PLACE_DEVICE], n_bytes);
}

ig_twin ig_space_twin(ig_space *s, size_t n_floats) {
    float *host = ig_space_host(s, n_floats * sizeof *host);
    return (ig_twin){is_host(s->dev) ? host : ig_space_device(s, n_floats * sizeof *host), host};
}

size_t ig_space_bytes(const ig_space *s) {
    size_t bytes = 0;
    for (int p = 0; p < IG_PLACES; p++) bytes += s->at[p].base ? s->at[p].size : s->at[p].used;
    return bytes;
}

bool ig_space_open(ig_space *s) {
    for (int p = 0; p < IG_PLACES; p++) {
        ig_arena *a = &s->at[p];
        void *base = a->used && a->used < SIZE_MAX / 2 ? ig_device_alloc(s->dev, (ig_place)p, a->used) : NULL;
        if (a->used && !base) {
            ig_space_close(s);
            return false;
        }
        *a = (ig_arena){.base = base, .size = a->used};
    }
    return true;
}

void ig_space_close(ig_space *s) {
    for (int p = 0; p < IG_PLACES; p++) {
        ig_device_free(s->dev, (ig_place)p, s->at[p].base, s->at[p].size);
        s->at[p] = (ig_arena){0};
    }
}
